"""Timing of calls side by side: what disturbs one disturbs all, so that their ratios hold on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Container
from statistics import median

Seconds = float
TOO_SLOW: Seconds = 6.0
"""A call whose first run takes longer is left out."""


def interleaved(
    calls: dict[str, Callable[[], object]],
    *,
    repeats: int,
    seconds: Seconds,
    threads: int,
    too_slow: Seconds | None = TOO_SLOW,
    keep: Container[str] = (),
    clock: Callable[[], Seconds] | None = None,
) -> dict[str, list[Seconds]]:
    """Seconds per call of each, ``repeats`` times, taking turns.

    Args:
        seconds: what one repeat of one call should take at least; fast calls are made many times.
        threads: of torch's operations.
        too_slow: a call whose first run takes longer is left out; None keeps all.
        keep: calls that are not left out, however slow.
        clock: elapsed time unless given, after all work of a GPU is done; on a busy machine ``time.process_time``, for
            calls on one thread.
    """
    from torch.utils.benchmark import Timer  # here, because its import logs a warning where there is no GPU

    own: dict = {} if clock is None else {"timer": clock}  # torch's own timer waits for a GPU
    timers = {
        name: Timer("call()", globals={"call": call}, num_threads=threads, label=name, **own)
        for name, call in calls.items()
    }
    first = {name: timer.timeit(1).mean for name, timer in timers.items()}  # warm-up: allocations, lazy networks
    timers = {
        name: timer for name, timer in timers.items() if too_slow is None or name in keep or first[name] <= too_slow
    }
    counts = {name: max(1, round(seconds / timer.timeit(1).mean)) for name, timer in timers.items()}
    times: dict[str, list[Seconds]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            times[name].append(timer.timeit(counts[name]).mean)
    return times


def ratios(times: dict[str, list[Seconds]], to: str) -> dict[str, float]:
    """Median over repeats of (a call's time / the time of ``to`` in the same repeat)."""
    return {name: median(t / base for t, base in zip(ts, times[to], strict=True)) for name, ts in times.items()}
