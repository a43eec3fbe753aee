"""Table 1 of LIVI: every cell runs at smoke, baselines are those of uci-regression, choices never see a test target."""

import math

import pytest
import torch

from gpvi_lib import data
from gpvi_lib.experiments import get_experiment, uci_regression
from gpvi_lib.experiments import livi_uci as experiment
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext

pytestmark = pytest.mark.usefixtures("own_results")


@pytest.mark.parametrize("method", get_experiment("livi-uci").methods)
def test_a_cell_runs_and_can_be_recorded(method):
    found = runner.run_or_load(get_experiment("livi-uci").cell(method, 0, "smoke"), progress=False).metrics
    assert found.keys() >= {"diabetes_rmse", "diabetes_log_likelihood", "diabetes_noise"}
    if method == "mnf":
        assert math.isfinite(found["diabetes_elbo"]) and found["diabetes_elbo_se"] > 0
    elif method in experiment.SPECS:
        assert math.isfinite(found["diabetes_elbo_low"]) and found["diabetes_elbo_width"] > -5
        assert abs(found["diabetes_elbo_linearized"] - found["diabetes_elbo_low"]) < 50


@pytest.mark.parametrize(
    "method", ["livi_full_as_it_is", "livi_min_sv_k_64", "livi_diagonal_lr_5e_3", "kivi_lambda_0_1", "mnf_length_4"]
)
def test_a_candidate_runs(method):
    found = runner.run_or_load(get_experiment("livi-uci-settings").cell(method, 0, "smoke"), progress=False)
    assert "diabetes_log_likelihood" in found.metrics and found.config["steps"] == 10


def test_candidates_see_training_data_of_split_0_alone(monkeypatch):
    seen = []
    monkeypatch.setattr(experiment, "_train", lambda config, problem, context: seen.append(problem) or ({}, {}))
    config = experiment.settings_config("livi_full_as_it_is", "smoke")
    experiment.run(config, "livi_full", RunContext(torch.device("cpu"), 3, None, "x", progress=False))
    whole = data.regression("diabetes", 0)
    (problem,) = seen
    assert problem.posterior.num_data + len(problem.targets) == len(whole.targets)
    assert {float(y) for y in problem.targets} <= {float(y) for y in whole.targets}


def test_baselines_are_configured_as_elsewhere_but_for_the_sets():
    for method in experiment.BASELINES:
        here, there = experiment.config(method, "paper"), uci_regression.config(method, "paper")
        assert here == there | {"sets": ["kin8nm", "naval"]}


def test_chains_are_those_of_elsewhere_but_longer():
    chains = get_experiment("livi-uci-chains")
    here, there = chains.configuration("hmc", "paper"), uci_regression.config("hmc", "paper")
    assert here["sets"] == ["kin8nm", "naval"] == list(here["step_size"])
    assert here["adapt"] and "adapt" not in there
    changed = {key for key in there if here[key] != there[key]}
    assert changed == {"sets", "step_size", "num_leapfrog", "num_steps", "burn_in", "start"}
    assert here["start"] == there["start"] | {"steps": 3_000}
    assert chains.seeds("paper") == (0, 1, 2)
    found = runner.run_or_load(chains.cell("hmc", 0, "smoke"), progress=False).metrics
    assert found.keys() >= {"diabetes_rmse", "diabetes_rhat_max"}


def test_the_rows_are_those_of_table_1():
    printed = {(s.item, s.metric) for s in get_experiment("livi-uci").scores if s.setting == "printed"}
    assert len(printed) == 10 and ("livi/table1/naval", "test_log_likelihood") in printed
    by_hand = [s for s in get_experiment("livi-uci").scores if s.setting == "best" and s.item == "livi/table1/boston"]
    assert all(s.methods == ("livi_diagonal",) for s in by_hand)
    score = by_hand[0]
    assert get_experiment("livi-uci").row("livi_diagonal", score) == ("livi_full", "best")
    assert "σ = 0.02 prior scales" in experiment.deviations("livi_min_sv", "paper")
    assert "one trained s" in experiment.deviations("livi_diagonal", "paper")
    assert experiment.chain_deviations("hmc", "paper").startswith("3 of 20 fixed splits")
    assert experiment.chain_deviations("hmc", "paper").endswith("4 chains of 150 draws")
    assert "20 draws, λ" in experiment.deviations("kivi", "paper") and "flows of 2" in experiment.deviations(
        "mnf", "paper"
    )


def test_the_three_rows_differ_as_they_say():
    full, smallest, diagonal, kivi, _ = experiment.STARTS.values()
    assert smallest == full | {"objective": full["objective"] | {"entropy": "smallest", "iterations": 5}}
    assert kivi["sampler"] == full["sampler"]
    assert diagonal == full | {"sampler": full["sampler"] | {"train_noise_scale": True}, "noise_scale_lr": 1.5e-2}
    full, smallest, diagonal, *_ = (experiment.config(m, "paper") for m in experiment.STARTS)
    assert full["sampler"] == smallest["sampler"] and full["sampler"]["hidden"] == [128] and full["steps"] == 4_000
    assert diagonal["sampler"]["hidden"] == [64] and diagonal["steps"] == 8_000
