"""The long runs on the digits: what varies, and that the looks at the map are right."""

import pytest
import torch

from gpvi_lib import Generator, Particles
from gpvi_lib.data import KNOWN_CLASSES
from gpvi_lib.experiments import digits_long, get_experiment
from gpvi_lib.experiments.build import build_optimizer
from gpvi_lib.experiments.open_category import digits_config, image_config
from gpvi_lib.lab.experiment import RunContext

LENGTH = {"steps", "history_every", "evaluation_seed"}


@pytest.mark.parametrize("method", digits_long.VARIED)
def test_a_row_is_that_of_the_table_but_for_its_length_and_its_change(method):
    row, change = digits_long.VARIED[method]
    long, table = digits_long.config(method, "paper"), digits_config(row, "paper")
    times = 10 if method.endswith("_longer") else 5
    assert long["steps"] == times * table["steps"] and long["steps"] == digits_long.LOOKS * long["history_every"]
    differ = {key for key in long.keys() | table.keys() if long.get(key) != table.get(key)}
    assert differ - LENGTH == set(change)


@pytest.mark.parametrize("method", digits_long.ON_MNIST)
def test_a_row_on_mnist_is_that_of_table_3_at_its_printed_length_but_for_its_change(method):
    long = digits_long.mnist_config(method, "paper")
    table = image_config("mnist", KNOWN_CLASSES, "published", "gpvi_best", "paper")
    assert long["steps"] == 100 * 720 and long["history_every"] == 7_200
    differ = {key for key in long.keys() | table.keys() if long.get(key) != table.get(key)}
    assert differ - {"more", "evaluation_seed"} == set(digits_long.ON_MNIST[method])


@pytest.mark.parametrize("method", ["gpvi_best_decay", "amortized_svgd"])
def test_a_run_looks_at_the_measures_and_where_there_is_a_map_at_its_folds(method):
    experiment = get_experiment("digits-long")
    context = RunContext(torch.device("cpu"), 0, None, method, progress=False)
    outcome = experiment.run(experiment.config(method, "smoke"), method, context)
    assert {"accuracy_percent", "auroc", "ece"} <= outcome.metrics.keys()
    assert ("folds" in outcome.metrics) is (method != "amortized_svgd")
    assert len(outcome.arrays["history_accuracy_percent"]) == 5  # the start, and four steps


def test_folds_are_counted_where_the_determinant_of_the_whole_jacobian_is_negative():
    generator = Generator(4, 2, hidden=(8,), noise_scale=0.1 * torch.ones(4), rng=torch.Generator().manual_seed(0))
    z = generator.noise(digits_long.POINTS, torch.Generator().manual_seed(7))
    jacobians = torch.func.vmap(torch.func.jacrev(lambda one: generator(one[None])[0]))(z)
    sign, log_det = torch.linalg.slogdet(jacobians)
    found = digits_long.map_at_points(generator, 7)
    assert 0 < found["folds"] < 1 and found["folds"] == float((sign < 0).double().mean())
    assert found["log_det"] == pytest.approx(float(log_det.detach().mean()), abs=1e-3)
    assert digits_long.map_at_points(Particles(torch.zeros(2, 3)), 0) == {}


def test_the_rate_falls_as_far_on_mnist_as_on_the_digits():
    configs = digits_long.config("gpvi_best_decay", "paper"), digits_long.mnist_config("gpvi_best_decay", "paper")
    assert [config["lr"] / config["final_lr"] for config in configs] == pytest.approx([100, 100])


def test_a_falling_rate_goes_as_far_as_the_constant_one_in_twice_as_many_steps():
    constant = digits_long.config("gpvi_best", "paper")
    falling = digits_long.config("gpvi_best_decay_longer", "paper")
    optimizer = build_optimizer(falling)
    gone = sum(optimizer.lr_at(step, falling["steps"]) for step in range(falling["steps"]))
    assert gone == pytest.approx(constant["lr"] * constant["steps"], rel=0.02)
