"""The queue of long runs: its list, its order, and that a kill costs nothing."""

import fcntl
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fitted_experiment import FITTED
from toy_experiment import TOY, redirect

from gpvi_lib import data
from gpvi_lib.errors import GPVIError, RecordDamaged, SweepError, UnknownName
from gpvi_lib.experiments import EXPERIMENTS, get_experiment
from gpvi_lib.lab import queue, records, runner

ENTRY = (
    '[[entry]]\nwhat = "{what}"\nexperiment = "{experiment}"\nmethods = {methods}\nseeds = {seeds}\nhours = {hours}\n'
)
TESTS = Path(__file__).parent
DRIVER = """
import os, signal, sys
from pathlib import Path
from fitted_experiment import FITTED
from gpvi_lib import checkpoints
from gpvi_lib.experiments import EXPERIMENTS, get_experiment
from gpvi_lib.lab import queue

save, left = checkpoints.save, [int(sys.argv[2])]  # in each worker, too: it imports this file
def killing(path, state):
    save(path, state)
    left[0] -= 1
    if left[0] == 0:
        os.killpg(0, signal.SIGKILL)
checkpoints.save = killing
if __name__ == "__main__":
    EXPERIMENTS["fitted"] = FITTED
    queue.run(queue.read(Path(sys.argv[1]), get_experiment), jobs=2, dirty=True)
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Writes a list of entries, in folders of this test's own."""
    redirect(monkeypatch, tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setitem(EXPERIMENTS, "fitted", FITTED)

    def write(*entries, **change):
        entry = {"what": "some", "experiment": "toy", "methods": ["svgd", "gpvi"], "seeds": [0, 1], "hours": 2} | change
        text = "".join(ENTRY.format(**entry | one) for one in entries or ({},))
        (tmp_path / "queue.toml").write_text(text.replace("'", '"'))
        return tmp_path / "queue.toml"

    return write


def test_a_first_seed_of_all_methods_comes_before_a_second_and_nothing_twice(listed):
    cells = queue.read(listed({}, {"what": "again", "methods": ["gpvi", "plain"], "seeds": [0]}), get_experiment)
    found = [(one.what, one.cell.method, one.cell.seed) for one in cells]
    assert found == [
        ("some", "svgd", 0),
        ("some", "gpvi", 0),
        ("some", "svgd", 1),
        ("some", "gpvi", 1),
        ("again", "plain", 0),
    ]


def test_a_method_that_draws_nothing_is_queued_once(listed, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, once=("plain",)))
    cells = queue.read(listed({"methods": ["plain", "svgd"]}), get_experiment)
    assert [(one.cell.method, one.cell.seed) for one in cells] == [("plain", 0), ("svgd", 0), ("svgd", 1)]


def test_a_seed_that_no_table_counts_is_refused(listed):
    path = listed({}, {"seeds": [0, 7]})
    with pytest.raises(GPVIError, match=r"entry 2 of .*: seed 7 is none of toy's at paper \(0, 1, 2\): no table would"):
        queue.read(path, get_experiment)


@pytest.mark.parametrize("seeds", ["[true]", "[0.0]"])
def test_a_seed_is_a_whole_number(listed, seeds):
    path = listed({})
    path.write_text(path.read_text().replace("seeds = [0, 1]", f"seeds = {seeds}"))
    with pytest.raises(GPVIError, match="is none of toy's at paper"):
        queue.read(path, get_experiment)


def test_one_bracket_and_a_folder_are_told_so(listed):
    path = listed({})
    path.write_text(path.read_text().replace("[[entry]]", "[entry]"))
    with pytest.raises(GPVIError, match=r"needs entries of the form \[\[entry\]\]"):
        queue.read(path, get_experiment)
    path.write_text(path.read_text().replace("[entry]", "[[entry]]") + 'profile = "quick"\n')
    with pytest.raises(UnknownName, match="unknown key 'profile' of entry 1 of .*queue.toml"):
        queue.read(path, get_experiment)
    path.write_text("entry = [1]")
    with pytest.raises(GPVIError, match=r"needs entries of the form \[\[entry\]\]"):
        queue.read(path, get_experiment)
    path.write_bytes(b"# caf\xe9")
    with pytest.raises(GPVIError, match="is not TOML: 'utf-8' codec"):
        queue.read(path, get_experiment)
    with pytest.raises(GPVIError, match="cannot be read: Is a directory"):
        queue.read(path.parent, get_experiment)


def test_the_committed_list_names_what_there_is():
    queued = queue.read(Path(__file__).parents[1] / "results" / "queue.toml", get_experiment)
    cells = [one.cell for one in queued if one.hours > 0]
    assert cells and len(cells) == len(queued)
    assert all(cell.seed in cell.experiment.seeds_of(cell.method, "paper") for cell in cells)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"experiment": "toi"}, UnknownName, "unknown experiment 'toi'; did you mean 'toy'"),
        ({"methods": ["svdg"]}, UnknownName, "svdg"),
        ({"hours": '"two"'}, GPVIError, "entry 1 of .*queue.toml needs 'hours', got 'two'"),
        ({"what": 'a" b'}, GPVIError, "is not TOML"),
    ],
)
def test_a_list_with_a_slip_is_refused_by_name(listed, change, error, message):
    with pytest.raises(error, match=message):
        queue.read(listed(**change), get_experiment)


def test_a_list_that_is_not_there_is_named(tmp_path):
    with pytest.raises(GPVIError, match="no list of runs .*nowhere.toml"):
        queue.read(tmp_path / "nowhere.toml", get_experiment)


def test_what_is_done_begun_and_missing(listed):
    cells = queue.read(listed(), get_experiment)
    assert [queue.state(one, active=False) for one in cells] == 4 * ["missing"]
    runner.run_or_load(TOY.cell("svgd", 0, "paper"), progress=False)
    begun = runner.checkpoint_path(TOY.cell("gpvi", 0, "paper"))
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.write_bytes(b"")
    running = runner.status_path(TOY.cell("svgd", 1, "paper"))
    running.parent.mkdir(parents=True)
    running.write_text("half")
    assert [queue.state(one, active=True) for one in cells] == ["done", "begun", "running", "missing"]
    assert queue.state(cells[2], active=False) == "missing"  # left behind by a queue that was killed
    begun.rename(begun.with_suffix(".0.pt"))  # of one chain among several
    assert queue.state(cells[1], active=True) == "begun"


def test_one_cell_that_fails_does_not_keep_the_others_from_running(listed, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, methods=("diverges", "plain")))
    cells = queue.read(listed({"methods": ["diverges", "plain"], "seeds": [1, 0]}), get_experiment)
    with pytest.raises(SweepError, match="1 of 4 runs of queue failed: toy diverges seed 1: .* met nan at step 7"):
        queue.run(cells, jobs=1)
    assert [queue.state(one, active=False) for one in cells] == ["missing", "done", "done", "done"]


def test_what_lacks_its_data_is_left_out_and_named(listed, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "far", replace(TOY, name="far", data_sets=lambda profile: ("boston", "mnist")))
    monkeypatch.setattr(data, "available", lambda name: False)
    cells = queue.read(listed({"experiment": "far"}, {"seeds": [0], "methods": ["plain"]}), get_experiment)
    queue.run(cells, jobs=1)
    assert [queue.state(one, active=False) for one in cells] == [*4 * ["missing"], "done"]
    said = "far is left out: get its data with python -m gpvi_lib data boston mnist\n"
    assert capsys.readouterr().err.count(said) == 1


def test_a_damaged_record_is_not_overwritten(listed):
    cells = queue.read(listed(), get_experiment)
    path = runner.run_or_load(TOY.cell("gpvi", 1, "paper"), progress=False).path
    path.write_text("{")
    with pytest.raises(RecordDamaged, match="gpvi-seed1"):
        queue.run(cells, jobs=1)
    assert path.read_text() == "{" and queue.state(cells[0], active=False) == "missing"


def test_a_queue_runs_on_the_device_that_it_is_given(listed, monkeypatch):
    cells = queue.read(listed({"methods": ["svgd"], "seeds": [0]}), get_experiment)
    asked = []
    monkeypatch.setattr(runner, "run_cells", lambda pool, todo, how, label: asked.append(how.device))
    queue.run(cells, jobs=1, device="auto")
    assert asked == ["auto"]
    with pytest.raises(UnknownName, match="unknown device 'gpu'"):
        queue.run(cells, jobs=1, device="gpu")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_record_says_on_how_many_threads_the_queue_ran_it(listed, threads):
    (queued,) = queue.read(listed({"methods": ["svgd"], "seeds": [0]}), get_experiment)
    queue.run([queued], jobs=1, threads=threads)
    assert records.load(queued.cell).device.endswith(f", {threads} threads")


def test_two_queues_do_not_run_beside_each_other(listed):
    with queue.only_one():
        assert queue.is_active()
        with pytest.raises(GPVIError, match="running here already"):
            queue.run(queue.read(listed(), get_experiment), jobs=1)
    assert not queue.is_active()


def test_who_only_looks_whether_a_queue_runs_writes_nothing_and_stops_none(listed, tmp_path, monkeypatch):
    assert not queue.is_active() and not (tmp_path / "build").exists()
    (tmp_path / "build").mkdir()
    with open(tmp_path / "build" / "queue.lock", "w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with monkeypatch.context() as patch:
            patch.setattr(queue.time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
            with queue.only_one():
                assert queue.is_active()


def test_a_queue_that_is_killed_goes_on_and_its_results_are_those_of_an_undisturbed_one(listed, tmp_path):
    """Killed with -9 twice, all its processes: as one writes its first checkpoint, and, begun again, its fifth."""
    path = listed({"experiment": "fitted", "methods": ["slow"], "seeds": [0, 1]})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]), "OMP_NUM_THREADS": "1"}
    (tmp_path / "driver.py").write_text(DRIVER)
    cells = queue.read(path, get_experiment)

    def begin(saves):
        command = [sys.executable, str(tmp_path / "driver.py"), str(path), str(saves)]
        settings = {"env": environment, "stderr": subprocess.DEVNULL, "timeout": 300, "start_new_session": True}
        return subprocess.run(command, **settings).returncode

    for checkpoints in (1, 5):
        assert begin(checkpoints) == -signal.SIGKILL
        states = [queue.state(one, active=False) for one in cells]
        assert "begun" in states and "done" not in states
    assert begin(0) == 0
    for seed in (0, 1):
        disturbed = records.load(FITTED.cell("slow", seed, "paper")).arrays()["x"]
        alone = runner.run_or_load(FITTED.cell("slow", seed, "paper"), fresh=True, progress=False).arrays()["x"]
        assert torch.equal(disturbed, alone)
    assert not queue.is_active()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_can_be_sent_to_a_worker(name):
    there, here = pickle.loads(pickle.dumps(EXPERIMENTS[name])), EXPERIMENTS[name]
    assert there.methods == here.methods and there.data_sets("paper") == here.data_sets("paper")


def test_a_list_with_another_key_is_refused(tmp_path):
    path = tmp_path / "runs.toml"
    path.write_text("[[entries]]\n")
    with pytest.raises(UnknownName, match="entries"):
        queue.read(path, get_experiment)
