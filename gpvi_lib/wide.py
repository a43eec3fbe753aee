"""The output layer of a large generator on a CPU, where memory traffic is all that counts.

A hypernetwork's last layer has ``d`` rows, tens of thousands, and sees only tens of samples at a time. For that shape
the products of ``torch.nn.functional.linear`` run at a third of the memory's speed or less, every backward pass maps
fresh pages for the gradient, and a slice of the weights writes a second one, of zeros but for its rows. Here oneDNN,
which torch brings along, does the products in single precision, but on Intel's processors, where torch's own products,
MKL's, are the faster ones; `docs/performance.md` has the numbers.
"""

import platform
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

WIDE = 4_000_000
"""Weights from which :class:`WideLinear` pays."""
BLOCK = 1_024
"""Rows of a gradient that are multiplied at a time: few enough to stay in the cache until they are in their place."""
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether torch has oneDNN's product of a few rows and a matrix."""


def _is_intels(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor is Intel's."""
    return "GenuineIntel" in (cpuinfo.read_text() if cpuinfo.exists() else platform.processor())


USE_ONEDNN = HAS_ONEDNN and not (torch.backends.mkl.is_available() and _is_intels())
"""Whether that product is the faster one."""


class WideLinear(torch.autograd.Function):
    """``a Wᵀ`` for few rows ``a (n, w)`` and a tall ``W (d, w)``, and the first rows of ``W``: one gradient for both.

    Args (of ``apply``):
        a: features, ``(n, w)``.
        weight: ``W (d, w)``.
        spare: at most one tensor of ``W``'s shape that nobody uses, to put the gradient in; it is taken out.
        number: how many rows of ``W`` to return.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        a: Float[Tensor, "n w"], weight: Float[Tensor, "d w"], spare: list[Tensor], number: int
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "k w"]]:
        """``a Wᵀ``, or ``(W aᵀ)ᵀ``, so that W is read once, from its first row to its last; and a copy of the rows."""
        out = times(a, weight.mT) if _onednn_takes(a, weight) else (weight @ a.mT).mT
        return out, weight[:number].clone()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        """Keep the factors of both gradients."""
        a, weight, ctx.spare, ctx.number = inputs
        ctx.save_for_backward(a, weight)
        ctx.save_for_forward(a, weight)

    @staticmethod
    def backward(ctx, grad: Float[Tensor, "n d"], of_rows: Float[Tensor, "k w"]):
        """``grad W``; ``gradᵀ a`` plus the gradient of the rows, in the spare tensor if there is one."""
        a, weight = ctx.saved_tensors
        of_weight = outer(grad, a, ctx.spare)
        if torch.is_grad_enabled():
            of_weight = of_weight + F.pad(of_rows, (0, 0, 0, len(weight) - ctx.number))
        else:
            of_weight[: ctx.number] += of_rows
        return times(grad, weight) if ctx.needs_input_grad[0] else None, of_weight, None, None

    @staticmethod
    def jvp(ctx, a_tangent: Float[Tensor, "n w"] | None, weight_tangent: Float[Tensor, "d w"] | None, *_):
        """``ȧ Wᵀ + a Ẇᵀ``, and the rows of ``Ẇ``."""
        a, weight = ctx.saved_tensors
        parts = [] if a_tangent is None else [(weight @ a_tangent.mT).mT]
        if weight_tangent is None:
            return sum(parts), torch.zeros_like(weight[: ctx.number])
        return sum([*parts, (weight_tangent @ a.mT).mT]), weight_tangent[: ctx.number].clone()


def is_wide(weight: Float[Tensor, "d w"]) -> bool:
    """Whether the products below pay: a large matrix on a CPU."""
    return weight.numel() >= WIDE and weight.device.type == "cpu"


def pull_back(rows: Float[Tensor, "n d"], weight: Float[Tensor, "d w"]) -> Float[Tensor, "n w"]:
    """``rows W``, what :class:`WideLinear` gives the features, for callers that take no gradient."""
    return times(rows, weight) if is_wide(weight) else rows @ weight


def times(rows: Float[Tensor, "n d"], matrix: Float[Tensor, "d w"]) -> Float[Tensor, "n w"]:
    """``rows matrix``, by oneDNN where it can."""
    return by_onednn(rows, matrix) if _onednn_takes(rows, matrix) else rows @ matrix


def by_onednn(rows: Float[Tensor, "n d"], matrix: Float[Tensor, "d w"]) -> Float[Tensor, "n w"]:
    """``rows matrix``, where :data:`HAS_ONEDNN`, in single precision and without gradients."""
    return torch.ops.mkldnn._linear_pointwise(rows.contiguous(), matrix.mT, None, "none", [], "")


def _onednn_takes(*tensors: Tensor) -> bool:
    """Single precision on a CPU, and nothing that is differentiated or mapped over: the operation knows neither."""
    return (
        USE_ONEDNN
        and not torch.is_grad_enabled()
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        and not any(map(torch._C._functorch.is_batchedtensor, tensors))
    )


def outer(grad: Float[Tensor, "n d"], a: Float[Tensor, "n w"], spare: list[Tensor]) -> Float[Tensor, "d w"]:
    """``gradᵀ a``, in the spare tensor if there is one; a block of rows at a time where oneDNN multiplies."""
    if torch.is_grad_enabled():
        return grad.mT @ a
    if len(a) == 1 or not _onednn_takes(grad, a):
        return torch.mm(grad.mT, a, out=spare.pop()) if spare else grad.mT @ a
    out = spare.pop() if spare else a.new_empty(grad.shape[1], a.shape[1])
    return outer_by_onednn(grad, a, out)


def outer_by_onednn(
    grad: Float[Tensor, "n d"], a: Float[Tensor, "n w"], out: Float[Tensor, "d w"]
) -> Float[Tensor, "d w"]:
    """``gradᵀ a`` in ``out``, a block of rows at a time; as :func:`by_onednn`."""
    for part, place in zip(grad.split(BLOCK, 1), out.split(BLOCK), strict=True):
        place.copy_(by_onednn(part.mT, a))
    return out
