"""Rows with a smooth activation differ from their own in that alone."""

import json

import pytest
import torch

from gpvi_lib.experiments import smooth
from gpvi_lib.experiments.base import RunContext

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
    experiment = smooth.TABLE_EXPERIMENT
    found = {
        (score.item, score.metric, *experiment.row(m, score)) for score in experiment.scores for m in score.methods
    }
    assert found == {
        ("gpvi/table1/2d", "sigma_error", "amortized_ksd", "best"),
        ("gpvi/table1/5d", "sigma_error", "amortized_ksd", "best"),
        *(("gpvi/table2", f"{m}_error", row, "best") for m in ("mu", "sigma") for row in ("ksd", "amortized_ksd")),
    }
