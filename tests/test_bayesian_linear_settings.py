"""The candidates for the settings of Table 2."""

import pytest

from gpvi_lib.experiments import bayesian_linear_regression as regression
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments.build import changed


@pytest.mark.parametrize("method", regression.SETTINGS)
def test_candidates_change_one_thing_on_problems_that_no_table_has(method):
    row, change = regression.SETTINGS[method]
    found, base = (
        get_experiment("bayesian-linear-regression-settings").config(method, "paper"),
        regression.config(row, "paper"),
    )
    assert {key for key in found if found[key] != base.get(key)} == set(change) and len(change) <= 1
    if "objective" in change:
        ours, theirs = found["objective"], base["objective"]
        moved = {key for key in ours if ours[key] != theirs[key]}
        assert len(moved) == 1
        if moved == {"inverse"}:
            helper, other = ours["inverse"], theirs["inverse"]
            assert sum(helper[key] != other[key] for key in other) == 1 and helper.keys() == other.keys()
    assert not set(get_experiment("bayesian-linear-regression-settings").seeds("paper")) & set(
        regression.seeds("paper")
    )


def test_our_settings_are_among_the_candidates():
    for row in regression.CHANGES:
        assert get_experiment("bayesian-linear-regression-settings").config(
            f"{row}_ours", "paper"
        ) == regression.config(row, "paper")


def test_changed_names_what_differs_and_nothing_else():
    spec = {"lr": 1e-2, "steps": 5, "objective": {"kind": "gpvi", "inverse": {"width": 32, "lr": 1e-3}}}
    change = {"lr": 3e-2, "steps": 5, "objective": {"inverse": {"width": 32, "lr": 1e-4}}}
    assert changed(spec, change) == {"lr": 3e-2, "objective.inverse.lr": 1e-4}
    assert changed(spec, {"final_lr": 1e-5}) == {"final_lr": 1e-5}
