"""Table 2 of function-space POVI: the test error of MNIST with a network 784–400–400–10, 20 of 1,000 epochs.

As in the paper's code: 5 particles, minibatches of 100, Adam with 2e-4, mean-centred pixels, a prior seen at 2 points
with eigenvalues of at least 10, and the epoch with the smallest error on the last 10,000 training images. The prior is
the closed form on centred logits: drawing 30 networks of half a million weights in every step would take most of the
time. ``smoke`` and ``quick`` take scikit-learn's digits.
"""

from __future__ import annotations

import torch

from gpvi_lib.experiments.build import build_objective, train
from gpvi_lib.experiments.evaluation import best_row, history
from gpvi_lib.experiments.function_images import first_particles, images, log_probabilities, posterior, scores
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.samplers import Sampler

FUNCTION_SPACE = {
    "kind": "function_space", "direction": {"kind": "svgd"}, "prior_points": 2,
    "points": {"kind": "jitter", "number": 100, "scale": 0.1}, "prior": {"kind": "arc_cosine", "floor": 10.0},
}  # fmt: skip
SPECS: dict[str, dict] = {
    "f_svgd": {"objective": FUNCTION_SPACE},
    "svgd": {"objective": {"kind": "parvi", "direction": {"kind": "svgd"}}},
    "deep_ensemble": {"objective": {"kind": "likelihood"}},
}
SIZES: dict[str, dict] = {
    "smoke": {"dataset": "digits", "held_out": 200, "hidden": [20, 20], "epochs": 1, "lr": 1e-3},
    "quick": {"dataset": "digits", "held_out": 200, "hidden": [100, 100], "epochs": 30, "lr": 1e-3},
    "paper": {"dataset": "mnist", "held_out": 10_000, "hidden": [400, 400], "epochs": 20, "lr": 2e-4},
}
TRAINING = {"digits": 1_257, "mnist": 60_000}
PRINTED_EPOCHS, BATCH = 1_000, 100


def steps_in_an_epoch(profile: str) -> int:
    """Minibatches of the training images that are not held out."""
    size = SIZES[profile]
    return (TRAINING[size["dataset"]] - size["held_out"]) // BATCH


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    size, epoch = SIZES[profile], steps_in_an_epoch(profile)
    chosen = {key: size[key] for key in ("dataset", "held_out", "hidden", "lr")}
    training = {"steps": size["epochs"] * epoch, "batch_size": BATCH, "history_every": epoch}
    return chosen | training | {"centre": True, "sampler": {"kind": "particles", "num": 5}} | SPECS[method]


def seeds(profile: str) -> tuple[int, ...]:
    """Where the networks start, and the order of the images."""
    return (0, 1, 2) if profile == "paper" else (0,)


def data_sets(profile: str) -> tuple[str, ...]:
    """MNIST at ``paper`` alone."""
    return ("mnist",) if profile == "paper" else ()


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train; scores of the epoch that the held-out images choose, and of the last one."""
    data = images(config["dataset"], config["held_out"], config["centre"], context.device)
    target = posterior(data, config["hidden"], None)
    rng = torch.Generator(context.device).manual_seed(context.seed)
    sampler = first_particles(config, target, context, rng)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        held_out, _ = scores(log_probabilities(target, sampler, data.held_out), data.held_out_labels)
        error, nll = scores(log_probabilities(target, sampler, data.test_inputs), data.test_labels)
        return {"held_out_error": held_out, "error": error, "nll": nll}

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    chosen, last = best_row(result.history, "held_out_error"), result.history[-1]
    metrics = {
        "test_error_percent": chosen["error"],
        "test_nll": chosen["nll"],
        "chosen_step": float(chosen["step"]),
        "last_test_error_percent": last["error"],
        "last_test_nll": last["nll"],
    }
    return Outcome(metrics, history(result.history), result.seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper."""
    if profile != "paper":
        return f"{profile} size, digits"
    parts = [f"{SIZES[profile]['epochs']} of {PRINTED_EPOCHS:,} epochs"]
    prior = "prior N(0, 1/outputs) of a layer (printed: standard normal)"
    parts += {
        "f_svgd": ["closed-form prior on centred logits", prior],
        "svgd": [prior],
        "deep_ensemble": ["no prior"],
    }.get(method, [])
    return "; ".join(parts)


EXPERIMENTS = (
    Experiment(
        name="fpovi-mnist",
        title="Table 2 of function-space POVI: the error of MNIST, a few epochs",
        methods=tuple(SPECS),
        config=config,
        seeds=seeds,
        run=run,
        scores=(
            Score(
                "fpovi/table2/mnist", "test_error_percent", "lower", "test_error_percent",
                profiles=("paper",), epoch=steps_in_an_epoch("paper"), trials=10_000,
            ),
        ),
        deviations=deviations,
        rows={"deep_ensemble": ("deep_ensemble", "control")},
        data_sets=data_sets,
    ),
)  # fmt: skip
