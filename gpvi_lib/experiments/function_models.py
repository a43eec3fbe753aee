"""What the experiments in function space share: the scales of the paper's code; its rows in other experiments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

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


ROWS = ("f_svgd", "f_svgd_closed_form", "f_gfsf", "f_gfsf_closed_form")


DRAWS = {"smoke": 30, "quick": 100, "paper": 400}
"""Networks that a printed prior is matched to, by profile."""


def function_rows(low: float, high: float, profile: str) -> dict[str, dict]:
    """Specifications of ``ROWS``, for problems of other papers, but for their particles.

    ``f_svgd`` and ``f_gfsf`` are as printed: a prior matched to ``DRAWS`` networks at four inputs of a step.
    ``..._closed_form`` has the Gaussian process of infinite width at all inputs of a step, 20 of them uniform on the
    box from ``low`` to ``high``, and a decaying rate.
    """
    printed = {
        "points": {"kind": "jitter", "number": 20, "scale": 0.1},
        "prior": {"kind": "moment_matched", "draws": DRAWS[profile], "floor": 1e-3},
        "prior_points": 4,
    }
    closed = {
        "points": {"kind": "uniform", "number": 20, "low": low, "high": high},
        "prior": {"kind": "arc_cosine", "floor": 1e-3},
        "prior_points": None,
    }
    found: dict[str, dict] = {}
    for name in ("svgd", "gfsf"):
        objective: dict = {"kind": "function_space", "direction": {"kind": name}}
        found[f"f_{name}"] = {"objective": objective | printed}
        found[f"f_{name}_closed_form"] = {"objective": objective | closed, "lr": 2e-3, "final_lr": 1e-4}
    return found


def conditioned(
    joint: Float[Tensor, "n+m n+m"], y: Float[Tensor, " n"], noise: float
) -> tuple[Float[Tensor, " m"], Float[Tensor, "m m"], float]:
    """Mean and covariance of the last m values of a Gaussian process, given the first n plus noise; and the evidence.

    Args:
        joint: prior covariance of all values.
        y: the first n values, each with noise of this standard deviation.

    Returns:
        Mean, covariance, and ``log p(y)`` but for ``-n/2 log 2π``.
    """
    n = len(y)
    root = torch.linalg.cholesky(joint[:n, :n] + noise**2 * torch.eye(n, dtype=joint.dtype, device=joint.device))
    half = torch.linalg.solve_triangular(root, torch.cat([y[:, None], joint[:n, n:]], 1), upper=False)
    evidence = -0.5 * half[:, 0].square().sum() - root.diagonal().log().sum()
    return half[:, 1:].mT @ half[:, 0], joint[n:, n:] - half[:, 1:].mT @ half[:, 1:], float(evidence)


def normal_draws(
    mean: Float[Tensor, " m"], covariance: Float[Tensor, "m m"], number: int, rng: torch.Generator
) -> Float[Tensor, "n m"]:
    """Draws of a normal whose covariance may be singular."""
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn(number, len(mean), generator=rng, dtype=mean.dtype)
    return mean + (noise * eigenvalues.clamp_min(0).sqrt()) @ vectors.mT


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


def mean_distance(x: Float[Tensor, "n d"]) -> float:
    """The mean Euclidean distance between two of ``n`` points."""
    return float(torch.pdist(x).mean())
