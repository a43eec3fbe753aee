"""What LIVI's two experiments on images share: the posterior, training, and predictions on what was never seen.

Pixels are in [0, 1]. Uncertainty is the maximum of the mean softmax: its mean on unseen images, and how well it tells
them from test images.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpvi_lib.data import ImageData, load, unseen
from gpvi_lib.experiments.build import build_objective, build_sampler, for_network, train
from gpvi_lib.experiments.evaluation import differing, fixed_draws
from gpvi_lib.extras import optional
from gpvi_lib.lab.experiment import Outcome, RunContext
from gpvi_lib.laplace import last_layer_laplace
from gpvi_lib.laplace_full import KroneckerLaplace, LinearizedModule, kronecker_laplace, low_rank_laplace
from gpvi_lib.metrics import accuracy, auroc, expected_calibration_error, log_likelihood
from gpvi_lib.networks import FlatModule, lenet5_unpadded, mlp
from gpvi_lib.samplers import Particles, Sampler
from gpvi_lib.targets import CategoricalLikelihood, NormalPrior, Posterior
from gpvi_lib.wide_resnet import wide_resnet

IMAGE_SEED = 12_345
THEN = {"seed": 12_345}
"""What the first records were evaluated with, see :func:`differing`."""
AT_ONCE = 2_000
"""Images in one batched call, which bounds the memory of an evaluation."""
QUANTILES = torch.linspace(0, 1, 101, dtype=torch.float64)
LAPLACE: dict[bool | str, Callable[[Posterior, Tensor], Sampler]] = {
    True: last_layer_laplace,  # as its records have it
    "kronecker": kronecker_laplace,
    "low_rank": low_rank_laplace,
}
NETWORKS = {
    "mlp": lambda: mlp([64, 32, 10]),
    "lenet": lenet5_unpadded,
    "wide_resnet": lambda: wide_resnet(16, 4),
    "small_resnet": lambda: wide_resnet(10, 1, groups=4),
}


def evaluated() -> dict:
    """The constants of the evaluation that have changed, for a configuration."""
    return differing(THEN, seed=IMAGE_SEED)


@dataclass(frozen=True)
class Images:
    """Training, test and unseen images in [0, 1], ``(N, c, h, w)``; unseen sets by name."""

    inputs: Tensor
    labels: Int[Tensor, " N"]
    test_inputs: Tensor
    test_labels: Int[Tensor, " M"]
    unseen: dict[str, Tensor]


def _pixels(images: Tensor, device: torch.device) -> Float[Tensor, "n c h w"]:
    channels = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    return channels.to(device).float() / 255


def _in_colour(images: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 3 32 32"]:
    """Grey images as a network for CIFAR-10 takes them; for tests that have no other images."""
    return nn.functional.interpolate(images, size=(32, 32)).expand(-1, 3, -1, -1).contiguous()


def images(config: dict, device: torch.device) -> Images:
    """The data of a configuration; ``test`` images are drawn from the official test set with a fixed seed."""
    data: ImageData = load(config["dataset"])
    rows = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))[: config["test"]]
    test = _pixels(data.test[rows], device)
    others = {name: _others(name, test, device)[: config["unseen_images"]] for name in config["unseen"]}
    inputs = _pixels(data.train, device)
    if config["network"] == "small_resnet" and inputs.shape[1] == 1:
        inputs, test, others = _in_colour(inputs), _in_colour(test), {n: _in_colour(x) for n, x in others.items()}
    return Images(inputs, data.train_labels.to(device), test, data.test_labels[rows].to(device), others)


def _others(name: str, test: Float[Tensor, "n c h w"], device: torch.device) -> Float[Tensor, "n c h w"]:
    """``transposed``: EMNIST stores its digits so; ``shuffled``: one permutation of pixels; or a set of its own."""
    if name == "transposed":
        return test.mT.contiguous()
    if name == "shuffled":
        order = torch.randperm(test[0].numel(), generator=torch.Generator().manual_seed(1)).to(device)
        return test.flatten(1)[:, order].view_as(test)
    return _pixels(unseen(name), device)


@torch.no_grad()
def probabilities(network: FlatModule, weights: Float[Tensor, "n d"], inputs: Tensor) -> Float[Tensor, "b c"]:
    """The mean softmax of all networks, one after the other, a part of the inputs at a time."""
    parts = [
        torch.stack([network(w[None], part)[0].softmax(-1) for w in weights]).mean(0) for part in inputs.split(AT_ONCE)
    ]
    return torch.cat(parts)


def posterior(config: dict, data: Images) -> Posterior:
    """Prior ``N(0, prior_scale^2 I)``, likelihood to the power ``power``."""
    module = NETWORKS[config["network"]]()
    prior = NormalPrior(config["prior_scale"])
    return Posterior(module, CategoricalLikelihood(), data.inputs, data.labels, prior, power=config["power"])


def unseen_scores(known: Float[Tensor, "b c"], others: dict[str, Float[Tensor, "u c"]]) -> dict[str, float]:
    """Mean maximum probability and AUROC, in per cent, of each unseen set and over all of them."""
    found: dict[str, float] = {}
    for name, probability in others.items():
        found[f"confidence_{name}"] = 100 * float(probability.max(-1).values.mean())
        found[f"auroc_{name}"] = 100 * auroc(-known.max(-1).values, -probability.max(-1).values)
    for measure in ("confidence", "auroc"):
        found[f"mean_{measure}_percent"] = sum(found[f"{measure}_{name}"] for name in others) / len(others)
    return found


def rotated_scores(
    network: FlatModule, weights: Float[Tensor, "n d"], inputs: Tensor, labels: Tensor, angles: list[int]
) -> dict[str, Tensor]:
    """Negative log-likelihood and calibration error of images turned by each angle, in degrees."""
    transforms = optional("torchvision.transforms.functional")
    found: dict[str, list[float]] = {"rotated_nll": [], "rotated_ece": []}
    for angle in angles:
        turned = transforms.rotate(inputs, float(angle), transforms.InterpolationMode.BILINEAR)
        p = probabilities(network, weights, turned)
        found["rotated_nll"].append(-log_likelihood(p, labels))
        found["rotated_ece"].append(expected_calibration_error(p, labels))
    return {name: torch.tensor(values) for name, values in found.items()} | {"angles": torch.tensor(angles)}


def trained(config: dict, target: Posterior, context: RunContext) -> tuple[Sampler, dict[str, Tensor], float]:
    """The sampler of a configuration after training, the claimed ELBO on the way, and all seconds."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    scale = target.network.fan_in_scale().to(context.device)
    sampler = build_sampler(for_network(config["sampler"], target.network), target.dim, scale, rng)
    result = train(
        sampler, target, build_objective(config["objective"]), config, context, rng, lambda step, sampler: {}
    )
    curves = {
        name: torch.tensor([row[name] for row in result.diagnostics])
        for name in (result.diagnostics[0] if result.diagnostics else {})
    }
    if config.get("laplace"):
        assert isinstance(sampler, Particles)
        began = time.perf_counter()
        found = LAPLACE[config["laplace"]](target, sampler.x[0].detach())
        return found, curves, result.seconds + time.perf_counter() - began
    return sampler, curves, result.seconds


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one method; accuracy and calibration on test images, confidence on unseen ones, rotations, entropies."""
    data = images(config, context.device)
    target = posterior(config, data)
    sampler, curves, seconds = trained(config, target, context)
    weights, network = fixed_draws(sampler, config["samples"], IMAGE_SEED), target.network
    if isinstance(sampler, KroneckerLaplace):
        network = LinearizedModule(network, sampler.mode)
    known = probabilities(network, weights, data.test_inputs)
    others = {name: probabilities(network, weights, x) for name, x in data.unseen.items()}
    metrics = {
        "accuracy_percent": 100 * accuracy(known, data.test_labels),
        "nll": -log_likelihood(known, data.test_labels),
        "ece": expected_calibration_error(known, data.test_labels),
        "confidence_test": 100 * float(known.max(-1).values.mean()),
        "num_weights": float(target.dim),
        "parameters": float(sum(p.numel() for p in sampler.parameters())),
        "weight_sd": float((weights.std(0, correction=0) / target.network.fan_in_scale().to(weights)).median()),
        "training_minutes": seconds / 60,
    } | unseen_scores(known, others)
    entropies = {name: torch.special.entr(p).sum(-1).double().cpu() for name, p in {"test": known, **others}.items()}
    arrays = {f"entropy_{name}": values.quantile(QUANTILES).float() for name, values in entropies.items()}
    if config["angles"]:
        some = slice(config["rotated"])
        turned = (data.test_inputs[some], data.test_labels[some], config["angles"])
        arrays |= rotated_scores(network, weights, *turned)
    return Outcome(metrics, arrays | {f"training_{name}": curve for name, curve in curves.items()}, seconds)
