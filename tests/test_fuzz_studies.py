"""Some of what ``python -m tests.fuzz studies`` does."""

from __future__ import annotations

import pytest

from tests.fuzz.odd import odd_studies
from tests.fuzz.studies import damaged_studies


@pytest.mark.parametrize("seed", [0, 1000])
def test_damaged_studies(seed):
    found = damaged_studies(6, seed)
    assert found.clean, found.offending
    assert found.total == 6


def test_odd_studies():
    found = odd_studies(10, 0)
    assert found.clean, found.offending
