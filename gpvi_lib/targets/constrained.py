"""Densities of named, constrained parameters as targets on all of R^d."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Transform, biject_to
from torch.distributions.constraints import Constraint, real_vector

from gpvi_lib.checks import check_count, check_instance
from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.targets.base import Target, check_rows

Values = dict[str, Tensor]
Part = Constraint | Transform | tuple[Constraint | Transform, tuple[int, ...]]


class _Ordered(Constraint):
    """Vectors whose entries increase strictly, such as means of a mixture; ``torch.distributions`` does not have them.

    Example:
        >>> ordered.check(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor([ True, False])
    """

    # Named as torch's own constraints are, whose repr drops the first sign.
    event_dim = 1

    def check(self, value: Float[Tensor, "*batch m"]) -> Tensor:
        """Whether each vector increases, ``(*batch)``."""
        return (value.diff(dim=-1) > 0).all(-1)


ordered = _Ordered()
"""The constraint of vectors whose entries increase strictly, such as the means of a mixture or the cuts of an ordinal
model; ``torch.distributions.constraints`` has none."""


class OrderedTransform(Transform):
    """``y_1 = x_1`` and ``y_i = y_{i-1} + exp(x_i)``, from R^m to increasing vectors.

    Example:
        >>> OrderedTransform()(torch.zeros(3))
        tensor([0., 1., 2.])
    """

    domain = real_vector
    codomain = ordered
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., :1], x[..., 1:].exp()], dim=-1).cumsum(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.cat([y[..., :1], y.diff(dim=-1).log()], dim=-1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``Σ_{i>1} x_i``: the Jacobian is triangular."""
        return x[..., 1:].sum(-1)


@biject_to.register(_Ordered)
def _biject_to_ordered(constraint: _Ordered) -> OrderedTransform:
    return OrderedTransform()


class _Bijection:
    """How one named parameter of a given shape is made of real numbers."""

    def __init__(self, name: str, part: Part) -> None:
        constraint, shape = part if isinstance(part, tuple) and len(part) == 2 else (part, ())
        if not isinstance(constraint, Constraint | Transform):
            raise GPVIError(
                f"{name!r} must have a constraint of torch.distributions.constraints, such as constraints.positive, or "
                f"a pair (constraint, shape) with the shape a tuple, such as (constraints.real, (8,)), got {part!r}"
            )
        if not isinstance(shape, tuple):
            raise GPVIError(f"the shape of {name!r} must be a tuple, such as (8,), got {shape!r}")
        for axis, length in enumerate(shape):
            check_count(f"the length of axis {axis} of {name!r}", length)
        self.name, self.shape = name, torch.Size(shape)
        self.transform = self._transform(constraint)
        self.constraint = constraint if isinstance(constraint, Constraint) else constraint.codomain
        axes = self.transform.codomain.event_dim
        if len(self.shape) < axes:
            raise GPVIError(f"{name!r} of shape {tuple(self.shape)} cannot be {self.constraint}, of {axes} axes")
        try:
            self.free = torch.Size(self.transform.inverse_shape(self.shape))
            reached = torch.Size(self.transform.forward_shape(self.free))
        except (ValueError, RuntimeError) as error:
            raise GPVIError(f"{name!r} of shape {tuple(self.shape)} cannot be {self.constraint}: {error}") from error
        if reached != self.shape:
            raise GPVIError(f"the bounds of {name!r} have shape {tuple(reached)}: give it that shape, or bounds of its")

    def _transform(self, constraint: Constraint | Transform) -> Transform:
        try:
            transform = constraint if isinstance(constraint, Transform) else biject_to(constraint)
        except NotImplementedError:
            transform = None
        if transform is None or not transform.bijective:
            raise GPVIError(
                f"there is no bijection between R^m and {constraint}, the constraint of {self.name!r}: take another, "
                "such as corr_cholesky for a correlation matrix, or give a torch.distributions.Transform of your own"
            )
        return transform

    def forward(self, x: Float[Tensor, "*batch m"]) -> tuple[Float[Tensor, "*batch ..."], Float[Tensor, "*batch"]]:
        """The value and ``log|det ∂value/∂x|``, the latter of the first coordinates of a simplex, for example."""
        batch = x.shape[:-1]
        free = x.reshape(batch + self.free)
        value = self.transform(free)
        return value, self.transform.log_abs_det_jacobian(free, value).reshape(*batch, -1).sum(-1)

    def inverse(self, value: Float[Tensor, "*batch ..."]) -> Float[Tensor, "*batch m"]:
        """The real numbers that make ``value``.

        Raises:
            GPVIError: for a value of another shape, outside the constraint, or on its edge.
        """
        rank = len(self.shape)
        if not isinstance(value, Tensor) or value.shape[value.ndim - rank :] != self.shape:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise GPVIError(f"{self.name!r} must be a tensor of shape (..., *{tuple(self.shape)}), got {shape}")
        if not bool(self.constraint.check(value).all()):
            raise GPVIError(f"{self.name!r} has values outside its constraint, {self.constraint}")
        free = self.transform.inv(value)
        if not bool(free.isfinite().all()):
            raise GPVIError(f"{self.name!r} has values on the edge of its constraint, {self.constraint}: move them in")
        return free.reshape(*value.shape[: value.ndim - rank], self.free.numel())


class Constrained:
    r"""A density of named parameters under constraints, as a target on R^d without any.

    Each parameter is the image of real numbers under a bijection T, ``torch.distributions.biject_to(constraint)``. All
    their real numbers together make x, and the density of x is

    .. math:: \log p(x) = \log p_θ(T(x)) + \log |\det ∂T/∂x|.

    A bijection may change the number of coordinates: a point of the simplex in R^K has K - 1 real numbers. Densities
    are then those of its first K - 1 coordinates, as of ``Dirichlet``; of a Cholesky factor of correlations, of the
    entries below the diagonal, as of ``LKJCholesky``.

    Args:
        log_prob: ``{name: (n, *shape)} -> (n,)``, for n points at once: add axes with ``[:, None]`` and sum over all
            but the first. ``torch.vmap`` makes one of a function of a single point. Or a target whose ``x`` is all
            parameters side by side, flattened, in the order of ``parts``.
        parts: a constraint for each name, or a pair (constraint, shape), the shape being the parameter's own. A
            constraint is one of ``torch.distributions.constraints``, :data:`ordered`, the ``support`` of a
            distribution, or a bijective ``torch.distributions.Transform``.
        num_data: N, for minibatches: ``log_prob`` then also takes ``batch``, indices of data or ``None``, and scales
            their log-likelihood by N / B. Of a target with data it is the target's own, and not to be given.

    Attributes:
        dim: d, how many real numbers all parameters have.
        shapes: of each parameter.
        target: the target that was given as ``log_prob``; ``None`` for a function.

    Raises:
        GPVIError: for a part that is no constraint, a constraint without bijection, a shape that it cannot have, a
            target of another dimension, or ``num_data`` beside a target that has its own; from ``log_prob(x)`` if the
            function does not return one number per point, or mixes points: one of them alone must have the same
            log-density as among others.

    Example:
        >>> from torch.distributions import HalfCauchy, Normal, constraints
        >>> effect = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])  # of coaching in eight schools
        >>> error = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
        >>> def log_joint(p):
        ...     school = p["mu"][:, None] + p["tau"][:, None] * p["eta"]
        ...     prior = Normal(0, 5).log_prob(p["mu"]) + HalfCauchy(5).log_prob(p["tau"])
        ...     return prior + (Normal(0, 1).log_prob(p["eta"]) + Normal(school, error).log_prob(effect)).sum(-1)
        >>> parts = {"mu": constraints.real, "tau": constraints.positive, "eta": (constraints.real, (8,))}
        >>> target, rng = Constrained(log_joint, parts), torch.Generator().manual_seed(0)
        >>> settings = {"step_size": 0.3, "num_leapfrog": 5, "num_steps": 20, "burn_in": 10, "adapt": True}
        >>> start = torch.randn(4, target.dim, generator=rng)
        >>> draws = hmc(target.log_prob, start, **settings, rng=rng, progress=False).samples
        >>> {name: tuple(value.shape) for name, value in target.constrain(draws).items()}
        {'mu': (10, 4), 'tau': (10, 4), 'eta': (10, 4, 8)}
    """

    def __init__(
        self,
        log_prob: Target | Callable[..., Float[Tensor, " n"]],
        parts: Mapping[str, Part],
        *,
        num_data: int | None = None,
    ) -> None:
        check_instance("log_prob", log_prob)
        if not isinstance(parts, Mapping) or not parts or not all(isinstance(name, str) for name in parts):
            raise GPVIError(f"parts must be a dict of named constraints, such as {{'scale': positive}}, got {parts!r}")
        self._parts = [_Bijection(name, part) for name, part in parts.items()]
        self.shapes = {part.name: part.shape for part in self._parts}
        self._sizes = [part.free.numel() for part in self._parts]
        self.dim = sum(self._sizes)
        given: Any = log_prob
        self.target: Target | None = given if hasattr(given, "log_prob") else None
        self._log_joint: Callable[..., Tensor] | None = given if self.target is None else None
        self.num_data = self._number_of_data(num_data)
        self._checked = False

    def _number_of_data(self, num_data: int | None) -> int | None:
        """N, after a look at what was given as density."""
        if num_data is not None:
            check_count("num_data", num_data)
        if self.target is None:
            if not callable(self._log_joint):
                raise GPVIError(
                    f"log_prob must be a function of a dict of tensors, or a target, got {self._log_joint!r}"
                )
            return num_data
        size = sum(shape.numel() for shape in self.shapes.values())
        if self.target.dim != size:
            raise GPVIError(f"the target has {self.target.dim} dimensions and the parts {size} entries: give it others")
        own = getattr(self.target, "num_data", None)
        if own is not None and num_data is not None:
            raise GPVIError(f"{type(self.target).__name__} has num_data = {own} of its own: leave num_data out")
        return num_data if own is None else own

    def _of_values(self, values: Values, *batch: Tensor | None) -> Float[Tensor, " n"]:
        """The log-density of a dict, whatever was given."""
        if self._log_joint is not None:
            return self._log_joint(values, *batch)
        assert self.target is not None, "one of the two was given"
        flat = torch.cat([value.reshape(len(value), -1) for value in values.values()], dim=-1)
        return self.target.log_prob(flat, *batch)

    def _forward(self, x: Float[Tensor, "*batch d"]) -> tuple[Values, Float[Tensor, "*batch"]]:
        """Constrained values and the log-determinant of all of them."""
        if not isinstance(x, Tensor):
            raise GPVIError(
                f"points must be a tensor (..., {self.dim}), got {type(x).__name__}: of chains give samples"
            )
        if x.ndim == 0 or x.shape[-1] != self.dim:
            size = x.shape[-1] if x.ndim else "no axis"
            raise GPVIError(f"these parameters have {self.dim} real numbers, got points of {size}: see target.dim")
        pieces = zip(self._parts, x.split(self._sizes, dim=-1), strict=True)
        pairs = {part.name: part.forward(piece) for part, piece in pieces}
        log_det = torch.stack([log_det for _, log_det in pairs.values()]).sum(0)
        return {name: value for name, (value, _) in pairs.items()}, log_det

    def constrain(self, x: Float[Tensor, "*batch d"]) -> Values:
        """Each parameter at points x, such as the draws of a sampler or the samples of :func:`hmc`.

        Returns:
            A dict of tensors of shape ``(*batch, *shape)``.
        """
        return self._forward(x)[0]

    def unconstrain(self, values: Mapping[str, Tensor]) -> Float[Tensor, "*batch d"]:
        """The points x at which the parameters have these values, such as a place to start from.

        Raises:
            UnknownName: for a name that is not among the parts.
            GPVIError: for a missing name, values of another shape, or values outside or on the edge of the constraint.
        """
        for name in values:
            if name not in self.shapes:
                raise UnknownName.among("parameter", name, self.shapes)
        missing = [name for name in self.shapes if name not in values]
        if missing:
            raise GPVIError(f"no value for {', '.join(missing)}")
        pieces = [part.inverse(values[part.name]) for part in self._parts]
        if len({piece.shape[:-1] for piece in pieces}) > 1:
            found = {part.name: tuple(piece.shape[:-1]) for part, piece in zip(self._parts, pieces, strict=True)}
            raise GPVIError(f"the values must have the same leading axes, got {found}")
        return torch.cat(pieces, dim=-1)

    def log_abs_det(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """``log|det ∂T/∂x|``."""
        return self._forward(x)[1]

    def log_prob(self, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``log p(x)`` up to the constant of ``log_prob``, with the log-determinant."""
        if not self._checked and not torch._C._functorch.is_functorch_wrapped_tensor(x):  # of those no row can be read
            check_rows(lambda rows: self._log_prob(rows, batch), x)
            self._checked = True
        return self._log_prob(x, batch)

    def _log_prob(self, x: Tensor, batch: Tensor | None) -> Tensor:
        values, log_det = self._forward(x)
        try:
            density = self._of_values(values) if self.num_data is None else self._of_values(values, batch)
        except KeyError as error:
            error.add_note(f"gpvi_lib: the parameters that log_prob gets are {', '.join(self.shapes)}")
            raise
        if not isinstance(density, Tensor) or density.shape != (len(x),):
            found = tuple(density.shape) if isinstance(density, Tensor) else type(density).__name__
            raise GPVIError(
                f"log_prob must return one number per point, shape ({len(x)},), got {found}: every part has a first "
                "axis of points; sum over all others"
            )
        return density + log_det
