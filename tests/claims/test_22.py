"""What notebook 22 says of its records: bandits after 10,000 of 50,000 rounds, MNIST after 20 of 1,000 epochs.

A sentence is built from the records and looked for in the notebook: a changed record and a changed page both fail.
"""

from functools import partial

import of_records
import pytest
import torch
from of_records import Runs
from scipy import stats

from gpvi_lib.experiments import fpovi_adversarial as adversarial
from gpvi_lib.experiments import fpovi_bandits as bandits
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.report import scoreboard

told = partial(of_records.told, "22")

SEEDS = (0, 1, 2)
ALL_MUSHROOM, ALL_WHEEL = (Runs(f"fpovi-bandits-{name}-all-rounds") for name in ("mushroom", "wheel"))
MUSHROOM, WHEEL, MNIST = (Runs(f"fpovi-{name}") for name in ("bandits-mushroom", "bandits-wheel", "mnist"))
ATTACK, CURVES = Runs("fpovi-adversarial"), ("accuracy", "transfer_accuracy")


def regret(runs, method, key="relative_regret_percent"):
    """One number a seed, in per cent of uniform play's."""
    return runs.metric(method, key, runs.recorded(method))


def late(runs, method):
    return regret(runs, method, "late_relative_regret_percent")


def listed(values, digits=0):
    """10, 7 and 7."""
    *some, last = (f"{value:.{digits}f}" for value in values)
    return f"{', '.join(some)} and {last}"


def between(values, digits=0):
    """7 to 10."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def arms(method, seed=0, runs=WHEEL):
    return runs.arrays(method, seed)["arms"].tolist()


def missed(seed):
    """The least and the largest share of the rare rounds that f-SVGD can have missed, their number, its regret."""
    record = WHEEL.record("f_svgd", seed)
    beyond = int((bandits.make(record.config, seed).contexts.norm(dim=1) > bandits.RADIUS).sum())
    total = 10_000 * record.metrics["regret_a_round"]
    return (total - 0.2 * (10_000 - beyond)) / 49 / beyond, total / 48.8 / beyond, beyond, total


def shares_missed():
    """8 to 11 % on seed 0, 37 to 41 and 20 to 24 % on the others."""
    first, second, third = (between([100 * share for share in missed(seed)[:2]]) for seed in SEEDS)
    return f"{first} % of the rare rounds on seed 0, {second} and {third} % on the others"


def played(runs, method, digits=1):
    """Regret after all 50,000 rounds: 7.6 % (seed 0), or 7.3, 5.1 and 6.2 % (3 seeds)."""
    found = regret(runs, method)
    seeds = "seed 0" if len(found) == 1 else f"{len(found)} seeds"
    assert list(runs.recorded(method)) == list(range(len(found)))
    return f"{listed(found, digits) if len(found) > 1 else f'{found[0]:.{digits}f}'} % ({seeds})"


def fifth(seed):
    """Of f-SVGD: how often the fifth arm, and which share of its regret the others cost it within the disc."""
    _, _, beyond, total = missed(seed)
    return arms("f_svgd", seed)[4], 0.2 * (10_000 - beyond - arms("f_svgd", seed)[4]) / total


def errors(method):
    return regret(MNIST, method, "test_error_percent")


def both(runs):
    """The regrets of the processes with either prior."""
    return [*regret(runs, "gp"), *regret(runs, "gp_as_networks")]


def span(method):
    """1.75 to 1.77."""
    found = errors(method)
    return f"{found.min():.2f} to {found.max():.2f}"


SENTENCES = {
    "the minute, wheel": lambda: (
        f"After {WHEEL.record('f_svgd').config['rounds']:,} of 50,000 rounds ours has "
        f"{listed(regret(WHEEL, 'f_svgd'))} % of uniform play's regret, SVGD {listed(regret(WHEEL, 'svgd'))} %."
    ),
    "the minute, all rounds": lambda: (
        f"After all 50,000 f-SVGD has {regret(ALL_WHEEL, 'f_svgd')[0]:.1f} % (1 seed; 7.5 is printed), but our mean "
        f"field {listed(regret(ALL_WHEEL, 'mf_vi'))} % and Gaussian process {between(regret(ALL_WHEEL, 'gp'))} % "
        "(printed, other settings: 56, 61)."
    ),
    "mushrooms": lambda: (
        f"f-SVGD has {listed(regret(MUSHROOM, 'f_svgd'), 1)} % after 10,000 rounds, and "
        f"{listed(late(MUSHROOM, 'f_svgd'), 1)} % in the second half (seeds 0 to 2). SVGD has "
        f"{listed(regret(MUSHROOM, 'svgd'), 1)} %, mean field {listed(regret(MUSHROOM, 'mf_vi'), 1)} %."
    ),
    "process, mushrooms": lambda: (
        f"The Gaussian process has {between(regret(MUSHROOM, 'gp'))} % (3 seeds), where 16.75 ± 1.63 is printed after "
        "five times the rounds; with the networks' prior variance it has "
        f"{between(regret(MUSHROOM, 'gp_as_networks'))} %."
    ),
    "bootstrap": lambda: (
        f"On mushrooms it has {played(ALL_MUSHROOM, 'bootstrap')} after all rounds, and "
        f"{late(ALL_MUSHROOM, 'bootstrap')[0]:.1f} % in the second half, where 2.71 ± 0.22 is printed for the whole. "
        f"On the wheel it has {played(ALL_WHEEL, 'bootstrap', 0)}, and {late(ALL_WHEEL, 'bootstrap')[0]:.0f} % in the "
        "second half, where 42.16 ± 7.80 is."
    ),
    "wheel": lambda: (
        f"f-SVGD has {listed(regret(WHEEL, 'f_svgd'))} %, and {listed(late(WHEEL, 'f_svgd'), 1)} % in the second half "
        f"(seeds 0 to 2). On seed 1 it has given up arm 4 ({arms('f_svgd', 1)[3]} plays), and with it one quadrant of "
        f"the ring. SVGD plays the fifth arm in {arms('svgd')[4]:,} of 10,000 rounds on seeds 0 and 1, and has "
        f"{regret(WHEEL, 'svgd')[0]:.0f} %. On seed 2 it finds two quadrants of four and has "
        f"{regret(WHEEL, 'svgd')[2]:.0f} %. Mean field has {listed(regret(WHEEL, 'mf_vi'))} % "
        f"(all rounds: {', '.join(f'{value:.0f}' for value in regret(ALL_WHEEL, 'mf_vi'))}; printed 55.77)."
    ),
    "claim 1, all rounds": lambda: (
        f"After all 50,000 (seed 0): {regret(ALL_WHEEL, 'f_svgd')[0]:.1f} %, printed 7.5, behind mean field's "
        f"{regret(ALL_WHEEL, 'mf_vi')[0]:.1f} and the process's {regret(ALL_WHEEL, 'gp')[0]:.1f}; the bootstrap has "
        f"{regret(ALL_WHEEL, 'bootstrap')[0]:.0f} %, printed 42"
    ),
    "wide start": lambda: (
        f"From the code's, √10 wider, f-SVGD has {listed(regret(WHEEL, 'f_svgd_wide_start'))} % on the wheel, in "
        f"the second half {listed(late(WHEEL, 'f_svgd_wide_start'), 1)} %: it gives up no arm. SVGD has "
        f"{listed(regret(WHEEL, 'svgd_wide_start'))} %. On mushrooms f-SVGD then has "
        f"{listed(regret(MUSHROOM, 'f_svgd_wide_start'), 1)} %, SVGD {listed(regret(MUSHROOM, 'svgd_wide_start'), 1)} %"
    ),
    "wide start, takeaway": lambda: f"from the code's start f-SVGD {listed(regret(WHEEL, 'f_svgd_wide_start'))} %.",
    "process, wheel": lambda: (
        f"On the wheel, with a prior sd of 3.2, it has {listed(regret(WHEEL, 'gp'))} % on seeds 0 to 2 "
        f"(all rounds: {between(regret(ALL_WHEEL, 'gp'))} %; 60.80 is printed, appendix B). With a prior sd "
        f"of 19, like the networks' 18 to 24, it has {listed(regret(WHEEL, 'gp_as_networks'))} %."
    ),
    "after 50,000, f-SVGD": lambda: (
        f"From our start it has {played(ALL_WHEEL, 'f_svgd')}, and {late(ALL_WHEEL, 'f_svgd')[0]:.1f} % in the second "
        f"half, from the code's {regret(ALL_WHEEL, 'f_svgd_wide_start')[0]:.1f} %; 7.54 ± 0.41 is printed."
    ),
    "after 50,000, rivals": lambda: (
        f"Mean field has {played(ALL_WHEEL, 'mf_vi')}, and {listed(late(ALL_WHEEL, 'mf_vi'), 1)} % in the second half, "
        "where 55.77 ± 8.29 is printed for the whole. The process of sd 3.2 has "
        f"{played(ALL_WHEEL, 'gp')}, where 60.80 ± 4.40 is."
    ),
    "claim 2, all rounds": lambda: (
        f"After all 50,000 (seed 0): f-SVGD {regret(ALL_MUSHROOM, 'f_svgd')[0]:.1f} % (printed 4.4), the bootstrap "
        f"{regret(ALL_MUSHROOM, 'bootstrap')[0]:.1f} (2.7), mean field {regret(ALL_MUSHROOM, 'mf_vi')[0]:.1f} (19.2), "
        f"the process {regret(ALL_MUSHROOM, 'gp')[0]:.1f} (16.8)"
    ),
    "after 50,000, mushrooms": lambda: (
        f"On mushrooms f-SVGD has {played(ALL_MUSHROOM, 'f_svgd')}, and {late(ALL_MUSHROOM, 'f_svgd')[0]:.1f} % in the "
        f"second half, where 4.39 ± 0.39 is printed; mean field has {played(ALL_MUSHROOM, 'mf_vi')}, where "
        f"19.15 ± 5.98 is, the process {played(ALL_MUSHROOM, 'gp')}, where 16.75 ± 1.63 is."
    ),
    "missed": lambda: f"f-SVGD misses {shares_missed()}.",
    "the fifth arm": lambda: (
        f"It plays the fifth arm in {between([fifth(seed)[0] / 100 for seed in SEEDS])} % of the rounds (from the "
        f"code's start in {between([arms('f_svgd_wide_start', seed)[4] / 100 for seed in SEEDS])} %), and the fifth "
        "arm is the best one in 90 %. The rounds within 0.95 in which it plays another arm are at least "
        f"{between([100 * fifth(seed)[1] for seed in SEEDS])} % of its regret."
    ),
    "takeaway, the fifth arm": lambda: "on the wheel f-SVGD plays that arm in {} % of rounds.".format(
        between([arms(m, seed)[4] / 100 for m in ("f_svgd", "f_svgd_wide_start") for seed in SEEDS])
    ),
    "arm 1": lambda: (
        f"On seed 0 the process of sd 3.2 has given up arm 1 ({arms('gp')[0]} plays) and with it one quadrant of the "
        f"ring; the process with the networks' variance plays it {arms('gp_as_networks')[0]:,} times."
    ),
    "MNIST": lambda: (
        f"At that epoch f-SVGD errs on {span('f_svgd')} % of the test images, the ensemble on "
        f"{span('deep_ensemble')} %, SVGD on {span('svgd')} % (3 seeds). Seed by seed the ensemble has "
        + listed(100 * (errors("deep_ensemble") - errors("f_svgd")))
        + " more wrong images of 10,000 than f-SVGD; at the last epoch it is ahead on seed 1."
    ),
    "takeaway, wheel": lambda: (
        f"on the wheel f-SVGD has {listed(regret(WHEEL, 'f_svgd'))} % of uniform play's regret, SVGD "
        f"{listed(regret(WHEEL, 'svgd'))} %, mean field {listed(regret(WHEEL, 'mf_vi'))} %; from the code's start"
    ),
    "takeaway, process": lambda: (
        "on the wheel Gaussian processes, one an arm, have "
        f"{regret(WHEEL, 'gp').min():.0f} to {regret(WHEEL, 'gp').max():.0f} % with a prior sd of 3.2, and "
        f"{regret(WHEEL, 'gp_as_networks').min():.0f} to {regret(WHEEL, 'gp_as_networks').max():.0f} % with the "
        "networks'."
    ),
    "takeaway, process, all rounds": lambda: (
        f"After all rounds sd 3.2 has {between(regret(ALL_WHEEL, 'gp'))} and "
        f"{between(regret(ALL_MUSHROOM, 'gp'))} % (printed 60.80, 16.75)."
    ),
    "takeaway, all rounds": lambda: (
        f"After all 50,000 rounds f-SVGD has {regret(ALL_WHEEL, 'f_svgd')[0]:.1f} % (1 seed), mean field "
        f"{listed(regret(ALL_WHEEL, 'mf_vi'))} % (3 seeds; 55.77 is printed)."
    ),
    "takeaway, mushrooms": lambda: (
        f"on mushrooms SVGD in weights has {listed(regret(MUSHROOM, 'svgd'), 1)} %, f-SVGD "
        f"{listed(regret(MUSHROOM, 'f_svgd'), 1)} %, mean field {listed(regret(MUSHROOM, 'mf_vi'), 1)} %. From the "
        f"code's start SVGD has {listed(regret(MUSHROOM, 'svgd_wide_start'), 1)} %, f-SVGD "
        f"{listed(regret(MUSHROOM, 'f_svgd_wide_start'), 1)} %."
    ),
}


@pytest.mark.parametrize("key", SENTENCES)
def test_the_page_says_what_the_records_say(key):
    assert SENTENCES[key]() in told()


def test_the_orders_that_are_said():
    functions = regret(WHEEL, "f_svgd")
    assert (functions < regret(WHEEL, "svgd")).all() and (functions < regret(WHEEL, "mf_vi")).sum() == 2
    assert (regret(WHEEL, "gp_as_networks") < functions).all()
    assert arms("gp")[0] < min(arms("gp")[1:4]) / 10
    assert "leads f-SVGD on each seed, from either start; that with sd 3.2 on two seeds" in told()
    assert "ahead of SVGD on all three seeds, of mean field on two; behind Gaussian processes on two" in told()
    svgd, functions, field = (regret(MUSHROOM, method) for method in ("svgd", "f_svgd", "mf_vi"))
    assert (svgd < functions).all() and (svgd < field).all()
    assert (functions < field).sum() == 2 and (functions < regret(MUSHROOM, "gp")).sum() == 1
    assert "SVGD is ahead of both on every seed." in told()
    assert "behind SVGD on all three seeds, ahead of the process (sd 3.2) on one, of mean field on two." in told()
    wide = regret(MUSHROOM, "f_svgd_wide_start")  # from the code's start
    assert all((wide < regret(MUSHROOM, method)).all() for method in ("svgd_wide_start", "gp"))
    assert sorted((regret(MUSHROOM, "mf_vi") - wide).round(1))[:2] == [0.1, 3.6]  # level, and ahead on the others
    assert (regret(WHEEL, "f_svgd_wide_start") < regret(WHEEL, "svgd_wide_start")).all()
    assert (regret(WHEEL, "gp") < regret(WHEEL, "f_svgd")).sum() == 2
    for runs in (MUSHROOM, WHEEL):
        each = regret(runs, "f_svgd_wide_start") - regret(runs, "svgd_wide_start")
        low, high = stats.ttest_1samp(each, 0).confidence_interval(0.95)
        assert low < 0 < high
    assert "Each gap's interval holds 0. On the wheel f-SVGD is ahead from both starts." in told()


def test_three_seeds_do_not_decide_between_functions_and_weights():
    told_as = ("from −2.4 to 9.6.", "(by 69 points, interval −27 to 165)")
    assert all(words in told() for words in told_as)
    for runs, said in ((MUSHROOM, (3.6, -2.4, 9.6)), (WHEEL, (-69, -165, 27))):
        each = regret(runs, "f_svgd") - regret(runs, "svgd")
        low, high = stats.ttest_1samp(each, 0).confidence_interval(0.95)
        assert (
            tuple(round(value, 1 if runs is MUSHROOM else None) for value in map(float, (each.mean(), low, high)))
            == said
        )


def test_the_start_turns_the_order_on_mushrooms():
    wide, narrow = (
        regret(MUSHROOM, f"f_svgd{start}") - regret(MUSHROOM, f"svgd{start}") for start in ("_wide_start", "")
    )
    low, high = stats.ttest_1samp(narrow - wide, 0).confidence_interval(0.95)
    assert (narrow > 0).all() and (wide < 0).all()
    assert "On mushrooms the order turns with the width of the first weights." in told()
    configs = [[MUSHROOM.record(f"{m}{start}").config for start in ("", "_wide_start")] for m in ("f_svgd", "svgd")]
    assert all(there == here | {"start": 10**0.5} for here, there in configs)  # nothing but that width
    assert f"moves by {(narrow - wide).mean():.1f} points (paired interval from {low:.1f} to {high:.1f}," in told()


def test_the_process_on_mushrooms():
    more = regret(MUSHROOM, "gp_as_networks") - regret(MUSHROOM, "gp")
    assert f"On mushrooms the networks' variance (sd 75) has {between(more)} points more on every seed." in told()
    narrow, wide = (between(regret(MUSHROOM, method)) for method in ("gp", "gp_as_networks"))
    assert f"On mushrooms they have {narrow} and {wide} %." in told()


def test_by_nll_f_svgd_is_ahead_of_the_ensemble_on_mnist():
    ours, theirs = (MNIST.metric(method, "test_nll") for method in ("f_svgd", "deep_ensemble"))
    assert (ours < theirs).all() and len(ours) == 3
    ends = [f"{min(found):.3f} to {max(found):.3f}" for found in (ours, theirs)]
    assert f"ahead on all three seeds, {ends[0]} against {ends[1]}" in told()


def test_on_seed_2_svgd_finds_two_quadrants():
    assert min(arms("svgd", 2)[2:4]) > 600 > 20 > max(arms("svgd", 2)[:2])
    assert all(arms("svgd", seed)[4] == arms("svgd")[4] for seed in (0, 1))
    assert "On seed 2 it finds two quadrants of four and has 61 %." in told() and round(regret(WHEEL, "svgd")[2]) == 61


def test_after_all_rounds_f_svgd_alone_is_as_printed_on_the_wheel():
    """Its rivals that were played have far less regret than printed, and in the second half less than f-SVGD."""
    printed = {p.method: (p.mean, p.sd) for p in scoreboard.published() if p.item == "fpovi/table3/wheel"}
    mean, sd = printed["f_svgd"]
    ours = regret(ALL_WHEEL, "f_svgd")
    assert (abs(ours - mean) < 2 * sd).all() and regret(ALL_WHEEL, "f_svgd_wide_start").max() < mean
    for method, column in (("mf_vi", "bbb"), ("gp", "gp")):
        found, (theirs, spread) = regret(ALL_WHEEL, method), printed[column]
        assert len(found) == 3 and (found < theirs - 2 * spread).all()
    assert (late(ALL_WHEEL, "mf_vi") < late(ALL_WHEEL, "f_svgd")[0] / 2).all()
    assert f"{printed['gp'][0]:.2f} ± {printed['gp'][1]:.2f}" == "60.80 ± 4.40"
    first = [regret(ALL_WHEEL, method)[0] for method in ("f_svgd", "mf_vi", "gp")]
    assert first == sorted(first, reverse=True)
    said = "After all 50,000 rounds f-SVGD has its printed regret (1 run), mean field far less than printed."
    assert said in told() and "where 60.80 ± 4.40 is." in told() and "(printed 60.80, 16.75)" in told()


def test_after_all_rounds_the_bootstrap_wins_on_mushrooms_and_not_on_the_wheel():
    printed = {p.method: p.mean for p in scoreboard.published() if p.item == "fpovi/table3/mushroom"}
    order = ["bootstrap", "mf_vi", "f_svgd", "gp"]
    found = [regret(ALL_MUSHROOM, method)[0] for method in order]
    assert found == sorted(found) and printed["bootstrap"] < printed["f_svgd"] < printed["gp"] < printed["bbb"]
    said = "the printed order of bootstrap, f-SVGD and process holds (1 seed), and mean field, printed last, is second."
    assert said in told()
    assert regret(ALL_WHEEL, "f_svgd")[0] < regret(ALL_WHEEL, "bootstrap")[0]
    given_up = arms("bootstrap", 0, ALL_WHEEL)[0]
    assert given_up < min(arms("bootstrap", 0, ALL_WHEEL)[1:4]) / 10
    said = f"On the wheel f-SVGD is ahead of the bootstrap, as printed: that has given up arm 1 ({given_up} plays)."
    assert said in told()


def test_what_a_game_of_all_rounds_costs():
    hours = {
        method: [ALL_WHEEL.record(method, seed).seconds / 3_600 for seed in ALL_WHEEL.recorded(method)]
        for method in ("mf_vi", "f_svgd", "f_svgd_wide_start")
    }
    field, ours = min(hours["mf_vi"]), max(hours["f_svgd"] + hours["f_svgd_wide_start"])
    assert f"| {field:.1f} h (mean field) to {ours:.1f} h (f-SVGD) a game on the wheel |" in told()


def test_networks_eat_well():
    assert max(regret(MUSHROOM, method).max() for method in ("f_svgd", "svgd", "mf_vi")) < 18
    assert "on mushrooms f-SVGD, SVGD and mean field end below 18 % of uniform play's regret (3 seeds)" in told()


def test_the_rivals_of_mnist():
    printed = {p.method: p.mean for p in scoreboard.published() if p.item == "fpovi/table2/mnist"}
    rivals = [printed[name] for name in ("bbb_gaussian", "bbb_scale_mixture", "kivi")]
    assert len(printed) == 4
    said = f"beside {rivals[0]:.2f} and {rivals[1]:.2f} % for Bayes by backprop (two priors) and {rivals[2]:.2f} %"
    assert f"{said} for kernel implicit" in told() and MNIST.record("f_svgd").config["steps"] == 20 * 500


def test_a_player_who_never_eats():
    poisonous = 3_916 / 8_124
    never = 100 * (1 - poisonous) * 5 / (poisonous * 15 / 2 + (1 - poisonous) * 5 / 2)
    assert f"one who never eats {never:.0f} %" in told()


def test_the_bootstrap_was_played_at_all_rounds_alone():
    for short, long in ((WHEEL, ALL_WHEEL), (MUSHROOM, ALL_MUSHROOM)):
        assert not short.recorded("bootstrap") and long.recorded("bootstrap") == [0]
    assert "the bootstrap was played over all rounds alone" in told()


def test_the_prior_of_the_process_matters_on_mushrooms():
    """By how much more there than the largest difference on the wheel but for seed 0."""
    assert "**The process's prior matters on mushrooms.**" in told()
    mushrooms, wheel = (regret(runs, "gp_as_networks") - regret(runs, "gp") for runs in (MUSHROOM, WHEEL))
    assert f"has {between(mushrooms)} points more on every seed." in told()
    assert stats.ttest_1samp(mushrooms, 0).pvalue < 0.01 < 0.1 < stats.ttest_1samp(wheel, 0).pvalue


def test_the_prior_of_the_process_matters_on_one_seed():
    assert arms("gp", 0)[0] == 41 and min(min(arms("gp", seed)) for seed in (1, 2)) > 1_000
    narrow, wide = (late(WHEEL, method) for method in ("gp", "gp_as_networks"))
    said = "{:.0f}, {:.0f} and {:.0f} % (sd 3.2) and {:.0f}, {:.0f} and {:.0f} % (sd 19)"
    assert said.format(*narrow, *wide) in told()


def test_a_player_who_is_stuck_on_one_of_the_first_arms():
    ring = 1 - 0.95**2
    assert round(100 * (ring * 0.75 * 49 + (1 - ring) * 0.2) / 3.96) == 95 and "one stuck on another arm 95 %" in told()


def test_missed_rounds_follow_from_the_regret():
    """A process plays a small wheel: the rounds it missed lie within the bounds of Table 22.2."""
    config = WHEEL.experiment.config("gp", "smoke") | {"rounds": 400}
    drawn = bandits.make(config, 0)
    context = RunContext(torch.device("cpu"), 0, None, "", False)
    player = bandits.ProcessPlayer(config, drawn, context, torch.Generator().manual_seed(0))
    played, _ = bandits.play(config, drawn, player, context)
    beyond = drawn.contexts.norm(dim=1) > bandits.RADIUS
    regrets = drawn.regret(played)
    missed, total = int((regrets[beyond] > 0).sum()), float(regrets.sum())
    assert (total - 0.2 * int((~beyond).sum())) / 49 <= missed <= total / 48.8 and missed > 0
    assert "a miss costs 48.8 or 49, all else at most 0.2:" in told()


def test_mushrooms_are_as_many_as_the_derivation_says():
    """Uniform play's regret on the mushrooms drawn is that of 3,916 poisonous of 8,124; its standard error is 0.025."""
    for seed in MUSHROOM.recorded("gp"):
        assert abs(MUSHROOM.record("gp", seed).metrics["uniform_regret_a_round"] - 4.91) < 0.08
    assert "Uniform play loses 3.96 a round on the wheel and 4.91 on mushrooms." in told()


def test_the_lengths_are_those_said():
    assert MUSHROOM.record("f_svgd").config["rounds"] == WHEEL.record("gp").config["rounds"] == 10_000
    for runs in (WHEEL, MUSHROOM):
        players = ("f_svgd", "svgd", "mf_vi", "gp", "gp_as_networks")
        assert all(runs.recorded(method) == list(SEEDS) for method in players)
        assert runs.recorded("f_svgd_wide_start") == runs.recorded("svgd_wide_start") == list(SEEDS)
    assert min(min(arms("f_svgd_wide_start", seed)) for seed in SEEDS) > 1_000
    assert "5.3, 5.6 and 5.0 %: it gives up no arm." in told()
    assert "circles after 10,000 rounds (3 seeds), diamonds after all 50,000;" in told()


def lost(method, curve, left):
    """The first step of the attack after which less than that share of the images is right."""
    return int((ATTACK.arrays(method)[curve] < left).nonzero()[0])


def test_at_the_papers_size_svgd_is_less_accurate_and_lasts_longer():
    assert all(ATTACK.recorded(method) == [0] for method in ("svgd", "f_svgd"))
    assert ATTACK.record("svgd").config["steps"] == 1_200 and adversarial.PRINTED_EPOCHS == 1_000
    said = {m: f"{100 * ATTACK.record(m).metrics['clean_accuracy']:.1f} %" for m in ("svgd", "f_svgd")}
    assert f"the less accurate, {said['svgd']} against {said['f_svgd']}" in told()
    own, transfer = ([lost(m, c, left) for m in ("svgd", "f_svgd") for left in (0.5, 0.05)] for c in CURVES)
    text = "half of its images are lost after {} steps and all but 5 % after {}, of f-SVGD's after {} and {}"
    assert text.format(*own) in told()
    assert "{} and {} steps against {} and {}.".format(*transfer) in told()
    assert len(ATTACK.arrays("svgd")["accuracy"]) == 101  # before the attack, and after each step
    printed = [p.mean for p in scoreboard.published() if (p.item, p.method) == ("fpovi/table9/mnist", "svgd")]
    assert f"the paper prints {100 * max(printed):.1f} % for SVGD" in told()
    assert own[0] == 2 * own[2] and f"lost half of the images after {own[0]} steps, f-SVGD after {own[2]}" in told()
    records = [ATTACK.record(m) for m in ("svgd", "f_svgd", "f_gfsf", "deep_ensemble")]
    seconds = [round(record.seconds) for record in records]
    assert f"on a GPU beside other runs, {min(seconds)} to {max(seconds)} seconds each" in told()
    assert all("H100" in record.device for record in records)


def test_at_the_papers_size_f_svgd_lasts_no_longer_than_a_deep_ensemble():
    falls = {
        m: [lost(m, c, left) for c in CURVES for left in (0.5, 0.05)] for m in ("f_svgd", "f_gfsf", "deep_ensemble")
    }
    assert falls["f_gfsf"] == falls["f_svgd"] and ATTACK.recorded("deep_ensemble") == [0]
    assert "**Here (1 seed) f-SVGD lasts no longer than a deep ensemble.**" in told()
    ensemble = falls["deep_ensemble"]
    assert all(late >= soon for late, soon in zip(ensemble, falls["f_svgd"], strict=True))
    assert "under its own gradients lasts a little longer, {} and {} steps;".format(*ensemble[:2]) in told()
    soon, late = falls["f_svgd"][2:], ensemble[2:]
    said = f"half are lost at the same step, {late[0]}, all but 5 % at {late[1]} against {soon[1]}."
    assert soon[0] == late[0] and said in told()
    assert f"f-SVGD after {falls['f_gfsf'][0]}, a deep ensemble after {ensemble[0]} (" in told()
    accuracies = {m: round(100 * ATTACK.record(m).metrics["clean_accuracy"], 1) for m in falls}
    assert set(accuracies.values()) == {98.5} and "is as accurate (98.5 %)" in told()


def test_on_how_many_seeds_processes_and_mean_field_are_behind():
    ahead = {
        (run, mine, theirs): int((regret(runs, mine) < regret(runs, theirs)).sum())
        for run, runs in (("wheel", WHEEL), ("mushroom", MUSHROOM))
        for mine in ("f_svgd", "f_svgd_wide_start")
        for theirs in ("gp", "gp_as_networks", "mf_vi")
    }
    assert [ahead["wheel", "f_svgd", rival] for rival in ("gp", "gp_as_networks")] == [1, 0]
    assert ahead["wheel", "f_svgd_wide_start", "gp"] == 2 and ahead["wheel", "f_svgd_wide_start", "gp_as_networks"] == 0
    assert "leads f-SVGD on each seed, from either start; that with sd 3.2 on two seeds, on one from the" in told()
    assert "behind Gaussian processes on two (prior sd 3.2) or all (the networks' prior variance)" in told()
    of_process = [ahead["mushroom", mine, "gp"] for mine in ("f_svgd", "f_svgd_wide_start")]
    field = regret(MUSHROOM, "mf_vi")
    of_field = [int((field - regret(MUSHROOM, mine) > 1).sum()) for mine in ("f_svgd", "f_svgd_wide_start")]
    assert of_process == [1, 3] and of_field == [2, 2]
    assert "ahead of the process (sd 3.2) on one, of mean field on two. From the code's start" in told()
    assert "of that process on all three, of mean field (run from our start only) clearly on two." in told()


def test_where_mean_field_is_not_behind():
    ours, field, wide = (regret(MUSHROOM, m).mean() for m in ("f_svgd", "mf_vi", "f_svgd_wide_start"))
    lower = (regret(MUSHROOM, "f_svgd") < regret(MUSHROOM, "mf_vi")).sum()
    assert (
        lower == 2
        and f"they are level: {ours:.1f} and {field:.1f} % in the mean of three seeds, f-SVGD lower on two" in told()
    )
    assert f"From the code's start it has {wide:.1f} %" in told() and "mf_vi_wide_start" not in bandits.SPECS
    assert regret(WHEEL, "f_svgd").mean() < regret(WHEEL, "mf_vi").mean() and ours > field
