"""Cells that take a while and say in a file when they begin and end; for tests of executors and of time budgets."""

import os
import time
from pathlib import Path

from tqdm import tqdm

from gpvi_lib.lab.experiment import Experiment, Outcome

SECONDS = 0.6


def _log(event, context):
    with open(Path(os.environ["GPVI_RESULTS"]).parent / "log.txt", "a") as file:
        file.write(f"{event} {context.seed} {os.getpid()}\n")


def config(method, profile):
    return {"seconds": SECONDS}


def seeds(profile):
    return tuple(range(6))


def run(config, method, context):
    _log("begin", context)
    with tqdm(total=1, desc=context.label, disable=not context.progress):
        time.sleep(config["seconds"])
    _log("end", context)
    return Outcome({"seed": float(context.seed)})


SLOW = Experiment("slow", "Cells that take a while", ("sleep",), config, seeds, run)
