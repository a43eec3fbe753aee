r"""Whether to trust samples of a target that has no reference: :func:`check`.

Everything here compares draws of q with a density p known up to a constant. Three kinds of evidence, each blind to
something the others see:

* *importance weights* ``w = p(x) / q(x)``, where q has a density: their tail (Pareto k̂ of PSIS), their effective
  number, and their mean, which estimates the evidence that the ELBO falls short of;
* *Stein's identity* ``E_p[s·f + ∇·f] = 0``, ``s = ∇log p``, which needs draws and the score alone: over the functions f
  of a kernel (KSD), and for ``f(x) = x - mean``, the spread, of each coordinate and along two directions;
* *repeats*: R-hat between samplers trained from other starts, or chains.

None of them sees a part of p that no draw comes near, except repeats, and these only if another repeat is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from gpvi_lib.checks import check_count, check_instance, chosen_rng
from gpvi_lib.diagnostics import without_point
from gpvi_lib.errors import GPVIError
from gpvi_lib.hamiltonian import HMCResult, coarseness
from gpvi_lib.multiplicative_flows import MultiplicativeFlow
from gpvi_lib.networks import FlatModule
from gpvi_lib.samplers import Generator, Sampler, with_density
from gpvi_lib.several import Several
from gpvi_lib.targets.base import (
    Target,
    check_all_data,
    check_finite,
    check_rows,
    log_prob,
    outside_support,
    points_differ,
    score,
)
from gpvi_lib.targets.posterior import evenly_spaced
from gpvi_lib.targets.slopes import check_slope
from gpvi_lib.trust_findings import (
    fold_finding,
    ksd_finding,
    of_chains,
    r_hat_finding,
    spread_finding,
    weight_findings,
)
from gpvi_lib.trust_report import VERDICTS, CheckReport, Finding

Quantities = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n q"]]

LEAST = 20
"""Draws below which nothing here can be estimated."""
SCORED = 1_000
"""Draws whose score is taken and whose pairs are compared, at most."""
AT_ONCE = 200
"""Points in one call of the target, at most."""
EVALUATED = 500_000
"""Points times data in one call of a target that has its data in memory, at most."""
COORDINATES = 1_000
"""Of which R-hat and autocorrelations are computed, at most."""
INPUTS = 50
"""Data at which the outputs of networks are compared, at most."""
FEW = 8
"""Data on which the slope of the target is compared with its gradient, at most."""
SMALL_HEAD = 512
"""Noise coordinates k up to which the (k, k) determinant of J is computed."""
ORDER_SEED = 0
"""Of the order in which a fixed number of points is taken: theirs may be sorted."""


# ---------------------------------------------------------------- drawing


@dataclass(frozen=True)
class _Drawn:
    """Draws of one sampler or chain, with what is known of each.

    Attributes:
        x: draws.
        log_p: of the target.
        log_q: of the sampler, or ``None``.
        sign: of det J, or ``None``.
    """

    x: Float[Tensor, "n d"]
    log_p: Float[Tensor, " n"]
    log_q: Float[Tensor, " n"] | None = None
    sign: Float[Tensor, " n"] | None = None


def _where(part: Sampler | Tensor) -> torch.device:
    """The device of a sampler, or of draws."""
    some = [part] if isinstance(part, Tensor) else chain(part.parameters(), part.buffers())
    return next((tensor.device for tensor in some), torch.device("cpu"))


def _as_parts(sampler: object) -> list[Sampler | Tensor]:
    """The samplers or chains to check, one or several.

    Raises:
        GPVIError: if it is something else, or of both kinds.
    """
    check_instance("sampler", sampler)
    if isinstance(sampler, HMCResult):
        return [_checked(chain) for chain in sampler.samples.unbind(1)]
    parts: list[Any] = list(sampler) if isinstance(sampler, list | tuple) else [sampler]
    kinds = {Sampler if isinstance(part, Sampler) else Tensor if isinstance(part, Tensor) else None for part in parts}
    if len(kinds) != 1 or None in kinds:
        names = ", ".join(sorted({type(part).__name__ for part in parts})) or "an empty list"
        raise GPVIError(
            "check takes a sampler, draws (n, d), the result of hmc, or a list of samplers or of draws, one for each "
            f"chain; got {names}"
        )
    return [_checked(part) if isinstance(part, Tensor) else part for part in parts]


def _checked(x: Tensor) -> Tensor:
    if x.ndim != 2 or not x.is_floating_point():
        raise GPVIError(
            f"draws must be real numbers (n, d), got {x.dtype} {tuple(x.shape)}: give several chains as a list, "
            "list(x) where the chains are the first axis and list(x.unbind(1)) where they are the second"
        )
    if len(x) < LEAST:
        raise GPVIError(
            f"nothing can be said of {len(x)} draws: give at least {LEAST}. A few networks, such as an ensemble's, are "
            "no sample; judge their predictions on data put aside"
        )
    return x.detach()


def _no_density(sampler: Sampler | Tensor, rng: torch.Generator) -> str | None:
    """Why there is no log-density, in words; ``None`` if there is one."""
    if isinstance(sampler, Tensor):
        return "draws alone have no density; give the sampler instead if it has one"
    if isinstance(without_point(sampler)[0], MultiplicativeFlow):
        return "the density of a MultiplicativeFlow is only bounded, and its weights would judge its auxiliary as well"
    try:
        sampler.rsample_with_log_prob(1, torch.Generator(rng.device).manual_seed(0))
    except ValueError as error:
        return str(error)
    return None


def _no_signs(sampler: Sampler | Tensor, no_density: str | None) -> str | None:
    """Why there are no signs of det J, in words."""
    inner = sampler if isinstance(sampler, Tensor) else without_point(sampler)[0]
    own = getattr(type(inner), "rsample_with_log_prob", None) is not Generator.rsample_with_log_prob
    if not isinstance(inner, Generator) or own or no_density is not None:
        return "only a Generator with a λ, or with k = d, has a Jacobian that could change its sign"
    if inner.noise_dim > SMALL_HEAD:
        return f"k = {inner.noise_dim} is more than {SMALL_HEAD}: determinants so large are too costly"
    return None


def _before_theta(part: Sampler | Tensor) -> int:
    """How many numbers without noise stand first."""
    return 0 if isinstance(part, Tensor) else without_point(part)[1]


def _shuffled(x: Float[Tensor, "n d"], order: torch.Generator) -> Float[Tensor, "n d"]:
    """The same points in a random order, so that a set that is sorted is judged as any other."""
    return x[torch.randperm(len(x), generator=order).to(x.device)]


def _draws(
    part: Sampler | Tensor, number: int, density: bool, rng: torch.Generator, order: torch.Generator
) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Draws, log q and signs of det J, in parts of ``AT_ONCE`` points; ``order`` is of a fixed number of points."""
    if _independent(part):
        assert isinstance(part, Sampler), "tensors are chains"
        for start in range(0, number, AT_ONCE):
            count = min(AT_ONCE, number - start)
            yield with_density(part, count, rng) if density else (part.sample(count, rng), None, None)
    else:
        x = part if isinstance(part, Tensor) else _shuffled(_checked(part.sample(None, rng)), order)
        for rows in _evenly(x, number).split(AT_ONCE):
            yield rows, None, None


@torch.no_grad()
def _drawn(target: Target, draws: Iterator[tuple[Tensor, Tensor | None, Tensor | None]], bar) -> _Drawn:
    """All that is known of one sampler or chain."""
    found: list[tuple[Tensor | None, ...]] = []
    for x, log_q, sign in draws:
        if not bool(torch.isfinite(x).all()):
            raise GPVIError("some draws are not finite: the sampler has diverged, train it with a lower learning rate")
        found.append((x, _log_p(target, x), log_q, sign))
        bar.update()
    columns = (None if column[0] is None else torch.cat(column) for column in zip(*found, strict=True))
    return _Drawn(*columns)  # type: ignore[arg-type]  # the first two are never None


def _at_once(target: Target) -> int:
    """Points in one call: fewer where there are many data, unless they are read anew for each."""
    number = getattr(target, "num_data", None)
    if not isinstance(number, int) or number < 1 or getattr(target, "streamed", False):
        return AT_ONCE
    return max(1, min(AT_ONCE, EVALUATED // number))


def _log_p(target: Target, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """``log p``, finite.

    Raises:
        GPVIError: if it is not.
    """
    try:
        value = torch.cat([log_prob(target, rows) for rows in x.split(_at_once(target))])
    except RuntimeError:
        check_finite(target, x[:1])  # it knows why: another precision
        raise
    if not bool(torch.isfinite(value).all()):
        raise GPVIError(outside_support(target, value))
    return value


def _evenly(x: Any, most: int) -> Any:
    """At most so many rows, evenly spaced."""
    if len(x) <= most:
        return x
    return x[evenly_spaced(len(x), most, x.device)]


# ---------------------------------------------------------------- what repeats must agree on


def _default_quantities(target: Target) -> Quantities:
    """Outputs of networks at some of the data, whose hidden units may be permuted; else the coordinates."""
    network, inputs = getattr(target, "network", None), getattr(target, "inputs", None)
    if isinstance(network, FlatModule) and isinstance(inputs, Tensor | Several):
        return lambda x: network(x, _evenly(inputs, INPUTS)).flatten(1)
    return _some


def _some(x: Float[Tensor, "n d"]) -> Float[Tensor, "n q"]:
    """At most ``COORDINATES`` of the columns, evenly spaced."""
    return _evenly(x.mT, COORDINATES).mT


@torch.no_grad()
def _quantities(drawn: _Drawn, quantities: Quantities) -> Float[Tensor, "n q"]:
    """The quantities and log p.

    Raises:
        GPVIError: if they are not one row a draw.
    """
    parts = [quantities(rows) for rows in drawn.x.split(AT_ONCE)]
    for part, rows in zip(parts, drawn.x.split(AT_ONCE), strict=True):
        if not isinstance(part, Tensor) or part.ndim != 2 or len(part) != len(rows):
            what = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise GPVIError(f"quantities must map draws (n, d) to (n, q), got {what} for {tuple(rows.shape)}")
    return torch.cat([torch.cat(parts).double(), drawn.log_p[:, None].double()], dim=-1)


def _not_held(chains: Float[Tensor, "c n q"]) -> Float[Tensor, "c n r"]:
    """Without the quantities that stand still in each chain, as the point of a :class:`PointEstimate`; log p stays.

    Two runs of training end at points that are close to each other, but infinitely many of their spreads, 0, apart.
    """
    moves = ~(chains == chains[:, :1]).all(1).all(0)
    moves[-1] = True
    return chains[..., moves]


def _thinned(drawn: _Drawn, most: int) -> Float[Tensor, "m d"]:
    """Draws of a chain that are about independent: each ``n / ESS``-th, for the slowest coordinate or log p."""
    values = torch.cat([_some(drawn.x), drawn.log_p[:, None]], dim=-1)
    effective = of_chains("ess", values[None]).nan_to_num(float(len(values)))
    step = max(1, int(len(values) / float(effective.min())))
    return _evenly(drawn.x[::step], most)


def _scores(target: Target, x: Float[Tensor, "n d"], bar) -> Float[Tensor, "n d"]:
    found = []
    for rows in x.split(AT_ONCE):
        found += [score(target, some) for some in rows.split(_at_once(target))]
        bar.update()
    s = torch.cat(found)
    if not bool(torch.isfinite(s).all()):
        raise GPVIError(f"the gradient of log_prob of {type(target).__name__} is not finite at some draws")
    return s


# ---------------------------------------------------------------- all of it


def check(
    sampler: Sampler | Tensor | HMCResult | Sequence[Sampler] | Sequence[Tensor],
    target: Target,
    rng: torch.Generator | None = None,
    *,
    seed: int | None = None,
    num_samples: int = 2_000,
    quantities: Quantities | None = None,
    progress: bool = True,
) -> CheckReport:
    r"""Say whether samples can be trusted, on a target without a reference.

    ============  =======================================================  ==========================================
    finding       value                                                    where
    ============  =======================================================  ==========================================
    ``k_hat``     Pareto k̂ of the importance weights ``w = p(x) / q(x)``   samplers with a density
    ``weights``   their effective number ``(Σ w_i)^2 / Σ w_i^2``           the same
    ``elbo``      ``E[log p - log q]`` beside the evidence ``log E[p/q]``  the same
    ``folds``     share of draws with ``det J < 0``                        generators with k up to 512
    ``ksd``       squared kernel Stein discrepancy in its null band        everywhere
    ``spread``    ``-E[∇log p(x)·(x - x̄)] / d``, 1 for exact draws         everywhere
    ``r_hat``     rank-normalised split R-hat                              several samplers or chains; one slow chain
    ============  =======================================================  ==========================================

    Each has a verdict, *trust*, *look* or *don't*; the overall verdict is the worst. The thresholds are constants of
    ``gpvi_lib.trust_findings``, and ``report.rules()`` prints them with their sources.

    Read *look* as a question. In hundreds of dimensions q and p share few typical draws even where every prediction
    agrees, so that the checks of the weights rarely say *trust* of the posterior of a network. And none of the checks
    sees a mode that no draw is near: train several samplers from other starts, and give them all.

    Args:
        sampler: a sampler, draws ``(n, d)``, an :class:`HMCResult`; or a list of samplers that were trained
            independently, or of chains. Of several samplers the worst counts in what needs a density; ``ksd`` and
            ``spread`` are of all draws together. Draws are taken to be one chain in its order, and thinned to about
            independent ones for ``ksd`` and ``spread``. Of one chain that is worth fewer than 20 such draws, which
            hide whatever is wrong, ``r_hat`` compares the halves. The order of :class:`Particles` means nothing: they
            are shuffled, always alike, and not thinned, so give draws of chains as a tensor or an :class:`HMCResult`,
            not as particles. The point u of a :class:`PointEstimate` has no spread: ``ksd`` and ``spread`` are of θ
            given u, ``r_hat`` leaves out what u alone decides, and no finding says whether u is the best.
        target: with ``log_prob``; all of its data are used.
        rng: of draws and of the bootstrap, on the sampler's device; advanced in place.
        seed: in place of ``rng``: of a generator made for this, where the sampler is.
        num_samples: draws of each sampler, at least 100; of longer chains as many are used. ``r_hat`` asks for 100
            effective draws of each, so that it says *trust* of more than 100 only.
        quantities: ``(n, d) -> (n, q)``, what repeats have to agree on, besides log p. By default the outputs of a
            network at up to 50 of its data, because weights may be permuted; for other targets the coordinates.
        progress: whether to show a bar where it takes more than three seconds.

    Returns:
        A report that prints, shows as HTML in a notebook, and plots.

    Raises:
        GPVIError: for draws of another shape, not finite or fewer than 20; a target that is not finite there, or whose
            number for one draw depends on the others; quantities of another shape; repeats that are copies; or if ArviZ
            is not installed (the extra ``paper``).

    Warns:
        SlopeWarning: if the gradient of the target is not the slope of its values.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> report = check(MeanField(torch.zeros(2), scale=1.0), target, rng)
        >>> report.verdict, report["k_hat"].value < 0.5
        ('trust', True)
        >>> report = check([MeanField(torch.full((2,), mean), scale=1.0) for mean in (-1.0, 1.0)], target, rng)
        >>> report.verdict, report["r_hat"].verdict
        ("don't", "don't")
    """
    check_count("num_samples", num_samples, least=100)
    if not (hasattr(target, "dim") and callable(getattr(target, "log_prob", None))):
        raise GPVIError(f"the target must have dim and log_prob(x), got {type(target).__name__}: see gpvi_lib.Target")
    parts = _as_parts(sampler)
    _refuse_copies(parts)
    rng, order = chosen_rng(rng, seed, _where(parts[0])), torch.Generator().manual_seed(ORDER_SEED)
    first = max(_before_theta(part) for part in parts)
    no_density = next(filter(None, (_no_density(part, rng) for part in parts)), None)
    no_signs = next(filter(None, (_no_signs(part, no_density) for part in parts)), None)
    calls = len(parts) * math.ceil(num_samples / AT_ONCE) + math.ceil(SCORED / AT_ONCE)
    with tqdm(total=calls, desc="check", disable=not progress, leave=False, delay=3) as bar:
        draws = (_draws(part, num_samples, no_density is None, rng, order) for part in parts)
        drawn = [_drawn(target, of_one, bar) for of_one in draws]
        no_weights = no_density or _too_coarse(drawn)
        check_all_data(target, drawn[0].x)
        check_rows(lambda rows: log_prob(target, rows), drawn[0].x, apart=points_differ(target))
        check_slope(target, drawn[0].x, _few(target, drawn[0].x), stacklevel=3)
        share = max(1, SCORED // len(parts))
        pairs = zip(parts, drawn, strict=True)
        looked_at = [_thinned(one, share) if isinstance(part, Tensor) else one.x[:share] for part, one in pairs]
        x = torch.cat(looked_at)
        x, s = x[:, first:], _scores(target, x, bar)[:, first:]
    findings: list[Finding] = []
    if no_weights is None:
        findings += _worst([weight_findings(_log_weights(one)) for one in drawn])
    if no_signs is None:
        findings += _worst([[fold_finding(_signs(one))] for one in drawn])
    findings += [ksd_finding(x.double(), s.double(), rng), spread_finding(x.double(), s.double(), first)]
    missing = dict.fromkeys(("k_hat", "weights", "elbo"), no_weights) | {"folds": no_signs, "point": _no_point(first)}
    slow = len(parts) == 1 and isinstance(parts[0], Tensor) and len(looked_at[0]) < LEAST
    if isinstance(sampler, HMCResult) and len(parts) > 1 and not sampler.apart:
        missing["r_hat"] = "all chains started at one point, so that they may agree on a part: start them apart"
    elif len(parts) > 1 or slow:
        found = [_quantities(one, quantities or _default_quantities(target)) for one in drawn]
        n = min(len(one) for one in found)
        chains = torch.stack([one[:n] for one in found])
        findings.append(r_hat_finding(_not_held(chains) if first else chains))
    else:
        missing["r_hat"] = "one sampler or chain cannot disagree with itself: give a list of several"
    return CheckReport(
        _subject(parts, target, drawn),
        tuple(findings),
        {key: why for key, why in missing.items() if why},
        _blind(parts, no_weights is None),
    )


@torch.no_grad()
def _refuse_copies(parts: list[Sampler | Tensor]) -> None:
    """Repeats that are copies agree whatever they found.

    Raises:
        GPVIError: naming two of them.
    """
    seen: dict[bytes, int] = {}
    for number, part in enumerate(parts):
        x = part if isinstance(part, Tensor) else _first_draws(part)
        first = seen.setdefault(x.double().cpu().contiguous().numpy().tobytes(), number)
        if first != number:
            raise GPVIError(
                f"repeats {first} and {number} are copies of each other, and would agree whatever they found: train "
                "each from its own start and with its own seed"
            )


def _first_draws(sampler: Sampler) -> Float[Tensor, "n d"]:
    """Those of one seed: copies have the same."""
    number = LEAST if sampler.fixed_number is None else None
    return sampler.sample(number, torch.Generator(_where(sampler)).manual_seed(0))


def _too_coarse(drawn: list[_Drawn]) -> str | None:
    """Why log p cannot be weighed, in words, if rounding moves it too far."""
    log_p = torch.cat([one.log_p for one in drawn])
    coarse = coarseness(float(log_p.abs().median()), log_p.dtype)
    return coarse and f"{coarse}: compute in float64"


def _few(target: Target, x: Tensor) -> Tensor | None:
    """Indices of a few data, where the target takes them: all would have to be read for each of many points."""
    number = getattr(target, "num_data", None)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return None
    few = torch.arange(min(number, FEW), device=x.device)
    try:
        log_prob(target, x[:1], few)
    except (TypeError, RuntimeError, ValueError):  # it takes no minibatches, or not of this size
        return None
    return few


def _log_weights(drawn: _Drawn) -> Float[Tensor, " n"]:
    assert drawn.log_q is not None, "asked where there is a density"
    return drawn.log_p - drawn.log_q


def _signs(drawn: _Drawn) -> Float[Tensor, " n"]:
    assert drawn.sign is not None, "asked where there are signs"
    return drawn.sign


def _independent(part: Sampler | Tensor) -> bool:
    """Whether any number of draws can be had."""
    return isinstance(part, Sampler) and part.fixed_number is None


def _no_point(first: int) -> str | None:
    """What is not said of the numbers before θ of a :class:`PointEstimate`."""
    if first == 0:
        return None
    which = "coordinate 0 is" if first == 1 else f"coordinates 0 to {first - 1} are"
    return f"{which} a point estimate: ksd and spread are of the others given it, and none says whether it is the best"


def _worst(of_each: list[list[Finding]]) -> list[Finding]:
    """Of each finding the one with the worst verdict among the samplers, the first of them."""
    return [max(column, key=lambda finding: VERDICTS.index(finding.verdict)) for column in zip(*of_each, strict=True)]


def _subject(parts: list[Sampler | Tensor], target: Target, drawn: list[_Drawn]) -> str:
    what = type(parts[0]).__name__ if isinstance(parts[0], Sampler) else "draws"
    several = f"{len(parts)} × " if len(parts) > 1 else ""
    each = " each" if len(parts) > 1 else ""
    return f"{several}{what} on {type(target).__name__}, d = {target.dim}, {len(drawn[0].x):,} draws{each}"


def _blind(parts: list[Sampler | Tensor], weighted: bool) -> str:
    unweighted = "" if weighted else ", and without a density none sees wrong weights of modes far apart"
    if len(parts) > 1:
        alike = "" if weighted else ", if the repeats share them"
        return f"No check sees a part of the target that none of the repeats found{unweighted}{alike}."
    return (
        f"No check here sees a mode that no draw is near{unweighted}: give several samplers trained from other starts, "
        "or chains."
    )
