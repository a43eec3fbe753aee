"""Rows of tables and figures with smooth units instead of ReLU, and nothing else changed.

The rows themselves are in their own experiments, with ReLU (printed in Tables 8 to 10, elsewhere as in the authors'
code); beside those records these say what the kinks were worth. (Tables 1, 2 and 5 have linear generators, so there
only the Stein critic has slopes that jump.) Where a loss contains the slopes, the units are tanh. The functional
gradient's does not, and has softplus (notebook 02).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gpvi_lib.experiments import (
    bayesian_linear_regression,
    classification,
    gaussian_density,
    one_dimensional_regression,
    open_category,
    uci_regression,
)
from gpvi_lib.experiments.build import with_change
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score

UNITS = {"parvi": "tanh", "elbo": "tanh", "gpvi": "softplus"}
"""Objective -> the smooth units of what it trains: the critic, or the generator."""


VARIED = (
    classification,
    one_dimensional_regression,
    open_category,
    gaussian_density,
    bayesian_linear_regression,
    uci_regression,
)
BY_NAME = {experiment.name: experiment for module in VARIED for experiment in module.EXPERIMENTS}


def _rows(of: str, name: str, rows: tuple[str, ...]) -> dict[str, tuple[Experiment, str]]:
    return {f"{name}_{row}": (BY_NAME[of], row) for row in rows}


FIGURES = {
    **_rows("classification-4", "figure8", ("gpvi_exact_density", "gpvi_best", "ksd", "amortized_ksd")),
    **_rows("classification-2", "figure9", ("gpvi_exact_density", "gpvi_best", "ksd", "amortized_ksd")),
    **_rows("one-dimensional-regression", "figure1", ("gpvi_exact_density", "gpvi_best", "ksd")),
    **_rows("open-category-digits", "digits", ("gpvi_exact_density", "gpvi_best", "ksd", "amortized_ksd")),
}
"""Method -> the experiment and the row that it varies."""
TABLES = {
    **_rows("gaussian-density-2d", "table1_2d", ("amortized_ksd",)),
    **_rows("gaussian-density-5d", "table1_5d", ("amortized_ksd",)),
    **_rows("bayesian-linear-regression", "table2", ("ksd", "amortized_ksd")),
}
MNIST = {
    **_rows("open-category-mnist", "mnist", ("gpvi_exact_density", "gpvi_best", "ksd", "amortized_ksd")),
    **_rows("open-category-mnist-longer", "mnist12", ("gpvi_exact_density", "gpvi_best")),
}
"""After three epochs, and after twelve."""
UCI = _rows("uci-regression", "uci", ("gpvi_exact_density", "gpvi"))


def config(rows: dict[str, tuple[Experiment, str]], method: str, profile: str) -> dict:
    """The row's configuration with a smooth activation."""
    experiment, row = rows[method]
    printed = experiment.configuration(row, profile)
    units = {"activation": UNITS[printed["objective"]["kind"]]}
    direction = printed["objective"].get("direction")  # with_change goes one level deep
    return with_change(printed, {"objective": {"direction": direction | units}} if direction else {"sampler": units})


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


def _experiment(name: str, title: str, varied: dict[str, tuple[Experiment, str]], seeds, **more) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        methods=tuple(varied),
        config=partial(config, varied),
        seeds=seeds,
        run=partial(run, varied),
        **more,
    )


EXPERIMENTS = (
    _experiment(
        "smooth-figures",
        "Rows of Figures 1, 8, 9 and the digits with smooth units instead of ReLU",
        FIGURES,
        classification.seeds,
    ),
    _experiment(
        "smooth-tables",
        "Stein critics of Tables 1 and 2, with tanh instead of ReLU",
        TABLES,
        bayesian_linear_regression.seeds,
        scores=_scores(),
        deviations=deviations,
        rows={method: (row, "best") for method, (_, row) in TABLES.items()},
    ),
    _experiment(
        "smooth-uci",
        "UCI regression with smooth units instead of ReLU",
        UCI,
        uci_regression.seeds,
        data_sets=uci_regression.data_sets,
    ),
    _experiment(
        "smooth-mnist",
        "Table 3 after a few epochs with smooth units instead of ReLU",
        MNIST,
        BY_NAME["open-category-mnist"].seeds,
        data_sets=BY_NAME["open-category-mnist"].data_sets,
        all_cores=True,
    ),
)
