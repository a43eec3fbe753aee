"""Figure 3: Bayesian linear regression with different solvers of ``Jᵀh = ∇k``, and how far each is from the answer.

Problem, start, optimiser and noise are those of :mod:`.bayesian_linear_regression` at the printed setting, seed by
seed; only the back end for the inverse Jacobian differs. In two methods the noise is drawn once, and in two the
generator has the λ = 1 that the paper prints for all its experiments, although section 4.2 gives the form without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpvi_lib.errors import DivergedError
from gpvi_lib.experiments import bayesian_linear_regression, linear_problem
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.evaluation import history
from gpvi_lib.inverse import BlockInverse, InverseJacobian
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.objectives import GPVI
from gpvi_lib.samplers import Generator

ONE_STEP = {"kind": "bicgstab", "max_iterations": 1}
SOLVERS = {
    "exact": {"kind": "block"},
    "helper_1": linear_problem.HELPER | {"updates": 1},
    "helper_2": linear_problem.HELPER | {"updates": 2},
    "helper_5": linear_problem.HELPER | {"updates": 5},
    "bicgstab_warm": ONE_STEP | {"warm_start": True},
    "bicgstab_cold": ONE_STEP,
    "bicgstab_converged": {"kind": "bicgstab", "max_iterations": 12, "tol": 1e-4},
    "exact_fixed_noise": {"kind": "block"},
    "bicgstab_warm_fixed_noise": ONE_STEP | {"warm_start": True},
    "exact_lambda_1": {"kind": "block"},
    "bicgstab_warm_lambda_1": ONE_STEP | {"warm_start": True},
}
LABELS = {
    "exact": "Exact inverse",
    "helper_1": "Helper, 1 update a step",
    "helper_2": "Helper, 2 updates a step",
    "helper_5": "Helper, 5 updates a step",
    "bicgstab_warm": "BiCGSTAB, one iteration a step, warm start",
    "bicgstab_cold": "BiCGSTAB, one iteration a step, cold start",
    "bicgstab_converged": "BiCGSTAB, converged",
    "exact_fixed_noise": "Exact inverse, noise drawn once",
    "bicgstab_warm_fixed_noise": "BiCGSTAB, warm start, noise drawn once",
    "exact_lambda_1": "Exact inverse, λ = 1",
    "bicgstab_warm_lambda_1": "BiCGSTAB, warm start, λ = 1",
}
"""Method -> its name for a reader; the paper compares ``helper_1`` and ``bicgstab_warm``."""
STEPS = {"smoke": 20, "quick": 600, "paper": 50_000}
SAMPLES = {"smoke": 10, "quick": 50, "paper": linear_problem.SAMPLES}


@dataclass
class FixedNoise(GPVI):
    """GPVI that sees the same ``z'`` and ``z`` in every step, drawn from ``noise_seed``."""

    noise_seed: int = 0

    def __call__(self, sampler, target, batch, rng):
        noise = torch.Generator(rng.device).manual_seed(self.noise_seed)
        return super().__call__(sampler, target, batch, noise)


class Watched(InverseJacobian):
    """A back end that is compared with the exact one, on its own arguments, at every ``every``-th call.

    Attributes:
        calls: how many there were; during training, the step.
        seen: of the last comparison, ``residual`` (``||Jᵀh - ∇k|| / ||∇k||`` over all pairs) and
            ``repulsion_error`` (``||R - R*|| / ||R*||``, where ``R*`` is the exact repulsive term).
        history: what :meth:`keep` was given, so that it outlives an interruption and a divergence.
    """

    def __init__(self, inverse: InverseJacobian, every: int = 1) -> None:
        self.inverse, self.every, self.calls = inverse, every, 0
        self.seen = {"residual": float("nan"), "repulsion_error": float("nan")}
        self.history: list[dict[str, float]] = []

    def __call__(self, linearization, source, query, weight, rng=None):
        repulsion, info = self.inverse(linearization, source, query, weight, rng)
        self.calls += 1
        if self.calls % self.every == 0:
            exact, _ = BlockInverse()(linearization, source, query, weight)
            self.seen = {
                "residual": float(info.get("residual", 0.0)),
                "repulsion_error": float((repulsion - exact).norm() / exact.norm()),
            }
        return repulsion, info

    def keep(self, row: dict[str, float]) -> dict[str, float]:
        """Add a row and what was last seen to the history; returns it."""
        self.history.append({"step": float(self.calls)} | row | self.seen)
        return self.history[-1]

    def state_dict(self) -> dict:
        return {"inverse": self.inverse.state_dict(), "calls": self.calls, "history": self.history}

    def load_state_dict(self, state: dict) -> None:
        self.inverse.load_state_dict(state["inverse"])
        self.calls, self.history = state["calls"], list(state["history"])


def config(method: str, profile: str) -> dict:
    """Everything but the seed; at ``paper`` all of the published steps."""
    steps = STEPS[profile]
    objective = {"kind": "gpvi", "num_samples": SAMPLES[profile], "inverse": SOLVERS[method]}
    changes = {"steps": steps, "history_every": max(1, steps // 100), "objective": objective}
    if method.endswith("lambda_1"):
        changes["sampler"] = linear_problem.GENERATOR | {"noise_scale": 1.0}
    return (
        bayesian_linear_regression.config("gpvi", profile) | changes | {"fixed_noise": method.endswith("fixed_noise")}
    )


def seeds(profile: str) -> tuple[int, ...]:
    """The first problems of Table 2."""
    return tuple(range({"smoke": 1, "quick": 1, "paper": 3}[profile]))


def objective(config: dict, seed: int) -> GPVI:
    """The objective of a configuration, with its back end :class:`Watched`."""
    built = build_objective(config["objective"])
    assert isinstance(built, GPVI)
    watched = Watched(built.inverse, config["history_every"])
    if config["fixed_noise"]:
        return FixedNoise(built.num_samples, watched, noise_seed=2_000 + seed)
    return GPVI(built.num_samples, watched)


@torch.no_grad()
def field_of_values(sampler: Generator) -> dict[str, float]:
    """Ends of ``{r·Jr : ||r|| = 1}`` of a linear generator: BiCGSTAB's first step is safe where 0 is not between."""
    jacobian = sampler.linearize(torch.zeros(1, sampler.dim, device=sampler.output.weight.device)).dense()[0]
    eigenvalues = torch.linalg.eigvalsh((jacobian + jacobian.mT) / 2)
    return {"field_min": float(eigenvalues[0]), "field_max": float(eigenvalues[-1])}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train with one solver. A divergence is a result here: the step at which it came, and no errors."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = linear_problem.problem(config, context.seed, context.device)
    sampler = build_sampler(config["sampler"], config["dim"], 1.0, rng)
    gpvi = objective(config, context.seed)
    watched = gpvi.inverse
    assert isinstance(sampler, Generator) and isinstance(watched, Watched)

    def measure(step: int, sampler: Generator) -> dict[str, float]:
        return watched.keep(linear_problem.errors(target, *linear_problem.moments(sampler)) | field_of_values(sampler))

    seconds = None
    try:
        result = train(sampler, target, gpvi, config, context, rng, measure)
        final, seconds = watched.history[-1], result.seconds
        metrics = {key: final[key] for key in ("mu_error", "sigma_error", "residual", "repulsion_error")}
    except DivergedError:
        metrics = {}
    metrics |= {"diverged": float(seconds is None), "last_step": float(watched.calls)}
    return Outcome(metrics, history(watched.history), seconds)


EXPERIMENTS = (
    Experiment(
        name="inverse-solvers-long",
        title="Figure 3: solvers of the inverse Jacobian in Bayesian linear regression, 50,000 steps",
        methods=tuple(SOLVERS),
        config=config,
        seeds=seeds,
        run=run,
    ),
)
