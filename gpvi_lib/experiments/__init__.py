"""The experiments, by name."""

from __future__ import annotations

from gpvi_lib.errors import UnknownName
from gpvi_lib.experiments import (
    activations,
    bayesian_linear_regression,
    class_reference,
    class_uncertainty,
    classification,
    descent,
    energy_potentials,
    folds,
    fpovi_adversarial,
    fpovi_bandits,
    fpovi_exact,
    fpovi_mnist,
    fpovi_toy,
    fpovi_uci,
    gaussian_density,
    inverse_cost,
    inverse_solvers,
    livi_cifar10,
    livi_entropy,
    livi_mnist,
    livi_problem,
    livi_toy,
    livi_uci,
    nuts_reference,
    one_dimensional_regression,
    open_category,
    overhead,
    smooth,
    uci_regression,
    wild_controls,
    wild_logistic,
    wild_mixture,
)
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *gaussian_density.EXPERIMENTS,
        *gaussian_density.LONGER,
        gaussian_density.CONTROL,
        gaussian_density.VARIANT,
        *bayesian_linear_regression.EXPERIMENTS,
        nuts_reference.EXPERIMENT,
        *classification.EXPERIMENTS,
        class_reference.EXPERIMENT,
        *class_uncertainty.EXPERIMENTS,
        *descent.EXPERIMENTS,
        *energy_potentials.EXPERIMENTS,
        folds.EXPERIMENT,
        *fpovi_toy.EXPERIMENTS,
        fpovi_exact.EXPERIMENT,
        *fpovi_bandits.EXPERIMENTS,
        *fpovi_uci.EXPERIMENTS,
        fpovi_mnist.EXPERIMENT,
        fpovi_adversarial.EXPERIMENT,
        inverse_cost.EXPERIMENT,
        inverse_solvers.EXPERIMENT,
        *one_dimensional_regression.EXPERIMENTS,
        *open_category.EXPERIMENTS,
        overhead.EXPERIMENT,
        activations.EXPERIMENT,
        *smooth.EXPERIMENTS,
        uci_regression.EXPERIMENT,
        wild_mixture.EXPERIMENT,
        wild_controls.EXPERIMENT,
        wild_logistic.EXPERIMENT,
        livi_problem.REFERENCE,
        livi_toy.EXPERIMENT,
        livi_entropy.EXPERIMENT,
        *livi_uci.EXPERIMENTS,
        *livi_mnist.EXPERIMENTS,
        livi_cifar10.EXPERIMENT,
    )
}


def get_experiment(name: str | Experiment) -> Experiment:
    """The experiment called `name` (an `Experiment` is returned as it is).

    Raises:
        UnknownName: if there is none of that name; the message lists the valid ones.
    """
    if isinstance(name, Experiment):
        return name
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "RunContext", "Score", "get_experiment"]
