"""Bad input gets one clear error that names the argument; nothing of it is taken in silence."""

import math

import pytest
import torch
from kernel_directions import KERNEL_DIRECTIONS
from torch import nn
from torch.distributions import constraints
from torch.testing import assert_close

from gpvi_lib import (
    AVB,
    GPVI,
    KDE,
    KIVI,
    LIVI,
    RBF,
    SVGD,
    Adam,
    AdaptiveLangevin,
    BayesianLinearRegression,
    BiCGSTABInverse,
    Constrained,
    Flow,
    FunctionSpaceParVI,
    Gaussian,
    GaussianMixture,
    Generator,
    GPVIError,
    HelperInverse,
    InverseGamma,
    Jitter,
    KernelSteinDiscrepancy,
    LangevinNetwork,
    LowRankLaplace,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalPrior,
    OrientedELBO,
    Particles,
    ParVI,
    PlaneGrid,
    PointEstimate,
    Posterior,
    SteinCritic,
    Uniform,
    bicgstab,
    fit,
    hmc,
    metrics,
    mlp,
    power_decay,
)
from gpvi_lib.metrics import regression_log_likelihood, relative_error, total_variation
from gpvi_lib.targets.base import differentiable_score, score


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
    "bicgstab": lambda bad: BiCGSTABInverse(max_iterations=bad),
    "layers": lambda bad: LangevinNetwork(MeanField(torch.zeros(2)), None, bad),
    "rows a layer": lambda bad: LangevinNetwork(MeanField(torch.zeros(2)), None, 2, batch_size=bad),
    "power decay": lambda bad: power_decay(bad, 0.1),
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
    "power decay": lambda bad: power_decay(3, bad),
    "laplace": lambda bad: LowRankLaplace(torch.zeros(2), torch.eye(2)[:, :1], torch.ones(1), bad),
}


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, None, "x"])
@pytest.mark.parametrize("case", RATES)
def test_rates_and_weights_are_positive(case, bad):
    with pytest.raises(GPVIError, match=rf"\w+ must be a positive finite number, got {bad!r}"):
        RATES[case](bad)


# What fit is given


class Shaped:
    """A target around a function of the points."""

    dim = 2

    def __init__(self, function):
        self.log_prob = function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 0.0, "Shaped.log_prob must return a tensor .* got float: compute with torch"),
        (lambda x: None, "must return a tensor .* got NoneType"),
        (lambda x: -x.numpy().sum(-1), "must return a tensor .* got ndarray"),
        (lambda x: torch.as_tensor(-x.numpy().sum(-1)), "is not differentiable in x: compute with torch"),
        (lambda x: -x.detach().square().sum(-1), "is not differentiable in x"),
        (lambda x: torch.zeros(len(x)), "is not differentiable in x"),
        (lambda x: torch.zeros(len(x), requires_grad=True), "is not differentiable in x"),
    ],
)
def test_a_density_that_autograd_cannot_use_is_named(function, message):
    with pytest.raises(ValueError, match=message):
        run(target=Shaped(function))


@pytest.mark.parametrize("function", [lambda x: 0.0, lambda x: None, lambda x: -x.detach().sum(-1)])
def test_hmc_names_a_density_that_autograd_cannot_use(function, rng):
    settings = {"step_size": 0.1, "num_leapfrog": 2, "num_steps": 3, "burn_in": 0, "rng": rng, "progress": False}
    with pytest.raises(ValueError, match="log_prob must return a tensor that is differentiable in x"):
        hmc(function, torch.zeros(4, 2), **settings)


@pytest.mark.parametrize("name", ["thin", "num_leapfrog", "num_steps", "burn_in"])
def test_hmc_counts_in_whole_numbers(name, rng):
    settings = {"step_size": 0.1, "num_leapfrog": 2, "num_steps": 3, "burn_in": 0, "rng": rng, "progress": False}
    with pytest.raises(GPVIError, match=f"{name} must be a whole number"):
        hmc(lambda x: -x.square().sum(-1), torch.zeros(4, 2), **settings | {name: 2.5})


@pytest.mark.parametrize(("of_target", "of_sampler"), [("float64", "float32"), ("float32", "float64")])
def test_a_target_of_another_precision_is_named(of_target, of_sampler):
    inputs = torch.ones(5, 2, dtype=getattr(torch, of_target))
    sampler = MeanField(torch.zeros(2, dtype=getattr(torch, of_sampler)))
    message = f"BayesianLinearRegression computes in torch.{of_target} and the sampler draws torch.{of_sampler}: give"
    for batch_size in (None, 2):
        with pytest.raises(ValueError, match=message):
            run(sampler, BayesianLinearRegression(inputs, inputs[:, 0]), batch_size=batch_size)


def test_a_target_that_fails_for_another_reason_keeps_its_error():
    def broken(x):
        raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        run(target=Shaped(broken))


def test_a_frozen_sampler_is_named():
    with pytest.raises(ValueError, match="MeanField has no parameter with requires_grad=True"):
        run(MeanField(torch.zeros(2)).requires_grad_(False))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": GPVI}, r"objective must be an instance, got the class GPVI: write GPVI\(\.\.\.\)"),
        ({"target": Gaussian}, "target must be an instance, got the class Gaussian"),
        ({"sampler": MeanField}, "sampler must be an instance, got the class MeanField"),
        ({"optimizer": Adam}, r"optimizer must be an instance, got the class: write Adam\(lr"),
    ],
)
def test_a_class_in_place_of_an_instance_is_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(**arguments)


@pytest.mark.parametrize("make", [*KERNEL_DIRECTIONS, lambda kernel: GPVI(4, kernel=kernel)])
def test_a_kernel_is_looked_at_where_it_is_given(make):
    with pytest.raises(GPVIError, match=r"kernel must be a kernel, got 'paper': such as RBF\(1.0\)"):
        make("paper")
    with pytest.raises(GPVIError, match=r"kernel must be an instance, got the class RBF"):
        make(RBF)


@pytest.mark.parametrize("make", [lambda kernel: KernelSteinDiscrepancy(kernel), lambda kernel: KIVI(4, kernel=kernel)])
def test_what_asks_a_kernel_for_its_bandwidth_takes_an_rbf(make):
    with pytest.raises(GPVIError, match=r"kernel must be an instance of RBF, got 'paper': such as RBF"):
        make("paper")


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, None, "x"])
def test_a_tolerance_is_a_number_and_0_is_one(bad):
    assert bicgstab(lambda x: 2 * x, torch.eye(2), max_iterations=1, tol=0.0).iterations.tolist() == [1, 1]
    with pytest.raises(GPVIError, match=f"tol must be 0 or a positive finite number, got {bad!r}"):
        BiCGSTABInverse(tol=bad)


def test_a_stopping_rule_by_which_nothing_is_solved_is_refused():
    with pytest.raises(GPVIError, match="tol must be below 1, which zero has as relative residual, got 10.0"):
        BiCGSTABInverse(tol=10.0)
    with pytest.raises(GPVIError, match="tol must be below 1"):
        bicgstab(lambda x: x, torch.eye(2), tol=1.0)
    with pytest.raises(GPVIError, match="the bandwidth h must be a positive finite number, got None"):
        RBF(None)


def test_widths_that_can_be_read_only_once_are_refused():
    with pytest.raises(GPVIError, match=r"hidden must hold the width of each hidden layer, .* got <map"):
        Generator(2, hidden=map(int, "8,8".split(",")), seed=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MeanField(torch.eye(3)), r"a mean \(d,\) and a scale .*, got \(3, 3\) and \(\)"),
        (lambda: MeanField(torch.zeros(3), torch.ones(2)), r"got \(3,\) and \(2,\)"),
        (lambda: GaussianMixture(torch.zeros(3)), r"a mixture needs means \(m, d\), .*, got \(3,\)"),
        (lambda: GaussianMixture(torch.zeros(2, 1, dtype=torch.int64)), "the means must be a floating point tensor"),
        (lambda: LowRankLaplace(torch.zeros(2), torch.eye(2)[:, :1], torch.tensor([-3.0]), 1.0), "must be positive"),
        (lambda: power_decay(3, 0.5, offset=-1.0), "offset must be above -1"),
        (lambda: Jitter(2.5), "the number of extra points must be a whole number >= 0, got 2.5"),
        (lambda: FunctionSpaceParVI(SVGD(), KDE(3), num_samples=4, independent=True, noise_prior=InverseGamma()),
         "independent batches and a noise_prior do not go together"),
        (lambda: relative_error(torch.ones(3), torch.ones(3, 1)), r"one shape, got \(3,\) and \(3, 1\)"),
        (lambda: total_variation(torch.ones(2, 3) / 3, torch.ones(2, 1)), "as many classes, got 3 and 1"),
        (lambda: regression_log_likelihood(torch.zeros(3, 3), torch.ones(3, 1), 1.0),
         r"must have the shape \(3,\) of one network's predictions, got \(3, 1\)"),
    ],
)  # fmt: skip
def test_what_broadcasting_or_torch_would_take_in_another_way_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Scored:
    """A normal with a score of its own."""

    dim = 2

    def __init__(self, score):
        self.score = score

    def log_prob(self, x, batch=None):
        return -0.5 * x.square().sum(-1)


def test_a_score_of_the_targets_own_is_looked_at():
    x = torch.ones(3, 2)
    for ask in (score, differentiable_score):
        with pytest.raises(ValueError, match=r"Scored.score must return the gradient .* shape \(., 2\), got \(., 1\)"):
            ask(Scored(lambda x: -x[:, :1]), x)
        assert_close(ask(Scored(lambda x: -x), x), -x)  # without `batch`, as log_prob may be


def test_the_steps_of_an_adaptive_chain_cannot_be_trained():
    chain = AdaptiveLangevin("rmsprop", MeanField(torch.zeros(2)), Gaussian(torch.zeros(2), torch.eye(2)), 3, 0.1)
    with pytest.raises(ValueError, match="the rule of an AdaptiveLangevin sets its steps: train a LangevinNetwork"):
        run(chain)


def test_the_functional_gradient_of_a_point_estimate_names_what_trains_it():
    with pytest.raises(ValueError, match=r"got PointEstimate; use NegativeELBO\(n\), or ParVI\(SVGD\(\), num_samp"):
        run(PointEstimate(Generator(2, seed=0), torch.empty(0)), objective=GPVI(4))


def test_a_chain_names_what_starts_and_what_trains_it():
    target = Gaussian(torch.zeros(2), torch.eye(2))
    with pytest.raises(GPVIError, match=r"(?s)start must be an instance of Sampler, .* or Particles\(x\)"):
        LangevinNetwork(torch.zeros(5, 2), target, 3)
    with pytest.raises(ValueError, match="a LangevinNetwork has no tractable density; use PathELBO, or ParVI"):
        run(LangevinNetwork(MeanField(torch.zeros(2)), target, 3), objective=NegativeELBO(4))


@pytest.mark.parametrize(
    ("sampler", "other"), [(Particles(torch.zeros(3, 2)), "ParVI"), (MeanField(torch.zeros(2)), "N")]
)
def test_the_oriented_elbo_names_what_can_train_the_sampler(sampler, other):
    with pytest.raises(ValueError, match=f"OrientedELBO needs a Generator, got {type(sampler).__name__}; use {other}"):
        OrientedELBO(4)(sampler, None, None, None)


def test_a_likelihood_that_cannot_be_evaluated_is_told_what_it_was_given():
    def losses(outputs, labels):
        return -nn.functional.cross_entropy(outputs, labels, reduction="none")

    target = Posterior(mlp([2, 3]), losses, torch.ones(7, 2), torch.zeros(7).long())
    with pytest.raises(ValueError, match="batch_size") as caught:
        run(MeanField(torch.zeros(target.dim)), target)
    said = (
        "the likelihood was given outputs (2, 7, 3), of 2 networks, and targets (7,); it must return log-probabilities"
    )
    assert caught.value.__notes__ == [f"gpvi_lib: {said} (2, 7)"]


def test_chains_have_no_constrained_values_and_their_samples_do(rng):
    target = Constrained(lambda p: -p["s"], {"s": constraints.positive})
    chains = hmc(target.log_prob, torch.zeros(2, 1), step_size=0.5, num_leapfrog=3, num_steps=3, burn_in=0, rng=rng)
    with pytest.raises(GPVIError, match=r"a tensor \(..., 1\), got HMCResult: of chains give samples"):
        target.constrain(chains)
    assert target.constrain(chains.samples)["s"].shape == (3, 2)


def test_a_class_in_place_of_a_part_is_named():
    with pytest.raises(GPVIError, match="direction must be an instance, got the class SVGD"):
        ParVI(SVGD)
    with pytest.raises(GPVIError, match="inverse must be an instance, got the class HelperInverse"):
        GPVI(2, HelperInverse)


NO_RNG = {
    "generator": lambda: Generator(2, rng=None),
    "flow": lambda: Flow(2, 2, rng=None),
    "draw": lambda: MeanField(torch.zeros(2)).sample(3, None),
    "draw of a generator": lambda: Generator(2, rng=RNG).sample(3, None),
    "draw of a prior": lambda: NormalPrior(1.0).sample(3, torch.zeros(1, 2), None),
    "draw of a mixture": lambda: GaussianMixture(torch.zeros(2, 2)).sample(3, None),
    "draw on the plane": lambda: PlaneGrid(Gaussian(torch.zeros(2), torch.eye(2)), 4.0, 8).sample(3, None),
    "points for functions": lambda: Uniform(3, 0.0, 1.0)(torch.zeros(4, 1), None),
    "fit": lambda: run(rng=None),
    "hmc": lambda: hmc(
        lambda x: -x.square().sum(-1), torch.zeros(4, 2), step_size=1, num_leapfrog=1, num_steps=1, burn_in=0, rng=None
    ),
}


@pytest.mark.parametrize("case", NO_RNG)
def test_nothing_draws_from_the_global_seed(case):
    with pytest.raises(GPVIError, match=r"rng must be a torch.Generator, such as .* got None"):
        NO_RNG[case]()


def test_a_scale_that_is_not_there_cannot_be_trained():
    with pytest.raises(ValueError, match="train_noise_scale=True needs a λ to train"):
        Generator(2, noise_scale=None, train_noise_scale=True, rng=RNG)


# Posteriors of modules


def posterior(module=None, n=4, **arguments):
    module = nn.Linear(2, 1) if module is None else module
    return Posterior(module, NormalLikelihood(1.0), torch.ones(n, 2), torch.ones(n), **arguments)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)

    def forward(self, x):
        return self.inner(x), self.inner(x)


class Convolved(Twice):
    def __init__(self):
        super().__init__()
        self.unused = nn.Conv1d(1, 1, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: posterior(n=0), "there are no data"),
        (lambda: BayesianLinearRegression(torch.ones(0, 2), torch.ones(0)), "there are no data"),
        (lambda: posterior(prior=NormalPrior(torch.ones(5))), "cannot be evaluated on 3 weights"),
        (lambda: posterior(prior=1.0), r"must be an object with log_prob\(w\)"),
        (lambda: posterior(prior=NormalPrior), r"must be an object with log_prob\(w\)"),
        (lambda: posterior(prior=Shaped(lambda w: w)), r"one number per row of weights, \(n,\), got \(1, 3\)"),
        (lambda: posterior(prior=Shaped(lambda w: 0.0)), r"one number per row of weights, \(n,\), got float"),
        (
            lambda: BayesianLinearRegression(torch.ones(3, 2), torch.ones(3), NormalPrior(torch.ones(5))),
            "cannot be evaluated on 2 weights",
        ),
        (lambda: posterior(nn.LazyLinear(1)), "weight, bias of a lazy module has no shape yet: run the module once"),
        (lambda: posterior(Twice()), "the module must return one tensor, got tuple: wrap it"),
        (lambda: posterior(Convolved()), "the module must return one tensor, got tuple: wrap it"),
        (lambda: posterior().predictive(torch.ones(0, 3), torch.ones(2, 2)), "w holds 0 networks"),
    ],
)
def test_a_posterior_that_cannot_be_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Metrics


HALF, LABELS = torch.full((3, 2), 0.5), torch.tensor([0, 1, 1])
METRICS = {
    "predictive of no network": (lambda: metrics.predictive(torch.ones(0, 3, 2)), "0 networks"),
    "entropy of no network": (lambda: metrics.predictive_entropy(torch.ones(0, 3, 2)), "0 networks"),
    "variance of no network": (lambda: metrics.predictive_variance(torch.ones(0, 3, 2)), "0 networks"),
    "density of no network": (
        lambda: metrics.regression_log_likelihood(torch.ones(0, 3), torch.ones(3), 1.0),
        "0 networks",
    ),
    "calibration of nan": (lambda: metrics.regression_calibration_error(torch.tensor([0.5, math.nan])), "1 that are"),
    "calibration beyond 1": (lambda: metrics.regression_calibration_error(torch.tensor([0.5, 1.5])), "probabilities"),
    "calibration of nothing": (lambda: metrics.regression_calibration_error(torch.ones(0)), "at least one datum"),
    "ece of logits": (lambda: metrics.expected_calibration_error(8 * HALF - 5, LABELS), "softmax"),
    "ece of nan": (lambda: metrics.expected_calibration_error(HALF * math.nan, LABELS), "probabilities"),
    "ece of odds": (lambda: metrics.expected_calibration_error(HALF / 2, LABELS), "sum to 1"),
    "ece of label 2": (lambda: metrics.expected_calibration_error(HALF, LABELS + 1), "0 and 1, got 1 to 2"),
    "ece of label -1": (lambda: metrics.expected_calibration_error(HALF, LABELS - 1), "0 and 1, got -1 to 0"),
    "ece of others": (lambda: metrics.expected_calibration_error(HALF, LABELS[:2]), r"class indices \(3,\)"),
    "likelihood of logits": (lambda: metrics.log_likelihood(8 * HALF - 5, LABELS), "softmax"),
}


@pytest.mark.parametrize("case", METRICS)
def test_a_measure_of_nothing_is_refused(case):
    make, message = METRICS[case]
    with pytest.raises(ValueError, match=message):
        make()
