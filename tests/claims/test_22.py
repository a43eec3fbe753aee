"""What notebook 22 says of its records: bandits after 10,000 of 50,000 rounds, MNIST after 20 of 1,000 epochs.

A sentence is built from the records and looked for in the notebook: a changed record and a changed page both fail.
"""

import json

import pytest
import torch
from of_records import Runs

from gpvi_lib.experiments import fpovi_bandits as bandits
from gpvi_lib.lab import records
from gpvi_lib.paths import repository
from gpvi_lib.report import scoreboard

MUSHROOM, WHEEL, MNIST = (Runs(f"fpovi-{name}") for name in ("bandits-mushroom", "bandits-wheel", "mnist"))


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
    assert f"SVGD is ahead, with {found[0]:.1f} % against {found[1]:.1f} %" in told()


def test_wheel_in_the_order_that_is_said():
    found = [regret(WHEEL, method)[0] for method in ("f_svgd", "mf_vi", "bootstrap", "svgd")]
    assert found == sorted(found)
    text = "f-SVGD has {:.0f} % of uniform play's regret, mean field {:.0f} %, the bootstrap {:.0f} %".format(*found)
    assert told().count(text) == 2 and told().count(f"has {found[3]:.0f} %: it plays one arm") == 1
    late = regret(WHEEL, "f_svgd", "late_relative_regret_percent")[0]
    assert f"f-SVGD has {found[0]:.0f} %, and {late:.1f} % in the second half (1 seed)" in told()
    assert f"fifth arm in {WHEEL.arrays('svgd')['arms'][4]:,} of 10,000 rounds and has {found[3]:.0f} %" in told()


def test_where_f_svgd_would_end_at_the_pace_of_its_second_half():
    ends = {}
    for method in ("f_svgd", "mf_vi", "gp"):
        for runs in (WHEEL, MUSHROOM):
            whole, late = (regret(runs, method, f"{key}relative_regret_percent").mean() for key in ("", "late_"))
            ends.setdefault(method, []).append((whole * 10_000 + late * 40_000) / 50_000)
    text = "{:.1f} % on the wheel and {:.1f} % on mushrooms; 7.54 and 4.39 are printed".format(*ends["f_svgd"])
    assert text in told()
    (wheel, mushrooms), (process, on_mushrooms) = ends["mf_vi"], ends["gp"]
    text = f"on the wheel mean field would end at {wheel:.1f} % and the process at {process:.1f} %, on mushrooms at"
    assert f"{text} {mushrooms:.1f} and {on_mushrooms:.1f} %" in told()


def test_what_f_svgd_misses_and_what_the_fifth_arm_costs_it():
    record = WHEEL.record("f_svgd")
    beyond = int((bandits.make(record.config, 0).contexts.norm(dim=1) > bandits.RADIUS).sum())
    total, fifth = 10_000 * record.metrics["regret_a_round"], int(WHEEL.arrays("f_svgd")["arms"][4])
    within = 10_000 - beyond
    low, high = (total - 0.2 * within) / 49 / beyond, total / 48.8 / beyond
    assert f"misses {100 * low:.0f} to {100 * high:.0f} % of the rare rounds" in told()
    assert f"in {fifth / 100:.0f} % of all rounds" in told() and 0.89 < within / 10_000 < 0.91
    assert f"at least {100 * 0.2 * (within - fifth) / total:.0f} % of its regret" in told()


def test_networks_but_the_bootstrap_eat_well():
    assert max(regret(MUSHROOM, method)[0] for method in ("f_svgd", "svgd", "mf_vi")) < 10
    assert "f-SVGD, SVGD and mean field end below 10 % of uniform play's regret" in told()


def test_the_rivals_of_mnist():
    printed = {p.method: p.mean for p in scoreboard.published() if p.item == "fpovi/table2/mnist"}
    rivals = sorted((value for name, value in printed.items() if name != "f_svgd"), reverse=True)
    assert (
        f"beside {rivals[0]:.2f} and {rivals[1]:.2f} % for Bayes by backprop and {rivals[2]:.2f} % for KIVI" in told()
    )


def test_mnist_after_20_epochs():
    found = [MNIST.metric(method, "test_error_percent", [0])[0] for method in ("f_svgd", "deep_ensemble", "svgd")]
    text = "f-SVGD errs on {:.2f} % of the test images, the ensemble on {:.2f} %, SVGD on {:.2f} % (1 seed)".format(
        *found
    )
    assert text in told() and f"f-SVGD errs on {found[0]:.1f} % of the images" in told()
    assert f"differ by {round(100 * (found[1] - found[0]))} images of 10,000" in told()
    assert MNIST.record("f_svgd").config["steps"] == 20 * 500


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
    text = f"on the wheel a Gaussian process of one per arm has {found.min():.0f} to {found.max():.0f} %"
    assert text in told() and len(found) == 3
    assert "has {:.0f} % on the same rounds, {:.0f} and {:.0f} % on two other seeds".format(*found) in told()
    contexts = bandits.make(WHEEL.record("gp").config, 0).contexts[:500]
    length = torch.pdist(contexts).median()  # of squared distances it is the same pair's
    assert f"the length is {float(length):.2f} on a disc" in told()
    assert f"printed at 61 %, has {found.min():.0f} to {found.max():.0f} % here (3 seeds)" in told()
    assert "{:.0f}, {:.0f} and {:.0f} % on seeds 0 to 2".format(*found) in told()
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
    assert all(seeds(WHEEL, method) == [0] for method in ("f_svgd", "svgd", "mf_vi", "bootstrap"))
