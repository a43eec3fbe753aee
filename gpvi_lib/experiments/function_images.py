"""Classifiers of images for function-space POVI: MNIST, or scikit-learn's digits where nothing may be downloaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpvi_lib.data import load
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.experiments.function_models import layer_scales
from gpvi_lib.function_priors import ArcCosine, Centred
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.samplers import Particles, Sampler
from gpvi_lib.targets import CategoricalLikelihood, NormalPrior, Posterior

AT_ONCE = 20_000
"""Images times networks in one call."""


@dataclass(frozen=True)
class Images:
    """Pixels in [0, 1], flattened, ``(N, p)``, or those minus their mean over the training images; and labels.

    Attributes:
        inputs, labels: to train on.
        held_out, held_out_labels: the last of the training images, to choose the epoch by.
        test_inputs, test_labels: to score.
    """

    inputs: Float[Tensor, "N p"]
    labels: Int[Tensor, " N"]
    held_out: Float[Tensor, "H p"]
    held_out_labels: Int[Tensor, " H"]
    test_inputs: Float[Tensor, "M p"]
    test_labels: Int[Tensor, " M"]


def images(name: str, held_out: int, centre: bool, device: torch.device) -> Images:
    """The data set of that name, the last ``held_out`` training images apart."""
    data = load(name)
    train, test = (part.flatten(1).float().to(device) / 255 for part in (data.train, data.test))
    kept = len(train) - held_out
    if centre:
        mean = train[:kept].mean(0)
        train, test = train - mean, test - mean
    labels, test_labels = data.train_labels.to(device), data.test_labels.to(device)
    return Images(train[:kept], labels[:kept], train[kept:], labels[kept:], test, test_labels)


def posterior(data: Images, hidden: list[int], output_variance: float | None) -> Posterior:
    """The posterior of a ReLU perceptron with centred logits and the prior of the paper's code, ``N(0, 1 / outputs)``.

    Args:
        output_variance: the prior variance of a logit, in the mean over the first 200 training images, by the scale of
            the output layer; ``None`` leaves it as it is.
    """
    network = FlatModule(nn.Sequential(mlp([data.inputs.shape[1], *hidden, 10]), Centred()))
    scale = layer_scales(network, "fan_out", torch.float32).to(data.inputs.device)
    target = Posterior(network, CategoricalLikelihood(), data.inputs, data.labels, NormalPrior(scale))
    if output_variance is None:
        return target
    variance = float(ArcCosine().given(target).covariance(data.inputs[:200]).diagonal().mean())
    for part in list(network.unflatten(scale).values())[-2:]:
        part.mul_((output_variance / variance) ** 0.5)
    return Posterior(network, CategoricalLikelihood(), data.inputs, data.labels, NormalPrior(scale))


def first_particles(config: dict, target: Posterior, context: RunContext, rng: torch.Generator) -> Particles:
    """Networks where the paper's code starts."""
    start = layer_scales(target.network, "start", torch.float32).to(context.device)
    sampler = build_sampler(config["sampler"], target.dim, start, rng)
    assert isinstance(sampler, Particles)
    return sampler


@torch.no_grad()
def log_probabilities(target: Posterior, sampler: Sampler, inputs: Float[Tensor, "b p"]) -> Float[Tensor, "b c"]:
    """The log of the mean of all networks' probabilities, a part of the images at a time."""
    assert isinstance(sampler, Particles)
    parts = inputs.split(max(1, AT_ONCE // len(sampler.x)))
    return torch.cat([mean_log_probability(target.network(sampler.x, part)) for part in parts])


def mean_log_probability(logits: Float[Tensor, "n b c"]) -> Float[Tensor, "b c"]:
    """``log (1/n) Σ_i softmax(logits_i)`` without underflow: its gradient does not vanish where they saturate."""
    log_probs = logits.log_softmax(-1)
    return log_probs.logsumexp(0) - torch.tensor(float(len(logits))).log()


def scores(log_probs: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> tuple[float, float]:
    """Error in per cent, and negative log-likelihood in nats."""
    error = 100 * float((log_probs.argmax(-1) != labels).double().mean())
    return error, -float(log_probs.gather(-1, labels[:, None]).double().mean())
