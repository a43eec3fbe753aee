"""Checks of arguments that many classes share: each names the argument, what it must be and what it was."""

from __future__ import annotations

import math
import operator

import torch

from gpvi_lib.errors import GPVIError


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number of at least ``least``.

    Raises:
        GPVIError: naming the argument.
    """
    try:
        whole = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # tried, not known
    except TypeError:
        whole = None
    if whole is None or whole < least:
        raise GPVIError(f"{name} must be a whole number >= {least}, got {value!r}: give it as an int")


def check_hidden(hidden: object) -> None:
    """Refuse widths of hidden layers that are not whole numbers >= 1; none at all are fine.

    Raises:
        GPVIError: naming the layer.
    """
    if isinstance(hidden, str) or not hasattr(hidden, "__len__") or not hasattr(hidden, "__iter__"):
        raise GPVIError(f"hidden must hold the width of each hidden layer, such as (32, 32), got {hidden!r}")
    for layer, width in enumerate(hidden):
        check_count(f"hidden[{layer}]", width)


def check_positive(name: str, value: object) -> None:
    """Refuse what is no positive finite number.

    Raises:
        GPVIError: naming the argument.
    """
    if not 0 < _number(value) < math.inf:
        raise GPVIError(f"{name} must be a positive finite number, got {value!r}")


def check_not_negative(name: str, value: object) -> None:
    """Refuse what is neither 0 nor a positive finite number.

    Raises:
        GPVIError: naming the argument.
    """
    if not 0 <= _number(value) < math.inf:
        raise GPVIError(f"{name} must be 0 or a positive finite number, got {value!r}")


def _number(value: object) -> float:
    """The value as a float; NaN, which no comparison accepts, if it is none."""
    if isinstance(value, str):  # "1e-3" is one to float, and to nothing else
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]  # tried, not known
    except (TypeError, ValueError):
        return math.nan


def check_rng(rng: object) -> None:
    """Refuse what is no generator: with ``None`` torch would draw from the global seed.

    Raises:
        GPVIError: saying how to make one.
    """
    if not isinstance(rng, torch.Generator):
        raise GPVIError(f"rng must be a torch.Generator, such as torch.Generator().manual_seed(0), got {rng!r}")


def chosen_rng(rng: torch.Generator | None, seed: int | None, device: torch.device | str = "cpu") -> torch.Generator:
    """``rng`` itself, or a new generator of ``seed`` on ``device``: where a user starts, exactly one of the two.

    Raises:
        GPVIError: for both, for neither, for an rng that is no generator, or a seed that is no whole number >= 0.
    """
    if seed is None:
        if rng is None:
            raise GPVIError(
                "rng must be a torch.Generator, such as torch.Generator().manual_seed(0), got None; or give seed=0"
            )
        check_rng(rng)
        return rng
    if rng is not None:
        raise GPVIError(f"give rng or seed, not both, got seed = {seed!r} and {rng!r}: rng.manual_seed(seed) sets one")
    check_count("seed", seed, least=0)
    if seed >= 2**64:
        raise GPVIError(f"seed must be below 2**64, got {seed}")
    return torch.Generator(device).manual_seed(operator.index(seed))


def check_instance(name: str, value: object, kind: type | None = None, remedy: str = "") -> None:
    """Refuse a class where one of its instances belongs, and what is none of ``kind``.

    Raises:
        GPVIError: naming the class, or what was given and the remedy.
    """
    if isinstance(value, type):
        raise GPVIError(f"{name} must be an instance, got the class {value.__name__}: write {value.__name__}(...)")
    if kind is not None and not isinstance(value, kind):
        raise GPVIError(f"{name} must be an instance of {kind.__name__}, got {value!r:.80}: {remedy}")


def check_points(name: str, value: object) -> None:
    """Refuse what is no floating point tensor.

    Raises:
        GPVIError: naming what was given and the remedy.
    """
    found = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        raise GPVIError(f"{name} must be a floating point tensor, got {found}: torch.as_tensor(...).float() makes one")
