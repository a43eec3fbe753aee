r"""Maps of the plane that fold, and how much the change of variables then overclaims.

For ``f(z) = (g_1(z_1) + λ_1 z_1, g_2(z_1) + λ_2 z_2)``, that is d = 2 and k = 1, with one hidden ReLU layer, every
preimage of a point can be written down: the head ``h = g_1 + λ_1 id`` is piecewise linear on the line, and given
``z_1`` the tail is linear in ``z_2``. So the true density of ``x = f(z)``,

.. math:: q(x) = \sum_{z: f(z) = x} N(z; 0, I) / |\det J(z)|,

is known also where ``f`` is not injective and the formula with one preimage (eq. 1) is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib.experiments.build import build_objective, train
from gpvi_lib.experiments.evaluation import differing, generator_of, history
from gpvi_lib.experiments.heads import head_lipschitz_bound, leave_out_head
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext
from gpvi_lib.samplers import Generator
from gpvi_lib.targets import Banana, GaussianMixture, Target

FURTHEST_KNOT = 38.0
"""Beyond it N(z_1; 0, 1) is zero in float64; knots of units that are all but dead lie there."""
LIPSCHITZ_SHARE = 0.9
PLANE_SEED = 7
THEN = {"seed": 7, "furthest_knot": 38.0, "lipschitz_share": 0.9}
"""What the first records were evaluated with, see :func:`differing`."""


class Turned:
    """A target on the plane with its two coordinates swapped.

    Args:
        target: any target on R^2 without data.
    """

    dim = 2
    num_data = None

    def __init__(self, target) -> None:
        self.target = target

    def log_prob(self, x: Float[Tensor, "n 2"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """``log p(x_2, x_1)``."""
        return self.target.log_prob(x.flip(-1))


TARGETS: dict[str, Callable[[torch.device], Target]] = {
    "banana": lambda device: Banana(1.0, 1.0, 0.3),
    "banana_turned": lambda device: Turned(Banana(1.0, 1.0, 0.3)),
    "modes": lambda device: GaussianMixture(
        torch.tensor([[-1.2, -0.6], [1.2, 0.6]], dtype=torch.float64, device=device), 0.4
    ),
}


@torch.no_grad()
def head_pieces(generator: Generator) -> tuple[Float[Tensor, " p"], ...]:
    """The head ``h(u) = g_1(u) + λ_1 u`` as ``p`` linear pieces: left ends, right ends, slopes, intercepts.

    Raises:
        ValueError: unless d = 2, k = 1 with exactly one hidden ReLU layer and a λ.
    """
    one_layer = len(generator.hidden) == 1 and generator.activation == "relu"
    if not (generator.dim == 2 and generator.noise_dim == 1 and one_layer and generator.noise_scale is not None):
        raise ValueError("all preimages are known only for d = 2, k = 1, one hidden ReLU layer and λ > 0")
    layer = generator.hidden[0]
    assert isinstance(layer, nn.Linear)
    knots = torch.sort(-layer.bias / layer.weight[:, 0]).values
    knots = knots[knots.abs() < FURTHEST_KNOT]
    infinity = torch.full_like(knots[:1], math.inf) if len(knots) else torch.full_like(layer.bias[:1], math.inf)
    left, right = torch.cat([-infinity, knots]), torch.cat([knots, infinity])
    inside = 0.5 * (left.clamp(min=-FURTHEST_KNOT) + right.clamp(max=FURTHEST_KNOT))
    x, linearization = generator.forward_and_linearize(F.pad(inside[:, None], (0, 1)))
    slopes = linearization.head()[:, 0, 0]
    return left, right, slopes, x[:, 0] - slopes * inside


@torch.no_grad()
def preimage_log_terms(generator: Generator, x: Float[Tensor, "n 2"]) -> Float[Tensor, "n p"]:
    """``log[N(z; 0, I) / |det J(z)|]`` at the preimage of ``x`` in each piece of the head, ``-inf`` where it has none.

    Their logsumexp over the pieces is ``log q(x)``; a single one is what eq. 1 would say.
    """
    (left, right, slopes, intercepts), noise_scale = head_pieces(generator), generator.noise_scale
    assert noise_scale is not None, "head_pieces asks for it"
    first = (x[:, :1] - intercepts) / slopes
    points = F.pad(first.reshape(-1, 1), (0, 1))
    second = (x[:, 1:] - generator(points)[:, 1].view_as(first)) / noise_scale[1]
    log_det = slopes.abs().log() + noise_scale[1].log()
    terms = -0.5 * (first.square() + second.square()) - math.log(2 * math.pi) - log_det
    return torch.where((first >= left) & (first < right), terms, -math.inf)


@torch.no_grad()
def claimed_and_true(generator: Generator, target, num_samples: int) -> dict[str, float]:
    """The ELBO that eq. 1 claims, the true one, and what lies between them: ``H(Z | X)``, in nats.

    ``overclaim`` is ``E[-Σ_i r_i log r_i]`` with ``r_i`` the posterior probability of preimage ``i``, computed from the
    preimages alone; ``elbo_claimed - elbo`` estimates the same number from the two densities.
    """
    x, log_q = generator.rsample_with_log_prob(num_samples, generator_of(generator, PLANE_SEED))
    terms = preimage_log_terms(generator, x)
    log_q_true = terms.logsumexp(-1)
    log_p = target.log_prob(x)
    z = generator.noise(num_samples, generator_of(generator, PLANE_SEED))
    return {
        "elbo_claimed": float((log_p - log_q).mean()),
        "elbo": float((log_p - log_q_true).mean()),
        "overclaim": float(torch.special.entr((terms - log_q_true[:, None]).exp()).sum(-1).mean()),
        "preimages": float((terms > -math.inf).double().sum(-1).mean()),
        "negative_share": float((generator.linearize(z).slogdet()[0] < 0).double().mean()),
    }


@torch.no_grad()
def project_head(generator: Generator, share: float = LIPSCHITZ_SHARE) -> None:
    """Scale rows :k of the output weight down until ``Lip(g_{:k}) <= share * min λ_{:k}``: ``f`` is then injective."""
    k, noise_scale = generator.noise_dim, generator.noise_scale
    assert noise_scale is not None, "without λ no bound makes it injective"
    limit = share * float(noise_scale[:k].min())
    bound = head_lipschitz_bound(generator)
    if bound > limit:
        generator.output.weight[:k].mul_(limit / bound)


KINDS = ("exact_density", "gpvi", "lipschitz", "no_head")
SIZES = {
    "smoke": {"steps": 5, "points": 200, "seeds": 1},
    "quick": {"steps": 300, "points": 2_000, "seeds": 1},
    "paper": {"steps": 1_000, "points": 20_000, "seeds": 10},
}
METHODS = tuple(f"{target}_{kind}" for target in TARGETS for kind in KINDS)


def config(method: str, profile: str) -> dict:
    """Everything but the seed."""
    target = max((name for name in TARGETS if method.startswith(name)), key=len)
    kind = method.removeprefix(f"{target}_")
    objective = {"kind": "gpvi", "inverse": {"kind": "block"}} if kind == "gpvi" else {"kind": "elbo"}
    steps = SIZES[profile]["steps"]
    return {
        "target": target,
        "kind": kind,
        "generator": {"noise_dim": 1, "hidden": [16]},
        "noise_scale": 1.0,
        "objective": objective | {"num_samples": 100},
        "steps": steps,
        "lr": 2e-2,
        "final_lr": 1e-4,
        "history_every": max(1, steps // 10),
        "evaluation_points": SIZES[profile]["points"],
        **differing(THEN, seed=PLANE_SEED, furthest_knot=FURTHEST_KNOT, lipschitz_share=LIPSCHITZ_SHARE),
    }


def seeds(profile: str) -> tuple[int, ...]:
    """Each seed is another start."""
    return tuple(range(SIZES[profile]["seeds"]))


def new_generator(config: dict, rng: torch.Generator) -> Generator:
    """PyTorch's default initialisation, one trained λ per coordinate, float64."""
    scale = torch.full((2,), config["noise_scale"], dtype=torch.float64, device=rng.device)
    settings: dict = {"noise_scale": scale, "train_noise_scale": True, "dtype": torch.float64, "device": rng.device}
    return Generator(2, **config["generator"], **settings, activation="relu", rng=rng)


def recorded_generator(config: dict, arrays: dict[str, Tensor]) -> Generator:
    """The trained generator of a record."""
    generator = new_generator(config, torch.Generator().manual_seed(0))
    generator.load_state_dict({name.removeprefix("f."): value for name, value in arrays.items() if name[:2] == "f."})
    return generator


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Train one kind of generator on one target; compare what it claims with what is true."""
    rng = torch.Generator(context.device).manual_seed(context.seed)
    target = TARGETS[config["target"]](context.device)
    generator = new_generator(config, rng)
    if config["kind"] == "no_head":
        leave_out_head(generator)
    project = config["kind"] == "lipschitz"

    def after_step(step: int, generator: Generator) -> dict[str, float]:
        if project:
            project_head(generator)
        wanted = step % config["history_every"] == 0
        return claimed_and_true(generator, target, config["evaluation_points"] // 4) if wanted else {}

    schedule = config | {"history_every": 1} if project else config
    result = train(generator, target, build_objective(config["objective"]), schedule, context, rng, after_step)
    metrics, noise_scale = claimed_and_true(generator, target, config["evaluation_points"]), generator.noise_scale
    assert noise_scale is not None, "new_generator gives it one"
    metrics |= {
        "lambda_1": float(noise_scale[0].detach()),
        "lambda_2": float(noise_scale[1].detach()),
        "lipschitz_bound": head_lipschitz_bound(generator),
    }
    rows = [row for row in result.history if "elbo" in row]
    arrays = history(rows) | {f"f.{name}": value.detach() for name, value in generator.state_dict().items()}
    return Outcome(metrics, {name: array.cpu().contiguous() for name, array in arrays.items()}, result.seconds)


EXPERIMENTS = (
    Experiment(
        name="injectivity-plane",
        title="Maps of the plane that fold: claimed against true ELBO, and what guarantees of injectivity cost",
        methods=METHODS,
        config=config,
        seeds=seeds,
        run=run,
    ),
)
