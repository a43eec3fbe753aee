"""Table 2: the problem, its exact posterior, what is measured, and the printed settings."""

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import BayesianLinearRegression
from gpvi_lib.experiments import bayesian_linear_regression as regression
from gpvi_lib.experiments import linear_problem
from gpvi_lib.samplers import Generator, MeanField, Particles
from gpvi_lib.targets import log_prob

GENERATOR = {"kind": "generator", "hidden": [], "noise_scale": None}
CPU = torch.device("cpu")


def test_the_problem_is_that_of_section_4_2():
    target = linear_problem.problem(regression.config("svgd", "paper"), 0, CPU)
    assert target.inputs.shape == (100, 3)
    # The posterior's mean is the least-squares fit: of coefficients between 5 and 6, known to about 1 / sqrt(100).
    assert bool(((target.mean > 4.5) & (target.mean < 6.5)).all())
    residual = target.targets - target.inputs @ target.mean
    assert 0.7 < float(residual.std()) < 1.3  # noise of variance 1; 4 standard errors of 0.07
    other = linear_problem.problem(regression.config("svgd", "paper"), 1, CPU)
    assert not torch.equal(other.inputs, target.inputs)


@pytest.mark.parametrize(("method", "precision"), [("svgd", 0.0), ("mf_vi", 1.0), ("mf_vi_best", 0.0)])
def test_the_exact_posterior_is_that_of_the_density(method, precision):
    """By the score and the Hessian of ``log p`` at the mean that is claimed."""
    config = regression.config(method, "paper")
    target = linear_problem.problem(config, 3, CPU)
    hessian = torch.autograd.functional.hessian(lambda x: log_prob(target, x[None], None)[0], target.mean)
    expected = target.inputs.mT @ target.inputs + precision * torch.eye(3)
    assert_close(-hessian, expected, rtol=1e-4, atol=1e-3)
    if precision == 0:
        assert_close(target.covariance, torch.linalg.inv(expected), rtol=1e-4, atol=1e-6)
        gradient = torch.autograd.functional.jacobian(lambda x: log_prob(target, x[None], None)[0], target.mean)
        assert_close(gradient, torch.zeros(3), atol=1e-2, rtol=0)  # float32 sums of 100 terms of order 10


def test_moments_are_those_of_many_samples(rng):
    linear = Generator(3, 3, (), noise_scale=None, rng=rng)
    n = 200_000
    for sampler in (linear, MeanField(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0, 2.0]))):
        mean, covariance = linear_problem.moments(sampler)
        x = sampler.sample(n, rng)
        # Standard errors of means and covariances of n normal samples: at most ||Σ|| sqrt(2 / n), and six of them.
        tolerance = 6 * float(torch.linalg.matrix_norm(covariance)) * (2 / n) ** 0.5
        assert_close(mean, x.double().mean(0), atol=tolerance, rtol=0)
        assert_close(covariance, torch.cov(x.double().mT), atol=tolerance, rtol=0)
    points = torch.tensor([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])
    mean, covariance = linear_problem.moments(Particles(points))
    assert_close(mean, torch.tensor([1.0, 2.0, 3.0]).double())
    assert_close(covariance, torch.outer(mean, mean) * 2)


def test_errors_do_not_depend_on_where_the_numbers_lie_in_memory(normal):
    """The least squares of LAPACK in float32 had four different answers in 400 calls on this problem."""
    target = linear_problem.problem(regression.config("svgd", "paper"), 2, CPU)
    mean, root = normal(3).float(), normal(3, 3).float()
    found, between = set(), []
    for call in range(400):
        between.append(torch.empty(call % 37 + 1))
        found.add((*linear_problem.errors(target, mean, root @ root.mT).values(), *target.mean.tolist()))
    assert len(found) == 1


def test_errors_are_computed_in_float64(rng):
    target = linear_problem.problem(regression.config("svgd", "paper"), 0, CPU)
    exact = torch.linalg.lstsq(target.inputs.double(), target.targets.double()[:, None]).solution[:, 0]
    covariance = torch.linalg.inv(target.inputs.double().mT @ target.inputs.double())
    none = pytest.approx(0, abs=1e-13)
    assert linear_problem.errors(target, exact, covariance) == {"mu_error": none, "sigma_error": none}
    assert all(
        part.dtype == torch.float64 for part in linear_problem.moments(Particles(torch.randn(4, 3, generator=rng)))
    )


def test_errors_are_relative():
    target = linear_problem.problem(regression.config("svgd", "paper"), 0, CPU)
    none = pytest.approx(0, abs=1e-6)  # the mean of the target is rounded to float32
    assert linear_problem.errors(target, target.mean, target.covariance) == {"mu_error": none, "sigma_error": none}
    found = linear_problem.errors(target, 1.5 * target.mean, 3 * target.covariance)
    assert found == {"mu_error": pytest.approx(0.5, rel=1e-5), "sigma_error": pytest.approx(2, rel=1e-5)}


@pytest.mark.parametrize("method", regression.PRINTED)
def test_the_printed_setting_is_table_7(method):
    config = regression.config(method, "paper")
    if method == "hmc":
        assert (config["step_size"], config["num_leapfrog"]) == (5e-4, 25)
        assert (config["num_steps"], config["burn_in"]) == (25_000, 20_000)
        assert config["chains"] * (config["num_steps"] - config["burn_in"]) // config["thin"] == 100
        return
    assert (config["steps"], config["lr"], config["final_lr"], config["batch_size"]) == (50_000, 1e-3, None, 10)
    sampler, objective = config["sampler"], config["objective"]
    particles = {"kind": "particles", "num": 100}
    expected = GENERATOR if method.startswith(("gpvi", "amortized")) else particles
    assert sampler == ({"kind": "mean_field", "scale": 0.05} if method == "mf_vi" else expected)
    assert objective.get("num_samples", 100) == 100
    assert config["prior_scale"] == (1.0 if method == "mf_vi" else None)
    if "ksd" in method:
        critic = {"kind": "stein_critic", "hidden": [100], "lr": 1e-3, "l2_weight": 10.0}
        assert objective["direction"] == critic
    if method == "gpvi":
        assert objective["inverse"] == {"kind": "helper", "width": 10, "num_layers": 3, "lr": 1e-4}


def test_moments_of_many_data_are_summed_in_parts(normal):
    x, y = normal(2_500, 3), normal(2_500)
    mean, covariance = BayesianLinearRegression(x, y).exact_moments()
    assert_close(covariance, torch.linalg.inv(x.mT @ x))
    assert_close(mean, torch.linalg.lstsq(x, y[:, None]).solution[:, 0])
