"""Tables 4 to 8 of function-space POVI: lengths as printed, the released model, rows of the tables, small runs."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import ArcCosine, checkpoints, data
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.experiments import fpovi_uci as uci
from gpvi_lib.experiments.printed import printed_steps
from gpvi_lib.lab.experiment import RunContext
from gpvi_lib.report import scoreboard

BOSTON = EXPERIMENTS["fpovi-uci-boston"]


def context(seed=0) -> RunContext:
    return RunContext(torch.device("cpu"), seed, None, "test", False)


def problem(method="f_svgd", split=0):
    return uci.Problem(data.regression("diabetes", split), BOSTON.config(method, "smoke"), torch.device("cpu"))


def test_lengths_are_those_of_the_design():
    """Steps that the specification counts from the printed epochs."""
    expected = {
        "yacht": 1_500, "boston": 2_500, "concrete": 3_000, "energy": 3_500, "winered": 6_000,
        "kin8nm": 24_000, "power": 27_000, "naval": 33_000, "protein": 126_000,
    }  # fmt: skip
    found = {name: EXPERIMENTS[f"fpovi-uci-{name}"].config("f_svgd", "paper")["steps"] for name in uci.ROWS}
    assert found == expected
    for name in uci.ROWS:
        for score in EXPERIMENTS[f"fpovi-uci-{name}"].scores:
            assert printed_steps(score, "f_svgd") == expected[name]


@pytest.mark.parametrize("name", uci.ROWS)
def test_the_rows_of_a_set_are_the_real_ones(name):
    if not data.available(name):
        pytest.skip(f"{name} is not here: {data.how_to_get(name)}")
    rows, found = uci.ROWS[name], data.uci(name, 0)
    assert len(found.inputs) + len(found.test_inputs) == rows
    assert uci.steps_in_an_epoch(name) == math.ceil(len(found.inputs) / min(uci.epochs_and_batch(rows)[1], rows))


def test_splits_of_every_set():
    assert [len(EXPERIMENTS[f"fpovi-uci-{name}"].seeds("paper")) for name in ("yacht", "power", "protein")] == [
        20,
        5,
        1,
    ]
    assert BOSTON.data_sets("paper") == ("boston",) and BOSTON.data_sets("quick") == ()


def test_the_released_model_has_functions_of_variance_two():
    """Inputs of norm about 1 after the division: 1/2 · 50 · (1 + 1) / 50 = 1, and 1 of the output's bias."""
    target = problem().posterior
    assert_close(target.inputs.square().sum(1).mean(), torch.tensor(1.0), rtol=1e-3, atol=0)
    variance = ArcCosine().given(target).covariance(target.inputs).diagonal().mean()
    assert float(variance) == pytest.approx(2.0, abs=0.02)


def test_the_closed_form_row_has_the_target_of_the_existing_records():
    from gpvi_lib.experiments import uci_problem

    scaled, _, _ = data.regression("diabetes", 3).standardised()
    mine, theirs = problem("f_svgd_closed_form", 3).posterior, uci_problem.posterior(scaled)
    w = torch.randn(4, mine.dim, generator=torch.Generator().manual_seed(0)) * theirs.prior.scale
    assert_close(mine.log_prob(w), theirs.log_prob(w))


def test_particles_start_with_the_median_noise():
    config = BOSTON.config("f_svgd", "smoke") | {"steps": 0}
    found = uci.run(config, "f_svgd", context()).metrics
    _, _, factor = data.regression("diabetes", 0).standardised()
    assert found["noise"] == pytest.approx(0.5 * factor, rel=1e-5)


@pytest.mark.parametrize("method", BOSTON.methods)
def test_a_small_run(method):
    config = BOSTON.config(method, "smoke")
    first, again = (uci.run(config, method, context()) for _ in range(2))
    assert first.metrics == again.metrics and all(math.isfinite(value) for value in first.metrics.values())
    assert method == "gp" or first.arrays["history_step"].tolist() == [0, 5, 10]
    assert method == "gp" or first.arrays["history_rmse"][-1] == pytest.approx(first.metrics["rmse"])


def test_the_exact_process_is_solved_on_the_cpu_whatever_the_device():
    """The meta device computes nothing, so whatever ran there would fail."""
    here, there = (replace(context(), device=torch.device(device)) for device in ("cpu", "meta"))
    config = BOSTON.config("gp", "smoke")
    assert uci.run(config, "gp", here).metrics == uci.run(config, "gp", there).metrics


def test_a_row_without_prior_says_of_no_prior_what_it_is():
    """``prior_factor`` widens the prior of σ, too."""
    said = {method: BOSTON.deviations(method, "paper") for method in ("svgd", "svgd_without_prior")}
    assert "log-normal prior" in said["svgd"] and "log-normal prior" not in said["svgd_without_prior"]
    assert "no prior" in said["svgd_without_prior"]


@pytest.mark.parametrize("shape", ["-50-50", "-10-10"])
def test_a_small_run_of_two_layers(shape):
    experiment = EXPERIMENTS[f"fpovi-uci-yacht{shape}"]
    config = experiment.config("f_svgd", "smoke")
    assert config["hidden"] == [int(units) for units in shape[1:].split("-")]
    assert math.isfinite(experiment.run(config, "f_svgd", context()).metrics["nll"])


WIDE = EXPERIMENTS["fpovi-uci-boston-50-50"]


def test_table_6_alone_chooses_its_step_and_has_f_svgd_alone():
    wide = {name: one for name, one in EXPERIMENTS.items() if name.endswith("-50-50")}
    assert {name.split("-")[2] for name in wide} == set(uci.ROWS) - {"energy", "naval"}
    assert all(one.methods == ("f_svgd",) and len(one.scores) == 2 for one in wide.values())
    for name, one in EXPERIMENTS.items():
        for method in one.methods if name.startswith("fpovi-uci-") else ():
            held, said = one.config(method, "paper").get("validation"), one.deviations(method, "paper")
            assert held == (0.1 if name in wide else None)
            assert ("a tenth of the training part held out" in said) == (name in wide)
            released = not uci.is_ours(method) and method != "deep_ensemble"
            assert ("prior N(0, 1/outputs) of a layer" in said) == released
            jittered = one.config(method, "paper").get("objective", {}).get("points", {}).get("kind") == "jitter"
            assert ("points are jittered data" in said) == jittered


@pytest.fixture(scope="module")
def chosen():
    """A run that over-fits, whose last step is not its best."""
    config = WIDE.config("f_svgd", "smoke") | {"steps": 300, "history_every": 30}
    return config, uci.run(config, "f_svgd", context(1))


def test_held_out_rows_choose_the_step(chosen):
    _, found = chosen
    path = {key: found.arrays[f"history_{key}"].double() for key in ("step", "held_out_nll", "rmse", "nll")}
    at = 1 + int(path["held_out_nll"][1:].argmin())  # not the start
    assert 0 < at < len(path["step"]) - 1 and found.metrics["chosen_step"] == path["step"][at]
    for key in ("rmse", "nll"):
        assert found.metrics[key] == pytest.approx(float(path[key][at]))
        assert found.metrics[f"last_{key}"] == pytest.approx(float(path[key][-1]))
    assert found.metrics["last_nll"] > found.metrics["nll"]


def test_held_out_rows_are_a_tenth_of_the_training_part_and_the_split_s_own():
    whole = data.regression("diabetes", 3)
    kept, held = uci.hold_out(whole, 0.1, 3)
    rows = {tuple(row) for row in torch.cat([held.inputs, held.test_inputs]).tolist()}
    assert rows == {tuple(row) for row in whole.inputs.tolist()}
    assert len(held.test_targets) == 40 and len(kept.targets) == len(whole.targets) - 40
    assert torch.equal(kept.test_inputs, whole.test_inputs) and torch.equal(kept.inputs, held.inputs)
    again, other = (uci.hold_out(whole, 0.1, seed)[1].test_inputs for seed in (3, 4))
    assert torch.equal(again, held.test_inputs) and not torch.equal(other, again)


def test_no_test_row_takes_part_in_the_choice(chosen, monkeypatch):
    config, found = chosen
    own = data.regression("diabetes", 1)
    moved = data.RegressionData(own.inputs, own.targets, own.test_inputs.flip(0) * 2, own.test_targets + 100)
    monkeypatch.setattr(uci, "regression", lambda name, split: moved)
    other = uci.run(config, "f_svgd", context(1))
    assert torch.equal(other.arrays["history_held_out_nll"], found.arrays["history_held_out_nll"])
    assert other.metrics["chosen_step"] == found.metrics["chosen_step"] and other.metrics["nll"] != found.metrics["nll"]


def test_a_chosen_step_survives_an_interruption(tmp_path):
    config = WIDE.config("f_svgd", "smoke") | {"steps": 12, "history_every": 4}
    whole = uci.run(config, "f_svgd", context())
    own, stops = RunContext(torch.device("cpu"), 0, tmp_path / "fit.pt", "test", False), 0
    while True:
        try:
            with checkpoints.deadline(0.0 if stops < 8 else None):  # over after every step, past the second look
                parts = uci.run(config, "f_svgd", own)
            break
        except OutOfTime:
            stops += 1
    assert stops == 8 and parts.metrics == whole.metrics
    assert all(torch.equal(parts.arrays[name], array) for name, array in whole.arrays.items())


def test_without_its_prior_svgd_follows_the_likelihood_alone():
    flat, own = (problem(method).posterior.prior for method in ("svgd_without_prior", "svgd"))
    assert_close(flat.scale, uci.FLAT * own.scale)
    w = own.scale.clone().requires_grad_()
    (slope,) = torch.autograd.grad(flat.log_prob(w[None]).sum(), w)
    assert float((slope * own.scale).abs().max()) < 1e-10  # where the prior's own is 1


def test_svgd_and_f_svgd_are_taken_apart_into_repulsion_and_prior():
    weights, functions = (BOSTON.config(method, "paper") for method in ("svgd", "f_svgd"))
    prior, f_prior = (BOSTON.config(method, "paper") for method in ("map_ensemble", "f_map_ensemble"))
    pushed, f_pushed = (BOSTON.config(f"{method}_without_prior", "paper") for method in ("svgd", "f_svgd"))
    assert pushed == weights | {"prior_factor": uci.FLAT}
    assert prior == weights | {"objective": weights["objective"] | {"direction": uci.REPULSION_OFF}}
    assert f_prior == functions | {"objective": functions["objective"] | {"direction": uci.REPULSION_OFF}}
    assert f_pushed == functions | {"objective": functions["objective"] | {"prior": None, "prior_points": None}}
    for name in uci.ROWS:
        experiment = EXPERIMENTS[f"fpovi-uci-{name}"]
        assert set(uci.TAKEN_APART) <= set(experiment.methods) or name not in uci.TAKEN_APART_ON
        assert not any(set(experiment.methods_of(score)) & set(uci.TAKEN_APART) for score in experiment.scores)


def test_training_beats_the_mean_of_the_targets():
    config = BOSTON.config("f_svgd", "quick") | {"steps": 300, "history_every": 300}
    found = uci.run(config, "f_svgd", context()).metrics
    raw = data.regression("diabetes", 0)
    constant = float((raw.test_targets - raw.targets.mean()).square().mean().sqrt())
    assert found["rmse"] < 0.9 * constant


def test_every_published_row_of_tables_4_to_8_has_its_run():
    published = {
        (row.item, row.method, row.metric)
        for row in scoreboard.published()
        if row.item.split("/")[1] in ("table4", "table5", "table6", "table7", "table8")
        and row.item.startswith("fpovi/")
    }
    filled = {
        (score.item, experiment.row(method, score)[0], score.metric)
        for experiment in EXPERIMENTS.values()
        if experiment.name.startswith("fpovi-uci-")
        for score in experiment.scores
        for method in experiment.methods_of(score)
    }
    assert filled >= published


def test_the_exact_process_interpolates_where_noise_is_small_and_gives_the_prior_where_it_is_large():
    own = problem()
    near, far = (uci.exact_process(own, [noise])[0] for noise in (1e-3, 1e3))
    assert_close(far.mean, far.mean.mean().expand_as(far.mean), rtol=0, atol=0.05 * float(own.factor))
    seen = uci.Problem(own_data := data.regression("diabetes", 0), uci.config("boston", (50,), "gp", "quick"), "cpu")
    seen.inputs = seen.posterior.inputs
    fitted = uci.exact_process(seen, [1e-3])[0].mean
    assert_close(fitted, own_data.targets.double(), rtol=0, atol=0.05 * float(own.factor))
    assert near.mean.std() > 10 * far.mean.std()


def test_the_noise_of_the_exact_process_is_the_most_likely_one():
    own = problem()
    assert uci.exact_process(own, [1e-3, 0.7, 50.0])[1] == 0.7


def test_protein_has_a_hundred_units_where_the_others_have_fifty():
    """Section 5.2.1 and appendix B.2.3 of the paper; 10-10 is 10-10."""
    found = {
        shape: EXPERIMENTS[f"fpovi-uci-protein{shape}"].config("f_svgd", "paper") for shape in ("", "-50-50", "-10-10")
    }
    assert [config["hidden"] for config in found.values()] == [[100], [100, 100], [10, 10]]
    assert found["-50-50"]["validation"] == 0.1 and "validation" not in found[""]
