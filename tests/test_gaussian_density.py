"""Gaussian density estimation: the problems, the measures, and that its cells run and can be told apart."""

import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import GPVI, Gaussian, Generator, HelperInverse, SteinCritic, fit
from gpvi_lib.errors import UnknownName
from gpvi_lib.experiments import gaussian_density as density
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.lab import runner
from gpvi_lib.optimizers import Adam

TABLES = TWO, FIVE = [get_experiment(f"gaussian-density-{d}d") for d in (2, 5)]


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GPVI_BUILD", str(tmp_path / "build"))


def linear(jacobian, offset=None):
    dim = len(jacobian)
    generator = Generator(dim, noise_scale=None, rng=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        generator.output.weight.copy_(jacobian)
        generator.output.bias.copy_(torch.zeros(dim) if offset is None else offset)
    return generator


def test_problems_are_wishart_and_differ_between_seeds():
    a = torch.stack([density.factor(5, seed) for seed in range(400)])
    assert_close(a.mean(), torch.tensor(0.0, dtype=torch.float64), atol=0.04, rtol=0)  # sd of the mean 0.01
    assert_close(a.square().mean(), torch.tensor(1.0, dtype=torch.float64), atol=0.06, rtol=0)  # sd 0.014
    assert not torch.equal(a[0], a[1])
    target = density.problem(FIVE.config("gpvi", "paper"), 3)
    assert_close(target.covariance.double(), a[3] @ a[3].mT, rtol=1e-6, atol=1e-6)
    assert target.mean.dtype == torch.float32


def test_the_paper_problems_have_a_cholesky_factor_in_float32():
    for experiment in TABLES:
        for seed in experiment.seeds("paper"):
            density.problem(experiment.config("gpvi", "paper"), seed)  # raises if it had none


def test_controls_change_one_thing_each():
    plain = FIVE.config("gpvi_exact_jac", "paper")
    double, white = (
        get_experiment("gaussian-density-controls").config(method, "paper") for method in ("float64", "whitened")
    )
    assert double | {"sampler": plain["sampler"]} == plain
    assert white | {"whitened": False} == plain
    assert density.problem(double, 0).covariance.dtype == torch.float64
    assert torch.equal(density.problem(white, 0).covariance, torch.eye(5))


def test_measures_of_an_exact_sampler_vanish():
    a = density.factor(5, 0)
    rotation = torch.linalg.qr(density.factor(5, 1))[0]
    found = density.errors(a @ a.mT, linear(a @ rotation))
    assert max(found[name] for name in found if name.startswith("sigma")) < 1e-12
    assert found["kl"] == pytest.approx(0, abs=1e-12)
    assert found["ratio_min"] == pytest.approx(1) == found["ratio_max"]
    assert found["condition"] == pytest.approx(float(torch.linalg.cond(a)))


def test_measures_against_hand():
    covariance = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
    jacobian = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    found = density.errors(covariance, linear(jacobian, torch.tensor([0.0, 2.0])))
    assert found["sigma_error"] == pytest.approx(math.sqrt(18 / 17))
    assert found["sigma_error_absolute"] == pytest.approx(math.sqrt(18))
    assert found["sigma_error_largest"] == pytest.approx(3)
    assert (found["ratio_min"], found["ratio_max"]) == pytest.approx((0.25, 4))
    assert found["kl"] == pytest.approx(0.5 * (4 - 1 - math.log(4) + 0.25 - 1 + math.log(4) + 1))


def test_divergence_agrees_with_torch():
    a, b = density.factor(5, 2), density.factor(5, 3)
    offset = torch.ones(5, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal
    q, p = normal(offset, b @ b.mT), normal(torch.zeros(5, dtype=torch.float64), a @ a.mT)
    assert density.divergence(a @ a.mT, b, offset) == pytest.approx(float(torch.distributions.kl_divergence(q, p)))


def test_variance_ratios_keep_the_digits_of_a_narrow_direction():
    jacobian = torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.float64))
    ratios = density.variance_ratios(torch.eye(2, dtype=torch.float64), jacobian)
    assert_close(ratios, torch.tensor([1e-18, 1.0], dtype=torch.float64), rtol=1e-6, atol=0)


def test_delivered_repulsion():
    """0 from a helper that answers 0; close to 1 after enough updates on a fixed generator; NaN without a helper."""
    jacobian = torch.diag(torch.tensor([1.0, 0.5], dtype=torch.float64))
    generator, target = linear(jacobian), Gaussian(torch.zeros(2).double(), torch.eye(2).double())
    objective = GPVI(30, HelperInverse(width=16, lr=1e-2))
    assert density.delivered_repulsion(objective, generator).isnan().all()
    rng = torch.Generator().manual_seed(1)
    fit(generator, target, objective, steps=400, optimizer=Adam(lr=1e-9), rng=rng, progress=False)
    assert (density.delivered_repulsion(objective, generator) - 1).abs().max() < 0.1
    with torch.no_grad():
        for parameter in objective.inverse.network.parameters():
            parameter.zero_()
    assert_close(density.delivered_repulsion(objective, generator), torch.zeros(2, dtype=torch.float64))
    assert density.delivered_repulsion(GPVI(30), generator).isnan().all()


def test_critic_quality():
    """Nothing is right before training; a critic that is the exact direction has no error and delivers everything."""
    covariance = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
    jacobian = torch.tensor([[2.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    generator, critic = linear(jacobian, torch.tensor([1.0, -1.0])), SteinCritic(l2_weight=3.0)
    assert all(math.isnan(value) for value in density.critic_quality(critic, generator, covariance).values())
    q = torch.distributions.MultivariateNormal(torch.tensor([1.0, -1.0]).double(), jacobian @ jacobian.mT)
    p = torch.distributions.MultivariateNormal(torch.zeros(2).double(), covariance)

    def exact(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return -torch.autograd.grad((q.log_prob(x) - p.log_prob(x)).sum(), x)[0] / (2 * 3.0)

    critic.network = exact
    found = density.critic_quality(critic, generator, covariance)
    assert found["critic_error"] < 1e-9 < found["critic_signal"]
    assert (found["delivered_0"], found["delivered_1"]) == pytest.approx((1, 1))
    critic.network = lambda x: torch.linalg.solve(covariance, x.mT).mT / (-2 * 3.0)  # the drive alone
    found = density.critic_quality(critic, generator, covariance)
    assert (found["delivered_0"], found["delivered_1"]) == pytest.approx((0, 0), abs=1e-9)


def test_variants_change_one_thing_each():
    for profile in ("smoke", "quick", "paper"):
        assert set(get_experiment("gaussian-density-variants").seeds(profile)) <= set(FIVE.seeds(profile))
    plain, best, critic = (FIVE.config(m, "paper") for m in ("amortized_svgd", "amortized_svgd_best", "amortized_ksd"))
    for method, same in (("two_batches", plain), ("two_batches_best", best)):
        two = get_experiment("gaussian-density-variants").config(method, "paper")
        assert two["objective"] == same["objective"] | {"independent": True}
        assert two | {"objective": None} == same | {"objective": None}
    for weight in (1.0, 100.0):
        other = get_experiment("gaussian-density-variants").config(f"critic_weight_{weight:.0f}", "paper")
        direction = critic["objective"]["direction"] | {"l2_weight": weight}
        assert other == critic | {"objective": critic["objective"] | {"direction": direction}}


def test_the_long_runs_change_the_steps_alone():
    for short in TABLES:
        long = get_experiment(f"{short.name}-long")
        for method in short.methods:
            looks = {"steps": 50_000, "history_every": 500}
            assert long.config(method, "paper") == short.config(method, "paper") | looks


def test_the_weight_of_the_critic_is_a_rate_of_its_last_layer():
    """Weight w at one rate, or weight 1/2 with the last layer and its rate 2w times larger: the same direction."""
    w, x = 10.0, torch.randn(40, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    directions = []
    for weight, factor in ((w, 1.0), (0.5, 2 * w)):
        rng = torch.Generator().manual_seed(5)
        critic = SteinCritic(hidden=(8,), lr=1e-300, l2_weight=weight, updates=1)
        critic(x, -2 * x, rng)  # builds the network and leaves it as it is
        *hidden, last = critic.network
        with torch.no_grad():
            for parameter in last.parameters():
                parameter.mul_(factor)
        groups = [{"params": hidden[0].parameters(), "lr": 1e-2}, {"params": last.parameters(), "lr": factor * 1e-2}]
        critic.optimizer = torch.optim.Adam(groups, eps=1e-30)
        directions.append(torch.stack([critic(x, -2 * x, rng)[0] for _ in range(50)]))
    assert_close(*directions, rtol=1e-8, atol=1e-8)
    assert (directions[0][-1] - directions[0][0]).abs().max() > 1


@pytest.mark.parametrize("experiment", [*TABLES, *density.EXPERIMENTS[-2:]], ids=lambda e: e.name)
def test_every_cell_runs_and_survives_pickling(experiment):
    assert get_experiment(experiment.name) is experiment
    again = pickle.loads(pickle.dumps(experiment))
    for method in experiment.methods:
        assert again.config(method, "paper") == experiment.config(method, "paper")
    for record in runner.sweep(experiment, "smoke", progress=False):
        arrays = record.arrays()
        steps = arrays["history_step"].tolist()
        assert steps[0] == 0 and steps[-1] == record.config["steps"]
        learned = arrays["jacobian"] @ arrays["jacobian"].mT
        error = (learned - arrays["covariance"]).norm() / arrays["covariance"].norm()
        assert record.metrics["sigma_error"] == pytest.approx(float(error))
        trained = ("gpvi", "gpvi_best", "amortized_ksd", "critic_weight_1", "critic_weight_100")
        assert ("history_delivered_0" in arrays) == (record.method in trained)
        assert ("history_critic_error" in arrays) == (record.method in trained[2:])


def test_float64_reaches_the_generator():
    rng = torch.Generator().manual_seed(0)
    spec = density.CONTROLS["float64"]["sampler"]
    assert build_sampler(spec, 5, 1.0, rng).output.weight.dtype == torch.float64
    assert build_sampler(density.GENERATOR, 5, 1.0, rng).output.weight.dtype == torch.float32
    assert build_sampler({"kind": "particles", "num": 3, "dtype": "float64"}, 5, 1.0, rng).x.dtype == torch.float64
    with pytest.raises(UnknownName, match="float16"):
        build_sampler(density.GENERATOR | {"dtype": "float16"}, 5, 1.0, rng)


def test_rows_and_deviations():
    for experiment in TABLES:
        score = experiment.scores[0]
        assert experiment.row("gpvi", score) == ("gpvi", "printed")
        assert experiment.row("gpvi_best", score) == ("gpvi", "best")
        rows = [{(*experiment.row(m, s), m) for m in experiment.methods_of(s)} for s in experiment.scores]
        printed = [{method for method, setting, _ in found if setting == "printed"} for found in rows]
        assert printed == [set(density.TABLES["table1"]), set(density.TABLES["table5"])]
        shown = {method for found in rows for *_, method in found}
        assert shown == set(experiment.methods)  # every method has its row in one of the tables
        assert {s.item for s in experiment.scores} == {f"gpvi/{t}/{experiment.name[-2:]}" for t in ("table1", "table5")}
        assert all("10,000" in experiment.deviations(method, "paper") for method in experiment.methods)
    assert get_experiment("gaussian-density-controls").scores == ()


@pytest.mark.parametrize("short", TABLES, ids=lambda experiment: experiment.name)
def test_the_longer_runs_differ_in_their_steps_alone_and_take_the_rows_over(short):
    (longer,) = [one for one in density.EXPERIMENTS if one.instead_of == (short.name,)]
    for method in short.methods:
        before, after = short.config(method, "paper"), longer.config(method, "paper")
        assert {key for key in after if after[key] != before[key]} == {"steps", "history_every"}
        assert (before["steps"], after["steps"]) == (10_000, 50_000)
        assert longer.deviations(method, "paper") == short.deviations(method, "paper").replace("10,000", "50,000")
        assert longer.config(method, "quick") == short.config(method, "quick")
