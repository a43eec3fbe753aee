"""The Laplace approximation: exact for Gaussians, checked on a posterior, and honest where there is no mode."""

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import Gaussian, GPVIError, LogisticPosterior, laplace, score

F64 = torch.float64


def test_of_a_gaussian_it_is_the_gaussian(normal):
    a = normal(4, 4)
    covariance = a @ a.mT + torch.eye(4, dtype=F64)
    mean = normal(4)
    found = laplace(Gaussian(mean, covariance), normal(4))
    assert_close(found, (mean, covariance), rtol=1e-5, atol=1e-5)


def test_of_a_posterior_it_is_mode_and_curvature(normal):
    x = torch.cat([torch.ones(60, 1, dtype=F64), normal(60, 2)], 1)
    target = LogisticPosterior(x, (x[:, 1] + normal(60) > 0).long())
    mode, covariance = laplace(target, torch.zeros(4, dtype=F64))
    assert score(target, mode[None]).norm() < 1e-4
    steps = 1e-4 * torch.eye(4, dtype=F64)
    hessian = -(score(target, mode + steps) - score(target, mode - steps)) / 2e-4
    assert_close(torch.linalg.inv(covariance), hessian, rtol=1e-5, atol=1e-5)


def test_where_there_is_no_mode_it_says_so():
    class Saddle:
        dim, num_data = 2, None

        def log_prob(self, x, batch=None):
            return x[:, 0].square().clamp(max=100) - x[:, 1].square()

    with pytest.raises(GPVIError, match="no mode of Saddle"):
        laplace(Saddle(), torch.zeros(2, dtype=F64))
