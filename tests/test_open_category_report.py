"""The tables and figures of the open-category notebooks against brute force and against the metrics."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

from gpvi_lib import metrics
from gpvi_lib.experiments import get_experiment
from gpvi_lib.lab import records, runner
from gpvi_lib.report import open_category as report

DIGITS = get_experiment("open-category-digits")
TABLE = "gpvi/table3/mnist"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPVI_RESULTS", str(tmp_path_factory.mktemp("results")))
        runner.sweep(DIGITS, "smoke", ["svgd", "gpvi_best", "mf_vi"], progress=False)
        yield report.Runs.recorded(DIGITS, "smoke", TABLE)


def scores(rng, shift, size):
    """Scores with ties."""
    return np.round(rng.normal(shift, 1, size), 1)


def test_placements_count_pairs():
    rng = np.random.default_rng(0)
    known, unknown = scores(rng, 0, 40), scores(rng, 1, 30)
    wins = (unknown[:, None] > known) + 0.5 * (unknown[:, None] == known)
    of_known, of_unknown = report.placements(known, unknown)
    np.testing.assert_allclose(of_known, wins.mean(0))
    np.testing.assert_allclose(of_unknown, wins.mean(1))
    area = metrics.auroc(torch.as_tensor(known), torch.as_tensor(unknown))
    assert of_known.mean() == pytest.approx(area, abs=1e-6) and of_unknown.mean() == pytest.approx(area, abs=1e-6)


def made_up(rng, quality, seeds=1, between_seeds=0.0, alike=False):
    """Runs of two methods on the same images, each with the same part of chance in its scores.

    A seed is better or worse than its method by ``between_seeds`` standard normals, of all methods together if
    ``alike``.
    """
    luck = [between_seeds * rng.normal() for _ in range(seeds)]
    shared = {"known": rng.normal(0, 1, 300), "unknown": rng.normal(0, 1, 200)}

    def one_seed(gain):
        return {
            f"{kind}_variance": noise + 0.5 * rng.normal(0, 1, len(noise)) + gain * (kind == "unknown")
            for kind, noise in shared.items()
        }

    arrays = {
        method: [one_seed(gain + (luck[i] if alike else between_seeds * rng.normal())) for i in range(seeds)]
        for method, gain in quality.items()
    }
    board = pandas.DataFrame([{"method": method, "seed": seed} for method in quality for seed in range(seeds)])
    return report.Runs(DIGITS, board, arrays, TABLE)


@pytest.mark.parametrize(("seeds", "between_seeds"), [(1, 0.0), (3, 0.0), (3, 0.2)])
def test_the_interval_of_a_difference_covers_the_truth(seeds, between_seeds):
    """95 % of 400 intervals: the share of hits has a standard error of 1.1 %, and 4 of them are allowed."""
    rng = np.random.default_rng(1)
    quality = {"svgd": 1.0, "gpvi": 1.2}
    # AUROC of a normal shift: Phi(gain / (sqrt 2 * sd)), sd^2 = 1 + 1/4; its mean over seeds widens the sd once more.
    sd = (2 * 1.25 + between_seeds**2) ** 0.5
    area = {m: 0.5 * (1 + torch.erf(torch.tensor(g / sd / 2**0.5)).item()) for m, g in quality.items()}
    truth = area["gpvi"] - area["svgd"]
    found = [report.auroc_difference(made_up(rng, quality, seeds, between_seeds), "gpvi", "svgd") for _ in range(400)]
    hits = np.mean([low <= truth <= high for _, low, high in found])
    assert hits > 0.95 - 0.044
    middles = np.array([middle for middle, _, _ in found])
    assert middles.mean() == pytest.approx(truth, abs=4 * middles.std() / 20)
    half = np.mean([high - middle for middle, _, high in found])
    assert half / 1.96 > 0.8 * middles.std()
    if seeds == 1:  # with several the interval is a little wide: what seeds and images do together counts twice
        assert hits < 0.95 + 0.044 and half / 1.96 < 1.2 * middles.std()


def test_the_paired_interval_covers_the_truth_and_is_shorter_where_methods_start_alike():
    rng = np.random.default_rng(2)
    quality, between = {"svgd": 1.0, "gpvi": 1.2}, 0.4
    sd = (2 * 1.25 + between**2) ** 0.5
    low, high = (0.5 * (1 + torch.erf(torch.tensor(g / sd / 2**0.5)).item()) for g in quality.values())
    several = [made_up(rng, quality, 3, between, alike=True) for _ in range(400)]
    paired, apart = (
        np.array([report.auroc_difference(some, "gpvi", "svgd", paired=way) for some in several])
        for way in (True, False)
    )
    assert np.mean((paired[:, 1] <= high - low) & (high - low <= paired[:, 2])) > 0.95 - 0.044
    assert np.median(paired[:, 2] - paired[:, 1]) < 0.7 * np.median(apart[:, 2] - apart[:, 1])
    other_seeds = several[0].board.assign(seed=[0, 1, 2, 0, 1, 3])
    with pytest.raises(ValueError, match=r"same seeds of both; gpvi has \[0, 1, 3\], svgd \[0, 1, 2\]"):
        report.auroc_difference(replace(several[0], board=other_seeds), "gpvi", "svgd", paired=True)


def test_a_difference_in_words():
    rng = np.random.default_rng(2)
    runs = made_up(rng, {"svgd": 0.5, "gpvi": 2.0, "gfsf": 0.5})
    assert "**ahead of** SVGD" in report.compared(runs, "gpvi", "svgd")
    assert "**behind** GPVI (as printed)" in report.compared(runs, "svgd", "gpvi")
    assert "**not distinguishable from** SVGD (+0.000" in report.compared(runs, "svgd", "svgd")
    others = ["gpvi", "gfsf"]
    assert report.standing(runs, "svgd", others) == "not distinguishable from GFSF; behind GPVI (as printed)"
    assert report.standing(runs, "gpvi", ["svgd", "gfsf"]) == "ahead of SVGD, GFSF"


def test_a_rival_with_one_seed_is_marked_where_the_method_has_more():
    runs = made_up(np.random.default_rng(3), {"svgd": 0.5, "gpvi": 2.0}, seeds=2)
    runs.arrays["svgd"].pop()
    assert report.standing(runs, "gpvi", ["svgd"]) == "ahead of SVGD (one seed)"
    assert report.standing(runs, "svgd", ["gpvi"]) == "behind GPVI (as printed)"


def test_calibration_is_judged_seed_by_seed():
    """2,000 predictions each: calibrated (above its point once in 20 draws, not in this), too sure, too unsure."""
    rng = np.random.default_rng(5)
    rows, arrays = [], {}
    for method, shifts in {"svgd": (0.0, -0.3), "gpvi": (0.1, 0.1), "gfsf": (0.0,)}.items():
        for seed, shift in enumerate(shifts):
            confidence = rng.uniform(0.5, 0.85, 2_000)
            correct = rng.random(2_000) < confidence + shift
            ece = report.expected_calibration_error(correct.astype(float), confidence)
            arrays.setdefault(method, []).append({"confidence": confidence, "correct": correct})
            rows.append({"method": method, "seed": seed, "ece": ece})
    found = report.calibration(report.Runs(DIGITS, pandas.DataFrame(rows), arrays, TABLE), 0)
    assert found[["seeds", "too_sure", "too_unsure"]].to_numpy().tolist() == [[2, 1, 0], [2, 0, 2], [1, 0, 0]]
    assert found.loc["gpvi", "accuracy"] - found.loc["gpvi", "confidence"] == pytest.approx(10, abs=3)
    lines = report.calibration_table(found).splitlines()[2:]
    verdicts = [line.split("|")[-2].strip() for line in lines]
    assert verdicts == ["too sure on 1 of 2", "too unsure on 2 of 2", "not resolved"]


def test_the_calibration_error_is_that_of_the_metrics():
    rng = torch.Generator().manual_seed(0)
    probabilities = torch.softmax(3 * torch.randn(500, 4, generator=rng), -1)
    labels = torch.randint(4, (500,), generator=rng)
    confidence, predicted = probabilities.max(-1)
    ours = report.expected_calibration_error((predicted == labels).double().numpy(), confidence.numpy())
    assert ours == pytest.approx(metrics.expected_calibration_error(probabilities, labels), abs=1e-6)


def test_a_perfectly_calibrated_method_is_rarely_above_the_point_that_it_is_given():
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.5, 1, 800)
    usual, most = report.ece_of_perfect(confidence, seed=0, repeats=400)
    own = [report.ece_of_perfect(confidence, seed=s, repeats=1)[0] for s in range(1, 401)]
    assert np.mean(own) == pytest.approx(usual, rel=0.1)
    assert abs(np.mean(np.array(own) > most) - 0.05) < 0.05  # 4 standard errors of the share of 400
    assert report.ece_of_perfect(np.ones(10), seed=0) == (0.0, 0.0)


def test_results_have_a_row_for_every_method_and_dashes_where_nothing_ran(runs):
    table = report.results(runs)
    rows = {
        cells[0]: cells[1:] for line in table.splitlines()[2:] for cells in [[c.strip() for c in line.split("|")[1:-1]]]
    }
    assert len(rows) == len(DIGITS.methods)
    assert rows["SVGD"][0] == "1" and rows["SVGD"][1] == f"{runs.values('svgd', 'accuracy_percent')[0]:.1f}"
    assert rows["GFSF"][:5] == ["0", "–", "–", "–", "–"]
    assert rows["SVGD"][-2:] == ["0.989 ± 0.001", "0.001 ± 0.0002"]
    assert rows["GPVI, exact density"][-2:] == ["–", "–"]  # not in the paper
    assert rows["GPVI (best setting)"][-2:] == rows["GPVI (as printed)"][-2:] == ["0.988 ± 0.001", "0.001 ± 0.0005"]
    assert "clean %" in report.results(runs, runs).splitlines()[0]
    nothing = report.Runs.recorded(DIGITS, "quick", TABLE)
    assert nothing.methods == [] and report.results(nothing, nothing).count("| 0 ") == len(DIGITS.methods)


def test_records_agree_with_their_arrays_and_a_wrong_one_is_seen(runs):
    assert max(report.disagreement(runs).values()) < 1e-3
    board = runs.board.copy()
    board.loc[board["method"] == "mf_vi", "auroc"] += 0.01
    found = report.disagreement(replace(runs, board=board))
    assert found["auroc"] == pytest.approx(0.01, abs=1e-4) and found["ece"] < 1e-3


def test_the_published_table_and_its_margins():
    lines = report.published_table(TABLE, "Table 3").splitlines()
    assert len(lines) == 2 + 9 and "GFSF" in lines[3] and "0.988 ± 0.003" in lines[3]
    assert report.published_margin(TABLE, "amortized_svgd", "auroc") == pytest.approx(0.03 / 0.015033, rel=1e-3)
    lower_is_better = report.published_margin(TABLE, "mf_vi", "ece")
    assert lower_is_better == pytest.approx(0.013 / 0.002746, rel=1e-3)


def test_pairs_without_records_are_left_out(runs):
    table = report.differences(runs, [("mf_vi", "svgd"), ("gpvi", "svgd")]).splitlines()
    assert len(table) == 3 and table[2].startswith("| Mean-field VI – SVGD")
    middle, low, high = (report.signed(part) for part in report.auroc_difference(runs, "mf_vi", "svgd"))
    assert f"{middle} [{low}, {high}]" in table[2]


def test_what_only_a_generator_has_is_shown_where_it_is_recorded(runs):
    assert report.more_networks(runs) == report.diversity(runs) == ""  # the digits have neither
    board = runs.board.assign(spread=[np.nan, np.nan, 0.5], spread_g=[np.nan, np.nan, 0.25])
    board = board.assign(
        **{f"{key}_{n}_networks": 0.5 for key in ("auroc", "auroc_entropy", "ece") for n in (10, 1_000)}
    )
    board.loc[board["method"] == "svgd", "auroc_10_networks"] = np.nan
    more = replace(runs, board=board)
    name = report.LABELS[board["method"].iloc[2]]
    cells = [cell.strip() for cell in report.diversity(more).splitlines()[2].split("|")[1:-1]]
    assert cells == [name, "0.5", "0.25", "–", "–"]
    table = report.more_networks(more)
    assert "AUROC (variance), 1,000" in table and "SVGD" not in table and len(table.splitlines()) == 4


def test_costs_are_those_of_the_records(runs, monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS")  # the committed ones
    assert "(paper: 0.28)" in report.step_cost("mnist") and "(paper: 0.78)" in report.step_cost("cifar10")
    assert len(report.memory(runs).splitlines()) == 2 + 3


def test_differences_are_printed_with_their_sign():
    assert report.signed(-0.0001) == "+0.000" and report.signed(-0.0126) == "-0.013"


def test_figures_show_every_method_that_ran(runs):
    limits = {"accuracy_percent": (0, 100), "auroc": (0.9, 1.0), "ece": (0, 1)}
    fig = report.methods_figure(runs, limits)
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    mean = {method: runs.values(method, "auroc").mean() for method in runs.methods}
    assert names == [report.LABELS[method] for method in sorted(mean, key=mean.get)]
    off = [text.get_text() for text in fig.axes[1].texts]
    low = [m for m in runs.methods if runs.values(m, "auroc").min() < 0.9]
    assert len(off) == len(low) and all(text.startswith("◂") for text in off)
    for draw in (report.score_histograms, report.reliability):
        assert len(draw(runs, ["svgd", "mf_vi"]).axes) == 4
    curves = report.training_curves(runs).axes
    assert [len(ax.lines) for ax in curves] == [1, 2]
    ends = {line.get_label(): line.get_ydata()[-1] for ax in curves for line in ax.lines}
    between = sorted(ends.values())[0] + 1e-6  # above the lowest end alone
    cut = report.training_curves(runs, lowest=between).axes
    below = [line.get_label() for ax in cut for line in ax.lines if "below" in line.get_label()]
    worst = min(ends, key=ends.get)
    assert below == [f"{worst}: below, ends at {ends[worst]:.2f}"]
    assert cut[0].get_ylim()[0] <= between < curves[0].get_ylim()[1] and cut[0].get_ylim()[0] > curves[0].get_ylim()[0]
    assert len(report.outliers(runs, ["svgd"]).axes) == 16
    first, *printed = report.heading(runs, epoch=2).axes
    assert len(first.lines) == 3  # without a published number
    for ax, number in zip(printed, (0.988, 0.001), strict=True):
        *ours, dashed = ax.lines
        assert dashed.get_ydata()[0] == number and len(ours) == 3
    svgd = runs.arrays["svgd"][0]
    np.testing.assert_allclose(first.lines[0].get_ydata(), svgd["history_accuracy_percent"][1:])
    np.testing.assert_allclose(first.lines[0].get_xdata(), svgd["history_step"][1:] / 2)
    pair = [svgd, svgd | {"history_accuracy_percent": svgd["history_accuracy_percent"] / 2}]
    two = replace(runs, arrays={"svgd": pair, "mf_vi": runs.arrays["mf_vi"]})
    single = report.heading(two, epoch=2, apart=["svgd"]).axes[0]
    assert len(single.lines) == 3 and len(single.collections) == 1  # a band around the mean of the other
    assert len(single.get_legend_handles_labels()[1]) == 2
    for line, arrays in zip(single.lines, pair, strict=False):
        np.testing.assert_allclose(line.get_ydata(), arrays["history_accuracy_percent"][1:])
    halved = report.training_curves(runs, epoch=2).axes
    for ax, other in zip(curves, halved, strict=True):
        assert other.get_xlabel() == "epoch" and ax.get_xlabel() == "step"
        for line, half in zip(ax.lines, other.lines, strict=True):
            np.testing.assert_allclose(half.get_xdata(), line.get_xdata() / 2)


@pytest.mark.parametrize(("lacking", "name"), [(None, "-published"), (("gpvi", 2), ""), (("svgd", 0), "")])
def test_the_published_epochs_are_shown_once_all_their_runs_are_there(monkeypatch, lacking, name):
    monkeypatch.setattr(
        records,
        "state",
        lambda cell: "missing" if (cell.method, cell.seed) == lacking else "valid",
    )
    assert report.longest("open-category-mnist", "paper").name == f"open-category-mnist{name}"
