"""Measures of posterior fit, calibration and outlier detection."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.kernels import RBF, squared_distances

ECE_BINS = 15
"""M = 15 bins of equal width (appendix E says "equally sized"; Guo et al. 2017 use equal width)."""


def relative_error(estimate: Tensor, truth: Tensor) -> float:
    """``||estimate - truth|| / ||truth||`` in the Frobenius (for vectors: Euclidean) norm."""
    return float((estimate.detach() - truth).norm() / truth.norm())


def rmse(estimate: Tensor, truth: Tensor) -> float:
    """Root of the mean squared difference over all entries."""
    return float((estimate.detach() - truth).square().mean().sqrt())


def total_variation(p: Float[Tensor, "*batch c"], q: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch"]:
    """``(1/2) Σ_c |p_c - q_c|`` between distributions over ``c`` classes: 0 if equal, 1 if they share no class.

    It is the largest difference between the probabilities that the two give to any set of classes.
    """
    return 0.5 * (p - q).abs().sum(-1)


def predictive(logits: Float[Tensor, "n b c"]) -> Float[Tensor, "b c"]:
    """Posterior predictive probabilities: the mean over ``n`` networks of their softmax outputs."""
    return logits.softmax(-1).mean(0)


def predictive_entropy(logits: Float[Tensor, "n b c"]) -> Float[Tensor, " b"]:
    """Entropy of the predictive distribution, in nats."""
    return torch.special.entr(predictive(logits)).sum(-1)


def predictive_variance(logits: Float[Tensor, "n b c"]) -> Float[Tensor, " b"]:
    """Variance over networks of the softmax outputs, summed over classes: the paper's outlier score."""
    return logits.softmax(-1).var(0, correction=0).sum(-1)


def auroc(known: Float[Tensor, " b"], unknown: Float[Tensor, " u"]) -> float:
    """Area under the ROC curve of a score that should be larger on unknown inputs (scikit-learn's)."""
    from sklearn.metrics import roc_auc_score

    labels = torch.cat([torch.zeros(len(known)), torch.ones(len(unknown))])
    return float(roc_auc_score(labels.numpy(), torch.cat([known, unknown]).cpu().double().numpy()))


def expected_calibration_error(probabilities: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> float:
    """Mean over data of |accuracy - confidence| of their confidence bin, 15 bins of equal width (TorchMetrics')."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    classes = probabilities.shape[1]
    return float(multiclass_calibration_error(probabilities, labels, classes, n_bins=ECE_BINS, norm="l1"))


def accuracy(probabilities: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> float:
    """Fraction of data whose most probable class is the true one."""
    return float((probabilities.argmax(-1) == labels).double().mean())


def log_likelihood(probabilities: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> float:
    """Mean log predictive probability of the true class, in nats."""
    chosen = probabilities.gather(-1, labels[:, None])
    return float(chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log().mean())


def open_category_metrics(
    known: Float[Tensor, "n b c"], labels: Int[Tensor, " b"], unknown: Float[Tensor, "n u c"]
) -> dict[str, float]:
    """The measures of Tables 3 and 4 from logits of ``n`` networks on test inputs of known and unknown classes."""
    probabilities = predictive(known)
    return {
        "accuracy_percent": 100 * accuracy(probabilities, labels),
        "auroc": auroc(predictive_variance(known), predictive_variance(unknown)),
        "auroc_entropy": auroc(predictive_entropy(known), predictive_entropy(unknown)),
        "ece": expected_calibration_error(probabilities, labels),
        "log_likelihood": log_likelihood(probabilities, labels),
    }


def stein_kernel(x: Float[Tensor, "n d"], score: Float[Tensor, "n d"], kernel: RBF = RBF()) -> Float[Tensor, "n n"]:
    r"""The Stein kernel ``u_p(x_i, x_j)`` (Liu, Lee and Jordan 2016): its mean over ``x_i ~ p`` is 0 for any ``x_j``.

    .. math::
        u_p(x, y) = s(x)·s(y) k + s(x)·∇_y k + s(y)·∇_x k + tr ∇_x ∇_y k
                  = k [s(x)·s(y) + (2 / h) (s(x) - s(y))·(x - y) + 2 d / h - (4 / h^2) |x - y|^2]

    with ``s = ∇log p`` and the RBF kernel; by matrix products, never ``(n, n, d)``. Differentiable in ``x`` and ``s``.
    A bandwidth that follows the points is held fixed.
    """
    squared = squared_distances(x, x)
    h = kernel.bandwidth_at(squared.detach(), same=True)
    centred = x - x.detach().mean(0)  # differences do not see it, rounding does
    cross = score @ centred.mT
    own = cross.diagonal()
    across = own[:, None] + own - cross - cross.mT  # (s_i - s_j)·(x_i - x_j)
    factor = score @ score.mT + (2 / h) * across + 2 * x.shape[1] / h - (4 / h**2) * squared
    return torch.exp(-squared / h) * factor


def ksd_u_statistic(x: Float[Tensor, "n d"], score: Float[Tensor, "n d"], kernel: RBF = RBF()) -> Float[Tensor, ""]:
    """Unbiased estimate of the squared kernel Stein discrepancy: the mean of :func:`stein_kernel` over ``i != j``.

    It is 0 in the mean for independent ``x_i ~ p`` and a fixed bandwidth, positive in the mean for any other q, and
    needs neither the constant of p nor samples from it. A single value may be negative.

    Args:
        x: points, ``n >= 2``.
        score: ``∇log p`` at the points.

    Raises:
        ValueError: with fewer than two points.
    """
    n = len(x)
    if n < 2:
        raise ValueError(f"the KSD U-statistic compares pairs: it needs at least 2 points, got {n}")
    u = stein_kernel(x, score, kernel)
    return (u.sum() - u.diagonal().sum()) / (n * (n - 1))


def ksd_v_statistic(x: Float[Tensor, "n d"], score: Float[Tensor, "n d"], kernel: RBF = RBF()) -> Float[Tensor, ""]:
    """The squared kernel Stein discrepancy of the points themselves: :func:`stein_kernel`'s mean over all pairs.

    Never negative; above the U-statistic by about ``(E|s|^2 + 2 d / h) / n``, its terms ``i = j``.
    """
    return stein_kernel(x, score, kernel).mean()
