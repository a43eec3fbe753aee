"""``python -m benchmarks.attack``: kill runs and damage files by the hundred, and count what is lost or goes unnoticed.

Kills: one cell of a small experiment is computed again and again, each time in processes that are killed with -9 at
random moments until one of them reaches the end. What the last one records must be what an undisturbed run records, bit
for bit, no reader may find a damaged record in between, and no temporary file may be left.

Damage: a checkpoint, a saved sampler, a record and its arrays get one flipped bit, or lose their end, at a random
place. Reading one must end in the library's own error, or give exactly what was saved.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import torch
import typer
from tqdm import tqdm

from gpvi_lib import SVGD, Adam, Gaussian, Generator, ParVI, checkpoints, fit, load_sampler, save_sampler
from gpvi_lib.errors import GPVIError
from gpvi_lib.experiments import EXPERIMENTS
from gpvi_lib.lab import records, runner
from gpvi_lib.lab.experiment import Cell, Experiment, Outcome, RunContext

STEPS = 150


def _run(config: dict, method: str, context: RunContext) -> Outcome:
    """Amortised SVGD on a Gaussian, which draws noise at every step and saves a checkpoint after it."""
    rng = torch.Generator().manual_seed(context.seed)
    sampler, target = Generator(3, hidden=(8,), rng=rng), Gaussian(torch.zeros(3), torch.eye(3))
    training = {"steps": config["steps"], "optimizer": Adam(lr=0.01), "rng": rng, "progress": False}
    fit(sampler, target, ParVI(SVGD(), 20), **training, checkpoint=context.checkpoint, checkpoint_seconds=0.0)
    drawn = sampler.sample(20, rng)
    return Outcome({"first": float(drawn[0, 0])}, {"x": drawn})


ATTACKED = Experiment("attacked", "A run to be killed", ("svgd",), lambda *_: {"steps": STEPS}, lambda _: (0,), _run)


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder of our own for results and checkpoints, and the attacked experiment in the registry."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"GPVI_RESULTS": f"{folder}/results", "GPVI_BUILD": f"{folder}/build"}
        with patch.dict(os.environ, places), patch.dict(EXPERIMENTS, {ATTACKED.name: ATTACKED}):
            yield Path(folder)


def _compute(cell: Cell) -> None:
    torch.set_num_threads(1)
    runner.run_or_load(cell, progress=False, dirty=True)


def kills(number: int, draw: random.Random, seconds: float | None = None) -> Counter:
    """Kills runs of one cell `number` times in all; counts the kills, the runs that came through, and each loss.

    Args:
        seconds: the latest moment of a kill after a process has begun; default what an undisturbed one takes.
    """
    counts: Counter = Counter()
    with workshop() as folder:
        cell = ATTACKED.cell("svgd", 0, "paper")
        _compute(cell)
        alone = records.load(cell).arrays()["x"]
        shutil.rmtree(records.record_path(cell).parent)
        started = time.perf_counter()
        _kill(cell, after=3600.0)
        seconds = time.perf_counter() - started if seconds is None else seconds
        bar = tqdm(total=number, desc="kills", unit="kill")
        while counts["killed"] < number:
            if records.state(cell) == "valid":
                counts["came through"] += 1
                counts["lost: another result"] += not torch.equal(records.load(cell).arrays()["x"], alone)
                counts["lost: temporary files"] += len([*folder.rglob("*.tmp*")])
                counts["left a checkpoint"] += runner.checkpoint_path(cell).exists()  # killed after its last write
                runner.checkpoint_path(cell).unlink(missing_ok=True)
                shutil.rmtree(records.record_path(cell).parent)
            killed = _kill(cell, draw.uniform(0, seconds))
            bar.update(killed)
            counts["killed"] += killed
            counts["lost: damaged record"] += records.state(cell) == "damaged"
        _compute(cell)
        counts["came through"] += 1
        counts["lost: another result"] += not torch.equal(records.load(cell).arrays()["x"], alone)
        bar.close()
    return counts


def _kill(cell: Cell, after: float) -> bool:
    """Computes a cell in a process that is killed so many seconds after its start; whether it still ran then."""
    process = get_context("fork").Process(target=_compute, args=(cell,))  # forked: importing torch takes far longer
    process.start()
    process.join(after)
    running = process.is_alive()
    if running and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return running


def _files(folder: Path) -> dict[str, tuple[Path, Callable[[], object]]]:
    """What is damaged: name -> (file, a function that reads all of it)."""
    cell = ATTACKED.cell("svgd", 0, "paper")
    _compute(cell)
    rng = torch.Generator().manual_seed(0)
    sampler, state = Generator(10, rng=rng), {"step": 3, "x": torch.randn(50, generator=rng), "run": {"seed": 0}}
    checkpoints.save(folder / "run.pt", state)
    save_sampler(sampler, folder / "sampler.safetensors")

    def saved_sampler() -> object:
        loaded = load_sampler(folder / "sampler.safetensors")
        return type(loaded), loaded.state_dict()

    def record() -> object:
        loaded = records.load(cell)
        return loaded.digest, loaded.arrays()

    path = records.record_path(cell)
    return {
        "checkpoint": (folder / "run.pt", lambda: checkpoints.load(folder / "run.pt", torch.device("cpu"))),
        "saved sampler": (folder / "sampler.safetensors", saved_sampler),
        "record": (path, record),
        "arrays of a record": (path.with_suffix(".safetensors"), record),
    }


def flipped(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    """The content without its end."""
    return content[: draw.randrange(len(content))]


def damage(number: int, draw: random.Random) -> dict[str, Counter]:
    """Damages each kind of file `number` times by a flipped bit and as often by a cut.

    Returns:
        Kind of file and damage -> counts of "refused", "harmless" (exactly the saved content), "lost: silent" (another
        content) and "lost: raw error".
    """
    found: dict[str, Counter] = {}
    with workshop() as folder:
        for name, (path, read) in _files(folder).items():
            content, whole = path.read_bytes(), checkpoints.checksum(_plain(read()))
            for change in (flipped, cut):
                counts = found[f"{name}, {change.__name__}"] = Counter()
                for _ in tqdm(range(number), desc=f"{name}, {change.__name__}"):
                    path.write_bytes(change(content, draw))
                    counts[_outcome(read, whole)] += 1
            path.write_bytes(content)
    return found


def _outcome(read: Callable[[], object], whole: str) -> str:
    try:
        return "harmless" if checkpoints.checksum(_plain(read())) == whole else "lost: silent"
    except GPVIError:
        return "refused"
    except Exception as error:
        return f"lost: raw error {type(error).__name__}"


def _plain(content: object) -> object:
    """Types as their names and tuples as lists: what a checksum is taken of."""
    if isinstance(content, tuple):
        return [_plain(part) for part in content]
    return content.__name__ if isinstance(content, type) else dict(content) if isinstance(content, dict) else content


def main(
    number: Annotated[int, typer.Option("--kills", min=1)] = 300,
    damages: Annotated[int, typer.Option(min=1, help="Of each kind of file by each kind of damage.")] = 500,
    seed: int = 0,
) -> None:
    """Count what kills and damaged files do; exits with 1 if anything is lost or goes unnoticed."""
    draw = random.Random(seed)
    found = {"runs killed with -9": kills(number, draw)} | damage(damages, draw)
    for what, counts in found.items():
        print(f"{what:28s}", ", ".join(f"{count} {word}" for word, count in sorted(counts.items()) if count))
    lost = sum(count for counts in found.values() for word, count in counts.items() if word.startswith("lost"))
    print(f"lost or unnoticed: {lost}")
    sys.exit(lost > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    typer.run(main)
