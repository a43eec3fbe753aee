"""The mode of a posterior, and Laplace's approximation of the last layer of a classifier around it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.diagnostics import held_out
from gpvi_lib.objectives import Objective
from gpvi_lib.samplers import Particles, Sampler, standard_normal
from gpvi_lib.targets.base import log_prob
from gpvi_lib.targets.likelihoods import CategoricalLikelihood
from gpvi_lib.targets.posterior import Posterior
from gpvi_lib.targets.priors import NormalPrior

DATA_AT_ONCE = 1_000


class MaximumPosterior(Objective):
    """``-mean_i log p(x_i)`` of free particles, each on its own: the mode of a posterior, or several of its modes.

    Raises:
        ValueError: if the sampler is no :class:`Particles`.

    Example:
        >>> target, rng = Gaussian(torch.zeros(2), torch.eye(2)), torch.Generator().manual_seed(0)
        >>> loss, info = MaximumPosterior()(Particles(torch.zeros(1, 2)), target, None, rng)
        >>> round(loss.item(), 2)  # log 2π, at the mode
        1.84
    """

    def __call__(self, sampler, target, batch, rng):
        if not isinstance(sampler, Particles):
            raise ValueError(f"MaximumPosterior needs Particles, got {type(sampler).__name__}; use NegativeELBO")
        x = sampler.rsample(None, rng)
        loss = -log_prob(target, x, batch).mean()
        return loss, {"log_prob": -loss.detach(), **held_out(target, x, batch)}


class LastLayerLaplace(Sampler):
    """A normal over the last coordinates, all others fixed.

    Args:
        mode: ``(d,)``.
        precision: of the last ``l`` coordinates, ``(l, l)``, positive definite.

    Example:
        >>> sampler = LastLayerLaplace(torch.zeros(5), precision=4 * torch.eye(2))
        >>> x = sampler.sample(1_000, torch.Generator().manual_seed(0))
        >>> bool((x[:, :3] == 0).all()), round(float(x[:, 3:].std()), 1)
        (True, 0.5)
    """

    mode: Tensor
    lower: Tensor

    def __init__(self, mode: Float[Tensor, " d"], precision: Float[Tensor, "l l"]) -> None:
        super().__init__()
        self.dim = len(mode)
        self.register_buffer("mode", mode.detach().clone())
        self.register_buffer("lower", torch.linalg.cholesky(precision).to(mode.dtype))

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """The mode, with ``L⁻ᵀ ε`` added to its last coordinates, ``L Lᵀ`` the precision."""
        noise = standard_normal((len(self.lower), self._number(num_samples)), rng, self.mode)
        moved = torch.linalg.solve_triangular(self.lower.mT, noise, upper=True).mT
        fixed = self.mode[: -len(self.lower)].expand(len(moved), -1)
        return torch.cat([fixed, self.mode[-len(self.lower) :] + moved], dim=-1)


def classifiers_prior(name: str, target: Posterior, mode: Float[Tensor, " d"]) -> NormalPrior:
    """The prior of a classifier's posterior, which has its mode there.

    Raises:
        ValueError: for another likelihood or prior, or a mode of another shape; ``name`` says who asks.
    """
    if not isinstance(target.likelihood, CategoricalLikelihood) or not isinstance(target.prior, NormalPrior):
        raise ValueError(
            f"{name} is for a CategoricalLikelihood and a NormalPrior, got {type(target.likelihood).__name__} and "
            f"{type(target.prior).__name__}"
        )
    if mode.shape != (target.dim,):
        raise ValueError(
            f"the mode must have shape ({target.dim},), got {tuple(mode.shape)}: of particles give one, particles.x[0]"
        )
    return target.prior


@torch.no_grad()
def last_layer_laplace(target: Posterior, mode: Float[Tensor, " d"]) -> LastLayerLaplace:
    r"""Laplace's approximation over the last linear layer, with its full generalised Gauss–Newton matrix.

    The logits are linear in these weights, so that the matrix is the Hessian itself: with features φ, a one appended,
    and β the power of the target, the precision is

    .. math:: β Σ_n (\mathrm{diag}(p_n) - p_n p_n^T) ⊗ φ_n φ_n^T + \text{the prior's precision}.

    Args:
        target: with a :class:`CategoricalLikelihood` and a :class:`NormalPrior`; its network ends in ``nn.Linear``.
        mode: the weights where the posterior is largest, as training found them.

    Raises:
        ValueError: for another likelihood, prior or last layer, or a mode of another shape.

    Returns:
        A sampler of all ``d`` weights, those before the last layer at the mode.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, labels = torch.randn(20, 2, generator=rng), torch.arange(20) % 3
        >>> target = Posterior(mlp([2, 8, 3]), CategoricalLikelihood(), x, labels)
        >>> sampler = last_layer_laplace(target, torch.zeros(target.dim))  # at trained weights, that is
        >>> sampler.sample(4, rng).shape
        torch.Size([4, 51])
    """
    prior = classifiers_prior("last_layer_laplace", target, mode)
    total: Tensor | None = None
    for rows in torch.arange(target.num_data, device=mode.device).split(DATA_AT_ONCE):
        features, logits = target.network.last_features(mode, target.data(rows)[0])
        one = torch.cat([features, torch.ones_like(features[:, :1])], dim=-1).double()
        part = _weighted_squares(one, logits.double().softmax(-1))
        total = part if total is None else total + part
    assert total is not None, "a posterior has data"
    precision = target.power * _in_order(total)
    scale = torch.as_tensor(prior.scale, dtype=precision.dtype, device=mode.device).expand(target.dim)
    precision.diagonal().add_(scale[-len(precision) :] ** -2)
    return LastLayerLaplace(mode, precision)


def _weighted_squares(phi: Float[Tensor, "b f"], p: Float[Tensor, "b c"]) -> Float[Tensor, "c c f f"]:
    """``Σ_n (diag(p_n) - p_n p_nᵀ)_{ab} φ_n φ_nᵀ``, which is symmetric in the classes: one product for a pair."""
    weights = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    c = p.shape[1]
    pairs = {(a, b): (phi * weights[:, a, b, None]).mT @ phi for a in range(c) for b in range(a + 1)}
    return torch.stack([pairs[max(a, b), min(a, b)] for a in range(c) for b in range(c)]).unflatten(0, (c, c))


def _in_order(blocks: Float[Tensor, "c c f f"]) -> Float[Tensor, "l l"]:
    """As the flattened layer has them: all weights, class by class, then the biases."""
    c, f = blocks.shape[0], blocks.shape[2]
    matrix = blocks.permute(0, 2, 1, 3).reshape(c * f, c * f)
    index = torch.arange(c * f, device=blocks.device).view(c, f)
    order = torch.cat([index[:, :-1].flatten(), index[:, -1]])
    return matrix[order][:, order]
