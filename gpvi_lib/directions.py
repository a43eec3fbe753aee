"""Directions: vector fields on points that lower KL(q || p).

A direction is called as ``direction(x, score, rng) -> (φ, info)`` with points ``x (n, d)`` and the target's score
``∇log p(x) (n, d)``. Points improve when they move along ``-φ``: φ is the (smoothed) gradient of the KL
divergence with respect to the points. The same directions serve free particles and generators.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import linalg
from gpvi_lib.activations import ACTIVATIONS, check_activation, warn_of_kinks
from gpvi_lib.auxiliary import TrainsNetwork
from gpvi_lib.checks import check_hidden, check_positive
from gpvi_lib.diagnostics import Info
from gpvi_lib.kernels import RBF, bandwidth_of, check_kernel, kernel_gradient_sum
from gpvi_lib.samplers import mlp_from_rng, standard_normal


class Direction:
    """Base of the directions; stateless ones inherit the empty state.

    Example:
        >>> class Attraction(Direction):
        ...     def __call__(self, x, score, rng):
        ...         return -score, {}
        >>> phi, info = Attraction()(torch.ones(3, 2), -torch.ones(3, 2), None)
        >>> phi.shape
        torch.Size([3, 2])
    """

    def __call__(
        self, x: Float[Tensor, "n d"], score: Float[Tensor, "n d"], rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Info]:
        """φ at every point, and diagnostics as of an :class:`~gpvi_lib.objectives.Objective`."""
        raise TypeError(f"{type(self).__name__} must define __call__")

    def check(self) -> None:
        """Warn, before training, of a setting that spoils it."""

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Take up a checkpoint's state."""


@dataclass
class KernelDirection(Direction):
    """Base of directions that compare the points by a kernel.

    Attributes:
        kernel: on the points.

    Raises:
        GPVIError: if it is no kernel.
    """

    kernel: RBF = RBF()

    def __post_init__(self) -> None:
        check_kernel(self.kernel)


@dataclass
class SVGD(KernelDirection):
    """Stein variational gradient descent (Liu and Wang 2016), the negative of eq. 13.

    ``φ_j = -(1/n) Σ_i [k(x_i, x_j) ∇log p(x_i) + ∇_{x_i} k(x_i, x_j)]``, at the points themselves or, given
    ``query (m, d)``, at other points ``x_j``.

    Attributes:
        kernel: on the points; by default its bandwidth follows them (:func:`~gpvi_lib.median_bandwidth`).

    Raises:
        GPVIError: if it is no kernel.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = 5 + torch.randn(10, 2, generator=rng)
        >>> phi, info = SVGD()(x, score(target, x))
        >>> phi.shape, bool((phi.mean(0) > 0).all())  # a step along -φ leads back to 0
        (torch.Size([10, 2]), True)
    """

    def __call__(self, x, score, rng=None, query=None):
        k, weight = self.kernel(x, query)
        phi = -(k.mT @ score + kernel_gradient_sum(weight, x, x if query is None else query)) / len(x)
        return phi, {"bandwidth": lambda: bandwidth_of(k, weight)}


@dataclass
class GFSF(KernelDirection):
    """Gradient flow with smoothed test functions (Liu et al. 2019).

    ``φ = -(∇log p + (K + α I)^{-1} G)`` with ``G_j = Σ_i ∇_{x_i} k(x_i, x_j)``: the kernel estimate of ``-∇log q``.

    Attributes:
        kernel: on the points; by default its bandwidth follows them (:func:`~gpvi_lib.median_bandwidth`).
        ridge: α > 0, relative to ``k(x, x) = 1``; raise it where ``K + α I`` is singular.

    Raises:
        GPVIError: if it is no kernel, or the ridge is not positive.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = 5 + torch.randn(10, 2, generator=rng)
        >>> phi, info = GFSF(ridge=0.01)(x, score(target, x))
        >>> phi.shape
        torch.Size([10, 2])
    """

    ridge: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("GFSF's ridge α", self.ridge)

    def __call__(self, x, score, rng=None):
        k, weight = self.kernel(x)
        regularised = k + self.ridge * torch.eye(len(x), dtype=x.dtype, device=x.device)
        try:
            phi = -(score + linalg.solve(regularised, kernel_gradient_sum(weight, x, x)))
        except torch.linalg.LinAlgError as error:
            error.add_note(f"gpvi_lib: K + αI of GFSF is singular; give it a ridge α above {self.ridge:g}")
            raise
        return phi, {"bandwidth": lambda: bandwidth_of(k, weight)}


@dataclass
class WSGLD(KernelDirection):
    r"""The blob method, "w-SGLD-B" of Chen et al. (2018): the gradient flow of a smoothed energy. It adds no noise.

    With ``s_j = Σ_k K_jk`` the energy of ``n`` points and its gradient, times n and with a fixed bandwidth, are

    .. math:: E = \frac{1}{n} Σ_i [\log s_i - \log p(x_i)], \qquad
              φ_i = -∇\log p(x_i) + Σ_j ∇_{x_i} K_{ij} (1 / s_i + 1 / s_j).

    Attributes:
        kernel: on the points; by default its bandwidth follows them (:func:`~gpvi_lib.median_bandwidth`).

    Raises:
        GPVIError: if it is no kernel.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = torch.randn(10, 2, generator=rng)
        >>> phi, info = WSGLD()(x, score(target, x))
        >>> torch.allclose(phi.mean(0), x.mean(0), atol=1e-5)  # the repulsion of all pairs adds up to 0
        True
    """

    def __call__(self, x, score, rng=None):
        k, weight = self.kernel(x)
        total = k.sum(1, keepdim=True)
        repulsion = kernel_gradient_sum(weight / total, x, x) + kernel_gradient_sum(weight, x, x) / total
        return -(score + repulsion), {"bandwidth": lambda: bandwidth_of(k, weight)}


@dataclass
class PiSGLD(KernelDirection):
    """The mean of :class:`SVGD` and :class:`WSGLD` (Chen et al. 2018): their sum as printed, at half the rate.

    Attributes:
        kernel: on the points; by default its bandwidth follows them (:func:`~gpvi_lib.median_bandwidth`).

    Raises:
        GPVIError: if it is no kernel.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = torch.randn(10, 2, generator=rng)
        >>> one, other = SVGD()(x, score(target, x))[0], WSGLD()(x, score(target, x))[0]
        >>> torch.allclose(PiSGLD()(x, score(target, x))[0], (one + other) / 2)
        True
    """

    def __call__(self, x, score, rng=None):
        one, info = SVGD(self.kernel)(x, score)
        return (one + WSGLD(self.kernel)(x, score)[0]) / 2, info


@dataclass
class SteinCritic(TrainsNetwork, Direction):
    r"""The Stein critic of the Fisher neural sampler (Hu et al. 2018), the "KSD" of the paper's tables.

    A network ``c`` minimises ``E_q[-c·∇log p - tr ∇c] + w E_q||c||^2``; by Stein's identity the minimiser is
    ``c = (∇log p - ∇log q) / (2w)``, so ``φ = -2 w c`` estimates ``∇log q - ∇log p``. The trace is estimated by
    Hutchinson's method. The loss contains the network's derivative, so its activation has to be smooth: with ReLU the
    trace is piecewise constant, and the loss's gradient lacks the motion of the kinks (notebook 02).

    Attributes:
        hidden: widths of the critic's hidden layers.
        activation: of the hidden layers, one of :data:`gpvi_lib.activations.ACTIVATIONS`. The authors' code has
            ``"relu"``, and batch norm besides.
        lr: Adam's learning rate.
        l2_weight: ``w > 0``.
        updates: critic steps per call.

    Raises:
        ValueError: if there is no activation of that name.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> x, direction = torch.randn(10, 2, generator=rng), SteinCritic(hidden=(20,))
        >>> phi, info = direction(x, score(target, x), rng)  # the critic learns a little in every call
        >>> phi.shape, list(info)
        (torch.Size([10, 2]), ['critic_loss'])
    """

    hidden: tuple[int, ...] = (100,)
    lr: float = 1e-3
    l2_weight: float = 10.0
    updates: int = 2
    activation: str = "softplus"

    def __post_init__(self) -> None:
        check_activation(self.activation)
        check_hidden(self.hidden)
        check_positive("l2_weight", self.l2_weight)
        self.check_rates()

    def check(self) -> None:
        """Warn of a critic whose loss has a biased gradient."""
        if self.hidden and not ACTIVATIONS[self.activation].smooth:
            warn_of_kinks("the Stein critic", "its trace")

    def _loss(self, x: Tensor, score: Tensor, rng: torch.Generator) -> Tensor:
        assert self.network is not None, "_ensure_network comes first"
        x = x.detach().requires_grad_(True)
        c = self.network(x)
        probe = standard_normal(x.shape, rng, x)
        (vjp,) = torch.autograd.grad((c * probe).sum(), x, create_graph=True)
        stein = -(c * score).sum(-1) - (vjp * probe).sum(-1)
        return (stein + self.l2_weight * c.square().sum(-1)).mean()

    def __call__(self, x, score, rng):
        widths = [x.shape[1], *self.hidden, x.shape[1]]
        network = self._ensure_network(lambda rng: mlp_from_rng(widths, rng, x.dtype, x.device, self.activation), rng)
        with torch.enable_grad():
            for _ in range(self.updates):
                loss = self._loss(x, score, rng)
                self._descend(loss)
        with torch.no_grad():
            return -2 * self.l2_weight * network(x), {"critic_loss": loss.detach()}
