"""Posterior over the weights of a classifier."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.targets.likelihoods import CategoricalLikelihood
from gpvi_lib.targets.posterior import Posterior
from gpvi_lib.targets.priors import NormalPrior


class ClassificationPosterior(Posterior):
    """``p(w | D) ∝ p(w) Π_i softmax(network(x_i; w))_{y_i}`` over flattened weights ``w (d,)``.

    Args:
        network: the classifier as a function of its flattened weights.
        inputs: ``(N, ...)``.
        labels: class indices, ``(N,)``.
        prior: anything with ``log_prob(w)``; N(0, I) by default.

    Raises:
        ValueError: as :class:`Posterior` and :class:`CategoricalLikelihood`.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, labels = torch.randn(30, 2, generator=rng), torch.arange(30) % 3
        >>> target = ClassificationPosterior(FlatMLP([2, 10, 3]), x, labels)
        >>> w = torch.randn(5, target.dim, generator=rng)
        >>> target.log_prob(w).shape, target.predictive(w, x).probs.shape
        (torch.Size([5]), torch.Size([30, 3]))
    """

    def __init__(
        self, network: FlatModule, inputs: Float[Tensor, "N ..."], labels: Int[Tensor, " N"], prior=NormalPrior()
    ) -> None:
        if len(inputs) != len(labels):
            raise ValueError(f"{len(inputs)} inputs but {len(labels)} labels")
        super().__init__(network, CategoricalLikelihood(), inputs, labels, prior)

    @property
    def labels(self) -> Int[Tensor, " N"]:
        """The class indices, another name of the targets."""
        return self.targets


class MLPClassificationPosterior(ClassificationPosterior):
    """The same posterior for a ReLU network of a few units, with the gradient written out: several times faster.

    Where a layer has ten units a step of automatic differentiation is all overhead. First derivatives only: a loss
    that differentiates the score needs :class:`ClassificationPosterior`.

    Args:
        widths: of all layers, inputs and classes included; the weights are ordered as in ``FlatModule(mlp(widths))``.
        inputs, labels, prior: as there.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, labels = torch.randn(30, 2, generator=rng), torch.arange(30) % 3
        >>> fast = MLPClassificationPosterior([2, 10, 3], x, labels)
        >>> plain = ClassificationPosterior(FlatMLP([2, 10, 3]), x, labels)
        >>> w = torch.randn(5, fast.dim, generator=rng)
        >>> torch.allclose(fast.log_prob(w), plain.log_prob(w), rtol=1e-4)
        True
    """

    def __init__(
        self, widths: Sequence[int], inputs: Float[Tensor, "N p"], labels: Int[Tensor, " N"], prior=NormalPrior()
    ) -> None:
        super().__init__(FlatModule(mlp(widths)), inputs, labels, prior)
        self.hot = F.one_hot(labels.long(), widths[-1]).mT.to(inputs.dtype)

    def _value(self, w: Tensor, batch: Tensor | None, decay: float) -> Tensor:
        """``log p(D | w) - decay |w|^2 / 2``."""
        inputs, hot = (self.inputs, self.hot) if batch is None else (self.inputs[batch], self.hot[:, batch])
        layers = list(self.network.unflatten(w).values())
        return _MLPLogDensity.apply(w, layers, inputs, hot, self.num_data / hot.shape[1], decay)

    def log_likelihood(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log p(y_b | x_b, w)``; differentiable once."""
        return self._value(w, batch, 0.0)

    def log_prob(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood plus log-prior; differentiable once."""
        if not isinstance(self.prior, NormalPrior) or isinstance(self.prior.scale, Tensor):
            return super().log_prob(w, batch)
        scale = self.prior.scale
        return self._value(w, batch, scale**-2) - self.dim * math.log(scale * math.sqrt(2 * math.pi))

    @torch.no_grad()
    def probabilities(self, w: Float[Tensor, "n d"], inputs: Float[Tensor, "b p"]) -> Float[Tensor, "n c b"]:
        """Softmax outputs of all networks, without gradients."""
        return _mlp_forward(list(self.network.unflatten(w).values()), inputs)[-1].softmax(1)


def _mlp_forward(layers: list[Tensor], inputs: Float[Tensor, "b p"]) -> list[Float[Tensor, "n h b"]]:
    """Outputs of every layer, data along the last axis, where a softmax over classes is fast."""
    first, *others = layers[::2]
    x = (first.flatten(0, 1) @ inputs.mT).unflatten(0, first.shape[:2]) + layers[1][..., None]
    outputs = [x]
    for weight, bias in zip(others, layers[3::2], strict=True):
        outputs[-1] = outputs[-1].relu_()
        outputs.append(torch.baddbmm(bias[..., None], weight, outputs[-1]))
    return outputs


class _MLPLogDensity(torch.autograd.Function):
    """``factor Σ_b log p(y_b | x_b, w) - decay |w|^2 / 2`` of every network, its gradient computed on the way."""

    @staticmethod
    def forward(ctx, w, layers, inputs, hot, factor, decay):
        outputs = _mlp_forward(layers, inputs)
        log_probs = torch.log_softmax(outputs[-1], 1)
        if ctx.needs_input_grad[0]:
            delta, gradients = hot - log_probs.exp(), []
            for layer in range(len(outputs) - 1, -1, -1):
                below = inputs if layer == 0 else outputs[layer - 1].mT
                gradients += [delta.sum(-1), (delta @ below).flatten(1)]
                if layer:
                    delta = (layers[2 * layer].mT @ delta).mul_(outputs[layer - 1].sign())  # 0 or 1 after a ReLU
            ctx.save_for_backward(torch.cat(gradients[::-1], dim=1).mul_(factor).sub_(w, alpha=decay))
        value = factor * (log_probs.flatten(1) @ hot.flatten())
        return value - 0.5 * decay * w.square().sum(-1) if decay else value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, above):
        return above[:, None] * ctx.saved_tensors[0], None, None, None, None, None
