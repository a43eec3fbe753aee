"""Stopping a command by a signal: nothing of it is left, nothing new begins, and what was done is kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from living import lives
from nbformat.v4 import new_code_cell, new_notebook, writes

from gpvi_lib.errors import GPVIError
from gpvi_lib.lab.processes import process_pool

TESTS = Path(__file__).parent

RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
import endless_experiment
from gpvi_lib.__main__ import main
from gpvi_lib.experiments import EXPERIMENTS
if __name__ == "__main__":
    EXPERIMENTS["endless"] = endless_experiment.ENDLESS
    main(["run", "endless", "--profile", "paper", "--jobs", sys.argv[1], "--dirty"])
"""

NOTEBOOKS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from functools import partial
from pathlib import Path
from gpvi_lib.__main__ import _run_notebooks
from gpvi_lib.report import notebooks
if __name__ == "__main__":
    _run_notebooks(partial(notebooks.execute, folder=Path(sys.argv[1])), [Path(path) for path in sys.argv[2:]], 2)
"""

TELL = """import os, time
with open(os.environ["TOLD"], "a") as file:
    file.write(f"{os.getpid()}\\n{os.getppid()}\\n")
while True:
    time.sleep(1)"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """`start(script, *arguments)` runs a script as a session of its own; whatever it leaves is killed at the end."""
    for name in ("RESULTS", "BUILD"):
        monkeypatch.setenv(f"GPVI_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("TOLD", str(tmp_path / "told.txt"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent)]))
    running = []

    def start(script, *arguments):
        (tmp_path / "driver.py").write_text(script)
        command = [sys.executable, str(tmp_path / "driver.py"), *map(str, arguments)]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
    for number in told(tmp_path):
        if lives(number):
            os.kill(number, signal.SIGKILL)


def told(folder: Path) -> list[int]:
    """What the processes below wrote of themselves: their numbers."""
    path = folder / "told.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def soon(true, process=None, patience=60.0) -> bool:
    """Whether something becomes true: the patience is for a machine with much to do."""
    end = time.monotonic() + patience
    while not true() and time.monotonic() < end and (process is None or process.poll() is None):
        time.sleep(0.02)
    return true()


@pytest.mark.parametrize(("jobs", "to"), [(1, "the group"), (2, "the group"), (2, "the process alone")])
def test_an_interrupt_ends_all_cells_of_a_run_and_keeps_their_checkpoints(start, jobs, to, tmp_path):
    process = start(RUN, jobs)
    assert soon(lambda: len(told(tmp_path)) == jobs, process)
    (os.killpg if to == "the group" else os.kill)(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted: records and checkpoints are kept;")
    assert "Traceback" not in said
    assert soon(lambda: not any(map(lives, told(tmp_path))), patience=30)
    assert len(told(tmp_path)) == jobs  # the pool had two more cells in store
    kept = [path.read_text() for path in (tmp_path / "build").rglob("*.pt")]
    assert kept == ["half"] * jobs


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_and_no_kernel_outlives_the_notebooks_command(start, kill, tmp_path):
    parameters = new_code_cell('profile = "smoke"', metadata={"tags": ["parameters"]})
    paths = [tmp_path / "0.ipynb", tmp_path / "1.ipynb", tmp_path / "2.ipynb"]
    for path in paths:
        path.write_text(writes(new_notebook(cells=[parameters, new_code_cell(TELL)], metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})))  # fmt: skip
    process = start(NOTEBOOKS, tmp_path / "copies", *paths)
    assert soon(lambda: len(told(tmp_path)) == 4, process)  # two kernels, each with its worker
    os.kill(process.pid, kill)
    process.wait(30)
    assert soon(lambda: not any(map(lives, told(tmp_path))), patience=30)
    assert len(told(tmp_path)) == 4


def test_a_pool_ends_its_processes_with_an_error_in_its_block(tmp_path):
    with pytest.raises(KeyboardInterrupt), process_pool(2) as pool:
        futures = [pool.submit(time.sleep, 600) for _ in range(4)]
        assert soon(futures[1].running)
        raise KeyboardInterrupt
    assert all(future.done() for future in futures)


def test_a_process_that_is_killed_fails_its_own_call_alone():
    with process_pool(2) as pool:
        before = [pool.submit(os.getpid) for _ in range(4)]
        killed = pool.submit(signal.raise_signal, signal.SIGKILL)
        after = [pool.submit(os.getpid) for _ in range(4)]
        with pytest.raises(GPVIError, match="its process was killed.*fewer --jobs"):
            killed.result()
        processes = {future.result() for future in (*before, *after)}
    assert 2 <= len(processes) <= 3 and os.getpid() not in processes
