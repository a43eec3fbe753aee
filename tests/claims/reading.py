"""Committed records as tests of claims read them: by experiment, method and metric, one entry for each seed."""

import numpy as np

from gpvi_lib.experiments import get_experiment
from gpvi_lib.lab import records


def runs(experiment, method):
    """The records of all seeds; one that is missing is an error."""
    experiment = get_experiment(experiment)
    return [records.load(experiment.cell(method, seed, "paper")) for seed in experiment.seeds("paper")]


def values(experiment, method, key):
    """One metric."""
    return np.array([run.metrics[key] for run in runs(experiment, method)])


def arrays(experiment, method):
    """The arrays, by name."""
    return [run.arrays() for run in runs(experiment, method)]


def history(experiment, method, key):
    """One quantity along training, (seeds, times)."""
    return np.stack([found[f"history_{key}"].numpy() for found in arrays(experiment, method)])
