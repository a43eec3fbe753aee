r"""Table 3 of function-space POVI: Thompson sampling with networks on the mushroom and the wheel bandit.

In every round a context arrives, one network of the posterior is drawn, and the arm is played that it values most; only
the reward of that arm is seen. *Mushroom*: eating gives 5, or for a poisonous one 5 or -35 evenly; leaving it gives 0.
*Wheel*: contexts are uniform on the disc; arms give ``N(1, 0.05²)``, the fifth ``N(1.2, 0.05²)``, and beyond a radius
of 0.95 the arm of the quadrant gives ``N(50, 0.01²)``.

The score is the cumulative expected regret in per cent of that of uniform play on the same contexts: 4.91 and 3.96 a
round. The paper does not print its unit; this is our reading. All methods train every 50 rounds and see the same
contexts and rewards for a seed. At ``smoke`` and ``quick`` the mushrooms are scikit-learn's digits, odd ones poisonous.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from gpvi_lib import checkpoints
from gpvi_lib.data import binary, mushroom
from gpvi_lib.experiments.build import build_objective, build_sampler, train
from gpvi_lib.experiments.evaluation import differing
from gpvi_lib.experiments.function_models import layer_scales
from gpvi_lib.kernels import squared_distances
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, Score
from gpvi_lib.networks import FlatMLP
from gpvi_lib.samplers import MeanField, Particles, Sampler, standard_normal
from gpvi_lib.targets import NormalPrior, Posterior

HIDDEN = (100, 100)
NOISE, PRIOR_VARIANCE = 0.1, 10.0
"""The standard deviation that rewards are modelled with, and the prior variance of a network's output layer."""
EVERY = 50
"""Rounds between two trainings."""
FIRST_TRAININGS, FIRST_STEPS, LATER_STEPS = 20, 2_000, 100
"""The first trainings are longer, falling linearly to the later ones."""
RADIUS = 0.95
ORDINARY, FIFTH, BEST = (1.0, 0.05), (1.2, 0.05), (50.0, 0.01)
"""Mean and standard deviation of a reward on the wheel."""
GOOD, HARM, CHANCE = 5.0, -35.0, 0.5
"""What eating gives, what it gives where it harms, and how often a poisonous mushroom does."""
THEN = {"wheel": [0.95, 1.0, 0.05, 1.2, 0.05, 50.0, 0.01], "mushroom": [5.0, -35.0, 0.5]}
"""The bandits of the first records, see :func:`differing`."""
BATCH, JITTERED = 512, 64
PARTICLES = {"kind": "particles", "num": 20}
SPECS: dict[str, dict] = {
    "f_svgd": {
        "sampler": PARTICLES,
        "objective": {
            "kind": "function_space", "direction": {"kind": "svgd"}, "prior_points": 4,
            "points": {"kind": "jitter", "number": JITTERED, "scale": 0.1},
            "prior": {"kind": "moment_matched", "draws": 40, "floor": 1e-4},
        },
        "batch_size": BATCH - JITTERED,
    },
    "svgd": {"sampler": PARTICLES, "objective": {"kind": "parvi", "direction": {"kind": "svgd"}}},
    "mf_vi": {
        "sampler": {"kind": "mean_field", "scale": 0.05}, "objective": {"kind": "elbo", "num_samples": 4},
    },
    "bootstrap": {"sampler": PARTICLES, "keep": 0.95, "within": 0.3, "lr": 0.1, "decay": 0.5, "clip": 5.0},
    "gp": {"most": 1_000},
}  # fmt: skip
SPECS |= {f"{method}_wide_start": SPECS[method] | {"start": 10**0.5} for method in ("f_svgd", "svgd")}
SPECS["gp_as_networks"] = SPECS["gp"]
CONTROLS = ("f_svgd_wide_start", "svgd_wide_start", "gp_as_networks")
"""Networks that start √10 wider a layer, as in the code, and a process with the networks' prior variance."""
NETWORKS_VARIANCE = {"wheel": 350.0, "mushroom": 5_600.0}
"""Of an arm's value under the networks' prior, about: sd 18 to 24 on the wheel and 75 on mushrooms."""
SIZES: dict[str, dict] = {
    "smoke": {"rounds": 60, "shorter": 400, "seeds": 1},
    "quick": {"rounds": 1_000, "shorter": 10, "seeds": 1},
    "paper": {"rounds": 10_000, "shorter": 1, "seeds": 3},
}
PRINTED_ROUNDS = 50_000


def _rounds(profile: str, printed: bool) -> int:
    return PRINTED_ROUNDS if printed and profile == "paper" else SIZES[profile]["rounds"]


def config(bandit: str, method: str, profile: str, printed_rounds: bool = False) -> dict:
    """Everything but the seed."""
    size = SIZES[profile]
    stand_in = bandit == "mushroom" and profile != "paper"
    shared = {"bandit": "digits" if stand_in else bandit, "rounds": _rounds(profile, printed_rounds), "noise": NOISE}
    shared |= {"prior_variance": PRIOR_VARIANCE, "every": EVERY}
    now = {"wheel": [RADIUS, *ORDINARY, *FIFTH, *BEST], "mushroom": [GOOD, HARM, CHANCE]}
    shared |= differing(THEN, **{bandit: now[bandit]})
    if is_process(method):
        wide = {"prior_variance": NETWORKS_VARIANCE[bandit]} if method == "gp_as_networks" else {}
        return shared | SPECS[method] | wide
    first, later = (max(2, steps // size["shorter"]) for steps in (FIRST_STEPS, LATER_STEPS))
    schedule = {"first_trainings": FIRST_TRAININGS, "first_steps": first, "later_steps": later}
    training = {"hidden": list(HIDDEN), "lr": 1e-3, "final_lr": None, "batch_size": BATCH, "optimizer": "adam"}
    if method == "bootstrap":
        schedule |= {"first_steps": later}
        training = {name: training[name] for name in ("hidden", "batch_size")}
    return shared | schedule | training | SPECS[method]


def is_process(method: str) -> bool:
    """Whether a method is a Gaussian process and no network."""
    return method in ("gp", "gp_as_networks")


def seeds(profile: str) -> tuple[int, ...]:
    """Contexts, rewards and all draws."""
    return tuple(range(SIZES[profile]["seeds"]))


def data_sets(bandit: str, profile: str) -> tuple[str, ...]:
    """Mushroom, at ``paper``."""
    return ("mushroom",) if bandit == "mushroom" and profile == "paper" else ()


# ---------------------------------------------------------------- the bandits


@dataclass(frozen=True)
class Bandit:
    """What will happen in each of ``T`` rounds, whatever is played.

    Attributes:
        contexts: ``(T, p)``.
        rewards: of each arm, ``(T, A)``; a player sees one of a row.
        expected: their expectations given the context.
    """

    contexts: Float[Tensor, "T p"]
    rewards: Float[Tensor, "T a"]
    expected: Float[Tensor, "T a"]

    def regret(self, arms: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
        """Expected regret of the arms played in the first ``t`` rounds."""
        expected = self.expected[: len(arms)]
        return expected.amax(1) - expected.gather(1, arms[:, None])[:, 0]

    def uniform_regret(self) -> Float[Tensor, " T"]:
        """Expected regret of an arm drawn uniformly."""
        return self.expected.amax(1) - self.expected.mean(1)


def eating(name: str, rounds: int, rng: torch.Generator) -> Bandit:
    """Eat (arm 1) or leave (arm 0) mushrooms drawn with replacement."""
    data = mushroom() if name == "mushroom" else binary("digits-parity")
    rows = torch.randint(len(data.labels), (rounds,), generator=rng)
    poisonous = data.labels[rows] == 1
    harmed = poisonous & (torch.rand(rounds, generator=rng) < CHANCE)
    eaten = torch.where(harmed, HARM, GOOD)
    expected = torch.where(poisonous, CHANCE * HARM + (1 - CHANCE) * GOOD, GOOD)
    nothing = torch.zeros(rounds)
    return Bandit(data.inputs[rows], torch.stack([nothing, eaten], 1), torch.stack([nothing, expected], 1))


def wheel(rounds: int, rng: torch.Generator) -> Bandit:
    """Four arms, one of them good beyond the radius in each quadrant, and a fifth that is better within it."""
    angle = 2 * torch.pi * torch.rand(rounds, generator=rng)
    radius = torch.rand(rounds, generator=rng).sqrt()
    contexts = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    quadrant = (contexts[:, 0] < 0).long() + 2 * (contexts[:, 1] < 0).long()
    expected, sd = torch.tensor([*4 * [ORDINARY], FIFTH]).mT[:, None].repeat(1, rounds, 1)
    out = (radius > RADIUS).nonzero()[:, 0]
    expected[out, quadrant[out]], sd[out, quadrant[out]] = BEST
    return Bandit(contexts, expected + sd * torch.randn(expected.shape, generator=rng), expected)


def make(config: dict, seed: int) -> Bandit:
    """The bandit of a configuration; the same for every method."""
    rng = torch.Generator().manual_seed(10_000 + seed)
    return (
        wheel(config["rounds"], rng) if config["bandit"] == "wheel" else eating(config["bandit"], config["rounds"], rng)
    )


# ---------------------------------------------------------------- the players


@dataclass(frozen=True)
class PlayedArm:
    """``log N(r; f_a, σ²)`` of the arm that was played; targets are (arm, reward), then a weight for each network.

    Attributes:
        scale: σ > 0.
    """

    scale: float

    def __call__(self, outputs: Float[Tensor, "n b a"], targets: Float[Tensor, "b t"]) -> Float[Tensor, "n b"]:
        """Log-density of each reward under each network, up to a constant; where there are weights, times those."""
        arms = targets[:, 0].long().expand(len(outputs), -1)
        values = outputs.gather(-1, arms[..., None])[..., 0]
        found = -0.5 * ((values - targets[:, 1]) / self.scale).square()
        return found * targets[:, 2:].mT if targets.shape[1] > 2 else found


def weight_prior(network: FlatMLP, variance: float) -> NormalPrior:
    """Of the paper's code: variance / width in hidden layers, the variance itself in the output layer."""
    scale = layer_scales(network, "fan_out", torch.float32)
    for part in list(network.unflatten(scale).values())[-2:]:
        part.fill_(1.0)
    return NormalPrior(variance**0.5 * scale)


class Player:
    """Networks trained on what was played; one of them decides in each round."""

    def __init__(self, config: dict, bandit: Bandit, context: RunContext, rng: torch.Generator) -> None:
        self.config, self.context, self.rng = config, context, rng
        inputs, arms = bandit.contexts.shape[1], bandit.rewards.shape[1]
        self.network = FlatMLP([inputs, *config["hidden"], arms])
        self.prior = weight_prior(self.network, config["prior_variance"])
        self.trainings = 0
        self.sampler = self._fresh()

    def _fresh(self) -> Sampler:
        start = self.config.get("start", 1.0) * layer_scales(self.network, "start", torch.float32)
        if self.config["sampler"]["kind"] == "particles":
            return build_sampler(self.config["sampler"], self.network.dim, start, self.rng)
        mean = start * standard_normal((self.network.dim,), self.rng, start)
        return MeanField(mean, self.config["sampler"]["scale"] * layer_scales(self.network, "fan_in", torch.float32))

    def _steps(self) -> int:
        """Of the next training."""
        first, later = self.config["first_steps"], self.config["later_steps"]
        share = min(1.0, self.trainings / (self.config["first_trainings"] - 1))
        return round(first + share * (later - first))

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Train on all that was played so far, with an optimizer of its own."""
        played = torch.stack([arms.float(), rewards], 1)
        target = Posterior(self.network, PlayedArm(self.config["noise"]), contexts, played, self.prior)
        steps, batch = self._steps(), min(self.config["batch_size"], len(arms))
        settings = self.config | {"steps": steps, "batch_size": batch, "history_every": steps}
        quiet = RunContext(self.context.device, self.context.seed, None, self.context.label, False)
        objective = build_objective(self.config["objective"])
        train(self.sampler, target, objective, settings, quiet, self.rng, lambda step, sampler: {})
        self.trainings += 1

    @torch.no_grad()
    def choose(self, contexts: Float[Tensor, "t p"]) -> Int[Tensor, " t"]:
        """An arm for each context, each by a network of its own."""
        if isinstance(self.sampler, Particles):
            chosen = torch.randint(len(self.sampler.x), (len(contexts),), generator=self.rng)
            values = self.network(self.sampler.x, contexts)[chosen, torch.arange(len(contexts))]
        else:
            weights = self.sampler.sample(len(contexts), self.rng)
            values = torch.cat([self.network(w[None], x[None])[0] for w, x in zip(weights, contexts, strict=True)])
        return values.argmax(-1)

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return {"sampler": self.sampler.state_dict(), "trainings": self.trainings}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""
        self.sampler.load_state_dict(state["sampler"])
        self.trainings = state["trainings"]


class Bootstrap(Player):
    """Networks of least squares, each on its own share of the rounds, by the settings of the benchmark's code.

    That is, of Riquelme, Tucker and Snoek (2018), but for three things: 20 networks, as the paper has them; all draw
    the same minibatches; and the first training follows the first pulls, as that of every player here, not 50 rounds.

    Each network is shown a round with probability ``keep``. RMSProp goes on from training to training, its mean square
    ``s`` starts at one, and the gradient ``g`` of a network is clipped to a norm of ``clip``:

    ``s <- 0.9 s + 0.1 g²``,  ``w <- w - lr / (1 + decay t) g / √(s + 1e-10)``

    at step ``t`` of the whole game. The code means to begin the rate anew at each training, but what it makes anew is
    only logged. Weights start uniform within ``within``, biases at zero.
    """

    sampler: Particles

    def __init__(self, config: dict, bandit: Bandit, context: RunContext, rng: torch.Generator) -> None:
        super().__init__(config, bandit, context, rng)
        self.square = torch.ones_like(self.sampler.x)
        self.shown = torch.empty(0, len(self.sampler.x))

    def _fresh(self) -> Particles:
        uniform = 2 * torch.rand(self.config["sampler"]["num"], self.network.dim, generator=self.rng) - 1
        weights = layer_scales(self.network, "start", torch.float32) > 0
        return Particles(self.config["within"] * weights * uniform)

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Go on with all that was played so far; minibatches are drawn with replacement, the same for all networks."""
        config, steps = self.config, self._steps()
        drawn = torch.rand(len(arms) - len(self.shown), len(self.sampler.x), generator=self.rng)
        self.shown = torch.cat([self.shown, (drawn < config["keep"]).float()])
        targets = torch.cat([torch.stack([arms.float(), rewards], 1), self.shown / config["keep"]], 1)
        squared_error = PlayedArm(0.5**0.5)  # its log-density is minus that
        for step in range(self.trainings * steps, (self.trainings + 1) * steps):
            rows = torch.randint(len(arms), (config["batch_size"],), generator=self.rng)
            x = self.sampler.x.detach().requires_grad_()
            loss = -squared_error(self.network(x, contexts[rows]), targets[rows]).sum() / len(rows)
            (gradient,) = torch.autograd.grad(loss, x)
            gradient *= (config["clip"] / gradient.norm(dim=1, keepdim=True)).clamp(max=1)
            self.square.mul_(0.9).add_(0.1 * gradient.square())
            rate = config["lr"] / (1 + config["decay"] * step)
            self.sampler.x.data -= rate * gradient / (self.square + 1e-10).sqrt()
        self.trainings += 1

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return super().state_dict() | {"square": self.square, "shown": self.shown}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""
        super().load_state_dict(state)
        self.square, self.shown = state["square"], state["shown"]


class ProcessPlayer:
    """A Gaussian process for each arm on its last so many rewards: squared-exponential kernel of the median length."""

    def __init__(self, config: dict, bandit: Bandit, context: RunContext, rng: torch.Generator) -> None:
        self.config, self.rng = config, rng
        some = bandit.contexts[:500].double()
        squared = squared_distances(some, some)
        self.squared_length = float(squared[squared > 1e-12].median())
        self.arms = bandit.rewards.shape[1]
        self.data: list[tuple[Tensor, Tensor, Tensor]] = []

    def _kernel(self, x: Tensor, y: Tensor) -> Tensor:
        return self.config["prior_variance"] * torch.exp(-0.5 * squared_distances(x, y) / self.squared_length)

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Factorise the covariance of each arm's rewards."""
        self.data = []
        for arm in range(self.arms):
            mine = (arms == arm).nonzero()[-self.config["most"] :, 0]
            x, r = contexts[mine].double(), rewards[mine].double()
            noisy = self._kernel(x, x) + self.config["noise"] ** 2 * torch.eye(len(x), dtype=x.dtype)
            lower = torch.linalg.cholesky(noisy)
            self.data.append((x, lower, torch.linalg.solve_triangular(lower, r[:, None], upper=False)))

    def choose(self, contexts: Float[Tensor, "t p"]) -> Int[Tensor, " t"]:
        """An arm for each context, by one draw of each arm's value."""
        at, values = contexts.double(), []
        for x, lower, half in self.data:
            gain = torch.linalg.solve_triangular(lower, self._kernel(x, at), upper=False)
            variance = (self.config["prior_variance"] - gain.square().sum(0)).clamp_min(0)
            noise = torch.randn(len(at), generator=self.rng, dtype=at.dtype)
            values.append((gain.mT @ half)[:, 0] + variance.sqrt() * noise)
        return torch.stack(values, 1).argmax(1)

    def state_dict(self) -> dict:
        """Nothing: what was played says it all."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Nothing to take up."""


PLAYERS: dict[str, Callable[..., Player | ProcessPlayer]] = {
    "bootstrap": Bootstrap, "gp": ProcessPlayer, "gp_as_networks": ProcessPlayer
}  # fmt: skip
"""All that are no :class:`Player`."""


def play(
    config: dict, bandit: Bandit, player: Player | ProcessPlayer, context: RunContext
) -> tuple[Int[Tensor, " T"], float]:
    """The arms played, each twice at first and then as the player chooses, who learns every so often; and seconds."""
    started = time.perf_counter()
    rng, rounds, every = player.rng, config["rounds"], config["every"]
    pulls = torch.arange(bandit.rewards.shape[1]).repeat(2)[:rounds]
    arms = torch.full((rounds,), -1)
    arms[: len(pulls)], done = pulls, len(pulls)
    if context.checkpoint is not None and context.checkpoint.exists():
        state = checkpoints.load(context.checkpoint, rng.device, "arms", "done", "rng", "player", "seconds")
        arms, done, started = state["arms"], state["done"], started - state["seconds"]
        rng.set_state(state["rng"])
        player.load_state_dict(state["player"])

    def save(path: Path) -> None:
        state = {"arms": arms, "done": done, "rng": rng.get_state(), "player": player.state_dict()}
        checkpoints.save(path, state | {"seconds": time.perf_counter() - started})

    schedule = checkpoints.Schedule(context.checkpoint, 60.0)
    with tqdm(total=rounds, initial=done, desc=context.label, disable=not context.progress, leave=False) as bar:
        while done < rounds:
            rewards = bandit.rewards[torch.arange(done), arms[:done]]
            player.learn(bandit.contexts[:done], arms[:done], rewards)
            upto = min(done + every, rounds)
            arms[done:upto] = player.choose(bandit.contexts[done:upto])
            bar.update(upto - done)
            done = upto
            schedule.keep(save, context.label, f"round {done}")
    return arms, time.perf_counter() - started


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Play all rounds on the CPU; regret in per cent of uniform play's."""
    bandit = make(config, context.seed)
    player = PLAYERS.get(method, Player)(config, bandit, context, torch.Generator().manual_seed(context.seed))
    arms, seconds = play(config, bandit, player, context)
    regret, uniform = bandit.regret(arms).cumsum(0), bandit.uniform_regret().cumsum(0)
    half = len(regret) // 2
    metrics = {
        "relative_regret_percent": 100 * float(regret[-1] / uniform[-1]),
        "regret_a_round": float(regret[-1] / len(regret)),
        "uniform_regret_a_round": float(uniform[-1] / len(regret)),
        "late_relative_regret_percent": 100 * float((regret[-1] - regret[half]) / (uniform[-1] - uniform[half])),
    }
    at = torch.linspace(0, len(regret) - 1, min(100, len(regret))).round().long()
    return Outcome(metrics, {"round": at + 1, "regret": regret[at], "arms": arms.bincount(minlength=2)}, seconds)


def deviations(bandit: str, method: str, profile: str, printed_rounds: bool = False) -> str:
    """What differs from the paper."""
    rounds, parts = _rounds(profile, printed_rounds), ["regret in per cent of uniform play's"]
    if rounds < PRINTED_ROUNDS:
        parts.insert(0, f"{rounds:,} of {PRINTED_ROUNDS:,} rounds")
    if profile != "paper":
        parts.insert(0, f"{profile} size" + (", digits for mushrooms" if bandit == "mushroom" else ""))
    if is_process(method):
        found = config(bandit, method, profile, printed_rounds)
        parts.append(f"one process an arm (the benchmark's: one for all), its last {SPECS['gp']['most']:,} rewards")
        parts.append(f"variance {found['prior_variance']:,g} and noise {found['noise']:g} fixed")
        parts.append("the kernel's length from 500 contexts, also of rounds to come")
    elif method != "bootstrap" and not method.endswith("_wide_start"):
        parts.append("networks start √10 a layer nearer to 0 than in the paper's code")
    if method == "mf_vi":
        parts.append("rate and samples are ours (printed: those of Riquelme et al.)")
    if method == "bootstrap":
        parts.append("the benchmark's code, read as the printed settings; all networks see the same minibatches")
    return "; ".join(parts)


def _of(bandit: str, printed_rounds: bool) -> Experiment:
    name, title = f"fpovi-bandits-{bandit}", f"Table 3 of function-space POVI: Thompson sampling on the {bandit} bandit"
    return Experiment(
        name=f"{name}-all-rounds" if printed_rounds else name,
        title=f"{title}, all {PRINTED_ROUNDS:,} rounds" if printed_rounds else title,
        methods=tuple(SPECS),
        config=partial(config, bandit, printed_rounds=printed_rounds),
        seeds=seeds,
        run=run,
        scores=(
            Score(
                f"fpovi/table3/{bandit}", "relative_cumulative_regret_percent", "lower", "relative_regret_percent",
                profiles=("paper",),
            ),
        ),
        deviations=partial(deviations, bandit, printed_rounds=printed_rounds),
        rows={"mf_vi": ("bbb", "printed")} | {method: (method, "control") for method in CONTROLS},
        data_sets=partial(data_sets, bandit),
        instead_of=(name,) if printed_rounds else (),
    )  # fmt: skip


EXPERIMENTS = tuple(_of(bandit, printed) for printed in (False, True) for bandit in ("mushroom", "wheel"))
