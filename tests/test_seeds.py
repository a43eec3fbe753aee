"""``seed=`` beside ``rng=`` where a user starts: the same numbers, and exactly one of the two."""

import pytest
import torch

from gpvi_lib import (
    Adam,
    Flow,
    Gaussian,
    Generator,
    MatrixGenerator,
    MeanField,
    MultiplicativeFlow,
    NegativeELBO,
    Particles,
    SplitMatrixGenerator,
    fit,
    hmc,
)
from gpvi_lib.checks import chosen_rng

TARGET = Gaussian(torch.zeros(2), torch.eye(2))


def fitted(**source):
    sampler = MeanField(torch.zeros(2), 0.5)
    fit(sampler, TARGET, NegativeELBO(4), steps=5, optimizer=Adam(0.1), progress=False, **source)
    return sampler.mean.detach()


def chains(**source):
    settings = {"step_size": 0.7, "num_leapfrog": 3, "num_steps": 8, "burn_in": 2, "progress": False}
    return hmc(TARGET.log_prob, torch.ones(64, 2), **settings, **source).samples


STARTS = {
    "fit": fitted,
    "hmc": chains,
    "sample": lambda **source: MeanField(torch.zeros(2), 0.5).sample(3, **source),
    "generator": lambda **source: Generator(2, hidden=(4,), **source).output.weight.detach(),
    "flow": lambda **source: Flow(2, 3, **source).sample(3, seed=0),
    "matrices": lambda **source: MatrixGenerator(5, [(1, 2), (2, 3)], noise_scale=0.1, **source).sample(3, seed=0),
    "split matrices": lambda **source: SplitMatrixGenerator(
        4, [(1, 2), (2, 2)], [[(1, 2), (1, 2)], [(1, 2), (1, 2)]], noise_scale=0.1, **source
    ).sample(3, seed=0),
    "multiplicative": lambda **source: MultiplicativeFlow([(2, 3)], torch.ones(6), **source).sample(3, seed=0),
    "for weights": lambda **source: Generator.for_weights(torch.ones(3), **source).output.weight.detach(),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_seed_is_a_generator_of_it(start):
    one = start(seed=3)
    assert torch.equal(one, start(rng=torch.Generator().manual_seed(3)))
    assert torch.equal(one, start(seed=3)) and not torch.equal(one, start(seed=4))


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_it_is_exactly_one_of_the_two(start, rng):
    with pytest.raises(ValueError, match="give rng or seed, not both, got seed = 3"):
        start(seed=3, rng=rng)
    with pytest.raises(ValueError, match="rng must be a torch.Generator, such as .*, got None"):
        start()


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "seed must be a whole number >= 0, got -1"),
        (1.5, "seed must be a whole number >= 0, got 1.5"),
        (True, "seed must be a whole number >= 0, got True"),
        (2**64, "seed must be below 2"),
    ],
)
def test_seeds_that_are_none_are_refused(seed, message):
    with pytest.raises(ValueError, match=message):
        chosen_rng(None, seed)
    assert chosen_rng(None, 2**64 - 1).initial_seed() == 2**64 - 1


def test_free_particles_need_neither():
    particles = Particles(torch.ones(3, 2))
    assert torch.equal(particles.sample(None), particles.sample(None, seed=0))
