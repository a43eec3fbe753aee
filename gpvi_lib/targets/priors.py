"""Priors over parameter vectors."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_rng


@dataclass(frozen=True)
class NormalPrior:
    """``N(0, diag(scale^2))``.

    Attributes:
        scale: standard deviation > 0, a number or one per coordinate ``(d,)``.

    Raises:
        ValueError: if the scale is not positive and finite.

    Example:
        >>> prior = NormalPrior(scale=torch.tensor([1.0, 2.0]))
        >>> prior.log_prob(torch.zeros(5, 2)).shape
        torch.Size([5])
        >>> prior.sample(3, torch.zeros(1, 2), torch.Generator().manual_seed(0)).shape
        torch.Size([3, 2])
    """

    scale: float | Tensor = 1.0

    def __post_init__(self) -> None:
        scale = torch.as_tensor(self.scale)
        if not bool(((scale > 0) & (scale < math.inf)).all()):
            raise ValueError(f"the scale of a normal prior must be positive and finite, got {self.scale}")

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Normalised log-density of each row."""
        scale = torch.as_tensor(self.scale, dtype=x.dtype, device=x.device).expand(x.shape[1])
        return -0.5 * (x / scale).square().sum(-1) - (scale.log() + 0.5 * math.log(2 * math.pi)).sum()

    def sample(self, num_samples: int, like: Float[Tensor, "n d"], rng: torch.Generator) -> Float[Tensor, "m d"]:
        """Draws of ``like``'s dimension, dtype and device."""
        check_rng(rng)
        scale = torch.as_tensor(self.scale, dtype=like.dtype, device=like.device)
        noise = torch.randn(num_samples, like.shape[1], generator=rng, dtype=like.dtype, device=like.device)
        return scale * noise


@dataclass(frozen=True)
class FlatFirst:
    """A prior on all coordinates but the first, which have none: for numbers fitted by type-II maximum likelihood.

    Attributes:
        prior: of the other coordinates.
        number: how many come first and are left alone.

    Example:
        >>> FlatFirst(NormalPrior()).log_prob(torch.tensor([[7.0, 0.0, 0.0]]))  # of the last two: -log 2π
        tensor([-1.8379])
    """

    prior: NormalPrior
    number: int = 1

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log-density of the other coordinates."""
        return self.prior.log_prob(x[:, self.number :])


class FlatPrior:
    """No prior: the improper constant density 1, so that the posterior is the likelihood.

    Example:
        >>> FlatPrior().log_prob(torch.ones(2, 3))
        tensor([0., 0.])
    """

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Zero for each row."""
        return x.new_zeros(len(x))


@dataclass(frozen=True)
class ScaleMixturePrior:
    """``Π_i [π N(x_i; 0, σ_1^2) + (1 - π) N(x_i; 0, σ_2^2)]`` (Blundell et al. 2015, eq. 7).

    Attributes:
        mixture_weight: π in (0, 1).
        scale_1, scale_2: σ_1, σ_2 > 0.

    Raises:
        ValueError: if π is not in (0, 1) or a scale is not positive.

    Example:
        >>> ScaleMixturePrior().log_prob(torch.zeros(2, 3)).shape
        torch.Size([2])
    """

    mixture_weight: float = 0.5
    scale_1: float = 1.0
    scale_2: float = math.exp(-6)

    def __post_init__(self) -> None:
        if not (0 < self.mixture_weight < 1 and self.scale_1 > 0 and self.scale_2 > 0):
            raise ValueError(
                "a scale mixture needs 0 < mixture_weight < 1 and positive scales, got "
                f"{self.mixture_weight}, {self.scale_1}, {self.scale_2}"
            )

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Normalised log-density of each row."""
        parts = [
            math.log(weight / (scale * math.sqrt(2 * math.pi))) - 0.5 * (x / scale).square()
            for weight, scale in ((self.mixture_weight, self.scale_1), (1 - self.mixture_weight, self.scale_2))
        ]
        return torch.logaddexp(*parts).sum(-1)


@torch.no_grad()
def check_prior(prior, dim: int, like: Tensor) -> None:
    """Evaluate a prior once, at 0.

    Raises:
        ValueError: if it has no ``log_prob``, is one over another number of weights, or returns another shape.
    """
    if not hasattr(prior, "log_prob") or isinstance(prior, type):
        raise ValueError(f"the prior must be an object with log_prob(w), such as NormalPrior(1.0), got {prior!r}")
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    try:
        value = prior.log_prob(torch.zeros(1, dim, dtype=dtype, device=like.device))
    except RuntimeError as error:
        raise ValueError(
            f"the prior cannot be evaluated on {dim} weights: give its scale as one number or {dim} of them ({error})"
        ) from error
    if not isinstance(value, Tensor) or value.shape != (1,):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"the prior's log_prob must return one number per row of weights, (n,), got {shape} for one")
