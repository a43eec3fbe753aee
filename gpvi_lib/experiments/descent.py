"""Section 3.5: does a pulled-back direction lower the KL divergence?

A generator ``f_θ`` with a known density makes ``KL(q_θ || p)`` and its gradient ``G`` in the weights available, so a
direction ``g`` can be judged: along ``θ - ε g / ||g||`` the divergence changes at the rate ``-<G, g> / ||g||`` per unit
step, and ``cos(G, g)`` is that rate as a share of the steepest one. A negative cosine means that a small step along
``-g`` raises the divergence. Every cell trains one method and measures, at a few stages, three directions at the same
weights:

==============================  ==============================================================================
``gpvi``                        the functional gradient with the exact inverse Jacobian, batches z' and z
``amortized_svgd_two_batches``  the SVGD direction at f(z), its expectation taken over f(z') with another batch z'
``amortized_svgd``              the SVGD direction of one batch on itself, as published
==============================  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..directions import SVGD
from ..fit import fit
from ..kernels import RBF, median_bandwidth, squared_distances
from ..objectives import GPVI, Objective, ParVI
from ..samplers import Generator, Sampler
from ..targets import Banana, Gaussian, Target, log_prob
from .base import Experiment, Outcome, RunContext

DIRECTIONS = ("gpvi", "amortized_svgd_two_batches", "amortized_svgd")


def objective(name: str, num_samples: int, kernel: RBF = RBF()) -> Objective:
    """The objective whose gradient is the direction ``name``; its kernel is on noise for ``gpvi``, else on points."""
    if name == "gpvi":
        return GPVI(num_samples, kernel=kernel)
    return ParVI(SVGD(kernel), num_samples, independent=name == "amortized_svgd_two_batches")


def gradient(loss: Float[Tensor, ""], sampler: Sampler) -> Float[Tensor, " p"]:
    """The gradient of a scalar in all weights, flattened; 0 in weights that the scalar does not depend on."""
    weights = list(sampler.parameters())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, materialize_grads=True)])


def gradients(
    objective: Objective, generator: Generator, target: Target, repeats: int, rng: torch.Generator
) -> Float[Tensor, "r p"]:
    """The objective's gradient on ``repeats`` independent batches."""
    return torch.stack([gradient(objective(generator, target, None, rng)[0], generator) for _ in range(repeats)])


@dataclass(frozen=True)
class Truth:
    """Monte Carlo estimates of KL(q || p) and of its gradient, in ``b`` independent blocks.

    Attributes:
        kl: in nats, ``(b,)``.
        gradients: ``(b, p)``.
        folded: share of the noise at which ``det J < 0``. Where it is neither 0 nor 1, ``f`` is not injective, the
            density formula drops preimages, and neither ``kl`` nor its gradient are those of the divergence.
    """

    kl: Float[Tensor, " b"]
    gradients: Float[Tensor, "b p"]
    folded: float


def claimed_divergence(
    generator: Generator, target: Target, z: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, ""], Float[Tensor, " n"]]:
    """Mean of ``log q(f(z)) - log p(f(z))`` with q by eq. 1 (target normalised), and the signs of ``det J``."""
    x, linearization = generator.forward_and_linearize(z)
    sign, logabsdet = linearization.slogdet()
    log_q = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1) - logabsdet
    return (log_q - log_prob(target, x)).mean(), sign.detach()


def exact_gradient(generator: Generator, target: Target, blocks: int, size: int, rng: torch.Generator) -> Truth:
    """KL(q || p) and its gradient from the exact density, ``blocks`` times with ``size`` samples."""
    kl, rows, signs = [], [], []
    for _ in range(blocks):
        value, sign = claimed_divergence(generator, target, generator.noise(size, rng))
        kl.append(value.detach())
        rows.append(gradient(value, generator))
        signs.append(sign)
    return Truth(torch.stack(kl), torch.stack(rows), float((torch.cat(signs) < 0).double().mean()))


def cosine(a: Float[Tensor, "... p"], b: Float[Tensor, "... p"]) -> Float[Tensor, "..."]:
    """``cos(a, b)`` along the last axis."""
    return torch.nn.functional.cosine_similarity(a, b, dim=-1)


def jackknife(
    statistic: Callable[..., Float[Tensor, ""]], *samples: Float[Tensor, "b p"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """``statistic`` of the samples' means and its standard error, leaving out one of ``b`` blocks at a time."""
    b = len(samples[0])
    estimate = statistic(*(s.mean(0) for s in samples))
    without = torch.stack([statistic(*((s.sum(0) - s[i]) / (b - 1) for s in samples)) for i in range(b)])
    return estimate, ((b - 1) * without.var(0, correction=0)).sqrt()


@torch.no_grad()
def typical_bandwidth(draw: Callable[[int], Float[Tensor, "n d"]], num_samples: int) -> float:
    """The paper's bandwidth for batches of ``num_samples``, from the median of a million distances."""
    many = 1_000
    h = median_bandwidth(squared_distances(draw(many), draw(many)), same=False)
    return float(h) * math.log(many) / math.log(num_samples)


def expected_directions(
    generator: Generator, target: Target, num_samples: int, blocks: int, size: int, rng: torch.Generator
) -> dict[str, Float[Tensor, "b p"]]:
    """Each direction's expectation over batches of ``num_samples`` at their typical bandwidth.

    ``blocks`` independent estimates, from ``size^2`` pairs each. The published amortised SVGD is ``(1 - 1/n)`` times
    the direction of two batches plus ``1/n`` times what a point does to itself, where ``k = 1`` and ``∇k = 0``: the
    gradient of ``-E log p(f(z))``, without any repulsion.
    """
    on_noise = RBF(typical_bandwidth(partial(generator.noise, rng=rng), num_samples))
    on_points = RBF(typical_bandwidth(partial(generator.sample, rng=rng), num_samples))
    two = gradients(objective("amortized_svgd_two_batches", size, on_points), generator, target, blocks, rng)
    drives = (-log_prob(target, generator.rsample(size, rng)).mean() for _ in range(blocks))
    own = torch.stack([gradient(drive, generator) for drive in drives])
    return {
        "gpvi": gradients(objective("gpvi", size, on_noise), generator, target, blocks, rng),
        "amortized_svgd_two_batches": two,
        "amortized_svgd": (1 - 1 / num_samples) * two + own / num_samples,
    }


def probe(generator: Generator, target: Target, config: dict, rng: torch.Generator) -> dict[str, Tensor]:
    """All that is measured at one stage; see :func:`run` for the names."""
    n, blocks = config["num_samples"], config["blocks"]
    truth = exact_gradient(generator, target, blocks, config["block_size"], rng)
    mean = truth.gradients.mean(0)
    found = {
        "kl": truth.kl.mean(),
        "kl_se": truth.kl.std() / blocks**0.5,
        "folded": torch.tensor(truth.folded),
        "gradient_norm": mean.norm(),
        "gradient_noise": (truth.gradients.var(0).sum() / blocks).sqrt() / mean.norm(),
    }
    for name, estimates in expected_directions(generator, target, n, blocks, config["pair_size"], rng).items():
        found[f"{name}_expected"], found[f"{name}_expected_se"] = jackknife(cosine, truth.gradients, estimates)
        single = gradients(objective(name, n), generator, target, config["batches"], rng)
        found[f"{name}_batch"] = cosine(mean, single)
    return found


TARGETS = {"banana": "a banana, d = k = 2", "wide": "a correlated Gaussian, d = 20, k = 5"}
GENERATORS = {
    "banana": {"dim": 2, "noise_dim": 2, "hidden": [20, 20], "noise_scale": 1.0},
    "wide": {"dim": 20, "noise_dim": 5, "hidden": [32, 32], "noise_scale": 0.5},
}
SIZES = {
    "smoke": {"stages": [0, 20], "blocks": 4, "block_size": 50, "pair_size": 20, "batches": 5},
    "quick": {"stages": [0, 10, 100, 300], "blocks": 10, "block_size": 500, "pair_size": 200, "batches": 20},
    "paper": {
        "stages": [0, 10, 30, 100, 300, 600, 1000, 3000],
        "blocks": 20,
        "block_size": 2000,
        "pair_size": 400,
        "batches": 50,
    },
}


def make_target(name: str, device: torch.device | str = "cpu") -> Target:
    """The normalised target of an experiment, in float64; the covariance of ``wide`` has the noise floor 0.25."""
    if name == "banana":
        return Banana(scale=1.5, bend=-0.5, width=0.5)
    rng = torch.Generator().manual_seed(99)
    factor = torch.randn(20, 5, generator=rng, dtype=torch.float64)
    covariance = factor @ factor.mT / 2 + 0.25 * torch.eye(20)
    mean = torch.randn(20, generator=rng, dtype=torch.float64)
    return Gaussian(mean.to(device), covariance.to(device))


def make_generator(settings: dict, rng: torch.Generator) -> Generator:
    """In float64 with tanh: a smooth generator, whose density automatic differentiation can differentiate."""
    return Generator(**settings, activation="tanh", rng=rng, dtype=torch.float64, device=rng.device)


def config(target: str, method: str, profile: str) -> dict:
    """Everything but the seed: 100 samples a step, Adam at 3e-3, and how much is drawn to measure with."""
    return {"target": target, "generator": GENERATORS[target], "num_samples": 100, "lr": 3e-3} | SIZES[profile]


def seeds(profile: str) -> tuple[int, ...]:
    """Every seed is another start and another run."""
    return tuple(range(4 if profile == "paper" else 1))


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train by one method and measure at every stage.

    Arrays, each with one row per stage: ``stage``, ``kl`` with ``kl_se``, ``folded``, ``gradient_norm`` with its
    relative Monte Carlo error ``gradient_noise``, and per direction ``*_expected`` (cosine between the gradient of the
    divergence and the direction's expectation) with its standard error ``*_expected_se``, and ``*_batch`` (the cosines
    of single batches, ``(stages, batches)``).
    """
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = make_target(config["target"], context.device)
    generator = make_generator(config["generator"], rng)
    rows: list[dict[str, Tensor]] = []

    def measure(step: int, sampler: Generator) -> dict:
        if step in config["stages"]:
            own_rng = torch.Generator(context.device).manual_seed(1_000_000 + 10_000 * context.seed + step)
            rows.append({"stage": torch.tensor(float(step))} | probe(sampler, target, config, own_rng))
        return {}

    fit(
        generator,
        target,
        objective(method, config["num_samples"]),
        steps=config["stages"][-1],
        lr=config["lr"],
        rng=rng,
        callback=measure,
        callback_every=10,
        label=context.label,
        progress=context.progress,
    )
    arrays = {name: torch.stack([row[name].cpu() for row in rows]) for name in rows[0]}
    metrics = {name: float(arrays[name][-1]) for name in ("kl", "kl_se", "folded")}
    return Outcome(metrics, {name: value.float() for name, value in arrays.items()})


EXPERIMENTS = tuple(
    Experiment(
        name=f"descent-{target}",
        title=f"Section 3.5: is the pulled-back direction one of descent? {title}",
        methods=DIRECTIONS,
        config=partial(config, target),
        seeds=seeds,
        run=run,
    )
    for target, title in TARGETS.items()
)
