"""What notebook 13 says in prose of the records, held to the records."""

import sys

import numpy as np
import of_records
import test_04
import torch
from of_records import Runs
from scipy import stats

from gpvi_lib.experiments import bayesian_linear_regression as regression
from gpvi_lib.report import scoreboard

RUNS, SETTINGS = Runs("bayesian-linear-regression"), Runs("bayesian-linear-regression-settings")
SEEDS = RUNS.seeds
METHODS = RUNS.experiment.methods
VERDICTS = " ".join(" ".join(of_records.code("13")).split())
"""The code on one line: a cell writes the table of section 8."""
LOST = 0.1
"""A direction with less than a tenth of its variance counts as lost."""


def metric(method, key="sigma_error"):
    return RUNS.metric(method, key)


def truth(method, seed, of="covariance"):
    return RUNS.arrays(method, seed)[f"true_{of}"].double()


# in one minute, and the takeaways


def test_the_errors_of_the_first_paragraph():
    told = {"hmc": "0.20", "gpvi_exact_jac": "0.10", "gpvi_exact_jac_best": "0.02", "gpvi_exact_density": "0.01"}
    assert {method: f"{metric(method).mean():.2f}" for method in told} == told
    assert f"{exact_draws().mean():.2f}" == "0.19"
    assert len(lost("gpvi")) == 7 and len(SEEDS) == 10
    printed, ours = (f"{metric(method).mean():.2f}" for method in ("amortized_svgd", "amortized_svgd_best"))
    paper = published()["amortized_svgd"].mean
    text = of_records.told("13")
    assert f"Amortised SVGD has {printed} ({paper}), at our setting {ours}, a bias with a formula." in text
    hmc, exact = (f"{published()[method].mean:g}" for method in ("hmc", "gpvi_exact_jac"))
    said = f"HMC has {told['hmc']} (Table 2: {hmc}), the noise of a hundred draws: exact draws have 0.19."
    assert said in text and f"GPVI with the exact inverse has {told['gpvi_exact_jac']} ({exact}), optimiser" in text
    fall = f"from {told['gpvi_exact_jac']} to {told['gpvi_exact_jac_best']}."
    assert f"the Σ error of GPVI with the exact inverse falls {fall}" in text
    assert f"best of all variational rows: Σ error {told['gpvi_exact_density']}." in text
    assert (
        "loses a direction in 7 of 10 runs." in text
        and "7 of 10 runs lose a direction, with the exact inverse 0" in text
    )
    assert not len(lost("gpvi_exact_jac"))


# appendix B: how our settings were chosen


def row_of(candidate):
    return regression.SETTINGS[candidate][0]


def tried(candidate):
    """Σ error on each of the three problems."""
    return SETTINGS.metric(candidate, "sigma_error")


def test_three_candidates_are_ahead_of_our_settings_by_less_than_half_the_range_of_ours():
    ahead = {
        candidate
        for candidate in SETTINGS.experiment.methods
        if tried(candidate).mean() < tried(f"{row_of(candidate)}_ours").mean()
    }
    assert ahead == {"gpvi_best_width_64", "gpvi_exact_density_lr_0_001", "svgd_best_lr_0_03"}
    for candidate in ahead:
        ours = tried(f"{row_of(candidate)}_ours")
        assert np.ptp(ours) > 2 * abs(ours.mean() - tried(candidate).mean())
    said = "a wider helper, a slower exact density and a faster SVGD, by less than half the range of our own three"
    assert f"Three candidates are ahead of ours, {said} problems." in of_records.told("13")


def test_a_slow_helper_loses_its_way_on_one_problem_and_hmc_with_twice_our_step_on_another():
    slow = tried("gpvi_best_helper_lr_0_0001")
    assert slow.max() > 4 * sorted(slow)[1]
    assert tried("hmc_best_step_0_08").max() > 3
    assert "at the bad level until step 13,000 on one problem of three, and ends there with" in of_records.told("13")
    assert "HMC with twice our step is clearly worse too." in of_records.told("13")
    assert "That gives the wrong covariance of the third problem." in of_records.told("13")


# 3 and appendix C: the table


def test_printed_gpvi_scatters_and_no_printed_row_that_does_agrees():
    board = of_records.board()
    board = board[board["item"] == "gpvi/table2"]
    board = board[(board["n_seeds"] == board["n_seeds"].max()) & (board["metric"] == "sigma_error")]
    scattered = board[(board["ours_sd"] > 0.4 * board["ours_mean"]) & (board["setting"] == "printed")]
    assert "gpvi" in set(scattered["method"]) and "agrees" not in set(scattered["verdict"])
    text = of_records.told("13")
    assert "Rows whose standard deviation is above 40 % of their mean:" in text
    assert "None of the printed rows among them agrees with the paper." in text
    critics = board[board["method"].isin(("ksd", "amortized_ksd")) & (board["setting"] == "best")]
    assert critics["ratio"].round(1).tolist() == [1.1, 1.3] and set(critics["verdict"]) == {"inconclusive"}
    said = "The critics with tanh units come near it, {:.1f} and {:.1f} times the published error,"
    assert said.format(*critics["ratio"]) in text
    before = board[board["method"].isin(("ksd", "amortized_ksd")) & (board["setting"] == "printed")]
    assert before["ratio"].round(1).tolist() == [1.8, 3.4]
    said = "errors of Σ falls from {:.1f} to {:.1f} and from {:.1f} to {:.1f},"
    assert said.format(*np.transpose([before["ratio"], critics["ratio"]]).flat) in of_records.told("00")


def published():
    """Table 2's Σ errors by method."""
    return {p.method: p for p in scoreboard.published() if p.item == "gpvi/table2" and p.metric == "sigma_error"}


def test_which_of_the_papers_intervals_gpvis_overlaps():
    rows = published()
    gpvi = rows.pop("gpvi")
    count = sum(abs(row.mean - gpvi.mean) <= row.sd + gpvi.sd for row in rows.values())
    words = {6: "six", 10: "ten"}
    assert f"in Table 2 GPVI's overlaps {words[count]} of {words[len(rows)]} others." in of_records.told("13")


# 4: what the errors are made of


def variance_ratios(method, seed):
    """The eigenvalues of Σ^{-1} Σ̂, ascending."""
    half = torch.linalg.cholesky(truth(method, seed))
    learned = RUNS.arrays(method, seed)["covariance"].double()
    whitened = torch.linalg.solve(half, torch.linalg.solve(half, learned).mT)
    return torch.linalg.eigvalsh(whitened).numpy()


def smallest_ratio(method, seed):
    return float(variance_ratios(method, seed)[0])


def lost(method):
    """The problems on which a direction is lost."""
    return [seed for seed in SEEDS if smallest_ratio(method, seed) < LOST]


def test_how_svgd_and_the_critics_are_wrong():
    ratios = {
        m: np.concatenate([variance_ratios(m, s) for s in SEEDS]) for m in ("svgd", "gfsf", "ksd", "amortized_ksd")
    }
    kept = np.concatenate([ratios["svgd"], ratios["gfsf"]])
    assert f"SVGD and GFSF keep {kept.min():.2f} to {kept.max():.2f} of the variance" in of_records.told("13")
    widest = [ratios[m].max() for m in ("ksd", "amortized_ksd")]
    text = "others too narrow or too wide (up to {:.1f} times, amortised {:.1f})"
    assert text.format(*widest) in of_records.told("13")
    kept = {m: ratios[m][ratios[m] >= LOST] for m in ("ksd", "amortized_ksd")}
    assert all((of < 0.9).sum() > (of > 1.1).sum() > 0 for of in kept.values())


def test_where_the_amortised_critic_errs_most_it_makes_a_direction_too_wide():
    widest = np.array([variance_ratios("amortized_ksd", s)[-1] for s in SEEDS])
    wide = metric("amortized_ksd") > 1
    assert wide.sum() == 4 and widest[~wide].max() < 2
    said = f"{widest[wide].min():.1f} to {widest[wide].max():.1f} times too wide in four runs"
    assert said in of_records.told("13")


def test_against_mean_field_the_exact_inverse_is_ahead_on_half_and_with_a_decaying_rate_on_all():
    assert (metric("gpvi_exact_jac") < metric("mf_vi")).mean() == 0.5
    for method in ("gpvi_best", "gpvi_exact_jac_best"):
        assert all(metric(method).max() < metric(rival).min() for rival in ("mf_vi", "mf_vi_best"))
    assert "of the problems at the printed rate, on all with a decaying one" in VERDICTS


def test_where_the_repulsion_is_a_trained_network_runs_lose_a_direction():
    assert not lost("gpvi_exact_jac") and all(lost(method) for method in ("gpvi", "ksd", "amortized_ksd"))
    said = "Where the repulsion comes from a *trained network*, runs can lose whole directions."
    assert said in of_records.told("13")


# 6: HMC


def exact_draws(repeats=4_000):
    """Σ errors of the covariance of 100 exact draws, repeated on every problem."""
    rng, found = torch.Generator().manual_seed(0), []
    for seed in SEEDS:
        covariance = truth("hmc", seed)
        half = torch.linalg.cholesky(covariance)
        x = torch.randn(repeats, 100, len(half), generator=rng, dtype=half.dtype) @ half.mT
        x = x - x.mean(1, keepdim=True)
        found.append((x.mT @ x / 99 - covariance).norm(dim=(1, 2)) / covariance.norm())
    return torch.cat(found).numpy()


def test_printed_hmc_is_what_exact_sampling_would_give_within_three_standard_errors():
    draws, hmc = exact_draws(), metric("hmc")
    assert abs(hmc.mean() - draws.mean()) < 3 * draws.std() / np.sqrt(len(hmc))
    said = f"the noise of a hundred draws: exact draws have {draws.mean():.2f}."
    assert f"HMC has {hmc.mean():.2f} (Table 2: 0.181), {said}" in of_records.told("13")


def worth(method):
    """The independent draws that all states of the first problem's chains are worth for a variance."""
    settings = RUNS.record(method).config
    sd = torch.linalg.eigvalsh(truth("hmc", 0)).sqrt().mean()
    rho = torch.cos(settings["step_size"] * settings["num_leapfrog"] / sd)
    states = settings["chains"] * (settings["num_steps"] - settings["burn_in"])
    return float(states * (1 - rho**2) / (1 + rho**2))


def test_all_states_of_the_printed_chains_are_worth_some_150_draws():
    assert f"worth only about {10 * round(worth('hmc') / 10)} (Appendix E)" in of_records.told("13")


def test_neither_more_states_nor_longer_trajectories_suffice():
    unthinned, long = np.sqrt(4 / (10 * round(worth("hmc") / 10))), np.sqrt(4 / 99)
    said = f"an error of {unthinned:.2f}. Long trajectories thinned to 100 draws would leave {long:.2f}."
    assert said in of_records.told("13")
    assert np.sqrt(4 / worth("hmc_best")) < 0.01 and metric("hmc_best").mean() < 0.01
    printed, ours = (RUNS.record(method).config for method in ("hmc", "hmc_best"))
    steps = f"With steps {ours['step_size'] / printed['step_size']:.0f} times larger and *fewer* of them"
    assert steps in of_records.told("13") and ours["num_leapfrog"] < printed["num_leapfrog"]


def test_the_root_mean_square_of_exact_draws_is_that_of_the_formula():
    found = np.sqrt(np.square(exact_draws()).mean())
    assert f"{found:.2f}" == f"{np.sqrt(4 / 99):.2f}"
    assert rf"$\sqrt{{(d+1)/(n-1)}} = \sqrt{{4/99}} \approx {found:.1f}$." in of_records.told("13")


def test_with_trajectories_of_the_right_length_hmc_has_the_smallest_error():
    assert metric("hmc_best").mean() < min(metric(m).mean() for m in METHODS if m != "hmc_best")
    hmc, density = (metric(m).mean() for m in ("hmc_best", "gpvi_exact_density"))
    said = f"{hmc:.3f} (section 3; the exact density's {density:.3f} is close)."
    assert f"HMC has the smallest mean error on this page, {said}" in of_records.told("13")


# 7: optimiser noise


def level(method):
    """Mean Σ error in the second half of training."""
    path = RUNS.history(method, "sigma_error")
    return path[:, path.shape[1] // 2 :].mean()


def test_a_decaying_rate_removes_the_noise_of_the_exact_inverse_and_not_the_bias_of_svgd():
    assert round(metric("gpvi_exact_jac_best").mean() / level("gpvi_exact_jac"), 1) == 0.2
    said = "GPVI with the exact inverse does so: a fifth of its error is left."
    assert said in of_records.told("13")
    assert metric("svgd_best").mean() > 0.8 * level("svgd")
    assert metric("amortized_svgd_best").mean() > 0.8 * level("amortized_svgd")
    said = "SVGD and amortised SVGD do *not*: their error is a bias."
    assert said in of_records.told("13")


# 7 and appendix F: amortised SVGD


def kept_variance(n, d=3):
    """The share of the variance that amortised SVGD keeps with one batch of n at the median rule."""
    squares = torch.randn(1_000_000, d, generator=torch.Generator().manual_seed(0)).square().sum(1)
    h = 2 * float(squares.median()) / np.log(n)
    c = (1 + 2 / h) ** (-d / 2) / (1 + h / 2) * (1 + 2 / (h + 2)) ** (-d / 2 - 1)
    return (n - 1) * c / (1 + (n - 1) * c)


def test_the_bias_of_amortised_svgd_is_that_of_the_closed_form():
    kept = kept_variance(100)
    measured = metric("amortized_svgd_best").mean()
    assert f"{kept:.2f}" == "0.78" and abs(measured - (1 - kept)) < 0.02
    said = f"the measured error of amortised SVGD is {measured:.3f}, and the formula says {1 - kept:.2f},"
    assert said in of_records.told("13") and f"vanishes at {kept:.2f} of the variance," in of_records.told("13")


def test_one_batch_of_200_would_leave_a_bias_too():
    assert {RUNS.record(m).config["objective"]["num_samples"] for m in ("gpvi_exact_jac", "amortized_svgd")} == {100}
    assert (metric("gpvi_exact_jac") < metric("amortized_svgd")).all()
    bias = 1 - kept_variance(200)
    below = f"{(metric('gpvi_exact_jac') < bias).sum()} of the {len(SEEDS)} GPVI runs are below"
    assert f"One batch of 200 would leave {bias:.2f} by the formula; {below}" in of_records.told("13")


# appendix G: mean field


def precision(seed):
    """``XᵀX`` of a problem."""
    inputs = regression.problem(RUNS.record("mf_vi", seed).config, seed, torch.device("cpu")).inputs.double()
    return inputs.mT @ inputs


def test_mean_fields_sigma_error_is_that_of_the_best_factorised_gaussian():
    best = []
    for seed in SEEDS:
        covariance, variances = torch.linalg.inv(precision(seed)), 1 / precision(seed).diagonal()
        best.append(float((torch.diag(variances) - covariance).norm() / covariance.norm()))
    np.testing.assert_allclose(metric("mf_vi_best"), best, atol=0.01)
    said = "is the distance of the best factorised Gaussian, a number that the design $X$ fixes. Training adds nothing"
    assert f"Mean field's error {said} to it," in of_records.told("13")


def test_mean_fields_mu_error_is_the_shift_by_its_prior():
    means = {seed: truth("mf_vi", seed, "mean") for seed in SEEDS}
    shifts = [
        float(torch.linalg.solve(precision(seed) + torch.eye(3), mean).norm() / mean.norm())
        for seed, mean in means.items()
    ]
    np.testing.assert_allclose(metric("mf_vi", "mu_error"), shifts, rtol=0.1)
    said = f"Its μ error of {1000 * metric('mf_vi', 'mu_error').mean():.0f} thousandths is the shift by its prior"
    assert said in of_records.told("13")


# appendix A: the number of observations


def noise_share(num_data, draws=100, designs=4_000):
    """Of the mean square Σ error of samples of the best factorised Gaussian what is theirs, over designs."""
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(designs, num_data, 3, generator=rng, dtype=torch.float64)
    covariance, variances = torch.linalg.inv(inputs.mT @ inputs), 1 / inputs.square().sum(1)
    size = covariance.square().sum((1, 2))
    bias = (torch.diag_embed(variances) - covariance).square().sum((1, 2)) / size
    noise = (variances.square().sum(1) + variances.sum(1).square()) / (draws - 1) / size
    return float(noise.mean() / (noise + bias).mean()), (bias.sqrt().quantile(0.95) / bias.sqrt().quantile(0.05)).item()


def test_mean_fields_error_of_100_samples_is_mostly_their_noise_from_100_observations_on():
    shares = {n: noise_share(n) for n in (20, 50, 100, 200)}
    assert [share > 0.5 for share, _ in shares.values()] == [False, False, True, True]
    assert abs(shares[100][0] - 2 / 3) < 0.03 and min(spread for _, spread in shares.values()) > 3
    said = "With 100 samples the error is, from $N = 100$ on, mostly sampling noise"
    said = f"varies several-fold between designs of one size. {said} (about two thirds of the mean square at 100)."
    assert said in of_records.told("13")


# 5 and appendix H: the helper


def test_at_our_setting_no_run_loses_a_direction():
    assert not lost("gpvi_best") and f"{metric('gpvi_best').mean():.3f}" == "0.028"
    said = f"no run loses a direction, and the Σ error is {metric('gpvi_best').mean():.3f}."
    assert f"At our best setting {said}" in of_records.told("13")


def test_runs_that_lost_a_direction_have_their_means_off_too():
    late = {m: RUNS.history(m, "mu_error") for m in ("gpvi", "gpvi_exact_jac")}
    late = {m: of[:, of.shape[1] // 2 :].mean(1) for m, of in late.items()}
    assert late["gpvi"][lost("gpvi")].min() > 3 * late["gpvi_exact_jac"].max()
    assert "Over the second half of training their means are off as well." in of_records.told("13")


def test_at_18000_steps_all_runs_are_bad_and_two_come_back_after_30000():
    at, error = (RUNS.history("gpvi", key) for key in ("step", "sigma_error"))
    late = (error[:, at[0] == 30_000][:, 0] > 0.4) & (error[:, -1] < 0.2)
    assert late.sum() == 2
    assert error[:, at[0] == 18_000].min() > 0.35 and (error[:, -1] < 0.2).sum() == 3
    said = "all ten printed helpers have a bad Σ error at step 18,000, and three runs have recovered at 50,000"
    assert said in of_records.told("13")
    said = "It may come back, and in three of the runs does, in two of them after 30,000 steps:"
    assert said in of_records.told("13")


def test_a_lost_direction_costs_between_the_extreme_eigenvalues():
    """Losing v costs ``vᵀΣv / ||Σ||``."""
    for seed in lost("gpvi"):
        covariance = truth("gpvi", seed)
        bounds = torch.linalg.eigvalsh(covariance) / covariance.norm()
        assert bounds[0] - 0.1 < RUNS.record("gpvi", seed).metrics["sigma_error"] < bounds[-1] + 0.1
    bad = [RUNS.record("gpvi", seed).metrics["sigma_error"] for seed in lost("gpvi")]
    said = f"and the bad runs end there or below, at {min(bad):.2f} to {max(bad):.2f}."
    said = rf"A lost direction costs about $1/\sqrt3$ in Σ error on a nearly isotropic posterior, {said}"
    assert said in of_records.told("13")


# appendix I: the exact density


def test_of_the_variational_methods_the_exact_density_has_the_smallest_error():
    finals = {m: metric(m) for m in METHODS if not m.startswith("hmc")}
    assert min(finals, key=lambda m: np.median(finals[m])) == "gpvi_exact_density"
    assert finals["gpvi_exact_density"].max() < 0.1
    said = f"is best of all variational rows: Σ error {finals['gpvi_exact_density'].mean():.2f}."
    assert f"training on the known density {said}" in of_records.told("13")


# 8: claim by claim


def verdict(first, second):
    """What the problems on which the first has the smaller Σ error say of "the first is better"."""
    share = (metric(first) < metric(second)).mean()
    return "supported" if share >= 0.75 else "contradicted" if share <= 0.25 else "open"


def test_with_the_helper_gpvi_is_ahead_of_the_critic_alone():
    rivals = ("amortized_ksd", "amortized_svgd", "amortized_gfsf", "hmc")
    assert [verdict("gpvi", rival) for rival in rivals] == ["supported", "open", "open", "open"]
    assert verdict("gpvi", "mf_vi") == verdict("gpvi", "svgd") == "contradicted"
    shares = [(metric("gpvi") < metric(rival)).mean() for rival in ("svgd", "gfsf")]
    assert shares[0] == shares[1]
    assert metric("gpvi").mean() > max(metric("svgd").mean(), metric("amortized_svgd").mean())
    assert verdict("gpvi", "gpvi_exact_jac") != "supported"
    said = "supported against a ReLU critic, open against amortised SVGD, GFSF, HMC, contradicted against mean field:"
    assert said in VERDICTS and "not reproduced: mean Σ error {metric('gpvi').mean():.2f}, SVGD" in VERDICTS


def test_how_gpvi_compares_with_the_amortised_critic_with_tanh(monkeypatch):
    errors = Runs("smooth-tables").metric("table2_amortized_ksd", "sigma_error")
    ahead = {m: int((metric(m) < errors).sum()) for m in ("gpvi", "gpvi_exact_jac")}
    monkeypatch.setattr(sys.modules[__name__], "RUNS", Runs("smooth-tables"))
    said = (
        f"loses a direction in {len(lost('table2_amortized_ksd'))} of {len(errors)} runs. Printed GPVI is ahead of it"
    )
    said += f" on {ahead['gpvi']} of {len(errors)} problems, *open* by the rule of section 8"
    assert said in of_records.told("13")
    assert 0.25 < ahead["gpvi"] / len(errors) < 0.75 and ahead["gpvi_exact_jac"] == len(errors)


def test_with_the_exact_inverse_gpvi_is_ahead_of_amortised_parvi_and_of_free_particles_in_the_mean():
    for rival in ("amortized_svgd", "amortized_gfsf", "amortized_ksd"):
        assert verdict("gpvi_exact_jac", rival) == "supported"
    assert metric("gpvi_exact_jac").mean() < min(metric("svgd").mean(), metric("gfsf").mean())
    assert "reproduced for amortised ParVI" in VERDICTS and "reproduced: the error is smaller in the mean;" in VERDICTS


# what the mended sentences say


def test_eighteen_methods_are_eleven_printed_six_best_settings_and_the_exact_density():
    best = [method for method in METHODS if method.endswith("_best")]
    assert len(regression.PRINTED) == 11 and len(best) == 6 and len(METHODS) == 18
    assert f"not among the {len(METHODS) * len(SEEDS)} runs of the first cell." in of_records.told("13")
    assert "We ran all eleven rows on ten problems." in of_records.told("13")


def test_amortised_svgd_has_0_218_at_our_setting_and_more_as_printed():
    found = [metric("amortized_svgd_best").mean(), level("amortized_svgd"), metric("amortized_svgd").mean()]
    assert [f"{value:.3f}" for value in found] == ["0.218", "0.232", "0.246"]
    said = f"At our best setting the measured error of amortised SVGD is {found[0]:.3f},"
    assert said in of_records.told("13")
    said = "The printed row adds optimiser noise: {:.3f} over the second half, {:.3f} at the end."
    assert said.format(*found[1:]) in of_records.told("13")


def test_steps_of_the_best_settings_are_15000_but_hmcs_and_the_critics_and_hmc_keeps_its_proposals():
    best = [method for method in METHODS if method.endswith("_best") and method != "hmc_best"]
    assert {RUNS.record(method).config["steps"] for method in (*best, "gpvi_exact_density")} == {15_000}
    assert RUNS.record("hmc_best").config["num_steps"] == RUNS.record("hmc").config["num_steps"] == 25_000
    text = of_records.told("13")
    assert "Our *best settings* let the rate decay over 15,000 steps (Appendix B), with exceptions." in text
    assert "HMC makes 25,000 proposals here too," in text
    assert "The critics keep 50,000 steps at the printed rate," in text
    assert "(means 0.398 and 0.573, 50,000 steps, ten seeds)" in text
    critics = Runs("smooth-tables")
    for name, told in {"ksd": "0.398", "amortized_ksd": "0.573"}.items():
        assert critics.record(f"table2_{name}").config["steps"] == 50_000
        assert f"{critics.metric(f'table2_{name}', 'sigma_error').mean():.3f}" == told


def test_svgd_gfsf_and_their_amortised_forms_are_too_narrow_in_every_direction():
    for method in ("svgd", "gfsf", "amortized_svgd", "amortized_gfsf"):
        ratios = np.stack([variance_ratios(method, seed) for seed in SEEDS])
        assert (ratios.mean(0) < 0.9).all() and ratios[:, 0].max() < 1
    said = "too narrow, but for noise of the optimiser, in every direction | SVGD, GFSF and their amortised forms |"
    assert said in of_records.told("13")


def test_two_updates_a_step_avoid_the_trap():
    assert f"on {len(lost('gpvi'))} of Table 2's 10" in of_records.told("04")
    two, exact = (test_04.span(method) for method in ("helper_2", "exact"))
    assert f"(Σ error {two} at the end, the exact inverse {exact}, 3 seeds, [04]" in of_records.told("13")


def test_which_candidates_are_worse_than_ours_on_all_three_problems():
    tried, chosen, worse = Runs("bayesian-linear-regression-settings"), {}, {}
    for method in tried.experiment.methods:
        row, change = regression.SETTINGS[method]
        (chosen if not change else worse).setdefault(row, []).append((change, tried.metric(method, "sigma_error")))
    ours = {row: found for row, [(_, found)] in chosen.items()}
    count = {row: sum((found > ours[row]).all() for _, found in tries) for row, tries in worse.items()}
    assert count == {
        "gpvi_best": 3,
        "gpvi_exact_jac_best": 2,
        "gpvi_exact_density": 0,
        "amortized_svgd_best": 2,
        "svgd_best": 1,
        "mf_vi_best": 1,
        "hmc_best": 2,
    }
    fast = next(found for change, found in worse["mf_vi_best"] if change == {"lr": 0.03})
    assert 0 < (fast - ours["mf_vi_best"]).min() and (fast - ours["mf_vi_best"]).max() < 0.0006
    said = "either other rate of the exact inverse and of amortised SVGD, a slower SVGD, half and twice HMC's step, and"
    said = f"Worse than ours on all three problems are {said} mean field's faster rate, by 0.0006 at most."
    assert said in of_records.told("13")
    said = "for GPVI with the helper, a helper of width 10, 20 samples a step and a slower helper."
    assert f"So are, {said}" in of_records.told("13")


def test_printed_gpvi_is_behind_free_svgd_and_gfsf_in_the_mean():
    told = {m: f"{RUNS.metric(m, 'sigma_error').mean():.2f}" for m in ("gpvi", "svgd", "gfsf")}
    assert told == {"gpvi": "0.39", "svgd": "0.14", "gfsf": "0.14"}
    assert f"helper {told['gpvi']}, mean field 0.13, SVGD {told['svgd']};" in of_records.told("00")
    assert "SVGD {metric('svgd').mean():.2f}, GFSF" in VERDICTS


def test_what_a_logged_residual_says_of_one_and_of_two_updates():
    one, two = (test_04.late(f"helper_{n}", "residual") for n in (1, 2))
    (lost,) = {f"{value:.2f}" for value in one[1:]}
    said = f"with one update a step {lost} where a direction is lost and {one[0]:.2f} where none is,"
    said = f"tells runs apart: {said} with two updates {two.min():.2f} to {two.max():.2f}."
    assert said in of_records.told("13")


def test_what_the_best_hmc_keeps():
    printed, best = (RUNS.record(method).config for method in ("hmc", "hmc_best"))
    kept = [c["chains"] * (c["num_steps"] - c["burn_in"]) // c["thin"] for c in (printed, best)]
    assert kept == [100, 80_000] and "keeps 80,000 states of four chains instead of 100" in of_records.told("13")


def test_the_burn_in_of_the_best_hmc():
    printed, best = (RUNS.record(method).config for method in ("hmc", "hmc_best"))
    assert (printed["num_steps"], best["num_steps"]) == (25_000, 25_000)
    said = f"with a burn-in of {best['burn_in']:,} instead of {printed['burn_in']:,}"
    assert said in of_records.told("13")


def test_with_tanh_the_critics_lose_fewer_directions(monkeypatch):
    before = [len(lost(row)) for row in ("ksd", "amortized_ksd")]
    monkeypatch.setattr(sys.modules[__name__], "RUNS", Runs("smooth-tables"))
    after = [len(lost(f"table2_{row}")) for row in ("ksd", "amortized_ksd")]
    said = "far fewer with tanh units ({} and {} runs of 10 lose one, with ReLU {} and {}; appendix J)"
    assert said.format(*after, *before) in of_records.told("13")


def test_how_likely_three_intact_runs_can_be():
    kept = 10 - len(lost("gpvi"))
    high = stats.binomtest(kept, 10).proportion_ci(0.95).high
    assert f"ten runs allow a rate at which {100 * high**3:.0f} % of such triples are" in of_records.told("13")


def path(arrays):
    """Step -> Σ error of a run."""
    return dict(zip(arrays["history_step"].tolist(), arrays["history_sigma_error"].tolist(), strict=True))


def test_when_a_narrow_or_a_slow_helper_leaves_the_bad_level():
    narrow = path(SETTINGS.arrays("gpvi_best_width_10", SETTINGS.seeds[2]))
    assert min(error for step, error in narrow.items() if 2_400 <= step <= 6_450) > 0.44 > 0.3 > narrow[6_750]
    assert "at the bad level until step 6,450." in of_records.told("13")
    slow = SETTINGS.arrays("gpvi_best_helper_lr_0_0001", SETTINGS.seeds[2])
    errors = path(slow)
    assert min(error for step, error in errors.items() if 2_400 <= step <= 13_000) > 0.44 > 0.2 > errors[15_000]
    assert "at the bad level until step 13,000 on one problem of three" in of_records.told("13")


def test_at_18000_steps_the_errors_of_the_printed_helper():
    at = [path(RUNS.arrays("gpvi", seed))[18_000] for seed in SEEDS]
    assert f"At 18,000 steps all ten runs have {min(at):.2f} to {max(at):.2f}" in of_records.told("13")


def test_with_tanh_the_critics_lose_directions_in_fewer_runs_than_printed_gpvi(monkeypatch):
    test_with_tanh_the_critics_lose_fewer_directions(monkeypatch)
    monkeypatch.undo()
    assert len(lost("gpvi")) == 7 and "than printed GPVI, 2 and 3 of 10 (appendix J)." in of_records.told("13")


def test_the_share_of_the_published_mu_errors():
    printed = {p.method: p.mean for p in scoreboard.published() if (p.item, p.metric) == ("gpvi/table2", "mu_error")}
    rows = ("svgd", "gfsf", "amortized_svgd", "amortized_gfsf", "deep_ensemble", "gpvi_exact_jac")
    norms = np.array([float(truth("svgd", seed, "mean").norm()) for seed in SEEDS])
    spans = [[(metric(m, "mu_error") * by).mean() / printed[m] for m in rows] for by in (norms, 1)]
    text = "the absolute error is {:.2f} to {:.2f} of the published one and the relative one {:.2f} to {:.2f}."
    assert text.format(*(end for span in spans for end in (min(span), max(span)))) in of_records.told("13")
