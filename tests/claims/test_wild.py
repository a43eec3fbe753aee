"""What notebooks 18 and 19 say in prose of the records, held to the records."""

import numpy as np
import pytest

from gpvi_lib.lab import records


@pytest.fixture(autouse=True)
def _committed_results(monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS", raising=False)


def values(experiment, method, key):
    """One metric of each seed that has a record."""
    frame = records.frame(experiment, "paper", [method], missing="skip")
    return frame[key].to_numpy() if len(frame) else np.array([])


def kl(method, experiment="wild-mixture"):
    return values(experiment, method, "kl")


def between(found, low, high, digits, seeds):
    """Whether the seeds span what the prose says, rounded as there."""
    return len(found) == seeds and (round(found.min(), digits), round(found.max(), digits)) == (low, high)


def test_18_learned_by_svgd_beats_what_is_printed():
    assert between(kl("svgd_full"), 0.022, 0.045, 3, 3)
    printed = [kl(method) for method in ("constant", "power", "adagrad", "rmsprop", "adadelta")]
    best = min(found.min() for found in printed if len(found))
    assert best == pytest.approx(0.09, abs=0.005) and kl("svgd_full").max() < best
    assert (kl("constant").round(3) == 0.121).all() and (kl("power").round(3) == 0.153).all()


def test_18_a_free_exponent_and_mala_beat_what_is_learned():
    assert kl("power_free")[0] == pytest.approx(0.0011, abs=5e-5)
    assert values("wild-mixture", "power_free", "exponent")[0] == 1.25
    assert kl("mala")[0] == pytest.approx(0.0003, abs=5e-5)
    assert max(kl("power_free").max(), kl("mala").max()) < kl("svgd_truncated").min()


def test_18_the_regression_and_held_scores():
    assert between(kl("gauss_newton"), 0.003, 0.014, 3, 3) and between(kl("regression"), 0.13, 0.18, 2, 3)
    assert between(kl("svgd_truncated"), 0.0017, 0.0024, 4, 3)


def test_18_ksd():
    assert between(kl("ksd_u"), 0.03, 0.21, 2, 3) and round(float(np.median(kl("ksd_u"))), 2) == 0.07
    assert kl("path").min() == pytest.approx(0.51, abs=0.005)


def test_18_thresholds():
    """Of the specification: two hold in every seed, that of Gauss–Newton in two of three."""
    assert kl("svgd_full").max() <= 0.06 and kl("svgd_truncated").max() <= 0.004
    assert sorted(kl("gauss_newton") <= 0.01) == [False, True, True]
    frame = records.frame("wild-mixture", "paper", missing="skip")
    assert frame["mass_error"].dropna().max() <= 1e-6
