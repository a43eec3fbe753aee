"""The kernel Stein discrepancy: against a double loop, zero in the mean under the target, and as an objective."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib.directions import SVGD
from gpvi_lib.fitting import fit
from gpvi_lib.kernels import RBF, squared_distances
from gpvi_lib.metrics import ksd_u_statistic, ksd_v_statistic, stein_kernel
from gpvi_lib.objectives import KernelSteinDiscrepancy, surrogate
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator, Particles
from gpvi_lib.targets import Banana, Gaussian, GaussianMixture, score

H = 1.5


def kernel(a, b):
    return torch.exp(-(a - b).square().sum() / H)


def naive_stein_kernel(a, b, sa, sb):
    """``u_p(a, b)`` from its definition, every derivative of the kernel by automatic differentiation."""
    first = torch.func.grad(kernel, 0)
    k, ka, kb = kernel(a, b), first(a, b), torch.func.grad(kernel, 1)(a, b)
    trace = torch.func.jacfwd(first, 1)(a, b).trace()
    return sa @ sb * k + sa @ kb + sb @ ka + trace


@pytest.fixture
def banana():
    return Banana(scale=1.2, bend=0.7, width=0.6)


def test_the_statistics_are_the_double_loop(normal):
    x, s = normal(6, 3), normal(6, 3)
    pairs = [(i, j) for i in range(6) for j in range(6)]
    u = {(i, j): naive_stein_kernel(x[i], x[j], s[i], s[j]) for i, j in pairs}
    assert_close(ksd_u_statistic(x, s, RBF(H)), sum(u[i, j] for i, j in pairs if i != j) / 30)
    assert_close(ksd_v_statistic(x, s, RBF(H)), sum(u.values()) / 36)
    assert_close(stein_kernel(x, s, RBF(H)), torch.stack([u[pair] for pair in pairs]).reshape(6, 6))


def test_the_stein_kernel_survives_points_far_from_the_origin(normal):
    x, s = normal(6, 3), normal(6, 3)
    # Products of coordinates near 1e6 have rounding errors of 1e12 eps = 2e-4 unless the points are centred first;
    # x + 1e6 itself is rounded by 1e-10, times scores and 2 / h of order 1.
    assert_close(stein_kernel(x + 1e6, s, RBF(H)), stein_kernel(x, s, RBF(H)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("bandwidth", [0.5, 2.0])
def test_the_u_statistic_is_zero_in_the_mean_under_the_target(banana, rng, bandwidth):
    values = []
    for _ in range(200):
        x = banana.sample(30, rng, torch.float64)
        values.append(ksd_u_statistic(x, score(banana, x), RBF(bandwidth)))
    values = torch.stack(values)
    standard_error = values.std() / math.sqrt(len(values))
    assert abs(values.mean()) < 4 * standard_error
    assert standard_error < 0.1  # else the test could not fail


def test_the_u_statistic_sees_another_distribution(banana, rng):
    x = banana.sample(400, rng, torch.float64) + torch.tensor([0.0, 0.5], dtype=torch.float64)
    own = banana.sample(400, rng, torch.float64)
    shifted, right = (ksd_u_statistic(points, score(banana, points), RBF(1.0)) for points in (x, own))
    assert shifted > 10 * right.abs()


def test_the_v_statistic_is_never_negative_and_counts_the_diagonal(normal):
    x, s = normal(9, 2), 0.1 * normal(9, 2)
    u, v = ksd_u_statistic(x, s, RBF(H)), ksd_v_statistic(x, s, RBF(H))
    diagonal = (s.square().sum(-1) + 2 * 2 / H).mean()
    assert_close(v, (8 * u + diagonal) / 9)
    for _ in range(20):
        assert ksd_v_statistic(normal(5, 2), normal(5, 2), RBF(H)) > 0


def test_ksd_is_the_rate_at_which_svgd_lowers_the_divergence(normal):
    """KSD^2 = E_q[s·v + div v] for SVGD's field v: the definition of v by Stein's operator."""
    x, s = normal(7, 2), normal(7, 2)

    def field(point):  # SVGD's velocity at any point, the sources held fixed
        k, weight = RBF(H)(x, point[None])
        return (k.mT @ s + weight.mT @ x - weight.sum(0)[:, None] * point)[0] / len(x)

    assert_close(torch.stack([field(p) for p in x]), -SVGD(RBF(H))(x, s)[0])
    divergence = torch.stack([torch.func.jacrev(field)(p).trace() for p in x])
    rate = ((torch.stack([field(p) for p in x]) * s).sum(-1) + divergence).mean()
    assert_close(ksd_v_statistic(x, s, RBF(H)), rate)


def with_its_bandwidth(kernel, x):
    """The kernel with the bandwidth that it takes on x as a number."""
    return RBF(float(kernel.bandwidth_at(squared_distances(x, x), same=True)))


@pytest.mark.parametrize("rule", ["paper", "half", 0.7])
def test_a_fixed_bandwidth_gives_the_same_kernel(normal, rule):
    x = normal(8, 2)
    fixed = with_its_bandwidth(RBF(rule), x)
    assert_close(fixed(x)[0], RBF(rule)(x)[0])


@pytest.mark.parametrize("statistic", ["u", "v"])
@pytest.mark.parametrize("bandwidth", [H, "paper"])
def test_the_direction_is_the_gradient_of_the_statistic(banana, normal, statistic, bandwidth):
    """Against central differences of the statistic, the bandwidth held fixed as it is at the start."""
    x, t = normal(5, 2), 1e-5
    fixed = with_its_bandwidth(RBF(bandwidth), x)
    estimate = {"u": ksd_u_statistic, "v": ksd_v_statistic}[statistic]
    phi = KernelSteinDiscrepancy(RBF(bandwidth), statistic=statistic).direction(x, banana)
    expected = torch.zeros_like(x)
    for i in range(5):
        for j in range(2):
            ends = []
            for sign in (1, -1):
                moved = x.clone()
                moved[i, j] += sign * t
                ends.append(estimate(moved, score(banana, moved), fixed))
            expected[i, j] = 5 * (ends[0] - ends[1]) / (2 * t)
    # Truncation t² = 1e-10 times third derivatives, rounding 1e-16 / t = 1e-11, both times values up to 1e3.
    assert_close(phi, expected, rtol=1e-6, atol=1e-6)


def test_the_loss_pulls_its_direction_back_through_a_generator(banana, rng):
    generator = Generator(2, 2, (8,), activation="tanh", rng=rng, dtype=torch.float64)
    objective = KernelSteinDiscrepancy(RBF(H), num_samples=6)
    twins = [torch.Generator().manual_seed(3) for _ in range(2)]
    loss, info = objective(generator, banana, None, twins[0])
    found = torch.autograd.grad(loss, list(generator.parameters()), allow_unused=True)
    x = generator.rsample(6, twins[1])
    through = torch.autograd.grad(
        surrogate(x, objective.direction(x.detach(), banana)), list(generator.parameters()), allow_unused=True
    )
    assert_close(found, through)
    assert not info["ksd"].requires_grad


@pytest.mark.parametrize("sampler", ["particles", "generator"])
def test_training_on_it_reaches_the_target(sampler, rng, normal):
    target = Gaussian(torch.full((2,), 2.0).double(), 0.5 * torch.eye(2).double())
    if sampler == "particles":
        trained, num_samples = Particles(normal(20, 2)), None
    else:
        trained, num_samples = Generator(2, 2, noise_scale=None, rng=rng, dtype=torch.float64), 50
    objective = KernelSteinDiscrepancy(RBF(2.0), num_samples, statistic="v" if sampler == "particles" else "u")
    fit(trained, target, objective, steps=300, optimizer=Adam(lr=0.1, final_lr=1e-3), rng=rng, progress=False)
    x = trained.sample(None if sampler == "particles" else 500, rng)
    # The mean of 500 draws is off by sqrt(2 * 0.5 / 500) = 0.04; particles and training add less than 0.1.
    assert (x.mean(0) - 2).norm() < 0.15
    assert x.var(0).mean() == pytest.approx(0.5, rel=0.3)


def test_free_particles_can_cheat_the_u_statistic():
    """A pair on both sides of a ridge has opposite scores: the U-statistic falls without bound, V does not."""
    banana, far = Banana(bend=1.0, width=0.5), 10.0
    ridge = far**2 - 1
    x = torch.tensor([[far, ridge - 0.3], [far, ridge + 0.3]], dtype=torch.float64)
    s = score(banana, x)
    assert ksd_u_statistic(x, s, RBF(1.0)) < -100
    assert ksd_v_statistic(x, s, RBF(1.0)) > 0


def test_impossible_arguments_are_refused(normal):
    with pytest.raises(ValueError, match="at least 2 points, got 1"):
        ksd_u_statistic(normal(1, 2), normal(1, 2), RBF(H))
    with pytest.raises(ValueError, match="statistic must be 'u' or 'v', got 'w'"):
        KernelSteinDiscrepancy(statistic="w")


def test_a_target_with_second_derivatives_everywhere_is_enough(rng):
    mixture = GaussianMixture(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    particles = Particles(mixture.sample(5, rng))
    loss, _ = KernelSteinDiscrepancy()(particles, mixture, None, rng)
    loss.backward()
    assert loss.isfinite() and particles.x.grad.isfinite().all()
    assert (particles.x.grad != 0).any(1).all()  # each particle is moved
