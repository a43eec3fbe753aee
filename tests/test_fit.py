"""The training loop: resuming bit for bit, refusing what cannot work, and reaching Gaussians."""

import enum
import itertools
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import constraints
from torch.testing import assert_close
from tqdm.auto import tqdm

from gpvi_lib import checkpoints, fitting
from gpvi_lib.directions import GFSF, SVGD, SteinCritic
from gpvi_lib.errors import CannotWrite, DivergedError, FoldWarning, GPVIError, OutOfTime
from gpvi_lib.fitting import Minibatches, Training, fit
from gpvi_lib.function_space import FunctionSpaceParVI
from gpvi_lib.hamiltonian import hmc
from gpvi_lib.inverse import BiCGSTABInverse, HelperInverse
from gpvi_lib.kernels import RBF
from gpvi_lib.langevin import LangevinNetwork
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.objectives import GPVI, MaximumLikelihood, NegativeELBO, OrientedELBO, ParVI
from gpvi_lib.optimizers import Adam, Optimizer
from gpvi_lib.paths import repository
from gpvi_lib.samplers import Generator, MeanField, Particles
from gpvi_lib.targets import (
    BayesianLinearRegression,
    ClassificationPosterior,
    Constrained,
    Gaussian,
    LearnedNoise,
    NormalLikelihood,
    Posterior,
)
from gpvi_lib.trust import check

DIM = 3


def regression() -> BayesianLinearRegression:
    rng = torch.Generator().manual_seed(11)
    return BayesianLinearRegression(torch.randn(20, DIM, generator=rng), torch.randn(20, generator=rng))


def generator(rng) -> Generator:
    return Generator(DIM, 2, (5,), noise_scale=0.5, train_noise_scale=True, rng=rng)


def particles(rng) -> Particles:
    return Particles(torch.randn(6, DIM, generator=rng))


def mean_field(rng) -> MeanField:
    return MeanField(torch.randn(DIM, generator=rng))


HELPER = {"width": 6, "num_layers": 1, "lr": 1e-2}
CASES = {
    "svgd": (particles, lambda: ParVI(SVGD())),
    "amortised gfsf": (generator, lambda: ParVI(GFSF(), 6)),
    "stein critic": (particles, lambda: ParVI(SteinCritic((6,), lr=1e-2))),
    "gpvi block": (generator, lambda: GPVI(6)),
    "gpvi helper": (generator, lambda: GPVI(6, HelperInverse(**HELPER))),
    "gpvi bicgstab": (generator, lambda: GPVI(6, BiCGSTABInverse(max_iterations=1, warm_start=True))),
    "elbo": (generator, lambda: NegativeELBO(6)),
    "mean field": (mean_field, lambda: NegativeELBO(6)),
    "ensemble": (particles, MaximumLikelihood),
}


RATES = ("lr", "final_lr", "noise_scale_lr", "weight_decay")


class Killed(BaseException):
    """As from outside: nothing is saved then."""


def train(case, *, seed=5, steps=12, callback=None, checkpoint=None, **arguments):
    """One run from fresh objects, as a new process would make them; everything that must come out the same."""
    make_sampler, make_objective = CASES[case]
    rng = torch.Generator().manual_seed(seed)
    sampler, objective = make_sampler(rng), make_objective()
    rates = {"lr": 0.05, "final_lr": 1e-3} | {name: arguments.pop(name) for name in RATES if name in arguments}
    arguments = {"batch_size": 8, "callback_every": 1, "optimizer": Adam(**rates)} | arguments
    result = fit(
        sampler, regression(), objective, steps=steps, rng=rng, callback=callback or summary,
        checkpoint=checkpoint, checkpoint_seconds=0, progress=False, **arguments,
    )  # fmt: skip
    kept = {"history": result.history, "diagnostics": result.diagnostics}
    return {"sampler": sampler.state_dict(), "rng": rng.get_state()} | kept


def summary(step, sampler):
    return {"sum": float(sum(p.detach().double().sum() for p in sampler.parameters()))}


def killer(*steps):
    left = set(steps)

    def callback(step, sampler):
        if step in left:
            left.remove(step)
            raise Killed
        return summary(step, sampler)

    return callback


def assert_identical(one, other):
    assert one["history"] == other["history"] and one["diagnostics"] == other["diagnostics"]
    assert torch.equal(one["rng"], other["rng"])
    assert one["sampler"].keys() == other["sampler"].keys()
    for name, value in one["sampler"].items():
        assert torch.equal(value, other["sampler"][name]), name


@pytest.mark.parametrize("minibatches", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(case, minibatches, tmp_path):
    arguments = {"batch_size": 8} if minibatches else {"batch_size": None, "final_lr": None}
    expected = train(case, **arguments)
    callback, checkpoint = killer(1, 4, 5, 12), tmp_path / "folder" / "run.pt"
    for _ in range(4):
        with pytest.raises(Killed):
            train(case, callback=callback, checkpoint=checkpoint, **arguments)
    assert_identical(train(case, callback=callback, checkpoint=checkpoint, **arguments), expected)
    # Complete: calling it once more runs nothing, and gives the same.
    assert_identical(train(case, callback=killer(*range(13)), checkpoint=checkpoint, **arguments), expected)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_complete_can_be_called_again_and_then_go_on(case, tmp_path):
    arguments = {"final_lr": None, "checkpoint": tmp_path / "run.pt"}
    for steps in (6, 6):
        train(case, steps=steps, **arguments)
    assert_identical(train(case, **arguments), train(case, final_lr=None))


def test_checkpoints_do_not_change_a_run(tmp_path):
    assert_identical(train("gpvi helper", checkpoint=tmp_path / "run.pt"), train("gpvi helper"))


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"case": "amortised gfsf"}, "objective, .*"),
        (
            {"case": "mean field"},
            "sampler, first parameters, .*sampler.noise_dim, sampler.activation, sampler.input_stdev, .*",
        ),
        ({"batch_size": 10}, "batch_size, target"),
        ({"lr": 0.06, "weight_decay": 0.1}, "lr, weight_decay"),
        ({"lr": 0.05 * (1 + 1e-6)}, "lr"),
        ({"steps": 13}, "steps, over which the rate decays"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(changes, differs, tmp_path):
    checkpoint = tmp_path / "run.pt"
    train("elbo", checkpoint=checkpoint)
    with pytest.raises(
        GPVIError, match=rf"run.pt is the checkpoint of another run \(what differs: {differs}\): delete"
    ):
        train(**{"case": "elbo"} | changes, checkpoint=checkpoint)


def test_the_checkpoint_of_other_data_is_refused_and_that_of_a_longer_run(tmp_path):
    checkpoint = str(tmp_path / "run.pt")
    arguments = {"checkpoint": checkpoint, "checkpoint_seconds": 0}
    rng = torch.Generator().manual_seed(11)
    inputs, targets = torch.randn(20, DIM, generator=rng), torch.randn(20, generator=rng)
    fit_particles(BayesianLinearRegression(inputs, targets), **arguments)
    with pytest.raises(GPVIError, match=r"\(what differs: target, target.targets\)"):
        fit_particles(BayesianLinearRegression(inputs, targets + 5), **arguments)
    with pytest.raises(GPVIError, match="is 9 steps on already, more than steps = 8"):
        fit_particles(BayesianLinearRegression(inputs, targets), steps=8, **arguments)
    longer = fit_particles(
        BayesianLinearRegression(inputs, targets), steps=11, **arguments
    )  # constant rate: it goes on
    assert longer.seconds > 0


def test_a_setting_that_only_the_first_run_had_is_named(tmp_path):
    checkpoint = tmp_path / "run.pt"
    train("elbo", checkpoint=checkpoint)
    with pytest.raises(GPVIError, match=r"\(what differs: final_lr, steps, over which the rate decays\)"):
        train("elbo", checkpoint=checkpoint, final_lr=None)


@pytest.mark.parametrize("elsewhere", [math.nan, "refused"])
def test_a_target_that_is_not_defined_everywhere_can_be_resumed(elsewhere, tmp_path):
    """The identity of a run looks at the target at a point of its own, which may lie outside."""

    def far_from_zero(x):
        inside = x.norm(dim=-1) > 0.5
        if elsewhere == "refused" and not bool(inside.all()):
            raise ValueError("outside the support")
        return torch.where(inside, -0.5 * x.square().sum(-1), math.nan)

    checkpoint = tmp_path / "run.pt"
    for steps in (2, 4):  # small steps, so that no point comes near zero
        rng = torch.Generator().manual_seed(0)
        sampler = Particles(torch.randn(6, DIM, generator=rng) + 3)
        arguments = {
            "optimizer": Adam(1e-3),
            "rng": rng,
            "progress": False,
            "checkpoint": checkpoint,
            "checkpoint_seconds": 0,
        }
        fit(sampler, Bare(far_from_zero), ParVI(), steps=steps, **arguments)
    assert torch.load(checkpoint, weights_only=True)["step"] == 4


def test_a_small_change_of_the_data_is_another_run_and_so_is_an_earlier_version(tmp_path):
    checkpoint = tmp_path / "run.pt"
    train("elbo", checkpoint=checkpoint)
    state = checkpoints.load(checkpoint, torch.device("cpu"))
    known = state["run"]["target"]
    state["run"]["target"] = [value * (1 + 1e-4) for value in known]
    checkpoints.save(checkpoint, state)
    with pytest.raises(GPVIError, match=r"\(what differs: target\)"):
        train("elbo", checkpoint=checkpoint)
    state["run"] |= {"target": known, "device": "cuda"}
    checkpoints.save(checkpoint, state)
    with pytest.raises(GPVIError, match=r"\(what differs: device\)"):
        train("elbo", checkpoint=checkpoint)
    del state["run"]
    checkpoints.save(checkpoint, state)
    with pytest.raises(GPVIError, match="run.pt is the checkpoint of another run"):
        train("elbo", checkpoint=checkpoint)


def test_a_digest_tells_permuted_columns_other_shapes_and_other_types_apart():
    x = torch.arange(6.0).view(2, 3)
    others = [x[:, [1, 0, 2]], x.view(3, 2), x.double(), x.mT.contiguous().mT[[1, 0]], -x]
    (same,) = {checkpoints.digest({"x": one})["x"] for one in (x, x.clone(), x.mT.contiguous().mT)}
    found = {checkpoints.digest({"x": one})["x"] for one in others}
    assert len(found) == len(others) and same not in found
    assert checkpoints.digest({"x": torch.tensor(1.0)}) != checkpoints.digest({"x": torch.tensor(2.0)})
    one, stretched = torch.ones(1), torch.tensor(1.0).expand(1)  # of stride 0
    assert checkpoints.digest({"x": one}) == checkpoints.digest({"x": stretched})


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04garbage", b"\x80\x02\xff", b"\x80\x02cos\nsystem\n."])
def test_a_file_that_is_no_checkpoint_is_named(content, tmp_path):
    checkpoint = tmp_path / "run.pt"
    checkpoint.write_bytes(content)
    with pytest.raises(GPVIError, match=r"run.pt is no checkpoint or is damaged: delete it"):
        train("svgd", checkpoint=checkpoint)


@pytest.mark.parametrize("content", [3, [1, 2], {}, {"run": {}}, {"step": -5}, {"checksum": "0"}, torch.zeros(2)])
def test_a_foreign_file_of_torch_is_no_checkpoint(content, tmp_path):
    torch.save(content, tmp_path / "run.pt")
    with pytest.raises(GPVIError, match=r"run.pt is no checkpoint or is damaged: delete it"):
        train("svgd", checkpoint=tmp_path / "run.pt")


def test_a_folder_is_no_checkpoint(tmp_path):
    (tmp_path / "run.pt").mkdir()
    with pytest.raises(GPVIError, match=r"cannot write .*run.pt: it is a folder; give another path as checkpoint"):
        train("svgd", checkpoint=tmp_path / "run.pt")


def test_a_changed_value_in_a_checkpoint_is_damage(tmp_path):
    checkpoint = tmp_path / "run.pt"
    train("svgd", checkpoint=checkpoint)
    for change in (lambda state: state.update(step=-5), lambda state: state["sampler"]["x"][0].mul_(1 + 1e-6)):
        state = torch.load(checkpoint, weights_only=True)
        change(state)
        torch.save(state, tmp_path / "changed.pt")
        with pytest.raises(GPVIError, match=r"changed.pt is no checkpoint or is damaged: delete it"):
            train("svgd", checkpoint=tmp_path / "changed.pt")


def test_no_cut_and_no_flipped_bit_goes_unnoticed(tmp_path):
    """Either one error, or a bit that carries nothing (padding, dates): then the content is the same."""
    checkpoint, cpu, refused = tmp_path / "run.pt", torch.device("cpu"), 0
    train("svgd", checkpoint=checkpoint)
    content, expected = checkpoint.read_bytes(), checkpoints.checksum(checkpoints.load(checkpoint, cpu))
    random.seed(0)
    for attempt in range(300):
        place, bit = random.randrange(len(content)), 1 << random.randrange(8)
        flipped = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        checkpoint.write_bytes(content[:place] if attempt % 3 == 0 else flipped)
        try:
            assert checkpoints.checksum(checkpoints.load(checkpoint, cpu)) == expected
        except GPVIError as error:
            assert "is no checkpoint or is damaged: delete it" in str(error)
            refused += 1
    assert refused >= 100  # every cut at least


def test_another_seed_is_another_run(tmp_path):
    checkpoint = tmp_path / "run.pt"
    with pytest.raises(Killed):
        train("gpvi helper", callback=killer(6), checkpoint=checkpoint)
    with pytest.raises(GPVIError, match=r"\(what differs: seed, first parameters\)"):
        train("gpvi helper", seed=99, checkpoint=checkpoint)


def test_another_start_is_another_run(tmp_path):
    def run(start, **arguments):
        rng = torch.Generator().manual_seed(0)
        sampler = Particles(torch.full((6, DIM), start) + torch.randn(6, DIM, generator=rng))
        fit(sampler, regression(), ParVI(), steps=9, optimizer=Adam(lr=0.1), rng=rng, progress=False, **arguments)
        return sampler.x.detach()

    settings = {"callback": killer(6), "callback_every": 1, "checkpoint": tmp_path / "run.pt", "checkpoint_seconds": 0}
    with pytest.raises(Killed):
        run(0.0, **settings)
    with pytest.raises(GPVIError, match=r"\(what differs: first parameters\)"):
        run(7.0, **settings)
    with pytest.raises(GPVIError, match=r"\(what differs: callback_every\)"):
        run(0.0, **settings | {"callback_every": 2})
    assert torch.equal(run(0.0, **settings), run(0.0))


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"noise_scale": 0.05, "train_noise_scale": True}, "first parameters"),
        ({"output_scale": torch.tensor([2.0, 1.0])}, "first parameters"),
    ],
)
def test_another_start_of_a_generator_is_another_run(changes, differs, tmp_path):
    def run(arguments):
        rng = torch.Generator().manual_seed(0)
        sampler = Generator(2, 2, (5,), rng=rng, **arguments)
        settings = {"optimizer": Adam(lr=0.1), "rng": rng.manual_seed(0), "progress": False}
        fit(sampler, Gaussian(*START), GPVI(5), steps=2, checkpoint=tmp_path / "run.pt", **settings)

    start = {"train_noise_scale": True, "output_scale": torch.ones(2)}
    run(start)
    with pytest.raises(GPVIError, match=rf"\(what differs: {differs}\)"):
        run(start | changes)
    run(start)


START = torch.zeros(2), torch.eye(2)
GENERATOR = {"noise_scale": 1.0, "activation": "relu", "input_stdev": 1.0, "dtype": torch.float32}


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"noise_scale": 0.05}, "sampler.log_noise_scale"),
        ({"activation": "tanh"}, "sampler.activation"),
        ({"input_stdev": 6.0}, "sampler.input_stdev"),
        ({"dtype": torch.float64}, "sampler, target, sampler.log_noise_scale, first parameters, target.mean, .*"),
    ],
)
def test_another_sampler_of_the_same_shape_is_another_run(changes, differs, tmp_path):
    def run(arguments):
        rng = torch.Generator().manual_seed(0)
        sampler = Generator(2, 2, (5,), rng=rng, **arguments)
        normal = Gaussian(torch.zeros(2, dtype=arguments["dtype"]), torch.eye(2, dtype=arguments["dtype"]))
        fit(
            sampler,
            normal,
            GPVI(5),
            steps=2,
            optimizer=Adam(lr=0.1),
            rng=rng,
            progress=False,
            checkpoint=tmp_path / "run.pt",
        )

    run(GENERATOR)
    with pytest.raises(GPVIError, match=rf"\(what differs: {differs}\)"):
        run(GENERATOR | changes)


def test_other_rows_of_the_same_data_are_another_run(tmp_path):
    """As in a cross-validation: the folds may have their first batch in common."""
    rng = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(9, 2, generator=rng), torch.arange(9) % 2
    rows = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([0, 1, 2, 6, 7, 8])
    for row, error in zip(rows, (None, "target, target.inputs"), strict=True):
        posterior = ClassificationPosterior(FlatModule(mlp([2, 2])), inputs[row], labels[row])
        sampler, own = MeanField(torch.zeros(posterior.dim)), torch.Generator().manual_seed(0)
        settings = {"steps": 2, "optimizer": Adam(0.1), "rng": own, "batch_size": 3, "progress": False}
        if error is None:
            fit(sampler, posterior, NegativeELBO(2), checkpoint=tmp_path / "run.pt", **settings)
        else:
            with pytest.raises(GPVIError, match=rf"\(what differs: {error}"):
                fit(sampler, posterior, NegativeELBO(2), checkpoint=tmp_path / "run.pt", **settings)


def test_a_complete_run_is_kept_at_the_default_interval(tmp_path):
    for _ in range(2):
        rng = torch.Generator().manual_seed(0)
        sampler = Particles(torch.randn(6, DIM, generator=rng))
        fit(
            sampler,
            regression(),
            ParVI(),
            steps=9,
            optimizer=Adam(lr=0.1),
            rng=rng,
            progress=False,
            checkpoint=tmp_path / "run.pt",
        )
        found = sampler.x.detach().clone()
    assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] == 9
    rng = torch.Generator().manual_seed(0)
    sampler = Particles(torch.randn(6, DIM, generator=rng))
    fit(sampler, regression(), ParVI(), steps=9, optimizer=Adam(lr=0.1), rng=rng, progress=False)
    assert torch.equal(found, sampler.x.detach())


def test_a_singular_jacobian_is_a_divergence(rng):
    dead = Generator(2, 2, (5,), noise_scale=None, activation="relu", rng=rng)  # no hidden unit is on
    with torch.no_grad():
        dead.hidden[0].weight.zero_()
        dead.hidden[0].bias.fill_(-1.0)
    with pytest.raises(DivergedError, match="toy: step 1: a matrix is singular; .* noise_scale"):
        fit(
            dead,
            Gaussian(torch.zeros(2), torch.eye(2)),
            GPVI(4),
            steps=3,
            optimizer=Adam(lr=0.1),
            rng=rng,
            label="toy",
            progress=False,
        )


def test_a_checkpoint_cut_short_leaves_the_one_before(monkeypatch, tmp_path):
    checkpoint, plain, calls = tmp_path / "run.pt", torch.save, []

    def save(state, file):
        plain(state, file)
        calls.append(file)
        if len(calls) == 5:
            file.truncate(file.tell() // 2)
            raise Killed

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(Killed):
        train("svgd", checkpoint=checkpoint)
    assert torch.load(checkpoint, weights_only=True)["step"] == 4
    assert_identical(train("svgd", checkpoint=checkpoint), train("svgd"))


VICTIM = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_fit import summary, train

def until_killed(step, sampler):
    if step >= 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return summary(step, sampler)

train("gpvi helper", steps=100, callback=until_killed, checkpoint=Path(sys.argv[2]))
"""


def test_a_run_that_is_killed_can_be_resumed(tmp_path):
    """Between two checkpoints here; within the writing of one above."""
    checkpoint = tmp_path / "run.pt"
    command = [sys.executable, "-c", VICTIM, os.path.dirname(__file__), str(checkpoint)]
    victim = subprocess.run(command, cwd=repository(), check=False)
    assert victim.returncode == -signal.SIGKILL
    assert 1 <= torch.load(checkpoint, weights_only=True)["step"] <= 40
    assert_identical(train("gpvi helper", steps=100, checkpoint=checkpoint), train("gpvi helper", steps=100))


@pytest.mark.parametrize("name", ["file/below.pt", "/proc/none/x.pt", ".", "x" * 300])
def test_a_checkpoint_that_cannot_be_written_is_noticed_before_training(name, tmp_path):
    (tmp_path / "file").write_text("no folder")
    seen = []
    with pytest.raises(CannotWrite, match="cannot write .*; give another path as checkpoint") as caught:
        train("ensemble", checkpoint=tmp_path / name, callback=lambda *call: seen.append(call))
    assert seen == [] and "\n" not in str(caught.value)


@pytest.mark.parametrize("fill", [0, 1000])
def test_a_full_disk_ends_a_run_and_keeps_the_checkpoint_before(fill, tmp_path, monkeypatch):
    """The disk takes so many more bytes of the second checkpoint and no more, at the hands of the operating system."""
    path, write = tmp_path / "run.pt", checkpoints.write_atomically
    train("ensemble", checkpoint=path, steps=4, optimizer=Adam(lr=0.05))
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (fill, limits[1]))
        try:
            write(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with pytest.raises(CannotWrite, match=r"^cannot write .*run.pt: File too large$"):
        train("ensemble", checkpoint=path, steps=8, optimizer=Adam(lr=0.05))
    monkeypatch.undo()
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    train("ensemble", checkpoint=path, steps=8, optimizer=Adam(lr=0.05))


def test_a_run_stopped_for_time_can_be_resumed(tmp_path):
    checkpoint, stops = tmp_path / "run.pt", 0
    with checkpoints.deadline(time.time()):
        while True:
            try:
                result = train("gpvi helper", steps=5, checkpoint=checkpoint)
                break
            except OutOfTime as error:
                stops += 1
                assert "time is up; what was done is kept" in str(error)
                assert torch.load(checkpoint, weights_only=True)["step"] == stops
    assert stops == 5  # at each step, the last one too
    assert_identical(result, train("gpvi helper", steps=5))


def test_without_a_checkpoint_there_is_no_deadline():
    with checkpoints.deadline(time.time()):
        assert_identical(train("gpvi helper", steps=2), train("gpvi helper", steps=2))


def test_history_has_the_start_every_so_many_steps_and_the_end():
    calls = []
    result = train(
        "svgd", steps=7, callback_every=3, callback=lambda step, sampler: calls.append(step) or {"twice": 2.0 * step}
    )
    assert calls == [0, 3, 6, 7]
    assert result["history"] == [{"step": s, "twice": 2.0 * s} for s in calls]


def test_diagnostics_are_kept_a_hundred_times_a_run():
    for steps, kept in ((7, [*range(1, 8)]), (250, [*range(3, 250, 3), 250])):
        diagnostics = train("elbo", steps=steps)["diagnostics"]
        assert [row["step"] for row in diagnostics] == kept
        assert all(row.keys() == {"step", "elbo", "folds"} and math.isfinite(row["elbo"]) for row in diagnostics)


def test_a_callback_may_return_nothing():
    assert train("svgd", steps=2, callback=lambda step, sampler: None)["history"] == [{"step": s} for s in range(3)]


@pytest.mark.parametrize("returned", [0.1, 0, [1.0], "error", {"error": "much"}, {"error": torch.zeros(2)}])
def test_a_callback_that_returns_no_numbers_by_name_is_refused(returned):
    with pytest.raises(GPVIError, match=r"callback must return numbers by name.* at step 0"):
        train("svgd", steps=2, callback=lambda step, sampler: returned)


@pytest.mark.parametrize("at", [0, 3, 8, 12])
@pytest.mark.parametrize("fails", [lambda: 1 / 0, lambda: "no numbers"], ids=["raises", "returns no numbers"])
def test_a_callback_that_fails_loses_no_step(fails, at, tmp_path):
    """Saved once an hour: all steps before are there, and the callback is asked at that step again."""
    mended, asked = [], []

    def callback(step, sampler):
        asked.append(step)
        return summary(step, sampler) if step != at or mended else fails()

    arguments = {"callback": callback, "checkpoint": tmp_path / "run.pt", "checkpoint_seconds": 3_600}
    settings = {"steps": 12, "callback_every": 1, "optimizer": Adam(0.05), "batch_size": 8, "progress": False}

    def run(seed=5, **arguments):
        rng = torch.Generator().manual_seed(seed)
        sampler = MeanField(torch.zeros(DIM), 0.5)
        result = fit(sampler, regression(), NegativeELBO(8), rng=rng, **settings | arguments)
        return {"sampler": sampler.state_dict(), "rng": rng.get_state()} | {
            "history": result.history,
            "diagnostics": result.diagnostics,
        }

    with pytest.raises((ZeroDivisionError, GPVIError)):
        run(**arguments)
    mended.append(True)
    assert_identical(run(**arguments), run(callback=summary))
    assert asked == [*range(at + 1), *range(at, 13)]


def test_seconds_leave_the_interruption_and_the_callback_out():
    rng = torch.Generator().manual_seed(0)
    started = time.perf_counter()
    result = fit(
        particles(rng), regression(), ParVI(), steps=3, optimizer=Adam(lr=0.1), rng=rng, progress=False,
        callback=lambda step, sampler: time.sleep(0.05) or {}, callback_every=1,
    )  # fmt: skip
    assert 0 < result.seconds <= time.perf_counter() - started - 4 * 0.05


def test_seconds_of_a_resumed_fit_are_those_of_all_steps(tmp_path, monkeypatch):
    """By a clock that ticks whenever it is asked, which is before and after a step."""
    ticks = itertools.count()
    clock = SimpleNamespace(**vars(time) | {"perf_counter": lambda: next(ticks)})
    monkeypatch.setattr(sys.modules["gpvi_lib.fitting"], "time", clock)
    for steps in (4, 10):
        rng = torch.Generator().manual_seed(0)
        settings = {"optimizer": Adam(lr=0.1), "rng": rng, "checkpoint": tmp_path / "run.pt", "progress": False}
        assert fit(particles(rng), regression(), ParVI(), steps=steps, **settings).seconds == steps


def rates_of_every_step(monkeypatch) -> list[list[float]]:
    seen, plain = [], Training.advance
    rates = lambda training: [group["lr"] for group in training.optimizer.param_groups]  # noqa: E731
    monkeypatch.setattr(Training, "advance", lambda self: seen.append(rates(self)) or plain(self))
    return seen


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "noise_scale_lr": 0.2}], ids=["plain", "two groups"])
def test_adam_is_pytorchs(case, settings, monkeypatch):
    """The step that leaves PyTorch's hooks out, against the one that does not: bit for bit."""
    if settings and CASES[case][0] is not generator:
        settings = {"weight_decay": 0.1}
    expected = train(case, **settings)
    monkeypatch.setattr(sys.modules["gpvi_lib.fitting"], "_step_of_adam", lambda optimizer: optimizer.step())
    assert_identical(train(case, **settings), expected)


@pytest.mark.parametrize(
    "make", [partial(torch.optim.AdamW, lr=0.05, fused=True), partial(torch.optim.Adam, lr=0.05, amsgrad=True)]
)
def test_an_optimizer_of_torch_is_used_as_it_is(make, tmp_path):
    """Also one that is fused, which must not be taken for ours; and it resumes."""
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(6, DIM, generator=rng)
    by_hand = torch.nn.Parameter(start.clone())
    plain = make([by_hand])
    for _ in range(4):
        plain.zero_grad()
        by_hand.square().sum().backward()
        plain.step()

    def run(steps, make=make):
        sampler, own = Particles(start), torch.Generator().manual_seed(0)
        arguments = {"optimizer": make, "rng": own, "progress": False, "checkpoint": tmp_path / "run.pt"}
        fit(sampler, Bare(lambda x: -x.square().sum(-1)), MaximumLikelihood(), steps=steps, **arguments)
        return sampler.x.detach()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaximumLikelihood, "__call__", lambda self, s, t, b, r: (-t.log_prob(s.x).sum(), {}))
        run(2)
        assert torch.equal(run(4), by_hand.detach())
        with pytest.raises(GPVIError, match=r"\(what differs: optimizer"):
            run(4, partial(torch.optim.RMSprop, lr=0.05))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        *[({"lr": lr}, "lr") for lr in (0.0, -1.0, math.nan, math.inf, "1e-3")],
        *[({"lr": 1, name: -1e-3}, name) for name in ("final_lr", "noise_scale_lr", "weight_decay")],
    ],
)
def test_a_rate_that_cannot_be_is_refused(wrong, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        Adam(**wrong)


def test_a_rate_falls_and_does_not_rise():
    with pytest.raises(GPVIError, match=r"final_lr is where the rate falls to, got 1 above lr = 0.001"):
        Adam(1e-3, final_lr=1.0)
    assert Adam(1e-3, final_lr=1e-3).lr_at(step=5, steps=10) == pytest.approx(1e-3)


def test_learning_rate_follows_half_a_cosine(monkeypatch):
    seen = rates_of_every_step(monkeypatch)
    train("svgd", steps=4, final_lr=0.01)
    assert_close(seen, [[0.01 + 0.04 * (1 + math.cos(math.pi * step / 4)) / 2] for step in range(4)])
    seen.clear()
    train("svgd", steps=4, final_lr=None)
    assert seen == [[0.05]] * 4


@pytest.mark.parametrize("final_lr", [None, 0.01])
def test_the_noise_scale_can_have_a_rate_of_its_own(final_lr, monkeypatch):
    seen = rates_of_every_step(monkeypatch)
    ends = [train("elbo", steps=1, final_lr=final_lr, noise_scale_lr=rate)["sampler"] for rate in (0.2, None)]
    assert_close(seen[0], [0.05, 0.2])
    moved = (ends[0]["log_noise_scale"] - math.log(0.5)).abs()
    assert_close(moved, torch.full_like(moved, 0.2), atol=1e-3, rtol=0)  # Adam's first step is the rate
    assert torch.equal(ends[0]["output.weight"], ends[1]["output.weight"])
    train("elbo", steps=3, final_lr=final_lr, noise_scale_lr=0.2)
    assert_close(seen[-1][1] / seen[-1][0], 4.0)


def test_a_rate_of_the_noise_scale_survives_an_interruption(tmp_path):
    arguments = {"noise_scale_lr": 0.2, "steps": 6}
    with pytest.raises(Killed):
        train("elbo", callback=killer(3), checkpoint=tmp_path / "run.pt", **arguments)
    assert_identical(train("elbo", checkpoint=tmp_path / "run.pt", **arguments), train("elbo", **arguments))


def test_a_rate_without_a_noise_scale_is_refused():
    with pytest.raises(ValueError, match="Particles has none"):
        train("svgd", noise_scale_lr=0.1)


# What cannot work


class Bare:
    """A target around a function of the points."""

    num_data = None

    def __init__(self, function, dim=DIM):
        self.log_prob, self.dim = lambda x, batch=None: function(x), dim


class Far(Bare):
    """A target whose data, in a container, move it only where no probe looks."""

    def __init__(self, parts):
        super().__init__(lambda x: -0.5 * x.square().sum(-1) - 1e9 * (x[:, 0] < -5))
        self.parts = parts


@pytest.mark.parametrize(
    ("of", "name"), [(lambda x: [x], "[0]"), (lambda x: {"inputs": (x, x)}, "['inputs'][0]")], ids=["list", "dict"]
)
def test_data_in_containers_identify_a_run(of, name, tmp_path):
    arguments = {"optimizer": Adam(1e-3), "progress": False, "steps": 2, "checkpoint": tmp_path / "run.pt"}
    fit(Particles(torch.eye(6, DIM)), Far(of(torch.ones(3))), ParVI(), seed=0, **arguments)
    fit(Particles(torch.eye(6, DIM)), Far(of(torch.ones(3))), ParVI(), seed=0, **arguments)
    with pytest.raises(GPVIError, match=re.escape(f"target.parts{name}")):
        fit(Particles(torch.eye(6, DIM)), Far(of(torch.zeros(3))), ParVI(), seed=0, **arguments)


class Broken(Bare):
    pass


def fit_particles(target, objective=None, **arguments):
    rng = torch.Generator().manual_seed(0)
    arguments = {"steps": 9, "optimizer": Adam(0.1), "rng": rng, "progress": False} | arguments
    return fit(particles(rng), target, objective or ParVI(), **arguments)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Broken(lambda x: x.sum(-1) * math.nan), "log_prob of Broken is not finite"),
        (Broken(lambda x: x.sum(-1) - math.inf), "log_prob of Broken is not finite"),
        (Broken(lambda x: (x - x).sqrt().sum(-1)), "score .* of Broken is not finite"),
        (Broken(lambda x: x), r"Broken.log_prob must return one number per point, shape \(6,\), got \(6, 3\)"),
        (Broken(lambda x: x.sum()), r"shape \(6,\), got \(\)"),
        (Broken(lambda x: x.sum(-1, keepdim=True)), r"got \(6, 1\)"),
        (Broken(lambda x: x.sum(-1), dim=4), r"Broken lives on R\^4, got points of shape \(6, 3\)"),
    ],
)
def test_a_target_that_cannot_work_is_named_before_the_first_step(target, message):
    steps = []
    with pytest.raises(ValueError, match=message):
        fit_particles(target, callback=lambda step, sampler: steps.append(step) or {})
    assert steps == []


class Smallest:
    """All that a target needs without minibatches."""

    dim = DIM

    def log_prob(self, x):
        return -0.5 * x.square().sum(-1)


def test_a_target_needs_no_more_than_a_dimension_and_a_density():
    fit_particles(Smallest())
    with pytest.raises(ValueError, match="Smallest has no data to take minibatches of"):
        fit_particles(Smallest(), batch_size=2)


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        (torch.distributions.Normal(0.0, 1.0), {}, "Normal is no target, it has no dim: a target is an object with"),
        (lambda x: x, {}, "function is no target, it has no dim and no log_prob"),
        (Smallest(), {"rng": 0}, r"rng must be a torch.Generator, such as torch.Generator\(\).manual_seed\(0\), got 0"),
        (Smallest(), {"steps": -1}, "steps must be a whole number >= 0, got -1"),
    ],
)
def test_arguments_that_cannot_work_are_named(target, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_particles(target, **arguments)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("objective", [ParVI(), MaximumLikelihood()], ids=["direction", "likelihood"])
def test_a_run_that_diverges_says_who_and_when(bad, objective, tmp_path):
    calls = []

    def turns_bad(x):
        calls.extend([1] * (len(x) == 6))  # all particles
        return -x.square().sum(-1) * (bad if len(calls) >= 6 else 1.0)

    target = Broken(turns_bad)
    target.log_likelihood = target.log_prob
    rng = torch.Generator().manual_seed(0)
    # Two calls before the first step, one in each step: the sixth is in step 4.
    said = r"(the loss is (nan|-?inf) at step 4; lower the learning rate|step 4: log_prob of Broken is not finite at 6)"
    with pytest.raises(DivergedError, match=f"^toy svgd seed 3: {said}"):
        fit(
            particles(rng), target, objective, steps=9, optimizer=Adam(lr=0.1), rng=rng, progress=False,
            label="toy svgd seed 3", checkpoint=tmp_path / "run.pt", checkpoint_seconds=0,
        )  # fmt: skip
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert state["step"] == 3
    assert state["sampler"]["x"].isfinite().all()


def test_parameters_that_are_not_finite_never_leave_training():
    """The gradient turns bad in the last step, whose loss was still finite."""
    calls = []

    def bad_gradient(x):
        calls.extend([1] * (len(x) == 6))  # all particles
        root = (x - x.detach()).abs().sqrt().sum(-1)  # 0 with gradient nan
        return -x.square().sum(-1) + (root if len(calls) > 5 else 0)

    target = Broken(bad_gradient)
    target.log_likelihood = target.log_prob
    rng = torch.Generator().manual_seed(0)
    sampler = particles(rng)
    with pytest.raises(DivergedError, match="toy.* is not finite after step 4"):
        fit(sampler, target, MaximumLikelihood(), steps=4, optimizer=Adam(lr=0.1), rng=rng, label="toy", progress=False)


def batches_seen() -> list[tuple[int, torch.Tensor | None]]:
    """At how many points and on which data a target is evaluated in two steps on minibatches of four."""
    target, seen = regression(), []
    plain = target.log_prob
    target.log_prob = lambda x, batch=None: seen.append((len(x), batch)) or plain(x, batch)
    fit_particles(target, batch_size=4, steps=2)
    return seen


def test_no_step_and_no_check_sees_more_data_than_a_minibatch(monkeypatch):
    """All of MNIST at once, through ten networks, would need more memory than a laptop has."""
    monkeypatch.setattr("gpvi_lib.fitting.ALL_PROBED", 0)  # below it a target that is no Posterior is asked once
    seen = batches_seen()
    assert all(batch is not None and len(batch) <= 4 for _, batch in seen)
    assert max(len(batch) for _, batch in seen) == 4


def test_few_data_are_all_seen_at_the_start_at_one_point():
    whole = [points for points, batch in batches_seen() if batch is None or len(batch) > 4]
    assert whole == [1] * 2  # without a minibatch, and on one of all data


def test_numpy_numbers_in_the_history_can_be_resumed(tmp_path):
    arguments = {"callback": lambda step, sampler: {"mean": np.float64(0.5)}, "callback_every": 1}
    arguments |= {"checkpoint": tmp_path / "run.pt", "checkpoint_seconds": 0}
    fit_particles(regression(), steps=2, **arguments)
    assert fit_particles(regression(), steps=3, **arguments).history[-1] == {"step": 3, "mean": 0.5}


def test_minibatches_need_data():
    with pytest.raises(ValueError, match="Bare has no data to take minibatches of; leave batch_size out"):
        fit_particles(Bare(lambda x: x.sum(-1)), batch_size=3)


def test_minibatches_must_fit_the_data():
    with pytest.raises(ValueError, match="between 1 and the 20 data, got 21"):
        fit_particles(regression(), batch_size=21)


# Minibatches


@pytest.mark.parametrize(("num_data", "batch_size"), [(12, 3), (12, 12), (10, 4), (5, 1)])
def test_every_epoch_is_a_fresh_permutation(rng, num_data, batch_size):
    batches, per_epoch = Minibatches(num_data, batch_size), num_data // batch_size
    epochs = [torch.cat([batches.next(rng) for _ in range(per_epoch)]) for _ in range(3)]
    for epoch in epochs:
        assert len(epoch.unique()) == len(epoch) == per_epoch * batch_size
        assert 0 <= epoch.min() and epoch.max() < num_data
    if num_data % batch_size == 0:
        assert epochs[0].sort().values.tolist() == list(range(num_data))
    assert not torch.equal(epochs[0], epochs[1])  # the odds are below 1 in 5!


def test_minibatch_state_round_trip(rng):
    batches, restored = Minibatches(10, 4), Minibatches(10, 4)
    batches.next(rng)
    restored.load_state_dict(batches.state_dict())
    twin = torch.Generator()
    twin.set_state(rng.get_state())
    for _ in range(5):
        assert torch.equal(batches.next(rng), restored.next(twin))


# Randomness


@pytest.mark.parametrize("case", CASES)
def test_torchs_global_randomness_is_neither_read_nor_changed(case):
    results = []
    for torch_seed in (1, 2):
        torch.manual_seed(torch_seed)
        before = torch.random.get_rng_state()
        results.append(train(case))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert_identical(*results)


def test_a_bayesian_neural_network_does_not_depend_on_torchs_global_seed():
    results = []
    for torch_seed in (1, 2):
        torch.manual_seed(torch_seed)
        rng = torch.Generator().manual_seed(3)
        network = FlatModule(mlp([2, 3, 2]))
        target = ClassificationPosterior(network, torch.eye(2), torch.arange(2))
        sampler = Particles(torch.randn(4, network.dim, generator=rng))
        before = torch.random.get_rng_state()
        fit(sampler, target, ParVI(), steps=3, optimizer=Adam(lr=0.1), rng=rng, progress=False)
        assert torch.equal(torch.random.get_rng_state(), before)
        results.append(sampler.x.detach())
    assert torch.equal(*results)


# Statistical: a two-dimensional Gaussian with correlation 0.6

MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)
COVARIANCE = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=torch.float64)


def linear_generator(objective, seed) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of a trained linear generator, in closed form."""
    rng = torch.Generator().manual_seed(seed)
    sampler = Generator(2, noise_scale=0.2, rng=rng, dtype=torch.float64)
    fit(
        sampler,
        Gaussian(MEAN, COVARIANCE),
        objective,
        steps=250,
        optimizer=Adam(lr=0.1, final_lr=1e-4),
        rng=rng,
        progress=False,
    )
    jacobian = sampler.linearize(torch.zeros(1, 2, dtype=torch.float64)).dense()[0].detach()
    return sampler.output.bias.detach(), jacobian @ jacobian.mT


@pytest.mark.parametrize(
    "objective", [NegativeELBO(64), GPVI(64), GPVI(64, BiCGSTABInverse())], ids=["elbo", "gpvi block", "gpvi bicgstab"]
)
def test_a_linear_generator_becomes_the_gaussian(objective):
    # One step sees 64 samples: mean and covariance are known to 1 / 8 from it. The decaying learning rate averages many
    # steps, so half of that must be reached (seeds 0 to 4 end between a tenth and a third of it).
    mean, covariance = linear_generator(objective, seed=0)
    assert_close(mean, MEAN, rtol=0, atol=1 / 16)
    assert (covariance - COVARIANCE).norm() < COVARIANCE.norm() / 16


@pytest.mark.parametrize("dim", [1, 2])
def test_svgd_particles_become_the_gaussian(dim, rng):
    mean, covariance = MEAN[:dim], COVARIANCE[:dim, :dim]
    sampler = Particles(torch.randn(60, dim, generator=rng, dtype=torch.float64))
    fit(
        sampler,
        Gaussian(mean, covariance),
        ParVI(SVGD()),
        steps=250,
        optimizer=Adam(lr=0.2, final_lr=1e-3),
        rng=rng,
        progress=False,
    )
    x = sampler.x.detach()
    # Converged particles have the mean but for the kernel's boundary effects. That 60 particles make the covariance too
    # small, by about 5 % a dimension, is SVGD's known bias; twice that is allowed.
    assert_close(x.mean(0), mean, rtol=0, atol=0.02)
    assert (torch.cov(x.mT, correction=0).view(dim, dim) - covariance).norm() < 0.1 * dim * covariance.norm()


def test_the_bar_shows_epoch_loss_objective_and_the_callbacks_first_number(rng, monkeypatch):
    shown = []
    monkeypatch.setattr(tqdm, "set_postfix", lambda bar, values, refresh: shown.append(values))
    target = regression()
    measured = {"accuracy_percent": 80.0, "auroc": 0.9}
    fit(
        MeanField(torch.zeros(target.dim)), target, NegativeELBO(2), steps=4, optimizer=Adam(lr=0.1), rng=rng,
        batch_size=target.num_data // 2, callback=lambda step, sampler: measured, callback_every=2,
    )  # fmt: skip
    assert [list(values) for values in shown] == 4 * [["epoch", "loss", "elbo", "accuracy_percent"]]
    assert shown[-1]["accuracy_percent"] == 80 and shown[-1]["loss"] == -shown[-1]["elbo"]
    assert shown[-1]["epoch"] == 4 * (target.num_data // 2) / target.num_data


def test_two_checkpoints_at_once_do_not_share_a_temporary_file(monkeypatch, tmp_path):
    names, plain = [], torch.save
    monkeypatch.setattr(torch, "save", lambda state, path: names.append(path) or plain(state, path))
    for name in ("lr0.1", "lr0.01"):
        checkpoints.save(tmp_path / name, {})
    monkeypatch.setattr(os, "getpid", lambda: -1)  # another process, the same cell
    checkpoints.save(tmp_path / "lr0.1", {})
    assert len(set(names)) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"lr0.1", "lr0.01"}


def test_an_objective_with_a_function_can_be_resumed_in_another_process(tmp_path):
    addresses = iter((0x7F0, 0x8A1, 0x9B2, 0xAC3))

    class Shaped(ParVI):  # a function's address is another in each process
        def __repr__(self):
            return f"Shaped(<function scale at {next(addresses):#x}>)"

    for steps in (2, 4):
        rng = torch.Generator().manual_seed(0)
        sampler = Particles(torch.randn(6, DIM, generator=rng))
        fit(
            sampler,
            regression(),
            Shaped(),
            steps=steps,
            optimizer=Adam(lr=0.1),
            rng=rng,
            progress=False,
            checkpoint=tmp_path / "r.pt",
        )
    assert torch.load(tmp_path / "r.pt", weights_only=True)["step"] == 4


# What tells runs apart where the data are not an attribute, or the density is not defined everywhere


def test_other_data_in_a_function_are_another_run(tmp_path):
    """Beyond the first minibatch, where a look at the first data alone would miss them."""

    def target(y):
        def log_joint(p, batch=None):
            rows = y if batch is None else y[batch]
            return -0.5 * (p["m"][:, None] - rows).square().sum(-1) * (len(y) / len(rows))

        return Constrained(log_joint, {"m": constraints.real}, num_data=len(y))

    def run(y):
        start = MeanField(torch.zeros(1), 0.1)
        how = {"steps": 5, "batch_size": 10, "optimizer": Adam(0.1), "seed": 0, "progress": False}
        return fit(start, target(y), NegativeELBO(8), checkpoint=tmp_path / "m.pt", **how)

    run(torch.zeros(100))
    other = torch.zeros(100)
    other[10:] = 50.0
    with pytest.raises(GPVIError, match=r"what differs: target\)"):
        run(other)
    run(torch.zeros(100))


def test_a_density_of_positive_numbers_is_another_run_if_it_differs_there(tmp_path):
    class Gamma:
        dim = 2

        def __init__(self, shape):
            self.shape = shape

        def log_prob(self, x):
            return ((self.shape - 1) * x.log() - x).sum(-1)

    def run(shape):
        start = MeanField(torch.full((2,), 5.0), 0.1)
        how = {"steps": 5, "optimizer": Adam(1e-3), "seed": 0, "progress": False}
        return fit(start, Gamma(shape), NegativeELBO(8), checkpoint=tmp_path / "n.pt", **how)

    run(3.0)
    with pytest.raises(GPVIError, match=r"what differs: target\)"):
        run(30.0)


def test_other_data_put_aside_are_another_run(tmp_path):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))

    def run(aside):
        network = LearnedNoise(torch.nn.Linear(2, 1))
        target = Posterior(network, NormalLikelihood(), x, x[:, 0], held_out=(x[:5], aside))
        start = MeanField(torch.zeros(target.dim), 0.1)
        how = {"steps": 5, "optimizer": Adam(1e-3), "seed": 0, "progress": False}
        return fit(start, target, NegativeELBO(4), checkpoint=tmp_path / "h.pt", **how)

    run(x[:5, 0])
    with pytest.raises(GPVIError, match=r"held_out\[1\]"):
        run(x[:5, 0] + 100)
    run(x[:5, 0])


def test_the_same_cell_again_trains_no_further_and_changes_nothing(tmp_path):
    start = MeanField(torch.zeros(2), 0.1)
    how = {"steps": 5, "optimizer": Adam(1e-2), "seed": 0, "progress": False, "checkpoint": tmp_path / "s.pt"}
    first = fit(start, Gaussian(torch.zeros(2), torch.eye(2)), NegativeELBO(8), **how)
    trained = start.mean.detach().clone()
    again = fit(start, Gaussian(torch.zeros(2), torch.eye(2)), NegativeELBO(8), **how)
    assert again.diagnostics == first.diagnostics and torch.equal(start.mean, trained)
    with torch.no_grad():
        start.mean += 1
    with pytest.raises(GPVIError, match="first parameters.*make the sampler anew from its seed"):
        fit(start, Gaussian(torch.zeros(2), torch.eye(2)), NegativeELBO(8), **how)


def test_a_decaying_rate_names_the_steps_that_differ(tmp_path):
    def run(steps):
        start, target = MeanField(torch.zeros(2), 0.1), Gaussian(torch.zeros(2), torch.eye(2))
        how = {"optimizer": Adam(1e-2, final_lr=1e-5), "seed": 0, "progress": False}
        return fit(start, target, NegativeELBO(8), steps=steps, checkpoint=tmp_path / "s.pt", **how)

    run(5)
    with pytest.raises(GPVIError, match=r"differs: steps, over which the rate decays\)"):
        run(9)


# Targets that would be fitted in silence


class Positive:
    """A scale that its author forgot to constrain: NaN below 0, where the slope of log x is finite."""

    dim = 1

    def log_prob(self, x):
        return (-5 * x.log() - x).sum(-1)


@pytest.mark.parametrize("objective", [GPVI(8), ParVI(SVGD(), 8), NegativeELBO(8)], ids=lambda o: type(o).__name__)
def test_a_fit_stops_where_the_target_has_no_density(objective):
    """All draws begin above 0, and the fit is drawn below."""
    sampler = Generator(1, hidden=(4,), noise_scale=0.01, train_noise_scale=True, seed=0)
    with torch.no_grad():
        list(sampler.parameters())[-1].fill_(0)
        shift = next(p for name, p in reversed(list(sampler.named_parameters())) if "bias" in name)
        shift.fill_(0.5)
    with pytest.raises(DivergedError, match=r"toy: (step \d+: log_prob of Positive is not finite|the loss is nan)"):
        fit(sampler, Positive(), objective, steps=400, optimizer=Adam(0.05), seed=0, progress=False, label="toy")


class Mixed:
    dim = 3

    def log_prob(self, x):
        return -0.5 * x.square().sum(-1) - 0.5 * x.square().sum()  # .sum() for .sum(-1)


def test_a_target_that_mixes_points_is_refused(rng):
    with pytest.raises(GPVIError, match=r"log_prob mixes points: sum over all axes but the first.*alone two have"):
        fit(Particles(torch.randn(5, 3, generator=rng)), Mixed(), ParVI(), steps=1, optimizer=Adam(0.1), rng=rng)


class OnePriorEach:
    """Made for its five particles: a prior of its own for each."""

    dim = 3

    def log_prob(self, x):
        return -0.5 * (x - torch.arange(5)[:, None]).square().sum(-1)[: len(x)].reshape(5)


class OnePriorForFive(OnePriorEach):
    """The same for each, but for five particles alone."""

    def log_prob(self, x, batch=None):
        return -0.5 * x.square().sum(-1)[: len(x)].reshape(5)


def test_a_target_made_for_its_particles_is_let_through_if_it_treats_them_alike():
    settings = {"steps": 1, "optimizer": Adam(0.1), "seed": 0, "progress": False}
    fit(five(), OnePriorForFive(), ParVI(), **settings)
    with pytest.raises(GPVIError, match="the 5 points have other numbers in another order"):
        fit(five(), OnePriorEach(), ParVI(), **settings)
    each = OnePriorEach()
    each.num_points = 5
    fit(five(), each, ParVI(), **settings)


class OneTooMany:
    """``y[None]`` has one more axis, and the likelihood counts N times."""

    dim, num_data, data = 1, 40, torch.linspace(-1, 1, 40)

    def log_prob(self, x, batch=None):
        part = self.data[batch]
        return -0.5 * self.num_data / len(part) * (x - part).square().sum(-1)


def test_a_value_without_minibatch_has_to_be_that_of_all_data():
    sampler, settings = MeanField(torch.zeros(1)), {"optimizer": Adam(0.1), "seed": 0, "steps": 1, "progress": False}
    for look in (
        lambda: fit(sampler, OneTooMany(), NegativeELBO(4), batch_size=5, **settings),
        lambda: fit(sampler, OneTooMany(), NegativeELBO(4), **settings),
        lambda: check(sampler, OneTooMany(), seed=0),
    ):
        with pytest.raises(
            GPVIError, match=r"OneTooMany.log_prob\(x\) must be its value on all 40 data.*slice\(None\)"
        ):
            look()


class Unscaled:
    """A minibatch without the factor N / B."""

    dim, num_data = 1, 40

    def __init__(self, factor):
        self.data, self.factor = torch.linspace(-1, 1, 40), factor

    def log_prob(self, x, batch=None):
        part = self.data if batch is None else self.data[batch]
        scale = len(self.data) / len(part) if self.factor else 1.0
        return -0.5 * scale * (x - part).square().sum(-1) - 0.5 * x.square().sum(-1)


@pytest.mark.parametrize("batch_size", [1, 2, 5, 40])
def test_a_minibatch_without_its_factor_is_refused(batch_size):
    settings = {"steps": 1, "optimizer": Adam(0.1), "seed": 0, "batch_size": batch_size, "progress": False}
    fit(MeanField(torch.zeros(1)), Unscaled(factor=True), NegativeELBO(4), **settings)
    with pytest.raises(GPVIError, match=r"Unscaled.log_prob must scale .* minibatch by num_data / len\(batch\)"):
        fit(MeanField(torch.zeros(1)), Unscaled(factor=False), NegativeELBO(4), **settings)


class Sharp:
    """Of a scale so small that the last digit of what is predicted shows, which differs with the number of data.

    So matrix products round, on one processor or another.
    """

    dim, num_data, scale = 1, 40, 1e-4

    def __init__(self, factor):
        self.factor = factor

    def log_prob(self, x, batch=None):
        number = self.num_data if batch is None else len(batch)
        predicted = x * (1 + torch.finfo(x.dtype).eps * (number // 4 + len(x)))
        terms = -0.5 * ((predicted - 1 - self.scale) / self.scale).square().expand(-1, number)
        return (self.num_data / number if self.factor else 1.0) * terms.sum(-1)


def test_digits_that_a_sharp_likelihood_makes_of_rounding_are_no_fault():
    settings = {"steps": 1, "optimizer": Adam(0.1), "seed": 0, "progress": False}
    values = [float(Sharp(True).log_prob(torch.ones(1, 1), torch.zeros(n, dtype=torch.long))) for n in (4, 8)]
    assert (
        1e-3 < values[1] / values[0] - 1 < 1e-2 or 1e-3 < values[0] / values[1] - 1 < 1e-2
    )  # far beyond half the digits
    for batch_size in (8, None):
        fit(Particles(torch.tensor([[1.0], [1.001]])), Sharp(True), ParVI(SVGD()), batch_size=batch_size, **settings)
    with pytest.raises(GPVIError, match=r"Sharp.log_prob must scale .* minibatch by num_data / len\(batch\)"):
        fit(Particles(torch.tensor([[1.0], [1.001]])), Sharp(False), ParVI(SVGD()), batch_size=8, **settings)


def test_a_target_with_data_that_takes_no_batch_is_named():
    target = Smallest()
    target.num_data = 20
    with pytest.raises(GPVIError, match=r"Smallest has num_data, so it needs log_prob\(x, batch\)"):
        fit_particles(target, batch_size=4)


@pytest.mark.parametrize("objective", [ParVI(SVGD()), ParVI(GFSF())], ids=["svgd", "gfsf"])
def test_particles_at_one_point_are_refused(objective):
    with pytest.raises(GPVIError, match=r"all 5 particles start at one point.*torch.randn\(n, d\)"):
        fit(Particles(torch.zeros(5, 3)), Smallest(), objective, steps=1, optimizer=Adam(0.1), seed=0, progress=False)


def five():
    return Particles(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: {"objective": SVGD()}, r"an instance of Objective, got SVGD.*a direction needs ParVI\(SVGD\(\)\)"),
        (lambda: {"objective": "svgd"}, r"objective must be an instance of Objective, got 'svgd': such as GPVI\(100\)"),
        (lambda: {"objective": ParVI("svgd")}, r"direction must be an instance of Direction, got 'svgd': such as SVGD"),
        (lambda: {"sampler": Smallest()}, r"sampler must be an instance of Sampler, got .*: the order is fit\(samp"),
        (lambda: {"objective": GPVI(9, inverse="exact")}, r"inverse must be an instance of InverseJacobian, got 'exa"),
        (lambda: {"objective": GPVI(9, kernel=1.0)}, r"kernel must be a kernel, got 1.0: such as RBF\(1.0\)"),
        (lambda: {"sampler": Particles(np.zeros((3, 2)))}, "particles must be a floating point tensor, got ndarray"),
        (lambda: {"sampler": Particles(torch.zeros(0, 2))}, r"shape \(n, d\), n >= 1, got \(0, 2\)"),
        (lambda: {"sampler": Particles(torch.zeros(1, 3))}, "give two particles or more, or num_samples >= 2"),
        (lambda: {"sampler": MeanField(5)}, "the mean must be a floating point tensor, got int"),
        (lambda: {"sampler": MeanField(torch.zeros(2).long())}, "the mean must be a floating point tensor, got torch"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_named_with_a_remedy(call, message):
    settings = {"steps": 1, "optimizer": Adam(0.1), "seed": 0, "progress": False}
    with pytest.raises(ValueError, match=message):
        fit(**{"sampler": five(), "target": Smallest(), "objective": ParVI()} | call(), **settings)


def test_an_interrupted_fit_keeps_its_last_step(tmp_path, interruptible):
    """Ctrl-C, or a notebook's stop button, long before the next checkpoint is due."""

    def stop(step, sampler):
        if step == 3 and stops:
            stops.pop()
            os.kill(os.getpid(), signal.SIGINT)

    ends, stops = [], []
    for path in (None, tmp_path / "run.pt"):
        sampler, settings = MeanField(torch.ones(3)), {"steps": 9, "optimizer": Adam(0.1), "seed": 0, "progress": False}
        settings |= {"checkpoint": path, "callback": stop, "callback_every": 1}
        if path is not None:
            stops.append(1)
            with pytest.raises(KeyboardInterrupt, match="fit: stopped after step 3, which .*run.pt has"):
                fit(sampler, Smallest(), NegativeELBO(4), **settings)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        result = fit(sampler, Smallest(), NegativeELBO(4), **settings)
        ends.append(sampler.mean.detach().clone())
    assert torch.equal(*ends) and result.history[0]["step"] == 0


def test_a_second_interrupt_does_not_wait_for_the_checkpoint(tmp_path, interruptible):
    def stop(step, sampler):
        if step == 3:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    settings = {"callback": stop, "callback_every": 1, "checkpoint": tmp_path / "run.pt", "progress": False}
    with pytest.raises(KeyboardInterrupt) as stopped:
        fit(MeanField(torch.ones(3)), Smallest(), NegativeELBO(4), steps=9, optimizer=Adam(0.1), seed=0, **settings)
    assert str(stopped.value) == "" and not (tmp_path / "run.pt").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def bent(slopes: tuple[float, float]) -> Generator:
    """The map of one coordinate that has these slopes, left and right of 0."""
    generator = Generator(1, 1, (2,), noise_scale=1.0, activation="relu", seed=0)
    with torch.no_grad():
        generator.hidden[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        generator.hidden[0].bias.zero_()
        generator.output.weight.copy_(torch.tensor([[1.0 - slopes[0], slopes[1] - 1.0]]))
        generator.output.bias.zero_()
    return generator


@pytest.mark.parametrize(
    ("slopes", "objective", "remedy"),
    [
        ((-1.0, 1.0), GPVI(16), "NegativeELBO"),
        ((-1.0, 1.0), NegativeELBO(16), "OrientedELBO"),
        ((-1.0, 1.0), OrientedELBO(16), "train for longer"),
        ((1.0, 1.0), GPVI(16), None),
        ((1.0, 1.0), NegativeELBO(16), None),
        ((-1.0, -1.0), GPVI(16), None),
        ((-1.0, 1.0), ParVI(SVGD(), 16), None),
    ],
    ids=["gpvi", "elbo", "oriented", "injective", "injective elbo", "mirror image", "needs no density"],
)
@pytest.mark.filterwarnings("ignore::gpvi_lib.errors.KinkWarning")
def test_a_fit_that_ends_folded_says_so_and_names_the_remedy(slopes, objective, remedy, recwarn):
    target = Gaussian(torch.zeros(1), torch.eye(1))
    fit(bent(slopes), target, objective, steps=1, optimizer=Adam(1e-6), seed=3, progress=False)
    found = [str(one.message) for one in recwarn if one.category is FoldWarning]
    assert len(found) == (remedy is not None)
    assert all(
        "start noise_scale and output_scale near the scale of the target" in one and remedy in one for one in found
    )


def test_a_checkpoint_of_another_loop_is_refused(tmp_path):
    checkpoints.save(tmp_path / "run.pt", {"chains": torch.zeros(3)})
    with pytest.raises(GPVIError, match="is no checkpoint or is damaged"):
        train("svgd", checkpoint=tmp_path / "run.pt")


class Forgets:
    """A mean of the minibatch in place of its sum times N / B; without one it is right, or as wrong."""

    dim, num_data = 1, 60

    def __init__(self, sums: bool) -> None:
        self.y, self.sums = torch.linspace(0, 1, 60), sums

    def log_prob(self, x, batch=None):
        terms = -0.5 * (x - self.y[slice(None) if batch is None else batch]).square()
        return terms.sum(-1) if batch is None and self.sums else terms.mean(-1)


def test_a_minibatch_that_forgets_the_number_of_data_is_refused():
    settings = {"steps": 2, "optimizer": Adam(1e-2), "batch_size": 10, "seed": 0, "progress": False}
    with pytest.raises(GPVIError, match="is a sum, not a mean, of a minibatch times num_data / len"):
        fit(MeanField(torch.zeros(1)), Forgets(sums=True), NegativeELBO(4), **settings)
    fit(MeanField(torch.zeros(1)), Forgets(sums=False), NegativeELBO(4), **settings)  # looks like fewer data


def test_other_points_of_the_same_print_are_another_objective(tmp_path):
    """A tensor of thousands of numbers prints as its first and last few."""
    rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 8)[:, None]
    target = Posterior(mlp([1, 3, 1]), NormalLikelihood(0.1), x, x[:, 0])

    def run(points, steps=2):
        particles = Particles(0.1 * torch.ones(3, target.dim) * torch.arange(3)[:, None])
        objective = FunctionSpaceParVI(points=points)
        how = {"optimizer": Adam(0.01), "checkpoint": tmp_path / "run.pt", "seed": 0, "progress": False}
        fit(particles, target, objective, steps=steps, **how)
        return objective, particles

    points = torch.randn(2_000, 1, generator=rng)
    others = points.clone()
    others[1_000] += 0.1
    assert repr(points) == repr(others)
    run(points)
    run(points, steps=3)
    with pytest.raises(GPVIError, match=r"what differs: objective\['points'\]"):
        run(others)


def test_parameters_that_begin_to_move_later_move_as_torch_has_it():
    """The first gradient of one group comes after steps of another, as where a callback unfreezes λ."""

    def moved(step):
        weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
        optimizer = torch.optim.Adam([{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.05}], 0.1, fused=True)
        for number in range(6):
            weights[0].grad = torch.tensor([1.0, 0.5]) * (number + 1)
            weights[1].grad = None if number < 3 else torch.ones(3)
            step(optimizer)
        return torch.cat([w.detach() for w in weights]), [int(optimizer.state[w]["step"]) for w in weights]

    (ours, our_steps), (theirs, their_steps) = (
        moved(step) for step in (fitting._step_of_adam, lambda optimizer: optimizer.step())
    )
    assert our_steps == their_steps == [6, 3]
    assert_close(ours, theirs)


class Plain:
    """A kernel that is no dataclass; ``calls`` changes with each use."""

    def __init__(self, h, weights=None):
        self.h, self.weights, self.calls = h, weights, 0

    def __call__(self, x, y=None):
        self.calls += 1
        return RBF(float(self.h))(x, y)


class Holds(ParVI):
    """A subclass with an ``__init__`` of its own."""

    def __init__(self, part):
        super().__init__(SVGD())
        self.part = part


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda h: ParVI(SVGD(Plain(h))), "['direction']['kernel']['h']"),
        (lambda h: ParVI(SVGD(Plain(1.0, weights=torch.tensor([0.0, h])))), "['direction']['kernel']['weights']"),
        (lambda h: Holds(Plain(h)), "['part']['h']"),
        (lambda h: Holds({"two": [RBF(3.0), RBF(h)]}), "['part']['two'][1]['bandwidth']"),
    ],
    ids=["number", "tensor", "subclass", "container"],
)
def test_settings_of_a_plain_class_are_seen_and_what_it_counts_is_not(make, differs, tmp_path):
    def run(objective, steps):
        fit_particles(regression(), objective, steps=steps, checkpoint=tmp_path / "run.pt")

    objective = make(1.0)
    run(objective, 2)
    with pytest.raises(GPVIError, match=re.escape(f"(what differs: objective{differs})")):
        run(make(2.0), 3)
    run(objective, 3)  # has counted
    run(make(1.0), 4)


class Annealed(ParVI):
    """Its arguments are its state, but for one that is NaN."""

    def __init__(self, heat, h=1.0, seen=(), limit=math.nan):
        super().__init__(SVGD(RBF(h)))
        self.heat, self.seen, self.limit = heat, list(seen), limit

    def __call__(self, *arguments):
        self.heat *= 0.9
        self.seen.append(self.heat)
        return super().__call__(*arguments)

    def state_dict(self):
        return {"heat": self.heat}

    def load_state_dict(self, state):
        self.heat = state["heat"]


def test_an_argument_that_training_changes_is_no_other_run(tmp_path):
    def run(objective, steps):
        particles = Particles(torch.linspace(-1, 1, 6).view(3, 2))
        settings = {"optimizer": Adam(1e-2), "seed": 0, "progress": False, "checkpoint": tmp_path / "run.pt"}
        fit(particles, Gaussian(torch.zeros(2), torch.eye(2)), objective, steps=steps, **settings)

    first = Annealed(1.0)
    run(first, 2)
    run(first, 3)
    assert first.heat == pytest.approx(0.9**3)
    run(Annealed(1.0), 4)
    with pytest.raises(GPVIError, match=re.escape("(what differs: objective['heat'])")):
        run(Annealed(2.0), 5)
    with pytest.raises(GPVIError, match=re.escape("(what differs: objective['direction']['kernel']['bandwidth'])")):
        run(Annealed(1.0, h=2.0), 5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.int64(5), np.int64(6)),
        (np.ones(2), np.zeros(2)),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (torch.float32, torch.float64),
        (math.sin, math.cos),
        (partial(pow, 2), partial(pow, 3)),
        ({"a", "b"}, {"a", "c"}),
    ],
    ids=["number", "array", "texts", "dtype", "function", "partial", "set"],
)
def test_arguments_of_any_kind_are_told_apart(one, other):
    def told(value):
        return fitting._made_with(Holds(value))

    assert told(one) == told(one) != told(other)


def test_what_was_only_asked_for_is_no_argument_and_a_property_that_raises_is_none():
    loc, covariance = torch.zeros(2), torch.eye(2) + 0.5
    asked, fresh = (torch.distributions.MultivariateNormal(loc, covariance) for _ in range(2))
    assert asked.precision_matrix.shape == (2, 2)
    other = torch.distributions.MultivariateNormal(loc, 2 * covariance)
    assert fitting._made_with(Holds(asked)) == fitting._made_with(Holds(fresh)) != fitting._made_with(Holds(other))
    likely, unlikely = (torch.distributions.Categorical(torch.tensor([p, 1.0])) for p in (3.0, 0.1))
    assert fitting._made_with(Holds(likely)) != fitting._made_with(Holds(unlikely))
    assert fitting._made_with(Holds(LangevinNetwork(MeanField(loc), None, 2)))


def test_an_argument_that_is_nan_can_be_resumed(tmp_path):
    for steps in (1, 2):
        fit_particles(regression(), Holds(math.nan), steps=steps, checkpoint=tmp_path / "run.pt")


def test_a_part_that_holds_its_owner_ends_the_walk(tmp_path):
    part = Plain(1.0)
    part.h, part.weights = np.float64(1.0), [part]
    fit_particles(regression(), ParVI(SVGD(part)), steps=1, checkpoint=tmp_path / "run.pt")


def test_another_algorithm_of_the_same_name_is_another_run(tmp_path):
    def run(momentum):
        class Heavy(Optimizer):
            algorithm = partial(torch.optim.SGD, momentum=momentum)

        fit_particles(regression(), steps=2, optimizer=Heavy(1e-3), checkpoint=tmp_path / "run.pt")

    run(0.5)
    with pytest.raises(GPVIError, match=r"what differs: optimizer's settings\)"):
        run(0.9)
    run(0.5)


def test_numbers_and_texts_of_an_enum_can_be_resumed(tmp_path):
    class Mode(enum.StrEnum):
        FAST = "quick"

    class Level(enum.IntEnum):
        HIGH = 3

    class Sized(float):
        pass

    for steps in (2, 3):
        sampler = particles(torch.Generator().manual_seed(0))
        sampler.mode, sampler.level, sampler.size, sampler.on = Mode.FAST, Level.HIGH, Sized(0.5), True
        settings = {"optimizer": Adam(0.1), "seed": 0, "progress": False, "checkpoint": tmp_path / "run.pt"}
        fit(sampler, regression(), ParVI(), steps=steps, **settings)
    saved = torch.load(tmp_path / "run.pt", weights_only=True)["run"]
    assert [saved[f"sampler.{name}"] for name in ("mode", "level", "size", "on")] == ["quick", 3, 0.5, True]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_have_digests_of_their_own():
    x = torch.eye(4)
    others = [x, 2 * x, x[:3], x[[1, 0, 2, 3]]]
    layouts = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]
    found = [checkpoints.digest({"x": one.to_sparse(layout=kind)})["x"] for kind in layouts for one in others]
    assert len({*found, checkpoints.digest({"x": x})["x"]}) == 13
    twice = torch.sparse_coo_tensor([[0, 0, 1], [0, 0, 1]], [0.5, 0.5, 1.0], (2, 2))
    assert checkpoints.digest({"x": twice}) == checkpoints.digest({"x": torch.eye(2).to_sparse()})


@pytest.mark.parametrize("fails", [False, True], ids=["on time", "where a callback fails"])
def test_what_is_not_finite_takes_no_good_checkpoints_place(fails, tmp_path):
    """The step from a finite loss to parameters that are not; on a GPU the loss may be bad, too, for some steps."""

    def spoil(step, sampler):
        if step == 3:
            with torch.no_grad():
                sampler.x[0, 0] = math.nan
            assert not fails

    settings = {"callback": spoil, "callback_every": 1, "checkpoint": tmp_path / "run.pt", "checkpoint_seconds": 0}
    with pytest.raises(DivergedError, match="fit: x is not finite after step 3"):
        fit_particles(regression(), **settings)
    assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] == 2


def test_a_loss_that_nobody_has_looked_at_yet_is_looked_at_before_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "_check_parameters", lambda *arguments: None)
    target, objective = regression(), MaximumLikelihood()
    state = Training(particles(torch.Generator()), target, objective, optimizer=Adam(0.1), rng=torch.Generator())
    fitting._save(state, "toy", tmp_path / "run.pt")
    state.loss = torch.tensor(math.nan)
    with pytest.raises(DivergedError, match="toy: the loss is nan at step 0"):
        fitting._save(state, "toy", tmp_path / "run.pt")


def test_the_remedy_for_gfsfs_singular_matrix_is_its_ridge():
    alike = Particles(torch.tensor([[0.0, 0, 0], [0, 0, 0], [1, 1, 1]]))
    with pytest.raises(DivergedError, match=r"step 1: K \+ αI of GFSF is singular; give it a ridge α above 1e-20"):
        fit(alike, regression(), ParVI(GFSF(ridge=1e-20)), steps=1, optimizer=Adam(0.1), seed=0, progress=False)


def test_torchs_default_device_has_no_say(tmp_path):
    """Another than that of sampler and data, as a GPU would be."""
    x, start = torch.randn(20, 1, generator=torch.Generator().manual_seed(0)), MeanField(torch.zeros(2))
    target, at = Posterior(mlp([1, 1]), NormalLikelihood(1.0), x, x[:, 0]), torch.zeros(3, 2)
    with torch.device("meta"):
        run = {"step_size": 0.1, "num_leapfrog": 3, "num_steps": 2, "burn_in": 1, "seed": 0, "progress": False}
        chains = hmc(target.log_prob, at, checkpoint=tmp_path / "hmc.pt", **run)
        assert bool(chains.samples.isfinite().all())
        for batch_size, path in ((None, tmp_path / "a.pt"), (5, tmp_path / "b.pt")):
            settings = {"steps": 2, "batch_size": batch_size, "optimizer": Adam(1e-3), "seed": 0, "progress": False}
            fit(start, target, NegativeELBO(4), checkpoint=path, **settings)
    assert bool(start.mean.isfinite().all())


def test_a_result_prints_its_ends_on_a_line():
    found = repr(fit_particles(regression(), steps=90, callback=lambda step, sampler: {"error": 0.5}))
    assert re.fullmatch(
        r"FitResult\(2 rows of history, the last {'step': 90, 'error': 0.5}; 90 rows of diagnostics, the last {'step': "
        r"90, .*}; \d+\.\d seconds\)",
        found,
    )
    assert repr(fitting.FitResult()) == "FitResult(0.0 seconds)"


def test_a_row_keeps_its_own_step():
    result = fit_particles(regression(), steps=2, callback=lambda step, sampler: {"step": -1.0, "error": 0.5})
    assert [list(row.items()) for row in result.history] == [[("step", step), ("error", 0.5)] for step in (0, 2)]


def test_what_a_killed_save_left_goes_and_what_another_process_may_be_writing_stays(tmp_path):
    dead, living, others = (tmp_path / f".{name}.tmp" for name in ("run.pt.1a2b3c4d", "run.pt.5e6f7a8b", "x.pt.1a2b"))
    for path in (dead, living, others):
        path.touch()
    for path in (dead, others):
        os.utime(path, (0, 0))
    fit_particles(regression(), steps=1, checkpoint=tmp_path / "run.pt")
    assert sorted(tmp_path.iterdir()) == sorted([living, others, tmp_path / "run.pt"])


def test_no_index_of_many_data_is_out_of_range(tmp_path):
    """float32 rounds 2^24 + 3 up to the number of data."""

    class Large:
        dim, num_data, most = 3, 2**24 + 4, 0

        def log_prob(self, x, batch=None):
            self.most = max(self.most, int(batch.max()))
            return -x.square().sum(-1)

    sampler, target = particles(torch.Generator()), Large()
    settings = {"optimizer": Adam(0.1), "rng": torch.Generator(), "batch_size": 3}
    Training(sampler, target, ParVI(), **settings).identify()
    assert target.most == target.num_data - 1
