"""Interference disturbs the sum and is never credited to privacy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.channel.budget import link_budget
from airfl.report.sentences import headline
from airfl.rounds import arrange
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

LOUD = {"channel.interference_dbm": -95.0}  # 5 dB over the noise of −100 dBm


def schedule_of(config, name="airfl-dp"):
    return arrange(config, SCHEMES[name], open_radio(config, [0, 1]), 650)


def test_what_is_booked_does_not_move(tiny):
    quiet, loud = (schedule_of(config) for config in (tiny, tiny.replace(LOUD)))
    budget = link_budget(tiny.replace(LOUD))
    ratio = 1.0 + budget.interference_w / budget.noise_w
    for t in range(4):
        calm, storm = quiet.setting(t), loud.setting(t)
        assert torch.equal(calm.unknown_var, storm.unknown_var)
        assert torch.allclose(storm.noise_var, ratio * calm.noise_var, rtol=1e-12)
        assert torch.equal(calm.gains, storm.gains)
        for name, seen in calm.seen.items():
            assert torch.equal(seen, storm.seen[name])
    assert quiet.perks() == loud.perks()


@pytest.mark.parametrize("uplink", [EquivalentUplink, SignalUplink])
def test_both_uplinks_add_it(tiny, uplink):
    config = tiny.replace(LOUD)
    setting = schedule_of(config).setting(0)
    heard = uplink(0, (0, 1)).open(20_000, setting)
    silent = torch.zeros(2, 9, 20_000)
    from airfl.devices import UpdateBlock

    trial, slot = np.divmod(np.arange(18), 9)
    heard.add(UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), silent.reshape(18, -1), torch.zeros(18)))
    noise = heard.finish().double()
    assert (noise.var(dim=1) / setting.noise_var).numpy() == pytest.approx(np.ones(2), abs=0.04)


@pytest.mark.parametrize("scheme", ["airfl-dp", "airfl-mimo", "airfl-an", "airfl-shielded"])
def test_no_epsilon_of_a_run_moves(tiny, scheme):
    config = tiny.replace(
        {
            "scheme.names": [scheme],
            "scheme.cover_price_db": 100.0,
            "channel.power_w": 1.0,
            "system.num_antennas": 3,
            "scheme.combiner": "auto",
        }
    )
    quiet, loud = (airfl.run(one).schemes[scheme] for one in (config, config.replace(LOUD)))
    assert quiet.ledgers == loud.ledgers
    assert loud.records[-1].noise_var > 1.5 * quiet.records[-1].noise_var or scheme in ("airfl-an", "airfl-shielded")


def test_it_is_said(tiny):
    page = "\n".join(headline(airfl.run(tiny.replace(LOUD))))
    assert "Interference of -95 dBm at every antenna makes the noise in the sum 6.2 dB larger" in page
    assert "none of it counts as privacy" in page
