r"""What :func:`gpvi_lib.check` says of samples whose error is known: false alarms and misses.

Some samples are right: draws of the target itself, NUTS, the exact density on a Gaussian. Some are the failures of this
collection: printed GPVI on four classes, the folded map of notebook 12, SVGD on Figure 1's problem. Some are between:
generators trained on their exact density on targets that they cannot, or hardly can, follow. Beside the verdicts stands
an error that ``check`` does not know, from draws of the target or from long chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import trust_findings
from gpvi_lib.experiments import (
    classification,
    classification_problem,
    energy,
    nuts_reference,
    one_dimensional_regression,
)
from gpvi_lib.experiments.build import build_objective, build_sampler, elbo, parvi, train, with_change
from gpvi_lib.experiments.chains import nuts
from gpvi_lib.experiments.evaluation import (
    CHECK_THEN,
    EVALUATION_SEED,
    check_constants,
    differing,
    findings,
    fixed_draws,
)
from gpvi_lib.experiments.known_targets import EightSchools, Funnel
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.lab.runner import load_or_run
from gpvi_lib.metrics import wasserstein_1d
from gpvi_lib.samplers import MeanField, Sampler
from gpvi_lib.targets import Banana, EnergyPotential, Gaussian, GaussianMixture, PlaneGrid, Posterior, Target
from gpvi_lib.trust import check

# ---------------------------------------------------------------- targets that only stand here


@dataclass(frozen=True)
class StudentT:
    """Independent Student-t coordinates.

    Attributes:
        dim: d.
        freedom: degrees of freedom.
    """

    dim: int = 5
    freedom: float = 3.0
    num_data = None

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """Up to a constant."""
        return -0.5 * (self.freedom + 1) * torch.log1p(x.square() / self.freedom).sum(-1)

    def sample(self, number: int, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Independent draws: a normal over the root of a mean of squares."""
        squares = torch.randn(number, self.dim, int(self.freedom), generator=rng).square().mean(-1)
        return torch.randn(number, self.dim, generator=rng) / squares.sqrt()


def correlated(dim: int, correlation: float) -> Gaussian:
    """A Gaussian whose coordinates all have this correlation."""
    covariance = torch.full((dim, dim), correlation) + (1 - correlation) * torch.eye(dim)
    return Gaussian(torch.zeros(dim), covariance)


def _gaussian_draws(target: Gaussian, number: int, rng: torch.Generator) -> Tensor:
    return torch.randn(number, target.dim, generator=rng) @ torch.linalg.cholesky(target.covariance).mT


def modes() -> GaussianMixture:
    """Two Gaussians on the plane, ten standard deviations apart."""
    return GaussianMixture(torch.tensor([[-5.0, 0.0], [5.0, 0.0]]))


def _chain_draws(target: EightSchools, number: int, rng: torch.Generator) -> Tensor:
    """NUTS without centring, four chains from draws of N(0, I)."""
    inner = EightSchools(centred=False)
    start = torch.randn(4, inner.dim, generator=rng, dtype=torch.float64)
    settings: dict = {"warmup": max(20, number // 8), "target_accept": 0.95, "max_tree_depth": 8}
    draws, _ = nuts(inner.log_prob, start, **settings, draws=math.ceil(number / 4), seed=7, progress=False)
    return target.of_chains(draws.flatten(0, 1)[:number].float())


TARGETS: dict[str, tuple[Callable[[], Target], Callable[..., Tensor]]] = {
    "gaussian": (lambda: correlated(5, 0.5), _gaussian_draws),
    "gaussian_50": (lambda: correlated(50, 0.5), _gaussian_draws),
    "banana": (lambda: Banana(bend=1.0, width=0.5), lambda target, number, rng: target.sample(number, rng)),
    "funnel": (Funnel, lambda target, number, rng: target.sample(number, rng)),
    "student_t": (StudentT, lambda target, number, rng: target.sample(number, rng)),
    "modes": (modes, lambda target, number, rng: target.sample(number, rng)),
    "schools": (lambda: EightSchools(centred=False), _chain_draws),
    "schools_centred": (lambda: EightSchools(centred=True), _chain_draws),
    "sinusoid": (
        lambda: EnergyPotential("sinusoid"),
        lambda target, number, rng: PlaneGrid(target).sample(number, rng),
    ),
}
"""Name -> the target, and what draws from it."""

# ---------------------------------------------------------------- rows

GENERATOR = {"kind": "generator", "hidden": [32], "noise_scale": 1.0, "activation": "tanh"}
EXACT = elbo(GENERATOR | {"noise_scale_unit": "prior", "train_noise_scale": True}, 100)
NARROW = elbo({"kind": "mean_field", "scale": 0.5}, 100)
SVGD = parvi({"kind": "particles", "num": 200}, {"kind": "svgd"})
TRAINED: dict[str, dict] = {
    **{f"exact_density_{name}": EXACT | {"target": name} for name in TARGETS if name not in ("modes", "sinusoid")},
    "mean_field_gaussian": NARROW | {"target": "gaussian"},
    "mean_field_modes": NARROW | {"target": "modes"},
    "mean_field_modes_repeats": NARROW | {"target": "modes", "repeats": 4},
    "exact_density_gaussian_repeats": EXACT | {"target": "gaussian", "repeats": 3},
    "svgd_gaussian": SVGD | {"target": "gaussian"},
    "svgd_gaussian_50": SVGD | {"target": "gaussian_50"},
}
"""Trained here: specifications of sampler and objective, and a name of ``TARGETS``."""
EXPERIMENTS_BY_NAME = {
    one.name: one
    for module in (classification, energy, nuts_reference, one_dimensional_regression)
    for one in module.EXPERIMENTS
}
REPEATED = {
    "gpvi_classes": ("classification-4", "gpvi"),
    "gpvi_exact_jac_classes": ("classification-4", "gpvi_exact_jac"),
    "exact_density_classes": ("classification-4", "gpvi_exact_density"),
    "folded_sinusoid": ("energy-sinusoid", "gpvi_exact_jac"),
    "svgd_line": ("one-dimensional-regression", "svgd"),
}
"""Rows of other experiments, trained again as their configuration says."""
RECORDED = {
    "nuts_gaussian": ("nuts-reference", "nuts_gaussian"),
    "nuts_banana": ("nuts-reference", "nuts_banana"),
    "nuts_bnn": ("nuts-reference", "nuts_bnn"),
}
"""Rows of other experiments whose records hold the chains."""
DRAWS = {f"draws_{name}": name for name in ("gaussian", "gaussian_50", "banana", "funnel", "student_t", "modes")}
"""Draws of a target itself, checked many times: how often does chance alone raise an alarm?"""
METHODS = (*DRAWS, *RECORDED, *TRAINED, *REPEATED)

SIZES: dict[str, dict] = {
    "smoke": {"steps": 5, "draws": 200, "trials": 3},
    "quick": {"steps": 300, "draws": 1_000, "trials": 10},
    "paper": {"steps": 3_000, "draws": 2_000, "trials": 200},
}
CHECK_SEED = 31_337
"""Of the draws that are checked, of the bootstrap and of the draws that they are compared with."""
TRIAL_DRAWS = 1_000
THRESHOLDS = (
    *("K_HAT", "K_HAT_NO_MEAN", "EVEN", "TOTAL_VARIATION", "SIGNIFICANCE", "TOO_REGULAR", "WORTH", "NEAR", "FAR"),
    *("FOLDED", "R_HAT", "EFFECTIVE", "R_HAT_OLD", "BOOTSTRAPS", "DIRECTED", "DIRECTIONS"),
)
"""Constants of :mod:`gpvi_lib.trust_findings` that decide the verdicts."""


def config(method: str, profile: str) -> dict:
    """Everything but the seed; ``row`` holds the configuration of a row of another experiment."""
    size = SIZES[profile]
    thresholds = {name: getattr(trust_findings, name) for name in THRESHOLDS}
    others = {name: value for name, value in check_constants().items() if name not in THRESHOLDS}
    common = {"draws": size["draws"], "check_seed": CHECK_SEED, "thresholds": thresholds}
    common |= differing(CHECK_THEN, **others)
    if method in DRAWS:
        number = min(size["draws"], TRIAL_DRAWS)
        return common | {"kind": "draws", "target": DRAWS[method], "trials": size["trials"], "draws": number}
    if method in TRAINED:
        rates = {"steps": size["steps"], "lr": 1e-2, "final_lr": 1e-4, "history_every": size["steps"]}
        if "svgd" in method:
            rates |= {"lr": 1e-1, "final_lr": 1e-3}
        chosen = common | rates | {"kind": "trained", "repeats": 1} | TRAINED[method]
        return chosen | ({"draws_of": "each its own noise"} if chosen["repeats"] > 1 else {})
    experiment, row = (REPEATED | RECORDED)[method]
    kind = "repeated" if method in REPEATED else "recorded"
    found = EXPERIMENTS_BY_NAME[experiment].configuration(row, profile)
    if method == "svgd_line":  # ten particles, as at smoke, are too few to check
        found = with_change(found, {"sampler": {"num": one_dimensional_regression.SAMPLES}})
        common |= {"particles": "a set, not a chain"}
    return common | {"kind": kind, "experiment": experiment, "method": row, "profile": profile, "row": found}


def seeds(profile: str) -> tuple[int, ...]:
    """Starts, and the draws that are checked."""
    return (0, 1, 2) if profile == "paper" else (0,)


# ---------------------------------------------------------------- running


def largest_marginal_error(x: Float[Tensor, "n d"], exact: Float[Tensor, "m d"]) -> float:
    """``W_1`` between marginals in units of the exact one's standard deviation, where it is largest.

    Of 2,000 draws from the target itself it is 0.05 to 0.09, by the target's tails and dimension.
    """
    return float((wasserstein_1d(x.double(), exact.double()) / exact.double().std(0)).max())


def _sampler(config: dict, target: Target, seed: int, context: RunContext) -> Sampler:
    rng = torch.Generator(context.device).manual_seed(seed)
    scale = target.prior.scale if isinstance(target, Posterior) else 1.0
    sampler = build_sampler(config["sampler"], target.dim, scale, rng)
    if isinstance(sampler, MeanField) and config.get("target") == "modes":
        with torch.no_grad():  # another start for each repeat: this one decides which mode it finds
            sampler.mean.mul_(3)
    train(sampler, target, build_objective(config["objective"]), config, context, rng, lambda step, sampler: {})
    return sampler


def _run_draws(config: dict, context: RunContext) -> Outcome:
    """Check exact draws again and again; the shares of looks and don'ts, overall and of each check."""
    make, draw = TARGETS[config["target"]]
    target, rng = make(), torch.Generator().manual_seed(config["check_seed"] + context.seed)
    found = [
        findings(check(draw(target, config["draws"], rng), target, rng, progress=False))
        for _ in range(config["trials"])
    ]
    metrics = {"trials": float(len(found))}
    for name in (key for key in found[0] if key.endswith("verdict")):
        levels = torch.tensor([row[name] for row in found], dtype=torch.float64)
        metrics[f"{name}_look"] = float((levels == 1).double().mean())
        metrics[f"{name}_dont"] = float((levels == 2).double().mean())
    return Outcome(metrics)


def _run_trained(config: dict, context: RunContext) -> Outcome:
    make, draw = TARGETS[config["target"]]
    target = make()
    starts = [config["repeats"] * context.seed + i for i in range(config["repeats"])]
    alone = replace(context, checkpoint=None)  # seconds each, and several share a cell
    samplers = [_sampler(config, target, start, alone) for start in starts]
    report = check(samplers, target, _rng(config, context), num_samples=config["draws"], progress=False)
    exact = draw(target, config["draws"], torch.Generator().manual_seed(config["check_seed"] + 1))
    number = config["draws"] // len(samplers)  # of each its own noise: the same would count as a third of the draws
    draws = torch.cat([fixed_draws(sampler, number, EVALUATION_SEED + i) for i, sampler in enumerate(samplers)])
    return Outcome(findings(report) | {"error": largest_marginal_error(draws, exact)})


def _rng(config: dict, context: RunContext) -> torch.Generator:
    """Of the draws that are checked and of the bootstrap: other draws for another seed."""
    return torch.Generator().manual_seed(config["check_seed"] + context.seed)


def _run_repeated(config: dict, context: RunContext) -> Outcome:
    """Train a row of another experiment, check it, and measure its error as :data:`PROBLEMS` says."""
    row = config["row"]
    make, error_of = PROBLEMS[config["experiment"]]
    target = make(row, context)
    sampler = _sampler(row, target, context.seed, context)
    report = check(sampler, target, _rng(config, context), num_samples=config["draws"], progress=False)
    return Outcome(findings(report) | {"error": error_of(config, sampler, context)})


def _error_on_sinusoid(config: dict, sampler: Sampler, context: RunContext) -> float:
    make, draw = TARGETS["sinusoid"]
    exact = draw(make(), config["draws"], torch.Generator().manual_seed(config["check_seed"] + 1))
    return largest_marginal_error(fixed_draws(sampler, config["draws"]), exact)


def _error_on_classes(config: dict, sampler: Sampler, context: RunContext) -> float:
    """Total variation of the predictions from those of long chains."""
    judge = classification.Judge.of(config["row"], context.device)
    return judge.scores(fixed_draws(sampler, classification.SAMPLES))["total_variation"]


def _error_on_line(config: dict, sampler: Sampler, context: RunContext) -> float:
    """How far the standard deviation of the functions is from that of long chains, as a share of it."""
    target = one_dimensional_regression.posterior(dtype=torch.float32)
    f = one_dimensional_regression.functions(target, fixed_draws(sampler, config["draws"])).double()
    reference = one_dimensional_regression.read_reference("nuts", config["row"]["reference_profile"])
    return abs(one_dimensional_regression.function_scores(f, reference)["sd_ratio"] - 1)


PROBLEMS: dict[str, tuple[Callable[[dict, RunContext], Target], Callable[[dict, Sampler, RunContext], float]]] = {
    "energy-sinusoid": (lambda row, context: TARGETS["sinusoid"][0](), _error_on_sinusoid),
    "classification-4": (
        lambda row, context: classification_problem.posterior(row["problem"], context.device)[1],
        _error_on_classes,
    ),
    "one-dimensional-regression": (
        lambda row, context: one_dimensional_regression.posterior(dtype=torch.float32, device=context.device),
        _error_on_line,
    ),
}
"""Experiment -> its target, and the error of a sampler of it."""


def _run_recorded(config: dict, context: RunContext) -> Outcome:
    """Check the chains of another record."""
    experiment = EXPERIMENTS_BY_NAME[config["experiment"]]
    record = load_or_run(experiment.cell(config["method"], context.seed, config["profile"]))
    target = nuts_reference.posterior(config["row"]["posterior"], context.seed)
    chains = list(record.arrays()["trace"].double())
    return Outcome(findings(check(chains, target, _rng(config, context), progress=False)))


RUNS: dict[str, Callable[[dict, RunContext], Outcome]] = {
    "draws": _run_draws,
    "trained": _run_trained,
    "repeated": _run_repeated,
    "recorded": _run_recorded,
}


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Get samples, check them, and measure their error where it is known; on a CPU, which is as fast for so few."""
    return RUNS[config["kind"]](config, replace(context, device=torch.device("cpu")))


EXPERIMENTS = (
    Experiment(
        name="check-table",
        title="What check says of samples whose error is known: false alarms and misses",
        methods=METHODS,
        config=config,
        seeds=seeds,
        once=tuple(RECORDED),
        run=run,
    ),
)
