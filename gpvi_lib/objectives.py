"""Objectives: (sampler, target, batch, rng) -> a scalar whose gradient is the pulled-back direction.

For a direction φ the scalar is the surrogate ``mean_i x_i · φ_i`` with φ held fixed: its gradient in the sampler's
parameters is ``mean_i (∂x_i/∂θ)ᵀ φ_i`` (eq. 4). Densities give an ELBO instead.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import linalg
from gpvi_lib.activations import ACTIVATIONS, warn_of_kinks
from gpvi_lib.checks import check_count, check_instance, check_positive
from gpvi_lib.diagnostics import Info, held_out, of_samples, share_folded, share_negative, without_point
from gpvi_lib.directions import SVGD, Direction
from gpvi_lib.errors import GPVIError
from gpvi_lib.inverse import BlockInverse, InverseJacobian
from gpvi_lib.kernels import RBF, bandwidth_of, check_kernel
from gpvi_lib.latent import PointEstimate
from gpvi_lib.metrics import ksd_u_statistic, ksd_v_statistic
from gpvi_lib.samplers import (
    Generator,
    Linearization,
    Particles,
    Sampler,
    normal_log_prob,
    rsample_with_density,
)
from gpvi_lib.targets.base import Target, differentiable_score, log_prob, score_on_support

Loss = tuple[Float[Tensor, ""], Info]


def surrogate(x: Float[Tensor, "n d"], direction: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """``mean_i x_i · φ_i`` with φ held fixed.

    Example:
        >>> x = torch.ones(2, 2, requires_grad=True)
        >>> surrogate(x, torch.ones(2, 2)).backward()
        >>> x.grad  # φ / n
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    return (x * direction.detach()).sum() / x.shape[0]


def drawn(sampler: Sampler, num_samples: int | None, rng: torch.Generator) -> tuple[Tensor, Tensor | None]:
    """``sampler.rsample``, and the noise behind the points of a :class:`Generator`, in a :class:`PointEstimate` or not.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, z = drawn(Generator(3, rng=rng), 5, rng)
        >>> x.shape, z.shape, drawn(Particles(x.detach()), None, rng)[1]
        (torch.Size([5, 3]), torch.Size([5, 3]), None)
    """
    if isinstance(sampler, PointEstimate) and type(sampler).rsample is PointEstimate.rsample:
        x, z = drawn(sampler.inner, num_samples, rng)
        return sampler.complete(x), z
    if not isinstance(sampler, Generator) or type(sampler).rsample is not Generator.rsample:
        return sampler.rsample(num_samples, rng), None
    z = sampler.noise(num_samples, rng)
    return sampler(z), z


def _check_slopes(sampler: Sampler) -> None:
    """Warn if ``sampler`` is, or holds, a generator whose density has slopes that jump."""
    sampler, _ = without_point(sampler)
    if isinstance(sampler, Generator) and len(sampler.hidden) and not ACTIVATIONS[sampler.activation].smooth:
        warn_of_kinks("the Generator", "log|det J| in its ELBO")


def _completed(sampler: Sampler, theta: Float[Tensor, "n m"]) -> Float[Tensor, "n d"]:
    """Points of ``sampler`` from those of the sampler that :func:`without_point` finds in it."""
    return sampler.complete(_completed(sampler.inner, theta)) if isinstance(sampler, PointEstimate) else theta


class Objective:
    """Base of the objectives; stateless ones inherit the empty state.

    Example:
        >>> class Attraction(Objective):
        ...     def __call__(self, sampler, target, batch, rng):
        ...         return -target.log_prob(sampler.rsample(None, rng)).mean(), {}
        >>> target, rng = Gaussian(torch.zeros(2), torch.eye(2)), torch.Generator().manual_seed(0)
        >>> loss, info = Attraction()(Particles(torch.ones(3, 2)), target, None, rng)
        >>> round(loss.item(), 2)  # 1 + log 2π
        2.84
    """

    def __call__(self, sampler: Sampler, target: Target, batch: Tensor | None, rng: torch.Generator) -> Loss:
        """The scalar to differentiate, and diagnostics.

        Each is a zero-dimensional tensor, or a function without arguments that returns one: :func:`fit` calls it on the
        steps that it reports, before the parameters move.
        """
        raise TypeError(f"{type(self).__name__} must define __call__")

    def check(self, sampler: Sampler) -> None:
        """Warn, before training, of a sampler that does not suit this objective."""

    def keeps_inputs(self) -> bool:
        """Whether the next call takes the random inputs of the last one again, so that its target must not change."""
        return False

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""


class DirectionObjective(Objective):
    """Base of objectives that move points along a direction: its warnings and its state are theirs."""

    direction: Direction

    def check(self, sampler: Sampler) -> None:
        """Warn of a sampler that does not suit this objective.

        Raises:
            GPVIError: if all particles are at one point.
        """
        self.direction.check()
        inner, _ = without_point(sampler)
        points = list(inner.parameters()) if isinstance(inner, Particles) else []
        if points and len(points[0]) > 1 and bool((points[0] == points[0][0]).all()):
            raise GPVIError(
                f"all {len(points[0])} particles start at one point, and no direction tells them apart: start them at "
                "torch.randn(n, d), or at posterior.sample_prior(n, rng)"
            )

    def state_dict(self) -> dict:
        return self.direction.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.direction.load_state_dict(state)


@dataclass
class ParVI(DirectionObjective):
    """A direction on points: particle-based VI on :class:`Particles`, amortised ParVI on a :class:`Generator`.

    Attributes:
        direction: SVGD, GFSF, WSGLD, PiSGLD or SteinCritic.
        num_samples: points per step of a generator; ``None`` for free particles.
        independent: estimate the direction from one batch of a generator and move another, as GPVI does, so that no
            point acts on itself. For SVGD only; the default is one batch for both.

    Raises:
        ValueError: if ``independent`` is asked of another direction than SVGD, without ``num_samples``, or of
            :class:`Particles`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> particles = Particles(torch.randn(10, 2, generator=rng))
        >>> loss, info = ParVI(SVGD())(particles, target, None, rng)
        >>> loss, info = ParVI(SVGD(), 10, independent=True)(Generator(2, rng=rng), target, None, rng)
        >>> loss.shape
        torch.Size([])
    """

    direction: Direction = field(default_factory=SVGD)
    num_samples: int | None = None
    independent: bool = False

    def __post_init__(self) -> None:
        if self.num_samples is not None:
            check_count("num_samples", self.num_samples)
        check_instance("direction", self.direction, Direction, "such as SVGD() or GFSF()")
        if self.independent and not isinstance(self.direction, SVGD):
            raise ValueError(f"independent batches are defined for SVGD, not for {type(self.direction).__name__}")
        if self.independent and self.num_samples is None:
            raise ValueError("independent batches need a generator: give num_samples")

    def check_batches(self, sampler: Sampler) -> None:
        """Refuse independent batches of what has one batch alone.

        Raises:
            ValueError: for free particles.
        """
        if self.independent and sampler.fixed_number is not None:
            raise ValueError("independent batches need a generator: half of the Particles would never move")

    def __call__(self, sampler, target, batch, rng):
        self.check_batches(sampler)
        if not self.independent:
            x, z = drawn(sampler, self.num_samples, rng)
            phi, info = self.direction(x.detach(), score_on_support(target, x, batch), rng)
            return surrogate(x, phi), {**of_samples(sampler, target, x, batch, z), **info}
        assert isinstance(self.direction, SVGD) and self.num_samples is not None, "__post_init__ saw to it"
        x, z = drawn(sampler, 2 * self.num_samples, rng)
        source, query = x.split(self.num_samples)
        phi, info = self.direction(source.detach(), score_on_support(target, source, batch), rng, query.detach())
        return surrogate(query, phi), {**of_samples(sampler, target, source, batch, z), **info}


@dataclass
class KernelSteinDiscrepancy(Objective):
    r"""The squared kernel Stein discrepancy itself, as a loss (Liu, Lee and Jordan 2016; Korba et al. 2021).

    The loss estimates ``KSD^2 = E[u_p(x, x')]`` over independent x, x' from q, with the Stein kernel ``u_p`` of
    :func:`~gpvi_lib.metrics.stein_kernel`.

    Unlike SVGD, GFSF and the Stein critic, which descend KL(q || p), this descends another functional, and its
    gradient passes through the score: it needs the second derivatives of ``log p``, by automatic differentiation.
    Its direction on points is ``φ_j = n ∂KSD^2/∂x_j`` with the bandwidth held fixed, so that the surrogate's gradient
    is the gradient of this loss. On minibatches the estimate is biased upwards by the noise of the score, unless the
    two arguments of the Stein kernel have scores on independent minibatches.

    Attributes:
        kernel: kernel on the points.
        num_samples: points per step of a generator; ``None`` for free particles.
        statistic: ``"u"``, unbiased for fresh samples where the bandwidth is fixed, or ``"v"``, which counts the pairs
            ``i = i`` and on all data is never negative: the discrepancy of the particles themselves.
        independent_batches: draw a second minibatch, as large as that of :func:`fit`, for the second arguments.

    Raises:
        ValueError: if there is no statistic of that name, the target can be differentiated only once, or independent
            batches are asked for without minibatches.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> particles = Particles(torch.randn(10, 2, generator=rng))
        >>> loss, info = KernelSteinDiscrepancy(statistic="v")(particles, target, None, rng)
        >>> bool(loss > 0), list(info)
        (True, ['ksd'])
    """

    kernel: RBF = RBF()
    num_samples: int | None = None
    statistic: Literal["u", "v"] = "u"
    independent_batches: bool = False

    def __post_init__(self) -> None:
        if self.num_samples is not None:
            check_count("num_samples", self.num_samples)
        check_instance("kernel", self.kernel, RBF, "such as RBF(1.0)")
        if self.statistic not in ("u", "v"):
            raise ValueError(f"statistic must be 'u' or 'v', got {self.statistic!r}")

    def __call__(self, sampler, target, batch, rng):
        x = sampler.rsample(self.num_samples, rng)
        s, second = differentiable_score(target, x, batch), None
        if self.independent_batches:
            if batch is None:
                raise ValueError("independent_batches needs minibatches: give `fit` a batch_size")
            rows = torch.randint(target.num_data, batch.shape, generator=rng, device=batch.device)
            second = differentiable_score(target, x, rows)
        estimate = ksd_u_statistic if self.statistic == "u" else ksd_v_statistic
        loss = estimate(x, s, self.kernel, second)
        return loss, {"ksd": loss.detach(), **held_out(target, x, batch)}

    def direction(self, x: Float[Tensor, "n d"], target: Target, batch: Tensor | None = None) -> Float[Tensor, "n d"]:
        """φ at every point; a second minibatch is the same in every call."""
        points = Particles(x)
        with torch.enable_grad():
            loss, _ = replace(self, num_samples=None)(points, target, batch, torch.Generator(x.device))
            return len(x) * torch.autograd.grad(loss, points.x)[0]


@dataclass
class GPVI(Objective):
    r"""The functional gradient of Theorem 3.1, pulled back through the generator.

    .. math:: φ(z) = E_{z'}[-∇\log p(f(z')) k(z', z) - J(z')^{-T} ∇_{z'} k(z', z)].

    Attributes:
        num_samples: size of each of the two independent batches ``z'`` and ``z``.
        inverse: how ``J^{-T}∇k`` is obtained, see :mod:`gpvi_lib.inverse`.
        kernel: kernel on the noise.
        kernel_space: ``"z"`` for a kernel on all of z (the paper), ``"head"`` for one on ``z_{:k}`` only. With the
            latter φ is a function of ``z_{:k}``, so the expected gradient of every λ beyond the first k is 0, and a
            trained λ takes a random walk there (notebook 17, Statement 1).

    Raises:
        ValueError: if there is no kernel space of that name, or the sampler is no :class:`Generator`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> objective, generator = GPVI(20), Generator(2, rng=rng)
        >>> loss, info = objective(generator, target, None, rng)  # as `fit` calls it
        >>> source, query = generator.noise(20, rng), generator.noise(5, rng)
        >>> phi, info = objective.functional_gradient(generator, target, source, query, None, rng)
        >>> phi.shape
        torch.Size([5, 2])
    """

    num_samples: int
    inverse: InverseJacobian = field(default_factory=BlockInverse)
    kernel: RBF = RBF()
    kernel_space: Literal["z", "head"] = "z"

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_instance("inverse", self.inverse, InverseJacobian, "such as BlockInverse() or HelperInverse()")
        check_kernel(self.kernel)
        if self.kernel_space not in ("z", "head"):
            raise ValueError(f"kernel_space must be 'z' or 'head', got {self.kernel_space!r}")

    def _seen_by_kernel(self, z: Tensor, noise_dim: int) -> Tensor:
        if self.kernel_space == "z":
            return z
        head = torch.zeros_like(z)
        head[:, :noise_dim] = z[:, :noise_dim]
        return head

    @torch.no_grad()
    def functional_gradient(
        self,
        generator: Generator,
        target: Target,
        source: Float[Tensor, "n d"],
        query: Float[Tensor, "m d"],
        batch: Tensor | None,
        rng: torch.Generator,
    ) -> tuple[Float[Tensor, "m d"], Info]:
        """φ at ``query`` (z), the expectation being the mean over ``source`` (z').

        With :class:`HelperInverse` each call trains the helper on these points.
        """
        x, linearization = generator.forward_and_linearize(source)
        phi, _, info = self._phi(linearization, score_on_support(target, x, batch), source, query, rng)
        return phi, info

    def _phi(self, linearization: Linearization, score: Tensor, source: Tensor, query: Tensor, rng: torch.Generator):
        """φ and ``W_outᵀφ``, from the Jacobian and the score at ``source``."""
        seen_source = self._seen_by_kernel(source, linearization.noise_dim)
        seen_query = self._seen_by_kernel(query, linearization.noise_dim)
        k, weight = self.kernel(seen_source, seen_query)
        total, pulled, solved = self.inverse.add_and_pull_back(
            linearization, seen_source, seen_query, weight, k.mT @ score, rng
        )
        info: Info = {**solved, "bandwidth": lambda: bandwidth_of(k, weight)}
        return total / -source.shape[0], pulled / -source.shape[0], info

    def __call__(self, sampler, target, batch, rng):
        if not isinstance(sampler, Generator):
            inside = isinstance(without_point(sampler)[0], Generator)
            remedy = "NegativeELBO(n), or ParVI(SVGD(), num_samples=n)" if inside else "ParVI for free particles"
            raise ValueError(f"GPVI needs a Generator, got {type(sampler).__name__}; use {remedy}")
        n = self.num_samples
        z = torch.cat([sampler.noise(n, rng), sampler.noise(n, rng)])
        features, linearization = sampler.features_and_linearize(z)  # z' and z together: the weights are read once
        x = sampler.from_features(features.detach(), z)
        with torch.no_grad():
            at_source = linearization.at(slice(n)).detach()
            phi, pulled, info = self._phi(at_source, score_on_support(target, x[:n], batch), z[:n], z[n:], rng)
        loss = surrogate(x[n:], phi)
        if features.requires_grad:  # there are hidden layers: the term is 0 and has the gradient that they still lack
            a = features[n:]
            loss = loss + surrogate(a - a.detach(), pulled)
        return loss, {**of_samples(sampler, target, x[:n], batch, z[:n]), **info}

    def state_dict(self) -> dict:
        return self.inverse.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.inverse.load_state_dict(state)


@dataclass
class NegativeELBO(Objective):
    """``E_q[log q(x) - log p(x)]``: mean field, and the exact density of a :class:`Generator` (eq. 2).

    With the generator this is the paper's objective itself; its gradient is the "direct" gradient of
    appendix A.3, made affordable by the block-triangular Jacobian. ``log q`` contains the slopes of the generator's
    activations: with a smooth one (the default) the gradient is unbiased, with ReLU it is not (:func:`fit` warns).
    Where the map folds (``folds``, the share of draws with ``det J < 0``, is neither 0 nor 1), the claimed ``log q``
    is too small and the ELBO too high.

    Attributes:
        num_samples: Monte Carlo samples per step.

    Raises:
        ValueError: if the sampler has no density.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> loss, info = NegativeELBO(64)(Generator(2, rng=rng), Gaussian(torch.zeros(2), torch.eye(2)), None, rng)
        >>> loss.shape, list(info)
        (torch.Size([]), ['elbo', 'folds'])
    """

    num_samples: int

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)

    def check(self, sampler: Sampler) -> None:
        _check_slopes(sampler)

    def __call__(self, sampler, target, batch, rng):
        x, log_q, sign = rsample_with_density(sampler, self.num_samples, rng)
        loss = (log_q - log_prob(target, x, batch)).mean()
        folds: Info = {} if sign is None else {"folds": lambda: share_negative(sign)}
        return loss, {"elbo": -loss.detach(), **folds, **held_out(target, x, batch)}


@dataclass
class OrientedELBO(Objective):
    """:class:`NegativeELBO` of a generator whose Jacobian determinant is kept positive.

    Equation 2 contains ``log|det J|``, which is blind to the sign: a map that folds the noise over itself is paid for
    area that it covers twice. Here a negative determinant costs (:meth:`Linearization.oriented_log_det`). That is
    enough: a map ``g(z) + λz`` with bounded, smooth ``g`` (tanh), λ > 0 and k = d whose determinant is positive
    everywhere is a bijection (Hadamard). Where all determinants are above ``floor``, the two objectives are equal.
    Between 0 and the floor the entropy counts for more than it is, and the objective is no ELBO: where the target is
    so narrow that its own map lies there, the minimiser is narrower still. The reported ``elbo`` is of equation 2, with
    the true ``log|det J|``, and ``below_floor`` the share of the draws there; :func:`fit` warns where it ends above 0.

    Attributes:
        num_samples: Monte Carlo samples per step.
        floor: the smallest ``det(A + Λ_1)`` that counts as itself, in the unit of the points to the power k: for a
            target of scale s give a tenth to a hundredth of ``s^k``.

    Raises:
        ValueError: if the floor is not positive, or the sampler is no :class:`Generator`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> loss, info = OrientedELBO(64)(Generator(2, rng=rng, noise_scale=2.0), target, None, rng)
        >>> loss.shape, list(info), float(info["below_floor"]())
        (torch.Size([]), ['elbo', 'folds', 'below_floor'], 0.0)
    """

    num_samples: int
    floor: float = 0.01

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_positive("the floor of the determinant", self.floor)

    def check(self, sampler: Sampler) -> None:
        _check_slopes(sampler)

    def __call__(self, sampler, target, batch, rng):
        inner, _ = without_point(sampler)
        if not isinstance(inner, Generator):
            other = "ParVI" if isinstance(inner, Particles) else "NegativeELBO"
            raise ValueError(f"OrientedELBO needs a Generator, got {type(inner).__name__}; use {other}")
        z = inner.noise(self.num_samples, rng)
        theta, linearization = inner.forward_and_linearize(z)
        x = _completed(sampler, theta)
        log_det = linearization.oriented_log_det(self.floor)
        loss = (normal_log_prob(z, inner.input_stdev) - log_det - log_prob(target, x, batch)).mean()
        at = linearization.detach()
        info: Info = {
            "elbo": lambda: (at.slogdet()[1] - log_det.detach()).mean() - loss.detach(),
            "folds": lambda: share_folded(at),
            "below_floor": lambda: _share_between(linalg.det(at.head()), self.floor),
        }
        return loss, {**info, **held_out(target, x, batch)}


def _share_between(determinant: Float[Tensor, " n"], floor: float) -> Float[Tensor, ""]:
    """The share of determinants from 0 up to the floor."""
    return ((determinant >= 0) & (determinant < floor)).to(determinant.dtype).mean()


@dataclass
class MaximumLikelihood(Objective):
    """``-mean_i log p(D | x_i)``, without prior and repulsion: a deep ensemble on free particles.

    Raises:
        ValueError: if the sampler is no :class:`Particles`, or the target has no ``log_likelihood``.

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 10)[:, None]
        >>> target = Posterior(mlp([1, 5, 1]), NormalLikelihood(0.1), x, x[:, 0])
        >>> ensemble = Particles(torch.randn(3, target.dim, generator=rng))
        >>> loss, info = MaximumLikelihood()(ensemble, target, None, rng)
        >>> list(info)
        ['log_likelihood']
    """

    def __call__(self, sampler, target, batch, rng):
        if not isinstance(sampler, Particles):
            raise ValueError(f"MaximumLikelihood needs Particles, got {type(sampler).__name__}; use NegativeELBO")
        if not hasattr(target, "log_likelihood"):
            raise ValueError(
                f"MaximumLikelihood needs a target with log_likelihood(x, batch), {type(target).__name__} has none"
            )
        x = sampler.rsample(None, rng)
        loss = -target.log_likelihood(x, batch).mean()
        return loss, {"log_likelihood": -loss.detach(), **held_out(target, x, batch)}
