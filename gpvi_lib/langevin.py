r"""Langevin dynamics as a sampler whose parameters are its step sizes (Liu and Feng 2016, section 4).

A chain of T layers starts at ``z^0 ~ q_0`` and takes T steps of stochastic gradient Langevin dynamics,

.. math:: z^{t} = z^{t-1} + η^t ⊙ ∇\log p(z^{t-1}; M^t) + \sqrt{2 η^t} ⊙ ξ^t.

Its output has no density in closed form. Objectives that need none train it: :class:`ParVI`, :class:`RegressedParVI`
and :class:`KernelSteinDiscrepancy` by the points alone, :class:`PathELBO` by the density of the whole path.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpvi_lib.checks import check_count, check_instance
from gpvi_lib.samplers import Sampler, standard_normal
from gpvi_lib.targets.base import Target, check_precision, differentiable_score, log_prob, score
from gpvi_lib.targets.problems import ProblemFamily


@dataclass(frozen=True)
class ChainInputs:
    """All that is random in ``n`` chains: the same inputs give the same chains.

    Attributes:
        start: ``z^0 (n, d)``.
        noise: ``ξ (T, n, d)``.
        batches: ``M (T, B)``, indices of data, each drawn uniformly; ``None`` for all data in every layer.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> network = LangevinNetwork(MeanField(torch.zeros(2), 1.0), target, 5)
        >>> inputs = network.inputs(3, rng)
        >>> inputs.noise.shape, bool((network(inputs) == network(inputs)).all())
        (torch.Size([5, 3, 2]), True)
    """

    start: Float[Tensor, "n d"]
    noise: Float[Tensor, "T n d"]
    batches: Int[Tensor, "T B"] | None


class LangevinNetwork(Sampler):
    r"""T layers of Langevin dynamics on ``target``, with a step size per layer and coordinate (eq. 18).

    The gradient of a loss in log η, with ``a`` its gradient in a layer's output, is ``Σ a ⊙ (η ⊙ s + √(η/2) ⊙ ξ)``,
    and ``a + H (η ⊙ a)`` goes on to the layer before: ``H = ∇^2 log p`` is needed, only times a vector.
    A target whose score jumps, such as the posterior of a ReLU network, biases this gradient (notebook 02).

    Args:
        start: q_0, a sampler on R^d such as :class:`MeanField`; a copy of it is kept and held fixed.
        target: whose score the layers follow. ``None`` leaves it for :meth:`on`.
        layers: ``T >= 1``.
        step_size: first η > 0: a number, or anything that broadcasts to ``(T, d)``. Untrained, it is a fixed schedule.
        per_coordinate: whether each coordinate has its own step sizes; otherwise they are ``(T, 1)``.
        ceiling: a bound ``c`` on η, a number or one per coordinate ``(d,)``: the parameter is ρ with
            ``η = c sigmoid(ρ)``. ``None`` trains log η, which nothing keeps from steps that throw chains away.
        batch_size: rows of data that each layer draws for all its chains, independently and uniformly; ``None`` takes
            all data. The minibatches of :func:`fit` are those of the objective, not of the layers. The problems of a
            :class:`ProblemFamily` may differ in N: on the family itself, not one of them, the rows are among the
            first that all have.
        noise: whether ξ is added. Without it the layers are T steps of gradient ascent.
        truncate: hold the scores inside the chain fixed, which leaves H out: another algorithm, cheaper and biased.
        recompute: keep only the states of the chain for the backward pass and compute each layer again there.
        dtype, device: of the step sizes and the chains; ``None`` takes those of the start's tensors.

    Raises:
        ValueError: if T < 1, a step size is not positive and finite or not below the ceiling, the dimensions of start
            and target differ, there are no data to draw minibatches of, or the target can be differentiated only once,
            or computes in another precision than the chains.

    Example:
        >>> start = MeanField(torch.tensor([-10.0]), 1.0)
        >>> network = LangevinNetwork(start, GaussianMixture(torch.tensor([[-2.0], [2.0]])), 20, step_size=0.1)
        >>> network.sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 1])
    """

    ceiling: Tensor | None

    def __init__(
        self,
        start: Sampler,
        target: Target | None,
        layers: int,
        *,
        step_size: float | Tensor = 0.1,
        per_coordinate: bool = True,
        ceiling: float | Tensor | None = None,
        batch_size: int | None = None,
        noise: bool = True,
        truncate: bool = False,
        recompute: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_instance("start", start, Sampler, "such as MeanField(torch.zeros(d)) or Particles(x)")
        check_count("layers", layers)
        if batch_size is not None:
            check_count("batch_size", batch_size)
        self.dim, self.layers, self.batch_size = start.dim, layers, batch_size
        self.per_coordinate, self.noise, self.truncate, self.recompute = per_coordinate, noise, truncate, recompute
        self.start = copy.deepcopy(start).requires_grad_(False)
        shape, like = (layers, self.dim if per_coordinate else 1), _tensor_of(start)
        dtype, device = like.dtype if dtype is None else dtype, like.device if device is None else device
        steps = _broadcast("step_size η", step_size, shape, dtype, device)
        limit = None if ceiling is None else _broadcast("the ceiling of η", ceiling, shape[1:], dtype, device)
        if limit is not None and not bool((steps < limit).all()):
            raise ValueError(
                f"step_size η must start below its ceiling, got {float(steps.max())} and {float(limit.min())}"
            )
        self.register_buffer("ceiling", limit)
        self.rho = nn.Parameter(steps.log() if limit is None else torch.logit(steps / limit))
        self._targets: tuple[Target, ...] = ()
        if target is not None:
            self._set_target(target)

    def _set_target(self, target: Target) -> None:
        if target.dim != self.dim:
            raise ValueError(
                f"the start lives on R^{self.dim} and {type(target).__name__} on R^{target.dim}: they must agree"
            )
        num_data = _num_data(target)
        if self.batch_size is not None and (num_data is None or not 1 <= self.batch_size <= num_data):
            raise ValueError(
                f"batch_size = {self.batch_size} rows a layer cannot be drawn of {type(target).__name__}, which has "
                f"num_data = {num_data}"
            )
        self._targets = (target,)  # in a tuple: a target that is a module is not to be trained along

    @property
    def target(self) -> Target:
        """The target whose score the layers follow.

        Raises:
            ValueError: if there is none yet.
        """
        if not self._targets:
            raise ValueError("this LangevinNetwork has no target: use network.on(target), which shares its step sizes")
        return self._targets[0]

    def on(self, target: Target) -> Self:
        """The same network, sharing its step sizes, on another target of the same dimension."""
        twin = copy.copy(self)
        twin._set_target(target)
        return twin

    @property
    def step_size(self) -> Float[Tensor, "T d"]:
        """η, ``(T, d)`` or ``(T, 1)``."""
        return self.rho.exp() if self.ceiling is None else self.ceiling * self.rho.sigmoid()

    @property
    def fixed_number(self) -> int | None:
        """That of the start."""
        return self.start.fixed_number

    def inputs(self, num_samples: int | None, rng: torch.Generator) -> ChainInputs:
        """Draw all that is random in ``n`` chains; ``None`` for as many as the start has, where that is fixed."""
        return self._inputs(self.start.sample(num_samples, rng), rng)

    def _inputs(self, start: Float[Tensor, "n d"], rng: torch.Generator) -> ChainInputs:
        start = start.to(self.rho)
        noise = standard_normal((self.layers, *start.shape), rng, self.rho)
        if self.batch_size is None:
            return ChainInputs(start, noise, None)
        num_data = _num_data(self.target)
        assert num_data is not None, "_set_target saw to it"
        shape = (self.layers, self.batch_size)
        return ChainInputs(start, noise, torch.randint(num_data, shape, generator=rng, device=rng.device))

    def _score(self, z: Float[Tensor, "n d"], batch: Tensor | None) -> Float[Tensor, "n d"]:
        """``∇log p(z)``: differentiable where somebody differentiates, otherwise without a graph."""
        slope = differentiable_score
        if self.truncate or not (torch.is_grad_enabled() and z.requires_grad):
            slope = score
        try:
            return slope(self.target, z, batch)
        except RuntimeError:
            check_precision(lambda rows: log_prob(self.target, rows, batch), z, type(self.target).__name__)
            raise

    def _layer(self, z: Tensor, step: Tensor, noise: Tensor, batch: Tensor | None) -> Tensor:
        mean = z + step * self._score(z, batch)
        return mean + (2 * step).sqrt() * noise if self.noise else mean

    def _states(self, inputs: ChainInputs) -> Iterator[Float[Tensor, "n d"]]:
        """``z^0, ..., z^T``."""
        z = inputs.start
        yield z
        for layer, step in enumerate(self.step_size):
            arguments = (z, step, inputs.noise[layer], None if inputs.batches is None else inputs.batches[layer])
            z = self._kept_or_again(self._layer, *arguments)
            yield z

    def _kept_or_again(self, layer: Callable, *arguments) -> Any:
        """``layer(*arguments)``, computed once more in the backward pass with ``recompute``."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(layer, *arguments, use_reentrant=False, preserve_rng_state=False)
        return layer(*arguments)

    def forward(self, inputs: ChainInputs) -> Float[Tensor, "n d"]:
        """``f(η; ξ)``: the chains' last states ``z^T``."""
        for z in self._states(inputs):
            last = z
        return last

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``z^T`` at fresh inputs."""
        return self(self.inputs(num_samples, rng))

    def path(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "T+1 n d"]:
        """All states ``z^0, ..., z^T`` of fresh chains; the last are what :meth:`rsample` draws."""
        return torch.stack(list(self._states(self.inputs(num_samples, rng))))

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Refuse, always.

        Raises:
            ValueError: naming objectives that need no density of the last state.
        """
        raise ValueError(f"a {type(self).__name__} has no tractable density; use PathELBO, or ParVI")

    def rsample_with_path_ratio(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        r"""``z^T`` and ``log q_0(z^0) + Σ_t log F_t - log B_t`` of its path: the forward over the reversed kernels.

        With ``s`` and ``s'`` the scores at both ends of a layer, on the layer's own minibatch,

        .. math:: \log F - \log B = \sum_i \tfrac14 η_i (s_i + s'_i)^2 + \sqrt{η_i / 2} ξ_i (s_i + s'_i).

        Minus ``log p(z^T)`` its mean is the divergence of the whole path, which is at least ``KL(q_T || p)``.

        Raises:
            ValueError: if the chain has no noise, hence no density, or the gradient through its scores is cut off.
        """
        if not self.noise or self.truncate:
            raise ValueError("the density of a path needs a LangevinNetwork with noise=True and truncate=False")
        start, log_q = self.start.rsample_with_log_prob(num_samples, rng)
        inputs = self._inputs(start, rng)

        def applied(z, before, step, noise, batch):
            """One layer's state, its part of the ratio, and the score there."""
            before = self._score(z, batch) if before is None else before
            z = z + step * before + (2 * step).sqrt() * noise
            after = self._score(z, batch)
            both = before + after
            return z, (0.25 * step * both.square() + (0.5 * step).sqrt() * noise * both).sum(-1), after

        z, ratio, before = inputs.start, log_q.to(self.rho), None
        for layer, step in enumerate(self.step_size):
            batch = None if inputs.batches is None else inputs.batches[layer]
            z, increment, after = self._kept_or_again(applied, z, before, step, inputs.noise[layer], batch)
            ratio = ratio + increment
            before = after if batch is None else None  # the next layer draws other rows
        return z, ratio

    def last_layer(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], Float[Tensor, " d"]]:
        """``z^T``, and mean ``(n, d)`` and variance ``(d,)`` of the normal that the last layer draws it from.

        Raises:
            ValueError: if the chain has no noise.
        """
        if not self.noise:
            raise ValueError("without noise the last layer draws from no normal: use a LangevinNetwork with noise=True")
        inputs = self.inputs(num_samples, rng)
        z = self(inputs)
        step = self.step_size[-1]
        return z, z - (2 * step).sqrt() * inputs.noise[-1], 2 * step.expand(self.dim)


def _num_data(target: Target) -> int | None:
    """N; of a family the fewest data of a problem, so that all of them have the rows that are drawn."""
    problems = target.problems if isinstance(target, ProblemFamily) else (target,)
    numbers = [getattr(problem, "num_data", None) or 0 for problem in problems]
    return min(numbers) or None


def _tensor_of(start: Sampler) -> Tensor:
    """A tensor of the start, which says where and in which precision it draws; one in single precision without any."""
    tensors = itertools.chain(start.parameters(), start.buffers())
    return next(filter(torch.is_floating_point, tensors), torch.empty(0, dtype=torch.float32))


def _broadcast(name: str, value: float | Tensor, shape: tuple[int, ...], dtype, device) -> Tensor:
    """Positive finite numbers of that shape."""
    found = torch.as_tensor(value, dtype=dtype, device=device)
    if not bool((torch.isfinite(found) & (found > 0)).all()):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    try:
        return found.expand(shape).clone()
    except RuntimeError:
        raise ValueError(f"{name} must broadcast to {shape}, got shape {tuple(found.shape)}") from None


def share_outside(z: Float[Tensor, "n d"], box: float) -> float:
    """The share of points with a coordinate beyond ``±box``, those that are not finite among them.

    Example:
        >>> share_outside(torch.tensor([[0.0, 0.5], [3.0, 0.0], [0.0, torch.nan], [1.0, 1.0]]), box=2.0)
        0.5
    """
    return float((~(z.abs() <= box)).any(-1).double().mean())
