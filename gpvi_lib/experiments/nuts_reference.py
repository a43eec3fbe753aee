"""Reference posteriors by NUTS, with HMC beside them: long chains, diagnosed in function space, settings recorded.

NUTS is Pyro's, HMC the library's own. A method is a sampler on a posterior:

- ``gaussian``: a correlated Gaussian, ``banana``: a bent one; both are known exactly.
- ``bnn``: the weights of a small classifier (2-6-4, tanh, d = 46) on 40 points of the four-class problem of
  section 4.3, prior N(0, I). Hidden units may be permuted and their signs flipped, so chains need not agree on
  weights; they must agree on predictions. R-hat and effective sample sizes are therefore those of
  *quantities*: predicted probabilities on a grid for the classifier, coordinates and their products elsewhere.
- ``regression``: notebook 13's linear regression of the same seed.

``hmc_printed`` has the paper's settings (appendix E): 25 leapfrog steps of 0.0005, 25,000 proposals of which 20,000
are burn-in.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.errors import UnknownName
from gpvi_lib.experiments import bayesian_linear_regression
from gpvi_lib.experiments.classification import CLASS_MEANS, CLASS_VARIANCE
from gpvi_lib.hmc import LogProb, hmc
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.networks import FlatModule
from gpvi_lib.targets import (
    Banana,
    BayesianLinearRegression,
    ClassificationPosterior,
    Gaussian,
    GaussianMixture,
    Target,
)

POSTERIORS: dict[str, dict] = {
    "gaussian": {"correlation": 0.9},
    "banana": {"scale": 1.0, "bend": 1.0, "width": 0.5},
    "bnn": {"hidden": 6, "num_data": 40, "variance": CLASS_VARIANCE},
    "regression": {"num_data": 100, "dim": 3},
}
NUTS = {"sampler": "nuts", "chains": 4, "warmup": 500, "draws": 1_000, "target_accept": 0.8, "max_tree_depth": 10}
PRINTED = {"sampler": "hmc", "step_size": 5e-4, "num_leapfrog": 25, "num_steps": 25_000, "burn_in": 20_000, "thin": 10}
SPECS: dict[str, dict] = {
    "nuts_gaussian": NUTS | {"posterior": "gaussian", "draws": 2_000},
    "nuts_banana": NUTS | {"posterior": "banana", "target_accept": 0.95, "draws": 2_000},
    "nuts_bnn": NUTS | {"posterior": "bnn"},
    "hmc_bnn": {
        "posterior": "bnn", "sampler": "hmc", "chains": 16,
        "step_size": 0.12, "num_leapfrog": 12, "num_steps": 1_500, "burn_in": 500, "thin": 1,
    },
    "hmc_printed_bnn": PRINTED | {"posterior": "bnn", "chains": 8},
    "hmc_printed_regression": PRINTED | {"posterior": "regression", "chains": 4},
}  # fmt: skip
TRACE = 250
"""States of each chain that a record keeps, evenly spaced, the burn-in of HMC included."""
GRID = torch.linspace(-6, 6, 13, dtype=torch.float64)


def config(method: str, profile: str) -> dict:
    """Everything but the seed; shorter chains at ``smoke`` and ``quick``."""
    spec = dict(SPECS[method])
    spec["posterior"] = {"kind": spec["posterior"]} | POSTERIORS[spec["posterior"]]
    if spec["sampler"] == "nuts":
        small = {"smoke": (2, 20, 30, 4), "quick": (2, 100, 150, 6)}.get(profile)
        if small:
            spec |= dict(zip(("chains", "warmup", "draws", "max_tree_depth"), small, strict=True))
    elif profile != "paper":
        steps = {"smoke": 40, "quick": 400}[profile]
        spec |= {"num_steps": steps, "burn_in": steps // 2, "thin": 1}
    return spec


def small_classifier(
    hidden: int, num_data: int, variance: float, seed: int, device: torch.device
) -> ClassificationPosterior:
    """Four classes at (±2, ±2) on the plane, one hidden layer of tanh units, prior N(0, I); in float64."""
    rng = torch.Generator().manual_seed(2_000 + seed)
    centres = torch.tensor(CLASS_MEANS[4], dtype=torch.float64)
    mixture = GaussianMixture(centres, variance**0.5)
    inputs = mixture.sample(num_data, rng)
    network = FlatModule(nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 4)))
    return ClassificationPosterior(network, inputs.to(device), mixture.component(inputs).to(device))


def posterior(spec: dict, seed: int, device: torch.device | str = "cpu") -> Target:
    """The target of a specification ``{"kind": ..., **POSTERIORS[kind]}``, in float64.

    Raises:
        UnknownName: if the kind is none of ``POSTERIORS``.
    """
    spec, device = dict(spec), torch.device(device)
    kind = spec.pop("kind")
    if kind == "gaussian":
        covariance = torch.eye(2, dtype=torch.float64, device=device)
        covariance[0, 1] = covariance[1, 0] = spec["correlation"]
        return Gaussian(torch.zeros_like(covariance[0]), covariance)
    if kind == "banana":
        return Banana(**spec)
    if kind == "bnn":
        return small_classifier(**spec, seed=seed, device=device)
    if kind == "regression":
        problem = bayesian_linear_regression.problem(spec, seed, device)
        return BayesianLinearRegression(problem.inputs.double(), problem.targets.double())
    raise UnknownName.among("posterior", kind, POSTERIORS)


@torch.no_grad()
def quantities(target: Target, draws: Float[Tensor, "c n d"]) -> Float[Tensor, "c n q"]:
    """What chains must agree on: predicted probabilities on a grid, else coordinates and their products."""
    if isinstance(target, ClassificationPosterior):
        inputs = torch.cartesian_prod(GRID, GRID).to(draws)
        probabilities = [target.network(chain, inputs).softmax(-1).flatten(1) for chain in draws]
        return torch.stack(probabilities)
    rows, columns = torch.triu_indices(draws.shape[-1], draws.shape[-1])
    return torch.cat([draws, draws[..., rows] * draws[..., columns]], dim=-1)


def diagnostics(quantities: Float[Tensor, "c n q"]) -> dict[str, Float[Tensor, " q"]]:
    """Mean and sd of each quantity with their Monte Carlo errors, R-hat and bulk effective sample size, by ArviZ.

    R-hat is the rank-normalised split R-hat of Vehtari et al. (2021).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version when imported
        import arviz
    data = arviz.convert_to_dataset({"q": quantities.double().cpu().numpy()})
    values = {
        "mean": quantities.mean((0, 1)),
        "sd": quantities.flatten(0, 1).std(0),
        "mcse_mean": arviz.mcse(data, method="mean")["q"].values,
        "mcse_sd": arviz.mcse(data, method="sd")["q"].values,
        "rhat": arviz.rhat(data)["q"].values,
        "ess": arviz.ess(data)["q"].values,
    }
    return {name: torch.from_numpy(np.asarray(value, dtype=np.float64)) for name, value in values.items()}


def nuts(
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    *,
    warmup: int,
    draws: int,
    target_accept: float,
    max_tree_depth: int,
    seed: int,
    checkpoint: Path | None = None,
    label: str = "nuts",
    progress: bool = True,
) -> tuple[Float[Tensor, "c n d"], dict[str, float]]:
    """Pyro's NUTS with a diagonal mass matrix, one chain after another; finished chains are checkpointed.

    Every chain has its own seed, so that a resumed run draws the same samples. Pyro draws from torch's global
    generator, whose state is put back afterwards.

    Returns:
        Draws, and over all chains: divergences, mean step size, evaluations of the gradient, seconds.
    """
    done: list[dict] = []
    if checkpoint is not None and checkpoint.exists():
        done = checkpoints.load(checkpoint, initial.device, "chains")["chains"]
    for i in tqdm(range(len(done), len(initial)), desc=label, disable=not progress, leave=False):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000 * seed + i)
            done.append(_nuts_chain(log_prob, initial[i], warmup, draws, target_accept, max_tree_depth))
        if checkpoint is not None:
            checkpoints.save(checkpoint, {"chains": done})
            checkpoints.stop_if_over(label)
    info = {
        "divergences": float(sum(chain["divergences"] for chain in done)),
        "step_size": sum(chain["step_size"] for chain in done) / len(done),
        "gradients": float(sum(chain["gradients"] for chain in done)),
        "seconds": sum(chain["seconds"] for chain in done),
    }
    return torch.stack([chain["draws"] for chain in done]), info


def _nuts_chain(log_prob: LogProb, start: Tensor, warmup: int, draws: int, target_accept: float, depth: int) -> dict:
    from pyro.infer import mcmc

    evaluations, started = 0, time.perf_counter()

    def potential(parameters: dict[str, Tensor]) -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return -log_prob(parameters["x"][None])[0]

    kernel = mcmc.NUTS(potential_fn=potential, target_accept_prob=target_accept, max_tree_depth=depth)
    chain = mcmc.MCMC(kernel, draws, warmup, initial_params={"x": start}, disable_progbar=True)
    chain.run()
    return {
        "draws": chain.get_samples()["x"].detach().clone(),
        "divergences": len(chain.diagnostics()["divergences"]["chain 0"]),
        "step_size": float(kernel.step_size),
        "gradients": evaluations,
        "seconds": time.perf_counter() - started,
    }


def _run_hmc(
    config: dict, target: Target, initial: Tensor, context: RunContext
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(draws after the burn-in, states from the start, metrics)."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    settings = {key: config[key] for key in ("step_size", "num_leapfrog", "num_steps", "thin")}
    result = hmc(
        target.log_prob,
        initial,
        **settings,
        burn_in=0,  # thrown away below: the record shows it
        rng=rng,
        checkpoint=context.checkpoint,
        label=context.label,
        progress=context.progress,
    )
    states = result.samples.transpose(0, 1)
    gradients = float(config["num_steps"] * config["num_leapfrog"] * len(initial))
    metrics = {"acceptance": float(result.acceptance.mean()), "gradients": gradients}
    return states[:, config["burn_in"] // config["thin"] :], states, metrics


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Sample one posterior from starts N(0, I) and diagnose the chains."""
    target = posterior(config["posterior"], context.seed, context.device)
    rng = torch.Generator(context.device).manual_seed(3_000 + context.seed)
    initial = torch.randn(config["chains"], target.dim, generator=rng, dtype=torch.float64, device=rng.device)
    if config["sampler"] == "nuts":
        settings = {key: config[key] for key in ("warmup", "draws", "target_accept", "max_tree_depth")}
        arguments = settings | {"seed": context.seed, "checkpoint": context.checkpoint}
        draws, info = nuts(target.log_prob, initial, **arguments, label=context.label, progress=context.progress)
        states = draws
    else:
        draws, states, info = _run_hmc(config, target, initial, context)
    seconds = info.pop("seconds", None)  # of all chains, also where this run only added the last
    found, weights = diagnostics(quantities(target, draws)), diagnostics(draws)
    metrics = info | {
        "draws": float(draws.shape[0] * draws.shape[1]),
        "rhat_max": float(found["rhat"].max()),
        "ess_min": float(found["ess"].min()),
        "rhat_weights_max": float(weights["rhat"].max()),
        "ess_weights_min": float(weights["ess"].min()),
    }
    at = torch.linspace(0, states.shape[1] - 1, min(TRACE, states.shape[1])).round().long()
    arrays = found | {f"weights_{name}": weights[name] for name in ("rhat", "ess", "sd")}
    return Outcome(metrics, arrays | {"trace": states[:, at].float().cpu()}, seconds)


EXPERIMENT = Experiment(
    name="nuts-reference",
    title="Reference posteriors by NUTS, and HMC beside them",
    methods=tuple(SPECS),
    config=config,
    seeds=one_seed,
    run=run,
)
