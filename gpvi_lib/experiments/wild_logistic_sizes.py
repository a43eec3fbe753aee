r"""Do step sizes travel across N? Those learned on problems of one size, used on posteriors of other sizes.

The steps are those of the recorded ``svgd_t10`` of ``wild-logistic``, learned on problems of ``N`` rows. A method is
what is carried over and how large the new posterior is, ``steps_divided_five``: five times ``N`` rows.

- ``steps``: the learned steps as they are; ``steps_divided``: divided by ``N' / N``, as the curvature asks.
- ``laplace``: a training problem's Laplace approximation as it is; ``laplace_divided``: its covariance divided alike.

The rows of a larger posterior are the test problem's own, then those of the other problems, the ones that trained the
steps last; each is judged by the rows that its test problem put aside, and by its own Laplace approximation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpvi_lib.experiments import wild_logistic
from gpvi_lib.experiments.wild_logistic import Problem, fitted, judged, network_on, problems, rng_of
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.lab.runner import load_or_run
from gpvi_lib.samplers import standard_normal
from gpvi_lib.targets import LogisticPosterior

(LEARNING,) = wild_logistic.EXPERIMENTS
LEARNED = "svgd_t10"
CARRIED = ("steps", "steps_divided", "laplace", "laplace_divided")
FACTORS = {"quarter": 0.25, "same": 1.0, "double": 2.0, "five": 5.0}
"""Rows of the new posterior over those of a training problem."""
MOST = {"smoke": 3.0, "quick": 5.0, "paper": 5.0}
"""The largest factor for which a profile has rows."""
METHODS = tuple(
    f"{carried}_{size}" for size in FACTORS for carried in CARRIED if size != "same" or "divided" not in carried
)


def config(method: str, profile: str) -> dict:
    """Everything but the seed: what is carried, the factor, and the configuration of the learned steps."""
    carried, size = method.rsplit("_", 1)
    learned = LEARNING.configuration(LEARNED, profile)
    return {"carried": carried, "factor": min(FACTORS[size], MOST[profile]), "profile": profile, "learned": learned}


def resized(factor: float, training: list[Problem], test: list[Problem]) -> list[Problem]:
    """Each test problem with ``factor`` times its rows."""
    made = []
    for number, problem in enumerate(test):
        pool = [problem, *test[number + 1 :], *test[:number], *reversed(training)]
        rows = round(factor * problem.posterior.num_data)
        inputs = torch.cat([one.posterior.inputs for one in pool])[:rows]
        labels = torch.cat([one.posterior.labels for one in pool])[:rows]
        made.append(Problem(LogisticPosterior(inputs, labels), problem.inputs, problem.labels))
    return made


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Draws on the resized test problems; nothing is trained here, but the steps where their record is missing."""
    learned = config["learned"]
    training, test = problems(learned, context)
    test = resized(config["factor"], training, test)
    divisor = config["factor"] if config["carried"].endswith("_divided") else 1.0
    draw = _copied if config["carried"].startswith("laplace") else _stepped
    metrics, arrays = judged(draw(config, context, training, test, divisor), test)
    return Outcome(metrics | {"rows": float(test[0].posterior.num_data)}, arrays)


def _stepped(
    config: dict, context: RunContext, training: list[Problem], test: list[Problem], divisor: float
) -> list[Tensor]:
    learned = config["learned"]
    record = load_or_run(LEARNING.cell(LEARNED, context.seed, config["profile"]))
    steps = record.arrays()["steps"].to(context.device) / divisor
    draws = []
    for problem in test:
        network = network_on(learned, problem.posterior, context.device, step_size=steps)
        draws.append(network.sample(learned["chains"], rng_of(context, 2)))
    return draws


def _copied(
    config: dict, context: RunContext, training: list[Problem], test: list[Problem], divisor: float
) -> list[Tensor]:
    mode, covariance = fitted(training[0])
    noise = standard_normal((config["learned"]["chains"], len(mode)), rng_of(context, 2), mode)
    draws = mode + noise @ torch.linalg.cholesky(covariance / divisor).mT
    return [draws.float()] * len(test)


def deviations(method: str, profile: str) -> str:
    """The paper has no such comparison."""
    return "ours: the paper uses its steps on problems of one size"


EXPERIMENTS = (
    Experiment(
        name="wild-logistic-sizes",
        title="Do step sizes travel across N? Those learned on problems of one size, on posteriors of other sizes",
        methods=METHODS,
        config=config,
        seeds=wild_logistic.seeds,
        run=run,
        deviations=deviations,
        data_sets=wild_logistic.data_sets,
    ),
)
