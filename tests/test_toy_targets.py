"""Toy targets: normalised densities whose samplers draw from them."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.targets import Banana, GaussianMixture, check_finite, toy

MEANS = torch.tensor([[-2.0, 0.5], [1.0, 2.0], [0.0, -1.5]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
TARGETS = {
    "banana": Banana(scale=0.9, bend=0.6, width=0.4),
    "mixture": GaussianMixture(MEANS, 0.7, WEIGHTS),
}


def draw(target, n, rng):
    return target.sample(n, rng).double()


def test_every_toy_target_is_tested_here():
    classes = {item for item in vars(toy).values() if isinstance(item, type) and item.__module__ == toy.__name__}
    untested = {cls.__name__ for cls in classes - {type(target) for target in TARGETS.values()}}
    assert not untested, f"enter in TARGETS: {', '.join(sorted(untested))}"


@pytest.mark.parametrize("name", TARGETS)
def test_the_density_integrates_to_one(name):
    """By the trapezoidal rule; the banana leaves the square beyond 4.5 standard deviations, with mass 1e-6."""
    at = torch.linspace(-12, 12, 1201, dtype=torch.float64)
    log_prob = TARGETS[name].log_prob(torch.cartesian_prod(at, at))
    assert_close(log_prob.exp().sum() * (24 / 1200) ** 2, torch.tensor(1.0, dtype=torch.float64), rtol=2e-6, atol=0)


@pytest.mark.parametrize("name", TARGETS)
def test_moments_of_draws_are_those_of_the_density(name, rng):
    target, n = TARGETS[name], 20_000
    x = draw(target, n, rng)
    mean = target.mean
    products = (x - mean)[:, :, None] * (x - mean)[:, None]
    for values, expected in ((x, mean), (products, target.covariance)):
        standard_error = values.std(0) / math.sqrt(n)
        assert bool(((values.mean(0) - expected).abs() < 4 * standard_error).all())


@pytest.mark.parametrize("name", TARGETS)
def test_draws_and_density_agree_in_every_cell(name, rng):
    """Counts in cells of a grid against the integral of the density over them: a χ² test."""
    target, n, cells, fine = TARGETS[name], 20_000, 12, 20
    edges = torch.linspace(-4, 4, cells + 1, dtype=torch.float64)
    middle = torch.linspace(-4, 4, 2 * cells * fine + 1, dtype=torch.float64)[1::2]
    density = target.log_prob(torch.cartesian_prod(middle, middle)).exp().reshape(cells, fine, cells, fine)
    expected = n * density.sum((1, 3)) * (8 / (cells * fine)) ** 2
    counts, _ = torch.histogramdd(draw(target, n, rng), bins=[edges, edges])
    usable = expected > 5
    chi_squared = ((counts - expected).square() / expected)[usable].sum()
    degrees = int(usable.sum())
    assert degrees > 20
    assert abs(chi_squared - degrees) < 5 * math.sqrt(2 * degrees)


def test_a_mixture_knows_its_components():
    mixture = TARGETS["mixture"]
    assert mixture.component(MEANS).tolist() == [0, 1, 2]
    one = GaussianMixture(MEANS[:1], 0.7)
    expected = torch.distributions.MultivariateNormal(MEANS[0], 0.49 * torch.eye(2).double()).log_prob(MEANS)
    assert_close(one.log_prob(MEANS), expected)


def test_weights_of_another_dtype_are_those_of_the_means(rng):
    plain, other = GaussianMixture(MEANS.float(), 0.7, WEIGHTS.float()), GaussianMixture(MEANS.float(), 0.7, WEIGHTS)
    x = other.sample(5, rng)
    for found, expected in ((other.mean, plain.mean), (other.covariance, plain.covariance)):
        assert torch.equal(found, expected)
    assert torch.equal(other.log_prob(x), plain.log_prob(x)) and other.log_prob(x).dtype == torch.float32


def test_components_are_drawn_as_often_as_their_weights_say(rng):
    far = GaussianMixture(100 * MEANS, 0.7, WEIGHTS)
    counts = far.component(far.sample(10_000, rng)).bincount() / 10_000
    assert bool(((counts - WEIGHTS).abs() < 4 * (WEIGHTS * (1 - WEIGHTS) / 10_000).sqrt()).all())


@pytest.mark.parametrize("name", TARGETS)
def test_they_are_targets(name, rng):
    target = TARGETS[name]
    assert target.num_data is None
    check_finite(target, draw(target, 3, rng))
    assert torch.equal(draw(target, 5, rng.manual_seed(1)), draw(target, 5, rng.manual_seed(1)))


@pytest.mark.parametrize("arguments", [{"scale": 0}, {"width": -1.0}])
def test_a_banana_without_width_is_refused(arguments):
    with pytest.raises(ValueError, match="must be positive"):
        Banana(**arguments)


def test_impossible_mixtures_are_refused():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        GaussianMixture(MEANS, 0)
    with pytest.raises(ValueError, match="3 positive numbers with sum 1"):
        GaussianMixture(MEANS, 1.0, torch.tensor([0.5, 0.3, 0.3]))
