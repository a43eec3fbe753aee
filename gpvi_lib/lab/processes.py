"""Processes that runs go to: they end with the one that started them, and one that is killed takes no other along."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from gpvi_lib.errors import GPVIError


@contextmanager
def process_pool(jobs: int, threads: int = 1) -> Iterator[Executor]:
    """So many processes of so many threads each, which end with this one or with the block, however it ends.

    An interrupt, or any other error in the block, ends them where they are: what a cell has done is in its checkpoint.
    A process that is killed fails the one call that it had; another takes its place.
    """
    ended, end = get_context("spawn").Pipe(duplex=False)
    pool = _Pool(jobs, threads, ended)
    try:
        yield pool
    except BaseException:
        pool.forget()
        end.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        end.close()
        ended.close()


class _Pool(Executor):
    """A thread for each process. (A pool of several fails every call that it has left when one of them is killed.)"""

    def __init__(self, jobs: int, threads: int, ended: Connection) -> None:
        self._start = threads, ended
        self._waiting = ThreadPoolExecutor(jobs)
        self._own = threading.local()
        self._processes: list[ProcessPoolExecutor] = []

    def submit(self, function: Callable, /, *arguments: Any, **named: Any) -> Future:
        return self._waiting.submit(self._call, function, *arguments, **named)

    def _call(self, function: Callable, /, *arguments: Any, **named: Any) -> Any:
        if not hasattr(self._own, "process"):
            self._own.process = ProcessPoolExecutor(1, get_context("spawn"), _start_worker, self._start)
            self._processes.append(self._own.process)
        try:
            return self._own.process.submit(function, *arguments, **named).result()
        except BrokenProcessPool:
            del self._own.process
            raise GPVIError(
                "its process was killed, as happens where memory runs out; run it again, with fewer --jobs if it was so"
            ) from None

    def forget(self) -> None:
        """Drops the calls that have not begun."""
        self._waiting.shutdown(wait=False, cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._waiting.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._processes:
            process.shutdown(wait, cancel_futures=cancel_futures)


def _start_worker(threads: int, ended: Connection) -> None:
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for what this process starts, such as a notebook's kernel
    # A terminal's Ctrl-C comes here, too, where it would end one cell and let the next begin. Not SIG_IGN, which
    # kernels would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_with_parent, args=(ended,), daemon=True).start()


def _end_with_parent(ended: Connection) -> None:
    """Ends this process when the one that started it has ended, however that was, or has no use for its work."""
    parent = parent_process()
    assert parent is not None, "only in a process that multiprocessing started"
    wait([parent.sentinel, ended])
    os._exit(1)
