"""Cells that save a checkpoint, say in a file who they are, and never end; for tests of interrupts."""

import os
import time

from gpvi_lib.lab.experiment import Experiment


def config(method, profile):
    return {}


def seeds(profile):
    return tuple(range(4))


def run(config, method, context):
    context.checkpoint.write_text("half")
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(1)


ENDLESS = Experiment("endless", "Cells that never end", ("wait",), config, seeds, run)
