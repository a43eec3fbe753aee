"""Hamiltonian Monte Carlo with batched chains."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.errors import GPVIError

LogProb = Callable[[Float[Tensor, "c d"]], Float[Tensor, " c"]]


@dataclass(frozen=True)
class HMCResult:
    """Draws and diagnostics.

    Attributes:
        samples: kept draws, ``(draws, chains, d)``.
        acceptance: fraction of accepted proposals per chain after the burn-in, ``(chains,)``.
        energy_error: mean ``|H(end) - H(start)|`` per chain after the burn-in, ``(chains,)``.
    """

    samples: Float[Tensor, "draws chains d"]
    acceptance: Float[Tensor, " chains"]
    energy_error: Float[Tensor, " chains"]


def value_and_score(log_prob: LogProb, x: Tensor) -> tuple[Float[Tensor, " c"], Float[Tensor, "c d"]]:
    """``log p(x)`` and its gradient for every chain."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = log_prob(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
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
        gradient: ``∇log p(x)`` at the start, so that no evaluation is repeated.

    Returns:
        End position and momentum, and ``log p`` and its gradient there. The map is reversible (flip the momentum) and
        preserves volume.
    """
    momentum = momentum + 0.5 * step_size * gradient
    for i in range(num_steps):
        x = x + step_size * momentum
        value, gradient = value_and_score(log_prob, x)
        momentum = momentum + (step_size if i < num_steps - 1 else 0.5 * step_size) * gradient
    return x, momentum, value, gradient


class _Chains:
    """Everything that changes while the chains run, so that a checkpoint can hold it whole."""

    def __init__(self, log_prob: LogProb, initial: Tensor, rng: torch.Generator) -> None:
        self.log_prob, self.rng = log_prob, rng
        self.x = initial.detach().clone()
        self.value, self.gradient = value_and_score(log_prob, self.x)
        if self.value.shape != self.x.shape[:1]:
            raise ValueError(
                f"log_prob must return one number per chain, {tuple(self.x.shape[:1])}, got {tuple(self.value.shape)}"
            )
        if not bool(torch.isfinite(self.value).all()):
            raise ValueError("log_prob is not finite at some chain's starting point; start elsewhere")
        self.step = 0
        self.kept: list[Tensor] = []
        self.acceptance = torch.zeros_like(self.value)
        self.energy_error = torch.zeros_like(self.value)

    def propose(self, step_size: float, num_leapfrog: int) -> tuple[Bool[Tensor, " c"], Float[Tensor, " c"]]:
        """One proposal for every chain; which were accepted, and the energy errors."""
        start = torch.randn(self.x.shape, generator=self.rng, dtype=self.x.dtype, device=self.x.device)
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

    def identify(self, settings: dict) -> None:
        """Note what tells this run from others: settings, seed, kind of device, starts, density and score there."""
        start = {"initial": self.x, "log_prob": self.value, "score": self.gradient}
        where = {"seed": self.rng.initial_seed(), "device": self.rng.device.type}
        self.identity = settings | where | checkpoints.digest(start)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        state = {name: getattr(self, name) for name in self._saved}
        checkpoints.save(path, state | {"run": self.identity, "rng": self.rng.get_state()})

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            GPVIError: if it is another run's, naming what differs.
        """
        state = checkpoints.load(path, self.x.device)
        checkpoints.refuse_another_run(path, self.identity, state.get("run", {}))
        self.rng.set_state(state.pop("rng").cpu())
        for name in self._saved:
            setattr(self, name, state[name])

    _saved = ("x", "value", "gradient", "step", "kept", "acceptance", "energy_error")


def hmc(
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    *,
    step_size: float,
    num_leapfrog: int,
    num_steps: int,
    burn_in: int,
    thin: int = 1,
    rng: torch.Generator,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    label: str = "hmc",
    progress: bool = True,
) -> HMCResult:
    """Sample ``exp(log_prob)`` with one chain per row of ``initial``; unit mass matrix, fresh momentum each step.

    Args:
        log_prob: ``(c, d) -> (c,)``; rows are independent chains.
        initial: starting points, finite density required.
        step_size: leapfrog step ε.
        num_leapfrog: leapfrog steps per proposal.
        num_steps: proposals per chain, burn-in included.
        burn_in: proposals whose states are thrown away.
        thin: keep every ``thin``-th state after the burn-in.
        rng: the only source of randomness; advanced in place.
        checkpoint: file to resume from if it exists, and to save to every ``checkpoint_seconds``. A run that was
            interrupted and resumed draws the same samples as one that was not. The file stays when the run is complete:
            calling again draws no further.
        label: experiment, method and seed, for the progress bar.
        progress: whether to show a bar with the time left.

    Raises:
        ValueError: if a setting is not positive, if the counts leave no draw, if ``log_prob`` does not return one
            number per chain, or if a chain starts where the density is not finite.
        GPVIError: if the checkpoint is damaged, or that of another run: another seed, density, start or setting.
    """
    for name, value in (("thin", thin), ("num_leapfrog", num_leapfrog), ("step_size", step_size)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if not 0 <= burn_in <= num_steps - thin:
        raise ValueError(f"burn_in = {burn_in} and thin = {thin} leave no draw of num_steps = {num_steps}")
    chains = _Chains(log_prob, initial, rng)
    checkpoint = None if checkpoint is None else Path(checkpoint)
    if checkpoint is not None:
        chains.identify({"step_size": step_size, "num_leapfrog": num_leapfrog, "burn_in": burn_in, "thin": thin})
    if checkpoint is not None and checkpoint.exists():
        chains.load(checkpoint)
        if chains.step > num_steps:
            raise GPVIError(f"{checkpoint} is {chains.step} proposals on already, more than num_steps = {num_steps}")
    schedule = checkpoints.Schedule(checkpoint, checkpoint_seconds)
    with tqdm(total=num_steps, initial=chains.step, desc=label, disable=not progress, leave=False) as bar:
        while chains.step < num_steps:
            accept, error = chains.propose(step_size, num_leapfrog)
            if chains.step > burn_in:
                chains.acceptance += accept
                chains.energy_error += error.abs()
                if (chains.step - burn_in) % thin == 0:
                    chains.kept.append(chains.x)
            bar.update()
            if checkpoint is not None and schedule.due():
                chains.save(checkpoint)
                checkpoints.stop_if_over(label)
    if checkpoint is not None:
        chains.save(checkpoint)
    after = num_steps - burn_in
    return HMCResult(torch.stack(chains.kept), chains.acceptance / after, chains.energy_error / after)


def _energy(value: Tensor, momentum: Tensor) -> Float[Tensor, " c"]:
    """``H = -log p + |m|^2 / 2``."""
    return -value + 0.5 * momentum.square().sum(-1)


def _metropolis(energy_error: Float[Tensor, " c"], rng: torch.Generator) -> Bool[Tensor, " c"]:
    """Accept with probability ``min(1, exp(-ΔH))``; an energy that is not finite is always rejected."""
    uniform = torch.rand(energy_error.shape, generator=rng, dtype=energy_error.dtype, device=energy_error.device)
    return (torch.log(uniform) < -energy_error) & torch.isfinite(energy_error)
