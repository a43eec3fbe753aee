"""Samplers: the generator's Jacobian in all its forms, and densities against torch.distributions."""

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal
from torch.func import jacrev, vmap
from torch.testing import assert_close

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.flows import Flow
from gpvi_lib.samplers import Generator, MeanField, Particles

VECTOR = torch.tensor([0.3, 0.5, 0.8, 1.1, 1.4], dtype=torch.float64)

# k, hidden layers, activation, λ; always d = 5
GENERATORS = [
    pytest.param(5, (), "relu", None, id="linear k=d no-noise"),
    pytest.param(5, (), "relu", VECTOR, id="linear k=d vector"),
    pytest.param(2, (), "relu", 0.7, id="linear k<d"),
    pytest.param(5, (6,), "tanh", None, id="one layer k=d no-noise"),
    pytest.param(5, (6,), "relu", 0.7, id="one layer k=d"),
    pytest.param(3, (6,), "relu", VECTOR, id="one layer k<d vector relu"),
    pytest.param(3, (6, 7), "tanh", VECTOR, id="two layers k<d vector tanh"),
    pytest.param(1, (4, 3, 6), "relu", 0.7, id="three layers k=1"),
    pytest.param(4, (2,), "tanh", 0.7, id="bottleneck"),
    *(pytest.param(2, (6, 4), name, VECTOR, id=name) for name in ("elu", "gelu", "silu", "softplus")),
]


@pytest.fixture
def generator(rng, request):
    k, hidden, activation, scale = request.param
    return Generator(5, k, hidden, noise_scale=scale, activation=activation, rng=rng, dtype=torch.float64)


def all_generators(function):
    return pytest.mark.parametrize("generator", [pytest.param(p.values, id=p.id) for p in GENERATORS], indirect=True)(
        function
    )


@all_generators
def test_forward_is_eq_6(generator, normal):
    z = normal(4, 5)
    activation = ACTIVATIONS[generator.activation].value
    a = z[:, : generator.noise_dim]
    for layer in generator.hidden:
        a = activation(a @ layer.weight.mT + layer.bias)
    expected = a @ generator.output.weight.mT + generator.output.bias
    if generator.noise_scale is not None:
        expected = expected + generator.noise_scale * z
    assert_close(generator(z), expected)
    assert_close(generator.forward_and_linearize(z)[0], expected)


@all_generators
def test_every_form_of_the_jacobian_agrees_with_autodiff(generator, normal):
    z, k = normal(4, 5), generator.noise_dim
    jacobian = vmap(jacrev(lambda point: generator(point[None])[0]))(z)
    linear = generator.linearize(z)
    assert_close(linear.dense(), jacobian)
    assert_close(linear.head(), jacobian[:, :k, :k])
    vectors = normal(4, 3, 5)
    assert_close(linear.vjp(vectors), vectors @ jacobian)  # rows hᵀJ
    for part, expected in zip(linear.slogdet(), torch.linalg.slogdet(jacobian), strict=True):
        assert_close(part, expected)


class LogDeterminant(nn.Module):
    """log|det J| as a function of the parameters alone."""

    def __init__(self, generator, z):
        super().__init__()
        self.generator, self.z = generator, z

    def forward(self):
        return self.generator.linearize(self.z).slogdet()[1]


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("scale", [0.7, VECTOR], ids=["number", "vector"])
@pytest.mark.parametrize(("k", "hidden"), [(3, (6, 4)), (5, (6,)), (2, ())])
def test_log_determinant_has_the_gradient_of_its_finite_differences(rng, normal, activation, scale, k, hidden):
    generator = Generator(
        5, k, hidden, noise_scale=scale, train_noise_scale=True, activation=activation, rng=rng, dtype=torch.float64
    )
    module = LogDeterminant(generator, normal(2, 5))
    names, values = zip(*module.named_parameters(), strict=True)
    assert "generator.log_noise_scale" in names

    def function(*parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), ())

    # gradcheck: central differences of step 1e-6 in float64, relative error about 1e-16 / 1e-6 + 1e-12.
    assert torch.autograd.gradcheck(function, tuple(v.detach().requires_grad_() for v in values), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.7, VECTOR])
@pytest.mark.parametrize("trained", [True, False])
def test_the_noise_scale_is_trained_only_when_asked(rng, scale, trained):
    generator = Generator(5, 2, noise_scale=scale, train_noise_scale=trained, rng=rng, dtype=torch.float64)
    _, log_q = generator.rsample_with_log_prob(4, rng)
    log_q.mean().backward()
    assert ("log_noise_scale" in dict(generator.named_parameters())) is trained
    if trained:  # log q holds -Σ_{i>k} log λ_i, and more through the head
        assert bool((generator.log_noise_scale.grad != 0).all())
    assert "log_noise_scale" in generator.state_dict()


def test_density_of_a_linear_generator_is_the_gaussian_it_is(rng, normal):
    generator = Generator(5, 3, noise_scale=VECTOR, rng=rng, dtype=torch.float64)
    x, log_q = generator.rsample_with_log_prob(6, rng)
    jacobian = generator.linearize(normal(1, 5)).dense()[0]
    gaussian = MultivariateNormal(generator.output.bias, jacobian @ jacobian.mT)
    assert_close(log_q, gaussian.log_prob(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_dim": 6}, "noise_dim k must be between 1 and dim d = 5, got 6"),
        ({"noise_dim": 0}, "noise_dim must be a whole"),
        ({"noise_dim": -1}, "noise_dim must be a whole"),
        ({"noise_scale": 0.0}, "noise_scale must be positive and finite"),
        ({"noise_scale": -0.1}, "noise_scale must be positive and finite"),
        ({"noise_scale": float("nan")}, "noise_scale must be positive and finite"),
        ({"noise_scale": torch.tensor([1.0, 1, 0, 1, 1])}, "noise_scale must be positive and finite"),
        ({"noise_scale": float("inf")}, "noise_scale must be positive and finite, got inf"),
        ({"noise_scale": "0.1"}, r"noise_scale must be a number or \(5,\), got '0.1'"),
        ({"noise_scale": torch.ones(4)}, r"a number or \(5,\), got \(4,\)"),
        ({"noise_scale": torch.ones(5, 1)}, r"a number or \(5,\)"),
        ({"activation": "step"}, r"activation must be one of \['elu', .*'tanh'\], got 'step'"),
    ],
)
def test_impossible_generators_are_refused(rng, arguments, message):
    with pytest.raises(ValueError, match=message):
        Generator(5, **arguments, rng=rng)


def test_a_generator_onto_a_surface_samples_but_has_no_jacobian(rng):
    generator = Generator(5, 3, noise_scale=None, rng=rng)
    assert generator.sample(4, rng).shape == (4, 5)
    for call in (generator.linearize, lambda z: generator.rsample_with_log_prob(4, rng)):
        with pytest.raises(ValueError, match="singular for k = 3 < d = 5"):
            call(torch.zeros(4, 5))


def test_output_scale_sets_the_scale_of_the_first_points(rng):
    # 4000 biases N(0, s²): their standard deviation is s within 5 s / sqrt(2 · 4000).
    scale = torch.tensor([0.1, 2.0], dtype=torch.float64).repeat(4000)
    output = Generator(8000, 4, output_scale=scale, rng=rng, dtype=torch.float64).output
    bias = (output.bias.detach() / scale).view(4000, 2)
    assert bool(((bias.std(0) - 1).abs() < 5 / 8000**0.5).all())
    # Default weights are U(-1, 1) / sqrt(fan in). The largest of 16,000 draws falls short of the bound by more than
    # 20 / 16,000 of it once in e^20 times.
    weight = (output.weight.detach() / scale[:, None]).view(4000, 2, 4)
    assert_close(weight.abs().amax((0, 2)), torch.full((2,), 0.5, dtype=torch.float64), rtol=20 / 16_000, atol=0)


def test_state_dict_round_trip(rng):
    source, copy = (Generator(5, 2, (4,), train_noise_scale=True, noise_scale=s, rng=rng) for s in (0.3, 2.0))
    copy.load_state_dict(source.state_dict())
    z = source.noise(3, rng)
    assert torch.equal(source(z), copy(z))


@pytest.mark.parametrize("scale", [0.3, torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)])
def test_mean_field_is_a_factorised_gaussian(rng, normal, scale):
    mean = normal(3)
    sampler = MeanField(mean, scale)
    x, log_q = sampler.rsample_with_log_prob(7, rng)
    assert_close(sampler.scale.detach(), torch.as_tensor(scale, dtype=torch.float64).expand(3))
    assert_close(log_q, Normal(sampler.mean, sampler.scale).log_prob(x).sum(-1))


def test_mean_field_has_its_moments(rng):
    # n draws: the mean is off by s / sqrt(n), the standard deviation by s / sqrt(2 n); five of each are allowed.
    n, mean, scale = 40_000, torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])
    x = MeanField(mean, scale).sample(n, rng)
    assert bool(((x.mean(0) - mean).abs() < 5 * scale / n**0.5).all())
    assert bool(((x.std(0) - scale).abs() < 5 * scale / (2 * n) ** 0.5).all())


@pytest.mark.parametrize("scale", [0.0, -1.0, torch.tensor([1.0, 0.0])])
def test_mean_field_needs_a_positive_scale(scale):
    with pytest.raises(ValueError, match="positive"):
        MeanField(torch.zeros(2), scale)


def test_particles_are_their_parameters(normal, rng):
    initial = normal(4, 2)
    particles = Particles(initial)
    assert particles.dim == 2
    assert torch.equal(particles.rsample(None, rng), particles.rsample(4, rng))
    particles.x.data.add_(1)
    assert torch.equal(initial + 1, particles.sample(None, rng))  # the caller's tensor is not the parameter
    with pytest.raises(ValueError, match="5 samples asked of 4 free particles"):
        particles.rsample(5, rng)
    with pytest.raises(ValueError, match="Particles has no tractable density"):
        particles.rsample_with_log_prob(4, rng)
    with pytest.raises(ValueError, match=r"shape \(n, d\)"):
        Particles(torch.zeros(3))


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: Generator(3, 2, (4,), rng=rng),
        lambda rng: MeanField(torch.zeros(3)),
        lambda rng: Particles(torch.randn(5, 3, generator=rng)),
    ],
    ids=["generator", "mean field", "particles"],
)
def test_samples_follow_the_generator_alone_and_carry_no_gradient(make):
    draws = []
    for torch_seed in (1, 2):
        torch.manual_seed(torch_seed)
        rng = torch.Generator().manual_seed(7)
        draws.append(make(rng).sample(5, rng))
    assert torch.equal(*draws)
    assert draws[0].shape == (5, 3)
    assert not draws[0].requires_grad


@pytest.mark.parametrize("make", [lambda: MeanField(torch.zeros(2)), lambda: Flow(2, 2, rng=torch.Generator())])
def test_a_sampler_that_can_draw_any_number_asks_how_many(make, rng):
    with pytest.raises(ValueError, match="num_samples"):
        make().sample(None, rng)


def test_a_wide_mean_field_has_the_scale_it_was_given():
    for scale in (1e-3, 1.0, 19.0, 21.0, 100.0, 1e6):
        assert_close(MeanField(torch.zeros(2), scale).scale, torch.full((2,), scale))


def test_a_generator_for_few_weights(rng):
    assert Generator.for_weights(torch.ones(3), rng=rng).noise_dim == 3
    assert Generator.for_weights(torch.ones(20), rng=rng).noise_dim == 8
    with pytest.raises(ValueError, match=r"scale must be one number per weight, \(d,\), got 0.5"):
        Generator.for_weights(0.5, rng=rng)
