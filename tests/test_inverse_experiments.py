"""The experiments behind notebooks 03 and 04: what is watched, counted and left out."""

import math

import pytest
import torch
import toy_experiment
from torch.testing import assert_close

from gpvi_lib import checkpoints
from gpvi_lib.errors import DivergedError
from gpvi_lib.experiments import bayesian_linear_regression as regression
from gpvi_lib.experiments import get_experiment, inverse_cost, inverse_solvers, linear_problem
from gpvi_lib.experiments.inverse_solvers import FixedNoise, Watched
from gpvi_lib.inverse import BiCGSTABInverse, BlockInverse, HelperInverse, InverseJacobian
from gpvi_lib.kernels import RBF
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.objectives import GPVI
from gpvi_lib.samplers import Generator

CPU = torch.device("cpu")


def context(checkpoint=None, seed=0):
    return RunContext(CPU, seed, checkpoint, "test", progress=False)


def arguments(rng, n=8):
    generator = Generator(5, 2, (4,), noise_scale=0.7, activation="tanh", rng=rng, dtype=torch.float64)
    source, query = generator.noise(n, rng), generator.noise(n, rng)
    with torch.no_grad():
        return generator.linearize(source), source, query, RBF()(source, query)[1]


# Solvers


class Scaled(InverseJacobian):
    """The exact answer times a factor, with a residual to tell it by."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, linearization, source, query, weight, rng=None):
        repulsion, _ = BlockInverse()(linearization, source, query, weight)
        return self.factor * repulsion, {"residual": torch.tensor(abs(1 - self.factor))}


@torch.no_grad()
def test_a_watched_back_end_answers_as_without_and_is_compared_at_every_third_call(rng):
    watched, given = Watched(Scaled(1.25), every=3), arguments(rng)
    expected = 1.25 * BlockInverse()(*given)[0]
    for call in range(1, 4):
        assert all(math.isnan(value) for value in watched.seen.values())
        assert torch.equal(watched(*given)[0], expected)
        assert watched.calls == call
    assert_close(watched.seen["residual"], 0.25)
    assert_close(watched.seen["repulsion_error"], 0.25)
    assert watched.keep({"sigma_error": 2.0}) == {"step": 3.0, "sigma_error": 2.0, **watched.seen}


@torch.no_grad()
@pytest.mark.parametrize("make", [lambda: HelperInverse(width=4), lambda: BiCGSTABInverse(warm_start=True)])
def test_a_watched_back_end_goes_on_where_it_stopped(make, rng, tmp_path):
    given, original = arguments(rng), Watched(make(), every=2)
    original(*given, rng)
    original.keep({})
    checkpoints.save(tmp_path / "state.pt", original.state_dict())  # nothing in it that a checkpoint cannot hold
    restored, twin = Watched(make(), every=2), torch.Generator()
    restored.load_state_dict(checkpoints.load(tmp_path / "state.pt", CPU))
    twin.set_state(rng.get_state())
    assert torch.equal(original(*given, rng)[0], restored(*given, twin)[0])
    assert restored.calls == 2
    assert restored.seen == original.seen
    assert [row["step"] for row in restored.history] == [1.0]


def test_fixed_noise_is_the_same_in_every_step_and_takes_none_of_the_given_randomness(rng):
    generator = Generator(3, noise_scale=None, rng=rng)
    target = linear_problem.problem(regression.config("gpvi", "smoke"), 0, CPU)
    objective, before = FixedNoise(10, noise_seed=4), rng.get_state()
    losses = [float(objective(generator, target, None, rng)[0].detach()) for _ in range(2)]
    assert losses[0] == losses[1]
    assert torch.equal(rng.get_state(), before)
    noise = torch.Generator().manual_seed(4)
    assert losses[0] == float(GPVI(10)(generator, target, None, noise)[0].detach())


@pytest.mark.parametrize("method", ["exact", "helper_2", "bicgstab_cold", "exact_fixed_noise", "exact_lambda_1"])
def test_a_solver_run_records_errors_and_residuals(method):
    settings = inverse_solvers.config(method, "smoke")
    outcome = inverse_solvers.run(settings, method, context())
    assert outcome.metrics["diverged"] == 0
    assert outcome.metrics["last_step"] == settings["steps"]
    assert outcome.arrays["history_step"].tolist() == list(range(0, settings["steps"] + 1))
    final = {key: float(outcome.arrays[f"history_{key}"][-1]) for key in ("sigma_error", "residual", "repulsion_error")}
    assert final == {key: pytest.approx(outcome.metrics[key], rel=1e-6) for key in final}
    exact = method.startswith("exact")
    assert (outcome.metrics["repulsion_error"] == 0) == exact


def test_the_published_helper_follows_the_published_run():
    """Same problem, start and noise as Table 2: watching changes nothing."""
    settings = inverse_solvers.config("helper_1", "smoke")
    ours = inverse_solvers.run(settings, "helper_1", context())
    table = regression.run({key: value for key, value in settings.items() if key != "fixed_noise"}, "gpvi", context())
    assert ours.metrics["sigma_error"] == table.metrics["sigma_error"]


class Explodes(InverseJacobian):
    """Answers NaN at the fourth call."""

    calls = 0

    def __call__(self, linearization, source, query, weight, rng=None):
        self.calls += 1
        repulsion, info = BlockInverse()(linearization, source, query, weight)
        return repulsion * (float("nan") if self.calls == 4 else 1.0), info


def test_a_divergence_is_recorded_as_the_step_at_which_it_came(monkeypatch):
    monkeypatch.setattr(inverse_solvers, "objective", lambda config, seed: GPVI(10, Watched(Explodes())))
    outcome = inverse_solvers.run(inverse_solvers.config("exact", "smoke"), "exact", context())
    assert outcome.metrics == {"diverged": 1.0, "last_step": 4.0}
    assert outcome.arrays["history_step"].tolist() == [0, 1, 2, 3]


def test_other_errors_are_not_taken_for_a_divergence(monkeypatch):
    class Fails(InverseJacobian):
        def __call__(self, *arguments):
            raise ZeroDivisionError

    assert not issubclass(ZeroDivisionError, DivergedError)
    monkeypatch.setattr(inverse_solvers, "objective", lambda config, seed: GPVI(10, Watched(Fails())))
    with pytest.raises(ZeroDivisionError):
        inverse_solvers.run(inverse_solvers.config("exact", "smoke"), "exact", context())


# Cost


def test_peak_memory_counts_live_tensors_once():
    with inverse_cost.PeakMemory() as memory:
        a = torch.zeros(1_000)  # 4,000 bytes
        b = a.view(10, 100)[2:]  # a view
        a.add_(1)  # in place
        c = a + 1  # 4,000 more
        assert memory.live == memory.peak == 8_000
        del c
        assert memory.live == 4_000
        d = torch.zeros(10)
        assert (memory.live, memory.peak) == (4_040, 8_000)
    assert len(b) == 8 and len(d) == 10


def test_peak_memory_ignores_what_was_there_before():
    weights = torch.zeros(1_000)
    with inverse_cost.PeakMemory() as memory:
        rows = weights[:10]
        weights.mul_(2)
    assert memory.peak == 0 and len(rows) == 10


def test_peak_memory_of_dense_jacobians_is_at_least_that_of_the_jacobians():
    settings = inverse_cost.config("dense", "smoke") | {"min_run_time": 1e-4}
    rows = [inverse_cost.measure(settings, d, torch.Generator().manual_seed(0)) for d in (20, 40)]
    for row in rows:
        assert row["bytes"] > 4 * inverse_cost.SAMPLES * row["dim"] ** 2
    assert rows[1]["bytes"] > 3 * rows[0]["bytes"]


def test_bytes_are_reproducible_and_times_are_positive():
    settings = inverse_cost.config("block", "smoke") | {"min_run_time": 1e-4}
    first, second = (inverse_cost.measure(settings, 30, torch.Generator().manual_seed(0)) for _ in range(2))
    assert first["bytes"] == second["bytes"]
    assert min(first["step_ms"], first["direction_ms"]) > 0


def test_dense_is_left_out_where_its_jacobians_do_not_fit():
    assert inverse_cost.config("block", "paper")["dims"][-1] == 61_706
    assert inverse_cost.config("dense", "paper")["dims"][-1] == 3_000
    assert 4 * inverse_cost.SAMPLES * 10_000**2 > inverse_cost.MAX_JACOBIAN_BYTES


@pytest.mark.parametrize("method", inverse_cost.METHODS)
def test_every_back_end_is_measured(method, monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    record = runner.run_or_load(get_experiment("inverse-cost").cell(method, 0, "smoke"), progress=False)
    arrays = record.arrays()
    assert arrays["dim"].tolist() == [10, 30]
    assert ("direction_ms" in arrays) == (method != "exact_density")
    if method in ("dense", "block", "bicgstab"):  # float32; BiCGSTAB stops at a residual of 1e-5
        assert float(arrays["repulsion_error"].max()) < 1e-4


def test_measuring_leaves_threads_and_gradients_as_they_were():
    torch.set_num_threads(3)  # the measurement has one
    settings = inverse_cost.config("block", "smoke") | {"min_run_time": 1e-4, "dims": [10]}
    with torch.no_grad():
        inverse_cost.run(settings, "block", context())
        assert not torch.is_grad_enabled()
    assert torch.get_num_threads() == 3
