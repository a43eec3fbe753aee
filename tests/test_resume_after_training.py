"""A run goes on in the process that began it, whatever training changed; what did not change is still compared."""

import math
import os
import random
import signal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close

from gpvi_lib import checkpoints
from gpvi_lib.directions import SVGD
from gpvi_lib.errors import GPVIError
from gpvi_lib.fitting import Training, fit
from gpvi_lib.hamiltonian import hmc
from gpvi_lib.networks import mlp
from gpvi_lib.objectives import NegativeELBO, ParVI
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import MeanField, Sampler
from gpvi_lib.targets import Gaussian, NormalLikelihood, NormalPrior, Posterior, StreamedPosterior
from gpvi_lib.targets.base import check_rows

DATA = 60


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def trained(sampler, target, steps, checkpoint=None, objective=None, **settings):
    objective = objective or NegativeELBO(2)
    settings = {"optimizer": Adam(1e-2), "seed": 0, "progress": False, "checkpoint": checkpoint} | settings
    return fit(sampler, target, objective, steps=steps, **settings)


def parameters(sampler):
    return torch.cat([p.detach().flatten() for p in sampler.parameters()])


DRAWS = {
    "torch": lambda: torch.randn(3),
    "numpy": lambda: torch.as_tensor(np.random.randn(3)).float(),  # noqa: NPY002  # as augmentations draw
    "python": lambda: torch.tensor([random.gauss() for _ in range(3)]),
}


class Augmented(torch.utils.data.Dataset):
    """Inputs with fresh noise each time that they are read."""

    def __init__(self, draw):
        self.draw = draw
        self.inputs = torch.randn(DATA, 3, generator=seeded())
        self.answers = self.inputs.sum(-1)

    def __len__(self):
        return DATA

    def __getitem__(self, i):
        return self.inputs[i] + 0.1 * self.draw(), self.answers[i]


def streamed(draw, scale=0.5, **settings):
    return StreamedPosterior(mlp([3, 4, 1]), NormalLikelihood(scale), Augmented(draw), **settings)


def seed_all(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_data_that_augment_at_random_are_the_same_data(draw, tmp_path):
    """As a new process has them too: another target object, other states of the global generators."""
    checkpoint = tmp_path / "run.pt"

    def run(steps, target):
        trained(MeanField(torch.zeros(target.dim), 0.1), target, steps, checkpoint, batch_size=10)

    for seed, steps in ((1, 3), (2, 6)):
        seed_all(seed)
        run(steps, streamed(draw))
    for changes in ({"scale": 5.0}, {"power": 0.01}):
        with pytest.raises(GPVIError, match="another run.*target"):
            run(9, streamed(draw, **changes))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_checkpoint_takes_no_draw_of_the_global_generators(draw, tmp_path):
    """The data above augment by them, and a run that is saved reads data to tell it from others."""

    def run(**settings):
        seed_all(1)
        target = streamed(draw)
        sampler = MeanField(torch.zeros(target.dim), 0.1)
        trained(sampler, target, 5, batch_size=10, **settings)
        return parameters(sampler), torch.randn(1), np.random.randn(), random.random()  # noqa: NPY002

    assert str(run()) == str(run(checkpoint=tmp_path / "run.pt", checkpoint_seconds=0))


class WithBuffers(Sampler):
    """A network of noise whose layers keep numbers of their own as they are used."""

    def __init__(self, layers):
        super().__init__()
        self.dim = 2
        self.register_buffer("shift", torch.zeros(2))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(*layers(), nn.Tanh(), nn.Linear(8, 2))

    def rsample(self, n, rng):
        return self.net(torch.randn(n, 3, generator=rng)) + self.shift


LAYERS = {
    "batch norm": lambda: (nn.Linear(3, 8), nn.BatchNorm1d(8)),
    "spectral norm": lambda: (spectral_norm(nn.Linear(3, 8)),),
}


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_buffers_that_training_moved_are_no_other_run(layers, tmp_path):
    """Also after draws of the trained sampler, which move them on; the run then goes on from the checkpoint's."""
    gaussian, checkpoint = Gaussian(torch.ones(2), torch.eye(2)), tmp_path / "run.pt"
    objective = ParVI(SVGD(), 8)
    whole, parts = WithBuffers(layers), WithBuffers(layers)
    trained(whole, gaussian, 6, objective=objective)
    trained(parts, gaussian, 3, checkpoint, objective)
    parts.rsample(50, seeded(3))
    trained(parts, gaussian, 6, checkpoint, objective)
    assert torch.equal(parameters(whole), parameters(parts))
    for name, buffer in whole.named_buffers():
        assert torch.equal(buffer, parts.get_buffer(name)), name
    parts.shift.fill_(1.0)
    with pytest.raises(GPVIError, match=r"what differs: sampler\.shift\)"):
        trained(parts, gaussian, 9, checkpoint, objective)


def tempered(power=0.1):
    """A posterior, and a callback that brings it to the power 1 at 18 steps."""
    inputs = torch.randn(50, 2, generator=seeded())
    target = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), inputs, inputs.sum(-1), power=power)

    def anneal(step, sampler):
        target.power = min(1.0, power + step / 20)

    return target, {"callback": anneal, "callback_every": 1}


def test_a_callback_that_anneals_the_power_goes_on(tmp_path):
    target, settings = tempered()
    whole = MeanField(torch.zeros(target.dim), 0.1)
    trained(whole, target, 10, **settings)
    target, settings = tempered()
    parts = MeanField(torch.zeros(target.dim), 0.1)
    for steps in (4, 10):
        trained(parts, target, steps, tmp_path / "run.pt", **settings)
    assert torch.equal(parameters(whole), parameters(parts))
    target.power = 0.3
    with pytest.raises(GPVIError, match=r"what differs: target"):
        trained(parts, target, 12, tmp_path / "run.pt", **settings)


def test_a_run_that_begins_where_another_was_annealed_to_is_another_run(tmp_path):
    target, settings = tempered()
    trained(MeanField(torch.zeros(target.dim), 0.1), target, 20, tmp_path / "run.pt", **settings)
    assert target.power == 1
    other, _ = tempered(1.0)
    log = {"callback": lambda step, sampler: None, "callback_every": 1}
    for new in (target, other):
        with pytest.raises(GPVIError, match=r"what differs: target\)"):
            trained(MeanField(torch.zeros(target.dim), 0.1), new, 20, tmp_path / "run.pt", **log)


def test_an_attribute_of_a_trained_sampler_is_compared_with_what_training_left(tmp_path):
    class Warm(MeanField):
        heat = 2.0

        def rsample(self, n, rng):
            return self.heat * super().rsample(n, rng)

    sampler, gaussian, checkpoint = Warm(torch.zeros(2), 0.1), Gaussian(torch.ones(2), torch.eye(2)), tmp_path / "run"
    sampler.heat = 2.0
    objective, cool = ParVI(SVGD(), 8), {"callback": lambda step, it: setattr(it, "heat", 2 - step / 10)}
    for steps in (3, 6):
        trained(sampler, gaussian, steps, checkpoint, objective, callback_every=1, **cool)
    sampler.heat = 7.0
    with pytest.raises(GPVIError, match=r"what differs: sampler.heat\)"):
        trained(sampler, gaussian, 9, checkpoint, objective, callback_every=1, **cool)


@pytest.mark.parametrize("fails_at", [(0,), (5, 5), (0, 3, 7)], ids=str)
def test_a_callback_that_fails_after_it_changed_the_target_is_asked_again(fails_at, tmp_path):
    target, settings = tempered()
    anneal, left = settings["callback"], list(fails_at)

    def failing(step, sampler):
        anneal(step, sampler)
        if left and step == left[0]:
            left.pop(0)
            target.power = 0.9 - 0.1 * len(left)
            raise KeyError("mine")

    sampler = MeanField(torch.zeros(target.dim), 0.1)
    for _ in fails_at:
        with pytest.raises(KeyError, match="mine"):
            trained(sampler, target, 9, tmp_path / "run.pt", **settings | {"callback": failing})
    trained(sampler, target, 9, tmp_path / "run.pt", **settings | {"callback": failing})
    target, settings = tempered()
    whole = MeanField(torch.zeros(target.dim), 0.1)
    trained(whole, target, 9, **settings)
    assert torch.equal(parameters(whole), parameters(sampler))


def test_a_sampler_that_counts_its_draws_goes_on(tmp_path):
    """Those that `fit` takes after the last step are its own affair."""

    class Counting(MeanField):
        calls = 0

        def rsample(self, n, rng):
            self.calls += 1
            return super().rsample(n, rng)

    sampler, gaussian = Counting(torch.zeros(2), 0.1), Gaussian(torch.ones(2), torch.eye(2))
    for steps in (3, 6):
        assert trained(sampler, gaussian, steps, tmp_path / "run.pt").history == []


def test_a_small_change_of_a_float64_target_after_training_is_seen(tmp_path):
    target = Gaussian(torch.ones(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    sampler = MeanField(torch.zeros(2, dtype=torch.float64), 0.1)
    trained(sampler, target, 3, tmp_path / "run.pt")
    target.log_prob = lambda x, batch=None: (1 + 5e-6) * Gaussian.log_prob(target, x)
    with pytest.raises(GPVIError, match=r"what differs: target\)"):
        trained(sampler, target, 6, tmp_path / "run.pt")


@pytest.mark.parametrize("error", [AssertionError, ArithmeticError, IndexError, KeyError, TypeError, ValueError])
def test_a_target_may_fail_where_no_sample_is(error, tmp_path):
    class Far:
        dim, num_data = 2, None

        def log_prob(self, x, batch=None):
            if bool((x < 50).any()):
                raise error("too near")
            return -(x - 100).square().sum(-1)

    for steps in (2, 4):
        trained(MeanField(torch.full((2,), 100.0), 0.1), Far(), steps, tmp_path / "run.pt")


def test_ctrl_c_while_the_end_is_looked_at_stops_the_program(tmp_path, monkeypatch):
    """All steps are done and saved: the interrupt is for what comes after."""
    identify, looks = Training.identify, []

    def interrupted(self):
        looks.append(1)
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return identify(self)

    monkeypatch.setattr(Training, "identify", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(MeanField(torch.zeros(2), 0.1), Gaussian(torch.ones(2), torch.eye(2)), 3, tmp_path / "run.pt")
    finally:
        signal.signal(signal.SIGINT, before)
    assert checkpoints.load(tmp_path / "run.pt", torch.device("cpu"))["step"] == 3


def test_a_prior_that_draws_is_looked_at_with_the_same_draws(tmp_path):
    class Noisy(NormalPrior):
        def log_prob(self, w):
            return super().log_prob(w) + torch.randn(len(w))

    inputs = torch.randn(50, 2, generator=seeded())
    for seed, steps in ((1, 3), (2, 6)):
        seed_all(seed)
        target = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.5), inputs, inputs.sum(-1), NormalPrior(1.0))
        target.prior = Noisy(1.0)
        state = torch.get_rng_state()
        sampler = MeanField(torch.zeros(target.dim), 0.1)
        training = Training(sampler, target, NegativeELBO(2), optimizer=Adam(1e-2), rng=seeded())
        found = training.identify()
        assert torch.equal(state, torch.get_rng_state()) and found == training.identify(), steps


def test_looks_at_the_rows_of_a_target_keep_no_graph():
    seen = []

    class Learned:
        dim, num_data = 2, None

        def log_prob(self, x, batch=None):
            if not x.requires_grad:
                seen.append(torch.is_grad_enabled())
            return -x.square().sum(-1)

    check_rows(Learned().log_prob, torch.zeros(3, 2))
    assert seen and not any(seen)


class Lazy:
    """A linear regression that keeps its products of all data once they are asked for, as before a training."""

    dim, num_data, _gram = 2, 50, None

    def __init__(self, noise=1.0):
        self.noise = noise
        self.inputs = torch.randn(50, 2, generator=seeded())
        self.answers = self.inputs.sum(-1)

    def log_prob(self, w, batch=None):
        if batch is None:
            if self._gram is None:
                self._gram, self._xy = self.inputs.T @ self.inputs, self.inputs.T @ self.answers
            misfit = ((w @ self._gram) * w).sum(-1) - 2 * w @ self._xy + self.answers.square().sum()
        else:
            misfit = 50 / len(batch) * (w @ self.inputs[batch].T - self.answers[batch]).square().sum(-1)
        return -0.5 * misfit / self.noise - w.square().sum(-1)


def test_what_a_target_keeps_once_it_is_asked_is_no_other_run(tmp_path):
    target, sampler, checkpoint = Lazy(), MeanField(torch.zeros(2), 0.1), tmp_path / "run.pt"
    for steps in (3, 6):
        trained(sampler, target, steps, checkpoint, batch_size=10)
    assert target._gram is not None
    trained(MeanField(torch.zeros(2), 0.1), Lazy(), 9, checkpoint, batch_size=10)
    with pytest.raises(GPVIError, match=r"what differs: target\)"):
        trained(MeanField(torch.zeros(2), 0.1), Lazy(noise=0.5), 12, checkpoint, batch_size=10)


def test_a_target_that_fails_in_a_callback_leaves_the_steps_done(tmp_path):
    """What it left cannot be looked at then: that is no error of its own, and the checkpoint is there."""

    class Once:
        dim, num_data, broken = 2, None, False

        def log_prob(self, x, batch=None):
            if self.broken:
                raise TimeoutError("the simulator is gone")
            return -x.square().sum(-1)

    target, sampler = Once(), MeanField(torch.zeros(2), 0.1)

    def callback(step, sampler):
        if step == 4:
            target.broken = True
            raise KeyError("mine")

    settings = {"callback": callback, "callback_every": 1, "checkpoint": tmp_path / "run.pt"}
    with pytest.raises(KeyError, match="mine"):
        trained(sampler, target, 9, **settings)
    target.broken = False
    settings["callback"] = lambda step, sampler: None
    assert trained(sampler, target, 9, **settings).history[-1]["step"] == 9


def test_the_target_is_not_asked_for_each_checkpoint(tmp_path):
    class Counting(Gaussian):
        calls = 0

        def log_prob(self, x, batch=None):
            self.calls += 1
            return super().log_prob(x)

    calls = []
    for seconds in (60.0, 0.0):
        target = Counting(torch.ones(2), torch.eye(2))
        path = tmp_path / f"{seconds}.pt"
        trained(MeanField(torch.zeros(2), 0.1), target, 20, path, checkpoint_seconds=seconds)
        calls.append(target.calls)
    assert calls[0] == calls[1]


@pytest.mark.filterwarnings("ignore:hmc")  # of so few proposals the acceptance is by luck
def test_chains_from_a_mode_go_on_where_sums_are_rounded_in_another_way(tmp_path):
    """There the score is what rounding leaves of terms that cancel: 0 on no processor, and another on each."""
    rng = seeded()
    inputs = torch.randn(500, 5, generator=rng)
    answers = inputs @ torch.ones(5) + 0.1 * torch.randn(500, generator=rng)
    precision = inputs.double().T @ inputs.double() / 0.01 + torch.eye(5)
    mode = torch.linalg.solve(precision, inputs.double().T @ answers.double() / 0.01).float()

    def run(steps, order, noise=0.1):
        x, y = inputs[order], answers[order]

        def log_prob(w):
            return -0.5 * ((w @ x.T - y) / noise).square().sum(-1) - 0.5 * w.square().sum(-1)

        settings = {"step_size": 0.006, "num_leapfrog": 3, "burn_in": 2, "seed": 0, "progress": False}
        return hmc(log_prob, mode.expand(4, -1).clone(), num_steps=steps, checkpoint=tmp_path / "run.pt", **settings)

    before = run(4, torch.arange(500)).samples
    after = run(6, torch.randperm(500, generator=rng)).samples
    assert_close(after[: len(before)], before)
    with pytest.raises(GPVIError, match="another run.*score"):
        run(8, torch.arange(500), noise=0.1001)


@pytest.mark.filterwarnings("ignore:hmc")
def test_chains_with_an_edge_nearby_are_told_apart_and_earlier_checkpoints_go_on(tmp_path):
    checkpoint, start = tmp_path / "run.pt", torch.full((4, 1), 0.01)

    def run(steps, slope):
        settings = {"step_size": 0.001, "num_leapfrog": 1, "burn_in": 1, "seed": 0, "progress": False}
        density = lambda x: -slope * ((x[:, 0] / 0.01).sqrt() - 1)  # noqa: E731
        return hmc(density, start, num_steps=steps, checkpoint=checkpoint, **settings).samples

    run(3, 2.0)
    with pytest.raises(GPVIError, match="another run.*score"):
        run(5, 5.0)
    state = checkpoints.load(checkpoint, torch.device("cpu"))
    near, both = state["run"].pop("scores")
    assert math.isnan(near) and math.isfinite(both)
    state["run"]["score"] = [both, near]
    checkpoints.save(checkpoint, state)
    assert len(run(5, 2.0)) == 4
