"""Measures of posterior fit, calibration and outlier detection."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

ECE_BINS = 15
"""M = 15 bins of equal width (appendix E says "equally sized"; Guo et al. 2017 use equal width)."""


def relative_error(estimate: Tensor, truth: Tensor) -> float:
    """``||estimate - truth|| / ||truth||`` in the Frobenius (for vectors: Euclidean) norm."""
    return float((estimate.detach() - truth).norm() / truth.norm())


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
