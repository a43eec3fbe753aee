"""Directions against naive formulas, and the Stein critic against the field it should learn."""

import copy

import pytest
import torch
from kernel_directions import KERNEL_DIRECTIONS
from torch.testing import assert_close

from gpvi_lib.directions import GFSF, SVGD, SteinCritic
from gpvi_lib.experiments import build
from gpvi_lib.fitting import fit
from gpvi_lib.kernels import RBF
from gpvi_lib.objectives import ParVI
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator, Particles
from gpvi_lib.targets import Gaussian, score

H = 1.5


def kernel(a, b):
    return torch.exp(-(a - b).square().sum() / H)


def kernel_gradient(a, b):
    """∇_a k(a, b)."""
    return -2 / H * (a - b) * kernel(a, b)


@pytest.mark.parametrize("kind", build.DIRECTIONS)
def test_every_registered_direction_leads_to_the_target(kind):
    """From (4, 0) on average to N(0, I), without a wrong sign of the score or of the repulsion, which collapses."""
    rng = torch.Generator().manual_seed(0)
    points = torch.randn(40, 2, generator=rng) + torch.tensor([4.0, 0.0])
    sampler, objective = Particles(points), build.build_objective({"kind": "parvi", "direction": {"kind": kind}})
    fit(
        sampler,
        Gaussian(torch.zeros(2), torch.eye(2)),
        objective,
        steps=400,
        optimizer=Adam(lr=0.05),
        rng=rng,
        progress=False,
    )
    x = sampler.sample(None, rng)
    # Forty exact draws have a mean within 4 / sqrt(40) = 0.63 of 0 in each coordinate.
    assert bool((x.mean(0).abs() < 0.63).all()), f"{kind} ends at {x.mean(0).tolist()}"
    # Their standard deviation is within 4 / sqrt(78) = 0.45 of 1; with an attraction it ends below 0.2.
    assert bool(((x.std(0) - 1).abs() < 0.45).all()), f"the points' spread under {kind} ends at {x.std(0).tolist()}"


def test_svgd_is_the_double_loop(normal):
    x, s = normal(6, 3), normal(6, 3)
    expected = torch.stack(
        [-sum(kernel(a, b) * sa + kernel_gradient(a, b) for a, sa in zip(x, s, strict=True)) / 6 for b in x]
    )
    assert_close(SVGD(RBF(H))(x, s)[0], expected)


def test_svgd_repels():
    """Without a target, descending along φ drives two points apart."""
    x = torch.tensor([[-0.5], [0.5]])
    phi, _ = SVGD(RBF(1.0))(x, torch.zeros(2, 1))
    assert phi[0] > 0 > phi[1]


@pytest.mark.parametrize("ridge", [1e-4, 0.3])
def test_gfsf_is_the_naive_formula(normal, ridge):
    x, s = normal(6, 3), normal(6, 3)
    k = torch.stack([torch.stack([kernel(a, b) for b in x]) for a in x])
    gradients = torch.stack([sum(kernel_gradient(a, b) for a in x) for b in x])
    expected = -(s + torch.linalg.inv(k + ridge * torch.eye(6, dtype=torch.float64)) @ gradients)
    # (K + α I)⁻¹ is at most 1/α = 1e4, times eps = 2e-16.
    assert_close(GFSF(RBF(H), ridge)(x, s)[0], expected, rtol=1e-10, atol=1e-10)


def test_gfsf_without_repulsion_is_the_score(normal):
    x, s = normal(6, 3), normal(6, 3)
    # What is left is at most G / α, and |G| is at most n times the largest kernel gradient (below 1 here).
    assert_close(GFSF(RBF(H), 1e9)(x, s)[0], -s, rtol=0, atol=6e-9)


def test_gfsf_repulsion_estimates_the_score_of_the_samples(rng):
    # q = N(0, 1), so the repulsion estimates ∇log q(x) = -x, of size 1. With this wide kernel it is about a polynomial
    # fit of degree 5, whose error has the variance (1 + 2 + ... + 5) / n: a root mean square of 0.2. Two are allowed.
    x = torch.randn(400, 1, generator=rng, dtype=torch.float64)
    phi, _ = GFSF(RBF(8.0), ridge=1.0)(x, torch.zeros_like(x))
    assert (phi + x).square().mean().sqrt() < 0.4


@pytest.mark.parametrize("make", KERNEL_DIRECTIONS)
def test_one_point_follows_the_score(make, normal, rng):
    x, s = normal(1, 3), normal(1, 3)
    rtol = 1e-4 if make is GFSF else 1e-12
    assert_close(make(RBF(H))(x, s, rng)[0], -s, rtol=rtol, atol=0)


@pytest.mark.parametrize("make", KERNEL_DIRECTIONS)
def test_order_of_the_points_does_not_matter(make, normal, rng):
    x, s, order = normal(7, 2), normal(7, 2), torch.randperm(7, generator=rng)
    # GFSF multiplies rounding by up to 1 / α = 1e4.
    assert_close(make()(x[order], s[order], rng)[0], make()(x, s, rng)[0][order], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ridge", [0, -1e-4, float("nan")])
def test_gfsf_needs_a_positive_ridge(ridge):
    with pytest.raises(ValueError, match="ridge α must be a positive finite"):
        GFSF(ridge=ridge)


@pytest.mark.parametrize("l2_weight", [0.5, 2.0])
@pytest.mark.parametrize("hidden", [(), (64,)])
def test_the_stein_critic_learns_the_difference_of_the_scores(rng, hidden, l2_weight):
    p = Gaussian(torch.tensor([1.0, -0.5]).double(), torch.tensor([[1.5, 0.5], [0.5, 0.8]]).double())
    critic, n, steps = SteinCritic(hidden, lr=1e-2, l2_weight=l2_weight), 500, 300
    for step in range(steps):
        x = torch.randn(n, 2, generator=rng, dtype=torch.float64)
        critic(x, score(p, x), rng)
        for group in critic.optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / steps)
    x = torch.randn(n, 2, generator=rng, dtype=torch.float64)
    truth = -x - score(p, x)  # ∇log q - ∇log p
    error = (critic(x, score(p, x), rng)[0] - truth).square().sum(-1).mean().sqrt()
    # A linear critic's minimiser on n samples replaces ∇log q = -x by -Σ̂⁻¹(x - μ̂), off by sqrt((d (d + 1) + d) / n) in
    # the root mean square: 0.13. Averaging over steps must leave less. Hidden ReLU units: 10 % of the truth (about 2).
    assert error < ((8 / n) ** 0.5 if not hidden else 0.2)


def test_the_critic_trains_as_often_as_it_says(rng, normal):
    x, s = normal(8, 2), normal(8, 2)
    twins = [torch.Generator().manual_seed(5) for _ in range(2)]
    one, four = SteinCritic((8,), updates=1), SteinCritic((8,), updates=4)
    for _ in range(4):
        stepwise, _ = one(x, s, twins[0])
    at_once, info = four(x, s, twins[1])
    assert torch.equal(stepwise, at_once)
    assert info["critic_loss"].isfinite()
    assert not at_once.requires_grad


@pytest.mark.parametrize("calls", [0, 3])
def test_critic_state_round_trip_gives_the_same_next_output_and_randomness(calls, rng, normal):
    x, s = normal(8, 2), normal(8, 2)
    original, restored, twin = SteinCritic((8,)), SteinCritic((8,)), torch.Generator()
    for _ in range(calls):
        original(x, s, rng)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    twin.set_state(rng.get_state())
    for _ in range(2):
        assert torch.equal(original(x, s, rng)[0], restored(x, s, twin)[0])
    assert torch.equal(rng.get_state(), twin.get_state())


@pytest.mark.parametrize(
    "direction", [SVGD(), GFSF(), SteinCritic((8,), lr=0.02, updates=10)], ids=lambda d: type(d).__name__
)
def test_one_direction_serves_particles_and_generators(direction, rng, normal):
    target = Gaussian(torch.full((2,), 3.0).double(), torch.eye(2).double())
    generator = Generator(2, 1, (4,), rng=rng, dtype=torch.float64)
    for sampler, num_samples in ((Particles(normal(8, 2)), None), (generator, 8)):
        before = sampler.sample(num_samples, torch.Generator().manual_seed(1))
        fit(sampler, target, ParVI(direction, num_samples), steps=60, optimizer=Adam(lr=0.05), rng=rng, progress=False)
        after = sampler.sample(num_samples, torch.Generator().manual_seed(1))
        assert (after.mean(0) - 3).norm() < 0.7 * (before.mean(0) - 3).norm()
