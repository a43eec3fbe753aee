"""What notebook 20 says of its records: one seed of f-POVI's toy."""

import pytest
from of_records import Runs

TOY, CONTROLS = Runs("fpovi-toy"), Runs("fpovi-toy-controls")


def ratio(runs, method):
    """Spread over that of HMC, on the data."""
    return runs.record(method).metrics["sd_ratio_data"]


def distance(runs, method, region):
    return runs.record(method).metrics[f"w1_{region}"]


def test_svgd_and_the_map_ensemble_collapse_alike_and_function_space_does_not():
    assert ratio(TOY, "svgd") < 0.1 and ratio(CONTROLS, "map_ensemble") < 0.1 and 0.5 < ratio(TOY, "f_svgd") < 1.5


def test_without_repulsion_the_prior_everywhere_collapses_too():
    assert ratio(CONTROLS, "f_best_without_repulsion") < 0.1


def test_far_from_the_data_f_svgd_as_printed_is_no_nearer_to_hmc():
    assert distance(TOY, "f_svgd", "far") > distance(TOY, "svgd", "far")


@pytest.mark.parametrize("region", ["data", "gap", "near", "far"])
def test_with_the_prior_everywhere_it_is_as_near_to_hmc_as_the_exact_process(region):
    assert distance(TOY, "f_svgd_best", region) < 1.25 * distance(CONTROLS, "exact_gp", region)
