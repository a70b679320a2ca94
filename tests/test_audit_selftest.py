"""The audit of the audit: planted defects are caught, runs without any pass."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pytest

from airfl import analysis
from airfl.analysis.audit import planted, selftest
from airfl.errors import InputError


def test_none_of_twenty_four_is_missed_and_clean_audits_pass():
    """With a tenth of the default repetitions; docs/privacy.md has the whole of it."""
    found = analysis.self_test(clean=10, repetitions=100).summary
    assert found["planted"] == 24
    assert [bug["name"] for bug in found["bugs"] if not bug["caught"]] == []
    assert found["missed"] == 0
    assert found["clean"] == 10
    assert found["false_alarms"] == 0
    assert found["alarms"] == []


def test_the_defaults_are_those_of_an_audit():
    usual = inspect.signature(analysis.audit_run).parameters["repetitions"].default
    assert inspect.signature(analysis.self_test).parameters["repetitions"].default == usual == 1000
    assert inspect.signature(analysis.self_test).parameters["clean"].default == 300


def test_what_is_missed_is_said(call, monkeypatch):
    """A defect that changes nothing cannot be caught."""
    harmless = dataclasses.replace(planted.DEFECTS[0], name="nothing at all", plant=lambda simulation: simulation)
    monkeypatch.setattr(selftest, "DEFECTS", (harmless,))
    monkeypatch.setattr(planted, "DEFECTS", (harmless,))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    code, out, err = call("audit", "--self-test", "--clean", "1", "--repetitions", "60", "--json")
    answer = json.loads(out.splitlines()[-1])
    assert code == 1
    assert "misses 1 of 1" in err
    assert answer["missed"] == 1
    assert answer["bugs"] == [{"name": "nothing at all", "caught": False, "by": None, "all_by": []}]
    code, out, _ = call("audit", "--self-test", "--clean", "0", "--repetitions", "60")
    assert code == 1
    assert "nothing: missed" in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--clean", "5"], "--self-test"),
        (["demo", "--self-test"], "run of its own"),
        (["--mu", "1", "--self-test"], "run of its own"),
        (["--one-run", "--self-test"], "run of its own"),
        (["--self-test", "--clean", "-1"], "negative"),
        (["--self-test", "--repetitions", "3"], "at least 10"),
    ],
)
def test_bad_questions(call, monkeypatch, arguments, word):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    code, _, err = call("audit", *arguments)
    assert code == 2
    assert word in err


def test_negative_numbers_are_refused():
    with pytest.raises(InputError, match="negative"):
        analysis.self_test(-1)
