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
from toy_experiment import TOY

from gpvi_lib.errors import GPVIError, RecordStale, RecordWarning, UnknownName
from gpvi_lib.experiments import EXPERIMENTS, Score, get_experiment
from gpvi_lib.lab import records, runner
from gpvi_lib.report import scoreboard
from gpvi_lib.report.scoreboard import Ours, Published

PUBLISHED_SHA256 = "51ce976fb56ecc1ee8718955c7f9937ce8a353e78007d3a9d474736c20a99216"

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
    assert board[["ours_mean", "ours_median", "ours_min", "ours_max", "ratio"]].isna().all(axis=None)


# Verdicts of 4 seeds: 2s = 2 sqrt(paper_sd² + ours_sd²/4 + r²) with r half a unit of the last printed digit


@pytest.mark.parametrize(
    ("better", "printed", "paper_sd", "ours", "ours_sd", "expected"),
    [
        ("higher", "99.3", math.nan, 99.39, math.nan, "reproduced"),  # 2s = 0.1
        ("higher", "99.3", math.nan, 99.41, math.nan, "better"),
        ("higher", "99.3", math.nan, 99.21, math.nan, "reproduced"),
        ("higher", "99.3", math.nan, 99.19, math.nan, "not reproduced"),
        ("higher", "99.30", math.nan, 99.39, math.nan, "better"),  # one more digit is printed: 2s = 0.01
        ("higher", "99", math.nan, 99.9, math.nan, "reproduced"),  # 2s = 1
        ("lower", "0.128", 0.04, 0.21, 0.0, "not reproduced"),  # 2s = 0.08
        ("lower", "0.128", 0.04, 0.20, 0.0, "reproduced"),
        ("lower", "0.128", 0.04, 0.05, 0.0, "reproduced"),
        ("lower", "0.128", 0.04, 0.04, 0.0, "better"),
        ("lower", "0.128", 0.04, 0.22, 0.06, "reproduced"),  # 2s = 0.1: the standard error is 0.03
        ("lower", "0.128", 0.04, 0.24, 0.06, "not reproduced"),  # with the sd itself 2s would be 0.14
        ("lower", "1.0", 0.0, 1.0, 0.0, "reproduced"),
        ("lower", "1.0", 0.0, 0.85, 0.0, "better"),
        ("lower", "-1.5", 0.0, -1.61, 0.0, "better"),
    ],
)
def test_verdict(better, printed, paper_sd, ours, ours_sd, expected):
    paper = Published("gpvi/table2", "gpvi", "sigma_error", better, printed, paper_sd)
    half = 0.0 if math.isnan(ours_sd) else ours_sd * 3**0.5 / 2  # four seeds with that sample standard deviation
    four = Ours((ours - half, ours - half, ours + half, ours + half), better, "")
    assert scoreboard.verdict(paper, four) == scoreboard.verdict_of_median(paper, four) == expected


# What one seed in ten does to the two verdicts; the paper prints 0.18 ± 0.04

TIGHT = (0.058, 0.059, 0.06, 0.06, 0.06, 0.06, 0.06, 0.061, 0.062)


@pytest.mark.parametrize(
    ("tenth", "of_mean", "of_median"),
    [
        (0.06, "better", "better"),
        (0.4, "reproduced", "better"),  # the mean is 0.094 and 2s = 0.105; the median is 0.06 still, and 2s = 0.081
        (1.8, "reproduced", "better"),  # the mean is 0.234
        (18.0, "reproduced", "better"),  # even a mean of 1.85 is within 2s, for the standard error is 1.8
    ],
)
def test_one_seed_in_ten_moves_the_mean_but_not_the_median(tenth, of_mean, of_median):
    paper, ours = Published("a", "b", "c", "lower", "0.18", 0.04), Ours((*TIGHT, tenth), "lower", "")
    assert scoreboard.verdict(paper, ours) == of_mean
    assert scoreboard.verdict_of_median(paper, ours) == of_median


@pytest.mark.parametrize(
    ("values", "of_mean", "of_median"),
    [
        # nine seeds are bad and one so good that the mean is not: the median must not hide behind it
        ((0.31, 0.3, 0.29, 0.3, 0.3, 0.3, 0.3, 0.31, 0.29, -0.9), "reproduced", "not reproduced"),
        # the seeds disagree: a median far off, with quartiles as far apart, cannot be told from 0.18
        ((0.1, 0.1, 0.1, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8), "not reproduced", "reproduced"),
        ((0.05, 0.05, 0.05, 0.4), "reproduced", "reproduced"),  # four seeds: no verdict of their own
        ((0.05, 0.05, 0.05, 0.05, 0.75), "reproduced", "reproduced"),  # five: q3 = 0.4, e = 0.15
        ((0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.75), "reproduced", "better"),
    ],
)
def test_the_median_has_its_own_verdict(values, of_mean, of_median):
    paper, ours = Published("a", "b", "c", "lower", "0.18", 0.04), Ours(values, "lower", "")
    assert scoreboard.verdict(paper, ours) == of_mean
    assert scoreboard.verdict_of_median(paper, ours) == of_median
    assert scoreboard.verdict_of_median(paper, replace(ours, too_short=True)) == "too short"


def test_the_error_of_the_median_is_that_of_normal_data():
    """Medians of 101 normal numbers scatter as it says, to half a per cent of sampling error and its own bias."""
    draws = numpy.random.default_rng(0).standard_normal((20_000, 101))
    claimed = numpy.mean([Ours(tuple(row), "lower", "").median_error for row in draws[:500]])
    assert claimed == pytest.approx(numpy.median(draws, axis=1).std(), rel=0.03)


def test_words_name_the_median_where_it_has_another_verdict():
    assert scoreboard.words("reproduced", "reproduced") == "reproduced"
    assert scoreboard.words("reproduced", "better") == "reproduced (median: better)"


# Rows


def test_our_mean_and_spread_over_the_seeds():
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    (row,) = rows(scoreboard.build(), item="gpvi/table2", method="svgd", metric="sigma_error")
    assert (row.paper_mean, row.paper_sd) == (0.125, 0.03)
    assert row.ours_mean == pytest.approx(0.11)
    assert row.ours_sd == pytest.approx(0.01)  # the sample standard deviation of 0.10, 0.11, 0.12
    assert (row.ours_median, row.ours_min, row.ours_max) == pytest.approx((0.11, 0.1, 0.12))
    assert row.ratio == pytest.approx(0.11 / 0.125)
    assert (row.n_seeds, row.profile, row.verdict, row.verdict_median) == (3, "paper", "reproduced", "reproduced")


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
    assert best.verdict == "not reproduced"


def test_the_best_setting_alone_leaves_the_printed_one_not_run():
    runner.run_or_load(TOY.cell("gpvi_best", 0, "paper"))
    found = rows(scoreboard.build(), item="gpvi/table2", method="gpvi", metric="sigma_error")
    assert [(row.setting, row.verdict) for row in found] == [
        ("printed", "not run"),
        ("best", "not reproduced"),
    ]


def test_numbers_that_no_paper_has_come_last():
    runner.sweep(TOY, "paper", progress=False)
    board = scoreboard.build()
    ours = board.tail(5)
    assert ours["item"].tolist() == ["gpvi/table2"] + ["ours/toy"] * 4
    assert ours["method"].tolist() == ["plain", "svgd", "gpvi", "gpvi", "plain"]
    assert set(ours["verdict"]) == set(ours["verdict_median"]) == {"no published value"}
    assert ours["ratio"].isna().all()
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


@pytest.mark.parametrize(("ours", "paper", "expected"), [(0.1, 0.4, 0.25), (0.1, 0.0, None), (-1.2, -2.4, None)])
def test_a_ratio_is_of_positive_numbers(ours, paper, expected):
    """An NLL may be negative, and naval's RMSE is printed as 0.00."""
    ratio = scoreboard._ratio(ours, paper)
    assert math.isnan(ratio) if expected is None else ratio == pytest.approx(expected)


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


def test_write(tmp_path):
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    path = scoreboard.write()
    assert path == tmp_path / "results" / "scoreboard.csv"
    again = pandas.read_csv(path)
    board = scoreboard.build()
    assert again["verdict"].tolist() == board["verdict"].tolist()
    assert again["ours_mean"].tolist() == pytest.approx(board["ours_mean"].tolist(), rel=1e-5, nan_ok=True)
    assert scoreboard.write("quick") == tmp_path / "results" / "quick" / "scoreboard.csv"
    assert scoreboard.write(path=tmp_path / "other.csv").read_bytes() == path.read_bytes()


def test_numbers_have_six_digits_and_unknown_ones_are_empty():
    board = scoreboard.build().head(1).assign(ours_mean=0.123456789, ours_sd=1e-9 / 3)
    (line,) = list(io.StringIO(scoreboard.to_csv(board)))[1:]
    assert line.startswith("gpvi/table1/2d,amortized_svgd,printed,sigma_error,lower,0.1,0.09,")
    assert line.endswith(",0.123457,3.33333e-10,,,,,0,,,paper,,not run,not run\n")


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
