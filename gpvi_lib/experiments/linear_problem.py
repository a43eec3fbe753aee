"""What the experiments with a linear generator share: Table 7's settings, and the regression of Table 2.

``y = Xβ + ε`` with ``X ~ N(0, I_3)``, ``β_i ~ U(5, 6)``, ``ε ~ N(0, I)`` and 100 observations (the paper does not
print their number; early versions of the authors' public test use 100). Every seed draws its own problem.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpvi_lib.metrics import relative_error
from gpvi_lib.samplers import Generator, MeanField, Particles, Sampler
from gpvi_lib.targets import BayesianLinearRegression, NormalPrior

SAMPLES = 100
GENERATOR: dict = {"kind": "generator", "hidden": [], "noise_scale": None}
PARTICLES = {"kind": "particles", "num": SAMPLES}
CRITIC = {"kind": "stein_critic", "hidden": [100], "lr": 1e-3, "l2_weight": 10.0}
HELPER = {"kind": "helper", "width": 10, "num_layers": 3, "lr": 1e-4}
BEST_HELPER = HELPER | {"width": 32, "lr": 1e-3}
"""Ours: wider and faster."""


def problem(config: dict, seed: int, device: torch.device) -> BayesianLinearRegression:
    """The problem of one seed; ``config["prior_scale"]`` adds a prior N(0, scale^2)."""
    rng = torch.Generator().manual_seed(1_000 + seed)
    prior_scale = config.get("prior_scale")
    inputs = torch.randn(config["num_data"], config["dim"], generator=rng)
    beta = torch.rand(config["dim"], generator=rng) + 5
    targets = inputs @ beta + torch.randn(config["num_data"], generator=rng)
    prior = None if prior_scale is None else NormalPrior(prior_scale)
    return BayesianLinearRegression(inputs.to(device), targets.to(device), prior)


@torch.no_grad()
def moments(sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Mean and covariance of a sampler in float64: in closed form for generators and mean field, else of particles."""
    if isinstance(sampler, Generator):
        origin = torch.zeros(1, sampler.dim, device=sampler.output.weight.device)
        jacobian = sampler.linearize(origin).dense()[0].double()
        return sampler(origin)[0].double(), jacobian @ jacobian.mT
    if isinstance(sampler, MeanField):
        return sampler.mean.detach().double(), torch.diag(sampler.scale.double().square())
    assert isinstance(sampler, Particles), f"the moments of a {type(sampler).__name__} are not known"
    x = sampler.x.double()
    return x.mean(0), torch.cov(x.mT)


def errors(target: BayesianLinearRegression, mean: Tensor, covariance: Tensor) -> dict[str, float]:
    """Relative errors ``||μ̂ - μ|| / ||μ||`` and ``||Σ̂ - Σ||_F / ||Σ||_F`` against the exact posterior."""
    true_mean, true_covariance = target.exact_moments()
    return {
        "mu_error": relative_error(mean.double(), true_mean),
        "sigma_error": relative_error(covariance.double(), true_covariance),
    }
