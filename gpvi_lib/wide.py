"""The output layer of a large generator on a CPU, where memory traffic is all that counts.

A hypernetwork's last layer has ``d`` rows, tens of thousands, and sees only tens of samples at a time. For that shape
the products of ``torch.nn.functional.linear`` run at a half to a third of the memory's speed, every backward pass maps
fresh pages for the gradient, and a slice of the weights writes a second one, of zeros but for its rows;
`docs/performance.md` has the numbers.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

WIDE = 4_000_000
"""Weights from which :class:`WideLinear` pays."""


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
        """``(W aᵀ)ᵀ``, so that W is read once, from its first row to its last; and a copy of the rows."""
        return (weight @ a.mT).mT, weight[:number].clone()

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
        of_weight = _outer(grad, a, ctx.spare)
        if torch.is_grad_enabled():
            of_weight = of_weight + F.pad(of_rows, (0, 0, 0, len(weight) - ctx.number))
        else:
            of_weight[: ctx.number] += of_rows
        return grad @ weight if ctx.needs_input_grad[0] else None, of_weight, None, None

    @staticmethod
    def jvp(ctx, a_tangent: Float[Tensor, "n w"] | None, weight_tangent: Float[Tensor, "d w"] | None, *_):
        """``ȧ Wᵀ + a Ẇᵀ``, and the rows of ``Ẇ``."""
        a, weight = ctx.saved_tensors
        parts = [] if a_tangent is None else [(weight @ a_tangent.mT).mT]
        if weight_tangent is None:
            return sum(parts), torch.zeros_like(weight[: ctx.number])
        return sum([*parts, (weight_tangent @ a.mT).mT]), weight_tangent[: ctx.number].clone()


def _outer(grad: Tensor, a: Tensor, spare: list[Tensor]) -> Float[Tensor, "d w"]:
    if not spare or torch.is_grad_enabled():
        return grad.mT @ a
    return torch.mm(grad.mT, a, out=spare.pop())
