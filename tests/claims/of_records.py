"""The committed records and notebooks, as the claims read them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from pandas import DataFrame
from torch import Tensor

from gpvi_lib.experiments import get_experiment
from gpvi_lib.lab import records
from gpvi_lib.lab.experiment import Cell, Experiment
from gpvi_lib.lab.records import Record
from gpvi_lib.paths import repository, results_root
from gpvi_lib.report import scoreboard


@cache
def _read(cell: Cell, written: int) -> tuple[Record, dict[str, Tensor]]:
    record = records.load(cell)
    return record, record.arrays()


def read(cell: Cell) -> tuple[Record, dict[str, Tensor]]:
    """A record and its arrays, read again once it has changed."""
    path = records.record_path(cell)
    return _read(cell, path.stat().st_mtime_ns if path.exists() else 0)


@cache
def _board(written: int) -> DataFrame:
    return scoreboard.build("paper")


def board() -> DataFrame:
    """The scoreboard of the records, built again once a record has changed or is new."""
    return _board(max(path.stat().st_mtime_ns for path in (results_root() / "paper").rglob("*")))


def told(number: str) -> str:
    """All the Markdown of a notebook, on one line."""
    (path,) = (repository() / "notebooks").glob(f"{number}-*.ipynb")
    cells = json.loads(path.read_text())["cells"]
    return " ".join(" ".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown").split())


def code(number: str) -> list[str]:
    """The code cells of a notebook."""
    (path,) = (repository() / "notebooks").glob(f"{number}-*.ipynb")
    return ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


@dataclass(frozen=True)
class Runs:
    """The records of one experiment at ``paper``."""

    name: str

    @property
    def experiment(self) -> Experiment:
        return get_experiment(self.name)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.experiment.seeds("paper")

    def seeds_of(self, method: str) -> tuple[int, ...]:
        """One, of a method that draws nothing."""
        return self.experiment.seeds_of(method, "paper")

    def recorded(self, method: str) -> list[int]:
        """The seeds that have a record."""
        return [
            s for s in self.seeds_of(method) if records.record_path(self.experiment.cell(method, s, "paper")).exists()
        ]

    def record(self, method: str, seed: int = 0) -> Record:
        return read(self.experiment.cell(method, seed, "paper"))[0]

    def arrays(self, method: str, seed: int = 0) -> dict[str, Tensor]:
        return read(self.experiment.cell(method, seed, "paper"))[1]

    def metric(self, method: str, key: str, seeds: Sequence[int] | None = None) -> np.ndarray:
        """One number per seed."""
        return np.array([self.record(method, seed).metrics[key] for seed in seeds or self.seeds_of(method)])

    def history(self, method: str, key: str, seeds: Sequence[int] | None = None) -> np.ndarray:
        """(seeds, looks): one quantity along training."""
        return np.stack(
            [self.arrays(method, seed)[f"history_{key}"].numpy() for seed in seeds or self.seeds_of(method)]
        )


def runs(experiment: str, method: str) -> list[Record]:
    """The records of all seeds; one that is missing is an error."""
    found = Runs(experiment)
    return [found.record(method, seed) for seed in found.seeds_of(method)]


def values(experiment: str, method: str, key: str) -> np.ndarray:
    """One number per seed."""
    return Runs(experiment).metric(method, key)


def arrays(experiment: str, method: str) -> list[dict[str, Tensor]]:
    """The arrays of all seeds, by name."""
    found = Runs(experiment)
    return [found.arrays(method, seed) for seed in found.seeds_of(method)]


def history(experiment: str, method: str, key: str) -> np.ndarray:
    """(seeds, looks): one quantity along training."""
    return Runs(experiment).history(method, key)


def within(values, low: float, high: float) -> bool:
    """Whether all values lie strictly between two bounds."""
    values = np.asarray(values)
    return bool(values.size and (low < values).all() and (values < high).all())
