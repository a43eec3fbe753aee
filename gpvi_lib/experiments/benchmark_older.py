r"""Rows of the benchmark on targets of other experiments: Table 2, Figures 1, 8 and 9, the toys of LIVI and f-POVI.

A row ``<target>_<method>`` is measured as the rows of the target's own experiment are: ``sigma_error``, ``w1`` or
``total_variation``, of as many draws. Nothing is tuned here. The exact density has the settings of its own row on that
target, and L′ takes them over with its own objective, all data a step. SVGD, GFSF, the Langevin network and the short
chains have those of :mod:`.benchmark`, the latter two in units of the prior's scale; SVGD on functions has SVGD's, with
the printed prior of functions. Where a toy has no row of the exact density, of GPVI or of mean field, these have their
settings of Figure 8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

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
from gpvi_lib.experiments.evaluation import Functions, evenly, fixed_draws
from gpvi_lib.experiments.function_models import function_rows
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

    return Problem(target, torch.ones(target.dim), measure, config.get("draws", benchmark.DRAWS))


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
"""What a method without a row of its own on a toy takes over from Figure 8."""


def _like_figure_8(row: str, profile: str, dtype: str = "float32") -> dict:
    taken = classification.config(4, row, profile)
    return {key: taken[key] for key in LIKE_FIGURE_8} | {"sampler": taken["sampler"] | {"dtype": dtype}}


def _fpovi_config(profile: str) -> dict:
    """The exact density as on Figure 8, on f-POVI's toy."""
    return fpovi_toy.config("svgd", profile) | _like_figure_8(DENSITY, profile, "float64")


TARGETS: dict[str, tuple[Callable[[dict, int], Problem], Callable[[str], dict]]] = {
    "table_2": (_linear, partial(bayesian_linear_regression.config, DENSITY)),
    "figure_1": (_line, partial(one_dimensional_regression.config, DENSITY)),
    "four_classes": (_classes, partial(classification.config, 4, DENSITY)),
    "two_classes": (_classes, partial(classification.config, 2, DENSITY)),
    "livi_toy": (_livi, partial(livi_toy.config, DENSITY)),
    "fpovi_toy": (_fpovi, _fpovi_config),
}
"""Name -> what makes its problem, and the configuration of the exact density there, at a profile."""

# ---------------------------------------------------------------- methods

CHAINED = ("refined", "hmc_elsewhere")
NETWORK = ("livi", *CHAINED)
PARTICLES = ("svgd", "gfsf")
METHODS = {
    "table_2": ("livi", "langevin", *CHAINED),
    "figure_1": NETWORK,
    "four_classes": NETWORK,
    "two_classes": NETWORK,
    "livi_toy": ("gpvi", *PARTICLES, "f_svgd", *CHAINED),
    "fpovi_toy": ("mean_field", "exact_density", "gpvi", *NETWORK),
}
"""The Langevin network only in Table 2. The score of a ReLU network's posterior jumps, which biases its gradient; on
LIVI's toy its chains are lost with the benchmark's first step size, and with a hundredth of it after 28 steps."""
ENDS = (-1.5, 1.5)
"""Of the inputs that the network of LIVI's toy sees."""
SMOOTH = {"activation": "tanh"}
"""L′ has the Jacobian of g in its loss, which a kink of g would bias."""
LANGEVIN_STEPS = {"smoke": 3, "quick": 100, "paper": 2_000}
SHORT = benchmark.CHAINED["hmc_elsewhere"]
AS_LONG_CHAINS = {"smoke": 2_000, "quick": 2_000, "paper": 80_000}
"""Draws of a trained sampler whose covariance Table 2 measures: as many as its row of HMC has."""
LINEAR = {"kind": "generator", "noise_dim": 3, "hidden": [], "noise_scale": 0.1, "train_noise_scale": True}
"""Table 2's generator has no λ, which L′ needs."""


FROM_FIGURE_8 = {"gpvi": "gpvi_best", "mean_field": "mf_vi_best"}
"""Method -> its row of Figure 8, whose settings it has on the toys."""


def _livi_config(base: dict, name: str) -> dict:
    """The exact density's configuration with L′ as its objective."""
    sampler = (LINEAR if name == "table_2" else base["sampler"]) | {"kind": "latent_generator"} | SMOOTH
    return base | {"sampler": sampler, "objective": {"kind": "livi", "num_samples": base["objective"]["num_samples"]}}


def _parts(row: str) -> tuple[str, str]:
    return next((name, m) for name, methods in METHODS.items() for m in methods if row == f"{name}_{m}")


def config(row: str, profile: str) -> dict:
    """Everything but the seed: the configuration of the exact density on the target, with what differs."""
    name, method = _parts(row)
    base = TARGETS[name][1](profile) | {"target": name, "method": method, "batch_size": None}
    if method in CHAINED:
        num_steps, burn_in = benchmark.SIZES[profile]["short"]
        training = base | benchmark.start_seed() if method == "refined" else None
        return base | SHORT | {"num_steps": num_steps, "burn_in": burn_in, "training": training}
    if name == "table_2":
        base["draws"] = AS_LONG_CHAINS[profile]
    if method == "langevin":
        steps = LANGEVIN_STEPS[profile]
        return base | benchmark.TRAINED["langevin"] | {"steps": steps, "history_every": steps}
    if method in PARTICLES:
        return base | benchmark.TRAINED[method] | {"noise_scale_lr": None}
    if method == "f_svgd":
        objective = function_rows(*ENDS, profile)["f_svgd"]["objective"]
        return base | benchmark.TRAINED["svgd"] | {"noise_scale_lr": None, "objective": objective}
    if method in FROM_FIGURE_8:
        base.pop("noise_scale_lr", None)
        return base | _like_figure_8(FROM_FIGURE_8[method], profile, base["sampler"].get("dtype", "float32"))
    return _livi_config(base, name) if method == "livi" else base


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
    start = benchmark.chain_start(config, target, scale, context, rng)
    chains, said = benchmark.chain_draws(config, in_units.log_prob, start, context, rng)
    return scale * evenly(chains.flatten(0, 1), number), said


def run(config: dict, row: str, context: RunContext) -> Outcome:
    """Get draws on the CPU, count what they cost, and measure them as the target's own experiment does."""
    problem = TARGETS[config["target"]][0](config, context.seed)
    counted = benchmark.Counted(problem.target)
    target = problem.target if config["method"] == "f_svgd" else counted  # that asks for more than a density
    alone = replace(context, checkpoint=None, device=torch.device("cpu"))  # a run that resumed would count too few
    began, processor = time.perf_counter(), time.process_time()
    draws, more = _draws(config, replace(problem, target=target), alone)
    processor, seconds = time.process_time() - processor, time.perf_counter() - began
    gradients = counted.gradients or config["steps"] * config["sampler"]["num"]
    cost = {"processor_seconds": processor, "gradients": float(gradients), "draws": float(len(draws))}
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
