"""Normalizing flows as samplers: a normal draw through a chain of invertible layers, with its exact density."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib.samplers import Sampler, normal_log_prob, standard_normal


class Flow(Sampler):
    r"""A planar flow (Rezende and Mohamed 2015): ``x = f_L ∘ ... ∘ f_1(z)``, ``z ~ N(0, σ^2 I_d)``.

    Each layer bends space along one direction, ``f_l(z) = z + û tanh(w·z + b)``. It is invertible because
    ``û = u + (softplus(w·u) - 1 - w·u) w / |w|^2`` has ``w·û > -1`` (their appendix A.1), and its determinant is
    ``1 + (1 - tanh^2) w·û > 0``, so that

    .. math:: \log q(x) = \log N(z; 0, σ^2 I) - \sum_l \log\det ∂f_l

    is exact. There is no way back from ``x`` to ``z``: the density is known at the flow's own samples only.
    The layers are those of Pyro's ``Planar``, a test says; here all share one call wherever they can, for with 32 of
    them and points of the plane the calls are what costs.

    Args:
        dim: ``d``.
        depth: ``L``, the number of layers; each has ``2 d + 1`` parameters.
        base_stdev: ``σ > 0``.
        rng: source of the initial weights, ``u, w ~ U(-1/√d, 1/√d)``; ``b = 0``.
        dtype, device: of the parameters.

    Raises:
        ValueError: if the depth or σ is not positive.
    """

    def __init__(
        self,
        dim: int,
        depth: int = 32,
        *,
        base_stdev: float = 1.0,
        rng: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if depth < 1 or not base_stdev > 0:
            raise ValueError(f"a flow needs depth >= 1 and base_stdev > 0, got {depth} and {base_stdev}")
        self.dim, self.base_stdev = dim, float(base_stdev)
        bound = 1 / math.sqrt(dim)
        draw = torch.empty(2, depth, dim, dtype=dtype, device=device).uniform_(-bound, bound, generator=rng)
        self.u, self.w = nn.Parameter(draw[0].clone()), nn.Parameter(draw[1].clone())
        self.bias = nn.Parameter(torch.zeros(depth, dtype=dtype, device=device))

    def directions(self) -> Float[Tensor, "L d"]:
        """``û`` of every layer."""
        along = (self.w * self.u).sum(-1, keepdim=True)
        return self.u + (F.softplus(along) - 1 - along) * self.w / self.w.square().sum(-1, keepdim=True)

    def push(self, z: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """``x`` and ``Σ_l log det ∂f_l`` at given ``z``."""
        directions, x, bends = self.directions(), z, []
        for u, w, bias in zip(directions.unbind(), self.w.unbind(), self.bias.unbind(), strict=True):
            bends.append(torch.tanh(torch.addmv(bias.expand(len(x)), x, w)))
            x = torch.addr(x, bends[-1], u)
        slopes = 1 - torch.stack(bends, -1).square()
        return x, torch.log1p(slopes * (directions * self.w).sum(-1)).sum(-1)

    def rsample(self, num_samples: int, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``x`` at fresh noise."""
        return self.rsample_with_log_prob(num_samples, rng)[0]

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """``x`` and ``log q(x)``, exact."""
        z = self.base_stdev * standard_normal((num_samples, self.dim), rng, self.u)
        x, log_det = self.push(z)
        return x, normal_log_prob(z, self.base_stdev) - log_det
