r"""Rows of the benchmark on targets of other experiments: Table 2, Figures 1, 8 and 9, the toys of LIVI and f-POVI.

A row ``<target>_<method>`` is measured as the rows of the target's own experiment are: ``sigma_error``, ``w1`` or
``total_variation``, of as many draws. Nothing is tuned here. The exact density has the settings of its own row on that
target; L′ and the functional gradient take them over with their own objectives. SVGD, the Langevin network and the
short chains have those of :mod:`.benchmark`, the latter two in units of the prior's scale. f-POVI's toy has no row of
the exact density: there it and mean field have their settings of Figure 8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.experiments import (
    bayesian_linear_regression,
    benchmark,
    classification,
    fpovi_toy,
    linear_problem,
    livi_problem,
    livi_toy,
    livi_toy_reference,
    one_dimensional_regression,
)
from gpvi_lib.experiments.chains import run_hmc
from gpvi_lib.experiments.evaluation import Functions, evenly, fixed_draws
from gpvi_lib.function_priors import weight_scale
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.targets import Target

Scores = dict[str, float]


@dataclass(frozen=True)
class Problem:
    """A target of another experiment, and how its rows are measured.

    Attributes:
        target: the posterior.
        scale: the prior's standard deviations, ``(d,)``, in the target's precision.
        measure: scores of draws ``(n, d)``.
        draws: how many are measured.
    """

    target: Target
    scale: Float[Tensor, " d"]
    measure: Callable[[Float[Tensor, "n d"]], Scores]
    draws: int


@dataclass
class InUnits:
    """``u -> log p(scale ⊙ u)``, up to a constant; so that one start and one step size suit every prior."""

    target: Target
    scale: Float[Tensor, " d"]
    num_data: None = None

    @property
    def dim(self) -> int:
        return self.target.dim

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Of the target at ``scale ⊙ x``."""
        return self.target.log_prob(self.scale * x)


# ---------------------------------------------------------------- targets


def _linear(config: dict, seed: int) -> Problem:
    target = linear_problem.problem(config, seed, torch.device("cpu"))

    def measure(draws: Tensor) -> Scores:
        draws = draws.double()
        return linear_problem.errors(target, draws.mean(0), torch.cov(draws.mT))

    return Problem(target, torch.ones(target.dim), measure, benchmark.DRAWS)


def _classes(config: dict, seed: int) -> Problem:
    judge = classification.Judge.of(config)
    return Problem(judge.target, torch.ones(judge.target.dim), judge.scores, classification.SAMPLES)


def _line(config: dict, seed: int) -> Problem:
    target = one_dimensional_regression.posterior(config["prior"], config["data_seed"], torch.float32)
    reference = one_dimensional_regression.read_reference("nuts", config["reference_profile"])

    def measure(w: Tensor) -> Scores:
        found = one_dimensional_regression.functions(target, w)
        return one_dimensional_regression.function_scores(found, reference)

    return Problem(target, weight_scale(target), measure, config["samples"])


def _livi(config: dict, seed: int) -> Problem:
    target = livi_problem.posterior(config["prior_scale"], torch.float32)
    reference = livi_toy_reference.read_reference(config["reference_profile"])

    def measure(w: Tensor) -> Scores:
        return livi_problem.function_scores(livi_problem.functions(target, w), reference)

    return Problem(target, weight_scale(target), measure, config["draws"])


def _fpovi(config: dict, seed: int) -> Problem:
    target = fpovi_toy.posterior(config["width"])
    reference = Functions.of(fpovi_toy.read_reference(config["reference"]["method"], config["reference"]["profile"]))

    def measure(w: Tensor) -> Scores:
        return fpovi_toy.scores(fpovi_toy.functions(target, w), reference)

    return Problem(target, weight_scale(target), measure, config["samples"])


DENSITY = "gpvi_exact_density"
LIKE_FIGURE_8 = ("sampler", "objective", "steps", "lr", "final_lr", "history_every")
"""What f-POVI's toy takes over from Figure 8."""


def _fpovi_config(row: str, profile: str) -> dict:
    """The configuration of f-POVI's toy with a row of Figure 8."""
    taken = classification.config(4, row, profile)
    taken["sampler"] = taken["sampler"] | {"dtype": "float64"}
    return fpovi_toy.config("svgd", profile) | {key: taken[key] for key in LIKE_FIGURE_8}


TARGETS: dict[str, tuple[Callable[[dict, int], Problem], Callable[[str, str], dict]]] = {
    "table_2": (_linear, bayesian_linear_regression.config),
    "figure_1": (_line, one_dimensional_regression.config),
    "four_classes": (_classes, lambda row, profile: classification.config(4, row, profile)),
    "two_classes": (_classes, lambda row, profile: classification.config(2, row, profile)),
    "livi_toy": (_livi, livi_toy.config),
    "fpovi_toy": (_fpovi, _fpovi_config),
}
"""Name -> what makes its problem, and the configuration of a row of its own experiment."""

# ---------------------------------------------------------------- methods

CHAINED = ("refined", "hmc_elsewhere")
NETWORK = ("livi", *CHAINED)
METHODS = {
    "table_2": ("livi", "langevin", *CHAINED),
    "figure_1": NETWORK,
    "four_classes": NETWORK,
    "two_classes": NETWORK,
    "livi_toy": ("gpvi", "svgd", *CHAINED),
    "fpovi_toy": ("mean_field", "exact_density", "gpvi", *NETWORK),
}
"""The Langevin network only in Table 2. The score of a ReLU network's posterior jumps, which biases its gradient; on
LIVI's toy its chains are lost with the benchmark's first step size, and with a hundredth of it after 28 steps."""
SMOOTH = {"activation": "tanh"}
"""L′ has the Jacobian of g in its loss, which a kink of g would bias."""
LANGEVIN_STEPS = {"smoke": 3, "quick": 100, "paper": 2_000}
SHORT = benchmark.CHAINED["hmc_elsewhere"]
KERNEL_SAMPLES = 32
"""A step of GPVI at least: the three samples of LIVI's toy are nothing to estimate a direction with."""
LINEAR = {"kind": "generator", "noise_dim": 3, "hidden": [], "noise_scale": 0.1, "train_noise_scale": True}
"""Table 2's generator has no λ, which L′ needs."""


def _other_objective(base: dict, name: str, method: str) -> dict:
    """The exact density's configuration with another objective."""
    number = base["objective"]["num_samples"]
    if method == "gpvi":
        number = max(number, KERNEL_SAMPLES)
        return base | {"objective": {"kind": "gpvi", "num_samples": number, "inverse": {"kind": "block"}}}
    sampler = (LINEAR if name == "table_2" else base["sampler"]) | {"kind": "latent_generator"} | SMOOTH
    return base | {"sampler": sampler, "objective": {"kind": "livi", "num_samples": number}}


def _parts(row: str) -> tuple[str, str]:
    return next((name, m) for name, methods in METHODS.items() for m in methods if row == f"{name}_{m}")


def config(row: str, profile: str) -> dict:
    """Everything but the seed: the configuration of the target's own row of the exact density, with what differs."""
    name, method = _parts(row)
    own = "mf_vi_best" if method == "mean_field" else DENSITY
    base = TARGETS[name][1](own, profile) | {"target": name, "method": method, "batch_size": None}
    if method in CHAINED:
        num_steps, burn_in = benchmark.SIZES[profile]["short"]
        training = base if method == "refined" else None
        return base | SHORT | {"num_steps": num_steps, "burn_in": burn_in, "training": training}
    if method == "langevin":
        steps = LANGEVIN_STEPS[profile]
        return base | benchmark.TRAINED["langevin"] | {"steps": steps, "history_every": steps}
    if method == "svgd":
        return base | benchmark.TRAINED["svgd"] | {"noise_scale_lr": None}
    return _other_objective(base, name, method) if method in ("livi", "gpvi") else base


def seeds(profile: str) -> tuple[int, ...]:
    """Starts, and all randomness of a method; of Table 2 the problem too."""
    return (0, 1, 2) if profile == "paper" else (0,)


# ---------------------------------------------------------------- running


def _draws(config: dict, problem: Problem, context: RunContext) -> tuple[Float[Tensor, "n d"], Scores]:
    """Draws of a method, and what its chains say."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target, scale, number = problem.target, problem.scale, problem.draws
    in_units, ones = InUnits(target, scale), torch.ones_like(scale)
    if config["method"] == "langevin":
        return scale * fixed_draws(benchmark.trained(config, in_units, context, rng, ones), number), {}
    if config["method"] not in CHAINED:
        return fixed_draws(benchmark.trained(config, target, context, rng, scale), number), {}
    if config["training"]:
        sampler = benchmark.trained(config["training"], target, context, rng, scale)
        start = fixed_draws(sampler, config["chains"], seed=7_000 + context.seed) / scale
    else:
        start = torch.randn(config["chains"], target.dim, generator=rng, dtype=scale.dtype)
    result = run_hmc(config, in_units.log_prob, start, context, rng, adapt=config["adapt"])
    draws = scale * evenly(result.samples.transpose(0, 1).flatten(0, 1), number)
    return draws, {"acceptance": float(result.acceptance.mean()), "step_size": result.step_size}


def run(config: dict, row: str, context: RunContext) -> Outcome:
    """Get draws, count what they cost, and measure them as the target's own experiment does."""
    problem = TARGETS[config["target"]][0](config, context.seed)
    target = benchmark.Counted(problem.target)
    alone = replace(context, checkpoint=None)  # seconds each; and a run that resumed would count too few
    began, processor = time.perf_counter(), time.process_time()
    draws, more = _draws(config, replace(problem, target=target), alone)
    processor, seconds = time.process_time() - processor, time.perf_counter() - began
    cost = {"processor_seconds": processor, "gradients": float(target.gradients), "draws": float(len(draws))}
    draws = draws.detach()
    return Outcome(problem.measure(draws) | cost | more, {"draws": evenly(draws, 20).float().cpu()}, seconds)


EXPERIMENTS = (
    Experiment(
        name="benchmark-older",
        title="Which method should one use? Rows that the targets of other experiments lack",
        methods=tuple(f"{name}_{method}" for name, methods in METHODS.items() for method in methods),
        config=config,
        seeds=seeds,
        run=run,
    ),
)
