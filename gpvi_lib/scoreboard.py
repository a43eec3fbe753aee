"""The scoreboard: every published number beside ours, built from records alone.

The published numbers are in `paper_tables.csv`, in the package. A verdict compares the two means by

    s = sqrt(paper_sd² + ours_sd²/n + r²),   r = half a unit in the last printed digit of the paper's mean,

with n our number of seeds and an sd that is not known counted as 0. Ours enters as the standard error of the
mean: runs that scatter widely about a bad mean must not count as a reproduction. `better` if ours is ahead by
more than 2s, `not reproduced` if it is behind by more than 2s, else `reproduced`. Runs that stand in for others of
the paper's length, as yet without records, are `too short` for any of these.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from gpvi_lib import records
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS, Experiment, Score
from gpvi_lib.paths import results_root, write_atomically
from gpvi_lib.profiles import Profile, get_profile

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "item",
    "method",
    "setting",
    "metric",
    "better",
    "paper_mean",
    "paper_sd",
    "ours_mean",
    "ours_sd",
    "n_seeds",
    "profile",
    "deviations",
    "verdict",
)


@dataclass(frozen=True)
class Published:
    """One number of a paper: its mean as printed, for the digits tell its precision, and sd (NaN if none)."""

    item: str
    method: str
    metric: str
    better: str
    printed: str
    sd: float

    @property
    def mean(self) -> float:
        """The mean as a number."""
        return float(self.printed)


@dataclass(frozen=True)
class Ours:
    """Our number for one row: the mean over seeds, the sample standard deviation (NaN for one seed), and more.

    Attributes:
        stands_in: whether a longer experiment, with the paper's number of steps, would take the row over.
    """

    mean: float
    sd: float
    n_seeds: int
    better: str
    deviations: str
    stands_in: bool = False


RowKey = tuple[str, str, str, str]  # item, method, metric, setting


def published() -> list[Published]:
    """The published numbers, in the order of the papers' tables."""
    text = files(__package__).joinpath("paper_tables.csv").read_text()
    return [
        Published(
            row["item"],
            row["method"],
            row["metric"],
            row["better"],
            row["paper_mean"],
            float(row["paper_sd"] or "nan"),
        )
        for row in csv.DictReader(text.splitlines())
    ]


def verdict(paper: Published, ours: Ours) -> str:
    """`better`, `reproduced`, `not reproduced` or `too short`; the module says by which rule."""
    if ours.stands_in:
        return "too short"
    exponent = Decimal(paper.printed).as_tuple().exponent
    assert isinstance(exponent, int), "published numbers are finite"
    resolution = 0.5 * 10.0**exponent
    standard_error = ours.sd / math.sqrt(ours.n_seeds)
    spreads = [sd for sd in (paper.sd, standard_error) if not math.isnan(sd)]
    tolerance = 2 * math.hypot(*spreads, resolution)
    ahead = ours.mean - paper.mean if paper.better == "higher" else paper.mean - ours.mean
    if ahead > tolerance:
        return "better"
    return "not reproduced" if ahead < -tolerance else "reproduced"


def build(profile: str | Profile = "paper") -> pandas.DataFrame:
    """The scoreboard at a profile: one row for each published number, then rows of ours that no paper has.

    A published number with records of our own `best` setting has a second row for it.

    Raises:
        RecordDamaged, RecordStale: if a record cannot be trusted.
        GPVIError: if an experiment's scores do not fit its records or the published table.
    """
    import pandas

    profile = get_profile(profile)
    ours = _collect(profile)
    rows = []
    for paper in published():
        printed = ours.pop((paper.item, paper.method, paper.metric, "printed"), None)
        rows.append(_row(paper, "printed", printed, profile))
        best = ours.pop((paper.item, paper.method, paper.metric, "best"), None)
        if best is not None:
            rows.append(_row(paper, "best", best, profile))
    for (item, method, metric, setting), mine in ours.items():
        unpublished = Published(item, method, metric, mine.better, "nan", math.nan)
        rows.append(_row(unpublished, setting, mine, profile))
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def to_csv(board: pandas.DataFrame) -> str:
    """The text of `scoreboard.csv`: numbers to 6 significant digits, unknown ones empty."""
    return board.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def path_of(profile: str | Profile = "paper") -> Path:
    """The scoreboard's file: `results/scoreboard.csv`; `results/<profile>/scoreboard.csv` for others."""
    profile = get_profile(profile)
    folder = results_root() if profile.name == "paper" else results_root() / profile.name
    return folder / "scoreboard.csv"


def write(profile: str | Profile = "paper", path: Path | None = None) -> Path:
    """Builds the scoreboard and writes it to `path`, by default `path_of(profile)`; returns the path."""
    path = path_of(profile) if path is None else Path(path)
    write_atomically(path, to_csv(build(profile)).encode())
    return path


def _row(paper: Published, setting: str, ours: Ours | None, profile: Profile) -> tuple:
    if ours is None:
        result = (math.nan, math.nan, 0, profile.name, "", "not run")
    else:
        if ours.better != paper.better:
            raise GPVIError(f"{paper.item} {paper.metric}: the paper says {paper.better} is better, our score not")
        judged = "no published value" if math.isnan(paper.mean) else verdict(paper, ours)
        result = (ours.mean, ours.sd, ours.n_seeds, profile.name, ours.deviations, judged)
    head = (paper.item, paper.method, setting, paper.metric, paper.better, paper.mean, paper.sd)
    return head + result


def _collect(profile: Profile) -> dict[RowKey, Ours]:
    """Our number for each row that the records fill, in the order of experiments, scores and methods.

    Of two experiments that fill a row, one has to say that it does so `instead_of` the other.
    """
    ours: dict[RowKey, Ours] = {}
    filled_by: dict[RowKey, Experiment] = {}
    for experiment in EXPERIMENTS.values():
        board = records.frame(experiment, profile, missing="skip")
        for score in experiment.scores if len(board) else ():
            if score.profiles is not None and profile.name not in score.profiles:
                continue
            for key, number in _scored(experiment, score, board, profile).items():
                other = filled_by.get(key)
                if other is None or experiment.instead_of == other.name:
                    ours[key], filled_by[key] = number, experiment
                elif other.instead_of != experiment.name:
                    raise GPVIError(f"two scores fill the row {' '.join(key)}; one is in {experiment.name}")
    return ours


def _scored(experiment: Experiment, score: Score, board: pandas.DataFrame, profile: Profile) -> dict[RowKey, Ours]:
    """The rows that one score fills; a method whose records do not have its metric fills none."""
    if score.key not in board:
        raise GPVIError(f"no record of {experiment.name} at {profile.name} has the metric {score.key!r} of its score")
    numbers = {}
    stands_in = any(other.instead_of == experiment.name for other in EXPERIMENTS.values())
    for method in experiment.methods_of(score):
        values = board.loc[board["method"] == method, score.key].dropna().tolist()
        if values:
            paper_method, setting = experiment.row(method, score)
            key = (score.item, paper_method, score.metric, setting)
            spread = stdev(values) if len(values) > 1 else math.nan
            deviations = experiment.deviations(method, profile.name)
            if key in numbers:
                raise GPVIError(f"two methods of {experiment.name} fill the row {' '.join(key)}")
            numbers[key] = Ours(mean(values), spread, len(values), score.better, deviations, stands_in)
    return numbers
