"""The committed results: every record is whole and current, and the scoreboard is built from them."""

import re
from collections import Counter
from dataclasses import replace

import pandas
import pytest
import torch

from gpvi_lib import trust, trust_findings
from gpvi_lib.errors import GPVIError, RecordStale
from gpvi_lib.experiments import (
    EXPERIMENTS,
    activations,
    benchmark,
    classification,
    classification_problem,
    classification_reference,
    digits_long,
    energy,
    fpovi_bandits,
    fpovi_toy,
    gaussian_density,
    get_experiment,
    injectivity,
    injectivity_plane,
    livi_problem,
    nuts_reference,
    open_category,
    uci_regression,
    wild_logistic,
    wild_mixture,
)
from gpvi_lib.experiments import one_dimensional_regression as line
from gpvi_lib.experiments.printed import PRINTED
from gpvi_lib.lab import records
from gpvi_lib.paths import repository
from gpvi_lib.report import scoreboard

RESULTS = repository() / "results"
RECORDS = sorted((RESULTS / "paper").glob("*/*.json"))
NAME = re.compile(r"(?P<method>[\w.]+)-seed(?P<seed>\d+)")


@pytest.fixture(autouse=True)
def _committed_results(monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS", raising=False)


def check(path):
    """A record is that of its cell as the library computes it today, whole, and with the arrays that it says."""
    experiment = get_experiment(path.parent.name)
    cell = NAME.fullmatch(path.stem)
    record = records.load(experiment.cell(cell["method"], int(cell["seed"]), "paper"))
    assert record.path == path
    assert record.seed in experiment.seeds_of(cell["method"], "paper")
    for name, array in record.arrays().items():
        spec = {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("torch.")}
        assert record.array_specs[name] == spec


@pytest.mark.parametrize("experiment", sorted({path.parent.name for path in RECORDS}))
def test_the_committed_records_of_an_experiment_are_valid(experiment):
    """One test an experiment, for a test a record would be a third of all tests; each wrong record is named."""
    wrong = {}
    for path in RECORDS:
        if path.parent.name == experiment:
            try:
                check(path)
            except (AssertionError, GPVIError, TypeError) as error:
                wrong[path.stem] = str(error) or repr(error)
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


OTHER_GRID = torch.linspace(-1, 1, 5, dtype=torch.float64)
CONSTANTS = [
    ("one-dimensional-regression", "svgd", line, "EVALUATION_SEED", 1),
    ("one-dimensional-regression", "hmc", line, "TEST_POINTS", 10),
    ("one-dimensional-regression-controls", "gpvi_exact_jac_lambda_1", line, "GRID", OTHER_GRID),
    ("one-dimensional-regression-reference", "nuts", line, "GRID", OTHER_GRID),
    ("smooth-figures", "figure1_ksd", line, "TEST_POINTS", 10),
    ("livi-toy", "livi_full", livi_problem, "GRID", OTHER_GRID),
    ("livi-toy-reference", "hmc", livi_problem, "FRESH", 10),
    ("livi-entropy", "full_0.009", livi_problem, "EVALUATION_SEED", 1),
    ("classification-4", "svgd", classification, "EVALUATION_SEED", 1),
    ("classification-reference", "nuts_4", classification_reference, "DIAGNOSED_SIDE", 5),
    ("activations", "classes_tanh", classification, "EVALUATION_SEED", 1),
    ("activations", "ring_tanh", activations, "MEASURE_SEED", 1),
    ("injectivity", "mf_vi", injectivity, "POSTERIOR_SAMPLES", 10),
    ("injectivity-plane", "banana_gpvi", injectivity_plane, "PLANE_SEED", 1),
    ("energy-sinusoid", "flow", energy, "EVALUATION_SEED", 1),
    ("gaussian-density-5d", "gpvi", gaussian_density, "REPULSION_SEED", 1),
    ("nuts-reference", "nuts_bnn", nuts_reference, "TRACE", 10),
    ("fpovi-toy", "svgd", fpovi_toy, "GRID_POINTS", 11),
    ("fpovi-toy-controls", "f_gpvi", fpovi_toy, "BOUND_DRAWS", 10),
    ("fpovi-toy-controls", "gpvi_exact_density", fpovi_toy, "VALUE_NOISE", 0.1),
    ("open-category-digits", "svgd", open_category, "EVALUATION_SEED", 1),
    ("uci-regression", "svgd", uci_regression, "EVALUATION_SEED", 1),
    ("wild-mixture", "svgd_full", wild_mixture, "BOX", 10.0),
    ("wild-mixture-controls", "svgd_full_near", wild_mixture, "FINALISTS", 1),
    ("wild-logistic", "svgd_t10", wild_logistic, "BOX", 10.0),
    ("wild-logistic", "constant_t10", wild_logistic, "WILD_MASTERS", [1e-3]),
    ("wild-logistic", "curvature_t10", wild_logistic, "CURVATURES", [0.5]),
    ("wild-logistic", "sgld_long", wild_logistic, "DECAY", [0.5, 10.0, 0.6]),
    ("wild-logistic", "nuts", wild_logistic, "TREES", {"target_accept": 0.9, "max_tree_depth": 10}),
    ("wild-mixture", "random_search", wild_mixture, "RANDOM", [[-2.0, 0.0, 0.0], [3.0, 9.0, 5.0]]),
    ("wild-mixture", "mala", wild_mixture, "HISTOGRAM", [-10.0, 10.0, 40]),
    ("classification-4", "gpvi_best", classification, "SAMPLES", 50),
    ("digits-long", "gpvi_best", digits_long, "POINTS", 20),
    ("energy-sinusoid", "flow", energy, "GRID", {"half_width": 6.0, "cells": 48, "fine": 8}),
    ("energy-sinusoid", "gpvi", energy, "TAIL_BATCHES", 5),
    ("gaussian-density-5d", "amortized_ksd", gaussian_density, "CRITIC_SAMPLES", 10),
    ("one-dimensional-regression", "gpvi_best", line, "TAILS", 5),
    ("classifier", "gpvi", trust_findings, "K_HAT", 0.8),
    ("check-table", "svgd_gaussian", trust, "SCORED", 10),
    ("classification-2", "svgd", classification_problem, "HIDDEN", (10, 11)),
    ("classification-reference", "nuts_4_again", classification_problem, "HIDDEN", (10, 11)),
    ("injectivity", "mf_vi", injectivity, "HIDDEN", (10, 11)),
    ("livi-toy", "mf_vi", livi_problem, "HIDDEN", (7, 11)),
    ("livi-toy-reference", "hmc", livi_problem, "NUM_LEFT", 39),
    ("livi-entropy", "full_0.009", livi_problem, "NUM_RIGHT", 33),
    ("benchmark-older", "livi_toy_gpvi", livi_problem, "INNER", 0.6),
    ("one-dimensional-regression-reference", "nuts", line, "NUM_DENSE", 77),
    ("one-dimensional-regression", "svgd", line, "NUM_SPARSE", 5),
    ("fpovi-toy-reference", "hmc_50", fpovi_toy, "LEFT", (13, 0.0, 0.6)),
    ("fpovi-toy", "svgd", fpovi_toy, "RIGHT", (8, 0.8, 1.1)),
    ("fpovi-toy", "svgd", fpovi_toy, "INPUT_NOISE", 0.02),
    ("fpovi-bandits-wheel", "gp", fpovi_bandits, "RADIUS", 0.5),
    ("fpovi-bandits-wheel", "svgd", fpovi_bandits, "FIFTH", (1.3, 0.05)),
    ("fpovi-bandits-mushroom", "svgd", fpovi_bandits, "HARM", -30.0),
    ("benchmark", "funnel_mean_field", benchmark, "EVALUATION_SEED", 1),
    ("benchmark", "logistic_livi", benchmark, "BRACKET_SEED", 1),
    ("benchmark", "funnel_refined", benchmark, "START_SEED", 1),
    ("benchmark-older", "table_2_refined", benchmark, "START_SEED", 1),
    ("benchmark-uci", "refined", benchmark, "START_SEED", 1),
    ("benchmark", "funnel_draws", benchmark, "LEVEL", 0.8),
]


@pytest.mark.parametrize(("name", "method", "module", "constant", "value"), CONSTANTS)
def test_a_changed_constant_of_the_evaluation_makes_records_stale(name, method, module, constant, value, monkeypatch):
    cell = get_experiment(name).cell(method, 0, "paper")
    assert records.state(cell) == "valid"
    monkeypatch.setattr(module, constant, value)
    with pytest.raises(RecordStale, match="changed: (evaluated_with|problem|reference|training)"):
        records.load(cell)


def test_every_item_that_an_experiment_fills_has_its_printed_length():
    """But ours on the digits, and a ratio of times, which no training has."""
    items = {score.item for experiment in EXPERIMENTS.values() for score in experiment.scores}
    assert items - PRINTED.keys() == {"digits/open_category", "gpvi/section4.5/overhead_vs_amortized_svgd"}


def test_a_raised_version_of_a_reference_makes_what_is_scored_against_it_stale(monkeypatch):
    cell = get_experiment("classification-4").cell("svgd", 0, "paper")
    raised = replace(classification_reference.REFERENCE, version=1)
    monkeypatch.setattr(classification_reference, "REFERENCE", raised)
    with pytest.raises(RecordStale, match="changed: reference"):
        records.load(cell)


def test_nothing_else_lies_among_the_records():
    """Neither a temporary file of a killed run, nor arrays without their record, nor a forgotten note."""
    found = {path for path in RESULTS.rglob("*") if path.is_file()}
    arrays = {path.with_suffix(".safetensors") for path in RECORDS}
    other_profiles = {path for path in found if path.relative_to(RESULTS).parts[0] in ("smoke", "quick")}
    timings = {
        RESULTS / "bench" / f"{path.stem}{end}"
        for path in (RESULTS / "bench").glob("*.json")
        for end in (".json", ".md")
    }
    known = {RESULTS / "scoreboard.csv", RESULTS / "README.md", RESULTS / "queue.toml", *RECORDS, *arrays, *timings}
    assert found - other_profiles <= known
    orphans = {path for path in found if path.suffix == ".safetensors" and not path.with_suffix(".json").exists()}
    assert not orphans


def test_the_committed_scoreboard_is_a_fresh_build():
    assert (RESULTS / "scoreboard.csv").read_text() == scoreboard.to_csv(scoreboard.build("paper"))


def test_the_records_behind_the_scoreboard_are_here():
    """The tests above say nothing of records that are not here, so count them from the other side, row by row."""
    here = Counter((path.parent.name, NAME.fullmatch(path.stem)["method"]) for path in RECORDS)
    behind: Counter = Counter()
    for experiment in EXPERIMENTS.values():
        for method in experiment.methods:
            for score in experiment.scores:
                behind[score.item, score.metric, *experiment.row(method, score)] += here[experiment.name, method]
    board = pandas.read_csv(RESULTS / "scoreboard.csv")
    filled = board[board["n_seeds"] > 0]
    assert len(filled) > 400
    for row in filled.itertuples():
        assert behind[row.item, row.metric, row.method, row.setting] >= row.n_seeds, row
