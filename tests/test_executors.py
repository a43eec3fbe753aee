"""The same sweep on a Dask cluster and through submitit; a worker that dies loses nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import distributed
import pytest
import slow_experiment
from living import lives
from slow_experiment import SLOW

from gpvi_lib import checkpoints
from gpvi_lib.errors import DivergedError, GPVIError, OutOfTime, UnknownName
from gpvi_lib.lab import executors, runner


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the cells said: a list of (event, seed, process)."""
    for name in ("RESULTS", "BUILD"):
        monkeypatch.setenv(f"GPVI_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])]))
    path = tmp_path / "log.txt"
    return lambda: [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def cluster(log):
    """A Dask scheduler and two worker processes of one thread each."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster:
        yield cluster


def test_a_dask_worker_that_is_killed_loses_nothing_and_nothing_is_done_twice(cluster, log):
    killed, over = [], Event()

    def kill_one():
        while not killed and not over.is_set():
            ended = {seed for event, seed, _ in log() if event == "end"}
            running = [(seed, process) for _, seed, process in log() if seed not in ended]
            if ended and running:
                os.kill(int(running[-1][1]), signal.SIGKILL)
                killed.append(running[-1])
            time.sleep(0.05)

    killer = Thread(target=kill_one)
    killer.start()
    try:
        with executors.connect("dask", cluster.scheduler_address) as pool:
            found = runner.sweep(SLOW, "paper", executor=pool, progress=False)
    finally:
        over.set()
        killer.join()
    assert [record.metrics["seed"] for record in found] == list(range(6))
    begun, ended = (Counter(seed for event, seed, _ in log() if event == name) for name in ("begin", "end"))
    again = Counter({killed[0][0]: 1})
    assert begun == Counter(map(str, range(6))) + again
    # Had it just ended when it was killed, it may have ended twice; its record was then not yet written.
    assert ended - (again if ("end", *killed[0]) in log() else Counter()) == Counter(map(str, range(6)))


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on while a cell sleeps, and by nothing else."""
    now = [0.0]
    frozen = SimpleNamespace(**vars(time) | {"time": lambda: now[0]})
    asleep = SimpleNamespace(sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    for module in (checkpoints, runner):
        monkeypatch.setattr(module, "time", frozen)
    monkeypatch.setattr(slow_experiment, "time", asleep)


def test_a_failed_run_does_not_hide_that_the_time_was_up(log, clock):
    def first_fails(config, method, context):
        if context.seed == 0:
            raise DivergedError("nan at step 7")
        return SLOW.run(config, method, context)

    with pytest.raises(OutOfTime, match=r"1 of 6 runs .* nan at step 7; .*time is up with 3 of 6 runs to do"):
        runner.sweep(replace(SLOW, run=first_fails), "paper", progress=False, budget=0.9)


@pytest.mark.parametrize("profile", ["paper", "quick"])
def test_a_budget_stops_the_sweep_and_the_next_one_goes_on(profile, log, clock):
    with pytest.raises(OutOfTime, match=r"slow: time is up with 4 of 6 runs to do; run it again"):
        runner.sweep(SLOW, profile, progress=False, budget=0.9)
    assert len([event for event, *_ in log() if event == "end"]) == 2
    assert len(runner.sweep(SLOW, profile, progress=False, budget=60)) == 6
    assert Counter(seed for event, seed, _ in log() if event == "end") == Counter(map(str, range(6)))


def test_jobs_of_submitit_write_the_same_records(log):
    with executors.connect("slurm", "local") as pool:
        found = runner.sweep(SLOW, "paper", seeds=(0, 1), executor=pool, progress=False)
    assert [record.metrics["seed"] for record in found] == [0, 1]
    assert str(os.getpid()) not in {process for _, _, process in log()}


def test_a_budget_stops_jobs_of_submitit_too(log):
    with (
        executors.connect("slurm", "local") as pool,
        pytest.raises(OutOfTime, match="2 of 2 runs to do"),
    ):
        runner.sweep(SLOW, "paper", seeds=(0, 1), executor=pool, progress=False, budget=0)
    assert log() == []


def test_processes_end_with_a_driver_that_is_killed(log):
    """Otherwise they would go on beside the next attempt, and on a card hold its memory."""
    sweep = "runner.sweep(SLOW, 'paper', jobs=2, dirty=True)"
    script = f"from gpvi_lib.lab import runner; from slow_experiment import SLOW; {sweep}"
    driver = subprocess.Popen([sys.executable, "-c", f"if __name__ == '__main__': {script}"], stderr=subprocess.DEVNULL)
    processes = set()
    end = time.monotonic() + 120
    while len(processes) < 2:  # both have begun a cell
        assert driver.poll() is None and time.monotonic() < end
        processes = {int(process) for _, _, process in log()}
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    end = time.monotonic() + 30
    while any(map(lives, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(lives, processes))
    assert len(log()) < 12  # as many as six cells would leave


def test_a_cell_in_another_process_tells_what_its_bar_shows(log, tmp_path):
    seen = set()
    over = Event()

    def watch():
        while not over.wait(0.02):
            for path in (tmp_path / "build").rglob("running/**/*.txt"):
                with suppress(FileNotFoundError):  # its cell has just ended
                    seen.add((path.name, path.read_text()[:18]))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        runner.sweep(SLOW, "paper", seeds=(0, 1), jobs=2, progress=False)
    finally:
        over.set()
        watcher.join()
    assert {(f"sleep-seed{seed}.txt", f"slow/sleep seed {seed}:") for seed in (0, 1)} <= seen
    assert not list((tmp_path / "build").rglob("running/**/*.txt"))


def test_errors_name_the_remedy(monkeypatch):
    with pytest.raises(UnknownName, match="executor 'dusk'; did you mean 'dask'"):
        executors.connect("dusk")
    with pytest.raises(GPVIError, match="--scheduler tcp://"), executors.connect("dask"):
        pass
    with pytest.raises(GPVIError, match="submitit cannot use nowhere"), executors.connect("slurm", "nowhere"):
        pass


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("slurm", "submitit")])
def test_a_missing_library_is_named(name, package, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(GPVIError, match=rf"{package} is not installed.*\[cluster\]"), executors.connect(name, "x"):
        pass


def test_a_scheduler_that_wants_certificates_is_named():
    with pytest.raises(GPVIError, match=r"tls://127.0.0.1:9 needs certificates, set as docs/clusters.md says"):
        executors.connect("dask", "tls://127.0.0.1:9").__enter__()


def run_python(*arguments, **variables):
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True).stdout


def test_the_page_on_clusters_names_settings_and_options_that_dask_has():
    page = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text()
    everywhere = set(re.search(r'TLS="(.*)"', page)[1].split()[::2])
    for name in ("scheduler", "worker"):
        known = set(re.findall(r"--[\w-]+", run_python("-m", f"distributed.cli.dask_{name}", "--help")))
        options = set(re.findall(r"--[\w-]+", re.search(rf"^dask {name} .*$", page, re.MULTILINE)[0])) | everywhere
        assert len(options) >= 7 and not options - known
    exported = dict(re.findall(r"export (DASK_\w+)=\$PWD/(\S+)", page))
    client = "import distributed; print(distributed.Security().get_tls_config_for_role('client'))"
    found = run_python("-c", client, **exported)
    assert all(
        f"'{key}': '{value}'" in found for key, value in zip(("ca_file", "cert", "key"), exported.values(), strict=True)
    )
