r"""Particles in function space (Wang, Ren, Zhu and Zhang 2019): the directions of this library on functions.

Many weight vectors are one function, so move functions. At inputs ``x`` let ``f_i = f(x; w_i)``. The posterior over
their values is a target on R^{bF}, :class:`FunctionPosterior`; a network behind a sampler of weights is a sampler of
functions, :class:`Evaluated`. :class:`~gpvi_lib.objectives.ParVI` of these two moves the weights along ``-J_iᵀ φ_i``
with ``J_i = ∂f_i/∂w_i``: that is :class:`FunctionSpaceParVI`, for free particles and for a generator alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.checks import check_count, check_instance
from gpvi_lib.diagnostics import Info, computed, held_out
from gpvi_lib.directions import SVGD, Direction
from gpvi_lib.errors import GPVIError
from gpvi_lib.function_points import KDE, Jitter, Uniform, check_one_point
from gpvi_lib.function_priors import FunctionPrior, MomentMatched, shared_outputs, weight_scale
from gpvi_lib.networks import FlatModule
from gpvi_lib.objectives import DirectionObjective, ParVI
from gpvi_lib.samplers import Sampler
from gpvi_lib.several import Several
from gpvi_lib.targets import LearnedNoise, NormalPrior, Posterior
from gpvi_lib.targets.posterior import of_each

Points = Jitter | KDE | Uniform | Tensor | None


class Evaluated(Sampler):
    """A sampler of weights behind their network: a sampler of function values at fixed inputs.

    Args:
        sampler: of weights ``(n, d)``.
        network: the weights' network.
        x: inputs, ``(b, ...)``.

    Raises:
        ValueError: from ``rsample``, if the network has not one axis of outputs for each input.

    Example:
        >>> network, rng = FlatMLP([1, 10, 1]), torch.Generator().manual_seed(0)
        >>> particles = Particles(torch.randn(5, network.dim, generator=rng))
        >>> Evaluated(particles, network, torch.zeros(7, 1)).rsample(None, rng).shape
        torch.Size([5, 7])
    """

    def __init__(self, sampler: Sampler, network: FlatModule, x: Float[Tensor, "b ..."]) -> None:
        super().__init__()
        self.sampler, self.network, self.x = sampler, network, x

    @property
    def dim(self) -> int:  # type: ignore[override]  # a network's outputs say it, and are not to be asked in each step
        """Number of function values, an output that inputs share counted once."""
        return _number_of_values(self.network, self.x)

    @property
    def fixed_number(self) -> int | None:
        """That of the sampler of weights."""
        return self.sampler.fixed_number

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n v"]:
        """Function values at all inputs, one row for each function; an output that inputs share stands last, once."""
        outputs = self.network(self.sampler.rsample(num_samples, rng), self.x)
        if outputs.ndim != 3:
            raise ValueError(
                "in function space a network has outputs of shape (inputs, outputs), got "
                f"{tuple(outputs.shape[1:])}: return outputs[:, None] where there is one, outputs.flatten(1) of several"
            )
        shared = shared_outputs(self.network)
        values = outputs[..., : outputs.shape[-1] - shared].flatten(1)
        return torch.cat([values, outputs[:, 0, -shared:]], 1) if shared else values


@torch.no_grad()
def _number_of_values(network: FlatModule, x: Any) -> int:
    """How many function values a network has at inputs ``(b, ...)``; what they share is one more."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    outputs = network(torch.zeros(1, network.dim, dtype=dtype, device=x.device), x[:1])
    shared = shared_outputs(network)
    return (outputs[0, 0].numel() - shared) * len(x) + shared


@dataclass(frozen=True)
class InverseGamma:
    """The density ``∝ σ^{-a-1} exp(-b / σ)`` of a standard deviation.

    Attributes:
        shape, scale: a, b > 0.

    Raises:
        ValueError: if shape or scale is not positive.

    Example:
        >>> InverseGamma(shape=1.0, scale=0.1).log_prob(torch.zeros(1))  # at σ = 1: -b
        tensor([-0.1000])
    """

    shape: float = 1.0
    scale: float = 0.1

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.scale > 0):
            raise ValueError(f"an inverse-gamma density needs shape and scale > 0, got {self.shape} and {self.scale}")

    def log_prob(self, log_sigma: Tensor) -> Tensor:
        """Return the log-density of σ, not that of log σ, up to a constant, at log σ."""
        return -(self.shape + 1) * log_sigma - self.scale * torch.exp(-log_sigma)


class FunctionPosterior:
    r"""The posterior over the values of a function at finitely many inputs, as a target on them.

    .. math:: \log p(f | D) = a (N / B) Σ_b \log p(y_b | f_b) + \log p(f(x)),

    where the inputs ``x`` are those of the ``B`` data in ``batch``, then ``points``, and ``a`` is the posterior's
    power. Of a network with :class:`LearnedNoise` the vector has log σ as one more coordinate, the last.

    Args:
        posterior: over the weights, for its network, likelihood and data; its prior is that of log σ here.
        points: further inputs, ``(e, ...)``, or ``None``.
        prior: over functions; ``None`` for none.
        batch: indices of the data; ``None`` for all.
        rows: indices of the inputs at which the prior is seen; ``None`` for all.
        noise_prior: the density of σ, in place of the posterior's prior.

    Raises:
        ValueError: if ``posterior`` lacks a network or a likelihood, the prior has no score, the points are no
            tensor or have another shape than the inputs, or σ is learned without a density: the posterior's prior is
            no :class:`NormalPrior` itself, and there is no ``noise_prior``.

    Example:
        >>> x = torch.linspace(-1, 1, 10)[:, None]
        >>> posterior = Posterior(mlp([1, 10, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> target = FunctionPosterior(posterior, torch.tensor([[-2.0], [2.0]]), GaussianProcess(SquaredExponential()))
        >>> target.dim, target.log_prob(torch.zeros(3, 12)).shape
        (12, torch.Size([3]))
    """

    num_data = None

    def __init__(
        self,
        posterior: Posterior,
        points: Float[Tensor, "e ..."] | None,
        prior: FunctionPrior | None,
        batch: Int[Tensor, " B"] | None = None,
        rows: Int[Tensor, " M"] | None = None,
        noise_prior: InverseGamma | None = None,
    ) -> None:
        _check_target(posterior)
        inputs, self.data = posterior.inputs, posterior.targets
        if batch is not None:
            inputs, self.data = inputs[batch], self.data[batch]
        if points is not None:
            _check_points(points, inputs)
        _check_prior(prior, "score")
        self.posterior, self.prior, self.rows, self.noise_prior = posterior, prior, rows, noise_prior
        self.x = inputs if points is None else torch.cat([inputs, points.to(inputs)])
        self.shared = shared_outputs(posterior.network)
        if self.shared and noise_prior is None and not isinstance(posterior.prior, NormalPrior):
            raise GPVIError(
                "the density of log σ comes from a NormalPrior over the weights, got "
                f"{type(posterior.prior).__name__}: give noise_prior=InverseGamma(), a density of σ"
            )

    @property
    def dim(self) -> int:
        """Number of function values, log σ included."""
        return _number_of_values(self.posterior.network, self.x)

    def _split(self, f: Float[Tensor, "n v"]) -> tuple[Float[Tensor, "n b F"], Float[Tensor, "n s"]]:
        """Function values by input, and what the inputs share."""
        values, shared = f[:, : f.shape[1] - self.shared], f[:, f.shape[1] - self.shared :]
        return values.unflatten(1, (len(self.x), -1)), shared

    def log_likelihood(self, f: Float[Tensor, "n v"]) -> Float[Tensor, " n"]:
        """``a (N / B) Σ_b log p(y_b | f_b)``."""
        values, shared = self._split(f)
        outputs = values[:, : len(self.data)]
        outputs = torch.cat([outputs, shared[:, None].expand(-1, len(self.data), -1)], -1) if self.shared else outputs
        weight = self.posterior.power * self.posterior.num_data / len(self.data)
        return of_each(self.posterior.likelihood, outputs, self.data).sum(-1) * weight

    def _noise_log_prob(self, shared: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """The log-density of log σ, or of σ under ``noise_prior``."""
        if self.noise_prior is not None:
            return self.noise_prior.log_prob(shared[:, 0])
        module = self.posterior.network.module
        assert isinstance(module, LearnedNoise), "only its log σ is shared"
        scale = self.posterior.network.unflatten(weight_scale(self.posterior))["log_noise"]
        return -0.5 * ((shared[:, 0] - module.shift) / scale).square()

    def _without_prior(self, f: Float[Tensor, "n v"]) -> Float[Tensor, " n"]:
        """The log-likelihood and, where σ is learned, its log-density."""
        value = self.log_likelihood(f)
        return value + self._noise_log_prob(self._split(f)[1]) if self.shared else value

    def log_prob(self, x: Float[Tensor, "n v"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """``log p(f | D)`` up to a constant at function values ``x``, under a prior that has ``log_prob(f, x)``.

        The minibatch is the one that the target was built with, as in :meth:`score`.
        """
        value = self._without_prior(x)
        if self.prior is None:
            return value
        if not hasattr(self.prior, "log_prob"):
            raise ValueError(f"{type(self.prior).__name__} has a score and no log_prob(f, x): take a GaussianProcess")
        return value + self.prior.log_prob(self._split(x)[0][:, self._seen], self.x[self._seen])

    @property
    def _seen(self) -> slice | Tensor:
        """The inputs at which the prior is seen."""
        return slice(None) if self.rows is None else self.rows

    def score(self, f: Float[Tensor, "n v"], batch: Tensor | None = None) -> Float[Tensor, "n v"]:
        """``∇_f log p(f | D)``; the minibatch is the one that the target was built with."""
        with torch.enable_grad():
            f = f.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(self._without_prior(f).sum(), f)
        if self.prior is None:
            return gradient
        values, shared = self._split(f.detach())
        total = torch.zeros_like(values)
        total[:, self._seen] = self.prior.score(values[:, self._seen], self.x[self._seen])
        return gradient + torch.cat([total.flatten(1), torch.zeros_like(shared)], 1)


def _check_target(target: Any) -> None:
    missing = [name for name in ("network", "likelihood", "inputs", "targets") if not hasattr(target, name)]
    if missing:
        raise ValueError(
            f"function space needs a target with network and likelihood, such as Posterior; {type(target).__name__} "
            f"has no {' and no '.join(missing)}"
        )
    if getattr(target, "streamed", False):
        raise ValueError("function space takes its points from data in memory: give a Posterior of a part of them")
    if isinstance(target.inputs, Several):
        raise ValueError(
            "function space looks at points between the inputs: wrap the module in one that takes one tensor"
        )


def _check_points(points: object, inputs: Tensor | None = None) -> None:
    if not isinstance(points, Tensor):
        raise GPVIError(f"points must be Jitter, KDE, Uniform, a tensor of them or None, got {type(points).__name__}")
    if not len(points):
        raise ValueError("the set of extra points is empty: give at least one, or points=None for the minibatch alone")
    if inputs is not None:
        check_one_point(points.shape[1:], inputs)


def _check_prior(prior: object, *ways: str) -> None:
    check_instance("prior", prior)
    if prior is not None and not any(hasattr(prior, way) for way in ways):
        remedy = "prior.given(posterior, rng) has one" if hasattr(prior, "given") else "take a GaussianProcess"
        raise GPVIError(f"a prior over functions needs score(f, x), and {type(prior).__name__} has none: {remedy}")


@dataclass
class _NoiseApart(Direction):
    """A direction on all coordinates but the last, log σ, which descends on its own: no kernel, no repulsion."""

    direction: Direction

    def __call__(self, x, score, rng):
        phi, info = self.direction(x[:, :-1], score[:, :-1], rng)
        return torch.cat([phi, -score[:, -1:]], 1), info


@dataclass
class FunctionSpaceParVI(DirectionObjective):
    """A direction on functions, pulled back to what produces their weights: particles, or a generator of weights.

    In each step: the minibatch and fresh extra points make the inputs, :class:`FunctionPosterior` the target there,
    :class:`Evaluated` the sampler, and :class:`ParVI` the rest. For a target with network and likelihood.

    The paper adds extra points, ``KDE`` in its text and ``Jitter`` in its code, and a prior over functions,
    ``MomentMatched``: the defaults have neither. Without ``prior`` the target is the likelihood alone, for the
    posterior's prior over weights takes no part, except in log σ. The spread far from the data is then no posterior's:
    without ``points`` it is what the start and the network make of it, and at ``points`` the direction drives the
    functions apart while nothing holds them.

    Function values have to be identified. End a classifier with ``nn.LogSoftmax(-1)``, as the paper does, or with
    :class:`~gpvi_lib.function_priors.Centred`: logits have a free constant.

    Attributes:
        direction: SVGD, GFSF, WSGLD, PiSGLD or SteinCritic.
        points: extra inputs: ``Jitter``, ``KDE``, ``Uniform``, a tensor of them, or ``None``, the default, for the
            minibatch alone.
        prior: over functions: ``MomentMatched``, ``ArcCosine``, ``GaussianProcess``, anything with ``score(f, x)``, or
            ``None``, the default, for none.
        num_samples: functions per step of a generator; ``None`` for free particles.
        independent: as of :class:`ParVI`.
        prior_points: M, at how many of the inputs the prior is seen in a step: half of them data, half extra points,
            drawn anew; ``None`` for all.
        noise_prior: of a network with :class:`LearnedNoise`, fit σ for each particle by maximum a posteriori under this
            density, apart from the functions, as the paper's code does; ``None`` makes log σ one more coordinate of
            each function, under the posterior's prior.

    Raises:
        ValueError: if the set of extra points is empty or none, the prior has no score, ``prior_points`` is no whole
            number >= 1 or exceeds the draws of :class:`MomentMatched`, or as :class:`ParVI`.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> target = Posterior(mlp([1, 20, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> particles = Particles(target.prior.scale * torch.randn(5, target.dim, generator=rng))
        >>> objective = FunctionSpaceParVI(SVGD(), KDE(20), ArcCosine())
        >>> result = fit(particles, target, objective, steps=10, optimizer=Adam(0.01), rng=rng, progress=False)
    """

    direction: Direction = field(default_factory=SVGD)
    points: Points = None
    prior: FunctionPrior | None = None
    num_samples: int | None = None
    independent: bool = False
    prior_points: int | None = None
    noise_prior: InverseGamma | None = None

    def __post_init__(self) -> None:
        check_instance("points", self.points)
        if self.points is not None and not callable(self.points):
            _check_points(self.points)
        _check_prior(self.prior, "score", "given")
        if self.prior_points is not None:
            check_count("prior_points", self.prior_points)
            if isinstance(self.prior, MomentMatched) and self.prior_points > self.prior.draws:
                raise GPVIError(
                    f"{self.prior.draws} draws of the prior cannot give the covariance of the values at prior_points = "
                    f"{self.prior_points} points: take more draws, or see the prior at fewer points"
                )
        if self.independent and self.noise_prior is not None:
            raise GPVIError("independent batches and a noise_prior do not go together: leave one of them out")
        self._parvi()  # refuses what does not go together

    def _parvi(self) -> ParVI:
        direction = self.direction if self.noise_prior is None else _NoiseApart(self.direction)
        return ParVI(direction, self.num_samples, self.independent)

    def _rows(self, data: int, extra: int, rng: torch.Generator) -> Tensor | None:
        """M of the inputs: half of them data where there are extra points."""
        if self.prior_points is None:
            return None
        if self.prior_points > data + extra:
            raise ValueError(f"prior_points = {self.prior_points} exceeds the {data + extra} inputs of a step")
        beyond = min(extra, self.prior_points // 2)
        inside = self.prior_points - beyond
        if inside > data:
            inside, beyond = data, self.prior_points - data
        pick = [torch.randperm(n, generator=rng, device=rng.device)[:m] for n, m in ((data, inside), (extra, beyond))]
        return torch.cat([pick[0], data + pick[1]])

    def at(self, target: Posterior, batch: Tensor | None, rng: torch.Generator) -> FunctionPosterior:
        """The target of one step: fresh points, a fresh prior where it is drawn, and where that is seen.

        Raises:
            ValueError: as :class:`FunctionPosterior`, or if there are fewer inputs than ``prior_points``.
        """
        _check_target(target)
        points = self.points(target.inputs, rng) if callable(self.points) else self.points
        given = getattr(self.prior, "given", None)
        prior = self.prior if given is None else given(target, rng)
        extra = 0 if points is None else len(points)
        rows = self._rows(target.num_data if batch is None else len(batch), extra, rng)
        return FunctionPosterior(target, points, prior, batch, rows, self.noise_prior)

    def __call__(self, sampler, target, batch, rng):
        parvi = self._parvi()
        parvi.check_batches(sampler)
        here = self.at(target, batch, rng)
        if self.noise_prior is not None and not here.shared:
            raise ValueError(
                "noise_prior is for a network with LearnedNoise: its noise is known, leave noise_prior out"
            )
        loss, info = parvi(Evaluated(sampler, target.network, here.x), here, None, rng)
        return loss, {**self._held_out(sampler, target, batch), **info}

    def _held_out(self, sampler: Sampler, target: Posterior, batch: Tensor | None) -> Info:
        """Of fresh weights from a generator of its own: the step has function values alone."""
        if target.held_out is None:
            return {}

        def value() -> Tensor | float:
            rng = torch.Generator(target.inputs.device).manual_seed(0)
            return computed(held_out(target, sampler.sample(self.num_samples, rng), batch))["held_out"]

        return {"held_out": value}
