"""What notebook 06 says of its records: which directions descend, from an optimum and along training."""

import numpy as np
import pytest
from of_records import arrays

TWO = "amortized_svgd_two_batches"
DIRECTIONS = ("gpvi", TWO, "amortized_svgd")


def rise(run, name):
    """KL after 300 steps by one direction minus KL at the optimum."""
    return float(run[f"{name}.kl"][-1] - run[f"{name}.kl"][0])


def test_in_ten_dimensions_one_batch_climbs_and_two_stay_at_the_optimum():
    for run in arrays("descent-from-optimum", "gaussian_10"):
        assert rise(run, "amortized_svgd") > 5 and rise(run, "gpvi_one_batch") > 1.2
        assert max(rise(run, "gpvi"), rise(run, TWO)) < 0.02


def test_ten_steps_on_the_published_direction_climbs_and_both_with_two_batches_descend():
    for run in arrays("descent-from-optimum", "gaussian_10"):
        cosines = {name: float(run[f"amortized_svgd.{name}_expected"][2]) for name in DIRECTIONS}
        assert cosines["amortized_svgd"] < -5 * float(run["amortized_svgd.amortized_svgd_expected_se"][2])
        assert min(cosines["gpvi"], cosines[TWO]) > 0.3


def test_where_the_target_is_out_of_reach_amortised_svgd_ends_above_gpvi_and_is_less_steep():
    for run in arrays("descent-from-optimum", "wide"):
        assert rise(run, "gpvi") < 0.04 < 0.3 < rise(run, TWO) < 0.35
        theirs, ours = (run[f"{TWO}.{name}_expected"][1:] for name in (TWO, "gpvi"))
        assert 0.15 < theirs.min() and theirs.max() < 0.51 and 0.59 < ours.min() and ours.max() < 0.755


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


def test_on_the_wide_gaussian_neither_direction_ever_climbs():
    assert not ascents("wide", "gpvi").any() and not ascents("wide", TWO).any()


def test_on_the_banana_both_directions_climb_and_do_so_together():
    ours, theirs = ascents("banana", "gpvi"), ascents("banana", TWO)
    assert (ours & theirs).sum() >= 5 and (ours ^ theirs).sum() <= 2


@pytest.mark.parametrize("seed", range(4))
def test_before_it_folds_amortised_svgd_is_less_steep_than_gpvi_and_descends(seed):
    run = arrays("descent-wide", TWO)[seed]
    last = np.flatnonzero((run["folded"] == 0).numpy())[-1]
    assert run["gpvi_expected"][last] > 0.7 > run[f"{TWO}_expected"][last] > 0
