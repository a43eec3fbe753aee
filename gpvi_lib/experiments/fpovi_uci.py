r"""Tables 4 to 8 of function-space POVI: regression on nine UCI sets with fixed splits, one experiment for each set.

``svgd`` to ``f_pi_sgld`` are the paper's model: one hidden layer of 50 ReLU units (protein: 100 for 50), inputs
standardised and divided by √p, the prior ``N(0, 1 / outputs)`` of its code, 20 particles, Adam with 0.004.
Function-space methods see 100 jittered points beside the minibatch and a prior of the moments of 40 draws at 4 points,
and fit σ under an inverse-gamma density; weight-space methods infer log σ with the weights, under ``N(log 0.5, 1)``.

``f_svgd_closed_form`` has the target of the experiment ``uci-regression``: prior ``N(0, 1 / fan-in)``, log σ inferred;
and the closed-form prior at up to 200 points, half of them from a kernel density estimate. It follows the posterior of
a Gaussian process with the network's covariance, which predicts worse than the network (notebook 21). ``_4`` and
``_20`` have so many points of the prior, and ``gp`` is that process itself.

``deep_ensemble`` is the printed rows' 20 networks, start, steps and rate without repulsion and without prior: each by
maximum likelihood of its weights and its σ. Between it and ``svgd`` are ``map_ensemble``, with the prior alone, and
``svgd_without_prior``, with the kernel alone, which mixes gradients and repels; between it and ``f_svgd`` likewise
``f_map_ensemble`` and ``f_svgd_without_prior``, whose σ keeps its inverse-gamma density.

The seed is the split. ``-10-10`` are the two-layer networks of Tables 7 and 8, at the last epoch. ``-50-50`` are those
of Table 6, where the paper chooses the epoch by validation: a tenth of the training part, drawn with the split's seed,
is held out. The rest trains and scales the data, in as many steps as all of it would. The scores are those of the step
with the best likelihood of held-out rows, among the looks after the start, ``last_rmse`` and ``last_nll`` those of the
last one. ``smoke`` and ``quick`` take the embedded diabetes set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from gpvi_lib.data import FEWER_SPLITS, UCI_SPLITS, RegressionData, regression
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.evaluation import best_row, history
from gpvi_lib.experiments.function_models import REPULSION_OFF, conditioned, layer_scales
from gpvi_lib.experiments.uci_problem import ROWS, Split, batches, prediction_scores
from gpvi_lib.function_priors import ArcCosine
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.samplers import Particles, Sampler
from gpvi_lib.targets import LearnedNoise, NormalLikelihood, NormalMixture, NormalPrior, Posterior

SPLITS = {"kin8nm": 5, "naval": 5, "power": 5, "protein": 1}
"""Of the larger sets, for which a run takes a quarter of an hour and more."""
SHAPES: dict[str, tuple[int, ...]] = {"": (50,), "-50-50": (50, 50), "-10-10": (10, 10)}
PARTICLES = {"kind": "particles", "num": 20}
DIRECTIONS = {name: {"kind": name} for name in ("svgd", "w_sgld", "pi_sgld")}
PRINTED = {
    "kind": "function_space",
    "points": {"kind": "jitter", "number": 100, "scale": 1.0},
    "prior": {"kind": "moment_matched", "draws": 40, "floor": 1e-3},
    "prior_points": 4,
    "noise_prior": {"kind": "inverse_gamma", "shape": 1.0, "scale": 0.1},
}
CLOSED_FORM = {
    "kind": "function_space",
    "points": {"kind": "kde", "number": 100},
    "prior": {"kind": "arc_cosine", "floor": 1e-3},
    "prior_points": 200,
}
RELEASED = {"scale": "fan_out", "divide_inputs": True, "noise_median": 0.5}
OURS = {"scale": "fan_in", "divide_inputs": False, "noise_median": 0.3}
SPECS: dict[str, dict] = {
    **{name: RELEASED | {"objective": {"kind": "parvi", "direction": spec}} for name, spec in DIRECTIONS.items()},
    **{f"f_{name}": RELEASED | {"objective": PRINTED | {"direction": spec}} for name, spec in DIRECTIONS.items()},
    "f_svgd_closed_form": OURS | {"objective": CLOSED_FORM | {"direction": DIRECTIONS["svgd"]}, "final_lr": 1e-5},
    "deep_ensemble": RELEASED | {"objective": {"kind": "likelihood"}},
}
CONTROLS = {
    f"f_svgd_closed_form_{points}": OURS
    | {"objective": CLOSED_FORM | {"direction": DIRECTIONS["svgd"], "prior_points": points}, "final_lr": 1e-5}
    for points in (4, 20)
} | {"gp": OURS | {"noises": [round(0.01 * 1.25**i, 4) for i in range(20)]}}
"""The same with the prior at fewer points, and the exact process that all points together prescribe."""
CONTROLLED = ("boston", "yacht")
FLAT = 1e6
"""Times the prior's scale: a prior without a slope wherever training goes."""
TAKEN_APART: dict[str, dict] = {
    "map_ensemble": RELEASED | {"objective": {"kind": "parvi", "direction": REPULSION_OFF}},
    "svgd_without_prior": SPECS["svgd"] | {"prior_factor": FLAT},
    "f_map_ensemble": RELEASED | {"objective": PRINTED | {"direction": REPULSION_OFF}},
    "f_svgd_without_prior": RELEASED
    | {"objective": PRINTED | {"direction": DIRECTIONS["svgd"], "prior": None, "prior_points": None}},
}
"""SVGD and f-SVGD with only one of their two parts: the prior without the kernel, the kernel without the prior."""
TAKEN_APART_ON = ("boston", "concrete", "energy", "yacht")
SPECS |= CONTROLS | TAKEN_APART
SHAPED = {"-50-50": ("f_svgd",), "-10-10": ("svgd", "f_svgd")}
"""Methods of the two-layer networks: those of their tables."""
VALIDATION = {SHAPES["-50-50"]: 0.1}
"""Share of the training part that is held out to choose the step by."""
SIZES: dict[str, dict] = {
    "smoke": {"steps": 10, "evaluations": 2, "seeds": 1},
    "quick": {"steps": 500, "evaluations": 10, "seeds": 3},
    "paper": {"steps": None, "evaluations": 20, "seeds": None},
}


def epochs_and_batch(rows: int) -> tuple[int, int]:
    """What the paper prints for a set of so many rows."""
    return (500, 100) if rows < 1_000 else (3_000, 1_000)


def steps_in_an_epoch(name: str) -> int:
    """Minibatches of the training part, of the printed size."""
    return batches(name, epochs_and_batch(ROWS[name])[1])


def config(name: str, hidden: Sequence[int], method: str, profile: str) -> dict:
    """Everything but the seed."""
    size, (epochs, batch) = SIZES[profile], epochs_and_batch(ROWS[name])
    data = name if profile == "paper" else "diabetes"
    if method == "gp":
        return {"set": data, "hidden": list(hidden)} | SPECS[method]
    steps = size["steps"] or epochs * steps_in_an_epoch(name)
    wider = {50: 100} if name == "protein" else {}
    shared: dict = {"set": data, "hidden": [wider.get(width, width) for width in hidden], "sampler": PARTICLES}
    if tuple(hidden) in VALIDATION:
        shared["validation"] = VALIDATION[tuple(hidden)]
    training = {"steps": steps, "lr": 4e-3, "final_lr": None, "batch_size": batch, "start": "start"}
    return shared | training | SPECS[method] | {"history_every": max(1, steps // size["evaluations"])}


def seeds(name: str, profile: str) -> tuple[int, ...]:
    """The splits."""
    number = SIZES[profile]["seeds"] or SPLITS.get(name, len(FEWER_SPLITS.get(name, UCI_SPLITS)))
    return tuple(range(number))


def data_sets(name: str, profile: str) -> tuple[str, ...]:
    """The set, at ``paper``."""
    return (name,) if profile == "paper" else ()


class Problem(Split):
    """One split of one set with the paper's network, or with ours."""

    def __init__(self, data: RegressionData, config: dict, device: torch.device) -> None:
        scaled, _, _ = data.standardised()
        columns = data.inputs.shape[1]
        divisor = columns**0.5 if config["divide_inputs"] else 1.0
        inputs, targets, test_inputs = (
            part.to(device, torch.float32)
            for part in (scaled.inputs / divisor, scaled.targets, scaled.test_inputs / divisor)
        )
        network = FlatModule(LearnedNoise(mlp([columns, *config["hidden"], 1]), config["noise_median"]))
        scale = config.get("prior_factor", 1.0) * layer_scales(network, config["scale"], torch.float32)
        prior = NormalPrior(scale.to(device))
        super().__init__(Posterior(network, NormalLikelihood(), inputs, targets, prior), test_inputs, data)


def exact_process(problem: Problem, noises: Sequence[float]) -> tuple[NormalMixture, float]:
    """What the Gaussian process with the network's covariance predicts, and its σ: the ``noises``' most likely one."""
    target = problem.posterior
    x, y, at = target.inputs.double(), target.targets.double().flatten(), problem.inputs.double()
    joint = ArcCosine().given(target).covariance(torch.cat([x, at]))
    noise, (mean, covariance, _) = max(((s, conditioned(joint, y, s)) for s in noises), key=lambda one: one[1][2])
    predictive = NormalMixture(mean[None], (covariance.diagonal() + noise**2).sqrt()[None])
    return predictive.rescaled(problem.shift, problem.factor), noise


def hold_out(data: RegressionData, share: float, seed: int) -> tuple[RegressionData, RegressionData]:
    """The data with a random share of the training part left out, and what is left with that share as its test part."""
    inner = RegressionData.random_split(data.inputs, data.targets, share, seed)
    return RegressionData(inner.inputs, inner.targets, data.test_inputs, data.test_targets), inner


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train on one split; scores of the last step, or of that which held-out rows choose; ``gp`` on the CPU."""
    data = regression(config["set"], context.seed)
    held_out = None
    if "validation" in config:
        data, inner = hold_out(data, config["validation"], context.seed)
        held_out = Problem(inner, config, context.device)
    problem = Problem(data, config, torch.device("cpu") if method == "gp" else context.device)
    target = problem.posterior
    if method == "gp":
        predictive, noise = exact_process(problem, config["noises"])
        metrics = prediction_scores(predictive, problem.targets) | {"noise": noise * float(problem.factor)}
        return Outcome(metrics, {"pit": predictive.cdf(problem.targets).float()})
    rng = torch.Generator(context.device).manual_seed(context.seed)
    start = layer_scales(target.network, config["start"], torch.float32, other=0.0)  # σ starts at its median
    sampler = build_sampler(config["sampler"], target.dim, start.to(context.device), rng)
    assert isinstance(sampler, Particles)

    def scores(sampler: Sampler, at: Problem) -> dict[str, float]:
        return prediction_scores(at.predictive(sampler.sample(None, rng)), at.targets)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        found = scores(sampler, problem)
        if held_out is not None:
            return {"held_out_nll": scores(sampler, held_out)["nll"]} | found
        return {key: found[key] for key in ("rmse", "nll")}

    settings = config | {"batch_size": min(config["batch_size"], target.num_data)}
    result = train(sampler, target, build_objective(config["objective"]), settings, context, rng, measure)
    if held_out is not None:
        kept = history(result.history, ("step", "held_out_nll", "rmse", "nll"))
        return Outcome(_of_best_step(result.history), kept, result.seconds)
    predictive = problem.predictive(sampler.sample(None, rng))
    metrics = prediction_scores(predictive, problem.targets)
    return Outcome(metrics, history(result.history) | {"pit": predictive.cdf(problem.targets).float()}, result.seconds)


def _of_best_step(rows: list[dict[str, float]]) -> dict[str, float]:
    """Scores of the step that held-out rows choose, which step, and two scores of the last one."""
    chosen, last = best_row(rows, "held_out_nll"), rows[-1]
    found = {key: value for key, value in chosen.items() if key not in ("step", "held_out_nll")}
    return found | {"chosen_step": float(chosen["step"]), "last_rmse": last["rmse"], "last_nll": last["nll"]}


WITHOUT = {
    "deep_ensemble": "neither repulsion nor prior",
    "map_ensemble": "no kernel",
    "f_map_ensemble": "no kernel",
    "svgd_without_prior": "no prior",
    "f_svgd_without_prior": "no prior of functions",
}


def deviations(name: str, shape: str, method: str, profile: str) -> str:
    """What differs from the paper."""
    if profile != "paper":
        return f"{profile} size, diabetes data"
    number = len(seeds(name, profile))
    parts = [f"{number} fixed split{'s' * (number > 1)}"]
    if SHAPES[shape] in VALIDATION:
        parts.append("a tenth of the training part held out")
    if not is_ours(method) and method != "deep_ensemble":
        parts.append("prior N(0, 1/outputs) of a layer, as in the authors' code")
    if SPECS[method].get("objective", {}).get("points") == PRINTED["points"]:
        parts.append("points are jittered data, as there")
    if method == "gp":
        parts.append("exact posterior of the closed-form prior, σ by evidence")
    if method in WITHOUT:
        parts.append(WITHOUT[method])
    if SPECS[method].get("objective", {}).get("kind") == "parvi" and "prior_factor" not in SPECS[method]:
        parts.append("σ inferred under a log-normal prior (printed: inverse gamma)")
    if is_ours(method) and method != "gp":
        points = SPECS[method]["objective"]["prior_points"]
        parts.append(f"closed-form prior at up to {points} points, σ inferred, prior N(0, 1/fan-in)")
        rates = config(name, SHAPES[shape], method, profile)
        parts.append(f"rate {rates['lr']:g} falling to {rates['final_lr']:g}, inputs not divided by √p")
    return "; ".join(parts)


def is_ours(method: str) -> bool:
    """Whether a row is none that the paper has: the prior in closed form, and the exact process."""
    return method == "gp" or method.startswith("f_svgd_closed_form")


TABLES: dict[str, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    "": (("table4", ("rmse",), "all"), ("table5", ("nll",), "all")),
    "-50-50": (("table6", ("rmse", "nll"), "f_svgd"),),
    "-10-10": (("table7", ("rmse", "nll"), "f_svgd"), ("table8", ("rmse", "nll"), "all")),
}
"""Tables of a shape, their metrics, and whose rows they have."""
NOT_IN = {
    "table4": ("energy",), "table5": ("energy",), "table6": ("energy", "naval"), "table7": (),
    "table8": ("concrete", "energy", "naval", "winered", "yacht"),
}  # fmt: skip


def _methods(name: str, shape: str) -> tuple[str, ...]:
    """Those of a set's experiment."""
    extra = {method for method in CONTROLS if name in CONTROLLED} | {m for m in TAKEN_APART if name in TAKEN_APART_ON}
    rest = CONTROLS.keys() | TAKEN_APART.keys()
    return SHAPED[shape] if shape else tuple(method for method in SPECS if method not in rest or method in extra)


def _scores(name: str, shape: str) -> tuple[Score, ...]:
    return tuple(
        Score(
            f"fpovi/{table}/{name}",
            f"test_{metric}",
            "lower",
            metric,
            methods=tuple(m for m in _methods(name, shape) if m not in TAKEN_APART) if whose == "all" else (whose,),
            profiles=("paper",),
            epoch=steps_in_an_epoch(name),
        )
        for table, metrics, whose in TABLES[shape]
        if name not in NOT_IN[table]
        for metric in metrics
    )


def _of(name: str, shape: str) -> Experiment:
    hidden = SHAPES[shape]
    units = "–".join(map(str, hidden))
    return Experiment(
        name=f"fpovi-uci-{name}{shape}",
        title=f"Tables 4 to 8 of function-space POVI: {name}, {units} hidden units",
        methods=_methods(name, shape),
        config=partial(config, name, hidden),
        seeds=partial(seeds, name),
        run=run,
        scores=_scores(name, shape),
        deviations=partial(deviations, name, shape),
        rows={method: (method, "best") for method in _methods(name, shape) if is_ours(method)}
        | {method: (method, "control") for method in _methods(name, shape) if method == "deep_ensemble"},
        data_sets=partial(data_sets, name),
    )


EXPERIMENTS = tuple(_of(name, shape) for shape in SHAPES for name in ROWS if not shape or _scores(name, shape))
"""One for each set, and of the two-layer networks for each that a table prints."""
