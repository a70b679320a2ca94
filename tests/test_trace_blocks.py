"""Measured channels of rounds of several blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.channel import open_link
from airfl.channel.blocks import Place, grid_of, place_of
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.rounds import arrange
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

DIM = 650
#: Four blocks of frequency, two of time.
BLOCKS = {"channel.coherence_hz": 5e6, "channel.coherence_s": 20e-6, "channel.power_w": 1e-9, "scheme.combiner": "auto"}


@pytest.fixture
def measured():
    """[rounds, blocks, devices, antennas], about as loud as the channels of the tiny preset."""
    rng = np.random.default_rng(0)
    return 1e-5 * (rng.standard_normal((4, 8, 12, 16)) + 1j * rng.standard_normal((4, 8, 12, 16)))


def traced(config, path, changes=BLOCKS, **arrays):
    np.savez(path / "t.npz", **arrays)
    return config.replace({"channel.fading": "trace", "channel.trace_file": str(path / "t.npz"), **changes})


def schedule_of(config, trials=(0, 1)):
    return arrange(config, SCHEMES["airfl-dp"], open_radio(config, trials), DIM)


def test_every_block_is_read_from_its_place(tiny, tmp_path, measured):
    config = traced(tiny, tmp_path, block_channels=measured)
    grid, link = grid_of(config, DIM), open_link(config, [0, 1])
    assert (grid.bands, grid.spans) == (4, 2)
    for t in range(4):
        for number in range(8):
            place = place_of(number, grid, config.channel)
            assert (place.span, place.band) == divmod(number, 4)
            assert np.array_equal(link.drawn_in(t, place), np.stack([measured[t, number]] * 2))
    both = traced(tiny, tmp_path, block_channels=np.stack([measured, 3 * measured]), channels=measured[:, 0])
    assert np.array_equal(open_link(both, [1]).drawn_in(2, Place(1, 1, 0.0))[0], 3 * measured[2, 5])
    power = (np.abs(measured) ** 2).mean(axis=(0, 1, 3))
    law = open_link(both, [0, 1]).law
    assert law.amplitude == pytest.approx(np.sqrt(np.stack([power, 9 * power])))
    assert [law.weakest_path_gain(index) for index in (0, 1)] == pytest.approx([power.min(), 9 * power.min()])


def test_one_block_is_todays_bits(tiny, tmp_path, measured):
    flat = {"scheme.names": ["airfl-dp"]}
    runs = [
        airfl.run(traced(tiny, tmp_path, flat, **arrays)).schemes["airfl-dp"]
        for arrays in ({"channels": measured[:, 0]}, {"block_channels": measured[:, :1]})
    ]
    assert all(torch.equal(a, b) for a, b in zip(runs[0].models, runs[1].models, strict=True))
    assert runs[0].ledgers == runs[1].ledgers
    laws = [
        open_link(traced(tiny, tmp_path, flat, **arrays), [0]).law
        for arrays in ({"channels": measured[:, 0]}, {"block_channels": measured[:, :1]})
    ]
    expected = np.sqrt((np.abs(measured[:, 0]) ** 2).mean(axis=(0, 2)))
    assert all(np.array_equal(law.amplitude[0], expected) for law in laws)


@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_both_uplinks_agree(tiny, tmp_path, measured, symbols):
    """The signal part to rounding; the noise of every block in variance."""
    spans = {"channel.symbols": symbols, "channel.coherence_s": 20e-6 if symbols == "real" else 10e-6}
    setting = schedule_of(traced(tiny, tmp_path, {**BLOCKS, **spans}, block_channels=measured)).setting(1)
    assert setting.blocks is not None
    sent = torch.randn(2, 9, DIM, generator=torch.Generator().manual_seed(1)) / math.sqrt(DIM)
    trial, slot = np.divmod(np.arange(18), 9)
    block = UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), sent.reshape(-1, DIM), torch.zeros(18))
    where = setting.blocks.grid.block_of(DIM)
    for uplink in (EquivalentUplink, SignalUplink):
        heard = uplink(0, (0, 1)).receive([block], DIM, setting.silenced())
        assert torch.allclose(heard, sent.sum(dim=1), atol=1e-5)
        draws = torch.stack([uplink(seed, (0, 1)).receive([block], DIM, setting) - heard for seed in range(60)], dim=1)
        for number in range(8):
            variance = draws[:, :, where == number].double().var(dim=(1, 2))
            count = 60 * int((where == number).sum())
            assert (variance / setting.blocks.noise_var[:, number] - 1).abs().max() < 5 * math.sqrt(2 / count)


def test_a_run_with_measured_blocks_keeps_its_budget(tiny, tmp_path, measured):
    config = traced(tiny, tmp_path, block_channels=measured).replace(
        {"scheme.names": ["airfl-dp"], "channel.coherence_s": None}
    )
    held = measured[:, :4]
    result = airfl.run(traced(config, tmp_path, {}, block_channels=held))
    assert result.schemes["airfl-dp"].status == "done"
    assert result.schemes["airfl-dp"].epsilon() <= config.privacy.epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cut", "shape", "message"),
    [
        ({}, (4, 8, 12, 16), "`channel.coherence_hz` = 2.5e.06 makes that many blocks of frequency"),
        (BLOCKS, (4, 4, 12, 16), "4 blocks of a round, but .* 8 blocks .4 of frequency, 2 of time"),
        (BLOCKS, (4, 9, 12, 16), "with exactly as many"),
        (BLOCKS, (4, 0, 12, 16), "needs at least .trials, rounds, blocks, devices, antennas. = .1, 4, 1, 12, 16"),
        (BLOCKS, (3, 8, 12, 16), "needs at least"),
        (BLOCKS, (2, 1, 4, 8, 12), "needs at least"),
        (BLOCKS, (4, 12, 16), "needs at least"),
        ({"channel.coherence_hz": 1e3}, (4, 8, 12, 16), "cannot have 20,000 blocks"),
    ],
)
def test_files_that_do_not_fit_are_one_sentence(tiny, tmp_path, cut, shape, message):
    config = traced(tiny, tmp_path, {**cut, "scheme.combiner": "auto"}, block_channels=np.ones(shape, complex))
    with pytest.raises(InputError, match=message) as refused:
        schedule_of(config, (0,))
    assert "\n" not in str(refused.value)


def test_other_files_are_one_sentence(tiny, tmp_path, measured):
    for arrays, message in (
        ({"channels": measured[:, 0]}, "holds one channel for a whole round, but .* makes a round 8 blocks"),
        ({"channels": measured[None]}, "one with blocks is named `block_channels`"),
        ({"block_channels": np.where(np.arange(16) == 3, np.nan, measured)}, "NaN"),
        ({"blocks": measured}, "no array named `channels` or `block_channels`"),
    ):
        with pytest.raises(InputError, match=message):
            schedule_of(traced(tiny, tmp_path, **arrays), (0,))
    config = traced(tiny, tmp_path, block_channels=measured)
    with pytest.raises(InputError, match="no law to draw from"):
        arrange(config, SCHEMES["airfl-dp-online"], open_radio(config, [0]), DIM)
