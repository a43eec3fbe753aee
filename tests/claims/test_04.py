"""What notebook 04 says of its records: BiCGSTAB and helper networks in training."""

import numpy as np
from of_records import runs, values


def late(method, key="sigma_error"):
    """Median over the last tenth of each run; NaN where it diverged."""
    found = []
    for run in runs("inverse-solvers", method):
        trace = run.arrays()[f"history_{key}"].numpy()
        found.append(np.nan if run.metrics["diverged"] else np.median(trace[-int(0.1 * len(trace)) :]))
    return np.array(found)


def diverged(method):
    return values("inverse-solvers", method, "diverged")


def test_one_warm_started_step_ends_in_nan_within_200_steps_with_fresh_noise_and_with_fixed():
    assert (diverged("bicgstab_warm") == 1).all() and (diverged("bicgstab_warm_fixed_noise") == 1).all()
    assert values("inverse-solvers", "bicgstab_warm", "last_step").max() < 200


def test_no_cold_and_no_converged_solver_diverges():
    assert (diverged("bicgstab_converged") == 0).all() and (diverged("bicgstab_cold") == 0).all()


def test_run_to_convergence_it_ends_where_the_exact_inverse_does():
    np.testing.assert_allclose(late("bicgstab_converged"), late("exact"), rtol=0.3)


def test_noise_must_be_resampled():
    assert late("exact").max() < 0.15 < late("exact_fixed_noise").min()


def test_with_unit_noise_scale_the_single_step_works():
    assert late("bicgstab_warm_lambda_1").max() < 0.2


def test_two_updates_of_the_helper_are_enough_and_one_is_not():
    assert late("helper_2").max() < 0.15 < 0.3 < late("helper_1").min()
