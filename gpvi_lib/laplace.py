"""The Laplace approximation: a normal at the mode with the curvature there."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.errors import GPVIError
from gpvi_lib.targets.base import Target, score

LARGEST_SLOPE = 1e-3
"""Of ``-log p`` at the mode, in units of the approximation's standard deviations."""


def laplace(target: Target, initial: Float[Tensor, " d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Mode and inverse Hessian of ``-log p``, by SciPy's trust-region Newton method; for small d.

    Args:
        target: twice differentiable; give it float64 data.
        initial: where the search starts.

    Raises:
        GPVIError: if the search finds no mode.

    Example:
        >>> target = Gaussian(torch.ones(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
        >>> mode, covariance = laplace(target, torch.zeros(2, dtype=torch.float64))
        >>> mode
        tensor([1., 1.], dtype=torch.float64)
    """
    from scipy.optimize import minimize

    def point(x) -> Tensor:
        return torch.as_tensor(x, dtype=initial.dtype, device=initial.device)

    def hessian(x) -> Tensor:
        found = torch.autograd.functional.hessian(lambda z: -target.log_prob(z[None])[0], point(x))
        assert isinstance(found, Tensor)
        return found

    found = minimize(
        lambda x: -float(target.log_prob(point(x)[None])),
        initial.cpu().numpy(),
        jac=lambda x: -score(target, point(x)[None])[0].cpu().numpy(),
        hess=lambda x: hessian(x).cpu().numpy(),
        method="trust-exact",
        options={"gtol": 1e-6, "maxiter": 500},
    )
    mode = point(found.x)
    factor, info = torch.linalg.cholesky_ex(hessian(mode))
    slope = score(target, mode[None])[0]
    if (
        int(info)
        or not float(torch.linalg.solve_triangular(factor, slope[:, None], upper=False).norm()) < LARGEST_SLOPE
    ):
        raise GPVIError(f"no mode of {type(target).__name__} was found from that start ({found.message})")
    return mode, torch.cholesky_inverse(factor)
