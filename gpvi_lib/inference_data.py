"""Samples and predictions for ArviZ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.hamiltonian import HMCResult
from gpvi_lib.networks import FlatModule
from gpvi_lib.samplers import Sampler
from gpvi_lib.targets.base import Target
from gpvi_lib.targets.constrained import Constrained
from gpvi_lib.trust_findings import import_arviz

Draws = Tensor | Sequence[Tensor]
Named = Draws | Mapping[str, Draws]


def to_inference_data(
    samples: HMCResult | Named,
    target: Target | nn.Module | FlatModule | None = None,
    *,
    names: Sequence[str] | None = None,
    predictions: Named | None = None,
    log_likelihood: Named | None = None,
    observed: Tensor | Mapping[str, Tensor] | None = None,
) -> Any:
    """Put samples and what belongs to them into an ``arviz.InferenceData``, for ArviZ's plots, tables and ``loo``.

    Every group has the axes ``(chain, draw, ...)``. A tensor ``(n, ...)`` is one chain, as draws of a sampler are; a
    list of tensors is one chain each; and beside an :class:`HMCResult`, whose samples are ``(draws, chains, d)``, the
    tensors of other groups have its two axes first, ``(draws, chains, ...)``.

    Args:
        samples: draws ``(n, d)``, chains of them, the result of :func:`hmc`, or draws by name, ``{"w": (n, ...)}``;
            beside a :class:`Constrained`, whose shapes tell the axes apart, also ``{"w": (draws, chains, ...)}``.
        target: where the names of the parameters come from. A target with a ``network``, such as :class:`Posterior`, or
            a module: each parameter is a variable of its own shape, called as in ``module.named_parameters()``. A
            :class:`Constrained`: each of its parameters, as ``target.constrain`` gives it.
        names: of the d coordinates, each a variable; without them and a network there is one variable ``x``, ``(d,)``.
        predictions: ``(n, ...)`` of new data, by name or as ``y``; group ``predictions``.
        log_likelihood: ``(n, N)``, of each datum, likewise; group ``log_likelihood``, what ``arviz.loo`` needs.
        observed: the data, without draws; group ``observed_data``.

    Raises:
        GPVIError: if chains differ in length, groups in their number of draws, the names do not fit the number of
            coordinates, or ArviZ is not installed (the extra ``paper``).

    Example:
        >>> rng, x = torch.Generator().manual_seed(0), torch.linspace(-1, 1, 20)[:, None]
        >>> posterior = Posterior(mlp([1, 10, 1]), NormalLikelihood(0.1), x, x[:, 0].sin())
        >>> w = posterior.prior.sample(4, torch.zeros(1, posterior.dim), rng)  # four networks
        >>> data = to_inference_data(w, posterior, predictions=posterior.network(w, x), observed=x[:, 0].sin())
        >>> data.groups(), list(data.posterior)
        (['posterior', 'predictions', 'observed_data'], ['1.weight', '1.bias', '3.weight', '3.bias'])
        >>> data.posterior["1.weight"].shape, data.predictions["y"].shape
        ((1, 4, 10, 1), (1, 4, 20, 1))
        >>> target = Constrained(lambda p: -p["rate"], {"rate": torch.distributions.constraints.positive})
        >>> x = torch.randn(100, 4, 1, generator=rng)  # as HMC draws them: 100 draws of 4 chains, any real number
        >>> chains = HMCResult(x, torch.ones(4), torch.zeros(4), step_size=0.1, seconds=1.0)
        >>> rate = to_inference_data(chains, target).posterior["rate"]
        >>> rate.shape, bool(rate.min() > 0)
        ((4, 100), True)
    """
    steps_first = isinstance(samples, HMCResult)
    draws = samples.samples if isinstance(samples, HMCResult) else samples
    if isinstance(draws, Mapping) and isinstance(target, Constrained):
        draws, target = {name: _of_constrained(name, x, target) for name, x in draws.items()}, None
    posterior = _group("samples", draws, "x", steps_first)
    if set(posterior) == {"x"} and not isinstance(draws, Mapping):
        posterior = _named(posterior["x"], target, names)
    elif target is not None or names is not None:
        raise GPVIError("samples by name have names: leave out target and names, or give the draws as (n, d)")
    groups = {"posterior": posterior}
    for name, given in (("predictions", predictions), ("log_likelihood", log_likelihood)):
        if given is not None:
            groups[name] = _group(name, given, "y", steps_first)
    _check_draws(groups)
    arrays: dict[str, Any] = {name: _numpy(group) for name, group in groups.items()}
    if observed is not None:
        arrays["observed_data"] = _numpy(observed if isinstance(observed, Mapping) else {"y": observed})
    return import_arviz().from_dict(**arrays)


def _numpy(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: torch.as_tensor(tensor).detach().cpu().numpy() for name, tensor in tensors.items()}


def _group(name: str, given: Named, default: str, steps_first: bool) -> dict[str, Float[Tensor, "c n ..."]]:
    by_name = given if isinstance(given, Mapping) else {default: given}
    return {key: _chains(f"{name}[{key!r}]", value, steps_first) for key, value in by_name.items()}


def _of_constrained(name: str, given: Draws, target: Constrained) -> Draws:
    """Draws of a target's parameter as one chain or a list of them, by how many axes they have beside its own.

    Raises:
        GPVIError: for a name that it does not have, or another shape.
    """
    if name not in target.shapes:
        raise UnknownName.among("parameter", name, target.shapes)
    if not isinstance(given, Tensor):
        return given
    shape = target.shapes[name]
    axes = given.ndim - len(shape)
    if axes not in (1, 2) or given.shape[axes:] != shape:
        own = "".join(f", {length}" for length in shape)
        raise GPVIError(f"samples[{name!r}] must be (n{own}) or (draws, chains{own}), got {tuple(given.shape)}")
    return given if axes == 1 else list(given.unbind(1))


def _chains(name: str, given: Draws, steps_first: bool) -> Float[Tensor, "c n ..."]:
    """Draws with the axes chain and draw first.

    Raises:
        GPVIError: if they are no tensors, or chains of different lengths.
    """
    if isinstance(given, Tensor):
        if given.ndim < 1 + steps_first:
            raise GPVIError(f"{name} must have draws along its first axis, got shape {tuple(given.shape)}")
        return given.transpose(0, 1) if steps_first else given[None]
    chains = list(given) if isinstance(given, Sequence) else []
    if not chains or not all(isinstance(chain, Tensor) for chain in chains):
        remedy = ": give sampler.sample(n, rng)" if isinstance(given, Sampler) else ""
        raise GPVIError(
            f"{name} must be a tensor, or a list with one tensor a chain, got {type(given).__name__}{remedy}"
        )
    if len({chain.shape for chain in chains}) > 1:
        shapes = ", ".join(str(tuple(chain.shape)) for chain in chains)
        raise GPVIError(f"the chains of {name} must have one shape, got {shapes}: cut them to the shortest")
    return torch.stack(chains)


def _named(
    x: Float[Tensor, "c n d"], target: Target | nn.Module | FlatModule | None, names: Sequence[str] | None
) -> dict[str, Tensor]:
    """Coordinates as variables: by names, by a network's or a target's parameters, or all as ``x``."""
    if x.ndim != 3:
        raise GPVIError(
            f"samples must be (n, d), a list of such chains, or named, got {tuple(x.shape[1:])} a chain; of draws "
            "(n, chains, d) give list(x.unbind(1))"
        )
    if names is not None:
        if target is not None:
            raise GPVIError("give names or a target to take them from, not both")
        if len(set(names)) != x.shape[-1] or len(names) != x.shape[-1]:
            raise GPVIError(f"{x.shape[-1]} coordinates need as many different names, got {len(names)}: {list(names)}")
        return dict(zip(names, x.unbind(-1), strict=True))
    if isinstance(target, Constrained):
        return target.constrain(x)
    network = FlatModule(target) if isinstance(target, nn.Module) else getattr(target, "network", target)
    return network.unflatten(x) if isinstance(network, FlatModule) else {"x": x}


def _check_draws(groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Refuse groups of different numbers of chains or draws.

    Raises:
        GPVIError: naming them.
    """
    sizes = {f"{group}[{key!r}]": tuple(x.shape[:2]) for group, named in groups.items() for key, x in named.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {chains} x {draws}" for name, (chains, draws) in sizes.items())
        raise GPVIError(f"all groups must have as many chains and draws as the samples, got chains x draws: {told}")
