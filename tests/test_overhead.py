"""The overhead over amortised SVGD is a ratio of times taken in turns; how long anything takes is not tested."""

from itertools import groupby
from types import SimpleNamespace

import pytest
import torch

from gpvi_lib.experiments import get_experiment, overhead
from gpvi_lib.lab import timing
from gpvi_lib.lab.experiment import RunContext

CONTEXT = RunContext(torch.device("cpu"), 0, None, "test", progress=False)


def test_ratios_are_taken_within_a_round():
    times = {"base": [1.0, 10.0, 2.0], "other": [2.0, 30.0, 4.0]}  # the second round met a busy machine
    assert timing.ratios(times, "base") == {"base": 1.0, "other": 2.0}


def test_calls_take_turns_and_slow_ones_are_left_out():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    arguments = {"repeats": 3, "seconds": 0.0, "threads": 1}
    times = timing.interleaved(calls, **arguments)
    assert [len(values) for values in times.values()] == [3, 3]
    assert [name for name, _ in groupby(order)][-6:] == ["a", "b"] * 3
    assert timing.interleaved(calls, **arguments, too_slow=-1.0) == {}
    assert set(timing.interleaved(calls, **arguments, too_slow=-1.0, keep=("b",))) == {"b"}
    assert set(timing.interleaved(calls, **arguments, too_slow=None)) == {"a", "b"}


@pytest.mark.parametrize("method", get_experiment("overhead").methods)
def test_the_published_generators_are_timed(method):
    config = overhead.config(method, "paper")
    assert config["sampler"]["hidden"] == {"mnist": [256, 512, 1_024], "cifar10": [400, 600, 1_000]}[config["problem"]]
    assert config["inverse"]["kind"] == ("block" if method.endswith("_best") else "helper")


def test_the_networks_have_the_published_sizes():
    dims = {}
    for name, (make, inputs) in overhead.NETWORKS.items():
        target = overhead.random_posterior(make(), inputs, 20, CONTEXT.device)
        assert torch.isfinite(target.log_prob(0.1 * torch.ones(1, target.dim), torch.arange(5)))
        dims[name] = target.dim
    assert dims == {"mnist": 61_706, "cifar10": 188_810}


def test_the_metric_is_the_extra_time(monkeypatch):
    taken = {"gpvi": [3.0, 6.0, 3.0], "amortized_svgd": [2.0, 4.0, 2.0], "independent": [2.5, 5.0, 2.5]}
    measured = {}

    def interleaved(calls, **arguments):
        measured.update({name: call() for name, call in calls.items()})
        return taken

    monkeypatch.setattr(overhead, "timing", SimpleNamespace(interleaved=interleaved, ratios=timing.ratios))
    metrics = overhead.run(overhead.config("gpvi_mnist_best", "smoke"), "gpvi_mnist_best", CONTEXT).metrics
    assert all(torch.isfinite(loss) for loss in measured.values())
    assert metrics["extra_time_fraction"] == pytest.approx(0.5)
    assert metrics["extra_time_fraction_independent"] == pytest.approx(0.2)
    assert metrics["gpvi_ms"] == 3_000
