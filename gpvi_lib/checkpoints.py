"""Checkpoints: the state of a long run as one file, written in one step and read without running any code."""

import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpvi_lib.errors import GPVIError, OutOfTime
from gpvi_lib.paths import write_atomically

CHECKSUM = "checksum"
"""The name under which a checkpoint keeps the checksum of all else in it."""

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def save(path: Path, state: dict) -> None:
    """Make ``path`` hold ``state`` (tensors, numbers, strings and containers of them): all of it or nothing.

    A checksum over the content goes with it, under ``CHECKSUM``.

    Example:
        >>> from pathlib import Path
        >>> save(Path("run.pt"), {"step": 3, "x": torch.ones(2)})
        >>> load(Path("run.pt"), torch.device("cpu"))["step"]
        3
    """
    state = _plain(state)
    sealed = state | {CHECKSUM: checksum(state)}
    write_atomically(path, lambda file: torch.save(sealed, file))


def _plain(content: Any) -> Any:
    """The same with NumPy's numbers as Python's: those alone can be read back without running any code."""
    if isinstance(content, np.generic):
        return content.item()
    if isinstance(content, dict):
        return {_plain(key): _plain(value) for key, value in content.items()}
    if type(content) in (list, tuple):
        return type(content)(_plain(part) for part in content)
    return content


def load(path: Path, device: torch.device, *names: str) -> dict:
    """The state in ``path``, its tensors on ``device``.

    Args:
        names: what has to be in it.

    Raises:
        GPVIError: if the file cannot be read, is no checkpoint, not all of one, was changed after it was written, or
            lacks a name.

    Example:
        >>> from pathlib import Path
        >>> save(Path("run.pt"), {"step": 3})
        >>> load(Path("run.pt"), torch.device("cpu"))
        {'step': 3}
    """
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:  # it may be whole
        raise GPVIError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        seal = state.pop(CHECKSUM)
        intact = seal == checksum(state) and all(name in state for name in names)
    except (torch.OutOfMemoryError, MemoryError):  # not the file's fault
        raise
    except Exception as error:  # a damaged file fails wherever the damage is: in the archive, the pickle or a string
        raise GPVIError(f"{path} is no checkpoint or is damaged: delete it to start anew") from error
    if not intact:
        raise GPVIError(f"{path} is no checkpoint or is damaged: delete it to start anew")
    return state


def checksum(content: object) -> str:
    """Return the SHA-256 of a state: tensors by type, shape and bytes, all else by what it prints as."""
    what = hashlib.sha256()
    _feed(what, content)
    return what.hexdigest()


def _feed(what: "hashlib._Hash", content: object) -> None:
    if isinstance(content, torch.Tensor):
        _feed_tensor(what, content)
    elif isinstance(content, dict):
        what.update(f"dict {len(content)};".encode())
        for key, value in content.items():
            _feed(what, key)
            _feed(what, value)
    elif isinstance(content, list | tuple):
        what.update(f"{type(content).__name__} {len(content)};".encode())
        for value in content:
            _feed(what, value)
    else:
        what.update(f"{type(content).__name__} {content!r};".encode())


def _feed_tensor(what: "hashlib._Hash", tensor: torch.Tensor) -> None:
    content = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())  # in order, whatever its strides
    what.update(f"{content.dtype} {tuple(content.shape)}".encode())
    what.update(content.reshape(-1).view(torch.uint8).numpy().data)


def refuse_another_run(path: Path, own: dict, saved: dict) -> None:
    """Compare what identifies two runs, by name.

    Raises:
        GPVIError: if something differs, naming it; so does what only one of the two has.
    """
    differs = [name for name in own | saved if not _same(own.get(name), saved.get(name))]
    if differs:
        start = "make the sampler anew from its seed, " if differs == ["first parameters"] else ""
        raise GPVIError(
            f"{path} is the checkpoint of another run (what differs: {', '.join(differs)}): "
            f"{start}delete it, or give another path"
        )


def _same(own: object, other: object) -> bool:
    """Equal; numbers in lists, such as a target's, up to what another device may round differently in a sum of data."""
    if isinstance(own, list) and isinstance(other, list):
        return len(own) == len(other) and all(map(_close, own, other))
    return own == other


def _close(own: object, other: object) -> bool:
    if isinstance(own, float) and isinstance(other, float):
        return math.isclose(own, other, rel_tol=1e-5) or (math.isnan(own) and math.isnan(other))
    return own == other


def digest(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """Return a fingerprint of each tensor (type, shape and bytes), so that a checkpoint of other data is refused."""
    found = {}
    for name, tensor in tensors.items():
        what = hashlib.sha256()
        _feed_tensor(what, tensor)
        found[name] = what.hexdigest()
    return found


@contextmanager
def deadline(at: float | None) -> Iterator[None]:
    """Inside, every loop that checkpoints stops with :class:`OutOfTime` at ``at`` (as ``time.time()``), resumable.

    Example:
        >>> import time
        >>> with deadline(time.time() - 1):
        ...     stop_if_over("my run")
        Traceback (most recent call last):
        gpvi_lib.errors.OutOfTime: my run: time is up; what was done is kept, and the same command goes on from there
    """
    token = _deadline.set(at)
    try:
        yield
    finally:
        _deadline.reset(token)


def stop_if_over(label: str) -> None:
    """Raise :class:`OutOfTime` after the deadline, if there is one.

    Raises:
        OutOfTime: if the deadline is over.

    Example:
        >>> stop_if_over("my run")  # there is no deadline
    """
    at = _deadline.get()
    if at is not None and time.time() >= at:
        raise OutOfTime(f"{label}: time is up; what was done is kept, and the same command goes on from there")


@contextmanager
def interrupt_held(active: bool) -> Iterator[Callable[[], bool]]:
    """Hold back one Ctrl-C, or one press of a notebook's stop button, and say whether it came; the second is not held.

    Nothing is held where not ``active``, outside the main thread, and where something else than Python's own handler
    answers the signal already, as in the workers of a sweep.

    Example:
        >>> import os, signal
        >>> before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as it is in any program of yours
        >>> with interrupt_held(True) as came:
        ...     os.kill(os.getpid(), signal.SIGINT)
        ...     came()
        True
        >>> handler = signal.signal(signal.SIGINT, before)
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not active or not is_main or signal.getsignal(signal.SIGINT) is not before:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


class Schedule:
    """Says when the next checkpoint is due: every so often, and at the deadline.

    Args:
        path: where checkpoints go; ``None`` for none, then nothing is ever due.
        seconds: time between two checkpoints.

    Example:
        >>> from pathlib import Path
        >>> Schedule(Path("run.pt"), seconds=60).due(), Schedule(Path("run.pt"), seconds=0).due()
        (False, True)
    """

    def __init__(self, path: Path | None, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        """Return whether it is time; the clock starts again when it is."""
        at = _deadline.get()
        over = at is not None and time.time() >= at
        if self.path is None or (time.monotonic() - self.last < self.seconds and not over):
            return False
        self.last = time.monotonic()
        return True

    def keep(
        self, save: Callable[[Path], None], label: str, done: str, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Save, if that is due or an interrupt came; then stop, if the deadline is over or one came.

        Args:
            save: writes a checkpoint to the path.
            label, done: the run's name and how far it is ("step 3"), for the messages.
            interrupted: says whether an interrupt came, as ``interrupt_held`` does.

        Raises:
            OutOfTime: after the deadline.
            KeyboardInterrupt: after an interrupt.

        Example:
            >>> from pathlib import Path
            >>> Schedule(Path("run.pt"), seconds=0).keep(lambda path: print("saved", path), "my run", "step 3")
            saved run.pt
        """
        if self.path is None or not (self.due() or interrupted()):
            return
        save(self.path)
        stop_if_over(label)
        if interrupted():
            raise KeyboardInterrupt(f"{label}: stopped after {done}, which {self.path} has")
