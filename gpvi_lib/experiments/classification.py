r"""Figures 2, 8 and 9: the predictive uncertainty of small Bayesian classifiers, every method against long chains.

The problem is section 4.3's, with four classes (Figures 2 and 8) or two (Figure 9, appendix D.2): 100 points in the
plane, a network with two hidden layers of 10 ReLU units, prior N(0, I) over its weights (the paper prints none).
The paper judges maps of the standard deviation of the predictions on ``[-10, 10]^2`` by eye. Here each map is compared
with that of :mod:`.classification_reference`: one data set per problem, seeds vary starts and draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib.experiments import classification_problem, classification_reference, function_models
from gpvi_lib.experiments.build import build_objective, build_sampler, elbo, gpvi, parvi, train, with_change
from gpvi_lib.experiments.chains import run_hmc
from gpvi_lib.experiments.classification_problem import EDGE, ClassificationData, grid, predictive_moments
from gpvi_lib.experiments.classification_reference import CHAIN_SEED, Reference
from gpvi_lib.experiments.evaluation import (
    EVALUATION_SEED,
    density_scores,
    differing,
    fixed_draws,
    has_density,
    history,
)
from gpvi_lib.experiments.printed import CLASSIFICATION_STEPS
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score, one_seed
from gpvi_lib.metrics import accuracy, log_likelihood, rmse, total_variation
from gpvi_lib.samplers import Generator, MeanField, Particles, Sampler
from gpvi_lib.targets import (
    ClassificationPosterior,
    MLPClassificationPosterior,
    NormalPrior,
    ScaleMixturePrior,
)

SAMPLES = 100
MANY = 1_000
"""Samples for the second score of methods that can draw any number."""
FAR = 3.0
"""Points of the grid farther than this from every training point are called far."""
HELPER_SAMPLES = 32
GENERATOR = {"kind": "generator", "noise_dim": 64, "hidden": [64, 64], "output_scale": "prior", "noise_scale": None}
TRAINED = GENERATOR | {"noise_scale": 0.3, "noise_scale_unit": "prior", "train_noise_scale": True}
PARTICLES = {"kind": "particles", "num": SAMPLES}
CRITIC = {"kind": "stein_critic", "hidden": [100, 100], "lr": 1e-3, "l2_weight": 10.0}
HELPER = {"kind": "helper", "width": 544, "num_layers": 3, "lr": 1e-4}


# Table 8, as far as it is printed; the numbers of steps are ours.
PRINTED = {
    "gpvi": gpvi(GENERATOR | {"noise_scale": 1.0}, HELPER, HELPER_SAMPLES),
    "gpvi_exact_jac": gpvi(GENERATOR | {"noise_scale": 1.0}, {"kind": "block"}, SAMPLES),
    "svgd": parvi(PARTICLES, {"kind": "svgd"}),
    "gfsf": parvi(PARTICLES, {"kind": "gfsf"}),
    "ksd": parvi(PARTICLES, CRITIC),
    "hmc": {"step_size": 5e-4, "num_leapfrog": 25, "num_steps": 25_000, "burn_in": 20_000, "chains": 4, "thin": 200},
    "amortized_svgd": parvi(GENERATOR, {"kind": "svgd"}, SAMPLES),
    "amortized_gfsf": parvi(GENERATOR, {"kind": "gfsf"}, SAMPLES),
    "amortized_ksd": parvi(GENERATOR, CRITIC, SAMPLES),
    "mf_vi": elbo({"kind": "mean_field", "scale": 0.05}, SAMPLES) | {"mixture_prior": True},
    "deep_ensemble": {"sampler": PARTICLES, "objective": {"kind": "likelihood"}},
}
# Chosen by the ELBO among SETTINGS.
BEST = {
    "gpvi_best": gpvi(TRAINED, {"kind": "block"}, 64) | {"lr": 3e-3, "final_lr": 3e-5},
    "gpvi_exact_density": elbo(TRAINED, 32) | {"lr": 1e-3, "final_lr": 1e-4},
    "mf_vi_best": elbo({"kind": "mean_field", "scale": 0.3}, 32) | {"lr": 1e-2, "final_lr": 1e-4},
    "hmc_best": classification_reference.HMC | {"chains": 20, "num_steps": 200, "burn_in": 100, "thin": 20},
}
SPECS = PRINTED | BEST
STEPS = {
    "gpvi": 400,
    "gpvi_exact_jac": 3_000,
    "svgd": 20_000,
    "gfsf": 8_000,
    "ksd": 5_000,
    "amortized_svgd": 12_000,
    "amortized_gfsf": 6_000,
    "amortized_ksd": 4_000,
    "mf_vi": 10_000,
    "deep_ensemble": 8_000,
    "gpvi_best": 4_000,
    "gpvi_exact_density": 10_000,
    "mf_vi_best": 15_000,
}
# Not rows of any figure: the exact density from where mean field ends; no prior; a small start; a kernel on z_{:k}.
CONTROLS = {
    "from_mean_field_4": (4, "gpvi_exact_density"),
    "from_mean_field_2": (2, "gpvi_exact_density"),
    "svgd_no_prior_4": (4, "svgd"),
    "amortized_svgd_no_prior_4": (4, "amortized_svgd"),
    "gpvi_exact_jac_no_prior_4": (4, "gpvi_exact_jac"),
    "deep_ensemble_small_start_4": (4, "deep_ensemble"),
    "gpvi_exact_jac_kernel_head_4": (4, "gpvi_exact_jac"),
    "gpvi_exact_jac_kernel_head_2": (2, "gpvi_exact_jac"),
}
# Rows for longer, once: what are the cut ones heading for? (Every step of GPVI with the helper would
# take more than a day.) With the exact inverse and four classes it was stopped when it had come apart.
ALL_STEPS, MORE_STEPS = CLASSIFICATION_STEPS, 100_000
LONGER = dict.fromkeys(("svgd", "amortized_svgd", "gpvi_exact_jac"), ALL_STEPS)
LONGER |= dict.fromkeys(("gfsf", "amortized_gfsf", "ksd", "amortized_ksd", "mf_vi", "deep_ensemble"), MORE_STEPS)
LONGER |= {"gpvi": 20_000}
FULL_LENGTH = {f"{row}_{classes}": (classes, row, steps) for classes in (4, 2) for row, steps in LONGER.items()}
COME_APART = 375_000
FULL_LENGTH |= {"gpvi_exact_jac_4": (4, "gpvi_exact_jac", COME_APART)}
"""Name -> number of classes, row, and number of steps."""
ALL_LENGTH = {name: (of, row, ALL_STEPS) for name, (of, row, steps) in FULL_LENGTH.items() if steps == MORE_STEPS}
ALL_LENGTH |= {"gpvi_4": (4, "gpvi", MORE_STEPS)}
"""The same for the rows that stopped at 100,000 steps, and for GPVI with the helper, at a fifth of that."""
FUNCTION_STEPS = {"smoke": 3, "quick": 200, "paper": 10_000}
FUNCTIONS = tuple(f"{row}_{classes}" for classes in (4, 2) for row in function_models.ROWS)
"""Figures 8 and 9 by particles in function space."""
HEAD = {"objective": {"kernel_space": "head"}}
"""A kernel on ``z_{:k}`` alone."""
# The candidates for our settings: each best row with one thing changed, on data that no figure shows.
RATES = {"lr_0_01": (1e-2, 1e-4), "lr_0_003": (3e-3, 3e-5), "lr_0_001": (1e-3, 1e-4)}
SETTINGS: dict[str, tuple[str, dict]] = {
    **{
        f"{row}_{name}": (row, {"lr": a, "final_lr": b})
        for row in ("gpvi_best", "gpvi_exact_density", "mf_vi_best")
        for name, (a, b) in RATES.items()
    },
    **{
        f"{row}_lambda_{name}": (row, {"sampler": {"noise_scale": value}})
        for row in ("gpvi_best", "gpvi_exact_density")
        for name, value in (("0_1", 0.1), ("1", 1.0))
    },
    **{
        f"mf_vi_best_scale_{name}": ("mf_vi_best", {"sampler": {"scale": value}})
        for name, value in (("0_05", 0.05), ("1", 1.0))
    },
    "mf_vi_best_lr_0_03": ("mf_vi_best", {"lr": 3e-2, "final_lr": 1e-4}),
    "gpvi_best_kernel_head": ("gpvi_best", HEAD),
}
NO_PRIOR = 100.0
"""Scale of a prior wide enough to be none."""
THEN = {"seed": 54_321, "edge": 10.0, "samples": 100}
"""What the first records were evaluated with, see :func:`differing`."""
SHORT_STEPS = {"smoke": 3, "quick": 200}
EVALUATIONS = {"smoke": 1, "quick": 3, "paper": 20}


def config(num_classes: int, method: str, profile: str) -> dict:
    """Everything but the seed. ``quick`` and ``smoke`` shorten the run and raise the learning rate to match."""
    shared = {
        "problem": classification_problem.problem_config(num_classes),
        "reference": classification_reference.reference_config(num_classes, profile),
        "grid_side": classification_problem.GRID_SIDE[profile],
        "far": FAR,
        "many": MANY if profile == "paper" else 0,
        **differing(THEN, seed=EVALUATION_SEED, edge=EDGE, samples=SAMPLES),
    }
    if "chains" in SPECS[method]:
        spec = dict(SPECS[method])
        if profile != "paper":
            kept, burn_in = SAMPLES // spec["chains"], {"smoke": 1, "quick": 40}[profile]
            spec |= {"num_steps": kept + burn_in, "burn_in": burn_in, "thin": 1}
            if "warm_up" in spec:
                spec["warm_up"] = spec["warm_up"] | {"num_steps": {"smoke": 2, "quick": 40}[profile]}
        return shared | spec
    steps = STEPS[method] if profile == "paper" else SHORT_STEPS[profile]
    printed = {"steps": steps, "lr": 1e-3, "final_lr": None, "batch_size": None, "mixture_prior": False}
    chosen = shared | printed | SPECS[method]
    if profile != "paper":
        chosen |= {"lr": 1e-2, "final_lr": 1e-3}
        if method == "gpvi":
            chosen["steps"] = min(steps, 20)
    return chosen | {"history_every": max(1, chosen["steps"] // EVALUATIONS[profile])}


def control_config(method: str, profile: str) -> dict:
    """The configuration of the row that a control varies, with what it varies."""
    classes, row = CONTROLS[method]
    chosen = config(classes, row, profile)
    if method.startswith("from_mean_field"):
        chosen |= {"first": config(classes, "mf_vi_best", profile)}
        if profile == "paper":
            chosen |= {"steps": 5_000, "history_every": 5_000 // EVALUATIONS[profile]}
    elif "no_prior" in method:
        chosen |= {"trained_prior_scale": NO_PRIOR}
    elif "kernel_head" in method:
        chosen = with_change(chosen, HEAD)
    else:
        chosen |= {"start_scale": "fan_in"}
    return chosen


def function_config(method: str, profile: str) -> dict:
    """Everything but the seed: SVGD's configuration with an objective in function space."""
    row, classes = method.rsplit("_", 1)
    steps = FUNCTION_STEPS[profile]
    spec = function_models.function_rows(-EDGE, EDGE, profile)[row]
    return (
        config(int(classes), "svgd", profile) | spec | {"steps": steps, "history_every": steps // EVALUATIONS[profile]}
    )


def longer_config(cells: dict[str, tuple[int, str, int]], method: str, profile: str) -> dict:
    """The configuration of a row, at ``paper`` with the steps of ``FULL_LENGTH`` or ``ALL_LENGTH``."""
    classes, row, steps = cells[method]
    chosen = config(classes, row, profile)
    if profile == "paper":
        every = 25_000 if steps > MORE_STEPS else steps // EVALUATIONS[profile]
        chosen |= {"steps": steps, "history_every": every}
    return chosen


def settings_config(method: str, profile: str) -> dict:
    """The configuration of a candidate: a row's with its change, four classes, data of their own."""
    row, change = SETTINGS[method]
    reference = classification_reference.reference_by("hmc_4_other", profile)
    other = {"problem": reference["config"]["problem"], "reference": reference}
    return with_change(config(4, row, profile) | other, change)


def seeds(profile: str) -> tuple[int, ...]:
    """Starts and training; neither the data nor the noise of the networks that are measured depends on them."""
    return tuple(range({"smoke": 1, "quick": 1, "paper": 3}[profile]))


def is_far(points: Float[Tensor, "p 2"], inputs: Float[Tensor, "N 2"], distance: float) -> Bool[Tensor, " p"]:
    """Whether the nearest training point is farther than ``distance``."""
    return torch.cdist(points, inputs).amin(1) > distance


@dataclass(frozen=True)
class Judge:
    """Compares weight vectors, or their predictions, with a reference.

    Attributes:
        target: the posterior with prior N(0, I), whatever prior a method was given.
        data: of the problem.
        points: the grid ``(p, 2)``.
        far: which of them are far from the data.
        reference: predictions of long chains on the grid.
    """

    target: MLPClassificationPosterior
    data: ClassificationData
    points: Float[Tensor, "p 2"]
    far: Bool[Tensor, " p"]
    reference: Reference

    @classmethod
    def of(cls, config: dict, device: torch.device | str = "cpu") -> Judge:
        """The judge of a method's configuration; loads the reference's records."""
        data, target = classification_problem.posterior(config["problem"], device)
        points = grid(config["grid_side"], data.inputs)
        far = is_far(points, data.inputs, config["far"])
        return cls(target, data, points, far, classification_reference.load(config["reference"]))

    def distances(self, mean: Float[Tensor, "p c"], sd: Float[Tensor, "p c"]) -> dict[str, float]:
        """How far a predictive distribution and its standard deviations are from the reference, over the grid.

        Returns:
            ``total_variation`` (mean over the grid), ``rmse_mean`` and ``rmse_sd`` (over grid and classes), and
            ``sd_far``, ``sd_near``: the standard deviation averaged over classes and far or near points.
        """
        mean, sd = mean.float().cpu(), sd.float().cpu()
        far = self.far.cpu()
        return {
            "total_variation": float(total_variation(mean, self.reference.mean).mean()),
            "rmse_mean": rmse(mean, self.reference.mean),
            "rmse_sd": rmse(sd, self.reference.sd),
            "sd_far": float(sd[far].mean()),
            "sd_near": float(sd[~far].mean()),
        }

    @torch.no_grad()
    def scores(self, w: Float[Tensor, "n d"]) -> dict[str, float]:
        """:meth:`distances` of a set of networks, and test accuracy in percent and mean test log-likelihood."""
        predicted = self.target.probabilities(w, self.data.test_inputs).mean(0).mT
        return self.distances(*predictive_moments(self.target, w, self.points)) | {
            "accuracy_percent": 100 * accuracy(predicted, self.data.test_labels),
            "log_likelihood": log_likelihood(predicted, self.data.test_labels),
        }


@torch.no_grad()
def start_at(generator: Generator, mean_field: MeanField) -> None:
    """Make ``f(z)`` the mean field's ``m + s ⊙ z``: no output weights, biases ``m``, ``λ = s``."""
    generator.output.weight.zero_()
    generator.output.bias.copy_(mean_field.mean)
    assert generator.log_noise_scale is not None, "only with λ can it be the mean field's"
    generator.log_noise_scale.data = mean_field.scale.log()


def _first_sampler(
    config: dict, target: ClassificationPosterior, context: RunContext, rng: torch.Generator
) -> tuple[Sampler, float]:
    """The sampler that training starts from, and the seconds of a ``first`` phase if the configuration has one."""
    scale = target.network.fan_in_scale() if config.get("start_scale") == "fan_in" else 1.0
    sampler = build_sampler(config["sampler"], target.dim, scale, rng)
    if "first" not in config:
        return sampler, 0.0
    first, alone = config["first"], replace(context, checkpoint=None)
    mean_field = build_sampler(first["sampler"], target.dim, 1.0, rng)
    objective = build_objective(first["objective"])
    result = train(mean_field, target, objective, first, alone, rng, lambda step, sampler: {})
    assert isinstance(sampler, Generator) and isinstance(mean_field, MeanField)
    start_at(sampler, mean_field)
    return sampler, result.seconds


def _run_hmc(config: dict, judge: Judge, context: RunContext, rng: torch.Generator) -> Outcome:
    initial = torch.randn(config["chains"], judge.target.dim, generator=rng, device=rng.device)
    chain_rng = torch.Generator(context.device).manual_seed(CHAIN_SEED + context.seed)
    result = run_hmc(config, judge.target.log_prob, initial, context, chain_rng)
    draws = result.samples.flatten(0, 1)
    mean, sd = predictive_moments(judge.target, draws, judge.points)
    metrics = judge.scores(draws) | {"acceptance": float(result.acceptance.mean()), "draws": float(len(draws))}
    return Outcome(metrics, {"mean": mean.float().cpu(), "sd": sd.float().cpu()}, result.seconds)


def _measure(judge: Judge, num_samples: int, density_samples: int) -> Callable[[int, Sampler], dict[str, float]]:
    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        row = judge.scores(fixed_draws(sampler, num_samples))
        return row | density_scores(sampler, judge.target, density_samples)

    return measure


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train or sample one method, and compare its predictions with the reference."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    judge = Judge.of(config, context.device)
    if "chains" in config:
        return _run_hmc(config, judge, context, rng)
    prior = ScaleMixturePrior() if config["mixture_prior"] else NormalPrior(config.get("trained_prior_scale", 1.0))
    _, target = classification_problem.posterior(config["problem"], context.device, prior)
    sampler, before = _first_sampler(config, target, context, rng)
    measure = _measure(judge, SAMPLES, config["many"] or SAMPLES)
    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    metrics = {key: value for key, value in result.history[-1].items() if key != "step"}
    mean, sd = predictive_moments(judge.target, fixed_draws(sampler, SAMPLES), judge.points)
    arrays = {"mean": mean.float(), "sd": sd.float()}
    if config["many"] and not isinstance(sampler, Particles):
        many = judge.scores(fixed_draws(sampler, config["many"]))
        metrics |= {f"{key}_many": many[key] for key in ("total_variation", "rmse_mean", "rmse_sd")}
    if isinstance(sampler, Generator | MeanField) and has_density(sampler):
        scale = sampler.scale if isinstance(sampler, MeanField) else sampler.noise_scale
        assert scale is not None, "it has a density"
        arrays["scale"] = scale.detach().clone()
    arrays |= history(result.history)
    told = [row for row in result.diagnostics if "residual" in row]  # by a helper
    if told:
        arrays |= {f"helper_{key}": torch.tensor([row[key] for row in told]) for key in ("step", "residual")}
    seconds = before + result.seconds
    return Outcome(metrics, {name: array.cpu().contiguous() for name, array in arrays.items()}, seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper."""
    return _differences(method, profile, config(4, method, profile))


def longer_deviations(cells: dict[str, tuple[int, str, int]], method: str, profile: str) -> str:
    """The same for a row of ``FULL_LENGTH`` or ``ALL_LENGTH``."""
    return _differences(cells[method][1], profile, longer_config(cells, method, profile))


def _differences(method: str, profile: str, chosen: dict) -> str:
    """What a row's configuration has that is not printed, or printed otherwise."""
    common = "one data set, prior N(0, I), first weights N(0, 1)"
    if "chains" in SPECS[method]:
        if profile != "paper":
            return f"{profile} size; {common}"
        spec = SPECS[method]
        ours = f"step size {spec['step_size']:g}, {spec['num_leapfrog']} leapfrog steps; " if method in BEST else ""
        return f"{spec['chains']} chains give the 100 draws; {ours}{common}"
    ours = {
        "gpvi": f"; {HELPER_SAMPLES} samples a step; ELBO claimed",
        "gpvi_exact_jac": "; ELBO claimed",
        "mf_vi": "",
        "gpvi_best": "; exact block inverse, 64 samples a step, one trained λ per weight; ELBO claimed",
        "gpvi_exact_density": "; ELBO with the exact density, 32 samples a step, one trained λ per weight",
        "mf_vi_best": "; 32 samples a step",
    }.get(method, "")
    if method == "mf_vi":
        common = "one data set, first means N(0, 1); trained under Table 8's mixture prior, judged under N(0, I)"
    if method == "deep_ensemble":
        common = "one data set, no prior, first weights N(0, 1)"
    rate = f"; learning rate {chosen['lr']:g} decaying to {chosen['final_lr']:g}" if chosen["final_lr"] else ""
    steps = "" if chosen["steps"] == ALL_STEPS else f"{chosen['steps']:,} of {ALL_STEPS:,} steps; "
    if chosen["steps"] == COME_APART:
        steps += "stopped when it had come apart; "
    return f"{steps}{common}{ours}{rate}"


FIGURE_2 = ("gpvi", "svgd", "hmc", "amortized_svgd", "mf_vi", "deep_ensemble")
"""The methods that the main text shows; the same runs are in Figure 8."""


SCORED: tuple[tuple[str, Literal["lower", "higher"]], ...] = (
    ("total_variation", "lower"),
    ("rmse_mean", "lower"),
    ("rmse_sd", "lower"),
    ("accuracy_percent", "higher"),
    ("log_likelihood", "higher"),
    ("elbo", "higher"),
)


def _scores(num_classes: int, rows: dict[str, str]) -> tuple[Score, ...]:
    """Those of Figure 8 (and 2) or 9, for methods that are rows of it: method -> row."""
    item, methods = {4: "gpvi/figure8", 2: "gpvi/figure9"}[num_classes], tuple(rows)
    found = [Score(item=item, metric=name, better=better, key=name, methods=methods) for name, better in SCORED]
    if num_classes == 4:
        shown = tuple(method for method, row in rows.items() if row in FIGURE_2)
        found.append(Score(item="gpvi/figure2", metric="rmse_sd", better="lower", key="rmse_sd", methods=shown))
    return tuple(found)


def _experiment(num_classes: int, title: str) -> Experiment:
    return Experiment(
        name=f"classification-{num_classes}",
        title=title,
        methods=tuple(SPECS),
        config=partial(config, num_classes),
        seeds=seeds,
        run=run,
        scores=_scores(num_classes, {method: method for method in SPECS}),
        deviations=deviations,
        rows={method: (method.removesuffix("_best"), "best") for method in BEST},
    )


def _longer(name: str, title: str, cells: dict[str, tuple[int, str, int]], instead_of: tuple[str, ...]) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        methods=tuple(cells),
        config=partial(longer_config, cells),
        seeds=one_seed,
        run=run,
        scores=tuple(
            score
            for num_classes in (4, 2)
            for score in _scores(num_classes, {m: row for m, (of, row, _) in cells.items() if of == num_classes})
        ),
        deviations=partial(longer_deviations, cells),
        rows={method: (row, "printed") for method, (_, row, _) in cells.items()},
        instead_of=instead_of,
    )


EXPERIMENTS = (
    _experiment(4, "Figures 2 and 8: predictive uncertainty with four classes in the plane"),
    _experiment(2, "Figure 9: predictive uncertainty with two classes in the plane"),
    Experiment(
        name="classification-controls",
        title="Controls for Figures 8 and 9: another start, or no prior",
        methods=tuple(CONTROLS),
        config=control_config,
        seeds=seeds,
        run=run,
    ),
    Experiment(
        name="classification-functions",
        title="Figures 8 and 9 by particles in function space",
        methods=FUNCTIONS,
        config=function_config,
        seeds=seeds,
        run=run,
    ),
    _longer(
        "classification-full-length",
        "Rows of Figures 8 and 9 with up to the printed 500,000 steps, one seed",
        FULL_LENGTH,
        ("classification-4", "classification-2"),
    ),
    _longer(
        "classification-all-steps",
        "Rows of Figures 8 and 9 that stopped early, with 500,000 steps (the helper with 100,000), one seed",
        ALL_LENGTH,
        ("classification-4", "classification-2", "classification-full-length"),
    ),
    Experiment(
        name="classification-settings",
        title="Candidates for our settings of Figures 8 and 9, on another data set of four classes",
        methods=tuple(SETTINGS),
        config=settings_config,
        seeds=one_seed,
        run=run,
    ),
)
