"""Records: one file for each result, written in one step and refused once it is damaged or out of date.

A record is `<results>/<profile>/<experiment>/<method>-seed<seed>.json`, with its arrays, if it has any, in
the `.safetensors` file of the same name. Its digest covers every field, among them the hashes of the arrays
file and of the configuration, so that neither an edited number nor a result of another configuration passes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import safetensors.torch
from torch import Tensor

from gpvi_lib.errors import CannotWrite, RecordDamaged, RecordError, RecordMissing, RecordStale, RecordWarning
from gpvi_lib.lab.experiment import Cell, Experiment, Outcome
from gpvi_lib.lab.profiles import Profile, get_profile
from gpvi_lib.paths import repository, results_root, shown, write_atomically, write_temporary

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
            RecordError: if the record was computed anew since this one was read.
        """
        if not self.arrays_sha256:
            return {}
        try:
            return safetensors.torch.load(_array_bytes(self))
        except RecordDamaged:
            if _was_replaced(self):
                raise RecordError(f"{shown(self.path)} was computed anew since it was read: load it again") from None
            raise


def canonical_json(value: object) -> str:
    """The one JSON text of `value` that hashes are taken of: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(value: object) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def record_path(cell: Cell) -> Path:
    """The JSON file of a cell, whether or not it exists."""
    return results_root() / cell.folder / f"{cell.file_name}.json"


def load(cell: Cell) -> Record:
    """The record of a cell, with every check passed.

    Raises:
        RecordMissing: if there is none.
        RecordDamaged: if a file is truncated or was changed by hand.
        RecordStale: if the experiment's configuration is no longer the one it was computed with.
    """
    path = record_path(cell)
    try:
        record = _parse(path)
    except FileNotFoundError:
        remedy = _run_command(cell.experiment.name, cell.method, cell.profile.name)
        raise RecordMissing(f"there is no record {shown(path)}; compute it with `{remedy}`") from None
    _check_cell(record, cell.experiment.name, cell.method, cell.seed, cell.profile.name)
    if record.arrays_sha256:
        try:
            _array_bytes(record)
        except RecordDamaged:
            if _was_replaced(record):
                return load(cell)
            raise
    _check_fresh(record, cell.config())
    return record


def _was_replaced(record: Record) -> bool:
    """Whether the JSON is another one by now: `write` takes the old one away before it touches the arrays."""
    try:
        return _parse(record.path).digest != record.digest
    except (FileNotFoundError, RecordDamaged):
        return True


def state(cell: Cell) -> str:
    """The state of a cell's record: "valid", "missing", "stale" or "damaged"."""
    try:
        load(cell)
    except RecordMissing:
        return "missing"
    except RecordStale:
        return "stale"
    except RecordDamaged:
        return "damaged"
    return "valid"


def find(cell: Cell) -> Record | None:
    """The valid record of a cell, None if it is missing or stale; a damaged one raises `RecordDamaged`."""
    try:
        return load(cell)
    except (RecordMissing, RecordStale):
        return None


def is_recorded(cell: Cell) -> bool:
    """Whether this cell has a valid record; a damaged one raises `RecordDamaged`."""
    return find(cell) is not None


def valid_digest(cell: Cell) -> str | None:
    """What tells a cell's valid record from any later one; None if there is none."""
    try:
        return load(cell).digest
    except (RecordMissing, RecordStale, RecordDamaged):
        return None


def _run_command(experiment: str, method: str, profile: str) -> str:
    """What computes all records of a method that are missing or stale: one is seldom alone."""
    return f"python -m gpvi_lib run {experiment} --method {method} --profile {profile}"


def _damaged(path: Path, what: str) -> RecordDamaged:
    ours = path.is_relative_to(repository()) and path.parts[-3] == "paper"
    kept = f"restore it with `git checkout -- {shlex.quote(str(shown(path)))}` or " if ours else ""
    return RecordDamaged(f"{shown(path)} {what}; {kept}delete {path.stem}.json and .safetensors and run it again")


def _parse(path: Path) -> Record:
    """The record in a file. Raises `FileNotFoundError` or `RecordDamaged`; nothing else, whatever the file holds."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        digest = fields.pop("digest", None) if isinstance(fields, dict) else None
        found = sha256_of(fields)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _damaged(path, "is truncated: not valid JSON") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "is not a record: it holds a number or a nesting that none has") from None
    except OSError as error:
        if not os.path.lexists(path) or isinstance(error, FileNotFoundError):
            raise FileNotFoundError(path) from None
        raise _damaged(path, f"cannot be read: {error.strerror}") from None
    if digest is None:
        raise _damaged(path, "is not a record: it has no digest")
    if digest != found:
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
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != record.arrays_sha256:
        raise _damaged(path, f"was edited after it was written: its hash is not the one in {record.path.name}")
    return content


def _check_fresh(record: Record, config: dict) -> None:
    if record.config_hash == sha256_of(config):
        return
    now, then = json.loads(canonical_json(config)), record.config
    said, was = ({key: canonical_json(value) for key, value in one.items()} for one in (now, then))  # 1.0 is not 1
    changed = sorted(key for key in now.keys() | then.keys() if said.get(key) != was.get(key))
    remedy = _run_command(record.experiment, record.method, record.profile)
    raise RecordStale(
        f"{shown(record.path)} is stale: it was computed with another configuration "
        f"(changed: {', '.join(changed)}); compute it again with `{remedy}`"
    )


def checked_metrics(outcome: Outcome, label: str) -> dict[str, float]:
    metrics = {name: float(value) for name, value in outcome.metrics.items()}
    if not metrics:
        raise RecordError(f"{label} returned no metrics; nothing is recorded")
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise RecordError(f"{label} returned {name} = {value}; a result that is not finite is not recorded")
    return metrics


def packed_arrays(outcome: Outcome, label: str) -> tuple[dict[str, dict], bytes | None]:
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


def write(record: Record, arrays: bytes | None) -> Record:
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
    if arrays is None:
        write_atomically(record.path, text.encode())
        arrays_path.unlink(missing_ok=True)
        return replace(record, digest=digest)
    pairs = [(write_temporary(arrays_path, arrays), arrays_path)]
    try:  # there is room for both before the old ones go
        pairs.append((write_temporary(record.path, text.encode()), record.path))
        record.path.unlink(missing_ok=True)
        for temporary, path in pairs:
            os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(f"cannot write {shown(record.path)}: {error.strerror or error}") from error
    finally:
        for temporary, _ in pairs:
            temporary.unlink(missing_ok=True)
    return replace(record, digest=digest)


def recorded(profile: str | Profile) -> Iterator[Record]:
    """Every record of a profile whose JSON is whole, current or stale, by experiment, method and seed.

    Their arrays are not looked at.

    Warns:
        RecordWarning: for each that is damaged, which is left out.
    """
    for path in sorted((results_root() / get_profile(profile).name).glob("*/*.json")):
        try:
            record = _parse(path)
        except RecordDamaged as damaged:
            warnings.warn(f"left out: {damaged}", RecordWarning, stacklevel=2)
            continue
        except FileNotFoundError:  # replaced while the others were read
            continue
        yield record


def frame(
    experiment: Experiment,
    profile: str | Profile,
    methods: Iterable[str] | None = None,
    missing: Literal["raise", "skip"] = "raise",
) -> pandas.DataFrame:
    """One row for each record of the profile's seeds: method, seed, every metric, seconds, device.

    Raises:
        RecordMissing, RecordDamaged: if a record is missing or damaged, unless `missing` is "skip".
        RecordStale: as `load`.

    Warns:
        RecordWarning: for each damaged record that is skipped.
    """
    import pandas

    profile = get_profile(profile)
    rows = []
    for method in experiment.methods if methods is None else methods:
        for seed in experiment.seeds_of(method, profile.name):
            try:
                record = load(experiment.cell(method, seed, profile))
            except RecordMissing:
                if missing == "skip":
                    continue
                raise
            except RecordDamaged as damaged:
                if missing != "skip":
                    raise
                warnings.warn(f"left out: {damaged}", RecordWarning, stacklevel=2)
                continue
            columns = {"seconds": record.seconds, "device": record.device}
            rows.append({"method": method, "seed": seed} | record.metrics | columns)
    return pandas.DataFrame(rows, columns=None if rows else ["method", "seed", "seconds", "device"])
