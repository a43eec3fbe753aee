"""What tells runs apart: the prior behind many data, modules inside a sampler, and data inside another target."""

import pickle
import re

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, constraints
from torch.testing import assert_close

from gpvi_lib import (
    Adam,
    Constrained,
    Generator,
    LangevinNetwork,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalPrior,
    ParVI,
    PointEstimate,
    Posterior,
    ProblemFamily,
    checkpoints,
    fit,
    hmc,
)
from gpvi_lib.errors import GPVIError
from gpvi_lib.samplers import Sampler, standard_normal
from gpvi_lib.targets import BayesianLinearRegression, FlatFirst, Gaussian, LogisticPosterior

pytestmark = pytest.mark.filterwarnings("ignore::gpvi_lib.hamiltonian.AcceptanceWarning")

SETTINGS = {"optimizer": Adam(1e-3), "seed": 0, "progress": False}


def posterior(prior, dtype=torch.float32, order=slice(None)):
    """So many exact data that the prior is lost in their log-likelihood."""
    x = torch.randn(2_000, 1, generator=torch.Generator().manual_seed(0)).to(dtype)[order]
    return Posterior(nn.Linear(1, 1, dtype=dtype), NormalLikelihood(0.05), x, 2 * x[:, 0] + 3, prior=prior)


class Slab:
    """A prior whose one number is private, so that only its values tell."""

    def __init__(self, scale):
        self._scale = scale

    def log_prob(self, x):
        return NormalPrior(self._scale).log_prob(x)


def chains(target, path, num_steps=2):
    start = torch.zeros(2, 2, dtype=target.inputs.dtype)
    how = {"step_size": 1e-4, "num_leapfrog": 1, "num_steps": num_steps, "burn_in": 0, "seed": 0, "progress": False}
    return hmc(target.log_prob, start, checkpoint=path, **how).samples


@pytest.mark.parametrize("make", [NormalPrior, Slab], ids=["its number", "its values"])
def test_chains_on_another_prior_are_another_run_however_many_the_data(make, tmp_path):
    path = tmp_path / "h.pt"
    first = chains(posterior(make(1.0)), path)
    for scale in (0.1, 30.0):
        with pytest.raises(GPVIError, match=r"what differs: target\.prior"):
            chains(posterior(make(scale)), path)
    assert torch.equal(chains(posterior(make(1.0)), path), first)


@pytest.mark.parametrize("make", [NormalPrior, Slab], ids=["its number", "its values"])
def test_a_fit_under_another_prior_is_another_run_however_many_the_data(make, tmp_path):
    def run(scale, steps):
        start = MeanField(torch.zeros(2), 0.1)
        fit(start, posterior(make(scale)), NegativeELBO(4), steps=steps, checkpoint=tmp_path / "f.pt", **SETTINGS)

    run(1.0, steps=2)
    with pytest.raises(GPVIError, match=r"what differs: target\.prior"):
        run(30.0, steps=3)
    run(1.0, steps=3)


def test_numbers_in_a_prior_inside_a_prior_are_seen_and_what_it_keeps_once_asked_is_not():
    points = torch.zeros(1, 3), torch.ones(1, 3)
    nested = [FlatFirst(NormalPrior(scale), 1) for scale in (1.0, 1.0 + 1e-9)]
    one, other = (
        checkpoints.of_priors(BayesianLinearRegression(torch.eye(3), points[0][0], p), *points) for p in nested
    )
    assert [name for name in one if one[name] != other[name]] == ["target.prior.prior.scale"]
    normal = MultivariateNormal(torch.zeros(3), torch.eye(3))
    target = BayesianLinearRegression(torch.eye(3), points[0][0], normal)
    before = checkpoints.of_priors(target, *points)
    assert normal.precision_matrix.shape == (3, 3)  # torch keeps it from now on
    assert checkpoints.of_priors(target, *points) == before and "target.prior.loc" in before
    far = Independent(Normal(torch.ones(3), torch.ones(3)), 1)
    assert checkpoints.of_priors(BayesianLinearRegression(torch.eye(3), points[0][0], far), *points).keys() > {
        "target.prior",
        "target.prior.base_dist.loc",
    }
    assert checkpoints.of_priors(Gaussian(torch.zeros(3), torch.eye(3)), *points) == {}


def test_a_prior_that_cannot_be_asked_at_a_point_is_known_by_its_numbers():
    target = BayesianLinearRegression(torch.eye(2), torch.zeros(2), NormalPrior(torch.ones(2)))
    found = checkpoints.of_priors(target, torch.zeros(1, 5))
    assert found["target.prior"][0] == "NormalPrior" and found["target.prior"][1] != found["target.prior"][1]


def test_sums_may_differ_by_their_order_alone_which_in_float64_is_far_less(tmp_path):
    path = tmp_path / "run.pt"
    for dtype, small, large in ((torch.float32, 1e-6, 1e-4), (torch.float64, 1e-12, 1e-7)):
        checkpoints.refuse_another_run(path, {"target": [1.0 + small]}, {"target": [1.0]}, dtype)
        with pytest.raises(GPVIError, match=r"what differs: target\)"):
            checkpoints.refuse_another_run(path, {"target": [1.0 + large]}, {"target": [1.0]}, dtype)
    prior = NormalPrior(1.0)
    first = chains(posterior(prior, torch.float64), path)
    turned = torch.arange(2_000).flip(0)
    assert torch.equal(chains(posterior(prior, torch.float64, turned), path), first)


def test_a_checkpoint_that_only_lacks_names_may_be_of_an_earlier_version(tmp_path):
    with pytest.raises(GPVIError, match=r"of another run or of an earlier version \(what differs: target\.prior\)"):
        checkpoints.refuse_another_run(tmp_path, {"seed": 0, "target.prior": ["NormalPrior", 1.0]}, {"seed": 0})


class Net(Sampler):
    """A perceptron of torch's own modules."""

    def __init__(self, unit):
        super().__init__()
        self.dim = 2
        self.net = nn.Sequential(nn.Linear(2, 2), unit, nn.Linear(2, 2))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(0.1)

    def rsample(self, num_samples, rng):
        like = next(self.parameters())
        return self.net(standard_normal((self._number(num_samples), 2), rng, like))


def inner(**arguments):
    return Generator(2, hidden=(4,), seed=0, **arguments)


def chain(start):
    return LangevinNetwork(start, Gaussian(torch.zeros(2), torch.eye(2)), 2)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (
            lambda: PointEstimate(inner(activation="tanh")),
            lambda: PointEstimate(inner(activation="softplus")),
            r"sampler\.inner\.activation",
        ),
        (
            lambda: PointEstimate(inner(input_stdev=1.0)),
            lambda: PointEstimate(inner(input_stdev=2.0)),
            r"sampler\.inner\.input_stdev",
        ),
        (
            lambda: chain(inner(activation="tanh")),
            lambda: chain(inner(activation="softplus")),
            r"sampler\.start\.activation",
        ),
        (lambda: Net(nn.LeakyReLU(0.1)), lambda: Net(nn.LeakyReLU(0.2)), r"sampler\.net\.1\.negative_slope"),
        (lambda: Net(nn.Tanh()), lambda: Net(nn.Sigmoid()), "sampler"),
    ],
    ids=["activation", "noise", "start", "slope", "unit"],
)
def test_a_sampler_with_another_one_inside_is_another_run(one, other, differs, tmp_path):
    def run(sampler, steps):
        target = Gaussian(torch.zeros(sampler.dim), torch.eye(sampler.dim))
        fit(sampler, target, ParVI(num_samples=4), steps=steps, checkpoint=tmp_path / "s.pt", **SETTINGS)

    run(one(), steps=2)
    with pytest.raises(GPVIError, match=rf"what differs: {differs}\)"):
        run(other(), steps=3)
    run(one(), steps=3)


def constrained(y):
    return Constrained(
        BayesianLinearRegression(torch.ones(len(y), 1), y, NormalPrior(2.0)), {"scale": constraints.positive}
    )


def test_one_other_datum_of_a_constrained_target_is_another_run(tmp_path):
    def run(y, steps):
        start = MeanField(torch.zeros(1), 0.1)
        fit(start, constrained(y), NegativeELBO(4), steps=steps, checkpoint=tmp_path / "c.pt", **SETTINGS)

    y = torch.linspace(0, 100, 1_000)
    other = y.clone()
    other[500] += 1e-3
    run(y, steps=2)
    with pytest.raises(GPVIError, match=r"what differs: target\.target\.targets\)"):
        run(other, steps=3)
    run(y, steps=3)


def test_a_constrained_target_can_be_pickled():
    target, x = constrained(torch.linspace(0, 1, 5)), torch.tensor([[-1.0], [0.0], [1.0]])
    assert target.target is not None and target.num_data == 5
    again = pickle.loads(pickle.dumps(target))
    assert_close(again.log_prob(x), target.log_prob(x))
    assert_close(again.log_prob(x, torch.arange(2)), target.log_prob(x, torch.arange(2)))
    assert Constrained(lambda p: -p["a"], {"a": constraints.positive}).target is None


class Rotated(Sampler):
    """A normal in a fixed basis, kept as a plain tensor."""

    def __init__(self, basis):
        super().__init__()
        self.dim, self.basis, self.mean = 2, basis, nn.Parameter(torch.zeros(2))

    def rsample(self, num_samples, rng):
        self.last = (self.mean + standard_normal((self._number(num_samples), 2), rng, self.mean)) @ self.basis
        return self.last


class Circle:
    """A target of your own, with a number for its setting."""

    dim, num_data = 2, None

    def __init__(self, radius):
        self.radius = radius

    def log_prob(self, x, batch=None):
        return -0.5 * (x.norm(dim=-1) - self.radius).square()


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda scale: LangevinNetwork(MeanField(torch.zeros(2)), Gaussian(torch.zeros(2), scale * torch.eye(2)), 2),
         r"sampler\._targets\[0\], sampler\._targets\[0\]\.\w+"),
        (lambda scale: LangevinNetwork(MeanField(torch.zeros(2)), posterior(NormalPrior(scale)), 2),
         r"(sampler\._targets\[0\], )?sampler\._targets\[0\]\.prior"),
        (lambda radius: LangevinNetwork(MeanField(torch.zeros(2)), Circle(radius), 2), r"sampler\._targets\[0\]\)"),
        (lambda scale: Rotated(scale * torch.eye(2)), r"tensors of the sampler\)"),
    ],
    ids=["target", "prior", "number", "tensor"],
)  # fmt: skip
def test_a_sampler_that_holds_another_target_or_tensor_is_another_run(make, differs, tmp_path):
    def run(sampler, steps):
        target = Gaussian(torch.zeros(2), torch.eye(2))
        fit(sampler, target, ParVI(num_samples=4), steps=steps, checkpoint=tmp_path / "s.pt", **SETTINGS)

    first = make(1.0)
    run(first, steps=2)
    with pytest.raises(GPVIError, match=rf"what differs: {differs}"):
        run(make(2.0), steps=3)
    run(first, steps=3)
    run(make(1.0), steps=4)


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda number: posterior(NormalPrior(number)), r"target\.problems\[1\]\.prior"),
        (lambda number: LogisticPosterior(torch.ones(9, 1), torch.ones(9).long(), rate=1e-3 * number), "target"),
        (lambda number: constrained(torch.full((3,), number)), r"target\.problems\[1\]\.target\.targets"),
    ],
    ids=["prior", "rate", "constrained"],
)
def test_a_family_with_another_prior_or_other_data_inside_is_told_apart(make, differs):
    def told(number):
        family = ProblemFamily([make(1.0), make(number)])
        points = torch.zeros(1, family.dim), torch.ones(1, family.dim)
        return checkpoints.of_data(family) | checkpoints.of_priors(family, *points)

    one, other = told(1.0), told(2.0)
    assert told(1.0) == one
    names = [name for name in one if one[name] != other[name]]
    assert names and all(re.match(differs, name) for name in names)


def test_of_many_differences_the_first_are_named(tmp_path):
    with pytest.raises(GPVIError, match=r"what differs: 0, 1, .*, 19, 5 more\)"):
        checkpoints.refuse_another_run(tmp_path, {str(i): 0 for i in range(25)}, {str(i): 1 for i in range(25)})
