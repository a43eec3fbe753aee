"""Rows with a smooth activation differ from their own in that alone."""

import json
from functools import cache

import nbformat
import pytest
import torch

from gpvi_lib import paths
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


@cache
def told() -> str:
    """The Markdown of notebook 00, on one line."""
    (path,) = paths.notebooks_root().glob("00-*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return " ".join(" ".join(cell.source.split()) for cell in cells if cell.cell_type == "markdown")


def both(method, key):
    """One number of each seed that has both: of the row with smooth units, and of the row that it varies."""
    of, row = ROWS[method]
    (experiment,) = (name for name, methods in EXPERIMENTS.items() if method in methods)
    frames = ((get_experiment(experiment), method), (of, row))
    smooth_units, relu = (records.frame(one, "paper", [name]).set_index("seed")[key] for one, name in frames)
    return smooth_units, relu[smooth_units.index]


EXPERIMENTS = {
    "smooth-figures": smooth.FIGURES, "smooth-tables": smooth.TABLES, "smooth-uci": smooth.UCI,
    "smooth-mnist": smooth.MNIST,
}  # fmt: skip
EXCEPT_TWO_CLASSES = "Its distance from the reference hardly moved, except on two classes."
GAINS = "The functional gradient gains from softplus on the digits and on Figure 1"
DIGITS = "On the digits it is behind ReLU on two of three seeds, and so is the Stein critic;"
TWENTY = "the exact density with tanh is behind on most splits, on energy and yacht on all twenty and far,"
LEVEL = "level with ReLU there: ahead on energy (15 of 20 splits), behind on boston and yacht (6 and 7 of 20)."
AHEAD = [
    (EXCEPT_TWO_CLASSES, "figure9_gpvi_exact_density", "total_variation", (3, 3)),
    ("its error of Σ falls from 0.62 to 0.39 (smaller on 8 of 10 seeds)", "table2_ksd", "sigma_error", (8, 10)),
    ("the amortised critic's from 0.86 to 0.57 (9 of 10)", "table2_amortized_ksd", "sigma_error", (9, 10)),
    ("and the error of μ falls on all seeds", "table2_ksd", "mu_error", (10, 10)),
    ("and the error of μ falls on all seeds", "table2_amortized_ksd", "mu_error", (10, 10)),
    (GAINS, "digits_gpvi_best", "auroc", (3, 3)),
    (GAINS, "digits_gpvi_best", "accuracy_percent", (3, 3)),
    (DIGITS, "digits_gpvi_exact_density", "auroc", (1, 3)),
    (DIGITS, "digits_ksd", "auroc", (1, 3)),
    (TWENTY, "uci_gpvi_exact_density", "boston_log_likelihood", (3, 20)),
    (TWENTY, "uci_gpvi_exact_density", "concrete_log_likelihood", (3, 20)),
    (TWENTY, "uci_gpvi_exact_density", "energy_log_likelihood", (0, 20)),
    (TWENTY, "uci_gpvi_exact_density", "yacht_log_likelihood", (0, 20)),
    (LEVEL, "uci_gpvi", "energy_log_likelihood", (15, 20)),
    (LEVEL, "uci_gpvi", "boston_log_likelihood", (6, 20)),
    (LEVEL, "uci_gpvi", "yacht_log_likelihood", (7, 20)),
]
"""What notebook 00 says, and on how many seeds the smooth row is ahead of the row that it varies."""


@pytest.mark.parametrize(("said", "method", "key", "found"), AHEAD, ids=[f"{case[1]}-{case[2]}" for case in AHEAD])
def test_on_how_many_seeds_smooth_units_are_ahead(said, method, key, found):
    smooth_units, relu = both(method, key)
    gain = smooth_units - relu if key.endswith(("auroc", "percent", "likelihood")) else relu - smooth_units
    assert (int((gain > 0).sum()), len(gain)) == found and said in told()


@pytest.mark.parametrize("figure", ["figure8", "figure9"])
@pytest.mark.parametrize("method", ["ksd", "amortized_ksd"])
def test_medians_of_the_critic_come_nearer_on_classes(figure, method):
    smooth_units, relu = both(f"{figure}_{method}", "total_variation")
    assert smooth_units.median() < relu.median() and "Medians come nearer on Figures 8 and 9." in told()


def test_mnist_with_smooth_units():
    softplus, relu = both("mnist_gpvi_best", "auroc")
    said = (
        "its three runs with softplus end at an AUROC of {:.2f}, {:.2f} and {:.2f}, those with ReLU at {:.2f} to {:.2f}"
    )
    assert said.format(*softplus, relu.min(), relu.max()) in told()
    tanh, relu = both("mnist_gpvi_exact_density", "auroc")
    assert len(tanh) == 3 and (tanh - relu).abs().max() < 0.005
    assert "the exact density with tanh is level with ReLU (AUROC within 0.005 on each seed;" in told()
