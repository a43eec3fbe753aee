"""A saved sampler draws the same samples, and nothing else is taken for one."""

import numpy as np
import pytest
import safetensors.torch
import torch

from gpvi_lib import (
    AdaptiveLangevin,
    Flow,
    Gaussian,
    Generator,
    GPVIError,
    LatentGenerator,
    MatrixGenerator,
    MeanField,
    MultiplicativeFlow,
    NegativeELBO,
    Particles,
    PointEstimate,
    checkpoints,
    fit,
    load_sampler,
)
from gpvi_lib import save_sampler as save
from gpvi_lib.errors import UnknownName
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Sampler


def generator(rng, **arguments) -> Generator:
    return Generator(6, 3, (5, 4), **{"noise_scale": 0.5} | arguments, rng=rng)


SAMPLERS = {
    "generator": generator,
    "trained λ": lambda rng: generator(rng, noise_scale=torch.linspace(0.1, 1, 6), train_noise_scale=True),
    "without λ": lambda rng: generator(rng, noise_scale=None),
    "tanh, σ = 2": lambda rng: generator(rng, activation="tanh", input_stdev=2.0),
    "linear": lambda rng: Generator(6, rng=rng),
    "float64": lambda rng: generator(rng, dtype=torch.float64),
    "particles": lambda rng: Particles(torch.randn(7, 6, generator=rng)),
    "mean field": lambda rng: MeanField(torch.randn(6, generator=rng), 0.3),
    "flow": lambda rng: Flow(6, 4, base_stdev=2.0, rng=rng),
    "multiplicative flow": lambda rng: MultiplicativeFlow([(), (2, 2), (1,)], torch.zeros(6), length=3, rng=rng),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_saved_sampler_draws_the_same_samples(name, rng, tmp_path):
    sampler = SAMPLERS[name](rng)
    with torch.no_grad():
        for parameter in sampler.parameters():
            parameter.add_(0.1)  # what training does
    loaded = load_sampler(save(sampler, tmp_path / "folder" / "sampler.safetensors"))
    number = None if name == "particles" else 9
    draws = [s.sample(number, torch.Generator().manual_seed(1)) for s in (sampler, loaded)]
    assert torch.equal(*draws) and draws[0].dtype == draws[1].dtype
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in sampler.named_parameters()]


@pytest.mark.parametrize("whole", [np.int64, torch.tensor])
def test_a_sampler_of_numpys_whole_numbers_can_be_saved(whole, rng, tmp_path):
    sampler = Generator(6, 3, [whole(5)], rng=rng)
    loaded = load_sampler(save(sampler, tmp_path / "sampler.safetensors"))
    assert loaded.hidden[0].out_features == 5


def test_a_loaded_sampler_can_be_trained_further(rng, tmp_path):
    loaded = load_sampler(save(SAMPLERS["trained λ"](rng), tmp_path / "sampler.safetensors"))
    before = loaded.log_noise_scale.detach().clone()
    fit(
        loaded,
        Gaussian(torch.zeros(6), torch.eye(6)),
        NegativeELBO(8),
        steps=2,
        optimizer=Adam(lr=0.1),
        rng=rng,
        progress=False,
    )
    assert not torch.equal(before, loaded.log_noise_scale)


def test_only_known_samplers_are_saved(rng, tmp_path):
    class Mine(Sampler):
        pass

    with pytest.raises(UnknownName, match="kind of sampler 'Mine'"):
        save(Mine(), tmp_path / "mine.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("around", [lambda sampler: sampler, PointEstimate], ids=["alone", "in a PointEstimate"])
def test_a_sampler_of_ours_that_a_file_cannot_hold_is_named(around, rng, tmp_path):
    """One that is a `LangevinNetwork` with a rule of its own: as such it would come back without the rule."""
    chain = AdaptiveLangevin("rmsprop", MeanField(torch.zeros(2), 1.0), Gaussian(torch.zeros(2), torch.eye(2)), 3, 0.1)
    with pytest.raises(UnknownName, match="kind of sampler 'AdaptiveLangevin'"):
        save(around(chain), tmp_path / "chain.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_sampler_is_named(rng, tmp_path):
    path = save(generator(rng), tmp_path / "sampler.safetensors")
    with pytest.raises(GPVIError, match=r"other\.safetensors does not exist: save_sampler"):
        load_sampler(tmp_path / "other.safetensors")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(GPVIError, match=r"sampler\.safetensors is no safetensors file or is truncated"):
        load_sampler(path)
    safetensors.torch.save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(GPVIError, match="holds no sampler of this version"):
        load_sampler(path)


def rewritten(path, change):
    """The file with its metadata and tensors changed."""
    with safetensors.safe_open(path, "pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    change(metadata, state)
    safetensors.torch.save_file(state, path, metadata)
    return path


def test_a_file_without_a_checksum_still_loads(rng, tmp_path):
    sampler = generator(rng)
    path = rewritten(save(sampler, tmp_path / "s"), lambda metadata, state: metadata.pop("sha256"))
    assert torch.equal(load_sampler(path).output.weight, sampler.output.weight)


def test_no_flipped_bit_of_a_sampler_goes_unnoticed(rng, tmp_path):
    """Either one error, or a bit that carries nothing: then the sampler is the same."""
    path, refused = save(sampler := generator(rng), tmp_path / "s"), 0
    content, places = path.read_bytes(), range(0, len(path.read_bytes()), 7)
    for place in places:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            loaded = load_sampler(path).state_dict()
        except GPVIError:
            refused += 1
        else:
            assert all(torch.equal(loaded[name], value) for name, value in sampler.state_dict().items())
    assert refused > 0.9 * len(places)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda metadata, state: state["output.bias"].add_(1e-6), "was changed or damaged after it was saved"),
        (lambda metadata, state: metadata.update(kind="x", sha256=metadata.pop("sha256")), "was changed or damaged"),
    ],
)
def test_a_changed_sampler_is_refused(change, message, rng, tmp_path):
    with pytest.raises(GPVIError, match=message):
        load_sampler(rewritten(save(generator(rng), tmp_path / "s"), change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda metadata, state: metadata.update(kind="x"), "unknown kind of sampler 'x' of .*s"),
        (lambda metadata, state: metadata.pop("kind"), "unknown kind of sampler None of .*s"),
        (lambda metadata, state: state.pop("output.weight"), "does not hold what its header says"),
        (lambda metadata, state: state.pop("output.bias"), "does not hold what its header says"),
        (lambda metadata, state: metadata.pop("arguments"), "does not hold what its header says"),
        (lambda metadata, state: metadata.update(arguments="{"), "does not hold what its header says"),
        (
            lambda metadata, state: metadata.update(arguments=metadata["arguments"].replace("6", "10000000000000", 1)),
            "does not hold what its header says: .*10000000000000 for",
        ),
    ],
)
def test_a_sampler_of_another_hand_is_named(change, message, rng, tmp_path):
    def without_checksum(metadata, state):
        metadata.pop("sha256", None)
        change(metadata, state)

    with pytest.raises(GPVIError, match=message):
        load_sampler(rewritten(save(generator(rng), tmp_path / "s"), without_checksum))


def test_a_folder_and_a_device_that_is_none_are_named(rng, tmp_path):
    with pytest.raises(GPVIError, match="is no safetensors file"):
        load_sampler(tmp_path)
    with pytest.raises(GPVIError, match="device must be one that is here, such as 'cpu', got 'nonsense'"):
        load_sampler(save(generator(rng), tmp_path / "s"), device="nonsense")


@pytest.mark.parametrize("what", [load_sampler, lambda path: checkpoints.load(path, torch.device("cpu"))])
def test_a_folder_in_place_of_a_file_is_not_called_damaged_or_missing(what, tmp_path):
    with pytest.raises(GPVIError) as refused:
        what(tmp_path)
    assert "cannot be read" in str(refused.value) or "no safetensors file" in str(refused.value)
    assert "delete it" not in str(refused.value) and "does not exist" not in str(refused.value)


@pytest.mark.parametrize("kind", ["generator", "latent", "matrix"])
def test_a_scale_that_rounds_to_zero_can_be_loaded(kind, rng, tmp_path):
    """λ is kept as its logarithm."""
    sampler = {
        "generator": lambda: Generator(6, 2, (5,), rng=rng, noise_scale=0.1),
        "latent": lambda: LatentGenerator(6, 2, (5,), rng=rng, noise_scale=0.1),
        "matrix": lambda: MatrixGenerator(6, [(1, 2), (2, 3)], rng=rng, noise_scale=0.1),
    }[kind]()
    with torch.no_grad():
        sampler.log_noise_scale.fill_(-110.0)
    save(sampler, tmp_path / "sampler.safetensors")
    assert torch.equal(load_sampler(tmp_path / "sampler.safetensors").log_noise_scale, sampler.log_noise_scale)
