"""A posterior over a module with several inputs is that of the module which takes them as one."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import Dataset

from gpvi_lib import (
    Adam,
    CategoricalLikelihood,
    FunctionSpaceParVI,
    LearnedNoise,
    MeanField,
    NegativeELBO,
    NormalLikelihood,
    Particles,
    Posterior,
    StreamedPosterior,
    fit,
    last_layer_laplace,
)
from gpvi_lib.errors import GPVIError
from gpvi_lib.several import Several


class Grouped(nn.Module):
    """A regression with an offset for each of three groups."""

    def __init__(self):
        super().__init__()
        self.slope, self.offset = nn.Linear(2, 1), nn.Embedding(3, 1)

    def forward(self, x, group):
        return self.slope(x) + self.offset(group)


class Joined(nn.Module):
    """The same with the group as a third column."""

    def __init__(self):
        super().__init__()
        self.parts = Grouped()

    def forward(self, both):
        one_hot = nn.functional.one_hot(both[:, 2].long(), 3).to(both.dtype)
        return self.parts.slope(both[:, :2]) + one_hot @ self.parts.offset.weight


RNG = torch.Generator().manual_seed(0)
X, GROUP = torch.randn(12, 2, generator=RNG), torch.arange(12) % 3
Y = X.sum(1) + GROUP
JOINED = Posterior(Joined(), NormalLikelihood(0.5), torch.cat([X, GROUP[:, None].float()], 1), Y)
W = torch.randn(4, JOINED.dim, generator=RNG)


def posterior(inputs, **settings):
    return Posterior(Grouped(), NormalLikelihood(0.5), inputs, Y, JOINED.prior, **settings)


@pytest.mark.parametrize("inputs", [(X, GROUP), {"x": X, "group": GROUP}, {"group": GROUP, "x": X}])
def test_log_densities_and_predictions_are_those_of_one_tensor(inputs):
    target, rows = posterior(inputs), torch.tensor([7, 0, 3])
    assert_close(target.log_prob(W), JOINED.log_prob(W))
    assert_close(target.log_prob(W, rows), JOINED.log_prob(W, rows))
    new = (
        {name: part[:5] for name, part in inputs.items()} if isinstance(inputs, dict) else tuple(p[:5] for p in inputs)
    )
    assert_close(target.predictive(W, new).mean, JOINED.predictive(W, JOINED.inputs[:5]).mean)


@pytest.mark.parametrize("inputs", [(X, GROUP), {"group": GROUP, "x": X}])
def test_noise_is_learned_beside_a_module_of_several_inputs(inputs):
    target = Posterior(LearnedNoise(Grouped(), 0.5), NormalLikelihood(), inputs, Y)
    quiet = torch.cat([torch.zeros(4, 1), W], 1)  # σ = 0.5
    assert_close(target.log_likelihood(quiet), JOINED.log_likelihood(W))
    assert_close(target.predictive(quiet, inputs).mean, JOINED.predictive(W, JOINED.inputs).mean)


def test_predictions_in_parts_are_those_at_once(monkeypatch):
    target = posterior({"x": X, "group": GROUP})
    whole = target.predictive(W, {"x": X, "group": GROUP}).mean
    monkeypatch.setattr("gpvi_lib.targets.posterior.EVALUATED", 20)
    assert_close(target.predictive(W, {"x": X, "group": GROUP}).mean, whole)


def test_data_put_aside_may_be_several():
    target = posterior((X, GROUP), held_out=((X[:4], GROUP[:4]), Y[:4]))
    alone = Posterior(
        Joined(), NormalLikelihood(0.5), JOINED.inputs, Y, JOINED.prior, held_out=(JOINED.inputs[:4], Y[:4])
    )
    assert_close(target.held_out_log_likelihood(W), alone.held_out_log_likelihood(W))


class Rows(Dataset):
    def __init__(self, named):
        self.named = named

    def __len__(self):
        return len(Y)

    def __getitem__(self, row):
        item = {"x": X[row], "group": GROUP[row]} if self.named else (X[row], GROUP[row])
        return item, Y[row]


@pytest.mark.parametrize("named", [True, False])
def test_several_inputs_may_be_streamed_and_train(named):
    target = StreamedPosterior(Grouped(), NormalLikelihood(0.5), Rows(named), JOINED.prior)
    rows = torch.tensor([5, 1])
    assert_close(target.log_prob(W, rows), JOINED.log_prob(W, rows))
    ends = []
    for one in (target, JOINED):
        sampler = MeanField(torch.zeros(JOINED.dim))
        settings = {"steps": 5, "batch_size": 4, "optimizer": Adam(1e-2), "seed": 0, "progress": False}
        fit(sampler, one, NegativeELBO(4), **settings)
        ends.append(sampler.mean.detach())
    assert_close(*ends)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X, GROUP[:5]), "differ in their number of rows: {0: 12, 1: 5}"),
        ({"x": X, "group": GROUP.tolist()}, r"inputs\['group'\] must be one tensor, got list"),
        ({"x": X.index_fill(0, torch.tensor([2]), torch.nan), "group": GROUP}, r"inputs\['x'\]\[2, 0\] is nan"),
        ({"x": X, "groups": GROUP}, "cannot be evaluated.*unexpected keyword argument 'groups'"),
        ((X,), "cannot be evaluated.*missing 1 required positional argument"),
        ({}, "the tuple or dictionary is empty"),
        ((X[:5], GROUP[:5]), "5 inputs but 12 targets"),
    ],
)
def test_bad_inputs_are_named(inputs, message):
    with pytest.raises(ValueError, match=message):
        posterior(inputs)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            X[:3],
            r"rows such as the data's, \({'x': \(2,\), 'group': \(\)},\) each, got .*: give as many, in a tuple or",
        ),
        ((X[:3], GROUP[:3]), "give as many, in a tuple or by the same names"),
        ({"x": X[:3], "groups": GROUP[:3]}, "give as many, in a tuple or by the same names"),
        ({"x": X[:3], "group": GROUP[:3], "more": GROUP[:3]}, "give as many"),
        ({"x": X[0], "group": GROUP[0]}, r"inputs\['group'\] must have rows, got one number: of one row give x\[:1\]"),
        ([X[:3], GROUP[:3]], "several inputs are a tuple, or a dictionary by name"),
        (
            {"x": X[:1], "group": GROUP[:1] + 1_000},
            "an index among the inputs is outside .* Embedding's num_embeddings",
        ),
    ],
)
def test_inputs_to_predict_at_are_such_as_the_datas(inputs, message):
    with pytest.raises(ValueError, match=message):
        posterior({"x": X, "group": GROUP}).predictive(W, inputs)


def test_an_index_outside_of_an_embedding_is_named_at_the_start():
    with pytest.raises(ValueError, match="an index among the inputs is outside .* Embedding's num_embeddings"):
        posterior({"x": X, "group": GROUP + 1})


def test_another_precision_than_the_weights_is_refused():
    with pytest.raises(ValueError, match=r"the inputs are torch.float32 and the weights torch.float64"):
        posterior({"x": X, "group": GROUP}).log_prob(W.double())


def test_function_space_wants_one_tensor():
    target, particles = posterior((X, GROUP)), Particles(W.clone())
    with pytest.raises(ValueError, match="wrap the module in one that takes one tensor"):
        fit(particles, target, FunctionSpaceParVI(), steps=1, optimizer=Adam(1e-2), seed=0, progress=False)


def test_parts_hold_all_rows_once():
    both = Several({"x": X, "group": GROUP})
    parts = both.split(5)
    assert [len(part) for part in parts] == [5, 5, 2] and dict(both.to("cpu").items())["group"].equal(GROUP)
    assert torch.cat([dict(part.items())["x"] for part in parts]).equal(X) and both.dtype == torch.float32


@pytest.mark.parametrize("changed", ["x", "group"])
def test_a_checkpoint_of_other_rows_is_another_run(changed, tmp_path):
    """Also where the first minibatch is the same."""
    inputs = {"x": X, "group": GROUP}
    other = inputs | {changed: inputs[changed].roll(1, 0)}
    for given in (inputs, other):
        sampler = MeanField(torch.zeros(JOINED.dim))
        settings = {"steps": 2, "optimizer": Adam(1e-2), "seed": 0, "progress": False, "batch_size": 3}
        settings["checkpoint"] = tmp_path / "run.pt"
        if given is inputs:
            fit(sampler, posterior(given), NegativeELBO(2), **settings)
        else:
            with pytest.raises(GPVIError, match=rf"what differs: .*target.inputs\['{changed}'\]"):
                fit(sampler, posterior(given), NegativeELBO(2), **settings)


def test_the_last_layers_laplace_takes_several_inputs():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts, self.last = nn.Linear(2, 4), nn.Linear(4, 2)

        def forward(self, x, shift):
            return self.last(torch.tanh(self.parts(x) + shift))

    class OfOne(nn.Module):
        def __init__(self):
            super().__init__()
            self.of = Classifier()

        def forward(self, both):
            return self.of(both[:, :2], both[:, 2:])

    labels, shift = GROUP % 2, X[:, :1]
    posteriors = (
        Posterior(Classifier(), CategoricalLikelihood(), {"x": X, "shift": shift}, labels),
        Posterior(OfOne(), CategoricalLikelihood(), torch.cat([X, shift], 1), labels),
    )
    mode = torch.randn(posteriors[0].dim, generator=torch.Generator().manual_seed(1))
    assert_close(*(last_layer_laplace(target, mode).sample(5, seed=0) for target in posteriors))
