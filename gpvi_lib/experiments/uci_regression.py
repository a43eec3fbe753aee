"""Regression on real tables, as a practitioner would do it: any module, a learned noise scale, 20 fixed splits.

The network has one hidden layer of 50 ReLU units, as in LIVI and function-space POVI, whose published numbers stand
beside ours. Inputs and targets are standardised by the training data; weights have the prior N(0, 1 / fan-in) and the
noise's standard deviation σ = 0.3 exp(u) of the standardised targets, u ~ N(0, 1), is one more coordinate of what every
method infers. Scores are in the unit of the data.

At ``paper`` a run is one of the 20 fixed splits of each of four UCI sets; its number is the seed of everything else
too. Settings were chosen on the training data of split 0 alone, split again (``RegressionData.validation``). ``smoke``
and ``quick`` do the same with the embedded diabetes set, so that they need no download.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.data import RegressionData, regression
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.one_dimensional_regression import chain_diagnostics, density_scores, evenly
from gpvi_lib.hmc import hmc
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.metrics import interval_coverage, regression_calibration_error
from gpvi_lib.networks import mlp
from gpvi_lib.samplers import Particles, Sampler
from gpvi_lib.targets import LearnedNoise, NormalLikelihood, NormalMixture, Posterior

HIDDEN = 50
NOISE_MEDIAN = 0.3
"""Median of the prior of σ, in standard deviations of the targets."""
SETS = ("boston", "concrete", "energy", "yacht")
EMBEDDED = ("diabetes",)
EVALUATION_SEED = 54_321

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
    }
    if method == "hmc":
        spec["step_size"] = {name: spec["step_size"][name] for name in size["sets"]}
        if profile != "paper":
            proposals = {"smoke": 6, "quick": 30}[profile]
            spec |= {"num_leapfrog": 20, "num_steps": proposals, "burn_in": proposals // 3}
            spec["start"] = spec["start"] | {"steps": min(size["steps"], spec["start"]["steps"])}
        return shared | spec
    steps = spec["steps"] if size["steps"] is None else min(size["steps"], spec["steps"])
    return shared | {"batch_size": 100, "final_lr": 1e-5} | spec | {
        "steps": steps, "history_every": max(1, steps // size["evaluations"])
    }  # fmt: skip


def seeds(profile: str) -> tuple[int, ...]:
    """The splits."""
    return tuple(range(SIZES[profile]["seeds"]))


def data_sets(profile: str) -> tuple[str, ...]:
    """Those of the profile that have to be downloaded."""
    return tuple(name for name in SIZES[profile]["sets"] if name not in EMBEDDED)


def posterior(
    data: RegressionData, hidden: int = HIDDEN, noise_median: float = NOISE_MEDIAN, device: torch.device | str = "cpu"
) -> Posterior:
    """The posterior over weights and noise given the training part of standardised data, in float32."""
    module = LearnedNoise(mlp([data.inputs.shape[1], hidden, 1]), noise_median)
    inputs, targets = (part.to(device, torch.float32) for part in (data.inputs, data.targets))
    return Posterior(module, NormalLikelihood(), inputs, targets)


# ---------------------------------------------------------------- scores


def prediction_scores(predictive: NormalMixture, targets: Float[Tensor, " b"]) -> dict[str, float]:
    """Scores of predictions in the unit of the data; densities in nats."""
    pit = predictive.cdf(targets)
    low, high = predictive.interval(0.9)
    found = {
        "rmse": float((predictive.mean - targets).square().mean().sqrt()),
        "log_likelihood": float(predictive.log_prob(targets).mean()),
        "coverage_90": float(interval_coverage(pit, pit.new_tensor([0.9]))),
        "width_90": float((high - low).mean()),
        "calibration_error": regression_calibration_error(pit),
        "noise": float(predictive.parts.scale.mean()),
        "spread": float(predictive.parts.loc.std(-1, correction=0).mean()),
    }
    return found | {"nll": -found["log_likelihood"]}


class Problem:
    """One split of one set, or other data: the posterior, and how predictions are scored."""

    def __init__(self, name: str, config: dict, context: RunContext, data: RegressionData | None = None) -> None:
        data = regression(name, context.seed) if data is None else data
        scaled, self.shift, self.factor = data.standardised()
        self.posterior = posterior(scaled, config["hidden"], config["noise_median"], context.device)
        self.inputs = scaled.test_inputs.to(context.device, torch.float32)
        self.targets = data.test_targets

    def predictive(self, w: Float[Tensor, "n d"]) -> NormalMixture:
        """Of the test targets, in their own unit, in float64."""
        found = self.posterior.predictive(w, self.inputs)
        assert isinstance(found, NormalMixture)
        means, scales = (part.mT.double().cpu() for part in (found.parts.loc, found.parts.scale))
        return NormalMixture(means, scales).rescaled(self.shift, self.factor)

    def outcome(self, w: Float[Tensor, "n d"]) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Scores, and the predictive distribution functions at the test targets.

        ``weight_sd`` is the median over weights of their standard deviation in units of the prior's, and
        ``prior_share`` the share of the weights where that is above 0.9: those that learned next to nothing.
        """
        predictive = self.predictive(w)
        ratio = w.std(0) / self.posterior.prior.scale
        learned = {"weight_sd": float(ratio.median()), "prior_share": float((ratio > 0.9).double().mean())}
        return prediction_scores(predictive, self.targets) | learned, {"pit": predictive.cdf(self.targets).float()}


# ---------------------------------------------------------------- methods


def _train(config: dict, problem: Problem, context: RunContext) -> tuple[dict[str, float], dict[str, Tensor]]:
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = problem.posterior
    sampler = build_sampler(config["sampler"], target.dim, target.prior.scale, rng)

    def draw(sampler: Sampler) -> Tensor:
        if isinstance(sampler, Particles):
            return sampler.sample(None, rng)
        return sampler.sample(config["samples"], torch.Generator(context.device).manual_seed(EVALUATION_SEED))

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        predictive = problem.predictive(draw(sampler))
        return {
            "rmse": float((predictive.mean - problem.targets).square().mean().sqrt()),
            "log_likelihood": float(predictive.log_prob(problem.targets).mean()),
        }

    settings = config | {"batch_size": min(config["batch_size"], target.num_data)}
    result = train(sampler, target, build_objective(config["objective"]), settings, context, rng, measure)
    metrics, arrays = problem.outcome(draw(sampler))
    history = {f"history_{key}": torch.tensor([row[key] for row in result.history]) for key in result.history[0]}
    return metrics | density_scores(sampler, target, config["samples"]), arrays | history


def _run_hmc(
    config: dict, name: str, problem: Problem, context: RunContext
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Chains in units of the prior's scale, from networks trained by maximum likelihood."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = problem.posterior
    start = build_sampler({"kind": "particles", "num": config["chains"]}, target.dim, target.prior.scale, rng)
    assert isinstance(start, Particles)
    settings = config["start"] | {"history_every": config["start"]["steps"]}
    train(start, target, build_objective({"kind": "likelihood"}), settings, context, rng, lambda step, sampler: {})
    result = hmc(
        lambda u: target.log_prob(target.prior.scale * u),
        start.x.detach() / target.prior.scale,
        step_size=config["step_size"][name],
        num_leapfrog=config["num_leapfrog"],
        num_steps=config["num_steps"],
        burn_in=config["burn_in"],
        rng=rng,
        label=context.label,
        progress=context.progress,
    )
    draws = target.prior.scale * result.samples
    metrics, arrays = problem.outcome(evenly(draws.flatten(0, 1), config["samples"]))
    means = torch.stack([problem.posterior.network(w, problem.inputs)[..., 0].detach() for w in draws.transpose(0, 1)])
    diagnosed, _ = chain_diagnostics(means)
    return metrics | diagnosed | {"acceptance": float(result.acceptance.mean())}, arrays


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """One split of every set; the names of metrics and arrays begin with the set's."""
    metrics: dict[str, float] = {}
    arrays: dict[str, Tensor] = {}
    context = replace(context, checkpoint=None)  # a set takes seconds, and the next must not go on from its checkpoint
    for name in config["sets"]:
        problem = Problem(name, config, context)
        if method == "hmc":
            scores, kept = _run_hmc(config, name, problem, context)
        else:
            scores, kept = _train(config, problem, context)
        metrics |= {f"{name}_{key}": value for key, value in scores.items()}
        arrays |= {f"{name}_{key}": value for key, value in kept.items()}
    return Outcome(metrics, arrays)


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

    Where both have a set, the second is for SVGD alone: its other methods are not ours.
    """
    found: list[Score] = []
    for name in SETS:
        tables: list[tuple] = [
            (f"livi/table1/{name}", f"livi/table1/{name}", "test_log_likelihood", "log_likelihood", "higher", None)
        ]
        fpovi = (f"fpovi/table4/{name}", f"fpovi/table5/{name}", "test_nll", "nll", "lower")
        if name == "yacht":
            tables = [(*fpovi, None)]
        elif name != "energy":
            tables.append((*fpovi, ("svgd",)))
        for errors, densities, metric, key, better, methods in tables:
            where: dict[str, Any] = {"setting": "best", "methods": methods, "profiles": ("paper",)}
            found.append(Score(errors, "test_rmse", "lower", f"{name}_rmse", **where))
            found.append(Score(densities, metric, better, f"{name}_{key}", **where))
    return tuple(found)


EXPERIMENT = Experiment(
    name="uci-regression",
    title="Your own model: regression on four UCI sets with 20 fixed splits, next to LIVI and function-space POVI",
    methods=tuple(SPECS),
    config=config,
    seeds=seeds,
    run=run,
    scores=_scores(),
    deviations=deviations,
    data_sets=data_sets,
)
