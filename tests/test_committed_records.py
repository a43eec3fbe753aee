"""The committed results: every record is whole and current, and the scoreboard is built from them."""

import re
from collections import Counter

import pandas
import pytest

from gpvi_lib.experiments import EXPERIMENTS, get_experiment
from gpvi_lib.lab import records
from gpvi_lib.paths import repository
from gpvi_lib.report import scoreboard

RESULTS = repository() / "results"
RECORDS = sorted((RESULTS / "paper").glob("*/*.json"))
NAME = re.compile(r"(?P<method>[\w.]+)-seed(?P<seed>\d+)")


@pytest.fixture(autouse=True)
def _committed_results(monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS", raising=False)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_committed_record_is_valid(path):
    experiment = get_experiment(path.parent.name)
    cell = NAME.fullmatch(path.stem)
    record = records.load(experiment.cell(cell["method"], int(cell["seed"]), "paper"))
    assert record.path == path
    assert record.seed in experiment.seeds("paper")
    for name, array in record.arrays().items():
        spec = {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("torch.")}
        assert record.array_specs[name] == spec


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
