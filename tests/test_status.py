"""The lines that cells in other processes leave, and how a sweep on a terminal draws them."""

import io
import sys
import threading

import pytest
from tqdm import tqdm

from gpvi_lib.lab import status


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_file_has_the_line_drawn_last_and_other_text_goes_on(tmp_path):
    path, beyond = tmp_path / "line.txt", io.StringIO()
    stream = status.LastLine(path, beyond, every=0)
    with tqdm(total=3, file=stream, desc="a cell", mininterval=0) as bar:
        for loss in (3, 2, 1):
            bar.set_postfix(loss=loss)
            bar.update()
        stream.write("a warning\n")
        stream.write("\n")
        print("printed", "twice", sep="\n", file=stream)
    assert path.read_text().startswith("a cell: 100%") and path.read_text().endswith("loss=1]")
    assert beyond.getvalue().split("\n") == ["a warning", "", "printed", "twice", ""]


def test_the_file_is_not_written_at_every_step(tmp_path):
    stream = status.LastLine(tmp_path / "line.txt", io.StringIO(), every=1e9)
    for text in ("\rfirst", "\rsecond"):
        stream.write(text)
    assert (tmp_path / "line.txt").read_text() == "first"


def test_the_file_is_there_while_the_cell_runs_even_if_no_bar_is_drawn(tmp_path):
    path = tmp_path / "running" / "line.txt"
    with status.told(path):
        assert path.read_text() == ""
    assert not path.exists()


def test_outside_the_main_thread_stderr_stays_as_it_is(tmp_path):
    seen = []

    def look():
        with status.told(tmp_path / "line.txt"):
            seen.append(sys.stderr)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [sys.stderr]
    with status.told(tmp_path / "line.txt"):
        assert isinstance(sys.stderr, status.LastLine)
    assert sys.stderr is seen[0]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_the_lines_of_the_cells_that_run(tmp_path, monkeypatch, terminal):
    monkeypatch.setattr(status, "EVERY", 0.01)
    stream = Terminal() if terminal else io.StringIO()
    (tmp_path / "1.txt").write_text("the first")
    with status.lines([tmp_path / f"{i}.txt" for i in range(3)], stream):
        if terminal:
            _wait_for("the first", stream)
            (tmp_path / "1.txt").unlink()
            (tmp_path / "2.txt").write_text("the second")
            _wait_for("the second", stream)
    assert ("the first" in stream.getvalue()) is terminal
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(_draw)")]


def _wait_for(text, stream):
    for _ in range(1_000):
        if text in stream.getvalue():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{text!r} was not drawn")
