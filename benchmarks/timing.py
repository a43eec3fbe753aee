"""Timing of steps side by side, their peak memory, and what the machine can do at best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing import get_context
from statistics import median

import torch
from torch.utils.benchmark import Timer

from gpvi_lib import provenance

from . import cases

Seconds = float
TOO_SLOW: Seconds = 3.0
"""A method whose first step takes longer is left out, and the table says so."""


def interleaved(
    calls: dict[str, Callable[[], object]], *, repeats: int, seconds: Seconds, threads: int
) -> dict[str, list[Seconds]]:
    """Seconds per call of each, ``repeats`` times, taking turns so that what disturbs one disturbs all.

    Args:
        seconds: what one repeat of one call should take at least; fast calls are made many times.
    """
    timers = {
        name: Timer("call()", globals={"call": call}, num_threads=threads, label=name) for name, call in calls.items()
    }
    first = {name: timer.timeit(1).mean for name, timer in timers.items()}  # warm-up: allocations, lazy networks
    timers = {name: timer for name, timer in timers.items() if first[name] <= TOO_SLOW}
    counts = {name: max(1, round(seconds / timer.timeit(1).mean)) for name, timer in timers.items()}
    times: dict[str, list[Seconds]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            times[name].append(timer.timeit(counts[name]).mean)
    return times


def ratios(times: dict[str, list[Seconds]], to: str) -> dict[str, float]:
    """Median over repeats of (a call's time / the time of ``to`` in the same repeat)."""
    return {name: median(t / base for t, base in zip(ts, times[to], strict=True)) for name, ts in times.items()}


def _peak(method: str, size_name: str, device: str, steps: int) -> float:
    """MB that building and ``steps`` steps add to a fresh process (a GPU: to its allocator)."""
    torch_device = provenance.as_device(device)
    torch.set_num_threads(1)  # threads keep their own buffers, which are not the method's
    (size,) = (s for s in cases.SIZES if s.name == size_name)
    provenance.reset_peak_memory(torch_device)
    before = 0.0 if torch_device.type == "cuda" else provenance.peak_memory_mb(torch_device)
    training = cases.training(method, size, torch_device)
    for _ in range(steps):
        training.advance()
    return provenance.peak_memory_mb(torch_device) - before


def peak_memory(method: str, size: cases.Size, device: torch.device, steps: int = 3) -> float:
    """Peak memory of training in MB, in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (method, size.name, str(device), steps))


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
