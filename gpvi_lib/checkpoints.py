"""Checkpoints: the state of a long run as one file, written in one step and read without running any code."""

import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions.utils import lazy_property

from gpvi_lib.errors import GPVIError, OutOfTime
from gpvi_lib.paths import write_atomically
from gpvi_lib.several import Several

CHECKSUM = "checksum"
"""The name under which a checkpoint keeps the checksum of all else in it."""

CLOSE, CLOSE_DOUBLE = 1e-5, 1e-10
"""Relative difference up to which two sums are the same: other threads, or another device, add in another order."""

PARAMETERS = "first parameters"
"""Name, in what identifies a run, of the fingerprint of a sampler's parameters as training found them."""

MOST_NAMED = 20
"""So many of the things in which two runs differ are named."""

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
    """The same with numbers and texts of Python's own types: those alone can be read back without running any code."""
    if isinstance(content, np.generic):
        return content.item()
    if isinstance(content, str):
        return str.__str__(content)  # str() of a member of an Enum is its name
    for base in (int, float):
        if isinstance(content, base) and not isinstance(content, bool):
            return base(content)
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
    if tensor.layout is not torch.strided:
        entries = tensor.detach().to_sparse_coo().coalesce()
        what.update(f"{tensor.layout} {tuple(tensor.shape)}".encode())
        _feed(what, [entries.indices(), entries.values()])
        return
    # In order, whatever its strides.
    content = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor.detach())
    what.update(f"{content.dtype} {tuple(content.shape)}".encode())
    what.update(content.reshape(-1).view(torch.uint8).numpy().data)


def refuse_another_run(path: Path, own: dict, saved: dict, dtype: torch.dtype = torch.float32) -> None:
    """Compare what identifies two runs, by name.

    Numbers in lists, such as the values of a target, may differ by what another order of the same sum would change:
    by ``CLOSE``, or by ``CLOSE_DOUBLE`` where they were computed in float64 (``dtype``).

    Raises:
        GPVIError: if something differs, naming it; so does what only one of the two has.
    """
    differs = differing(own, saved, closeness(dtype))
    if differs:
        earlier = " or of an earlier version" if not any(name in saved and name in own for name in differs) else ""
        start = "make the sampler anew from its seed, " if differs == [PARAMETERS] else ""
        more = [f"{len(differs) - MOST_NAMED} more"] if len(differs) > MOST_NAMED else []
        raise GPVIError(
            f"{path} is the checkpoint of another run{earlier} "
            f"(what differs: {', '.join(differs[:MOST_NAMED] + more)}): "
            f"{start}delete it, or give another path; with all as it was the run goes on"
        )


def closeness(dtype: torch.dtype) -> float:
    """Relative difference up to which two sums that were computed in a precision are the same.

    Example:
        >>> closeness(torch.float32), closeness(torch.float64)
        (1e-05, 1e-10)
    """
    return CLOSE_DOUBLE if dtype == torch.float64 else CLOSE


def differing(own: dict, saved: dict, tolerance: float = 0.0) -> list[str]:
    """Return the names under which two identities differ, or only one has something.

    Example:
        >>> differing({"seed": 0, "h": float("nan")}, {"seed": 1, "h": float("nan")})
        ['seed']
    """
    return [name for name in own | saved if not _same(own.get(name), saved.get(name), tolerance)]


def _same(own: object, other: object, tolerance: float) -> bool:
    if isinstance(own, list) and isinstance(other, list):
        return len(own) == len(other) and all(_close(*pair, tolerance) for pair in zip(own, other, strict=True))
    return own == other or (own != own and other != other)  # NaN is the same as NaN


def _close(own: object, other: object, tolerance: float) -> bool:
    if isinstance(own, float) and isinstance(other, float):
        return math.isclose(own, other, rel_tol=tolerance) or (math.isnan(own) and math.isnan(other))
    return own == other


def digest(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """Return a fingerprint of each tensor (type, shape and bytes), so that a checkpoint of other data is refused."""
    found = {}
    for name, tensor in tensors.items():
        what = hashlib.sha256()
        _feed_tensor(what, tensor)
        found[name] = what.hexdigest()
    return found


def tensors(named: Mapping[Any, object]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors among values, in lists, tuples and dictionaries and in several inputs too, by name.

    Example:
        >>> [name for name, _ in tensors({"x": torch.zeros(1), "both": (torch.ones(2), "text")})]
        ['x', 'both[0]']
    """
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple | list):
            yield from tensors({f"{name}[{i}]": part for i, part in enumerate(value)})
        elif isinstance(value, Several | dict):
            yield from tensors({f"{name}[{key!r}]": part for key, part in value.items()})


def numbers(named: Mapping[str, object]) -> dict[str, object]:
    """Return what is a number, a truth value or a text among values, by name.

    Example:
        >>> numbers({"dim": 3, "activation": "tanh", "x": torch.zeros(1)})
        {'dim': 3, 'activation': 'tanh'}
    """
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in named.items()}
    return {name: value for name, value in plain.items() if isinstance(value, int | float | str)}


def of_data(target: object, name: str = "target") -> dict[str, str]:
    """Return a fingerprint of each tensor that a target, its prior or a target inside it holds, by names from ``name``.

    Example:
        >>> list(of_data(Gaussian(torch.zeros(2), torch.eye(2))))[0]
        'target.mean'
    """
    found: dict[str, str] = {}
    for inside, part in _densities(name, target):
        found |= digest(dict(tensors(_named(inside, part))))
    return found


def of_priors(target: object, *points: torch.Tensor, name: str = "target") -> dict[str, object]:
    """Return what tells the priors of a target, or of targets inside it, apart, whatever its data outweigh.

    That is the kind of each prior, its log-density summed over each set of points ``(n, d)``, NaN where it has none
    there, its numbers and a fingerprint of its tensors.

    Example:
        >>> x = torch.zeros(3, 1)
        >>> posterior = Posterior(mlp([1, 1]), NormalLikelihood(1.0), x, x[:, 0], prior=NormalPrior(2.0))
        >>> of_priors(posterior, torch.zeros(1, 2))["target.prior.scale"]
        2.0
    """
    found: dict[str, object] = {}
    for inside, part in _densities(name, target):
        if inside.endswith(".prior"):
            found[inside] = [type(part).__name__, *(_summed(part, x) for x in points)]
        if "prior" in inside.split("."):
            held = _named(inside, part)
            public = {key: value for key, value in held.items() if "._" not in key}
            found |= numbers(public) | digest(dict(tensors(held)))
    return found


def _densities(name: str, target: object, outer: tuple = ()) -> Iterator[tuple[str, object]]:
    """Yield a target and the densities that it holds, such as the prior of a posterior, by name."""
    yield name, target
    prior = {f"{name}.prior": getattr(target, "prior", None)}  # it may be a property
    for inside, part in densities(_named(name, target) | prior):
        if part is not target and not any(part is one for one in outer):
            yield from _densities(inside, part, (*outer, target))


def densities(named: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    """Yield what has a log-density among values, in lists and tuples too, by name.

    Example:
        >>> [name for name, _ in densities({"dim": 2, "problems": [Gaussian(torch.zeros(2), torch.eye(2))]})]
        ['problems[0]']
    """
    for name, value in named.items():
        if isinstance(value, tuple | list):
            yield from densities({f"{name}[{i}]": part for i, part in enumerate(value)})
        elif hasattr(value, "log_prob") and not isinstance(value, type):
            yield name, value


def _named(name: str, owner: object) -> dict[str, object]:
    return {f"{name}.{key}": value for key, value in attributes(owner).items() if key != "training"}


def attributes(owner: object) -> dict[str, Any]:
    """Return the attributes of an object, without those that are only kept once they have been asked for.

    Example:
        >>> attributes(Adam(1e-3))["lr"]
        0.001
    """
    own, kept = getattr(owner, "__dict__", {}), cached_property | lazy_property
    return {key: own[key] for key in own if not isinstance(getattr_static(type(owner), key, None), kept)}


@torch.no_grad()
def _summed(prior: Any, x: torch.Tensor) -> float:
    try:
        return float(prior.log_prob(x).sum())
    except Exception:  # x is outside its support, or no point of it: a dictionary may be wanted, or other dimensions
        return math.nan


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


def has_deadline() -> bool:
    """Return whether there is a deadline.

    Example:
        >>> has_deadline()
        False
    """
    return _deadline.get() is not None


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
