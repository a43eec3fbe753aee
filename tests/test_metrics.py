"""Metrics against hand-computed cases and naive loops."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import metrics


def naive_ece(probabilities, labels, bins=15):
    """Bins (l / M, (l + 1) / M], the last including 1."""
    confidence, predicted = probabilities.max(-1)
    correct, total = (predicted == labels).double(), 0.0
    for lower in range(bins):
        inside = (confidence > lower / bins) & (confidence <= (lower + 1) / bins)
        if inside.any():
            gap = (correct[inside].mean() - confidence[inside].double().mean()).abs()
            total += float(inside.double().mean() * gap)
    return total


@pytest.mark.parametrize("classes", [2, 6])
@pytest.mark.parametrize("sharpness", [0.3, 3.0])
def test_calibration_error_is_the_naive_loop(normal, rng, classes, sharpness):
    probabilities = (sharpness * normal(400, classes)).softmax(-1)
    labels = torch.randint(classes, (400,), generator=rng)
    # A confidence is a float32 number in torchmetrics: eps = 1.2e-7 times 400 summands at most.
    assert metrics.expected_calibration_error(probabilities, labels) == pytest.approx(
        naive_ece(probabilities, labels), abs=5e-5
    )


def test_calibration_error_of_hand_computed_cases():
    probabilities = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.1, 0.9], [0.45, 0.55]])
    # One of two right at 0.8: |0.5 - 0.8| · 2/4. Right at 0.9: 0.1 / 4. Wrong at 0.55: 0.55 / 4.
    expected = 0.3 * 0.5 + 0.1 / 4 + 0.55 / 4
    assert metrics.expected_calibration_error(probabilities, torch.tensor([0, 1, 1, 0])) == pytest.approx(expected)
    certain = torch.eye(3)
    assert metrics.expected_calibration_error(certain, torch.arange(3)) == 0
    assert metrics.expected_calibration_error(certain, torch.tensor([1, 2, 0])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [
        ([0.1, 0.2], [0.3, 0.4], 1.0),
        ([0.3, 0.4], [0.1, 0.2], 0.0),
        ([0.1, 0.4, 0.35], [0.8, 0.3], 4 / 6),  # 0.8 beats all three, 0.3 only 0.1
        ([0.5, 0.5], [0.5], 0.5),  # ties count one half
        ([0.1, 0.5], [0.5], 0.75),
    ],
)
def test_auroc_counts_pairs_in_the_right_order(known, unknown, expected):
    assert metrics.auroc(torch.tensor(known), torch.tensor(unknown)) == pytest.approx(expected)


def test_log_likelihood_is_that_of_the_true_class_and_finite_for_an_impossible_one():
    probabilities = torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    expected = (math.log(0.5) + math.log(0.2)) / 2
    assert metrics.log_likelihood(probabilities, torch.tensor([1, 0])) == pytest.approx(expected)
    assert -100 < metrics.log_likelihood(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) < -80


def test_auroc_is_that_of_all_pairs(normal):
    known, unknown = normal(60), normal(40) + 0.7
    pairs = (unknown[:, None] > known).double().mean()
    assert metrics.auroc(known, unknown) == pytest.approx(float(pairs))


def test_relative_error_is_relative_to_the_truth():
    estimate, truth = torch.tensor([[1.0, 2.0], [2.0, 5.0]]), torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert metrics.relative_error(estimate, truth) == pytest.approx(1 / 5)
    assert metrics.relative_error(torch.zeros(2), torch.tensor([3.0, 4.0])) == 1  # deep ensembles in Table 2
    assert isinstance(metrics.relative_error(estimate.requires_grad_(), truth), float)


def naive_predictions(logits):
    n, b, c = logits.shape
    return [
        [[math.exp(logits[i, j, y]) / sum(math.exp(v) for v in logits[i, j]) for y in range(c)] for j in range(b)]
        for i in range(n)
    ]


def test_predictive_measures_are_the_naive_formulas(normal):
    logits = normal(4, 5, 3)
    outputs = naive_predictions(logits)
    for j in range(5):
        mean = [sum(outputs[i][j][y] for i in range(4)) / 4 for y in range(3)]
        entropy = -sum(p * math.log(p) for p in mean)
        variance = sum(sum((outputs[i][j][y] - mean[y]) ** 2 for i in range(4)) / 4 for y in range(3))
        assert metrics.predictive(logits)[j].tolist() == pytest.approx(mean)
        assert float(metrics.predictive_entropy(logits)[j]) == pytest.approx(entropy)
        assert float(metrics.predictive_variance(logits)[j]) == pytest.approx(variance)


def test_certain_predictions_have_neither_entropy_nor_variance():
    logits = torch.tensor([[[1e4, 0.0, 0.0]], [[1e4, 0.0, 0.0]]])  # softmax 1, 0, 0: 0 log 0 is 0
    assert metrics.predictive_entropy(logits).item() == 0
    assert metrics.predictive_variance(logits).item() == 0


def test_accuracy_counts_the_most_probable_class():
    probabilities = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1]])
    assert metrics.accuracy(probabilities, torch.tensor([0, 0, 0])) == pytest.approx(2 / 3)


def test_open_category_metrics_are_those_of_its_parts(normal, rng):
    known, unknown, labels = 2 * normal(3, 50, 6), normal(3, 20, 6), torch.randint(6, (50,), generator=rng)
    result = metrics.open_category_metrics(known, labels, unknown)
    probabilities = known.softmax(-1).mean(0)
    entropies = [torch.special.entr(x.softmax(-1).mean(0)).sum(-1) for x in (known, unknown)]
    variances = [x.softmax(-1).var(0, unbiased=False).sum(-1) for x in (known, unknown)]
    expected = {
        "accuracy_percent": 100 * float((probabilities.argmax(-1) == labels).double().mean()),
        "auroc": float((variances[1][:, None] > variances[0]).double().mean()),
        "auroc_entropy": float((entropies[1][:, None] > entropies[0]).double().mean()),
        "ece": naive_ece(probabilities, labels),
        "log_likelihood": float(probabilities[torch.arange(50), labels].log().mean()),
    }
    assert result == pytest.approx(expected, abs=5e-5)
    assert_close(result["auroc"], expected["auroc"])


# Calibration of predictive distributions


def test_coverage_counts_the_data_in_the_central_interval():
    """On uniform quantile levels 0.05, 0.15, ..., 0.95 the central half holds 0.25 < F < 0.75: five of ten."""
    pit = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)
    levels = torch.tensor([0.05, 0.5, 0.85, 1.0], dtype=torch.float64)
    # |2 F - 1| takes the values 0.1, 0.3, 0.5, 0.7, 0.9, each twice
    assert_close(metrics.interval_coverage(pit, levels - 1e-9), torch.tensor([0.0, 0.4, 0.8, 1.0], dtype=torch.float64))


def test_coverage_agrees_with_intervals(normal):
    from gpvi_lib import NormalMixture

    predictive, y = NormalMixture(normal(5, 300), normal(5, 300).exp()), 2 * normal(300)
    for level in (0.3, 0.9):
        low, high = predictive.interval(level)
        inside = ((low <= y) & (y <= high)).double().mean()
        assert_close(metrics.interval_coverage(predictive.cdf(y), inside.new_tensor([level])), inside[None])


@pytest.mark.parametrize("classes", [2, 10])
def test_a_reliability_diagram_sums_to_accuracy_confidence_and_calibration_error(normal, rng, classes):
    probabilities = (2 * normal(500, classes)).softmax(-1)
    labels = torch.randint(classes, (500,), generator=rng)
    confidence, right, share = metrics.reliability(probabilities, labels)
    assert confidence.dtype == probabilities.dtype and len(share) <= metrics.ECE_BINS and (share > 0).all()
    assert float(share.sum()) == pytest.approx(1)
    assert float(share @ right) == pytest.approx(metrics.accuracy(probabilities, labels))
    assert float(share @ confidence) == pytest.approx(float(probabilities.max(-1).values.mean()))
    error = metrics.expected_calibration_error(probabilities, labels)
    assert float(share @ (right - confidence).abs()) == pytest.approx(error, abs=1e-5)
    assert torch.equal(confidence.sort().values, confidence)


def test_a_reliability_diagram_takes_certainty_and_refuses_logits():
    certain = torch.eye(3)
    confidence, right, share = metrics.reliability(certain, torch.tensor([0, 1, 0]))
    assert (confidence.tolist(), share.tolist()) == ([1.0], [1.0]) and float(right[0]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="probabilities must be probabilities"):
        metrics.reliability(3 * certain, torch.arange(3))


def test_calibration_error_of_known_miscalibration(normal):
    """Predicted N(0, 1), true N(0, s^2): coverage of the central interval c is 2 Φ(z_c / s) - 1."""
    unit, number = torch.distributions.Normal(0.0, 1.0), 100_000
    levels = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    z = unit.icdf((1 + levels) / 2)
    for s in (0.5, 1.0, 2.0):
        expected = (2 * unit.cdf(z / s) - 1 - levels).abs().mean()
        found = metrics.regression_calibration_error(unit.cdf(s * normal(number)))
        assert found == pytest.approx(float(expected), abs=5 * 0.5 / number**0.5)


def test_calibration_error_of_the_best_and_the_worst():
    count = 999
    even = torch.linspace(0, 1, count, dtype=torch.float64)
    assert metrics.regression_calibration_error(even) < 1 / count
    assert metrics.regression_calibration_error(torch.full((9,), 0.5)) == pytest.approx(0.5)  # far too wide
    assert metrics.regression_calibration_error(torch.zeros(9)) == pytest.approx(0.5)  # far too narrow


def test_shapes_that_would_broadcast_are_refused():
    y, labels = torch.arange(5.0), torch.arange(4) % 2
    with pytest.raises(ValueError, match=r"the two must have one shape, got \(5,\) and \(5, 1\)"):
        metrics.rmse(y, y[:, None])
    with pytest.raises(ValueError, match=r"labels must be class indices \(4,\), got \(4, 1\)"):
        metrics.accuracy(torch.eye(2)[labels], labels[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certain_predictions_have_a_bin_of_their_own(rng, dtype):
    """Saturated ones are common in single precision; TorchMetrics keeps them apart, and so does the diagram."""
    for _ in range(20):
        logits = 20 * torch.randn(100, 2, generator=rng, dtype=dtype)
        probabilities, labels = logits.softmax(-1), torch.randint(2, (100,), generator=rng)
        confidence, right, share = metrics.reliability(probabilities, labels)
        error = metrics.expected_calibration_error(probabilities, labels)
        assert float(share @ (right - confidence).abs()) == pytest.approx(error, abs=1e-5)
    assert 1.0 in confidence.tolist()
