"""Reference posteriors for Figures 2, 8 and 9: long chains on the classifiers of section 4.3 and appendix D.2.

``nuts_4`` and ``nuts_2`` are the reference of all scores at ``paper``. ``hmc_4`` and ``hmc_2`` are the library's own
HMC, a second opinion, and the reference of the smaller profiles. ``nuts_4_prior_*`` are the same posterior under
another prior scale.

The committed draws of ``nuts_4``, ``nuts_2`` and ``nuts_4_prior_*`` are NumPyro's, which this module ran at their
commits. It now runs Pyro's sampler with the same settings, which needs no second copy of the density.
``nuts_4_again`` and ``nuts_2_again`` are Pyro's draws from other starts: a third opinion, on the reference itself.
Computed anew, ``nuts_4`` would share the random numbers of its chains with ``nuts_4_again``, but not the starts.

Weights of a ReLU network can be permuted and rescaled without a change of its outputs, so chains are compared, and
diagnosed, by predicted probabilities on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.experiments.chains import diagnostics, run_hmc, run_nuts
from gpvi_lib.experiments.classification_problem import (
    DATA_SEED,
    EDGE,
    GRID_SIDE,
    grid,
    posterior,
    predictive_moments,
    problem_config,
)
from gpvi_lib.experiments.evaluation import differing, evenly
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.targets import MLPClassificationPosterior

DIAGNOSED_SIDE = 11
"""Side of the coarser grid on which chains are diagnosed."""
THEN = {"edge": 10.0, "diagnosed_side": 11}
"""What the first records were evaluated with, see :func:`differing`."""
START_SEED = 4_000
"""Plus the cell's: of the starts, where a configuration names no other."""
CHAIN_SEED = 5_000
"""Plus the cell's: of the proposals of HMC."""
PRIOR_SCALES = {"prior_0_5": 0.5, "prior_2": 2.0}
NUTS = {
    "sampler": "nuts",
    "chains": 16,
    "warmup": 500,
    "draws": 500,
    "target_accept": 0.8,
    "max_tree_depth": 10,
    "kept": 2_000,
}
# From draws of the prior, whose gradients are large: short steps first.
WARM_UP = {"step_size": 0.004, "num_leapfrog": 30, "num_steps": 100}
HMC = {
    "sampler": "hmc",
    "chains": 64,
    "warm_up": WARM_UP,
    "step_size": 0.02,
    "num_leapfrog": 75,
    "num_steps": 300,
    "burn_in": 100,
    "thin": 1,
    "kept": 500,
}
SPECS: dict[str, dict] = {
    "nuts_4": NUTS | {"num_classes": 4},
    "nuts_2": NUTS | {"num_classes": 2},
    "hmc_4": HMC | {"num_classes": 4},
    "hmc_2": HMC | {"num_classes": 2},
    "nuts_4_again": NUTS | {"num_classes": 4, "start_seed": 4_100},
    "nuts_2_again": NUTS | {"num_classes": 2, "start_seed": 4_100},
    "hmc_4_other": HMC | {"num_classes": 4, "data_seed": 1},  # to choose settings on; no figure shows it
} | {
    f"nuts_4_{name}": NUTS | {"num_classes": 4, "prior_scale": scale, "chains": 8, "kept": 500}
    for name, scale in PRIOR_SCALES.items()
}


@dataclass(frozen=True)
class Reference:
    """A posterior predictive distribution from long chains.

    Attributes:
        mean, sd: of each class probability on the grid, over all draws, ``(p, c)``.
        draws: weight vectors of the chains, thinned, ``(chains, n, d)``.
    """

    mean: Float[Tensor, "p c"]
    sd: Float[Tensor, "p c"]
    draws: Float[Tensor, "chains n d"]


def reference_config(num_classes: int, profile: str) -> dict:
    """Which records are the reference of a profile, and their configuration: part of what decides a score."""
    return reference_by(f"{'nuts' if profile == 'paper' else 'hmc'}_{num_classes}", profile)


def reference_by(method: str, profile: str) -> dict:
    """The same for one of ``SPECS``."""
    return {"method": method, "profile": profile, "seed": 0, "config": REFERENCE.configuration(method, profile)}


def load(reference: dict) -> Reference:
    """The reference of a :func:`reference_config`, from its record.

    Raises:
        RecordMissing: if it is missing; the message says how to compute it.
    """
    record = records.load(REFERENCE.cell(reference["method"], reference["seed"], reference["profile"]))
    arrays = record.arrays()
    return Reference(arrays["mean"], arrays["sd"], arrays["draws"].float())


def config(method: str, profile: str) -> dict:
    """Everything but the seed; shorter chains at ``smoke`` and ``quick``."""
    spec = {"prior_scale": 1.0, "data_seed": DATA_SEED} | SPECS[method]
    target = problem_config(spec.pop("num_classes"), spec.pop("data_seed"), spec.pop("prior_scale"))
    if spec["sampler"] == "nuts" and profile != "paper":
        sizes = {"smoke": (2, 20, 30, 4), "quick": (4, 100, 100, 8)}[profile]
        spec |= dict(zip(("chains", "warmup", "draws", "max_tree_depth"), sizes, strict=True))
    elif profile != "paper":
        chains, warm, steps = {"smoke": (4, 5, 9), "quick": (16, 60, 60)}[profile]
        spec |= {"chains": chains, "warm_up": spec["warm_up"] | {"num_steps": warm}, "num_steps": steps}
        spec |= {"burn_in": steps // 3}
    evaluation = differing(THEN, edge=EDGE, diagnosed_side=DIAGNOSED_SIDE)
    return {"problem": target, "grid_side": GRID_SIDE[profile], "dtype": "float64", **spec, **evaluation}


def on_coarse_grid(target: MLPClassificationPosterior, draws: Float[Tensor, "c n d"]) -> Float[Tensor, "c n q"]:
    """Predicted probabilities of every draw on the grid of the diagnostics, the last class left out."""
    points = grid(DIAGNOSED_SIDE, draws)
    return torch.stack([target.probabilities(chain, points)[:, :-1].flatten(1) for chain in draws])


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Sample one posterior from starts at the prior, and diagnose the chains by their predictions."""
    data, target = posterior(config["problem"], context.device, dtype=torch.float64)
    rng = torch.Generator(context.device).manual_seed(config.get("start_seed", START_SEED) + context.seed)
    initial = torch.randn(config["chains"], target.dim, generator=rng, dtype=torch.float64, device=rng.device)
    initial = config["problem"]["prior_scale"] * initial
    if config["sampler"] == "nuts":
        draws, info = run_nuts(config, target.log_prob, initial, context)
    else:
        chain_rng = torch.Generator(context.device).manual_seed(CHAIN_SEED + context.seed)
        result = run_hmc(config, target.log_prob, initial, context, chain_rng)
        draws = result.samples.transpose(0, 1)
        info = {
            "acceptance": float(result.acceptance.mean()),
            "step_size": config["step_size"],
            "seconds": result.seconds,
        }
    seconds = info.pop("seconds")  # of all chains, also where this run only added the last
    found, weights = diagnostics(on_coarse_grid(target, draws)), diagnostics(draws)
    metrics = info | {
        "draws": float(draws.shape[0] * draws.shape[1]),
        "rhat_median": float(found["rhat"].median()),
        "rhat_max": float(found["rhat"].max()),
        "ess_median": float(found["ess"].median()),
        "ess_min": float(found["ess"].min()),
        "rhat_weights_max": float(weights["rhat"].max()),
        "log_likelihood": float(target.log_likelihood(draws.flatten(0, 1)).mean()),
    }
    mean, sd = predictive_moments(target, draws.flatten(0, 1), grid(config["grid_side"], data.inputs))
    kept = evenly(draws, config["kept"] // len(draws), dim=1)
    arrays = {"mean": mean.float(), "sd": sd.float(), "draws": kept.half(), "rhat": found["rhat"].float()}
    return Outcome(metrics, {name: array.cpu() for name, array in arrays.items()}, seconds)


REFERENCE = Experiment(
    name="classification-reference",
    title="References for Figures 2, 8 and 9: long chains on the four- and two-class posteriors",
    methods=tuple(SPECS),
    config=config,
    seeds=one_seed,
    run=run,
)
EXPERIMENTS = (REFERENCE,)
