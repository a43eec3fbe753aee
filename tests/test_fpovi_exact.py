"""Figure 9 of function-space POVI: the closed form, the divergence, and small runs."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.experiments import fpovi_exact as exact
from gpvi_lib.lab.experiment import RunContext


def context(seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, None, "test", False)


def test_the_divergence_is_that_of_two_gaussians(normal):
    a, b = normal(6, 3), normal(6, 3)
    q, p = ((x.mean(0), x.mT.cov()) for x in (a, b))
    distributions = (torch.distributions.MultivariateNormal(*moments) for moments in (q, p))
    expected = float(torch.distributions.kl_divergence(*distributions))
    assert exact.gaussian_kl(*q, *p) == pytest.approx(expected, rel=1e-9)
    singular = torch.outer(q[0], q[0])
    assert math.isfinite(exact.gaussian_kl(q[0], singular, *p))


def test_the_posterior_is_that_of_the_precision_matrix():
    x, y = exact.data()
    at = torch.cat([x, exact.TEST[:, None]])
    kernel = torch.exp(-0.5 * (at - at.mT).square() / 0.25)
    joint = kernel.clone()
    joint[:21, :21] += 0.01 * torch.eye(21)
    precision = torch.linalg.inv(joint)
    covariance = torch.linalg.inv(precision[21:, 21:])
    mean, found = exact.exact_posterior()
    assert_close(found, covariance, rtol=1e-5, atol=1e-9)
    assert_close(mean, -covariance @ precision[21:, :21] @ y, rtol=1e-5, atol=1e-6)


def test_what_the_methods_are_compared_with():
    found = {m: exact.run(exact.config(m, "paper"), m, context()).metrics["kl"] for m in exact.CLOSED}
    assert found["down_sampled"] > 1
    assert found["floored"] < 0.01  # the floor costs next to nothing
    # a Gaussian fitted to 1,000 exact draws errs by (3 + 6) / 2,000 in the mean
    assert found["draws"] < 5 * 9 / 2_000


@pytest.mark.parametrize("method", exact.SPECS)
def test_a_small_run(method):
    config = exact.config(method, "smoke")
    first, again = (exact.run(config, method, context()) for _ in range(2))
    assert first.metrics == again.metrics and all(math.isfinite(value) for value in first.metrics.values())
    assert first.arrays["history_step"].tolist() == [0, 5, 10]


def test_values_of_functions_come_near_their_posterior():
    """100 particles of 24 values, 600 steps: a small part is left of the divergence of the prior, where they start."""
    config = exact.config("exact", "quick") | {"steps": 600, "lr": 3e-2, "history_every": 600}
    found = exact.run(config, "exact", context())
    assert found.metrics["kl"] < 0.1 * float(found.arrays["history_kl"][0])
    assert found.metrics["rmse_mean"] < 0.1


def test_functions_start_at_the_prior():
    config = exact.config("exact", "paper") | {"steps": 0}
    start = exact.run(config, "exact", context()).arrays["functions"].double()
    expected = torch.exp(-0.5 * (exact.TEST[:, None] - exact.TEST).square() / 0.25)
    assert_close(start.mT.cov(), expected, rtol=0, atol=4 * (2 / 1_000) ** 0.5)  # of 1,000 draws


def test_published_sizes():
    config = exact.config("minibatch", "paper")
    assert (config["particles"], config["steps"], config["lr"], config["batch_size"]) == (1_000, 20_000, 1e-3, 10)
