"""What the cells of a sweep say while other processes run them: of each, the line that its progress bar shows now.

A process that runs a cell keeps that line in a file, ``build/running/<profile>/<experiment>/<method>-seed<seed>.txt``,
which is there while the cell runs. A sweep on a terminal draws the lines of its cells below its own bar.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

EVERY = 1.0
"""Seconds between two looks, and at least between two changes of a file."""


class LastLine(io.TextIOBase):
    """A stream that keeps in a file the line which a progress bar drew last; what is no bar's goes on.

    Args:
        path: the file; written at most once in ``every`` seconds.
        beyond: where all other text goes.
    """

    def __init__(self, path: Path, beyond: TextIO, every: float = EVERY) -> None:
        self.path, self.beyond, self.every = path, beyond, every
        self.written = -float("inf")
        self._passed_on = False

    def write(self, text: str) -> int:
        """Take up a line that begins with a carriage return, pass on any other."""
        line = text.replace("\x1b[A", "").strip()
        if not text.startswith("\r"):
            if line or (self._passed_on and text == "\n"):  # print() writes the end of its line by itself
                self.beyond.write(text)
            self._passed_on = bool(line)
        elif line and time.monotonic() - self.written >= self.every:
            with contextlib.suppress(OSError):  # it only informs: training goes on without the file
                self.path.write_text(line, encoding="utf-8")
            self.written = time.monotonic()
        return len(text)

    def flush(self) -> None:
        """Flush what was passed on."""
        self.beyond.flush()


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Inside, progress bars of this process go to ``path``, which is removed at the end.

    Only in a main thread: stderr is the whole process's, and cells in threads beside each other would mix.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # it tells that the cell runs, even if that draws no bar
    try:
        with redirect_stderr(LastLine(path, sys.stderr)):
            yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def lines(paths: Sequence[Path], stream: TextIO) -> Iterator[None]:
    """Inside, the lines in those of the files that exist are drawn on a terminal, from its second line down."""
    if not stream.isatty():
        yield
        return
    over = threading.Event()
    drawing = threading.Thread(target=_draw, args=(paths, stream, over), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join()


def _draw(paths: Sequence[Path], stream: TextIO, over: threading.Event) -> None:
    bars: list[tqdm] = []
    while not over.wait(EVERY):
        found = [line for path in paths if (line := _read(path))]
        while len(bars) < len(found):
            bars.append(tqdm(bar_format="{desc}", position=len(bars) + 1, leave=False, file=stream, dynamic_ncols=True))
        for bar, line in zip(bars, [*found, *[""] * (len(bars) - len(found))], strict=True):
            bar.set_description_str(line)
    for bar in reversed(bars):
        bar.close()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:  # not begun, or over
        return ""
