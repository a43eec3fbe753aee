"""Where a result came from: device, versions, commit, memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy
import torch

import gpvi_lib
from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.paths import repository


def cores() -> int:
    """Number of CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


DEVICES = ("auto", "cpu", "cuda", "mps")


def kind_of_device(name: str | torch.device) -> str:
    """Return which of :data:`DEVICES` a name asks for, whether or not this machine has one.

    Raises:
        UnknownName: if torch has no such kind of device.
    """
    if name == "auto":
        return "auto"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in DEVICES:
        raise UnknownName.among("device", str(name), DEVICES)
    return kind


def as_device(name: str | torch.device) -> torch.device:
    """The device called `name`: "cpu", "cuda", "cuda:1", "mps", or "auto" for a GPU where there is one.

    On a GPU products and convolutions of float32 are float32's from then on: TF32, which keeps 10 of 23 bits and is
    PyTorch's default for convolutions, is switched off.

    Raises:
        UnknownName: if torch has no such kind of device.
        GPVIError: if this machine or this build of torch has none.
    """
    if kind_of_device(name) == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise GPVIError(f"device {str(name)!r} is not available: torch sees {found} CUDA GPUs; use --device cpu")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise GPVIError("device 'mps' is not available to this build of torch; use --device cpu")
    return device


def device_name(device: torch.device) -> str:
    """The hardware behind `device`, with the number of threads for a CPU."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, TF32 {'on' if torch.backends.cudnn.allow_tf32 else 'off'}"
    return f"{_processor()}, {torch.get_num_threads()} threads" if device.type == "cpu" else str(device)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def versions() -> dict[str, str]:
    """Versions of python, torch, numpy and this package, and of Pyro where the run has loaded it."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "gpvi_lib": getattr(gpvi_lib, "__version__", "unknown"),
        **({"pyro": sys.modules["pyro"].__version__} if "pyro" in sys.modules else {}),
    }


CHANGES = "+changes"
"""What follows the commit of a record whose code was not that of the commit."""
NO_COMMIT = "unknown"


def commit() -> str:
    """The repository's commit, "+changes" if the package differs from it; "unknown" outside a repository.

    It is the present one: what this process has loaded is :data:`LOADED`.
    """
    head = _git("rev-parse", "HEAD") if _is_own_repository() else ""
    if not head:
        return NO_COMMIT
    return head + (CHANGES if has_changes() else "")


def has_changes() -> bool:
    """Whether the package differs from the commit, or git cannot tell; not so outside a repository."""
    return _is_own_repository() and _git("status", "--porcelain", "--", "gpvi_lib") != ""


def _is_own_repository() -> bool:
    """Whether the package lies where its repository puts it, and not, say, unpacked inside another's."""
    top = _git("rev-parse", "--show-toplevel") or ""
    return top != "" and Path(top).resolve() == repository()


def require_clean() -> None:
    """Raises `GPVIError` if the package differs from the commit: a record could not say what it was computed with.

    So it does where there is a repository that git cannot read.
    """
    _require_git()
    if has_changes():
        raise GPVIError(
            "gpvi_lib/ differs from its commit (git status shows where), so a record at paper could not name the code "
            "that it comes from; commit or stash the changes, or ask `run` or `queue` for such records with --dirty"
        )
    if LOADED.endswith(CHANGES):
        raise GPVIError(
            "gpvi_lib/ differed from its commit when this process began, and that is the code it runs; begin another "
            "(in JupyterLab: restart the kernel), or ask for such records with --dirty"
        )


def is_same_code(one: str, other: str) -> bool:
    """Whether the package is the same at two commits, as :func:`commit` gives them."""
    tree = _git("rev-parse", f"{one}:gpvi_lib")
    return one == other or (tree is not None and tree == _git("rev-parse", f"{other}:gpvi_lib"))


def history() -> frozenset[str]:
    """Every commit that leads to the present one.

    Raises:
        GPVIError: outside a repository, and in a clone that has only the latest of them.
    """
    _require_git()
    found = (_git("rev-list", "HEAD") or "").split()
    if not found:
        raise GPVIError(f"there is no git history in {repository()}, so no commit can be looked up; use a clone")
    if _git("rev-parse", "--is-shallow-repository") == "true":
        raise GPVIError("this clone has the latest commits only; get the others with `git fetch --unshallow`")
    return frozenset(found)


def doubt(commit: str, history: frozenset[str]) -> str:
    """Why a record's commit does not tell what it was computed with; "" if it does."""
    if commit in ("", NO_COMMIT):
        return "no commit"
    if commit.removesuffix(CHANGES) not in history:
        return "not in the history"
    return "changed code" if commit.endswith(CHANGES) else ""


def _require_git() -> None:
    """Raises `GPVIError`, with git's words, if there is a repository here and git cannot read it."""
    if not (repository() / ".git").exists():
        return
    try:
        _ask_git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "stderr", None) or error
        raise GPVIError(
            f"git cannot read the repository {repository()}, so no commit can be named: install git, or tell it that a "
            f"folder of another owner is safe (git config --global --add safe.directory ...): {str(why).strip()}"
        ) from error


def _git(*arguments: str) -> str | None:
    """What git says; None if it fails."""
    try:
        return _ask_git(*arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def _ask_git(*arguments: str) -> str:
    command = ["git", "-C", str(repository()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


LOADED = commit()
"""The commit of the code that this process has loaded; the repository may move on while a long run computes."""


def fingerprint() -> str:
    """A hash of the package's modules as they lie on the disk."""
    modules = sorted(Path(gpvi_lib.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in modules)).hexdigest()


FINGERPRINT = fingerprint()
"""Of the code that this process has loaded: another process has the same where it may compute for this one."""


def reset_peak_memory(device: torch.device) -> None:
    """Starts `peak_memory_mb` anew; on a CPU outside Linux it goes on counting from the process's start."""
    if device.type == "cuda":
        torch.cuda.init()  # there are no statistics to reset before that
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # not Linux, or a sandbox: then the process's peak is the best there is
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory in MB (10^6 bytes): torch's allocator on a GPU, all that the process holds on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
