"""Audits of schemes of every kind: clean ones pass, and one that sends twice what it books is caught."""

from __future__ import annotations

import pytest

from airfl import analysis
from airfl.analysis.audit.planted import Defect, little_config, loud

#: Schemes whose devices send something else than their clipped updates, or otherwise.
AUDITED = ["one-bit", "one-bit-memory", "nc-airfl"]


def audited(name, **more):
    config = little_config(3, False).replace({"scheme.names": [name], "scheme.combiner": "auto", "system.rounds": 3})
    return analysis.audit_run(config, name, 60, **more).summary


@pytest.mark.parametrize("name", AUDITED)
def test_an_audit_refutes_nothing(name):
    found = audited(name)
    assert found["failed_checks"] == []
    assert found["findings"] == []


@pytest.mark.parametrize("name", AUDITED)
def test_twice_what_is_booked_is_caught(name):
    found = audited(name, opener=Defect("loud", loud(2.0)).open)
    assert found["failed_checks"] != []
