"""Regression on real tables, as a practitioner would do it: any module, a learned noise scale, 20 fixed splits.

The network has one hidden layer of 50 units, as in LIVI and function-space POVI (ReLU as in the latter), whose
published numbers stand beside ours. Inputs and targets are standardised by the training data; weights have the prior
N(0, 1 / fan-in) and the noise's standard deviation σ = 0.3 exp(u) of the standardised targets, u ~ N(0, 1), is one more
coordinate of what every method infers. Measured are in the unit of the data.

At ``paper`` a run is one of the 20 fixed splits of each of four UCI sets; its number is the seed of everything else
too. Settings were chosen on the training data of split 0 alone, split again (``RegressionData.validation``). ``smoke``
and ``quick`` do the same with the embedded diabetes set, so that they need no download.
"""

from __future__ import annotations

from typing import Any

import torch

from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.chains import chain_diagnostics, run_hmc
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, density_scores, differing, evenly, fixed_draws, history
from gpvi_lib.experiments.uci_problem import EMBEDDED, HIDDEN, NOISE_MEDIAN, Measured, Problem, batches, over_sets
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.samplers import Particles, Sampler

SETS = ("boston", "concrete", "energy", "yacht")

GENERATOR = {
    "kind": "generator", "hidden": [32, 32], "output_scale": "prior",
    "noise_scale": 0.02, "noise_scale_unit": "prior", "train_noise_scale": True,
}  # fmt: skip
SPECS: dict[str, dict] = {
    "gpvi": {
        "sampler": GENERATOR | {"noise_dim": 8},
        "objective": {"kind": "gpvi", "num_samples": 16, "inverse": {"kind": "block"}, "kernel_space": "head"},
        "steps": 3_000, "lr": 5e-3,
    },
    "gpvi_exact_density": {
        "sampler": GENERATOR | {"noise_dim": 16}, "objective": {"kind": "elbo", "num_samples": 4},
        "steps": 4_000, "lr": 1.5e-2,
    },
    "hmc": {
        "chains": 4, "start": {"steps": 300, "lr": 1e-2, "final_lr": 1e-4},
        "num_leapfrog": 100, "num_steps": 70, "burn_in": 30,
        "step_size": {"boston": 0.009, "concrete": 0.01, "energy": 0.0025, "yacht": 0.0015, "diabetes": 0.01},
    },
    "deep_ensemble": {
        "sampler": {"kind": "particles", "num": 10}, "objective": {"kind": "likelihood"}, "steps": 2_000, "lr": 1e-2,
    },
    "mf_vi": {
        "sampler": {"kind": "mean_field", "scale": 0.02}, "objective": {"kind": "elbo", "num_samples": 4},
        "steps": 4_000, "lr": 1e-2,
    },
    "svgd": {
        "sampler": {"kind": "particles", "num": 20}, "objective": {"kind": "parvi", "direction": {"kind": "svgd"}},
        "steps": 2_000, "lr": 1e-2,
    },
}  # fmt: skip
LIVI_BASELINES = ("hmc", "deep_ensemble")
"""What is printed in LIVI's Table 1 too."""
BATCH_SIZE = 100
MIXED = 1.1
"""The largest R-hat, the median over test inputs in the mean over splits, of chains that count as mixed."""
THEN = {"seed": 54_321}
"""What the first records were evaluated with, see :func:`differing`."""
SIZES: dict[str, dict] = {
    "smoke": {"sets": EMBEDDED, "steps": 20, "samples": 50, "evaluations": 2, "seeds": 1},
    "quick": {"sets": EMBEDDED, "steps": 500, "samples": 200, "evaluations": 10, "seeds": 3},
    "paper": {"sets": SETS, "steps": None, "samples": 500, "evaluations": 20, "seeds": 20},
}


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    size, spec = SIZES[profile], dict(SPECS[method])
    shared = {
        "sets": list(size["sets"]),
        "hidden": HIDDEN,
        "noise_median": NOISE_MEDIAN,
        "samples": size["samples"],
        **differing(THEN, seed=EVALUATION_SEED),
    }
    if method == "hmc":
        spec["step_size"] = {name: spec["step_size"][name] for name in size["sets"]}
        if profile != "paper":
            proposals = {"smoke": 6, "quick": 30}[profile]
            spec |= {"num_leapfrog": 20, "num_steps": proposals, "burn_in": proposals // 3}
            spec["start"] = spec["start"] | {"steps": min(size["steps"], spec["start"]["steps"])}
        return shared | spec
    steps = spec["steps"] if size["steps"] is None else min(size["steps"], spec["steps"])
    return shared | {"batch_size": BATCH_SIZE, "final_lr": 1e-5} | spec | {
        "steps": steps, "history_every": max(1, steps // size["evaluations"])
    }  # fmt: skip


def seeds(profile: str) -> tuple[int, ...]:
    """The splits."""
    return tuple(range(SIZES[profile]["seeds"]))


def data_sets(profile: str) -> tuple[str, ...]:
    """Those of the profile that have to be downloaded."""
    return tuple(name for name in SIZES[profile]["sets"] if name not in EMBEDDED)


# ---------------------------------------------------------------- methods


def trained(config: dict, problem: Problem, context: RunContext) -> Measured:
    """A sampler trained on one split of one set, and measured."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = problem.posterior
    sampler = build_sampler(config["sampler"], target.dim, target.prior.scale, rng)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        predictive = problem.predictive(fixed_draws(sampler, config["samples"]))
        return {
            "rmse": float((predictive.mean - problem.targets).square().mean().sqrt()),
            "log_likelihood": float(predictive.log_prob(problem.targets).mean()),
        }

    settings = config | {"batch_size": min(config["batch_size"], target.num_data)}
    result = train(sampler, target, build_objective(config["objective"]), settings, context, rng, measure)
    metrics, arrays = problem.outcome(fixed_draws(sampler, config["samples"]))
    metrics |= density_scores(sampler, target, config["samples"])
    return metrics, arrays | history(result.history)


def _run_hmc(config: dict, name: str, problem: Problem, context: RunContext) -> Measured:
    """Chains in units of the prior's scale, from networks trained by maximum likelihood."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = problem.posterior
    start = build_sampler({"kind": "particles", "num": config["chains"]}, target.dim, target.prior.scale, rng)
    assert isinstance(start, Particles)
    settings = config["start"] | {"history_every": config["start"]["steps"]}
    train(start, target, build_objective({"kind": "likelihood"}), settings, context, rng, lambda step, sampler: {})
    settings = config | {"step_size": config["step_size"][name]}
    unit = target.prior.scale
    first, adapt = start.x.detach() / unit, config.get("adapt", False)
    result = run_hmc(settings, lambda u: target.log_prob(unit * u), first, context, rng, adapt=adapt)
    draws = target.prior.scale * result.samples
    metrics, arrays = problem.outcome(evenly(draws.flatten(0, 1), config["samples"]))
    means = torch.stack([problem.posterior.network(w, problem.inputs)[..., 0].detach() for w in draws.transpose(0, 1)])
    diagnosed, _ = chain_diagnostics(means)
    return metrics | diagnosed | {"acceptance": float(result.acceptance.mean())}, arrays


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """One split of every set."""

    def one(name: str, context: RunContext) -> Measured:
        problem = Problem(name, config, context)
        if method == "hmc":
            return _run_hmc(config, name, problem, context)
        return trained(config, problem, context)

    return over_sets(config["sets"], context, one)


def deviations(method: str, profile: str) -> str:
    """What differs from LIVI, and where SVGD is compared from function-space POVI."""
    if profile != "paper":
        return f"{profile} size, diabetes data"
    parts = ["20 fixed splits, learned noise, our settings"]
    if method == "hmc":
        spec = SPECS["hmc"]
        parts.append(f"{spec['chains']} chains of {spec['num_steps'] - spec['burn_in']} draws")
    if method == "deep_ensemble":
        parts.append(f"{SPECS[method]['sampler']['num']} networks")
    return "; ".join(parts)


def _scores() -> tuple[Score, ...]:
    """Rows of LIVI's Table 1, which has no yacht, and of function-space POVI's Tables 4 and 5, which have no energy.

    LIVI prints no settings of its chains and its ensemble, so that ours stand at its own numbers. Where both papers
    have a set, the second is for SVGD alone: its other methods are not ours.
    """
    found: list[Score] = []
    ours = tuple(method for method in SPECS if method not in LIVI_BASELINES)
    for name in SETS:
        item = f"livi/table1/{name}"
        livi = (item, item, "test_log_likelihood", "log_likelihood", "higher")
        fpovi = (f"fpovi/table4/{name}", f"fpovi/table5/{name}", "test_nll", "nll", "lower")
        tables: list[tuple] = [(*fpovi, "best", None)]
        if name != "yacht":
            tables = [(*livi, "printed", LIVI_BASELINES), (*livi, "best", ours)]
            tables += [] if name == "energy" else [(*fpovi, "best", ("svgd",))]
        for errors, densities, metric, key, better, setting, methods in tables:
            where: dict[str, Any] = {"setting": setting, "methods": methods, "profiles": ("paper",)}
            where["mixed"] = f"{name}_rhat_median", MIXED
            if errors.startswith("fpovi"):  # whose lengths are in epochs
                where["epoch"] = batches(name, BATCH_SIZE)
            found.append(Score(errors, "test_rmse", "lower", f"{name}_rmse", **where))
            found.append(Score(densities, metric, better, f"{name}_{key}", **where))
    return tuple(found)


EXPERIMENTS = (
    Experiment(
        name="uci-regression",
        title="Your own model: regression on four UCI sets with 20 fixed splits, next to LIVI and function-space POVI",
        methods=tuple(SPECS),
        config=config,
        seeds=seeds,
        run=run,
        scores=_scores(),
        deviations=deviations,
        data_sets=data_sets,
    ),
)
