r"""What λ does to the generator: on the four-class problem of section 4.3, at many λ.

Each method trains the generator ``f(z) = g(z_{:k}) + λ ⊙ z``, and is measured by the first block
``A + Λ_1`` of its Jacobian, whose determinant must not change sign if ``f`` is to be injective.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.classification_problem import CLASS_VARIANCE, HIDDEN, ClassificationData, problem
from gpvi_lib.experiments.evaluation import EVALUATION_SEED, differing, generator_of, history
from gpvi_lib.experiments.heads import head_lipschitz_bound, head_statistics, leave_out_head
from gpvi_lib.experiments.printed import CLASSIFICATION_STEPS
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.metrics import accuracy, predictive
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.samplers import Generator, Sampler
from gpvi_lib.targets import ClassificationPosterior

POSTERIOR_SAMPLES = 100
"""Networks in a posterior predictive distribution (Table 8)."""


def posterior(config: dict, data: ClassificationData) -> ClassificationPosterior:
    """The posterior over the weights of the classifier, with prior N(0, I)."""
    network = FlatModule(mlp([2, *HIDDEN, config["num_classes"]]))
    return ClassificationPosterior(network, data.inputs, data.labels)


@torch.no_grad()
def fit_statistics(
    sampler: Sampler, target: ClassificationPosterior, data: ClassificationData, num_samples: int
) -> dict[str, float]:
    """Test accuracy in percent, of the predictive distribution and of single networks, and the ELBO in nats.

    The ELBO, ``E_q[log p(D, x) - log q(x)]`` with the standard error ``elbo_se`` of its Monte Carlo estimate, takes
    ``log q`` from the change of variables: exact for an injective ``f``; otherwise the ELBO may be too large.
    """
    x, log_q = sampler.rsample_with_log_prob(num_samples, generator_of(sampler, EVALUATION_SEED))
    log_likelihood = target.log_likelihood(x)
    elbo = log_likelihood + target.prior.log_prob(x) - log_q
    logits = target.network(x, data.test_inputs)
    return {
        "accuracy_percent": 100 * accuracy(predictive(logits[:POSTERIOR_SAMPLES]), data.test_labels),
        "single_accuracy_percent": 100 * float((logits.argmax(-1) == data.test_labels).double().mean()),
        "elbo": float(elbo.mean()),
        "elbo_se": float(elbo.std() / num_samples**0.5),
        "log_likelihood": float(log_likelihood.mean()),
    }


@torch.no_grad()
def injectivity_statistics(generator: Generator, num_points: int) -> tuple[dict[str, float], dict[str, Tensor]]:
    """:func:`head_statistics` on a fixed set of ``z``, summarised, and as they are.

    ``symmetric_min`` is the smallest value over the set; minus it, where it is negative, is how much λ falls short.
    """
    z = generator.noise(num_points, generator_of(generator, EVALUATION_SEED))
    each, noise_scale = head_statistics(generator, z), generator.noise_scale
    assert noise_scale is not None, "λ is part of what is summarised"
    summary = {
        "negative_share": float((each["sign"] < 0).double().mean()),
        "positive_definite_share": float((each["smallest_symmetric"] > 0).double().mean()),
        "smallest_real_median": float(each["smallest_real"].median()),
        "smallest_real_min": float(each["smallest_real"].min()),
        "symmetric_median": float(each["smallest_symmetric"].median()),
        "symmetric_min": float(each["smallest_symmetric"].min()),
        "preconditioned_share": float((each["smallest_preconditioned"] > 0).double().mean()),
        "preconditioned_min": float(each["smallest_preconditioned"].min()),
        "condition_median": float(each["condition"].median()),
        "condition_90": float(each["condition"].quantile(0.9)),
        "lipschitz_bound": head_lipschitz_bound(generator),
        "lambda_mean": float(noise_scale.mean()),
        "lambda_head_min": float(noise_scale[: generator.noise_dim].min()),
    }
    return summary, each


LAMBDAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
GENERATOR = {"kind": "generator", "noise_dim": 64, "hidden": [64, 64], "output_scale": "prior"}
TRAINED = GENERATOR | {"noise_scale": 0.3, "noise_scale_unit": "prior", "train_noise_scale": True}
BLOCK = {"kind": "gpvi", "num_samples": 32, "inverse": {"kind": "block"}}
ELBO = {"kind": "elbo", "num_samples": 32}
SHOWN_POINTS = 8
"""Points z whose eigenvalues of A + Λ_1 a record keeps."""
THEN = {"seed": 54_321, "posterior_samples": 100, "shown_points": 8, "hidden": [10, 10]}
"""What the first records were made and evaluated with, see :func:`differing`."""
SIZES = {
    "smoke": {"steps": 3, "points": 16, "evaluations": 1, "seeds": 1},
    "quick": {"steps": 300, "points": 100, "evaluations": 3, "seeds": 1},
    "paper": {"steps": 3_000, "points": 500, "evaluations": 10, "seeds": 3},
}


def method_at(objective: str, noise_scale: float) -> str:
    """The method that trains ``objective``, ``"gpvi"`` or ``"exact_density"``, at a fixed λ."""
    return f"{objective}_lambda_{noise_scale:g}".replace(".", "_")


def _specs() -> dict[str, dict]:
    specs = {}
    for name, objective in (("gpvi", BLOCK), ("exact_density", ELBO)):
        for value in LAMBDAS:
            specs[method_at(name, value)] = {
                "sampler": GENERATOR | {"noise_scale": value},
                "objective": objective,
            }
    return specs | {
        "gpvi_trained": {"sampler": TRAINED, "objective": BLOCK},
        "gpvi_exact_density": {"sampler": TRAINED, "objective": ELBO},
        "gpvi_exact_density_no_head": {"sampler": TRAINED, "objective": ELBO, "leave_out_head": True},
        "mf_vi": {"sampler": {"kind": "mean_field", "scale": 0.3}, "objective": ELBO},
    }


SPECS = _specs()


def config(method: str, profile: str) -> dict:
    """Everything but the seed, for ``injectivity``."""
    size = SIZES[profile]
    steps = size["steps"]
    evaluation = {"posterior_samples": POSTERIOR_SAMPLES, "shown_points": SHOWN_POINTS}
    return {
        "num_classes": 4,
        "num_train": 100,
        "num_test": 200,
        "class_variance": CLASS_VARIANCE,
        "batch_size": None,  # all 100 points, the paper's batch
        "steps": steps,
        "lr": 1e-3,
        "history_every": max(1, steps // size["evaluations"]),
        "evaluation_points": size["points"],
        "leave_out_head": False,
        **SPECS[method],
        **differing(THEN, seed=EVALUATION_SEED, hidden=list(HIDDEN), **evaluation),
    }


def seeds(profile: str) -> tuple[int, ...]:
    """Each seed draws its own data and its own start, the same for all methods."""
    return tuple(range(SIZES[profile]["seeds"]))


def _eigenvalues(generator: Generator) -> Tensor:
    """Eigenvalues of ``A + Λ_1`` at a few points, real and imaginary parts ``(points, k, 2)``."""
    z = generator.noise(SHOWN_POINTS, generator_of(generator, EVALUATION_SEED))
    return torch.view_as_real(torch.linalg.eigvals(generator.linearize(z).head().detach()))


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one method and follow the first block of its Jacobian."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    data = problem(config, context.seed, context.device)
    target = posterior(config, data)
    sampler = build_sampler(config["sampler"], target.dim, 1.0, rng)
    points, arrays = config["evaluation_points"], {}
    if config["leave_out_head"]:
        assert isinstance(sampler, Generator)
        leave_out_head(sampler)
    if isinstance(sampler, Generator):
        arrays["eigenvalues_start"] = _eigenvalues(sampler)

    def measure(step: int, sampler: Sampler) -> dict[str, float]:
        row = fit_statistics(sampler, target, data, points)
        return row | injectivity_statistics(sampler, points)[0] if isinstance(sampler, Generator) else row

    result = train(sampler, target, build_objective(config["objective"]), config, context, rng, measure)
    metrics = {key: value for key, value in result.history[-1].items() if key != "step"}
    arrays |= history(result.history)
    if isinstance(sampler, Generator):
        each = injectivity_statistics(sampler, points)[1]
        arrays |= {f"final_{key}": value.float() for key, value in each.items()}
        arrays["eigenvalues_end"] = _eigenvalues(sampler)
    return Outcome(metrics, {name: array.cpu().contiguous() for name, array in arrays.items()}, result.seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper's setting of this task."""
    steps = f"{SIZES[profile]['steps']:,} of {CLASSIFICATION_STEPS:,} steps"
    inverse = ", exact block inverse" if SPECS[method]["objective"]["kind"] == "gpvi" else ""
    return f"{steps}, 32 samples a step{inverse}, initial biases N(0, 1)"


EXPERIMENTS = (
    Experiment(
        name="injectivity",
        title="What λ does to the generator on the four-class problem of section 4.3",
        methods=tuple(SPECS),
        config=config,
        seeds=seeds,
        run=run,
        deviations=deviations,
    ),
)
