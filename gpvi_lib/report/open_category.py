"""Tables and figures of the open-category notebooks, from the records of one experiment (Tables 3 and 4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats

from gpvi_lib.experiments import Experiment, get_experiment
from gpvi_lib.lab import records
from gpvi_lib.metrics import ECE_BINS
from gpvi_lib.report import scoreboard
from gpvi_lib.report.plotting import METHOD_COLOURS, METHOD_LABELS
from gpvi_lib.report.tables import markdown, pm

MEASURES = {"accuracy_percent": 1, "auroc": 3, "auroc_entropy": 3, "ece": 3}
"""Measure -> digits that a table shows."""
LABELS = METHOD_LABELS | {"gpvi": "GPVI (as printed)"}
EDGES = torch.linspace(0, 1, ECE_BINS + 1).numpy()  # in the precision of the confidences, as the metric has them
Arrays = dict[str, np.ndarray]


def longest(name: str, profile: str) -> Experiment:
    """The runs of the published epochs once each has a record, until then the short ones of that name.

    A damaged or stale record counts as one: whoever reads it is told of it, and no shorter run takes its place.
    """
    published = get_experiment(f"{name}-published")
    cells = [(method, seed) for method in published.methods for seed in published.seeds_of(method, profile)]
    complete = all(records.state(published.cell(*cell, profile)) != "missing" for cell in cells)
    return published if complete else get_experiment(name)


@dataclass(frozen=True)
class Runs:
    """What an open-category experiment has recorded at a profile.

    Attributes:
        experiment: which.
        board: one row for each record, as :func:`gpvi_lib.lab.records.frame` makes it, and its ``peak_memory_mb``.
        arrays: method -> the arrays of its seeds.
        item: the published table beside which ours stand ("gpvi/table3/mnist").
    """

    experiment: Experiment
    board: pandas.DataFrame
    arrays: dict[str, list[Arrays]]
    item: str

    @classmethod
    def recorded(cls, experiment: Experiment, profile: str, item: str) -> Runs:
        """All records that there are."""
        board = records.frame(experiment, profile, missing="skip")
        arrays: dict[str, list[Arrays]] = {}
        memory = []
        for row in board.itertuples():
            record = records.load(experiment.cell(row.method, row.seed, profile))
            memory.append(record.peak_memory_mb)
            arrays.setdefault(row.method, []).append({name: value.numpy() for name, value in record.arrays().items()})
        return cls(experiment, board.assign(peak_memory_mb=memory), arrays, item)

    @property
    def methods(self) -> list[str]:
        """Those with a record, in the experiment's order."""
        return list(self.arrays)

    def means(self, *keys: str) -> pandas.DataFrame:
        """Means over seeds, one row for each method."""
        return self.board.groupby("method", sort=False)[list(keys or MEASURES)].mean()

    def values(self, method: str, key: str) -> np.ndarray:
        """One number for each seed; none where nothing is recorded."""
        if key not in self.board:
            return np.array([])
        return self.board.loc[self.board["method"] == method, key].to_numpy()

    def pooled(self, method: str, name: str) -> np.ndarray:
        """An array of all seeds, one after another."""
        return np.concatenate([arrays[name] for arrays in self.arrays[method]])

    def published(self, method: str, metric: str) -> scoreboard.Published | None:
        """The paper's number for the row that the method belongs to."""
        row = self.experiment.rows.get(method, (method,))[0]
        return published(self.item).get((row, metric))


def published(item: str) -> dict[tuple[str, str], scoreboard.Published]:
    """(method, metric) -> number of one published table."""
    return {(p.method, p.metric): p for p in scoreboard.published() if p.item == item}


def as_printed(number: scoreboard.Published | None) -> str:
    """Mean ± standard deviation as the paper prints them."""
    if number is None:
        return "–"
    return number.printed if np.isnan(number.sd) else f"{number.printed} ± {number.sd:g}"


def results(runs: Runs, clean: Runs | None = None) -> str:
    """Our rows beside the paper's, as Markdown; ``clean`` are runs with all ten classes known."""
    rows = []
    for method in runs.experiment.methods:
        ours = [pm(runs.values(method, key), digits) for key, digits in MEASURES.items()]
        if clean is not None:
            ours.append(pm(clean.values(method, "accuracy_percent"), 1))
        paper = [as_printed(runs.published(method, metric)) for metric in ("auroc", "ece")]
        rows.append([LABELS[method], str(len(runs.values(method, "seed"))), *ours, *paper])
    heads = ["", "seeds", "accuracy %", "AUROC (variance)", "AUROC (entropy)", "ECE"]
    heads += [] if clean is None else ["clean %"]
    return markdown(rows, [*heads, "*paper:* AUROC", "*paper:* ECE"])


def published_table(item: str, title: str) -> str:
    """Table 3 or 4 as printed, as Markdown."""
    numbers = published(item)
    columns = {"clean %": "clean_accuracy_percent", "AUROC ↑": "auroc", "ECE ↓": "ece"}
    rows = [
        [METHOD_LABELS[method], *(as_printed(numbers[method, metric]) for metric in columns.values())]
        for method in dict.fromkeys(method for method, _ in numbers)
    ]
    return markdown(rows, [title, *columns])


def published_margin(item: str, other: str, metric: str) -> float:
    """How far GPVI is ahead in a published table, in units of the two standard deviations' root of summed squares."""
    ours, theirs = (published(item)[method, metric] for method in ("gpvi", other))
    sign = 1 if ours.better == "higher" else -1
    return sign * (ours.mean - theirs.mean) / float(np.hypot(ours.sd, theirs.sd))


def more_networks(runs: Runs) -> str:
    """The measures with more networks on a subset of the images, as Markdown; empty where they are not recorded."""
    pattern = re.compile(r"auroc_(\d+)_networks")
    drawn = [int(found[1]) for key in runs.board if (found := pattern.fullmatch(key))]
    shown = {"auroc": ("AUROC (variance)", 3), "auroc_entropy": ("AUROC (entropy)", 3), "ece": ("ECE", 4)}
    columns = [
        (f"{key}_{n}_networks", f"{name}, {n:,}", digits) for key, (name, digits) in shown.items() for n in drawn
    ]
    rows = [
        [LABELS[method], *(pm(runs.values(method, key), digits) for key, _, digits in columns)]
        for method in runs.methods
        if drawn and not np.isnan(runs.values(method, columns[0][0])).any()
    ]
    return markdown(rows, ["networks drawn", *(name for _, name, _ in columns)]) if rows else ""


DIVERSITY = {
    "spread": "f",
    "spread_g": "g alone",
    "spread_noise": "λ alone",
    "noise_scale_over_fan_in_scale": "λ · √fan-in",
}
"""Metric of a generator -> heading: mean predictive variance on unknown images by its source, and the mean of λ."""


def diversity(runs: Runs) -> str:
    """Where the disagreement of a generator's networks comes from, as Markdown; empty where it is not recorded."""
    rows = []
    for method in runs.methods:
        found = runs.board.reindex(columns=list(DIVERSITY))[runs.board["method"] == method].mean()
        if not np.isnan(found["spread"]):
            rows.append([LABELS[method], *("–" if np.isnan(value) else f"{value:.2g}" for value in found)])
    return markdown(rows, ["mean predictive variance, unknown", *DIVERSITY.values()]) if rows else ""


def memory(runs: Runs) -> str:
    """Peak memory of a whole run of each method in GB, as Markdown."""
    rows = [[LABELS[m], f"{runs.values(m, 'peak_memory_mb').mean() / 1e3:.1f}"] for m in runs.methods]
    return markdown(rows, ["", "peak memory, GB"])


def step_cost(problem: str) -> str:
    """The time of a step of GPVI over one of amortised SVGD at ``paper``, beside the paper's factor, as Markdown."""
    cost = records.frame(get_experiment("overhead"), "paper").set_index("method")
    paper = as_printed(
        published("gpvi/section4.5/overhead_vs_amortized_svgd")[f"gpvi_{problem}", "extra_time_fraction"]
    )
    settings = {f"gpvi_{problem}": "helper network, as printed", f"gpvi_{problem}_best": "exact block inverse"}
    rows = []
    for method, label in settings.items():
        times = [f"{cost.loc[method, f'{key}_ms']:.0f} ms" for key in ("gpvi", "amortized_svgd", "independent")]
        extra = [f"{cost.loc[method, f'extra_time_fraction{end}']:.2f}" for end in ("", "_independent")]
        rows.append([label, *times, *extra])
    heads = ["GPVI", "amortised SVGD", "with two batches", f"extra time (paper: {paper})", "over two batches"]
    return f"One step, {cost['device'].iloc[0]}:\n\n{markdown(rows, ['inverse', *heads])}"


# ---------------------------------------------------------------- how sure is an AUROC?


def placements(
    known: Float[np.ndarray, " b"], unknown: Float[np.ndarray, " u"]
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " u"]]:
    """For each image the share of the other kind that it is on the right side of; ties count half.

    Their means are both the AUROC (Hanley and Hajian-Tilaki 1997).
    """

    def below(values: np.ndarray, others: np.ndarray) -> np.ndarray:
        ranked = np.sort(others)
        return 0.5 * (np.searchsorted(ranked, values, "left") + np.searchsorted(ranked, values, "right")) / len(others)

    return 1 - below(known, unknown), below(unknown, known)


def auroc_difference(
    runs: Runs, method: str, other: str, score: str = "variance", paired: bool = False
) -> tuple[float, float, float]:
    """AUROC of one method minus another's, mean over seeds, and the ends of its 95 % interval.

    Two things could have come out differently. Other test images of the same kinds: their part of the variance is that
    of DeLong, DeLong and Clarke-Pearson (1988) for correlated curves. And other seeds: each method's variance over
    seeds, divided by their number, with the t quantile at Satterthwaite's degrees of freedom. What both do together
    counts in both parts, so the interval is a little wide; a method with a single seed adds nothing to the second part,
    and its intervals are too short. ``paired``, for methods that start alike seed by seed, takes the variance of their
    differences in the place of each method's own.

    Raises:
        ValueError: if ``paired``, and the two do not have the same seeds.
    """
    seeds_of = [runs.values(one, "seed").tolist() for one in (method, other)]
    if paired and seeds_of[0] != seeds_of[1]:
        raise ValueError(f"paired needs the same seeds of both; {method} has {seeds_of[0]}, {other} {seeds_of[1]}")
    mine, theirs = (_placements(runs, name, score) for name in (method, other))
    gaps = [np.mean(a, axis=0) - np.mean(b, axis=0) for a, b in zip(mine, theirs, strict=True)]
    images = sum(gap.var(ddof=1) / len(gap) for gap in gaps)
    areas = [np.array([part.mean() for part in known]) for known, _ in (mine, theirs)]
    areas = [areas[0] - areas[1]] if paired else areas
    seeds = [(np.var(area, ddof=1) / len(area), len(area) - 1) for area in areas if len(area) > 1]
    variance = images + sum(part for part, _ in seeds)
    unsure = sum(part**2 / freedom for part, freedom in seeds)
    quantile = stats.t.ppf(0.975, variance**2 / unsure) if unsure > 0 else stats.norm.ppf(0.975)
    middle, half = float(gaps[0].mean()), float(quantile * np.sqrt(variance))
    return middle, middle - half, middle + half


def _placements(runs: Runs, method: str, score: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    pairs = [placements(a[f"known_{score}"], a[f"unknown_{score}"]) for a in runs.arrays[method]]
    return [known for known, _ in pairs], [unknown for _, unknown in pairs]


def differences(runs: Runs, pairs: Iterable[tuple[str, str]]) -> str:
    """:func:`auroc_difference` of those pairs that have records, by both scores, as Markdown."""
    rows = []
    for method, other in pairs:
        if {method, other} <= set(runs.methods):
            found = [auroc_difference(runs, method, other, score) for score in SCORES]
            cells = [f"{signed(middle)} [{signed(low)}, {signed(high)}]" for middle, low, high in found]
            rows.append([f"{LABELS[method]} – {LABELS[other]}", *cells])
    return markdown(rows, ["difference in AUROC", *(f"{score} [95 %]" for score in SCORES)])


def disagreement(runs: Runs) -> dict[str, float]:
    """The measures computed anew from the recorded arrays, by their definitions: the largest difference of each."""
    largest = dict.fromkeys(MEASURES, 0.0)
    for method in runs.methods:
        for row, kept in enumerate(runs.arrays[method]):
            again = {
                "accuracy_percent": [100 * kept["correct"].mean()],
                "ece": [expected_calibration_error(kept["correct"].astype(float), kept["confidence"])],
            }
            for score, key in (("variance", "auroc"), ("entropy", "auroc_entropy")):
                again[key] = [part.mean() for part in placements(kept[f"known_{score}"], kept[f"unknown_{score}"])]
            for key, values in again.items():
                gaps = [abs(value - runs.values(method, key)[row]) for value in values]
                largest[key] = max(largest[key], *gaps)
    return largest


def signed(number: float) -> str:
    """Three digits with a sign, and no minus zero."""
    return f"{number:+.3f}".replace("-0.000", "+0.000")


def _place(low: float, high: float) -> str:
    return "ahead of" if low > 0 else "behind" if high < 0 else "not distinguishable from"


def standing(runs: Runs, method: str, others: Iterable[str], score: str = "variance") -> str:
    """Which of the others a method is ahead of, behind, or not distinguishable from, as a list in words.

    If the method has several seeds, rivals with a single one are marked: those intervals are too short.
    """
    places: dict[str, list[str]] = {"ahead of": [], "not distinguishable from": [], "behind": []}
    for other in others:
        mark = " (one seed)" if len(runs.arrays[other]) == 1 < len(runs.arrays[method]) else ""
        places[_place(*auroc_difference(runs, method, other, score)[1:])].append(LABELS[other] + mark)
    return "; ".join(f"{place} {', '.join(names)}" for place, names in places.items() if names)


def compared(runs: Runs, method: str, other: str, score: str = "variance") -> str:
    """Two AUROCs compared in words."""
    middle, low, high = auroc_difference(runs, method, other, score)
    word = _place(low, high)
    interval = f"{signed(middle)}, 95 % interval {signed(low)} to {signed(high)}"
    return f"{LABELS[method]} is **{word}** {LABELS[other]} ({interval})"


# ---------------------------------------------------------------- calibration


def binned(values: np.ndarray, confidence: np.ndarray) -> Float[np.ndarray, " bins"]:
    """Sum of values in each bin of confidence; certainty itself (1.0) belongs to the last."""
    index = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, ECE_BINS - 1)
    return np.bincount(index, values, minlength=ECE_BINS)


def expected_calibration_error(correct: np.ndarray, confidence: np.ndarray) -> float:
    """``Σ_m |Σ_{i in m} (correct_i - confidence_i)| / N``, from what a record keeps of each image."""
    return float(np.abs(binned(correct - confidence, confidence)).sum() / len(confidence))


def ece_of_perfect(confidence: np.ndarray, seed: int, repeats: int = 300) -> tuple[float, float]:
    """Mean and 95 % point of the ECE of a perfectly calibrated method with these confidences."""
    chance = np.random.default_rng(seed)
    right = [(chance.random(len(confidence)) < confidence).astype(float) for _ in range(repeats)]
    draws = [expected_calibration_error(part, confidence) for part in right]
    return float(np.mean(draws)), float(np.quantile(draws, 0.95))


def calibration(runs: Runs, seed: int) -> pandas.DataFrame:
    """Each method's ECE beside that of a perfectly calibrated one with the same confidences.

    Returns:
        One row for each method. ``ece``, ``perfect`` and ``most`` (95 % of perfectly calibrated ECEs are below it),
        ``confidence`` and ``accuracy`` in per cent: means over seeds. ``seeds``; ``too_sure`` and ``too_unsure``: the
        seeds whose ECE is above their own 95 % point, by the sign of confidence minus accuracy.
    """
    rows = []
    for method in runs.methods:
        found = []
        for arrays, ece in zip(runs.arrays[method], runs.values(method, "ece"), strict=True):
            perfect, most = ece_of_perfect(arrays["confidence"], seed)
            confidence, accuracy = (100 * arrays[name].mean() for name in ("confidence", "correct"))
            off = np.sign(confidence - accuracy) if ece > most else 0
            found.append((ece, perfect, most, confidence, accuracy, off > 0, off < 0))
        table = np.array(found, dtype=float)
        rows.append([*table[:, :5].mean(0), len(table), *table[:, 5:].sum(0).astype(int)])
    columns = ["ece", "perfect", "most", "confidence", "accuracy", "seeds", "too_sure", "too_unsure"]
    return pandas.DataFrame(rows, index=runs.methods, columns=columns)


def calibration_table(found: pandas.DataFrame) -> str:
    """:func:`calibration` as Markdown."""
    rows = []
    for method, row in found.iterrows():
        off = {word: int(row[f"too_{word}"]) for word in ("sure", "unsure")}
        seeds = int(row["seeds"])
        verdict = ", ".join(f"too {word} on {count} of {seeds}" for word, count in off.items() if count)
        numbers = [f"{row[key]:.4f}" for key in ("ece", "perfect", "most")]
        numbers.append(f"{row['confidence']:.1f} / {row['accuracy']:.1f}")
        rows.append([LABELS[str(method)], *numbers, verdict or "not resolved"])
    heads = [
        "",
        "ECE",
        "if perfectly calibrated",
        "95 % of those below",
        "confidence / accuracy (%)",
        "verdict, by seed",
    ]
    return markdown(rows, heads)


# ---------------------------------------------------------------- figures


def _title(method: str) -> str:
    return LABELS[method].replace(" (", "\n(").replace(", ", ",\n")


def methods_figure(runs: Runs, limits: dict[str, tuple[float, float]]) -> Figure:
    """Every seed of every method as a dot, and the paper's number as a diamond with its standard deviation.

    Methods are sorted by their mean AUROC, and the range of the deep ensemble's is shaded.

    Args:
        limits: measure -> ends of its axis; where a seed lies outside, the mean is written at the edge instead.
    """
    order = list(runs.means()["auroc"].sort_values().index)
    fig, axes = plt.subplots(
        1, 3, figsize=(11, 0.36 * len(order) + 1.2), sharey=True, layout="constrained", width_ratios=[1, 1.3, 1.2]
    )
    shown = {"accuracy_percent": axes[0], "auroc": axes[1], "auroc_entropy": axes[1], "ece": axes[2]}
    for row, method in enumerate(order):
        colour = METHOD_COLOURS[method]
        for key, ax in shown.items():
            open_dot, shift = key == "auroc_entropy", {"auroc": 0.16, "auroc_entropy": -0.16}.get(key, 0.0)
            values = runs.values(method, key)
            face = "white" if open_dot else colour
            ax.scatter(values, [row + shift] * len(values), s=24, color=face, edgecolor=colour, zorder=3)
        for key in ("auroc", "ece"):
            _diamond(shown[key], runs.published(method, key), row)
        for key, limit in limits.items():
            _off_scale(shown[key], runs.values(method, key), limit, row, MEASURES[key] - 1)
    if "deep_ensemble" in order:
        rival = runs.values("deep_ensemble", "auroc")
        axes[1].axvspan(rival.min(), rival.max(), color=METHOD_COLOURS["deep_ensemble"], alpha=0.15, lw=0, zorder=0)
    for key, limit in limits.items():
        shown[key].set_xlim(limit)
    axes[0].set(yticks=range(len(order)), yticklabels=[LABELS[method] for method in order])
    axes[0].set_xlabel("accuracy, known (%) →")
    axes[1].set_xlabel("AUROC: variance (filled), entropy (open) →")
    axes[2].set_xlabel("← ECE")
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(5, prune="both"))  # neighbours' outermost labels would touch
    return fig


def _diamond(ax: Axes, number: scoreboard.Published | None, row: int) -> None:
    if number is not None:
        sd = 0 if np.isnan(number.sd) else number.sd
        ax.errorbar(number.mean, row, xerr=sd, fmt="D", ms=5, color="0.45", mfc="none", lw=1, zorder=2)


def _off_scale(ax: Axes, values: np.ndarray, limit: tuple[float, float], row: int, digits: int) -> None:
    low, high = limit
    if values.min() >= low and values.max() <= high:
        return
    left = values.min() < low
    text = f"◂ {values.mean():.{digits}f}" if left else f"{values.mean():.{digits}f} ▸"
    where = low + (high - low) * (0.02 if left else 0.98)
    ax.text(where, row, text, ha="left" if left else "right", va="center", fontsize=9, color="0.35")


SCORES = {"variance": np.geomspace(1e-6, 1, 25), "entropy": np.geomspace(1e-4, 2, 25)}
"""Outlier score -> the bins of its histogram."""
UNSURE = {"variance": np.geomspace(1e-4, 0.3, 25), "entropy": np.linspace(0, 1.8, 25)}
"""The same where networks are sure of little."""


_FILL = "0.88"
_KNOWN: dict[str, Any] = {"color": "0.35", "lw": 1.6}
_UNKNOWN: dict[str, Any] = {"ls": (0, (2.5, 0.8)), "lw": 1.6}
"""Outlines, so that neither histogram covers the other."""


def score_histograms(runs: Runs, methods: Sequence[str], bins_of: dict[str, np.ndarray] = SCORES) -> Figure:
    """Both outlier scores of known and of unknown test images, all seeds together."""
    fig, axes = plt.subplots(2, len(methods), figsize=(12, 5), sharey="row", sharex="row", layout="constrained")
    means = runs.means()
    for column, method in enumerate(methods):
        for ax, (score, bins) in zip(axes[:, column], bins_of.items(), strict=True):
            for kind, look in (("known", _KNOWN), ("unknown", _UNKNOWN | {"color": METHOD_COLOURS[method]})):
                values = runs.pooled(method, f"{kind}_{score}").clip(bins[0], bins[-1])
                share = 100 * np.histogram(values, bins)[0] / len(values)
                if kind == "known":
                    ax.stairs(share, bins, fill=True, color=_FILL)
                ax.stairs(share, bins, **look)
            if bins[0] > 0:
                step = 2 if score == "variance" else 1
                decades = np.arange(np.ceil(np.log10(bins[0])), np.log10(bins[-1]) + 0.5, step)
                labels = [f"$10^{{{decade:.0f}}}$" for decade in decades]
                labels[0] = f"≤ {labels[0]}" if 10 ** decades[0] <= bins[0] else labels[0]
                ax.set(xscale="log")
                ax.set_xticks(10**decades, labels)
            ax.tick_params(labelsize=9)
            area = means.loc[method, "auroc" if score == "variance" else "auroc_entropy"]
            ax.text(0.5, 0.94, f"AUROC {area:.3f}", transform=ax.transAxes, fontsize=9, va="top", ha="center")
        axes[0, column].set_title(_title(method), fontsize=11)
    for ax in axes[:, 0]:
        ax.set(ylabel="% of images", ylim=(0, 1.15 * ax.get_ylim()[1]))  # room for the text
    for row, name in enumerate(("predictive variance", "predictive entropy (nats)")):
        axes[row, len(methods) // 2].set_xlabel(name)
        if len(methods) % 2 == 0:
            axes[row, len(methods) // 2].xaxis.label.set_x(-0.065)  # between the two panels in the middle
    known = plt.Rectangle((0, 0), 1, 1, facecolor=_FILL, edgecolor=_KNOWN["color"], label="known 0–5 (grey, solid)")
    unknown = plt.Line2D([], [], **_UNKNOWN | {"color": "0.15"}, label="unknown 6–9 (dashed, in the method's colour)")
    fig.legend(handles=[known, unknown], loc="outside lower center", ncols=2)
    return fig


def reliability(runs: Runs, methods: Sequence[str]) -> Figure:
    """Accuracy against confidence in each bin, with where 95 % of a calibrated method's points fall; images per bin."""
    fig, axes = plt.subplots(
        2, len(methods), figsize=(12, 4.6), sharex=True, sharey="row", height_ratios=[2.6, 1], layout="constrained"
    )
    middle, width = (EDGES[1:] + EDGES[:-1]) / 2, EDGES[1] - EDGES[0]
    for column, method in enumerate(methods):
        confidence, correct = runs.pooled(method, "confidence"), runs.pooled(method, "correct").astype(float)
        num_seeds = len(runs.arrays[method])
        count, colour = binned(np.ones_like(confidence), confidence), METHOD_COLOURS[method]
        used = count > 0
        expected = binned(confidence, confidence)[used] / count[used]
        chance = 2 * np.sqrt(expected * (1 - expected) * num_seeds / count[used])  # the seeds share their images
        ax, below = axes[:, column]
        ax.plot([0, 1], [0, 1], color="0.5", lw=1)
        low, high = np.clip(expected - chance, 0, 1), np.clip(expected + chance, 0, 1)
        ax.bar(expected, high - low, width * 0.9, low, color="0.85", lw=0)
        ax.plot(expected, binned(correct, confidence)[used] / count[used], "o", ms=5, color=colour)
        ax.set(ylim=(-0.04, 1.04), xlim=(0, 1.02))
        ax.set_title(_title(method), fontsize=11)
        below.bar(middle, count / num_seeds, width * 0.9, color=colour, alpha=0.8, lw=0)
        below.set(yscale="log", ylim=(0.1, 2 * len(confidence) / num_seeds), xticks=[0.1, 0.5, 0.9])
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("images")
    calibrated = plt.Rectangle((0, 0), 1, 1, color="0.85", label="about 95 % of calibrated predictions")
    fig.legend(handles=[calibrated], loc="outside lower center")
    axes[1, len(methods) // 2].set_xlabel(f"confidence of the prediction, {ECE_BINS} bins")
    return fig


GROUPS = {
    "particles": ("svgd", "svgd_best", "gfsf", "ksd", "deep_ensemble"),
    "amortised particles": ("amortized_svgd", "amortized_svgd_best", "amortized_gfsf", "amortized_ksd"),
    "mean field and GPVI": ("mf_vi", "gpvi", "gpvi_authors", "gpvi_best", "gpvi_exact_density"),
}


def training_curves(
    runs: Runs,
    key: str = "auroc",
    name: str = "AUROC (variance)",
    epoch: int | None = None,
    lowest: float = -np.inf,
) -> Figure:
    """A measure during training, mean over seeds with the range as a band, one panel for each kind of method.

    The axis has room for what is measured after training began, not for the start, and ends at ``lowest``: a method
    that ends below it has its last value in the legend. With ``epoch``, its number of steps, time is in epochs.
    """
    groups = {title: [m for m in members if m in runs.arrays] for title, members in GROUPS.items()}
    groups = {title: members for title, members in groups.items() if members}
    fig, axes = plt.subplots(1, len(groups), figsize=(12, 4.2), sharey=True, squeeze=False, layout="constrained")
    curves_of = {m: np.stack([a[f"history_{key}"] for a in arrays]) for m, arrays in runs.arrays.items()}
    for ax, (title, members) in zip(axes[0], groups.items(), strict=True):
        for method in members:
            step, curves = runs.arrays[method][0]["history_step"] / (epoch or 1), curves_of[method]
            dash = "--" if f"{method}_best" in members else "-"  # of the same colour
            end = curves[:, -1].mean()
            label = LABELS[method] + (f": below, ends at {end:.2f}" if end < lowest else "")
            ax.plot(step, curves.mean(0), dash, color=METHOD_COLOURS[method], label=label)
            ax.fill_between(step, curves.min(0), curves.max(0), color=METHOD_COLOURS[method], alpha=0.2, lw=0)
        ax.set(title=title, xlabel="epoch" if epoch else "step")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=9)
    later = np.concatenate([curves[:, 1:].ravel() for curves in curves_of.values()])
    low, high = max(later.min(), lowest), later.max()
    margin = 0.05 * (high - low)
    axes[0, 0].set(ylabel=name, ylim=(low - margin, high + margin))
    return fig


def heading(runs: Runs, epoch: int | None = None, apart: Collection[str] = ()) -> Figure:
    """Accuracy, AUROC and ECE during training, without the start: where it is heading.

    Means over seeds with the range as a band; one line a seed for methods in ``apart``. With ``epoch``, its number of
    steps, time is in epochs.
    The paper's AUROC and ECE of GPVI, at the end of its own training, are dashed lines.
    """
    panels = {"accuracy_percent": "accuracy (%)", "auroc": "AUROC (variance)", "ece": "ECE"}
    fig, axes = plt.subplots(1, len(panels), figsize=(11, 3.6), layout="constrained")
    for ax, (key, title) in zip(axes, panels.items(), strict=True):
        for name, arrays in runs.arrays.items():
            step, curves = arrays[0]["history_step"][1:], np.stack([a[f"history_{key}"][1:] for a in arrays])
            width = 2.5 if name.startswith("gpvi") else 1.2
            at, colour = step / (epoch or 1), METHOD_COLOURS[name]
            first, *others = curves if name in apart else [curves.mean(0)]
            ax.plot(at, first, "o-", ms=3, lw=width, color=colour, label=LABELS[name])
            for line in others:
                ax.plot(at, line, "o-", ms=3, lw=width, color=colour)
            if name not in apart:
                ax.fill_between(at, curves.min(0), curves.max(0), color=colour, alpha=0.2, lw=0)
        if printed := published(runs.item).get(("gpvi", key)):
            ax.axhline(printed.mean, color="0.4", ls="--", lw=1, label="GPVI in the paper, at its end")
        ax.set(title=title, xlabel="epoch" if epoch else "step", xlim=(0, None))
    fig.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def outliers(runs: Runs, methods: Sequence[str], classes: Sequence[str] = tuple("0123456789")) -> Figure:
    """The unknown images with the smallest and the largest predictive variance, first seed of each method."""
    fig, axes = plt.subplots(2 * len(methods), 8, figsize=(10, 3.2 * len(methods)), layout="constrained")
    for block, method in enumerate(methods):
        found = runs.arrays[method][0]
        for index, image in enumerate(found["outlier_images"]):  # the certain half first
            ax = axes[2 * block + index // 8, index % 8]
            ax.imshow(image, cmap="gray_r", vmin=0, vmax=255)
            true, predicted = (classes[int(found[f"outlier_{part}"][index])] for part in ("labels", "predictions"))
            ax.set_title(f"{true} → {predicted}", fontsize=11 if len(true) == 1 else 8)
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        name = LABELS[method].replace(", ", ",\n")
        for row, kind in ((2 * block, "most certain"), (2 * block + 1, "least certain")):
            axes[row, 0].set_ylabel(f"{name}\n{kind}", fontsize=10)
    return fig
