from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.privacy import BudgetError, Domain, Ledger, PrivacyError, RoundEvent, Sampling, release, what_if_ledger

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
