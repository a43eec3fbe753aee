"""The scoreboard: every published number beside ours, built from records alone.

The published numbers are in `paper_tables.csv`, in the package. A row compares errors, ours and the paper's, by their
ratio q. What is better the lower it is, is an error as it stands; else the error is 1 - AUROC, 1 - accuracy (or 100 -,
in per cent), and exp(-log-likelihood), so that a nat of log-likelihood is a factor of e. On the logarithmic scale the
interval of q is

    exp(log q ± t s),   s² = (paper_sd / paper)² + (e / ours)² + (r / paper)²,

with e the standard error of our number and r half a unit in the last printed digit of the paper's; for a
log-likelihood, which is a logarithm already, nothing is divided. Where only e is not known exactly, from n seeds, t is
Student's quantile of 95 % at Satterthwaite's s⁴ (n - 1) / (e / ours)⁴ degrees of freedom: 2 for many, 4.5 for three
seeds that are all there is to s. A spread that is not known counts as 0; but one run of ours scatters as the paper's
do. A share of so many test data that the paper prints without ± scatters as such a share does, and so does one run of
ours beside it; another number without ± has only its printed digits in the interval, which is too narrow. The words are

* `lower error` or `higher error` if the interval is below or above 1;
* `agrees` if it holds 1 and nothing outside 1/2 to 2;
* `inconclusive` if it holds 1 and is wider: neither a difference nor its absence is shown.

An error that is printed as 0, such as an RMSE of 0.00, has no digit to compare with: it lies below r, and a hundredth
of r would be printed alike. It counts as r, the interval is all from 0 to infinity, and the row is `inconclusive`
whatever ours is. Another metric of such an item judges: naval's RMSE is printed so, and its likelihood is not.

Each row has two verdicts:

* `verdict` is about our mean over n seeds, e = sd / sqrt(n). Not the sd itself: runs that scatter widely about a bad
  mean must not count as agreement. `ratio`, `ratio_low` and `ratio_high` are q and its interval.
* `verdict_median` is about our median, e = 0.93 (q3 - q1) / sqrt(n) with the quartiles of our seeds, which is the
  median's standard error for normal data. One seed of ten, however bad, moves it little. Fewer than 5 seeds have no
  quartiles to speak of: there the verdict is that of the mean.

Where few seeds make the mean, the two can differ, and `words` says both: "agrees (median: lower error)". The range over
the seeds is `ours_min` to `ours_max`. `headline` counts the words for the GPVI paper alone.

A row takes the longest runs that there are, be their seeds fewer than those of shorter ones, and says how long they
are: `steps` of training, or the proposals of a chain, beside `printed_steps`, empty where the paper prints none (epochs
count as the steps that they have on our data). Runs of less than half the printed length are `too short` for a verdict.
A best setting has a length of its own: it is too short only while longer runs of it are waiting for their records.
Where a score asks for it, runs that have `not learned` get no verdict either: networks that guess are as unsure of all
images as one can be, which counts as a low error. Nor do chains that have `not mixed`: they are no posterior's draws.
At other profiles than `paper`, whose problems are smaller, no row has a verdict.

`paper_sd` is what the paper prints after ±, entered as it is: the standard error of the mean in Tables 4 to 8 of
function-space POVI, over 20 splits (protein: 5), so that one run of ours scatters √20 (√5) times as much; elsewhere, as
far as a paper says, the standard deviation over its runs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import TYPE_CHECKING, Any

from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS, Experiment, Score
from gpvi_lib.experiments.printed import printed_steps
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import steps_of
from gpvi_lib.lab.profiles import Profile, get_profile
from gpvi_lib.paths import results_root

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
    "ratio_low",
    "ratio_high",
    "n_seeds",
    "steps",
    "printed_steps",
    "profile",
    "deviations",
    "verdict",
    "verdict_median",
)
FEWEST_FOR_QUARTILES = 5
STANDARD_ERRORS = tuple(f"fpovi/table{number}/" for number in (4, 5, 6, 7, 8))
WORDS = ("agrees", "lower error", "higher error", "inconclusive", "too short", "not learned", "not mixed")
"""The verdicts on a row that has numbers of both."""
WIDEST_AGREEMENT = 2.0


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

    @property
    def resolution(self) -> float:
        """Half a unit of the last printed digit."""
        exponent = Decimal(self.printed).as_tuple().exponent
        assert isinstance(exponent, int), "published numbers are finite"
        return 0.5 * 10.0**exponent


@dataclass(frozen=True)
class Ours:
    """Our numbers for one row, one for each seed.

    Attributes:
        run: names of the experiment and of its method.
        steps, printed_steps: of our runs and of the paper's, None where there are none or none are printed.
        too_short: whether they are too short for a verdict.
        refused: "" or why they get no verdict, where a score asks: `not learned`, `not mixed`.
        trials: test data that a share is counted over.
    """

    values: tuple[float, ...]
    better: str
    deviations: str
    run: tuple[str, str] = ("", "")
    steps: int | None = None
    printed_steps: int | None = None
    too_short: bool = False
    refused: str = ""
    trials: int | None = None

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
    text = files(__package__).joinpath("paper_tables.csv").read_text(encoding="utf-8")
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


@dataclass(frozen=True)
class Ratio:
    """Our error over the paper's, with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """The word for it, by the rule of the module."""
        if self.high < 1:
            return "lower error"
        if self.low > 1:
            return "higher error"
        return "agrees" if 1 / WIDEST_AGREEMENT <= self.low and self.high <= WIDEST_AGREEMENT else "inconclusive"


def ratio(paper: Published, ours: Ours) -> Ratio:
    """The error of our mean over that of the paper's; the module says how."""
    return _ratio(paper, ours, ours.mean, _error_of_mean(paper, ours))


def verdict(paper: Published, ours: Ours) -> str:
    """One of `WORDS`, about our mean; the module says by which rule."""
    if ours.too_short:
        return "too short"
    return ours.refused or ratio(paper, ours).verdict


def verdict_of_median(paper: Published, ours: Ours) -> str:
    """The same words about our median; with fewer than 5 seeds about our mean."""
    if ours.too_short or ours.refused or len(ours.values) < FEWEST_FOR_QUARTILES:
        return verdict(paper, ours)
    return _ratio(paper, ours, ours.median, ours.median_error).verdict


def headline(board: pandas.DataFrame) -> dict[str, int]:
    """Word -> how many numbers of the GPVI paper have it, at the printed setting, each number once.

    Table 5 repeats Table 1's rows, and Table 2's μ may be another quantity than ours (notebook 13): neither counts.
    """
    of_paper = board[board["item"].str.startswith("gpvi/") & (board["setting"] == "printed")]
    counts = each_once(of_paper)["verdict"].value_counts()
    return {word: int(counts.get(word, 0)) for word in (*WORDS, "not run")}


def each_once(board: pandas.DataFrame) -> pandas.DataFrame:
    """The rows with a published number that is the quantity that ours is, without those that repeat another's."""
    published = board[board["paper_mean"].notna() & (board["metric"] != "mu_error")]
    repeated = published["item"].str.startswith("gpvi/table5") & (published["method"] != "gpvi_exact_jac")
    return published[~repeated]


def words(verdict: str, verdict_median: str) -> str:
    """The two verdicts of a row as one phrase: the second is named where it differs."""
    return verdict if verdict_median == verdict else f"{verdict} (median: {verdict_median})"


def judge(paper: Published, values: Sequence[float]) -> str:
    """The words on numbers that are no row of the table, one for each seed: of shorter runs, say."""
    ours = Ours(tuple(values), paper.better, "")
    return words(verdict(paper, ours), verdict_of_median(paper, ours))


def length(steps: Any, printed_steps: Any) -> str:
    """How long runs are in words, as "2,160 / 72,000"; the first alone where none are printed, "" without steps."""
    import pandas

    if pandas.isna(steps):
        return ""
    return f"{steps:,}" if pandas.isna(printed_steps) else f"{steps:,} / {printed_steps:,}"


def _error_of_mean(paper: Published, ours: Ours) -> float:
    """Its standard error; one run is taken to scatter as the paper's do."""
    if len(ours.values) > 1:
        return ours.sd / math.sqrt(len(ours.values))
    splits = _splits_of_a_standard_error(paper.item)
    if math.isnan(paper.sd):
        return _binomial(paper, ours.mean, ours.trials)
    return math.sqrt(splits or 1) * max(paper.sd, paper.resolution)


def _binomial(paper: Published, share: float, trials: int | None) -> float:
    """The standard error of a share of so many trials; NaN where it is no such share."""
    return math.nan if trials is None else math.sqrt(share * (_whole(paper) - share) / trials)


def _splits_of_a_standard_error(item: str) -> int | None:
    """Over how many splits a paper's ± is the standard error of a mean; ``None`` where it is a standard deviation."""
    if not item.startswith(STANDARD_ERRORS):
        return None
    return 5 if item.endswith("/protein") else 20


def _ratio(paper: Published, ours: Ours, number: float, error: float) -> Ratio:
    scatter = _binomial(paper, paper.mean, ours.trials) if math.isnan(paper.sd) else paper.sd
    theirs, *spreads = _log_error(paper, paper.mean, scatter, paper.resolution)
    mine, own_spread = _log_error(paper, number, error)
    if _printed_as_zero(paper):
        own_spread = math.inf
    spread = math.hypot(*(each for each in (*spreads, own_spread) if not math.isnan(each)))
    half = _quantile(own_spread, spread, len(ours.values)) * spread
    value, low, high = (_exp(mine - theirs + shift) for shift in (0.0, -half, half))
    return Ratio(value, low, high)


def _quantile(own: float, both: float, seeds: int) -> float:
    """Student's at Satterthwaite's degrees of freedom; the paper's part counts as known. 2 in the limit."""
    if seeds == 1 or not 0 < own < math.inf:
        return 2.0
    from scipy.stats import norm, t

    return float(t.ppf(norm.cdf(2.0), (seeds - 1) * (both / own) ** 4))


def _printed_as_zero(paper: Published) -> bool:
    """Whether half a unit of the last digit is more than the error itself; a logarithm has no such digit."""
    return not _is_logarithm(paper) and _error(paper, paper.mean) < paper.resolution


def _is_logarithm(paper: Published) -> bool:
    return paper.metric.endswith(("log_likelihood", "nll"))


def _whole(paper: Published) -> float:
    return 100.0 if "percent" in paper.metric else 1.0


def _error(paper: Published, number: float) -> float:
    return _whole(paper) - number if paper.better == "higher" else number


def _log_error(paper: Published, number: float, *spreads: float) -> tuple[float, ...]:
    """The logarithm of the error that a number is, and on that scale its spreads."""
    if _is_logarithm(paper):
        return (-number if paper.better == "higher" else number), *spreads
    error = _error(paper, number)
    error = error if error > 0 else paper.resolution
    return math.log(error), *(spread / error for spread in spreads)


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


def build(profile: str | Profile = "paper") -> pandas.DataFrame:
    """The scoreboard at a profile: one row for each published number, then rows of ours that no paper has.

    A published number with records of our own `best` setting has a second row for it.

    Raises:
        RecordStale: if a record is of another configuration.
        GPVIError: if an experiment's scores do not fit its records or the published table.
    """
    import pandas

    profile = get_profile(profile)
    ours, expected = collect(profile), planned()
    rows = []
    for paper in published():
        printed = ours.pop((paper.item, paper.method, paper.metric, "printed"), None)
        rows.append(_row(paper, "printed", printed, profile, expected))
        best = ours.pop((paper.item, paper.method, paper.metric, "best"), None)
        if best is not None:
            rows.append(_row(paper, "best", best, profile, expected))
    for (item, method, metric, setting), mine in ours.items():
        unpublished = Published(item, method, metric, mine.better, "nan", math.nan)
        rows.append(_row(unpublished, setting, mine, profile, expected))
    return pandas.DataFrame(rows, columns=list(COLUMNS)).astype({"steps": "Int64", "printed_steps": "Int64"})


def to_csv(board: pandas.DataFrame) -> str:
    """The text of `scoreboard.csv`: numbers to 6 significant digits, unknown ones empty."""
    return board.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def path_of(profile: str | Profile = "paper") -> Path:
    """The scoreboard's file: `results/scoreboard.csv`; `results/<profile>/scoreboard.csv` for others."""
    profile = get_profile(profile)
    folder = results_root() if profile.name == "paper" else results_root() / profile.name
    return folder / "scoreboard.csv"


def _row(paper: Published, setting: str, ours: Ours | None, profile: Profile, expected: Planned) -> tuple:
    head = (paper.item, paper.method, setting, paper.metric, paper.better, paper.mean, paper.sd)
    if ours is None:
        fillers = expected.get((paper.item, paper.method, paper.metric, setting), [])
        printed_steps = next((filler.printed_steps for filler in fillers), None)
        return (*head, *[math.nan] * 8, 0, None, printed_steps, profile.name, "", "not run", "not run")
    if ours.better != paper.better:
        raise GPVIError(f"{paper.item} {paper.metric}: the paper says {paper.better} is better, our score not")
    judged, compared = ("no published value",) * 2, Ratio(math.nan, math.nan, math.nan)
    if not math.isnan(paper.mean):
        judged, compared = (verdict(paper, ours), verdict_of_median(paper, ours)), ratio(paper, ours)
    numbers = (ours.mean, ours.sd, ours.median, min(ours.values), max(ours.values), *astuple(compared))
    lengths = (ours.steps, ours.printed_steps)
    if profile.name != "paper":
        judged, lengths = ("no verdict",) * 2, (ours.steps, None)
    return (*head, *numbers, len(ours.values), *lengths, profile.name, ours.deviations, *judged)


@dataclass(frozen=True)
class Filler:
    """A method of an experiment that fills a row of the scoreboard by one of its scores, with or without records."""

    experiment: Experiment
    method: str
    score: Score

    @property
    def key(self) -> RowKey:
        """The row."""
        published, setting = self.experiment.row(self.method, self.score)
        return self.score.item, published, self.score.metric, setting

    @property
    def printed_steps(self) -> int | None:
        """What the paper prints."""
        return printed_steps(self.score, self.key[1])

    def steps(self, profile: str) -> int:
        """Of its runs; 0 if they have none."""
        return steps_of(self.experiment.config(self.method, profile)) or 0

    def outlasts(self, other: Filler, profile: str) -> bool:
        """Whether its runs are longer; of equal ones those that stand instead of the other's are.

        Raises:
            GPVIError: if neither experiment stands instead of the other.
        """
        stands, waits = (
            one.experiment.name in two.experiment.instead_of for one, two in ((other, self), (self, other))
        )
        if not (stands or waits):
            raise GPVIError(f"two scores fill the row {' '.join(self.key)}; one is in {other.experiment.name}")
        return (self.steps(profile), stands) > (other.steps(profile), waits)


Planned = dict[RowKey, list[Filler]]


def _fillers() -> Iterator[Filler]:
    """In the order of experiments, scores and methods."""
    for experiment in EXPERIMENTS.values():
        for score in experiment.scores:
            for method in experiment.methods_of(score):
                yield Filler(experiment, method, score)


def planned() -> Planned:
    """What may fill each row, with records or without."""
    found: Planned = {}
    for filler in _fillers():
        found.setdefault(filler.key, []).append(filler)
    return found


def collect(profile: str | Profile = "paper") -> dict[RowKey, Ours]:
    """Our numbers for each row that the records fill, from the longest runs, in the order of experiments.

    Raises:
        RecordStale: if a record is of another configuration.
        GPVIError: if two methods of an experiment fill one row, or two experiments of which neither says `instead_of`.
    """
    profile = get_profile(profile)
    boards: dict[str, pandas.DataFrame] = {}
    expected = planned()
    chosen: dict[RowKey, tuple[Filler, tuple[float, ...], str]] = {}
    for filler in _fillers():
        name, score = filler.experiment.name, filler.score
        if name not in boards:
            boards[name] = records.frame(filler.experiment, profile, missing="skip")
        if boards[name].empty or profile.name not in (score.profiles or (profile.name,)):
            continue
        values = _values(filler, boards[name], profile)
        other = chosen[filler.key][0] if filler.key in chosen else None
        if values and other is not None and other.experiment is filler.experiment:
            twice = "scores" if other.method == filler.method else "methods"
            raise GPVIError(f"two {twice} of {name} fill the row {' '.join(filler.key)}")
        if values and (other is None or filler.outlasts(other, profile.name)):
            chosen[filler.key] = filler, values, _refused(filler.score, boards[name], filler.method)
    return {key: _ours(*found, expected[key], profile.name) for key, found in chosen.items()}


def _values(filler: Filler, board: pandas.DataFrame, profile: Profile) -> tuple[float, ...]:
    """One number for each seed; none for a method whose records do not have the score's metric."""
    name, key = filler.experiment.name, filler.score.key
    if not board["method"].isin(filler.experiment.methods_of(filler.score)).any():
        return ()
    if key not in board:
        raise GPVIError(f"no record of {name} at {profile.name} has the metric {key!r} of its score")
    return tuple(board.loc[board["method"] == filler.method, key].dropna())


def _refused(score: Score, board: pandas.DataFrame, method: str) -> str:
    """Why the runs of a method get no verdict: what the score asks of another of their metrics; "" if they do."""
    runs = board[board["method"] == method]
    if score.learned is not None and not runs[score.learned[0]].mean() >= score.learned[1]:
        return "not learned"
    if score.mixed is not None and score.mixed[0] in runs and runs[score.mixed[0]].mean() > score.mixed[1]:
        return "not mixed"
    return ""


def _ours(filler: Filler, values: tuple[float, ...], refused: str, fillers: Sequence[Filler], profile: str) -> Ours:
    experiment, method = filler.experiment, filler.method
    steps, printed = filler.steps(profile) or None, filler.printed_steps
    half = steps is None or printed is None or 2 * steps >= printed
    waiting = any(
        experiment.name in other.experiment.instead_of and other.outlasts(filler, profile) for other in fillers
    )
    return Ours(
        values,
        filler.score.better,
        experiment.deviations(method, profile),
        run=(experiment.name, method),
        steps=steps,
        printed_steps=printed,
        too_short=not half and (filler.key[-1] != "best" or waiting),
        refused=refused,
        trials=filler.score.trials,
    )
