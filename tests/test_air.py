"""The signal-level uplink and its scalar form: exact on the signal, equal in distribution on the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.equivalent import _by_product, _by_scattering, _weights
from airfl.devices import UpdateBlock, clip, clip_factors
from airfl.transceiver import transmit, zero_forcing
from airfl.transceiver.design import least_gain
from tests.oracles.settings import setting_of

DIM = 30_000
CLIP = 2.0
POWER = 1e-3


def setting(active=5, antennas=12, phases="ones", noise_power=1e-13, seed=0, trials=2, round_index=3):
    """Complex channels of very different strength, a combiner for them, and clipped updates."""
    rng = np.random.default_rng(seed)
    shape = (trials, active, antennas)
    h = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * 10 ** rng.uniform(-6, -3, (trials, active, 1))
    channels = torch.from_numpy(h)
    u = None if phases == "ones" else torch.from_numpy(np.exp(1j * rng.uniform(0, 6.28, (trials, active))))
    combiner = zero_forcing(channels, u).combiner * least_gain(CLIP, DIM, POWER)
    sent = transmit(combiner, channels, CLIP, DIM, POWER)
    noise_var = torch.linalg.vector_norm(combiner, dim=1) ** 2 * noise_power / 2
    reception = setting_of(round_index, sent.gains, noise_var, noise_power, channels, sent.tx_scaling, combiner)
    updates = rng.standard_normal((trials, active, DIM)).astype(np.float32)
    updates *= CLIP / np.linalg.norm(updates, axis=2, keepdims=True)
    return reception, torch.from_numpy(updates)


def blocks(updates, size=3):
    trials, active = updates.shape[:2]
    where = [(t, s) for t in range(trials) for s in range(active)]
    for start in range(0, len(where), size):
        part = torch.tensor(where[start : start + size])
        yield UpdateBlock(part[:, 0], part[:, 1], updates[part[:, 0], part[:, 1]], torch.zeros(len(part)))


CASES = [(5, 12, "ones"), (5, 12, "random"), (12, 12, "ones"), (1, 1, "random"), (3, 40, "random")]


@pytest.mark.parametrize(("active", "antennas", "phases"), CASES)
def test_signal_part_is_exact(active, antennas, phases):
    reception, updates = setting(active, antennas, phases)
    plain = updates.double().sum(dim=1)
    for uplink in (SignalUplink(7, (0, 1)), EquivalentUplink(7, (0, 1))):
        estimate = uplink.receive(blocks(updates), DIM, reception.silenced()).double()
        error = torch.linalg.vector_norm(estimate - plain, dim=1) / torch.linalg.vector_norm(plain, dim=1)
        assert float(error.max()) < 1e-5


@pytest.mark.parametrize(("active", "antennas", "phases"), CASES)
def test_noise_has_the_booked_variance_and_is_gaussian(active, antennas, phases):
    """Variance within 5 standard errors (false alarm 6e-7); KS tests at 1e-4, also of one uplink against the other."""
    reception, updates = setting(active, antennas, phases, noise_power=1e-10)
    plain = updates.double().sum(dim=1)
    whitened = []
    for uplink in (SignalUplink(7, (0, 1)), EquivalentUplink(7, (0, 1))):
        noise = (uplink.receive(blocks(updates), DIM, reception).double() - plain).numpy()
        for row in range(2):
            booked = float(reception.noise_var[row])
            assert abs(noise[row].var() / booked - 1) < 5 * math.sqrt(2 / DIM)
            assert abs(noise[row].mean()) < 5 * math.sqrt(booked / DIM)
            assert stats.kstest(noise[row] / math.sqrt(booked), "norm").pvalue > 1e-4
        whitened.append((noise / np.sqrt(reception.noise_var.numpy())[:, None]).ravel())
    assert stats.ks_2samp(*whitened).pvalue > 1e-4
    assert abs(np.corrcoef(whitened[0][:DIM], whitened[0][DIM:])[0, 1]) < 5 / math.sqrt(DIM)


def test_neither_chunks_nor_blocks_nor_batches_change_the_result():
    reception, updates = setting()
    whole = SignalUplink(7, (0, 1)).receive(blocks(updates), DIM, reception)
    small = SignalUplink(7, (0, 1), chunk_symbols=1).receive(blocks(updates, 10), DIM, reception)
    assert torch.allclose(whole, small, rtol=1e-6, atol=1e-6)
    one = EquivalentUplink(7, (0, 1)).receive(blocks(updates, 1), DIM, reception)
    all_at_once = EquivalentUplink(7, (0, 1)).receive(blocks(updates, 99), DIM, reception)
    assert torch.allclose(one, all_at_once, atol=1e-5)
    second = setting_of(3, reception.gains[1:], reception.noise_var[1:], reception.noise_power)
    alone = EquivalentUplink(7, (1,)).receive(blocks(updates[1:]), DIM, second)
    assert torch.allclose(alone[0], all_at_once[1], atol=1e-5)


def test_rounds_and_seeds_draw_different_noise():
    first, updates = setting(round_index=0)
    second, _ = setting(round_index=1)
    for kind in (SignalUplink, EquivalentUplink):
        a = kind(7, (0, 1)).receive(blocks(updates), DIM, first)
        assert torch.equal(a, kind(7, (0, 1)).receive(blocks(updates), DIM, first))
        assert not torch.allclose(a, kind(7, (0, 1)).receive(blocks(updates), DIM, second))
        assert not torch.allclose(a, kind(8, (0, 1)).receive(blocks(updates), DIM, first))


def test_gains_other_than_one_are_applied():
    reception, updates = setting()
    gains = reception.gains * torch.tensor([0.5, 1.0, 1.2, 0.9, -0.3j])
    tilted = setting_of(
        3,
        gains,
        torch.zeros(2),
        0.0,
        reception.channels,
        reception.tx_scaling * torch.tensor([0.5, 1.0, 1.2, 0.9, -0.3j]),
        reception.combiner,
    )
    expected = (gains.real[:, :, None] * updates).sum(dim=1).float()
    for uplink in (SignalUplink(7, (0, 1)), EquivalentUplink(7, (0, 1))):
        assert torch.allclose(uplink.receive(blocks(updates), DIM, tilted), expected, atol=1e-5)


def test_both_ways_to_sum_clip_alike():
    generator = torch.Generator().manual_seed(3)
    trained = 3.0 * torch.randn(14, 50, generator=generator)
    gains = torch.rand(2, 9, generator=generator)
    trial = torch.tensor([0] * 9 + [1] * 5)
    slot = torch.cat([torch.arange(9), torch.arange(5)])
    factors, norms = clip_factors(trained, 21.0)
    assert 0 < int((factors < 1).sum()) < len(factors)
    clipped, norms_too = clip(trained, 21.0)
    assert torch.equal(norms, norms_too)
    block = UpdateBlock(trial, slot, trained, torch.zeros(14), factors)
    assert torch.equal(block.updates, clipped)
    expected = torch.stack([gains[row, slot[trial == row]] @ clipped[trial == row] for row in (0, 1)])
    for way in (_by_product, _by_scattering):
        total = torch.ones(2, 50, dtype=torch.float64)
        way(total, trial, _weights(block, gains.double()), trained.double())
        assert torch.allclose(total.float(), 1.0 + expected, rtol=1e-5, atol=1e-5)
        way(total, trial, _weights(replace(block, factors=None), gains.double()), trained.double())
        assert not torch.allclose(total.float(), 1.0 + 2.0 * expected, atol=0.1)


def near_a_jump(devices, edge):
    """Updates shorter than 1 whose float32 sum takes another turn at every addition once the first one is missing."""
    ulp, value = edge * 2.0**-23, 0.1249
    values, so_far = [value], np.float32(0.0)
    while so_far < edge - 1.5 * value:
        values.append(value)
        so_far = np.float32(so_far + np.float32(value))
    values.append(float(edge - value / 2 - so_far))
    values += [0.6 * ulp, -0.45 * ulp] * ((devices - len(values)) // 2)
    return torch.tensor(values).unsqueeze(1).expand(-1, 64).contiguous()


@pytest.mark.parametrize("add", [_by_scattering, _by_product])
def test_one_device_moves_the_received_sum_by_its_update_however_many_there_are(monkeypatch, add):
    """Rounding in float32 let it move the sum of 6,000 by 1.48 clip norms."""
    monkeypatch.setattr("airfl.air.equivalent._by_scattering", add)
    updates = near_a_jump(6000, 256.0)
    without = updates.clone()
    without[0] = 0.0

    def received(rows):
        factors, norms = clip_factors(rows, 1.0)
        assert float(norms.max()) < 1.0
        gains = torch.ones(1, len(rows), dtype=torch.complex128)
        receiver = EquivalentUplink(0, (0,)).open(64, setting_of(0, gains, torch.zeros(1, dtype=torch.float64), 1.0))
        zeros = torch.zeros(len(rows), dtype=torch.int64)
        receiver.add(UpdateBlock(zeros, torch.arange(len(rows)), rows, torch.zeros(len(rows)), factors))
        return receiver._total[0]

    moved = float(torch.linalg.vector_norm(received(updates) - received(without)))
    assert 0.99 < moved < 1.0
