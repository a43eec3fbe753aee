"""The experiment that chooses an activation: one cell of each problem, and that only the activation differs."""

import math

import pytest
import torch

from gpvi_lib.experiments import activations, get_experiment
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.targets.energy import PlaneGrid


def run(method, device="cpu"):
    context = RunContext(torch.device(device), 0, None, method, progress=False)
    return activations.run(get_experiment("activations").config(method, "smoke"), method, context)


@pytest.mark.parametrize("problem", ["ring", "regression", "critic"])
def test_a_cell_depends_on_its_activation_alone(problem):
    relu, tanh = run(f"{problem}_relu"), run(f"{problem}_tanh")
    assert relu.metrics == run(f"{problem}_relu").metrics != tanh.metrics
    assert all(math.isfinite(value) for value in tanh.metrics.values())


@pytest.mark.parametrize("problem", ["ring", "regression", "critic"])
def test_a_small_problem_runs_on_the_cpu_whatever_the_device(problem):
    """The meta device computes nothing, so whatever ran there would fail."""
    assert run(f"{problem}_tanh", "meta").metrics == run(f"{problem}_tanh").metrics


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_configurations_differ_in_the_activation_alone(profile):
    for problem in activations.PROBLEMS:
        found = []
        for method, (of, name) in activations.METHODS.items():
            if of == problem:
                config = dict(activations.config(method, profile))
                part = config.pop("sampler") if "sampler" in config else config
                assert part.pop("activation") == name
                found.append((config, part))
        assert len(found) == 6 and all(one == found[0] for one in found)


def test_the_ring_is_normalised_by_its_grid(rng):
    """∫ exp(-(r - 2)² / 2s²) 2πr dr = 2π · 2 · s √(2π), but for the tail at r < 0, which is exp(-22)."""
    grid = PlaneGrid(activations.Ring(), half_width=5.0, cells=60)
    assert grid.log_normaliser == pytest.approx(math.log(4 * math.pi * 0.3 * math.sqrt(2 * math.pi)), abs=1e-6)
    draws = grid.sample(20_000, rng)
    assert float(draws.norm(dim=-1).mean()) == pytest.approx(2 + 0.09 / 2, abs=5 * 0.3 / 20_000**0.5)
