"""Rows of the benchmark on the four UCI sets that :mod:`.uci_regression` lacks: GFSF, L′, and short HMC chains.

They are measured as the rows there are, on the same splits, and nothing is tuned: GFSF has the settings of SVGD there,
and L′ those of the exact density. The hundred short chains have those of :mod:`.benchmark`, in units of the prior's
scale, from draws of the exact density (``refined``) or of the prior (``hmc_elsewhere``).
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from gpvi_lib.experiments import benchmark, uci_regression
from gpvi_lib.experiments.build import with_change
from gpvi_lib.experiments.evaluation import evenly
from gpvi_lib.experiments.uci_problem import Measured, Problem, over_sets
from gpvi_lib.function_priors import weight_scale
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext

CHAINED = ("refined", "hmc_elsewhere")
METHODS = ("gfsf", "livi", *CHAINED)
GFSF = {"kind": "parvi", "direction": {"kind": "gfsf"}}


def config(method: str, profile: str) -> dict:
    """Everything but the seed: a configuration of ``uci-regression``, with what differs."""
    base = uci_regression.config("svgd" if method == "gfsf" else "gpvi_exact_density", profile)
    if method == "gfsf":
        return base | {"objective": GFSF}
    if method == "livi":
        sampler = base["sampler"] | {"kind": "latent_generator", "activation": "tanh"}
        objective = {"kind": "livi", "num_samples": base["objective"]["num_samples"]}
        return base | {"sampler": sampler, "objective": objective}
    num_steps, burn_in = benchmark.SIZES[profile]["short"]
    chains = benchmark.CHAINED[method] | {"num_steps": num_steps, "burn_in": burn_in}
    shared = {key: base[key] for key in ("sets", "hidden", "noise_median", "samples")}
    return shared | chains | {"training": base | benchmark.start_seed() if method == "refined" else None}


def _chains(config: dict, problem: Problem, context: RunContext) -> Measured:
    """A hundred chains of HMC in units of the prior's scale."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target, unit = problem.posterior, weight_scale(problem.posterior)
    if config["training"]:
        batch = min(config["training"]["batch_size"], target.num_data)
        config = with_change(config, {"training": {"batch_size": batch}})
    start = benchmark.chain_start(config, target, unit, context, rng)
    chains, said = benchmark.chain_draws(config, lambda u: target.log_prob(unit * u), start, context, rng)
    metrics, arrays = problem.outcome(unit * evenly(chains.flatten(0, 1), config["samples"]))
    return metrics | said, arrays


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """One split of every set."""
    began = time.process_time()
    measured = _chains if method in CHAINED else uci_regression.trained

    def one(name: str, context: RunContext) -> Measured:
        return measured(config, Problem(name, config, context), context)

    found = over_sets(config["sets"], replace(context, checkpoint=None), one)  # one process knows its time
    return replace(found, metrics=found.metrics | {"processor_seconds": time.process_time() - began})


EXPERIMENTS = (
    Experiment(
        name="benchmark-uci",
        title="Which method should one use? Rows that uci-regression lacks",
        methods=METHODS,
        config=config,
        seeds=uci_regression.seeds,
        run=run,
        data_sets=uci_regression.data_sets,
    ),
)
