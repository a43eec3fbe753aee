r"""Priors over functions: what independent normal weights imply for the values of a network at finitely many inputs.

A function prior is anything with ``score(f, x)``: ``∇_f log p(f(x))`` at function values ``f (n, b, F)`` of ``n``
functions, at inputs ``x (b, ...)``. One that depends on the network, or that draws anew in every step, has
``given(posterior, rng)`` beside it, which returns a prior with ``score``.

All priors here are Gaussian. The implied prior of a finite network is not; the exact posterior under a
:class:`GaussianProcess` is therefore what to compare a converged run with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpvi_lib.networks import FlatModule
from gpvi_lib.samplers import standard_normal
from gpvi_lib.targets import LearnedNoise, NormalPrior, Posterior

Kernel = Callable[[Float[Tensor, "b ..."], Float[Tensor, "c ..."]], Float[Tensor, "b c"]]


@runtime_checkable
class FunctionPrior(Protocol):
    """A prior at any finite set of inputs, known by its score.

    Example:
        >>> class Flat:
        ...     def score(self, f, x):
        ...         return torch.zeros_like(f)
        >>> isinstance(Flat(), FunctionPrior)
        True
    """

    def score(self, f: Float[Tensor, "n b F"], x: Float[Tensor, "b ..."]) -> Float[Tensor, "n b F"]:
        """``∇_f log p(f(x))``."""
        ...


class Centred(nn.Module):
    """Subtract from each row of logits their mean, which a softmax does not see: a classifier's last module.

    Function values have to be identified, and unlike log-probabilities centred logits keep a Gaussian prior Gaussian:
    with independent outputs of covariance K, the score of the centred ones is ``-K⁻¹ f``.

    Example:
        >>> Centred()(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[-1.,  0.,  1.]])
    """

    def forward(self, logits: Float[Tensor, "b F"]) -> Float[Tensor, "b F"]:
        """Logits with mean 0."""
        return logits - logits.mean(-1, keepdim=True)


def shared_outputs(network: FlatModule) -> int:
    """How many of a network's last outputs are the same at every input: 1, log σ, of :class:`LearnedNoise`, else 0."""
    return int(isinstance(network.module, LearnedNoise))


def weight_scale(posterior: Posterior) -> Float[Tensor, " d"]:
    """The prior's standard deviation of each weight.

    Raises:
        ValueError: if the prior of the weights is not normal.
    """
    if not isinstance(posterior.prior, NormalPrior):
        raise ValueError(
            f"a prior over functions is derived from a NormalPrior over weights, got {type(posterior.prior).__name__}: "
            "give the posterior one, or the prior over functions as a GaussianProcess"
        )
    like = posterior.inputs if posterior.inputs.is_floating_point() else torch.empty(0, device=posterior.inputs.device)
    return torch.as_tensor(posterior.prior.scale, dtype=like.dtype, device=like.device).expand(posterior.dim)


def _check_floor(floor: float) -> None:
    if not floor > 0:
        raise ValueError(f"the floor of a covariance's eigenvalues must be positive, such as 1e-3, got {floor}")


def floored_solve(covariance: Float[Tensor, "d d"], values: Float[Tensor, "d m"], floor: float) -> Float[Tensor, "d m"]:
    """``C⁻¹ values`` in float64, the eigenvalues of ``C`` raised to ``floor``; one matrix, never a batch."""
    eigenvalues, vectors = torch.linalg.eigh(covariance.double())
    return vectors @ ((vectors.mT @ values.double()) / eigenvalues.clamp_min(floor)[:, None])


@dataclass(frozen=True)
class GaussianProcess:
    """``f_c ~ N(0, K(x, x))``, independent for each output c.

    Attributes:
        kernel: ``(x, y) -> K (b, c)``; evaluated in float64.
        floor: eigenvalues of K below it are raised to it, > 0: near-coincident inputs make K singular.

    Raises:
        ValueError: if the floor is not positive.

    Example:
        >>> prior, x = GaussianProcess(SquaredExponential(0.5)), torch.linspace(-1, 1, 4)[:, None]
        >>> prior.covariance(x).shape, prior.score(torch.zeros(2, 4, 1), x).shape
        (torch.Size([4, 4]), torch.Size([2, 4, 1]))
    """

    kernel: Kernel
    floor: float = 1e-3

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def covariance(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b b"]:
        """``K(x, x)``, float64, before the floor."""
        return self.kernel(x.double(), x.double())

    def score(self, f: Float[Tensor, "n b F"], x: Float[Tensor, "b ..."]) -> Float[Tensor, "n b F"]:
        """``-K⁻¹ f``."""
        columns = f.transpose(0, 1)  # (b, n, F)
        solved = floored_solve(self.covariance(x), columns.flatten(1), self.floor).view(columns.shape)
        return -solved.transpose(0, 1).to(f.dtype)

    def log_prob(self, f: Float[Tensor, "n b F"], x: Float[Tensor, "b ..."]) -> Float[Tensor, " n"]:
        """``-½ fᵀ K⁻¹ f``: the log-density up to a constant."""
        return 0.5 * (f * self.score(f, x)).sum((1, 2))


@dataclass(frozen=True)
class SquaredExponential:
    """The kernel ``exp(-|x - y|² / (2 l²))``.

    Attributes:
        length: ``l > 0``.

    Raises:
        ValueError: if the length is not positive.

    Example:
        >>> SquaredExponential(length=1.0)(torch.zeros(1, 1), torch.ones(1, 1))
        tensor([[0.6065]])
    """

    length: float = 1.0

    def __post_init__(self) -> None:
        if not self.length > 0:
            raise ValueError(f"the length of a kernel must be positive, got {self.length}")

    def __call__(self, x: Float[Tensor, "b ..."], y: Float[Tensor, "c ..."]) -> Float[Tensor, "b c"]:
        """``K (b, c)``."""
        return torch.exp(-0.5 * torch.cdist(x.flatten(1), y.flatten(1)).square() / self.length**2)


@dataclass(frozen=True)
class PerceptronKernel:
    r"""The covariance of the outputs of a ReLU perceptron under independent normal weights (Cho and Saul 2009).

    .. math::
        K_1 = s_b^2 + s_w^2 x·y, \qquad K_{l+1} = s_b^2 + s_w^2 H_l \sqrt{k_l k'_l}\,
        [\sin θ + (π - θ) \cos θ] / (2π), \quad \cos θ = K_l / \sqrt{k_l k'_l},

    with ``k = K_l(x, x)``, ``k' = K_l(y, y)`` and ``H_l`` units. Exact for one hidden layer of any width; for more, in
    the limit of wide ones.

    Attributes:
        layers: for each linear layer its number of inputs and the prior's standard deviations of weights and biases.

    Example:
        >>> kernel, x = PerceptronKernel(((1, 1.0, 1.0), (50, 0.1, 0.1))), torch.linspace(-1, 1, 4)[:, None]
        >>> kernel(x, x).shape
        torch.Size([4, 4])
    """

    layers: tuple[tuple[int, float, float], ...]

    def __call__(self, x: Float[Tensor, "b ..."], y: Float[Tensor, "c ..."]) -> Float[Tensor, "b c"]:
        """``K (b, c)``."""
        x, y = x.flatten(1), y.flatten(1)
        _, weight, bias = self.layers[0]
        cross = bias**2 + weight**2 * (x @ y.mT)
        left, right = (bias**2 + weight**2 * side.square().sum(-1) for side in (x, y))
        for width, weight, bias in self.layers[1:]:
            norm = (left[:, None] * right).sqrt()
            angle = torch.acos((cross / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp(-1, 1))
            cross = bias**2 + weight**2 * width * norm * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
            left, right = (bias**2 + weight**2 * width * side / 2 for side in (left, right))
        return cross


def _perceptron_layers(network: FlatModule, scale: Float[Tensor, " d"]) -> tuple[tuple[int, float, float], ...]:
    """What :class:`PerceptronKernel` needs of a network and its prior.

    Raises:
        ValueError: if the network is no ReLU perceptron, or the scales within a layer differ.
    """
    module = network.module.module if isinstance(network.module, LearnedNoise) else network.module
    parts = [part for _, part in module.named_modules(remove_duplicate=False) if not list(part.children())]
    one_by_one = all(isinstance(part, nn.Sequential) for part in module.modules() if list(part.children()))
    parts = [part for part in parts if not isinstance(part, nn.Flatten)]
    parts = parts[:-1] if isinstance(parts[-1], Centred) else parts
    linear, activations = parts[::2], parts[1::2]
    trained = list(network.unflatten(scale).values())[shared_outputs(network) :]
    whole = one_by_one and len(trained) == 2 * len(linear)  # no frozen weight, no layer without a bias
    ends = len(linear) == len(activations) + 1  # in a linear layer
    if not (
        whole
        and ends
        and all(isinstance(p, nn.Linear) for p in linear)
        and all(isinstance(a, nn.ReLU) for a in activations)
    ):
        raise ValueError(
            "the covariance in closed form is that of a perceptron, an nn.Sequential of linear layers with biases and "
            f"ReLU between them, such as mlp(widths), got {[type(part).__name__ for part in parts]}: use MomentMatched"
        )
    if any(float(part.min()) != float(part.max()) for part in trained):
        raise ValueError("the closed form needs one prior scale for the weights of a layer and one for its biases")
    scales = [float(part.flatten()[0]) for part in trained]
    widths = [part.in_features for part in linear if isinstance(part, nn.Linear)]
    return tuple(zip(widths, scales[::2], scales[1::2], strict=True))


@dataclass(frozen=True)
class ArcCosine:
    """The Gaussian with the covariance of the network under its prior, in closed form: :class:`PerceptronKernel`.

    It costs no draw and has no sampling error. For ReLU perceptrons whose last module may be :class:`Centred`.

    Attributes:
        floor: as of :class:`GaussianProcess`.

    Raises:
        ValueError: if the floor is not positive.

    Example:
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> posterior = Posterior(mlp([1, 10, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> ArcCosine().given(posterior).covariance(x).shape
        torch.Size([20, 20])
    """

    floor: float = 1e-3

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def given(self, posterior: Posterior, rng: torch.Generator | None = None) -> GaussianProcess:
        """The process of a posterior's network and prior.

        Raises:
            ValueError: if the network is no ReLU perceptron, or its prior not normal with one scale for a layer.
        """
        layers = _perceptron_layers(posterior.network, weight_scale(posterior))
        return GaussianProcess(PerceptronKernel(layers), self.floor)


@dataclass(frozen=True)
class MomentMatched:
    """The Gaussian with mean and covariance of ``k`` networks drawn from the prior, anew in every step: the paper's.

    The precision of ``k`` draws at ``d`` values is too large by ``(k - 1) / (k - d - 2)``: 15 % at 40 draws of 4.

    Attributes:
        draws: k, at least as many as function values.
        floor: eigenvalues of the covariance below it are raised to it, > 0.

    Raises:
        ValueError: if the floor is not positive, or there are fewer than two draws.

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 20)[:, None]
        >>> posterior = Posterior(mlp([1, 10, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> mean, covariance = MomentMatched(draws=40).given(posterior, rng).moments(x)
        >>> mean.shape, covariance.shape
        (torch.Size([20]), torch.Size([20, 20]))
    """

    draws: int = 40
    floor: float = 1e-3

    def __post_init__(self) -> None:
        _check_floor(self.floor)
        if self.draws < 2:
            raise ValueError(f"moments need at least 2 draws, got {self.draws}")

    def given(self, posterior: Posterior, rng: torch.Generator) -> DrawnFunctions:
        """The prior of fresh draws.

        Raises:
            ValueError: if the prior of the weights is not normal.
        """
        scale = weight_scale(posterior)
        weights = scale * standard_normal((self.draws, posterior.dim), rng, scale)
        return DrawnFunctions(posterior.network, weights, self.floor)


@dataclass(frozen=True, eq=False)
class DrawnFunctions:
    """The Gaussian with the moments of given networks.

    Attributes:
        network, weights: the networks, ``weights (k, d)``.
        floor: of the covariance's eigenvalues.

    Example:
        >>> network, rng = FlatMLP([1, 10, 1]), torch.Generator().manual_seed(0)
        >>> prior = DrawnFunctions(network, torch.randn(40, network.dim, generator=rng), floor=1e-3)
        >>> prior.score(torch.zeros(3, 5, 1), torch.linspace(-1, 1, 5)[:, None]).shape
        torch.Size([3, 5, 1])
    """

    network: FlatModule
    weights: Float[Tensor, "k d"]
    floor: float

    @torch.no_grad()
    def moments(self, x: Float[Tensor, "b ..."]) -> tuple[Float[Tensor, " v"], Float[Tensor, "v v"]]:
        """Mean and covariance of the ``v = b F`` function values, float64.

        Raises:
            ValueError: if there are more values than draws.
        """
        outputs = self.network(self.weights, x)
        values = outputs[..., : outputs.shape[-1] - shared_outputs(self.network)].flatten(1).double()
        if values.shape[1] > len(values):
            raise ValueError(
                f"{len(values)} draws of the prior cannot give the covariance of {values.shape[1]} function values "
                f"({len(x)} points): take more draws, or see the prior at fewer points (prior_points)"
            )
        return values.mean(0), torch.atleast_2d(values.mT.cov())  # that of one value is a number

    def score(self, f: Float[Tensor, "n b F"], x: Float[Tensor, "b ..."]) -> Float[Tensor, "n b F"]:
        """``-C⁻¹ (f - m)``."""
        mean, covariance = self.moments(x)
        solved = floored_solve(covariance, (f.flatten(1).double() - mean).mT, self.floor).mT
        return -solved.reshape(f.shape).to(f.dtype)
