"""What notebook 00 says in its tables of claims, held to the records.

A cell of a table is built from the records and looked for in the notebook, so that a changed record and a changed page
both fail.
"""

import json
import re
from functools import partial

import numpy as np
import of_records
import pytest
import test_04
import test_05
import test_06
import test_08
import test_10
import test_11
import test_12
import test_13
import test_14
import test_15
import test_18_19_wild as wild
import test_20
import test_21
import test_22
import test_23
import test_25
import test_readme_and_docs as readme
from of_records import Runs

from gpvi_lib.paths import repository
from gpvi_lib.report import scoreboard

told = partial(of_records.told, "00")


@pytest.mark.parametrize("place", ["In one minute", "| 10 |"])
def test_the_errors_of_table_2(place):
    exact, helper = (f"{readme.sigma_error(method):.2f}" for method in ("gpvi_exact_jac", "gpvi"))
    here = told()[told().index(place) :][:900]
    assert exact in here and helper in here
    printed = [f"{readme.of_table_2(method):.2f}" for method in ("gpvi_exact_jac", "gpvi")]
    assert (
        f"relative covariance error of {exact}; {printed[0]} ± 0.07 is printed" in of_records.told("00")
        and f"we get {helper}, where {printed[1]}" in told()
    )
    assert round(readme.sigma_error("gpvi_best"), 2) < 0.05 and not test_13.lost("gpvi_best")
    assert readme.sigma_error("gpvi") > 3 * readme.sigma_error("gpvi_exact_jac")
    rows = ("mf_vi", "svgd", "gpvi_exact_jac_best", "gpvi_best", "mf_vi_best", "svgd_best", "hmc_best")
    field, svgd, *best, hmc = (f"{readme.sigma_error(method):.2f}" for method in rows)
    said = f"mean field {field}, SVGD {svgd}; at our settings {', '.join(best)}, HMC {hmc} with 80,000 draws"
    assert said in told()
    assert f"the exact inverse ends at {exact} where {printed[0]} ± 0.07 is printed" in told()


def test_how_many_claims_hold():
    """The words of the table, counted."""
    table = told().partition("## The paper's claims")[2].partition("## The three other papers")[0]
    rows = re.findall(r"\| \d+ \| [^|]* \| ([^|]*) \|", table)
    is_open = [row for row in rows if "open" in row]
    found = {
        word: sum(row.startswith(word) for row in rows if row not in is_open) for word in ("holds", "in part", "no")
    }
    assert len(rows) == 17 and found == {"holds": 0, "in part": 8, "no": 6} and len(is_open) == 3
    assert "None holds fully, eight in part, six do not, three are wholly or partly open." in told()


def test_the_time_of_a_step_is_that_of_readme():
    readme.test_readme_gives_the_time_of_a_step()
    for text in ("1.1 to 1.4 times", "from 60,000 weights up, and 1.0 to 3.2 times below"):
        assert text in told() and text in readme.said("README")


def test_2_a_step_on_the_exact_density():
    bench = json.loads((repository() / "results" / "bench" / "amd-epyc-2-threads.json").read_text())
    rows = [row for row in bench["steps"] if row["method"] == "gpvi_exact_density" and row["dim"] > 60_000]
    low, high = (f"{end(row['ratio'] for row in rows):.1f}" for end in (min, max))
    assert (
        f"a step costs {low} to {high} times amortised SVGD's with two batches at MNIST's and CIFAR-10's size" in told()
    )
    assert len(rows) == 2


def test_3_all_four_maps_fold():
    test_12.test_with_lambda_1_and_noise_1_every_map_folds_at_last_and_never_comes_back()
    test_12.test_printed_gpvi_is_folded_from_20000_steps_on()
    longest = {test_12.path(test_12.NARROW, name, "step")[-1] for name in test_12.POTENTIALS}
    assert longest == {200_000} and len(test_12.POTENTIALS) == 4
    assert "with either inverse all four maps of Figures 4 to 7 fold within 200,000 steps (1 seed)" in told()


def test_4_one_warm_step_diverges_and_a_converged_solver_does_not():
    test_04.test_one_warm_started_step_ends_in_nan_within_200_steps_with_fresh_noise_and_with_fixed()
    test_04.test_no_cold_and_no_converged_solver_diverges()
    test_04.test_with_unit_noise_scale_the_single_step_works()
    for noise in ("", "_fixed_noise"):
        last = Runs("inverse-solvers-long").metric(f"bicgstab_warm{noise}", "last_step")
        assert len(last) == 3 and last.max() < 100
    test_04.test_a_fixed_lambda_of_1_adds_the_unit_matrix_to_the_start_and_changes_nothing_else()
    *late, at_once = (test_04.definite_from(problem)[1] for problem in range(3))
    text = "ends in NaN within 100 steps, on fixed noise too (3 seeds); with λ = 1, which changes the start, it trains;"
    text += " so do, without λ, converged solves, and one iteration from zero, on one problem at once, on two after "
    assert at_once == 0 and text + "{:,.0f} and {:,.0f} steps".format(*late) in told()


def test_5_directions_lost():
    lost = len(test_13.lost("gpvi"))
    assert f"{lost} of 10 runs of Table 2 lose a direction" in told()
    assert f"printed: {lost} of 10 runs lose a direction." in told()
    assert f"the printed helper network loses a direction in {lost} of 10 runs." in told()
    assert not test_13.lost("gpvi_exact_jac") and not test_13.lost("gpvi_best")
    said = "with the exact inverse, and at our settings (faster, wider helper, decaying rate), none |"
    assert f"(under a tenth of its variance is left); {said}" in told()


def test_6_the_exact_inverse_in_five_dimensions():
    exact, helper = (test_05.metric(method, 5) for method in ("gpvi_exact_jac", "gpvi"))
    means = f"mean error of Σ {exact.mean():.2f} against the helper's {helper.mean():.2f}"
    text = f"{means} after 10,000 steps, median {np.median(exact):.2f} against {np.median(helper):.2f}; "
    late = [Runs("gaussian-density-5d-long").metric(m, "sigma_error").mean() for m in ("gpvi_exact_jac", "gpvi")]
    text += "{:.3f} against {:.3f} after 50,000 ".format(*late) + f"({len(exact)} covariances)"
    assert text in told()


def test_7_amortised_svgd_climbs_from_its_target():
    readme.test_from_the_target_one_batch_climbs()
    test_06.test_in_ten_dimensions_one_batch_climbs_and_two_stay_at_the_optimum()
    test_06.test_the_counts_of_ascent_are_those_of_the_text()
    test_06.test_no_run_ends_lower_than_those_of_gpvi()
    text = "from random starts 2 of 139 states climb, GPVI's 7 (undecided), and GPVI ends lower on both targets"
    assert f"started at $\\mathcal N(0, I_{{20}})$ it climbs 6.5 nats, with two batches not; {text}" in told()


def test_8_smooth_units_cut_the_critics_error_to_a_third():
    relu = Runs("gaussian-density-5d").metric("amortized_ksd", "sigma_error")
    smooth = Runs("smooth-tables").metric("table1_5d_amortized_ksd", "sigma_error")
    assert 0.28 < np.median(smooth) / np.median(relu) < 0.39
    before = Runs("gaussian-density-5d").metric("amortized_ksd", "kl")
    after = Runs("smooth-tables").metric("table1_5d_amortized_ksd", "kl")
    said = "smooth units cut the amortised critic's median error of Σ to a third in five dimensions,"
    said += (
        f" its KL hardly ({np.median(before):.2f} to {np.median(after):.2f}; {len(after)} covariances, 10,000 steps;"
    )
    assert f"{said} appendix F)" in told()
    text = f"six of ten only, in five dimensions from {np.median(before):.3f} to {np.median(after):.3f}"
    assert text in told() and (after < before).sum() == 6


def test_9_the_printed_chains_do_not_mix():
    test_08.test_the_printed_chains_do_not_mix_on_a_network()
    test_08.test_no_prediction_of_the_printed_chains_passes_and_their_probabilities_are_far_from_nuts()
    assert "R-hat of its predictions up to 2.76 (8 chains, 1 seed)" in told()
    behind = readme.sigma_error("hmc")
    inverse, helper = (readme.sigma_error(method) for method in ("gpvi_exact_jac", "gpvi"))
    said = f"on the regression its {behind:.2f} is behind the exact inverse's {inverse:.2f}, ahead of the printed"
    assert f"{said} helper's {helper:.2f}; a hundred exact draws have 0.19" in told()
    assert f"{test_13.exact_draws().mean():.2f}" == "0.19"


def test_11_images():
    test_15.test_no_form_of_gpvi_is_ahead_of_the_strong_rivals()
    assert "After 3 of MNIST's 100 epochs no form of GPVI has a clearly higher AUROC than mean field;" in told()
    assert "after 3 of MNIST's 100 epochs no form of GPVI is clearly ahead of mean field by AUROC." in told()
    auroc = test_15.means()["auroc"]
    text = (
        f"AUROC {auroc['gpvi']:.2f} at λ = 1 as printed; trained λ {auroc['gpvi_best']:.3f} to "
        f"{auroc['gpvi_authors']:.3f}, mean field {auroc['mf_vi']:.3f}, SVGD {auroc['svgd']:.3f} to "
        f"{auroc['svgd_best']:.3f}, an ensemble {auroc['deep_ensemble']:.3f}"
    )
    assert text in told() and auroc["gpvi_exact_density"].round(3) == auroc["gpvi_best"].round(3)
    every = Runs("open-category-mnist-published")
    methods = ("svgd", "deep_ensemble", "mf_vi", "svgd_best", "gpvi_best")
    *means, ours = (every.metric(m, "auroc", every.recorded(m)) for m in methods)
    text = (
        "after all 100 SVGD {:.3f}, an ensemble {:.3f}, mean field {:.3f} at the printed rate, SVGD {:.3f} at 100 times"
    )
    assert all(len(found) == 3 for found in means) and text.format(*(found.mean() for found in means)) in told()
    soft = Runs("digits-long-mnist").record("gpvi_best_softplus").metrics
    smooth, right = soft["auroc"], soft["accuracy_percent"]
    half = Runs("open-category-mnist-half").record("gpvi_exact_density").metrics["auroc"]
    text = (
        "GPVI at ten times it {:.2f}, {:.2f} and {:.2f} (3 seeds), with softplus units {:.3f} (1 seed), "
        "the exact density {:.2f} after 50 (ReLU, 1 seed)".format(*ours, smooth, half)
    )
    amortised = every.metric("amortized_svgd", "auroc", every.recorded("amortized_svgd"))
    text += f", amortised SVGD at the printed rate {amortised.mean():.3f} (2 seeds)"
    assert len(ours) == 3 and len(amortised) == 2 and text in told()
    assert every.experiment.config("amortized_svgd", "paper")["lr"] == 1e-5
    rates = [every.experiment.config(m, "paper")["lr"] for m in methods]
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 1, 1, 100, 10])
    test_15.test_softplus_units_keep_mnist_over_all_hundred_epochs()
    first, second, third = every.metric("gpvi_best", "accuracy_percent")
    relu = f"when ReLU has {first:.0f}, {second:.0f} and {third:.1f} % and"
    assert f"after all hundred softplus (1 seed) has {right:.1f} % and {smooth:.3f}, {relu}" in told()
    assert f"and {ours[0]:.2f}, {ours[1]:.2f} and {ours[2]:.2f} on its three seeds" in told()
    ensemble = every.metric("deep_ensemble", "auroc", every.recorded("deep_ensemble")).mean()
    assert (
        f"After 100 the ensemble has {ensemble:.3f}, GPVI with softplus units {smooth:.3f}, with ReLU "
        f"{ours.min():.2f} to {ours.max():.2f}."
    ) in told()


def test_12_figure_1():
    hmc, svgd = (test_10.metric(method).mean() for method in ("hmc", "svgd"))
    full = Runs("one-dimensional-regression-full-length").record("gpvi")
    best, smooth = (
        np.median(test_10.metric("gpvi_best")),
        np.median(Runs("smooth-figures").metric("figure1_gpvi_best", "w1")),
    )
    text = f"$W_1$ to NUTS: HMC {hmc:.2f}, SVGD {svgd:.2f} (3 seeds), GPVI at λ = 1 {full.metrics['w1']:.1f} after all"
    text += (
        f" {full.config['steps']:,} steps (1 seed); with a trained λ {best:.2f}, with softplus too {smooth:.2f} (10,000"
    )
    assert text in told() and "*Measured (50,000 steps, 1 seed):* at λ = 1" in told()
    assert f"{full.metrics['w1'] / svgd:.0f} times as far from NUTS" in told()
    assert Runs("one-dimensional-regression").record("gpvi_best").config["steps"] == 10_000


def test_14_the_longest_runs():
    hmc = "/".join(f"{test_14.metric(c, 'hmc').mean():.2f}" for c in (4, 2))
    rows, parts = {"SVGD": "svgd", "exact inverse": "gpvi_exact_jac", "helper": "gpvi", "ensemble": "deep_ensemble"}, []
    for name, method in rows.items():
        found = [test_14.longest(c, method) for c in (4, 2)]
        steps = "/".join(dict.fromkeys(f"{record.config['steps']:,}" for record in found))
        apart = "/".join(f"{record.metrics['total_variation']:.2f}" for record in found)
        parts.append(f"{name} {apart} ({steps}{' steps' if method == 'svgd' else ''})")
    text = f"four/two classes: HMC {hmc} (3 seeds); 1 seed each: {', '.join(parts)}"
    ours = ["/".join(f"{test_14.metric(c, m).mean():.2f}" for c in (4, 2)) for m in ("gpvi_best", "gpvi_exact_density")]
    assert f"{text}; at our settings GPVI {ours[0]}, exact density {ours[1]} (3 seeds)" in told()


def test_16_what_the_helper_adds():
    helper, exact = (
        Runs("overhead").record(f"gpvi_mnist{best}").metrics["extra_time_fraction"] for best in ("", "_best")
    )
    text = f"{helper:.0%} on a CPU, over amortised SVGD with one batch; the exact inverse {exact:.0%}"
    assert text.replace("%", " %") in told()


def test_17_from_two_to_five_dimensions():
    methods = ("gpvi", "amortized_svgd", "amortized_ksd")
    means = ["{:.2f} and {:.2f}".format(*(test_11.metric(m, d, "sigma_error").mean() for d in (2, 5))) for m in methods]
    kl = ["{:.1f} to {:.1f}".format(*(np.median(test_11.metric(m, d, "kl")) for d in (2, 5))) for m in methods]
    lower = [
        test_11.metric("gpvi", d, "sigma_error") < test_11.metric("amortized_ksd", d, "sigma_error") for d in (2, 5)
    ]
    first, second = (int(found.sum()) for found in lower)
    text = (
        f"from 2 to 5 dimensions its mean error of Σ, {means[0]}, is below amortised SVGD's, {means[1]}, and the "
        f"critic's, {means[2]} (lower than the critic's on {first} of 10 covariances, in five dimensions on {second}); "
        f"its median KL grows from {kl[0]} nats, the critic's from {kl[2]} (10 covariances"
    )
    assert text in told() and len(test_11.metric("gpvi", 2)) == 10
    test_11.test_after_50000_steps_the_claim_holds_in_two_dimensions()
    test_11.test_after_50000_steps_gpvi_is_ahead_of_all_three_by_the_sigma_error_and_not_by_kl()
    ends = [test_11.late("gpvi", dim=d).mean() for d in (2, 5)]
    kl = [np.median(test_11.late("gpvi", "kl", d)) for d in (2, 5)]
    text = (
        "with 50,000 steps its errors are {:.2f} and {:.2f}, below amortised SVGD's, GFSF's and the critic's on all "
        "ten in both dimensions, its median"
    )
    assert f"{text} KL {{:.4f}} and {{:.1f}}, and the critic collapses on three in either".format(*ends, *kl) in told()


def test_the_errors_of_mu_are_not_counted_and_two_of_the_higher_are_times():
    board = of_records.board()
    of_paper = board[board["item"].str.startswith("gpvi/") & (board["setting"] == "printed")]
    higher = of_paper[(of_paper["verdict"] == "higher error") & of_paper["paper_mean"].notna()]
    assert higher["item"].str.contains("overhead").sum() == 2 and len(higher) == 9
    images = higher[higher["item"].str.contains("mnist") & ~higher["item"].str.contains("overhead")]
    assert sorted(images["method"]) == ["gfsf", "gfsf", "svgd", "svgd", "svgd"]
    assert set(higher[higher["item"].str.contains("overhead")]["method"]) == {"gpvi_mnist", "gpvi_cifar10"}
    assert scoreboard.headline(board)["higher error"] == 9
    text = "Of the nine \"higher error\" below, two are the helper's time on our CPU, five are SVGD's and GFSF's on"
    assert f"{text} MNIST." in told()


def test_which_rows_of_the_image_tables_have_all_epochs():
    board = of_records.board()
    rows = board[board["item"].str.match("gpvi/table[34]/") & (board["setting"] == "printed")]
    rows = rows[rows["paper_mean"].notna()]
    beginnings = rows["verdict"].isin(["too short", "not run"])
    short, rows = rows[beginnings & (rows["item"] == "gpvi/table3/mnist")], rows[~beginnings]
    assert set(rows["method"]) == {"svgd", "gfsf", "mf_vi", "deep_ensemble", "amortized_svgd"}
    assert set(rows["item"]) == {"gpvi/table3/mnist"}
    assert set(short["method"]) == {"gpvi", "ksd", "amortized_ksd", "amortized_gfsf", "amortized_svgd"}
    assert list(short[short["method"] == "amortized_svgd"]["metric"]) == ["clean_accuracy_percent"]
    assert (
        "Too short or not run are Table 4 and, of Table 3, GPVI, both critics, amortised GFSF and amortised SVGD's "
        "accuracy." in told()
    )
    ensemble = rows[rows["method"] == "deep_ensemble"].set_index("metric")["verdict"]
    assert ensemble["auroc"] == "lower error" and ensemble["ece"] == "inconclusive"


def test_wild():
    learned, printed = wild.kl("svgd_full"), min(wild.kl(row).min() for row in wild.PRINTED)
    held = wild.kl("svgd_truncated")
    assert (
        f"by SVGD: KL {learned.min():.2f} to 0.04, with the chain's scores held {held.mean():.3f}, against "
        f"{printed:.2f} (3 seeds); learned by KSD: 0.03 to 0.21" in told()
    )
    wild.test_18_ksd()
    assert learned.max() < 0.0455
    ends = (
        f"a power decay with a free exponent ends at a KL of {wild.kl('power_free')[0]:.3f} if the exact KL chooses it"
    )
    assert (
        f"{ends}, at 0.001 to 0.009 if the KSD of samples with a wide kernel does, with the median rule's at 0.03 to "
        "0.12 (3 seeds)" in told()
    )
    wild.test_18_a_decay_chosen_by_the_samples_alone()
    copied, steps = wild.at_ten("transfer"), wild.at_ten("svgd")
    spans = [f"−{-found.max():.2f} to −{-found.min():.2f}" for found in (copied, steps)]
    assert f"test log-likelihood of ten SVGD layers {spans[1]}; KSD trails printed schedules on one seed" in told()
    assert f"another problem's posterior, copied, {spans[0]} (3 seeds)" in told()


def test_function_space():
    svgd, functions = (test_20.ratio(test_20.TOY, method).mean() for method in ("svgd", "f_svgd"))
    said = f"two layers of 50: {svgd:.0%} of HMC's spread on the data, f-SVGD {functions:.0%} (3 seeds)"
    assert said.replace("%", " %") in of_records.told("00")
    assert "5 units in a layer SVGD keeps 93 to 100 %" in of_records.told("20")
    kept, away = (test_20.of(test_20.CONTROLS, "svgd_5", key) for key in ("sd_ratio_data", "rmse_mean_data"))
    sd = test_20.of(test_20.CONTROLS, "svgd_5", "sd_data") / kept
    said = f"with 5 units SVGD has {test_20.in_percent(kept)}, its mean twice HMC's sd away"
    assert said in of_records.told("00") and round((away / sd).mean()) == 2


def test_function_space_on_uci():
    test_21.test_on_three_sets_functions_are_ahead_of_weights()
    test_21.test_on_boston_the_error_is_lower_and_the_likelihood_worse_and_nothing_is_decided()
    test_21.test_on_red_wine_the_likelihood_alone_is_ahead()
    test_21.test_f_svgd_is_ahead_of_a_deep_ensemble_once_and_behind_twice()
    test_21.test_on_kin8nm_its_error_is_below_the_ensembles()
    test_21.test_without_its_prior_svgd_comes_near_the_ensemble()
    assert (
        "SVGD on all splits of yacht, energy, concrete (20 splits), kin8nm and power (5), on the first three" in told()
    )
    assert "on red wine by NLL alone; boston and naval decide nothing; a deep ensemble of" in told()
    assert "kin8nm and power (5), on the first three mostly for SVGD's prior;" in told()
    behind, low, _ = test_21.paired("naval", "f_svgd", "deep_ensemble", "nll")
    said = f"differs by kin8nm's RMSE, and on naval f-SVGD is {behind:.1f} nats behind (5 splits)"
    assert said in told() and low > 0


def test_bandits():
    test_22.test_the_orders_that_are_said()
    said = {
        name: [test_22.listed(test_22.regret(runs, method)) for method in ("f_svgd", "svgd", "mf_vi")]
        for name, runs in (("wheel", test_22.WHEEL), ("mushroom", test_22.MUSHROOM))
    }
    for functions, weights, field in said.values():
        assert f"f-SVGD has {functions} %, SVGD {weights} %, mean field {field} % (3 seeds)" in of_records.told("00")
    (wheel, _), (ours, theirs) = (
        [test_22.listed(test_22.regret(runs, f"{method}_wide_start")) for method in ("f_svgd", "svgd")]
        for runs in (test_22.WHEEL, test_22.MUSHROOM)
    )
    assert f"from the code's start f-SVGD has {wheel} %;" in told()
    assert f"from the code's start f-SVGD {ours} %, SVGD {theirs} %;" in told()
    every = {method: test_22.regret(test_22.ALL_WHEEL, method) for method in ("f_svgd", "mf_vi", "gp", "bootstrap")}
    told_as = f"after all rounds f-SVGD has {every['f_svgd'][0]:.1f} % (1 seed, printed 7.5), mean field "
    told_as += (
        f"{test_22.listed(every['mf_vi'])} % (printed 56), a Gaussian process {test_22.between(every['gp'])} % (61), "
        f"the bootstrap {every['bootstrap'][0]:.0f} % (1 seed, 42)"
    )
    assert told_as in told() and len(every["f_svgd"]) == len(every["bootstrap"]) == 1
    (ours,), (theirs,), (field,) = (test_22.regret(test_22.ALL_MUSHROOM, m) for m in ("f_svgd", "bootstrap", "mf_vi"))
    told_as = f"after all rounds (1 seed) f-SVGD has {ours:.1f} % (printed 4.4), the bootstrap {theirs:.1f} % (2.7), "
    assert f"{told_as}mean field {field:.1f} % (19)" in told()


def test_livi():
    off = max(abs(error) for method in test_23.FIXED for error in test_23.errors(method))
    assert f"within {off:.1f} nats of a certified one at fixed σ" in told()


def test_livi_on_its_toy():
    near = Runs("livi-toy").metric("livi_full_released", "w1", [0, 1, 2])
    assert (
        f"with the released script's prior, generator and steps {near.min():.2f} to {near.max():.2f} (3 seeds)"
        in told()
    )


def test_livi_on_mnist():
    confidence = [test_25.number(m, "mean_confidence_percent").mean() for m in ("livi_min_sv_bayes_slow", "mf_vi_fast")]
    told_as = "L″ at the rate 7e-5 has confidence {:.0f} % under Bayes' rule, mean field at 1e-2 {:.0f} %"
    fast = test_25.LONGER.record("mf_vi_fast").metrics["mean_confidence_percent"]
    told_as = (
        f"after 10 epochs {told_as.format(*confidence)}, as at 1e-3 after 100 (1 seed; 1e-2 then has {fast:.0f} %);"
    )
    assert told_as in told()
    assert abs(float(test_25.longer("mf_vi", "mean_confidence_percent")) - confidence[1]) < 1
    assert test_25.LONGER.recorded("mf_vi") == [0] and test_25.LONGER.record("mf_vi").config["lr"] == 1e-3
    assert [test_25.MNIST.record(m).config["lr"] for m in ("livi_min_sv_bayes_slow", "mf_vi_fast")] == [7e-5, 1e-2]
    accuracies = [test_25.number(m, "accuracy_percent").mean() for m in ("livi_min_sv", "mf_vi_released_fast")]
    assert 10 < min(accuracies) < max(accuracies) < 12
    slow = test_25.number("mf_vi_released", "accuracy_percent").mean()
    later = float(test_25.longer("mf_vi_released", "accuracy_percent"))
    ends = (
        f"L″ ends at {accuracies[0]:.0f} % accuracy, mean field at {slow:.0f} % (rate 1e-3) or {accuracies[1]:.0f} % "
    )
    ends += f"(1e-2), after 100 epochs 1e-3 at {later:.0f} %, too ({test_25.longer_seeds('mf_vi_released')})"
    assert ends in told() and test_25.MNIST.record("mf_vi_released").config["lr"] == 1e-3
    test_25.test_how_far_the_runs_went()


def test_17_the_mean_error_of_gpvi_is_the_smallest_and_grows_most():
    means = {dim: {m: test_11.metric(m, dim).mean() for m in test_11.METHODS} for dim in (2, 5)}
    growth = {method: means[5][method] / means[2][method] for method in test_11.METHODS}
    assert all(min(of, key=of.get) == "gpvi" for of in means.values()) and max(growth, key=growth.get) == "gpvi"
    assert "the smallest mean error of Σ in both dimensions, but it grows most, threefold, and not by KL" in told()
    assert round(growth["gpvi"]) == 3
    ends = {m: [test_11.LONG[dim].metric(m, "sigma_error") for dim in (2, 5)] for m in test_11.METHODS}
    later = {m: np.median(five) / np.median(two) for m, (two, five) in ends.items()}
    said = f"its median grows {later['gpvi']:.1f}-fold, amortised SVGD's {later['amortized_svgd']:.1f}-fold and"
    assert f"{said} GFSF's {later['amortized_gfsf']:.1f}-fold;" in told()
    kl = [test_11.LONG[2].metric(m, "kl") for m in ("gpvi", "amortized_ksd")]
    assert (kl[0] < kl[1]).all() and "(with 50,000 in two dimensions against the critic on all ten)" in told()


def test_6_the_exact_inverse_is_worse_on_two_problems():
    runs = Runs("gaussian-density-5d")
    behind = np.flatnonzero(runs.metric("gpvi_exact_jac", "sigma_error") > runs.metric("gpvi", "sigma_error"))
    worst = sorted((test_11.condition(5)[seed] ** 0.5 for seed in behind), reverse=True)
    assert "worse on two of ten problems (condition numbers {:.0f} and {:.0f})".format(*worst) in told()


def test_11_which_form_of_gpvi_is_behind_the_ensemble():
    runs = Runs("open-category-mnist")
    ours, theirs, rival = (runs.metric(m, "auroc") for m in ("gpvi_authors", "gpvi_best", "deep_ensemble"))
    assert (ours < rival).all() and (theirs < rival).all()
    assert (np.maximum(ours, theirs) < runs.metric("svgd_best", "auroc")).all()
    said = "it is behind the ensemble), though SVGD at our setting and the ensemble are ahead on each seed;"
    assert f"(at the authors' later one {said}" in told()
    published = Runs("open-category-mnist-published")
    assert (published.metric("svgd", "auroc") < published.metric("deep_ensemble", "auroc")).all()
    test_15.test_svgd_and_gfsf_as_printed_do_not_lead_the_ensemble()
    *particles, ensemble = (
        readme.published("gpvi/table3/mnist", m, "auroc") for m in ("svgd", "gfsf", "deep_ensemble")
    )
    assert min(particles) > ensemble + 0.01
    said = "After all 100 SVGD as printed is behind the ensemble and GFSF level with it (3 seeds); the paper"
    assert f"{said} prints both clearly ahead;" in told()
