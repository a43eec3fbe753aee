"""LIVI's toy problem: its data, its target, the integral over the output layer, and its reference."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import livi_problem as problem
from gpvi_lib.experiments import livi_toy_reference as reference
from gpvi_lib.experiments.evaluation import Functions
from gpvi_lib.lab import runner
from gpvi_lib.networks import FlatMLP, FlatModule, mlp

F64 = torch.float64


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GPVI_BUILD", str(tmp_path / "build"))


def test_the_data_are_70_points_with_a_gap_and_noise_of_0_3():
    x, y = problem.data()
    assert len(x) == 70 and float(x[:38].max()) == -0.61 and float(x[38:].min()) == 0.61
    assert float(x.abs().max()) == 1.28
    assert float(problem.true_function(torch.tensor(0.125, dtype=F64))) == pytest.approx(0.125 + 0.8 * 0.5**0.5 + 0.8)
    residual = y - problem.true_function(x)
    assert float(residual.std()) == pytest.approx(0.3, abs=4 * 0.3 / math.sqrt(140))
    assert not torch.equal(problem.data(35)[1], y)


def test_the_network_has_105_weights_elu_and_sees_scaled_inputs(normal):
    target = problem.posterior()
    assert target.dim == 105 and float(target.inputs.abs().max()) == 1.0
    module, w = FlatModule(mlp([1, 7, 10, 1], "elu")), normal(3, 105)
    x = torch.tensor([-1.28, 0.64], dtype=F64)
    assert_close(problem.functions(target, w, x), module(w, x[:, None] / 1.28)[..., 0])
    assert_close(FlatMLP([1, 7, 10, 1], "elu")(w, x[:, None]), module(w, x[:, None]))


def test_the_output_layer_is_integrated_out(normal):
    """``p(y | hidden)`` by the formula, against the density of y under a normal of the features' covariance."""
    target = problem.posterior()
    inner = reference.LastLayerIntegrated(target)
    assert inner.dim == 94
    u = normal(2, 94)
    zero = torch.zeros(2, 11, dtype=F64)
    units = torch.eye(11, dtype=F64)
    phi = torch.stack([problem.functions(target, torch.cat([u, zero + e], 1), problem.data()[0]) for e in units], -1)
    covariance = phi @ phi.mT + 0.09 * torch.eye(70, dtype=F64)
    exact = torch.distributions.MultivariateNormal(torch.zeros(70, dtype=F64), covariance).log_prob(target.targets)
    found = inner.log_prob(u) + 0.5 * u.square().sum(-1)
    assert_close(found[0] - found[1], exact[0] - exact[1])
    draws = inner.complete(u[:1].expand(4_000, -1), torch.Generator().manual_seed(0))[:, 94:]
    precision = torch.eye(11, dtype=F64) + phi[0].mT @ phi[0] / 0.09
    mean = torch.linalg.solve(precision, phi[0].mT @ target.targets / 0.09)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert float(((draws.mean(0) - mean) / sd).abs().max()) < 4.5 / math.sqrt(4_000)


def test_scores_are_zero_for_the_reference_itself(normal):
    f = normal(50, 97)
    exact = Functions.of(f)
    found = problem.function_scores(f, exact)
    assert all(found[f"w1{r}"] < 1e-12 and found[f"sd_ratio{r}"] == pytest.approx(1) for r in ("", "_data", "_gap"))
    moved = problem.function_scores(torch.where(problem.REGIONS["gap"], f + 1, f), exact)
    assert moved["w1_gap"] == pytest.approx(1) and moved["w1_outside"] < 1e-12
    assert moved["rmse_mean_gap"] == pytest.approx(1)


def test_the_reference_runs_and_is_read_back():
    record = runner.run_or_load(get_experiment("livi-toy-reference").cell("hmc", 0, "smoke"), progress=False)
    assert record.metrics.keys() >= {"rhat_max", "ess_min", "sd_gap", "log_likelihood"}
    found = reference.read_reference("smoke")
    assert found.draws.shape == (30, 97) and torch.equal(found.mean, record.arrays()["mean"])
