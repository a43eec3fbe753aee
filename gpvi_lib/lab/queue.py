"""The queue of long runs: a list of cells in order of value per hour, computed on a thread or more each, and resumed.

The list is a TOML file of entries such as ::

    [[entry]]
    what = "Table 3 at 100 epochs: particles"
    experiment = "open-category-mnist-published"
    methods = ["deep_ensemble", "svgd"]
    seeds = [0, 1, 2]
    hours = 1.3  # of one cell on one thread

Entries run in this order, and within an entry a first seed of all methods before a second of any. All are at the
profile ``paper``, where valid records and checkpoints are used: after any stop the same command goes on.
"""

from __future__ import annotations

import fcntl
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.lab import provenance, records, runner
from gpvi_lib.lab.experiment import Cell, Experiment
from gpvi_lib.lab.processes import process_pool
from gpvi_lib.lab.profiles import get_profile
from gpvi_lib.paths import build_root, locked, results_root, shown

PROFILE = "paper"
LOOKS = 3
"""So often a lock must be found held: :func:`is_active` holds it too, for a moment."""
KEYS: dict[str, type | tuple[type, ...]] = {
    "what": str,
    "experiment": str,
    "methods": list,
    "seeds": list,
    "hours": (int, float),
}


@dataclass(frozen=True)
class QueuedCell:
    """One run of the queue.

    Attributes:
        what: the entry that asks for it.
        cell: the run.
        hours: expected, on one thread.
    """

    what: str
    cell: Cell
    hours: float


def default_path() -> Path:
    """The list: ``queue.toml`` beside the records."""
    return results_root() / "queue.toml"


def read(path: Path, find: Callable[[str], Experiment]) -> list[QueuedCell]:
    """The cells of a list, in the order in which they run; one that an earlier entry has is left out.

    So are other seeds than the first of a method that draws nothing (:attr:`Experiment.once`).

    Args:
        path: the list.
        find: the experiment of a name, such as :func:`gpvi_lib.experiments.get_experiment`.

    Raises:
        GPVIError: if there is no such file, or an entry lacks something or asks for a seed that the experiment does not
            have, naming entry and key.
        UnknownName: if an experiment or a method does not exist, or the list has another key than ``entry``.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GPVIError(f"there is no list of runs {shown(path)}; write one, or name another file") from None
    except OSError as error:
        raise GPVIError(f"{shown(path)} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GPVIError(f"{shown(path)} is not TOML: {error}") from None
    for key in content.keys() - {"entry"}:
        raise UnknownName.among("key", key, ["entry"], of=shown(path))
    entries = content.get("entry", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise GPVIError(f"{shown(path)} needs entries of the form [[entry]], with two brackets")
    found: dict[Cell, QueuedCell] = {}
    for number, entry in enumerate(entries, 1):
        for key in entry.keys() - KEYS:
            raise UnknownName.among("key", key, KEYS, of=f"entry {number} of {shown(path)}")
        for key, kind in KEYS.items():
            if not isinstance(entry.get(key), kind):
                raise GPVIError(f"entry {number} of {shown(path)} needs {key!r}, got {entry.get(key)!r}")
        experiment = find(entry["experiment"])
        for seed in entry["seeds"]:
            known = experiment.seeds(PROFILE)
            if type(seed) is not int or seed not in known:
                raise GPVIError(
                    f"entry {number} of {shown(path)}: seed {seed!r} is none of {experiment.name}'s at {PROFILE} "
                    f"({', '.join(map(str, known))}): no table would count its record"
                )
            for method in entry["methods"]:
                cell = experiment.cell(method, seed, PROFILE)
                if method in experiment.once and seed not in experiment.seeds_of(method, PROFILE):
                    continue
                found.setdefault(cell, QueuedCell(entry["what"], cell, float(entry["hours"])))
    return list(found.values())


def state(queued: QueuedCell, active: bool) -> str:
    """``done``, ``running``, ``begun`` (there are checkpoints), ``missing``, or what is wrong with its record."""
    recorded = records.state(queued.cell)
    if recorded == "valid":
        return "done"
    if active and runner.status_path(queued.cell).exists():
        return "running"
    begun = recorded == "missing" and runner.has_begun(queued.cell)
    return "begun" if begun else recorded


def run(
    cells: list[QueuedCell],
    jobs: int,
    budget: float | None = None,
    dirty: bool = False,
    device: str = "cpu",
    threads: int = 1,
) -> None:
    """Compute what has no valid record, ``jobs`` cells at a time.

    Experiments whose data are not here are left out, and named on stderr.

    Args:
        jobs: processes.
        budget: seconds after which running cells checkpoint and stop and no other starts.
        dirty: compute even if the package differs from its commit.
        device: "cpu", "cuda", ... or "auto"; on a GPU the processes share it, which small networks leave idle alone.
        threads: of each process on the CPU; a record says how many it had. Two round differently from one.

    Raises:
        GPVIError: if there is no such device, another queue runs here, a record is damaged, or the package differs
            from its commit without ``dirty``; nothing is computed then.
        OutOfTime, SweepError: as :func:`gpvi_lib.lab.runner.run_cells`.
    """
    provenance.as_device(device)
    todo = [queued.cell for queued in cells if not records.is_recorded(queued.cell)]
    experiments = dict.fromkeys(cell.experiment for cell in todo)
    can_run = {experiment for experiment in experiments if runner.has_data(experiment, PROFILE)}
    todo = [cell for cell in todo if cell.experiment in can_run]
    if todo:
        runner.require_clean(get_profile(PROFILE), dirty)
    runner.require_folders(todo)
    deadline = None if budget is None else time.time() + budget
    with only_one(), process_pool(jobs, threads) as pool:
        runner.run_cells(pool, todo, runner.How(device=device, deadline=deadline, dirty=dirty), "queue")


@contextmanager
def only_one() -> Iterator[None]:
    """Inside, no other queue runs in this checkout; however a process ends, its claim ends with it.

    Raises:
        GPVIError: if one does.
    """
    looks = count(1)

    def look_again() -> None:
        if next(looks) == LOOKS:
            raise GPVIError(f"a queue is running here already ({shown(_lock())} is locked); end it first")
        time.sleep(0.1)

    with locked(_lock(), look_again):
        yield


def is_active() -> bool:
    """Whether a queue runs in this checkout; nothing is written for it."""
    try:
        with open(_lock()) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _lock() -> Path:
    return build_root() / "queue.lock"
