"""Batched linear algebra that is safe on every device.

On CPUs, PyTorch's batched LU (``torch.linalg.solve``, ``slogdet``, ``inv``) fails for matrices above roughly
128 x 128 when it runs on more than one thread: oneMKL reports a bad argument to SLASWP and the call hangs or
raises. One matrix at a time is correct and as fast, so larger CPU matrices are handled in a loop.

On a GPU, ``torch.linalg.solve`` waits for the device to see whether a matrix was singular; :func:`solve` does not.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST_BATCHED_CPU_LU = 64
"""Matrices above this size are factorised one by one on the CPU (the failures start above 128)."""

SMALLEST_INVERSE_BY_HALVES, SMALLEST_HALF = 32, 16
"""Above the first size :func:`inverse` inverts triangles by halves, down to the second size."""


def _one_by_one(a: Tensor) -> bool:
    return a.ndim > 2 and a.device.type == "cpu" and a.shape[-1] > LARGEST_BATCHED_CPU_LU


def solve(a: Float[Tensor, "*n k k"], b: Float[Tensor, "*n r s"], *, left: bool = True) -> Float[Tensor, "*n r s"]:
    """Solve ``a x = b``, or ``a[i] x[i] = b[i]`` for every ``i``; with ``left=False`` ``x a = b``.

    Rows in memory are columns to LAPACK, so for ``aᵀ h = u`` with the vectors ``u`` as rows of ``b`` ask for
    ``x a = b``: on a CPU that is faster than transposing both, up to twice as fast.

    Raises:
        torch.linalg.LinAlgError: on a CPU, if some ``a[i]`` is exactly singular; elsewhere its ``x[i]`` is not finite.
    """
    if a.device.type != "cpu":
        return torch.linalg.solve_ex(a, b, left=left)[0]
    if not _one_by_one(a):
        return torch.linalg.solve(a, b, left=left)
    return torch.stack([torch.linalg.solve(ai, bi, left=left) for ai, bi in zip(a, b, strict=True)])


def inverse(a: Float[Tensor, "n k k"]) -> Float[Tensor, "n k k"]:
    """``a[i]⁻¹`` for every ``i``.

    LAPACK substitutes one matrix after the other on one thread, at a fraction of a product's speed. Where that is most
    of the time, the factors of ``a = P L U`` are inverted by halves instead, which is products on all threads.

    Raises:
        torch.linalg.LinAlgError: on a CPU, if some ``a[i]`` is exactly singular; elsewhere its inverse is not finite.
    """
    if a.device.type != "cpu":
        return torch.linalg.inv_ex(a)[0]
    if _one_by_one(a):
        return torch.stack([torch.linalg.inv(ai) for ai in a])
    if a.shape[-1] <= SMALLEST_INVERSE_BY_HALVES:
        return torch.linalg.inv(a)
    factors, pivots, info = torch.linalg.lu_factor_ex(a)
    if bool(info.any()):
        raise torch.linalg.LinAlgError("a matrix is singular")
    permutation = torch.lu_unpack(factors, pivots, unpack_data=False)[0]
    return _invert_triangular(factors, upper=True) @ _invert_triangular(factors, upper=False) @ permutation.mT


def _invert_triangular(a: Float[Tensor, "n k k"], upper: bool) -> Float[Tensor, "n k k"]:
    """Inverses of the upper or the unit lower triangles of ``a``: ``[[A, C], [0, B]]`` gets the corner ``-A⁻¹CB⁻¹``."""
    k, half = a.shape[-1], a.shape[-1] // 2
    if k <= SMALLEST_HALF:
        identity = torch.eye(k, dtype=a.dtype, device=a.device)
        return torch.linalg.solve_triangular(a, identity, upper=upper, unitriangular=not upper)
    first, last = slice(half), slice(half, None)
    found = torch.zeros_like(a)
    found[:, first, first] = _invert_triangular(a[:, first, first], upper)
    found[:, last, last] = _invert_triangular(a[:, last, last], upper)
    row, column = (first, last) if upper else (last, first)
    found[:, row, column] = -(found[:, row, row] @ a[:, row, column] @ found[:, column, column])
    return found


def det(a: Float[Tensor, "*n k k"]) -> Float[Tensor, "*n"]:
    """``det a[i]`` for every ``i``; differentiable in ``a``, also where it is 0."""
    return torch.stack([torch.linalg.det(ai) for ai in a]) if _one_by_one(a) else torch.linalg.det(a)


def slogdet(a: Float[Tensor, "n k k"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Sign and log-magnitude of ``det a[i]`` for every ``i``; differentiable in ``a``."""
    if not _one_by_one(a):
        sign, logabsdet = torch.linalg.slogdet(a)
        return sign, logabsdet
    signs, logs = zip(*(torch.linalg.slogdet(ai) for ai in a), strict=True)
    return torch.stack(signs), torch.stack(logs)
