"""Fixtures of the numerical tests."""

import pytest
import torch


@pytest.fixture
def rng() -> torch.Generator:
    """The test's own randomness."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def normal(rng):
    """`normal(n, d)` draws in float64, so that rounding (about 1e-16) is far below every tolerance."""
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)
