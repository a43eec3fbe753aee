"""Where records, figures and data live, and how a file is put there in one step.

Each folder is the repository's own unless an environment variable names another: `GPVI_RESULTS`,
`GPVI_FIGURES`, `GPVI_DATA`, `GPVI_BUILD`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def repository() -> Path:
    """The repository this package is imported from."""
    return Path(__file__).resolve().parents[1]


def make_roots_absolute() -> None:
    """Make folders that the environment names relative to the working directory the same for kernels and workers."""
    for variable in ("GPVI_RESULTS", "GPVI_FIGURES", "GPVI_DATA", "GPVI_BUILD"):
        if os.environ.get(variable):
            os.environ[variable] = str(Path(os.environ[variable]).resolve())


def _root(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable) or repository() / folder)


def results_root() -> Path:
    """Folder of the records: `results/`, or `$GPVI_RESULTS`."""
    return _root("GPVI_RESULTS", "results")


def figures_root() -> Path:
    """Folder of the figures: `figures/`, or `$GPVI_FIGURES`."""
    return _root("GPVI_FIGURES", "figures")


def data_root() -> Path:
    """Folder of downloaded data sets: `data/`, or `$GPVI_DATA`."""
    return _root("GPVI_DATA", "data")


def build_root() -> Path:
    """Folder of everything that may be deleted, checkpoints included: `build/`, or `$GPVI_BUILD`."""
    return _root("GPVI_BUILD", "build")


def notebooks_root() -> Path:
    """Folder of the notebooks: `notebooks/`."""
    return repository() / "notebooks"


def shown(path: Path) -> str:
    """`path` for a message: relative to the repository where it lies inside it."""
    try:
        return path.resolve().relative_to(repository()).as_posix()
    except ValueError:
        return str(path)


def write_temporary(path: Path, content: bytes | Callable[[BinaryIO], object]) -> Path:
    """Writes `content`, or what it writes, under a temporary name beside `path`, for `os.replace`; returns the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            content(file) if callable(content) else file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Makes `path` hold `content`, or what it writes: a reader sees the old file or the new one, never a part."""
    temporary = write_temporary(path, content)
    try:
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
