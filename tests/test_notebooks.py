"""The committed notebooks: whole, executed, with their figures; and the same code runs at `smoke`."""

import pytest
import smoke_runs
import toy_experiment
from notebook_checks import figure_names, figure_problems, problems

from gpvi_lib import paths
from gpvi_lib.report import notebooks

NOTEBOOKS = sorted(paths.notebooks_root().glob("*.ipynb"))
FIGURES = paths.repository() / "figures" / "paper"


@pytest.mark.parametrize("number", ["00a", *(f"{n:02}" for n in (*range(9), *range(10, 27)))])
def test_the_notebook_exists(number):
    assert [path.stem for path in NOTEBOOKS if path.stem.startswith(f"{number}-")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_says_of_records_has_a_test_file(path):
    number = path.stem.split("-")[0]
    files = [file.stem.split("_") for file in (paths.repository() / "tests" / "claims").glob("test_*.py")]
    assert any(number in parts for parts in files), f"{path.name}: what it says goes into tests/claims/test_{number}.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_as_it_must_be(path):
    found = problems(path, FIGURES)
    assert not found, "\n".join(found)


def test_every_committed_figure_comes_from_a_notebook():
    named = {name for path in NOTEBOOKS for name in figure_names(notebooks.read(path))}
    found = {path.name for path in FIGURES.glob("*")}
    assert found == {f"{name}.{kind}" for name in named for kind in ("png", "json")}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_at_smoke(path, monkeypatch, tmp_path):
    toy_experiment.redirect(monkeypatch, tmp_path)
    assert smoke_runs.run(path) is None
    _figures_are_whole(path, tmp_path)


def test_a_notebook_runs_at_smoke_as_users_run_it(monkeypatch, tmp_path):
    """The other tests of this file that run notebooks do so without a kernel."""
    (path,) = notebooks.find(["00a"])
    toy_experiment.redirect(monkeypatch, tmp_path)
    executed = notebooks.execute(path, parameters={"profile": "smoke"}, timeout=300)
    assert executed == tmp_path / "build" / "notebooks" / "smoke" / path.name
    _figures_are_whole(path, tmp_path)


def _figures_are_whole(path, folder):
    for name in figure_names(notebooks.read(path)):
        assert list(figure_problems(folder / "figures" / "smoke" / f"{name}.png")) == []
