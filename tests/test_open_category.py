"""Open category: what is trained on what, in parts, and what only a generator can be asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import checkpoints, data
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import open_category as oc
from gpvi_lib.fitting import Training
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.paths import repository
from gpvi_lib.samplers import Generator, MeanField, Particles

CONTEXT = RunContext(torch.device("cpu"), 0, None, "test", progress=False)
COLOURS = {"mnist": (), "cifar10": (3,)}
SIDE = {"mnist": 28, "cifar10": 32}


@pytest.fixture
def fake_images(monkeypatch):
    """Twelve images of each class in each half, as large as the real ones."""

    def load(name):
        rng = torch.Generator().manual_seed(0)
        labels = torch.arange(10).repeat(12)
        size = (len(labels), SIDE[name], SIDE[name], *COLOURS[name])
        train, test = (torch.randint(256, size, generator=rng, dtype=torch.uint8) for _ in range(2))
        return data.ImageData(train, labels, test, labels)

    monkeypatch.setattr(oc, "load", load)


def small(config, **changes):
    """The same configuration with a small generator, so that a test takes seconds."""
    if config["sampler"]["kind"] == "generator":
        config["sampler"] = config["sampler"] | {"noise_dim": 4, "hidden": [3]}
    return config | changes


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
@pytest.mark.parametrize("method", ["gpvi_best", "svgd", "mf_vi"])
def test_known_classes_are_learned_and_unknown_ones_detected(dataset, method, fake_images):
    more = {"samples": [10, 15], "images": 30}
    config = small(oc.image_config(dataset, data.KNOWN_CLASSES, "short", method, "smoke"), more=more)
    outcome = oc.run(config, method, CONTEXT)
    assert {"accuracy_percent", "auroc", "ece"} <= outcome.metrics.keys()
    assert ("auroc_15_networks" in outcome.metrics) is (method != "svgd")  # particles have no others
    assert ("spread_g" in outcome.metrics) is (method == "gpvi_best")
    if method == "gpvi_best":  # two steps at 1e-3 from 0.3
        assert abs(outcome.metrics["noise_scale_over_fan_in_scale"] / 0.3 - 1) < 0.003
    assert len(outcome.arrays["known_variance"]) == 72 and len(outcome.arrays["unknown_variance"]) == 48
    assert outcome.arrays["outlier_images"].shape == (16, SIDE[dataset], SIDE[dataset], *COLOURS[dataset])
    assert sum(array.nbytes for array in outcome.arrays.values()) < 1e6


def test_with_all_classes_known_there_is_an_accuracy_and_nothing_to_detect(fake_images):
    outcome = oc.run(oc.image_config("mnist", data.ALL_CLASSES, "short", "svgd", "smoke"), "svgd", CONTEXT)
    assert outcome.metrics.keys() == {"accuracy_percent", "num_weights"}
    assert outcome.metrics["num_weights"] == 61_706


@pytest.mark.parametrize(
    ("dataset", "known", "steps"), [("mnist", 6, 3 * 720), ("mnist", 10, 3_600), ("cifar10", 6, 1_800)]
)
def test_an_epoch_is_the_training_images_over_the_batch(dataset, known, steps):
    config = oc.image_config(dataset, range(known), "short", "gpvi", "paper")
    assert config["steps"] == steps and config["history_every"] == steps // oc.SIZES[dataset]["epochs"]["short"] // 2
    images = {("mnist", 6): 36_017, ("mnist", 10): 60_000, ("cifar10", 6): 30_000}[dataset, known]
    assert images // config["batch_size"] == 2 * config["history_every"]
    published = oc.image_config(dataset, range(known), "published", "gpvi", "paper")
    assert published["steps"] == {"mnist": 100, "cifar10": 200}[dataset] * 2 * config["history_every"]


@pytest.mark.parametrize("method", oc.METHODS["mnist"])
def test_the_deviations_name_what_is_not_the_paper_s(method):
    said = oc.image_deviations("mnist", "short", method, "paper")
    config = oc.image_config("mnist", data.KNOWN_CLASSES, "short", method, "paper")
    assert "3 of 100 epochs" in said
    assert (f"learning rate {config['lr']:g}" in said) is (config["lr"] != 1e-5)
    prior = f"prior N(0, {config['prior_scale'] ** 2:g}/fan-in)"
    without = ("gpvi_authors", "deep_ensemble")  # an ensemble maximises the likelihood
    assert (prior in said) is (method not in ("mf_vi", *without))  # mean field has the printed prior
    assert ("no prior" in said) is (method in without)
    assert ("one trained λ from 0.01" in said) is (method == "gpvi_authors")
    assert ("exact inverse" in said) is (method in ("gpvi_best", "gpvi_authors"))  # the printed one is a helper
    published = oc.image_deviations("mnist", "published", method, "paper")
    longer = oc.image_config("mnist", data.KNOWN_CLASSES, "published", method, "paper")
    own_rate = oc.is_ours(method) or method == "gpvi_authors"  # at every length; the others then have the printed one
    assert longer["lr"] == (config["lr"] if own_rate else 1e-5)
    assert "epochs" not in published and ("learning rate" in published) is own_rate


@pytest.mark.parametrize(("length", "steps", "evaluated"), [("longer", 4, 2), ("half", 50 / 3, 10)])
def test_the_longer_runs_change_nothing_but_their_length(length, steps, evaluated):
    for method in get_experiment(f"open-category-mnist-{length}").methods:
        long, short = (oc.image_config("mnist", range(6), name, method, "paper") for name in (length, "short"))
        assert {key: long[key] / short[key] for key in long if long[key] != short[key]} == {
            "steps": pytest.approx(steps),
            "history_every": evaluated,
        }
    epochs = {"longer": 12, "half": 50}[length]
    assert oc.image_deviations("mnist", length, "mf_vi", "paper").startswith(f"{epochs} of 100 epochs")


def test_the_digits_deviations_name_rate_and_prior():
    said = oc.digits_deviations("gpvi", "paper")
    assert said.endswith("learning rate 0.001, prior N(0, 16/fan-in)")


def test_all_best_settings_of_a_data_set_have_one_prior_and_all_others_another():
    for dataset, methods in oc.METHODS.items():
        configs = {
            method: oc.image_config(dataset, range(6), "short", method, "paper")
            for method in methods
            if dataset != "digits"
        }
        for method, config in configs.items():
            wide = "best_prior_scale" in oc.SIZES[dataset] and oc.is_ours(method)
            assert config["prior_scale"] == oc.SIZES[dataset]["best_prior_scale" if wide else "prior_scale"], method
    for name in ("svgd", "amortized_svgd"):
        printed, best = (oc.image_config("mnist", range(6), "short", m, "paper") for m in (name, f"{name}_best"))
        assert best == printed | {"prior_scale": 16.0}
    assert not [method for method in oc.METHODS["digits"] if method in ("svgd_best", "amortized_svgd_best")]


def test_the_authors_row_is_the_setting_that_the_held_out_images_judged():
    row = oc.image_config("mnist", data.KNOWN_CLASSES, "short", "gpvi_authors", "paper")
    judged = oc.settings_config("authors_0.01", "paper")
    assert {key for key in row if row[key] != judged[key]} == {"dataset", "steps", "history_every", "more"}
    assert row["prior"] == "flat" and row["sampler"]["noise_scale"] == 0.01 and row["sampler"]["train_noise_scale"]
    printed = oc.settings_config("fixed_1_flat", "paper")
    assert printed["sampler"] == oc.settings_config("lambda_1", "paper")["sampler"] and printed["prior"] == "flat"


def test_rows_of_gpvi_as_printed_have_the_printed_setting():
    for dataset in ("mnist", "cifar10"):
        config = oc.image_config(dataset, data.KNOWN_CLASSES, "short", "gpvi", "paper")
        assert config["lr"] == 1e-5 and "noise_scale_lr" not in config
        assert config["sampler"]["noise_scale"] == 1.0 and "train_noise_scale" not in config["sampler"]
        assert config["objective"]["inverse"] == {"kind": "helper", "width": 512, "num_layers": 3, "lr": 1e-4}


def test_settings_are_judged_on_images_and_seeds_that_no_table_sees():
    used = set(oc.seeds("mnist", "paper"))
    for method in get_experiment("open-category-settings").methods:
        config = oc.settings_config(method, "paper")
        assert config["dataset"] == "mnist-validation" and config["steps"] == 600
        oc.build_sampler(small(config)["sampler"], 50, 1.0, torch.Generator())
        oc.build_objective(config["objective"])
        assert ("noise_scale_lr" in config) is config["sampler"].get("train_noise_scale", False), method
    assert not used & set(oc.settings_seeds("paper"))
    assert oc.settings_config("lambda_0.03", "paper")["sampler"]["noise_scale"] == 0.03


def test_a_subset_of_the_images_keeps_labels_with_images():
    whole = data.open_category(data.digits())
    some = oc._subset(whole, 20)
    assert len(some.test_inputs) == len(some.unknown_inputs) == 20
    for image, label in zip(some.test_inputs, some.test_labels, strict=True):
        (row,) = (whole.test_inputs == image).flatten(1).all(1).nonzero()
        assert whole.test_labels[row] == label
    assert len(oc._subset(whole, 10**6).test_inputs) == len(whole.test_inputs)


def test_networks_are_evaluated_in_parts_with_the_same_result(monkeypatch, normal):
    network = FlatModule(mlp([5, 4, 3]))
    weights, inputs = normal(7, network.dim), normal(23, 5)
    whole = network(weights, inputs)
    for at_once in (1, 10, 10**6):
        monkeypatch.setattr(oc, "AT_ONCE", at_once)
        assert_close(oc.logits(network, weights, inputs), whole)
    assert oc.logits(network, weights, inputs[:0]).shape == (7, 0, 3)


def test_more_than_a_hundred_networks_are_evaluated_in_parts(normal):
    network = FlatModule(mlp([2, 3]))
    weights, inputs = normal(230, network.dim), normal(4, 2)
    assert_close(oc.logits(network, weights, inputs), network(weights, inputs))


def test_spreads_tell_the_generator_s_part_from_the_noise_s(rng):
    """A generator that ignores z has no spread of its own; without noise all of it is its own."""
    target = oc.posterior(oc.digits_config("svgd", "smoke"), data.open_category(data.digits()))
    inputs = data.open_category(data.digits()).unknown_inputs[:20]
    generator = Generator(target.dim, 4, (8,), noise_scale=0.1, rng=rng)
    with torch.no_grad():
        generator.hidden[0].weight.zero_()
    found = oc.spreads(target, inputs, generator, 10)
    assert found["spread_g"] < 1e-10 < found["spread"]
    # The same noise is added to the same constant: only the rounding of g(z) - noise differs.
    assert found["spread_noise"] == pytest.approx(found["spread"], rel=1e-4)
    without = Generator(target.dim, 4, (8,), noise_scale=None, rng=rng)
    assert oc.spreads(target, inputs, without, 10).keys() == {"spread"}


def test_samplers_are_asked_for_as_many_networks_as_they_have(rng):
    split = data.open_category(data.digits())
    target = oc.posterior(oc.digits_config("svgd", "smoke"), split)
    points = torch.randn(6, target.dim, generator=rng)
    assert len(oc.evaluate(target, split, Particles(points), 10)[0]) == 6
    assert len(oc.evaluate(target, split, MeanField(points[0], 0.1 * torch.ones(target.dim)), 12)[0]) == 12


VICTIM = """
import os, signal, sys
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
from test_open_category import run_with_checkpoints
from gpvi_lib.fitting import Training

def advance(self, plain=Training.advance):
    if self.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self)

Training.advance = advance
torch.set_num_threads(int(sys.argv[4]))
run_with_checkpoints(sys.argv[2], Path(sys.argv[3]))
"""


def run_with_checkpoints(method, checkpoint):
    """Thirty steps on the digits, with a checkpoint after each."""
    checkpoints.Schedule.due = lambda self: self.path is not None
    config = oc.digits_config(method, "smoke") | {"steps": 30, "history_every": 10}
    return oc.run(config, method, RunContext(torch.device("cpu"), 0, checkpoint, "test", progress=False))


@pytest.mark.parametrize("method", ["gpvi", "gpvi_exact_density", "amortized_ksd"])
def test_a_killed_run_goes_on_to_the_same_result(method, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.Schedule, "due", checkpoints.Schedule.due)  # undone after the test
    checkpoint = tmp_path / "run.pt"
    # As many threads as here: eight steps with one and the rest with two differ by 1e-6, and for amortised KSD visibly.
    threads = str(torch.get_num_threads())
    command = [sys.executable, "-c", VICTIM, os.path.dirname(__file__), method, str(checkpoint), threads]
    assert subprocess.run(command, cwd=repository(), timeout=300).returncode == -signal.SIGKILL
    left = 30 - step_of(checkpoint)
    assert left == 23
    steps, plain = [], Training.advance
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or plain(self))
    resumed = run_with_checkpoints(method, checkpoint)
    assert len(steps) == left  # it went on, and did not begin anew
    whole = run_with_checkpoints(method, None)
    assert resumed.metrics == whole.metrics
    assert resumed.arrays.keys() == whole.arrays.keys()
    for name, value in whole.arrays.items():
        assert torch.equal(resumed.arrays[name], value), name


def test_a_budget_ends_a_sweep_inside_a_run_and_the_next_one_goes_on_from_there(tmp_path, monkeypatch):
    for name in ("RESULTS", "BUILD"):
        monkeypatch.setenv(f"GPVI_{name}", str(tmp_path / name.lower()))
    steps, plain, clock = [], Training.advance, time.time
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or plain(self))
    # An hour passes with the fiftieth step.
    monkeypatch.setattr(checkpoints.time, "time", lambda: clock() + (3_600 if len(steps) >= 50 else 0))
    sweep = {"methods": ["svgd", "deep_ensemble"], "seeds": [0], "progress": False}
    with pytest.raises(OutOfTime, match="time is up with 2 of 2 runs to do"):
        runner.sweep(get_experiment("open-category-digits"), "quick", budget=1_800, **sweep)
    assert steps == list(range(50)) and not list((tmp_path / "results").rglob("*.json"))
    first, _ = runner.sweep(get_experiment("open-category-digits"), "quick", budget=1_800, **sweep)
    assert steps[50:650] == [*range(50, 600), *range(50)]  # the rest of the first run, then the second from its start
    for name in ("RESULTS", "BUILD"):
        monkeypatch.setenv(f"GPVI_{name}", str(tmp_path / "whole"))
    assert (
        first.metrics
        == runner.run_or_load(get_experiment("open-category-digits").cell("svgd", 0, "quick"), progress=False).metrics
    )


def step_of(checkpoint: Path) -> int:
    return torch.load(checkpoint, weights_only=True)["step"]
