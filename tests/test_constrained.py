"""Constrained parameters: log-determinants by finite differences, integrals, exact posteriors, and what is refused."""

import math
import re

import pytest
import torch
from torch.distributions import (
    Beta,
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    LKJCholesky,
    LogNormal,
    Normal,
    TransformedDistribution,
    constraints,
    transforms,
)
from torch.testing import assert_close

from gpvi_lib import GPVI, Adam, Constrained, Generator, MeanField, NegativeELBO, Posterior, fit, hmc, mlp, ordered
from gpvi_lib.targets import Gaussian, NormalPrior, Target, check_finite, log_prob
from gpvi_lib.targets.likelihoods import NormalLikelihood

LOWER = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
PARTS = {
    "real": (constraints.real, (2, 3)),
    "positive": constraints.positive,
    "greater than": (constraints.greater_than(LOWER), (3,)),
    "less than": (constraints.less_than(2.0), (2,)),
    "unit interval": (constraints.unit_interval, (3,)),
    "interval": (constraints.interval(LOWER, LOWER + 3), (2, 3)),
    "simplex": (constraints.simplex, (4,)),
    "simplexes": (constraints.simplex, (2, 3)),
    "ordered": (ordered, (4,)),
    "ordered rows": (ordered, (3, 2)),
    "correlations": (constraints.corr_cholesky, (3, 3)),
    "real vector": (constraints.real_vector, (3,)),
    "transform": (transforms.ComposeTransform([transforms.TanhTransform(), transforms.AffineTransform(1, -2)]), (2,)),
}
DIMENSIONS = {"simplex": 3, "simplexes": 4, "correlations": 3}
"""Of those that have not as many real numbers as entries."""


def flat(p):
    """A constant density."""
    value = next(iter(p.values()))
    return 0 * value.reshape(len(value), -1).sum(-1)


def own_coordinates(name: str, value):
    """Those of the entries that a density is of, flattened."""
    if name.startswith("simplex"):
        return value[..., :-1].flatten(1)
    if name == "correlations":
        return value[:, *torch.tril_indices(3, 3, -1)]
    return value.reshape(len(value), -1)


@pytest.mark.parametrize("name", PARTS)
def test_the_log_determinant_is_that_of_finite_differences(name, normal):
    target = Constrained(flat, {name: PARTS[name]})
    shape = target.shapes[name]
    assert target.dim == DIMENSIONS.get(name, shape.numel())
    x, t = normal(1, target.dim), 1e-5  # central differences: truncation t² = 1e-10, rounding 1e-16 / t = 1e-11
    steps = t * torch.eye(target.dim, dtype=torch.float64)
    ahead, behind = (own_coordinates(name, target.constrain(x + s)[name]) for s in (steps, -steps))
    expected = torch.linalg.slogdet((ahead - behind) / (2 * t))[1]
    assert_close(target.log_abs_det(x)[0], expected, atol=1e-8, rtol=0)
    assert_close(target.log_prob(x), target.log_abs_det(x))


def test_parts_are_side_by_side_and_come_back(normal):
    target = Constrained(flat, PARTS)
    x = normal(5, 2, target.dim)
    values = target.constrain(x)
    assert {name: value.shape for name, value in values.items()} == {n: (5, 2, *s) for n, s in target.shapes.items()}
    for part in target._parts:
        assert bool(part.constraint.check(values[part.name]).all()), part.name
    assert_close(target.unconstrain(values), x, atol=1e-7, rtol=0)  # of tanh, whose inverse loses digits near 1
    alone = [Constrained(flat, {name: part}) for name, part in PARTS.items()]
    pieces = x.split([one.dim for one in alone], dim=-1)
    assert_close(target.log_abs_det(x), sum(one.log_abs_det(piece) for one, piece in zip(alone, pieces, strict=True)))


def test_ordered_vectors_are_sums_of_exponentials(normal):
    x = normal(3, 3)
    expected = torch.stack([x[:, 0], x[:, 0] + x[:, 1].exp(), x[:, 0] + x[:, 1].exp() + x[:, 2].exp()], 1)
    assert_close(Constrained(flat, {"cuts": (ordered, (3,))}).constrain(x)["cuts"], expected)


STRETCHED = TransformedDistribution(Beta(2.0, 3.0), transforms.AffineTransform(-1, 4))
NORMALISED = {
    "positive": (Gamma(2.0, 1.5), constraints.positive, (), 1),
    "interval": (STRETCHED, constraints.interval(-1, 3), (), 1),
    "simplex": (Dirichlet(torch.tensor([2.0, 1.5, 3.0])), constraints.simplex, (3,), 2),
    "correlations": (LKJCholesky(2, 1.5), constraints.corr_cholesky, (2, 2), 1),
    "ordered": (None, ordered, (2,), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALISED)
def test_the_density_of_x_integrates_to_one(name):
    """By the trapezoidal rule on [-24, 24]^d, where the tails left out and the step's error are below 1e-6."""
    distribution, constraint, shape, dim = NORMALISED[name]

    def density(p):
        value = p["value"]
        if name == "ordered":  # two independent normals, sorted
            return math.log(2) + Normal(0.0, 1.0).log_prob(value).sum(-1)
        return distribution.log_prob(value)

    target = Constrained(density, {"value": (constraint, shape)})
    assert target.dim == dim
    at, step = torch.arange(-24, 24, 0.06, dtype=torch.float64), 0.06
    points = at[:, None] if dim == 1 else torch.cartesian_prod(at, at)
    total = target.log_prob(points).exp().nan_to_num(0).sum() * step**dim
    assert_close(total, torch.ones_like(total), atol=2e-6, rtol=0)


EFFECT = torch.tensor([28, 8, -3, 7, -1, 1, 18, 12], dtype=torch.float64)
ERROR = torch.tensor([15, 10, 16, 11, 9, 11, 10, 18], dtype=torch.float64)
HYPER = {"mu": constraints.real, "tau": HalfCauchy(5.0).support}


def hyperprior(p):
    return Normal(0, 5).log_prob(p["mu"]) + HalfCauchy(5).log_prob(p["tau"])


def non_centred(p):
    schools = p["mu"][:, None] + p["tau"][:, None] * p["eta"]
    return hyperprior(p) + (Normal(0, 1).log_prob(p["eta"]) + Normal(schools, ERROR).log_prob(EFFECT)).sum(-1)


def centred(p):
    prior = Normal(p["mu"][:, None], p["tau"][:, None]).log_prob(p["theta"])
    return hyperprior(p) + (prior + Normal(p["theta"], ERROR).log_prob(EFFECT)).sum(-1)


NON_CENTRED = Constrained(non_centred, HYPER | {"eta": (constraints.real, (8,))})
CENTRED = Constrained(centred, HYPER | {"theta": (constraints.real, (8,))})


def exact_means():
    """Posterior means of μ, τ and of the schools' θ: all is Gaussian given τ, whose integral is done on a grid."""
    tau = torch.exp(torch.arange(-14, 8, 0.005, dtype=torch.float64))
    precision = 1 / (ERROR.square() + tau[:, None].square())
    variance = 1 / (1 / 25 + precision.sum(-1))
    mu = variance * (precision * EFFECT).sum(-1)
    # p(y | τ) = p(y | μ, τ) p(μ) / p(μ | y, τ), at any μ: here at its mean.
    log_weight = (0.5 * precision.log() - 0.5 * precision * (EFFECT - mu[:, None]).square()).sum(-1)
    log_weight += -mu.square() / 50 + 0.5 * variance.log() + HalfCauchy(5).log_prob(tau) + tau.log()
    weight = log_weight.softmax(0)
    shrink = tau[:, None].square() * precision
    theta = shrink * EFFECT + (1 - shrink) * mu[:, None]
    return {"mu": weight @ mu, "tau": weight @ tau, "theta": weight @ theta}


def test_hmc_on_eight_schools_has_the_exact_means(rng):
    start = torch.zeros(128, NON_CENTRED.dim, dtype=torch.float64)
    settings = {"step_size": 0.3, "num_leapfrog": (4, 10), "num_steps": 500, "burn_in": 200, "adapt": True}
    draws = NON_CENTRED.constrain(hmc(NON_CENTRED.log_prob, start, **settings, rng=rng, progress=False).samples)
    draws["theta"] = draws["mu"][..., None] + draws["tau"][..., None] * draws["eta"]
    for name, exact in exact_means().items():
        by_chain = draws[name].mean(0)  # chains are independent: their spread is the Monte Carlo error
        error = by_chain.std(0) / math.sqrt(len(by_chain))
        assert bool(((by_chain.mean(0) - exact).abs() < 4 * error).all()), (name, by_chain.mean(0), exact, error)
        assert bool((error < 0.15).all())


def test_the_two_forms_of_eight_schools_are_one_density(normal):
    """θ = μ + τη has the Jacobian determinant τ^8."""
    x = normal(6, 10)
    p = NON_CENTRED.constrain(x)
    theta = p["mu"][:, None] + p["tau"][:, None] * p["eta"]
    y = CENTRED.unconstrain({"mu": p["mu"], "tau": p["tau"], "theta": theta})
    assert_close(CENTRED.log_prob(y) + 8 * p["tau"].log(), NON_CENTRED.log_prob(x))


def test_fits_run_and_a_gaussian_in_x_is_found(rng):
    log_normal = Constrained(lambda p: LogNormal(1.0, 0.5).log_prob(p["s"]), {"s": constraints.positive})
    sampler = MeanField(torch.zeros(1), 1.0)
    fit(sampler, log_normal, NegativeELBO(64), steps=400, optimizer=Adam(0.05, final_lr=1e-3), rng=rng, progress=False)
    assert abs(sampler.mean.item() - 1) < 0.05 and abs(sampler.scale.item() - 0.5) < 0.05
    for objective in (GPVI(10), NegativeELBO(10)):
        generator = Generator(10, 3, (8,), noise_scale=0.3, rng=rng, dtype=torch.float64)
        fit(generator, NON_CENTRED, objective, steps=5, optimizer=Adam(0.01), rng=rng, progress=False)
        assert bool((NON_CENTRED.constrain(generator.sample(4, rng))["tau"] > 0).all())


def test_a_target_of_the_constrained_vector(normal):
    """The parts side by side are its points, and its minibatches are passed on."""
    gaussian = Gaussian(torch.ones(3).double(), torch.eye(3).double())
    target = Constrained(gaussian, {"a": constraints.real, "b": (constraints.positive, (2,))})
    x = normal(4, 3)
    assert_close(target.log_prob(x), gaussian.log_prob(torch.cat([x[:, :1], x[:, 1:].exp()], 1)) + x[:, 1:].sum(1))
    posterior = Posterior(mlp([1, 1]), NormalLikelihood(0.1), normal(6, 1), normal(6), NormalPrior(1.0))
    parts = {"slope": constraints.positive, "intercept": constraints.real}
    positive = Constrained(posterior, parts)
    batch, w = torch.tensor([1, 4]), torch.stack([x[:, 0].exp(), x[:, 1]], 1)
    assert positive.num_data == 6
    with pytest.raises(ValueError, match="Posterior has num_data = 6 of its own: leave num_data out"):
        Constrained(posterior, parts, num_data=60)
    assert_close(positive.log_prob(x[:, :2], batch), posterior.log_prob(w, batch) + x[:, 0])


def test_minibatches_of_a_function(normal):
    data = normal(6)

    def density(p, batch):
        seen = data if batch is None else data[batch]
        return Normal(0.0, p["s"][:, None]).log_prob(seen).sum(-1) * (len(data) / len(seen)) - p["s"]

    target, x = Constrained(density, {"s": constraints.positive}, num_data=6), normal(3, 1)
    halves = [target.log_prob(x, rows) for rows in (torch.arange(3), torch.arange(3, 6))]
    assert_close((halves[0] + halves[1]) / 2, target.log_prob(x))
    assert isinstance(target, Target)


def test_a_function_of_one_point_by_vmap(normal):
    def one(p):
        return -0.5 * ((p["mu"] - p["theta"]).square().sum() + p["mu"].square())

    parts, x = {"mu": constraints.real, "theta": (constraints.real, (3,))}, normal(3, 4)
    expected = -0.5 * ((x[:, :1] - x[:, 1:]).square().sum(1) + x[:, 0].square())
    assert_close(Constrained(torch.vmap(one), parts).log_prob(x), expected)


TWO = {"mu": constraints.real, "theta": (constraints.real, (2,))}


@pytest.mark.parametrize("length", [2, 3])
def test_a_function_that_mixes_points_is_refused(length, normal):
    """Of two points, each with a vector of two, ``mu - theta`` broadcasts in silence."""
    parts = TWO | {"theta": (constraints.real, (length,))}
    wrong = Constrained(lambda p: -(p["mu"] - p["theta"]).square().sum(-1), parts)
    with pytest.raises(ValueError, match=re.escape("log_prob mixes points: sum over all axes but the first")):
        wrong.log_prob(normal(length, wrong.dim))
    right = Constrained(lambda p: -(p["mu"][:, None] - p["theta"]).square().sum(-1), parts)
    assert right.log_prob(normal(length, right.dim)).shape == (length,)


def test_a_function_of_another_precision_is_named_by_the_check(rng):
    matrix = torch.eye(2, dtype=torch.float64)
    target = Constrained(lambda p: -(p["theta"] @ matrix).square().sum(-1), {"theta": (constraints.real, (2,))})
    with pytest.raises(ValueError, match="computes in torch.float64 and the sampler draws torch.float32"):
        check_finite(target, torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "parts must be a dict of named constraints"),
        ({1: constraints.real}, "parts must be a dict of named constraints"),
        ({"a": 1.0}, "'a' must have a constraint of torch.distributions.constraints"),
        ({"a": constraints.interval}, "'a' must have a constraint of torch.distributions.constraints"),
        ({"a": (constraints.real, 8)}, "the shape of 'a' must be a tuple, such as (8,), got 8"),
        ({"a": (constraints.real, (0,))}, "the length of axis 0 of 'a' must be a whole number >= 1, got 0"),
        ({"a": constraints.positive_definite}, "there is no bijection between R^m and PositiveDefinite"),
        ({"a": transforms.SoftmaxTransform()}, "there is no bijection between R^m and SoftmaxTransform"),
        ({"a": constraints.boolean}, "there is no bijection"),
        ({"a": constraints.simplex}, "'a' of shape () cannot be Simplex"),
        ({"a": ordered}, "'a' of shape () cannot be Ordered"),
        ({"a": (constraints.corr_cholesky, (3, 2))}, "'a' of shape (3, 2) cannot be CorrCholesky"),
        ({"a": constraints.greater_than(LOWER)}, "the bounds of 'a' have shape (3,)"),
        ({"a": (constraints.greater_than(LOWER), (2,))}, "'a' of shape (2,) cannot be GreaterThan"),
    ],
)
def test_impossible_parts_are_refused(parts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Constrained(flat, parts)


def test_impossible_densities_are_refused(normal):
    with pytest.raises(ValueError, match="log_prob must be a function of a dict of tensors, or a target, got 3"):
        Constrained(3, TWO)
    with pytest.raises(ValueError, match="log_prob must be an instance, got the class Gaussian"):
        Constrained(Gaussian, TWO)
    with pytest.raises(ValueError, match="the target has 2 dimensions and the parts 3 entries"):
        Constrained(Gaussian(torch.zeros(2), torch.eye(2)), TWO)
    with pytest.raises(ValueError, match="num_data must be a whole number"):
        Constrained(flat, TWO, num_data=0)
    for wrong, found in (
        (lambda p: p["theta"], r"\(5, 2\)"),
        (lambda p: p["mu"].sum(), r"\(\)"),
        (lambda p: 1.0, "float"),
    ):
        with pytest.raises(ValueError, match=f"one number per point, shape \\(5,\\), got {found}"):
            Constrained(wrong, TWO).log_prob(normal(5, 3))
    with pytest.raises(ValueError, match="these parameters have 3 real numbers, got points of 2: "):
        Constrained(flat, TWO).log_prob(normal(5, 2))
    with pytest.raises(ValueError, match=r"Constrained lives on R\^3, got points of shape \(5, 2\)"):
        log_prob(Constrained(flat, TWO), normal(5, 2))


VALUES = {"s": torch.ones(4), "p": torch.full((4, 3), 1 / 3)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"S": torch.ones(4)}, "unknown parameter 'S' (valid: p, s)"),
        ({}, "no value for s, p"),
        (VALUES | {"s": 1.0}, "'s' must be a tensor of shape (..., *()), got float"),
        (VALUES | {"p": torch.ones(4)}, "'p' must be a tensor of shape (..., *(3,)), got (4,)"),
        (VALUES | {"s": -torch.ones(4)}, "'s' has values outside its constraint, GreaterThan(lower_bound=0.0)"),
        (VALUES | {"s": torch.full((4,), torch.inf)}, "'s' has values on the edge of its constraint"),
        (VALUES | {"p": torch.ones(4, 3)}, "'p' has values outside its constraint, Simplex()"),
        (VALUES | {"p": torch.eye(3)[:1].expand(4, 3)}, "'p' has values on the edge of its constraint, Simplex()"),
        (VALUES | {"s": torch.ones(5)}, "the values must have the same leading axes, got {'s': (5,), 'p': (4,)}"),
    ],
)
def test_values_that_cannot_be_are_refused(values, message):
    target = Constrained(flat, {"s": constraints.positive, "p": (constraints.simplex, (3,))})
    with pytest.raises(ValueError, match=re.escape(message)):
        target.unconstrain(values)
    assert target.unconstrain(VALUES).shape == (4, 3)


def test_a_name_that_no_part_has_is_told_with_those_that_there_are(normal):
    target = Constrained(lambda p: p["sigm"], {"mu": constraints.real, "sigma": constraints.positive})
    with pytest.raises(KeyError, match="sigm") as caught:
        target.log_prob(normal(3, 2))
    assert caught.value.__notes__ == ["gpvi_lib: the parameters that log_prob gets are mu, sigma"]


def test_support_of_a_distribution_is_a_constraint(normal):
    target = Constrained(lambda p: Exponential(2.0).log_prob(p["rate"]), {"rate": Exponential(2.0).support})
    x = normal(3, 1)
    assert_close(target.log_prob(x), math.log(2) - 2 * x[:, 0].exp() + x[:, 0])


def test_vectors_that_do_not_increase_are_refused():
    target = Constrained(flat, {"cuts": (ordered, (3,))})
    with pytest.raises(ValueError, match=re.escape("'cuts' has values outside its constraint, Ordered()")):
        target.unconstrain({"cuts": torch.tensor([0.0, 2.0, 1.0])})
