"""What every committed notebook must be; `problems` lists what one is not."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from nbformat import NotebookNode
from PIL import Image

from gpvi_lib.errors import NotebookError
from gpvi_lib.paths import repository
from gpvi_lib.report import notebooks
from gpvi_lib.report.plotting import matches_data

PARAMETERS = {"profile": "paper", "seed": 0, "device": "cpu", "fresh": False}
PROSE = 1500
BLANK = 5.0
"""Standard deviation of 8-bit grey values below which a picture counts as blank; plots have 15 and more."""
NOTE = 30
"""Rows of pixels at the bottom that hold the note of the profile."""
LINES = 20
"""Lines of a code cell that is not folded."""

FOLDERS_OF_MACHINES = re.compile(
    r"(?<![\w.:/])/(home|root|Users|tmp|var|mnt|opt|usr|private|scratch)/\w|[A-Z]:\\+Users"
)


STATED = re.compile(r"\*\*(?:Statement|Theorem|Proposition|Lemma) (\d+)")


DRAWN = {"lines", "patches", "collections", "images"}


def problems(path: Path, figures: Path) -> list[str]:
    """What is wrong with a notebook, given the folder of its figures; empty if nothing is."""
    try:
        notebook = notebooks.read(path)
    except NotebookError as error:
        return [str(error)]
    checks = (_order, _outputs, _shown, _metadata, _parameters, _prose, _statements, _paths, _folds, _lengths)
    found = [problem for check in checks for problem in check(notebook)]
    return found + list(_figures(notebook, path.stem, figures))


def figure_names(notebook: NotebookNode) -> list[str | None]:
    """The name in each call of `save_figure`, None for one that is not a plain string."""
    return [name for cell in _code(notebook) for name in _saved(cell)]


def _saved(cell: NotebookNode) -> list[str | None]:
    python = "\n".join(line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!")))
    names = []
    for node in ast.walk(ast.parse(python)):
        if isinstance(node, ast.Call) and _called(node) == "save_figure":
            given = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "name")]
            names.append(given[0].value if given and isinstance(given[0], ast.Constant) else None)
    return names


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def _order(notebook: NotebookNode) -> Iterator[str]:
    counts = [cell.execution_count for cell in _code(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"cells were not executed once and in order: {counts}"


def _outputs(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"cell [{cell.execution_count}] holds an error: {output.ename}"
            if output.get("name") == "stderr":
                yield f"cell [{cell.execution_count}] holds stderr: {output.text[:60]!r}"


def _shown(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        if _saved(cell) and not any("image/png" in output.get("data", {}) for output in cell.outputs):
            yield f"cell [{cell.execution_count}] saves a figure and does not show it"


def _metadata(notebook: NotebookNode) -> Iterator[str]:
    if notebooks.normalised(notebook) != notebook:
        yield "holds timings or other metadata of a run: python -m gpvi_lib normalise strips them"


def _parameters(notebook: NotebookNode) -> Iterator[str]:
    found = notebooks.parameters_of(notebook)
    if found != PARAMETERS:
        yield f"its parameters are {found}, not {PARAMETERS}"


def _prose(notebook: NotebookNode) -> Iterator[str]:
    length = sum(len(cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    if length < PROSE:
        yield f"has {length} characters of prose, fewer than {PROSE}"


def _statements(notebook: NotebookNode) -> Iterator[str]:
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    numbers = [int(number) for number in STATED.findall(prose)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its statements are numbered {numbers}, not in order from 1 without a gap"


def _folds(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        in_lab = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        if _hidden(cell) != in_lab:
            yield f"cell [{cell.execution_count}] is folded in {'JupyterLab' if in_lab else 'the book'} only"


def _lengths(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        lines = len(cell.source.splitlines())
        if lines > LINES and not _hidden(cell):
            yield f"cell [{cell.execution_count}] shows {lines} lines of code, more than {LINES}: split it, or fold it"


def _hidden(cell: NotebookNode) -> bool:
    return "hide-input" in cell.metadata.get("tags", [])


def _texts(notebook: NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield str(output.get("text", ""))
            yield from (str(text) for kind, text in output.get("data", {}).items() if kind.startswith("text/"))


def _paths(notebook: NotebookNode) -> Iterator[str]:
    here = [str(folder) for folder in (repository(), Path.home(), Path(sys.prefix)) if len(folder.parts) > 1]
    for text in _texts(notebook):
        match = FOLDERS_OF_MACHINES.search(text)
        named = [folder for folder in here if folder in text] or ([match[0]] if match else [])
        if named:
            yield f"names a folder of a machine: {named[0]}"


def _figures(notebook: NotebookNode, stem: str, figures: Path) -> Iterator[str]:
    for name in figure_names(notebook):
        if name is None:
            yield "save_figure is called with a name that is not a plain string"
        elif not name.startswith(stem.split("-")[0] + "-"):
            yield f"figure {name} does not start with the notebook's number"
        else:
            yield from figure_problems(figures / f"{name}.png")


def figure_problems(path: Path) -> Iterator[str]:
    """What is wrong with one figure: missing, blank, or not the picture of the data beside it."""
    if not path.exists() or not path.with_suffix(".json").exists():
        yield f"figure {path.name} or its data is missing"
        return
    with Image.open(path) as image:
        spread = np.asarray(image.convert("L"), dtype=float)[:-NOTE].std()
    axes = json.loads(path.with_suffix(".json").read_text())["axes"]
    if spread < BLANK or not any(DRAWN & drawn.keys() for drawn in axes):
        yield f"figure {path.name} is blank"
    if not matches_data(path):
        yield f"figure {path.name} is not of the data beside it"
