"""A few inputs of every fuzzer; ``python -m tests.fuzz`` runs them at full size."""

from __future__ import annotations

import pytest

from tests.fuzz import FUZZERS

#: Inputs in the suite.
FEW = {
    "configurations": 25,
    "epsilons": 30,
    "plans": 60,
    "promises": 40,
    "flips": 30,
    "study-flips": 24,
    "studies": 10,
    "odd-studies": 10,
}


@pytest.mark.parametrize("name", FUZZERS)
def test_odd_inputs_work_or_are_refused_in_a_sentence(name, tmp_path):
    fuzzer, _ = FUZZERS[name]
    tally = fuzzer(FEW[name], 10_000, tmp_path)
    assert tally.offending == []
    assert tally.total == FEW[name]
    assert tally.refused > 0  # a fuzzer that finds nothing to refuse tests nothing
    assert tally.ok > 0 or name == "flips"  # there only the run as it was is taken, which the fuzzer checks first
