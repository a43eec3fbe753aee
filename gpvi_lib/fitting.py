"""The one training loop."""

import inspect
import math
import re
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.checks import check_count, check_instance, check_rng, chosen_rng
from gpvi_lib.diagnostics import computed
from gpvi_lib.directions import Direction
from gpvi_lib.errors import DivergedError, FoldWarning, GPVIError
from gpvi_lib.objectives import GPVI, NegativeELBO, Objective, OrientedELBO
from gpvi_lib.optimizers import SGD, Adam, Factory, Optimizer, RMSprop
from gpvi_lib.paths import require_writable, sweep_temporary
from gpvi_lib.samplers import Sampler
from gpvi_lib.schedules import AdaptiveLangevin
from gpvi_lib.targets.base import (
    Target,
    check_all_data,
    check_finite,
    check_minibatch,
    check_rows,
    log_prob,
    points_differ,
    same_draws,
    score,
)
from gpvi_lib.targets.looks import grows_outwards, wrong_sign
from gpvi_lib.targets.posterior import Posterior, SignWarning
from gpvi_lib.targets.slopes import check_slope

DIAGNOSTICS = 100
"""How often a run keeps, and shows, what its objective says of itself."""

CUDA_CHECK_EVERY = 100
"""On a GPU the loss is looked at only every so many steps: each look waits for the device."""

MINIBATCH_PROBED = 8
"""With at most so many data a target is asked, before the first step, whether it scales them and mixes points."""

ALL_PROBED = 10_000
"""A target of yours is asked for its value on all data, beside a minibatch, if they are no more than this."""

ABANDONED = 3600.0
"""After so many seconds without a change an unfinished checkpoint is taken for that of a killed process."""

LOOKED_AT = 64
"""Samples at which the sign of a target without data is looked at after training."""

SomeSampler = TypeVar("SomeSampler", bound=Sampler)
Callback = Callable[[int, SomeSampler], dict[str, float] | None]


@dataclass(repr=False)
class FitResult:
    """What training leaves behind.

    Attributes:
        history: one dict per callback, with ``step`` and what the callback returned.
        diagnostics: what the objective says of itself, with ``step``, 50 to 100 times a run (at every step of a short
            one); estimates from one step's samples, before its update. Of :class:`NegativeELBO` the ``elbo``, and of a
            :class:`Generator` trained by it the share of ``folds``; of :class:`OrientedELBO` also the share of
            determinants ``below_floor``; of :class:`GPVI` and :class:`ParVI` the ``bandwidth`` of the kernel, the
            ``spread`` of the samples, the ``noise_share`` of it that λz alone gives and the share of ``folds`` of a
            :class:`Generator` (:func:`~gpvi_lib.diagnostics.of_samples`); of a helper its ``residual``, of a critic its
            ``critic_loss``; with data put aside in :class:`Posterior` the ``held_out`` log-likelihood of a datum,
            whatever the objective.
        seconds: training time, interruptions left out.

    Example:
        >>> result = FitResult(diagnostics=[{"step": 100, "elbo": -1.5}, {"step": 200, "elbo": -0.5}])
        >>> result.diagnostics[-1]["elbo"]
        -0.5
    """

    history: list[dict[str, float]] = field(default_factory=list)
    diagnostics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0

    def __repr__(self) -> str:
        """The last row of each list, not all of them: a notebook's cell often ends with :func:`fit`."""
        lists = {"history": self.history, "diagnostics": self.diagnostics}
        ends = [f"{len(rows)} rows of {name}, the last {rows[-1]}" for name, rows in lists.items() if rows]
        return f"FitResult({'; '.join([*ends, f'{self.seconds:.1f} seconds'])})"


class Minibatches:
    """Indices of minibatches: a fresh shuffle per epoch, an incomplete last batch is dropped.

    Args:
        num_data: N.
        batch_size: B <= N.
    """

    def __init__(self, num_data: int, batch_size: int) -> None:
        check_count("batch_size", batch_size)
        if batch_size > num_data:
            raise ValueError(f"batch_size must be between 1 and the {num_data} data, got {batch_size}")
        self.num_data, self.batch_size = num_data, batch_size
        self.order: Tensor | None = None
        self.position = num_data

    def next(self, rng: torch.Generator) -> Tensor:
        """The next batch of indices, ``(B,)``, on ``rng``'s device."""
        if self.order is None or self.position + self.batch_size > self.num_data:
            self.order = torch.randperm(self.num_data, generator=rng, device=rng.device)
            self.position = 0
        batch = self.order[self.position : self.position + self.batch_size]
        self.position += self.batch_size
        return batch

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return {"order": self.order, "position": self.position}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""
        self.order, self.position = state["order"], state["position"]


KEPT = ("step", "sampler", "optimizer", "objective", "batches", "rng", "history", "diagnostics", "seconds")
"""What a checkpoint of :func:`fit` holds, beside what identifies the run."""


LEAVES = (Tensor, str, float, int)
"""Arguments of an objective that are kept as they are."""

HELD = "tensors of the sampler"
"""Name of the fingerprint of those that are neither parameters nor buffers."""

_left: "weakref.WeakKeyDictionary[Sampler, dict[Path, dict]]" = weakref.WeakKeyDictionary()
"""By sampler and checkpoint, how this process last left what identifies a run."""


class Training:
    """Everything that changes during training, so that a checkpoint can hold it whole.

    Args:
        sampler, target, objective, optimizer, rng, batch_size: as in :func:`fit`.
    """

    def __init__(
        self,
        sampler: Sampler,
        target: Target,
        objective: Objective,
        *,
        optimizer: Optimizer | Factory,
        rng: torch.Generator,
        batch_size: int | None = None,
    ) -> None:
        _check_arguments(sampler, target, objective, rng)
        _keep_freed_memory()
        self.sampler, self.target, self.objective, self.rng = sampler, target, objective, rng
        self.batches: Minibatches | None = None
        if batch_size is not None:
            num_data = getattr(target, "num_data", None)
            if num_data is None:
                raise ValueError(f"{type(target).__name__} has no data to take minibatches of; leave batch_size out")
            self.batches = Minibatches(num_data, batch_size)
        elif getattr(target, "streamed", False):
            raise ValueError(f"the {target.num_data} data are read by minibatches: give fit a batch_size")
        self.rates = optimizer if isinstance(optimizer, Optimizer) else None
        self.optimizer = _made(optimizer, sampler)
        self.first_lrs = [group["lr"] for group in self.optimizer.param_groups]
        self.settings = _described(optimizer, self.optimizer) | {"batch_size": batch_size}
        self.result = FitResult()
        self.reported = False
        self.info: dict[str, Tensor | float] = {}
        self.loss: Tensor | None = None
        self.identity: dict = {}
        self.step = 0

    def advance(self) -> Tensor:
        """One step of the optimizer on a fresh minibatch; returns the loss.

        What the objective says of itself is computed on steps that are to be ``reported``, before the parameters move.
        """
        batch = None if self.batches is None else self.batches.next(self.rng)
        loss, info = self.objective(self.sampler, self.target, batch, self.rng)
        self.info = computed(info) if self.reported else {}
        self.sampler.release_gradients()
        loss.backward()
        if type(self.rates) is Adam:
            _step_of_adam(self.optimizer)
        else:
            self.optimizer.step()
        self.step += 1
        self.loss = loss.detach()
        return self.loss

    @property
    def called(self) -> bool:
        """Whether the callback was asked at this step already."""
        return bool(self.result.history) and self.result.history[-1]["step"] == self.step

    def report(self) -> None:
        """Keep what the objective said of itself in the last step, if anything."""
        if self.info:
            said = {name: float(value) for name, value in self.info.items()}
            self.result.diagnostics.append({"step": self.step} | said)

    def status(self, loss: Tensor) -> dict[str, float]:
        """What a progress bar shows: epoch, loss, two numbers of the objective's last report, one of the callback's."""
        epoch = {} if self.batches is None else {"epoch": self.step * self.batches.batch_size / self.batches.num_data}
        found = epoch | {"loss": float(loss)}
        for rows, shown in ((self.result.diagnostics, 3), (self.result.history, 2)):
            if rows:
                found |= {name: value for name, value in list(rows[-1].items())[1:shown]}  # the first is the step
        return found

    def decay(self, steps: int) -> None:
        """Set the learning rates of the next of ``steps`` steps."""
        if self.rates is None or self.rates.final_lr is None:
            return
        lr = self.rates.lr_at(self.step, steps)
        for group, first in zip(self.optimizer.param_groups, self.first_lrs, strict=True):
            group["lr"] = first / self.rates.lr * lr

    def identify(self) -> dict:
        """Return what tells this run from others; training may change some of it.

        That is settings, seed, kind of device, objective with what its parts were made with, data, the target at fixed
        points and on a few data, its prior alone, and of the sampler the classes and plain attributes of it and of its
        modules, shapes, type and values of its parameters, its buffers (such as a fixed λ), and the tensors and
        the targets that it holds.
        """
        parameters = list(self.sampler.parameters())
        points = _points(self.target.dim, parameters[0])
        with same_draws(self.rng.device):
            return (
                self.settings
                | {
                    "seed": self.rng.initial_seed(),
                    "device": self.rng.device.type,  # a generator of a GPU has another state than a CPU's
                    "sampler": [*_kinds(self.sampler), *([*p.shape, str(p.dtype)] for p in parameters)],
                }
                | {"target": _probed(self.target, points, self._probing())}
                | _plain(self.sampler)
                | _held(self.sampler)
                | checkpoints.digest({f"sampler.{name}": buffer for name, buffer in self.sampler.named_buffers()})
                | {checkpoints.PARAMETERS: checkpoints.checksum(dict(self.sampler.named_parameters()))}
                | checkpoints.of_data(self.target)
                | checkpoints.of_priors(self.target, *points)
                | _made_with(self.objective)
            )

    def _probing(self) -> list[Tensor | None]:
        """The data that the target is probed on: the first ones, and some of all."""
        if self.batches is None:
            return [None]
        size, last = self.batches.batch_size, self.batches.num_data - 1
        spread = torch.linspace(0, last, size, dtype=torch.float64, device="cpu")  # float32 rounds beyond 2^24
        return [torch.arange(size, device="cpu"), spread.long()]

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        state = {
            "run": self.identity,
            "made with": _made_with(self.objective),
            "step": self.step,
            "sampler": self.sampler.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": self.objective.state_dict(),
            "batches": None if self.batches is None else self.batches.state_dict(),
            "rng": self.rng.get_state(),
            "history": self.result.history,
            "diagnostics": self.result.diagnostics,
            "seconds": self.result.seconds,
        }
        checkpoints.save(path, state)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            GPVIError: if it is another run's, naming what differs.
        """
        state = checkpoints.load(path, self.rng.device, *KEPT)
        saved, left = state.get("run", {}), state.get("made with")
        if left is None:  # an earlier version kept what the objective printed
            saved.pop("objective", None)
        if checkpoints.checksum(dict(self.sampler.named_parameters())) == checkpoints.checksum(
            {name: state["sampler"][name] for name, _ in self.sampler.named_parameters() if name in state["sampler"]}
        ):  # the sampler that this run has trained so far, not the one that it began with
            self._take_back(saved, state["sampler"], path)
        if not checkpoints.differing(_made_with(self.objective), left or {}):  # as the training of this run left it
            own = {name: value for name, value in self.identity.items() if not name.startswith("objective")}
            self.identity = own | {name: value for name, value in saved.items() if name.startswith("objective")}
        checkpoints.refuse_another_run(path, self.identity, saved, next(self.sampler.parameters()).dtype)
        self.step = state["step"]
        self.sampler.load_state_dict(state["sampler"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.objective.load_state_dict(state["objective"])
        if self.batches is not None:
            self.batches.load_state_dict(state["batches"])
        self.rng.set_state(state["rng"].cpu())
        self.result = FitResult(state["history"], state["diagnostics"], state["seconds"])

    def _take_back(self, saved: dict, trained: dict[str, Tensor], path: Path) -> None:
        """Put what was ``saved`` of a run's beginning in place of all that training has moved of its identity since.

        That is of the ``trained`` sampler its parameters and buffers, such as running means, which the checkpoint sets;
        and what is still as this process left it, such as a target whose power was annealed.
        """
        buffers = {f"sampler.{name}": buffer for name, buffer in trained.items() if f"sampler.{name}" in saved}
        moved = {checkpoints.PARAMETERS, HELD}
        moved |= {*checkpoints.differing(checkpoints.digest(buffers), {name: saved[name] for name in buffers})}
        left = _left.get(self.sampler, {}).get(path.resolve())
        if left is not None:
            close = checkpoints.closeness(next(self.sampler.parameters()).dtype)
            moved |= self.identity.keys() - checkpoints.differing(self.identity, left, close)
        kept = {name: value for name, value in self.identity.items() if name not in moved}
        self.identity = kept | {name: saved[name] for name in moved if name in saved}

    @contextmanager
    def left_behind(self, path: Path | None) -> Iterator[None]:
        """After what is inside, however it ends, remember how things are, should this process go on from there."""
        try:
            yield
        finally:
            if path is not None:
                with suppress(Exception):  # a target that fails where it is looked at is not known
                    _left.setdefault(self.sampler, {})[path.resolve()] = self.identify()


def fit(
    sampler: SomeSampler,
    target: Target,
    objective: Objective,
    *,
    steps: int,
    optimizer: Optimizer | Factory,
    rng: torch.Generator | None = None,
    seed: int | None = None,
    batch_size: int | None = None,
    callback: Callback[SomeSampler] | None = None,
    callback_every: int = 0,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    label: str = "fit",
    progress: bool = True,
) -> FitResult:
    """Train ``sampler`` towards ``target`` by ``optimizer`` on ``objective``.

    Args:
        sampler: trained in place.
        target: what is approximated.
        objective: what is minimised. Those that train a network of their own (helper, Stein critic) keep it: give each
            run an objective of its own, unless it is to start with the network of the run before.
        steps: number of steps of the optimizer.
        optimizer: ``Adam(lr=1e-3)``, ``Adam(lr=1e-3, final_lr=1e-5)`` for a rate that decays, :class:`RMSprop` or
            :class:`SGD`; or what makes one of ``torch.optim``, such as ``partial(torch.optim.AdamW, lr=1e-3)``, which
            keeps its rate.
        rng: the only source of randomness; advanced in place.
        seed: in place of ``rng``: of a generator made for this run, where the sampler is.
        batch_size: minibatch size for targets on data; ``None`` uses all data in every step.
        callback: called as ``callback(step, sampler)`` at step 0, then every ``callback_every`` steps and after the
            last; what it returns, if anything, goes into the history. It must not use ``rng``. If it raises, the
            checkpoint has all steps before, and the same call asks it again. It may change the target, such as anneal
            its ``power``; a new process that resumes the run has the target as you give it until the next call.
        callback_every: steps between two calls; 0, the default, calls at the start and the end alone.
        checkpoint: file to resume from if it exists (the bar then starts at its step), and to save to every
            ``checkpoint_seconds`` and when you interrupt the run (a second Ctrl-C stops without). A run that was
            interrupted and resumed gives the same result, bit for bit on a CPU with the same number of threads, as one
            that was not. The file stays when the run is complete: calling again trains no further.
        checkpoint_seconds: seconds between two checkpoints.
        label: experiment, method and seed, for the progress bar and for errors.
        progress: whether to show a bar with the time left, the epoch, the loss, the first two numbers that the
            objective says of itself, and the first that the callback returned last.

    Raises:
        ValueError: if target and batch size do not fit, the target is not finite at the first points, its number for
            one point depends on the others, it does not scale a minibatch by N / B, there is a rate for λ and no λ to
            train, or rng and seed are both given or both missing.
        TypeError: if ``optimizer`` is none, or LBFGS.
        DivergedError: at the first loss or log-density that is not finite, or singular matrix, naming ``label`` and
            step; on a GPU the loss is looked at every hundred steps.
        GPVIError: if the checkpoint is damaged, or that of another run: another seed, target, data, sampler, start,
            objective or setting; if it cannot be written there, before any training, or the disk is full, later: the
            last one that was written stays. If ``callback`` returns no numbers by name, or gradients are switched off.

    Warns:
        SlopeWarning: before the first step, if the gradient of the target is not the slope of its values.
        KinkWarning: before the first step, if the loss differentiates slopes of ReLU units of the sampler or of the
            critic. Those of a target's network are not looked for.
        FoldWarning: at the end, if the map that :class:`GPVI` or an ELBO trained folds at the last draws looked at: of
            :class:`GPVI` 16, and none where k > 64, so that silence proves nothing; ask :func:`check`. Also if some
            determinants that an :class:`OrientedELBO` trained are below its floor.
        SignWarning: at the end, if the density of a target without data grows without end away from the samples.

    Example:
        >>> sampler, target = MeanField(torch.zeros(2), 0.5), Gaussian(torch.ones(2), torch.eye(2))
        >>> result = fit(sampler, target, NegativeELBO(32), steps=300, optimizer=Adam(0.05), seed=0, progress=False)
        >>> bool((sampler.mean - 1).abs().max() < 0.2), len(result.diagnostics)
        (True, 100)
    """
    if not torch.is_grad_enabled():
        raise GPVIError("fit needs gradients: call it outside of torch.no_grad() and torch.inference_mode()")
    check_count("steps", steps, least=0)
    check_count("callback_every", callback_every, least=0)
    if checkpoint is not None:
        checkpoint = require_writable(Path(checkpoint), "give another path as checkpoint")
        sweep_temporary(checkpoint.parent, f"{checkpoint.name}.", ABANDONED)
    _check_kinds(sampler, objective)
    rng = chosen_rng(rng, seed, _device(sampler))
    state = Training(sampler, target, objective, optimizer=optimizer, rng=rng, batch_size=batch_size)
    if state.rates is not None and state.rates.final_lr is not None:
        state.settings["steps, over which the rate decays"] = steps
    if callback is not None:
        state.settings["callback_every"] = callback_every
    if checkpoint is not None:
        state.identity = state.identify()
    if checkpoint is not None and checkpoint.exists():
        state.load(checkpoint)
        if state.step > steps:
            raise GPVIError(f"{checkpoint} is {state.step} steps on already, more than steps = {steps}")
    else:
        _check_start(sampler, target, batch_size)
        objective.check(sampler)
    with state.left_behind(checkpoint):
        if _calls_at(state.step, steps, callback_every) and not state.called:
            _call(callback, state, checkpoint, label)
        report_every = math.ceil(steps / DIAGNOSTICS)
        check_every = CUDA_CHECK_EVERY if rng.device.type == "cuda" else 1
        schedule = checkpoints.Schedule(checkpoint, checkpoint_seconds)
        with (
            tqdm(total=steps, initial=state.step, desc=label, disable=not progress, leave=False) as bar,
            checkpoints.interrupt_held(checkpoint is not None) as interrupted,
        ):
            while state.step < steps:
                started = time.perf_counter()
                state.decay(steps)
                state.reported = state.step + 1 == steps or (state.step + 1) % report_every == 0
                try:
                    loss = state.advance()
                except torch.linalg.LinAlgError as error:
                    raise DivergedError(f"{label}: step {state.step + 1}: {_of_singular(error)}") from error
                except DivergedError as error:
                    raise DivergedError(f"{label}: step {state.step + 1}: {error}") from error
                if state.step % check_every == 0 or state.step == steps:
                    _check_loss(loss, label, state.step)
                state.result.seconds += time.perf_counter() - started
                if state.reported:
                    state.report()
                if _calls_at(state.step, steps, callback_every):
                    _call(callback, state, checkpoint, label)
                if state.reported:
                    bar.set_postfix(state.status(loss), refresh=False)
                bar.update()
                schedule.keep(partial(_save, state, label), label, f"step {state.step}", interrupted)
        _check_parameters(sampler, label, steps)
        if checkpoint is not None:
            state.save(checkpoint)
        _warn_of_folds(objective, state.result)
        _warn_of_growth(sampler, target)
    return state.result


def _kinds(sampler: Sampler) -> list[str]:
    """The classes of a sampler and of all modules in it."""
    return [type(module).__name__ for module in sampler.modules()]


def _plain(sampler: Sampler) -> dict[str, object]:
    """Numbers, truth values and texts among the attributes of a sampler and of all modules in it, by name."""
    found: dict[str, object] = {}
    for name, module in sampler.named_modules(prefix="sampler"):
        held = {f"{name}.{key}": value for key, value in vars(module).items() if key != "training"}
        found |= checkpoints.numbers(held)
    return found


def _points(dim: int, like: Tensor) -> list[Tensor]:
    """Two fixed points, one with positive coordinates."""
    point = 0.1 * torch.randn(1, dim, generator=torch.Generator().manual_seed(0), device="cpu")
    return [x.to(like) for x in (point, 1 + point.abs())]


def _probed(target: Target, points: list[Tensor], batches: list[Tensor | None]) -> list[float]:
    """A target at each of the points, on each of the batches, NaN where it is not defined."""
    found = []
    for x in points:
        for batch in batches:
            rows = None if batch is None else batch.to(x.device)
            try:
                with torch.no_grad():
                    value = float(log_prob(target, x, rows))
            except Exception:  # a target may be defined where the samples are, and not there
                value = math.nan
            found.append(value)
    return found


def _held(sampler: Sampler) -> dict[str, object]:
    """Fingerprints of the targets and of all public tensors, no parameters or buffers, of a sampler and its modules."""
    found: dict[str, object] = {}
    tensors: dict[str, str] = {}
    for name, module in sampler.named_modules(prefix="sampler"):
        held = {f"{name}.{key}": value for key, value in vars(module).items()}
        tensors |= _fixed({key: value for key, value in held.items() if not key.startswith(f"{name}._")})
        for part, target in checkpoints.densities(held):
            if hasattr(target, "dim"):  # no distribution of torch, which may be of parameters
                points, number = _points(target.dim, next(sampler.parameters())), getattr(target, "num_data", None)
                few = None if number is None else torch.arange(min(number, MINIBATCH_PROBED), device="cpu")
                found[part] = [type(target).__name__, *_probed(target, points, [few])]
                found |= checkpoints.of_data(target, part) | checkpoints.of_priors(target, *points, name=part)
    return found | ({HELD: checkpoints.checksum(tensors)} if tensors else {})


def _fixed(named: dict[str, object]) -> dict[str, str]:
    """Fingerprints of the tensors among values that no optimizer changes."""
    return checkpoints.digest({name: one for name, one in checkpoints.tensors(named) if not one.requires_grad})


def _made_with(objective: Objective) -> dict[str, object]:
    """What an objective and its parts were made with, by name: not what they learned since."""
    found = dict(_arguments("objective", objective))
    return _fixed(found) | checkpoints.numbers(found)


def _arguments(name: str, made: Any, outer: tuple = ()) -> Iterator[tuple[str, object]]:
    """Yield what an object and its parts were made with, by name, and of each part the class.

    Of an object those are the attributes that are named as arguments of ``__init__``, its own or a base's; what has
    none is told by what it prints, a function by its name.
    """
    parts = {} if isinstance(made, LEAVES) else _parts(made)
    yield name, made if isinstance(made, LEAVES) else type(made).__name__ if parts else _printed(made)
    for key, part in parts.items():
        if not any(part is one for one in (made, *outer)):
            yield from _arguments(f"{name}[{_printed(key)}]", part, (made, *outer))


def _printed(made: object) -> str:
    """What an object prints, the same in every process; of an array all."""
    if isinstance(made, np.ndarray):
        return checkpoints.checksum([made.dtype.str, made.tolist()])
    if isinstance(made, set | frozenset):
        return str(sorted(map(_printed, made)))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(made))


def _parts(made: Any) -> dict:
    """What is in a container; of any other object what it was made with, by name."""
    if isinstance(made, dict):
        return made
    if isinstance(made, list | tuple):
        return dict(enumerate(made))
    if isinstance(made, partial):
        return {"func": made.func, "args": made.args, "keywords": made.keywords}
    if isinstance(made, torch.distributions.Distribution):
        return checkpoints.attributes(made)
    found = {}
    for key in dict.fromkeys(key for kind in type(made).__mro__ for key in _parameters(kind)):
        with suppress(Exception):  # it has no such attribute, or one that cannot be asked for
            found[key] = getattr(made, key)
    return found


def _parameters(kind: type) -> list[str]:
    """Names of what ``__init__`` takes, without ``self``."""
    try:
        return list(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]  # of an instance's class
    except (TypeError, ValueError):  # it is no function of Python
        return []


def _device(sampler: Sampler) -> torch.device | str:
    """Where a sampler's parameters are."""
    return next((parameter.device for parameter in sampler.parameters()), "cpu")


def _check_kinds(sampler: object, objective: object) -> None:
    check_instance("sampler", sampler, Sampler, "the order is fit(sampler, target, objective)")
    direction = isinstance(objective, Direction)
    remedy = f"a direction needs ParVI({type(objective).__name__}())" if direction else "such as GPVI(100)"
    check_instance("objective", objective, Objective, remedy)


def _check_arguments(sampler: Sampler, target: Target, objective: Objective, rng: torch.Generator) -> None:
    _check_kinds(sampler, objective)
    check_instance("target", target)
    if isinstance(sampler, AdaptiveLangevin):
        raise ValueError("the rule of an AdaptiveLangevin sets its steps: train a LangevinNetwork")
    if not any(parameter.requires_grad for parameter in sampler.parameters()):
        raise ValueError(
            f"the {type(sampler).__name__} has no parameter with requires_grad=True, there is nothing to train: "
            "sampler.requires_grad_() undoes a freeze"
        )
    missing = [name for name in ("dim", "log_prob") if not hasattr(target, name)]
    if missing:
        raise ValueError(
            f"{type(target).__name__} is no target, it has no {' and no '.join(missing)}: a target is an object with "
            "dim and log_prob(x), one number per row of x"
        )
    if callable(target.dim):
        raise ValueError(f"dim of {type(target).__name__} is a method: make it a number, or a property")
    check_rng(rng)


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next step, up to 64 MB, instead of handing it back and mapping it anew.

    It does so once a block of nearly 32 MB has been freed (``mallopt``: dynamic threshold); this one is never touched.
    Elsewhere nothing happens.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")


def _made(optimizer: Optimizer | Factory, sampler: Sampler) -> torch.optim.Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer.make(sampler)
    _refuse_class(optimizer)
    made = optimizer([{"params": list(sampler.parameters())}]) if callable(optimizer) else None
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            "optimizer must be one of gpvi_lib's, such as Adam(lr=1e-3), or a function of parameters that makes one of "
            f"torch.optim's, such as partial(torch.optim.AdamW, lr=1e-3), got {optimizer!r}"
        )
    if isinstance(made, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS asks for the loss several times a step, and each would draw other noise: give Adam(1e-3)"
        )
    return made


def _refuse_class(optimizer: object) -> None:
    """Classes of ``torch.optim`` make optimizers; ours are values."""
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        raise TypeError(f"optimizer must be an instance, got the class: write {optimizer.__name__}(lr=1e-3)")


def _described(optimizer: Optimizer | Factory, made: torch.optim.Optimizer) -> dict:
    """What a checkpoint tells optimizers apart by."""
    if isinstance(optimizer, Optimizer):
        own = {"optimizer": type(optimizer).__name__} | asdict(optimizer)
        if type(optimizer) in (Adam, RMSprop, SGD):
            return own
    else:
        own = {"optimizer": type(made).__name__}
    return own | {"optimizer's settings": repr(made.defaults)}


@torch.no_grad()
def _step_of_adam(optimizer: torch.optim.Optimizer) -> None:
    """``optimizer.step()`` of fused Adam without the hooks around it, as dear as a small problem's update."""
    moving = [[p for p in group["params"] if p.grad is not None] for group in optimizer.param_groups]
    all_states = [[optimizer.state[p] for p in moved] for moved in moving]
    if not all(map(all, all_states)):  # the first step makes them
        optimizer.step()
        return
    for group, moved, states in zip(optimizer.param_groups, moving, all_states, strict=True):
        adam(
            moved,
            [p.grad for p in moved],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


def _check_start(sampler: Sampler, target: Target, batch_size: int | None) -> None:
    """Look at the target once where the sampler starts, on as many data as a step uses."""
    device = next(sampler.parameters()).device
    probe = sampler.sample(2 if sampler.fixed_number is None else None, torch.Generator(device).manual_seed(0))
    batch = None if batch_size is None else torch.arange(batch_size, device=device)
    few = None if batch is None else batch[: max(1, min(MINIBATCH_PROBED, len(batch) // 2))]
    check_finite(target, probe, batch)
    if few is not None:
        check_minibatch(target, probe, few)
    if few is None or _is_users_own(target):
        check_all_data(target, probe)
    check_rows(lambda rows: log_prob(target, rows, few), probe, apart=points_differ(target))
    check_slope(target, probe, few, stacklevel=4)


def _is_users_own(target: Target) -> bool:
    """Whether a target of data scales a minibatch by itself, and has few enough data to compare with all of them."""
    return not isinstance(target, Posterior) and getattr(target, "num_data", math.inf) <= ALL_PROBED


def _check_loss(loss: Tensor, label: str, step: int) -> None:
    if not math.isfinite(loss.item()):
        raise DivergedError(
            f"{label}: the loss is {loss.item()} at step {step}; lower the learning rate, or look at the target: NaN "
            "in its data, a parameter outside its support (Constrained), or the wrong sign"
        )


def _of_singular(error: torch.linalg.LinAlgError) -> str:
    """The remedy, by whose matrix it is: errors out of a target or a direction have notes."""
    if getattr(error, "__notes__", None):
        return f"{error.__notes__[0].removeprefix('gpvi_lib: ')} ({error})"
    return (
        "a matrix is singular; lower the learning rate, or start a generator's noise_scale λ near the scale of the "
        f"target ({error})"
    )


def _check_parameters(sampler: Sampler, label: str, step: int) -> None:
    """A last update can spoil parameters whose loss was still finite."""
    for name, parameter in sampler.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise DivergedError(f"{label}: {name} is not finite after step {step}; lower the learning rate")


FOLDED = {
    GPVI: ("GPVI descends on a divergence below the true one", "train on the exact density (NegativeELBO)"),
    NegativeELBO: ("the ELBO is above the true one", "keep the determinant positive (OrientedELBO)"),
    OrientedELBO: (
        "the reported elbo is above the true one, though negative determinants cost in the objective",
        "train for longer, until all are positive",
    ),
}
"""Objective -> what is wrong where the map that it trained folds, and what to change beside scale and rate."""


def _warn_of_folds(objective: Objective, result: FitResult) -> None:
    """Both signs of det J at the last draws prove a fold; one sign everywhere may be a mirror image, which is none.

    Determinants below the floor of an :class:`OrientedELBO` come first: the floor is then the cause of folds, too.
    """
    last = result.diagnostics[-1] if result.diagnostics else {}
    negative, below = last.get("folds", 0.0), last.get("below_floor", 0.0)
    trained_on = next((said for kind, said in FOLDED.items() if isinstance(objective, kind)), None)
    if isinstance(objective, OrientedELBO) and below > 0:
        warnings.warn(
            f"the determinants of {below:.2g} of the draws last looked at are between 0 and floor={objective.floor:g}, "
            "where the objective credits more entropy than there is, and so makes the map too narrow: give "
            "OrientedELBO a tenth to a hundredth of the determinants of a good map, which are about s^k for a target "
            "of scale s",
            FoldWarning,
            stacklevel=3,
        )
    elif trained_on and 0 < negative < 1:
        harm, remedy = trained_on
        warnings.warn(
            f"the trained map folds: det J is negative at {negative:.2g} of the draws last looked at. Several z lead "
            f"to one x there, and {harm}. Lower the learning rate, start noise_scale and output_scale near the scale "
            f"of the target, or {remedy}; check(sampler, target, rng) says what to trust (notebook 02)",
            FoldWarning,
            stacklevel=3,
        )


def _warn_of_growth(sampler: Sampler, target: Target) -> None:
    """Of a target without data, for a posterior looks at its likelihood itself."""
    if getattr(target, "num_data", None) is not None:
        return
    number = LOOKED_AT if sampler.fixed_number is None else None
    with torch.no_grad():
        x = sampler.sample(number, torch.Generator(_device(sampler)).manual_seed(0))
    if bool(torch.isfinite(x).all()) and grows_outwards(lambda x: score(target, x), x):
        warnings.warn(wrong_sign(f"{type(target).__name__}.log_prob"), SignWarning, stacklevel=3)


def _calls_at(step: int, steps: int, every: int) -> bool:
    return step in (0, steps) or (every > 0 and step % every == 0)


def _save(state: Training, label: str, path: Path) -> None:
    """Write a checkpoint, unless what it would hold is not finite: then the one before stays.

    Raises:
        DivergedError: if loss or parameters are not finite.
    """
    if state.loss is not None:
        _check_loss(state.loss, label, state.step)
    _check_parameters(state.sampler, label, state.step)
    state.save(path)


def _call(callback: Callback | None, state: Training, checkpoint: Path | None, label: str) -> None:
    """Ask the callback; where it fails, keep the steps done: the same call of ``fit`` then asks it again."""
    if callback is None:
        return
    try:
        returned = callback(state.step, state.sampler)
        row: dict[str, float] = {"step": state.step}
        state.result.history.append(row | _numbers(returned, state.step) | row)
    except Exception:
        if checkpoint is not None:
            _save(state, label, checkpoint)
        raise


def _numbers(returned: dict[str, float] | None, step: int) -> dict[str, float]:
    try:  # Plain numbers only: a checkpoint must be readable without unpickling anything else.
        return {} if returned is None else {name: float(value) for name, value in dict(returned).items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise GPVIError(
            f"callback must return numbers by name, such as {{'error': 0.1}}, or None, got {returned!r:.80} at step "
            f"{step}"
        ) from error
