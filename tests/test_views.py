"""What who sees signals sees of every device, added up over its own rounds: never too little, and in files too."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.privacy import (
    ACCOUNTANTS,
    NEIGHBOURS,
    SEEING,
    BudgetError,
    Ledger,
    PrivacyError,
    RoundEvent,
    Sampling,
    WhatIf,
    compare,
    epsilon_of,
    gaussian_epsilon,
    make_accountant,
    release,
    to_dp_event,
)
from airfl.sweeps.ledgers import pack, unpack


def event(number, n=3, clip_norm=1.0, **views):
    return RoundEvent(number, clip_norm, 1.0, 4.0, "channel", 1.0, Sampling("all", n, n), 0.1, **views)


def add(ledger, seen, clip_norm=1.0, observer="base-station"):
    """One more round in which every device is seen so well."""
    number, values = len(ledger.events), np.array(seen, dtype=np.float64)
    booked = event(number, len(values), clip_norm, **{observer.replace("-", "_"): float(values.max())})
    return ledger.append(booked, {observer: values})


def book(table, clips=None, observer="base-station"):
    ledger = Ledger()
    for t, seen in enumerate(table):
        ledger = add(ledger, seen, 1.0 if clips is None else clips[t], observer)
    return ledger


def mu(ledger, neighbours="zero-out", observer="base-station"):
    return make_accountant("gaussian", ledger, neighbours, observer).mu


def exact_sums(table, clips):
    """Σ_t (c_t r_it)² of every device, without any rounding."""
    return [
        sum(((Fraction(c) * Fraction(r)) ** 2 for c, r in zip(clips, column, strict=True)), start=Fraction(0))
        for column in zip(*table, strict=True)
    ]


def read_by_hand(data):
    """Plain data, with the checksum that fits it."""
    content = data["events"] if data["version"] == 2 else [data["events"], data["devices"]]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return Ledger.from_json(json.dumps({**data, "sha256": hashlib.sha256(text.encode()).hexdigest()}))


sizes = st.builds(math.ldexp, st.floats(0.5, 1.0), st.integers(-150, 150))


@st.composite
def runs(draw):
    rounds, n = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    row = st.lists(st.just(0.0) | sizes, min_size=n, max_size=n)
    tables = [draw(st.lists(row, min_size=rounds, max_size=rounds)) for _ in SEEING]
    return draw(st.lists(sizes, min_size=rounds, max_size=rounds)), dict(zip(SEEING, tables, strict=True))


@given(run=runs(), neighbours=st.sampled_from(NEIGHBOURS))
def test_sums_per_device_against_fractions(run, neighbours):
    clips, tables = run
    ledger = Ledger()
    for t, clip in enumerate(clips):
        seen = {name: np.array(table[t]) for name, table in tables.items()}
        views = {name.replace("-", "_"): float(values.max()) for name, values in seen.items()}
        ledger = ledger.append(event(t, len(seen["everything"]), clip, **views), seen)
    for name, table in tables.items():
        sums = exact_sums(table, clips)
        for total, right in zip(ledger.devices[name].tolist(), sums, strict=True):
            assert abs(Fraction(total) - right) <= right * Fraction(1, 10**13)
        scale = 1 if neighbours == "zero-out" else 4
        found = mu(ledger, neighbours, name)
        assert scale * max(sums) <= Fraction(found) ** 2 <= scale * max(sums) * (1 + Fraction(1, 10**12))
        # Without devices the most visible one of every round counts, and that is no less.
        loudest = sum(max(exact_sums([row], [clip])) for row, clip in zip(table, clips, strict=True))
        coarse = mu(Ledger(ledger.events), neighbours, name)
        assert coarse == pytest.approx(math.sqrt(scale * loudest), rel=1e-12)
        assert coarse >= found * (1 - 1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 3, 20])
def test_rounding_never_makes_less_of_what_was_seen(rounds):
    """Every operation rounds, to either side: numbers with all their digits, many of them."""
    generator = np.random.Generator(np.random.Philox(key=rounds))
    for _ in range(2000 // rounds):
        table, clips = generator.uniform(0.5, 2.0, (rounds, 1)).tolist(), generator.uniform(0.5, 2.0, rounds).tolist()
        (right,) = exact_sums(table, clips)
        assert right <= Fraction(mu(book(table, clips))) ** 2 <= right * (1 + Fraction(1, 10**12))


def test_visibility_is_the_distance_of_gaussians():
    """All rounds stacked: a device shifts their mean by c p̃, and μ² = shiftᵀ Σ⁻¹ shift, whoever else is silent when."""
    generator = np.random.Generator(np.random.Philox(key=8))
    rounds, n, size = 4, 3, 6
    paths = generator.normal(size=(rounds, n, size)) * (generator.uniform(size=(rounds, n, 1)) < 0.7)
    mixing = generator.normal(size=(rounds, size, 2 * size))
    covers = mixing @ mixing.transpose(0, 2, 1)
    clips = generator.uniform(0.1, 2.0, rounds)
    table = np.sqrt(np.einsum("tni,tij,tnj->tn", paths, np.linalg.inv(covers), paths))
    stacked = np.zeros((rounds * size, rounds * size))
    for t in range(rounds):
        stacked[t * size : (t + 1) * size, t * size : (t + 1) * size] = covers[t]
    shifts = (clips[:, None, None] * paths).transpose(1, 0, 2).reshape(n, -1)
    distances = np.sqrt(np.einsum("ni,ni->n", shifts, np.linalg.solve(stacked, shifts.T).T))
    ledger = book(table, clips.tolist())
    assert np.sqrt(ledger.devices["base-station"]) == pytest.approx(distances, rel=1e-12)
    assert mu(ledger) == pytest.approx(distances.max(), rel=1e-12)
    assert mu(ledger, "replace") == pytest.approx(2 * distances.max(), rel=1e-12)


def test_who_is_silent_is_not_seen():
    ledger = book([(0.0, 2.0, 0.0), (0.0, 0.0, 0.0), (0.0, 1.0, 3.0)])
    assert ledger.devices["base-station"].tolist() == [0.0, 5.0, 9.0]
    assert mu(ledger) == pytest.approx(3.0)
    nobody = book([(0.0, 0.0)] * 3, [1.0, math.inf, 2.0])
    assert epsilon_of(nobody, "gaussian", "replace", "base-station", 1e-5) == 0.0
    assert mu(Ledger()) == 0.0


@settings(max_examples=30)
@given(st.permutations(range(6)))
def test_the_order_of_rounds_does_not_matter(order):
    table = [(10.0**-t, 0.3 * t, 1.0) for t in range(6)]
    assert mu(book([table[t] for t in order])) == pytest.approx(mu(book(table)), rel=1e-14)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_round_without_devices_counts_the_most_visible_of_every_round(missing):
    table, views = [(3.0, 1.0), (1.0, 4.0), (2.0, 1.0)], ("base_station", "everything")
    ledger = Ledger()
    for t, seen in enumerate(table):
        ways = {"everything": np.array(seen)} | ({} if t == missing else {"base-station": np.array(seen)})
        ledger = ledger.append(event(t, 2, **dict.fromkeys(views, max(seen))), ways)
    assert list(ledger.devices) == ["everything"]
    assert mu(ledger, observer="everything") == pytest.approx(math.sqrt(18), rel=1e-12)
    assert mu(ledger) == pytest.approx(math.sqrt(9 + 16 + 4), rel=1e-12)
    assert Ledger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize("first", [1, 2])
def test_other_devices_are_not_the_same_devices(first):
    """One device would otherwise be spread over all, and two and three would not add up at all."""
    ledger = add(book([(2.0,) * first]), (1.0, 3.0, 1.0))
    assert dict(ledger.devices) == {}
    assert mu(ledger) == pytest.approx(math.sqrt(4 + 9), rel=1e-12)
    assert dict(add(ledger, (1.0, 3.0, 1.0)).devices) == {}


def test_what_was_repeated_has_no_devices_to_go_on_from():
    ledger = add(Ledger.repeated(event(0, 2, base_station=1.0), 3), (0.5, 2.0))
    assert mu(ledger) == pytest.approx(math.sqrt(3 + 4), rel=1e-12)
    assert dict(ledger.devices) == {}


def test_infinite_clip_norms_and_rounds_without_bound():
    """ε is infinite, null in files, and infinite again when they are read."""
    unclipped = add(add(Ledger(), (1.0, 0.5, 0.0)), (0.0, 1e-300, 0.0), math.inf)
    assert unclipped.devices["base-station"].tolist() == [1.0, math.inf, 0.0]
    assert unclipped.to_mapping()["devices"] == {"base-station": [1.0, None, 0.0]}
    unbounded = book([(1.0, 0.5, 0.0)]).append(event(1, everything=1.0))
    huge = book([(1e150, 1e150)], [1e150])
    for ledger in (unclipped, Ledger(unclipped.events), unbounded, huge):
        packed = unpack(pack({(0, "a", 0): ledger}))[0, "a", 0]
        for one in (ledger, Ledger.from_json(ledger.to_json()), pickle.loads(pickle.dumps(ledger)), packed):
            assert one == ledger
            for neighbours in NEIGHBOURS:
                for name in ("gaussian", "liu2024"):
                    account = make_accountant(name, one, neighbours, "base-station")
                    assert account.epsilon(1e-5) == math.inf, name
                    assert account.delta(1e9) == 1.0, name
        json.loads(ledger.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        with pytest.raises(BudgetError):
            release(ledger, "gaussian", "replace", 1e300, 1e-5, "base-station")
    assert unbounded.to_mapping()["events"][1]["base_station"] is None
    assert mu(book([(1.0, 0.2)] * 2, [1e150] * 2)) == pytest.approx(math.sqrt(2) * 1e150, rel=1e-12)
    # Only who has no bound has none.
    assert epsilon_of(unbounded, "gaussian", "replace", "model", 1e-5) < math.inf


def test_a_budget_needs_a_device_that_is_seen():
    for seen in (None, 0.0):
        with pytest.raises(PrivacyError, match="needs what it receives"):
            ACCOUNTANTS["liu2024"].budget(1.0, 1e-5, event(0, base_station=seen), "replace", 3)


def test_squares_that_underflow_are_not_nothing():
    for clip, seen in ((1e-200, 1e-150), (5e-324, 5e-324), (1.0, 1e-170), (1e-162, 1.0)):
        ledger = book([(seen, 0.0)], [clip])
        assert ledger.devices["base-station"][1] == 0.0
        for one in (ledger, Ledger(ledger.events), Ledger.from_json(ledger.to_json())):
            assert Fraction(mu(one)) ** 2 >= (Fraction(clip) * Fraction(seen)) ** 2
            assert mu(one) < 1e-150
            assert epsilon_of(one, "gaussian", "zero-out", "base-station", 1e-300) > 0.0
            assert epsilon_of(one, "liu2024", "zero-out", "base-station", 1e-5) > 0.0
    # Beside others it does not get lost either, though it is too small to be added.
    assert mu(book([(1.0, 0.0), (1e-170, 1e-170)])) >= 1.0


@pytest.mark.parametrize(
    ("seen", "booked"),
    [
        ([1.0, math.nan, 0.5], 1.0),
        ([math.nan] * 3, 1.0),
        ([1.0, -0.5, 0.5], 1.0),
        ([1.0, math.inf, 0.5], 1.0),
        ([1.0, 0.5], 1.0),
        ([1.0, 0.5, 0.2, 0.1], 1.0),
        ([[1.0, 0.5, 0.2]], 1.0),
        (1.0, 1.0),
        ([], 1.0),
        ([1.0, 0.5, 0.2], 1.0 - 1e-8),
        ([1.0, 0.5, 0.2], 1.0 + 1e-8),
        ([0.0, 0.0, 0.0], 1e-300),
        ([1e-300, 0.0, 0.0], 0.0),
        ([1.0, 0.5, 0.2], None),
    ],
)
def test_what_no_round_can_have_shown_is_refused(seen, booked):
    with pytest.raises(PrivacyError, match="one entry per device, none negative, and the largest"):
        Ledger().append(event(0, base_station=booked), {"base-station": np.array(seen)})


def test_only_who_sees_signals_sees_devices():
    for observer in ("model", "models", "nobody"):
        with pytest.raises(PrivacyError, match="no observer named"):
            Ledger().append(event(0), {observer: np.ones(3)})


def test_single_precision_is_added_up_in_double():
    values = np.array([0.1, 0.7, 0.3], dtype=np.float32)
    ledger = Ledger().append(event(0, clip_norm=0.3, base_station=float(values.max())), {"base-station": values})
    assert ledger.devices["base-station"].dtype == np.float64
    (right,) = exact_sums([[float(values[1])]], [0.3])
    assert right <= Fraction(mu(ledger)) ** 2 <= right * (1 + Fraction(1, 10**12))


def test_sums_belong_to_their_ledger():
    """Ledgers that go on from the same one, arrays that are used again, copies."""
    values = np.array([1.0, 2.0])
    first = Ledger().append(event(0, 2, base_station=2.0), {"base-station": values})
    values[:] = 0.0
    assert mu(first) == pytest.approx(2.0)
    one, other = add(first, (4.0, 0.0)), add(first, (0.0, 1.0))
    assert [ledger.devices["base-station"].tolist() for ledger in (first, one, other)] == [[1, 4], [17, 4], [1, 5]]
    for ledger in (first, one, other):
        for same in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger), Ledger(ledger.events, ledger.devices)):
            assert same == ledger
            assert hash(same) == hash(ledger)
            assert mu(same) == mu(ledger)
        with pytest.raises(ValueError, match="read-only"):
            ledger.devices["base-station"][0] = 0.0
        with pytest.raises(TypeError):
            ledger.devices["base-station"] = np.zeros(2)
    assert one != other
    assert one != Ledger(one.events)
    assert one != Ledger(one.events, {"base-station": np.array([17.0, 4.5])})
    assert one != Ledger(one.events, {"everything": one.devices["base-station"]})


def test_edited_sums_are_refused_by_checksum_and_by_the_rounds():
    ledger = book([(3.0, 0.0, 1.0), (0.0, 2.0, 1.0)])
    good = ledger.to_mapping()
    assert good["devices"] == {"base-station": [9.0, 4.0, 2.0]}
    assert read_by_hand(good) == ledger
    # Less than one round showed; nothing; more than all did; less than all rounds together, twice; another number.
    wrong = [[8.9, 4.0, 2.0], [0.0, 0.0, 0.0], [13.1, 4.0, 2.0], [9.0, 0.0, 0.0], [9.0, 3.9, 0.0], [None, 4.0, 2.0]]
    wrong += [[9.0, 4.0], [9.0, 4.0, 2.0, 0.0], []]
    for values in wrong:
        edited = {**good, "devices": {"base-station": values}}
        with pytest.raises(PrivacyError, match="checksum"):
            Ledger.from_json(json.dumps(edited))
        with pytest.raises(PrivacyError, match="does not go with the rounds"):
            read_by_hand(edited)
    for values in ([9.0, -4.0, 15.0], [9.0, "4", 2.0], [9.0, True, 4.0], 9.0, "940", {"0": 9.0}, None, [10**400, 1, 1]):
        with pytest.raises(PrivacyError, match="`devices` for 'base-station' is not valid"):
            read_by_hand({**good, "devices": {"base-station": values}})
    for devices in ({"model": [9.0, 4.0, 2.0]}, {"visibility": [9.0, 4.0, 2.0]}):
        with pytest.raises(PrivacyError, match="no observer named"):
            read_by_hand({**good, "devices": devices})
    with pytest.raises(PrivacyError, match="does not go with the rounds"):  # no round says what is heard there
        read_by_hand({**good, "devices": {"eavesdropper": [0.0, 0.0, 0.0]}})
    # Without devices it is read: the most visible of every round counts, which is never less.
    assert mu(read_by_hand({**good, "devices": {}})) == pytest.approx(math.sqrt(13))


def test_an_unclipped_round_does_not_hide_edited_sums():
    ledger = book([(1.0, 0.5), (0.0, 0.5)], [1.0, math.inf])
    good = ledger.to_mapping()
    assert good["devices"] == {"base-station": [1.0, None]}
    for values in ([1.0, 0.25], [0.0, 0.0], [1e308, 1e308]):
        with pytest.raises(PrivacyError, match="does not go with the rounds"):
            read_by_hand({**good, "devices": {"base-station": values}})


#: As version 2 wrote it; ε of a base station was 1.8582971472117755 then, and 4.070933558949927 for `replace`.
WRITTEN = """
{"version": 2, "sha256": "c78d14f969f296179d09e267af700782251041846251843d8e9095b19ce81383", "events": [
{"round": 0, "clip_norm": 0.7, "gain_bound": 1.0, "noise_var": 2.0, "noise_source": "channel", "noise_power": 4e-13,
 "received_norm": 3e-07, "sampling": {"law": "poisson", "num_devices": 3, "num_active": 2}, "update_factor": 0.05,
 "domain": null, "device_norms": [3e-07, 0.0, 1e-07], "hides_participation": true, "gradient_var": null},
{"round": 1, "clip_norm": 0.7, "gain_bound": 1.0, "noise_var": 2.0, "noise_source": "channel", "noise_power": 4e-13,
 "received_norm": 2.5e-07, "sampling": {"law": "poisson", "num_devices": 3, "num_active": 2}, "update_factor": 0.05,
 "domain": null, "device_norms": [0.0, 2.5e-07, 1e-07], "hides_participation": true, "gradient_var": null}]}
"""


def former(number, norms, *, kept=True, **fields):
    """A row of version 2; nobody heard was the least number that has all its digits."""
    row = {**json.loads(WRITTEN)["events"][0], "round": number, "received_norm": max(norms) or 2.2250738585072014e-308}
    row["sampling"] = {"law": "all", "num_devices": len(norms), "num_active": len(norms)}
    return {**row, "device_norms": list(norms) if kept else None, **fields}


def test_a_ledger_that_version_2_wrote():
    ledger = Ledger.from_json(WRITTEN)
    for neighbours, right in (("zero-out", 1.8582971472117755), ("replace", 4.070933558949927)):
        found = epsilon_of(ledger, "gaussian", neighbours, "base-station", 1e-5)
        assert found == pytest.approx(right, rel=1e-12)
        for other in ("eavesdropper", "everything"):
            assert epsilon_of(ledger, "gaussian", neighbours, other, 1e-5) == math.inf
    assert epsilon_of(ledger, "gaussian", "zero-out", "model", 1e-5) == pytest.approx(2.9097153260303847, rel=1e-14)
    assert json.loads(ledger.to_json())["version"] == 3
    assert Ledger.from_json(ledger.to_json()) == ledger
    with pytest.raises(PrivacyError, match="checksum"):
        Ledger.from_json(WRITTEN.replace("3e-07", "2e-07"))


@given(
    table=st.lists(st.tuples(*[st.just(0.0) | st.floats(1e-9, 1e3)] * 3), min_size=1, max_size=6),
    power=st.floats(1e-15, 10.0),
    clip=st.floats(1e-3, 1e3),
    neighbours=st.sampled_from(NEIGHBOURS),
    without=st.none() | st.integers(0, 5),
)
def test_version_2_meant_what_is_meant_now(table, power, clip, neighbours, without):
    """μ_i² = Σ_t 2 c′² p_it²/σ² over a device's own rounds, or the loudest of every round where one kept no devices."""
    rows = [former(t, n, noise_power=power, clip_norm=clip, kept=t != without) for t, n in enumerate(table)]
    ledger = read_by_hand({"version": 2, "events": rows})
    own = 2 * ((1 if neighbours == "zero-out" else 2) * Fraction(clip)) ** 2 / Fraction(power)
    squares = [[own * Fraction(p) ** 2 for p in norms] for norms in table]
    if without is not None and without < len(table):
        right = sum(max(row) for row in squares)
    else:
        right = max(sum(column) for column in zip(*squares, strict=True))
    assert mu(ledger, neighbours) == pytest.approx(math.sqrt(right), rel=1e-12, abs=1e-150)
    spent = epsilon_of(ledger, "gaussian", neighbours, "base-station", 1e-5)
    assert spent == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(right)), rel=1e-12, abs=1e-12)
    assert Ledger.from_json(ledger.to_json()) == ledger


def test_rounds_of_version_2_without_bound():
    for fields in ({"clip_norm": None}, {"noise_power": None, "received_norm": None, "device_norms": None}):
        ledger = read_by_hand({"version": 2, "events": [former(0, (1.0, 0.0)), former(1, (1.0, 0.5), **fields)]})
        assert epsilon_of(ledger, "gaussian", "replace", "base-station", 1e-5) == math.inf
        assert Ledger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device_norms": [1.0, 2.0]}, "largest"),
        ({"device_norms": [0.5, 0.5]}, "largest"),
        ({"device_norms": [-1.0, 1.0]}, "not negative"),
        ({"device_norms": [1.0]}, "one entry per device"),
        ({"device_norms": []}, "largest"),
        ({"device_norms": [1.0, None]}, "largest"),
        ({"device_norms": "11"}, "list"),
        ({"received_norm": None}, "goes with"),
        ({"received_norm": 0.0, "device_norms": None}, "positive"),
        ({"received_norm": "1", "device_norms": None}, "not valid"),
        ({"received_norm": 10**400, "device_norms": None}, "not valid"),
        ({"received_norm": 1e149, "device_norms": None}, "base_station"),
        ({"noise_power": 0.0}, "positive"),
        ({"noise_power": 5e-324, "device_norms": None}, "base_station"),
        ({"base_station": 0.0}, "has no base_station"),
        ({"everything": 0.0}, "has no everything"),
        ({"extra": 0.0}, "not valid"),
        ({"round": 0}, "cannot be booked after"),
    ],
)
def test_what_version_2_cannot_have_written_is_refused(fields, message):
    rows = [former(0, (1.0, 0.0)), former(1, (1.0, 0.5), **fields)]
    with pytest.raises(PrivacyError, match=message):
        read_by_hand({"version": 2, "events": rows})


@pytest.mark.parametrize("lacking", ["received_norm", "noise_power", "sampling"])
def test_rows_of_version_2_that_lack_something_are_refused(lacking):
    row = {key: value for key, value in former(0, (1.0, 0.0)).items() if key != lacking}
    with pytest.raises(PrivacyError, match="event 0 is not valid"):
        read_by_hand({"version": 2, "events": [row]})


def test_studies_of_before_are_read_as_well():
    """Device norms one after the other, each list of them once; of the ledgers one kept no devices in a round."""
    table = [(3e-7, 0.0, 1e-7), (0.0, 2.5e-7, 1e-7)]
    norms = np.array(table, dtype="<f8").reshape(-1)
    rows = [former(0, seen) for seen in table]
    content = {
        "format": "airfl-batch-ledgers/1",
        "cells": [[0, "a", 0, 0], [0, "a", 1, 1], [1, "b:c", 0, 0]],
        "ledgers": [[[0, 2, 0, 0], [5, 1, 1, 3]], [[0, 2, 0, None], [5, 1, 1, 3]]],
        "events": [{key: row[key] for key in row if key not in ("round", "device_norms")} for row in rows],
        "norms": base64.b64encode(norms.view(np.uint8).reshape(-1, 8).T.tobytes()).decode(),
    }
    found = unpack(gzip.compress(json.dumps(content).encode()))
    rounds = [(0, rows[0]), (1, rows[0]), (5, rows[1])]
    full = read_by_hand({"version": 2, "events": [{**row, "round": t} for t, row in rounds]})
    assert list(found) == [(0, "a", 0), (0, "a", 1), (1, "b:c", 0)]
    assert found[0, "a", 0] == found[1, "b:c", 0] == full
    assert found[0, "a", 1] == Ledger(full.events)
    assert mu(full) == pytest.approx(math.sqrt(2 * 0.7**2 * 2 * 9e-14 / 4e-13), rel=1e-12)
    with pytest.raises(ValueError, match="batch-ledgers/9"):
        unpack(gzip.compress(json.dumps({**content, "format": "airfl-batch-ledgers/9"}).encode()))


@pytest.mark.parametrize("observer", SEEING)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_exports_read_the_same_in_the_library(observer, neighbours):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    relations = dp_accounting.NeighboringRelation
    relation = relations.ADD_OR_REMOVE_ONE if neighbours == "zero-out" else relations.REPLACE_ONE
    ledger = book([(0.3, 0.0, 0.1), (0.2, 0.35, 0.0), (0.0, 0.2, 0.1)], [0.7, 1.1, 0.9], observer)
    hidden = [replace(e, sampling=Sampling("poisson", 3, 1), hides_participation=True) for e in ledger.events]
    ledger = Ledger(hidden, ledger.devices)  # no credit for that
    for one in (ledger, Ledger(ledger.events)):
        account = make_accountant("gaussian", one, neighbours, observer)
        pld = PLDAccountant(relation, 1e-4)
        pld.compose(to_dp_event(one, neighbours, "contribution", observer=observer))
        for delta in (1e-3, 1e-5, 1e-8):
            assert pld.get_epsilon(delta) == pytest.approx(account.epsilon(delta), rel=1e-3)
        rdp = RdpAccountant((2, 16), relation)
        rdp.compose(to_dp_event(one, neighbours, observer=observer))
        assert rdp._rdp == pytest.approx([account.rdp(2), account.rdp(16)], rel=1e-9)
    assert mu(ledger, neighbours, observer) < 0.95 * mu(Ledger(ledger.events), neighbours, observer)
    silent = book([(0.0, 0.0)], observer=observer)
    for one, right in ((silent, 0.0), (Ledger(), 0.0), (Ledger((event(0),)), math.inf)):
        pld = PLDAccountant(relation)
        pld.compose(to_dp_event(one, neighbours, "contribution", observer=observer))
        assert pld.get_epsilon(1e-5) == right


def test_questions_about_who_sees_signals():
    ledger = book([(0.3, 0.1)], observer="eavesdropper")
    answer = compare([ledger], 1e-5, "replace", "eavesdropper")
    assert list(answer) == ["gaussian"]
    assert answer["gaussian"]["epsilon"] == gaussian_epsilon(1e-5, mu(ledger, "replace", "eavesdropper"))
    assert compare([ledger], 1e-5, "replace", "everything")["gaussian"]["epsilon"] is None
    snr = WhatIf(2.0, 1.0, 5, received_snr=0.3)
    assert mu(snr.ledger()) == pytest.approx(math.sqrt(5 * 2 * 0.3), rel=1e-12)
    with pytest.raises(PrivacyError, match="no eavesdropper was there"):
        compare([snr.ledger()], 1e-5, None, "eavesdropper")
    for observer, word in (("base-station", "--received-snr"), ("everything", "give --ledger of a run")):
        with pytest.raises(PrivacyError, match=word):
            compare([WhatIf(2.0, 1.0, 5).ledger()], 1e-5, None, observer)
