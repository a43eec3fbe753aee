"""The three products of a wide output layer, each in the orders and with the memory that one may choose."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpvi_lib import wide

ROWS, WIDTH = 61_706, 1_024
"""The output layer of the generator for LeNet-5."""


def calls(samples: int = 20) -> dict[str, Callable[[], object]]:
    """Name -> one product of ``W (d, w)`` with ``samples`` rows: forward, to the features, to the gradient of W."""
    rng = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(ROWS, WIDTH, generator=rng), torch.randn(ROWS, generator=rng)
    a, grad = torch.randn(samples, WIDTH, generator=rng), torch.randn(samples, ROWS, generator=rng)
    kept = torch.empty_like(weight)

    def by_onednn(rows: Tensor, matrix: Tensor) -> Tensor:
        with torch.no_grad():
            return wide.by_onednn(rows, matrix)

    return {
        "forward: linear(a, W, b)": lambda: torch.nn.functional.linear(a, weight, bias),
        "forward: (W aᵀ)ᵀ + b": lambda: (weight @ a.mT).mT + bias,
        "forward: oneDNN": lambda: by_onednn(a, weight.mT) + bias,
        "to features: g W": lambda: grad @ weight,
        "to features: (Wᵀ gᵀ)ᵀ": lambda: (weight.mT @ grad.mT).mT,
        "to features: oneDNN": lambda: by_onednn(grad, weight),
        "to W: gᵀ a, new memory": lambda: grad.mT @ a,
        "to W: gᵀ a, kept memory": lambda: torch.mm(grad.mT, a, out=kept),
        "to W: oneDNN, kept memory": lambda: _blocks(grad, a, kept),
        "W read once": lambda: weight.sum(),
    }


@torch.no_grad()
def _blocks(grad: Tensor, a: Tensor, kept: Tensor) -> Tensor:
    """``gᵀ a`` as :class:`gpvi_lib.wide.WideLinear` takes it from oneDNN."""
    return wide.outer_by_onednn(grad, a, kept)
