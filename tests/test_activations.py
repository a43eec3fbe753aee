"""Activations against autograd and against the functions of the same name in PyTorch."""

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.experiments.heads import head_lipschitz_bound
from gpvi_lib.samplers import Generator

X = torch.linspace(-8, 8, 1_001, dtype=torch.float64)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_value_module_and_slope_agree(name):
    activation, x = ACTIVATIONS[name], X.clone().requires_grad_()
    value = activation.value(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert_close(activation.module()(x), value)
    assert_close(activation.slope(x, value), slope)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_what_is_called_smooth_has_a_continuous_slope_and_no_steeper_one_than_it_says(name):
    activation, x = ACTIVATIONS[name], torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    slope = activation.slope(x, activation.value(x))
    largest_jump = float(
        slope.diff().abs().max()
    )  # a Lipschitz slope: at most its constant, 1.1, times the grid's step
    assert (largest_jump < 2 * 1.6e-4) is activation.smooth
    assert 0.9 < float(slope.max()) <= activation.steepest < 1.03 * float(slope.max())


def test_the_lipschitz_bound_counts_slopes_above_one(rng):
    """Where a generator's slope is steepest, its Jacobian exceeds the product of the layers' norms."""
    f = Generator(1, 1, (1,), noise_scale=1e-6, activation="gelu", rng=rng, dtype=torch.float64)
    with torch.no_grad():
        f.hidden[0].weight.fill_(1.0)
        f.hidden[0].bias.fill_(2**0.5)  # GELU's slope is largest at √2
        f.output.weight.fill_(1.0)
    steepest = float(f.linearize(torch.zeros(1, 1, dtype=torch.float64)).head().detach())
    assert 1.1 < steepest <= head_lipschitz_bound(f)
