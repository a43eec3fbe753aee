"""`check` trusts draws of the target itself, at a counted rate, and flags what is wrong with others."""

import math
import warnings
from dataclasses import replace

import arviz
import pytest
import torch
from matplotlib.figure import Figure
from torch.testing import assert_close

from gpvi_lib import (
    RBF,
    Banana,
    Gaussian,
    GaussianMixture,
    Generator,
    LearnedNoise,
    MeanField,
    MultiplicativeFlow,
    NormalLikelihood,
    Particles,
    PointEstimate,
    Posterior,
    check,
    hmc,
    mlp,
    score,
    trust,
    trust_findings,
)
from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.metrics import stein_kernel
from gpvi_lib.samplers import Sampler
from gpvi_lib.trust_findings import (
    WORTH,
    extreme_directions,
    fold_finding,
    ksd_finding,
    pareto_smoothed,
    r_hat_finding,
    spread_finding,
    weight_findings,
    wild_bootstrap,
)
from gpvi_lib.trust_report import _plot_ksd

NORMAL = Gaussian(torch.zeros(3), torch.eye(3))
F64 = torch.float64


class Shifted(Sampler):
    """N(m, s^2 I) with its density: m and s as they are wanted."""

    def __init__(self, mean=0.0, sd=1.0, dim=3):
        super().__init__()
        self.dim, self.mean, self.sd = dim, torch.nn.Parameter(torch.full((dim,), mean)), sd

    def rsample(self, num_samples, rng):
        return self.rsample_with_log_prob(num_samples, rng)[0]

    def rsample_with_log_prob(self, num_samples, rng):
        x = self.mean + self.sd * torch.randn(num_samples, self.dim, generator=rng)
        return x, torch.distributions.Normal(self.mean, self.sd).log_prob(x).sum(-1)


def draws(number, rng, shift=0.0, scale=1.0):
    return shift + scale * torch.randn(number, 3, generator=rng, dtype=F64)


# ---------------------------------------------------------------- what is right is trusted


def test_a_sampler_that_is_the_target_is_trusted_by_every_check(rng):
    report = check(Shifted(), NORMAL, rng)
    assert report.verdict == "trust"
    assert [finding.key for finding in report.findings] == ["k_hat", "weights", "elbo", "ksd", "spread"]
    assert report["weights"].value == pytest.approx(2_000, rel=1e-3)
    assert report["elbo"].value == pytest.approx(0, abs=1e-4)  # the Gaussian is normalised


@pytest.mark.parametrize("target", [Gaussian(torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64)), Banana()])
def test_exact_draws_raise_few_false_alarms(target, rng):
    """Two tests at 1 %: of 60 reports of exact draws 1.2 are looks on average, more than 6 of them once in 1,800."""
    alarms = 0
    for _ in range(60):
        x = draws(200, rng) if target.dim == 3 else target.sample(200, rng, F64)
        report = check(x, target, rng)
        assert report.verdict != "don't"
        alarms += report.verdict != "trust"
    assert alarms <= 6


def test_the_wild_bootstrap_is_as_wide_as_the_statistic_of_exact_draws(rng):
    """Over 100 sets of draws the p-values are uniform: mean 1/2, variance 1/12, within 4 errors of 100 such numbers."""
    p_values = []
    for _ in range(100):
        x = draws(100, rng)
        u = stein_kernel(x, -x)
        p_values.append(float((wild_bootstrap(u, rng, 200) >= u.mean()).double().mean()))
    assert abs(sum(p_values) / 100 - 0.5) < 4 * (1 / 12) ** 0.5 / 10
    assert abs(sum((p - 0.5) ** 2 for p in p_values) / 100 - 1 / 12) < 4 * (1 / 180) ** 0.5 / 10


def test_hmc_is_trusted_as_chains(rng):
    settings = {"step_size": 0.9, "num_leapfrog": 2, "num_steps": 450, "burn_in": 50, "progress": False}
    target = Gaussian(torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64))
    result = hmc(target.log_prob, draws(4, rng), **settings, rng=rng)
    report = check(result, target, rng)
    assert report.verdict == "trust" and report["r_hat"].value <= 1.01
    assert report.subject.startswith("4 × draws")
    same = check(list(result.samples.unbind(1)), target, torch.Generator().manual_seed(0))
    assert same["r_hat"].value == report["r_hat"].value and same["spread"].value == report["spread"].value


def test_a_few_draws_of_hmc_are_refused_as_a_few_draws_in_a_list(rng):
    settings = {"step_size": 0.9, "num_leapfrog": 2, "num_steps": 5, "burn_in": 0, "progress": False}
    result = hmc(NORMAL.log_prob, draws(8, rng), **settings, rng=rng)
    with pytest.raises(GPVIError, match="nothing can be said of 5 draws"):
        check(result, NORMAL, rng)


def test_samplers_with_and_without_a_density_are_checked_together(rng):
    dim = NORMAL.dim
    mixed = [MeanField(torch.zeros(dim, dtype=F64), 1.0), Particles(torch.randn(50, dim, generator=rng, dtype=F64))]
    report = check(mixed, NORMAL, rng)
    assert "k_hat" not in report and "r_hat" in report


# ---------------------------------------------------------------- what is wrong is flagged


def test_a_flow_whose_density_is_only_bounded_is_not_weighed_by_it_inside_another_sampler_either(rng):
    flow = MultiplicativeFlow([(), (2, 2), (1,)], torch.zeros(6), length=2, rng=rng)
    target = Gaussian(torch.zeros(7), torch.eye(7))
    inside = PointEstimate(flow, torch.zeros(1))
    report = check(inside, target, rng, num_samples=400, progress=False)
    assert not {"weights", "k_hat", "elbo"} & {finding.key for finding in report.findings}
    assert "MultiplicativeFlow is only bounded" in report.missing["weights"]


def test_a_sampler_of_ones_own_needs_no_parameters(rng):
    class Exact(Sampler):
        dim = 2

        def rsample(self, num_samples, rng):
            return torch.randn(num_samples, 2, generator=rng)

    assert check(Exact(), Gaussian(torch.zeros(2), torch.eye(2)), rng, num_samples=400, progress=False).findings


def test_a_shifted_sampler_is_flagged_by_weights_and_kernel(rng):
    report = check(Shifted(mean=2.0), NORMAL, rng)
    assert report.verdict == "don't"
    assert report["weights"].verdict == report["elbo"].verdict == report["ksd"].verdict == "don't"


@pytest.mark.parametrize("sd, direction", [(0.5, -1), (2.0, 1)])
def test_a_wrong_width_is_flagged_and_its_spread_is_the_ratio_of_variances(sd, direction, rng):
    report = check(Shifted(sd=sd), NORMAL, rng)
    assert report["spread"].verdict == report["ksd"].verdict == "don't"
    assert report["spread"].value == pytest.approx(sd**2, rel=5 * (2 / 3_000) ** 0.5)  # 1,000 draws of 3 numbers
    assert math.copysign(1, report["spread"].value - 1) == direction


def test_a_single_collapsed_coordinate_is_a_look(rng):
    x = draws(500, rng) * torch.tensor([1.0, 1.0, 0.2], dtype=F64)
    found = spread_finding(x, -x)
    assert found.verdict == "look" and "coordinate 2: 0.0" in found.shown
    other = torch.randn(500, 30, generator=rng, dtype=F64)
    other[:, 7] *= 0.2  # the mean over 30 coordinates hardly shows it
    assert spread_finding(other, -other).verdict == "look"


def test_a_coordinate_within_the_factor_does_not_hide_one_outside(rng):
    """The first, 0.82, is surer not to be 1; the second, 0.5 by a noisy slope, is farther from it."""
    x = torch.randn(2_000, 10, generator=rng, dtype=F64)
    x = (x - x.mean(0)) / x.std(0)
    slope, noise = torch.ones_like(x), 3 * torch.randn(2_000, generator=rng, dtype=F64)
    slope[:, 0], slope[:, 1] = 0.82, 0.5 + noise - (noise * x[:, 1].square()).sum() / 1_999
    found = spread_finding(x, -slope * x)
    values, errors = (found.arrays[name][:2] for name in ("values", "errors"))
    assert_close(values, torch.tensor([0.82, 0.5], dtype=F64))
    assert 3.4 < 0.5 / errors[1] < 0.18 / errors[0]  # both beyond the 3.4 errors of ten coordinates
    assert found.verdict == "look" and "coordinate 1: 0.50" in found.shown


MODES = GaussianMixture(torch.tensor([[-6.0, 0.0], [6.0, 0.0]]))


def independent(covariance, number, rng):
    """Draws of the best independent Gaussian (mean field's optimum) for N(0, covariance), and the slope at them."""
    precision = torch.linalg.inv(covariance)
    x = torch.randn(number, len(covariance), generator=rng, dtype=F64) / precision.diagonal().sqrt()
    return x, -x @ precision


@pytest.mark.parametrize("dim, correlation", [(2, 0.9), (50, 0.9), (50, 0.5)])
def test_draws_without_the_correlations_of_the_target_are_narrow_in_a_direction(dim, correlation, rng):
    covariance = correlation * torch.ones(dim, dim, dtype=F64) + (1 - correlation) * torch.eye(dim, dtype=F64)
    x, s = independent(covariance, 1_000, rng)
    found = spread_finding(x, s)
    scale = torch.linalg.inv(covariance).diagonal().rsqrt()
    exact = torch.linalg.eigvalsh(scale[:, None] * torch.linalg.inv(covariance) * scale)  # variance over the target's
    values, errors = extreme_directions(x, s)
    assert found.verdict == "look" and f"narrowest direction: {float(values[0]):.2f}" in found.shown
    assert "coordinate" not in found.shown and found.value == pytest.approx(1, abs=5 * (2 / (1_000 * dim)) ** 0.5)
    assert float(values[0]) == pytest.approx(float(exact[0]), abs=4 * float(errors[0]))
    report = check(x, Gaussian(torch.zeros(dim, dtype=F64), covariance), rng)
    assert report["spread"].verdict == "look"


@pytest.mark.parametrize("dim", [2, 30, 600])
def test_directions_that_the_draws_chose_are_no_alarm_for_exact_draws(dim, rng):
    """Half of the draws choose, the others judge; judged by those that chose, 600 coordinates are far from 1."""
    factor = torch.randn(dim, dim, generator=rng, dtype=F64) / dim**0.5 + torch.eye(dim, dtype=F64)
    z = torch.randn(300, dim, generator=rng, dtype=F64)
    x, s = z @ factor.T, -z @ torch.linalg.inv(factor)
    values, errors = extreme_directions(x, s)
    assert (values - 1).abs().lt(5 * errors).all()
    assert spread_finding(x, s).verdict == "trust"


def test_directions_have_no_unit_and_stand_a_coordinate_that_never_moves(rng):
    x, s = independent(torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=F64), 400, rng)
    unit = torch.tensor([1e-6, 1e5], dtype=F64)
    for one, other in zip(extreme_directions(x, s), extreme_directions(x * unit, s / unit), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    still = torch.cat([x, torch.ones(400, 1, dtype=F64)], dim=1)
    found = spread_finding(still, torch.cat([s, torch.zeros(400, 1, dtype=F64)], dim=1))
    assert found.verdict != "trust" and "coordinate 2: 0.00" in found.shown


def test_without_a_density_the_report_says_that_weights_of_modes_are_not_seen(rng):
    x = MODES.sample(400, rng)
    right = x[x[:, 0] > 0]
    alone, several = check(right, MODES, rng), check([x, x.flip(0)], MODES, rng)
    assert "wrong weights of modes far apart: give several" in alone.blind
    assert several.blind.endswith("if the repeats share them.")
    assert "weights" not in check(MeanField(torch.tensor([6.0, 0.0]), 1.0), MODES, rng).blind


def test_a_few_collapsed_draws_are_too_few_to_say(rng):
    """Their own scatter would put the error at 0; that of as many Gaussian draws does not."""
    x = 1e-6 * torch.randn(4, 1, generator=rng, dtype=F64)
    found = spread_finding(x, -x)
    assert found.verdict == "trust" and float(found.arrays["errors"]) == pytest.approx(0.5**0.5)
    assert spread_finding(x.repeat(100, 1), -x.repeat(100, 1)).verdict == "don't"


def test_collapsed_particles_in_many_dimensions_are_seen_by_the_spread(rng):
    """100 points of a tenth of the width in 150 dimensions: what SVGD does on networks."""
    x = 0.1 * torch.randn(100, 150, generator=rng, dtype=F64)
    target = Gaussian(torch.zeros(150, dtype=F64), torch.eye(150, dtype=F64))
    assert check(Particles(x), target, rng)["spread"].verdict == "don't"


def test_points_that_are_too_even_are_a_look(rng):
    """Quantiles of N(0, 1) are no draws: the statistic falls below its band."""
    x = torch.special.ndtri((torch.arange(300, dtype=F64) + 0.5) / 300)[:, None]
    found = ksd_finding(x, -x, rng)
    assert found.verdict == "look" and "more even" in found.meaning
    assert found.value < float(found.arrays["null"].min())


def test_a_dropped_mode_is_seen_by_repeats_alone(rng):
    left, right = (MeanField(torch.tensor([at, 0.0]), 1.0) for at in (-6.0, 6.0))
    assert check(left, MODES, rng).verdict == "trust"  # a miss, which the report warns of
    assert "no draw is near" in check(left, MODES, rng).blind
    report = check([left, right], MODES, rng)
    assert report["r_hat"].verdict == report.verdict == "don't"
    apart = MeanField(torch.tensor([-6.01, 0.0]), 1.0)
    assert check([left, apart], MODES, rng)["r_hat"].verdict == "trust"


def test_copies_are_no_repeats(rng):
    """A seed that is used again has the same sampler, or the same chain, twice."""
    one, x = MeanField(torch.zeros(2), 1.0), torch.randn(100, 2, generator=rng)
    for parts in (
        [one, MeanField(torch.ones(2), 1.0), one],
        [x, x + 1, x],
        [Particles(x), Particles(x + 1), Particles(x)],
    ):
        with pytest.raises(GPVIError, match="repeats 0 and 2 are copies of each other"):
            check(parts, NORMAL, rng)


def test_folds_are_flagged_by_the_rarer_sign(rng):
    for share, verdict in ((0.0, "trust"), (1.0, "trust"), (0.005, "look"), (0.995, "look"), (0.4, "don't")):
        sign = torch.ones(1_000)
        sign[: round(1_000 * share)] = -1
        found = fold_finding(sign)
        assert found.verdict == verdict and found.value == pytest.approx(share)
    generator = Generator(2, hidden=(16,), noise_scale=0.05, rng=rng)
    torch.nn.init.normal_(generator.output.weight, generator=rng)
    report = check(generator, Gaussian(torch.zeros(2), torch.eye(2)), rng)
    z = generator.noise(2_000, torch.Generator().manual_seed(5))
    share = float((torch.linalg.det(generator.linearize(z).dense()) < 0).float().mean())
    assert 0.1 < share < 0.9 and report["folds"].value == pytest.approx(share, abs=4 * (2 * 0.25 / 2_000) ** 0.5)


def test_the_worst_of_several_samplers_counts(rng):
    report = check([Shifted(), Shifted(sd=0.4)], NORMAL, rng)
    alone = check(Shifted(sd=0.4), NORMAL, rng)
    assert report["weights"].verdict == alone["weights"].verdict == "don't"
    assert report["weights"].value < 1_000


def test_a_chain_is_thinned_to_about_independent_draws(rng):
    """An autoregression of N(0, I) with ρ = 0.95 has 2,000 · 0.05 / 1.95 = 51 effective draws; without thinning its
    pairs agree too well, and three of four such chains are flagged.
    """
    target, alarms = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64)), 0
    for _ in range(8):
        x, chain = torch.randn(2, generator=rng, dtype=F64), []
        for noise in torch.randn(2_000, 2, generator=rng, dtype=F64):
            x = 0.95 * x + (1 - 0.95**2) ** 0.5 * noise
            chain.append(x)
        alarms += check(torch.stack(chain), target, rng).verdict == "don't"
    assert alarms == 0


# ---------------------------------------------------------------- sets of points, whose order means nothing


def verdicts(report):
    return {finding.key: finding.verdict for finding in report.findings}


LINE = Gaussian(torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64))


def test_a_wrong_set_of_particles_is_flagged_in_any_order(rng):
    """Thinned as a chain, a sorted set keeps a handful of points, and nothing can fail."""
    x = 2 + 0.3 * torch.randn(400, 1, generator=rng, dtype=F64)
    found = [check(Particles(some), LINE, seed=0) for some in (x, x.sort(0).values)]
    for report in found:
        assert verdicts(report) == {"ksd": "don't", "spread": "don't"}
        assert report["spread"].value == pytest.approx(0.09, abs=5 * 0.09 * (2 / 400) ** 0.5)
    assert found[1]["spread"].value == pytest.approx(found[0]["spread"].value)


@pytest.mark.parametrize("number", [300, 3_000])
def test_exact_particles_are_trusted_in_any_order(number, rng):
    x = torch.randn(number, 1, generator=rng, dtype=F64)
    for some in (x, x.sort(0).values):
        assert check(Particles(some), LINE, seed=0).verdict == "trust"


def test_sets_of_particles_agree_in_any_order(rng):
    """R-hat compares the halves of each set: those of sorted sets lie apart."""
    sets = [torch.randn(400, 1, generator=rng, dtype=F64) for _ in range(3)]
    report = check([Particles(x.sort(0).values) for x in sets], LINE, seed=0)
    assert report["r_hat"].verdict == report.verdict == "trust"
    report = check(
        [Particles((x + shift).sort(0).values) for x, shift in zip(sets, (0, 0, 2), strict=True)], LINE, seed=0
    )
    assert report["r_hat"].verdict == "don't"


def test_sets_of_particles_are_not_shuffled_alike(monkeypatch):
    """Else their halves would be of the same ranks, and R-hat of less than it says."""
    seen = []
    monkeypatch.setattr(trust, "_quantities", lambda drawn, quantities: seen.append(drawn.x) or drawn.x)
    x = torch.arange(100, dtype=F64)[:, None] / 50 - 1
    check([Particles(x), Particles(x + 0.01)], LINE, seed=0)
    ranks = [some[:, 0].argsort() for some in seen]
    assert not torch.equal(*ranks) and all(torch.equal(one.sort().values, torch.arange(100)) for one in ranks)


def test_the_order_of_particles_is_the_same_in_every_report_and_draws_nothing_from_the_rng(rng):
    x = torch.randn(100, 3, generator=rng)
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    assert str(check(Particles(x), NORMAL, one)) == str(check(Particles(x), NORMAL, other))
    signs = torch.Generator().manual_seed(1)
    torch.randint(2, (trust_findings.BOOTSTRAPS, 100), generator=signs)
    assert torch.equal(one.get_state(), other.get_state()) and torch.equal(one.get_state(), signs.get_state())


def test_more_particles_than_are_asked_for_are_a_random_part_of_them(rng):
    """Evenly spaced ones of a sorted set are more even than draws."""
    x = torch.randn(4_000, 1, generator=rng, dtype=F64).sort(0).values
    report = check(Particles(x), LINE, seed=0, num_samples=200)
    assert report["ksd"].verdict == "trust" and "200 draws" in report.subject


# ---------------------------------------------------------------- numbers without noise before the others


class After:
    """θ ~ N(0, I) after ``first`` flat coordinates, or θ ~ N(u, I) where it follows the first of them."""

    num_data = None

    def __init__(self, first, dim, follows=False):
        self.first, self.dim, self.follows = first, first + dim, follows

    def log_prob(self, x, batch=None):
        theta = x[:, self.first :] - (x[:, :1] if self.follows else 0)
        return -0.5 * (theta.square().sum(-1) + theta.shape[1] * math.log(2 * math.pi))


@pytest.mark.parametrize("first, told", [(1, "coordinate 0 is"), (3, "coordinates 0 to 2 are")])
def test_an_exact_sampler_after_a_point_estimate_is_trusted(first, told, rng):
    sampler = PointEstimate(MeanField(torch.zeros(2), 1.0), torch.ones(first))
    report = check(sampler, After(first, 2), rng)
    assert set(verdicts(report).values()) == {"trust"} and len(report.findings) == 5
    assert report["spread"].arrays["values"].shape == (2,)
    assert f"point: {told} a point estimate" in " ".join(str(report).split())
    assert "point" not in check(MeanField(torch.zeros(3), 1.0), NORMAL, rng).missing


def test_point_estimates_in_one_another_are_all_left_out(rng):
    inside = PointEstimate(PointEstimate(MeanField(torch.zeros(2), 1.0), torch.ones(2)), 5.0)
    report = check(inside, After(3, 2), rng)
    assert report.verdict == "trust" and "coordinates 0 to 2" in report.missing["point"]


def test_what_is_wrong_after_a_point_estimate_is_flagged_under_its_own_number(rng):
    scale = torch.tensor([1.0, 1.0, 0.2])
    report = check(PointEstimate(MeanField(torch.zeros(3), scale), torch.zeros(2)), After(2, 3), rng)
    assert report["spread"].verdict == "look" and "coordinate 4: 0.0" in report["spread"].shown
    shifted = PointEstimate(MeanField(torch.full((3,), 2.0), 1.0), torch.zeros(2))
    assert verdicts(check(shifted, After(2, 3), rng))["ksd"] == "don't"


def test_a_fold_inside_a_point_estimate_is_seen(rng, monkeypatch):
    generator = Generator(2, hidden=(16,), noise_scale=0.05, rng=rng)
    torch.nn.init.normal_(generator.output.weight, generator=rng)
    alone = check(generator, Gaussian(torch.zeros(2), torch.eye(2)), seed=0)["folds"]
    inside = check(PointEstimate(generator), After(1, 2), seed=0)["folds"]
    assert inside.verdict == alone.verdict == "don't" and inside.value == alone.value > 0
    monkeypatch.setattr(trust, "SMALL_HEAD", 1)
    assert "determinants so large" in check(PointEstimate(generator), After(1, 2), rng).missing["folds"]


def test_a_generator_with_a_density_of_its_own_has_no_signs(rng):
    class Own(Generator):
        def rsample_with_log_prob(self, num_samples, rng):
            x = self.rsample(num_samples, rng)
            return x, -0.5 * x.square().sum(-1)

    report = check(Own(2, rng=rng), Gaussian(torch.zeros(2), torch.eye(2)), rng, num_samples=100)
    assert "k_hat" in report and "folds" in report.missing


def test_particles_after_a_point_estimate_are_taken_as_many_as_there_are(rng):
    """In any order; two sets are compared without the numbers that stand still in each."""
    sets = [x[x[:, 0].argsort()] for x in torch.randn(2, 50, 2, generator=rng)]
    samplers = [PointEstimate(Particles(x), u) for x, u in zip(sets, (0.3, 0.3001), strict=True)]
    report = check(samplers[0], After(1, 2), rng)
    assert "50 draws" in report.subject and report["spread"].verdict == "trust"
    assert check(samplers, After(1, 2), rng)["r_hat"].value < 1.1
    with pytest.raises(GPVIError, match="copies of each other"):
        check([samplers[0], samplers[0]], After(1, 2), rng)
    with pytest.raises(GPVIError, match="nothing can be said of 5 draws"):
        check(PointEstimate(Particles(sets[0][:5])), After(1, 2), rng)


def test_two_runs_that_end_at_almost_the_same_point_agree(rng):
    """Of a regression the outputs are the mean and log σ, which is the point alone."""
    x = torch.linspace(-1, 1, 10)[:, None]
    target = Posterior(LearnedNoise(mlp([1, 1]), 1.0), NormalLikelihood(), x, x[:, 0])
    near, far = (
        [PointEstimate(MeanField(mean * torch.ones(2), 0.1), u) for mean, u in pairs]
        for pairs in (((0.5, 0.3), (0.5, 0.3001)), ((0.5, 0.3), (0.9, 2.0)))
    )
    assert check(near, target, rng)["r_hat"].verdict == "trust"
    assert check(far, target, rng)["r_hat"].verdict == "don't"


def test_two_runs_whose_points_are_far_apart_disagree(rng):
    """By what depends on the point: θ follows it, or log p does."""
    apart = [PointEstimate(MeanField(torch.full((2,), u), 1.0), u) for u in (0.0, 4.0)]
    assert check(apart, After(1, 2, follows=True), rng)["r_hat"].verdict == "don't"


# ---------------------------------------------------------------- the numbers


def test_pareto_smoothing_keeps_the_mean_of_lognormal_weights(rng):
    """``E exp(σ ε) = exp(σ^2 / 2)``; the tail of a lognormal is lighter than any Pareto tail."""
    log_w = 100 + torch.randn(20_000, generator=rng, dtype=F64)
    weights, k_hat, log_mean = pareto_smoothed(log_w)
    assert log_mean == pytest.approx(100.5, abs=5 * ((math.e - 1) / 20_000) ** 0.5)
    assert float(weights.sum()) == pytest.approx(1) and k_hat < 0.5
    assert k_hat == pytest.approx(float(arviz.psislw(log_w.numpy())[1]), abs=0.01)


def test_weights_with_a_pareto_tail_have_its_shape():
    """``U^{-k}`` has the shape k; with U evenly spaced its estimate has little error left, that of the tail's prior."""
    for k, verdict in ((0.3, "trust"), (0.85, "look"), (1.3, "don't")):
        log_w = -k * ((torch.arange(20_000, dtype=F64) + 0.5) / 20_000).log()
        found = {finding.key: finding for finding in weight_findings(log_w)}
        assert found["k_hat"].value == pytest.approx(k, abs=0.12) and found["k_hat"].verdict == verdict


def test_a_heavy_tail_of_weights_that_are_all_but_equal_is_no_alarm():
    log_w = (1 + 1e-3 * ((torch.arange(2_000, dtype=F64) + 0.5) / 2_000).pow(-0.9)).log()
    k_hat, effective, _ = weight_findings(log_w)
    assert k_hat.value > 0.7 and k_hat.verdict == "trust" and "without weight" in k_hat.shown
    assert effective.value > 0.99 * 2_000


def test_weights_of_a_shifted_gaussian_have_their_known_number_and_distance(rng):
    """q = N(δ, 1) and p = N(0, 1): ESS / S = exp(-δ²), and the ELBO is δ²/2 below the evidence."""
    x, delta = 0.5 + torch.randn(20_000, generator=rng, dtype=F64), 0.5
    found = {f.key: f for f in weight_findings(-0.5 * x.square() + 0.5 * (x - delta).square())}
    assert found["weights"].value / 20_000 == pytest.approx(math.exp(-(delta**2)), rel=0.05)
    assert found["elbo"].value == pytest.approx(-(delta**2) / 2, abs=5 * delta / 20_000**0.5)
    assert "0.12 below" in found["elbo"].shown or "0.13 below" in found["elbo"].shown


@pytest.mark.parametrize(
    ("delta", "by_weights", "by_elbo"),
    [(0.4, "trust", "trust"), (0.7, "look", "look"), (1.5, "don't", "look"), (2.2, "don't", "don't")],
)
def test_verdicts_are_those_of_the_bounds_of_the_total_variation(delta, by_weights, by_elbo):
    """Of q = N(δ, 1): √(S / ESS - 1) / 2 = √(e^{δ²} - 1) / 2, and √(KL / 2) = δ / 2; 0.25 and 1 are the limits."""
    x = torch.special.ndtri((torch.arange(200_000, dtype=F64) + 0.5) / 200_000) + delta
    found = {f.key: f for f in weight_findings(-0.5 * x.square() + 0.5 * (x - delta).square())}
    assert (found["weights"].verdict, found["elbo"].verdict) == (by_weights, by_elbo)


def test_the_kernel_finding_has_no_unit(rng):
    x, unit = draws(300, rng, scale=0.8), torch.tensor([1.0, 100.0, 1e-3], dtype=F64)
    plain, scaled = (ksd_finding(x * c, -x / c, torch.Generator().manual_seed(0)) for c in (1.0, unit))
    assert scaled.value == pytest.approx(plain.value) and scaled.verdict == plain.verdict


def test_the_worth_of_biased_draws_is_where_bias_and_noise_are_equal(rng):
    """``E V = bias + own / n``: with as many draws as they are worth the two are the same."""
    x = draws(1_000, rng, scale=0.7)
    found = ksd_finding(x, -x, rng)
    worth, sd = float(found.shown.split("worth ")[1].split(" ")[0]), x.std(0)
    u = stein_kernel(x / sd, -x * sd, RBF(float(torch.pdist(x / sd).square().median())))
    own, bias = float(u.diagonal().mean()), float(u[~torch.eye(1_000, dtype=torch.bool)].mean())
    assert 1 < worth < 100 and worth == pytest.approx(own / bias, abs=0.51)  # printed as a whole number
    assert found.verdict == ("don't" if worth < WORTH else "look")


def test_r_hat_is_arviz_and_needs_enough_draws(rng):
    chains = torch.randn(4, 300, 2, generator=rng, dtype=F64)
    chains[0, :, 1] += 0.3
    found = r_hat_finding(chains)
    data = arviz.convert_to_dataset({"q": chains.numpy()})
    assert found.value == pytest.approx(float(arviz.rhat(data)["q"].max())) and found.verdict == "look"
    assert r_hat_finding(chains[:, :, :1]).verdict == "trust"
    few = torch.randn(4, 60, 1, generator=rng, dtype=F64)
    assert r_hat_finding(few).verdict == "look"  # 240 effective draws at most, of 400
    even = torch.special.ndtri((torch.arange(60, dtype=F64) + 0.5) / 60)
    halves = [even[start::2][torch.randperm(30, generator=rng)] for _ in range(4) for start in (0, 1)]
    alike = r_hat_finding(torch.stack(halves).view(4, 60, 1))  # chains that agree by construction, and are short
    assert alike.value <= 1.01 and alike.verdict == "look" and 100 < float(alike.shown.split()[-3]) < 400
    still = torch.zeros(2, 50, 1)
    assert r_hat_finding(torch.cat([still, still + 1])).verdict == "don't"  # each stands still, elsewhere
    lost = torch.where(torch.arange(60)[:, None] == 7, torch.nan, few)  # one draw of each that is no number
    assert r_hat_finding(lost).verdict == "don't" and r_hat_finding(lost).value == math.inf


def test_repeats_of_networks_must_agree_on_outputs_not_on_weights(rng):
    """Two chains with hidden units in another order are the same functions."""
    x = torch.linspace(-1, 1, 10)[:, None]
    target = Posterior(mlp([1, 2, 1]), NormalLikelihood(0.5), x, x[:, 0])
    w = 1.0 + 0.1 * torch.randn(400, target.dim, generator=rng) + torch.tensor([0.0, 3, 0, 0, 0, 0, 0])
    swapped = w[:, [1, 0, 3, 2, 5, 4, 6]][torch.randperm(400, generator=rng)]
    assert check([w, swapped], target, rng)["r_hat"].verdict == "trust"
    assert check([w, swapped], target, rng, quantities=lambda w: w)["r_hat"].verdict == "don't"


def test_the_same_seed_gives_the_same_report():
    one, two = (check(Shifted(sd=0.9), NORMAL, torch.Generator().manual_seed(3)) for _ in range(2))
    assert str(one) == str(two)


# ---------------------------------------------------------------- the report


def test_the_report_prints_what_it_holds_within_its_width(rng):
    report = check(Shifted(sd=0.5), NORMAL, rng)
    text = str(report)
    assert text.startswith("✗ DON'T: Shifted on Gaussian, d = 3, 2,000 draws\n")
    assert max(map(len, text.splitlines())) <= 110
    for finding in report.findings:
        assert finding.shown in text and finding.title in text and finding.verdict in text
        assert finding.meaning in " ".join(text.split())
    assert "r_hat: one sampler" in text and "folds: only a Generator" in text
    assert len(report.rules().splitlines()) == len(report.findings)


def test_the_report_as_html_is_whole_and_escaped(rng):
    from xml.etree import ElementTree

    report = check(Shifted(sd=0.5), NORMAL, rng)
    tree = ElementTree.fromstring(f"<div>{report._repr_html_().replace('&nbsp;', ' ')}</div>")
    assert len(tree.findall(".//tr")) == 1 + len(report.findings)
    assert {finding.shown for finding in report.findings} <= {cell.text for cell in tree.iter("td")}


def test_the_plot_has_a_panel_for_what_can_be_drawn(rng):
    report = check([Shifted(), Shifted(mean=1.0)], NORMAL, rng)
    figure = report.plot()
    titles = [ax.get_title() for ax in figure.axes]
    assert [title.split(": ", 1)[1] for title in titles] == [
        report[key].title for key in ("weights", "ksd", "spread", "r_hat")
    ]
    assert all(ax.lines or ax.containers for ax in figure.axes)
    spread = figure.axes[titles.index(next(title for title in titles if "spread" in title))]
    ends = spread.containers[1][0].get_ydata()  # after the coordinates, the two directions
    assert ends.tolist() == report["spread"].arrays["directions"].tolist() and "◇: directions" in spread.get_xlabel()
    few = check(draws(20, rng)[:, :1].float(), Gaussian(torch.zeros(1), torch.eye(1)), rng).plot()
    assert "◇" not in few.axes[-1].get_xlabel()  # one coordinate has no other direction


def test_draws_that_are_all_alike_are_drawn_too():
    """Half of the signs of the bootstrap cancel exactly: a logarithmic axis has no place for that."""
    null = torch.tensor([0.0, 1e-6, 2e-6, 1e-5])
    finding = replace(check(draws(100, torch.Generator()), NORMAL, torch.Generator())["ksd"], value=1.0)
    finding.arrays["null"] = null
    ax = Figure().subplots()
    _plot_ksd(ax, finding, "black")
    assert ax.get_xscale() == "log" and sum(bar.get_height() for bar in ax.patches) == 3


def test_a_finding_that_is_not_there_says_why(rng):
    report = check(draws(100, rng).float(), NORMAL, rng)
    assert "ksd" in report and "k_hat" not in report
    with pytest.raises(UnknownName, match="unknown finding 'ksdd'; did you mean 'ksd'"):
        report["ksdd"]
    with pytest.raises(UnknownName, match="one sampler or chain cannot disagree"):
        report["r_hat"]
    with pytest.raises(UnknownName, match="draws alone have no density"):
        report["k_hat"]


# ---------------------------------------------------------------- bad input


class Half:
    dim, num_data = 2, None

    def log_prob(self, x, batch=None):
        return torch.where(x[:, 0] > 0, -x.square().sum(-1), -torch.inf)


class Double:
    dim, num_data = 2, None

    def log_prob(self, x, batch=None):
        return -(x @ torch.eye(2, dtype=F64)).square().sum(-1)


X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
BAD = {
    "three axes": (X[None], NORMAL, {}, "give several chains as a list"),
    "whole numbers": (X.long(), NORMAL, {}, "draws must be real numbers"),
    "few draws": (X[:10], NORMAL, {}, "nothing can be said of 10 draws: give at least 20"),
    "few particles": (Particles(X[:5]), NORMAL, {}, "nothing can be said of 5 draws"),
    "nothing": ([], NORMAL, {}, "got an empty list"),
    "two kinds": ([X, Shifted()], NORMAL, {}, "a list of samplers or of draws"),
    "numpy": (X.numpy(), NORMAL, {}, "got ndarray"),
    "a class": (MeanField, NORMAL, {}, "got the class MeanField"),
    "another dimension": (X[:, :2], NORMAL, {}, r"lives on R\^3"),
    "not finite": (torch.where(X > 2, torch.nan, X), NORMAL, {}, "some draws are not finite"),
    "outside": (X[:, :2], Half(), {}, "log_prob of Half is not finite at [0-9]+ of 50 points"),
    "precision": (X[:, :2], Double(), {}, "computes in torch.float64"),
    "no target": (X, lambda x: x, {}, "the target must have dim and log_prob"),
    "quantities": ([X, X + 1], NORMAL, {"quantities": lambda x: x[:, 0]}, "must map draws"),
    "num_samples": (Shifted(), NORMAL, {"num_samples": 10}, "num_samples must be a whole number >= 100"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case, rng):
    sampler, target, settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        check(sampler, target, rng, **settings)


def test_the_global_seed_is_neither_read_nor_wanted(rng):
    with pytest.raises(GPVIError, match=r"rng must be a torch\.Generator"):
        check(Shifted(), NORMAL, None)
    state = torch.get_rng_state()
    check(Shifted(), NORMAL, rng)
    assert torch.equal(state, torch.get_rng_state())


def test_without_arviz_the_remedy_is_named(rng, monkeypatch):
    def missing():
        raise GPVIError('arviz is not installed; get it with: pip install -e ".[paper]"')

    monkeypatch.setattr(trust_findings, "import_arviz", missing)
    with pytest.raises(GPVIError, match="arviz is not installed"):
        check(Shifted(sd=0.9), NORMAL, rng)


def test_stein_s_identity_holds_for_a_bent_density(rng):
    """The spread is 1 for any density, not only for Gaussians."""
    x = Banana().sample(20_000, rng, F64)
    found = spread_finding(x, score(Banana(), x))
    assert found.value == pytest.approx(1, abs=5 * float(found.arrays["errors"].max()))


def test_a_target_that_mixes_draws_is_refused(rng):
    class Mixed:
        dim = 3

        def log_prob(self, x):
            return -0.5 * x.square().sum(-1) - 0.5 * x.square().sum()

    with pytest.raises(GPVIError, match="log_prob mixes points"):
        check(torch.randn(200, 3, generator=rng), Mixed(), rng, progress=False)


def test_one_chain_that_has_hardly_moved_is_not_trusted():
    """Thinned to the few draws that it is worth, nothing else can fail."""
    target = Gaussian(torch.zeros(10), torch.eye(10))
    start = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    how = {"step_size": 0.01, "num_leapfrog": 1, "num_steps": 2_000, "burn_in": 0, "seed": 0, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcceptanceWarning)
        slow = hmc(target.log_prob, start, **how)
    for draws in (slow, slow.samples[:, 0]):
        report = check(draws, target, seed=0)
        assert report.verdict == "don't" and report["r_hat"].verdict == "don't"
        assert 1.1 < report["r_hat"].value < math.inf
        assert "The halves of the chain disagree" in report["r_hat"].meaning and "between its halves" in str(report)


def test_the_halves_of_one_chain_earn_no_trust():
    """They are asked for where coordinates are slow; that some quantity mixes does not make up for it."""
    target = Gaussian(torch.zeros(1), torch.eye(1))
    slow = torch.linspace(-2, 2, 2_000)[:, None]
    mixes = torch.randn(2_000, 1, generator=torch.Generator().manual_seed(0))
    found = r_hat_finding(mixes[None])
    assert found.verdict == "look" and 0.99 < found.value < 1.01
    assert r_hat_finding(mixes.reshape(2, 1_000, 1)).verdict == "trust"
    assert check(slow, target, seed=0).verdict == "don't"


def test_one_chain_of_independent_draws_is_not_asked_for_its_halves():
    target = Gaussian(torch.zeros(3), torch.eye(3))
    report = check(torch.randn(500, 3, generator=torch.Generator().manual_seed(0)), target, seed=0)
    assert report.verdict == "trust" and "r_hat" in report.missing
