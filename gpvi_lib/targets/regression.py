"""Regression: linear, with a posterior in closed form, and by a network, without one."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.errors import GPVIError
from gpvi_lib.networks import FlatModule
from gpvi_lib.targets.likelihoods import NormalLikelihood
from gpvi_lib.targets.posterior import Posterior
from gpvi_lib.targets.priors import NormalPrior, check_prior

AT_ONCE = 1_000
"""Rows whose products are held at a time where they are summed in a fixed order."""


class BayesianLinearRegression:
    """Posterior of β in ``y = Xβ + ε``, ``ε ~ N(0, I)``, with a flat or any other prior.

    With the flat prior it is ``N((XᵀX)^{-1}Xᵀy, (XᵀX)^{-1})`` (the paper prints XᵀX for the covariance).

    Args:
        inputs: X, ``(N, d)`` of full column rank.
        targets: y, ``(N,)``.
        prior: anything with ``log_prob(x)``; ``None`` for a flat prior.

    Raises:
        ValueError: if there is not one target for each row of inputs.

    Example:
        >>> target = BayesianLinearRegression(torch.eye(2), torch.tensor([1.0, 2.0]))
        >>> [round(number, 3) for number in target.mean.tolist()]
        [1.0, 2.0]
        >>> target.log_prob(torch.zeros(5, 2)).shape
        torch.Size([5])
    """

    def __init__(self, inputs: Float[Tensor, "N d"], targets: Float[Tensor, " N"], prior=None) -> None:
        if targets.shape != inputs.shape[:1]:
            raise ValueError(
                f"targets must have shape ({len(inputs)},), one number per row of inputs, got {tuple(targets.shape)}"
            )
        if not len(inputs):
            raise ValueError("there are no data: inputs and targets have 0 rows")
        self.inputs, self.targets, self.prior = inputs, targets, prior
        self.num_data, self.dim = inputs.shape
        if prior is not None:
            check_prior(prior, self.dim, inputs)

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
        """``(XᵀX)^{-1}``, the posterior covariance under the flat prior, in the precision of the inputs.

        Raises a GPVIError as :meth:`exact_moments`.
        """
        return self.exact_moments()[1].to(self.inputs.dtype)

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """``(XᵀX)^{-1}Xᵀy``, the posterior mean under the flat prior, in the precision of the inputs.

        Raises a GPVIError as :meth:`exact_moments`.
        """
        return self.exact_moments()[0].to(self.inputs.dtype)

    def exact_moments(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Mean and covariance of the posterior under the flat prior, in float64.

        In float32 ``torch.linalg.lstsq`` rounds differently from one call to the next, by where its memory lies. XᵀX
        and Xᵀy are therefore sums of products in a fixed order, in float64.

        Raises:
            GPVIError: if the inputs do not have full column rank.
        """
        inputs, targets = self.inputs.double(), self.targets.double()
        gram = torch.stack([(x[:, :, None] * x[:, None, :]).sum(0) for x in inputs.split(AT_ONCE)]).sum(0)
        rounding = max(inputs.shape) * torch.finfo(self.inputs.dtype).eps  # of the data as they were given
        if int(torch.linalg.matrix_rank(inputs, rtol=rounding)) < self.dim:
            raise GPVIError(
                f"the inputs {tuple(inputs.shape)} do not have full column rank, so the flat prior gives no posterior: "
                "drop columns that depend on others, or take a Posterior with a normal prior"
            )
        covariance = torch.linalg.inv(gram)
        return covariance @ (inputs * targets[:, None]).sum(0), covariance


class RegressionPosterior(Posterior):
    """``p(w | D) ∝ p(w) Π_i N(y_i; f(x_i; w), σ^2)`` over flattened weights ``w (d,)`` of a network, with σ known.

    Args:
        network: the regression function, with one output, as a function of its flattened weights.
        inputs: ``(N, p)``.
        targets: y, ``(N,)``.
        noise_scale: σ > 0, in the unit of the targets.
        prior: anything with ``log_prob(w)``; N(0, I) by default.

    Raises:
        ValueError: as :class:`Posterior` and :class:`NormalLikelihood`.

    Example:
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> target = RegressionPosterior(FlatMLP([1, 10, 1]), x, x[:, 0].sin(), noise_scale=0.1)
        >>> target.predict(torch.zeros(4, target.dim), x).shape
        torch.Size([4, 20])
    """

    def __init__(
        self,
        network: FlatModule,
        inputs: Float[Tensor, "N p"],
        targets: Float[Tensor, " N"],
        noise_scale: float,
        prior=NormalPrior(),
    ) -> None:
        if targets.shape != inputs.shape[:1]:
            raise ValueError(
                f"targets must have shape ({len(inputs)},), one number per row of inputs, got {tuple(targets.shape)}"
            )
        super().__init__(network, NormalLikelihood(noise_scale), inputs, targets, prior)
        self.noise_scale = noise_scale

    def predict(self, w: Float[Tensor, "n d"], inputs: Float[Tensor, "b p"]) -> Float[Tensor, "n b"]:
        """``f(x_b; w_i)``, without noise."""
        return self.network(w, inputs).squeeze(-1)
