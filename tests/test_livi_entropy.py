"""Section F.5 of LIVI: every cell runs at smoke, and the two entropies are in their order."""

import json

import pytest
import torch
from torch.distributions import MultivariateNormal

from gpvi_lib.entropy import elbo_bracket
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import livi_entropy as experiment
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext

pytestmark = pytest.mark.usefixtures("own_results")


@pytest.mark.parametrize("method", experiment.SPECS)
def test_a_cell_runs_and_can_be_recorded(method):
    record = runner.run_or_load(get_experiment("livi-entropy").cell(method, 0, "smoke"), progress=False)
    found, arrays = record.metrics, record.arrays()
    assert found["smallest_exact"] <= found["full"] + 1e-9 and found["share_above_exact"] == 0
    assert found["smallest_exact"] <= found["smallest_100"] <= found["smallest_20"] <= found["smallest_5"]
    ends = sorted(found["entropy_linearized"] - found[f"entropy_{side}"] for side in ("low", "high"))
    assert ends[0] <= found["error"] <= ends[1]
    assert arrays["history_full"].shape == arrays["history_smallest_5"].shape == (3,)


def test_of_an_affine_generator_nothing_is_off(monkeypatch):
    """Its points are normal: their entropy is known, H' and both bounds are it, and the error is 0, all to rounding."""
    method, context = "full_0.1", RunContext(torch.device("cpu"), 0, None, "x", progress=False)
    config = json.loads(json.dumps(experiment.config(method, "smoke")))
    config["sampler"]["hidden"] = []
    trained = []

    def keep(sampler, *arguments, **settings):
        trained.append(sampler)
        return elbo_bracket(sampler, *arguments, **settings)

    monkeypatch.setattr(experiment, "elbo_bracket", keep)
    found = experiment.run(config, method, context).metrics
    weight, s = trained[0].output.weight.detach().double(), trained[0].noise_scale.double()
    exact = MultivariateNormal(torch.zeros(105).double(), weight @ weight.mT + torch.diag(s.square())).entropy()
    for name in ("full", "entropy_linearized", "entropy_low", "entropy_high"):
        assert found[name] == pytest.approx(float(exact), abs=1e-2), name
    assert abs(found["error"]) < 1e-2


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
