"""Data sets for the open-category experiments; nothing is downloaded unless :func:`download` is called."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from .errors import DataMissing, UnknownName
from .paths import data_root

KNOWN_CLASSES = range(6)
"""Classes 0-5 are seen in training, 6-9 only as outliers (design of Neal et al. 2018, as the paper follows it)."""

# sha256 of the official files, as torchvision unpacks them.
MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
DIGITS_TEST_FRACTION = 0.3
DIGITS_SPLIT_SEED = 0


@dataclass(frozen=True)
class ImageData:
    """Grey images with labels, split into training and test.

    Attributes:
        train, test: pixels, ``(N, height, width)``, 0 to 255.
        train_labels, test_labels: ``(N,)``, 0 to 9.
    """

    train: UInt8[Tensor, "N h w"]
    train_labels: Int[Tensor, " N"]
    test: UInt8[Tensor, "M h w"]
    test_labels: Int[Tensor, " M"]


@dataclass(frozen=True)
class OpenCategory:
    """Known classes to train and test on, unknown ones to detect. Inputs are standardised, ``(N, 1, h, w)``.

    Attributes:
        inputs, labels: training data of the known classes.
        test_inputs, test_labels: test data of the known classes.
        unknown_inputs: test data of the unknown classes.
        unknown_images, unknown_labels: the same as pixels 0 to 255, and the classes a network never saw.
    """

    inputs: Float[Tensor, "N 1 h w"]
    labels: Int[Tensor, " N"]
    test_inputs: Float[Tensor, "M 1 h w"]
    test_labels: Int[Tensor, " M"]
    unknown_inputs: Float[Tensor, "U 1 h w"]
    unknown_images: UInt8[Tensor, "U h w"]
    unknown_labels: Int[Tensor, " U"]


def digits() -> ImageData:
    """scikit-learn's 1,797 handwritten digits, 8 x 8, with a fixed stratified split; part of scikit-learn itself."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = torch.as_tensor(bunch.images * (255 / 16)).to(torch.uint8)
    return _split(pixels, torch.as_tensor(bunch.target))


def digits_validation() -> ImageData:
    """The training part of :func:`digits` alone, split again: for choices that must not see a test image."""
    data = digits()
    return _split(data.train, data.train_labels)


def _split(images: Tensor, labels: Tensor) -> ImageData:
    from sklearn.model_selection import train_test_split

    rows = range(len(labels))
    parts = train_test_split(
        rows, test_size=DIGITS_TEST_FRACTION, stratify=labels.numpy(), random_state=DIGITS_SPLIT_SEED
    )
    train, test = (torch.as_tensor(part) for part in parts)
    return ImageData(images[train], labels[train], images[test], labels[test])


def mnist(root: Path | None = None) -> ImageData:
    """The official MNIST, read by torchvision from ``root / "MNIST" / "raw"``.

    Raises:
        DataMissing: if a file is missing or is not the official one, naming it and how to get it.
    """
    from torchvision.datasets import MNIST

    root = data_root() if root is None else root
    for name, digest in MNIST_FILES.items():
        _check_file(root / "MNIST" / "raw" / name, digest, "mnist")
    train, test = (MNIST(root, train=part, download=False) for part in (True, False))
    return ImageData(train.data, train.targets, test.data, test.targets)


def mnist_available(root: Path | None = None) -> bool:
    """Whether all files of MNIST are where :func:`mnist` looks for them."""
    root = data_root() if root is None else root
    return all((root / "MNIST" / "raw" / name).exists() for name in MNIST_FILES)


def _check_file(path: Path, digest: str, name: str) -> None:
    remedy = f"run `python -m gpvi_lib data {name}`, or set GPVI_DATA to the folder that has it"
    if not path.exists():
        raise DataMissing(f"{path} is missing: {remedy}")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise DataMissing(f"{path} is truncated or altered (sha256 {found[:12]}…): delete it and {remedy}")


LOADERS = {"digits": digits, "digits-validation": digits_validation, "mnist": mnist}


def load(name: str) -> ImageData:
    """The data set of that name: ``digits``, ``digits-validation`` or ``mnist``."""
    if name not in LOADERS:
        raise UnknownName.among("data set", name, LOADERS)
    return LOADERS[name]()


def download(name: str, root: Path | None = None) -> None:
    """Download a data set from its publisher through torchvision, with progress and checksums."""
    if name != "mnist":
        raise UnknownName.among("downloadable data set", name, ("mnist",))
    from torchvision.datasets import MNIST

    MNIST(data_root() if root is None else root, download=True)


def open_category(data: ImageData, device: torch.device | str = "cpu") -> OpenCategory:
    """Split by class and standardise pixels by mean and standard deviation of the known training images."""
    last = KNOWN_CLASSES[-1]
    train = data.train_labels <= last
    test = data.test_labels <= last
    pixels = data.train[train].float()
    mean, std = pixels.mean(), pixels.std()

    def standardise(images: Tensor) -> Tensor:
        return ((images.float() - mean) / std)[:, None].to(device)

    return OpenCategory(
        inputs=standardise(data.train[train]),
        labels=data.train_labels[train].to(device),
        test_inputs=standardise(data.test[test]),
        test_labels=data.test_labels[test].to(device),
        unknown_inputs=standardise(data.test[~test]),
        unknown_images=data.test[~test],
        unknown_labels=data.test_labels[~test],
    )
