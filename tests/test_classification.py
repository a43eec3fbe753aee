"""Figures 2, 8 and 9: the reference, what is compared with it, and that every row runs and resumes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_experiment
from torch.testing import assert_close

from gpvi_lib import metrics
from gpvi_lib.errors import RecordMissing
from gpvi_lib.experiments import (
    chains,
    classification,
    classification_problem,
    classification_reference,
    get_experiment,
)
from gpvi_lib.experiments.build import build_sampler
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, density_scores
from gpvi_lib.fitting import Training
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.targets import (
    ClassificationPosterior,
    MLPClassificationPosterior,
    NormalPrior,
    ScaleMixturePrior,
    check_finite,
    score,
)

F64 = torch.float64
FOUR = classification.config(4, "svgd", "smoke")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Records of the smoke profile's references, once for this file."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        toy_experiment.redirect(patch, folder)
        for method in ("hmc_4", "hmc_2"):
            runner.run_or_load(classification_reference.REFERENCE.cell(method, 0, "smoke"), progress=False)
        yield folder


def context(seed=0, checkpoint: Path | None = None):
    return RunContext(torch.device("cpu"), seed, checkpoint, "test", progress=False)


@pytest.mark.parametrize("batch", [None, [0, 3, 3]])
def test_the_written_out_gradient_is_that_of_automatic_differentiation(normal, batch):
    widths, inputs, labels = [2, 7, 5, 3], normal(6, 2), torch.tensor([0, 1, 2, 1, 0, 2])
    fast = MLPClassificationPosterior(widths, inputs, labels)
    slow = ClassificationPosterior(FlatModule(mlp(widths)), inputs, labels)
    batch = None if batch is None else torch.tensor(batch)
    w = normal(4, fast.dim)
    assert_close(fast.log_prob(w, batch), slow.log_prob(w, batch))
    assert_close(score(fast, w, batch), score(slow, w, batch))
    assert_close(fast.probabilities(w, inputs).mT, slow.network(w, inputs).softmax(-1))


def test_the_written_out_gradient_is_scaled_by_what_comes_from_above(normal):
    target = MLPClassificationPosterior([2, 4, 3], normal(5, 2), torch.tensor([0, 1, 2, 1, 0]), NormalPrior(2.0))
    assert torch.autograd.gradcheck(target.log_prob, normal(3, target.dim).requires_grad_())
    with torch.no_grad():
        assert target.log_prob(normal(3, target.dim)).shape == (3,)


def test_rmse_of_a_hand_computed_case():
    assert metrics.rmse(torch.tensor([1.0, 2.0]), torch.tensor([4.0, -2.0])) == pytest.approx((25 / 2) ** 0.5)


def test_total_variation_is_the_largest_difference_over_sets_of_classes(normal):
    p, q = normal(20, 4).softmax(-1), normal(20, 4).softmax(-1)
    sets = torch.tensor([[i >> c & 1 for c in range(4)] for i in range(16)], dtype=F64)
    assert_close(metrics.total_variation(p, q), ((p - q) @ sets.mT).amax(1))
    assert_close(metrics.total_variation(p, p), torch.zeros(20, dtype=F64))
    certain = torch.eye(3)
    assert float(metrics.total_variation(certain[0], certain[1])) == 1


def test_the_posteriors_are_the_papers(normal):
    for classes, dim in ((4, 184), (2, 162)):
        data, target = classification_problem.posterior(classification_problem.problem_config(classes), dtype=F64)
        assert target.dim == dim and data.inputs.shape == (100, 2) and data.test_inputs.shape == (200, 2)
        check_finite(target, normal(2, dim))


def test_the_prior_scale_is_that_of_the_prior(normal):
    w = normal(3, 184)
    wide = classification_problem.posterior(classification_problem.problem_config(4, prior_scale=2.0), dtype=F64)[1]
    unit = classification_problem.posterior(classification_problem.problem_config(4), dtype=F64)[1]
    change = 0.5 * (1 - 1 / 4) * w.square().sum(-1) - 184 * torch.tensor(2.0, dtype=F64).log()
    assert_close(wide.log_prob(w) - unit.log_prob(w), change)


def test_the_grid_covers_the_square():
    points = classification_problem.grid(5)
    assert points.shape == (25, 2)
    assert points.amin() == -10 and points.amax() == 10
    assert_close(points[1] - points[0], torch.tensor([0.0, 5.0]))


def test_predictive_moments_in_chunks_are_those_of_all(normal):
    target = MLPClassificationPosterior([2, 3, 3], normal(1, 2), torch.tensor([0]))
    w, inputs = normal(7, target.dim), normal(4, 2)
    probabilities = target.network(w, inputs).softmax(-1)
    mean, sd = classification_problem.predictive_moments(target, w, inputs, chunk=3)
    assert_close(mean, probabilities.mean(0))
    assert_close(sd, probabilities.std(0, correction=0))


def test_far_points_are_far_from_every_training_point():
    inputs = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    points = torch.tensor([[0.0, 2.9], [0.0, 3.1], [5.0, 2.0], [9.0, 0.0]])
    assert classification.is_far(points, inputs, 3.0).tolist() == [False, True, False, True]


def test_the_reference_itself_has_no_distance(results):
    judge = classification.Judge.of(FOUR)
    found = judge.distances(judge.reference.mean, judge.reference.sd)
    assert found["total_variation"] == found["rmse_mean"] == found["rmse_sd"] == 0
    shifted = judge.distances(judge.reference.mean + 0.1, judge.reference.sd)
    assert shifted["rmse_mean"] == pytest.approx(0.1, rel=1e-5)
    assert shifted["total_variation"] == pytest.approx(0.2, rel=1e-5)  # four classes off by 0.1, halved
    assert 0 < int(judge.far.sum()) < len(judge.far)


def test_the_elbo_of_the_prior_is_the_expected_log_likelihood(results, rng):
    judge = classification.Judge.of(FOUR)
    prior = build_sampler({"kind": "mean_field", "scale": 1.0}, 184, 1.0, rng)
    with torch.no_grad():
        prior.mean.zero_()
    found = density_scores(prior, judge.target, 200)
    x = prior.sample(200, torch.Generator().manual_seed(EVALUATION_SEED))
    assert found["elbo"] == pytest.approx(float(judge.target.log_likelihood(x).mean()), rel=1e-4)
    assert found["elbo_se"] > 0


@pytest.mark.parametrize("classes", [4, 2])
@pytest.mark.parametrize("method", classification.SPECS)
def test_every_row_runs(results, classes, method):
    config = classification.config(classes, method, "smoke") | {"many": 20}
    outcome = classification.run(config, method, context())
    assert outcome.arrays["mean"].shape == outcome.arrays["sd"].shape == (121, classes)
    assert 0 < outcome.metrics["total_variation"] < 1
    density = {"gpvi", "gpvi_exact_jac", "gpvi_best", "gpvi_exact_density", "mf_vi", "mf_vi_best"}
    assert ("elbo" in outcome.metrics) == (method in density)
    if "history_step" in outcome.arrays:
        assert float(outcome.arrays["history_rmse_sd"][-1]) == pytest.approx(outcome.metrics["rmse_sd"], rel=1e-6)
    many = not method.startswith("hmc") and classification.SPECS[method]["sampler"]["kind"] != "particles"
    assert ("rmse_sd_many" in outcome.metrics) == many


def test_a_run_resumes_to_the_same_result(results, tmp_path, monkeypatch):
    from gpvi_lib.experiments import build

    method, fit = "gpvi_best", build.fit
    config = classification.config(2, method, "smoke") | {"steps": 4, "history_every": 4, "final_lr": None}
    whole = classification.run(config, method, context())
    checkpoint = tmp_path / "checkpoint.pt"
    monkeypatch.setattr(build, "fit", lambda *a, **k: fit(*a, **k, checkpoint_seconds=0.0))
    classification.run(config | {"steps": 2}, method, context(checkpoint=checkpoint))
    assert checkpoint.exists()
    steps, advance = [], Training.advance
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or advance(self))
    assert classification.run(config, method, context(checkpoint=checkpoint)).metrics == whole.metrics
    assert steps == [2, 3]


def test_a_generator_can_start_as_a_mean_field(rng):
    mean_field = build_sampler({"kind": "mean_field", "scale": 0.4}, 184, 1.0, rng)
    generator = build_sampler(classification.TRAINED, 184, 1.0, rng)
    classification.start_at(generator, mean_field)
    z = generator.noise(3, rng)
    x, linearization = generator.forward_and_linearize(z)
    assert_close(x, mean_field.mean + mean_field.scale * z)
    assert_close(linearization.slogdet()[1], mean_field.scale.log().sum().expand(3))
    assert generator.log_noise_scale.requires_grad


@pytest.mark.parametrize("classes", [4, 2])
def test_the_trained_generators_contain_the_mean_fields(results, classes):
    for method in ("gpvi_best", "gpvi_exact_density"):
        config = classification.config(classes, method, "smoke") | {"steps": 2, "final_lr": None}
        scale = classification.run(config, method, context()).arrays["scale"]
        assert len(scale.unique()) > len(scale) / 2  # one trained λ per weight


def test_the_control_starts_at_the_elbo_of_the_mean_field(results):
    config = classification.control_config("from_mean_field_2", "smoke") | {"steps": 1, "history_every": 1}
    found = classification.run(config | {"lr": 1e-6, "final_lr": None}, "from_mean_field_2", context())
    start, end = found.arrays["history_elbo"]
    assert float(end) == pytest.approx(float(start), abs=0.1 + 1e-3 * abs(float(start)))


def test_a_run_of_two_phases_has_the_seconds_of_both(results, monkeypatch):
    """Of warm-up and chains, and of mean field before the exact density, where each phase takes a second."""

    def in_a_second(phase):
        return lambda *given, **named: replace(phase(*given, **named), seconds=1.0)

    monkeypatch.setattr(chains, "hmc", in_a_second(chains.hmc))
    monkeypatch.setattr(classification, "train", in_a_second(classification.train))
    assert classification.run(classification.config(4, "hmc_best", "smoke"), "hmc_best", context()).seconds == 2
    control = classification.control_config("from_mean_field_2", "smoke")
    assert classification.run(control, "from_mean_field_2", context()).seconds == 2


@pytest.mark.parametrize("method", ["svgd_no_prior_4", "deep_ensemble_small_start_4"])
def test_controls_change_what_they_say(results, method):
    classes, row = classification.CONTROLS[method]
    plain = classification.config(classes, row, "smoke")
    varied = classification.control_config(method, "smoke")
    assert set(varied) - set(plain) == {"trained_prior_scale" if "no_prior" in method else "start_scale"}
    ours = classification.run(varied, method, context())
    assert ours.metrics["rmse_sd"] != classification.run(plain, row, context()).metrics["rmse_sd"]


@pytest.mark.parametrize("classes", [4, 2])
def test_the_kernel_on_the_head_changes_the_direction_alone(results, classes):
    method = f"gpvi_exact_jac_kernel_head_{classes}"
    plain = classification.config(classes, "gpvi_exact_jac", "smoke")
    varied = classification.control_config(method, "smoke")
    assert [key for key in varied if varied[key] != plain[key]] == ["objective"]
    assert varied["objective"] == plain["objective"] | {"kernel_space": "head"}
    ours, theirs = (classification.run(chosen, method, context()).arrays for chosen in (varied, plain))
    assert ours["history_total_variation"][0] == theirs["history_total_variation"][0]  # the same start
    assert ours["history_total_variation"][-1] != theirs["history_total_variation"][-1]


@pytest.mark.parametrize("method", ["f_svgd_4", "f_gfsf_2", "f_svgd_closed_form_4"])
def test_particles_of_functions_run_on_the_data_of_svgd(results, method):
    found = get_experiment("classification-functions")
    record = runner.run_or_load(found.cell(method, 0, "smoke"), progress=False)
    assert record.config["objective"]["kind"] == "function_space"
    svgd = get_experiment(f"classification-{method[-1]}").config("svgd", "smoke")
    assert record.config["problem"] == svgd["problem"] and record.config["sampler"] == svgd["sampler"]


@pytest.mark.parametrize("method", classification.FULL_LENGTH)
def test_full_length_differs_from_the_cut_run_in_its_steps_alone(method):
    long = get_experiment("classification-full-length").config(method, "paper")
    row, classes = method.rsplit("_", 1)
    short = classification.config(int(classes), row, "paper")
    assert {key for key in long if long[key] != short[key]} == {"steps", "history_every"}
    assert short["steps"] < long["steps"] <= 500_000 and long["steps"] % long["history_every"] == 0
    assert long["steps"] / long["history_every"] in (15, 20) and get_experiment("classification-full-length").seeds(
        "paper"
    ) == (0,)


@pytest.mark.parametrize("method", classification.ALL_LENGTH)
def test_all_steps_are_the_printed_ones_of_a_row_that_stopped_before_and_a_fifth_for_the_helper(method):
    stopped, whole = (
        e.config(method, "paper")
        for e in (get_experiment("classification-full-length"), get_experiment("classification-all-steps"))
    )
    assert {key for key in whole if whole[key] != stopped[key]} == {"steps", "history_every"}
    lengths = (20_000, 100_000) if method == "gpvi_4" else (100_000, 500_000)
    assert (stopped["steps"], whole["steps"]) == lengths and whole["steps"] == 20 * whole["history_every"]


@pytest.mark.parametrize("method", ["gpvi", "gpvi_exact_jac", "svgd", "mf_vi"])
def test_what_is_left_over_is_kept_where_a_helper_learns(results, method):
    config = classification.config(2, method, "smoke")
    arrays = classification.run(config, method, context()).arrays
    assert ("helper_residual" in arrays) == (method == "gpvi")
    if method == "gpvi":
        assert arrays["helper_step"][-1] == config["steps"] and bool((arrays["helper_residual"] > 0.1).all())


def test_every_trained_row_of_the_paper_has_a_longer_run():
    trained = {row for row, spec in classification.PRINTED.items() if "chains" not in spec}
    assert {cell[:2] for cell in classification.FULL_LENGTH.values()} == {(c, m) for c in (4, 2) for m in trained}


@pytest.mark.parametrize("method", classification.SETTINGS)
def test_candidates_change_one_thing_and_never_see_the_data_of_a_figure(method):
    row, change = classification.SETTINGS[method]
    found, base = (
        get_experiment("classification-settings").config(method, "paper"),
        classification.config(4, row, "paper"),
    )
    assert {key for key in found if found[key] != base[key]} <= {"problem", "reference", *change}
    assert len(set(change) - {"lr", "final_lr"}) <= 1
    assert found["reference"]["config"]["problem"] == found["problem"]
    assert found["problem"] not in [classification.config(c, row, "paper")["problem"] for c in (4, 2)]
    for part in ("sampler", "objective"):
        assert found.get(part, {}) == base.get(part, {}) | change.get(part, {})


def test_a_candidate_is_scored_on_its_own_data(results):
    runner.run_or_load(get_experiment("classification-reference").cell("hmc_4_other", 0, "smoke"), progress=False)
    row, _ = classification.SETTINGS["mf_vi_best_lr_0_01"]
    found = classification.run(classification.settings_config("mf_vi_best_lr_0_01", "smoke"), row, context())
    figure = classification.run(classification.config(4, row, "smoke"), row, context())
    for key in ("elbo", "total_variation"):
        assert found.metrics[key] != figure.metrics[key]


def test_our_settings_are_among_the_candidates():
    for row in ("gpvi_best", "gpvi_exact_density", "mf_vi_best"):
        ours = classification.config(4, row, "paper")
        found = [
            get_experiment("classification-settings").config(m, "paper")
            for m, (r, _) in classification.SETTINGS.items()
            if r == row
        ]
        assert any(all(one[key] == ours[key] for key in ("lr", "final_lr", "sampler", "objective")) for one in found)


def test_without_the_reference_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    with pytest.raises(RecordMissing, match="run classification-reference --method hmc_4"):
        classification.run(FOUR, "svgd", context())


def test_a_changed_reference_makes_scores_stale(monkeypatch):
    before = classification.config(4, "svgd", "paper")
    monkeypatch.setitem(
        classification_reference.SPECS, "nuts_4", classification_reference.SPECS["nuts_4"] | {"draws": 7}
    )
    assert classification.config(4, "svgd", "paper") != before


@pytest.mark.parametrize("method", ["nuts_4_prior_0_5", "nuts_2_again", "hmc_2"])
def test_reference_chains_are_diagnosed_and_kept(method):
    config = classification_reference.config(method, "smoke")
    found = classification_reference.run(config, method, context())
    assert torch.isfinite(torch.tensor(list(found.metrics.values()))).all()
    classes = config["problem"]["num_classes"]
    assert found.arrays["mean"].shape == (121, classes)
    assert found.arrays["draws"].ndim == 3
    _, target = classification_problem.posterior(config["problem"])
    assert found.arrays["draws"].shape[-1] == target.dim


def test_the_chains_of_a_classifier_have_the_moments_of_quadrature():
    inputs, labels = torch.tensor([[-1.0], [0.5], [1.0], [2.0]], dtype=F64), torch.tensor([0, 1, 0, 1])
    target = MLPClassificationPosterior([1, 2], inputs, labels, NormalPrior(2.0))
    config = {"warmup": 200, "draws": 500, "target_accept": 0.9, "max_tree_depth": 6}
    draws, info = chains.run_nuts(config, target.log_prob, torch.zeros(2, target.dim, dtype=F64), context())
    assert 1 <= info["gradients_per_draw"] < info["gradients"] / 1_000  # two chains of 500; the warm-up not counted
    found = target.probabilities(draws.flatten(0, 1), inputs)[:, 1]  # (1000 draws, 4 inputs)

    # Only the differences of the two classes' slopes and intercepts matter; each has the prior N(0, 2 * 2^2).
    slope, intercept = torch.meshgrid(2 * [torch.linspace(-15, 15, 401, dtype=F64)], indexing="ij")
    p = (slope[..., None] * inputs[:, 0] + intercept[..., None]).sigmoid()
    likelihood = torch.where(labels == 1, p, 1 - p).prod(-1)
    weights = likelihood * torch.exp(-(slope**2 + intercept**2) / 16)
    weights /= weights.sum()
    for power in (1, 2):
        exact, sampled = (weights[..., None] * p**power).sum((0, 1)), found**power
        assert ((sampled.mean(0) - exact).abs() < 5 * sampled.std(0) / 200**0.5).all()  # 1,000 draws are worth 200


@pytest.mark.parametrize("method", classification.PRINTED)
def test_the_printed_setting_is_table_8(method):
    config = classification.config(4, method, "paper")
    if method == "hmc":
        assert (config["step_size"], config["num_leapfrog"]) == (5e-4, 25)
        return
    assert (config["lr"], config["final_lr"], config["batch_size"]) == (1e-3, None, None)  # 100 data, batches of 100
    sampler, objective = config["sampler"], config["objective"]
    if sampler["kind"] == "generator":
        assert (sampler["noise_dim"], sampler["hidden"]) == (64, [64, 64])
        assert sampler["noise_scale"] == (1.0 if method.startswith("gpvi") else None)
    if sampler["kind"] == "particles":
        assert sampler["num"] == 100
    assert objective.get("num_samples", 100) == (32 if method == "gpvi" else 100)
    assert config["mixture_prior"] is (method == "mf_vi")
    target = classification_problem.posterior(config["problem"], "cpu")[1]
    assert target.network.dim == 2 * 10 + 10 + 10 * 10 + 10 + 10 * 4 + 4


def test_mean_field_is_trained_with_the_mixture_prior_and_judged_without(results, monkeypatch):
    """The prior that training sees; an experiment that ignored it would train on the same density as all others."""
    seen, plain = {}, classification.train

    def spy(sampler, target, *rest):
        seen[method] = target.prior
        return plain(sampler, target, *rest)

    monkeypatch.setattr(classification, "train", spy)
    for method in ("mf_vi", "svgd"):
        classification.run(classification.config(4, method, "smoke"), method, context())
    assert isinstance(seen["mf_vi"], ScaleMixturePrior) and seen["svgd"] == NormalPrior(1.0)


def test_the_figures_methods_are_all_there():
    for name in ("classification-4", "classification-2"):
        experiment = get_experiment(name)
        assert set(classification.PRINTED) <= set(experiment.methods)
        for method in experiment.methods:
            assert "N(0, 1)" in experiment.deviations(method, "paper")
