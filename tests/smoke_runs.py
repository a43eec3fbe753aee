"""Notebooks run at `smoke` without a kernel: each in a process forked from one that has imported what all need.

A kernel of its own spends as long on imports, messages and pictures that nobody sees as on the cells. One notebook is
run as users run them (`test_notebooks.py`), so are tiny ones (`test_notebooks_infra.py`), and nbval runs them all.
"""

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from gpvi_lib.report import notebooks

FORKS = get_context("forkserver")
WANTED = (
    # Forgotten again where a mutation brings a library of its own.
    *("gpvi_lib.experiments", "gpvi_lib.report.plotting", "gpvi_lib.report.tables"),
    *("torch", "scipy.stats", "pandas", "seaborn", "sklearn.datasets", "arviz", "ot", "IPython", "jaxtyping"),
    *("safetensors", "tqdm.auto", "ipykernel.ipkernel", "matplotlib_inline"),
    *("nbclient", "nbformat", "nbval.kernel", "papermill", "pytest"),  # this module and `forked_kernels.py`
    # What these import at the first use: an optimizer, arviz, a count of operations. It takes a second.
    *("torch._dynamo", "torch.fx.experimental.symbolic_shapes", "torch.utils.flop_counter", "dask.array"),
    *("pyro.infer", "pyro.distributions.transforms", "torchmetrics.functional.classification", "tabulate"),
)
FORKS.set_forkserver_preload(list(WANTED))
WITHOUT_FIGURES = "from gpvi_lib.report import plotting; plotting.save_figure = lambda *arguments: None"


def run(path: Path, library: Path | None = None, timeout: float = 300) -> tuple[str, str] | None:
    """Run the cells of a notebook in its folder, figures drawn to files only.

    Args:
        library: the folder of the `gpvi_lib` that it imports, if not this one; then figures are not drawn.
        timeout: seconds for all cells.

    Returns:
        The name of the error that ended it and a text that says where, or None.
    """
    cells = [cell.source for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    known = notebooks.parameters_of(notebooks.read(path))
    at = next(n for n, source in enumerate(cells) if "profile =" in source)
    cells.insert(at + 1, "\n".join(f"{name} = {value!r}" for name, value in (known | {"profile": "smoke"}).items()))
    if library is not None:
        cells.insert(0, WITHOUT_FIGURES)
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_run, args=(theirs, cells, path.parent, library, dict(os.environ)))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(timeout) else ("TimeoutError", f"{path.name} took over {timeout} seconds")
    except EOFError:
        return "EOFError", f"the process of {path.name} ended"
    finally:
        process.kill()
        process.join()
        ours.close()


def _run(answer: Connection, cells: list[str], where: Path, library: Path | None, environment: dict[str, str]) -> None:
    os.environ.update(environment | {"MPLBACKEND": "agg"})
    os.chdir(where)
    if library is not None:
        sys.path.insert(0, str(library))
        for name in [name for name in sys.modules if name.split(".")[0] == "gpvi_lib"]:
            del sys.modules[name]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        answer.send(_first_error(cells))


def _first_error(cells: list[str]) -> tuple[str, str] | None:
    import matplotlib
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib import pyplot as plt

    matplotlib.use("agg")
    shell = InteractiveShell.instance()
    for source in cells:
        ran = shell.run_cell(source)
        error = ran.error_before_exec or ran.error_in_exec
        plt.close("all")  # as a notebook closes what it has shown
        if error is not None:
            return type(error).__name__, f"{error}, in the cell\n{source}"
    return None
