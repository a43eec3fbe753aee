"""Ten convolutional networks on the same images: in one batched call, and one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpvi_lib.experiments.overhead import NETWORKS
from gpvi_lib.networks import FlatModule

SAMPLES, BATCH = 10, 50


def calls() -> dict[str, Callable[[], object]]:
    """Name -> outputs, or the gradient in all weights, of either network in either way."""
    found: dict[str, Callable[[], object]] = {}
    rng = torch.Generator().manual_seed(0)
    for name, (make, shape) in NETWORKS.items():
        inputs, module = torch.randn(BATCH, *shape, generator=rng), make()
        scale = FlatModule(module).fan_in_scale()
        weights = scale * torch.randn(SAMPLES, len(scale), generator=rng)
        for way, one_by_one in (("batched", False), ("one by one", True)):
            network = FlatModule(module)
            network.one_by_one = one_by_one
            found[f"{name}: outputs, {way}"] = torch.no_grad()(lambda n=network, w=weights, x=inputs: n(w, x))
            found[f"{name}: gradient, {way}"] = lambda n=network, w=weights, x=inputs: _gradient(n, w, x)
    return found


def _gradient(network: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    weights = weights.detach().requires_grad_()
    return torch.autograd.grad(network(weights, inputs).square().sum(), weights)[0]
