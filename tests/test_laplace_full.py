"""Laplace's approximation of all weights, against matrices that are written out; linearised networks."""

import math

import pytest
import torch
from torch import nn
from torch.func import hessian, jacrev
from torch.testing import assert_close

from gpvi_lib import (
    CategoricalLikelihood,
    FlatModule,
    NormalLikelihood,
    NormalPrior,
    Posterior,
    StreamedPosterior,
    last_layer_laplace,
    mlp,
)
from gpvi_lib.laplace_full import LinearizedModule, LowRankLaplace, kronecker_laplace, low_rank_laplace

F64 = torch.float64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def convolutional(size: int = 3) -> nn.Module:
    """One convolution, applied at ``(size - 2)^2`` places, and a layer behind it."""
    places = (size - 2) ** 2
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2 * places, 3))


def classifier(module: nn.Module, n: int, shape=(1, 3, 3), power: float = 0.7, scale: float = 0.5) -> Posterior:
    rng = seeded(1)
    x = torch.randn(n, *shape, generator=rng, dtype=F64)
    labels = torch.randint(3, (n,), generator=rng)
    return Posterior(module.double(), CategoricalLikelihood(), x, labels, NormalPrior(scale), power=power)


def mode_of(target: Posterior) -> torch.Tensor:
    return 0.3 * torch.randn(target.dim, generator=seeded(2), dtype=F64)


def gauss_newton(target: Posterior, mode: torch.Tensor) -> torch.Tensor:
    """``Σ_n J_nᵀ (diag(p_n) - p_n p_nᵀ) J_n``, times the power."""
    jacobian = jacrev(lambda w: target.network(w[None], target.inputs)[0])(mode)
    p = target.network(mode[None], target.inputs)[0].softmax(-1)
    middle = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    return target.power * torch.einsum("nca,ncd,ndb->ab", jacobian, middle, jacobian)


def blocks(sampler) -> list[torch.Tensor]:
    """Each layer's precision, in the order of its flattened weights and then its biases."""
    found = []
    for layer in sampler.layers:
        both = torch.kron(layer.of_outputs, layer.of_inputs)
        matrix = both * layer.precision.flatten() @ both.mT
        index = torch.arange(len(matrix)).view(layer.precision.shape)
        order = torch.cat([index[:, :-1].flatten(), index[:, -1]])
        found.append(matrix[order][:, order])
    return found


@pytest.mark.parametrize("module", [convolutional(), mlp([9, 4, 3], "tanh")], ids=["convolution", "mlp"])
def test_kronecker_factors_of_one_datum_and_one_place_are_exact(module):
    """There the blocks of the Gauss–Newton matrix are products themselves."""
    target = classifier(module, 1)
    mode = mode_of(target)
    exact, start = gauss_newton(target, mode), 0
    for block in blocks(kronecker_laplace(target, mode)):
        inside = slice(start, start + len(block))
        assert_close(block, exact[inside, inside] + 4 * torch.eye(len(block), dtype=F64))
        start += len(block)
    assert start == target.dim


def test_kronecker_factors_of_many_data_are_products_of_means():
    """A convolution at nine places: by the definition, datum by datum and place by place."""
    target = classifier(convolutional(5), 7, (1, 5, 5))
    mode = mode_of(target)
    weight, bias, *_ = target.network.unflatten(mode).values()
    last_weight, last_bias = list(target.network.unflatten(mode).values())[2:]
    inputs, slopes = torch.zeros(10, 10, dtype=F64), torch.zeros(2, 2, dtype=F64)
    for image in target.inputs:
        patches = [image[0, i : i + 3, j : j + 3].flatten() for i in range(3) for j in range(3)]
        a = torch.cat([torch.stack(patches), torch.ones(9, 1, dtype=F64)], -1)
        out = (a @ torch.cat([weight.flatten(1), bias[:, None]], -1).mT).requires_grad_()
        logits = out.mT.tanh().flatten() @ last_weight.mT + last_bias
        p = logits.softmax(-1).detach()
        inputs += a.mT @ a / 7
        for c in range(3):
            root = p[c].sqrt() * (torch.eye(3, dtype=F64)[c] - p)
            (g,) = torch.autograd.grad(logits @ root, out, retain_graph=True)
            slopes += g.mT @ g / 9
    order = torch.cat([torch.arange(20).view(2, 10)[:, :-1].flatten(), torch.tensor([9, 19])])
    exact = (0.7 * torch.kron(slopes, inputs))[order][:, order] + 4 * torch.eye(20, dtype=F64)
    assert_close(blocks(kronecker_laplace(target, mode))[0], exact)


@pytest.mark.parametrize("grad", [True, False])
def test_kronecker_factors_do_not_depend_on_parts_in_place_units_or_where_data_lie(grad, monkeypatch):
    plain = classifier(mlp([9, 4, 3]), 20)
    mode = mode_of(plain)
    expected = blocks(kronecker_laplace(plain, mode))
    in_place = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    same = Posterior(in_place.double(), CategoricalLikelihood(), plain.inputs, plain.targets, plain.prior, power=0.7)
    data = torch.utils.data.TensorDataset(plain.inputs, plain.targets)
    streamed = StreamedPosterior(plain.network, CategoricalLikelihood(), data, plain.prior, power=0.7)
    monkeypatch.setattr("gpvi_lib.laplace_full.DATA_AT_ONCE", 7)
    for target in (plain, same, streamed):
        with torch.set_grad_enabled(grad):
            found = blocks(kronecker_laplace(target, mode))
        assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("last", [nn.Tanh(), nn.Softplus()])
def test_last_layer_laplace_refuses_a_network_that_goes_on_after_its_last_layer(last):
    target = classifier(nn.Sequential(*mlp([9, 4, 3]), last), 20)
    with pytest.raises(ValueError, match="something changes that layer's outputs"):
        last_layer_laplace(target, torch.randn(target.dim, generator=torch.Generator().manual_seed(0)).double())
    target = classifier(nn.Sequential(*mlp([9, 4, 3]), nn.LogSoftmax(-1)), 20)
    assert last_layer_laplace(target, torch.zeros(target.dim).double()).dim == target.dim


def test_last_layer_laplace_reads_all_data_of_a_stream():
    plain = classifier(mlp([9, 4, 3]), 20)
    data = torch.utils.data.TensorDataset(plain.inputs, plain.targets)
    streamed = StreamedPosterior(plain.network, CategoricalLikelihood(), data, plain.prior, power=0.7)
    mode = mode_of(plain)
    assert_close(last_layer_laplace(streamed, mode).lower, last_layer_laplace(plain, mode).lower)


class Twice(nn.Module):
    """A layer that is applied two times, and for ``forgotten`` one that is not."""

    def __init__(self, forgotten=False):
        super().__init__()
        self.first, self.last, self.forgotten = nn.Linear(9, 9), nn.Linear(9, 3), forgotten

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x if self.forgotten else self.first(self.first(x)))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Twice(), "layers that are applied once"),
        (Twice(forgotten=True), "takes no part in its output"),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten()), r"nn\.Linear to \(b, inputs\)"),
        (nn.Sequential(nn.Conv2d(1, 3, 3, padding="same"), nn.Flatten(), nn.Linear(27, 3)), "their number given"),
    ],
)
def test_layers_that_the_factors_are_not_for_are_refused(module, message):
    target = classifier(module, 5)
    with pytest.raises(ValueError, match=message):
        kronecker_laplace(target, mode_of(target))


def test_moved_approximations_stay_whole():
    target = classifier(mlp([9, 4, 3]), 20)
    mode = mode_of(target)
    for sampler in (kronecker_laplace(target, mode), low_rank_laplace(target, mode, 3)):
        before, state = sampler.sample(3, seed=1), sampler.state_dict()
        assert len(state) > 2 and sampler.float().sample(3, seed=1).dtype == torch.float32
        other = sampler.double()
        other.load_state_dict(state)
        assert_close(other.sample(3, seed=1), before)


def test_draws_of_kronecker_factors_have_their_covariance():
    target = classifier(mlp([9, 2, 3], "tanh"), 30)
    mode, number = mode_of(target), 40_000
    sampler = kronecker_laplace(target, mode)
    draws = sampler.sample(number, seed=5) - mode
    exact = torch.block_diag(*(torch.linalg.inv(block) for block in blocks(sampler)))
    error = (draws.mT @ draws / number - exact).norm() / exact.norm()
    assert float(error) < 2 * math.sqrt(target.dim / number)


def test_low_rank_has_the_largest_eigenvalues_of_the_hessian(monkeypatch):
    """Summed up over parts of the data, as large ones are."""
    monkeypatch.setattr("gpvi_lib.laplace_full.DATA_AT_ONCE", 13)
    target = classifier(mlp([9, 4, 3], "tanh"), 50)
    mode = mode_of(target)
    exact = hessian(lambda w: -target.power * target.log_likelihood(w[None])[0])(mode)
    found = low_rank_laplace(target, mode, rank=4)
    assert_close(found.values, torch.linalg.eigvalsh(exact)[-4:], rtol=1e-3, atol=0)
    assert_close(exact @ found.vectors, found.vectors * found.values, rtol=0, atol=2e-3 * float(found.values.max()))


def test_low_rank_has_the_priors_precision_where_the_data_say_nothing():
    target = classifier(mlp([9, 4, 3], "tanh"), 50)
    target.prior = NormalPrior(0.5)
    mode, number = torch.zeros(target.dim, dtype=F64), 40_000
    found = low_rank_laplace(target, mode, rank=2)
    draws = found.sample(number, seed=3) - mode
    rest = draws - draws @ found.vectors @ found.vectors.mT
    free = target.dim - 2
    variance = float(rest.square().sum()) / number / free
    assert variance == pytest.approx(0.25, abs=4 * 0.25 * math.sqrt(2 / (number * free)))


def test_draws_of_low_rank_have_its_covariance():
    vectors = torch.linalg.qr(torch.randn(6, 2, generator=seeded(), dtype=F64)).Q
    values, scale, number = torch.tensor([50.0, 3.0], dtype=F64), 0.5, 40_000
    sampler = LowRankLaplace(torch.ones(6, dtype=F64), vectors, values, scale)
    draws = sampler.sample(number, seed=3) - 1
    exact = torch.linalg.inv(vectors * values @ vectors.mT + 4 * torch.eye(6, dtype=F64))
    assert float((draws.mT @ draws / number - exact).norm() / exact.norm()) < 2 * math.sqrt(6 / number)


def test_a_linearised_network_is_linear_and_has_the_networks_slope():
    network = FlatModule(convolutional().double())
    mode = 0.3 * torch.randn(network.dim, generator=seeded(), dtype=F64)
    x, step = torch.randn(4, 1, 3, 3, generator=seeded(1), dtype=F64), torch.ones_like(mode)
    linear = LinearizedModule(network, mode)
    at, one, two = linear(torch.stack([mode, mode + step, mode + 2 * step]), x)
    assert_close(at, network(mode[None], x)[0])
    assert_close(two - at, 2 * (one - at))
    near = network(torch.stack([mode + 1e-6 * step, mode - 1e-6 * step]), x)
    assert_close(one - at, (near[0] - near[1]) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("module, shape", [(convolutional(), (1, 3, 3)), (mlp([2, 8, 3], "tanh"), (2,))])
def test_linearised_networks_together_are_those_alone(module, shape, one_by_one):
    network, rng = FlatModule(module.double()), seeded()
    network.one_by_one = one_by_one
    mode, *w = torch.randn(4, network.dim, generator=rng, dtype=F64)
    x = torch.randn(5, *shape, generator=rng, dtype=F64)
    slope = jacrev(lambda at: network(at[None], x)[0])(mode)
    exact = torch.stack([network(mode[None], x)[0] + slope @ (one - mode) for one in w])
    assert_close(LinearizedModule(network, mode)(torch.stack(w), x), exact)


def test_a_linearised_network_evaluates_all_weights_in_one_call(monkeypatch):
    network, seen = FlatModule(mlp([2, 8, 3])), []
    linear = LinearizedModule(network, torch.zeros(51))
    monkeypatch.setattr(linear, "_network", lambda w, x: seen.append(len(w)) or network(w, x))
    linear(torch.zeros(6, 51), torch.ones(4, 2))
    assert seen == [6]


def test_a_linearised_network_has_no_layers_to_look_into():
    target = classifier(mlp([9, 4, 3]), 5)
    mode = mode_of(target)
    target.network = LinearizedModule(target.network, mode)
    for approximation in (last_layer_laplace, kronecker_laplace):
        with pytest.raises(ValueError, match="a LinearizedModule is no chain of layers: ask the network"):
            approximation(target, mode)


def test_a_linearised_network_takes_what_fits_it():
    network = FlatModule(mlp([2, 8, 3]))
    linear = LinearizedModule(network, torch.zeros(51))
    assert linear(torch.zeros(0, 51), torch.ones(4, 2)).shape == (0, 4, 3)
    with pytest.raises(ValueError, match=r"must have shape \(51,\), got \(1, 51\)"):
        LinearizedModule(network, torch.zeros(1, 51))
    with pytest.raises(ValueError, match=r"weights are torch.float64 and the mode torch.float32"):
        linear(torch.zeros(2, 51, dtype=F64), torch.ones(4, 2, dtype=F64))


def test_what_they_are_not_for_is_refused():
    target = classifier(mlp([9, 4, 3]), 5)
    mode = mode_of(target)
    with pytest.raises(ValueError, match="rank must be below the number of weights, 55, got 55"):
        low_rank_laplace(target, mode, 55)
    wide = Posterior(target.network, CategoricalLikelihood(), target.inputs, target.targets)
    with pytest.raises(ValueError, match="kronecker_laplace needs a NormalPrior of one scale, got 55"):
        kronecker_laplace(wide, mode)
    regression = Posterior(nn.Linear(2, 1), NormalLikelihood(0.1), torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(
        ValueError, match="low_rank_laplace is for a CategoricalLikelihood and a NormalPrior, got Normal"
    ):
        low_rank_laplace(regression, torch.zeros(3))
    for module in (
        nn.Sequential(nn.Flatten(), nn.Linear(9, 3), nn.LayerNorm(3)),
        nn.Sequential(nn.Flatten(), nn.Linear(9, 3, bias=False)),
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 3, 1, padding_mode="circular"), nn.Flatten()),
    ):
        other = classifier(module, 5)
        with pytest.raises(ValueError, match=r"all trained, in nn\.Linear and nn\.Conv2d .* take low_rank_laplace"):
            kronecker_laplace(other, torch.zeros(other.dim, dtype=F64))


def test_a_linearised_network_refuses_weights_of_another_number(rng):
    network = FlatModule(mlp([2, 4, 1]))
    linear = LinearizedModule(network, torch.zeros(network.dim))
    with pytest.raises(ValueError, match=f"this network has {network.dim} weights, got weight vectors of 1"):
        linear(torch.zeros(3, 1), torch.ones(5, 2))
