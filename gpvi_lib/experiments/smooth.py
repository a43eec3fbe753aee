"""Rows of tables and figures whose loss contains a network's slopes: tanh instead of ReLU, and nothing else changed.

The rows themselves are in their own experiments, with ReLU as the paper has it; beside those records these say what the
kinks were worth. (Tables 1, 2 and 5 have linear generators, so there only the Stein critic has slopes that jump.)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from . import bayesian_linear_regression, class_uncertainty, gaussian_density, one_dimensional_regression, open_category
from .base import Experiment, Outcome, RunContext, Score
from .build import with_change

SMOOTH = {"activation": "tanh"}
SAMPLER = {"sampler": SMOOTH}


def _smooth_critic(experiment: Experiment, row: str, profile: str) -> dict:
    """The change that gives a row's critic a smooth activation; :func:`with_change` goes one level deep."""
    direction = experiment.config(row, profile)["objective"]["direction"]
    return {"objective": {"direction": direction | SMOOTH}}


def _rows(experiment: Experiment, name: str, rows: tuple[str, ...]) -> dict[str, tuple[Experiment, str]]:
    return {f"{name}_{row}": (experiment, row) for row in rows}


FIGURES = {
    **_rows(class_uncertainty.FOUR, "figure8", ("gpvi_exact_density", "ksd", "amortized_ksd")),
    **_rows(class_uncertainty.TWO, "figure9", ("gpvi_exact_density", "ksd", "amortized_ksd")),
    **_rows(one_dimensional_regression.REGRESSION, "figure1", ("gpvi_exact_density", "ksd")),
    **_rows(open_category.DIGITS, "digits", ("gpvi_exact_density",)),
}
"""Method -> the experiment and the row that it varies."""
TABLES = {
    **_rows(gaussian_density.EXPERIMENTS[0], "table1_2d", ("amortized_ksd",)),
    **_rows(gaussian_density.EXPERIMENTS[1], "table1_5d", ("amortized_ksd",)),
    **_rows(bayesian_linear_regression.EXPERIMENT, "table2", ("ksd", "amortized_ksd")),
}


def config(rows: dict[str, tuple[Experiment, str]], method: str, profile: str) -> dict:
    """The row's configuration with a smooth activation."""
    experiment, row = rows[method]
    printed = experiment.config(row, profile)
    critic = printed["objective"].get("direction", {}).get("kind") == "stein_critic"
    change = _smooth_critic(experiment, row, profile) if critic else SAMPLER
    return with_change(printed, change)


def run(rows: dict[str, tuple[Experiment, str]], config: dict, method: str, context: RunContext) -> Outcome:
    """As the row's own experiment runs it."""
    experiment, row = rows[method]
    return experiment.run(config, row, context)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper: the row's own deviations, and the activation."""
    experiment, row = TABLES[method]
    return "; ".join(filter(None, [experiment.deviations(row, profile), "tanh critic (the authors' has ReLU)"]))


def _scores() -> tuple[Score, ...]:
    """The best settings of the tables' critics; the paper's metrics of the rows that they vary."""
    found = []
    for experiment in dict.fromkeys(experiment for experiment, _ in TABLES.values()):
        ours = {method: row for method, (of, row) in TABLES.items() if of is experiment}
        for score in experiment.scores:
            if score.setting == "printed" and set(ours.values()) & set(experiment.methods_of(score)):
                found.append(replace(score, setting="best", methods=tuple(ours)))
    return tuple(found)


FIGURE_EXPERIMENT = Experiment(
    name="smooth-figures",
    title="Exact density and Stein critics of Figures 1, 8, 9 and the digits, with tanh instead of ReLU",
    methods=tuple(FIGURES),
    config=partial(config, FIGURES),
    seeds=class_uncertainty.seeds,
    run=partial(run, FIGURES),
)
TABLE_EXPERIMENT = Experiment(
    name="smooth-tables",
    title="Stein critics of Tables 1 and 2, with tanh instead of ReLU",
    methods=tuple(TABLES),
    config=partial(config, TABLES),
    seeds=bayesian_linear_regression.seeds,
    run=partial(run, TABLES),
    scores=_scores(),
    deviations=deviations,
    rows={method: (row, "best") for method, (_, row) in TABLES.items()},
)
EXPERIMENTS = (FIGURE_EXPERIMENT, TABLE_EXPERIMENT)
