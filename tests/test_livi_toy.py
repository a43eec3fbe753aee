"""Figure 1 of LIVI: every cell runs at smoke, the ELBOs are what they say, and rows say what they changed."""

import json
import math
import time
from dataclasses import replace

import pytest
import torch

from gpvi_lib import LatentGenerator, MeanField, PointEstimate
from gpvi_lib.checkpoints import deadline
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import livi_problem as problem
from gpvi_lib.experiments import livi_toy as toy
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.fitting import Training
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext

pytestmark = pytest.mark.usefixtures("own_results")


@pytest.mark.parametrize("method", toy.SPECS)
def test_a_cell_runs_and_can_be_recorded(method):
    record = runner.run_or_load(get_experiment("livi-toy").cell(method, 0, "smoke"), progress=False)
    found = record.metrics
    assert found.keys() >= {"w1", "w1_gap", "sd_ratio_outside", "log_likelihood"}
    if method != "deep_ensemble":
        # Of six draws the lower bound may be above the upper one: by four standard errors, and by 0 where q is known.
        error = found.get("entropy_low_se", 0.0) + found.get("entropy_high_se", 0.0)
        assert math.isfinite(found["elbo_low"]) and found["elbo_width"] >= -4 * error
    arrays = record.arrays()
    assert arrays["quantiles"].shape == (3, 97) and bool((arrays["quantiles"].diff(dim=0) >= 0).all())
    assert arrays["history_w1"][-1] == pytest.approx(found["w1"], rel=1e-5)
    assert (found["noise"] == 0.3) == (method != "livi_full_type2")


def test_the_printed_and_released_settings():
    full, smallest = (toy.config(name, "paper") for name in ("livi_full", "livi_min_sv"))
    assert full["steps"] == 5_000 and full["sampler"]["noise_dim"] == 80 and full["sampler"]["activation"] == "elu"
    assert smallest["objective"] == {"kind": "livi", "num_samples": 3, "entropy": "smallest", "iterations": 5}
    released = toy.config("livi_min_sv_released", "paper")
    assert (released["sampler"]["noise_dim"], released["sampler"]["noise_scale"], released["steps"]) == (
        85,
        0.003,
        8_000,
    )
    assert released["prior_scale"] ** 2 == pytest.approx(10)
    assert toy.config("avb", "paper")["objective"] == {
        "kind": "avb", "num_samples": 20, "hidden": [100], "updates": 10, "lr": 1e-3,
    }  # fmt: skip


def test_one_trained_s_per_weight_has_its_own_rate():
    config = toy.config("livi_diagonal", "paper")
    assert config["noise_scale_lr"] > config["lr"]
    sampler = build_sampler(config["sampler"], 105, torch.ones(105), torch.Generator().manual_seed(0))
    assert isinstance(sampler, LatentGenerator) and sampler.log_noise_scale.shape == (105,)
    assert sampler.log_noise_scale.requires_grad


def test_the_elbo_of_mean_field_is_exact():
    """Of the prior itself: E[log p(y | w)] + 0, by other draws, to 4 standard errors."""
    target = problem.posterior(dtype=torch.float32)
    sampler = MeanField(torch.zeros(105), 1.0)
    found = toy.elbo_scores(sampler, target, {"num_samples": 50})
    w = sampler.sample(5_000, torch.Generator().manual_seed(1))
    assert found["elbo_low"] == pytest.approx(float(target.log_likelihood(w).mean()), abs=6 * found["elbo_low_se"])


def test_type2_noise_is_a_number_before_the_weights():
    target, known = toy.type2_posterior(1.0), problem.posterior(dtype=torch.float32)
    w = torch.randn(3, 105, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(target.log_prob(torch.cat([torch.zeros(3, 1), w], 1)), known.log_prob(w))
    config = toy.config("livi_full_type2", "smoke")
    sampler = build_sampler(config["sampler"], 106, torch.ones(106), torch.Generator().manual_seed(0))
    assert isinstance(sampler, PointEstimate) and float(0.3 * sampler.value.detach().exp()) == pytest.approx(0.1)


def test_a_start_at_the_mode_fits_the_data():
    config = json.loads(json.dumps(toy.config("livi_diagonal_from_mode", "smoke"))) | {"from_mode": 400}
    target = problem.posterior(dtype=torch.float32)
    sampler = build_sampler(config["sampler"], 105, target.prior.scale, torch.Generator().manual_seed(0))
    before = float(target.log_prob(sampler.output.bias[None].detach()))
    toy._start_at_mode(sampler, target, config, RunContext(torch.device("cpu"), 0, None, "x", progress=False))
    assert float(target.log_prob(sampler.output.bias[None].detach())) > before + 100


def test_a_run_that_starts_at_the_mode_has_the_seconds_of_both_trainings(monkeypatch):
    train = toy.train
    monkeypatch.setattr(toy, "train", lambda *given: replace(train(*given), seconds=1.0))
    config = toy.config("livi_diagonal_from_mode", "smoke")
    context = RunContext(torch.device("cpu"), 0, None, "x", progress=False)
    assert toy.run(config, "livi_diagonal_from_mode", context).seconds == 2


def test_a_run_that_starts_at_the_mode_can_be_resumed(monkeypatch, tmp_path):
    config = json.loads(json.dumps(toy.config("livi_diagonal_from_mode", "smoke"))) | {"steps": 6}
    context = RunContext(torch.device("cpu"), 0, tmp_path / "run.pt", "x", progress=False)
    alone = toy.run(config, "livi_diagonal_from_mode", replace(context, checkpoint=None))
    with deadline(time.time() - 1), pytest.raises(OutOfTime):
        toy.run(config, "livi_diagonal_from_mode", context)
    assert context.checkpoint.exists()
    steps, plain = [], Training.advance
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or plain(self))
    resumed = toy.run(config, "livi_diagonal_from_mode", context)
    assert steps == [*range(6), *range(1, 6)]  # those to the mode again, then the rest of the others
    assert resumed.metrics["w1"] == alone.metrics["w1"]


def test_rows_say_what_they_changed():
    score = get_experiment("livi-toy").scores[0]
    assert get_experiment("livi-toy").row("livi_full", score) == ("livi_full", "printed")
    assert get_experiment("livi-toy").row("livi_min_sv_exact", score) == ("livi_min_sv", "best")
    assert "7,500 steps, printed 5,000; prior sd 3.16" in toy.deviations("livi_full_released", "paper")
    assert all(toy.deviations(method, "paper") for method in toy.SPECS)
    assert toy.deviations("avb", "quick") == "quick size"
