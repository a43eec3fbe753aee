"""LIVI on MNIST and CIFAR-10: every cell runs at smoke, the control is two by two, scores are what they say."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gpvi_lib import FlatModule, LastLayerLaplace, LinearizedModule, data
from gpvi_lib.errors import DataMissing, UnknownName
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import livi_cifar10 as cifar
from gpvi_lib.experiments import livi_images as shared
from gpvi_lib.experiments import livi_mnist as mnist
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.matrix_generators import SplitMatrixGenerator
from gpvi_lib.wide_resnet import wide_resnet

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("own_results")


CELLS = [("livi-mnist", m) for m in mnist.METHODS] + [("livi-mnist-published", "map")]
CELLS += [("livi-cifar10", m) for m in cifar.METHODS]


@pytest.mark.parametrize(("name", "method"), CELLS)
def test_a_cell_runs_and_can_be_recorded(name, method):
    record = runner.run_or_load(get_experiment(name).cell(method, 0, "smoke"), progress=False)
    found, arrays = record.metrics, record.arrays()
    sets = ["shuffled", "transposed"]
    assert found["mean_auroc_percent"] == pytest.approx(sum(found[f"auroc_{s}"] for s in sets) / 2)
    assert 10 <= found["mean_confidence_percent"] <= 100 and math.isfinite(found["nll"])
    assert bool((arrays["entropy_test"].diff() >= 0).all()) and arrays["entropy_test"].shape == (101,)
    if name != "livi-cifar10":
        assert arrays["rotated_nll"].shape == arrays["angles"].shape == (3,)


def test_a_linearised_approximation_predicts_with_the_linearised_network(monkeypatch):
    """Kronecker factors alone; the paper's other approximation of all weights does not."""
    seen = []
    given = shared.probabilities
    monkeypatch.setattr(
        shared, "probabilities", lambda network, *rest: seen.append(type(network)) or given(network, *rest)
    )
    for method, kind in (("full_linearised_laplace", LinearizedModule), ("full_laplace", FlatModule)):
        seen.clear()
        mnist.run(mnist.config(method, "smoke"), method, RunContext(CPU, 0, None, "x", progress=False))
        assert set(seen) == {kind} and len(seen) == 6
    said = (mnist.deviations(method, "paper") for method in ("full_linearised_laplace", "full_laplace", "mnf_fast"))
    assert all(part in text for part, text in zip(("Kronecker", "rank 10", "flows of 2 layers"), said, strict=True))


def test_the_seconds_of_a_laplace_row_are_those_of_its_mode_and_of_the_approximation(monkeypatch):
    """Of a second and of five, by a clock that the approximation alone moves."""
    clock, train, approximate = [0.0], shared.train, shared.LAPLACE[True]

    def laplace(*given):
        clock[0] += 5
        return approximate(*given)

    monkeypatch.setattr(shared, "train", lambda *given: replace(train(*given), seconds=1.0))
    monkeypatch.setitem(shared.LAPLACE, True, laplace)
    monkeypatch.setattr(shared, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    method, context = "last_layer_laplace", RunContext(CPU, 0, None, "x", progress=False)
    found = mnist.run(mnist.config(method, "smoke"), method, context)
    assert found.seconds == 6 and found.metrics["training_minutes"] == pytest.approx(0.1)


def test_the_control_is_two_by_two_for_each_approximation():
    for method in ("livi_min_sv", "livi_full", "gpvi_exact_density", "mf_vi"):
        for end, rate in {
            "": 1e-3,
            "_fast" if method == "mf_vi" else "_slow": 1e-2 if method == "mf_vi" else 7e-5,
        }.items():
            rows = [f"{method}_{model}{end}".replace("mf_vi_bayes", "mf_vi") for model in mnist.MODELS]
            rows = [row.replace("livi_min_sv_released_slow", "livi_min_sv") for row in rows]
            configs = [mnist.config(row, "paper") for row in rows]
            settings = {(c["power"], c["prior_scale"]) for c in configs}
            assert settings == {(1, 1), (1, 34.3), (1 / 234, 1), (1 / 234, 34.3)}
            rest = [{k: v for k, v in c.items() if k not in ("power", "prior_scale")} for c in configs]
            assert all(c == rest[0] for c in rest) and rest[0]["lr"] == rate


def test_the_printed_settings():
    config = mnist.config("livi_min_sv", "paper")
    assert config["sampler"]["shapes"] == [[65, 65], [250, 250], [250, 250], [350, 127]]
    assert (config["lr"], config["final_lr"], config["batch_size"]) == (7e-5, 1e-9, 256)
    assert config["objective"]["iterations"] == 5 and config["sampler"]["noise_scale"] == 0.001
    assert (config["power"], config["prior_scale"]) == (1 / 234, 34.3)
    upload = mnist.config("livi_min_sv_first_upload", "paper")
    assert (upload.pop("power"), upload.pop("prior_scale")) == pytest.approx((1.092, 2.144), abs=5e-4)
    assert upload.items() <= config.items()
    assert mnist.config("map", "paper")["prior_scale"] == pytest.approx(0.144, abs=5e-4)
    assert mnist.config("map", "paper", 100)["steps"] == 23_400
    assert mnist.config("map", "paper")["angles"] == list(range(0, 181, 15))


def test_weight_decay_is_a_prior():
    """The gradient of the mean loss plus 4e-4 |w|^2 is that of the posterior over N."""
    w = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    from gpvi_lib import NormalPrior

    (gradient,) = torch.autograd.grad(-NormalPrior(mnist.DECAYED["prior_scale"]).log_prob(w).sum() / 60_000, w)
    torch.testing.assert_close(gradient, 8e-4 * w)


def test_rows_and_deviations():
    score = get_experiment("livi-mnist").scores[1]
    assert (score.metric, score.key) == ("auroc_percent", "mean_auroc_percent")
    assert get_experiment("livi-mnist").row("livi_min_sv", score) == ("livi_min_sv", "printed")
    assert get_experiment("livi-mnist").row("mf_vi_released", score) == ("mf_vi_released", "control")
    for method in mnist.METHODS:
        assert "transposed MNIST for EMNIST" in mnist.deviations(method, "paper")
    assert "power 0.00427, prior sd 34.3" in mnist.deviations("gpvi_exact_density_released", "paper")
    assert "power 1.09, prior sd 2.14" in mnist.deviations("mf_vi_first_upload", "paper")
    assert "classifier 256-256" in mnist.deviations("avb", "paper")
    assert get_experiment("livi-mnist-published").needs_gpu and get_experiment("livi-cifar10").needs_gpu
    assert "group norm for batch norm" in cifar.deviations("map", "paper")


def test_unseen_images_and_their_scores():
    config = mnist.config("map", "smoke")
    found = shared.images(config, CPU)
    assert float(found.inputs.min()) == 0 and float(found.inputs.max()) == 1
    assert torch.equal(found.unseen["transposed"], found.test_inputs[:100].mT)
    moved, plain = found.unseen["shuffled"], found.test_inputs[:100]
    assert torch.equal(moved.flatten(1).sort(1).values, plain.flatten(1).sort(1).values)
    sure, unsure = torch.eye(3)[torch.tensor([0, 1])], torch.full((2, 3), 1 / 3)
    scores = shared.unseen_scores(sure, {"a": unsure, "b": sure})
    assert scores["auroc_a"] == 100 and scores["auroc_b"] == 50 and scores["mean_auroc_percent"] == 75
    assert scores["confidence_a"] == pytest.approx(100 / 3) and scores["confidence_b"] == 100


def test_rotation_by_0_changes_nothing_and_by_180_does():
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    w = torch.randn(2, network.dim, generator=torch.Generator().manual_seed(0))
    found = shared.images(mnist.config("map", "smoke"), CPU)
    inputs, labels = found.test_inputs[:50], found.test_labels[:50]
    turned = shared.rotated_scores(network, w, inputs, labels, [0, 180])
    p = [shared.probabilities(network, w, x) for x in (inputs, inputs.flip(-1, -2))]
    assert turned["rotated_nll"].tolist() == pytest.approx([-shared.log_likelihood(q, labels) for q in p], rel=1e-4)


def test_laplace_samples_the_last_layer_alone():
    config = mnist.config("last_layer_laplace", "smoke")
    target = shared.posterior(config, shared.images(config, CPU))
    sampler, _, _ = shared.trained(config, target, RunContext(CPU, 0, None, "x", progress=False))
    assert isinstance(sampler, LastLayerLaplace) and len(sampler.lower) == 330
    w = sampler.sample(2, torch.Generator().manual_seed(0))
    assert torch.equal(w[0, :-330], w[1, :-330]) and not torch.equal(w[0], w[1])


def test_the_wide_residual_network():
    """2,748,890 weights with batch norm's two numbers a channel, as group norm has; nothing ties the images."""
    network = wide_resnet(16, 4)
    assert sum(p.numel() for p in network.parameters()) == FlatModule(network).dim
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    small = wide_resnet(10, 1, groups=4)
    torch.testing.assert_close(small(x)[:1], small(x[:1]))
    assert network(x).shape == (2, 10)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 13 and [m.stride[0] for m in convolutions].count(2) == 2
    with pytest.raises(ValueError, match="6 n . 4, got 12"):
        wide_resnet(12)
    with pytest.raises(ValueError, match="divisible by num_groups"):
        wide_resnet(10, 1, groups=32)


def test_the_split_generator_has_about_seven_million_parameters():
    dim = FlatModule(wide_resnet(16, 4)).dim
    assert dim == pytest.approx(2.75e6, rel=0.01)
    sampler = SplitMatrixGenerator(
        dim, **cifar.GENERATORS["wide_resnet"], noise_scale=1e-3, rng=torch.Generator().manual_seed(0)
    )
    assert sum(p.numel() for p in sampler.parameters()) == pytest.approx(7e6, rel=0.1)


def test_unseen_sets_that_are_not_there(tmp_path):
    with pytest.raises(UnknownName, match="set of unseen images 'emnist'"):
        data.unseen("emnist", tmp_path)
    for name in ("fashion-mnist", "kmnist", "cifar100", "svhn"):
        assert not data.available(name, tmp_path)
        with pytest.raises(DataMissing, match=f"python -m gpvi_lib data {name}"):
            data.unseen(name, tmp_path)


@pytest.mark.parametrize("name", ["fashion-mnist", "kmnist"])
def test_the_real_unseen_sets(name):
    if not data.available(name):
        pytest.skip(f"{name} is not below {data.data_root()}; `python -m gpvi_lib data {name}` gets it")
    assert data.unseen(name).shape == (10_000, 28, 28)
