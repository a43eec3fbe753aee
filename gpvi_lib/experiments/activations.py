"""Which activation? ReLU and smooth ones where a loss contains the slopes of the network that it trains.

Four problems train a generator on its exact density: a ring in the plane, Table 2's regression, Figure 8's posterior
and scikit-learn's digits. A fifth trains a Stein critic on a known Gaussian. Two train a generator by the functional
gradient, whose loss contains no slopes, on the digits, with a kernel on all of z and on ``z_{:k}``. Within a problem
only the activation differs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.directions import SteinCritic
from gpvi_lib.experiments import classification, linear_problem, open_category
from gpvi_lib.experiments.build import build_objective, train
from gpvi_lib.experiments.evaluation import differing
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.metrics import binned_divergence, relative_error
from gpvi_lib.samplers import Generator, Sampler
from gpvi_lib.targets import Gaussian, Target, score
from gpvi_lib.targets.energy import PlaneGrid

VARIED = {one.name: one for module in (classification, open_category) for one in module.EXPERIMENTS}
DIGITS = {
    "digits": ("gpvi_exact_density", {}),
    "functional": ("gpvi_best", {}),
    "functional_head": ("gpvi_best", {"kernel_space": "head"}),
}
"""Problem on the digits -> the row that it varies, and what it changes in its objective."""
PROBLEMS = ("ring", "regression", "classes", "critic", *DIGITS)
METHODS = {f"{problem}_{name}": (problem, name) for problem in PROBLEMS for name in sorted(ACTIVATIONS)}
"""Method -> the problem and the activation."""
STEPS = {
    "ring": {"smoke": 3, "quick": 400, "paper": 3_000},
    "regression": {"smoke": 3, "quick": 400, "paper": 3_000},
    "classes": {"smoke": 3, "quick": 100, "paper": 3_000},
    "digits": {"smoke": 3, "quick": 100, "paper": 1_500},
    "functional": {"smoke": 3, "quick": 100, "paper": 1_500},
    "functional_head": {"smoke": 3, "quick": 100, "paper": 1_500},
    "critic": {"smoke": 3, "quick": 400, "paper": 2_000},
}
GENERATORS = {"ring": [64, 64], "regression": [16, 16]}
SAMPLES = {"smoke": 1_000, "quick": 20_000, "paper": 200_000}
"""Draws that measure a generator in the plane or in three dimensions."""
MEASURE_SEED = 4_321
THEN = {"seed": 4_321}
"""What the first records were evaluated with, see :func:`differing`."""


class Ring:
    """A circle of radius 2, blurred by 0.3: ``log p(x) = -(||x|| - 2)^2 / (2 · 0.3^2)`` up to a constant."""

    dim, num_data = 2, None

    def log_prob(self, x: Float[Tensor, "n 2"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Unnormalised log-density."""
        return -0.5 * ((x.norm(dim=-1) - 2) / 0.3).square()


def _of_digits(row: str, change: dict, profile: str) -> dict:
    """The configuration of a row of the digits, with a change of its objective."""
    chosen = VARIED["open-category-digits"].configuration(row, profile)
    return chosen | {"objective": chosen["objective"] | change}


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    problem, activation = METHODS[method]
    steps = STEPS[problem][profile]
    if problem == "classes" or problem in DIGITS:
        chosen = (
            VARIED["classification-4"].configuration("gpvi_exact_density", profile)
            if problem == "classes"
            else _of_digits(*DIGITS[problem], profile)
        )
        sampler = chosen["sampler"] | {"activation": activation}
        return chosen | {"problem_of": problem, "sampler": sampler, "steps": steps, "history_every": steps}
    common = {"problem_of": problem, "activation": activation, "steps": steps} | differing(THEN, seed=MEASURE_SEED)
    if problem == "critic":
        return common | {
            "dim": 5,
            "hidden": [100],
            "samples": 100,
            "l2_weight": 10.0,
            "lr": 1e-3,
            "test_points": 10_000,
        }
    return common | {
        "hidden": GENERATORS[problem],
        "samples": 100,
        "lr": 3e-3,
        "final_lr": 3e-5,
        "history_every": steps,
        "draws": SAMPLES[profile],
    }


def seeds(profile: str) -> tuple[int, ...]:
    """Starts, and for the regression and the critic problems."""
    return (0, 1, 2) if profile == "paper" else (0,)


@torch.no_grad()
def _of_ring(target: Ring, sampler: Sampler, draws: int) -> dict[str, float]:
    """KL as the sampler's own density claims it, and as a histogram of its draws has it, in nats."""
    rng = torch.Generator().manual_seed(MEASURE_SEED)
    x, log_q = sampler.rsample_with_log_prob(draws, rng)
    grid = PlaneGrid(target, half_width=5.0, cells=60)
    return {
        "kl_claimed": float((log_q - target.log_prob(x)).double().mean()) + grid.log_normaliser,
        "kl": binned_divergence(grid.counts(x), grid.log_masses),
    }


def _trained(target: Target, config: dict, context: RunContext) -> tuple[Generator, float]:
    """A generator with k = d and one trained λ per coordinate, and the seconds that it took."""
    rng = torch.Generator().manual_seed(context.seed)
    scale, settings = torch.ones(target.dim), {"activation": config["activation"], "train_noise_scale": True}
    generator = Generator(target.dim, None, config["hidden"], noise_scale=scale, **settings, rng=rng)
    objective = build_objective({"kind": "elbo", "num_samples": config["samples"]})
    return generator, train(generator, target, objective, config, context, rng, lambda step, sampler: {}).seconds


def _run_ring(config: dict, method: str, context: RunContext) -> Outcome:
    generator, seconds = _trained(Ring(), config, context)
    return Outcome(_of_ring(Ring(), generator, config["draws"]), {}, seconds)


def _run_regression(config: dict, method: str, context: RunContext) -> Outcome:
    target = linear_problem.problem({"num_data": 100, "dim": 3}, context.seed, torch.device("cpu"))
    generator, seconds = _trained(target, config, context)
    x = generator.sample(config["draws"], torch.Generator().manual_seed(MEASURE_SEED)).double()
    found = linear_problem.errors(target, x.mean(0).float(), torch.cov(x.mT).float())
    return Outcome(found, {}, seconds)


def _run_critic(config: dict, method: str, context: RunContext) -> Outcome:
    """A critic at fixed points' law: x ~ N(0, I) and a random Gaussian target, so that φ is known."""
    rng, dim = torch.Generator().manual_seed(context.seed), config["dim"]
    root = torch.randn(dim, dim, generator=rng) / dim**0.5
    target = Gaussian(torch.randn(dim, generator=rng), torch.eye(dim) + root @ root.mT)
    settings = {"lr": config["lr"], "l2_weight": config["l2_weight"], "activation": config["activation"]}
    critic = SteinCritic(tuple(config["hidden"]), **settings)
    for _ in range(config["steps"]):
        x = torch.randn(config["samples"], dim, generator=rng)
        critic(x, score(target, x), rng)
    x = torch.randn(config["test_points"], dim, generator=rng)
    network, s = critic.network, score(target, x)
    assert network is not None, "the first call built it"
    with torch.no_grad():
        return Outcome({"direction_error": relative_error(-2 * config["l2_weight"] * network(x), -x - s)})


RUNS: dict[str, Callable[[dict, str, RunContext], Outcome]] = {
    "classes": VARIED["classification-4"].run,
    **dict.fromkeys(DIGITS, VARIED["open-category-digits"].run),
    "ring": _run_ring,
    "regression": _run_regression,
    "critic": _run_critic,
}
KEPT = {
    "classes": ("elbo", "elbo_se", "total_variation", "negative_share", "accuracy_percent"),
    **dict.fromkeys(DIGITS, ("auroc", "ece", "accuracy_percent", "log_likelihood")),
}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one network and measure what it was trained for; on the CPU, unless it varies another experiment's row."""
    problem = config["problem_of"]
    outcome = RUNS[problem](config, method, context)
    kept = KEPT.get(problem, tuple(outcome.metrics))
    return Outcome({name: outcome.metrics[name] for name in kept}, {}, outcome.seconds)


EXPERIMENTS = (
    Experiment(
        name="activations",
        title="ReLU and smooth activations where a loss contains their slopes",
        methods=tuple(METHODS),
        config=config,
        seeds=seeds,
        run=run,
    ),
)
