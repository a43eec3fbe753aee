"""Where a method in function space looks at its functions, beside the minibatch: the distribution ν of extra inputs.

A sampler of points is called as ``points(inputs, rng) -> (b, ...)`` with all training inputs ``(N, ...)``. A prior that
is seen at the data alone says nothing elsewhere, so what ν reaches decides where uncertainty is to be trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_count, check_rng
from gpvi_lib.samplers import standard_normal


def _check_number(number: int) -> None:
    check_count("the number of extra points", number, least=0)
    if number < 1:
        raise ValueError(
            f"a set of extra points needs at least one, got {number}; for the minibatch alone, points=None"
        )


def check_one_point(shape: Sequence[int], inputs: Tensor) -> None:
    """Refuse points of another shape than the inputs ``(N, ...)``.

    Raises:
        ValueError: naming both shapes.
    """
    if tuple(shape) != inputs.shape[1:]:
        raise ValueError(
            f"extra points have shape {tuple(shape)} each and the inputs {tuple(inputs.shape[1:])}: both go into the "
            "same network"
        )


def _check_floating(inputs: Tensor) -> None:
    if not inputs.is_floating_point():
        raise ValueError(
            f"Jitter, KDE and Uniform draw real numbers and the inputs are {inputs.dtype}: give a tensor of further "
            "inputs, or points=None for the minibatch alone"
        )


def _rows(number: int, inputs: Tensor, rng: torch.Generator) -> Tensor:
    """Training inputs drawn with replacement.

    Raises:
        ValueError: if they are no numbers to add noise to.
    """
    _check_floating(inputs)
    return inputs[torch.randint(len(inputs), (number,), generator=rng, device=inputs.device)]


@dataclass(frozen=True)
class Jitter:
    """Training inputs plus ``N(0, a² / (N p))`` on each of the ``p`` coordinates: the paper's code.

    For N in the hundreds that is hardly more than the data again: 0.013 on Boston with ``a = 1``, where inputs have a
    standard deviation of 0.28.

    Attributes:
        number: b, at least one.
        scale: ``a``, at least 0.

    Raises:
        ValueError: if there are no points to draw, the scale is negative, or the inputs are not floating point.

    Example:
        >>> inputs = torch.linspace(-1, 1, 50)[:, None]
        >>> Jitter(10)(inputs, torch.Generator().manual_seed(0)).shape
        torch.Size([10, 1])
    """

    number: int
    scale: float = 0.1

    def __post_init__(self) -> None:
        _check_number(self.number)
        if not self.scale >= 0:
            raise ValueError(f"the scale a of the jitter must not be negative, got {self.scale}")

    def __call__(self, inputs: Float[Tensor, "N ..."], rng: torch.Generator) -> Float[Tensor, "b ..."]:
        """Draw ``b`` points."""
        rows = _rows(self.number, inputs, rng)
        return rows + self.scale / inputs.numel() ** 0.5 * standard_normal(rows.shape, rng, rows)


@dataclass(frozen=True)
class KDE:
    """Draws of a kernel density estimate of the inputs, with Scott's bandwidth ``sd_j N^{-1/(p + 4)}`` on coordinate j.

    Attributes:
        number: b, at least one.

    Raises:
        ValueError: if there are no points to draw, or the inputs are not floating point.

    Example:
        >>> inputs = torch.linspace(-1, 1, 50)[:, None]
        >>> KDE(10)(inputs, torch.Generator().manual_seed(0)).shape
        torch.Size([10, 1])
    """

    number: int

    def __post_init__(self) -> None:
        _check_number(self.number)

    def __call__(self, inputs: Float[Tensor, "N ..."], rng: torch.Generator) -> Float[Tensor, "b ..."]:
        """Draw ``b`` points."""
        rows = _rows(self.number, inputs, rng)
        bandwidth = inputs.std(0, correction=0) * len(inputs) ** (-1 / (inputs[0].numel() + 4))
        return rows + bandwidth * standard_normal(rows.shape, rng, rows)


@dataclass(frozen=True)
class Uniform:
    """Uniform on a box.

    Attributes:
        number: b, at least one.
        low, high: the box, ``low < high``: a number for all coordinates, or one for each.

    Raises:
        ValueError: if there are no points to draw, the box is empty, it is given for other coordinates than those of
            the inputs, or the inputs are not floating point.

    Example:
        >>> inputs = torch.linspace(-1, 1, 50)[:, None]
        >>> points = Uniform(10, -2.0, 2.0)(inputs, torch.Generator().manual_seed(0))
        >>> points.shape, bool((points.abs() <= 2).all())
        (torch.Size([10, 1]), True)
    """

    number: int
    low: float | Sequence[float]
    high: float | Sequence[float]

    def __post_init__(self) -> None:
        _check_number(self.number)
        low, high = torch.as_tensor(self.low), torch.as_tensor(self.high)
        alike = low.shape == high.shape or 1 in (low.numel(), high.numel())
        if not (alike and bool((low < high).all())):
            raise ValueError(f"a box needs low < high in every coordinate, got {self.low} and {self.high}")

    def __call__(self, inputs: Float[Tensor, "N ..."], rng: torch.Generator) -> Float[Tensor, "b ..."]:
        """Draw ``b`` points."""
        check_rng(rng)
        _check_floating(inputs)
        low, high = (torch.as_tensor(end, dtype=inputs.dtype, device=inputs.device) for end in (self.low, self.high))
        for end in (low, high):
            if end.numel() > 1:  # not one number for all coordinates
                check_one_point(end.shape, inputs)
        shape = (self.number, *inputs.shape[1:])
        return low + (high - low) * torch.rand(shape, generator=rng, dtype=inputs.dtype, device=inputs.device)
