"""Posteriors from outside the papers, whose answer is known: a funnel, eight schools, a logistic regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Funnel:
    """Neal's funnel (2003): ``v ~ N(0, 3^2)``, ``x_i | v ~ N(0, e^v)``.

    Attributes:
        dim: of v and all x together.
    """

    dim: int = 10
    num_data = None

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Up to a constant."""
        v, rest = x[:, 0], x[:, 1:]
        return -v.square() / 18 - 0.5 * (rest.square().sum(-1) * torch.exp(-v) + rest.shape[1] * v)

    def sample(self, number: int, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Independent draws."""
        z = torch.randn(number, self.dim, generator=rng)
        return torch.cat([3 * z[:, :1], torch.exp(1.5 * z[:, :1]) * z[:, 1:]], dim=-1)


SCHOOLS = {"y": (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0), "sd": (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)}
"""Rubin 1981."""


@dataclass(frozen=True)
class EightSchools:
    """Effects ``θ_j ~ N(μ, τ^2)``, data ``y_j ~ N(θ_j, σ_j^2)``, ``μ ~ N(0, 5^2)``, ``τ ~ HalfCauchy(5)``.

    Attributes:
        centred: whether points are ``(μ, log τ, θ)``; otherwise ``(μ, log τ, (θ - μ) / τ)``.
    """

    centred: bool
    dim = 10
    num_data = None

    def log_prob(self, x: Float[Tensor, "n 10"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Up to a constant, with the log-determinant of log τ."""
        y, sd = (torch.tensor(SCHOOLS[name], dtype=x.dtype, device=x.device) for name in ("y", "sd"))
        mean, log_tau = x[:, :1], x[:, 1:2]
        effects = x[:, 2:] if self.centred else mean + log_tau.exp() * x[:, 2:]
        z = (x[:, 2:] - mean) / log_tau.exp() if self.centred else x[:, 2:]
        inner = -0.5 * z.square().sum(-1) - (8 * log_tau[:, 0] if self.centred else 0.0)
        outer = -0.5 * (mean[:, 0] / 5).square() + log_tau[:, 0] - torch.log1p((log_tau[:, 0].exp() / 5).square())
        return inner + outer - 0.5 * ((y - effects) / sd).square().sum(-1)

    def of_chains(self, z: Float[Tensor, "n 10"]) -> Float[Tensor, "n 10"]:
        """Points of this form from such that are not centred."""
        return torch.cat([z[:, :2], z[:, :1] + z[:, 1:2].exp() * z[:, 2:]], dim=-1) if self.centred else z


class BreastCancer:
    """Logistic regression with weights ``w ~ N(0, I)`` on scikit-learn's breast cancer data.

    569 patients; 30 measurements, each of mean 0 and standard deviation 1, after an intercept.

    Example:
        >>> BreastCancer().log_prob(torch.zeros(1, 31))  # 569 log 1/2
        tensor([-394.4008])
    """

    num_data = None
    dim = 31

    def __init__(self) -> None:
        from sklearn.datasets import load_breast_cancer

        bunch = load_breast_cancer()
        x, labels = (torch.as_tensor(part, dtype=torch.float64) for part in (bunch.data, bunch.target))
        x = (x - x.mean(0)) / x.std(0)
        self.inputs = torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x], dim=1)
        self.signs = 2 * labels - 1

    def log_prob(self, x: Float[Tensor, "n 31"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Up to the constant of the prior."""
        inputs, signs = self.inputs.to(x), self.signs.to(x)
        return F.logsigmoid((x @ inputs.mT) * signs).sum(-1) - 0.5 * x.square().sum(-1)
