"""Networks that an objective trains for itself, next to the sampler: the helper and the Stein critic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gpvi_lib.checks import check_count, check_positive


class TrainsNetwork:
    """Mixin: a network with its own Adam, built at the first call, when its sizes are known.

    Attributes:
        lr: Adam's learning rate, > 0.
        updates: steps of Adam per call, at least one.
    """

    lr: float
    updates: int
    network: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    _loaded: dict | None = None

    def check_rates(self) -> None:
        """Refuse a learning rate or a number of updates that cannot train."""
        check_positive("lr", self.lr)
        check_count("updates", self.updates)

    def _ensure_network(self, build: Callable[[torch.Generator], nn.Module], rng: torch.Generator) -> nn.Module:
        """The network: built with first weights from ``rng``, or from the loaded state without touching ``rng``."""
        if self.network is not None:
            return self.network
        loaded, self._loaded = self._loaded, None
        self.network = build(rng if loaded is None else torch.Generator(rng.device))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.lr, fused=True)
        if loaded is not None:
            self.network.load_state_dict(loaded["network"])
            self.optimizer.load_state_dict(loaded["optimizer"])
        return self.network

    def _descend(self, loss: Tensor) -> None:
        """One step of Adam on this network alone: no other tensor's ``grad`` is touched."""
        assert self.network is not None and self.optimizer is not None, "_ensure_network comes first"
        parameters = list(self.network.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def state_dict(self) -> dict:
        """What a checkpoint must keep."""
        if self.network is None or self.optimizer is None:
            return self._loaded or {}  # of a run that was complete: nothing has built the network since
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Keep a checkpoint's state until the first call builds the network."""
        self.network, self.optimizer, self._loaded = None, None, state or None
