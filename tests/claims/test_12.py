"""What notebook 12 says in prose of the records, held to the records."""

import math
import re
from functools import cache

import numpy as np
import pytest
import torch
from of_records import Runs, code, told, within

from gpvi_lib import EnergyPotential, PlaneGrid, binned_divergence
from gpvi_lib.kernels import median_bandwidth, squared_distances
from gpvi_lib.paths import repository

FIGURES = {
    name: Runs(f"energy-{name.replace('_', '-')}") for name in ("twin_moons", "sinusoid", "sin_bisect", "sin_split")
}
CONTROLS, LONG, SETTINGS = Runs("energy-controls"), Runs("energy-full-length"), Runs("energy-settings")
POTENTIALS = tuple(FIGURES)
WAVES = POTENTIALS[1:]
BEST = tuple(FIGURES["sinusoid"].experiment.rows)
PRINTED = tuple(method for method in FIGURES["sinusoid"].experiment.methods if method not in BEST)
NARROW = "lambda_1_exact_jac_narrow"
HELPER = "lambda_1_narrow"
STDEVS = (1, 2, 6)
VERDICTS = " ".join(" ".join(code("12")).split())
"""The code on one line: a cell writes appendix K."""


def runs_of(method, potential):
    """The records of a row, or of a control on the sinusoid."""
    return FIGURES[potential] if method in FIGURES[potential].experiment.methods else CONTROLS


def metric(method, potential, key):
    return runs_of(method, potential).metric(method, key)


def track(method, potential, key):
    """(seeds, looks): one quantity along training."""
    return runs_of(method, potential).history(method, key)


def first(method, potential):
    """What the first seed of a row has at its end."""
    return FIGURES[potential].record(method).metrics


def end(method, potential):
    """The same after all 200,000 steps."""
    return LONG.record(f"{potential}_{method}").metrics


def path(method, potential, key):
    """One quantity along these 200,000 steps."""
    return LONG.arrays(f"{potential}_{method}")[f"history_{key}"].numpy()


def minority(negative):
    """The share of the rarer sign."""
    return np.minimum(negative, 1 - negative)


def candidate(name):
    return SETTINGS.record(name, seed=100)


# how the noise and our settings were chosen

TRIED = ("amortized_svgd", "gpvi_exact_jac", "flow")


def distances(potential, row):
    """Of short runs, at each noise."""
    tried = [candidate(f"{potential}_{row}_stdev_{stdev}") for stdev in STDEVS]
    return np.array([record.metrics["sliced_wasserstein"] for record in tried])


def at_the_rows_noise(potential, row):
    """Distances of the row's seeds after as many steps, and of the short run with the row's noise."""
    sampler = FIGURES[potential].record(row).config["sampler"]
    used = STDEVS.index(sampler["base_stdev" if row == "flow" else "input_stdev"])
    steps = candidate(f"{potential}_{row}_stdev_{STDEVS[used]}").config["steps"]
    look = int(np.flatnonzero(track(row, potential, "step")[0] <= steps)[-1])
    return [*track(row, potential, "sliced_wasserstein")[:, look], distances(potential, row)[used]]


def test_the_check_prefers_other_noises_than_the_rows_have():
    nearest = [
        [
            STDEVS[found.argmin()]
            for found in (distances(name, TRIED[0]) + distances(name, TRIED[1]), distances(name, "flow"))
        ]
        for name in POTENTIALS
    ]
    assert nearest == [[6, 1], [2, 2], [2, 1], [2, 2]]
    generators, flows = zip(*nearest, strict=True)
    used = [FIGURES[name].record("flow").config["sampler"]["base_stdev"] for name in POTENTIALS]
    said = "the noise of the generators would be {} on twin moons and {} on the three waves;".format(*generators)
    assert said in told("12")
    said = "For the flow it would be {}, {}, {} and {}; the rows have {:g}, {:g}, {:g} and {:g}."
    assert said.format(*flows, *used) in told("12")


def test_in_a_third_of_the_lines_seeds_differ_as_much_as_noises():
    assert "In a third of these lines it varies between seeds" in told("12")
    lines = [(name, row) for name in POTENTIALS for row in TRIED]
    assert sum(np.ptp(at_the_rows_noise(*line)) >= np.ptp(distances(*line)) for line in lines) == len(lines) // 3 == 4


def test_amortised_svgd_has_one_lucky_short_run_on_twin_moons():
    *others, lucky = at_the_rows_noise("twin_moons", "amortized_svgd")
    assert within(others, 1.5, 1.65) and round(lucky, 2) == 0.31
    said = f"with noise 6 has {lucky:.2f} on twin moons here, and about 1.6 after as many steps on all three seeds"
    assert said in told("12")


def test_our_settings_are_the_best_of_their_candidates_but_for_one_that_is_level():
    best = {}
    for row in BEST:
        tried = [name for name in SETTINGS.experiment.methods if name.startswith(f"{row}_")]
        best[row] = min(tried, key=lambda name: candidate(name).metrics["kl"])
    assert [row for row, name in best.items() if name != f"{row}_ours"] == ["gpvi_exact_density"]
    narrow, ours = (candidate(f"gpvi_exact_density_{name}").metrics for name in ("stdev_1", "ours"))
    assert best["gpvi_exact_density"] == "gpvi_exact_density_stdev_1"
    assert ours["kl"] - narrow["kl"] < 0.004 and ours["sliced_wasserstein"] < narrow["sliced_wasserstein"]
    said = "with the narrowest noise is level with ours, a little ahead by KL and behind by distance;"
    assert said in told("12")
    fast = candidate("flow_best_lr_0_1").metrics["kl"]
    assert 0 < fast - candidate("flow_best_ours").metrics["kl"] < 0.004
    for row in BEST:
        tried = [name for name in SETTINGS.experiment.methods if name.startswith(f"{row}_")]
        level = {f"{row}_ours", "gpvi_exact_density_stdev_1", "flow_best_lr_0_1"}
        others = [candidate(name).metrics["kl"] for name in tried if name not in level]
        assert min(others) > 1.9 * candidate(f"{row}_ours").metrics["kl"]
    said = "The flow at about three times its rate is level with ours, too. All other candidates are clearly behind."
    assert said in told("12")


# the figures


def test_by_kl_both_exact_densities_beat_the_functional_gradient_on_every_run():
    for name in POTENTIALS:
        dense = np.concatenate([metric(row, name, "kl") for row in ("gpvi_exact_density", "flow_best")])
        assert dense.max() < metric("gpvi_best", name, "kl").min()
        tuned, ours = (FIGURES[name].record(row).config for row in ("gpvi_exact_density", "gpvi_best"))
        assert all(tuned["sampler"][key] != ours["sampler"][key] for key in ("hidden", "input_stdev"))
        assert tuned["steps"] != ours["steps"] and not any("svgd" in row for row in BEST)
    said = "Layers' sizes, noise and steps differ; amortised SVGD has no tuned row."
    assert f"**By KL our exact density and flow beat our exact Jacobian on every run.** {said}" in told("12")


def test_of_our_settings_only_the_functional_gradient_has_noise_1_and_it_alone_loses_a_moon():
    stdev = {"gpvi_exact_density": "input_stdev", "flow_best": "base_stdev", "gpvi_best": "input_stdev"}
    noise = [FIGURES["twin_moons"].record(row).config["sampler"][key] for row, key in stdev.items()]
    rarer = [minority(metric(row, "twin_moons", "share_left")) for row in stdev]
    assert noise == [2, 2, 1] and np.min(rarer[:2]) > 0.4 and rarer[2].max() < 0.01
    said = "GPVI with the exact Jacobian has the narrowest noise, chosen on the sinusoid. On twin moons it stays on one"
    assert f"{said} moon, on every seed." in told("12")


def test_by_medians_the_exact_density_leads_or_ties_on_all_but_the_fork():
    shown = {row: [round(float(np.median(metric(row, name, "kl"))), 2) for name in POTENTIALS] for row in BEST}
    assert shown["gpvi_exact_density"] == [0.02, 0.01, 0.02, 0.18]
    assert shown["flow_best"] == [0.03, 0.01, 0.06, 0.09]
    assert shown["gpvi_best"] == [0.71, 0.22, 0.3, 0.4]
    text = " ".join((repository() / "README.md").read_text().split())
    said = "are level on the sinusoid; the flow's median is lower on the fork (Sin split), where the seeds overlap,"
    assert f"{said} GPVI's on the loop (Sin bisect); on the moons the two are within 0.02 nats." in text


# has it converged?


def progress(method, potential):
    """The distance in the fourth quarter of training over that in the third."""
    values = track(method, potential, "sliced_wasserstein")
    third, fourth = np.array_split(values[:, values.shape[1] // 2 :], 2, axis=1)
    return fourth.mean(1) / third.mean(1)


def test_on_the_waves_amortised_svgd_and_the_helper_and_the_flow_still_come_closer():
    assert max(progress(m, name).mean() for m in ("amortized_svgd", "gpvi", "flow") for name in WAVES) < 1
    said = "On the waves amortised SVGD, GPVI with the helper and the planar flow are still getting closer to their"
    assert f"{said} targets by distance." in told("12")


def test_the_exact_density_still_gains_on_ten_of_twelve_runs():
    assert sum((progress("gpvi_exact_density", name) < 1).sum() for name in POTENTIALS) == 10
    assert "The exact density gains on ten of its twelve runs" in told("12")


def test_on_the_waves_the_exact_jacobian_moves_away_or_rests():
    change = {name: progress("gpvi_exact_jac", name).mean() for name in POTENTIALS}
    assert all(abs(change[name] - 1) < 0.01 or change[name] > 1.1 for name in WAVES) and change["twin_moons"] < 1
    assert "GPVI with the exact Jacobian moves away or rests in the mean (on twin moons it comes closer)" in told("12")


# all 200,000 steps


def test_amortised_svgd_contracts_to_a_third_or_half_of_the_width():
    for name in WAVES:
        found = end("amortized_svgd", name)
        assert 1 / 3 < found["width_ratio"] < 0.5 and 1 < found["kl"] < 1.5
    assert "On the three waves its samples end at a third to a half of the target's width." in told("12")


def test_amortised_svgd_ends_with_these_widths_and_divergences():
    found = [[round(end("amortized_svgd", name)[key], 2) for name in WAVES] for key in ("width_ratio", "kl")]
    assert found == [[0.49, 0.34, 0.35], [1.01, 1.36, 1.44]]
    assert "in the run of the table to {:.2f}, {:.2f} and {:.2f}.".format(*found[0]) in told("12")
    assert "against {:.2f}, {:.2f} and {:.2f}.".format(*found[1]) in told("12")


def test_amortised_svgd_ends_in_both_halves_and_both_branches():
    for name in WAVES[1:]:
        for part in ("upper", "lower"):
            assert end("amortized_svgd", name)[f"share_{part}"] > 0.5 * due(name)[part]
    assert "of that width, and both halves and branches (1 seed each;" in told("12")


def test_both_branches_of_its_end_are_those_of_the_one_seed_that_had_them_when_cut():
    lower = metric("amortized_svgd", "sin_split", "share_lower") > 0.5 * due("sin_split")["lower"]
    assert lower.tolist() == [True, False, False] and both_branches("amortized_svgd", "sin_split") == 1
    assert LONG.record("sin_split_amortized_svgd").seed == 0
    assert f"(1 seed each; cut, {lower.sum()} of {len(lower)} has both branches)" in told("12")
    assert f"both halves and, on the seed of {len(lower)} that had them when cut, both branches." in told("12")


def test_amortised_svgds_distance_stays_on_the_sinusoid_falls_on_bisect_and_grows_on_split():
    for name, sign in {"sinusoid": 0, "sin_bisect": -1, "sin_split": 1}.items():
        change = end("amortized_svgd", name)["sliced_wasserstein"] - first("amortized_svgd", name)["sliced_wasserstein"]
        assert abs(change) < 0.05 if sign == 0 else sign * change > 0.5
    said = "it stays as it is on the sinusoid, falls on sin bisect and grows on sin split."
    assert f"The distance does not follow: {said}" in told("12")


def test_amortised_svgd_is_on_both_branches_of_sin_split_at_its_end():
    shares = [end("amortized_svgd", "sin_split")[f"share_{part}"] for part in ("upper", "lower")]
    assert min(shares) > 0.15
    said = "On sin split both branches are there ({:.0f} and {:.0f} % of the samples,"
    assert said.format(*(100 * share for share in shares)) in told("12")


def test_amortised_svgd_stays_on_one_moon_as_wide_as_it_was():
    for key in ("width_ratio", "misplaced"):
        assert abs(end("amortized_svgd", "twin_moons")[key] - first("amortized_svgd", "twin_moons")[key]) < 0.02
    assert "On twin moons it stays on one moon, as wide as it was." in told("12")


def test_the_row_of_the_exact_jacobian_ends_no_better_than_it_was():
    for key in ("sliced_wasserstein", "kl"):
        assert end("gpvi_exact_jac", "sinusoid")[key] > first("gpvi_exact_jac", "sinusoid")[key]
    assert "The row without λ, folded from its start, ends no better than it was." in told("12")


def test_with_lambda_1_and_noise_1_every_map_folds_at_last_and_never_comes_back():
    folds = []
    for name in POTENTIALS:
        negative, step = path(NARROW, name, "negative_share"), path(NARROW, name, "step")
        folds.append(step[np.flatnonzero(minority(negative) > 0.005)[0]])
        later = negative[np.flatnonzero(negative > 0.005)[0] :]
        assert (later > 0.005).all() and (later < 0.995).all()
        assert 0.3 < end(NARROW, name)["negative_share"] < 0.7
    assert folds == [10_000, 40_000, 20_000, 10_000]
    sinusoid, bisect = (fold - step[1] for fold in folds[1:3])  # the last look without a fold
    said = f"On the sinusoid that lasts for {sinusoid:,} steps, on sin bisect for {bisect:,}, on the other two not even"
    assert f"{said} that. Then determinants of both signs appear and never leave again," in told("12")


def test_once_folded_it_ends_between_1_1_and_1_9_nats_and_too_wide():
    found = [end(NARROW, name)["kl"] for name in POTENTIALS]
    assert within(found, 1.05, 1.95)
    assert f"The runs end between {min(found):.1f} and {max(found):.1f} nats. Their maps fold as well." in told("12")
    assert min(end(NARROW, name)["width_ratio"] for name in POTENTIALS) > 1.5
    assert "after 200,000 it is {folded_width} on the four potentials" in VERDICTS


def test_once_folded_it_is_behind_amortised_svgd_on_twin_moons_and_on_the_waves_within_a_tenth():
    behind = {name: end(NARROW, name)["kl"] - end("amortized_svgd", name)["kl"] for name in POTENTIALS}
    assert behind["twin_moons"] > 1 and all(abs(behind[name]) < 0.1 for name in WAVES)
    said = "Amortised SVGD's binned KL is below these runs' on twin moons. On the waves the order is open: both are"
    assert f"{said} within 0.1," in told("12")


@pytest.mark.parametrize("name", ["sin_bisect", "sin_split"])
def test_of_thin_lines_a_histogram_can_miss_half_a_nat(name):
    """Exact draws, pulled to the nearest ridge: their density is the target's over the factor."""
    target, factor = EnergyPotential(name), 0.1
    grid = PlaneGrid(target)
    draws = grid.sample(200_000, torch.Generator().manual_seed(0))
    thin = draws.clone()
    thin[:, 1] -= (1 - factor) * target.across(draws)
    divergence = float((target.log_prob(draws) - target.log_prob(thin)).mean()) - math.log(factor)
    missed = divergence - binned_divergence(grid.counts(thin), grid.log_masses)
    assert 0.4 < missed < 0.8 and "of thin lines a histogram can miss half a nat." in told("12")


def test_the_claims_of_both_waves_show_that_it_misses_something():
    """A claim is at most the true KL, and on sin bisect it is above the binned one."""
    found = end("amortized_svgd", "sin_bisect")
    assert found["kl_claimed"] > found["kl"] + 0.05
    said = "a little smaller than the true one, and visibly so for lines thinner than a cell."
    assert f"The binned KL is in expectation {said}" in told("12")


def test_half_of_the_gain_of_lambda_1_and_noise_1_is_lost_at_the_end():
    rows = ("gpvi_exact_jac", "sinusoid"), (NARROW, "sinusoid")
    cut = np.diff([runs_of(*row).record(row[0]).metrics["kl"] for row in rows])[0]
    last = np.diff([end(*row)["kl"] for row in rows])[0]
    assert 0.45 < 1 - last / cut < 0.55 and "about half of that gain in KL is lost" in told("12")


def test_on_the_sinusoid_the_cut_flatters_lambda_1_and_noise_1():
    short, last = CONTROLS.record(NARROW).metrics["kl"], end(NARROW, "sinusoid")["kl"]
    said = f"on the sinusoid the cut flatters λ = 1, noise 1 (one seed, from {short:.2f} to {last:.2f} nats)."
    assert said in told("12")


def test_before_it_folds_it_claims_a_tenth_of_a_nat_on_the_sinusoid():
    assert within(path(NARROW, "sinusoid", "kl_claimed")[1:4], 0.08, 0.13)
    text = " ".join((repository() / "docs/what-did-not-reproduce.md").read_text().split())
    assert "GPVI does well on the sinusoid for 30,000 steps. Then its map folds" in text


def test_on_the_sinusoid_the_helper_goes_on_coming_closer():
    found = [first("gpvi", "sinusoid"), end("gpvi", "sinusoid"), end("amortized_svgd", "sinusoid")]
    assert [round(m["kl"], 2) for m in found] == [0.61, 0.34, 1.01]
    assert [round(m["sliced_wasserstein"], 2) for m in found] == [0.67, 0.46, 0.16]
    assert round(found[1]["width_ratio"], 2) == 1.03
    cut, last = ([m[key] for key in ("kl", "sliced_wasserstein")] for m in found[:2])
    said = f"this seed, the best of three when cut, falls from {cut[0]:.2f} to {last[0]:.2f} nats."
    assert f"{said} Its width ends at {found[1]['width_ratio']:.2f}, its distance at {last[1]:.2f}." in told("12")
    assert f"Its distance falls from {cut[1]:.2f} to {last[1]:.2f}." in told("12")


def test_by_kl_the_helper_without_lambda_has_the_best_end_of_all_generators_on_the_sinusoid():
    others = ("amortized_svgd", "gpvi_exact_jac", HELPER, NARROW)
    assert end("gpvi", "sinusoid")["kl"] < min(end(method, "sinusoid")["kl"] for method in others)
    assert "By KL it is the best of the generators' long runs on the sinusoid." in told("12")


# printed GPVI, on a tenth of the batch


def test_printed_gpvi_is_printed_but_for_its_batch():
    for name in POTENTIALS:
        config = LONG.record(f"{name}_{HELPER}").config
        sampler, objective = config["sampler"], config["objective"]
        assert (config["steps"], sampler["noise_scale"], sampler["input_stdev"]) == (200_000, 1, 1)
        assert (sampler["hidden"], objective["inverse"]["kind"], objective["num_samples"]) == ([500, 500], "helper", 10)
    said = "GPVI has λ = 1 and noise 1, both printed, and 10 samples a step, not 100."
    assert f"GPVI with the helper went to the end on all four potentials. {said}" in told("12")


def test_printed_gpvi_has_these_widths_divergences_and_distances():
    text, svgd = told("12"), "amortized_svgd"
    widths = [end(HELPER, name)["width_ratio"] for name in WAVES]
    said = "where it covers the waves; its KL is smaller on all four, its distance larger on the waves (1 seed)."
    assert f"has {min(widths):.2f} to {max(widths):.2f} {said}" in text
    said = "where its samples are, a smaller KL on all four and a larger distance on the waves; noise and λ differ."
    assert f"has {min(widths):.2f} to {max(widths):.2f} {said}" in text
    last = [float(path(HELPER, name, "delivered")[-1]) for name in POTENTIALS]
    said = f"at the end it is {last[0]:.2f} on twin moons and {min(last[1:]):.2f} to {max(last[1:]):.2f} on the waves."
    assert said.replace("-0.", "−0.") in text
    lowest = [float(np.nanmin(path(HELPER, name, "delivered"))) for name in POTENTIALS]
    assert max(lowest) < 0.1 and min(lowest) < -0.1
    assert [round(end(HELPER, name)["spread_1"], 2) for name in WAVES] == [0.60, 0.88, 0.49]
    ours, rival = ([end(method, name)["kl"] for name in POTENTIALS] for method in (HELPER, svgd))
    assert (np.array(ours) < rival).all()
    moons = (
        f"It has {ours[0]:.2f} nats on twin moons, where it has both moons and amortised SVGD one, with {rival[0]:.2f}."
    )
    assert moons in text
    waves = "On the waves it has {:.2f}, {:.2f} and {:.2f}, against {:.2f}, {:.2f} and {:.2f}."
    assert waves.format(*ours[1:], *rival[1:]) in text
    ahead = [end(HELPER, n)["sliced_wasserstein"] < end(svgd, n)["sliced_wasserstein"] for n in POTENTIALS]
    assert ahead == [True, False, False, False]
    assert f"On the sinusoid it ends at {ours[1]:.2f} nats, the printed flow at" in text


def test_printed_gpvi_has_both_moons_both_halves_and_neither_branch():
    assert minority(end(HELPER, "twin_moons")["share_left"]) > 0.45
    halves = [end(HELPER, "sin_bisect")[f"share_{part}"] for part in ("upper", "lower")]
    assert halves[1] > 0.5 * due("sin_bisect")["lower"] and halves[0] > due("sin_bisect")["upper"]
    upper, lower, fair = (f"{100 * x:.0f} %" for x in (*halves, due("sin_bisect")["lower"]))
    assert f"just over the bar: {lower} of the samples, due {fair}, and {upper} above." in told("12")
    branches = {part: end(HELPER, "sin_split")[f"share_{part}"] / due("sin_split")[part] for part in ("upper", "lower")}
    assert max(branches.values()) < 0.3 and end(HELPER, "sin_split")["share_stem"] > 0.95
    assert "behind on the waves; on sin split nearly all of it is on the stem." in told("12")


def test_printed_gpvi_is_ahead_of_the_exact_inverse_at_the_same_lambda_and_noise_by_kl():
    assert all(end(HELPER, name)["kl"] < end(NARROW, name)["kl"] for name in POTENTIALS)
    said = "**GPVI with the exact inverse, and the printed batch, is behind the helper by KL on all four.**"
    assert said in told("12")
    pair = [end(method, "sinusoid")["kl"] for method in (HELPER, NARROW)]
    assert "it is the other way round by KL, {:.2f} against {:.2f}.".format(*pair) in told("12")


def test_printed_gpvi_is_folded_from_20000_steps_on():
    for name in POTENTIALS:
        step, negative = path(HELPER, name, "step"), path(HELPER, name, "negative_share")
        assert (minority(negative[step >= 20_000]) > 0.005).all()
    assert "All four maps are folded from 20,000 steps on." in told("12")


def test_the_widths_of_the_first_paragraph_and_of_the_takeaways():
    widths = {m: sorted(end(m, name)["width_ratio"] for name in WAVES) for m in ("amortized_svgd", HELPER)}
    svgd, gpvi = (f"{found[0]:.2f} to {found[-1]:.2f}" for found in widths.values())
    text = told("12")
    assert f"After all 200,000 steps amortised SVGD has {svgd} of that width" in text
    assert f"Printed GPVI, on a tenth of the batch, has {gpvi} where it covers the waves;" in text
    assert (
        f"amortised SVGD has {svgd} of the waves' width" in text and f"on a tenth of its batch has {gpvi} where" in text
    )
    kl = {m: end(m, "sinusoid")["kl"] for m in (HELPER, "flow")}
    assert f"On the sinusoid it ends at {kl[HELPER]:.2f} nats, the printed flow at {kl['flow']:.2f}." in text
    assert all(end(HELPER, name)["kl"] < end("amortized_svgd", name)["kl"] for name in POTENTIALS)


def test_printed_gpvi_still_comes_closer_on_two_of_four():
    change = [path(HELPER, name, "sliced_wasserstein")[-1] / path(HELPER, name, "sliced_wasserstein")[1]
              for name in POTENTIALS]  # fmt: skip
    assert change[0] < 0.25 and change[2] < 0.4 and abs(change[1] - 1) < 0.03 and 1.1 < change[3] < 1.2
    for name in (POTENTIALS[0], POTENTIALS[2]):  # "when it ends"
        curve = path(HELPER, name, "sliced_wasserstein")
        assert curve[-5:].mean() < curve[-10:-5].mean()
    said = "On twin moons and sin bisect it still comes closer when it ends. On the sinusoid its distance stays"
    assert f"{said} where it was at the first look, on sin split it grows." in told("12")
    delivered = np.concatenate([path(HELPER, name, "delivered")[1:] for name in POTENTIALS])
    assert delivered.min() < 0 and 0.95 < delivered.max() < 1.05
    assert "goes up and down, from below nothing to all of it;" in told("12")


def test_with_lambda_1_the_helper_has_less_kl_at_noise_1_than_at_2():
    assert CONTROLS.metric(HELPER, "kl").mean() < CONTROLS.metric("lambda_1", "kl").mean()
    assert "With noise 2 and λ = 1 its KL is larger than with noise 1 in the mean." in told("12")


def test_the_helpers_map_is_folded_all_along_and_what_it_delivers_goes_up_and_down():
    other_sign = 1 - path("gpvi", "sinusoid", "negative_share")[1:]
    assert 1 / 6 < other_sign.min() and other_sign.max() < 0.3
    assert path("gpvi", "sinusoid", "kl_claimed")[4:].max() < 0
    delivered = path("gpvi", "sinusoid", "delivered")[1:]
    assert delivered.min() < 0.02 and 0.85 < delivered.max() < 0.9
    said = "between a sixth and three tenths of the noise has the other sign; from 40,000 on its claimed divergence is"
    assert f"From 10,000 steps on its map is folded: {said} below zero." in told("12")
    assert f"goes up and down between nothing and {delivered.max():.2f} at the looks;" in told("12")


def test_the_planar_flow_arrives():
    cut, arrived = first("flow", "sinusoid"), end("flow", "sinusoid")
    said = f"On the sinusoid the flow went from {cut['kl']:.2f} nats (8,000 steps) to {arrived['kl']:.2f}."
    assert said in told("12")
    assert [round(m["sliced_wasserstein"], 2) for m in (cut, arrived)] == [1.19, 0.09]
    assert round(arrived["width_ratio"], 2) == 1.04 and abs(arrived["kl_claimed"] - arrived["kl"]) < 0.001
    said = f"it has the distance {arrived['sliced_wasserstein']:.2f}, {arrived['kl']:.2f} nats, the width"
    assert f"With the printed steps {said} {arrived['width_ratio']:.2f}," in told("12")
    assert arrived["misplaced"] < 0.03 and metric("flow_best", "sinusoid", "kl").max() < 0.01
    assert "at our setting a flow gets below 0.01 nats in 4,000 steps." in told("12")


def test_where_it_was_cut_the_flow_was_farthest_and_last_but_one_by_kl():
    cut = {m: first(m, "sinusoid") for m in PRINTED}
    assert max(cut, key=lambda m: cut[m]["sliced_wasserstein"]) == "flow"
    assert sorted(cut, key=lambda m: cut[m]["kl"])[2] == "flow"
    far, kl = (cut["flow"][key] for key in ("sliced_wasserstein", "kl"))
    said = f"the farthest of the four by distance, {far:.2f}, and last but one by KL, {kl:.2f} nats."
    assert said in told("12")


# the width of amortised SVGD


def test_amortised_svgd_is_too_thin_on_every_run():
    assert max(metric("amortized_svgd", name, "width_ratio").max() for name in POTENTIALS) < 1
    assert "Amortised SVGD is too thin already in the short runs." in told("12")
    lacking = 100 * (1 - np.concatenate([metric("amortized_svgd", name, "width_ratio") for name in WAVES]))
    assert f"at our steps it is too thin by {lacking.min():.0f} to {lacking.max():.0f} per cent," in VERDICTS


def test_with_one_batch_the_width_is_0_73_and_with_two_1_11():
    widths = [metric(m, "sinusoid", "width_ratio").mean() for m in ("amortized_svgd", "two_batches")]
    assert "{:.2f} with one, {:.2f} with two, on the sinusoid.".format(*widths) in told("12")


def test_two_batches_cure_the_width_and_a_narrow_kernel_does_not():
    wide = metric("two_batches", "sinusoid", "width_ratio")
    assert wide.min() > metric("amortized_svgd", "sinusoid", "width_ratio").max() and abs(wide.mean() - 1) < 0.2
    assert metric("narrow_kernel", "sinusoid", "width_ratio").mean() < 0.9
    assert "So a second batch should cure the width, and a narrow bandwidth should not:" in told("12")
    assert "With two batches the width is there, a little too much of it." in told("12")


def test_with_two_batches_it_is_farther_and_yet_less_divergent_on_every_seed():
    for key, sign in {"sliced_wasserstein": 1, "kl": -1}.items():
        change = metric("two_batches", "sinusoid", key) - metric("amortized_svgd", "sinusoid", key)
        assert (sign * change > 0).all()
    assert (metric("two_batches", "sinusoid", "kl") > 0.1).all()
    assert "With two batches the *distance* is larger on all three seeds." in told("12")


@cache
def predicted_width(potential, bandwidth=None):
    """Statement 3's, by default with the median rule, on a hundred exact batches of 100."""
    points = PlaneGrid(EnergyPotential(potential)).sample(10_000, torch.Generator().manual_seed(70))
    squares = [squared_distances(x, x) for x in points.split(100)]
    h = bandwidth or torch.stack([median_bandwidth(square, same=True) for square in squares]).mean()
    neighbours = torch.stack([torch.exp(-square / h).sum(1).mean() - 1 for square in squares]).mean()
    ridge = {"twin_moons": 0.4, "sinusoid": 0.4, "sin_bisect": 0.35, "sin_split": 0.375}[potential]
    return math.sqrt(float((neighbours - h / (2 * ridge**2)) / (neighbours + 1)))


def test_statement_3_predicts_these_widths_and_meets_the_short_runs_to_within_0_12():
    told_widths = (0.80, 0.73, 0.71)
    assert within([predicted_width(n) - w for n, w in zip(WAVES, told_widths, strict=True)], -0.015, 0.015)
    assert "It predicts widths of {:.2f}, {:.2f} and {:.2f} for the three waves,".format(*told_widths) in told("12")
    measured = {n: metric("amortized_svgd", n, "width_ratio") for n in POTENTIALS}
    off = {n: abs(widths.mean() - predicted_width(n)) for n, widths in measured.items()}
    assert max(off, key=off.get) == "sin_split" and off["sin_split"] < 0.13
    assert all(off[n] < 1.25 * widths.std(ddof=1) for n, widths in measured.items())
    assert "the formula is within 0.12 of the widths at 8,000 steps, but does not order them." in told("12")


def test_at_h_0_3_statement_3_predicts_0_83_and_three_seeds_have_less():
    measured = metric("narrow_kernel", "sinusoid", "width_ratio")
    assert f"{predicted_width('sinusoid', 0.3):.2f}" == "0.83"
    assert "At $h = 0.3$ it predicts 0.83, with the median rule 0.80." in told("12")
    assert f"Three seeds have {measured.min():.2f} to {measured.max():.2f}" in told("12")
    assert measured.max() < predicted_width("sinusoid", 0.3) and predicted_width("sinusoid", 0.3) > predicted_width(
        "sinusoid"
    )


# too good to be true


@cache
def gaps():
    """(binned minus claimed KL, share of the rarer sign) of every run of a row."""
    found = []
    for method in (*PRINTED, *BEST):
        for runs in FIGURES.values():
            every = [runs.record(method, seed).metrics for seed in runs.seeds]
            found += [(m["kl"] - m["kl_claimed"], minority(m.get("negative_share", 0.0))) for m in every]
    return np.array(found).T


def test_with_one_sign_both_divergences_agree_and_with_both_they_need_not():
    gap, rarer = gaps()
    one_sign, both = gap[rarer < 0.005], gap[rarer > 0.1]
    assert abs(one_sign).max() < 0.12 and sorted(abs(one_sign))[-3] < 0.05
    assert both.max() > 0.5 and math.log(2) < both.max() < math.log(3) and round(both.max(), 2) == 0.73
    said = f"With both signs the claim of these runs is up to {both.max():.2f} nats too small. That is a little more"
    assert said + r" than $\log 2 = 0.69$, so this map probably has three sheets or more." in told("12")


def test_of_84_runs_57_have_one_sign_26_both_and_one_lies_between():
    gap, rarer = gaps()
    one_sign = rarer < 0.005
    assert (len(gap), one_sign.sum(), (rarer > 0.1).sum()) == (84, 57, 26)
    assert round(gap[one_sign].max(), 2) == 0.01 and (abs(gap[one_sign]) > 0.05).sum() == 2
    exceptions = [m for m in (*PRINTED, *BEST) for name in POTENTIALS if off_by_more_than_0_05(m, name)]
    assert exceptions == ["gpvi", "gpvi_exact_jac"]
    said = rf"In our {one_sign.sum()} runs with one sign of $\det J$ the claim was never more than"
    assert f"{said} {gap[one_sign].max():.2f} nats below." in told("12")
    said = "the two divergences agree to within 0.05, except in two runs of GPVI."
    assert rf"With one sign of $\det J$ {said}" in told("12")


def off_by_more_than_0_05(method, name):
    """On some seed with one sign of det J."""
    every = [FIGURES[name].record(method, seed).metrics for seed in FIGURES[name].seeds]
    return any(abs(m["kl"] - m["kl_claimed"]) > 0.05 for m in every if minority(m.get("negative_share", 0.0)) < 0.005)


def test_marks_far_below_zero_are_of_amortised_svgd_on_sin_split():
    far = [
        m["kl"] - m["kl_claimed"] for m in (FIGURES["sin_split"].record("amortized_svgd", s).metrics for s in (0, 1, 2))
    ]
    gap, rarer = gaps()
    assert max(far) < -0.08 and sorted(gap[rarer > 0.1])[:3] == sorted(far)
    said = "some marks of amortised SVGD lie below zero in Figure 12.3 although its maps fold."
    assert said in told("12")


def test_on_one_moon_amortised_svgd_claims_less_than_is_possible():
    assert metric("amortized_svgd", "twin_moons", "kl_claimed").max() < 0.5 * math.log(2)
    assert metric("amortized_svgd", "twin_moons", "kl").min() > math.log(2)
    said = "Amortised SVGD on twin moons claims less than half of what any sampler of one moon must have:"
    assert said in told("12") and r"A missing moon costs $\log2 = 0.69$ nats." in told("12")


def test_all_maps_of_amortised_svgd_fold_before_training_and_after():
    for name in POTENTIALS:
        assert within(metric("amortized_svgd", name, "negative_share"), 0.25, 0.65)
        assert within(track("amortized_svgd", name, "negative_share")[:, 0], 0.25, 0.65)
    said = "three to six tenths of their determinants are negative, before training and after."
    assert f"All maps of amortised SVGD fold: {said}" in told("12")


def test_on_the_plain_elbo_the_generator_claims_a_negative_divergence_with_at_least_eight_sheets():
    binned, claimed = (metric("plain_elbo", "sinusoid", key) for key in ("kl", "kl_claimed"))
    assert claimed.mean() < 0 and binned.min() > 0.3
    assert within(binned - claimed, math.log(7), math.log(12))
    assert [round(gap, 1) for gap in sorted(binned - claimed)] == [2.0, 2.3, 2.3] and round(math.log(7), 2) == 1.95
    said = f"Its claim is {min(binned - claimed):.1f} to {max(binned - claimed):.1f} nats too small."
    assert said + rf" That takes at least eight sheets, because $\log 7 = {math.log(7):.2f}$." in told("12")
    assert r"trained on the plain ELBO with $|\det J|$, claims a *negative* divergence." in told("12")


# what the exact Jacobian changes


@pytest.mark.parametrize(("method", "number"), [("gpvi_exact_jac", 6), ("gpvi", 1), ("gpvi_best", 10)])
def test_where_a_map_does_not_fold_there_is_no_tail(method, number):
    every = [runs.record(method, seed).metrics for runs in FIGURES.values() for seed in runs.seeds]
    tails = [m["repulsion_tail"] for m in every if minority(m["negative_share"]) < 1e-4]
    assert len(tails) == number and max(tails) < 1.6
    assert "Where a map does not fold at the end there is no such tail (to one in ten thousand;" in told("12")


def test_on_sin_split_a_burst_comes_with_a_change_of_sign():
    folding, claimed = (track("gpvi_exact_jac", "sin_split", key)[1] for key in ("negative_share", "kl_claimed"))
    burst = claimed[1:].argmax() + 1
    assert folding[burst - 1] > 0.995 and 0.6 < folding[burst] < 0.65
    assert claimed[burst - 1] < 0.75 < 2.85 < claimed[burst]
    said = f"on sin split, one run goes from {claimed[burst - 1]:.1f} to {claimed[burst]:.1f} nats as its share of"
    assert said + rf" $\det J<0$ goes from {folding[burst - 1]:.0f} to {folding[burst]:.2f}." in told("12")


def test_a_run_that_folded_before_can_be_twice_too_wide():
    negative = track("gpvi_exact_jac", "twin_moons", "negative_share")[1]
    assert metric("gpvi_exact_jac", "twin_moons", "width_ratio")[1] > 2
    assert negative[-1] < 1e-3 < 0.4 < negative[1:].max()
    assert "But a run that folded before can be twice too wide all the same." in told("12")


def test_with_all_else_the_same_the_exact_inverse_is_worse_on_all_seeds_and_ends_folded():
    for key in ("sliced_wasserstein", "kl"):
        assert (metric("exact_inverse", "sinusoid", key) > metric("gpvi", "sinusoid", key)).all()
    said = "the exact inverse makes the sampler worse on all three seeds, by distance and by divergence."
    assert f"with all else the same, {said}" in told("12")
    folded = minority(metric("exact_inverse", "sinusoid", "negative_share"))
    assert f"folds on all ({100 * folded.min():.0f} to {100 * folded.max():.0f} %)" in told("12")
    assert (minority(metric("gpvi", "sinusoid", "negative_share")) < 0.01).sum() == 2
    assert "at the end the helper's map hardly folds on two seeds (under 1 %), the exact inverse's folds" in told("12")


def test_an_eight_thousand_step_run_of_the_step_in_the_notebook_has_0_145_nats():
    kl = candidate("gpvi_best_ours").metrics["kl"]
    assert round(kl, 3) == 0.145
    assert f"the row *GPVI, exact Jacobian, ours* of appendix C has {kl:.3f}." in told("12")


def test_our_gpvi_loses_a_moon_and_the_lower_branch():
    assert metric("gpvi_best", "twin_moons", "kl").min() > 0.69
    assert metric("gpvi_best", "sin_split", "share_lower").max() < 0.01
    assert "What remains there is lost parts (a moon; the lower branch of sin split;" in told("12")


def test_a_quick_helper_is_neither_clearly_better_nor_worse_at_3000_steps():
    halfway = (track("gpvi", "sinusoid", "step")[0] == 3_000).argmax()
    slow = track("gpvi", "sinusoid", "sliced_wasserstein")[:, halfway]
    quick = metric("quick_helper", "sinusoid", "sliced_wasserstein")
    assert halfway and (quick < slow).any() and (quick > slow).any()
    said = "is at 3,000 steps neither clearly better nor worse by distance than ours at 3,000."
    assert f"A helper that learns ten times faster {said}" in told("12")


def test_the_helper_delivers_next_to_nothing_in_some_runs_and_all_in_others():
    delivered = np.concatenate([metric("gpvi", name, "delivered") for name in POTENTIALS])
    assert delivered.min() < 0.1 and delivered.max() > 0.9 and 0.6 < np.median(delivered) < 0.72
    said = f"*delivered* is {delivered.min():.0f} to {delivered.max():.0f}, median {np.median(delivered):.2f}."
    assert len(delivered) == 12 and f"Over the helper's twelve cut runs (appendix H) {said}" in told("12")


# the printed λ, and the narrowest noise


def test_lambda_1_and_noise_1_do_not_fold_and_have_the_smallest_divergence():
    assert metric(NARROW, "sinusoid", "kl").max() < 0.3
    assert metric(NARROW, "sinusoid", "negative_share").max() < 0.005
    assert track(NARROW, "sinusoid", "negative_share").max() < 0.005  # at every look
    for rival in ("amortized_svgd", "flow", "gpvi", "gpvi_exact_jac", "exact_jac_narrow", "lambda_1_exact_jac"):
        assert metric(NARROW, "sinusoid", "kl").max() < metric(rival, "sinusoid", "kl").min()
    said = "no look at any of the three finds a fold, and all have about 0.2, the smallest divergence of all cut rows"
    assert f"With λ = 1 as well {said}" in told("12")


def test_with_wide_noise_it_folds_with_lambda_or_without():
    for method in ("gpvi_exact_jac", "lambda_1_exact_jac"):
        assert within(metric(method, "sinusoid", "negative_share"), 0.3, 0.7)
        assert metric(method, "sinusoid", "kl").min() > 1
    assert "λ = 1 with the wide noise folds as before." in told("12")


def test_with_the_narrow_noise_alone_all_start_folded_and_two_of_three_unfold():
    negative = track("exact_jac_narrow", "sinusoid", "negative_share")
    assert (minority(negative[:, 0]) > 0.005).all()
    folded = (minority(negative[:, 1:]) > 0.005).mean(1)
    worst = metric("exact_jac_narrow", "sinusoid", "kl").argmax()
    assert sorted(folded)[:2] == [0, 0] and folded.argmax() == worst and folded[worst] > 0.7
    kl = metric("exact_jac_narrow", "sinusoid", "kl")[worst]
    assert round(kl, 1) == 1.4 and f"and is the one that still has {kl:.1f} nats." in told("12")
    said = "all three maps start folded, and two are unfolded at the first look and stay so."
    assert f"With the narrow noise alone {said}" in told("12")


def test_the_narrow_noise_alone_beats_the_printed_row_on_every_seed():
    for key in ("sliced_wasserstein", "kl"):
        assert (metric("exact_jac_narrow", "sinusoid", key) < metric("gpvi_exact_jac", "sinusoid", key)).all()
    assert "Distance and divergence are smaller than with noise 6 and no λ on every seed." in told("12")


def test_with_lambda_1_and_noise_1_the_helper_is_behind_the_exact_inverse_on_every_seed():
    for key in ("sliced_wasserstein", "kl"):
        assert (metric("lambda_1_narrow", "sinusoid", key) > metric(NARROW, "sinusoid", key)).all()
    assert "it is now behind the exact inverse by both measures on every seed." in told("12")


def test_by_distance_even_the_best_is_behind_amortised_svgd():
    best = metric(NARROW, "sinusoid", "sliced_wasserstein").min()
    assert best > metric("amortized_svgd", "sinusoid", "sliced_wasserstein").max()
    assert "by the distance even the best of these rows is still behind amortised SVGD:" in told("12")


# without a confinement


def test_without_a_confinement_much_of_the_samples_leaves_the_grid():
    outside = metric("unconfined", "sinusoid", "outside")
    assert outside.min() > 0.4 and outside.max() > 0.8 and metric("flow_best", "sinusoid", "outside").max() < 0.01
    assert "In every run much of its samples, four tenths or more, has left the grid," in told("12")


# claim by claim


@cache
def due(potential):
    """The target's share in each part."""
    target = EnergyPotential(potential)
    points = PlaneGrid(target).sample(240_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(target.part(points), minlength=len(target.parts)) / len(points)
    return dict(zip(target.parts, shares.tolist(), strict=True))


def both_branches(method, potential):
    """On how many seeds each branch has at least half of its due."""
    shares = {part: metric(method, potential, f"share_{part}") for part in ("upper", "lower")}
    enough = [found > 0.5 * due(potential)[part] for part, found in shares.items()]
    return (enough[0] & enough[1]).sum()


def test_the_exact_density_is_ahead_of_every_printed_row_and_our_gpvi_by_kl():
    for name in POTENTIALS:
        rivals = np.stack([metric(m, name, "kl") for m in (*PRINTED, "gpvi_best")])
        assert (metric("gpvi_exact_density", name, "kl") < rivals).all()
    said = "By KL our tuned exact-density generator is ahead of every cut row on every seed."
    assert said in told("12")


def test_against_our_flow_the_exact_density_is_ahead_on_eight_of_nine_and_on_sin_split_behind_on_two():
    ahead = [metric("gpvi_exact_density", name, "kl") < metric("flow_best", name, "kl") for name in POTENTIALS]
    assert np.sum(ahead[:3]) == 8 and np.sum(ahead[3]) == 1
    said = "it is ahead of the best flow on eight of nine runs; on sin split, where it has a branch left to find,"
    assert f"On the first three potentials {said} behind on two of three." in told("12")


def test_cut_on_the_waves_gpvi_is_too_wide_across_and_too_short_along():
    helper, exact = (np.stack([metric(m, name, "width_ratio") for name in WAVES]) for m in ("gpvi", "gpvi_exact_jac"))
    assert helper.min() > 1 and (exact > helper).all()
    assert "Cut, GPVI is too wide: helper" in VERDICTS and "along it too short (appendix" in VERDICTS
    assert max(metric(m, name, "spread_1").max() for m in ("gpvi", "gpvi_exact_jac") for name in WAVES) < 0.8


def test_where_cut_the_helper_has_the_width_and_not_the_fit():
    found = np.concatenate([metric("gpvi", name, "kl") for name in WAVES])
    assert [round(value, 2) for value in (found.min(), found.max())] == [0.61, 1.16]
    assert f"this seed, the best of three when cut, falls from {found.min():.2f}" in told("12")


def test_at_these_steps_the_helper_is_behind_amortised_svgd_in_every_pair_of_runs():
    assert all((metric("gpvi", name, "kl") > metric("amortized_svgd", name, "kl")).all() for name in POTENTIALS)
    key = "sliced_wasserstein"
    farther = [(metric("gpvi", name, key) > metric("amortized_svgd", name, key)).sum() for name in POTENTIALS]
    assert sum(farther) == 9
    said = "the helper is behind amortised SVGD's 8,000 by KL in every pair, mostly by distance too"
    assert f"After 6,000 steps {said}" in VERDICTS
    steps = {FIGURES[name].record(m).config["steps"] for name in POTENTIALS for m in ("gpvi", "amortized_svgd")}
    assert steps == {6_000, 8_000}


def test_on_the_seed_of_the_long_runs_amortised_svgds_kl_grows_on_each_wave():
    assert all(end("amortized_svgd", name)["kl"] > 0.4 + first("amortized_svgd", name)["kl"] for name in WAVES)
    assert "On one seed amortised SVGD's KL grows with more steps on each wave" in VERDICTS


def test_on_sin_split_our_flow_has_both_branches_on_two_seeds_and_the_exact_density_on_none():
    assert [both_branches(m, "sin_split") for m in ("gpvi_exact_density", "flow_best")] == [0, 2]
    assert "That flows can is supported with our settings, on two seeds;" in VERDICTS
    assert "lower branch on one seed, just under the bar." in VERDICTS


def test_on_sin_bisect_amortised_svgd_has_both_halves_on_every_seed():
    assert both_branches("amortized_svgd", "sin_bisect") == 3
    assert "due 12 % each), as on all three seeds when cut." in told("12")


def test_by_step_40000_every_map_with_lambda_1_and_noise_1_is_folded():
    for name in POTENTIALS:
        share, step = path(NARROW, name, "negative_share"), path(NARROW, name, "step")
        assert (np.minimum(share, 1 - share)[step >= 40_000] > 0.005).all()
    assert "folded on every potential, by step 40,000 at the latest" in told("12")


def test_by_distance_amortised_svgd_is_behind_on_twin_moons_alone():
    behind = [
        name
        for name in POTENTIALS
        if end("amortized_svgd", name)["sliced_wasserstein"] > end(NARROW, name)["sliced_wasserstein"]
    ]
    assert behind == ["twin_moons"] and "By distance (of 20,000) it is behind on twin moons" in told("12")


def test_what_the_helper_delivers_at_the_end():
    assert f"at the end it is {end('gpvi', 'sinusoid')['delivered']:.2f}." in told("12")


def test_the_shares_at_200000_steps():
    target = {name: PlaneGrid(EnergyPotential(name)) for name in ("sin_bisect", "sin_split")}
    due, found = {}, {}
    for name, grid in target.items():
        part = EnergyPotential(name).part(grid.sample(100_000, torch.Generator().manual_seed(0)))
        shares = 100 * torch.bincount(part).double() / len(part)
        due[name] = dict(zip(EnergyPotential(name).parts, shares.tolist(), strict=True))
        found[name] = {key: 100 * end("amortized_svgd", name)[f"share_{key}"] for key in ("upper", "lower")}
    split, bisect = found["sin_split"], found["sin_bisect"]
    said = f"({split['upper']:.0f} and {split['lower']:.0f} % of the samples, due {due['sin_split']['upper']:.0f} and"
    assert f"{said} {due['sin_split']['lower']:.0f} %)" in told("12")
    said = f"({bisect['upper']:.0f} and {bisect['lower']:.0f} %, due {due['sin_bisect']['upper']:.0f} % each)"
    assert f"On sin bisect both halves are there {said}," in told("12")


def test_the_width_of_the_seed_that_went_on():
    cut, last = ([of("amortized_svgd", name)["width_ratio"] for name in WAVES] for of in (first, end))
    said = "of this seed falls from {:.2f}, {:.2f} and {:.2f} in the run of the table to {:.2f}, {:.2f} and {:.2f}."
    assert said.format(*cut, *last) in told("12")


def test_our_gpvi_loses_half_of_the_loop_of_sin_bisect_on_two_seeds():
    halves = np.stack([metric("gpvi_best", "sin_bisect", f"share_{half}") for half in ("upper", "lower")])
    assert (halves.min(0) < 0.03).sum() == 2
    assert "on two seeds a half of the loop of sin bisect) and a little too much width." in told("12")


def test_lambda_1_and_noise_1_do_not_clearly_help_the_helper():
    share = CONTROLS.history("lambda_1_narrow", "negative_share")[:, 1:]
    rarer = 100 * np.minimum(share, 1 - share)
    text = told("12")
    assert "(at most 3 % at the end, 8 % at a look)" in text
    assert np.ceil(rarer[:, -1].max()) == 3 and np.ceil(rarer.max()) == 8
    gains = {
        key: CONTROLS.metric("lambda_1_narrow", key) - metric("gpvi", "sinusoid", key)
        for key in ("sliced_wasserstein", "kl")
    }
    assert [int((gain > 0).sum()) for gain in gains.values()] == [2, 1]
    assert "by distance it is worse on two of three seeds, by KL on one." in text


def test_a_missing_part_changes_the_distance_and_half_the_width_hardly():
    """The page's own table of samplers with a known fault, as its cell printed it."""
    (page,) = (repository() / "notebooks").glob("12-*.ipynb")
    found = re.findall(r"\| (half as wide|without the l[^|]*?) +\| [^|]*\| ([\d.]+) ", page.read_text())
    (half,) = [number for fault, number in found if fault == "half as wide"]
    missing = sorted(float(number) for fault, number in found if fault != "half as wide")
    assert len(missing) == 3 and float(half) < missing[0] / 3
    said = f"Halving the width hardly changes the distance ({half}); a missing part does"
    assert f"{said} ({missing[0]:.2f} to {missing[-1]:.1f})." in told("12")
