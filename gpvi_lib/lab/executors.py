"""Where the cells of a sweep run: here, on a Dask cluster, or as jobs of Slurm. The records are the same.

All need one file system: workers write records and checkpoints themselves. Libraries are imported when used; the extra
`cluster` brings them (`pip install -e ".[paper,cluster]"`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.extras import optional
from gpvi_lib.paths import build_root

MINUTES = 24 * 60
"""The time limit of a job of Slurm."""


@contextmanager
def dask(scheduler: str | None) -> Iterator[Any]:
    """The workers of the Dask scheduler at an address such as ``tcp://host:8786``."""
    if scheduler is None:
        raise GPVIError("the executor dask needs its scheduler's address: --scheduler tcp://host:8786")
    distributed = optional("distributed", "cluster")
    try:
        client = distributed.Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise GPVIError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    except TypeError as error:  # what Dask raises for a tls:// address without certificates
        raise GPVIError(f"{scheduler} needs certificates, set as docs/clusters.md says: {error}") from None
    with client:
        yield client.get_executor(pure=False, retries=0)


@contextmanager
def slurm(scheduler: str | None) -> Iterator[Any]:
    """Slurm's jobs through submitit, one for each cell, a day long at most; for "local" processes here, all at once."""
    submitit = optional("submitit", "cluster")
    cluster = scheduler or "slurm"
    try:
        executor = submitit.AutoExecutor(build_root() / "slurm", cluster=cluster)
    except (RuntimeError, ValueError) as error:
        raise GPVIError(f"submitit cannot use {cluster}: {error}") from None
    executor.update_parameters(timeout_min=MINUTES)
    yield executor


EXECUTORS: dict[str, Callable[[str | None], AbstractContextManager]] = {"dask": dask, "slurm": slurm}


def connect(name: str, scheduler: str | None = None) -> AbstractContextManager:
    """The executor of that name as a context.

    Args:
        scheduler: Dask's address, or submitit's cluster.

    Raises:
        UnknownName: if there is none of that name.
        GPVIError: if its library is not installed or nobody answers.
    """
    if name not in EXECUTORS:
        raise UnknownName.among("executor", name, EXECUTORS)
    return EXECUTORS[name](scheduler)
