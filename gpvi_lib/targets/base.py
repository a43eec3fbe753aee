"""What a target is, and the checked way to evaluate one."""

import math
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.errors import DivergedError, GPVIError
from gpvi_lib.targets.looks import add_hint, in_users_code


@runtime_checkable
class Target(Protocol):
    """An unnormalised density on R^d: any object with ``dim`` and ``log_prob(x)``.

    A target on data also has ``num_data`` and takes ``batch``, indices of data; it then scales the minibatch's
    log-likelihood by ``N / B``, so that every minibatch estimates the same log-density. Without minibatches neither
    is asked for.

    Example:
        >>> class Ring:
        ...     dim, num_data = 2, None
        ...     def log_prob(self, x, batch=None):
        ...         return -0.5 * (x.norm(dim=-1) - 2).square()
        >>> isinstance(Ring(), Target), score(Ring(), torch.ones(3, 2)).shape
        (True, torch.Size([3, 2]))
    """

    @property
    def dim(self) -> int:
        """Dimension d of the points."""
        ...

    @property
    def num_data(self) -> int | None:
        """N, or ``None`` without data."""
        ...

    def log_prob(self, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``log p(x)`` up to a constant, one number per point."""
        ...


def log_prob(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
    """``target.log_prob`` with its shape checked.

    Raises:
        ValueError: if the points have the wrong dimension, or the target returns no tensor or another shape than
            ``(n,)``.

    Example:
        >>> log_prob(Gaussian(torch.zeros(2), torch.eye(2)), torch.zeros(1, 2))  # -log 2π
        tensor([-1.8379])
    """
    if x.ndim != 2 or x.shape[1] != target.dim:
        raise ValueError(
            f"{type(target).__name__} lives on R^{target.dim}, got points of shape {tuple(x.shape)}; "
            f"give the sampler dim = {target.dim}"
        )
    try:
        value = target.log_prob(x) if batch is None else target.log_prob(x, batch)
    except TypeError as error:
        if "positional argument" in str(error) and not in_users_code(error):
            raise GPVIError(_signature(target, batch, str(error))) from error
        add_hint(error, x)
        raise
    except Exception as error:
        add_hint(error, x)
        raise
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{type(target).__name__}.log_prob must return a tensor of one number per point, got "
            f"{type(value).__name__}: compute with torch operations on all points at once, and return the result"
        )
    if value.shape != (len(x),):
        raise ValueError(
            f"{type(target).__name__}.log_prob must return one number per point, shape ({len(x)},), got "
            f"{tuple(value.shape)}; sum over everything but the first axis"
        )
    return value


def _signature(target: Target, batch: Tensor | None, said: str) -> str:
    name = type(target).__name__
    if batch is not None:
        return f"{name} has num_data, so it needs log_prob(x, batch), batch for indices of data"
    return f"{name}.log_prob must take points alone, as in log_prob(self, x, batch=None): {said}"


def score(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, "n d"]:
    """``∇_x log p(x)``, detached from whatever produced ``x``.

    By automatic differentiation, or by the target's own ``score(x, batch)`` where it has one.

    Raises:
        ValueError: if ``log_prob`` is not differentiable, or as :func:`log_prob`; if a ``score`` of the target's own
            returns another shape than that of the points.

    Example:
        >>> score(Gaussian(torch.zeros(2), torch.eye(2)), torch.ones(1, 2))
        tensor([[-1., -1.]])
    """
    if hasattr(target, "score"):
        with torch.no_grad():
            return _own_score(target, x, batch)
    return _value_and_score(target, x, batch)[1]


def _own_score(target: Any, x: Tensor, batch: Tensor | None) -> Tensor:
    value = target.score(x) if batch is None else target.score(x, batch)
    if not isinstance(value, Tensor) or value.shape != x.shape:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"{type(target).__name__}.score must return the gradient at each point, shape {tuple(x.shape)}, got {found}"
        )
    return value


def _value_and_score(target: Target, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = log_prob(target, x, batch)
        if not value.requires_grad:
            raise ValueError(_not_differentiable(target))
        try:
            (gradient,) = torch.autograd.grad(value.sum(), x)
        except RuntimeError as error:
            add_hint(error, x)
            raise
    return value.detach(), gradient


def score_on_support(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, "n d"]:
    """Return :func:`score`, which means nothing where ``log_prob`` is not finite, even if it is finite itself.

    A target with a ``score`` of its own is not asked for its density. A GPU is not waited for: there the score of a
    batch with such a point is NaN.

    Raises:
        ValueError: as :func:`score`.
        DivergedError: saying at how many points ``log_prob`` is not finite.

    Example:
        >>> score_on_support(Gaussian(torch.zeros(2), torch.eye(2)), torch.ones(1, 2))
        tensor([[-1., -1.]])
    """
    if hasattr(target, "score"):
        return score(target, x, batch)
    value, gradient = _value_and_score(target, x, batch)
    total = value.sum()
    if x.device.type != "cpu":
        return gradient + 0 * total
    if not math.isfinite(total.item()):
        raise DivergedError(outside_support(target, value))
    return gradient


def outside_support(target: Target, value: Float[Tensor, " n"]) -> str:
    """Say at how many points ``log_prob`` is not finite, and the remedy."""
    bad = int((~torch.isfinite(value)).sum())
    return (
        f"log_prob of {type(target).__name__} is not finite at {bad} of {len(value)} points: they have run away, then "
        "lower the learning rate; or they lie where the target has no density, then transform the parameters to all of "
        "R^d, as Constrained does, or mend log_prob there"
    )


def _not_differentiable(target: Target) -> str:
    return (
        f"{type(target).__name__}.log_prob is not differentiable in x: compute with torch operations, without numpy, "
        ".detach(), .item() and no_grad(); or give the target a score(x, batch), the gradient, of its own"
    )


_TWICE_DIFFERENTIABLE: dict[tuple[int, bool], weakref.ref] = {}
"""(id, with all data) -> target whose score has been differentiated once: it need not be tried again."""


def differentiable_score(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, "n d"]:
    """``∇_x log p(x)``, differentiable in ``x`` and in whatever produced it.

    Raises:
        ValueError: if the target can be differentiated only once.

    Example:
        >>> x = torch.ones(1, 2, requires_grad=True)
        >>> differentiable_score(Gaussian(torch.zeros(2), torch.eye(2)), x).sum().backward()
        >>> x.grad  # the score is -x
        tensor([[-1., -1.]])
    """
    key = id(target), batch is None
    known = _TWICE_DIFFERENTIABLE.get(key)
    if known is None or known() is not target:
        _check_twice_differentiable(target, x[:1], batch)
        _TWICE_DIFFERENTIABLE[key] = weakref.ref(target, lambda _: _TWICE_DIFFERENTIABLE.pop(key, None))
    return _differentiable_score(target, x, batch)


def _differentiable_score(target: Target, x: Tensor, batch: Tensor | None) -> Tensor:
    if hasattr(target, "score"):
        return _own_score(target, x, batch)
    (gradient,) = torch.autograd.grad(log_prob(target, x, batch).sum(), x, create_graph=True)
    return gradient


def _check_twice_differentiable(target: Target, x: Tensor, batch: Tensor | None) -> None:
    """Differentiate ``Σ_i u_i log p(x_i)`` twice, with ``u`` to be differentiated too.

    Without ``u`` a function that is ``once_differentiable`` returns a score that is silently a constant. What this
    saves is its own: layers that are computed again, as :class:`LangevinNetwork` may, do not count it.
    """
    apart = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    if hasattr(target, "score"):
        with torch.enable_grad():
            constant = not _own_score(target, x.detach().requires_grad_(True), batch).requires_grad
        if constant:
            raise ValueError(f"{type(target).__name__}.score must be differentiable in x: it returns a constant")
        return
    with torch.enable_grad(), apart:
        x = x.detach().requires_grad_(True)
        u = torch.ones_like(x[:, 0], requires_grad=True)
        (slope,) = torch.autograd.grad(log_prob(target, x, batch) @ u, x, create_graph=True)
        try:
            with _gradients_kept(slope):
                slope.sum().backward()  # to all leaves: the path to x alone does not meet the function that refuses
        except RuntimeError as error:
            if "once_differentiable" not in str(error):
                raise
            raise ValueError(
                f"{type(target).__name__} can be differentiated only once, and the derivative of its score is needed "
                "here: take a target by automatic differentiation instead, such as ClassificationPosterior, or a "
                "LangevinNetwork with truncate=True"
            ) from None


@contextmanager
def _gradients_kept(of: Tensor) -> Iterator[None]:
    """Inside, backward from ``of`` may write to the ``.grad`` of any leaf; after, all have what they had."""
    leaves, left, seen = [], [of.grad_fn], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        left += [following for following, _ in node.next_functions]
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    try:
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


def check_precision(density: Callable[[Tensor], Tensor], x: Tensor, name: str) -> None:
    """Say so if a density refuses these points for their precision alone.

    Raises:
        ValueError: naming both precisions.

    Example:
        >>> check_precision(lambda x: x @ torch.ones(2), torch.zeros(1, 2), "log_prob")  # silent where all is well
    """
    other = torch.float32 if x.dtype == torch.float64 else torch.float64

    def refuses(x: Tensor) -> bool:
        try:
            with torch.no_grad():
                density(x)
        except (RuntimeError, ValueError, TypeError):
            return True
        return False

    if refuses(x) and not refuses(x.to(other)):
        raise ValueError(
            f"{name} computes in {other} and the sampler draws {x.dtype}: give the sampler "
            f"dtype={other} (or initial values of it), or convert the target's data"
        ) from None


def check_finite(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> None:
    """Evaluate once and raise a ValueError if the target or its score is not finite at these points.

    Raises:
        ValueError: also if the target works in another precision than that of the points, or without gradients.

    Example:
        >>> check_finite(Gaussian(torch.zeros(2), torch.eye(2)), torch.zeros(1, 2))  # silent where all is well
    """
    try:
        value = log_prob(target, x, batch)
    except torch.linalg.LinAlgError:  # whatever the other precision would do
        raise
    except RuntimeError:
        check_precision(lambda rows: log_prob(target, rows, batch), x, type(target).__name__)
        raise
    _refuse_not_finite(target, "log_prob", value)
    try:
        gradient = score(target, x, batch)
    except RuntimeError as error:
        if "numpy()" in str(error) or "appears to not have been used in the graph" in str(error):
            raise ValueError(_not_differentiable(target)) from error
        raise
    _refuse_not_finite(target, "score (the gradient of log_prob)", gradient)
    whole = getattr(target, "streamed", False) and batch is None  # a pass over all data for it would be too much
    if hasattr(target, "network") and hasattr(target, "log_likelihood") and not hasattr(target, "score") and not whole:
        with torch.enable_grad():  # the prior's graph would hide that the likelihood has none
            x = x.detach().requires_grad_()
            value = target.log_likelihood(x) if batch is None else target.log_likelihood(x, batch)
            if not value.requires_grad:
                raise ValueError(_not_differentiable(target).replace(".log_prob is", "'s likelihood is"))


def _refuse_not_finite(target: Target, name: str, tensor: Tensor) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(
            f"the {name} of {type(target).__name__} is not finite at the sampler's first points: look for NaN in its "
            "data; put parameters that have a support, such as scales, into Constrained; or start the sampler closer"
        )


@contextmanager
def same_draws(device: torch.device) -> Iterator[None]:
    """Inside, the global generators of torch, NumPy and Python start from a seed; outside they go on as if untouched.

    For looks at data that are augmented at random: each sees the same, and changes nothing.

    Example:
        >>> with same_draws(torch.device("cpu")):
        ...     first = torch.randn(1)
        >>> with same_draws(torch.device("cpu")):
        ...     bool(torch.randn(1) == first)
        True
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # others draw from it
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(0)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@torch.no_grad()
def check_rows(density: Callable[[Tensor], Tensor], x: Float[Tensor, "n d"], apart: bool = False) -> None:
    """Refuse a log-density whose number for one point depends on the others, at two points near the first of ``x``.

    One that draws random numbers, and so differs from itself, is let through. One that is made for a certain number of
    points has to give them the same numbers in another order, unless they are ``apart``: each with its own density.

    Raises:
        GPVIError: naming the numbers.

    Example:
        >>> check_rows(lambda x: -0.5 * x.square().sum(-1), torch.zeros(1, 2))  # silent where all is well
    """
    rng = torch.Generator().manual_seed(0)
    away = torch.randn(2, x.shape[-1], generator=rng, dtype=torch.float64, device="cpu")
    pair = x[:1].detach() + 0.1 * away.to(x)

    def each(points: Tensor) -> Tensor:
        return torch.cat([density(point) for point in points.split(1)])

    mixed = "log_prob mixes points: sum over all axes but the first, as .sum(-1) does; a number per point needs "
    mixed += "[:, None] before it meets a vector per point, and targets (N, 1) want .squeeze(-1)"
    try:
        alone = each(pair)
        of_all = len(x) > 1 and len(alone) == 2 * len(x)  # each alone as many numbers as there are points
    except (RuntimeError, ValueError):
        of_all = True
    if of_all:
        if not apart:
            _check_order(density, x, mixed)
        return
    try:
        together = density(pair)
    except (RuntimeError, ValueError) as error:
        raise GPVIError(f"{mixed} ({error})") from error
    if alone.shape != together.shape or (
        _differ((alone, together), each, density, pair) and torch.equal(alone, each(pair))
    ):
        raise GPVIError(f"{mixed} (alone two have {alone.tolist()}, together {together.tolist()})")


def _check_order(density: Callable[[Tensor], Tensor], x: Float[Tensor, "n d"], mixed: str) -> None:
    """Refuse a density of a certain number of points that gives each a number of its place, such as of its own datum.

    It has as many points as data, perhaps by chance.
    """
    rng = torch.Generator().manual_seed(0)
    away = torch.randn(x.shape, generator=rng, dtype=torch.float64, device="cpu")
    points = x.detach() + 0.1 * away.to(x)
    try:
        values, turned = density(points), density(points.flip(0)).flip(0)
        of_its_place = _differ((values, turned), density, lambda x: density(x.flip(0)).flip(0), points)
    except (RuntimeError, ValueError):
        return
    if of_its_place and torch.equal(values, density(points)):
        number = len(x)
        raise GPVIError(
            f"{mixed} (the {number} points have other numbers in another order: {number} data? A target that means it "
            f"has num_points = {number})"
        )


def points_differ(target: object) -> bool:
    """Whether a target says that each of its points has a density of its own.

    It does by ``num_points``, or has a likelihood made for so many networks, which :class:`Posterior` has looked at.

    Example:
        >>> points_differ(Gaussian(torch.zeros(2), torch.eye(2)))
        False
    """
    return hasattr(target, "num_points") or hasattr(target, "likelihood")


@torch.no_grad()
def check_fixed(density: Callable[[Tensor], Tensor], x: Float[Tensor, "n d"]) -> None:
    """Refuse a density that has another number at each evaluation.

    Raises:
        GPVIError: with the remedy.

    Example:
        >>> check_fixed(lambda x: -0.5 * x.square().sum(-1), torch.zeros(1, 2))  # silent where all is well
    """
    first, second = density(x), density(x)
    if not _alike(first, second):
        raise GPVIError(
            f"log_prob has another number at each evaluation ({first[0].item():.6g}, then {second[0].item():.6g}): "
            "take all data in place of a minibatch, and a module without dropout, as .eval() makes it"
        )


def _alike(one: Tensor, other: Tensor) -> bool:
    """The same up to half of their digits."""
    close = torch.finfo(one.dtype).eps ** 0.5
    return torch.allclose(one, other, rtol=close, atol=close, equal_nan=True)


def _differ(
    values: tuple[Tensor, Tensor],
    one: Callable[[Tensor], Tensor],
    other: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n d"],
) -> bool:
    """Whether two densities of these values at ``x`` differ there and, if they have numbers there, at points near.

    At ``x`` alone it may be rounding: a normal likelihood of small scale amplifies that of what a network predicts,
    another one for each shape of a batch, and where the prior cancels the likelihood little else is left.
    """
    if _alike(*values):
        return False
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64, device="cpu")
    near = x + 0.1 * (1 + x.abs()) * noise.to(x)
    try:
        first, second = one(near), other(near)
    except (RuntimeError, ValueError):
        return True
    return not (bool(first.isfinite().all()) and _alike(first, second))


@torch.no_grad()
def check_all_data(target: Target, x: Float[Tensor, "n d"]) -> None:
    """Refuse a target whose value without a minibatch is not that on a minibatch of all its ``num_data``.

    One that has no data, takes no minibatches or draws random numbers is let through.

    Raises:
        GPVIError: if the two values differ.

    Example:
        >>> x = torch.zeros(3, 1)
        >>> posterior = Posterior(mlp([1, 2, 1]), NormalLikelihood(1.0), x, x[:, 0])
        >>> check_all_data(posterior, torch.zeros(1, posterior.dim))  # silent where all is well
    """
    number = getattr(target, "num_data", None)
    if not isinstance(number, int) or getattr(target, "streamed", False):
        return
    points, data = x if hasattr(target, "num_points") else x[:1], torch.arange(number, device=x.device)

    def every(x: Tensor) -> Tensor:
        return target.log_prob(x, data)

    try:
        whole, at_all = target.log_prob(points), every(points)
    except TypeError:  # it takes none, or nothing else
        return
    if _differ((whole, at_all), target.log_prob, every, points) and torch.equal(whole, target.log_prob(points)):
        raise GPVIError(
            f"{type(target).__name__}.log_prob(x) must be its value on all {number} data, log_prob(x, "
            f"torch.arange({number})): the two are {whole[0].item():.6g} and {at_all[0].item():.6g}. The "
            "log-likelihood is a sum, not a mean, of a minibatch times num_data / len(batch), and without one of y, "
            "not y[None]: rows = slice(None) if batch is None else batch"
        )


@torch.no_grad()
def check_minibatch(target: Target, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"]) -> None:
    """Refuse a target that does not scale a minibatch by N / B: with each of its data twice it must have one value.

    One that draws random numbers is let through.

    Raises:
        GPVIError: if the two values differ.

    Example:
        >>> x = torch.zeros(3, 1)
        >>> posterior = Posterior(mlp([1, 2, 1]), NormalLikelihood(1.0), x, x[:, 0])
        >>> check_minibatch(posterior, torch.zeros(1, posterior.dim), torch.arange(2))  # silent where all is well
    """

    def on_batch(x: Tensor) -> Tensor:
        return target.log_prob(x, batch)

    def on_both(x: Tensor) -> Tensor:
        return target.log_prob(x, torch.cat([batch, batch]))

    once, twice = on_batch(x), on_both(x)
    if _differ((once, twice), on_batch, on_both, x) and torch.equal(once, on_batch(x)):
        raise GPVIError(
            f"{type(target).__name__}.log_prob must scale the log-likelihood of a minibatch by num_data / len(batch): "
            f"with each of {len(batch)} data twice it is {twice[0].item():.6g}, with each once {once[0].item():.6g}"
        )
