r"""Section 4.3: classification in the plane with a small Bayesian network, and what λ does to the generator.

The data are draws from a mixture of two or four Gaussians, the label is the component. The paper prints
``p(x) = Σ_i N(μ_i, 0.3)`` without weights; we take equal ones, and 0.3 as the variance of each coordinate. The
classifier has two hidden layers of 10 (d = 184 weights with four classes), its prior is N(0, I).

The experiment ``injectivity`` trains the generator ``f(z) = g(z_{:k}) + λ ⊙ z`` at many λ and measures the first
block ``A + Λ_1`` of its Jacobian, whose determinant must not change sign if ``f`` is to be injective.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.printed import CLASSIFICATION_STEPS
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.metrics import accuracy, predictive
from gpvi_lib.networks import FlatModule, mlp
from gpvi_lib.samplers import Generator, Sampler
from gpvi_lib.targets import ClassificationPosterior

CLASS_MEANS = {
    2: ((-2.0, -2.0), (2.0, 2.0)),
    4: ((-2.0, -2.0), (-2.0, 2.0), (2.0, -2.0), (2.0, 2.0)),
}
CLASS_VARIANCE = 0.3
HIDDEN = (10, 10)
EVALUATION_SEED = 54_321
POSTERIOR_SAMPLES = 100
"""Networks in a posterior predictive distribution (Table 8)."""


@dataclass(frozen=True)
class ClassificationData:
    """Points in the plane and their classes.

    Attributes:
        inputs, test_inputs: ``(N, 2)`` and ``(T, 2)``.
        labels, test_labels: class indices from 0, ``(N,)`` and ``(T,)``.
    """

    inputs: Float[Tensor, "N 2"]
    labels: Int[Tensor, " N"]
    test_inputs: Float[Tensor, "T 2"]
    test_labels: Int[Tensor, " T"]


def mixture(num_classes: int, num_points: int, rng: torch.Generator) -> tuple[Float[Tensor, "n 2"], Int[Tensor, " n"]]:
    """Points of the mixture of section 4.3 (four classes) or appendix D.2 (two), with the component as label.

    Raises:
        ValueError: if the paper has no such problem.
    """
    if num_classes not in CLASS_MEANS:
        raise ValueError(f"num_classes must be one of {sorted(CLASS_MEANS)}, got {num_classes}")
    means = torch.tensor(CLASS_MEANS[num_classes], device=rng.device)
    labels = torch.randint(num_classes, (num_points,), generator=rng, device=rng.device)
    noise = torch.randn(num_points, 2, generator=rng, device=rng.device)
    return means[labels] + CLASS_VARIANCE**0.5 * noise, labels


def problem(config: dict, seed: int, device: torch.device | str = "cpu") -> ClassificationData:
    """The data of one seed, the same on every device."""
    rng = torch.Generator().manual_seed(2_000 + seed)
    train = mixture(config["num_classes"], config["num_train"], rng)
    test = mixture(config["num_classes"], config["num_test"], rng)
    return ClassificationData(*(part.to(device) for part in (*train, *test)))


def posterior(config: dict, data: ClassificationData) -> ClassificationPosterior:
    """The posterior over the weights of the classifier, with prior N(0, I)."""
    network = FlatModule(mlp([2, *HIDDEN, config["num_classes"]]))
    return ClassificationPosterior(network, data.inputs, data.labels)


def symmetric_part_minimum(matrix: Float[Tensor, "n k k"]) -> Float[Tensor, " n"]:
    """Smallest eigenvalue of ``(M + Mᵀ) / 2``: positive if and only if ``vᵀMv > 0`` for every ``v ≠ 0``."""
    return torch.linalg.eigvalsh(0.5 * (matrix + matrix.mT)).amin(-1)


@torch.no_grad()
def head_statistics(generator: Generator, z: Float[Tensor, "n d"]) -> dict[str, Float[Tensor, " n"]]:
    """What decides about injectivity, at each ``z``, for the k x k block ``A + Λ_1`` of the Jacobian.

    Returns:
        ``sign`` of its determinant; ``smallest_real``, the smallest real part of its eigenvalues;
        ``smallest_symmetric``, the smallest eigenvalue of its symmetric part (positive for all z on a convex domain
        implies injectivity, appendix A.4); ``smallest_preconditioned``, the same for ``H̄^{-1}(A + Λ_1)`` with the mean
        ``H̄`` over these ``z``, which tests the same ``f`` in better coordinates; ``condition``, the ratio of its
        extreme singular values.
    """
    head = generator.linearize(z).head().double()
    singular = torch.linalg.svdvals(head)
    preconditioned = torch.linalg.solve(head.mean(0), head)
    return {
        "sign": torch.linalg.slogdet(head)[0],
        "smallest_real": torch.linalg.eigvals(head).real.amin(-1),
        "smallest_symmetric": symmetric_part_minimum(head),
        "smallest_preconditioned": symmetric_part_minimum(preconditioned),
        "condition": singular[:, 0] / singular[:, -1],
    }


def head_lipschitz_bound(generator: Generator) -> float:
    """Upper bound on the Lipschitz constant of ``g_{:k}``: its layers' spectral norms times its activations' slopes.

    ``f`` is injective if the bound is below the smallest λ of the first k.
    """
    weights = [*generator.hidden_weights, generator.output.weight[: generator.noise_dim]]
    norms = [float(torch.linalg.matrix_norm(weight.detach(), 2)) for weight in weights]
    return reduce(float.__mul__, norms) * ACTIVATIONS[generator.activation].steepest ** len(generator.hidden)


def leave_out_head(generator: Generator) -> None:
    """Sets ``g_{:k}`` to a constant for good: ``A = 0``, so that ``f`` is injective for every λ > 0.

    Rows :k of the output weight become zero and get zero gradients, so Adam never moves them. The biases stay free.
    """
    keep = torch.ones_like(generator.output.weight)
    keep[: generator.noise_dim] = 0
    with torch.no_grad():
        generator.output.weight.mul_(keep)
    generator.output.weight.register_hook(lambda gradient: gradient * keep)


@torch.no_grad()
def fit_statistics(
    sampler: Sampler, target: ClassificationPosterior, data: ClassificationData, num_samples: int
) -> dict[str, float]:
    """Test accuracy in percent, of the predictive distribution and of single networks, and the ELBO in nats.

    The ELBO, ``E_q[log p(D, x) - log q(x)]`` with the standard error ``elbo_se`` of its Monte Carlo estimate, takes
    ``log q`` from the change of variables: exact for an injective ``f``; otherwise the ELBO may be too large.
    """
    rng = torch.Generator(data.inputs.device).manual_seed(EVALUATION_SEED)
    x, log_q = sampler.rsample_with_log_prob(num_samples, rng)
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
    z = generator.noise(num_points, torch.Generator(generator.output.weight.device).manual_seed(EVALUATION_SEED))
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


# ---------------------------------------------------------------- the experiment `injectivity`

LAMBDAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
GENERATOR = {"kind": "generator", "noise_dim": 64, "hidden": [64, 64], "output_scale": "prior"}
TRAINED = GENERATOR | {"noise_scale": 0.3, "noise_scale_unit": "prior", "train_noise_scale": True}
BLOCK = {"kind": "gpvi", "num_samples": 32, "inverse": {"kind": "block"}}
ELBO = {"kind": "elbo", "num_samples": 32}
SHOWN_POINTS = 8
"""Points z whose eigenvalues of A + Λ_1 a record keeps."""
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
    }


def seeds(profile: str) -> tuple[int, ...]:
    """Each seed draws its own data and its own start, the same for all methods."""
    return tuple(range(SIZES[profile]["seeds"]))


def _eigenvalues(generator: Generator) -> Tensor:
    """Eigenvalues of ``A + Λ_1`` at a few points, real and imaginary parts ``(points, k, 2)``."""
    device = generator.output.weight.device
    z = generator.noise(SHOWN_POINTS, torch.Generator(device).manual_seed(EVALUATION_SEED))
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
    arrays |= {f"history_{key}": torch.tensor([row[key] for row in result.history]) for key in ("step", *metrics)}
    if isinstance(sampler, Generator):
        each = injectivity_statistics(sampler, points)[1]
        arrays |= {f"final_{key}": value.float() for key, value in each.items()}
        arrays["eigenvalues_end"] = _eigenvalues(sampler)
    return Outcome(metrics, {name: array.cpu().contiguous() for name, array in arrays.items()}, result.seconds)


def deviations(method: str, profile: str) -> str:
    """What differs from the paper's setting of this task."""
    steps = f"{SIZES[profile]['steps']:,} of {CLASSIFICATION_STEPS:,} steps"
    return f"{steps}, 32 samples a step, exact block inverse, initial biases N(0, 1)"


INJECTIVITY = Experiment(
    name="injectivity",
    title="What λ does to the generator on the four-class problem of section 4.3",
    methods=tuple(SPECS),
    config=config,
    seeds=seeds,
    run=run,
    deviations=deviations,
)
EXPERIMENTS = (INJECTIVITY,)
