"""LIVI's section F.5: its two entropies of trained generators beside certified bounds, for several σ.

The generators are those of the toy regression (80 latent numbers), trained with L' or with L'' at one σ each, and with
one trained s per weight. The paper compares with a variational autoencoder's importance-sampled entropy; here both
sides are bounded (:func:`entropy_bracket`). H'' is computed with the exact smallest singular value and with one that is
stopped after 5 (the released code), 20 and 100 iterations of LOBPCG.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.entropy import elbo_bracket, linearization_correction, linearized_entropy
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, generator_of, history
from gpvi_lib.experiments.livi_problem import BRACKETS, LONG_BRIDGE, NOISE, evaluated, posterior
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.latent import LatentSampler

SIGMAS = (0.003, 0.009, 0.03, 0.1, 0.3)
STOPPED = (5, 20, 100)
STEPS = 5_000
LATENT = {"kind": "latent_generator", "noise_dim": 80, "hidden": [100], "activation": "elu"}
OBJECTIVES: dict[str, dict] = {
    "full": {"kind": "livi", "num_samples": 3},
    "min_sv": {"kind": "livi", "num_samples": 3, "entropy": "smallest", "iterations": 5},
    "exact_min_sv": {"kind": "livi", "num_samples": 3, "entropy": "smallest"},
}
RATES = {"full": 1.52e-3, "min_sv": 1.8e-3, "exact_min_sv": 1.8e-3}
SPECS: dict[str, dict] = {
    **{
        f"{name}_{sigma:g}": {
            "sampler": LATENT | {"noise_scale": sigma},
            "objective": objective,
            "lr": RATES[name],
        }
        for name, objective in OBJECTIVES.items()
        for sigma in SIGMAS
    },
    "full_trained": {
        "sampler": LATENT | {"noise_scale": 0.02, "noise_scale_unit": "prior", "train_noise_scale": True},
        "objective": OBJECTIVES["full"],
        "lr": 2e-3,
        "noise_scale_lr": 1.5e-2,
    },
}
NAMES = {"full": "L′", "min_sv": "L″, 5 iterations", "exact_min_sv": "L″, exact"}
LABELS = {f"{name}_{sigma:g}": f"{said}, σ = {sigma:g}" for name, said in NAMES.items() for sigma in SIGMAS}
LABELS["full_trained"] = "L′, one s per weight"
"""Method -> its name for a reader: what its generator was trained with."""
SIZES: dict[str, dict] = {
    "smoke": {"steps": 6, "evaluations": 2, "latents": 20},
    "quick": {"steps": 300, "evaluations": 5, "latents": 200},
    "paper": {"steps": STEPS, "evaluations": 20, "latents": 1_000},
}


def config(method: str, profile: str) -> dict:
    """Everything but the seed; ``bracket`` holds the arguments of :func:`elbo_bracket`."""
    size = SIZES[profile]
    bracket = BRACKETS[profile] | (LONG_BRIDGE if (method, profile) == ("full_trained", "paper") else {})
    shared = {"noise": NOISE, "latents": size["latents"], "bracket": bracket, "stopped": list(STOPPED)}
    every = max(1, size["steps"] // size["evaluations"])
    return shared | {"steps": size["steps"], "final_lr": 1e-5, "history_every": every} | SPECS[method] | evaluated()


@torch.no_grad()
def entropies(sampler: LatentSampler, latents: int, stopped: list[int]) -> dict[str, float]:
    """H' and H'' in nats, means over z; the correction of H'; the share of z at which a stopped H'' is above H'."""
    rng = generator_of(sampler, EVALUATION_SEED)
    z = sampler.noise(latents, rng)[:, : sampler.noise_dim]
    jacobian = sampler.latent_linearize(z)[1]
    full = linearized_entropy(jacobian)
    found: dict[str, Float[Tensor, " n"]] = {
        "full": full,
        "correction": linearization_correction(jacobian, z),
        "smallest_exact": linearized_entropy(jacobian, "smallest"),
    }
    found |= {f"smallest_{t}": linearized_entropy(jacobian, "smallest", t, rng) for t in stopped}
    shares = {f"share_above_{name.removeprefix('smallest_')}": found[name] > full for name in list(found)[2:]}
    return {name: float(value.double().mean()) for name, value in (found | shares).items()}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one generator; its entropies on the way and at the end, the bracket at the end."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = posterior(1.0, torch.float32, context.device)
    sampler = build_sampler(config["sampler"], target.dim, target.prior.scale, rng)
    assert isinstance(sampler, LatentSampler)

    def measure(step: int, sampler: LatentSampler) -> dict[str, float]:
        return entropies(sampler, min(200, config["latents"]), config["stopped"][:1])

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    metrics = entropies(sampler, config["latents"], config["stopped"])
    metrics |= elbo_bracket(sampler, target, rng=generator_of(sampler, EVALUATION_SEED), **config["bracket"])
    middle = 0.5 * (metrics["entropy_low"] + metrics["entropy_high"])
    metrics["error"] = metrics["entropy_linearized"] - middle
    return Outcome(metrics, history(result.history), result.seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from section F.5."""
    if profile != "paper":
        return f"{profile} size"
    return "generators of the toy regression and a certified bracket, not a variational autoencoder's estimate"


EXPERIMENTS = (
    Experiment(
        name="livi-entropy",
        title="LIVI, F.5: both approximate entropies of trained generators beside certified bounds",
        methods=tuple(SPECS),
        config=config,
        seeds=one_seed,
        run=run,
        deviations=deviations,
    ),
)
