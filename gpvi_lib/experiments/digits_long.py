"""Does training keep what it has learned? Scikit-learn's digits for five times as many steps as their table has.

GPVI by the functional gradient as in the table, with a learning rate that falls, and with softplus units; beside it the
same generator on its exact density, and amortised SVGD's, which has neither λ nor inverse. Seen on the way, besides the
table's measures: the share of ``z`` at which the map is folded, ``det (A + Λ_{:k}) < 0``, and ``log|det|``.

``digits-long-mnist`` asks the same of MNIST at Table 3's printed length.
"""

from __future__ import annotations

from functools import partial

import torch

from gpvi_lib.data import KNOWN_CLASSES
from gpvi_lib.experiments.build import build_objective, train, with_change
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, differing, generator_of, history
from gpvi_lib.experiments.open_category import data_sets, digits_config, image_config, measures, problem
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.samplers import Generator, Sampler

VARIED: dict[str, tuple[str, dict]] = {
    "gpvi_best": ("gpvi_best", {}),
    "gpvi_best_decay": ("gpvi_best", {"final_lr": 1e-5}),
    "gpvi_best_decay_longer": ("gpvi_best", {"final_lr": 1e-5}),
    "gpvi_best_softplus": ("gpvi_best", {"sampler": {"activation": "softplus"}}),
    "gpvi_best_softplus_longer": ("gpvi_best", {"sampler": {"activation": "softplus"}}),
    "gpvi_exact_density": ("gpvi_exact_density", {}),
    "amortized_svgd": ("amortized_svgd", {}),
}
"""Method -> the row of the table on the digits, and what is changed in it."""
ON_MNIST: dict[str, dict] = {
    "gpvi_best": {},
    "gpvi_best_decay": {"final_lr": 1e-6},
    "gpvi_best_softplus": {"sampler": {"activation": "softplus"}},
}
"""Method -> what is changed in GPVI's row of Table 3. The rate there is a tenth of the digits'."""
STEPS = {"smoke": 4, "quick": 600, "paper": 30_000}
TWICE_AS_LONG = ("gpvi_best_decay_longer", "gpvi_best_softplus_longer")
"""A falling schedule's rates add up to half its steps at the full rate, so the first goes as far as ``gpvi_best``."""
LOOKS = 20
POINTS = 200
"""Draws of ``z`` at which the map is looked at."""
THEN = {"points": 200}
"""What the first records were evaluated with, see :func:`differing`."""


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    row, change = VARIED[method]
    steps = STEPS[profile] * (2 if method in TWICE_AS_LONG else 1)
    length = {"steps": steps, "history_every": max(1, steps // LOOKS), "evaluation_seed": EVALUATION_SEED}
    return with_change(digits_config(row, "paper"), change) | length | differing(THEN, points=POINTS)


def mnist_config(method: str, profile: str) -> dict:
    """Everything but the seed: the row of Table 3 at its printed length, and the change."""
    table = image_config("mnist", KNOWN_CLASSES, "published", "gpvi_best", profile)
    found = with_change(table, ON_MNIST[method])
    found = {key: value for key, value in found.items() if key != "more"} | {"evaluation_seed": EVALUATION_SEED}
    return found | differing(THEN, points=POINTS)


def seeds(profile: str) -> tuple[int, ...]:
    """Those of the table."""
    return (0, 1, 2) if profile == "paper" else (0,)


@torch.no_grad()
def map_at_points(sampler: Sampler, seed: int) -> dict[str, float]:
    """Where a generator with λ folds, and how it stretches: of ``POINTS`` draws the share of negative determinants."""
    if not isinstance(sampler, Generator) or sampler.noise_scale is None:
        return {}
    z = sampler.noise(POINTS, generator_of(sampler, seed))
    sign, log_det = sampler.linearize(z).slogdet()
    return {"folds": float((sign < 0).double().mean()), "log_det": float(log_det.mean())}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train on the known digits, and look now and then."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    data, target, sampler = problem(config, context, rng)

    def look(step: int, sampler: Sampler) -> dict[str, float]:
        found = measures(target, data, sampler, config["evaluation_samples"])[0]
        return found | map_at_points(sampler, config["evaluation_seed"])

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, look)
    last = {name: value for name, value in result.history[-1].items() if name != "step"}
    return Outcome(last | {"num_weights": float(target.dim)}, history(result.history), result.seconds)


EXPERIMENTS = (
    Experiment(
        name="digits-long",
        title="Open category on scikit-learn's digits, five times as many steps: is what was learned kept?",
        methods=tuple(VARIED),
        config=config,
        seeds=seeds,
        run=run,
    ),
    Experiment(
        name="digits-long-mnist",
        title="Table 3 at its printed length: does GPVI keep the digits with softplus units, or a falling rate?",
        methods=tuple(ON_MNIST),
        config=mnist_config,
        seeds=one_seed,
        run=run,
        data_sets=partial(data_sets, "mnist"),
        needs_gpu=True,
        all_cores=True,
    ),
)
