"""The same seeds give the same results as they did: values of small runs, committed, compared to a tolerance.

Bits differ between processors; `python -m tests.golden` prints hashes to compare before and after a change on one.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.golden import VALUES, configurations, outcome, values

KNOWN: dict[str, Any] = json.loads(VALUES.read_text(encoding="utf-8"))
CONFIGURATIONS = configurations()


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two nests of dictionaries and lists differ by more than rounding."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{where}.{key} is missing" for key in expected.keys() - found.keys()]
        return missing + [
            row
            for key in expected.keys() & found.keys()
            for row in differences(found[key], expected[key], f"{where}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            row
            for i, pair in enumerate(zip(found, expected, strict=True))
            for row in differences(*pair, f"{where}[{i}]")
        ]
    numbers = isinstance(expected, float) and isinstance(found, float)
    same = math.isclose(found, expected, rel_tol=1e-3, abs_tol=1e-6) if numbers else found == expected
    return [] if same else [f"{where} is {found!r}, was {expected!r}"]


def test_every_golden_run_has_values():
    assert KNOWN.keys() == CONFIGURATIONS.keys()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_small_run_gives_what_it_gave(name):
    found = json.loads(json.dumps(values(outcome(CONFIGURATIONS[name]))))
    assert differences(found, KNOWN[name]) == []


def test_a_difference_shows():
    assert differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.01]}) == [".a[1] is 2.0, was 2.01"]
    assert differences({}, {"a": 1.0}) == [".a is missing"]
