"""The measuring tools of notebook 06, against closed forms."""

import pytest
import torch

from gpvi_lib import RBF, Gaussian, Generator
from gpvi_lib.experiments import descent
from gpvi_lib.experiments.base import RunContext

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


@pytest.mark.parametrize("experiment", descent.EXPERIMENTS, ids=lambda experiment: experiment.name)
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
