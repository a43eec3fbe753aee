"""Hand-made step sizes of Langevin dynamics, what learned ones are compared with: schedules and adaptive rules."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.checks import check_count, check_positive
from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.hamiltonian import HMCResult, LogProb, hmc
from gpvi_lib.langevin import ChainInputs, LangevinNetwork
from gpvi_lib.samplers import Sampler
from gpvi_lib.targets.base import Target, differentiable_score

RULES = ("adagrad", "rmsprop", "adadelta")


def power_decay(
    layers: int, scale: float, offset: float = 0.0, exponent: float = 0.55, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "T 1"]:
    """``η^t = scale (offset + t)^(-exponent)`` for ``t = 1, ..., T``; the exponent 0 gives constant steps.

    Args:
        layers: T, how many steps.
        scale, offset, exponent: of the formula.
        dtype: of the result.

    Raises:
        GPVIError: if there are no layers, the scale is not positive, or the offset is -1 or less.

    Example:
        >>> power_decay(3, 0.5, exponent=1.0)[:, 0]
        tensor([0.5000, 0.2500, 0.1667], dtype=torch.float64)
    """
    check_count("layers", layers)
    check_positive("scale", scale)
    if not offset > -1:
        raise GPVIError(f"offset must be above -1, so that the first step is finite, got {offset}")
    return scale * (offset + torch.arange(1, layers + 1, dtype=dtype)[:, None]) ** -exponent


def curvature(target: Target, at: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """``1 / H_ii`` with H the Hessian of ``-log p`` at a point, such as the mode of a training problem.

    Args:
        target: twice differentiable.
        at: the point, ``(d,)``.

    Raises:
        ValueError: if the target can be differentiated only once, or a second derivative is not positive there.

    Example:
        >>> curvature(Gaussian(torch.zeros(2), torch.diag(torch.tensor([1.0, 4.0]))), torch.zeros(2))
        tensor([1., 4.])
    """
    # The Jacobian of the score: torch's hessian takes a score that can be differentiated only once for a constant.
    slopes = torch.autograd.functional.jacobian(lambda z: differentiable_score(target, z[None])[0], at)
    assert isinstance(slopes, Tensor)
    diagonal = -slopes.diagonal()
    if not bool((diagonal > 0).all()):
        raise ValueError(
            f"-log p has a second derivative of {float(diagonal.min()):.3g} there, which gives no step size: take a "
            "point closer to the mode"
        )
    return 1 / diagonal


SETTINGS = ("per_coordinate", "batch_size", "dtype", "device")
NOT_MARKOV = "adaptive steps depend on the chain's past: use a LangevinNetwork"


class AdaptiveLangevin(LangevinNetwork):
    """Langevin layers whose step sizes follow the scores that each chain has met, by an optimizer's rule.

    Every chain and coordinate keeps the running sums of its own, with PyTorch's default constants: ``η = m / (√G + ε)``
    for "adagrad" with ``G`` the sum of squared scores and for "rmsprop" with their running mean; for "adadelta"
    ``η = m √(V + ε) / √(G + ε)`` with ``V`` the running mean of ``(η s / m)^2``, s the score. The noise has
    variance ``2 η``.

    Args:
        rule: "adagrad", "rmsprop" or "adadelta".
        start, target, layers: as of :class:`LangevinNetwork`.
        step_size: m > 0, the master step size.
        settings: ``per_coordinate``, ``batch_size``, ``dtype``, ``device``, as there.

    Raises:
        UnknownName: if there is no such rule, or another setting is given.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> chain = AdaptiveLangevin("rmsprop", MeanField(torch.zeros(2), 1.0), target, 10, 0.1)
        >>> chain.sample(5, rng).shape
        torch.Size([5, 2])
    """

    def __init__(self, rule: str, start: Sampler, target: Target | None, layers: int, step_size: float, **settings):
        if rule not in RULES:
            raise UnknownName.among("rule of step sizes", rule, RULES)
        for name in settings.keys() - set(SETTINGS):
            raise UnknownName.among("setting of an AdaptiveLangevin", name, SETTINGS)
        super().__init__(start, target, layers, step_size=step_size, **settings)
        self.requires_grad_(False)  # the rule sets the steps, so that there is nothing to train
        self.rule = rule

    @torch.no_grad()
    def _states(self, inputs: ChainInputs) -> Iterator[Float[Tensor, "n d"]]:
        z = inputs.start
        squares, drifts = torch.zeros_like(z), torch.zeros_like(z)
        yield z
        for layer, master in enumerate(self.step_size):
            slope = self._score(z, None if inputs.batches is None else inputs.batches[layer])
            if self.rule == "adagrad":
                squares = squares + slope.square()
                step = master / (squares.sqrt() + 1e-10)
            elif self.rule == "rmsprop":
                squares = 0.99 * squares + 0.01 * slope.square()
                step = master / (squares.sqrt() + 1e-8)
            else:
                squares = 0.9 * squares + 0.1 * slope.square()
                ratio = ((drifts + 1e-6) / (squares + 1e-6)).sqrt()
                drifts = 0.9 * drifts + 0.1 * (ratio * slope).square()
                step = master * ratio
            z = z + step * slope + (2 * step).sqrt() * inputs.noise[layer]
            yield z

    def rsample_with_path_ratio(self, num_samples, rng):
        """An adaptive chain is no Markov chain, and its path has no reversed kernels.

        Raises:
            ValueError: always.
        """
        raise ValueError(NOT_MARKOV)

    def last_layer(self, num_samples, rng):
        """The last step of each chain depends on its past, and a draw does not tell it.

        Raises:
            ValueError: always.
        """
        raise ValueError(NOT_MARKOV)


def mala(
    log_prob: LogProb,
    initial: Float[Tensor, "c d"],
    *,
    step_size: float,
    num_steps: int,
    burn_in: int = 0,
    adapt: bool = False,
    rng: torch.Generator | None = None,
    seed: int | None = None,
    **settings,
) -> HMCResult:
    """Langevin proposals with accept and reject: :func:`hmc` with one leapfrog step of ``√(2 η)``.

    With ``adapt`` the burn-in finds η by dual averaging, towards the share 0.574 of accepted proposals that is optimal
    in many dimensions (Roberts and Rosenthal 1998). The ``step_size`` of the result and of warnings is that of the
    leapfrog, ``√(2 η)``.

    Args:
        log_prob, initial, num_steps, burn_in, adapt, rng, seed: as in :func:`hmc`.
        step_size: η > 0, that of :class:`LangevinNetwork`.
        settings: ``thin``, ``checkpoint``, ``checkpoint_seconds``, ``label``, ``progress``, as in :func:`hmc`.

    Raises:
        ValueError: if η is not positive, or as :func:`hmc`.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> draws = mala(lambda x: -0.5 * x.square().sum(-1), torch.zeros(8, 2), step_size=0.3, num_steps=5, rng=rng)
        >>> draws.samples.shape
        torch.Size([5, 8, 2])
    """
    if not step_size > 0:
        raise ValueError(f"step_size η must be positive, got {step_size}")
    return hmc(
        log_prob,
        initial,
        step_size=math.sqrt(2 * step_size),
        num_leapfrog=1,
        num_steps=num_steps,
        burn_in=burn_in,
        adapt=adapt,
        target_acceptance=0.574,
        rng=rng,
        seed=seed,
        **settings,
    )
