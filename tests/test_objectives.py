"""Objectives: the functional gradient against finite differences, ELBOs against closed forms."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.func import functional_call, jacrev, vmap
from torch.testing import assert_close

from gpvi_lib import (
    AVB,
    KIVI,
    LIVI,
    FlatMLP,
    GaussNewtonParVI,
    KernelSteinDiscrepancy,
    LangevinNetwork,
    LatentGenerator,
    MaximumPosterior,
    NormalLikelihood,
    OrientedELBO,
    PathELBO,
    Posterior,
    RegressedParVI,
    SemiImplicitELBO,
)
from gpvi_lib.directions import GFSF, SVGD
from gpvi_lib.fitting import fit
from gpvi_lib.inverse import BiCGSTABInverse, BlockInverse, DenseInverse, HelperInverse
from gpvi_lib.kernels import RBF, median_bandwidth, squared_distances
from gpvi_lib.objectives import GPVI, MaximumLikelihood, NegativeELBO, ParVI, surrogate
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator, MeanField, Particles
from gpvi_lib.targets import BayesianLinearRegression, Gaussian, score

VECTOR = torch.tensor([0.4, 0.6, 0.9, 1.3], dtype=torch.float64)
H = 3.0

# k, hidden layers, activation, λ; always d = 4. None of these Jacobians is symmetric.
GENERATORS = {
    "linear k=d no-noise": (4, (), "relu", None),
    "linear k<d vector": (2, (), "relu", VECTOR),
    "tanh k=d": (4, (5,), "tanh", 0.7),
    "tanh k<d vector": (2, (5,), "tanh", VECTOR),
    "two tanh layers k<d": (3, (5, 6), "tanh", 0.5),
    "relu k<d vector": (2, (6,), "relu", VECTOR),
}


PERCEPTRON = FlatMLP([2, 3, 1], "tanh")


def _generator(target) -> Generator:
    return Generator(target.dim, 3, (5,), noise_scale=0.5, activation="tanh", rng=torch.Generator().manual_seed(0))


def _latent(target) -> LatentGenerator:
    rng = torch.Generator().manual_seed(0)
    return LatentGenerator(target.dim, 3, (6,), noise_scale=0.1, activation="elu", rng=rng)


def _chain(target) -> LangevinNetwork:
    return LangevinNetwork(MeanField(torch.zeros(target.dim)), target, 2, batch_size=4, step_size=1e-3)


OBJECTIVES = {
    "GPVI": (_generator, GPVI(4, BlockInverse())),
    "oriented ELBO": (_generator, OrientedELBO(4)),
    "ELBO": (_generator, NegativeELBO(4)),
    "regression": (_generator, RegressedParVI(4)),
    "Gauss-Newton": (_generator, GaussNewtonParVI(4)),
    "amortised SVGD": (_generator, ParVI(SVGD(), 4)),
    "KSD": (_generator, KernelSteinDiscrepancy(num_samples=4)),
    "path ELBO": (_chain, PathELBO(4)),
    "semi-implicit ELBO": (_chain, SemiImplicitELBO(4)),
    "likelihood": (lambda target: Particles(torch.randn(4, target.dim)), MaximumLikelihood()),
    "posterior": (lambda target: Particles(torch.randn(4, target.dim)), MaximumPosterior()),
    "LIVI": (_latent, LIVI(4)),
    "AVB": (lambda target: MeanField(torch.zeros(target.dim)), AVB(4, (4,), updates=1)),
    "KIVI": (lambda target: MeanField(torch.zeros(target.dim)), KIVI(4)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_sees_its_minibatch_and_no_other_data(name, rng):
    x = torch.randn(20, 2, generator=rng)
    torch.manual_seed(0)  # the particles of some are of the global generator
    target, seen = Posterior(PERCEPTRON, NormalLikelihood(0.3), x, x[:, 0]), []
    plain = target.log_likelihood
    target.log_likelihood = lambda w, batch=None: seen.append(batch) or plain(w, batch)
    make, objective = OBJECTIVES[name]
    sampler, batch = make(target), torch.arange(5, 12)
    seen.clear()
    objective(sampler, target, batch, rng)[0].backward()
    own = [rows for rows in seen if rows is not None and len(rows) == 4]  # those of the chain's layers
    assert bool(own) is (make is _chain) and len(seen) > len(own)
    assert all(rows is batch for rows in seen if not any(rows is one for one in own))


def make_generator(rng, k, hidden=(), activation="relu", scale=None) -> Generator:
    return Generator(4, k, hidden, noise_scale=scale, activation=activation, rng=rng, dtype=torch.float64)


@pytest.fixture
def target(normal) -> Gaussian:
    a = normal(4, 4)
    return Gaussian(normal(4), a @ a.mT + torch.eye(4, dtype=torch.float64))


def empirical_objective(generator, target, source, perturbation):
    """(1/n) Σ_i [-log p(f(z'_i)) - log|det ∂f/∂z (z'_i)|] of the perturbed f, all by autodiff."""

    def f(z):
        return generator(z[None])[0] + perturbation(z)

    x, jacobian = vmap(f)(source), vmap(jacrev(f))(source)
    return (-target.log_prob(x) - torch.linalg.slogdet(jacobian)[1]).mean().item()


def differences(generator, target, source, query, seen) -> torch.Tensor:
    """The derivative of the empirical objective in every RKHS direction v(z) = k(z, z_j) e_c, as (m, d).

    The fourth-order stencil at t = 1e-3 is off by about t⁴ = 1e-12 from truncation and 1e-16 / t = 1e-13 from rounding.
    """
    t, axes = 1e-3, torch.eye(generator.dim, dtype=torch.float64)

    def value(step, z_j, axis):
        def perturbation(z):
            return step * torch.exp(-(z[:seen] - z_j[:seen]).square().sum() / H) * axis

        return empirical_objective(generator, target, source, perturbation)

    stencil = {-2 * t: 1, -t: -8, t: 8, 2 * t: -1}
    rows = [[sum(w * value(s, z, a) for s, w in stencil.items()) / (12 * t) for a in axes] for z in query]
    return torch.tensor(rows, dtype=torch.float64)


def explicit_gradient(generator, target, source, query, h, transpose=True) -> torch.Tensor:
    """φ with the inverse of every Jacobian and every kernel gradient written out; not transposed, as printed."""
    inverse = torch.linalg.inv(vmap(jacrev(lambda z: generator(z[None])[0]))(source)).detach()
    inverse = inverse.mT if transpose else inverse
    difference = source[:, None] - query
    k = torch.exp(-difference.square().sum(-1) / h)
    gradients = -2 / h * k[..., None] * difference
    drive = torch.einsum("im,ic->mc", k, score(target, generator(source)))
    return -(drive + torch.einsum("iab,imb->ma", inverse, gradients)) / len(source)


@pytest.mark.parametrize("kernel_space", ["z", "head"])
@pytest.mark.parametrize("name", GENERATORS)
def test_functional_gradient_is_the_derivative_of_the_empirical_objective(name, kernel_space, rng, normal, target):
    generator = make_generator(rng, *GENERATORS[name])
    source, query = normal(3, 4), normal(2, 4)
    seen = 4 if kernel_space == "z" else generator.noise_dim
    expected = differences(generator, target, source, query, seen)
    for inverse in (BlockInverse(), DenseInverse(), BiCGSTABInverse(tol=1e-13)):
        objective = GPVI(3, inverse, RBF(H), kernel_space)
        phi, _ = objective.functional_gradient(generator, target, source, query, None, rng)
        # 1e-9: the differences' 1e-12 times what a small determinant may add.
        assert_close(phi, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", GENERATORS)
def test_the_inverse_is_transposed(name, rng, normal, target):
    """The printed J⁻¹ is clearly off wherever J is not symmetric."""
    generator = make_generator(rng, *GENERATORS[name])
    source, query = normal(3, 4), normal(2, 4)
    expected = differences(generator, target, source, query, 4)
    right, printed = (explicit_gradient(generator, target, source, query, H, transpose=t) for t in (True, False))
    assert_close(right, expected, rtol=1e-9, atol=1e-9)
    found, _ = GPVI(3, BlockInverse(), RBF(H)).functional_gradient(generator, target, source, query, None, rng)
    assert_close(found, right)
    assert (printed - found).norm() / found.norm() > 1e-3


def test_a_symmetric_jacobian_cannot_tell_transposed_from_not(rng, normal, target):
    generator = make_generator(rng, 4)
    generator.output.weight.data.add_(generator.output.weight.data.mT.clone())
    source, query = normal(3, 4), normal(2, 4)
    right, printed = (explicit_gradient(generator, target, source, query, H, transpose=t) for t in (True, False))
    assert_close(right, printed)
    assert_close(GPVI(3, kernel=RBF(H)).functional_gradient(generator, target, source, query, None, rng)[0], right)


@pytest.mark.parametrize("rule", ["paper", "half"])
def test_functional_gradient_uses_the_median_bandwidth_between_both_sets(rule, rng, normal, target):
    generator, source, query = make_generator(rng, 2, (5,), "tanh", VECTOR), normal(6, 4), normal(5, 4)
    h = median_bandwidth(squared_distances(source, query), rule, same=False)
    phi, _ = GPVI(6, kernel=RBF(rule)).functional_gradient(generator, target, source, query, None, rng)
    assert_close(phi, explicit_gradient(generator, target, source, query, h))


def identity_generator(rng, scale) -> Generator:
    generator = make_generator(rng, 4 if scale is None else 2, scale=scale)
    generator.output.bias.data.zero_()
    generator.output.weight.data.copy_(torch.eye(4) if scale is None else torch.zeros(4, 2))
    return generator


@pytest.mark.parametrize("scale", [1.0, None], ids=["weights 0, λ = 1", "weights I, no λ"])
@pytest.mark.parametrize("inverse", [BlockInverse, DenseInverse, BiCGSTABInverse])
def test_with_the_identity_gpvi_is_svgd(scale, inverse, rng, normal, target, monkeypatch):
    """Lemma 3.2: f = id and z' = z."""
    generator, z = identity_generator(rng, scale), normal(7, 4)
    gpvi, svgd = GPVI(7, inverse(), RBF(H)), SVGD(RBF(H))
    phi, _ = gpvi.functional_gradient(generator, target, z, z, None, rng)
    assert_close(phi, svgd(z, score(target, z), rng)[0])

    monkeypatch.setattr(generator, "noise", lambda num_samples, rng: z)
    gradients = []
    for objective in (gpvi, ParVI(svgd, num_samples=7)):
        loss, _ = objective(generator, target, None, rng)
        gradients.append(torch.autograd.grad(loss, list(generator.parameters())))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("kernel_space", ["", "x", None])
def test_gpvi_refuses_an_unknown_kernel_space(kernel_space):
    with pytest.raises(ValueError, match="kernel_space must be 'z' or 'head'"):
        GPVI(3, kernel_space=kernel_space)


def test_gpvi_needs_a_generator_with_noise(rng, target):
    with pytest.raises(ValueError, match="needs a Generator, got Particles"):
        GPVI(3)(Particles(torch.zeros(3, 4)), target, None, rng)
    with pytest.raises(ValueError, match="singular for k = 2 < d = 4"):
        GPVI(3)(make_generator(rng, 2), target, None, rng)


@pytest.mark.parametrize("inverse", [BlockInverse, lambda: HelperInverse(width=8)], ids=["block", "helper"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gpvi_pulls_its_functional_gradient_back_through_a_second_batch(activation, inverse, rng, target):
    generator = make_generator(rng, 2, (5,), activation, VECTOR)
    state, parameters = rng.get_state(), list(generator.parameters())
    loss, _ = GPVI(6, inverse())(generator, target, None, rng)
    ours = torch.autograd.grad(loss, parameters)
    rng.set_state(state)
    source, query = generator.noise(6, rng), generator.noise(6, rng)
    assert not bool((source == query).any())
    phi, _ = GPVI(6, inverse()).functional_gradient(generator, target, source, query, None, rng)
    expected = torch.autograd.grad((generator(query) * phi).sum() / 6, parameters)
    for one, other in zip(ours, expected, strict=True):
        assert_close(one, other)


def test_svgd_can_estimate_its_direction_from_another_batch(rng, target):
    generator = make_generator(rng, 2, (5,), "tanh", VECTOR)
    state, parameters = rng.get_state(), list(generator.parameters())
    loss, _ = ParVI(SVGD(), 6, independent=True)(generator, target, None, rng)
    ours = torch.autograd.grad(loss, parameters)
    rng.set_state(state)
    source, query = generator.rsample(12, rng).split(6)
    k, weight = RBF()(source.detach(), query.detach())
    kernel_gradients = weight[..., None] * (source[:, None] - query).detach()
    phi = -(k[..., None] * score(target, source)[:, None] + kernel_gradients).mean(0)  # eq. 13, pair by pair
    for one, other in zip(ours, torch.autograd.grad((query * phi).sum() / 6, parameters), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((GFSF(), 6), "defined for SVGD, not for GFSF"), ((SVGD(), None), "give num_samples")],
)
def test_independent_batches_need_svgd_and_a_generator(arguments, message):
    with pytest.raises(ValueError, match=message):
        ParVI(*arguments, independent=True)


def test_independent_batches_of_particles_are_refused(rng, normal):
    particles, target = Particles(normal(12, 2)), Gaussian(torch.zeros(2).double(), torch.eye(2).double())
    with pytest.raises(ValueError, match="half of the Particles would never move"):
        ParVI(SVGD(), 6, independent=True)(particles, target, None, rng)


def test_surrogate_pulls_the_direction_back_through_the_generator(rng, normal):
    generator = make_generator(rng, 2, (5,), "tanh", VECTOR)
    z, phi = normal(6, 4), normal(6, 4).requires_grad_()
    parameters = {name: p.detach() for name, p in generator.named_parameters()}
    jacobians = jacrev(lambda p: functional_call(generator, p, (z,)))(parameters)
    surrogate(generator(z), phi).backward()
    assert phi.grad is None
    for name, p in generator.named_parameters():  # mean_i (∂x_i/∂θ)ᵀ φ_i, eq. 4
        assert_close(p.grad, torch.einsum("nd,nd...->...", phi.detach(), jacobians[name]) / 6)


@pytest.mark.parametrize("amortised", [True, False])
def test_parvi_moves_particles_and_generators_by_the_same_direction(amortised, rng, normal, target):
    sampler = make_generator(rng, 2, (5,), "tanh", VECTOR) if amortised else Particles(normal(6, 4))
    state = rng.get_state()
    x = sampler.rsample(6, rng)
    phi, _ = SVGD()(x.detach(), score(target, x))
    expected = torch.autograd.grad((x * phi).sum() / 6, list(sampler.parameters()))
    rng.set_state(state)
    loss, _ = ParVI(SVGD(), 6)(sampler, target, None, rng)
    for ours, theirs in zip(torch.autograd.grad(loss, list(sampler.parameters())), expected, strict=True):
        assert_close(ours, theirs)


def linear_generator_as_gaussian(generator) -> MultivariateNormal:
    jacobian = generator.linearize(torch.zeros(1, generator.dim, dtype=torch.float64)).dense()[0]
    return MultivariateNormal(generator.output.bias, jacobian @ jacobian.mT)


@pytest.mark.parametrize("kind", ["k=d", "k<d", "mean field"])
def test_negative_elbo_of_a_gaussian_is_the_closed_form_kl(kind, rng, normal, target):
    if kind == "mean field":
        sampler = MeanField(normal(4), VECTOR)
        q = MultivariateNormal(sampler.mean, torch.diag(sampler.scale.square()))
    else:
        sampler = make_generator(rng, 4 if kind == "k=d" else 2, scale=VECTOR)
        q = linear_generator_as_gaussian(sampler)
    n, state = 20_000, rng.get_state()
    x, log_q = sampler.rsample_with_log_prob(n, rng)
    deviation = float((log_q - target.log_prob(x)).detach().std())
    rng.set_state(state)
    loss, info = NegativeELBO(n)(sampler, target, None, rng)
    expected = kl_divergence(q, MultivariateNormal(target.mean, target.covariance))
    assert abs((loss - expected).item()) < 5 * deviation / n**0.5  # five standard errors
    assert info["elbo"] == -loss


@pytest.mark.parametrize("name", ["linear k=d no-noise", "tanh k<d vector", "two tanh layers k<d"])
def test_negative_elbo_has_the_gradient_of_its_finite_differences(name, rng, target):
    k, hidden, activation, scale = GENERATORS[name]
    generator = Generator(
        4,
        k,
        hidden,
        noise_scale=scale,
        train_noise_scale=scale is not None,
        activation=activation,
        rng=rng,
        dtype=torch.float64,
    )
    state = rng.get_state()

    def loss():
        rng.set_state(state)  # common random numbers
        return NegativeELBO(5)(generator, target, None, rng)[0]

    gradients = torch.autograd.grad(loss(), list(generator.parameters()))
    t = 1e-3  # fourth-order differences, as above
    for p, gradient in zip(generator.parameters(), gradients, strict=True):
        flat, direction = p.data.view(-1), torch.randn(p.numel(), generator=rng, dtype=torch.float64)
        start, slope = flat.clone(), 0.0
        for step, weight in {-2 * t: 1, -t: -8, t: 8, 2 * t: -1}.items():
            flat.copy_(start + step * direction)
            slope += weight * loss().item() / (12 * t)
        flat.copy_(start)
        assert_close((gradient.view(-1) @ direction).item(), slope, rtol=1e-7, atol=1e-7)


def test_maximum_likelihood_ignores_the_prior_and_the_other_particles(normal):
    inputs, targets, start = normal(20, 4), normal(20), normal(3, 4)

    def train(initial, prior):
        particles = Particles(initial)
        target = BayesianLinearRegression(inputs, targets, prior)
        arguments = {"steps": 30, "optimizer": Adam(0.05), "progress": False}
        fit(particles, target, MaximumLikelihood(), rng=torch.Generator().manual_seed(1), **arguments)
        return particles.x.detach()

    class PointMass:
        def log_prob(self, x):
            return -1e6 * x.square().sum(-1)

    moved = torch.cat([start[:1], start[1:] + 5])
    together = train(start, None)
    assert torch.equal(together[0], train(moved, None)[0])
    assert torch.equal(together, train(start, PointMass()))
    assert bool((together != start).all())


def test_maximum_likelihood_is_the_mean_negative_log_likelihood(normal, rng):
    target = BayesianLinearRegression(normal(20, 4), normal(20), None)
    particles, batch = Particles(normal(3, 4)), torch.tensor([3, 11])
    loss, info = MaximumLikelihood()(particles, target, batch, rng)
    assert_close(loss, -target.log_likelihood(particles.x, batch).mean())
    assert info["log_likelihood"] == -loss


@pytest.mark.parametrize("inverse", [BlockInverse, DenseInverse, BiCGSTABInverse, HelperInverse])
def test_computing_the_functional_gradient_leaves_no_gradient_behind(inverse, rng, target, normal):
    generator = make_generator(rng, 2, (5,), "tanh", VECTOR)
    phi, _ = GPVI(3, inverse()).functional_gradient(generator, target, normal(3, 4), normal(3, 4), None, rng)
    assert not phi.requires_grad
    assert all(p.grad is None for p in generator.parameters())


def test_what_an_ensemble_cannot_train_is_named(rng):
    likelihood = BayesianLinearRegression(torch.randn(9, 4, generator=rng), torch.randn(9, generator=rng))
    with pytest.raises(ValueError, match="MaximumLikelihood needs Particles, got MeanField; use NegativeELBO"):
        MaximumLikelihood()(MeanField(torch.zeros(4)), likelihood, None, rng)
    with pytest.raises(ValueError, match=r"needs a target with log_likelihood\(x, batch\), Gaussian has none"):
        MaximumLikelihood()(Particles(torch.zeros(3, 4)), Gaussian(torch.zeros(4), torch.eye(4)), None, rng)
