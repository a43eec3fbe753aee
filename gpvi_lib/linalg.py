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
