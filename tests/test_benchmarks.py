"""The benchmarks count, fit and compare correctly; how long anything takes is not tested."""

import json
from itertools import groupby

import pytest
import torch

from benchmarks import cases, floor, peers, products, timing
from benchmarks.__main__ import main
from gpvi_lib import paths


def test_every_method_takes_a_step_on_the_smallest_problem():
    for method in cases.OBJECTIVES:
        training = cases.training(method, cases.SIZES[0], torch.device("cpu"))
        assert torch.isfinite(training.advance())


@pytest.mark.parametrize("size", cases.SIZES, ids=lambda size: size.name)
def test_the_sizes_are_what_their_names_say(size):
    dims = {"MLP, d = 1,000": 1_000, "MLP, d = 10,000": 10_000, "LeNet-5 (MNIST)": 61_706, "4-class BNN": 184}
    assert size.target(torch.device("cpu")).dim == dims.get(size.name, size.target(torch.device("cpu")).dim)


def test_only_jacobians_that_fit_are_inverted():
    assert cases.feasible("gpvi_dense", 1_000, 10) and not cases.feasible("gpvi_dense", 10_000, 10)
    assert cases.feasible("gpvi_block", 10**6, 10)


def test_the_floor_counts_the_generator_s_weights():
    size = cases.SIZES[2]
    generator = cases.training("gpvi_block", size, torch.device("cpu")).sampler
    every = sum(p.numel() for p in generator.parameters())
    output = generator.output.weight.numel() + generator.output.bias.numel()
    parts = {block: floor.phases(size, generator.dim, block) for block in (False, True)}
    assert all(sum(phase.bytes for phase in part) == 40 * every for part in parts.values())
    without, with_block = (sum(phase.operations for phase in part) for part in parts.values())
    assert without == 8 * every * size.samples  # forward over 2n points: 2 · 2n; backward over n: 4 · n
    heads = 2 * 64 * (64 * 128 + 128 * 128) + 2 * 64**3 / 3
    assert with_block - without == pytest.approx(4 * output * size.samples + size.samples * heads)


def test_a_phase_takes_as_long_as_the_slower_of_memory_and_arithmetic():
    phase = floor.Phase("", bytes=6e9, operations=2e9)
    assert phase.milliseconds(bandwidth=2e9, rate=1e9) == 3_000 and phase.milliseconds(1e10, 1e9) == 2_000


def test_exponents_and_ratios():
    assert timing.fitted_exponent([1, 2, 4, 8], [3 * x**1.5 for x in (1, 2, 4, 8)]) == pytest.approx(1.5)
    times = {"base": [1.0, 10.0, 2.0], "other": [2.0, 30.0, 4.0]}  # the second round met a busy machine
    assert timing.ratios(times, "base") == {"base": 1.0, "other": 2.0}


def test_calls_take_turns_and_slow_ones_are_left_out(monkeypatch):
    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    times = timing.interleaved(calls, repeats=3, seconds=0.0, threads=1)
    assert [len(values) for values in times.values()] == [3, 3]
    assert [name for name, _ in groupby(order)][-6:] == ["a", "b"] * 3
    monkeypatch.setattr(timing, "TOO_SLOW", -1.0)
    assert timing.interleaved(calls, repeats=3, seconds=0.0, threads=1) == {}


def test_the_products_of_one_kind_are_one_product(monkeypatch):
    monkeypatch.setattr(products, "ROWS", 30)
    monkeypatch.setattr(products, "WIDTH", 8)
    results = {}
    for name, call in products.calls(samples=3).items():
        results.setdefault(name.split(":")[0], []).append(call())
    for first, *others in results.values():
        for other in others:
            torch.testing.assert_close(first, other)
    assert sorted(map(len, results.values())) == [1, 2, 2, 2]


def test_our_side_of_the_peers_samples_the_right_posterior():
    inputs, labels = peers.problem()
    target, w = peers.LogisticRegression(inputs, labels), torch.randn(3, 31, generator=torch.Generator().manual_seed(0))
    logits = w @ inputs.mT
    expected = -torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.expand(3, -1), reduction="none")
    torch.testing.assert_close(target.log_prob(w), expected.sum(1) - 0.5 * w.square().sum(1))


def test_the_command_writes_what_it_prints(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    monkeypatch.setattr(timing, "peak_memory", lambda *arguments: 1.0)
    main(device="cpu", threads=1, repeats=3, size=["linear regression"], only_steps=True)
    (path,) = (tmp_path / "bench").glob("*.json")
    result = json.loads(path.read_text())
    assert {row["method"] for row in result["steps"]} == {*cases.OBJECTIVES, "score"}
    assert all(row["ratio"] == 1 for row in result["steps"] if row["method"] == "amortized_svgd")
    out = capsys.readouterr().out
    assert "GPVI, block" in out and paths.shown(path) in out
