"""What notebook 16 says in prose of the records, held to the records."""

from functools import cache

import numpy as np
import of_records
import torch
from of_records import Runs
from scipy import stats

from gpvi_lib.experiments import get_experiment, open_category
from gpvi_lib.lab.records import frame
from gpvi_lib.report import open_category as report
from gpvi_lib.report import scoreboard

GENERATORS = ["amortized_svgd", "gpvi_best", "gpvi_exact_density"]


@cache
def runs():
    """All records of three epochs, which the text is about."""
    return report.Runs.recorded(get_experiment("open-category-cifar10"), "paper", "gpvi/table4/cifar10")


@cache
def means():
    return runs().means()


def path(method, key):
    return runs().arrays[method][0][f"history_{key}"]


def test_how_many_epochs_the_runs_have():
    assert open_category.SIZES["cifar10"]["epochs"] == {"short": 3, "thirty": 30, "published": 200}
    assert "We trained six methods for three of the 200 epochs, one seed each," in of_records.told("16")


def test_all_runs_together_took_two_hours():
    assert 1.9 < runs().board["seconds"].sum() / 3_600 < 2.1
    assert "The runs have one seed each and took two hours of a CPU together." in of_records.told("16")


def test_the_two_methods_without_our_prior_are_the_most_accurate():
    known = means()["accuracy_percent"]
    assert known[["deep_ensemble", "mf_vi"]].min() > 65  # of six classes
    assert set(known.nlargest(2).index) == {"deep_ensemble", "mf_vi"}
    assert "The two most accurate methods are the two without the prior of $a = 1$." in of_records.told("16")


def test_all_are_weak_detectors():
    assert means()["auroc"].max() < 0.7
    assert "All methods are weak detectors." in of_records.told("16")
    assert "An AUROC of 0.68 is a weak detector:" in of_records.told("16")


def test_the_variance_is_the_better_score_of_svgd_and_amortised_svgd_alone():
    gain = means()["auroc"] - means()["auroc_entropy"]
    assert gain[["svgd", "amortized_svgd"]].min() > 0.02 > gain.drop(["svgd", "amortized_svgd"]).max()
    assert abs(gain["gpvi_exact_density"]) < 0.002 and gain["mf_vi"] < -0.01
    rounded = {method: round(gain[method], 2) for method in ("svgd", "amortized_svgd", "gpvi_best", "mf_vi")}
    assert rounded == {"svgd": 0.03, "amortized_svgd": 0.05, "gpvi_best": 0.01, "mf_vi": -0.01}
    assert gain[["deep_ensemble", "gpvi_exact_density"]].abs().max() < 0.0055
    said = "for SVGD (by {svgd:.2f}), amortised SVGD ({amortized_svgd:.2f}) and GPVI's functional gradient "
    said += "({gpvi_best:.2f}). For mean field the entropy is ahead by 0.01,"
    assert f"The variance is the better score {said.format(**gain)}" in of_records.told("16")
    assert "for the ensemble and the exact density the two differ by 0.005 at most." in of_records.told("16")
    known = means()["accuracy_percent"]
    assert known[["svgd", "amortized_svgd", "gpvi_best"]].between(55, 65.5).all()
    assert f"{known['gpvi_exact_density']:.1f}" == "57.6" and known[["mf_vi", "deep_ensemble"]].min() > 65


def test_generators_are_seven_points_behind_and_did_not_become_better_detectors():
    known = means()["accuracy_percent"]
    assert known[GENERATORS].max() + 7 < known.drop(GENERATORS).min()
    assert "The three generators are seven points and more behind." in of_records.told("16")
    assert all(path(m, "auroc")[1] > means()["auroc"][m] for m in GENERATORS)  # the first look after the start


def test_particles_and_mean_field_still_gain_accuracy_and_generators_less():
    last_epoch = {m: path(m, "accuracy_percent")[-1] - path(m, "accuracy_percent")[-3] for m in runs().methods}
    assert min(last_epoch[m] for m in ("deep_ensemble", "mf_vi", "svgd")) > 2 > max(last_epoch[m] for m in GENERATORS)
    assert max(last_epoch.values()) < 4
    said = "SVGD, the ensemble and mean field still gain two to four points of accuracy in the last epoch."
    assert said in of_records.told("16")


def test_in_the_last_epoch_the_exact_density_gains_15_points_and_the_other_generators_lose():
    last_epoch = {m: path(m, "accuracy_percent")[-1] - path(m, "accuracy_percent")[-3] for m in GENERATORS}
    assert abs(last_epoch.pop("gpvi_exact_density") - 1.5) < 0.05 and max(last_epoch.values()) < 0
    assert round(last_epoch["amortized_svgd"]) == -1 and abs(last_epoch["gpvi_best"]) < 0.5
    said = "the exact density gains 1.5 points, amortised SVGD loses one, and the functional gradient stays."
    assert f"In the last epoch {said}" in of_records.told("16")


def test_all_methods_together_span_less_than_svgd_gains_between_two_looks():
    area, looks = means()["auroc"], path("svgd", "auroc")
    assert area.max() - area.min() < 0.08 < looks[4] - looks[3]
    assert f"SVGD gained {looks[4] - looks[3]:.2f} between two looks," in of_records.told("16")
    assert "At the end all methods together span less than SVGD's gain." in of_records.told("16")


def test_the_exact_density_has_lost_005_since_the_middle_of_training():
    lost = path("gpvi_exact_density", "auroc")[3] - means()["auroc"]["gpvi_exact_density"]
    assert 0.045 < lost < 0.055
    assert f"the exact density has lost {lost:.2f} since the middle of training." in of_records.told("16")


def test_both_forms_of_gpvi_are_behind_the_ensemble_by_either_score():
    for score in ("variance", "entropy"):
        for method in ("gpvi_best", "gpvi_exact_density"):
            assert report.auroc_difference(runs(), method, "deep_ensemble", score)[2] < 0
    assert "With ten networks both forms of GPVI are behind the deep ensemble by either score." in of_records.told("16")


def test_mean_field_and_amortised_svgd_are_calibrated_and_all_others_too_unsure():
    calibrated = report.calibration(runs(), 0)
    assert not calibrated.loc[["mf_vi", "amortized_svgd"], ["too_sure", "too_unsure"]].to_numpy().any()
    assert (calibrated["too_unsure"].drop(["mf_vi", "amortized_svgd"]) == 1).all()
    said = "At the last look the ECE of mean field and of amortised SVGD is within what chance explains"
    assert said in of_records.told("16") and "All others are too unsure," in of_records.told("16")


def test_the_exact_density_disagrees_by_its_noise_and_the_functional_gradient_by_g():
    exact, gradient = (runs().means(*report.DIVERSITY).loc[m] for m in ("gpvi_exact_density", "gpvi_best"))
    assert exact["spread_noise"] > exact["spread_g"] and gradient["spread_g"] > 5 * gradient["spread_noise"]
    mnist = Runs("open-category-mnist")
    exact, gradient = (
        mnist.metric(m, "spread_g") / mnist.metric(m, "spread_noise") for m in ("gpvi_exact_density", "gpvi_best")
    )
    assert exact.max() < 0.2 and of_records.within(gradient, 0.9, 1.4)
    said = "As on MNIST, λ alone gives the exact density more disagreement than $g$ alone. Under the functional"
    assert f"{said} gradient $g$ alone gives more than λ alone (on MNIST as much)." in of_records.told("16")


def test_a_hundred_networks_raise_the_auroc_of_all_and_of_the_exact_density_most():
    found = runs().means("auroc_100_networks", "auroc_10_networks")
    more = found["auroc_100_networks"] - found["auroc_10_networks"]
    assert more.min() > 0.01 and more.idxmax() == "gpvi_exact_density"
    said = "A hundred networks instead of ten raise the AUROC by variance of all four, of the exact density most."
    assert more.count() == 4 and said in of_records.told("16")


def test_the_papers_factor_lies_between_the_exact_inverses_and_the_helpers_which_mnist_shares():
    factor = frame(get_experiment("overhead"), "paper").set_index("method")["extra_time_fraction"]
    assert factor["gpvi_cifar10_best"] < 0.78 < factor["gpvi_cifar10"]
    assert abs(factor["gpvi_cifar10"] / factor["gpvi_mnist"] - 1) < 0.3
    said = f"The exact inverse adds a fraction smaller than the paper's, {factor['gpvi_cifar10_best']:.2f},"
    assert said in of_records.told("16")
    said = f"Ours is about the same on both ({factor['gpvi_cifar10']:.2f} against {factor['gpvi_mnist']:.2f})."
    assert said in of_records.told("16")


def test_the_numbers_of_the_first_minute():
    found = means()
    assert round(found.loc["deep_ensemble", "accuracy_percent"], 1) == 74.5
    area = {
        method: round(found.loc[method, "auroc"], 3) for method in ("deep_ensemble", "gpvi_best", "gpvi_exact_density")
    }
    assert area == {"deep_ensemble": 0.644, "gpvi_best": 0.591, "gpvi_exact_density": 0.571}
    assert (runs().board.groupby("method").size() == 1).all()
    configs = [Runs("open-category-cifar10").record(m).config for m in found.index]
    assert all(config["evaluation_samples"] == config["sampler"].get("num", 10) == 10 for config in configs)
    said = "is the most accurate (74.5 %) and, with ten networks each, the best detector (AUROC 0.644)."
    assert found["auroc"].idxmax() == "deep_ensemble" and said in of_records.told("16")
    assert "has 0.591 by the functional gradient and 0.571 on the exact density." in of_records.told("16")


def test_the_printed_margins_in_auroc():
    others = ("svgd", "gfsf", "amortized_svgd", "amortized_gfsf")
    margins = [report.published_margin("gpvi/table4/cifar10", other, "auroc") for other in others]
    assert [round(margin, 1) for margin in margins] == [-0.5, -0.4, 2.1, 8.8]
    said = "is 0.5 and 0.4 combined standard deviations behind SVGD and GFSF in AUROC, and 2.1 and 8.8 ahead of the"
    assert f"in Table 4 GPVI {said} amortised methods." in of_records.told("16")


def test_what_a_step_costs_by_inverse():
    factor = frame(get_experiment("overhead"), "paper").set_index("method")["extra_time_fraction"]
    assert (round(factor["gpvi_cifar10_best"], 2), round(factor["gpvi_cifar10"], 2)) == (0.38, 4.72)
    said = "the exact inverse adds 0.38 of a step of amortised SVGD, the printed helper 4.72, the paper says 0.78."
    assert said in of_records.told("16")


def test_the_ensemble_leads_by_either_score():
    assert means()["auroc"].idxmax() == means()["auroc_entropy"].idxmax() == "deep_ensemble"
    assert means()["accuracy_percent"].idxmax() == "deep_ensemble"
    assert "The ensemble leads in accuracy and in AUROC by either score." in of_records.told("16")


def test_the_ensemble_is_034_ahead_of_all_by_either_score_with_intervals_above_0_and_was_level_at_two_epochs():
    others = [m for m in means().index if m != "deep_ensemble"]
    leads = [
        report.auroc_difference(runs(), "deep_ensemble", m, score)[:2]
        for m in others
        for score in ("variance", "entropy")
    ]
    assert round(min(lead for lead, _ in leads), 3) == 0.034 and min(low for _, low in leads) > 0
    assert "So are the other three methods, by 0.034 and more, and no interval contains 0." in of_records.told("16")
    assert [round(float(path(m, "auroc")[4]), 3) for m in ("svgd", "deep_ensemble")] == [0.63, 0.629]
    assert "after two epochs SVGD was level with it (0.630 against 0.629)." in of_records.told("16")


def test_printed_numbers_of_gpvi_svgd_and_mean_field():
    printed = {
        (m, key): runs().published(m, key).mean for m in ("svgd", "gpvi_best", "mf_vi") for key in ("auroc", "ece")
    }
    assert round(printed["svgd", "auroc"] - printed["gpvi_best", "auroc"], 3) == 0.006
    assert "In print GPVI is 0.006 (under one standard deviation) behind SVGD." in of_records.told("16")
    assert (printed["mf_vi", "ece"], printed["gpvi_best", "ece"]) == (0.016, 0.018)
    assert "mean field (0.016) and GPVI (0.018) are level." in of_records.told("16")


def test_the_helpers_factor_on_mnist_and_the_medians_of_ratios():
    cost = frame(get_experiment("overhead"), "paper").set_index("method")
    assert round(cost.loc["gpvi_mnist", "extra_time_fraction"], 2) == 4.29
    assert round(cost.loc["gpvi_cifar10", "gpvi_ms"] / cost.loc["gpvi_cifar10", "amortized_svgd_ms"] - 1, 2) == 4.62
    assert "Ours is about the same on both (4.72 against 4.29)." in of_records.told("16")
    assert "less 1, so it is not quite the ratio of the two medians." in of_records.told("16")


def test_generators_need_almost_three_times_the_memory():
    memory = runs().means("peak_memory_mb")["peak_memory_mb"]
    ratio = memory[GENERATORS].to_numpy()[:, None] / memory.drop(GENERATORS).to_numpy()
    assert 2.6 < ratio.min() and ratio.max() < 3
    assert "of 189 million weights, need almost three times as much as the others." in of_records.told("16")


def test_the_rank_correlations_of_accuracy_and_auroc():
    found = means()
    together = [found["accuracy_percent"].corr(found[key], method="spearman") for key in ("auroc", "auroc_entropy")]
    assert [round(value, 1) for value in together] == [0.5, 0.8]
    assert "Over our six methods it is 0.5 by variance and 0.8 by entropy" in of_records.told("16")


def test_with_a_hundred_draws_both_forms_of_gpvi_detect_alike():
    many = runs().means("auroc_100_networks")["auroc_100_networks"]
    said = f"the two forms of GPVI have {many['gpvi_best']:.3f} and {many['gpvi_exact_density']:.3f}"
    assert said in of_records.told("16")


def test_half_an_epoch_before_the_end_two_methods_had_a_larger_ece():
    before = [path(method, "ece")[-2] for method in ("mf_vi", "amortized_svgd")]
    assert f"half an epoch before they had {before[0]:.3f} and {before[1]:.3f}." in of_records.told("16")
    ece = means()["ece"]
    assert ece.idxmax() == "deep_ensemble" and f"the ensemble most ({ece.max():.3f})" in of_records.told("16")


def test_generators_train_at_a_tenth_of_the_rate():
    rates = {
        m: get_experiment("open-category-cifar10").config(m, "paper")["lr"]
        for m in runs().methods
        if m in means().index
    }
    assert {m: rate for m, rate in rates.items() if m in GENERATORS} == dict.fromkeys(GENERATORS, 1e-4)
    assert all(rate == 1e-3 for m, rate in rates.items() if m not in GENERATORS)
    said = "The learning rates are $10^{-3}$ for particles and mean field, $10^{-4}$ for generators"
    assert said in of_records.told("16")
    assert "They train at a tenth of the others' learning rate" in of_records.told("16")


def test_in_table_4_accuracy_and_auroc_go_together():
    rows = {}
    for p in scoreboard.published():
        if p.item.startswith("gpvi/table4"):
            rows.setdefault(p.method, {})[p.metric] = p.mean
    assert len(rows) == 7
    found = stats.spearmanr(*([row[key] for row in rows.values()] for key in ("clean_accuracy_percent", "auroc")))
    assert f"the rank correlation of *clean* (networks of ten classes) and AUROC is {found.statistic:.2f}" in (
        of_records.told("16")
    )


def test_with_a_hundred_networks_the_exact_densitys_variance_is_ahead():
    found = runs().means("auroc_100_networks", "auroc_entropy_100_networks").loc["gpvi_exact_density"]
    gain = found["auroc_100_networks"] - found["auroc_entropy_100_networks"]
    assert f"with a hundred the exact density's variance is ahead by {gain:.2f} (Appendix D)" in of_records.told("16")


def test_the_first_table_of_appendix_d_has_as_many_known_as_unknown_images():
    images = Runs("open-category-cifar10").record("gpvi_best").config["more"]["images"]
    kept = runs().arrays["gpvi_best"][0]
    known, unknown = (min(images, len(kept[f"{side}_variance"])) for side in ("known", "unknown"))
    assert f"a subset of {known:,} known and {unknown:,} unknown test images" in of_records.told("16")
    assert f"with a hundred, on {known + unknown:,} images" in of_records.told("16")


def test_what_the_ensemble_and_gpvi_do_not_share():
    ensemble, *forms = (
        Runs("open-category-cifar10").record(m).config for m in ("deep_ensemble", "gpvi_best", "gpvi_exact_density")
    )
    assert ensemble["objective"]["kind"] == "likelihood"  # no prior
    assert all((form["prior"], form["prior_scale"]) == ("normal", 1.0) for form in forms)
    assert all(abs(form["lr"] / ensemble["lr"] - 0.1) < 1e-9 for form in forms)
    said = "GPVI, its generator at a tenth of the ensemble's learning rate and with the prior $a = 1$, has"
    assert said in of_records.told("16")
    assert "after 3 of 200 epochs a deep ensemble, without a prior," in of_records.told("16")


def test_gpvi_is_under_one_standard_deviation_behind_svgd_by_any_count():
    svgd, gpvi = (runs().published(m, "auroc") for m in ("svgd", "gpvi_best"))
    assert 0 < svgd.mean - gpvi.mean < min(svgd.sd, gpvi.sd)
    assert "In print GPVI is 0.006 (under one standard deviation) behind SVGD." in of_records.told("16")


def test_amortised_svgd_is_too_unsure_by_its_mean_confidence():
    found = runs().arrays["amortized_svgd"][0]
    gap = 100 * (found["correct"].mean() - found["confidence"].mean())
    sure = found["confidence"]
    chance = 100 * np.sqrt((sure * (1 - sure)).sum()) / len(sure)  # of their difference, if calibrated
    assert (
        f"(but amortised SVGD's mean confidence is {gap:.1f} points too low, {gap / chance:.1f} standard errors)"
        in of_records.told("16")
    )


def test_who_is_most_unsure_changes_between_the_last_two_looks():
    before = {method: path(method, "ece")[-2] for method in ("svgd", "gpvi_exact_density", "deep_ensemble")}
    text = (
        "half an epoch before, SVGD ({svgd:.3f}) and the exact density ({gpvi_exact_density:.3f}) were worse than it "
    )
    text += "({deep_ensemble:.3f})."
    assert text.format(**before) in of_records.told("16")
    assert max(path(m, "ece")[-1] for m in means().index) == path("deep_ensemble", "ece")[-1]


def test_with_more_networks_two_leads_are_not_confirmed():
    found = {m: of_records.Runs("open-category-cifar10").record(m).metrics for m in means().index}
    many = [found[m]["auroc_100_networks"] for m in ("gpvi_best", "gpvi_exact_density", "amortized_svgd")]
    ten = runs().arrays["deep_ensemble"][0]
    known, unknown = (
        ten[f"{part}_variance"][torch.linspace(0, len(ten[f"{part}_variance"]) - 1, 1000).long().numpy()]
        for part in ("known", "unknown")
    )
    parts = report.placements(known, unknown)
    ensemble, se = parts[0].mean(), np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))
    text = "the two forms of GPVI have {:.3f} and {:.3f} and amortised SVGD {:.3f}".format(*many)
    text += f" (Appendix D), the ensemble's ten {ensemble:.3f}. Then by variance GPVI's two forms are nearly level, and"
    assert f"{text} so are the ensemble and amortised SVGD." in of_records.told("16")
    assert many[2] > ensemble > max(many[:2]) and abs(many[0] - many[1]) < 0.002
    assert max(abs(many[0] - many[1]), many[2] - ensemble) < se / 4


def test_where_the_accuracies_begin():
    start = [path(method, "accuracy_percent")[0] for method in means().index]
    assert f"before any training ({min(start):.0f} to {max(start):.0f} %), is below the axis." in of_records.told("16")


# the first minute and the takeaways


def test_the_first_minute_and_the_takeaways_say_these_numbers():
    found, text = means(), of_records.told("16")
    area = {m: f"{found.loc[m, 'auroc']:.3f}" for m in ("deep_ensemble", "gpvi_best", "gpvi_exact_density")}
    ensemble, gradient, density = area.values()
    assert (
        f"A deep ensemble leads with AUROC {ensemble}; GPVI with a trained λ has {gradient} by the functional gradient "
        f"and {density} on the exact density."
    ) in text
    accuracy = found.loc["deep_ensemble", "accuracy_percent"]
    said = f"is the most accurate ({accuracy:.1f} %) and, with ten networks each, the best detector (AUROC {ensemble})."
    assert said in text
    assert f"$a = 1$, has {gradient} by the functional gradient, {density} on the exact density." in text
    looks, every = path("svgd", "auroc"), found["auroc"]
    said = f"SVGD's AUROC rose by {looks[4] - looks[3]:.2f} in one half epoch, more than the"
    assert f"{said} {every.max() - every.min():.2f} that all methods span at the end." in text
    others = ("svgd", "gfsf", "amortized_svgd", "amortized_gfsf")
    margins = [abs(report.published_margin("gpvi/table4/cifar10", other, "auroc")) for other in others]
    assert (
        "GPVI is {:.1f} and {:.1f} combined standard deviations behind SVGD and GFSF in AUROC, and {:.1f} and {:.1f} "
        "ahead of the amortised methods.".format(*margins)
    ) in text
    factor = frame(get_experiment("overhead"), "paper").set_index("method")["extra_time_fraction"]
    block, helper = factor["gpvi_cifar10_best"], factor["gpvi_cifar10"]
    assert f"with the exact inverse takes {100 * block:.0f} % longer than one of amortised SVGD, with the" in text
    assert f"printed helper {100 * helper:.0f} %." in text
    assert (
        f"adds {block:.2f} of a step of amortised SVGD, the printed helper {helper:.2f}, the paper says 0.78." in text
    )
    together = [found["accuracy_percent"].corr(found[key], method="spearman") for key in ("auroc", "auroc_entropy")]
    assert "Over our six methods it is {:.1f} by variance and {:.1f} by entropy".format(*together) in text
