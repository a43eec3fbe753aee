"""Rows with a smooth activation differ from their own in that alone."""

import json

import pytest
import torch

from gpvi_lib.experiments import get_experiment, smooth
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import RunContext

ROWS = smooth.FIGURES | smooth.TABLES | smooth.UCI | smooth.MNIST


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_nothing_but_the_activation_differs(method, profile):
    experiment, row = ROWS[method]
    printed, ours = experiment.config(row, profile), smooth.config(ROWS, method, profile)
    assert printed != ours
    text = json.dumps(ours, sort_keys=True)
    units = "softplus" if printed["objective"]["kind"] == "gpvi" else "tanh"
    for ending in (f', "activation": "{units}"', f'"activation": "{units}", '):
        text = text.replace(ending, "", 1)
    assert text == json.dumps(printed, sort_keys=True) and text.count("activation") == 0


@pytest.mark.parametrize("method", ["digits_gpvi_exact_density", "figure1_gpvi_exact_density", "table2_amortized_ksd"])
def test_a_run_is_that_of_the_row_with_another_activation(method):
    experiment, row = ROWS[method]
    context = RunContext(torch.device("cpu"), 0, None, method, progress=False)
    config = json.loads(json.dumps(smooth.config(ROWS, method, "smoke")))
    ours = smooth.run(ROWS, config, method, context)
    printed = experiment.run(json.loads(json.dumps(experiment.config(row, "smoke"))), row, context)
    assert ours.metrics.keys() == printed.metrics.keys() and ours.metrics != printed.metrics


def test_the_tables_rows_are_best_settings_of_published_methods():
    experiment = get_experiment("smooth-tables")
    found = {
        (score.item, score.metric, *experiment.row(m, score)) for score in experiment.scores for m in score.methods
    }
    assert found == {
        ("gpvi/table1/2d", "sigma_error", "amortized_ksd", "best"),
        ("gpvi/table1/5d", "sigma_error", "amortized_ksd", "best"),
        *(("gpvi/table2", f"{m}_error", row, "best") for m in ("mu", "sigma") for row in ("ksd", "amortized_ksd")),
    }


def _ahead(experiment, method, key, more_is_better=False):
    """On how many seeds the smooth row is ahead of the row it varies, and of how many."""
    of, row = ROWS[method]
    both = records.frame(of, "paper", [row]).merge(
        records.frame(experiment, "paper", [method]), on="seed", suffixes=("", "_smooth")
    )
    gain = both[f"{key}_smooth"] - both[key]
    return int((gain > 0).sum() if more_is_better else (gain < 0).sum()), len(both)


@pytest.mark.parametrize(
    ("experiment", "method", "key", "more_is_better", "found"),
    [
        (get_experiment("smooth-figures"), "figure1_gpvi_exact_density", "elbo", True, (3, 3)),
        (get_experiment("smooth-figures"), "figure8_gpvi_exact_density", "elbo", True, (3, 3)),
        (get_experiment("smooth-figures"), "figure9_gpvi_exact_density", "elbo", True, (3, 3)),
        (get_experiment("smooth-figures"), "figure9_gpvi_exact_density", "total_variation", False, (3, 3)),
        (get_experiment("smooth-figures"), "figure1_ksd", "w1", False, (0, 3)),
        (get_experiment("smooth-figures"), "figure8_ksd", "total_variation", False, (3, 3)),
        (get_experiment("smooth-figures"), "figure9_ksd", "total_variation", False, (2, 3)),
        (get_experiment("smooth-figures"), "figure1_gpvi_best", "w1", False, (3, 3)),
        (get_experiment("smooth-figures"), "figure8_gpvi_best", "total_variation", False, (2, 3)),
        (get_experiment("smooth-figures"), "figure9_gpvi_best", "total_variation", False, (2, 3)),
        (get_experiment("smooth-figures"), "digits_ksd", "auroc", True, (1, 3)),
        (get_experiment("smooth-figures"), "digits_amortized_ksd", "auroc", True, (0, 3)),
        (get_experiment("smooth-figures"), "digits_gpvi_best", "auroc", True, (3, 3)),
        (get_experiment("smooth-figures"), "digits_gpvi_best", "accuracy_percent", True, (3, 3)),
        (get_experiment("smooth-figures"), "digits_gpvi_exact_density", "auroc", True, (1, 3)),
        (get_experiment("smooth-tables"), "table1_2d_amortized_ksd", "sigma_error", False, (9, 10)),
        (get_experiment("smooth-tables"), "table1_5d_amortized_ksd", "sigma_error", False, (10, 10)),
        (get_experiment("smooth-tables"), "table2_ksd", "sigma_error", False, (8, 10)),
        (get_experiment("smooth-tables"), "table2_amortized_ksd", "sigma_error", False, (9, 10)),
        (get_experiment("smooth-tables"), "table2_ksd", "mu_error", False, (10, 10)),
        (get_experiment("smooth-tables"), "table2_amortized_ksd", "mu_error", False, (10, 10)),
        (get_experiment("smooth-uci"), "uci_gpvi_exact_density", "energy_log_likelihood", True, (0, 20)),
        (get_experiment("smooth-uci"), "uci_gpvi_exact_density", "yacht_log_likelihood", True, (0, 20)),
        (get_experiment("smooth-uci"), "uci_gpvi", "energy_log_likelihood", True, (15, 20)),
        (get_experiment("smooth-uci"), "uci_gpvi", "boston_log_likelihood", True, (6, 20)),
        (get_experiment("smooth-uci"), "uci_gpvi", "yacht_log_likelihood", True, (7, 20)),
    ],
)
def test_what_notebooks_00_10_11_13_14_and_15_say_of_smooth_units(experiment, method, key, more_is_better, found):
    assert _ahead(experiment, method, key, more_is_better) == found


def _mnist(method):
    """AUROC of all seeds, with smooth units and with ReLU."""
    of, row = ROWS[method]
    cells = ((get_experiment("smooth-mnist"), method), (of, row))
    return [records.frame(experiment, "paper", [name]).set_index("seed")["auroc"] for experiment, name in cells]


def test_what_notebook_00_says_of_mnist():
    softplus, relu = _mnist("mnist_gpvi_best")
    assert softplus.round(2).tolist() == [0.50, 0.75, 0.50] and relu.round(2).tolist() == [0.97, 0.96, 0.96]
    tanh, relu = _mnist("mnist_gpvi_exact_density")
    assert len(tanh) == 3 and (tanh > relu).sum() == 1 and (tanh - relu).abs().max() < 0.005
