"""Whether the gradient that training descends is the slope of the log-density: by differences of its values."""

import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.errors import SlopeWarning
from gpvi_lib.targets.base import Target, log_prob, score

DIRECTIONS = 2
"""Random directions in which values are compared, besides that of the gradient."""
STEPS = 17
"""Distances, each half of the one before, the largest the norm of the point and at least 1."""
ROUNDING = 32
"""By how many units in the last place a value may be off."""
SETTLED = 0.01
"""Relative difference between slopes at three distances below which they are one slope."""
APART = 0.1
"""Relative difference between that slope and the gradient's above which they are two."""
NEIGHBOURS = 8
"""Points, each the next number away in every coordinate, at which values show how they are rounded."""
EVALUATED = 10_000
"""How many points times data are evaluated at once."""


def check_slope(
    target: Target, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None, stacklevel: int = 2
) -> None:
    """Warn if the gradient at the first of ``x`` is not the slope of ``log_prob`` there.

    Along the gradient ``s`` and some random directions ``u`` (unit vectors) it compares ``s·u`` with the central
    differences ``(log p(x + h u) - log p(x - h u)) / 2h``. It takes the smallest ``h`` at which neither rounding nor
    curvature counts: three distances in a row agree. Where there is none, it says nothing. Two points must differ: one
    may lie too near to a kink.

    Args:
        target: by automatic differentiation, or with a ``score`` of its own.
        x: ``n`` points; the second looked at is near the first.
        batch: indices of data.
        stacklevel: of the frame that the warning names, as in ``warnings.warn``.

    Warns:
        SlopeWarning: with the two numbers, where they differ by more than a tenth.

    Example:
        >>> check_slope(Gaussian(torch.zeros(2), torch.eye(2)), torch.ones(1, 2))  # silent where all is well
    """
    rng = torch.Generator().manual_seed(0)
    away = torch.randn(x.shape[1], generator=rng, dtype=torch.float64, device="cpu")
    first = x[:1].detach()
    found = _two_slopes(target, first, batch)
    if found and _two_slopes(target, first + 0.1 * away.to(x), batch):
        warnings.warn(_message(target, *found), SlopeWarning, stacklevel)


@torch.no_grad()
def _two_slopes(target: Target, x: Float[Tensor, "1 d"], batch: Tensor | None) -> tuple[float, float] | None:
    """The gradient's slope and that of the values, in the first direction in which they differ."""
    rng = torch.Generator().manual_seed(1)
    try:
        gradient, rounded = score(target, x, batch), _rounded(target, x, batch, rng)
    except (RuntimeError, ValueError):  # made for a certain number of points
        return None
    random = torch.randn(DIRECTIONS, x.shape[1], generator=rng, dtype=torch.float64, device="cpu")
    along = torch.cat([gradient, random.to(x)])
    along = along[along.norm(dim=-1) > 0]
    distances = max(1.0, float(x.norm())) * 0.5 ** torch.arange(STEPS, dtype=x.dtype, device=x.device)
    rounding = (rounded / distances.double()).tolist()
    directions = along / along.norm(dim=-1, keepdim=True)
    for u, said in zip(directions, (directions @ gradient[0]).tolist(), strict=True):
        try:
            ahead, behind = (_values(target, x + sign * distances[:, None] * u, batch) for sign in (1, -1))
            slopes = ((ahead - behind).double() / (2 * distances)).tolist()
            k = _settled(slopes, rounding)
            if k is None or abs(slopes[k] - said) <= APART * max(abs(slopes[k]), abs(said)):
                continue
            there = torch.cat([score(target, x + sign * distances[k] * u, batch) for sign in (1, -1)])
        except Exception:  # outside the support, whatever the target does there
            return None
        if abs(float((there @ u).mean()) - said) < 0.5 * abs(slopes[k] - said):  # else it is curvature
            return said, slopes[k]
    return None


def _rounded(target: Target, x: Float[Tensor, "1 d"], batch: Tensor | None, rng: torch.Generator) -> Tensor:
    """By how much the value at x may be off: its last places, and those of the terms that it is made of."""
    value = log_prob(target, x, batch).double()
    signs = torch.rand(NEIGHBOURS, x.shape[1], generator=rng, dtype=torch.float64, device="cpu").to(x) - 0.5
    next_to = torch.nextafter(x.expand_as(signs), signs.sign() * torch.inf)
    moved = (_values(target, next_to, batch).double() - value).abs().max()
    return ROUNDING * torch.finfo(x.dtype).eps * value.abs() + 4 * moved


def _values(target: Target, points: Float[Tensor, "m d"], batch: Tensor | None) -> Float[Tensor, " m"]:
    """``log_prob`` in parts, so that memory does not grow with the data."""
    data = getattr(target, "num_data", None) or 1 if batch is None else len(batch)
    return torch.cat([log_prob(target, part, batch) for part in points.split(max(1, EVALUATED // data))])


def _settled(slopes: list[float], rounding: list[float]) -> int | None:
    """The smallest distance at which the slope is known, not 0, and agrees with those at the two distances above."""
    for k in range(len(slopes) - 1, 1, -1):
        three, most = slopes[k - 2 : k + 1], SETTLED * abs(slopes[k])
        if 0 < most >= rounding[k] and max(three) - min(three) <= most:
            return k
    return None


def _message(target: Target, said: float, found: float) -> str:
    own = hasattr(target, "score")
    whose = "its score(x, batch)" if own else "autograd"
    cut = "something in it is cut off: leave out .detach(), .item(), no_grad() and torch.tensor(...)"
    return (
        f"the gradient of {type(target).__name__}.log_prob is not the slope of its values: in one direction {whose} "
        f"has {said:.4g}, and differences of values have {found:.4g}. Training goes by the former; "
        f"{'mend that' if own else cut}"
    )
