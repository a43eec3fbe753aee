"""What a target is, and the checked way to evaluate one."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Target(Protocol):
    """An unnormalised density on R^d: any object with ``dim`` and ``log_prob(x)``.

    A target on data also has ``num_data`` and takes ``batch``, indices of data; it then scales the minibatch's
    log-likelihood by ``N / B``, so that every minibatch estimates the same log-density. Without minibatches neither
    is asked for.
    """

    @property
    def dim(self) -> int:
        """d."""
        ...

    @property
    def num_data(self) -> int | None:
        """N, or ``None`` without data."""
        ...

    def log_prob(self, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``log p(x)`` up to a constant, one number per point."""
        ...


def log_prob(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
    """``target.log_prob`` with its shape checked.

    Raises:
        ValueError: if the points have the wrong dimension, or the target returns another shape than ``(n,)``.
    """
    if x.ndim != 2 or x.shape[1] != target.dim:
        raise ValueError(
            f"{type(target).__name__} lives on R^{target.dim}, got points of shape {tuple(x.shape)}; "
            f"give the sampler dim = {target.dim}"
        )
    value = target.log_prob(x) if batch is None else target.log_prob(x, batch)
    if value.shape != (len(x),):
        raise ValueError(
            f"{type(target).__name__}.log_prob must return one number per point, shape ({len(x)},), got "
            f"{tuple(value.shape)}; sum over everything but the first axis"
        )
    return value


def score(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, "n d"]:
    """``∇_x log p(x)`` by automatic differentiation, detached from whatever produced ``x``."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(log_prob(target, x, batch).sum(), x)
    return gradient


def check_finite(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> None:
    """Evaluate once and raise a ValueError if the target or its score is not finite at these points."""
    value, gradient = log_prob(target, x, batch), score(target, x, batch)
    for name, tensor in (("log_prob", value), ("score (the gradient of log_prob)", gradient)):
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(
                f"the {name} of {type(target).__name__} is not finite at the sampler's first points; "
                "check the target there, or start the sampler closer to it"
            )
