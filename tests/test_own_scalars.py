"""Policies that find transmit scalars, with dropouts, scheduling and complex symbols: against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from airfl.air import EquivalentUplink, SignalUplink
from airfl.devices import UpdateBlock
from airfl.participation import dropouts
from airfl.privacy import gaussian_epsilon
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from tests.conflicts import AXES, BASE

POWER = ("power-mse", "power-gap", "random-orth")
TOGETHER = [
    *(
        (scheme, axis)
        for scheme in ("power-mse", "power-gap", "random-orth")
        for axis in ("dropout", "selection", "aligned")
    ),
    *((scheme, "dropout") for scheme in ("tci", "tci-memory", "select-mse", "replacement")),
    *((scheme, "complex") for scheme in (*POWER, "tci", "tci-memory", "select-mse", "replacement")),
]
TIGHT = {"channel.power_w": 1e-6}
MORE = {"dropout": {"system.dropout": 0.4}}


def opened(scheme, axis, more):
    changes = {**BASE, **AXES[axis], **MORE.get(axis, {}), "system.rounds": 3, "scheme.names": [scheme], **more}
    config = small_config(changes)
    return open_simulation(config, scheme, small_task(config))


def brute_sum(setting, scene, sent, where):
    """Σ_i wᴴh_i s_i z_i of one trial's symbols, as coordinates: what the base station keeps of them."""
    gains = torch.einsum("m,km,k->k", scene.combiner[0].conj(), scene.channels[0], scene.tx_scaling[0])
    mine = sent[:, where]
    if setting.per_symbol == 1:
        return (gains.real[:, None] * mine).sum(dim=0), gains.real.abs()
    even = torch.nn.functional.pad(mine, (0, mine.shape[1] % 2))
    both = (gains[:, None] * torch.view_as_complex(even.reshape(len(even), -1, 2))).sum(dim=0)
    return torch.view_as_real(both).flatten()[: mine.shape[1]], gains.abs()


#: One combiner finds who is aligned, and several blocks have several.
CASES = [(*both, blocks) for both in TOGETHER for blocks in (1, 4) if (both[1], blocks) != ("aligned", 4)]


@pytest.mark.parametrize("power", [{}, TIGHT], ids=["power", "little power"])
@pytest.mark.parametrize(("scheme", "axis", "blocks"), CASES)
def test_what_is_received_booked_and_sent_is_what_physics_say(scheme, axis, blocks, power):
    simulation = opened(scheme, axis, {**power, **({"channel.coherence_hz": 5e6} if blocks > 1 else {})})
    schedule, config = simulation.schedule, simulation.config
    link, dim, length = schedule.link, schedule.dim, schedule.promise.template.clip_norm
    told = 0.0
    for t in range(3):
        setting = schedule.setting(t)
        places = setting.active.shape[1]
        there = setting.active[0] >= 0
        if axis == "dropout":
            assert not dropouts(config, 0, t)[setting.active[0][there]].any()
        sent = 1e7 * torch.randn(places, dim, generator=torch.Generator().manual_seed(t)).double()
        sent[~torch.from_numpy(there)] = 0.0
        expected, loudest = torch.zeros(dim, dtype=torch.float64), 0.0
        grid = None if setting.blocks is None else setting.blocks.grid
        owner = torch.zeros(dim, dtype=torch.int64) if grid is None else grid.block_of(dim)
        spent = torch.zeros(places, dtype=torch.float64)
        for number in owner.unique().tolist():
            scene = setting if grid is None else setting.blocks.scene(number)
            expected[owner == number], gains = brute_sum(setting, scene, sent, owner == number)
            noise = float(torch.linalg.vector_norm(scene.combiner[0]) ** 2) * link.noise_power / 2.0
            loudest = max(loudest, float(gains.max()) ** 2 / noise)
            spent += scene.tx_scaling[0].abs().square() * (1.0 if grid is None else grid.shares[number])
        block = UpdateBlock(
            torch.zeros(places, dtype=torch.int64), torch.arange(places), sent.float(), torch.zeros(places)
        )
        for uplink in (EquivalentUplink, SignalUplink):
            received = uplink(5, (0,)).receive([block], dim, setting)[0].double()
            noise = 5.0 * math.sqrt(dim * float(setting.noise_var[0]))
            assert float((received - expected).norm()) <= 1e-6 * float(expected.norm()) + noise
        # One device can move the sum by its gain times its length, all of it in its loudest block.
        event_v, event_g = float(setting.unknown_var[0]), float(torch.maximum(setting.gain_bound, setting.loudest)[0])
        assert event_g**2 / event_v >= loudest * (1.0 - 1e-9)
        told += (length * event_g) ** 2 / event_v
        if schedule.rule == "peak":
            assert float(spent.max()) * length**2 / schedule_symbols(schedule) <= link.power_limit * (1.0 + 1e-9)
    if axis != "dropout":  # what is booked covers all who were to send
        *_, (state, _) = simulation.rounds()
        booked = sum((e.clip_norm * e.gain_bound) ** 2 / e.noise_var for e in state.ledgers[0].events)
        assert booked == pytest.approx(told, rel=1e-9)
    reach = 1.0 if config.neighbours == "zero-out" else 2.0
    if scheme != "select-mse":
        assert gaussian_epsilon(config.privacy.delta, reach * math.sqrt(told)) <= config.privacy.epsilon * (1.0 + 1e-6)


def schedule_symbols(schedule):
    return schedule.dim if schedule.link.config.channel.symbols == "real" else -(-schedule.dim // 2)


@pytest.mark.parametrize("symbols", ["real", "complex"])
@pytest.mark.parametrize("scheme", [*POWER, "tci", "select-mse", "replacement"])
def test_an_eavesdropper_has_the_sum_with_the_gains_that_it_has(scheme, symbols):
    """‖g_i s_i‖² over the noise of her antennas, and |wᴴh_i s_i|² over that of the sum."""
    her = {"antennas": 2, "distance_m": 3e4, "noise_density_dbm_hz": -174.0}
    schedule = opened(scheme, "signal", {**TIGHT, "channel.symbols": symbols, "eavesdropper": her}).schedule
    listener, noise = schedule.link.listener, schedule.link.noise_power / 2.0
    for t in range(3):
        setting = schedule.setting(t)
        here = setting.heard[0]
        scalars, who = setting.tx_scaling[0, here], setting.active[0][here.numpy()]
        hers = torch.from_numpy(listener.draw(0, t)[who]) * scalars.unsqueeze(-1)
        gains = torch.einsum("m,km,k->k", setting.combiner[0].conj(), setting.channels[0, here], scalars)
        gains = gains.real.abs() if symbols == "real" else gains.abs()
        told = hers.abs().square().sum(dim=1) / (listener.noise_power / 2.0)
        told += gains.square() / (noise * torch.linalg.vector_norm(setting.combiner[0]) ** 2)
        assert torch.allclose(setting.seen["eavesdropper"][0, here], told.sqrt(), rtol=1e-9)


@pytest.mark.parametrize("scheme", POWER)
@pytest.mark.parametrize("axis", ["selection", "aligned"])
def test_the_mean_is_over_those_who_are_scheduled(scheme, axis):
    schedule = opened(scheme, axis, {}).schedule
    assert schedule.active.shape[2] == schedule.normaliser == 3.0
    assert bool((np.diff(np.sort(schedule.active, axis=2), axis=2) > 0).all())


@pytest.mark.parametrize("scheme", ["power-mse", "tci", "random-orth", "replacement"])
def test_without_dropouts_nothing_is_left_out(scheme):
    schedule = opened(scheme, "signal", {}).schedule
    assert np.array_equal(schedule.link.sending(schedule.active), schedule.active)
