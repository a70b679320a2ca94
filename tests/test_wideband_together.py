"""What blocks go with, several at a time: both uplinks are one law, and what is booked keeps the promise."""

from __future__ import annotations

import math

import pytest
import torch

from airfl.air import EquivalentUplink, SignalUplink
from airfl.privacy import Ledger
from airfl.rounds import arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio
from tests.test_impairments import random_updates, received

DIM, COPIES = 610, 12
LINE = {"channel.delay_spread_s": 5e-8}
BANDS = {"channel.coherence_hz": 5e6}
ROTATED = {"channel.rotation": True}
COMPLEX = {"channel.symbols": "complex"}
WRONG = {"channel.csi_error": 0.02}
POISSON = {"system.sampling": "poisson", "system.participation": 0.4}
CHOSEN = {"scheme.selection": "strongest", "scheme.selection_keep": 0.5}
TURNED = {"channel.phase_error_rad": 0.3}
LOUD = {"channel.interference_dbm": -90.0}
HER = {"eavesdropper.distance_m": 50.0, "eavesdropper.antennas": 2, "eavesdropper.noise_density_dbm_hz": -174.0}
MASKS = {
    "scheme.names": ["airfl-shielded"],
    "scheme.cover": "masks",
    "scheme.mask_degree": 4,
    "scheme.cover_price_db": 100.0,
}
SEVERAL = {
    "line, rotated, estimated, complex, turned": {**LINE, **ROTATED, **WRONG, **COMPLEX, **TURNED},
    "line, rotated, estimated, chosen, complex": {**LINE, **ROTATED, **WRONG, **CHOSEN, **COMPLEX},
    "rotated, drawn, for all": {**BANDS, **ROTATED, **POISSON, "scheme.combiner_columns": "all"},
    "drawn, estimated, disturbed": {**BANDS, **POISSON, **WRONG, **LOUD},
    "line, rotated, masks, complex": {**LINE, **ROTATED, **MASKS, **COMPLEX},
    "masks, dropouts, disturbed": {**BANDS, **MASKS, **LOUD, "system.dropout": 0.1},
    "masks, eavesdropper, complex, rotated": {
        **BANDS, **MASKS, **HER, **COMPLEX, **ROTATED, "privacy.observer": "eavesdropper",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_both_uplinks_are_one_law_and_the_promise_is_kept(tiny, name):
    config = tiny.replace(
        {
            "system.num_devices": 12,
            "system.participation": 1.0,
            "system.num_antennas": 8,
            "system.rounds": 2,
            "scheme.names": ["airfl-dp"],
            "scheme.combiner": "auto",
            "channel.power_w": 1e-6,
            "privacy.epsilon": 5.0,
            "privacy.accountant": "gaussian",
            **SEVERAL[name],
        }
    )
    schedule = arrange(config, SCHEMES[config.scheme.names[0]], open_radio(config, (0, 3)), DIM)
    setting = schedule.setting(1)
    assert setting.blocks is not None
    updates = random_updates((2, setting.gains.shape[1], DIM), 4, schedule.clip_norm) * setting.heard.unsqueeze(-1)
    exact, fast = (received(setting.silenced(), updates, kind) for kind in (SignalUplink, EquivalentUplink))
    assert float((exact - fast).norm()) < 1e-6 * float(exact.norm())
    off = float((exact - updates.sum(dim=1)).norm() / exact.norm())
    assert (off > 1e-3) == ("estimated" in name or "turned" in name)

    often, nothing = setting.repeated(COPIES), torch.zeros_like(updates).repeat_interleave(COPIES, dim=0)
    planned = often.planned_var(DIM)
    for kind in (SignalUplink, EquivalentUplink):
        noise = received(often, nothing, kind)
        assert float((noise.square() / planned).mean()) == pytest.approx(1.0, abs=5 * math.sqrt(2 / noise.numel()))

    ledgers = [Ledger(), Ledger()]
    for t in range(2):
        booked = book(schedule, schedule.setting(t), lambda _: None)
        ledgers = [one.on(ledger) for one, ledger in zip(booked, ledgers, strict=True)]
    for ledger in ledgers:
        assert schedule.promise.check(ledger) is None
