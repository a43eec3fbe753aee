r"""Which method should a user take? Eleven methods at one setting on four posteriors from outside the papers.

A row ``<target>_<method>`` has the method's error, its coverage, its ELBO where there is one, and its cost by two
counts: processor seconds until its draws are there, and gradients of the log-density, counted by the target itself.
The draws are 2,000; the 200 particles of SVGD and GFSF are their draws.

The targets are those on which a user would try a method first: eight schools in both forms, Neal's funnel, a logistic
regression. One setting serves all targets: the generator is README's (64-64, five numbers of noise for ``g``, λ from
0.5), so are HMC's chains. The rate is 0.01 and falls to 0.0001; a constant 0.001 would let mean field's means move by
no more than 2. ``gpvi_readme`` and ``exact_density_readme`` have that rate, which was README's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.entropy import elbo_bracket
from gpvi_lib.experiments.build import build_objective, build_sampler, elbo, gpvi, parvi, train
from gpvi_lib.experiments.chains import diagnostics, run_hmc, run_nuts
from gpvi_lib.experiments.evaluation import (
    EVALUATION_SEED,
    density_scores,
    differing,
    evenly,
    fixed_draws,
    generator_of,
    reference_arrays,
)
from gpvi_lib.experiments.known_targets import BreastCancer, EightSchools, Funnel
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.langevin import LangevinNetwork
from gpvi_lib.latent import LatentSampler
from gpvi_lib.metrics import wasserstein_1d
from gpvi_lib.samplers import MeanField, Sampler
from gpvi_lib.targets import Target

TARGETS: dict[str, Callable[[], Target]] = {
    "eight_schools": lambda: EightSchools(centred=False),
    "eight_schools_centred": lambda: EightSchools(centred=True),
    "funnel": Funnel,
    "logistic": BreastCancer,
}
REFERENCE_OF = {"eight_schools_centred": "eight_schools"}
"""Where a target's reference is that of another one: both forms are compared in the same coordinates."""


@dataclass
class Counted:
    """A target that counts the gradients taken of its log-density, one for each point.

    It offers no score of its own, so that every method differentiates ``log_prob``.

    Example:
        >>> from gpvi_lib import score
        >>> target = Counted(Funnel())
        >>> target.log_prob(torch.zeros(5, 10)).shape, score(target, torch.zeros(3, 10)).shape, target.gradients
        (torch.Size([5]), torch.Size([3, 10]), 3)
    """

    target: Target
    gradients: int = 0
    dim: int = field(init=False)
    num_data: None = None

    def __post_init__(self) -> None:
        self.dim = self.target.dim

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """The target's; counts the points if a gradient may be taken."""
        if x.requires_grad and torch.is_grad_enabled():
            self.gradients += len(x)
        return self.target.log_prob(x)


# ---------------------------------------------------------------- references

REFERENCE_DRAWS, SPARE_DRAWS = 4_000, 3_000
"""What methods are compared with; and further draws, the yardstick: how far apart are two samples of one density?"""
REFERENCE_CHAINS = {
    "sampler": "hmc", "chains": 64, "step_size": 0.1, "num_leapfrog": [10, 40], "adapt": True, "target_acceptance": 0.9,
    "num_steps": 1_700, "burn_in": 600, "thin": 10,
}  # fmt: skip


def reference_config(method: str, profile: str) -> dict:
    """Exact draws of the funnel; many long chains of HMC for the others."""
    numbers = {"reference": REFERENCE_DRAWS, "spare": SPARE_DRAWS}
    if method == "funnel":
        return {"sampler": "exact"} | numbers
    small = {
        "smoke": {"num_steps": 60, "burn_in": 30, "thin": 2},
        "quick": {"num_steps": 400, "burn_in": 200, "thin": 4},
    }
    return REFERENCE_CHAINS | numbers | small.get(profile, {})


def run_reference(config: dict, method: str, context: RunContext) -> Outcome:
    """Draws of a target, in random order, and how well the chains have mixed."""
    target = TARGETS[method]()
    rng = torch.Generator().manual_seed(9_000)
    number = config["reference"] + config["spare"]
    if isinstance(target, Funnel):
        return Outcome({"draws": float(number)}, {"draws": target.sample(number, rng)})
    start = torch.randn(config["chains"], target.dim, generator=rng, dtype=torch.float64)
    result = run_hmc(config, target.log_prob, start, context, rng, adapt=config["adapt"])
    found = diagnostics(result.samples.transpose(0, 1))
    draws = evenly(result.samples.flatten(0, 1), number)
    metrics = {"rhat_max": float(found["rhat"].max()), "ess_min": float(found["ess"].min())}
    metrics |= {"acceptance": float(result.acceptance.mean()), "draws": float(len(draws))}
    mixed = draws[torch.randperm(len(draws), generator=rng)].float()
    return Outcome(metrics, {"draws": mixed}, result.seconds)


REFERENCE = Experiment(
    name="benchmark-reference",
    title="References of the benchmark: exact draws, and long chains of HMC",
    methods=("eight_schools", "funnel", "logistic"),
    config=reference_config,
    seeds=one_seed,
    run=run_reference,
)


def reference(name: str, profile: str) -> tuple[Float[Tensor, "m d"], Float[Tensor, "n d"]]:
    """Draws that methods are compared with, and spare ones; in float64, from the record of this profile."""
    source = REFERENCE_OF.get(name, name)
    draws = reported(source, reference_arrays(REFERENCE, source, profile)["draws"])
    first = len(draws) * REFERENCE_DRAWS // (REFERENCE_DRAWS + SPARE_DRAWS)
    return draws[:first], draws[first:]


def reported(name: str, draws: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The coordinates that a user would report: of eight schools ``(μ, log τ, θ)``, whatever the form."""
    return EightSchools(centred=True).of_chains(draws) if name == "eight_schools" else draws


# ---------------------------------------------------------------- scores

DRAWS = 2_000
LEVEL = 0.9
BRACKET_SEED, START_SEED = 54_322, 7_000
"""Of the bracket of L′; and, plus the cell's, of the draws that ``refined`` starts from."""
THEN = {"seed": 54_321, "level": 0.9, "bracket_seed": 54_322, "start_seed": 7_000}
"""What the first records were evaluated with, see :func:`differing`."""


def quality(draws: Float[Tensor, "n d"], exact: Float[Tensor, "m d"]) -> dict[str, float]:
    """``error``, the mean over coordinates of ``W_1 / sd`` of the marginals, and the coverage of 90 % intervals.

    ``coverage`` is the share of the exact draws in the interval between the 5 % and the 95 % quantile of ``draws``,
    the mean over coordinates; ``coverage_min`` is the smallest. ``sd_ratio`` is the mean ratio of standard deviations.
    """
    draws, exact = draws.double(), exact.double()
    low, high = torch.quantile(draws, torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=draws.dtype), dim=0)
    inside = ((exact >= low) & (exact <= high)).double().mean(0)
    error = wasserstein_1d(draws, exact) / exact.std(0)
    return {
        "error": float(error.mean()),
        "error_max": float(error.max()),
        "coverage": float(inside.mean()),
        "coverage_min": float(inside.min()),
        "sd_ratio": float((draws.std(0) / exact.std(0)).mean()),
    }


# ---------------------------------------------------------------- methods

GENERATOR = {"kind": "generator", "noise_dim": 5, "hidden": [64, 64], "noise_scale": 0.5, "activation": "tanh"}
TRAINED_SCALE = {"noise_scale_unit": "prior", "train_noise_scale": True}
BATCH = 100
PARTICLES = {"kind": "particles", "num": 200}
FALLING = {"lr": 1e-2, "final_lr": 1e-4}
FREE = {"lr": 1e-1, "final_lr": 1e-3}
"""Particles move themselves, so that their rate is ten times that of weights."""
CHAINS = {"sampler": "hmc", "chains": 16, "step_size": 0.1, "num_leapfrog": [5, 15], "adapt": True}
SHORT = CHAINS | {"chains": 100}
DENSITY = elbo(GENERATOR | TRAINED_SCALE, BATCH)
TRAINED: dict[str, dict] = {
    "mean_field": FALLING | elbo({"kind": "mean_field", "scale": 0.5}, BATCH),
    "exact_density": FALLING | DENSITY,
    "gpvi": FALLING | gpvi(GENERATOR | TRAINED_SCALE, {"kind": "block"}, BATCH),
    "livi": FALLING | {
        "sampler": GENERATOR | TRAINED_SCALE | {"kind": "latent_generator"},
        "objective": {"kind": "livi", "num_samples": BATCH},
    },
    "svgd": FREE | parvi(PARTICLES, {"kind": "svgd"}),
    "gfsf": FREE | parvi(PARTICLES, {"kind": "gfsf"}),
    "langevin": {"lr": 5e-2, "final_lr": 2e-3} | parvi(
        {"kind": "langevin", "layers": 10, "step_size": 1e-3}, {"kind": "svgd"}, BATCH
    ),
    "gpvi_readme": {"lr": 1e-3} | gpvi(GENERATOR | TRAINED_SCALE, {"kind": "block"}, BATCH),
    "exact_density_readme": {"lr": 1e-3} | DENSITY,
}  # fmt: skip
CHAINED: dict[str, dict] = {
    "refined": SHORT,
    "hmc_elsewhere": SHORT,
    "hmc": CHAINS,
    "nuts": {"sampler": "nuts", "chains": 4, "target_accept": 0.8, "max_tree_depth": 8},
}
"""``refined`` starts at draws of the exact density that it trains before; ``hmc_elsewhere`` is the same HMC from
draws of N(0, I)."""
METHODS = (*TRAINED, *CHAINED, "draws")
"""``draws`` are spare draws of the reference: the error that is left to 2,000 right ones."""

WITHOUT = (("eight_schools_centred", "langevin"),)
"""Training diverges: where τ is small the score is larger than any fixed step allows, and a chain is lost."""

SIZES: dict[str, dict] = {
    "smoke": {
        "steps": 5, "hmc": (20, 10), "short": (8, 4), "nuts": (20, 50), "draws": 200,
        "bracket": {"num_samples": 10, "draws": 20, "regression": 50, "values": 50},
    },
    "quick": {
        "steps": 300, "hmc": (300, 100), "short": (60, 40), "nuts": (100, 200), "draws": 1_000,
        "bracket": {"num_samples": 200, "draws": 50, "regression": 500, "values": 1_000},
    },
    "paper": {
        "steps": 2_000, "hmc": (1_500, 500), "short": (100, 80), "nuts": (300, 500), "draws": DRAWS,
        "bracket": {"num_samples": 1_000, "draws": 200, "regression": 2_000, "values": 5_000},
    },
}  # fmt: skip


def parts(row: str) -> tuple[str, str]:
    """Target and method of a row's name."""
    return next((name, row[len(name) + 1 :]) for name in TARGETS if row[len(name) + 1 :] in METHODS)


def start_seed() -> dict:
    """The seed of ``refined``'s starts, if it has changed, for a configuration."""
    return differing(THEN, start_seed=START_SEED)


def config(row: str, profile: str) -> dict:
    """Everything but the seed, the reference's configuration included."""
    name, method = parts(row)
    size = SIZES[profile]
    common = {
        "target": name,
        "method": method,
        "draws": size["draws"],
        "reference_profile": profile,
        "reference": REFERENCE.configuration(REFERENCE_OF.get(name, name), profile),
        **differing(THEN, seed=EVALUATION_SEED, level=LEVEL, bracket_seed=BRACKET_SEED),
    }
    training = {"steps": size["steps"], "history_every": size["steps"]}
    if method == "draws":
        return common
    if method in TRAINED:
        bracket = {"bracket": size["bracket"]} if method == "livi" else {}
        return common | training | TRAINED[method] | bracket
    if method == "nuts":
        warmup, draws = size["nuts"]
        return common | CHAINED[method] | {"warmup": warmup, "draws_of_a_chain": draws}
    num_steps, burn_in = size["hmc" if method == "hmc" else "short"]
    chains = common | CHAINED[method] | {"num_steps": num_steps, "burn_in": burn_in}
    return chains | ({"training": training | TRAINED["exact_density"] | start_seed()} if method == "refined" else {})


def seeds(profile: str) -> tuple[int, ...]:
    """Starts, and all randomness of a method."""
    return (0, 1, 2) if profile == "paper" else (0,)


# ---------------------------------------------------------------- running


def _sampler(spec: dict, target: Target, rng: torch.Generator, scale: Float[Tensor, " d"]) -> Sampler:
    if spec["kind"] != "langevin":
        return build_sampler(spec, target.dim, scale, rng)
    start = MeanField(torch.zeros_like(scale), 1.0)
    return LangevinNetwork(start, target, spec["layers"], step_size=spec["step_size"], dtype=scale.dtype)


def trained(
    config: dict, target: Target, context: RunContext, rng: torch.Generator, scale: Float[Tensor, " d"] | None = None
) -> Sampler:
    """The sampler of a configuration, trained; ``scale`` is that of its first samples, and 1 unless given."""
    sampler = _sampler(config["sampler"], target, rng, torch.ones(target.dim) if scale is None else scale)
    train(sampler, target, build_objective(config["objective"]), config, context, rng, lambda step, sampler: {})
    return sampler


def _run_trained(config: dict, target: Counted, context: RunContext) -> tuple[Tensor, Callable[[], dict[str, float]]]:
    rng = torch.Generator(context.device).manual_seed(context.seed)
    sampler = trained(config, target, context, rng)
    draws = fixed_draws(sampler, config["draws"])

    def bounds() -> dict[str, float]:
        if isinstance(sampler, LatentSampler):
            found = elbo_bracket(sampler, target.target, rng=generator_of(sampler, BRACKET_SEED), **config["bracket"])
            return {key: found[key] for key in ("elbo_low", "elbo_high", "elbo_low_se", "elbo_linearized")}
        return density_scores(sampler, target.target, 10 * config["draws"])

    return draws, bounds


def chain_start(
    config: dict, target: Target, unit: Float[Tensor, " d"], context: RunContext, rng: torch.Generator
) -> Float[Tensor, "c d"]:
    """Where chains start, in units of ``unit``: draws of N(0, I), or of the sampler that ``training`` trains before."""
    if not config.get("training"):
        return torch.randn(config["chains"], target.dim, generator=rng, dtype=unit.dtype, device=rng.device)
    sampler = trained(config["training"], target, context, rng, unit)
    return fixed_draws(sampler, config["chains"], seed=START_SEED + context.seed) / unit


def chain_draws(
    config: dict, log_prob: Callable, start: Float[Tensor, "c d"], context: RunContext, rng: torch.Generator
) -> tuple[Float[Tensor, "c n d"], dict[str, float]]:
    """HMC's draws, chain by chain, and their acceptance and step size."""
    result = run_hmc(config, log_prob, start, context, rng, adapt=config["adapt"])
    said = {"acceptance": float(result.acceptance.mean()), "step_size": result.step_size}
    return result.samples.transpose(0, 1), said


def _run_chains(config: dict, target: Counted, context: RunContext) -> tuple[Tensor, Callable[[], dict[str, float]]]:
    rng = torch.Generator(context.device).manual_seed(context.seed)
    start = chain_start(config, target, torch.ones(target.dim), context, rng)
    extra = {"gradients_of_training": float(target.gradients)} if "training" in config else {}
    if config["sampler"] == "nuts":
        settings = config | {"draws": config["draws_of_a_chain"]}
        chains, info = run_nuts(settings, target.log_prob, start.double(), context)
        extra |= {"divergences": info["divergences"], "step_size": info["step_size"]}
    else:
        chains, said = chain_draws(config, target.log_prob, start, context, rng)
        extra |= said
    if len(chains) < 100:  # of many short ones R-hat says little
        extra["rhat_max"] = float(diagnostics(chains)["rhat"].nan_to_num(1_000).max())
    return evenly(chains.flatten(0, 1), config["draws"]), lambda: extra


@cache
def _warm_up() -> None:
    """Import what is imported late, and take a first step: neither belongs to a method's cost."""
    from pyro.infer import mcmc

    rng, context = torch.Generator().manual_seed(0), RunContext(torch.device("cpu"), 0, None, "first step", False)
    assert mcmc is not None
    trained({"steps": 2, "history_every": 2} | TRAINED["exact_density"], Counted(Funnel()), context, rng)


def run(config: dict, row: str, context: RunContext) -> Outcome:
    """Get draws on the CPU, count what they cost, and compare them with the reference."""
    exact, spare = reference(config["target"], config["reference_profile"])
    if config["method"] == "draws":
        order = torch.randperm(len(spare), generator=torch.Generator().manual_seed(context.seed))
        return Outcome(quality(spare[order[: config["draws"]]], exact))
    _warm_up()
    target = Counted(TARGETS[config["target"]]())
    alone = replace(context, checkpoint=None, device=torch.device("cpu"))  # a run that resumed would count too few
    began, processor = time.perf_counter(), time.process_time()
    draws, more = (_run_trained if config["method"] in TRAINED else _run_chains)(config, target, alone)
    processor, seconds = time.process_time() - processor, time.perf_counter() - began
    cost = {"processor_seconds": processor, "gradients": float(target.gradients), "draws": float(len(draws))}
    draws = reported(config["target"], draws.detach().double().cpu())
    return Outcome(quality(draws, exact) | cost | more(), {"draws": evenly(draws, 200).float()}, seconds)


EXPERIMENTS = (
    REFERENCE,
    Experiment(
        name="benchmark",
        title="Which method should one use? Posteriors from outside, error against cost",
        methods=tuple(f"{name}_{method}" for name in TARGETS for method in METHODS if (name, method) not in WITHOUT),
        config=config,
        seeds=seeds,
        run=run,
    ),
)
