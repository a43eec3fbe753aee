"""Executing the notebooks: copies into `build/`; a committed one is replaced only once its run succeeded."""

from __future__ import annotations

import ast
import base64
import math
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import as_completed
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from textwrap import shorten
from typing import Any

import nbformat
import zmq
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from traitlets import default

from gpvi_lib.errors import GPVIError, NotebookError, UnknownName
from gpvi_lib.lab.processes import process_pool
from gpvi_lib.lab.profiles import get_profile
from gpvi_lib.lab.provenance import cores
from gpvi_lib.paths import build_root, notebooks_root, shown, write_atomically
from gpvi_lib.report.pictures import compact

PNG = "image/png"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class SocketFiles(ConnectionFileMixin):
    """A kernel manager that talks through socket files where it can.

    A TCP port that was free when it was chosen may be taken when the kernel, seconds later, binds it.
    """

    @default("transport")
    def _files_where_possible(self) -> str:
        fits = len(gettempdir()) < 70  # of the 104 characters that a socket's path may have
        return "ipc" if fits and zmq.has("ipc") else "tcp"

    @default("connection_file")
    def _in_a_folder_of_its_own(self) -> str:
        folder = mkdtemp(prefix="gpvi-")
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        return str(Path(folder) / "kernel.json")


class RunningInterpreter(SocketFiles, AsyncKernelManager):
    """A kernel manager that starts this very Python, whatever kernels the machine has under that name."""

    @default("transport_encryption")
    def _encrypt_if_possible(self) -> str:
        return "auto" if zmq.has("curve") else "disabled"  # else each kernel warns of plain text on stderr

    @property
    def kernel_spec(self) -> KernelSpec:
        """The specification of an IPython kernel of `sys.executable`."""
        return KernelSpec(**get_kernel_dict())


def find(names: Iterable[str] = ()) -> list[Path]:
    """The notebooks of these names, in order; all for no names.

    A name is a path of a file, a file name with or without `.ipynb`, or its number ("03").

    Each once, however often and in whatever way it is named.

    Raises:
        UnknownName: if a name fits no notebook; the message lists them.
    """
    every = {path.stem: path for path in sorted(notebooks_root().glob("*.ipynb"))}
    numbers = {stem.split("-")[0]: path for stem, path in every.items()}
    found = []
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        is_ours = Path(name).parent in (Path(), Path(notebooks_root().name))  # another folder's is not meant
        path = Path(name) if Path(name).is_file() else is_ours and (every.get(stem) or numbers.get(stem))
        if not path:
            raise UnknownName.among("notebook", name, every)
        found.append(path)
    return list({path.resolve(): path for path in found}.values()) or list(every.values())


def read(path: Path) -> NotebookNode:
    """The notebook in a file.

    Raises:
        NotebookError: if it is not a valid notebook of format 4.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except FileNotFoundError:
        raise NotebookError(f"there is no notebook {shown(path)}") from None
    except Exception as error:
        raise NotebookError(f"{shown(path)} is not a valid notebook: {str(error).splitlines()[0]}") from error
    return notebook


def parameters_of(notebook: NotebookNode) -> dict[str, Any]:
    """Name -> committed value of the cell tagged `parameters`; empty without one.

    Raises:
        NotebookError: if the cell is anything but assignments of plain values.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            try:
                return {
                    statement.targets[0].id: ast.literal_eval(statement.value)
                    for statement in ast.parse(cell.source).body
                }
            except (AttributeError, SyntaxError, ValueError):
                message = "the cell tagged `parameters` must hold only lines like `seed = 0`"
                raise NotebookError(message) from None
    return {}


def execute(
    path: Path,
    folder: Path | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Path:
    """Runs a copy of a notebook, in the notebook's own folder and with this Python; returns the copy's path.

    Args:
        folder: where the copy goes, under its own name; default `build/notebooks/<profile>`.
        parameters: values that replace those of its `parameters` cell.
        timeout: seconds that one cell may take, rounded up; None for no limit.
        progress: draw a bar over the cells on stderr.

    Raises:
        UnknownName: before anything runs, if it has no parameter of that name, or the profile does not exist.
        GPVIError: before anything runs, if the copy would replace the notebook.
        NotebookError: if a cell fails or takes too long; the copy up to there is kept.
    """
    import papermill

    path, parameters = Path(path).resolve(), dict(parameters or {})
    known = parameters_of(read(path))
    for name in parameters:
        if name not in known:
            raise UnknownName.among("parameter", name, known, of=path.name)
    profile = get_profile((known | parameters).get("profile", "paper")).name
    folder = build_root() / "notebooks" / profile if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    output = folder.resolve() / path.name
    if output == path:
        raise GPVIError(f"the copy of {path.name} would replace it: give another folder than {shown(folder)}")
    try:
        papermill.execute_notebook(
            _literally(path),
            _literally(output),
            parameters,
            cwd=path.parent,
            progress_bar=progress,
            execution_timeout=None if timeout is None else math.ceil(timeout),
            kernel_manager_class=RunningInterpreter,
        )
    except papermill.PapermillExecutionError as error:
        what = f"{error.ename}: {error.evalue}".strip()
        where = f"cell [{error.exec_count}] of {shown(output)}"
        raise NotebookError(f"{path.name} failed in {where}: {what}") from error
    except Exception as error:
        what = shorten(str(error), 300, placeholder=" ...")  # a cell that took too long is shown in it
        raise NotebookError(f"{path.name} failed: {type(error).__name__}: {what}") from error
    return output


def _literally(path: Path) -> str:
    """A path for papermill, which formats it with the parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def normalised(notebook: NotebookNode) -> NotebookNode:
    """A copy without what changes from run to run: timings, widget states, metadata of tools and versions.

    Sources and outputs stay; pieces of one stream, which arrive cut at random places, are joined, and pictures have a
    palette.
    """
    notebook = nbformat.from_dict(notebook)
    kept = {key: notebook.metadata[key] for key in ("kernelspec", "language_info") if key in notebook.metadata}
    kept.get("language_info", {}).pop("version", None)
    notebook.metadata = nbformat.from_dict(kept)
    for cell in notebook.cells:
        for key in ("execution", "papermill", "ExecuteTime", "collapsed", "scrolled", "trusted"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if cell.cell_type == "code":
            cell.outputs = _joined(output for output in cell.outputs if WIDGET_VIEW not in output.get("data", {}))
            for output in cell.outputs:
                if picture := output.get("data", {}).get(PNG):
                    output["data"][PNG] = _compacted(picture)
    return notebook


def _compacted(picture: str) -> str:
    """A picture in base64, as notebooks have it; unchanged if it has a palette already."""
    png = base64.b64decode(picture)
    small = compact(png)
    return picture if small == png else base64.b64encode(small).decode()


def _joined(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and output.name == last.get("name"):
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def normalise(path: Path) -> bool:
    """Rewrites a notebook without what changes from run to run (see `normalised`); returns whether it did."""
    content = _text(normalised(read(path))).encode()
    changed = content != Path(path).read_bytes()
    if changed:
        write_atomically(Path(path), content)
    return changed


def refresh(path: Path, timeout: float | None = None) -> Path:
    """Runs a committed notebook at its committed parameters and, on success, replaces it by the result.

    Raises:
        NotebookError: if a cell fails, or the committed notebook was edited meanwhile; it is left as it is.
    """
    before = Path(path).read_bytes()
    folder = build_root() / "refreshed"
    folder.mkdir(parents=True, exist_ok=True)
    own = Path(mkdtemp(dir=folder))  # another command may run the same notebook
    executed = execute(path, own, timeout=timeout)
    if Path(path).read_bytes() != before:
        raise NotebookError(f"{shown(Path(path))} was edited while it ran and is left as it is: refresh it again")
    write_atomically(Path(path), _text(normalised(read(executed))).encode())
    rmtree(own)
    return Path(path)


def _text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook).rstrip("\n") + "\n"


Report = Callable[[str, float, str | None], None]


def run_all(
    action: Callable[[Path], object], paths: Iterable[Path], jobs: int = 1, report: Report | None = None
) -> dict[str, str]:
    """Applies `action` to each notebook in processes that share the cores; returns the errors by name.

    Args:
        action: a picklable function of the path, such as `functools.partial(execute, parameters={...})`.
        jobs: how many run side by side.
        report: called with (notebook's name, seconds, error or None) as each ends.
    """
    paths = list(paths)
    failed: dict[str, str] = {}
    threads = max(1, cores() // jobs)
    with process_pool(jobs, threads) as pool:  # a kernel ends with the process that started it, within a second
        # The later notebooks are the longer ones: started first, they leave no core without work at the end.
        futures = {pool.submit(_timed, action, path): path for path in reversed(paths)}
        for future in as_completed(futures):
            name = futures[future].name
            error = future.exception()
            seconds, message = (0.0, _one_line(error)) if error else future.result()
            if message is not None:
                failed[name] = message
            if report is not None:
                report(name, seconds, message)
    return {path.name: failed[path.name] for path in paths if path.name in failed}


def _timed(action: Callable[[Path], object], path: Path) -> tuple[float, str | None]:
    started = time.perf_counter()
    try:
        action(path)
        message = None
    except GPVIError as error:
        message = _one_line(error)
    return time.perf_counter() - started, message


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
