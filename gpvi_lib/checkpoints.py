"""Checkpoints: the state of a long run as one file, written in one step and read without running any code."""

import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch

from gpvi_lib.errors import GPVIError, OutOfTime

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def save(path: Path, state: dict) -> None:
    """Make ``path`` hold ``state`` (tensors, numbers, strings and containers of them): all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load(path: Path, device: torch.device) -> dict:
    """The state in ``path``, its tensors on ``device``.

    Raises:
        GPVIError: if the file is no checkpoint, or not all of one.
    """
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:  # a RuntimeError, but not the file's fault
        raise
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        raise GPVIError(f"{path} is no checkpoint or is damaged: delete it to start anew") from None


@contextmanager
def deadline(at: float | None) -> Iterator[None]:
    """Inside, every loop that checkpoints stops with :class:`OutOfTime` at ``at`` (as ``time.time()``), resumable."""
    token = _deadline.set(at)
    try:
        yield
    finally:
        _deadline.reset(token)


def stop_if_over(label: str) -> None:
    """Raises :class:`OutOfTime` after the deadline, if there is one."""
    at = _deadline.get()
    if at is not None and time.time() >= at:
        raise OutOfTime(f"{label}: time is up; what was done is kept, and the same command goes on from there")


class Schedule:
    """Says when the next checkpoint is due: every so often, and at the deadline.

    Args:
        path: where checkpoints go; ``None`` for none, then nothing is ever due.
        seconds: time between two checkpoints.
    """

    def __init__(self, path: Path | None, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time; the clock starts again when it says yes. To be followed by :func:`stop_if_over`."""
        at = _deadline.get()
        over = at is not None and time.time() >= at
        if self.path is None or (time.monotonic() - self.last < self.seconds and not over):
            return False
        self.last = time.monotonic()
        return True
