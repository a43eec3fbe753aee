"""Table 3 of function-space POVI: the bandits' rewards and regrets, the players' parts, small games, interruptions."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import checkpoints
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.experiments import fpovi_bandits as bandits
from gpvi_lib.lab.experiment import RunContext

WHEEL, MUSHROOM = (EXPERIMENTS[f"fpovi-bandits-{name}"] for name in ("wheel", "mushroom"))


def context(checkpoint=None, seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, checkpoint, "test", False)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_uniform_play_on_the_wheel_has_the_regret_of_the_design():
    """0.0975 · 39.16 + 0.9025 · 0.16 = 3.96 a round; its standard error over 40,000 contexts is 0.06."""
    wheel = bandits.wheel(40_000, rng())
    assert float(wheel.uniform_regret().mean()) == pytest.approx(3.96, abs=0.2)
    assert_close(wheel.rewards.mean(0), wheel.expected.mean(0), rtol=0, atol=1e-3)
    out = wheel.contexts.norm(dim=1) > 0.95
    assert float(out.float().mean()) == pytest.approx(0.0975, abs=0.006)
    assert torch.equal(wheel.expected.amax(1), torch.where(out, 50.0, 1.2))
    best = wheel.expected.argmax(1)
    signs = torch.tensor([[1, 1], [-1, 1], [1, -1], [-1, -1.0]])[best[out]]
    assert bool((signs == wheel.contexts[out].sign()).all())


def test_eating_pays_what_the_paper_says():
    bandit = bandits.eating("digits", 20_000, rng())
    poisonous = bandit.expected[:, 1] < 0
    assert set(bandit.rewards[poisonous, 1].tolist()) == {5.0, -35.0} and set(
        bandit.rewards[~poisonous, 1].tolist()
    ) == {5.0}
    assert float(bandit.rewards[poisonous, 1].mean()) == pytest.approx(-15, abs=0.8)  # standard error 0.2
    assert bool((bandit.rewards[:, 0] == 0).all())
    share = float(poisonous.float().mean())
    assert float(bandit.uniform_regret().mean()) == pytest.approx(2.5 * (1 - share) + 7.5 * share, rel=1e-5)


def test_regret_is_what_the_best_arm_has_more():
    bandit = bandits.Bandit(torch.zeros(3, 2), torch.zeros(3, 2), torch.tensor([[0.0, 5.0], [0.0, -15.0], [0.0, 5.0]]))
    assert bandit.regret(torch.tensor([1, 1, 0])).tolist() == [0, 15, 5]
    assert bandit.regret(torch.tensor([0, 0])).tolist() == [5, 0]


def test_the_likelihood_is_that_of_the_played_arm(normal):
    outputs, rewards = normal(3, 4, 2), normal(4)
    arms = torch.tensor([0, 1, 1, 0])
    played = torch.stack([arms.double(), rewards], 1)
    found = bandits.PlayedArm(0.5)(outputs, played)
    chosen = torch.stack([outputs[:, i, arm] for i, arm in enumerate(arms)], 1)
    expected = torch.distributions.Normal(chosen, 0.5).log_prob(rewards)
    assert_close(found - found[0, 0], expected - expected[0, 0])
    masks = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 0]]).double()
    assert_close(bandits.PlayedArm(0.5)(outputs, torch.cat([played, masks], 1)), found * masks.mT)


def test_the_prior_is_that_of_the_released_code():
    network = bandits.FlatMLP([2, 100, 100, 5])
    parts = network.unflatten(bandits.weight_prior(network, 10.0).scale)
    assert [float(part.flatten()[0]) ** 2 for part in parts.values()] == pytest.approx([0.1] * 4 + [10] * 2)


def test_the_first_trainings_are_longer():
    config = WHEEL.config("f_svgd", "paper")
    player = bandits.Player(config, bandits.wheel(10, rng()), context(), rng())
    steps = []
    for player.trainings in range(22):
        steps.append(player._steps())
    assert steps[0] == 2_000 and steps[19:] == [100, 100, 100]
    assert steps == sorted(steps, reverse=True) and steps[10] == 1_000
    assert config["rounds"] // config["every"] == 200


def test_the_bootstrap_steps_as_the_benchmark_does():
    """Two trainings of three steps, network by network; the rate and the mean square go on in the second."""
    config = WHEEL.config("bootstrap", "paper") | {"hidden": [3], "batch_size": 6, "first_steps": 3, "later_steps": 3}
    bandit = bandits.wheel(20, rng())
    player, draws = bandits.Bootstrap(config, bandit, context(), rng(1)), rng(1)
    arms = torch.arange(20) % 5
    rewards = bandit.rewards[torch.arange(20), arms]
    x = 0.3 * (2 * torch.rand(player.sampler.x.shape, generator=draws) - 1)
    for name, part in player.network.unflatten(x).items():
        if name.endswith("bias"):
            part.zero_()
    assert torch.equal(player.sampler.x, x)
    square, shown, clipped = torch.ones_like(x), torch.empty(0, 20), 0
    for training, known in enumerate((12, 20)):
        player.learn(bandit.contexts[:known], arms[:known], rewards[:known])
        shown = torch.cat([shown, (torch.rand(known - len(shown), 20, generator=draws) < 0.95).float()])
        for step in range(3):
            rows = torch.randint(known, (6,), generator=draws)
            for i in range(20):
                w = x[i : i + 1].clone().requires_grad_()
                error = player.network(w, bandit.contexts[rows])[0, torch.arange(6), arms[rows]] - rewards[rows]
                (gradient,) = torch.autograd.grad((shown[rows, i] * error.square()).sum() / 6 / 0.95, w)
                clipped += bool(gradient.norm() > 5)
                gradient = gradient[0] / max(1.0, float(gradient.norm()) / 5)
                square[i] = 0.9 * square[i] + 0.1 * gradient**2
                x[i] -= 0.1 / (1 + 0.5 * (3 * training + step)) * gradient / square[i].sqrt()
    assert 0 < clipped < 120 and 0 < int(shown.sum()) < 400
    assert_close(player.sampler.x, x, rtol=1e-3, atol=1e-4)


def test_the_bootstrap_trains_equally_long_each_time():
    for profile, steps in (("paper", 100), ("quick", 10)):
        player = bandits.Bootstrap(WHEEL.config("bootstrap", profile), bandits.wheel(10, rng()), context(), rng())
        for player.trainings in (0, 1, 30):
            assert player._steps() == steps


@pytest.mark.parametrize("short", [WHEEL, MUSHROOM])
def test_all_rounds_are_the_printed_ones_and_stand_instead_of_fewer(short):
    full = EXPERIMENTS[f"{short.name}-all-rounds"]
    assert full.instead_of == (short.name,) and full.scores == short.scores
    for method in full.methods:
        ours, fewer = (one.config(method, "paper") for one in (full, short))
        assert (ours.pop("rounds"), fewer.pop("rounds")) == (50_000, 10_000) and ours == fewer
        assert full.config(method, "smoke") == short.config(method, "smoke")
        assert "10,000 of 50,000 rounds; " + full.deviations(method, "paper") == short.deviations(method, "paper")


def test_the_process_is_exact_regression_for_each_arm(normal):
    config = WHEEL.config("gp", "smoke")
    bandit = bandits.wheel(60, rng())
    player = bandits.ProcessPlayer(config, bandit, context(), rng())
    arms = torch.arange(60) % 5
    rewards = bandit.rewards[torch.arange(60), arms]
    player.learn(bandit.contexts, arms, rewards)
    x, lower, half = player.data[2]
    mine = arms == 2
    noisy = player._kernel(x, x) + 0.01 * torch.eye(12)
    at = bandit.contexts[:3].double()
    gain = torch.linalg.solve_triangular(lower, player._kernel(x, at), upper=False)
    expected = player._kernel(at, x) @ torch.linalg.solve(noisy, rewards[mine].double())
    assert_close((gain.mT @ half)[:, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", WHEEL.methods)
@pytest.mark.parametrize("experiment", [WHEEL, MUSHROOM], ids=["wheel", "mushroom"])
def test_a_small_game(experiment, method):
    config = experiment.config(method, "smoke")
    first, again = (experiment.run(config, method, context()) for _ in range(2))
    assert first.metrics == again.metrics and all(math.isfinite(value) for value in first.metrics.values())
    assert int(first.arrays["arms"].sum()) == 60
    assert first.metrics["uniform_regret_a_round"] > 0


def test_every_arm_is_pulled_twice_at_first():
    config = WHEEL.config("gp", "smoke")
    bandit = bandits.make(config, 0)
    arms, _ = bandits.play(config, bandit, bandits.ProcessPlayer(config, bandit, context(), rng()), context())
    assert arms[:10].tolist() == [0, 1, 2, 3, 4] * 2


def test_all_methods_meet_the_same_rounds():
    bandit, other = (bandits.make(WHEEL.config(m, "smoke"), 3) for m in ("gp", "f_svgd"))
    assert torch.equal(bandit.rewards, other.rewards) and torch.equal(bandit.contexts, other.contexts)


def test_the_controls_differ_from_their_rows_in_one_thing():
    for method in ("f_svgd", "svgd"):
        row, control = (WHEEL.config(name, "paper") for name in (method, f"{method}_wide_start"))
        assert control == row | {"start": 10**0.5}
        players = [
            bandits.Player(config | {"hidden": [50]}, bandits.make(config, 0), context(), rng())
            for config in (row, control)
        ]
        assert_close(players[1].sampler.x, 10**0.5 * players[0].sampler.x)
    for game, variance in ((WHEEL, 350.0), (MUSHROOM, 5_600.0)):
        assert game.config("gp_as_networks", "paper") == game.config("gp", "paper") | {"prior_variance": variance}


def test_the_process_with_the_networks_variance_has_it():
    """The prior of the networks' functions at contexts of the wheel: sd 17 to 24, as is said."""
    network = bandits.FlatMLP([2, 100, 100, 5])
    weights = bandits.weight_prior(network, 10.0).sample(400, torch.zeros(1, network.dim), rng())
    variance = network(weights, bandits.wheel(500, rng()).contexts).var(0).mean()
    assert float(variance) == pytest.approx(bandits.NETWORKS_VARIANCE["wheel"], rel=0.35)


@pytest.mark.parametrize("method", ["f_svgd", "bootstrap", "gp", "gp_as_networks", "svgd_wide_start"])
def test_an_interrupted_game_ends_as_one_that_was_not(method, tmp_path):
    config = WHEEL.config(method, "smoke") | {"rounds": 130}
    if method == "bootstrap":  # long enough for what RMSProp remembers to tell
        config |= {"first_steps": 40, "later_steps": 40}
    whole = bandits.run(config, method, context())
    path, stops, parts = tmp_path / "game.pt", 0, None
    while parts is None and stops < 9:
        try:
            with checkpoints.deadline(0.0):  # it is over after every training
                parts = bandits.run(config, method, context(path))
        except OutOfTime:
            stops += 1
    assert stops == 3 and parts is not None  # trainings after 50, 100 and 130 rounds
    assert parts.metrics == whole.metrics and torch.equal(parts.arrays["regret"], whole.arrays["regret"])


def test_learning_beats_uniform_play():
    """The process on 600 rounds of the digits: half of uniform play's regret at most in the second half."""
    config = MUSHROOM.config("gp", "smoke") | {"rounds": 600}
    assert bandits.run(config, "gp", context()).metrics["late_relative_regret_percent"] < 50


def test_only_the_published_mushrooms_need_a_download():
    assert [MUSHROOM.data_sets(profile) for profile in ("smoke", "quick", "paper")] == [(), (), ("mushroom",)]
    assert WHEEL.data_sets("paper") == ()
