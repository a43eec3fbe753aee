"""Section F.5 of LIVI: every cell runs at smoke, and the two entropies are in their order."""

import pytest
import torch

from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import livi_entropy as experiment
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.lab import runner

pytestmark = pytest.mark.usefixtures("own_results")


@pytest.mark.parametrize("method", experiment.SPECS)
def test_a_cell_runs_and_can_be_recorded(method):
    record = runner.run_or_load(get_experiment("livi-entropy").cell(method, 0, "smoke"), progress=False)
    found, arrays = record.metrics, record.arrays()
    assert found["smallest_exact"] <= found["full"] + 1e-9 and found["share_above_exact"] == 0
    assert found["smallest_exact"] <= found["smallest_100"] <= found["smallest_20"] <= found["smallest_5"]
    middle = 0.5 * (found["entropy_low"] + found["entropy_high"])
    assert found["error"] == pytest.approx(found["entropy_linearized"] - middle)
    assert arrays["history_full"].shape == arrays["history_smallest_5"].shape == (3,)


def test_the_entropies_follow_sigma():
    """At σ -> 10σ the 25 directions outside the 80 gain log 10 each, the others less."""
    found = []
    for sigma in (0.001, 0.01):
        spec = experiment.LATENT | {"noise_scale": sigma}
        sampler = build_sampler(spec, 105, torch.ones(105), torch.Generator().manual_seed(0))
        found.append(experiment.entropies(sampler, 30, [5]))
    gain = found[1]["full"] - found[0]["full"]
    assert 25 * 2.3 < gain < 40 * 2.3
    assert found[0]["share_above_5"] <= 1 and found[0]["smallest_5"] > found[0]["smallest_exact"] + 1


def test_five_values_of_sigma_three_objectives_and_trained_scales():
    assert len(experiment.SPECS) == 16
    assert experiment.config("exact_min_sv_0.3", "paper")["objective"].get("iterations") is None
    assert experiment.config("min_sv_0.3", "paper")["objective"]["iterations"] == 5
    assert "noise_scale_lr" in experiment.config("full_trained", "paper")
    assert "certified bracket" in experiment.deviations("full_0.1", "paper")
