"""The benchmark of notebook 26: its counts and scores against closed forms, and one small run of each method."""

import math
from dataclasses import replace

import pytest
import torch

from gpvi_lib import Adam, Gaussian, Generator, NegativeELBO, fit, hmc, score
from gpvi_lib.errors import DivergedError
from gpvi_lib.experiments import (
    benchmark,
    benchmark_older,
    benchmark_uci,
    classification,
    classification_reference,
    get_experiment,
    one_dimensional_regression,
    uci_regression,
)
from gpvi_lib.experiments.evaluation import fixed_draws
from gpvi_lib.experiments.known_targets import BreastCancer, Funnel
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext

CONTEXT = RunContext(torch.device("cpu"), 0, None, "test", False)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def test_a_counted_target_counts_gradients_and_nothing_else(rng):
    target = benchmark.Counted(Funnel())
    x = torch.randn(7, 10, generator=rng)
    target.log_prob(x)  # a value alone
    with torch.no_grad():
        target.log_prob(x.clone().requires_grad_())
    assert target.gradients == 0
    torch.testing.assert_close(score(target, x), score(Funnel(), x))
    assert target.gradients == 7
    settings = {"step_size": 0.1, "num_leapfrog": 4, "num_steps": 5, "burn_in": 0, "progress": False}
    hmc(target.log_prob, x, **settings, rng=rng)
    assert target.gradients == 7 + 7 * (1 + 5 * 4)  # the start, then four leapfrog steps of five proposals


def test_training_takes_a_gradient_for_each_sample_of_each_step(rng):
    counts = []
    for steps in (1, 11):
        target = benchmark.Counted(Gaussian(torch.zeros(3), torch.eye(3)))
        sampler = Generator(3, noise_dim=2, hidden=(8,), noise_scale=torch.ones(3), train_noise_scale=True, rng=rng)
        fit(sampler, target, NegativeELBO(20), steps=steps, optimizer=Adam(1e-3), rng=rng, progress=False)
        counts.append(target.gradients)
    assert counts[1] - counts[0] == 10 * 20


def test_quality_of_a_shifted_and_of_a_wider_normal():
    """W_1 of a shift is the shift; the coverage of an interval that is half as wide is Φ(1.645 / 2) - Φ(-1.645 / 2)."""
    levels = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    exact = torch.special.ndtri(levels)[:, None].expand(-1, 2)
    same = benchmark.quality(exact, exact)
    assert same["error"] == 0 and same["coverage"] == pytest.approx(0.9, abs=1e-3) and same["sd_ratio"] == 1
    shifted = benchmark.quality(exact + torch.tensor([0.0, 0.5]), exact)
    assert shifted["error"] == pytest.approx(0.25, abs=1e-3) and shifted["error_max"] == pytest.approx(0.5, abs=2e-3)
    narrow = benchmark.quality(exact / 2, exact)
    assert narrow["coverage_min"] == pytest.approx(math.erf(1.6448536 / 2 / 2**0.5), abs=1e-3)
    assert narrow["error"] == pytest.approx(0.5 * (2 / math.pi) ** 0.5, abs=2e-3)
    assert benchmark.quality(exact, 3 * exact)["error"] == pytest.approx(2 / 3 * (2 / math.pi) ** 0.5, abs=2e-3)


def test_both_forms_of_eight_schools_are_scored_in_the_same_coordinates(monkeypatch, tmp_path, rng):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    (plain, _), (centred, _) = (
        benchmark.reference(name, "smoke") for name in ("eight_schools", "eight_schools_centred")
    )
    assert torch.equal(plain, centred)
    z = torch.randn(20, 10, generator=rng, dtype=torch.float64)
    effects = z[:, :1] + z[:, 1:2].exp() * z[:, 2:]
    assert torch.equal(benchmark.reported("eight_schools", z)[:, 2:], effects)
    assert torch.equal(benchmark.reported("eight_schools_centred", z), z)


def test_a_wrong_reference_shows_in_the_row_of_its_own_draws(monkeypatch, tmp_path):
    """Spare draws of the reference are as good as samples get; against another density they are not."""
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    exact, spare = benchmark.reference("funnel", "smoke")
    assert len(exact) == benchmark.REFERENCE_DRAWS and len(spare) == benchmark.SPARE_DRAWS
    right, wrong = benchmark.quality(spare, exact), benchmark.quality(spare, exact + exact.std(0))
    assert right["error"] < 0.1 < 0.9 < wrong["error"]
    assert abs(right["coverage"] - 0.9) < 0.02 < 0.1 < abs(wrong["coverage"] - 0.9)


def test_the_logistic_regression_is_the_one_in_its_docstring(rng):
    target, w = BreastCancer(), torch.randn(3, 31, generator=rng, dtype=torch.float64)
    inputs, labels = target.inputs, (target.signs + 1) / 2
    torch.testing.assert_close(inputs[:, 1:].std(0), torch.ones(30, dtype=torch.float64))
    logits = w @ inputs.mT
    bernoulli = torch.distributions.Bernoulli(logits=logits).log_prob(labels).sum(-1)
    torch.testing.assert_close(target.log_prob(w), bernoulli - 0.5 * w.square().sum(-1))


def test_every_row_has_a_target_and_a_method():
    experiment = get_experiment("benchmark")
    number = len(benchmark.TARGETS) * len(benchmark.METHODS) - len(benchmark.WITHOUT)
    assert len(experiment.methods) == number == len(set(experiment.methods))
    for row in experiment.methods:
        name, method = benchmark.parts(row)
        assert f"{name}_{method}" == row
    assert benchmark.parts("eight_schools_centred_hmc") == ("eight_schools_centred", "hmc")


def test_a_langevin_network_loses_its_chains_on_the_centred_form():
    """Why there is no row of it: as in the benchmark, from a first step size that shows it at once."""
    (row,) = ["_".join(pair) for pair in benchmark.WITHOUT]
    config = benchmark.config(row, "smoke") | {"steps": 50, "history_every": 50}
    config["sampler"] = config["sampler"] | {"step_size": 0.05}
    target = benchmark.Counted(benchmark.TARGETS[config["target"]]())
    with pytest.raises(DivergedError, match="step 1: log_prob of Counted is not finite at"):
        benchmark.trained(config, target, CONTEXT, torch.Generator().manual_seed(0))


def test_the_setting_is_the_same_on_every_target():
    for method in benchmark.METHODS:
        found = [benchmark.config(f"{name}_{method}", "paper") for name in benchmark.TARGETS]
        rest = [{key: value for key, value in one.items() if key not in ("target", "reference")} for one in found]
        assert all(one == rest[0] for one in rest)


@pytest.mark.parametrize("method", benchmark.METHODS)
def test_a_small_run_has_all_scores_and_counts(method, monkeypatch, tmp_path):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    row = f"funnel_{method}"
    outcome = benchmark.run(benchmark.config(row, "smoke"), row, CONTEXT)
    assert {"error", "coverage", "sd_ratio"} <= outcome.metrics.keys()
    assert all(math.isfinite(value) for value in outcome.metrics.values())
    if method == "draws":
        return
    assert outcome.metrics["gradients"] > 0 and outcome.arrays["draws"].shape[1] == 10
    has_density = method in ("mean_field", "exact_density", "gpvi", "exact_density_readme", "gpvi_readme")
    assert ("elbo" in outcome.metrics) == has_density
    assert ("elbo_low" in outcome.metrics) == (method == "livi")


def test_refined_starts_where_its_training_ended(monkeypatch, tmp_path):
    """Its gradients are those of the training, then those of the chains, which the other start takes as well."""
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    benchmark._warm_up()  # which trains as well, once in a process
    samplers, starts = [], []

    def training(*arguments, **named):
        found = train(*arguments, **named)
        samplers.append(found)
        return found

    def chains(config, log_prob, start, *arguments, **named):
        starts.append(start)
        return run_hmc(config, log_prob, start, *arguments, **named)

    train, run_hmc = benchmark.trained, benchmark.run_hmc
    monkeypatch.setattr(benchmark, "trained", training)
    monkeypatch.setattr(benchmark, "run_hmc", chains)
    refined, trained, elsewhere = (
        benchmark.run(benchmark.config(f"funnel_{method}", "smoke"), "", CONTEXT).metrics
        for method in ("refined", "exact_density", "hmc_elsewhere")
    )
    assert refined["gradients_of_training"] == trained["gradients"]
    assert refined["gradients"] > refined["gradients_of_training"]
    assert "gradients_of_training" not in elsewhere
    assert torch.equal(starts[0], fixed_draws(samplers[0], len(starts[0]), seed=7_000))


def without_times(outcome):
    return {name: value for name, value in outcome.metrics.items() if not name.endswith("seconds")}


@pytest.mark.parametrize(("module", "row"), [(benchmark, "funnel_langevin"), (benchmark_older, "table_2_langevin")])
def test_a_row_runs_on_the_cpu_whatever_the_device(module, row, monkeypatch, tmp_path):
    """The meta device computes nothing, so whatever ran there would fail."""
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path))
    elsewhere = replace(CONTEXT, device=torch.device("meta"))
    here, there = (module.run(module.config(row, "smoke"), row, context) for context in (CONTEXT, elsewhere))
    assert without_times(here) == without_times(there)


# ---------------------------------------------------------------- targets of other experiments


@pytest.fixture(scope="module")
def references(own_results):
    """Long chains of Figures 8 and 9 at the size of smoke; the other references are sampled when they are asked for."""
    for method in ("hmc_4", "hmc_2"):
        runner.run_or_load(classification_reference.REFERENCE.cell(method, 0, "smoke"), progress=False)


@pytest.mark.parametrize("row", get_experiment("benchmark-older").methods)
def test_a_small_run_on_an_older_target_has_its_scores_and_counts(row, references):
    outcome = benchmark_older.run(benchmark_older.config(row, "smoke"), row, CONTEXT)
    scores = {"sigma_error", "total_variation", "w1", "w1_far"} & outcome.metrics.keys()
    assert scores and all(math.isfinite(value) for value in outcome.metrics.values())
    assert outcome.metrics["gradients"] > 0 and len(outcome.arrays["draws"]) == min(20, outcome.metrics["draws"])


@pytest.mark.parametrize(
    ("name", "module", "config", "key"),
    [
        ("four_classes", classification, lambda row: classification.config(4, row, "smoke"), "total_variation"),
        ("figure_1", one_dimensional_regression, lambda row: one_dimensional_regression.config(row, "smoke"), "w1"),
    ],
)
def test_a_row_is_measured_as_those_of_the_targets_own_experiment(name, module, config, key, references):
    own = config(benchmark_older.DENSITY)
    there = module.run(own, benchmark_older.DENSITY, CONTEXT).arrays
    here = benchmark_older.run(own | {"target": name, "method": "exact_density"}, "", CONTEXT).metrics
    assert here[key] == pytest.approx(float(there[f"history_{key}"][-1]), rel=1e-3)


def test_nothing_is_tuned_on_an_older_target():
    for row in get_experiment("benchmark-older").methods:
        found = benchmark_older.config(row, "paper")
        if found["method"] in ("refined", "hmc_elsewhere"):
            own = benchmark.config(f"funnel_{found['method']}", "paper")
            keys = ("step_size", "adapt", "chains", "num_leapfrog", "num_steps", "burn_in")
            assert {key: found[key] for key in keys} == {key: own[key] for key in keys}
        elif found["method"] == "livi":
            own = benchmark_older.TARGETS[found["target"]][1]("paper")
            assert all(found[key] == own[key] for key in ("steps", "lr", "final_lr"))
        elif found["method"] in ("gpvi", "mean_field", "exact_density"):
            row = {"gpvi": "gpvi_best", "mean_field": "mf_vi_best"}.get(found["method"], benchmark_older.DENSITY)
            own = classification.config(4, row, "paper")
            assert all(found[key] == own[key] for key in ("steps", "lr", "final_lr", "objective"))


@pytest.mark.parametrize("method", get_experiment("benchmark-uci").methods)
def test_a_small_run_on_tables_has_the_scores_of_the_other_rows_there(method):
    outcome = benchmark_uci.run(benchmark_uci.config(method, "smoke"), method, CONTEXT)
    there = uci_regression.run(uci_regression.config("svgd", "smoke"), "svgd", CONTEXT)
    assert there.metrics.keys() <= outcome.metrics.keys() and outcome.metrics["processor_seconds"] > 0
    assert all(math.isfinite(value) for value in outcome.metrics.values())


def test_nothing_is_tuned_on_tables():
    settings = ("sets", "samples", "steps", "lr", "final_lr", "batch_size")
    for method, row in {"gfsf": "svgd", "livi": "gpvi_exact_density"}.items():
        own, found = uci_regression.config(row, "paper"), benchmark_uci.config(method, "paper")
        assert {key: found[key] for key in settings} == {key: own[key] for key in settings}
    chains = ("step_size", "adapt", "chains", "num_leapfrog", "num_steps", "burn_in")
    for method in ("refined", "hmc_elsewhere"):
        own, found = benchmark.config(f"funnel_{method}", "paper"), benchmark_uci.config(method, "paper")
        assert {key: found[key] for key in chains} == {key: own[key] for key in chains}
