"""A training step never waits for its device: shown on torch's meta device, which has shapes and no values."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpvi_lib import linalg
from gpvi_lib.directions import GFSF, SVGD, SteinCritic
from gpvi_lib.fitting import Training, fit
from gpvi_lib.inverse import BlockInverse, DenseInverse, HelperInverse
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.objectives import GPVI, KernelSteinDiscrepancy, MaximumLikelihood, NegativeELBO, OrientedELBO, ParVI
from gpvi_lib.optimizers import Adam, RMSprop
from gpvi_lib.samplers import Generator, MeanField, Particles
from gpvi_lib.targets import ClassificationPosterior, Gaussian, NormalPrior

# What copies a value from the device, or asks it for one: on a GPU each of them stops the CPU until the device is done.
WAITS = {"_local_scalar_dense", "_linalg_check_errors", "is_nonzero", "nonzero", "masked_select", "equal", "unique"}


class Calls(TorchDispatchMode):
    """Names of the operators called inside, and how often."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names[func.__name__.split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def generator(network, rng):
    scale = 0.1 * network.fan_in_scale()
    return Generator(network.dim, 3, (5,), noise_scale=scale, train_noise_scale=True, rng=rng)


def square(network, rng):
    return Generator(network.dim, network.dim, (5,), noise_scale=1.0, activation="tanh", rng=rng)


def particles(network, rng):
    return Particles(torch.randn(4, network.dim, generator=rng))


def mean_field(network, rng):
    return MeanField(torch.zeros(network.dim), 0.1)


CASES = {
    "gpvi block": (generator, lambda: GPVI(4, BlockInverse())),
    "gpvi block, head": (generator, lambda: GPVI(4, BlockInverse(), kernel_space="head")),
    "gpvi dense": (generator, lambda: GPVI(4, DenseInverse())),
    "gpvi helper": (generator, lambda: GPVI(4, HelperInverse(width=4, num_layers=1))),
    "exact density": (generator, lambda: NegativeELBO(4)),
    "oriented": (square, lambda: OrientedELBO(4)),
    "mean field": (mean_field, lambda: NegativeELBO(4)),
    "amortised svgd": (generator, lambda: ParVI(SVGD(), 4)),
    "amortised svgd, two batches": (generator, lambda: ParVI(SVGD(), 4, independent=True)),
    "amortised gfsf": (generator, lambda: ParVI(GFSF(), 4)),
    "amortised critic": (generator, lambda: ParVI(SteinCritic(hidden=(4,)), 4)),
    "svgd": (particles, lambda: ParVI(SVGD())),
    "gfsf": (particles, lambda: ParVI(GFSF())),
    "critic": (particles, lambda: ParVI(SteinCritic(hidden=(4,)))),
    "ksd": (particles, KernelSteinDiscrepancy),
    "ensemble": (particles, MaximumLikelihood),
}


def training(make_sampler, make_objective, rng) -> Training:
    """A classifier's posterior and a sampler of it on the meta device."""
    network = FlatModule(mlp([2, 3, 2]))
    target = ClassificationPosterior(network, torch.zeros(6, 2), torch.arange(6) % 2, NormalPrior(0.5))
    target.inputs, target.targets = target.inputs.to("meta"), target.targets.to("meta")
    sampler = make_sampler(network, rng).to("meta")
    return Training(sampler, target, make_objective(), rng=rng, optimizer=RMSprop(lr=1e-3), batch_size=3)


@pytest.mark.parametrize("case", CASES)
def test_a_step_never_waits_for_the_device(case, rng, monkeypatch):
    # The fused Adam has no kernel for the meta device.
    monkeypatch.setattr(torch.optim, "Adam", lambda parameters, lr, fused: torch.optim.SGD(parameters, lr))
    state = training(*CASES[case], rng)
    state.advance()  # the first call builds helper and critic
    with Calls() as calls:
        state.advance()
    assert "randn" in calls.names or case in ("svgd", "gfsf", "ksd", "ensemble")  # the watch sees something
    assert not calls.names.keys() & WAITS


class OnACard(torch.Generator):
    """A CPU's generator that says it is a GPU's: what `fit` goes by."""

    device = torch.device("cuda")


@pytest.mark.parametrize(("make_rng", "looks"), [(OnACard, 10), (torch.Generator, 1_000)])
def test_the_loop_looks_at_the_loss_of_a_card_every_hundredth_step_only(make_rng, looks):
    sampler = Particles(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)))
    target = Gaussian(torch.zeros(2), torch.eye(2))
    with Calls() as calls:
        fit(sampler, target, ParVI(SVGD()), steps=1_000, optimizer=Adam(lr=1e-3), rng=make_rng(), progress=False)
    # Besides, a hundred times for the loss in the progress bar and for the two numbers that SVGD says of itself, which
    # are there by then, a few times before and after, and in each step for the densities, which do lie on a CPU.
    assert looks + 1_300 <= calls.names["_local_scalar_dense"] < looks + 1_320


def test_the_watch_sees_a_wait():
    a, b = torch.eye(3, device="meta"), torch.ones(3, 1, device="meta")
    with Calls() as calls:
        torch.linalg.solve(a, b)
    assert calls.names.keys() & WAITS
    with Calls() as calls:
        linalg.solve(a, b)
    assert not calls.names.keys() & WAITS
    with pytest.raises(RuntimeError, match="meta"):
        bool(a.sum() > 0)
