r"""The entropy of ``θ = g(z) + s ⊙ η``: LIVI's approximations, and a certified bracket.

With ``J̃ = diag(1/s) ∂g/∂z`` and ``M = I_k + J̃ᵀJ̃`` the approximation, g linearised at the z that produced θ, is

.. math:: H' = \tfrac m2 (1 + \log 2π) + Σ_i \log s_i + \tfrac12 E_z \log \det M,

the entropy itself for affine g and no bound in either direction for curved g; ``H''`` has ``(k/2) log(1 + s̃_1^2)`` in
place of the last term, ``s̃_1`` the smallest singular value of J̃, and is below H' where s̃_1 is exact. All of this is
done in float64, where the squares of singular values below 1e-8 of the largest are rounding (float32: 1e-4). If that
rounding counts beside the 1 in M, :class:`~gpvi_lib.DivergedError` is raised.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_count, check_rng
from gpvi_lib.errors import DivergedError
from gpvi_lib.latent import LatentJacobian, LatentSampler, latent_part
from gpvi_lib.samplers import Sampler, normal_log_prob
from gpvi_lib.targets.base import Target, log_prob

NEWTON_STEPS = 30
HALVINGS = 12
"""Of a step that does not go uphill."""
LEAP, LEAPS = 0.3, 3
"""Mean size and number of the leapfrog steps of a Hamiltonian move, in the unit of the proposal at the mode."""
VALUES_AT_ONCE = 50
"""Points at which a target is evaluated in one call."""
AT_ONCE = 4_000_000
"""Numbers in one tensor of the bracket, which bounds its memory."""
ARRIVED = 1e-12
"""A residual below this part of the operator's norm is rounding: the search stays where it is."""
DEAD = 1e-6
"""A direction with less than this part of its length outside the others adds nothing to them but rounding."""
ROUNDING = 1e-3
"""The largest part of a number in a logarithm of H' or H'' that may be rounding of the largest square beside it."""


# ---------------------------------------------------------------- the smallest singular value


@dataclass(frozen=True)
class SmallestValue:
    """What :func:`smallest_singular_value` found at ``n`` points.

    Attributes:
        value: ``|J̃ v|``, ``(n,)``: an upper bound on the smallest singular value.
        vector: v, unit vectors, ``(n, k)``.
        history: ``|J̃ v|^2`` before the first iteration and after each, ``(iterations + 1, n)``; never rising.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(9, 4, (8,), noise_scale=0.1, rng=rng)
        >>> _, jacobian = sampler.latent_linearize(torch.randn(3, 4, generator=rng))
        >>> found = smallest_singular_value(jacobian, 2, rng)
        >>> found.value.shape, found.vector.shape, found.history.shape
        (torch.Size([3]), torch.Size([3, 4]), torch.Size([3, 3]))
    """

    value: Float[Tensor, " n"]
    vector: Float[Tensor, "n k"]
    history: Float[Tensor, "t n"]


@torch.no_grad()
def smallest_singular_value(
    jacobian: LatentJacobian, iterations: int | None, rng: torch.Generator | None = None
) -> SmallestValue:
    """The smallest singular value of ``J̃ = diag(1/s) J`` at each point, in float64.

    By LOBPCG (Knyazev 2001), batched and without a matrix: Rayleigh–Ritz on the span of v, the residual and the last
    move, with one product ``J̃ᵀJ̃`` an iteration. Rayleigh quotients come from *above*: a search that is stopped early
    overestimates. Either way values below 1e-8 of the largest are no more than that, as their squares are rounding.

    Args:
        jacobian: at ``n`` points.
        iterations: of LOBPCG, or ``None`` for the eigenvectors of the Gram matrix, exact.
        rng: of the first v, uniform on the sphere.

    Raises:
        ValueError: if ``iterations`` is no whole number >= 1, or there is no ``rng`` for them.
        DivergedError: if a singular value is not finite, or 1 + the smallest squared drowns in the largest squared.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(9, 4, (8,), noise_scale=0.1, rng=rng)
        >>> _, jacobian = sampler.latent_linearize(torch.randn(3, 4, generator=rng))
        >>> stopped, exact = smallest_singular_value(jacobian, 2, rng), smallest_singular_value(jacobian, None)
        >>> bool((stopped.value >= exact.value).all())
        True
    """
    jacobian = jacobian.double()
    if iterations is None:
        squares, vectors = torch.linalg.eigh(_finite(jacobian.gram()))
        vector = vectors[:, :, 0]
        value = squared_length(jacobian, vector)
        _check_not_drowned(jacobian, 1 + value, squares[:, -1])
        return SmallestValue(value.sqrt(), vector, value[None])
    check_iterations(iterations)
    check_rng(rng)
    assert jacobian.noise_scale is not None, "a LatentSampler has it"
    like = jacobian.noise_scale
    shape = (jacobian.num_points, jacobian.noise_dim)
    v = torch.randn(*shape, generator=rng, dtype=like.dtype, device=like.device)
    v = v / v.norm(dim=-1, keepdim=True)
    v, history, largest = _lobpcg(lambda u: _gram_product(jacobian, u), v, iterations)
    value = squared_length(jacobian, v)
    _check_not_drowned(jacobian, 1 + value, largest)
    return SmallestValue(value.sqrt(), v, history)


def _gram_product(jacobian: LatentJacobian, v: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """``J̃ᵀJ̃ v``."""
    assert jacobian.noise_scale is not None, "a LatentSampler has it"
    pushed = jacobian.latent_jvp(v[:, None]) / jacobian.noise_scale
    return _finite(jacobian.latent_vjp(pushed / jacobian.noise_scale)[:, 0])


def squared_length(jacobian: LatentJacobian, v: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """``|J̃ v|^2``; differentiable."""
    assert jacobian.noise_scale is not None, "a LatentSampler has it"
    return (jacobian.latent_jvp(v[:, None])[:, 0] / jacobian.noise_scale).square().sum(-1)


def _finite(x: Tensor) -> Tensor:
    if not bool(torch.isfinite(x).all()):
        raise DivergedError(
            "the singular values of the sampler's Jacobian over its noise scale s are not finite: lower the learning "
            "rate, or start with a larger s or smaller weights"
        )
    return x


def _check_not_drowned(jacobian: LatentJacobian, found: Float[Tensor, " n"], largest: Float[Tensor, " n"]) -> None:
    """Refuse numbers that were left of others, ``largest``, whose rounding is a part of them that counts.

    Raises:
        DivergedError: naming s and the largest singular value.
    """
    if bool((torch.finfo(largest.dtype).eps * largest < ROUNDING * found).all()):
        return
    assert jacobian.noise_scale is not None, "a LatentSampler has it"
    raise DivergedError(
        "the singular values of the sampler's Jacobian over its noise scale s reach about "
        f"{float(largest.max()) ** 0.5:.0e} at s = {float(jacobian.noise_scale.min()):.2g}, and in double precision "
        "the smallest drown in the rounding of their squares: take a larger noise_scale, or smaller weights"
    )


def _lobpcg(
    product: Callable[[Tensor], Tensor], v: Float[Tensor, "n k"], iterations: int
) -> tuple[Float[Tensor, "n k"], Float[Tensor, "t n"], Float[Tensor, " n"]]:
    """The vectors after ``iterations``, the Rayleigh quotients on the way, and the largest length of an image."""
    image = product(v)
    history = [(v * image).sum(-1)]
    move: tuple[Tensor, Tensor] | None = None
    largest = image.norm(dim=-1, keepdim=True)
    for _ in range(iterations):
        residual = image - history[-1][:, None] * v
        going = (residual.norm(dim=-1, keepdim=True) > ARRIVED * largest).to(v.dtype)
        residual, _ = _outside(going * residual, image, [(v, image)])
        basis = [(v, image), (residual, product(residual))]
        if move is not None:
            basis.append(_outside(going * move[0], going * move[1], basis))
        largest = torch.maximum(largest, basis[1][1].norm(dim=-1, keepdim=True))
        y = _smallest_ritz_vector(basis)[:, :, None]
        points, images = (torch.stack(part, 1) for part in zip(*basis, strict=True))
        move = ((y * points)[:, 1:].sum(1), (y * images)[:, 1:].sum(1))
        v, image = y[:, 0] * v + move[0], y[:, 0] * image + move[1]
        length = v.norm(dim=-1, keepdim=True)
        v, image = v / length, image / length
        history.append((v * image).sum(-1))
    return v, torch.stack(history), largest[:, 0]


def _outside(x: Tensor, image: Tensor, basis: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The part of x outside the basis, of length 1, or 0 where nothing is left; and what becomes of its image.

    Twice is enough for orthogonality to rounding.
    """
    size = x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    x, image = x / size, image / size
    for _ in range(2):
        for v, v_image in basis:
            along = (x * v).sum(-1, keepdim=True)
            x, image = x - along * v, image - along * v_image
    left = x.norm(dim=-1, keepdim=True)
    alive = (left > DEAD) / left.clamp_min(DEAD)
    return alive * x, alive * image


def _smallest_ritz_vector(basis: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "n b"]:
    """Coefficients of the smallest Ritz vector; directions of length 0 are kept out by a large value of their own."""
    left, right = (torch.stack(part, 1) for part in zip(*basis, strict=True))
    ritz = left @ right.mT
    absent = (left == 0).all(-1).to(left.dtype)
    large = 1 + ritz.diagonal(dim1=-2, dim2=-1).abs().sum(-1, keepdim=True)
    return torch.linalg.eigh(0.5 * (ritz + ritz.mT) + torch.diag_embed(absent * large)).eigenvectors[:, :, 0]


# ---------------------------------------------------------------- the approximations


def check_entropy(entropy: str, iterations: int | None) -> None:
    """Raise a ValueError unless :func:`linearized_entropy` knows the two."""
    if entropy not in ("full", "smallest"):
        raise ValueError(f"entropy must be 'full' or 'smallest', got {entropy!r}")
    if iterations is None:
        return
    if entropy == "full":
        raise ValueError(
            "iterations are those of the smallest singular value, leave them out for all; "
            f"got iterations = {iterations} with entropy = {entropy!r}"
        )
    check_iterations(iterations)


def check_iterations(iterations: object) -> None:
    """Raise a ValueError unless LOBPCG can do so many."""
    check_count("iterations (or None, for the exact value)", iterations)


def linearized_entropy(
    jacobian: LatentJacobian,
    entropy: Literal["full", "smallest"] = "full",
    iterations: int | None = None,
    rng: torch.Generator | None = None,
) -> Float[Tensor, " n"]:
    """The terms of H', or H'', at each z, in nats and float64; differentiable.

    The gradient of the smallest singular value is that of ``|J̃ v|^2`` with v held fixed: exact at an eigenvector
    (envelope theorem); the iteration is never differentiated.

    Args:
        jacobian: of a :class:`LatentSampler` at ``n`` points.
        entropy: ``"full"``, H', or ``"smallest"``, H''.
        iterations: of LOBPCG for H''; ``None`` for the exact value.
        rng: of LOBPCG's first vectors.

    Raises:
        ValueError: for an unknown entropy, iterations below 1, or iterations with ``"full"``.
        DivergedError: if singular values are not finite, or so far apart that double precision loses the smaller.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(9, 4, (8,), noise_scale=0.1, rng=rng)
        >>> _, jacobian = sampler.latent_linearize(torch.randn(3, 4, generator=rng))
        >>> bool((linearized_entropy(jacobian, "smallest") <= linearized_entropy(jacobian)).all())
        True
    """
    check_entropy(entropy, iterations)
    jacobian = jacobian.double()
    scale = jacobian.noise_scale
    assert scale is not None, "a LatentSampler has it"
    constant = 0.5 * len(scale) * (1 + math.log(2 * math.pi)) + scale.log().sum()
    if entropy == "full":
        lower = _factor(jacobian)
        return constant + lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    v = smallest_singular_value(jacobian, iterations, rng).vector
    return constant + 0.5 * jacobian.noise_dim * torch.log1p(_finite(squared_length(jacobian, v)))


def _factor(jacobian: LatentJacobian) -> Float[Tensor, "n k k"]:
    """``L`` with ``L Lᵀ = M = I + J̃ᵀJ̃``.

    The squares on the diagonal of L are what elimination leaves of M's, which are as large as the largest singular
    value squared; their rounding is that of log det M.

    Raises:
        DivergedError: if M is not finite, or too much of L is rounding.
    """
    gram = _finite(jacobian.gram())
    precision = gram + torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    lower, failed = torch.linalg.cholesky_ex(precision)
    with torch.no_grad():
        left, largest = (matrix.diagonal(dim1=-2, dim2=-1) for matrix in (lower, precision))
        _check_not_drowned(jacobian, (failed == 0) * left.amin(-1).square(), largest.amax(-1))
    return lower


def linearization_correction(jacobian: LatentJacobian, z: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """``(1/2) (tr M⁻¹ - zᵀM⁻¹z)``: what the two limits ``σ -> 0`` of appendix A leave out of H'.

    The quadratic term of the Gaussian's entropy is ``m/2`` plus its mean over z, which is 0 for affine g.
    """
    lower = _factor(jacobian.double())
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    trace = torch.linalg.solve_triangular(lower, identity, upper=False).square().sum((-2, -1))
    return 0.5 * (
        trace - torch.linalg.solve_triangular(lower, z.double()[..., None], upper=False).square().sum((-2, -1))
    )


# ---------------------------------------------------------------- the bracket


@dataclass(frozen=True)
class EntropyBracket:
    """Bounds of ``log q(θ_i)`` at ``n`` draws of q, each right in the mean over θ and proposals.

    Attributes:
        points: θ, ``(n, m)``.
        latents: the z that produced them, ``(n, k)``.
        low: ``E[low_i] <= E[log q(θ)]``.
        high: ``E[high_i] >= E[log q(θ)]``.
        linearized: H' at the same z, ``(n,)``.
        control: minus the logarithm of the linearised density at θ, less its mean, ``(n,)``: 0 in the mean, and close
            to how far ``-log q(θ)`` is from its own.
        control_se: the standard error of that mean, which is known from other draws.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(3, 1, (8,), noise_scale=0.5, rng=rng)
        >>> found = entropy_bracket(sampler, 50, 20, rng, regression=200)
        >>> found.points.shape, found.latents.shape, found.low.shape
        (torch.Size([50, 3]), torch.Size([50, 1]), torch.Size([50]))
    """

    points: Float[Tensor, "n m"]
    latents: Float[Tensor, "n k"]
    low: Float[Tensor, " n"]
    high: Float[Tensor, " n"]
    linearized: Float[Tensor, " n"]
    control: Float[Tensor, " n"]
    control_se: float

    def summary(self) -> dict[str, float]:
        """Return, in nats, bounds of the entropy, their standard errors and mean width, and H' at the same draws.

        The keys are ``entropy_low`` and ``entropy_high``, each also with ``_se`` for its standard error,
        ``entropy_width`` and ``entropy_linearized``, which is H'. The bounds have ``control`` subtracted: of a Gaussian
        q nothing is left of the noise of the draws of θ.
        """
        found = {"entropy_width": float((self.high - self.low).mean())}
        found["entropy_linearized"] = float(self.linearized.mean())
        for side, log_q in (("low", self.high), ("high", self.low)):
            bound = -log_q - self.control
            found[f"entropy_{side}"] = float(bound.mean())
            found[f"entropy_{side}_se"] = math.hypot(float(bound.std()) / len(bound) ** 0.5, self.control_se)
        return found


@torch.no_grad()
def entropy_bracket(
    sampler: Sampler,
    num_samples: int,
    draws: int,
    rng: torch.Generator,
    *,
    regression: int = 2_000,
    temperatures: int = 0,
) -> EntropyBracket:
    r"""Bracket the entropy of ``θ = g(z) + s ⊙ η`` by importance sampling of z given θ.

    For θ with known ``z_0``, weights ``w_j = N(z_j; 0, I) N(θ; g(z_j), s^2) / r(z_j | θ)`` of K draws from a proposal
    that depends on θ alone satisfy

    .. math:: E \log \tfrac1K Σ_{j=1}^K w_j \le E \log q(θ) \le E \log \tfrac1{K+1} Σ_{j=0}^K w_j.

    The second holds because ``z_0`` is an exact draw of the posterior of z, so the proposal must not know it: Newton's
    method starts from a linear regression of z on θ, learned from other draws, and the proposal is the normal at the
    mode with precision ``M``. In float64.

    Where g is curved and s is large that normal is far from q(z | θ), and the bracket wide. Then the draws go from one
    to the other through intermediate densities ``r^(1-β) (N N)^β``, by Hamiltonian moves that leave each as it is, and
    ``z_0`` goes the way back: annealed importance sampling (Neal 2001), whose weights satisfy the same two inequalities
    (Grosse, Ghahramani and Adams 2015).

    Args:
        sampler: a :class:`LatentSampler`, or a :class:`PointEstimate` with one in it, whose θ it is then. Its k may be
            some hundreds, as ``M`` is formed.
        num_samples: draws of θ, at least 2.
        draws: K, draws of z for each θ.
        rng: all randomness.
        regression: draws of θ and z for the regression, at least 2.
        temperatures: how many intermediate densities; 0 is plain importance sampling.

    Raises:
        ValueError: if the sampler has no latent z, or a number of draws or temperatures is too small.
        DivergedError: as :func:`linearized_entropy`.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(3, 1, (8,), noise_scale=0.5, rng=rng)
        >>> found = entropy_bracket(sampler, 200, 50, rng, regression=500).summary()
        >>> found["entropy_low"] < found["entropy_high"]
        True
    """
    check_count("num_samples", num_samples, 2)
    check_count("draws", draws)
    check_count("regression", regression, 2)
    check_count("temperatures", temperatures, 0)
    inner = copy.deepcopy(latent_part(sampler)[0]).double()
    start = _Regression(inner, regression, rng)
    noise = inner.noise(num_samples, rng)
    z, points = noise[:, : inner.noise_dim], inner(noise)
    chunk = max(1, AT_ONCE // (draws * inner.dim))
    parts = [
        _bracket(inner, a, b, start(b), draws, temperatures, rng)
        for a, b in zip(z.split(chunk), points.split(chunk), strict=True)
    ]
    low, high = (torch.cat(column) for column in zip(*parts, strict=True))
    jacobian, eta = inner.latent_linearize(z)[1], noise[:, inner.noise_dim :]
    other = inner.noise(regression, rng)[:, : inner.noise_dim]
    elsewhere = inner.latent_linearize(other)[1]
    means = linearized_entropy(elsewhere) + linearization_correction(elsewhere, other)
    linearized = linearized_entropy(jacobian)
    control = linearized + _quadratic(jacobian, z, eta) - means.mean()
    return EntropyBracket(points, z, low, high, linearized, control, float(means.std()) / regression**0.5)


def _quadratic(jacobian: LatentJacobian, z: Float[Tensor, "n k"], eta: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
    """``(1/2) wᵀ(I + J̃J̃ᵀ)⁻¹w - m/2`` with ``w = J̃ z + η``; :func:`linearization_correction` has the same mean."""
    scale = jacobian.noise_scale
    assert scale is not None, "a LatentSampler has it"
    w = jacobian.latent_jvp(z[:, None]) / scale + eta[:, None]
    lower = _factor(jacobian)
    inner = torch.linalg.solve_triangular(lower, jacobian.latent_vjp(w / scale).mT, upper=False)
    return 0.5 * (w.square().sum((-2, -1)) - inner.square().sum((-2, -1)) - eta.shape[1])


class _Regression:
    """z as a linear function of θ by least squares."""

    def __init__(self, sampler: LatentSampler, number: int, rng: torch.Generator) -> None:
        noise = sampler.noise(number, rng)
        self.coefficients = torch.linalg.lstsq(_with_one(sampler(noise)), noise[:, : sampler.noise_dim]).solution

    def __call__(self, points: Float[Tensor, "n m"]) -> Float[Tensor, "n k"]:
        return _with_one(points) @ self.coefficients


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], dim=-1)


def _joint(sampler: LatentSampler, z: Float[Tensor, "n k"], points: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
    """``log N(z; 0, I) + log N(θ; g(z), s^2)``."""
    scale = sampler.noise_scale
    residual = (points - sampler.latent_forward(z)) / scale
    return normal_log_prob(z) + normal_log_prob(residual) - scale.log().sum()


def _mode(sampler: LatentSampler, z: Float[Tensor, "n k"], points: Float[Tensor, "n m"]) -> Float[Tensor, "n k"]:
    """The mode of q(z | θ) near z: Gauss–Newton with steps halved until they go uphill."""
    value = _joint(sampler, z, points)
    for _ in range(NEWTON_STEPS):
        mean, jacobian = sampler.latent_linearize(z)
        pulled = jacobian.latent_vjp(((points - mean) / sampler.noise_scale.square())[:, None])[:, 0] - z
        lower = _factor(jacobian)
        step = torch.cholesky_solve(pulled[..., None], lower)[..., 0]
        if float((step * pulled).sum(-1).max()) < 1e-12:
            break
        size = torch.ones_like(value)
        for _ in range(HALVINGS):
            tried = _joint(sampler, z + size[:, None] * step, points)
            size = torch.where(tried > value, size, size / 2)
        better = tried > value
        z = torch.where(better[:, None], z + size[:, None] * step, z)
        value = torch.where(better, tried, value)
    return z


@dataclass(frozen=True)
class _Bridge:
    """From the normal proposals r at the modes to ``N(z; 0, I) N(θ; g(z), s^2)``, in the proposals' own units u.

    Attributes:
        points: θ, ``(n, m)``.
        mode: ``(n, k)``.
        inverse: ``L⁻¹`` with ``L Lᵀ = M``, ``(n, k, k)``: ``z = mode + L⁻ᵀ u``.
    """

    sampler: LatentSampler
    points: Float[Tensor, "n m"]
    mode: Float[Tensor, "n k"]
    inverse: Float[Tensor, "n k k"]

    def __call__(self, u: Float[Tensor, "n j k"]) -> tuple[Tensor, Tensor, Tensor]:
        """log r and the log-ratio of the two ends, ``(n, j)``, and the gradient of that ratio in u."""
        z = (self.mode[:, None] + u @ self.inverse).flatten(0, 1)
        mean, jacobian = self.sampler.latent_linearize(z)
        scale = self.sampler.noise_scale
        residual = (self.points.repeat_interleave(u.shape[1], 0) - mean) / scale
        joint = normal_log_prob(z) + normal_log_prob(residual) - scale.log().sum()
        slope = (jacobian.latent_vjp((residual / scale)[:, None])[:, 0] - z).view_as(u) @ self.inverse.mT
        log_r = normal_log_prob(u) - self.inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)[:, None]
        return log_r, joint.view(u.shape[:2]) - log_r, slope + u

    def move(
        self, u: Tensor, at: tuple[Tensor, Tensor, Tensor], beta: Float[Tensor, " j"], rng: torch.Generator
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """One Hamiltonian proposal in ``r (ratio)^β``, accepted or not; reversible."""
        momentum = torch.randn(u.shape, generator=rng, dtype=u.dtype, device=u.device)
        size = LEAP * (0.5 + torch.rand((), generator=rng, dtype=u.dtype, device=u.device))
        energy = at[0] + beta * at[1] + normal_log_prob(momentum)
        new, found = u, at
        for _ in range(LEAPS):
            momentum = momentum + 0.5 * size * (beta[:, None] * found[2] - new)
            new = new + size * momentum
            found = self(new)
            momentum = momentum + 0.5 * size * (beta[:, None] * found[2] - new)
        change = found[0] + beta * found[1] + normal_log_prob(momentum) - energy
        uniform = torch.rand(change.shape, generator=rng, dtype=u.dtype, device=u.device)
        taken = uniform.log() < change
        log_r, ratio = (torch.where(taken, b, a) for a, b in zip(at[:2], found[:2], strict=True))
        slope, u = (torch.where(taken[..., None], b, a) for a, b in ((at[2], found[2]), (u, new)))
        return u, (log_r, ratio, slope)


def _bracket(
    sampler: LatentSampler,
    z_0: Float[Tensor, "n k"],
    points: Float[Tensor, "n m"],
    start: Float[Tensor, "n k"],
    draws: int,
    temperatures: int,
    rng: torch.Generator,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Both bounds of ``log q`` at some points."""
    n, k = z_0.shape
    mode = _mode(sampler, start, points)
    lower = _factor(sampler.latent_linearize(mode)[1])
    identity = torch.eye(k, dtype=lower.dtype, device=lower.device).expand_as(lower)
    bridge = _Bridge(sampler, points, mode, torch.linalg.solve_triangular(lower, identity, upper=False))
    fresh = torch.randn(n, draws, k, generator=rng, dtype=z_0.dtype, device=z_0.device)
    u = torch.cat([(z_0 - mode)[:, None] @ lower, fresh], dim=1)
    at, log_w = bridge(u), u.new_zeros(n, draws + 1)
    for i in range(1, temperatures + 1):
        log_w = log_w + at[1] / (temperatures + 1)
        beta = u.new_full((draws + 1,), i / (temperatures + 1))
        beta[0] = 1 - beta[0]  # of z_0, which goes the other way
        u, at = bridge.move(u, at, beta, rng)
    log_w = log_w + at[1] / (temperatures + 1)
    low = torch.logsumexp(log_w[:, 1:], 1) - math.log(draws)
    high = torch.logsumexp(log_w, 1) - math.log(draws + 1)
    return low, high


@torch.no_grad()
def elbo_bracket(
    sampler: Sampler,
    target: Target,
    num_samples: int,
    draws: int,
    rng: torch.Generator,
    *,
    regression: int = 2_000,
    temperatures: int = 0,
    values: int = 5_000,
) -> dict[str, float]:
    """Certified bounds of ``E_q[log p(θ) - log q(θ)]`` for a sampler without a density, in nats.

    Args:
        sampler: a :class:`LatentSampler`, or a :class:`PointEstimate` with one in it.
        target: of the sampler's points; evaluated in the sampler's precision.
        num_samples, draws, rng, regression, temperatures: as in :func:`entropy_bracket`.
        values: fresh draws of θ for ``E[log p(θ)]``, at least 2.

    Returns:
        ``elbo_low`` and ``elbo_high`` with their standard errors ``elbo_low_se`` and ``elbo_high_se``, ``elbo_width``,
        and ``elbo_linearized``, LIVI's L'; and the summary of the bracket of the entropy.

    Raises:
        ValueError: if ``values < 2``, or as :func:`entropy_bracket`.
        DivergedError: as :func:`linearized_entropy`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(3), torch.eye(3))
        >>> sampler = LatentGenerator(3, 1, (8,), noise_scale=0.5, rng=rng)
        >>> found = elbo_bracket(sampler, target, 200, 50, rng, regression=500, values=1_000)
        >>> found["elbo_low"] < found["elbo_high"] < 0  # at most log ∫ p = 0
        True
    """
    check_count("values", values, 2)
    bracket = entropy_bracket(sampler, num_samples, draws, rng, regression=regression, temperatures=temperatures)
    found = bracket.summary()
    parts = [min(VALUES_AT_ONCE, values - i) for i in range(0, values, VALUES_AT_ONCE)]
    value = torch.cat([log_prob(target, sampler.sample(part, rng)).double() for part in parts])
    mean, error = float(value.mean()), float(value.std()) / values**0.5
    bounds = {f"elbo_{side}": mean + found[f"entropy_{side}"] for side in ("low", "high", "linearized")}
    errors = {f"elbo_{side}_se": math.hypot(error, found[f"entropy_{side}_se"]) for side in ("low", "high")}
    return found | bounds | errors | {"elbo_width": found["entropy_width"]}
