"""What a step of GPVI costs with each back end for the inverse Jacobian, against the dimension d.

The target is N(0, I), whose score costs next to nothing, so that the direction is what is timed. Two baselines need no
inverse: amortised SVGD, and the exact density (the ELBO). Nothing is trained. Times depend on the machine, bytes do
not.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpvi_lib.experiments.build import build_objective
from gpvi_lib.inverse import BlockInverse
from gpvi_lib.kernels import RBF
from gpvi_lib.lab.experiment import Experiment, Outcome, RunContext, one_seed
from gpvi_lib.objectives import GPVI, Objective
from gpvi_lib.samplers import Generator

SAMPLES = 10
SIZES: dict[str, dict] = {
    "smoke": {"dims": [10, 30], "noise_dim": 8, "hidden": [16], "helper": 16, "min_run_time": 0.005},
    "quick": {"dims": [10, 100, 1_000], "noise_dim": 64, "hidden": [64, 64], "helper": 128, "min_run_time": 0.1},
    "paper": {
        "dims": [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 61_706],
        "noise_dim": 64,
        "hidden": [64, 64],
        "helper": 512,
        "min_run_time": 1.0,
    },
}
MAX_JACOBIAN_BYTES = 1e9
"""A back end that stores Jacobians is left out where they would need more than this."""


def _objectives(width: int) -> dict[str, dict]:
    def gpvi(**inverse) -> dict:
        return {"kind": "gpvi", "num_samples": SAMPLES, "inverse": inverse}

    return {
        "dense": gpvi(kind="dense"),
        "bicgstab": gpvi(kind="bicgstab", tol=1e-5, max_iterations=100),
        "helper": gpvi(kind="helper", width=width, num_layers=3, lr=1e-4),
        "block": gpvi(kind="block"),
        "amortized_svgd": {"kind": "parvi", "direction": {"kind": "svgd"}, "num_samples": SAMPLES},
        "exact_density": {"kind": "elbo", "num_samples": SAMPLES},
    }


METHODS = tuple(_objectives(0))


def config(method: str, profile: str) -> dict:
    """Sizes, the objective, and the dimensions at which it is feasible."""
    size = dict(SIZES[profile])
    objective = _objectives(size.pop("helper"))[method]
    if method == "dense":
        size["dims"] = [d for d in size["dims"] if 4 * SAMPLES * d**2 <= MAX_JACOBIAN_BYTES]
    return size | {"samples": SAMPLES, "noise_scale": 1.0, "objective": objective}


class StandardNormal:
    """N(0, I), without its constant."""

    num_data = None

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def log_prob(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """``-||x||^2 / 2``."""
        return -0.5 * x.square().sum(-1)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make inside it and that are alive: ``live`` and ``peak``.

    Views and in-place results are not counted twice; work space inside one operation is not seen. The numbers follow
    from the operations alone, so they are the same on every machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in known:
                storage = tensor.untyped_storage()
                known.add(storage._cdata)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return out

    def _add(self, size: int) -> None:
        self.live += size
        self.peak = max(self.peak, self.live)


def generator(config: dict, dim: int, rng: torch.Generator) -> Generator:
    """An untrained generator with ``k = min(noise_dim, d)``."""
    noise_dim, scale = min(config["noise_dim"], dim), config["noise_scale"]
    size = (dim, noise_dim, config["hidden"])
    return Generator(*size, noise_scale=scale, activation="relu", rng=rng, device=rng.device)


def _median_ms(call, min_run_time: float) -> tuple[float, float]:
    """Median and interquartile range in milliseconds, on one thread."""
    from torch.utils.benchmark import Timer  # here, because its import logs a warning where there is no GPU

    measured = Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=min_run_time)
    return 1e3 * measured.median, 1e3 * measured.iqr


def _direction(objective: Objective, sampler: Generator, target: StandardNormal, rng: torch.Generator):
    """A call that computes the direction alone, or None where the objective has none."""
    source, query = sampler.noise(SAMPLES, rng), sampler.noise(SAMPLES, rng)
    if isinstance(objective, GPVI):
        return lambda: objective.functional_gradient(sampler, target, source, query, None, rng)
    if not hasattr(objective, "direction"):
        return None

    @torch.no_grad()
    def direction():
        x = sampler(query)
        return objective.direction(x, -x, rng)

    return direction


def repulsion_error(objective: GPVI, sampler: Generator, rng: torch.Generator) -> float:
    """``||R - R*|| / ||R*||`` of a back end, ``R*`` being the block solution in float64."""
    source, query = sampler.noise(SAMPLES, rng), sampler.noise(SAMPLES, rng)
    weight = RBF()(source, query)[1]
    with torch.no_grad():
        found, _ = objective.inverse(sampler.linearize(source), source, query, weight, rng)
        sampler.double()
        exact, _ = BlockInverse()(sampler.linearize(source.double()), source.double(), query.double(), weight.double())
        sampler.float()
    return float((found.double() - exact).norm() / exact.norm())


def measure(config: dict, dim: int, rng: torch.Generator) -> dict[str, float]:
    """Milliseconds of a direction and of a step (loss and its gradient), peak bytes, and the error of the answer."""
    sampler, target = generator(config, dim, rng), StandardNormal(dim)
    objective = build_objective(config["objective"])

    @torch.enable_grad()
    def step():
        loss, _ = objective(sampler, target, None, rng)
        return torch.autograd.grad(loss, list(sampler.parameters()))

    with PeakMemory() as memory:  # the first step, so that it counts what the back end keeps
        step()
    found = {"dim": float(dim), "bytes": float(memory.peak)}
    found["step_ms"], found["step_iqr_ms"] = _median_ms(step, config["min_run_time"])
    direction = _direction(objective, sampler, target, rng)
    if direction is not None:
        found["direction_ms"], found["direction_iqr_ms"] = _median_ms(direction, config["min_run_time"])
    if isinstance(objective, GPVI) and config["objective"]["inverse"]["kind"] != "helper":
        found["repulsion_error"] = repulsion_error(objective, sampler, rng)
    return found


def run(config: dict, method: str, context: RunContext) -> Outcome:
    """Measure one back end at all its dimensions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = []
        for dim in config["dims"]:
            rows.append(measure(config, dim, torch.Generator(context.device).manual_seed(context.seed)))
    finally:
        torch.set_num_threads(threads)
    arrays = {key: torch.tensor([row[key] for row in rows], dtype=torch.float64) for key in rows[0]}
    return Outcome({f"largest_{key}": value for key, value in rows[-1].items()}, arrays)


EXPERIMENTS = (
    Experiment(
        name="inverse-cost",
        title="Time and memory of a step with each back end for the inverse Jacobian",
        methods=METHODS,
        config=config,
        seeds=one_seed,
        run=run,
        version=1,  # the library measured is that of 28 November 2026
    ),
)
