"""The experiment on UCI sets: no test datum in what is trained on, scores in the unit of the data, small runs."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal
from torch.testing import assert_close

from gpvi_lib import NormalMixture, checkpoints, data
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import get_experiment, uci_problem
from gpvi_lib.experiments import uci_regression as uci
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.report import scoreboard

METHODS = get_experiment("uci-regression").methods


def context(seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, None, "test", False)


def test_scores_are_those_of_one_normal_distribution(normal):
    """One network: RMSE, log-density, interval and coverage in closed form."""
    mean, y, sigma = normal(1, 50), 2 * normal(50), 1.5
    found = uci_problem.prediction_scores(NormalMixture(mean, sigma), y)
    residual = y - mean[0]
    half = 1.6448536269514722 * sigma
    assert found["rmse"] == pytest.approx(float(residual.square().mean().sqrt()))
    assert found["log_likelihood"] == pytest.approx(float(Normal(mean[0], sigma).log_prob(y).mean()))
    assert found["nll"] == -found["log_likelihood"]
    assert found["width_90"] == pytest.approx(2 * half)
    assert found["coverage_90"] == pytest.approx(float((residual.abs() <= half).double().mean()))
    assert found["noise"] == pytest.approx(sigma)


def test_predictions_are_in_the_unit_of_the_data():
    problem = uci_problem.Problem("diabetes", uci.config("svgd", "smoke"), context())
    raw = data.diabetes(0)
    w = torch.zeros(1, problem.posterior.dim)  # f = 0 and σ = its median: mean and 0.3 sd of the training targets
    predictive = problem.predictive(w)
    assert_close(predictive.mean, raw.targets.mean().expand(45))
    assert_close(predictive.stddev, (0.3 * raw.targets.std(correction=0)).expand(45), rtol=1e-6, atol=0)
    assert torch.equal(problem.targets, raw.test_targets)


def test_the_posterior_sees_no_test_datum():
    problem = uci_problem.Problem("diabetes", uci.config("svgd", "smoke"), context(seed=1))
    scaled, _, _ = data.diabetes(1).standardised()
    assert torch.equal(problem.posterior.inputs, scaled.inputs.float())
    assert torch.equal(problem.posterior.targets, scaled.targets.float())
    assert problem.posterior.dim == 1 + 10 * 50 + 50 + 50 + 1


def test_the_prior_is_that_of_the_fan_in():
    problem = uci_problem.Problem("diabetes", uci.config("svgd", "smoke"), context())
    expected = torch.tensor([1.0, 10**-0.5, 50**-0.5]).repeat_interleave(torch.tensor([1, 550, 51]))
    assert_close(problem.posterior.prior.scale, expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_small_run(method):
    config = uci.config(method, "smoke")
    first, again = (uci.run(config, method, context()) for _ in range(2))
    assert first.metrics == again.metrics
    assert all(math.isfinite(value) and name.startswith("diabetes_") for name, value in first.metrics.items())
    assert first.arrays["diabetes_pit"].shape == (45,)
    assert ("diabetes_elbo" in first.metrics) == (method in ("gpvi", "gpvi_exact_density", "mf_vi"))
    assert ("diabetes_rhat_max" in first.metrics) == (method == "hmc")
    if method != "hmc":
        assert first.arrays["diabetes_history_step"].tolist() == [0, 10, 20]
        assert first.arrays["diabetes_history_rmse"][-1] == pytest.approx(first.metrics["diabetes_rmse"])


def test_training_beats_the_mean_of_the_targets():
    config = uci.config("deep_ensemble", "quick")
    found = uci.run(config, "deep_ensemble", context()).metrics
    raw = data.diabetes(0)
    constant = float((raw.test_targets - raw.targets.mean()).square().mean().sqrt())
    assert found["diabetes_rmse"] < 0.85 * constant


def test_every_set_is_in_the_configuration_at_paper():
    for method in METHODS:
        config = uci.config(method, "paper")
        assert config["sets"] == ["boston", "concrete", "energy", "yacht"]
        assert uci.config(method, "quick")["sets"] == ["diabetes"]
    assert uci.seeds("paper") == tuple(data.UCI_SPLITS)


def test_scores_name_rows_of_the_papers():
    published = {(row.item, row.metric, row.better) for row in scoreboard.published()}
    scores = {(score.item, score.metric, score.better) for score in get_experiment("uci-regression").scores}
    assert scores <= published
    assert all(score.profiles == ("paper",) for score in get_experiment("uci-regression").scores)


def test_only_the_published_size_needs_a_download(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_DATA", str(tmp_path))
    needed = get_experiment("uci-regression").data_sets
    assert (needed("smoke"), needed("quick"), needed("paper")) == ((), (), ("boston", "concrete", "energy", "yacht"))
    assert not any(data.available(name) for name in needed("paper"))
    for path in data._uci_files("yacht"):
        (tmp_path / "UCI_Datasets" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "UCI_Datasets" / path).touch()
    assert [name for name in needed("paper") if data.available(name)] == ["yacht"]


def test_an_interrupted_run_goes_on_with_the_set_it_was_at(tmp_path):
    names, ran = ("boston", "concrete", "energy"), []

    def one(name, context):
        ran.append(name)
        if ran == ["boston", "concrete"]:
            raise KeyboardInterrupt
        draws = torch.randn(3, generator=torch.Generator().manual_seed(len(name)))
        return {"rmse": float(draws.norm())}, {"pit": draws}

    where = replace(context(), checkpoint=tmp_path / "run.pt")
    with pytest.raises(KeyboardInterrupt):
        uci_problem.over_sets(names, where, one)
    resumed = uci_problem.over_sets(names, where, one)
    assert ran == ["boston", "concrete", "concrete", "energy"]
    whole = uci_problem.over_sets(names, context(), one)
    assert resumed.metrics == whole.metrics and list(resumed.arrays) == list(whole.arrays)
    assert all(torch.equal(resumed.arrays[key], whole.arrays[key]) for key in whole.arrays)


def test_out_of_time_a_run_stops_between_two_sets(tmp_path):
    where, ran = replace(context(), checkpoint=tmp_path / "run.pt"), []

    def one(name, context):
        ran.append(name)
        return {"rmse": 1.0}, {}

    with checkpoints.deadline(0.0), pytest.raises(OutOfTime):
        uci_problem.over_sets(("boston", "energy"), where, one)
    assert ran == ["boston"]
    with checkpoints.deadline(0.0):  # the last set is not thrown away
        found = uci_problem.over_sets(("boston", "energy"), where, one)
    assert ran == ["boston", "energy"] and set(found.metrics) == {"boston_rmse", "energy_rmse"} and found.seconds >= 0
