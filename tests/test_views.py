"""What observers of signals see: one sum per device over all rounds, exact, never too small, and readable again."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.privacy import (
    SEEING,
    Ledger,
    PrivacyError,
    RoundEvent,
    Sampling,
    gaussian_delta,
    make_accountant,
    to_dp_event,
)

N = 5


def event(t, largest, observer="base-station", clip=0.7):
    views = {observer.replace("-", "_"): largest}
    return RoundEvent(t, clip, 1.0, 2.0, "channel", 1.0, Sampling("all", N, N), 0.1, **views)


def booked(rows, observer="base-station", clip=0.7):
    """A ledger of rounds in which the devices are seen so, [T, n]."""
    ledger = Ledger()
    for t, row in enumerate(np.asarray(rows, dtype=float)):
        ledger = ledger.append(event(t, float(row.max()), observer, clip), {observer: row})
    return ledger


def mu(ledger, neighbours="add-remove", observer="base-station"):
    return make_accountant("gaussian", ledger, neighbours, observer).mu


sightings = st.lists(
    st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=N, max_size=N).filter(any), min_size=1, max_size=12
)


@given(sightings, st.sampled_from(SEEING), st.sampled_from(["add-remove", "replace"]))
def test_every_device_counts_with_its_own_rounds(rows, observer, neighbours):
    reach = 1 if neighbours == "add-remove" else 2
    clip = Fraction(0.7)
    totals = [sum((clip * Fraction(row[i])) ** 2 for row in rows) for i in range(N)]
    exact = reach * math.sqrt(max(totals))
    found = mu(booked(rows, observer), neighbours, observer)
    assert exact * (1 - 1e-15) <= found <= exact * (1 + 1e-12)


@given(sightings)
def test_rounds_that_were_booked_without_it_count_with_their_most_visible_device(rows):
    whole = booked(rows)
    bare = Ledger(tuple(whole.events))
    loudest = math.sqrt(sum((0.7 * max(row)) ** 2 for row in rows))
    assert mu(bare) == pytest.approx(loudest, rel=1e-12)
    assert mu(bare) >= mu(whole) * (1 - 1e-12)
    late = whole.append(event(len(rows), 1.0))  # one round says nothing of its devices
    assert not late.devices
    assert mu(late) >= mu(bare)


@pytest.mark.parametrize("observer", SEEING)
def test_where_there_is_no_bound_there_is_no_protection_and_json_has_null(observer):
    for ledger in (Ledger((event(0, None, observer),)), booked([[1.0] * N], observer, clip=math.inf)):
        assert mu(ledger, observer=observer) == math.inf
        again = Ledger.from_json(ledger.to_json())
        assert again == ledger
        assert mu(again, observer=observer) == math.inf
    assert json.loads(booked([[1.0] * N], observer, clip=math.inf).to_json())["devices"][observer] == [None] * N


def test_squares_that_leave_the_range_are_not_nothing():
    tiny = booked([[1e-170, 0.0, 0.0, 0.0, 0.0]], clip=1e-3)
    assert mu(tiny) > 0.0
    assert mu(booked([[1e-170] * N])) >= 0.7e-170


@given(sightings)
def test_the_round_trip_keeps_every_bit(rows):
    ledger = booked(rows)
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger
    assert mu(again) == mu(ledger)


def _checksum(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: [x / 9 for x in d], lambda d: [x * 9 for x in d]])
def test_sums_that_do_not_go_with_the_rounds_are_refused(change):
    data = booked([[1.0, 0.5, 0.0, 0.2, 2.0], [0.1, 3.0, 0.0, 0.2, 1.0]]).to_mapping()
    data["devices"]["base-station"] = change(data["devices"]["base-station"])
    with pytest.raises(PrivacyError, match="checksum"):
        Ledger.from_mapping(data)
    data["sha256"] = _checksum([data["events"], data["devices"]])
    with pytest.raises(PrivacyError, match="does not go with the rounds"):
        Ledger.from_mapping(data)


def test_ledgers_of_version_2_are_read():
    """They kept ‖h s‖, weighted by what covers it, in units in which the noise is σ² per antenna."""
    norms = np.array([[0.3, 0.0, 0.1], [0.2, 0.4, 0.0]])
    sampling = {"law": "all", "num_devices": 3, "num_active": 3}
    rows = [
        {
            "round": t, "clip_norm": 0.7, "gain_bound": 1.0, "noise_var": 2.0, "noise_source": "channel",
            "noise_power": 0.5, "received_norm": max(row), "sampling": sampling, "update_factor": 0.1, "domain": None,
            "device_norms": list(row), "hides_participation": False, "gradient_var": None,
        }
        for t, row in enumerate(norms.tolist())
    ]  # fmt: skip
    ledger = Ledger.from_mapping({"version": 2, "sha256": _checksum(rows), "events": rows})
    brute = math.sqrt(2 * 0.7**2 / 0.5 * (norms**2).sum(axis=0).max())
    assert mu(ledger) == pytest.approx(brute, rel=1e-12)
    with pytest.raises(PrivacyError, match="checksum"):
        Ledger.from_mapping({"version": 2, "sha256": _checksum([]), "events": rows})
    rows[0]["device_norms"][0] = 0.1
    with pytest.raises(PrivacyError, match="device_norms"):
        Ledger.from_mapping({"version": 2, "sha256": _checksum(rows), "events": rows})


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_library_agrees_on_the_event_of_an_observer(neighbours):
    from dp_accounting.pld import PLDAccountant

    ledger = booked([[0.5, 0.8, 0.0, 0.2, 1.0], [0.1, 0.9, 0.0, 0.2, 1.2]])
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(to_dp_event(ledger, neighbours, observer="base-station"))
    found = accountant.get_epsilon(1e-5)
    assert gaussian_delta(found, mu(ledger, neighbours)) == pytest.approx(1e-5, rel=5e-3)
