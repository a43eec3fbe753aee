r"""The problem of section 4.3 and appendix D.2: classification in the plane with a small Bayesian network.

The data are draws from a mixture of two or four Gaussians, the label is the component. The paper prints
``p(x) = Σ_i N(μ_i, 0.3)`` without weights; we take equal ones, and 0.3 as the variance of each coordinate. The
classifier has two hidden layers of 10 ReLU units (d = 184 weights with four classes), its prior is N(0, I).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.experiments.evaluation import differing
from gpvi_lib.targets import MLPClassificationPosterior, NormalPrior

CLASS_MEANS = {
    2: ((-2.0, -2.0), (2.0, 2.0)),
    4: ((-2.0, -2.0), (-2.0, 2.0), (2.0, -2.0), (2.0, 2.0)),
}
CLASS_VARIANCE = 0.3
HIDDEN = (10, 10)
EDGE = 10.0
"""Figures show ``[-10, 10]^2`` ("a grid spaced from {-10, 10}")."""
GRID_SIDE = {"smoke": 11, "quick": 21, "paper": 41}
DATA_SEED = 0
"""One data set for each number of classes, so that one reference serves every method and seed."""
THEN = {"hidden": [10, 10]}
"""What the first records were made with, see :func:`differing`."""


@dataclass(frozen=True)
class ClassificationData:
    """Points in the plane and their classes.

    Attributes:
        inputs, test_inputs: ``(N, 2)`` and ``(T, 2)``.
        labels, test_labels: class indices from 0, ``(N,)`` and ``(T,)``.
    """

    inputs: Float[Tensor, "N 2"]
    labels: Int[Tensor, " N"]
    test_inputs: Float[Tensor, "T 2"]
    test_labels: Int[Tensor, " T"]


def mixture(
    num_classes: int, num_points: int, rng: torch.Generator, variance: float = CLASS_VARIANCE
) -> tuple[Float[Tensor, "n 2"], Int[Tensor, " n"]]:
    """Points of the mixture of section 4.3 (four classes) or appendix D.2 (two), with the component as label.

    Raises:
        ValueError: if the paper has no such problem.
    """
    if num_classes not in CLASS_MEANS:
        raise ValueError(f"num_classes must be one of {sorted(CLASS_MEANS)}, got {num_classes}")
    means = torch.tensor(CLASS_MEANS[num_classes], device=rng.device)
    labels = torch.randint(num_classes, (num_points,), generator=rng, device=rng.device)
    noise = torch.randn(num_points, 2, generator=rng, device=rng.device)
    return means[labels] + variance**0.5 * noise, labels


def problem(config: dict, seed: int, device: torch.device | str = "cpu") -> ClassificationData:
    """The data of one seed, the same on every device."""
    rng = torch.Generator().manual_seed(2_000 + seed)
    classes, variance = config["num_classes"], config["class_variance"]
    train = mixture(classes, config["num_train"], rng, variance)
    test = mixture(classes, config["num_test"], rng, variance)
    return ClassificationData(*(part.to(device) for part in (*train, *test)))


def problem_config(num_classes: int, data_seed: int = DATA_SEED, prior_scale: float = 1.0) -> dict:
    """What defines a posterior: the data, drawn with ``data_seed``, and the prior ``N(0, prior_scale^2)``."""
    return {
        "num_classes": num_classes,
        "num_train": 100,
        "num_test": 200,
        "class_variance": CLASS_VARIANCE,
        "data_seed": data_seed,
        "prior_scale": prior_scale,
        **differing(THEN, hidden=list(HIDDEN)),
    }


def posterior(
    config: dict, device: torch.device | str = "cpu", prior=None, dtype: torch.dtype = torch.float32
) -> tuple[ClassificationData, MLPClassificationPosterior]:
    """(data, posterior over the weights) of a :func:`problem_config`; ``prior`` replaces the normal one."""
    drawn = problem(config, config["data_seed"], device)
    data = ClassificationData(drawn.inputs.to(dtype), drawn.labels, drawn.test_inputs.to(dtype), drawn.test_labels)
    prior = NormalPrior(config["prior_scale"]) if prior is None else prior
    return data, MLPClassificationPosterior([2, *HIDDEN, config["num_classes"]], data.inputs, data.labels, prior)


def grid(side: int, like: Tensor | None = None) -> Float[Tensor, "p 2"]:
    """``side * side`` points of ``[-10, 10]^2``, the second coordinate running fastest."""
    axis = torch.linspace(-EDGE, EDGE, side)
    points = torch.cartesian_prod(axis, axis)
    return points if like is None else points.to(like)


def predictive_moments(
    target: MLPClassificationPosterior, w: Float[Tensor, "n d"], inputs: Float[Tensor, "p 2"], chunk: int = 100
) -> tuple[Float[Tensor, "p c"], Float[Tensor, "p c"]]:
    """Mean and standard deviation over networks of each softmax output: the predictive distribution and Figure 2."""
    first = second = torch.zeros((), dtype=torch.float64)
    for part in w.split(chunk):
        probabilities = target.probabilities(part, inputs).mT.double()
        first, second = first + probabilities.sum(0), second + probabilities.square().sum(0)
    mean = first / len(w)
    return mean, (second / len(w) - mean.square()).clamp_min(0).sqrt()
