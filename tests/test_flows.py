"""Planar flows, generators with wider noise, and the optimizers that train them."""

import math

import pytest
import torch
from torch import nn
from torch.func import jacrev, vmap
from torch.testing import assert_close

from gpvi_lib import GPVI, BlockInverse, Flow, Gaussian, Generator, MeanField, NegativeELBO, UnknownName, fit
from gpvi_lib.experiments.build import build_optimizer, build_sampler
from gpvi_lib.optimizers import Adam, RMSprop
from gpvi_lib.samplers import normal_log_prob, standard_normal

F64 = torch.float64


def flow(rng, depth=5, **arguments):
    return Flow(2, depth, base_stdev=1.7, rng=rng, **arguments)


def bent(rng, **arguments):
    """Far from the identity, with w·u < -1 among the layers: û must differ from u there."""
    f = flow(rng, **arguments)
    with torch.no_grad():
        for layer in f.layers:
            layer.u.mul_(3)
            layer.w.mul_(3)
            layer.bias.uniform_(-1, 1, generator=rng)
        assert min(float(layer.u @ layer.w) for layer in f.layers) < -1
    return f


def test_the_density_is_that_of_the_map(rng):
    f = bent(rng, dtype=F64)
    x, log_q = f.rsample_with_log_prob(50, torch.Generator().manual_seed(3))
    z = 1.7 * standard_normal((50, 2), torch.Generator().manual_seed(3), x)
    sign, log_det = torch.linalg.slogdet(vmap(jacrev(lambda point: f.push(point[None])[0][0]))(z))
    assert bool((sign > 0).all())  # invertible layers
    assert_close(log_q, normal_log_prob(z, 1.7) - log_det)
    assert_close(f.push(z)[0], x)


def test_the_layers_are_planar_as_rezende_and_mohamed_define_them(rng):
    f = bent(rng, dtype=F64)
    x = z = standard_normal((50, 2), rng, torch.empty(0, dtype=F64))
    for layer in f.layers:
        along = layer.w @ layer.u
        u = layer.u + (nn.functional.softplus(along) - 1 - along) * layer.w / layer.w.square().sum()
        x = x + u * torch.tanh(x @ layer.w + layer.bias)[:, None]
    assert_close(f.push(z)[0], x)


def test_a_step_of_training_shows_in_the_same_noise(rng):
    f, z = flow(rng), torch.ones(3, 2)
    before = f.push(z)[0].detach()
    with torch.no_grad():
        f.layers[0].bias.add_(1)
    assert not torch.allclose(f.push(z)[0], before)


def test_first_weights_come_from_the_generator_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = (flow(torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert sum(parameter.numel() for parameter in one.parameters()) == 5 * 5
    assert len(torch.stack([layer.w for layer in one.layers]).unique()) == 10
    for layer in one.layers:
        assert bool((layer.u.abs() <= 1 / math.sqrt(2)).all()) and bool((layer.bias == 0).all())


def test_a_flow_learns_a_gaussian(rng):
    target = Gaussian(torch.tensor([1.0, -0.5]), torch.diag(torch.tensor([0.5, 2.0])))
    f = Flow(2, 8, rng=rng)
    fit(f, target, NegativeELBO(100), steps=400, optimizer=Adam(lr=2e-2, final_lr=1e-4), rng=rng, progress=False)
    x, log_q = f.rsample_with_log_prob(5_000, rng)
    divergence = (log_q - target.log_prob(x)).mean().item()
    assert -0.02 < divergence < 0.1  # at the start about 1
    assert_close(x.detach().mean(0), target.mean, atol=0.15, rtol=0)


def test_samples_with_and_without_density_are_the_same(rng):
    f = flow(rng)
    x, _ = f.rsample_with_log_prob(7, torch.Generator().manual_seed(3))
    assert torch.equal(f.sample(7, torch.Generator().manual_seed(3)), x)
    assert torch.equal(f.rsample(7, torch.Generator().manual_seed(3)), x)


@pytest.mark.parametrize("arguments", [{"depth": 0}, {"base_stdev": 0.0}])
def test_a_flow_without_layers_or_spread_is_refused(arguments, rng):
    with pytest.raises(ValueError, match="(depth|base_stdev) must be"):
        Flow(2, **arguments, rng=rng)


def test_experiments_can_name_a_flow(rng):
    built = build_sampler({"kind": "flow", "depth": 3, "base_stdev": 6.0, "dtype": "float64"}, 2, 1.0, rng)
    assert (len(built.layers), built.base_stdev, built.layers[0].u.dtype) == (3, 6.0, F64)
    with pytest.raises(UnknownName, match="flow"):
        build_sampler({"kind": "float"}, 2, 1.0, rng)


# The standard deviation of a generator's noise


def test_wider_noise_of_a_linear_generator_is_a_wider_gaussian(rng):
    f = Generator(2, noise_scale=None, input_stdev=3.0, rng=rng, dtype=F64)
    x, log_q = f.rsample_with_log_prob(20, rng)
    weight, bias = f.output.weight.detach(), f.output.bias.detach()
    gaussian = torch.distributions.MultivariateNormal(bias, 9 * weight @ weight.mT)
    assert_close(log_q, gaussian.log_prob(x))
    z = f.noise(40_000, rng)
    assert float(z.std()) == pytest.approx(3, rel=5 / math.sqrt(2 * 80_000))


def test_wider_noise_is_a_wider_first_layer(rng):
    """The same function, density and functional gradient; only the steps of training differ."""
    wide, unit = (
        Generator(2, 2, (7, 6), noise_scale=None, input_stdev=stdev, rng=rng.manual_seed(4), dtype=F64)
        for stdev in (2.0, 1.0)
    )
    with torch.no_grad():
        unit.hidden[0].weight.mul_(2)
    target = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    found = []
    for f in (wide, unit):
        x, log_q = f.rsample_with_log_prob(30, rng.manual_seed(5))
        source, query = f.noise(9, rng.manual_seed(6)), f.noise(8, rng)
        phi, _ = GPVI(9, BlockInverse()).functional_gradient(f, target, source, query, None, rng)
        found.append((x, log_q, phi))
    for one, other in zip(*found, strict=True):
        assert_close(one, other)


def test_noise_without_spread_is_refused(rng):
    with pytest.raises(ValueError, match="input_stdev σ must be positive, got 0"):
        Generator(2, input_stdev=0, rng=rng)


# Optimizers


class Parabola:
    dim, num_data = 2, None

    def log_prob(self, x, batch=None):
        return -x.square().sum(-1)


class Everywhere(NegativeELBO):
    """Mean of the target at the sampler's mean: no randomness in the gradient."""

    def __call__(self, sampler, target, batch, rng):
        loss = -target.log_prob(sampler.mean[None]).mean()
        return loss, {}


def trained(optimizer):
    sampler = MeanField(torch.tensor([1.0, -2.0]), 0.1)
    rng = torch.Generator().manual_seed(0)
    fit(sampler, Parabola(), Everywhere(1), steps=3, optimizer=optimizer, rng=rng, progress=False)
    return sampler.mean.detach()


def test_rmsprop_with_weight_decay_is_torchs():
    mean = torch.tensor([1.0, -2.0], requires_grad=True)
    optimizer = torch.optim.RMSprop([mean], lr=0.1, weight_decay=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        mean.square().sum().backward()
        optimizer.step()
    assert torch.equal(trained(RMSprop(0.1, weight_decay=0.3)), mean.detach())
    assert not torch.equal(trained(RMSprop(0.1)), mean.detach())
    assert not torch.equal(trained(Adam(0.1, weight_decay=0.3)), trained(Adam(0.1)))


def test_rmsprop_by_hand():
    """One step: g / (sqrt(0.01 g^2) + ε) is ten times the sign of the gradient."""
    expected = torch.tensor([1.0, -2.0]) - 0.1 * 10 * torch.tensor([1.0, -1.0])
    sampler = MeanField(torch.tensor([1.0, -2.0]), 0.1)
    rng = torch.Generator().manual_seed(0)
    fit(sampler, Parabola(), Everywhere(1), steps=1, optimizer=RMSprop(lr=0.1), rng=rng, progress=False)
    assert_close(sampler.mean.detach(), expected, atol=1e-5, rtol=0)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(UnknownName, match="unknown optimizer 'adagrad'.*adam, rmsprop, sgd"):
        build_optimizer({"optimizer": "adagrad", "lr": 0.1})
    for wrong in ("adam", lambda parameters: None):
        with pytest.raises(TypeError, match="optimizer must be one of gpvi_lib's, such as Adam"):
            trained(wrong)


class Stop(Exception):
    pass


@pytest.mark.parametrize("optimizer", [Adam, RMSprop])
def test_a_flow_resumes_bit_for_bit(optimizer, tmp_path):
    target = Gaussian(torch.zeros(2), torch.eye(2))

    def train(stop_at=None, checkpoint=None):
        rng = torch.Generator().manual_seed(2)
        f = Flow(2, 3, rng=rng)

        def callback(step, sampler):
            if step == stop_at:
                raise Stop
            return {"sum": float(sum(parameter.detach().sum() for parameter in sampler.parameters()))}

        result = fit(
            f, target, NegativeELBO(5), steps=8, rng=rng, progress=False, callback=callback,
            callback_every=1, optimizer=optimizer(1e-2, weight_decay=1e-2), checkpoint=checkpoint, checkpoint_seconds=0,
        )  # fmt: skip
        return result.history, f.state_dict()

    checkpoint = tmp_path / "run.pt"
    with pytest.raises(Stop):
        train(stop_at=5, checkpoint=checkpoint)
    resumed, expected = train(checkpoint=checkpoint), train()
    assert resumed[0] == expected[0]
    for name, value in expected[1].items():
        assert torch.equal(value, resumed[1][name]), name
