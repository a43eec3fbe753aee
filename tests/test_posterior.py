"""A posterior for any module and likelihood, against closed forms, naive loops and torch.distributions."""

import math
import warnings
from importlib import import_module

import pandas
import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, MultivariateNormal, Normal, Poisson, StudentT
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.data import Dataset

from gpvi_lib import (
    Adam,
    CategoricalLikelihood,
    ClassificationPosterior,
    FlatModule,
    FlatPrior,
    Generator,
    LearnedNoise,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalMixture,
    NormalPrior,
    Posterior,
    RegressionPosterior,
    StreamedPosterior,
    Target,
    check,
    fit,
    mlp,
    score,
    trust,
)
from gpvi_lib.targets.posterior import ScaleWarning, SignWarning

NUM_DATA = 12


@pytest.fixture
def learned(normal) -> Posterior:
    return Posterior(LearnedNoise(mlp([2, 3, 1]), 0.5), NormalLikelihood(), normal(NUM_DATA, 2), normal(NUM_DATA))


def test_linear_regression_by_a_module_is_the_closed_form(normal):
    """With known noise and a normal prior it is a normal distribution: the log-densities differ by one number."""
    x, y, sigma = normal(NUM_DATA, 3), normal(NUM_DATA), 0.7
    target = Posterior(nn.Linear(3, 1, bias=False), NormalLikelihood(sigma), x, y, NormalPrior(2.0))
    precision = x.mT @ x / sigma**2 + torch.eye(3) / 4
    exact = MultivariateNormal(torch.linalg.solve(precision, x.mT @ y / sigma**2), precision_matrix=precision)
    w = normal(5, 3)
    difference = target.log_prob(w) - exact.log_prob(w)
    assert_close(difference, difference[:1].expand(5))
    assert_close(score(target, w), (exact.mean - w) @ precision)
    assert isinstance(target, Target) and (target.dim, target.num_data) == (3, NUM_DATA)


def test_the_noise_is_one_more_coordinate(learned, normal):
    """The first coordinate u is log σ up to its median; the network has all others; both have their priors."""
    w, batch = normal(4, learned.dim), torch.tensor([5, 0, 7])
    assert learned.dim == 1 + 3 * 3 + 4
    network = FlatModule(mlp([2, 3, 1]))
    for indices in (torch.arange(NUM_DATA), batch):
        means = network(w[:, 1:], learned.inputs[indices])[..., 0]
        sigma = 0.5 * w[:, 0].exp()
        expected = Normal(means, sigma[:, None]).log_prob(learned.targets[indices]).sum(1) * NUM_DATA / len(indices)
        assert_close(learned.log_likelihood(w, indices), expected)
    prior = Normal(0, 1).log_prob(w[:, 0]) + NormalPrior(network.fan_in_scale(torch.float64)).log_prob(w[:, 1:])
    assert_close(learned.log_prob(w), learned.log_likelihood(w) + prior, rtol=1e-6, atol=1e-6)  # scales in float32


def test_the_score_of_the_noise_is_the_closed_form(learned, normal):
    """``∂/∂u log p = -N + Σ r^2 / σ^2 - u``: zero where σ^2 is the mean squared residual, but for the prior."""
    w = normal(4, learned.dim)
    residual = learned.network(w, learned.inputs)[..., 0] - learned.targets
    squares = (residual / (0.5 * w[:, :1].exp())).square().sum(1)
    assert_close(score(learned, w)[:, 0], squares - NUM_DATA - w[:, 0])


def test_the_predictive_is_the_mixture_over_networks(learned, normal):
    w, inputs, y = normal(6, learned.dim), normal(5, 2), normal(5)
    found = learned.predictive(w, inputs)
    outputs = learned.network(w, inputs)
    expected = torch.stack([Normal(o[:, 0], o[:, 1].exp()).log_prob(y).exp() for o in outputs]).mean(0).log()
    assert_close(found.log_prob(y), expected)
    assert_close(found.mean, outputs[..., 0].mean(0))
    assert_close(found.variance, outputs[..., 0].var(0, correction=0) + (2 * outputs[..., 1]).exp().mean(0))


def test_known_noise_is_the_regression_posterior(normal):
    x, y = normal(NUM_DATA, 2), normal(NUM_DATA)
    mine = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.3), x, y, NormalPrior())
    theirs = RegressionPosterior(FlatModule(mlp([2, 3, 1])), x, y, 0.3)
    w = normal(4, mine.dim)
    assert torch.equal(mine.log_prob(w), theirs.log_prob(w))
    assert_close(theirs.predictive(w, x).mean, theirs.predict(w, x).mean(0))


def test_a_likelihood_may_be_any_function(normal, rng):
    """Poisson regression with a log link, against torch.distributions."""
    x, counts = normal(NUM_DATA, 2), torch.randint(5, (NUM_DATA,), generator=rng).double()

    def poisson(outputs, targets):
        return torch.distributions.Poisson(outputs.squeeze(-1).exp()).log_prob(targets)

    target = Posterior(nn.Linear(2, 1), poisson, x, counts, NormalPrior(1.0))
    w = normal(3, 3)
    rates = (w[:, :2] @ x.mT + w[:, 2:]).exp()
    expected = (counts * rates.log() - rates - torch.lgamma(counts + 1)).sum(1)
    assert_close(target.log_likelihood(w), expected)
    with pytest.raises(ValueError, match=r"no predictive\(outputs\)"):
        target.predictive(w, x)


def test_classes(normal, rng):
    x, y = normal(NUM_DATA, 2), torch.randint(3, (NUM_DATA,), generator=rng)
    mine = Posterior(mlp([2, 4, 3]), CategoricalLikelihood(), x, y, NormalPrior())
    theirs = ClassificationPosterior(FlatModule(mlp([2, 4, 3])), x, y)
    w = normal(5, mine.dim)
    assert torch.equal(mine.log_prob(w), theirs.log_prob(w)) and theirs.labels is y
    logits = mine.network(w, x)
    assert_close(mine.log_likelihood(w), torch.stack([-F.cross_entropy(o, y, reduction="sum") for o in logits]))
    predictive = mine.predictive(w, x)
    assert isinstance(predictive, Categorical)
    assert_close(predictive.probs, logits.softmax(-1).mean(0))


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_classifier_has_a_label_for_each_input(number):
    with pytest.raises(ValueError, match=rf"labels must have shape \(3,\), got \({number},\)"):
        CategoricalLikelihood()(torch.zeros(5, 3, 4), torch.zeros(number, dtype=torch.long))


@pytest.mark.parametrize("likelihood", [lambda o, y: (o.squeeze(-1) - y).square().sum(-1), lambda o, y: o - y])
def test_a_likelihood_of_another_shape_is_refused(likelihood, normal):
    """(n, b, 1) against (b,) would broadcast to (n, b, b) without a word."""
    with pytest.raises(ValueError, match=r"one log-probability per network and datum, shape \(2, 3\), got"):
        Posterior(nn.Linear(2, 1), likelihood, normal(NUM_DATA, 2), normal(NUM_DATA))


def test_targets_with_an_axis_too_many_are_refused_however_many_networks_there_are(normal):
    """With as many networks as data (N, 1) would fit: each network would be judged by one datum alone."""
    counts = torch.distributions.Poisson
    with pytest.raises(ValueError, match=r"only where there are as many networks as data: targets \(3, 1\) .*squeeze"):
        Posterior(nn.Linear(2, 1), lambda o, y: counts(o.squeeze(-1).exp()).log_prob(y), normal(9, 2), torch.ones(9, 1))


def test_a_likelihood_without_a_gradient_is_refused(normal):
    """The prior's graph hides it: what is found would be the prior."""
    x = normal(9, 2)
    target = Posterior(nn.Linear(2, 1), lambda o, y: -(o.detach()[..., 0] - y).square(), x, x[:, 0])
    with pytest.raises(ValueError, match="Posterior's likelihood is not differentiable in x: compute with torch"):
        fit(MeanField(torch.zeros(3).double()), target, NegativeELBO(2), steps=1, optimizer=Adam(0.1), seed=0)


def test_probabilities_are_no_logits(normal):
    x = normal(9, 2)
    with pytest.raises(ValueError, match="outputs are probabilities, they sum to 1: leave out its last Softmax"):
        Posterior(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), CategoricalLikelihood(), x, torch.arange(9) % 3)
    Posterior(nn.Sequential(nn.Linear(2, 3), nn.LogSoftmax(-1)), CategoricalLikelihood(), x, torch.arange(9) % 3)


def test_counts_are_not_to_be_standardised(normal, recwarn):
    def poisson(o, y):
        return torch.distributions.Poisson(o.squeeze(-1).exp()).log_prob(y)

    Posterior(nn.Linear(2, 1), poisson, normal(9, 2), torch.full((9,), 40.0))
    assert not [warning for warning in recwarn if issubclass(warning.category, ScaleWarning)]
    with pytest.warns(ScaleWarning, match="targets of size 40.5 .*: standardise inputs, and give targets another unit"):
        Posterior(nn.Linear(2, 1), lambda o, y: -(o.squeeze(-1) - y).square(), normal(9, 2), torch.full((9,), 40.5))


def test_a_sampler_in_the_place_of_weights_is_named(normal):
    target = Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), normal(9, 2), normal(9))
    with pytest.raises(ValueError, match=r"w must hold weights \(n, 3\), got MeanField: give sampler.sample"):
        target.predictive(MeanField(torch.zeros(3)), normal(2, 2))


def test_a_prior_of_torch_has_to_be_drawn_from_by_itself(normal):
    prior = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), 1.0), 1)
    target = Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), normal(9, 2).float(), normal(9).float(), prior)
    with pytest.raises(ValueError, match="draw from the prior by itself: torch's Independent takes no rng"):
        target.sample_prior(2, seed=0)


def test_data_that_do_not_fit_are_refused(normal):
    x, y = normal(5, 2), normal(5)
    with pytest.raises(ValueError, match="5 inputs but 4 targets"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, y[:4])
    with pytest.raises(ValueError, match=r"targets must have shape \(N,\), got \(5, 1\): try .squeeze\(-1\)"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, y[:, None])
    with pytest.raises(ValueError, match=r"networks with 2 outputs, m and log σ per input, got outputs \(1, 1, 1\)"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(), x, y)
    with pytest.raises(ValueError, match="networks with 1 output per input"):
        Posterior(nn.Linear(2, 2), NormalLikelihood(0.1), x, y)
    with pytest.raises(ValueError, match="one output per input, got 2 for 1 inputs"):
        Posterior(LearnedNoise(nn.Linear(2, 2)), NormalLikelihood(), x, y)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_datum_that_is_no_number_is_named(bad, normal):
    x, y = normal(5, 2), normal(5)
    y[3] = bad
    with pytest.raises(ValueError, match=rf"targets\[3\] is {bad}: leave such data out"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, y)
    x[1, 0] = bad
    with pytest.raises(ValueError, match=rf"inputs\[1, 0\] is {bad}"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, normal(5))


def test_data_of_another_kind_are_refused(normal):
    x, y = normal(5, 2), normal(5)
    with pytest.raises(
        ValueError, match="inputs must be one tensor, got ndarray: torch.as_tensor makes one of an array"
    ):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x.numpy(), y)
    with pytest.raises(ValueError, match="inputs must be one tensor, got list"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), [x, x], y)
    with pytest.raises(ValueError, match="the inputs are on cpu and the targets on meta: move one of them"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, torch.zeros(5, dtype=torch.long, device="meta"))
    target = Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, y)
    with pytest.raises(ValueError, match=r"inputs are torch.float64 and the weights torch.float32: convert the data"):
        target.log_prob(normal(2, 3).float())
    with pytest.raises(ValueError, match="this network has 3 weights, got weight vectors of 4"):
        target.predictive(normal(2, 4), x)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(5), r"labels must be class indices, integers of shape \(N,\), got torch.float32 \(5,\)"),
        (torch.zeros(5, 1, dtype=torch.long), r"got torch.int64 \(5, 1\): try .long\(\), .squeeze\(-1\)"),
        (torch.tensor([0, 1, 2, 3, 1]), "labels go from 0 to 3, but the network's 3 outputs are for classes 0 to 2"),
        (torch.tensor([0, 1, -1, 2, 1]), "labels go from -1 to 2"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, message, normal):
    with pytest.raises(ValueError, match=message):
        Posterior(nn.Linear(2, 3), CategoricalLikelihood(), normal(5, 2), labels)


def test_outputs_that_are_no_classes_are_refused(normal):
    network = nn.Sequential(nn.Linear(2, 3), nn.Unflatten(-1, (3, 1)))
    with pytest.raises(ValueError, match=r"a classifier must return \(inputs, classes\), got \(1, 3, 1\)"):
        Posterior(network, CategoricalLikelihood(), normal(5, 2), torch.zeros(5, dtype=torch.long))


class Returns(nn.Module):
    """A linear layer whose output something is done to."""

    def __init__(self, change):
        super().__init__()
        self.linear, self.change = nn.Linear(2, 1), change

    def forward(self, x):
        return self.change(self.linear(x))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: (o, o), "the module must return one tensor, got tuple: wrap it"),
        (
            lambda o: o * o.sum().item(),
            r"cannot be evaluated on inputs \(2,\) for many weights at once; it has to take",
        ),
        (lambda o: o.missing, "cannot be evaluated .*: 'Tensor' object has no attribute 'missing'"),
    ],
)
def test_a_module_that_cannot_be_evaluated_for_many_weights_is_refused(change, message, normal):
    with pytest.raises(ValueError, match=message):
        Posterior(Returns(change), NormalLikelihood(1.0), normal(5, 2), normal(5))
    with pytest.raises(ValueError, match=r"cannot be evaluated on inputs \(4,\)"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), normal(5, 4), normal(5))


def test_a_generator_for_weights_starts_at_the_prior_s_scale(normal):
    target = Posterior(mlp([2, 50, 1]), NormalLikelihood(1.0), normal(5, 2), normal(5))
    generator = Generator.for_weights(target.prior.scale, rng=torch.Generator().manual_seed(0))
    w = generator.sample(500, torch.Generator().manual_seed(1))
    assert w.dtype == torch.float64 == target.log_prob(w).dtype  # that of the data
    # The biases of the output layer are N(0, scale^2): over 201 weights the mean square of w / scale is 1 with a
    # standard error of 0.1; the output layer's weights, at most 32^-1/2 of the scale times features below 1, add to it.
    assert 0.6 < float((w / target.prior.scale).square().mean()) < 2.4
    assert_close(generator.noise_scale, 0.02 * target.prior.scale)
    assert isinstance(generator.log_noise_scale, nn.Parameter)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_an_impossible_noise_is_refused(scale):
    with pytest.raises(ValueError, match="standard deviation, must be a positive finite number"):
        NormalLikelihood(scale)
    with pytest.raises(ValueError, match="median of the noise's standard deviation must be positive"):
        LearnedNoise(nn.Linear(1, 1), scale)


# Mixtures


@pytest.fixture
def mixture(normal) -> NormalMixture:
    return NormalMixture(3 * normal(7, 4), normal(7, 4).exp())


@pytest.mark.parametrize("networks", [13, 26, 29, 44, 52])
def test_far_above_all_components_the_probability_does_not_round_to_above_one(networks):
    """Which numbers of networks round up is a matter of the processor; these did on one."""
    found = NormalMixture(torch.zeros(networks, 1, dtype=torch.float64), 1.0)
    value = torch.tensor([40.0], dtype=torch.float64)
    assert 0.999999 < float(found.cdf(value)) <= 1


def test_quantiles_invert_the_distribution_function(mixture):
    levels = torch.tensor([[1e-6], [0.05], [0.5], [0.95], [1 - 1e-6]], dtype=torch.float64)
    quantiles = mixture.icdf(levels)
    assert quantiles.shape == (5, 4)
    # 1 - 1e-6 has 10 digits of its own in float64
    assert_close(mixture.cdf(quantiles), levels.expand(5, 4), rtol=1e-9, atol=1e-12)
    low, high = mixture.interval(0.9)
    assert_close((low, high), (quantiles[1], quantiles[3]))
    assert_close(mixture.cdf(high) - mixture.cdf(low), torch.full((4,), 0.9, dtype=torch.float64))


def test_draws_of_a_mixture_are_those_of_its_components(mixture):
    """By the distribution function: uniform, with the standard errors of 40,000 draws at each of four inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = mixture.sample((40_000,))
        assert mixture.sample().shape == (4,) and mixture.sample((2, 3)).shape == (2, 3, 4)
    levels = mixture.cdf(draws)
    assert draws.shape == (40_000, 4) and not draws.requires_grad
    assert_close(levels.mean(0), torch.full((4,), 0.5, dtype=levels.dtype), rtol=0, atol=5 / math.sqrt(12 * 40_000))
    assert_close(levels.square().mean(0), torch.full((4,), 1 / 3, dtype=levels.dtype), rtol=0, atol=0.3 * 5 / 200)


@pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.5])
def test_levels_are_probabilities(level, mixture):
    with pytest.raises(ValueError, match=f"level of an interval must be between 0 and 1, such as 0.9, got {level}"):
        mixture.interval(level)
    with pytest.raises(ValueError, match="levels must be between 0 and 1"):
        mixture.icdf(level)


def test_values_of_a_mixture_are_one_for_each_input(mixture):
    """(b, 1) would broadcast to (b, b) without a word."""
    for evaluate in (mixture.log_prob, mixture.cdf):
        with pytest.raises(ValueError, match=r"there are 4 inputs, so values must have shape \(..., 4\), got \(4, 1\)"):
            evaluate(torch.zeros(4, 1, dtype=torch.float64))
        assert evaluate(torch.zeros(5, 4, dtype=torch.float64)).shape == (5, 4)
        assert evaluate(torch.zeros((), dtype=torch.float64)).shape == (4,)


def test_one_component_is_the_normal_distribution(normal):
    mean, scale = normal(1, 4), normal(1, 4).exp()
    found, level = NormalMixture(mean, scale), torch.tensor(0.2, dtype=torch.float64)
    assert_close(found.icdf(level), Normal(mean[0], scale[0]).icdf(level))
    assert_close(found.log_prob(mean[0]), Normal(mean[0], scale[0]).log_prob(mean[0]))


def test_a_change_of_unit(mixture, normal):
    y, other = normal(4), mixture.rescaled(2.0, 3.0)
    assert_close(other.mean, 2 + 3 * mixture.mean)
    assert_close(other.stddev, 3 * mixture.stddev)
    assert_close(other.log_prob(2 + 3 * y), mixture.log_prob(y) - math.log(3))
    assert_close(other.icdf(0.3), 2 + 3 * mixture.icdf(0.3))


def test_one_scale_for_all(normal):
    means = normal(3, 4)
    assert_close(NormalMixture(means, 0.5).variance, means.var(0, correction=0) + 0.25)


# Modules


class Everything(nn.Module):
    """Attention, layer norm, dropout, a buffer, a frozen layer, tied weights and a parameter without an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm, self.drop = nn.LayerNorm(4), nn.Dropout(0.5)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.gain = nn.Parameter(torch.ones(()))
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x):
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.gain * self.second(self.drop(self.first(self.frozen(x)))).mean(1) + self.shift


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap of attention's fused kernel
def test_what_a_module_may_contain(normal):
    module = Everything().double()
    flat = FlatModule(module)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    assert "second.weight" not in trained and flat.dim == sum(p.numel() for p in trained.values())
    w, x = 0.3 * normal(3, flat.dim), normal(5, 6, 4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    outputs = flat(w, x)
    assert torch.equal(outputs, flat(w, x))  # dropout does nothing
    module.eval()
    for weights, output in zip(w, outputs, strict=True):
        assert_close(output, functional_call(module, flat.unflatten(weights), (x,)))
    assert_close(module.state_dict(), before, rtol=0, atol=0)


def test_only_what_is_not_frozen_is_inferred(normal):
    """The last layer alone: linear regression on fixed features."""
    module = mlp([2, 3, 1]).double()
    module[1].requires_grad_(False)
    x, y = normal(NUM_DATA, 2), normal(NUM_DATA)
    target = Posterior(module, NormalLikelihood(0.5), x, y)
    w = normal(6, 4)
    features = torch.relu(x @ module[1].weight.mT + module[1].bias)
    means = w[:, :3] @ features.mT + w[:, 3:]
    assert_close(target.log_likelihood(w), Normal(means, 0.5).log_prob(y).sum(1))
    with pytest.raises(ValueError, match="nothing to infer"):
        FlatModule(nn.Linear(2, 1).requires_grad_(False))


def test_the_default_prior_is_that_of_the_fan_in(normal):
    x, y = normal(NUM_DATA, 2), normal(NUM_DATA)
    target = Posterior(Everything(), lambda o, y: o[..., 0] - y, normal(NUM_DATA, 6, 4), y)
    scales = target.network.unflatten(target.prior.scale)
    expected = {"norm.weight": 1.0, "gain": 1.0, "first.weight": 0.5, "attention.in_proj_weight": 0.5}
    for name, value in expected.items():
        assert_close(scales[name], torch.full_like(scales[name], value))
    noisy = Posterior(LearnedNoise(nn.Linear(2, 1)), NormalLikelihood(), x, y)
    assert_close(noisy.prior.scale, torch.tensor([1.0, 2**-0.5, 2**-0.5, 2**-0.5], dtype=torch.float64))


class Tied(nn.Module):
    """A layer, and something between the data of a batch."""

    def __init__(self, tie):
        super().__init__()
        self.layer, self.tie, self.head = nn.Linear(2, 4), tie, nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.tie(self.layer(x)))


TIES = {
    "functional batch norm": lambda h: F.batch_norm(h, None, None, training=True),
    "functional batch norm of maps": lambda h: F.batch_norm(
        h[..., None, None].expand(-1, -1, 2, 2), None, None, training=True
    )[..., 0, 0],
    "own mean": lambda h: h - h.mean(0),
    "own scale": lambda h: h / h.std(0),
    "attention over data": lambda h: (h @ h.mT).softmax(-1) @ h,
    "a small share of the mean": lambda h: h + 0.01 * h.mean(0),
}


@pytest.mark.filterwarnings("ignore:std")  # of one datum
@pytest.mark.parametrize("tie", TIES.values(), ids=TIES)
def test_modules_that_tie_the_data_are_refused(tie, normal):
    with pytest.raises(ValueError, match="the module ties the data of a batch to each other"):
        Posterior(Tied(tie), NormalLikelihood(0.1), normal(NUM_DATA, 2), normal(NUM_DATA))


@pytest.mark.parametrize("tie", [lambda h: F.layer_norm(h, (4,)), torch.tanh, lambda h: h - h.mean(1, keepdim=True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_of_one_datum_are_fine(tie, dtype, normal):
    inputs, targets = 1e3 * normal(NUM_DATA, 2).to(dtype), normal(NUM_DATA).to(dtype)
    for number in (1, NUM_DATA):
        Posterior(Tied(tie), NormalLikelihood(0.1), inputs[:number], targets[:number])


def test_a_module_with_another_number_of_rows_is_refused(normal):
    class Half(nn.Linear):
        def forward(self, x):
            return super().forward(x)[: (len(x) + 1) // 2]

    with pytest.raises(ValueError, match="the module must return one row per input"):
        Posterior(Half(2, 1), NormalLikelihood(0.1), normal(NUM_DATA, 2), normal(NUM_DATA))


class Files(Dataset):
    """Counts what is read."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets, self.read = inputs, targets, []

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        self.read.append(row)
        return self.inputs[row], self.targets[row]


def test_data_that_are_read_give_the_same_fit(normal, monkeypatch):
    """Bit for bit: the minibatches are the same, and each step reads their data alone, once."""
    x, y = normal(40, 2), normal(40)
    means, seen = [], []
    files = Files(x, y)
    streamed = StreamedPosterior(mlp([2, 3, 1]), NormalLikelihood(0.5), files)
    files.read.clear()
    in_memory = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), x, y)
    plain = in_memory.data
    monkeypatch.setattr(in_memory, "data", lambda batch: seen.append(batch) or plain(batch))
    for target in (streamed, in_memory):
        sampler = MeanField(torch.zeros(target.dim, dtype=torch.float64))
        settings = {"steps": 6, "batch_size": 8, "optimizer": Adam(0.01), "seed": 0, "progress": False}
        fit(sampler, target, NegativeELBO(4), **settings)
        means.append(sampler.mean.detach())
    assert torch.equal(*means)
    assert files.read[-6 * 8 :] == torch.cat(seen[-6:]).tolist()
    assert len(files.read) < 5 * 40  # with the looks at some data before the first step
    assert streamed.num_data == 40


class Many(Dataset):
    """More data than float32 can count."""

    number = 20_000_000

    def __len__(self):
        return self.number

    def __getitem__(self, row):
        assert 0 <= row < self.number
        return torch.full((1,), row / self.number), torch.tensor(0.5)


def test_of_very_many_data_none_beyond_the_last_is_looked_at():
    target = StreamedPosterior(nn.Linear(1, 1), NormalLikelihood(1.0), Many())
    assert target.num_data == Many.number
    x = torch.zeros(1).expand(Many.number)
    assert trust._evenly(x, 5).shape == (5,)


def test_data_that_are_read_need_minibatches_and_pairs(normal):
    x, y = normal(6, 2), normal(6)
    arguments = mlp([2, 1]), NormalLikelihood(0.5)
    target = StreamedPosterior(*arguments, Files(x, y))
    settings = {"steps": 1, "optimizer": Adam(0.01), "seed": 0, "progress": False}
    with pytest.raises(ValueError, match="the 6 data are read by minibatches: give fit a batch_size"):
        fit(MeanField(torch.zeros(3, dtype=torch.float64)), target, NegativeELBO(4), **settings)
    with pytest.raises(ValueError, match="the 6 data do not lie in memory: ask for a minibatch of them"):
        target.data(None)
    with pytest.raises(
        ValueError, match=r"items of the dataset must be pairs \(input, target\), got a Tensor: return both"
    ):
        StreamedPosterior(*arguments, x)
    with pytest.raises(ValueError, match=r"\(input, target\), got a tuple of 3: return both from __getitem__"):
        StreamedPosterior(*arguments, [(1.0, 2.0, 3.0)] * 6)
    with pytest.raises(ValueError, match="the dataset has 0 items"):
        StreamedPosterior(*arguments, Files(x[:0], y[:0]))
    with pytest.raises(ValueError, match="the dataset must have a length and items, int has not both"):
        StreamedPosterior(*arguments, 3)
    with pytest.raises(ValueError, match="the module ties the data of a batch"):
        StreamedPosterior(Tied(lambda h: h - h.mean(0)), NormalLikelihood(0.5), Files(x, y))


def test_all_data_are_read_in_parts_for_their_density_and_its_score(normal, monkeypatch):
    """The same sums as in memory, in another order; each part is read once, whether or not there is a gradient."""
    x, y, w = normal(23, 2), normal(23), normal(4, 13)
    files = Files(x, y)
    streamed = StreamedPosterior(mlp([2, 3, 1]), NormalLikelihood(0.5), files, power=0.7)
    whole = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), x, y, power=0.7)
    monkeypatch.setattr(import_module("gpvi_lib.targets.posterior"), "EVALUATED", 20)  # 5 data at a time
    for evaluate in (lambda target: target.log_prob(w), lambda target: score(target, w)):
        files.read.clear()
        assert_close(evaluate(streamed), evaluate(whole))
        assert files.read == list(range(23))
    weights = normal(4)
    of_each = [torch.autograd.functional.vjp(target.log_prob, w, weights)[1] for target in (streamed, whole)]
    assert_close(*of_each)


def test_samples_can_be_checked_on_data_that_are_read(normal):
    x, y = normal(30, 2).float(), normal(30).float()
    sampler = MeanField(torch.zeros(13), 0.1)
    reports = [
        check(sampler, target, torch.Generator().manual_seed(0), num_samples=100, progress=False)
        for target in (
            StreamedPosterior(mlp([2, 3, 1]), NormalLikelihood(0.5), Files(x, y)),
            Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), x, y),
        )
    ]
    assert [finding.key for finding in reports[0].findings] == [finding.key for finding in reports[1].findings]
    for key in ("elbo", "spread"):
        assert reports[0][key].value == pytest.approx(reports[1][key].value, rel=1e-4)


def test_many_inputs_are_predicted_in_parts(normal, monkeypatch):
    target = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), normal(NUM_DATA, 2), normal(NUM_DATA))
    w, inputs, seen = normal(7, target.dim), normal(50, 2), []
    whole, network = target.predictive(w, inputs), target.network
    monkeypatch.setattr(import_module("gpvi_lib.targets.posterior"), "EVALUATED", 7 * 20)
    monkeypatch.setattr(target, "network", lambda w, part: seen.append(len(part)) or network(w, part))
    parts = target.predictive(w, inputs)
    assert seen == [20, 20, 10]
    assert_close(parts.mean, whole.mean)
    monkeypatch.setattr(import_module("gpvi_lib.targets.posterior"), "EVALUATED", 1)  # less than one input of all
    assert_close(target.predictive(w, inputs[:2]).stddev, whole.stddev[:2])


def test_a_data_frame_names_the_remedy(normal):
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0]})
    with pytest.raises(ValueError, match=r"got DataFrame: torch.as_tensor makes .* a data frame's .to_numpy\(\)"):
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), frame, normal(2))


def test_starts_are_drawn_from_the_prior(normal):
    target = Posterior(mlp([2, 50, 1]), NormalLikelihood(1.0), normal(5, 2), normal(5))
    w = target.sample_prior(500, seed=3)
    assert w.shape == (500, target.dim) and w.dtype == torch.float64
    ratio = w.std(0) / target.prior.scale
    assert (ratio - 1).abs().max() < 6 / math.sqrt(2 * 500)  # 201 weights
    assert torch.equal(w, target.sample_prior(500, torch.Generator().manual_seed(3)))
    with pytest.raises(ValueError, match="rng must be a torch.Generator"):
        target.sample_prior(5)
    flat = Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), normal(5, 2), normal(5), FlatPrior())
    with pytest.raises(ValueError, match="FlatPrior cannot be drawn from"):
        flat.sample_prior(5, seed=0)


def test_new_inputs_of_which_nothing_can_be_said(normal):
    target = Posterior(mlp([2, 5, 1]), NormalLikelihood(1.0), normal(5, 2), normal(5))
    w, new = target.sample_prior(4, seed=0), normal(3, 2)
    with pytest.raises(
        ValueError, match=r"cannot take inputs of \(4,\) torch.float64 on cpu; those of the data are \(2,\)"
    ):
        target.predictive(w, normal(3, 4))
    with pytest.raises(
        ValueError, match=r"w must be \(n, 21\), a row a network, got \(4, 1, 21\): of chains take .pooled"
    ):
        target.predictive(w[:, None], new)
    new[1, 0] = math.nan
    with pytest.raises(ValueError, match=r"inputs\[1, 0\] is nan: leave such data out"):
        target.predictive(w, new)


@pytest.mark.parametrize(("factor", "shift"), [((100.0, 1.0), 0.0), ((1.0, 1.0), 40.0), ((100.0, 1.0), 40.0)])
def test_data_far_from_order_one_are_noticed(factor, shift, normal):
    x, y = normal(50, 2) * torch.tensor(factor), normal(50) + shift
    with pytest.warns(ScaleWarning, match="standardise them") as caught:
        Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), x, y)
    message = str(caught[0].message)
    assert ("inputs of size" in message, "targets of size 40" in message) == (factor[0] > 1, shift > 0)


@pytest.mark.filterwarnings("error")
def test_data_of_order_one_and_chosen_priors_are_not_warned_of(normal):
    x, y = normal(50, 2), normal(50)
    Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), 5 * x, y)
    Posterior(nn.Linear(2, 1), NormalLikelihood(1.0), 500 * x, y, NormalPrior(0.01))
    Posterior(nn.Linear(2, 3), CategoricalLikelihood(), x, torch.arange(50) % 3)


class Noisy(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.layer, self.draw = nn.Linear(2, 1), draw

    def forward(self, x):
        return self.layer(self.draw(x))


@pytest.mark.parametrize("draw", [F.dropout, lambda x: x + torch.randn_like(x)], ids=["dropout", "noise"])
def test_a_module_that_draws_random_numbers_is_refused(draw, normal):
    with pytest.raises(ValueError, match="draws random numbers when it is evaluated, as F.dropout does"):
        Posterior(Noisy(draw), NormalLikelihood(1.0), normal(5, 2), normal(5))
    Posterior(Noisy(nn.Dropout()), NormalLikelihood(1.0), normal(5, 2), normal(5))


class Flat(nn.Linear):
    def forward(self, x):
        return super().forward(x)[:, 0]


def test_a_module_without_an_axis_of_outputs_is_told_so(normal):
    with pytest.raises(ValueError, match=r"\(inputs, outputs\) is wanted: return outputs\[:, None\]"):
        Posterior(Flat(2, 1), NormalLikelihood(1.0), normal(5, 2), normal(5))


@pytest.mark.parametrize("learned", [True, False])
def test_numbers_in_the_place_of_rows_are_told_so(learned, normal):
    """One number passes for one row of one feature; two do not."""
    module, scale = (LearnedNoise(mlp([1, 5, 1])), None) if learned else (mlp([1, 5, 1]), 0.1)
    with pytest.raises(ValueError, match=r"inputs of shape \(20,\): where it takes rows .* give inputs\[:, None\]"):
        Posterior(module, NormalLikelihood(scale), normal(20), normal(20))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_half_precision_is_refused_by_name(dtype, name, normal):
    data = {"inputs": normal(5, 2), "targets": normal(5)}
    data[name] = data[name].to(dtype)
    with pytest.raises(ValueError, match=rf"^{name} is {dtype}, too coarse for a posterior: give it as float32"):
        Posterior(mlp([2, 5, 1]), NormalLikelihood(0.1), **data)


def test_an_error_that_is_not_about_the_inputs_stays_as_it_is(normal, monkeypatch):
    target = Posterior(mlp([2, 5, 1]), NormalLikelihood(1.0), normal(5, 2), normal(5))

    def full(*arguments):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(target, "network", full)
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        target.predictive(torch.zeros(4, target.dim), normal(3, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": torch.nn.Linear}, "module must be a torch.nn.Module, an instance, got <class"),
        ({"likelihood": NormalLikelihood}, r"likelihood must be an instance.*write NormalLikelihood\(...\)"),
        ({"likelihood": "normal"}, r"likelihood must be callable, such as NormalLikelihood\(0.1\), got 'normal'"),
        ({"targets": torch.zeros(9, 2)}, r"shape \(N,\), got \(9, 2\): one number each, such as targets\[:, 0\]"),
    ],
)
def test_parts_of_another_kind_are_named(change, message):
    x = torch.zeros(9, 3)
    parts = {"module": torch.nn.Linear(3, 1), "likelihood": NormalLikelihood(0.1), "inputs": x, "targets": x[:, 0]}
    with pytest.raises(ValueError, match=message):
        Posterior(**parts | change)


def test_a_loader_is_not_its_dataset():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(9, 3), torch.zeros(9)))
    with pytest.raises(ValueError, match=r"DataLoader has not both: give its .dataset"):
        StreamedPosterior(torch.nn.Linear(3, 1), NormalLikelihood(0.1), loader)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_data_that_are_too_small_or_too_large_for_the_default_prior_are_warned_of(factor, normal):
    x, y = normal(50, 2).float(), normal(50).float()
    for inputs, targets in ((factor * x, y), (x, factor * y)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), inputs, targets)
        said = [str(w.message) for w in caught if w.category is ScaleWarning]
        assert len(said) == (factor != 1) and all("standardise" in text for text in said)


def by_logits(outputs, targets):
    return Categorical(logits=outputs).log_prob(targets)


def by_cross_entropy(outputs, targets):
    """A loss, for each datum."""
    return -by_logits(outputs, targets)


def by_squares(outputs, targets):
    """A loss, for each datum."""
    return (outputs[..., 0] - targets).square()


def of_counts(outputs, targets):
    return Poisson(outputs[..., 0].exp()).log_prob(targets)


def of_counts_by_squares(outputs, targets):
    """The rate is never small, so that larger weights fit large counts better, up to a point."""
    return Poisson(outputs[..., 0].square() + 1e-3).log_prob(targets)


def of_heavy_tails(outputs, targets):
    return StudentT(2.0, outputs[..., 0], outputs[..., 1].exp()).log_prob(targets)


def of_a_share(outputs, targets):
    return Bernoulli(outputs[..., 0].sigmoid()).log_prob((targets > 0).to(outputs.dtype))


@pytest.mark.parametrize("number", [1, 3, 40])
@pytest.mark.parametrize(
    ("likelihood", "kind", "loss"),
    [
        (by_cross_entropy, "classes", True),
        (by_squares, "real", True),
        (lambda f, y: -of_counts(f, y), "counts", True),
        (lambda f, y: -of_heavy_tails(f, y), "real", True),
        (by_logits, "classes", False),
        (of_counts, "counts", False),
        (of_counts_by_squares, "counts", False),
        (of_counts_by_squares, "large counts", False),
        (of_heavy_tails, "real", False),
        (of_a_share, "real", False),
        (NormalLikelihood(0.1), "real", False),
        (lambda f, y: 0 * f[..., 0], "real", False),
    ],
    ids=["cross-entropy", "squares", "-Poisson", "-Student", "logits", "Poisson", "rates by squares", "large rates",
         "Student", "Bernoulli", "normal", "flat"],
)  # fmt: skip
def test_a_loss_in_place_of_a_log_probability_is_named(likelihood, kind, loss, number, normal):
    inputs = normal(number, 3)
    targets = {"classes": torch.arange(number) % 3, "counts": torch.full((number,), 900.0), "real": normal(number)}.get(
        kind, torch.full((number,), 1e9)
    )
    outputs = {by_cross_entropy: 3, by_logits: 3}.get(likelihood, 1 if isinstance(likelihood, NormalLikelihood) else 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Posterior(mlp([3, 8, outputs]).double(), likelihood, inputs, targets)
    said = [str(one.message) for one in caught if one.category is SignWarning]
    assert len(said) == loss and all("of a loss give the negative" in one for one in said)
    assert all(one.filename == __file__ for one in caught if one.category is SignWarning)
