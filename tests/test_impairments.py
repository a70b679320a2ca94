"""What goes wrong on air: no contribution gets longer than booked, both uplinks agree, and audits refute nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

import airfl
from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.hardware import converted, limited
from airfl.air.setting import IDEAL
from airfl.channel import open_link
from airfl.channel.blocks import Place
from airfl.channel.impairments import EFFECTS, effects_of, stretch_of, turns
from airfl.config.channel import FIRST_ZERO, _bessel_j0
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.report.radio import impairment_sentences
from airfl.rounds import arrange, book
from airfl.rounds.credit import earns_sampling_credit, facts_of
from airfl.schemes import SCHEMES, Scheme
from airfl.transceiver import open_radio
from tests.test_audit_runs import config_of

DIM = 61  # odd: the last complex symbol is half empty
SIGNAL = {"scheme.uplink": "signal"}
BANDS = {"channel.coherence_hz": 4e6}
COMPLEX = {"channel.symbols": "complex"}
PHASE = {"channel.phase_error_rad": 0.7}
LATE = {"channel.timing_offset_s": 2e-8, "channel.cyclic_prefix_s": 1.2e-7, **BANDS}
AGED = {"channel.csi_age_s": 2e-3, "channel.speed_m_s": 5.0}
#: Three spans of time because devices move; five bands that hear the same echoes.
MOVING = {"channel.bandwidth_hz": 1e3}
LINE = {"channel.delay_spread_s": 5e-8, "channel.timing_offset_s": 2e-8, "channel.cyclic_prefix_s": 1.2e-7}
#: Where privacy asks for more noise than the link has, power is held back, and no amplifier is ever at its limit.
CLIPPED = {"channel.clipping_db": 1.0, "privacy.epsilon": 1e6, "channel.power_w": 1e-7, **SIGNAL}
DIGITAL = {"channel.adc_bits": 7, **SIGNAL}
#: Every effect, by itself and with what it can be combined with.
EFFECTS_ON = {
    "phase": PHASE,
    "phase-complex": {**PHASE, **COMPLEX},
    "phase-blocks": {**PHASE, **BANDS},
    "phase-blocks-complex": {**PHASE, **BANDS, **COMPLEX},
    "timing": LATE,
    "timing-complex": {**LATE, **COMPLEX},
    "timing-phase-complex": {**LATE, **PHASE, **COMPLEX},
    "aged": AGED,
    "aged-phase": {**AGED, **PHASE, "channel.csi_error": 0.01},
    "aged-blocks-complex": {**AGED, **BANDS, **COMPLEX},
    "aged-moving-complex": {**AGED, **COMPLEX, **MOVING},
    "aged-line-timing-complex": {**AGED, **LINE, **PHASE, **COMPLEX},
    "clipping": CLIPPED,
    "clipping-complex": {**CLIPPED, **COMPLEX},
    "clipping-phase-complex": {**CLIPPED, **PHASE, **COMPLEX},
    "clipping-aged": {**CLIPPED, **AGED},
    "adc": DIGITAL,
    "adc-blocks-complex": {**DIGITAL, **BANDS, **COMPLEX},
    "adc-all": {**DIGITAL, **CLIPPED, **PHASE, **COMPLEX},
}
#: Where nothing acts on symbols or antennas.
EQUIVALENT = [name for name, keys in EFFECTS_ON.items() if "scheme.uplink" not in keys]


@pytest.fixture
def small(tiny):
    """Six devices, eight antennas, two rounds."""
    return tiny.replace(
        {"system.num_devices": 6, "system.participation": 1.0, "system.num_antennas": 8, "system.rounds": 2}
    )


def schedule_of(config, trials=(0,), dim=DIM):
    return arrange(config, SCHEMES["airfl-dp"], open_radio(config, trials), dim)


def sent(updates):
    """Updates [trials, K, d] as one block."""
    trials, active = updates.shape[:2]
    trial = torch.arange(trials).repeat_interleave(active)
    return UpdateBlock(trial, torch.arange(active).repeat(trials), updates.flatten(0, 1), torch.zeros(len(trial)))


def received(setting, updates, kind=SignalUplink):
    uplink = kind(0, tuple(range(len(updates))))
    if kind is SignalUplink:  # no more noise than is wanted
        uplink = replace(uplink, noise_block=64)
    return uplink.receive([sent(updates.float())], updates.shape[-1], setting).double()


def random_updates(shape, seed=0, length=1.0):
    draw = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(length * draw / np.linalg.norm(draw, axis=-1, keepdims=True))


# ---------------------------------------------------------------- off, and hardly on


def test_off_is_off(small):
    assert effects_of(small.channel) == ()
    assert small.channel.estimation_error == 0.0
    assert turns(small, 0, 0) is None
    for more in ({}, BANDS):
        setting = schedule_of(small.replace(more)).setting(0)
        assert setting.hardware == IDEAL
        assert setting.blocks is None or setting.blocks.gains is None
    assert small.replace({"channel.csi_error": 0.07}).channel.estimation_error == 0.07


def test_an_amplifier_that_is_never_at_its_limit_changes_no_bit(small):
    updates = random_updates((1, 6, DIM))
    plain = received(schedule_of(small.replace(SIGNAL)).setting(0), updates)
    wide = received(schedule_of(small.replace({**SIGNAL, "channel.clipping_db": 100.0})).setting(0), updates)
    assert torch.equal(plain, wide)


def test_twenty_four_bits_are_as_good_as_none(small):
    updates = random_updates((1, 6, DIM))
    plain, fine = (schedule_of(small.replace({**SIGNAL, "channel.adc_bits": bits})).setting(0) for bits in (None, 24))
    assert torch.equal(plain.unknown_var, fine.unknown_var)
    assert float(fine.noise_var / plain.noise_var) == pytest.approx(1.0, abs=1e-9)
    std = float(plain.noise_var.sqrt())
    assert float((received(plain, updates) - received(fine, updates)).abs().max()) < 1e-4 * std


def test_every_effect_states_a_factor_and_it_is_in_the_bound(small, monkeypatch):
    assert set(EFFECTS) == {"phase_error_rad", "timing_offset_s", "csi_age_s", "clipping_db", "adc_bits"}
    for name, keys in EFFECTS_ON.items():
        assert stretch_of(small.replace(keys).channel) == 1.0, name
    wider = replace(EFFECTS["phase_error_rad"], factor=1.5)
    monkeypatch.setitem(EFFECTS, "phase_error_rad", wider)
    for more in ({}, BANDS):
        plain, turned = (schedule_of(small.replace({**keys, **more})) for keys in ({}, PHASE))
        assert torch.equal(turned.gain_bound, 1.5 * plain.gain_bound)
        assert [entry.event.gain_bound for entry in book(turned, turned.setting(0), lambda _: None)] == [1.5]
        ratio = turned.setting(0).seen["base-station"] / plain.setting(0).seen["base-station"]
        assert torch.allclose(ratio, 1.5 * plain.norm[0, 0] / turned.norm[0, 0])
        assert turned.promise.check(ledger_of(turned)) is None  # planned for it: the budget is kept


def ledger_of(schedule):
    ledger = airfl.privacy.Ledger()
    for t in range(schedule.active.shape[1]):
        ledger = book(schedule, schedule.setting(t), lambda _: None)[0].on(ledger)
    return ledger


# ---------------------------------------------------------------- no contribution is longer than booked

COPIES = 48


def starts(dim, copies, generator):
    """Updates that are concentrated, alternate, are even, or point anywhere, [copies, d], of length 1."""
    made = [np.eye(dim)[0], np.eye(dim)[-1], np.ones(dim), (-1.0) ** np.arange(dim), np.eye(dim)[2] - np.eye(dim)[3]]
    made += [np.eye(dim)[int(place)] for place in generator.integers(dim, size=8)]
    made += [np.repeat(np.eye(2)[0], (dim + 1) // 2)[:dim], np.arange(dim) % 5 == 0]
    made += list(generator.standard_normal((copies - len(made), dim)) ** 3)
    table = np.array(made, dtype=float)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def units(setting):
    """Of each coordinate, in which what is booked of a round bounds it: gain bounds of its block over the round's."""
    return 1.0 if setting.blocks is None else setting.blocks.ratios[0, setting.blocks.grid.block_of(DIM)]


def longest_move(setting, relation, clip_norm, seed):
    """Random restarts with ascent over what one device sends, for both of two worlds; the others' updates stay."""
    generator = np.random.default_rng(seed)
    loudest = setting.tx_scaling[0].abs().argsort(descending=True)
    copies, dim, device = setting.repeated(COPIES), DIM, int(loudest[seed % len(loudest)])
    others = random_updates((*setting.gains.shape[1:], dim), seed, clip_norm).expand(COPIES, -1, -1)

    def heard(rows):
        updates = others.clone()
        updates[:, device] = torch.from_numpy(rows)
        return received(copies, updates) / units(setting)

    def within(rows):
        return rows * np.minimum(1.0, clip_norm * (1.0 - 4e-5) / np.linalg.norm(rows, axis=1, keepdims=True))

    first = within(1e3 * starts(dim, COPIES, generator))
    # Half of the second worlds mirror the first: that is the farthest that two updates of a linear map can be.
    second = (
        np.zeros_like(first)
        if relation == "zero-out"
        else np.where(np.arange(COPIES)[:, None] % 2, -first, first[generator.permutation(COPIES)])
    )
    best = (heard(first) - heard(second)).norm(dim=1).numpy()
    for step in range(24):
        size = 0.5 * 0.85**step
        tried = within(first + size * clip_norm * generator.standard_normal(first.shape) / math.sqrt(dim))
        other = second
        if relation == "replace":
            other = within(second + size * clip_norm * generator.standard_normal(first.shape) / math.sqrt(dim))
        moved = (heard(tried) - heard(other)).norm(dim=1).numpy()
        better = moved > best
        best = np.where(better, moved, best)
        first, second = (np.where(better[:, None], new, old) for new, old in ((tried, first), (other, second)))
    return float(best.max())


@pytest.mark.parametrize("relation", ["zero-out", "replace"])
@pytest.mark.parametrize("name", EFFECTS_ON)
def test_no_contribution_is_longer_than_booked(small, name, relation):
    """Through the real uplink, all antennas and symbols; the bound is also met, where it is one of a linear map."""
    schedule = schedule_of(small.replace({**EFFECTS_ON[name], **SIGNAL}))
    setting = schedule.setting(1)
    event = book(schedule, setting, lambda _: None)[0].event
    booked = event.sensitivity(relation)
    moved = max(longest_move(setting.silenced(), relation, event.clip_norm, seed) for seed in (0, 1))
    assert moved <= booked * (1.0 + 1e-9)
    if setting.hardware.limits:  # it is at work
        assert float(setting.tx_scaling.abs().max()) * event.clip_norm > 3.0 * setting.hardware.amplitude
    if name in ("phase-complex", "phase-blocks-complex", "timing-complex"):  # rotations: nothing is lost
        assert moved > 0.98 * booked


def test_the_search_finds_what_is_too_long(small):
    """A bound that is two percent too small does not survive it."""
    schedule = schedule_of(small.replace({**PHASE, **COMPLEX, **SIGNAL}))
    loud = replace(schedule.setting(1), tx_scaling=1.03 * schedule.setting(1).tx_scaling)
    assert longest_move(loud.silenced(), "replace", 1.0, 0) > 2.0


@pytest.mark.parametrize("whole", [False, True])
def test_limits_bring_no_two_symbols_further_apart(whole):
    generator = np.random.default_rng(5)
    table = 10.0 ** generator.uniform(-3, 3, (2, 4, 20_000)) * np.exp(2j * np.pi * generator.random((2, 4, 20_000)))
    one, other = torch.from_numpy(table if whole else table.real)
    scaling = torch.from_numpy(10.0 ** generator.uniform(-2, 2, 4) * np.exp(1j * generator.random(4)))
    a, b = (limited(x.to(torch.complex128), scaling, 0.7) for x in (one, other))
    assert bool(((a - b).abs() <= (one - other).abs() * (1 + 1e-12)).all())
    assert bool((a.abs() <= one.abs()).all())
    assert float((a * scaling[:, None]).abs().max()) <= 0.7 * (1 + 1e-12)
    inside = (one * scaling[:, None]).abs() <= 0.7
    assert torch.equal(a[inside], one[inside].to(torch.complex128))


def test_clipping_really_clips(small):
    """An update of one coordinate takes √d times the mean amplitude: what is left of it is the limit."""
    schedule = schedule_of(small.replace(CLIPPED))
    setting = schedule.setting(0)
    updates = torch.zeros(1, 6, DIM, dtype=torch.float64)
    updates[0, 0, 7] = 1.0
    heard = received(setting.silenced(), updates)[0]
    limit = math.sqrt(schedule.link.power_limit) * 10 ** (1.0 / 20) / float(setting.tx_scaling[0, 0].abs())
    assert limit < 1.0
    assert float(heard[7]) == pytest.approx(limit, rel=1e-6)
    assert float(heard.norm()) == pytest.approx(limit, rel=1e-6)


# ---------------------------------------------------------------- converters


def louder_than_ever(setting, generator):
    """All devices put all they have into one symbol, in phase at some antenna, [K, symbols]."""
    paths = setting.channels[0] * setting.tx_scaling[0].unsqueeze(-1)
    symbols = torch.zeros(len(paths), 16, dtype=torch.complex128)
    for place in range(16):
        antenna = int(generator.integers(paths.shape[1]))
        turn = -paths[:, antenna].angle() + (place % 4) * math.pi / 2
        symbols[:, place] = setting.clip_norm * torch.exp(1j * turn)
    return symbols


@pytest.mark.parametrize("bits", [1, 2, 6, 12, 32])
@pytest.mark.parametrize("name", ["adc", "adc-all"])
def test_no_signal_brings_a_converter_to_its_limit(small, name, bits):
    setting = schedule_of(small.replace({**EFFECTS_ON[name], "channel.adc_bits": bits})).setting(0)
    uplink, symbols = SignalUplink(0, (0,)), louder_than_ever(setting, np.random.default_rng(1))
    (digital,) = uplink.antennas(0, symbols.clone(), setting)
    (heard,) = uplink.antennas(0, symbols.clone(), replace(setting, hardware=setting.hardware.ideal_converters()))
    error = torch.view_as_real(digital - heard) / setting.hardware.step[0].view(-1, 1, 1)
    assert float(error.abs().max()) <= 0.5 * (1 + 1e-6)
    if name == "adc":  # the bound on what is heard is met, less the room for noise
        most = 2.0 ** (bits - 1) * setting.hardware.step[0] * (1 - 2.0**-bits)
        room = most - 16.0 * math.sqrt(setting.noise_power / 2)
        quiet = (setting.channels[0] * setting.tx_scaling[0].unsqueeze(-1)).mT @ symbols
        assert float((torch.view_as_real(quiet).abs().amax(dim=(1, 2)) / room).max()) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("bits", [1, 3])
def test_the_error_of_converters_does_not_depend_on_what_they_hear(bits):
    """Uniform, whatever the signal; the same law for two neighbours, and at another antenna; KS tests at 1e-4."""
    generator = np.random.default_rng(3)
    step, errors = torch.tensor([1.0, 0.25], dtype=torch.float64), []
    most = 2.0 ** (bits - 1) * (1 - 2.0**-bits)
    for level in (0.0, 0.31, most, -most):
        heard = torch.full((2, 40_000), complex(level, -0.5 * level)) * step.unsqueeze(1).to(torch.complex128)
        dither = torch.from_numpy(generator.random((2, 40_000, 2)) - 0.5)
        error = torch.view_as_real(converted(heard, bits, step, dither) - heard) / step.view(-1, 1, 1)
        assert float(error.abs().max()) <= 0.5 + 1e-9
        for part in error.permute(0, 2, 1).reshape(4, -1).numpy():
            assert stats.kstest(part, "uniform", (-0.5, 1.0)).pvalue > 1e-4
            errors.append(part)
        assert abs(np.corrcoef(errors[-1], errors[-3])[0, 1]) < 5 / math.sqrt(40_000)
    assert stats.ks_2samp(errors[0], errors[-1]).pvalue > 1e-4


def test_noise_of_converters_is_what_the_setting_says_and_nobody_books_it(small):
    for keys in (DIGITAL, {**DIGITAL, **BANDS, **COMPLEX}):
        plain, digital = (
            schedule_of(small.replace({**keys, "channel.adc_bits": bits}), dim=20_000).setting(0) for bits in (None, 4)
        )
        assert torch.equal(plain.unknown_var, digital.unknown_var)
        noise = received(digital, torch.zeros(1, 6, 20_000))[0]
        assert float(digital.noise_var / plain.noise_var) > 1.5
        assert float(noise.var() / digital.noise_var[0]) == pytest.approx(1.0, abs=0.05)
        if digital.blocks is not None:
            where = digital.blocks.grid.block_of(20_000)
            for number in range(digital.blocks.grid.count):
                booked = float(digital.blocks.noise_var[0, number])
                assert float(noise[where == number].var() / booked) == pytest.approx(1.0, abs=0.1)


def test_an_ordinary_converter_tells_more_than_the_sum_does():
    """Why dither and full scale are as they are: rounding at antennas is no post-processing of their sum.

    One device with paths (3, −2) of which w = (1, 1) leaves 1. A converter at its limit at the first antenna lets the
    second one's −2 through: the sum moves twice as far as is booked, with noise that is no larger.
    """
    paths, noise = torch.tensor([3.0, -2.0], dtype=torch.complex128), 0.05
    generator = np.random.default_rng(0)
    sums = []
    for x in (0.0, 1.0):
        draw = torch.from_numpy(noise * generator.standard_normal((2, 50_000)))
        heard = (paths * x).unsqueeze(1) + torch.tensor([[8.0], [0.0]]) + draw  # others are loud at the first
        step = torch.full((2,), 8.0 / 2**11, dtype=torch.float64)  # 12 bits for ±8
        sums.append(converted(heard.to(torch.complex128), 12, step, torch.zeros(2, 50_000, 2)).real.sum(dim=0))
    assert abs(float(sums[1].mean() - sums[0].mean())) > 1.9
    assert float(sums[0].std()) < 1.01 * noise * math.sqrt(2)


# ---------------------------------------------------------------- both uplinks


@pytest.mark.parametrize("name", EQUIVALENT)
def test_both_uplinks_hear_the_same_sum(small, name):
    config = small.replace(EFFECTS_ON[name])
    setting = schedule_of(config, (0, 3)).setting(1)
    updates = random_updates((2, 6, DIM), 4)
    silent = setting.silenced()
    exact, fast = (received(silent, updates, kind) for kind in (SignalUplink, EquivalentUplink))
    assert float((exact - fast).norm() / exact.norm()) < 1e-5
    plain = updates.sum(dim=1)
    assert float((exact - plain).norm() / plain.norm()) > 1e-2  # something happened


def test_both_ways_to_add_up_gains_of_blocks_are_one(small, monkeypatch):
    from airfl.air import equivalent

    setting = schedule_of(small.replace(EFFECTS_ON["phase-blocks-complex"])).setting(1).silenced()
    updates = random_updates((1, 6, DIM), 4)
    scattered = received(setting, updates, EquivalentUplink)
    monkeypatch.setattr(equivalent, "_by_scattering", equivalent._by_product)
    monkeypatch.setattr(equivalent, "PORTION", 2 * DIM)
    assert torch.allclose(received(setting, updates, EquivalentUplink), scattered, atol=1e-6)


@pytest.mark.parametrize("name", ["phase-complex", "timing-phase-complex"])
def test_both_uplinks_have_the_same_noise(small, name):
    dim = 20_000
    setting = schedule_of(small.replace(EFFECTS_ON[name]), dim=dim).setting(1)
    silence, whitened = torch.zeros(1, 6, dim), []
    for kind in (SignalUplink, EquivalentUplink):
        noise = received(setting, silence, kind)[0]
        assert float(noise.var() / setting.noise_var[0]) == pytest.approx(1.0, abs=0.05)
        whitened.append((noise / setting.noise_var[0].sqrt()).numpy())
    assert stats.ks_2samp(*whitened).pvalue > 1e-4


# ---------------------------------------------------------------- the models themselves


def test_phases_have_their_law_and_their_keys(small):
    config = small.replace({"channel.phase_error_rad": 0.4, "system.num_devices": 4000, "scheme.combiner": "auto"})
    angles = np.angle(turns(config, 0, 0))
    assert stats.kstest(angles / 0.4, "norm").pvalue > 1e-4
    again = {"round": turns(config, 0, 1), "trial": turns(config, 1, 0), "block": turns(config, 0, 0, Place(1, 0, 5e6))}
    for what, other in again.items():
        assert abs(np.corrcoef(angles, np.angle(other))[0, 1]) < 0.08, what
    assert np.array_equal(turns(config, 0, 0), turns(config, 0, 0, Place(0, 0, 0.0)))


def test_timing_is_a_ramp_over_the_bands_that_stays_in_the_prefix(small):
    config = small.replace({**LATE, "system.num_devices": 4000, "scheme.combiner": "auto"})
    late = {f: -np.angle(turns(config, 0, 0, Place(1, 2, f))) / (2 * np.pi * f) for f in (1e6, -2e6, 4e6)}
    assert np.allclose(late[1e6], late[-2e6], atol=1e-18)
    assert np.allclose(late[1e6], late[4e6], atol=1e-18)
    assert late[1e6].std() == pytest.approx(2e-8, rel=0.05)
    assert np.abs(late[1e6]).max() <= 6e-8 * (1 + 1e-9)
    assert np.allclose(turns(config, 0, 0, Place(0, 0, 0.0)), 1.0)


def test_aged_channels_correlate_as_bessel_says(small):
    for x in np.linspace(0.0, 2.4, 25):
        assert _bessel_j0(x) == pytest.approx(float(mpmath.besselj(0, x)), abs=1e-14)
    assert float(mpmath.besselj(0, 2 * math.pi * FIRST_ZERO)) == pytest.approx(0.0, abs=1e-14)
    config = small.replace({**AGED, "system.num_devices": 500, "scheme.combiner": "auto", "channel.csi_error": 0.1})
    link = open_link(config, (0,))
    true, known = link.channels([0])[0, 0], link.estimates([0])[0, 0]
    scale = link.law.amplitude[0][:, None]
    rho = float(mpmath.besselj(0, 2 * math.pi * 2e-3 * 5.0 * 2.4e9 / 299_792_458.0))
    assert config.channel.estimation_error == pytest.approx(1 - 0.9 * rho**2, rel=1e-12)
    found = np.mean(np.conj(known / scale) * (true / scale)).real / math.sqrt(np.mean(np.abs(known / scale) ** 2))
    assert found == pytest.approx(math.sqrt(0.9) * rho, abs=0.05)


def test_gains_of_aged_channels_stay_below_their_bound(small):
    schedule = schedule_of(small.replace({**AGED, **PHASE, "system.rounds": 30}), (0, 1, 2))
    for t in range(30):
        setting = schedule.setting(t)
        assert bool((setting.gains.abs().amax(dim=1) <= setting.gain_bound).all())
    assert float(schedule.gain_bound.min()) > 1.0


# ---------------------------------------------------------------- the promise


@pytest.mark.parametrize("name", ["phase", "phase-blocks-complex", "timing", "clipping", "adc", "adc-blocks-complex"])
def test_no_epsilon_moves(small, name):
    keys = EFFECTS_ON[name]
    off = dict.fromkeys(("channel." + key for key in EFFECTS), None)
    plain = {key: value for key, value in keys.items() if key not in off and key != "channel.cyclic_prefix_s"}
    quiet, on = (airfl.run(small.replace(one)).schemes["airfl-dp"] for one in (plain, keys))
    for one, other in zip(quiet.ledgers, on.ledgers, strict=True):
        for a, b in zip(one.events, other.events, strict=True):
            assert (a.noise_var, a.gain_bound, a.clip_norm) == (b.noise_var, b.gain_bound, b.clip_norm)
            assert b.base_station == pytest.approx(a.base_station, rel=1e-12)
    assert quiet.records[-1].loss != on.records[-1].loss


def test_credit_for_sampling_only_where_nothing_depends_on_who_is_there(tiny):
    for keys, due in (({}, True), (PHASE, True), (CLIPPED, False), (DIGITAL, False), (AGED, False)):
        assert earns_sampling_credit(facts_of(tiny.replace(keys), SCHEMES["airfl-dp"])) == due


@pytest.mark.parametrize("name", EFFECTS_ON)
def test_an_audit_refutes_nothing(tiny, name):
    keys = EFFECTS_ON[name]
    config = config_of(
        tiny, "all", "airfl-dp", "replace", **{"scheme.combiner_columns": "active", **keys, "privacy.epsilon": 2.0}
    )
    audit = analysis.audit_run(config, "airfl-dp", 40 if "scheme.uplink" in keys else 200)
    assert not audit.findings
    assert not audit.failed
    assert len(audit.checks) > 20


def test_an_audit_of_the_base_station_refutes_nothing(tiny):
    for keys in (PHASE, {**CLIPPED, **DIGITAL, **PHASE}):
        config = config_of(
            tiny, "all", "airfl-dp", "zero-out", **{"scheme.combiner_columns": "active", **keys, "privacy.epsilon": 2.0}
        )
        audit = analysis.audit_run(config, "airfl-dp", 200, observer="base-station")
        assert not audit.summary["refuted_proofs"]
        assert audit.summary["base_station"]["epsilon_lower_gaussian"] > 0.0


# ---------------------------------------------------------------- what is refused, and what is said

BAD = [
    (["channel.adc_bits=0", 'scheme.uplink="signal"'], "adc_bits"),
    (["channel.adc_bits=33", 'scheme.uplink="signal"'], "adc_bits"),
    (["channel.adc_bits=8"], "antenna by antenna"),
    (["channel.clipping_db=3"], "symbol by symbol"),
    (["channel.clipping_db=-3", 'scheme.uplink="signal"'], "clipping_db"),
    (["channel.phase_error_rad=-0.1"], "phase_error_rad"),
    (["channel.timing_offset_s=-1e-9"], "timing_offset_s"),
    (["channel.timing_offset_s=1e-8"], "six times"),
    (["channel.timing_offset_s=1e-8", "channel.cyclic_prefix_s=5e-8", "channel.coherence_hz=4e6"], "six times"),
    (["channel.timing_offset_s=1e-8", "channel.cyclic_prefix_s=1e-7"], "this round has one"),
    (["channel.timing_offset_s=2e-7", "channel.cyclic_prefix_s=2e-6", "channel.coherence_hz=4e6"], "wide at most"),
    (["channel.cyclic_prefix_s=1e-7"], "goes with `timing_offset_s`"),
    (["channel.csi_age_s=-1"], "csi_age_s"),
    (["channel.csi_age_s=1e-3"], "goes with `speed_m_s`"),
    (["channel.csi_age_s=0.01", "channel.speed_m_s=5"], "first zero of J_0"),
    (["channel.csi_age_s=1e-3", "channel.speed_m_s=5", 'channel.fading="rician"'], "uncorrelated Rayleigh"),
    (["channel.csi_age_s=1e-3", "channel.speed_m_s=5", "channel.coherence_hz=4e6", 'scheme.names=["airfl-shielded"]',
      "scheme.cover_price_db=100"], "noise or masks of their own"),
    (["channel.clipping_db=3", 'scheme.uplink="signal"', "channel.coherence_hz=4e6"], "single carrier"),
    (["channel.phase_error_rad=0.1", 'scheme.names=["airfl-an"]'], "noise or masks"),
    (["channel.clipping_db=3", 'scheme.uplink="signal"', 'scheme.names=["airfl-shielded"]'], "noise or masks"),
    (["channel.phase_error_rad=0.1", "eavesdropper.distance_m=10"], "[eavesdropper]"),
    (
        ["channel.phase_error_rad=0.1", 'privacy.accountant="convergent"', "learning.domain_diameter=1",
         "privacy.smoothness=1"],
        "nothing distorts",
    ),
    (["channel.coherence_hz=1"], "each needs a symbol"),
    (["channel.coherence_s=1"], "is longer than a round"),
    *(([f"channel.{key}=1e-320"], f"`channel.{key}`") for key in ("coherence_hz", "coherence_s", "delay_spread_s")),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "words"), BAD)
def test_bad_input_is_one_sentence(call, tmp_path, small, keys, words):
    (tmp_path / "small.toml").write_text(small.replace({"scheme.names": ["airfl-dp"]}).to_toml())
    code, _, err = call("run", "small.toml", *(part for key in keys for part in ("--set", key)))
    assert code == 2, err
    assert words in err
    assert err.count("airfl: ") == 1
    assert "\n" not in err.strip()


def test_just_before_the_zero_it_runs(small):
    age = 0.99 * FIRST_ZERO * 299_792_458.0 / (5.0 * 2.4e9)
    schedule = schedule_of(small.replace({**AGED, "channel.csi_age_s": age}))
    assert math.isfinite(float(schedule.gain_bound.max()))


def test_schemes_of_others_with_a_cover_or_without_a_clip_are_refused(small):
    for name, keys, words in (("airfl-an", PHASE, "noise or masks"), ("fedavg", DIGITAL, "does not clip")):
        config = small.replace(keys)
        scheme = Scheme(
            "mine", "Mine", "", SCHEMES[name].encoder, SCHEMES["airfl-dp"].policy, SCHEMES["airfl-dp"].decoder
        )
        with pytest.raises(InputError, match=words):
            arrange(config, scheme, open_radio(config, (0,)), DIM)


def test_it_is_said(small):
    assert impairment_sentences(small.channel) == []
    said = " ".join(impairment_sentences(small.replace({**PHASE, **AGED, **CLIPPED, **DIGITAL}).channel))
    for words in ("0.7 rad", "0.002 s before, at 5 m/s", "1 dB above the mean power limit", "7 bits at every antenna"):
        assert words in said
    assert "cyclic prefix" in " ".join(impairment_sentences(small.replace(LATE).channel))
