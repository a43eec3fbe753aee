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

The experiment ``descent-from-optimum`` asks the question where it is sharpest: the generator is first trained to the
minimum of the divergence by its exact density, then handed to each method. A direction of descent leaves it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.directions import SVGD
from gpvi_lib.fitting import fit
from gpvi_lib.kernels import RBF, BandwidthRule, median_bandwidth, squared_distances
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.objectives import GPVI, Loss, NegativeELBO, Objective, ParVI, surrogate
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator, Sampler
from gpvi_lib.targets import Banana, Gaussian, Target, log_prob

DIRECTIONS = ("gpvi", "amortized_svgd_two_batches", "amortized_svgd")


def objective(name: str, num_samples: int, kernel: RBF = RBF()) -> Objective:
    """The objective whose gradient is the direction ``name``; its kernel is on noise for ``gpvi``, else on points."""
    if name == "gpvi":
        return GPVI(num_samples, kernel=kernel)
    return ParVI(SVGD(kernel), num_samples, independent=name == "amortized_svgd_two_batches")


@dataclass
class OneBatchGPVI(Objective):
    """GPVI that moves the batch from which it estimates its expectation, as published amortised SVGD does.

    Attributes:
        num_samples: noises in the one batch, ``z' = z``.
    """

    num_samples: int

    def __call__(self, sampler: Sampler, target: Target, batch: Tensor | None, rng: torch.Generator) -> Loss:
        assert isinstance(sampler, Generator)
        z = sampler.noise(self.num_samples, rng)
        h = float(median_bandwidth(squared_distances(z, z), same=True))
        gpvi = GPVI(self.num_samples, kernel=RBF(h))
        phi, info = gpvi.functional_gradient(sampler, target, z, z, batch, rng)
        return surrogate(sampler(z), phi), info


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


@torch.no_grad()
def scale_moments(
    dim: int,
    num_samples: int,
    batches: int,
    rng: torch.Generator,
    rule: BandwidthRule = "paper",
    independent: bool = False,
) -> Float[Tensor, "b 2"]:
    """Drive A and repulsion B of amortised SVGD for ``x = σz`` and the target ``N(0, I)``, per batch and coordinate.

    The bandwidth scales with σ², so one set of batches holds for every σ: with the library's sign the derivative of
    the surrogate in σ is ``d (σ A - B / σ)``, which vanishes at ``σ² = E B / E A``.

    Args:
        independent: whether sources and queries are two batches, or one in both roles.
    """
    rows = []
    for _ in range(batches):
        z = torch.randn(num_samples, dim, generator=rng, dtype=torch.float64)
        query = torch.randn(num_samples, dim, generator=rng, dtype=torch.float64) if independent else None
        drive, _ = SVGD(RBF(rule))(z, -z, query=query)
        both, _ = SVGD(RBF(rule))(z, torch.zeros_like(z), query=query)  # the repulsion alone
        moved = z if query is None else query
        a, b = ((field * moved).mean() for field in (drive - both, -both))
        rows.append(torch.stack([a, b]))
    return torch.stack(rows)


def resting_variance(moments: Float[Tensor, "b 2"]) -> tuple[float, float]:
    """``σ² = E B / E A`` of :func:`scale_moments`, and its standard error by the delta method."""
    a, b = moments.mean(0)
    ratio = b / a
    residual = moments[:, 1] - ratio * moments[:, 0]
    return float(ratio), float(residual.std() / len(moments) ** 0.5 / a)


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
        optimizer=Adam(lr=config["lr"]),
        rng=rng,
        callback=measure,
        callback_every=10,
        label=context.label,
        progress=context.progress,
    )
    arrays = {name: torch.stack([row[name].cpu() for row in rows]) for name in rows[0]}
    metrics = {name: float(arrays[name][-1]) for name in ("kl", "kl_se", "folded")}
    return Outcome(metrics, {name: value.float() for name, value in arrays.items()})


ALONG_TRAINING = tuple(
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

OPTIMA = {
    "banana": GENERATORS["banana"],
    "gaussian_5": {"dim": 5, "noise_dim": 5, "hidden": [40], "noise_scale": 0.5},
    "gaussian_10": {"dim": 10, "noise_dim": 10, "hidden": [40], "noise_scale": 0.5},
    "wide": GENERATORS["wide"],
}
"""The cases of ``descent-from-optimum``, by target; only in the last the generator cannot represent the target."""

CONTINUATIONS = {
    "gpvi": 100,
    "amortized_svgd_two_batches": 100,
    "gpvi_one_batch": 100,
    "amortized_svgd": 100,
    "amortized_svgd_half": 100,
    "amortized_svgd_20": 20,
}
"""What continues from the optimum, with its batch: the directions, GPVI with one batch, and amortised SVGD as
published with half the bandwidth or with 20 points."""

OPTIMUM_SIZES = {
    "smoke": {"elbo_steps": 20, "stages": [0, 2], "blocks": 4, "block_size": 50, "pair_size": 20, "batches": 2},
    "quick": {"elbo_steps": 200, "stages": [0, 5, 30], "blocks": 8, "block_size": 200, "pair_size": 100, "batches": 2},
    "paper": {
        "elbo_steps": 1500,
        "stages": [0, 3, 10, 30, 100, 300],
        "blocks": 20,
        "block_size": 1000,
        "pair_size": 200,
        "batches": 5,
    },
}


def known_target(name: str, device: torch.device | str = "cpu") -> Target:
    """The target of a case: one of :data:`TARGETS`, or a correlated Gaussian of that dimension."""
    if name in TARGETS:
        return make_target(name, device)
    dim = {"gaussian_5": 5, "gaussian_10": 10}[name]
    root = torch.randn(dim, dim, generator=torch.Generator().manual_seed(99), dtype=torch.float64) / dim**0.5
    covariance = root @ root.mT + 0.2 * torch.eye(dim)
    return Gaussian(torch.ones(dim, dtype=torch.float64, device=device), covariance.to(device))


def optimum_config(method: str, profile: str) -> dict:
    """Everything but the seed; ``method`` is the case. Adam at 1e-2, falling to 1e-4, then at 1e-3 for each method."""
    runs = CONTINUATIONS if profile == "paper" else {name: CONTINUATIONS[name] for name in DIRECTIONS}
    settings = {"target": method, "generator": OPTIMA[method], "runs": runs, "elbo_samples": 100}
    return settings | {"elbo_lr": 1e-2, "elbo_final_lr": 1e-4, "lr": 1e-3} | OPTIMUM_SIZES[profile]


def optimum_seeds(profile: str) -> tuple[int, ...]:
    """Every seed is another start, and so another optimum."""
    return tuple(range(2 if profile == "paper" else 1))


def _continuation(name: str, num_samples: int) -> Objective:
    if name == "gpvi_one_batch":
        return OneBatchGPVI(num_samples)
    if name.startswith("amortized_svgd_two"):
        return objective(name, num_samples)
    if name.startswith("amortized_svgd"):
        return objective("amortized_svgd", num_samples, RBF("half" if name.endswith("half") else "paper"))
    return objective(name, num_samples)


def run_from_optimum(config: dict, method: str, context: RunContext) -> Outcome:
    """Train by the exact density, then let each method of ``config["runs"]`` continue from there.

    Arrays, each with one row per stage: those of :func:`run`, with the continuation's name and a dot before them. The
    directions are measured at the batch of the continuation and the paper's bandwidth.
    """
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = known_target(config["target"], context.device)
    generator = make_generator(config["generator"], rng)
    fit(
        generator,
        target,
        NegativeELBO(config["elbo_samples"]),
        steps=config["elbo_steps"],
        optimizer=Adam(lr=config["elbo_lr"], final_lr=config["elbo_final_lr"]),
        rng=rng,
        label=context.label,
        progress=context.progress,
    )
    start = {name: value.clone() for name, value in generator.state_dict().items()}
    arrays = {"stage": torch.tensor(config["stages"]).float()}
    for name, num_samples in config["runs"].items():
        generator.load_state_dict(start)
        rows = _continue(generator, target, name, config | {"num_samples": num_samples}, context)
        arrays |= {f"{name}.{key}": torch.stack([row[key].cpu() for row in rows]).float() for key in rows[0]}
    metrics = {f"{name}.kl": float(arrays[f"{name}.kl"][-1]) for name in config["runs"]}
    return Outcome(metrics | {"optimum.kl": float(arrays["gpvi.kl"][0])}, arrays)


def _continue(
    generator: Generator, target: Target, name: str, config: dict, context: RunContext
) -> list[dict[str, Tensor]]:
    """What :func:`probe` finds at every stage of one continuation."""
    rows = []

    def measure(step: int, sampler: Generator) -> dict:
        if step in config["stages"]:
            own_rng = torch.Generator(context.device).manual_seed(1_000_000 + 10_000 * context.seed + step)
            rows.append(probe(sampler, target, config, own_rng))
        return {}

    fit(
        generator,
        target,
        _continuation(name, config["num_samples"]),
        steps=config["stages"][-1],
        optimizer=Adam(lr=config["lr"]),
        rng=torch.Generator(context.device).manual_seed(2_000_000 + context.seed),
        callback=measure,
        callback_every=1,
        label=context.label,
        progress=context.progress,
    )
    return rows


EXPERIMENTS = (
    *ALONG_TRAINING,
    Experiment(
        name="descent-from-optimum",
        title="Section 3.5: does a method stay at the minimum of the divergence?",
        methods=tuple(OPTIMA),
        config=optimum_config,
        seeds=optimum_seeds,
        run=run_from_optimum,
    ),
)
