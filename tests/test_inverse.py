"""Back ends for J⁻ᵀ∇k: block and BiCGSTAB against dense inverses, the helper against what it should learn."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpvi_lib.inverse import (
    INVERSES,
    BiCGSTABInverse,
    BlockInverse,
    DenseInverse,
    HelperInverse,
    HelperNetwork,
    bicgstab,
    by_pairs,
    by_sources,
    kernel_gradients,
)
from gpvi_lib.kernels import RBF
from gpvi_lib.samplers import Generator


@pytest.fixture(autouse=True)
def _no_gradients():
    """As in GPVI's functional gradient."""
    with torch.no_grad():
        yield


def setting(rng, d, k, hidden=(), activation="tanh", scale=0.8, n=6, m=5, h="paper"):
    """Linearization, z', z and W of a generator, all in float64."""
    generator = Generator(d, k, hidden, noise_scale=scale, activation=activation, rng=rng, dtype=torch.float64)
    source, query = generator.noise(n, rng), generator.noise(m, rng)
    return generator.linearize(source), source, query, RBF(h)(source, query)[1]


def explicit(linearization, source, query, weight, transpose=True):
    inverse = torch.linalg.inv(linearization.dense())
    gradients = weight[..., None] * (source[:, None] - query)
    return torch.einsum("iab,imb->ma", inverse.mT if transpose else inverse, gradients)


VECTOR = torch.linspace(0.5, 1.5, 7, dtype=torch.float64)
SETTINGS = {
    "k=d no-noise": (7, 7, (9,), "tanh", None),
    "k=d linear vector": (7, 7, (), "relu", VECTOR),
    "k<d linear": (7, 3, (), "relu", 0.8),
    "k<d tanh vector": (7, 4, (9,), "tanh", VECTOR),
    "k<d relu vector": (7, 4, (9, 8), "relu", VECTOR),
    "k=1 bottleneck": (7, 1, (2,), "tanh", VECTOR),
    "k large": (70, 66, (20,), "tanh", 0.8),
    "d = 1": (1, 1, (4,), "tanh", 0.8),
    "three layers": (7, 4, (9, 8, 6), "tanh", VECTOR),
    "four layers, k=d no-noise": (7, 7, (9, 8, 12, 9), "tanh", None),
    "k large, layers": (70, 40, (20, 30), "tanh", 0.8),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kernel_on_head", [False, True])
def test_dense_block_and_bicgstab_are_the_explicit_inverse(name, kernel_on_head, rng):
    linearization, source, query, weight = setting(rng, *SETTINGS[name])
    if kernel_on_head:
        source[:, linearization.noise_dim :] = 0
        query[:, linearization.noise_dim :] = 0
    expected = explicit(linearization, source, query, weight)
    # A condition number of at most 1e4 times eps = 2e-16 leaves 1e-12 of the sum's size, d times the tolerance 1e-13.
    for inverse in (DenseInverse(), BlockInverse(), BiCGSTABInverse(tol=1e-13, max_iterations=500)):
        repulsion, _ = inverse(linearization, source, query, weight, rng)
        assert_close(repulsion, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("name", [name for name, (_, _, hidden, *_) in SETTINGS.items() if hidden])
@pytest.mark.parametrize("m", [1, 5, 45])
def test_both_ways_of_the_block_inverse_are_the_explicit_inverse(name, m, rng, monkeypatch):
    """On both sides of the choice, and with fewer and with more queries than k: the latter need (A + Λ_1)⁻¹."""
    linearization, source, query, weight = setting(rng, *SETTINGS[name], m=m, h=3.0)
    expected = explicit(linearization, source, query, weight)
    attraction = torch.randn(expected.shape, generator=rng, dtype=torch.float64)
    for choice in (True, False):
        monkeypatch.setattr(BlockInverse, "by_sources", staticmethod(lambda *_, chosen=choice: chosen))
        repulsion, _ = BlockInverse()(linearization, source, query, weight)
        assert_close(repulsion, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))
        total, pulled, _ = BlockInverse().add_and_pull_back(linearization, source, query, weight, attraction)
        assert_close(total, attraction + repulsion)
        assert_close(pulled, total @ linearization.output_weight, rtol=1e-10, atol=1e-10 * float(pulled.abs().max()))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20, 5, (64, 64), 100), True),
        ((184, 64, (64, 64), 100), True),
        ((20, 20, (64, 64), 100), True),  # k = d: both take the same number, k (S + w k)
        ((300, 256, (256, 512, 1_024), 10), False),  # k² w_L against k² w_1
        ((20, 20, (8, 64), 100), False),
    ],
)
def test_the_cheaper_way_is_taken(shape, expected, rng):
    d, k, hidden, n = shape
    generator = Generator(d, k, hidden, activation="tanh", rng=rng)
    assert BlockInverse.by_sources(generator.linearize(generator.noise(2, rng)), n) == expected


@pytest.mark.parametrize("name", SETTINGS)
def test_forward_and_reverse_accumulation_give_one_jacobian(name, rng):
    linearization = setting(rng, *SETTINGS[name])[0]
    jacobian = linearization.features_jacobian()
    identity = torch.eye(jacobian.shape[-1], dtype=torch.float64).expand(6, -1, -1)
    assert_close(jacobian.mT, linearization.features_vjp(identity))
    assert_close(linearization.head_from(jacobian), linearization.head())


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operator makes."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.size = max([self.size, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


def test_by_sources_nothing_has_a_pair_and_a_feature_or_a_pair_and_a_coordinate(rng):
    arguments = setting(rng, 50, 3, (40, 30), n=60, m=60)
    sizes = []
    for way in (by_sources, by_pairs):
        linearization, source, query, weight = arguments
        p = torch.randn(2, 60, 30, generator=rng, dtype=torch.float64)
        with Largest() as largest:
            way(linearization, source[:, :3], query[:, :3], weight, *p)
        sizes.append(largest.size)
    assert sizes[0] == 60 * 60 * 3 < 60 * 60 * 30 <= sizes[1]
    with Largest() as largest:
        BlockInverse().add_and_pull_back(*arguments, arguments[2])
    assert largest.size == 60 * 60 * 3


def test_both_ways_are_as_exact_in_single_precision(rng):
    linearization, source, query, weight = setting(rng, 20, 5, (64, 64), n=100, m=100)
    arguments = (source[:, :5], query[:, :5], weight, *torch.randn(2, 100, 64, generator=rng).double())
    single = replace(
        linearization,
        weights=[w.float() for w in linearization.weights],
        slopes=[s.float() for s in linearization.slopes],
        output_weight=linearization.output_weight.float(),
        first_rows=linearization.first_rows.float(),
        noise_scale=linearization.noise_scale.float(),
    )
    for way in (by_pairs, by_sources):
        expected, found = way(linearization, *arguments), way(single, *(a.float() for a in arguments))
        # sums of 100 terms rounded to eps = 1.2e-7 each, and systems with a condition number of about ten
        assert (found - expected).norm() < 20 * torch.finfo(torch.float32).eps * expected.norm()


@pytest.mark.parametrize("name", INVERSES)
def test_one_sample_on_either_side(name, rng):
    repulsion, _ = INVERSES[name]()(*setting(rng, 4, 2, (3,), n=1, m=1, h=1.0), rng)
    assert repulsion.shape == (1, 4)
    assert repulsion.isfinite().all()


# BiCGSTAB on matrices


def apply(a):
    return lambda x: (a @ x[..., None])[..., 0]


def true_residual(a, b, x):
    return (b - apply(a)(x)).norm(dim=-1) / b.norm(dim=-1)


@pytest.mark.parametrize("shape", [(6,), (10, 6), (3, 4, 6)])
@pytest.mark.parametrize("kind", ["positive", "negative", "indefinite"])
def test_bicgstab_solves_nonsymmetric_systems(normal, shape, kind):
    """`negative` and `indefinite` matrices give r̂·r and r̂·v of either sign."""
    diagonal = {"positive": torch.ones(6), "negative": -torch.ones(6), "indefinite": torch.tensor([2, -2] * 3)}[kind]
    a, b = 0.2 * normal(*shape, 6) + torch.diag(diagonal), normal(*shape)
    result = bicgstab(apply(a), b, tol=1e-12)
    assert not result.breakdown.any()
    assert bool((result.residual <= 1e-11).all())  # ten times the goal: the recursive residual drifts from the true one
    # ‖error‖ <= ‖a⁻¹‖ ‖residual‖, with ‖a⁻¹‖ below 100 for these
    assert_close(result.x, torch.linalg.solve(a, b), rtol=0, atol=1e-9)
    assert result.iterations.shape == result.residual.shape == shape[:-1]


def mixed_batch(normal):
    """A system whose start is its solution, one with b = 0, one that breaks down at once, and an ordinary one."""
    ordinary = torch.tensor([[2.0, 1.0], [-0.5, 3.0]])
    rotation = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # r̂·v = r·(rotated r) = 0
    a = torch.stack([ordinary, ordinary, rotation, -ordinary]).double()
    b, start = normal(4, 2), torch.zeros(4, 2, dtype=torch.float64)
    b[0], b[2] = torch.tensor([4.0, 5.0]), torch.tensor([3.0, 4.0])  # so that its start (1, 2) and r̂·v are exact
    start[0], b[1] = torch.tensor([1.0, 2.0]), 0
    b[0] = a[0] @ start[0]
    return a, b, start


def test_systems_of_a_batch_stop_on_their_own(normal):
    a, b, start = mixed_batch(normal)
    result = bicgstab(apply(a), b, start, tol=1e-12)
    assert result.iterations.tolist()[:3] == [0, 0, 0]
    assert 1 <= result.iterations[3] <= 3  # exact after two steps but for rounding
    assert result.breakdown.tolist() == [False, False, True, False]
    assert torch.equal(result.x[:3], start[:3])
    assert result.residual[:3].tolist() == [0, 0, 1]
    assert_close(result.x[3], torch.linalg.solve(a[3], b[3]))


def test_a_system_does_not_depend_on_its_batch(normal):
    a, b, start = mixed_batch(normal)
    together = bicgstab(apply(a), b, start)
    for i in range(4):
        alone = bicgstab(apply(a[i]), b[i], start[i])
        assert_close(alone.x, together.x[i])
        assert alone.iterations == together.iterations[i]
        assert alone.breakdown == together.breakdown[i]


# Right-hand side e₁ throughout, so r = r̂ = e₁ and everything below is exact in floating point.
# First step: v = A e₁, α = 1 / v₁, s = e₁ - α v, t = A s, ω = t·s / t·t.
@pytest.mark.parametrize(
    ("a", "iterations", "residual"),
    [
        # v = (1, 1, 0), s = -e₂, t = -(0, 2, 1), ω = 2/5, and r = (0, -1/5, 2/5) has r̂·r = 0
        pytest.param([[1, 0, 1], [1, 2, 0], [0, 1, 1]], 1, 0.2 * 5**0.5, id="r̂·r = 0 in the second step"),
        # the same v and s, but t = -(1, 0, 1) is orthogonal to s: ω = 0 and r = s
        pytest.param([[1, 1, 1], [1, 0, 0], [0, 1, 1]], 1, 1.0, id="t·s = 0"),
        pytest.param([[0, 1, 1], [1, 2, 0], [0, 1, 1]], 0, 1.0, id="r̂·v = 0"),
    ],
)
def test_every_kind_of_breakdown_is_reported_with_what_was_reached(a, iterations, residual):
    a, b = torch.tensor(a, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[0]
    result = bicgstab(apply(a), b)
    assert bool(result.breakdown)
    assert result.iterations == iterations
    assert_close(result.residual.item(), residual)
    assert_close(result.residual, true_residual(a, b, result.x))


@pytest.mark.parametrize("factor", [2.0, -2.0])
def test_an_exact_half_step_is_a_solution_and_no_breakdown(factor):
    b = torch.tensor([[1.0, 2.0], [0.5, -4.0]], dtype=torch.float64)
    result = bicgstab(lambda x: factor * x, b)
    assert torch.equal(result.x, b / factor)
    assert result.iterations.tolist() == [1, 1]
    assert not result.breakdown.any()


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_residual_is_the_true_one_and_the_limit_is_kept(normal, limit):
    a, b = normal(5, 30, 30) + 8 * torch.eye(30), normal(5, 30)
    result = bicgstab(apply(a), b, max_iterations=limit, tol=1e-12)
    assert result.iterations.tolist() == [limit] * 5
    assert_close(result.residual, true_residual(a, b, result.x))
    assert bool((result.residual > 1e-12).all())


def test_the_residual_is_that_of_the_answer_where_the_recursion_has_drifted(normal):
    """In float32 the recursion goes on to 1e-12; the true residual cannot fall below a few eps = 1e-7."""
    a, b = (0.2 * normal(5, 6, 6) + torch.eye(6)).float(), normal(5, 6).float()
    result = bicgstab(apply(a), b, tol=1e-12)
    assert bool((result.residual > 1e-9).all())
    assert_close(result.residual, true_residual(a, b, result.x))


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_the_unit_of_the_right_hand_side_does_not_matter(normal, scale):
    a, b = 0.2 * normal(5, 4, 4) + torch.eye(4), normal(5, 4)
    plain, scaled = bicgstab(apply(a), b), bicgstab(apply(a), scale * b)
    assert torch.equal(plain.iterations, scaled.iterations)
    assert_close(scaled.x / scale, plain.x)


def test_a_zero_right_hand_side_pulls_any_start_to_zero(normal):
    a, start = 0.2 * normal(5, 4, 4) + torch.eye(4), normal(5, 4)
    result = bicgstab(apply(a), torch.zeros(5, 4, dtype=torch.float64), start)
    assert float(result.x.norm()) < 1e-12 * float(start.norm())


# BiCGSTAB as a back end


def test_warm_start_goes_on_from_the_previous_solution(rng):
    arguments = (*setting(rng, 6, 3, (8,)), rng)
    gradients = kernel_gradients(*arguments[1:4])
    inverse = BiCGSTABInverse(max_iterations=1, warm_start=True)
    _, first = inverse(*arguments)
    start = inverse.previous.clone()
    repulsion, second = inverse(*arguments)
    expected = bicgstab(arguments[0].vjp, gradients, start, max_iterations=1)
    assert torch.equal(repulsion, expected.x.sum(0))
    assert second["residual"] < first["residual"]
    cold, _ = BiCGSTABInverse(max_iterations=1)(*arguments)
    assert not torch.equal(repulsion, cold)


def test_a_cold_start_keeps_nothing(rng):
    inverse, arguments = BiCGSTABInverse(max_iterations=1), (*setting(rng, 6, 3, (8,)), rng)
    assert torch.equal(inverse(*arguments)[0], inverse(*arguments)[0])
    assert inverse.previous is None


def test_a_warm_start_of_another_shape_is_dropped(rng):
    linearization, source, query, weight = setting(rng, 6, 3, (8,))
    inverse = BiCGSTABInverse(max_iterations=1, warm_start=True)
    inverse(linearization, source, query, weight)
    fewer, _ = inverse(linearization, source, query[:2], weight[:, :2])
    cold, _ = BiCGSTABInverse(max_iterations=1)(linearization, source, query[:2], weight[:, :2])
    assert torch.equal(fewer, cold)


def test_bicgstab_diagnostics(rng):
    arguments = (*setting(rng, 6, 3, (8,)), rng)
    repulsion, info = BiCGSTABInverse(tol=1e-9)(*arguments)
    assert set(info) == {"residual", "iterations", "breakdowns"}
    assert info["residual"] < 1e-8
    assert 1 <= info["iterations"] <= 100
    assert info["breakdowns"] == 0
    assert_close(repulsion, explicit(*arguments[:4]), rtol=0, atol=1e-7)


# The helper network


@pytest.mark.parametrize("num_layers", [0, 2])
def test_the_helper_network_joins_both_encodings(rng, num_layers):
    """It sums two parts of its first layer's product: eq. 10's network applies that layer to joined encodings."""
    helper = HelperNetwork(2, 4, 8, num_layers, rng, torch.float64, "cpu")
    head, gradient = torch.randn(3, 2, generator=rng).double(), torch.randn(3, 5, 4, generator=rng).double()
    noise = torch.relu(helper.encode_noise(head))[:, None].expand(-1, 5, -1)
    joined = torch.cat([noise, torch.relu(helper.encode_gradient(gradient))], dim=-1)
    assert_close(helper(head, gradient), helper.trunk(joined))


def test_the_helper_learns_the_inverse_transpose(rng):
    linearization, source, query, weight = setting(rng, 3, 2, (4,), n=6, m=6)
    transposed, plain = (explicit(linearization, source, query, weight, transpose=t) for t in (True, False))
    helper = HelperInverse(width=32, num_layers=1, lr=1e-2)
    residuals = []
    for _ in range(400):
        repulsion, info = helper(linearization, source, query, weight, rng)
        residuals.append(float(info["residual"]))
    # An untrained network explains nothing (residual about 1). At seeds 0 to 9 a twentieth is reached within 120 steps.
    assert residuals[0] > 0.5
    assert min(residuals[-50:]) < residuals[0] / 20
    # Each solution is off by at most ‖J⁻ᵀ‖ (below 2 here) times its residual; J⁻¹∇k, as printed, is 43 % away.
    assert (repulsion - transposed).norm() < 0.1 * transposed.norm()
    assert (repulsion - plain).norm() > 0.3 * plain.norm()


def test_more_updates_are_as_many_calls(rng):
    arguments = setting(rng, 3, 2, (4,))
    states = [torch.Generator().manual_seed(3) for _ in range(2)]
    one, three = (HelperInverse(width=8, num_layers=1, updates=u) for u in (1, 3))
    for _ in range(3):
        stepwise, _ = one(*arguments, states[0])
    at_once, _ = three(*arguments, states[1])
    assert torch.equal(stepwise, at_once)


def test_helper_residual_is_that_of_the_network_before_its_update(rng):
    linearization, source, query, weight = setting(rng, 3, 2, (4,))
    helper = HelperInverse(width=8, num_layers=1)
    helper(linearization, source, query, weight, rng)
    network, gradients = copy.deepcopy(helper.network), kernel_gradients(source, query, weight)
    _, info = helper(linearization, source, query, weight, rng)
    expected = linearization.vjp(network(source[:, :2], gradients)) - gradients
    assert_close(info["residual"], expected.norm() / gradients.norm())


@pytest.mark.parametrize(
    "make",
    [lambda: HelperInverse(width=8, num_layers=1), lambda: BiCGSTABInverse(max_iterations=1, warm_start=True)],
    ids=["helper", "bicgstab"],
)
@pytest.mark.parametrize("calls", [0, 3])
def test_state_round_trip_gives_the_same_next_output_and_randomness(make, calls, rng):
    arguments = setting(rng, 4, 2, (5,))
    original, restored = make(), make()
    for _ in range(calls):
        original(*arguments, rng)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    twin = torch.Generator()
    twin.set_state(rng.get_state())
    for _ in range(2):
        assert torch.equal(original(*arguments, rng)[0], restored(*arguments, twin)[0])
    assert torch.equal(rng.get_state(), twin.get_state())
