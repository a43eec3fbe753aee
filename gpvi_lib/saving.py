"""Samplers on disk: one safetensors file holds the parameters and how to build the sampler; nothing is unpickled."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpvi_lib.checkpoints import checksum
from gpvi_lib.errors import GPVIError, UnknownName
from gpvi_lib.flows import Flow
from gpvi_lib.langevin import LangevinNetwork
from gpvi_lib.latent import LatentGenerator, PointEstimate
from gpvi_lib.matrix_generators import MatrixGenerator, SplitMatrixGenerator
from gpvi_lib.multiplicative_flows import MultiplicativeFlow
from gpvi_lib.paths import write_atomically
from gpvi_lib.samplers import Generator, MeanField, Particles, Sampler
from gpvi_lib.targets.logistic import LogisticPrior

FORMAT = "gpvi sampler 1"


def _generator_arguments(generator: Generator) -> dict:
    return {
        "dim": generator.dim,
        "noise_dim": generator.noise_dim,
        "hidden": [layer.out_features for layer in generator.hidden],
        "activation": generator.activation,
        "input_stdev": generator.input_stdev,
        "train_noise_scale": isinstance(generator.log_noise_scale, torch.nn.Parameter),
    }


def _build_generator(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> Generator:
    log_scale, weight = state.get("log_noise_scale"), state["output.weight"]
    scale = None if log_scale is None else torch.ones_like(log_scale)  # a stand-in, as all that the state replaces
    return Generator(**arguments, noise_scale=scale, rng=rng, dtype=weight.dtype, device=weight.device)


def _build_flow(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> Flow:
    some = next(iter(state.values()))
    return Flow(**arguments, rng=rng, dtype=some.dtype, device=some.device)


def _langevin_arguments(network: LangevinNetwork) -> dict:
    plain = ("layers", "per_coordinate", "batch_size", "noise", "truncate", "recompute")
    kind = _kind(network.start)
    start = {"kind": kind, "arguments": KINDS[kind][1](network.start)}
    return {name: getattr(network, name) for name in plain} | {"start": start}


def _build_langevin(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> LangevinNetwork:
    """Without a target: :meth:`LangevinNetwork.on` gives it one."""
    start, rho, ceiling = arguments.pop("start"), state["rho"], state.get("ceiling")
    inside = {name.removeprefix("start."): value for name, value in state.items() if name.startswith("start.")}
    q_0 = KINDS[start["kind"]][2](start["arguments"], inside, rng)
    settings = arguments | {"ceiling": ceiling, "step_size": 1.0 if ceiling is None else 0.5 * ceiling}
    return LangevinNetwork(q_0, None, **settings, dtype=rho.dtype, device=rho.device)


def _latent_arguments(generator: LatentGenerator) -> dict:
    return {name: value for name, value in _generator_arguments(generator).items() if name != "input_stdev"}


def _build_latent(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> LatentGenerator:
    scale, weight = torch.ones_like(state["log_noise_scale"]), state["output.weight"]
    return LatentGenerator(**arguments, noise_scale=scale, rng=rng, dtype=weight.dtype, device=weight.device)


def _matrix_arguments(generator: MatrixGenerator | SplitMatrixGenerator) -> dict:
    trained = isinstance(generator.log_noise_scale, torch.nn.Parameter)
    return {"dim": generator.dim, "shapes": generator.shapes, "train_noise_scale": trained}


def _build_matrix(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> MatrixGenerator:
    scale = torch.ones_like(state["log_noise_scale"])
    return MatrixGenerator(**arguments, noise_scale=scale, rng=rng, dtype=scale.dtype, device=scale.device)


def _build_split(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> SplitMatrixGenerator:
    scale, (trunk, *branches) = torch.ones_like(state["log_noise_scale"]), arguments.pop("shapes")
    arguments |= {"trunk": trunk, "branches": branches, "noise_scale": scale}
    return SplitMatrixGenerator(**arguments, rng=rng, dtype=scale.dtype, device=scale.device)


def _point_arguments(sampler: PointEstimate) -> dict:
    kind = _kind(sampler.inner)
    return {"kind": kind, "arguments": KINDS[kind][1](sampler.inner)}


def _build_point(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> PointEstimate:
    inside = {name.removeprefix("inner."): value for name, value in state.items() if name.startswith("inner.")}
    return PointEstimate(KINDS[arguments["kind"]][2](arguments["arguments"], inside, rng), state["value"])


def _build_multiplicative(arguments: dict, state: dict[str, Tensor], rng: torch.Generator) -> MultiplicativeFlow:
    return MultiplicativeFlow(**arguments, mean=state["weights.mean"], rng=rng)


Arguments = Callable[[Any], dict]
Build = Callable[[dict, dict[str, Tensor], torch.Generator], Sampler]
KINDS: dict[str, tuple[type[Sampler], Arguments, Build]] = {
    "generator": (Generator, _generator_arguments, _build_generator),
    "particles": (Particles, lambda sampler: {}, lambda arguments, state, rng: Particles(state["x"])),
    "mean_field": (
        MeanField,
        lambda sampler: {},
        lambda arguments, state, rng: MeanField(state["mean"], torch.ones_like(state["mean"])),
    ),
    "flow": (
        Flow,
        lambda flow: {"dim": flow.dim, "depth": len(flow.layers), "base_stdev": flow.base_stdev},
        _build_flow,
    ),
    "logistic_prior": (
        LogisticPrior,
        lambda prior: {"num_weights": prior.dim - 1},
        lambda arguments, state, rng: LogisticPrior(
            **arguments, dtype=state["rate"].dtype, device=state["rate"].device
        ),
    ),
    "latent_generator": (LatentGenerator, _latent_arguments, _build_latent),
    "matrix_generator": (MatrixGenerator, _matrix_arguments, _build_matrix),
    "split_matrix_generator": (SplitMatrixGenerator, _matrix_arguments, _build_split),
    "point_estimate": (PointEstimate, _point_arguments, _build_point),
    "multiplicative_flow": (
        MultiplicativeFlow,
        lambda flow: {"shapes": flow.shapes} | ({"length": flow.length, "hidden": flow.hidden} if flow.scales else {}),
        _build_multiplicative,
    ),
    "langevin": (LangevinNetwork, _langevin_arguments, _build_langevin),
}


def _kind(sampler: Sampler) -> str:
    """The key of a sampler's class in :data:`KINDS`."""
    kind = next((name for name, (cls, *_) in KINDS.items() if type(sampler) is cls), None)
    if not isinstance(sampler, Sampler):
        raise GPVIError(
            f"save_sampler takes a sampler, got {type(sampler).__name__}: of draws save Particles(x), x (n, d), and of "
            "the result of hmc Particles(result.pooled)"
        )
    if kind is None:
        raise UnknownName.among("kind of sampler", type(sampler).__name__, (cls.__name__ for cls, *_ in KINDS.values()))
    return kind


def save_sampler(sampler: Sampler, path: str | Path) -> Path:
    """Write a sampler to a safetensors file, all of it or nothing, and return the path.

    The file also says which parameters are frozen (``requires_grad_(False)``).

    Args:
        sampler: a :class:`Generator`, :class:`MeanField`, :class:`Particles`, :class:`Flow`,
            :class:`MultiplicativeFlow`, :class:`LangevinNetwork`, :class:`LatentGenerator`, :class:`MatrixGenerator`,
            :class:`SplitMatrixGenerator` or :class:`LogisticPrior`, or a :class:`PointEstimate` around one of them; no
            Laplace approximation.
        path: of the file, by convention ``*.safetensors``.

    Raises:
        UnknownName: for another class, such as one's own; keep its ``state_dict`` by other means.
        GPVIError: if it is no sampler, or the file cannot be written.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> path = save_sampler(Generator(2, rng=rng), "generator.safetensors")
        >>> load_sampler(path).sample(3, rng).shape
        torch.Size([3, 2])
    """
    kind = _kind(sampler)
    arguments = json.dumps(KINDS[kind][1](sampler), default=operator.index)  # NumPy's whole numbers too
    metadata = {"format": FORMAT, "kind": kind, "arguments": arguments}
    if frozen := [name for name, parameter in sampler.named_parameters() if not parameter.requires_grad]:
        metadata["frozen"] = json.dumps(frozen)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in sampler.state_dict().items()}
    metadata["sha256"] = _checksum(metadata, state)
    write_atomically(Path(path), safetensors.torch.save(state, metadata))
    return Path(path)


def load_sampler(path: str | Path, device: torch.device | str = "cpu") -> Sampler:
    """The sampler that :func:`save_sampler` wrote, on ``device``.

    A :class:`LangevinNetwork` comes back without its target, of which a file can hold nothing: ``.on(target)`` adds it.

    Raises:
        GPVIError: if the file is none of its files or was changed since, naming it, or there is no such device.

    Example:
        >>> mean_field = MeanField(torch.tensor([1.0, 2.0]))
        >>> load_sampler(save_sampler(mean_field, "mean_field.safetensors")).mean.tolist()
        [1.0, 2.0]
    """
    path = Path(path)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise GPVIError(f"device must be one that is here, such as 'cpu', got {str(device)!r}: {error}") from None
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata, state = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:  # safetensors says so of a file that it may not read, too
        why = "cannot be read" if path.exists() else "does not exist: save_sampler(sampler, path) writes it"
        raise GPVIError(f"{path} {why}") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise GPVIError(f"{path} is no safetensors file or is truncated: {error}") from None
    if metadata.get("format") != FORMAT:
        raise GPVIError(f"{path} holds no sampler of this version (format {metadata.get('format')!r}, not {FORMAT!r})")
    if "sha256" in metadata and metadata["sha256"] != _checksum(metadata, state):  # the first files have none
        raise GPVIError(f"{path} was changed or damaged after it was saved: save the sampler again")
    if metadata.get("kind") not in KINDS:
        raise UnknownName.among("kind of sampler", metadata.get("kind"), KINDS, of=path)
    try:
        arguments = json.loads(metadata["arguments"])
        _check_sizes(arguments, sum(tensor.numel() for tensor in state.values()))
        there = {name: tensor.to(device) for name, tensor in state.items()}
        sampler = KINDS[metadata["kind"]][2](arguments, there, torch.Generator(device).manual_seed(0))
        sampler.load_state_dict(there)
        for name in json.loads(metadata.get("frozen", "[]")):  # the first files do not say
            sampler.get_parameter(name).requires_grad_(False)
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError) as error:
        raise GPVIError(f"{path} does not hold what its header says: save the sampler again ({error})") from error
    return sampler


def _checksum(metadata: dict[str, str], state: dict[str, Tensor]) -> str:
    said = [metadata["format"], metadata.get("kind"), metadata.get("arguments")]
    said += [metadata["frozen"]] if "frozen" in metadata else []  # files without it have the checksum that they had
    return checksum([*said, sorted(state.items())])


def _check_sizes(arguments: object, total: int, name: str = "") -> None:
    """Refuse a size larger than all tensors of the file together, before memory is asked for.

    Raises:
        ValueError: naming it.
    """
    if isinstance(arguments, dict):
        for key, value in arguments.items():
            _check_sizes(value, total, key)
    elif isinstance(arguments, list):
        for value in arguments:
            _check_sizes(value, total, name)
    elif name in ("dim", "noise_dim", "hidden", "depth", "length", "shapes"):
        if isinstance(arguments, int) and arguments > total:
            raise ValueError(f"{name} = {arguments} for {total} numbers in all")
