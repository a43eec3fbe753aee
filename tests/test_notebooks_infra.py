"""Executing, refreshing and checking notebooks, on tiny ones made here."""

import json
import sys
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import nbformat
import pytest
import toy_experiment
from forked_kernels import NbvalKernels
from nbconvert.preprocessors import CellExecutionError, ExecutePreprocessor
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_checks import problems

from gpvi_lib import paths
from gpvi_lib.errors import NotebookError, UnknownName
from gpvi_lib.report import notebooks, plotting

PARAMETERS = 'profile = "paper"\nseed = 0\ndevice = "cpu"\nfresh = False'


@pytest.fixture(autouse=True)
def books(monkeypatch, tmp_path) -> Path:
    """The folder of notebooks of a repository of our own."""
    toy_experiment.redirect(monkeypatch, tmp_path)
    monkeypatch.setattr(paths, "repository", lambda: tmp_path)
    (tmp_path / "notebooks").mkdir()
    return tmp_path / "notebooks"


def make(folder: Path, name: str, *sources: str) -> Path:
    """A notebook that was never executed: prose, the parameters, and a code cell for each source."""
    notebook = new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    parameters = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [new_markdown_cell("Some words. " * 150), parameters, *map(new_code_cell, sources)]
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def printed(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


# Finding and reading


def test_find_by_path_name_or_number(books):
    first, second = make(books, "00-start"), make(books, "03-kernels")
    assert notebooks.find() == [first, second]
    for name in ("03", "03-kernels", "03-kernels.ipynb", "notebooks/03-kernels.ipynb", str(second)):
        assert notebooks.find([name]) == [second]
    assert notebooks.find(["03", "00"]) == [second, first]
    with pytest.raises(UnknownName, match=r"unknown notebook '04' \(valid: 00-start, 03-kernels\)"):
        notebooks.find(["04"])
    with pytest.raises(UnknownName, match="elsewhere/03-kernels.ipynb"):  # of a copy that is not there
        notebooks.find([f"{books}/elsewhere/03-kernels.ipynb"])


def test_parameters_are_read_and_not_run(books):
    path = make(books, "00-start")
    expected = {"profile": "paper", "seed": 0, "device": "cpu", "fresh": False}
    assert notebooks.parameters_of(notebooks.read(path)) == expected
    assert notebooks.parameters_of(new_notebook()) == {}
    for source in ("seed = open('x')", "a, b = 1, 2", "print(1)", "seed ="):
        cell = new_code_cell(source, metadata={"tags": ["parameters"]})
        with pytest.raises(NotebookError, match="must hold only lines like"):
            notebooks.parameters_of(new_notebook(cells=[cell]))


@pytest.mark.parametrize(
    "content", ["", "{", "{}", '{"cells": [{}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}']
)
def test_a_file_that_is_no_notebook(books, content):
    path = books / "00-start.ipynb"
    path.write_text(content)
    with pytest.raises(NotebookError, match=r"^notebooks/00-start.ipynb is not a valid notebook"):
        notebooks.read(path)


# Executing


def test_execute_runs_a_copy_at_the_given_parameters(books, tmp_path):
    path = make(books, "00-start", "print(profile, seed, device, fresh)")
    before = path.read_bytes()
    copy = notebooks.execute(path, parameters={"profile": "smoke", "seed": 7})
    assert copy == tmp_path / "build" / "notebooks" / "smoke" / "00-start.ipynb"
    assert printed(copy) == "smoke 7 cpu False\n"
    assert path.read_bytes() == before
    assert printed(notebooks.execute(path, tmp_path / "elsewhere")) == "paper 0 cpu False\n"
    assert (tmp_path / "elsewhere" / "00-start.ipynb").exists()


def test_the_kernel_is_this_python_in_the_notebooks_folder(books, monkeypatch, tmp_path):
    """Even where the user has another kernel of the same name, as after `ipython kernel install --user`."""
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    path = make(books, "00-start", "import os, sys\nprint(sys.executable, os.getcwd())")
    assert printed(notebooks.execute(path)) == f"{sys.executable} {books.resolve()}\n"


def test_a_kernel_needs_no_port_that_another_process_could_take(books):
    here = make(books, "00-start", "import ipykernel.connect as c, json; print(open(c.get_connection_file()).read())")
    assert json.loads(printed(notebooks.execute(here)))["transport"] == "ipc"


def test_unknown_parameters_and_profiles_stop_before_anything_runs(books, tmp_path):
    path = make(books, "00-start", "open('ran', 'w')")
    with pytest.raises(UnknownName, match=r"unknown parameter 'sed' of 00-start.ipynb; did you mean 'seed'\?"):
        notebooks.execute(path, parameters={"sed": 1})
    with pytest.raises(UnknownName, match=r"unknown profile 'smok'; did you mean 'smoke'\?"):
        notebooks.execute(path, parameters={"profile": "smok"})
    assert not (books / "ran").exists()
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("source", "timeout", "message"),
    [
        (
            "1 / 0",
            60,
            r"failed in cell \[2\] of build/notebooks/paper/00-start.ipynb: ZeroDivisionError: division",
        ),
        ("import os; os._exit(1)", 60, "00-start.ipynb failed: DeadKernelError"),
        ("import time\ntime.sleep(60)", 3, "00-start.ipynb failed: CellTimeoutError.*time.sleep"),
    ],
)
def test_a_failing_cell_is_named(books, source, timeout, message):
    with pytest.raises(NotebookError, match=message):
        notebooks.execute(make(books, "00-start", source), timeout=timeout)


def test_all_notebooks_run_side_by_side_even_if_some_fail(books, capfd, monkeypatch):
    """On a machine with seven cores each of two at a time has three threads."""
    monkeypatch.setattr(notebooks, "cores", lambda: 7)
    threads = "import os\nprint(os.environ['OMP_NUM_THREADS'])"
    made = [make(books, f"0{n}-book", threads if n != 1 else "1 / 0") for n in range(3)]
    reported = []
    action = partial(notebooks.execute, parameters={"profile": "smoke"}, timeout=60)
    failed = notebooks.run_all(action, made, 2, lambda *report: reported.append(report))
    assert list(failed) == ["01-book.ipynb"]
    assert failed["01-book.ipynb"].endswith("01-book.ipynb: ZeroDivisionError: division by zero")
    assert sorted(name for name, _, _ in reported) == [path.name for path in made]
    assert all(seconds > 0 for _, seconds, _ in reported)
    copies = paths.build_root() / "notebooks" / "smoke"
    assert printed(copies / "00-book.ipynb") == printed(copies / "02-book.ipynb") == "3\n"


def test_the_later_and_longer_notebooks_start_first(books):
    made, reported = [make(books, f"0{n}-book") for n in range(3)], []
    notebooks.run_all(_nothing, made, 1, lambda *told: reported.append(told[0]))
    assert reported == ["02-book.ipynb", "01-book.ipynb", "00-book.ipynb"]


def _nothing(path: Path) -> None:
    pass


def unpicklable_failure(path: Path) -> None:
    raise SystemExit(3)


def test_a_worker_that_ends_is_reported_too(books):
    failed = notebooks.run_all(unpicklable_failure, [make(books, "00-start")])
    assert list(failed) == ["00-start.ipynb"]


def test_nbval_computes_no_record_at_paper(books):
    path = make(
        books,
        "00-start",
        "from gpvi_lib.experiments import get_experiment\nfrom gpvi_lib.lab.runner import sweep",
        "sweep(get_experiment('fpovi-exact'), profile, methods=['draws'], seeds=[0], dirty=True)",
    )
    run = ExecutePreprocessor(kernel_manager_class=NbvalKernels, timeout=60)
    with pytest.raises(CellExecutionError, match="only read records"):
        run.preprocess(nbformat.read(path, as_version=4), {"metadata": {"path": str(books)}})


# Refreshing


def test_refresh_puts_outputs_in_place_and_repeats_to_the_byte(books):
    path = make(books, "00-start", "print('one')\nprint(profile, flush=True)\nprint('two')", "'a value'")
    notebooks.refresh(path)
    first = path.read_bytes()
    assert printed(path) == "one\npaper\ntwo\n"
    assert [cell.get("execution_count") for cell in notebooks.read(path).cells] == [None, 1, 2, 3]
    assert problems(path, books) == []
    notebooks.refresh(path)
    assert path.read_bytes() == first
    assert not notebooks.normalise(path)


def test_refresh_keeps_the_old_notebook_when_a_cell_fails(books):
    path = make(books, "00-start", "print('half')", "1 / 0")
    before = path.read_bytes()
    with pytest.raises(NotebookError, match="ZeroDivisionError"):
        notebooks.refresh(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in books.iterdir()] == ["00-start.ipynb"]


def test_refresh_does_not_take_what_another_command_executes(books, monkeypatch):
    """A run of the same notebook rewrites its copy in build/ cell by cell."""
    path = make(books, "01-start", "print('mine')")
    execute = notebooks.execute

    def beside_another(*arguments, **named):
        executed = execute(*arguments, **named)
        for copy in books.parent.rglob("build/notebooks/**/01-start.ipynb"):
            copy.write_text("half of it")
        make(paths.build_root() / "notebooks" / "paper", "01-start", "print('cleared')")
        return executed

    (paths.build_root() / "notebooks" / "paper").mkdir(parents=True)
    monkeypatch.setattr(notebooks, "execute", beside_another)
    assert printed(notebooks.refresh(path)) == "mine\n"
    assert list((paths.build_root() / "refreshed").iterdir()) == []


def test_a_notebook_is_found_once_however_it_is_named(books):
    path = make(books, "01-start", "1")
    assert notebooks.find(["01", "01-start", str(path)]) == [path]


def test_braces_in_a_folder_s_name_are_no_parameters(books, tmp_path):
    path = make(books, "01-start", "print('here')")
    executed = notebooks.execute(path, tmp_path / "{profile} {" / "copies", {"profile": "smoke"}, timeout=59.5)
    assert executed == tmp_path / "{profile} {" / "copies" / "01-start.ipynb" and printed(executed) == "here\n"


def test_refresh_keeps_what_was_edited_while_it_ran(books):
    path = make(books, "00-start", "with open('00-start.ipynb', 'ab') as file: file.write(b' ')")
    before = path.read_bytes()
    with pytest.raises(NotebookError, match="00-start.ipynb was edited while it ran and is left as it is"):
        notebooks.refresh(path)
    assert path.read_bytes() == before + b" "


def test_normalise_strips_what_changes_and_keeps_the_rest(books):
    path = make(books, "00-start", "print(1)")
    notebook = notebooks.read(path)
    clean = nbformat.from_dict(notebook)
    notebook.metadata.update(papermill={"duration": 1.5}, widgets={"state": {}})
    notebook.metadata.language_info = {"name": "python", "version": "3.11.7"}
    clean.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.update(papermill={"duration": 0.1}, execution={"iopub.execute_input": "now"}, collapsed=True)
        cell.metadata.setdefault("tags", [])
    pieces = [new_output("stream", name="stdout", text=text) for text in ("1", "2\n")]
    bar = new_output("display_data", {notebooks.WIDGET_VIEW: {}, "text/plain": "bar"})
    picture = new_output("display_data", {"text/plain": "a figure"})
    notebook.cells[2].outputs = [*pieces, bar, picture]
    clean.cells[2].outputs = [new_output("stream", name="stdout", text="12\n"), picture]
    nbformat.write(notebook, path)
    assert notebooks.normalise(path)
    assert notebooks.read(path) == clean
    assert not notebooks.normalise(path)


# The checks of the committed notebooks find what they are for


@pytest.fixture
def good(books):
    """A notebook without any problem, its figure, and the folder of its figures."""
    plotting.save_figure(plt.figure(figsize=(3, 2)), "00-blank", "paper")
    plotting.save_figure(plt.subplots(figsize=(3, 2))[0], "00-axes-only", "paper")
    fig, axes = plt.subplots(figsize=(3, 2))
    axes.set_axis_off()
    axes.plot([0, 1], [1, 0], color="white")
    plotting.save_figure(fig, "00-white-on-white", "paper")
    fig, axes = plt.subplots(figsize=(3, 2))
    axes.plot([0, 1], [1, 0])
    plotting.save_figure(fig, "00-start-line", "paper")
    path = make(books, "00-start", "%matplotlib inline\nsave_figure(fig, '00-start-line', profile)", "print(1)", "")
    notebook = notebooks.read(path)
    for count, cell in enumerate(notebook.cells[1:-1], start=1):
        cell.execution_count = count
    notebook.cells[2].outputs = [new_output("display_data", {"image/png": "", "text/plain": "<Figure>"})]
    notebook.cells[3].outputs = [new_output("stream", name="stdout", text="1\n")]
    yield notebook, path, paths.figures_root() / "paper"
    plt.close("all")


def found(good) -> str:
    notebook, path, figures = good
    path.write_text(nbformat.writes(notebook) + "\n")
    return "; ".join(problems(path, figures))


def test_a_good_notebook_has_no_problem(good):
    assert found(good) == ""


def unexecuted(notebook):
    notebook.cells[3].execution_count = None


def out_of_order(notebook):
    notebook.cells[2].execution_count, notebook.cells[3].execution_count = 3, 2


def run_twice(notebook):
    notebook.cells[3].execution_count = 4


def error(notebook):
    notebook.cells[3].outputs = [new_output("error", ename="ValueError", evalue="", traceback=[])]


def stderr(notebook):
    notebook.cells[3].outputs.append(new_output("stream", name="stderr", text="a warning"))


def not_shown(notebook):
    notebook.cells[2].outputs = []


def timings(notebook):
    notebook.cells[3].metadata["execution"] = {"iopub.execute_input": "now"}


def no_parameters(notebook):
    del notebook.cells[1].metadata["tags"]


def other_profile(notebook):
    notebook.cells[1].source = PARAMETERS.replace("paper", "quick")


def extra_parameter(notebook):
    notebook.cells[1].source += "\nsteps = 3"


def no_prose(notebook):
    notebook.cells[0].source = "# A title"


def path_in_output(notebook):
    notebook.cells[3].outputs[0].text = "reading /home/someone/data.csv\n"


def path_of_this_machine(notebook):
    notebook.cells[0].source += f" see {sys.prefix}"


def missing_figure(notebook):
    notebook.cells[2].source = "plotting.save_figure(fig, name='00-start-other', profile=profile)"


def figure_of_another_notebook(notebook):
    notebook.cells[2].source = "save_figure(fig, '01-start-line', profile)"


def computed_name(notebook):
    notebook.cells[2].source = "save_figure(fig, f'00-{seed}', profile)"


def blank_figure(notebook):
    notebook.cells[2].source = "save_figure(fig, '00-blank', profile)"


def axes_without_data(notebook):
    notebook.cells[2].source = "save_figure(fig, '00-axes-only', profile)"


def statement_lost(notebook):
    notebook.cells[0].source += "\n\n**Statement 1.** True.\n\n**Statement 3.** As well."


def folded_in_the_book_only(notebook):
    notebook.cells[3].metadata["tags"] = ["hide-input"]


def folded_in_the_lab_only(notebook):
    notebook.cells[3].metadata["jupyter"] = {"source_hidden": True}


def long_cell(notebook):
    notebook.cells[3].source = "\n".join(["print(1)"] * 21)


def data_without_picture(notebook):
    notebook.cells[2].source = "save_figure(fig, '00-white-on-white', profile)"


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (unexecuted, "not executed once and in order: [1, 2, None]"),
        (out_of_order, "not executed once and in order: [1, 3, 2]"),
        (run_twice, "not executed once and in order: [1, 2, 4]"),
        (error, "cell [3] holds an error: ValueError"),
        (stderr, "cell [3] holds stderr: 'a warning'"),
        (not_shown, "cell [2] saves a figure and does not show it"),
        (timings, "holds timings"),
        (no_parameters, "its parameters are {}"),
        (other_profile, "its parameters are {'profile': 'quick'"),
        (extra_parameter, "'steps': 3}, not"),
        (no_prose, "has 9 characters of prose"),
        (statement_lost, "its statements are numbered [1, 3]"),
        (path_in_output, "names a folder of a machine: /home/s"),
        (path_of_this_machine, "names a folder of a machine: "),
        (missing_figure, "figure 00-start-other.png or its data is missing"),
        (figure_of_another_notebook, "figure 01-start-line does not start with the notebook's number"),
        (computed_name, "not a plain string"),
        (blank_figure, "figure 00-blank.png is blank"),
        (axes_without_data, "figure 00-axes-only.png is blank"),
        (data_without_picture, "figure 00-white-on-white.png is blank"),
        (folded_in_the_book_only, "cell [3] is folded in the book only"),
        (folded_in_the_lab_only, "cell [3] is folded in JupyterLab only"),
        (long_cell, "cell [3] shows 21 lines of code, more than 20"),
    ],
)
def test_each_problem_is_found_alone(good, spoil, problem):
    spoil(good[0])
    message = found(good)
    assert problem in message
    assert ";" not in message


def test_a_folded_cell_may_be_long(good):
    long_cell(good[0])
    good[0].cells[3].metadata.update(jupyter={"source_hidden": True}, tags=["hide-input"])
    assert found(good) == ""


def test_a_figure_whose_data_changed_is_found(good):
    data = good[2] / "00-start-line.json"
    data.write_text(data.read_text().replace("1.0", "0.5"))
    assert found(good) == "figure 00-start-line.png is not of the data beside it"


def test_an_invalid_notebook_is_found(good):
    notebook, path, figures = good
    path.write_text(nbformat.writes(notebook).replace('"outputs"', '"results"'))
    (problem,) = problems(path, figures)
    assert "is not a valid notebook" in problem
