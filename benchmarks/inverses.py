"""Both ways of the block inverse to the first block of R, so that its choice by counting can be held against time."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpvi_lib import Generator
from gpvi_lib.inverse import BlockInverse, by_pairs, by_sources
from gpvi_lib.kernels import RBF

SHAPES = {  # d, k, hidden layers, n
    "d = 20, k = 5": (20, 5, (64, 64), 100),
    "d = k = 20": (20, 20, (64, 64), 100),
    "d = 184, k = 64": (184, 64, (64, 64), 100),
    "narrow to wide": (184, 64, (16, 512), 20),
    "10 samples": (1_000, 64, (128, 128), 10),
    "LeNet-5": (61_706, 256, (256, 512, 1_024), 10),
}


def calls(dim: int, noise_dim: int, hidden: tuple[int, ...], samples: int) -> tuple[str, dict[str, Callable]]:
    """The way that counting chooses, and way -> the first block by it."""
    rng = torch.Generator().manual_seed(0)
    generator = Generator(dim, noise_dim, hidden, noise_scale=1.0, activation="tanh", rng=rng)
    with torch.no_grad():
        source, query = generator.noise(samples, rng), generator.noise(samples, rng)
        linearization, weight = generator.linearize(source), RBF()(source, query)[1]
        pulled = [torch.randn(samples if noise_dim < dim else 0, hidden[-1], generator=rng) for _ in range(2)]
    given = (linearization, source[:, :noise_dim], query[:, :noise_dim], weight, *pulled)
    chosen = "sources" if BlockInverse.by_sources(linearization, samples) else "pairs"
    ways = {"pairs": by_pairs, "sources": by_sources}
    return chosen, {name: torch.no_grad()(lambda way=way: way(*given)) for name, way in ways.items()}
