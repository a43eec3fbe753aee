"""Section 4.5: how much longer a step of GPVI takes than one of amortised SVGD, at the sizes of Tables 9 and 10.

The paper prints 0.28 for MNIST and 0.78 for CIFAR-10, with the helper network. Random images of the right shape do:
a step costs the same on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import nn

from gpvi_lib.experiments.build import build_objective, build_sampler
from gpvi_lib.experiments.printed import IMAGE_GENERATORS
from gpvi_lib.fitting import Training
from gpvi_lib.lab import provenance, timing
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score, one_seed
from gpvi_lib.networks import FlatModule, cifar_cnn, lenet5
from gpvi_lib.optimizers import Adam
from gpvi_lib.targets import ClassificationPosterior, NormalPrior

NUM_DATA = 1_000
SAMPLES = 10
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mnist": (lambda: lenet5(10), (1, 28, 28)),
    "cifar10": (lambda: cifar_cnn(10), (3, 32, 32)),
}
SMALL = {"noise_dim": 8, "hidden": [8]}
HELPER = {"kind": "helper", "num_layers": 3, "lr": 1e-4}
REPEATS = {"smoke": 3, "quick": 3, "paper": 9}


def config(method: str, profile: str) -> dict:
    """Everything but the seed. Methods: ``gpvi_mnist``, ``gpvi_cifar10``; with ``_best`` the exact inverse."""
    problem = method.split("_")[1]
    generator = IMAGE_GENERATORS[problem] if profile == "paper" else SMALL
    helper = HELPER | {"width": 512 if profile == "paper" else 8}
    return {
        "problem": problem,
        "sampler": {"kind": "generator", "noise_scale": 0.1} | generator,
        "inverse": {"kind": "block"} if method.endswith("_best") else helper,
        "samples": SAMPLES,
        "batch_size": 50,
        "repeats": REPEATS[profile],
    }


def random_posterior(
    network: nn.Module, inputs: Sequence[int], num_data: int, device: torch.device
) -> ClassificationPosterior:
    """The posterior of a classifier on standard normal inputs of a shape, with random labels."""
    rng = torch.Generator(device).manual_seed(0)
    points = torch.randn(num_data, *inputs, generator=rng, device=device)
    flat = FlatModule(network)
    classes = flat(torch.zeros(1, flat.dim), torch.zeros(1, *inputs)).shape[-1]
    labels = torch.randint(classes, (num_data,), generator=rng, device=device)
    return ClassificationPosterior(flat, points, labels, NormalPrior(flat.fan_in_scale().to(device)))


def _advance(config: dict, objective: dict, context: RunContext) -> Callable[[], object]:
    make, inputs = NETWORKS[config["problem"]]
    target = random_posterior(make(), inputs, NUM_DATA, context.device)
    rng = torch.Generator(context.device).manual_seed(context.seed)
    sampler = build_sampler(config["sampler"], target.dim, 1.0, rng)
    built = build_objective(objective | {"num_samples": config["samples"]})
    return Training(sampler, target, built, rng=rng, optimizer=Adam(lr=1e-5), batch_size=config["batch_size"]).advance


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Time a step of GPVI and of amortised SVGD in turns, on all cores."""
    svgd = {"kind": "parvi", "direction": {"kind": "svgd"}}
    calls = {
        "gpvi": _advance(config, {"kind": "gpvi", "inverse": config["inverse"]}, context),
        "amortized_svgd": _advance(config, svgd, context),
        "independent": _advance(config, svgd | {"independent": True}, context),
    }
    threads = provenance.cores()
    arguments = {"repeats": config["repeats"], "seconds": 0.2, "threads": threads}
    times = timing.interleaved(calls, **arguments, too_slow=None)
    metrics = {f"{name}_ms": 1e3 * median(seconds) for name, seconds in times.items()}
    metrics["extra_time_fraction"] = timing.ratios(times, "amortized_svgd")["gpvi"] - 1
    metrics["extra_time_fraction_independent"] = timing.ratios(times, "independent")["gpvi"] - 1
    return Outcome(metrics | {"threads": float(threads)})


def deviations(method: str, profile: str) -> str:
    """What differs from the paper."""
    inverse = "the exact block inverse instead of the helper; " if method.endswith("_best") else ""
    return f"{inverse}on the machine of the record, random images"


EXPERIMENTS = (
    Experiment(
        name="overhead",
        title="Section 4.5: the time of a step over that of amortised SVGD",
        methods=tuple(f"gpvi_{problem}{setting}" for problem in NETWORKS for setting in ("", "_best")),
        config=config,
        seeds=one_seed,
        run=run,
        scores=(
            Score(
                item="gpvi/section4.5/overhead_vs_amortized_svgd",
                metric="extra_time_fraction",
                better="lower",
                key="extra_time_fraction",
            ),
        ),
        deviations=deviations,
        rows={f"gpvi_{problem}_best": (f"gpvi_{problem}", "best") for problem in NETWORKS},
        all_cores=True,
    ),
)
