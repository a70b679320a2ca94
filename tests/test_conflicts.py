"""What a configuration refuses, and what every combination books: as committed, cell by cell."""

from __future__ import annotations

import json

import pytest

from airfl.schemes import SCHEMES
from tests.conflicts import IN_PAIRS, TABLE, cells, differences, is_same

THEN = json.loads(TABLE.read_text(encoding="utf-8"))


def test_the_table_has_every_scheme_and_cell():
    assert {scheme: list(row) for scheme, row in THEN.items()} == {scheme: list(cells(scheme)) for scheme in SCHEMES}
    assert sum(" + " in name for name in THEN[IN_PAIRS[0]]) > 200


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_goes_together_is_what_did(scheme):
    """All axes, and every fifth pair of them; `python -m tests.conflicts` has the others."""
    assert differences(scheme, THEN[scheme], every=5) == []


def test_a_difference_shows():
    assert is_same(["gaussian", True, 1.0, None], ["gaussian", True, 1.0000001, None])
    assert not is_same(["gaussian", True, 1.0, None], ["gaussian", True, 1.01, None])
    assert not is_same(["gaussian", True, 1.0, None], ["gaussian", False, 1.0, None])
    assert not is_same(["gaussian", True, 1.0, None], "a sentence")
