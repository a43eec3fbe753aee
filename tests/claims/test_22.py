"""What notebook 22 says of its records: bandits after 10,000 of 50,000 rounds, MNIST after 20 of 1,000 epochs.

Players that have not run yet have no numbers in the prose; each sentence is built from the records that there are.
"""

import json

import pytest
from of_records import Runs

from gpvi_lib.experiments import fpovi_bandits as bandits
from gpvi_lib.lab import records
from gpvi_lib.paths import repository

MUSHROOM, WHEEL = Runs("fpovi-bandits-mushroom"), Runs("fpovi-bandits-wheel")


def told():
    """All the Markdown of the notebook, on one line."""
    notebook = json.loads((repository() / "notebooks" / "22-function-space-bandits.ipynb").read_text())
    return " ".join(" ".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown").split())


def seeds(runs, method):
    """Those with a record."""
    return [n for n in runs.seeds if records.record_path(runs.experiment.cell(method, n, "paper")).exists()]


def regret(runs, method, key="relative_regret_percent"):
    """One number a seed, in per cent of uniform play's."""
    return runs.metric(method, key, seeds(runs, method))


@pytest.mark.parametrize(("method", "said", "late"), [("f_svgd", "6.5", "3.0"), ("svgd", "3.8", "1.8")])
def test_mushrooms_functions_and_weights(method, said, late):
    assert f"{regret(MUSHROOM, method)[0]:.1f}" == said
    assert f"{regret(MUSHROOM, method, 'late_relative_regret_percent')[0]:.1f}" == late


def test_mushrooms_in_the_order_that_is_said():
    found = [regret(MUSHROOM, method)[0] for method in ("svgd", "f_svgd", "mf_vi", "gp")]
    assert found == sorted(found)
    text = f"SVGD in weights has {found[0]:.1f} %, f-SVGD {found[1]:.1f} %, mean field {found[2]:.1f} %"
    assert text in told()
    assert f"ends with {found[0]:.1f} % of uniform play's regret and f-SVGD with {found[1]:.1f} %" in told()


def test_the_process_on_mushrooms_is_near_the_printed_number():
    found = regret(MUSHROOM, "gp")
    assert f"{found.min():.0f} to {found.max():.0f} % ({len(found)} seeds), where 16.75 ± 1.63 is printed" in told()


def test_the_bootstrap_eats_almost_nothing():
    left, eaten = MUSHROOM.arrays("bootstrap")["arms"].tolist()
    assert left + eaten == 10_000 and f"eats {eaten} of 10,000 mushrooms" in told()
    poisonous = 3_916 / 8_124
    never = 100 * (1 - poisonous) * 5 / (poisonous * 15 / 2 + (1 - poisonous) * 5 / 2)
    assert abs(regret(MUSHROOM, "bootstrap")[0] - never) < 1 and f"{never:.0f} %" in told()


def test_the_process_explores_the_wheel():
    found = regret(WHEEL, "gp")
    text = f"{found.min():.0f} to {found.max():.0f} % ({len(found)} seeds)"
    assert told().count(text) >= 2 and len(found) == 3
    worst = WHEEL.arrays("gp", int(found.argmax()))["arms"].tolist()
    assert found.argmax() == 0 and f"given up arm 1 ({worst[0]} plays)" in told() and min(worst[1:4]) > 1_000


def test_missed_rounds_follow_from_the_regret():
    """The bounds hold of arms that are known: the process's own game, played again at a small size."""
    config = WHEEL.experiment.config("gp", "smoke")
    drawn = bandits.make(config, 0)
    arms = drawn.expected.argmax(1).roll(1)
    beyond = drawn.contexts.norm(dim=1) > bandits.RADIUS
    regrets = drawn.regret(arms)
    missed, total = int((regrets[beyond] > 0).sum()), float(regrets.sum())
    assert (total - 0.2 * int((~beyond).sum())) / 49 <= missed <= total / 48.8 and missed > 0


def test_mushrooms_are_as_many_as_the_derivation_says():
    """Uniform play's regret on the mushrooms drawn is that of 3,916 poisonous of 8,124; its standard error is 0.025."""
    for seed in seeds(MUSHROOM, "gp"):
        assert abs(MUSHROOM.record("gp", seed).metrics["uniform_regret_a_round"] - 4.91) < 0.08


def test_the_lengths_are_those_said():
    assert MUSHROOM.record("f_svgd").config["rounds"] == WHEEL.record("gp").config["rounds"] == 10_000
    assert all(seeds(MUSHROOM, method) == [0] for method in ("f_svgd", "svgd", "mf_vi", "bootstrap"))
