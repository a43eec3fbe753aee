"""Fixtures that many tests share."""

import pytest
import torch

from gpvi_lib import provenance
from gpvi_lib.experiments import EXPERIMENTS


@pytest.fixture(autouse=True)
def _as_if_committed(monkeypatch):
    """Tests pass while the library is being edited, too: records at `paper` are for a clean tree alone."""
    monkeypatch.setattr(provenance, "has_changes", lambda: False)


@pytest.fixture
def rng() -> torch.Generator:
    """The test's own randomness."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def normal(rng):
    """`normal(n, d)` draws in float64, so that rounding (about 1e-16) is far below every tolerance."""
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.fixture
def registry(monkeypatch):
    """The registered experiments, to be changed at will; afterwards as before, in the same order."""
    before = dict(EXPERIMENTS)
    yield EXPERIMENTS
    monkeypatch.undo()  # what a test has set in the registry; undone later, it would come back
    EXPERIMENTS.clear()
    EXPERIMENTS.update(before)
