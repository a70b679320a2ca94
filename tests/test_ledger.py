from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

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

positive = st.floats(1e-12, 1e12)
events = st.builds(
    RoundEvent,
    round=st.just(0),
    clip_norm=positive | st.just(math.inf),
    gain_bound=positive,
    noise_var=positive | st.just(0.0),
    noise_source=st.sampled_from(["none", "channel", "artificial"]),
    noise_power=positive | st.none(),
    received_norm=positive | st.none(),
    sampling=st.builds(Sampling, st.sampled_from(["all", "poisson", "without-replacement"]), st.just(7), st.just(3)),
    update_factor=positive,
    domain=st.none() | st.builds(Domain, positive, positive | st.none(), positive, st.integers(1, 9), positive),
    device_norms=st.none(),
    hides_participation=st.booleans(),
    gradient_var=st.none() | positive,
)


@given(st.lists(events, max_size=5))
def test_json_round_trip(items):
    ledger = Ledger()
    for t, event in enumerate(items):
        fields = {**event.__dict__, "round": t}
        if event.received_norm is not None and t % 2:
            fields["device_norms"] = (0.0, event.received_norm, *[0.5 * event.received_norm] * 5)
        ledger = ledger.append(RoundEvent(**fields))
    assert Ledger.from_json(ledger.to_json()) == ledger
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
        (edited(device_norms=[-1.0]), "device_norms"),
        (edited(device_norms=[]), "device_norms"),
        (edited(device_norms=[0.0], received_norm=2.0, noise_power=1.0), "device_norms"),
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


def test_release_refuses_what_exceeds_the_budget():
    ledger = what_if_ledger(1.0, 100.0, 10)
    spent = release(ledger, "gaussian", "add-remove", 1e9, 1e-5)
    assert release(ledger, "gaussian", "add-remove", spent, 1e-5) == spent
    with pytest.raises(BudgetError, match="not released"):
        release(ledger, "gaussian", "add-remove", spent * (1 - 1e-12), 1e-5)
    with pytest.raises(BudgetError):
        release(what_if_ledger(1.0, 0.0, 1), "gaussian", "add-remove", 1e9, 1e-5)


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
        assert make_accountant("gaussian", book, "add-remove").mu ** 2 == pytest.approx(mu2)
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


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=20), st.sampled_from(["add-remove", "replace"]))
def test_asking_after_every_round_gives_the_bits_of_asking_once(variances, neighbours):
    """Sums go on from where they were; they are rounded once, in whatever portions they are added up."""
    norms = [(v**0.25, 1.0, 0.0) for v in variances]
    rows = [
        RoundEvent(t, 0.7, 1.1, v, "channel", 0.3, max(heard), Sampling("all", 3, 3), 0.1, device_norms=heard,
                   gradient_var=0.2)
        for t, (v, heard) in enumerate(zip(variances, norms, strict=True))
    ]  # fmt: skip
    book = Ledger()
    for event in rows:
        book = book.append(event)
        for name, kind in ACCOUNTANTS.items():
            for observer in kind.observers:
                grown = make_accountant(name, book, neighbours, observer).epsilon(1e-5)
                assert grown == make_accountant(name, Ledger(tuple(book.events)), neighbours, observer).epsilon(1e-5)
