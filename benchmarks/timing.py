"""Peak memory of steps, and what the machine can do at best."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import torch
from torch.utils.benchmark import Timer

from gpvi_lib.lab import provenance
from gpvi_lib.lab.timing import Seconds

from . import cases


def _peak(method: str, size_name: str, device: str, steps: int) -> float:
    """MB that building and ``steps`` steps add to a process that has trained before (a GPU: to its allocator)."""
    torch_device = provenance.as_device(device)
    torch.set_num_threads(1)  # threads keep their own buffers, which are not the method's
    (size,) = (s for s in cases.SIZES if s.name == size_name)
    cases.training("deep_ensemble", cases.SIZES[0], torch_device).advance()  # imports 120 MB of modules, once
    provenance.reset_peak_memory(torch_device)
    before = 0.0 if torch_device.type == "cuda" else provenance.peak_memory_mb(torch_device)
    training = cases.training(method, size, torch_device)
    for _ in range(steps):
        training.advance()
    return provenance.peak_memory_mb(torch_device) - before


def peak_memory(method: str, size: cases.Size, device: torch.device, steps: int = 3) -> float:
    """Peak memory of training in MB, in a process of its own; NaN if it was killed, as it is where memory ends."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_peak, method, size.name, str(device), steps).result()
        except BrokenProcessPool:
            return math.nan


def bandwidth(device: torch.device, threads: int, megabytes: int = 256) -> float:
    """Bytes per second of ``a += b`` on vectors too large for any cache: two reads and a write."""
    a, b = (torch.ones(megabytes * 250_000, device=device) for _ in range(2))
    timer = Timer("a.add_(b)", globals={"a": a, "b": b}, num_threads=threads)
    return 3 * a.nbytes / timer.blocked_autorange(min_run_time=0.5).median


def matrix_rate(device: torch.device, threads: int, n: int = 2_048) -> float:
    """Operations per second of a float32 matrix product (multiplications and additions)."""
    a = torch.randn(n, n, device=device)
    return 2 * n**3 / Timer("a @ a", globals={"a": a}, num_threads=threads).blocked_autorange(min_run_time=0.5).median


def fitted_exponent(x: Iterable[float], seconds: Iterable[Seconds]) -> float:
    """Slope of log seconds over log x, by least squares."""
    log_x, log_t = (torch.tensor(list(v), dtype=torch.float64).log() for v in (x, seconds))
    log_x = log_x - log_x.mean()
    return float((log_x * log_t).sum() / log_x.square().sum())
