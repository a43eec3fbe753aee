"""What experiments measure in the same way: draws, densities, functions on a grid, repulsion, curves for a record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpvi_lib import trust, trust_findings
from gpvi_lib.inverse import BlockInverse, HelperInverse, kernel_gradients
from gpvi_lib.kernels import RBF
from gpvi_lib.lab.experiment import Experiment
from gpvi_lib.lab.runner import load_or_run
from gpvi_lib.latent import LatentSampler
from gpvi_lib.metrics import wasserstein_1d
from gpvi_lib.multiplicative_flows import MultiplicativeFlow
from gpvi_lib.objectives import Objective
from gpvi_lib.paths import results_root
from gpvi_lib.samplers import Generator, MeanField, Particles, Sampler, with_density
from gpvi_lib.targets import Target
from gpvi_lib.trust_report import VERDICTS, CheckReport

EVALUATION_SEED = 54_321
"""Of the draws that are measured: the same for every method and seed, and at every step of a run.

So a spread over seeds is that of training, without the noise of so many draws.
"""


def differing(then: Mapping[str, Any], **now: Any) -> dict[str, Any]:
    """The constants of an evaluation whose value is no longer the one that older records were made with.

    A configuration decides the result, so what is measured with belongs into it; the records in ``results/paper`` were
    written before it was there, and would all be stale. So a constant joins the configuration where it differs from
    ``then``, the frozen value: unchanged ones leave every record valid, a changed one makes those that used it stale.

    Args:
        then: name -> frozen JSON-able value.
        now: name -> the value that the code has.

    Raises:
        KeyError: if there is no frozen value of that name.
    """
    changed = {name: value for name, value in now.items() if value != then[name]}
    return {"evaluated_with": changed} if changed else {}


def span(grid: Float[Tensor, " g"]) -> list[float]:
    """First point, last point and number of points of a line of evenly spaced ones, as JSON."""
    return [float(grid[0]), float(grid[-1]), len(grid)]


def sizes(regions: Mapping[str, Bool[Tensor, " g"]]) -> dict[str, int]:
    """How many points of a grid lie in each region, as JSON."""
    return {name: int(at.sum()) for name, at in regions.items()}


def generator_of(sampler: Sampler, seed: int) -> torch.Generator:
    """Randomness on the sampler's device."""
    return torch.Generator(next(chain(sampler.parameters(), sampler.buffers())).device).manual_seed(seed)


def fixed_draws(sampler: Sampler, number: int, seed: int = EVALUATION_SEED) -> Float[Tensor, "n d"]:
    """Particles as they are, all of them; else ``number`` samples, from the same noise at every call and every seed."""
    return sampler.sample(None if isinstance(sampler, Particles) else number, generator_of(sampler, seed))


def evenly(x: Tensor, number: int, dim: int = 0) -> Tensor:
    """``number`` of the rows along ``dim``, evenly spaced from the first to the last; all if there are fewer."""
    at = torch.linspace(0, x.shape[dim] - 1, min(number, x.shape[dim])).round().long()
    return x.index_select(dim, at.to(x.device))


def history(rows: Sequence[dict[str, float]], names: Iterable[str] | None = None) -> dict[str, Tensor]:
    """``history_<name>``, one number a row, for arrays of a record; NaN where a row has none.

    Args:
        rows: what a callback returned, in order.
        names: default to those of the last row.
    """
    names = rows[-1].keys() if names is None else names
    return {f"history_{name}": torch.tensor([row.get(name, torch.nan) for row in rows]) for name in names}


def best_row(rows: Sequence[dict[str, float]], name: str) -> dict[str, float]:
    """Of what a callback returned after the start, the row with the smallest ``name``, the first of equal ones.

    It is chosen from all rows at the end, so that a run that resumes from a checkpoint chooses the same one.
    """
    return min(rows[1:], key=lambda row: row[name])


# ---------------------------------------------------------------- references


def reference_arrays(experiment: Experiment, method: str, profile: str) -> dict[str, Tensor]:
    """Float64 arrays of a reference's first seed, read once; without a record, or with a stale one, it is run now."""
    return _reference_arrays(experiment, method, profile, str(results_root()))


@cache
def _reference_arrays(experiment: Experiment, method: str, profile: str, root: str) -> dict[str, Tensor]:
    record = load_or_run(experiment.cell(method, 0, profile))
    return {name: array.double() for name, array in record.arrays().items()}


# ---------------------------------------------------------------- check

CHECK_THEN = {
    "K_HAT": 0.7, "K_HAT_NO_MEAN": 1.0, "EVEN": 0.99, "TOTAL_VARIATION": 0.25, "SIGNIFICANCE": 0.01,
    "TOO_REGULAR": 0.999, "WORTH": 25.0, "NEAR": 1.25, "FAR": 2.0, "FOLDED": 0.01, "R_HAT": 1.01, "EFFECTIVE": 100,
    "R_HAT_OLD": 1.1, "BOOTSTRAPS": 1_000, "FLAT": 1e-3, "SCORED": 1_000, "COORDINATES": 1_000, "INPUTS": 50,
    "SMALL_HEAD": 512,
}  # fmt: skip
"""What the first records of :func:`~gpvi_lib.check` were made with, see :func:`differing`."""


def check_constants() -> dict[str, float]:
    """The constants that decide values and verdicts of :func:`~gpvi_lib.check`."""
    return {name: getattr(trust_findings if hasattr(trust_findings, name) else trust, name) for name in CHECK_THEN}


def findings(report: CheckReport) -> dict[str, float]:
    """Values and verdicts as metrics: trust is 0, look 1, don't 2."""
    found = {"verdict": float(VERDICTS.index(report.verdict))}
    for finding in report.findings:
        found[finding.key] = finding.value if math.isfinite(finding.value) else 1e6
        found[f"{finding.key}_verdict"] = float(VERDICTS.index(finding.verdict))
    return found


# ---------------------------------------------------------------- densities


def has_density(sampler: Sampler) -> bool:
    """Whether it has a density, or as a multiplicative flow a bound of it: a generator has one with λ."""
    if isinstance(sampler, LatentSampler):
        return False
    return isinstance(sampler, MeanField | MultiplicativeFlow) or (
        isinstance(sampler, Generator) and sampler.log_noise_scale is not None
    )


@torch.no_grad()
def density_scores(sampler: Sampler, target: Target, num_samples: int) -> dict[str, float]:
    """ELBO in nats with its standard error, and a generator's share of samples where ``det J < 0``.

    Where that share is strictly between 0 and 1, ``f`` is not injective and the ELBO is only claimed (notebook 02).
    Nothing for a sampler without a density, see :func:`has_density`.
    """
    if not has_density(sampler):
        return {}
    x, log_q, sign = with_density(sampler, num_samples, generator_of(sampler, EVALUATION_SEED))
    elbo = target.log_prob(x) - log_q
    found = {"elbo": float(elbo.mean()), "elbo_se": float(elbo.std() / num_samples**0.5)}
    return found if sign is None else found | {"negative_share": float((sign < 0).double().mean())}


# ---------------------------------------------------------------- functions on a grid


@dataclass(frozen=True)
class Functions:
    """A posterior as functions on a grid of ``g`` points, from long chains.

    Attributes:
        mean, sd: of ``f(x)``, ``(g,)``.
        draws: functions that predictive distributions are compared with, ``(m, g)``.
    """

    mean: Float[Tensor, " g"]
    sd: Float[Tensor, " g"]
    draws: Float[Tensor, "m g"]

    @classmethod
    def of(cls, draws: Float[Tensor, "m g"]) -> Self:
        """With the moments of these draws."""
        return cls(draws.mean(0), draws.std(0), draws)


def function_scores(
    f: Float[Tensor, "n g"], reference: Functions, regions: Mapping[str, Bool[Tensor, " g"]]
) -> dict[str, float]:
    """How far ``n`` functions are from a reference, in each region of the grid, in the unit of y.

    ``rmse_mean`` and ``rmse_sd`` compare mean and standard deviation of ``f(x)``, ``w1`` is the mean over x of the
    Wasserstein distance between the distributions of ``f(x)``. ``sd`` is the mean standard deviation and ``sd_ratio``
    that over the reference's: above 1 the uncertainty is overestimated. A name ends in ``_<region>``, that of the
    region ``""`` in nothing.
    """
    f = f.double().cpu()
    sd = f.std(0)
    mean_error, sd_error = (f.mean(0) - reference.mean).square(), (sd - reference.sd).square()
    distance = wasserstein_1d(f, reference.draws)
    found = {}
    for region, at in regions.items():
        suffix = f"_{region}" if region else ""
        found[f"rmse_mean{suffix}"] = float(mean_error[at].mean().sqrt())
        found[f"rmse_sd{suffix}"] = float(sd_error[at].mean().sqrt())
        found[f"w1{suffix}"] = float(distance[at].mean())
        found[f"sd{suffix}"] = float(sd[at].mean())
        found[f"sd_ratio{suffix}"] = float(sd[at].mean() / reference.sd[at].mean())
    return found


def everywhere_and(regions: Mapping[str, Bool[Tensor, " g"]]) -> dict[str, Bool[Tensor, " g"]]:
    """These regions after ``""``, the whole grid."""
    return {"": torch.ones_like(next(iter(regions.values()))), **regions}


# ---------------------------------------------------------------- repulsion


def exact_repulsion(generator: Generator, source: Tensor, query: Tensor, weight: Tensor) -> Tensor | None:
    """``R (m, d)`` by the exact inverse; ``None`` where a Jacobian is singular to the last digit.

    So it is where all units of a ReLU layer are off, which happens to narrow ones.
    """
    try:
        repulsion = BlockInverse()(generator.linearize(source), source, query, weight)[0]
    except torch.linalg.LinAlgError:
        return None
    return repulsion if bool(repulsion.isfinite().all()) else None  # a GPU's solver does not raise


@torch.no_grad()
def repulsions(
    objective: Objective, generator: Sampler, num_samples: int, seed: int
) -> tuple[Tensor, Float[Tensor, "m d"], Float[Tensor, "m d"]] | None:
    """Noise z', and at one fixed batch of noise the exact repulsion ``R`` and the helper's ``R̂``.

    None for objectives without a trained helper, and where ``R`` does not exist.
    """
    helper = getattr(objective, "inverse", None)
    if not isinstance(generator, Generator) or not isinstance(helper, HelperInverse) or helper.network is None:
        return None
    rng = generator_of(generator, seed)
    source, query = generator.noise(num_samples, rng), generator.noise(num_samples, rng)
    _, weight = RBF()(source, query)
    exact = exact_repulsion(generator, source, query, weight)
    if exact is None:
        return None
    estimate = helper.network(source[:, : generator.noise_dim], kernel_gradients(source, query, weight)).sum(0)
    return source, exact, estimate
