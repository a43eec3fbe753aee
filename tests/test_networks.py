"""Networks as functions of one flat weight vector."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.testing import assert_close

from gpvi_lib import networks
from gpvi_lib.networks import FlatModule, cifar_cnn, lenet5, lenet5_unpadded, mlp

NETWORKS = {
    "mlp": (lambda: mlp([8, 5, 3]), (2, 4)),
    "linear": (lambda: mlp([8, 3]), (8,)),
    "lenet5": (lambda: lenet5(3), (1, 28, 28)),
    "cifar": (lambda: cifar_cnn(3), (3, 32, 32)),
}


@pytest.mark.parametrize("one_by_one", [True, False, None])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_networks_at_once_are_the_networks_one_by_one(name, one_by_one, rng):
    make, shape = NETWORKS[name]
    module, flat = make(), FlatModule(make())
    flat.one_by_one = one_by_one
    w, inputs = 0.1 * torch.randn(3, flat.dim, generator=rng), torch.randn(4, *shape, generator=rng)
    outputs = flat(w, inputs)
    assert outputs.shape == (3, 4, 3)
    for weights, output in zip(w, outputs, strict=True):
        parameters, start = {}, 0
        for key, p in module.named_parameters():
            parameters[key] = weights[start : start + p.numel()].view(p.shape)
            start += p.numel()
        # float32, and batched convolutions may sum some hundred products in another order
        assert_close(output, functional_call(module, parameters, (inputs,)), rtol=1e-4, atol=1e-5)
    assert start == flat.dim
    assert flat(w[:0], inputs).shape == (0, 4, 3)


def convolutional(weights, x, padding=0, pooled=2):
    """ReLU after every layer but the last, the maxima of 2 x 2 after the first ``pooled`` of the convolutions."""
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for i, (weight, bias) in enumerate(layers):
        if weight.ndim == 4:
            x = functional.conv2d(x, weight, bias, padding=padding if i == 0 else 0).clamp(min=0)
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1)) if i < pooled else x
        else:
            x = x.flatten(1) @ weight.mT + bias
            x = x.clamp(min=0) if i < len(layers) - 1 else x
    return x


@pytest.mark.parametrize(
    ("make", "shape", "padding"),
    [(lenet5, (1, 28, 28), 2), (lenet5_unpadded, (1, 28, 28), 0), (cifar_cnn, (3, 32, 32), 0)],
)
def test_the_papers_networks_are_what_they_say(make, shape, padding, rng):
    module = make(10).double()
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=rng, dtype=torch.float64) / max(p[0].numel(), 1) ** 0.5
    x = torch.randn(4, *shape, generator=rng, dtype=torch.float64)
    assert_close(module(x), convolutional(list(module.parameters()), x, padding))


@pytest.mark.parametrize(
    ("name", "device", "batched"),
    [("lenet5", "cpu", False), ("cifar", "cpu", False), ("mlp", "cpu", True), ("cifar", "meta", True)],
)
def test_only_convolutions_on_a_cpu_go_one_by_one(name, device, batched, rng, monkeypatch):
    """That is what `benchmarks/convolutions.py` finds faster."""
    calls, plain = [], networks.vmap
    monkeypatch.setattr(networks, "vmap", lambda function: calls.append(function) or plain(function))
    make, shape = NETWORKS[name]
    flat = FlatModule(make())
    w, inputs = torch.randn(2, flat.dim, generator=rng), torch.randn(4, *shape, generator=rng)
    assert flat(w.to(device), inputs.to(device)).shape == (2, 4, 3)
    assert bool(calls) is batched


def test_networks_do_not_share_gradients(rng):
    flat = FlatModule(mlp([2, 3, 2]))
    w, inputs = torch.randn(3, flat.dim, generator=rng, requires_grad=True), torch.randn(4, 2, generator=rng)
    (gradient,) = torch.autograd.grad(flat(w, inputs)[1].sum(), w)
    assert bool((gradient[[0, 2]] == 0).all())
    assert bool((gradient[1] != 0).any())


def test_unflatten_gives_every_parameter_with_leading_axes(rng):
    flat = FlatModule(nn.Linear(3, 2))
    w = torch.arange(8.0)
    assert_close(flat.unflatten(w), {"weight": torch.tensor([[0.0, 1, 2], [3, 4, 5]]), "bias": torch.tensor([6.0, 7])})
    assert flat.unflatten(w.expand(5, 4, 8))["weight"].shape == (5, 4, 2, 3)


def test_the_template_keeps_its_own_weights(rng):
    module = mlp([2, 3, 2])
    before, inputs = copy.deepcopy(module.state_dict()), torch.randn(4, 2, generator=rng)
    output = module(inputs)
    flat = FlatModule(module)
    flat(torch.randn(2, flat.dim, generator=rng), inputs)
    assert all(p.device.type == "cpu" for p in module.parameters())
    assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(module(inputs), output)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_batch_norm_is_refused(norm):
    with pytest.raises(ValueError, match=r"batch norm is not supported \(1\).*use GroupNorm or LayerNorm"):
        FlatModule(nn.Sequential(nn.Linear(2, 2), norm))


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (lenet5(10), 61_706),
        (lenet5(6), 61_706 - 4 * 85),
        (mlp([64, 64, 64, 6]), 65 * 64 + 65 * 64 + 65 * 6),
        # 3 x 3 kernels and biases, then 64 · 4 · 4 features
        (cifar_cnn(10), 32 * 28 + 64 * (9 * 32 + 1) + 64 * (9 * 64 + 1) + 128 * 1025 + 10 * 129),
    ],
)
def test_number_of_weights(module, expected):
    assert FlatModule(module).dim == expected


def test_fan_in_scale_is_that_of_the_layer():
    expected = {"0.weight": 9, "0.bias": 9, "2.weight": 32, "2.bias": 32, "3.weight": 5}
    flat = FlatModule(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 5), nn.Linear(5, 3, bias=False)))
    scales = flat.unflatten(flat.fan_in_scale(torch.float64))
    assert scales.keys() == expected.keys()
    for name, fan_in in expected.items():
        assert_close(scales[name], torch.full_like(scales[name], fan_in**-0.5))
    assert flat.fan_in_scale().dtype == torch.float32


def test_fan_in_scale_keeps_activations_of_one_size(rng):
    """With weights N(0, 1 / fan-in), linear layers pass on the mean square of their inputs, plus that of the bias."""
    flat = FlatModule(mlp([50, 4]))
    w = flat.fan_in_scale() * torch.randn(4000, flat.dim, generator=rng)
    inputs = torch.randn(1, 50, generator=rng)
    expected = (inputs.square().sum() + 1) / 50
    # 16,000 independent squares of normals: relative standard error sqrt(2 / 16,000)
    assert flat(w, inputs).square().mean() == pytest.approx(float(expected), rel=5 * (2 / 16_000) ** 0.5)


def test_a_trained_bias_takes_the_fan_in_of_its_frozen_weight():
    network = mlp([100, 5, 1])
    for name, parameter in network.named_parameters():
        parameter.requires_grad = name.endswith("bias")
    assert_close(FlatModule(network).fan_in_scale(), torch.tensor([*5 * [100**-0.5], 5**-0.5]))


class Attention(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.part = {
            "layer": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            "attention": lambda: torch.nn.MultiheadAttention(4, 2, batch_first=True),
            "lstm": lambda: torch.nn.LSTM(4, 4, batch_first=True),
            "gru": lambda: torch.nn.GRU(4, 4, batch_first=True),
        }[kind]()
        self.out = torch.nn.Linear(4, 1)

    def forward(self, x):
        seen = self.part(x, x, x)[0] if self.kind == "attention" else self.part(x)
        return self.out((seen[0] if self.kind in ("lstm", "gru") else seen).mean(1))


@pytest.mark.parametrize("kind", ["layer", "attention", "lstm", "gru"])
def test_attention_and_recurrence_have_gradients_and_the_numbers_of_the_module(kind, rng):
    """In evaluation mode torch takes a fast path for attention that has no derivative; it cannot batch recurrence."""
    torch.manual_seed(0)
    module = Attention(kind)
    flat, x = FlatModule(module), torch.randn(6, 5, 4, generator=rng)
    own = torch.cat([p.detach().flatten() for p in module.parameters()])
    w = torch.stack([own, 2 * own]).requires_grad_()
    outputs = flat(w, x)
    torch.testing.assert_close(outputs[0], module.train(False)(x), rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(outputs.sum(), w)
    step = torch.randn(w.shape, generator=rng, dtype=torch.float64)
    exact, moved = FlatModule(module.double()), w.detach().double()
    slope = (exact(moved + 1e-6 * step, x.double()) - exact(moved - 1e-6 * step, x.double())).sum() / 2e-6
    assert float((gradient.double() * step).sum()) == pytest.approx(float(slope), rel=1e-3, abs=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()  # for all others it is as it was


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (nn.Embedding(5, 3, padding_idx=0), "Embedding.* has padding_idx, .*mask"),
        (nn.Embedding(5, 3, max_norm=1.0), "has max_norm"),
        (nn.EmbeddingBag(5, 3, scale_grad_by_freq=True), "has scale_grad_by_freq"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "running statistics of other weights"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), "spectral norm"),
    ],
    ids=["padding", "norm", "frequency", "running", "spectral"],
)
def test_what_is_no_function_of_the_weights_is_refused(part, message):
    with pytest.raises(ValueError, match=message):
        FlatModule(nn.Sequential(part, nn.Linear(3, 1)))


def test_an_old_weight_norm_is_named():
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="torch.nn.utils.parametrizations"):
        FlatModule(nn.utils.weight_norm(nn.Linear(3, 1)))


@pytest.mark.parametrize("at_the_top", [False, True])
def test_the_bias_of_a_weight_normed_layer_takes_the_fan_in_of_its_direction(at_the_top):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    flat = FlatModule(layer if at_the_top else nn.Sequential(layer, nn.Linear(3, 1)))
    scales = flat.unflatten(flat.fan_in_scale())
    ends = {"bias": 0.5, "weight.original0": 1.0, "weight.original1": 0.5}  # gains (3, 1), directions (3, 4)
    for name, scale in list(scales.items())[:3]:
        assert_close(scale, torch.full_like(scale, next(ends[end] for end in ends if name.endswith(end))))


class Viewing(nn.Module):
    """A layout that a plain ``view`` needs."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4, 2)

    def forward(self, x):
        return self.last(functional.max_pool2d(self.first(x), 1).view(len(x), -1))


def with_a_hook() -> nn.Module:
    module = cifar_cnn(3)
    module[6].register_forward_hook(lambda part, args, out: out.view(len(out), -1))
    return module


LAID_OUT = {
    "cifar": (lambda: cifar_cnn(3), torch.float32, True),
    "float64": (lambda: cifar_cnn(3), torch.float64, False),
    "a hook that asks for a view": (with_a_hook, torch.float32, False),
    "group norm, slower so": (lambda: nn.Sequential(*cifar_cnn(3)[:3], nn.GroupNorm(4, 32)), torch.float32, False),
    "one's own": (Viewing, torch.float32, False),
}


@pytest.mark.parametrize(("make", "dtype", "expected"), LAID_OUT.values(), ids=LAID_OUT)
def test_which_networks_have_colour_images_laid_out_for_a_cpu(make, dtype, expected, rng, monkeypatch):
    seen, flat = [], FlatModule(make())
    monkeypatch.setattr(networks, "_channels_last", lambda inputs: seen.append(inputs) or inputs)
    side = 4 if make is Viewing else 32
    flat(torch.zeros(2, flat.dim, dtype=dtype), torch.zeros(4, 3, side, side, dtype=dtype))
    assert len(seen) == expected


def test_the_layout_of_colour_images_changes_no_number_and_no_gradient(rng, monkeypatch):
    flat = FlatModule(cifar_cnn(3))
    w = (0.1 * torch.randn(2, flat.dim, generator=rng)).requires_grad_()
    images = torch.randn(4, 3, 32, 32, generator=rng)
    assert networks._channels_last(images).is_contiguous(memory_format=torch.channels_last)

    def gradient():
        outputs = flat(w, images)
        return outputs, torch.autograd.grad(outputs.square().sum(), w)[0]

    outputs, found = gradient()
    monkeypatch.setattr(networks, "_channels_last", lambda inputs: inputs)
    plain, expected = gradient()
    assert_close(outputs, plain, rtol=1e-4, atol=1e-5)
    assert_close(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
