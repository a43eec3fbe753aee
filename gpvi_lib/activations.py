"""Activations of the networks that samplers, critics and helpers are made of, with their slopes.

Where a loss contains the slopes themselves (``log|det J|`` of a generator, the trace in a Stein critic's loss) they
have to be continuous. The slope of ReLU jumps: such a loss depends on where the kinks are, and autograd leaves out how
they move. Its gradient is biased, and that of hidden biases is absent (notebook 02).
"""

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib.errors import KinkWarning


@dataclass(frozen=True)
class Activation:
    """An activation ``a = σ(x)``, elementwise.

    Attributes:
        value: ``σ``.
        module: the same as a layer.
        slope: ``σ'(x)``, given ``x`` and ``a``, for it is cheaper from the one here and from the other there.
        smooth: whether ``σ'`` is continuous.
        steepest: an upper bound on ``|σ'|``.
    """

    value: Callable[[Float[Tensor, "..."]], Float[Tensor, "..."]]
    module: type[nn.Module]
    slope: Callable[[Float[Tensor, "..."], Float[Tensor, "..."]], Float[Tensor, "..."]]
    smooth: bool = True
    steepest: float = 1.0


def _silu_slope(x: Tensor, a: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + a * (1 - s)


def _gelu_slope(x: Tensor, a: Tensor) -> Tensor:
    return torch.special.ndtr(x) + x * torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)


ACTIVATIONS = {
    "elu": Activation(F.elu, nn.ELU, lambda x, a: a.clamp_max(0) + 1),
    "gelu": Activation(F.gelu, nn.GELU, _gelu_slope, steepest=1.13),
    "relu": Activation(torch.relu, nn.ReLU, lambda x, a: (a > 0).to(a.dtype), smooth=False),
    "silu": Activation(F.silu, nn.SiLU, _silu_slope, steepest=1.1),
    "softplus": Activation(F.softplus, nn.Softplus, lambda x, a: torch.sigmoid(x)),
    "tanh": Activation(torch.tanh, nn.Tanh, lambda x, a: 1 - a.square()),
}
"""By name elu, gelu (the exact one), relu, silu, softplus (PyTorch's, with β = 1) and tanh."""


def check_activation(name: str) -> None:
    """Raise a ValueError, listing the valid names, unless there is an activation called ``name``."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")


def warn_of_kinks(what: str, loss: str) -> None:
    """Say once, to the first caller outside of this package, that ``loss`` of ``what`` has a biased gradient."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gpvi_lib."):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{what} has ReLU activations: the gradient of {loss} is biased, and zero for hidden biases, because autograd "
        'leaves out how the kinks move; use a smooth activation: activation="softplus", or for some tens of '
        'coordinates "tanh" (notebook 02)',
        KinkWarning,
        stacklevel=level,
    )
