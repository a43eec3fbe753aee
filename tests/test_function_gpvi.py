"""GPVI in function space: features, the density of functions against closed forms, and the bound's gradient."""

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import FlatMLP, Generator, MeanField, NormalLikelihood, NormalPrior, Posterior, Uniform
from gpvi_lib.experiments import fpovi_toy as toy
from gpvi_lib.experiments import function_gpvi as here
from gpvi_lib.function_priors import ArcCosine


@pytest.fixture
def target():
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None]
    return Posterior(FlatMLP([1, 9, 9, 1]), NormalLikelihood(0.3), x, torch.sin(3 * x[:, 0]), NormalPrior(0.4))


def generator(target, seed=0, **options):
    rng = torch.Generator().manual_seed(seed)
    scale = torch.full((target.dim,), 0.4, dtype=torch.float64)
    options = {"noise_scale": 0.1 * scale, "output_scale": scale} | options
    return Generator(target.dim, 3, (8,), **options, activation="softplus", rng=rng, dtype=torch.float64)


def test_a_network_is_its_features_times_its_last_weights(target, normal):
    w, x = normal(4, target.dim), normal(5, 1)
    features, last = here.last_features(target.network, w, x)
    assert_close(torch.einsum("nbl,nl->nb", features, last), target.network(w, x)[..., 0])
    assert torch.equal(features[..., -1], torch.ones(4, 5).double())


def test_the_log_density_of_normals(normal):
    f, mean, factor = normal(3, 4), normal(2, 4), normal(2, 4, 4)
    covariance = factor @ factor.mT + torch.eye(4)
    found = here.normal_log_prob(f, mean, covariance)
    expected = torch.distributions.MultivariateNormal(mean, covariance).log_prob(f[:, None])
    assert_close(found, expected)


def test_with_fixed_hidden_layers_the_bound_is_that_of_a_normal(target):
    """Only the last layer is random: the mixture's components are one normal, whose ELBO has a closed form."""
    sampler = generator(target)
    with torch.no_grad():
        sampler.output.weight.zero_()
        sampler.log_noise_scale = torch.full_like(sampler.noise_scale, -30.0)
        sampler.log_noise_scale[-10:] = -1.0
        found = here.function_elbo(sampler, target, target.inputs, 4_000, torch.Generator().manual_seed(1))
        features, last = here.last_features(target.network, sampler.output.bias[None], target.inputs)
    eye = here.VALUE_NOISE**2 * torch.eye(6).double()
    mean, covariance = features[0] @ last[0], torch.e**-2 * features[0] @ features[0].mT + eye
    q = torch.distributions.MultivariateNormal(mean, covariance)
    p = torch.distributions.MultivariateNormal(
        torch.zeros(6).double(), ArcCosine().given(target).covariance(target.inputs) + eye
    )
    fit = torch.distributions.Normal(mean, 0.3).log_prob(target.targets).sum() - covariance.trace() / (2 * 0.3**2)
    expected = fit - torch.distributions.kl_divergence(q, p)
    assert abs(float(found.mean() - expected)) < 4 * float(found.std()) / 4_000**0.5


def test_the_bound_is_below_the_evidence_and_rises_with_the_draws(target):
    """In the mean; here the components are far apart, so that each further one counts."""
    with torch.no_grad():
        few, many = (
            torch.cat(
                [
                    here.function_elbo(generator(target), target, target.inputs, s, torch.Generator().manual_seed(i))
                    for i in range(2_000 // s)
                ]
            )
            for s in (2, 100)
        )
    error = float((few.var() / 1_000 + many.var() / 1_000).sqrt())
    assert float(few.mean()) + 3 * error < float(many.mean()) < here.log_evidence(target)


def test_the_evidence_is_that_of_the_process(target):
    covariance = ArcCosine().given(target).covariance(target.inputs) + (0.3**2 + here.VALUE_NOISE**2) * torch.eye(6)
    expected = torch.distributions.MultivariateNormal(torch.zeros(6).double(), covariance).log_prob(target.targets)
    assert here.log_evidence(target) == pytest.approx(float(expected))


def test_the_gradient_is_that_of_finite_differences(target):
    sampler, objective = generator(target, train_noise_scale=True), here.FunctionELBO(7, Uniform(3, -2.0, 2.0))

    def loss():
        return objective(sampler, target, None, torch.Generator().manual_seed(2))[0]

    for parameter in (sampler.output.bias, sampler.log_noise_scale, sampler.hidden[0].weight):
        (gradient,) = torch.autograd.grad(loss(), parameter)
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        with torch.no_grad():
            parameter += 1e-6 * direction
            above = loss()
            parameter -= 2e-6 * direction
            below = loss()
            parameter += 1e-6 * direction
        assert_close((gradient * direction).sum(), (above - below) / 2e-6, rtol=1e-5, atol=1e-6)


def test_generators_without_such_a_density_are_refused(target):
    rng = torch.Generator().manual_seed(0)
    for other in (generator(target, noise_scale=None), MeanField(torch.zeros(target.dim).double(), 0.1)):
        with pytest.raises(ValueError, match="needs a Generator and its λ"):
            here.function_elbo(other, target, target.inputs, 3, rng)
    with pytest.raises(ValueError, match="leave batch_size out"):
        here.FunctionELBO(3, Uniform(2, -1.0, 1.0))(generator(target), target, torch.arange(2), rng)
    wide = Generator(target.dim, target.dim - 9, (8,), rng=rng, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"must not reach the last layer's 10 weights: k = "):
        here.function_elbo(wide, target, target.inputs, 3, rng)
    with pytest.raises(ValueError, match="one output, got 2"):
        here.last_features(FlatMLP([1, 4, 2]), torch.zeros(2, 18), torch.zeros(3, 1))


def test_it_is_a_row_of_the_toy():
    rows = toy.config("f_gpvi", "paper"), toy.config("gpvi_exact_density", "paper")
    assert rows[0]["sampler"] == rows[1]["sampler"] and rows[0]["steps"] == rows[1]["steps"] == 5_000
    assert rows[0]["objective"]["num_samples"] == rows[1]["objective"]["num_samples"] == 50
