"""The four-class problem and what is measured on the head of a generator."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import fit
from gpvi_lib.experiments import build, classification_problem, get_experiment, heads, injectivity
from gpvi_lib.experiments.build import build_objective, build_sampler
from gpvi_lib.fitting import Training
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Generator

F64 = torch.float64
CONFIG = injectivity.config("gpvi_lambda_1", "smoke")


def generator(rng, noise_scale=0.5, dim=6, noise_dim=3):
    return Generator(dim, noise_dim, (5, 4), noise_scale=noise_scale, rng=rng, dtype=F64)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_mixture_has_the_printed_means_and_variance(classes, rng):
    inputs, labels = classification_problem.mixture(classes, 40_000, rng)
    for label, mean in enumerate(classification_problem.CLASS_MEANS[classes]):
        own = inputs[labels == label]
        share = len(own) / len(inputs)
        assert abs(share - 1 / classes) < 5 * (1 / classes * (1 - 1 / classes) / 40_000) ** 0.5
        tolerance = 5 * (0.3 / len(own)) ** 0.5  # five standard errors of a mean
        assert_close(own.mean(0), torch.tensor(mean), atol=tolerance, rtol=0)
        # five standard errors of a Gaussian's variance, 0.3 sqrt(2 / n)
        assert_close(torch.cov(own.mT), 0.3 * torch.eye(2), atol=5 * 0.3 * (2 / len(own)) ** 0.5, rtol=0)


def test_only_the_papers_problems_exist(rng):
    with pytest.raises(ValueError, match=r"must be one of \[2, 4\], got 3"):
        classification_problem.mixture(3, 10, rng)


def test_the_problem_is_the_papers_size():
    data = classification_problem.problem(CONFIG, 0)
    assert data.inputs.shape == (100, 2) and data.test_inputs.shape == (200, 2)
    assert injectivity.posterior(CONFIG, data).dim == 184
    other = classification_problem.problem(CONFIG, 1)
    assert not torch.equal(data.inputs, other.inputs)
    assert torch.equal(data.inputs, classification_problem.problem(CONFIG, 0).inputs)


def test_head_statistics_of_a_known_matrix(rng):
    f = Generator(3, 2, (), noise_scale=1.0, rng=rng, dtype=F64)  # linear: the head is W + I
    head = torch.tensor([[0.0, -2.0], [1.0, 3.0]], dtype=F64)  # eigenvalues 1 and 2
    with torch.no_grad():
        f.output.weight[:2] = head - torch.eye(2, dtype=F64)
    found = heads.head_statistics(f, torch.randn(4, 3, generator=rng, dtype=F64))
    one = torch.ones(4, dtype=F64)
    assert_close(found["sign"], one)
    assert_close(found["smallest_real"], one)
    # symmetric part [[0, -1/2], [-1/2, 3]]: eigenvalues (3 ± sqrt 10) / 2
    assert_close(found["smallest_symmetric"], one * (3 - 10**0.5) / 2)
    assert_close(found["smallest_preconditioned"], one)  # the mean is the matrix itself
    singular = torch.linalg.svdvals(head)
    assert_close(found["condition"], one * singular[0] / singular[1])


def test_the_lipschitz_bound_holds_and_is_reached_by_a_linear_head(rng):
    f = generator(rng)
    z = f.noise(200, rng)
    with torch.no_grad():
        a = f.linearize(z).head() - 0.5 * torch.eye(3, dtype=F64)
    assert torch.linalg.matrix_norm(a, 2).max() <= heads.head_lipschitz_bound(f) + 1e-12
    linear = Generator(6, 3, (), rng=rng, dtype=F64)
    exact = torch.linalg.matrix_norm(linear.output.weight[:3].detach(), 2)
    assert heads.head_lipschitz_bound(linear) == pytest.approx(float(exact))


def test_a_left_out_head_stays_out_while_the_rest_trains(rng):
    config = CONFIG | {"num_classes": 2}
    data = classification_problem.problem(config, 0)
    target = injectivity.posterior(config, data)
    f = build_sampler({"kind": "generator", "noise_dim": 8, "hidden": [6], "noise_scale": 0.1}, target.dim, 1.0, rng)
    heads.leave_out_head(f)
    before = f.output.weight.detach().clone()
    fit(
        f,
        target,
        build_objective({"kind": "elbo", "num_samples": 4}),
        steps=3,
        optimizer=Adam(lr=1e-2),
        rng=rng,
        progress=False,
    )
    assert bool((f.output.weight[:8] == 0).all())
    assert not torch.equal(f.output.weight[8:], before[8:])
    assert not bool((f.output.bias[:8] == 0).any())
    _, logabsdet = f.linearize(f.noise(5, rng)).slogdet()
    assert_close(logabsdet, f.noise_scale.log().sum().expand(5))


def test_the_elbo_of_the_prior_is_the_expected_log_likelihood(rng):
    """With q = prior the ELBO is E log p(D | w), whatever the networks do."""
    data = classification_problem.problem(CONFIG, 0)
    target = injectivity.posterior(CONFIG, data)
    prior = build_sampler({"kind": "mean_field", "scale": 1.0}, target.dim, 1.0, rng)
    with torch.no_grad():
        prior.mean.zero_()
    found = injectivity.fit_statistics(prior, target, data, 50)
    assert found["elbo"] == pytest.approx(found["log_likelihood"], rel=1e-4)
    assert 0 <= found["single_accuracy_percent"] <= 100


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_every_method_is_configured(profile):
    experiment = get_experiment("injectivity")
    for method in experiment.methods:
        config = experiment.config(method, profile)
        assert config["steps"] >= 1 and config["history_every"] >= 1
    assert experiment.seeds(profile)


def test_methods_at_a_lambda_have_names_that_files_and_patterns_bear():
    assert injectivity.method_at("gpvi", 0.05) == "gpvi_lambda_0_05"
    assert injectivity.method_at("exact_density", 1.0) == "exact_density_lambda_1"
    for value in injectivity.LAMBDAS:
        config = injectivity.config(injectivity.method_at("gpvi", value), "paper")
        assert config["sampler"]["noise_scale"] == value


@pytest.mark.parametrize("method", ["gpvi_lambda_0_05", "gpvi_exact_density_no_head", "mf_vi"])
def test_a_run_returns_what_the_notebook_needs(method):
    config = injectivity.config(method, "smoke")
    context = RunContext(torch.device("cpu"), 0, None, method, progress=False)
    outcome = injectivity.run(config, method, context)
    again = injectivity.run(config, method, context)
    assert outcome.metrics == again.metrics
    assert len(outcome.arrays["history_step"]) == 2  # before the first and after the last step
    assert float(outcome.arrays["history_elbo"][-1]) == pytest.approx(outcome.metrics["elbo"], rel=1e-6)
    if method == "mf_vi":
        assert "negative_share" not in outcome.metrics
    else:
        assert outcome.arrays["eigenvalues_end"].shape == (8, 64, 2)
        signs = outcome.arrays["final_sign"]
        assert float((signs < 0).double().mean()) == pytest.approx(outcome.metrics["negative_share"])
    if method == "gpvi_exact_density_no_head":
        assert outcome.metrics["positive_definite_share"] == 1 and outcome.metrics["lipschitz_bound"] == 0


def test_a_run_resumes_to_the_same_result(tmp_path: Path, monkeypatch):
    method = "gpvi_exact_density_no_head"
    config = injectivity.config(method, "smoke") | {"steps": 4, "history_every": 4}
    whole = injectivity.run(config, method, RunContext(torch.device("cpu"), 0, None, "whole", progress=False))
    checkpoint = tmp_path / "checkpoint.pt"
    half = config | {"steps": 2}
    monkeypatch.setattr(build, "fit", lambda *a, **k: fit(*a, **k, checkpoint_seconds=0.0))
    injectivity.run(half, method, RunContext(torch.device("cpu"), 0, checkpoint, "half", progress=False))
    assert checkpoint.exists()
    steps, advance = [], Training.advance
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or advance(self))
    resumed = injectivity.run(config, method, RunContext(torch.device("cpu"), 0, checkpoint, "rest", progress=False))
    assert resumed.metrics == whole.metrics and steps == [2, 3]
