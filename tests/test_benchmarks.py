"""The benchmarks count, fit and compare correctly; how long anything takes is not tested."""

import json
import random

import pytest
import torch
import typer

from benchmarks import attack, cases, convolutions, floor, inverses, peers, products, reports, timing
from benchmarks.__main__ import (
    Rounds,
    _groups,
    _grown_sizes,
    _shown,
    _small_sizes,
    activations,
    against_peers,
    main,
    report,
)
from gpvi_lib import paths
from gpvi_lib.activations import ACTIVATIONS


def test_every_method_takes_a_step_on_the_smallest_problem():
    for method in cases.OBJECTIVES:
        training = cases.training(method, cases.SIZES[0], torch.device("cpu"))
        assert torch.isfinite(training.advance())


@pytest.mark.parametrize("size", cases.SIZES, ids=lambda size: size.name)
def test_the_sizes_are_what_their_names_say(size):
    dims = {"MLP, d = 1,000": 1_000, "MLP, d = 10,000": 10_000, "LeNet-5 (MNIST)": 61_706, "4-class BNN": 184}
    dims |= {"linear regression": 3, "linear regression, d = 20": 20, "CNN (CIFAR-10)": 188_810}
    assert size.target(torch.device("cpu")).dim == dims[size.name]


def test_only_jacobians_that_fit_are_inverted():
    assert cases.feasible("gpvi_dense", 1_000, 10) and not cases.feasible("gpvi_dense", 10_000, 10)
    assert cases.feasible("gpvi_block", 10**6, 10)


def test_the_floor_counts_the_generator_s_weights():
    size = cases.SIZES[3]
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


def test_exponents():
    assert timing.fitted_exponent([1, 2, 4, 8], [3 * x**1.5 for x in (1, 2, 4, 8)]) == pytest.approx(1.5)


def test_generators_that_do_not_fit_together_are_timed_in_pairs(monkeypatch):
    methods = ["amortized_svgd", "gpvi_block", "svgd"]
    assert _groups(methods, cases.SIZES[0], 3) == [methods]
    pairs = [["amortized_svgd", "gpvi_block"], ["amortized_svgd", "svgd"]]
    assert _groups(methods, cases.SIZES[-1], 10**6) == pairs
    assert cases.bytes_in_training(cases.SIZES[0], 3) == 20 * 12


def test_the_products_of_one_kind_are_one_product(monkeypatch):
    monkeypatch.setattr(products, "ROWS", 30)
    monkeypatch.setattr(products, "WIDTH", 8)
    results = {}
    for name, call in products.calls(samples=3).items():
        results.setdefault(name.split(":")[0], []).append(call())
    for first, *others in results.values():
        for other in others:
            torch.testing.assert_close(first, other)
    assert sorted(map(len, results.values())) == [1, 3, 3, 3]


def test_both_ways_of_the_inverse_are_timed_on_the_same_numbers():
    chosen = {}
    for name, (dim, noise_dim, hidden, _) in inverses.SHAPES.items():
        if dim < 1_000:
            chosen[name], calls = inverses.calls(dim, noise_dim, hidden, samples=6)
            torch.testing.assert_close(calls["pairs"](), calls["sources"](), rtol=1e-3, atol=1e-4)
    assert set(chosen.values()) == {"pairs", "sources"}


def test_what_grows_is_what_the_curve_says():
    small = {name: [size for _, size in sizes] for name, sizes in (_grown_sizes() | _small_sizes()).items()}
    assert [size.noise_dim for size in small["k, d = 184"]] == [8, 16, 32, 64]
    assert {size.target(torch.device("cpu")).dim for size in small["k, d = 184"]} == {184}
    assert [size.target(torch.device("cpu")).dim for size in small["d, k = 5"]] == [10, 20, 40, 80, 160]
    assert {size.target(torch.device("cpu")).dim for size in small["k"]} == {10_000}


def test_convolutions_are_timed_on_the_same_numbers(monkeypatch):
    monkeypatch.setattr(convolutions, "SAMPLES", 2)
    monkeypatch.setattr(convolutions, "BATCH", 3)
    results = {name: call() for name, call in convolutions.calls().items()}
    assert len(results) == 8
    for network in ("mnist", "cifar10"):
        for what in ("outputs", "gradient"):
            batched, looped = (results[f"{network}: {what}, {way}"] for way in ("batched", "one by one"))
            torch.testing.assert_close(batched, looped, rtol=1e-4, atol=1e-4)  # float32, sums in another order


def test_peers_that_are_not_installed_are_named_with_their_extra(monkeypatch, capsys):
    monkeypatch.setattr(peers, "missing", lambda: ["jax", "blackjax"])
    assert against_peers(None) == []
    said = 'peers left out: jax, blackjax not installed (pip install -e ".[paper,bench]")\n'
    assert capsys.readouterr().out == said


def test_our_side_of_the_peers_samples_the_right_posterior():
    inputs, labels = peers.problem()
    target, w = peers.LogisticRegression(inputs, labels), torch.randn(3, 31, generator=torch.Generator().manual_seed(0))
    logits = w @ inputs.mT
    expected = -torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.expand(3, -1), reduction="none")
    torch.testing.assert_close(target.log_prob(w), expected.sum(1) - 0.5 * w.square().sum(1))


def test_the_command_writes_what_it_prints(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    monkeypatch.setattr(timing, "peak_memory", lambda *arguments: 1.0)
    main(device="cpu", threads=1, repeats=1, size=["linear regression"], cpu_time=True, only_steps=True)
    (path,) = (tmp_path / "bench").glob("*.json")
    assert path.stem.endswith("-part")
    result = json.loads(path.read_text())
    assert {row["method"] for row in result["steps"]} == {*cases.OBJECTIVES, "score"}
    assert all(row["ratio"] == 1 for row in result["steps"] if row["method"] == "amortized_svgd")
    out = capsys.readouterr().out
    assert "GPVI, block" in out and paths.shown(path) in out
    assert path.with_suffix(".md").read_text() == report(result) and report(result) in out
    assert "CPU time" in report(result)
    monkeypatch.setattr(timing, "peak_memory", lambda *arguments: 2.0)
    with pytest.raises(typer.BadParameter, match="there is no"):  # the whole result is another, and not there yet
        main(device="cpu", threads=1, only_memory=True)
    main(device="cpu", threads=1, only_memory=True, only_steps=True)
    again = json.loads(path.read_text())
    assert {row["memory_mb"] for row in again["steps"] if row["method"] != "score"} == {2.0}
    assert [row["ms"] for row in again["steps"]] == [row["ms"] for row in result["steps"]]
    with pytest.raises(typer.BadParameter, match="--only-memory needs the times of a run"):
        main(device="cpu", threads=2, only_memory=True)


def test_cpu_time_is_that_of_one_thread():
    with pytest.raises(typer.BadParameter, match="--threads 1"):
        main(device="cpu", threads=2, cpu_time=True)


def test_each_activation_is_timed_against_relu():
    rows = activations(torch.device("cpu"), Rounds(threads=1, repeats=1), [cases.SIZES[1]])
    assert {row["activation"] for row in rows} == set(ACTIVATIONS)
    assert all((row["ratio"] == 1) is (row["activation"] == "relu") for row in rows)


def test_what_a_report_adds(monkeypatch):
    """Both steps are real, and the asked one alone is asked; the share is of a hundred reports."""
    asked = {}

    def interleaved(calls, **settings):
        for name, call in calls.items():
            call()
            asked[name] = bool(call.__self__.info)
        return {"silent": [2.0, 4.0, 2.0], "asked": [3.0, 6.0, 3.0]}

    monkeypatch.setattr(reports, "interleaved", interleaved)
    found = reports.extra("amortized_svgd", cases.SIZES[0], 3)
    assert asked == {"silent": False, "asked": True}
    assert found == {"ms": 2_000.0, "extra": pytest.approx(0.5), "steps": 2_500}
    assert [reports.steps_until(share) for share in (-0.1, 0.0, 0.01, 0.38)] == [0, 0, 100, 1_900]


def test_numbers_are_shown_in_three_digits():
    assert [_shown(value) for value in (2531.4, 0.01234, 27.61, float("nan"), 184, "SVGD")] == [
        "2,531", "0.0123", "27.6", "–", "184", "SVGD",
    ]  # fmt: skip
    assert _shown([1.0, 2531.4]) == "1, 2,531"


# the attack


def test_killed_runs_and_damaged_files_lose_nothing():
    counts = attack.kills(4, random.Random(0))
    assert counts["killed"] == 4
    found = attack.damage(20, random.Random(0)) | {"kills": counts}
    assert not any(counts[word] for counts in found.values() for word in counts if word.startswith("lost"))
    assert all(counts["refused"] for name, counts in found.items() if name != "kills")


def test_the_attack_sees_damage_that_nobody_refuses(monkeypatch):
    monkeypatch.setattr(attack.checkpoints, "checksum", lambda content: repr(content))  # and so no seal is checked
    monkeypatch.setattr("gpvi_lib.saving._checksum", lambda *_: "none")
    silent = attack.damage(40, random.Random(0))
    assert silent["saved sampler, flipped"]["lost: silent"] > 0
