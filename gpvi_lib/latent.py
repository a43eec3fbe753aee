"""Samplers with a latent number: ``θ = g(z) + s ⊙ η``, z in R^k and η in R^m independent standard normals.

q is a mixture over z. Unlike :class:`Generator`, whose λ multiplies z itself, it has no density in closed form:
:mod:`gpvi_lib.entropy` has approximations and certified bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpvi_lib.errors import GPVIError
from gpvi_lib.samplers import Generator, Sampler, standard_normal


class LatentJacobian(Protocol):
    """``J(z_i) = ∂g/∂z`` at ``n`` points as an operator, together with ``s``; differentiable.

    Attributes:
        num_points: n, how many z.
        noise_dim: k, the dimension of z.
        noise_scale: ``s``, ``(m,)``.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(5, 2, (8,), noise_scale=0.1, rng=rng)
        >>> _, jacobian = sampler.latent_linearize(torch.randn(3, 2, generator=rng))
        >>> jacobian.latent_jvp(torch.ones(3, 1, 2)).shape, jacobian.gram().shape
        (torch.Size([3, 1, 5]), torch.Size([3, 2, 2]))
    """

    @property
    def num_points(self) -> int: ...

    @property
    def noise_dim(self) -> int: ...

    @property
    def noise_scale(self) -> Tensor | None: ...

    def latent_jvp(self, v: Float[Tensor, "n j k"]) -> Float[Tensor, "n j m"]:
        """``J v`` for ``j`` vectors at each point."""
        ...

    def latent_vjp(self, h: Float[Tensor, "n j m"]) -> Float[Tensor, "n j k"]:
        """``Jᵀ h`` for ``j`` vectors at each point."""
        ...

    def gram(self) -> Float[Tensor, "n k k"]:
        """``J̃ᵀJ̃``, ``J̃ = diag(1/s) J``."""
        ...

    def double(self) -> LatentJacobian:
        """The same in float64."""
        ...


class LatentSampler(Sampler):
    """Base of the samplers ``θ = g(z) + s ⊙ η``; ``s`` is a property ``noise_scale``, ``(m,)``.

    Example:
        >>> sampler = LatentGenerator(5, 2, noise_scale=0.1, rng=torch.Generator().manual_seed(0))
        >>> isinstance(sampler, LatentSampler), sampler.latent_forward(torch.zeros(3, 2)).shape
        (True, torch.Size([3, 5]))
    """

    noise_dim: int
    noise_scale: Tensor

    def latent_forward(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
        """``g(z)``."""
        raise TypeError(f"{type(self).__name__} must define latent_forward")

    def latent_linearize(self, z: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "n m"], LatentJacobian]:
        """``g(z)`` and ``∂g/∂z``, with one forward pass."""
        raise TypeError(f"{type(self).__name__} must define latent_linearize")

    def noise(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n k+m"]:
        """z and η, side by side."""
        return standard_normal((self._number(num_samples), self.noise_dim + self.dim), rng, self.noise_scale)

    def forward(self, noise: Float[Tensor, "n k+m"]) -> Float[Tensor, "n m"]:
        """``g(z) + s ⊙ η``."""
        z, eta = noise.split([self.noise_dim, self.dim], dim=-1)
        return self.latent_forward(z) + self.noise_scale * eta

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n m"]:
        """``θ`` at fresh noise."""
        return self(self.noise(num_samples, rng))

    def rsample_with_log_prob(self, num_samples: int, rng: torch.Generator):
        """Refused: q is a mixture over z."""
        raise ValueError(
            f"a {type(self).__name__} is a mixture over z, without a density in closed form: train it with LIVI, and "
            "bound its ELBO with elbo_bracket; a Generator has an exact density"
        )


class LatentGenerator(LatentSampler, Generator):
    r"""``θ = g(z) + s ⊙ η`` with the multilayer perceptron ``g: R^k -> R^m`` of :class:`Generator`.

    Args:
        dim: m, the dimension of the points.
        noise_dim: ``k <= m``.
        hidden: widths of the hidden layers of ``g``.
        noise_scale: ``s > 0``, one number, LIVI's σ, or one per coordinate ``(m,)``.
        arguments: ``train_noise_scale``, ``activation``, ``output_scale``, ``rng`` or ``seed``, ``dtype``, ``device``,
            as :class:`Generator` has them.

    Raises:
        ValueError: if ``k`` is not in 1..m, or if ``s`` is missing, not positive and finite or of another shape.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> sampler = LatentGenerator(5, 2, (8,), noise_scale=0.1, rng=rng)
        >>> sampler.noise(3, rng).shape, sampler.rsample(3, rng).shape
        (torch.Size([3, 7]), torch.Size([3, 5]))
    """

    def __init__(self, dim: int, noise_dim: int, hidden=(), *, noise_scale: float | Tensor, **arguments) -> None:
        if noise_scale is None:
            raise ValueError("a LatentGenerator needs a noise_scale s > 0: without it q has no density at all")
        if "input_stdev" in arguments:
            raise ValueError("the z of a LatentGenerator is standard normal: leave input_stdev out")
        Generator.__init__(self, dim, noise_dim, hidden, noise_scale=noise_scale, **arguments)

    def latent_forward(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
        return self.output_of(self._layers(z)[1][-1])

    def latent_linearize(self, z: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "n m"], LatentJacobian]:
        features, linearization = Generator.features_and_linearize(self, z)
        return self.output_of(features), linearization

    def features_and_linearize(self, z):
        """Refused: the map from z and η to the points is not square."""
        raise ValueError(
            "a LatentGenerator maps k + m numbers to m, so its Jacobian has no inverse: use LIVI, or a Generator"
        )


class PointEstimate(Sampler):
    """Numbers without noise before a sampler's points: ``x = [u, θ]``, u trained by type-II maximum likelihood.

    With :class:`LearnedNoise`, whose log σ comes first, and :class:`FlatFirst` as prior, u is a regression's noise.

    Args:
        sampler: of θ.
        start: first value of u, ``(p,)`` or a number.

    Raises:
        GPVIError: if the sampler has neither parameters nor buffers, whose type and device u takes.

    Example:
        >>> sampler = PointEstimate(MeanField(torch.zeros(3), 1.0), start=-1.0)
        >>> x = sampler.sample(4, torch.Generator().manual_seed(0))
        >>> x.shape, bool((x[:, 0] == -1).all())
        (torch.Size([4, 4]), True)
    """

    def __init__(self, sampler: Sampler, start: Float[Tensor, " p"] | float = 0.0) -> None:
        super().__init__()
        some = _a_tensor(sampler)
        self.inner = sampler
        self.value = nn.Parameter(torch.as_tensor(start, dtype=some.dtype, device=some.device).reshape(-1).clone())
        self.dim = len(self.value) + sampler.dim

    @property
    def fixed_number(self) -> int | None:
        """That of the sampler of θ."""
        return self.inner.fixed_number

    def complete(self, x: Float[Tensor, "n m"]) -> Float[Tensor, "n p+m"]:
        """``[u, x]``."""
        return torch.cat([self.value.to(x.dtype).expand(len(x), -1), x], dim=-1)

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n p+m"]:
        """The sampler's points, each after the same u."""
        return self.complete(self.inner.rsample(num_samples, rng))

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n p+m"], Float[Tensor, " n"]]:
        """Points, and the log-density of θ."""
        x, log_q = self.inner.rsample_with_log_prob(num_samples, rng)
        return self.complete(x), log_q


def _a_tensor(sampler: Sampler) -> Tensor:
    """Return a parameter or buffer of a sampler, for its floating point type and its device."""
    for tensor in chain(sampler.parameters(), sampler.buffers()):
        if tensor.is_floating_point():
            return tensor
    raise GPVIError(
        f"a PointEstimate takes type and device of its sampler, and {type(sampler).__name__} has neither parameters "
        "nor buffers: give it one, such as self.register_buffer('like', torch.zeros(()))"
    )


def latent_part(sampler: Sampler) -> tuple[LatentSampler, Callable[[Tensor], Tensor]]:
    """The :class:`LatentSampler` in a sampler, and what completes its θ to a point.

    Raises:
        ValueError: if there is none.
    """
    inner, complete = (sampler.inner, sampler.complete) if isinstance(sampler, PointEstimate) else (sampler, _as_it_is)
    if not isinstance(inner, LatentSampler):
        raise ValueError(
            f"a {type(inner).__name__} has no latent z of its own: take a LatentGenerator, MatrixGenerator or "
            "SplitMatrixGenerator, or for samplers with a density NegativeELBO"
        )
    return inner, complete


def _as_it_is(x: Tensor) -> Tensor:
    return x
