"""Densities on the plane and in d dimensions that have exact samplers: what particles are shown on and tested with."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.checks import check_points, check_rng


@dataclass(frozen=True)
class Banana:
    r"""A Gaussian bent along a parabola: ``x_1 = s ε_1``, ``x_2 = b (x_1^2 - s^2) + w ε_2``, ``ε ~ N(0, I_2)``.

    The map from ε has the constant Jacobian determinant ``s w``, so the density is known in closed form. Its mean is 0
    and its covariance ``diag(s^2, w^2 + 2 b^2 s^4)``.

    Attributes:
        scale: ``s > 0``, standard deviation of ``x_1``.
        bend: ``b``, curvature of the ridge; 0 gives a Gaussian.
        width: ``w > 0``, standard deviation of ``x_2`` given ``x_1``.

    Raises:
        ValueError: if scale or width is not positive.

    Example:
        >>> target = Banana(bend=2.0)
        >>> target.covariance.diagonal()
        tensor([1.0000, 8.2500], dtype=torch.float64)
        >>> target.sample(100, torch.Generator().manual_seed(0)).shape
        torch.Size([100, 2])
    """

    scale: float = 1.0
    bend: float = 1.0
    width: float = 0.5

    dim = 2
    num_data = None

    def __post_init__(self) -> None:
        if not (self.scale > 0 and self.width > 0):
            raise ValueError(f"scale and width of a banana must be positive, got {self.scale} and {self.width}")

    @property
    def mean(self) -> Float[Tensor, " 2"]:
        """Zero, in float64."""
        return torch.zeros(2, dtype=torch.float64)

    @property
    def covariance(self) -> Float[Tensor, "2 2"]:
        """``diag(s^2, w^2 + 2 b^2 s^4)``, in float64."""
        variances = [self.scale**2, self.width**2 + 2 * self.bend**2 * self.scale**4]
        return torch.diag(torch.tensor(variances, dtype=torch.float64))

    def log_prob(self, x: Float[Tensor, "n 2"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Normalised log-density."""
        first, second = x.unbind(-1)
        residual = (second - self.bend * (first.square() - self.scale**2)) / self.width
        squares = (first / self.scale).square() + residual.square()
        return -0.5 * squares - math.log(2 * math.pi * self.scale * self.width)

    def sample(
        self, num_samples: int, rng: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "n 2"]:
        """Independent draws, on ``rng``'s device."""
        first, second = torch.randn(2, num_samples, generator=rng, dtype=dtype, device=rng.device)
        first = self.scale * first
        return torch.stack([first, self.bend * (first.square() - self.scale**2) + self.width * second], dim=-1)


class GaussianMixture:
    """``Σ_m w_m N(μ_m, σ^2 I_d)`` on R^d.

    Args:
        means: ``μ (m, d)``; dtype and device follow it.
        scale: ``σ > 0``, the standard deviation of every component.
        weights: ``w (m,)``, positive with sum 1, taken in the means' dtype; ``None`` for equal weights.

    Raises:
        ValueError: if σ is not positive, or the weights are not positive numbers with sum 1, one for each mean.

    Example:
        >>> target = GaussianMixture(torch.tensor([[-2.0], [2.0]]))
        >>> target.mean, target.covariance
        (tensor([0.]), tensor([[5.]]))
        >>> x = target.sample(1_000, torch.Generator().manual_seed(0))
        >>> x.shape, target.component(torch.tensor([[-1.0], [1.0]]))
        (torch.Size([1000, 1]), tensor([0, 1]))
    """

    num_data = None

    def __init__(
        self, means: Float[Tensor, "m d"], scale: float = 1.0, weights: Float[Tensor, " m"] | None = None
    ) -> None:
        check_points("the means", means)
        if means.ndim != 2:
            raise ValueError(f"a mixture needs means (m, d), one row for each component, got {tuple(means.shape)}")
        if weights is None:
            weights = means.new_full((len(means),), 1 / len(means))
        if not scale > 0:
            raise ValueError(f"the scale of a mixture's components must be positive, got {scale}")
        if weights.shape != (len(means),) or not bool((weights > 0).all()) or abs(float(weights.sum()) - 1) > 1e-5:
            raise ValueError(f"weights must be {len(means)} positive numbers with sum 1, got {weights.tolist()}")
        self.means, self.scale, self.weights = means, scale, weights.to(means)
        self.dim = means.shape[1]

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """``Σ_m w_m μ_m``."""
        return self.weights @ self.means

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        """``σ^2 I + Σ_m w_m (μ_m - μ)(μ_m - μ)ᵀ``."""
        centred = self.means - self.mean
        identity = torch.eye(self.dim, dtype=centred.dtype, device=centred.device)
        return self.scale**2 * identity + (centred.mT * self.weights) @ centred

    def _joint(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        """``log w_m + log N(x; μ_m, σ^2 I)``."""
        squares = (x[:, None] - self.means).square().sum(-1) / self.scale**2
        return self.weights.log() - 0.5 * squares - self.dim * math.log(self.scale * math.sqrt(2 * math.pi))

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Normalised log-density."""
        return self._joint(x).logsumexp(-1)

    def component(self, x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The component that most probably produced each point."""
        return self._joint(x).argmax(-1)

    def sample(self, num_samples: int, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Independent draws; ``rng`` must live on the device of the means."""
        check_rng(rng)
        chosen = torch.multinomial(self.weights, num_samples, replacement=True, generator=rng)
        noise = torch.randn(num_samples, self.dim, generator=rng, dtype=self.means.dtype, device=self.means.device)
        return self.means[chosen] + self.scale * noise
