"""The table of false alarms and misses: a cell of each kind runs, and its targets are what they say."""

import json
import math

import pytest
import torch

from gpvi_lib.experiments import check_table, get_experiment
from gpvi_lib.lab.experiment import RunContext

EXPERIMENT = get_experiment("check-table")


def run(method):
    context = RunContext(torch.device("cpu"), 0, None, method, progress=False)
    return EXPERIMENT.run(json.loads(json.dumps(EXPERIMENT.configuration(method, "smoke"))), method, context).metrics


@pytest.mark.parametrize(
    "method", ["draws_modes", "exact_density_banana", "mean_field_modes_repeats", "folded_sinusoid"]
)
def test_a_cell_runs_and_can_be_recorded(method):
    metrics = run(method)
    assert metrics == run(method) and all(math.isfinite(value) for value in metrics.values())
    assert ("trials" in metrics) == method.startswith("draws") and ("r_hat" in metrics) == ("repeats" in method)


def test_every_row_has_a_configuration_that_holds_the_thresholds():
    for method in EXPERIMENT.methods:
        found = EXPERIMENT.configuration(method, "paper")
        assert found["thresholds"]["K_HAT"] == 0.7 and json.dumps(found)


def test_a_change_of_a_threshold_makes_records_stale(monkeypatch):
    before = EXPERIMENT.configuration("svgd_gaussian", "paper")
    monkeypatch.setattr(check_table.trust_findings, "WORTH", 3.0)
    assert EXPERIMENT.configuration("svgd_gaussian", "paper") != before


@pytest.mark.parametrize("name", ["gaussian", "funnel", "student_t", "modes", "banana"])
def test_draws_of_a_target_follow_its_density(name, rng):
    """``E s(x) = 0`` and ``E s(x) x^T = -I``, number by number, and draws lie apart from other draws by little."""
    from gpvi_lib import score

    make, draw = check_table.TARGETS[name]
    target = make()
    x = draw(target, 20_000, rng)
    s = score(target, x)
    assert bool((s.mean(0).abs() < 5 * s.std(0) / 20_000**0.5).all())
    products = s[:, :, None] * x[:, None, :] + torch.eye(target.dim, dtype=x.dtype)
    assert bool((products.mean(0).abs() < 5 * products.std(0) / 20_000**0.5).all())
    assert check_table.largest_marginal_error(x[:10_000], x[10_000:]) < 0.1
    assert check_table.largest_marginal_error(x + x.std(0), x) == pytest.approx(1, abs=0.01)


def test_the_schools_are_one_posterior_in_two_forms(rng):
    """``p(μ, log τ, z) = p(μ, log τ, θ) τ^8``."""
    z = torch.randn(20, 10, generator=rng, dtype=torch.float64)
    plain, centred = check_table.EightSchools(centred=False), check_table.EightSchools(centred=True)
    gap = plain.log_prob(z) - (centred.log_prob(centred.of_chains(z)) + 8 * z[:, 1])
    torch.testing.assert_close(gap, gap[:1].expand(20))
    assert torch.equal(plain.of_chains(z), z)
