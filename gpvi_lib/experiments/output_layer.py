"""Posteriors of a regression network over its hidden layers alone, the output layer integrated out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.targets import RegressionPosterior


class HiddenLayerPosterior:
    r"""The posterior over the hidden layer alone: the output layer is integrated out, exactly.

    Given the hidden layer the network is linear in its output weights v, whose prior is normal: with features
    ``Φ (N, h + 1)``, a last column of ones for the output's bias, and ``S`` their prior standard deviations,

    .. math:: y \sim N(0, σ^2 I + Φ S^2 Φ^T), \qquad v = S u, \quad u | y \sim N(A^{-1} S Φ^T y / σ^2, A^{-1}),
              \quad A = I + S Φ^T Φ S / σ^2.

    So NUTS only has to sample the ``2 h`` weights of the hidden layer, in units of their prior, and a draw of v
    completes it to an exact draw of all weights. The many stiff directions of v, each known to within σ over the size
    of its feature, no longer limit the step size.

    Args:
        target: the posterior over all weights, for a network ``p = 1`` to h to 1 with ReLU and a normal prior.
    """

    num_data = None

    def __init__(self, target: RegressionPosterior) -> None:
        self.target, self.hidden = target, (target.dim - 1) // 3
        self.dim = 2 * self.hidden
        scale = target.prior.scale
        assert isinstance(scale, Tensor), "one scale per weight"
        self.inner_scale, self.outer_scale = scale.split([self.dim, self.hidden + 1])

    def _features(self, u: Float[Tensor, "n e"]) -> Float[Tensor, "n N f"]:
        """``Φ S / σ`` at each hidden layer."""
        weight, bias = (u * self.inner_scale).split(self.hidden, dim=-1)
        h = torch.relu(torch.addcmul(bias[:, None], self.target.inputs, weight[:, None]))
        return torch.cat([h, torch.ones_like(h[..., :1])], dim=-1) * (self.outer_scale / self.target.noise_scale)

    def _factorise(self, u: Float[Tensor, "n e"]) -> tuple[Float[Tensor, "n f f"], Float[Tensor, "n f 1"]]:
        """``L`` with ``L Lᵀ = A``, and ``L^{-1} S Φᵀ y / σ^2``."""
        features = self._features(u)
        identity = torch.eye(features.shape[-1], dtype=u.dtype, device=u.device)
        lower = torch.linalg.cholesky(identity + features.mT @ features)
        data = features.mT @ (self.target.targets / self.target.noise_scale)[:, None]
        return lower, torch.linalg.solve_triangular(lower, data, upper=False)

    def log_prob(self, u: Float[Tensor, "n e"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """``log N(u; 0, I) + log p(y | u)``, up to a constant."""
        lower, half = self._factorise(u)
        log_determinant = lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * u.square().sum(-1) - log_determinant + 0.5 * half.square().sum((-2, -1))

    def complete(self, u: Float[Tensor, "n e"], rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Weights of the whole network, with the output layer drawn from its posterior given the hidden layer."""
        lower, half = self._factorise(u)
        noise = torch.randn(half.shape, generator=rng, dtype=u.dtype, device=u.device)
        outer = torch.linalg.solve_triangular(lower.mT, half + noise, upper=True)[..., 0]
        return torch.cat([u * self.inner_scale, outer * self.outer_scale], dim=-1)
