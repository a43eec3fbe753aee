"""Targets against closed forms, torch.distributions, numpy and naive loops."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, Normal
from torch.testing import assert_close

from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.targets import (
    BayesianLinearRegression,
    ClassificationPosterior,
    FlatPrior,
    Gaussian,
    NormalPrior,
    ScaleMixturePrior,
    Target,
    check_finite,
    log_prob,
    score,
)

NUM_DATA = 12


@pytest.fixture
def regression(normal) -> BayesianLinearRegression:
    return BayesianLinearRegression(normal(NUM_DATA, 3), normal(NUM_DATA), NormalPrior(2.0))


@pytest.fixture
def classification(normal, rng) -> ClassificationPosterior:
    labels = torch.randint(4, (NUM_DATA,), generator=rng)
    return ClassificationPosterior(FlatModule(mlp([2, 3, 4])), normal(NUM_DATA, 2), labels, NormalPrior(0.7))


TARGETS = pytest.mark.parametrize("name", ["regression", "classification"])


def test_gaussian_and_its_score(normal):
    a, mean, x = normal(3, 3), normal(3), normal(5, 3)
    covariance = a @ a.mT + torch.eye(3)
    target = Gaussian(mean, covariance)
    assert_close(target.log_prob(x), MultivariateNormal(mean, covariance).log_prob(x))
    assert_close(score(target, x), -torch.linalg.solve(covariance, (x - mean).mT).mT)
    assert isinstance(target, Target)
    assert (target.dim, target.num_data) == (3, None)


@TARGETS
def test_score_is_the_gradient_and_detached(name, request, normal):
    target = request.getfixturevalue(name)
    x = normal(2, target.dim).requires_grad_()
    gradient = score(target, x)
    assert not gradient.requires_grad
    assert x.grad is None
    t = 1e-5  # central differences: truncation t² = 1e-10 times third derivatives, rounding 1e-15 / t = 1e-10
    for i in range(target.dim):
        step = t * torch.eye(target.dim, dtype=torch.float64)[i]
        expected = (target.log_prob(x + step) - target.log_prob(x - step)).detach() / (2 * t)
        assert_close(gradient[:, i], expected, rtol=1e-6, atol=1e-7)


def test_score_works_without_gradients(regression, normal):
    x = normal(2, 3)
    expected = score(regression, x)
    with torch.no_grad():
        assert torch.equal(score(regression, x), expected)
    assert not x.requires_grad  # the caller's tensor stays as it was


@TARGETS
@pytest.mark.parametrize("batch_size", [1, 3, NUM_DATA])
def test_minibatches_estimate_the_log_likelihood_without_bias(name, batch_size, request, normal, rng):
    target = request.getfixturevalue(name)
    x = normal(4, target.dim)
    batches = torch.randperm(NUM_DATA, generator=rng).view(-1, batch_size)
    for method in (target.log_likelihood, target.log_prob):  # the prior counts once, whatever the batch
        assert_close(torch.stack([method(x, batch) for batch in batches]).mean(0), method(x))


@TARGETS
def test_the_prior_is_added_once(name, request, normal):
    target = request.getfixturevalue(name)
    x, batch = normal(4, target.dim), torch.tensor([0, 5])
    for b in (None, batch):
        assert_close(target.log_prob(x, b), target.log_likelihood(x, b) + target.prior.log_prob(x))


def test_regression_has_the_closed_form_of_numpy(normal):
    x, y = normal(40, 3), normal(40)
    target = BayesianLinearRegression(x, y)
    mean, *_ = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)
    covariance = np.linalg.inv(x.numpy().T @ x.numpy())
    assert_close(target.mean, torch.from_numpy(mean))
    assert_close(target.covariance, torch.from_numpy(covariance))
    # With a flat prior log_prob is that Gaussian's up to a constant.
    beta = normal(6, 3)
    constant = target.log_prob(beta) - MultivariateNormal(target.mean, target.covariance).log_prob(beta)
    assert_close(constant, constant[:1].expand(6))


def test_regression_likelihood_is_that_of_unit_noise(normal):
    x, y, beta = normal(NUM_DATA, 3), normal(NUM_DATA), normal(2, 3)
    expected = [
        sum(Normal(xi @ b, 1.0).log_prob(yi) + 0.5 * math.log(2 * math.pi) for xi, yi in zip(x, y, strict=True))
        for b in beta
    ]
    assert_close(BayesianLinearRegression(x, y).log_likelihood(beta), torch.stack(expected))


def test_classification_is_the_naive_loop(classification, normal):
    w, batch = normal(3, classification.dim), torch.tensor([7, 1, 4])
    for indices, factor in ((range(NUM_DATA), 1), (batch.tolist(), NUM_DATA / 3)):
        expected = []
        for weights in w:
            logits = classification.network(weights[None], classification.inputs)[0]
            expected.append(factor * sum(logits[i].log_softmax(-1)[classification.labels[i]] for i in indices))
        value = classification.log_likelihood(w, None if factor == 1 else batch)
        assert_close(value, torch.stack(expected))
    assert classification.num_data == NUM_DATA


@pytest.mark.parametrize("scale", [0.3, torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)])
def test_normal_prior(scale, normal):
    x = normal(5, 3)
    expected = Normal(torch.zeros(3).double(), torch.as_tensor(scale, dtype=torch.float64)).log_prob(x).sum(-1)
    assert_close(NormalPrior(scale).log_prob(x), expected)


@pytest.mark.parametrize("prior", [ScaleMixturePrior(), ScaleMixturePrior(0.25, 2.0, 0.1), NormalPrior(0.5)])
def test_priors_are_normalised(prior):
    # The trapezoidal rule on a smooth density: a grid of a twelfth of the narrowest scale is exact to rounding, and 12
    # of the widest scales leave e^-72 outside.
    narrow, wide = (
        (prior.scale_2, prior.scale_1) if isinstance(prior, ScaleMixturePrior) else (prior.scale, prior.scale)
    )
    x = torch.arange(-12 * wide, 12 * wide, narrow / 12, dtype=torch.float64)
    assert float(prior.log_prob(x[:, None]).exp().sum()) * narrow / 12 == pytest.approx(1, abs=1e-9)


def test_a_flat_prior_leaves_the_likelihood_alone(normal):
    x = normal(5, 3).requires_grad_()
    value = FlatPrior().log_prob(x)
    assert value.shape == (5,) and value.dtype == x.dtype and not bool(value.any())


def test_scale_mixture_is_a_product_over_coordinates(normal):
    prior, x = ScaleMixturePrior(0.25, 2.0, 0.1), normal(5, 3)
    zero = torch.zeros((), dtype=torch.float64)
    density = 0.25 * Normal(zero, 2.0).log_prob(x).exp() + 0.75 * Normal(zero, 0.1).log_prob(x).exp()
    assert_close(prior.log_prob(x), density.log().sum(-1))


def test_scale_mixture_stays_finite_far_out():
    x = torch.tensor([[1e3, 0.0]], requires_grad=True)
    value = ScaleMixturePrior().log_prob(x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("arguments", [(0.0, 1, 1), (1.0, 1, 1), (0.5, 0, 1), (0.5, 1, -1.0), (math.nan, 1, 1)])
def test_impossible_scale_mixtures_are_refused(arguments):
    with pytest.raises(ValueError, match="0 < mixture_weight < 1 and positive scales"):
        ScaleMixturePrior(*arguments)


@pytest.mark.parametrize("scale", [0.0, -1.0, torch.tensor([1.0, 0.0])])
def test_impossible_normal_priors_are_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        NormalPrior(scale)


def test_inputs_and_labels_must_match():
    with pytest.raises(ValueError, match="5 inputs but 4 labels"):
        ClassificationPosterior(FlatModule(mlp([2, 2])), torch.zeros(5, 2), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("targets", [torch.zeros(4), torch.zeros(1), torch.zeros(5, 1)])
def test_inputs_and_targets_must_match(targets):
    """(5, 1) and (1,) would broadcast to a wrong posterior without a word."""
    with pytest.raises(ValueError, match="targets"):
        BayesianLinearRegression(torch.ones(5, 2), targets)


@pytest.mark.parametrize("shape", [(4,), (4, 2), (2, 4, 3), (4, 4)])
def test_points_of_another_shape_are_refused(shape, regression):
    for function in (log_prob, score, check_finite):
        with pytest.raises(ValueError, match=r"BayesianLinearRegression lives on R\^3, got points of shape"):
            function(regression, torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("at", [math.nan, 1e200])
def test_check_finite_names_what_is_not(at, regression):
    with pytest.raises(ValueError, match="log_prob of BayesianLinearRegression is not finite"):
        check_finite(regression, torch.full((2, 3), at, dtype=torch.float64))
    check_finite(regression, torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.bool])
def test_labels_of_any_integer_type_are_the_same(dtype, rng):
    inputs, labels = torch.randn(6, 2, generator=rng), torch.arange(6) % 2
    w = torch.randn(3, 22, generator=rng)
    one, other = (ClassificationPosterior(mlp([2, 4, 2]), inputs, y).log_prob(w) for y in (labels, labels.to(dtype)))
    assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 3), (50, 4)])
def test_inputs_without_full_column_rank_have_no_posterior(shape, dtype, normal):
    x = normal(*shape).to(dtype)
    x[:, -1] = x[:, :-1].sum(1)
    with pytest.raises(ValueError, match="do not have full column rank"):
        BayesianLinearRegression(x, x[:, 0]).exact_moments()
