"""Covertype: read and scaled, its two publishers' files, and the downloader against a local server."""

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gpvi_lib import data
from gpvi_lib.errors import DataMissing, UnknownName

ROWS = 12


def table() -> np.ndarray:
    rng = np.random.default_rng(0)
    continuous, indicators = rng.integers(0, 4_000, (ROWS, 10)), rng.integers(0, 2, (ROWS, 44))
    return np.column_stack([continuous, indicators, 1 + np.arange(ROWS) % 7])


@pytest.fixture
def published(tmp_path, serve, monkeypatch):
    """A server with a small file in the format of each publisher, whose checksum the library knows."""
    folder = tmp_path / "published"
    folder.mkdir()
    lines = "\n".join(",".join(map(str, row)) for row in table()) + "\n"
    header = ",".join(f"column{i}" for i in range(55)) + "\n"
    url, asked = serve(folder)
    for name, text in {"covertype": lines, "covertype-subset": header + lines}.items():
        content = gzip.compress(text.encode(), mtime=0)
        (folder / name).write_bytes(content)
        known = replace(data.COVERTYPE[name], url=f"{url}/{name}", sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(data.COVERTYPE, name, known)
    monkeypatch.setenv("GPVI_DATA", str(tmp_path / "data"))
    return folder, asked


@pytest.mark.parametrize("name", data.COVERTYPE)
def test_a_file_is_downloaded_once_and_read(published, name):
    _, asked = published
    assert not data.available(name) and data.missing([name]) == name
    with pytest.raises(DataMissing, match=f"is missing: run `python -m gpvi_lib data {name}`"):
        data.binary(name)
    data.download(name)
    data.download(name)
    assert len(asked) == 1 and data.available(name)
    found, rows = data.binary(name), table()
    low, high = rows[:, :10].min(0), rows[:, :10].max(0)
    assert_close(found.inputs[:, :10], torch.tensor((rows[:, :10] - low) / (high - low)).float())
    assert torch.equal(found.inputs[:, 10:], torch.tensor(rows[:, 10:54]).float())
    assert found.labels.tolist() == [int(i % 7 == 1) for i in range(ROWS)]


def test_a_file_that_is_not_the_publishers_is_refused(published):
    folder, _ = published
    (folder / "covertype").write_bytes(b"another file")
    with pytest.raises(DataMissing, match=r"covertype could not be downloaded from http://"):
        data.download("covertype")
    path = data.data_root() / data.COVERTYPE["covertype"].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"damaged")
    with pytest.raises(DataMissing, match="truncated or altered"):
        data.covertype("covertype")


def test_no_network_is_said(published, monkeypatch):
    nobody = replace(data.COVERTYPE["covertype"], url="http://127.0.0.1:9/")  # the discard port: nobody listens
    monkeypatch.setitem(data.COVERTYPE, "covertype", nobody)
    with pytest.raises(DataMissing, match="covertype could not be downloaded"):
        data.download("covertype")


def test_unknown_sets_are_named():
    with pytest.raises(UnknownName, match="version of Covertype 'covtype'"):
        data.covertype("covtype")
    with pytest.raises(UnknownName, match="set of two classes 'iris'"):
        data.binary("iris")


def test_digits_by_parity():
    found = data.binary("digits-parity")
    assert found.inputs.shape == (1_797, 64) and (found.inputs.min(), found.inputs.max()) == (0, 1)
    assert int(found.labels.sum()) == 906  # odd digits


@pytest.mark.skipif(
    not data.available("covertype-subset"), reason="not below data/; `python -m gpvi_lib data covertype-subset` gets it"
)
def test_the_subset():
    found = data.covertype("covertype-subset")
    assert found.inputs.shape == (92_962, 54) and int(found.labels.sum()) == 45_328
    assert (found.inputs.amin(0) == 0).all() and (found.inputs.amax(0) == 1).sum() >= 50
    assert_close(found.inputs[:, 10:14].sum(1), torch.ones(92_962))  # one wilderness area each
