"""Data sets for the open-category experiments; nothing is downloaded unless :func:`download` is called."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from .errors import DataMissing, UnknownName
from .paths import data_root

KNOWN_CLASSES = range(6)
"""Classes 0-5 are seen in training, 6-9 only as outliers (design of Neal et al. 2018, as the paper follows it)."""
ALL_CLASSES = range(10)

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
    """Images with labels, split into training and test.

    Attributes:
        train, test: pixels, 0 to 255: ``(N, height, width)`` if grey, ``(N, height, width, 3)`` if in colour.
        train_labels, test_labels: ``(N,)``, 0 to 9.
    """

    train: UInt8[Tensor, "N h w *colours"]
    train_labels: Int[Tensor, " N"]
    test: UInt8[Tensor, "M h w *colours"]
    test_labels: Int[Tensor, " M"]


@dataclass(frozen=True)
class OpenCategory:
    """Known classes to train and test on, unknown ones to detect. Inputs are standardised, ``(N, c, h, w)``.

    Attributes:
        inputs, labels: training data of the known classes.
        test_inputs, test_labels: test data of the known classes.
        unknown_inputs: test data of the unknown classes.
        unknown_images, unknown_labels: the same as pixels 0 to 255, and the classes a network never saw. All three
            are empty where every class is known.
    """

    inputs: Float[Tensor, "N c h w"]
    labels: Int[Tensor, " N"]
    test_inputs: Float[Tensor, "M c h w"]
    test_labels: Int[Tensor, " M"]
    unknown_inputs: Float[Tensor, "U c h w"]
    unknown_images: UInt8[Tensor, "U h w *colours"]
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


def cifar10(root: Path | None = None) -> ImageData:
    """The official CIFAR-10, read by torchvision from ``root / "cifar-10-batches-py"``.

    Raises:
        DataMissing: if a file is missing or is not the official one, naming it and how to get it.
    """
    from torchvision.datasets import CIFAR10

    root = data_root() if root is None else root
    for path, digest in _cifar10_files(root).items():
        _check_file(path, digest, "cifar10", "md5")
    train, test = (CIFAR10(root, train=part, download=False) for part in (True, False))
    return ImageData(
        torch.from_numpy(train.data),
        torch.as_tensor(train.targets),
        torch.from_numpy(test.data),
        torch.as_tensor(test.targets),
    )


def _cifar10_files(root: Path) -> dict[Path, str]:
    """Its files and their md5, which the publisher gives and torchvision keeps."""
    from torchvision.datasets import CIFAR10

    folder = root / CIFAR10.base_folder
    return {folder / name: digest for name, digest in (*CIFAR10.train_list, *CIFAR10.test_list)}


def available(name: str, root: Path | None = None) -> bool:
    """Whether all files of ``mnist`` or ``cifar10`` are where its loader looks for them."""
    root = data_root() if root is None else root
    files = {"mnist": [root / "MNIST" / "raw" / file for file in MNIST_FILES]}
    return all(path.exists() for path in (files["mnist"] if name == "mnist" else _cifar10_files(root)))


def _check_file(path: Path, digest: str, name: str, algorithm: str = "sha256") -> None:
    remedy = f"run `python -m gpvi_lib data {name}`, or set GPVI_DATA to the folder that has it"
    if not path.exists():
        raise DataMissing(f"{path} is missing: {remedy}")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != digest:
        raise DataMissing(f"{path} is truncated or altered ({algorithm} {found[:12]}…): delete it and {remedy}")


LOADERS = {"digits": digits, "digits-validation": digits_validation, "mnist": mnist, "cifar10": cifar10}


def load(name: str) -> ImageData:
    """The data set of that name: ``digits``, ``digits-validation``, ``mnist`` or ``cifar10``."""
    if name not in LOADERS:
        raise UnknownName.among("data set", name, LOADERS)
    return LOADERS[name]()


def download(name: str, root: Path | None = None) -> None:
    """Download a data set from its publisher through torchvision, with progress and checksums."""
    from torchvision import datasets

    classes = {"mnist": "MNIST", "cifar10": "CIFAR10"}
    if name not in classes:
        raise UnknownName.among("downloadable data set", name, classes)
    getattr(datasets, classes[name])(data_root() if root is None else root, download=True)


def _channels_first(images: UInt8[Tensor, "n h w *colours"]) -> Float[Tensor, "n c h w"]:
    return (images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)).float()


def open_category(
    data: ImageData, device: torch.device | str = "cpu", known: Sequence[int] = KNOWN_CLASSES
) -> OpenCategory:
    """Split by class and standardise each channel by mean and standard deviation of the known training images.

    Args:
        known: the known classes, 0 to some number: labels index a network's outputs.
    """
    train = data.train_labels <= known[-1]
    test = data.test_labels <= known[-1]
    pixels = _channels_first(data.train[train])
    mean, std = (moment((0, 2, 3), keepdim=True) for moment in (pixels.mean, pixels.std))

    def standardise(images: Tensor) -> Tensor:
        return ((_channels_first(images) - mean) / std).to(device)

    return OpenCategory(
        inputs=standardise(data.train[train]),
        labels=data.train_labels[train].to(device),
        test_inputs=standardise(data.test[test]),
        test_labels=data.test_labels[test].to(device),
        unknown_inputs=standardise(data.test[~test]),
        unknown_images=data.test[~test],
        unknown_labels=data.test_labels[~test],
    )
