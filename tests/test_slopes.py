"""Does a target whose gradient is not the slope of its values get a word, and only such a target?"""

import warnings

import pytest
import torch
from torch.distributions import Normal

from gpvi_lib import Adam, LearnedNoise, MeanField, NegativeELBO, NormalLikelihood, Posterior, check, fit, mlp
from gpvi_lib.errors import SlopeWarning
from gpvi_lib.targets.slopes import check_slope


class Valued:
    """A target of a function."""

    num_data = None

    def __init__(self, function, dim=3):
        self.log_prob, self.dim = function, dim


def scored(target, score):
    """The target with a score of its own."""
    target.score = score
    return target


def partly_detached(x):
    return -0.5 * x[:, 0].square() - 20 * (x[:, 1].detach() - 1).square() - x[:, 2] ** 4


def regression(likelihood, number=60, dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(number, 1, generator=rng, dtype=dtype)
    return Posterior(LearnedNoise(mlp([1, 8, 1])), likelihood, x, x[:, 0].sin())


def noise_cut_off(outputs, targets):
    return Normal(outputs[..., 0], outputs[..., 1].detach().exp()).log_prob(targets)


def noise_by_item(outputs, targets):
    return Normal(outputs[..., 0], torch.tensor(outputs[..., 1].tolist()).exp()).log_prob(targets)


WRONG = {
    "a coordinate": Valued(partly_detached),
    "the noise of a network": regression(noise_cut_off),
    "the noise of a network, by a list": regression(noise_by_item),
    "a score of twice the size": scored(Valued(lambda x: -0.5 * x.square().sum(-1)), lambda x, batch=None: -2 * x),
    "a score of the wrong sign": scored(Valued(lambda x: -0.5 * x.square().sum(-1)), lambda x, batch=None: x),
    "a score that forgets a term": scored(
        Valued(lambda x: -0.5 * x.square().sum(-1) + 5 * x[:, 1].sin()), lambda x, batch=None: -x
    ),
}
RIGHT = {
    "a Laplace density at a kink": Valued(lambda x: -1_000 * x.abs().sum(-1)),
    "very stiff": Valued(lambda x: -1e8 * (x - 0.3).square().sum(-1)),
    "flat": Valued(lambda x: 0 * x.sum(-1)),
    "a large constant": Valued(lambda x: 1e9 - x.square().sum(-1)),
    "a wave too fine for single precision": Valued(lambda x: (1e6 * x).sin().sum(-1)),
    "half of a line": Valued(lambda x: torch.where(x[:, 0] > 0, -x[:, 0], -torch.inf) - x.square().sum(-1)),
    "a score of its own": scored(Valued(lambda x: -0.5 * x.square().sum(-1)), lambda x, batch=None: -x),
}


def first_points(target):
    return 0.5 * torch.randn(2, target.dim, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_cut_off_or_wrong_is_named(name):
    target = WRONG[name]
    whose = "its score" if hasattr(target, "score") else r"autograd.*leave out \.detach\(\)"
    with pytest.warns(SlopeWarning, match=f"the gradient of {type(target).__name__}.log_prob is not.*{whose}"):
        check_slope(target, first_points(target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", [*RIGHT, "a network"])
def test_where_all_is_well_nothing_is_said(name, dtype):
    target = RIGHT[name] if name in RIGHT else regression(NormalLikelihood(), dtype=dtype)
    points = first_points(target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (points, 1e-3 * points, 30 * points.abs()):
            check_slope(target, x.to(dtype))


def test_the_numbers_are_those_of_the_two_slopes():
    with pytest.warns(SlopeWarning, match=r"has 0\.6, and differences of values have 0\.3\. Training"):
        target = scored(Valued(lambda x: -0.5 * x.square().sum(-1), 1), lambda x, batch=None: -2 * x)
        check_slope(target, torch.tensor([[0.3]]))  # along the score, which points to 0: 0.6 and 0.3


def test_fit_and_check_say_so_once_where_they_are_called():
    target = WRONG["a coordinate"]
    sampler = MeanField(torch.zeros(3))
    calls = (
        lambda: fit(sampler, target, NegativeELBO(2), steps=1, optimizer=Adam(0.1), seed=0, progress=False),
        lambda: check(sampler, target, seed=0, num_samples=100, progress=False),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        (one,) = [each for each in caught if each.category is SlopeWarning]
        assert one.filename == __file__


def test_a_minibatch_is_enough():
    target = regression(noise_cut_off)
    with pytest.warns(SlopeWarning):
        settings = {"steps": 1, "optimizer": Adam(0.1), "seed": 0, "progress": False, "batch_size": 16}
        fit(MeanField(torch.zeros(target.dim)), target, NegativeELBO(2), **settings)
