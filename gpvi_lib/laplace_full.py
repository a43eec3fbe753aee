"""Laplace's approximation of all weights: Kronecker factors of each layer, or the largest eigenvalues.

Both are around a mode of a classifier's posterior with a normal prior of one scale σ, whose precision 1/σ² is exact.
The first approximates the generalised Gauss–Newton matrix, which is the Hessian of a linearised network's posterior:
so predict with a :class:`LinearizedModule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import jvp
from torch.nn import functional as F

from gpvi_lib.checks import check_count, check_positive
from gpvi_lib.laplace import DATA_AT_ONCE, classifiers_prior
from gpvi_lib.networks import FlatModule
from gpvi_lib.samplers import Sampler, standard_normal
from gpvi_lib.targets.base import differentiable_score
from gpvi_lib.targets.posterior import Posterior

RANK = 10
TOLERANCE = 1e-3
"""Relative, of the eigenvalues."""


class LinearizedModule(FlatModule):
    """A network replaced by its first-order expansion in the weights, ``f(x; m) + J(x) (w - m)``.

    For predictions: each network costs an evaluation and its derivative along ``w - m``.

    Args:
        network: any network; its own ``one_by_one`` says whether a loop evaluates them.
        mode: ``m (d,)``.

    Raises:
        ValueError: if the mode does not have one number for each weight.

    Example:
        >>> network, rng = FlatModule(mlp([2, 8, 3])), torch.Generator().manual_seed(0)
        >>> w, x = torch.randn(5, network.dim, generator=rng), torch.ones(4, 2)
        >>> linear = LinearizedModule(network, w[0])
        >>> linear(w, x).shape, torch.equal(linear(w[:1], x), network(w[:1], x))
        (torch.Size([5, 4, 3]), True)
    """

    def __init__(self, network: FlatModule, mode: Float[Tensor, " d"]) -> None:
        super().__init__(network.module)
        if mode.shape != (network.dim,):
            raise ValueError(f"the mode must have shape ({network.dim},), got {tuple(mode.shape)}")
        self._network, self._mode = network, mode.detach()

    def __call__(self, w: Float[Tensor, "n d"], inputs: Any) -> Float[Tensor, "n b c"]:
        """Outputs of all ``n`` networks.

        Raises:
            ValueError: if ``w`` is not of the mode's precision or length.
        """
        if w.shape[-1] != len(self._mode):
            raise ValueError(f"this network has {len(self._mode)} weights, got weight vectors of {w.shape[-1]}")
        if w.dtype != self._mode.dtype:
            raise ValueError(f"the weights are {w.dtype} and the mode {self._mode.dtype}: convert one of them")
        if not len(w):
            return self._network(w, inputs)
        modes = self._mode.repeat(len(w), 1)
        found = jvp(lambda at: self._network(at, inputs), (modes,), (w - modes,))  # at m, and the derivative
        return found[0] + found[1]

    def evaluate_one(self, w: Float[Tensor, " d"], inputs: Any) -> NoReturn:
        """Refuse: no module computes the expansion, so that it has no layers to look into.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a LinearizedModule is no chain of layers: ask the network that it linearises, or call it with weights "
            "(n, d)"
        )


@dataclass(frozen=True)
class LayerFactors:
    """One layer's matrix ``A ⊗ G`` by its eigenvectors.

    Attributes:
        of_inputs: of ``A (i, i)``, the second moment of what enters, a one appended.
        of_outputs: of ``G (o, o)``, that of the slopes at what leaves.
        precision: eigenvalues of the posterior's precision, ``(o, i)``.

    Example:
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> target = Posterior(mlp([2, 8, 3]), CategoricalLikelihood(), x, torch.arange(20) % 3, NormalPrior(1.0))
        >>> [tuple(layer.precision.shape) for layer in kronecker_laplace(target, torch.zeros(target.dim)).layers]
        [(8, 3), (3, 9)]
    """

    of_inputs: Float[Tensor, "i i"]
    of_outputs: Float[Tensor, "o o"]
    precision: Float[Tensor, "o i"]


class KroneckerLaplace(Sampler):
    """A normal around the mode, independent between layers; :func:`kronecker_laplace` makes it.

    Args:
        mode: ``(d,)``.
        layers: eigenvectors and eigenvalues of each layer's precision, in the order of the weights.

    Example:
        >>> one = LayerFactors(torch.eye(3), torch.eye(2), precision=4 * torch.ones(2, 3))  # 2 outputs of 2 inputs
        >>> x = KroneckerLaplace(torch.zeros(6), [one]).sample(10_000, torch.Generator().manual_seed(0))
        >>> x.shape, round(float(x.std()), 1)
        (torch.Size([10000, 6]), 0.5)
    """

    mode: Tensor

    def __init__(self, mode: Float[Tensor, " d"], layers: Sequence[LayerFactors]) -> None:
        super().__init__()
        self.dim, self.num_layers = len(mode), len(layers)
        self.register_buffer("mode", mode.detach().clone())
        for i, layer in enumerate(layers):
            for name, value in vars(layer).items():
                self.register_buffer(f"{name}_{i}", value)

    @property
    def layers(self) -> list[LayerFactors]:
        """Of each layer."""
        names = [field.name for field in fields(LayerFactors)]
        return [LayerFactors(*(self.get_buffer(f"{name}_{i}") for name in names)) for i in range(self.num_layers)]

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``M + U_G (E / √P) U_Aᵀ`` for each layer, E standard normal."""
        n, parts = self._number(num_samples), []
        for layer in self.layers:
            noise = standard_normal((n, *layer.precision.shape), rng, layer.precision)
            moved = layer.of_outputs @ (noise / layer.precision.sqrt()) @ layer.of_inputs.mT
            parts += [moved[..., :-1].flatten(1), moved[..., -1]]
        return self.mode + torch.cat(parts, dim=-1).to(self.mode.dtype)


class LowRankLaplace(Sampler):
    r"""A normal with precision ``U diag(e) Uᵀ + I/σ²`` around the mode; :func:`low_rank_laplace` makes it.

    Args:
        mode: ``(d,)``.
        vectors: U, ``(d, r)``, orthonormal.
        values: e > 0, ``(r,)``.
        scale: σ > 0.

    Raises:
        ValueError: if a value or the scale is not positive.

    Example:
        >>> sampler = LowRankLaplace(torch.zeros(2), torch.tensor([[1.0], [0.0]]), torch.tensor([3.0]), scale=1.0)
        >>> x = sampler.sample(10_000, torch.Generator().manual_seed(0))
        >>> [round(sd, 1) for sd in x.std(0).tolist()]  # 1 / √(3 + 1), and the prior's
        [0.5, 1.0]
    """

    mode: Tensor
    vectors: Tensor
    values: Tensor

    def __init__(
        self, mode: Float[Tensor, " d"], vectors: Float[Tensor, "d r"], values: Float[Tensor, " r"], scale: float
    ) -> None:
        super().__init__()
        check_positive("scale", scale)
        if not bool((values > 0).all()):
            raise ValueError(f"the values e of a LowRankLaplace must be positive, got {float(values.min())}")
        self.dim, self.scale = len(mode), float(scale)
        for name, value in (("mode", mode.detach().clone()), ("vectors", vectors), ("values", values)):
            self.register_buffer(name, value)

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``m + σ ε``, shortened along each eigenvector."""
        noise = standard_normal((self._number(num_samples), self.dim), rng, self.vectors)
        shorter = (self.values + self.scale**-2).rsqrt() - self.scale
        return self.mode + (self.scale * noise + ((noise @ self.vectors) * shorter) @ self.vectors.mT).to(self.mode)


def _scale(name: str, target: Posterior, mode: Float[Tensor, " d"]) -> float:
    """σ of the prior.

    Raises:
        ValueError: unless there is one.
    """
    scale = torch.as_tensor(classifiers_prior(name, target, mode).scale)
    if scale.numel() != 1:
        raise ValueError(f"{name} needs a NormalPrior of one scale, got {scale.numel()}: take last_layer_laplace")
    return float(scale)


def kronecker_laplace(target: Posterior, mode: Float[Tensor, " d"]) -> KroneckerLaplace:
    r"""Return the normal at the mode whose precision is ``β A ⊗ G + I / σ^2`` in each layer (Martens and Grosse 2015).

    ``A ⊗ G`` stands for a layer's block of the generalised Gauss–Newton matrix of all weights; β is the target's power
    and σ the prior's scale. With slopes ``g_c`` of ``√p_c (e_c - p)ᵀ f(x)``, whose squares sum to the Hessian of the
    likelihood,

    .. math:: A = \frac1N \sum_n \sum_t a_{nt} a_{nt}^T, \qquad G = \frac1T \sum_n \sum_t \sum_c g_{ntc} g_{ntc}^T,

    t the T places where a convolution is applied, 1 for a fully connected layer. A block is exact where the products
    of ``a`` and those of ``g`` are uncorrelated over the data and places, and for a convolution besides slopes at two
    places cancel on average.

    Args:
        target: with a :class:`CategoricalLikelihood` and a :class:`NormalPrior` of one scale; all weights of its
            network are in ``nn.Linear`` and ``nn.Conv2d`` with biases.
        mode: the weights where the posterior is largest, as training found them.

    Raises:
        ValueError: for another likelihood, prior or layer, one that is applied twice, or a mode of another shape.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, labels = torch.randn(20, 2, generator=rng), torch.arange(20) % 3
        >>> target = Posterior(mlp([2, 8, 3]), CategoricalLikelihood(), x, labels, NormalPrior(1.0))
        >>> sampler = kronecker_laplace(target, torch.zeros(target.dim))  # at trained weights, that is
        >>> sampler.sample(4, rng).shape
        torch.Size([4, 51])
    """
    scale, network = _scale("kronecker_laplace", target, mode), target.network
    layers = _layers(network)
    inputs_squared, slopes_squared = ([mode.new_zeros((), dtype=torch.float64) for _ in layers] for _ in range(2))
    for rows in torch.arange(target.num_data, device=mode.device).split(DATA_AT_ONCE):
        with torch.enable_grad():
            logits, entering, leaving = _seen(network, mode.detach().requires_grad_(), target.data(rows)[0], layers)
        p = logits.detach().softmax(-1)
        for i, (layer, a) in enumerate(zip(layers, entering, strict=True)):
            inputs_squared[i] = inputs_squared[i] + _second_moment(_patches(layer, a))
        for c in range(p.shape[1]):
            root = p[:, c, None].sqrt() * (F.one_hot(torch.tensor(c, device=p.device), p.shape[1]) - p)
            slopes = torch.autograd.grad(logits, leaving, root, retain_graph=True)
            for i, (layer, g) in enumerate(zip(layers, slopes, strict=True)):
                places = g.flatten(2).mT if isinstance(layer, nn.Conv2d) else g[:, None]
                slopes_squared[i] = slopes_squared[i] + _second_moment(places) / places.shape[1]
    found = []
    for a, g in zip(inputs_squared, slopes_squared, strict=True):
        (a_values, a_vectors), (g_values, g_vectors) = torch.linalg.eigh(a / target.num_data), torch.linalg.eigh(g)
        curvature = target.power * g_values.clamp_min(0)[:, None] * a_values.clamp_min(0)
        found.append(LayerFactors(a_vectors, g_vectors, curvature + scale**-2))
    return KroneckerLaplace(mode, found)


Layer = nn.Linear | nn.Conv2d


def _layers(network: FlatModule) -> list[Layer]:
    """The layers that hold all weights, in their order.

    Raises:
        ValueError: if some weights are elsewhere.
    """
    layers = [part for part in network.module.modules() if isinstance(part, Layer)]
    theirs = [p for layer in layers for p in (layer.weight, layer.bias)]
    all_of_them = list(network.module.parameters())
    same = len(theirs) == len(all_of_them) and all(a is b for a, b in zip(theirs, all_of_them, strict=True))
    if not same or not all(p.requires_grad for p in all_of_them) or any(map(_is_unusual, layers)):
        raise ValueError(
            "kronecker_laplace is for networks whose weights are all trained, in nn.Linear and nn.Conv2d with biases, "
            "without groups, and padded by zeros, their number given: take low_rank_laplace"
        )
    return layers


def _is_unusual(layer: Layer) -> bool:
    if isinstance(layer, nn.Linear):
        return False
    return layer.groups > 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)


def _seen(
    network: FlatModule, w: Tensor, inputs: Any, layers: list[Layer]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The outputs, and what enters and leaves each layer; copies, since what follows may work in place.

    Raises:
        ValueError: if a layer is not called once, or an nn.Linear is called on more than one place.
    """
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(layer: nn.Module, args: tuple, output: Tensor) -> Tensor:
        if layer in seen or (isinstance(layer, nn.Linear) and output.ndim != 2):
            raise ValueError(
                "kronecker_laplace is for layers that are applied once, nn.Linear to (b, inputs): take low_rank_laplace"
            )
        seen[layer] = args[0].detach().clone(), output
        return output.clone()

    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        outputs = network.evaluate_one(w, inputs)
    finally:
        for handle in handles:
            handle.remove()
    if len(seen) < len(layers):
        raise ValueError("a layer of the network takes no part in its output: leave it out")
    entering, leaving = zip(*(seen[layer] for layer in layers), strict=True)
    return outputs, list(entering), list(leaving)


def _patches(layer: Layer, entering: Tensor) -> Float[Tensor, "b t i"]:
    """What each application of a layer multiplies, a one appended."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str), "_layers saw to it"
        where = {"dilation": layer.dilation, "padding": layer.padding, "stride": layer.stride}
        a = F.unfold(entering, layer.kernel_size, **where).mT
    else:
        a = entering[:, None]
    return torch.cat([a, torch.ones_like(a[..., :1])], dim=-1)


def _second_moment(a: Float[Tensor, "b t i"]) -> Float[Tensor, "i i"]:
    """``Σ a aᵀ`` over data and places, in float64."""
    flat = a.flatten(0, 1).double()
    return flat.mT @ flat


def low_rank_laplace(target: Posterior, mode: Float[Tensor, " d"], rank: int = RANK) -> LowRankLaplace:
    """The Hessian of minus the log-likelihood, times the power, in its ``rank`` largest eigenvalues, by Lanczos.

    All other directions keep the prior's width, however well the data know them: that is the approximation.

    Args:
        target: with a :class:`CategoricalLikelihood` and a :class:`NormalPrior` of one scale.
        mode: the weights where the posterior is largest, as training found them.
        rank: how many eigenvalues, 10 unless given; those that are not positive are left out.

    Raises:
        ValueError: for another likelihood or prior, a mode of another shape, ``rank`` not between 1 and d - 1, or a
            target that can be differentiated only once.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, labels = torch.randn(20, 2, generator=rng), torch.arange(20) % 3
        >>> target = Posterior(mlp([2, 8, 3]), CategoricalLikelihood(), x, labels, NormalPrior(1.0))
        >>> low_rank_laplace(target, torch.zeros(target.dim), rank=3).sample(4, rng).shape
        torch.Size([4, 51])
    """
    scale = _scale("low_rank_laplace", target, mode)
    check_count("rank", rank)
    if rank >= target.dim:
        raise ValueError(f"rank must be below the number of weights, {target.dim}, got {rank}")
    one = torch.zeros(1, dtype=torch.long, device=mode.device)
    with torch.enable_grad():
        differentiable_score(target, mode.detach()[None].requires_grad_(), one)  # refuses what has none of second order

    def product(v) -> object:
        vector = torch.as_tensor(v, dtype=mode.dtype, device=mode.device).reshape(-1)
        total = sum(_hessian_products(target, mode.detach(), vector), torch.zeros_like(mode))
        return total.double().cpu().numpy()

    operator = LinearOperator((target.dim, target.dim), matvec=product, dtype="float64")
    start = torch.randn(target.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    values, vectors = eigsh(operator, k=rank, which="LA", tol=TOLERANCE, v0=start)
    good = values > 0
    chosen, curvature = (torch.from_numpy(part.copy()).to(mode.device) for part in (vectors[:, good], values[good]))
    return LowRankLaplace(mode, chosen, curvature, scale)


def _hessian_products(target: Posterior, mode: Tensor, vector: Tensor) -> Iterator[Tensor]:
    """``H v`` of minus the log-likelihood to the target's power, some data after the other."""
    for rows in torch.arange(target.num_data, device=mode.device).split(DATA_AT_ONCE):
        at = mode[None].requires_grad_()
        with torch.enable_grad():
            share = len(rows) / target.num_data  # log_likelihood speaks for all data
            value = -share * target.power * target.log_likelihood(at, rows).sum()
            (slope,) = torch.autograd.grad(value, at, create_graph=True)
            yield torch.autograd.grad((slope[0] * vector).sum(), at)[0][0]
