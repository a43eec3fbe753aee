"""Regression sets: fixed splits, no leak, checksums, and the downloader against a local server."""

import hashlib

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import data
from gpvi_lib.__main__ import main
from gpvi_lib.errors import DataMissing, UnknownName

ROWS, FEATURES = 30, 3


def write_set(root, folder="yacht") -> dict[str, str]:
    """A set in the publisher's layout below `root`, row i with target 1000 + i; returns path -> sha256."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=(ROWS, FEATURES)), 1000 + np.arange(ROWS)])
    columns = {"data": table, "index_features": np.arange(FEATURES), "index_target": [FEATURES]}
    for split in data.UCI_SPLITS:
        order = rng.permutation(ROWS)
        columns |= {f"index_test_{split}": order[:3], f"index_train_{split}": order[3:]}
    (root / folder / "data").mkdir(parents=True)
    registry = {}
    for name, values in columns.items():
        path = root / folder / "data" / f"{name}.txt"
        np.savetxt(path, values, fmt="%.10g" if name == "data" else "%d")
        registry[f"{folder}/data/{name}.txt"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return registry


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A publisher's folder with one set, whose checksums the library knows."""
    folder = tmp_path / "published"
    registry = write_set(folder)
    monkeypatch.setattr(data, "_uci_registry", lambda: registry)
    return folder


@pytest.fixture
def server(published, serve, monkeypatch):
    """The publisher, on a port of this machine; the list of what it was asked for."""
    url, asked = serve(published)
    monkeypatch.setattr(data, "UCI_URL", f"{url}/")
    return asked


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("GPVI_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_set_is_downloaded_once_and_read(server, root):
    main_ok("data", "yacht")
    assert len(server) == 43
    main_ok("data", "yacht")
    assert len(server) == 43  # what is there, and whole, is not fetched again
    split = data.uci("yacht", 4)
    assert (split.inputs.shape, split.test_inputs.shape) == ((27, 3), (3, 3))
    together = torch.cat([split.targets, split.test_targets])
    assert_close(together.sort().values, 1000 + torch.arange(30.0, dtype=torch.float64))
    order = np.loadtxt(root / "UCI_Datasets/yacht/data/index_test_4.txt", dtype=int)
    assert_close(split.test_targets, 1000.0 + torch.as_tensor(order).double())


def main_ok(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


def test_a_file_that_is_not_the_publishers_is_refused(server, published, root):
    path = published / "yacht/data/index_train_7.txt"
    path.write_text(path.read_text().replace("1", "2"))
    with pytest.raises(DataMissing, match="yacht could not be downloaded from http://.*index_train_7"):
        data.download("yacht", root)
    assert not (root / "UCI_Datasets/yacht/data/index_train_7.txt").exists()


def test_without_a_network_there_is_one_line(published, root, monkeypatch, capsys):
    monkeypatch.setattr(data, "UCI_URL", "http://127.0.0.1:9/")  # the discard port: nobody listens
    with pytest.raises(SystemExit) as ended:
        main(["data", "yacht"])
    assert ended.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "yacht could not be downloaded" in line


@pytest.mark.parametrize("file", ["data", "index_features", "index_target", "index_train_2", "index_test_2"])
@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_damaged_set_names_the_file_and_the_remedy(file, damage, published, root):
    registry = write_set(root / "UCI_Datasets")
    assert registry == data._uci_registry()
    path = root / "UCI_Datasets" / "yacht" / "data" / f"{file}.txt"
    path.write_text(path.read_text() + "1\n") if damage == "altered" else path.unlink()
    with pytest.raises(DataMissing, match=rf"{file}.txt is .*`python -m gpvi_lib data yacht`.*GPVI_DATA"):
        data.uci("yacht", 2)


def test_names_that_do_not_exist(root):
    with pytest.raises(UnknownName, match="UCI set .*boston, concrete, energy, kin8nm.*yacht"):
        data.uci("bostn", 0)
    with pytest.raises(UnknownName, match="unknown split 20 of boston"):
        data.uci("boston", 20)
    with pytest.raises(UnknownName, match="unknown split 5 of protein"):
        data.uci("protein", 5)
    with pytest.raises(UnknownName, match="regression set .*diabetes"):
        data.regression("iris", 0)
    with pytest.raises(UnknownName, match="downloadable data set .*boston.*yacht"):
        data.download("diabetes", root)


def test_the_registry_is_complete():
    registry = data._uci_registry()
    splits = [len(data.FEWER_SPLITS.get(name, data.UCI_SPLITS)) for name in data.UCI_FOLDERS]
    assert len(registry) == sum(3 + 2 * number for number in splits)
    assert all(len(digest) == 64 for digest in registry.values())
    assert {path.split("/")[0] for path in registry} == set(data.UCI_FOLDERS.values())


SIZES = [
    ("boston", 506, 13),
    ("concrete", 1030, 8),
    ("energy", 768, 8),
    ("kin8nm", 8192, 8),
    ("naval", 11934, 16),
    ("power", 9568, 4),
    ("protein", 45730, 9),
    ("winered", 1599, 11),
]


@pytest.mark.parametrize(("name", "rows", "columns"), SIZES)
def test_the_real_sets(name, rows, columns):
    if not (data.data_root() / "UCI_Datasets" / data.UCI_FOLDERS[name]).exists():
        pytest.skip(f"{name} is not below {data.data_root()}; `python -m gpvi_lib data {name}` gets it")
    for split in (0, data.FEWER_SPLITS.get(name, data.UCI_SPLITS)[-1]):
        found = data.uci(name, split)
        assert found.inputs.shape[1] == columns and len(found.inputs) + len(found.test_inputs) == rows


def test_the_mushrooms(root):
    with pytest.raises(DataMissing, match="agaricus-lepiota.data is missing: run .*data mushroom"):
        data.mushroom()
    assert not data.available("mushroom", root)


def test_the_real_mushrooms():
    if not data.available("mushroom"):
        pytest.skip(f"mushroom is not below {data.data_root()}; `python -m gpvi_lib data mushroom` gets it")
    found = data.mushroom()
    assert found.inputs.shape == (8124, 117) and int(found.labels.sum()) == 3916
    assert bool((found.inputs.sum(1) == 22).all())  # one indicator for each category


# Splits


def test_diabetes_has_random_splits_of_its_own():
    splits = [data.regression("diabetes", split) for split in (0, 1, 0)]
    assert (splits[0].inputs.shape, splits[0].test_inputs.shape) == ((397, 10), (45, 10))
    assert torch.equal(splits[0].targets, splits[2].targets)
    assert not torch.equal(splits[0].targets, splits[1].targets)
    totals = {float(split.targets.sum() + split.test_targets.sum()) for split in splits}
    assert len(totals) == 1


def test_validation_data_are_training_data():
    full = data.diabetes(0)
    part = full.validation(3)
    rows = torch.cat([part.inputs, part.test_inputs])
    assert_close(rows.sort(0).values, full.inputs.sort(0).values)
    assert len(part.test_targets) == 80  # a fifth of 397


def test_standardisation_uses_the_training_data_alone():
    full = data.diabetes(0)
    full.test_inputs[:] += 100
    full.inputs[:, 2] = 7.0  # constant: only shifted
    scaled, shift, factor = full.standardised()
    expected = torch.ones(10, dtype=torch.float64)
    expected[2] = 0
    assert_close(scaled.inputs.mean(0), torch.zeros_like(expected), rtol=0, atol=1e-12)
    assert_close(scaled.inputs.std(0, correction=0), expected)
    assert_close(scaled.targets.std(correction=0), torch.tensor(1.0, dtype=torch.float64))
    assert_close(shift + factor * scaled.test_targets, full.test_targets)
    assert float(scaled.test_inputs.mean()) > 1
    assert scaled.to(torch.float32).targets.dtype == torch.float32
