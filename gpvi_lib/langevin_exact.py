r"""The exact law of a chain of Langevin layers with fixed step sizes, where it can be computed.

On the line ``q_T`` is ``q_0`` pushed T times through ``N(z + η s(z), 2 η)``, by quadrature on a grid. For a Gaussian
target in any dimension every layer keeps Gaussians Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.targets.base import Target, score


@dataclass(frozen=True)
class LineGrid:
    """Cells of equal width on an interval of the line, in float64.

    Attributes:
        low, high: the interval; it must hold all mass, and :meth:`push` says how much left it.
        cells: their number.

    Raises:
        ValueError: if the interval is empty, or there are fewer than two cells.

    Example:
        >>> grid, one = LineGrid(-10.0, 10.0, cells=500), torch.ones(1, dtype=torch.float64)
        >>> target = Gaussian(0 * one, torch.diag(one))
        >>> start = grid.normal(-4 * one, 1.0)[0]
        >>> end = grid.push(start, target, 0.1 * one.expand(20))
        >>> log_p = target.log_prob(grid.centres[:, None])
        >>> round(grid.divergence(start, log_p), 1), round(grid.divergence(end, log_p), 1)
        (8.0, 0.1)
    """

    low: float = -30.0
    high: float = 30.0
    cells: int = 1_500

    def __post_init__(self) -> None:
        if not (self.low < self.high and self.cells >= 2):
            raise ValueError(f"a grid needs low < high and 2 cells, got {self.low}, {self.high} and {self.cells}")

    @property
    def width(self) -> float:
        """Of a cell."""
        return (self.high - self.low) / self.cells

    @property
    def centres(self) -> Float[Tensor, " g"]:
        """Of the cells."""
        return self.low + self.width * (torch.arange(self.cells, dtype=torch.float64) + 0.5)

    def masses(self, log_prob: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """Probabilities of the cells of a normalised density, from its logarithm at their centres."""
        return self.width * log_prob.exp()

    def normal(self, mean: Float[Tensor, " m"], sd: float) -> Float[Tensor, "m g"]:
        """Probabilities of the cells under ``N(mean_i, sd^2)``.

        By the midpoint rule where the normal is wider than a cell: sums over many cells are exact to 1e-8, a single
        cell's to about ``(width / sd)^2 / 24`` of it. Narrower ones are integrated.
        """
        if sd > self.width:
            density = torch.exp(-0.5 * ((self.centres - mean[:, None]) / sd).square())
            return density * (self.width / (sd * math.sqrt(2 * math.pi)))
        edges = torch.linspace(self.low, self.high, self.cells + 1, dtype=torch.float64)
        return torch.special.ndtr((edges - mean[:, None]) / sd).diff(dim=1)

    def push(self, masses: Float[Tensor, " g"], target: Target, steps: Float[Tensor, " T"]) -> Float[Tensor, " g"]:
        """The cells' probabilities after layers with these step sizes; their sum is below 1 by what left the grid."""
        slope = score(target, self.centres[:, None])[:, 0]
        for step in steps.tolist():
            masses = masses @ self.normal(self.centres + step * slope, math.sqrt(2 * step))
        return masses

    def divergence(self, masses: Float[Tensor, " g"], log_prob: Float[Tensor, " g"]) -> float:
        """``KL(q || p)`` in nats of cell probabilities from a normalised density.

        Mass that left the grid makes this number too small: look at the sum of the masses first.
        """
        occupied = masses > 0
        log_p = log_prob[occupied] + math.log(self.width)
        return float((masses[occupied] * (masses[occupied].log() - log_p)).sum())


def gaussian_chain(
    mean: Float[Tensor, " d"],
    covariance: Float[Tensor, "d d"],
    target_mean: Float[Tensor, " d"],
    precision: Float[Tensor, "d d"],
    steps: Float[Tensor, "T d"],
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Mean and covariance of ``q_T`` for ``q_0 = N(mean, covariance)`` and a Gaussian target.

    ``m ← μ + (I - ηΛ)(m - μ)`` and ``S ← (I - ηΛ) S (I - ηΛ)ᵀ + 2η``, with η a diagonal matrix.

    Args:
        mean, covariance: of q_0.
        target_mean, precision: μ and Λ of the target.
        steps: η of each layer and coordinate.

    Example:
        >>> mean, covariance = gaussian_chain(
        ...     torch.tensor([-4.0]), torch.eye(1), torch.zeros(1), torch.eye(1), torch.full((20, 1), 0.1)
        ... )
        >>> round(mean.item(), 2)  # -4 * 0.9**20
        -0.49
    """
    identity = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
    for step in steps:
        contraction = identity - step[:, None] * precision
        mean = target_mean + contraction @ (mean - target_mean)
        covariance = contraction @ covariance @ contraction.mT + 2 * torch.diag(step.expand(len(mean)))
    return mean, covariance
