r"""Figure 9 of function-space POVI: what networks and minibatches cost, where the posterior over functions is known.

Inputs are -2, -1.8, ..., 2 with ``y ~ N(sin x, 0.1²)``, test inputs 1.7, 1.9 and 2.1; the prior is a Gaussian process
with the kernel ``exp(-d² / (2 · 0.5²))``. All methods are f-SVGD with 1,000 particles: ``exact`` moves the 24 values of
the functions themselves, ``network`` moves the weights of networks 1–50–50–1 behind them, and ``minibatch`` sees 10 of
the 21 data in a step. Their score is KL(q ‖ p) at the test inputs, with a Gaussian fitted to the particles for q.

Three numbers say what to compare with: ``down_sampled``, the posterior given every second input (the paper's scale),
``floored``, the posterior under the prior with the eigenvalues that all methods see, and ``draws``, 1,000 exact draws.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.directions import SVGD
from gpvi_lib.experiments.build import train
from gpvi_lib.experiments.evaluation import differing, history
from gpvi_lib.experiments.function_models import conditioned, layer_scales
from gpvi_lib.function_priors import GaussianProcess, SquaredExponential
from gpvi_lib.function_space import FunctionPosterior, FunctionSpaceParVI
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.networks import FlatMLP
from gpvi_lib.objectives import Objective, ParVI
from gpvi_lib.samplers import Particles, Sampler, standard_normal
from gpvi_lib.targets import NormalLikelihood, Posterior, Target

INPUTS = torch.linspace(-2, 2, 21, dtype=torch.float64)
TEST = torch.tensor([1.7, 1.9, 2.1], dtype=torch.float64)
NOISE, LENGTH, HIDDEN = 0.1, 0.5, (50, 50)
SMALLEST = 1e-15
"""A variance below which two functions are one: a divergence stays a finite number."""
SPECS: dict[str, dict] = {
    "exact": {},
    "network": {},
    "minibatch": {"batch_size": 10},
}
THEN = {"test": [1.7, 1.9, 2.1], "smallest": 1e-15}
"""What the first records were evaluated with, see :func:`differing`."""
CLOSED = ("down_sampled", "floored", "draws")
LABELS = {"exact": "Values themselves", "network": "Networks", "minibatch": "Networks, minibatches"}
"""Method -> its name for a reader."""
SIZES: dict[str, dict] = {
    "smoke": {"particles": 12, "steps": 10, "lr": 1e-2, "evaluations": 2},
    "quick": {"particles": 100, "steps": 1_000, "lr": 1e-2, "evaluations": 10},
    "paper": {"particles": 1_000, "steps": 20_000, "lr": 1e-3, "evaluations": 40},
}


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    size = SIZES[profile]
    shared = {"noise": NOISE, "length": LENGTH, "floor": 1e-4, "particles": size["particles"]}
    shared |= differing(THEN, test=TEST.tolist(), smallest=SMALLEST)
    if method in CLOSED:
        return shared
    steps = size["steps"]
    return shared | {"hidden": list(HIDDEN), "steps": steps, "lr": size["lr"], "batch_size": None} | SPECS[method] | {
        "history_every": max(1, steps // size["evaluations"])
    }  # fmt: skip


def data() -> tuple[Float[Tensor, "21 1"], Float[Tensor, " 21"]]:
    """Inputs and targets, float64."""
    noise = torch.randn(len(INPUTS), generator=torch.Generator().manual_seed(9_000), dtype=torch.float64)
    return INPUTS[:, None], INPUTS.sin() + NOISE * noise


def exact_posterior(every: int = 1) -> tuple[Float[Tensor, " 3"], Float[Tensor, "3 3"]]:
    """Mean and covariance at the test inputs, given every so-manieth datum."""
    x, y = (part[::every] for part in data())
    at = torch.cat([x, TEST[:, None]])
    return conditioned(SquaredExponential(LENGTH)(at, at), y, NOISE)[:2]


def _floored_posterior(floor: float) -> tuple[Tensor, Tensor]:
    """The same under the prior whose eigenvalues at all inputs are raised to ``floor``."""
    x, y = data()
    at = torch.cat([x, TEST[:, None]])
    eigenvalues, vectors = torch.linalg.eigh(SquaredExponential(LENGTH)(at, at))
    return conditioned(vectors @ (eigenvalues.clamp_min(floor)[:, None] * vectors.mT), y, NOISE)[:2]


def gaussian_kl(mean: Tensor, covariance: Tensor, to_mean: Tensor, to_covariance: Tensor) -> float:
    """``KL(N(mean, covariance) ‖ N(to_mean, to_covariance))`` in nats."""
    shift = mean - to_mean
    whole = covariance + torch.outer(shift, shift)
    eigenvalues = torch.linalg.eigvalsh(covariance).clamp_min(SMALLEST)  # functions of new networks are nearly linear
    determinants = torch.linalg.slogdet(to_covariance).logabsdet - eigenvalues.log().sum()
    return 0.5 * float(torch.linalg.solve(to_covariance, whole).trace() - len(mean) + determinants)


def divergence(f: Float[Tensor, "n 3"]) -> float:
    """KL at the test inputs of the Gaussian with the moments of ``n`` functions to the exact posterior."""
    return gaussian_kl(f.mean(0), f.mT.cov(), *exact_posterior())


def _closed(method: str, config: dict, seed: int) -> dict[str, float]:
    if method == "down_sampled":
        return {"kl": gaussian_kl(*exact_posterior(every=2), *exact_posterior())}
    if method == "floored":
        return {"kl": gaussian_kl(*_floored_posterior(config["floor"]), *exact_posterior())}
    rng = torch.Generator().manual_seed(seed)
    mean, covariance = exact_posterior()
    noise = torch.randn(config["particles"], 3, generator=rng, dtype=torch.float64)
    return {"kl": divergence(mean + noise @ torch.linalg.cholesky(covariance).mT)}


def _prior_draws(config: dict, covariance: Float[Tensor, "v v"], rng: torch.Generator) -> Float[Tensor, "n v"]:
    """Functions of the prior process at all inputs, with the eigenvalues of its covariance at the floor or above."""
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    noise = standard_normal((config["particles"], len(covariance)), rng, covariance)
    return (noise * eigenvalues.clamp_min(config["floor"]).sqrt()) @ vectors.mT


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train, or compute, and compare with the exact posterior at the test inputs."""
    if method in CLOSED:
        return Outcome(_closed(method, config, context.seed))
    rng = torch.Generator(context.device).manual_seed(context.seed)
    x, y = (part.to(context.device) for part in data())
    test = TEST[:, None].to(context.device)
    network = FlatMLP([1, *config["hidden"], 1])
    weights = Posterior(network, NormalLikelihood(config["noise"]), x, y)
    prior = GaussianProcess(SquaredExponential(config["length"]), config["floor"])
    target: Target = weights
    objective: Objective = FunctionSpaceParVI(SVGD(), test, prior)
    if method == "exact":
        values = FunctionPosterior(weights, test, prior)
        target, objective = values, ParVI(SVGD())
        start = _prior_draws(config, prior.covariance(values.x), rng)
    else:
        scale = layer_scales(network, "start", torch.float64).to(rng.device)
        start = scale * standard_normal((config["particles"], target.dim), rng, scale)
    sampler = Particles(start)

    @torch.no_grad()
    def at_test(sampler: Sampler) -> Float[Tensor, "n 3"]:
        values = sampler.sample(None, rng)
        return (values[:, -len(TEST) :] if method == "exact" else network(values, test)[..., 0]).cpu()

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        return {"kl": divergence(at_test(sampler))}

    result = train(sampler, target, objective, config, context, rng, measure)
    f = at_test(sampler)
    mean, covariance = exact_posterior()
    metrics = {
        "kl": divergence(f),
        "rmse_mean": float((f.mean(0) - mean).square().mean().sqrt()),
        "sd_ratio": float((f.std(0) / covariance.diagonal().sqrt()).mean()),
    }
    return Outcome(metrics, history(result.history, ("step", "kl")) | {"functions": f.float()}, result.seconds)


def deviations(method: str, profile: str) -> str:
    """What the paper does not print; its Figure 9 has no numbers."""
    parts = [] if profile == "paper" else [f"{profile} size"]
    if method not in CLOSED:
        parts.append("Adam, eigenvalues of the prior at least 1e-4")
    if method in ("network", "minibatch"):
        parts.append("1-50-50-1")
    if method == "minibatch":
        parts.append(f"{SPECS[method]['batch_size']} of {len(INPUTS)} data a step")
    return "; ".join(parts)


EXPERIMENTS = (
    Experiment(
        name="fpovi-exact",
        title="Figure 9 of function-space POVI: networks and minibatches against the exact Gaussian-process posterior",
        methods=(*SPECS, *CLOSED),
        config=config,
        seeds=one_seed,
        run=run,
        deviations=deviations,
    ),
)
