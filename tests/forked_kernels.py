"""nbval's kernels, each forked from a process that has imported what all notebooks need.

A kernel that starts as a new Python spends four seconds on imports. `test_notebooks.py` and `test_notebooks_infra.py`
start kernels as users do.
"""

import os
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

import smoke_runs
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner
from matplotlib.figure import Figure
from traitlets.config import Config

from gpvi_lib.errors import GPVIError
from gpvi_lib.lab import runner
from gpvi_lib.lab.experiment import Cell
from gpvi_lib.report import plotting
from gpvi_lib.report.notebooks import SocketFiles

INLINE = "module://matplotlib_inline.backend_inline"
NO_PICTURES = Config({"InlineBackend": {"figure_formats": set()}})
"""On the page; nbval does not compare them."""


class _Process:
    """A forked process with the methods of `subprocess.Popen` that a provisioner calls."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], environment: dict[str, str], where: str | None) -> None:
        ours, theirs = smoke_runs.FORKS.Pipe(duplex=False)
        self._process = smoke_runs.FORKS.Process(target=_kernel, args=(theirs, arguments, environment, where))
        self._process.start()
        theirs.close()
        self.pid = ours.recv()  # it leads a group of processes of its own from here on
        ours.close()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


class ForkedKernel(LocalProvisioner):
    """Starts a kernel by a fork instead of a command; all else is as for a kernel of this machine."""

    async def launch_kernel(self, cmd: list[str], **kwargs) -> KernelConnectionInfo:
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.cwd = kwargs.get("cwd") or os.getcwd()
        self.process = _Process(arguments, kwargs.get("env") or dict(os.environ), self.cwd)
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class NbvalKernels(SocketFiles, KernelManager):
    """Kernels without TCP ports that another process may take first, forked."""

    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.provisioner = ForkedKernel(kernel_id="", kernel_spec=self.kernel_spec, parent=self)


def _kernel(started: Connection, arguments: list[str], environment: dict[str, str], where: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment | {"JPY_PARENT_PID": str(os.getppid())})  # it ends with the process it comes from
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what is printed reaches a cell's outputs another way
        os.dup2(nowhere, stream)
    os.chdir(where)
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    started.send(os.getpid())
    started.close()

    import matplotlib
    from ipykernel.kernelapp import IPKernelApp

    plotting.save_figure = _draw
    runner.require_folders = _only_read_paper
    matplotlib.rcParams["backend"] = environment.get("MPLBACKEND", INLINE)
    sys.modules.pop("matplotlib_inline.backend_inline", None)  # imported where there is a shell it hooks itself into it
    IPKernelApp.launch_instance(argv=arguments, config=NO_PICTURES)


def _draw(figure: Figure, name: str, profile: str) -> str:
    """All of `save_figure` but its files, for what is trained live differs from the committed figures."""
    figure.draw_without_rendering()
    plotting.figure_data(figure)
    return f"figures/{profile}/{name}.png"


def _only_read_paper(cells: Iterable[Cell]) -> None:
    """In place of `require_folders`, which is asked before a run: a record at `paper` may take hours."""
    missing = [cell.label for cell in cells if cell.profile.reuse]
    if missing:
        raise GPVIError(
            f"at paper the tests only read records, and these are missing or stale: {', '.join(missing)}; "
            "compute them (python -m gpvi_lib run), or let the notebook ask for what there is (by_method)"
        )
