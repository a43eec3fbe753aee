"""Programs that are right, and that a look at the target before training must let through without a word."""

import warnings

import pytest
import torch
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from gpvi_lib import (
    Adam,
    Constrained,
    FlatModule,
    MaximumPosterior,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    Particles,
    Posterior,
    check,
    fit,
    hmc,
    mlp,
)
from gpvi_lib.errors import SlopeWarning
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.targets.slopes import check_slope

TRAINED = {"steps": 1, "optimizer": Adam(1e-3), "seed": 0, "progress": False}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rng(seed):
    return torch.Generator().manual_seed(seed)


class WithItsLikelihood:
    """Has a method of that name which is its own affair."""

    dim = 2

    def __init__(self):
        self.x = torch.randn(50, 2, generator=rng(0))

    def log_likelihood(self, w, x, y):
        return -0.5 * (w @ x.T - y).square().sum(-1)

    def log_prob(self, w):
        return self.log_likelihood(w, self.x, self.x.sum(-1)) - 0.5 * w.square().sum(-1)


def test_a_log_likelihood_of_ones_own_arguments():
    fit(MeanField(torch.zeros(2)), WithItsLikelihood(), NegativeELBO(4), **TRAINED)


class Prices:
    """The mean of prices of some 300,000, beside coefficients of order one: no distance fits both."""

    dim = 4

    def __init__(self):
        g = rng(0)
        self.x = torch.randn(50, 3, generator=g)
        self.z = torch.where(self.x.sum(-1) > 0.5, 1.0, -1.0)
        self.prices = 3e5 + 3e3 * torch.randn(20, generator=g)

    def log_prob(self, x):
        w = x[:, 1:]
        prior = -0.5 * ((x[:, :1] - self.prices) / 3e3).square().sum(-1)
        return prior - 0.5 * w.square().sum(-1) + logsigmoid(self.z * (w @ self.x.T)).sum(-1)


def test_a_large_coordinate_beside_curved_ones():
    start = MeanField(torch.tensor([3e5, 0, 0, 0]), torch.tensor([700.0, 0.3, 0.3, 0.3]))
    fit(start, Prices(), NegativeELBO(4), **TRAINED)


class LessAConstant:
    """Values near 0, of terms of a million each."""

    dim = 1

    def __init__(self, mean):
        self.mean = mean

    def log_prob(self, x):
        return (1e6 - 0.5 * (x - self.mean).square().sum(-1)) - 1e6


def test_small_values_of_large_terms():
    for seed in range(20):
        g = rng(seed)
        mean = torch.randn(1, generator=g)
        check_slope(LessAConstant(mean), mean + torch.randn(2, 1, generator=g))


class PartlyCut:
    """A prior without gradient."""

    dim = 4

    def __init__(self, g):
        self.x = torch.randn(50, 4, generator=g)

    def log_prob(self, w):
        return logsigmoid(w @ self.x.T).sum(-1) - 2.5 * w.detach().square().sum(-1)


def test_a_gradient_that_is_cut_off_is_still_found():
    for seed in range(10):
        g = rng(seed)
        with pytest.warns(SlopeWarning):
            check_slope(PartlyCut(g), torch.randn(2, 4, generator=g))


class Resampled:
    """Each particle has data of its own."""

    dim, num_data, num_points = 2, 50, 5

    def __init__(self):
        self.x = torch.randn(5, 50, 2, generator=rng(2))
        self.y = self.x.sum(-1)

    def log_prob(self, w, batch=None):
        rows = slice(None) if batch is None else batch
        x, y = self.x[:, rows], self.y[:, rows]
        return 50 / x.shape[1] * -0.5 * (torch.bmm(x, w[:, :, None])[..., 0] - y).square().sum(-1) - w.square().sum(-1)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_particles_with_data_of_their_own(batch_size):
    particles = Particles(torch.randn(5, 2, generator=rng(3)))
    fit(particles, Resampled(), MaximumPosterior(), batch_size=batch_size, **TRAINED)


class OfABatch:
    """Never asked for all data."""

    dim, num_data = 1, 40

    def log_prob(self, x, batch):
        return 40 / len(batch) * -0.5 * (x - torch.linspace(-1, 1, 40)[batch]).square().sum(-1)


def test_a_target_that_always_wants_a_batch():
    fit(MeanField(torch.zeros(1)), OfABatch(), NegativeELBO(4), batch_size=10, **TRAINED)


class Tempered:
    """A chain for each temperature."""

    dim, num_points, powers = 2, 4, torch.linspace(0.25, 1, 4)

    def log_prob(self, x):
        return self.powers * (-0.5 * x.square().sum(-1))


SHORT = {"num_leapfrog": 5, "num_steps": 30, "burn_in": 10, "seed": 0, "progress": False}


def test_chains_at_temperatures_of_their_own():
    target, start = Tempered(), torch.randn(4, 2, generator=rng(0))
    assert hmc(target.log_prob, start, step_size=1.0, **SHORT).samples.shape == (20, 4, 2)
    fit(Particles(start), target, MaximumPosterior(), **TRAINED)


def test_an_error_known_for_each_datum():
    x = torch.linspace(-1, 1, 50)[:, None]
    sd = 0.1 + 0.1 * torch.rand(50, generator=rng(0))

    def likelihood(outputs, y):
        return torch.distributions.Normal(outputs.squeeze(-1), sd).log_prob(y)

    posterior = Posterior(mlp([1, 5, 1]), likelihood, x, x[:, 0].sin())
    q = MeanField(posterior.sample_prior(1, seed=0)[0], 0.1)
    fit(q, posterior, NegativeELBO(4), **TRAINED)
    with warnings.catch_warnings():  # an untrained sampler: what it says of that is right
        warnings.simplefilter("ignore")
        check(q, posterior, seed=0, progress=False)


def test_a_wide_normal_is_proper_and_a_flat_density_is_not():
    start = 1e4 * torch.randn(4, 3, generator=rng(0))
    how = SHORT | {"num_leapfrog": (5, 15), "num_steps": 400, "burn_in": 200, "step_size": 0.1, "adapt": True}
    hmc(lambda x: -0.5 * (x / 1e4).square().sum(-1), start, **how)
    with pytest.warns(AcceptanceWarning, match="log_prob hardly changes"):
        hmc(lambda x: 0 * x.sum(-1), start, **how)


class Shifted:
    """Weights are what is added to those of a trained network; the constant makes the value at the start 0."""

    num_data, constant = 2_000, 0.0

    def __init__(self, g, factor):
        self.network, self.factor = FlatModule(mlp([5, 50, 1])), factor
        scale = self.network.fan_in_scale(torch.float32)
        self.dim, self.start = self.network.dim, scale * torch.randn(1, self.network.dim, generator=g)
        self.x = torch.randn(2_000, 5, generator=g)
        self.y = self.network(self.start, self.x)[0, :, 0] + 0.1 * torch.randn(2_000, generator=g)

    def log_prob(self, v, batch=None):
        rows = slice(None) if batch is None else batch
        terms = -0.5 * ((self.network(self.start + v, self.x[rows])[..., 0] - self.y[rows]) / 0.1).square()
        factor = 2_000 / len(self.y[rows]) if self.factor else 1.0
        return factor * terms.sum(-1) - 50 * v.square().sum(-1) - self.constant


def trained_on(target):
    q = MeanField(torch.zeros(target.dim), 1e-5)
    target.constant = float(target.log_prob(q.sample(2, rng(0)), torch.arange(8))[0])
    fit(q, target, NegativeELBO(4), batch_size=16, **TRAINED)


def test_values_that_cancel():
    for seed in range(8):
        trained_on(Shifted(rng(seed), factor=True))
        with pytest.raises(ValueError, match=r"must scale .* minibatch by num_data / len\(batch\)"):
            trained_on(Shifted(rng(seed), factor=False))


class RandomFeatures(torch.nn.Module):
    """Cosines of phases of some 1e5, of which float32 keeps two digits."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", 3e4 * torch.randn(30, 50, generator=rng(0)))
        self.last = torch.nn.Linear(50, 1)

    def forward(self, x):
        return self.last(torch.cos(x @ self.frequencies))


def test_a_network_of_fast_cosines_ties_no_data():
    inputs = torch.randn(200, 30, generator=rng(1))
    Posterior(RandomFeatures(), NormalLikelihood(0.5), inputs, inputs[:, 0])


def test_the_hessian_of_a_target_that_was_never_asked():
    target = Constrained(lambda v: -v["a"].log().square() - v["a"], {"a": constraints.positive})
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's own
    hessian = torch.func.hessian(lambda x: target.log_prob(x[None])[0])(torch.ones(1))
    x = torch.ones(1, dtype=torch.float64)
    step = 1e-4
    values = [float(target.log_prob((x + k * step)[None])) for k in (-1, 0, 1)]
    assert float(hessian) == pytest.approx((values[0] - 2 * values[1] + values[2]) / step**2, rel=1e-3)
