"""Hamiltonian Monte Carlo with batched chains."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm.auto import tqdm

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

    Raises:
        ValueError: if a setting is not positive, if the counts leave no draw, or if a chain starts where the
            density is not finite.
    """
    for name, value in (("thin", thin), ("num_leapfrog", num_leapfrog), ("step_size", step_size)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if not 0 <= burn_in <= num_steps - thin:
        raise ValueError(f"burn_in = {burn_in} and thin = {thin} leave no draw of num_steps = {num_steps}")
    x = initial.detach().clone()
    value, gradient = value_and_score(log_prob, x)
    if not bool(torch.isfinite(value).all()):
        raise ValueError("log_prob is not finite at some chain's starting point; start elsewhere")
    kept: list[Tensor] = []
    acceptance = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    energy_error = torch.zeros_like(acceptance)
    for step in tqdm(range(num_steps), desc=label, disable=not progress, leave=False):
        start = torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device)
        proposal, end, new_value, new_gradient = leapfrog(
            log_prob, x, start, gradient, step_size=step_size, num_steps=num_leapfrog
        )
        error = _energy(new_value, end) - _energy(value, start)
        accept = _metropolis(error, rng)
        x = torch.where(accept[:, None], proposal, x)
        value = torch.where(accept, new_value, value)
        gradient = torch.where(accept[:, None], new_gradient, gradient)
        if step >= burn_in:
            acceptance += accept
            energy_error += error.abs()
            if (step - burn_in + 1) % thin == 0:
                kept.append(x)
    after = num_steps - burn_in
    return HMCResult(torch.stack(kept), acceptance / after, energy_error / after)


def _energy(value: Tensor, momentum: Tensor) -> Float[Tensor, " c"]:
    """``H = -log p + |m|^2 / 2``."""
    return -value + 0.5 * momentum.square().sum(-1)


def _metropolis(energy_error: Float[Tensor, " c"], rng: torch.Generator) -> Bool[Tensor, " c"]:
    """Accept with probability ``min(1, exp(-ΔH))``; an energy that is not finite is always rejected."""
    uniform = torch.rand(energy_error.shape, generator=rng, dtype=energy_error.dtype, device=energy_error.device)
    return (torch.log(uniform) < -energy_error) & torch.isfinite(energy_error)
