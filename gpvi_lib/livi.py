"""Objectives for samplers without a density: LIVI (Uppal et al. 2023) and adversarial variational Bayes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch.nn import functional as F

from gpvi_lib.auxiliary import TrainsNetwork
from gpvi_lib.checks import check_count, check_hidden
from gpvi_lib.diagnostics import held_out
from gpvi_lib.entropy import check_entropy, linearized_entropy
from gpvi_lib.latent import latent_part
from gpvi_lib.objectives import Objective, _check_slopes
from gpvi_lib.samplers import Sampler, mlp_from_rng
from gpvi_lib.targets.base import log_prob


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
        ValueError: if ``num_samples < 1``, as :func:`linearized_entropy`, or if the sampler has no latent z.

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
        prior = getattr(target, "prior", None)
        if prior is None or not hasattr(prior, "sample"):
            raise ValueError(
                f"AVB compares with draws of the target's prior, and {type(prior).__name__} has no sample: take a "
                "posterior with a NormalPrior"
            )
        x = sampler.rsample(self.num_samples, rng)
        network = self._ensure_network(
            lambda rng: mlp_from_rng([x.shape[1], *self.hidden, 1], rng, x.dtype, x.device), self.lr, rng
        )
        for _ in range(self.updates):
            drawn, fresh = prior.sample(self.num_samples, x, rng), sampler.sample(self.num_samples, rng)
            self._descend(F.softplus(-network(fresh)).mean() + F.softplus(network(drawn)).mean())
        ratio = network(x)[:, 0]
        loss = (ratio - (log_prob(target, x, batch) - prior.log_prob(x))).mean()
        return loss, {"log_ratio": ratio.detach().mean(), **held_out(target, x, batch)}
