"""What notebook 25 says of its records: LIVI's Table 2 on MNIST, ten epochs, one seed, and the control of its model."""

import json
import math

import numpy as np
import pytest
from of_records import Runs

from gpvi_lib.data import load
from gpvi_lib.experiments import livi_mnist as mnist
from gpvi_lib.lab import records
from gpvi_lib.paths import repository
from gpvi_lib.report import scoreboard

MNIST = Runs("livi-mnist")
SEEDS = (0,)
CURVES = ("map", "last_layer_laplace", "deep_ensemble", "mf_vi", "mf_vi_fast", "livi_min_sv_bayes_slow")
SETS = ("fashion-mnist", "kmnist", "transposed")


def told():
    """All the Markdown of the notebook, on one line."""
    notebook = json.loads((repository() / "notebooks" / "25-livi-out-of-distribution.ipynb").read_text())
    return " ".join(" ".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown").split())


def number(method, key):
    """The mean over the seeds that the prose speaks of."""
    return MNIST.metric(method, key, SEEDS).mean()


def bound(method):
    """The claimed ELBO, thousand nats: the first look, and the mean of the last ten."""
    found = MNIST.arrays(method)["training_elbo"].numpy() / 1_000
    return found[0], found[-10:].mean()


def recorded():
    return records.frame(MNIST.experiment, "paper", missing="skip")


def test_how_far_the_runs_went():
    frame = recorded()
    assert set(frame["seed"]) == set(SEEDS)
    assert {MNIST.record(m).config["steps"] for m in frame["method"]} == {10 * mnist.EPOCH}
    assert "avb" not in set(frame["method"])
    config = MNIST.record("livi_min_sv").config
    assert (config["samples"], config["test"], config["unseen_images"], config["rotated"]) == (20, 8_000, 10_000, 2_000)


@pytest.mark.parametrize(
    ("method", "accuracy", "confidence", "area"),
    [
        ("map", 98.6, 73.7, 93.4),
        ("deep_ensemble", 99.0, 66.1, 95.6),
        ("mf_vi", 98.7, 75.6, 93.7),
        ("mf_vi_fast", 99.0, 56.6, 96.9),
        ("livi_min_sv_bayes_slow", 97.4, 67.0, 91.8),
    ],
)
def test_the_rows_that_train(method, accuracy, confidence, area):
    found = (number(method, f"{key}_percent") for key in ("accuracy", "mean_confidence", "mean_auroc"))
    assert [f"{value:.1f}" for value in found] == [f"{value:.1f}" for value in (accuracy, confidence, area)]


def test_the_printed_numbers():
    printed = {(r.method, r.metric): r.mean for r in scoreboard.published() if r.item == "livi/table2/mnist_ood"}
    assert round(printed["livi_min_sv", "mean_confidence_percent"], 1) == 55.0
    assert round(printed["livi_min_sv", "auroc_percent"], 1) == 97.9


def test_the_released_model_unlearns():
    before, after = "mf_vi_released", "mf_vi_released_fast"
    assert [round(number(m, "accuracy_percent"), 1) for m in (before, after)] == [98.7, 10.4]
    assert [round(bound(m)[1]) for m in (before, after)] == [-375, -99]
    assert MNIST.record(after).config["lr"] == 1e-2 and MNIST.record(before).config["lr"] == 1e-3


def test_the_bound_gains_more_than_the_data_are_worth():
    before, after = (bound(m)[1] for m in ("mf_vi_released", "mf_vi_released_fast"))
    assert f"costs {256 * math.log(10):.0f} nats at most, and the bound gains {after - before:.0f},000." in told()


def test_what_the_data_are_worth():
    said = f"that is {256 * math.log(10):.0f} nats. Under Bayes' rule it is {60_000 * math.log(10):,.0f}"
    assert f"{said}, in the first upload's model {256**2 * math.log(10):,.0f}." in told()
    used = len(load("digits").train) // 64 * 64
    said = f"Batches of 64 of the {used:,} images make its power 1/{used / 64:g}"
    assert f"{said}, so that the data are worth {64 * math.log(10):.0f} nats at most." in told()


AWAY = ("livi_min_sv_bayes", "livi_min_sv_wide", "livi_min_sv_released")


def test_l_double_prime_ran_away_at_1e_3():
    curves = [MNIST.arrays(m)["training_elbo"].numpy() / 1_000 for m in AWAY]
    found = [(f"−{-curve[0]:.0f},000", f"−{-np.median(curve[-10:]):,.0f},000") for curve in curves]
    (start, end), wide, released = found
    said = f"starts at {start} nats under Bayes' rule, and the median of its last ten looks is {end}."
    said += f" With the wide prior it goes from {wide[0]} to {wide[1]}"
    assert f"{said}, in the released model from {released[0]} to {released[1]}." in told()
    last = curves[-1][-10:]
    assert (last < -1_000).sum() == 1 and f"One look at −{-last.min() / 1_000:.0f} million makes" in told()
    assert {MNIST.record(m).config["lr"] for m in AWAY} == {1e-3} and {len(curve) for curve in curves} == {98}


def test_no_other_row_ends_below_its_first_look():
    rows = [m for m in recorded()["method"] if "training_elbo" in MNIST.arrays(m)]
    below = [m for m in rows if np.median((e := MNIST.arrays(m)["training_elbo"].numpy())[-10:]) < e[0]]
    assert len(rows) >= 20 and sorted(below) == sorted(AWAY)


def test_l_double_prime_at_the_printed_rate():
    assert round(number("livi_min_sv", "accuracy_percent"), 1) == 11.5
    assert [round(value) for value in bound("livi_min_sv")] == [-424, -407]
    assert MNIST.arrays("livi_min_sv")["entropy_test"].min() > math.log(10) - 0.02  # a tenth to every class
    for method in ("livi_min_sv", "livi_min_sv_bayes_slow"):
        assert MNIST.record(method).config["lr"] == 7e-5


def test_only_mean_field_trains_at_1e_3():
    frame = recorded().set_index("method")["accuracy_percent"]
    others = [m for m in frame.index if m.startswith(("livi", "gpvi")) and MNIST.record(m).config["lr"] == 1e-3]
    assert len(others) >= 11 and {m.rsplit("_", 1)[1] for m in others} == set(mnist.MODELS)
    assert (round(frame[others].min()), round(frame[others].max())) == (9, 12)
    assert frame[["mf_vi", "mf_vi_wide", "mf_vi_warm", "mf_vi_released"]].min() > 98


def test_the_scales_of_mean_field_stay_near_their_start():
    """Adam moves a logarithm by at most the rate a step; the cosine halves it in the mean."""
    config = MNIST.record("mf_vi").config
    most = config["steps"] * (config["lr"] + config["final_lr"]) / 2
    assert f"{most:.1f}" == "1.2" and f"{config['sampler']['scale'] * math.exp(most):.3f}" == "0.065"
    found = [number(m, "weight_sd") for m in ("mf_vi", "mf_vi_wide", "mf_vi_warm", "mf_vi_released")]
    assert (f"{min(found):.3f}", f"{max(found):.3f}") == ("0.058", "0.062")


def changed(after, before, key):
    return number(after, key) - number(before, key)


def test_what_the_model_changes_at_the_small_rate():
    assert f"{changed('mf_vi_released', 'mf_vi', 'mean_confidence_percent'):.1f}" == "-0.4"
    assert f"{changed('mf_vi_released', 'mf_vi', 'mean_auroc_percent'):.1f}" == "-0.2"
    assert f"{changed('mf_vi_warm', 'mf_vi', 'mean_auroc_percent'):.1f}" == "-2.3"


def test_what_the_rate_changes():
    assert [round(bound(m)[1]) for m in ("mf_vi", "mf_vi_fast")] == [-224, -27]
    assert f"{changed('mf_vi_fast', 'mf_vi', 'mean_confidence_percent'):.1f}" == "-19.0"
    assert f"{changed('mf_vi_fast', 'mf_vi', 'mean_auroc_percent'):.1f}" == "3.1"
    assert [f"{number(m, 'nll'):.3f}" for m in ("mf_vi", "mf_vi_fast")] == ["0.039", "0.032"]
    assert [f"{number(m, 'ece'):.3f}" for m in ("mf_vi", "mf_vi_fast")] == ["0.003", "0.008"]


def test_mean_field_leads_l_double_prime():
    pair = "mf_vi_fast", "livi_min_sv_bayes_slow"
    assert f"{changed(*pair, 'mean_confidence_percent'):.1f}" == "-10.5"
    assert f"{changed(*pair, 'mean_auroc_percent'):.1f}" == "5.1"


def test_it_is_ahead_of_all_rows_that_train_and_most_do_not():
    frame = recorded().set_index("method")
    train = frame[frame["accuracy_percent"] > 90]
    assert train["mean_auroc_percent"].idxmax() == train["mean_confidence_percent"].idxmin() == "mf_vi_fast"
    assert len(train) < len(frame) / 2 and frame["accuracy_percent"].drop(train.index).max() < 12


def curve(method, key):
    return MNIST.arrays(method)[key].numpy()


def test_rotations():
    angles = curve("map", "angles")
    for key in ("rotated_nll", "rotated_ece"):
        ours = curve("mf_vi_fast", key)
        assert all((ours < curve(other, key))[angles >= 45].all() for other in CURVES if other != "mf_vi_fast")
    second = curve("livi_min_sv_bayes_slow", "rotated_nll")
    rest = [curve(other, "rotated_nll") for other in ("map", "last_layer_laplace", "deep_ensemble", "mf_vi")]
    assert (second < np.min(rest, 0))[angles >= 60].all() and not (second < np.min(rest, 0))[angles == 45].all()


@pytest.mark.parametrize("name", SETS)
def test_mean_field_has_the_highest_entropy(name):
    means = {method: curve(method, f"entropy_{name}").mean() for method in CURVES}
    assert max(means, key=means.__getitem__) == "mf_vi_fast"


def test_its_lowest_tenth_on_transposed_digits_does_not():
    ours, ensemble = (np.quantile(curve(m, "entropy_transposed"), 0.1) for m in ("mf_vi_fast", "deep_ensemble"))
    said = f"on transposed digits the lowest tenth of its entropies ends at {ours:.3f} nats"
    assert f"{said}, the ensemble's at {ensemble:.3f}." in told()


def test_transposed_digits_are_the_hardest_set():
    for method in CURVES:
        areas = {name: number(method, f"auroc_{name}") for name in SETS}
        assert min(areas, key=areas.__getitem__) == "transposed"
