"""Figure 1's problem, its target, its scores and its records."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm, wasserstein_distance
from torch.testing import assert_close

from gpvi_lib import RegressionPosterior, wasserstein_1d
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments import one_dimensional_regression as experiment
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, density_scores
from gpvi_lib.experiments.one_dimensional_regression import GRID, REGIONS, Reference
from gpvi_lib.experiments.output_layer import HiddenLayerPosterior
from gpvi_lib.lab import records, runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.metrics import regression_log_likelihood
from gpvi_lib.networks import FlatMLP, FlatModule, mlp
from gpvi_lib.samplers import Generator, MeanField, Particles
from gpvi_lib.targets import NormalPrior, Target, check_finite, score

# ---------------------------------------------------------------- the target


@pytest.fixture
def target(normal):
    return RegressionPosterior(FlatModule(mlp([2, 3, 1])), normal(12, 2), normal(12), 0.3, NormalPrior(0.7))


def by_hand(target, w):
    """One weight vector, one datum after the other."""
    w = w.numpy()
    first, bias, second, last = w[:6].reshape(3, 2), w[6:9], w[9:12], w[12]
    total = norm(0, 0.7).logpdf(w).sum()
    for x, y in zip(target.inputs.numpy(), target.targets.numpy(), strict=True):
        total += norm(second @ np.maximum(first @ x + bias, 0) + last, 0.3).logpdf(y)
    return total


def test_a_regression_posterior_is_prior_times_normal_likelihood(target, normal):
    w = normal(4, target.dim)
    assert_close(target.log_prob(w), torch.tensor([by_hand(target, row) for row in w]).double())
    assert isinstance(target, Target)
    assert (target.dim, target.num_data) == (13, 12)
    check_finite(target, w)


def test_its_score_is_the_gradient(target, normal):
    w, t = normal(2, target.dim), 1e-6
    gradient = score(target, w)
    for i, step in enumerate(t * torch.eye(target.dim, dtype=torch.float64)):
        expected = (target.log_prob(w + step) - target.log_prob(w - step)) / (2 * t)
        assert_close(gradient[:, i], expected, rtol=1e-5, atol=1e-5)  # rounding: 1e-16 · 1e2 / t


@pytest.mark.parametrize("batch_size", [1, 4, 12])
def test_its_minibatches_are_unbiased(target, normal, rng, batch_size):
    w = normal(3, target.dim)
    batches = torch.randperm(12, generator=rng).view(-1, batch_size)
    for method in (target.log_likelihood, target.log_prob):
        assert_close(torch.stack([method(w, batch) for batch in batches]).mean(0), method(w))


def test_it_refuses_wrong_shapes_and_noise(normal):
    network = FlatModule(mlp([1, 3, 1]))
    with pytest.raises(ValueError, match="one number per row"):
        RegressionPosterior(network, normal(4, 1), normal(4, 1), 0.2)
    with pytest.raises(ValueError, match="must be a positive"):
        RegressionPosterior(network, normal(4, 1), normal(4), 0.0)


@pytest.mark.parametrize("widths", [(1, 5, 1), (2, 4, 3, 2), (3, 2)])
def test_a_flat_mlp_is_the_flat_module_of_an_mlp(normal, widths):
    fast, slow = FlatMLP(widths), FlatModule(mlp(widths))
    w, x = normal(4, slow.dim), normal(6, widths[0])
    assert fast.dim == slow.dim
    assert_close(fast(w, x), slow(w, x))
    w.requires_grad_()
    gradients = [torch.autograd.grad(network(w, x).square().sum(), w)[0] for network in (fast, slow)]
    assert_close(*gradients)


# ---------------------------------------------------------------- the metrics


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 7), (100, 1_000), (12, 5), (3, 64), (1, 9)])
def test_wasserstein_distance_is_scipys(normal, n, m):
    x, y = normal(n, 4, 2), 0.5 + 2 * normal(m, 4, 2)
    found = wasserstein_1d(x, y)
    assert found.shape == (4, 2)
    for i in np.ndindex(4, 2):
        assert float(found[i]) == pytest.approx(wasserstein_distance(x[:, *i].numpy(), y[:, *i].numpy()), rel=1e-12)


def test_wasserstein_distance_of_shifts_copies_and_ties(normal):
    x = normal(50)
    assert_close(wasserstein_1d(x, x - 3), torch.tensor(3.0, dtype=torch.float64))
    assert wasserstein_1d(x, x.repeat_interleave(4).flip(0)) == 0
    assert wasserstein_1d(torch.zeros(3), torch.tensor([0.0, 1.0])) == 0.5
    with pytest.raises(ValueError, match="cannot be compared"):
        wasserstein_1d(normal(5, 2), normal(5, 3))


def test_predictive_density_is_that_of_a_mixture(normal):
    f, y = normal(5, 3), normal(3)
    expected = np.log(norm(f.numpy(), 0.4).pdf(y.numpy()).mean(0))
    assert_close(regression_log_likelihood(f, y, 0.4), torch.from_numpy(expected))
    far = regression_log_likelihood(torch.zeros(2, 1), torch.full((1,), 100.0), 0.1)  # no underflow to log 0
    assert bool(torch.isfinite(far))


# ---------------------------------------------------------------- the problem


def test_the_data_are_those_of_appendix_e():
    x, y = experiment.data()
    assert len(x) == len(y) == 80
    assert bool(((x[:76].abs() >= 2) & (x[:76].abs() <= 6)).all())
    assert bool((x[76:].abs() <= 2).all())
    assert 20 < int((x[:76] > 0).sum()) < 56  # binomial(76, 1/2): four standard deviations are 17
    residual = y - experiment.true_function(x)
    assert abs(float(residual.var()) - 0.04) < 4 * 0.04 * math.sqrt(2 / 79)
    assert_close(experiment.true_function(torch.tensor([-1.0, 0.0, 2.0])), torch.tensor([0.0, 0.0, -3 * math.sin(2.4)]))
    assert torch.equal(experiment.data()[0], x)
    assert not torch.equal(experiment.data(1)[0], x)


def test_fresh_points_lie_where_they_should_and_are_not_the_training_points():
    fresh = experiment.fresh_data()
    assert bool(((fresh["data"][0].abs() >= 2) & (fresh["data"][0].abs() <= 6)).all())
    assert bool((fresh["middle"][0].abs() <= 2).all())
    assert not set(fresh["data"][0].tolist()) & set(experiment.data()[0].tolist())


def test_regions_cover_the_grid_once():
    assert bool((torch.stack(list(REGIONS.values())).sum(0) == 1).all())
    for border in (-6, -2, 2, 6):
        assert border in GRID.tolist()


@pytest.mark.parametrize("prior", experiment.PRIORS)
def test_the_prior_gives_functions_of_the_computed_variance(prior, rng):
    """E f(x)² = 50 s_o² (s_w² x² + s_b²) / 2 + s_c² for ReLU: half of each unit's input's variance survives."""
    target, s = experiment.posterior(prior), experiment.PRIORS[prior]
    w = target.prior.scale * torch.randn(20_000, target.dim, generator=rng, dtype=torch.float64)
    variance = experiment.functions(target, w).var(0)
    inside = (s["input_weight"] * GRID) ** 2 + s["input_bias"] ** 2
    expected = 50 * s["output_weight"] ** 2 * inside / 2 + s["output_bias"] ** 2
    assert_close(variance, expected, rtol=0.06, atol=0)  # 4 standard errors of a variance: 4 sqrt(2 / 20000) = 0.04


# ---------------------------------------------------------------- the scores


@pytest.fixture
def reference(normal):
    draws = GRID.sin() + normal(2_000, len(GRID))
    return Reference(draws.mean(0), draws.std(0), draws[:1_000], draws[1_000:])


def test_scores_of_the_reference_itself_are_zero(reference):
    found = experiment.function_scores(reference.draws, Reference(*_moments(reference.draws), reference.draws, None))
    for region in ("", *(f"_{name}" for name in REGIONS)):
        assert found[f"rmse_mean{region}"] == found[f"rmse_sd{region}"] == found[f"w1{region}"] == 0
        assert found[f"sd_ratio{region}"] == 1


def _moments(f):
    return f.mean(0), f.std(0)


def test_scores_see_a_shift_and_a_scale_where_they_are(reference):
    middle = REGIONS["middle"].double()
    exact = Reference(*_moments(reference.draws), reference.draws, None)
    shifted = experiment.function_scores(reference.draws + 0.5 * middle, exact)
    assert shifted["rmse_mean_middle"] == pytest.approx(0.5)
    assert shifted["w1_middle"] == pytest.approx(0.5)
    assert shifted["rmse_mean_data"] == shifted["w1_data"] == 0
    assert shifted["rmse_mean"] == pytest.approx(0.5 * float(middle.mean()) ** 0.5)
    assert shifted["sd_ratio"] == pytest.approx(1)
    wide = experiment.function_scores(exact.mean + 2 * (reference.draws - exact.mean), exact)
    assert wide["sd_ratio_outside"] == pytest.approx(2)
    assert wide["rmse_sd"] == pytest.approx(float(exact.sd.square().mean().sqrt()))


def test_log_likelihood_is_mixed_as_the_training_data_are():
    target = experiment.posterior()
    w = 0.1 * torch.ones(2, target.dim, dtype=torch.float64)
    found = experiment.fresh_log_likelihood(target, w, 0)
    x, y = experiment.fresh_data()["middle"]
    f = experiment.functions(target, w[:1], x)[0].numpy()
    assert found["log_likelihood_middle"] == pytest.approx(norm(f, 0.2).logpdf(y.numpy()).mean())
    mixed = (76 * found["log_likelihood_data"] + 4 * found["log_likelihood_middle"]) / 80
    assert found["log_likelihood"] == pytest.approx(mixed)


def test_the_elbo_of_a_narrow_mean_field_is_its_entropy_plus_the_log_density_at_its_mean(normal):
    target, scale = experiment.posterior(), 1e-6
    sampler = MeanField(0.1 * normal(target.dim), scale)
    found = density_scores(sampler, target, 200)
    entropy = target.dim * (0.5 + 0.5 * math.log(2 * math.pi) + math.log(scale))
    at_mean = float(target.log_prob(sampler.mean.detach()[None]))
    assert found["elbo"] == pytest.approx(at_mean + entropy, abs=4 * 8.7 / 200**0.5)
    assert density_scores(Particles(normal(3, target.dim)), target, 200) == {}


@torch.no_grad()
@pytest.mark.parametrize("folded", [False, True])
def test_the_elbo_of_a_generator_is_that_of_its_density(rng, folded):
    """The same numbers by another way: `rsample_with_log_prob`, which `test_samplers.py` holds against autograd."""
    target = experiment.posterior()
    # With λ = 2 the identity outweighs the first g; with 1e-3 the sign of the determinant is that of a random matrix's.
    scale = torch.full((target.dim,), 1e-3 if folded else 2.0, dtype=torch.float64)
    sampler = Generator(target.dim, 4, (8,), noise_scale=scale, train_noise_scale=True, rng=rng, dtype=torch.float64)
    found = density_scores(sampler, target, 50)
    same = torch.Generator().manual_seed(EVALUATION_SEED)
    x, log_q = sampler.rsample_with_log_prob(50, same)
    elbo = target.log_prob(x) - log_q
    assert found["elbo"] == pytest.approx(float(elbo.mean()), rel=1e-9)
    assert found["elbo_se"] == pytest.approx(float(elbo.std()) / 50**0.5, rel=1e-9)
    signs = torch.linalg.det(sampler.linearize(sampler.noise(50, same.manual_seed(EVALUATION_SEED))).head())
    assert found["negative_share"] == float((signs < 0).double().mean())
    assert (0 < found["negative_share"]) is folded


def test_the_share_of_the_noise_is_all_or_nothing_at_the_extremes(rng):
    target = experiment.posterior()

    def share(noise_scale):
        sampler = Generator(target.dim, 4, (8,), noise_scale=noise_scale, rng=rng, dtype=torch.float64)
        return experiment.noise_share(sampler, target, heads=200).values()

    head = torch.arange(target.dim) < 4
    none, all_of_it = (share(torch.where(head, *scales).double()) for scales in ((1.0, 1e-5), (1e-5, 1e3)))
    assert len(none) == len(all_of_it) == len(experiment.REGIONS) > 1
    assert max(none) < 1e-6 and min(all_of_it) > 0.95
    assert experiment.noise_share(MeanField(torch.zeros(target.dim), 1.0), target, 5) == {}


# ---------------------------------------------------------------- the records


@pytest.fixture
def results(monkeypatch, tmp_path):
    for name in ("results", "build"):
        monkeypatch.setenv(f"GPVI_{name.upper()}", str(tmp_path / name))


def test_configurations_hold_all_that_decides():
    one = get_experiment("one-dimensional-regression")
    for method in one.methods:
        for profile in ("smoke", "quick", "paper"):
            found = one.config(method, profile)
            assert json.loads(json.dumps(found)) == found
            assert found["reference"] == experiment.reference_config("nuts", profile)
    for method in ("svgd", "gfsf", "amortized_svgd"):
        assert one.config(method, "paper")["steps"] == 50_000
        said = "our network (50 hidden units) and prior; rate, and critic where there is one, printed for other tasks"
        assert one.deviations(method, "paper") == said
    assert one.deviations("deep_ensemble", "paper").startswith("our network (50 hidden units), no prior")
    assert one.deviations("ksd", "paper").startswith("10,000 of 50,000 steps; our")
    assert "32 samples a step; learning rate" in one.deviations("gpvi_exact_density", "paper")
    published = {"step_size": 5e-4, "num_leapfrog": 25, "num_steps": 25_000, "burn_in": 20_000}
    assert published.items() <= one.config("hmc", "paper").items()


def test_every_cut_row_has_a_run_of_full_length_that_differs_in_its_steps_alone():
    one = get_experiment("one-dimensional-regression")
    printed = [m for m in one.methods if m in experiment.PRINTED and "steps" in one.config(m, "paper")]
    assert {m for m in printed if one.config(m, "paper")["steps"] < 50_000} == set(
        get_experiment("one-dimensional-regression-full-length").methods
    )
    for method in get_experiment("one-dimensional-regression-full-length").methods:
        long, short = (
            found.config(method, "paper") for found in (get_experiment("one-dimensional-regression-full-length"), one)
        )
        assert {key for key in long if long[key] != short[key]} == {"steps", "history_every"}
        assert long["steps"] == 50_000


@pytest.mark.parametrize("method", experiment.SETTINGS)
def test_candidates_change_one_thing_and_never_see_the_data_of_the_figure(method):
    row, change = experiment.SETTINGS[method]
    found, base = (
        get_experiment("one-dimensional-regression-settings").config(method, "paper"),
        experiment.config(row, "paper"),
    )
    moved = {"data_seed", "reference", "reference_method"}
    assert {key for key in found if found[key] != base.get(key)} <= moved | set(change) and len(change) == 1
    assert found["reference"]["data_seed"] == found["data_seed"] != base["data_seed"]
    for part in ("sampler", "objective"):
        assert found.get(part, {}) == base.get(part, {}) | change.get(part, {})


def test_our_settings_are_among_the_candidates():
    moved = {"data_seed", "reference", "reference_method"}
    for row in experiment.BEST:
        ours = {key: value for key, value in experiment.config(row, "paper").items() if key not in moved}
        names = [method for method, (of, _) in experiment.SETTINGS.items() if of == row]
        assert any(
            ours.items() <= get_experiment("one-dimensional-regression-settings").config(name, "paper").items()
            for name in names
        )


def test_a_candidate_is_scored_with_the_reference_that_it_names(results):
    context = RunContext(torch.device("cpu"), 0, None, "x", progress=False)
    ours = get_experiment("one-dimensional-regression-settings").config("mf_vi_best_lr_0_01", "smoke")
    found = experiment.run(ours, "mf_vi_best_lr_0_01", context).metrics
    other = experiment.run(ours | {"reference_method": "nuts"}, "mf_vi_best_lr_0_01", context).metrics
    assert found["elbo"] == other["elbo"] and found["w1"] != other["w1"]


def test_every_method_runs_at_smoke_reproducibly_and_fits_into_a_record(results):
    one = get_experiment("one-dimensional-regression")
    for method in one.methods:
        context = RunContext(torch.device("cpu"), 0, None, method, False)
        config = one.config(method, "smoke")
        first, second = one.run(config, method, context), one.run(config, method, context)
        assert first.metrics == second.metrics
        columns = len(GRID) if method == "reference_draws" else 151
        assert first.arrays["functions" if method == "reference_draws" else "weights"].shape == (10, columns)
        size = sum(array.numel() * array.element_size() for array in first.arrays.values())
        assert size < records.MAX_ARRAY_BYTES
        assert ("elbo" in first.metrics) == (method in ("mf_vi", "gpvi", "gpvi_exact_jac", *DENSITIES))


PAIR = (("-functions", "f_svgd"), ("", "svgd"))


@pytest.mark.parametrize("method", ["gpvi_exact_density_lambda_0.03", "svgd_mean_squares"])
def test_a_control_runs_and_can_be_recorded(method, results):
    cell = get_experiment("one-dimensional-regression-controls").cell(method, 0, "smoke")
    record = runner.run_or_load(cell, progress=False)
    assert record.config["reference"] == experiment.reference_config("nuts", "smoke")
    if "lambda" in method:
        assert_close(record.arrays()["noise_scale"], torch.full((151,), 0.03))


@pytest.mark.parametrize("method", ["f_svgd", "f_gfsf_closed_form"])
def test_particles_of_functions_run_and_can_be_recorded(method, results):
    cell = get_experiment("one-dimensional-regression-functions").cell(method, 0, "smoke")
    assert runner.run_or_load(cell, progress=False).arrays()["weights"].shape == (10, 151)


def test_particles_of_functions_are_trained_on_what_svgd_is():
    ours, svgd = (get_experiment(f"one-dimensional-regression{of}").config(m, "paper") for of, m in PAIR)
    changed = {key for key in ours if ours[key] != svgd[key]}
    assert changed == {"objective", "steps", "history_every"} and ours["objective"]["prior_points"] == 4
    closed = get_experiment("one-dimensional-regression-functions").config("f_svgd_closed_form", "paper")
    assert (closed["objective"]["points"]["low"], closed["objective"]["points"]["high"]) == (-7, 7)


def test_the_other_loss_is_the_mean_squared_error(normal):
    target = experiment.posterior()
    w = target.prior.scale * normal(2, 151)
    loss = experiment._other_loss(target, **experiment.MEAN_SQUARES)
    errors = (experiment.functions(target, w, target.inputs[:, 0]) - target.targets).square().mean(-1)
    values = loss.log_likelihood(w)
    assert_close(values[0] - values[1], errors[1] - errors[0])


DENSITIES = ("gpvi_best", "gpvi_exact_density", "mf_vi_best")


@pytest.fixture
def small(normal):
    """Five hidden units, twelve points."""
    scale = torch.tensor([1.0, 2.0, 0.5]).double().repeat_interleave(5)
    prior = NormalPrior(torch.cat([scale, torch.tensor([0.8]).double()]))
    return RegressionPosterior(FlatMLP([1, 5, 1]), 3 * normal(12, 1), normal(12), 0.3, prior)


def test_the_output_layer_is_integrated_out(small, normal):
    """``log p(y | hidden)`` is a multivariate normal's; constants cancel in differences."""
    inner, u = HiddenLayerPosterior(small), normal(4, 10)
    expected = []
    for row in u * small.prior.scale[:10]:
        h = torch.cat([torch.relu(small.inputs * row[:5] + row[5:]), torch.ones(12, 1)], 1) * small.prior.scale[10:]
        expected.append(
            multivariate_normal(np.zeros(12), (0.09 * torch.eye(12) + h @ h.mT).numpy()).logpdf(small.targets)
        )
    expected = torch.tensor(expected) - 0.5 * u.square().sum(-1)
    assert_close(inner.log_prob(u) - inner.log_prob(u[:1]), expected - expected[0])


def test_completed_draws_are_exact(small, normal, rng):
    """Joint density = marginal times conditional: with ``v | u`` normal the ratio is a function of u alone."""
    inner, u = HiddenLayerPosterior(small), normal(1, 10)
    w = inner.complete(u.expand(20_000, -1), rng)
    outer = w[:, 10:] / small.prior.scale[10:]
    assert torch.equal(w[:, :10], (u * small.prior.scale[:10]).expand(20_000, -1))
    features = (
        torch.cat([torch.relu(small.inputs * w[0, :5] + w[0, 5:10]), torch.ones(12, 1)], 1) * small.prior.scale[10:]
    )
    precision = torch.eye(6) + features.mT @ features / 0.09
    mean = torch.linalg.solve(precision, features.mT @ small.targets / 0.09)
    spread = torch.linalg.inv(precision)
    assert bool(((outer.mean(0) - mean).abs() < 5 * (spread.diagonal() / 20_000).sqrt()).all())
    assert_close(torch.cov(outer.mT), spread, rtol=0, atol=5 * float(spread.max()) * math.sqrt(2 / 20_000))
    conditional = torch.distributions.MultivariateNormal(mean, precision_matrix=precision).log_prob(outer)
    ratio = small.log_prob(w) - conditional
    assert_close(ratio, ratio[:1].expand_as(ratio), rtol=0, atol=1e-8)


def test_the_reference_keeps_disjoint_draws():
    kept, held_out = experiment._thinned(torch.arange(8_000.0)[:, None], 1_000, 300)
    assert (len(kept), len(held_out)) == (1_000, 300)
    assert not set(kept[:, 0].tolist()) & set(held_out[:, 0].tolist())
    assert abs(float(kept.mean()) - 4_000) < 20
    assert abs(float(held_out.mean()) - 4_000) < 20
