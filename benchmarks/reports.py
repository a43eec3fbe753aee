"""``python -m benchmarks.reports``: what it costs that an objective says something of itself.

:func:`gpvi_lib.fit` asks for the numbers on a hundred steps of a run (``gpvi_lib.fitting.DIAGNOSTICS``). A step that is
asked takes turns with one that is not, on one thread and by its CPU time, so that a busy machine hardly matters. The
share of a run is the extra time times a hundred, over the run's steps.
"""

from __future__ import annotations

import math
import time
from statistics import median

import pandas
import torch
import typer
from tqdm import tqdm

from gpvi_lib.fitting import DIAGNOSTICS
from gpvi_lib.lab.timing import interleaved, ratios

from . import cases

METHODS = ("amortized_svgd", "gpvi_block", "gpvi_helper", "gpvi_exact_density", "svgd")
AIM = 0.02
"""Reports may take this share of a run."""


def extra(method: str, size: cases.Size, repeats: int, seconds: float = 0.15) -> dict[str, float]:
    """ms of a step, what a report adds to it as a share, and how long a run must be for reports to take 2 % of it."""
    silent, asked = (cases.training(method, size, torch.device("cpu")) for _ in range(2))
    asked.reported = True
    calls = {"silent": silent.advance, "asked": asked.advance}
    clock = {"repeats": repeats, "seconds": seconds, "threads": 1, "clock": time.process_time}
    times = interleaved(calls, **clock, too_slow=None)
    share = ratios(times, "silent")["asked"] - 1
    return {"ms": 1e3 * median(times["silent"]), "extra": share, "steps": steps_until(share)}


def steps_until(share: float) -> int:
    """The shortest run, to a hundred steps, of which reports that add ``share`` of a step each take at most 2 %."""
    return 100 * math.ceil(max(share, 0.0) * DIAGNOSTICS / AIM / 100 - 1e-9)


def main(repeats: int = typer.Option(9, min=3, help="Rounds in which both steps take turns.")) -> None:
    """Time all, print a table."""
    torch.set_num_threads(1)
    rows = [
        {"size": size.name, "method": cases.LABELS[method]} | extra(method, size, repeats)
        for size in tqdm(cases.SIZES[:5], desc="reports", unit="size")
        for method in METHODS
    ]
    frame = pandas.DataFrame(rows)
    frame["extra"] = frame["extra"].map("{:+.0%}".format)
    print(frame.rename(columns={"steps": f"{AIM:.0%} from steps"}).to_markdown(index=False, floatfmt=".3g"))


if __name__ == "__main__":
    typer.run(main)
