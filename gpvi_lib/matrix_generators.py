r"""Generators of network weights made of matrix layers, ``Y = (A X + C) B + D``, so that large ones have few weights.

:class:`MatrixGenerator` is LIVI's MMNN (Shi, Sun and Zhu 2018), :class:`SplitMatrixGenerator` its CMMNN (appendix D).
All of A, B, C, D are trained; the units between layers are ELU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib.activations import ACTIVATIONS
from gpvi_lib.checks import check_count, chosen_rng
from gpvi_lib.errors import GPVIError
from gpvi_lib.latent import LatentJacobian, LatentSampler
from gpvi_lib.samplers import keep_log_noise_scale, log_noise_scale, standard_normal

Shape = Sequence[int]
ELU = ACTIVATIONS["elu"]


class MatrixLayer(nn.Module):
    """``Y = (A X + C) B + D`` from ``(r, c)`` to ``(R, C)`` matrices; first weights keep the variance, C and D are 0.

    ``A (R, r)``, ``C (R, c)``, ``B (c, C)``, ``D (R, C)``.
    """

    def __init__(self, source: Shape, result: Shape, rng: torch.Generator, dtype, device) -> None:
        super().__init__()
        (r, c), (rows, columns) = source, result
        like = torch.empty(0, dtype=dtype, device=device)
        self.left = nn.Parameter(standard_normal((rows, r), rng, like) / math.sqrt(r))
        self.right = nn.Parameter(standard_normal((c, columns), rng, like) / math.sqrt(c))
        self.inner_bias = nn.Parameter(torch.zeros(rows, c, dtype=dtype, device=device))
        self.outer_bias = nn.Parameter(torch.zeros(rows, columns, dtype=dtype, device=device))

    def forward(self, x: Float[Tensor, "*n r c"]) -> Float[Tensor, "*n R C"]:
        return (self.left @ x + self.inner_bias) @ self.right + self.outer_bias


@dataclass(frozen=True)
class ChainJacobian:
    """The derivative of a chain of matrix layers at ``n`` points.

    Attributes:
        layers: A and B of each.
        slopes: of the units after each layer, ``(n, R, C)``; ``None`` after a layer without.
    """

    layers: list[tuple[Tensor, Tensor]]
    slopes: list[Tensor | None]

    def push(self, v: Float[Tensor, "n j r c"]) -> Float[Tensor, "n j R C"]:
        """``J v``."""
        for (left, right), slope in zip(self.layers, self.slopes, strict=True):
            v = left @ v @ right
            v = v if slope is None else v * slope[:, None]
        return v

    def pull(self, h: Float[Tensor, "n j R C"]) -> Float[Tensor, "n j r c"]:
        """``Jᵀ h``."""
        for (left, right), slope in zip(reversed(self.layers), reversed(self.slopes), strict=True):
            h = h if slope is None else h * slope[:, None]
            h = left.mT @ h @ right.mT
        return h

    def double(self) -> ChainJacobian:
        layers = [(left.double(), right.double()) for left, right in self.layers]
        return ChainJacobian(layers, [None if slope is None else slope.double() for slope in self.slopes])


class MatrixChain(nn.Module):
    """Matrix layers through the given shapes, with ELU between them, and after the last one if ``closed``."""

    def __init__(self, shapes: Sequence[Shape], closed: bool, rng: torch.Generator, dtype, device) -> None:
        super().__init__()
        self.source, self.result, self.closed = tuple(shapes[0]), tuple(shapes[-1]), closed
        self.layers = nn.ModuleList(MatrixLayer(a, b, rng, dtype, device) for a, b in pairwise(shapes))

    def linearize(self, x: Float[Tensor, "n r c"]) -> tuple[Float[Tensor, "n R C"], ChainJacobian]:
        """The chain at ``n`` points and its derivative there."""
        factors: list[tuple[Tensor, Tensor]] = []
        slopes: list[Tensor | None] = []
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, MatrixLayer)
            factors.append((layer.left, layer.right))
            x = layer(x)
            if i < len(self.layers) - 1 or self.closed:
                a = F.elu(x)
                slopes.append(ELU.slope(x, a))
                x = a
            else:
                slopes.append(None)
        return x, ChainJacobian(factors, slopes)


@dataclass(frozen=True)
class MatrixJacobian:
    """``∂g/∂z`` of a matrix generator at ``n`` points, a :class:`LatentJacobian`.

    Attributes:
        trunk: the layers that all branches share, or ``None``.
        branches: their derivatives.
        sources, results: the shapes of matrices that enter and leave each branch.
        source: the shape of z as a matrix.
        trunk_result: the shape that leaves the trunk.
        dim: m.
        noise_scale: s, ``(m,)``.
        num_points: n.
    """

    trunk: ChainJacobian | None
    branches: list[ChainJacobian]
    sources: list[tuple[int, ...]]
    results: list[tuple[int, ...]]
    source: tuple[int, ...]
    trunk_result: tuple[int, ...]
    dim: int
    noise_scale: Tensor
    num_points: int

    @property
    def noise_dim(self) -> int:
        """``k``."""
        return math.prod(self.source)

    def latent_jvp(self, v: Float[Tensor, "n j k"]) -> Float[Tensor, "n j m"]:
        """``J v``."""
        if self.trunk is not None:
            v = self.trunk.push(v.unflatten(-1, self.source)).flatten(-2)
        parts = v.split([math.prod(shape) for shape in self.sources], dim=-1)
        pushed = [
            branch.push(part.unflatten(-1, shape)).flatten(-2)
            for branch, part, shape in zip(self.branches, parts, self.sources, strict=True)
        ]
        return torch.cat(pushed, dim=-1)[..., : self.dim]

    def latent_vjp(self, h: Float[Tensor, "n j m"]) -> Float[Tensor, "n j k"]:
        """``Jᵀ h``."""
        sizes = [math.prod(shape) for shape in self.results]
        parts = F.pad(h, (0, sum(sizes) - self.dim)).split(sizes, dim=-1)
        pulled = [
            branch.pull(part.unflatten(-1, shape)).flatten(-2)
            for branch, part, shape in zip(self.branches, parts, self.results, strict=True)
        ]
        v = torch.cat(pulled, dim=-1)
        return v if self.trunk is None else self.trunk.pull(v.unflatten(-1, self.trunk_result)).flatten(-2)

    def gram(self) -> Float[Tensor, "n k k"]:
        """``J̃ᵀJ̃`` by k products ``J v``: for small k only, J has ``m k`` numbers a point."""
        identity = torch.eye(self.noise_dim, dtype=self.noise_scale.dtype, device=self.noise_scale.device)
        rows = self.latent_jvp(identity.expand(self.num_points, -1, -1)) / self.noise_scale
        return rows @ rows.mT

    def double(self) -> MatrixJacobian:
        """The same in float64."""
        trunk = None if self.trunk is None else self.trunk.double()
        branches = [branch.double() for branch in self.branches]
        shapes = (self.sources, self.results, self.source, self.trunk_result)
        return MatrixJacobian(trunk, branches, *shapes, self.dim, self.noise_scale.double(), self.num_points)


def _check_shapes(name: str, shapes: Sequence[Shape]) -> None:
    """Refuse what is no shape of a matrix.

    Raises:
        GPVIError: naming the shape, or that there is none to lead to another.
    """
    if len(shapes) < 2:
        raise GPVIError(f"{name} needs two shapes at least, of what goes in and of what comes out, got {shapes!r}")
    for i, shape in enumerate(shapes):
        if not isinstance(shape, Sequence) or len(shape) != 2:
            raise GPVIError(f"{name}[{i}] must be the rows and columns of a matrix, such as (8, 8), got {shape!r}")
        for what, number in zip(("rows", "columns"), shape, strict=True):
            check_count(f"the {what} of {name}[{i}]", number)


class _MatrixSampler(LatentSampler):
    """What the two generators share: a trunk or none, branches side by side, flattened and cut to m numbers."""

    log_noise_scale: Tensor

    def __init__(
        self,
        dim: int,
        trunk: Sequence[Shape],
        branches: Sequence[Sequence[Shape]],
        noise_scale: float | Tensor,
        train_noise_scale: bool,
        output_scale: Tensor | None,
        rng: torch.Generator,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        self.trunk = MatrixChain(trunk, True, rng, dtype, device) if trunk else None
        self.branches: Iterable[MatrixChain] = nn.ModuleList(  # type: ignore[assignment]  # of this class alone
            MatrixChain(shapes, False, rng, dtype, device) for shapes in branches
        )
        self.source = tuple((trunk or branches[0])[0])
        self.dim, self.noise_dim = dim, math.prod(self.source)
        self._check(trunk, branches)
        log_scale = log_noise_scale(noise_scale, dim, dtype, device)
        keep_log_noise_scale(self, log_scale, train_noise_scale)
        if output_scale is not None:
            self._scale_output(torch.as_tensor(output_scale, dtype=dtype, device=device), rng)

    def _check(self, trunk: Sequence[Shape], branches: Sequence[Sequence[Shape]]) -> None:
        made = sum(math.prod(shapes[-1]) for shapes in branches)
        if made < self.dim:
            raise ValueError(
                f"the last matrices have {made} entries together, fewer than the {self.dim} to be produced"
            )
        if trunk and sum(math.prod(shapes[0]) for shapes in branches) != math.prod(trunk[-1]):
            raise ValueError(
                f"the branches take {[math.prod(shapes[0]) for shapes in branches]} numbers, which must be the "
                f"{math.prod(trunk[-1])} that leave the first layers"
            )
        if self.noise_dim > self.dim:
            raise ValueError(f"noise_dim k must be between 1 and dim m = {self.dim}, got {self.noise_dim}")

    @torch.no_grad()
    def _scale_output(self, scale: Float[Tensor, " m"], rng: torch.Generator) -> None:
        """First points at the scale of a prior: D is drawn from it, what depends on z has its mean size over √3."""
        if scale.shape != (self.dim,):
            raise ValueError(f"output_scale must have shape ({self.dim},), got {tuple(scale.shape)}")
        sizes = [math.prod(branch.result) for branch in self.branches]
        draws = F.pad(scale * standard_normal((self.dim,), rng, scale), (0, sum(sizes) - self.dim))
        for branch, values in zip(self.branches, draws.split(sizes), strict=True):
            last = branch.layers[-1]
            assert isinstance(last, MatrixLayer)
            last.outer_bias.copy_(values.view(branch.result))
            last.right.mul_(scale.mean() / math.sqrt(3))

    @property
    def noise_scale(self) -> Float[Tensor, " m"]:  # type: ignore[override]  # a property
        """s as one number per coordinate."""
        return self.log_noise_scale.exp().expand(self.dim)

    def latent_forward(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
        return self.latent_linearize(z)[0]

    def latent_linearize(self, z: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "n m"], LatentJacobian]:
        x, trunk = z, None
        if self.trunk is not None:
            y, trunk = self.trunk.linearize(z.unflatten(-1, self.source))
            x = y.flatten(-2)
        sources, results = ([getattr(b, name) for b in self.branches] for name in ("source", "result"))
        parts = x.split([math.prod(shape) for shape in sources], dim=-1)
        found = [b.linearize(part.unflatten(-1, b.source)) for b, part in zip(self.branches, parts, strict=True)]
        out = torch.cat([y.flatten(-2) for y, _ in found], dim=-1)[..., : self.dim]
        shapes = (sources, results, self.source, self.source if self.trunk is None else self.trunk.result)
        chains = [chain for _, chain in found]
        return out, MatrixJacobian(trunk, chains, *shapes, self.dim, self.noise_scale, len(z))


class MatrixGenerator(_MatrixSampler):
    """LIVI's MMNN: one chain of matrix layers from z as a matrix to the m weights of a network.

    Args:
        dim: m; entries of the last matrix beyond it are left out.
        shapes: of z as a matrix, of the hidden matrices and of the last one, such as
            ``[(65, 65), (250, 250), (250, 250), (350, 127)]`` for LeNet: 612,450 parameters.
        noise_scale, train_noise_scale: s, as in :class:`LatentGenerator`.
        output_scale: ``(m,)`` or ``None``, the scale of the first points, usually a prior's.
        rng, seed, dtype, device: as in :class:`Generator`.

    Raises:
        ValueError: if a shape is no rows and columns, the last matrix is too small, ``k > m``, or s is not positive and
            finite.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> MatrixGenerator(11, [(2, 3), (5, 5), (4, 3)], noise_scale=0.1, rng=rng).rsample(7, rng).shape
        torch.Size([7, 11])
    """

    def __init__(
        self,
        dim: int,
        shapes: Sequence[Shape],
        *,
        noise_scale: float | Tensor,
        train_noise_scale: bool = False,
        output_scale: Tensor | None = None,
        rng: torch.Generator | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        _check_shapes("shapes", shapes)
        self.shapes = [list(shape) for shape in shapes]
        rng = chosen_rng(rng, seed, device)
        super().__init__(dim, (), [shapes], noise_scale, train_noise_scale, output_scale, rng, dtype, device)


class SplitMatrixGenerator(_MatrixSampler):
    """LIVI's CMMNN: matrix layers that all share, then disjoint slices of their output, one small MMNN for each.

    Correlations between the layers of a network come from the shared layers, those inside a layer from its branch.

    Args:
        dim: m; entries beyond it are left out.
        trunk: shapes of z as a matrix and after each of the shared layers, ELU after every one.
        branches: for each the shape of its slice as a matrix, of its hidden matrices, and of its output.
        noise_scale, train_noise_scale, output_scale, rng, seed, dtype, device: as in :class:`MatrixGenerator`.

    Raises:
        ValueError: as :class:`MatrixGenerator`, or if the slices are not all of what the trunk returns.

    Example:
        >>> rng, trunk = torch.Generator().manual_seed(0), [(2, 2), (2, 4)]
        >>> branches = [[(2, 2), (3, 2)], [(2, 2), (2, 3)]]  # each takes four of the trunk's eight numbers
        >>> SplitMatrixGenerator(11, trunk, branches, noise_scale=0.1, rng=rng).rsample(7, rng).shape
        torch.Size([7, 11])
    """

    def __init__(
        self,
        dim: int,
        trunk: Sequence[Shape],
        branches: Sequence[Sequence[Shape]],
        *,
        noise_scale: float | Tensor,
        train_noise_scale: bool = False,
        output_scale: Tensor | None = None,
        rng: torch.Generator | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        _check_shapes("trunk", trunk)
        for i, shapes in enumerate(branches):
            _check_shapes(f"branches[{i}]", shapes)
        if not branches:
            raise ValueError("a SplitMatrixGenerator needs a branch at least; or a MatrixGenerator")
        self.shapes = [[list(shape) for shape in part] for part in (trunk, *branches)]
        rng = chosen_rng(rng, seed, device)
        super().__init__(dim, trunk, branches, noise_scale, train_noise_scale, output_scale, rng, dtype, device)
