"""Records: one file for each result, written in one step and refused once it is damaged or out of date.

A record is `<results>/<profile>/<experiment>/<method>-seed<seed>.json`, with its arrays, if it has any, in
the `.safetensors` file of the same name. Its digest covers every field, among them the hashes of the arrays
file and of the configuration, so that neither an edited number nor a result of another configuration passes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import safetensors.torch
import torch
from torch import Tensor
from tqdm import tqdm

from gpvi_lib import checkpoints, provenance, status
from gpvi_lib.errors import (
    DataMissing,
    GPVIError,
    OutOfTime,
    RecordDamaged,
    RecordError,
    RecordMissing,
    RecordStale,
    SweepError,
)
from gpvi_lib.experiments import get_experiment
from gpvi_lib.experiments.base import Experiment, Outcome, RunContext
from gpvi_lib.paths import build_root, results_root, shown, write_atomically, write_temporary
from gpvi_lib.profiles import Profile, get_profile

if TYPE_CHECKING:
    import pandas

MAX_ARRAY_BYTES = 1_000_000


@dataclass(frozen=True)
class Record:
    """One result and where it came from; see `load`.

    Attributes:
        experiment, method, seed, profile: which cell it is.
        config, config_hash: what decided the result besides the seed, and the SHA-256 of its canonical JSON.
        metrics: name -> finite number.
        array_specs: name -> {"shape", "dtype"} of each array; `arrays()` loads them.
        arrays_sha256: SHA-256 of the arrays file, None without arrays.
        seconds: wall time of the run.
        peak_memory_mb: in 10^6 bytes; of torch's allocator on a GPU, of the process on a CPU.
        device: name of the hardware.
        versions, commit, date: of the software; the date is UTC, ISO 8601.
        digest: SHA-256 of the canonical JSON of all of the above.
        path: the JSON file.
    """

    experiment: str
    method: str
    seed: int
    profile: str
    config: dict
    config_hash: str
    metrics: dict[str, float]
    array_specs: dict[str, dict]
    arrays_sha256: str | None
    seconds: float
    peak_memory_mb: float
    device: str
    versions: dict[str, str]
    commit: str
    date: str
    digest: str
    path: Path

    def arrays(self) -> dict[str, Tensor]:
        """The arrays of this record, on the CPU.

        Raises:
            RecordDamaged: if the arrays file is not the one this record was written with.
        """
        return safetensors.torch.load(_array_bytes(self)) if self.arrays_sha256 else {}


def canonical_json(value: object) -> str:
    """The one JSON text of `value` that hashes are taken of: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(value: object) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def record_path(experiment: Experiment | str, method: str, seed: int, profile: str | Profile) -> Path:
    """The JSON file of a cell, whether or not it exists.

    Raises:
        UnknownName: if the experiment, the method or the profile does not exist.
    """
    experiment = get_experiment(experiment)
    experiment.check_method(method)
    return results_root() / get_profile(profile).name / experiment.name / f"{method}-seed{seed}.json"


def load(experiment: Experiment | str, method: str, seed: int, profile: str | Profile) -> Record:
    """The record of a cell, with every check passed.

    Raises:
        UnknownName: if the experiment, the method or the profile does not exist.
        RecordMissing: if there is none.
        RecordDamaged: if a file is truncated or was changed by hand.
        RecordStale: if the experiment's configuration is no longer the one it was computed with.
    """
    experiment, profile = get_experiment(experiment), get_profile(profile)
    path = record_path(experiment, method, seed, profile)
    if not path.exists():
        remedy = _run_command(experiment.name, method, profile.name)
        raise RecordMissing(f"there is no record {shown(path)}; compute it with `{remedy}`")
    record = _parse(path)
    _check_cell(record, experiment.name, method, seed, profile.name)
    if record.arrays_sha256:
        _array_bytes(record)
    _check_fresh(record, experiment.config(method, profile.name))
    return record


def state(experiment: Experiment | str, method: str, seed: int, profile: str | Profile) -> str:
    """The state of a cell's record: "valid", "missing", "stale" or "damaged"."""
    try:
        load(experiment, method, seed, profile)
    except RecordMissing:
        return "missing"
    except RecordStale:
        return "stale"
    except RecordDamaged:
        return "damaged"
    return "valid"


def _run_command(experiment: str, method: str, profile: str) -> str:
    """What computes all records of a method that are missing or stale: one is seldom alone."""
    return f"python -m gpvi_lib run {experiment} --method {method} --profile {profile}"


def _damaged(path: Path, what: str) -> RecordDamaged:
    kept = f"restore it with `git checkout -- {shown(path)}` or " if path.parts[-3] == "paper" else ""
    return RecordDamaged(f"{shown(path)} {what}; {kept}delete it and run it again")


def _parse(path: Path) -> Record:
    try:
        fields = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _damaged(path, "is truncated: not valid JSON") from None
    digest = fields.pop("digest", None) if isinstance(fields, dict) else None
    if digest is None:
        raise _damaged(path, "is not a record: it has no digest")
    if digest != sha256_of(fields):
        raise _damaged(path, "was edited after it was written: its digest does not match its content")
    try:
        return Record(array_specs=fields.pop("arrays"), digest=digest, path=path, **fields)
    except (KeyError, TypeError):
        raise _damaged(path, "is not a record of this version: its fields differ") from None


def _check_cell(record: Record, *cell: str | int) -> None:
    if (record.experiment, record.method, record.seed, record.profile) != cell:
        holds = f"{record.experiment} {record.method} seed {record.seed} at {record.profile}"
        raise _damaged(record.path, f"was renamed: it holds {holds}")


def _arrays_path(path: Path) -> Path:
    return path.with_suffix(".safetensors")


def _array_bytes(record: Record) -> bytes:
    path = _arrays_path(record.path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, f"is missing, but {record.path.name} needs it") from None
    if hashlib.sha256(content).hexdigest() != record.arrays_sha256:
        raise _damaged(path, f"was edited after it was written: its hash is not the one in {record.path.name}")
    return content


def _check_fresh(record: Record, config: dict) -> None:
    if record.config_hash == sha256_of(config):
        return
    now, then = json.loads(canonical_json(config)), record.config
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    remedy = _run_command(record.experiment, record.method, record.profile)
    raise RecordStale(
        f"{shown(record.path)} is stale: it was computed with another configuration "
        f"(changed: {', '.join(changed)}); compute it again with `{remedy}`"
    )


def _checked_metrics(outcome: Outcome, label: str) -> dict[str, float]:
    metrics = {name: float(value) for name, value in outcome.metrics.items()}
    if not metrics:
        raise RecordError(f"{label} returned no metrics; nothing is recorded")
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise RecordError(f"{label} returned {name} = {value}; a result that is not finite is not recorded")
    return metrics


def _packed_arrays(outcome: Outcome, label: str) -> tuple[dict[str, dict], bytes | None]:
    """(name -> shape and dtype, content of the arrays file); (empty, None) without arrays."""
    arrays = {name: array.detach().cpu().contiguous().clone() for name, array in outcome.arrays.items()}
    specs = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("torch.")}
        for name, array in arrays.items()
    }
    content = safetensors.torch.save(arrays) if arrays else None
    if content is not None and len(content) > MAX_ARRAY_BYTES:
        raise RecordError(
            f"{label} returned {len(content) / 1e6:.1f} MB of arrays, more than the "
            f"{MAX_ARRAY_BYTES / 1e6:g} MB that a record may hold; keep a subsample"
        )
    return specs, content


def _write(record: Record, arrays: bytes | None) -> Record:
    """Puts a record on disk: the arrays first, the JSON last, each in one step.

    Only the JSON makes a record. One that is to be replaced together with its arrays is taken away first,
    because the old JSON beside the new arrays would look damaged.
    """
    fields = asdict(record)
    fields["arrays"] = fields.pop("array_specs")
    del fields["digest"], fields["path"]
    digest = sha256_of(fields)
    text = json.dumps(fields | {"digest": digest}, indent=2, allow_nan=False) + "\n"
    arrays_path = _arrays_path(record.path)
    if arrays is not None:
        temporary = write_temporary(arrays_path, arrays)
        try:
            record.path.unlink(missing_ok=True)
            os.replace(temporary, arrays_path)
        finally:
            temporary.unlink(missing_ok=True)
    write_atomically(record.path, text.encode())
    if arrays is None:
        arrays_path.unlink(missing_ok=True)
    return replace(record, digest=digest)


def checkpoint_path(experiment: Experiment | str, method: str, seed: int, profile: str | Profile) -> Path:
    """The checkpoint of a cell; named by its configuration too, so that no other one resumes from it."""
    experiment, profile = get_experiment(experiment), get_profile(profile)
    config_hash = sha256_of(experiment.config(method, profile.name))
    folder = build_root() / "checkpoints" / profile.name / experiment.name
    return folder / f"{method}-seed{seed}-{config_hash[:12]}.pt"


def _discard_checkpoints(checkpoint: Path) -> None:
    """Removes those of other configurations too, and what processes left that were killed as they wrote one."""
    cell = checkpoint.stem.rsplit("-", 1)[0]
    for pattern in (f"{cell}-*", f".{cell}-*.tmp"):
        for path in checkpoint.parent.glob(pattern):
            path.unlink(missing_ok=True)


def _compute(
    experiment: Experiment, method: str, seed: int, profile: str, device: str, fresh: bool, progress: bool
) -> Record:
    """Runs one cell and writes its record; resumes from its checkpoint unless `fresh`."""
    label = f"{experiment.name}/{method} seed {seed}"
    checkpoint = checkpoint_path(experiment, method, seed, profile)
    if fresh:
        _discard_checkpoints(checkpoint)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    context = RunContext(provenance.as_device(device), seed, checkpoint, label, progress)
    config = canonical_json(experiment.config(method, profile))
    commit = provenance.commit()  # now: the repository may move on while a long run computes
    provenance.reset_peak_memory(context.device)
    started = time.perf_counter()
    outcome = experiment.run(json.loads(config), method, context)
    elapsed = time.perf_counter() - started
    metrics = _checked_metrics(outcome, label)
    specs, arrays = _packed_arrays(outcome, label)
    record = Record(
        experiment=experiment.name,
        method=method,
        seed=seed,
        profile=profile,
        config=json.loads(config),
        config_hash=hashlib.sha256(config.encode()).hexdigest(),
        metrics=metrics,
        array_specs=specs,
        arrays_sha256=None if arrays is None else hashlib.sha256(arrays).hexdigest(),
        digest="",
        path=record_path(experiment, method, seed, profile),
        commit=commit,
        **_measured(context.device, elapsed if outcome.seconds is None else outcome.seconds),
    )
    record = _write(record, arrays)
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


def _valid_digest(experiment: Experiment, method: str, seed: int, profile: Profile) -> str | None:
    """What tells a cell's valid record from any later one; None if there is none."""
    try:
        return load(experiment, method, seed, profile).digest
    except (RecordMissing, RecordStale, RecordDamaged):
        return None


def _compute_once(
    experiment: Experiment,
    method: str,
    seed: int,
    before: str | None,
    deadline: float | None,
    profile: str,
    device: str,
    fresh: bool,
    progress: bool,
) -> bool:
    """A sweep's cell, unless its record was written since the sweep began: a cluster may ask twice for a lost answer.

    Returns whether the cell is done; it is not if the deadline came first. (No error: submitit would wrap it.)
    """
    if _valid_digest(experiment, method, seed, get_profile(profile)) not in (None, before):
        return True
    try:
        with checkpoints.deadline(deadline):
            checkpoints.stop_if_over(f"{experiment.name}/{method} seed {seed}")
            _compute(experiment, method, seed, profile, device, fresh, progress)
    except OutOfTime:
        return False
    return True


def status_path(experiment: Experiment, method: str, seed: int, profile: str) -> Path:
    """The file in which a cell that runs in another process keeps what its progress bar shows."""
    return build_root() / "running" / profile / experiment.name / f"{method}-seed{seed}.txt"


def _compute_elsewhere(experiment: Experiment, method: str, seed: int, *given) -> bool:
    """:func:`_compute_once` in another process, which keeps what its progress bar shows in a file."""
    before, deadline, profile, device, fresh = given
    with status.told(status_path(experiment, method, seed, profile)):
        return _compute_once(experiment, method, seed, before, deadline, profile, device, fresh, progress=True)


def is_recorded(experiment: Experiment, method: str, seed: int, profile: Profile) -> bool:
    """Whether this cell has a valid record; a damaged one raises `RecordDamaged`."""
    try:
        load(experiment, method, seed, profile)
    except (RecordMissing, RecordStale):
        return False
    return True


def run_or_load(
    experiment: Experiment | str,
    method: str,
    seed: int,
    profile: str | Profile,
    device: str = "cpu",
    fresh: bool = False,
    progress: bool = True,
    dirty: bool = False,
) -> Record:
    """The record of one cell: loaded if the profile reuses records and it is valid, else computed.

    Args:
        device: "cpu", "cuda", ... or "auto"; does not make a record stale.
        fresh: compute from nothing even if there is a valid record or a checkpoint.
        progress: draw a progress bar on stderr while computing.
        dirty: at `paper`, compute even if the package differs from its commit.

    Raises:
        UnknownName: if the experiment, the method or the profile does not exist.
        RecordDamaged: if its record is damaged; that may be the only copy, so it is not overwritten.
        GPVIError: if the package differs from its commit, at `paper` without `dirty`.
        RecordError: if the run returns a metric that is not finite, or too large arrays.
    """
    experiment, profile = get_experiment(experiment), get_profile(profile)
    experiment.check_method(method)
    fresh = fresh or not profile.reuse
    if not fresh and is_recorded(experiment, method, seed, profile):
        return load(experiment, method, seed, profile)
    require_clean(profile, dirty)
    return _compute(experiment, method, seed, profile.name, str(device), fresh, progress)


def require_clean(profile: Profile, dirty: bool) -> None:
    """Records that are kept, those of `paper`, come from a commit: raises `GPVIError` if not, unless `dirty`."""
    if profile.reuse and not dirty:
        provenance.require_clean()


def sweep(
    experiment: Experiment | str,
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
        methods, seeds: default to all methods and to the profile's seeds.
        executor: anything with `submit(function, *arguments)` whose answer has `result()`: a pool, Dask's
            `client.get_executor()`, Slurm through submitit. Workers write the records themselves, so they
            need the same file system and the same `$GPVI_RESULTS`.
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
    experiment, profile = get_experiment(experiment), get_profile(profile)
    methods = experiment.methods if methods is None else tuple(methods)
    seeds = experiment.seeds(profile.name) if seeds is None else tuple(seeds)
    provenance.as_device(device)
    for method in methods:
        experiment.check_method(method)
    cells = [(method, seed) for method in methods for seed in seeds]
    fresh = fresh or not (profile.reuse or budget is not None)
    todo = [cell for cell in cells if fresh or not is_recorded(experiment, *cell, profile)]
    if todo:
        require_clean(profile, dirty)
        require_data(experiment, profile.name)
    deadline = None if budget is None else time.time() + budget
    with _executor(executor, min(jobs, len(todo)), experiment.all_cores) as pool:
        named = [(experiment, *cell) for cell in todo]
        run_cells(pool, named, deadline, (profile.name, str(device), fresh), experiment.name, progress)
    return [load(experiment, method, seed, profile) for method, seed in cells]


def by_method(
    experiment: Experiment | str,
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
    experiment, profile = get_experiment(experiment), get_profile(profile)
    methods = experiment.methods if methods is None else tuple(methods)
    if fresh or not profile.reuse:
        rows = sweep(experiment, profile, methods, device=device, fresh=fresh, progress=False)
    else:
        cells = [(method, seed) for method in methods for seed in experiment.seeds(profile.name)]
        there = [cell for cell in cells if record_path(experiment, *cell, profile).exists()]
        rows = [load(experiment, *cell, profile) for cell in there]
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


def require_data(experiment: Experiment, profile: str) -> None:
    """Raises `DataMissing`, with the remedy, if a data set of this experiment is not here."""
    from gpvi_lib import data

    missing = data.missing(experiment.data_sets(profile))
    if missing:
        raise DataMissing(f"{experiment.name} needs data that are not here: {data.how_to_get(missing)}")


def run_cells(
    pool: Executor | None,
    cells: Sequence[tuple[Experiment, str, int]],
    deadline: float | None,
    arguments: tuple[str, str, bool],
    label: str,
    progress: bool = True,
) -> None:
    """Runs cells of any experiments, begun in this order, in the pool or one by one here.

    Args:
        cells: experiment, method and seed of each.
        deadline: when running cells checkpoint and stop and no other starts, as `time.time()`; None for no end.
        arguments: profile, device, and whether to compute from nothing.
        label: what they are together, for the progress bar and for errors.

    Raises:
        OutOfTime: if the deadline came before the cells were done.
        SweepError: once all cells have ended, if some failed; it names each, and the others are recorded.
    """
    profile = arguments[0]
    running = [status_path(*cell, profile) for cell in cells]
    for path in running:
        path.unlink(missing_ok=True)  # of a process that was killed
    calls: list[Callable[[], bool]] = []
    for cell in cells:
        given = (*cell, _valid_digest(*cell, get_profile(profile)), deadline, *arguments)
        calls.append(
            partial(_compute_once, *given, progress) if pool is None else pool.submit(_compute_elsewhere, *given).result
        )
    failed, stopped = [], 0
    bar = tqdm(total=len(cells), desc=label, unit="run", smoothing=0, disable=not (progress and cells))
    with bar, status.lines(running if progress and pool is not None else [], sys.stderr):
        for (experiment, method, seed), call in zip(cells, calls, strict=True):
            try:
                stopped += not call()
            except Exception as error:  # whatever ends one cell must not end the others
                why = str(error) if isinstance(error, GPVIError) else f"{type(error).__name__}: {error}"
                failed.append(f"{'' if experiment.name == label else experiment.name + ' '}{method} seed {seed}: {why}")
                if not isinstance(error, GPVIError):  # a bug: its traceback would be lost in the one error at the end
                    named = (method, seed, experiment.name)
                    logging.getLogger(__name__).error("%s seed %d of %s", *named, exc_info=error)
            bar.update()
    if failed:
        raise SweepError(f"{len(failed)} of {len(cells)} runs of {label} failed: {'; '.join(failed)}")
    if stopped:
        raise OutOfTime(f"{label}: time is up with {stopped} of {len(cells)} runs to do; run it again to go on")


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
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield None
        finally:
            torch.set_num_threads(before)


@contextmanager
def process_pool(jobs: int, threads: int = 1) -> Iterator[Executor]:
    """So many processes of so many threads each, which end with this one, however it ends."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (threads,))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when the one that started it has ended, however that was: nobody waits for its work."""
    parent = parent_process()
    assert parent is not None, "only in a process that multiprocessing started"
    parent.join()
    os._exit(1)


def recorded(profile: str | Profile) -> Iterator[Record]:
    """Every whole record of a profile, current or stale, by experiment, method and seed.

    Raises:
        RecordDamaged: if one is truncated or was changed by hand.
    """
    for path in sorted((results_root() / get_profile(profile).name).glob("*/*.json")):
        yield _parse(path)


def frame(
    experiment: Experiment | str,
    profile: str | Profile,
    methods: Iterable[str] | None = None,
    missing: Literal["raise", "skip"] = "raise",
) -> pandas.DataFrame:
    """One row for each record of the profile's seeds: method, seed, every metric, seconds, device.

    Raises:
        RecordMissing: if a record is missing, unless `missing` is "skip".
        RecordDamaged, RecordStale: as `load`.
    """
    import pandas

    experiment, profile = get_experiment(experiment), get_profile(profile)
    rows = []
    for method in experiment.methods if methods is None else methods:
        for seed in experiment.seeds(profile.name):
            try:
                record = load(experiment, method, seed, profile)
            except RecordMissing:
                if missing == "skip":
                    continue
                raise
            columns = {"seconds": record.seconds, "device": record.device}
            rows.append({"method": method, "seed": seed} | record.metrics | columns)
    return pandas.DataFrame(rows, columns=None if rows else ["method", "seed", "seconds", "device"])
