"""The reference chains: what is compared, how it is diagnosed, and that a resumed run draws the same samples."""

import json
import math
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import checkpoints
from gpvi_lib.errors import OutOfTime, UnknownName
from gpvi_lib.experiments import chains, get_experiment
from gpvi_lib.experiments.chains import diagnostics, nuts
from gpvi_lib.experiments.nuts_reference import POSTERIORS, posterior, quantities
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.targets import ClassificationPosterior, Gaussian, check_finite

SETTINGS = {"warmup": 150, "draws": 250, "target_accept": 0.8, "max_tree_depth": 6}


def target_of(kind, seed=0):
    return posterior({"kind": kind} | POSTERIORS[kind], seed)


@pytest.fixture
def gaussian():
    covariance = torch.tensor([[1.0, 0.6], [0.6, 2.0]], dtype=torch.float64)
    return Gaussian(torch.tensor([1.0, -1.0], dtype=torch.float64), covariance)


def test_pyro_is_not_needed_to_import_the_library():
    code = "import sys, gpvi_lib, gpvi_lib.experiments.nuts_reference; sys.exit('pyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", POSTERIORS)
def test_posteriors_are_double_precision_targets(kind, normal):
    target = target_of(kind)
    check_finite(target, normal(3, target.dim))
    assert target.log_prob(normal(2, target.dim)).dtype == torch.float64


def test_another_seed_is_another_problem_but_for_fixed_densities(normal):
    for kind, changes in (("bnn", True), ("regression", True), ("gaussian", False)):
        point = normal(1, target_of(kind).dim)
        same = torch.equal(target_of(kind, 0).log_prob(point), target_of(kind, 1).log_prob(point))
        assert same != changes


def test_an_unknown_posterior_is_refused():
    with pytest.raises(UnknownName, match="cauchy"):
        posterior({"kind": "cauchy"}, 0)


def test_quantities_are_coordinates_and_products_or_predictions(normal):
    draws = normal(2, 5, 2)
    found = quantities(target_of("banana"), draws)
    a, b = draws.unbind(-1)
    assert_close(found, torch.stack([a, b, a * a, a * b, b * b], dim=-1))
    bnn = target_of("bnn")
    probabilities = quantities(bnn, normal(2, 5, bnn.dim)).unflatten(-1, (-1, 4))
    assert_close(probabilities.sum(-1), torch.ones(2, 5, 169, dtype=torch.float64))


def test_predictions_do_not_see_the_order_of_hidden_units(normal):
    """The reason for function space: permuted units and flipped signs are the same function, at the same density."""
    bnn = target_of("bnn")
    assert isinstance(bnn, ClassificationPosterior)
    w = normal(1, bnn.dim)
    parts = bnn.network.unflatten(w)
    order, sign = torch.tensor([3, 1, 5, 0, 2, 4]), torch.tensor([1, -1, 1, -1, -1, 1], dtype=torch.float64)
    first, bias, second, last = parts.values()
    twin = torch.cat([(first[:, order] * sign[:, None]).flatten(1), bias[:, order] * sign,
                      (second[:, :, order] * sign).flatten(1), last], dim=1)  # fmt: skip
    assert not torch.equal(w, twin)
    assert_close(quantities(bnn, w[None]), quantities(bnn, twin[None]))
    assert_close(bnn.log_prob(w), bnn.log_prob(twin))


def test_diagnostics_of_independent_draws(normal):
    found = diagnostics(normal(4, 1_000, 2))
    assert bool((found["rhat"] < 1.01).all())
    assert bool(((found["ess"] - 4_000).abs() < 1_000).all())
    assert_close(found["mcse_mean"], found["sd"] / found["ess"].sqrt(), rtol=0.1, atol=0)


def test_diagnostics_see_a_chain_apart_and_slow_chains(normal):
    draws = normal(4, 500, 2)
    draws[0, :, 0] += 3
    steps = normal(4, 500, 2)
    slow = torch.zeros(4, 500, 2, dtype=torch.float64)
    for t in range(1, 500):
        slow[:, t] = 0.9 * slow[:, t - 1] + math.sqrt(1 - 0.81) * steps[:, t]
    assert diagnostics(draws)["rhat"][0] > 1.3 > 1.02 > diagnostics(draws)["rhat"][1]
    # τ = 1.9 / 0.1 = 19: 2000 states are worth 105, and the estimate is good to some 30 %
    assert bool((diagnostics(slow)["ess"] < 200).all())


def test_nuts_samples_a_gaussian(gaussian, normal):
    draws, info = nuts(gaussian.log_prob, normal(4, 2), **SETTINGS, seed=0, progress=False)
    assert draws.shape == (4, 250, 2)
    assert draws.dtype == torch.float64
    found = diagnostics(quantities(gaussian, draws))
    second = gaussian.covariance + torch.outer(gaussian.mean, gaussian.mean)
    truth = torch.cat([gaussian.mean, second[torch.triu_indices(2, 2).unbind()]])
    assert bool(((found["mean"] - truth).abs() < 4 * found["mcse_mean"]).all())
    assert bool((found["mcse_mean"] < 0.3).all())
    assert info["gradients"] > 4 * 400
    assert info["step_size"] > 0


def test_nuts_leaves_torchs_generator_alone_and_depends_on_its_seed(gaussian, normal):
    initial, results = normal(1, 2), []
    settings = SETTINGS | {"warmup": 20, "draws": 10}
    for torch_seed, seed in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(torch_seed)
        state = torch.get_rng_state()
        results.append(nuts(gaussian.log_prob, initial, **settings, seed=seed, progress=False)[0])
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[1], results[2])


def test_nuts_goes_on_after_the_chains_that_are_done(gaussian, normal, tmp_path, monkeypatch):
    initial, settings = normal(3, 2), SETTINGS | {"warmup": 20, "draws": 10}
    whole, info = nuts(gaussian.log_prob, initial, **settings, seed=3, progress=False)
    path, chain, calls = tmp_path / "chains.pt", chains._nuts_chain, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return chain(*arguments)

    monkeypatch.setattr(chains, "_nuts_chain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nuts(gaussian.log_prob, initial, **settings, seed=3, checkpoint=path, progress=False)
    resumed, again = nuts(gaussian.log_prob, initial, **settings, seed=3, checkpoint=path, progress=False)
    assert len(calls) == 4
    assert torch.equal(resumed, whole)
    assert again.pop("seconds") > 0
    assert {**again, "seconds": info["seconds"]} == info


def test_nuts_stops_at_the_deadline_after_a_chain(gaussian, normal, tmp_path, monkeypatch):
    """And draws no chain twice: both are done when the last call begins."""
    initial, settings, chain, calls = normal(2, 2), SETTINGS | {"warmup": 20, "draws": 10}, chains._nuts_chain, []
    monkeypatch.setattr(chains, "_nuts_chain", lambda *arguments: calls.append(arguments) or chain(*arguments))
    with checkpoints.deadline(0.0):
        for _ in range(len(initial)):
            with pytest.raises(OutOfTime):
                nuts(gaussian.log_prob, initial, **settings, seed=3, checkpoint=tmp_path / "chains.pt", progress=False)
    assert len(calls) == 2
    resumed, _ = nuts(gaussian.log_prob, initial, **settings, seed=3, checkpoint=tmp_path / "chains.pt", progress=False)
    assert len(calls) == 2
    whole, _ = nuts(gaussian.log_prob, initial, **settings, seed=3, progress=False)
    assert torch.equal(resumed, whole)


def test_configurations_hold_all_that_decides_and_shrink():
    experiment = get_experiment("nuts-reference")
    for method in experiment.methods:
        paper, smoke = experiment.config(method, "paper"), experiment.config(method, "smoke")
        assert json.loads(json.dumps(paper)) == paper
        assert paper["posterior"] == {"kind": paper["posterior"]["kind"]} | POSTERIORS[paper["posterior"]["kind"]]
        length = "draws" if paper["sampler"] == "nuts" else "num_steps"
        assert smoke[length] < experiment.config(method, "quick")[length] < paper[length]
    printed = experiment.config("hmc_printed_bnn", "paper")
    published = {"step_size": 5e-4, "num_leapfrog": 25, "num_steps": 25_000, "burn_in": 20_000}
    assert {key: printed[key] for key in published} == published


@pytest.mark.parametrize("method", ["nuts_banana", "hmc_bnn"])
def test_a_run_is_reproducible_and_small_enough_for_a_record(method):
    experiment, outcomes = get_experiment("nuts-reference"), []
    context = RunContext(torch.device("cpu"), 0, None, method, False)
    config = experiment.config(method, "smoke")
    for _ in range(2):
        outcomes.append(experiment.run(config, method, context))
    assert outcomes[0].metrics == outcomes[1].metrics
    arrays = outcomes[0].arrays
    assert sum(array.numel() * array.element_size() for array in arrays.values()) < records.MAX_ARRAY_BYTES
    assert arrays["trace"].shape[0] == config["chains"]
    assert set(arrays) >= {"mean", "sd", "mcse_mean", "rhat", "ess", "weights_rhat", "trace"}


def test_the_burn_in_of_hmc_is_thrown_away_but_traced():
    experiment = get_experiment("nuts-reference")
    context = RunContext(torch.device("cpu"), 0, None, "test", False)
    config = experiment.config("hmc_printed_regression", "smoke")
    outcome = experiment.run(config, "hmc_printed_regression", context)
    assert outcome.metrics["draws"] == config["chains"] * (config["num_steps"] - config["burn_in"])
    assert outcome.arrays["trace"].shape == (config["chains"], config["num_steps"], 3)
    assert outcome.metrics["gradients"] == config["chains"] * config["num_steps"] * 25
