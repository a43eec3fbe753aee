"""Long chains: HMC and NUTS as a configuration says, and their diagnostics."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.hamiltonian import HMCResult, LogProb, hmc
from gpvi_lib.lab.experiment import RunContext

HMC_SETTINGS = ("step_size", "num_leapfrog", "num_steps", "burn_in", "thin", "target_acceptance")
NUTS_SETTINGS = ("warmup", "draws", "target_accept", "max_tree_depth")
RHAT_LIMIT = 1_000.0
"""What a record says of chains whose R-hat is larger or not defined."""


def run_hmc(
    config: dict,
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    context: RunContext,
    rng: torch.Generator,
    **changes,
) -> HMCResult:
    """:func:`hmc` with the settings of a configuration that it knows, ``HMC_SETTINGS``; seconds of both phases.

    Args:
        config: ``warm_up``, if it has one, holds the settings of a first phase, whose last states start the second.
        log_prob, initial: as :func:`hmc`.
        context: says where checkpoints go.
        rng: all randomness.
        changes: more arguments of :func:`hmc`, or others than the configuration's.
    """
    before = 0.0
    if config.get("warm_up"):
        first = hmc(log_prob, initial, **config["warm_up"], burn_in=0, rng=rng, progress=False)
        initial, before = first.samples[-1], first.seconds
    settings = {key: config[key] for key in HMC_SETTINGS if key in config} | changes
    if isinstance(settings["num_leapfrog"], list):
        settings["num_leapfrog"] = tuple(settings["num_leapfrog"])
    where: dict = {"checkpoint": context.checkpoint, "label": context.label, "progress": context.progress}
    result = hmc(log_prob, initial, **settings, rng=rng, **where)
    return replace(result, seconds=before + result.seconds)


def run_nuts(
    config: dict, log_prob: LogProb, initial: Float[Tensor, "c d"], context: RunContext
) -> tuple[Float[Tensor, "c n d"], dict[str, float]]:
    """:func:`nuts` with the settings of a configuration, ``NUTS_SETTINGS``, and the cell's seed.

    That seed and its number decide a chain's random numbers: rows that differ in their starts alone share them.
    """
    settings = {key: config[key] for key in NUTS_SETTINGS}
    where: dict = {"checkpoint": context.checkpoint, "label": context.label, "progress": context.progress}
    return nuts(log_prob, initial, **settings, seed=context.seed, **where)


def nuts(
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    *,
    warmup: int,
    draws: int,
    target_accept: float,
    max_tree_depth: int,
    seed: int,
    checkpoint: Path | None = None,
    label: str = "nuts",
    progress: bool = True,
) -> tuple[Float[Tensor, "c n d"], dict[str, float]]:
    """Pyro's NUTS with a diagonal mass matrix, one chain after another; finished chains are checkpointed.

    Every chain has its own seed, so that a resumed run draws the same samples. Pyro draws from torch's global
    generator, whose state is put back afterwards.

    Returns:
        Draws, and over all chains: divergences, mean step size, evaluations of the gradient, the same for a draw after
        the warm-up, seconds.
    """
    done: list[dict] = []
    if checkpoint is not None and checkpoint.exists():
        done = checkpoints.load(checkpoint, initial.device, "chains")["chains"]
    for i in tqdm(range(len(done), len(initial)), desc=label, disable=not progress, leave=False):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000 * seed + i)
            done.append(_nuts_chain(log_prob, initial[i], warmup, draws, target_accept, max_tree_depth))
        if checkpoint is not None:
            checkpoints.save(checkpoint, {"chains": done})
            checkpoints.stop_if_over(label)
    info = {
        "divergences": float(sum(chain["divergences"] for chain in done)),
        "step_size": sum(chain["step_size"] for chain in done) / len(done),
        "gradients": float(sum(chain["gradients"] for chain in done)),
        "gradients_per_draw": sum(chain["gradients"] - chain["warm"] for chain in done) / (draws * len(done)),
        "seconds": sum(chain["seconds"] for chain in done),
    }
    return torch.stack([chain["draws"] for chain in done]), info


def _nuts_chain(log_prob: LogProb, start: Tensor, warmup: int, draws: int, target_accept: float, depth: int) -> dict:
    from pyro.infer import mcmc

    evaluations, warm, started = 0, 0, time.perf_counter()

    def potential(parameters: dict[str, Tensor]) -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return -log_prob(parameters["x"][None])[0]

    def count(kernel: mcmc.NUTS, state: dict[str, Tensor], stage: str, step: int) -> None:
        nonlocal warm
        warm = evaluations if stage.startswith("Warmup") else warm

    kernel = mcmc.NUTS(potential_fn=potential, target_accept_prob=target_accept, max_tree_depth=depth)
    chain = mcmc.MCMC(kernel, draws, warmup, initial_params={"x": start}, hook_fn=count, disable_progbar=True)
    chain.run()
    return {
        "draws": chain.get_samples()["x"].detach().clone(),
        "divergences": len(chain.diagnostics()["divergences"]["chain 0"]),
        "step_size": float(kernel.step_size),
        "gradients": evaluations,
        "warm": warm,
        "seconds": time.perf_counter() - started,
    }


def diagnostics(quantities: Float[Tensor, "c n q"]) -> dict[str, Float[Tensor, " q"]]:
    """Mean and sd of each quantity with their Monte Carlo errors, R-hat and bulk effective sample size, by ArviZ.

    R-hat is the rank-normalised split R-hat of Vehtari et al. (2021). All are on the CPU.
    """
    quantities = quantities.cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version when imported
        import arviz
    data = arviz.convert_to_dataset({"q": quantities.double().numpy()})
    values = {
        "mean": quantities.mean((0, 1)),
        "sd": quantities.flatten(0, 1).std(0),
        "mcse_mean": arviz.mcse(data, method="mean")["q"].values,
        "mcse_sd": arviz.mcse(data, method="sd")["q"].values,
        "rhat": arviz.rhat(data)["q"].values,
        "ess": arviz.ess(data)["q"].values,
    }
    return {name: torch.from_numpy(np.asarray(value, dtype=np.float64)) for name, value in values.items()}


def chain_diagnostics(chains: Float[Tensor, "c n g"]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """R-hat and effective sample size on the grid, and each chain's own mean and sd."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a chain that never moved has no variance
        found = diagnostics(chains)
    rhat = found["rhat"].nan_to_num(RHAT_LIMIT).clamp(max=RHAT_LIMIT)
    metrics = {
        "rhat_max": float(rhat.max()),
        "rhat_median": float(rhat.median()),
        "ess_min": float(found["ess"].nan_to_num(0.0).min()),
        "draws": float(chains.shape[0] * chains.shape[1]),
    }
    return metrics, {"rhat": rhat, "chain_mean": chains.mean(1).float(), "chain_sd": chains.std(1).float()}
