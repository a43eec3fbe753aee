"""A claim is held to its records: change one, and its test fails."""

import json
import shutil

import pytest
import test_02
import test_03
import test_04
import test_05
import test_08
import test_10
import test_11
import test_12
import test_13
import test_14
import test_17

from gpvi_lib import paths
from gpvi_lib.lab import records

# Claim, the one experiment that it reads, and what other records would say.
CHANGES = [
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
    (test_17.test_hmc_has_lost_one_split, "uci-regression", "hmc", "concrete_rhat_median", 1.0),
]


@pytest.mark.parametrize(
    ("claim", "experiment", "method", "key", "value"), CHANGES, ids=[claim[1] for claim in CHANGES]
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
    with pytest.raises(AssertionError):
        claim()
