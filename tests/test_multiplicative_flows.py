"""Multiplicative normalizing flows: what stands in for the density, the axes of z, training, and the flow itself."""

import math

import pytest
import torch

from gpvi_lib import (
    Adam,
    FlatModule,
    Gaussian,
    MultiplicativeFlow,
    NegativeELBO,
    check,
    fit,
    lenet5_unpadded,
    load_sampler,
    mlp,
    save_sampler,
)
from gpvi_lib.multiplicative_flows import MaskedCoupling, RowScales

F64 = torch.float64
SHAPES = [(), (2, 3), (2,), (2, 1, 1, 2)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(sampler, by: float, seed: int = 3):
    """The sampler with all its parameters elsewhere."""
    rng = seeded(seed)
    with torch.no_grad():
        for parameter in sampler.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype))
    return sampler


def flow(scale: float = 0.5, dtype=F64, **arguments) -> MultiplicativeFlow:
    mean = torch.linspace(0.5, 2, 13, dtype=dtype)
    return MultiplicativeFlow(SHAPES, mean, scale, hidden=5, rng=seeded(), **arguments)


@pytest.mark.parametrize("length", [1, 2])
def test_what_stands_in_for_the_density_is_normalised(length):
    """``E_q[p(w) r(z | w) / (q(w | z) q(z))] = 1`` for any density p, whatever the parameters, to 4 standard errors.

    z is spread as wide as r, or the weights of so few draws would all be near 0; so the error is at most 0.03.
    """
    mean = torch.linspace(0.2, 0.5, 6, dtype=F64)
    sampler = MultiplicativeFlow([(1, 2), (2,), (2, 1, 1, 1)], mean, 1.0, length=length, hidden=5, rng=seeded())
    moved(sampler, 0.2)
    with torch.no_grad():
        for rows in sampler.scales.values():
            rows.start.rho.fill_(1.25)  # softplus(1.25) = 1.5
            rows.start.mean.mul_(0.2)
            rows.auxiliary["probe"].fill_(1.0)
            rows.auxiliary["spread"].fill_(1.0)
    w, log_q = sampler.rsample_with_log_prob(200_000, seeded(1))
    p = torch.distributions.MultivariateNormal(w.mean(0), w.T.cov())
    weights = (p.log_prob(w) - log_q).exp().detach()
    se = float(weights.std()) / math.sqrt(len(weights))
    assert se < 0.05 and float(weights.mean()) == pytest.approx(1, abs=4 * se)


def test_z_goes_along_inputs_and_along_filters():
    sampler = flow(scale=1e-9)
    draws = sampler.sample(4, seed=2)
    mean = sampler.weights.mean.detach()
    _, dense, plain, filters = (
        (part / centre).view(4, *shape) if shape else part
        for part, centre, shape in zip(draws.split(sampler.sizes, 1), mean.split(sampler.sizes), SHAPES, strict=True)
    )
    assert torch.allclose(plain, torch.ones(4, 2, dtype=F64))
    assert torch.allclose(dense[:, 0], dense[:, 1]) and float(dense.std(0).min()) > 0.01
    assert float((dense[..., 0] - dense[..., 1]).abs().min()) > 0
    assert torch.allclose(filters[..., 0], filters[..., 1])
    assert float((filters[:, 0] - filters[:, 1]).abs().min()) > 0


def test_the_log_determinant_is_that_of_the_map():
    layer = moved(MaskedCoupling(4, 5, seeded(), F64), 0.5)
    z = torch.randn(3, 4, generator=seeded(1), dtype=F64)
    log_det = layer(z, seeded(2))[1].detach()
    for i in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda z: layer(z, seeded(2))[0], z)[i, :, i]
        assert float(log_det[i]) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), abs=1e-12)


def test_a_flow_begins_near_the_gaussian_that_it_multiplies():
    z = RowScales(50, 2, 20, seeded())(1_000, seeded(1))[0].detach()
    assert abs(float(z.mean()) - 1) < 0.2 and float(z.std()) < 0.3


def test_it_learns_a_correlation_that_mean_field_cannot():
    """Weights that leave one input are scaled together: the bound is nearer than half of what mean field lacks."""
    direction = torch.ones(6)
    covariance = 0.1 * torch.eye(6) + 0.25 * direction[:, None] * direction
    target = Gaussian(direction, covariance)
    lost = 0.5 * float(torch.linalg.inv(covariance).diagonal().log().sum() + torch.logdet(covariance))
    assert lost > 0.8
    sampler = MultiplicativeFlow([(6, 1)], 0.5 * direction, 0.3, hidden=20, rng=seeded())
    settings = {"optimizer": Adam(1e-2, 1e-4), "rng": seeded(1), "progress": False}
    fit(sampler, target, NegativeELBO(32), steps=1_500, **settings)
    x, log_q = sampler.rsample_with_log_prob(20_000, seeded(2))
    normalised = torch.distributions.MultivariateNormal(direction, covariance)
    bound = (normalised.log_prob(x) - log_q).detach()
    se = float(bound.std()) / math.sqrt(len(bound))
    assert -0.5 * lost < float(bound.mean()) < 4 * se


def test_the_shapes_are_those_of_the_network(rng):
    network = FlatModule(lenet5_unpadded())
    sampler = MultiplicativeFlow(network.shapes, torch.zeros(network.dim), 0.1, rng=rng)
    assert sampler.dim == 44_426 and [len(rows.start.mean) for rows in sampler.scales.values()] == [6, 16, 256, 120, 84]
    assert sampler.sample(2, rng).shape == (2, 44_426)


def test_other_shapes_are_refused(rng):
    shapes = FlatModule(mlp([3, 8, 1])).shapes
    with pytest.raises(ValueError, match="the shapes have 41 weights, and there are 40 means"):
        MultiplicativeFlow(shapes, torch.zeros(40), rng=rng)
    with pytest.raises(ValueError, match="length must be a whole number >= 1, got 0"):
        MultiplicativeFlow(shapes, torch.zeros(41), length=0, rng=rng)
    with pytest.raises(ValueError, match="initial scale must be positive"):
        MultiplicativeFlow(shapes, torch.zeros(41), 0.0, rng=rng)


def test_a_saturated_gate_is_no_nan():
    layer = MaskedCoupling(4, 5, seeded())
    with torch.no_grad():
        layer.network[-1].bias.fill_(-200.0)
    z, log_det = layer(torch.ones(3, 4), seeded(1))
    log_det.sum().backward()
    assert bool(torch.isfinite(z).all()) and bool(torch.isfinite(log_det).all())
    assert all(bool(torch.isfinite(p.grad).all()) for p in layer.parameters())


def test_a_mean_with_two_axes_is_refused(rng):
    with pytest.raises(ValueError, match=r"one axis and be where rng is, got \(2, 3\) on cpu"):
        MultiplicativeFlow([(2, 3)], torch.zeros(2, 3), rng=rng)


def test_check_takes_no_bound_for_a_density(rng):
    target = Gaussian(torch.zeros(6), torch.eye(6))
    report = check(MultiplicativeFlow([(2, 3)], torch.zeros(6), 1.0, rng=rng), target, rng=rng)
    assert "MultiplicativeFlow is only bounded" in str(report)


def test_flows_without_a_matrix_are_a_gaussian_and_can_be_kept(rng, tmp_path):
    sampler = MultiplicativeFlow([(3,)], torch.zeros(3), 0.1, rng=rng)
    loaded = load_sampler(save_sampler(sampler, tmp_path / "flow.safetensors"))
    assert torch.equal(loaded.sample(5, seed=1), sampler.sample(5, seed=1))
