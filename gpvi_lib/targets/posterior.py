"""The posterior over the weights of any module, with any likelihood."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributions import Distribution

from gpvi_lib.networks import FlatModule
from gpvi_lib.targets.priors import NormalPrior

LogLikelihood = Callable[[Float[Tensor, "n b ..."], Float[Tensor, "b ..."]], Float[Tensor, "n b"]]


class Posterior:
    """``p(w | D) ∝ p(w) Π_i p(y_i | x_i, w)`` over the flattened weights ``w (d,)`` of any ``nn.Module``.

    Args:
        module: your network, see :class:`FlatModule` for what it may contain; or a ``FlatModule``.
        likelihood: ``(outputs (n, b, ...), targets (b, ...)) -> log-probabilities (n, b)`` of the data under each of
            ``n`` networks, independent given the weights. :class:`NormalLikelihood` and
            :class:`CategoricalLikelihood` are two; any function will do.
        inputs: ``(N, ...)``.
        targets: ``(N, ...)``.
        prior: anything with ``log_prob(w)``; ``None`` for independent normals with mean 0 and variance 1 / fan-in.

    Raises:
        ValueError: if there are not as many inputs as targets.
    """

    def __init__(
        self,
        module: nn.Module | FlatModule,
        likelihood: LogLikelihood,
        inputs: Float[Tensor, "N ..."],
        targets: Float[Tensor, "N ..."],
        prior=None,
    ) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs but {len(targets)} targets")
        self.network = module if isinstance(module, FlatModule) else FlatModule(module)
        self.likelihood, self.inputs, self.targets = likelihood, inputs, targets
        self.prior = NormalPrior(self.network.fan_in_scale().to(inputs.device)) if prior is None else prior
        self.dim, self.num_data = self.network.dim, len(inputs)

    def log_likelihood(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log p(y_b | x_b, w)``.

        Raises:
            ValueError: if the likelihood returns anything but one number per network and datum.
        """
        inputs, targets = (self.inputs, self.targets) if batch is None else (self.inputs[batch], self.targets[batch])
        outputs = self.network(w, inputs)
        value = self.likelihood(outputs, targets)
        if value.shape != (len(w), len(targets)):
            raise ValueError(
                f"the likelihood must return one log-probability per network and datum, shape ({len(w)}, "
                f"{len(targets)}), got {tuple(value.shape)} for outputs {tuple(outputs.shape)} and targets "
                f"{tuple(targets.shape)}"
            )
        return value.sum(-1) * (self.num_data / len(targets))

    def log_prob(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood plus log-prior."""
        return self.log_likelihood(w, batch) + self.prior.log_prob(w)

    @torch.no_grad()
    def predictive(self, w: Float[Tensor, "n d"], inputs: Float[Tensor, "b ..."]) -> Distribution:
        """``(1/n) Σ_i p(y | x_b, w_i)``, a distribution with one batch axis ``(b,)``: mean, quantiles, density.

        Raises:
            ValueError: if the likelihood is a plain function, without ``predictive(outputs)``.
        """
        if not hasattr(self.likelihood, "predictive"):
            raise ValueError(
                "this likelihood has no predictive(outputs): average what you need over network(w, inputs)"
            )
        return self.likelihood.predictive(self.network(w, inputs))
