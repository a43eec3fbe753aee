"""Hamiltonian Monte Carlo with batched chains."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.checks import check_count, check_points, check_positive, chosen_rng
from gpvi_lib.errors import GPVIError
from gpvi_lib.paths import require_writable
from gpvi_lib.targets.base import check_fixed, check_precision, check_rows, points_differ, same_draws
from gpvi_lib.targets.looks import add_hint, grows_outwards, wrong_sign
from gpvi_lib.targets.posterior import SignWarning

LogProb = Callable[[Float[Tensor, "c d"]], Float[Tensor, " c"]]


class AcceptanceWarning(UserWarning):
    """In :func:`hmc` a step size, a start or a prior does not suit, or log p is too large for its precision."""


COARSE = 0.1
"""Nats between neighbouring values of log p from which on accepting is rounding."""


UNBOUNDED = 1e4
"""Times as large as the first step, the adapted one has met no slope that would hold it."""


@dataclass(frozen=True)
class HMCResult:
    """Draws and diagnostics.

    Attributes:
        samples: kept draws, ``(draws, chains, d)``.
        acceptance: fraction of accepted proposals per chain after the burn-in, ``(chains,)``.
        energy_error: mean ``|H(end) - H(start)|`` per chain after the burn-in, ``(chains,)``, of the proposals whose
            energy is finite; all others are rejected. NaN if there are none.
        step_size: the leapfrog step of the kept draws: the one given, or the one that the burn-in found.
        seconds: wall time of all proposals, those before an interruption included.
        apart: whether the chains started at more than one point; if not, R-hat says little (:func:`check`).

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> settings = {"step_size": 1.0, "num_leapfrog": 5, "num_steps": 60, "burn_in": 10}
        >>> result = hmc(lambda x: -0.5 * x.square().sum(-1), torch.zeros(4, 2), **settings, rng=rng, progress=False)
        >>> result.samples.shape, result.acceptance.shape
        (torch.Size([50, 4, 2]), torch.Size([4]))
        >>> result.pooled.shape
        torch.Size([200, 2])
    """

    samples: Float[Tensor, "draws chains d"]
    acceptance: Float[Tensor, " chains"]
    energy_error: Float[Tensor, " chains"]
    step_size: float
    seconds: float
    apart: bool = True

    @property
    def pooled(self) -> Float[Tensor, "n d"]:
        """The draws of all chains in one, ``(draws * chains, d)``, which :meth:`Posterior.predictive` takes.

        The chains take turns: thin them before, ``samples[::4].flatten(0, 1)``, since every fourth row of four chains
        is one of them.
        """
        return self.samples.flatten(0, 1)


def value_and_score(log_prob: LogProb, x: Tensor) -> tuple[Float[Tensor, " c"], Float[Tensor, "c d"]]:
    """``log p(x)`` and its gradient for every chain.

    Example:
        >>> value, gradient = value_and_score(lambda x: -0.5 * x.square().sum(-1), torch.ones(3, 2))
        >>> value, gradient.shape
        (tensor([-1., -1., -1.]), torch.Size([3, 2]))
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        try:
            value = log_prob(x)
        except Exception as error:
            add_hint(error, x)
            raise
        if not (isinstance(value, Tensor) and value.requires_grad):
            raise ValueError(
                f"log_prob must return a tensor that is differentiable in x, got {type(value).__name__}: compute with "
                "torch operations, without numpy, .detach(), .item() and no_grad()"
            )
        try:
            (gradient,) = torch.autograd.grad(value.sum(), x)
        except RuntimeError as error:
            add_hint(error, x)
            raise
    return value.detach(), gradient


def leapfrog(
    log_prob: LogProb,
    x: Float[Tensor, "c d"],
    momentum: Float[Tensor, "c d"],
    gradient: Float[Tensor, "c d"],
    *,
    step_size: float,
    num_steps: int,
) -> tuple[Float[Tensor, "c d"], Float[Tensor, "c d"], Float[Tensor, " c"], Float[Tensor, "c d"]]:
    """``num_steps`` leapfrog steps of ``H(x, m) = -log p(x) + |m|^2 / 2``.

    Args:
        log_prob: ``(c, d) -> (c,)``.
        x, momentum: where the chains start, ``(c, d)``.
        gradient: ``∇log p(x)`` at the start, so that no evaluation is repeated.
        step_size: ε.
        num_steps: at least one.

    Returns:
        End position and momentum, and ``log p`` and its gradient there. The map is reversible (flip the momentum) and
        preserves volume.

    Example:
        >>> target, x, still = Gaussian(torch.zeros(2), torch.eye(2)), torch.ones(3, 2), torch.zeros(3, 2)
        >>> steps = {"step_size": 0.1, "num_steps": 10}
        >>> end, momentum, value, gradient = leapfrog(target.log_prob, x, still, score(target, x), **steps)
        >>> back, *_ = leapfrog(target.log_prob, end, -momentum, gradient, **steps)
        >>> torch.allclose(back, x, atol=1e-5)
        True
    """
    momentum = momentum + 0.5 * step_size * gradient
    for i in range(num_steps):
        x = x + step_size * momentum
        value, gradient = value_and_score(log_prob, x)
        momentum = momentum + (step_size if i < num_steps - 1 else 0.5 * step_size) * gradient
    return x, momentum, value, gradient


class DualAveraging:
    """Find the step size at which a share ``target`` of the proposals is accepted (Hoffman and Gelman 2014, 3.2).

    After proposal ``t``, accepted with probability ``α_t``::

        E_t = (1 - 1/(t + t₀)) E_{t-1} + (target - α_t)/(t + t₀)      how far acceptance was off, on average
        log ε_t = μ - (√t/γ) E_t                                      the step to try next
        log ε̄_t = (1 - t^-κ) log ε̄_{t-1} + t^-κ log ε_t               the step to keep

    with ``μ = log(10 ε_0)``, ``γ = 0.05``, ``t₀ = 10`` and ``κ = 0.75``.

    Args:
        step_size: ``ε_0``, the first to be tried.
        target: share of accepted proposals to aim at, strictly between 0 and 1.

    Example:
        >>> search = DualAveraging(step_size=1.0, target=0.8)
        >>> for _ in range(500):
        ...     search.update(max(0.0, 1 - search.step_size(trying=True)))  # as if a step ε were accepted so often
        >>> round(search.step_size(trying=False), 1)
        0.2
    """

    def __init__(self, step_size: float, target: float) -> None:
        self.target, self.centre, self.t = target, math.log(10 * step_size), 0
        self.error, self.log_step, self.log_average = 0.0, math.log(step_size), 0.0

    def step_size(self, *, trying: bool) -> float:
        """``ε_t`` while the search goes on, ``ε̄_t`` after it."""
        return math.exp(self.log_step if trying else self.log_average)

    def update(self, acceptance: float) -> None:
        """Take in the mean acceptance probability of one proposal of all chains."""
        self.t += 1
        self.error += (self.target - acceptance - self.error) / (self.t + 10)
        self.log_step = self.centre - math.sqrt(self.t) / 0.05 * self.error
        self.log_average += self.t**-0.75 * (self.log_step - self.log_average)


class _Chains:
    """Everything that changes while the chains run, so that a checkpoint can hold it whole."""

    def __init__(self, log_prob: LogProb, initial: Tensor, rng: torch.Generator) -> None:
        if not callable(log_prob):
            kind = type(log_prob).__name__
            raise ValueError(f"log_prob must be a function of points (c, d), got {kind}: pass its method .log_prob")
        if initial.ndim != 2:
            raise ValueError(f"initial must have shape (c, d), one row a chain, got {tuple(initial.shape)}")
        self.log_prob, self.rng = _nan_where_singular(log_prob), rng
        self.target = getattr(log_prob, "__self__", None)
        self.x = initial.detach().clone()
        try:
            self.value, self.gradient = value_and_score(self.log_prob, self.x)
        except RuntimeError:
            check_precision(log_prob, self.x, "log_prob")
            raise
        if self.value.shape != self.x.shape[:1]:
            raise ValueError(
                f"log_prob must return one number per chain, {tuple(self.x.shape[:1])}, got {tuple(self.value.shape)}"
            )
        self._check_start()
        check_fixed(log_prob, self.x)
        check_rows(log_prob, self.x, apart=points_differ(self.target))
        self.step = 0
        self.kept: list[Tensor] = []
        self.acceptance = torch.zeros_like(self.value)
        self.energy_error = torch.zeros_like(self.value)
        self.runaways = torch.zeros_like(self.value)
        self.seconds, self.resumed = 0.0, time.perf_counter()
        self.adaptation: DualAveraging | None = None

    def _check_start(self) -> None:
        """Refuse starting points where the density or its gradient is not finite."""
        lost = ~torch.isfinite(self.value)
        if bool(lost.all()):
            raise ValueError(
                "log_prob is not finite at any chain's starting point: look for NaN in the data, or start elsewhere"
            )
        if bool(lost.any()):
            raise ValueError(
                f"log_prob is not finite at the starting points of chains {lost.nonzero().flatten().tolist()}; "
                "start them elsewhere"
            )
        bad = ~torch.isfinite(self.gradient).all(-1)
        if bool(bad.any()):
            raise ValueError(
                f"the gradient of log_prob is not finite at the starting points of chains "
                f"{bad.nonzero().flatten().tolist()}: start elsewhere; of torch.where the branch that is not taken "
                "counts too, clamp inside it"
            )

    def propose(self, step_size: float, num_leapfrog: int) -> tuple[Bool[Tensor, " c"], Float[Tensor, " c"]]:
        """One proposal for every chain; which were accepted, and the energy errors."""
        start = torch.randn(self.x.shape, generator=self.rng, dtype=self.x.dtype, device=self.x.device)
        with _without_argument_checks():
            proposal, end, value, gradient = leapfrog(
                self.log_prob, self.x, start, self.gradient, step_size=step_size, num_steps=num_leapfrog
            )
        error = _energy(value, end) - _energy(self.value, start)
        accept = _metropolis(error, self.rng)
        self.x = torch.where(accept[:, None], proposal, self.x)
        self.value = torch.where(accept, value, self.value)
        self.gradient = torch.where(accept[:, None], gradient, self.gradient)
        self.step += 1
        return accept, error

    def count(self, accept: Bool[Tensor, " c"], error: Float[Tensor, " c"]) -> None:
        """Take a proposal after the burn-in into the diagnostics."""
        finite = torch.isfinite(error)
        self.acceptance += accept
        self.energy_error += torch.where(finite, error.abs(), 0)
        self.runaways += ~finite

    def identify(self, settings: dict) -> None:
        """Note what tells this run from others: settings, seed, kind of device, starts, density and score there.

        And density and score beside the starts, since at a mode all densities are flat. If ``log_prob`` is the method
        of a target with a prior, the prior too, alone, since many data hide it.
        """
        rng = torch.Generator().manual_seed(0)
        away = torch.randn(self.x.shape, generator=rng, dtype=self.x.dtype, device="cpu")
        beside = self.x + 0.1 * away.to(self.x.device)
        with _without_argument_checks(), same_draws(self.x.device):
            value, gradient = value_and_score(self.log_prob, beside)
            prior = checkpoints.of_priors(self.target, self.x, beside)
        there, near = float(self.gradient.abs().sum()), float(gradient.abs().sum())
        target = {
            "log_prob": [float(part.sum()) for part in (self.value, value)],
            "scores": _beside(there, near),
        }
        where = {"seed": self.rng.initial_seed(), "device": self.rng.device.type}
        self.identity = settings | where | checkpoints.digest({"initial": self.x}) | target | prior
        self.resumed = time.perf_counter()  # this was no proposal

    def clock(self) -> float:
        """Seconds of all proposals so far, over interruptions."""
        now = time.perf_counter()
        self.seconds, self.resumed = self.seconds + now - self.resumed, now
        return self.seconds

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        state = {name: getattr(self, name) for name in self._saved}
        if self.adaptation is not None:
            state["adaptation"] = vars(self.adaptation)
        checkpoints.save(path, state | {"run": self.identity, "rng": self.rng.get_state(), "seconds": self.clock()})

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            GPVIError: if it is another run's, naming what differs.
        """
        state = checkpoints.load(path, self.x.device)
        saved = state.get("run", {})
        if "score" in saved:  # an older one has the two as they are
            saved["scores"] = _beside(*saved.pop("score"))
        checkpoints.refuse_another_run(path, self.identity, saved, self.value.dtype)
        self.rng.set_state(state.pop("rng").cpu())
        state.setdefault("runaways", self.runaways)  # older ones do not say
        for name in self._saved:
            setattr(self, name, state[name])
        self.seconds, self.resumed = state.get("seconds", 0.0), time.perf_counter()  # older ones do not say
        if self.adaptation is not None:
            vars(self.adaptation).update(state["adaptation"])

    _saved = ("x", "value", "gradient", "step", "kept", "acceptance", "energy_error", "runaways")


def hmc(
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    *,
    step_size: float,
    num_leapfrog: int | tuple[int, int],
    num_steps: int,
    burn_in: int,
    thin: int = 1,
    adapt: bool = False,
    target_acceptance: float = 0.8,
    rng: torch.Generator | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    label: str = "hmc",
    progress: bool = True,
) -> HMCResult:
    """Sample ``exp(log_prob)`` with one chain per row of ``initial``; unit mass matrix, fresh momentum each step.

    With ``adapt=True`` the burn-in is a warm-up that finds the step size by :class:`DualAveraging`, one for all chains
    from their mean acceptance probability. The draws that are kept are made with that step, held fixed: a step that
    went on changing with the states would no longer leave the density invariant.

    Args:
        log_prob: ``(c, d) -> (c,)``; rows are independent chains. Of a target give its method ``log_prob`` itself:
            behind a function of your own, a checkpoint cannot see the prior alone, and many data hide it.
        initial: starting points, finite density required. Start the chains apart, such as at ``torch.randn(c, d)``:
            :func:`check` compares them, and chains from one point can agree on a part of the target.
        step_size: leapfrog step ε; with ``adapt`` the first one tried, which may be wrong by orders of magnitude.
        num_leapfrog: leapfrog steps per proposal. A pair ``(least, most)`` draws the number anew for each proposal, the
            same for all chains: with a fixed number a direction of a Gaussian can return to its start every time.
        num_steps: proposals per chain, burn-in included.
        burn_in: proposals whose states are thrown away.
        thin: keep every ``thin``-th state after the burn-in.
        adapt: find the step size in the burn-in. A few hundred proposals are enough.
        target_acceptance: with ``adapt``, the share of accepted proposals to aim at; between 0 and 1 in any case.
        rng: the only source of randomness; advanced in place.
        seed: in place of ``rng``: of a generator made for this run, where ``initial`` is. Not that of ``initial``:
            calls with one seed share their random numbers.
        checkpoint: file to resume from if it exists, and to save to every ``checkpoint_seconds``. A run that was
            interrupted and resumed draws the same samples as one that was not. The file stays when the run is complete:
            calling again draws no further.
        checkpoint_seconds: seconds between two checkpoints.
        label: experiment, method and seed, for the progress bar and warnings.
        progress: whether to show a bar with the time left.

    Warns:
        AcceptanceWarning: if less than 0.1 or more than 0.99 of the proposals after the burn-in were accepted (more
            than halfway from a ``target_acceptance`` above 0.98 to 1), or less than 0.1 in some of the chains; if
            ``adapt`` made the step more than 10,000 times as large; or if log p is so large after the burn-in that
            rounding decides.
        SignWarning: if ``log_prob`` grows without end away from the draws, as the negative of a log-density does.

    Raises:
        ValueError: if a setting is not positive, if the counts leave no draw or ``adapt`` no burn-in, if ``log_prob``
            is no function or does not return one number per chain, if a chain starts where the density is not finite,
            or if rng and seed are both given or both missing.
        GPVIError: if ``log_prob`` has another number at each evaluation or mixes points; or if the checkpoint is
            damaged, or that of another run: another seed, density, start or setting; or if it cannot be written there.

    Example:
        >>> settings = {"num_leapfrog": (5, 15), "num_steps": 600, "burn_in": 300, "seed": 0, "progress": False}
        >>> result = hmc(lambda x: -50 * x.square().sum(-1), torch.ones(16, 2), step_size=1.0, adapt=True, **settings)
        >>> result.samples.shape
        torch.Size([300, 16, 2])
        >>> 0.7 < result.acceptance.mean() < 0.9, 0.05 < result.step_size < 0.2  # the standard deviation is 0.1
        (tensor(True), True)
    """
    checkpoint = None if checkpoint is None else require_writable(Path(checkpoint), "give another path as checkpoint")
    check_points("initial", initial)
    rng = chosen_rng(rng, seed, initial.device)
    _check(step_size, num_leapfrog, num_steps, burn_in, thin)
    _check_adaptation(adapt, target_acceptance, burn_in)
    chains, first = _Chains(log_prob, initial, rng), step_size
    chains.adaptation = DualAveraging(step_size, target_acceptance) if adapt else None
    if checkpoint is not None:
        settings = {"step_size": step_size, "num_leapfrog": num_leapfrog, "burn_in": burn_in, "thin": thin}
        chains.identify(settings | {"target_acceptance": target_acceptance if adapt else None})
    if checkpoint is not None and checkpoint.exists():
        chains.load(checkpoint)
        if chains.step > num_steps:
            raise GPVIError(f"{checkpoint} is {chains.step} proposals on already, more than num_steps = {num_steps}")
        if chains.step > burn_in:
            _warn_of_coarse_values(chains.value)
    schedule = checkpoints.Schedule(checkpoint, checkpoint_seconds)
    with (
        tqdm(total=num_steps, initial=chains.step, desc=label, disable=not progress, leave=False) as bar,
        checkpoints.interrupt_held(checkpoint is not None) as interrupted,
    ):
        while chains.step < num_steps:
            in_burn_in = chains.step < burn_in
            if chains.step == burn_in:
                _warn_of_coarse_values(chains.value)
            if chains.adaptation is not None:
                step_size = chains.adaptation.step_size(trying=in_burn_in)
            accept, error = chains.propose(step_size, _number(num_leapfrog, rng))
            if chains.adaptation is not None and in_burn_in:
                chains.adaptation.update(float(_probability(error).mean()))
            if not in_burn_in:
                chains.count(accept, error)
                if (chains.step - burn_in) % thin == 0:
                    chains.kept.append(chains.x)
            bar.update()
            schedule.keep(chains.save, label, f"proposal {chains.step}", interrupted)
    if checkpoint is not None:
        chains.save(checkpoint)
    if chains.adaptation is not None:
        step_size = chains.adaptation.step_size(trying=False)
    after = num_steps - burn_in
    rates = chains.acceptance / after, chains.energy_error / (after - chains.runaways)
    apart = bool((initial != initial[:1]).any())
    result = HMCResult(torch.stack(chains.kept), *rates, step_size, chains.clock(), apart)
    if grows_outwards(lambda x: value_and_score(chains.log_prob, x)[1], chains.x, chains.gradient):
        warnings.warn(wrong_sign("log_prob"), SignWarning, stacklevel=2)
    else:
        _judge(result, label, first if adapt else None, max(0.99, (1 + target_acceptance) / 2) if adapt else 0.99)
    return result


def _beside(there: float, near: float) -> list[float]:
    """The score near the starts, and its sum with the one there, which at a mode is rounding alone."""
    return [near, near + there if math.isfinite(near) else there]


def _nan_where_singular(log_prob: LogProb) -> LogProb:
    """The same, but NaN, so that it is never accepted, where a matrix is singular: one chain does not stop the rest."""

    def alone(x: Tensor) -> Tensor:
        try:
            return log_prob(x)
        except torch.linalg.LinAlgError:
            return x.sum(-1) * math.nan

    def value(x: Tensor) -> Tensor:
        try:
            return log_prob(x)
        except torch.linalg.LinAlgError:
            return torch.cat([alone(row) for row in x.split(1)])

    return value


def _check(step_size: float, num_leapfrog: int | tuple[int, int], num_steps: int, burn_in: int, thin: int) -> None:
    """Refuse settings that cannot work."""
    if isinstance(num_leapfrog, list):
        raise ValueError(f"num_leapfrog is a number or a tuple (least, most), got the list {num_leapfrog}")
    least, most = num_leapfrog if isinstance(num_leapfrog, tuple) else (num_leapfrog, num_leapfrog)
    for name, value in (("thin", thin), ("num_leapfrog", least), ("num_leapfrog", most), ("num_steps", num_steps)):
        check_count(name, value)
    check_count("burn_in", burn_in, least=0)
    check_positive("step_size", step_size)
    if most < least:
        raise ValueError(f"num_leapfrog is a pair (least, most), got {num_leapfrog}")
    if not 0 <= burn_in <= num_steps - thin:
        raise ValueError(f"burn_in = {burn_in} and thin = {thin} leave no draw of num_steps = {num_steps}")


def _check_adaptation(adapt: bool, target_acceptance: float, burn_in: int) -> None:
    """Refuse settings with which no step size can be found."""
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance is a share between 0 and 1, got {target_acceptance}")
    if adapt and not burn_in > 0:
        raise ValueError(f"adapt finds the step size in the burn-in: give burn_in > 0, got {burn_in}")


def _judge(result: HMCResult, label: str, first: float | None, most: float) -> None:
    """Warn of an acceptance rate that says that the step is far too large or far too small.

    ``first`` is the step that an adaptation started from, ``most`` the rate from which a step is too small.
    """
    rate, stuck = float(result.acceptance.mean()), int((result.acceptance < 0.1).sum())
    if first is not None and result.step_size > UNBOUNDED * first and rate > 0.99:
        warnings.warn(
            f"{label}: the step grew from {first:.3g} to {result.step_size:.3g}, so log_prob hardly changes: is the "
            "prior of every parameter proper, and is each determined by prior or data?",
            AcceptanceWarning,
            stacklevel=3,
        )
        return
    few = rate < 0.1
    if 0.1 <= rate <= most:
        if stuck:
            warnings.warn(
                f"{label}: {stuck} of {len(result.acceptance)} chains took fewer than 0.1 of their proposals after the "
                "burn-in, and stay where they are. Leave their draws out, result.samples[:, result.acceptance >= 0.1], "
                "and start the chains where the density is not tiny, such as at draws of the prior.",
                AcceptanceWarning,
                stacklevel=3,
            )
        return
    problem = f"only {rate:.3f} (below 0.1)" if few else f"{rate:.3f} (above {most:.3g})"
    meaning = (
        "too large: the chains hardly move" if few else "smaller than needed: the chains move slowly for their cost"
    )
    remedy = f"a {'smaller' if few else 'larger'} step_size"
    remedy = f"{remedy}, or adapt=True, which finds one in the burn-in" if first is None else "a longer burn_in"
    warnings.warn(
        f"{label}: acceptance rate after the burn-in {problem}, so step_size = {result.step_size:.3g} is {meaning}. "
        f"Use {remedy}.",
        AcceptanceWarning,
        stacklevel=3,
    )


def _warn_of_coarse_values(value: Float[Tensor, " c"]) -> None:
    """Say so where neighbouring numbers of its precision are so far apart that an acceptance rate means little."""
    if coarse := coarseness(float(value.abs().max()), value.dtype):
        of_all = coarseness(float(value.abs().median()), value.dtype)
        remedy = "Start in float64: a constant taken off the sum comes too late" if of_all else "Start those elsewhere"
        warnings.warn(
            f"after the burn-in {'' if of_all else 'of some chains '}{coarse}: which proposals are accepted is "
            f"rounding. {remedy}",
            AcceptanceWarning,
            stacklevel=3,
        )


def coarseness(size: float, dtype: torch.dtype) -> str | None:
    """How far apart values of log p are, in words, if that is more than ``COARSE`` nats.

    Example:
        >>> coarseness(1e7, torch.float32)
        'log_prob is 1e+07 in size, where numbers of torch.float32 are 1.2 nats apart'
        >>> coarseness(1e7, torch.float64) is None
        True
    """
    apart = torch.finfo(dtype).eps * size
    if apart <= COARSE:
        return None
    return f"log_prob is {size:.2g} in size, where numbers of {dtype} are {apart:.2g} nats apart"


@contextmanager
def _without_argument_checks() -> Iterator[None]:
    """Inside, ``torch.distributions`` take any number and answer with NaN, as a step that is too long needs.

    Its trajectory leaves the support, or all numbers; an energy that is not finite is rejected.
    """
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _number(num_leapfrog: int | tuple[int, int], rng: torch.Generator) -> int:
    """The number of leapfrog steps, drawn if it is a pair."""
    if not isinstance(num_leapfrog, tuple):
        return num_leapfrog
    least, most = num_leapfrog
    return int(torch.randint(least, most + 1, (), generator=rng, device=rng.device))


def _probability(energy_error: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """``min(1, exp(-ΔH))``, the probability that a proposal is accepted; 0 for an energy that is not finite."""
    return torch.where(torch.isfinite(energy_error), torch.exp(-energy_error.clamp(min=0)), 0)


def _energy(value: Tensor, momentum: Tensor) -> Float[Tensor, " c"]:
    """``H = -log p + |m|^2 / 2``."""
    return -value + 0.5 * momentum.square().sum(-1)


def _metropolis(energy_error: Float[Tensor, " c"], rng: torch.Generator) -> Bool[Tensor, " c"]:
    """Accept with probability ``min(1, exp(-ΔH))``; an energy that is not finite is always rejected."""
    uniform = torch.rand(energy_error.shape, generator=rng, dtype=energy_error.dtype, device=energy_error.device)
    return (torch.log(uniform) < -energy_error) & torch.isfinite(energy_error)
