"""Inputs of modules that take several tensors: rows of all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def check_tensor(name: str, value: object) -> None:
    """Refuse what is no tensor.

    Raises:
        ValueError: saying how to make one.
    """
    if not isinstance(value, Tensor):
        several = isinstance(value, list) and bool(value) and all(isinstance(part, Tensor) for part in value)
        remedy = "torch.as_tensor makes one of an array, and of a data frame's .to_numpy()"
        remedy = "several inputs are a tuple, or a dictionary by name" if several else remedy
        raise ValueError(f"{name} must be one tensor, got {type(value).__name__}: {remedy}")


class Several:
    """Tensors with the same number of rows, as one: what a module with several inputs is called with.

    A :class:`~gpvi_lib.targets.Posterior` makes it of a tuple, whose tensors become positional arguments, or of a
    dictionary, whose tensors become named ones.

    Args:
        tensors: a tuple of tensors ``(N, ...)``, or a dictionary of them.

    Raises:
        ValueError: if there is none, one is no tensor, or they differ in the number of rows or in device.

    Example:
        >>> both = Several({"x": torch.zeros(5, 2), "group": torch.arange(5)})
        >>> len(both), dict(both[:3].items())["group"]
        (5, tensor([0, 1, 2]))
    """

    def __init__(self, tensors: tuple | Mapping[str, Tensor]) -> None:
        named = dict(tensors) if isinstance(tensors, Mapping) else dict(enumerate(tensors))
        if not named:
            raise ValueError("there are no inputs: the tuple or dictionary is empty")
        for name, tensor in named.items():
            check_tensor(f"inputs[{name!r}]", tensor)
            if not tensor.ndim:
                raise ValueError(f"inputs[{name!r}] must have rows, got one number: of one row give x[:1], not x[0]")
        rows = {name: len(tensor) for name, tensor in named.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"the inputs differ in their number of rows: {rows}")
        devices = {str(tensor.device) for tensor in named.values()}
        if len(devices) > 1:
            raise ValueError(f"the inputs are on {' and '.join(sorted(devices))}: move them to one device")
        self._tensors: dict[Any, Tensor] = named
        self._by_name = isinstance(tensors, Mapping)

    def items(self) -> Iterator[tuple[str | int, Tensor]]:
        """Names or positions, and tensors."""
        return iter(self._tensors.items())

    def _of_each(self, change: Callable[[Tensor], Tensor]) -> Several:
        changed = {name: change(tensor) for name, tensor in self._tensors.items()}
        return Several(changed if self._by_name else tuple(changed.values()))

    def __len__(self) -> int:
        return len(next(iter(self._tensors.values())))

    def __getitem__(self, rows: slice | Tensor) -> Several:
        return self._of_each(lambda tensor: tensor[rows])

    def split(self, size: int) -> list[Several]:
        """Parts of ``size`` rows."""
        return [self[start : start + size] for start in range(0, len(self), size)]

    def to(self, device: torch.device | str) -> Several:
        """All tensors on a device."""
        return self._of_each(lambda tensor: tensor.to(device))

    @property
    def device(self) -> torch.device:
        return next(iter(self._tensors.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the first tensor of floating point; else of the first."""
        tensors = list(self._tensors.values())
        return next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0]).dtype

    @property
    def shape(self) -> tuple:
        """The number of rows, and what a row holds."""
        return (len(self), {name: tuple(tensor.shape[1:]) for name, tensor in self._tensors.items()})

    def is_floating_point(self) -> bool:
        """Whether any tensor is."""
        return any(tensor.is_floating_point() for tensor in self._tensors.values())


def structure(inputs: Tensor | Several) -> object:
    """The number of axes of a tensor, or of each of several by name or position.

    Example:
        >>> structure(torch.zeros(5, 2)), structure(Several((torch.zeros(5, 2), torch.arange(5))))
        (2, {0: 2, 1: 1})
    """
    return inputs.ndim if isinstance(inputs, Tensor) else {name: tensor.ndim for name, tensor in inputs.items()}


def as_inputs(inputs: Any) -> Any:
    """Several tensors as one object; everything else as it is."""
    return Several(inputs) if isinstance(inputs, (tuple, Mapping)) else inputs


def arguments(inputs: Any) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Positional and named arguments of a module's call.

    Example:
        >>> arguments({"x": torch.zeros(1)})
        ((), {'x': tensor([0.])})
    """
    several = as_inputs(inputs)
    if not isinstance(several, Several):
        return (inputs,), {}
    tensors: dict[Any, Tensor] = dict(several.items())
    return ((), tensors) if several._by_name else (tuple(tensors.values()), {})
