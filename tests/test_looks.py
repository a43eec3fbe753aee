"""What a density of the user's own is told: of shapes, signs, numbers, matrices and seeds that cannot be right."""

import traceback
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, constraints

from gpvi_lib import (
    SVGD,
    Adam,
    CategoricalLikelihood,
    Constrained,
    Gaussian,
    GaussianMixture,
    Generator,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    Particles,
    ParVI,
    Posterior,
    StreamedPosterior,
    check,
    fit,
    hmc,
    save_sampler,
)
from gpvi_lib.errors import DivergedError, GPVIError
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.targets.base import check_rows, log_prob
from gpvi_lib.targets.looks import grows_outwards
from gpvi_lib.targets.posterior import SignWarning

SHORT = {"step_size": 0.1, "num_leapfrog": 5, "num_steps": 20, "burn_in": 10, "seed": 0, "progress": False}
TRAINED = {"optimizer": Adam(1e-2), "seed": 0, "progress": False}
DATA = torch.randn(16, generator=torch.Generator().manual_seed(0)) + 3


class Mine:
    """A log-density of one's own."""

    def __init__(self, log_prob, dim):
        self.log_prob, self.dim = log_prob, dim


def of_named(parts):
    return Normal(parts["m"], 1.0).log_prob(DATA) + Normal(0.0, 10.0).log_prob(parts["m"])


def of_points(x):
    return Normal(x[:, 0], 1.0).log_prob(DATA) + Normal(0.0, 10.0).log_prob(x[:, 0])


def summed(x):
    return Normal(x[:, :1], 1.0).log_prob(DATA).sum(-1) + Normal(0.0, 10.0).log_prob(x[:, 0])


# one datum a chain


@pytest.mark.parametrize("log_prob", [of_points, Constrained(of_named, {"m": constraints.real}).log_prob])
def test_as_many_chains_as_data_do_not_hide_a_forgotten_axis(log_prob, normal):
    """Each chain would have a datum of its own, and a posterior four times too wide."""
    with pytest.raises(GPVIError, match=r"mixes points: .* a number per point needs \[:, None\] before"):
        hmc(log_prob, normal(16, 1).float(), **SHORT)
    assert hmc(summed, normal(16, 1).float(), **SHORT).samples.shape == (10, 16, 1)


def test_as_many_particles_as_data_do_not_either(normal):
    with pytest.raises(GPVIError, match="mixes points"):
        fit(Particles(normal(16, 1).float()), Mine(of_points, 1), ParVI(SVGD()), steps=1, **TRAINED)


def test_a_density_of_one_number_of_points_has_to_treat_them_alike(normal):
    def for_sixteen(x, of_place):
        if len(x) != 16:
            raise ValueError("made for 16 points")
        return summed(x) + of_place * torch.arange(16)

    x = normal(16, 1).float()
    check_rows(lambda x: for_sixteen(x, 0), x)
    with pytest.raises(GPVIError, match="the 16 points have other numbers in another order: 16 data.*num_points = 16"):
        check_rows(lambda x: for_sixteen(x, 1), x)
    each = Mine(lambda x: for_sixteen(x, 1), 1)
    each.num_points = 16
    fit(Particles(x), each, ParVI(SVGD()), steps=1, **TRAINED)

    class Each:
        num_points, dim = 16, 1

        def log_prob(self, x):
            return for_sixteen(x, 1)

    assert hmc(Each().log_prob, x, **SHORT).samples.shape == (10, 16, 1)


# the sign


def half_square(x):
    return 0.5 * x.square().sum(-1)


def test_a_potential_in_place_of_a_log_density_is_named(normal):
    with pytest.warns(SignWarning, match="log_prob grows without end away from the samples, .*: give its negative"):
        hmc(half_square, normal(8, 2).float(), **SHORT | {"num_steps": 200})
    with pytest.warns(SignWarning, match=r"Mine.log_prob grows without end"):
        fit(MeanField(torch.zeros(2)), Mine(half_square, 2), NegativeELBO(8), steps=1_000, **TRAINED)
    found = check(3 * normal(200, 2).float(), Mine(half_square, 2), seed=0)["spread"]
    assert found.verdict == "don't" and "negative of a log-density" in found.meaning


MODES, APART = (GaussianMixture(torch.tensor([[-far, 0.0], [far, 0.0]])) for far in (5.0, 30.0))


RING, FLAT = Mine(lambda x: -0.5 * (x.norm(dim=-1) - 2).square(), 2), Mine(lambda x: 0 * x.sum(-1), 2)


@pytest.mark.parametrize("sd", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("target", [MODES, APART, RING, FLAT], ids=["modes", "modes far apart", "ring", "flat"])
def test_a_sampler_that_is_only_far_off_does_not_look_like_a_wrong_sign(target, sd):
    """Between two modes, within a ring: there, too, the density grows away from the samples, but not for ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SignWarning)
        fit(MeanField(torch.zeros(2), scale=sd), target, NegativeELBO(8), steps=1, **TRAINED)


def test_the_slope_of_a_log_density_may_fail_far_out():
    def fails_beyond_ten(x):
        if float(x.abs().max()) > 10:
            raise ValueError("outside")
        return x

    assert not grows_outwards(fails_beyond_ten, 3 * torch.eye(4))


# numbers


def test_a_density_that_draws_is_refused_by_hmc(normal):
    noise = torch.Generator().manual_seed(0)
    with pytest.raises(GPVIError, match="another number at each evaluation .*: take all data"):
        hmc(lambda x: -half_square(x) + torch.randn((), generator=noise), normal(4, 2).float(), **SHORT)


def test_weights_that_are_rounding_are_left_out(normal):
    exact, large = MeanField(torch.zeros(3), scale=1.0), Mine(lambda x: -half_square(x) - 1e7, 3)
    report = check(exact, large, seed=0)
    assert report.verdict == "trust" and "nats apart: compute in float64" in report.missing["k_hat"]
    assert check(MeanField(torch.zeros(3, dtype=torch.float64), scale=1.0), large, seed=0)["k_hat"].verdict == "trust"


def test_chains_from_one_point_are_not_compared(normal):
    settings = SHORT | {"num_steps": 200, "num_leapfrog": (5, 15)}
    together, apart = (hmc(MODES.log_prob, x, **settings) for x in (torch.full((8, 2), 3.0), normal(8, 2).float()))
    assert not together.apart and apart.apart
    assert "start them apart" in check(together, MODES, seed=0).missing["r_hat"]
    assert "r_hat" not in check(apart, MODES, seed=0).missing


def test_a_density_that_does_not_change_is_named(normal):
    long = SHORT | {"num_steps": 120, "burn_in": 100, "adapt": True}
    with pytest.warns(AcceptanceWarning, match="the step grew from 0.1 to .* so log_prob hardly changes"):
        hmc(FLAT.log_prob, normal(4, 2).float(), **long)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AcceptanceWarning)
        hmc(lambda x: -half_square(x / 30), normal(4, 2).float(), **long)


def test_a_dim_that_is_a_method_is_named():
    class Method:
        log_prob = staticmethod(lambda x: -half_square(x))

        def dim(self):
            return 2

    with pytest.raises(ValueError, match="dim of Method is a method: make it a number, or a property"):
        fit(MeanField(torch.zeros(2)), Method(), NegativeELBO(4), steps=1, **TRAINED)


# matrices


def of_a_process(z):
    """Of its hyperparameters; singular where the length scale is large."""
    x = torch.linspace(0, 5, 25)
    length, scale, noise = z.exp().unbind(-1)
    kernel = torch.exp(-0.5 * ((x[:, None] - x) / length[:, None, None]).square())
    cov = scale[:, None, None] ** 2 * kernel + (noise[:, None, None] ** 2) * torch.eye(25)
    return MultivariateNormal(torch.zeros(25), scale_tril=torch.linalg.cholesky(cov)).log_prob(x.sin()) - half_square(z)


def test_a_singular_matrix_is_a_rejected_proposal(normal):
    """One proposal with no density ended the whole run."""
    long = {"step_size": 3.0, "num_leapfrog": 10, "num_steps": 30, "burn_in": 10, "seed": 0, "progress": False}
    with pytest.raises(torch.linalg.LinAlgError):
        of_a_process(torch.tensor([[9.0, 9.0, -20.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bool(torch.isfinite(hmc(of_a_process, 0.1 * normal(8, 3).float(), **long).samples).all())
    with pytest.raises(ValueError, match=r"not finite at the starting points of chains \[1\]"):
        hmc(of_a_process, torch.tensor([[0.0, 0.0, 0.0], [9.0, 9.0, -20.0]]), **SHORT)


def test_the_matrix_of_a_target_is_not_the_generators():
    far = Generator(3, hidden=(16,), noise_scale=8.0, seed=0)
    with pytest.raises((DivergedError, torch.linalg.LinAlgError)) as caught:
        fit(far, Mine(of_a_process, 3), NegativeELBO(64), steps=50, **TRAINED)
    told = "".join(traceback.format_exception(caught.value))
    assert "a matrix of log_prob is singular at some points: add more to its diagonal" in told
    assert "keeps its Jacobian regular" not in told


# words of torch's own


def in_place(x):
    x *= 2
    return -half_square(x)


HINTS = {
    "one axis too few": (lambda x: Normal(x[:, 0], 1.0).log_prob(DATA).sum(-1), "x[:, 0], needs [:, None] before it"),
    "one point": (lambda x: -0.5 * x[0] ** 2 - 0.5 * x[1] ** 2 + x[7], "log_prob gets all points at once, x (n, d)"),
    "in place": (in_place, "log_prob must not change a tensor in place: write y = y + 1"),
    "numpy": (lambda x: -torch.as_tensor(np.square(x.numpy())).sum(-1), "log_prob must compute with torch alone"),
    "a scale below 0": (
        lambda x: Normal(0.0, x[:, 0] - 9).log_prob(torch.ones(())),
        "a parameter of a distribution is outside its support at some points",
    ),
    "an array": (lambda x: -((np.ones(2) - x) ** 2).sum(-1), "log_prob must compute with torch alone"),
}
OTHER_WORDS = {
    ("one point", "hmc"): "log_prob must return one number per chain, (8,), got (2,)",
    ("numpy", "fit"): "Mine.log_prob is not differentiable in x: compute with torch operations",
}
"""Errors of ours, in place of the hint."""


@pytest.mark.parametrize("key", HINTS)
@pytest.mark.parametrize("by", ["hmc", "fit"])
def test_an_error_out_of_ones_own_density_comes_with_a_hint(key, by, normal):
    """In a note: the error may be another one than we think."""
    log_prob, words = HINTS[key]
    with pytest.raises(Exception) as caught:
        if by == "hmc":
            hmc(log_prob, normal(8, 2).float(), **SHORT)
        else:
            fit(MeanField(torch.zeros(2)), Mine(log_prob, 2), NegativeELBO(4), steps=1, **TRAINED)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert OTHER_WORDS.get((key, by), words) in told


def test_another_precision_is_named_by_hmc(normal):
    design = normal(2, 5)
    with pytest.raises(ValueError, match="log_prob computes in torch.float64 and the sampler draws torch.float32"):
        hmc(lambda x: -(x @ design).square().sum(-1), normal(4, 2).float(), **SHORT)


def test_our_own_errors_get_no_note():
    with pytest.raises(ValueError, match="lives on") as caught:
        fit(MeanField(torch.zeros(3)), Gaussian(torch.zeros(2), torch.eye(2)), NegativeELBO(4), steps=1, **TRAINED)
    assert not getattr(caught.value, "__notes__", None)


def test_a_target_that_needs_a_minibatch_is_named():
    class Needy:
        dim = 2

        def log_prob(self, x, batch):
            return -half_square(x)

    with pytest.raises(
        GPVIError, match=r"Needy.log_prob must take points alone, as in log_prob\(self, x, batch=None\)"
    ):
        fit(MeanField(torch.zeros(2)), Needy(), NegativeELBO(4), steps=1, **TRAINED)


# beside the target


def test_labels_that_are_put_aside_are_looked_at(normal):
    x = normal(50, 2).float()
    labels = (x[:, 0] > 0).long()
    with pytest.raises(ValueError, match="held_out: labels go from 1 to 2"):
        Posterior(torch.nn.Linear(2, 2), CategoricalLikelihood(), x, labels, held_out=(x, labels + 1))
    with pytest.raises(ValueError, match=r"held_out: inputs"):
        Posterior(torch.nn.Linear(2, 2), CategoricalLikelihood(), x, labels, held_out=(x / 0, labels))


def test_how_the_draws_of_hmc_are_kept(normal, tmp_path):
    result = hmc(lambda x: -half_square(x), normal(4, 2).float(), **SHORT)
    with pytest.raises(GPVIError, match=r"got HMCResult: .* of the result of hmc Particles\(result.pooled\)"):
        save_sampler(result, tmp_path / "draws.safetensors")
    assert save_sampler(Particles(result.pooled), tmp_path / "draws.safetensors").exists()
    posterior = Posterior(torch.nn.Linear(2, 2), CategoricalLikelihood(), normal(9, 2).float(), torch.arange(9) % 2)
    with pytest.raises(ValueError, match="or of the result of hmc its .pooled"):
        posterior.predictive(result, normal(2, 2).float())


@pytest.mark.parametrize(
    ("distribution", "targets", "name"),
    [
        (lambda o: torch.distributions.Poisson(o.exp()), torch.linspace(0, 2, 9), "Poisson: IntegerGreaterThan"),
        (lambda o: torch.distributions.Bernoulli(logits=o), 1.0 + torch.arange(9) % 2, "Bernoulli: Boolean"),
    ],
    ids=["rates", "labels from 1"],
)
def test_targets_outside_the_support_are_named(distribution, targets, name, normal):
    with pytest.raises(ValueError, match=f"some targets are outside the support of the likelihood's {name}"):
        Posterior(
            torch.nn.Linear(2, 1), lambda o, y: distribution(o.squeeze(-1)).log_prob(y), normal(9, 2).float(), targets
        )


def test_two_sigmoids_are_no_softmax(normal):
    """At weights of zero both have outputs of one half."""
    module, labels = torch.nn.Linear(2, 2), torch.arange(9) % 2
    data = (CategoricalLikelihood(), normal(9, 2).float(), labels)
    sigmoids = torch.nn.Sequential(module, torch.nn.Sigmoid())
    assert Posterior(sigmoids, *data, held_out=data[1:]).dim == 6
    assert StreamedPosterior(sigmoids, data[0], [*zip(*data[1:], strict=True)]).dim == 6
    with pytest.raises(ValueError, match="leave out its last Softmax"):
        Posterior(torch.nn.Sequential(module, torch.nn.Softmax(-1)), *data)


def test_items_of_unequal_length_are_named():
    items = [(torch.ones(2 + row % 2), torch.tensor(0.5)) for row in range(9)]
    with pytest.raises(
        ValueError, match=r"items 0, .*, 7 of the dataset do not go into one tensor: give all inputs one shape"
    ):
        StreamedPosterior(torch.nn.Linear(2, 1), NormalLikelihood(1.0), items[:8])
    triples = [(torch.ones(2), torch.tensor(0.5), 1) for _ in range(9)]
    with pytest.raises(ValueError, match="must be pairs .*, got a tuple of 3: return both from __getitem__"):
        StreamedPosterior(torch.nn.Linear(2, 1), NormalLikelihood(1.0), triples)


class Helped:
    """A mistake inside, where a helper is called."""

    dim, num_data = 2, 8

    def log_prob(self, x, batch=None):
        return half_square(x, batch)


def test_a_type_error_inside_a_density_is_not_one_of_its_arguments(normal):
    with pytest.raises(TypeError, match=r"half_square\(\) takes 1 positional argument but 2 were given"):
        log_prob(Helped(), normal(3, 2), torch.arange(4))
