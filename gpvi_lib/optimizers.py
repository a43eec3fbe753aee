"""What moves the parameters: an algorithm of ``torch.optim`` with its rates, as one value."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from gpvi_lib.checks import check_not_negative, check_positive
from gpvi_lib.errors import GPVIError
from gpvi_lib.samplers import Sampler

Factory = Callable[[list[dict]], torch.optim.Optimizer]
"""Makes an optimizer of groups of parameters: ``partial(torch.optim.AdamW, lr=1e-3)``."""


@dataclass(frozen=True)
class Optimizer:
    """An algorithm, its learning rates and where they go; :class:`Adam`, :class:`RMSprop` and :class:`SGD` are three.

    For another one of ``torch.optim`` derive a class that sets ``algorithm``, or give :func:`~gpvi_lib.fit` a factory.

    Args:
        lr: learning rate, η > 0.
        final_lr: where the rate goes along half a cosine, ``η_t = η_T + (η − η_T)(1 + cos(π t/T))/2`` in step t of T;
            ``None`` keeps it constant.
        noise_scale_lr: the learning rate of a generator's trained λ, where that is to have its own; it decays in
            proportion. Adam moves log λ by about the learning rate a step, and a rate that suits a wide last layer
            can be far too small for it.
        weight_decay: multiple of the parameters added to their gradient, at least 0.

    Raises:
        GPVIError: if a rate is negative or no finite number, lr is 0, or final_lr is above it.

    Example:
        >>> class NAdam(Optimizer):
        ...     algorithm = torch.optim.NAdam
        >>> NAdam(0.1, final_lr=0.001).make(MeanField(torch.zeros(3))).defaults["lr"]
        0.1
    """

    lr: float
    final_lr: float | None = None
    noise_scale_lr: float | None = None
    weight_decay: float = 0.0
    algorithm: ClassVar[Callable[..., torch.optim.Optimizer]]

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        for name in ("final_lr", "noise_scale_lr", "weight_decay"):
            if (value := getattr(self, name)) is not None:
                check_not_negative(name, value)
        if self.final_lr is not None and self.final_lr > self.lr:
            raise GPVIError(f"final_lr is where the rate falls to, got {self.final_lr:g} above lr = {self.lr:g}")

    def make(self, sampler: Sampler) -> torch.optim.Optimizer:
        """The optimizer of all parameters of ``sampler``.

        Raises:
            ValueError: if there is a rate for λ and no λ to train, or a weight decay that the algorithm does not have.
        """
        groups, algorithm = _groups(sampler, self.noise_scale_lr), type(self).algorithm
        if _has_weight_decay(algorithm):
            return algorithm(groups, lr=self.lr, weight_decay=self.weight_decay)
        if self.weight_decay:
            raise GPVIError(f"{type(self).__name__} has no weight_decay, got {self.weight_decay}: leave it out")
        return algorithm(groups, lr=self.lr)

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of step t = 0, ..., T - 1 of T; that of λ is the same multiple of its own first rate."""
        if self.final_lr is None:
            return self.lr
        return self.final_lr + 0.5 * (self.lr - self.final_lr) * (1 + math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) with PyTorch's settings, in one fused call.

    Args and errors are those of :class:`Optimizer`.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> particles = Particles(torch.randn(20, 2, generator=rng))
        >>> target = Gaussian(torch.zeros(2), torch.eye(2))
        >>> adam = Adam(lr=1e-1, final_lr=1e-3)
        >>> result = fit(particles, target, ParVI(), steps=5, optimizer=adam, rng=rng, progress=False)
        >>> Adam(lr=0.1, final_lr=0.0).lr_at(step=1, steps=2)
        0.05
    """

    algorithm = partial(torch.optim.Adam, fused=True)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton, 2012) with PyTorch's settings.

    Args and errors are those of :class:`Optimizer`.

    Example:
        >>> RMSprop(1e-3, weight_decay=1e-3)
        RMSprop(lr=0.001, final_lr=None, noise_scale_lr=None, weight_decay=0.001)
    """

    algorithm = torch.optim.RMSprop


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent without momentum.

    Args and errors are those of :class:`Optimizer`.

    Example:
        >>> SGD(1.0, final_lr=0.02).lr_at(step=0, steps=100)
        1.0
    """

    algorithm = torch.optim.SGD


def _has_weight_decay(algorithm: Callable) -> bool:
    """Whether it takes one; left out of those that do, theirs would count, which is 0.01 of AdamW."""
    try:
        inspect.signature(algorithm).bind([], lr=1.0, weight_decay=0.0)
    except TypeError:
        return False
    return True


def _groups(sampler: Sampler, noise_scale_lr: float | None) -> list[dict]:
    """What an optimizer trains: all parameters in one group, or λ in a second with a rate of its own."""
    named = dict(sampler.named_parameters())
    if noise_scale_lr is None:
        return [{"params": list(named.values())}]
    ours = [name for name, p in named.items() if name.rpartition(".")[2] == "log_noise_scale" and p.requires_grad]
    if not ours:
        raise ValueError(f"noise_scale_lr needs a trained λ, and {type(sampler).__name__} has none: leave it out")
    noise_scales = [named.pop(name) for name in ours]
    return [{"params": list(named.values())}, {"params": noise_scales, "lr": noise_scale_lr}]
