"""Samplers: what produces the points that a direction moves.

Every sampler is an ``nn.Module`` with ``dim`` and ``rsample(num_samples, rng) -> (n, d)``, differentiable in the
sampler's parameters; those with a tractable density also have ``rsample_with_log_prob``, and so has
:class:`MultiplicativeFlow`, with a bound in its place.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from gpvi_lib import linalg
from gpvi_lib.activations import ACTIVATIONS, check_activation
from gpvi_lib.checks import check_count, check_hidden, check_points, check_rng, chosen_rng
from gpvi_lib.wide import WideLinear, is_wide


def standard_normal(shape: Sequence[int], rng: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal draws with ``like``'s dtype and device."""
    check_rng(rng)  # with None torch would read the global seed
    return torch.randn(*shape, generator=rng, dtype=like.dtype, device=like.device)


def normal_log_prob(z: Float[Tensor, "n d"], stdev: float = 1.0) -> Float[Tensor, " n"]:
    """``log N(z; 0, stdev^2 I)``."""
    return -0.5 * ((z / stdev).square().sum(-1) + z.shape[-1] * math.log(2 * math.pi * stdev**2))


class Sampler(nn.Module):
    """Base of all samplers: ``dim``, ``fixed_number`` and the no-gradient ``sample``.

    Example:
        >>> class Shifted(Sampler):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dim, self.mean = 2, torch.nn.Parameter(torch.zeros(2))
        ...     def rsample(self, num_samples, rng):
        ...         return self.mean + torch.randn(num_samples, 2, generator=rng)
        >>> Shifted().sample(3, torch.Generator().manual_seed(0)).shape
        torch.Size([3, 2])
    """

    dim: int

    @property
    def fixed_number(self) -> int | None:
        """How many points there are, as of :class:`Particles`; ``None`` where any number can be drawn.

        A sampler with a fixed number takes ``num_samples=None``. One that holds another sampler has the other's.
        """
        return None

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Draw points that carry gradients to the sampler's parameters.

        Args:
            num_samples: n; ``None`` where ``fixed_number`` says how many.
            rng: the only source of randomness; advanced in place.

        Raises:
            ValueError: for ``None`` where any number can be drawn, or for another number than a fixed one.
        """
        raise TypeError(f"{type(self).__name__} must define rsample")

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Draw points together with their log-density, both differentiable.

        Raises:
            ValueError: if the sampler has no tractable density.
        """
        raise ValueError(
            f"{type(self).__name__} has no tractable density; use Generator, MeanField or Flow with this objective"
        )

    def _number(self, num_samples: int | None) -> int:
        """How many points to draw, where that is for the caller to say."""
        if num_samples is None:
            raise ValueError(
                f"a {type(self).__name__} draws any number of points: give num_samples, here or to the objective"
            )
        check_count("num_samples", num_samples)
        return num_samples

    def release_gradients(self) -> None:
        """Forget the gradients of the last step; a subclass may keep their memory for the next."""
        self.zero_grad(set_to_none=True)

    @torch.no_grad()
    def sample(
        self, num_samples: int | None, rng: torch.Generator | None = None, *, seed: int | None = None
    ) -> Float[Tensor, "n d"]:
        """Draw points without gradients; ``seed`` in place of ``rng`` draws from a generator made for this call.

        Raises:
            GPVIError: if rng and seed are both given, or both missing where points are drawn at random.
        """
        if seed is not None:
            tensors = chain(self.parameters(), self.buffers())
            rng = chosen_rng(rng, seed, next((tensor.device for tensor in tensors), "cpu"))
        # Free particles need neither; all others refuse None themselves.
        return self.rsample(num_samples, rng).detach().clone()  # type: ignore[arg-type]


class Particles(Sampler):
    """Free particles: the points are the parameters (ParVI, deep ensembles).

    Args:
        initial: starting positions, ``(n, d)``; dtype and device follow it.

    Raises:
        ValueError: if ``initial`` is no floating point tensor, has another shape, or no row.

    Example:
        >>> particles = Particles(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))
        >>> particles.rsample().shape, particles.dim
        (torch.Size([5, 2]), 2)
    """

    def __init__(self, initial: Float[Tensor, "n d"]) -> None:
        super().__init__()
        check_points("the particles", initial)
        if initial.ndim != 2 or not len(initial):
            raise ValueError(f"particles must have shape (n, d), n >= 1, got {tuple(initial.shape)}")
        self.x = nn.Parameter(initial.detach().clone())
        self.dim = initial.shape[1]

    @property
    def fixed_number(self) -> int:
        """The number of rows."""
        return len(self.x)

    def rsample(self, num_samples: int | None = None, rng: torch.Generator | None = None) -> Tensor:
        """All particles, ``(n, d)``; a set of particles cannot produce another number of them.

        Raises:
            ValueError: if another number is asked for.
        """
        if num_samples not in (None, len(self.x)):
            raise ValueError(
                f"{num_samples} samples asked of {len(self.x)} free particles, which have no others; "
                "ask for None, or use a Generator to draw more"
            )
        return self.x


class Generator(Sampler):
    r"""The reparameterised generator ``f(z) = g(z_{:k}) + λ ⊙ z`` of eq. 6, z ~ N(0, I_d), or N(0, σ^2 I_d).

    ``g: R^k -> R^d`` is a multilayer perceptron with a linear last layer. The Jacobian is block triangular,
    ``J = [[A + Λ_1, 0], [B, Λ_2]]`` with ``A = ∂g_{:k}/∂z_{:k}``, which :meth:`linearize` exposes.

    Args:
        dim: ``d``, the dimension of the points.
        noise_dim: ``k <= d``, how many noise coordinates enter ``g``; ``None`` means ``d``.
        hidden: widths of the hidden layers of ``g``; empty for a linear generator.
        noise_scale: ``λ > 0``, a number or one per coordinate ``(d,)``, best near the scale of the target. The
            paper has 1 in all its experiments. If λ starts far above the target's scale, training folds the map.
            ``None`` leaves λz out. For k < d the samples then lie on a k-dimensional set: enough for amortised ParVI,
            but there is no density and no inverse.
        train_noise_scale: whether log λ is trained together with ``g``.
        activation: of the hidden layers, one of :data:`gpvi_lib.activations.ACTIVATIONS`. With ``"relu"``, the paper's,
            the gradient of :class:`NegativeELBO` is biased; that of :class:`GPVI` has no derivative of J and is not.
            In hundreds of dimensions and more, :class:`GPVI` wants units whose mean is not zero, ``"softplus"`` or
            ``"relu"``: with others its output layer walks at random and the samples spread (notebook 02).
        input_stdev: ``σ > 0``, the standard deviation of z. σ ≠ 1 is the same as σ = 1 with ``g``'s first weights and λ
            times σ, up to the steps of those weights in training and a bandwidth that is given as a number.
        output_scale: ``(d,)`` or ``None``. With it the output layer starts with biases ``N(0, output_scale^2)`` and
            with PyTorch's default weights times ``output_scale``: the scale of a prior over network weights makes
            the first samples trainable networks, and the scale of a target far from order one keeps ``g`` from
            outweighing λ at the start, which widens the samples and can fold the map. ``None`` is PyTorch's default
            initialisation.
        rng: source of the initial weights.
        seed: in place of ``rng``: of a generator made for them.
        dtype, device: of the parameters.

    Raises:
        ValueError: if ``k`` is not in 1..d, if σ <= 0, if λ is not positive and finite or has the wrong shape, or
            if rng and seed are both given or both missing.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(3, 2, (16,), noise_scale=0.1, rng=rng)
        >>> generator.sample(1_000, rng).shape
        torch.Size([1000, 3])
        >>> x, log_q = generator.rsample_with_log_prob(5, rng)
        >>> x.shape, log_q.shape
        (torch.Size([5, 3]), torch.Size([5]))
    """

    log_noise_scale: Tensor | None

    def __init__(
        self,
        dim: int,
        noise_dim: int | None = None,
        hidden: Sequence[int] = (),
        *,
        noise_scale: float | Tensor | None = 1.0,
        train_noise_scale: bool = False,
        activation: str = "tanh",
        input_stdev: float = 1.0,
        output_scale: Tensor | None = None,
        rng: torch.Generator | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        noise_dim = dim if noise_dim is None else noise_dim
        check_count("dim", dim)
        check_count("noise_dim", noise_dim)
        check_hidden(hidden)
        dim, noise_dim = int(dim), int(noise_dim)
        if noise_dim > dim:
            raise ValueError(f"noise_dim k must be between 1 and dim d = {dim}, got {noise_dim}")
        check_activation(activation)
        if not input_stdev > 0:
            raise ValueError(f"input_stdev σ must be positive, got {input_stdev}")
        self.dim, self.noise_dim, self.activation, self.input_stdev = dim, noise_dim, activation, float(input_stdev)
        rng = chosen_rng(rng, seed, device)
        widths = [noise_dim, *hidden]
        self.hidden = nn.ModuleList(_linear(i, o, rng, dtype, device) for i, o in pairwise(widths))
        self.output = _linear(widths[-1], dim, rng, dtype, device)
        self._spare: list[Tensor] = []
        if output_scale is not None:
            output_scale = torch.as_tensor(output_scale, dtype=dtype, device=device)
            if output_scale.shape != (dim,):
                raise ValueError(f"output_scale must have shape ({dim},), got {tuple(output_scale.shape)}")
            with torch.no_grad():
                self.output.weight.mul_(output_scale[:, None])
                self.output.bias.copy_(output_scale * standard_normal((dim,), rng, self.output.bias))
        log_scale = None if noise_scale is None else log_noise_scale(noise_scale, dim, dtype, device)
        if train_noise_scale and log_scale is None:
            raise ValueError("train_noise_scale=True needs a λ to train: give a noise_scale > 0")
        keep_log_noise_scale(self, log_scale, train_noise_scale)

    @classmethod
    def for_weights(
        cls,
        scale: Float[Tensor, " d"],
        noise_dim: int = 8,
        hidden: Sequence[int] = (32, 32),
        *,
        relative_noise: float = 0.02,
        rng: torch.Generator | None = None,
        seed: int | None = None,
    ) -> Self:
        """A generator for the weights of a network, to start from where you have none of your own.

        Its first samples are of the prior's ``scale``, as trainable networks are, and it trains one λ per weight. Its
        units are softplus, which suit both the density and the functional gradient in many dimensions (notebook 02).

        Args:
            scale: the prior's standard deviation of each weight, such as ``posterior.prior.scale``; dtype and device
                follow it.
            noise_dim, hidden: k, at most d, and the hidden layers of ``g``: cheap by default; larger ones fit more.
            relative_noise: the first λ in units of ``scale``.
            rng: source of the initial weights.
            seed: in place of ``rng``: of a generator made for them.

        Raises:
            ValueError: if ``scale`` is one number for all weights.

        Example:
            >>> generator = Generator.for_weights(torch.full((100,), 0.1), seed=0)
            >>> generator.dim, generator.noise_dim
            (100, 8)
        """
        if not isinstance(scale, Tensor) or scale.ndim != 1:
            raise ValueError(
                f"scale must be one number per weight, (d,), got {scale}: torch.full((posterior.dim,), {scale}) is that"
            )
        return cls(
            len(scale),
            min(noise_dim, len(scale)),
            hidden,
            noise_scale=relative_noise * scale,
            train_noise_scale=True,
            activation="softplus",
            output_scale=scale,
            rng=rng,
            seed=seed,
            dtype=scale.dtype,
            device=scale.device,
        )

    @property
    def noise_scale(self) -> Float[Tensor, " d"] | None:
        """λ as one number per coordinate, ``(d,)``, or ``None`` without λ."""
        return None if self.log_noise_scale is None else self.log_noise_scale.exp().expand(self.dim)

    @property
    def hidden_weights(self) -> list[Tensor]:
        """Weights of the hidden layers of ``g``, ``(w_l, w_{l-1})`` each."""
        return [cast(nn.Linear, layer).weight for layer in self.hidden]

    def noise(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """Draw z ~ N(0, σ^2 I_d), ``(n, d)``."""
        z = standard_normal((self._number(num_samples), self.dim), rng, self.output.weight)
        return z if self.input_stdev == 1 else self.input_stdev * z

    def _layers(self, z: Float[Tensor, "n d"]) -> tuple[list[Tensor], list[Tensor]]:
        """Inputs and outputs of all activations; before the first output stands ``z_{:k}``."""
        activation = ACTIVATIONS[self.activation].value
        inputs, outputs = [], [z[:, : self.noise_dim]]
        for layer in self.hidden:
            inputs.append(layer(outputs[-1]))
            outputs.append(activation(inputs[-1]))
        return inputs, outputs

    def from_features(self, features: Float[Tensor, "n w"], z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """``f(z)`` from the last hidden layer ``a`` at the same points: ``W_out a + b + λ ⊙ z``."""
        return self._add_noise(self.output_of(features), z)

    def _add_noise(self, x: Float[Tensor, "n d"], z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        noise_scale = self.noise_scale
        return x if noise_scale is None else x + noise_scale * z

    def output_of(self, features: Float[Tensor, "n w"]) -> Float[Tensor, "n d"]:
        """``W_out a + b``."""
        return self._output_and_rows(features, 0)[0]

    def _output_and_rows(
        self, features: Float[Tensor, "n w"], number: int
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "k w"]]:
        """``W_out a + b`` and the first rows of ``W_out``, so that a large one gets the gradient of both at once."""
        weight, bias = self.output.weight, self.output.bias
        if not is_wide(weight):
            return F.linear(features, weight, bias), weight[:number]
        x, rows = WideLinear.apply(features, weight, self._spare, number)
        return x + bias, rows

    def release_gradients(self) -> None:
        """Forget the gradients, but keep the memory of the largest for the next step."""
        weight = self.output.weight
        self._spare[:] = [weight.grad] if weight.grad is not None and is_wide(weight) else []
        super().release_gradients()

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """``f(z)``, eq. 6."""
        return self.from_features(self._layers(z)[1][-1], z)

    def features_and_linearize(self, z: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n w"], "Linearization"]:
        """The last hidden layer ``a`` of ``g`` and the :class:`Linearization` of ``f``, with one forward pass.

        Raises:
            ValueError: without λ and with k < d, where the Jacobian is singular everywhere.
        """
        if self.log_noise_scale is None and self.noise_dim < self.dim:
            raise ValueError(
                f"without λ the Jacobian is singular for k = {self.noise_dim} < d = {self.dim}; "
                "give the Generator a noise_scale > 0 or set noise_dim = dim"
            )
        inputs, features = self._layers(z)
        slope = ACTIVATIONS[self.activation].slope
        linearization = Linearization(
            weights=self.hidden_weights,
            slopes=[slope(x, a) for x, a in zip(inputs, features[1:], strict=True)],
            output_weight=self.output.weight,
            first_rows=self.output.weight[: self.noise_dim],
            noise_scale=self.noise_scale,
            num_points=len(z),
        )
        return features[-1], linearization

    def forward_and_linearize(self, z: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], "Linearization"]:
        """``f(z)`` and the :class:`Linearization` of ``f`` at the same points, with one forward pass.

        Raises:
            ValueError: as :meth:`features_and_linearize`.
        """
        features, linearization = self.features_and_linearize(z)
        x, rows = self._output_and_rows(features, self.noise_dim)
        return self._add_noise(x, z), replace(linearization, first_rows=rows)

    def linearize(self, z: Float[Tensor, "n d"]) -> "Linearization":
        """The Jacobian of ``f`` at ``n`` points as an operator."""
        return self.features_and_linearize(z)[1]

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``f(z)`` at fresh noise."""
        return self(self.noise(num_samples, rng))

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """``x = f(z)`` and ``log q(x) = log N(z; 0, σ^2 I) - log|det J(z)|`` (eq. 1, exact where f is injective)."""
        return rsample_with_density(self, num_samples, rng)[:2]


def rsample_with_density(
    sampler: Sampler, num_samples: int, rng: torch.Generator
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"], Float[Tensor, " n"] | None]:
    """Draws, their log-density and the signs of ``det J``, which only a :class:`Generator` has.

    The density of a generator, ``log N(z; 0, σ^2 I) - log|det J(z)|`` (eq. 1), is exact where ``f`` is injective.
    Draws and density are differentiable. A generator inside a :class:`PointEstimate` has signs as well.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> x, log_q, sign = rsample_with_density(Generator(3, 2, (8,), rng=rng), 5, rng)
        >>> x.shape, log_q.shape, sign.shape
        (torch.Size([5, 3]), torch.Size([5]), torch.Size([5]))
    """
    inner, complete = getattr(sampler, "inner", None), getattr(sampler, "complete", None)
    if isinstance(inner, Sampler) and callable(complete):  # a PointEstimate, whose module imports this one
        x, log_q, sign = rsample_with_density(inner, num_samples, rng)
        return complete(x), log_q, sign
    if not isinstance(sampler, Generator) or type(sampler).rsample_with_log_prob is not Generator.rsample_with_log_prob:
        return *sampler.rsample_with_log_prob(num_samples, rng), None
    z = sampler.noise(num_samples, rng)
    x, linearization = sampler.forward_and_linearize(z)
    sign, logabsdet = linearization.slogdet()
    return x, normal_log_prob(z, sampler.input_stdev) - logabsdet, sign


with_density = torch.no_grad()(rsample_with_density)
"""The same without gradients."""


def log_noise_scale(noise_scale: float | Tensor, dim: int, dtype: torch.dtype, device) -> Tensor:
    """The logarithm of a sampler's noise scale, a number or ``(d,)``.

    Raises:
        ValueError: if the scale is not positive and finite, or no number, or has another shape.
    """
    try:
        scale = torch.as_tensor(noise_scale, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"noise_scale must be a number or ({dim},), got {noise_scale!r}") from None
    if scale.ndim and scale.shape != (dim,):
        raise ValueError(f"noise_scale must be a number or ({dim},), got {tuple(scale.shape)}")
    bad = scale[~((scale > 0) & scale.isfinite())]
    if len(bad):
        raise ValueError(f"noise_scale must be positive and finite, got {float(bad[0])}")
    return scale.log()


def keep_log_noise_scale(sampler: Sampler, log_scale: Tensor | None, train: bool) -> None:
    """Make ``log_scale`` the ``log_noise_scale`` of a sampler, as a parameter if it is trained, else as a buffer."""
    if train and log_scale is not None:
        sampler.register_parameter("log_noise_scale", nn.Parameter(log_scale))
    else:
        sampler.register_buffer("log_noise_scale", log_scale)


def _linear(fan_in: int, fan_out: int, rng: torch.Generator, dtype, device) -> nn.Linear:
    """``nn.Linear`` with PyTorch's default distribution of initial weights, drawn from ``rng``."""
    check_rng(rng)
    layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=dtype, device=device)
    bound = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=rng)
        layer.bias.uniform_(-bound, bound, generator=rng)
    return layer


def mlp_from_rng(widths: Sequence[int], rng: torch.Generator, dtype, device, activation: str = "relu") -> nn.Sequential:
    """Multilayer perceptron with linear output, initial weights from ``rng`` (critics and helpers)."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [_linear(fan_in, fan_out, rng, dtype, device), ACTIVATIONS[activation].module()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Linearization:
    """``J(z_i) = ∂f/∂z`` at ``n`` points, never formed unless asked for. All methods are differentiable.

    Attributes:
        weights: hidden weights of ``g``, ``(w_l, w_{l-1})`` each.
        slopes: derivative of each activation at each point, ``(n, w_l)`` each.
        output_weight: ``W_out (d, w)``.
        first_rows: its first k, ``(k, w)``, which alone act on the determinant.
        noise_scale: λ per coordinate ``(d,)``, or ``None``.
        num_points: ``n``.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> generator = Generator(3, 2, (16,), rng=rng)
        >>> jacobian = generator.linearize(generator.noise(4, rng))
        >>> jacobian.vjp(torch.ones(4, 1, 3)).shape, jacobian.dense().shape
        (torch.Size([4, 1, 3]), torch.Size([4, 3, 3]))
        >>> torch.allclose(jacobian.slogdet()[1], torch.linalg.slogdet(jacobian.dense())[1], atol=1e-5)
        True
    """

    weights: list[Tensor]
    slopes: list[Tensor]
    output_weight: Tensor
    first_rows: Tensor
    noise_scale: Tensor | None
    num_points: int

    def at(self, points: slice) -> "Linearization":
        """The same at some of the points."""
        number = len(range(*points.indices(self.num_points)))
        return replace(self, slopes=[slope[points] for slope in self.slopes], num_points=number)

    def detach(self) -> "Linearization":
        """The same without the graph of the forward pass behind its slopes."""
        rows = self.output_weight[: self.noise_dim]
        return replace(self, slopes=[slope.detach() for slope in self.slopes], first_rows=rows)

    @property
    def noise_dim(self) -> int:
        """``k``."""
        return (self.weights[0] if self.weights else self.output_weight).shape[1]

    def features_vjp(self, v: Float[Tensor, "n m w"]) -> Float[Tensor, "n m k"]:
        """``(∂a/∂z_{:k})ᵀ v`` for ``m`` vectors at each point, ``a`` the features before the output layer."""
        for weight, slope in zip(reversed(self.weights), reversed(self.slopes), strict=True):
            v = (v * slope[:, None]) @ weight
        return v

    def features_jacobian(self) -> Float[Tensor, "n k w"]:
        """``(∂a/∂z_{:k})ᵀ``, forwards from the input: ``W_1ᵀ S_1 W_2ᵀ S_2 ..``, the slopes as diagonals ``S``."""
        if not self.weights:
            k, like = self.noise_dim, self.output_weight
            return torch.eye(k, dtype=like.dtype, device=like.device).expand(self.num_points, k, k)
        jacobian = self.weights[0].mT * self.slopes[0][:, None]
        for weight, slope in zip(self.weights[1:], self.slopes[1:], strict=True):
            jacobian = F.linear(jacobian, weight) * slope[:, None]
        return jacobian

    def latent_jvp(self, v: Float[Tensor, "n m k"]) -> Float[Tensor, "n m d"]:
        """``(∂g/∂z_{:k}) v`` for ``m`` vectors at each point."""
        for weight, slope in zip(self.weights, self.slopes, strict=True):
            v = F.linear(v, weight) * slope[:, None]
        return F.linear(v, self.output_weight)

    def latent_vjp(self, h: Float[Tensor, "n m d"]) -> Float[Tensor, "n m k"]:
        """``(∂g/∂z_{:k})ᵀ h`` for ``m`` vectors at each point."""
        return self.features_vjp(h @ self.output_weight)

    def gram(self) -> Float[Tensor, "n k k"]:
        r"""``J̃ᵀJ̃`` with ``J̃ = diag(1/λ) ∂g/∂z_{:k}``, λ = 1 where there is none.

        As ``∂g/∂z = W_out D(z)`` it is ``Dᵀ (W_outᵀ diag(λ^{-2}) W_out) D``, whose inner ``(w, w)`` matrix all points
        share: nothing of size ``(d, k)`` exists.
        """
        jacobian, weight = self.features_jacobian(), self.output_weight
        scaled = weight if self.noise_scale is None else weight / self.noise_scale[:, None]
        return jacobian @ (scaled.mT @ scaled) @ jacobian.mT

    def double(self) -> "Linearization":
        """The same in float64, where the squares of small singular values are not noise."""
        noise_scale = None if self.noise_scale is None else self.noise_scale.double()
        weights, slopes = [w.double() for w in self.weights], [s.double() for s in self.slopes]
        output = self.output_weight.double(), self.first_rows.double()
        return Linearization(weights, slopes, *output, noise_scale, self.num_points)

    def vjp(self, h: Float[Tensor, "n m d"]) -> Float[Tensor, "n m d"]:
        """``Jᵀh`` for ``m`` vectors at each point (eq. 11)."""
        k, d = self.noise_dim, self.output_weight.shape[0]
        pulled = F.pad(self.features_vjp(h @ self.output_weight), (0, d - k))
        return pulled if self.noise_scale is None else pulled + self.noise_scale * h

    def head(self) -> Float[Tensor, "n k k"]:
        """``A + Λ_1``, the only block whose determinant depends on ``g``."""
        rows = self.first_rows.expand(self.num_points, self.noise_dim, -1)
        return self.with_noise(self.features_vjp(rows))

    def head_from(self, jacobian: Float[Tensor, "n k w"]) -> Float[Tensor, "n k k"]:
        """``A + Λ_1 = W_out,1 D + Λ_1`` from :meth:`features_jacobian`'s ``Dᵀ``."""
        return self.with_noise(F.linear(jacobian, self.first_rows).mT)

    def with_noise(self, a: Float[Tensor, "*n k k"]) -> Float[Tensor, "*n k k"]:
        """``A + Λ_1`` from ``A``."""
        return a if self.noise_scale is None else a + torch.diag(self.noise_scale[: self.noise_dim])

    def dense(self) -> Float[Tensor, "n d d"]:
        """``J`` as a matrix, for checks and for small d."""
        d = self.output_weight.shape[0]
        identity = torch.eye(d, dtype=self.output_weight.dtype, device=self.output_weight.device)
        return self.vjp(identity.expand(self.num_points, d, d))

    def slogdet(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Sign and ``log|det J| = log|det(A + Λ_1)| + Σ log λ_2`` at each point, without any (d, d) matrix.

        The sign is that of ``det(A + Λ_1)``; a negative one proves that ``f`` is not orientation preserving
        there, so it cannot be the injective map with positive definite Jacobian that appendix A.4 supposes.
        """
        sign, logabsdet = linalg.slogdet(self.head())
        if self.noise_scale is not None:
            logabsdet = logabsdet + self.noise_scale[self.noise_dim :].log().sum()
        return sign, logabsdet

    def oriented_log_det(self, floor: float) -> Float[Tensor, " n"]:
        r"""``log det J`` that counts a negative determinant as a loss instead of by its absolute value.

        With ``D = det(A + Λ_1)`` it is ``log D`` for ``D >= floor``, and below that the tangent of the logarithm,
        ``log floor + D / floor - 1``, which is above ``log D`` for ``D > 0`` and falls without end; plus ``Σ log λ_2``.
        Differentiable everywhere.
        For small ``k``: determinants of large matrices have no natural scale.

        Args:
            floor: where the tangent takes over, > 0 and far below the determinants of a good map; in the unit of the
                points to the power k.
        """
        determinant = linalg.det(self.head())
        log_det = determinant.clamp_min(floor).log() + (determinant.clamp_max(floor) / floor - 1)
        if self.noise_scale is not None:
            log_det = log_det + self.noise_scale[self.noise_dim :].log().sum()
        return log_det


class MeanField(Sampler):
    """Fully factorised Gaussian ``N(m, diag(softplus(ρ)^2))`` (Bayes by Backprop, Blundell et al. 2015).

    Args:
        mean: initial means, ``(d,)``; dtype and device follow it.
        scale: initial standard deviation > 0, a number or ``(d,)``.

    Raises:
        ValueError: if the mean is no floating point tensor ``(d,)``, or the scale is not positive or of another shape.

    Example:
        >>> sampler = MeanField(torch.zeros(3), scale=0.5)
        >>> x, log_q = sampler.rsample_with_log_prob(4, torch.Generator().manual_seed(0))
        >>> x.shape, log_q.shape
        (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(self, mean: Float[Tensor, " d"], scale: float | Tensor = 0.05) -> None:
        super().__init__()
        check_points("the mean", mean)
        scale = torch.as_tensor(scale, dtype=mean.dtype, device=mean.device)
        if mean.ndim != 1 or scale.shape not in ((), (1,), mean.shape):
            raise ValueError(
                f"a MeanField needs a mean (d,) and a scale that is one number or (d,), got {tuple(mean.shape)} and "
                f"{tuple(scale.shape)}"
            )
        scale = scale.expand_as(mean)
        if not bool((scale > 0).all()):
            raise ValueError(f"the initial scale must be positive, got {float(scale.min())}")
        self.dim = len(mean)
        self.mean = nn.Parameter(mean.detach().clone())
        self.rho = nn.Parameter(torch.where(scale > 20, scale, torch.log(torch.expm1(scale))))  # softplus(ρ) = scale

    @property
    def scale(self) -> Float[Tensor, " d"]:
        """Standard deviations ``softplus(ρ)``."""
        return F.softplus(self.rho)

    def rsample(self, num_samples: int | None, rng: torch.Generator) -> Float[Tensor, "n d"]:
        """``m + s ⊙ ε``."""
        return self.mean + self.scale * standard_normal((self._number(num_samples), self.dim), rng, self.mean)

    def rsample_with_log_prob(
        self, num_samples: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Samples and their Gaussian log-density."""
        noise = standard_normal((self._number(num_samples), self.dim), rng, self.mean)
        return self.mean + self.scale * noise, normal_log_prob(noise) - self.scale.log().sum()
