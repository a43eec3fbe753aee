r"""Figure 1: regression of 80 points on the line by a small network, every method against a long NUTS run.

The data are those of appendix E: 76 inputs uniform on [-6, -2] ∪ [2, 6] and 4 on [-2, 2], targets
``y = -(1 + x) sin(1.2 x) + ε`` with ``ε ~ N(0, 0.04)``, which we read as the variance. There is one data set; a seed
decides where a method starts and how it trains, and not the noise of the draws that are compared. The paper prints
neither the network nor its prior: ours has one hidden layer of 50 ReLU units and independent normal weights
(``PRIORS``), and knows the noise.

The experiment ``one-dimensional-regression-reference`` samples the posterior by NUTS; ``one-dimensional-regression``
compares every method with it, in the space of functions: distributions of ``f(x)`` on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib.experiments import evaluation, function_models
from gpvi_lib.experiments.build import build_objective, build_sampler, elbo, gpvi, parvi, train, with_change
from gpvi_lib.experiments.chains import chain_diagnostics, diagnostics, run_hmc, run_nuts
from gpvi_lib.experiments.evaluation import (
    EVALUATION_SEED,
    Functions,
    density_scores,
    differing,
    evenly,
    everywhere_and,
    fixed_draws,
    history,
    reference_arrays,
    sizes,
    span,
)
from gpvi_lib.experiments.output_layer import HiddenLayerPosterior
from gpvi_lib.experiments.printed import LINE_STEPS
from gpvi_lib.function_priors import ArcCosine
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score, one_seed
from gpvi_lib.metrics import regression_log_likelihood
from gpvi_lib.networks import FlatMLP
from gpvi_lib.samplers import Generator, Sampler
from gpvi_lib.targets import NormalPrior, RegressionPosterior

NUM_DENSE, NUM_SPARSE = 76, 4
NOISE_VARIANCE = 0.04
HIDDEN = 50
GRID = torch.linspace(-7, 7, 113, dtype=torch.float64)
"""Where predictive distributions are compared: steps of 1/8, so that the borders of the regions lie on it."""
REGIONS: dict[str, Bool[Tensor, " g"]] = {
    "data": (GRID.abs() >= 2) & (GRID.abs() <= 6),
    "middle": GRID.abs() < 2,
    "outside": GRID.abs() > 6,
}
"""Where the 76 points lie; the gap between them, with 4 points; and beyond all points."""
PRIORS = {
    "scaled": {"input_weight": 1.0, "input_bias": 3.0, "output_weight": 0.5, "output_bias": 1.0},
    "standard": {"input_weight": 1.0, "input_bias": 1.0, "output_weight": 1.0, "output_bias": 1.0},
}
"""Standard deviations of the weights; ``standard`` is N(0, I)."""
TEST_POINTS = 1_000
"""Fresh points in each of the regions ``data`` and ``middle``."""
TAILS = 20
"""Values of ``z_{k:}`` for one of ``z_{:k}``, see :func:`noise_share`."""


THEN = {
    "seed": 54_321,
    "grid": [-7.0, 7.0, 113],
    "regions": {"data": 66, "middle": 31, "outside": 16},
    "test_points": 1_000,
    "tails": 20,
    "data": [76, 4],
}
"""What the first records were made and evaluated with, see :func:`differing`."""


def _evaluation() -> dict:
    now = {"grid": span(GRID), "regions": sizes(REGIONS), "test_points": TEST_POINTS, "tails": TAILS}
    return differing(THEN, seed=EVALUATION_SEED, data=[NUM_DENSE, NUM_SPARSE], **now)


def true_function(x: Tensor) -> Tensor:
    """``-(1 + x) sin(1.2 x)``."""
    return -(1 + x) * torch.sin(1.2 * x)


def _dense_inputs(number: int, rng: torch.Generator) -> Float[Tensor, " n"]:
    """Uniform on [-6, -2] ∪ [2, 6]."""
    side = torch.randint(2, (number,), generator=rng) * 2 - 1
    return side * (2 + 4 * torch.rand(number, generator=rng, dtype=torch.float64))


def _sparse_inputs(number: int, rng: torch.Generator) -> Float[Tensor, " n"]:
    """Uniform on [-2, 2]."""
    return 4 * torch.rand(number, generator=rng, dtype=torch.float64) - 2


def _noisy(x: Tensor, rng: torch.Generator) -> Tensor:
    return true_function(x) + NOISE_VARIANCE**0.5 * torch.randn(x.shape, generator=rng, dtype=x.dtype)


def data(data_seed: int = 0) -> tuple[Float[Tensor, " 80"], Float[Tensor, " 80"]]:
    """Inputs and targets in float64; 0 is the data set of all reported runs."""
    rng = torch.Generator().manual_seed(5_000 + data_seed)
    x = torch.cat([_dense_inputs(NUM_DENSE, rng), _sparse_inputs(NUM_SPARSE, rng)])
    return x, _noisy(x, rng)


def fresh_data(data_seed: int = 0) -> dict[str, tuple[Tensor, Tensor]]:
    """Fresh inputs and targets in the regions ``data`` and ``middle``, float64."""
    rng = torch.Generator().manual_seed(6_000 + data_seed)
    inputs = {"data": _dense_inputs(TEST_POINTS, rng), "middle": _sparse_inputs(TEST_POINTS, rng)}
    return {region: (x, _noisy(x, rng)) for region, x in inputs.items()}


def prior_scale(prior: str, dtype: torch.dtype = torch.float64) -> Float[Tensor, " d"]:
    """Standard deviation of each of the 151 weights under one of ``PRIORS``."""
    sizes = torch.tensor([HIDDEN, HIDDEN, HIDDEN, 1])
    return torch.tensor(list(PRIORS[prior].values()), dtype=dtype).repeat_interleave(sizes)


def posterior(
    prior: str = "scaled",
    data_seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> RegressionPosterior:
    """The posterior over the weights of the network, d = 151."""
    x, y = (part.to(device, dtype) for part in data(data_seed))
    network = FlatMLP([1, HIDDEN, 1])
    scale = prior_scale(prior, dtype).to(device)
    return RegressionPosterior(network, x[:, None], y, NOISE_VARIANCE**0.5, NormalPrior(scale))


@torch.no_grad()
def functions(target: RegressionPosterior, w: Float[Tensor, "n d"], x: Tensor = GRID) -> Float[Tensor, "n g"]:
    """``f(x; w_i)`` on the grid."""
    return target.predict(w, x[:, None].to(w))


# ---------------------------------------------------------------- scores against the reference


@dataclass(frozen=True)
class Reference(Functions):
    """The posterior as NUTS found it, as functions on ``GRID``; its ``draws`` are a thinned set.

    Attributes:
        held_out: other draws, ``(h, g)``: what exact draws score.
    """

    held_out: Float[Tensor, "h g"]


def function_scores(f: Float[Tensor, "n g"], reference: Functions) -> dict[str, float]:
    """:func:`evaluation.function_scores` over the grid and in each of ``REGIONS``."""
    return evaluation.function_scores(f, reference, everywhere_and(REGIONS))


def fresh_log_likelihood(target: RegressionPosterior, w: Float[Tensor, "n d"], data_seed: int) -> dict[str, float]:
    """Mean log predictive density of fresh points, in nats: in two regions, and mixed as the training data are."""
    found = {}
    for region, (x, y) in fresh_data(data_seed).items():
        f = functions(target, w, x)
        found[f"log_likelihood_{region}"] = float(
            regression_log_likelihood(f.double(), y.to(f.device), target.noise_scale).mean()
        )
    total = NUM_DENSE * found["log_likelihood_data"] + NUM_SPARSE * found["log_likelihood_middle"]
    return {"log_likelihood": total / (NUM_DENSE + NUM_SPARSE)} | found


@torch.no_grad()
def noise_share(sampler: Sampler, target: RegressionPosterior, heads: int) -> dict[str, float]:
    """In each region, the part of the variance of ``f(x)`` that comes from ``λz`` beyond the first k coordinates.

    By the law of total variance: ``E[Var(f(x) | z_{:k})] / Var f(x)``, both as means over the region, from ``TAILS``
    values of ``z_{k:}`` for each of ``heads`` values of ``z_{:k}``. Empty for samplers without λ.
    """
    if not isinstance(sampler, Generator) or sampler.log_noise_scale is None:
        return {}
    rng = torch.Generator(target.inputs.device).manual_seed(EVALUATION_SEED)
    z = sampler.noise(heads * TAILS, rng)
    z[:, : sampler.noise_dim] = z[:heads, : sampler.noise_dim].repeat_interleave(TAILS, 0)
    f = functions(target, sampler(z)).double().cpu()
    within = f.unflatten(0, (heads, TAILS)).var(1).mean(0)
    total = f.unflatten(0, (heads, TAILS)).mean(1).var(0) + (1 - 1 / TAILS) * within
    return {f"noise_share_{name}": float(within[at].mean() / total[at].mean()) for name, at in REGIONS.items()}


# ---------------------------------------------------------------- the reference


SHORTER = {"chains": 2, "warmup": 150, "draws": 300, "kept": 300}
REFERENCE_SPECS: dict[str, dict] = {
    "nuts": {"prior": "scaled"},
    "nuts_standard_prior": {"prior": "standard", "max_tree_depth": 9},
    "nuts_other": {"prior": "scaled", "data_seed": 1, **SHORTER},
}
REFERENCE_SIZES = {
    "smoke": {"chains": 2, "warmup": 10, "draws": 35, "max_tree_depth": 3, "kept": 40, "held_out": 30},
    "quick": {"chains": 2, "warmup": 60, "draws": 150, "max_tree_depth": 5, "kept": 200, "held_out": 100},
    "paper": {"chains": 4, "warmup": 200, "draws": 750, "max_tree_depth": 8, "kept": 1_000, "held_out": 300},
}


def reference_config(method: str, profile: str) -> dict:
    """Everything but the seed; at ``smoke`` and ``quick`` both priors get the same short chains."""
    settings = {"target_accept": 0.8, "data_seed": 0, "hidden": HIDDEN, "noise_variance": NOISE_VARIANCE}
    chosen = settings | REFERENCE_SPECS[method] | REFERENCE_SIZES[profile]
    if profile == "paper":
        chosen |= REFERENCE_SPECS[method]
    return chosen | {"prior_scales": PRIORS[chosen["prior"]]} | _evaluation()


def run_reference(config: dict, method: str, context: RunContext) -> Outcome:
    """NUTS on the hidden layer from draws of the prior, completed by exact output layers, diagnosed on the grid."""
    target = posterior(config["prior"], config["data_seed"], device=context.device)
    inner = HiddenLayerPosterior(target)
    rng = torch.Generator(context.device).manual_seed(3_000 + context.seed)
    start = torch.randn(config["chains"], inner.dim, generator=rng, dtype=torch.float64, device=rng.device)
    hidden, info = run_nuts(config, inner.log_prob, start, context)
    seconds = info.pop("seconds")
    draws = torch.stack([inner.complete(chain, rng) for chain in hidden])
    f = torch.stack([functions(target, chain) for chain in draws]).cpu()
    found, weights = diagnostics(f), diagnostics(draws.cpu())
    kept, held_out = _thinned(f.transpose(0, 1).flatten(0, 1), config["kept"], config["held_out"])
    one_in_ten = draws.transpose(0, 1).flatten(0, 1)[:: max(1, draws.shape[0] * draws.shape[1] // 1_000)]
    metrics = info | {
        "chains": float(len(draws)),
        "draws": float(draws.shape[0] * draws.shape[1]),
        "rhat_max": float(found["rhat"].max()),
        "ess_min": float(found["ess"].min()),
        "mcse_mean_max": float(found["mcse_mean"].max()),
        "rhat_weights_max": float(weights["rhat"].max()),
        **fresh_log_likelihood(target, one_in_ten, config["data_seed"]),
    }
    return Outcome(metrics, found | {"functions": kept.float(), "held_out": held_out.float()}, seconds)


def _thinned(f: Float[Tensor, "n g"], kept: int, held_out: int) -> tuple[Tensor, Tensor]:
    """Two disjoint sets of draws, each evenly spaced."""
    at = torch.linspace(0, len(f) - 1, kept + held_out).round().long()
    mine = torch.zeros(kept + held_out, dtype=torch.bool)
    mine[torch.linspace(0, kept + held_out - 1, held_out).round().long()] = True
    return f[at[~mine]], f[at[mine]]


def read_reference(method: str, profile: str) -> Reference:
    """The reference of a profile, from its record; where there is none, or a stale one, it is sampled now."""
    arrays = reference_arrays(REFERENCE, method, profile)
    return Reference(arrays["mean"], arrays["sd"], arrays["functions"], arrays["held_out"])


def _reference_of(config: dict) -> Reference:
    """The reference that a configuration is scored against: of the data of Figure 1, unless it says otherwise."""
    return read_reference(config.get("reference_method", "nuts"), config["reference_profile"])


REFERENCE = Experiment(
    name="one-dimensional-regression-reference",
    title="References for Figure 1: the posterior over functions by NUTS, under two priors and on other data",
    methods=tuple(REFERENCE_SPECS),
    config=reference_config,
    seeds=one_seed,
    run=run_reference,
)


# ---------------------------------------------------------------- the methods

SAMPLES = 100
MANY = 1_000
"""Functions for the scores without the noise of a hundred draws, where a method can produce so many."""
PARTICLES = {"kind": "particles", "num": SAMPLES}
GENERATOR = {"kind": "generator", "noise_dim": 32, "hidden": [32, 32], "output_scale": "prior"}
PLAIN = GENERATOR | {"noise_scale": None}
NOISY = GENERATOR | {"noise_scale": 1.0}
TRAINED = GENERATOR | {"noise_scale": 0.1, "noise_scale_unit": "prior", "train_noise_scale": True}
CRITIC = {"kind": "stein_critic", "hidden": [100, 100], "lr": 1e-3, "l2_weight": 10.0}
HELPER = {"kind": "helper", "width": 128, "num_layers": 3, "lr": 1e-4}
DIRECTIONS: dict[str, dict] = {"svgd": {"kind": "svgd"}, "gfsf": {"kind": "gfsf"}, "ksd": CRITIC}
DECAY = {"lr": 3e-3, "final_lr": 1e-5}


PRINTED = {
    **{name: parvi(PARTICLES, direction) for name, direction in DIRECTIONS.items()},
    "deep_ensemble": {"sampler": PARTICLES, "objective": {"kind": "likelihood"}},
    "hmc": {
        "step_size": 5e-4, "num_leapfrog": 25, "num_steps": 25_000, "burn_in": 20_000, "chains": 4, "thin": 20,
        "integrate_output_layer": False,
    },
    **{f"amortized_{name}": parvi(PLAIN, direction, SAMPLES) for name, direction in DIRECTIONS.items()},
    "mf_vi": elbo({"kind": "mean_field", "scale": 0.1}, 32),
    "gpvi": gpvi(NOISY, HELPER, 32),
    "gpvi_exact_jac": gpvi(NOISY, {"kind": "block"}, SAMPLES),
}  # fmt: skip
BEST = {
    "gpvi_best": gpvi(TRAINED | {"noise_scale": 0.02}, {"kind": "block"}, SAMPLES) | DECAY,
    "gpvi_exact_density": elbo(TRAINED, 32) | DECAY,
    "mf_vi_best": elbo({"kind": "mean_field", "scale": 0.02}, 32) | DECAY | {"lr": 1e-1},
    "hmc_best": {
        "step_size": 2e-3, "num_leapfrog": 200, "num_steps": 300, "burn_in": 100, "chains": 8, "thin": 1,
        "integrate_output_layer": True,
    },
}  # fmt: skip
SPECS = PRINTED | BEST | {"reference_draws": {}}
DIVERGING = ("amortized_ksd",)
"""Diverges within a few hundred steps with the critics of Tables 7 and 8, with an L2 weight of 1,000 later: no row."""
STEPS = {
    "svgd": LINE_STEPS,
    "gfsf": LINE_STEPS,
    "deep_ensemble": LINE_STEPS,
    "amortized_svgd": LINE_STEPS,
    "mf_vi": LINE_STEPS,
    "mf_vi_best": 30_000,
    "gpvi_exact_jac": 25_000,
    "gpvi_exact_density": 20_000,
}
"""Of the methods that take another number of steps at ``paper`` than ``SIZES`` says."""
SIZES: dict[str, dict] = {
    "smoke": {"samples": 10, "many": 20, "steps": 10, "lr": 1e-2, "evaluations": 2, "seeds": 1},
    "quick": {"samples": 100, "many": 200, "steps": 400, "lr": 1e-2, "evaluations": 10, "seeds": 1},
    "paper": {"samples": SAMPLES, "many": MANY, "steps": 10_000, "lr": 1e-3, "evaluations": 50, "seeds": 3},
}


def _shared(profile: str) -> dict:
    """What every method is compared on, the reference's configuration included: scores depend on it."""
    return {
        "prior": "scaled",
        "data_seed": 0,
        "samples": SIZES[profile]["samples"],
        "many": SIZES[profile]["many"],
        "reference_profile": profile,
        "reference": REFERENCE.configuration("nuts", profile),
        **_evaluation(),
    }


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    size, shared = SIZES[profile], _shared(profile)
    spec = dict(SPECS[method])
    if method == "reference_draws":
        return shared
    if "step_size" in spec:
        return shared | (spec if profile == "paper" else _short_chains(spec, profile))
    if spec["sampler"]["kind"] == "particles":
        spec["sampler"] = spec["sampler"] | {"num": size["samples"]}
    steps = STEPS.get(method, size["steps"]) if profile == "paper" else size["steps"]
    printed = {"steps": steps, "lr": size["lr"], "final_lr": None, "batch_size": None}
    chosen = shared | printed | spec
    if profile != "paper":
        chosen |= {"lr": size["lr"], "final_lr": size["lr"] / 10}
    return chosen | {"history_every": max(1, chosen["steps"] // size["evaluations"])}


def _short_chains(spec: dict, profile: str) -> dict:
    proposals = {"smoke": 20, "quick": 100}[profile]
    leapfrog = min(spec["num_leapfrog"], {"smoke": 5, "quick": 25}[profile])
    return spec | {"num_steps": proposals, "burn_in": proposals // 2, "thin": 1, "num_leapfrog": leapfrog}


def seeds(profile: str) -> tuple[int, ...]:
    """Starts and training that count; data set and noise of what is compared are always the same."""
    return tuple(range(SIZES[profile]["seeds"]))


def _outcome(
    config: dict,
    target: RegressionPosterior,
    draws: Float[Tensor, "n d"],
    metrics: dict[str, float],
    arrays: dict[str, Tensor],
    seconds: float | None,
) -> Outcome:
    """Scores of ``config["samples"]`` draws, and of all of them where there are more (suffix ``_many``)."""
    reference = _reference_of(config)
    w = evenly(draws, config["samples"])
    found = function_scores(functions(target, w), reference) | fresh_log_likelihood(target, w, config["data_seed"])
    if len(draws) > len(w):
        many = function_scores(functions(target, draws), reference)
        found |= {f"{name}_many": many[name] for name in ("rmse_mean", "rmse_sd", "w1")}
    return Outcome(found | metrics, {"weights": w.float().cpu()} | arrays, seconds)


def _run_hmc(config: dict, context: RunContext, rng: torch.Generator) -> Outcome:
    """Chains in float64 from draws of the prior, of all weights or of the hidden layer; diagnosed on the grid."""
    target = posterior(config["prior"], config["data_seed"], device=context.device)
    inner = HiddenLayerPosterior(target) if config["integrate_output_layer"] else None
    chosen, scale = (target, target.prior.scale) if inner is None else (inner, 1.0)
    noise = torch.randn(config["chains"], chosen.dim, generator=rng, dtype=torch.float64, device=rng.device)
    result = run_hmc(config, chosen.log_prob, scale * noise, context, rng)
    draws = result.samples if inner is None else torch.stack([inner.complete(u, rng) for u in result.samples])
    metrics, arrays = chain_diagnostics(torch.stack([functions(target, chain) for chain in draws.transpose(0, 1)]))
    metrics["acceptance"] = float(result.acceptance.mean())
    return _outcome(config, target, evenly(draws.flatten(0, 1), config["many"]), metrics, arrays, result.seconds)


HISTORY = ("w1", "rmse_mean", "rmse_sd", "sd_ratio_data", "sd_ratio_middle", "sd_ratio_outside")


def _run_training(config: dict, context: RunContext, rng: torch.Generator) -> Outcome:
    target = posterior(config["prior"], config["data_seed"], torch.float32, context.device)
    reference = _reference_of(config)
    sampler = build_sampler(config["sampler"], target.dim, target.prior.scale, rng)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        scores = function_scores(functions(target, fixed_draws(sampler, config["samples"])), reference)
        density = density_scores(sampler, target, config["samples"])
        return {name: scores[name] for name in HISTORY} | {k: v for k, v in density.items() if k == "elbo"}

    trained = _other_loss(target, **config["trained_on"]) if "trained_on" in config else target
    result = train(sampler, trained, build_objective(config["objective"]), config, context, rng, measure)
    arrays = history(result.history)
    metrics = density_scores(sampler, target, config["many"])
    metrics |= noise_share(sampler, target, heads=config["samples"])
    if isinstance(sampler, Generator) and sampler.noise_scale is not None:
        arrays["noise_scale"] = sampler.noise_scale.detach().cpu().clone()
    return _outcome(config, target, fixed_draws(sampler, config["many"]), metrics, arrays, result.seconds)


def _other_loss(target: RegressionPosterior, noise_variance: float, prior_scale: float) -> RegressionPosterior:
    """The same data and network with another noise and a normal prior of one scale for all weights."""
    prior = NormalPrior(prior_scale)
    return RegressionPosterior(target.network, target.inputs, target.targets, noise_variance**0.5, prior)


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train or sample one method, and compare 100 functions with the reference."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    if "step_size" in config:
        return _run_hmc(config, context, rng)
    if "sampler" in config:
        return _run_training(config, context, rng)
    reference = _reference_of(config)
    sets = reference.held_out.split(config["samples"])  # another for each seed, as far as they reach
    f = sets[context.seed % (len(reference.held_out) // config["samples"])]
    return Outcome(function_scores(f, reference), {"functions": f.float()})


def deviations(method: str, profile: str) -> str:
    """What differs from the paper, which prints for this task 50,000 iterations, 100 samples and the generator.

    It prints neither network nor prior.
    """
    if method == "reference_draws":
        return "no method of the paper: 100 draws of the NUTS reference"
    if profile != "paper":
        return f"{profile} size"
    return _differences(method, config(method, profile))


def _differences(method: str, chosen: dict) -> str:
    """What a row's configuration at ``paper`` has that is not printed, or printed otherwise."""
    ours = f"our network ({HIDDEN} hidden units) and prior"
    if method == "deep_ensemble":
        ours = f"our network ({HIDDEN} hidden units), no prior"
    if method == "hmc":
        return f"settings printed for other tasks, 4 chains; {ours}"
    if method == "hmc_best":
        inner = "8 chains on the hidden layer, the output layer integrated out"
        return f"{inner}; step size 0.002, 200 leapfrog steps; {ours}"
    steps = chosen["steps"]
    parts = [] if steps == LINE_STEPS else [f"{steps:,} of {LINE_STEPS:,} steps"]
    parts.append(ours)
    if method in PRINTED:
        parts.append("rate, and critic where there is one, printed for other tasks")
    if method in BEST:
        samples, inverse = (SPECS[method]["objective"].get(key) for key in ("num_samples", "inverse"))
        parts.append("exact inverse" if inverse else "")
        parts.append(f"{samples} samples a step")
        parts.append(f"learning rate {BEST[method]['lr']:g} decaying to {BEST[method]['final_lr']:g}")
        parts.append("" if method == "mf_vi_best" else "one trained λ per weight")
        parts.append("the map folds, so its ELBO is only claimed" if method == "gpvi_best" else "")
    if method == "gpvi":
        parts.append(f"helper of width {HELPER['width']}, 32 samples a step")
    if method == "mf_vi":
        parts.append(f"normal prior, not a scale mixture; {chosen['objective']['num_samples']} samples a step")
    return "; ".join(part for part in parts if part)


SCORED: tuple[tuple[str, Literal["lower", "higher"]], ...] = (
    ("rmse_mean", "lower"),
    ("rmse_sd", "lower"),
    ("w1", "lower"),
    ("w1_data", "lower"),
    ("w1_middle", "lower"),
    ("w1_outside", "lower"),
    ("log_likelihood", "higher"),
    ("elbo", "higher"),
)
SCORES = tuple(Score(item="gpvi/figure1", metric=metric, better=better, key=metric) for metric, better in SCORED)

# ---------------------------------------------------------------- all steps

FULL_LENGTH = ("gpvi", "gpvi_exact_jac", "amortized_gfsf", "ksd")
"""The printed rows that were cut."""


def full_length_config(method: str, profile: str) -> dict:
    """The configuration of a row, at ``paper`` with the printed number of steps."""
    chosen = config(method, profile)
    if profile == "paper":
        chosen |= {"steps": LINE_STEPS, "history_every": LINE_STEPS // SIZES[profile]["evaluations"]}
    return chosen


def full_length_deviations(method: str, profile: str) -> str:
    """What differs from the paper in one of these."""
    if profile != "paper":
        return deviations(method, profile)
    return _differences(method, full_length_config(method, profile))


# ---------------------------------------------------------------- controls

LAMBDAS = (1.0, 0.3, 0.1, 0.03, 0.01)
SCANNED = {"gpvi_exact_jac": gpvi(NOISY, {"kind": "block"}, 32), "gpvi_exact_density": elbo(NOISY, 32)}
"""Objectives of the scan over λ, and the generator that both train."""
MEAN_SQUARES = {"noise_variance": (NUM_DENSE + NUM_SPARSE) / 2, "prior_scale": 1e3}
"""``log p = -Σ_i (y_i - f(x_i))^2 / N``: the mean squared error as loss, and a prior wide enough to be none."""
SCAN = {
    f"{method}_lambda_{value:g}": spec | {"sampler": GENERATOR | {"noise_scale": value}, "final_lr": 1e-5}
    for method, spec in SCANNED.items()
    for value in LAMBDAS
}
SCAN_STEPS = {"smoke": 5, "quick": 150, "paper": 1_500}
OTHER_LOSS = {f"{row}_mean_squares": row for row in ("svgd", "amortized_svgd", "gpvi_exact_jac")}
"""Control -> the row that it trains on the mean squared error, for as long and at the same rate."""
CONTROLS = (*SCAN, *OTHER_LOSS)


def control_config(method: str, profile: str) -> dict:
    """Everything but the seed, for a generator with one fixed λ, or a row trained on another loss."""
    if method in OTHER_LOSS:
        return config(OTHER_LOSS[method], profile) | {"trained_on": MEAN_SQUARES}
    steps = SCAN_STEPS[profile]
    training = {"steps": steps, "lr": 3e-3, "batch_size": None, "history_every": steps}
    return _shared(profile) | training | SCAN[method]


# ---------------------------------------------------------------- particles of functions

FUNCTION_STEPS = {"smoke": 10, "quick": 400, "paper": 12_000}


def function_config(method: str, profile: str) -> dict:
    """Everything but the seed: SVGD's configuration with an objective in function space."""
    row = function_models.function_rows(float(GRID[0]), float(GRID[-1]), profile)[method]
    steps = FUNCTION_STEPS[profile]
    return config("svgd", profile) | row | {"steps": steps, "history_every": steps // SIZES[profile]["evaluations"]}


def exact_process(number: int, rng: torch.Generator) -> Float[Tensor, "n g"]:
    """Functions on ``GRID`` of the exact posterior under :class:`ArcCosine`: what the closed-form rows aim at."""
    target, (x, y) = posterior(), data()
    joint = ArcCosine().given(target).covariance(torch.cat([x, GRID])[:, None])
    mean, covariance, _ = function_models.conditioned(joint, y, NOISE_VARIANCE**0.5)
    return function_models.normal_draws(mean, covariance, number, rng)


# ---------------------------------------------------------------- how our settings were chosen

RATES = {
    "gpvi_best": (1e-2, 3e-3, 1e-3),
    "gpvi_exact_density": (1e-2, 3e-3, 1e-3),
    "mf_vi_best": (0.3, 0.1, 0.03, 0.01),
}
FIRST_LAMBDAS = {"gpvi_best": (0.3, 0.1), "gpvi_exact_density": (0.3, 0.02)}


def _name(value: float) -> str:
    """A number as a part of a name: ``"0_02"``."""
    return f"{value:g}".replace(".", "_")


SETTINGS: dict[str, tuple[str, dict]] = {
    **{f"{row}_lr_{_name(v)}": (row, {"lr": v}) for row, values in RATES.items() for v in values},
    **{
        f"{row}_lambda_{_name(v)}": (row, {"sampler": {"noise_scale": v}})
        for row, values in FIRST_LAMBDAS.items()
        for v in values
    },
    **{f"mf_vi_best_scale_{_name(v)}": ("mf_vi_best", {"sampler": {"scale": v}}) for v in (0.3, 0.1, 0.005)},
    **{f"gpvi_exact_density_lambda_lr_{_name(v)}": ("gpvi_exact_density", {"noise_scale_lr": v}) for v in (0.1, 0.03)},
    "gpvi_best_kernel_head": ("gpvi_best", {"objective": {"kernel_space": "head"}}),
    **{f"hmc_best_step_{_name(v)}": ("hmc_best", {"step_size": v}) for v in (4e-3, 2e-3, 1e-3)},
}
"""Each best row with one thing changed, on data that no figure shows."""


def settings_config(method: str, profile: str) -> dict:
    """The configuration of a candidate: a row's with its change, on other data and with their reference."""
    row, change = SETTINGS[method]
    reference = REFERENCE.configuration("nuts_other", profile)
    other = {"data_seed": reference["data_seed"], "reference_method": "nuts_other", "reference": reference}
    return with_change(config(row, profile) | other, change)


EXPERIMENTS = (
    REFERENCE,
    Experiment(
        name="one-dimensional-regression",
        title="Figure 1: regression of 80 points on the line, every method against NUTS",
        methods=tuple(method for method in SPECS if method not in DIVERGING),
        config=config,
        seeds=seeds,
        run=run,
        scores=SCORES,
        deviations=deviations,
        rows={method: (method.removesuffix("_best"), "best") for method in (*BEST, "reference_draws")},
    ),
    Experiment(
        name="one-dimensional-regression-full-length",
        title="The cut rows of Figure 1 with all 50,000 steps, one seed",
        methods=FULL_LENGTH,
        config=full_length_config,
        seeds=one_seed,
        run=run,
        scores=SCORES,
        deviations=full_length_deviations,
        instead_of=("one-dimensional-regression",),
    ),
    Experiment(
        name="one-dimensional-regression-controls",
        title="Controls for Figure 1: fixed values of λ; the mean squared error as loss",
        methods=CONTROLS,
        config=control_config,
        seeds=seeds,
        run=run,
    ),
    Experiment(
        name="one-dimensional-regression-functions",
        title="Figure 1 by particles in function space",
        methods=function_models.ROWS,
        config=function_config,
        seeds=seeds,
        run=run,
    ),
    Experiment(
        name="one-dimensional-regression-settings",
        title="Candidates for our settings of Figure 1, on another data set",
        methods=tuple(SETTINGS),
        config=settings_config,
        seeds=one_seed,
        run=run,
    ),
)
