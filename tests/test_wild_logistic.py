"""Figures 3 and 4 of Wild VI: problems that share no row, what judges chains, and that every kind of cell runs."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import LangevinNetwork
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import wild_logistic as wild
from gpvi_lib.experiments import wild_logistic_sizes as sizes
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GPVI_BUILD", str(tmp_path / "build"))


def context(seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, None, "x", progress=False)


def plain(method, profile="smoke") -> dict:
    return json.loads(json.dumps(wild.config(method, profile)))


def rows(problem) -> set:
    """Rows of data with their labels; those of scikit-learn's digits are all different."""
    infer = torch.cat([problem.posterior.inputs, problem.posterior.labels[:, None]], 1)
    judge = torch.cat([problem.inputs, problem.labels[:, None].float()], 1)
    return {tuple(row) for row in infer.tolist()}, {tuple(row) for row in judge.tolist()}


def test_problems_share_no_row():
    config = plain("svgd_t10", "quick")
    training, test = wild.problems(config, context())
    assert (len(training), len(test)) == (4, 2)
    parts = [part for problem in (*training, *test) for part in rows(problem)]
    assert [len(part) for part in parts] == [240, 59] * 6 and len(set().union(*parts)) == 6 * 299
    again, _ = wild.problems(config, context())
    other, _ = wild.problems(config, context(1))
    assert torch.equal(again[0].inputs, training[0].inputs) and not torch.equal(other[0].inputs, training[0].inputs)
    assert (training[0].inputs[:, 0] == 1).all()  # the intercept


def test_the_papers_sizes():
    config = plain("svgd_t100", "paper")
    sizes = {"data": "covertype-subset", "rows": 10_000, "judge": 2_000, "problems": 9, "train": 7, "chains": 100}
    assert config.items() >= (sizes | {"layers": 100, "rows_a_layer": 100, "steps": 3_000}).items()
    assert config["batch_size"] is None and plain("ksd_u_two_batches_t10", "paper")["batch_size"] == 100
    assert wild.data_sets("paper") == ("covertype-subset",) and wild.data_sets("quick") == ()
    assert wild.split_method("svgd_truncated_t50") == ("svgd_truncated", 50)
    assert wild.split_method("nuts") == ("nuts", 0)


def test_chains_are_judged_together_and_lost_ones_count():
    _, (problem, *_) = wild.problems(plain("laplace"), context())
    mode, _ = wild.fitted(problem)
    z = mode.float().expand(4, -1).clone()
    p = torch.sigmoid(problem.inputs @ z[0, :-1])
    found = problem.judge(z)
    right = (p > 0.5) == (problem.labels == 1)
    assert found["accuracy"] == pytest.approx(float(right.double().mean()))
    likelihood = torch.where(problem.labels == 1, p, 1 - p).log().mean()
    assert found["log_likelihood"] == pytest.approx(float(likelihood), rel=1e-5)
    z[0] = math.nan
    assert problem.judge(z)["log_likelihood"] < found["log_likelihood"]  # it predicts one half
    assert wild.moments(mode.expand(4, -1), problem)["mean_error"] == pytest.approx(0, abs=1e-9)


def test_draws_of_the_laplace_approximation_have_its_moments():
    """2,000 draws: a mean of 65 coordinates is off by 1/√2000 = 0.022 sds (rms), within 40 % of that."""
    config = plain("laplace") | {"chains": 2_000}
    outcome = wild.run(config, "laplace", context())
    assert outcome.metrics["mean_error"] == pytest.approx(0.022, rel=0.4)
    assert outcome.metrics["spread"] == pytest.approx(1, abs=0.03)


def test_every_layer_is_judged_and_the_last_is_the_result():
    config = plain("svgd_t10")
    training, test = wild.problems(config, context())
    net = wild.network_on(config, training[0].posterior, torch.device("cpu"), step_size=1e-3)
    assert isinstance(net, LangevinNetwork) and net.batch_size == 20
    metrics, arrays = wild.of_network(net, config, test, context())
    assert len(arrays["layer_accuracy"]) == config["layers"] + 1
    assert float(arrays["layer_log_likelihood"][-1]) == pytest.approx(metrics["log_likelihood"])
    assert metrics["full_gradients"] == pytest.approx(20 * 5 / 120)


def test_a_candidate_is_chosen_where_it_says():
    """Of no step at all and a good one the good one is chosen, on test and on training problems alike."""
    config = plain("curvature_t10") | {"layers": 40, "chains": 40, "most": 2}
    training, _ = wild.problems(config, context())
    tried = wild.candidates(config, training)
    assert [number for number, _ in tried] == [1.0, 2.0**-4] and tried[0][1].shape == (40, 66)
    constants = wild.candidates(plain("constant_t10", "paper") | {"most": 30}, training)
    assert [number for number, _ in constants] == pytest.approx([1e-6 * 2**j for j in range(30)])
    config = plain("constant_t10") | {"layers": 40, "chains": 40, "most": 30}
    outcome = wild.run(config, "constant_t10", context())
    assert 1e-4 < outcome.metrics["candidate"] < 1 and 1e-4 < outcome.metrics["validated_candidate"] < 1
    assert outcome.metrics["log_likelihood"] > -0.6 > -math.log(2)


def test_each_measure_chooses_its_own_candidate(monkeypatch):
    """Where one measure wants chains far out and the other near, they choose other steps."""

    def judge(problem, z):
        far = float(z.nan_to_num(1e6, 1e6, -1e6).abs().mean())
        return {"log_likelihood": far, "accuracy": -far}

    monkeypatch.setattr(wild.Problem, "judge", judge)
    found = wild.run(plain("constant_t10") | {"most": 30}, "constant_t10", context()).metrics
    assert found["by_accuracy_candidate"] < 1 < found["candidate"] == found["validated_candidate"]
    assert found["by_accuracy_accuracy"] > found["accuracy"]


RUN = [f"{row}_t10" for row in (*wild.TRAINED, *wild.HAND_MADE)] + ["svgd_t100", *wild.REFERENCES]


@pytest.mark.parametrize("method", RUN)
def test_a_cell_runs_and_can_be_recorded(method):
    record = runner.run_or_load(get_experiment("wild-logistic").cell(method, 0, "smoke"), progress=False)
    assert record.metrics.keys() >= {"accuracy", "log_likelihood", "mean_error", "spread", "share_outside"}
    arrays = record.arrays()
    assert arrays["means"].shape == arrays["sds"].shape == (1, 66)
    if wild.split_method(method)[0] in wild.TRAINED:
        columns = 1 if "scalar" in method else 66
        assert arrays["steps"].shape == (5, columns) and len(arrays["layer_accuracy"]) == 6
    if method == "nuts":
        assert math.isfinite(record.metrics["rhat"])  # 1.8 here: chains of so few draws have not mixed


def test_a_cell_gives_the_same_twice():
    one, other = (wild.run(plain("svgd_t10"), "svgd_t10", context()) for _ in range(2))
    assert one.metrics == other.metrics
    assert_close(one.arrays, other.arrays, rtol=0, atol=0)


def test_a_resized_problem_has_its_own_rows_first_and_is_judged_by_its_own():
    training, test = wild.problems(plain("svgd_t10", "quick"), context())
    for factor, number in ((0.25, 60), (1.0, 240), (2.0, 480), (5.0, 1_200)):
        for before, after in zip(test, sizes.resized(factor, training, test), strict=True):
            inputs = after.posterior.inputs
            assert len(inputs) == len(after.posterior.labels) == number
            assert torch.equal(inputs[:240], before.posterior.inputs[:number])
            assert torch.equal(after.inputs, before.inputs)
            assert len({tuple(row) for row in inputs.tolist()} & rows(before)[1]) == 0
    largest = {tuple(row) for row in sizes.resized(5.0, training, test)[0].posterior.inputs.tolist()}
    assert len(largest) == 1_200 and not largest & {tuple(row) for row in training[0].posterior.inputs.tolist()}


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """The metrics of every row of ``wild-logistic-sizes`` at smoke."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RESULTS", "BUILD"):
            patch.setenv(f"GPVI_{name}", str(tmp_path_factory.mktemp(name)))
        run = get_experiment("wild-logistic-sizes")
        cells = {m: run.cell(m, 0, "smoke") for m in sizes.METHODS}
        yield {m: runner.run_or_load(cell, progress=False).metrics for m, cell in cells.items()}


@pytest.mark.parametrize("method", sizes.METHODS)
def test_what_is_carried_to_another_size_is_judged(carried, method):
    found = carried[method]
    assert found["rows"] == {"quarter": 30, "same": 120, "double": 240, "five": 360}[method.rsplit("_", 1)[1]]
    assert math.isfinite(found["log_likelihood"]) and math.isfinite(found["mean_error"])


def test_steps_at_the_size_that_they_were_learned_at_are_those_of_the_other_record(carried, tmp_path):
    cell = get_experiment("wild-logistic").cell("svgd_t10", 0, "smoke")
    found = runner.run_or_load(cell, progress=False).metrics
    for name in ("log_likelihood", "mean_error", "spread"):
        assert carried["steps_same"][name] == pytest.approx(found[name], rel=1e-5)


def test_a_divided_covariance_has_the_spread_of_the_larger_posterior(carried):
    wide, right = carried["laplace_five"]["spread"], carried["laplace_divided_five"]["spread"]
    assert wide == pytest.approx(right * 3**0.5, rel=1e-4)
    assert carried["steps_five"]["mean_error"] != carried["steps_divided_five"]["mean_error"]
