"""Where records, figures and data live, and how a file is put there in one step.

Each folder is the repository's own, or in the working directory where the package is installed without its
repository, unless an environment variable names another: `GPVI_RESULTS`, `GPVI_FIGURES`, `GPVI_DATA`, `GPVI_BUILD`.
"""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from gpvi_lib.errors import CannotWrite


def repository() -> Path:
    """The repository this package is imported from."""
    return Path(__file__).resolve().parents[1]


def make_roots_absolute() -> None:
    """Make folders that the environment names relative to the working directory the same for kernels and workers."""
    for variable in ("GPVI_RESULTS", "GPVI_FIGURES", "GPVI_DATA", "GPVI_BUILD"):
        if os.environ.get(variable):
            os.environ[variable] = str(Path(os.environ[variable]).resolve())


def _root(variable: str, folder: str) -> Path:
    """In the working directory where the package is installed without its repository, so not in site-packages."""
    home = repository() if (repository() / "pyproject.toml").exists() else Path.cwd()
    return Path(os.environ.get(variable) or home / folder)


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
    """Writes `content`, or what it writes, under a temporary name beside `path`, for `os.replace`; returns the name.

    Raises:
        CannotWrite: if there is no such folder, no right to write there, or no room; nothing is left behind then.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                content(file) if callable(content) else file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch.save hides the one behind the other
        if not isinstance(cause, OSError):
            raise
        raise CannotWrite(f"cannot write {shown(path)}: {cause.strerror or cause}") from error
    return temporary


def require_writable(path: Path, remedy: str) -> Path:
    """`path`, after a try whether a file can be put there: asked for before hours of work, not after.

    Raises:
        CannotWrite: if not, with the remedy.
    """
    try:
        if path.is_dir():
            raise CannotWrite(f"cannot write {shown(path)}: it is a folder")
        probe = path.with_name(f"{path.name}.probe")
        write_temporary(probe, b"")
        sweep_temporary(path.parent, probe.name)  # with those of processes that were killed just here
    except CannotWrite as error:
        raise CannotWrite(f"{error}; {remedy}") from None
    except OSError as error:
        raise CannotWrite(f"cannot write {shown(path)}: {error.strerror}; {remedy}") from None
    return path


def sweep_temporary(folder: Path, name: str, age: float | None = None) -> None:
    """Removes what `write_temporary` left of files whose name begins so, when its process was killed.

    Args:
        age: seconds since the last change; needed where another process may be writing one now.
    """
    for path in folder.glob(f".{glob.escape(name)}*.tmp"):
        with suppress(FileNotFoundError):  # another process sweeps, too
            if age is None or time.time() - path.stat().st_mtime >= age:
                path.unlink()


@contextmanager
def locked(path: Path, wait: Callable[[], object]) -> Iterator[None]:
    """Inside, no other process holds the lock file `path`; however a process ends, its lock ends with it.

    Args:
        path: removed at the end; what a killed process left of it does not count.
        wait: called while another holds it, before each new try; may raise.

    Raises:
        CannotWrite: if the file cannot be made.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "w")
        except OSError as error:
            raise CannotWrite(f"cannot write {shown(path)}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                wait()
                continue
            if not _is_still(file, path):  # its holder has removed it since it was opened
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_still(file: IO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Makes `path` hold `content`, or what it writes: a reader sees the old file or the new one, never a part."""
    temporary = write_temporary(path, content)
    try:
        os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(f"cannot write {shown(path)}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
