"""LIVI's toy problem (Figure 1, section E.3): data, posterior and scores.

70 points of ``y = x + 0.8 sin 2πx + 0.8 sin 4πx + N(0, 0.3^2)`` on two intervals with a gap between them, and a network
1-7-10-1 with ELU, 105 weights, prior N(0, I); the network sees inputs divided by 1.28. The paper prints neither the
function nor the intervals: these are the released code's.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib.experiments import evaluation
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, Functions, differing, everywhere_and, sizes, span
from gpvi_lib.metrics import regression_log_likelihood
from gpvi_lib.networks import FlatMLP
from gpvi_lib.targets import NormalPrior, RegressionPosterior

INNER, OUTER = 0.61, 1.28
"""The data lie in [-1.28, -0.61] and [0.61, 1.28]."""
NUM_LEFT, NUM_RIGHT = 38, 32
NOISE = 0.3
HIDDEN = (7, 10)
WEIGHTS = 105
BRACKETS: dict[str, dict[str, int]] = {
    "smoke": {"num_samples": 6, "draws": 2, "temperatures": 3, "regression": 150, "values": 20},
    "quick": {"num_samples": 60, "draws": 2, "temperatures": 60, "regression": 500, "values": 500},
    "paper": {"num_samples": 150, "draws": 2, "temperatures": 600, "regression": 2_000, "values": 20_000},
}
"""Arguments of :func:`~gpvi_lib.elbo_bracket` by profile."""
LONG_BRIDGE = {"temperatures": 20_000}
"""Of a bracket, where s is trained and large: with 600 it is some nats wide."""
GRID = torch.linspace(-1.92, 1.92, 97, dtype=torch.float64)
"""Where functions are compared: steps of 0.04, half as far again as the data on both sides."""
REGIONS: dict[str, Bool[Tensor, " g"]] = {
    "data": (GRID.abs() >= INNER) & (GRID.abs() <= OUTER),
    "gap": GRID.abs() < INNER,
    "outside": GRID.abs() > OUTER,
}
FRESH = 1_000
"""Fresh points for the test log-likelihood, on the two intervals."""


THEN = {
    "seed": 54_321,
    "grid": [-1.92, 1.92, 97],
    "regions": {"data": 34, "gap": 31, "outside": 32},
    "fresh": 1_000,
    "data": [0.61, 1.28, 38, 32],
    "hidden": [7, 10],
}
"""What the first records were made and evaluated with, see :func:`differing`."""


def evaluated() -> dict:
    """The constants of the problem and the evaluation that have changed, for a configuration."""
    now = {"grid": span(GRID), "regions": sizes(REGIONS), "fresh": FRESH, "hidden": list(HIDDEN)}
    return differing(THEN, seed=EVALUATION_SEED, data=[INNER, OUTER, NUM_LEFT, NUM_RIGHT], **now)


def true_function(x: Tensor) -> Tensor:
    """``x + 0.8 sin 2πx + 0.8 sin 4πx``."""
    return x + 0.8 * torch.sin(2 * math.pi * x) + 0.8 * torch.sin(4 * math.pi * x)


def data(number: int | None = None) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Inputs and targets, float64: the 70 of all runs, or ``number`` fresh points on each interval."""
    rng = torch.Generator().manual_seed(8_000 if number is None else 8_001)
    left, right = (NUM_LEFT, NUM_RIGHT) if number is None else (number, number)
    x = torch.cat(
        [
            torch.linspace(-OUTER, -INNER, left, dtype=torch.float64),
            torch.linspace(INNER, OUTER, right, dtype=torch.float64),
        ]
    )
    return x, true_function(x) + NOISE * torch.randn(x.shape, generator=rng, dtype=x.dtype)


def posterior(
    prior_scale: float = 1.0, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> RegressionPosterior:
    """The posterior over the 105 weights with the noise known, prior N(0, prior_scale^2 I)."""
    x, y = (part.to(device, dtype) for part in data())
    prior = NormalPrior(torch.full((WEIGHTS,), prior_scale, dtype=dtype, device=device))
    return RegressionPosterior(FlatMLP([1, *HIDDEN, 1], "elu"), (x / OUTER)[:, None], y, NOISE, prior)


@torch.no_grad()
def functions(target: RegressionPosterior, w: Float[Tensor, "n d"], x: Tensor = GRID) -> Float[Tensor, "n g"]:
    """``f(x; w_i)``, x in the unit of the data."""
    return target.predict(w, (x / OUTER)[:, None].to(w))


def fresh_log_likelihood(f: Float[Tensor, "n b"], noise: float = NOISE) -> float:
    """Mean log predictive density, in nats, of the fresh points at which the functions were evaluated."""
    return float(regression_log_likelihood(f.double().cpu(), data(FRESH)[1], noise).mean())


def function_scores(f: Float[Tensor, "n g"], reference: Functions) -> dict[str, float]:
    """``rmse_mean``, ``w1`` and ``sd_ratio`` of :func:`evaluation.function_scores`, over the grid and by region."""
    found = evaluation.function_scores(f, reference, everywhere_and(REGIONS))
    return {name: value for name, value in found.items() if name.startswith(("rmse_mean", "w1", "sd_ratio"))}
