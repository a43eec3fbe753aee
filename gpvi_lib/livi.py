"""Objectives for samplers without a density: LIVI (Uppal et al. 2023), and two that estimate the ratio to the prior."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.auxiliary import TrainsNetwork
from gpvi_lib.checks import check_count, check_hidden, check_instance, check_positive
from gpvi_lib.diagnostics import held_out
from gpvi_lib.entropy import check_entropy, linearized_entropy
from gpvi_lib.kernels import RBF, squared_distances
from gpvi_lib.latent import latent_part
from gpvi_lib.objectives import Objective, _check_slopes
from gpvi_lib.samplers import Sampler, mlp_from_rng
from gpvi_lib.targets.base import Target, log_prob
from gpvi_lib.targets.priors import NormalPrior


@dataclass
class LIVI(Objective):
    r"""LIVI's approximate evidence bounds L' (eq. 15) and L'' (eq. 18) for ``θ = g(z) + s ⊙ η``.

    The loss is ``-mean(log p(θ) + H(z))`` at reparameterised θ, H the term of :func:`linearized_entropy` at the same z.
    The constant ``(m - k) log σ``, which eq. 18 drops, is kept: without it L'' is not below L', nor can s be trained.

    Attributes:
        num_samples: draws a step.
        entropy: ``"full"``, L', or ``"smallest"``, L'' with the smallest singular value in place of all.
        iterations: of LOBPCG for L''; ``None`` for the exact value. Stopped early, L'' is too large.

    Raises:
        ValueError: if ``num_samples < 1``, or if the sampler has no latent z.
        ValueError, DivergedError: as :func:`linearized_entropy`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(3), torch.eye(3))
        >>> sampler = LatentGenerator(3, 2, (8,), noise_scale=0.1, train_noise_scale=True, rng=rng)
        >>> result = fit(sampler, target, LIVI(4), steps=3, optimizer=Adam(0.01), rng=rng, progress=False)
        >>> loss, info = LIVI(4, "smallest", iterations=5)(sampler, target, None, rng)
        >>> list(info)
        ['elbo']
    """

    num_samples: int
    entropy: Literal["full", "smallest"] = "full"
    iterations: int | None = None

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_entropy(self.entropy, self.iterations)

    def check(self, sampler: Sampler) -> None:
        _check_slopes(latent_part(sampler)[0])

    def __call__(self, sampler, target, batch, rng):
        inner, complete = latent_part(sampler)
        z, eta = inner.noise(self.num_samples, rng).split([inner.noise_dim, inner.dim], dim=-1)
        mean, jacobian = inner.latent_linearize(z)
        x = complete(mean + inner.noise_scale * eta)
        entropy = linearized_entropy(jacobian, self.entropy, self.iterations, rng)
        loss = -(log_prob(target, x, batch) + entropy.to(x.dtype)).mean()
        return loss, {"elbo": -loss.detach(), **held_out(target, x, batch)}


def _sampled_prior(target: Target, objective: Objective) -> NormalPrior:
    """The target's prior.

    Raises:
        ValueError: if it cannot be drawn from as a :class:`NormalPrior`.
    """
    prior: Any = getattr(target, "prior", None)
    if not (found := hasattr(prior, "sample")) or not _takes_like(prior.sample):
        raise ValueError(
            f"{type(objective).__name__} compares with draws of the target's prior, and {type(prior).__name__} has no "
            f"sample{'(n, like, rng)' if found else ''}: take a posterior with a NormalPrior"
        )
    return prior


def _takes_like(sample: Callable) -> bool:
    """Whether it can be called as ``sample(n, like, rng)``; a sampler's and torch's distributions' cannot."""
    try:
        inspect.signature(sample).bind(1, None, None)
    except TypeError:
        return False
    return True


@dataclass
class AVB(TrainsNetwork, Objective):
    """Adversarial variational Bayes (Mescheder et al. 2017, algorithm 1): a classifier in place of a density.

    A network T learns to tell draws of q from draws of the prior; at its optimum ``T = log q - log prior``, and the
    loss is ``mean(T(θ) - log p(D | θ))``, the likelihood with the target's power. The sampler needs no density.

    Attributes:
        num_samples: draws of q, and of the prior, in each step.
        hidden: widths of T's hidden layers, ReLU.
        updates: steps of Adam of T before each of the sampler's.
        lr: its learning rate.

    Raises:
        ValueError: if ``num_samples < 1``, or the target has no prior to draw from.

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 10)[:, None]
        >>> target = Posterior(mlp([1, 4, 1]), NormalLikelihood(0.1), x, x[:, 0])
        >>> sampler = Generator(target.dim, 4, (8,), noise_scale=None, rng=rng)  # without a density
        >>> loss, info = AVB(20)(sampler, target, None, rng)
        >>> list(info)
        ['log_ratio']
    """

    num_samples: int
    hidden: Sequence[int] = (100,)
    updates: int = 10
    lr: float = 1e-3

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_hidden(self.hidden)
        self.check_rates()

    def __call__(self, sampler, target, batch, rng):
        prior = _sampled_prior(target, self)
        x = sampler.rsample(self.num_samples, rng)
        network = self._ensure_network(
            lambda rng: mlp_from_rng([x.shape[1], *self.hidden, 1], rng, x.dtype, x.device), rng
        )
        for _ in range(self.updates):
            drawn, fresh = prior.sample(self.num_samples, x, rng), sampler.sample(self.num_samples, rng)
            self._descend(F.softplus(-network(fresh)).mean() + F.softplus(network(drawn)).mean())
        ratio = network(x)[:, 0]
        loss = (ratio - (log_prob(target, x, batch) - prior.log_prob(x))).mean()
        return loss, {"log_ratio": ratio.detach().mean(), **held_out(target, x, batch)}


@dataclass
class KIVI(Objective):
    r"""Kernel implicit variational inference (Shi, Sun and Zhu 2018): the ratio to the prior by kernel regression.

    The ratio ``r = prior / q`` minimises ``E_q[r^2] / 2 - E_prior[r]``. With n draws of each, and a penalty
    ``λ |r|^2 / 2`` in the kernel's space, the minimum is ``r(θ) = Σ_j β k(θ'_j, θ) + Σ_i α_i k(θ_i, θ)`` with
    ``β = 1 / (λ n)`` and

    .. math:: α = -(K_q / n + λ I)^{-1} K_{qp} 1 / (λ n^2).

    The loss is ``-mean(log r(θ) + log p(D | θ))``, the likelihood with the target's power. Its gradient goes through θ
    alone: r is held fixed, for at the true ratio a change of r has no first-order effect. The sampler needs no density.

    The estimate is good in a few dimensions, with thousands of draws. In hundreds, with tens of draws, it is not: of a
    KL divergence of 600 nats between two normals it sees 4, and it narrows q where it should widen it.

    Attributes:
        num_samples: draws of q, and of the prior, in each step.
        regularization: λ > 0.
        kernel: whose bandwidth is taken, by default that of the median heuristic on the draws of both.
        floor: the smallest ratio that counts as itself; below it there is no gradient.

    Raises:
        ValueError: if ``num_samples < 2``, λ or the floor is not positive, or the target has no prior to draw from.

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 10)[:, None]
        >>> target = Posterior(mlp([1, 4, 1]), NormalLikelihood(0.1), x, x[:, 0])
        >>> sampler = Generator(target.dim, 4, (8,), noise_scale=None, rng=rng)  # without a density
        >>> loss, info = KIVI(20)(sampler, target, None, rng)
        >>> list(info)
        ['log_ratio', 'floored']
    """

    num_samples: int
    regularization: float = 1e-3
    kernel: RBF = RBF()
    floor: float = 1e-8

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples, 2)
        check_positive("the regularization", self.regularization)
        check_positive("the floor of the ratio", self.floor)
        check_instance("kernel", self.kernel, RBF, "such as RBF(1.0)")

    def __call__(self, sampler, target, batch, rng):
        prior = _sampled_prior(target, self)
        x = sampler.rsample(self.num_samples, rng)
        drawn = prior.sample(self.num_samples, x, rng)
        ratio = self.ratio(x, drawn)
        log_r = ratio.clamp_min(self.floor).log()
        loss = -(log_r + log_prob(target, x, batch) - prior.log_prob(x)).mean()
        found = {"log_ratio": -log_r.detach().mean(), "floored": (ratio < self.floor).double().mean()}
        return loss, {**found, **held_out(target, x, batch)}

    def ratio(self, x: Float[Tensor, "n d"], drawn: Float[Tensor, "m d"]) -> Float[Tensor, " n"]:
        """The estimate of ``prior / q`` at the draws ``x`` of q, differentiable in where it is evaluated."""
        points = torch.cat([x, drawn]).detach()
        h = self.kernel.bandwidth_at(squared_distances(points, points), same=True)
        k = torch.exp(-squared_distances(x, points) / h)
        n, m, penalty = len(x), len(drawn), self.regularization
        with torch.no_grad():
            k_q, k_p = k.double().split([n, m], dim=1)
            regularised = k_q / n + penalty * torch.eye(n, dtype=k_q.dtype, device=k.device)
            alpha = -torch.linalg.solve(regularised, k_p.mean(1)) / (penalty * n)
            weights = torch.cat([alpha, alpha.new_full((m,), 1 / (penalty * m))])
        return (k.double() @ weights).to(x.dtype)
