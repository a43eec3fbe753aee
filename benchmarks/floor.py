"""The least a step of GPVI with the block inverse can cost: bytes that must move, operations that must happen."""

from __future__ import annotations

from itertools import pairwise

from .cases import Size


def _weights(size: Size, dim: int) -> tuple[int, int]:
    """Weights of the generator, and of its output layer alone."""
    widths = [size.noise_dim, *size.hidden, dim]
    return sum((i + 1) * o for i, o in pairwise(widths)), (widths[-2] + 1) * dim


def bytes_moved(size: Size, dim: int, block: bool) -> float:
    """Bytes per step in float32, each weight matrix read once for each product that cannot share its pass.

    The forward pass of z and z' together; the backward pass, which reads the weights and writes their gradients;
    Adam, which reads weight, gradient and two moments and writes three of them; with the block inverse, one
    product with ``W_outᵀ`` more.
    """
    every, output = _weights(size, dim)
    return 4.0 * (every + 2 * every + 7 * every + (output if block else 0))


def operations(size: Size, dim: int, block: bool) -> float:
    """Multiplications and additions per step in the generator and in the inverse; the target's are left out.

    Forward over 2n points, backward over n (two products each); the block inverse adds ``W_outᵀ`` over 2n points,
    n heads ``A + Λ_1`` and n factorisations of k x k.
    """
    every, output = _weights(size, dim)
    n, k = size.samples, size.noise_dim
    total = 2.0 * every * 2 * n + 4.0 * every * n
    if block:
        widths = [k, *size.hidden]
        heads = sum(2.0 * k * i * o for i, o in pairwise(widths))
        total += 2.0 * output * 2 * n + n * (heads + 2 * k**3 / 3)
    return total
