"""What notebook 08 says of its records: chains of HMC and NUTS."""

import pytest
import torch
from of_records import Runs, code, runs, told

from gpvi_lib.experiments import linear_problem
from gpvi_lib.experiments.chains import diagnostics
from gpvi_lib.experiments.nuts_reference import posterior, quantities
from gpvi_lib.report import scoreboard

HMC_OF_TABLE_2 = ("gpvi/table2", "hmc", "sigma_error")

TRUTH = {"gaussian": [0, 0, 1, 0.9, 1], "banana": [0, 0, 1, 0, 0.25 + 2]}
"""Means of the coordinates and their products."""


def chains(method):
    """The one record of a method, and its arrays."""
    (run,) = runs("nuts-reference", method)
    return run, run.arrays()


def test_the_printed_run_is_worth_about_as_many_draws_as_predicted_and_its_rhat_is_above_the_limit():
    run, found = chains("hmc_printed_regression")
    length = run.config["step_size"] * run.config["num_leapfrog"]
    variances = torch.linalg.eigvalsh(posterior(run.config["posterior"], run.seed).covariance)
    correlation = torch.cos(length / variances.sqrt())
    kept = run.config["chains"] * (run.config["num_steps"] - run.config["burn_in"])
    worth = kept * (1 - correlation) / (1 + correlation)
    assert 0.5 * worth.min() < found["weights_ess"].min() and found["weights_ess"].max() < 2 * worth.max()
    assert found["weights_rhat"].min() > 1.01 and run.config["chains"] == 4
    ends = [round(float(end)) for end in (worth.min(), worth.max())]
    assert ends == [47, 105]
    said = f"Our four chains are worth {ends[0]} to {ends[1]} together, and with so few R-hat is 1.01 and more."
    assert said in told("08")
    mean_tau = ((1 + correlation) / (1 - correlation)).mean()
    assert round(float(mean_tau)) == 281 and round(5_000 / float(mean_tau)) == 18
    said = f"one chain are worth about {5_000 / mean_tau:.0f} independent draws, by the mean τ of {mean_tau:.0f}."
    assert f"For means the 5,000 kept states of {said}" in told("08")
    squares = ((1 + correlation**2) / (1 - correlation**2)).mean()  # of variances
    assert round(5_000 / float(squares)) == 36
    said = f"about {5_000 / mean_tau:.0f} draws for a mean and about {5_000 / squares:.0f} for a variance,"
    assert f"One chain would be worth {said}" in told("08")


def test_longer_trajectories_have_the_smallest_error_on_the_regression():
    table = Runs("bayesian-linear-regression")
    found = {method: table.metric(method, "sigma_error").mean() for method in table.experiment.methods}
    assert min(found, key=found.__getitem__) == "hmc_best"
    long, short = (table.experiment.config(method, "paper") for method in ("hmc_best", "hmc"))
    kept = [c["chains"] * (c["num_steps"] - c["burn_in"]) // c["thin"] for c in (long, short)]
    assert kept[1] == 100 and long["step_size"] * long["num_leapfrog"] > 10 * short["step_size"] * short["num_leapfrog"]
    assert f"{kept[0]:,} states of longer trajectories reach {found['hmc_best']:.3f} (notebook 13)" in "".join(
        code("08")
    )


def test_how_many_draws_have_the_error_of_table_2s_hmc():
    (printed,) = [p for p in scoreboard.published() if (p.item, p.method, p.metric) == HMC_OF_TABLE_2]
    runs_of_table = Runs("bayesian-linear-regression")
    config, ratios = runs_of_table.record("hmc").config, []
    for seed in runs_of_table.seeds:
        _, covariance = linear_problem.problem(config, seed, torch.device("cpu")).exact_moments()
        ratios.append(float(covariance.trace() ** 2 / covariance.square().sum() + 1))
    of_one_draw = sum(ratios) / len(ratios)  # (n - 1) E (relative error)^2, as in 13
    draws, error = 1 + of_one_draw / printed.mean**2, (of_one_draw / 35) ** 0.5
    said = (
        f"Table 2's error of the covariance is {printed.mean}. By [13](13-bayesian-linear-regression.ipynb)'s formula "
        f"for the root mean square error, about {round(draws, -1):.0f} draws have that error, and 36 draws would have "
        f"{error:.2f}."
    )
    assert said in told("08")


def errors_of_printed_runs(chains_a_run, number=4_000):
    """Relative errors of the covariance of runs that keep 100 states, by the autoregression of section 4."""
    run, _ = chains("hmc_printed_regression")
    sds = torch.linalg.eigvalsh(posterior(run.config["posterior"], run.seed).covariance).sqrt()
    rng = torch.Generator().manual_seed(0)
    step, spacing = torch.cos(run.config["step_size"] * run.config["num_leapfrog"] / sds), 50 * chains_a_run
    apart = step**spacing  # 100 of 5,000 states of each chain are kept
    x, kept = torch.randn(number, chains_a_run, 3, generator=rng, dtype=torch.float64), []
    for _ in range(100 // chains_a_run):
        x = apart * x + (1 - apart**2).sqrt() * torch.randn(x.shape, generator=rng, dtype=torch.float64)
        kept.append(sds * x)
    states = torch.cat(kept, 1)
    states = states - states.mean(1, keepdim=True)
    covariances = states.mT @ states / (states.shape[1] - 1)
    return (covariances - torch.diag(sds**2)).flatten(1).norm(dim=1) / sds.square().norm()


def test_how_often_the_mean_of_three_printed_runs_is_as_low_as_table_2s():
    shares = []
    for number in (1, 2):
        threes = errors_of_printed_runs(number, 12_000).view(-1, 3).mean(1)
        shares.append(float((threes <= 0.181).double().mean()))
    assert 0.004 < shares[0] < 0.014 and 0.11 < shares[1] < 0.145  # se of 4,000 means: 0.0015 and 0.005
    assert "about one time in a hundred with one chain a run and one in eight with two (simulated)" in told("08")


def test_how_far_single_printed_chains_are():
    (run, printed), (_, nuts) = (chains(f"{method}_bnn") for method in ("hmc_printed", "nuts"))
    kept = printed["trace"][:, 200:].double()  # after 20,000 of 25,000 proposals
    probabilities = quantities(posterior(run.config["posterior"], run.seed), kept)
    apart = (probabilities.mean(1) - nuts["mean"]).abs().mean(1)
    assert f"each chain alone {apart.min():.3f} to {apart.max():.3f};" in told("08")
    spreads = torch.tensor([spread(one.unflatten(1, (-1, 4))) for one in probabilities])
    shares = spreads / nuts["sd"].reshape(-1, 4).square().sum(-1).sqrt().mean()
    assert 0.4 < shares.min() < 0.55 and 0.8 < shares.max() < 0.95
    assert "One chain alone has half to nine tenths of NUTS's mean spread." in told("08")


def test_the_mean_of_all_weights_does_not_pass():
    _, found = chains("hmc_printed_bnn")
    means = found["trace"][:, 200:].mean(2).double()
    rhat = float(diagnostics(means[..., None])["rhat"][0])
    assert f"its R-hat is {rhat:.1f}." in told("08")


@pytest.mark.parametrize("name", TRUTH)
def test_nuts_agrees_with_the_truth(name):
    _, found = chains(f"nuts_{name}")
    z = (found["mean"] - torch.tensor(TRUTH[name], dtype=torch.float64)) / found["mcse_mean"]
    assert z.abs().max() < 4  # 5 quantities: a |z| of 4 has a probability below 1e-3
    assert found["rhat"].max() < 1.01 and len(TRUTH) * len(z) == 10
    said = "each sampler agrees with the truth and with the other in all ten quantities, to $|D| < 4$ (Appendix E)."
    assert f"On *a Gaussian* with correlation 0.9 and on *the banana*, {said}" in told("08")


def test_on_a_network_hmc_and_nuts_agree_on_every_prediction():
    (nuts, a), (hmc, b) = chains("nuts_bnn"), chains("hmc_bnn")
    assert max(nuts.metrics["rhat_max"], hmc.metrics["rhat_max"]) < 1.011
    z = (b["mean"] - a["mean"]) / torch.hypot(b["mcse_mean"], a["mcse_mean"])
    assert z.square().mean().sqrt() < 2 and z.abs().max() < 4.5
    said = "partly from the same starts, agree on every prediction to within the Monte Carlo error."
    assert said in told("08")


def test_the_printed_chains_do_not_mix_on_a_network():
    run, found = chains("hmc_printed_bnn")
    assert run.metrics["rhat_max"] > 1.1 and (found["rhat"] > 1.01).double().mean() > 0.5
    said = f"No prediction has an R-hat below 1.01, and the largest is {run.metrics['rhat_max']:.2f}."
    assert said in told("08")


def test_no_prediction_of_the_printed_chains_passes_and_their_probabilities_are_far_from_nuts():
    (printed, a), (_, b), (nuts, c) = (chains(f"{method}_bnn") for method in ("hmc_printed", "hmc", "nuts"))
    assert a["rhat"].min() > 1.01 and round(printed.metrics["rhat_max"], 2) == 2.76
    number, worst = c["mean"].numel(), printed.metrics["rhat_max"]
    assert f"{number} predictions of a small network agree within the Monte Carlo error" in told("08")
    assert f"R-hat of this network's predictions reaches {worst:.2f} ({printed.config['chains']} chains)." in told("08")
    assert f"46 tanh weights):* R-hat of predictions reaches {worst:.2f}." in told("08")
    apart = [float((other["mean"] - c["mean"]).abs().mean()) for other in (a, b)]
    assert [round(value, 3) for value in apart] == [0.016, 0.002]
    said = f"the printed probabilities are on average {apart[0]:.3f} away from NUTS,"
    assert said in told("08") and f"HMC's with a fitting step {apart[1]:.3f}." in told("08")
    assert nuts.metrics["ess_min"] > 3 * nuts.metrics["ess_weights_min"]
    assert "for weights the effective sample size is several times smaller." in told("08")


def test_the_autocorrelation_times_of_the_printed_setting():
    run, _ = chains("hmc_printed_regression")
    length = run.config["step_size"] * run.config["num_leapfrog"]
    variances = torch.linalg.eigvalsh(posterior(run.config["posterior"], run.seed).covariance)
    correlation = torch.cos(length / variances.sqrt())
    times = [round(float(tau)) for tau in (1 + correlation) / (1 - correlation)]
    assert f"trajectories are {length:.4f} long" in told("08")
    assert f"{min(times)} to {max(times)} states are worth one independent draw" in told("08") and len(times) == 3
    free = f"{4 / length**2:,.0f}"
    assert f"one draw takes {free}, more than the run has" in told("08")
    assert f"less than one τ ({free}) in a free direction" in told("08")
    assert run.config["num_steps"] == 25_000 and "its 25,000 proposals reach the posterior" in told("08")


def test_half_the_autocorrelation_time_of_the_network_and_the_kept_states_in_it():
    run, _ = chains("hmc_printed_bnn")
    half = 2 / (run.config["step_size"] * run.config["num_leapfrog"]) ** 2
    assert round(half) == 12_800
    kept = run.config["num_steps"] - run.config["burn_in"]
    assert kept == 5_000 and round(kept / half, 2) == 0.39
    said = r"in $\tau/2 = 12{,}800$ proposals, so the 5,000 kept states are $y = 5{,}000/12{,}800 = 0.39$ of that time."
    assert said in told("08")


def test_which_means_of_the_printed_chains_are_similar():
    _, found = chains("hmc_printed_bnn")
    kept = found["trace"][:, 200:]  # every hundredth of 25,000 proposals, after 20,000
    assert found["trace"].shape == (8, 250, 46)
    first, all_weights = kept[:, :, 0].mean(1), kept.mean((1, 2))
    assert [round(float(end), 2) for end in (first.min(), first.max())] == [-1.96, 0.91]
    assert [round(float(end), 2) for end in (all_weights.min(), all_weights.max())] == [-0.10, 0.24]
    said = "means of the first weight run from −1.96 to 0.91. The mean over all 46 weights looks similar,"
    assert f"the eight chains' {said} −0.10 to 0.24, because it is small:" in told("08")


def test_rhat_of_the_printed_chains_predictions():
    _, found = chains("hmc_printed_bnn")
    rhat = found["rhat"]
    assert [round(float(value), 2) for value in (rhat.min(), rhat.median(), rhat.max())] == [1.14, 1.66, 2.76]
    said = rf"a median $\hat R$ of {rhat.median():.2f} between chains ({rhat.min():.2f} to {rhat.max():.2f})"
    assert said in told("08")


LOWER_LEFT, UPPER_RIGHT = (slice(3), slice(3)), (slice(-3, None), slice(-3, None))


def spread(probabilities):
    """Of draws (n, points, classes): root of the sum of variances, mean over the points."""
    return float(probabilities.var(0).sum(-1).sqrt().mean())


def test_the_printed_chains_spread_in_two_corners_and_their_effective_draws_there():
    for method, low, high in (("nuts", 0.158, 0.157), ("hmc_printed", 0.093, 0.191)):
        _, found = chains(f"{method}_bnn")
        spreads = found["sd"].reshape(13, 13, 4).square().sum(-1).sqrt()
        assert [round(float(spreads[corner].mean()), 3) for corner in (LOWER_LEFT, UPPER_RIGHT)] == [low, high]
    said = r"mean over $3\times3$ points is 0.093 (lower left) and 0.191 (upper right) where NUTS has 0.158 and 0.157."
    assert said in told("08")
    ess = found["ess"].reshape(13, 13, 4)
    draws = [round(float(ess[corner].mean())) for corner in (LOWER_LEFT, UPPER_RIGHT)]
    assert f"With {draws[0]} and {draws[1]} effective draws there neither difference is established" in told("08")


@pytest.mark.parametrize(
    ("corner", "draws", "sign", "found"), [(LOWER_LEFT, 14, -1, 0.093), (UPPER_RIGHT, 12, 1, 0.191)]
)
def test_as_few_states_of_nuts_are_as_far_off_one_time_in_six_or_seven(corner, draws, sign, found):
    run, nuts = chains("nuts_bnn")
    probabilities = quantities(posterior(run.config["posterior"], run.seed), nuts["trace"].double()).flatten(0, 1)
    there = probabilities.reshape(-1, 13, 13, 4)[(slice(None), *corner)].flatten(1, 2)
    rng = torch.Generator().manual_seed(0)
    picks = [spread(there[torch.randint(len(there), (draws,), generator=rng)]) for _ in range(2_000)]
    share = sum(sign * pick >= sign * found for pick in picks) / len(picks)
    assert 1 / 8 < share < 1 / 5 and "about one time in six or seven." in told("08")


def test_the_printed_trajectories_are_less_than_a_tenth_of_a_good_length():
    run, _ = chains("hmc_printed_regression")
    length = run.config["step_size"] * run.config["num_leapfrog"]
    variances = torch.linalg.eigvalsh(posterior(run.config["posterior"], run.seed).covariance)
    assert (length / variances.sqrt()).max() < 0.1 * torch.pi / 2
    assert r"The paper's trajectories are\nless than a tenth of a good length" in "".join(code("08"))
    assert r"A good length is about $T = \frac\pi2\sigma$" in told("08")


def test_on_four_classes_printed_hmc_is_nearer_than_svgd_on_two_seeds_and_level_on_one():
    found = Runs("classification-4")
    ours, svgd, exact = (found.metric(m, "total_variation").round(3) for m in ("hmc", "svgd", "gpvi_exact_jac"))
    assert (ours < svgd).sum() == 2 and (ours <= svgd).all() and (exact > svgd).all()
    said = "printed HMC is nearer to NUTS than SVGD on two of three seeds there and level on one"
    assert any(said in cell for cell in code("08"))
