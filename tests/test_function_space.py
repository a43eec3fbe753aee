"""Function space: the same directions on functions, pulled back; priors and points; input that cannot be right."""

import math

import pytest
import torch
from kernel_directions import KERNEL_DIRECTIONS
from torch import nn
from torch.testing import assert_close

from gpvi_lib import (
    GFSF,
    KDE,
    RBF,
    SVGD,
    WSGLD,
    ArcCosine,
    CategoricalLikelihood,
    Centred,
    Evaluated,
    FlatFirst,
    FlatMLP,
    FlatModule,
    FunctionPosterior,
    FunctionSpaceParVI,
    Gaussian,
    GaussianProcess,
    Generator,
    InverseGamma,
    Jitter,
    LearnedNoise,
    MomentMatched,
    NormalLikelihood,
    NormalPrior,
    Particles,
    ParVI,
    PiSGLD,
    Posterior,
    SquaredExponential,
    StreamedPosterior,
    Uniform,
    fit,
    mlp,
    score,
)
from gpvi_lib.directions import Direction
from gpvi_lib.experiments.build import build_objective
from gpvi_lib.function_priors import PerceptronKernel
from gpvi_lib.optimizers import Adam

EXACT = {"rtol": 1e-8, "atol": 1e-8}
DIRECTIONS = [make() for make in KERNEL_DIRECTIONS]
N = 12


class ScoreAlone(Direction):
    """No kernel: every function descends on its own."""

    def __call__(self, x, score, rng):
        return -score, {}


@pytest.fixture
def data(normal):
    x = normal(N, 2)
    return x, x[:, 0].sin() + 0.1 * normal(N)


def regression(data, hidden=(7,), noise=0.3):
    network = FlatMLP([2, *hidden, 1])
    scale = network.fan_in_scale(torch.float64)
    return Posterior(network, NormalLikelihood(noise), *data, NormalPrior(scale))


class Skip(nn.Module):
    """Its leaves are those of a perceptron."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 7), nn.ReLU(), nn.Linear(7, 1)])

    def forward(self, x):
        first, relu, last = self.parts
        return last(relu(first(x))) + x[:, :1]


CENTRED_INSIDE = nn.Sequential(nn.Linear(2, 7), Centred(), nn.ReLU(), nn.Linear(7, 1))


def of_module(module, data):
    return Posterior(module, NormalLikelihood(0.3), *data)


def noisy(data, prior=None):
    """The same network with a learned σ."""
    return Posterior(LearnedNoise(mlp([2, 7, 1])), NormalLikelihood(), *data, prior)


def particles(target, normal, number=5):
    return Particles(0.5 * normal(number, target.dim))


def generator(target):
    rng = torch.Generator().manual_seed(3)
    return Generator(target.dim, 4, (6,), noise_scale=None, rng=rng, dtype=torch.float64)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def gradient(loss, sampler):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(sampler.parameters()))])


# ---------------------------------------------------------------- the six identities of the specification


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: type(d).__name__)
def test_a_network_that_is_the_identity_gives_parvi(direction, normal):
    """With f(x; w) = w one value an input, functions are weights and a Gaussian process their normal prior."""
    d = 6
    inputs, y = torch.eye(d, dtype=torch.float64), normal(d)
    network = FlatModule(nn.Linear(d, 1, bias=False))
    weights = Posterior(network, NormalLikelihood(0.7), inputs, y, NormalPrior(1.0))
    sampler = particles(weights, normal)
    white = GaussianProcess(lambda a, b: a @ b.mT, floor=1e-9)  # the identity at unit vectors
    objective = FunctionSpaceParVI(direction, None, white)
    found, _ = objective(sampler, weights, None, rng())
    expected, _ = ParVI(direction)(sampler, weights, None, rng())
    assert_close(found, expected, **EXACT)
    assert_close(gradient(found, sampler), gradient(expected, sampler), **EXACT)


@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("kind", ["particles", "generator"])
def test_the_gradient_is_the_direction_pulled_back(direction, kind, data, normal):
    """``Jᵀφ / n`` with the Jacobian of all functions in the sampler's parameters, by ``torch.func.jacrev``."""
    target = regression(data)
    sampler = particles(target, normal) if kind == "particles" else generator(target)
    number = None if kind == "particles" else 5
    objective = FunctionSpaceParVI(direction, KDE(4), ArcCosine(), number, prior_points=5)
    loss, _ = objective(sampler, target, torch.arange(6), rng())

    here = objective.at(target, torch.arange(6), draw := rng())
    state = draw.get_state()
    parameters = dict(sampler.named_parameters())

    def functions(parameters):
        draw.set_state(state)
        if kind == "particles":
            weights = parameters["x"]
        else:
            weights = torch.func.functional_call(
                _Sampled(sampler, number, draw), {f"of.{k}": v for k, v in parameters.items()}
            )
        return target.network(weights, here.x).flatten(1)

    f = functions(parameters).detach()
    phi, _ = direction(f, score(here, f), rng())
    jacobian = torch.func.jacrev(functions)({name: p.detach() for name, p in parameters.items()})
    expected = torch.cat([torch.tensordot(phi, j, 2).flatten() for j in jacobian.values()]) / len(f)
    assert_close(gradient(loss, sampler), expected, **EXACT)


class _Sampled(nn.Module):
    def __init__(self, of, number, draw):
        super().__init__()
        self.of, self.number, self.draw = of, number, draw

    def forward(self):
        return self.of.rsample(self.number, self.draw)


def test_w_sgld_is_the_gradient_of_the_blob_energy(normal):
    x, mean = normal(7, 3).requires_grad_(), normal(3)
    target = Gaussian(mean, torch.eye(3, dtype=torch.float64))
    k, _ = RBF(1.3)(x)
    energy = (k.sum(1).log() - target.log_prob(x)).mean()
    (expected,) = torch.autograd.grad(energy, x)
    assert_close(WSGLD(RBF(1.3))(x.detach(), score(target, x.detach()))[0] / 7, expected, **EXACT)


def test_pi_sgld_is_the_mean_of_both(normal):
    x, s = normal(6, 3), normal(6, 3)
    assert_close(PiSGLD(RBF(2.0))(x, s)[0], (SVGD(RBF(2.0))(x, s)[0] + WSGLD(RBF(2.0))(x, s)[0]) / 2, **EXACT)


def test_twenty_thousand_draws_have_the_covariance_in_closed_form(data):
    """Within 3 % of the largest entry: the error of a covariance of 20,000 draws is about sqrt(2 / 20,000) = 1 %."""
    target = regression(data, hidden=(9,))
    x = data[0][:4]
    expected = ArcCosine().given(target).covariance(x)
    mean, covariance = MomentMatched(20_000).given(target, rng()).moments(x)
    largest = float(expected.diagonal().max())
    assert_close(covariance, expected, rtol=0, atol=0.03 * largest)
    assert_close(mean, torch.zeros(4).double(), rtol=0, atol=4 * (largest / 20_000) ** 0.5)


def test_permuting_hidden_units_leaves_the_direction_in_function_space(data, normal):
    target = regression(data)
    w = 0.5 * normal(5, target.dim)
    other = w.clone()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    parts = target.network.unflatten(w[2])
    names = list(parts)
    parts |= {names[0]: parts[names[0]][order], names[1]: parts[names[1]][order], names[2]: parts[names[2]][:, order]}
    other[2] = torch.cat([part.flatten() for part in parts.values()])
    objective = FunctionSpaceParVI(SVGD(), Jitter(3), ArcCosine())
    here = objective.at(target, None, rng())
    found = []
    for weights in (w, other):
        f = Evaluated(Particles(weights), target.network, here.x).rsample(None, rng()).detach()
        found.append(SVGD()(f, score(here, f))[0])
    assert (w[2] - other[2]).norm() > 1
    assert_close(*found, **EXACT)


def test_pulled_back_scores_of_an_epoch_average_to_the_full_gradient(data, normal):
    target = regression(data)
    sampler = particles(target, normal)
    objective = FunctionSpaceParVI(ScoreAlone())
    batches = torch.randperm(N, generator=rng()).split(4)
    parts = [gradient(objective(sampler, target, batch, rng())[0], sampler) for batch in batches]
    whole = gradient(-target.log_likelihood(sampler.x).mean(), sampler)
    assert_close(torch.stack(parts).mean(0), whole, **EXACT)


# ---------------------------------------------------------------- the target in function space


def test_the_likelihood_has_the_posteriors_power(data, normal):
    plain = regression(data)
    tempered = Posterior(plain.network, plain.likelihood, *data, plain.prior, power=0.1)
    f = normal(4, N)
    here, there = (FunctionPosterior(target, None, None).log_likelihood(f) for target in (tempered, plain))
    assert_close(here, 0.1 * there, **EXACT)


def test_the_score_is_that_of_the_density(data, normal):
    target = noisy(data)
    rows = torch.tensor([1, 7, 9])
    batch = torch.arange(8)
    for noise_prior in (None, InverseGamma()):
        prior = GaussianProcess(SquaredExponential(0.8))
        here = FunctionPosterior(target, normal(3, 2), prior, batch, rows, noise_prior)
        assert here.dim == 8 + 3 + 1
        f = normal(4, here.dim).requires_grad_()
        (expected,) = torch.autograd.grad(here.log_prob(f).sum(), f)
        assert_close(here.score(f.detach()), expected, **EXACT)
    with pytest.raises(ValueError, match="DrawnFunctions has a score and no log_prob"):
        FunctionPosterior(regression(data), None, MomentMatched(20).given(regression(data), rng())).log_prob(f[:, :N])


def test_the_density_in_function_space_is_that_of_the_weights(data, normal):
    """At the values of a network, likelihood and noise prior are those of its weights."""
    target = noisy(data)
    w = 0.5 * normal(4, target.dim)
    here = FunctionPosterior(target, None, None)
    f = Evaluated(Particles(w), target.network, here.x).rsample(None, rng())
    assert f.shape == (4, N + 1)
    assert_close(here.log_likelihood(f), target.log_likelihood(w), **EXACT)
    prior = here.log_prob(f) - here.log_likelihood(f)
    assert_close(prior, -0.5 * w[:, 0].square(), **EXACT)  # u ~ N(0, 1), its constant left out
    target.prior = NormalPrior(torch.cat([torch.tensor([0.5]), torch.ones(target.dim - 1)]).double())
    narrow = FunctionPosterior(target, None, None)
    assert_close(narrow.log_prob(f) - narrow.log_likelihood(f), -0.5 * (w[:, 0] / 0.5).square(), **EXACT)


def test_the_inverse_gamma_density_is_that_of_the_standard_deviation():
    sigma = torch.tensor([0.05, 0.3, 2.0], dtype=torch.float64)
    exact = torch.distributions.TransformedDistribution(
        torch.distributions.Gamma(torch.tensor(1.0).double(), 0.1),
        torch.distributions.PowerTransform(torch.tensor(-1.0)),
    ).log_prob(sigma)
    found = InverseGamma(1.0, 0.1).log_prob(sigma.log())
    assert_close(found - found[0], exact - exact[0], **EXACT)


def test_a_fitted_noise_is_out_of_the_kernel(data, normal):
    """The direction moves the functions alone, and log σ descends by its own score."""
    target = noisy(data)
    sampler = particles(target, normal)
    objective = FunctionSpaceParVI(SVGD(), None, ArcCosine(), noise_prior=InverseGamma())
    loss, _ = objective(sampler, target, None, rng())
    here = objective.at(target, None, rng())
    f = Evaluated(sampler, target.network, here.x).rsample(None, rng())
    s = here.score(f)
    phi, _ = SVGD()(f[:, :-1].detach(), s[:, :-1])
    expected = ((f[:, :-1] * phi).sum() - (f[:, -1] * s[:, -1]).sum()) / len(f)
    assert_close(loss, expected.detach(), check_dtype=True, **EXACT)
    # the score of log σ at one particle by finite differences of its own posterior
    step = torch.zeros_like(f)
    step[:, -1] = 1e-5

    def posterior(f):
        return here.log_likelihood(f) - 2 * f[:, -1] - 0.1 * torch.exp(-f[:, -1])

    numeric = (posterior(f + step) - posterior(f - step)) / 2e-5
    assert_close(s[:, -1], numeric.detach(), rtol=1e-6, atol=1e-6)


def test_the_prior_is_seen_at_half_data_and_half_extra_points(data):
    target = regression(data)
    objective = FunctionSpaceParVI(SVGD(), Uniform(5, -1.0, 1.0), ArcCosine(), prior_points=4)
    seen = torch.stack([objective.at(target, torch.arange(6), rng(seed)).rows for seed in range(50)])
    assert ((seen < 6).sum(1) == 2).all() and set(seen.flatten().tolist()) == set(range(11))
    assert all(len(set(row.tolist())) == 4 for row in seen)
    alone = FunctionSpaceParVI(SVGD(), None, ArcCosine(), prior_points=4).at(target, torch.arange(6), rng())
    assert len(alone.rows) == 4 and int(alone.rows.max()) < 6
    few = FunctionSpaceParVI(SVGD(), Jitter(9), ArcCosine(), prior_points=10).at(target, torch.arange(3), rng())
    assert (few.rows < 3).sum() == 3 and len(few.rows) == 10
    outside = torch.ones(target.num_data + 5, dtype=torch.bool)
    here = objective.at(target, None, rng())
    outside[here.rows] = False
    f = torch.zeros(2, here.dim, dtype=torch.float64)
    without = FunctionPosterior(target, here.x[N:], None)
    assert torch.equal(here.score(f + 1)[:, outside], without.score(f + 1)[:, outside])
    assert (here.score(f + 1) - without.score(f + 1))[:, ~outside].abs().min() > 0


# ---------------------------------------------------------------- priors and points


def test_the_closed_form_at_two_hidden_layers_is_that_of_wide_networks(data):
    target = regression(data, hidden=(100, 100))
    x = data[0][:3]
    expected = ArcCosine().given(target).covariance(x)
    _, covariance = MomentMatched(8_000).given(target, rng()).moments(x)
    # a covariance of 8,000 draws errs by 1.6 %; three of these
    assert_close(covariance, expected, rtol=0, atol=0.05 * float(expected.diagonal().max()))


def test_the_score_of_a_process_is_the_solve_and_outputs_are_independent(normal):
    x, f = normal(5, 2), normal(3, 5, 2)
    prior = GaussianProcess(SquaredExponential(0.5), floor=1e-12)
    k = torch.exp(-0.5 * (x[:, None] - x).square().sum(-1) / 0.25)
    assert_close(prior.covariance(x), k)
    assert_close(prior.score(f, x), -torch.einsum("ab,nbf->naf", torch.linalg.inv(k), f), **EXACT)


def test_near_coincident_points_meet_the_floor(normal):
    x = normal(4, 2)
    x = torch.cat([x, x + 1e-12])
    f = normal(3, 8, 1)
    found = GaussianProcess(SquaredExponential(1.0), floor=0.01).score(f, x)
    values, vectors = torch.linalg.eigh(torch.exp(-0.5 * (x[:, None] - x).square().sum(-1)))
    assert (values < 0.01).sum() == 4
    raised = vectors @ torch.diag(1 / values.clamp(min=0.01)) @ vectors.mT
    assert_close(found, -torch.einsum("ab,nbf->naf", raised, f), rtol=1e-6, atol=1e-6)  # pairs are 1e-12 apart


def test_moments_are_those_of_the_draws(data, normal):
    target = regression(data)
    prior = MomentMatched(30, floor=1e-6).given(target, rng())
    x, f = data[0][:3], normal(4, 3, 1)
    values = target.network(prior.weights, x).flatten(1)
    precision = torch.linalg.inv(values.mT.cov())
    assert_close(prior.score(f, x)[..., 0], -(f[..., 0] - values.mean(0)) @ precision, **EXACT)
    assert not torch.equal(MomentMatched(30).given(target, rng(1)).weights, prior.weights)


def test_the_moments_of_one_function_value_are_a_number_each(data):
    prior = MomentMatched(30).given(regression(data), rng())
    mean, covariance = prior.moments(data[0][:1])
    assert mean.shape == (1,) and covariance.shape == (1, 1)
    assert_close(prior.score(torch.ones(2, 1, 1), data[0][:1]).shape, torch.Size([2, 1, 1]))


def test_centred_logits_have_the_score_of_their_gaussian(normal):
    """-K⁻¹ f of centred f is the gradient along the subspace of the density of ``(I - 11ᵀ/F) g``, g independent."""
    network = FlatModule(nn.Sequential(mlp([2, 6, 3]), Centred()))
    x = normal(4, 2)
    target = Posterior(network, CategoricalLikelihood(), x, torch.tensor([0, 2, 1, 1]), NormalPrior(0.7))
    prior = ArcCosine(floor=1e-10).given(target)
    f = target.network(normal(2, target.dim), x)
    assert_close(f.sum(-1), torch.zeros(2, 4).double(), rtol=0, atol=1e-12)
    centre = torch.eye(3).double() - 1 / 3
    whole = torch.kron(prior.covariance(x), centre)
    expected = -(f.flatten(1) @ torch.linalg.pinv(whole, hermitian=True)).view_as(f)
    assert_close(prior.score(f, x), expected, rtol=1e-6, atol=1e-6)


def test_points_have_the_moments_that_they_say(normal):
    inputs = normal(50, 3) * torch.tensor([1.0, 2.0, 0.5]) + 4
    drawn = Jitter(40_000, 5.0)(inputs, rng())
    assert_close(drawn.var(0), inputs.var(0, correction=0) + 25 / 150, rtol=0.03, atol=0)
    drawn = KDE(40_000)(inputs, rng())
    assert_close(drawn.var(0), inputs.var(0, correction=0) * (1 + 50 ** (-2 / 7)), rtol=0.03, atol=0)
    drawn = Uniform(40_000, (0.0, -1.0, 2.0), (1.0, 1.0, 4.0))(inputs, rng())
    assert_close(drawn.mean(0), torch.tensor([0.5, 0.0, 3.0]).double(), rtol=0, atol=0.02)
    assert_close(drawn.var(0), torch.tensor([1.0, 4.0, 4.0]).double() / 12, rtol=0.03, atol=0)
    assert bool((drawn[:, 2] >= 2).all()) and bool((drawn[:, 1] <= 1).all()) and drawn.shape == (40_000, 3)
    nothing = Jitter(10, 0.0)(inputs, rng())
    assert bool((nothing[:, None] == inputs).all(-1).any(1).all())


# ---------------------------------------------------------------- through fit


def objectives():
    return {
        "moments and jitter": lambda: FunctionSpaceParVI(SVGD(), Jitter(4), MomentMatched(20), prior_points=4),
        "closed form": lambda: FunctionSpaceParVI(PiSGLD(), KDE(5), ArcCosine()),
        "a tensor": lambda: FunctionSpaceParVI(GFSF(), torch.linspace(-1, 1, 6).double().view(3, 2), ArcCosine()),
    }


@pytest.mark.parametrize("name", objectives())
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(name, data, normal, tmp_path):
    target, start = noisy(data), normal(5, noisy(data).dim)
    arguments = {"optimizer": Adam(1e-2), "batch_size": 5, "progress": False}
    whole, parts = Particles(start), Particles(start)
    make = objectives()[name]
    fit(whole, target, make(), steps=9, rng=rng(), **arguments)
    path = tmp_path / "run.pt"
    fit(parts, target, make(), steps=4, rng=rng(), checkpoint=path, **arguments)
    again = Particles(start)
    fit(again, target, make(), steps=9, rng=rng(), checkpoint=path, **arguments)
    assert torch.equal(whole.x, again.x) and not torch.equal(parts.x, again.x)


def test_a_generator_learns_functions(data):
    target = regression(data)
    sampler = generator(target)
    objective = FunctionSpaceParVI(SVGD(), KDE(4), ArcCosine(), num_samples=8)
    before = float(target.log_likelihood(sampler.sample(20, rng(1))).mean())
    fit(sampler, target, objective, steps=300, optimizer=Adam(lr=1e-2), rng=rng(), progress=False)
    assert float(target.log_likelihood(sampler.sample(20, rng(1))).mean()) > before + 10


def test_independent_batches_estimate_from_one_and_move_the_other(data):
    target = regression(data)
    sampler = generator(target)
    objective = FunctionSpaceParVI(SVGD(), None, ArcCosine(), num_samples=4, independent=True)
    loss, _ = objective(sampler, target, None, rng())
    here = objective.at(target, None, draw := rng())
    source, query = target.network(sampler.rsample(8, draw), here.x).flatten(1).split(4)
    phi, _ = SVGD()(source.detach(), score(here, source), None, query.detach())
    assert_close(loss, (query * phi).sum() / 4, **EXACT)


def test_a_specification_builds_the_same(data, normal):
    target = noisy(data)
    sampler = particles(target, normal)
    spec = {
        "kind": "function_space",
        "direction": {"kind": "w_sgld", "bandwidth": 2.0},
        "points": {"kind": "uniform", "number": 3, "low": [-1.0, -1.0], "high": 1.0},
        "prior": {"kind": "moment_matched", "draws": 20, "floor": 0.01},
        "prior_points": 4,
        "noise_prior": {"kind": "inverse_gamma"},
    }
    mine = FunctionSpaceParVI(
        WSGLD(RBF(2.0)),
        Uniform(3, (-1.0, -1.0), 1.0),
        MomentMatched(20, 0.01),
        prior_points=4,
        noise_prior=InverseGamma(),
    )
    assert build_objective(spec) == mine
    losses = [one(sampler, target, None, rng())[0] for one in (build_objective(spec), mine)]
    assert_close(*losses, rtol=0, atol=0)
    without = build_objective({"kind": "function_space", "direction": {"kind": "svgd"}, "prior": None})
    assert without == FunctionSpaceParVI()


# ---------------------------------------------------------------- input that cannot be right


class Bare:
    dim, num_data = 3, None

    def log_prob(self, x, batch=None):
        return -x.square().sum(-1)


def of_tanh(data):
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    return Posterior(network, NormalLikelihood(1.0), *(part.float() for part in data))


def under(prior, data):
    return Posterior(mlp([2, 3, 1]), NormalLikelihood(1.0), *data, prior)


UNEVEN = NormalPrior(torch.linspace(1, 2, 13, dtype=torch.float64))
SPACE, FUNCTIONS = FunctionSpaceParVI, FunctionPosterior


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda data: SPACE()(Particles(torch.zeros(2, 3)), Bare(), None, rng()),
            "has no network and no likelihood",
        ),
        (lambda data: FUNCTIONS(Bare(), None, None), "such as Posterior; Bare has no network"),
        (lambda data: Jitter(0), "at least one, got 0"),
        (lambda data: KDE(0), "at least one, got 0"),
        (lambda data: Uniform(0, 0.0, 1.0), "at least one, got 0"),
        (lambda data: SPACE(SVGD(), torch.zeros(0, 2)), "the set of extra points is empty"),
        (lambda data: FUNCTIONS(regression(data), torch.zeros(0, 2), None), "the set of extra points is empty"),
        (lambda data: FUNCTIONS(regression(data), torch.zeros(4, 3), None), r"shape \(3,\) each and the inputs \(2,\)"),
        (
            lambda data: SPACE(SVGD(), Uniform(4, (0, 0, 0), (1, 1, 1))).at(regression(data), None, rng()),
            r"shape \(3,\) each and the inputs \(2,\)",
        ),
        (lambda data: Uniform(4, (0, 0, 0), (1, 1)), r"low < high in every coordinate, got \(0, 0, 0\) and \(1, 1\)"),
        (lambda data: SPACE(points=[[0.0, 1.0]]), "points must be Jitter, KDE, .*, a tensor .* got list"),
        (lambda data: SPACE(points=KDE), "points must be an instance, got the class KDE"),
        (lambda data: FUNCTIONS(regression(data), [[0.0, 1.0]], None), "points must be .* got list"),
        (lambda data: SPACE(prior=NormalPrior(1.0)), r"needs score\(f, x\), and NormalPrior has none"),
        (lambda data: SPACE(prior=ArcCosine), "prior must be an instance, got the class ArcCosine"),
        (lambda data: FUNCTIONS(regression(data), None, 1.0), r"needs score\(f, x\), and float has none"),
        (lambda data: FUNCTIONS(regression(data), None, ArcCosine()), r"ArcCosine has none: .*given\(posterior, rng\)"),
        (
            lambda data: SPACE(prior=MomentMatched(3), prior_points=4),
            "3 draws .* prior_points = 4 points: take more draws",
        ),
        (lambda data: SPACE(prior_points=2.5), "prior_points must be a whole number >= 1, got 2.5"),
        (lambda data: Uniform(3, 1.0, 1.0), "low < high"),
        (lambda data: Jitter(3, -0.1), "must not be negative"),
        (lambda data: MomentMatched(40, 0.0), "floor .* must be positive, such as 1e-3, got 0.0"),
        (lambda data: ArcCosine(-1.0), "floor .* must be positive"),
        (lambda data: GaussianProcess(SquaredExponential(), 0.0), "floor .* must be positive"),
        (lambda data: MomentMatched(1), "at least 2 draws"),
        (lambda data: MomentMatched(3).given(regression(data), rng()).moments(data[0][:4]), "3 draws .* 4 function"),
        (lambda data: SPACE(prior_points=0), "prior_points must be a whole number >= 1, got 0"),
        (lambda data: SPACE(prior_points=13).at(regression(data), None, rng()), "prior_points = 13 exceeds the 12"),
        (lambda data: SPACE(WSGLD(), num_samples=4, independent=True), "defined for SVGD, not for WSGLD"),
        (lambda data: SquaredExponential(0.0), "must be positive, got 0.0"),
        (lambda data: InverseGamma(0.0), "shape and scale > 0"),
        (lambda data: ArcCosine().given(of_tanh(data)), "ReLU between them.*Tanh.*use MomentMatched"),
        (lambda data: ArcCosine().given(of_module(Skip(), data)), "an nn.Sequential of linear layers"),
        (lambda data: ArcCosine().given(of_module(CENTRED_INSIDE, data)), "an nn.Sequential of linear layers"),
        (lambda data: ArcCosine().given(under(UNEVEN, data)), "one prior scale for the weights of a layer"),
        (lambda data: ArcCosine().given(under(Bare(), data)), "derived from a NormalPrior over weights, got Bare"),
        (lambda data: FUNCTIONS(noisy(data, FlatFirst(NormalPrior())), None, None), r"FlatFirst: give noise_prior=Inv"),
    ],
)
def test_bad_input_is_refused_by_name(make, message, data):
    with pytest.raises(ValueError, match=message):
        make(data)


def test_a_flat_first_prior_goes_with_a_prior_of_the_noise(data, normal):
    """The one that the error names."""
    target = FunctionPosterior(noisy(data, FlatFirst(NormalPrior())), None, None, noise_prior=InverseGamma())
    f = normal(3, target.dim)
    assert_close(target.log_prob(f), target.log_likelihood(f) + InverseGamma().log_prob(f[:, -1]))


def test_a_fitted_noise_needs_a_network_that_has_one(data, normal):
    target = regression(data)
    with pytest.raises(ValueError, match="for a network with LearnedNoise"):
        FunctionSpaceParVI(noise_prior=InverseGamma())(particles(target, normal), target, None, rng())


def test_the_precision_of_few_draws_is_too_large(data):
    """By (k - 1) / (k - d - 2): 39 / 34 at 40 draws of 4 values, in the mean over 400 repetitions (error 1.5 %)."""
    target = regression(data, hidden=(200,))
    x = data[0][[0, 3, 5, 7]]
    exact = ArcCosine().given(target).covariance(x)
    draw, total = rng(), torch.zeros(4, 4).double()
    for _ in range(400):
        total += torch.linalg.inv(MomentMatched(40).given(target, draw).moments(x)[1]) / 400
    ratio = float((total @ exact).diagonal().mean())
    assert math.isclose(ratio, 39 / 34, rel_tol=0.06)


def test_streamed_data_are_refused(normal):
    """Its inputs are the few that were looked at, not the data."""
    dataset = torch.utils.data.TensorDataset(normal(40, 2), normal(40))
    target = StreamedPosterior(mlp([2, 3, 1]), NormalLikelihood(0.1), dataset)
    objective = FunctionSpaceParVI(SVGD(), KDE(5), MomentMatched())
    settings = {"steps": 1, "batch_size": 10, "optimizer": Adam(0.1), "seed": 0, "progress": False}
    with pytest.raises(ValueError, match="from data in memory"):
        fit(Particles(target.sample_prior(8, seed=0)), target, objective, **settings)


class Reshaped(nn.Module):
    """A perceptron whose outputs have another shape than (inputs, outputs)."""

    def __init__(self, shape):
        super().__init__()
        self.layers, self.shape = mlp([2, 5, math.prod(shape)]), shape

    def forward(self, x):
        return self.layers(x).reshape(len(x), *self.shape)


def squared(outputs, targets):
    return -(outputs - targets.reshape(-1, *[1] * (outputs.ndim - 2))).square().reshape(*outputs.shape[:2], -1).sum(-1)


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_outputs_that_are_no_rows_are_refused(shape, data, rng):
    """Taken as columns, outputs (n, b) met the targets (b,) as (n, b, b): every function fitted the mean."""
    target = Posterior(Reshaped(shape), squared, *data, NormalPrior(1.0))
    particles = Particles(torch.randn(4, target.dim, generator=rng, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"outputs of shape \(inputs, outputs\), got .*: return outputs\[:, None\]"):
        FunctionSpaceParVI()(particles, target, None, rng)


def test_a_likelihood_of_function_values_of_another_shape_is_refused(data):
    target = FunctionPosterior(Posterior(Reshaped((1,)), squared, *data, NormalPrior(1.0)), None, None)
    target.posterior.likelihood = lambda outputs, targets: outputs[..., 0][:, None] - targets
    with pytest.raises(ValueError, match="the likelihood must return one log-probability per network and datum"):
        target.log_likelihood(torch.zeros(3, N, dtype=torch.float64))


def test_independent_batches_of_particles_are_refused_in_function_space(data, rng):
    target = regression(data)
    particles = Particles(torch.randn(6, target.dim, generator=rng, dtype=torch.float64))
    with pytest.raises(
        ValueError, match="independent batches need a generator: half of the Particles would never move"
    ):
        FunctionSpaceParVI(SVGD(), num_samples=3, independent=True)(particles, target, None, rng)


def test_function_values_at_indices_can_be_counted():
    network = nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(3, 2), nn.LogSoftmax(-1))
    target = Posterior(network, CategoricalLikelihood(), torch.arange(4), torch.tensor([0, 1, 0, 1]), NormalPrior(1.0))
    assert FunctionPosterior(target, None, None).dim == 8


def test_a_perceptron_that_ends_in_relu_has_no_closed_form(data):
    network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1), nn.ReLU())
    target = Posterior(network, NormalLikelihood(1.0), *data, NormalPrior(1.0))
    with pytest.raises(ValueError, match="the covariance in closed form is that of a perceptron"):
        ArcCosine().given(target)


def test_one_relu_may_stand_between_all_layers(data):
    relu = nn.ReLU()
    layers = [nn.Linear(2, 5), nn.Linear(5, 4), nn.Linear(4, 1)]
    once = nn.Sequential(layers[0], relu, layers[1], relu, layers[2])
    twice = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    found = [
        ArcCosine().given(Posterior(network, NormalLikelihood(1.0), *data, NormalPrior(1.0))).covariance(data[0])
        for network in (once, twice)
    ]
    assert_close(*found)


def test_the_kernel_of_a_perceptron_without_bias_at_zero():
    x = torch.tensor([[0.0], [1.0]])
    kernel = PerceptronKernel(((1, 1.0, 0.0), (50, 0.1, 0.1)))(x, x)
    # At 0 all hidden units are 0, and the output is its bias.
    assert bool(kernel.isfinite().all()) and float(kernel[0, 0]) == pytest.approx(0.01)
