"""Hamiltonian Monte Carlo: moments within Monte Carlo error, and the three properties of leapfrog."""

import itertools
import math
import os
import re
import signal
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.distributions import Normal
from torch.testing import assert_close

from gpvi_lib import checkpoints
from gpvi_lib.errors import GPVIError, OutOfTime
from gpvi_lib.hamiltonian import AcceptanceWarning, DualAveraging, _Chains, hmc, leapfrog, value_and_score
from gpvi_lib.targets import Gaussian

# Most runs here are too short for an acceptance rate to mean anything; those that are about the warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore::gpvi_lib.hamiltonian.AcceptanceWarning")

MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)
COVARIANCE = torch.tensor([[1.0, 0.9], [0.9, 1.5]], dtype=torch.float64)


def quartic(x):
    """A density without symmetry between coordinates and with a Hessian that changes."""
    return -(x**4).sum(-1) / 4 + 0.5 * x[:, 0] * x[:, 1] + x[:, 2] - 0.1 * x[:, 0].pow(2) * x[:, 2].pow(2)


def run(log_prob, initial, **arguments):
    rng = torch.Generator().manual_seed(0)
    arguments = {"step_size": 0.3, "num_leapfrog": 5, "num_steps": 40, "burn_in": 0, "rng": rng} | arguments
    return hmc(log_prob, initial, progress=False, **arguments)


def move(x, momentum, step_size, num_steps):
    _, gradient = value_and_score(quartic, x)
    return leapfrog(quartic, x, momentum, gradient, step_size=step_size, num_steps=num_steps)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # arviz announces its next version when imported
@pytest.mark.parametrize(
    ("step_size", "num_leapfrog", "adapt"),
    [(0.35, 6, False), (0.9, 3, False), (50.0, (1, 8), True)],
)
def test_moments_of_a_correlated_gaussian(step_size, num_leapfrog, adapt, normal):
    """The large step rejects a lot; without rejections it would nearly triple the smaller of the two variances."""
    import arviz

    target, initial = Gaussian(MEAN, COVARIANCE), MEAN + normal(40, 2)
    settings = {"num_steps": 300, "burn_in": 100, "adapt": adapt}
    result = run(target.log_prob, initial, step_size=step_size, num_leapfrog=num_leapfrog, **settings)
    centred = result.samples - MEAN
    products = (centred[..., :, None] * centred[..., None, :]).flatten(2)
    for draws, truth in ((centred, torch.zeros(2)), (products, COVARIANCE.flatten())):
        for i, expected in enumerate(truth):
            # The standard error of a mean of correlated draws: deviation / sqrt(effective sample size).
            effective = float(arviz.ess(draws[..., i].mT.numpy()))
            assert effective > 1000
            assert abs(draws[..., i].mean() - expected) < 4 * draws[..., i].std() / effective**0.5
    assert 0.3 < result.acceptance.mean() < 0.99


def test_leapfrog_is_reversible(normal):
    x, momentum = normal(4, 3), normal(4, 3)
    end, end_momentum, value, gradient = move(x, momentum, 0.1, 20)
    back, back_momentum, _, _ = move(end, -end_momentum, 0.1, 20)
    assert (end - x).norm() > 1
    assert_close(back, x, rtol=0, atol=1e-10)
    assert_close(-back_momentum, momentum, rtol=0, atol=1e-10)
    assert_close((value, gradient), value_and_score(quartic, end))


def test_leapfrog_preserves_volume(normal):
    """The determinant of the numerical Jacobian of (x, m) -> (x', m') is 1."""
    start, t = normal(1, 6), 1e-3

    def end(state):
        return torch.cat(move(state[:, :3], state[:, 3:], 0.1, 7)[:2], dim=1)

    # Fourth-order differences: truncation about t⁴ = 1e-12 times fifth derivatives, rounding 1e-16 / t = 1e-13.
    stencil = {-2 * t: 1, -t: -8, t: 8, 2 * t: -1}
    identity = torch.eye(6, dtype=torch.float64)
    columns = [sum(w * end(start + s * e) for s, w in stencil.items()) / (12 * t) for e in identity]
    jacobian = torch.cat(columns).mT
    assert (jacobian - identity).norm() > 0.1
    assert_close(torch.linalg.det(jacobian).abs().item(), 1.0, rtol=0, atol=1e-8)


def test_energy_error_is_of_second_order(normal):
    x, momentum = 0.5 * normal(20, 3), normal(20, 3)
    start = quartic(x) - momentum.square().sum(-1) / 2
    errors = []
    for refinement in (1, 2, 4):
        _, end_momentum, value, _ = move(x, momentum, 0.05 / refinement, 20 * refinement)
        errors.append((value - end_momentum.square().sum(-1) / 2 - start).norm())
    # Halving ε at constant time divides the error by 4, but for terms of order ε² = 0.0025 times derivatives.
    for coarse, fine in itertools.pairwise(errors):
        assert coarse / fine == pytest.approx(4, rel=0.1)


def test_acceptance_falls_with_the_step(normal):
    start = 0.5 * normal(5, 3)
    fine, middle, coarse = (float(run(quartic, start, step_size=step).acceptance.mean()) for step in (0.01, 0.5, 3.0))
    assert fine > middle > coarse


@pytest.mark.parametrize("step_size", [0.01, 3.0])
def test_acceptance_is_a_fraction(step_size, normal):
    result = run(quartic, 0.5 * normal(5, 3), step_size=step_size)
    assert result.acceptance.shape == result.energy_error.shape == (5,)
    assert bool(((result.acceptance >= 0) & (result.acceptance <= 1)).all())
    if step_size == 0.01:  # ΔH is about ε² = 1e-4: 200 proposals are accepted but for a chance of 2 %
        assert result.acceptance.mean() > 0.99
        assert result.energy_error.max() < 1e-3
    if step_size == 3.0:
        assert result.acceptance.mean() < 0.1


def test_a_rejected_chain_stays_and_an_accepted_one_moves(normal):
    result = run(quartic, 0.5 * normal(6, 3), step_size=0.6)
    moved = (result.samples[1:] != result.samples[:-1]).any(-1)
    assert 0 < moved.double().mean() < 1
    first = result.acceptance * 40 - moved.sum(0)  # the start is not kept, so the first proposal is not seen to move
    assert_close(first, (first > 0.5).double())


def test_every_proposal_starts_with_the_gradient_of_its_own_place(monkeypatch, normal):
    starts = []

    def spy(log_prob, x, momentum, gradient, **arguments):
        starts.append((x, gradient))
        return leapfrog(log_prob, x, momentum, gradient, **arguments)

    monkeypatch.setattr(sys.modules[hmc.__module__], "leapfrog", spy)
    result = run(quartic, 0.5 * normal(6, 3), step_size=0.6)
    assert 0 < result.acceptance.mean() < 1
    for x, gradient in starts:
        assert_close(gradient, value_and_score(quartic, x)[1])


@pytest.mark.parametrize("adapt", [False, True])
@pytest.mark.parametrize("outside", [-math.inf, math.nan, math.inf])
def test_a_density_that_is_not_finite_is_never_accepted(outside, adapt):
    def half_line(x):
        return torch.where(x[:, 0] > 0, -0.5 * x.square().sum(-1), outside)

    result = run(half_line, torch.ones(8, 2), step_size=0.5, num_steps=200, burn_in=100, adapt=adapt)
    assert bool((result.samples[..., 0] > 0).all())
    assert 0.1 < result.acceptance.mean() < 1
    assert math.isfinite(result.step_size)


def test_the_energy_error_is_of_the_proposals_whose_energy_is_finite(monkeypatch, tmp_path):
    def half_line(x):
        return torch.where(x[:, 0] > 0, -0.5 * x.square().sum(-1), -math.inf)

    errors, propose = [], _Chains.propose

    def spy(self, *arguments):
        accept, error = propose(self, *arguments)
        errors.append(error)
        return accept, error

    monkeypatch.setattr(_Chains, "propose", spy)
    settings = {"initial": torch.ones(8, 2), "step_size": 0.5, "burn_in": 20}
    found = run(half_line, **settings, num_steps=60).energy_error
    kept = torch.stack(errors[20:]).abs()
    finite = kept.isfinite()
    assert not finite.all() and finite.any(0).all()
    assert_close(found, torch.where(finite, kept, 0).sum(0) / finite.sum(0))
    settings["checkpoint"] = tmp_path / "run.pt"
    run(half_line, **settings, num_steps=40)
    older = checkpoints.load(settings["checkpoint"], torch.device("cpu"))
    assert torch.equal(run(half_line, **settings, num_steps=60).energy_error, found)
    del older["runaways"]
    checkpoints.save(settings["checkpoint"], older)
    assert len(run(half_line, **settings, num_steps=60).samples) == 40


def test_draws_are_thinned_after_the_burn_in():
    plain, thinned = (
        run(quartic, torch.zeros(2, 3), num_steps=21, burn_in=b, thin=t).samples for b, t in ((0, 1), (5, 3))
    )
    assert torch.equal(thinned, plain[5:][2::3])
    assert len(thinned) == 5


def test_chains_and_starting_points_are_independent_of_torchs_seed_and_of_each_other(normal):
    initial, results = normal(3, 3), []
    kept = initial.clone()
    for torch_seed in (1, 2):
        torch.manual_seed(torch_seed)
        results.append(run(quartic, initial).samples)
    assert torch.equal(*results)
    assert torch.equal(initial, kept)
    other = run(quartic, torch.cat([initial[:2], initial[2:] + 0.1])).samples
    assert torch.equal(other[:, :2], results[0][:, :2])


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_steps": 10, "burn_in": 10},
        {"num_steps": 10, "burn_in": -1},
        {"num_steps": 10, "burn_in": 6, "thin": 5},
        {"thin": 0},
        {"thin": -1},
        {"num_leapfrog": 0},
        {"step_size": 0.0},
        {"step_size": -0.1},
        {"num_leapfrog": (0, 3)},
        {"num_leapfrog": (5, 3)},
        {"adapt": True, "burn_in": 0},
        {"adapt": True, "burn_in": 5, "target_acceptance": 0.0},
        {"adapt": True, "burn_in": 5, "target_acceptance": 1.0},
    ],
)
def test_impossible_counts_are_refused(arguments):
    (name, value) = list(arguments.items())[-1]
    value = min(value) if value == (0, 3) else re.escape(str(value))
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        run(quartic, torch.zeros(2, 3), **arguments)


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_a_start_without_density_is_refused(bad):
    with pytest.raises(ValueError, match="not finite at"):
        run(lambda x: torch.where(x[:, 0] > 0, x.sum(-1), bad), torch.tensor([[1.0], [-1.0]]))


class Killed(Exception):
    """Stands for whatever ends a process."""


def test_seconds_are_those_of_all_proposals_over_an_interruption(tmp_path, normal, monkeypatch):
    """By a clock that ticks once in every evaluation: two a proposal, 20 proposals."""
    initial, settings = normal(3, 3), {"num_steps": 20, "num_leapfrog": 2, "burn_in": 6}
    ticks = itertools.count()
    now = [next(ticks)]
    monkeypatch.setattr(sys.modules["gpvi_lib.hamiltonian"], "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def ticking(x, until=math.inf):
        now[0] = next(ticks)
        if now[0] > until:
            raise Killed
        return quartic(x)

    assert run(ticking, initial, **settings).seconds == 40
    checkpoint, start = tmp_path / "run.pt", now[0]
    with pytest.raises(Killed):
        run(lambda x: ticking(x, start + 17), initial, **settings, checkpoint=checkpoint, checkpoint_seconds=0)
    assert run(ticking, initial, **settings, checkpoint=checkpoint).seconds == 40


@pytest.mark.parametrize(
    "more", [{"num_leapfrog": 2}, {"num_leapfrog": (2, 2)}, {"num_leapfrog": 2, "step_size": 5.0, "adapt": True}]
)
def test_a_resumed_run_draws_the_same_samples(more, tmp_path, normal, monkeypatch):
    """Killed in the burn-in, between two kept draws, and in the last proposal."""
    initial, checkpoint = normal(3, 3), tmp_path / "folder" / "run.pt"
    settings = {"num_steps": 20, "burn_in": 6, "thin": 3} | more
    expected = run(quartic, initial, **settings)
    done = 0
    for last in (3, 10, 19):
        proposals = itertools.count(done + 1)

        def killed(*arguments, at=last + 1, proposals=proposals, **named):
            if next(proposals) == at:
                raise Killed
            return leapfrog(*arguments, **named)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(sys.modules["gpvi_lib.hamiltonian"], "leapfrog", killed)
            run(quartic, initial, **settings, checkpoint=checkpoint, checkpoint_seconds=0)
        done = torch.load(checkpoint, weights_only=True)["step"]
        assert done == last
    resumed = run(quartic, initial, **settings, checkpoint=checkpoint, checkpoint_seconds=0)
    for name in ("samples", "acceptance", "energy_error"):
        assert torch.equal(getattr(resumed, name), getattr(expected, name))
    assert resumed.step_size == expected.step_size


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"step_size": 0.2}, "step_size"),
        ({"thin": 2, "burn_in": 4}, "burn_in, thin"),
        ({"num_leapfrog": (2, 2)}, "num_leapfrog"),
        ({"adapt": True}, "target_acceptance"),
        ({"rng": torch.Generator().manual_seed(9)}, "seed"),
        ({"log_prob": lambda x: quartic(x - 0.1)}, "log_prob, scores"),
        ({"initial": torch.ones(3, 3, dtype=torch.float64)}, "initial, log_prob, scores"),
    ],
)
def test_the_checkpoint_of_other_chains_is_refused(changes, differs, tmp_path, normal):
    start = normal(3, 3)

    def sample(log_prob=quartic, initial=start, **arguments):
        settings = {"num_leapfrog": 2, "num_steps": 8, "burn_in": 2, "rng": torch.Generator().manual_seed(0)}
        return run(log_prob, initial, **settings | arguments, checkpoint=str(tmp_path / "run.pt"))

    first = sample()
    assert torch.equal(sample().samples, first.samples)  # complete: nothing is drawn again
    assert len(sample(num_steps=9).samples) == len(first.samples) + 1  # longer: it goes on
    with pytest.raises(GPVIError, match="is 9 proposals on already, more than num_steps = 8"):
        sample()
    with pytest.raises(GPVIError, match=rf"\(what differs: {differs}\)"):
        sample(num_steps=9, **changes)


def test_the_checkpoint_of_an_adapted_run_is_its_own(tmp_path, normal):
    def sample(**arguments):
        settings = {"burn_in": 4, "num_steps": 8, "adapt": True, "rng": torch.Generator().manual_seed(0)}
        return run(quartic, normal_start, **settings | arguments, checkpoint=tmp_path / "run.pt")

    normal_start = normal(3, 3)
    first = sample()
    assert sample().step_size == first.step_size != 0.3
    for changes in ({"adapt": False}, {"target_acceptance": 0.7}):
        with pytest.raises(GPVIError, match=r"\(what differs: target_acceptance\)"):
            sample(**changes)


@pytest.mark.parametrize("wrong", [lambda x: quartic(x).sum(), lambda x: quartic(x)[:, None]], ids=["sum", "column"])
def test_a_density_that_is_not_one_number_per_chain_is_refused_at_once(wrong, normal):
    with pytest.raises(ValueError, match=r"log_prob must return one number per chain, \(3,\), got"):
        run(wrong, normal(3, 3), num_leapfrog=2, num_steps=8, burn_in=2)


def test_chains_stopped_for_time_go_on_to_the_same_samples(tmp_path, normal):
    initial, checkpoint, stops = normal(3, 3), tmp_path / "run.pt", 0
    settings = {"num_leapfrog": 2, "num_steps": 4, "burn_in": 1, "thin": 1}
    with checkpoints.deadline(0.0):
        while stops < 10:
            try:
                resumed = run(quartic, initial, **settings, checkpoint=checkpoint)
                break
            except OutOfTime:
                stops += 1
    assert stops == 4  # at each proposal, the last one too
    assert torch.equal(resumed.samples, run(quartic, initial, **settings).samples)


def test_a_fixed_step_is_the_plain_algorithm_number_for_number(normal):
    """Written out once more: the warm-up and the drawn trajectory must not touch a run that does not ask for them."""

    def score(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(quartic(x).sum(), x)[0]

    rng, ours = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)
    x, step, states, errors, accepted = 0.5 * normal(6, 3), 0.6, [], [], []
    result = run(quartic, x, step_size=step, num_leapfrog=3, num_steps=30, burn_in=10, thin=2, rng=ours)
    for _ in range(30):
        m = torch.randn(x.shape, generator=rng, dtype=x.dtype)
        end, p = x, m + 0.5 * step * score(x)
        for kick in (step, step, 0.5 * step):
            end = end + step * p
            p = p + kick * score(end)
        error = (-quartic(end) + 0.5 * p.square().sum(-1)) - (-quartic(x) + 0.5 * m.square().sum(-1))
        accept = torch.log(torch.rand(6, generator=rng, dtype=x.dtype)) < -error
        x = torch.where(accept[:, None], end, x)
        states, errors, accepted = [*states, x], [*errors, error.abs()], [*accepted, accept]
    assert torch.equal(result.samples, torch.stack(states[10:])[1::2])
    assert torch.equal(rng.get_state(), ours.get_state())
    assert_close(result.acceptance, torch.stack(accepted[10:]).double().mean(0))
    assert_close(result.energy_error, torch.stack(errors[10:]).mean(0))
    assert 0 < result.acceptance.mean() < 1
    assert result.step_size == step


def test_dual_averaging_is_the_published_recursion(normal):
    """Hoffman and Gelman (2014), algorithm 5, lines 11 to 13, in sums instead of recursions."""
    shares, rule = normal(50).sigmoid().tolist(), DualAveraging(0.02, 0.65)
    steps, log_average = [], 0.0
    for t, share in enumerate(shares, start=1):
        rule.update(share)
        # (t + t0) E_t is a sum: (1 - 1/(t + t0)) (t - 1 + t0)/(t + t0 - 1) = 1 - 1/(t + t0) times one.
        error = sum(0.65 - s for s in shares[:t]) / (t + 10)
        steps.append(math.log(10 * 0.02) - math.sqrt(t) / 0.05 * error)
        log_average = t**-0.75 * steps[-1] + (1 - t**-0.75) * log_average
        assert rule.step_size(trying=True) == pytest.approx(math.exp(steps[-1]), rel=1e-9)
        assert rule.step_size(trying=False) == pytest.approx(math.exp(log_average), rel=1e-9)


LADDER = torch.logspace(-1, 1, 30).tolist()


@pytest.mark.parametrize(
    ("scales", "num_leapfrog", "start", "target"),
    [
        ([1.0], 1, 1e-3, 0.8),
        ([1e-4] * 3, 1, 1.0, 0.8),
        ([50.0] * 20, 1, 0.01, 0.6),
        ([1.0] * 200, 5, 100.0, 0.8),
        (LADDER, (5, 15), 1e-3, 0.8),
        (LADDER, 10, 100.0, 0.9),
    ],
    ids=["unit", "tiny", "wide", "200 dimensions", "ladder", "ladder at 0.9"],
)
def test_the_warm_up_reaches_the_acceptance_that_is_asked_for(scales, num_leapfrog, start, target, normal):
    chains, warm, after = 32, 300, 300
    scale = torch.tensor(scales, dtype=torch.float64)
    result = run(
        lambda x: -0.5 * (x / scale).square().sum(-1),
        scale * normal(chains, len(scale)),
        **{"step_size": start, "num_leapfrog": num_leapfrog, "burn_in": warm, "num_steps": warm + after, "adapt": True},
        target_acceptance=target,
    )
    # The step kept averages the last 2 t^κ tries or so, each an acceptance of all chains whose deviation is below
    # √(p (1 - p)); so does the rate measured with it. The pull of μ towards 10 ε_0 moves acceptance by its last term.
    deviation = math.sqrt(target * (1 - target) / chains * (1 / (2 * warm**0.75) + 1 / after))
    pull = 0.05 * abs(math.log(10 * start / result.step_size)) / (2 * math.sqrt(warm))
    assert 4 * deviation + pull < 0.05
    assert abs(result.acceptance.mean() - target) < 4 * deviation + pull


def test_a_gradient_that_is_not_finite_at_the_start_is_named():
    """The branch of ``torch.where`` that is not taken: 0 times inf."""

    def half(x):
        return torch.where(x[:, 0] > 0, -x[:, 0].sqrt(), -x[:, 0].square())

    start = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"gradient of log_prob is not finite .* chains \[1\]: .*torch.where"):
        hmc(half, start, step_size=0.1, num_leapfrog=2, num_steps=3, burn_in=0, seed=0, progress=False)


def test_the_step_changes_in_the_warm_up_only(monkeypatch, normal):
    steps = []

    def spy(*arguments, step_size, num_steps):
        steps.append(step_size)
        return leapfrog(*arguments, step_size=step_size, num_steps=num_steps)

    monkeypatch.setattr(sys.modules[hmc.__module__], "leapfrog", spy)
    result = run(quartic, 0.5 * normal(6, 3), step_size=0.2, num_steps=30, burn_in=20, adapt=True)
    assert steps[0] == 0.2
    assert len(set(steps[:20])) == 20
    assert set(steps[20:]) == {result.step_size}
    assert result.step_size not in steps[:20]  # an average, not the last try


def test_a_drawn_trajectory_takes_each_number_of_steps(monkeypatch, normal):
    numbers = []

    def spy(*arguments, step_size, num_steps):
        numbers.append(num_steps)
        return leapfrog(*arguments, step_size=step_size, num_steps=num_steps)

    monkeypatch.setattr(sys.modules[hmc.__module__], "leapfrog", spy)
    run(quartic, 0.5 * normal(2, 3), num_leapfrog=(2, 4), num_steps=300)
    for number in (2, 3, 4):  # each binomial, 300 times 1/3
        assert abs(numbers.count(number) - 100) < 4 * math.sqrt(300 * 2 / 9)
    assert len(numbers) == 300


def test_a_trajectory_that_returns_to_its_start_needs_a_drawn_length(normal):
    """Four leapfrog steps of √2 σ turn by four right angles. Stationary, always accepted, and never anywhere else."""
    initial, draws = normal(500, 1), 40
    settings = {"step_size": math.sqrt(2), "num_steps": draws + 20, "burn_in": 20}
    fixed, drawn = (
        run(lambda x: -0.5 * x.square().sum(-1), 3 + initial, num_leapfrog=n, **settings) for n in (4, (3, 5))
    )
    assert_close(fixed.samples, (3 + initial).expand(draws, 500, 1))
    assert fixed.acceptance.min() == 1
    # One third of the proposals returns to its start, the others turn by a right angle and forget it.
    assert abs(drawn.samples[-1].mean()) < 4 / math.sqrt(500)
    assert abs(drawn.samples[-1].square().mean() - 1) < 4 * math.sqrt(2 / 500)


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        ({"step_size": 5.0}, r"only 0\.0\d\d \(below 0\.1\)", "Use a smaller step_size, or adapt=True"),
        ({"step_size": 0.01}, r"1\.000 \(above 0\.99\)", "Use a larger step_size, or adapt=True"),
        ({"step_size": 1e4, "burn_in": 1, "adapt": True}, r"0\.000 \(below 0\.1\)", "Use a longer burn_in"),
    ],
    ids=["large", "small", "adapted"],
)
def test_a_step_that_does_not_suit_is_named_once_with_its_remedy(arguments, problem, remedy, normal):
    with pytest.warns(AcceptanceWarning, match=rf"^figure 8, seed 3: .*{problem}.*{remedy}") as caught:
        run(quartic, 0.5 * normal(5, 3), **arguments, label="figure 8, seed 3")
    assert len(caught) == 1
    assert caught[0].filename == __file__  # of the caller, not of the library


def test_a_step_that_suits_passes_without_a_word(normal):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = {"num_steps": 200, "burn_in": 100}
        assert 0.1 < run(quartic, 0.5 * normal(5, 3), **settings, step_size=0.6).acceptance.mean() < 0.99
        assert 0.1 < run(quartic, 0.5 * normal(5, 3), **settings, step_size=9.0, adapt=True).acceptance.mean() < 0.99


def _steep_far_out(x):
    """A standard normal within 5 of the origin, and so steep beyond that no step of size 0.5 is accepted there."""
    return -0.5 * x.square().sum(-1) - 1e6 * (x[:, 0] - 5).clamp(min=0).square()


@pytest.mark.filterwarnings("error::gpvi_lib.hamiltonian.AcceptanceWarning")
def test_chains_that_are_stuck_are_counted(normal):
    start = torch.cat([torch.zeros(3, 2), torch.full((1, 2), 40.0)]).double()
    with pytest.warns(AcceptanceWarning, match=r"^hmc: 1 of 4 chains took fewer than 0.1 .* at draws of the prior"):
        result = run(_steep_far_out, start, step_size=0.5)
    assert result.acceptance[-1] == 0 and result.acceptance[:3].min() > 0.5
    run(_steep_far_out, start[:3], step_size=0.5)


def test_the_draws_of_all_chains_in_one(normal):
    result = run(Gaussian(MEAN, COVARIANCE).log_prob, normal(3, 2))
    assert torch.equal(result.pooled, torch.cat(list(result.samples)))


def test_a_target_in_place_of_its_density_names_the_remedy(normal):
    with pytest.raises(
        ValueError, match=r"log_prob must be a function of points \(c, d\), got Gaussian: pass its method"
    ):
        run(Gaussian(MEAN, COVARIANCE), normal(3, 2))


# Densities that are written with torch.distributions, which refuse numbers outside a support


def scale_mixture(x):
    """A Normal whose scale ``exp(x_1)`` underflows, and overflows, where a step that is too long ends."""
    return Normal(0.0, 2.0).log_prob(x[:, 1]) + Normal(0.0, x[:, 1].exp()).log_prob(x[:, 0])


def test_a_trajectory_that_leaves_the_support_is_rejected_and_the_checks_are_on_again():
    start = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), pytest.raises(ValueError, match="constraint"):
        scale_mixture(torch.tensor([[0.0, -1e4]]))
    result = run(scale_mixture, start, step_size=300.0, num_leapfrog=(5, 15), num_steps=120, burn_in=80, adapt=True)
    assert result.step_size < 3 and bool(torch.isfinite(result.samples).all())
    with torch.no_grad(), pytest.raises(ValueError, match="constraint"):
        scale_mixture(torch.tensor([[0.0, -1e4]]))


def test_another_density_with_the_same_mode_is_another_run(tmp_path):
    """Started at the mode of both, where value and score are those of either."""

    def centred(sd):
        return lambda x: -0.5 * (x / sd).square().sum(-1)

    path = tmp_path / "h.pt"
    run(centred(1.0), torch.zeros(4, 2), checkpoint=path)
    with pytest.raises(GPVIError, match="what differs: log_prob, scores"):
        run(centred(100.0), torch.zeros(4, 2), checkpoint=path)
    run(centred(1.0), torch.zeros(4, 2), checkpoint=path)


def test_starts_that_cannot_be_are_named(normal):
    half = torch.tensor([[0.0], [-1.0], [1.0], [-2.0]])
    with pytest.raises(ValueError, match=r"starting points of chains \[1, 3\]"):
        run(lambda x: x[:, 0].sqrt(), half)
    with pytest.raises(ValueError, match="look for NaN in the data"):
        run(lambda x: -0.5 * (x - math.nan).square().sum(-1), half)
    for initial, message in (
        (torch.zeros(4), "one row a chain"),
        (torch.zeros(4, 2).long(), "a floating point tensor"),
    ):
        with pytest.raises(ValueError, match=message):
            run(normal, initial)
    with pytest.raises(ValueError, match=r"tuple \(least, most\)"):
        run(normal, torch.zeros(4, 2), num_leapfrog=[3, 5])


def test_a_density_that_mixes_chains_is_refused(normal):
    with pytest.raises(GPVIError, match="log_prob mixes points"):
        run(lambda x: -0.5 * x.square().sum(-1) - x.square().sum(), normal(4, 2))


def test_interrupted_chains_keep_their_last_proposal(tmp_path, normal, interruptible):
    """Ctrl-C, or a notebook's stop button, long before the next checkpoint is due."""
    start, calls = normal(4, 2), []

    def density(x):
        calls.append(1)
        if len(calls) == 60:
            os.kill(os.getpid(), signal.SIGINT)
        return -0.5 * x.square().sum(-1)

    path = tmp_path / "chains.pt"
    with pytest.raises(KeyboardInterrupt, match=r"stopped after proposal \d+, which .*chains.pt has"):
        run(density, start, checkpoint=path)
    again, whole = run(density, start, checkpoint=path), run(density, start)
    assert torch.equal(again.samples, whole.samples)


def test_an_acceptance_rate_that_was_asked_for_is_no_sign_of_a_small_step():
    settings = {"step_size": 0.1, "num_leapfrog": 5, "num_steps": 600, "burn_in": 300, "seed": 0, "progress": False}
    start = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = hmc(lambda x: -0.5 * x.square().sum(-1), start, adapt=True, target_acceptance=0.995, **settings)
    assert float(result.acceptance.mean()) > 0.99
