"""The problems and methods that are timed, built as `gpvi_lib.fit` would build them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import nn

from gpvi_lib import (
    GPVI,
    SVGD,
    BayesianLinearRegression,
    BiCGSTABInverse,
    BlockInverse,
    DenseInverse,
    Generator,
    HelperInverse,
    MaximumLikelihood,
    NegativeELBO,
    Particles,
    ParVI,
    mlp,
)
from gpvi_lib.experiments.inverse_cost import MAX_JACOBIAN_BYTES
from gpvi_lib.experiments.overhead import NETWORKS, NUM_DATA, random_posterior
from gpvi_lib.experiments.printed import IMAGE_GENERATORS
from gpvi_lib.fitting import Training
from gpvi_lib.objectives import Objective
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Sampler, standard_normal
from gpvi_lib.targets import Target, score


@dataclass(frozen=True)
class Size:
    """One problem with a generator for it.

    Args:
        name: for the table.
        network: the classifier whose weights are sampled; None for linear regression.
        inputs: shape of one input.
        noise_dim, hidden: k and the hidden layers of g.
        samples: n, particles or samples in each of the two batches.
        batch: minibatch of data.
        helper: width of the helper network.
    """

    name: str
    network: Callable[[], nn.Module] | None
    inputs: tuple[int, ...]
    noise_dim: int
    hidden: Sequence[int]
    samples: int
    batch: int
    helper: int

    def target(self, device: torch.device) -> Target:
        """The posterior, on random data."""
        if self.network is not None:
            return random_posterior(self.network(), self.inputs, NUM_DATA, device)
        rng = torch.Generator(device).manual_seed(0)
        inputs = torch.randn(NUM_DATA, *self.inputs, generator=rng, device=device)
        return BayesianLinearRegression(inputs, inputs.sum(1))


IMAGES = (("LeNet-5 (MNIST)", "mnist"), ("CNN (CIFAR-10)", "cifar10"))
SIZES = (
    Size("linear regression", None, (3,), 3, (), 100, 10, 10),
    Size("linear regression, d = 20", None, (20,), 5, (64, 64), 100, 10, 64),
    Size("4-class BNN", lambda: mlp([2, 10, 10, 4]), (2,), 64, (64, 64), 100, 100, 64),
    Size("MLP, d = 1,000", lambda: mlp([64, 14, 6]), (64,), 64, (128, 128), 10, 50, 64),
    Size("MLP, d = 10,000", lambda: mlp([64, 74, 64, 6]), (64,), 64, (128, 128), 10, 50, 128),
    *(Size(name, *NETWORKS[key], **IMAGE_GENERATORS[key], samples=10, batch=50, helper=512) for name, key in IMAGES),
)
SMALL, BNN, BASE = (replace(SIZES[i], name=name) for i, name in ((1, "small"), (2, "BNN"), (4, "base")))
"""What the growth studies start from."""

OBJECTIVES: dict[str, Callable[[Size], Objective]] = {
    "amortized_svgd": lambda size: ParVI(SVGD(), size.samples, independent=True),
    "gpvi_block": lambda size: GPVI(size.samples, BlockInverse()),
    "gpvi_helper": lambda size: GPVI(size.samples, HelperInverse(width=size.helper)),
    "gpvi_bicgstab": lambda size: GPVI(size.samples, BiCGSTABInverse()),
    "gpvi_bicgstab_1": lambda size: GPVI(size.samples, BiCGSTABInverse(max_iterations=1, warm_start=True)),
    "gpvi_dense": lambda size: GPVI(size.samples, DenseInverse()),
    "gpvi_exact_density": lambda size: NegativeELBO(size.samples),
    "svgd": lambda size: ParVI(SVGD()),
    "deep_ensemble": lambda size: MaximumLikelihood(),
}
PARTICLES = ("svgd", "deep_ensemble")
LABELS = {
    "amortized_svgd": "amortised SVGD",
    "gpvi_block": "GPVI, block",
    "gpvi_helper": "GPVI, helper",
    "gpvi_bicgstab": "GPVI, BiCGSTAB to 1e-6",
    "gpvi_bicgstab_1": "GPVI, BiCGSTAB once",
    "gpvi_dense": "GPVI, dense",
    "gpvi_exact_density": "GPVI, exact density",
    "svgd": "SVGD",
    "deep_ensemble": "deep ensemble",
    "score": "(the target's score alone)",
}


def feasible(method: str, dim: int, samples: int) -> bool:
    """Whether a method's largest tensor fits: n Jacobians of d x d for the dense inverse."""
    return method != "gpvi_dense" or samples * dim**2 * 4 <= MAX_JACOBIAN_BYTES


def bytes_in_training(size: Size, dim: int) -> float:
    """What a generator's weights, their gradients and Adam's two moments take, and a gradient's memory kept."""
    return 20.0 * generator_weights(size, dim)[0]


def generator_weights(size: Size, dim: int) -> tuple[int, int]:
    """Weights of the generator, and of its output layer alone."""
    widths = [size.noise_dim, *size.hidden, dim]
    return sum((i + 1) * o for i, o in pairwise(widths)), (widths[-2] + 1) * dim


def sampler(method: str, size: Size, dim: int, rng: torch.Generator, activation: str = "relu") -> Sampler:
    """Free particles, or the generator of this size with λ = 0.1."""
    if method in PARTICLES:
        return Particles(0.1 * standard_normal((size.samples, dim), rng, torch.empty(0, device=rng.device)))
    settings = {"noise_scale": 0.1, "activation": activation, "rng": rng, "device": rng.device}
    return Generator(dim, size.noise_dim, size.hidden, **settings)


def training(method: str, size: Size, device: torch.device, activation: str = "relu") -> Training:
    """Everything that one step of `method` needs."""
    rng = torch.Generator(device).manual_seed(1)
    target = size.target(device)
    chosen = sampler(method, size, target.dim, rng, activation)
    return Training(chosen, target, OBJECTIVES[method](size), rng=rng, optimizer=Adam(lr=1e-5), batch_size=size.batch)


def score_alone(size: Size, device: torch.device) -> Callable[[], object]:
    """The gradient of the target's log-density at n points on one minibatch, which every step of a direction needs."""
    target = size.target(device)
    points = sampler("svgd", size, target.dim, torch.Generator(device).manual_seed(1)).x
    batch = torch.arange(size.batch, device=device)
    return lambda: score(target, points, batch)
