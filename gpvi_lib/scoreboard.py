"""The scoreboard: every published number beside ours, built from records alone.

The published numbers are in `paper_tables.csv`, in the package. A verdict compares the paper's mean with one of ours by

    s = sqrt(paper_sd² + e² + r²),   r = half a unit in the last printed digit of the paper's mean,

with e the standard error of our number, and a spread that is not known counted as 0. `better` if ours is ahead by more
than 2s, `not reproduced` if it is behind by more than 2s, else `reproduced`. Each row has two verdicts:

* `verdict` is about our mean over n seeds, e = sd / sqrt(n). Not the sd itself: runs that scatter widely about a bad
  mean must not count as a reproduction.
* `verdict_median` is about our median, e = 0.93 (q3 - q1) / sqrt(n) with the quartiles of our seeds, which is the
  median's standard error for normal data. One seed of ten, however bad, moves it little. Fewer than 5 seeds have no
  quartiles to speak of: there the verdict is that of the mean.

Where few seeds make the mean, the two can differ, and `words` says both: "reproduced (median: better)". The range over
the seeds is `ours_min` to `ours_max`. The size of a difference, which no verdict tells, is `ratio`: our mean over the
paper's. Runs that stand in for others of the paper's length, as yet without records, are `too short` for any verdict.

`paper_sd` is what the paper prints after ±, entered as it is: the standard error of the mean in Tables 4 to 7 of
function-space POVI; elsewhere, as far as a paper says, the standard deviation over its runs.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from statistics import mean, median, quantiles, stdev
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
    "ours_median",
    "ours_min",
    "ours_max",
    "ratio",
    "n_seeds",
    "profile",
    "deviations",
    "verdict",
    "verdict_median",
)
FEWEST_FOR_QUARTILES = 5


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
    """Our numbers for one row, one for each seed.

    Attributes:
        stands_in: whether a longer experiment, with the paper's number of steps, would take the row over.
    """

    values: tuple[float, ...]
    better: str
    deviations: str
    stands_in: bool = False

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def sd(self) -> float:
        """The sample standard deviation over seeds; NaN for one seed."""
        return stdev(self.values) if len(self.values) > 1 else math.nan

    @property
    def median(self) -> float:
        """The median over seeds."""
        return median(self.values)

    @property
    def median_error(self) -> float:
        """The standard error of the median, 0.93 (q3 - q1) / sqrt(n), as for normal data."""
        q1, _, q3 = quantiles(self.values)
        return 0.93 * (q3 - q1) / math.sqrt(len(self.values))


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
    """`better`, `reproduced`, `not reproduced` or `too short`, about our mean; the module says by which rule."""
    return _judged(paper, ours, ours.mean, ours.sd / math.sqrt(len(ours.values)))


def verdict_of_median(paper: Published, ours: Ours) -> str:
    """The same words about our median; with fewer than 5 seeds about our mean."""
    if len(ours.values) < FEWEST_FOR_QUARTILES:
        return verdict(paper, ours)
    return _judged(paper, ours, ours.median, ours.median_error)


def words(verdict: str, verdict_median: str) -> str:
    """The two verdicts of a row as one phrase: the second is named where it differs."""
    return verdict if verdict_median == verdict else f"{verdict} (median: {verdict_median})"


def _judged(paper: Published, ours: Ours, number: float, error: float) -> str:
    if ours.stands_in:
        return "too short"
    exponent = Decimal(paper.printed).as_tuple().exponent
    assert isinstance(exponent, int), "published numbers are finite"
    resolution = 0.5 * 10.0**exponent
    spreads = [spread for spread in (paper.sd, error) if not math.isnan(spread)]
    tolerance = 2 * math.hypot(*spreads, resolution)
    ahead = number - paper.mean if paper.better == "higher" else paper.mean - number
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
    head = (paper.item, paper.method, setting, paper.metric, paper.better, paper.mean, paper.sd)
    if ours is None:
        return (*head, *[math.nan] * 6, 0, profile.name, "", "not run", "not run")
    if ours.better != paper.better:
        raise GPVIError(f"{paper.item} {paper.metric}: the paper says {paper.better} is better, our score not")
    judged = ("no published value",) * 2
    if not math.isnan(paper.mean):
        judged = (verdict(paper, ours), verdict_of_median(paper, ours))
    numbers = (ours.mean, ours.sd, ours.median, min(ours.values), max(ours.values), _ratio(ours.mean, paper.mean))
    return (*head, *numbers, len(ours.values), profile.name, ours.deviations, *judged)


def _ratio(ours: float, paper: float) -> float:
    """Ours over the paper's, where it means something: NaN unless both are positive."""
    return ours / paper if ours > 0 and paper > 0 else math.nan


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
            deviations = experiment.deviations(method, profile.name)
            if key in numbers:
                raise GPVIError(f"two methods of {experiment.name} fill the row {' '.join(key)}")
            numbers[key] = Ours(tuple(values), score.better, deviations, stands_in)
    return numbers
