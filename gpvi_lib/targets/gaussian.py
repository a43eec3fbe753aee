"""Gaussian targets."""

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.errors import GPVIError


class Gaussian:
    """``N(mean, covariance)`` on R^d.

    Args:
        mean: ``(d,)``.
        covariance: ``(d, d)``, symmetric up to rounding and positive definite.

    Raises:
        GPVIError: for another shape or precision than the mean's, or a covariance that is none.

    Example:
        >>> target = Gaussian(torch.zeros(2), torch.eye(2))
        >>> target.log_prob(torch.zeros(1, 2))  # -log 2π
        tensor([-1.8379])
    """

    num_data = None

    def __init__(self, mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"]) -> None:
        _check_covariance(mean, covariance)
        self.dim = len(mean)
        self.mean, self.covariance = mean, covariance
        self._distribution = torch.distributions.MultivariateNormal(mean, covariance, validate_args=False)

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Normalised log-density."""
        return self._distribution.log_prob(x)


def _check_covariance(mean: Tensor, covariance: Tensor) -> None:
    """Refuse what a Cholesky factorisation of the lower triangle would take in silence, or refuse in its own words."""
    if mean.ndim != 1 or not len(mean):
        raise GPVIError(f"the mean must have shape (d,), got {tuple(mean.shape)}")
    d = len(mean)
    if covariance.shape != (d, d):
        raise GPVIError(f"the covariance must have shape ({d}, {d}), got {tuple(covariance.shape)}")
    if mean.dtype != covariance.dtype or not mean.is_floating_point():
        raise GPVIError(f"mean and covariance must be of one precision, got {mean.dtype} and {covariance.dtype}")
    if not bool(mean.isfinite().all() and covariance.isfinite().all()):
        raise GPVIError("the mean or the covariance is not finite: look for nan and inf in it")
    # An inverse is symmetric up to rounding times its condition number: half of the digits are asked for.
    if bool((covariance - covariance.mT).abs().max() > torch.finfo(mean.dtype).eps ** 0.5 * covariance.abs().max()):
        raise GPVIError("the covariance is not symmetric: (S + S.mT) / 2 is, if that is what you mean")
    if int(torch.linalg.cholesky_ex(covariance).info):
        raise GPVIError("the covariance is not positive definite: it needs positive eigenvalues, see torch.linalg.eigh")
