"""The head ``g_{:k}`` of a generator, and the block ``A + Λ_1`` of its Jacobian: what decides about injectivity."""

from __future__ import annotations

from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.samplers import Generator


def symmetric_part_minimum(matrix: Float[Tensor, "n k k"]) -> Float[Tensor, " n"]:
    """Smallest eigenvalue of ``(M + Mᵀ) / 2``: positive if and only if ``vᵀMv > 0`` for every ``v ≠ 0``."""
    return torch.linalg.eigvalsh(0.5 * (matrix + matrix.mT)).amin(-1)


@torch.no_grad()
def head_statistics(generator: Generator, z: Float[Tensor, "n d"]) -> dict[str, Float[Tensor, " n"]]:
    """What decides about injectivity, at each ``z``, for the k x k block ``A + Λ_1`` of the Jacobian.

    Returns:
        ``sign`` of its determinant; ``smallest_real``, the smallest real part of its eigenvalues;
        ``smallest_symmetric``, the smallest eigenvalue of its symmetric part (positive for all z on a convex domain
        implies injectivity, appendix A.4); ``smallest_preconditioned``, the same for ``H̄^{-1}(A + Λ_1)`` with the mean
        ``H̄`` over these ``z``, which tests the same ``f`` in better coordinates; ``condition``, the ratio of its
        extreme singular values.
    """
    head = generator.linearize(z).head().double()
    singular = torch.linalg.svdvals(head)
    preconditioned = torch.linalg.solve(head.mean(0), head)
    return {
        "sign": torch.linalg.slogdet(head)[0],
        "smallest_real": torch.linalg.eigvals(head).real.amin(-1),
        "smallest_symmetric": symmetric_part_minimum(head),
        "smallest_preconditioned": symmetric_part_minimum(preconditioned),
        "condition": singular[:, 0] / singular[:, -1],
    }


def head_lipschitz_bound(generator: Generator) -> float:
    """Upper bound on the Lipschitz constant of ``g_{:k}``: its layers' spectral norms times its activations' slopes.

    ``f`` is injective if the bound is below the smallest λ of the first k.
    """
    weights = [*generator.hidden_weights, generator.output.weight[: generator.noise_dim]]
    norms = [float(torch.linalg.matrix_norm(weight.detach(), 2)) for weight in weights]
    return reduce(float.__mul__, norms) * ACTIVATIONS[generator.activation].steepest ** len(generator.hidden)


def leave_out_head(generator: Generator) -> None:
    """Sets ``g_{:k}`` to a constant for good: ``A = 0``, so that ``f`` is injective for every λ > 0.

    Rows :k of the output weight become zero and get zero gradients, so Adam never moves them. The biases stay free.
    """
    keep = torch.ones_like(generator.output.weight)
    keep[: generator.noise_dim] = 0
    with torch.no_grad():
        generator.output.weight.mul_(keep)
    generator.output.weight.register_hook(lambda gradient: gradient * keep)
