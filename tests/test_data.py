"""Data sets: fixed splits, no leak between known and unknown classes, and errors that say what to do."""

import hashlib
import struct
from importlib import import_module

import numpy as np
import pandas
import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import data, extras, paths
from gpvi_lib.errors import DataMissing, GPVIError, UnknownName


@pytest.fixture(scope="module")
def digits() -> data.ImageData:
    return data.digits()


def test_digits_are_split_by_class_and_always_the_same(digits):
    assert (digits.train.shape, digits.test.shape) == ((1257, 8, 8), (540, 8, 8))
    assert digits.train.dtype == digits.test.dtype == torch.uint8
    counts = [torch.bincount(labels, minlength=10) for labels in (digits.train_labels, digits.test_labels)]
    fraction = counts[1] / (counts[0] + counts[1])
    # Each class has about 180 images; its share of the test set can be off 0.3 by one image.
    assert_close(fraction, torch.full((10,), 0.3), rtol=0, atol=1 / 170)
    again = data.digits()
    for name in ("train", "train_labels", "test", "test_labels"):
        assert torch.equal(getattr(again, name), getattr(digits, name))
    assert digest(digits) == "3e2468513bf6216f"


def test_the_validation_split_holds_training_images_only(digits):
    held_out = data.load("digits-validation")
    rows = [tuple(image) for image in torch.cat([held_out.train, held_out.test]).flatten(1).tolist()]
    assert sorted(rows) == sorted(tuple(image) for image in digits.train.flatten(1).tolist())
    assert (len(held_out.train), len(held_out.test)) == (879, 378)


def digest(images: data.ImageData) -> str:
    """Changes with any pixel, label or place in the split: results of different splits are not comparable."""
    parts = (images.train, images.train_labels, images.test, images.test_labels)
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()[:16]


def test_digits_keep_all_images_and_their_contrast(digits):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    expected = sorted(
        (label, image.astype(int).tobytes()) for label, image in zip(bunch.target, bunch.images, strict=True)
    )
    images, labels = torch.cat([digits.train, digits.test]), torch.cat([digits.train_labels, digits.test_labels])
    sixteenths = (images.double() / 255 * 16).round().long().numpy()
    assert sorted((label, image.tobytes()) for label, image in zip(labels.numpy(), sixteenths, strict=True)) == expected
    assert (images.min(), images.max()) == (0, 255)


def toy_images() -> data.ImageData:
    """Every class thrice in training and twice in test; the class is in the first pixel, so it can be traced."""
    train_labels, test_labels = torch.arange(10).repeat(3), torch.arange(10).repeat(2)
    rng = torch.Generator().manual_seed(0)

    def draw(labels):
        images = torch.randint(20, 256, (len(labels), 4, 4), generator=rng, dtype=torch.uint8)
        images[:, 0, 0] = labels
        return images

    return data.ImageData(draw(train_labels), train_labels, draw(test_labels), test_labels)


def test_unknown_classes_are_nowhere_in_training():
    images = toy_images()
    split = data.open_category(images)
    pixels = images.train[images.train_labels <= 5].double()
    mean, std = pixels.mean(), pixels.std()

    def traced(inputs):
        return (inputs[:, 0, 0, 0] * std + mean).round().long()

    assert torch.equal(traced(split.inputs), split.labels)
    assert torch.equal(traced(split.test_inputs), split.test_labels)
    assert torch.equal(traced(split.unknown_inputs), split.unknown_labels)
    for labels, expected in (
        (split.labels, range(6)),
        (split.test_labels, range(6)),
        (split.unknown_labels, range(6, 10)),
    ):
        assert sorted(set(labels.tolist())) == list(expected)
    assert (len(split.labels), len(split.test_labels), len(split.unknown_labels)) == (18, 12, 8)
    assert torch.equal(split.unknown_images, images.test[images.test_labels > 5])


def test_inputs_are_standardised_by_the_known_training_images_alone():
    images = toy_images()
    split = data.open_category(images)
    assert split.inputs.shape == (18, 1, 4, 4)
    assert split.inputs.dtype == torch.float32
    # float32 sums of 288 numbers of size 1: 288 eps = 3e-5
    assert_close(split.inputs.mean().item(), 0.0, rtol=0, atol=3e-5)
    assert_close(split.inputs.std().item(), 1.0, rtol=0, atol=3e-5)
    images.train[images.train_labels > 5] = 0
    images.test[:] = 255
    changed = data.open_category(images)
    assert torch.equal(changed.inputs, split.inputs)
    assert len(changed.test_inputs.unique()) == 1


@pytest.mark.parametrize("known", [range(1, 4), [0, 2, 5], (2, 1, 0), ()])
def test_known_classes_are_those_from_0_up(known):
    with pytest.raises(ValueError, match="known must be the classes from 0 up to some number"):
        data.open_category(toy_images(), known=known)


def test_the_digits_of_the_experiment(digits):
    split = data.open_category(digits)
    assert (len(split.inputs), len(split.test_inputs), len(split.unknown_inputs)) == (757, 326, 214)
    assert len(split.labels) == len(split.inputs)


# MNIST on disk


def write_mnist(root, num_train=7, num_test=5, name="MNIST") -> dict[str, str]:
    """Small files of MNIST's format below `root`, and their digests."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    digests = {}
    for part, number in (("train", num_train), ("t10k", num_test)):
        images = struct.pack(">iiii", 2051, number, 28, 28) + bytes(i % 251 for i in range(number * 28 * 28))
        labels = struct.pack(">ii", 2049, number) + bytes(i % 10 for i in range(number))
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"{part}-{kind}-ubyte").write_bytes(content)
            digests[f"{part}-{kind}-ubyte"] = hashlib.sha256(content).hexdigest()
    return digests


@pytest.fixture
def fake_mnist(tmp_path, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "download", lambda self: pytest.fail("a download was tried"))
    monkeypatch.setattr(data, "MNIST_FILES", write_mnist(tmp_path))
    monkeypatch.setenv("GPVI_DATA", str(tmp_path))
    return tmp_path / "MNIST" / "raw"


def test_mnist_is_read_from_the_data_folder(fake_mnist):
    images = data.load("mnist")
    assert data.available("mnist")
    assert (images.train.shape, images.test.shape) == ((7, 28, 28), (5, 28, 28))
    assert images.train_labels.tolist() == list(range(7))
    assert images.train.flatten()[:300].tolist() == [i % 251 for i in range(300)]


def test_fashion_mnist_has_files_of_its_own(fake_mnist, tmp_path, monkeypatch):
    with pytest.raises(DataMissing, match="is missing: run `python -m gpvi_lib data fashion-mnist`"):
        data.load("fashion-mnist")
    monkeypatch.setattr(data, "FASHION_MNIST_FILES", write_mnist(tmp_path, 9, 4, "FashionMNIST"))
    images = data.load("fashion-mnist")
    assert (images.train.shape, images.test.shape) == ((9, 28, 28), (4, 28, 28))
    assert data.available("fashion-mnist")
    (tmp_path / "FashionMNIST" / "raw" / "train-labels-idx1-ubyte").unlink()
    assert not data.available("fashion-mnist") and data.available("mnist")


def test_a_cache_of_torchvision_does_not_stand_in_for_the_checked_files(fake_mnist):
    cache = fake_mnist.parent / "processed"
    cache.mkdir()
    for name in ("training.pt", "test.pt"):
        torch.save((torch.zeros(3, 28, 28, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)), cache / name)
    assert (len(data.mnist().train), len(data.mnist().test)) == (7, 5)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def alter(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", data.MNIST_FILES)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is missing: run `python -m gpvi_lib data mnist`"),
        (truncate, "is truncated or altered .*: delete it and run `python -m gpvi_lib data mnist`"),
        (alter, "is truncated or altered .*: delete it and"),
        (lambda path: path.write_bytes(b""), "is truncated or altered .*: delete it and"),
    ],
    ids=["missing", "truncated", "altered", "empty"],
)
def test_a_damaged_mnist_names_the_file_and_the_remedy(fake_mnist, name, damage, message):
    damage(fake_mnist / name)
    with pytest.raises(DataMissing, match=f"{name} {message}.*GPVI_DATA"):
        data.mnist()
    assert data.available("mnist") is (fake_mnist / name).exists()


@pytest.fixture
def downloads(monkeypatch):
    """What would have been downloaded."""
    from torchvision import datasets

    seen = []

    class Recorder:
        def __init__(self, root, train=True, download=False):
            if download:
                seen.append(root)

    monkeypatch.setattr(datasets, "MNIST", Recorder)
    monkeypatch.setattr(datasets, "CIFAR10", Recorder)
    return seen


def test_nothing_is_downloaded_unless_asked(downloads, tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_DATA", str(tmp_path))
    with pytest.raises(DataMissing):
        data.load("mnist")
    assert not data.available("mnist")
    assert (downloads, list(tmp_path.iterdir())) == ([], [])
    data.download("mnist")
    data.download("cifar10", tmp_path / "other")
    assert downloads == [tmp_path, tmp_path / "other"]


def test_standardised_data_standardise_no_more_rows():
    own = data.RegressionData.random_split([[1, 2], [3, 4], [5, 6], [7, 9]], [0.5, 1.5, 2.5, 3.5], 0.25)
    done = own.standardised()[0]
    for part in (done, done.to(torch.float32)):
        with pytest.raises(ValueError, match="standardised already: ask those from which standardised"):
            part.standardised_inputs([[1, 2]])
    assert torch.equal(done.inputs, own.standardised_inputs(own.inputs))


def test_data_frames_in_different_orders_are_not_paired():
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
    data.RegressionData.random_split(frame, frame["a"])
    with pytest.raises(ValueError, match="paired by position, and the indices of inputs and targets differ"):
        data.RegressionData.random_split(frame.iloc[::-1], frame["a"])


def test_files_that_torchvision_would_take_unchecked_are_named(fake_mnist, downloads, tmp_path):
    data.download("mnist", tmp_path)  # all there, as published
    truncate(fake_mnist / "train-images-idx3-ubyte")
    with pytest.raises(DataMissing, match="train-images-idx3-ubyte is truncated or altered .*: delete it and run"):
        data.download("mnist", tmp_path)
    (fake_mnist / "train-images-idx3-ubyte").unlink()
    (tmp_path / "MNIST" / "processed").mkdir()
    with pytest.raises(DataMissing, match="MNIST/processed is an old version's .*: delete it and run"):
        data.download("mnist", tmp_path)
    assert downloads == []


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("torchvision", lambda root: data.mnist(root)),
        ("torchvision", lambda root: data.unseen("kmnist", root)),
        ("torchvision", lambda root: data.available("cifar10", root)),
        ("torchvision", lambda root: data.download("svhn", root)),
        ("torchvision", lambda root: data.download("mnist", root)),
        ("pooch", lambda root: data.download("boston", root)),
        ("pooch", lambda root: data.download("mushroom", root)),
        ("pandas", lambda root: data.covertype(root=root)),
        ("pandas", lambda root: data.mushroom(root)),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(package, use, tmp_path, monkeypatch):
    def absent(name):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(name=package)
        return import_module(name)

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(GPVIError, match=rf"{package} is not installed; get it with: .*\[paper\]"):
        use(tmp_path)


def test_installed_without_its_repository_the_package_has_its_folders_in_the_working_directory(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.delenv("GPVI_DATA", raising=False)
    monkeypatch.setattr(paths, "repository", lambda: site)
    monkeypatch.chdir(tmp_path)
    assert data.data_root() == tmp_path / "data"
    (site / "pyproject.toml").touch()
    assert data.data_root() == site / "data"


def test_a_part_of_cifar100_is_not_all_of_it(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    for part in ("test", "meta"):
        (tmp_path / "cifar-100-python" / part).touch()
    assert not data.available("cifar100", tmp_path)
    (tmp_path / "cifar-100-python" / "train").touch()
    assert data.available("cifar100", tmp_path)


@pytest.mark.parametrize("name", ["digits", "emnist", ""])
def test_only_known_sets_can_be_downloaded(downloads, name):
    with pytest.raises(UnknownName, match="downloadable data set .*cifar10.*mnist"):
        data.download(name)
    assert downloads == []


@pytest.mark.parametrize("ask", [data.available, lambda name: data.missing(["mnist", name])])
@pytest.mark.parametrize("name", ["digits", "mnlst"])
def test_only_of_known_sets_it_is_asked_whether_they_are_here(ask, name):
    with pytest.raises(UnknownName, match=f"downloadable data set '{name}'.*cifar10.*mnist"):
        ask(name)


@pytest.mark.parametrize("name", ["minst", "cifar100", ""])
def test_an_unknown_set_is_an_error_that_lists_the_known(name):
    with pytest.raises(
        UnknownName, match="valid: cifar10, digits, digits-validation, fashion-mnist, fashion-mnist-validation, mnist"
    ):
        data.load(name)


def test_colours_are_standardised_one_by_one_and_all_classes_may_be_known():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat(20)
    images = (torch.rand(200, 4, 5, 3, generator=rng) * torch.tensor([50.0, 100.0, 250.0])).to(torch.uint8)
    split = data.open_category(data.ImageData(images, labels, images, labels), known=data.ALL_CLASSES)
    assert split.inputs.shape == (200, 3, 4, 5)
    # float32 sums of 4,000 numbers of size 1: 4,000 eps = 5e-4
    assert_close(split.inputs.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=5e-4)
    assert_close(split.inputs.std((0, 2, 3)), torch.ones(3), rtol=0, atol=5e-4)
    assert torch.equal(split.inputs[7, 1].argsort(stable=True), images[7, :, :, 1].float().argsort(stable=True))
    assert torch.equal(split.labels, labels) and len(split.unknown_inputs) == len(split.unknown_labels) == 0


@pytest.fixture
def fake_cifar10(tmp_path, monkeypatch):
    """Small batches of CIFAR-10's format: every image has its label in its first pixel."""
    import pickle

    from torchvision.datasets import CIFAR10

    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()

    def write(name, number):
        pixels = np.zeros((number, 3072), dtype=np.uint8)
        pixels[:, 0] = pixels[:, 1024] = range(number)
        content = pickle.dumps({"data": pixels, "labels": list(range(number))})
        (folder / name).write_bytes(content)
        return [name, hashlib.md5(content).hexdigest()]

    monkeypatch.setattr(CIFAR10, "train_list", [write("data_batch_1", 6), write("data_batch_2", 4)])
    monkeypatch.setattr(CIFAR10, "test_list", [write("test_batch", 3)])
    meta = pickle.dumps({"label_names": [str(i) for i in range(10)]})
    (folder / "batches.meta").write_bytes(meta)
    entry = {"filename": "batches.meta", "key": "label_names", "md5": hashlib.md5(meta).hexdigest()}
    monkeypatch.setattr(CIFAR10, "meta", entry)
    monkeypatch.setenv("GPVI_DATA", str(tmp_path))
    return folder


def test_cifar10_is_read_from_the_data_folder(fake_cifar10):
    images = data.load("cifar10")
    assert data.available("cifar10")
    assert (images.train.shape, images.test.shape) == ((10, 32, 32, 3), (3, 32, 32, 3))
    assert images.train[:, 0, 0].tolist() == [[i, i, 0] for i in [*range(6), *range(4)]]  # red, green, blue
    assert images.train_labels.tolist() == [*range(6), *range(4)]


@pytest.mark.parametrize("name", ["data_batch_2", "batches.meta"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), truncate, alter])
def test_a_damaged_cifar10_names_the_file_and_the_remedy(fake_cifar10, damage, name):
    damage(fake_cifar10 / name)
    assert data.available("cifar10") is (fake_cifar10 / name).exists()
    with pytest.raises(DataMissing, match=rf"{name} is .*`python -m gpvi_lib data cifar10`.*GPVI_DATA"):
        data.cifar10()


def test_the_real_mnist():
    if not data.available("mnist"):
        pytest.skip(f"MNIST is not below {data.data_root()}; `python -m gpvi_lib data mnist` gets it")
    images = data.mnist()
    assert (images.train.shape, images.test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert torch.bincount(images.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    split = data.open_category(images)
    assert (len(split.inputs), len(split.test_inputs), len(split.unknown_inputs)) == (36_017, 6_031, 3_969)
    held_out = data.load("mnist-validation")
    assert torch.equal(torch.cat([held_out.train, held_out.test]), images.train)  # no test image
    assert torch.equal(torch.cat([held_out.train_labels, held_out.test_labels]), images.train_labels)
    assert len(held_out.test) == 10_000


def test_the_real_fashion_mnist():
    if not data.available("fashion-mnist"):
        pytest.skip(f"Fashion-MNIST is not below {data.data_root()}; `python -m gpvi_lib data fashion-mnist` gets it")
    images = data.load("fashion-mnist")
    assert (images.train.shape, images.test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert torch.bincount(images.train_labels).tolist() == [6_000] * 10
    assert torch.equal(images.test, data.unseen("fashion-mnist"))
    held_out = data.load("fashion-mnist-validation")
    assert torch.equal(torch.cat([held_out.train, held_out.test]), images.train)  # no test image
    assert torch.equal(torch.cat([held_out.train_labels, held_out.test_labels]), images.train_labels)


def test_the_real_cifar10():
    if not data.available("cifar10"):
        pytest.skip(f"CIFAR-10 is not below {data.data_root()}; `python -m gpvi_lib data cifar10` gets it")
    images = data.cifar10()
    assert (images.train.shape, images.test.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert torch.bincount(images.train_labels).tolist() == [5_000] * 10
    split = data.open_category(images)
    assert (len(split.inputs), len(split.test_inputs), len(split.unknown_inputs)) == (30_000, 6_000, 4_000)


def test_a_publisher_out_of_reach_is_one_clear_error(monkeypatch, tmp_path):
    from torchvision import datasets

    def unreachable(root, download):
        raise RuntimeError("Error downloading train-images")

    monkeypatch.setattr(datasets, "MNIST", unreachable)
    with pytest.raises(DataMissing, match="mnist could not be downloaded, try again later: Error downloading"):
        data.download("mnist", tmp_path)


def test_a_table_of_your_own_is_split_at_random():
    x = np.arange(60).reshape(20, 3)
    frame = pandas.DataFrame(x, columns=list("abc")).assign(y=x[:, 0] / 3)
    found = data.RegressionData.random_split(frame[["a", "b", "c"]], frame["y"], test_fraction=0.25, seed=1)
    assert found.inputs.shape == (15, 3) and found.test_inputs.shape == (5, 3) and found.inputs.dtype == torch.float64
    both = torch.cat([found.inputs, found.test_inputs])
    assert sorted(both[:, 0].tolist()) == list(range(0, 60, 3))
    assert torch.equal(found.inputs[:, 0] / 3, found.targets) and torch.equal(
        found.test_inputs[:, 0] / 3, found.test_targets
    )
    arrays = data.RegressionData.random_split(x.tolist(), torch.tensor(x[:, :1] / 3), 0.25, seed=1)
    assert torch.equal(arrays.inputs, found.inputs) and torch.equal(arrays.targets, found.targets)
    other = data.RegressionData.random_split(x, x[:, 0] / 3, 0.25, seed=2)
    assert not torch.equal(other.inputs, found.inputs)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([["a", 1.0]], [1.0], "inputs must be numbers"),
        (np.array([["2020-01-01"], ["2020-01-02"]], "M8[D]"), [1.0, 2.0], r"encode .* datetime64\[D\] is no real"),
        (pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01", "2020-01-02"])}), [1.0, 2.0], "is no real number"),
        (np.array([[1j], [2.0]]), [1.0, 2.0], "complex128 is no real number"),
        (np.ones((2, 1)), torch.tensor([1j, 2.0]), "targets must be numbers; .*complex64 is no real number"),
        (
            np.ones((4, 2)),
            [1.0, 2.0, None, 3.0],
            "targets have 1 missing or infinite values, the first in row 2: fill or drop",
        ),
        (np.ones((4, 2)), np.ones(3), r"\(4, 2\) and \(3,\)"),
        (np.ones((1, 2)), np.ones(1), "must leave both parts some of the 1 rows"),
        (np.ones(4), np.ones(4), r"inputs must have shape \(N, p\)"),
    ],
)
def test_a_table_that_does_not_fit_says_why(x, y, message):
    with pytest.raises(ValueError, match=message):
        data.RegressionData.random_split(x, y)


def test_a_gap_in_a_data_frame_is_named():
    frame = pandas.DataFrame({"heat": [1.0, 2.0, 3.0], "wind": [1.0, np.nan, np.inf]})
    with pytest.raises(ValueError, match="inputs have 2 missing or infinite values, the first in row 1, column 'wind'"):
        data.RegressionData.random_split(frame, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="the first in row 1, column 1:"):
        data.RegressionData.random_split(frame.to_numpy(), [1.0, 2.0, 3.0])


def test_new_rows_are_scaled_as_the_training_data():
    """Rows of the test data, given as a frame in the unit of the publisher, come out as `standardised` has them."""
    x = np.random.default_rng(0).normal(3, 20, (40, 2))
    own = data.RegressionData.random_split(x, x.sum(1))
    scaled, _, _ = own.standardised()
    new = pandas.DataFrame(own.test_inputs.numpy(), columns=["a", "b"])
    assert torch.equal(own.standardised_inputs(new), scaled.test_inputs)
    assert abs(float(scaled.test_inputs.mean())) > 1e-3  # by the training data's mean, not their own
    with pytest.raises(ValueError, match=r"rows must be \(m, 2\), as the 2 inputs, got \(4, 1\)"):
        own.standardised_inputs(new[["a"]])
    with pytest.raises(ValueError, match="rows have 1 missing"):
        own.standardised_inputs([[1.0, None]])


def test_arrays_in_place_of_tensors_name_the_remedy():
    with pytest.raises(ValueError, match="inputs must be a tensor, got ndarray: RegressionData.random_split"):
        data.RegressionData(np.ones((4, 2)), torch.ones(4), torch.ones(1, 2), torch.ones(1))
    with pytest.raises(ValueError, match=r"of the same p are needed, got \(1, 3\)"):
        data.RegressionData(torch.ones(4, 2), torch.ones(4), torch.ones(1, 3), torch.ones(1))


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 0.99])
def test_a_split_leaves_both_parts_something(fraction):
    with pytest.raises(ValueError, match="test_fraction must leave both parts some of the 4 rows"):
        data.RegressionData.random_split(np.ones((4, 2)), np.ones(4), fraction)


def test_columns_of_a_frame_keep_their_names_and_order():
    frame = pandas.DataFrame({"age": [50.0, 30.0, 40.0, 20.0], "dose": [1.0, 2.0, 4.0, 3.0]})
    own = data.RegressionData.random_split(frame, [1.0, 2.0, 3.0, 4.0], 0.25)
    for same in (own, own.validation(), own.standardised()[0], own.to(torch.float32)):
        assert same.columns == ("age", "dose")
    assert torch.equal(own.standardised_inputs(frame), own.standardised_inputs(frame.to_numpy()))
    with pytest.raises(ValueError, match=r"columns must be \['age', 'dose'\], in this order, got \['dose', 'age'\]"):
        own.standardised_inputs(frame[["dose", "age"]])


def test_constant_targets_are_only_shifted():
    own = data.RegressionData.random_split([[1, 2], [3, 4], [5, 7], [7, 8]], [2.0] * 4, 0.25)
    scaled, shift, factor = own.standardised()
    assert (shift, factor) == (2.0, 1.0) and torch.equal(scaled.targets, torch.zeros(3, dtype=torch.float64))


def test_what_is_constant_over_the_training_data_is_only_shifted():
    """The standard deviation of 54 times 0.1 is a rounding error."""
    constant = data.RegressionData.random_split([[0.1]] * 60, [0.1] * 60, test_fraction=0.1)
    assert float(constant.targets.std(correction=0)) > 0
    scaled, shift, factor = constant.standardised()
    assert factor == 1 and abs(shift - 0.1) < 1e-12 and float(scaled.inputs.abs().max()) < 1e-12
    assert abs(float(constant.standardised_inputs([[0.2]])) - 0.1) < 1e-12
