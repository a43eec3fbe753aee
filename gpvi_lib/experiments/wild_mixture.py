r"""Figure 2 of Wild VI: step sizes of 20 Langevin layers on a mixture on the line, learned and made by hand.

The paper prints neither the density nor the settings; ours are ``⅓ N(-2, 1) + ⅔ N(2, 1)`` and ``q_0 = N(-10, 1)``. On
the line ``q_T`` of given step sizes is known, so every schedule has its exact divergence; the rules that adapt to the
chain, and MALA, have that of a histogram.

A schedule made by hand is the best of a grid of candidates, chosen by the exact divergence, which only an oracle
knows, or by the kernel Stein discrepancy of samples, which anyone can compute. Candidates that throw mass off the
grid are counted and left out.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.experiments.build import DTYPES, build_objective, train
from gpvi_lib.experiments.evaluation import differing, history
from gpvi_lib.experiments.printed import WILD_MASTERS, WILD_POWER
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.kernels import RBF
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.langevin import LangevinNetwork, share_outside
from gpvi_lib.langevin_exact import LineGrid
from gpvi_lib.metrics import binned_divergence, ksd_u_statistic
from gpvi_lib.samplers import MeanField
from gpvi_lib.schedules import AdaptiveLangevin, mala, power_decay
from gpvi_lib.targets import GaussianMixture, score

LAYERS, BOX = 20, 20.0
RANDOM = [[-2.0, 0.0, 0.0], [3.0, 9.0, 4.0]]
"""Lowest and highest log-scale, offset and exponent of a schedule drawn at random."""
HISTOGRAM = [-10.0, 10.0, 80]
"""Ends and cells, for the divergence of points."""
SEARCH_CHAINS = 1_000
"""Whose Stein discrepancy chooses a schedule."""
THEN = {
    "box": 20.0, "finalists": 5, "random": [[-2.0, 0.0, 0.0], [3.0, 9.0, 4.0]], "histogram": [-10.0, 10.0, 80],
    "search_chains": 1_000,
}  # fmt: skip
"""What the first records were evaluated with, see :func:`differing`."""
TARGET = {"means": [-2.0, 2.0], "weights": [1 / 3, 2 / 3], "scale": 1.0}
START = {"mean": -10.0, "scale": 1.0}
FREE_POWER: dict[str, list] = {
    "log_scale": [-2 + 0.25 * i for i in range(21)],
    "offset": list(range(10)),
    "exponent": [0.25 * i for i in range(13)],
}
LARGEST_STEP = 1.9
"""Of the candidates that samples choose from: above 2 a layer throws points out of a hump of variance 1."""

SVGD = {"kind": "parvi", "direction": {"kind": "svgd"}}
KSD = {"kind": "stein_discrepancy"}
TRAINED: dict[str, dict] = {
    "svgd_full": {"objective": SVGD},
    "svgd_truncated": {"objective": SVGD, "truncate": True},
    "regression": {"objective": {"kind": "regression", "move": 1.0, "inner_steps": 3}},
    "gauss_newton": {
        "objective": {"kind": "gauss_newton", "move": 1.0, "damping": 1e-3},
        "optimizer": "sgd", "lr": 1.0, "final_lr": 0.02,
    },
    "ksd_u": {"objective": KSD},
    "ksd_u_h1": {"objective": KSD | {"bandwidth": 1.0}},
    "ksd_u_h10": {"objective": KSD | {"bandwidth": 10.0}},
    "ksd_v": {"objective": KSD | {"statistic": "v"}},
    "ksd_u_truncated": {"objective": KSD, "truncate": True},
    "path": {"objective": {"kind": "path_elbo"}},
    "semi_implicit": {"objective": {"kind": "semi_implicit"}},
}  # fmt: skip
SCHEDULES: dict[str, dict] = {
    "constant": {"candidates": {"constant": WILD_MASTERS}},
    "constant_fine": {"candidates": {"constant": [0.02 * i for i in range(1, 76)]}},
    "power": {"candidates": WILD_POWER},
    "power_free": {"candidates": FREE_POWER},
    **{
        f"power_free_ksd_{h}": {"candidates": FREE_POWER, "largest": LARGEST_STEP, "bandwidth": bandwidth}
        for h, bandwidth in (("median", "paper"), ("h3", 3.0), ("h10", 10.0), ("h30", 30.0))
    },
    "random_search": {"candidates": {"random": 300}},
}
SAMPLED: dict[str, dict] = {
    **{rule: {"candidates": {"constant": WILD_MASTERS}} for rule in ("adagrad", "rmsprop", "adadelta")},
    "mala": {"candidates": {"constant": [0.05 * 1.25**i for i in range(20)]}},
}
METHODS = (*TRAINED, *SCHEDULES, *SAMPLED)
SIZES = {
    "smoke": {"samples": 20, "steps": 6, "cells": 300, "search_cells": 100, "chains": 500, "most": 3},
    "quick": {"samples": 50, "steps": 100, "cells": 600, "search_cells": 150, "chains": 10_000, "most": 60},
    "paper": {"samples": 100, "steps": 2_000, "cells": 1_500, "search_cells": 400, "chains": 200_000, "most": 5_000},
}


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    sizes = SIZES[profile]
    shared = {"layers": LAYERS, "target": TARGET, "start": START, "cells": sizes["cells"], "half_width": 30.0}
    now = {"random": RANDOM, "histogram": HISTOGRAM, "search_chains": SEARCH_CHAINS}
    shared |= differing(THEN, box=BOX, finalists=FINALISTS, **now)
    if method in TRAINED:
        spec = {"truncate": False, "optimizer": "adam", "lr": 0.05, "final_lr": 1e-3} | TRAINED[method]
        spec["objective"] = spec["objective"] | {"num_samples": sizes["samples"]}
        steps = sizes["steps"]
        network = {"step_size": 0.1, "ceiling": 1.5, "dtype": "float32"}
        return shared | {"kind": "trained", "network": network} | spec | {"steps": steps, "history_every": steps // 3}
    kind = "schedule" if method in SCHEDULES else "sampled"
    spec = (SCHEDULES | SAMPLED)[method]
    search = {"search_cells": sizes["search_cells"], "most": sizes["most"], "chains": sizes["chains"]}
    return shared | {"kind": kind, "rule": method} | search | spec


def seeds(profile: str) -> tuple[int, ...]:
    """Other starts, noise and candidates drawn at random; a schedule chosen by an oracle is the same for each."""
    return (0, 1, 2) if profile == "paper" else (0,)


def mixture(spec: dict, dtype: torch.dtype, device: torch.device | str) -> GaussianMixture:
    """The target on the line."""
    means, weights = (torch.tensor(spec[name], dtype=dtype, device=device) for name in ("means", "weights"))
    return GaussianMixture(means[:, None], spec["scale"], weights)


def start(spec: dict, dtype: torch.dtype, device: torch.device | str) -> MeanField:
    """``q_0``."""
    return MeanField(torch.tensor([spec["mean"]], dtype=dtype, device=device), spec["scale"])


class Judge:
    """What a schedule, or a sample, is worth; on the CPU in float64."""

    def __init__(self, config: dict, cells: int) -> None:
        self.grid = LineGrid(-config["half_width"], config["half_width"], cells)
        self.target = mixture(config["target"], torch.float64, "cpu")
        self.log_prob = self.target.log_prob(self.grid.centres[:, None])
        mean = torch.tensor([config["start"]["mean"]], dtype=torch.float64)
        self.start = self.grid.normal(mean, config["start"]["scale"])[0]

    def masses(self, steps: Float[Tensor, " T"]) -> Float[Tensor, " g"]:
        """``q_T`` on the grid."""
        return self.grid.push(self.start, self.target, steps)

    def divergence(self, steps: Float[Tensor, " T"]) -> float:
        """``KL(q_T || p)``, infinite where mass left the grid."""
        masses = self.masses(steps)
        whole = abs(float(masses.sum()) - 1) < 1e-6
        return self.grid.divergence(masses, self.log_prob) if whole else math.inf

    def of_schedule(self, steps: Float[Tensor, " T"]) -> tuple[dict[str, float], Float[Tensor, " g"]]:
        """Metrics of step sizes, and ``q_T``; the divergence is that of the mass on the grid."""
        masses = self.masses(steps)
        share = masses / masses.sum()
        exact = self.grid.masses(self.log_prob)
        metrics = {
            "kl": self.grid.divergence(share, self.log_prob),
            "mass_error": abs(float(masses.sum()) - 1),
            "share_outside": float(1 - masses[self.grid.centres.abs() <= BOX].sum()),
        }
        return metrics | self.moments(self.grid.centres, share, exact), masses

    def of_sample(self, z: Float[Tensor, "n 1"]) -> dict[str, float]:
        """Metrics of points: the divergence of their histogram, points beyond ±10 in its outermost cells."""
        low, high, cells = HISTOGRAM
        bins = LineGrid(low, high, int(cells))
        log_masses = bins.masses(self.target.log_prob(bins.centres[:, None])).log()
        z = z.cpu().double().nan_to_num(math.inf)
        counts = torch.bincount(
            ((z[:, 0] - bins.low) / bins.width).clamp(0, bins.cells - 1).long(), minlength=bins.cells
        )
        near = z[z.abs() <= self.grid.high]
        equal = torch.full_like(near, 1 / max(1, len(near)))
        return {
            "kl": binned_divergence(counts, log_masses),
            "share_outside": share_outside(z, BOX),
        } | self.moments(near, equal, self.grid.masses(self.log_prob))

    def moments(self, points: Tensor, share: Tensor, exact: Tensor) -> dict[str, float]:
        """Errors of ``E[x]``, ``E[x^2]`` and, in the mean square, ``E[cos(ωx + b)]`` of a hundred random features."""
        rng = torch.Generator().manual_seed(7)
        frequency, phase = torch.randn(100, 1, generator=rng), 2 * math.pi * torch.rand(100, 1, generator=rng)
        centres = self.grid.centres

        def error(function) -> Tensor:
            return function(points) @ share - function(centres) @ exact

        waves = error(lambda x: torch.cos(frequency * x + phase))
        return {
            "mean_error": float(error(lambda x: x).abs()),
            "square_error": float(error(lambda x: x.square()).abs()),
            "cosine_error": float(waves.square().mean().sqrt()),
        }


def candidates(config: dict, seed: int) -> Iterator[tuple[list[float], Float[Tensor, " T"]]]:
    """Each candidate's numbers and its schedule; evenly spaced in a grid that has more than ``most``."""
    spec, layers = config["candidates"], config["layers"]
    if "constant" in spec:
        chosen = [(math.log10(value), 0.0, 0.0) for value in spec["constant"]]
    elif "random" in spec:
        low, high = torch.tensor(RANDOM)
        rng = torch.Generator().manual_seed(seed)
        chosen = [tuple(row) for row in (low + (high - low) * torch.rand(spec["random"], 3, generator=rng)).tolist()]
    else:
        chosen = list(itertools.product(spec["log_scale"], spec["offset"], spec["exponent"]))
    for numbers in chosen[:: math.ceil(len(chosen) / config["most"])]:
        log_scale, offset, exponent = numbers
        yield list(numbers), power_decay(layers, 10.0**log_scale, offset, exponent)[:, 0]


FINALISTS = 5
"""Candidates that are judged again on the fine grid."""


def choose(config: dict, judge: Judge, context: RunContext) -> tuple[list[float], Tensor, int]:
    """The best schedule's numbers and step sizes, and how many candidates threw mass away."""
    coarse = Judge(config, config["search_cells"])
    found, diverged = [], 0
    for numbers, steps in candidates(config, context.seed):
        divergence = coarse.divergence(steps)
        diverged += math.isinf(divergence)
        if "bandwidth" not in config:
            found.append((divergence, numbers, steps))
        elif float(steps.max()) <= config["largest"]:
            found.append((discrepancy(config, steps, context), numbers, steps))
    found.sort(key=lambda row: row[0])
    if "bandwidth" not in config:
        found = sorted(((judge.divergence(steps), numbers, steps) for _, numbers, steps in found[:FINALISTS]))
    return found[0][1], found[0][2], diverged


def discrepancy(config: dict, steps: Float[Tensor, " T"], context: RunContext) -> float:
    """The kernel Stein discrepancy of ``SEARCH_CHAINS`` chains; infinite where one is not finite."""
    target, q_0 = mixture(config["target"], torch.float64, "cpu"), start(config["start"], torch.float64, "cpu")
    network = LangevinNetwork(q_0, target, len(steps), step_size=steps[:, None], dtype=torch.float64)
    z = network.sample(min(SEARCH_CHAINS, config["chains"]), torch.Generator().manual_seed(context.seed))
    value = float(ksd_u_statistic(z, score(target, z), RBF(config["bandwidth"])))
    return value if math.isfinite(value) else math.inf


def run_trained(config: dict, context: RunContext, judge: Judge) -> Outcome:
    """Train the step sizes; the exact divergence on the way and at the end."""
    spec = dict(config["network"])
    dtype = DTYPES[spec.pop("dtype")]
    target, rng = mixture(config["target"], dtype, context.device), torch.Generator(context.device)
    rng.manual_seed(context.seed)
    q_0, flags = start(config["start"], dtype, context.device), {"truncate": config["truncate"], "dtype": dtype}
    network = LangevinNetwork(q_0, target, config["layers"], **spec, **flags, device=context.device)

    def now(network: LangevinNetwork) -> Tensor:
        return network.step_size.detach().cpu().double()[:, 0]

    def divergence(step: int, network: LangevinNetwork) -> dict[str, float]:
        return {"kl": judge.of_schedule(now(network))[0]["kl"]}

    result = train(network, target, build_objective(config["objective"]), config, context, rng, divergence)
    metrics, masses = judge.of_schedule(now(network))
    return Outcome(
        metrics,
        {"steps": now(network), "masses": masses.float()} | history(result.history, ("step", "kl")),
        result.seconds,
    )


def run_schedule(config: dict, context: RunContext, judge: Judge) -> Outcome:
    """Choose a schedule among the candidates; its exact divergence."""
    numbers, steps, diverged = choose(config, judge, context)
    metrics, masses = judge.of_schedule(steps)
    metrics |= dict(zip(("log_scale", "offset", "exponent"), numbers, strict=True)) | {"diverged": float(diverged)}
    return Outcome(metrics, {"steps": steps, "masses": masses.float()})


def run_sampled(config: dict, context: RunContext, judge: Judge) -> Outcome:
    """Choose a master step size by the divergence of a histogram, and draw again with it."""
    target, q_0 = mixture(config["target"], torch.float64, "cpu"), start(config["start"], torch.float64, "cpu")

    def draw(step: float, seed: int) -> Tensor:
        rng = torch.Generator().manual_seed(seed)
        if config["rule"] != "mala":
            network = AdaptiveLangevin(config["rule"], q_0, target, config["layers"], step, dtype=torch.float64)
            return network.sample(config["chains"], rng)
        layers, first = config["layers"], q_0.sample(config["chains"], rng)
        settings: dict = {"num_steps": layers, "burn_in": layers - 1, "rng": rng, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AcceptanceWarning)  # of candidates
            return mala(target.log_prob, first, step_size=step, **settings).samples[-1]

    steps = [10 ** numbers[0] for numbers, _ in candidates(config, context.seed)]
    found = {step: judge.of_sample(draw(step, 1_000 + context.seed)) for step in steps}
    best = min(found, key=lambda step: found[step]["kl"])
    metrics = judge.of_sample(draw(best, context.seed)) | {"log_scale": math.log10(best)}
    return Outcome(metrics | {"diverged": float(sum(row["share_outside"] > 0 for row in found.values()))})


RUN = {"trained": run_trained, "schedule": run_schedule, "sampled": run_sampled}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train or choose step sizes, and judge them."""
    return RUN[config["kind"]](config, context, Judge(config, config["cells"]))


def deviations(method: str, profile: str) -> str:
    """What differs from the paper, or is not printed there."""
    found = config(method, profile)
    parts = ["our mixture and start (not printed)"]
    if method in TRAINED:
        parts.append(f"{found['steps']:,} steps, {found['objective']['num_samples']} samples")
    if method in ("constant_fine", "power_free", "random_search") or method.startswith("power_free_ksd"):
        parts.append("candidates that the paper does not have")
    if found["kind"] != "trained":
        parts.append(f"step chosen by {_criterion(method, found['kind'])}")
    return "; ".join(parts)


def _criterion(method: str, kind: str) -> str:
    """What the candidates of a rule are compared by."""
    if method.startswith("power_free_ksd"):
        return "the KSD of samples"
    return "the exact KL that is reported" if kind == "schedule" else "the KL of a histogram"


PAPERS = ("svgd_full", "ksd_u", "constant", "power")
EXPERIMENTS = (
    Experiment(
        name="wild-mixture",
        title="Figure 2 of Wild VI: learned and hand-made step sizes of 20 Langevin layers on a mixture",
        methods=METHODS,
        config=config,
        seeds=seeds,
        run=run,
        scores=(
            Score("wild-vi/figure2", "kl", "lower", "kl"),
            Score("wild-vi/figure2", "square_error", "lower", "square_error"),
        ),
        deviations=deviations,
        rows={method: (method, "best") for method in METHODS if method not in PAPERS},
        once=("constant", "constant_fine", "power", "power_free"),
    ),
)
