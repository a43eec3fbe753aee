"""Runs cells: one, a sweep of them, here or in other processes, and resumes what was stopped.

Each run checkpoints under the name of its cell and configuration, and its record is written when it ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from gpvi_lib import checkpoints, data
from gpvi_lib.errors import CannotWrite, DataMissing, GPVIError, OutOfTime, SweepError
from gpvi_lib.lab import provenance, status
from gpvi_lib.lab.experiment import Cell, Experiment, RunContext
from gpvi_lib.lab.processes import process_pool
from gpvi_lib.lab.profiles import Profile, get_profile
from gpvi_lib.lab.records import (
    Record,
    canonical_json,
    checked_metrics,
    find,
    load,
    packed_arrays,
    record_path,
    sha256_of,
    valid_digest,
    write,
)
from gpvi_lib.paths import build_root, locked, require_writable, results_root, shown, sweep_temporary, write_atomically

LOOK_EVERY = 0.2
"""Seconds between two looks whether another process has ended a cell."""
_DIRTY: ContextVar[bool] = ContextVar("dirty", default=True)
"""What the run that asks for a reference was asked itself."""


@dataclass(frozen=True)
class How:
    """How cells run; none of this changes a result.

    Args:
        device: "cpu", "cuda", ... or "auto".
        fresh: compute from nothing even if there is a checkpoint.
        progress: draw a progress bar on stderr.
        deadline: when a run checkpoints and stops, as `time.time()`; None for no end.
        dirty: at `paper`, go on from a checkpoint of other code too; the record then says so.
        threads: of a cell in another process; None for as many as that process has.
        code: the fingerprint of what the process has loaded that asks.
    """

    device: str = "cpu"
    fresh: bool = False
    progress: bool = True
    deadline: float | None = None
    dirty: bool = False
    threads: int | None = None
    code: str = provenance.FINGERPRINT


def checkpoint_path(cell: Cell) -> Path:
    """The checkpoint of a cell; named by its configuration too, so that no other one resumes from it."""
    folder = build_root() / "checkpoints" / cell.folder
    return folder / f"{cell.file_name}-{sha256_of(cell.config())[:12]}.pt"


def has_begun(cell: Cell) -> bool:
    """Whether the cell has a checkpoint, under its own name or as one of several chains (``<name>.0.pt``)."""
    checkpoint = checkpoint_path(cell)
    return any(checkpoint.parent.glob(f"{checkpoint.stem}*.pt"))


def status_path(cell: Cell) -> Path:
    """The file in which a cell that runs in another process keeps what its progress bar shows."""
    return build_root() / "running" / cell.folder / f"{cell.file_name}.txt"


def _discard_checkpoints(checkpoint: Path) -> None:
    """Removes those of other configurations too."""
    for path in checkpoint.parent.glob(f"{checkpoint.stem.rsplit('-', 1)[0]}-*"):
        path.unlink(missing_ok=True)


def _commit(cell: Cell, dirty: bool) -> str:
    """The commit that the record of a cell names: that at which its run began, kept beside its checkpoint.

    Raises:
        GPVIError: at `paper` without `dirty`, if the run began with other code than this process has loaded.
    """
    checkpoint = checkpoint_path(cell)
    kept = checkpoint.with_suffix(".commit")
    if set(checkpoint.parent.glob(f"{checkpoint.stem}*")) <= {kept}:
        write_atomically(kept, provenance.LOADED.encode())
        return provenance.LOADED
    begun = kept.read_text(encoding="utf-8") if kept.exists() else provenance.NO_COMMIT  # of before it was kept
    if provenance.is_same_code(begun, provenance.LOADED):
        return begun
    if cell.profile.reuse and not dirty:
        raise GPVIError(
            f"{cell.label} began with the code of {begun}, and the package is now that of {provenance.LOADED}, so one "
            f"commit could not stand for it: check {begun.removesuffix(provenance.CHANGES)} out to go on, delete "
            f"{shown(checkpoint.with_suffix(''))}* to begin again, or go on with --dirty"
        )
    return begun.removesuffix(provenance.CHANGES) + provenance.CHANGES


@contextmanager
def _alone(cell: Cell) -> Iterator[None]:
    """Inside, no other process runs this cell, and nothing is left of one that was killed as it wrote."""
    checkpoint, record = checkpoint_path(cell), record_path(cell)
    said: list[str] = []

    def look_again() -> None:
        if not said:
            said.append(f"{cell.label} runs in another process: waiting for it")
            logging.getLogger(__name__).warning(said[0])
        checkpoints.stop_if_over(cell.label)
        time.sleep(LOOK_EVERY)

    with locked(checkpoint.with_name(f"{cell.file_name}.lock"), look_again):
        sweep_temporary(checkpoint.parent, f"{cell.file_name}-")
        sweep_temporary(record.parent, f"{cell.file_name}.")
        yield


def require_folders(cells: Iterable[Cell]) -> None:
    """Raises `CannotWrite` if records or checkpoints of these cells could not be written."""
    for folder in dict.fromkeys(cell.folder for cell in cells):
        for root, variable in ((results_root(), "GPVI_RESULTS"), (build_root() / "checkpoints", "GPVI_BUILD")):
            require_writable(root / folder / "any", f"set {variable} to a folder that can be written")


def _compute(cell: Cell, how: How) -> Record:
    """Runs one cell and writes its record; resumes from its checkpoint unless it is to be computed from nothing."""
    checkpoint = checkpoint_path(cell)
    if how.fresh:
        _discard_checkpoints(checkpoint)
    context = RunContext(provenance.as_device(how.device), cell.seed, checkpoint, cell.label, how.progress)
    config = canonical_json(cell.config())
    if cell.profile.reuse and not how.dirty and how.code != provenance.FINGERPRINT:
        raise GPVIError(
            f"{cell.label}: gpvi_lib/ was edited after its sweep began, and this process, which began later, has "
            "loaded the edited code; start the sweep again from a commit, or with --dirty"
        )
    commit = _commit(cell, how.dirty)
    provenance.reset_peak_memory(context.device)
    started = time.perf_counter()
    asked = _DIRTY.set(how.dirty)
    try:
        outcome = cell.experiment.run(json.loads(config), cell.method, context)
    finally:
        _DIRTY.reset(asked)
    elapsed = time.perf_counter() - started
    metrics = checked_metrics(outcome, cell.label)
    specs, arrays = packed_arrays(outcome, cell.label)
    record = Record(
        experiment=cell.experiment.name,
        method=cell.method,
        seed=cell.seed,
        profile=cell.profile.name,
        config=json.loads(config),
        config_hash=hashlib.sha256(config.encode()).hexdigest(),
        metrics=metrics,
        array_specs=specs,
        arrays_sha256=None if arrays is None else hashlib.sha256(arrays).hexdigest(),
        digest="",
        path=record_path(cell),
        commit=commit,
        **_measured(context.device, elapsed if outcome.seconds is None else outcome.seconds),
    )
    record = write(record, arrays)
    _discard_checkpoints(checkpoint)
    return record


def _measured(device: torch.device, seconds: float) -> dict:
    return {
        "seconds": round(seconds, 3),
        "peak_memory_mb": round(provenance.peak_memory_mb(device), 1),
        "device": provenance.device_name(device),
        "versions": provenance.versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _compute_once(cell: Cell, before: str | None, how: How) -> bool:
    """A sweep's cell, unless its record was written since the sweep began: a cluster may ask twice for a lost answer.

    Returns whether the cell is done; it is not if the deadline came first. (No error: submitit would wrap it.)
    """
    try:
        with checkpoints.deadline(how.deadline), _alone(cell):
            if valid_digest(cell) in (None, before):
                checkpoints.stop_if_over(cell.label)
                _compute(cell, how)
    except OutOfTime:
        return False
    return True


def _compute_elsewhere(cell: Cell, before: str | None, how: How) -> bool:
    """:func:`_compute_once` in another process, which keeps what its progress bar shows in a file."""
    with status.told(status_path(cell)), _on_threads(how.threads or torch.get_num_threads()):
        return _compute_once(cell, before, how)


def run_or_load(
    cell: Cell, device: str = "cpu", fresh: bool = False, progress: bool = True, dirty: bool = False
) -> Record:
    """The record of one cell: loaded if the profile reuses records and it is valid, else computed.

    Args:
        device: "cpu", "cuda", ... or "auto"; does not make a record stale.
        fresh: compute from nothing even if there is a valid record or a checkpoint.
        progress: draw a progress bar on stderr while computing.
        dirty: at `paper`, compute even if the package differs from its commit.

    Raises:
        RecordDamaged: if its record is damaged; that may be the only copy, so it is not overwritten unless `fresh`.
        GPVIError: if the package differs from its commit, at `paper` without `dirty`.
        RecordError: if the run returns a metric that is not finite, or too large arrays.
    """
    fresh = fresh or not cell.profile.reuse
    record = None if fresh else find(cell)
    if record is not None:
        return record
    require_clean(cell.profile, dirty)
    return _run_alone(cell, How(str(device), fresh, progress, dirty=dirty))


def _run_alone(cell: Cell, how: How) -> Record:
    require_folders([cell])
    before = valid_digest(cell)
    threads = torch.get_num_threads() if cell.experiment.all_cores else 1  # as a sweep, so to the same record
    with _alone(cell), _on_threads(threads):
        if valid_digest(cell) in (None, before):
            return _compute(cell, how)
    return load(cell)


def load_or_run(cell: Cell) -> Record:
    """The record of a cell that others are compared with: loaded at every profile if it is valid, else computed now.

    It is computed as the run that asks for it: with the code that this process has loaded, and `dirty` if that is. A
    checkpoint is gone on from where records are kept, and under a budget, which it would never end within else.

    Raises:
        RecordDamaged, RecordError: as :func:`run_or_load`.
        GPVIError: at `paper` without `dirty`, if its checkpoint is of other code.
    """
    fresh = not (cell.profile.reuse or checkpoints.has_deadline())
    return find(cell) or _run_alone(cell, How("cpu", fresh, progress=False, dirty=_DIRTY.get()))


def require_clean(profile: Profile, dirty: bool) -> None:
    """Records that are kept, those of `paper`, come from a commit: raises `GPVIError` if not, unless `dirty`."""
    if profile.reuse and not dirty:
        provenance.require_clean()


def sweep(
    experiment: Experiment,
    profile: str | Profile,
    methods: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
    device: str = "cpu",
    fresh: bool = False,
    executor: Executor | None = None,
    jobs: int = 1,
    progress: bool = True,
    budget: float | None = None,
    dirty: bool = False,
) -> list[Record]:
    """The records of all cells methods x seeds, in that order; valid ones are loaded, the others computed.

    Args:
        methods, seeds: default to all methods and to the profile's seeds of each.
        device: "cpu", "cuda", ... or "auto"; with an executor each worker looks for it, else it is looked for here.
        executor: anything with `submit(function, *arguments)` whose answer has `result()`: a pool, Dask's
            `client.get_executor()`, Slurm through submitit. Workers write the records themselves, so they
            need the same file system and the same `$GPVI_RESULTS`. A run has one thread there, or all of its worker's
            if it is faster so.
        jobs: without an executor, the number of processes; more than one share the cores.
        progress: draw a bar over the cells on stderr; silent if nothing has to be computed.
        budget: seconds after which running cells checkpoint and stop and no other starts. With one, valid records
            and checkpoints are reused at every profile, so that the next call goes on.
        dirty: at `paper`, compute even if the package differs from its commit.

    Raises:
        UnknownName, RecordDamaged, DataMissing: before anything is computed.
        GPVIError: likewise, if the package differs from its commit, at `paper` without `dirty`.
        OutOfTime: if the budget ended before the cells did.
        SweepError: once all cells have ended, if some failed; it names each, and the others are recorded.
    """
    profile = get_profile(profile)
    methods = experiment.methods if methods is None else tuple(methods)
    seeds = None if seeds is None else tuple(seeds)
    look_for = provenance.as_device if executor is None else provenance.kind_of_device  # the workers look for theirs
    look_for(device)
    cells = [
        experiment.cell(method, seed, profile)
        for method in methods
        for seed in (experiment.seeds_of(method, profile.name) if seeds is None else seeds)
    ]
    fresh = fresh or not (profile.reuse or budget is not None)
    there = {cell: None if fresh else find(cell) for cell in cells}
    todo = [cell for cell in cells if there[cell] is None]
    if todo:
        require_clean(profile, dirty)
        require_data(experiment, profile.name)
        require_folders(todo)
    deadline = None if budget is None else time.time() + budget
    threads = None if executor is None or experiment.all_cores else 1
    with _executor(executor, min(jobs, len(todo)), experiment.all_cores) as pool:
        run_cells(pool, todo, How(str(device), fresh, progress, deadline, dirty, threads), experiment.name)
    return [there[cell] or load(cell) for cell in cells]


def by_method(
    experiment: Experiment,
    profile: str | Profile,
    device: str = "cpu",
    fresh: bool = False,
    methods: Iterable[str] | None = None,
) -> dict[str, list[Record]]:
    """Records by method, for a notebook: at `paper` those that there are, at smaller profiles all, computed anew.

    Args:
        fresh: compute all from nothing at `paper` too.
        methods: default to all methods.

    Raises:
        RecordDamaged, RecordStale: as `load`.
    """
    profile = get_profile(profile)
    methods = experiment.methods if methods is None else tuple(methods)
    if fresh or not profile.reuse:
        rows = sweep(experiment, profile, methods, device=device, fresh=fresh, progress=False)
    else:
        cells = [
            experiment.cell(method, seed, profile)
            for method in methods
            for seed in experiment.seeds_of(method, profile.name)
        ]
        rows = [load(cell) for cell in cells if record_path(cell).exists()]
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


def require_data(experiment: Experiment, profile: str) -> None:
    """Raises `DataMissing`, with the remedy, if a data set of this experiment is not here."""
    missing = data.missing(experiment.data_sets(profile))
    if missing:
        raise DataMissing(f"{experiment.name} needs data that are not here: {data.how_to_get(missing)}")


def has_data(experiment: Experiment, profile: str) -> bool:
    """Whether the data sets of this experiment are here; if not, say on stderr that it is left out, and the remedy."""
    missing = data.missing(experiment.data_sets(profile))
    if missing:
        print(f"{experiment.name} is left out: get its data with python -m gpvi_lib data {missing}", file=sys.stderr)
    return not missing


def run_cells(pool: Executor | None, cells: Sequence[Cell], how: How, label: str) -> None:
    """Runs cells of any experiments, begun in this order, in the pool or one by one here.

    However it ends, what the pool has not done by then is cancelled, where the pool can.

    Args:
        label: what they are together, for the progress bar and for errors.

    Raises:
        OutOfTime: if the deadline came before the cells were done; the message names those that failed until then.
        CannotWrite: at once, if there is no room left for a checkpoint or a record: no other cell would fare better.
        SweepError: once all cells have ended, if some failed; it names each, and the others are recorded.
    """
    running = [status_path(cell) for cell in cells]
    for path in running:
        path.unlink(missing_ok=True)  # of a process that was killed
    elsewhere = replace(how, progress=True)  # a file keeps what the bar shows
    calls: Iterable[tuple[Cell, Callable[[], bool]]]
    failed: dict[Cell, str] = {}
    stopped = 0
    bar = tqdm(total=len(cells), desc=label, unit="run", smoothing=0, disable=not (how.progress and cells))
    drawn = running if how.progress and pool is not None else []
    with bar, status.lines(drawn, sys.stderr), _cancelled_at_the_end() as futures:
        if pool is None:
            calls = [(cell, partial(_compute_once, cell, valid_digest(cell), how)) for cell in cells]
        else:
            for cell in cells:
                futures[cell] = pool.submit(_compute_elsewhere, cell, valid_digest(cell), elsewhere)
            calls = _as_they_end(futures)
        for cell, call in calls:
            try:
                stopped += not call()
            except CannotWrite:
                raise
            except Exception as error:  # whatever ends one cell must not end the others
                failed[cell] = _failure(cell, error, label)
                status_path(cell).unlink(missing_ok=True)  # its process may have been killed
            bar.update()
    time_up = f"{label}: time is up with {stopped} of {len(cells)} runs to do; run it again to go on"
    told = [failed[cell] for cell in cells if cell in failed]
    failures = f"{len(failed)} of {len(cells)} runs of {label} failed: {'; '.join(told)}"
    if stopped:
        raise OutOfTime(f"{failures}; {time_up}" if failed else time_up)
    if failed:
        raise SweepError(failures)


@contextmanager
def _cancelled_at_the_end() -> Iterator[dict[Cell, Any]]:
    """A dictionary for what a pool answers; what has not come at the end is cancelled, where the pool can.

    Jobs of Slurm would go on without the process that submitted them.
    """
    futures: dict[Cell, Any] = {}
    try:
        yield futures
    finally:
        for future in futures.values():
            with suppress(Exception):  # a job that has just ended must not keep the others from being cancelled
                if hasattr(future, "cancel") and not future.done():
                    future.cancel()


def _as_they_end(futures: dict[Cell, Any]) -> Iterator[tuple[Cell, Callable[[], bool]]]:
    """Each cell and what gives its result; submitit's jobs, which nothing waits for together, in their order."""
    if not all(isinstance(future, Future) for future in futures.values()):
        yield from ((cell, future.result) for cell, future in futures.items())
        return
    cells = {future: cell for cell, future in futures.items()}
    yield from ((cells[future], future.result) for future in as_completed(cells))


def _failure(cell: Cell, error: Exception, label: str) -> str:
    """What one cell died of, in a line; of a bug the log keeps the traceback, which would be lost otherwise."""
    of = "" if cell.experiment.name == label else f"{cell.experiment.name} "
    if isinstance(error, GPVIError):
        return f"{of}{cell.method} seed {cell.seed}: {error}"
    named = (cell.method, cell.seed, cell.experiment.name)
    logging.getLogger(__name__).error("%s seed %d of %s", *named, exc_info=error)
    return f"{of}{cell.method} seed {cell.seed}: {type(error).__name__}: {error}"


@contextmanager
def _executor(given: Executor | None, jobs: int, all_cores: bool) -> Iterator[Executor | None]:
    """The given executor; else a pool of `jobs` processes, or None for one job.

    A process of ours has one thread, or with `all_cores` its share of the cores: on small matrices threads cost more
    than they save, and far more where others use the machine.
    """
    threads = max(1, provenance.cores() // max(1, jobs)) if all_cores else 1
    if given is not None:
        yield given
    elif jobs > 1:
        with process_pool(jobs, threads) as pool:
            yield pool
    else:
        with _on_threads(threads):
            yield None


@contextmanager
def _on_threads(number: int) -> Iterator[None]:
    """The block's torch operations run on so many threads of this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
