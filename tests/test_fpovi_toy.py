"""The toy of function-space POVI: its data and regions, scores against the reference, the exact process, small runs."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import FlatModule, LearnedNoise, mlp
from gpvi_lib.experiments import fpovi_toy as toy
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments.evaluation import Functions, function_scores
from gpvi_lib.experiments.function_models import layer_scales, mean_distance
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.report import scoreboard

METHODS = (*get_experiment("fpovi-toy").methods, *get_experiment("fpovi-toy-controls").methods)


@pytest.fixture(autouse=True)
def _own_records(monkeypatch, tmp_path_factory):
    """The smoke reference is sampled once, into a folder of these tests."""
    folder = tmp_path_factory.getbasetemp() / "fpovi"
    monkeypatch.setenv("GPVI_RESULTS", str(folder / "results"))
    monkeypatch.setenv("GPVI_BUILD", str(folder / "build"))


def context(seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, None, "test", False)


def test_the_data_are_those_of_the_paper():
    x, y = toy.data()
    assert_close(
        torch.stack([x.mean(), x.std(correction=0), y.mean(), y.std(correction=0)]),
        torch.tensor([0, 1, 0, 1.0]).double(),
    )
    left, right = x[:12, 0], x[12:, 0]
    assert left.max() < right.min()
    # the gap of 0.2 between the ranges, in units of the inputs' sd, is at least as wide on drawn data
    assert float(right.min() - left.max()) > 0.2 / 0.4
    assert len(x) == 20 and toy.data(1)[0].shape == (20, 1) and not torch.equal(toy.data(1)[0], x)


def test_regions_share_the_grid():
    at, parts = toy.grid(), toy.regions()
    assert torch.equal(sum(part.int() for part in parts.values()), torch.ones(len(at), dtype=torch.int32))
    x = toy.data()[0][:, 0]
    assert bool((at[parts["gap"]] > x[:12].max()).all() and (at[parts["gap"]] < x[12:].min()).all())
    assert float((at[parts["near"]][:, None] - x).abs().amin(1).max()) <= 0.5
    assert float((at[parts["far"]][:, None] - x).abs().amin(1).min()) > 0.5


def test_scales_are_those_of_the_released_code():
    network = FlatModule(mlp([2, 50, 1]))
    sd = layer_scales(network, "start", torch.float64)
    parts = network.unflatten(sd)
    assert [float(part.flatten()[0]) for part in parts.values()] == pytest.approx([53**-0.5, 0, 52**-0.5, 0])
    prior = network.unflatten(layer_scales(network, "fan_out", torch.float64))
    assert [float(part.flatten()[0]) for part in prior.values()] == pytest.approx([50**-0.5, 50**-0.5, 1, 1])
    assert_close(layer_scales(network, "fan_in", torch.float64), network.fan_in_scale(torch.float64))
    noisy = FlatModule(LearnedNoise(mlp([2, 50, 1])))
    assert float(layer_scales(noisy, "start", torch.float64, other=0.25)[0]) == 0.25


def test_the_prior_has_the_variance_that_the_design_derives():
    """About 2, half of it the bias of the output: ``K = 1 + 1/2 · 50 · ...``."""
    from gpvi_lib import ArcCosine

    x = torch.ones(1, 1, dtype=torch.float64)
    assert float(ArcCosine().given(toy.posterior(50)).covariance(x)) == pytest.approx(2.02, abs=0.05)


def test_scores_of_the_reference_itself_are_those_of_a_perfect_method(normal):
    draws = normal(200, toy.GRID_POINTS)
    found = function_scores(draws, Functions.of(draws), toy.regions())
    for name in toy.regions():
        assert found[f"w1_{name}"] == found[f"rmse_mean_{name}"] == 0 and found[f"sd_ratio_{name}"] == pytest.approx(1)
    shifted = function_scores(2 * draws + 1, Functions.of(draws), toy.regions())
    assert shifted["sd_ratio_gap"] == pytest.approx(2)
    at = toy.regions()["far"]
    assert shifted["rmse_mean_far"] == pytest.approx(float((draws[:, at].mean(0) + 1).square().mean().sqrt()))


def test_the_exact_process_is_the_conditional_gaussian():
    """By the precision matrix of data and grid together, another formula than the code's."""
    from gpvi_lib import ArcCosine

    target = toy.posterior(10)
    mean, covariance = toy.exact_process(target)
    at = toy.grid()[[3, 80, 150]]
    x = torch.cat([target.inputs, at[:, None]])
    joint = ArcCosine().given(target).kernel(x, x)
    joint[:20, :20] += 0.04 * torch.eye(20)
    precision = torch.linalg.inv(joint)
    expected = torch.linalg.inv(precision[20:, 20:])
    assert_close(covariance[[3, 80, 150]][:, [3, 80, 150]], expected, rtol=1e-6, atol=1e-8)
    assert_close(mean[[3, 80, 150]], -expected @ precision[20:, :20] @ target.targets, rtol=1e-6, atol=1e-6)


def test_the_mean_distance_is_that_of_pairs(normal):
    x = normal(4, 3)
    pairs = [float((x[i] - x[j]).norm()) for i in range(4) for j in range(i)]
    assert mean_distance(x) == pytest.approx(sum(pairs) / 6)


@pytest.mark.parametrize("method", METHODS)
def test_a_small_run(method):
    config = toy.config(method, "smoke")
    found = toy.run(config, method, context())
    assert all(math.isfinite(value) for value in found.metrics.values())
    assert {f"w1_{name}" for name in toy.regions()} <= found.metrics.keys()
    if method != "exact_gp":
        assert found.arrays["history_step"].tolist() == [0, 5, 10]
        assert found.metrics["weight_distance_start"] > 0
    if method in ("svgd", "f_svgd", "f_svgd_best_amortized"):
        assert toy.run(config, method, context()).metrics == found.metrics


def test_the_exact_process_is_the_same_with_every_seed():
    one, other = (toy.run(toy.config("exact_gp", "smoke"), "exact_gp", context(seed)) for seed in (0, 1))
    assert one.metrics == other.metrics and get_experiment("fpovi-toy-controls").once == ("exact_gp",)


def test_particles_start_where_the_released_code_starts():
    config = toy.config("svgd", "smoke") | {"steps": 0, "sampler": toy.PARTICLES | {"num": 50}}
    found = toy.run(config, "svgd", context()).metrics
    assert found["weight_distance"] == pytest.approx(7.3, abs=0.15)


def test_repulsion_and_prior_are_taken_out_one_at_a_time():
    specs = toy.SPECS | toy.CONTROLS
    objective = {name: spec.get("objective") for name, spec in specs.items()}
    assert objective["f_svgd_without_prior"] == objective["f_svgd"] | {"prior": None, "prior_points": None}
    assert objective["f_svgd_closed_form"] == objective["f_svgd"] | {"prior": toy.CLOSED}
    alone = objective["f_closed_form_without_repulsion"]
    assert alone | {"direction": {"kind": "svgd"}} == objective["f_svgd_closed_form"]
    assert objective["f_best_without_repulsion"] | {"direction": {"kind": "svgd"}} == objective["f_svgd_best"]
    assert objective["map_ensemble"] == {"kind": "parvi", "direction": toy.REPULSION_OFF}


def test_uniform_points_reach_as_far_as_the_grid():
    box = toy._with_box(toy.SPECS["f_svgd_best"]["objective"])["points"]
    assert (box["low"], box["high"]) == (float(toy.grid()[0]), float(toy.grid()[-1]))
    assert toy._with_box(toy.SPECS["f_svgd"]["objective"]) == toy.SPECS["f_svgd"]["objective"]


def test_published_sizes():
    config = toy.config("f_svgd", "paper")
    assert (config["steps"], config["lr"], config["sampler"]["num"]) == (5_000, 1e-3, 50)
    assert config["objective"]["prior"] == {"kind": "moment_matched", "draws": 400, "floor": 1e-3}
    assert toy.config("f_svgd_100", "paper")["reference"]["method"] == "hmc_100"
    assert toy.REFERENCE.methods == ("hmc_50", "hmc_5", "hmc_10", "hmc_100")
    assert not {row.item for row in scoreboard.published()} & {score.item for score in toy.SCORES}
