"""Bad input gets one clear error that names the argument; nothing of it is taken in silence."""

import math

import pytest
import torch

from gpvi_lib import (
    AVB,
    GPVI,
    LIVI,
    Adam,
    BayesianLinearRegression,
    Flow,
    Gaussian,
    Generator,
    GPVIError,
    HelperInverse,
    KernelSteinDiscrepancy,
    MeanField,
    NegativeELBO,
    OrientedELBO,
    ParVI,
    SteinCritic,
    fit,
)


def run(sampler=None, target=None, objective=None, **arguments):
    sampler = MeanField(torch.zeros(2)) if sampler is None else sampler
    target = Gaussian(torch.zeros(2), torch.eye(2)) if target is None else target
    settings = {"steps": 2, "optimizer": Adam(0.1), "rng": torch.Generator().manual_seed(0), "progress": False}
    return fit(sampler, target, NegativeELBO(2) if objective is None else objective, **settings | arguments)


# Gaussian


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (torch.zeros(2), torch.tensor([[1.0, 0.9], [0.0, 1.0]]), "not symmetric"),
        (torch.zeros(2), torch.eye(3), r"shape \(2, 2\), got \(3, 3\)"),
        (torch.zeros(2), torch.ones(2), r"shape \(2, 2\), got \(2,\)"),
        (torch.zeros(2), torch.eye(2).expand(4, 2, 2), r"shape \(2, 2\), got \(4, 2, 2\)"),
        (torch.zeros(1, 2), torch.eye(2), r"mean must have shape \(d,\), got \(1, 2\)"),
        (torch.zeros(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "not positive definite"),
        (torch.zeros(2), torch.zeros(2, 2), "not positive definite"),
        (torch.zeros(2), torch.tensor([[1.0, math.nan], [math.nan, 1.0]]), "not finite"),
        (torch.zeros(2), torch.eye(2, dtype=torch.float64), "float32 and .*float64"),
    ],
)
def test_a_covariance_that_is_none_is_refused(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        Gaussian(mean, covariance)


def test_a_covariance_that_is_symmetric_up_to_rounding_is_one(normal):
    root = normal(5, 5).float()
    covariance = torch.linalg.inv(root @ root.mT + torch.eye(5))  # inverses are not exactly symmetric
    covariance[0, 1] *= 1 + 1e-6
    Gaussian(torch.zeros(5), covariance)


# Counts, weights and rates


RNG = torch.Generator().manual_seed(0)
REGRESSION = BayesianLinearRegression(torch.eye(3, 2), torch.zeros(3))
COUNTS = {
    "steps": lambda bad: run(steps=bad),
    "batch_size": lambda bad: run(target=REGRESSION, batch_size=bad),
    "callback_every": lambda bad: run(callback_every=bad),
    "elbo": lambda bad: NegativeELBO(bad),
    "oriented": lambda bad: OrientedELBO(bad),
    "gpvi": lambda bad: GPVI(bad),
    "parvi": lambda bad: ParVI(num_samples=bad),
    "ksd": lambda bad: KernelSteinDiscrepancy(num_samples=bad),
    "livi": lambda bad: LIVI(bad),
    "avb": lambda bad: AVB(bad),
    "avb updates": lambda bad: AVB(2, updates=bad),
    "avb hidden": lambda bad: AVB(2, hidden=(bad,)),
    "helper width": lambda bad: HelperInverse(width=bad),
    "helper layers": lambda bad: HelperInverse(num_layers=bad),
    "helper updates": lambda bad: HelperInverse(updates=bad),
    "critic updates": lambda bad: SteinCritic(updates=bad),
    "critic hidden": lambda bad: SteinCritic(hidden=(8, bad)),
    "generator hidden": lambda bad: Generator(3, 2, (4, bad), rng=RNG),
    "generator dim": lambda bad: Generator(bad, rng=RNG),
    "generator noise_dim": lambda bad: Generator(3, bad, rng=RNG),
    "flow depth": lambda bad: Flow(2, bad, rng=RNG),
    "draws": lambda bad: MeanField(torch.zeros(2)).sample(bad, RNG),
    "draws with density": lambda bad: MeanField(torch.zeros(2)).rsample_with_log_prob(bad, RNG),
    "draws of a flow": lambda bad: Flow(2, 2, rng=RNG).rsample_with_log_prob(bad, RNG),
}


@pytest.mark.parametrize("bad", [-1, 2.5, True, "3"])
@pytest.mark.parametrize("case", COUNTS)
def test_counts_are_whole_numbers(case, bad):
    with pytest.raises(GPVIError, match=rf"must be a whole number >= [01], got {bad!r}"):
        COUNTS[case](bad)


@pytest.mark.parametrize("case", [case for case in COUNTS if case not in ("steps", "callback_every", "helper layers")])
def test_counts_are_not_zero(case):
    with pytest.raises(GPVIError, match=r"must be a whole number >= 1, got 0"):
        COUNTS[case](0)


RATES = {
    "l2_weight": lambda bad: SteinCritic(l2_weight=bad),
    "critic lr": lambda bad: SteinCritic(lr=bad),
    "helper lr": lambda bad: HelperInverse(lr=bad),
    "avb lr": lambda bad: AVB(2, lr=bad),
}


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, None, "x"])
@pytest.mark.parametrize("case", RATES)
def test_rates_and_weights_are_positive(case, bad):
    with pytest.raises(GPVIError, match=rf"\w+ must be a positive finite number, got {bad!r}"):
        RATES[case](bad)
