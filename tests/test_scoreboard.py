"""The scoreboard: every published number, our means from records alone, and verdicts by one rule."""

import hashlib
import io
import math
from dataclasses import replace
from functools import partial
from importlib.resources import files

import numpy
import pandas
import pytest
import toy_experiment
from scipy.stats import norm
from scipy.stats import t as student
from toy_experiment import TOY

from gpvi_lib.errors import GPVIError, RecordStale, RecordWarning, UnknownName
from gpvi_lib.experiments import EXPERIMENTS, Score, get_experiment
from gpvi_lib.lab import records, runner
from gpvi_lib.report import scoreboard
from gpvi_lib.report.scoreboard import Ours, Published

PUBLISHED_SHA256 = "51ce976fb56ecc1ee8718955c7f9937ce8a353e78007d3a9d474736c20a99216"

PRINTED_ONCE = (
    71  # errors of Σ: 8 in Table 1, 11 in Table 2, 2 new ones in Table 5; N in Tables 3 and 4; 2 times in 4.5
)
REGISTERED = dict(EXPERIMENTS)


@pytest.fixture(autouse=True)
def _only_the_toy(registry, monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    registry.clear()
    registry[TOY.name] = TOY


def rows(board: pandas.DataFrame, **values) -> list:
    for column, value in values.items():
        board = board[board[column] == value]
    return list(board.itertuples())


def test_the_published_numbers_are_the_ones_we_took_down():
    content = files("gpvi_lib.report").joinpath("paper_tables.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == PUBLISHED_SHA256


def test_every_published_number_appears_in_order_without_any_record():
    board = scoreboard.build()
    table = pandas.read_csv(files("gpvi_lib.report").joinpath("paper_tables.csv"))
    assert tuple(board.columns) == scoreboard.COLUMNS
    for column in table.columns:
        pandas.testing.assert_series_equal(board[column], table[column], check_dtype=False)
    assert set(board["verdict"]) == set(board["verdict_median"]) == {"not run"}
    assert set(board["setting"]) == {"printed"}
    assert board[["ours_mean", "ours_median", "ours_min", "ours_max", "ratio", "ratio_high"]].isna().all(axis=None)


# The ratio of errors and its interval, exp(log q ± 2s)

four = partial(Ours, better="lower", deviations="")


def spread(mean, sd):
    """Four seeds with that mean and sample standard deviation."""
    half = sd * 3**0.5 / 2
    return mean - half, mean - half, mean + half, mean + half


@pytest.mark.parametrize(
    ("metric", "better", "printed", "ours", "expected"),
    [
        ("sigma_error", "lower", "0.2", 0.1, 0.5),
        ("auroc", "higher", "0.98", 0.96, 2.0),
        ("accuracy_percent", "higher", "98", 99.0, 0.5),
        ("test_error_percent", "lower", "4", 2.0, 0.5),
        ("test_log_likelihood", "higher", "-2.5", -1.5, math.exp(-1)),
        ("test_nll", "lower", "-0.5", 0.5, math.e),
        ("test_rmse", "lower", "0.00", 0.01, 2.0),  # printed as 0: half a unit of the last digit
        ("accuracy_percent", "higher", "99", 100.0, 0.5),  # and so does our own error of 0
        ("test_nll", "lower", "1.0", 5000.0, math.inf),
    ],
)
def test_the_ratio_is_of_errors(metric, better, printed, ours, expected):
    paper = Published("", "", metric, better, printed, math.nan)
    found = scoreboard.ratio(paper, Ours((ours, ours), better, ""))
    assert found.value == pytest.approx(expected)
    assert found.low <= found.value <= found.high


def _quantile(own, both):
    """Of four seeds."""
    return student.ppf(norm.cdf(2), 3 * (both / own) ** 4)


def test_the_interval_is_of_the_papers_sd_our_standard_error_and_the_printed_digit():
    found = scoreboard.ratio(Published("", "", "sigma_error", "lower", "0.20", 0.04), four(spread(0.1, 0.06)))
    s = math.hypot(0.04 / 0.2, 0.06 / 2 / 0.1, 0.005 / 0.2)
    half = _quantile(0.06 / 2 / 0.1, s) * s
    assert (found.low, found.high) == pytest.approx((0.5 * math.exp(-half), 0.5 * math.exp(half)))
    nats = scoreboard.ratio(Published("", "", "test_nll", "lower", "2.50", 0.3), four(spread(2.5, 0.8)))
    s = math.hypot(0.3, 0.4, 0.005)
    assert nats.high == pytest.approx(math.exp(_quantile(0.4, s) * s))


@pytest.mark.parametrize(
    ("metric", "better", "printed", "ours", "expected"),
    [
        ("test_rmse", "lower", "0.00", 0.0001, "inconclusive"),
        ("test_rmse", "lower", "0", 0.0001, "inconclusive"),
        ("test_rmse", "lower", "0.00", 0.5, "inconclusive"),
        ("accuracy_percent", "higher", "100", 90.0, "inconclusive"),
        ("test_rmse", "lower", "0.01", 0.0001, "lower error"),
        ("test_nll", "lower", "0.00", -5.0, "lower error"),  # a logarithm: its digits say all
    ],
)
def test_an_error_that_is_printed_as_0_judges_nothing(metric, better, printed, ours, expected):
    paper, mine = Published("", "", metric, better, printed, 0.0), Ours((ours,) * 5, better, "")
    assert scoreboard.verdict(paper, mine) == scoreboard.verdict_of_median(paper, mine) == expected
    found = scoreboard.ratio(paper, mine)
    assert ((found.low, found.high) == (0.0, math.inf)) == (expected == "inconclusive")


def test_one_run_scatters_as_the_papers_do():
    paper = Published("", "", "sigma_error", "lower", "0.20", 0.04)
    alone, many = (scoreboard.ratio(paper, four((0.2,) * n)) for n in (1, 4))
    assert math.log(alone.high) == pytest.approx(2 * math.hypot(0.2, 0.2, 0.025))
    assert math.log(many.high) == pytest.approx(2 * math.hypot(0.2, 0.025))


@pytest.mark.parametrize(("name", "splits"), [("yacht", 20), ("protein", 5)])
def test_one_split_scatters_by_more_than_the_standard_error_of_many(name, splits):
    for sd, counts in ((0.04, 0.04), (0.0, 0.005)):  # printed as 0.00, it is at most half a unit of the last digit
        paper = Published(f"fpovi/table4/{name}", "", "test_rmse", "lower", "0.20", sd)
        alone, many = (scoreboard.ratio(paper, four((0.2,) * n)) for n in (1, 4))
        assert math.log(alone.high) == pytest.approx(2 * math.hypot(sd / 0.2, splits**0.5 * counts / 0.2, 0.025))
        assert math.log(many.high) == pytest.approx(2 * math.hypot(sd / 0.2, 0.025))


def test_the_interval_covers_the_ratio():
    """Of two true errors, each seen with noise, in 95 % of 4,000 trials, ± 1.5 % for their number and few seeds."""
    draws = numpy.random.default_rng(0)
    theirs, seeds = 0.2 + 0.03 * draws.standard_normal(4000), 0.1 + 0.03 * draws.standard_normal((4000, 10))
    papers = [Published("", "", "sigma_error", "lower", f"{number:.6f}", 0.03) for number in theirs]
    found = [scoreboard.ratio(paper, four(tuple(row))) for paper, row in zip(papers, seeds, strict=True)]
    assert numpy.mean([ratio.low <= 0.5 <= ratio.high for ratio in found]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_it_covers_it_with_few_seeds_too(seeds):
    """A number known exactly, so that all of the spread is that of our few seeds."""
    draws = numpy.random.default_rng(0)
    paper = Published("", "", "sigma_error", "lower", "0.200000", 0.0)
    found = [scoreboard.ratio(paper, four(tuple(row))) for row in 0.1 + 0.01 * draws.standard_normal((4000, seeds))]
    assert numpy.mean([ratio.low <= 0.5 <= ratio.high for ratio in found]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("metric", "unit"), [("clean_accuracy_percent", 1), ("clean_accuracy", 100)])
def test_a_share_without_a_spread_scatters_as_its_test_data_do(metric, unit):
    """Ours and the paper's, in per cent or as a part of 1."""
    paper = Published("", "", metric, "higher", "98.6" if unit == 1 else "0.986", math.nan)
    ours = Ours((98.8 / unit,), "higher", "", trials=10_000)
    found = scoreboard.ratio(paper, ours)
    scatter = math.hypot(math.sqrt(98.8 * 1.2 / 10_000) / 1.2, math.sqrt(98.6 * 1.4 / 10_000) / 1.4)
    digits = unit * paper.resolution / 1.4
    assert math.log(found.high / found.value) == pytest.approx(2 * math.hypot(scatter, digits))
    assert found.verdict == "agrees"


def test_a_spread_that_is_printed_as_zero_is_half_a_unit_of_its_last_digit():
    paper = Published("livi/table1/boston", "hmc", "test_rmse", "lower", "2.50", 0.0)
    found = scoreboard.ratio(paper, Ours((2.5,), "lower", ""))
    assert math.log(found.high) == pytest.approx(2 * math.hypot(0.005 / 2.5, 0.005 / 2.5))


@pytest.mark.parametrize(
    ("printed", "paper_sd", "ours", "expected"),
    [
        ("0.100", 0.02, 0.099, "agrees"),  # 2s = 0.4: a factor of 1.49
        ("0.100", 0.02, 0.130, "agrees"),  # [0.87, 1.94]
        ("0.100", 0.02, 0.140, "inconclusive"),  # [0.94, 2.09]
        ("0.100", 0.02, 0.150, "higher error"),  # [1.01, 2.24]
        ("0.100", 0.02, 0.066, "lower error"),  # [0.44, 0.98]
        ("0.100", 0.09, 0.100, "inconclusive"),  # a published spread as wide as its mean shows nothing
        ("0.002", 0.0009, 0.0001, "lower error"),  # a twentieth, however near on an absolute scale
        ("1.0", 0.0, 1.0, "agrees"),
        ("1.0", 0.0, 1.2, "higher error"),
        ("1", 0.0, 1.2, "inconclusive"),  # one digit fewer is printed: 2s = 1
    ],
)
def test_verdict(printed, paper_sd, ours, expected):
    paper = Published("gpvi/table2", "gpvi", "sigma_error", "lower", printed, paper_sd)
    assert scoreboard.verdict(paper, four((ours,) * 4)) == expected
    assert scoreboard.verdict_of_median(paper, four((ours,) * 4)) == expected


# What one seed in ten does to the two verdicts; the paper prints 0.18 ± 0.04

TIGHT = (0.058, 0.059, 0.06, 0.06, 0.06, 0.06, 0.06, 0.061, 0.062)


@pytest.mark.parametrize(("tenth", "of_mean"), [(0.06, "lower error"), (0.9, "inconclusive"), (18.0, "higher error")])
def test_one_seed_in_ten_moves_the_mean_but_not_the_median(tenth, of_mean):
    paper, ours = Published("a", "b", "c", "lower", "0.18", 0.04), four((*TIGHT, tenth))
    assert scoreboard.verdict(paper, ours) == of_mean
    assert scoreboard.verdict_of_median(paper, ours) == "lower error"


@pytest.mark.parametrize(
    ("values", "of_mean", "of_median"),
    [
        # nine seeds are bad and one so good that the mean is not: the median must not hide behind it
        ((0.31, 0.3, 0.29, 0.3, 0.3, 0.3, 0.3, 0.31, 0.29, -0.9), "inconclusive", "higher error"),
        # the seeds disagree: a median far off, with quartiles as far apart, cannot be told from 0.18
        ((0.1, 0.1, 0.1, 0.1, 0.2, 0.5, 0.8, 0.8, 0.8, 0.8), "higher error", "inconclusive"),
        ((0.05, 0.05, 0.05, 0.4), "inconclusive", "inconclusive"),  # four seeds: no verdict of their own
        ((0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.75), "inconclusive", "lower error"),
    ],
)
def test_the_median_has_its_own_verdict(values, of_mean, of_median):
    paper, ours = Published("a", "b", "c", "lower", "0.18", 0.04), four(values)
    assert scoreboard.verdict(paper, ours) == of_mean
    assert scoreboard.verdict_of_median(paper, ours) == of_median
    assert scoreboard.verdict_of_median(paper, replace(ours, too_short=True)) == "too short"


def test_the_error_of_the_median_is_that_of_normal_data():
    """Medians of 101 normal numbers scatter as it says, to half a per cent of sampling error and its own bias."""
    draws = numpy.random.default_rng(0).standard_normal((20_000, 101))
    claimed = numpy.mean([Ours(tuple(row), "lower", "").median_error for row in draws[:500]])
    assert claimed == pytest.approx(numpy.median(draws, axis=1).std(), rel=0.03)


def test_words_name_the_median_where_it_has_another_verdict():
    assert scoreboard.words("agrees", "agrees") == "agrees"
    assert scoreboard.words("agrees", "lower error") == "agrees (median: lower error)"


def test_the_headline_counts_each_number_of_the_gpvi_paper_once():
    """Table 5 repeats Table 1, and μ of Table 2 is another quantity."""
    empty = scoreboard.build()
    assert scoreboard.headline(empty) == dict.fromkeys(scoreboard.WORDS, 0) | {"not run": PRINTED_ONCE}
    runner.sweep(TOY, "paper", progress=False)
    counted = scoreboard.headline(scoreboard.build())
    assert (counted["agrees"], counted["not run"]) == (1, PRINTED_ONCE - 2)  # svgd and gpvi as printed; not gpvi's best


# Rows


def test_our_mean_and_spread_over_the_seeds():
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert (row.paper_mean, row.paper_sd) == (0.125, 0.03)
    assert row.ours_mean == pytest.approx(0.11)
    assert row.ours_sd == pytest.approx(0.01)  # the sample standard deviation of 0.10, 0.11, 0.12
    assert (row.ours_median, row.ours_min, row.ours_max) == pytest.approx((0.11, 0.1, 0.12))
    assert row.ratio == pytest.approx(0.11 / 0.125)
    assert row.ratio_low < row.ratio < row.ratio_high
    assert (row.n_seeds, row.profile, row.verdict, row.verdict_median) == (3, "paper", "agrees", "agrees")


def test_one_seed_has_no_spread():
    runner.run_or_load(TOY.cell("svgd", 0, "paper"))
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert (row.ours_mean, row.ours_median, row.ours_min, row.ours_max, row.n_seeds) == (0.1, 0.1, 0.1, 0.1, 1)
    assert math.isnan(row.ours_sd)


def test_only_the_seeds_of_the_profile_count():
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    before = scoreboard.build()
    runner.run_or_load(TOY.cell("svgd", 17, "paper"))
    pandas.testing.assert_frame_equal(scoreboard.build(), before)


def test_our_best_setting_stands_below_the_printed_one():
    runner.sweep(TOY, "paper", methods=["gpvi", "gpvi_best"], progress=False)
    printed, best = rows(scoreboard.build(), item="gpvi/table2", method="gpvi", metric="sigma_error")
    assert best.Index == printed.Index + 1
    assert (printed.setting, best.setting) == ("printed", "best")
    assert printed.paper_mean == best.paper_mean == 0.128
    assert (printed.deviations, best.deviations) == ("", "tuned step size")
    assert printed.ours_mean == pytest.approx(0.21)
    assert best.ours_mean == pytest.approx(0.31)
    assert best.verdict == "higher error"


def test_the_best_setting_alone_leaves_the_printed_one_not_run():
    runner.run_or_load(TOY.cell("gpvi_best", 0, "paper"))
    found = rows(scoreboard.build(), item="gpvi/table2", method="gpvi", metric="sigma_error")
    assert [(row.setting, row.verdict) for row in found] == [
        ("printed", "not run"),
        ("best", "higher error"),
    ]


def test_numbers_that_no_paper_has_come_last():
    runner.sweep(TOY, "paper", progress=False)
    board = scoreboard.build()
    ours = board.tail(5)
    assert ours["item"].tolist() == ["gpvi/table2"] + ["ours/toy"] * 4
    assert ours["method"].tolist() == ["plain", "svgd", "gpvi", "gpvi", "plain"]
    assert set(ours["verdict"]) == set(ours["verdict_median"]) == {"no published value"}
    assert ours[["ratio", "ratio_low", "ratio_high"]].isna().all(axis=None)
    assert ours["paper_mean"].isna().all()
    assert (board["verdict"] == "no published value").sum() == 5
    assert len(board) == len(scoreboard.published()) + 1 + 5  # the one is gpvi's best setting


def test_a_score_may_name_its_methods(monkeypatch):
    """A table lists some of an experiment's methods: the others fill no row of it, but do of other scores."""
    runner.sweep(TOY, "paper", progress=False)
    table2, own = TOY.scores
    chosen = replace(table2, methods=("gpvi_best", "gpvi"))
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, scores=(chosen, own)))
    board = scoreboard.build()
    of_table2 = board[(board["item"] == "gpvi/table2") & (board["n_seeds"] > 0)]
    assert list(zip(of_table2["method"], of_table2["setting"], strict=True)) == [("gpvi", "printed"), ("gpvi", "best")]
    assert board.tail(4)["method"].tolist() == ["svgd", "gpvi", "gpvi", "plain"]
    assert set(board.tail(4)["item"]) == {"ours/toy"}


def test_a_score_may_name_its_profiles(monkeypatch):
    """At other profiles its metric need not exist."""
    absent = replace(TOY.scores[0], item="ours/other", key="not there", profiles=("paper",))
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, scores=(*TOY.scores, absent)))
    for profile in ("quick", "paper"):
        runner.run_or_load(TOY.cell("svgd", 0, profile))
    assert "ours/other" not in set(scoreboard.build("quick")["item"])
    with pytest.raises(GPVIError, match="no record of toy at paper has the metric 'not there'"):
        scoreboard.build("paper")


def test_a_metric_is_missed_only_in_records_of_the_score_s_methods(monkeypatch):
    """Where none of them has run yet, there is nothing to say."""
    absent = replace(TOY.scores[0], item="ours/other", key="not there", methods=("gpvi",))
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, scores=(*TOY.scores, absent)))
    runner.run_or_load(TOY.cell("svgd", 0, "paper"))
    scoreboard.build()
    runner.run_or_load(TOY.cell("gpvi", 0, "paper"))
    with pytest.raises(GPVIError, match="has the metric 'not there'"):
        scoreboard.build()


def test_a_score_cannot_name_a_method_that_is_not_there(monkeypatch):
    runner.run_or_load(TOY.cell("svgd", 0, "paper"))
    slip = replace(TOY.scores[0], methods=("svgd", "svdg"))
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, scores=(slip,)))
    with pytest.raises(UnknownName, match="svdg"):
        scoreboard.build()


@pytest.mark.parametrize("longer_first", [True, False])
def test_an_experiment_can_take_over_the_rows_of_another(registry, longer_first):
    """Where it has records: the other's rows stay where it has none."""
    toys = of_length(1_000), replace(of_length(50_000), name="longer", instead_of=("toy",))
    register(registry, toys, longer_first)
    runner.sweep(toys[0], "paper", methods=["svgd", "gpvi", "gpvi_best"], progress=False)
    runner.run_or_load(toys[1].cell("svgd", 0, "paper"))
    found = {
        (row.method, row.setting): (row.n_seeds, row.steps, row.printed_steps, row.verdict == "too short")
        for row in rows(scoreboard.build(), item="gpvi/table2", metric="sigma_error")
        if row.n_seeds
    }
    assert found == {
        ("svgd", "printed"): (1, 50_000, 50_000, False),
        ("gpvi", "printed"): (3, 1_000, 50_000, True),
        ("gpvi", "best"): (3, 1_000, 50_000, True),  # nothing is concluded from what waits to be replaced
    }


def register(registry, experiments, backwards=False):
    registry.clear()
    for experiment in reversed(experiments) if backwards else experiments:
        registry[experiment.name] = experiment


def of_length(steps):
    """The toy with so many steps; table 2 prints 50,000."""
    return replace(TOY, config=partial(toy_experiment.config_of, steps))


@pytest.mark.parametrize("backwards", [True, False])
def test_of_several_the_longest_with_records_fills_the_row(registry, backwards):
    short, longer = of_length(10), replace(of_length(20), name="longer", instead_of=("toy",))
    longest = replace(of_length(30), name="longest", instead_of=("toy", "longer"))
    brief = replace(of_length(5), name="brief", instead_of=("toy", "longer", "longest"))  # not longer, whatever it says
    register(registry, (short, longer, longest, brief), backwards)
    for experiment, expected in ((short, 10), (brief, 10), (longest, 30), (longer, 30)):
        runner.run_or_load(experiment.cell("svgd", 0, "paper"), progress=False)
        (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
        assert row.steps == expected


@pytest.mark.parametrize(
    ("steps", "method", "setting", "too_short"),
    [
        (24_999, "svgd", "printed", True),
        (25_000, "svgd", "printed", False),
        (24_999, "gpvi_best", "best", False),  # its length is a part of the setting
    ],
)
def test_less_than_half_the_printed_length_is_too_short(registry, steps, method, setting, too_short):
    register(registry, [of_length(steps)])
    runner.run_or_load(get_experiment("toy").cell(method, 0, "paper"), progress=False)
    ours = scoreboard.collect()["gpvi/table2", method.removesuffix("_best"), "sigma_error", setting]
    assert (ours.run, ours.steps, ours.too_short) == (("toy", method), steps, too_short)


@pytest.mark.parametrize(("least", "learned"), [(0.88, True), (0.9, False)])
def test_runs_that_have_not_learned_get_no_verdict(registry, least, learned):
    """The accuracies of the seeds are 0.9, 0.89 and 0.88: their mean counts."""
    score = replace(TOY.scores[0], learned=("accuracy", least))
    register(registry, [replace(TOY, scores=(score,))])
    runner.sweep(get_experiment("toy"), "paper", progress=False)
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    words = (row.verdict, row.verdict_median)
    assert ("not learned" not in words) if learned else words == ("not learned",) * 2
    assert row.ratio > 0  # the numbers stand


@pytest.mark.parametrize(("most", "mixed"), [(0.895, True), (0.885, False)])
def test_chains_that_have_not_mixed_get_no_verdict(registry, most, mixed):
    score = replace(TOY.scores[0], mixed=("accuracy", most))  # 0.89 in the mean, as if it were an R-hat
    register(registry, [replace(TOY, scores=(score, replace(TOY.scores[1], mixed=("no_chain", 1.0))))])
    runner.sweep(get_experiment("toy"), "paper", progress=False)
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert ("not mixed" not in (row.verdict, row.verdict_median)) is mixed


@pytest.mark.parametrize("steps", [24_999, 25_000])
def test_runs_that_are_too_short_are_said_to_be_that(registry, steps):
    short = replace(of_length(steps), scores=(replace(TOY.scores[0], learned=("accuracy", 1.0)),))
    register(registry, [short])
    runner.run_or_load(get_experiment("toy").cell("svgd", 0, "paper"), progress=False)
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert row.verdict == ("too short" if steps < 25_000 else "not learned")


def test_two_experiments_that_do_not_know_of_each_other_cannot_fill_one_row(registry):
    register(registry, [TOY, replace(TOY, name="other")])
    runner.run_or_load(get_experiment("toy").cell("svgd", 0, "paper"), progress=False)
    runner.run_or_load(get_experiment("other").cell("gpvi", 0, "paper"), progress=False)
    scoreboard.build()
    runner.run_or_load(get_experiment("other").cell("svgd", 0, "paper"), progress=False)
    with pytest.raises(GPVIError, match="two scores fill the row gpvi/table2 svgd sigma_error printed; one is in toy"):
        scoreboard.build()


def test_where_no_length_is_printed_nothing_is_too_short(registry):
    register(registry, [of_length(1), replace(of_length(2), name="longer", instead_of=("toy",))])
    runner.run_or_load(get_experiment("toy").cell("svgd", 0, "paper"), progress=False)
    (row,) = rows(scoreboard.build(), item="ours/toy", method="svgd")
    assert row.steps == 1 and row.printed_steps is pandas.NA and row.verdict == "no published value"


def test_a_row_that_is_not_run_says_the_printed_length():
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert (row.n_seeds, row.steps, row.printed_steps) == (0, pandas.NA, 50_000)


def test_profiles_do_not_mix():
    runner.sweep(TOY, "quick", progress=False)
    assert (scoreboard.build("paper")["n_seeds"] == 0).all()
    quick = scoreboard.build("quick")
    assert set(quick["profile"]) == {"quick"}
    assert quick["n_seeds"].max() == 2
    ran = quick[quick["n_seeds"] > 0]
    assert set(ran["verdict"]) == set(ran["verdict_median"]) == {"no verdict"} and ran["printed_steps"].isna().all()


# Refusals


def test_a_stale_record_stops_the_scoreboard(monkeypatch):
    runner.run_or_load(TOY.cell("svgd", 0, "paper"))
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, config=toy_experiment.changed_config))
    with pytest.raises(RecordStale):
        scoreboard.build()


def test_a_damaged_record_is_named_and_the_others_count():
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    path = records.record_path(TOY.cell("svgd", 0, "paper"))
    path.write_text(path.read_text().replace("0.1", "0.01"))
    with pytest.warns(RecordWarning, match="svgd-seed0.json was edited"):
        (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert (row.n_seeds, row.ours_mean) == (2, pytest.approx(0.115))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": {"plain": ("svgd", "printed")}}, "two methods of toy fill the row gpvi/table2 svgd"),
        ({"scores": TOY.scores[:1] * 2}, "two scores of toy fill the row gpvi/table2"),
        (
            {"scores": (Score("gpvi/table2", "sigma_error", "higher", "error"),)},
            "the paper says lower is better",
        ),
        ({"scores": (Score("gpvi/table2", "sigma_error", "lower", "eror"),)}, "has the metric 'eror'"),
    ],
)
def test_scores_that_do_not_fit(monkeypatch, changes, message):
    runner.sweep(TOY, "paper", progress=False)
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, **changes))
    with pytest.raises(GPVIError, match=message):
        scoreboard.build()


# The file


def test_the_file_holds_the_table(tmp_path):
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    board = scoreboard.build()
    again = pandas.read_csv(io.StringIO(scoreboard.to_csv(board)))
    assert again["verdict"].tolist() == board["verdict"].tolist()
    assert again["ours_mean"].tolist() == pytest.approx(board["ours_mean"].tolist(), rel=1e-5, nan_ok=True)
    assert scoreboard.path_of() == tmp_path / "results" / "scoreboard.csv"
    assert scoreboard.path_of("quick") == tmp_path / "results" / "quick" / "scoreboard.csv"


def test_numbers_have_six_digits_and_unknown_ones_are_empty():
    board = scoreboard.build().head(1).assign(ours_mean=0.123456789, ours_sd=1e-9 / 3)
    (line,) = list(io.StringIO(scoreboard.to_csv(board)))[1:]
    assert line.startswith("gpvi/table1/2d,amortized_svgd,printed,sigma_error,lower,0.1,0.09,")
    assert line.endswith(",0.123457,3.33333e-10,,,,,,,0,,,paper,,not run,not run\n")


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_registered_scores_name_published_tables(name):
    """A slip in the name of a table would turn a comparison into a number that no paper has."""
    for score in REGISTERED[name].scores:
        assert REGISTERED[name].methods_of(score)  # raises where a name has a slip
    known = {(paper.item, paper.metric): paper.better for paper in scoreboard.published()}
    papers = {item.split("/")[0] for item, _ in known}
    ours = {(score.item, score.metric): score.better for score in REGISTERED[name].scores}
    pictures = {f"gpvi/figure{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9)} | {"livi/figure1"}  # without a number
    pictures |= {f"fpovi/figure1/{region}" for region in ("data", "gap", "near", "far")}
    for item in {item for item, _ in ours if item.split("/")[0] in papers} - pictures:
        compared = {key: better for key, better in ours.items() if key[0] == item and key in known}
        assert compared, f"no score of {name} at {item} has a published number"
        assert all(known[key] == better for key, better in compared.items())


def test_numbers_that_are_no_row_are_judged_by_the_same_rule():
    row = scoreboard.Published("gpvi/table1/5d", "gpvi", "sigma_error", "lower", "0.14", 0.04)
    ours = (0.02, 0.03, 0.02, 0.025, 0.021)
    assert scoreboard.judge(row, ours) == scoreboard.verdict(row, scoreboard.Ours(ours, "lower", "")) == "lower error"
    heavy = (0.01,) * 4 + (0.011,) * 5 + (0.6,)
    assert scoreboard.judge(row, heavy) == "inconclusive (median: lower error)"
    assert scoreboard.judge(row, (1.4, 1.5, 1.3, 1.4, 1.45)) == "higher error"
