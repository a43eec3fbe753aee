"""Figures 4 to 7: samplers of the four energy potentials of Rezende and Mohamed (appendix D.1, Table 6).

The paper shows pictures. Here every picture has numbers: a distance from the target, a divergence, and where the
samples are. Every seed is another start of the same problem.
"""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.experiments.build import build_objective, build_sampler, gpvi, train, with_change
from gpvi_lib.experiments.evaluation import differing, exact_repulsion, generator_of, history, repulsions
from gpvi_lib.experiments.printed import ENERGY_STEPS
from gpvi_lib.kernels import RBF, median_bandwidth, squared_distances
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score, one_seed
from gpvi_lib.metrics import binned_divergence, ksd_u_statistic, sliced_wasserstein
from gpvi_lib.objectives import Objective
from gpvi_lib.samplers import Generator, Sampler, with_density
from gpvi_lib.targets import EnergyPotential, PlaneGrid, score

FIGURES = {"twin_moons": "figure4", "sinusoid": "figure5", "sin_bisect": "figure6", "sin_split": "figure7"}
DENSE_WIDTHS = {"smoke": [32, 32], "quick": [64, 64], "paper": [500, 500]}
SAMPLES = 100
HELPER_SAMPLES = 10
EVALUATION_SEED = 4_000
GRID: dict[str, Any] = {"half_width": 6.0, "cells": 96, "fine": 8}
"""Of the histogram whose KL divergence is measured."""
DISCREPANCY_POINTS, WATCHED_POINTS, DIRECTIONS, TAIL_BATCHES = 2_000, 1_000, 64, 20
"""Of the Stein discrepancy; of what is followed; projections of a sliced distance; batches of the repulsion's tail."""
THEN = {"seed": 4_000, "grid": [6.0, 96, 8], "sizes": [2_000, 1_000, 64, 20]}
"""What the first records were evaluated with, see :func:`differing`."""

# Standard deviations of the input noise. Table 6 lists three values, 1, 2 and 6, and not which was used where. These
# come from early trials; `SETTINGS` has the check, which does not confirm all of them (notebook 12).
HELPER_STDEV = 2.0
STDEV = {
    "twin_moons": {"generator": 6.0, "flow": 6.0},
    "sinusoid": {"generator": 6.0, "flow": 6.0},
    "sin_bisect": {"generator": 6.0, "flow": 2.0},
    "sin_split": {"generator": 2.0, "flow": 2.0},
}
GENERATOR = {"kind": "generator", "noise_scale": None, "input_stdev": "table 6"}
RESIDUAL = {"kind": "generator", "noise_scale": 1.0, "activation": "tanh"}
FLOW = {"kind": "flow", "depth": 32, "base_stdev": "table 6"}


HELPER = {"kind": "helper", "width": 500, "num_layers": 3, "lr": 1e-4}
BLOCK = {"kind": "block"}
SVGD = {"kind": "parvi", "direction": {"kind": "svgd"}, "num_samples": SAMPLES}
ELBO = {"kind": "elbo", "num_samples": SAMPLES}
ORIENTED = {"kind": "oriented_elbo", "num_samples": SAMPLES, "floor": 0.01}
RMSPROP = {"optimizer": "rmsprop", "weight_decay": 1e-3}
PRINTED = {
    "gpvi": gpvi(GENERATOR | {"input_stdev": HELPER_STDEV}, HELPER, HELPER_SAMPLES) | {"steps": 6_000},
    "amortized_svgd": {"sampler": GENERATOR, "objective": SVGD, "steps": 8_000},
    "flow": {"sampler": FLOW, "objective": ELBO, "steps": 8_000} | RMSPROP,
    "gpvi_exact_jac": gpvi(GENERATOR, BLOCK, SAMPLES) | {"steps": 5_000},
}
# Ours, chosen on the sinusoid with seed 100 and used for all four potentials. The paper's f(z) = g(z) + λz with λ = 1
# and a smooth g starts near the identity, where nothing folds.
DECAY = {"lr": 3e-3, "final_lr": 1e-5}
SMALL = RESIDUAL | {"hidden": [64, 64], "input_stdev": 1.0}
BEST = {
    "gpvi_exact_density": {"sampler": RESIDUAL | {"input_stdev": 2.0}, "objective": ORIENTED, "steps": 3_000} | DECAY,
    "gpvi_best": gpvi(SMALL, BLOCK, SAMPLES) | {"steps": 8_000} | DECAY,
    "flow_best": {"sampler": FLOW | {"base_stdev": 2.0}, "objective": ELBO, "steps": 4_000}
    | {"lr": 3e-2, "final_lr": 1e-5},
}
SPECS = PRINTED | BEST
WITH_LAMBDA = GENERATOR | {"noise_scale": 1.0}
# Not rows of any table: the sinusoid with one thing changed. The last have the λ = 1 that section 3.2 prints for all
# experiments, and the narrowest noise of Table 6, and that noise without λ.
CONTROLS = {
    "two_batches": PRINTED["amortized_svgd"] | {"objective": SVGD | {"independent": True}},
    "narrow_kernel": PRINTED["amortized_svgd"]
    | {"objective": SVGD | {"direction": {"kind": "svgd", "bandwidth": 0.3}}},
    "plain_elbo": BEST["gpvi_exact_density"] | {"objective": ELBO},
    "quick_helper": with_change(PRINTED["gpvi"], {"objective": {"inverse": HELPER | {"lr": 1e-3}}, "steps": 3_000}),
    "exact_inverse": with_change(PRINTED["gpvi"], {"objective": {"inverse": BLOCK}}),
    "unconfined": BEST["flow_best"] | {"confinement": None},
    "lambda_1": PRINTED["gpvi"] | {"sampler": WITH_LAMBDA | {"input_stdev": 2.0}},
    "lambda_1_exact_jac": PRINTED["gpvi_exact_jac"] | {"sampler": WITH_LAMBDA},
    "lambda_1_narrow": PRINTED["gpvi"] | {"sampler": WITH_LAMBDA | {"input_stdev": 1.0}},
    "lambda_1_exact_jac_narrow": PRINTED["gpvi_exact_jac"] | {"sampler": WITH_LAMBDA | {"input_stdev": 1.0}},
    "exact_jac_narrow": PRINTED["gpvi_exact_jac"] | {"sampler": GENERATOR | {"input_stdev": 1.0}},
}
# The printed number of steps, once for each potential: what ends are the cut rows heading for? GPVI's row has the
# printed λ here, and the noise that has the smaller KL with it after 6,000 steps on the sinusoid. Of what is printed it
# lacks the batch alone, since a step with 100 samples takes 70 times as long. With the same λ and noise the exact
# Jacobian is a control, and so is the helper without λ.
ALL_STEPS = {"steps": ENERGY_STEPS}
NARROW = CONTROLS["lambda_1_exact_jac_narrow"] | ALL_STEPS
FULL_LENGTH = {
    **{f"{name}_amortized_svgd": (name, PRINTED["amortized_svgd"] | ALL_STEPS) for name in FIGURES},
    **{f"{name}_lambda_1_exact_jac_narrow": (name, NARROW) for name in FIGURES},
    **{f"{name}_lambda_1_narrow": (name, CONTROLS["lambda_1_narrow"] | ALL_STEPS) for name in FIGURES},
    **{f"sinusoid_{row}": ("sinusoid", PRINTED[row] | ALL_STEPS) for row in ("gpvi_exact_jac", "gpvi", "flow")},
}
"""Name -> potential, and what is trained."""
FULL_CELLS = {row: row for row in PRINTED if row != "gpvi"} | {"lambda_1_narrow": "gpvi"}
FULL_ROWS = {f"{name}_{cell}": row for name in FIGURES for cell, row in FULL_CELLS.items()}
FULL_ROWS = {name: row for name, row in FULL_ROWS.items() if name in FULL_LENGTH}
"""Of those that are rows, the row."""
# In short runs of seed 100: the check of the noise of the printed rows, and the candidates for our settings, on the
# sinusoid.
STDEVS = (1.0, 2.0, 6.0)
TRIED = {"amortized_svgd": ("generator", 2_000), "gpvi_exact_jac": ("generator", 2_000), "flow": ("flow", 5_000)}
"""Printed row -> the kind of noise that it votes for, and the steps of its short runs."""


def _noise(kind: str, stdev: float) -> dict:
    return {"sampler": {"base_stdev" if kind == "flow" else "input_stdev": stdev}}


NOISES: dict[str, tuple[str, str, dict]] = {
    f"{potential}_{row}_stdev_{stdev:g}": (potential, row, {"steps": steps} | _noise(kind, stdev))
    for potential in FIGURES
    for row, (kind, steps) in TRIED.items()
    for stdev in STDEVS
}
CHANGES: dict[str, dict[str, dict]] = {
    "gpvi_exact_density": {"lr_0_01": {"lr": 1e-2}, "lr_0_001": {"lr": 1e-3}, "stdev_1": _noise("generator", 1.0)},
    "gpvi_best": {
        "lr_0_01": {"lr": 1e-2},
        "lr_0_001": {"lr": 1e-3},
        "stdev_2": _noise("generator", 2.0),
        "width_500": {"sampler": {"hidden": [500, 500]}},
    },
    "flow_best": {"lr_0_1": {"lr": 1e-1}, "lr_0_01": {"lr": 1e-2}, "stdev_6": _noise("flow", 6.0)},
}
SETTINGS = NOISES | {
    f"{row}_{name}": ("sinusoid", row, change)
    for row, changes in CHANGES.items()
    for name, change in ({"ours": {}} | changes).items()
}
"""Candidate -> potential, row, and what it changes in it."""
SMALL_STEPS = {"smoke": 3, "quick": 300}
EVALUATION = {"smoke": 500, "quick": 5_000, "paper": 20_000}


def _sampler(spec: dict, potential: str, profile: str) -> dict:
    """The sampler with the noise of this potential and the widths of this profile."""
    stdev, kind = ("base_stdev", "flow") if spec["kind"] == "flow" else ("input_stdev", "generator")
    spec = spec if kind == "flow" else {"hidden": DENSE_WIDTHS[profile]} | spec
    return spec | ({stdev: STDEV[potential][kind]} if spec[stdev] == "table 6" else {})


def _shrunk(objective: dict, profile: str) -> dict:
    """The objective at a small profile: fewer samples, a helper as narrow as the generator."""
    objective = objective | {"num_samples": min(objective["num_samples"], 32)}
    if objective.get("inverse", {}).get("kind") == "helper":
        objective["inverse"] = objective["inverse"] | {"width": DENSE_WIDTHS[profile][0], "lr": 1e-3}
    return objective


def config(potential: str, specs: dict[str, dict], method: str, profile: str) -> dict:
    """Everything but the seed. ``quick`` and ``smoke`` train small networks for a short time at a high rate."""
    spec = specs[method]
    printed = {"potential": potential, "confinement": 0.2, "lr": 1e-4, "final_lr": None, "optimizer": "adam"}
    chosen = printed | {"weight_decay": 0.0} | spec
    chosen["sampler"] = _sampler(spec["sampler"], potential, profile)
    if profile != "paper":
        chosen |= {"steps": SMALL_STEPS[profile], "lr": max(1e-3, chosen["lr"]), "final_lr": 1e-5}
        chosen["objective"] = _shrunk(spec["objective"], profile)
    return (
        chosen
        | {"history_every": max(1, chosen["steps"] // 20), "evaluation": EVALUATION[profile]}
        | differing(
            THEN,
            seed=EVALUATION_SEED,
            grid=list(GRID.values()),
            sizes=[DISCREPANCY_POINTS, WATCHED_POINTS, DIRECTIONS, TAIL_BATCHES],
        )
    )


def full_length_config(method: str, profile: str) -> dict:
    """The same for a cell of ``FULL_LENGTH``."""
    potential, spec = FULL_LENGTH[method]
    return config(potential, {method: spec}, method, profile)


def settings_config(method: str, profile: str) -> dict:
    """The same for a candidate."""
    potential, row, change = SETTINGS[method]
    return config(potential, {row: with_change(SPECS[row], change)}, row, profile)


def settings_seeds(profile: str) -> tuple[int, ...]:
    """None of the starts that count."""
    return (100,)


def seeds(profile: str) -> tuple[int, ...]:
    """The starts that count."""
    return tuple(range(3 if profile == "paper" else 1))


@cache
def _grid(potential: str) -> PlaneGrid:
    """Made once for all runs of a process."""
    return PlaneGrid(EnergyPotential(potential), **GRID)


class Judge:
    """What is measured of a sampler of one potential, always against the confined potential.

    Args:
        potential: its name.
        num_samples: how many samples are compared with as many exact ones, and shown.
    """

    def __init__(self, potential: str, num_samples: int) -> None:
        self.target, self.num_samples = EnergyPotential(potential), num_samples
        self.grid = _grid(potential)
        self.exact = self.exact_samples(0)

    def exact_samples(self, seed: int) -> Float[Tensor, "n 2"]:
        """Another set of independent draws from the target for every seed."""
        return self.grid.sample(self.num_samples, torch.Generator().manual_seed(EVALUATION_SEED + seed))

    @cached_property
    def kernel(self) -> RBF:
        """One kernel for all samplers, so that their Stein discrepancies can be compared: the exact samples' own."""
        x = self.exact[:DISCREPANCY_POINTS]
        return RBF(float(median_bandwidth(squared_distances(x, x), same=True)))

    def shares(self, x: Float[Tensor, "n 2"]) -> dict[str, float]:
        """Share of the points in each part of the plane."""
        counts = torch.bincount(self.target.part(x), minlength=len(self.target.parts))
        return {f"share_{part}": float(count) / len(x) for part, count in zip(self.target.parts, counts, strict=True)}

    def of_points(self, x: Float[Tensor, "n 2"]) -> dict[str, float]:
        """Distances of a sample from the target, and how wide and how long it is."""
        few = x[:DISCREPANCY_POINTS].double()
        truth = self.shares(self.exact)
        shares = self.shares(x)
        width = self.target.across(x).square().mean() / self.target.across(self.exact).square().mean()
        length = x.std(0) / self.exact.std(0)
        return shares | {
            "sliced_wasserstein": sliced_wasserstein(x, self.exact, DIRECTIONS),
            "ksd": float(ksd_u_statistic(few, score(self.target, few), self.kernel)),
            "width_ratio": float(width.sqrt()),
            "spread_1": float(length[0]),
            "spread_2": float(length[1]),
            "misplaced": 0.5 * sum(abs(shares[name] - truth[name]) for name in truth),
            "outside": float((x.abs().amax(-1) > self.grid.half_width).float().mean()),
        }

    def divergence(self, sampler: Sampler, num_samples: int, seed: int) -> float:
        """KL divergence of a sampler's histogram, see :func:`binned_divergence`."""
        rng = generator_of(sampler, seed)
        draws = [sampler.sample(min(num_samples, 20_000), rng) for _ in range(max(1, num_samples // 20_000))]
        return binned_divergence(self.grid.counts(torch.cat(draws).cpu()), self.grid.log_masses)

    @torch.no_grad()
    def claimed(self, sampler: Sampler, num_samples: int, seed: int) -> dict[str, float]:
        """KL divergence by the sampler's own density, exact where it is injective, and the signs of its Jacobian."""
        x, log_q, sign = with_density(sampler, num_samples, generator_of(sampler, seed))
        log_p = self.target.log_prob(x) - self.grid.log_normaliser
        found = {"kl_claimed": float((log_q - log_p).mean())}
        if sign is not None:
            found["negative_share"] = float((sign < 0).float().mean())
        return found

    def watch(self, objective: Objective, sampler: Sampler) -> dict[str, float]:
        """What is cheap enough to follow along training."""
        n = min(self.num_samples, WATCHED_POINTS)
        x = sampler.sample(n, generator_of(sampler, EVALUATION_SEED)).cpu()
        row = {"sliced_wasserstein": sliced_wasserstein(x, self.exact[:n], DIRECTIONS), "sd_1": float(x[:, 0].std())}
        return row | self.claimed(sampler, n, EVALUATION_SEED) | delivered_repulsion(objective, sampler)


@torch.no_grad()
def delivered_repulsion(objective: Objective, generator: Sampler) -> dict:
    """How well the helper's repulsion ``R̂`` stands for the exact ``R``, on one fixed batch of noise.

    ``delivered`` is the slope ``<R̂, R> / <R, R>`` and ``helper_error`` is ``|R̂ - R| / |R|``: 1 and 0 are perfect.
    Nothing for objectives without a trained helper, and where ``R`` does not exist.
    """
    found = repulsions(objective, generator, HELPER_SAMPLES, EVALUATION_SEED)
    if found is None:
        return {}
    _, exact, estimate = found
    scale = exact.square().sum()
    return {
        "delivered": float((estimate * exact).sum() / scale),
        "helper_error": float((estimate - exact).square().sum().div(scale).sqrt()),
    }


@torch.no_grad()
def repulsion_tail(generator: Generator) -> dict[str, float]:
    """Root mean square over median of the exact repulsion ``|R_j|`` per point, over batches of ``SAMPLES`` noises.

    About 1.2 if the two components are normal; large where few points near a singular Jacobian carry all of it.
    Nothing where one is singular.
    """
    rng, batch_lengths = generator_of(generator, EVALUATION_SEED), []
    for _ in range(TAIL_BATCHES):
        source, query = generator.noise(SAMPLES, rng), generator.noise(SAMPLES, rng)
        _, weight = RBF()(source, query)
        repulsion = exact_repulsion(generator, source, query, weight)
        if repulsion is None:
            return {}
        batch_lengths.append(repulsion.norm(dim=-1))
    lengths = torch.cat(batch_lengths)
    return {"repulsion_tail": float(lengths.square().mean().sqrt() / lengths.median())}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one method on one potential and judge it."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = EnergyPotential(config["potential"], config["confinement"])
    sampler = build_sampler(config["sampler"], 2, 1.0, rng)
    objective = build_objective(config["objective"])
    judge = Judge(config["potential"], config["evaluation"])
    result = train(sampler, target, objective, config, context, rng, lambda _, s: judge.watch(objective, s))

    n = judge.num_samples
    x = sampler.sample(n, generator_of(sampler, EVALUATION_SEED + 1)).cpu()
    metrics = judge.of_points(x) | judge.claimed(sampler, n, EVALUATION_SEED + 2)
    metrics |= {name: value for name, value in result.history[-1].items() if name in ("delivered", "helper_error")}
    metrics["kl"] = judge.divergence(sampler, 10 * n, EVALUATION_SEED + 3)
    if isinstance(sampler, Generator):
        metrics |= repulsion_tail(sampler)
    metrics["parameters"] = float(sum(parameter.numel() for parameter in sampler.parameters()))
    arrays = {"counts": judge.grid.counts(x).short()}
    return Outcome(metrics, arrays | history(result.history), result.seconds)


def deviations(potential: str, method: str, profile: str) -> str:
    """What differs from the paper, which prints 200,000 steps of 100 samples and a learning rate of 1e-4 for all."""
    if profile != "paper":
        return f"{profile} size: {SMALL_STEPS[profile]} steps, small networks, learning rate 1e-3 or more, decaying"
    return _differences(potential, method, config(potential, SPECS, method, profile))


def full_length_deviations(method: str, profile: str) -> str:
    """The same for a cell of ``FULL_LENGTH``; a control differs in what it is called after."""
    if profile != "paper":
        return deviations("", "", profile)
    return _differences(FULL_LENGTH[method][0], FULL_ROWS.get(method, ""), full_length_config(method, profile))


def _differences(potential: str, row: str, config: dict) -> str:
    """What the configuration of a row at ``paper`` has that is not printed, or printed otherwise."""
    chosen = config["sampler"]
    noise = chosen["base_stdev" if chosen["kind"] == "flow" else "input_stdev"]
    steps = "" if config["steps"] == ENERGY_STEPS else f"{config['steps']:,} steps instead of {ENERGY_STEPS:,}, "
    chosen_by = " (by KL on the sinusoid)" if row == "gpvi" and chosen["noise_scale"] else " (by early trials)"
    found = f"{steps}input noise {noise:g}{chosen_by if row in PRINTED else ''}"
    found += "" if potential == "twin_moons" else ", target confined along x1"
    found += f", {HELPER_SAMPLES} samples a step instead of {SAMPLES}" if row == "gpvi" else ""
    found += ", no λ" if row.startswith("gpvi") and chosen["noise_scale"] is None else ""
    return found + {
        "gpvi_best": "; exact inverse, tanh, widths 64 and 64, λ = 1, learning rate 3e-3 decaying to 1e-5",
        "gpvi_exact_density": "; oriented ELBO, tanh, λ = 1, learning rate 3e-3 decaying to 1e-5",
        "flow_best": "; Adam, learning rate 3e-2 decaying to 1e-5, no weight decay",
    }.get(row, "")


def _scores(potential: str, methods: tuple[str, ...] | None = None) -> tuple[Score, ...]:
    return tuple(
        Score(item=f"gpvi/{FIGURES[potential]}", metric=metric, better="lower", key=metric, methods=methods)
        for metric in ("sliced_wasserstein", "kl", "ksd")
    )


def _experiment(potential: str) -> Experiment:
    words = potential.replace("_", " ")
    return Experiment(
        name=f"energy-{potential.replace('_', '-')}",
        title=f"Figure {FIGURES[potential][-1]}: samplers of the energy potential '{words}'",
        methods=tuple(SPECS),
        config=partial(config, potential, SPECS),
        seeds=seeds,
        run=run,
        scores=_scores(potential),
        deviations=partial(deviations, potential),
        rows={method: (method.removesuffix("_best"), "best") for method in BEST},
    )


ROWS = tuple(_experiment(potential) for potential in FIGURES)
EXPERIMENTS = (
    *ROWS,
    Experiment(
        name="energy-controls",
        title="The sinusoid potential with one thing changed: batches, kernel, orientation, helper, confinement, λ",
        methods=tuple(CONTROLS),
        config=partial(config, "sinusoid", CONTROLS),
        seeds=seeds,
        run=run,
    ),
    Experiment(
        name="energy-full-length",
        title="The energy potentials with all 200,000 steps of Table 6, one seed",
        methods=tuple(FULL_LENGTH),
        config=full_length_config,
        seeds=one_seed,
        run=run,
        scores=tuple(
            score
            for potential in FIGURES
            for score in _scores(potential, tuple(name for name in FULL_ROWS if FULL_LENGTH[name][0] == potential))
        ),
        deviations=full_length_deviations,
        rows={name: (row, "printed") for name, row in FULL_ROWS.items()},
        instead_of=tuple(experiment.name for experiment in ROWS),
    ),
    Experiment(
        name="energy-settings",
        title="The noise of Table 6 in short runs on each potential, and candidates for our settings on the sinusoid",
        methods=tuple(SETTINGS),
        config=settings_config,
        seeds=settings_seeds,
        run=run,
    ),
)
