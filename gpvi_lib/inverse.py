r"""Four back ends for the repulsive term of the functional gradient.

All compute, for every ``j``,

.. math:: R_j = \sum_i J(z'_i)^{-T} W_{ij} (z'_i - z_j),

the sum over samples of the inverse transposed Jacobian applied to kernel gradients (Theorem 3.1; the printed
:math:`J^{-1}` is an index slip, see notebook 00). They differ in how the systems ``Jᵀh = ∇k`` are solved:

============  =====================================================================================
``dense``     LU of every d x d Jacobian: the reference, O(n d^3)
``block``     exact, from the block-triangular structure: one k x k factorisation per sample
``helper``    the paper's network, trained on ``||Jᵀh - ∇k||^2`` and then queried (eq. 9-11)
``bicgstab``  matrix-free stabilised biconjugate gradients, batched over all systems (appendix C)
============  =====================================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib import linalg
from gpvi_lib.auxiliary import TrainsNetwork
from gpvi_lib.checks import check_count, check_not_negative
from gpvi_lib.errors import GPVIError
from gpvi_lib.kernels import kernel_gradient_sum
from gpvi_lib.samplers import Linearization, _linear, mlp_from_rng
from gpvi_lib.wide import pull_back

Info = dict[str, Tensor]


class InverseJacobian:
    """Base of the back ends; stateless ones inherit the empty state.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(4, 2, (8,), rng=rng)
        >>> source, query = generator.noise(3, rng), generator.noise(5, rng)
        >>> _, weight = RBF()(source, query)
        >>> repulsion, info = BlockInverse()(generator.linearize(source), source, query, weight)
        >>> repulsion.shape
        torch.Size([5, 4])
    """

    def __call__(
        self,
        linearization: Linearization,
        source: Float[Tensor, "n d"],
        query: Float[Tensor, "m d"],
        weight: Float[Tensor, "n m"],
        rng: torch.Generator,
    ) -> tuple[Float[Tensor, "m d"], Info]:
        """The repulsive sum ``R``.

        Args:
            linearization: ``J`` at the ``n`` points ``z'``.
            source: ``z'`` as the kernel sees it (coordinates outside the kernel set to zero).
            query: ``z``, likewise.
            weight: ``W`` of :class:`gpvi_lib.kernels.RBF`.
            rng: randomness of back ends that have any (the helper's first weights).

        Returns:
            ``R (m, d)`` and diagnostics as zero-dimensional tensors.
        """
        raise TypeError(f"{type(self).__name__} must define __call__")

    def add_and_pull_back(
        self,
        linearization: Linearization,
        source: Float[Tensor, "n d"],
        query: Float[Tensor, "m d"],
        weight: Float[Tensor, "n m"],
        attraction: Float[Tensor, "m d"],
        rng: torch.Generator,
    ) -> tuple[Float[Tensor, "m d"], Float[Tensor, "m w"], Info]:
        """``attraction + R`` and ``W_outᵀ`` of it, which training needs; a back end may get both in one product."""
        repulsion, info = self(linearization, source, query, weight, rng)
        total = attraction + repulsion
        return total, pull_back(total, linearization.output_weight), info

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""


def kernel_gradients(source: Tensor, query: Tensor, weight: Tensor) -> Float[Tensor, "n m d"]:
    """All ``∇_{z'_i} k(z'_i, z_j) = W_ij (z'_i - z_j)``, for the back ends that need each one.

    Example:
        >>> source, query = torch.zeros(3, 4), torch.ones(5, 4)
        >>> _, weight = RBF(1.0)(source, query)
        >>> kernel_gradients(source, query, weight).shape
        torch.Size([3, 5, 4])
    """
    return weight[..., None] * (source[:, None] - query)


class DenseInverse(InverseJacobian):
    """Solve with every Jacobian as a matrix: ``O(n d^3 + n m d^2)`` operations, ``O(n d^2)`` memory.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(4, 2, (8,), rng=rng)
        >>> source, query = generator.noise(3, rng), generator.noise(5, rng)
        >>> _, weight = RBF()(source, query)
        >>> repulsion, _ = DenseInverse()(generator.linearize(source), source, query, weight)
        >>> repulsion.shape
        torch.Size([5, 4])
    """

    def __call__(self, linearization, source, query, weight, rng=None):
        rhs = kernel_gradients(source, query, weight)
        return linalg.solve(linearization.dense(), rhs, left=False).sum(0), {}


class BlockInverse(InverseJacobian):
    r"""Exact solution from ``J = [[A + Λ_1, 0], [B, Λ_2]]``.

    ``h_2 = u_2 / λ_2`` and ``(A + Λ_1)ᵀ h_1 = u_1 - Bᵀ h_2``. With ``g``'s linear last layer,
    ``Bᵀ h_2 = Dᵀ (W_out,2ᵀ h_2)`` where ``D = ∂a/∂z_{:k}``, and because ``u_ij = W_ij (z'_i - z_j)`` the product with
    ``W_out,2ᵀ`` is needed once per sample, not once per pair: ``p_i`` at ``z'_i``, ``q_j`` at ``z_j``. Nothing of size
    ``(d, d)`` appears. The second block of ``R_j`` is a linear combination of the ``u / λ``, so what training needs of
    it, ``W_outᵀR_j``, is the same combination of the vectors already multiplied.

    The first block is ``Σ_i W_ij (A + Λ_1)^{-T} [z'_i - z_j - D_iᵀ(p_i - q_j)]_{:k}``, and there are two ways to it.
    In multiplications, with hidden layers of ``w_1 .. w_L`` units and ``S = w_1 w_2 + .. + w_{L-1} w_L``:

    ==========  =====================================================  ==================================
    ..          a source                                               a pair (none where k = d)
    ==========  =====================================================  ==================================
    by pairs    ``A`` backwards from the output: ``k (S + w_1 k)``     ``Dᵀ(p - q)``: ``S + w_1 k``
    by sources  ``D`` forwards, ``A = W_out,1 D``: ``k (S + w_L k)``   ``Dᵀq`` as one product: ``w_L k``
    ==========  =====================================================  ==================================

    :meth:`by_sources` takes the cheaper one. By sources nothing of size ``(n, m, w)`` appears either. Without hidden
    layers the Jacobian is the same everywhere, and one system for each ``z_j`` is left.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(4, 2, (8,), rng=rng, dtype=torch.float64)
        >>> source, query = generator.noise(3, rng), generator.noise(5, rng)
        >>> _, weight = RBF()(source, query)
        >>> arguments = (generator.linearize(source), source, query, weight)
        >>> torch.allclose(BlockInverse()(*arguments)[0], DenseInverse()(*arguments)[0])
        True
    """

    def __call__(self, linearization, source, query, weight, rng=None):
        tails = self._scale_tails(linearization, torch.cat([source, query]))
        pulled = pull_back(tails, linearization.output_weight)
        return self._repulsion(linearization, source, query, weight, tails, pulled), {}

    def add_and_pull_back(self, linearization, source, query, weight, attraction, rng=None):
        k, n, output = linearization.noise_dim, source.shape[0], linearization.output_weight
        if k == source.shape[1]:
            return super().add_and_pull_back(linearization, source, query, weight, attraction, rng)
        rows = torch.cat([source, query, attraction])  # one product reads W_out once
        tails = self._scale_tails(linearization, rows[: n + query.shape[0]])
        pulled, pulled_attraction = pull_back(rows, output).split([tails.shape[0], attraction.shape[0]])
        repulsion = self._repulsion(linearization, source, query, weight, tails, pulled)
        back = torch.addmm(pulled_attraction, repulsion[:, :k], output[:k])
        return attraction + repulsion, back + kernel_gradient_sum(weight, pulled[:n], pulled[n:]), {}

    @staticmethod
    def by_sources(linearization: Linearization, num_queries: int) -> bool:
        """Whether forward accumulation at every source takes fewer multiplications than products with every pair."""
        k, widths = linearization.noise_dim, [weight.shape[0] for weight in linearization.weights]
        pairs = num_queries if k < linearization.output_weight.shape[0] else 0
        between = sum(i * o for i, o in pairwise(widths))
        first, last = widths[0] * k, widths[-1] * k
        return k * (between + last) + pairs * last <= (k + pairs) * (between + first)

    @staticmethod
    def _scale_tails(linearization: Linearization, rows: Float[Tensor, "p d"]) -> Float[Tensor, "p d"]:
        """``z / λ`` with zeros in the first k, in place of ``z``; no rows if there is nothing else."""
        k = linearization.noise_dim
        if k == rows.shape[1]:
            return rows[:0]
        assert linearization.noise_scale is not None, "without λ the Jacobian has no second block"
        return rows.mul_(F.pad(1 / linearization.noise_scale[k:], (k, 0)))

    def _repulsion(self, linearization, source, query, weight, tails, pulled) -> Float[Tensor, "m d"]:
        k, n = linearization.noise_dim, source.shape[0]
        if not linearization.weights:
            first = _same_everywhere
        else:
            first = by_sources if self.by_sources(linearization, query.shape[0]) else by_pairs
        head = first(linearization, source[:, :k], query[:, :k], weight, pulled[:n], pulled[n:])
        if not tails.shape[0]:
            return head
        return torch.cat([head, kernel_gradient_sum(weight, tails[:n, k:], tails[n:, k:])], dim=1)


# The first block of R by each way, from the first k coordinates of z' and z, W, p and q, the last two empty for k = d.


def _same_everywhere(linearization, source, query, weight, p, q) -> Float[Tensor, "m k"]:
    """Without hidden layers ``a = z_{:k}``, so ``D = I``: ``(A + Λ_1)^{-T} Σ_i W_ij [(z'_i - p_i) - (z_j - q_j)]``."""
    if p.shape[0]:
        source, query = source - p, query - q
    head = linearization.with_noise(linearization.first_rows)
    return linalg.solve(head, kernel_gradient_sum(weight, source, query), left=False)


def by_pairs(linearization, source, query, weight, p, q) -> Float[Tensor, "m k"]:
    """One vector-Jacobian product and one right-hand side a pair."""
    right = source[:, None] - query
    if p.shape[0]:
        right = right - linearization.features_vjp(p[:, None] - q)
    return linalg.solve(linearization.head(), weight[..., None] * right, left=False).sum(0)


def by_sources(linearization, source, query, weight, p, q) -> Float[Tensor, "m k"]:
    """``Dᵀ (n, k, w)`` once a source; whatever has to do with pairs is a product of two matrices."""
    jacobian, k = linearization.features_jacobian(), linearization.noise_dim
    head = linearization.head_from(jacobian)
    if p.shape[0]:
        source = source - (jacobian @ p[..., None]).squeeze(-1)
    right = source[..., None] - query.mT.contiguous()  # (n, k, m), which a view can make (n k, m)
    if p.shape[0]:
        right.view(-1, query.shape[0]).addmm_(jacobian.flatten(0, 1), q.mT)
    right.mul_(weight[:, None])
    if query.shape[0] < k:
        return linalg.solve(head, right.mT, left=False).sum(0)
    return right.flatten(0, 1).mT @ linalg.inverse(head).flatten(0, 1)


class HelperNetwork(nn.Module):
    """The helper ``h_η(z', ∇k)`` of appendix B.1.

    ``z'_{:k}`` and ``∇k`` are each encoded by a linear layer with ReLU, concatenated, and passed through
    ``num_layers`` hidden layers with ReLU and a linear output of size ``d``. The paper's tables print three hidden
    layers, and its appendix B.1 a "three-layer" network behind the encodings, which may have one hidden layer less.

    Args:
        noise_dim: k, how many noise coordinates enter.
        dim: d, the size of the output.
        width, num_layers: of the hidden layers, and of both encodings.
        rng: source of the initial weights.
        dtype, device: of the parameters.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> helper = HelperNetwork(2, 4, 16, 1, rng, torch.float32, "cpu")
        >>> helper(torch.randn(3, 2, generator=rng), torch.randn(3, 5, 4, generator=rng)).shape
        torch.Size([3, 5, 4])
    """

    def __init__(self, noise_dim: int, dim: int, width: int, num_layers: int, rng, dtype, device) -> None:
        super().__init__()
        self.encode_noise = _linear(noise_dim, width, rng, dtype, device)
        self.encode_gradient = _linear(dim, width, rng, dtype, device)
        self.trunk = mlp_from_rng([2 * width] + [width] * num_layers + [dim], rng, dtype, device)

    def forward(self, head: Float[Tensor, "n k"], gradient: Float[Tensor, "n m d"]) -> Float[Tensor, "n m d"]:
        """Estimate of ``J(z'_i)^{-T} ∇k_ij`` for all pairs."""
        # W [a_i; b_ij] = W_a a_i + W_b b_ij, so that a_i costs one product for all m pairs of point i.
        first = cast(nn.Linear, self.trunk[0])
        of_noise, of_gradient = first.weight.split(first.in_features // 2, dim=1)
        noise = F.linear(torch.relu(self.encode_noise(head)), of_noise, first.bias)
        pairs = F.linear(torch.relu(self.encode_gradient(gradient)), of_gradient)
        return self.trunk[1:](pairs + noise[:, None])


@dataclass
class HelperInverse(TrainsNetwork, InverseJacobian):
    """The paper's helper network: trained by Adam on eq. 10, then queried on the same ``z'`` and ``∇k``.

    The diagnostic ``residual`` is ``||Jᵀh - ∇k|| / ||∇k||`` over all pairs, before the last update. Above 1 the answer
    of the helper is worse than answering zero.

    Attributes:
        width, num_layers: hidden layers of :class:`HelperNetwork`.
        lr: Adam's learning rate.
        updates: steps of Adam per call (the paper: one).

    Raises:
        GPVIError: if a size, the rate or the number of updates is out of range.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator, inverse = Generator(4, 2, (8,), rng=rng), HelperInverse(width=16, num_layers=1)
        >>> source, query = generator.noise(3, rng), generator.noise(5, rng)
        >>> _, weight = RBF()(source, query)
        >>> repulsion, info = inverse(generator.linearize(source).detach(), source, query, weight, rng)
        >>> repulsion.shape, list(info)
        (torch.Size([5, 4]), ['residual'])
    """

    width: int = 512
    num_layers: int = 3
    lr: float = 1e-4
    updates: int = 1

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_count("num_layers", self.num_layers, least=0)
        self.check_rates()

    def __call__(self, linearization, source, query, weight, rng):
        out, k = linearization.output_weight, linearization.noise_dim
        sizes = (k, out.shape[0], self.width, self.num_layers)
        network = self._ensure_network(lambda rng: HelperNetwork(*sizes, rng, out.dtype, out.device), rng)
        head, gradients = source[:, :k], kernel_gradients(source, query, weight)
        with torch.enable_grad():
            for _ in range(self.updates):
                residual = linearization.vjp(network(head, gradients)) - gradients
                self._descend(residual.square().sum(-1).mean())
        # Of the last training pass, so that the diagnostic costs nothing: one update staler than the answer.
        info = {"residual": residual.detach().norm() / gradients.norm()}
        with torch.no_grad():
            return network(head, gradients).sum(0), info


@dataclass(frozen=True)
class BiCGSTABResult:
    """Solution and diagnostics of :func:`bicgstab`.

    Attributes:
        x: solutions, ``(..., d)``.
        residual: true relative residual ``||b - Ax|| / ||b||`` of each system, ``(...)``.
        iterations: iterations used by each system, ``(...)``.
        breakdown: systems stopped because a denominator vanished, ``(...)``.

    Example:
        >>> result = bicgstab(lambda x: 2 * x, torch.ones(3, 4))
        >>> result.x.shape, result.residual.shape, bool(result.breakdown.any())
        (torch.Size([3, 4]), torch.Size([3]), False)
    """

    x: Tensor
    residual: Tensor
    iterations: Tensor
    breakdown: Tensor


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _check_stopping(tol: float, max_iterations: int, least: int) -> None:
    """Refuse a rule by which the start would be the answer unasked."""
    check_not_negative("tol", tol)
    check_count("max_iterations", max_iterations, least)
    if tol >= 1:
        raise GPVIError(f"tol must be below 1, which zero has as relative residual, got {tol}: 1e-6 is usual")


def bicgstab(
    matvec: Callable[[Tensor], Tensor],
    b: Float[Tensor, "*batch d"],
    x0: Float[Tensor, "*batch d"] | None = None,
    *,
    tol: float = 1e-6,
    max_iterations: int = 100,
) -> BiCGSTABResult:
    """Batched, matrix-free BiCGSTAB (van der Vorst 1992) for ``A x = b``.

    Every system of the batch has its own scalars and stops on its own, by ``||r|| <= tol ||b||``, or when a
    denominator is negligible in absolute value against the norms it is made of (a breakdown): ``|r̂·r|``,
    ``|r̂·v|`` and ``t·t`` can have either sign or be tiny, so a test without absolute values lets them pass.

    Args:
        matvec: applies ``A`` to every vector of the batch.
        b: right-hand sides, ``(..., d)``.
        x0: start; zeros by default.
        tol: relative tolerance, below 1; 0 takes all iterations, unless a system is solved exactly.
        max_iterations: of two applications of ``A`` each; with none the start is the answer.

    Raises:
        GPVIError: if either is out of range.

    Example:
        >>> matrix = torch.tensor([[4.0, 1.0], [2.0, 3.0]])
        >>> result = bicgstab(lambda x: x @ matrix.mT, torch.eye(2))  # two systems
        >>> torch.allclose(result.x.mT, torch.linalg.inv(matrix), atol=1e-5)
        True
    """
    _check_stopping(tol, max_iterations, least=0)
    eps = torch.finfo(b.dtype).eps
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    r = b - matvec(x)
    shadow = r.clone()
    p = r.clone()
    rho = _dot(shadow, r)
    goal = tol * b.norm(dim=-1, keepdim=True)
    active = r.norm(dim=-1, keepdim=True) > goal
    iterations = torch.zeros_like(active, dtype=torch.long)
    breakdown = torch.zeros_like(active)

    def negligible(value: Tensor, *factors: Tensor) -> Tensor:
        scale = torch.ones_like(value)
        for factor in factors:
            scale = scale * factor.norm(dim=-1, keepdim=True)
        return value.abs() <= eps * scale

    def safe_ratio(a: Tensor, c: Tensor) -> Tensor:
        return a / torch.where(c == 0, torch.ones_like(c), c)

    for _ in range(max_iterations):
        if not bool(active.any()):
            break
        v = matvec(p)
        sigma = _dot(shadow, v)
        broken = active & (negligible(rho, shadow, r) | negligible(sigma, shadow, v))
        breakdown |= broken
        active = active & ~broken
        alpha = safe_ratio(rho, sigma)
        s = r - alpha * v
        t = matvec(s)
        tt = _dot(t, t)
        # s = 0 means that the half step is already the solution: omega = 0 is then right, not a breakdown.
        omega = torch.where(tt > 0, safe_ratio(_dot(t, s), tt), torch.zeros_like(tt))
        x = torch.where(active, x + alpha * p + omega * s, x)
        r = torch.where(active, s - omega * t, r)
        iterations += active
        still = active & (r.norm(dim=-1, keepdim=True) > goal)
        stagnated = still & negligible(omega * tt, t, s)
        breakdown |= stagnated
        active = still & ~stagnated
        rho_next = _dot(shadow, r)
        beta = safe_ratio(rho_next, rho) * safe_ratio(alpha, omega)
        p = torch.where(active, r + beta * (p - omega * v), p)
        rho = rho_next
    residual = (b - matvec(x)).norm(dim=-1) / b.norm(dim=-1).clamp_min(torch.finfo(b.dtype).tiny)
    return BiCGSTABResult(x, residual, iterations.squeeze(-1), breakdown.squeeze(-1))


@dataclass
class BiCGSTABInverse(InverseJacobian):
    """All ``n m`` systems ``Jᵀh = ∇k`` by :func:`bicgstab`.

    Diagnostics: ``residual`` as of :class:`HelperInverse` but of the answer itself, ``iterations`` of the slowest
    system, ``breakdowns``, how many systems broke down.

    Attributes:
        tol, max_iterations: stopping rule; the paper's appendix C runs ``max_iterations = 1``.
        warm_start: start from the previous call's solution, as appendix C does although ``z'`` and ``z`` are new.

    Raises:
        GPVIError: if the rule stops before it solves anything.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(4, 2, (8,), rng=rng, dtype=torch.float64)
        >>> source, query = generator.noise(3, rng), generator.noise(5, rng)
        >>> _, weight = RBF()(source, query)
        >>> repulsion, info = BiCGSTABInverse()(generator.linearize(source), source, query, weight)
        >>> bool(info["residual"] < 1e-5), list(info)
        (True, ['residual', 'iterations', 'breakdowns'])
    """

    tol: float = 1e-6
    max_iterations: int = 100
    warm_start: bool = False
    previous: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_stopping(self.tol, self.max_iterations, least=1)

    def __call__(self, linearization, source, query, weight, rng=None):
        rhs = kernel_gradients(source, query, weight)
        fits = self.warm_start and self.previous is not None and self.previous.shape == rhs.shape
        start = self.previous if fits else None
        result = bicgstab(linearization.vjp, rhs, start, tol=self.tol, max_iterations=self.max_iterations)
        if self.warm_start:
            self.previous = result.x
        info = {
            "residual": (result.residual * rhs.norm(dim=-1)).norm() / rhs.norm(),
            "iterations": result.iterations.max(),
            "breakdowns": result.breakdown.sum(),
        }
        return result.x.sum(0), info

    def state_dict(self) -> dict:
        return {"previous": self.previous}

    def load_state_dict(self, state: dict) -> None:
        self.previous = state.get("previous")


INVERSES = {
    "dense": DenseInverse,
    "block": BlockInverse,
    "helper": HelperInverse,
    "bicgstab": BiCGSTABInverse,
}
