"""Tables 3 and 4: six classes are learned, four are never seen; does the uncertainty tell them apart?

The same code runs on scikit-learn's 8 x 8 digits (part of an installed package, so always there) with a small
multilayer perceptron, and on MNIST with LeNet-5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..data import KNOWN_CLASSES, OpenCategory, load, open_category
from ..metrics import open_category_metrics, predictive, predictive_entropy, predictive_variance
from ..networks import FlatModule, lenet5, mlp
from ..samplers import Particles, Sampler
from ..targets import ClassificationPosterior, NormalPrior, ScaleMixturePrior
from .base import Experiment, Outcome, RunContext, Score
from .build import build_objective, build_sampler, train

NETWORKS = {"mlp": lambda: mlp([64, 64, 64, len(KNOWN_CLASSES)]), "lenet5": lambda: lenet5(len(KNOWN_CLASSES))}
SAMPLES = 10
PRIOR_SCALE = 4.0
"""Standard deviation of the prior over weights, in units of 1 / sqrt(fan-in)."""
EVALUATION_SEED = 12_345
SHOWN = 8
"""Outliers kept as images at each end of the certainty scale."""

SIZES = {
    "digits": {
        "network": "mlp",
        "generator": {"noise_dim": 64, "hidden": [64, 128]},
        "critic": [64, 64],
        "helper": 64,
        "steps": {"smoke": 4, "quick": 600, "paper": 6_000},
        "lr": 1e-3,
        "seeds": {"smoke": 1, "quick": 3, "paper": 3},
        "evaluations": {"smoke": 10, "quick": 10, "paper": 10},
    },
    "mnist": {
        "network": "lenet5",
        "generator": {"noise_dim": 256, "hidden": [256, 512, 1024]},
        "critic": [512, 512],
        "helper": 512,
        "steps": {"smoke": 2, "quick": 40, "paper": 720},
        "lr": 1e-4,
        "seeds": {"smoke": 1, "quick": 1, "paper": 1},
        "evaluations": {"smoke": 1, "quick": 1, "paper": 10},  # each takes longer than all steps of a short run
    },
}


def _methods(size: dict) -> dict[str, dict]:
    """Sampler, objective and prior of every row of Table 3, and ours."""
    plain = {"kind": "generator", **size["generator"], "noise_scale": None, "output_scale": "prior"}
    noisy = plain | {"noise_scale": 1.0}
    ours = plain | {"noise_scale": 0.3, "noise_scale_unit": "prior", "train_noise_scale": True}
    particles = {"kind": "particles", "num": SAMPLES}
    critic = {"kind": "stein_critic", "hidden": size["critic"], "lr": 1e-4, "l2_weight": 1.0}
    helper = {"kind": "helper", "width": size["helper"], "num_layers": 3, "lr": 1e-4}
    directions = {"svgd": {"kind": "svgd"}, "gfsf": {"kind": "gfsf"}, "ksd": critic}

    def gpvi(inverse: dict) -> dict:
        return {"kind": "gpvi", "num_samples": SAMPLES, "inverse": inverse}

    elbo = {"kind": "elbo", "num_samples": SAMPLES}
    specs = {name: (particles, {"kind": "parvi", "direction": spec}) for name, spec in directions.items()}
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
        name: {"sampler": sampler, "objective": objective, "prior": "scale_mixture" if name == "mf_vi" else "normal"}
        for name, (sampler, objective) in specs.items()
    }


METHODS = tuple(_methods(SIZES["digits"]))


def _config(dataset: str, method: str, profile: str) -> dict:
    size = SIZES[dataset]
    steps = size["steps"][profile]
    return {
        "dataset": dataset,
        "network": size["network"],
        "known_classes": list(KNOWN_CLASSES),
        "batch_size": 50,
        "evaluation_samples": SAMPLES,
        "steps": steps,
        "lr": size["lr"],
        "history_every": math.ceil(steps / size["evaluations"][profile]),
        "prior_scale": PRIOR_SCALE,
        **_methods(size)[method],
    }


def digits_config(method: str, profile: str) -> dict:
    """Everything but the seed, for scikit-learn's digits."""
    return _config("digits", method, profile)


def mnist_config(method: str, profile: str) -> dict:
    """Everything but the seed, for MNIST: one epoch at ``paper`` so far."""
    return _config("mnist", method, profile)


def digits_seeds(profile: str) -> tuple[int, ...]:
    """Seeds that count, for scikit-learn's digits."""
    return tuple(range(SIZES["digits"]["seeds"][profile]))


def mnist_seeds(profile: str) -> tuple[int, ...]:
    """Seeds that count, for MNIST."""
    return tuple(range(SIZES["mnist"]["seeds"][profile]))


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
    network = FlatModule(NETWORKS[config["network"]]())
    scale = network.fan_in_scale().to(data.inputs.device)
    prior = ScaleMixturePrior() if config["prior"] == "scale_mixture" else NormalPrior(config["prior_scale"] * scale)
    return ClassificationPosterior(network, data.inputs, data.labels, prior)


@torch.no_grad()
def evaluate(
    target: ClassificationPosterior, data: OpenCategory, sampler: Sampler, samples: int
) -> tuple[Tensor, Tensor]:
    """Logits of ``samples`` networks on the test data of known and of unknown classes, ``(n, b, c)`` each."""
    rng = torch.Generator(data.inputs.device).manual_seed(EVALUATION_SEED)
    weights = sampler.sample(None if isinstance(sampler, Particles) else samples, rng)
    return target.network(weights, data.test_inputs), target.network(weights, data.unknown_inputs)


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


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one method on the known classes and measure it on all."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    data = open_category(load(config["dataset"]), context.device)
    target = posterior(config, data)
    scale = target.network.fan_in_scale()
    sampler = build_sampler(config["sampler"], target.dim, scale, rng)
    samples = config["evaluation_samples"]

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        known, unknown = evaluate(target, data, sampler, samples)
        return open_category_metrics(known, data.test_labels, unknown)

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    known, unknown = evaluate(target, data, sampler, samples)
    arrays = _arrays(data, known, unknown)
    for key in ("step", "accuracy_percent", "auroc", "ece"):
        arrays[f"history_{key}"] = torch.tensor([row[key] for row in result.history])
    metrics = open_category_metrics(known, data.test_labels, unknown)
    metrics["num_weights"] = float(target.dim)
    return Outcome(metrics, arrays, result.seconds)


def mnist_deviations(method: str, profile: str) -> str:
    """What differs from the paper's MNIST run."""
    epochs = "1 of 100 epochs" if profile == "paper" else f"{SIZES['mnist']['steps'][profile]} steps"
    return f"{epochs}, learning rate {SIZES['mnist']['lr']:g}, prior N(0, 16/fan-in)"


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
    seeds=digits_seeds,
    run=run,
    scores=_scores("digits/open_category"),
    deviations=digits_deviations,
    rows=ROWS,
)
MNIST = Experiment(
    name="open-category-mnist",
    title="Table 3: open category on MNIST with LeNet-5: classes 0-5 known, 6-9 unknown",
    methods=METHODS,
    config=mnist_config,
    seeds=mnist_seeds,
    run=run,
    scores=_scores("gpvi/table3/mnist"),
    deviations=mnist_deviations,
    rows=ROWS,
)
PRIOR = Experiment(
    name="open-category-prior",
    title="The scale of the prior over weights, chosen on images held out of the digits' training set",
    methods=tuple(PRIOR_CANDIDATES),
    config=prior_config,
    seeds=prior_seeds,
    run=run,
)
EXPERIMENTS = (DIGITS, MNIST, PRIOR)
