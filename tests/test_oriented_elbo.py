"""The log-determinant that knows its sign, and the objective that keeps maps from folding."""

import math
import re

import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import Gaussian, Generator, NegativeELBO, OrientedELBO, Particles, fit
from gpvi_lib.errors import FoldWarning
from gpvi_lib.experiments.build import build_objective
from gpvi_lib.optimizers import Adam

F64 = torch.float64
SETTINGS = {"optimizer": Adam(1e-3), "seed": 0, "progress": False}


def linear(matrix):
    f = Generator(2, noise_scale=None, rng=torch.Generator().manual_seed(0), dtype=F64)
    with torch.no_grad():
        f.output.weight.copy_(torch.tensor(matrix))
        f.output.bias.zero_()
    return f


@pytest.mark.parametrize("determinant", [3.0, 0.5, 0.2, 0.1, -0.1, -0.5])
def test_value_and_slope(determinant):
    """log D from the floor upwards, its tangent below: the slope is 1 / max(D, floor)."""
    f = linear([[determinant, 0.3], [0.0, 1.0]])
    value = f.linearize(torch.zeros(1, 2, dtype=F64)).oriented_log_det(0.2)
    expected = math.log(determinant) if determinant >= 0.2 else math.log(0.2) + determinant / 0.2 - 1
    assert value.item() == pytest.approx(expected)
    if determinant != 0.2:  # there each of the two branches counts for a half, or both
        (slope,) = torch.autograd.grad(value.sum(), f.output.weight)
        assert slope[0, 0].item() == pytest.approx(1 / max(determinant, 0.2))


def test_tails_count_with_their_scale(rng):
    f = Generator(5, 2, (4,), noise_scale=torch.tensor([1.5, 1.5, 0.5, 0.7, 2.0]), rng=rng, dtype=F64)
    linearization = f.linearize(f.noise(20, rng))
    sign, log_det = linearization.slogdet()
    assert bool((sign > 0).all())  # λ is larger than the slopes of a fresh network
    assert_close(linearization.oriented_log_det(1e-3), log_det)


def test_where_nothing_folds_it_is_the_elbo(rng):
    f = Generator(2, 2, (8,), noise_scale=1.0, activation="tanh", input_stdev=1.5, rng=rng, dtype=F64)
    target = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    losses = [objective(f, target, None, rng.manual_seed(3))[0] for objective in (OrientedELBO(30), NegativeELBO(30))]
    assert_close(*losses)
    gradients = [torch.autograd.grad(loss, list(f.parameters())) for loss in losses]
    assert_close(*gradients)


def test_a_reflection_is_turned_round_and_the_plain_elbo_does_not_mind(rng):
    target = Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    for objective, sign in ((OrientedELBO(50), 1), (NegativeELBO(50), -1)):
        f = linear([[-0.5, 0.1], [0.2, 1.0]])
        fit(f, target, objective, steps=500, optimizer=Adam(lr=2e-2, final_lr=1e-3), rng=rng, progress=False)
        assert float(torch.linalg.det(f.output.weight.detach())) == pytest.approx(sign, abs=0.25)


def test_what_cannot_work_is_refused(rng):
    with pytest.raises(ValueError, match="floor of the determinant must be a positive finite number, got 0"):
        OrientedELBO(5, floor=0)
    with pytest.raises(ValueError, match="needs a Generator, got Particles"):
        OrientedELBO(5)(Particles(torch.zeros(3, 2)), None, None, rng)
    assert build_objective({"kind": "oriented_elbo", "num_samples": 4, "floor": 0.1}) == OrientedELBO(4, 0.1)


@pytest.mark.parametrize("floor", [1e-5, 0.01])
def test_the_reported_elbo_has_the_true_determinant_on_either_side_of_the_floor(floor, rng):
    f, target = linear([[1e-3, 0.0], [0.0, 1.0]]), Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    loss, info = OrientedELBO(30, floor)(f, target, None, rng.manual_seed(3))
    exact, _ = NegativeELBO(30)(f, target, None, rng.manual_seed(3))
    assert info["elbo"]().item() == pytest.approx(-exact.item())
    assert info["below_floor"]() == (floor > 1e-3)
    assert (loss < exact - 1) == (floor > 1e-3)  # log D is -6.9 and its tangent at 0.01, taken there, -5.5


def test_a_start_below_the_floor_grows_out_of_it():
    f, target = linear([[0.05, 0.0], [0.0, 0.05]]), Gaussian(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    settings = {"optimizer": Adam(0.02), "seed": 0, "progress": False}
    info = fit(f, target, OrientedELBO(30), steps=100, **settings).diagnostics
    assert (info[0]["below_floor"], info[-1]["below_floor"]) == (1, 0)


@pytest.mark.parametrize("share", [0.1, 0.01])
def test_with_a_floor_as_its_docstring_has_it_a_narrow_target_is_found(share):
    """A spread of 1,000 draws is known to 2.2 %; the rest of the limit is for what 600 steps leave over."""
    f = Generator(3, 3, (32,), noise_scale=torch.full((3,), 0.01), output_scale=torch.full((3,), 0.01), seed=0)
    narrow = Gaussian(torch.zeros(3), 1e-4 * torch.eye(3))
    settings = {"optimizer": Adam(1e-3, final_lr=1e-5), "seed": 0, "progress": False}
    last = fit(f, narrow, OrientedELBO(32, floor=share * 0.01**3), steps=600, **settings).diagnostics[-1]
    assert (last["folds"], last["below_floor"]) == (0, 0)
    assert_close(f.sample(1_000, seed=1).std(0), torch.full((3,), 0.01), rtol=0.15, atol=0)


def test_where_the_floor_makes_the_map_fold_the_floor_is_named():
    f, narrow = linear([[0.05, 0.0], [0.0, 0.05]]), Gaussian(torch.zeros(2, dtype=F64), 1e-4 * torch.eye(2, dtype=F64))
    with pytest.warns(FoldWarning) as found:
        fit(f, narrow, OrientedELBO(30), steps=300, optimizer=Adam(3e-3), seed=0, progress=False)
    assert [re.search("floor=0.01, .* a tenth to a hundredth", str(one.message)) is not None for one in found] == [True]


def test_a_fit_that_ends_below_the_floor_says_so():
    """Adam moves the slope by its rate a step, from 0.02 to about 0.005."""
    f = Generator(1, noise_scale=0.02, seed=0)
    with torch.no_grad():
        f.output.weight.zero_()
        f.output.bias.zero_()
    narrow = Gaussian(torch.zeros(1), 1e-6 * torch.eye(1))
    with pytest.warns(FoldWarning, match="determinants of 1 of the draws .* between 0 and floor=0.01"):
        result = fit(f, narrow, OrientedELBO(30), steps=15, **SETTINGS)
    assert result.diagnostics[-1]["below_floor"] == 1 and result.diagnostics[-1]["folds"] == 0
    assert result.diagnostics[0]["below_floor"] == 0
