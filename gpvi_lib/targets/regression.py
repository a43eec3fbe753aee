"""Bayesian linear regression with a posterior in closed form."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class BayesianLinearRegression:
    """Posterior of β in ``y = Xβ + ε``, ``ε ~ N(0, I)``, with a flat or any other prior.

    With the flat prior it is ``N((XᵀX)^{-1}Xᵀy, (XᵀX)^{-1})`` (the paper prints XᵀX for the covariance).

    Args:
        inputs: X, ``(N, d)`` of full column rank.
        targets: y, ``(N,)``.
        prior: anything with ``log_prob(x)``; ``None`` for a flat prior.
    """

    def __init__(self, inputs: Float[Tensor, "N d"], targets: Float[Tensor, " N"], prior=None) -> None:
        if targets.shape != inputs.shape[:1]:
            raise ValueError(
                f"targets must have shape ({len(inputs)},), one number per row of inputs, got {tuple(targets.shape)}"
            )
        self.inputs, self.targets, self.prior = inputs, targets, prior
        self.num_data, self.dim = inputs.shape

    def log_likelihood(self, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log N(y_b; X_b β, 1)`` without its constant."""
        inputs, targets = (self.inputs, self.targets) if batch is None else (self.inputs[batch], self.targets[batch])
        residual = x @ inputs.mT - targets
        return (-0.5 * self.num_data / len(targets)) * residual.square().sum(-1)

    def log_prob(self, x: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood plus log-prior."""
        value = self.log_likelihood(x, batch)
        return value if self.prior is None else value + self.prior.log_prob(x)

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        """``(XᵀX)^{-1}``, the posterior covariance under the flat prior."""
        return torch.linalg.inv(self.inputs.mT @ self.inputs)

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """``(XᵀX)^{-1}Xᵀy``, the posterior mean under the flat prior."""
        return torch.linalg.lstsq(self.inputs, self.targets[:, None]).solution[:, 0]
