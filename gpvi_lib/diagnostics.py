"""What an objective says of a step beside its loss: numbers that cost nothing until :func:`gpvi_lib.fit` asks for them.

Each is a function without arguments, made in every step and called on those steps alone that are reported, before the
parameters move. None draws a random number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib import linalg
from gpvi_lib.latent import PointEstimate
from gpvi_lib.samplers import Generator, Linearization, Sampler
from gpvi_lib.targets.base import Target
from gpvi_lib.targets.posterior import Posterior

Info = Mapping[str, Tensor | Callable[[], Tensor | float]]

FOLD_POINTS = 16
"""At how many points of a step the sign of det J is looked at."""

LARGEST_HEAD = 64
"""k up to which it is."""

MOST_NETWORKS = 16
"""How many of a step's samples predict data put aside."""


@torch.no_grad()
def computed(info: Info) -> dict[str, Tensor | float]:
    """All numbers of a step; on a GPU they are still on their way.

    Example:
        >>> computed({"elbo": torch.tensor(-1.5), "spread": lambda: torch.ones(3).mean()})
        {'elbo': tensor(-1.5000), 'spread': tensor(1.)}
    """
    return {name: value() if callable(value) else value for name, value in info.items()}


def without_point(sampler: Sampler) -> tuple[Sampler, int]:
    """The sampler of θ inside a :class:`PointEstimate`, and how many numbers without noise stand before θ.

    Example:
        >>> inner = MeanField(torch.zeros(3), 1.0)
        >>> found, first = without_point(PointEstimate(inner, torch.zeros(2)))
        >>> found is inner, first, without_point(inner)[1]
        (True, 2, 0)
    """
    first = 0
    while isinstance(sampler, PointEstimate):
        first += len(sampler.value)
        sampler = sampler.inner
    return sampler, first


def held_out(target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Info:
    """Log-likelihood of data put aside (:class:`Posterior`), under samples together; nothing where there are none.

    Of at most 16 samples on a quarter as many data as a step takes, so that it costs a fraction of the step.

    Example:
        >>> held_out(Gaussian(torch.zeros(2), torch.eye(2)), torch.zeros(5, 2))
        {}
    """
    if not isinstance(target, Posterior) or target.held_out is None:
        return {}
    used, points = target.num_data if batch is None else len(batch), x[:MOST_NETWORKS].detach()
    return {"held_out": lambda: target.held_out_log_likelihood(points, most=max(1, used // 4))}


def of_samples(
    sampler: Sampler, target: Target, x: Float[Tensor, "n d"], batch: Tensor | None = None, z: Tensor | None = None
) -> Info:
    r"""What samples say of any sampler and target; ``z`` is the noise behind them where that is known.

    ``held_out``: as of :func:`held_out`.

    ``folds``: share of the points with ``det J < 0``, of a :class:`Generator` with small k.

    ``noise_share``: :math:`Σ_i (λ_i σ)^2 / Σ_i \mathrm{Var}(x_i)`, how much of the spread λz alone would give: near 1
    the generator adds nothing to its noise.

    ``spread``: :math:`(\frac1d Σ_i \mathrm{Var}(x_i))^{1/2}`, the standard deviation of a coordinate.

    The last three are of θ alone where the sampler is a :class:`PointEstimate`, whose first coordinates never vary.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> sampler = Generator(2, rng=rng)
        >>> z = sampler.noise(100, rng)
        >>> list(of_samples(sampler, target, sampler(z), z=z))
        ['folds', 'noise_share', 'spread']
    """
    inner, first = without_point(sampler)
    points = x.detach()[:, first:]
    info = dict(held_out(target, x, batch))
    if isinstance(inner, Generator):
        if z is not None and _has_sign(inner):
            info["folds"] = lambda: share_folded(inner.linearize(z[:FOLD_POINTS]))
        if inner.log_noise_scale is not None and len(points) > 1:
            info["noise_share"] = lambda: _noise_variance(inner) / _total_variance(points)
    if len(points) > 1:
        info["spread"] = lambda: (_total_variance(points) / points.shape[1]).sqrt()
    return info


def _has_sign(generator: Generator) -> bool:
    """Whether the Jacobian is regular, and its block small."""
    regular = generator.log_noise_scale is not None or generator.noise_dim == generator.dim
    return regular and generator.noise_dim <= LARGEST_HEAD


def _total_variance(x: Float[Tensor, "n d"]) -> Tensor:
    """``Σ_i Var(x_i)``; ``x.var(0).sum()`` is the same, and 50 times slower in many dimensions."""
    return (x - x.mean(0)).square_().sum() / (len(x) - 1)


def _noise_variance(generator: Generator) -> Tensor:
    """``Σ_i (λ_i σ)^2``."""
    assert generator.noise_scale is not None, "the caller saw to it"
    return (generator.noise_scale * generator.input_stdev).square().sum()


def share_folded(linearization: Linearization) -> Float[Tensor, ""]:
    """The share of points with a negative determinant, where the map turns the noise inside out.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(2, rng=rng, noise_scale=5.0)  # a large λ keeps the determinant positive
        >>> share_folded(generator.linearize(generator.noise(10, rng)))
        tensor(0.)
    """
    return share_negative(linalg.slogdet(linearization.head())[0])


def share_negative(sign: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The share of -1 among signs.

    Example:
        >>> share_negative(torch.tensor([1.0, -1.0, 1.0, 1.0]))
        tensor(0.2500)
    """
    return (sign < 0).to(sign.dtype).mean()
