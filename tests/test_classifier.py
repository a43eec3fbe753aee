"""The classifier of notebook 17: what is streamed, what is measured, and that every cell runs."""

import json

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import MeanField, NegativeELBO, data, fit, metrics
from gpvi_lib.experiments import classifier, get_experiment
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator
from gpvi_lib.targets import CategoricalLikelihood, Posterior, StreamedPosterior

RUNS, SETTINGS = get_experiment("classifier"), get_experiment("classifier-settings")


def outcome(experiment, method):
    config = json.loads(json.dumps(experiment.config(method, "smoke")))
    return experiment.run(config, method, RunContext(torch.device("cpu"), 0, None, "test", False))


@pytest.mark.parametrize("method", RUNS.methods)
def test_a_cell_measures_predictions_unseen_images_and_what_check_says(method):
    found = outcome(RUNS, method)
    wanted = {"accuracy_percent", "nll", "ece", "auroc_turned", "auroc_variance_shuffled"}
    ensemble = method == "deep_ensemble"
    wanted |= {f"one_{key}" for key in wanted} if ensemble else {"verdict", "spread", "elbo", "weight_sd"}
    assert wanted <= found.metrics.keys()
    confidence, accuracy, share = (found.arrays[f"reliability_{name}"] for name in ("confidence", "accuracy", "share"))
    assert_close(float((share * (confidence - accuracy).abs()).sum()), found.metrics["ece"], rtol=0, atol=1e-5)
    assert_close(float((share * accuracy).sum()), found.metrics["accuracy_percent"] / 100, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["gpvi_lr_0.01_prior_3", "deep_ensemble_lr_0.001_prior_1"])
def test_a_choice_of_settings_sees_no_test_image_and_nothing_unseen(method):
    found = outcome(SETTINGS, method).metrics
    assert "nll" in found and not [key for key in found if "auroc" in key or "verdict" in key]
    config = SETTINGS.config(method, "paper")
    assert (config["dataset"], config["unseen"], config["checked"]) == ("fashion-mnist-validation", [], 0)


def test_settings_and_epochs_are_what_the_names_say():
    for name, (method, settings) in classifier.CANDIDATES.items():
        config = SETTINGS.config(name, "paper")
        assert name == f"{method}_lr_{config['lr']:g}_prior_{config['prior_factor']:g}"
        assert settings.items() <= config.items() and config["steps"] == 2 * 390
    assert all(RUNS.config(method, "paper")["steps"] == 5 * 468 for method in RUNS.methods)
    for method, chosen in classifier.CHOSEN.items():
        assert (method, chosen) in classifier.CANDIDATES.values()


def test_the_generator_is_that_of_the_ten_lines():
    scale = torch.rand(30, generator=torch.Generator().manual_seed(0)) + 0.5
    ours = build_sampler(classifier.GENERATOR, 30, scale, torch.Generator().manual_seed(1))
    theirs = Generator.for_weights(scale, rng=torch.Generator().manual_seed(1))
    for (name, one), (other_name, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other_name and torch.equal(one, other)
    assert ours.activation == theirs.activation


def test_images_that_are_read_are_those_in_memory():
    images = data.digits()
    dataset = classifier.Scaled.of(images.train, images.train_labels)
    x = dataset.scaled(images.train)
    assert_close((float(x.mean()), float(x.std())), (0.0, 1.0), rtol=0, atol=1e-4)
    module = classifier.network(8, 2, 5)
    fields = []
    for target in (
        StreamedPosterior(module, CategoricalLikelihood(), dataset),
        Posterior(module, CategoricalLikelihood(), x, images.train_labels),
    ):
        field = MeanField(torch.zeros(target.dim), 0.1)
        settings = {"steps": 3, "batch_size": 16, "optimizer": Adam(1e-2), "seed": 0, "progress": False}
        fit(field, target, NegativeELBO(2), **settings)
        fields.append(field.mean.detach())
    assert torch.equal(*fields)


def test_the_network_sees_the_means_of_squares():
    images = torch.arange(2 * 28 * 28.0).view(2, 28, 28)
    found = classifier.network(28, 2, 64)[:2](images)
    assert found.shape == (2, 1, 14, 14)
    assert_close(found[0, 0, 0, 0], torch.tensor([0.0, 1, 28, 29]).mean())
    assert sum(p.numel() for p in classifier.network(28, 2, 64).parameters()) == 13_258


def test_what_stands_in_for_unseen_images():
    test = data.digits().test[:7]
    assert torch.equal(classifier.unseen_images("turned", test), torch.rot90(test, 1, (1, 2)))
    shuffled = classifier.unseen_images("shuffled", test)
    assert shuffled.shape == test.shape and not torch.equal(shuffled, test)
    assert torch.equal(shuffled.flatten(1).sort(1).values, test.flatten(1).sort(1).values)


def test_the_training_of_a_method_is_that_of_its_configuration(monkeypatch):
    seen = []
    monkeypatch.setattr(classifier, "train", lambda *args: seen.append(args[3]) or train(*args))
    outcome(RUNS, "mf_vi")
    assert seen[0]["batch_size"] == 64 and seen[0]["steps"] == 1_257 // 64
    assert build_objective(classifier.SPECS["gpvi"]["objective"]).kernel_space == "head"


def test_unlabelled_scores_of_one_network_have_no_variance():
    logits = torch.randn(1, 30, 10, generator=torch.Generator().manual_seed(0))
    labels = logits[0].argmax(-1)
    found = classifier.scores(logits, labels, {"other": 0 * logits})
    assert found["accuracy_percent"] == 100 and found["auroc_other"] == 1.0 and found["auroc_variance_other"] == 0.5
    assert found["ece"] == metrics.expected_calibration_error(logits[0].softmax(-1), labels)
