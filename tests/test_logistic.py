"""Bayesian logistic regression: the posterior against scikit-learn and its closed-form score, and its prior."""

import math

import pytest
import torch
from torch.distributions import Gamma, Normal
from torch.testing import assert_close

from gpvi_lib import LogisticPosterior, LogisticPrior, hmc, score
from gpvi_lib.targets import differentiable_score

F64 = torch.float64


@pytest.fixture
def posterior(normal) -> LogisticPosterior:
    x = torch.cat([torch.ones(30, 1, dtype=F64), normal(30, 3)], 1)
    return LogisticPosterior(x, (normal(30) + x[:, 1] > 0).long())


def test_the_density_is_the_model(posterior, normal):
    z = normal(6, 5)
    w, alpha = z[:, :-1], z[:, -1].exp()
    prior = Normal(torch.zeros((), dtype=F64), alpha[:, None].rsqrt()).log_prob(w).sum(-1)
    precision = Gamma(torch.ones((), dtype=F64), torch.tensor(0.01, dtype=F64)).log_prob(alpha) + z[:, -1]
    logits = w @ posterior.inputs.mT
    data = torch.distributions.Bernoulli(logits=logits).log_prob(posterior.labels).sum(-1)
    assert_close(posterior.log_prob(z), prior + precision + data)
    assert_close(posterior.prior.log_prob(z), prior + precision)
    assert_close(posterior.log_likelihood(z), data)


@pytest.mark.parametrize("rows", [None, [3, 3, 8]])
def test_the_score_in_closed_form(posterior, normal, rows):
    z, batch = normal(6, 5).requires_grad_(), None if rows is None else torch.tensor(rows)
    (expected,) = torch.autograd.grad(posterior.log_prob(z, batch).sum(), z, create_graph=True)
    found = differentiable_score(posterior, z, batch)
    assert_close(found, expected)
    v = normal(6, 5)
    assert_close(*(torch.autograd.grad(slope, z, v)[0] for slope in (found, expected)))
    assert_close(score(posterior, z, batch), expected.detach())
    assert not score(posterior, z, batch).requires_grad


def test_minibatches_estimate_the_same_density(posterior, normal):
    """Over a partition of the data into equal parts the mean is exact."""
    z = normal(4, 5)
    parts = torch.arange(30).split(6)
    assert_close(torch.stack([posterior.log_prob(z, rows) for rows in parts]).mean(0), posterior.log_prob(z))
    assert_close(torch.stack([score(posterior, z, rows) for rows in parts]).mean(0), score(posterior, z))


def test_the_weights_mode_at_a_fixed_precision_is_scikit_learns(posterior):
    from sklearn.linear_model import LogisticRegression

    alpha = 0.7
    fitted = LogisticRegression(C=1 / alpha, fit_intercept=False, tol=1e-10, max_iter=1_000)
    fitted.fit(posterior.inputs.numpy(), posterior.labels.numpy())
    z = torch.cat([torch.as_tensor(fitted.coef_[0]), torch.tensor([math.log(alpha)])])[None]
    assert_close(score(posterior, z)[0, :-1], torch.zeros(4, dtype=F64), rtol=0, atol=1e-5)
    probabilities = torch.as_tensor(fitted.predict_proba(posterior.inputs.numpy())[:, 1])
    assert_close(posterior.predict(z, posterior.inputs), probabilities)


def test_draws_of_the_prior(rng):
    """10^5 draws: α is exponential with mean 100, and √α w standard normal; four standard errors each."""
    prior = LogisticPrior(2, dtype=F64)
    z = prior.sample(100_000, rng)
    alpha, scaled = z[:, -1].exp(), z[:, :2] * (0.5 * z[:, -1:]).exp()
    error = 4 / math.sqrt(len(z))
    assert float(alpha.mean()) == pytest.approx(100, rel=error)
    assert float((alpha > 100).double().mean()) == pytest.approx(math.exp(-1), abs=error)
    assert scaled.mean(0).abs().max() < error and (scaled.var(0) - 1).abs().max() < error * math.sqrt(2)
    drawn, log_q = prior.rsample_with_log_prob(5, torch.Generator().manual_seed(1))
    assert_close(log_q, prior.log_prob(drawn))
    assert z.dtype == F64 and LogisticPrior(2).sample(3, rng).dtype == torch.float32


def test_the_priors_density_is_normalised():
    """On a grid of (w, log α) for one weight; the tails beyond hold less than 1e-3."""
    w, log_precision = torch.linspace(-60, 60, 6_001, dtype=F64), torch.linspace(-6, 9, 301, dtype=F64)
    z = torch.cartesian_prod(w, log_precision)
    mass = LogisticPrior(1, dtype=F64).log_prob(z).exp().sum() * (w[1] - w[0]) * (log_precision[1] - log_precision[0])
    assert float(mass) == pytest.approx(1, abs=3e-3)


def test_the_weights_approximation_is_mode_and_curvature_at_its_precision(posterior):
    mean, covariance = posterior.laplace()
    assert_close(score(posterior, mean[None])[0, :-1], torch.zeros(4, dtype=F64), rtol=0, atol=1e-6)
    steps = 1e-4 * torch.eye(5, dtype=F64)[:4]
    hessian = -(score(posterior, mean + steps) - score(posterior, mean - steps))[:, :4] / 2e-4
    assert_close(torch.linalg.inv(covariance[:4, :4]), hessian, rtol=1e-5, atol=1e-6)
    assert (covariance[4, :4] == 0).all() and covariance[4, 4] > 0


def test_the_evidence_of_a_precision_is_the_integral_over_the_weight(normal):
    """One weight on 400 rows, by quadrature, and its maximum and curvature are those of log α."""
    x = normal(400, 1)
    posterior = LogisticPosterior(x, (normal(400) + x[:, 0] > 0).long())
    w, at = torch.linspace(-1, 5, 20_001, dtype=F64), torch.linspace(-6, 1, 15, dtype=F64)
    by_grid = torch.stack(
        [(posterior.log_prob(torch.stack([w, a.expand_as(w)], 1))).logsumexp(0) + (w[1] - w[0]).log() for a in at]
    )
    by_laplace = torch.tensor([posterior._evidence(float(a))[0] for a in at], dtype=F64)
    apart = by_grid - by_laplace
    assert float((apart - apart.mean()).abs().max()) < 0.02  # Laplace's error changes by less; a term in log α by 7
    mean, covariance = posterior.laplace()
    step, top = 1e-2, float(mean[-1])
    low, middle, high = (posterior._evidence(top + s)[0] for s in (-step, 0.0, step))
    assert low < middle > high
    assert 1 / float(covariance[-1, -1]) == pytest.approx((2 * middle - low - high) / step**2, rel=0.02)


def test_the_approximation_has_the_moments_of_long_chains(normal):
    """Two weights and an intercept on 400 rows, and log α, which is skew: its mean is off by a third of its sd."""
    x = torch.cat([torch.ones(400, 1, dtype=F64), normal(400, 2)], 1)
    posterior = LogisticPosterior(x, (normal(400) + x[:, 1] > 0).long())
    mean, covariance = posterior.laplace()
    sd = covariance.diagonal().sqrt()
    rng = torch.Generator().manual_seed(0)
    result = hmc(
        lambda u: posterior.log_prob(mean + u * sd), torch.zeros(50, 4, dtype=F64), step_size=0.3, num_leapfrog=(3, 8),
        num_steps=400, burn_in=100, rng=rng, progress=False,
    )  # fmt: skip
    u = result.samples.flatten(0, 1)
    assert u.mean(0).abs().max() < 0.5 and (u.std(0) - 1).abs().max() < 0.3


def test_few_data_do_not_send_the_precision_away(normal):
    """The joint density of 20 weights and log α on 60 rows is higher at w = 0, α = 1,100 than at the approximation."""
    x = normal(60, 20)
    posterior = LogisticPosterior(x, (x.sum(1) + normal(60) > 0).long())
    mean, _ = posterior.laplace()
    away = torch.cat([torch.zeros(20, dtype=F64), torch.tensor([math.log(11 / 0.01)])])
    assert posterior.log_prob(away[None]) > posterior.log_prob(mean[None])
    assert mean[-1] < 3 and mean[:-1].norm() > 1  # α = 1 drew such weights


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (torch.ones(3, 2), torch.zeros(4), r"labels must have shape \(3,\)"),
        (torch.ones(3), torch.zeros(3), "one per row of inputs"),
        (torch.full((3, 2), math.nan), torch.zeros(3), "an input is not finite"),
        (torch.ones(3, 2).numpy(), torch.zeros(3), "inputs must be a floating point tensor, got ndarray"),
        (torch.ones(3, 2).long(), torch.zeros(3), "inputs must be a floating point tensor, got torch.int64"),
        (torch.ones(3, 2), torch.tensor([0, 1, 2]), "labels must be 0 or 1"),
    ],
)
def test_wrong_data_are_refused(inputs, labels, message):
    with pytest.raises(ValueError, match=message):
        LogisticPosterior(inputs, labels)


def test_a_prior_needs_a_rate():
    with pytest.raises(ValueError, match="rate > 0"):
        LogisticPrior(3, 0.0)
