"""Objectives of Wild VI: the regression (14) beside (15), Gauss–Newton, bounds, and training over problems."""

import math

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import (
    SVGD,
    BayesianLinearRegression,
    Gaussian,
    GaussianMixture,
    GaussNewtonParVI,
    Generator,
    GPVIError,
    KernelSteinDiscrepancy,
    LangevinNetwork,
    LineGrid,
    LogisticPosterior,
    LogisticPrior,
    MeanField,
    OverProblems,
    ParVI,
    PathELBO,
    ProblemFamily,
    RegressedParVI,
    SemiImplicitELBO,
    fit,
    load_sampler,
    save_sampler,
    score,
)
from gpvi_lib.fitting import Training
from gpvi_lib.optimizers import SGD, Adam

F64 = torch.float64
MIXTURE = GaussianMixture(torch.tensor([[-2.0], [2.0]], dtype=F64), 1.0, torch.tensor([1 / 3, 2 / 3], dtype=F64))


def seeded(seed=3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(target=MIXTURE, layers=3, **settings) -> LangevinNetwork:
    start = MeanField(torch.full((target.dim,), -3.0, dtype=F64), 1.0)
    return LangevinNetwork(start, target, layers, **{"step_size": 0.2, "dtype": F64} | settings)


def gradient(objective, sampler, target=MIXTURE, seed=3):
    loss, _ = objective(sampler, target, None, seeded(seed))
    return torch.autograd.grad(loss, [p for p in sampler.parameters() if p.requires_grad], allow_unused=True)


# The regression


@pytest.mark.parametrize("move", [0.01, 1.0, 5.0])
def test_the_first_step_of_the_regression_is_the_one_step_rule(move):
    """The gradient of (14) is -2ε times the increment of (15), which is minus the gradient of `ParVI`'s loss."""
    regressed = gradient(RegressedParVI(12, move), network())[0]
    increment = -gradient(ParVI(SVGD(), 12), network())[0]
    assert_close(regressed, -2 * move * increment, rtol=1e-6, atol=1e-12)


def test_a_regression_that_a_run_left_unfinished_is_none_of_the_next_run(normal):
    objective, other = RegressedParVI(6, 0.5, inner_steps=3), Gaussian(torch.full((1,), 9.0), torch.eye(1))
    settings = {"steps": 4, "optimizer": Adam(0.01), "progress": False}
    fit(MeanField(torch.zeros(1)), Gaussian(torch.zeros(1), torch.eye(1)), objective, rng=seeded(), **settings)
    assert objective.keeps_inputs()
    after, alone = MeanField(torch.zeros(1)), MeanField(torch.zeros(1))
    fit(after, other, objective, rng=seeded(1), **settings)
    fit(alone, other, RegressedParVI(6, 0.5, inner_steps=3), rng=seeded(1), **settings)
    assert torch.equal(after.mean, alone.mean)


def test_all_inner_steps_have_the_same_inputs_and_the_next_regression_has_others():
    net, objective, rng = network(), RegressedParVI(6, 0.5, inner_steps=3), seeded()
    x = net.rsample(6, seeded()).detach()
    phi, _ = SVGD()(x, score(MIXTURE, x))
    for step in range(3):
        assert objective.keeps_inputs() is (step > 0)
        loss, info = objective(net, MIXTURE, None, rng)
        moved = net.rsample(6, seeded()).detach()
        assert_close(loss.detach(), (moved - x + 0.5 * phi).square().mean())
        assert info["residual"] == loss.detach()
        with torch.no_grad():
            net.rho.add_(0.1)
    assert not objective.keeps_inputs()
    loss, _ = objective(net, MIXTURE, None, rng)
    assert not torch.equal(loss.detach(), (net.rsample(6, seeded()).detach() - x + 0.5 * phi).square().mean())


def test_many_inner_steps_solve_the_regression():
    """A linear generator can move its points as it likes within the span: least squares says how far that gets."""
    rng = seeded(1)
    sampler = Generator(2, noise_scale=None, rng=rng, dtype=F64)
    target = Gaussian(torch.ones(2, dtype=F64), torch.eye(2, dtype=F64))
    objective = RegressedParVI(9, 0.3, inner_steps=3_000)
    z = sampler.noise(9, seeded(7))
    x = sampler(z).detach()
    goal = x - 0.3 * SVGD()(x, score(target, x))[0]
    design = torch.cat([z, torch.ones(9, 1, dtype=F64)], 1)
    best = design @ torch.linalg.lstsq(design, goal).solution
    result = fit(
        sampler, target, objective, steps=3_000, optimizer=Adam(lr=0.05, final_lr=1e-5), rng=seeded(7), progress=False
    )
    assert_close(sampler(z).detach(), best, rtol=0, atol=1e-5)  # Adam's last steps are 1e-5 long
    assert result.diagnostics[-1]["residual"] == pytest.approx(float((best - goal).square().sum(-1).mean()), rel=1e-4)


def jacobian(net, n, seed=3):
    def points(rho):
        with torch.no_grad():
            net.rho.copy_(rho)
        return net.rsample(n, seeded(seed)).detach().flatten()

    rho, t, columns = net.rho.detach().clone(), 1e-5, []
    for layer in range(len(rho)):
        step = torch.zeros_like(rho)
        step[layer] = t
        columns.append((points(rho + step) - points(rho - step)) / (2 * t))
    points(rho)
    return torch.stack(columns, 1)


def test_gauss_newton_solves_the_normal_equations():
    net, n = network(), 8
    found = -gradient(GaussNewtonParVI(n, move=0.3, damping=0.01), net)[0].flatten()
    j = jacobian(net, n)
    x = net.rsample(n, seeded()).detach()
    delta = -SVGD()(x, score(MIXTURE, x))[0].flatten()
    expected = 0.3 * torch.linalg.solve(j.mT @ j / n + 0.01 * torch.eye(3, dtype=F64), j.mT @ delta / n)
    assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_a_step_of_sgd_takes_the_whole_of_it():
    net, twin = network(), network()
    change = -gradient(GaussNewtonParVI(8), twin)[0]
    fit(net, MIXTURE, GaussNewtonParVI(8), steps=1, optimizer=SGD(lr=1.0), rng=seeded(), progress=False)
    assert_close(net.rho.detach(), twin.rho.detach() + change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RegressedParVI(10, 0.0), "move ε > 0"),
        (lambda: RegressedParVI(10, inner_steps=0), "inner_steps must be a whole number"),
        (lambda: GaussNewtonParVI(0), "at least one sample"),
        (lambda: GaussNewtonParVI(10, damping=0.0), "damping μ must be positive"),
    ],
)
def test_impossible_regressions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Bounds


def test_the_semi_implicit_bound_is_above_the_divergence_and_falls_to_it():
    net, grid = network(layers=4), LineGrid(-15, 15, 400)
    masses = grid.push(grid.normal(torch.tensor([-3.0], dtype=F64), 1.0)[0], MIXTURE, net.step_size.detach()[:, 0])
    exact = grid.divergence(masses, MIXTURE.log_prob(grid.centres[:, None]))
    rng, means = seeded(), {}
    with torch.no_grad():
        for n in (5, 1_000):
            losses = torch.stack([SemiImplicitELBO(n)(net, MIXTURE, None, rng)[0] for _ in range(3_000 // n)])
            means[n], error = float(losses.mean()), float(losses.std()) / len(losses) ** 0.5
            assert means[n] > exact - 4 * error
    assert means[5] > exact + 0.02 and means[1_000] == pytest.approx(exact, abs=0.05)


@pytest.mark.parametrize("objective", [PathELBO(5), SemiImplicitELBO(5)])
def test_bounds_need_a_chain(objective, rng):
    with pytest.raises(ValueError, match="needs a LangevinNetwork, got MeanField"):
        objective(MeanField(torch.zeros(1)), MIXTURE, None, rng)


# Training


def posterior(seed=0) -> LogisticPosterior:
    rng = seeded(seed)
    x = torch.cat([torch.ones(40, 1), torch.randn(40, 2, generator=rng)], 1)
    return LogisticPosterior(x, (x[:, 1] + torch.randn(40, generator=rng) > 0).long())


OBJECTIVES = {
    "one step": lambda: ParVI(SVGD(), 8),
    "regression": lambda: RegressedParVI(8, inner_steps=3),
    "gauss-newton": lambda: GaussNewtonParVI(8),
    "ksd": lambda: KernelSteinDiscrepancy(num_samples=8),
    "ksd, two batches": lambda: KernelSteinDiscrepancy(num_samples=8, independent_batches=True),
    "path": lambda: PathELBO(8),
    "semi-implicit": lambda: SemiImplicitELBO(8),
    "problems": lambda: OverProblems(ParVI(SVGD(), 8)),
    "problems, regression": lambda: OverProblems(RegressedParVI(8, inner_steps=3)),
}


class Killed(Exception):
    pass


def train(case, checkpoint=None, dies=()):
    """Ten steps of `fit` on minibatches, from fresh objects; everything that must come out the same."""
    left = set(dies)

    def callback(step, sampler):
        if step in left:
            left.remove(step)
            raise Killed
        return {"sum": float(sampler.rho.detach().double().sum())}

    target = ProblemFamily([posterior(seed) for seed in range(3)]) if case.startswith("problems") else posterior()
    net = LangevinNetwork(LogisticPrior(3), target, 4, step_size=1e-3, ceiling=0.1, batch_size=10)
    rng = seeded()
    optimizer = (SGD if case == "gauss-newton" else Adam)(0.05, 0.01)
    result = fit(
        net, target, OBJECTIVES[case](), steps=10, rng=rng, batch_size=8, optimizer=optimizer,
        callback=callback, callback_every=1, checkpoint=checkpoint, checkpoint_seconds=0, progress=False,
    )  # fmt: skip
    return net, rng.get_state(), result.history, result.diagnostics


@pytest.mark.parametrize("case", OBJECTIVES)
def test_a_run_resumes_bit_for_bit_and_its_network_is_saved(case, tmp_path):
    net, state, *reports = train(case)
    path = tmp_path / "run.pt"
    for dies in (1, 5, 8):  # the second in the middle of a regression
        with pytest.raises(Killed):
            train(case, path, {dies})
    again, resumed, *same = train(case, path)
    assert torch.equal(again.rho, net.rho) and torch.equal(resumed, state) and same == reports
    assert reports[0][0]["sum"] != reports[0][-1]["sum"]
    back = load_sampler(save_sampler(again, tmp_path / "net.safetensors")).on(net.target)
    assert torch.equal(back.sample(5, seeded()), net.sample(5, seeded()))


def test_training_beats_every_constant_step():
    """At 20 layers the best constant of the paper's grid has a divergence of 0.12, and of any fine grid 0.077."""
    start = MeanField(torch.tensor([-10.0], dtype=F64), 1.0)
    net = LangevinNetwork(start, MIXTURE, 20, step_size=0.1, ceiling=1.5, truncate=True, dtype=F64)
    fit(
        net, MIXTURE, ParVI(SVGD(), 100), steps=150, optimizer=Adam(lr=0.1, final_lr=0.01), rng=seeded(), progress=False
    )
    grid = LineGrid(-20, 20, 400)
    masses = grid.push(grid.normal(start.mean.detach(), 1.0)[0], MIXTURE, net.step_size.detach()[:, 0])
    assert float(masses.sum()) == pytest.approx(1, abs=1e-6)
    assert grid.divergence(masses, MIXTURE.log_prob(grid.centres[:, None])) < 0.04


# Over problems


def test_each_step_has_a_problem_of_its_own_and_a_regression_keeps_its():
    family = ProblemFamily([Gaussian(torch.full((2,), float(i)), torch.eye(2)) for i in range(5)])
    net = LangevinNetwork(MeanField(torch.zeros(2)), family, 2)
    for inner, fewest in ((1, 12), (4, 3)):
        objective, rng, seen = OverProblems(RegressedParVI(4, inner_steps=inner)), seeded(), []
        for _ in range(24):
            objective(net, family, None, rng)
            seen.append(objective._problem)
        changes = [i for i in range(1, 24) if seen[i] != seen[i - 1]]
        assert len(changes) >= fewest and all(i % inner == 0 for i in changes) and set(seen) == set(range(5))


def test_the_objective_sees_the_problem_and_the_network_on_it():
    family = ProblemFamily([Gaussian(torch.full((2,), 10.0 * i), torch.eye(2)) for i in range(3)])
    net, seen = LangevinNetwork(MeanField(torch.zeros(2)), family, 2), []

    class Spy(ParVI):
        def __call__(self, sampler, target, batch, rng):
            seen.append((sampler.target is target, sampler.rho is net.rho, float(target.mean[0])))
            return super().__call__(sampler, target, batch, rng)

    objective = OverProblems(Spy(SVGD(), 4))
    for _ in range(20):
        objective(net, family, None, seeded(len(seen)))
    assert {row[:2] for row in seen} == {(True, True)} and {row[2] for row in seen} == {0.0, 10.0, 20.0}
    assert net.target is family


def test_a_family_needs_problems_of_one_dimension():
    with pytest.raises(ValueError, match="at least one problem"):
        ProblemFamily([])
    with pytest.raises(ValueError, match="same R\\^d, got dimensions 2, 3"):
        ProblemFamily([Gaussian(torch.zeros(d), torch.eye(d)) for d in (2, 3)])
    with pytest.raises(ValueError, match="needs a ProblemFamily as its target, got Gaussian"):
        gaussian = Gaussian(torch.zeros(1), torch.eye(1))
        OverProblems(ParVI(SVGD(), 4))(network(), gaussian, None, seeded())
    with pytest.raises(ValueError, match="needs a sampler with on"):
        OverProblems(ParVI(SVGD(), 4))(MeanField(torch.zeros(2)), ProblemFamily([MIXTURE]), None, seeded())


def test_a_family_is_the_mean_of_its_problems(normal):
    problems = [Gaussian(normal(2), torch.eye(2, dtype=F64)) for _ in range(3)]
    x = normal(5, 2)
    expected = sum(problem.log_prob(x) for problem in problems) / 3
    assert_close(ProblemFamily(problems).log_prob(x), expected)
    regressions = [BayesianLinearRegression(normal(n, 2), normal(n)) for n in (6, 6, 7)]
    assert ProblemFamily(regressions[:2]).num_data == 6 and ProblemFamily(regressions).num_data is None


def test_a_checkpoint_of_other_problems_is_refused(tmp_path):
    """Also where they differ beyond the rows that a minibatch at the start has, in the last problem alone."""

    def training(last):
        x = torch.randn(9, 2, generator=seeded())
        problems = [BayesianLinearRegression(x, y) for y in (torch.zeros(9), last)]
        family = ProblemFamily(problems)
        net = LangevinNetwork(MeanField(torch.zeros(2)), family, 2)
        state = Training(
            net, family, OverProblems(ParVI(SVGD(), 4)), rng=seeded(), optimizer=Adam(lr=0.1), batch_size=3
        )
        state.identity = state.identify()
        return state

    last = torch.ones(9)
    training(last).save(tmp_path / "run.pt")
    training(last).load(tmp_path / "run.pt")
    other = last.clone()
    other[-1] = 2.0
    named = r"target, sampler\._targets\[0\]\.problems\[1\]\.targets, target\.problems\[1\]\.targets\)"
    with pytest.raises(GPVIError, match=f"what differs: {named}"):
        training(other).load(tmp_path / "run.pt")


def test_gauss_newton_moves_a_parameter_that_is_one_number():
    """Such as the log λ of a generator."""
    sampler = Generator(2, hidden=(), noise_scale=0.5, train_noise_scale=True, rng=seeded(0))
    target, before = Gaussian(torch.ones(2), torch.eye(2)), sampler.log_noise_scale.detach().clone()
    fit(sampler, target, GaussNewtonParVI(20), steps=1, optimizer=SGD(1.0), rng=seeded(1), progress=False)
    assert before.shape == () and bool(sampler.log_noise_scale.isfinite()) and sampler.log_noise_scale != before


def test_the_semi_implicit_density_of_tiny_steps_is_that_of_double_precision():
    """In the unit of a layer's noise, √(2η), the points are far from 0, where squares cancel."""
    rng, variance = seeded(), torch.tensor([2e-8])
    mean = 5 * torch.randn(64, 1, generator=rng)
    x = mean + variance.sqrt() * torch.randn(64, 1, generator=rng)
    target = Gaussian(torch.zeros(1), torch.eye(1))
    chain = LangevinNetwork(MeanField(torch.zeros(1), 5.0), target, 1, step_size=1e-8)
    chain.last_layer = lambda number, rng: (x, mean, variance)
    squared = (x.double()[:, None] - mean.double()).square().sum(-1) / 2e-8
    log_q = torch.logsumexp(-0.5 * squared, 1) - math.log(64) - 0.5 * math.log(2 * math.pi * 2e-8)
    expected = float((log_q - target.log_prob(x)).mean())
    assert float(SemiImplicitELBO(64)(chain, target, None, rng)[0]) == pytest.approx(expected, abs=1e-3)
