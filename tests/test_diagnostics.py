"""What every objective says of a step: closed forms, no run without, and no bit of a run changed."""

import math
from importlib import import_module

import pytest
import torch
from kernel_directions import KERNEL_DIRECTIONS
from test_fit import CASES, bent, train
from torch.testing import assert_close

from gpvi_lib import (
    GPVI,
    KDE,
    RBF,
    SGD,
    SVGD,
    Adam,
    BayesianLinearRegression,
    FunctionSpaceParVI,
    Gaussian,
    GaussNewtonParVI,
    Generator,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalPrior,
    OrientedELBO,
    Particles,
    ParVI,
    PointEstimate,
    Posterior,
    RegressedParVI,
    SteinCritic,
    fit,
    mlp,
)
from gpvi_lib.diagnostics import FOLD_POINTS, LARGEST_HEAD, computed, held_out, of_samples, share_folded
from gpvi_lib.errors import FoldWarning
from gpvi_lib.fitting import DIAGNOSTICS
from gpvi_lib.kernels import bandwidth_of, squared_distances
from gpvi_lib.samplers import rsample_with_density, with_density

GENERATOR = ["folds", "noise_share", "spread"]
SAID = {
    "svgd": ["spread", "bandwidth"],
    "amortised gfsf": [*GENERATOR, "bandwidth"],
    "stein critic": ["spread", "critic_loss"],
    "gpvi block": [*GENERATOR, "bandwidth"],
    "gpvi helper": [*GENERATOR, "residual", "bandwidth"],
    "gpvi bicgstab": [*GENERATOR, "residual", "iterations", "breakdowns", "bandwidth"],
    "elbo": ["elbo", "folds"],
    "mean field": ["elbo"],
    "ensemble": ["log_likelihood"],
}


def values(info):
    return {name: float(value) for name, value in computed(info).items()}


@pytest.mark.parametrize("case", CASES)
def test_every_objective_says_something(case):
    rows = train(case, steps=4)["diagnostics"]
    assert [list(row) for row in rows] == 4 * [["step", *SAID[case]]]
    assert all(math.isfinite(value) for row in rows for value in row.values())


@pytest.mark.parametrize("objective", [RegressedParVI(6, inner_steps=2), GaussNewtonParVI(6)])
def test_regressions_say_their_residual_and_the_spread(objective, rng):
    sampler, target = Generator(2, rng=rng, noise_scale=0.5), Gaussian(torch.zeros(2), torch.eye(2))
    result = fit(sampler, target, objective, steps=3, optimizer=SGD(0.1), rng=rng, progress=False)
    assert [list(row) for row in result.diagnostics] == 3 * [["step", "residual", "noise_share", "spread"]]


@pytest.mark.parametrize("case", CASES)
def test_reports_change_no_bit_of_a_run(case, monkeypatch):
    """Whether every step is reported or only the last."""
    every = train(case)
    monkeypatch.setattr(import_module("gpvi_lib.fitting"), "DIAGNOSTICS", 1)
    last = train(case)
    assert len(every["diagnostics"]) == 12 and len(last["diagnostics"]) == 1
    assert every["diagnostics"][-1] == last["diagnostics"][0] and every["history"] == last["history"]
    assert torch.equal(every["rng"], last["rng"])
    assert all(torch.equal(value, last["sampler"][name]) for name, value in every["sampler"].items())


def test_numbers_are_computed_on_reported_steps_alone():
    computed = []

    class Counted(NegativeELBO):
        def __call__(self, sampler, target, batch, rng):
            loss, info = super().__call__(sampler, target, batch, rng)
            return loss, info | {"counted": lambda: computed.append(1) or float(sampler.mean.sum())}

    rng, steps = torch.Generator().manual_seed(0), 3 * DIAGNOSTICS
    sampler, means = MeanField(torch.zeros(2), 1.0), []
    result = fit(
        sampler, Gaussian(torch.ones(2), torch.eye(2)), Counted(4), steps=steps, optimizer=Adam(0.01), rng=rng,
        callback=lambda step, sampler: means.append(float(sampler.mean.detach().sum())), callback_every=1,
        progress=False,
    )  # fmt: skip
    assert len(computed) == len(result.diagnostics) == DIAGNOSTICS
    before = {row["step"]: means[row["step"] - 1] for row in result.diagnostics}  # before the step's update
    assert {row["step"]: row["counted"] for row in result.diagnostics} == before


def test_spread_and_the_share_of_the_noise(normal, rng):
    generator = Generator(
        3, 2, (), noise_scale=torch.tensor([0.5, 1.0, 2.0]), input_stdev=2.0, rng=rng, dtype=torch.float64
    )
    z = generator.noise(50, rng)
    x = generator(z)
    found = values(of_samples(generator, Gaussian(torch.zeros(3), torch.eye(3)), x, z=z))
    variance = ((x - x.mean(0)).square().sum(0) / 49).detach()
    assert found["spread"] == pytest.approx(float(variance.mean().sqrt()))
    assert found["noise_share"] == pytest.approx(float(4 * (0.25 + 1 + 4) / variance.sum()))
    with torch.no_grad():
        generator.output.weight.zero_()
    many = generator.noise(4_000, rng)  # then x is λz and a constant: of 3 variances the relative sd is below 0.03
    found = values(of_samples(generator, Gaussian(torch.zeros(3), torch.eye(3)), generator(many), z=many))
    assert found["noise_share"] == pytest.approx(1, abs=0.1)


def test_folds_are_the_points_where_the_determinant_is_negative(rng):
    generator = Generator(4, 2, (8,), noise_scale=0.02, rng=rng, dtype=torch.float64)
    with torch.no_grad():
        generator.output.weight.normal_(generator=rng)
    z = generator.noise(200, rng)
    negative = torch.linalg.det(generator.linearize(z).dense()) < 0
    assert negative.any() and not negative.all()
    assert float(share_folded(generator.linearize(z))) == pytest.approx(float(negative.double().mean()))
    found = values(of_samples(generator, Gaussian(torch.zeros(4), torch.eye(4)), generator(z), z=z))
    assert found["folds"] == pytest.approx(float(negative[:FOLD_POINTS].double().mean()))


@pytest.mark.parametrize("objective", [NegativeELBO(50), OrientedELBO(50)])
def test_an_elbo_counts_the_folds_of_the_draws_that_it_is_of(objective, rng):
    generator = Generator(2, hidden=(8,), noise_scale=0.1, rng=rng)
    torch.nn.init.normal_(generator.output.weight, generator=rng)
    _, info = objective(generator, Gaussian(torch.zeros(2), torch.eye(2)), None, torch.Generator().manual_seed(1))
    z = generator.noise(50, torch.Generator().manual_seed(1))
    negative = torch.linalg.det(torch.func.vmap(torch.func.jacrev(lambda one: generator(one[None])[0]))(z)) < 0
    assert 0 < negative.sum() < 50 and values(info)["folds"] == pytest.approx(float(negative.double().mean()))


class Flat:
    """N(0, I) after one flat coordinate."""

    dim, num_data = 3, None

    def log_prob(self, x, batch=None):
        return -0.5 * x[:, 1:].square().sum(-1)


@pytest.mark.parametrize("objective", [NegativeELBO(50), OrientedELBO(50), ParVI(SVGD(), 50)])
def test_a_generator_inside_a_point_estimate_says_what_it_says_alone(objective, rng):
    generator = Generator(2, hidden=(8,), noise_scale=0.1, rng=rng)
    torch.nn.init.normal_(generator.output.weight, generator=rng)
    for sampler in (PointEstimate(generator, 0.7), PointEstimate(PointEstimate(generator, 0.7), torch.empty(0))):
        alone, inside = (
            objective(one, target, None, torch.Generator().manual_seed(1))
            for one, target in ((generator, Gaussian(torch.zeros(2), torch.eye(2))), (sampler, Flat()))
        )
        said = {name: value for name, value in values(alone[1]).items() if name not in ("elbo", "bandwidth")}
        found = values(inside[1])
        assert 0 < said["folds"] < 1 and {name: found[name] for name in said} == pytest.approx(said)
        if not isinstance(objective, ParVI):  # the Gaussian is normalised
            assert (inside[0] - alone[0]).item() == pytest.approx(-math.log(2 * math.pi), abs=1e-4)


@pytest.mark.filterwarnings("ignore::gpvi_lib.errors.KinkWarning")
@pytest.mark.parametrize("objective", [NegativeELBO(16), OrientedELBO(16)])
def test_a_fit_inside_a_point_estimate_that_ends_folded_says_so(objective):
    sampler, target = PointEstimate(bent((-1.0, 1.0))), Flat()
    target.dim = 2
    with pytest.warns(FoldWarning, match="the trained map folds"):
        fit(sampler, target, objective, steps=1, optimizer=Adam(1e-6), seed=3, progress=False)


def test_the_density_inside_a_point_estimate_keeps_its_signs_and_its_gradient(rng):
    generator = Generator(2, hidden=(8,), noise_scale=0.1, rng=rng)
    torch.nn.init.normal_(generator.output.weight, generator=rng)
    sampler = PointEstimate(generator, 0.7)
    found, plain = (rsample_with_density(one, 50, torch.Generator().manual_seed(1)) for one in (sampler, generator))
    assert_close(found[0], torch.cat([torch.full((50, 1), 0.7), plain[0]], dim=1))
    assert torch.equal(found[1], plain[1]) and torch.equal(found[2], plain[2]) and found[2].unique().numel() == 2
    (gradient,) = torch.autograd.grad(found[0].sum() + found[1].sum(), sampler.value)
    assert float(gradient) == pytest.approx(50)
    assert with_density(PointEstimate(MeanField(torch.zeros(2), 1.0)), 5, rng)[2] is None


def test_the_spread_of_a_point_estimate_is_of_theta(normal):
    x = normal(30, 2)
    sampler = PointEstimate(Particles(x), torch.zeros(3))
    found = values(of_samples(sampler, Flat(), sampler.rsample(None, None)))
    assert found["spread"] == pytest.approx(float(x.var(0).mean().sqrt()))


def test_particles_inside_a_point_estimate_are_refused_as_they_are_alone(normal):
    together, apart = (PointEstimate(Particles(x)) for x in (torch.zeros(5, 2), normal(5, 2)))
    with pytest.raises(ValueError, match="all 5 particles start at one point"):
        ParVI(SVGD()).check(together)
    with pytest.raises(ValueError, match="half of the Particles would never move"):
        ParVI(SVGD(), 5, independent=True).check_batches(apart)
    ParVI(SVGD()).check(apart)


def test_folds_are_left_out_where_they_are_not_defined_or_dear(rng):
    target = Gaussian(torch.zeros(80), torch.eye(80))
    for settings, said in (
        ({"noise_dim": 2, "noise_scale": None}, ["spread"]),
        ({"noise_dim": 80, "noise_scale": None}, ["spread"]),
        ({"noise_dim": LARGEST_HEAD + 1}, ["noise_share", "spread"]),
        ({"noise_dim": LARGEST_HEAD}, GENERATOR),
    ):
        generator = Generator(80, settings.pop("noise_dim"), rng=rng, **settings)
        z = generator.noise(3, rng)
        assert list(values(of_samples(generator, target, generator(z), z=z))) == said
    generator = Generator(4, rng=rng, noise_scale=None)
    z = generator.noise(3, rng)
    assert list(of_samples(generator, target, generator(z), z=z)) == ["folds", "spread"]
    assert dict(of_samples(Particles(torch.zeros(1, 80)), target, torch.zeros(1, 80))) == {}  # one point has no spread


@pytest.mark.parametrize("rule", ["paper", "half", 3.0])
@pytest.mark.parametrize("direction", KERNEL_DIRECTIONS)
def test_the_bandwidth_is_the_kernels(direction, rule, normal):
    x = normal(20, 3)
    squared = squared_distances(x, x)
    _, info = direction(RBF(rule))(x, -x, None)
    assert_close(values(info)["bandwidth"], float(RBF(rule).bandwidth_at(squared, same=True)))


def test_the_bandwidth_of_gpvi_is_that_of_its_noise(rng, normal):
    generator = Generator(3, 2, (4,), rng=rng, dtype=torch.float64)
    source, query, target = normal(20, 3), normal(20, 3), Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    for space, seen in (("z", 3), ("head", 2)):
        _, info = GPVI(20, kernel_space=space).functional_gradient(generator, target, source, query, None, rng)
        squared = squared_distances(source[:, :seen], query[:, :seen])
        assert_close(values(info)["bandwidth"], float(RBF().bandwidth_at(squared, same=False)))
    narrow = RBF(1e-3)(source, torch.cat([100 * query, source[:1]]))  # where K is 0 but for one pair
    assert_close(bandwidth_of(*narrow), torch.tensor(1e-3).double())


def aside(normal, **arguments):
    x, y = normal(40, 2), normal(40)
    return Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), x[:30], y[:30], held_out=(x[30:], y[30:]), **arguments)


def test_held_out_data_are_predicted_by_the_mixture(normal):
    target = aside(normal)
    w = normal(5, target.dim)
    inputs, y = target.held_out
    expected = target.predictive(w, inputs).log_prob(y)  # of NormalMixture
    assert_close(target.held_out_log_likelihood(w), expected.mean())
    assert_close(target.held_out_log_likelihood(w, most=10), expected.mean())
    assert_close(target.held_out_log_likelihood(w, most=4), expected[[0, 3, 6, 9]].mean())
    assert_close(target.log_prob(w), aside_without(target).log_prob(w))  # the posterior knows nothing of them


def aside_without(target):
    return Posterior(target.network, target.likelihood, target.inputs, target.targets, target.prior)


@pytest.mark.parametrize(
    "objective",
    [
        NegativeELBO(4),
        GPVI(4),
        ParVI(SVGD(), 4),
        ParVI(SteinCritic((4,)), 4),
        FunctionSpaceParVI(SVGD(), KDE(5), num_samples=4),
    ],
)
def test_held_out_data_are_reported_of_a_quarter_of_a_step(objective, normal, rng, monkeypatch):
    target, seen, plain = aside(normal), [], Posterior.held_out_log_likelihood
    monkeypatch.setattr(
        Posterior, "held_out_log_likelihood", lambda self, w, most=None: seen.append(most) or plain(self, w, most)
    )
    for batch_size in (None, 8):
        generator = Generator(target.dim, 2, (4,), noise_scale=0.1, rng=rng, dtype=torch.float64)
        result = fit(
            generator, target, objective, steps=2, optimizer=Adam(0.01), rng=rng, batch_size=batch_size, progress=False
        )
        assert all(math.isfinite(row["held_out"]) for row in result.diagnostics)
    assert seen == [7, 7, 2, 2]


def test_held_out_data_are_predicted_by_sixteen_samples_at_most(normal):
    target = aside(normal)
    x = normal(40, target.dim)
    assert_close(held_out(target, x)["held_out"](), target.held_out_log_likelihood(x[:16], most=7))


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        (lambda x, y: (x, y[:1]), "10 inputs but 1 targets"),
        (lambda x, y: (x[:, :1], y), r"held_out: its inputs are \(1,\)"),
        (lambda x, y: (x.float(), y), r"held_out: its inputs are \(2,\) torch.float32"),
        (lambda x, y: (x, y[:, None]), r"held_out: its targets are \(1,\)"),
        (lambda x, y: (x[:0], y[:0]), "there are no data"),
    ],
)
def test_held_out_data_unlike_the_others_are_refused(held_out, message, normal):
    x, y = normal(40, 2), normal(40)
    with pytest.raises(ValueError, match=message):
        Posterior(mlp([2, 1]), NormalLikelihood(0.5), x[:30], y[:30], held_out=held_out(x[30:], y[30:]))
    with pytest.raises(ValueError, match="no data are put aside"):
        aside_without(aside(normal)).held_out_log_likelihood(normal(2, 13))


def test_a_target_without_data_put_aside_says_nothing_of_them(normal):
    target = BayesianLinearRegression(normal(6, 2), normal(6), NormalPrior(1.0))
    assert "held_out" not in of_samples(Particles(normal(3, 2)), target, normal(3, 2))
