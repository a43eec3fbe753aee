"""What experiments share to measure with: densities, histories, evenly spaced rows, and constants of an evaluation."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.experiments import evaluation
from gpvi_lib.samplers import Generator, MeanField, Particles, with_density
from gpvi_lib.targets import Gaussian

F64 = torch.float64


@pytest.mark.parametrize("stdev", [1.0, 3.0])
def test_the_density_of_a_linear_generator_is_that_of_its_gaussian(stdev, rng):
    sampler = Generator(3, noise_scale=1.0, input_stdev=stdev, rng=rng, dtype=F64)
    x, log_q, sign = with_density(sampler, 50, rng)
    jacobian = sampler.linearize(x[:1]).dense()[0].detach()
    exact = torch.distributions.MultivariateNormal(sampler.output.bias.detach(), stdev**2 * jacobian @ jacobian.mT)
    assert_close(log_q, exact.log_prob(x), rtol=1e-9, atol=1e-9)
    assert bool((sign == torch.linalg.det(jacobian).sign()).all())


def test_the_elbo_of_the_target_itself_is_its_log_normaliser():
    sampler, target = (
        MeanField(torch.zeros(2, dtype=F64), 1.0),
        Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64)),
    )
    found = evaluation.density_scores(sampler, target, 20)
    assert found == {"elbo": pytest.approx(0, abs=1e-12), "elbo_se": pytest.approx(0, abs=1e-12)}


def test_what_has_no_density_has_no_scores(rng):
    target = Gaussian(torch.zeros(2), torch.eye(2))
    for sampler in (Particles(torch.zeros(4, 2)), Generator(2, 1, noise_scale=None, rng=rng)):
        assert evaluation.density_scores(sampler, target, 5) == {}


def test_draws_are_the_same_at_every_call_and_particles_as_they_are(rng):
    sampler, points = Generator(2, 1, rng=rng), torch.arange(6.0).reshape(3, 2)
    assert torch.equal(evaluation.fixed_draws(sampler, 5), evaluation.fixed_draws(sampler, 5))
    assert not torch.equal(evaluation.fixed_draws(sampler, 5), evaluation.fixed_draws(sampler, 5, seed=1))
    assert torch.equal(evaluation.fixed_draws(Particles(points), 5), points)


def test_rows_are_taken_from_the_first_to_the_last():
    x = torch.arange(10).expand(2, 10)
    assert evaluation.evenly(x, 4, dim=1).tolist() == [[0, 3, 6, 9]] * 2
    assert torch.equal(evaluation.evenly(x[0], 20), x[0])


def test_a_history_has_a_number_for_each_row():
    found = evaluation.history([{"step": 0.0}, {"step": 5.0, "kl": 0.5}])
    assert found["history_step"].tolist() == [0, 5]
    assert math.isnan(found["history_kl"][0]) and found["history_kl"][1] == 0.5
    assert evaluation.history([{"step": 0.0, "kl": 1.0}], ("kl",)).keys() == {"history_kl"}


def test_only_constants_that_changed_join_a_configuration():
    then = {"seed": 7, "grid": [0.0, 1.0, 5]}
    assert evaluation.differing(then, seed=7, grid=evaluation.span(torch.linspace(0, 1, 5))) == {}
    assert evaluation.differing(then, seed=8, grid=[0.0, 1.0, 5]) == {"evaluated_with": {"seed": 8}}
    with pytest.raises(KeyError, match="points"):
        evaluation.differing(then, points=3)
