"""The energy potentials against their printed formulas, and densities on a grid against closed forms."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.errors import UnknownName
from gpvi_lib.targets import EnergyPotential, Gaussian, PlaneGrid, check_finite
from gpvi_lib.targets.energy import PARTS

F64 = torch.float64


def printed(name, z1, z2):
    """Table 1 of Rezende and Mohamed (2015), one point at a time."""
    w1 = math.sin(2 * math.pi * z1 / 4)
    w2 = 3 * math.exp(-0.5 * ((z1 - 1) / 0.6) ** 2)
    w3 = 3 / (1 + math.exp(-(z1 - 1) / 0.3))
    if name == "twin_moons":
        ends = math.exp(-0.5 * ((z1 - 2) / 0.6) ** 2) + math.exp(-0.5 * ((z1 + 2) / 0.6) ** 2)
        return 0.5 * ((math.hypot(z1, z2) - 2) / 0.4) ** 2 - math.log(ends)
    if name == "sinusoid":
        return 0.5 * ((z2 - w1) / 0.4) ** 2
    if name == "sin_bisect":
        lower = math.exp(-0.5 * ((z2 - w1 + w2) / 0.35) ** 2)
        return -math.log(math.exp(-0.5 * ((z2 - w1) / 0.35) ** 2) + lower)
    lower = math.exp(-0.5 * ((z2 - w1 + w3) / 0.35) ** 2)
    return -math.log(math.exp(-0.5 * ((z2 - w1) / 0.4) ** 2) + lower)


@pytest.mark.parametrize("name", PARTS)
def test_the_energy_is_the_printed_formula(name, rng):
    x = 8 * torch.rand(200, 2, generator=rng, dtype=F64) - 4
    expected = torch.tensor([printed(name, *point) for point in x.tolist()], dtype=F64)
    assert_close(EnergyPotential(name).energy(x), expected)
    assert_close(EnergyPotential(name).log_prob(x), -expected)  # inside, the confinement is exactly 0


@pytest.mark.parametrize("name", PARTS)
def test_the_confinement_acts_beyond_four_only(name):
    free, confined = EnergyPotential(name, None), EnergyPotential(name, 0.5)
    x = torch.tensor([[4.0, 0.3], [-4.0, 1.0], [5.0, 0.0], [-4.5, 0.2]], dtype=F64)
    expected = torch.tensor([0.0, 0.0, 2.0, 0.5], dtype=F64)
    assert_close(free.log_prob(x) - confined.log_prob(x), expected)


@pytest.mark.parametrize("name", PARTS)
def test_the_score_is_finite_where_the_formula_underflows(name):
    x = torch.tensor([[0.0, 0.0], [1.0, 60.0], [-30.0, -50.0], [1.0, -1.0]])
    check_finite(EnergyPotential(name), x)
    if name != "sinusoid":
        assert math.exp(-0.5 * (60 / 0.4) ** 2) == 0  # what a logarithm of a sum would meet


def test_without_confinement_the_mass_grows_with_the_square():
    mass = {}
    for half_width in (6.0, 12.0):
        grid = PlaneGrid(EnergyPotential("sinusoid", None), half_width, cells=96, fine=4)
        mass[half_width] = math.exp(grid.log_normaliser)
    assert mass[6.0] == pytest.approx(12 * 0.4 * math.sqrt(2 * math.pi), rel=1e-5)
    assert mass[12.0] == pytest.approx(2 * mass[6.0], rel=1e-5)


def test_constant_and_entropy_of_the_sinusoid_are_known():
    """x_2 given x_1 is N(w_1, 0.4^2); x_1 is uniform on [-4, 4] with half Gaussians of width s at its ends."""
    s = 0.2
    length = 8 + s * math.sqrt(2 * math.pi)
    grid = PlaneGrid(EnergyPotential("sinusoid", s))
    assert grid.log_normaliser == pytest.approx(math.log(length * 0.4 * math.sqrt(2 * math.pi)), abs=2e-5)
    along = math.log(length) + s * math.sqrt(2 * math.pi) / length / 2
    across = 0.5 * math.log(2 * math.pi * math.e * 0.4**2)
    assert grid.entropy == pytest.approx(along + across, abs=2e-4)


def test_a_gaussian_on_a_grid():
    covariance = torch.tensor([[0.5, 0.2], [0.2, 0.8]], dtype=F64)
    gaussian = Gaussian(torch.tensor([0.3, -0.5], dtype=F64), covariance)
    grid = PlaneGrid(gaussian)
    assert grid.log_normaliser == pytest.approx(0, abs=1e-9)
    assert grid.entropy == pytest.approx(0.5 * float(torch.logdet(2 * math.pi * math.e * covariance)), abs=1e-7)
    masses = grid.log_masses.exp()
    assert float(masses.sum()) == pytest.approx(1)
    middles = (torch.arange(96, dtype=F64) + 0.5) / 8 - 6
    assert float(masses.sum(1) @ middles) == pytest.approx(0.3, abs=1e-6)  # the first axis is x_1
    assert float(masses.sum(0) @ middles) == pytest.approx(-0.5, abs=1e-6)


@pytest.mark.parametrize("name", PARTS)
def test_draws_are_where_the_masses_are(name, rng):
    """A χ² test on the cells, which also ties the orders of axes in masses and counts together."""
    grid, n = PlaneGrid(EnergyPotential(name)), 50_000
    counts, expected = grid.counts(grid.sample(n, rng)), n * grid.log_masses.exp()
    assert int(counts.sum()) == n
    usable = expected > 5
    chi_squared = float(((counts - expected).square() / expected)[usable].sum())
    degrees = int(usable.sum())
    assert degrees > 300
    assert abs(chi_squared - degrees) < 5 * math.sqrt(2 * degrees)


def test_points_outside_count_in_the_nearest_cell():
    grid = PlaneGrid(EnergyPotential("sinusoid"), cells=12, fine=4)
    counts = grid.counts(torch.tensor([[-7.0, 0.1], [100.0, -100.0], [5.99, 5.99]]))
    assert (counts[0, 6], counts[11, 0], counts[11, 11], counts.sum()) == (1, 1, 1, 3)


@pytest.mark.parametrize("name", PARTS)
def test_shares_of_the_parts(name):
    """By symmetry halves of the moons and of the middle; 0.4 : 0.35 for the branches that are as wide as that."""
    at = (torch.arange(768, dtype=F64) + 0.5) / 64 - 6
    x = torch.cartesian_prod(at, at)
    p = EnergyPotential(name).log_prob(x).exp()
    potential = EnergyPotential(name)
    mass = torch.zeros(len(potential.parts), dtype=F64).index_add_(0, potential.part(x), p / p.sum())
    share = dict(zip(potential.parts, mass.tolist(), strict=True))
    assert sum(share.values()) == pytest.approx(1)
    if name == "twin_moons":
        assert share["left"] == pytest.approx(0.5)
    elif name == "sin_bisect":
        assert share["upper"] == pytest.approx(share["lower"], rel=1e-3)
        assert share["upper"] + share["lower"] == pytest.approx(2 / (8 + 0.2 * math.sqrt(2 * math.pi)), rel=0.02)
    elif name == "sin_split":
        assert share["upper"] / share["lower"] == pytest.approx(0.4 / 0.35, rel=2e-3)
    else:
        assert share["second"] == pytest.approx(share["third"]) == pytest.approx(2 / 8.5013, rel=1e-3)


def test_across_is_the_distance_from_the_nearest_ridge(rng):
    ring = torch.tensor([[0.0, 2.5], [-1.5, 0.0]])
    assert_close(EnergyPotential("twin_moons").across(ring), torch.tensor([0.5, -0.5]))
    middle = torch.tensor([[1.0, 1.1], [1.0, -1.9]])  # the ridges are at 1 and at -2
    assert_close(EnergyPotential("sin_bisect").across(middle), torch.tensor([0.1, 0.1]))
    target = EnergyPotential("sinusoid")
    x = PlaneGrid(target).sample(20_000, rng)
    assert float(target.across(x).std()) == pytest.approx(0.4, rel=5 / math.sqrt(2 * 20_000))


def test_unknown_potentials_and_widths_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'sinusoid'"):
        EnergyPotential("sinus")
    with pytest.raises(ValueError, match="must be positive or None, got 0"):
        EnergyPotential("sinusoid", 0)


def test_the_entropy_of_a_density_with_hard_support():
    class Disc:
        dim = 2

        def log_prob(self, x, batch=None):
            return torch.where(x.norm(dim=-1) < 1, 0.0, -math.inf)

    # The boundary's 2π length crosses cells of side 1/64: an area error well below 2π / 64.
    assert abs(PlaneGrid(Disc()).entropy - math.log(math.pi)) < 0.01
