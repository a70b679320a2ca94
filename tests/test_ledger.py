from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.privacy import (
    ACCOUNTANTS,
    BudgetError,
    Domain,
    Ledger,
    PrivacyError,
    RoundEvent,
    Sampling,
    make_accountant,
    release,
    what_if_ledger,
)
from airfl.privacy.rows import checksum, row_of

positive = st.floats(1e-12, 1e12)
events = st.builds(
    RoundEvent,
    round=st.just(0),
    clip_norm=positive | st.just(math.inf),
    gain_bound=positive,
    noise_var=positive | st.just(0.0),
    noise_source=st.sampled_from(["none", "channel", "artificial"]),
    noise_power=positive | st.none(),
    sampling=st.builds(Sampling, st.sampled_from(["all", "poisson", "without-replacement"]), st.just(7), st.just(3)),
    update_factor=positive,
    domain=st.none() | st.builds(Domain, positive, positive | st.none(), positive, st.integers(1, 9), positive),
    hides_participation=st.booleans(),
    gradient_var=st.none() | positive,
    base_station=positive | st.none() | st.just(0.0),
    eavesdropper=positive | st.none(),
    everything=positive | st.none(),
)


def seen_in(event, observers=("base-station", "eavesdropper", "everything")):
    """What a round with seven devices may have shown of each: one is silent, one is seen best."""
    largest = {name: event.visibility(name) for name in observers}
    return {n: np.array([0.0, top, *[0.5 * top] * 5]) for n, top in largest.items() if top is not None}


@given(st.lists(events, max_size=5))
def test_json_round_trip(items):
    ledger = Ledger()
    for t, event in enumerate(items):
        event = replace(event, round=t)
        ledger = ledger.append(event, seen_in(event))
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger
    assert again.devices.keys() == ledger.devices.keys()
    for observer in ledger.devices:  # kept as long as every round has it
        assert all(event.visibility(observer) is not None for event in items)
        assert again.devices[observer].tobytes() == ledger.devices[observer].tobytes()
    json.loads(ledger.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_append_only():
    ledger = what_if_ledger(1.0, 1.0, 3)
    with pytest.raises(PrivacyError, match="cannot be booked after"):
        ledger.append(ledger.events[0])
    assert len(ledger.events) == 3


def test_edited_ledgers_are_refused():
    good = what_if_ledger(1.0, 1.0, 2).to_mapping()
    good_text = json.dumps(good)

    def edited(**changes):
        rows = [dict(row) for row in good["events"]]
        rows[1].update(changes)
        return json.dumps({**good, "events": rows})

    for text, message in (
        ("{", "not a ledger"),
        ("[]", "not a ledger"),
        (json.dumps({"version": 9, "events": []}), "version 9"),
        (json.dumps({**good, "version": 1}), "version 1"),
        (json.dumps({**good, "events": good["events"][:1]}), "checksum"),
        (json.dumps({**good, "events": 3}), "must be a list"),
        (json.dumps({key: value for key, value in good.items() if key != "sha256"}), "checksum"),
        (edited(noise_var=2.0), "checksum"),
        (edited(hides_participation="yes"), "true or false"),
        (edited(noise_source="hope"), "noise_source"),
        (edited(device_norms=[1.0]), "not valid"),
        (edited(base_station=-1.0), "base_station"),
        (edited(everything="all"), "everything"),
        (json.dumps({**good, "devices": []}), "must be an object"),
        (json.dumps({**good, "devices": {"base-station": [1.0]}}), "checksum"),
        (edited(clip_norm=math.inf), "not a number"),
        (edited(noise_var=10**400), "noise_var"),
        (edited(update_factor=0), "update_factor"),
        (good_text[: len(good_text) // 2], "not a ledger"),
        (edited(noise_var=-1.0), "noise_var"),
        (edited(noise_var="many"), "not valid"),
        (edited(clip_norm=0), "clip_norm"),
        (edited(gain_bound=math.nan), "not a number"),
        (edited(gain_bound=-1.0), "gain_bound"),
        (edited(round=0), "cannot be booked after"),
        (edited(extra=1), "not valid"),
        (edited(sampling={"law": "luck", "num_devices": 3, "num_active": 2}), "sampling law"),
        (edited(sampling={"law": "all", "num_devices": 3, "num_active": 4}), "0 < K <= n"),
    ):
        with pytest.raises(PrivacyError, match=message):
            Ledger.from_json(text)


def test_sums_per_device_that_no_rounds_can_have_are_refused():
    four = Sampling("all", 4, 4)
    rows = [replace(event, base_station=2.0, sampling=four) for event in what_if_ledger(1.0, 1.0, 3).events]
    ledger = Ledger()
    for event in rows:
        ledger = ledger.append(event, {"base-station": np.array([2.0, 1.0, 0.0, 0.5])})
    assert ledger.devices["base-station"].tolist() == [12.0, 3.0, 0.0, 0.75]
    assert Ledger.kept(ledger.events, ledger.devices) == ledger
    good = ledger.to_mapping()

    def forged(**devices):
        data = {**good, "devices": {name.replace("_", "-"): values for name, values in devices.items()}}
        return {**data, "sha256": checksum([data["events"], data["devices"]])}

    assert Ledger.from_mapping(forged(**{"base-station": [12.0, 3.0, 0.0, 0.75]})) == ledger
    for values in ([12.1, 0.0, 0.0, 0.0], [3.9, 3.9, 3.9, 0.0], [4.0, 4.0, 3.9, 0.0], [12.0, -1.0, 0.0, 0.0], [12.0]):
        with pytest.raises(PrivacyError, match=r"devices|not negative"):
            Ledger.from_mapping(forged(base_station=values))
    for other in ({"everything": [1.0] * 4}, {"models": [12.0, 0.0, 0.0, 0.0]}):
        with pytest.raises(PrivacyError, match=r"devices|sees signals"):
            Ledger.from_mapping(forged(**other))
    for seen in ([2.0, 1.0, 0.0], [1.0] * 4, [3.0, 0.0, 0.0, 0.0], [2.0, -1.0, 0.0, 0.0], [2.0, math.nan, 0.0, 0.0]):
        with pytest.raises(PrivacyError, match="one entry per device"):
            Ledger().append(rows[0], {"base-station": np.array(seen)})
    with pytest.raises(PrivacyError, match="sees signals"):
        Ledger().append(rows[0], {"models": np.array([2.0, 1.0, 0.0, 0.5])})


def test_ledgers_of_before_are_read():
    """Version 2 kept √(σ² pᴴ C⁻¹ p) of the loudest device and of each: μ = √2·c·‖p‖/σ."""
    event = row_of(replace(what_if_ledger(0.7, 4.0, 1).events[0], sampling=Sampling("all", 3, 3)))
    for name in ("base_station", "eavesdropper", "everything"):
        del event[name]
    norms = [(0.3, 0.2, 0.0), (0.1, 0.5, 0.4)]
    rows = [
        {**event, "round": t, "noise_power": 0.5, "received_norm": max(own), "device_norms": list(own)}
        for t, own in enumerate(norms)
    ]
    old = {"version": 2, "sha256": checksum(rows), "events": rows}
    ledger = Ledger.from_mapping(old)
    mu = make_accountant("gaussian", ledger, "zero-out", "base-station").mu
    assert mu == pytest.approx(math.sqrt(2 / 0.5) * 0.7 * math.sqrt(0.2**2 + 0.5**2))
    assert make_accountant("gaussian", ledger, "zero-out").mu == pytest.approx(math.sqrt(2 * 0.49 / 4.0))
    assert Ledger.from_json(ledger.to_json()) == ledger
    without = [{**row, "device_norms": None} for row in rows]
    coarse = Ledger.from_mapping({"version": 2, "sha256": checksum(without), "events": without})
    mu = make_accountant("gaussian", coarse, "zero-out", "base-station").mu
    assert mu == pytest.approx(math.sqrt(2 / 0.5) * 0.7 * math.sqrt(0.3**2 + 0.5**2))
    with pytest.raises(PrivacyError, match="checksum"):
        Ledger.from_mapping({**old, "sha256": "0"})
    wrong = [{**rows[0], "received_norm": 0.4}]
    with pytest.raises(PrivacyError, match="received_norm"):
        Ledger.from_mapping({"version": 2, "sha256": checksum(wrong), "events": wrong})


def test_release_refuses_what_exceeds_the_budget():
    ledger = what_if_ledger(1.0, 100.0, 10)
    spent = release(ledger, "gaussian", "zero-out", 1e9, 1e-5)
    assert release(ledger, "gaussian", "zero-out", spent, 1e-5) == spent
    with pytest.raises(BudgetError, match="not released"):
        release(ledger, "gaussian", "zero-out", spent * (1 - 1e-12), 1e-5)
    with pytest.raises(BudgetError):
        release(what_if_ledger(1.0, 0.0, 1), "gaussian", "zero-out", 1e9, 1e-5)


def test_ledgers_that_share_events_do_not_share_a_fate():
    """Longer ledgers share a list with shorter ones: each keeps its own story, and what it has added up."""
    rows = what_if_ledger(1.0, 4.0, 6).events
    first = Ledger((rows[0],))
    one = first.append(rows[1]).append(rows[2])
    other = first.append(replace(rows[1], noise_var=9.0))
    assert (len(first.events), len(one.events), len(other.events)) == (1, 3, 2)
    assert first == Ledger((rows[0],))
    assert one == Ledger(rows[:3])
    assert one.events[-1] == rows[2]
    assert other.events[1].noise_var == 9.0
    for book, mu2 in ((first, 1 / 4), (one, 3 / 4), (other, 1 / 4 + 1 / 9), (first, 1 / 4)):
        assert make_accountant("gaussian", book, "zero-out").mu ** 2 == pytest.approx(mu2)
    assert pickle.loads(pickle.dumps(one)) == one


def test_repeated_rounds_are_those_of_a_long_ledger():
    whole = what_if_ledger(1.0, 4.0, 50)
    spelled = Ledger(tuple(replace(whole.events[0], round=t) for t in range(50)))
    assert whole == spelled
    assert Ledger.from_json(whole.to_json()) == spelled
    assert pickle.loads(pickle.dumps(whole)) == spelled
    more = replace(whole.events[0], round=50)
    assert whole.append(more) == spelled.append(more)
    assert whole.events[3:5] == spelled.events[3:5]


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=20), st.sampled_from(["zero-out", "replace"]))
def test_asking_after_every_round_gives_the_bits_of_asking_once(variances, neighbours):
    """Sums go on from where they were; they are rounded once, in whatever portions they are added up."""
    book = Ledger()
    for t, v in enumerate(variances):
        seen = np.array([v**0.25, 1.0, 0.0])
        event = RoundEvent(t, 0.7, 1.1, v, "channel", 0.3, Sampling("all", 3, 3), 0.1, gradient_var=0.2)
        event = replace(event, base_station=seen.max(), eavesdropper=seen.max(), everything=2 * seen.max())
        book = book.append(event, {"base-station": seen, "everything": 2 * seen})
        for name, kind in ACCOUNTANTS.items():
            for observer in kind.observers:
                grown = make_accountant(name, book, neighbours, observer).epsilon(1e-5)
                spelled = Ledger(tuple(book.events), dict(book.devices))
                assert grown == make_accountant(name, spelled, neighbours, observer).epsilon(1e-5)
