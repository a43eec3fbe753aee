"""The posterior over the weights of any module, with any likelihood."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution
from torch.utils.data import Dataset, default_collate

from gpvi_lib.checks import check_count, check_instance, check_positive, chosen_rng
from gpvi_lib.errors import GPVIError
from gpvi_lib.networks import FlatModule
from gpvi_lib.several import Several, as_inputs, check_tensor, structure
from gpvi_lib.targets.base import same_draws
from gpvi_lib.targets.likelihoods import CategoricalLikelihood, NormalLikelihood
from gpvi_lib.targets.priors import NormalPrior, check_prior

LogLikelihood = Callable[[Float[Tensor, "n b ..."], Float[Tensor, "b ..."]], Float[Tensor, "n b"]]

EVALUATED = 10_000
"""How many networks times inputs :meth:`Posterior.predictive` evaluates at once."""

LARGE = 10.0
"""Root mean square of an input or of the targets above which the default prior does not suit them."""
SMALL = 0.1
"""If no input, or no target, is larger than this, the default prior does not suit them either."""

SIZES = (1, 2, 4, 16, 64)
"""By how much weights are enlarged to tell a log-probability from a loss."""
SUPPORTED = 1_000
"""Data whose targets have to be in the support of the likelihood, at most."""

TRIED = 16
"""So many networks are asked for it, on so many data at most."""

PROBED = 3
"""How many inputs are evaluated alone and together, to see that a prediction does not depend on the others."""

TIED = (
    "the module ties the data of a batch to each other: its output for an input alone is another than among others. "
    "Leave out functional batch norm and statistics over the first axis; GroupNorm and LayerNorm are for one datum"
)


RANDOM = (
    "the module draws random numbers when it is evaluated, as F.dropout does unless it is given training=False: leave "
    "that out; nn.Dropout is switched off by itself"
)


class ScaleWarning(UserWarning):
    """Data of a :class:`Posterior` are far from order one, for which its default prior is made."""


class SignWarning(UserWarning):
    """A log-density of one's own, or a likelihood, grows as the points or weights do, as a loss would."""


def _named(name: str, values: object) -> dict[str, Any]:
    """A tensor, or each of several, under the name that messages use."""
    return {f"{name}[{of!r}]": part for of, part in values.items()} if isinstance(values, Several) else {name: values}


def _check_numbers(name: str, values: object) -> None:
    """Refuse what is no tensor, or no several ones, or has a number that is not finite."""
    for called, part in _named(name, values).items():
        check_tensor(called, part)
        if part.requires_grad:
            raise ValueError(f"{called} carry a graph of what computed them, which no step needs: give .detach()")
        if part.dtype in (torch.float16, torch.bfloat16):
            raise ValueError(f"{called} is {part.dtype}, too coarse for a posterior: give it as float32, .float()")
        if part.is_floating_point() and not bool((good := torch.isfinite(part)).all()):
            where = (~good).nonzero()[0].tolist()
            raise ValueError(f"{called}{where} is {part[tuple(where)].item()}: leave such data out, or fill them in")


def _refuse_parameters(name: str, part: object) -> None:
    """Refuse what has parameters of its own, which nothing here would train."""
    if isinstance(part, nn.Module) and any(parameter.requires_grad for parameter in part.parameters()):
        raise GPVIError(
            f"the {name} has parameters of its own, and w holds the module's alone, so nothing would train them: make "
            f"them outputs of the module, as LearnedNoise does, or constants, {name}.requires_grad_(False)"
        )


def _check_data(inputs: object, targets: object) -> None:
    _check_numbers("inputs", inputs)
    _check_numbers("targets", targets)
    assert isinstance(inputs, (Tensor, Several)) and isinstance(targets, Tensor), "just seen"
    if len(inputs) != len(targets):
        raise ValueError(f"{len(inputs)} inputs but {len(targets)} targets")
    if not len(inputs):
        raise ValueError("there are no data: inputs and targets have 0 rows")
    if inputs.device != targets.device:
        raise ValueError(f"the inputs are on {inputs.device} and the targets on {targets.device}: move one of them")


def evenly_spaced(number: int, most: int, device: torch.device | str = "cpu") -> Int[Tensor, " m"]:
    """At most so many of the indices below ``number``, evenly spaced from the first to the last.

    They are computed in float64 on the CPU: float32 rounds the last of more than 2^24 up to ``number`` itself.

    Example:
        >>> evenly_spaced(20_000_000, 3)
        tensor([       0, 10000000, 19999999])
    """
    rows = torch.linspace(0, number - 1, min(number, most), dtype=torch.float64, device="cpu")
    return rows.round().long().to(device)


def _shown(rows: Int[Tensor, " b"], most: int = 5) -> str:
    """The first of some indices."""
    return ", ".join(map(str, rows[:most].tolist())) + (", …" if len(rows) > most else "")


def _far_from_one(part: Tensor) -> str:
    """The size of a part of the data that is too large or too small for the default prior; else nothing."""
    size, most = float(part.square().mean(0).max().sqrt()), float(part.abs().max())
    if size > LARGE:
        return f"of size {size:.3g} (root mean square)"
    return f"of at most {most:.3g}" if 0 < most < SMALL else ""


def _warn_of_scale(inputs: Tensor | Several, targets: Tensor | None, normal: bool) -> None:
    """Say so where data are far from order one, for which the default prior is made.

    Targets that are not normal, such as times, may have no negative values: they can only have another unit.
    """
    parts = (_named("inputs", inputs) | ({} if targets is None else {"targets": targets})).items()
    far = {name: size for name, part in parts if part.is_floating_point() and (size := _far_from_one(part))}
    if far:
        sizes = " and ".join(f"{name} {size}" for name, size in far.items())
        remedy = "standardise them, as RegressionData.standardised does"
        if "targets" in far and not normal:
            remedy = "standardise inputs, and give targets another unit"
        warnings.warn(
            f"the default prior is for numbers of order one, and there are {sizes}: {remedy}, or give a prior",
            ScaleWarning,
            stacklevel=3,
        )


def of_each(likelihood: Callable, outputs: Float[Tensor, "n b ..."], targets: Float[Tensor, "b ..."]) -> Tensor:
    """What the likelihood says of each datum under each network, ``(n, b)``.

    Raises:
        ValueError: if it returns another shape.
    """
    try:
        value = likelihood(outputs, targets)
    except (RuntimeError, TypeError, ValueError) as error:
        if not isinstance(error, torch.linalg.LinAlgError | GPVIError):  # they have remedies of their own
            error.add_note(
                f"gpvi_lib: the likelihood was given outputs {tuple(outputs.shape)}, of {len(outputs)} networks, and "
                f"targets {tuple(targets.shape)}; it must return log-probabilities ({len(outputs)}, {len(targets)})"
            )
        raise
    if value.shape != (len(outputs), len(targets)):
        raise ValueError(
            f"the likelihood must return one log-probability per network and datum, shape ({len(outputs)}, "
            f"{len(targets)}), got {tuple(value.shape)} for outputs {tuple(outputs.shape)} and targets "
            f"{tuple(targets.shape)}"
        )
    return value


class Posterior:
    """``p(w | D) ∝ p(w) Π_i p(y_i | x_i, w)`` over the flattened weights ``w (d,)`` of any ``nn.Module``.

    Args:
        module: your network, see :class:`FlatModule` for what it may contain; or a ``FlatModule``.
        likelihood: ``(outputs (n, b, ...), targets (b, ...)) -> log-probabilities (n, b)`` of the data under each of
            ``n`` networks, independent given the weights. :class:`NormalLikelihood` and
            :class:`CategoricalLikelihood` are two; any function will do.
        inputs: ``(N, ...)``; for a module that takes several tensors a tuple of them, or a dictionary of those it takes
            by name, each with N rows.
        targets: ``(N, ...)``.
        prior: anything with ``log_prob(w)``; ``None`` for independent normals with mean 0 and variance 1 / fan-in.
        power: of a tempered likelihood, ``p(w) p(D | w)^power``; 1 is Bayes' rule.
        held_out: inputs and targets put aside, of which the posterior knows nothing: :func:`fit` then reports their
            log-likelihood among its diagnostics. Choose by them, and keep others for the last word.

    Attributes:
        dim, num_data: d and N.
        network: the module as a :class:`FlatModule`.
        prior: the one given, or a :class:`NormalPrior` whose ``scale`` is 1 / √(fan-in), ``(d,)``.
        likelihood, targets, power: as given.
        inputs, held_out: as given; several tensors become one object, which is indexed as a tensor is.

    Warns:
        ScaleWarning: with the default prior, if the root mean square of an input or of the targets is above 10, or
            all of them are below 0.1 and not all zero; not of whole numbers under a likelihood of your own.
        SignWarning: if a likelihood of your own grows as the weights do, as a loss does.

    Raises:
        ValueError: if the power is not positive, the likelihood is a loss of torch, there are no data or not as many
            inputs as targets, they are of half precision, a number of theirs is not finite, the prior is for another
            number of weights, the module cannot be evaluated on the inputs, its output for one input depends on the
            others of a batch, the likelihood does not return one number for each network and datum, or its
            ``check(outputs, targets)``, where it has one, refuses them.

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 20)[:, None]
        >>> posterior = Posterior(mlp([1, 10, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> w = posterior.sample_prior(4, rng)  # four networks
        >>> posterior.log_prob(w).shape, posterior.log_prob(w, torch.arange(5)).shape
        (torch.Size([4]), torch.Size([4]))
        >>> posterior.predictive(w, x).mean.shape
        torch.Size([20])
        >>> posterior
        Posterior(31 weights, NormalLikelihood, 20 data)
    """

    def __init__(
        self,
        module: nn.Module | FlatModule,
        likelihood: LogLikelihood,
        inputs: Any,
        targets: Float[Tensor, "N ..."],
        prior=None,
        power: float = 1.0,
        held_out: tuple[Any, Float[Tensor, "M ..."]] | None = None,
    ) -> None:
        inputs = as_inputs(inputs)
        _check_data(inputs, targets)
        if isinstance(module, type) or not isinstance(module, nn.Module | FlatModule):
            raise GPVIError(f"module must be a torch.nn.Module, an instance, got {module!r:.80}")
        check_instance("likelihood", likelihood)
        _refuse_parameters("likelihood", likelihood)
        _refuse_parameters("prior", prior)
        if not callable(likelihood):
            raise GPVIError(f"likelihood must be callable, such as NormalLikelihood(0.1), got {likelihood!r:.80}")
        if isinstance(likelihood, nn.modules.loss._Loss):
            raise GPVIError(
                f"{type(likelihood).__name__} is a loss, of all data at once: give a likelihood, which returns one "
                "log-probability for each network and datum, such as CategoricalLikelihood() or NormalLikelihood(0.1)"
            )
        check_positive("power", power)
        self.power = float(power)
        self.network = module if isinstance(module, FlatModule) else FlatModule(module)
        self.likelihood = likelihood
        self.inputs: Any = inputs  # a tensor, or Several
        self.targets = targets
        dtype = self._dtype(inputs)
        self.prior = NormalPrior(self.network.fan_in_scale(dtype).to(inputs.device)) if prior is None else prior
        self.dim, self.num_data = self.network.dim, len(inputs)
        check_prior(self.prior, self.dim, self.inputs)
        if prior is None:
            normal = isinstance(likelihood, NormalLikelihood)
            counts = not normal and (not targets.is_floating_point() or bool((targets == targets.round()).all()))
            _warn_of_scale(self.inputs, None if counts else targets, normal)
        self._check_outputs(self._a_network())
        self._check_rows(dtype)
        self._check_likelihood(dtype)
        self._check_support(dtype)
        self._warn_of_a_loss(dtype)
        if held_out is not None:
            if not isinstance(held_out, tuple | list) or len(held_out) != 2:
                raise GPVIError(f"held_out must be a pair (inputs, targets), got {type(held_out).__name__}")
            held_out = (as_inputs(held_out[0]), held_out[1])
            self._check_held_out(*held_out)
        self.held_out = held_out

    def __repr__(self) -> str:
        """What it is made of: a notebook's cell often ends with one."""
        made = self.likelihood
        likelihood = getattr(made, "__name__", type(made).__name__)
        tempered = "" if self.power == 1 else f", power {self.power:g}"
        return f"{type(self).__name__}({self.dim:,} weights, {likelihood}, {self.num_data:,} data{tempered})"

    @torch.no_grad()
    def _check_outputs(self, weights: Float[Tensor, "1 d"]) -> None:
        """Evaluate one network on the first inputs, and ask the likelihood what it thinks of the outputs."""
        outputs = self._evaluated(weights, self.inputs[:1])
        self._evaluated(weights, self.inputs[:2])  # where one number passes for one row of one feature
        if hasattr(self.likelihood, "check"):
            self.likelihood.check(outputs, self.targets)

    @torch.no_grad()
    def _check_likelihood(self, dtype: torch.dtype) -> None:
        """Call the likelihood on three data and two networks, so that no axis can stand for another.

        One that works for as many networks as data alone has an axis too many. One that is made for a certain number of
        networks is let through.
        """
        if len(self.inputs) < 3:
            return
        w = 0.1 * torch.randn(3, self.dim, generator=torch.Generator().manual_seed(0), dtype=dtype, device="cpu")
        outputs, targets = self.network(w.to(self.inputs.device), self.inputs[:3]), self.targets[:3]
        why = self._failure(outputs[:2], targets)
        if why is None or self._failure(outputs, targets) or self._failure(outputs[:2, :2], targets[:2]):
            return
        raise ValueError(
            f"the likelihood works only where there are as many networks as data: targets {tuple(targets.shape)} meet "
            f"outputs {tuple(outputs.shape)}, and one column of either wants .squeeze(-1): {why}"
        )

    @torch.no_grad()
    def _check_support(self, dtype: torch.dtype) -> None:
        """Refuse targets to which a distribution of torch, as the likelihood, gives no probability, at some data."""
        rows = evenly_spaced(len(self.inputs), SUPPORTED, self.inputs.device)
        weights = torch.zeros(1, self.dim, dtype=dtype, device=self.inputs.device)
        try:
            self.likelihood(self.network(weights, self.inputs[rows]), self.targets[rows])
        except (RuntimeError, ValueError) as error:
            found = re.search(r"within the support \((.*)\) of the distribution (\w+)", str(error))
            if found:
                raise ValueError(
                    f"some targets are outside the support of the likelihood's {found[2]}: {found[1]}"
                ) from error

    def _warn_of_a_loss(self, dtype: torch.dtype) -> None:
        """Say so where larger weights, which miss the data more, have the larger likelihood.

        One that stays below 0 is let through: a loss that grows does not, but the log-probability of counts so large
        that no rate reaches them does.
        """
        if isinstance(self.likelihood, NormalLikelihood | CategoricalLikelihood):
            return
        values = self._of_sizes(dtype)
        if len(values) > 2 and values[-1] > 0 and all(small < large for small, large in itertools.pairwise(values)):
            warnings.warn(
                f"the likelihood grows as the weights do (mean over {TRIED} networks from the prior: {values[0]:.3g}, "
                f"with weights {SIZES[len(values) - 1]} times as large: {values[-1]:.3g}), where a log-probability "
                "would fall: of a loss give the negative",
                SignWarning,
                stacklevel=3,
            )

    @torch.no_grad()
    def _of_sizes(self, dtype: torch.dtype) -> list[float]:
        """Mean log-likelihood for each of ``SIZES``, up to the first that the likelihood cannot take.

        There is one network at a time in memory.
        """
        rows, scale = evenly_spaced(len(self.inputs), TRIED, self.inputs.device), self.network.fan_in_scale(dtype)

        def value(size: int, number: int) -> float:
            rng = torch.Generator().manual_seed(number)
            noise = torch.randn(len(scale), generator=rng, dtype=dtype, device="cpu")
            w = (size * scale * noise)[None].to(rows.device)
            return float(self._of_each(self.network(w, self.inputs[rows]), self.targets[rows]).mean())

        found: list[float] = []
        for size in SIZES:
            try:
                mean = sum(value(size, number) for number in range(TRIED)) / TRIED
            except (RuntimeError, ValueError):
                break
            if math.isnan(mean):
                break
            found.append(mean)
        return found

    def _failure(self, outputs: Float[Tensor, "n b ..."], targets: Float[Tensor, "b ..."]) -> str | None:
        """What the likelihood dies of, if it does; an answer of another shape is raised."""
        try:
            self.likelihood(outputs, targets)
        except (RuntimeError, ValueError) as error:
            return str(error) or type(error).__name__
        self._of_each(outputs, targets)
        return None

    def _evaluated(self, weights: Float[Tensor, "1 d"], inputs: Any) -> Tensor:
        """The outputs, or an error that says what a module has to do."""
        try:
            return self.network(weights, inputs)
        except ValueError as error:
            if "more than 1 value per channel" in str(error):  # in torch's words
                raise ValueError(TIED) from error
            raise
        except (RuntimeError, TypeError, AttributeError, IndexError) as error:
            if "random operation" in str(error):  # in torch.vmap's words
                raise ValueError(RANDOM) from error
            if isinstance(inputs, Tensor) and inputs.ndim == 1:
                raise ValueError(
                    f"the module cannot be evaluated on inputs of shape ({len(self.inputs)},): where it takes rows of "
                    f"one feature give inputs[:, None]: {error}"
                ) from error
            if isinstance(inputs, Tensor) and not inputs.is_floating_point():
                raise ValueError(
                    f"the module cannot be evaluated on inputs of {inputs.dtype}: where they are no indices give "
                    f"inputs.float(): {error}"
                ) from error
            raise ValueError(
                f"the module cannot be evaluated on inputs {tuple(self.inputs.shape[1:])} for many weights at once; it "
                "has to take the inputs as they are (a tensor, a tuple, or a dictionary of those it takes by name) and "
                "return one tensor, by operations that torch.vmap knows (or give a FlatModule of it, its one_by_one "
                f"set to True): {error}"
            ) from error

    @torch.no_grad()
    def _check_rows(self, dtype: torch.dtype) -> None:
        """Refuse a module whose prediction for an input depends on the others of its batch, at some random weights."""
        rows = evenly_spaced(len(self.inputs), PROBED, self.inputs.device)
        noise = torch.randn(self.dim, generator=torch.Generator().manual_seed(0), dtype=dtype, device="cpu")
        weights = (noise * self.network.fan_in_scale(dtype))[None].to(self.inputs.device)
        parts = [self.inputs[row : row + 1] for row in rows.tolist()]
        if self._tied(weights, self.inputs[rows], parts) and not self._rounds(weights, self.inputs[rows], parts):
            raise ValueError(TIED)

    def _tied(self, weights: Float[Tensor, "1 d"], all_rows: Any, parts: list) -> bool:
        """Whether predictions for inputs together differ from those for each alone.

        Raises:
            ValueError: if they are not one row per input.
        """
        together = self.network(weights, all_rows)
        alone = torch.cat([self.network(weights, part) for part in parts], dim=1)
        if together.shape != alone.shape:
            raise ValueError(
                f"the module must return one row per input: of {len(parts)} inputs {tuple(together.shape[1:])}, of "
                f"each alone {tuple(alone.shape[1:])} in all"
            )
        close = torch.finfo(weights.dtype).eps ** 0.5
        scale = float(together.abs().nan_to_num(0, 0, 0).max()) if together.numel() else 0.0
        return not torch.allclose(together, alone, rtol=close, atol=close * scale, equal_nan=True)

    def _rounds(self, weights: Float[Tensor, "1 d"], all_rows: Any, parts: list) -> bool:
        """Whether the difference is gone in float64: a sine of 1e5 keeps few digits in float32."""
        if not isinstance(all_rows, Tensor) or not all_rows.is_floating_point():
            return False
        try:
            return not self._tied(weights.double(), all_rows.double(), [part.double() for part in parts])
        except Exception:  # the module wants float32
            return False

    @staticmethod
    def _dtype(inputs: Any) -> torch.dtype:
        """Of the weights."""
        return inputs.dtype if inputs.is_floating_point() else torch.get_default_dtype()

    def _a_network(self) -> Float[Tensor, "1 d"]:
        """Weights whose outputs are looked at: not zero, where all outputs of a layer are alike."""
        rng = torch.Generator().manual_seed(0)
        w = 0.1 * torch.randn(1, self.dim, generator=rng, dtype=self._dtype(self.inputs), device="cpu")
        return w.to(self.inputs.device)

    @torch.no_grad()
    def _check_held_out(self, inputs: Any, targets: Tensor) -> None:
        """Data put aside have to be such as the others."""
        try:
            _check_data(inputs, targets)
        except ValueError as error:
            raise ValueError(f"held_out: {error}") from None
        for name, seen, aside in (("inputs", self.inputs, inputs), ("targets", self.targets, targets)):
            if (seen.shape[1:], seen.dtype, seen.device) != (aside.shape[1:], aside.dtype, aside.device):
                raise ValueError(
                    f"held_out: its {name} are {tuple(aside.shape[1:])} {aside.dtype} on {aside.device} each, those of "
                    f"the others {tuple(seen.shape[1:])} {seen.dtype} on {seen.device}: convert them"
                )
        if hasattr(self.likelihood, "check"):
            try:
                self.likelihood.check(self._evaluated(self._a_network(), inputs[:1]), targets)
            except ValueError as error:
                raise ValueError(f"held_out: {error}") from None

    @torch.no_grad()
    def held_out_log_likelihood(self, w: Float[Tensor, "n d"], most: int | None = None) -> Float[Tensor, ""]:
        """``(1/M) Σ_m log (1/n) Σ_i p(y_m | x_m, w_i)`` of the data put aside, or of ``most`` of them, evenly spaced.

        Raises:
            ValueError: if no data have been put aside.
        """
        if self.held_out is None:
            raise ValueError("no data are put aside: give the posterior held_out=(inputs, targets)")
        inputs, targets = self.held_out
        if most is not None and most < len(inputs):
            rows = evenly_spaced(len(inputs), most, inputs.device)
            inputs, targets = inputs[rows], targets[rows]
        size = max(1, EVALUATED // len(w))
        parts = zip(inputs.split(size), targets.split(size), strict=True)
        value = torch.cat([self.likelihood(self.network(w, x), y).logsumexp(0) for x, y in parts])
        return (value - math.log(len(w))).mean()

    def data(self, batch: Int[Tensor, " b"] | None) -> tuple[Any, Tensor]:
        """Inputs and targets of a minibatch, or all."""
        return (self.inputs, self.targets) if batch is None else (self.inputs[batch], self.targets[batch])

    def log_likelihood(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """``(N / B) Σ_b log p(y_b | x_b, w)``.

        Raises:
            ValueError: if the likelihood returns anything but one number per network and datum.
        """
        inputs, targets = self.data(batch)
        return self._of_each(self.network(w, inputs), targets).sum(-1) * (self.num_data / len(targets))

    def _of_each(self, outputs: Float[Tensor, "n b ..."], targets: Float[Tensor, "b ..."]) -> Float[Tensor, "n b"]:
        return of_each(self.likelihood, outputs, targets)

    def log_prob(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """Log-likelihood, times ``power``, plus log-prior."""
        value = self.log_likelihood(w, batch)
        return (value if self.power == 1 else self.power * value) + self.prior.log_prob(w)

    @torch.no_grad()
    def sample_prior(
        self, num_samples: int, rng: torch.Generator | None = None, *, seed: int | None = None
    ) -> Float[Tensor, "n d"]:
        """Weights of ``num_samples`` networks drawn from the prior, with the data's type and device: where to start.

        Args:
            num_samples: n, how many networks.
            rng: the only source of randomness; advanced in place.
            seed: in place of ``rng``; calls with one seed share their random numbers.

        Raises:
            ValueError: if n is not positive, the prior has no ``sample(n, like, rng)``, or rng and seed are both given
                or both missing.
        """
        check_count("num_samples", num_samples)
        if not hasattr(self.prior, "sample"):
            raise ValueError(f"{type(self.prior).__name__} cannot be drawn from: NormalPrior has sample(n, like, rng)")
        dtype = self.inputs.dtype if self.inputs.is_floating_point() else torch.get_default_dtype()
        like = torch.zeros(1, self.dim, dtype=dtype, device=self.inputs.device)
        rng = chosen_rng(rng, seed, like.device)
        if isinstance(self.prior, Distribution):
            raise ValueError(f"draw from the prior by itself: torch's {type(self.prior).__name__} takes no rng")
        return self.prior.sample(num_samples, like, rng)

    @torch.no_grad()
    def predictive(self, w: Float[Tensor, "n d"], inputs: Any) -> Distribution:
        """``(1/n) Σ_i p(y | x_b, w_i)``, a ``torch.distributions`` object with one batch axis ``(b,)``.

        Of a regression with mean, quantiles and density (:class:`NormalMixture`); of a classifier with ``probs``. Many
        inputs are evaluated in parts, so that memory holds the outputs of all and the hidden layers of a part.

        Raises:
            ValueError: if there are no networks, or weights of another shape, the inputs are not such as the data's or
                not finite, or the likelihood is a plain function, without ``predictive(outputs)``.
        """
        if not isinstance(w, Tensor):
            raise ValueError(
                f"w must hold weights (n, {self.dim}), got {type(w).__name__}: give sampler.sample(n, rng), or of the "
                "result of hmc its .pooled"
            )
        if not hasattr(self.likelihood, "predictive"):
            raise ValueError(
                "this likelihood has no predictive(outputs): average what you need over network(w, inputs)"
            )
        if not len(w):
            raise ValueError("w holds 0 networks, and their mean is not defined: draw at least one")
        if w.ndim != 2:
            raise ValueError(
                f"w must be (n, {self.dim}), a row a network, got {tuple(w.shape)}: of chains take .pooled"
            )
        inputs = as_inputs(inputs)
        _check_numbers("inputs", inputs)
        if not len(inputs):
            raise ValueError("there are no inputs to predict at: they have 0 rows")
        if structure(inputs) != structure(self.inputs):
            single = isinstance(inputs, Tensor) and isinstance(self.inputs, Tensor)
            remedy = "of one row give x[:1], not x[0]" if single else "give as many, in a tuple or by the same names"
            raise ValueError(
                f"inputs must be rows such as the data's, {tuple(self.inputs.shape[1:])} each, got "
                f"{tuple(inputs.shape)}: {remedy}"
            )
        parts = inputs.split(max(1, EVALUATED // len(w)))
        try:
            return self.likelihood.predictive(torch.cat([self.network(w, part) for part in parts], dim=1))
        except RuntimeError as error:
            new, seen = (f"{tuple(x.shape[1:])} {x.dtype} on {x.device}" for x in (inputs, self.inputs))
            if new == seen:  # it is something else, such as too little memory
                raise
            raise ValueError(f"the networks cannot take inputs of {new}; those of the data are {seen}") from error


class StreamedPosterior(Posterior):
    """The :class:`Posterior` of data that are read when they are needed, such as files that do not fit into memory.

    :func:`fit` draws the indices of each minibatch, and this reads them: the order is that of ``rng``, so that a run
    can be repeated and resumed, which the shuffle of a ``DataLoader`` would not allow. A checkpoint sees other data
    only in the few rows that :func:`fit` reads to tell runs apart; augmented by the global generators of torch, NumPy
    or Python they are the same each time, by a generator of the dataset's own they are not. :func:`fit` needs a
    ``batch_size``. Without a minibatch, as in :func:`check`, ``log_prob`` reads all data once, a part at a time.

    Args:
        module, likelihood, prior, power, held_out: as of :class:`Posterior`.
        dataset: a ``torch.utils.data.Dataset`` with a length, of pairs (input, target): a loader's is
            ``loader.dataset``.
        device: where minibatches go; that of the sampler.

    Raises:
        ValueError: as :class:`Posterior`, for a few data; or if the dataset has no length or its items are no pairs. In
            training, for each minibatch: if a number in it is not finite, or the likelihood's ``check`` refuses its
            targets.

    Attributes:
        streamed: that no step of a training may look at all data.

    Example:
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> dataset = torch.utils.data.TensorDataset(x, x[:, 0].sin())  # or one that reads files
        >>> posterior = StreamedPosterior(mlp([1, 10, 1]), NormalLikelihood(0.1), dataset)
        >>> sampler = MeanField(torch.zeros(posterior.dim))
        >>> settings = {"steps": 3, "batch_size": 5, "optimizer": Adam(1e-2), "seed": 0, "progress": False}
        >>> result = fit(sampler, posterior, NegativeELBO(4), **settings)
        >>> posterior.predictive(sampler.sample(8, seed=0), x).mean.shape
        torch.Size([20])
    """

    streamed = True

    def __init__(
        self,
        module: nn.Module | FlatModule,
        likelihood: LogLikelihood,
        dataset: Dataset,
        prior=None,
        power: float = 1.0,
        held_out: tuple[Tensor, Tensor] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            remedy = "give its .dataset" if hasattr(dataset, "dataset") else "see torch.utils.data.Dataset"
            kind = type(dataset).__name__
            raise ValueError(f"the dataset must have a length and items, {kind} has not both: {remedy}")
        self.dataset, self.device = dataset, torch.device(device)
        number = len(dataset)
        self._outputs: Tensor | None = None  # of one network at one datum, once that is known to be right
        with same_draws(self.device):
            few = self._read(evenly_spaced(number, PROBED))
        super().__init__(module, likelihood, *few, prior, power, held_out)
        self.num_data = number
        with torch.no_grad():
            self._outputs = self.network(self._a_network(), self.inputs[:1]).cpu()

    def _read(self, rows: Int[Tensor, " b"]) -> tuple[Any, Tensor]:
        """Inputs and targets of some data."""
        items = [self.dataset[row] for row in rows.tolist()]
        if not items:
            raise ValueError("there are no data: the dataset has 0 items")
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            first = items[0]
            got = f"a {type(first).__name__}" + (f" of {len(first)}" if isinstance(first, tuple | list) else "")
            raise ValueError(
                f"items of the dataset must be pairs (input, target), got {got}: return both from __getitem__"
            )
        try:
            inputs, targets = default_collate(items)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"items {_shown(rows)} of the dataset do not go into one tensor: give all inputs one shape and dtype, "
                f"as a crop or padding does ({error})"
            ) from error
        inputs = as_inputs(tuple(inputs) if isinstance(inputs, list) else inputs)
        self._check_read(rows, inputs, targets)
        return inputs.to(self.device), targets.to(self.device)

    def _check_read(self, rows: Int[Tensor, " b"], inputs: Tensor | Several, targets: object) -> None:
        """Refuse data with numbers that are not finite, or targets that the likelihood cannot take: only when they are
        read can they be looked at.
        """
        check_tensor("targets", targets)
        assert isinstance(targets, Tensor), "just seen"
        for name, part in (*_named("inputs", inputs).items(), ("targets", targets)):
            finite = torch.isfinite(part).flatten(1).all(1) if part.ndim > 1 else torch.isfinite(part)
            if not bool(finite.all()):
                raise ValueError(
                    f"item {int(rows[~finite.to(rows.device)][0])} of the dataset: its {name} are not finite: leave "
                    "such data out, or fill them in"
                )
        if self._outputs is not None and hasattr(self.likelihood, "check"):
            try:
                self.likelihood.check(self._outputs, targets)
            except ValueError as error:
                raise ValueError(f"in a minibatch of the dataset, items {_shown(rows)}: {error}") from error

    def data(self, batch: Int[Tensor, " b"] | None) -> tuple[Any, Tensor]:
        if batch is None:
            raise ValueError(f"the {self.num_data} data do not lie in memory: ask for a minibatch of them")
        return self._read(batch)

    def log_likelihood(self, w: Float[Tensor, "n d"], batch: Int[Tensor, " b"] | None = None) -> Float[Tensor, " n"]:
        """As that of :class:`Posterior`; without a minibatch of all data, once differentiable."""
        if batch is not None:
            return super().log_likelihood(w, batch)
        if torch.is_grad_enabled() and w.requires_grad:
            return _InParts.apply(w, self)
        return sum((self._of_part(w, rows) for rows in self._parts(len(w))), w.new_zeros(len(w)))

    def _parts(self, networks: int) -> Iterator[Int[Tensor, " b"]]:
        """Indices of all data, so many at a time as these networks can take."""
        yield from torch.arange(self.num_data).split(max(1, EVALUATED // max(1, networks)))

    def _of_part(self, w: Float[Tensor, "n d"], rows: Int[Tensor, " b"]) -> Float[Tensor, " n"]:
        """The log-likelihood of some data alone."""
        return super().log_likelihood(w, rows) * (len(rows) / self.num_data)


class _InParts(torch.autograd.Function):
    """The log-likelihood of all data and its gradient, with the memory of a part; each part is read once for both."""

    @staticmethod
    def forward(ctx, w: Float[Tensor, "n d"], posterior: StreamedPosterior) -> Float[Tensor, " n"]:
        """The value; the gradient is summed up on the way, since a network's value depends on its weights alone."""
        value, gradient = w.new_zeros(len(w)), torch.zeros_like(w)
        for rows in posterior._parts(len(w)):
            with torch.enable_grad():
                leaf = w.detach().requires_grad_(True)
                part = posterior._of_part(leaf, rows)
                gradient += torch.autograd.grad(part.sum(), leaf)[0]
            value += part.detach()
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Float[Tensor, " n"]) -> tuple[Float[Tensor, "n d"], None]:
        """Each network's gradient, times that of its value."""
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None
