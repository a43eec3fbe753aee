"""Kernels on particles or on noise, with gradients that never form an ``(n, m, d)`` tensor.

The radial basis function of the paper (appendix B.2, whose printed plus sign is a slip) is

.. math:: k(x', x) = exp(-||x' - x||^2 / h).

Its gradient in the first argument has the structure ``∇_{x'_i} k(x'_i, x_j) = W_ij (x'_i - x_j)`` with
``W = -(2 / h) K``, so a weighted sum of gradients is a pair of matrix products.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_instance, check_positive
from gpvi_lib.errors import GPVIError

BandwidthRule = Literal["paper", "half"]


def squared_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """All ``||x_i - y_j||^2``, by one matrix product.

    Both sets are shifted by the mean of ``y`` first: distances do not change, cancellation shrinks.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> squared_distances(x, x)
        tensor([[ 0., 25.],
                [25.,  0.]])
    """
    centre = y.mean(0)
    near = y - centre
    far = near if x is y else x - centre
    columns = near.square().sum(-1)
    rows = columns if x is y else far.square().sum(-1)
    return torch.addmm(rows[:, None] + columns, far, near.mT, alpha=-2).clamp_min_(0)


def median_bandwidth(squared: Float[Tensor, "n m"], rule: BandwidthRule = "paper", *, same: bool) -> Float[Tensor, ""]:
    """The median heuristic for the bandwidth ``h`` of :class:`RBF` (same unit as the squared distances).

    Args:
        squared: squared distances between two sets of samples.
        rule: ``"paper"`` is ``h = med^2 / log m`` (appendix B.2), ``m`` the number of columns, which is that of rows in
            training; ``"half"`` is ``med^2 / log(n m)``, as in the authors' code: half of it when ``n = m``.
        same: whether rows and columns are the same samples; the ``n`` zeros of the diagonal are then left out.

    Raises:
        ValueError: with fewer than two samples, for which no bandwidth is defined.

    Example:
        >>> squared = torch.tensor([[0.0, 4.0], [4.0, 0.0]])  # of two points at distance 2
        >>> round(float(median_bandwidth(squared, same=True)), 2)  # 4 / log 2
        5.77
    """
    n, m = squared.shape
    if min(n, m) < 2:
        raise ValueError(
            f"the median bandwidth needs at least 2 samples on each side, got {n} and {m}: "
            "give two particles or more, or num_samples >= 2, or a bandwidth as RBF(1.0)"
        )
    median = squared.flatten().kthvalue(n + (n * m - n + 1) // 2).values if same else squared.median()
    return median / (math.log(m) if rule == "paper" else math.log(n * m))


@dataclass(frozen=True)
class RBF:
    """``k(x', x) = exp(-||x' - x||^2 / h)``.

    Attributes:
        bandwidth: ``"paper"`` or ``"half"`` for the median heuristic (:func:`median_bandwidth`),
            or a positive number ``h``.

    Raises:
        ValueError: if the bandwidth is neither a rule nor positive.

    Example:
        >>> k, weight = RBF(bandwidth=2.0)(torch.tensor([[0.0], [1.0]]))
        >>> k
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """

    bandwidth: BandwidthRule | float = "paper"

    def __post_init__(self) -> None:
        if isinstance(self.bandwidth, str):
            if self.bandwidth not in ("paper", "half"):
                raise ValueError(f"bandwidth must be 'paper', 'half' or a number, got {self.bandwidth!r}")
        else:
            check_positive("the bandwidth h", self.bandwidth)

    def bandwidth_at(self, squared: Float[Tensor, "n m"], *, same: bool) -> float | Float[Tensor, ""]:
        """The ``h`` that the kernel takes on these squared distances; ``same`` as in :func:`median_bandwidth`."""
        if not isinstance(self.bandwidth, str):
            return self.bandwidth
        h = median_bandwidth(squared, self.bandwidth, same=same)
        return h + (h == 0)  # samples that coincide have no scale of their own: any h > 0 gives k = 1 among them

    def __call__(
        self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"] | None = None
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m"]]:
        """Kernel matrix and gradient weights.

        Args:
            x: first arguments ``x'``, ``(n, d)``.
            y: second arguments, ``(m, d)``; ``None`` means ``x`` itself.

        Returns:
            ``K (n, m)`` and ``W (n, m)`` with ``∇_{x_i} k(x_i, y_j) = W_ij (x_i - y_j)``.
        """
        same = y is None
        squared = squared_distances(x, x if y is None else y)
        h = self.bandwidth_at(squared, same=same)
        rate = -1 / h
        k = torch.exp(squared * rate)
        return k, k * (2 * rate)


def bandwidth_of(k: Float[Tensor, "n m"], weight: Float[Tensor, "n m"]) -> Float[Tensor, ""]:
    """The ``h`` behind both results of :class:`RBF`: ``W = -(2 / h) K``, read where K is largest.

    Example:
        >>> bandwidth_of(*RBF(bandwidth=2.0)(torch.tensor([[0.0], [1.0]])))
        tensor(2.)
    """
    return -2 * k.max() / weight.min()


def kernel_gradient_sum(
    weight: Float[Tensor, "n m"], x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]
) -> Float[Tensor, "m d"]:
    """``sum_i W_ij (x_i - y_j)`` for every ``j``: the summed kernel gradient, by matrix products.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> kernel_gradient_sum(torch.ones(2, 2), x, x)
        tensor([[ 1.],
                [-1.]])
    """
    centre = y.mean(0)  # differences do not see it, float32 far from the origin does
    near = y - centre
    far = near if x is y else x - centre
    return torch.addcmul(weight.mT @ far, weight.sum(0)[:, None], near, value=-1)


def check_kernel(kernel: object) -> None:
    """Refuse what cannot be called on points, and a class where one of its instances belongs.

    Raises:
        GPVIError: naming what was given and the remedy.
    """
    check_instance("kernel", kernel)
    if not callable(kernel):
        raise GPVIError(f"kernel must be a kernel, got {kernel!r}: such as RBF(1.0)")
