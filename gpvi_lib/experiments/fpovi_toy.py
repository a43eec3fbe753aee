r"""Figures 1, 4 and 5 of function-space POVI: 20 points on the line, particles of weights and of functions.

Twelve inputs are uniform on [0, 0.6] and eight on [0.8, 1]; with ``z = x + ε``, ``ε ~ N(0, 0.03²)``, targets are
``z + sin 4z + sin 13z``. Inputs and targets are standardised. The network is 1–50–50–1 with ReLU, the noise has the
known standard deviation 0.2, and weights and biases have the prior of the paper's code, ``N(0, 1 / outputs)``.

``fpovi-toy-reference`` samples the posterior over functions by HMC. ``fpovi-toy`` compares the paper's methods with
it, on the data, in the gap, and near and far beyond the data; ``fpovi-toy-controls`` takes the method apart, varies the
width, and has the exact posterior under the Gaussian process that function-space methods aim at.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.chains import diagnostics, run_hmc
from gpvi_lib.experiments.evaluation import (
    EVALUATION_SEED,
    Functions,
    differing,
    evenly,
    fixed_draws,
    function_scores,
    history,
    reference_arrays,
)
from gpvi_lib.experiments.function_gpvi import VALUE_NOISE, function_elbo, log_evidence
from gpvi_lib.experiments.function_models import (
    REPULSION_OFF,
    conditioned,
    layer_scales,
    mean_distance,
    normal_draws,
)
from gpvi_lib.function_priors import ArcCosine, weight_scale
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score, one_seed
from gpvi_lib.networks import FlatMLP
from gpvi_lib.samplers import Generator, Sampler, standard_normal
from gpvi_lib.targets import NormalLikelihood, NormalPrior, Posterior

LEFT, RIGHT = (12, 0.0, 0.6), (8, 0.8, 1.0)
"""Numbers and ranges of the inputs."""
INPUT_NOISE, NOISE = 0.03, 0.2
"""Of the inputs, in their own unit, and of the standardised targets."""
NEAR, FAR = 0.5, 1.0
"""How far beyond the data these regions reach, in standard deviations of the inputs."""
GRID_POINTS = 161
BOUND_DRAWS = 500
"""Of a generator, for its bound."""


THEN = {
    "seed": 54_321, "grid_points": 161, "near": 0.5, "far": 1.0, "bound_draws": 500, "value_noise": 0.03,
    "data": [12, 0.0, 0.6, 8, 0.8, 1.0, 0.03],
}  # fmt: skip
"""What the first records were made and evaluated with, see :func:`differing`."""


def _evaluation(**more: float) -> dict:
    now = {"grid_points": GRID_POINTS, "near": NEAR, "far": FAR, "data": [*LEFT, *RIGHT, INPUT_NOISE]}
    return differing(THEN, seed=EVALUATION_SEED, **now, **more)


def data(data_seed: int = 0) -> tuple[Float[Tensor, "20 1"], Float[Tensor, " 20"]]:
    """Standardised inputs and targets, float64, the inputs of the left range first."""
    rng = torch.Generator().manual_seed(7_000 + data_seed)
    x = torch.cat(
        [low + (high - low) * torch.rand(n, generator=rng, dtype=torch.float64) for n, low, high in (LEFT, RIGHT)]
    )
    z = x + INPUT_NOISE * torch.randn(len(x), generator=rng, dtype=torch.float64)
    y = z + torch.sin(4 * z) + torch.sin(13 * z)
    x, y = ((v - v.mean()) / v.std(correction=0) for v in (x, y))
    return x[:, None], y


def grid() -> Float[Tensor, " g"]:
    """Where functions are compared: from 1 below the smallest input to 1 above the largest."""
    x, _ = data()
    return torch.linspace(float(x.min()) - FAR, float(x.max()) + FAR, GRID_POINTS, dtype=torch.float64)


def regions() -> dict[str, Bool[Tensor, " g"]]:
    """Parts of the grid: among the data, in the gap, up to 0.5 beyond the data, and from there to 1 beyond."""
    x, at = data()[0][:, 0], grid()
    gap = (at > x[: LEFT[0]].max()) & (at < x[LEFT[0] :].min())
    inside = (at >= x.min()) & (at <= x.max())
    near = (at >= x.min() - NEAR) & (at <= x.max() + NEAR)
    return {"data": inside & ~gap, "gap": gap, "near": near & ~inside, "far": ~near}


def posterior(width: int, device: torch.device | str = "cpu") -> Posterior:
    """The posterior over the weights, float64."""
    network = FlatMLP([1, width, width, 1])
    scale = layer_scales(network, "fan_out", torch.float64).to(device)
    x, y = (part.to(device) for part in data())
    return Posterior(network, NormalLikelihood(NOISE), x, y, NormalPrior(scale))


@torch.no_grad()
def functions(target: Posterior, w: Float[Tensor, "n d"]) -> Float[Tensor, "n g"]:
    """``f(x; w_i)`` on the grid."""
    return target.network(w, grid()[:, None].to(w))[..., 0]


# ---------------------------------------------------------------- the reference

WIDTHS = (5, 10, 50, 100)
WIDTH = 50
CHAINS: dict[str, dict] = {
    "smoke": {"chains": 2, "num_leapfrog": 5, "num_steps": 30, "burn_in": 10, "kept": 30},
    "quick": {"chains": 4, "num_leapfrog": 40, "num_steps": 120, "burn_in": 40, "kept": 200},
    "paper": {"chains": 8, "num_leapfrog": 80, "num_steps": 240, "burn_in": 40, "kept": 1_000},
}
LONGER = {5: {"num_steps": 6_440, "burn_in": 440}, 10: {"num_steps": 2_440, "burn_in": 440}}
"""Of narrow networks, whose functions mix more slowly and cost less."""


def reference_config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    width = int(method.removeprefix("hmc_"))
    longer = LONGER.get(width, {}) if profile == "paper" else {}
    return {"width": width, "step_size": 0.018, "noise": NOISE} | CHAINS[profile] | longer | _evaluation()


def run_reference(config: dict, method: str, context: RunContext) -> Outcome:
    """HMC in units of the prior's scale, from draws of the prior, diagnosed by ``f(x)`` on the grid."""
    target = posterior(config["width"], device=context.device)
    scale = weight_scale(target)
    rng = torch.Generator(context.device).manual_seed(context.seed)
    start = standard_normal((config["chains"], target.dim), rng, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcceptanceWarning)  # the record says the rate
        adapt = config["burn_in"] > 0
        result = run_hmc(config, lambda u: target.log_prob(scale * u), start, context, rng, adapt=adapt)
    draws = scale * result.samples
    f = functions(target, draws.flatten(0, 1)).unflatten(0, draws.shape[:2]).cpu()  # (draws, chains, g)
    found = diagnostics(f.transpose(0, 1))
    flat = f.flatten(0, 1)
    kept = evenly(flat, config["kept"])
    metrics = {
        "acceptance": float(result.acceptance.mean()),
        "step_size": result.step_size,
        "rhat_max": float(found["rhat"].nan_to_num(nan=1e3, posinf=1e3).max()),
        "ess_min": float(found["ess"].nan_to_num(nan=0.0).min()),
    }
    spread = {f"sd_{name}": float(flat.std(0)[at].mean()) for name, at in regions().items()}
    return Outcome(metrics | spread, {"functions": kept.float()}, result.seconds)


def read_reference(method: str, profile: str) -> Float[Tensor, "m g"]:
    """Draws of the reference of a profile, from its record; where there is none, or a stale one, sampled now."""
    return reference_arrays(REFERENCE, method, profile)["functions"]


REFERENCE = Experiment(
    name="fpovi-toy-reference",
    title="Figure 1 of function-space POVI: the posterior over functions by HMC, for four widths",
    methods=tuple(f"hmc_{width}" for width in (WIDTH, *(w for w in WIDTHS if w != WIDTH))),
    config=reference_config,
    seeds=one_seed,
    run=run_reference,
)


# ---------------------------------------------------------------- the methods

PARTICLES = {"kind": "particles", "dtype": "float64"}
JITTER = {"kind": "jitter", "number": 20, "scale": 0.1}
DRAWN = {"kind": "moment_matched", "draws": 400, "floor": 1e-3}
CLOSED = {"kind": "arc_cosine", "floor": 1e-3}
DIRECTIONS = {name: {"kind": name} for name in ("svgd", "w_sgld", "pi_sgld", "gfsf")}
EVERYWHERE = {"points": {"kind": "uniform", "number": 20}, "prior": CLOSED}
"""The prior at all points of a step, half of them spread over the whole grid."""
BEST = {"lr": 2e-3, "final_lr": 1e-4}
GENERATOR = {
    "kind": "generator", "noise_dim": 16, "hidden": [32, 32], "activation": "softplus", "output_scale": "prior",
    "dtype": "float64",
}  # fmt: skip
WITH_DENSITY = GENERATOR | {"noise_scale": 0.1, "noise_scale_unit": "prior", "train_noise_scale": True}


def _weights(direction: dict) -> dict:
    return {"sampler": PARTICLES, "objective": {"kind": "parvi", "direction": direction}}


def _functions(direction: dict, **changes: Any) -> dict:
    objective = {"kind": "function_space", "direction": direction, "points": JITTER, "prior": DRAWN, "prior_points": 4}
    return {"sampler": PARTICLES, "objective": objective | changes}


SPECS: dict[str, dict] = {
    **{name: _weights(direction) for name, direction in DIRECTIONS.items()},
    **{f"f_{name}": _functions(direction) for name, direction in DIRECTIONS.items()},
    "deep_ensemble": {"sampler": PARTICLES, "objective": {"kind": "likelihood"}},
    "f_svgd_best": _functions(DIRECTIONS["svgd"], **EVERYWHERE, prior_points=None) | BEST,
}
CONTROLS: dict[str, dict] = {
    "exact_gp": {},
    "map_ensemble": _weights(REPULSION_OFF),
    "f_svgd_without_prior": _functions(DIRECTIONS["svgd"], prior=None, prior_points=None),
    "f_svgd_closed_form": _functions(DIRECTIONS["svgd"], prior=CLOSED),
    "f_closed_form_without_repulsion": _functions(REPULSION_OFF, prior=CLOSED),
    "f_best_without_repulsion": _functions(REPULSION_OFF, **EVERYWHERE, prior_points=None) | BEST,
    "f_svgd_best_uniform_start": _functions(DIRECTIONS["svgd"], **EVERYWHERE, prior_points=None) | {"start": "fan_out"},
    "f_svgd_best_amortized": _functions(DIRECTIONS["svgd"], **EVERYWHERE, prior_points=None) | BEST | {
        "sampler": GENERATOR | {"noise_scale": None}
    },
    "gpvi_exact_density": {"sampler": WITH_DENSITY, "objective": {"kind": "elbo"}} | BEST,
    "f_gpvi": {"sampler": WITH_DENSITY, "objective": {"kind": "function_elbo", "points": EVERYWHERE["points"]}} | BEST,
    **{f"{name}_{w}": spec | {"width": w} for name, spec in (
        ("svgd", _weights(DIRECTIONS["svgd"])), ("f_svgd", _functions(DIRECTIONS["svgd"])),
    ) for w in WIDTHS if w != WIDTH},
}  # fmt: skip
LABELS = {
    "map_ensemble": "MAP ensemble",
    "f_svgd_without_prior": "f-SVGD without prior",
    "f_svgd_closed_form": "f-SVGD, closed form at 4 points",
    "f_closed_form_without_repulsion": "f-SVGD, closed form at 4 points, no repulsion",
    "f_best_without_repulsion": "f-SVGD, prior everywhere, no repulsion",
    "f_svgd_best_uniform_start": "f-SVGD, prior everywhere, printed rate, start of the prior's scale",
    "f_svgd_best_amortized": "f-SVGD, prior everywhere, amortised",
    "gpvi_exact_density": "GPVI, exact density",
    "f_gpvi": "GPVI on functions",
    **{f"{name}_{w}": f"{said}, width {w}" for name, said in (("svgd", "SVGD"), ("f_svgd", "f-SVGD"))
       for w in WIDTHS if w != WIDTH},
}  # fmt: skip
"""Control that trains -> its name for a reader."""
SIZES: dict[str, dict] = {
    "smoke": {"particles": 6, "steps": 10, "draws": 30, "evaluations": 2, "seeds": 1, "samples": 40},
    "quick": {"particles": 20, "steps": 1_000, "draws": 100, "evaluations": 10, "seeds": 1, "samples": 500},
    "paper": {"particles": 50, "steps": 5_000, "draws": 400, "evaluations": 20, "seeds": 3, "samples": 1_000},
}


def config(method: str, profile: str) -> dict:
    """Everything but the seed; the reference's configuration too, for scores depend on it."""
    size, spec = SIZES[profile], dict((SPECS | CONTROLS)[method])
    width = spec.pop("width", WIDTH)
    reference = {"method": f"hmc_{width}", "profile": profile} | REFERENCE.configuration(f"hmc_{width}", profile)
    shared = {"width": width, "noise": NOISE, "samples": size["samples"], "reference": reference}
    bound = {"bound_draws": BOUND_DRAWS, "value_noise": VALUE_NOISE} if spec.get("sampler") == WITH_DENSITY else {}
    shared |= _evaluation(**bound)
    if method == "exact_gp":
        return shared | {"floor": CLOSED["floor"]}  # of f-SVGD's process; the exact one has none
    amortized = spec["sampler"]["kind"] == "generator"
    if amortized:
        spec["objective"] = spec["objective"] | {"num_samples": size["particles"]}
    else:
        spec["sampler"] = spec["sampler"] | {"num": size["particles"]}
    if (spec["objective"].get("prior") or {}).get("kind") == "moment_matched":
        spec["objective"] = spec["objective"] | {"prior": DRAWN | {"draws": size["draws"]}}
    printed = {"steps": size["steps"], "lr": 1e-3, "final_lr": None, "start": "start"}
    if profile != "paper":
        printed["lr"] = 5e-3
    return shared | printed | spec | {"history_every": max(1, size["steps"] // size["evaluations"])}


def seeds(profile: str) -> tuple[int, ...]:
    """Where a method starts and how it trains; the data are always the same."""
    return tuple(range(SIZES[profile]["seeds"]))


def exact_process(target: Posterior) -> tuple[Float[Tensor, " g"], Float[Tensor, "g g"]]:
    """Mean and covariance on the grid of the exact posterior under :class:`ArcCosine`, given the data."""
    joint = ArcCosine().given(target).covariance(torch.cat([target.inputs, grid()[:, None]]))
    return conditioned(joint, target.targets, NOISE)[:2]


def _exact_functions(target: Posterior, number: int) -> Float[Tensor, "n g"]:
    rng = torch.Generator().manual_seed(EVALUATION_SEED)
    return normal_draws(*exact_process(target), number, rng)


def scores(f: Float[Tensor, "n g"], reference: Functions) -> dict[str, float]:
    """``sd``, ``sd_ratio``, ``w1`` and ``rmse_mean`` of :func:`function_scores` in each region."""
    found = function_scores(f, reference, regions())
    return {name: value for name, value in found.items() if not name.startswith("rmse_sd")}


def _with_box(objective: dict) -> dict:
    """The specification with the grid's ends as the box of uniform points."""
    if (objective.get("points") or {}).get("kind") != "uniform":
        return objective
    at = grid()
    return objective | {"points": objective["points"] | {"low": float(at[0]), "high": float(at[-1])}}


@torch.no_grad()
def bounds(sampler: Sampler, target: Posterior) -> dict[str, float]:
    """Of a generator with a density, the bound of :func:`function_elbo` at the data and 21 points, and the evidence."""
    if not isinstance(sampler, Generator) or sampler.noise_scale is None:
        return {}
    rng = torch.Generator(target.inputs.device).manual_seed(EVALUATION_SEED)
    x = torch.cat([target.inputs, grid()[::8, None].to(target.inputs)])
    bound = function_elbo(sampler, target, x, BOUND_DRAWS, rng)
    return {"function_elbo": float(bound.mean()), "log_evidence": log_evidence(target)}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train, and compare the functions with the reference; ``exact_gp`` trains nothing."""
    reference = Functions.of(read_reference(config["reference"]["method"], config["reference"]["profile"]))
    target = posterior(config["width"], device=context.device)
    if method == "exact_gp":
        f = _exact_functions(posterior(config["width"]), config["samples"])
        return Outcome(scores(f, reference), {"functions": f[:200].float()})
    rng = torch.Generator(context.device).manual_seed(context.seed)
    start = layer_scales(target.network, config["start"], torch.float64).to(context.device)
    generator = config["sampler"]["kind"] == "generator"
    sampler = build_sampler(config["sampler"], target.dim, target.prior.scale if generator else start, rng)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        w = fixed_draws(sampler, config["samples"])
        found = scores(functions(target, w), reference)
        chosen = {f"{key}_{name}": found[f"{key}_{name}"] for name in regions() for key in ("w1", "sd_ratio")}
        return chosen | {"weight_distance": mean_distance(w)}

    result = train(sampler, target, build_objective(_with_box(config["objective"])), config, context, rng, measure)
    w = fixed_draws(sampler, config["samples"])
    f = functions(target, w)
    metrics = (
        scores(f, reference)
        | bounds(sampler, target)
        | {
            "weight_distance": mean_distance(w),
            "weight_distance_start": result.history[0]["weight_distance"],
        }
    )
    return Outcome(metrics, history(result.history) | {"functions": f[:200].cpu().float()}, result.seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper's figure, which prints no numbers."""
    parts = [] if profile == "paper" else [f"{profile} size"]
    if method != "f_svgd_best":
        parts.append("settings of the authors' script (not printed)")
    if method == "deep_ensemble":
        parts.append("no method of this paper, no prior")
    if method == "f_svgd_best":
        parts.append("closed-form prior at all points, extra points uniform to 1 sd beyond the data")
        parts.append(f"rate {BEST['lr']:g} falling to {BEST['final_lr']:g}")
    return "; ".join(parts)


SCORES = tuple(
    Score(f"fpovi/figure1/{region}", "w1", "lower", f"w1_{region}") for region in ("data", "gap", "near", "far")
)
EXPERIMENTS = (
    REFERENCE,
    Experiment(
        name="fpovi-toy",
        title="Figures 1 and 4 of function-space POVI: particles of weights and of functions against HMC",
        methods=tuple(SPECS),
        config=config,
        seeds=seeds,
        run=run,
        scores=SCORES,
        deviations=deviations,
        rows={"f_svgd_best": ("f_svgd", "best"), "deep_ensemble": ("deep_ensemble", "control")},
    ),
    Experiment(
        name="fpovi-toy-controls",
        title="Figure 5 of function-space POVI, its method taken apart, and the exact Gaussian-process posterior",
        methods=tuple(CONTROLS),
        config=config,
        seeds=seeds,
        run=run,
        once=("exact_gp",),
    ),
)
