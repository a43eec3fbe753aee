"""A classifier of one's own, worked through: fit, calibration, unseen images and ``check``, on data that are streamed.

A perceptron on images of halved sides tells Fashion-MNIST's ten kinds of clothes apart. GPVI by the functional gradient
with the generator of notebook 17's ten lines, mean field and a deep ensemble train it by minibatches that a data set
reads when they are asked for. MNIST and Kuzushiji-MNIST are what the networks have never seen. ``classifier-settings``
chooses learning rates and the prior's scale by the last 10,000 training images. ``smoke`` and ``quick`` take
scikit-learn's digits; the same images turned or with shuffled pixels stand in for unseen ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.utils.data import Dataset

from gpvi_lib.data import load, unseen
from gpvi_lib.experiments.build import build_objective, build_sampler, elbo, gpvi, train
from gpvi_lib.experiments.evaluation import (
    CHECK_THEN,
    EVALUATION_SEED,
    check_constants,
    differing,
    findings,
    fixed_draws,
)
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.metrics import open_category_metrics, predictive, reliability
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.samplers import Particles
from gpvi_lib.targets import CategoricalLikelihood, NormalPrior, StreamedPosterior
from gpvi_lib.trust import check

GENERATOR = {
    "kind": "generator", "noise_dim": 8, "hidden": [32, 32], "activation": "softplus", "output_scale": "prior",
    "noise_scale": 0.02, "noise_scale_unit": "prior", "train_noise_scale": True,
}  # fmt: skip
"""What ``Generator.for_weights`` makes."""
SPECS: dict[str, dict] = {
    "gpvi": gpvi(GENERATOR, {"kind": "block"}, 16, kernel_space="head"),
    "mf_vi": elbo({"kind": "mean_field", "scale": 0.02}, 4),
    "deep_ensemble": {"sampler": {"kind": "particles", "num": 10}, "objective": {"kind": "likelihood"}},
}
CHOSEN: dict[str, dict] = {
    "gpvi": {"lr": 1e-3, "prior_factor": 3.0},
    "mf_vi": {"lr": 3e-2, "prior_factor": 3.0},
    "deep_ensemble": {"lr": 3e-2, "prior_factor": 1.0},
}
"""By ``classifier-settings``: the learning rate, and the prior's standard deviation times the root of the fan-in."""
CANDIDATES: dict[str, tuple[str, dict]] = {
    f"{method}_lr_{lr:g}_prior_{factor:g}": (method, {"lr": lr, "prior_factor": factor})
    for method, rates, factors in (
        ("gpvi", (3e-4, 1e-3, 3e-3, 1e-2), (1.0, 3.0)),
        ("mf_vi", (3e-3, 1e-2, 3e-2), (1.0, 3.0)),
        ("deep_ensemble", (1e-3, 3e-3, 1e-2, 3e-2), (1.0,)),
    )
    for lr in rates
    for factor in factors
}
"""Method of the choice -> the method that it trains, and its settings. An ensemble's prior is where it starts."""
DIGITS = {"dataset": "digits", "pool": 1, "batch_size": 64}
SIZES: dict[str, dict] = {
    "smoke": {**DIGITS, "hidden": 16, "epochs": 1, "samples": 5, "images": 60},
    "quick": {**DIGITS, "hidden": 32, "epochs": 20, "samples": 50, "images": 540},
    "paper": {
        "dataset": "fashion-mnist", "pool": 2, "batch_size": 128,
        "hidden": 64, "epochs": 5, "samples": 50, "images": 10_000,
    },
}  # fmt: skip
UNSEEN = {"digits": ["turned", "shuffled"], "fashion-mnist": ["mnist", "kmnist"]}
SETTINGS_EPOCHS = 2
TRAINING = {
    "digits": 1_257, "digits-validation": 879,
    "fashion-mnist": 60_000, "fashion-mnist-validation": 50_000,
}  # fmt: skip
"""Images of each set that train."""
CHECKED = 100
"""Draws of ``check``: each takes a pass over all data."""
AT_ONCE = 1_000
"""Images in one call, which bounds the memory of an evaluation."""


def steps_of(dataset: str, epochs: int, batch_size: int) -> int:
    """Whole minibatches of so many epochs."""
    return epochs * (TRAINING[dataset] // batch_size)


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    size = dict(SIZES[profile])
    steps = steps_of(size["dataset"], size.pop("epochs"), size["batch_size"])
    training = {"steps": steps, **CHOSEN[method], "final_lr": 1e-5, "history_every": steps}
    measured = {"unseen": UNSEEN[size["dataset"]], "checked": CHECKED, "evaluation_seed": EVALUATION_SEED}
    return size | training | measured | SPECS[method] | differing(CHECK_THEN, **check_constants())


def seeds(profile: str) -> tuple[int, ...]:
    """Where the networks start, and the order of the images."""
    return (0, 1, 2) if profile == "paper" else (0,)


def settings_config(candidate: str, profile: str) -> dict:
    """Everything but the seed, for one setting: the last training images judge, and nothing is unseen."""
    method, settings = CANDIDATES[candidate]
    found = config(method, profile) | settings | {"unseen": [], "checked": 0}
    dataset = f"{found['dataset']}-validation"
    steps = steps_of(dataset, min(SETTINGS_EPOCHS, SIZES[profile]["epochs"]), found["batch_size"])
    return found | {"dataset": dataset, "steps": steps, "history_every": steps}


def data_sets(profile: str) -> tuple[str, ...]:
    """What has to be downloaded."""
    return ("fashion-mnist", "mnist", "kmnist") if profile == "paper" else ()


def settings_data_sets(profile: str) -> tuple[str, ...]:
    """The same for the choice of the learning rate."""
    return data_sets(profile)[:1]


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Scaled(Dataset):
    """Images that become numbers one at a time, when they are asked for: a file each, as far as a posterior can tell.

    Attributes:
        images: pixels, ``(N, h, w)``.
        labels: ``(N,)``.
        mean, sd: of all pixels of the training images.
    """

    images: UInt8[Tensor, "N h w"]
    labels: Int[Tensor, " N"]
    mean: float
    sd: float

    @classmethod
    def of(cls, images: UInt8[Tensor, "N h w"], labels: Int[Tensor, " N"]) -> Scaled:
        """Training images, by their own pixels."""
        return cls(images, labels, float(images.float().mean()), float(images.float().std()))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Float[Tensor, "h w"], Int[Tensor, ""]]:
        return self.scaled(self.images[row]), self.labels[row]

    def scaled(self, images: UInt8[Tensor, "*n h w"]) -> Float[Tensor, "*n h w"]:
        """Other images, in the unit of these."""
        return (images.float() - self.mean) / self.sd


def unseen_images(name: str, test: UInt8[Tensor, "n h w"]) -> UInt8[Tensor, "m h w"]:
    """``turned`` by a quarter, ``shuffled`` by one permutation of pixels, or the test images of another set."""
    if name == "turned":
        return test.rot90(1, (1, 2))
    if name == "shuffled":
        order = torch.randperm(test[0].numel(), generator=torch.Generator().manual_seed(1))
        return test.flatten(1)[:, order].view_as(test)
    return load("mnist").test if name == "mnist" else unseen(name)


def network(side: int, pool: int, hidden: int) -> nn.Sequential:
    """The mean of each square of pixels, then a perceptron with one hidden layer."""
    first = [nn.Unflatten(1, (1, side)), nn.AvgPool2d(pool)] if pool > 1 else []
    return nn.Sequential(*first, mlp([(side // pool) ** 2, hidden, 10]))


# ---------------------------------------------------------------- running


@torch.no_grad()
def logits(posterior: StreamedPosterior, w: Float[Tensor, "n d"], images: Float[Tensor, "b h w"]) -> Tensor:
    """Of all networks, ``(n, b, 10)``, a part of the images at a time."""
    return torch.cat([posterior.network(w, part).cpu() for part in images.split(AT_ONCE)], dim=1)


def scores(known: Float[Tensor, "n b c"], labels: Int[Tensor, " b"], others: dict[str, Tensor]) -> dict[str, float]:
    """Of the mean prediction: accuracy, nats, calibration; the AUROC of its entropy, and of the networks' variance."""
    found: dict[str, float] = {}
    for name, unknown in ({"": known} | others).items():
        measured = open_category_metrics(known, labels, unknown)
        if name:
            found |= {f"auroc_{name}": measured["auroc_entropy"], f"auroc_variance_{name}": measured["auroc"]}
        else:
            found |= {key: measured[key] for key in ("accuracy_percent", "ece")} | {"nll": -measured["log_likelihood"]}
    return found


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train on minibatches that are read; then predictions on test images and on unseen ones, and ``check``."""
    data, device = load(config["dataset"]), context.device
    dataset = Scaled.of(data.train, data.train_labels)
    module = network(data.train.shape[1], config["pool"], config["hidden"])
    prior = NormalPrior(config["prior_factor"] * FlatModule(module).fan_in_scale().to(device))
    posterior = StreamedPosterior(module, CategoricalLikelihood(), dataset, prior, device=device)
    rng = torch.Generator(device).manual_seed(context.seed)
    sampler = build_sampler(config["sampler"], posterior.dim, prior.scale, rng)
    result = train(sampler, posterior, build_objective(config["objective"]), config, context, rng, lambda *_: {})

    w, images = fixed_draws(sampler, config["samples"], config["evaluation_seed"]), config["images"]
    test, labels = data.test[:images], data.test_labels[:images]
    known = logits(posterior, w, dataset.scaled(test).to(device))
    others = {
        name: logits(posterior, w, dataset.scaled(unseen_images(name, test)[:images]).to(device))
        for name in config["unseen"]
    }
    metrics = scores(known, labels, others) | {"num_weights": float(posterior.dim)}
    if isinstance(sampler, Particles):
        one = scores(known[:1], labels, {name: unknown[:1] for name, unknown in others.items()})
        metrics |= {f"one_{key}": value for key, value in one.items()}
    else:
        metrics["weight_sd"] = float((w.std(0) / prior.scale).median())
        if config["checked"]:
            rng = torch.Generator(device).manual_seed(config["evaluation_seed"])
            checked = check(sampler, posterior, rng, num_samples=config["checked"], progress=False)
            metrics |= findings(checked)
    names = ("confidence", "accuracy", "share")
    arrays = dict(zip(names, reliability(predictive(known), labels), strict=True))
    return Outcome(metrics, {f"reliability_{name}": values for name, values in arrays.items()}, result.seconds)


def deviations(method: str, profile: str) -> str:
    """What the runs are; no paper has this table."""
    if profile != "paper":
        return f"{profile} size, digits"
    epochs = SETTINGS_EPOCHS if method in CANDIDATES else SIZES[profile]["epochs"]
    return f"no published table; {epochs} epochs, images of 14 x 14, a hidden layer of 64 units"


EXPERIMENTS = (
    Experiment(
        name="classifier",
        title="Your own model: a classifier of Fashion-MNIST from streamed minibatches, its calibration and check",
        methods=tuple(SPECS),
        config=config,
        seeds=seeds,
        run=run,
        deviations=deviations,
        data_sets=data_sets,
    ),
    Experiment(
        name="classifier-settings",
        title="The classifier's learning rates and prior, chosen by training images that are held out",
        methods=tuple(CANDIDATES),
        config=settings_config,
        seeds=one_seed,
        run=run,
        deviations=deviations,
        data_sets=settings_data_sets,
    ),
)
