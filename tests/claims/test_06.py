"""What notebook 06 says of its records: which directions descend, from an optimum and along training."""

import json

import numpy as np
import pytest
import test_14
from of_records import Runs, arrays, code, told, values

from gpvi_lib.paths import repository

TWO = "amortized_svgd_two_batches"
DIRECTIONS = ("gpvi", TWO, "amortized_svgd")
CELLS = " ".join(" ".join(code("06")).split())
"""The code on one line: a cell writes the table of section 8."""


def rise(run, name):
    """KL after 300 steps by one direction minus KL at the optimum."""
    return float(run[f"{name}.kl"][-1] - run[f"{name}.kl"][0])


def test_in_ten_dimensions_one_batch_climbs_and_two_stay_at_the_optimum():
    for run in arrays("descent-from-optimum", "gaussian_10"):
        assert rise(run, "amortized_svgd") > 5 and rise(run, "gpvi_one_batch") > 1.2
        assert max(rise(run, "gpvi"), rise(run, TWO)) < 0.02
        assert round(float(run["amortized_svgd.kl"][0]), 2) == 0.01 and 0 < run["amortized_svgd.folded"][-1] < 1
    said = "In 10 dimensions the published method takes the divergence from 0.01 nats to more than 5 and folds"
    assert f"{said} the generator." in told("06")
    assert "GPVI with one batch rises by more than 1.2 nats in 10 dimensions and 1.5 on *wide*" in told("06")


def test_ten_steps_on_the_published_direction_climbs_and_both_with_two_batches_descend():
    for run in arrays("descent-from-optimum", "gaussian_10"):
        cosines = {name: float(run[f"amortized_svgd.{name}_expected"][2]) for name in DIRECTIONS}
        assert cosines["amortized_svgd"] < -5 * float(run["amortized_svgd.amortized_svgd_expected_se"][2])
        assert min(cosines["gpvi"], cosines[TWO]) > 0.3
    said = "Ten steps after the start its expected direction already climbs, with cosines of −0.31 and −0.48"
    assert f"{said} (standard errors 0.05 and 0.03), while both two-batch directions descend" in told("06")


def test_ten_steps_on_the_cosines_of_the_published_direction_are_those_of_the_text():
    found = [arrays("descent-from-optimum", "gaussian_10")[seed] for seed in range(2)]
    for run, value, error in zip(found, (-0.31, -0.48), (0.05, 0.03), strict=True):
        assert round(float(run["amortized_svgd.amortized_svgd_expected"][2]), 2) == value
        assert round(float(run["amortized_svgd.amortized_svgd_expected_se"][2]), 2) == error
    assert all(run["stage"][2] == 10 for run in found)
    assert "cosines of −0.31 and −0.48 (standard errors 0.05 and 0.03)" in told("06")


def test_within_reach_two_batches_stay_within_two_hundredths_of_a_nat():
    for case in ("banana", "gaussian_5", "gaussian_10"):
        for run in arrays("descent-from-optimum", case):
            assert max(rise(run, "gpvi"), rise(run, TWO)) < 0.02
    said = "On the three targets within reach GPVI and amortised SVGD with two batches end within 0.02 nats"
    assert f"{said} of the optimum" in told("06")


def test_from_five_dimensions_on_half_the_bandwidth_and_fewer_points_climb_further():
    for case in ("gaussian_5", "gaussian_10", "wide"):
        for run in arrays("descent-from-optimum", case):
            assert min(rise(run, f"amortized_svgd_{other}") for other in ("half", "20")) > rise(run, "amortized_svgd")
    for run in arrays("descent-from-optimum", "gaussian_5"):
        assert run["stage"][-1] == 300
        assert 0.365 < rise(run, "amortized_svgd") < 0.395
    for run in arrays("descent-from-optimum", "wide"):
        assert rise(run, "gpvi_one_batch") > 1.5
    for run in arrays("descent-from-optimum", "banana"):
        assert 0.095 < rise(run, "amortized_svgd") < 0.205
    assert "In 5 dimensions the published method rises by 0.37 to 0.39 nats in 300 steps." in told("06")
    assert "the published method raises the banana's divergence by 0.1 to 0.2 nats." in told("06")
    assert "in 10 dimensions and 1.5 on *wide*, by step 300 less far than amortised SVGD" in told("06")


def test_gpvi_with_one_batch_climbs_less_far_by_a_factor_of_one_and_a_half_to_four_at_the_end():
    factors = [
        rise(run, "amortized_svgd") / rise(run, "gpvi_one_batch")
        for case in ("gaussian_5", "gaussian_10", "wide")
        for run in arrays("descent-from-optimum", case)
    ]
    assert 1.45 < min(factors) and max(factors) < 4.5
    said = "less far, by factors of at least 1.5 to 4 in 5, 10 and 20 dimensions; on *wide* it had climbed further by"
    assert f"{said} step 100." in told("06")


def test_two_batches_are_at_most_a_fortieth_of_a_nat_away_on_the_way():
    highest = max(
        float((run[f"{name}.kl"] - run[f"{name}.kl"][0]).max())
        for case in ("banana", "gaussian_5", "gaussian_10")
        for run in arrays("descent-from-optimum", case)
        for name in ("gpvi", TWO)
    )
    assert f"({highest:.3f} at most on the way)" in told("06")


def test_by_step_100_half_the_bandwidth_and_fewer_points_have_climbed_further():
    for case in ("gaussian_5", "gaussian_10", "wide"):
        for run in arrays("descent-from-optimum", case):
            at = int((run["stage"] == 100).nonzero())
            risen = {
                n: float(run[f"amortized_svgd{n}.kl"][at] - run[f"amortized_svgd{n}.kl"][0])
                for n in ("", "_half", "_20")
            }
            assert min(risen["_half"], risen["_20"]) > risen[""]
    assert "have made the climb larger by step 100, as Proposition 2 suggests." in told("06")


def test_the_optimum_of_three_targets_is_within_0_04_nats():
    start = [
        float(run["amortized_svgd.kl"][0])
        for case in ("banana", "gaussian_5", "gaussian_10")
        for run in arrays("descent-from-optimum", case)
    ]
    assert f"(KL at most {max(start):.2f} nats)" in told("06")


def test_where_gpvi_climbs_two_batches_do_and_the_published_states_are_on_the_banana():
    assert "climbs at 2 of these states, GPVI at 7: no verdict." in told("06")
    assert not ascents("wide", "amortized_svgd").any() and ascents("banana", "amortized_svgd").sum() == 2


def test_after_200000_steps_gpvi_folds_too():
    runs = Runs("energy-full-length")
    shares = [runs.record(f"{name}_lambda_1_exact_jac_narrow").metrics["negative_share"]
              for name in ("twin_moons", "sinusoid", "sin_bisect", "sin_split")]  # fmt: skip
    assert all(0.05 < share < 0.95 for share in shares)
    assert "after 200,000 steps, GPVI with the exact inverse folds, too." in told("06")


def test_early_on_wide():
    for run in arrays("descent-from-optimum", "wide"):  # at step 100 the other way round
        early = [float(run[f"{name}.kl"][4] - run[f"{name}.kl"][0]) for name in ("gpvi_one_batch", "amortized_svgd")]
        assert 1.9 < early[0] / early[1] < 2.5
    assert "on *wide* it had climbed further by step 100." in told("06")


def z_along_the_published_run(case):
    """Cosine of the published direction over its error at the usable looks after the first, all seeds."""
    found = []
    for run in arrays("descent-from-optimum", case):
        usable = np.isin(run["amortized_svgd.folded"], (0, 1)) & (run["stage"].numpy() > 0)
        cosine, error = (run[f"amortized_svgd.amortized_svgd_expected{end}"].numpy() for end in ("", "_se"))
        found.append((cosine / error)[usable])
    return np.concatenate(found)


def test_in_five_dimensions_the_published_direction_just_climbs_at_three_of_ten_looks():
    z = z_along_the_published_run("gaussian_5")
    assert len(z) == 10 and (z < -3).sum() == 3 and (z > 3).sum() == 0 and z.min() > -3.2
    assert "climbs in 10 dimensions and, just decided, in 5;" in told("06")
    assert "three of ten states climb, by 3.0 to 3.1 standard errors" in told("06")
    assert [round(float(-end), 1) for end in (z[z < -3].max(), z.min())] == [3.0, 3.1]


def test_on_the_banana_the_published_direction_is_not_seen_to_climb_and_on_wide_it_mostly_descends():
    z = z_along_the_published_run("banana")
    assert [len(z), (z > 3).sum(), (z < -3).sum()] == [8, 5, 0]
    assert "of eight usable states it descends at five, and three are undecided" in told("06")
    wide = [run["amortized_svgd.amortized_svgd_expected"][1:] for run in arrays("descent-from-optimum", "wide")]
    assert sum(int((value > 0).sum()) for value in wide) == 9  # of 10
    assert "On *wide*, too, the divergence rises while most of the expected directions descend." in told("06")


def test_at_step_100_of_the_published_runs_two_batch_svgd_is_less_steep_than_gpvi():
    looks = {"gaussian_5": 2, "gaussian_10": 1, "wide": 2}  # the second run in 10 dimensions has folded
    for case, count in looks.items():
        runs = [run for run in arrays("descent-from-optimum", case) if run["amortized_svgd.folded"][4] == 0]
        assert len(runs) == count and all(run["stage"][4] == 100 for run in runs)
        for run in runs:
            theirs, ours = (float(run[f"amortized_svgd.{name}_expected"][4]) for name in (TWO, "gpvi"))
            errors = [float(run[f"amortized_svgd.{name}_expected_se"][4]) for name in (TWO, "gpvi")]
            assert theirs < ours - 3 * np.hypot(*errors)
    said = "At step 100 of the published runs its two-batch direction is less steep than GPVI's in 5 and 10"
    assert f"{said} dimensions, too." in told("06")


def test_where_the_target_is_out_of_reach_amortised_svgd_ends_above_gpvi_and_is_less_steep():
    for run in arrays("descent-from-optimum", "wide"):
        assert rise(run, "gpvi") < 0.04 < 0.3 < rise(run, TWO) < 0.35
        theirs, ours = (run[f"{TWO}.{name}_expected"][1:] for name in (TWO, "gpvi"))
        assert 0.15 < theirs.min() and theirs.max() < 0.51 and 0.59 < ours.min() and ours.max() < 0.755
    above = {
        name: np.mean([rise(run, name) for run in arrays("descent-from-optimum", "wide")]) for name in (TWO, "gpvi")
    }
    said = f"amortised SVGD ends {above[TWO]:.2f} nats above the optimum, GPVI {above['gpvi']:.2f}."
    assert f"two batches do not make the methods equal: {said}" in told("06")
    assert "its direction still descends, at a cosine of 0.2 to 0.5 where GPVI's is 0.6 to 0.75." in told("06")
    said = f"amortised SVGD with two batches ends {above[TWO]:.2f} nats above the optimum, GPVI {above['gpvi']:.2f}."
    assert f"On the one target out of reach, {said}" in told("06")


# Along training


def states(target, key):
    """One quantity at all states of a target, ordered by trajectory, run and stage."""
    return np.concatenate([run[key].numpy() for by in DIRECTIONS for run in arrays(f"descent-{target}", by)])


def ascents(target, name):
    """At which usable states a direction climbs: determinants of one sign, and the common start once per run."""
    folded, stage = states(target, "folded"), states(target, "stage")
    repeated = (stage == 0) & (np.arange(len(stage)) >= len(stage) // len(DIRECTIONS))
    usable = ((folded == 0) | (folded == 1)) & ~repeated
    return (states(target, f"{name}_expected") / states(target, f"{name}_expected_se"))[usable] < -3


@pytest.mark.parametrize(("target", "absolute", "signed"), [("banana", 0.11, -0.01), ("wide", 0.05, -0.02)])
def test_by_how_much_the_cosines_of_the_two_batch_directions_differ(target, absolute, signed):
    folded, stage = states(target, "folded"), states(target, "stage")
    repeated = (stage == 0) & (np.arange(len(stage)) >= len(stage) // len(DIRECTIONS))
    usable = ((folded == 0) | (folded == 1)) & ~repeated
    gap = (states(target, f"{TWO}_expected") - states(target, "gpvi_expected"))[usable]
    assert round(float(np.abs(gap).mean()), 2) == absolute and round(float(gap.mean()), 2) == signed
    assert "In absolute value they differ by 0.11 on average on the banana and by 0.05 on *wide*." in told("06")
    assert "With their signs the differences average −0.01 and −0.02" in told("06")


def test_at_how_many_states_the_self_term_raises_the_cosine():
    counts = {}
    for target in ("banana", "wide"):
        folded, stage = states(target, "folded"), states(target, "stage")
        repeated = (stage == 0) & (np.arange(len(stage)) >= len(stage) // len(DIRECTIONS))
        usable = ((folded == 0) | (folded == 1)) & ~repeated
        gain = states(target, "amortized_svgd_expected") - states(target, f"{TWO}_expected")
        counts[target] = int((gain[usable] > 0).sum()), int(usable.sum())
    (more, of), (few, wide) = counts["banana"], counts["wide"]
    said = f"raises the cosine at {more} of {of} states on the banana, on *wide* at {few} of {wide}."
    assert said in told("06")


def test_on_the_wide_gaussian_neither_direction_ever_climbs():
    assert not ascents("wide", "gpvi").any() and not ascents("wide", TWO).any()
    said = f"On *wide* neither climbs at any of the {len(ascents('wide', 'gpvi'))} states that can be judged."
    assert said in told("06")


def test_on_the_banana_both_directions_climb_and_do_so_together():
    ours, theirs = ascents("banana", "gpvi"), ascents("banana", TWO)
    assert (ours & theirs).sum() >= 5 and (ours ^ theirs).sum() <= 2
    assert "**Both two-batch directions go uphill on the banana, and they do so together.**" in told("06")
    assert f"At {(ours & theirs).sum()} states both climb, at {(ours & ~theirs).sum()} only GPVI, at none" in told("06")


def test_the_counts_of_ascent_are_those_of_the_text():
    ours, theirs, published = (ascents("banana", name) for name in DIRECTIONS)
    assert [(ours & theirs).sum(), (ours & ~theirs).sum(), (theirs & ~ours).sum()] == [6, 1, 0]
    assert published.sum() == 2 and len(ours) + len(ascents("wide", "gpvi")) == 139
    assert "At 6 states both climb, at 1 only GPVI, at none only amortised SVGD" in told("06")
    assert f"climbs at {published.sum()} of these states, GPVI at {ours.sum()}: no verdict." in told("06")


def test_gpvi_keeps_its_determinants_positive_in_all_runs_and_amortised_svgd_in_three():
    def whole(target, by):
        return sum(int(run["folded"][-1] in (0, 1)) for run in arrays(f"descent-{target}", by))

    assert [whole(target, "gpvi") for target in ("banana", "wide")] == [4, 4]
    assert sum(whole(target, by) for target in ("banana", "wide") for by in DIRECTIONS[1:]) == 3
    seen = [[bool(((run["folded"] > 0) & (run["folded"] < 1)).any()) for t in ("banana", "wide")
             for run in arrays(f"descent-{t}", by)] for by in DIRECTIONS]  # fmt: skip
    ours, theirs = seen[0], seen[1] + seen[2]
    said = rf"$\det J < 0$ was seen in {sum(ours)} of {len(ours)} runs by GPVI, in {sum(theirs)} of {len(theirs)} by"
    assert f"at eight looks from random starts {said} amortised SVGD" in told("06")


def test_no_run_ends_lower_than_those_of_gpvi():
    for target in ("banana", "wide"):
        ends = [np.mean([float(run["kl"][-1]) for run in arrays(f"descent-{target}", by)]) for by in DIRECTIONS]
        assert ends == sorted(ends)
    assert "No run by GPVI, here with the exact inverse, folds; in both problems it ends lowest:" in told("06")


def test_at_the_state_under_the_microscope_both_two_batch_directions_climb_and_the_published_one_is_undecided():
    runs = arrays("descent-banana", "gpvi")
    values = np.stack([run["gpvi_expected"].numpy()[1:] for run in runs])
    seed, stage = np.unravel_index(values.argmin(), values.shape)
    found = {
        name: [float(runs[seed][f"{name}_expected{end}"][stage + 1]) for end in ("", "_se")] for name in DIRECTIONS
    }
    assert all(value < -5 * error for value, error in (found["gpvi"], found[TWO]))
    assert [round(number, 2) for number in found["amortized_svgd"]] == [-0.12, 0.08]
    assert "It rises along both two-batch directions. The published direction is undecided:" in told("06")
    assert "and −0.12 ± 0.08 in the record." in told("06")


@pytest.mark.parametrize("seed", range(4))
def test_before_it_folds_amortised_svgd_is_less_steep_than_gpvi_and_descends(seed):
    run = arrays("descent-wide", TWO)[seed]
    last = np.flatnonzero((run["folded"] == 0).numpy())[-1]
    assert run["gpvi_expected"][last] > 0.7 > run[f"{TWO}_expected"][last] > 0
    assert round(float(run[f"{TWO}_expected"][last]), 2) >= 0.15
    said = "GPVI's direction has a cosine above 0.7 with the true gradient and amortised SVGD's a smaller one, down to"
    assert f"{said} 0.15. It still descends." in told("06")


@pytest.mark.parametrize(("setting", "ahead"), [("", 10), ("_best", 9)])
def test_with_the_helper_gpvi_is_nearer_by_kl_in_five_dimensions_after_50_000_steps(setting, ahead):
    ours, theirs = ([values("gaussian-density-5d-long", f"{name}{setting}", key) for key in ("kl", "sigma_error")]
                    for name in ("gpvi", "amortized_svgd"))  # fmt: skip
    assert np.median(ours[0]) < np.median(theirs[0]) and (ours[0] < theirs[0]).sum() == ahead
    assert ours[1].mean() < theirs[1].mean() and len(ours[1]) == 10
    assert "with the helper yes by KL (Gaussians, 50,000 steps; 12, 1 seed)" in CELLS
    assert Runs("gaussian-density-5d-long").record("gpvi").config["steps"] == 50_000
    assert "Helper, d = 5 (11, ten problems, 50,000 steps): {by_kl('')}; at best settings {by_kl('_best')}" in CELLS
    assert "its mean error of Σ is smaller at both settings" in CELLS


def test_with_the_helper_gpvi_is_nearer_by_kl_on_the_seed_of_notebook_12_that_went_on():
    ours, theirs = (Runs("energy-full-length").record(f"sinusoid_{name}") for name in ("gpvi", "amortized_svgd"))
    assert ours.config["steps"] == theirs.config["steps"] == 200_000 and ours.metrics["kl"] < theirs.metrics["kl"]
    assert "with the helper yes by KL (Gaussians, 50,000 steps; 12, 1 seed)" in CELLS


def test_with_one_batch_and_with_particles_little_of_the_four_class_posteriors_spread_is_kept():
    kept = [test_14.relative(4, name).mean() for name in ("amortized_svgd", "svgd")]
    said = f"one batch keeps {kept[0]:.2f} of the posterior's spread, SVGD's free particles {kept[1]:.2f}; two were"
    assert f"{said} not run (appendix G)." in told("06") and "On four classes notebook 14 ran one batch only." in CELLS
    runs = [
        Runs("classification-4").record(name).config for name in test_14.METHODS if name.startswith("amortized_svgd")
    ]
    assert runs and not any(config["objective"].get("independent") for config in runs)


def test_with_two_batches_the_divergence_first_jumps():
    panel = json.loads((repository() / "figures" / "paper" / "06-ascent.json").read_text())["axes"][2]
    first = [max(line["y"]) for line in panel["lines"][6:]]
    assert len(first) == 6 and f"first jumps by {min(first):.1f} to {max(first):.1f} nats" in told("06")
