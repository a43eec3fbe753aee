"""Hand-made step sizes: the rules are PyTorch's optimizers without noise, MALA leaves its target invariant."""

import math

import pytest
import torch
from torch.testing import assert_close

import gpvi_lib
from gpvi_lib import (
    AdaptiveLangevin,
    Banana,
    Gaussian,
    GaussianMixture,
    MeanField,
    UnknownName,
    curvature,
    mala,
    power_decay,
    schedules,
)

F64 = torch.float64
OPTIMIZERS = {"adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop, "adadelta": torch.optim.Adadelta}


def test_power_decay():
    assert_close(power_decay(3, 10.0, 2.0, 0.5)[:, 0], 10 / torch.tensor([3.0, 4.0, 5.0], dtype=F64).sqrt())
    assert torch.equal(power_decay(4, 0.3, exponent=0.0), torch.full((4, 1), 0.3, dtype=F64))


@pytest.mark.parametrize("rule", schedules.RULES)
def test_without_its_noise_a_rule_is_the_optimizer(rule):
    target = Banana()
    net = AdaptiveLangevin(rule, MeanField(torch.ones(2, dtype=F64), 1.0), target, 6, 0.1, dtype=F64)
    inputs = net.inputs(4, torch.Generator().manual_seed(0))
    x = inputs.start.clone().requires_grad_()
    optimizer = OPTIMIZERS[rule]([x], lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        (-target.log_prob(x).sum()).backward()
        optimizer.step()
    inputs.noise.zero_()
    assert_close(net(inputs), x.detach())


@pytest.mark.parametrize("rule", schedules.RULES)
def test_the_noise_has_twice_the_step_as_its_variance(rule):
    """On a target so flat that the drift is nothing, the first step of every chain is that of the rule."""
    flat = Gaussian(torch.zeros(1, dtype=F64), 1e12 * torch.eye(1, dtype=F64))
    net = AdaptiveLangevin(rule, MeanField(torch.full((1,), 1e10, dtype=F64), 1.0), flat, 1, 0.05, dtype=F64)
    inputs = net.inputs(3, torch.Generator().manual_seed(0))
    slope = 1e10 / 1e12
    step = {
        "adagrad": 0.05 / slope,
        "rmsprop": 0.05 / math.sqrt(0.01 * slope**2),
        "adadelta": 0.05 * math.sqrt(1e-6 / (0.1 * slope**2 + 1e-6)),
    }[rule]
    moved = net(inputs) - inputs.start
    expected = -step * slope + math.sqrt(2 * step) * inputs.noise[0]
    assert_close(moved, expected, rtol=1e-5, atol=1e-5)


def test_an_adaptive_chain_has_no_path_density_and_no_other_rules():
    start = MeanField(torch.zeros(2))
    with pytest.raises(ValueError, match="depend on the chain's past"):
        AdaptiveLangevin("adagrad", start, Banana(), 2, 0.1).rsample_with_path_ratio(2, torch.Generator())
    with pytest.raises(ValueError, match="depend on the chain's past"):
        AdaptiveLangevin("adagrad", start, Banana(), 2, 0.1).last_layer(2, torch.Generator())
    with pytest.raises(UnknownName, match="setting of an AdaptiveLangevin 'noise'"):
        AdaptiveLangevin("adagrad", start, Banana(), 2, 0.1, noise=False)
    with pytest.raises(UnknownName, match="rule of step sizes 'adam'"):
        AdaptiveLangevin("adam", start, Banana(), 2, 0.1)


def test_curvature_is_the_inverse_diagonal_of_the_precision(normal):
    a = normal(3, 3)
    precision = a @ a.mT + torch.eye(3, dtype=F64)
    target = Gaussian(normal(3), torch.linalg.inv(precision))
    assert_close(curvature(target, normal(3)), 1 / precision.diagonal())
    mixture = GaussianMixture(torch.tensor([[-3.0], [3.0]]))
    with pytest.raises(ValueError, match="second derivative of -8"):
        curvature(mixture, torch.zeros(1))  # the valley between the modes: 1 - 3^2


def test_mala_leaves_its_target_invariant_and_finds_its_step(rng):
    """Mean of 4,000 chains after 50 proposals from the target: 4 standard errors; too large a step would be seen."""
    draws = mala(
        lambda x: -0.5 * x.square().sum(-1), torch.randn(4_000, 1, generator=rng, dtype=F64), step_size=0.4,
        num_steps=50, burn_in=49, rng=rng, progress=False,
    ).samples[-1]  # fmt: skip
    assert abs(float(draws.mean())) < 4 / math.sqrt(4_000)
    assert float(draws.var()) == pytest.approx(1, rel=4 * math.sqrt(2 / 4_000))
    adapted = mala(
        lambda x: -50 * x.square().sum(-1), torch.zeros(50, 4), step_size=1.0, num_steps=400, burn_in=300, adapt=True,
        rng=rng, progress=False,
    )  # fmt: skip
    # As of HMC in test_hmc.py: the deviation of the rate that is kept, and the pull towards ten times the first step.
    deviation = math.sqrt(0.574 * (1 - 0.574) / 50 * (1 / (2 * 300**0.75) + 1 / 100))
    assert float(adapted.acceptance.mean()) == pytest.approx(0.574, abs=4 * deviation)
    with pytest.raises(ValueError, match="step_size η must be positive, got 0"):
        mala(lambda x: x.sum(-1), torch.zeros(1, 1), step_size=0.0, num_steps=1, rng=rng)


def test_mala_aims_at_the_optimal_acceptance(monkeypatch, rng):
    asked = {}
    monkeypatch.setattr("gpvi_lib.schedules.hmc", lambda *arguments, **settings: asked.update(settings))
    mala(lambda x: x.sum(-1), torch.zeros(2, 3), step_size=0.5, num_steps=1, rng=rng)
    assert (asked["target_acceptance"], asked["step_size"], asked["num_leapfrog"]) == (0.574, 1.0, 1)


def test_one_proposal_of_mala_is_a_langevin_step_that_may_be_refused(rng):
    target = Banana()
    x = torch.randn(6, 2, generator=rng, dtype=F64)
    result = mala(target.log_prob, x, step_size=1e-3, num_steps=1, rng=torch.Generator().manual_seed(1), progress=False)
    noise = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    langevin = x + 1e-3 * gpvi_lib.score(target, x) + math.sqrt(2e-3) * noise
    taken = result.acceptance > 0
    assert taken.sum() >= 5
    assert_close(result.samples[0][taken], langevin[taken])


def test_mala_takes_a_seed_in_place_of_a_generator():
    start, settings = torch.zeros(3, 2), {"step_size": 0.3, "num_steps": 4, "progress": False}

    def draws(**source) -> torch.Tensor:
        return mala(lambda x: -0.5 * x.square().sum(-1), start, **settings, **source).samples

    assert torch.equal(draws(seed=1), draws(rng=torch.Generator().manual_seed(1)))
    for source in ({}, {"seed": 1, "rng": torch.Generator()}):
        with pytest.raises(ValueError, match="rng"):
            draws(**source)
