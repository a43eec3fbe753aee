"""Tables 3 and 4: six classes are learned, four are never seen; does the uncertainty tell them apart?

The same code runs on scikit-learn's 8 x 8 digits (part of an installed package, so always there) with a small
multilayer perceptron, on MNIST with LeNet-5, and on CIFAR-10 with the network of Table 10. With all ten classes known
it gives the accuracy of the tables' column "Clean".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..data import ALL_CLASSES, KNOWN_CLASSES, OpenCategory, load, open_category
from ..metrics import accuracy, open_category_metrics, predictive, predictive_entropy, predictive_variance
from ..networks import FlatModule, cifar_cnn, lenet5, mlp
from ..samplers import Generator, Particles, Sampler
from ..targets import ClassificationPosterior, NormalPrior, ScaleMixturePrior
from .base import Experiment, Outcome, RunContext, Score
from .build import build_objective, build_sampler, train
from .overhead import GENERATORS

NETWORKS = {"mlp": lambda classes: mlp([64, 64, 64, classes]), "lenet5": lenet5, "cifar_cnn": cifar_cnn}
SAMPLES = 10
BATCH_SIZE = 50
PRIOR_SCALE = 4.0
"""Standard deviation of the digits' prior over weights, in units of 1 / sqrt(fan-in)."""
EVALUATION_SEED = 12_345
SHOWN = 8
"""Outliers kept as images at each end of the certainty scale."""
AT_ONCE = 5_000
"""Networks times images in one batched call, which bounds the memory of an evaluation."""

SIZES: dict[str, dict] = {
    "digits": {
        "network": "mlp",
        "generator": {"noise_dim": 64, "hidden": [64, 128]},
        "critic": [64, 64],
        "helper": 64,
        "prior_scale": PRIOR_SCALE,
        "steps": {"smoke": 4, "quick": 600, "paper": 6_000},
        "lr": {"particles": 1e-3, "mean_field": 1e-3, "generator": 1e-3},
        "seeds": {"smoke": 1, "quick": 3, "paper": 3},
        "evaluations": {"smoke": 10, "quick": 10, "paper": 10},
    },
    "mnist": {
        "network": "lenet5",
        "generator": GENERATORS["mnist"],
        "critic": [512, 512],
        "helper": 512,
        "prior_scale": 1.0,
        "epoch": {6: 720, 10: 1_200},
        "epochs": 3,
        "published_epochs": 100,
        "lr": {"particles": 1e-3, "mean_field": 1e-3, "generator": 1e-4},
        "seeds": {"smoke": 1, "quick": 1, "paper": 3},
    },
    "cifar10": {
        "network": "cifar_cnn",
        "generator": GENERATORS["cifar10"],
        "critic": [512, 512],
        "helper": 512,
        "prior_scale": 1.0,
        "epoch": {6: 600, 10: 1_000},
        "epochs": 2,
        "published_epochs": 200,
        "lr": {"particles": 1e-3, "mean_field": 1e-3, "generator": 1e-4},
        "seeds": {"smoke": 1, "quick": 1, "paper": 3},
    },
}
MORE_SAMPLES = (100, 1_000)
"""Networks drawn after training, beside the ten of the tables, where the sampler can draw any number."""


def _methods(size: dict) -> dict[str, dict]:
    """Sampler, objective and prior of every row of Table 3, and ours."""
    plain: dict = {"kind": "generator", **size["generator"], "noise_scale": None, "output_scale": "prior"}
    noisy = plain | {"noise_scale": 1.0}
    ours = plain | {"noise_scale": 0.3, "noise_scale_unit": "prior", "train_noise_scale": True}
    particles = {"kind": "particles", "num": SAMPLES}
    critic = {"kind": "stein_critic", "hidden": size["critic"], "lr": 1e-4, "l2_weight": 1.0}
    helper = {"kind": "helper", "width": size["helper"], "num_layers": 3, "lr": 1e-4}
    directions = {"svgd": {"kind": "svgd"}, "gfsf": {"kind": "gfsf"}, "ksd": critic}

    def gpvi(inverse: dict) -> dict:
        return {"kind": "gpvi", "num_samples": SAMPLES, "inverse": inverse}

    elbo = {"kind": "elbo", "num_samples": SAMPLES}
    specs: dict[str, tuple[dict, dict]] = {
        name: (particles, {"kind": "parvi", "direction": spec}) for name, spec in directions.items()
    }
    for name, spec in directions.items():
        specs[f"amortized_{name}"] = (plain, {"kind": "parvi", "direction": spec, "num_samples": SAMPLES})
    specs |= {
        "mf_vi": ({"kind": "mean_field", "scale": 0.1}, elbo),
        "deep_ensemble": (particles, {"kind": "likelihood"}),
        "gpvi": (noisy, gpvi(helper)),
        "gpvi_best": (ours, gpvi({"kind": "block"})),
        "gpvi_exact_density": (ours, elbo),
    }
    return {
        name: {
            "sampler": sampler,
            "objective": objective,
            "prior": "scale_mixture" if name == "mf_vi" else "normal",
            "lr": size["lr"][sampler["kind"]],
        }
        for name, (sampler, objective) in specs.items()
    }


METHODS = tuple(_methods(SIZES["digits"]))


def digits_config(method: str, profile: str) -> dict:
    """Everything but the seed, for scikit-learn's digits."""
    size = SIZES["digits"]
    steps = size["steps"][profile]
    return {
        "dataset": "digits",
        "network": size["network"],
        "known_classes": list(KNOWN_CLASSES),
        "batch_size": BATCH_SIZE,
        "evaluation_samples": SAMPLES,
        "steps": steps,
        "history_every": math.ceil(steps / size["evaluations"][profile]),
        "prior_scale": size["prior_scale"],
        **_methods(size)[method],
    }


def image_config(dataset: str, known: Sequence[int], method: str, profile: str) -> dict:
    """Everything but the seed, for MNIST and CIFAR-10; evaluated once an epoch at ``paper``."""
    size = SIZES[dataset]
    epoch = size["epoch"][len(known)]
    steps = {"smoke": 2, "quick": 40, "paper": size["epochs"] * epoch}[profile]
    return {
        "dataset": dataset,
        "network": size["network"],
        "known_classes": list(known),
        "batch_size": BATCH_SIZE,
        "evaluation_samples": SAMPLES,
        "more_samples": list(MORE_SAMPLES) if profile == "paper" and len(known) < 10 else [],
        "steps": steps,
        "history_every": epoch if profile == "paper" else steps,
        "prior_scale": size["prior_scale"],
        **_methods(size)[method],
    }


def seeds(dataset: str, profile: str) -> tuple[int, ...]:
    """Seeds that count."""
    return tuple(range(SIZES[dataset]["seeds"][profile]))


def data_sets(dataset: str, profile: str) -> tuple[str, ...]:
    """What has to be downloaded, at every profile."""
    return (dataset,)


PRIOR_SCALES = (1, 2, 4, 8, 16, 32, 64)
PRIOR_CANDIDATES = {
    f"{method}_prior_{scale}": (method, scale) for method in ("svgd", "gpvi_exact_density") for scale in PRIOR_SCALES
}
"""Method of the choice of the prior's scale -> the method that it trains, and the scale."""


def prior_seeds(profile: str) -> tuple[int, ...]:
    """Seeds that vote for a scale of the prior."""
    return (0, 1, 2) if profile == "paper" else (0,)


def prior_config(method: str, profile: str) -> dict:
    """Everything but the seed, for one candidate scale of the prior: digits, and no test image."""
    trained, scale = PRIOR_CANDIDATES[method]
    return digits_config(trained, profile) | {"dataset": "digits-validation", "prior_scale": float(scale)}


def posterior(config: dict, data: OpenCategory) -> ClassificationPosterior:
    """The posterior over the network's weights; the normal prior is ``N(0, prior_scale^2 / fan-in)``."""
    network = FlatModule(NETWORKS[config["network"]](len(config["known_classes"])))
    scale = network.fan_in_scale().to(data.inputs.device)
    prior = ScaleMixturePrior() if config["prior"] == "scale_mixture" else NormalPrior(config["prior_scale"] * scale)
    return ClassificationPosterior(network, data.inputs, data.labels, prior)


@torch.no_grad()
def logits(
    network: FlatModule, weights: Float[Tensor, "n d"], inputs: Float[Tensor, "b ..."]
) -> Float[Tensor, "n b c"]:
    """Outputs of all networks on all inputs, a part at a time: at most :data:`AT_ONCE` outputs in one call."""
    images = max(1, AT_ONCE // min(len(weights), 100))
    return torch.cat(
        [
            torch.cat([network(some, part) for part in inputs.split(images)], dim=1)
            if len(inputs)
            else network(some, inputs)
            for some in weights.split(100)
        ]
    )


@torch.no_grad()
def evaluate(
    target: ClassificationPosterior, data: OpenCategory, sampler: Sampler, samples: int
) -> tuple[Float[Tensor, "n b c"], Float[Tensor, "n u c"]]:
    """Logits of ``samples`` networks on the test data of known and of unknown classes."""
    rng = torch.Generator(data.inputs.device).manual_seed(EVALUATION_SEED)
    weights = sampler.sample(None if isinstance(sampler, Particles) else samples, rng)
    return logits(target.network, weights, data.test_inputs), logits(target.network, weights, data.unknown_inputs)


def measures(
    target: ClassificationPosterior, data: OpenCategory, sampler: Sampler, samples: int
) -> tuple[dict[str, float], Tensor, Tensor]:
    """The measures of Tables 3 and 4 and the logits behind them; the accuracy alone where every class is known."""
    known, unknown = evaluate(target, data, sampler, samples)
    if len(data.unknown_labels):
        return open_category_metrics(known, data.test_labels, unknown), known, unknown
    return {"accuracy_percent": 100 * accuracy(predictive(known), data.test_labels)}, known, unknown


@torch.no_grad()
def spreads(
    target: ClassificationPosterior, inputs: Float[Tensor, "b ..."], generator: Generator, samples: int
) -> dict[str, float]:
    """Where the samples' diversity comes from: mean predictive variance on ``inputs`` of three kinds of samples.

    ``spread``: of ``f(z)``; ``spread_g``: of ``g(z_{:k})`` without the noise ``λ ⊙ z``; ``spread_noise``: of
    ``g(0) + λ ⊙ z``, the noise alone.
    """
    rng = torch.Generator(inputs.device).manual_seed(EVALUATION_SEED)
    z = generator.noise(samples, rng)
    kinds = {"spread": generator(z)}
    noise_scale = generator.noise_scale
    if noise_scale is not None:
        noise = noise_scale * z
        kinds |= {"spread_g": generator(z) - noise, "spread_noise": generator(torch.zeros_like(z)) + noise}
    return {
        name: float(predictive_variance(logits(target.network, weights, inputs)).mean())
        for name, weights in kinds.items()
    }


def _arrays(data: OpenCategory, known: Tensor, unknown: Tensor) -> dict[str, Tensor]:
    """What the figures need: scores, confidences, and the outliers at both ends of the certainty scale."""
    probabilities = predictive(known)
    confidence, predicted = probabilities.max(-1)
    variance = predictive_variance(unknown)
    order = variance.argsort().cpu()
    shown = torch.cat([order[:SHOWN], order[-SHOWN:]])
    arrays = {
        "known_variance": predictive_variance(known),
        "known_entropy": predictive_entropy(known),
        "unknown_variance": variance,
        "unknown_entropy": predictive_entropy(unknown),
        "confidence": confidence,
        "correct": predicted == data.test_labels,
        "outlier_images": data.unknown_images[shown],
        "outlier_labels": data.unknown_labels[shown],
        "outlier_predictions": predictive(unknown).argmax(-1).cpu()[shown],
        "outlier_variance": variance.cpu()[shown],
    }
    return {name: value.cpu().contiguous() for name, value in arrays.items()}


def _of_a_generator(
    config: dict, target: ClassificationPosterior, data: OpenCategory, sampler: Sampler
) -> dict[str, float]:
    """What only a sampler of any number of networks has: the measures with more of them, and where they differ."""
    found: dict[str, float] = {}
    for samples in config.get("more_samples", ()) if not isinstance(sampler, Particles) else ():
        more = measures(target, data, sampler, samples)[0]
        found |= {f"{name}_{samples}": value for name, value in more.items()}
    if isinstance(sampler, Generator) and "more_samples" in config and len(data.unknown_labels):
        found |= spreads(target, data.unknown_inputs[:1_000], sampler, config["evaluation_samples"])
    return found


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one method on the known classes and measure it on all."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    data = open_category(load(config["dataset"]), context.device, config["known_classes"])
    target = posterior(config, data)
    sampler = build_sampler(config["sampler"], target.dim, target.network.fan_in_scale(), rng)
    samples = config["evaluation_samples"]

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        return measures(target, data, sampler, samples)[0]

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    metrics, known, unknown = measures(target, data, sampler, samples)
    arrays = _arrays(data, known, unknown) if len(data.unknown_labels) else {}
    for key in {"accuracy_percent", "auroc", "ece"} & metrics.keys() | {"step"}:
        arrays[f"history_{key}"] = torch.tensor([row[key] for row in result.history])
    metrics |= {"num_weights": float(target.dim)} | _of_a_generator(config, target, data, sampler)
    return Outcome(metrics, arrays, result.seconds)


def image_deviations(dataset: str, method: str, profile: str) -> str:
    """What differs from the paper's runs on MNIST and CIFAR-10."""
    size = SIZES[dataset]
    length = f"{size['epochs']} of {size['published_epochs']} epochs" if profile == "paper" else f"{profile} size"
    lr = _methods(size)[method]["lr"]
    return f"{length}, learning rate {lr:g}, prior N(0, {size['prior_scale'] ** 2:g}/fan-in)"


def digits_deviations(method: str, profile: str) -> str:
    """What differs from the paper: the data."""
    return "scikit-learn digits (8 x 8) and an MLP instead of MNIST and LeNet-5"


def _scores(item: str) -> tuple[Score, ...]:
    return (
        Score(item=item, metric="auroc", better="higher", key="auroc"),
        Score(item=item, metric="ece", better="lower", key="ece"),
        Score(item=item, metric="known_accuracy_percent", better="higher", key="accuracy_percent"),
    )


ROWS = {"gpvi_best": ("gpvi", "best"), "gpvi_exact_density": ("gpvi_exact_density", "best")}
DIGITS = Experiment(
    name="open-category-digits",
    title="Open category on scikit-learn's digits: classes 0-5 known, 6-9 unknown",
    methods=METHODS,
    config=digits_config,
    seeds=partial(seeds, "digits"),
    run=run,
    scores=_scores("digits/open_category"),
    deviations=digits_deviations,
    rows=ROWS,
)


def _of_images(dataset: str, title: str, item: str) -> tuple[Experiment, Experiment]:
    """The open-category experiment on a data set, and supervised learning of all its classes."""
    shared: dict = {
        "methods": METHODS,
        "seeds": partial(seeds, dataset),
        "run": run,
        "deviations": partial(image_deviations, dataset),
        "rows": ROWS,
        "data_sets": partial(data_sets, dataset),
    }
    clean = Score(item=item, metric="clean_accuracy_percent", better="higher", key="accuracy_percent")
    return (
        Experiment(
            name=f"open-category-{dataset}",
            title=f"{title}: classes 0-5 known, 6-9 unknown",
            config=partial(image_config, dataset, KNOWN_CLASSES),
            scores=_scores(item),
            **shared,
        ),
        Experiment(
            name=f"open-category-{dataset}-clean",
            title=f"{title}: all ten classes",
            config=partial(image_config, dataset, ALL_CLASSES),
            scores=(clean,),
            **shared,
        ),
    )


MNIST, MNIST_CLEAN = _of_images("mnist", "Table 3: MNIST with LeNet-5", "gpvi/table3/mnist")
CIFAR10, CIFAR10_CLEAN = _of_images("cifar10", "Table 4: CIFAR-10", "gpvi/table4/cifar10")
PRIOR = Experiment(
    name="open-category-prior",
    title="The scale of the prior over weights, chosen on images held out of the digits' training set",
    methods=tuple(PRIOR_CANDIDATES),
    config=prior_config,
    seeds=prior_seeds,
    run=run,
)
EXPERIMENTS = (DIGITS, MNIST, MNIST_CLEAN, CIFAR10, CIFAR10_CLEAN, PRIOR)
