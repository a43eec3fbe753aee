"""Figures 4 to 7: the measures of a sampler of an energy potential, and that every cell runs."""

import math

import pytest
import torch
from torch import nn

from gpvi_lib import GPVI, RBF, EnergyPotential, Generator, HelperInverse, PlaneGrid
from gpvi_lib.experiments import energy, get_experiment
from gpvi_lib.experiments.build import build_objective
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.metrics import binned_divergence, sliced_wasserstein

F64 = torch.float64


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GPVI_BUILD", str(tmp_path / "build"))


# Measures


def test_a_shift_is_a_known_sliced_distance(normal):
    """Every projection moves by v·θ, and the mean of its square over directions is |v|^2 / 2."""
    x, shift = normal(500, 2), torch.tensor([0.6, -0.8], dtype=F64)
    assert sliced_wasserstein(x, x + shift) == pytest.approx(1 / math.sqrt(2))
    assert sliced_wasserstein(x, x) == 0
    assert sliced_wasserstein(x, 3 * x) == pytest.approx(2 * math.sqrt(0.5 * x.square().sum(-1).mean()))


def test_sliced_distance_of_samples_of_different_sizes(normal):
    x = normal(600, 2)
    assert sliced_wasserstein(x, x.repeat(3, 1)) == pytest.approx(0, abs=1e-6)


def test_binned_divergence_of_a_categorical():
    p = torch.tensor([0.5, 0.25, 0.25], dtype=F64)
    counts = torch.tensor([100, 300, 0])
    plain = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.25)
    assert binned_divergence(counts, p.log()) == pytest.approx(plain - 1 / 800)


def test_binned_divergence_of_the_right_density_is_zero_in_the_mean(rng):
    """Uncorrected it would be about (cells - 1) / 2n = 0.05."""
    p = torch.full((101,), 1 / 101, dtype=F64)
    found = []
    for _ in range(100):
        draws = torch.multinomial(p, 1_000, replacement=True, generator=rng)
        found.append(binned_divergence(torch.bincount(draws, minlength=101), p.log()))
    assert sum(found) / 100 == pytest.approx(0, abs=0.004)  # sd of one 0.007


def test_the_true_sampler_is_judged_true(rng):
    judge = energy.Judge("sin_split", 20_000)
    found = judge.of_points(judge.exact_samples(1))
    floor = sliced_wasserstein(judge.exact_samples(2), judge.exact_samples(3))
    assert 0 < found["sliced_wasserstein"] < 4 * floor < 0.2
    assert abs(found["width_ratio"] - 1) < 0.03 and abs(found["spread_1"] - 1) < 0.03
    assert found["misplaced"] < 0.02 and found["outside"] == 0
    assert abs(found["ksd"]) < 0.05
    drawn = judge.grid.counts(judge.exact_samples(4))
    assert abs(binned_divergence(drawn, judge.grid.log_masses)) < 0.02
    assert not torch.equal(judge.exact_samples(1), judge.exact_samples(2))


def test_a_wrong_sampler_is_judged_wrong():
    judge = energy.Judge("twin_moons", 5_000)
    x = judge.exact_samples(1)
    one_moon = torch.stack([x[:, 0].abs(), x[:, 1]], -1)
    found = judge.of_points(one_moon)
    assert found["misplaced"] == pytest.approx(0.5, abs=0.02) and found["share_left"] == 0
    counts = judge.grid.counts(one_moon)
    assert binned_divergence(counts, judge.grid.log_masses) == pytest.approx(math.log(2), abs=0.05)
    radius = x.norm(dim=-1, keepdim=True)
    thin = x / radius * (2 + 0.5 * (radius - 2))
    assert judge.of_points(thin)["width_ratio"] == pytest.approx(0.5, abs=0.01)
    assert judge.of_points(10 * x)["outside"] > 0.9


class Gaussians(Generator):
    """N(0, 1) in both coordinates: W = I, b = 0."""

    def __init__(self):
        super().__init__(2, noise_scale=None, rng=torch.Generator().manual_seed(0))
        with torch.no_grad():
            self.output.weight.copy_(torch.eye(2))
            self.output.bias.zero_()


def test_both_divergences_of_a_gaussian_sampler_agree_with_quadrature():
    judge, sampler = energy.Judge("sinusoid", 20_000), Gaussians()
    at = (torch.arange(1200, dtype=F64) + 0.5) / 100 - 6
    x = torch.cartesian_prod(at, at)
    log_q = -0.5 * x.square().sum(-1) - math.log(2 * math.pi)
    log_p = judge.target.log_prob(x) - judge.grid.log_normaliser
    exact = float((log_q.exp() * (log_q - log_p)).sum() / 100**2)
    claimed = judge.claimed(sampler, 20_000, 1)
    assert claimed["kl_claimed"] == pytest.approx(exact, rel=0.05) and claimed["negative_share"] == 0
    assert judge.divergence(sampler, 200_000, 1) == pytest.approx(exact, rel=0.03)


def test_a_reflection_has_negative_determinants_and_the_same_density():
    judge, sampler = energy.Judge("sinusoid", 1_000), Gaussians()
    with torch.no_grad():
        sampler.output.weight[0, 0] = -1
    assert judge.claimed(sampler, 1_000, 1)["negative_share"] == 1


class Perfect(nn.Module):
    """A helper that answers exactly."""

    def __init__(self, generator, share=1.0):
        super().__init__()
        self.generator, self.share = generator, share

    def forward(self, head, gradient):
        jacobian = self.generator.linearize(head).dense()
        return self.share * torch.linalg.solve(jacobian.mT, gradient.mT).mT


def test_a_perfect_helper_delivers_everything(rng):
    generator = Generator(2, 2, (9,), noise_scale=None, activation="tanh", rng=rng, dtype=F64)
    objective = GPVI(4, HelperInverse())
    assert energy.delivered_repulsion(objective, generator) == {}
    objective.inverse.network = Perfect(generator)
    found = energy.delivered_repulsion(objective, generator)
    assert found["delivered"] == pytest.approx(1) and found["helper_error"] == pytest.approx(0, abs=1e-9)
    objective.inverse.network = Perfect(generator, 0.25)
    found = energy.delivered_repulsion(objective, generator)
    assert found == {"delivered": pytest.approx(0.25), "helper_error": pytest.approx(0.75)}


def test_the_repulsion_of_a_linear_map_has_no_tail_and_that_of_a_fold_has(rng):
    straight = energy.repulsion_tail(Gaussians())["repulsion_tail"]
    assert 1 < straight < 1.5
    fold = Generator(2, 2, (40,), noise_scale=None, activation="tanh", input_stdev=6.0, rng=rng)
    assert energy.Judge("sinusoid", 500).claimed(fold, 500, 1)["negative_share"] not in (0, 1)
    assert energy.repulsion_tail(fold)["repulsion_tail"] > 3 * straight


def test_a_flat_generator_has_no_repulsion_to_measure(rng):
    flat = Generator(2, 2, (8,), noise_scale=None, rng=rng)
    objective = GPVI(4, HelperInverse())
    objective.inverse.network = Perfect(flat)
    torch.nn.init.zeros_(flat.output.weight)
    assert energy.repulsion_tail(flat) == {}
    assert energy.delivered_repulsion(objective, flat) == {}


@pytest.mark.parametrize("method", energy.FULL_LENGTH)
def test_full_length_differs_from_the_cut_run_in_its_steps_alone(method):
    long = get_experiment("energy-full-length").config(method, "paper")
    short_method = method.removeprefix(f"{long['potential']}_")
    if short_method in energy.PRINTED:
        short = get_experiment(f"energy-{long['potential'].replace('_', '-')}").config(short_method, "paper")
    else:
        short = get_experiment("energy-controls").config(short_method, "paper") | {"potential": long["potential"]}
    assert {key for key in long if long[key] != short[key]} == {"steps", "history_every"}
    assert long["steps"] == 200_000 and get_experiment("energy-full-length").seeds("paper") == (0,)


@pytest.mark.parametrize("method", energy.SETTINGS)
def test_candidates_change_one_thing_and_start_where_no_row_does(method):
    potential, row, change = energy.SETTINGS[method]
    found = get_experiment("energy-settings").config(method, "paper")
    base = get_experiment(f"energy-{potential.replace('_', '-')}").config(row, "paper")
    moved = {key for key in found if found[key] != base[key]} - {"history_every"}
    assert moved <= set(change) and len(set(change) - {"steps"}) <= 1
    assert found["sampler"] == base["sampler"] | change.get("sampler", {})
    assert not set(get_experiment("energy-settings").seeds("paper")) & set(energy.seeds("paper"))


def test_our_settings_and_every_printed_noise_are_among_the_candidates():
    for row in energy.BEST:
        ours = get_experiment("energy-sinusoid").config(row, "paper")
        assert get_experiment("energy-settings").config(f"{row}_ours", "paper") == ours
    for potential in energy.FIGURES:
        for row, (kind, _) in energy.TRIED.items():
            key = "base_stdev" if kind == "flow" else "input_stdev"
            tried = [
                get_experiment("energy-settings").config(f"{potential}_{row}_stdev_{s:g}", "paper")["sampler"][key]
                for s in (1, 2, 6)
            ]
            assert tried == [1, 2, 6] and energy.STDEV[potential][kind] in tried


# Cells


def test_a_specification_can_name_a_bandwidth():
    svgd = build_objective({"kind": "parvi", "direction": {"kind": "svgd", "bandwidth": 0.3}, "num_samples": 5})
    assert svgd.direction.kernel == RBF(0.3)
    assert build_objective({"kind": "gpvi", "num_samples": 5, "bandwidth": "half"}).kernel == RBF("half")
    assert build_objective({"kind": "gpvi", "num_samples": 5}).kernel == RBF()


def test_the_printed_setting_is_table_6():
    for experiment, figure in zip(energy.ROWS, (4, 5, 6, 7), strict=True):
        config = experiment.config("gpvi", "paper")
        assert config["sampler"]["hidden"] == [500, 500] and config["sampler"]["input_stdev"] in (1.0, 2.0, 6.0)
        assert config["objective"]["inverse"] == {"kind": "helper", "width": 500, "num_layers": 3, "lr": 1e-4}
        assert (config["lr"], config["final_lr"], config["optimizer"]) == (1e-4, None, "adam")
        flow = experiment.config("flow", "paper")
        assert (flow["sampler"]["depth"], flow["optimizer"], flow["weight_decay"]) == (32, "rmsprop", 1e-3)
        assert flow["sampler"]["base_stdev"] in (1.0, 2.0, 6.0) and flow["objective"]["num_samples"] == 100
        assert (flow["lr"], config["objective"]["num_samples"]) == (1e-4, 10)  # the table has batches of 100
        svgd, exact = (experiment.config(method, "paper") for method in ("amortized_svgd", "gpvi_exact_jac"))
        for other in (svgd, exact):
            assert other["objective"]["num_samples"] == 100
            assert (other["lr"], other["final_lr"], other["optimizer"]) == (1e-4, None, "adam")
        assert svgd["sampler"] == exact["sampler"]
        assert {key for key in svgd["sampler"] if svgd["sampler"][key] != config["sampler"][key]} <= {"input_stdev"}
        assert experiment.scores[0].item == f"gpvi/figure{figure}"


def test_rows_of_the_scoreboard():
    experiment = get_experiment("energy-sin-split")
    score = experiment.scores[0]
    assert experiment.row("gpvi", score) == ("gpvi", "printed")
    assert experiment.row("gpvi_best", score) == ("gpvi", "best")
    assert experiment.row("gpvi_exact_density", score) == ("gpvi_exact_density", "best")
    for method in experiment.methods:
        assert "steps" in experiment.deviations(method, "paper")
        assert "confined" in experiment.deviations(method, "paper")
        assert "confined" not in get_experiment("energy-twin-moons").deviations(method, "paper")
    assert "input noise 6" in get_experiment("energy-twin-moons").deviations("amortized_svgd", "paper")


@pytest.mark.parametrize("method", energy.SPECS)
def test_a_cell_runs_and_can_be_recorded(method):
    record = runner.run_or_load(get_experiment("energy-sin-bisect").cell(method, 0, "smoke"), progress=False)
    assert record.metrics.keys() >= {"sliced_wasserstein", "kl", "kl_claimed", "ksd", "share_upper", "width_ratio"}
    counts = record.arrays()["counts"]
    assert counts.shape == (96, 96) and int(counts.sum()) == 500
    history = record.arrays()
    assert len(history["history_step"]) == len(history["history_sliced_wasserstein"]) == 4
    if method == "gpvi":
        assert record.metrics["helper_error"] > 0


def test_a_cell_gives_the_same_twice():
    context = RunContext(torch.device("cpu"), 0, None, "x", progress=False)
    config = get_experiment("energy-twin-moons").config("flow", "smoke")
    one, other = (energy.run(config, "flow", context) for _ in range(2))
    assert one.metrics == other.metrics
    assert torch.equal(one.arrays["counts"], other.arrays["counts"])


def test_potentials_of_the_experiments_exist():
    for experiment in energy.ROWS:
        config = experiment.config("gpvi", "smoke")
        assert math.isfinite(PlaneGrid(EnergyPotential(config["potential"]), cells=24, fine=2).entropy)
