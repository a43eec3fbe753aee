"""The experiments, by name: a module is called as those that it registers, in its ``EXPERIMENTS``."""

from __future__ import annotations

from gpvi_lib.errors import UnknownName
from gpvi_lib.experiments import (
    activations,
    bayesian_linear_regression,
    benchmark,
    benchmark_older,
    benchmark_uci,
    check_table,
    classification,
    classification_reference,
    classifier,
    descent,
    digits_long,
    energy,
    fpovi_adversarial,
    fpovi_bandits,
    fpovi_exact,
    fpovi_mnist,
    fpovi_toy,
    fpovi_uci,
    gaussian_density,
    injectivity,
    injectivity_plane,
    inverse_cost,
    inverse_solvers,
    livi_cifar10,
    livi_entropy,
    livi_mnist,
    livi_toy,
    livi_toy_reference,
    livi_uci,
    nuts_reference,
    one_dimensional_regression,
    open_category,
    overhead,
    smooth,
    uci_regression,
    wild_logistic,
    wild_logistic_sizes,
    wild_mixture,
    wild_mixture_controls,
)
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score

MODULES = (
    gaussian_density,
    bayesian_linear_regression,
    nuts_reference,
    injectivity,
    classification_reference,
    classification,
    descent,
    energy,
    injectivity_plane,
    fpovi_toy,
    fpovi_exact,
    fpovi_bandits,
    fpovi_uci,
    fpovi_mnist,
    fpovi_adversarial,
    inverse_cost,
    inverse_solvers,
    one_dimensional_regression,
    open_category,
    overhead,
    activations,
    smooth,
    digits_long,
    uci_regression,
    classifier,
    wild_mixture,
    wild_mixture_controls,
    wild_logistic,
    wild_logistic_sizes,
    livi_toy_reference,
    livi_toy,
    livi_entropy,
    livi_uci,
    livi_mnist,
    livi_cifar10,
    check_table,
    benchmark,
    benchmark_older,
    benchmark_uci,
)
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for module in MODULES for experiment in module.EXPERIMENTS
}


def get_experiment(name: str | Experiment) -> Experiment:
    """The experiment called `name` (an `Experiment` is returned as it is).

    Raises:
        UnknownName: if there is none of that name; the message has the closest ones, and what lists all.
    """
    if isinstance(name, Experiment):
        return name
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS, shown_by="`python -m gpvi_lib list`")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "RunContext", "Score", "get_experiment"]
