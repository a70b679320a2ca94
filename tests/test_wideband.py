"""Rounds of several blocks, and complex symbols: both uplinks, what is booked, power, channels by block."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.channel import open_link
from airfl.channel.blocks import Grid, Place, coherence_bandwidth_hz, coherence_time_s, grid_of, place_of
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.report.sentences import headline
from airfl.rounds import Sending, arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

DIM = 650
#: Four blocks of frequency, two of time.
BLOCKS = {"channel.coherence_hz": 5e6, "channel.coherence_s": 20e-6, "channel.power_w": 1e-9}


@pytest.fixture
def wide(tiny):
    return tiny.replace({**BLOCKS, "scheme.combiner": "auto"})


def schedule_of(config, name="airfl-dp", trials=(0, 1)):
    return arrange(config, SCHEMES[name], open_radio(config, trials), DIM)


def updates(count, generator, length=1.0):
    drawn = torch.from_numpy(generator.standard_normal((count, DIM)))
    return (length * drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)).float()


def blocks_of(sent):
    """Updates [trials, K, d] as an engine hands them on."""
    trial, slot = np.divmod(np.arange(sent.shape[0] * sent.shape[1]), sent.shape[1])
    return UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), sent.reshape(-1, DIM), torch.zeros(len(trial)))


def test_how_a_round_is_cut(tiny):
    config = tiny.replace({"channel.delay_spread_s": 100e-9, "channel.speed_m_s": 3.0})
    assert coherence_bandwidth_hz(config.channel) == pytest.approx(2e6)
    assert coherence_time_s(config.channel) == pytest.approx(0.423 * 299792458 / 2.4e9 / 3.0)
    paper = grid_of(config, 582_026)  # 29.1 ms on air, 17.6 ms of coherence
    assert (paper.bands, paper.spans, paper.count) == (10, 2, 20)
    assert grid_of(tiny, 582_026).count == 1
    assert grid_of(tiny.replace({"channel.coherence_hz": 20e6}), DIM).count == 1
    offsets = [place_of(b, paper, config.channel).offset_hz for b in range(20)]
    assert offsets[:10] == pytest.approx(np.linspace(-9e6, 9e6, 10))
    assert offsets[10:] == offsets[:10]
    grid = Grid(2, 2, 325, 2)
    assert grid.block_of(10).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]
    energies = grid.energies(torch.arange(1.0, 11.0)[None])
    assert energies.tolist() == [[1 + 4 + 81 + 100, 9 + 16, 25 + 36, 49 + 64]]


@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_both_uplinks_agree(wide, symbols):
    """The signal part to rounding; the noise of every block in variance."""
    config = wide.replace({"channel.symbols": symbols, "channel.coherence_s": 15e-6})
    setting = schedule_of(config).setting(1)
    assert setting.blocks is not None
    sent = torch.stack([updates(9, np.random.default_rng(k)) for k in range(2)])
    quiet = setting.silenced()
    whole = torch.stack([part.sum(dim=0) for part in sent])
    for uplink in (EquivalentUplink, SignalUplink):
        heard = uplink(0, (0, 1)).receive([blocks_of(sent)], DIM, quiet)
        assert torch.allclose(heard, whole, atol=1e-5)
    where = setting.blocks.grid.block_of(DIM)
    nothing = blocks_of(torch.zeros_like(sent))
    for uplink in (EquivalentUplink, SignalUplink):
        draws = torch.cat([uplink(seed, (0, 1)).receive([nothing], DIM, setting)[:, None] for seed in range(60)], dim=1)
        for block in range(setting.blocks.grid.count):
            variance = draws[:, :, where == block].double().var(dim=(1, 2))
            count = 60 * int((where == block).sum())
            assert (variance / setting.blocks.noise_var[:, block] - 1).abs().max() < 5 * math.sqrt(2 / count)


def test_one_block_and_real_symbols_are_todays_bits(tiny):
    plain, one = (
        airfl.run(config).schemes["airfl-dp"]
        for config in (
            tiny.replace({"scheme.names": ["airfl-dp"]}),
            tiny.replace({"scheme.names": ["airfl-dp"], "channel.coherence_hz": 20e6, "channel.speed_m_s": 1.0}),
        )
    )
    assert all(torch.equal(a, b) for a, b in zip(plain.models, one.models, strict=True))
    assert plain.ledgers == one.ledgers


@pytest.mark.parametrize("name", ["airfl-dp", "airfl-mimo", "airfl-dp-online", "koda2020", "liu2020"])
def test_the_quietest_block_is_booked_and_the_budget_kept(wide, name):
    config = wide.replace({"privacy.epsilon": 5.0})
    schedule = schedule_of(config, name)
    assert schedule.blocks is not None
    for t in range(4):
        setting = schedule.setting(t)
        assert torch.allclose(setting.unknown_var, setting.blocks.noise_var.amin(dim=1), rtol=1e-12)
        assert torch.allclose(setting.noise_var, setting.blocks.noise_var.mean(dim=1), rtol=1e-12)
        assert (schedule.blocks.norm >= schedule.blocks.minimum).all()
        events = book(schedule, setting, lambda row: None)
        assert [entry.event.noise_var for entry in events] == pytest.approx(setting.unknown_var.tolist())
    if name != "airfl-mimo":
        result = airfl.run(config.replace({"scheme.names": [name]}))
        assert result.schemes[name].status == "done"
        if name.startswith("airfl"):
            assert result.schemes[name].epsilon() <= 5.0 * (1 + 1e-9)


def test_a_level_saves_noise_against_raising_every_block(wide):
    """Just beyond the perk threshold some blocks are raised and others are not; within it none is."""
    threshold = min(perk.power_threshold_w for perk in schedule_of(wide).perks())
    for factor, some in ((1.1, True), (0.9, False)):
        schedule = schedule_of(wide.replace({"channel.power_w": factor * threshold}), trials=(0, 1))
        raised = schedule.blocks.norm > schedule.blocks.minimum
        assert raised.any() == some
        assert not raised.all()


@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_power_is_kept_whatever_the_update_is(wide, symbols):
    """All energy in one block, in one coordinate, or anywhere: |s|²E over the round is within P·symbols."""
    config = wide.replace({"channel.symbols": symbols, "channel.coherence_s": 15e-6, "privacy.epsilon": 1e6})
    schedule = schedule_of(config)
    setting = schedule.setting(0)
    grid, generator = setting.blocks.grid, np.random.default_rng(0)
    where = grid.block_of(DIM)
    tried = [updates(9, generator)]
    tried += [updates(9, generator) * (where == block) for block in range(grid.count)]
    tried.append(torch.eye(DIM)[:9])
    worst = setting.blocks.spent.argmax(dim=2)
    for sent in tried:
        sent = torch.stack([sent, sent])
        for trial in range(2):
            for slot in range(9):
                if sent is tried[-1]:
                    sent[trial, slot] = (where == worst[trial, slot]).float()
        sending = Sending(schedule.scheme.encoder, setting, schedule.clip_norm, None, schedule.public(setting))
        encoded = sending.encode(blocks_of(sent * 50.0)).updates.reshape(2, 9, DIM)
        assert (torch.linalg.vector_norm(encoded.double(), dim=2) <= 1.0 + 1e-6).all()
        for trial in range(2):
            power = (grid.energies(encoded[trial]) * setting.blocks.spent[trial]).sum(dim=1) / grid.symbols
            assert (power <= config.channel.power_w * (1 + 1e-6)).all()
    assert (setting.power_w <= config.channel.power_w * (1 + 1e-9)).all()


def test_power_over_the_round_beats_power_in_every_block(wide):
    """mean_b |s_ib|² ≤ P is less strict than |s_ib|² ≤ P for every b: the same power gets less noise."""
    alike = wide.replace({"channel.distance": "common", "system.num_antennas": 3})
    schedule = schedule_of(alike, "airfl-mimo")
    assert (schedule.blocks.design.load < 0.95).all()
    setting = schedule.setting(0)
    assert setting.power_w.amax(dim=1).tolist() == pytest.approx([wide.channel.power_w] * 2, rel=1e-6)  # all is used


def test_complex_symbols_halve_the_time_for_twice_the_noise(tiny):
    """At full power: half the symbols, each with half the energy to spend on two coordinates."""
    real, double = (schedule_of(tiny.replace({"channel.symbols": one}), "airfl-mimo") for one in ("real", "complex"))
    assert torch.allclose(double.noise_var, 2 * real.noise_var, rtol=1e-12)
    assert grid_of(tiny.replace({"channel.symbols": "complex"}), 651).symbols == 326
    # With a budget that binds the noise is the same, and so is what is learnt.
    ledgers = [
        airfl.run(tiny.replace({"channel.symbols": one, "scheme.names": ["airfl-dp"], "privacy.epsilon": 1.0}))
        for one in ("real", "complex")
    ]
    assert ledgers[0].schemes["airfl-dp"].ledgers[0].events[0].noise_var == pytest.approx(
        ledgers[1].schemes["airfl-dp"].ledgers[0].events[0].noise_var, rel=1e-9
    )


def test_an_odd_number_of_coordinates_in_complex_symbols(tiny):
    config = tiny.replace({"channel.symbols": "complex", "scheme.uplink": "signal", "scheme.names": ["airfl-mimo"]})
    schedule = arrange(config, SCHEMES["airfl-mimo"], open_radio(config, [0]), 7)
    sent = torch.randn(1, 9, 7)
    trial, slot = torch.zeros(9, dtype=torch.int64), torch.arange(9)
    block = UpdateBlock(trial, slot, sent[0], torch.zeros(9))
    heard = SignalUplink(0, (0,)).receive([block], 7, schedule.setting(0).silenced())
    assert torch.allclose(heard[0], sent[0].sum(dim=0), atol=1e-5)


@pytest.mark.parametrize("fading", ["rayleigh", "rician", "tdl", "cdl", "3gpp-umi"])
def test_draws_follow_from_their_keys(tiny, fading):
    config = tiny.replace({"channel.fading": fading, "channel.delay_spread_s": 200e-9, "channel.cell_radius_m": 100.0})
    link, alone = open_link(config, [0, 1]), open_link(config, [1])
    place = Place(1, 2, 3e6)
    first = link.drawn_in(3, place)
    link.drawn_in(3, Place(0, 0, -3e6))
    assert np.array_equal(link.drawn_in(3, place), first)
    assert np.array_equal(alone.drawn_in(3, place)[0], first[1])
    assert not np.allclose(link.drawn_in(3, Place(1, 3, 3e6)), first)
    power = np.mean([np.abs(link.drawn_in(t, place)[0]) ** 2 for t in range(200)], axis=(0, 2))
    assert power == pytest.approx(link.law.amplitude[0] ** 2, rel=0.45)


@pytest.mark.parametrize("fading", ["rayleigh", "tdl"])
def test_delay_lines_decorrelate_over_frequency(tiny, fading):
    """|E h(f)h*(f+Δ)| is the profile's own: Σ p e^{−j2πΔτ}; its second moment is the delay spread."""
    config = tiny.replace({"channel.fading": fading, "channel.delay_spread_s": 300e-9, "channel.profile": "C"})
    law = open_link(config, [0]).law
    powers, delays = law.taps
    mean = (powers * delays).sum()
    assert math.sqrt((powers * delays**2).sum() - mean**2) == pytest.approx(300e-9, rel=0.02)
    low, high = (np.stack([law.coefficients_in(0, t, Place(0, 0, f)) for t in range(300)]) for f in (-4e5, 4e5))
    seen = np.mean(low * high.conj())
    assert abs(seen - np.sum(powers * np.exp(2j * np.pi * 8e5 * delays))) < 0.03


def test_independent_blocks_are_independent(tiny):
    law = open_link(tiny.replace({"channel.coherence_hz": 5e6}), [0]).law
    one, other = (np.stack([law.coefficients_in(0, t, Place(band, 0, 0.0)) for t in range(300)]) for band in (0, 1))
    assert abs(np.mean(one * other.conj())) < 0.02
    assert np.array_equal(one[7], law.coefficients(0, 7))  # the first block is a flat round's


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channel.coherence_s": 1.0}, "is longer than a round"),
        ({"channel.coherence_hz": 1e3}, "cannot have 20,000 blocks"),
        ({"channel.coherence_hz": 5e6, "scheme.selection": "aligned"}, "together with one combiner"),
        (
            {
                "channel.coherence_hz": 5e6,
                "channel.csi_error": 0.1,
                "scheme.names": ["airfl-shielded"],
                "scheme.cover_price_db": 100.0,
            },
            "together with `channel.csi_error`",
        ),
        (
            {
                "channel.symbols": "complex",
                "scheme.names": ["airfl-shielded"],
                "scheme.cover_price_db": 100.0,
                "system.sampling": "poisson",
            },
            'symbols = "complex" and system.sampling',
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(tiny, changes, message):
    def opened():
        config = tiny.replace({"scheme.combiner": "auto", "scheme.names": ["airfl-dp"], **changes})
        arrange(config, SCHEMES[config.scheme.names[0]], open_radio(config, [0]), DIM)

    with pytest.raises(InputError, match=message) as refused:
        opened()
    assert "\n" not in str(refused.value)


def test_measured_channels_have_one_block(tiny, tmp_path):
    np.savez(tmp_path / "t.npz", channels=np.ones((4, 12, 16)) * (1.0 + 1j * np.arange(16)))
    traced = {"channel.fading": "trace", "channel.trace_file": str(tmp_path / "t.npz"), "channel.coherence_hz": 5e6}
    with pytest.raises(InputError, match="holds one channel for a whole round"):
        schedule_of(tiny.replace({**traced, "scheme.combiner": "auto"}), trials=(0,))
    with pytest.raises(InputError, match="say the same thing"):
        tiny.replace({"channel.coherence_s": 1e-3, "channel.speed_m_s": 3.0})
    with pytest.raises(InputError, match="greater than"):
        tiny.replace({"channel.coherence_hz": 0.0})


def test_reports_say_how_a_round_is_cut(wide):
    result = airfl.run(
        wide.replace({"scheme.names": ["airfl-dp"], "channel.symbols": "complex"}).replace(
            {"channel.coherence_s": 15e-6}
        )
    )
    (said,) = [sentence for sentence in headline(result) if "on air" in sentence]
    assert "325 symbols of two coordinates each, 16.2 µs on air, in 8 blocks (4 of frequency, 2 of time)" in said
    flat = airfl.run(
        wide.replace({"scheme.names": ["airfl-dp"], "channel.coherence_s": None, "channel.coherence_hz": None})
    )
    assert not any("on air" in sentence for sentence in headline(flat))


def test_an_audit_of_blocks_with_noise_of_their_own(call):
    """Noise differs between blocks, and is looked at coordinate by coordinate; interference is none of it."""
    small = [
        *("--set", "learning.dataset=digits", "--set", "learning.model=softmax", "--set", "learning.local_steps=2"),
        *("--set", "system.rounds=2", "--set", "system.num_devices=6", "--set", "system.num_antennas=4"),
        *("--set", "system.trials=1", "--set", "system.participation=1.0", "--set", "scheme.combiner=auto"),
        *("--set", "privacy.epsilon=8", "--set", "channel.coherence_hz=1e6", "--set", "channel.power_w=1e-9"),
        *("--set", "channel.interference_dbm=-95", "--scheme", "airfl-mimo", "--repetitions", "300"),
    ]
    code, out, error = call("audit", "paper", *small, "--json")
    assert code == 0, error
    assert json.loads(out.strip().splitlines()[-1])["failed_checks"] == []


def test_an_audit_of_signals_listens_to_what_is_not_rotated(call):
    """The best test of a device lies in one block; spread over all of them the attack would be too weak."""
    small = [
        *("--set", "learning.dataset=digits", "--set", "learning.model=softmax", "--set", "learning.local_steps=2"),
        *("--set", "system.rounds=2", "--set", "system.num_devices=6", "--set", "system.num_antennas=4"),
        *("--set", "system.trials=1", "--set", "scheme.combiner=auto", "--set", "channel.coherence_hz=1e6"),
        *("--set", "channel.rotation=true"),
        *("--scheme", "airfl-mimo", "--repetitions", "100", "--observer", "base-station"),
    ]
    code, _, error = call("audit", "paper", *small)
    assert code == 2
    assert "audit `model` or `models`" in " ".join(error.split())
