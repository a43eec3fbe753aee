r"""Figures 3 and 4 of Wild VI: step sizes learned on some logistic regressions and used on unseen ones.

The rows of a data set are cut into problems; some train the step sizes, the others test them. Of every problem most
rows are for inference and the rest judge it, by the accuracy and the log-likelihood of 100 chains together. Beside
that stand the moments, which the paper does not look at, in units of the problem's own Laplace approximation
(:meth:`LogisticPosterior.laplace`); how far that is from the truth says the row ``nuts``.

A method is a row and a number of layers, ``svgd_t10``. Step sizes made by hand are the best of their candidates twice:
on the test problems themselves, as the paper has it, and on the training problems (``validated_...``).
``transfer`` has no layers: it is the Laplace approximation of a training problem.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import data
from gpvi_lib.directions import SVGD
from gpvi_lib.experiments.build import build_objective, train
from gpvi_lib.experiments.chains import diagnostics, nuts
from gpvi_lib.experiments.evaluation import differing, history
from gpvi_lib.experiments.printed import WILD_MASTERS, WILD_POWER
from gpvi_lib.fitting import fit
from gpvi_lib.hamiltonian import AcceptanceWarning
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.langevin import LangevinNetwork, share_outside
from gpvi_lib.objectives import ParVI
from gpvi_lib.optimizers import Adam
from gpvi_lib.samplers import Particles, standard_normal
from gpvi_lib.schedules import RULES, AdaptiveLangevin, curvature, mala, power_decay
from gpvi_lib.targets import LogisticPosterior, LogisticPrior, ProblemFamily
from gpvi_lib.wild import OverProblems

DEPTHS = (10, 50, 100)
SVGD_ROW = {"kind": "parvi", "direction": {"kind": "svgd"}}
KSD = {"kind": "stein_discrepancy"}
TRAINED: dict[str, dict] = {
    "svgd": {"objective": SVGD_ROW},
    "svgd_truncated": {"objective": SVGD_ROW, "network": {"truncate": True}},
    "svgd_scalar": {"objective": SVGD_ROW, "network": {"per_coordinate": False}},
    "svgd_without_noise": {"objective": SVGD_ROW, "network": {"noise": False}},
    "ksd_u": {"objective": KSD},
    "ksd_u_two_batches": {"objective": KSD | {"independent_batches": True}, "batch_size": 100},
}
BY_TEST = ("constant", "power", *RULES)
"""Whose steps the paper chooses by what it shows."""
BY_TRAINING = ("curvature", "mala")
"""Ours, whose step is a choice that must not see the test posteriors."""
HAND_MADE = (*BY_TEST, *BY_TRAINING)
REFERENCES = ("laplace", "transfer", "sgld_long", "svgd_particles", "nuts")
METHODS = (*(f"{row}_t{depth}" for row in (*TRAINED, *HAND_MADE) for depth in DEPTHS), *REFERENCES)
BOX = 1e3
CURVATURES = [2.0**-i for i in range(8)]
"""Candidates of the rule by curvature: multiples of its relative steps."""
DECAY, RATES = (0.5, 10.0, 0.55), (0.05, 1e-3)
TREES: dict[str, Any] = {"target_accept": 0.8, "max_tree_depth": 10}
"""Of long SGLD's steps; of SVGD on particles, first and last learning rate; of NUTS."""
THEN: dict[str, Any] = {
    "box": 1e3,
    "masters": [1e-6 * 2**j for j in range(30)],
    "power": {"log_scale": list(range(-6, 3)), "offset": list(range(10)), "exponent": [0.55]},
    "curvature": [2.0**-i for i in range(8)],
    "sgld_long": [0.5, 10.0, 0.55],
    "svgd_particles": [0.05, 1e-3],
    "nuts": {"target_accept": 0.8, "max_tree_depth": 10},
}
"""What the first records were evaluated with, see :func:`differing`."""
SIZES: dict[str, dict] = {
    "smoke": {
        "data": "digits-parity", "rows": 150, "judge": 30, "problems": 3, "train": 2,
        "chains": 10, "batch_size": 20, "steps": 2, "most": 2, "long": 20, "warmup": 10, "draws": 12, "nuts_chains": 2,
    },
    "quick": {
        "data": "digits-parity", "rows": 299, "judge": 59, "problems": 6, "train": 4,
        "chains": 50, "batch_size": 50, "steps": 60, "most": 12, "long": 1_000, "warmup": 50, "draws": 50,
        "nuts_chains": 2,
    },
    "paper": {
        "data": "covertype-subset", "rows": 10_000, "judge": 2_000, "problems": 9, "train": 7,
        "chains": 100, "batch_size": 100, "steps": 3_000, "most": 1_000, "long": 20_000, "warmup": 500, "draws": 1_000,
        "nuts_chains": 4,
    },
}  # fmt: skip


def split_method(method: str) -> tuple[str, int]:
    """Row and number of layers, 0 for a reference."""
    if method in REFERENCES:
        return method, 0
    row, depth = method.rsplit("_t", 1)
    return row, int(depth)


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    (row, depth), sizes = split_method(method), SIZES[profile]
    if profile == "smoke":
        depth = min(depth, 5)
    problem = {name: sizes[name] for name in ("data", "rows", "judge", "problems", "train")}
    shared = problem | {"row": row, "layers": depth, "chains": sizes["chains"], "rows_a_layer": sizes["batch_size"]}
    shared |= differing(THEN, box=BOX, **_decisive(row))
    if row in TRAINED:
        spec = TRAINED[row]
        network = {"step_size": 1e-4, "ceiling": 0.1} | spec.get("network", {})
        settings = {
            "objective": spec["objective"] | {"num_samples": sizes["chains"]},
            "network": network,
            "batch_size": min(spec["batch_size"], sizes["batch_size"]) if "batch_size" in spec else None,
        }
        steps = sizes["steps"]
        rates = {"steps": steps, "lr": 0.05, "final_lr": 0.002, "history_every": max(1, steps // 4)}
        return shared | settings | rates
    own = {
        "sgld_long": {"long": sizes["long"]},
        "svgd_particles": {"long": sizes["long"]},
        "nuts": {"warmup": sizes["warmup"], "draws": sizes["draws"], "nuts_chains": sizes["nuts_chains"]},
    }
    chosen = {"most": sizes["most"], "chosen_by": ["log_likelihood", "accuracy"]}
    return shared | own.get(row, chosen if row in HAND_MADE else {})


def _decisive(row: str) -> dict[str, Any]:
    """The constants that decide a row which is chosen, or long."""
    if row in HAND_MADE:
        own = {"power": WILD_POWER, "curvature": CURVATURES}
        return {row: own[row]} if row in own else {"masters": WILD_MASTERS}
    long: dict[str, Any] = {"sgld_long": list(DECAY), "svgd_particles": list(RATES), "nuts": TREES}
    return {row: long[row]} if row in long else {}


def seeds(profile: str) -> tuple[int, ...]:
    """Another order of the rows, hence other problems, and other noise."""
    return (0, 1, 2) if profile == "paper" else (0,)


def data_sets(profile: str) -> tuple[str, ...]:
    """Covertype at paper."""
    name = SIZES[profile]["data"]
    return () if name == "digits-parity" else (name,)


@dataclass(frozen=True)
class Problem:
    """One logistic regression: its posterior, and rows that judge it."""

    posterior: LogisticPosterior
    inputs: Float[Tensor, "m p"]
    labels: Float[Tensor, " m"]

    @torch.no_grad()
    def judge(self, z: Float[Tensor, "n d"]) -> dict[str, float]:
        """Accuracy and mean log-likelihood of the chains' mean prediction; a chain that is lost predicts 0 or 1."""
        p = self.posterior.predict(z.nan_to_num(0.0, 1e6, -1e6), self.inputs).clamp(1e-7, 1 - 1e-7)
        log_likelihood = torch.where(self.labels == 1, p, 1 - p).log().mean()
        accuracy = ((p > 0.5) == (self.labels == 1)).double().mean()
        return {"accuracy": float(accuracy), "log_likelihood": float(log_likelihood)}

    def double(self) -> LogisticPosterior:
        """The posterior in float64."""
        return LogisticPosterior(self.posterior.inputs.double(), self.posterior.labels)


def problems(config: dict, context: RunContext) -> tuple[list[Problem], list[Problem]]:
    """Training and test problems, with an intercept; the rows in an order of the seed's."""
    found = data.binary(config["data"])
    order = torch.randperm(len(found.labels), generator=torch.Generator().manual_seed(5_000 + context.seed))
    inputs = torch.cat([torch.ones(len(order), 1), found.inputs[order]], dim=1).to(context.device)
    labels = found.labels[order].to(context.device)
    made = []
    for rows in torch.arange(config["problems"] * config["rows"]).split(config["rows"]):
        infer, judge = rows[config["judge"] :], rows[: config["judge"]]
        made.append(Problem(LogisticPosterior(inputs[infer], labels[infer]), inputs[judge], labels[judge]))
    return made[: config["train"]], made[config["train"] :]


def fitted(problem: Problem) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """The problem's Laplace approximation, in float64."""
    return problem.posterior.laplace()


def moments(z: Float[Tensor, "n d"], problem: Problem) -> dict[str, float]:
    """Errors of mean and spread against the problem's Laplace approximation, in its standard deviations (rms)."""
    mode, covariance = fitted(problem)
    sd = covariance.diagonal().sqrt()
    z = z.double().nan_to_num(0.0, 1e6, -1e6)
    return {
        "mean_error": float(((z.mean(0) - mode) / sd).square().mean().sqrt()),
        "spread": float((z.std(0) / sd).median()),
    }


def averaged(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each number over problems."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def rng_of(context: RunContext, number: int) -> torch.Generator:
    """Randomness for one purpose; the test problems of a seed share it, starts and noise."""
    return torch.Generator(context.device).manual_seed(10_000 * number + context.seed)


def judged(draws: list[Tensor], test: list[Problem]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics of the draws ``(n, d)`` on each test problem, averaged, and their moments as arrays."""
    rows = []
    for z, problem in zip(draws, test, strict=True):
        rows.append(problem.judge(z) | moments(z, problem) | {"share_outside": share_outside(z, BOX)})
    arrays = {"means": torch.stack([z.mean(0) for z in draws]), "sds": torch.stack([z.std(0) for z in draws])}
    return averaged(rows), {name: array.cpu().float() for name, array in arrays.items()}


def network_on(config: dict, target, device: torch.device, **settings) -> LangevinNetwork:
    """Layers that start from the prior and draw their own rows."""
    q_0 = LogisticPrior(target.dim - 1, device=device)
    return LangevinNetwork(q_0, target, config["layers"], batch_size=config["rows_a_layer"], **settings, device=device)


def of_network(
    network: LangevinNetwork, config: dict, test: list[Problem], context: RunContext
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics of a network's chains on the test problems; accuracy and log-likelihood of every layer as arrays."""
    draws, curves = [], []
    for problem in test:
        with torch.no_grad():
            path = network.on(problem.posterior).path(config["chains"], rng_of(context, 2))
        draws.append(path[-1])
        curves.append([problem.judge(z) for z in path])
    metrics, arrays = judged(draws, test)
    layers = [averaged([curve[layer] for curve in curves]) for layer in range(len(curves[0]))]
    arrays |= {f"layer_{name}": torch.tensor([row[name] for row in layers]) for name in layers[0]}
    rows = config["rows_a_layer"] * config["layers"]
    return metrics | {"full_gradients": rows / test[0].posterior.num_data}, arrays


def run_trained(config: dict, context: RunContext, training: list[Problem], test: list[Problem]) -> Outcome:
    """Train step sizes over the training problems; judge them on the test problems."""
    family = ProblemFamily([problem.posterior for problem in training])
    network = network_on(config, family, context.device, **config["network"])
    objective = OverProblems(build_objective(config["objective"]))

    def now(step: int, network: LangevinNetwork) -> dict[str, float]:
        rows = []
        for problem in test:
            rows.append(problem.judge(network.on(problem.posterior).sample(config["chains"], rng_of(context, 3))))
        return averaged(rows)

    result = train(network, family, objective, config, context, rng_of(context, 1), now)
    metrics, arrays = of_network(network, config, test, context)
    return Outcome(
        metrics, arrays | history(result.history) | {"steps": network.step_size.detach().cpu()}, result.seconds
    )


def candidates(config: dict, training: list[Problem]) -> list[tuple[float, Tensor | float]]:
    """The first number of each candidate, and its schedule or master step size."""
    row, layers = config["row"], config["layers"]
    found: list[tuple[float, Tensor | float]]
    if row == "power":
        scales, offsets, exponents = (WILD_POWER[name] for name in ("log_scale", "offset", "exponent"))
        grid = itertools.product(scales, offsets, exponents)
        found = [(float(a), power_decay(layers, 10.0**a, b, gamma)) for a, b, gamma in grid]
    elif row == "curvature":
        mode, _ = fitted(training[0])
        relative = curvature(training[0].double(), mode).cpu()
        found = [(c, c * relative.expand(layers, -1)) for c in CURVATURES]
    else:
        found = [(step, step) for step in WILD_MASTERS]
    return found[:: math.ceil(len(found) / config["most"])]


def run_hand_made(config: dict, context: RunContext, training: list[Problem], test: list[Problem]) -> Outcome:
    """The best candidate on the test problems by each measure, and by log-likelihood on as many training problems."""
    tried = candidates(config, training)
    main, *others = config["chosen_by"]

    def draw(step, problem: Problem, number: int) -> Tensor:
        row, target = config["row"], problem.posterior
        if row == "mala":
            return _mala(config, target, float(step), rng_of(context, number))
        if row in RULES:
            q_0, size = LogisticPrior(target.dim - 1, device=context.device), config["rows_a_layer"]
            settings: dict = {"batch_size": size, "device": context.device}
            network: LangevinNetwork = AdaptiveLangevin(row, q_0, target, config["layers"], step, **settings)
        else:
            network = network_on(config, target, context.device, step_size=step)
        return network.sample(config["chains"], rng_of(context, number))

    def worth(among: list[Problem]) -> list[dict[str, float]]:
        return [averaged([problem.judge(draw(step, problem, 4)) for problem in among]) for _, step in tried]

    def best(scores: list[dict[str, float]], measure: str) -> tuple[float, Tensor | float]:
        return tried[max(range(len(tried)), key=lambda i: scores[i][measure])]

    on_test, on_training = worth(test), worth(training[: len(test)])
    chosen = {"": best(on_test, main)} | {f"by_{measure}_": best(on_test, measure) for measure in others}
    chosen["validated_"] = best(on_training, main)
    metrics: dict[str, float] = {}
    arrays: dict[str, Tensor] = {}
    for prefix, (number, step) in chosen.items():
        found, kept = judged([draw(step, problem, 2) for problem in test], test)
        metrics |= {prefix + name: value for name, value in found.items()} | {f"{prefix}candidate": number}
        arrays |= {prefix + name: value for name, value in kept.items()}
    full = test[0].posterior.num_data
    rows = full if config["row"] == "mala" else config["rows_a_layer"]
    return Outcome(metrics | {"full_gradients": rows * config["layers"] / full}, arrays)


def _mala(config: dict, target: LogisticPosterior, step: float, rng: torch.Generator) -> Tensor:
    """As many proposals as there are layers, each of one gradient on all data."""
    q_0, layers = LogisticPrior(target.dim - 1, device=rng.device), config["layers"]
    settings: dict = {"num_steps": layers, "burn_in": layers - 1, "rng": rng, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcceptanceWarning)  # of candidates
        return mala(target.log_prob, q_0.sample(config["chains"], rng), step_size=step, **settings).samples[-1]


def run_reference(config: dict, context: RunContext, training: list[Problem], test: list[Problem]) -> Outcome:
    """Draws of a reference on each test problem."""
    row, draws = config["row"], []
    metrics: dict[str, float] = {}
    seconds: float | None = None
    for number, problem in enumerate(test):
        if row == "nuts":
            z, found, taken = _nuts(config, problem, context, number)
            seconds = (seconds or 0.0) + taken
            metrics |= {name: max(value, metrics.get(name, value)) for name, value in found.items()}
        elif row in ("laplace", "transfer"):
            mode, covariance = fitted(problem if row == "laplace" else training[0])
            noise = standard_normal((config["chains"], len(mode)), rng_of(context, 2), mode)
            z = (mode + noise @ torch.linalg.cholesky(covariance).mT).float()
        else:
            z = _converged(config, problem, context)
        draws.append(z)
    found, arrays = judged(draws, test)
    return Outcome(found | metrics, arrays, seconds)


def _converged(config: dict, problem: Problem, context: RunContext) -> Tensor:
    """A long run of SGLD with steps by curvature that fall, or SVGD on particles."""
    target, rng = problem.posterior, rng_of(context, 2)
    q_0 = LogisticPrior(target.dim - 1, device=context.device)
    if config["row"] == "svgd_particles":
        particles = Particles(q_0.sample(config["chains"], rng))
        size = config["rows_a_layer"]
        arguments: dict = {"steps": config["long"], "batch_size": size, "rng": rng, "label": context.label}
        fit(particles, target, ParVI(SVGD()), optimizer=Adam(*RATES), progress=context.progress, **arguments)
        return particles.sample(None, rng)
    mode, _ = fitted(problem)
    relative = curvature(problem.double(), mode).float()
    z = q_0.sample(config["chains"], rng)
    for step in power_decay(config["long"], *DECAY, dtype=torch.float32).to(z):
        rows = torch.randint(target.num_data, (config["rows_a_layer"],), generator=rng, device=rng.device)
        noise = standard_normal(z.shape, rng, z)
        z = z + step * relative * target.score(z, rows) + (2 * step * relative).sqrt() * noise
    return z


def _nuts(config: dict, problem: Problem, context: RunContext, number: int) -> tuple[Tensor, dict[str, float], float]:
    """NUTS in coordinates in which the Laplace approximation is standard normal.

    Returns:
        Draws; R-hat of the points' coordinates, divergences and gradients; seconds, over interruptions.
    """
    posterior, (mode, covariance) = problem.double(), fitted(problem)
    factor = torch.linalg.cholesky(covariance)
    checkpoint = context.checkpoint and context.checkpoint.with_suffix(f".{number}.pt")
    start = standard_normal((config["nuts_chains"], posterior.dim), rng_of(context, 2), mode)
    draws, info = nuts(
        lambda u: posterior.log_prob(mode + u @ factor.mT),
        start,
        warmup=config["warmup"],
        draws=config["draws"],
        **TREES,
        seed=10 * context.seed + number,
        checkpoint=checkpoint,
        label=context.label,
        progress=context.progress,
    )
    z = mode + draws @ factor.mT
    rhat = float(diagnostics(z)["rhat"].max())
    metrics = {"rhat": rhat, "divergences": info["divergences"], "gradients": info["gradients"]}
    return z.flatten(0, 1).float(), metrics, info["seconds"]


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train, choose or sample on the problems of this seed."""
    training, test = problems(config, context)
    if config["row"] in TRAINED:
        return run_trained(config, context, training, test)
    runner = run_hand_made if config["row"] in HAND_MADE else run_reference
    return runner(config, context, training, test)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper, or is not printed there."""
    found = config(method, profile)
    parts = [f"{found['problems']} problems of {found['rows']:,} rows of {found['data']}"]
    if found["row"] in TRAINED:
        parts.append(f"{found['steps']:,} steps")
    if found["row"] in BY_TRAINING:
        parts.append("step chosen on the training posteriors")
    return "; ".join([*parts, "start, minibatch, optimiser and split are ours (not printed)"])


PRINTED, VALIDATED = (tuple(m for m in METHODS if split_method(m)[0] in rows) for rows in (BY_TEST, BY_TRAINING))
OTHERS = tuple(m for m in METHODS if m not in (*PRINTED, *VALIDATED))
EXPERIMENTS = (
    Experiment(
        name="wild-logistic",
        title="Figures 3 and 4 of Wild VI: step sizes learned over logistic regressions, on unseen ones",
        methods=METHODS,
        config=config,
        seeds=seeds,
        run=run,
        scores=tuple(
            Score("wild-vi/figure3", metric, "higher", prefix + metric, methods=methods)
            for metric, own in (("accuracy", "by_accuracy_"), ("log_likelihood", ""))
            for prefix, methods in ((own, PRINTED), ("validated_", VALIDATED), ("", OTHERS))
        ),
        deviations=deviations,
        rows={m: (m, "best") for m in METHODS if split_method(m)[0] not in ("svgd", "ksd_u", *BY_TEST)},
        data_sets=data_sets,
    ),
)
