"""What the experiments in function space share: the scales of the paper's code, and scores of functions on the line."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib.metrics import wasserstein_1d
from gpvi_lib.networks import FlatModule

LayerScale = Callable[[int, int], tuple[float, float]]
"""(inputs, outputs) of a layer -> standard deviations of its weights and of its biases."""
SCALES: dict[str, LayerScale] = {
    "fan_in": lambda fan_in, fan_out: (fan_in**-0.5, fan_in**-0.5),
    "fan_out": lambda fan_in, fan_out: (fan_out**-0.5, fan_out**-0.5),
    "start": lambda fan_in, fan_out: ((fan_in + fan_out + 1) ** -0.5, 0.0),
}
"""``fan_in`` is this library's prior, ``fan_out`` the prior of the paper's code, ``start`` where that code starts."""
REPULSION_OFF = {"kind": "gfsf", "ridge": 1e9}
"""A direction without repulsion: what is left of it is below 1e-8 of the score."""


def layer_scales(network: FlatModule, rule: str, dtype: torch.dtype, other: float = 1.0) -> Float[Tensor, " d"]:
    """A standard deviation for each weight of a perceptron by one of ``SCALES``; ``other`` for what is in no layer."""
    scale = torch.full((network.dim,), other, dtype=dtype)
    parts = network.unflatten(scale)
    for name, part in parts.items():
        layer, _, kind = name.rpartition(".")
        weight = parts.get(f"{layer}.weight")
        if weight is not None and weight.ndim == 2:
            fan_out, fan_in = weight.shape
            weights, biases = SCALES[rule](fan_in, fan_out)
            part.fill_(biases if kind == "bias" else weights)
    return scale


def function_scores(
    f: Float[Tensor, "n g"], draws: Float[Tensor, "m g"], regions: dict[str, Bool[Tensor, " g"]]
) -> dict[str, float]:
    """How far ``n`` functions are from draws of a reference, in each region of a grid.

    ``sd`` is the mean standard deviation of ``f(x)``, ``sd_ratio`` that over the reference's, ``w1`` the mean over x of
    the Wasserstein distance between the distributions of ``f(x)``, and ``rmse_mean`` compares the means; in the unit of
    y.
    """
    f, draws = f.double().cpu(), draws.double()
    sd, reference, distance = f.std(0), draws.std(0), wasserstein_1d(f, draws)
    error = (f.mean(0) - draws.mean(0)).square()
    found: dict[str, float] = {}
    for name, at in regions.items():
        found[f"sd_{name}"] = float(sd[at].mean())
        found[f"sd_ratio_{name}"] = float(sd[at].mean() / reference[at].mean())
        found[f"w1_{name}"] = float(distance[at].mean())
        found[f"rmse_mean_{name}"] = float(error[at].mean().sqrt())
    return found


def mean_distance(x: Float[Tensor, "n d"]) -> float:
    """The mean Euclidean distance between two of ``n`` points."""
    return float(torch.pdist(x).mean())
