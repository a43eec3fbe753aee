r"""What Figure 2 of Wild VI depends on: first step sizes, their ceiling, the number of samples, where the chain starts.

Cells of :mod:`.wild_mixture` with one thing changed. Steps made by hand are chosen by the exact divergence.
"""

from __future__ import annotations

from gpvi_lib.experiments import wild_mixture
from gpvi_lib.experiments.build import with_change
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext

(UNCHANGED,) = wild_mixture.EXPERIMENTS
NEAR = {"start": {"mean": -5.0}}
"""Half as far from the mixture."""
CHANGES: dict[str, tuple[str, dict]] = {
    "svgd_full_from_1": ("svgd_full", {"network": {"step_size": 1.0}}),
    "svgd_truncated_from_1": ("svgd_truncated", {"network": {"step_size": 1.0}}),
    "svgd_full_without_ceiling": ("svgd_full", {"network": {"ceiling": None}}),
    "svgd_full_more_samples": ("svgd_full", {"objective": {"num_samples": 400}}),
    **{f"{row}_near": (row, NEAR) for row in ("svgd_full", "svgd_truncated", "constant", "power", "power_free")},
}
METHODS = tuple(CHANGES)


def config(method: str, profile: str) -> dict:
    """That of the row it changes, with the change."""
    row, change = CHANGES[method]
    return with_change(UNCHANGED.configuration(row, profile), change)


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """As the row that it changes."""
    return UNCHANGED.run(config, CHANGES[method][0], context)


EXPERIMENTS = (
    Experiment(
        name="wild-mixture-controls",
        title="Figure 2 of Wild VI, one thing changed: first steps, ceiling, samples, start",
        methods=METHODS,
        config=config,
        seeds=UNCHANGED.seeds,
        run=run,
        once=("constant_near", "power_near", "power_free_near"),
    ),
)
