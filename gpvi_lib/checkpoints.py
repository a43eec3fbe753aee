"""Checkpoints: the state of a long run as one file, written in one step and read without running any code."""

import os
import time
from pathlib import Path

import torch


def save(path: Path, state: dict) -> None:
    """Make ``path`` hold ``state`` (tensors, numbers, strings and containers of them): all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load(path: Path, device: torch.device) -> dict:
    """The state in ``path``, its tensors on ``device``."""
    return torch.load(path, map_location=device, weights_only=True)


class Schedule:
    """Says when the next checkpoint is due.

    Args:
        path: where checkpoints go; ``None`` for none, then nothing is ever due.
        seconds: time between two checkpoints.
    """

    def __init__(self, path: Path | None, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time; the clock starts again when it says yes."""
        if self.path is None or time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True
