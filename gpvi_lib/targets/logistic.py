"""Bayesian logistic regression with a learned precision of the weights (Gershman et al. 2012)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.checks import check_points
from gpvi_lib.samplers import Sampler, normal_log_prob, standard_normal

LOG_PRECISIONS = (-10.0, 10.0)
"""Where :meth:`LogisticPosterior.laplace` looks for log α."""
NEWTON_STEPS = 100


class LogisticPrior(Sampler):
    """``p(w, log α)`` with ``α ~ Gamma(1, rate)`` and ``w | α ~ N(0, I / α)``: where chains on the posterior start.

    Args:
        num_weights: of w; points are ``(w, log α)``, of dimension ``num_weights + 1``.
        rate: of the Gamma distribution, > 0; the mean of α is ``1 / rate``.
        dtype, device: of the draws.

    Raises:
        ValueError: if there are no weights, or the rate is not positive.

    Example:
        >>> prior = LogisticPrior(num_weights=3)
        >>> z = prior.sample(5, torch.Generator().manual_seed(0))
        >>> z.shape, prior.log_prob(z).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    rate: Tensor

    def __init__(
        self,
        num_weights: int,
        rate: float = 0.01,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if num_weights < 1 or not rate > 0:
            raise ValueError(f"a logistic prior needs weights and a rate > 0, got {num_weights} and {rate}")
        self.dim = num_weights + 1
        self.register_buffer("rate", torch.tensor(rate, dtype=dtype, device=device))

    def log_prob(self, z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """``log N(w; 0, I / α) + log Gamma(α; 1, rate) + log α``, the last for the change of variable to log α."""
        w, log_precision = z[:, :-1], z[:, -1]
        precision, rate = log_precision.exp(), self.rate.to(z)
        return (
            normal_log_prob(precision.sqrt()[:, None] * w)
            + (0.5 * w.shape[1] + 1) * log_precision
            - rate * precision
            + rate.log()
        )

    def score(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """``(-α w, d_w / 2 - α |w|^2 / 2 - rate α + 1)``."""
        w, precision = z[:, :-1], z[:, -1:].exp()
        last = 0.5 * w.shape[1] + 1 - precision * (0.5 * w.square().sum(-1, keepdim=True) + self.rate.to(z))
        return torch.cat([-precision * w, last], dim=1)

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Independent draws."""
        n = self._number(num_samples)
        uniform = torch.rand(n, 1, generator=rng, dtype=self.rate.dtype, device=self.rate.device)
        precision = -torch.log1p(-uniform) / self.rate  # at uniform = 0 it is 0
        precision = precision.clamp_min(torch.finfo(precision.dtype).tiny)
        w = standard_normal((n, self.dim - 1), rng, self.rate) / precision.sqrt()
        return torch.cat([w, precision.log()], dim=1)

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Draws and their log-density."""
        z = self.rsample(num_samples, rng)
        return z, self.log_prob(z)


class LogisticPosterior:
    r"""``p(w, log α | D) ∝ p(w, log α) Π_b σ(x_b·w)^{y_b} σ(-x_b·w)^{1 - y_b}`` over points ``z = (w, log α)``.

    Args:
        inputs: X, ``(N, p)``, with a column of ones for an intercept; dtype and device follow it.
        labels: y, ``(N,)``, 0 or 1.
        rate: of the prior, see :class:`LogisticPrior`.

    Raises:
        ValueError: if inputs and labels differ in number, a number is not finite, or a label is neither 0 nor 1.

    Example:
        >>> x = torch.tensor([[1.0, -2.0], [1.0, 2.0], [1.0, 3.0]])
        >>> posterior = LogisticPosterior(x, torch.tensor([0, 1, 1]))
        >>> posterior.dim, posterior.log_prob(torch.zeros(5, 3)).shape
        (3, torch.Size([5]))
    """

    def __init__(self, inputs: Float[Tensor, "N p"], labels: Int[Tensor, " N"], rate: float = 0.01) -> None:
        check_points("inputs", inputs)
        labels = torch.as_tensor(labels)
        if inputs.ndim != 2 or labels.shape != inputs.shape[:1]:
            raise ValueError(
                f"labels must have shape ({len(inputs)},), one per row of inputs (N, p), got {tuple(labels.shape)} "
                f"for inputs {tuple(inputs.shape)}"
            )
        if not bool(torch.isfinite(inputs).all()):
            raise ValueError("an input is not finite: leave out such rows, or fill them")
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise ValueError(f"labels must be 0 or 1, got {sorted(set(labels.tolist()))[:5]}")
        self.inputs, self.labels = inputs, labels.to(inputs)
        self.num_data, num_weights = inputs.shape
        self.dim = num_weights + 1
        self.prior = LogisticPrior(num_weights, rate, dtype=inputs.dtype, device=inputs.device)

    def _data(self, batch: Int[Tensor, " b"] | None) -> tuple[Tensor, Tensor, float]:
        """Inputs, labels and the factor ``N / B``."""
        if batch is None:
            return self.inputs, self.labels, 1.0
        return self.inputs[batch], self.labels[batch], self.num_data / len(batch)

    def log_likelihood(self, z: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log p(y_b | x_b, w)``."""
        inputs, labels, factor = self._data(batch)
        return factor * F.logsigmoid((z[:, :-1] @ inputs.mT) * (2 * labels - 1)).sum(-1)

    def log_prob(self, z: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood plus log-prior."""
        return self.log_likelihood(z, batch) + self.prior.log_prob(z)

    def score(self, z: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, "n d"]:
        """``∇_z log p(z | D)`` in closed form, differentiable: ``Xᵀ(y - σ(Xw)) N / B`` and the prior's."""
        inputs, labels, factor = self._data(batch)
        pull = (labels - torch.sigmoid(z[:, :-1] @ inputs.mT)) @ inputs * factor
        return F.pad(pull, (0, 1)) + self.prior.score(z)

    @torch.no_grad()
    def laplace(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Mean and covariance of a normal approximation, in float64: the weights' Laplace approximation at the best α.

        log α maximises its own posterior density, the weights integrated out by their Laplace approximation (MacKay
        1992). The joint mode of ``(w, log α)`` will not do: where data are few it lies at ``w = 0`` and an α in the
        thousands.
        """
        from scipy.optimize import minimize_scalar

        def negative(log_precision: float) -> float:
            return -self._evidence(log_precision)[0]

        best = float(minimize_scalar(negative, bounds=LOG_PRECISIONS, method="bounded", options={"xatol": 1e-4}).x)
        step = 0.05
        curvature = (negative(best + step) - 2 * negative(best) + negative(best - step)) / step**2
        _, w, precision = self._evidence(best)
        covariance = torch.block_diag(torch.linalg.inv(precision), precision.new_full((1, 1), 1 / max(curvature, 1e-3)))
        return torch.cat([w, w.new_tensor([best])]), covariance

    def _evidence(self, log_precision: float) -> tuple[float, Float[Tensor, " p"], Float[Tensor, "p p"]]:
        """``log p(D, log α)`` by Laplace's method, with the weights' mode and precision, found by Newton's method."""
        inputs, labels, alpha = self.inputs.double(), self.labels.double(), math.exp(log_precision)
        w = inputs.new_zeros(inputs.shape[1])

        def value(w: Tensor) -> Tensor:
            return F.logsigmoid((inputs @ w) * (2 * labels - 1)).sum() - 0.5 * alpha * w.square().sum()

        for _ in range(NEWTON_STEPS):
            p = torch.sigmoid(inputs @ w)
            slope = (labels - p) @ inputs - alpha * w
            precision = (inputs.mT * (p * (1 - p))) @ inputs
            precision.diagonal().add_(alpha)
            step, length = torch.linalg.solve(precision, slope), 1.0
            while length > 1e-6 and value(w + length * step) < value(w):
                length /= 2
            if float(slope @ step) < 1e-16:
                break
            w = w + length * step
        rate = float(self.prior.rate)
        of_precision = (0.5 * len(w) + 1) * log_precision - rate * alpha
        return float(value(w) - 0.5 * torch.linalg.slogdet(precision)[1]) + of_precision, w, precision

    @torch.no_grad()
    def predict(self, z: Float[Tensor, "n d"], inputs: Float[Tensor, "b p"]) -> Float[Tensor, " b"]:
        """``(1/n) Σ_i p(y = 1 | x_b, w_i)``."""
        return torch.sigmoid(z[:, :-1] @ inputs.mT).mean(0)
