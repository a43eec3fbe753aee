"""The tests of claims read the committed records."""

import pytest


@pytest.fixture(autouse=True)
def _committed_results(monkeypatch):
    monkeypatch.delenv("GPVI_RESULTS", raising=False)
