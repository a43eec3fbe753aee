"""Objectives for samplers without a density: "Two Methods for Wild Variational Inference" (Liu and Feng 2016).

Its update (15) is :class:`ParVI` with :class:`SVGD` on any sampler, and (16), (17) are :class:`KernelSteinDiscrepancy`.
Here are the regression (14), two bounds for a chain of Langevin layers, and training on many problems at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpvi_lib import linalg
from gpvi_lib.checks import check_count
from gpvi_lib.diagnostics import held_out, of_samples
from gpvi_lib.directions import SVGD, Direction
from gpvi_lib.kernels import squared_distances
from gpvi_lib.langevin import LangevinNetwork
from gpvi_lib.objectives import DirectionObjective, Objective
from gpvi_lib.samplers import Sampler
from gpvi_lib.targets.base import log_prob, score_on_support
from gpvi_lib.targets.problems import ProblemFamily

ROWS_AT_ONCE = 500
"""Rows of a Jacobian that one batched backward pass computes."""


def _check_regression(move: float, num_samples: int) -> None:
    if not (move > 0 and math.isfinite(move) and num_samples > 0):
        raise ValueError(
            f"a regression needs a move ε > 0 and at least one sample, got {move} and num_samples = {num_samples}"
        )


@dataclass
class RegressedParVI(DirectionObjective):
    r"""Regression of the sampler's points on where the direction moves them, eq. 14 of Wild VI.

    .. math:: \min_η \tfrac1n \sum_i |f(η; ξ_i) - (z_i - ε φ_i)|^2, \qquad z_i = f(η_{old}; ξ_i),

    with the same random inputs ``ξ`` in ``inner_steps`` steps of the optimizer, then fresh ones. The gradient of the
    first of these steps is ``2 ε`` times that of :class:`ParVI`, so with one step Adam does not see ε.

    Attributes:
        num_samples: points per regression.
        move: ε > 0, how far the points are to go along the direction.
        inner_steps: steps of the optimizer on each regression.
        direction: SVGD unless given.

    Raises:
        ValueError: if the move, the number of samples or the number of inner steps is not positive.

    Example:
        >>> objective, rng = RegressedParVI(50, inner_steps=3), torch.Generator().manual_seed(0)
        >>> sampler, target = Generator(2, rng=rng), Gaussian(torch.zeros(2), torch.eye(2))
        >>> # Two regressions of three steps each.
        >>> history = fit(sampler, target, objective, steps=6, optimizer=Adam(0.01), rng=rng, progress=False)
    """

    num_samples: int
    move: float = 1.0
    inner_steps: int = 1
    direction: Direction = field(default_factory=SVGD)
    _left: int = field(default=0, init=False, repr=False)
    _inputs: Tensor | None = field(default=None, init=False, repr=False)
    _goal: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_regression(self.move, self.num_samples)
        check_count("inner_steps", self.inner_steps)

    def __call__(self, sampler, target, batch, rng):
        if self._left == 0:
            self._inputs, self._left = rng.get_state(), self.inner_steps
            x = sampler.rsample(self.num_samples, rng)
            phi, _ = self.direction(x.detach(), score_on_support(target, x, batch), rng)
            self._goal = x.detach() - self.move * phi
        else:
            assert self._inputs is not None, "the first step of a regression keeps it"
            x = sampler.rsample(self.num_samples, torch.Generator(rng.device).set_state(self._inputs))
        self._left -= 1
        loss = (x - self._goal).square().sum(-1).mean()
        return loss, {"residual": loss.detach(), **of_samples(sampler, target, x, batch)}

    def check(self, sampler: Sampler) -> None:
        """Forget the regression in which an earlier run stopped, then warn as every direction does."""
        self._left, self._inputs, self._goal = 0, None, None
        super().check(sampler)

    def keeps_inputs(self) -> bool:
        return self._left > 0

    def state_dict(self) -> dict:
        kept = {"left": self._left, "inputs": self._inputs, "goal": self._goal}
        return kept | {"direction": super().state_dict()}

    def load_state_dict(self, state: dict) -> None:
        inputs = state["inputs"]
        self._left, self._goal = state["left"], state["goal"]
        self._inputs = None if inputs is None else inputs.cpu()
        super().load_state_dict(state["direction"])


@dataclass
class GaussNewtonParVI(DirectionObjective):
    r"""The regression (14) solved to first order: one Gauss–Newton step, for ``optimizer=SGD(1.0)``.

    With J the Jacobian of all points in the parameters, the change of the parameters is

    .. math:: δ = -ε (J^T J / n + μ I)^{-1} J^T φ / n,

    for which J is formed, a row for each coordinate of each point: for few points and parameters. The gradient of the
    loss is ``-δ``, so a step of gradient descent with learning rate 1 takes the whole of it. The loss's value is the
    regression's before the step, ``ε^2 mean |φ_i|^2``.

    Attributes:
        num_samples: points per step.
        move: ε > 0. Unlike in one step of Adam, it matters.
        damping: μ > 0, in the unit of ``JᵀJ / n``, squared points over squared parameters.
        direction: SVGD unless given.

    Raises:
        ValueError: if the move, the number of samples or the damping is not positive.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> sampler, objective = Generator(2, rng=rng), GaussNewtonParVI(50)
        >>> history = fit(sampler, target, objective, steps=6, optimizer=SGD(1.0), rng=rng, progress=False)
    """

    num_samples: int
    move: float = 0.1
    damping: float = 1e-3
    direction: Direction = field(default_factory=SVGD)

    def __post_init__(self) -> None:
        _check_regression(self.move, self.num_samples)
        if not self.damping > 0:
            raise ValueError(f"the damping μ must be positive, got {self.damping}")

    def __call__(self, sampler, target, batch, rng):
        x = sampler.rsample(self.num_samples, rng)
        phi, _ = self.direction(x.detach(), score_on_support(target, x, batch), rng)
        parameters = [p for p in sampler.parameters() if p.requires_grad]
        change = self._solve(x, phi, parameters)
        flat = torch.cat([p.flatten() for p in parameters])
        residual = (self.move * phi).square().sum(-1).mean()
        info = {"residual": residual, **of_samples(sampler, target, x, batch)}
        return residual - (flat - flat.detach()) @ change, info

    def _solve(self, x: Tensor, phi: Tensor, parameters: list[Tensor]) -> Tensor:
        """δ, flat."""
        rows = torch.eye(x.numel(), dtype=x.dtype, device=x.device).reshape(-1, *x.shape)
        parts = [
            torch.autograd.grad(x, parameters, chunk, retain_graph=True, is_grads_batched=True, materialize_grads=True)
            for chunk in rows.split(ROWS_AT_ONCE)
        ]
        jacobian = torch.cat([torch.cat([part.reshape(len(part), -1) for part in chunk], dim=1) for chunk in parts])
        normal = jacobian.mT @ jacobian / len(x)
        normal.diagonal().add_(self.damping)
        return linalg.solve(normal, jacobian.mT @ phi.reshape(-1, 1) * (-self.move / len(x)))[:, 0]


def _check_chain(objective: Objective, sampler: Sampler) -> None:
    if not isinstance(sampler, LangevinNetwork):
        raise ValueError(f"{type(objective).__name__} needs a LangevinNetwork, got {type(sampler).__name__}")


@dataclass
class PathELBO(Objective):
    """``E[log q_0(z^0) + Σ_t log F_t - log B_t - log p(z^T)]``: the divergence of a Langevin chain's whole path.

    F is a layer's kernel and B the same kernel reversed (:meth:`LangevinNetwork.rsample_with_path_ratio`). For a
    normalised p the loss is an upper bound on ``KL(q_T || p)``, exact in its density and loose.

    Attributes:
        num_samples: chains per step.

    Raises:
        ValueError: if the sampler is no :class:`LangevinNetwork`, or one whose path has no density.

    Example:
        >>> start, target = MeanField(torch.zeros(2), 1.0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> network = LangevinNetwork(start, target, 5, step_size=0.01)
        >>> loss, info = PathELBO(64)(network, target, None, torch.Generator().manual_seed(0))
        >>> loss.shape, list(info)
        (torch.Size([]), ['elbo'])
    """

    num_samples: int

    def __call__(self, sampler, target, batch, rng):
        _check_chain(self, sampler)
        x, ratio = sampler.rsample_with_path_ratio(self.num_samples, rng)
        loss = (ratio - log_prob(target, x, batch)).mean()
        return loss, {"elbo": -loss.detach(), **held_out(target, x, batch)}


@dataclass
class SemiImplicitELBO(Objective):
    r"""An ELBO with the density of ``q_T`` estimated from its last layer (semi-implicit VI, Yin and Zhou 2018).

    ``q̂(x) = (1/n) Σ_j N(x; z_j + η s(z_j), 2 η)`` over the ``n`` chains of a step, each point's own chain
    included: in the mean the loss is an upper bound on ``KL(q_T || p)`` for a normalised p, which falls to it as n
    grows. The chains of a step share their layers' minibatches M: with those it falls to the mean of
    ``KL(q_T(. | M) || p)`` instead, which is larger.

    Attributes:
        num_samples: n, chains per step.

    Raises:
        ValueError: if the sampler is no :class:`LangevinNetwork`, or an :class:`AdaptiveLangevin`.

    Example:
        >>> rng, target = torch.Generator().manual_seed(0), Gaussian(torch.zeros(2), torch.eye(2))
        >>> network = LangevinNetwork(MeanField(torch.zeros(2), 1.0), target, 5)
        >>> loss, info = SemiImplicitELBO(64)(network, target, None, rng)
        >>> loss.shape, list(info)
        (torch.Size([]), ['elbo'])
    """

    num_samples: int

    def __call__(self, sampler, target, batch, rng):
        _check_chain(self, sampler)
        x, mean, variance = sampler.last_layer(self.num_samples, rng)
        scale = variance.sqrt().double()  # tiny for a small η, so that x is far from 0 in its unit
        squared = squared_distances(x / scale, mean / scale).to(x)
        log_q = torch.logsumexp(-0.5 * squared, 1) - math.log(len(x)) - 0.5 * (2 * math.pi * variance).log().sum()
        loss = (log_q - log_prob(target, x, batch)).mean()
        return loss, {"elbo": -loss.detach(), **held_out(target, x, batch)}


@dataclass
class OverProblems(Objective):
    """Another objective on a problem drawn at random for every step: train on many problems, use on unseen ones.

    The target of :func:`fit` is a :class:`ProblemFamily`, the sampler one that works on any problem, such as
    :class:`LangevinNetwork`: ``sampler.on(problem)`` shares its parameters. While a :class:`RegressedParVI` goes on
    with a regression, the problem stays.

    Attributes:
        objective: called as ``objective(sampler.on(problem), problem, batch, rng)``.

    Raises:
        ValueError: if the target is no :class:`ProblemFamily`, or the sampler has no ``on(problem)``.

    Example:
        >>> family = ProblemFamily([Gaussian(mean, torch.eye(2)) for mean in torch.eye(2)])
        >>> network = LangevinNetwork(MeanField(torch.zeros(2), 1.0), family, 5)
        >>> rng = torch.Generator().manual_seed(0)
        >>> objective, optimizer = OverProblems(ParVI(SVGD(), 20)), Adam(0.1)
        >>> result = fit(network, family, objective, steps=3, optimizer=optimizer, rng=rng, progress=False)
    """

    objective: Objective
    _problem: int = field(default=0, init=False, repr=False)

    def __call__(self, sampler, target, batch, rng):
        if not isinstance(target, ProblemFamily):
            raise ValueError(f"OverProblems needs a ProblemFamily as its target, got {type(target).__name__}")
        if not hasattr(sampler, "on"):
            raise ValueError(
                f"OverProblems needs a sampler with on(problem), such as a LangevinNetwork; {type(sampler).__name__} "
                "has none"
            )
        if not self.objective.keeps_inputs():
            self._problem = int(torch.randint(len(target.problems), (), generator=rng, device=rng.device))
        problem = target.problems[self._problem]
        return self.objective(sampler.on(problem), problem, batch, rng)

    def check(self, sampler: Sampler) -> None:
        self.objective.check(sampler)

    def state_dict(self) -> dict:
        return {"problem": self._problem, "objective": self.objective.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self._problem = state["problem"]
        self.objective.load_state_dict(state["objective"])
