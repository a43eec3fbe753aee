"""What notebook 15 says in prose of the records, held to the records."""

import json
from functools import cache

import nbformat
import numpy as np
from of_records import Runs, code, told, within
from scipy import stats

from gpvi_lib import paths
from gpvi_lib.experiments import get_experiment, open_category
from gpvi_lib.lab.records import frame
from gpvi_lib.report import open_category as report

SIZE = open_category.SIZES["mnist"]
(NOTEBOOK,) = paths.notebooks_root().glob("15-*.ipynb")
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells
PROSE = " ".join(" ".join(cell.source.split()) for cell in CELLS if cell.cell_type == "markdown")
CODE = " ".join(" ".join(code("15")).split())
"""The code on one line: cells write titles of figures and the table of section 10."""


@cache
def runs(name="open-category-mnist"):
    """All records of one experiment; of MNIST those of three epochs, which the text is about."""
    return report.Runs.recorded(get_experiment(name), "paper", "gpvi/table3/mnist")


@cache
def means():
    return runs().means()


@cache
def working():
    """The methods that know the known digits."""
    return [m for m in runs().methods if means().loc[m, "accuracy_percent"] > 97]


def during(method, key):
    """Mean over seeds at each look after the start."""
    return np.mean([arrays[f"history_{key}"] for arrays in runs().arrays[method]], axis=0)[1:]


# the digits: the prior's scale


@cache
def votes():
    """Candidates on the digits: what was trained, c, and how held-out images were predicted."""
    found = frame(get_experiment("open-category-prior"), "paper")
    found[["trained", "c"]] = found["method"].map(open_category.PRIOR_CANDIDATES.get).tolist()
    return found


def test_the_weaker_the_prior_the_better_the_held_out_likelihood_of_the_digits():
    held_out = votes().groupby("c")["log_likelihood"].mean()
    assert held_out[1] < held_out[2] < held_out[4] < held_out[8] < held_out[16]
    assert f"The likelihood is best at a = {held_out.idxmax()}, detection by the exact density at a = 8" in CODE
    better = votes().groupby(["trained", "c"])[["log_likelihood", "accuracy_percent", "ece"]].mean().unstack()
    gain = better.xs(8, axis=1, level="c") - better.xs(4, axis=1, level="c")
    assert (gain[["log_likelihood", "accuracy_percent"]] > 0).all(axis=None) and (gain["ece"] < 0).all()
    assert "Likelihood, accuracy and ECE improve well beyond $a = 4$." in PROSE


def test_detection_need_not_follow():
    areas = votes().pivot_table(index="trained", columns="c", values="auroc")
    assert areas.loc["svgd"][[4, 8, 16, 32, 64]].min() > 0.97
    area = areas.loc["gpvi_exact_density"]
    assert area.idxmax() == 8 and area[8] > area[16] > area[32] > area[64] and area[64] < 0.8
    likelihood = votes().pivot_table(index="trained", columns="c", values="log_likelihood").loc["gpvi_exact_density"]
    assert likelihood.idxmax() == 16
    said = (
        f"The exact density's AUROC is best at $a = {area.idxmax()}$ and falls steeply after it, while its likelihood"
    )
    assert f"{said} still rises to $a = {likelihood.idxmax()}$; SVGD's stays where it is." in PROSE


def test_three_runs_of_the_exact_density_lose_one_image():
    found = votes()
    drop = found[(found["trained"] == "gpvi_exact_density") & (found["log_likelihood"] < -0.3) & (found["c"] > 16)]
    assert len(drop) == 3 and drop["accuracy_percent"].min() > 98 and sorted(set(drop["c"])) == [32, 64]
    assert "At $a = 32$ and 64 three runs of the exact density give the true class of a held-out image" in PROSE
    (lost,) = {f"{-value:.1f}" for value in drop["log_likelihood"]}
    assert f"(it counts as $e^{{-87}}$). One such image costs the mean {lost} nats." in PROSE


# MNIST: the settings


@cache
def trial():
    """Every setting after one epoch, judged by images held out of the training set."""
    return frame(get_experiment("open-category-settings"), "paper", missing="skip").set_index("method")


SHOWN = ("authors", "authors_0.01", "fixed_1_flat", "best", "best_slower", "best_head", "best_head_small")
SHOWN += ("exact_density", "exact_density_slower")
ASKED = ("svgd", "amortized_svgd", "best", "exact_density")
"""Those that were trained with wider priors as well."""


def fixed():
    """The settings with one fixed λ, by λ."""
    found = trial()[trial().index.str.startswith("lambda_")]
    return found.set_axis([float(name.removeprefix("lambda_")) for name in found.index]).sort_index()


def alike():
    """The settings at a = 1 that train and that no sentence sets apart."""
    names = (*(f"lambda_{value:g}" for value in fixed().index), *SHOWN)
    accuracy = trial()["accuracy_percent"]
    return [name for name in names if accuracy[name] > 95 and name not in ("authors_0.01", "lambda_0.1")]


def test_lambda_1_does_not_train_and_03_does_not_either():
    accuracy = trial()["accuracy_percent"]
    assert accuracy[["lambda_1", "lambda_0.3", "fixed_1_flat"]].max() < 25  # of six classes: next to guessing
    config = {m: get_experiment("open-category-settings").config(m, "paper") for m in ("lambda_1", "fixed_1_flat")}
    assert [found["lr"] for found in config.values()] == [1e-5, 1e-4] and config["fixed_1_flat"]["prior"] == "flat"
    said = (
        "**λ = 1 does not train in one epoch**, neither with our prior at the printed rate nor without one at ten times"
    )
    assert said in PROSE and "λ = 0.3 does not train either" in PROSE
    assert accuracy[["authors", "best", "exact_density"]].min() > 95


def test_lambda_decides_where_the_diversity_comes_from():
    share = fixed()["spread_noise"] / fixed()["spread_g"]
    assert (share[[0.03, 0.1, 0.3, 1.0]] > 1.5).all() and (share[[0.003, 0.01]] < 0.5).all()
    said = "From 0.03 upwards the noise alone disagrees more than $g$ alone, below it is the other way round."
    assert said in PROSE


def test_a_small_fixed_lambda_does_as_well_and_a_trained_one_hardly_leaves_its_start():
    area, moved = trial()["auroc"], trial()["noise_scale_over_fan_in_scale"]
    assert area[["lambda_0.003", "lambda_0.01", "lambda_0.03"]].min() > area["best"] - 0.002
    assert abs(moved["authors"] / moved["lambda_0.1"] - 1) < 0.05 and abs(moved["best"] - 0.3) < 0.01
    assert "In one epoch λ trained by the functional gradient hardly moves." in PROSE
    title = "At a = 1 a fixed λ up to 0.03 does as well by AUROC as one trained per weight; λ ≥ 0.3 does not train"
    assert title in CODE


def test_the_kernels_space_does_not_matter():
    assert abs(trial()["auroc"]["best_head"] - trial()["auroc"]["best"]) < 0.005
    assert "Nor does it matter here whether its kernel sees all of $z$, as in the paper, or $z_{:k}$ alone." in PROSE


def test_the_settings_that_train_are_alike_but_for_the_authors_from_001():
    area = trial()["auroc"]
    assert area[alike()].max() - area[alike()].min() < 0.02 < area["authors_0.01"] - area["best"]
    gpvi = [name for name in trial().index if not name.startswith(("svgd", "amortized", "deep", "exact"))]
    assert trial().loc[gpvi, "log_likelihood"].idxmax() == "authors_0.01"  # of the functional gradient's, all priors
    assert "The setting that stands out is the authors' code begun at λ = 0.01," in PROSE
    assert "One more stands out by held-out likelihood, without a prior: the authors' later public code begun" in PROSE


# MNIST: the prior's scale


def test_held_out_images_choose_the_widest_prior():
    suffixes = {1: "", **{factor: f"_{word}_prior" for word, factor in open_category.PRIOR_FACTORS.items()}}
    likelihood = trial()["log_likelihood"]
    mean = {c: likelihood[[f"svgd{end}", f"exact_density{end}"]].mean() for c, end in suffixes.items()}
    assert SIZE["best_prior_scale"] == max(mean, key=mean.get) and SIZE["prior_scale"] == 1
    best = SIZE["best_prior_scale"]
    assert best == max(suffixes) and mean[best] - mean[4] < 0.002
    said = (
        f"of SVGD and the exact density together, $a = {best:g}$ is chosen, by a hair, at the edge of what was tried."
    )
    assert said in PROSE


def test_every_method_gets_better_with_a_wider_prior():
    for key, sign in {"log_likelihood": 1, "auroc": 1, "ece": -1}.items():
        for name in ASKED:
            assert sign * (trial().loc[f"{name}_wide_prior", key] - trial().loc[name, key]) > 0
            assert sign * (trial().loc[f"{name}_wider_prior", key] - trial().loc[name, key]) > 0
    assert (
        "**Every one of them gets better with a wider prior**, by likelihood, AUROC and ECE (one seed and one" in PROSE
    )


def test_all_but_the_functional_gradient_gain_more_from_the_prior_than_other_settings_change():
    area = trial()["auroc"]
    same_prior = area[[name for name in alike() if name != "authors"]]
    gains = {name: area[f"{name}_wider_prior"] - area[name] for name in ASKED}
    assert all((gain > same_prior.max() - same_prior.min()) == (name != "best") for name, gain in gains.items())
    assert (
        "All but the functional gradient gain more AUROC from it than λ up to 0.03, its training, the kernel" in PROSE
    )


def test_without_a_prior_the_authors_setting_is_ahead_of_the_same_with_the_widest():
    area = trial()["auroc"]
    assert 0.01 < area["authors_0.01"] - area["best_one_wider_prior"] < 0.02
    said = f"the one with $a = 16$ has an AUROC of {area['best_one_wider_prior']:.3f}, the one with none (the authors')"
    assert f"{said} {area['authors_0.01']:.3f}," in PROSE


def test_with_the_widest_prior_one_lambda_is_a_little_better_and_a_small_start_worse():
    names = ("best_small_wider_prior", "best_one_wider_prior", "best_wider_prior")
    likelihood, area = (trial().loc[[*names], key] for key in ("log_likelihood", "auroc"))
    small, one, best = (f"−{-value:.3f}" for value in likelihood)
    assert likelihood.iloc[0] < likelihood.iloc[2] < likelihood.iloc[1]
    assert f"is worse (log-likelihood {small})" in PROSE
    assert f"({one} against {best}, AUROC {area.iloc[1]:.3f} against {area.iloc[2]:.3f}; one epoch, one seed)" in PROSE


def test_for_the_functional_gradient_alone_held_out_images_prefer_4():
    wide, wider = (trial().loc[f"best_{word}_prior", ["log_likelihood", "auroc"]] for word in ("wide", "wider"))
    gain = wide - wider
    text = f"by {gain['log_likelihood']:.3f} in log-likelihood and {gain['auroc']:.3f} in AUROC (one epoch, one seed"
    assert text in PROSE and "For the functional gradient alone held-out images prefer $a = 4$" in PROSE


def test_at_our_prior_a_fixed_lambda_of_001_does_as_well_as_one_per_weight():
    assert abs(trial().loc["lambda_0.01", "auroc"] - trial().loc["best", "auroc"]) < 0.005
    assert abs(trial().loc["lambda_0.01", "log_likelihood"] - trial().loc["best", "log_likelihood"]) < 0.002
    assert (
        trial()["auroc"][[f"lambda_{value:g}" for value in fixed().index]].max() < trial().loc["authors_0.01", "auroc"]
    )
    config = {m: get_experiment("open-category-settings").config(m, "paper") for m in ("lambda_0.01", "best")}
    assert round(config["best"]["lr"] / config["lambda_0.01"]["lr"], 6) == 10
    assert {found["prior_scale"] for found in config.values()} == {1}
    said = "**At $a = 1$, the prior of most rows, a trained λ is not needed**: a fixed 0.01 does as well at a tenth of"
    assert f"{said} the rate (one epoch, one seed)." in PROSE


# MNIST: learning rates


def test_at_the_printed_rate_a_generator_is_as_good_and_particles_do_not_detect_yet():
    measured = ["log_likelihood", "auroc", "ece"]
    slower = trial().loc["amortized_svgd_printed_rate", measured] - trial().loc["amortized_svgd", measured]
    assert abs(slower["log_likelihood"]) < 0.003 and slower["auroc"] > 0 > slower["ece"]
    particles = trial().loc[["svgd_printed_rate", "deep_ensemble_printed_rate"]]
    assert particles["accuracy_percent"].max() < 95 and particles["ece"].min() > 0.4 and particles["auroc"].max() < 0.5
    said = "At the printed rate particles do not detect yet after one epoch; to a generator it is as good as ours."
    assert said in PROSE


# MNIST: the table


def test_how_many_epochs_the_runs_have():
    assert SIZE["epochs"] == {"short": 3, "longer": 12, "half": 50, "published": 100}
    assert (
        "for **three of the paper's hundred epochs**." in PROSE and "**Twelve epochs**, one seed of both forms" in PROSE
    )
    assert "over the paper's 100 epochs, every ten (exact density and authors' setting: 50, every five)." in PROSE


def test_three_epochs_are_enough_for_99_percent_except_for_three_methods():
    assert set(runs().methods) - set(working()) <= {"gpvi", "ksd", "amortized_ksd"}
    assert means().loc[working(), "accuracy_percent"].min() > 99
    assert 90 < means().loc["ksd", "accuracy_percent"] < 97 and means().loc["ksd", "auroc"] < 0.8
    assert means().loc["amortized_ksd", "accuracy_percent"] < 25
    assert abs(means().loc["amortized_ksd", "auroc"] - 0.5) < 0.01
    assert means().loc["gpvi", "accuracy_percent"] < 30
    said = (
        "**Three epochs are enough for 99 % of the known digits**, except for three methods: GPVI as printed, the Stein"
    )
    assert said in PROSE
    assert f"The free Stein critic is at {means().loc['ksd', 'accuracy_percent']:.0f} % of the six classes." in PROSE


def test_of_all_ten_digits_the_same_methods_know_98_percent():
    clean = runs("open-category-mnist-clean").means("accuracy_percent")["accuracy_percent"]
    assert clean.drop(["ksd", "amortized_ksd", "gpvi"]).min() > 98 and 70 < clean["ksd"] < 85
    assert clean[["gpvi", "amortized_ksd"]].max() < 12  # of ten classes
    work = clean.drop(["ksd", "amortized_ksd", "gpvi"])
    said = (
        f"{work.min():.0f} to {work.max():.0f} % of the ten digits for what works, {clean['ksd']:.0f} % for the Stein"
    )
    said += (
        f" critic, {clean['amortized_ksd']:.0f} % for the amortised one and {clean['gpvi']:.0f} % for GPVI as printed"
    )
    assert said in PROSE


def test_the_critic_is_still_rising():
    rise = runs().arrays["ksd"][0]["history_accuracy_percent"]
    assert rise[-1] > rise[-2] + 1
    assert f"The free Stein critic is at {rise[-1]:.0f} % of the six classes." in PROSE


def test_svgd_gains_more_from_the_prior_than_lies_between_most_methods():
    gap = means().loc["svgd_best", "auroc"] - means().loc["svgd", "auroc"]
    others = means().loc[[m for m in working() if not m.endswith("_best")], "auroc"].to_numpy()
    pairs = np.abs(others[:, None] - others)[np.triu_indices(len(others), 1)]
    assert round(gap, 3) == 0.016 and np.median(pairs) < gap
    starts = [[arrays["history_auroc"][0] for arrays in runs().arrays[m]] for m in ("svgd_best", "svgd")]
    assert starts[0] == starts[1]  # the same first particles, so paired
    _, low, high = report.auroc_difference(runs(), "svgd_best", "svgd", paired=True)
    assert f"a paired interval of {low:.3f} to {high:.3f}" in PROSE and f"by {gap:.3f} [{low:.3f}, {high:.3f}]" in PROSE
    _, low, high = report.auroc_difference(runs(), "svgd_best", "svgd", "entropy", paired=True)
    assert f"by entropy it is −{-low:.3f} to {high:.3f}" in PROSE
    assert (runs().values("svgd_best", "auroc") > runs().values("svgd", "auroc")).all()
    ece = [means().loc[m, "ece"] for m in ("svgd_best", "svgd")]
    said = f"SVGD's AUROC is {gap:.3f} higher, more than the median gap of two working methods"
    assert f"{said} ({np.median(pairs):.3f}), and its ECE {ece[0]:.3f} instead of {ece[1]:.3f}." in PROSE


def test_the_ensemble_and_mean_field_are_ahead_of_what_the_paper_prints_for_them():
    for method in ("deep_ensemble", "mf_vi"):
        assert means().loc[method, "auroc"] > runs().published(method, "auroc").mean
    margins = []
    for method in ("deep_ensemble", "mf_vi"):
        ours, printed = [a["history_auroc"][-1] for a in runs().arrays[method]], runs().published(method, "auroc")
        margins.append((np.mean(ours) - printed.mean) / np.hypot(np.std(ours, ddof=1), printed.sd))
    said = "by {:.1f} and {:.1f} standard deviations in the measure of section 1: no clearer than GPVI's printed lead."
    assert said.format(*margins) in PROSE
    rivals = ("amortized_svgd", "amortized_gfsf", "amortized_ksd")
    assert max(margins) < min(report.published_margin("gpvi/table3/mnist", other, "auroc") for other in rivals)


def test_entropy_is_the_better_score_for_all_that_work():
    assert (means()["auroc_entropy"] - means()["auroc"])[working()].min() > 0
    assert "The entropy is the better score for everybody that works, in the mean over seeds." in PROSE


def test_gpvis_most_certain_mistakes_are_plain_sixes_and_none_of_the_ensembles():
    ours, theirs = (runs().arrays[m][0] for m in ("gpvi_exact_density", "deep_ensemble"))
    pairs = list(zip(ours["outlier_labels"][:8].tolist(), ours["outlier_predictions"][:8].tolist(), strict=True))
    assert pairs.count((6, 5)) == 5 and "and five of GPVI's eight are sixes read as 5." in PROSE
    images = theirs["outlier_images"][:8]
    assert not any((image == other).all() for image in ours["outlier_images"][:8] for other in images)


def test_the_ensemble_is_behind_the_paper_by_accuracy_on_all_digits_and_its_lead_in_ece_is_within_the_spread():
    clean = runs("open-category-mnist-clean").means("accuracy_percent")["accuracy_percent"]
    assert round(clean["deep_ensemble"], 1) == 99.1
    assert runs().published("deep_ensemble", "clean_accuracy_percent").mean == 99.3
    printed = runs().published("deep_ensemble", "ece")
    assert (printed.mean, printed.sd, round(means().loc["deep_ensemble", "ece"], 3)) == (0.008, 0.006, 0.005)
    assert 0 < printed.mean - means().loc["deep_ensemble", "ece"] < printed.sd
    assert "98 to 99 % of the ten digits for what works" in PROSE  # only tables have the two comparisons


def test_every_row_is_judged_with_ten_networks_and_which_prior_it_has():
    for method in runs().methods:
        config = get_experiment("open-category-mnist").config(method, "paper")
        assert config["evaluation_samples"] == 10 == config["sampler"].get("num", 10)
        prior = config["prior"] if config["prior"] != "normal" else config["prior_scale"]
        best = method.endswith("_best") or method == "gpvi_exact_density"
        assert prior == {"gpvi_authors": "flat", "mf_vi": "scale_mixture"}.get(method, 16 if best else 1)
    assert "Every row is judged with ten networks: particles, members, or draws of a sampler." in PROSE
    assert "The best settings and the exact density have $a = 16$, which held-out images prefer" in PROSE
    assert "The authors' later setting and the ensemble have no prior, the other rows have $a = 1$." in PROSE


def test_the_amortised_rival_of_the_claims_has_as_many_seeds_as_gpvi():
    amortised = [m for m in working() if m.startswith("amortized") and len(runs().arrays[m]) == 3]
    assert means().loc[amortised, "auroc"].idxmax() == "amortized_svgd_best"
    assert len(runs().arrays["amortized_gfsf"]) == 1
    assert "the best particle method, the ensemble, the best amortised method with as many seeds as GPVI" in PROSE


def test_mean_field_has_the_printed_prior_and_svgd_without_gpvis_prior_is_behind_gpvi():
    config = get_experiment("open-category-mnist").config
    assert config("mf_vi", "paper")["prior"] == "scale_mixture"
    assert config("svgd_best", "paper")["prior_scale"] == config("gpvi_best", "paper")["prior_scale"] == 16
    assert (
        config("svgd", "paper")["prior_scale"] == 1 and means().loc["svgd", "auroc"] < means().loc["gpvi_best", "auroc"]
    )
    assert "Mean field has its printed scale-mixture prior." in PROSE
    area = {m: f"{means().loc[m, 'auroc']:.3f}" for m in ("svgd_best", "svgd", "gpvi_best")}
    assert f"SVGD with $a = 16$ {area['svgd_best']} (with $a = 1$ {area['svgd']}), mean field" in PROSE
    assert f"at ten times it GPVI {area['gpvi_best']} to" in PROSE


def test_after_the_first_epoch_gpvis_auroc_and_ece_move_in_a_band():
    seeds = [
        [np.asarray(a[f"history_{key}"])[3:] for m in ("gpvi_exact_density", "gpvi_best") for a in runs().arrays[m]]
        for key in ("auroc", "ece")
    ]
    of_means = np.concatenate([during(m, "auroc")[2:] for m in ("gpvi_exact_density", "gpvi_best")])
    assert (
        "Both forms of GPVI rise in the first epoch. After it the AUROC of single seeds moves up and down between "
        f"{np.min(seeds[0]):.3f} and {np.max(seeds[0]):.3f}, that of the means between {of_means.min():.3f} and "
        f"{of_means.max():.3f}. The ECE of single seeds is between {np.min(seeds[1]):.3f} and {np.max(seeds[1]):.3f}."
    ) in PROSE
    for m in ("gpvi_exact_density", "gpvi_best"):
        assert during(m, "auroc")[-3:].mean() > during(m, "auroc")[0] + 0.01  # after two epochs and more
        assert 0.95 < during(m, "auroc")[-1] < 0.985 and 0.002 < during(m, "ece")[-1] < 0.008


# MNIST: twelve epochs


@cache
def curves(key):
    """Method -> a measure at the end of each of twelve epochs."""
    longer = runs("open-category-mnist-longer")
    return {m: arrays[0][f"history_{key}"][1:].astype(float) for m, arrays in longer.arrays.items()}


def test_after_twelve_epochs_gpvi_is_calibrated_as_the_paper_says_and_no_rival_is():
    last = {m: curve[-4:].mean() for m, curve in curves("ece").items()}
    assert curves("accuracy_percent")["gpvi_best"][-4:].min() > 99.7
    assert (
        f"over the last four epochs is {last['gpvi_best']:.4f} and its last {curves('ece')['gpvi_best'][-1]:.4f}"
        in PROSE
    )
    printed = runs().published("gpvi", "ece")
    assert f"the paper has {printed.mean:g} ± {printed.sd:g}" in PROSE
    assert 0.001 < last["gpvi_best"] < 0.002 and min(last[m] for m in ("svgd_best", "deep_ensemble", "mf_vi")) > 0.003
    assert "No rival's mean there is below 0.003 (1 seed each)." in PROSE
    assert "The accuracy of those epochs is 99.7 % and more." in PROSE


def test_over_twelve_epochs_gpvis_auroc_hardly_climbs():
    area = curves("auroc")["gpvi_best"]
    four, two, one, end = (f"{value:.3f}" for value in area[[-5, -3, -2, -1]])
    rise, late = (f"{value:.3f}" for value in (area[-4:].mean() - area[:4].mean(), area[-4:].mean()))
    assert f"ends at {end}. Four epochs before it was at {four}, two before at {two}, one before at {one}." in PROSE
    assert f"The mean of the last four is {late}, which is {rise} above that of the first four." in PROSE
    assert f"AUROC rises by {rise} from the first four epochs to the last four" in PROSE
    assert f"from one epoch to the next it moves by {np.abs(np.diff(area)).mean():.3f} on average." in PROSE
    rises = {m: curves("auroc")[m][-4:].mean() - curves("auroc")[m][:4].mean() for m in curves("auroc")}
    found = (f"{rises[m]:.3f}" for m in ("svgd_best", "deep_ensemble", "mf_vi"))
    assert "(SVGD {}, ensemble {}, mean field {})".format(*found) in PROSE


def test_the_exact_density_after_twelve_epochs():
    end, area, ece = (
        Runs("open-category-mnist-longer").record("gpvi_exact_density").metrics,
        curves("auroc"),
        curves("ece"),
    )
    area, ece = area["gpvi_exact_density"], ece["gpvi_exact_density"]
    third = f"({area[2]:.3f} and {ece[2]:.4f})"
    assert f"an AUROC of {area[-1]:.3f} and an ECE of {ece[-1]:.4f}, behind its own third epoch {third}" in PROSE
    longer = Runs("open-category-mnist-half").record("gpvi_exact_density").metrics
    scales = [found["noise_scale_over_fan_in_scale"] for found in (end, longer)]
    assert f"after twelve it is at {scales[0]:.1f}, after 50 at {scales[1]:.1f} (1 seed each)" in PROSE
    smooth = Runs("smooth-mnist").record("mnist12_gpvi_exact_density").metrics["auroc"]
    assert f"after twelve epochs, 1 seed, {smooth:.3f} and {area[-1]:.3f})" in told("00")


def test_the_exact_density_loses_digits_before_epoch_50():
    found = runs("open-category-mnist-half").arrays["gpvi_exact_density"]
    right, area, ece = (found[0][f"history_{key}"].astype(float) for key in ("accuracy_percent", "auroc", "ece"))
    assert len(found) == 1 and (found[0]["history_step"] / SIZE["epoch"][6]).tolist() == list(range(0, 51, 5))
    before = slice(1, 8)  # epochs 5 to 35
    said = (
        f"to epoch 35 it has {int(10 * right[before].min()) / 10} % and more and an AUROC of {area[before].min():.3f}"
    )
    assert (
        f"{said} to {area[before].max():.3f}, at 50 {right[-1]:.1f} %, {area[-1]:.3f} and an ECE of {ece[-1]:.3f}"
        in PROSE
    )
    assert right[8:].max() < 99.4 and area[8:].max() < area[before].min()


def test_the_authors_later_setting_keeps_the_digits_to_epoch_50():
    found = runs("open-category-mnist-half").arrays["gpvi_authors"]
    right, area, ece = (found[0][f"history_{key}"].astype(float) for key in ("accuracy_percent", "auroc", "ece"))
    assert len(found) == 1 and (found[0]["history_step"] / SIZE["epoch"][6]).tolist() == list(range(0, 51, 5))
    said = f"(ReLU, 1 seed): {int(10 * right[1:].min()) / 10} % and more, at 50 {right[-1]:.1f} %, an AUROC of"
    low, high = sorted(area[1:])[:2]
    assert (
        f"{said} {area[-1]:.3f} and an ECE of {ece[-1]:.4f}; at two looks the AUROC was {low:.2f} and {high:.2f}."
        in PROSE
    )
    assert sorted(area[1:])[2] > 0.95
    best = hundred("gpvi_best", "accuracy_percent")
    assert best[:, 1:7].min() > 99 > best[:, -1].max()  # every ten epochs: up to 60
    page = " ".join((paths.repository() / "docs/what-did-not-reproduce.md").read_text().split())
    assert (
        f"has {right[-1]:.1f} % at epoch 50, with an AUROC of {area[-1]:.3f} and an ECE of {ece[-1]:.4f} (1 seed)"
        in page
    )


def test_the_run_of_twelve_epochs_is_not_that_of_three_going_on():
    third = {m: [curves("auroc")[m][2], runs().arrays[m][0]["history_auroc"][-1]] for m in curves("auroc")}
    here, there = third.pop("gpvi_best")
    assert f"after epoch 3 this seed has an AUROC of {here:.3f} here and {there:.3f} there" in PROSE
    assert all(abs(longer - short) < 5e-5 for longer, short in third.values())


def test_by_ece_gpvi_is_ahead_of_svgd_at_1_and_level_with_mean_field():
    def low_high(mine, theirs):
        a, b = ([arrays["history_ece"][-1] for arrays in runs().arrays[m]] for m in (mine, theirs))
        return stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)

    ours = ("gpvi_best", "gpvi_exact_density", "gpvi_authors")
    assert all(low_high(m, "svgd")[1] < 0 for m in ours)
    assert [low_high(m, "deep_ensemble")[1] < 0 for m in ours] == [False, False, True]
    assert all(low_high(m, other)[0] < 0 < low_high(m, other)[1] for m in ours for other in ("mf_vi", "svgd_best"))
    assert round(means().loc["svgd", "ece"], 3) == 0.010 and f"{means().loc['svgd_best', 'ece']:.3f}" == "0.006"
    said = (
        "after three epochs.** All three forms are ahead of SVGD with $a = 1$; the authors' later setting is ahead of"
    )
    assert f"**By ECE GPVI does better {said} the ensemble too (95 % intervals over the seeds)." in PROSE
    assert "None can be told from mean field or from SVGD with $a = 16$." in PROSE


def test_mean_field_is_level_with_gpvi_and_steadier_and_the_other_rivals_are_ahead():
    area = curves("auroc")
    assert abs(area["mf_vi"][-4:].mean() - area["gpvi_best"][-4:].mean()) < 0.01
    assert area["mf_vi"][3:].std() < area["gpvi_best"][3:].std() / 2
    assert min(area[m][3:].min() for m in ("svgd_best", "deep_ensemble")) > 0.979
    ends = [area[m][-1] for m in ("svgd_best", "deep_ensemble")]  # of the level with mean field no sentence speaks
    assert "at equal rates they have {:.3f} and {:.3f} after twelve epochs (1 seed).".format(*ends) in PROSE


# MNIST: more networks, g or λ


def test_more_networks_help_most_samplers_by_up_to_a_hundredth_and_two_not_at_all():
    keys = [f"{key}_{n}_networks" for key in ("auroc", "ece") for n in (10, 1000)]
    many = runs().means(*keys).loc[working()].dropna()
    more = many["auroc_1000_networks"] - many["auroc_10_networks"]
    assert 0.005 < more.max() < 0.015 and more.idxmax() == "gpvi_exact_density"
    assert set(more.nsmallest(2).index) == {"gpvi_authors", "amortized_svgd_best"}
    assert abs(more.nsmallest(2)).max() < 0.002 and more.nlargest(len(more) - 2).min() > 0.003
    assert abs((many["ece_10_networks"] - many["ece_1000_networks"]).mean()) < 0.001
    said = "nothing for GPVI in the authors' later setting and amortised SVGD at its best, for the others between"
    least = f"{more.nlargest(len(more) - 2).min():.3f}"
    assert f"{said} {least} and a hundredth of AUROC by the variance, which the exact density gains." in PROSE
    assert "The calibration does not change in the mean over the samplers." in PROSE


def test_the_exact_density_disagrees_by_its_noise_and_the_functional_gradient_by_both():
    part = runs().means(*report.DIVERSITY)
    density, direction = part.loc["gpvi_exact_density"], part.loc["gpvi_best"]
    assert density["spread_noise"] > 5 * density["spread_g"]
    assert 0.5 < direction["spread_g"] / direction["spread_noise"] < 3
    key = "noise_scale_over_fan_in_scale"
    assert abs(direction[key] - 0.3) < 0.03 and within(density[key], 1.5, 2.5)  # both start at 0.3
    assert r"It lets λ grow, to about twice $1/\sqrt{\text{fan-in}}$, an eighth of its prior's scale, and gets" in PROSE
    said = (
        "In three epochs the functional gradient leaves λ where it started, and gets as much disagreement from $g$ as"
    )
    assert f"{said} from λ" in PROSE


def test_the_exact_density_is_level_with_mean_field():
    rival = means().loc["mf_vi"] - means().loc["gpvi_exact_density"]
    assert abs(rival["auroc"]) < 0.01 and abs(rival["accuracy_percent"]) < 0.1 and abs(rival["ece"]) < 0.003
    said = "what mean field does with two numbers per weight, and about as well: AUROC, accuracy and ECE of the two are"
    assert f"{said} level." in PROSE


# MNIST: what a step costs


def test_the_exact_inverse_adds_a_third_to_a_step_or_a_quarter_over_two_batches():
    extra = frame(get_experiment("overhead"), "paper").set_index("method").loc["gpvi_mnist_best"]
    assert 0.25 < extra["extra_time_fraction"] < 0.45 and 0.15 < extra["extra_time_fraction_independent"] < 0.35
    assert "The exact inverse adds about a third. Against amortised SVGD with two independent batches," in PROSE
    assert "evaluates the generator at twice as many points, it adds a quarter." in PROSE


def test_the_helper_adds_about_the_memory_of_the_generator_again():
    peak = runs().means("peak_memory_mb")["peak_memory_mb"]
    assert 800 < peak["gpvi"] - peak["gpvi_best"] < 1_400 and abs(peak["gpvi_best"] - peak["amortized_svgd"]) < 200
    assert "1.0 GB are the generator's 63 million weights, their gradient and Adam's two moments" in PROSE
    assert "The helper network adds about as much again." in PROSE


# digits and MNIST


def test_the_digits_predict_who_wins_and_little_of_the_order():
    pair = runs("open-category-digits").means().add_suffix(" digits").join(means().add_suffix(" here")).dropna()
    pair = pair.loc[[m for m in working() if m in pair.index]]
    place = pair[["auroc digits", "auroc here"]].rank(ascending=False)
    assert (place.loc["deep_ensemble"] == 1).all()
    among = {key: pair[f"{key} digits"].corr(pair[f"{key} here"], method="spearman") for key in report.MEASURES}
    assert among["accuracy_percent"] < 0.2 and among["ece"] < 0 and 0.2 < among["auroc"] < 0.7
    assert (place["auroc digits"] - place["auroc here"]).idxmax() == "mf_vi"
    assert place.loc["mf_vi", "auroc digits"] - place.loc["mf_vi", "auroc here"] >= 2
    assert "It predicted that a deep ensemble would win," in PROSE
    said = (
        "the correlation of the AUROCs is weak, that of the accuracies is none, and that of the ECEs is negative. Mean"
    )
    assert f"Among the methods that work {said} field climbs most." in PROSE


# the summary


def test_no_form_of_gpvi_is_ahead_of_the_strong_rivals():
    for ours in ("gpvi_best", "gpvi_exact_density", "gpvi_authors"):
        for other in ("svgd_best", "mf_vi", "deep_ensemble"):
            assert report.auroc_difference(runs(), ours, other)[1] <= 0
    assert "no GPVI leads by AUROC after 3 epochs" in PROSE and "no form of GPVI is ahead by AUROC" in CODE


def ends_of(names=("gpvi_best", "gpvi_exact_density", "gpvi_authors")):
    """AUROC of the forms of GPVI that train, after three epochs: the smallest and the largest, in words."""
    area = means()["auroc"][list(names)]
    return f"{area.min():.3f} to {area.max():.3f}"


def final(method):
    """AUROC after all hundred epochs, the mean of the seeds in three digits."""
    return f"{hundred(method, 'auroc')[:, -1].mean():.3f}"


def test_the_numbers_of_the_first_paragraph():
    area, accuracy = means()["auroc"], means()["accuracy_percent"]
    printed = [runs().published(m, "auroc").mean for m in ("gpvi", "svgd")]
    assert "Table 3 prints AUROC {} (SVGD {}).".format(*printed) in PROSE
    names = ("svgd", "deep_ensemble", "svgd_best", "gpvi_best")
    config = {m: Runs("open-category-mnist-published").record(m).config for m in names}
    lr, prior = ({m: found[key] for m, found in config.items()} for key in ("lr", "prior_scale"))
    assert prior["svgd_best"] == 16 * prior["svgd"]
    assert [round(lr[m] / 1e-5, 6) for m in names] == [1, 1, 100, 10]
    assert Runs("digits-long-mnist").record("gpvi_best_softplus").config["lr"] == lr["gpvi_best"]
    seeds = {len(runs().arrays[m]) for m in ("gpvi", "gpvi_best", "svgd", "svgd_best", "deep_ensemble", "mf_vi")}
    assert seeds == {3} and SIZE["epochs"]["short"] == 3
    assert f"With the printed λ = 1 accuracy ends at {accuracy['gpvi']:.0f} % (3 of 100 epochs)." in PROSE
    relu, soft = hundred("gpvi_best", "auroc")[:, -1], runs("digits-long-mnist").arrays["gpvi_best_softplus"]
    smooth = f"{soft[0]['history_auroc'][-1]:.3f}"
    assert (
        f"With trained λ, at ten times the printed rate, GPVI then has AUROC {ends_of()}; an ensemble at 100 times has "
        f"{area['deep_ensemble']:.3f}. After 100 epochs at the printed rate SVGD has {final('svgd')}, the ensemble "
        f"{final('deep_ensemble')}. At our rates SVGD with a wide prior has {final('svgd_best')}, GPVI "
        f"{relu.min():.2f} to {relu.max():.2f} with ReLU units, {smooth} with softplus ({len(soft)} seed)."
    ) in PROSE
    assert final("amortized_svgd") == smooth and len(hundred("amortized_svgd", "auroc")) == 2


def test_the_rates_of_three_epochs():
    """Ours over the printed one: 100 for particles and mean field, 10 for generators, 1 for two rows."""
    times = {m: round(runs().experiment.config(m, "paper")["lr"] / 1e-5) for m in runs().methods}
    printed = {m for m, factor in times.items() if factor == 1}
    assert printed == {"gpvi", "amortized_ksd"} and set(times.values()) == {1, 10, 100}
    generators = {m for m in times if runs().experiment.config(m, "paper")["sampler"]["kind"] == "generator"}
    assert {m for m, factor in times.items() if factor == 10} == generators - printed
    assert "100 times the printed one, ten times for generators, the printed one for GPVI as printed and the" in PROSE


def test_the_numbers_of_the_takeaways():
    area, accuracy = means()["auroc"], means()["accuracy_percent"]
    best, plain = (runs().experiment.config(m, "paper") for m in ("gpvi_best", "gpvi"))
    assert best["lr"] == 10 * runs("open-category-mnist-published").experiment.config("svgd", "paper")["lr"]
    assert best["objective"]["inverse"]["kind"] == "block" and plain["sampler"]["noise_scale"] == 1
    assert (
        f"*Measured (3 seeds, 3 of 100 epochs):* with λ = 1 as printed GPVI ends at {accuracy['gpvi']:.0f} % accuracy "
        f"on six classes. With one trained λ per weight, the exact inverse, ten times the rate and $a = "
        f"{best['prior_scale']:.0f}$ it is {accuracy['gpvi_best']:.1f} %."
    ) in PROSE
    wide, narrow = (runs().experiment.config(m, "paper")["prior_scale"] for m in ("svgd_best", "svgd"))
    assert (
        f"*Measured (3 seeds, 3 of 100 epochs):* AUROC by variance, at 100 times the printed rate: deep ensemble "
        f"{area['deep_ensemble']:.3f}, SVGD with $a = {wide:.0f}$ {area['svgd_best']:.3f} (with $a = {narrow:.0f}$ "
        f"{area['svgd']:.3f}), mean field {area['mf_vi']:.3f}; at ten times it GPVI {ends_of()}."
    ) in PROSE
    ends = hundred("gpvi_best", "accuracy_percent")[:, -1]
    soft = runs("digits-long-mnist").arrays["gpvi_best_softplus"]
    seeds = len(ends), len(soft), len(hundred("amortized_svgd", "auroc"))
    assert (
        "*Measured (100 epochs, {} seeds; softplus {}, amortised SVGD {}):* GPVI's best setting with ReLU units ends "
        "at {:.0f}, {:.0f} and {:.1f} % accuracy, with softplus at ".format(*seeds, *ends)
    ) in PROSE
    density = Runs("open-category-mnist-half").record("gpvi_exact_density").metrics["accuracy_percent"]
    assert (
        f"which amortised SVGD has too; the exact density (ReLU, 50 epochs, 1 seed) at {density:.1f} %. SVGD as "
        f"printed has {final('svgd')}, with $a = {wide:.0f}$ and 100 times the "
        f"rate {final('svgd_best')}, the ensemble {final('deep_ensemble')}."
    ) in PROSE
    assert f"with $a = {wide:.0f}$ in the place of $a = {narrow:.0f}$ SVGD's AUROC is higher on every seed, by" in PROSE


def test_no_form_of_gpvi_is_ahead_of_any_method_that_works_and_two_are_behind():
    for ours in ("gpvi_best", "gpvi_exact_density", "gpvi_authors"):
        for other in (m for m in working() if not m.startswith("gpvi")):
            assert report.auroc_difference(runs(), ours, other)[1] <= 0
    for other in ("deep_ensemble", "svgd_best"):
        assert report.auroc_difference(runs(), "gpvi_exact_density", other)[2] < 0
    assert report.auroc_difference(runs(), "gpvi_authors", "deep_ensemble")[2] < 0
    assert "By AUROC no form of GPVI is ahead of a method that works, that is with an accuracy above 97 %." in PROSE
    said = (
        "The exact density is behind a deep ensemble and behind SVGD with the same prior. The authors' later setting is"
    )
    assert f"{said} behind the ensemble, too." in PROSE


def test_seven_of_the_eleven_methods_that_work_are_too_unsure_on_every_seed():
    found = report.calibration(runs(), 0).loc[working()]
    assert len(found) == 11 and (found["too_unsure"] == found["seeds"]).sum() == 7
    assert "Seven of the eleven methods that work are less sure than they are right on every seed, by more" in PROSE


def test_which_priors_differ_by_the_authors_choice():
    area = trial()["auroc"].round(3)
    assert area["best_one_wider_prior"] == 0.952 and area["authors_0.01"] == 0.966
    assert "has an AUROC of 0.952, the one with none (the authors') 0.966, and a second seed might say" in PROSE


# MNIST: a hundred epochs


def hundred(method, key):
    """Seed -> looks, every ten epochs from the start on."""
    every = runs("open-category-mnist-published")
    return np.stack([arrays[f"history_{key}"] for arrays in every.arrays[method]]).astype(float)


def test_gpvi_with_relu_units_is_calibrated_up_to_epoch_60_and_loses_the_digits():
    right, area, ece = (hundred("gpvi_best", key) for key in ("accuracy_percent", "auroc", "ece"))
    assert len(right) == 3 and right[:, 1:7].min() > 99.5
    assert f"its ECE is {ece[:, 1:7].min():.3f} to {ece[:, 1:7].max():.3f}, where the paper has 0.001 ± 0.0005" in PROSE
    early = area[:, 1:7]
    text = f"Its AUROC moves between {early.min():.3f} and {early.max():.3f}, below SVGD's at our setting at every look"
    assert text in PROSE
    assert (area[:, 1:] < hundred("svgd_best", "auroc")[:, 1:].min(0)).all()
    text = "At epoch 70 it is {:.2f}, {:.2f} and {:.2f}. At the end the accuracy is {:.0f}, {:.0f} and {:.1f} %."
    assert text.format(*area[:, 7], *right[:, -1]) in PROSE
    record = Runs("open-category-mnist-published").record
    scales = [record("gpvi_best", seed).metrics["noise_scale_over_fan_in_scale"] for seed in (0, 1, 2)]
    assert f"GPVI {area[:, -1].min():.2f} to {area[:, -1].max():.2f} with ReLU units," in PROSE
    assert (
        right[:2, -1].max() < 72
        and area[:, -1].max() < 0.9
        and "by then 2 of 3 ReLU runs had lost the known digits" in PROSE
    )
    lost, (twelve,) = (runs(f"open-category-mnist-{name}").arrays["gpvi_best"] for name in ("published", "longer"))
    entropy, variance = ([float(a[f"unknown_{key}"].mean()) for a in lost] for key in ("entropy", "variance"))
    assert (
        f"their entropy is {entropy[0]:.2f} of at most {np.log(6):.2f}, their variance {variance[0]:.4f} (seed 1: "
        f"{entropy[1]:.2f} and {variance[1]:.3f}; seed 2: {entropy[2]:.2f} and {variance[2]:.3f}), where a run of "
        f"twelve epochs has a variance of {twelve['unknown_variance'].mean():.3f}." in PROSE
    )
    assert f"from 0.3 to between {min(scales):.2f} and {max(scales):.2f} of" in PROSE
    rivals = [m for m in runs("open-category-mnist-published").methods if m != "gpvi_best"]
    accuracies = np.concatenate([hundred(m, "accuracy_percent")[:, -1] for m in rivals])
    assert len(accuracies) == 17 and accuracies.min() > 99.5
    rates = [runs("open-category-mnist-published").experiment.config(m, "paper")["lr"] for m in rivals]
    said = "No rival lost its digits in seventeen runs, fourteen at a tenth"
    assert sorted(rates) == [1e-5] * 5 + [1e-3] and said in PROSE
    others = {key: [hundred(m, key)[:, -1] for m in rivals] for key in ("auroc", "ece")}
    said = "After 100 epochs GPVI (ReLU) is behind all six rivals on every seed, by AUROC and by ECE."
    assert len(rivals) == 6 and said in PROSE
    assert area[:, -1].max() < np.concatenate(others["auroc"]).min()  # on every seed
    assert ece[:, -1].min() > np.concatenate(others["ece"]).max()


def test_softplus_units_keep_mnist_over_all_hundred_epochs():
    (found,) = runs("digits-long-mnist").arrays["gpvi_best_softplus"]
    right, area, ece, folds = (found[f"history_{key}"][1:] for key in ("accuracy_percent", "auroc", "ece", "folds"))
    assert right.min() >= 99.4 and folds.max() == 0 and "Of 200 determinants none is negative at any look." in PROSE
    assert f"at the end {right[-1]:.1f} %, an AUROC of {area[-1]:.3f} and an ECE of {ece[-1]:.4f}." in PROSE
    printed = runs("open-category-mnist-published").values("svgd", "auroc")
    assert printed.min() < area[-1] < printed.max()
    assert f"with softplus at {right[-1]:.1f} % and an AUROC of {area[-1]:.3f}, which" in PROSE
    early = sorted(hundred("gpvi_best", "auroc")[:, 1])
    said = f"after ten the AUROC is {area[0]:.3f}, with ReLU {early[0]:.3f} to {early[-1]:.3f} (section 8), after"
    relu = hundred("gpvi_best", "auroc")[:, -1]
    assert f"{said} a hundred {area[-1]:.3f}, with ReLU {relu.min():.2f} to {relu.max():.2f}." in PROSE
    begun = Runs("smooth-mnist").metric("mnist_gpvi_best", "accuracy_percent", [0, 1, 2])
    assert (begun > 90).sum() == 1 and "in three epochs one of three seeds began to train" in PROSE
    long, table = (Runs(name) for name in ("digits-long-mnist", "open-category-mnist-published"))
    soft, relu = long.record("gpvi_best_softplus").config, table.record("gpvi_best").config
    assert soft["sampler"] == relu["sampler"] | {"activation": "softplus"}
    assert all(soft[key] == relu[key] for key in ("steps", "lr", "batch_size", "prior_scale", "objective"))


def test_the_title_of_the_long_runs_figure():
    drawn = json.loads((paths.repository() / "figures" / "paper" / "15-heading.json").read_text())["title"]
    relu, soft = hundred("gpvi_best", "auroc"), runs("digits-long-mnist").arrays["gpvi_best_softplus"]
    seeds = f"({len(relu)} seeds), not with softplus units ({len(soft)} seed)"
    title = f"After epoch 60 GPVI's best setting loses its AUROC with ReLU {seeds}"
    assert drawn == title and title in CODE
    assert relu[:, 1:7].min() > 0.95 > 0.94 > relu[:, 7:].max()  # looks 7 to 10 are epochs 70 to 100
    assert soft[0]["history_auroc"][1:].min() > 0.95


def test_svgd_and_gfsf_as_printed_do_not_lead_the_ensemble():
    every = runs("open-category-mnist-published")
    ends = {m: every.values(m, "auroc") for m in ("svgd", "gfsf", "deep_ensemble")}
    told_of = {m: f"{found.mean():.3f} ± {found.std(ddof=1):.3f}" for m, found in ends.items()}
    printed = {m: every.published(m, "auroc") for m in ends}
    assert (
        f"They end at {told_of['svgd']} and {told_of['gfsf']} (printed {printed['svgd'].mean:.3f} and"
        f" {printed['gfsf'].mean:.3f}), the ensemble at {told_of['deep_ensemble']}"
        f" ({printed['deep_ensemble'].mean:.3f} ± {printed['deep_ensemble'].sd:.3f})." in PROSE
    )
    for method in ("svgd", "gfsf"):
        assert (ends[method].mean() - printed[method].mean) < -0.01
        starts = [[arrays["history_auroc"][0] for arrays in every.arrays[m]] for m in (method, "deep_ensemble")]
        np.testing.assert_allclose(*starts, rtol=1e-4)  # the same first particles
        config = every.experiment.config(method, "paper")
        assert config["lr"] == 1e-5 and config["prior_scale"] == 1
        ratio = every.values(method, "ece").mean() / every.values("deep_ensemble", "ece").mean()
        assert 1.7 < ratio < 2.2  # "about twice"
    gap, low, high = report.auroc_difference(every, "deep_ensemble", "svgd", paired=True)
    assert f"SVGD is behind it, by {gap:.3f} [{low:.3f}, {high:.3f}] (paired)" in PROSE and low > 0
    assert report.auroc_difference(every, "deep_ensemble", "gfsf", paired=True)[1] < 0


def test_svgd_at_our_setting_is_ahead_and_mean_field_behind():
    every = runs("open-category-mnist-published")
    found = every.values("svgd_best", "auroc")
    assert f"SVGD at our setting has {found.mean():.3f} ± {found.std(ddof=1):.3f}, ahead of the ensemble" in PROSE
    gain, low, high = report.auroc_difference(every, "svgd_best", "deep_ensemble")
    assert f"by {gain:.3f} [{low:.3f}, {high:.3f}] in AUROC" in PROSE and low > 0
    gap = every.values("deep_ensemble", "ece") - every.values("svgd_best", "ece")
    assert (gap > 0).all() and f"its ECE is {gap.mean():.4f} lower" in PROSE
    field = every.values("mf_vi", "auroc")
    assert f"its printed value, at {field.mean():.3f} ± {field.std(ddof=1):.3f} (0.951 ± 0.008)" in PROSE
    behind = report.auroc_difference(every, "deep_ensemble", "mf_vi")
    assert (
        "{:.3f} [{:.3f}, {:.3f}] behind the ensemble; by ECE they are level".format(*behind) in PROSE and behind[1] > 0
    )
    level = stats.ttest_1samp(every.values("mf_vi", "ece") - every.values("deep_ensemble", "ece"), 0)
    assert level.pvalue > 0.05  # "by ECE the two are level"
    rates = {m: every.experiment.config(m, "paper")["lr"] for m in every.methods}
    slow = dict.fromkeys(("svgd", "gfsf", "deep_ensemble", "mf_vi", "amortized_svgd"), 1e-5)
    assert rates == slow | {"svgd_best": 1e-3, "gpvi_best": 1e-4}
    twelve = [curves("auroc")[m][-1] for m in ("svgd_best", "deep_ensemble")]
    assert "they have {:.3f} and {:.3f} after twelve epochs (1 seed)".format(*twelve) in PROSE
    recorded = Runs("open-category-mnist-published")
    devices = [recorded.record("svgd_best", seed).device for seed in range(3)]
    assert [("H100" in device) for device in devices] == [False, True, True]


def test_a_hundred_times_the_rate_has_more_after_twelve_epochs_than_the_printed_one_after_a_hundred():
    found = [curves("auroc")[m][-1] for m in ("deep_ensemble", "mf_vi")]
    found += [hundred(m, "auroc")[:, -1].mean() for m in ("deep_ensemble", "mf_vi")]
    assert "{:.3f} and {:.3f} against {:.3f} and {:.3f}.".format(*found) in PROSE
    recorded = Runs("open-category-mnist-published")
    for method in ("svgd", "gfsf", "deep_ensemble", "mf_vi", "gpvi_best", "amortized_svgd"):  # 5 to 12 minutes
        assert all(280 < recorded.record(method, seed).seconds < 730 for seed in recorded.recorded(method))


def test_what_a_step_took_on_a_gpu_and_on_a_cpu():
    recorded = Runs("open-category-mnist-published")
    cpu = recorded.record("svgd_best", 0)
    gpu = [recorded.record(*row) for row in [("svgd_best", 1), ("svgd_best", 2), *(("svgd", s) for s in range(3))]]
    ours = [recorded.record("gpvi_best", s) for s in range(3)]
    assert "1 threads" in cpu.device and all("H100" in record.device for record in gpu + ours)
    (of_cpu,), of_gpu, of_ours = ([1_000 * r.seconds / r.config["steps"] for r in rows] for rows in ([cpu], gpu, ours))
    page = " ".join((paths.repository() / "docs" / "your-own-model.md").read_text().split())
    text = (
        f"SVGD took {min(of_gpu):.0f} to {max(of_gpu):.0f} ms on an H100 that other runs shared, and {of_cpu:.0f} ms on"
    )
    assert f"{text} one thread of a CPU; GPVI's took {min(of_ours):.0f} to {max(of_ours):.0f} ms there" in page


# the digits, five times as long


def long(method, key):
    """A measure at every look after the start, one row a seed."""
    runs = Runs("digits-long")
    found = [runs.arrays(method, seed)[f"history_{key}"].numpy() for seed in runs.recorded(method)]
    return np.asarray(found)[:, 1:]


def steps_of(method):
    return np.asarray(Runs("digits-long").arrays(method)["history_step"])[1:]


def falls(method):
    """Seed by seed the first look with less than 90 % accuracy, of the seeds that have one."""
    return [int(steps_of(method)[(row < 90).argmax()]) for row in long(method, "accuracy_percent") if row.min() < 90]


KEPT = ("gpvi_best_decay", "gpvi_best_softplus", "gpvi_exact_density", "amortized_svgd")


def test_on_the_digits_the_functional_gradient_with_relu_units_loses_what_it_learned():
    first = falls("gpvi_best")
    assert f"falls under 90 % between {min(first):,} and {max(first):,} steps on three of three seeds" in PROSE
    assert len(first) == 3 and long("gpvi_best", "accuracy_percent")[:, -1].max() < 17.5
    assert long("gpvi_best", "accuracy_percent")[:, steps_of("gpvi_best") <= 15_000].min() > 97
    for method in KEPT:
        kept = long(method, "accuracy_percent")
        assert len(kept) == 3 and kept.min() > 97


def test_a_falling_rate_does_not_prevent_the_loss():
    config = Runs("digits-long").record("gpvi_best_decay").config
    gone = config["steps"] / 2 * (1 + config["final_lr"] / config["lr"])
    assert f"add up to {round(gone, -1):,.0f} steps at the full rate, and no run" in PROSE
    first, seeds = falls("gpvi_best_decay_longer"), Runs("digits-long").recorded("gpvi_best_decay_longer")
    assert len(first) == len(seeds)  # every run of them falls
    ends = long("gpvi_best_decay_longer", "accuracy_percent")[np.argsort(first), -1].round()
    text = "fell under 90 % at {:,}, {:,} and {:,} steps on the three seeds".format(*sorted(first))
    text += ", later than at the constant rate on two and earlier on one,"
    assert f"{text} to {ends[2]:.0f} % on the last and to {ends[0]:.0f} % on the others." in PROSE
    assert ends[0] == ends[1]
    later = np.subtract(first, falls("gpvi_best"))  # seed by seed
    assert sorted(np.sign(later)) == [-1, 1, 1]


def test_softplus_units_keep_what_they_learned():
    kept = long("gpvi_best_softplus_longer", "accuracy_percent")
    assert kept.min() > 97 and steps_of("gpvi_best_softplus_longer")[-1] == 60_000
    half = long("gpvi_best_softplus", "accuracy_percent")
    assert int(half.min()) == int(kept.min()) and steps_of("gpvi_best_softplus")[-1] == 30_000 and len(half) == 3
    names = ("gpvi_best_softplus", "gpvi_best_softplus_longer")
    assert not any("final_lr" in Runs("digits-long").record(method).config for method in names)
    text = f"At the constant rate the accuracy stays at {int(kept.min())} % and more, over 30,000 and over"
    assert f"{text} 60,000 steps, on three of three seeds." in PROSE and len(kept) == 3


def test_softplus_units_turn_the_sign_as_a_whole():
    late = steps_of("gpvi_best_softplus_longer") > 30_000
    folds = long("gpvi_best_softplus_longer", "folds")[:, late]
    assert ((folds > 0.98).any(1) & (folds < 0.03).any(1)).sum() == 2
    area = long("gpvi_best_softplus_longer", "auroc")
    lowest, before = area[:, late].min(), area[:, 1:][:, ~late[1:]].min(1)
    assert (
        f"nearly all determinants change sign together after step 30,000. The AUROC dips to {lowest:.2f}, on one seed "
        f"to {before.min():.2f} before that." in PROSE
    )
    assert (before < 0.9).sum() == 1


def test_on_the_digits_it_folds_and_softplus_and_the_exact_density_do_not():
    relu = np.concatenate([long(method, "folds") for method in ("gpvi_best", "gpvi_best_decay")])
    early, late = relu[:, 0], relu[:, 6:]
    assert f"at {100 * early.min():.0f} to {100 * early.max():.0f} % of the $z$ after 1,500 steps" in PROSE
    assert f"at {100 * late.min():.0f} to {100 * late.max():.0f} % from 10,500 on, half in the mean" in PROSE
    assert 0.45 < late.mean() < 0.55
    assert long("gpvi_exact_density", "folds").max() == 0
    soft = long("gpvi_best_softplus", "folds")
    assert f"one sign holds at {100 * np.maximum(soft, 1 - soft).min():.0f} % of the $z$ or more" in PROSE
    assert ((soft > 0.5).sum(1) == [0, 0, 2]).all()  # two looks, at 1,500 and 3,000 steps


def test_detection_suffers_before_accuracy():
    area, right = long("gpvi_best", "auroc"), long("gpvi_best", "accuracy_percent")
    dip = area[1, :8].argmin()
    assert f"fell to {area[1, dip]:.2f} while its accuracy was {right[1, dip]:.0f} %" in PROSE
    decay, soft = (long(f"gpvi_best_{name}", "auroc")[:, 1:].min() for name in ("decay", "softplus"))
    assert f"the falling rate it dips to {decay:.2f} in 30,000 steps, with softplus to {soft:.2f}." in PROSE


def test_on_the_digits_the_network_alone_spreads_little():
    panel = json.loads((paths.repository() / "figures" / "paper" / "15-g-or-lambda.json").read_text())["axes"][0]
    _, alone, noise = next(line["x"] for line in panel["lines"] if line.get("label") == "exact density")
    said = f"a predictive variance of {alone:.2f} on unknown images, λ alone {noise:.2f}."
    assert said in told("15")


def test_with_tanh_units_the_exact_density_spreads_as_much_by_g_as_by_lambda():
    tanh, relu = Runs("smooth-mnist"), Runs("open-category-mnist")
    shares = [
        runs.metric(method, "spread_g") / runs.metric(method, "spread_noise")
        for runs, method in ((tanh, "mnist_gpvi_exact_density"), (relu, "gpvi_exact_density"), (relu, "gpvi_best"))
    ]
    assert len(shares[0]) == 3 and (shares[0] > 0.9).all() and shares[0].max() < 1.4 and shares[1].max() < 0.2
    assert len(shares[2]) == 3 and within(shares[2], 0.9, 1.4)
    assert "(ReLU units; with tanh on MNIST as much from $g$)" in told("15")
    spread, noise = (tanh.metric("mnist_gpvi_exact_density", key) for key in ("spread_g", "spread_noise"))
    said = (
        f"with tanh as much comes from $g$ (variance {spread.min():.2f} to {spread.max():.2f}) as from λ around $g(0)$ "
        f"({noise.min():.2f} to {noise.max():.2f}). The functional gradient's two parts are about as large"
        " as each other (appendix G)."
    )
    assert said in told("15")


def test_the_most_certain_mistakes_differ_by_seed():
    found = []
    for method in ("gpvi_exact_density", "deep_ensemble"):
        shown = [(arrays["outlier_labels"][:8], arrays["outlier_predictions"][:8]) for arrays in runs().arrays[method]]
        found.append([int(((labels == 6) & (taken == 5)).sum()) for labels, taken in shown])
    ours, ensemble = found
    assert (ours[0], ensemble[0]) == (5, 0) and "and five of GPVI's eight are sixes read as 5." in PROSE
    said = "On the other seeds {} and {} of GPVI's eight are such sixes, and {} and {} of the ensemble's."
    assert said.format(*ours[1:], *ensemble[1:]) in PROSE


def test_by_ece_only_svgd_at_the_narrow_prior_is_told_from_the_five_best():
    experiment = Runs("open-category-mnist")
    values = {m: experiment.metric(m, "ece") for m in experiment.experiment.methods if len(experiment.recorded(m)) == 3}
    right = {m: experiment.metric(m, "accuracy_percent").mean() for m in values}
    best = sorted(values, key=lambda m: values[m].mean())[:4]
    assert set(best) == {"amortized_svgd_best", "gpvi_authors", "gpvi_best", "mf_vi"}

    def is_told(mine, theirs):
        return stats.ttest_ind(values[mine], values[theirs], equal_var=False).confidence_interval(0.95)[0] > 0

    apart = {m for m in values if m not in best and right[m] > 97 and all(is_told(m, other) for other in best)}
    assert apart == {"svgd", "amortized_svgd"} and len(experiment.recorded("gfsf")) == 1
    assert (
        "amortised SVGD (best setting) and mean field; only SVGD at a = 1, amortised or not, differs from each" in CODE
    )


def test_who_fails_on_the_digits():
    digits = Runs("open-category-digits")
    right = {m: digits.metric(m, "accuracy_percent") for m in ("gpvi", "amortized_ksd", "ksd")}
    assert max(right["gpvi"].max(), right["amortized_ksd"].max()) < 90
    assert (right["ksd"] < 97).sum() == 1
    assert "and that GPVI as printed and the amortised critic fail; the free critic fails there on one seed" in PROSE


def test_how_many_rows_have_a_hundred_epochs():
    published = Runs("open-category-mnist-published")
    rows = [m for m in published.experiment.methods if published.recorded(m)]
    softplus = Runs("digits-long-mnist").recorded("gpvi_best_softplus")
    assert len(rows) + bool(softplus) == 8 and "Eight rows have the paper's length." in PROSE
    assert "Section 8 has eight rows at all hundred." in told("15")


def test_amortised_svgd_keeps_mnist_over_all_hundred_epochs():
    every, (soft,) = runs("open-category-mnist-published"), runs("digits-long-mnist").arrays["gpvi_best_softplus"]
    right, area, ece = (hundred("amortized_svgd", key)[:, 1:] for key in ("accuracy_percent", "auroc", "ece"))
    printed = every.published("amortized_svgd", "auroc")
    assert right.min() > 99.2 and area.min() > 0.95 and len(right) == 2
    assert "**So does amortised SVGD as printed** (2 seeds)" in PROSE
    for end in zip(right[:, -1], area[:, -1], ece[:, -1], strict=True):
        text = "without λ: {:.1f} %, {:.3f} (printed {} ± {}) and {:.4f} on either."
        assert text.format(*end[:2], printed.mean, printed.sd, end[2]) in PROSE
        assert f"{soft['history_auroc'][-1]:.3f}" == f"{end[1]:.3f}"
    assert every.experiment.config("amortized_svgd", "paper")["sampler"]["noise_scale"] is None


def test_the_ten_classes_after_all_hundred_epochs():
    clean = Runs("open-category-mnist-clean-published")
    rows = ("deep_ensemble", "svgd", "gfsf", "mf_vi")
    ensemble, svgd, gfsf, field = (clean.metric(m, "accuracy_percent", [0])[0] for m in rows)
    text = (
        f"(1 seed) the ensemble has {ensemble:.1f} and SVGD {svgd:.1f} % of the ten, where 99.3 is printed for either, "
        f"GFSF {gfsf:.1f} (99.2), mean field {field:.1f} (98.6);"
    )
    assert text in PROSE and f"{100 * (0.993 * 0.007 / 10_000) ** 0.5:.1f}" == "0.1"
    assert [runs().published(m, "clean_accuracy_percent").mean for m in rows] == [99.3, 99.3, 99.2, 98.6]


def test_the_best_setting_is_not_the_best_that_was_tried():
    settings = Runs("open-category-settings")
    tried = {m: settings.metric(m, "log_likelihood")[0] for m in ("best_wider_prior", "best_one_wider_prior")}
    assert tried["best_one_wider_prior"] > tried["best_wider_prior"]
    found = [trial().loc[m, "log_likelihood"] for m in ("best_wide_prior", "best_one_wider_prior", "authors_0.01")]
    assert min(found) > tried["best_wider_prior"]
    said = "by held-out likelihood $a = 4$, one λ for all and the authors' later setting are ahead of it."
    assert f'"Best" is *ours*, not the best that was tried: {said}' in PROSE
    assert Runs("open-category-mnist").record("deep_ensemble").config["objective"]["kind"] == "likelihood"
