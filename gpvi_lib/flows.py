"""Normalizing flows as samplers: a normal draw through a chain of invertible layers, with its exact density."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Transform

from gpvi_lib.checks import check_count, check_positive, chosen_rng
from gpvi_lib.extras import optional
from gpvi_lib.samplers import Sampler, normal_log_prob, standard_normal


class Flow(Sampler):
    r"""A planar flow (Rezende and Mohamed 2015): ``x = f_L ∘ ⋯ ∘ f_1(z)``, ``z ~ N(0, σ^2 I_d)``.

    Each layer bends space along one direction, ``f_l(z) = z + û tanh(w·z + b)``. It is invertible because
    ``û = u + (softplus(w·u) - 1 - w·u) w / |w|^2`` has ``w·û > -1`` (their appendix A.1), and its determinant is
    ``1 + (1 - tanh^2) w·û > 0``, so that

    .. math:: \log q(x) = \log N(z; 0, σ^2 I) - \sum_l \log\det ∂f_l

    is exact. There is no way back from ``x`` to ``z``: the density is known at the flow's own samples only.
    The layers are Pyro's :class:`~pyro.distributions.transforms.Planar`.

    Args:
        dim: ``d``.
        depth: ``L``, the number of layers; each has ``2 d + 1`` parameters.
        base_stdev: ``σ > 0``.
        rng: source of the initial weights, ``u, w ~ U(-1/√d, 1/√d)``; ``b = 0``.
        seed: in place of ``rng``: of a generator made for them.
        dtype, device: of the parameters.

    Raises:
        ValueError: if the depth or σ is not positive.
        GPVIError: if Pyro is not installed (the extra ``paper``).

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> flow = Flow(2, depth=4, rng=rng)
        >>> x, log_q = flow.rsample_with_log_prob(5, rng)
        >>> x.shape, log_q.shape
        (torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(
        self,
        dim: int,
        depth: int = 32,
        *,
        base_stdev: float = 1.0,
        rng: torch.Generator | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        check_count("depth", depth)
        check_positive("base_stdev", base_stdev)
        rng = chosen_rng(rng, seed, device)
        pyro = optional("pyro.distributions.transforms")
        self.dim, self.base_stdev = dim, float(base_stdev)
        bound = 1 / math.sqrt(dim)
        with torch.random.fork_rng(devices=()):  # Pyro draws first weights of its own, from the global state
            layers = [pyro.Planar(dim) for _ in range(depth)]
        self.layers = nn.ModuleList(layers).to(device, dtype)
        for layer in layers:
            for weight in (layer.u, layer.w):
                nn.init.uniform_(weight, -bound, bound, generator=rng)

    def push(self, z: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """``x`` and ``Σ_l log det ∂f_l`` at given ``z``."""
        x, log_det = z.view_as(z), torch.zeros_like(z[:, 0])  # anew: Pyro keeps what it made of the last tensor
        for layer in self.layers:
            assert isinstance(layer, Transform)
            before, x = x, layer(x)
            log_det = log_det + layer.log_abs_det_jacobian(before, x)
            vars(layer).update(_cached_x_y=(None, None), _cached_logDetJ=None)  # a graph cannot be copied
        return x, log_det

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``x`` at fresh noise."""
        return self.rsample_with_log_prob(self._number(num_samples), rng)[0]

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """``x`` and ``log q(x)``, exact."""
        z = self.base_stdev * standard_normal((self._number(num_samples), self.dim), rng, next(self.parameters()))
        x, log_det = self.push(z)
        return x, normal_log_prob(z, self.base_stdev) - log_det
