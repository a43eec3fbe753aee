"""The page that says how far our runs go is what records and configurations say, and leaves nothing out."""

import re
from dataclasses import replace

import pytest

from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS, get_experiment
from gpvi_lib.experiments.printed import PRINTED
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import steps_of
from gpvi_lib.paths import repository
from gpvi_lib.report import how_far, scoreboard
from gpvi_lib.report.how_far import Row

PAPERS = ("gpvi/", "fpovi/", "livi/", "wild-vi/")
ALIKE = {item for item in PRINTED if item.startswith(("fpovi/table5/", "fpovi/figure1/"))}
"""Of the runs of another item: likelihoods beside errors, other regions of the toy."""
SETS = ("uci-regression", "livi-uci", "livi-uci-chains")
PAGE = (repository() / "docs" / "how-far.md").read_text()


@pytest.fixture(scope="module")
def ours():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPVI_RESULTS", raising=False)
        yield scoreboard.collect("paper")


def test_the_committed_page_is_a_fresh_one(monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS", raising=False)
    assert how_far.page() == PAGE, "run: python -m gpvi_lib scoreboard"


def test_every_run_behind_a_number_of_the_paper_has_a_row(ours):
    shown = {(row.experiment.name, row.method) for section in how_far.SECTIONS for row in how_far.rows(section, ours)}
    behind = {
        found.run
        for (item, *_), found in ours.items()
        if item.startswith(PAPERS) and "section4.5" not in item and found.steps
    }
    assert len(behind) > 150
    assert behind <= shown, f"no row for {sorted(behind - shown)}: add a Section to SECTIONS of report/how_far.py"
    items = {item for item, *_ in ours if item.startswith(PAPERS)} - {"gpvi/section4.5/overhead_vs_amortized_svgd"}
    parts = {item for section in how_far.SECTIONS for item, *_ in section.parts}
    assert items - ALIKE <= parts | {item for item in items if item.startswith("fpovi/figure1/")} and parts <= set(
        PRINTED
    )
    assert set(PRINTED) - ALIKE <= parts


@pytest.mark.parametrize("item", ["gpvi/table3/mnist", "gpvi/figure4"])
def test_a_section_without_a_printed_length_says_where_to_enter_it(ours, item, monkeypatch):
    (section,) = [section for section in how_far.SECTIONS if item in {part[0] for part in section.parts}]
    monkeypatch.delitem(PRINTED, item)
    with pytest.raises(GPVIError, match=f"{item} has a section here and no length: enter it in PRINTED of"):
        how_far.rows(section, ours)


def test_no_run_has_two_rows(ours):
    """A run of ``uci-regression`` is of several sets, and has a row for each."""
    shown = [
        (row.experiment.name, row.method, row.part if row.experiment.name in SETS else "")
        for section in how_far.SECTIONS
        for row in how_far.rows(section, ours)
    ]
    assert len(shown) == len(set(shown))
    for table in PAGE.split("\n## ")[1:]:
        labels = re.findall(r"^\| ([^|]*?) *\|", table, re.MULTILINE)
        assert len(labels) == len(set(labels)) > 3


def test_the_notebooks_that_the_page_names_are_there_and_lead_back():
    for name in {section.notebook for section in how_far.SECTIONS}:
        assert f"../notebooks/{name}.ipynb" in PAGE
        first_cell = (repository() / "notebooks" / f"{name}.ipynb").read_text().split('"cell_type"')[1]
        assert "(../docs/how-far.md)" in first_cell, name


def row(experiment, method, seeds=3, **change):
    printed = {"printed": 50_000, "unit": 1, "part": ""} | change
    return Row("", get_experiment(experiment), method, seeds, **printed)


@pytest.mark.parametrize(
    ("shown", "length", "share"),
    [
        (row("bayesian-linear-regression", "gpvi"), "50,000 / 50,000 steps", "100 %"),
        (row("bayesian-linear-regression", "gpvi_best"), "15,000 / 50,000 steps", "30 %"),
        (row("classification-4", "gpvi", printed=500_000), "400 / 500,000 steps", "0.08 %"),
        (row("gaussian-density-2d", "gpvi", printed=None), "10,000 / – steps", "–"),
        (row("bayesian-linear-regression", "hmc", printed=25_000), "25,000 / 25,000 proposals", "100 %"),
        (row("open-category-mnist-published", "gpvi", 0, printed=100, unit=720), "not run / 100 steps", "–"),
        (row("uci-regression", "hmc", printed=None, unit=5), "70 / – proposals", "–"),
    ],
)
def test_length_and_share(shown, length, share):
    assert (how_far.length(shown, "steps"), how_far.share(shown)) == (length, share)


def test_epochs_are_steps_over_those_of_an_epoch():
    shown = row("open-category-mnist", "gpvi", printed=100, unit=720)
    assert (how_far.length(shown, "epochs"), how_far.share(shown)) == ("3 / 100 epochs", "3 %")


@pytest.mark.parametrize(
    ("experiment", "method", "expected"),
    [
        ("classification-4", "gpvi", ("32", "all", "1")),
        ("classification-4", "svgd", ("100", "all", "–")),
        ("classification-4", "amortized_svgd", ("100", "all", "none")),
        ("classification-4", "hmc_best", ("–", "all", "–")),
        ("open-category-mnist", "gpvi_authors", ("10", "50", "trained from 0.01")),
        ("open-category-mnist", "gpvi_best", ("10", "50", "trained from 0.3 of the prior's scale, one per weight")),
    ],
)
def test_samples_batch_and_lambda(experiment, method, expected):
    config = row(experiment, method).config
    assert (how_far.samples(config), how_far.batch(config, True), how_far.noise_scale(config)) == expected
    assert how_far.batch(config, False) == "–"


def test_what_has_a_column_is_not_said_twice():
    said = "2,000 of 50,000 steps; prior N(0, I), 10 samples a step instead of 100, no λ; one trained λ per weight"
    experiment = replace(get_experiment("classification-4"), deviations=lambda method, profile: said)
    assert how_far.differs(replace(row("classification-4", "gpvi"), experiment=experiment)) == ["prior N(0, I)"]


@pytest.mark.parametrize(
    ("title", "without", "expected"),
    [
        ("f-POVI, Figure 5", ("exact_gp",), ("SVGD, width 5", "5,000 / – steps", "3", "50", "all")),
        (
            "f-POVI, Figure 9",
            ("down_sampled", "floored", "draws"),
            ("Networks, minibatches", "20,000 / 20,000 steps", "1", "1,000", "10"),
        ),
        ("LIVI, F.5", (), ("L″, 5 iterations, σ = 0.03", "5,000 / – steps", "1", "3", "all")),
    ],
)
def test_an_experiment_without_a_score_has_its_rows_too(ours, title, without, expected):
    """All methods but those that train nothing."""
    (section,) = (one for one in how_far.SECTIONS if one.title.startswith(title))
    found = {row.label: row for row in how_far.rows(section, ours)}
    shown = {row.method for row in found.values()}
    assert shown == set(next(iter(found.values())).experiment.methods) - set(without)
    row = found[expected[0]]
    counts = how_far.length(row, "steps"), str(row.seeds), how_far.samples(row.config)
    assert (row.label, *counts, how_far.batch(row.config, section.data)) == expected


def test_a_row_without_records_says_so(ours):
    section = next(one for one in how_far.SECTIONS if one.title.startswith("Table 4"))
    unrecorded = {key: found for key, found in ours.items() if found.run[1] != "mf_vi"}
    found = {row.label: row for row in how_far.rows(section, unrecorded) if not row.part}
    assert found["Mean-field VI"].seeds == 0 and found["SVGD"].seeds >= 1
    line = how_far.table(section, [found["Mean-field VI"]], []).splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")][1:5] == ["Mean-field VI", "not run / 200 epochs", "–", "0"]


def test_runs_that_take_over_a_row_are_longer_and_differ_in_little_else():
    """Those of the published epochs have the printed learning rate, too; GPVI on the plane the printed λ."""
    pairs = [
        (one, other)
        for fillers in scoreboard.planned().values()
        for one in fillers
        for other in fillers
        if other.experiment.name in one.experiment.instead_of
    ]
    assert len({one.experiment.name for one, _ in pairs}) >= 8
    for one, other in pairs:
        longer, shorter = (filler.experiment.config(filler.method, "paper") for filler in (one, other))
        assert steps_of(longer) > steps_of(shorter), one.key
        changed = {key for key in longer.keys() | shorter.keys() if longer.get(key) != shorter.get(key)}
        more = {"lr"} if one.experiment.needs_gpu else {"sampler"} if one.method.endswith("lambda_1_narrow") else set()
        assert changed <= {"steps", "rounds", "history_every"} | more, one.key


def test_all_longer_runs_fill_rows_but_the_controls():
    for experiment in (one for one in EXPERIMENTS.values() if one.instead_of):
        filled = {method for score in experiment.scores for method in experiment.methods_of(score)}
        controls = [name for name in experiment.methods if name not in filled]
        if experiment.name == "energy-full-length":
            assert len(controls) == 5 and all(name.endswith(("exact_jac_narrow", "sinusoid_gpvi")) for name in controls)
        else:
            assert not controls


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("bicgstab_warm", "BiCGSTAB, one iteration a step, warm start"),
        ("bicgstab_warm_fixed_noise", "BiCGSTAB, warm start, noise drawn once"),
    ],
)
def test_a_run_that_ended_in_nan_before_its_length_says_when(method, name):
    """The first and the last of the records' last steps; the length is the longest run's."""
    steps = records.frame(get_experiment("inverse-solvers-long"), "paper", [method])["last_step"].astype(int)
    page = PAGE.split("## Figure 3: solvers")[1].split("\n## ")[0]
    (cells,) = (line.split("|") for line in page.splitlines() if line.startswith(f"| {name} "))
    assert len(steps) == 3 and steps.max() < 50_000
    assert cells[2].strip() == f"{steps.max()} / 50,000 steps"
    assert cells[-2].strip() == f"NaN on 3 of 3 seeds, after {steps.min()} to {steps.max()} steps"


def test_rows_of_a_table_without_a_printed_length_are_in_steps():
    """LIVI prints none for its Table 1; function-space POVI, which has some of the same runs, prints epochs."""
    lengths = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in PAGE.splitlines() if "boston" in line}
    assert lengths["HMC, boston"] == "70 / – proposals" and lengths["Deep ensemble, boston"] == "2,000 / – steps"
