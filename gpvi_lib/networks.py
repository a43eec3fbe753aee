"""Networks as functions of one flat weight vector, and the architectures of the paper."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from gpvi_lib.activations import ACTIVATIONS, check_activation
from gpvi_lib.several import arguments

EMBEDDING_OPTIONS = {"padding_idx": None, "max_norm": None, "scale_grad_by_freq": False}
_ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@contextmanager
def _differentiable_attention() -> Iterator[None]:
    """Leave out attention's fast path, which torch takes in evaluation mode and which has no derivative."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _refuse_what_depends_on_more_than_weights(module: nn.Module) -> None:
    """Refuse parts whose output is no function of inputs and weights, or has no true derivative."""
    for name, part in module.named_modules():
        called = f"{name or 'the module'} ({type(part).__name__})"
        if isinstance(part, _InstanceNorm) and part.track_running_stats:
            raise ValueError(f"{called} has running statistics of other weights: leave out track_running_stats")
        if isinstance(part, _SpectralNorm) or any(
            isinstance(h, SpectralNorm) for h in part._forward_pre_hooks.values()
        ):
            raise ValueError(f"{called} has a spectral norm, whose vectors are of other weights: leave it out")
        options = [key for key, off in EMBEDDING_OPTIONS.items() if getattr(part, key, off) is not off]
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and options:
            raise ValueError(
                f"{called} has {', '.join(options)}, with which its gradient is not its derivative: leave it out, and "
                "multiply by a mask where a token is padding"
            )


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:  # of the older functions weight_norm and spectral_norm, in torch's words
        if "deepcopy protocol" in str(error):
            raise ValueError(
                "the module cannot be copied: take weight_norm of torch.nn.utils.parametrizations"
            ) from error
        raise


class FlatModule:
    """Any ``nn.Module`` as a function of its flattened parameters, for many weight vectors at once.

    The module itself is only a template: it is never changed, and of its own weights only frozen ones are used. It is
    evaluated in ``eval`` mode, where dropout does nothing. Its buffers, and its parameters with
    ``requires_grad=False``, are constants: freezing all layers but the last makes that one Bayesian.

    Args:
        module: any module with one tensor out and one or several in (a tuple, or a dictionary of those that it takes
            by name), without batch norm. Batch norm is refused: its output for one datum depends on the others in the
            minibatch, or on running statistics of other weights. So are spectral norm and instance norm with running
            statistics, and what makes an embedding's gradient another than its derivative.

    Attributes:
        dim: number of weights d.
        one_by_one: whether the networks are evaluated in a loop instead of one batched call; ``None``, the default,
            takes what is faster: the loop for convolutions on a CPU, whose grouped convolutions are slow; and for
            recurrent layers, which torch cannot batch.

    Raises:
        ValueError: if the module has batch norm or another of these, or no parameter to train.

    Example:
        >>> network, rng = FlatModule(torch.nn.Linear(3, 2)), torch.Generator().manual_seed(0)
        >>> w = torch.randn(5, network.dim, generator=rng)  # five networks
        >>> network.dim, network(w, torch.zeros(4, 3)).shape
        (8, torch.Size([5, 4, 2]))
    """

    def __init__(self, module: nn.Module) -> None:
        norms = [name for name, part in module.named_modules() if isinstance(part, _BatchNorm)]
        if norms:
            raise ValueError(
                f"batch norm is not supported ({', '.join(norms)}): it ties the data of a minibatch to each other, "
                "or to running statistics of other weights; use GroupNorm or LayerNorm, or leave it out; a frozen part "
                "with batch norm can be evaluated once, and its outputs be the inputs"
            )
        _refuse_what_depends_on_more_than_weights(module)
        lazy = [name for name, p in module.named_parameters() if is_lazy(p)]
        if lazy:
            raise ValueError(
                f"{', '.join(lazy)} of a lazy module has no shape yet: run the module once on some inputs before"
            )
        self.one_by_one: bool | None = None
        self._convolves = any(isinstance(part, _ConvNd) for part in module.modules())
        self._pools = _convolves_and_pools(module)
        self._recurs = any(isinstance(part, nn.RNNBase) for part in module.modules())
        attends = any(isinstance(part, _ATTENTION) for part in module.modules())
        self._evaluation = _differentiable_attention if attends else nullcontext
        self._module = _copied(module).eval()  # on its device: moved to "meta", tied weights would come apart
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError("the module has no parameter with requires_grad=True: there is nothing to infer")
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self._constants = {name: c.detach().clone() for name, c in (frozen | dict(module.named_buffers())).items()}
        self._shapes = {name: p.shape for name, p in trained.items()}
        self._all_shapes = {name: p.shape for name, p in module.named_parameters()}
        self._sizes = [math.prod(shape) for shape in self._shapes.values()]
        self.dim = sum(self._sizes)

    @property
    def module(self) -> nn.Module:
        """The template, for its structure and not for its weights."""
        return self._module

    @property
    def shapes(self) -> list[torch.Size]:
        """Of the trained parameters, in the order of the flattened weights."""
        return list(self._shapes.values())

    def _constants_like(self, w: Tensor) -> dict[str, Tensor]:
        """Buffers and frozen parameters where the weights live, in their precision."""
        return {
            name: constant.to(w.device, w.dtype if constant.is_floating_point() else None)
            for name, constant in self._constants.items()
        }

    def unflatten(self, w: Float[Tensor, "*batch d"]) -> dict[str, Tensor]:
        """Named parameters, each with the leading axes of ``w``.

        Raises:
            ValueError: if ``w`` is not as long as the network has weights.
        """
        if w.shape[-1] != self.dim:
            raise ValueError(f"this network has {self.dim} weights, got weight vectors of {w.shape[-1]}")
        chunks = w.split(self._sizes, dim=-1)
        return {
            name: chunk.reshape(w.shape[:-1] + shape)
            for (name, shape), chunk in zip(self._shapes.items(), chunks, strict=True)
        }

    def __call__(self, w: Float[Tensor, "n d"], inputs: Any) -> Float[Tensor, "n b ..."]:
        """Outputs of all ``n`` networks on the same inputs, ``(b, ...)`` or several such tensors.

        Raises:
            ValueError: if inputs and weights are not of the same precision, or the module returns no tensor.
        """
        positional, named = self._arguments(w, inputs)
        constants = self._constants_like(w)

        def one(parameters: dict[str, Tensor]) -> Tensor:
            try:
                outputs = functional_call(self._module, parameters | constants, positional, named)
            except IndexError as error:
                if "index" not in str(error):  # of a table: "Dimension out of range" is one of shapes
                    raise
                raise ValueError(
                    "an index among the inputs is outside of what the module has, such as an Embedding's "
                    f"num_embeddings: {error}"
                ) from error
            if not isinstance(outputs, Tensor):
                raise ValueError(
                    f"the module must return one tensor, got {type(outputs).__name__}: wrap it in one that does"
                )
            return outputs

        slow = self._recurs or (self._convolves and w.device.type == "cpu")
        one_by_one = slow if self.one_by_one is None else self.one_by_one
        with self._evaluation():
            if one_by_one or not len(w):  # of no networks at all one of zeros has the shape
                if self._pools and w.device.type == "cpu" and w.dtype == torch.float32:
                    positional = tuple(map(_channels_last, positional))
                rows = w.unbind() or (w.new_zeros(self.dim),)
                return torch.stack([one(self.unflatten(row)) for row in rows])[: len(w)]
            return vmap(one)(self.unflatten(w))

    def _arguments(self, w: Tensor, inputs: Any) -> tuple[tuple, dict]:
        """The inputs as the module takes them.

        Raises:
            ValueError: if they are not of the weights' precision.
        """
        positional, named = arguments(inputs)
        for part in (*positional, *named.values()):
            if part.is_floating_point() and part.dtype != w.dtype:
                raise ValueError(
                    f"the inputs are {part.dtype} and the weights {w.dtype}: convert the data, for example by "
                    ".float(), or give the sampler their dtype"
                )
        return positional, named

    def evaluate_one(self, w: Float[Tensor, " d"], inputs: Any) -> Float[Tensor, "b ..."]:
        """Outputs of one network, by the module itself, so that its hooks see what goes through.

        Raises:
            ValueError: if inputs and weights are not of the same precision.
        """
        positional, named = self._arguments(w, inputs)
        with self._evaluation():
            return functional_call(self._module, self.unflatten(w) | self._constants_like(w), positional, named)

    def last_features(self, w: Float[Tensor, " d"], inputs: Any) -> tuple[Float[Tensor, "b f"], Float[Tensor, "b c"]]:
        """What enters the last layer of one network, and what leaves it.

        Raises:
            ValueError: unless the last layer is a trained ``nn.Linear`` with a bias, last among the weights, and its
                outputs are the network's, up to a number for each datum, which a softmax does not see.
        """
        last = [part for part in self._module.modules() if isinstance(part, nn.Linear)][-1:]
        ends = [self._module.get_parameter(name) for name in list(self._shapes)[-2:]]
        wanted = [last[0].weight, last[0].bias] if last else []
        if len(wanted) != len(ends) or not all(a is b for a, b in zip(ends, wanted, strict=True)):
            raise ValueError("the network must end in a trained nn.Linear with a bias, last among its weights")
        seen: list[Tensor] = []
        handle = last[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        try:
            outputs = self.evaluate_one(w, inputs)
        finally:
            handle.remove()
        _check_ends_there(outputs, functional.linear(seen[0], *list(self.unflatten(w).values())[-2:]))
        return seen[0], outputs

    def fan_in_scale(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, " d"]:
        """``1 / sqrt(fan in)`` of each weight, the product of all its axes but the first; a bias takes its layer's.

        As the scale of a zero-mean normal prior it keeps activations of the same order through all layers. Parameters
        of one axis in a layer without a matrix, such as the gains of a layer norm or one of your own, have 1. Of a
        transposed convolution the second axis is the fan-in: give a prior with a scale of your own.
        """
        # A weight with a parametrization comes after its bias.
        late = {name: shape for name, shape in self._all_shapes.items() if ".parametrizations." in f".{name}"}
        fan_in = {_layer_of(name): math.prod(shape[1:]) for name, shape in late.items() if len(shape) > 1}
        scales = []
        for name, shape in self._all_shapes.items():
            layer = _layer_of(name)
            if len(shape) > 1:
                fan_in[layer] = math.prod(shape[1:])
            if name in self._shapes:
                scale = fan_in.get(layer, 1) ** -0.5
                scales.append(torch.full((math.prod(shape),), scale, dtype=dtype, device="cpu"))
        return torch.cat(scales)


_PIXEL_BY_PIXEL = (nn.Sequential, nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Linear)
"""Layers that take :func:`_channels_last`; with a group norm it is slower, and a ``view`` cannot be had."""


def _convolves_and_pools(module: nn.Module) -> bool:
    """Whether a module is of such layers alone, without hooks, and has convolutions of all channels and max pooling."""
    parts = list(module.modules())
    known = all(
        type(part) in _PIXEL_BY_PIXEL and not (part._forward_hooks or part._forward_pre_hooks) for part in parts
    )
    grouped = any(isinstance(part, nn.Conv2d) and part.groups > 1 for part in parts)
    return known and not grouped and any(isinstance(part, nn.MaxPool2d) for part in parts)


def _channels_last(inputs: Tensor) -> Tensor:
    """The same numbers; colour images pixel by pixel in memory, as torch convolves and pools faster on a CPU."""
    if inputs.ndim != 4 or inputs.shape[1] == 1 or torch._C._functorch.is_functorch_wrapped_tensor(inputs):
        return inputs
    return inputs.contiguous(memory_format=torch.channels_last)


def _layer_of(name: str) -> str:
    """The layer of a parameter, also of one that a parametrization computes a weight from."""
    layer, found, _ = f".{name}".partition(".parametrizations.")
    return layer if found else layer.rpartition(".")[0]


def _check_ends_there(outputs: Float[Tensor, "b c"], expected: Float[Tensor, "b c"]) -> None:
    """What the last layer gives is what the network gives, up to a number for each datum."""
    gap = outputs - expected if outputs.shape == expected.shape else outputs.new_full((1, 1), torch.inf)
    if not bool((gap - gap[:, :1]).abs().max() <= 1e-4 * (1 + expected.abs().max())):
        raise ValueError("the network must end in its last nn.Linear: something changes that layer's outputs")


def mlp(widths: Sequence[int], activation: str = "relu") -> nn.Sequential:
    """Multilayer perceptron with linear output, ReLU unless told otherwise; inputs are flattened.

    Args:
        widths: of all layers, inputs and outputs included.
        activation: one of :data:`gpvi_lib.activations.ACTIVATIONS`.

    Raises:
        ValueError: if there is no activation of that name.

    Example:
        >>> mlp([3, 8, 2])(torch.zeros(4, 3)).shape
        torch.Size([4, 2])
    """
    check_activation(activation)
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation].module()]
    return nn.Sequential(*layers[:-1])


class FlatMLP(FlatModule):
    """:func:`mlp` as a function of its flattened weights, by batched matrix products.

    The same numbers as ``FlatModule(mlp(widths, activation))``, with less overhead for small networks.

    Args:
        widths, activation: as of :func:`mlp`.

    Raises:
        ValueError: if there is no activation of that name.

    Example:
        >>> fast, plain, rng = FlatMLP([3, 8, 2]), FlatModule(mlp([3, 8, 2])), torch.Generator().manual_seed(0)
        >>> w, x = torch.randn(5, fast.dim, generator=rng), torch.randn(4, 3, generator=rng)
        >>> torch.allclose(fast(w, x), plain(w, x), atol=1e-5)
        True
    """

    def __init__(self, widths: Sequence[int], activation: str = "relu") -> None:
        super().__init__(mlp(widths, activation))
        self._activation = torch.relu_ if activation == "relu" else ACTIVATIONS[activation].value

    def __call__(self, w: Float[Tensor, "n d"], inputs: Float[Tensor, "b ..."]) -> Float[Tensor, "n b c"]:
        """Outputs of all ``n`` networks on the same inputs."""
        parameters = list(self.unflatten(w).values())
        x = inputs.flatten(1).expand(len(w), -1, -1)
        for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
            x = self._activation(torch.baddbmm(bias[:, None], x, weight.mT))
        return torch.baddbmm(parameters[-1][:, None], x, parameters[-2].mT)


def lenet5(num_classes: int = 10) -> nn.Sequential:
    """LeNet-5 with ReLU for 28 x 28 grey images, ``(b, 1, 28, 28)``: 61,706 weights with ten classes.

    Example:
        >>> FlatModule(lenet5()).dim
        61706
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes),
    )  # fmt: skip


def lenet5_unpadded(num_classes: int = 10) -> nn.Sequential:
    """:func:`lenet5` without padding, LIVI's network of 44,000 weights (section 6.4): 44,426 with ten classes.

    Example:
        >>> FlatModule(lenet5_unpadded()).dim
        44426
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes),
    )  # fmt: skip


def cifar_cnn(num_classes: int = 10) -> nn.Sequential:
    """The CNN of Table 10 for ``(b, 3, 32, 32)``: 3 x 3 convolutions [32, 64, 64], linear layers [128, classes].

    The paper does not print kernel sizes and pooling; this choice has three 3 x 3 valid convolutions, max pooling
    after the first two.

    Example:
        >>> cifar_cnn()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, num_classes),
    )  # fmt: skip
