"""Posterior over the weights of a classifier."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from gpvi_lib.networks import FlatModule
from gpvi_lib.targets.priors import NormalPrior


class ClassificationPosterior:
    """``p(w | D) ∝ p(w) Π_i softmax(network(x_i; w))_{y_i}`` over flattened weights ``w (d,)``.

    Args:
        network: the classifier as a function of its flattened weights.
        inputs: ``(N, ...)``.
        labels: class indices, ``(N,)``.
        prior: anything with ``log_prob(w)``; N(0, I) by default.
    """

    def __init__(
        self, network: FlatModule, inputs: Float[Tensor, "N ..."], labels: Int[Tensor, " N"], prior=NormalPrior()
    ) -> None:
        if len(inputs) != len(labels):
            raise ValueError(f"{len(inputs)} inputs but {len(labels)} labels")
        self.network, self.inputs, self.labels, self.prior = network, inputs, labels, prior
        self.dim, self.num_data = network.dim, len(inputs)

    def log_likelihood(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log p(y_b | x_b, w)``."""
        inputs, labels = (self.inputs, self.labels) if batch is None else (self.inputs[batch], self.labels[batch])
        log_probs = F.log_softmax(self.network(w, inputs), dim=-1)
        chosen = log_probs.gather(-1, labels.expand(len(w), -1)[..., None])
        return chosen.sum((1, 2)) * (self.num_data / len(labels))

    def log_prob(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood plus log-prior."""
        return self.log_likelihood(w, batch) + self.prior.log_prob(w)
