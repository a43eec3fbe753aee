"""LIVI's toy problem (Figure 1, section E.3): data, posterior, scores, and the posterior over functions by long chains.

70 points of ``y = x + 0.8 sin 2πx + 0.8 sin 4πx + N(0, 0.3^2)`` on two intervals with a gap between them, and a network
1-7-10-1 with ELU, 105 weights, prior N(0, I); the network sees inputs divided by 1.28. The paper prints neither the
function nor the intervals: these are the released code's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.experiments.nuts_reference import diagnostics
from gpvi_lib.experiments.one_dimensional_regression import HiddenLayerPosterior
from gpvi_lib.hmc import hmc
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.lab.runner import load_or_run
from gpvi_lib.metrics import regression_log_likelihood, wasserstein_1d
from gpvi_lib.networks import FlatMLP
from gpvi_lib.paths import results_root
from gpvi_lib.targets import NormalPrior, RegressionPosterior

INNER, OUTER = 0.61, 1.28
"""The data lie in [-1.28, -0.61] and [0.61, 1.28]."""
NUM_LEFT, NUM_RIGHT = 38, 32
NOISE = 0.3
HIDDEN = (7, 10)
WEIGHTS = 105
GRID = torch.linspace(-1.92, 1.92, 97, dtype=torch.float64)
"""Where functions are compared: steps of 0.04, half as far again as the data on both sides."""
REGIONS: dict[str, Bool[Tensor, " g"]] = {
    "data": (GRID.abs() >= INNER) & (GRID.abs() <= OUTER),
    "gap": GRID.abs() < INNER,
    "outside": GRID.abs() > OUTER,
}
FRESH = 1_000
"""Fresh points for the test log-likelihood, on the two intervals."""


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


# ---------------------------------------------------------------- scores against the reference


@dataclass(frozen=True)
class Reference:
    """The posterior as long chains found it, as functions on ``GRID``.

    Attributes:
        mean, sd: of all draws, ``(g,)``.
        draws: a thinned set of them, ``(n, g)``.
    """

    mean: Float[Tensor, " g"]
    sd: Float[Tensor, " g"]
    draws: Float[Tensor, "n g"]


def function_scores(f: Float[Tensor, "n g"], reference: Reference) -> dict[str, float]:
    """How far ``n`` functions are from the reference, over the grid and in each region, in the unit of y.

    ``rmse_mean`` compares the means of ``f(x)``, ``w1`` is the mean over x of the Wasserstein distance between the
    distributions of ``f(x)``, ``sd_ratio`` the mean standard deviation over the reference's.
    """
    f = f.double().cpu()
    error, distance, sd = (f.mean(0) - reference.mean).square(), wasserstein_1d(f, reference.draws), f.std(0)
    found = {}
    for region, at in {"": torch.ones_like(GRID, dtype=torch.bool), **REGIONS}.items():
        suffix = f"_{region}" if region else ""
        found[f"rmse_mean{suffix}"] = float(error[at].mean().sqrt())
        found[f"w1{suffix}"] = float(distance[at].mean())
        found[f"sd_ratio{suffix}"] = float(sd[at].mean() / reference.sd[at].mean())
    return found


# ---------------------------------------------------------------- the reference


class LastLayerIntegrated(HiddenLayerPosterior):
    """The posterior over the two hidden layers, in units of the prior, with the output layer integrated out."""

    def __init__(self, target: RegressionPosterior) -> None:
        self.target, last = target, HIDDEN[-1] + 1
        self.dim = target.dim - last
        scale = target.prior.scale
        assert isinstance(scale, Tensor), "one scale per weight"
        self.inner_scale, self.outer_scale = scale.split([self.dim, last])

    def _features(self, u: Float[Tensor, "n e"]) -> Float[Tensor, "n N f"]:
        a, b = HIDDEN
        first, bias, second, offset = (u * self.inner_scale).split([a, a, a * b, b], dim=-1)
        h = F.elu(torch.addcmul(bias[:, None], self.target.inputs, first[:, None]))
        h = F.elu(torch.baddbmm(offset[:, None], h, second.unflatten(-1, (b, a)).mT))
        return torch.cat([h, torch.ones_like(h[..., :1])], dim=-1) * (self.outer_scale / self.target.noise_scale)


CHAINS = {
    "smoke": {"chains": 4, "num_leapfrog": [2, 4], "num_steps": 12, "burn_in": 4, "thin": 1, "kept": 30},
    "quick": {"chains": 8, "num_leapfrog": [10, 30], "num_steps": 120, "burn_in": 60, "thin": 1, "kept": 200},
    "paper": {"chains": 32, "num_leapfrog": [50, 150], "num_steps": 1_500, "burn_in": 500, "thin": 5, "kept": 2_000},
}


def reference_config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    return {"prior_scale": 1.0, "noise": NOISE, "step_size": 0.02, "target_acceptance": 0.8} | CHAINS[profile]


def run_reference(config: dict, method: str, context: RunContext) -> Outcome:
    """HMC on the hidden layers from draws of the prior, completed by exact output layers, diagnosed on the grid."""
    target = posterior(config["prior_scale"], device=context.device)
    inner = LastLayerIntegrated(target)
    rng = torch.Generator(context.device).manual_seed(3_000 + context.seed)
    start = torch.randn(config["chains"], inner.dim, generator=rng, dtype=torch.float64, device=rng.device)
    settings = {k: config[k] for k in ("step_size", "target_acceptance", "num_steps", "burn_in", "thin")}
    result = hmc(
        inner.log_prob,
        start,
        **settings,
        num_leapfrog=tuple(config["num_leapfrog"]),
        adapt=True,
        rng=rng,
        checkpoint=context.checkpoint,
        label=context.label,
        progress=context.progress,
    )
    draws = torch.stack([inner.complete(u, rng) for u in result.samples.transpose(0, 1)])
    f = torch.stack([functions(target, chain) for chain in draws]).cpu()
    found, flat = diagnostics(f), f.transpose(0, 1).flatten(0, 1)
    kept = flat[torch.linspace(0, len(flat) - 1, min(config["kept"], len(flat))).round().long()]
    at_fresh = functions(target, draws.transpose(0, 1).flatten(0, 1)[:: max(1, len(flat) // 1_000)], data(FRESH)[0])
    metrics = {
        "acceptance": float(result.acceptance.mean()),
        "step_size": result.step_size,
        "draws": float(len(flat)),
        "rhat_max": float(found["rhat"].max()),
        "rhat_median": float(found["rhat"].median()),
        "ess_min": float(found["ess"].min()),
        "sd_data": float(found["sd"][REGIONS["data"]].mean()),
        "sd_gap": float(found["sd"][REGIONS["gap"]].mean()),
        "sd_outside": float(found["sd"][REGIONS["outside"]].mean()),
        "log_likelihood": fresh_log_likelihood(at_fresh),
    }
    return Outcome(metrics, found | {"functions": kept.float()})


REFERENCE = Experiment(
    name="livi-toy-reference",
    title="LIVI's toy: the posterior over functions by HMC, output layer integrated out",
    methods=("hmc",),
    config=reference_config,
    seeds=one_seed,
    run=run_reference,
)


def read_reference(profile: str) -> Reference:
    """The reference of a profile, from its record; where there is none, or a stale one, it is sampled now."""
    return _read_reference(profile, str(results_root()))


@cache
def _read_reference(profile: str, root: str) -> Reference:
    arrays = {name: array.double() for name, array in load_or_run(REFERENCE.cell("hmc", 0, profile)).arrays().items()}
    return Reference(arrays["mean"], arrays["sd"], arrays["functions"])
