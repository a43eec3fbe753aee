"""Likelihoods of a network's outputs, with the predictive distributions they imply, and a learned noise scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from gpvi_lib.checks import check_positive

BISECTIONS = 60
"""Halvings of the bracket of a quantile: more than float64 can resolve."""


class NormalMixture(MixtureSameFamily):
    """``(1/n) Σ_i N(m_i, s_i^2)`` at each of ``b`` inputs: what ``n`` networks predict together.

    A ``torch.distributions`` object (mean, stddev, log_prob, cdf, sample), here also with quantiles.

    Args:
        means: ``(n, b)``.
        scales: standard deviations > 0, ``(n, b)`` or anything that broadcasts to it.

    Example:
        >>> mixture = NormalMixture(torch.tensor([[-1.0], [1.0]]), 0.5)  # two networks, one input
        >>> mixture.mean, mixture.cdf(torch.zeros(1))
        (tensor([0.]), tensor([0.5000]))
        >>> low, high = mixture.interval(0.9)
        >>> bool(low < -1), bool(high > 1)
        (True, True)
    """

    def __init__(self, means: Float[Tensor, "n b"], scales: Float[Tensor, "n b"] | float) -> None:
        means, sds = torch.broadcast_tensors(means, torch.as_tensor(scales, dtype=means.dtype, device=means.device))
        super().__init__(Categorical(logits=torch.zeros_like(means.mT)), Normal(means.mT, sds.mT))

    @property
    def parts(self) -> Normal:
        """The ``n`` components at each input, with means ``loc`` and standard deviations ``scale``, both ``(b, n)``."""
        assert isinstance(self.component_distribution, Normal)
        return self.component_distribution

    def _checked(self, value: Tensor) -> Tensor:
        if value.ndim and value.shape[-1] != self.batch_shape[-1]:
            raise ValueError(
                f"there are {self.batch_shape[-1]} inputs, so values must have shape (..., {self.batch_shape[-1]}), "
                f"got {tuple(value.shape)}"
            )
        return value

    def sample(self, sample_shape: Sequence[int] = ()) -> Float[Tensor, "*l b"]:
        """Draws, each of one component, from torch's own generator as all of ``torch.distributions``."""
        with torch.no_grad():
            component = self.mixture_distribution.sample(sample_shape)
            at = torch.arange(component.shape[-1], device=component.device), component
            return torch.normal(self.parts.loc[at], self.parts.scale[at])

    def log_prob(self, value: Float[Tensor, "*l b"]) -> Float[Tensor, "*l b"]:
        """Log-density at one value for each input.

        Raises:
            ValueError: if there is not one value for each input.
        """
        return super().log_prob(self._checked(value))

    def cdf(self, value: Float[Tensor, "*l b"]) -> Float[Tensor, "*l b"]:
        """Probability of less than one value for each input; the sum over components can round to above 1.

        Raises:
            ValueError: as :meth:`log_prob`.
        """
        return super().cdf(self._checked(value)).clamp(max=1)

    def icdf(self, value: Float[Tensor, "*l 1"] | float) -> Float[Tensor, "*l b"]:
        """Quantiles at the levels ``value``, which broadcasts against ``(b,)``, by bisection.

        A mixture's quantile lies between the smallest and the largest of its components' quantiles.

        Raises:
            ValueError: for a level outside (0, 1), or levels that do not broadcast against ``(b,)``.
        """
        level = torch.as_tensor(value, dtype=self.mean.dtype, device=self.mean.device)
        if not bool(((level > 0) & (level < 1)).all()):
            raise ValueError(f"levels must be between 0 and 1, got {value}")
        if level.ndim and level.shape[-1] not in (1, self.batch_shape[-1]):
            raise ValueError(
                f"levels {tuple(level.shape)} do not go with {self.batch_shape[-1]} inputs: of several levels at each "
                "give levels[:, None]"
            )
        quantiles = self.parts.icdf(level[..., None])
        low, high = quantiles.amin(-1), quantiles.amax(-1)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if bool(((middle == low) | (middle == high)).all()):  # no number is left between them
                break
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def interval(self, level: float) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """The central interval that holds ``level``, in (0, 1), of the probability: its lower and upper ends.

        Raises:
            ValueError: for a level outside (0, 1).
        """
        if not isinstance(level, int | float) or not 0 < level < 1:
            raise ValueError(f"the level of an interval must be between 0 and 1, such as 0.9, got {level}")
        return self.icdf((1 - level) / 2), self.icdf((1 + level) / 2)

    def rescaled(self, shift: float, factor: float) -> NormalMixture:
        """The distribution of ``shift + factor y``, such as y in its own unit where targets were standardised.

        In double precision, whatever that of the mixture: a large shift, such as that of dates, would swallow y.

        Raises:
            GPVIError: if the factor is not positive.
        """
        check_positive("factor", factor)
        return NormalMixture(shift + factor * self.parts.loc.mT.double(), factor * self.parts.scale.mT.double())


class LearnedNoise(nn.Module):
    r"""A regression module with the scale of its noise as one more parameter, for :class:`NormalLikelihood`.

    The new parameter u comes first in the flattened weights, and ``σ = median exp(u)``. Under the prior N(0, 1), which
    is what ``FlatModule.fan_in_scale`` gives it, σ is log-normal: with 95 % probability within a factor 7 of
    ``median``.

    Args:
        module: ``(b, ...) -> (b,)`` or ``(b, 1)``; of one input or of several.
        median: of σ before any datum, in the unit of the targets.

    Raises:
        ValueError: if the median is not positive.

    Example:
        >>> module = LearnedNoise(mlp([1, 5, 1]), median=0.3)
        >>> outputs = module(torch.zeros(4, 1))
        >>> outputs.shape, round(outputs[0, 1].exp().item(), 2)
        (torch.Size([4, 2]), 0.3)
    """

    def __init__(self, module: nn.Module, median: float = 0.3) -> None:
        super().__init__()
        if not median > 0:
            raise ValueError(f"the median of the noise's standard deviation must be positive, got {median}")
        self.log_noise = nn.Parameter(torch.zeros(()))
        self.module, self.shift = module, math.log(median)

    def forward(self, *inputs: Float[Tensor, "b ..."], **named: Float[Tensor, "b ..."]) -> Float[Tensor, "b 2"]:
        """Mean and log σ at each input; what the module takes, by place or by name, is handed on."""
        mean = self.module(*inputs, **named).flatten()
        count = len(next(iter((*inputs, *named.values()))))
        if len(mean) != count:
            raise ValueError(f"the module must have one output per input, got {len(mean)} for {count} inputs")
        return torch.stack([mean, (self.log_noise + self.shift).expand_as(mean)], dim=-1)


class NormalLikelihood:
    """``log N(y; m, σ^2)``.

    Args:
        scale: σ > 0, known, for a network with one output, m; or ``None`` for one with two, m and log σ
            (:class:`LearnedNoise`, or one of your own where the noise depends on the input).

    Raises:
        ValueError: if σ is not positive.

    Example:
        >>> likelihood, outputs = NormalLikelihood(1.0), torch.zeros(5, 3, 1)  # five networks at three inputs
        >>> likelihood(outputs, torch.zeros(3)).shape, likelihood.predictive(outputs).mean.shape
        (torch.Size([5, 3]), torch.Size([3]))
    """

    def __init__(self, scale: float | None = None) -> None:
        if scale is not None:
            check_positive("scale, the noise's standard deviation,", scale)
        self.scale = scale

    def _parameters(self, outputs: Float[Tensor, "n b o"]) -> tuple[Tensor, Tensor | float, Tensor | float]:
        """m, σ and log σ."""
        wanted = 2 if self.scale is None else 1
        if outputs.ndim == 2:
            raise ValueError(
                "the module returns one number for an input, (inputs,), where (inputs, outputs) is wanted: "
                "return outputs[:, None]"
            )
        if outputs.ndim != 3 or outputs.shape[-1] != wanted:
            raise ValueError(
                f"this normal likelihood is for networks with {wanted} output{'s, m and log σ' * (wanted - 1)} per "
                f"input, got outputs {tuple(outputs.shape)} for (networks, inputs, outputs): "
                "LearnedNoise(module) adds log σ, NormalLikelihood(scale) has it known"
            )
        if self.scale is not None:
            return outputs.squeeze(-1), self.scale, math.log(self.scale)
        mean, log_scale = outputs.unbind(-1)
        return mean, log_scale.exp(), log_scale

    def check(self, outputs: Float[Tensor, "n b o"], targets: Float[Tensor, " N"]) -> None:
        """Raise a ValueError unless there is one number to predict for each input, and outputs for it."""
        self._parameters(outputs)
        if targets.ndim != 1:
            remedy = "try .squeeze(-1)" if targets.shape[1:] == (1,) else "one number each, such as targets[:, 0]"
            raise ValueError(f"targets must have shape (N,), got {tuple(targets.shape)}: {remedy}")

    def __call__(self, outputs: Float[Tensor, "n b o"], targets: Float[Tensor, " b"]) -> Float[Tensor, "n b"]:
        """Log-densities of the data under each network."""
        mean, scale, log_scale = self._parameters(outputs)
        if targets.shape != mean.shape[1:]:
            raise ValueError(f"targets must have shape ({mean.shape[1]},), got {tuple(targets.shape)}")
        return -0.5 * ((mean - targets) / scale).square() - (log_scale + 0.5 * math.log(2 * math.pi))

    def predictive(self, outputs: Float[Tensor, "n b o"]) -> NormalMixture:
        """The mixture over networks."""
        mean, scale, _ = self._parameters(outputs)
        return NormalMixture(mean, scale)


class CategoricalLikelihood:
    """``log softmax(outputs)_y`` for a classifier's logits.

    Example:
        >>> likelihood, logits = CategoricalLikelihood(), torch.zeros(5, 3, 4)  # five networks at three inputs
        >>> likelihood(logits, torch.tensor([0, 1, 2])).shape
        torch.Size([5, 3])
        >>> likelihood.predictive(logits).probs[0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def check(self, outputs: Float[Tensor, "n b c"], targets: Int[Tensor, " N"]) -> None:
        """Raise a ValueError unless targets are class indices, ``(N,)``, that the outputs have room for."""
        if targets.is_floating_point() or targets.is_complex() or targets.ndim != 1:
            raise ValueError(
                f"labels must be class indices, integers of shape (N,), got {targets.dtype} {tuple(targets.shape)}: "
                "try .long(), .squeeze(-1), or .argmax(-1) for one-hot labels"
            )
        if outputs.ndim != 3:
            raise ValueError(f"a classifier must return (inputs, classes), got {tuple(outputs.shape[1:])}")
        if not 0 <= int(targets.min()) <= int(targets.max()) < outputs.shape[-1]:
            raise ValueError(
                f"labels go from {int(targets.min())} to {int(targets.max())}, but the network's {outputs.shape[-1]} "
                f"outputs are for classes 0 to {outputs.shape[-1] - 1}: it needs an output for each class, two for two"
            )
        if bool((outputs >= 0).all()) and bool(((outputs.sum(-1) - 1).abs() < 1e-4).all()):
            raise ValueError("the network's outputs are probabilities, they sum to 1: leave out its last Softmax")

    def __call__(self, outputs: Float[Tensor, "n b c"], targets: Int[Tensor, " b"]) -> Float[Tensor, "n b"]:
        """Log-probabilities of the labels under each network."""
        if targets.shape != outputs.shape[1:-1]:
            raise ValueError(f"labels must have shape ({outputs.shape[1]},), got {tuple(targets.shape)}")
        log_probs = torch.log_softmax(outputs, dim=-1)
        return log_probs.gather(-1, targets.long().expand(len(outputs), -1)[..., None]).squeeze(-1)

    def predictive(self, outputs: Float[Tensor, "n b c"]) -> Categorical:
        """Class probabilities, averaged over networks: ``.probs``, ``(b, c)``."""
        return Categorical(probs=outputs.softmax(-1).mean(0))
