r"""The four energy potentials of Rezende and Mohamed (2015, Table 1), and densities on the plane on a grid.

With ``w_1 = sin(2 π x_1 / 4)``, ``w_2 = 3 exp(-((x_1 - 1) / 0.6)^2 / 2)`` and ``w_3 = 3 sigmoid((x_1 - 1) / 0.3)``,

.. math::
    U_1 &= \tfrac12 ((\|x\| - 2) / 0.4)^2 - \log(e^{-((x_1 - 2)/0.6)^2/2} + e^{-((x_1 + 2)/0.6)^2/2}) \\
    U_2 &= \tfrac12 ((x_2 - w_1) / 0.4)^2 \\
    U_3 &= -\log(e^{-((x_2 - w_1)/0.35)^2/2} + e^{-((x_2 - w_1 + w_2)/0.35)^2/2}) \\
    U_4 &= -\log(e^{-((x_2 - w_1)/0.4)^2/2} + e^{-((x_2 - w_1 + w_3)/0.35)^2/2})
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.checks import check_rng
from gpvi_lib.errors import UnknownName
from gpvi_lib.targets.base import log_prob

HALF_WIDTH = 4.0
"""Rezende and Mohamed draw their densities on ``[-4, 4]^2``."""

PARTS = {
    "twin_moons": ("left", "right"),
    "sinusoid": ("first", "second", "third", "fourth"),
    "sin_bisect": ("left", "upper", "lower", "right"),
    "sin_split": ("stem", "upper", "lower"),
}
"""Potential -> the parts of the plane between which its mass is divided, see :meth:`EnergyPotential.part`."""


def _gauss(residual: Tensor, width: float) -> Tensor:
    """``-(residual / width)^2 / 2``."""
    return -0.5 * (residual / width).square()


def _w1(first: Tensor) -> Tensor:
    return torch.sin(2 * math.pi * first / 4)


def _w2(first: Tensor) -> Tensor:
    return 3 * torch.exp(_gauss(first - 1, 0.6))


def _w3(first: Tensor) -> Tensor:
    return 3 * torch.sigmoid((first - 1) / 0.3)


@dataclass(frozen=True)
class EnergyPotential:
    r"""``p(x) ∝ exp(-U(x) - c(x_1))`` on R^2 with one of the four potentials ``U``, and a confinement ``c``.

    ``U_2, U_3, U_4`` do not fall off along ``x_1``: ``∫ exp(-U) dx`` is infinite, and there is no such density on
    R^2. The confinement ``c(x_1) = ½ (max(|x_1| - 4, 0) / s)^2`` is 0 on ``|x_1| <= 4`` and makes them densities
    whose ``x_1`` leaves the interval by about ``s``.

    Attributes:
        name: "twin_moons" (``U_1``), "sinusoid" (``U_2``), "sin_bisect" (``U_3``) or "sin_split" (``U_4``).
        confinement: ``s > 0``; ``None`` leaves ``c`` out.

    Raises:
        UnknownName: if there is no potential of that name.
        ValueError: if ``s <= 0``.

    Example:
        >>> target, x = EnergyPotential("twin_moons"), torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
        >>> target.log_prob(x).shape, [target.parts[i] for i in target.part(x)]
        (torch.Size([2]), ['right', 'left'])
    """

    name: str
    confinement: float | None = 0.2

    dim = 2
    num_data = None

    def __post_init__(self) -> None:
        if self.name not in PARTS:
            raise UnknownName.among("energy potential", self.name, PARTS)
        if self.confinement is not None and not self.confinement > 0:
            raise ValueError(f"the confinement's width must be positive or None, got {self.confinement}")

    def ridges(self, x: Float[Tensor, "n 2"]) -> list[tuple[Tensor, float]]:
        """Distance ``(n,)`` from each ridge of the density, along ``x_2`` (twin moons: radially), and its width."""
        first, second = x.unbind(-1)
        if self.name == "twin_moons":
            return [(x.norm(dim=-1) - 2, 0.4)]
        above = second - _w1(first)
        if self.name == "sinusoid":
            return [(above, 0.4)]
        if self.name == "sin_bisect":
            return [(above, 0.35), (above + _w2(first), 0.35)]
        return [(above, 0.4), (above + _w3(first), 0.35)]

    def energy(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """``U(x)``."""
        exponent = torch.stack([_gauss(*ridge) for ridge in self.ridges(x)]).logsumexp(0)
        if self.name == "twin_moons":
            exponent = exponent + torch.logaddexp(_gauss(x[:, 0] - 2, 0.6), _gauss(x[:, 0] + 2, 0.6))
        return -exponent

    def log_prob(self, x: Float[Tensor, "n 2"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """``-U(x) - c(x_1)``, not normalised."""
        value = -self.energy(x)
        if self.confinement is None:
            return value
        return value + _gauss((x[:, 0].abs() - HALF_WIDTH).clamp_min(0), self.confinement)

    def across(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """Distance from the nearest ridge: its spread says how wide a sampler makes the ridges."""
        distances = torch.stack([distance for distance, _ in self.ridges(x)])
        return distances.gather(0, distances.abs().argmin(0, keepdim=True))[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return PARTS[self.name]

    def part(self, x: Float[Tensor, "n 2"]) -> Int[Tensor, " n"]:
        """The part of the plane in which each point lies, an index into :attr:`parts`.

        The two moons; quarters of the sinusoid's length; of the bisected one the middle ``0 < x_1 < 2``, above and
        below the line midway between its ridges, and what lies to the left and right; of the split one the stem
        ``x_1 < 1.5``, and above and below that line.
        """
        first = x[:, 0]
        if self.name == "twin_moons":
            return (first > 0).long()
        if self.name == "sinusoid":
            return torch.bucketize(first.contiguous(), first.new_tensor([-2.0, 0.0, 2.0]))
        upper, lower = (distance for distance, _ in self.ridges(x))
        below = (upper + lower < 0).long()
        if self.name == "sin_bisect":
            return torch.where(first <= 0, 0, torch.where(first >= 2, 3, 1 + below))
        return torch.where(first < 1.5, 0, 1 + below)


class PlaneGrid:
    """A density on the plane that is known on a fine grid: its constant, its entropy, and draws from it.

    Integrals are sums over the ``(cells * fine)^2`` midpoints of a square, in float64.

    Args:
        target: a density on R^2, normalised or not, all but negligible outside the square.
        half_width: the square is ``[-half_width, half_width]^2``.
        cells: number of histogram cells along each side.
        fine: each cell is divided into ``fine x fine`` for integration and for draws.

    Attributes:
        log_normaliser: ``log ∫ p``.
        entropy: of ``p / ∫ p``, in nats.
        log_masses: log-probability of each cell, ``(cells, cells)``, first axis ``x_1``.

    Example:
        >>> zero, rng = torch.zeros(2, dtype=torch.float64), torch.Generator().manual_seed(0)
        >>> grid = PlaneGrid(Gaussian(zero, torch.diag(zero + 1)), cells=24)
        >>> round(grid.entropy, 2)  # 1 + log 2π
        2.84
        >>> grid.counts(grid.sample(1_000, rng)).sum()
        tensor(1000)
    """

    def __init__(self, target, half_width: float = 6.0, cells: int = 96, fine: int = 8) -> None:
        self.half_width, self.cells = half_width, cells
        side = cells * fine
        self._step = 2 * half_width / side
        at = (torch.arange(side, dtype=torch.float64) + 0.5) * self._step - half_width
        with torch.no_grad():
            log_p = log_prob(target, torch.cartesian_prod(at, at)) + 2 * math.log(self._step)
        self.log_normaliser = float(log_p.logsumexp(0))
        log_mass = log_p - self.log_normaliser
        self.entropy = float(2 * math.log(self._step) + torch.special.entr(log_mass.exp()).sum())  # 0 log 0 = 0
        self.log_masses = log_mass.view(cells, fine, cells, fine).logsumexp((1, 3))
        self._cumulative = log_mass.exp().cumsum(0)

    def sample(self, num_samples: int, rng: torch.Generator) -> Float[Tensor, "n 2"]:
        """Independent draws: a fine cell by its probability, then uniform within it; float32, on the CPU."""
        check_rng(rng)
        u = torch.rand(num_samples, generator=rng, dtype=torch.float64) * self._cumulative[-1]
        side = round(2 * self.half_width / self._step)
        index = torch.searchsorted(self._cumulative, u).clamp_max(side**2 - 1)
        corner = torch.stack([index // side, index % side], dim=-1)
        jitter = torch.rand(num_samples, 2, generator=rng, dtype=torch.float64)
        return ((corner + jitter) * self._step - self.half_width).float()

    def counts(self, x: Float[Tensor, "n 2"]) -> Int[Tensor, "c c"]:
        """How many points lie in each cell; one outside the square counts in the nearest cell."""
        scale = self.cells / (2 * self.half_width)
        index = ((x.double() + self.half_width) * scale).floor().clamp(0, self.cells - 1).long()
        flat = torch.bincount(index[:, 0] * self.cells + index[:, 1], minlength=self.cells**2)
        return flat.view(self.cells, self.cells)
