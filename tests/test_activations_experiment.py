"""The experiment that chooses an activation: one cell of each problem, and that only the activation differs."""

import math

import pytest
import torch

from gpvi_lib.experiments import activations, get_experiment
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.targets.energy import PlaneGrid


def run(method):
    context = RunContext(torch.device("cpu"), 0, None, method, progress=False)
    return activations.run(get_experiment("activations").config(method, "smoke"), method, context)


@pytest.mark.parametrize("problem", ["ring", "regression", "critic"])
def test_a_cell_depends_on_its_activation_alone(problem):
    relu, tanh = run(f"{problem}_relu"), run(f"{problem}_tanh")
    assert relu.metrics == run(f"{problem}_relu").metrics != tanh.metrics
    assert all(math.isfinite(value) for value in tanh.metrics.values())


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


def test_what_notebook_02_says_of_figure_8():
    """Softplus is ahead of tanh on every seed, by 0.2 to 4.5 nats, and neither folds."""
    tanh, softplus = (
        records.frame(get_experiment("activations"), "paper", [f"classes_{unit}"]).set_index("seed")
        for unit in ("tanh", "softplus")
    )
    gain = softplus["elbo"] - tanh["elbo"]
    assert len(gain) == 3 and round(gain.min(), 1) == 0.2 and round(gain.max(), 1) == 4.5
    assert (tanh["negative_share"] == 0).all() and (softplus["negative_share"] == 0).all()


def test_what_notebook_02_says_of_all_units_on_the_classes_and_the_digits():
    units = ("relu", "tanh", "softplus", "silu", "gelu", "elu")
    experiment = get_experiment("activations")

    def of(problem, key):
        frames = {unit: records.frame(experiment, "paper", [f"{problem}_{unit}"]).set_index("seed") for unit in units}
        return {unit: frame[key] for unit, frame in frames.items()}

    elbo = of("classes", "elbo")
    assert [max(units, key=lambda unit: elbo[unit][seed]) for seed in range(3)] == ["softplus", "elu", "softplus"]
    assert (elbo["softplus"] > elbo["relu"]).all()
    assert all((share == 0).all() for share in of("classes", "negative_share").values())
    auroc = of("digits", "auroc")
    lead = [auroc["relu"] - auroc[unit] for unit in units[1:]]
    assert min(gap.min() for gap in lead) > 0 and max(gap.max() for gap in lead) < 0.04
    assert all(min(gap[seed] for gap in lead) < 0.01 for seed in range(3))
