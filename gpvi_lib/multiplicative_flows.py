"""Multiplicative normalizing flows (Louizos and Welling 2017): a Gaussian on weights, whose means a flow rescales.

A weight matrix is seen as ``rows``, each multiplied by one number of ``z``: for a fully connected layer the weights
that leave an input, for a convolution those of a filter. Vectors and single numbers (biases, a learned noise) have
plain Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib.checks import check_count, chosen_rng
from gpvi_lib.samplers import MeanField, Sampler, mlp_from_rng, normal_log_prob, standard_normal

OPEN = 2.0
"""Added to the logit of a layer's gates, so that a flow starts near the identity."""
NARROW = 0.1
"""Standard deviation of the first z about 1."""


class MaskedCoupling(nn.Module):
    r"""``z -> m ⊙ z + (1 - m) ⊙ (g ⊙ z + (1 - g) ⊙ t)``, the gate g and the shift t networks of ``m ⊙ z``.

    The mask m is drawn anew at every call, each entry 0 or 1 with probability 1/2. Given m the map is invertible, with
    ``log det = Σ (1 - m) log g``.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> z, log_det = MaskedCoupling(4, 8, rng)(torch.ones(3, 4), rng)
        >>> z.shape, log_det.shape
        (torch.Size([3, 4]), torch.Size([3]))
    """

    def __init__(self, dim: int, hidden: int, rng: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.network = mlp_from_rng([dim, hidden, 2 * dim], rng, dtype, rng.device, activation="tanh")

    def forward(self, z: Float[Tensor, "n r"], rng: torch.Generator) -> tuple[Tensor, Float[Tensor, " n"]]:
        """The transformed ``z``, and the log-determinant."""
        mask = torch.randint(2, z.shape, generator=rng, device=z.device).to(z.dtype)
        logit, shift = self.network(mask * z).chunk(2, dim=-1)
        log_gate = F.logsigmoid(logit + OPEN)  # finite where the gate itself is 0
        gate = log_gate.exp()
        moved = gate * z + (1 - gate) * shift
        return mask * z + (1 - mask) * moved, ((1 - mask) * log_gate).sum(-1)


class RowScales(nn.Module):
    r"""``z`` for the rows of one weight: its flow ``q(z)``, and the auxiliary ``r(z | W)`` that guesses it back.

    ``r`` maps z by a flow of its own to a Gaussian whose mean is ``a mean(t)`` and whose log-variance ``b mean(t)``,
    with ``t = tanh(cᵀW)`` and vectors a, b, c of one number a row.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> scales = RowScales(4, length=2, hidden=8, rng=rng)
        >>> z, log_q = scales(3, rng)
        >>> z.shape, log_q.shape, scales.log_auxiliary(z, torch.zeros(3, 4, 5), rng).shape
        (torch.Size([3, 4]), torch.Size([3]), torch.Size([3]))
    """

    def __init__(
        self, rows: int, length: int, hidden: int, rng: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        start = torch.ones(rows, dtype=dtype, device=rng.device)
        self.start = MeanField(start, NARROW)
        self.forwards = nn.ModuleList(MaskedCoupling(rows, hidden, rng, dtype) for _ in range(length))
        self.backwards = nn.ModuleList(MaskedCoupling(rows, hidden, rng, dtype) for _ in range(length))
        names = ("probe", "location", "spread")
        bound = 1 / math.sqrt(rows)
        first = (bound * standard_normal((rows,), rng, start) for _ in names)
        self.auxiliary = nn.ParameterDict(dict(zip(names, map(nn.Parameter, first), strict=True)))

    def forward(self, num_samples: int, rng: torch.Generator) -> tuple[Float[Tensor, "n r"], Float[Tensor, " n"]]:
        """``z`` and ``log q(z)``, given the masks."""
        z, log_q = self.start.rsample_with_log_prob(num_samples, rng)
        for layer in self.forwards:
            z, log_det = layer(z, rng)
            log_q = log_q - log_det
        return z, log_q

    def log_auxiliary(
        self, z: Float[Tensor, "n r"], weight: Float[Tensor, "n r o"], rng: torch.Generator
    ) -> Float[Tensor, " n"]:
        """``log r(z | W)``, given the masks."""
        total = torch.zeros_like(z[:, 0])
        for layer in self.backwards:
            z, log_det = layer(z, rng)
            total = total + log_det
        seen = torch.tanh(torch.einsum("r,nro->no", self.auxiliary["probe"], weight)).mean(-1, keepdim=True)
        log_sd = 0.5 * self.auxiliary["spread"] * seen
        standardised = (z - self.auxiliary["location"] * seen) / log_sd.exp()
        return total + normal_log_prob(standardised) - log_sd.sum(-1)


class MultiplicativeFlow(Sampler):
    r"""``w_ij = z_i M_ij + S_ij ε_ij`` for each matrix of weights, ``z`` a normalizing flow, ε standard normal.

    The weights have no density in closed form, for z is integrated out. In its place stands

    .. math:: \log q(w | z) + \log q(z) - \log r(z | w),

    whose mean is above that of ``log q(w)`` for any auxiliary ``r``, so that with :class:`NegativeELBO` both are
    trained on a lower bound of the ELBO.

    Args:
        shapes: of the parameters, in the order of the flattened weights: ``FlatModule(module).shapes``. Two axes are
            taken for a fully connected layer's, ``(outputs, inputs)``, more for a convolution's, filters first.
        mean: first M, ``(d,)``; dtype and device follow it.
        scale: first S > 0, a number or ``(d,)``.
        length: layers of either flow.
        hidden: width of their networks.
        rng: source of the flows' first weights.
        seed: in place of ``rng``: of a generator made for them.

    Raises:
        ValueError: if the shapes do not have as many weights as the mean, a size is not positive, or the mean and rng
            are on two devices.

    Example:
        >>> rng, network = torch.Generator().manual_seed(0), FlatModule(mlp([3, 8, 1]))
        >>> sampler = MultiplicativeFlow(network.shapes, torch.zeros(network.dim), 0.1, rng=rng)
        >>> w, bound = sampler.rsample_with_log_prob(5, rng)
        >>> w.shape, bound.shape
        (torch.Size([5, 41]), torch.Size([5]))
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        mean: Float[Tensor, " d"],
        scale: float | Tensor = 0.05,
        *,
        length: int = 2,
        hidden: int = 50,
        rng: torch.Generator | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_count("length", length)
        check_count("hidden", hidden)
        rng = chosen_rng(rng, seed, mean.device)
        if mean.ndim != 1 or mean.device.type != rng.device.type:
            raise ValueError(
                "mean must have one axis and be where rng is, got "
                f"{tuple(mean.shape)} on {mean.device} and an rng on {rng.device}"
            )
        self.shapes = [list(shape) for shape in shapes]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        if sum(self.sizes) != len(mean):
            raise ValueError(f"the shapes have {sum(self.sizes)} weights, and there are {len(mean)} means")
        self.dim, self.length, self.hidden = len(mean), length, hidden
        self.weights = MeanField(mean, scale)
        self.scales = nn.ModuleDict(
            {
                str(i): RowScales(shape[_row_axis(shape)], length, hidden, rng, mean.dtype)
                for i, shape in enumerate(self.shapes)
                if len(shape) > 1
            }
        )

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Weights."""
        return self.rsample_with_log_prob(self._number(num_samples), rng)[0]

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Weights, and what stands in for their log-density: in the mean it is above it."""
        n, parts = self._number(num_samples), []
        noise = standard_normal((n, self.dim), rng, self.weights.mean)
        log_q = normal_log_prob(noise) - self.weights.scale.log().sum()
        means, spreads = self.weights.mean.split(self.sizes), (self.weights.scale * noise).split(self.sizes, dim=-1)
        for i, (shape, mean, spread) in enumerate(zip(self.shapes, means, spreads, strict=True)):
            if str(i) not in self.scales:
                parts.append(mean + spread)
                continue
            rows = self.scales[str(i)]
            assert isinstance(rows, RowScales)
            z, log_q_z = rows(n, rng)
            axis = _row_axis(shape)
            mean, spread = mean.view(shape).movedim(axis, 0), spread.view(n, *shape).movedim(axis + 1, 1)
            weight = z.view(*z.shape, *[1] * (len(shape) - 1)) * mean + spread
            log_q = log_q + log_q_z - rows.log_auxiliary(z, weight.flatten(2), rng)
            parts.append(weight.movedim(1, axis + 1).flatten(1))
        return torch.cat(parts, dim=-1), log_q


def _row_axis(shape: Sequence[int]) -> int:
    """The axis of a weight that z goes along: inputs of a fully connected layer, filters of a convolution."""
    return 1 if len(shape) == 2 else 0
