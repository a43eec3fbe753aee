"""The measuring tools of notebook 06, against closed forms."""

import math

import pytest
import torch
from scipy.stats import chi2

from gpvi_lib import GPVI, RBF, SVGD, Gaussian, Generator, ParVI, fit
from gpvi_lib.experiments import descent, get_experiment
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.optimizers import Adam

F64 = torch.float64


@pytest.fixture
def linear():
    """A linear generator, its Gaussian target, and the gradient of the divergence, which is known (C, c)."""
    rng = torch.Generator().manual_seed(1)
    f = Generator(3, 3, (), noise_scale=None, rng=rng, dtype=F64)
    with torch.no_grad():
        f.output.weight.add_(torch.eye(3))
    root = torch.randn(3, 3, generator=rng, dtype=F64)
    target = Gaussian(torch.ones(3, dtype=F64), root @ root.mT + 0.5 * torch.eye(3))
    precision, W, b = torch.linalg.inv(target.covariance), f.output.weight.detach(), f.output.bias.detach()
    G = torch.cat([(precision @ W - torch.linalg.inv(W).mT).flatten(), precision @ (b - target.mean)])
    return f, target, G


def test_the_exact_gradient_is_that_of_the_divergence(linear):
    f, target, G = linear
    truth = descent.exact_gradient(f, target, 30, 1000, torch.Generator().manual_seed(0))
    error = truth.gradients.std(0) / 30**0.5
    assert ((truth.gradients.mean(0) - G).abs() < 5 * error).all()
    assert truth.folded in (0.0, 1.0)
    W, b = f.output.weight.detach(), f.output.bias.detach()
    q = torch.distributions.MultivariateNormal(b, W @ W.mT)
    p = torch.distributions.MultivariateNormal(target.mean, target.covariance)
    exact = torch.distributions.kl_divergence(q, p)
    assert abs(truth.kl.mean() - exact) < 5 * truth.kl.std() / 30**0.5


def test_the_published_direction_is_two_batches_and_a_drive(linear):
    """The mean over single batches of few points, where the self term is large, is what the formula says."""
    f, target, _ = linear
    n, rng = 4, torch.Generator().manual_seed(2)
    h = descent.typical_bandwidth(lambda many: f.sample(many, torch.Generator().manual_seed(many)), n)
    drawn = descent.gradients(descent.objective("amortized_svgd", n, RBF(h)), f, target, 1500, rng)
    two = descent.gradients(descent.objective("amortized_svgd_two_batches", n, RBF(h)), f, target, 1500, rng)
    drive = descent.gradient(-target.log_prob(f.rsample(50_000, rng)).mean(), f)
    formula = (1 - 1 / n) * two.mean(0) + drive / n
    error = (drawn.var(0) / 1500 + two.var(0) / 1500).sqrt() + 0.01 * drive.abs()
    assert ((drawn.mean(0) - formula).abs() < 5 * error).all()
    assert ((drawn.mean(0) - two.mean(0)).abs() > 5 * error).any()  # without the drive it would not pass


def test_expected_directions_agree_with_their_single_batches(linear):
    f, target, _ = linear
    found = descent.expected_directions(f, target, 20, 20, 100, torch.Generator().manual_seed(3))
    assert set(found) == set(descent.DIRECTIONS)
    for name, blocks in found.items():
        rng = torch.Generator().manual_seed(4)
        single = descent.gradients(descent.objective(name, 20), f, target, 500, rng).mean(0)
        assert descent.cosine(blocks.mean(0), single) > 0.97, name


def test_a_bandwidth_for_batches_of_n_is_the_median_over_log_n():
    rng = torch.Generator().manual_seed(5)
    h = descent.typical_bandwidth(lambda many: torch.randn(many, 1, generator=rng, dtype=F64), 100)
    assert h == pytest.approx(2 * 0.4549 / 4.6052, rel=0.05)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    blocks = torch.randn(25, 1, generator=torch.Generator().manual_seed(6), dtype=F64)
    estimate, error = descent.jackknife(lambda mean: mean[0], blocks)
    assert estimate == pytest.approx(float(blocks.mean()))
    assert error == pytest.approx(float(blocks.std()) / 5)


def test_gradient_is_zero_in_weights_that_do_not_matter(linear):
    f, _, _ = linear
    assert (descent.gradient(f.output.bias.sum(), f)[:9] == 0).all()


def test_a_fold_is_reported():
    f = Generator(2, 1, (8,), noise_scale=0.1, activation="tanh", rng=torch.Generator().manual_seed(7), dtype=F64)
    with torch.no_grad():
        f.output.weight.mul_(8)
    target = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    assert 0 < descent.exact_gradient(f, target, 2, 2000, torch.Generator().manual_seed(0)).folded < 1


@pytest.mark.parametrize("experiment", descent.ALONG_TRAINING, ids=lambda experiment: experiment.name)
def test_a_cell_measures_every_direction_at_every_stage(experiment):
    config = experiment.config("gpvi", "smoke")
    context = RunContext(torch.device("cpu"), 0, None, "test", False)
    outcome = experiment.run(config, "gpvi", context)
    stages, batches = len(config["stages"]), config["batches"]
    assert outcome.arrays["stage"].tolist() == config["stages"]
    for name in descent.DIRECTIONS:
        assert outcome.arrays[f"{name}_expected"].shape == (stages,)
        assert outcome.arrays[f"{name}_batch"].shape == (stages, batches)
        assert (outcome.arrays[f"{name}_batch"].abs() <= 1).all()
    again = experiment.run(config, "gpvi", context)
    assert all(torch.equal(value, again.arrays[key]) for key, value in outcome.arrays.items())


# One batch, in closed form: the sampler x = σz and the target N(0, I).


def isotropic(dim, sigma):
    """The linear sampler ``x = σz`` and its target."""
    f = Generator(dim, dim, (), noise_scale=None, activation="tanh", rng=torch.Generator().manual_seed(0), dtype=F64)
    with torch.no_grad():
        f.output.weight.copy_(sigma * torch.eye(dim, dtype=F64))
        f.output.bias.zero_()
    return f, Gaussian(torch.zeros(dim, dtype=F64), torch.eye(dim, dtype=F64))


def divergence(f):
    """KL(N(b, WWᵀ) || N(0, I))."""
    W, b = f.output.weight.detach(), f.output.bias.detach()
    return float(0.5 * (W.square().sum() + b.square().sum() - len(W)) - torch.linalg.slogdet(W)[1])


def test_one_batch_of_100_in_20_dimensions_rests_near_a_quarter():
    """Five standard errors (0.003) around the fixed point of the batches' mean bandwidth, which is 0.2452."""
    rng = torch.Generator().manual_seed(8)
    h = 2 * chi2.median(20) / math.log(100)
    tau = 2 * (1 + 4 / h) ** -10 / (h + 4)
    formula = 99 * tau / (99 * tau + 1)
    found, error = descent.resting_variance(descent.scale_moments(20, 100, 200, rng))
    assert error < 0.001
    assert abs(found - formula) < 5 * error
    assert formula == pytest.approx(0.2452, abs=1e-4)
    two, error = descent.resting_variance(descent.scale_moments(20, 100, 200, rng, independent=True))
    assert error < 0.005
    assert abs(two - 1) < 5 * error


def test_the_moments_are_those_of_the_library():
    """dσ of the surrogate, by automatic differentiation through the library's objective, at one σ and one batch."""
    f, target = isotropic(4, 0.7)
    for independent in (False, True):
        ((a, b),) = descent.scale_moments(4, 32, 1, torch.Generator().manual_seed(9), independent=independent)
        rng = torch.Generator().manual_seed(9)
        parvi = ParVI(SVGD(), 32, independent=independent)
        slope = descent.gradient(parvi(f, target, None, rng)[0], f)[:16].reshape(4, 4).trace()  # dσ = <dW, I>
        assert float(slope) == pytest.approx(float(4 * (0.7 * a - b / 0.7)), rel=1e-10)


@pytest.mark.parametrize(("sigma2", "climbs"), [(0.2, False), (0.3, True), (0.9, True), (1.2, False)])
def test_one_batch_climbs_between_its_fixed_point_and_the_target(sigma2, climbs):
    """The sign of <G, g> by the library's objectives, 60 batches; all |means| below are beyond 5 standard errors."""
    f, target = isotropic(20, sigma2**0.5)
    G = torch.cat([(sigma2**0.5 - sigma2**-0.5) * torch.eye(20, dtype=F64).flatten(), torch.zeros(20, dtype=F64)])
    ways = {
        "published": (descent.objective("amortized_svgd", 100), climbs),
        "two batches": (descent.objective("amortized_svgd_two_batches", 100), False),
        "GPVI": (GPVI(100), False),
        "GPVI, one batch": (descent.OneBatchGPVI(100), climbs),
    }
    for name, (way, ascent) in ways.items():
        rates = descent.gradients(way, f, target, 60, torch.Generator().manual_seed(10)) @ G
        assert abs(rates.mean()) > 5 * rates.std() / 60**0.5, name
        assert (rates.mean() < 0) == ascent, name


def test_at_the_target_one_batch_follows_the_entropy():
    """There the expected direction is ∇H / n, which is W⁻ᵀ / n for a linear sampler; of two batches it is 0.

    A correlated target, a bandwidth that is not the batch's, 1,000 batches of 10.
    """
    rng = torch.Generator().manual_seed(12)
    f, _ = isotropic(3, 1.0)
    with torch.no_grad():
        f.output.weight.add_(0.5 * torch.randn(3, 3, generator=rng, dtype=F64))
    W = f.output.weight.detach()
    target = Gaussian(torch.zeros(3, dtype=F64), W @ W.mT)
    slope = torch.cat([torch.linalg.inv(W).mT.flatten() / 10, torch.zeros(3, dtype=F64)])
    for name, expected in (("amortized_svgd", slope), ("amortized_svgd_two_batches", torch.zeros(12, dtype=F64))):
        drawn = descent.gradients(descent.objective(name, 10, RBF(3.0)), f, target, 1000, rng)
        error = drawn.std(0) / 1000**0.5
        assert ((drawn.mean(0) - expected).abs() < 5 * error).all(), name
        assert (slope.abs() > 10 * error).any(), name  # large enough to tell 0 from 1 / n


def test_published_amortised_svgd_leaves_the_target_and_two_batches_do_not():
    """From KL = 0 to the fixed point: 6.52 nats at σ² = 0.2448, 6.56 to 6.57 with the steps' noise in three seeds."""
    for independent in (False, True):
        f, target = isotropic(20, 1.0)
        assert divergence(f) == 0
        parvi = ParVI(SVGD(), 100, independent=independent)
        rng = torch.Generator().manual_seed(11)
        fit(f, target, parvi, steps=300, optimizer=Adam(lr=2e-2, final_lr=1e-4), rng=rng, progress=False)
        variance = float(f.output.weight.detach().square().sum(1).mean())
        if independent:
            assert divergence(f) < 0.1
            assert variance == pytest.approx(1, abs=0.05)
        else:
            assert 6.4 < divergence(f) < 6.7
            assert variance == pytest.approx(0.2448, abs=0.005)


def test_from_the_optimum_every_method_starts_at_the_same_weights():
    config = descent.optimum_config("gaussian_5", "smoke")
    context = RunContext(torch.device("cpu"), 0, None, "test", False)
    outcome = get_experiment("descent-from-optimum").run(config, "gaussian_5", context)
    first = {float(outcome.arrays[f"{name}.kl"][0]) for name in config["runs"]}
    assert first == {outcome.metrics["optimum.kl"]}
    last = [float(outcome.arrays[f"{name}.kl"][-1]) for name in config["runs"]]
    assert len(set(last)) == len(last)
    assert set(descent.optimum_config("wide", "paper")["runs"]) == set(descent.CONTINUATIONS)


def test_every_continuation_is_the_objective_of_its_name():
    ways = {name: descent._continuation(name, n) for name, n in descent.CONTINUATIONS.items()}
    assert ways["amortized_svgd_two_batches"].independent and not ways["amortized_svgd"].independent
    assert ways["amortized_svgd_half"].direction.kernel.bandwidth == "half"
    assert ways["amortized_svgd_20"].num_samples == 20
    assert isinstance(ways["gpvi"], GPVI) and isinstance(ways["gpvi_one_batch"], descent.OneBatchGPVI)
