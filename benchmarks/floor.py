"""The least a step of a generator can cost: bytes that must move, operations that must happen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from .cases import Size, generator_weights


@dataclass(frozen=True)
class Phase:
    """One part of a step; no two parts overlap, because each needs the result of the one before.

    Attributes:
        name: for people.
        bytes: that must move between memory and processor, in float32.
        operations: multiplications and additions.
    """

    name: str
    bytes: float
    operations: float

    def milliseconds(self, bandwidth: float, rate: float) -> float:
        """The least time at ``bandwidth`` bytes and ``rate`` operations per second, the two at the same time."""
        return 1e3 * max(self.bytes / bandwidth, self.operations / rate)


def phases(size: Size, dim: int, block: bool) -> list[Phase]:
    """What a step of amortised SVGD, or with ``block`` of GPVI, cannot do without; the target's score is left out.

    Forward over z and z' together (2n points). Backward over n: the weights are read, their gradients written. Adam
    reads weight, gradient and two moments and writes three of them. The block inverse multiplies 2n more vectors
    with ``W_outᵀ`` while the backward pass reads it, and adds n heads ``A + Λ_1`` with n factorisations of k x k.
    """
    every, output = generator_weights(size, dim)
    n, k = size.samples, size.noise_dim
    extra = 2.0 * output * 2 * n if block else 0.0
    found = [
        Phase("forward", 4.0 * every, 2.0 * every * 2 * n),
        Phase("backward", 8.0 * every, 4.0 * every * n + extra),
        Phase("Adam", 28.0 * every, 0.0),
    ]
    if block:
        heads = sum(2.0 * k * i * o for i, o in pairwise([k, *size.hidden]))
        found.append(Phase("heads", 0.0, n * (heads + 2 * k**3 / 3)))
    return found
