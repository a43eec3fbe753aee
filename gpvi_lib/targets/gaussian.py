"""Gaussian targets."""

import torch
from jaxtyping import Float
from torch import Tensor


class Gaussian:
    """``N(mean, covariance)`` on R^d.

    Args:
        mean: ``(d,)``.
        covariance: ``(d, d)``, symmetric positive definite.

    Example:
        >>> target = Gaussian(torch.zeros(2), torch.eye(2))
        >>> target.log_prob(torch.zeros(1, 2))  # -log 2π
        tensor([-1.8379])
    """

    num_data = None

    def __init__(self, mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"]) -> None:
        self.dim = len(mean)
        self.mean, self.covariance = mean, covariance
        self._distribution = torch.distributions.MultivariateNormal(mean, covariance, validate_args=False)

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Normalised log-density."""
        return self._distribution.log_prob(x)
