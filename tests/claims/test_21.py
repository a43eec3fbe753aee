"""What notebook 21 says of its records: yacht and boston, 20 splits, paired."""

import numpy as np
import of_records
import pytest
from of_records import Runs

from gpvi_lib.report import scoreboard
from gpvi_lib.report.tables import half_interval

RUNS = {name: Runs(f"fpovi-uci-{name}") for name in ("yacht", "boston")}
OTHERS = Runs("uci-regression")
BESIDE = ("deep_ensemble", "hmc")


def scores(name, method, key):
    """One number a split."""
    if method not in BESIDE:
        return RUNS[name].metric(method, key)
    sign = -1 if key == "nll" else 1
    return sign * OTHERS.metric(method, f"{name}_{'log_likelihood' if key == 'nll' else key}")


def paired(name, method, rival, key):
    """Mean difference, and the ends of its 95 % interval by Nadeau and Bengio's variance."""
    found = scores(name, method, key) - scores(name, rival, key)
    return ends(found)


def ends(found):
    half = half_interval(found)
    return found.mean(), found.mean() - half, found.mean() + half


def test_on_yacht_functions_are_ahead_on_every_split_by_both_measures():
    for key, mean in (("rmse", -0.24), ("nll", -0.64)):
        assert (scores("yacht", "f_svgd", key) < scores("yacht", "svgd", key)).sum() == 20
        assert round(paired("yacht", "f_svgd", "svgd", key)[0], 2) == mean


def test_on_boston_the_error_is_lower_and_the_likelihood_worse_and_nothing_is_decided():
    for method, rival in (("f_svgd", "svgd"), ("f_w_sgld", "w_sgld"), ("f_pi_sgld", "pi_sgld")):
        (error, *ends_of_error), (nll, *ends_of_nll) = (paired("boston", method, rival, key) for key in ("rmse", "nll"))
        assert error < 0 < nll and ends_of_error[0] < 0 < ends_of_error[1] and ends_of_nll[0] < 0 < ends_of_nll[1]
    assert round(paired("boston", "f_svgd", "svgd", "rmse")[0], 2) == -0.13
    assert round(paired("boston", "f_svgd", "svgd", "nll")[0], 2) == 0.16


def test_on_yacht_the_lead_over_weights_is_decided():
    assert all(paired("yacht", "f_svgd", "svgd", key)[2] < 0 for key in ("rmse", "nll"))


def test_stopped_in_between_f_svgd_has_a_lower_nll_than_the_ensemble_on_boston():
    steps = RUNS["boston"].history("f_svgd", "step")[0]
    found = RUNS["boston"].history("f_svgd", "nll") - scores("boston", "deep_ensemble", "nll")[:, None]
    between = (steps >= 750) & (steps <= 1_500)
    assert all(ends(found[:, at])[2] < 0 for at in np.flatnonzero(between))
    means = found.mean(0)[between]
    assert (round(means.min(), 2), round(means.max(), 2)) == (-0.27, -0.22)
    assert OTHERS.record("deep_ensemble").config["steps"] == 2_000


def test_when_one_stops_decides_boston():
    steps = RUNS["boston"].history("f_svgd", "step")[0]
    weights, functions = (RUNS["boston"].history(method, "nll") for method in ("svgd", "f_svgd"))
    early, level, last = ((functions - weights)[:, steps == step][:, 0] for step in (375, 1_250, 2_500))
    assert abs(level.mean()) < 0.01 and round(last.mean(), 2) == 0.16
    best = functions.mean(0).argmin()
    assert steps[best] == 625 and np.abs(weights.mean(0)[steps >= 1_750] - 2.58).max() < 0.02
    assert (
        RUNS["boston"].history("svgd", "rmse").mean(0)[-1] < RUNS["boston"].history("svgd", "rmse").mean(0)[-5] - 0.04
    )
    said = (
        f"At step 375 of 2,500 f-SVGD is ahead of SVGD by {-early.mean():.2f} nats and on {(early < 0).sum()} of 20 "
        "splits, at step 1,250 they are level. From step 625 on f-SVGD's NLL rises, from "
        f"{functions.mean(0)[best]:.2f} to {functions.mean(0)[-1]:.2f}"
    )
    assert said in of_records.told("21")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("key", ["rmse", "nll"])
def test_f_svgd_cannot_be_told_from_a_deep_ensemble(name, key):
    _, low, high = paired(name, "f_svgd", "deep_ensemble", key)
    assert low < 0 < high
    if (name, key) == ("yacht", "rmse"):
        assert round(high, 2) == 0.16 and round(scores(name, "deep_ensemble", key).mean(), 2) == 0.46
    if (name, key) == ("yacht", "nll"):
        assert round(high, 2) == 0.65 and round(scores(name, "deep_ensemble", key).mean(), 2) == 0.44


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("key", ["rmse", "nll"])
def test_against_hmc_nothing_is_decided(name, key):
    _, low, high = paired(name, "f_svgd", "hmc", key)
    assert low < 0 < high


def test_with_the_prior_at_all_points_it_ends_on_yacht_where_the_exact_process_ends():
    everywhere, process = (scores("yacht", method, "rmse").mean() for method in ("f_svgd_closed_form", "gp"))
    assert 0.98 < everywhere / process < 1
    hmc = scores("yacht", "hmc", "rmse").mean()
    assert round(everywhere / hmc) == round(process / hmc) == 11 and round(hmc, 2) == 0.42


def test_on_boston_it_ends_part_of_the_way():
    few, some, all_points = (f"f_svgd_closed_form{ending}" for ending in ("_4", "_20", ""))
    assert abs(paired("boston", some, few, "rmse")[0]) < 0.01
    mean, low, high = paired("boston", all_points, few, "rmse")
    assert (round(mean, 2), round(low, 2), round(high, 2)) == (0.29, -0.02, 0.61)
    assert round(paired("boston", all_points, "gp", "rmse")[0], 2) == -0.15
    _, low, high = paired("boston", all_points, few, "nll")
    assert low < 0 < high


def test_at_four_points_the_closed_form_row_has_the_likelihood_of_svgd():
    found = [scores("yacht", method, "nll").mean() for method in ("f_svgd_closed_form_4", "svgd", "f_svgd")]
    assert [round(float(value), 2) for value in found] == [1.23, 1.20, 0.56]
    assert round(scores("yacht", "f_svgd_closed_form_4", "rmse").mean(), 2) == 0.57
    few = {m: scores("yacht", m, "noise").mean() for m in ("f_svgd", "f_svgd_closed_form_4")}
    assert [f"{sigma:.2f}" for sigma in few.values()] == ["0.29", "1.26"]
    assert round(few["f_svgd_closed_form_4"] / scores("yacht", "f_svgd_closed_form_4", "rmse").mean()) == 2
    assert f"{scores('yacht', 'f_svgd', 'coverage_90').mean():.0%}" == "94%"


def test_at_four_points_the_closed_form_row_is_ahead_of_svgd_by_rmse_and_level_by_nll():
    _, low, high = paired("yacht", "f_svgd_closed_form_4", "svgd", "rmse")
    assert low < 0 and round(high, 2) == 0.01
    assert (scores("yacht", "f_svgd_closed_form_4", "nll") > scores("yacht", "svgd", "nll")).sum() == 13
    assert (scores("yacht", "f_svgd_closed_form_4", "rmse") < scores("yacht", "svgd", "rmse")).sum() == 16
    _, low, high = paired("yacht", "f_svgd_closed_form_4", "svgd", "nll")
    assert low < 0 < high
    found = [scores("yacht", method, "rmse").mean() for method in ("f_svgd_closed_form_4", "svgd", "f_svgd")]
    assert [round(float(value), 2) for value in found] == [0.57, 0.73, 0.49]


def test_the_closest_split_of_yacht_is_ahead_by_0_002_nats():
    assert f"{(scores('yacht', 'f_svgd', 'nll') - scores('yacht', 'svgd', 'nll')).max():.3f}" == "-0.002"


def test_hmc_has_not_mixed_on_yacht():
    assert round(OTHERS.metric("hmc", "yacht_rhat_median").mean(), 1) == 1.3
    assert OTHERS.metric("hmc", "yacht_rhat_median").min() > 1.1
    largest = OTHERS.metric("hmc", "yacht_rhat_max")
    assert (round(np.median(largest), 1), round(largest.max(), 1)) == (2.3, 3.1)
    assert round(OTHERS.metric("hmc", "boston_rhat_max").max(), 1) == 1.3


def test_one_split_of_yacht_makes_both_outliers():
    weights = scores("yacht", "svgd", "nll")
    assert weights.argmax() == 11 and round(weights[11], 1) == 3.5
    for method, said in (("f_w_sgld", 2.7), ("f_svgd_closed_form", -0.5)):
        each = scores("yacht", method, "nll") - weights
        assert round(each[11], 1) == said and np.abs(each - np.median(each)).argmax() == 11


def test_the_printed_table_has_functions_behind_on_boston_by_likelihood():
    printed = {row.method: row.mean for row in scoreboard.published() if row.item == "fpovi/table5/boston"}
    assert (printed["f_w_sgld"], printed["w_sgld"]) == (2.53, 2.52)


def test_on_yacht_the_errors_grow_with_the_points():
    shown = [scores("yacht", f"f_svgd_closed_form{points}", "rmse").mean() for points in ("_4", "_20", "")]
    assert shown == sorted(shown) and round(shown[-1], 1) == 4.6
    assert round(scores("yacht", "f_svgd", "rmse").mean(), 1) == 0.5


def test_on_boston_sigma_is_half_of_the_error_as_the_ensembles_is():
    error, noise, cover = (scores("boston", "f_svgd", key).mean() for key in ("rmse", "noise", "coverage_90"))
    assert (round(error, 1), round(noise, 1)) == (2.7, 1.3) and f"{cover:.0%}" == "82%"
    for key in ("noise", "spread"):
        assert abs(scores("boston", "deep_ensemble", key).mean() / scores("boston", "f_svgd", key).mean() - 1) < 0.1
    assert scores("boston", "hmc", "coverage_90").mean() > 0.9


def test_the_records_are_as_long_as_printed_on_all_splits():
    for runs, steps in ((RUNS["yacht"], 1_500), (RUNS["boston"], 2_500)):
        assert runs.record("f_svgd").config["steps"] == steps and len(runs.seeds) == 20
    assert np.isfinite(scores("boston", "gp", "nll")).all()


def test_the_verdicts_of_tables_4_and_5():
    board = of_records.board()
    names = [f"fpovi/table{table}/{name}" for table in (4, 5) for name in RUNS]
    printed = ("svgd", "w_sgld", "pi_sgld", "f_svgd", "f_w_sgld", "f_pi_sgld")
    rows = board[board["item"].isin(names) & board["method"].isin(printed) & (board["setting"] == "printed")]
    assert rows["verdict"].value_counts().to_dict() == {"agrees": 15, "lower error": 4, "inconclusive": 5}
    functions = rows[
        rows["item"].str.endswith("boston") & (rows["method"].str.startswith("f_") | (rows["metric"] == "test_nll"))
    ]
    assert (functions["ours_mean"] > functions["paper_mean"]).all() and len(functions) == 9


def test_sigma_differs_between_functions_and_weights_and_the_likelihood_stays():
    assert [round(scores("boston", m, "noise").mean(), 2) for m in ("f_svgd", "svgd")] == [1.32, 2.26]
    ends = [scores("boston", f"f_svgd_closed_form{points}", "nll").mean() for points in ("_4", "")]
    assert [round(float(end), 2) for end in ends] == [2.72, 2.68]


def test_two_layers_on_yacht():
    for shape, method, said in (
        ("50-50", "f_svgd", ("0.67 ± 0.10", "0.68 ± 0.07")),
        ("10-10", "f_svgd", ("0.50 ± 0.04", "0.63 ± 0.03")),
        ("10-10", "svgd", ("0.58 ± 0.05", "0.64 ± 0.05")),
    ):
        runs = Runs(f"fpovi-uci-yacht-{shape}")
        for key, text in zip(("rmse", "nll"), said, strict=True):
            found = runs.metric(method, key)
            assert f"{found.mean():.2f} ± {found.std(ddof=1) / len(found) ** 0.5:.2f}" == text and len(found) == 20


def test_with_the_prior_at_all_points_training_has_ended():
    for name, said in (("yacht", ["4.62", "4.61"]), ("boston", ["3.06", "3.06"])):
        steps = RUNS[name].history("f_svgd_closed_form", "step")[0]
        path = RUNS[name].history("f_svgd_closed_form", "rmse").mean(0)
        looks = [path[steps == share * steps[-1]][0] for share in (0.75, 1)]
        assert [f"{look:.2f}" for look in looks] == said and abs(looks[0] - looks[1]) < 0.02
