"""The checks that :func:`gpvi_lib.check` makes: from draws, weights and scores to findings with a verdict."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.errors import GPVIError
from gpvi_lib.extras import optional
from gpvi_lib.kernels import RBF, squared_distances
from gpvi_lib.metrics import stein_kernel
from gpvi_lib.targets.posterior import evenly_spaced
from gpvi_lib.trust_report import Finding

# ---------------------------------------------------------------- thresholds, and who says so

K_HAT = 0.7
"""Trust up to it, or ``1 - 1 / log10(S)`` for S draws (Vehtari et al. 2024, Pareto smoothed importance sampling)."""
K_HAT_NO_MEAN = 1.0
"""Don't above it, for the fitted tail of the weights has no finite mean (the same paper)."""
EVEN = 0.99
"""Trust k̂ whatever it is from this effective share on, for it is of a tail that carries next to no weight (ours)."""
TOTAL_VARIATION = 0.25
"""Trust while a bound on the total variation of q and p is below it; don't from 1 on, where it says nothing (ours)."""
SIGNIFICANCE = 0.01
"""Of a test that exact draws fail by chance (ours); low, as one report holds several tests."""
TOO_REGULAR = 0.999
"""Look above this p-value, for points that repel each other are no independent draws (ours)."""
WORTH = 25.0
"""Don't if the bias that the KSD sees is as large as the noise of fewer exact draws than these (ours)."""
NEAR = 1.25
"""Factor of the spread beyond which to look (ours)."""
FAR = 2.0
"""Factor of the spread beyond which not to trust (ours)."""
FOLDED = 0.01
"""Don't from this share of draws on whose det J has the other sign (ours); look at any."""
R_HAT = 1.01
"""Trust up to it (Vehtari et al. 2021, Rank-normalization, folding, and localization)."""
EFFECTIVE = 100
"""Look below so many effective draws a chain (the same paper, 400 for four chains)."""
R_HAT_OLD = 1.1
"""Don't above it, the limit of Gelman et al. 2014, "Bayesian Data Analysis", 11.5, that the former replaced."""

BOOTSTRAPS = 1_000
DIRECTED = 20
"""Draws below which no directions are looked for: half of them choose, half judge."""
DIRECTIONS = 500
"""Coordinates among which directions are looked for, at most."""
FLAT = 1e-3
"""Log-weights within so few nats of each other have no tail to fit."""


# ---------------------------------------------------------------- ArviZ


def import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version when imported
        return optional("arviz")


def of_chains(function: str, values: Float[Tensor, "c n q"]) -> Float[Tensor, " q"]:
    """``arviz.rhat`` or ``arviz.ess``, per quantity; NaN where a quantity never changes."""
    arviz = import_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # 0 / 0 of a quantity that never changes
        data = arviz.convert_to_dataset({"q": values.double().cpu().numpy()})
        return torch.as_tensor(getattr(arviz, function)(data)["q"].values).reshape(-1).clone()


def pareto_smoothed(log_weights: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], float, float]:
    """Smooth importance weights (PSIS, by ArviZ).

    Args:
        log_weights: ``log p - log q`` at draws of q.

    Returns:
        Smoothed weights with sum 1, k̂ of their tail, and the log of their mean before they were normalised. Weights
        that hardly differ have no tail: their k̂ is 0.

    Raises:
        GPVIError: if ArviZ is not installed (the extra ``paper``).

    Example:
        >>> weights, k_hat, log_mean = pareto_smoothed(torch.randn(1_000, generator=torch.Generator().manual_seed(0)))
        >>> weights.shape, k_hat < 0.7, 0.3 < log_mean < 0.7  # of a lognormal: 1 / 2
        (torch.Size([1000]), True, True)
    """
    log_w = log_weights.detach().double().cpu()
    if float(log_w.max() - log_w.min()) < FLAT:
        return torch.full_like(log_w, 1 / len(log_w)), 0.0, float(log_w.mean())
    with np.errstate(over="ignore"):  # the quantiles of a tail of weights that are almost all in one draw
        smoothed, k_hat = import_arviz().psislw(log_w.numpy().copy())
    smoothed = torch.as_tensor(smoothed)
    least = int(log_w.argmin())  # never in the tail, so that smoothing left it as it was
    return smoothed.exp(), float(k_hat), float(log_w[least] - smoothed[least]) - math.log(len(log_w))


# ---------------------------------------------------------------- the checks


MEANINGS = {
    "k_hat": {
        "trust": "The weights p/q have a light enough tail: estimates that are reweighted by them converge.",
        "even": "The weights p/q are all but equal: their tail is heavy in shape and carries nothing.",
        "look": "The weights p/q have a heavy tail: the sampler is too narrow somewhere, so do not read its tails.",
        "don't": "The weights p/q seem to have no mean: next to the draws lies mass that the sampler all but misses.",
    },
    "weights": {
        "trust": "The draws weigh about the same: q and p nearly agree where q puts its draws.",
        "look": "The draws differ in weight: reweight them for what needs to be exact.",
        "don't": "The draws differ so much in weight that, without it, they stand for another density.",
    },
    "elbo": {
        "trust": "The ELBO comes close to the evidence that the weights estimate.",
        "look": "The ELBO stays below the evidence that the weights estimate: train longer, or give q more room.",
        "don't": "The ELBO is far below the evidence that the weights estimate: q and p may have little in common.",
    },
    "ksd": {
        "trust": "A kernel test cannot tell these draws from exact ones.",
        "look": "The draws are not quite the target's: a kernel test tells them from exact ones.",
        "don't": "The draws are not the target's: a few exact ones would do as well.",
        "regular": "The points are more even than draws: they repel each other, and a test for draws is not for them.",
    },
    "spread": {
        "trust": "On average the draws are as wide as the slope at them asks for, which does not prove enough width.",
        "look": "The draws are too narrow or too wide somewhere: do not read intervals off them.",
        "don't": "The draws are far too narrow, far too wide or off the target: their uncertainty is not the target's.",
        "outwards": "log_prob grows away from the draws: it is the negative of a log-density, or they are off it.",
    },
    "folds": {
        "trust": "det J has one sign at all draws: no fold was seen, which does not prove that there is none.",
        "look": "The map folds at a few draws: q's claimed density is slightly too small there, and the ELBO too high.",
        "don't": "The map folds: several z lead to one x, so the density of q, and all that uses it here, is wrong.",
    },
    "r_hat": {
        "trust": "The repeats agree, so that where they started does not matter.",
        "look": "The repeats do not quite agree, or hold too few draws to say so: train or run longer.",
        "don't": "The repeats disagree: each found another part of the target, and none alone stands for it.",
        "halves": "The halves of the chain disagree, or it is worth too few draws to say: run it much longer.",
    },
}
TITLES = {
    "k_hat": "Pareto k̂ of the weights",
    "weights": "effective draws by weight",
    "elbo": "ELBO",
    "ksd": "kernel Stein discrepancy",
    "spread": "spread (exact: 1)",
    "folds": "share with det J < 0",
    "r_hat": "R-hat",
}


def _finding(
    key: str, value: float, shown: str, verdict: str, rule: str, *, meaning: str | None = None, **arrays: Tensor
) -> Finding:
    """A finding with the sentence of its verdict, or of ``meaning``."""
    return Finding(key, TITLES[key], value, shown, verdict, MEANINGS[key][meaning or verdict], rule, arrays)


def _graded(value: float, trust: float, dont: float) -> str:
    """The verdict on a value that is better the smaller it is."""
    return "trust" if value <= trust else "look" if value < dont else "don't"


def weight_findings(log_weights: Float[Tensor, " n"]) -> list[Finding]:
    """k̂, the effective number of draws, and the ELBO with its distance from the evidence."""
    log_w = log_weights.double().cpu()
    if not bool(torch.isfinite(log_w).all()):
        raise GPVIError("the sampler's log-density is not finite at its own draws: its Jacobian is singular there")
    weights, k_hat, log_mean = pareto_smoothed(log_w)
    elbo = float(log_w.mean())
    return [
        _k_hat_finding(k_hat, weights),
        _effective_finding(weights),
        _elbo_finding(elbo, float(log_w.std()) / len(log_w) ** 0.5, max(0.0, log_mean - elbo)),
    ]


def _k_hat_finding(k_hat: float, weights: Float[Tensor, " n"]) -> Finding:
    """The shape of the tail says nothing of its size: weights between 0.99 and 1.01 can have any k̂."""
    number = len(weights)
    limit, even = min(1 - 1 / math.log10(number), K_HAT), 1 / float(weights.square().sum()) >= EVEN * number
    rule = (
        f"trust up to min(1 - 1/log10 S, {K_HAT}) = {limit:.2f} for S = {number:,} draws, don't from "
        f"{K_HAT_NO_MEAN:g} on (Vehtari et al. 2024); trust too while the draws by weight are {EVEN:.0%} of S (ours)"
    )
    verdict = "trust" if even else _graded(k_hat, limit, K_HAT_NO_MEAN)
    heavy = even and k_hat > limit
    shown = f"{k_hat:.2f}" + (", of a tail without weight" if heavy else "")
    return _finding("k_hat", k_hat, shown, verdict, rule, meaning="even" if heavy else None)


def _effective_finding(weights: Float[Tensor, " n"]) -> Finding:
    """The number ``1 / Σ w_i^2``: by ``χ²(p|q) = S / ESS - 1`` it bounds the total variation."""
    number, effective = len(weights), 1 / float(weights.square().sum())
    far = 0.5 * math.sqrt(max(0.0, number / effective - 1))
    rule = (
        f"total variation is at most √(S/ESS - 1)/2 = {far:.2f}: trust up to {TOTAL_VARIATION:g}, don't from 1 on, "
        "where the bound says nothing (ours)"
    )
    shown = f"{effective:,.0f} of {number:,}"
    return _finding("weights", effective, shown, _graded(far, TOTAL_VARIATION, 1.0), rule, weights=weights)


def _elbo_finding(elbo: float, error: float, gap: float) -> Finding:
    """The evidence is ``log E_q[p / q]``, which its estimate from draws misses from below: so does ``gap``, KL(q|p)."""
    far = math.sqrt(gap / 2)
    rule = (
        f"KL(q|p) = log evidence - ELBO is {gap:.2f} nats or more, and total variation at most √(KL/2) (Pinsker): "
        f"trust up to {TOTAL_VARIATION:g}, don't from 1 on (ours)"
    )
    shown = f"{elbo:,.2f} ± {error:.2f} nats, {gap:.2f} below the evidence"
    return _finding("elbo", elbo, shown, _graded(far, TOTAL_VARIATION, 1.0), rule)


def wild_bootstrap(u: Float[Tensor, "n n"], rng: torch.Generator, number: int = BOOTSTRAPS) -> Float[Tensor, " number"]:
    r"""The mean of a Stein kernel as it would vary if the draws were exact and independent.

    .. math:: B = \frac1{n^2} \sum_{ij} ε_i ε_j u_p(x_i, x_j), \quad ε_i = ±1,

    the wild bootstrap of Chwialkowski, Strathmann and Gretton 2016 for independent draws.

    Args:
        u: :func:`gpvi_lib.metrics.stein_kernel` of ``n`` draws.
        rng: of the signs.
        number: how many, 1,000 unless given.

    Example:
        >>> from gpvi_lib.metrics import stein_kernel
        >>> rng = torch.Generator().manual_seed(0)
        >>> x = torch.randn(200, 2, generator=rng)
        >>> u = stein_kernel(x + 1, -(x + 1), RBF(2.0))  # of N(0, I), at draws that are shifted
        >>> bool(u.mean() > wild_bootstrap(u, rng).max())
        True
    """
    signs = torch.randint(2, (number, len(u)), generator=rng, dtype=u.dtype, device=u.device) * 2 - 1
    return ((signs @ u) * signs).sum(-1) / len(u) ** 2


def ksd_finding(x: Float[Tensor, "n d"], s: Float[Tensor, "n d"], rng: torch.Generator) -> Finding:
    """The squared KSD, in units of each coordinate's standard deviation, beside its wild bootstrap.

    The bandwidth is the squared median distance (Liu, Lee and Jordan 2016): the paper's, which is smaller by
    ``log n``, leaves next to no power in many dimensions.
    """
    sd = x.std(0)
    sd = torch.where(sd > 0, sd, 1.0)
    x, s, n = x / sd, s * sd, len(x)
    squared = squared_distances(x, x)
    median = float(squared[~torch.eye(n, dtype=torch.bool, device=x.device)].median())
    u = stein_kernel(x, s, RBF(median or 1.0))
    found, null = float(u.mean()), wild_bootstrap(u, rng)
    p_value = (1 + int((null >= found).sum())) / (1 + len(null))
    own = u.diagonal()
    worth = float(own.mean()) / (float(u.sum() - own.sum()) / (n * (n - 1)))
    seen, regular = p_value < SIGNIFICANCE, p_value > TOO_REGULAR
    verdict = "don't" if seen and worth < WORTH else "look" if seen or regular else "trust"
    rule = (
        f"p-value {p_value:.3f} of the wild bootstrap (Chwialkowski et al. 2016; median RBF, Liu et al. 2016): "
        f"trust from {SIGNIFICANCE:g} to {TOO_REGULAR:g}; below, don't if the draws are worth fewer than {WORTH:g} "
        "exact ones (ours)"
    )
    low, high = (float(null.quantile(1 - p)) for p in (TOO_REGULAR, SIGNIFICANCE))
    shown = f"{found:.3g}, exact draws {low:.3g} to {high:.3g}"
    shown += f", worth {worth:,.0f} exact ones" if seen else ""
    return _finding("ksd", found, shown, verdict, rule, meaning="regular" if regular else None, null=null.cpu())


def spread_finding(x: Float[Tensor, "n d"], s: Float[Tensor, "n d"], first: int = 0) -> Finding:
    r"""``-E[s_i (x_i - x̄_i)]``, 1 for exact draws of any density (Stein's identity for f(x) = x - mean).

    Of a Gaussian target it is ``(Σ_q Σ^{-1})_ii``: with independent coordinates the draws' variance over the target's.
    The best independent draws have 1 too, so that 1 does not prove enough width: what they lack are correlations, see
    :func:`extreme_directions`. The kernel of the KSD fades with the number of dimensions, this does not: SVGD's
    collapse (Ba et al. 2022) is seen here. An error is taken to be no smaller than of draws from a Gaussian,
    ``√(2/n)``: collapsed draws would be too sure of themselves. ``first`` is the number of the first column.
    """
    n, d = x.shape
    terms = _widths(x, s)
    values, errors = _mean_and_error(terms)
    whole, error = float(terms.mean()), max(float(terms.mean(1).std()) / n**0.5, (2 / (n * d)) ** 0.5)
    z = float(torch.special.ndtri(torch.tensor(1 - 0.5 * SIGNIFICANCE / (d + 3), dtype=torch.float64)))
    parts, ends = _parts(x, s, values, errors, z, first) if d > 1 else ({}, {})
    verdict = _spread_verdict(whole, z * error)
    off = [name for name, (value, its) in parts.items() if _spread_verdict(value, z * its) != "trust"]
    verdict = "look" if off and verdict == "trust" else verdict
    where = next(iter(off or parts), None) if verdict != "trust" else None
    rule = (
        f"Stein's identity makes it 1: trust if 1 is within {z:.1f} standard errors or it is within a factor {NEAR:g}, "
        f"don't if all of that interval is outside a factor {FAR:g}; a single coordinate or direction counts for a "
        "look (ours)"
    )
    shown = f"{whole:.2f} ± {error:.2f}" + (f", {where}: {parts[where][0]:.2f}" if where else "")
    arrays = {"values": values.cpu(), "errors": errors.cpu()} | ends
    meaning = "outwards" if whole + z * error < 0 else verdict
    return Finding("spread", TITLES["spread"], whole, shown, verdict, MEANINGS["spread"][meaning], rule, arrays)


def _parts(
    x: Tensor, s: Tensor, values: Tensor, errors: Tensor, z: float, first: int
) -> tuple[dict[str, tuple[float, float]], dict[str, Tensor]]:
    """The coordinate that is farthest off and the extreme directions, by name, each with its error; and the latter.

    Coordinates are counted from ``first`` on. One that is not to be trusted goes before all that are, however sure
    these are not to be 1: they lie within the factor ``NEAR``.
    """
    pairs = list(zip(values.tolist(), errors.tolist(), strict=True))
    off = [(_spread_verdict(value, z * error) != "trust", abs(value - 1) / error) for value, error in pairs]
    worst = off.index(max(off))
    parts = {f"coordinate {first + worst}": pairs[worst]}
    if len(x) < DIRECTED:
        return parts, {}
    found, its = (of.cpu() for of in extreme_directions(x, s))
    names = ("narrowest direction", "widest direction")
    directions = dict(zip(names, zip(found.tolist(), its.tolist(), strict=True), strict=True))
    return parts | directions, {"directions": found, "direction_errors": its}


def _widths(x: Float[Tensor, "n q"], s: Float[Tensor, "n q"]) -> Float[Tensor, "n q"]:
    """``-s (x - x̄)``, with mean 1 for exact draws."""
    return -s * (x - x.mean(0)) * (len(x) / (len(x) - 1))


def _mean_and_error(terms: Float[Tensor, "n q"]) -> tuple[Float[Tensor, " q"], Float[Tensor, " q"]]:
    """Of each column, the error no smaller than Gaussian draws'."""
    n = len(terms)
    return terms.mean(0), (terms.std(0) / n**0.5).clamp_min((2 / n) ** 0.5)


def extreme_directions(
    x: Float[Tensor, "n d"], s: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, " 2"], Float[Tensor, " 2"]]:
    r"""The spread along the directions in which the draws are narrowest and widest for their target.

    With ``L Lᵀ`` the draws' covariance, ``y = L^{-1} (x - x̄)`` and ``s_y = Lᵀ s``, exact draws of any density have

    .. math:: -E[s_y y^⊤] = I,

    and of a Gaussian target the matrix is ``Lᵀ Σ^{-1} L``: its eigenvalues are the draws' variance over the target's.
    Every other draw chooses the first and the last eigenvector; the others say how wide they are along them, so that
    1 is what is expected however the directions were chosen.

    Args:
        x: draws, at least 20; of more than 500 coordinates 500 are used, evenly spaced.
        s: their ``∇log p``.

    Returns:
        The spread along the two, and its standard errors.

    Example:
        >>> slope = torch.tensor([[1.0, -0.9], [-0.9, 1.0]]) / 0.19  # Σ^{-1} of correlation 0.9
        >>> x = 0.19**0.5 * torch.randn(1_000, 2, generator=torch.Generator().manual_seed(0))  # mean field's optimum
        >>> values, errors = extreme_directions(x, -x @ slope)
        >>> bool((values - torch.tensor([0.1, 1.9])).abs().lt(4 * errors).all())
        True
    """
    at = evenly_spaced(x.shape[1], DIRECTIONS, x.device)
    x, s = x[:, at], s[:, at]
    chosen = x[::2] - x[::2].mean(0)
    m, d = chosen.shape
    scale = torch.where(chosen.std(0) > 0, chosen.std(0), 1.0)
    shrink = d / (d + m)  # towards independence, for the covariance of few draws has no inverse
    covariance = (1 - shrink) * (chosen / scale).T.cov() + shrink * torch.eye(d, dtype=x.dtype, device=x.device)
    factor = torch.linalg.cholesky(covariance)

    def whitened(rows: slice) -> tuple[Tensor, Tensor]:
        y = torch.linalg.solve_triangular(factor, ((x[rows] - x[rows].mean(0)) / scale).T, upper=False).T
        return y, (s[rows] * scale) @ factor

    y, s_y = whitened(slice(0, None, 2))
    vectors = torch.linalg.eigh(-(s_y.T @ y + y.T @ s_y) / (2 * m)).eigenvectors[:, [0, -1]]
    y, s_y = whitened(slice(1, None, 2))
    return _mean_and_error(_widths(y @ vectors, s_y @ vectors))


def _spread_verdict(value: float, margin: float) -> str:
    if abs(value - 1) <= margin or 1 / NEAR <= value <= NEAR:
        return "trust"
    return "don't" if value + margin < 1 / FAR or value - margin > FAR else "look"


def fold_finding(sign: Float[Tensor, " n"]) -> Finding:
    """How many of the draws lie where det J is negative."""
    share = float((sign < 0).double().mean())
    fewer = min(share, 1 - share)
    verdict = "trust" if fewer == 0 else "look" if fewer < FOLDED else "don't"
    rule = f"share of the rarer sign of det J: trust at 0, don't from {FOLDED:g} on (ours; both signs prove a fold)"
    return _finding("folds", share, f"{share:.3f}", verdict, rule)


def r_hat_finding(chains: Float[Tensor, "c n q"]) -> Finding:
    """Rank-normalised split R-hat and the bulk effective number of draws, the worst over quantities.

    Of one chain, which is asked for them where it is slow, it compares the halves: those alone earn no *trust*.
    """
    c, n, q = chains.shape
    compared = chains if c > 1 else chains[0, n % 2 :].reshape(2, n // 2, q)  # ArviZ has none of one chain
    r_hat, effective = of_chains("rhat", compared), of_chains("ess", chains)
    constant = (chains == chains[:1, :1]).all(0).all(0).cpu()
    r_hat = torch.where(constant, 1.0, r_hat.nan_to_num(torch.inf))  # a quantity that stands still in each chain
    effective = torch.where(constant, torch.inf, effective.nan_to_num(0.0))
    worst, least = float(r_hat.max()), float(effective.min())
    verdict = _graded(worst, R_HAT, R_HAT_OLD)
    if verdict == "trust" and (c == 1 or least < EFFECTIVE * c):
        verdict = "look"
    rule = (
        f"trust up to {R_HAT} with {EFFECTIVE} effective draws a chain (Vehtari et al. 2021), don't from {R_HAT_OLD} "
        "on (Gelman et al. 2014); rank-normalised, split, the worst quantity"
    )
    between, meaning = ("its halves", "halves") if c == 1 else (c, None)
    shown = f"{worst:.3f} between {between}, {min(least, c * n):,.0f} effective draws"
    return _finding("r_hat", worst, shown, verdict, rule, meaning=meaning, r_hat=r_hat, limit=torch.tensor(R_HAT))
