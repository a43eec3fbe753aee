"""What an experiment is: methods, a configuration for each profile, and a function that runs one cell.

A *cell* is one run: a method of an experiment with a seed, at a profile. `gpvi_lib.lab.runner` runs cells,
`gpvi_lib.lab.records` keeps their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from gpvi_lib.errors import UnknownName
from gpvi_lib.lab.profiles import Profile, get_profile


@dataclass(frozen=True)
class Outcome:
    """What one cell returns.

    Args:
        metrics: name -> finite number; these reach tables.
        arrays: name -> tensor of any shape, for figures; together under 1 MB.
        seconds: wall time where the run knows it better than the clock around it, which is so when it resumed
            from a checkpoint; None takes the clock.
    """

    metrics: dict[str, float]
    arrays: dict[str, Tensor] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class RunContext:
    """Where and how a cell runs; nothing here except `seed` may change its result.

    Args:
        device: where tensors live.
        seed: of the cell; every random number derives from it, but for those of the configuration.
        checkpoint: file to save progress in and resume from, or None for no checkpoints. Its folder exists;
            it belongs to one configuration and is removed once the record is written.
        label: "experiment/method seed 0", for progress bars and errors.
        progress: whether a progress bar may be drawn on stderr.
    """

    device: torch.device
    seed: int
    checkpoint: Path | None
    label: str
    progress: bool


@dataclass(frozen=True)
class Score:
    """How one metric of an experiment maps to a row of the published tables.

    Args:
        item: the table, as `paper_tables.csv` names it ("gpvi/table2"), or a name of our own.
        metric: the metric as that table names it.
        better: whether lower or higher is better.
        key: the metric's name in `Outcome.metrics`.
        setting: `printed` (the published setting) or `best` (our own).
        methods: the methods of the experiment that stand in this table; None for all of them.
        profiles: the profiles at which there is such a metric; None for all of them.
        epoch: steps in an epoch of these runs, where the paper counts epochs.
        learned: another metric and the least mean of it at which runs have learned; others get no verdict, for a
            network that guesses is as unsure as one can be. None where there is nothing to ask.
        mixed: another metric, an R-hat, and the largest mean of it at which chains have mixed; others get no verdict.
        trials: test data that a share is counted over: where no ± is printed, it scatters by at least so much.
    """

    item: str
    metric: str
    better: Literal["lower", "higher"]
    key: str
    setting: Literal["printed", "best"] = "printed"
    methods: tuple[str, ...] | None = None
    profiles: tuple[str, ...] | None = None
    epoch: int = 1
    learned: tuple[str, float] | None = None
    mixed: tuple[str, float] | None = None
    trials: int | None = None


def steps_of(config: dict) -> int | None:
    """The steps of training of a configuration, the proposals of its chains, or a bandit's rounds; None without any."""
    return next((config[key] for key in ("steps", "num_steps", "rounds") if key in config), None)


def no_deviations(method: str, profile: str) -> str:
    """The default of `Experiment.deviations`: nothing differs from the paper."""
    return ""


def no_data_sets(profile: str) -> tuple[str, ...]:
    """The default of `Experiment.data_sets`: nothing but what is installed."""
    return ()


def one_seed(profile: str) -> tuple[int, ...]:
    """The seeds of an experiment that runs once: long chains or trainings, candidates, costs."""
    return (0,)


@dataclass(frozen=True, eq=False)
class Experiment:
    """One table or figure of the paper as code.

    Its functions live at the top level of a module, so that it can be pickled to a worker process.

    Args:
        name: as in `results/<profile>/<name>/` ("bayesian-linear-regression").
        title: one line for a reader.
        methods: what it compares, in the order of its tables; names of `paper_tables.csv` where it has them.
        config: (method, profile name) -> JSON-able dict of all that decides the result, except the seed; the constants
            of its evaluation too, see `gpvi_lib.experiments.evaluation.differing`.
        seeds: profile name -> the seeds that count; a method's are `seeds_of`.
        run: (config, method, context) -> Outcome. `config` has passed through JSON: tuples are lists.
        scores: the rows of the scoreboard that its metrics fill.
        deviations: (method, profile name) -> what differs from the paper, "" if nothing does.
        rows: method -> (published method, setting) where that is not (method, the score's setting), such as
            "gpvi_best" -> ("gpvi", "best").
        data_sets: profile name -> the data sets that have to be there, as `python -m gpvi_lib data` names them.
        needs_gpu: whether its runs take days on a CPU, so that a run of all experiments leaves it out there.
        all_cores: whether its matrices are large enough for a run to be faster on several threads.
        once: methods that draw nothing, whose every seed has the same result: they count with the first one alone.
        instead_of: experiments whose rows of the scoreboard it takes over where its runs are the longer ones.
        version: of `run`. Raise it when a change of code, not of `config`, changes a result: above 0 it is part of the
            configuration, so that every record made with a lower one is stale.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    config: Callable[[str, str], dict]
    seeds: Callable[[str], tuple[int, ...]]
    run: Callable[[dict, str, RunContext], Outcome]
    scores: tuple[Score, ...] = ()
    deviations: Callable[[str, str], str] = no_deviations
    rows: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    data_sets: Callable[[str], tuple[str, ...]] = no_data_sets
    needs_gpu: bool = False
    all_cores: bool = False
    once: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()
    version: int = 0

    def configuration(self, method: str, profile: str) -> dict:
        """All that decides a result, except the seed: `config`, and the version above 0.

        An experiment that runs rows of another one starts from the other's configuration; the versions add up.
        """
        found = self.config(method, profile)
        version = found.get("version", 0) + self.version
        return found | ({"version": version} if version else {})

    def seeds_of(self, method: str, profile: str) -> tuple[int, ...]:
        """The seeds of a method that count: `seeds`, of one in `once` the first."""
        found = self.seeds(profile)
        return found[:1] if method in self.once else found

    def check_method(self, method: str) -> None:
        """Raises `UnknownName`, listing the valid names, unless `method` is one of this experiment's."""
        if method not in self.methods:
            raise UnknownName.among("method", method, self.methods, of=self.name)

    def cell(self, method: str, seed: int, profile: str | Profile) -> Cell:
        """One run of this experiment.

        Raises:
            UnknownName: if the method or the profile does not exist.
        """
        self.check_method(method)
        return Cell(self, method, seed, get_profile(profile))

    def methods_of(self, score: Score) -> tuple[str, ...]:
        """The methods that fill rows of `score`.

        Raises:
            UnknownName: if the score names a method that this experiment does not have.
        """
        if score.methods is None:
            return self.methods
        for method in score.methods:
            self.check_method(method)
        return tuple(method for method in self.methods if method in score.methods)

    def row(self, method: str, score: Score) -> tuple[str, str]:
        """(published method, setting) of the scoreboard row that `method` fills for `score`."""
        return self.rows.get(method, (method, score.setting))


@dataclass(frozen=True)
class Cell:
    """One run: a method of an experiment with a seed, at a profile. Make it with :meth:`Experiment.cell`."""

    experiment: Experiment
    method: str
    seed: int
    profile: Profile

    @property
    def label(self) -> str:
        """For progress bars and errors: "toy/svgd seed 0"."""
        return f"{self.experiment.name}/{self.method} seed {self.seed}"

    @property
    def file_name(self) -> str:
        """What its files are called, without an ending."""
        return f"{self.method}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        """Where its files are, below the folder of all records or all checkpoints."""
        return Path(self.profile.name, self.experiment.name)

    def config(self) -> dict:
        """All that decides the result, except the seed."""
        return self.experiment.configuration(self.method, self.profile.name)
