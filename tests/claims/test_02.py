"""What notebook 02 says of its records: folds in the plane, smooth units, λ."""

import json
import math

import numpy as np
import pytest
import torch
from of_records import Runs, arrays, code, history, runs, told, values

from gpvi_lib import Banana
from gpvi_lib.experiments import injectivity_plane
from gpvi_lib.paths import repository

TARGETS = ("banana", "banana_turned", "modes")
KINDS = ("exact_density", "gpvi", "lipschitz", "no_head")
UNITS = {"relu", "tanh", "softplus", "silu", "gelu", "elu"}
LAMBDAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CELLS = " ".join(" ".join(code("02")).split())
"""The code on one line: cells write the titles of figures and the verdicts of section 7."""


def plane(target, kind, key):
    """One metric of all starts in the plane."""
    return values("injectivity-plane", f"{target}_{kind}", key)


def everywhere(key, kinds=KINDS):
    return np.concatenate([plane(target, kind, key) for target in TARGETS for kind in kinds])


def folded(target, kind):
    return plane(target, kind, "overclaim") > 1e-6


def test_no_true_elbo_is_above_the_evidence():
    assert (everywhere("elbo") < 0.02).all()  # the targets are normalised; 0.02 for Monte Carlo
    assert "its log evidence is 0. **An ELBO above 0 is impossible**, and this run claims one." in told("02")


def test_five_of_120_runs_claim_more_than_the_evidence_those_on_the_exact_density_that_folded():
    claimed = everywhere("elbo_claimed")
    assert len(claimed) == 120 and (claimed > 0.02).sum() == 5
    assert len(everywhere("elbo", ["exact_density"])) == 30
    exact, functional = (everywhere("elbo_claimed", [kind]) for kind in ("exact_density", "gpvi"))
    above = f"{(exact > 0.02).sum()} of {len(exact)} exact-density runs in the plane exceed the log evidence"
    assert f"{above}, none by GPVI" in told("02") and (functional > 0.02).sum() == 0
    said = f"{(exact > 0.02).sum()} of {len(exact)} runs on the exact density in the plane claim more than the log"
    assert f"{said} evidence." in told("02")
    assert sum(folded(target, "exact_density").sum() for target in TARGETS) == 5
    assert folded("banana_turned", "exact_density").sum() == 4


def test_no_run_starts_with_a_fold_and_one_by_the_functional_gradient_ends_as_a_mirror_image():
    start = [
        run["history_negative_share"][0].item()
        for target in TARGETS
        for kind in KINDS
        for run in arrays("injectivity-plane", f"{target}_{kind}")
    ]
    assert len(start) == 120 and set(start) <= {0.0, 1.0}
    mirrored = {kind: (everywhere("negative_share", [kind]) == 1).sum() for kind in KINDS}
    assert mirrored == {"exact_density": 0, "gpvi": 1, "lipschitz": 0, "no_head": 0}
    assert not (everywhere("overclaim", ["gpvi"])[everywhere("negative_share", ["gpvi"]) == 1] > 1e-6).any()
    said = r"fold as well. A fourth has $\det J < 0$ *everywhere*: a mirror image, injective, whose claim is true."
    assert said in told("02") and "None of them had a fold at the start, and their true ELBO" in told("02")


def test_the_price_of_a_guarantee_by_the_order_of_coordinates():
    ratio = {k: plane("banana_turned", k, "elbo").mean() / plane("banana", k, "elbo").mean() for k in KINDS}
    assert round(ratio["no_head"]) == 13 and round(ratio["lipschitz"]) == 7 and round(ratio["exact_density"], 1) == 3.6
    turned, straight = (
        plane(t, "exact_density", "elbo")[~folded(t, "exact_density")].mean() for t in ("banana_turned", "banana")
    )
    said = (
        f"is larger by a factor of {ratio['no_head']:.0f} without the first block, {ratio['lipschitz']:.0f} with the "
        f"Lipschitz bound and {ratio['exact_density']:.1f} with the free head (from the means before rounding; "
        f"{turned / straight:.1f} without runs that folded)."
    )
    assert said in told("02")


def test_their_true_elbo_is_the_worst_of_their_group():
    worst = {target: folded(target, "exact_density") for target in TARGETS}
    assert sum(found.sum() for found in worst.values()) == 5
    for target, found in worst.items():
        true = plane(target, "exact_density", "elbo")
        assert not found.any() or true[found].max() < true[~found].min()
    said = "exactly the five of 30 runs on the exact density that folded. None of them had a fold at the start, and"
    assert f"{said} their true ELBO is the worst of their groups:" in told("02")


def test_three_runs_by_the_functional_gradient_fold():
    assert sum(folded(target, "gpvi").sum() for target in TARGETS) == 3
    assert "Three runs by the functional gradient fold as well." in told("02")
    assert "plane: 5 of 30 runs on the exact density and 3 of 30 by GPVI fold," in CELLS


def test_the_run_in_the_picture_claims_no_more_than_the_logarithm_of_its_preimages():
    shown = max(runs("injectivity-plane", "banana_turned_exact_density"), key=lambda run: run.metrics["overclaim"])
    generator = injectivity_plane.recorded_generator(shown.config, shown.arrays())
    points = Banana(1.0, 1.0, 0.3).sample(20_000, torch.Generator().manual_seed(0), dtype=torch.float64).flip(-1)
    preimages = (injectivity_plane.preimage_log_terms(generator, points) > -math.inf).double().sum(-1)
    assert shown.metrics["elbo_claimed"] < math.log(preimages.mean()) + 0.05
    assert r"\text{claimed ELBO} \;\le\; \log c + \log \mathbb E_{x\sim p}[N(x)] ." in told("02")


@pytest.mark.parametrize("kind", ["lipschitz", "no_head"])
def test_no_run_with_a_guarantee_overclaims(kind):
    assert np.abs(everywhere("elbo_claimed", [kind]) - everywhere("elbo", [kind])).max() < 1e-6
    assert "Two constructions are always injective, and none of their runs folded." in told("02")


def test_on_the_ring_tanh_claims_what_is_true_and_is_nearer_than_relu_on_every_seed():
    tanh, relu = (values("activations", f"ring_{unit}", "kl") for unit in ("tanh", "relu"))
    assert tanh.max() < 0.03 < relu.min()
    assert np.abs(tanh - values("activations", "ring_tanh", "kl_claimed")).max() < 0.01
    assert "**On the ring tanh alone claims what is true on every seed.**" in told("02")


def test_with_the_kernel_on_z_relu_and_softplus_train_and_the_other_units_end_at_chance():
    accuracy = {unit: values("activations", f"functional_{unit}", "accuracy_percent") for unit in UNITS}
    assert {unit for unit in UNITS if accuracy[unit].min() > 98} == {"relu", "softplus"}
    assert {unit for unit in UNITS if accuracy[unit].max() < 20} == UNITS - {"relu", "softplus"}
    said = "with the largest ratio train, the other four end at chance, on every seed.** This is after "
    assert f"{said}{Runs('activations').record('functional_relu').config['steps']:,} steps; by 27,000" in told("02")


def test_by_27000_steps_relu_with_the_kernel_on_z_is_at_chance_too_and_half_of_its_determinants_are_negative():
    step, right, negative = (history("digits-long", "gpvi_best", k) for k in ("step", "accuracy_percent", "folds"))
    assert right[:, step[0] == 27_000].max() < 17 and "by 27,000 ReLU is at chance, too ([15]" in told("02")
    assert (negative[:, 1:].max(1) > 0.5).sum() == 3 and 0.45 < negative[:, 7:].mean() < 0.55
    assert "on digits at half ([15]" in told("02") and "3 of 3 by GPVI on digits (15)" in CELLS
    assert Runs("digits-long").record("gpvi_best").config["objective"]["kind"] == "gpvi"


def of_problem(problem, key):
    return {unit: values("activations", f"{problem}_{unit}", key) for unit in UNITS}


def test_on_the_ring_which_units_claim_a_divergence_below_zero():
    claimed = of_problem("ring", "kl_claimed")
    assert {unit: (claimed[unit] < 0).sum() for unit in UNITS} == {
        "relu": 2, "tanh": 0, "softplus": 3, "silu": 0, "gelu": 1, "elu": 2
    }  # fmt: skip
    assert "Softplus comes as near," in told("02") and "but claims one below zero, which is impossible." in told("02")


def test_on_the_ring_which_units_fold():
    true, claimed = of_problem("ring", "kl"), of_problem("ring", "kl_claimed")
    assert {unit: (true[unit] - claimed[unit] > 0.02).sum() for unit in UNITS} == {
        "relu": 3, "tanh": 0, "softplus": 3, "silu": 2, "gelu": 1, "elu": 3
    }  # fmt: skip
    assert "is a fold: on every seed of softplus, ELU and ReLU, on two of SiLU and on one of GELU." in told("02")


def test_on_figures_1_8_and_9_relu_costs_the_exact_density_08_to_38_nats():
    relu = {
        "figure1": "one-dimensional-regression", "figure8": "classification-4", "figure9": "classification-2"
    }  # fmt: skip
    costs = np.concatenate([
        values("smooth-figures", f"{figure}_gpvi_exact_density", "elbo") - values(name, "gpvi_exact_density", "elbo")
        for figure, name in relu.items()
    ])  # fmt: skip
    assert len(costs) == 9 and round(costs.min(), 1) == 0.8 and round(costs.max()) == 38
    said = f"tanh instead of ReLU gains {costs.min():.1f} to {costs.max():.0f} nats of ELBO on single seeds"
    assert said in told("02")


def test_on_the_regression_every_smooth_unit_is_worse_than_relu():
    error = of_problem("regression", "sigma_error")
    assert all((error[unit] > error["relu"]).all() for unit in UNITS - {"relu"})
    assert "**On the regression every smooth unit is worse than ReLU.**" in told("02")


def test_on_figure_8_softplus_is_ahead_of_tanh_on_two_seeds_level_on_the_third_and_ahead_of_relu_on_all():
    elbo = of_problem("classes", "elbo")
    lead = elbo["softplus"] - elbo["tanh"]
    assert round(lead.min(), 1) == 0.2 and round(lead.max(), 1) == 4.5
    assert all((elbo["softplus"] > elbo[unit]).sum() >= 2 for unit in UNITS - {"softplus"})
    assert all((share == 0).all() for share in of_problem("classes", "negative_share").values())
    assert (elbo["softplus"] > elbo["relu"]).all() and (elbo["elu"] > elbo["softplus"]).sum() == 1
    clear, (third,) = lead > 1, np.flatnonzero(lead < 1)
    assert all((elbo["softplus"] - elbo[unit])[clear].min() > 1 for unit in UNITS - {"softplus"})
    ends = np.array([elbo[unit][third] for unit in UNITS])
    assert (ends > ends.max() - 1).sum() == 3
    said = "on two of three seeds**, by {:.1f} and {:.1f} nats of ELBO, and of every other unit; on the third three are"
    assert f"softplus is ahead of tanh {said.format(*sorted(lead[clear]))} level. ReLU is behind softplus" in told("02")
    assert "on every seed. None of the six has a negative determinant." in told("02")


def test_on_the_digits_relu_is_ahead_of_every_smooth_unit_by_little():
    auroc = of_problem("digits", "auroc")
    leads = np.array([auroc["relu"] - auroc[unit] for unit in UNITS - {"relu"}])
    assert leads.min() > 0 and leads.max() < 0.04 and leads.mean(1).min() < 0.01
    assert leads.min() < 0.001  # level
    said = (
        "is ahead of every smooth unit, or level, on every seed**, by at most 0.04 of AUROC; the nearest is less than"
    )
    assert f"{said} 0.01 behind." in told("02")


def test_the_medians_of_the_critics_error():
    error = of_problem("critic", "direction_error")
    assert [round(float(np.median(error[unit])), 2) for unit in ("relu", "tanh", "softplus")] == [0.58, 0.42, 0.29]
    assert ((error["tanh"] < error["relu"]).sum(), (error["softplus"] < error["relu"]).sum()) == (2, 2)
    middle = [np.median(error[unit]) for unit in ("relu", "tanh", "softplus")]
    said = "on two of three seeds**, in the median from {:.2f} to {:.2f} with tanh and to {:.2f} with softplus,"
    assert f"**Smooth units lower the critic's error {said.format(*middle)}" in told("02")


def test_what_smooth_units_cost():
    bench = json.loads((repository() / "results" / "bench" / "amd-epyc-2-threads.json").read_text())["activations"]
    ratio = {(row["size"], row["activation"]): row["ratio"] for row in bench}
    small = {f"{ratio['linear regression, d = 20', unit]:.1f}" for unit in ("tanh", "softplus")}
    large = max(ratio["4-class BNN", unit] for unit in UNITS)
    said = f"with either at $d = 20$, at most {large:.2f} with any unit at $d = 184$"
    assert f"takes about {small.pop()} times one with ReLU {said}" in told("02") and not small


# Four classes, over λ


def of(method, key):
    return values("injectivity", method, key)


def at(objective, scale, key):
    """One metric of an objective at a fixed λ."""
    return of(f"{objective}_lambda_{scale:g}".replace(".", "_"), key)


def best(objective):
    """Largest mean ELBO over the fixed λ."""
    return max(at(objective, scale, "elbo").mean() for scale in LAMBDAS)


def test_with_a_trained_scale_the_functional_gradient_folds_on_the_way_and_the_exact_density_does_not():
    for method, folds_on_the_way in (("gpvi_trained", True), ("gpvi_exact_density", False)):
        assert (history("injectivity", method, "negative_share") > 0).any(1).tolist() == [folds_on_the_way] * 3
    said = "**With the exact density one trained λ per weight is healthiest:** no negative determinant on three seeds."
    assert said in told("02") and "functional gradient with trained λ all three seeds fold on the way," in told("02")


@pytest.mark.parametrize("scale", [scale for scale in LAMBDAS if scale <= 0.5])
def test_from_one_half_down_accuracy_is_perfect(scale):
    assert (at("gpvi", scale, "accuracy_percent") > 98).all()
    assert min(at(kind, scale, "accuracy_percent").min() for kind in ("gpvi", "exact_density")) >= 99
    assert "From 0.5 down accuracy is at least 99 %" in told("02")


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_from_one_up_networks_classify_hardly_better_than_chance(scale):
    assert at("gpvi", scale, "accuracy_percent").mean() < 45
    gpvi, exact = (f"{at(kind, scale, 'accuracy_percent').mean():.0f}" for kind in ("gpvi", "exact_density"))
    said = {1.0: f"does better, {exact} % against GPVI's {gpvi} (at λ = 2", 2.0: f"(at λ = 2 {exact} against {gpvi});"}
    assert said[scale] in told("02")
    assert r"At λ = 1 and 2 accuracy is low\non most seeds (chance: 25 %)" in CELLS


def test_training_the_scale_beats_every_fixed_one_clearly_with_the_exact_density_barely_with_the_functional_gradient():
    assert best("exact_density") + 10 < of("gpvi_exact_density", "elbo").mean()
    assert best("gpvi") < of("gpvi_trained", "elbo").mean() < best("gpvi") + 20
    assert (of("gpvi_trained", "elbo") > at("gpvi", 0.5, "elbo")).sum() == 2
    assert all(best(kind) == at(kind, 0.5, "elbo").mean() for kind in ("gpvi", "exact_density"))
    said = "lies near 0.5. Training λ beats it, clearly with the exact density, barely and on two of three seeds with"
    assert f"{said} the functional gradient." in told("02")
    assert r"Training λ beats every fixed λ clearly\nwith the exact density only" in CELLS


def test_the_trained_scale_ends_near_seven_tenths():
    assert abs(of("gpvi_exact_density", "lambda_mean").mean() - 0.7) < 0.05
    assert "One λ per weight, trained with the exact density, ends near 0.7 in the mean," in told("02")


def test_at_lambda_1_the_condition_holds_everywhere_at_the_start_and_at_5_percent_at_the_end():
    share = history("injectivity", "gpvi_lambda_1", "positive_definite_share")
    assert share.shape == (3, 11) and (share[:, 0] == 1).all()
    end = f"{100 * at('gpvi', 1.0, 'positive_definite_share').mean():.0f} %"
    assert f"after 3,000 steps of GPVI at λ = 1 on four classes it holds at {end} of the noise (3 seeds)" in told("02")
    assert f"after 3,000 of 500,000 steps of GPVI at λ = 1 the condition holds at {end} of $z$." in told("02")


def test_at_lambda_1_two_of_three_seeds_fold_on_the_way_and_none_shows_it_at_the_end():
    negative = history("injectivity", "gpvi_lambda_1", "negative_share")
    assert (negative > 0).any(1).sum() == 2 and (negative[:, -1] == 0).all()
    assert "Single negative determinants turn up on the way in two of three seeds;" in told("02")
    assert "No negative determinant is left at the end among the 500 $z$ of each seed." in told("02")


def test_the_scale_that_would_be_needed_grows_with_the_scale():
    needed = [(at("gpvi", s, "lambda_head_min") - at("gpvi", s, "symmetric_min")).mean() for s in (1.0, 2.0)]
    assert [round(scale, 1) for scale in needed] == [2.0, 3.9]
    assert f"At λ = 2 the trained $A$ has grown: it needs λ > {needed[1]:.1f}." in told("02")


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_the_exact_density_folds_on_all_seeds_from_a_start_at_which_the_condition_held(scale):
    method = f"exact_density_lambda_{scale:g}"
    assert (history("injectivity", method, "positive_definite_share")[:, 0] == 1).all()
    assert (history("injectivity", method, "negative_share") > 0).any(1).all()
    said = "where $A$ takes away more than λ, determinants change sign, on all three seeds, for a while or for good."
    assert said in told("02")


def test_at_lambda_1_the_symmetric_part_falls_below_0_and_the_eigenvalues_of_gpvi_do_not():
    assert round(at("gpvi", 1.0, "symmetric_min").mean(), 2) == -0.95
    assert at("gpvi", 1.0, "smallest_real_min").min() > 0  # over the 500 z
    down_to = f"{at('gpvi', 1.0, 'symmetric_min').mean():.2f}".replace("-", "−")
    assert f"has eigenvalues down to {down_to}, the mean of three seeds." in told("02")
    assert "itself has no eigenvalue with a negative real part at any of the $z$." in told("02")


def test_at_lambda_1_and_2_the_exact_density_leaves_less_than_half_of_lambda_in_6_to_11_percent_of_directions():
    shares = []
    for scale in (1.0, 2.0):
        for run in arrays("injectivity", f"exact_density_lambda_{scale:g}"):
            assert run["eigenvalues_end"].shape[:2] == (8, 64)
            shares.append(100 * (run["eigenvalues_end"][..., 0] < scale / 2).double().mean().item())
    assert round(min(shares)) == 6 and round(max(shares)) == 11
    span = f"etween {min(shares):.0f} and {max(shares):.0f} % of the eigenvalues"
    assert f"B{span} of $A + \\Lambda_1$, pooled over 8 $z$, end below λ/2:" in told("02")
    assert f"At λ = 1 and 2 b{span} end below λ/2, and all three seeds go over the edge," in told("02")


def test_at_lambda_02_one_seed_folds_without_small_eigenvalues():
    negative = history("injectivity", "exact_density_lambda_0_2", "negative_share")
    assert (negative[:, 0] == 0).all() and (negative[:, -1] > 0).tolist() == [False, True, False]
    small = (arrays("injectivity", "exact_density_lambda_0_2")[1]["eigenvalues_end"][..., 0] < 0.1).double().mean()
    text = (
        f"one seed ends with {100 * negative[1, -1]:.0f} % negative determinants without that: {100 * small:.1f} % of"
    )
    assert text in told("02")


def test_at_lambda_005_the_median_condition_number_is_above_1000():
    assert at("gpvi", 0.05, "condition_median").min() > 1_000
    assert "the median condition number is above 1,000." in told("02")


def test_the_condition_at_trained_scales_with_the_exact_density_as_it_is_and_after_division_by_the_mean():
    assert round(100 * of("gpvi_exact_density", "positive_definite_share").mean()) == 71
    assert 96 < 100 * of("gpvi_exact_density", "preconditioned_share").mean() < 97
    share = f"{100 * of('gpvi_exact_density', 'positive_definite_share').mean():.0f} %"
    assert f"at 28 % of the $z$, not {share} (Appendix I)." in told("02")
    assert "is positive definite at most $z$ at the end, and after preconditioning at nearly all." in told("02")


def test_the_generator_in_the_picture_claims_009():
    assert max(plane("banana_turned", "exact_density", "overclaim")) > 0.9
    shown = max(runs("injectivity-plane", "banana_turned_exact_density"), key=lambda run: run.metrics["overclaim"])
    assert round(shown.metrics["elbo_claimed"], 2) == 0.09
    said = f"formula (1) gives it an ELBO of {shown.metrics['elbo_claimed']:.2f} nats, where a perfect fit has 0."
    assert said in told("02")


def test_with_a_trained_scale_up_to_4_percent_of_determinants_are_negative_on_the_way():
    negative = history("injectivity", "gpvi_trained", "negative_share")
    assert 0.035 < negative.max() < 0.045 and (negative[:, -1] == 0).all()
    assert f"all three seeds fold on the way, at up to {100 * negative.max():.0f} % of the $z$;" in told("02")


def test_half_of_all_determinants_are_negative_at_small_scales_throughout():
    for method in ("gpvi_lambda_0_01", "gpvi_lambda_0_05"):
        assert np.abs(history("injectivity", method, "negative_share") - 0.5).max() < 0.1
    on_the_way = history("injectivity", "gpvi_lambda_0_2", "negative_share")
    assert (on_the_way[:, 0] == 0).all() and (on_the_way[:, 1] > 0.4).sum() == 1
    said = "At λ = 0.01 and 0.05 half of all $z$ have a negative determinant before, during and after training."
    assert said in told("02")
    said = "GPVI at λ = 0.2 starts safe, and after 300 steps shows up to half of its determinants negative in one seed."
    assert said in told("02")


def test_networks_classify_29_percent_at_lambda_1_and_all_with_a_trained_scale():
    assert round(at("gpvi", 1.0, "accuracy_percent").mean()) == 29
    assert sorted(at("gpvi", 1.0, "accuracy_percent").round().tolist()) == [8, 23, 55]
    assert round(of("gpvi_trained", "accuracy_percent").mean()) == 100
    right = at("gpvi", 1.0, "accuracy_percent")
    said = f"The average of 100 networks is right on {right.mean():.0f} % of test points (seeds: {right.min():.0f} to"
    before = history("injectivity", "gpvi_lambda_1", "accuracy_percent")[:, -2].mean()
    assert before == 45.5 and history("injectivity", "gpvi_lambda_1", "step")[0, -2] == 3_000 - 300
    said = f"{said} {right.max():.0f} %; 300 steps before {before:.1f} %), with λ trained or at"
    assert said in told("02") and "or at most 0.5 on 100 %." in told("02")
    by_density = round(at("exact_density", 1.0, "accuracy_percent").mean())  # at the same floor
    assert (by_density - 29, 100 - by_density) == (40, 31)


def test_of_the_71_points_the_exact_density_loses_21_to_50_by_seed():
    lost, floor = (
        of("gpvi_trained", "accuracy_percent") - at(kind, 1.0, "accuracy_percent") for kind in ("gpvi", "exact_density")
    )
    by_seed = [f"{points:.0f}" for points in floor]
    assert f"the other {floor.mean():.0f} in them, too (by seed: {by_seed[0]}, {by_seed[1]} and {by_seed[2]})" in told(
        "02"
    )
    long = Runs("classification-full-length").record("gpvi_exact_jac_4")
    assert long.config["sampler"]["noise_scale"] == 1.0 and not long.config["sampler"].get("train_noise_scale")
    said = (
        f"after {long.config['steps']:,} steps GPVI has {long.metrics['accuracy_percent']:.0f} % at this floor (1 seed)"
    )
    assert said in told("02")
    said = f"So of the {lost.mean():.0f} points that GPVI loses at λ = 1 in these steps the method accounts for"
    least, _, most = sorted(lost - floor)
    assert round(least, 3) == 23.5
    assert any(f"{said} {half} to {most:.0f} by seed." in told("02") for half in (23, 24))


def test_what_longer_runs_at_lambda_1_do():
    long = Runs("classification-full-length").arrays("gpvi_exact_jac_4")
    step, negative, right = (long[f"history_{key}"] for key in ("step", "negative_share", "accuracy_percent"))
    text = told("02")
    assert (step[1], step[-1]) == (25_000, 375_000) and negative[1:].min() > 0.32 and negative.max() < 0.57
    assert f"With 100 samples a step {100 * negative[1]:.0f} % are negative at 25,000 steps" in text
    elbo, share = float(long["history_elbo"][-1]), (100 * negative[1:].min(), 100 * negative[1:].max())
    assert round(elbo, -3) == -34_000
    assert f"after 375,000 steps {right[-1]:.0f} % with a claimed ELBO of −34,000 nats (1 seed," in text
    assert f"{share[0]:.0f} to {share[1]:.0f} % of the determinants are negative from 25,000 to 375,000 steps" in text
    three = Runs("classification-4").metric("gpvi_exact_jac", "accuracy_percent")
    assert three.round().tolist() == [47] * 3 and "With 100 samples a step that accuracy is 47 % (3 starts)" in text
    assert f"has {right[1]:.0f} % after 25,000 steps and {right[-1]:.0f} % after 375,000" in text
    still, looks, moves = history("injectivity", "gpvi_lambda_1", "accuracy_percent")
    assert set(still[1:].tolist()) == {23.0} and "the third has 23 % at every look after the start" in text
    assert np.ptp(moves[5:]) > 5 and np.ptp(looks[5:]) > 5
    assert f"accuracy does on two (seed 1: {looks[-2]:.0f} % at 2,700, {looks[-1]:.0f} % at 3,000;" in text


def test_at_lambda_2_and_on_two_seeds_at_1_single_networks_are_at_chance():
    assert at("gpvi", 2.0, "single_accuracy_percent").max() < 27
    assert sorted(at("gpvi", 1.0, "single_accuracy_percent").round().tolist()) == [25, 26, 50]
    said = "on two of three seeds, the networks that GPVI samples classify no better than chance (at λ = 1 the three"
    assert f"At λ = 2, and at 1, the paper's choice, {said} seeds have 25, 26 and 50 %)." in told("02")


def test_where_the_block_was_positive_definite_at_the_start():
    start = {scale: history("injectivity", f"exact_density_lambda_{scale}", "positive_definite_share")[:, 0]
             for scale in ("0_2", "1", "2")}  # fmt: skip
    assert (start["1"] == 1).all() and (start["2"] == 1).all()
    said = f"at {100 * start['0_2'].min():.0f} to {100 * start['0_2'].max():.0f} % for λ = 0.2."
    assert said in told("02")


@pytest.mark.parametrize("scale", [scale for scale in LAMBDAS if scale <= 0.5])
def test_every_scale_up_to_one_half_classifies_all_as_a_trained_one_does(scale):
    found = [of("gpvi_trained", "accuracy_percent").mean(), at("gpvi", scale, "accuracy_percent").mean()]
    assert [round(percent) for percent in found] == [100, 100]
    assert told("02").count("with λ trained or at most 0.5") == 2


def test_a_factor_of_five_in_lambda_costs_193_nats_in_the_tail_and_some_70_in_the_head():
    def head(scale, kind):
        found = [run["eigenvalues_end"] for run in arrays("injectivity", f"{kind}_lambda_{scale}")]
        return np.mean([end.square().sum(-1).log().sum(-1).mean().item() / 2 for end in found])  # Σ log |eigenvalue|

    kinds = ("gpvi", "exact_density")
    gpvi, exact = (f"{head('0_05', kind) - head('0_01', kind):.0f}" for kind in kinds)
    falls = [at(kind, 0.05, "elbo").mean() - at(kind, 0.01, "elbo").mean() for kind in kinds]
    assert f"$120\\log 5 = {120 * math.log(5):.0f}$ nats of entropy in the tail" in told("02")
    assert f"the head loses {gpvi} more with GPVI and {exact} on the exact density" in told("02")
    assert f"falls by {falls[0]:.0f} and {falls[1]:.0f}." in told("02")


def test_single_networks_at_lambda_1_and_the_average_of_100_seed_by_seed():
    assert at("gpvi", 1.0, "single_accuracy_percent").round().tolist() == [25, 26, 50]
    assert at("gpvi", 1.0, "accuracy_percent").round().tolist() == [23, 8, 55]
    single, average = (at("gpvi", 1.0, f"{of}accuracy_percent") for of in ("single_", ""))
    assert "the three seeds have {:.0f}, {:.0f} and {:.0f} %).".format(*single) in told("02")
    assert "does not rescue the prediction ({:.0f}, {:.0f} and {:.0f} %).".format(*average) in told("02")


def test_at_lambda_one_half_the_exact_density_never_folds_and_meets_the_condition_at_28_percent():
    assert (history("injectivity", "exact_density_lambda_0_5", "negative_share") == 0).all()
    assert round(100 * at("exact_density", 0.5, "positive_definite_share").mean()) == 28
    assert "A fixed λ of 0.5 shares this, but satisfies the condition at 28 % of the $z$, not 71 %" in told("02")


def test_at_lambda_005_the_median_condition_number_is_above_1000_from_step_300_on():
    condition = np.median(history("injectivity", "gpvi_lambda_0_05", "condition_median"), axis=0)
    step = history("injectivity", "gpvi_lambda_0_05", "step")[0]
    assert (condition[step >= 300] > 1_000).all() and (condition[step < 300] < 1_000).all()
    assert "at every look, and from step 300 on the median condition number is above 1,000." in told("02")


def test_on_the_ring_softplus_ends_at_001_to_003():
    found = sorted(values("activations", "ring_softplus", "kl"))
    assert [round(float(found[at]), 2) for at in (0, -1)] == [0.01, 0.03]
    assert f"Softplus comes as near, with a KL of {found[0]:.2f} to {found[-1]:.2f}," in told("02")


def test_the_unconstrained_head_is_worth_18_nats():
    worth = of("gpvi_exact_density", "elbo").mean() - of("gpvi_exact_density_no_head", "elbo").mean()
    assert round(worth) == 18
    assert f"The unconstrained head is worth about {worth:.0f} nats after 3,000 steps." in told("02")
