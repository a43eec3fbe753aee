"""Samples in ArviZ's form: axes, names and shapes, and that nothing is mixed up on the way."""

import arviz
import numpy as np
import pytest
import torch
from torch.distributions import constraints

from gpvi_lib import Constrained, LearnedNoise, MeanField, NormalLikelihood, Posterior, hmc, mlp, to_inference_data
from gpvi_lib.errors import GPVIError

X = torch.linspace(-1, 1, 6)[:, None]


@pytest.fixture
def posterior():
    return Posterior(LearnedNoise(mlp([1, 4, 1])), NormalLikelihood(), X, X[:, 0])


def test_parameters_have_their_names_shapes_and_values(posterior, normal):
    w = normal(5, posterior.dim).float()
    data = to_inference_data(w, posterior)
    expected = dict(posterior.network.module.named_parameters())
    assert set(data.posterior) == set(expected)
    for name, parameter in expected.items():
        assert data.posterior[name].shape == (1, 5, *parameter.shape)
        assert data.posterior[name].dims[:2] == ("chain", "draw")
    flat = np.concatenate([data.posterior[name].values.reshape(5, -1) for name in expected], axis=1)
    np.testing.assert_array_equal(flat, w.numpy())
    assert set(to_inference_data(w, posterior.network).posterior) == set(expected)
    assert set(to_inference_data(w, posterior.network.module).posterior) == set(expected)


def test_chains_of_hmc_are_chains(rng):
    settings = {"step_size": 0.5, "num_leapfrog": 3, "num_steps": 30, "burn_in": 10, "progress": False}
    result = hmc(lambda x: -0.5 * x.square().sum(-1), torch.randn(4, 2, generator=rng), **settings, rng=rng)
    predictions = result.samples.square().sum(-1, keepdim=True).expand(-1, -1, 3)
    data = to_inference_data(result, names=["a", "b"], predictions=predictions, log_likelihood={"y": predictions})
    assert data.posterior["a"].shape == (4, 20) and data.predictions["y"].shape == (4, 20, 3)
    np.testing.assert_array_equal(data.posterior["b"].values[3], result.samples[:, 3, 1].numpy())
    np.testing.assert_array_equal(data.log_likelihood["y"].values[2, :, 0], predictions[:, 2, 0].numpy())
    listed = to_inference_data(list(result.samples.unbind(1)), names=["a", "b"])
    np.testing.assert_array_equal(listed.posterior["a"].values, data.posterior["a"].values)
    shown = float(arviz.summary(data, var_names=["a"], kind="diagnostics", round_to="none")["r_hat"].iloc[0])
    assert shown == pytest.approx(float(arviz.rhat(result.samples[:, :, 0].mT.numpy())))


def test_draws_alone_named_draws_and_data(normal):
    x = normal(7, 2)
    data = to_inference_data(x, predictions={"new": x[:, :1]}, observed=torch.arange(3.0))
    assert data.groups() == ["posterior", "predictions", "observed_data"]
    assert data.posterior["x"].shape == (1, 7, 2) and data.observed_data["y"].shape == (3,)
    named = to_inference_data({"mean": x[:, 0], "scale": [x[:, 1].exp()]}, observed={"z": torch.zeros(2)})
    assert named.posterior["scale"].shape == (1, 7) and named.observed_data["z"].shape == (2,)


def test_named_draws_of_constrained_parameters_are_chains_where_they_have_both_axes(normal):
    parts = {"slope": (constraints.real, (3,)), "size": constraints.positive}
    target = Constrained(lambda p: -p["size"] - p["slope"].square().sum(-1), parts)
    x = normal(7, 2, target.dim)  # as HMC draws them
    found = to_inference_data(target.constrain(x), target).posterior
    assert found["slope"].shape == (2, 7, 3) and found["size"].shape == (2, 7)
    np.testing.assert_array_equal(found["size"].values[1], target.constrain(x[:, 1])["size"].numpy())
    alone = to_inference_data(target.constrain(x[:, 0]), target).posterior
    assert alone["slope"].shape == (1, 7, 3) and alone["size"].shape == (1, 7)
    listed = {"size": [target.constrain(x[:, chain])["size"] for chain in range(2)]}
    np.testing.assert_array_equal(to_inference_data(listed, target).posterior["size"], found["size"])
    with pytest.raises(GPVIError, match=r"samples\['slope'\] must be \(n, 3\) or \(draws, chains, 3\), got \(7, 2\)"):
        to_inference_data({"slope": x[..., 0]}, target)
    with pytest.raises(GPVIError, match="parameter 'sizes'"):
        to_inference_data({"sizes": x[..., 0]}, target)


def test_a_sampler_is_told_to_be_drawn_from():
    with pytest.raises(GPVIError, match=r"got MeanField: give sampler.sample\(n, rng\)"):
        to_inference_data(MeanField(torch.zeros(2)))


def test_predictions_beside_chains_have_both_axes(rng):
    settings = {"step_size": 0.5, "num_leapfrog": 3, "num_steps": 3, "burn_in": 1, "progress": False}
    result = hmc(lambda x: -0.5 * x.square().sum(-1), torch.randn(4, 2, generator=rng), **settings, rng=rng)
    with pytest.raises(GPVIError, match=r"must have draws along its first axis, got shape \(8,\)"):
        to_inference_data(result, predictions=torch.zeros(8))


BAD = {
    "no tensor": (lambda x: ("x",), {}, "samples.*must be a tensor, or a list with one tensor a chain"),
    "lengths": (lambda x: ([x, x[:3]],), {}, "must have one shape"),
    "axes": (lambda x: (x[..., None],), {}, "samples must be"),
    "names": (lambda x: (x,), {"names": ["a"]}, "2 coordinates need as many different names"),
    "same names": (lambda x: (x,), {"names": ["a", "a"]}, "different names"),
    "both": (lambda x: (x, torch.nn.Linear(1, 1)), {"names": ["a", "b"]}, "not both"),
    "named and names": (lambda x: ({"a": x},), {"names": ["a", "b"]}, "samples by name have names"),
    "draws": (lambda x: (x,), {"predictions": torch.zeros(3, 4)}, r"predictions\['y'\] 1 x 3"),
    "weights": (lambda x: (x, torch.nn.Linear(2, 1)), {}, "this network has 3 weights"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case, normal):
    arguments, settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        to_inference_data(*arguments(normal(5, 2)), **settings)


def test_an_empty_list_is_no_chain():
    with pytest.raises(GPVIError, match="one tensor a chain"):
        to_inference_data([])
