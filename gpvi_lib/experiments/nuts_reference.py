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

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpvi_lib.errors import UnknownName
from gpvi_lib.experiments import linear_problem
from gpvi_lib.experiments.chains import diagnostics, run_hmc, run_nuts
from gpvi_lib.experiments.classification_problem import CLASS_MEANS, CLASS_VARIANCE
from gpvi_lib.experiments.evaluation import differing, evenly, span
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
THEN = {"trace": 250, "grid": [-6.0, 6.0, 13]}
"""What the first records were evaluated with, see :func:`differing`."""


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
    return spec | differing(THEN, trace=TRACE, grid=span(GRID))


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
        problem = linear_problem.problem(spec, seed, device)
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


def _run_hmc(
    config: dict, target: Target, initial: Tensor, context: RunContext
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(draws after the burn-in, states from the start, metrics)."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    result = run_hmc(
        config, target.log_prob, initial, context, rng, burn_in=0
    )  # thrown away below: the record shows it
    states = result.samples.transpose(0, 1)
    gradients = float(config["num_steps"] * config["num_leapfrog"] * len(initial))
    metrics = {"acceptance": float(result.acceptance.mean()), "gradients": gradients, "seconds": result.seconds}
    return states[:, config["burn_in"] // config["thin"] :], states, metrics


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Sample one posterior from starts N(0, I) and diagnose the chains."""
    target = posterior(config["posterior"], context.seed, context.device)
    rng = torch.Generator(context.device).manual_seed(3_000 + context.seed)
    initial = torch.randn(config["chains"], target.dim, generator=rng, dtype=torch.float64, device=rng.device)
    if config["sampler"] == "nuts":
        draws, info = run_nuts(config, target.log_prob, initial, context)
        states = draws
    else:
        draws, states, info = _run_hmc(config, target, initial, context)
    seconds = info.pop("seconds")  # of all chains, also where this run only added the last
    found, weights = diagnostics(quantities(target, draws)), diagnostics(draws)
    metrics = info | {
        "draws": float(draws.shape[0] * draws.shape[1]),
        "rhat_max": float(found["rhat"].max()),
        "ess_min": float(found["ess"].min()),
        "rhat_weights_max": float(weights["rhat"].max()),
        "ess_weights_min": float(weights["ess"].min()),
    }
    arrays = found | {f"weights_{name}": weights[name] for name in ("rhat", "ess", "sd")}
    return Outcome(metrics, arrays | {"trace": evenly(states, TRACE, dim=1).float().cpu()}, seconds)


EXPERIMENTS = (
    Experiment(
        name="nuts-reference",
        title="Reference posteriors by NUTS, and HMC beside them",
        methods=tuple(SPECS),
        config=config,
        seeds=one_seed,
        run=run,
    ),
)
