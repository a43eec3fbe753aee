"""The output layer of a large generator on a CPU, where memory traffic is all that counts.

A hypernetwork's last layer has ``d`` rows, tens of thousands, and sees only tens of samples at a time. For that shape
the products of ``torch.nn.functional.linear`` run at a half to a third of the memory's speed, and every backward pass
maps fresh pages for the gradient; `docs/performance.md` has the numbers.
"""

import torch
from jaxtyping import Float
from torch import Tensor

WIDE = 4_000_000
"""Weights from which :class:`WideLinear` pays."""


class WideLinear(torch.autograd.Function):
    """``a Wᵀ`` for few rows ``a (n, w)`` and a tall ``W (d, w)``, each product in its fastest order.

    Args (of ``apply``):
        a: features, ``(n, w)``.
        weight: ``W (d, w)``.
        spare: at most one tensor of ``W``'s shape that nobody uses, to put the gradient in; it is taken out.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Float[Tensor, "n w"], weight: Float[Tensor, "d w"], spare: list[Tensor]) -> Float[Tensor, "n d"]:
        """``(W aᵀ)ᵀ``: W is read once, from its first row to its last."""
        return (weight @ a.mT).mT

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        """Keep the factors of both gradients."""
        a, weight, ctx.spare = inputs
        ctx.save_for_backward(a, weight)
        ctx.save_for_forward(a, weight)

    @staticmethod
    def backward(ctx, grad: Float[Tensor, "n d"]):
        """``grad W`` and ``gradᵀ a``, the latter into the spare tensor if there is one."""
        a, weight = ctx.saved_tensors
        return grad @ weight if ctx.needs_input_grad[0] else None, _outer(grad, a, ctx.spare), None

    @staticmethod
    def jvp(ctx, a_tangent: Float[Tensor, "n w"] | None, weight_tangent: Float[Tensor, "d w"] | None, _):
        """``ȧ Wᵀ + a Ẇᵀ``."""
        a, weight = ctx.saved_tensors
        parts = [] if a_tangent is None else [(weight @ a_tangent.mT).mT]
        return sum(parts if weight_tangent is None else [*parts, (weight_tangent @ a.mT).mT])


def _outer(grad: Tensor, a: Tensor, spare: list[Tensor]) -> Float[Tensor, "d w"]:
    if not spare or torch.is_grad_enabled():
        return grad.mT @ a
    return torch.mm(grad.mT, a, out=spare.pop())
