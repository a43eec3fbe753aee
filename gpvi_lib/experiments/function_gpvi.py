r"""GPVI in function space, exploratory: the ELBO of a generator's functions, not of its weights.

The outputs of a network are linear in its last layer. So given the generator's input ``z_{:k}`` and the hidden layers,
whose noise is independent of the last layer's, a draw's function values at inputs x are normal,

.. math:: f(x) \mid z_{:k}, h \sim N(Φ_h m(z_{:k}), Φ_h Λ_o^2 Φ_h^T),

with the features ``Φ_h (b, l)`` of the last layer, ones appended, its ``l`` weights' means ``m`` and their ``λ_o``.
The values of all draws are a mixture of such normals, and fresh draws give its density: a semi-implicit posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_count
from gpvi_lib.function_priors import ArcCosine
from gpvi_lib.networks import FlatMLP
from gpvi_lib.objectives import Objective
from gpvi_lib.samplers import Generator, standard_normal
from gpvi_lib.targets import NormalLikelihood, Posterior

VALUE_NOISE = 0.03
"""Standard deviation of the noise on function values that makes every covariance regular; near f-POVI's floor."""


def last_features(
    network: FlatMLP, w: Float[Tensor, "n d"], x: Float[Tensor, "b p"]
) -> tuple[Float[Tensor, "n b l"], Float[Tensor, "n l"]]:
    """Features of the last layer, ones appended, and that layer's weights, bias last: ``f = Φ v``, one output."""
    hidden = network.unflatten(w)
    *_, weight, bias = hidden.values()
    if weight.shape[1] != 1:
        raise ValueError(f"the features of a network's functions need one output, got {weight.shape[1]}")
    *layers, _, _ = hidden.values()
    a = x.expand(len(w), -1, -1)
    for matrix, shift in zip(layers[::2], layers[1::2], strict=True):
        a = torch.relu(torch.baddbmm(shift[:, None], a, matrix.mT))
    return torch.cat([a, torch.ones_like(a[..., :1])], -1), torch.cat([weight[:, 0], bias], -1)


def normal_log_prob(f: Float[Tensor, "m b"], mean: Float[Tensor, "n b"], covariance: Float[Tensor, "n b b"]) -> Tensor:
    """``log N(f_i; mean_j, covariance_j)``, ``(m, n)``."""
    lower = torch.linalg.cholesky(covariance)
    apart = (f - mean[:, None]).mT  # (n, b, m)
    whitened = torch.linalg.solve_triangular(lower, apart, upper=False)
    log_det = lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return (-0.5 * whitened.square().sum(1) - log_det[:, None] - 0.5 * f.shape[1] * math.log(2 * math.pi)).mT


def function_elbo(
    sampler: Generator, target: Posterior, x: Float[Tensor, "b p"], num_samples: int, rng: torch.Generator
) -> Float[Tensor, " n"]:
    r"""Of each draw, the bound of :class:`FunctionELBO` at inputs ``x`` that begin with the data's.

    Values have noise of :data:`VALUE_NOISE` under posterior and prior alike, so that it is the ELBO of the model
    ``f ~ N(0, K + VALUE_NOISE^2 I)``, ``y ~ N(f, σ^2)`` and at most :func:`log_evidence` in the mean.
    """
    assert isinstance(target.network, FlatMLP)
    scale = sampler.noise_scale if isinstance(sampler, Generator) else None
    if scale is None:
        raise ValueError("a density of functions needs a Generator and its λ: give it a noise_scale > 0")
    z = sampler.noise(num_samples, rng)
    w = sampler(z)
    features, v = last_features(target.network, w, x)
    count = v.shape[1]
    if sampler.noise_dim > sampler.dim - count:
        raise ValueError(f"z_{{:k}} must not reach the last layer's {count} weights: k = {sampler.noise_dim}")
    given = v - scale[-count:] * z[:, -count:]
    eye = VALUE_NOISE**2 * torch.eye(len(x), dtype=x.dtype, device=x.device)
    spread = features * scale[-count:]
    mean = (features @ given[..., None])[..., 0]
    f = (features @ v[..., None])[..., 0] + VALUE_NOISE * standard_normal((num_samples, len(x)), rng, x)
    log_q = normal_log_prob(f, mean, spread @ spread.mT + eye).logsumexp(1) - math.log(num_samples)
    prior = ArcCosine().given(target).covariance(x) + eye
    log_p = normal_log_prob(f, torch.zeros_like(f[:1]), prior[None])[:, 0]
    return target.likelihood(f[:, : target.num_data, None], target.targets).sum(1) + log_p - log_q


def log_evidence(target: Posterior) -> float:
    """``log p(y)`` of the model of :func:`function_elbo`: what the bound of an exact posterior is."""
    assert isinstance(target.likelihood, NormalLikelihood) and target.likelihood.scale is not None
    noise = (VALUE_NOISE**2 + target.likelihood.scale**2) * torch.eye(target.num_data, dtype=target.inputs.dtype)
    covariance = ArcCosine().given(target).covariance(target.inputs) + noise.to(target.inputs.device)
    y = target.targets.flatten()[None]
    return float(normal_log_prob(y, torch.zeros_like(y), covariance[None]))


@dataclass
class FunctionELBO(Objective):
    r"""GPVI in function space: minus the semi-implicit ELBO of a generator's function values.

    .. math:: E\Bigl[\log p(y \mid f) + \log p(f(x)) - \log \tfrac1S \sum_{j} q(f(x) \mid z_j, h_j)\Bigr]

    over the S draws of a step, each of them a component of the density of all. That is a lower bound of the ELBO of the
    mixture over all z, and the tighter the more draws there are (Yin and Zhou 2018).

    Attributes:
        num_samples: S.
        points: where to look beside all data, ``(inputs, rng) -> (b, p)``.

    Raises:
        ValueError: for a sampler without λ, one whose ``z_{:k}`` reaches the last layer, or a minibatch.
    """

    num_samples: int
    points: Callable[[Tensor, torch.Generator], Tensor]

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)

    def __call__(self, sampler, target, batch, rng):
        if batch is not None:
            raise ValueError("FunctionELBO has all data in every step: leave batch_size out")
        x = torch.cat([target.inputs, self.points(target.inputs, rng)])
        value = function_elbo(sampler, target, x, self.num_samples, rng).mean()
        return -value, {"elbo": value.detach()}
