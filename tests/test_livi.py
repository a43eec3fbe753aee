"""LIVI: samplers with a latent number, the two approximate entropies, the certified bracket, what stands beside.

Float64 unless a test says otherwise, so that rounding is far below every tolerance.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal
from torch.func import hessian, jacrev, vmap
from torch.testing import assert_close

from gpvi_lib import (
    AVB,
    GPVI,
    KIVI,
    LIVI,
    RBF,
    CategoricalLikelihood,
    DivergedError,
    FlatFirst,
    FlatModule,
    FlatPrior,
    Gaussian,
    Generator,
    GPVIError,
    LatentGenerator,
    LearnedNoise,
    MatrixGenerator,
    MaximumPosterior,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalPrior,
    Particles,
    PointEstimate,
    Posterior,
    SplitMatrixGenerator,
    elbo_bracket,
    entropy_bracket,
    fit,
    last_layer_laplace,
    lenet5_unpadded,
    linearized_entropy,
    load_sampler,
    mlp,
    save_sampler,
    smallest_singular_value,
)
from gpvi_lib.entropy import linearization_correction
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import normal_log_prob

F64 = torch.float64


def seeded(seed=0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def latent(m=7, k=4, hidden=(6, 5), seed=0, **settings) -> LatentGenerator:
    scale = torch.linspace(0.1, 0.4, m, dtype=F64)
    defaults = {"noise_scale": scale, "activation": "elu", "rng": seeded(seed), "dtype": F64}
    return LatentGenerator(m, k, hidden, **defaults | settings)


def matrix(**settings) -> MatrixGenerator:
    defaults = {"noise_scale": torch.linspace(0.1, 0.4, 11, dtype=F64), "rng": seeded(), "dtype": F64}
    return MatrixGenerator(11, [(2, 3), (4, 5), (3, 4)], **defaults | settings)


def split(**settings) -> SplitMatrixGenerator:
    branches = [[(2, 4), (3, 3), (2, 4)], [(4, 3), (2, 3)]]
    defaults = {"noise_scale": 0.2, "rng": seeded(), "dtype": F64}
    return SplitMatrixGenerator(13, [(2, 3), (3, 4), (4, 5)], branches, **defaults | settings)


SAMPLERS = {"MLP": latent, "linear": lambda **s: latent(hidden=(), **s), "MMNN": matrix, "CMMNN": split}
all_samplers = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


def jacobian_of(sampler, z) -> torch.Tensor:
    return vmap(jacrev(lambda point: sampler.latent_forward(point[None])[0]))(z)


def moved(sampler, amount=0.3):
    """Parameters that no initialisation has: all biases differ from 0."""
    rng = seeded(9)
    with torch.no_grad():
        for p in sampler.parameters():
            p.add_(amount * torch.randn(p.shape, generator=rng, dtype=p.dtype))
    return sampler


# ---------------------------------------------------------------- samplers


@all_samplers
def test_points_are_g_of_z_plus_s_times_fresh_noise(make, normal):
    sampler = moved(make())
    k, m = sampler.noise_dim, sampler.dim
    noise = sampler.noise(4, seeded(1))
    assert noise.shape == (4, k + m)
    expected = sampler.latent_forward(noise[:, :k]) + sampler.noise_scale * noise[:, k:]
    assert_close(sampler(noise), expected)
    assert_close(sampler.rsample(4, seeded(1)), expected)
    assert_close(sampler.latent_linearize(noise[:, :k])[0], sampler.latent_forward(noise[:, :k]))


@all_samplers
def test_the_jacobian_as_an_operator_is_autodiffs(make, normal):
    sampler = moved(make())
    z = normal(3, sampler.noise_dim)
    dense, found = jacobian_of(sampler, z), sampler.latent_linearize(z)[1]
    v, h = normal(3, 2, sampler.noise_dim), normal(3, 2, sampler.dim)
    assert_close(found.latent_jvp(v), v @ dense.mT, rtol=0, atol=1e-12)
    assert_close(found.latent_vjp(h), h @ dense, rtol=0, atol=1e-12)
    scaled = dense / sampler.noise_scale[:, None]
    assert_close(found.gram(), scaled.mT @ scaled, rtol=1e-12, atol=1e-10)
    assert (found.num_points, found.noise_dim) == (3, sampler.noise_dim)


def test_a_matrix_layer_is_AX_plus_C_times_B_plus_D(normal):
    sampler = moved(MatrixGenerator(6, [(2, 2), (3, 2)], noise_scale=0.1, rng=seeded(), dtype=F64))
    layer = sampler.branches[0].layers[0]
    assert len(list(sampler.parameters())) == 4
    x = normal(1, 2, 2)
    expected = (layer.left @ x[0] + layer.inner_bias) @ layer.right + layer.outer_bias
    assert_close(sampler.latent_forward(x.flatten(1))[0], expected.flatten())


def written_out(layers, x, closed):
    """A chain of matrix layers by its formula: ELU between them, and after the last one if it is ``closed``."""
    for i, layer in enumerate(layers):
        x = torch.stack([(layer.left @ one + layer.inner_bias) @ layer.right + layer.outer_bias for one in x])
        x = torch.where(x > 0, x, x.exp() - 1) if closed or i < len(layers) - 1 else x
    return x


def test_three_matrix_layers_have_elu_between_them_and_are_cut_to_m(normal):
    sampler = moved(MatrixGenerator(7, [(2, 2), (3, 2), (2, 3), (2, 4)], noise_scale=0.1, rng=seeded(), dtype=F64))
    z = normal(5, 4)
    expected = written_out(sampler.branches[0].layers, z.view(5, 2, 2), closed=False).flatten(1)[:, :7]
    assert_close(sampler.latent_forward(z), expected)


def test_a_split_generator_has_elu_after_its_trunk_and_none_after_its_branches(normal):
    trunk, branches = [(2, 2), (3, 2), (2, 4)], [[(2, 2), (3, 2), (2, 2)], [(1, 4), (2, 3)]]
    sampler = moved(SplitMatrixGenerator(9, trunk, branches, noise_scale=0.1, rng=seeded(), dtype=F64))
    z = normal(5, 4)
    x = written_out(sampler.trunk.layers, z.view(5, 2, 2), closed=True).flatten(1)
    first = written_out(sampler.branches[0].layers, x[:, :4].view(5, 2, 2), closed=False)
    second = written_out(sampler.branches[1].layers, x[:, 4:].view(5, 1, 4), closed=False)
    assert_close(sampler.latent_forward(z), torch.cat([first.flatten(1), second.flatten(1)], 1)[:, :9])


def test_branches_see_disjoint_slices_of_the_trunk():
    """Weights of the first branch alone depend on the first part of the trunk's output."""
    sampler = moved(split())
    z = sampler.noise(1, seeded())[:, :6]
    out, _ = sampler.trunk.linearize(z.view(1, 2, 3))
    x = out.flatten(1).detach().requires_grad_()
    first = sampler.branches[0].linearize(x[:, :8].view(1, 2, 4))[0]
    assert_close(first.flatten(), sampler.latent_forward(z)[0, :8])
    second = sampler.branches[1].linearize(x[:, 8:].view(1, 4, 3))[0]
    assert_close(second.flatten()[:5], sampler.latent_forward(z)[0, 8:])


def test_the_papers_parameter_counts():
    shapes = [(65, 65), (250, 250), (250, 250), (350, 127)]
    lenet = FlatModule(lenet5_unpadded())
    assert lenet.dim == 44_426
    sampler = MatrixGenerator(lenet.dim, shapes, noise_scale=1e-3, rng=seeded())
    assert sum(p.numel() for p in sampler.parameters()) == 612_450
    assert sampler.noise_dim == 65**2
    assert lenet(sampler.sample(1, seeded()), torch.zeros(2, 1, 28, 28)).shape == (1, 2, 10)


@pytest.mark.parametrize(("make", "mean"), [(matrix, 1.39), (split, 1.19)], ids=["MMNN", "CMMNN"])
def test_first_points_have_the_scale_of_a_prior(make, mean):
    """200 generators, so that an sd is known to 5 %, and layers of few units that vary.

    In units of the prior's, a variance has 1 from the last bias, 0.04 from s and from z up to 1/3 times
    ``(mean scale / scale)²``, as ELU makes it smaller: in the mean over coordinates 1.39 and 1.19 for 3,000 generators,
    with a standard error of 0.047 for 200.
    """
    m = make().dim
    scale = torch.linspace(0.5, 2, m, dtype=F64)
    points = [make(output_scale=scale, rng=seeded(i)).sample(20, seeded(i)) for i in range(200)]
    sd = torch.stack(points).flatten(0, 1).std(0) / scale
    assert float(sd.min()) > 0.9 and float(sd.max()) < 1.7
    assert float(sd.square().mean()) == pytest.approx(mean, abs=3 * 0.047)


# ---------------------------------------------------------------- the approximate entropies


@all_samplers
def test_the_small_determinant_is_the_large_one(make, normal):
    sampler = moved(make())
    z = normal(5, sampler.noise_dim)
    dense, s = jacobian_of(sampler, z), sampler.noise_scale
    covariance = dense @ dense.mT + torch.diag(s.square())
    large = 0.5 * torch.linalg.slogdet(covariance)[1] + 0.5 * sampler.dim * (1 + math.log(2 * math.pi))
    assert_close(linearized_entropy(sampler.latent_linearize(z)[1]), large, rtol=1e-12, atol=1e-12)


def test_for_affine_g_it_is_the_entropy(normal):
    sampler = latent(hidden=())
    weight, s = sampler.output.weight, sampler.noise_scale
    exact = MultivariateNormal(sampler.output.bias, weight @ weight.mT + torch.diag(s.square())).entropy()
    found = linearized_entropy(sampler.latent_linearize(normal(3, 4))[1])
    assert_close(found, exact.expand(3), rtol=0, atol=1e-10)


def test_the_correction_is_what_the_two_limits_leave_out(rng, normal):
    """At one z: the mean of the quadratic term over η is ``m/2 + (|z|^2 - k)/2`` plus the correction; 3 se of it."""
    sampler = moved(latent())
    z = normal(1, 4)
    dense, s = jacobian_of(sampler, z)[0].detach(), sampler.noise_scale.detach()
    inverse = torch.linalg.inv(dense @ dense.mT + torch.diag(s.square()))
    offset = dense @ z[0] + s * torch.randn(200_000, 7, generator=rng, dtype=F64)
    quadratic = 0.5 * ((offset @ inverse) * offset).sum(-1)
    expected = 3.5 + 0.5 * (z.square().sum() - 4) + linearization_correction(sampler.latent_linearize(z)[1], z)[0]
    error = float((quadratic.mean() - expected).detach().abs())
    assert error < 3 * float(quadratic.std()) / math.sqrt(200_000) and abs(float(expected.detach()) - 3.5) > 0.01


def test_the_exact_smaller_bound_is_never_above(normal):
    sampler = moved(latent(m=20, k=8, hidden=(12,)))
    jacobian = sampler.latent_linearize(normal(1_000, 8))[1]
    full, smallest = (linearized_entropy(jacobian, kind) for kind in ("full", "smallest"))
    assert bool((smallest <= full + 1e-10).all())
    stopped = linearized_entropy(jacobian, "smallest", 1, seeded())
    assert float((stopped > full).double().mean()) > 0.02  # so a stopped search is no bound


def test_the_smaller_bound_is_the_formula(normal):
    sampler = moved(latent())
    z = normal(3, 4)
    s, m, k = sampler.noise_scale, 7, 4
    value = torch.linalg.svdvals(jacobian_of(sampler, z) / s[:, None])[:, -1]
    expected = 0.5 * m * (1 + math.log(2 * math.pi)) + s.log().sum() + 0.5 * k * torch.log1p(value.square())
    assert_close(linearized_entropy(sampler.latent_linearize(z)[1], "smallest"), expected)


@pytest.mark.parametrize("entropy", ["full", "smallest"])
@all_samplers
def test_gradients_are_those_of_finite_differences(make, entropy, normal):
    """In every parameter, s included, along one direction each; central differences err by about 1e-9 here."""
    sampler = moved(make(train_noise_scale=True))
    z = normal(2, sampler.noise_dim)

    def value():
        return linearized_entropy(sampler.latent_linearize(z)[1], entropy).sum()

    parameters = list(sampler.parameters())
    gradients = torch.autograd.grad(value(), parameters, allow_unused=True, materialize_grads=True)
    t = 1e-5
    for parameter, gradient in zip(parameters, gradients, strict=True):
        direction = torch.randn(parameter.shape, generator=seeded(3), dtype=F64)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * t * direction)
                ends.append(float(value()))
                parameter.sub_(sign * t * direction)
        expected = (ends[0] - ends[1]) / (2 * t)
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-6)


# ---------------------------------------------------------------- the smallest singular value


def test_lobpcg_comes_from_above_and_arrives(normal):
    sampler = latent(m=40, k=25, hidden=(40,), noise_scale=0.1)
    jacobian = sampler.latent_linearize(normal(6, 25))[1]
    exact = smallest_singular_value(jacobian, None).value
    dense = jacobian.latent_jvp(torch.eye(25, dtype=F64).expand(6, -1, -1)) / 0.1
    assert_close(exact, torch.linalg.svdvals(dense)[:, -1])
    found = smallest_singular_value(jacobian, 300, seeded())
    assert found.history.shape == (301, 6)
    steps = found.history.diff(dim=0)
    assert bool((steps <= 1e-10 * found.history[:-1]).all()) and bool((found.history[5] < found.history[0]).all())
    assert bool((found.history >= exact.square() * (1 - 1e-9)).all())
    assert_close(found.value, exact, rtol=1e-6, atol=0)
    assert_close(found.vector.norm(dim=-1), torch.ones(6, dtype=F64))
    assert bool((smallest_singular_value(jacobian, 5, seeded()).value > 1.05 * exact).all())


def test_one_product_an_iteration(normal, monkeypatch):
    from gpvi_lib import entropy

    jacobian, calls = latent().latent_linearize(normal(2, 4))[1], []
    plain = entropy._gram_product
    monkeypatch.setattr(entropy, "_gram_product", lambda *a: calls.append(1) or plain(*a))
    smallest_singular_value(jacobian, 7, seeded())
    assert len(calls) == 8  # and one before the first


@pytest.mark.parametrize("k", [1, 2, 3])
def test_lobpcg_in_few_dimensions_goes_on_where_it_has_arrived(k, normal):
    jacobian = moved(latent(k=k)).latent_linearize(normal(4, k))[1]
    assert_close(smallest_singular_value(jacobian, 50, seeded()).value, smallest_singular_value(jacobian, None).value)


def test_matrix_generators_need_no_matrix(normal, monkeypatch):
    sampler = moved(matrix())
    jacobian = sampler.latent_linearize(normal(2, 6))[1]
    exact = smallest_singular_value(jacobian, None).value
    monkeypatch.setattr(type(jacobian), "gram", lambda self: pytest.fail("a Gram matrix was formed"))
    assert_close(smallest_singular_value(jacobian, 60, seeded()).value, exact)


@pytest.mark.parametrize("objective", [LIVI(3), LIVI(3, "smallest"), LIVI(3, "smallest", 5)], ids=str)
def test_float32_is_finite_where_the_smallest_value_is_0(objective, rng):
    """Three hidden units for five latent numbers: two singular values are 0 everywhere."""
    sampler = LatentGenerator(9, 5, (3,), noise_scale=0.01, train_noise_scale=True, activation="elu", rng=rng)
    target = Gaussian(torch.zeros(9), torch.eye(9))
    loss, _ = objective(sampler, target, None, rng)
    loss.backward()
    assert loss.dtype == torch.float32 and bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in sampler.parameters() if p.grad is not None)


def test_a_tiny_s_in_float32_is_no_overflow(rng):
    """``1/s^2`` is beyond float32; the entropy is not."""
    sampler = LatentGenerator(3, 2, noise_scale=1e-25, rng=rng)
    z = torch.randn(4, 2, generator=rng)
    weight = sampler.output.weight.double()
    expected = 1.5 * (1 + math.log(2 * math.pi)) + math.log(1e-25) + 0.5 * torch.linalg.slogdet(weight.mT @ weight)[1]
    found = linearized_entropy(sampler.latent_linearize(z)[1])
    assert_close(found, expected.expand(4), rtol=1e-6, atol=0)


# ---------------------------------------------------------------- the theorem


def trained_covariance(entropy: str, k: int) -> torch.Tensor:
    """``JJᵀ`` of the affine map that maximises the bound for a rotated N(0, Σ), by its exact expectation, σ = 1e-4."""
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=seeded(5), dtype=F64)).Q
    precision = rotation @ torch.diag(1 / EIGENVALUES) @ rotation.mT
    sampler = latent(m=4, k=k, hidden=(), noise_scale=1e-4)
    optimizer = torch.optim.Adam([sampler.output.weight], lr=0.05)
    steps = 1_500
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / steps) ** 2
        weight = sampler.output.weight
        loss = 0.5 * ((precision @ weight) * weight).sum()
        loss = loss - linearized_entropy(sampler.latent_linearize(torch.zeros(1, k, dtype=F64))[1], entropy)[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weight = sampler.output.weight.detach()
    return rotation.mT @ weight @ weight.mT @ rotation


EIGENVALUES = torch.tensor([4.0, 1.0, 0.25, 0.04], dtype=F64)


def test_the_full_bound_finds_the_covariance():
    found = trained_covariance("full", 4)
    assert float((found - torch.diag(EIGENVALUES)).norm() / EIGENVALUES.norm()) < 1e-3


@pytest.mark.parametrize("k", [4, 2])
def test_the_smaller_bound_finds_an_isotropic_gaussian_at_the_harmonic_mean(k):
    """For k < m in the k leading directions."""
    found = torch.linalg.eigvalsh(trained_covariance("smallest", k)).flip(0)
    expected = k / (1 / EIGENVALUES[:k]).sum()
    assert_close(found[:k], expected.expand(k), rtol=0.01, atol=0)
    assert float(found[k:].abs().sum()) < 1e-6


# ---------------------------------------------------------------- the bracket


def bimodal(k=1) -> LatentGenerator:
    """Two components with a bridge: ``g(z) = (1, 0.5) tanh(3 z)``, s = 0.3."""
    sampler = latent(m=2, k=1, hidden=(1,), activation="tanh", noise_scale=0.3)
    with torch.no_grad():
        sampler.hidden[0].weight.fill_(3.0), sampler.hidden[0].bias.zero_()
        sampler.output.weight.copy_(torch.tensor([[1.0], [0.5]])), sampler.output.bias.zero_()
    return sampler


def quadrature(sampler, points) -> torch.Tensor:
    """log q at each point; the trapezoidal rule is exact to rounding for smooth functions that vanish at the ends."""
    z, s = torch.linspace(-9, 9, 4_001, dtype=F64)[:, None], sampler.noise_scale
    residual = (points[:, None] - sampler.latent_forward(z)) / s
    joint = normal_log_prob(residual) - s.log().sum() + normal_log_prob(z)
    return joint.logsumexp(1) + math.log(18 / 4_000)


@pytest.mark.parametrize(("points", "draws", "temperatures", "width"), [(200, 5, 300, 0.3), (500, 30, 0, 4.0)])
def test_a_density_of_two_components_lies_inside_the_bracket(points, draws, temperatures, width):
    """In the mean over θ both estimates are on their sides, to 3 standard errors of the differences."""
    with torch.no_grad():
        sampler = bimodal()
        found = entropy_bracket(sampler, points, draws, seeded(2), temperatures=temperatures)
        exact = quadrature(sampler, found.points)
    for difference in (exact - found.low, found.high - exact):
        assert float(difference.mean()) > -3 * float(difference.std()) / math.sqrt(points)
    summary = found.summary()
    assert summary["entropy_width"] < width
    assert summary["entropy_linearized"] < float(-exact.mean()) - 0.05  # H' is off here


@pytest.mark.parametrize("temperatures", [0, 4])
def test_a_gaussian_is_bracketed_exactly(temperatures):
    """For affine g the proposal is the posterior of z: every weight is q(θ)."""
    sampler = latent(hidden=())
    weight, s = sampler.output.weight.detach(), sampler.noise_scale
    found = entropy_bracket(sampler, 40, 3, seeded(), temperatures=temperatures)
    covariance = weight @ weight.mT + torch.diag(s.square())
    exact = MultivariateNormal(sampler.output.bias.detach(), covariance).log_prob(found.points)
    assert_close(found.low, exact)
    assert_close(found.high, exact)
    summary, entropy = found.summary(), float(found.linearized[0])
    assert summary["entropy_low"] == pytest.approx(entropy, abs=4 * found.control_se)
    assert float((found.low + found.control).std()) < 1e-9  # the control takes all the noise of θ away


@pytest.mark.parametrize("amount", [0.0, 0.3])
def test_the_control_is_0_in_the_mean_for_curved_g(amount):
    """And for a mildly curved one a third of the noise is left."""
    found = entropy_bracket(moved(latent(), amount), 4_000, 1, seeded(3), regression=4_000)
    error = math.hypot(float(found.control.std()) / math.sqrt(4_000), found.control_se)
    assert abs(float(found.control.mean())) < 3 * error
    if not amount:
        assert float((found.high + found.control).std()) < 0.4 * float(found.high.std())


def test_the_proposal_does_not_know_the_z_that_made_the_point(monkeypatch):
    """Its mode is a function of θ: other latents with the same θ leave the lower side as it is."""
    from gpvi_lib import entropy

    sampler, seen = moved(latent()), []
    plain = entropy._mode
    monkeypatch.setattr(entropy, "_mode", lambda *a: seen.append(a[1:]) or plain(*a))
    found = entropy_bracket(sampler, 5, 2, seeded())
    start, points = seen[0]
    design = torch.cat([points, torch.ones(5, 1, dtype=F64)], 1)
    fitted = design @ torch.linalg.lstsq(design, start).solution
    assert_close(start, fitted)
    assert not torch.allclose(start, found.latents, atol=1e-3)


def test_the_elbo_bracket_of_a_gaussian_target(normal):
    """KL between normals is known: affine g, so both sides are exact up to the draws of θ."""
    sampler = latent(m=3, k=2, hidden=(), noise_scale=0.5)
    weight = sampler.output.weight.detach()
    q = MultivariateNormal(sampler.output.bias.detach(), weight @ weight.mT + 0.25 * torch.eye(3, dtype=F64))
    p = MultivariateNormal(torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64))
    found = elbo_bracket(sampler, Gaussian(p.mean, p.covariance_matrix), 4_000, 40, seeded())
    exact = -float(torch.distributions.kl_divergence(q, p))
    assert found["elbo_low"] == pytest.approx(exact, abs=4 * found["elbo_low_se"])
    assert found["elbo_width"] == pytest.approx(0, abs=1e-9)


def test_many_latent_numbers_on_several_threads(rng):
    """Batched LU of CPUs fails above 128 rows on more than one thread: nothing here may use it."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sampler = LatentGenerator(150, 140, noise_scale=1.0, rng=rng)
        target = Gaussian(torch.zeros(150), torch.eye(150))
        for objective in (LIVI(3), LIVI(3, "smallest")):
            loss, _ = objective(sampler, target, None, rng)
            loss.backward()
            assert bool(loss.isfinite())
        assert math.isfinite(elbo_bracket(sampler, target, 2, 2, rng, regression=20)["elbo_width"])
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------- training


def regression(num=24, **settings) -> Posterior:
    rng = seeded(4)
    x = torch.randn(num, 2, generator=rng)
    return Posterior(mlp([2, 3, 1]), NormalLikelihood(0.3), x, torch.sin(x[:, 0]), **settings)


@pytest.mark.parametrize("objective", [LIVI(4), LIVI(4, "smallest"), LIVI(4, "smallest", 3)], ids=str)
def test_minibatches_are_unbiased_and_leave_the_entropy_alone(objective):
    """With the same noise the mean over a partition of the data is the value on all of them."""
    target = regression()
    sampler = LatentGenerator(target.dim, 3, (6,), noise_scale=0.1, activation="elu", rng=seeded())
    whole = objective(sampler, target, None, seeded(1))[0]
    parts = [objective(sampler, target, batch, seeded(1))[0] for batch in torch.arange(24).split(6)]
    assert_close(torch.stack(parts).mean(), whole)


def test_the_loss_is_minus_log_p_minus_the_entropy_at_the_same_z(normal):
    sampler, target = moved(latent()), Gaussian(torch.ones(7, dtype=F64), 2 * torch.eye(7, dtype=F64))
    noise = sampler.noise(5, seeded(1))
    entropy = linearized_entropy(sampler.latent_linearize(noise[:, :4])[1])
    expected = -(target.log_prob(sampler(noise)) + entropy).mean()
    loss, info = LIVI(5)(sampler, target, None, seeded(1))
    assert_close(loss, expected)
    assert_close(info["elbo"], -expected.detach())


def test_training_s_reaches_a_gaussian():
    """Affine g and one s per weight contain N(m, diag): the bound's maximum is 0 for a normalised target."""
    scale = torch.tensor([2.0, 0.5, 1.0])
    sampler = LatentGenerator(3, 1, noise_scale=0.3 * torch.ones(3), train_noise_scale=True, rng=seeded())
    target = Gaussian(torch.tensor([1.0, -1.0, 0.0]), torch.diag(scale.square()))
    fit(sampler, target, LIVI(32), steps=800, optimizer=Adam(lr=0.05, final_lr=1e-4), rng=seeded(), progress=False)
    found = elbo_bracket(sampler, Normalised(target), 2_000, 20, seeded(), values=50_000)
    assert found["elbo_low"] > -0.03 and abs(found["elbo_high"]) < 0.03


class Normalised:
    """A Gaussian's log-density with its constant."""

    num_data = None

    def __init__(self, target):
        self.dim = target.dim
        self.plain = MultivariateNormal(target.mean, target.covariance)

    def log_prob(self, x, batch=None):
        return self.plain.log_prob(x)


POINT = {"noise_scale": 0.1, "activation": "elu"}
CASES = {
    "full": (lambda d, rng: LatentGenerator(d, 3, (5,), train_noise_scale=True, rng=rng, **POINT), lambda: LIVI(3)),
    "smallest": (lambda d, rng: LatentGenerator(d, 3, (5,), rng=rng, **POINT), lambda: LIVI(3, "smallest", 4)),
    "MMNN": (
        lambda d, rng: MatrixGenerator(d, [(2, 2), (3, 3), (4, 4)], noise_scale=0.1, rng=rng),
        lambda: LIVI(2, "smallest", 3),
    ),
    "AVB": (lambda d, rng: LatentGenerator(d, 3, (5,), rng=rng, **POINT), lambda: AVB(5, (7,), updates=2)),
    "KIVI": (lambda d, rng: LatentGenerator(d, 3, (5,), rng=rng, **POINT), lambda: KIVI(5)),
}


class Killed(Exception):
    pass


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(case, tmp_path):
    def run(checkpoint=None, kill=None):
        make, objective = CASES[case]
        target, rng = regression(), seeded(5)
        sampler = make(target.dim, rng)

        def callback(step, sampler):
            if step == kill:
                raise Killed

        settings = {"steps": 9, "optimizer": Adam(0.01, 1e-3), "batch_size": 8, "rng": rng, "progress": False}
        result = fit(
            sampler, target, objective(), **settings, callback=callback, callback_every=1,
            checkpoint=checkpoint, checkpoint_seconds=0,
        )  # fmt: skip
        return sampler.state_dict(), rng.get_state(), result.diagnostics

    expected = run()
    for kill in (4, 7):
        with pytest.raises(Killed):
            run(tmp_path / "run.pt", kill)
    found = run(tmp_path / "run.pt")
    assert torch.equal(found[1], expected[1]) and found[2] == expected[2]
    assert all(torch.equal(value, found[0][name]) for name, value in expected[0].items())


def test_avb_with_the_best_classifier_is_the_elbo(rng):
    """T* is log q - log prior: the loss with it is the negative ELBO, here of a Gaussian, to 4 standard errors.

    Its gradient is that of the ELBO along the draws, T* being fixed: the rest has the expectation 0.
    """
    target = regression()
    sampler = MeanField(torch.zeros(target.dim), 0.5)
    objective = AVB(4_000, (4,), updates=1, lr=1e-9)
    objective(sampler, target, None, rng)

    fixed = torch.distributions.Normal(sampler.mean.detach(), sampler.scale.detach())

    class Best(nn.Module):
        def forward(self, x):
            return (fixed.log_prob(x).sum(-1) - target.prior.log_prob(x))[:, None]

    objective.network, objective._descend = Best(), lambda loss: None
    loss, _ = objective(sampler, target, None, seeded(7))
    other, _ = NegativeELBO(4_000)(sampler, target, None, seeded(8))
    x, log_q = sampler.rsample_with_log_prob(4_000, seeded(8))
    se = float((log_q - target.log_prob(x)).detach().std()) / math.sqrt(2_000)
    assert float(loss) == pytest.approx(float(other), abs=4 * se)
    same_gradient(sampler, loss, along_the_draws(sampler, target, fixed))


def along_the_draws(sampler, target, fixed):
    """The negative ELBO as a function of 4,000 draws, which move with the sampler while its density is kept."""
    x = sampler.rsample(4_000, seeded(7))
    return (fixed.log_prob(x).sum(-1) - target.log_prob(x)).mean()


def same_gradient(sampler, loss, other):
    """To single precision's rounding: the draws are the same, and their sum is not always taken in the same order."""
    for found, expected in zip(*(torch.autograd.grad(one, sampler.parameters()) for one in (loss, other)), strict=True):
        assert expected.norm() > 0.1  # two that are 0 would be alike, too
        assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_avbs_classifier_learns_which_points_are_the_posteriors(rng):
    target = regression(prior=NormalPrior(1.0))
    sampler, objective = MeanField(torch.full((target.dim,), 3.0), 0.1), AVB(50, (20,), updates=200, lr=1e-2)
    _, info = objective(sampler, target, None, rng)
    assert float(info["log_ratio"]) > 3
    with torch.no_grad():
        assert float(objective.network(target.prior.sample(50, torch.zeros(1, target.dim), rng)).mean()) < -3


@pytest.mark.parametrize("objective", [AVB, KIVI])
def test_a_target_without_a_prior_to_draw_from_is_refused(objective):
    with pytest.raises(ValueError, match=f"{objective.__name__} compares .* FlatPrior has no sample: take a posterior"):
        objective(2)(MeanField(torch.zeros(13)), regression(prior=FlatPrior()), None, seeded())


def test_kivis_ratio_solves_its_regression(rng):
    """No other function ``Σ_j c_j k(p_j, ·)`` on the same points has a smaller loss."""
    x, drawn = torch.randn(20, 2, generator=rng, dtype=F64), torch.randn(30, 2, generator=rng, dtype=F64) - 1
    penalty, kernel, points = 0.05, RBF(2.0), torch.cat([x, drawn])
    k = kernel(points)[0]

    def cost(c):
        r = k @ c
        return 0.5 * r[:20].square().mean() - r[20:].mean() + 0.5 * penalty * c @ r

    best = torch.autograd.functional.hessian(cost, torch.zeros(50, dtype=F64))
    slope = torch.autograd.functional.jacobian(cost, torch.zeros(50, dtype=F64))
    exact = k @ torch.linalg.lstsq(best, -slope, driver="gelsd").solution
    assert_close(KIVI(20, penalty, kernel).ratio(x, drawn), exact[:20], rtol=1e-6, atol=1e-8)


def test_kivis_ratio_is_that_of_two_known_densities(rng):
    """In one dimension, of 2,000 draws: half of the values of log r are within 0.15 of the truth."""
    q, p = torch.distributions.Normal(0.5, 0.8), torch.distributions.Normal(0.0, 1.0)
    x, drawn = 0.5 + 0.8 * torch.randn(2_000, 1, generator=rng), torch.randn(2_000, 1, generator=rng)
    found = KIVI(2_000, 1e-3).ratio(x, drawn).clamp_min(1e-8).log()
    truth = (p.log_prob(x) - q.log_prob(x))[:, 0]
    assert float((found - truth).abs().median()) < 0.15


def test_kivis_ratio_is_blind_in_hundreds_of_dimensions(rng):
    """Of KL(q | prior) = 596 nats between two normals twenty draws of each see a fiftieth, as its docstring says."""
    d, sd = 751, 0.3
    truth = d * (0.5 * (sd**2 + sd**2 - 1) - math.log(sd))
    seen = []
    for _ in range(10):
        x, drawn = sd + sd * torch.randn(20, d, generator=rng), torch.randn(20, d, generator=rng)
        seen.append(float(-KIVI(20).ratio(x, drawn).clamp_min(1e-8).log().mean()))
    assert round(truth) == 596 and 0 < sum(seen) / 10 < truth / 50


def test_kivis_gradient_holds_the_ratio_fixed(rng):
    """Against finite differences of the ratio as a function, its weights those of the unmoved draws."""
    x, drawn = torch.randn(8, 2, generator=rng, dtype=F64), torch.randn(9, 2, generator=rng, dtype=F64)
    objective, kernel = KIVI(8, 0.1, RBF(1.5)), RBF(1.5)
    points = torch.cat([x, drawn])
    alpha = torch.linalg.solve(kernel(x)[0] / 8 + 0.1 * torch.eye(8, dtype=F64), kernel(x, drawn)[0].mean(1)) / (
        -0.1 * 8
    )
    weights = torch.cat([alpha, torch.full((9,), 1 / (0.1 * 9), dtype=F64)])
    function = lambda y: kernel(y, points)[0] @ weights  # noqa: E731
    assert_close(objective.ratio(x, drawn), function(x))
    moving = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(objective.ratio(moving, drawn).sum(), moving)
    for axis in range(2):
        step = 1e-5 * torch.eye(2, dtype=F64)[axis]
        difference = (function(x + step) - function(x - step)) / 2e-5
        assert_close(found[:, axis], difference, rtol=1e-6, atol=1e-8)


def test_kivi_with_the_true_ratio_is_the_elbo(monkeypatch):
    target = regression(power=0.5)
    sampler = MeanField(torch.zeros(target.dim), 0.5)

    fixed = torch.distributions.Normal(sampler.mean.detach(), sampler.scale.detach())

    def true(self, x, drawn):
        return (target.prior.log_prob(x) - fixed.log_prob(x).sum(-1)).exp()

    monkeypatch.setattr(KIVI, "ratio", true)
    loss, info = KIVI(4_000, floor=1e-30)(sampler, target, None, seeded(7))
    x, log_q = sampler.rsample_with_log_prob(4_000, seeded(7))
    assert float(loss) == pytest.approx(float((log_q - target.log_prob(x)).mean()), rel=1e-4)
    assert float(info["floored"]) == 0
    same_gradient(sampler, loss, along_the_draws(sampler, target, fixed))


def test_kivi_says_how_often_the_ratio_is_below_its_floor(rng):
    """Where q is far from the prior no kernel sees both; the estimate is 0 there, and without a gradient."""
    target = regression(prior=NormalPrior(1.0))
    sampler = MeanField(torch.full((target.dim,), 30.0), 0.1)
    _, info = KIVI(20, 1e-3, RBF(1.0))(sampler, target, None, rng)
    assert float(info["floored"]) == 1 and float(info["log_ratio"]) == pytest.approx(-math.log(1e-8))


# ---------------------------------------------------------------- what stands beside them


def test_numbers_without_noise_come_first_and_are_trained(rng, tmp_path):
    x = torch.randn(40, 1, generator=rng)
    y = 2 * x[:, 0] + 0.5 * torch.randn(40, generator=rng)
    module = LearnedNoise(nn.Linear(1, 1), 1.0)
    target = Posterior(module, NormalLikelihood(), x, y, FlatFirst(NormalPrior(3.0)))
    inner = LatentGenerator(2, 1, noise_scale=0.1 * torch.ones(2), train_noise_scale=True, rng=rng)
    sampler = PointEstimate(inner, 0.0)
    assert sampler.dim == 3 == target.dim
    fit(
        sampler,
        target,
        LIVI(16),
        steps=600,
        optimizer=Adam(lr=0.03, final_lr=1e-4, noise_scale_lr=0.05),
        rng=rng,
        progress=False,
    )
    points = sampler.sample(5, rng)
    assert bool((points[:, 0] == sampler.value).all()) and float(points[:, 1].std()) > 0
    residual = y - x[:, 0] * (x[:, 0] @ y) / (x[:, 0] @ x[:, 0])
    rms = float(residual.square().mean().sqrt())
    assert float(sampler.value.detach().exp()) == pytest.approx(rms, rel=0.1)  # n against n - 2, and chance
    assert elbo_bracket(sampler, target, 100, 50, rng)["elbo_width"] < 0.02
    loaded = load_sampler(save_sampler(sampler, tmp_path / "point.safetensors"))
    assert torch.equal(loaded.sample(4, seeded()), sampler.sample(4, seeded()))


def test_a_flat_first_coordinate_has_no_prior(normal):
    x, prior = normal(4, 5), NormalPrior(0.7)
    assert_close(FlatFirst(prior, 2).log_prob(x), prior.log_prob(x[:, 2:]))


def test_draws_of_a_normal_prior(rng):
    scale = torch.tensor([0.5, 2.0], dtype=F64)
    x = NormalPrior(scale).sample(20_000, torch.zeros(3, 2, dtype=F64), rng)
    assert x.shape == (20_000, 2) and x.dtype == F64
    assert_close(x.std(0), scale, rtol=4 / math.sqrt(40_000), atol=0)
    assert NormalPrior(2.0).sample(3, torch.zeros(1, 4), rng).shape == (3, 4)


def test_a_tempered_likelihood_is_a_power(rng):
    plain, tempered = regression(), regression(power=0.25)
    w = torch.randn(3, plain.dim, generator=rng)
    assert_close(tempered.log_prob(w), 0.25 * plain.log_likelihood(w) + plain.prior.log_prob(w))
    assert_close(tempered.log_likelihood(w), plain.log_likelihood(w))


def classifier(**settings) -> Posterior:
    x = torch.randn(30, 2, generator=seeded(6), dtype=F64)
    labels = torch.randint(3, (30,), generator=seeded(7))
    return Posterior(
        mlp([2, 4, 3], "tanh"), CategoricalLikelihood(), x, labels, **{"prior": NormalPrior(0.8)} | settings
    )


def test_the_mode_of_a_gaussian_is_its_mean(rng):
    mean = torch.tensor([1.0, -2.0])
    particles = Particles(torch.zeros(3, 2))
    fit(
        particles,
        Gaussian(mean, torch.eye(2)),
        MaximumPosterior(),
        steps=300,
        optimizer=Adam(lr=0.1, final_lr=1e-3),
        rng=rng,
        progress=False,
    )
    assert_close(particles.x.detach(), mean.expand(3, 2), atol=1e-3, rtol=0)


@pytest.mark.parametrize("power", [1.0, 0.3])
def test_last_layer_laplace_has_the_hessian_of_the_last_layer(power):
    target = classifier(power=power)
    mode = 0.5 * torch.randn(target.dim, generator=seeded(8), dtype=F64)
    found = last_layer_laplace(target, mode)
    size = 3 * 4 + 3
    exact = hessian(lambda last: -target.log_prob(torch.cat([mode[:-size], last])[None])[0])(mode[-size:])
    assert_close(found.lower @ found.lower.mT, exact)
    draws = found.sample(20_000, seeded())
    assert bool((draws[:, :-size] == mode[:-size]).all())
    covariance = torch.linalg.inv(exact)
    assert float((draws[:, -size:].T.cov() - covariance).norm() / covariance.norm()) < 5 * math.sqrt(size / 20_000)


def test_last_layer_laplace_refuses_what_it_is_not_for(rng):
    with pytest.raises(ValueError, match="for a CategoricalLikelihood and a NormalPrior, got NormalLikelihood"):
        last_layer_laplace(regression(), torch.zeros(13))
    x, labels = torch.randn(5, 2, generator=rng), torch.tensor([0, 1, 1, 0, 1])
    target = Posterior(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), CategoricalLikelihood(), x, labels)
    with pytest.raises(ValueError, match=r"must end in a trained nn\.Linear"):
        last_layer_laplace(target, torch.zeros(target.dim))


# ---------------------------------------------------------------- saving, and bad input


@all_samplers
@pytest.mark.parametrize("trained", [True, False])
def test_a_saved_sampler_draws_the_same_samples(make, trained, tmp_path):
    sampler = moved(make(train_noise_scale=trained), 0.1)
    loaded = load_sampler(save_sampler(sampler, tmp_path / "sampler.safetensors"))
    assert type(loaded) is type(sampler)
    assert torch.equal(loaded.sample(5, seeded(1)), sampler.sample(5, seeded(1)))
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in sampler.named_parameters()]


BAD = {
    "σ = 0": (lambda: latent(noise_scale=0.0), "noise_scale must be positive and finite, got 0"),
    "σ < 0": (lambda: matrix(noise_scale=-1.0), "noise_scale must be positive and finite, got -1"),
    "σ = inf": (lambda: latent(noise_scale=math.inf), "noise_scale must be positive and finite, got inf"),
    "σ = nan": (lambda: split(noise_scale=math.nan), "noise_scale must be positive and finite, got nan"),
    "σ in words": (lambda: latent(noise_scale="0.1"), r"noise_scale must be a number or \(7,\), got '0.1'"),
    "no σ, matrices": (lambda: matrix(noise_scale=None), r"noise_scale must be a number or \(11,\), got None"),
    "no σ": (lambda: latent(noise_scale=None), "needs a noise_scale s > 0"),
    "one σ too few": (lambda: split(noise_scale=torch.ones(3)), r"must be a number or \(13,\), got \(3,\)"),
    "k > m": (lambda: latent(m=3, k=4), "between 1 and dim d = 3, got 4"),
    "k > m, matrices": (lambda: MatrixGenerator(3, [(2, 2), (2, 2)], noise_scale=1, rng=seeded()), "dim m = 3, got 4"),
    "σ of z": (lambda: latent(input_stdev=2.0), "leave input_stdev out"),
    "too small a matrix": (
        lambda: MatrixGenerator(9, [(1, 2), (2, 4)], noise_scale=1, rng=seeded()),
        "8 entries.* fewer",
    ),
    "no columns": (lambda: MatrixGenerator(7, [(0, 2), (3, 3)], noise_scale=1, rng=seeded()), r"rows of shapes\[0\]"),
    "columns < 0": (
        lambda: MatrixGenerator(7, [(2, 2), (3, -3)], noise_scale=1, rng=seeded()),
        r"columns of shapes\[1\]",
    ),
    "no matrix": (
        lambda: MatrixGenerator(7, [4, (3, 3)], noise_scale=1, rng=seeded()),
        r"shapes\[0\] must be the rows and",
    ),
    "no rows in a branch": (
        lambda: SplitMatrixGenerator(4, [(1, 2), (2, 3)], [[(2, 3), (0, 2)]], noise_scale=1, rng=seeded()),
        r"rows of branches\[0\]\[1\] must be a whole number >= 1, got 0",
    ),
    "no rows in the trunk": (
        lambda: SplitMatrixGenerator(4, [(1, 2), (0, 3)], [[(2, 3), (2, 2)]], noise_scale=1, rng=seeded()),
        r"rows of trunk\[1\] must be a whole number >= 1, got 0",
    ),
    "numbers to produce": (lambda: MatrixGenerator(0, [(2, 2), (3, 3)], noise_scale=1, rng=seeded()), "dim must be a"),
    "one matrix": (lambda: MatrixGenerator(9, [(3, 3)], noise_scale=1, rng=seeded()), "two shapes at least"),
    "slices": (
        lambda: SplitMatrixGenerator(4, [(1, 2), (2, 3)], [[(1, 2), (2, 2)]], noise_scale=1, rng=seeded()),
        r"take \[2\] numbers, which must be the 6",
    ),
    "iterations": (lambda: LIVI(2, "smallest", 0), r"iterations \(or None, .*\) must be a whole number >= 1, got 0"),
    "2.5 iterations": (lambda: LIVI(2, "smallest", 2.5), "must be a whole number >= 1, got 2.5"),
    "iterations in words": (lambda: LIVI(2, "smallest", "5"), "must be a whole number >= 1, got '5'"),
    "true iterations": (lambda: LIVI(2, "smallest", True), "must be a whole number >= 1, got True"),
    "iterations of all": (lambda: LIVI(2, "full", 5), "entropy = 'full'"),
    "entropy": (lambda: LIVI(2, "smaller"), "entropy must be 'full' or 'smallest', got 'smaller'"),
    "samples": (lambda: LIVI(0), "num_samples must be"),
    "samples of AVB": (lambda: AVB(0), "num_samples must be"),
    "samples of KIVI": (lambda: KIVI(1), "num_samples must be a whole number >= 2, got 1"),
    "λ of KIVI": (lambda: KIVI(2, 0.0), "the regularization must be a positive"),
    "kernel of KIVI": (lambda: KIVI(2, kernel=RBF), r"kernel must be an instance, got the class RBF"),
    "floor of KIVI": (lambda: KIVI(2, floor=-1.0), "the floor of the ratio must be a positive"),
    "iterations of LOBPCG": (
        lambda: smallest_singular_value(at(latent()), 0, seeded()),
        "must be a whole number >= 1, got 0",
    ),
    "no rng": (lambda: smallest_singular_value(at(latent()), 3), "rng must be a torch.Generator.* got None"),
    "one point": (lambda: entropy_bracket(latent(), 1, 5, seeded()), "num_samples must be a whole number >= 2, got 1"),
    "no draws": (lambda: entropy_bracket(latent(), 2, 0, seeded()), "draws must be a whole number >= 1, got 0"),
    "draws to regress on": (lambda: bracket(regression=1), "regression must be a whole number >= 2, got 1"),
    "temperatures": (lambda: bracket(temperatures=-1), "temperatures must be a whole number >= 0, got -1"),
    "no values": (lambda: bracket(values=0), "values must be a whole number >= 2, got 0"),
    "one value": (lambda: bracket(values=1), "values must be a whole number >= 2, got 1"),
    "entropy of a Generator": (
        lambda: entropy_bracket(Generator(7, 3, rng=seeded()), 5, 5, seeded()),
        "a Generator has no latent z of its own: take a LatentGenerator",
    ),
    "entropy of mean field": (
        lambda: entropy_bracket(PointEstimate(MeanField(torch.zeros(7))), 5, 5, seeded()),
        "a MeanField has no latent z",
    ),
    "power": (lambda: regression(power=0.0), "power must be a positive finite number, got 0.0"),
    "LIVI of a Generator": (lambda: loss(LIVI(2), Generator(7, 3, rng=seeded())), "a Generator has no latent z"),
    "bracket of mean field": (
        lambda: elbo_bracket(MeanField(torch.zeros(7)), normal_target(), 5, 5, seeded()),
        "a MeanField has no latent z of its own: take a LatentGenerator",
    ),
    "ELBO of a mixture": (lambda: loss(NegativeELBO(2), latent()), "is a mixture over z"),
    "GPVI of a mixture": (lambda: loss(GPVI(2), latent()), "maps k [+] m numbers to m"),
    "mode of a generator": (lambda: loss(MaximumPosterior(), latent()), "needs Particles, got LatentGenerator"),
    "AVB without a prior": (lambda: loss(AVB(2), latent()), "NoneType has no sample"),
}


def at(sampler):
    return sampler.latent_linearize(torch.zeros(2, sampler.noise_dim, dtype=F64))[1]


def normal_target() -> Gaussian:
    return Gaussian(torch.zeros(7, dtype=F64), torch.eye(7, dtype=F64))


def bracket(**settings):
    return elbo_bracket(latent(), normal_target(), 2, 1, seeded(), **settings)


def loss(objective, sampler):
    return objective(sampler, normal_target(), None, seeded())


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_error(case):
    make, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_singular_values_that_overflow_are_said(rng):
    sampler = LatentGenerator(3, 2, (2, 2, 2, 2, 2), noise_scale=0.1, activation="elu", rng=rng)
    with torch.no_grad():
        for p in sampler.parameters():
            p.fill_(1e35)
    jacobian = sampler.latent_linearize(torch.ones(1, 2))[1]
    for arguments in (("full",), ("smallest",), ("smallest", 3, rng)):
        with pytest.raises(DivergedError, match="singular values .* are not finite: lower the learning rate"):
            linearized_entropy(jacobian, *arguments)


def flat(sigma):
    """Twelve hidden units for sixteen latent numbers: four singular values are 0 everywhere."""
    return latent(m=20, k=16, hidden=(12,), activation="tanh", noise_scale=sigma)


def equal_columns():
    """All singular values but the largest are 0."""
    sampler = LatentGenerator(7, 5, (3,), noise_scale=1e-3, rng=seeded())
    nn.init.constant_(sampler.output.weight, 3e38)
    return sampler


UNKNOWN = {
    "full": lambda j: linearized_entropy(j),
    "smallest": lambda j: linearized_entropy(j, "smallest"),
    "stopped": lambda j: linearized_entropy(j, "smallest", 3, seeded()),
    "correction": lambda j: linearization_correction(j, torch.zeros(2, 5)),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_singular_values_that_drown_the_others_are_said(case):
    """They are finite, and so would be a wrong entropy."""
    jacobian = equal_columns().latent_linearize(torch.randn(2, 5, generator=seeded(1)))[1]
    with pytest.raises(DivergedError, match=r"reach about \de\+41 at s = 0.001, .*: take a larger noise_scale"):
        UNKNOWN[case](jacobian)


@pytest.mark.parametrize("make", [lambda: flat(1e-8), lambda: flat(1e-9), equal_columns])
def test_a_bracket_of_values_that_drown_is_refused(make):
    with pytest.raises(DivergedError, match="take a larger noise_scale"):
        entropy_bracket(make(), 5, 5, seeded())


@pytest.mark.parametrize("sigma", [1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-12])
def test_the_entropy_of_a_flat_sampler_is_right_or_refused(sigma, normal):
    """Against the singular values of J̃ itself, not of its Gram matrix."""
    jacobian = flat(sigma).latent_linearize(normal(3, 16))[1]
    pushed = jacobian.latent_jvp(torch.eye(16, dtype=F64).expand(3, -1, -1)) / sigma
    values = torch.linalg.svdvals(pushed).detach()
    constant = 10 * (1 + math.log(2 * math.pi)) + 20 * math.log(sigma)
    full, smallest = torch.log1p(values.square()).sum(-1) / 2, 8 * torch.log1p(values[:, -1].square())
    for kind, expected in (("full", full), ("smallest", smallest)):
        if sigma > 2e-7:
            assert_close(linearized_entropy(jacobian, kind).detach(), constant + expected, rtol=0, atol=1e-3)
        else:
            with pytest.raises(DivergedError, match=f"at s = {sigma:.2g}, .*: take a larger noise_scale"):
                linearized_entropy(jacobian, kind)


@pytest.mark.parametrize("entropy", ["full", "smallest"])
def test_large_values_alone_are_no_reason_to_refuse(entropy, normal):
    """What counts is how far apart they are."""
    jacobian = latent(hidden=(), noise_scale=1e-30).latent_linearize(normal(3, 4))[1]
    wider = replace(jacobian, noise_scale=2 * jacobian.noise_scale)
    found, other = (linearized_entropy(j, entropy) for j in (jacobian, wider))
    lost = 7 - 4  # of m directions k are g's
    assert_close(other - found, torch.full((3,), lost * math.log(2), dtype=F64))


def test_fit_says_where_singular_values_drown(rng):
    target = Gaussian(torch.zeros(20, dtype=F64), torch.eye(20, dtype=F64))
    with pytest.raises(DivergedError, match="^mine: step 1: the singular values .* take a larger noise_scale"):
        fit(flat(1e-9), target, LIVI(2), steps=2, optimizer=Adam(0.1), rng=rng, label="mine", progress=False)


def test_the_bracket_of_a_point_estimate_is_that_of_what_is_in_it():
    inner = latent(m=3, k=1)
    found, expected = (entropy_bracket(s, 5, 5, seeded()) for s in (PointEstimate(inner), inner))
    assert_close(found.low, expected.low)
    assert found.points.shape == (5, 3)


def test_relu_is_warned_of(rng):
    sampler = LatentGenerator(3, 2, (4,), noise_scale=0.1, activation="relu", rng=rng)
    with pytest.warns(UserWarning, match="the Generator has ReLU"):
        LIVI(2).check(sampler)


def test_a_generator_of_matrices_needs_a_layer(rng):
    with pytest.raises(GPVIError, match="shapes needs two shapes at least, of what goes in and of what comes out"):
        MatrixGenerator(4, [(2, 2)], noise_scale=0.1, rng=rng)
    for branches in ([[]], [[(2, 2)]]):
        with pytest.raises(GPVIError, match=r"branches\[0\] needs two shapes at least"):
            SplitMatrixGenerator(4, [(2, 2), (2, 2)], branches, noise_scale=0.1, rng=rng)
