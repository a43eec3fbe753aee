"""What practitioners ran into: each a wrong result or a loss that came without a word."""

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, NegativeBinomial, Normal

from gpvi_lib import (
    Adam,
    CategoricalLikelihood,
    Gaussian,
    Generator,
    HMCResult,
    LearnedNoise,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    NormalMixture,
    NormalPrior,
    Posterior,
    StreamedPosterior,
    check,
    fit,
    hmc,
    load_sampler,
    mlp,
    save_sampler,
)
from gpvi_lib import hamiltonian as of_chains
from gpvi_lib.errors import CannotWrite, GPVIError
from gpvi_lib.fitting import Training
from gpvi_lib.hamiltonian import AcceptanceWarning


def data(number=40, features=2):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(number, features, generator=rng)
    return x, x.sum(-1).sin()


def test_predictions_far_from_zero_keep_their_spread():
    """Dates in seconds: single precision has one number in 128 there."""
    mixture = NormalMixture(torch.tensor([[0.0], [1.0]]), 0.5)
    moved = mixture.rescaled(1.7e9, 0.3)
    ends = [float(end) - 1.7e9 for end in moved.interval(0.9)]
    assert ends == pytest.approx([0.3 * float(end) for end in mixture.interval(0.9)], abs=1e-5)
    assert float(moved.stddev) == pytest.approx(0.3 * float(mixture.stddev), rel=1e-4)


NUMPY = {
    "steps": np.int64(20),
    "batch_size": np.int64(7),
    "callback_every": np.int64(5),
    "optimizer": Adam(np.float64(0.01), final_lr=np.float64(1e-3)),
    "seed": np.int64(3),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numbers_of_numpy_can_be_resumed(name, tmp_path, monkeypatch):
    """The second call finds all 20 steps in the checkpoint."""
    x, y = data()
    steps, plain = [], Training.advance
    monkeypatch.setattr(Training, "advance", lambda self: steps.append(self.step) or plain(self))
    posterior = Posterior(mlp([2, 3, 1]), NormalLikelihood(0.3), x, y)
    settings = {"steps": 20, "batch_size": 7, "callback_every": 5, "optimizer": Adam(0.01, final_lr=1e-3), "seed": 3}
    settings |= {"progress": False, "checkpoint": tmp_path / "run.pt", "callback": lambda step, sampler: None}
    samplers = [MeanField(torch.zeros(posterior.dim)) for _ in range(2)]
    for sampler in samplers:
        fit(sampler, posterior, NegativeELBO(4), **settings | {name: NUMPY[name]})
        assert steps == list(range(20))
    assert torch.equal(samplers[0].mean, samplers[1].mean)


def test_chains_with_numbers_of_numpy_can_be_resumed(tmp_path, monkeypatch):
    proposals, plain = [], of_chains.leapfrog
    monkeypatch.setattr(of_chains, "leapfrog", lambda *args, **steps: proposals.append(0) or plain(*args, **steps))
    settings = {"step_size": np.float64(0.1), "num_leapfrog": np.int64(5), "num_steps": np.int64(20)}
    settings |= {"burn_in": np.int64(5), "seed": 0, "progress": False, "checkpoint": tmp_path / "run.pt"}
    first, second = (hmc(lambda x: -0.5 * x.square().sum(-1), torch.zeros(2, 2), **settings) for _ in range(2))
    assert len(proposals) == 20  # of the first call
    assert torch.equal(first.samples, second.samples)


def test_hmc_refuses_a_checkpoint_that_cannot_be_written_before_its_first_proposal(tmp_path):
    calls = []

    def log_prob(x):
        calls.append(1)
        return -0.5 * x.square().sum(-1)

    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run.pt"
    with pytest.raises(CannotWrite, match="give another path as checkpoint"):
        hmc(
            log_prob, torch.zeros(2, 2), step_size=0.1, num_leapfrog=5, num_steps=20, burn_in=5, seed=0, checkpoint=path
        )
    assert not calls


def test_r_hat_of_networks_does_not_hang_on_how_their_inputs_are_given():
    """Two chains whose hidden units are mirrored predict the same."""
    x, y = data(features=1)
    weights = 0.3 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    weights[:, :3] += 2
    found = []
    for inputs in (x, (x,)):
        posterior = Posterior(mlp([1, 3, 1], activation="tanh"), NormalLikelihood(1.0), inputs, y)
        mirrored = weights.clone()
        mirrored[:, :9] *= -1  # weights and biases of the hidden layer, weights of the output
        chains = [part for both in (weights, mirrored) for part in both.split(100)]
        found.append(check(chains, posterior, seed=0, num_samples=100, progress=False)["r_hat"].value)
    assert found[0] == pytest.approx(found[1], abs=1e-6) and found[0] < 1.1


class Counts(nn.Module):
    """A negative binomial with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.log_r = nn.Parameter(torch.zeros(()))

    def forward(self, outputs, targets):
        return NegativeBinomial(self.log_r.exp(), logits=outputs[..., 0]).log_prob(targets)


def test_parameters_that_nothing_would_train_are_refused():
    x, y = data()
    with pytest.raises(GPVIError, match="the likelihood has parameters of its own.*as LearnedNoise does"):
        Posterior(mlp([2, 3, 1]), Counts(), x, y.abs().round())
    Posterior(mlp([2, 3, 1]), Counts().requires_grad_(False), x, y.abs().round())


def test_true_and_false_are_targets():
    x, y = data()
    posterior = Posterior(mlp([2, 3, 1]), lambda f, y: Bernoulli(logits=f[..., 0]).log_prob(y.float()), x, y > 0)
    assert posterior.log_prob(torch.zeros(1, posterior.dim)).isfinite().all()


def test_features_that_carry_a_graph_are_refused():
    x, y = data()
    features = nn.Linear(2, 2)(x)
    with pytest.raises(ValueError, match=r"inputs carry a graph.*\.detach\(\)"):
        Posterior(mlp([2, 3, 1]), NormalLikelihood(0.3), features, y)


class Mine:
    dim = 2

    def log_likelihood(self, x):
        return -0.5 * x.square().sum(-1)

    def log_prob(self, x):
        return self.log_likelihood(x)


def test_a_target_may_have_a_log_likelihood_without_minibatches():
    fit(MeanField(torch.zeros(2)), Mine(), NegativeELBO(2), steps=1, optimizer=Adam(0.1), seed=0, progress=False)


def test_a_generator_of_numpys_numbers_can_be_saved(tmp_path):
    path = save_sampler(Generator(np.int64(3), noise_dim=np.int64(2), seed=np.int64(0)), tmp_path / "g.safetensors")
    assert load_sampler(path).sample(4, seed=0).shape == (4, 3)


def test_check_reads_streamed_data_five_times():
    x, y = data(300)
    read = []

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, row):
            read.append(row)
            return x[row], y[row]

    posterior = StreamedPosterior(LearnedNoise(mlp([2, 3, 1])), NormalLikelihood(), Files())
    read.clear()
    check(MeanField(torch.zeros(posterior.dim), 0.1), posterior, seed=0, num_samples=200, progress=False)
    assert 5 <= len(read) / 300 < 5.5, len(read) / 300  # and some rows for a look at what the network returns
    page = (Path(__file__).parents[1] / "docs" / "your-own-model.md").read_text()
    assert "`check` reads all data five times at 200 draws or fewer" in page


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_elbo_trains_sooner_from_a_wider_noise_as_the_page_says(seed):
    """It gained 340 to 670 nats where this was written."""
    rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 60)[:, None]
    y = (3 * x[:, 0]).sin() + 0.1 * torch.randn(60, generator=rng)
    posterior = Posterior(mlp([1, 20, 20, 1]), NormalLikelihood(0.1), x, y)
    settings = {"steps": 400, "optimizer": Adam(1e-2, final_lr=1e-4), "seed": seed, "progress": False}
    elbo = []
    for relative_noise in (0.02, 0.3):  # the first is the default
        sampler = Generator.for_weights(posterior.prior.scale, relative_noise=relative_noise, seed=seed)
        fit(sampler, posterior, NegativeELBO(8), **settings)
        with torch.no_grad():
            w, log_q = sampler.rsample_with_log_prob(500, torch.Generator().manual_seed(1))
        elbo.append(float((posterior.log_prob(w) - log_q).mean()))
    assert posterior.dim == 481 and elbo[1] > elbo[0] + 100
    said = "With 481 weights and 60 data the ELBO after 400 steps is then higher by more than 100 nats on each of three"
    page = (Path(__file__).parents[1] / "docs" / "your-own-model.md").read_text()
    assert said in " ".join(page.split()) and "0.02 of the prior's scale" in page


def test_the_pooled_draws_of_chains_take_turns():
    """So that to thin them is to thin the draws."""
    samples = torch.arange(3.0)[:, None, None] + 10 * torch.arange(2.0)[:, None]
    result = HMCResult(samples, torch.ones(2), torch.ones(2), 0.1, 1.0)
    assert result.pooled.flatten().tolist() == [0, 10, 1, 11, 2, 12]


class WidePrior(nn.Module):
    """Independent normals, as a module whose number is no parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5))

    def log_prob(self, w):
        return Normal(0.0, self.scale).log_prob(w).sum(-1)

    def sample(self, num_samples, like, rng):
        return self.scale * torch.randn(num_samples, like.shape[1], generator=rng)


def test_priors_may_be_modules_without_parameters():
    x, y = data()
    ours, theirs = (
        Posterior(mlp([2, 3, 1]), NormalLikelihood(0.3), x, y, prior=prior) for prior in (WidePrior(), NormalPrior(1.5))
    )
    w = ours.sample_prior(5, seed=0)
    torch.testing.assert_close(w, theirs.sample_prior(5, seed=0))
    torch.testing.assert_close(ours.log_prob(w), theirs.log_prob(w))
    apart = ours.log_prob(w) - ours.log_likelihood(w)  # two numbers of some thousand
    torch.testing.assert_close(apart, NormalPrior(1.5).log_prob(w), rtol=0, atol=2e-3)


def test_a_chain_that_starts_far_out_is_to_start_elsewhere():
    start = torch.zeros(4, 1)
    start[0] = 1e5
    settings = {"step_size": 1e-3, "num_leapfrog": 1, "num_steps": 2, "burn_in": 1, "seed": 0, "progress": False}
    with pytest.warns(AcceptanceWarning, match="after the burn-in of some chains .* Start those elsewhere"):
        hmc(lambda x: -x[:, 0].square(), start, **settings)
    settings |= {"step_size": 0.5, "num_leapfrog": 5, "num_steps": 80, "burn_in": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the burn-in brings it back
        hmc(lambda x: -x[:, 0].square(), start, **settings)


@pytest.mark.parametrize(("dtype", "coarse"), [(torch.float32, True), (torch.float64, False)])
def test_chains_whose_energies_are_rounded_away_are_named(dtype, coarse):
    settings = {"step_size": 0.5, "num_leapfrog": 5, "num_steps": 40, "burn_in": 10, "seed": 0, "progress": False}
    start = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hmc(lambda x: -0.5 * x.square().sum(-1) - 1e8, start, **settings)
    found = [one for one in caught if "nats apart" in str(one.message)]
    assert len(found) == coarse and all(one.category is AcceptanceWarning for one in found)
    assert all(one.filename == __file__ for one in found)


@pytest.mark.parametrize("initial", [[[0.0, 0.0]], None, torch.zeros(2, 2, dtype=torch.int64)])
def test_chains_start_at_tensors(initial):
    with pytest.raises(GPVIError, match="initial must be a floating point tensor"):
        hmc(lambda x: -x.square().sum(-1), initial, step_size=0.1, num_leapfrog=5, num_steps=20, burn_in=5, seed=0)


def test_stein_identity_fails_at_an_edge():
    """As the page on what fails says: right draws of an exponential are not trusted, but those of its logarithm are."""
    x = torch.empty(2_000, 1).exponential_(generator=torch.Generator().manual_seed(0))

    class Exponential:
        dim = 1

        def log_prob(self, x):
            return -x[:, 0]

    class Logarithm:
        dim = 1

        def log_prob(self, u):
            return u[:, 0] - u[:, 0].exp()

    verdicts = [
        check(draws, target, seed=0, progress=False)["spread"].verdict
        for draws, target in ((x, Exponential()), (x.log(), Logarithm()))
    ]
    assert verdicts == ["don't", "trust"]


@pytest.mark.filterwarnings("ignore::gpvi_lib.errors.FoldWarning", "ignore::gpvi_lib.errors.KinkWarning")
def test_a_small_target_wants_the_generators_output_at_its_scale_too():
    """As the page on one's own model says: with λ alone at the target's scale the samples are too wide for long."""
    target, widest = Gaussian(torch.zeros(4), 0.03**2 * torch.eye(4)), {}
    for name, scale in (("default", None), ("at the scale", torch.full((4,), 0.03))):
        sampler = Generator(4, noise_dim=2, noise_scale=0.03, output_scale=scale, seed=0)
        fit(sampler, target, NegativeELBO(20), steps=500, optimizer=Adam(1e-3), seed=0, progress=False)
        widest[name] = float(sampler.sample(500, seed=1).std(0).max() / 0.03)
    assert widest["at the scale"] < 1.5 < 3 < widest["default"], widest


# ---------------------------------------------------------------- bad input that had torch's words, or none


class Items(torch.utils.data.Dataset):
    """Pairs that are read one by one; nobody has looked at all of them."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], self.y[row]


def trained(posterior, batch_size=20):
    sampler = MeanField(torch.zeros(posterior.dim), 0.01)
    settings = {"steps": 20, "batch_size": batch_size, "optimizer": Adam(1e-3), "seed": 0, "progress": False}
    return fit(sampler, posterior, NegativeELBO(2), **settings)


def test_streamed_data_are_looked_at_when_they_are_read():
    """The first, the middle and the last are seen at the start; here others are wrong."""
    x, y = data()
    labels = (y > 0).long()
    missing, infinite, third = x.clone(), y.clone(), labels.clone()
    missing[7, 1], infinite[11], third[13] = torch.nan, torch.inf, 2
    for (inputs, targets), likelihood, outputs, said in (
        (
            (missing, y),
            NormalLikelihood(0.1),
            1,
            "item 7 of the dataset: its inputs are not finite: leave such data out",
        ),
        ((x, infinite), NormalLikelihood(0.1), 1, "item 11 of the dataset: its targets are not finite"),
        ((x, third), CategoricalLikelihood(), 2, "items [0-9, ]+…: labels go from 0 to 2, but the network's 2 outputs"),
    ):
        posterior = StreamedPosterior(mlp([2, 4, outputs]), likelihood, Items(inputs, targets))
        with pytest.raises(ValueError, match=said):
            trained(posterior)
    trained(StreamedPosterior(mlp([2, 4, 2]), CategoricalLikelihood(), Items(x, labels)))
    both = StreamedPosterior(mlp([2, 4, 1]), NormalLikelihood(0.1), Items(missing, y))
    with pytest.raises(ValueError, match="item 7 of the dataset"):
        both.log_prob(torch.zeros(1, both.dim))


def test_the_likelihood_of_data_put_aside_is_evaluated_in_parts(monkeypatch):
    x, y = data(90)
    posterior = Posterior(mlp([2, 4, 1]), NormalLikelihood(0.3), x[:50], y[:50], held_out=(x[50:], y[50:]))
    w = posterior.sample_prior(10, seed=0)
    whole, rows, plain = posterior.held_out_log_likelihood(w), [], posterior.network

    def network(weights, inputs):
        rows.append(len(inputs))
        return plain(weights, inputs)

    monkeypatch.setattr("gpvi_lib.targets.posterior.EVALUATED", 60)
    monkeypatch.setattr(posterior, "network", network)
    torch.testing.assert_close(posterior.held_out_log_likelihood(w), whole)
    assert rows == [6, 6, 6, 6, 6, 6, 4]


def test_check_asks_a_target_with_many_data_for_few_points_at_once(monkeypatch):
    x, y = data(60)
    posterior, points = Posterior(mlp([2, 4, 1]), NormalLikelihood(0.3), x, y), []
    settings = {"seed": 1, "num_samples": 100, "progress": False}
    sampler = MeanField(torch.zeros(posterior.dim), 0.1)
    whole, plain = check(sampler, posterior, **settings), posterior.log_prob

    def log_prob(w, batch=None):
        points.append(len(w) if batch is None else 0)
        return plain(w, batch)

    monkeypatch.setattr("gpvi_lib.trust.EVALUATED", 600)
    monkeypatch.setattr(posterior, "log_prob", log_prob)
    parts = check(sampler, posterior, **settings)
    assert max(points) <= 10 and sum(points) > 200
    for one, other in zip(whole.findings, parts.findings, strict=True):
        assert (one.key, one.verdict) == (other.key, other.verdict) and other.value == pytest.approx(
            one.value, rel=1e-3
        )


def refused():
    x, y = data()
    module, noise = mlp([2, 4, 1]), NormalLikelihood(0.3)
    posterior = Posterior(module, noise, x, y)
    w = posterior.sample_prior(3, seed=0)
    chains = {"num_leapfrog": 3, "num_steps": 5, "burn_in": 1, "seed": 0, "progress": False}

    def lbfgs():
        sampler = MeanField(torch.zeros(2))
        target, settings = Gaussian(torch.zeros(2), torch.eye(2)), {"steps": 1, "seed": 0, "progress": False}
        fit(sampler, target, NegativeELBO(2), optimizer=partial(torch.optim.LBFGS, lr=1.0), **settings)

    @torch.no_grad()
    def without_gradients():
        trained(posterior)

    return {
        "whole numbers": (lambda: Posterior(module, noise, x.long(), y), r"give inputs.float\(\)"),
        "a loss": (
            lambda: Posterior(mlp([2, 4, 2]), nn.CrossEntropyLoss(), x, (y > 0).long()),
            "is a loss, of all data",
        ),
        "held_out": (lambda: Posterior(module, noise, x, y, held_out={"x": x, "y": y}), "must be a pair .* got dict"),
        "power": (lambda: Posterior(module, noise, x, y, power="1"), "power must be a positive finite number, got '1'"),
        "one row": (lambda: posterior.predictive(w, x[0]), r"of one row give x\[:1\]"),
        "no rows": (lambda: posterior.predictive(w, x[:0]), "no inputs to predict at"),
        "levels": (lambda: posterior.predictive(w, x).icdf(torch.tensor([0.1, 0.5, 0.9])), r"give levels\[:, None\]"),
        "factor": (lambda: posterior.predictive(w, x).rescaled(0, -1), "factor must be a positive finite number"),
        "prior": (lambda: NormalPrior(float("inf")), "must be positive and finite, got inf"),
        "acceptance": (
            lambda: hmc(posterior.log_prob, w, step_size=0.1, target_acceptance=7.0, **chains),
            "a share between 0 and 1, got 7.0",
        ),
        "LBFGS": (lbfgs, "several times a step"),
        "no gradients": (without_gradients, "call it outside of torch.no_grad"),
    }


@pytest.mark.parametrize("name", refused())
def test_bad_input_is_named_with_a_remedy(name):
    call, said = refused()[name]
    with pytest.raises((ValueError, TypeError), match=said):
        call()
