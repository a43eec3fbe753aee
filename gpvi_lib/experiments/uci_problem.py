"""Regression on the UCI sets with a learned noise scale: one split of one set, and scores of predictions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import checkpoints
from gpvi_lib.data import RegressionData, regression
from gpvi_lib.lab.experiment import Outcome, RunContext
from gpvi_lib.metrics import interval_coverage, regression_calibration_error
from gpvi_lib.networks import mlp
from gpvi_lib.targets import LearnedNoise, NormalLikelihood, NormalMixture, Posterior

HIDDEN = 50
NOISE_MEDIAN = 0.3
"""Median of the prior of σ, in standard deviations of the targets."""
ROWS = {
    "boston": 506, "concrete": 1_030, "energy": 768, "kin8nm": 8_192, "naval": 11_934, "power": 9_568,
    "protein": 45_730, "winered": 1_599, "yacht": 308,
}  # fmt: skip
EMBEDDED = ("diabetes",)
"""What is there without a download."""


def batches(name: str, size: int) -> int:
    """Minibatches of the training part of a split, the last one incomplete: the steps of an epoch."""
    return math.ceil(int(0.9 * ROWS[name]) / size)


def posterior(
    data: RegressionData, hidden: int = HIDDEN, noise_median: float = NOISE_MEDIAN, device: torch.device | str = "cpu"
) -> Posterior:
    """The posterior over weights and noise given the training part of standardised data, in float32."""
    module = LearnedNoise(mlp([data.inputs.shape[1], hidden, 1]), noise_median)
    inputs, targets = (part.to(device, torch.float32) for part in (data.inputs, data.targets))
    return Posterior(module, NormalLikelihood(), inputs, targets)


def prediction_scores(predictive: NormalMixture, targets: Float[Tensor, " b"]) -> dict[str, float]:
    """Measured of predictions in the unit of the data; densities in nats."""
    pit = predictive.cdf(targets)
    low, high = predictive.interval(0.9)
    found = {
        "rmse": float((predictive.mean - targets).square().mean().sqrt()),
        "log_likelihood": float(predictive.log_prob(targets).mean()),
        "coverage_90": float(interval_coverage(pit, pit.new_tensor([0.9]))),
        "width_90": float((high - low).mean()),
        "calibration_error": regression_calibration_error(pit),
        "noise": float(predictive.parts.scale.mean()),
        "spread": float(predictive.parts.loc.std(-1, correction=0).mean()),
    }
    return found | {"nll": -found["log_likelihood"]}


class Split:
    """One split of one set: the posterior, and how predictions are scored in the unit of the data.

    Args:
        posterior: over weights and noise.
        inputs: of the test, scaled as those of the posterior, ``(b, p)``.
        data: whose test targets judge; the training part gives the unit of the posterior's targets.
    """

    def __init__(self, posterior: Posterior, inputs: Float[Tensor, "b p"], data: RegressionData) -> None:
        self.posterior, self.inputs, self.targets = posterior, inputs, data.test_targets
        _, self.shift, self.factor = data.standardised()

    def predictive(self, w: Float[Tensor, "n d"]) -> NormalMixture:
        """Of the test targets, in their own unit, in float64."""
        found = self.posterior.predictive(w, self.inputs)
        assert isinstance(found, NormalMixture)
        means, scales = (part.mT.double().cpu() for part in (found.parts.loc, found.parts.scale))
        return NormalMixture(means, scales).rescaled(self.shift, self.factor)


class Problem(Split):
    """One split of one set, or other data, as ``uci-regression`` has it."""

    def __init__(self, name: str, config: dict, context: RunContext, data: RegressionData | None = None) -> None:
        data = regression(name, context.seed) if data is None else data
        scaled, _, _ = data.standardised()
        target = posterior(scaled, config["hidden"], config["noise_median"], context.device)
        super().__init__(target, scaled.test_inputs.to(context.device, torch.float32), data)

    def outcome(self, w: Float[Tensor, "n d"]) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Measured, and the predictive distribution functions at the test targets.

        ``weight_sd`` is the median over weights of their standard deviation in units of the prior's, and
        ``prior_share`` the share of the weights where that is above 0.9: those that learned next to nothing.
        """
        predictive = self.predictive(w)
        ratio = w.std(0) / self.posterior.prior.scale
        learned = {"weight_sd": float(ratio.median()), "prior_share": float((ratio > 0.9).double().mean())}
        return prediction_scores(predictive, self.targets) | learned, {"pit": predictive.cdf(self.targets).float()}


Measured = tuple[dict[str, float], dict[str, Tensor]]
"""Metrics, and arrays of a record."""


def over_sets(names: Sequence[str], context: RunContext, run: Callable[[str, RunContext], Measured]) -> Outcome:
    """One split of every set, one after the other; the names of metrics and arrays begin with the set's.

    A set takes minutes: the checkpoint keeps those that are finished, and one that is interrupted starts again.
    """
    done: dict[str, dict] = {}
    if context.checkpoint is not None and context.checkpoint.exists():
        done = checkpoints.load(context.checkpoint, context.device, "sets")["sets"]
    for name in [name for name in names if name not in done]:
        started = time.perf_counter()
        scores, kept = run(name, replace(context, checkpoint=None))
        done[name] = {"scores": scores, "arrays": kept, "seconds": time.perf_counter() - started}
        if context.checkpoint is not None and len(done) < len(names):
            checkpoints.save(context.checkpoint, {"sets": done})
            checkpoints.stop_if_over(context.label)
    metrics = {f"{name}_{key}": value for name in names for key, value in done[name]["scores"].items()}
    arrays = {f"{name}_{key}": value for name in names for key, value in done[name]["arrays"].items()}
    return Outcome(metrics, arrays, sum(done[name]["seconds"] for name in names))
