"""Records: written in one step, reused while they are what would be computed, refused otherwise."""

import errno
import json
import mmap
import os
import pickle
import re
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
import torch
import toy_experiment
from toy_experiment import CALLS, TOY

from gpvi_lib import checkpoints, paths
from gpvi_lib.errors import (
    CannotWrite,
    GPVIError,
    OutOfTime,
    RecordDamaged,
    RecordError,
    RecordMissing,
    RecordStale,
    RecordWarning,
    SweepError,
    UnknownName,
)
from gpvi_lib.experiments import EXPERIMENTS, Outcome, get_experiment
from gpvi_lib.lab import provenance, records, runner
from gpvi_lib.lab.profiles import PROFILES, get_profile

CHANGED = replace(TOY, config=toy_experiment.changed_config)
CELL = TOY.cell("svgd", 0, "paper")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    monkeypatch.setitem(EXPERIMENTS, TOY.name, TOY)


def nan_run(config, method, context):
    return Outcome({"error": 0.5, "ece": float("nan")})


def infinite_run(config, method, context):
    return Outcome({"error": float("inf")})


def empty_run(config, method, context):
    return Outcome({})


def large_run(config, method, context):
    return Outcome({"error": 0.5}, {"all_samples": torch.zeros(500, 501)})


def slow_run(config, method, context):
    return Outcome({"error": 0.5}, seconds=3600.0)


def checkpointing_run(config, method, context):
    """Resumes from its checkpoint; stops half-way, as if killed, in a run that found none."""
    if not context.checkpoint.exists():
        context.checkpoint.write_text("half")
        raise KeyboardInterrupt
    return Outcome({"error": 0.5, "resumed": float(context.checkpoint.read_text() == "half")})


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# What is written


def test_a_record_holds_the_result_and_where_it_came_from(tmp_path):
    written = runner.run_or_load(CELL)
    record = records.load(CELL)
    assert record == written
    assert record.metrics == {"error": 0.1, "accuracy": 0.9}
    assert record.config == {"offset": 0.1, "shape": [2, 3], "profile": "paper"}
    assert record.config_hash == records.sha256_of(TOY.config("svgd", "paper"))
    assert {"python", "torch", "numpy", "gpvi_lib"} <= set(record.versions)
    assert record.versions["torch"] == torch.__version__
    assert re.fullmatch(r"unknown|[0-9a-f]{40}(\+changes)?", record.commit)
    assert datetime.fromisoformat(record.date).utcoffset().total_seconds() == 0
    assert record.device.endswith(" 1 threads")
    assert 0 <= record.seconds < 60
    assert 10 < record.peak_memory_mb < 1e5
    assert files(tmp_path / "results") == {"paper/toy/svgd-seed0.json", "paper/toy/svgd-seed0.safetensors"}


def test_a_record_names_pyro_where_its_run_has_loaded_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "pyro", raising=False)
    assert "pyro" not in provenance.versions()
    monkeypatch.setitem(sys.modules, "pyro", SimpleNamespace(__version__="0.99"))
    assert provenance.versions()["pyro"] == "0.99"


def test_arrays_come_back_with_shape_type_and_values():
    record = runner.run_or_load(TOY.cell("gpvi", 2, "paper"))
    assert record.array_specs == {
        "grid": {"shape": [2, 3], "dtype": "float32"},
        "steps": {"shape": [3], "dtype": "int64"},
    }
    arrays = record.arrays()
    torch.testing.assert_close(arrays["grid"], torch.full((2, 3), 0.22))
    torch.testing.assert_close(arrays["steps"], torch.arange(3))


def test_a_record_without_arrays_has_no_arrays_file(tmp_path):
    record = runner.run_or_load(TOY.cell("plain", 0, "paper"))
    assert record.arrays_sha256 is None
    assert record.arrays() == {}
    assert files(tmp_path / "results") == {"paper/toy/plain-seed0.json"}


def test_a_run_that_resumed_reports_its_whole_time():
    assert runner.run_or_load(replace(TOY, run=slow_run).cell("svgd", 0, "paper")).seconds == 3600.0


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (nan_run, "toy/svgd seed 0 returned ece = nan"),
        (infinite_run, "toy/svgd seed 0 returned error = inf"),
        (empty_run, "toy/svgd seed 0 returned no metrics"),
        (large_run, "toy/svgd seed 0 returned 1.0 MB of arrays, more than the 1 MB"),
    ],
)
def test_a_result_that_is_no_result_is_not_recorded(run, message, tmp_path):
    with pytest.raises(RecordError, match=re.escape(message)):
        runner.run_or_load(replace(TOY, run=run).cell("svgd", 0, "paper"))
    assert files(tmp_path / "results") == set()


# Writing in one step


def test_a_failed_write_leaves_nothing_behind(monkeypatch, tmp_path):
    def refuse(source, target):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        for method in ("plain", "svgd"):
            with pytest.raises(CannotWrite, match="disk full"):
                runner.run_or_load(TOY.cell(method, 0, "paper"))
    assert files(tmp_path / "results") == set()
    assert runner.run_or_load(CELL).metrics["error"] == 0.1


def test_a_failed_write_keeps_the_record_that_was_there(monkeypatch):
    before = runner.run_or_load(TOY.cell("plain", 0, "paper"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda source, target: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(CannotWrite, match="disk full"):
            runner.run_or_load(TOY.cell("plain", 0, "paper"), fresh=True)
    assert records.load(TOY.cell("plain", 0, "paper")) == before


KILLED_WHILE_WRITING = """
import os, signal
from toy_experiment import TOY
from gpvi_lib.lab import runner

replace, left = os.replace, [{complete}]
def killed(source, target):
    if target.is_relative_to(os.environ["GPVI_RESULTS"]):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
    replace(source, target)
os.replace = killed
runner.run_or_load(TOY.cell("svgd", 0, "paper"), fresh=True, dirty=True)
"""


@pytest.mark.parametrize("complete", [0, 1])
@pytest.mark.parametrize("there", ["nothing there", "a record there"])
def test_a_run_killed_while_it_writes_leaves_no_half_record(complete, there, tmp_path):
    """SIGKILL before the arrays are in place, and between the arrays and the JSON."""
    if there == "a record there":
        runner.run_or_load(CHANGED.cell("svgd", 0, "paper"))  # other arrays than those that the killed run writes
    code = KILLED_WHILE_WRITING.format(complete=complete)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    killed = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert any(name.endswith(".tmp") for name in files(tmp_path / "results"))
    assert records.state(CELL) == "missing"
    assert runner.run_or_load(CELL).metrics["error"] == 0.1
    assert records.state(CELL) == "valid"
    assert files(tmp_path / "results") == {"paper/toy/svgd-seed0.json", "paper/toy/svgd-seed0.safetensors"}
    assert files(tmp_path / "build") == set()


def test_writing_again_without_arrays_removes_the_old_arrays_file(tmp_path):
    runner.run_or_load(CELL)
    runner.run_or_load(replace(TOY, run=slow_run).cell("svgd", 0, "paper"), fresh=True)
    assert files(tmp_path / "results") == {"paper/toy/svgd-seed0.json"}


def test_git_ignores_what_a_killed_process_leaves():
    name = "results/paper/toy/.svgd-seed0.json.1f2e3d4c.tmp"
    root = Path(__file__).parents[1]
    assert subprocess.run(["git", "check-ignore", "-q", "--no-index", name], cwd=root).returncode == 0


# Two processes on one cell; a folder or disk that takes no file


def test_a_reader_never_sees_a_record_damaged_while_it_is_replaced(monkeypatch):
    """A look between any two steps of the writer, at the record there is then and at one that was read before."""
    seen, before = [], runner.run_or_load(CELL)

    def look():
        try:
            seen.append(records.load(CELL).metrics["error"])
        except (RecordMissing, RecordStale) as error:
            seen.append(type(error))
        try:
            before.arrays()
        except RecordError as error:
            assert not isinstance(error, RecordDamaged)

    for place, name in ((os, "replace"), (Path, "unlink")):
        original = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *args, do=original, **kw: (look(), do(*args, **kw), look())[1])
    runner.run_or_load(CHANGED.cell("svgd", 0, "paper"))
    assert {RecordMissing, RecordStale} <= set(seen)
    with pytest.raises(RecordError, match="computed anew since it was read"):
        before.arrays()


@pytest.mark.parametrize("again", [True, False])
def test_a_reader_that_holds_the_old_json_reads_again(monkeypatch, again):
    """The JSON was read, then both files were replaced, then the arrays are read; or the arrays are truly damaged."""
    runner.run_or_load(CHANGED.cell("svgd", 0, "paper"))
    parse, replaced = records._parse, []

    def parse_and_replace(path):
        record = parse(path)
        if not replaced:
            replaced.append(True)
            if again:
                runner.run_or_load(CELL, fresh=True)
            else:
                path.with_suffix(".safetensors").write_bytes(b"")
        return record

    monkeypatch.setattr(records, "_parse", parse_and_replace)
    if again:
        assert records.load(CELL).metrics["error"] == 0.1
    else:
        with pytest.raises(RecordDamaged, match="edited"):
            records.load(CELL)


@pytest.mark.parametrize("by", [lambda: runner.run_or_load(CELL), lambda: runner.sweep(TOY, "paper", ["svgd"], [0])[0]])
def test_a_second_process_waits_for_a_cell_and_takes_its_record(by, monkeypatch, caplog):
    """The other process is another open file here: flock does not know the difference."""
    lock = runner.checkpoint_path(CELL).with_name("svgd-seed0.lock")
    with ThreadPoolExecutor(1) as second, paths.locked(lock, lambda: pytest.fail("locked")):
        waits = Event()
        monkeypatch.setattr(runner, "LOOK_EVERY", 0.01)
        monkeypatch.setattr(runner.logging.getLogger(runner.__name__), "warning", lambda said: waits.set())
        found = second.submit(by)
        assert waits.wait(20)
        assert CALLS == [] and not found.done()
        first = runner._compute(CELL, runner.How(progress=False))
        assert not found.done()
    assert found.result() == first and len(CALLS) == 1
    assert not lock.exists()


def test_nothing_is_left_of_processes_that_were_killed_as_they_wrote():
    """As they tried the folder, saved a checkpoint, or wrote the record."""
    checkpoint, record = runner.checkpoint_path(CELL), records.record_path(CELL)
    left = [
        record.with_name(".any.probe.01234567.tmp"),
        checkpoint.with_name(f".{checkpoint.name}.01234567.tmp"),
        record.with_name(f".{record.name}.01234567.tmp"),
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    runner.run_or_load(CELL)
    assert not [path for path in left if path.exists()]


def test_the_lock_of_a_dead_process_holds_nobody_up():
    lock = runner.checkpoint_path(CELL).with_name("svgd-seed0.lock")
    code = f"""
import os, signal
from pathlib import Path
from gpvi_lib.paths import locked
with locked(Path({str(lock)!r}), lambda: None):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1]).returncode == -signal.SIGKILL
    assert lock.exists()
    assert runner.run_or_load(CELL).metrics["error"] == 0.1
    assert not lock.exists()


def test_a_budget_ends_while_another_process_runs_the_cell():
    with (
        paths.locked(runner.checkpoint_path(CELL).with_name("svgd-seed0.lock"), lambda: None),
        pytest.raises(OutOfTime, match="1 of 1 runs to do"),
    ):
        runner.sweep(TOY, "paper", ["svgd"], [0], progress=False, budget=0)


@pytest.mark.parametrize("variable", ["GPVI_RESULTS", "GPVI_BUILD"])
@pytest.mark.parametrize("folder", ["file/below", "/proc/none", "x" * 300])
def test_a_folder_that_takes_no_file_is_noticed_before_anything_runs(variable, folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(variable, str(tmp_path / folder))
    for run in (lambda: runner.run_or_load(CELL), lambda: runner.sweep(TOY, "paper", jobs=2, progress=False)):
        with pytest.raises(CannotWrite, match=rf"cannot write .*; set {variable} to a folder") as caught:
            run()
        assert "\n" not in str(caught.value)
    assert CALLS == []


def test_a_full_disk_ends_a_sweep_at_once(monkeypatch):
    def full(file):  # once the run has ended
        if CALLS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(runner, "require_folders", lambda cells: None)
        patch.setattr(os, "fsync", full)
        with pytest.raises(CannotWrite, match=r"^cannot write .*svgd-seed0.safetensors: No space left on device$"):
            runner.sweep(TOY, "paper", progress=False)
    assert CALLS == [("svgd", 0)]


def test_a_full_disk_ends_a_sweep_before_the_runs_that_are_under_way(monkeypatch):
    """In a pool: no other run is begun, and those that run are not waited for."""
    go_on, ended = Event(), []

    def run(config, method, context):
        if context.seed == 1:
            raise CannotWrite("cannot write: no space left")
        go_on.wait(20)
        ended.append(context.seed)
        return TOY.run(config, method, context)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(CannotWrite, match="no space left"):
            runner.sweep(replace(TOY, run=run), "paper", ["svgd"], executor=pool, progress=False)
        assert ended == []
        go_on.set()


# Refusals


def refusal(kind: type[Exception], experiment=TOY) -> str:
    with pytest.raises(kind) as caught:
        records.load(experiment.cell("svgd", 0, "paper"))
    message = str(caught.value)
    assert "\n" not in message
    assert "svgd-seed0" in message
    return message


def edit(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_missing():
    message = refusal(RecordMissing)
    assert "there is no record" in message
    assert "python -m gpvi_lib run toy --method svgd --profile paper" in message


def test_by_method_computes_small_profiles_and_reads_what_there_is_of_paper():
    runner.run_or_load(TOY.cell("gpvi", 1, "paper"), progress=False)
    CALLS.clear()
    found = runner.by_method(TOY, "paper")
    assert {method: [record.seed for record in rows] for method, rows in found.items()} == {"gpvi": [1]} and not CALLS
    assert list(runner.by_method(TOY, "smoke")) == list(TOY.methods) and len(CALLS) == 8
    assert list(runner.by_method(TOY, "smoke", methods=["plain"])) == ["plain"]
    assert [record.seed for record in runner.by_method(TOY, "paper", fresh=True)["plain"]] == [0, 1, 2]


@pytest.mark.parametrize("part", [0, 0.3, 0.99])
def test_truncated(part):
    path = runner.run_or_load(CELL).path
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    message = refusal(RecordDamaged)
    assert "is truncated" in message
    assert "delete svgd-seed0.json and .safetensors and run it again" in message


def test_only_committed_records_can_be_restored(monkeypatch, tmp_path):
    path = runner.run_or_load(CELL).path
    path.write_text("{")
    assert "git checkout" not in refusal(RecordDamaged)  # it is in another folder than the repository's
    monkeypatch.setattr(records, "repository", lambda: tmp_path)
    assert f"restore it with `git checkout -- {path}` or" in refusal(RecordDamaged)
    path = runner.run_or_load(TOY.cell("svgd", 0, "quick")).path
    path.write_text("{")
    with pytest.raises(
        RecordDamaged, match=r"is truncated: not valid JSON; delete .*-seed0.json and .safetensors and run it again$"
    ):
        records.load(TOY.cell("svgd", 0, "quick"))


def test_every_field_is_protected():
    """A record with any one field changed, added or removed is refused."""
    path = runner.run_or_load(CELL).path
    original = path.read_text()
    fields = json.loads(original)
    assert {"metrics", "config", "seconds", "device", "commit", "date", "arrays", "digest"} <= set(fields)
    for name in fields:
        for changed in ({**fields, name: "edited"}, {key: fields[key] for key in fields if key != name}):
            path.write_text(json.dumps(changed))
            refusal(RecordDamaged)
    path.write_text(json.dumps({**fields, "note": "added"}))
    refusal(RecordDamaged)
    path.write_text(json.dumps(fields))  # other spaces, same content
    records.load(CELL)


def test_hand_edited_metric():
    path = runner.run_or_load(CELL).path
    edit(path, metrics={"error": 0.05, "accuracy": 0.95})
    message = refusal(RecordDamaged)
    assert "svgd-seed0.json was edited after it was written" in message


def test_edited_arrays_file():
    record = runner.run_or_load(CELL)
    arrays = record.path.with_suffix(".safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(bytes(content))
    message = refusal(RecordDamaged)
    assert "svgd-seed0.safetensors was edited after it was written" in message
    with pytest.raises(RecordDamaged):
        record.arrays()


def test_missing_arrays_file():
    runner.run_or_load(CELL).path.with_suffix(".safetensors").unlink()
    assert "svgd-seed0.safetensors is missing" in refusal(RecordDamaged)


def _of_another_type(method, profile):
    return TOY.config(method, profile) | {"shape": (2.0, 3)}


def test_stale_configuration():
    runner.run_or_load(CELL)
    message = refusal(RecordStale, CHANGED)
    assert "is stale" in message
    assert "(changed: offset)" in message
    assert "(changed: shape)" in refusal(RecordStale, replace(TOY, config=_of_another_type))
    assert "python -m gpvi_lib run toy --method svgd --profile paper" in message


def test_a_raised_version_of_the_run_makes_records_stale():
    runner.run_or_load(CELL)
    assert "version" not in CELL.config() and records.state(CELL) == "valid"
    raised = replace(TOY, version=1)
    assert "(changed: version)" in refusal(RecordStale, raised)
    assert runner.run_or_load(raised.cell("svgd", 0, "paper")).config["version"] == 1
    assert "(changed: version)" in refusal(RecordStale)  # nor is a later one valid for the older code


def test_record_of_another_cell():
    path = runner.run_or_load(TOY.cell("plain", 1, "paper")).path
    path.rename(path.with_name("svgd-seed0.json"))
    assert "was renamed: it holds toy plain seed 1 at paper" in refusal(RecordDamaged)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"metrics": {"error": 0.1}}'])
def test_other_json_is_not_a_record(content):
    runner.run_or_load(CELL).path.write_text(content)
    assert "is not a record" in refusal(RecordDamaged)


@pytest.mark.parametrize("content", ['{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": %s}' % ("7" * 5000),
                                     "[" * 100_000, '{"digest": {}}', '{"digest": "", "a": NaN}'])  # fmt: skip
def test_json_that_no_record_holds_is_damaged(content):
    runner.run_or_load(CELL).path.write_text(content)
    assert records.state(CELL) == "damaged"
    refusal(RecordDamaged)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_folder_in_place_of_a_file_is_damaged(suffix):
    path = runner.run_or_load(CELL).path.with_suffix(suffix)
    path.unlink()
    path.mkdir()
    assert "cannot be read: Is a directory" in refusal(RecordDamaged)


def test_what_goes_over_all_records_leaves_out_the_damaged_ones_by_name():
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    records.record_path(CELL).write_text('{"a": NaN}')
    with pytest.warns(RecordWarning, match="left out: .*svgd-seed0.json is not a record"):
        assert [record.seed for record in records.recorded("paper")] == [1, 2]
    with pytest.warns(RecordWarning, match="left out: .*svgd-seed0.json is not a record"):
        assert records.frame(TOY, "paper", missing="skip")["seed"].tolist() == [1, 2]
    with pytest.raises(RecordDamaged):
        records.frame(TOY, "paper", methods=["svgd"])


def test_states():
    assert records.state(CELL) == "missing"
    path = runner.run_or_load(CELL).path
    assert records.state(CELL) == "valid"
    assert records.state(CHANGED.cell("svgd", 0, "paper")) == "stale"
    path.write_text("")
    assert records.state(CELL) == "damaged"


# Reuse


def test_paper_reuses_records_and_smaller_profiles_do_not():
    for profile, runs in (("paper", 1), ("quick", 2), ("smoke", 2)):
        CALLS.clear()
        runner.run_or_load(TOY.cell("svgd", 0, profile))
        runner.run_or_load(get_experiment("toy").cell("svgd", 0, profile))
        assert len(CALLS) == runs, profile


def test_fresh_computes_again():
    runner.run_or_load(CELL)
    runner.run_or_load(CELL, fresh=True)
    assert len(CALLS) == 2


def test_a_stale_record_is_computed_again():
    runner.run_or_load(CELL)
    assert runner.run_or_load(CHANGED.cell("svgd", 0, "paper")).metrics["error"] == 0.7
    assert records.state(CHANGED.cell("svgd", 0, "paper")) == "valid"


def test_a_damaged_record_is_not_overwritten():
    path = runner.run_or_load(CELL).path
    path.write_text("{")
    with pytest.raises(RecordDamaged):
        runner.run_or_load(CELL)
    with pytest.raises(RecordDamaged):
        runner.sweep(TOY, "paper", progress=False)
    assert path.read_text() == "{"
    assert len(CALLS) == 1
    runner.run_or_load(CELL, fresh=True)
    assert records.state(CELL) == "valid"


# Checkpoints


def test_an_interrupted_run_resumes_and_its_checkpoint_goes(tmp_path):
    experiment = replace(TOY, run=checkpointing_run)
    with pytest.raises(KeyboardInterrupt):
        runner.run_or_load(experiment.cell("svgd", 0, "paper"))
    checkpoint = runner.checkpoint_path(experiment.cell("svgd", 0, "paper"))
    assert checkpoint.read_text() == "half"
    assert checkpoint.parent == tmp_path / "build" / "checkpoints" / "paper" / "toy"
    (checkpoint.parent / f".{checkpoint.name}.99.tmp").write_text("of a process that was killed as it wrote")
    assert runner.run_or_load(experiment.cell("svgd", 0, "paper")).metrics["resumed"] == 1
    assert files(tmp_path / "build") == set()


@pytest.mark.parametrize(("profile", "fresh"), [("paper", True), ("quick", False), ("smoke", False)])
def test_a_run_from_nothing_does_not_resume(profile, fresh):
    experiment = replace(TOY, run=checkpointing_run)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            runner.run_or_load(experiment.cell("svgd", 0, profile), fresh=fresh)


@pytest.mark.parametrize(
    ("profile", "at", "goes_on"), [("quick", None, False), ("quick", 1e12, True), ("paper", None, True)]
)
def test_a_reference_goes_on_from_its_checkpoint_where_records_are_kept_or_time_is_short(profile, at, goes_on):
    """A budget that is shorter than the reference would never end else."""

    def run(config, method, context):
        if not context.checkpoint.exists():
            context.checkpoint.write_text("half")
            raise OutOfTime("stopped")
        return TOY.run(config, method, context)

    cell = replace(TOY, run=run).cell("svgd", 0, profile)
    with checkpoints.deadline(at):
        with pytest.raises(OutOfTime):
            runner.load_or_run(cell)
        with nullcontext() if goes_on else pytest.raises(OutOfTime):
            assert runner.load_or_run(cell).metrics["error"] == 0.1


def test_another_configuration_does_not_resume():
    with pytest.raises(KeyboardInterrupt):
        runner.run_or_load(replace(TOY, run=checkpointing_run).cell("svgd", 0, "paper"))
    with pytest.raises(KeyboardInterrupt):
        runner.run_or_load(replace(CHANGED, run=checkpointing_run).cell("svgd", 0, "paper"))


# Names


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(UnknownName, match="unknown method 'gpv' of toy; did you mean 'gpvi'.*plain, svgd"):
        runner.run_or_load(TOY.cell("gpv", 0, "paper"))
    with pytest.raises(UnknownName, match="unknown experiment 'tyo'; did you mean 'toy'"):
        records.load(get_experiment("tyo").cell("svgd", 0, "paper"))
    with pytest.raises(UnknownName, match="unknown profile 'papr'.*paper, quick, smoke"):
        runner.sweep(TOY, "papr")
    assert get_experiment(TOY) is TOY
    assert get_profile(PROFILES["quick"]) is PROFILES["quick"]


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert provenance.as_device("auto").type == "cpu"
    with pytest.raises(GPVIError, match="device 'cuda' is not available: torch sees 0 CUDA GPUs"):
        runner.run_or_load(CELL, device="cuda")
    with pytest.raises(UnknownName, match="unknown device 'gpu'"):
        runner.sweep(TOY, "paper", device="gpu")
    assert CALLS == []


def test_with_an_executor_the_worker_looks_for_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SweepError, match="svgd seed 0: device 'cuda' is not available: torch sees 0 CUDA GPUs"):
        runner.sweep(TOY, "paper", ["svgd"], [0], device="cuda", executor=Delayed(), progress=False)
    with pytest.raises(UnknownName, match="unknown device 'gpu'"):
        runner.sweep(TOY, "paper", device="gpu", executor=Delayed())


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_a_gpu_computes_in_float32(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        provenance.as_device("cpu")
        assert torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "high"
        assert provenance.device_name(provenance.as_device(name)) == "GPU, TF32 off"
        assert not torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_peak_memory_is_of_this_run_alone():
    device = torch.device("cpu")
    with mmap.mmap(-1, 240_000_000) as large:  # not a tensor: what a freed one held may stay with the process
        for page in range(0, len(large), mmap.PAGESIZE):
            large[page] = 1
        provenance.reset_peak_memory(device)
        with_large = provenance.peak_memory_mb(device)
    assert provenance.peak_memory_mb(device) == pytest.approx(with_large, abs=1)
    provenance.reset_peak_memory(device)
    assert provenance.peak_memory_mb(device) < with_large - 100


# Sweeps


def outcomes(found) -> list[tuple[str, int, float]]:
    return [(record.method, record.seed, record.metrics["error"]) for record in found]


EXPECTED = [("svgd", 0, 0.1), ("svgd", 1, 0.11), ("plain", 0, 0.3), ("plain", 1, 0.31)]
CELLS = {"methods": ("svgd", "plain"), "seeds": (0, 1)}


def test_sweep_runs_what_is_missing_in_order():
    runner.run_or_load(TOY.cell("plain", 0, "paper"))
    CALLS.clear()
    assert outcomes(runner.sweep(TOY, "paper", **CELLS)) == EXPECTED
    assert CALLS == [("svgd", 0), ("svgd", 1), ("plain", 1)]
    assert len(runner.sweep(TOY, "paper")) == len(TOY.methods) * 3


def test_sweep_is_silent_when_nothing_is_to_be_run(capsys):
    runner.sweep(TOY, "paper", **CELLS)
    assert "4/4" in capsys.readouterr().err
    runner.sweep(TOY, "paper", **CELLS)
    assert capsys.readouterr() == ("", "")
    runner.sweep(TOY, "paper", **CELLS, fresh=True, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: runner.run_or_load(CELL),
        lambda: runner.load_or_run(CELL),
        lambda: runner.sweep(TOY, "paper", ["svgd"], [0]),
    ],
)
def test_a_valid_record_is_read_once(ask, monkeypatch):
    """A second look could come while another process replaces it."""
    runner.run_or_load(CELL)
    looks, load = [], records.load
    for module in (records, runner):
        monkeypatch.setattr(module, "load", lambda cell: looks.append(cell) or load(cell))
    ask()
    assert looks == [CELL]


class Delayed:
    """What a cluster's executor is at least: submit and result, and nothing else."""

    class Job:
        def __init__(self, function, arguments):
            self.result = lambda: function(*arguments)

    def submit(self, function, *arguments):
        return self.Job(*pickle.loads(pickle.dumps((function, arguments))))


def test_sweep_through_any_executor():
    with ThreadPoolExecutor(2) as threads:
        for executor in (threads, Delayed()):
            assert outcomes(runner.sweep(TOY, "quick", **CELLS, executor=executor)) == EXPECTED
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        CALLS.clear()
        assert outcomes(runner.sweep(TOY, "paper", **CELLS, executor=processes)) == EXPECTED
        assert CALLS == []


class Lasting(Delayed):
    """Jobs that go on without the process that has submitted them, as Slurm's; the second is interrupted."""

    def __init__(self):
        self.jobs = []

    def submit(self, function, *arguments):
        job = super().submit(function, *arguments)
        job.cancelled = False
        job.done = lambda: job is self.jobs[0]
        job.cancel = lambda: setattr(job, "cancelled", True)
        self.jobs.append(job)
        if len(self.jobs) == 2:
            job.result = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        return job


def test_an_interrupt_cancels_the_jobs_that_have_not_ended():
    executor = Lasting()
    with pytest.raises(KeyboardInterrupt):
        runner.sweep(TOY, "paper", ["svgd"], executor=executor, progress=False)
    assert [job.cancelled for job in executor.jobs] == [False, True, True]


def threads_of(config, method, context):
    return Outcome({"threads": float(torch.get_num_threads())})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_has_one_thread_unless_it_is_faster_on_all_cores(jobs, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(runner.provenance, "cores", lambda: 6)
    for all_cores, threads in ((False, 1), (True, 6 // jobs)):
        experiment = replace(TOY, run=threads_of, all_cores=all_cores)
        found = runner.sweep(experiment, "quick", ["svgd"], (0, 1), jobs=jobs, progress=False)
        assert {record.metrics["threads"] for record in found} == {threads}
    assert torch.get_num_threads() == before


def test_a_cell_of_its_own_and_one_of_an_executor_have_the_threads_of_a_sweep():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for all_cores, threads in ((False, 1), (True, 3)):
            experiment = replace(TOY, run=threads_of, all_cores=all_cores)
            alone = runner.run_or_load(experiment.cell("svgd", 0, "quick"), progress=False)
            (sent,) = runner.sweep(experiment, "quick", ["svgd"], [1], executor=Delayed(), progress=False)
            assert alone.metrics["threads"] == sent.metrics["threads"] == threads
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


FAILING = replace(TOY, methods=("svgd", "diverges", "buggy", "plain"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_cell_does_not_lose_the_others(jobs, caplog, tmp_path):
    with pytest.raises(SweepError) as caught:
        runner.sweep(FAILING, "paper", seeds=(0, 1), jobs=jobs, progress=False)
    message = str(caught.value)
    assert message == (
        "2 of 8 runs of toy failed: "
        "diverges seed 1: toy/diverges seed 1 met nan at step 7; lower the learning rate; "
        "buggy seed 1: ZeroDivisionError: a bug"
    )
    assert "ZeroDivisionError" in caplog.text  # only a bug leaves its traceback in the log
    assert "DivergedError" not in caplog.text
    recorded = {name for name in files(tmp_path / "results") if name.endswith(".json")}
    assert recorded == {
        f"paper/toy/{method}-seed{seed}.json"
        for method in FAILING.methods
        for seed in (0, 1)
        if (method, seed) not in {("diverges", 1), ("buggy", 1)}
    }


def test_a_killed_process_does_not_lose_the_others(tmp_path):
    methods = ("killed", "svgd", "plain")
    with pytest.raises(SweepError, match="^1 of 6 runs of toy failed: killed seed 1: its process was killed"):
        runner.sweep(replace(TOY, methods=methods), "paper", seeds=(0, 1), jobs=2, progress=False)
    recorded = {name for name in files(tmp_path / "results") if name.endswith(".json")}
    assert len(recorded) == 5 and "paper/toy/killed-seed1.json" not in recorded
    assert not any(name.endswith(".txt") for name in files(tmp_path / "build"))  # nothing looks as if it still ran


def test_jobs_run_in_processes():
    found = runner.sweep(TOY, "paper", **CELLS, jobs=2, progress=False)
    assert outcomes(found) == EXPECTED
    assert CALLS == []
    assert all(record.device.endswith(" 1 threads") for record in found)


# Tables


def test_frame():
    runner.sweep(TOY, "paper", methods=["svgd", "gpvi"], progress=False)
    table = records.frame(TOY, "paper", methods=["svgd", "gpvi"])
    assert list(table.columns) == ["method", "seed", "error", "accuracy", "seconds", "device"]
    assert table["method"].tolist() == ["svgd"] * 3 + ["gpvi"] * 3
    assert table["error"].tolist() == pytest.approx([0.1, 0.11, 0.12, 0.2, 0.21, 0.22])


def test_frame_raises_or_skips_what_is_missing_and_never_shows_what_is_stale():
    runner.run_or_load(CELL)
    with pytest.raises(RecordMissing, match="svgd-seed1.json"):
        records.frame(TOY, "paper")
    assert len(records.frame(TOY, "paper", missing="skip")) == 1
    assert list(records.frame(TOY, "quick", missing="skip").columns) == [
        "method",
        "seed",
        "seconds",
        "device",
    ]
    with pytest.raises(RecordStale):
        records.frame(CHANGED, "paper", missing="skip")


# The real experiments


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_registered_experiments_keep_the_contract(name):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert len(set(experiment.methods)) == len(experiment.methods)
    assert set(experiment.rows) | set(experiment.once) <= set(experiment.methods)
    again = pickle.loads(pickle.dumps(experiment))
    for profile in PROFILES:
        seeds = experiment.seeds(profile)
        assert len(set(seeds)) == len(seeds) > 0
        for method in experiment.methods:
            config = records.canonical_json(experiment.config(method, profile))
            assert config == records.canonical_json(again.config(method, profile))
            assert config == records.canonical_json(json.loads(config))
            assert isinstance(experiment.deviations(method, profile), str)


NAMED = {
    "lr": r"learning rate ([\d.e-]+) decaying",
    "final_lr": r"decaying to ([\d.e-]+)",
    "steps": r"([\d,]+) (?:of [\d,]+ )?steps",
    "noise_scale_lr": r"trained λ [\w .]+ at rate ([\d.e-]+)",
}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_deviations_name_the_steps_and_the_rates_of_the_configuration(name):
    experiment = EXPERIMENTS[name]
    for method in experiment.methods:
        config, said = experiment.config(method, "paper"), experiment.deviations(method, "paper")
        for key, pattern in NAMED.items():
            assert {float(number.replace(",", "")) for number in re.findall(pattern, said)} <= {config.get(key)}, said


def test_each_of_these_patterns_finds_something():
    said = [experiment.deviations(m, "paper") for experiment in EXPERIMENTS.values() for m in experiment.methods]
    assert all(any(re.search(pattern, words) for words in said) for pattern in NAMED.values())


def test_a_record_is_replaced_whole_or_not_at_all(monkeypatch):
    before = runner.run_or_load(CELL)
    made = records.write_temporary

    def no_room(path, content):
        if path.suffix == ".json":
            raise CannotWrite(f"cannot write {path}: no room")
        return made(path, content)

    monkeypatch.setattr(records, "write_temporary", no_room)
    with pytest.raises(CannotWrite, match="no room"):
        runner.run_or_load(CELL, fresh=True)
    assert records.load(CELL).digest == before.digest and not list(before.path.parent.glob(".*.tmp"))
