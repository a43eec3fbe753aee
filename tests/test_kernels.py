"""Kernels against autodiff, explicit sums and numpy."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.directions import SVGD
from gpvi_lib.kernels import RBF, kernel_gradient_sum, median_bandwidth, squared_distances


def naive_kernel(x, y, h):
    return torch.exp(-(x[:, None] - y).square().sum(-1) / h)


@pytest.mark.parametrize(("n", "m", "d"), [(4, 7, 3), (1, 5, 1), (6, 1, 2)])
def test_kernel_and_gradient_weights_agree_with_autodiff(normal, n, m, d):
    x, y, h = normal(n, d).requires_grad_(), normal(m, d), 1.7
    k, weight = RBF(h)(x.detach(), y)
    expected = naive_kernel(x, y, h)
    assert_close(k, expected.detach())
    for j in range(m):  # k_ij depends on x_i alone, so the gradient of the column sum holds every ∇_{x_i} k_ij
        (gradient,) = torch.autograd.grad(expected[:, j].sum(), x, retain_graph=True)
        assert_close(weight[:, j, None] * (x.detach() - y[j]), gradient)


def test_gradient_sum_is_the_explicit_sum(normal):
    x, y, weight = normal(5, 3), normal(4, 3), normal(5, 4)
    assert_close(kernel_gradient_sum(weight, x, y), (weight[..., None] * (x[:, None] - y)).sum(0))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_the_gradient_sum_does_not_lose_digits_far_from_the_origin(normal, offset):
    # In float32 every product W_ij (x_i - x_j) is right to eps = 1.2e-7; a sum of 50 of them to about 50 eps.
    x = (normal(50, 3) + offset).float()
    _, weight = RBF(1.0)(x)
    exact = (weight[..., None] * (x[:, None] - x)).double().sum(0)
    error = (kernel_gradient_sum(weight, x, x).double() - exact).norm() / exact.norm()
    assert error < 50 * torch.finfo(torch.float32).eps


def test_distances_do_not_lose_digits_far_from_the_origin(normal):
    # Shifting float64 points by 1e6 rounds each to 1e-10; distances of about 1 may change by a few 1e-10.
    x, y = normal(6, 3), normal(5, 3)
    assert_close(squared_distances(x + 1e6, y + 1e6), squared_distances(x, y), atol=1e-8, rtol=0)


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_median_bandwidth_of_one_set_leaves_the_diagonal_out(normal, n):
    # With an even number of distances numpy's "lower" is the one of the two middle ones that torch.median takes.
    x = normal(n, 2)
    squared = squared_distances(x, x)
    off_diagonal = squared.numpy()[~np.eye(n, dtype=bool)]
    expected = np.quantile(off_diagonal, 0.5, method="lower") / math.log(n)
    assert_close(median_bandwidth(squared, same=True).item(), expected)


@pytest.mark.parametrize(("n", "m"), [(3, 5), (4, 6), (5, 5)])
def test_median_bandwidth_between_two_sets_uses_all_distances(normal, n, m):
    squared = squared_distances(normal(n, 2), normal(m, 2))
    median = np.quantile(squared.numpy(), 0.5, method="lower")
    assert_close(median_bandwidth(squared, same=False).item(), median / math.log(m))
    assert_close(median_bandwidth(squared, "half", same=False).item(), median / math.log(n * m))


@pytest.mark.parametrize("same", [True, False])
def test_half_is_half_of_the_papers_bandwidth(normal, same):
    squared = squared_distances(normal(8, 3), normal(8, 3))
    paper, half = (median_bandwidth(squared, rule, same=same) for rule in ("paper", "half"))
    assert_close(half / paper, torch.tensor(0.5, dtype=torch.float64))


@pytest.mark.parametrize("rule", ["paper", "half"])
def test_the_kernel_uses_its_rule(normal, rule):
    x, y = normal(6, 2), normal(6, 2)
    for second, same in ((None, True), (y, False)):
        squared = squared_distances(x, x if same else y)
        h = median_bandwidth(squared, rule, same=same).item()
        k, weight = RBF(rule)(x, second)
        assert_close(k, torch.exp(-squared / h))
        assert_close(weight, -2 / h * k)


def test_order_of_the_samples_does_not_matter(normal, rng):
    x = normal(9, 3)
    order = torch.randperm(9, generator=rng)
    k, weight = RBF()(x)
    for permuted, plain in zip(RBF()(x[order]), (k, weight), strict=True):
        assert_close(permuted, plain[order][:, order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("coinciding", "apart"), [(2, 0), (7, 0), (6, 3)])
def test_coinciding_points_stay_finite(rng, dtype, coinciding, apart):
    x = torch.cat([torch.full((coinciding, 2), 3.3), torch.randn(apart, 2, generator=rng)]).to(dtype)
    phi, _ = SVGD()(x, torch.ones_like(x))
    for tensor in (*RBF()(x), *RBF()(x, x.clone()), phi):
        assert tensor.isfinite().all()
    if not apart:  # k = 1 and no repulsion: they move as one point does
        assert_close(phi, -torch.ones_like(x))


@pytest.mark.parametrize(("n", "m"), [(1, 5), (5, 1), (1, 1)])
def test_one_sample_has_no_median_bandwidth(n, m):
    with pytest.raises(ValueError, match="at least 2 samples"):
        RBF()(torch.zeros(n, 2), torch.zeros(m, 2))


@pytest.mark.parametrize("bandwidth", [0, -1.0, math.nan, "median", ""])
def test_impossible_bandwidths_are_refused(bandwidth):
    with pytest.raises(ValueError, match="bandwidth"):
        RBF(bandwidth)


@pytest.mark.parametrize("bandwidth", ["paper", "half", 0.7])
def test_the_kernel_can_be_vectorised(normal, bandwidth):
    batches = normal(3, 20, 2)
    together = torch.vmap(lambda x: RBF(bandwidth)(x)[0])(batches)
    assert_close(together, torch.stack([RBF(bandwidth)(x)[0] for x in batches]))
