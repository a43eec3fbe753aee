"""A claim is held to its records: change one, and its test fails.

Notebook 07 has no records: its runs are live.
"""

import json
import shutil
import sys

import pytest
import test_00
import test_02
import test_03
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
import test_16
import test_17
import test_18_19_wild
import test_20
import test_21
import test_22
import test_23
import test_24
import test_25
import test_26

from gpvi_lib import paths
from gpvi_lib.lab import records

# Claim, the one experiment that it reads, and what other records would say.
CHANGES = [
    (test_00.test_livi_on_its_toy, "livi-toy", "livi_full_released", "w1", 0.1),
    (test_02.test_no_true_elbo_is_above_the_evidence, "injectivity-plane", "modes_gpvi", "elbo", 0.5),
    (
        test_03.test_in_a_whole_step_the_helper_multiplies_the_time_and_the_block_solution_adds_about_a_third,
        "overhead",
        "gpvi_mnist",
        "extra_time_fraction",
        1.0,
    ),
    (test_04.test_no_cold_and_no_converged_solver_diverges, "inverse-solvers-long", "bicgstab_cold", "diverged", 1.0),
    (test_05.test_by_kl_the_exact_inverse_is_far_ahead, "gaussian-density-5d", "gpvi_exact_jac", "kl", 10.0),
    (
        test_06.test_after_200000_steps_gpvi_folds_too,
        "energy-full-length",
        "twin_moons_lambda_1_exact_jac_narrow",
        "negative_share",
        0.0,
    ),
    (test_08.test_the_printed_chains_do_not_mix_on_a_network, "nuts-reference", "hmc_printed_bnn", "rhat_max", 1.0),
    (
        test_10.test_at_lambda_1_gpvi_has_ten_times_the_spread_where_the_points_are,
        "one-dimensional-regression",
        "gpvi",
        "sd_ratio_data",
        1.0,
    ),
    (
        test_11.test_in_two_dimensions_nine_of_gpvis_errors_are_small_and_one_makes_three_quarters_of_the_mean,
        "gaussian-density-2d",
        "gpvi",
        "sigma_error",
        0.01,
    ),
    (
        test_12.test_on_the_plain_elbo_the_generator_claims_a_negative_divergence_with_at_least_eight_sheets,
        "energy-controls",
        "plain_elbo",
        "kl_claimed",
        0.1,
    ),
    (
        test_13.test_with_trajectories_of_the_right_length_hmc_has_the_smallest_error,
        "bayesian-linear-regression",
        "hmc_best",
        "sigma_error",
        0.2,
    ),
    (
        test_14.test_the_other_data_have_a_reference_that_mixed,
        "classification-reference",
        "hmc_4_other",
        "rhat_max",
        1.1,
    ),
    (
        test_15.test_lambda_1_does_not_train_and_03_does_not_either,
        "open-category-settings",
        "lambda_1",
        "accuracy_percent",
        99.0,
    ),
    (test_16.test_all_are_weak_detectors, "open-category-cifar10", "svgd", "auroc", 0.9),
    (test_17.test_hmc_has_lost_one_split, "uci-regression", "hmc", "concrete_rhat_median", 1.0),
    (test_18_19_wild.test_18_the_exponent_is_hardly_determined, "wild-mixture", "random_search", "kl", 1.0),
    (test_20.test_svgds_weights_end_as_far_apart_as_they_began, "fpovi-toy", "svgd", "weight_distance", 1.0),
    (test_21.test_the_closest_split_of_yacht_is_ahead_by_0_002_nats, "fpovi-uci-yacht", "f_svgd", "nll", 0.0),
    (
        test_22.test_networks_eat_well,
        "fpovi-bandits-mushroom",
        "f_svgd",
        "relative_regret_percent",
        50.0,
    ),
    (test_23.test_a_stopped_search_is_above_the_certified_entropy, "livi-entropy", "full_trained", "smallest_5", 60.0),
    (test_24.test_nobody_but_the_ensemble_is_wide_in_the_gap, "livi-toy", "livi_full", "sd_ratio_gap", 1.0),
    (test_25.test_only_mean_field_trains_at_1e_3, "livi-mnist", "mf_vi", "accuracy_percent", 50.0),
    (
        test_26.test_mean_field_has_not_converged_on_the_logistic_regression,
        "benchmark",
        "logistic_mean_field",
        "elbo",
        -100.0,
    ),
]


def forget(claim):
    """What the file of a claim keeps of records that it has read."""
    for one in vars(sys.modules[claim.__module__]).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


@pytest.fixture
def _nothing_kept(claim):
    """Neither before a test nor after it, for the other tests of that file in this process."""
    forget(claim)
    yield
    forget(claim)


@pytest.mark.usefixtures("_nothing_kept")
@pytest.mark.parametrize(
    ("claim", "experiment", "method", "key", "value"),
    CHANGES,
    ids=[f"{change[0].__module__.removeprefix('test_')}-{change[1]}" for change in CHANGES],
)
def test_a_changed_record_is_noticed(claim, experiment, method, key, value, monkeypatch, tmp_path):
    folder = shutil.copytree(paths.results_root() / "paper" / experiment, tmp_path / "paper" / experiment)
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    claim()
    changed = list(folder.glob(f"{method}-seed*.json"))
    for path in changed:
        fields = json.loads(path.read_text())
        del fields["digest"]
        fields["metrics"][key] = value
        path.write_text(json.dumps(fields | {"digest": records.sha256_of(fields)}))
    assert changed
    forget(claim)
    with pytest.raises(AssertionError):
        claim()
