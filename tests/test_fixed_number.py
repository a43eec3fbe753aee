"""Samplers of a fixed number of points, alone and inside others."""

import pytest
import torch
from torch import nn

from gpvi_lib import (
    Adam,
    Evaluated,
    FlatMLP,
    Gaussian,
    Generator,
    LangevinNetwork,
    LearnedNoise,
    MeanField,
    NegativeELBO,
    Particles,
    ParVI,
    PointEstimate,
    check,
    fit,
    mlp,
)
from gpvi_lib.errors import GPVIError
from gpvi_lib.networks import FlatModule
from gpvi_lib.samplers import Sampler, standard_normal
from gpvi_lib.targets.logistic import LogisticPrior


def particles(number, dim):
    return Particles(torch.randn(number, dim, generator=torch.Generator().manual_seed(0)))


def test_a_sampler_says_how_many_points_it_has_and_one_around_it_too():
    network = FlatMLP([1, 3, 1])
    for sampler, number in ((particles(5, network.dim), 5), (MeanField(torch.zeros(network.dim)), None)):
        around = [sampler, PointEstimate(sampler), Evaluated(sampler, network, torch.zeros(7, 1))]
        around.append(PointEstimate(PointEstimate(sampler)))
        assert [one.fixed_number for one in around] == [number] * 4
    assert Generator(3, seed=0).fixed_number is None
    target = Gaussian(torch.zeros(2), torch.eye(2))
    starts = {5: particles(5, 2), None: MeanField(torch.zeros(2))}
    chains = {number: LangevinNetwork(start, target, 2, step_size=0.1) for number, start in starts.items()}
    assert {number: one.fixed_number for number, one in chains.items()} == {5: 5, None: None}


def test_particles_behind_a_point_estimate_can_be_fitted():
    sampler = PointEstimate(particles(5, 2), start=1.0)
    before = sampler.inner.x.detach().clone()
    target = Gaussian(torch.zeros(3), torch.eye(3))
    result = fit(sampler, target, ParVI(), steps=3, optimizer=Adam(0.1), seed=0, progress=False)
    assert result.diagnostics and not torch.equal(sampler.inner.x, before) and float(sampler.value.detach()) < 1
    assert sampler.sample(None).shape == (5, 3)


def test_chains_that_start_at_particles_can_be_fitted_and_checked():
    target = Gaussian(torch.zeros(2), torch.eye(2))
    chains = LangevinNetwork(particles(50, 2), target, 3, step_size=0.1)
    before = chains.step_size.detach().clone()
    fit(chains, target, ParVI(), steps=3, optimizer=Adam(0.1), seed=0, progress=False)
    assert not torch.equal(chains.step_size, before) and chains.sample(None, seed=1).shape == (50, 2)
    assert "50 draws" in check(chains, target, seed=0, progress=False).subject
    with pytest.raises(ValueError, match="7 samples asked of 50 free particles"):
        chains.sample(7, seed=1)


@pytest.mark.parametrize(
    "network",
    [FlatMLP([1, 3, 2]), FlatModule(mlp([1, 3, 1])), FlatModule(LearnedNoise(nn.Linear(1, 1)))],
    ids=["two outputs", "one output", "shared noise"],
)
def test_function_values_have_their_number_as_dimension(network):
    sampler = Evaluated(particles(5, network.dim), network, torch.zeros(7, 1))
    assert sampler.dim == sampler.sample(None).shape[1]


class Frozen(Sampler):
    """Without parameters and buffers."""

    dim = 2

    def rsample(self, num_samples, rng):
        return standard_normal((self._number(num_samples), 2), rng, torch.zeros(()))


def test_a_point_estimate_before_a_sampler_without_parameters_takes_the_type_of_its_buffers():
    sampler = PointEstimate(LogisticPrior(2, dtype=torch.float64), start=1.0)
    assert sampler.value.dtype == torch.float64 and sampler.sample(4, seed=0).shape == (4, 4)
    target = Gaussian(torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64))
    fit(sampler, target, NegativeELBO(4), steps=2, optimizer=Adam(0.1), seed=0, progress=False)
    assert float(sampler.value.detach()) < 1


def test_a_point_estimate_before_a_sampler_with_no_tensor_says_what_it_needs():
    with pytest.raises(GPVIError, match=r"Frozen has neither parameters nor buffers: give it one, such as self\.reg"):
        PointEstimate(Frozen())
