"""The command line: what each command prints, and errors of one line with exit code 2."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
import toy_experiment
from nbformat.v4 import new_code_cell, new_notebook
from toy_experiment import CALLS, TOY

from gpvi_lib import data, paths
from gpvi_lib.__main__ import main
from gpvi_lib.errors import OutOfTime
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.lab import executors, records, runner


@pytest.fixture(autouse=True)
def _own_folders(registry, monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    monkeypatch.setenv("GPVI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(paths, "repository", lambda: tmp_path)
    registry.clear()
    registry[TOY.name] = TOY


@pytest.fixture
def call(capsys):
    """Runs a command line; returns its exit code, what it printed, and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


def notebook(folder: Path, name: str, source: str) -> Path:
    parameters = new_code_cell(
        'profile = "paper"\nseed = 0\ndevice = "cpu"\nfresh = False', metadata={"tags": ["parameters"]}
    )
    content = new_notebook(cells=[parameters, new_code_cell(source)])
    content.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    folder.mkdir(exist_ok=True)
    nbformat.write(content, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


# Experiments and records


def test_list_shows_methods_and_the_state_of_their_records(call, monkeypatch):
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    runner.run_or_load(TOY.cell("gpvi", 0, "paper")).path.write_text("{")
    code, out, _ = call("list")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["method", "smoke", "quick", "paper"] in lines
    assert ["svgd", "0/2", "0/2", "3/3"] in lines
    assert ["gpvi", "0/2", "0/2", "0/3,", "1", "damaged"] in lines
    assert "toy: A toy in closed form" in out
    assert "tests: the same code on tiny sizes" in out
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, config=toy_experiment.changed_config))
    assert "0/3, 3 stale" in call("list")[1]


def test_list_and_scoreboard_go_on_beside_a_damaged_record_and_name_it(call, tmp_path):
    page = tmp_path / "docs" / "scoreboard.md"
    page.parent.mkdir()
    page.write_text("as it was")
    runner.sweep(TOY, "paper", methods=["svgd"], progress=False)
    records.record_path(TOY.cell("svgd", 0, "paper")).write_text('{"a": NaN}')
    assert "2/3, 1 damaged" in call("list")[1]
    code, out, err = call("list", "--unprovenanced")
    assert code == 0 and "of 2 records" in out and err.startswith("left out: results/paper/toy/svgd-seed0.json is not")
    code, out, err = call("scoreboard")
    assert code == 2 and "0.115 ± 0.0071" in out and err.splitlines()[0].count("svgd-seed0.json is not a record") == 1
    assert err.splitlines()[1].startswith("error: 1 damaged records are missing above") and len(err.splitlines()) == 2
    assert page.read_text() == "as it was"


def test_run_computes_and_prints_the_chosen_cells(call):
    code, out, _ = call("run", "toy", "--method", "svgd", "--method", "gpvi", "--seed", "1", "--profile", "paper")
    assert code == 0
    assert CALLS == [("svgd", 1), ("gpvi", 1)]
    assert out.splitlines()[0].startswith("toy svgd seed 1: error 0.11  accuracy 0.89  (")
    call("run", "toy", "--profile", "paper")
    assert len(CALLS) == 4 * 3  # what was there is not run again
    call("run", "toy", "--profile", "paper", "--method", "plain", "--fresh")
    assert len(CALLS) == 4 * 3 + 3


def test_run_without_a_name_computes_every_experiment_whatever_fails_in_one(call, registry):
    registry.clear()
    registry["broken"] = replace(TOY, name="broken", methods=("diverges",))
    registry["toy"] = TOY
    registry["far"] = replace(TOY, name="far", data_sets=lambda profile: ("mnist", "boston"))
    registry["long"] = replace(TOY, name="long", needs_gpu=True)
    code, out, err = call("run", "--profile", "paper")
    assert code == 2
    assert err.splitlines()[-1].startswith("error: 1 of 3 runs of broken failed: diverges seed 1")
    assert "far is left out: get its data with python -m gpvi_lib data mnist boston\n" in err
    assert "long is left out: it is for a GPU; name it to run it on a CPU\n" in err
    assert {line.split()[0] for line in out.splitlines()} == {"toy"}
    assert all(records.state(TOY.cell(method, seed, "paper")) == "valid" for method in TOY.methods for seed in range(3))
    assert call("run", "toy", "broken", "--method", "svgd")[::2] == (
        2, "error: --method and --seed belong to one experiment: name it, `list` shows them all\n"
    )  # fmt: skip


@pytest.mark.parametrize(("device", "taken"), [("cpu", ["toy"]), ("cuda", ["toy", "long"]), ("auto", ["toy", "long"])])
def test_an_executor_finds_its_own_device(call, registry, monkeypatch, device, taken):
    """The machine that submits has no GPU, and workers may have one."""
    names = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(executors, "connect", lambda name, scheduler: nullcontext(name))
    monkeypatch.setattr(runner, "sweep", lambda one, *_, **settings: names.append(one.name) or [])
    registry["long"] = replace(TOY, name="long", needs_gpu=True)
    assert call("run", "--profile", "paper", "--executor", "slurm", "--device", device)[0] == 0
    assert names == taken


def test_a_budget_is_shared_by_the_experiments(call, registry, monkeypatch):
    budgets, clock = [], iter([1_000.0 + 5 * i for i in range(100)])  # five seconds from one look to the next
    monkeypatch.setattr(runner, "sweep", lambda *_, budget, **__: budgets.append(budget) or [])
    monkeypatch.setattr(
        "gpvi_lib.__main__.time", SimpleNamespace(time=lambda: next(clock), monotonic=lambda: next(clock))
    )
    registry["other"] = replace(TOY, name="other")
    assert call("run", "--budget", "1")[0] == 0
    assert budgets == [55, 50]


def test_a_budget_that_ends_hides_no_failure(call, registry, monkeypatch):
    registry.clear()
    registry["broken"] = replace(TOY, name="broken", methods=("diverges",))
    registry["toy"] = TOY
    whole = runner.sweep

    def sweep(experiment, *arguments, **settings):
        if experiment is TOY:
            raise OutOfTime("toy: time is up")
        return whole(experiment, *arguments, **settings)

    monkeypatch.setattr(runner, "sweep", sweep)
    code, _, err = call("run", "--profile", "paper", "--budget", "1")
    assert code == 75
    assert err.splitlines()[-1].startswith("1 of 3 runs of broken failed: diverges seed 1")
    assert err.splitlines()[-1].endswith("; toy: time is up")
    del registry["broken"]
    assert call("run", "--profile", "paper", "--budget", "1")[::2] == (75, "toy: time is up\n")


def test_relative_folders_of_the_environment_are_those_of_the_command(call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPVI_RESULTS", "out")
    assert call("run", "toy", "--profile", "paper", "--method", "svgd")[0] == 0
    assert os.environ["GPVI_RESULTS"] == str(tmp_path / "out")
    assert list((tmp_path / "out").rglob("svgd-seed0.json"))


def test_list_can_show_only_what_is_missing(call):
    runner.sweep(TOY, "paper", methods=["svgd", "gpvi_best"], progress=False)
    runner.run_or_load(TOY.cell("gpvi", 1, "paper")).path.write_text("{")
    code, out, _ = call("list", "--missing", "paper")
    assert code == 0
    assert [line.split(maxsplit=2) for line in out.splitlines()[1:]] == [
        ["toy", "gpvi", "missing 0, 2; damaged 1"],
        ["toy", "plain", "missing 0, 1, 2"],
    ]


def test_list_says_why_something_is_missing(call, registry, tmp_path):
    registry["big"] = replace(TOY, name="big", methods=("svgd", "gpvi"), needs_gpu=True)
    runner.run_or_load(TOY.cell("svgd", 0, "paper"), progress=False)
    entry = '[[entry]]\nwhat = "{}"\nexperiment = "{}"\nmethods = ["{}"]\nseeds = {}\nhours = 1\n'
    queued = (("toy", "svgd", [0, 1, 2]), ("toy", "gpvi", [0, 1]), ("big", "svgd", [0]))
    (tmp_path / "results" / "queue.toml").write_text("".join(entry.format("some", *one) for one in queued))
    _, out, _ = call("list", "--missing", "paper")
    assert [re.split("  +", line) for line in out.splitlines()] == [
        ["experiment", "method", "seeds", "why"],
        ["toy", "svgd", "missing 1, 2", "in the queue"],
        ["toy", "gpvi", "missing 0, 1, 2", "in the queue: 0, 1"],
        ["toy", "gpvi_best", "missing 0, 1, 2"],
        ["toy", "plain", "missing 0, 1, 2"],
        ["big", "svgd", "missing 0, 1, 2", "in the queue: 0"],
        ["big", "gpvi", "missing 0, 1, 2", "needs a GPU"],
    ]
    assert "queue" not in call("list", "--missing", "quick")[1]  # whose runs are at paper


def test_a_method_that_draws_nothing_counts_with_one_seed(call, registry):
    registry["toy"] = once = replace(TOY, methods=("svgd", "plain"), once=("plain",))
    assert "plain" in call("list", "--missing", "paper")[1]
    assert call("run", "toy", "--profile", "paper")[0] == 0
    assert CALLS == [("svgd", 0), ("svgd", 1), ("svgd", 2), ("plain", 0)]
    assert len(call("list", "--missing", "paper")[1].splitlines()) == 1
    assert [line.split()[-1] for line in call("list")[1].splitlines()[2:4]] == ["3/3", "1/1"]
    assert records.frame(once, "paper")["method"].tolist() == 3 * ["svgd"] + ["plain"]
    assert [len(found) for found in runner.by_method(once, "paper").values()] == [3, 1]
    err = call("run", "toy", "--profile", "paper", "--method", "plain", "--seed", "1")[2]
    assert err.startswith("note: plain of toy draws nothing: no table counts another seed than 0\n")


def test_a_seed_that_no_table_counts_is_noted(call):
    code, _, err = call("run", "toy", "--method", "svgd", "--seed", "1", "--seed", "99", "--profile", "paper")
    assert code == 0 and CALLS == [("svgd", 1), ("svgd", 99)]
    assert err.startswith("note: seed 99 is none of toy's at paper (0, 1, 2): no table counts its record\n")
    assert "note:" not in call("run", "toy", "--seed", "1")[2]


def test_missing_data_are_named_once_and_only_where_something_has_to_run(call, registry):
    registry["toy"] = replace(TOY, data_sets=lambda profile: ("boston", "mnist"))
    code, out, err = call("run", "toy", "--profile", "paper")
    assert (code, out, CALLS) == (2, "", [])
    assert err.startswith("error: toy needs data that are not here: run `python -m gpvi_lib data boston mnist`, or set")
    registry["toy"] = TOY
    runner.sweep(TOY, "paper", progress=False)
    registry["toy"] = replace(TOY, data_sets=lambda profile: ("boston", "mnist"))
    assert call("run", "toy", "--profile", "paper")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--method", "gpvi"), "--method and --seed belong to one experiment: name it"),
        (("run", "toy", "--scheduler", "tcp://host:8786"), "--scheduler belongs to an executor: add --executor dask"),
        (("run", "toy", "--executor", "dask", "--jobs", "2"), "--jobs is for processes here: an executor runs as many"),
        (("run", "toy", "--fresh", "--budget", "1"), "--fresh forgets what a command with --budget has done"),
        (("run", "tyo"), "unknown experiment 'tyo'; did you mean 'toy'? (`python -m gpvi_lib list` shows all 1)"),
        (("run", "toy", "--method", "gpvy"), "unknown method 'gpvy' of toy; did you mean 'gpvi'?"),
        (("run", "toy", "--profile", "papr"), "unknown profile 'papr'; did you mean 'paper'?"),
        (("run", "toy", "--device", "cuda"), "device 'cuda' is not available: torch sees 0 CUDA GPUs"),
        (("run", "toy", "--seed", str(2**70)), "--seed must be from 0 to 4294967295, got 1180591620717411303424"),
        (("run", "toy", "--seed", "-1"), "--seed must be from 0 to 4294967295, got -1"),
        (("notebooks", "--timeout", "-1"), "--timeout must be a positive number of seconds, got -1; leave it out"),
        (("refresh", "--timeout", "nan"), "--timeout must be a positive number of seconds, got nan"),
        (("scoreboard", "--profile", "papr"), "unknown profile 'papr'"),
        (("notebooks", "99"), "unknown notebook '99'"),
        (("notebooks", "--profile", "papr"), "unknown profile 'papr'"),
        (("notebooks", "--device", "cuda"), "device 'cuda' is not available"),
        (("normalise", "99"), "unknown notebook '99'"),
        (("refresh", "99"), "unknown notebook '99'"),
        (("data", "minst"), "unknown downloadable data set 'minst'; did you mean 'mnist'?"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(call, monkeypatch, arguments, message):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert CALLS == []


def test_a_failed_run_names_its_cells_in_one_line(call, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, methods=("svgd", "diverges")))
    code, _, err = call("run", "toy", "--profile", "paper")
    assert code == 2
    assert err.splitlines()[-1] == (
        "error: 1 of 6 runs of toy failed: "
        "diverges seed 1: toy/diverges seed 1 met nan at step 7; lower the learning rate"
    )


def test_the_module_runs_as_a_command_without_a_traceback():
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "gpvi_lib", "run", "bayesian-linear-regresion"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120, env=dict(os.environ))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown experiment 'bayesian-linear-regresion'; did you mean")
    assert "Traceback" not in done.stderr


# Scoreboard and data


def test_scoreboard_prints_an_aligned_table_and_writes_it(call, tmp_path):
    runner.sweep(TOY, "paper", progress=False)
    code, out, _ = call("scoreboard")
    assert code == 0
    lines = out.splitlines()
    (svgd,) = [line for line in lines if line.split()[:3] == ["gpvi/table2", "sigma_error", "svgd"]]
    assert svgd.index("0.125 ± 0.03") == lines[0].index("paper")
    assert svgd.index("0.11 ± 0.01") == lines[0].index("ours")
    assert svgd.endswith("agrees")
    assert "not run" in lines[-2]
    assert lines[-1] == "written to results/scoreboard.csv"
    assert (tmp_path / "results" / "scoreboard.csv").exists()


def test_short_runs_get_no_verdict(call):
    runner.sweep(TOY, "smoke", progress=False)
    out = call("scoreboard", "--profile", "smoke")[1]
    assert "0.125 ± 0.03" in out and "agrees" not in out
    assert out.splitlines()[-2].startswith("no verdicts: these runs are far shorter")


def test_scoreboard_brings_its_pages_up_to_date(call, tmp_path, monkeypatch):
    from gpvi_lib.report import pages

    monkeypatch.setitem(EXPERIMENTS, "far", replace(TOY, name="far"))
    monkeypatch.setattr(pages, "MAP", (("Table 2", "notebooks/13", (TOY.name, "far")),))
    for name in ("13-b", "13-a", "14-c"):
        (tmp_path / "figures" / "paper").mkdir(parents=True, exist_ok=True)
        (tmp_path / "figures" / "paper" / f"{name}.png").touch()
    found = {name: tmp_path / "docs" / f"{name}.md" for name in ("map", "scoreboard")}
    (tmp_path / "docs").mkdir(exist_ok=True)
    for page in found.values():
        page.write_text("top\n<!-- generated -->\n\n<!-- /generated -->\n")
    runner.sweep(TOY, "paper", progress=False)
    assert call("scoreboard", "--profile", "quick")[0] == 0 and "0.11 ± 0.01" not in found["scoreboard"].read_text()
    assert call("scoreboard")[0] == 0
    row = "| Table 2 | [13](../notebooks/13.ipynb) | [a](../figures/paper/13-a.png), [b](../figures/paper/13-b.png) |"
    assert f"{row} `toy` (12, 0 min), `far` (none yet) |" in found["map"].read_text()
    assert "|  | sigma error | SVGD | printed | 0.125 ± 0.03 | 0.11 ± 0.01 | 3 |" in found["scoreboard"].read_text()


def test_data_downloads_what_is_asked_for(call, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(data, "download", lambda name, root: asked.append((name, root)))
    assert call("data", "mnist")[0] == 0
    assert asked == [("mnist", tmp_path / "data")]
    assert call("data")[0] == 2


# Notebooks


def test_notebooks_runs_all_and_names_the_failed_ones(call, tmp_path):
    folder = tmp_path / "notebooks"
    notebook(folder, "00-good", "print(profile, device, fresh)")
    notebook(folder, "01-bad", "raise ValueError('no such thing')")
    notebook(folder, "02-good", "print(seed)")
    code, out, err = call("notebooks", "--profile", "smoke", "--jobs", "2", "--fresh")
    assert code == 1
    assert sorted(line.split(" ", 1)[1].rsplit(" (", 1)[0] for line in out.splitlines()) == [
        "00-good.ipynb ok",
        "01-bad.ipynb FAILED",
        "02-good.ipynb ok",
    ]
    assert err.splitlines()[-2].startswith("error: 01-bad.ipynb failed in cell [3]")
    assert err.splitlines()[-2].endswith("ValueError: no such thing")
    assert err.splitlines()[-1] == "1 of 3 notebooks failed: 01-bad.ipynb"
    copies = tmp_path / "build" / "notebooks" / "smoke"
    assert "smoke cpu True" in (copies / "00-good.ipynb").read_text()
    assert {path.name for path in copies.iterdir()} == {"00-good.ipynb", "01-bad.ipynb", "02-good.ipynb"}


def test_a_copy_never_replaces_its_notebook(call, tmp_path):
    path = notebook(tmp_path / "notebooks", "00-bad", "raise ValueError")
    before = path.read_text()
    code, _, err = call("notebooks", "--profile", "smoke", "--output", str(path.parent))
    assert code == 1 and "the copy of 00-bad.ipynb would replace it: give another folder than" in err
    assert path.read_text() == before


def test_notebooks_takes_names_a_folder_and_a_time_limit(call, tmp_path):
    folder = tmp_path / "notebooks"
    notebook(folder, "00-good", "print(profile)")
    notebook(folder, "01-slow", "import time; time.sleep(60)")
    code, out, _ = call("notebooks", "00", "--profile", "smoke", "--output", str(tmp_path / "elsewhere"))
    assert code == 0
    assert out.startswith("[1/1] 00-good.ipynb ok (")
    assert (tmp_path / "elsewhere" / "00-good.ipynb").exists()
    code, _, err = call("notebooks", "01-slow", "--profile", "smoke", "--timeout", "2")
    assert code == 1
    assert "CellTimeoutError" in err


def test_refresh_and_normalise_change_the_notebooks_in_place(call, tmp_path):
    path = notebook(tmp_path / "notebooks", "00-good", "print(profile, seed)")
    assert call("refresh")[0] == 0
    assert "paper 0" in path.read_text()
    assert call("normalise") == (0, "00-good.ipynb: unchanged\n", "")
    content = nbformat.read(path, as_version=4)
    content.cells[0].metadata["execution"] = {"iopub.execute_input": "now"}
    nbformat.write(content, path)
    assert call("normalise", "00") == (0, "00-good.ipynb: rewritten\n", "")
    assert "iopub" not in path.read_text()
