"""Tables 2 and 9 and Figure 3 of function-space POVI: images, priors of logits, the attack, small runs."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import ArcCosine, Particles, data
from gpvi_lib.experiments import fpovi_adversarial as adversarial
from gpvi_lib.experiments import fpovi_mnist as mnist
from gpvi_lib.experiments import function_images as shared
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments.printed import printed_steps
from gpvi_lib.lab.experiment import RunContext

CPU = torch.device("cpu")


def context(seed=0) -> RunContext:
    return RunContext(CPU, seed, None, "test", False)


def digits(held_out=200, centre=True):
    return shared.images("digits", held_out, centre, CPU)


def test_held_out_images_are_the_last_of_the_training_images():
    raw, found = data.digits(), digits(centre=False)
    assert torch.equal(torch.cat([found.labels, found.held_out_labels]), raw.train_labels)
    assert_close(found.held_out, raw.train[-200:].flatten(1) / 255)
    assert float(found.inputs.max()) == 1 and torch.equal(found.test_labels, raw.test_labels)


def test_pixels_are_centred_by_the_training_images_alone():
    found, plain = digits(), digits(centre=False)
    assert_close(found.inputs.mean(0), torch.zeros(64), rtol=0, atol=1e-5)
    assert_close(found.test_inputs + plain.inputs.mean(0), plain.test_inputs)


def test_logits_have_the_prior_variance_that_was_asked_for():
    target = shared.posterior(digits(), [30, 30], 10.0)
    variance = ArcCosine().given(target).covariance(target.inputs[:200]).diagonal().mean()
    assert float(variance) == pytest.approx(10, rel=1e-5)
    w = target.prior.scale * torch.randn(400, target.dim, generator=torch.Generator().manual_seed(0))
    drawn = target.network(w, target.inputs[:20])  # centred: 9/10 of the variance is left
    assert float(drawn.square().mean()) == pytest.approx(9, rel=0.15)
    assert_close(drawn.mean(-1), torch.zeros(400, 20), rtol=0, atol=1e-4)


def test_the_mean_probability_does_not_underflow(normal):
    logits = normal(3, 4, 5)
    assert_close(shared.mean_log_probability(logits), logits.softmax(-1).mean(0).log())
    sure = torch.tensor([[[900.0, 0.0]]], requires_grad=True)
    value = shared.mean_log_probability(sure)[0, 1]
    (gradient,) = torch.autograd.grad(value, sure)
    assert value.item() == -900 and float(gradient[0, 0, 0]) == pytest.approx(-1)


def test_scores_are_error_and_nats():
    log_probs = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]).log()
    error, nll = shared.scores(log_probs, torch.tensor([0, 1, 1]))
    assert error == pytest.approx(100 / 3)
    assert nll == pytest.approx(-(math.log(0.5) + math.log(0.1) + math.log(0.8)) / 3)


def trained():
    target = shared.posterior(digits(0, False), [40], None)
    rng = torch.Generator().manual_seed(0)
    config = adversarial.config("deep_ensemble", "smoke") | {"steps": 300, "sampler": {"kind": "particles", "num": 3}}
    sampler = shared.first_particles(config, target, context(), rng)
    objective = adversarial.build_objective({"kind": "likelihood"})
    adversarial.train(sampler, target, objective, config | {"lr": 5e-3}, context(), rng, lambda step, sampler: {})
    return target, sampler


def test_an_attack_moves_each_pixel_uphill_and_lowers_the_accuracy():
    target, sampler = trained()
    found = digits(0, False)
    others = (found.test_labels != 0).nonzero()[:100, 0]
    x, labels = found.test_inputs[others], found.test_labels[others]
    step = adversarial.attack_step(target, sampler.x.detach(), x, 0.01)
    assert float((step - x).abs().max()) <= 0.01 + 1e-6 and 0 <= float(step.min()) <= float(step.max()) <= 1
    before, after = (shared.log_probabilities(target, sampler, images)[:, 0].mean() for images in (x, step))
    assert after > before
    curve = adversarial.attacked_accuracy(target, sampler.x.detach(), sampler, (x, labels), 30, 0.02)
    assert len(curve) == 31 and curve[0] > 0.8 and curve[-1] < 0.3
    apart = Particles(0.1 * torch.randn(1, target.dim, generator=torch.Generator().manual_seed(5)))
    transfer = adversarial.attacked_accuracy(target, apart.x.detach(), sampler, (x, labels), 30, 0.02)
    assert transfer[0] == curve[0] and transfer[-1] > curve[-1]


@pytest.mark.parametrize("method", mnist.SPECS)
def test_a_small_run_of_table_2(method):
    config = mnist.config(method, "smoke")
    first, again = (mnist.run(config, method, context()) for _ in range(2))
    assert first.metrics == again.metrics and all(math.isfinite(value) for value in first.metrics.values())
    assert first.metrics["chosen_step"] == 10


def test_held_out_images_choose_the_epoch():
    config = mnist.config("deep_ensemble", "smoke") | {"steps": 60, "lr": 1e-2}
    found = mnist.run(config, "deep_ensemble", context())
    errors = found.arrays["history_held_out_error"][1:]
    at = int(errors.argmin())
    assert found.metrics["chosen_step"] == found.arrays["history_step"][1 + at]
    assert found.metrics["test_error_percent"] == pytest.approx(float(found.arrays["history_error"][1 + at]))
    assert found.metrics["last_test_error_percent"] < 25


@pytest.mark.parametrize("method", adversarial.SPECS)
def test_a_small_run_of_figure_3(method):
    config = adversarial.config(method, "smoke")
    found = adversarial.run(config, method, context())
    assert all(math.isfinite(value) for value in found.metrics.values())
    assert found.arrays["accuracy"].shape == found.arrays["transfer_accuracy"].shape == (6,)
    if method == "f_svgd":
        assert adversarial.run(config, method, context()).metrics == found.metrics


def test_the_attack_and_the_prior_say_what_is_not_as_printed():
    for method in adversarial.SPECS:
        said = adversarial.deviations(method, "paper")
        assert "100 attack steps (not printed)" in said
        assert ("all ten centred logits at 4 inputs (printed: from 40 draws" in said) == method.startswith("f_")


def test_sizes_of_the_paper():
    found = mnist.config("f_svgd", "paper")
    assert (found["steps"], found["batch_size"], found["lr"], found["sampler"]["num"]) == (20 * 500, 100, 2e-4, 5)
    assert printed_steps(get_experiment("fpovi-mnist").scores[0], "f_svgd") == 500_000
    found = adversarial.config("f_svgd", "paper")
    assert (found["steps"], found["batch_size"], found["lr"], found["sampler"]["num"]) == (20 * 60, 1_000, 5e-4, 20)
    assert printed_steps(get_experiment("fpovi-adversarial").scores[0], "svgd") == 60_000
    assert mnist.data_sets("quick") == adversarial.data_sets("smoke") == ()
    assert mnist.data_sets("paper") == adversarial.data_sets("paper") == ("mnist",)
