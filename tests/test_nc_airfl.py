"""Energies in place of sums: what is sent and remembered, what the air makes of it, what is booked."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy.stats import ks_2samp

from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.energy import normal_scores
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import BudgetError
from airfl.rounds import book
from airfl.schemes import Dithered, Undithered
from airfl.schemes.encoders.dither import dither
from airfl.simulate import open_simulation
from airfl.testing.scheme import _public as public_of
from airfl.testing.small import small_config, small_task

BLOCKS = {"scheme.uplink": "signal", "scheme.fresh_fading": False, "channel.coherence_hz": 5e6}


def block_of(updates):
    count = len(updates)
    return UpdateBlock(torch.zeros(count, dtype=torch.int64), torch.arange(count), updates, torch.zeros(count))


def opened(overrides=None):
    config = small_config({"system.num_antennas": 1, "privacy.epsilon": 50.0, **(overrides or {})})
    return open_simulation(config, "nc-airfl", small_task(config))


def test_energies_and_what_is_left_of_them():
    """φ ⊙ x² is u where the dither agrees with it and 0 elsewhere; memory has the rest, half of ‖u‖² on average."""
    generator = torch.Generator().manual_seed(1)
    updates, memory = torch.randn(2, 8, 4000, generator=generator).unbind()
    encoder = Dithered(l1_clip=1e6, cap=1e9)
    public = public_of(8)
    encoded = encoder.encode_in(block_of(updates), encoder.unit(1.0, 4000), memory, public)
    signs, wanted, sent = dither(public, 4000)[0], updates + memory, encoded.block.updates
    assert bool((sent >= 0).all())
    assert torch.allclose(signs * sent.square(), torch.where(signs * wanted > 0, wanted, 0.0), atol=1e-5)
    assert torch.allclose(encoded.memory, wanted - signs * sent.square(), atol=1e-5)
    share = encoded.memory.square().sum() / wanted.square().sum()
    assert float(share) == pytest.approx(0.5, abs=0.02)


def test_energy_is_clipped_in_l1_and_what_was_cut_is_remembered():
    sizes = torch.tensor([[1e-3], [1.0], [1e3], [1e30]])
    updates = sizes * torch.randn(4, 300, generator=torch.Generator().manual_seed(2))
    encoder = Dithered(l1_clip=2.0, cap=1e40)
    unit = encoder.unit(1.0, 300)
    encoded = encoder.encode_in(block_of(updates), unit, torch.zeros_like(updates), public_of(4))
    energies = encoded.block.updates.double().square().sum(dim=1)
    assert unit**2 == pytest.approx(2.0)
    assert float(energies.max()) <= encoder.length(unit) ** 2
    assert float(energies[0]) < 0.5
    assert energies[1:].tolist() == pytest.approx([2.0] * 3, rel=1e-4)
    signs = dither(public_of(4), 300)[0]
    back = encoded.memory + signs * encoded.block.updates.square()
    assert torch.allclose(back[:3], updates[:3], rtol=1e-4, atol=1e-4)


def test_fading_beyond_what_is_booked_is_not_released():
    """The bound is exceeded with a chance of 1e-6 or so: here it is taken to be half of what is drawn."""
    simulation = opened({"scheme.uplink": "signal"})
    step = simulation.advance(simulation.init())
    low = dataclasses.replace(step.setting, gain_bound=torch.full_like(step.setting.gain_bound, 0.5))
    sent = torch.zeros(low.active.shape[1], 10)
    simulation.uplink.received(0, sent, step.setting)
    with pytest.raises(BudgetError, match="exceeds"):
        simulation.uplink.received(0, sent, low)


def test_everybody_draws_the_same_dither_and_anew_in_every_round():
    here, there = dither(public_of(3), 5000)[0], dither(public_of(3, (1,)), 5000)[0]
    assert set(here.tolist()) == {-1.0, 1.0}
    assert abs(float(here.mean())) < 0.06
    assert abs(float((here * there).mean())) < 0.06
    received = torch.randn(1, 5000, generator=torch.Generator().manual_seed(3))
    assert torch.equal(Undithered().decode_in(received, 1.0, 3.0, public_of(3)), here * received)


@pytest.mark.parametrize("antennas", [1, 3])
def test_the_mean_and_the_variance_of_what_is_measured(antennas):
    """E r = Σg and Var r = (Σg + σ²/ρ)²/m, and the same law from every antenna and symbol."""
    simulation = opened({"system.num_antennas": antennas})
    schedule = simulation.schedule
    setting, dim = schedule.setting(0), 4000
    sent = torch.rand(2, 6, dim, generator=torch.Generator().manual_seed(4)) * float(setting.floor[0]) ** 0.5
    trial, slot = torch.arange(2).repeat_interleave(6), torch.arange(6).repeat(2)
    places = UpdateBlock(trial, slot, sent.flatten(0, 1), torch.zeros(12))
    energy = sent.double().square().sum(dim=1)
    drawn = []
    for uplink in (EquivalentUplink, SignalUplink):
        measured = uplink(7, (0, 1)).receive([places], dim, setting).double()
        whole = energy + setting.floor.unsqueeze(1)
        z = (measured - energy) / (whole / math.sqrt(antennas))
        assert float(z.mean()) == pytest.approx(0.0, abs=4 / math.sqrt(2 * dim))
        assert float(z.var()) == pytest.approx(1.0, rel=0.12)
        drawn.append(z.flatten().numpy())
    assert ks_2samp(*drawn).pvalue > 1e-3
    nobody = UpdateBlock(places.trial, places.slot, torch.zeros_like(places.trained), places.losses)
    scores = normal_scores(EquivalentUplink(9, (0, 1)).receive([nobody], dim, setting), setting)
    assert float(scores.mean()) == pytest.approx(0.0, abs=0.05)
    assert float(scores.var()) == pytest.approx(1.0, rel=0.06)


def test_the_loudest_symbol_of_a_run_is_bounded():
    """G² = log(K d T/p): 41.8 for 50 devices, 50 rounds, the paper's network and an outage of 1e-9."""
    assert math.log(50 * 582_026 * 50 / 1e-9) == pytest.approx(41.8, abs=0.05)
    simulation = opened({"channel.csi_outage": 1e-3})
    events = 6 * 3 * simulation.schedule.dim
    bound = float(simulation.schedule.gain_bound[0, 0])
    assert bound**2 == pytest.approx(math.log(events / 1e-3), rel=1e-9)
    draws = torch.randn(2, 1000 * events, generator=torch.Generator().manual_seed(6)).square().sum(dim=0) / 2.0
    beyond = (draws.view(1000, events) > bound**2).any(dim=1).float().mean()
    assert float(beyond) <= 1e-3 + 3 * math.sqrt(1e-3 / 1000)


@pytest.mark.parametrize("overrides", [{}, {"scheme.uplink": "signal"}, BLOCKS, {**BLOCKS, "system.num_antennas": 3}])
def test_what_is_booked_is_what_is_heard_before_it_is_measured(overrides):
    """S = √c₁ G beside v = σ²/(2ρ), what the base station sees and no less; power and budget are kept."""
    simulation = opened(overrides)
    schedule = simulation.schedule
    setting = schedule.setting(0)
    for row, entry in enumerate(book(schedule, setting, simulation.task.max_local_steps)):
        event, rho = entry.event, float(schedule.norm[row, 0]) ** -2
        assert event.noise_var == pytest.approx(setting.noise_power / (2.0 * rho), rel=1e-9)
        assert event.clip_norm**2 == pytest.approx(schedule.clip_norm**2)
        assert event.base_station >= event.gain_bound / math.sqrt(event.noise_var) * (1.0 - 1e-9)
    if not simulation.config.scheme.fresh_fading:
        loudest, rho = 0.0, float(schedule.norm[0, 0]) ** -2
        for number in range(schedule.blocks.grid.count if schedule.blocks else 1):
            scene = setting.blocks.scene(number) if setting.blocks else setting
            paths = torch.linalg.vector_norm(scene.channels, dim=-1) * scene.tx_scaling.abs()
            loudest = max(loudest, float(paths[0].max()) / math.sqrt(rho))
        assert float(setting.gain_bound[0]) == pytest.approx(loudest, rel=1e-9)
    *_, (state, rows) = simulation.rounds()
    simulation.release(state)
    assert max(row.max_power_w for row in rows) <= simulation.config.channel.power_w * (1 + 1e-9)
    assert simulation.schedule.promise.spent(state.ledgers[0]) <= 50.0


def test_a_budget_lowers_what_is_sent():
    quiet, loud = (opened({"privacy.epsilon": epsilon, "channel.power_w": 1e-3}) for epsilon in (2.0, 1e5))
    assert float(quiet.schedule.norm.min()) > 3 * float(loud.schedule.norm.max())
    *_, (state, _) = quiet.rounds()
    assert quiet.schedule.promise.spent(state.ledgers[0]) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"scheme.fresh_fading": False}, "signal"),
        ({"channel.fading": "rician"}, "rician"),
        ({"channel.antenna_correlation": 0.5}, "correlat"),
        ({"channel.coherence_hz": 5e6}, "scheme.fresh_fading = false"),
        ({"channel.interference_dbm": -100.0}, "interference"),
        ({"channel.csi_error": 0.1}, "csi_error"),
        ({**BLOCKS, "channel.rotation": True}, "rotation"),
    ],
)
def test_what_energies_are_not_worked_out_for_is_refused(overrides, words):
    with pytest.raises(InputError, match=words):
        opened(overrides)
