"""Plans of rounds of several blocks, of complex symbols, and of what goes wrong on air."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from experiments.block_law import CUTS, measure
from experiments.plan_agreement import config_of

from airfl.channel.blocks import grid_of as grid_of_run
from airfl.channel.impairments import turns
from airfl.linkplan import answer, plan, solve
from airfl.linkplan import blocks as law_of_blocks
from airfl.linkplan.answer import squared_mu
from airfl.linkplan.blocks import (
    ONE,
    Several,
    grid_of,
    least_tight,
    loads,
    of_blocks,
    quietest,
    several,
    spreads,
    tightness,
)
from airfl.linkplan.impaired import turned
from airfl.linkplan.law import combining
from airfl.linkplan.loudest import loudest
from airfl.linkplan.quantities import Quantities
from airfl.linkplan.show import sentences
from airfl.privacy import GaussianAccountant, Ledger
from airfl.report.radio import blocks_sentence
from airfl.rounds import arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

LINK = Quantities(
    devices=64, antennas=4, layout="ring", power_w=1e-9, distance_m=100.0, bandwidth_hz=20e6, parameters=2001,
    rounds=6, clip_norm=1.0, epsilon=1.0,
)  # fmt: skip
WIDE = ("coherence_hz", "coherence_s", "speed_m_s", "delay_spread_s", "symbols", "phase_error_rad")


def run_of(q, trials=3):
    """The same cell as a run has it."""
    said = {f"channel.{name}": value for name in WIDE if (value := getattr(q, name)) is not None}
    return config_of(q, 1, trials).replace(said)


def decibels(ratio):
    return 10.0 * math.log10(ratio)


@pytest.mark.parametrize(
    "said",
    [
        {"coherence_hz": 3e6}, {"delay_spread_s": 100e-9, "speed_m_s": 9e3}, {"symbols": "complex"},
        {"coherence_s": 7e-6, "symbols": "complex"}, {"coherence_hz": 20e6, "coherence_s": 25.1e-6},
    ],
)  # fmt: skip
def test_a_plan_cuts_a_round_as_a_run_does(said):
    q = replace(LINK, **said)
    assert grid_of(q) == grid_of_run(run_of(q), q.parameters)


def booked(q, trials=3):
    """Mean μ² of the ledgers of runs at full power, and the schedule."""
    config = run_of(q, trials)
    schedule = arrange(config, SCHEMES["airfl-mimo"], open_radio(config, range(trials)), q.parameters)
    ledgers = [Ledger() for _ in range(trials)]
    for t in range(q.rounds):
        ledgers = [
            entry.on(one)
            for entry, one in zip(book(schedule, schedule.setting(t), lambda row: 1), ledgers, strict=True)
        ]
    return np.mean([GaussianAccountant(one, config.neighbours, "models").mu ** 2 for one in ledgers]), schedule


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"symbols": "complex"}, 0.3),
        ({"coherence_hz": 2e6}, 0.4),
        ({"coherence_hz": 2e6, "symbols": "complex"}, 0.4),
        ({"delay_spread_s": 100e-9, "layout": "disk", "devices": 200, "antennas": 16}, 0.4),
        ({"coherence_hz": 2e6, "layout": "disk", "devices": 45, "antennas": 100}, 0.4),
    ],
)
def test_ledgers_of_runs_have_what_is_planned(changes, error):
    """What is booked is the quietest block, with power shared over the round."""
    q = replace(LINK, **changes)
    found, schedule = booked(q)
    assert decibels(squared_mu(q) / found) == pytest.approx(0.0, abs=error)
    if schedule.blocks is not None:
        load = float(schedule.blocks.design.load.mean())
        assert decibels(several(q).load / load) == pytest.approx(0.0, abs=0.3)


def test_ten_blocks_of_thousands_of_devices():
    """6,000 at the edge, by `arrange`: 5.04 dB less power, 5.27 dB in all; 2,000 on a disk: 3.18, 3.41."""
    satellite = of_blocks("ring", 6000, 16, 10)
    assert (decibels(1.0 / satellite.load), decibels(satellite.gain)) == pytest.approx((5.04, 5.27), abs=0.15)
    disk = of_blocks("disk", 2000, 16, 10)
    assert (decibels(1.0 / disk.load), decibels(disk.gain)) == pytest.approx((3.18, 3.41), abs=0.3)


def rows():
    text = (resources.files("airfl") / "linkplan" / "law_blocks.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_the_law_is_what_was_measured():
    """Over all cells: 0.5 dB off at most from two antennas on, 1.1 dB with one; 0.05 dB in the median."""
    misses = []
    for row in rows():
        cell, error = (row["layout"], int(row["devices"]), int(row["antennas"])), float(row["error_db"])
        for cut in CUTS:
            miss = abs(decibels(of_blocks(*cell, cut).gain) - float(row[f"gain_{cut}_db"]))
            assert miss < (1.1 if cell[2] == 1 else 0.5) + error, (cell, cut)
            misses.append(miss)
    assert np.median(misses) < 0.05


def test_the_spreads_are_the_combiners_that_is_shipped():
    """Measured again: a change of the combiner asks for a new table."""
    row = measure(("ring", 32, 4), 0.0)
    assert float(row["fading_spread_db"]) == pytest.approx(spreads()["ring", 32, 4], rel=0.15)
    assert float(row["gain_16_db"]) == pytest.approx(decibels(of_blocks("ring", 32, 4, 16).gain), abs=0.5)


@pytest.mark.parametrize("count", [2, 3, 10, 300])
def test_the_quietest_of_some_exponentials(count):
    """One antenna: 1/ρ is exponential, and the mean of the largest a harmonic number."""
    assert quietest(1.0, count) == pytest.approx(sum(1.0 / k for k in range(1, count + 1)), rel=0.01)
    assert quietest(30.0, 1) == 1.0
    drawn = np.random.default_rng(1).gamma(30.0, size=(200_000 // count, count)).max(axis=1).mean() / 30.0
    assert quietest(30.0, count) == pytest.approx(drawn, rel=0.01)


def test_power_over_the_round_is_that_of_many_draws():
    """The described law, drawn: tight with a chance, else 1/(1 + Exp(1)/ℓ); somebody is tight in a round."""
    law, generator = combining("ring", 200, 4), np.random.default_rng(2)
    powers = loads("ring", 200, 4, 3)
    usual = 1.0 / (1.0 + generator.exponential(size=(4000, 8, 200)) / law.inverse_norm2)
    share = -math.expm1(-max(tightness(law.inverse_norm2, law.mean_power, "ring"), least_tight(200, 4)))
    tight = generator.random(usual.shape) < share
    x = np.where(tight, 1.0, usual).mean(axis=1).max(axis=1)[tight.any(axis=(1, 2))]
    assert powers[3] == pytest.approx(1.0 / (1.0 / x).mean(), rel=0.03)
    assert powers[0] == 1.0
    assert (np.diff(powers) < 0).all()


def test_convolving_keeps_mass_and_mean():
    mass = law_of_blocks._loose(np.array([0.01, 0.3, 20.0]), np.array([0.0, 0.1, 0.5]))
    assert mass.sum(axis=1) == pytest.approx([1.0, 0.9, 0.5])
    assert (mass >= -1e-12).all()
    whole = mass / mass.sum(axis=1, keepdims=True)
    t = np.linspace(0, 1, whole.shape[1])
    assert law_of_blocks._doubled(whole) @ t == pytest.approx(whole @ t, rel=1e-9)


def test_more_blocks_never_hide_better():
    """Privacy: a plan's free ε grows with the number of blocks, and is that of one where there is one."""
    counts = (1, 2, 3, 7, 8, 9, 100, 1000, 10**6)
    for layout, devices, antennas in (("ring", 1, 4), ("disk", 2, 1), ("disk", 6000, 16), ("ring", 10**6, 256)):
        gains = [of_blocks(layout, devices, antennas, count).gain for count in counts]
        assert gains[0] == pytest.approx(1.0)
        assert (np.diff(gains) >= -1e-9).all(), (layout, devices, antennas)
    assert several(LINK) == ONE


def test_noise_of_the_sum_where_quiet_blocks_are_raised():
    """Harmonic means over blocks of 1/x, raised to the level of the quietest over the back-off."""
    blocks = Several(quietest(8.0, 20), 1.0, 8.0)
    x = np.random.default_rng(3).gamma(8.0, size=400_000)
    level = 1.0 / (8.0 * blocks.quietest)
    for backoff in (0.99, 0.7, 0.3, 1e-4):
        noise = 1.0 / np.minimum(x, 1.0 / (level / backoff)).mean()
        assert blocks.heard(backoff) == pytest.approx(noise / (level / backoff), rel=0.005)
    assert blocks.heard(1.0) == blocks.quietest
    assert blocks.heard(1e-4) == pytest.approx(1.0)
    assert ONE.heard(0.5) == 1.0


def test_the_loudest_device_counts_as_in_its_best_block():
    """Against draws of the law that `loudest` has for a round."""
    devices, antennas, level, rounds, blocks = 100, 8, 0.2, 6, 5
    generator, logs = np.random.default_rng(4), []
    for _ in range(400):
        x = level + generator.exponential(size=(rounds, blocks, devices))
        heard = 1.0 + generator.gamma(antennas - 1, size=x.shape) / x
        logs.append(math.log(heard.max(axis=1).sum(axis=0).max() / rounds))
    found = loudest("ring", devices, 1.0, antennas, level, rounds, blocks=blocks)
    assert found == pytest.approx(math.exp(np.mean(logs)), rel=0.1)
    assert found > loudest("ring", devices, 1.0, antennas, level, rounds)


# --- complex symbols


def test_complex_symbols_halve_a_round_and_double_its_noise():
    real, both = plan("satellite-iot", {}), plan("satellite-iot", {"symbols": "complex"})
    assert both.airtime_s == pytest.approx(real.airtime_s / 2)
    assert both.noise_var == pytest.approx(2 * real.noise_var)
    assert both.margin_db == pytest.approx(real.margin_db + decibels(2))
    assert both.energy_j == pytest.approx(real.energy_j / 2)  # both at full power
    for found in (real, both):
        symbols = found.feasibility["symbols"]
        assert (symbols["airtime_real_s"], symbols["airtime_complex_s"]) == (real.airtime_s, both.airtime_s)
        assert symbols["complex_power_db"] == pytest.approx(decibels(2))
        assert symbols["complex_noise_db"] == pytest.approx(decibels(2))
    assert "196 µs on air instead of 392 µs" in " ".join(sentences(both))
    assert "3.0 dB larger" in " ".join(sentences(both))


def test_complex_symbols_cost_nothing_where_power_is_held_back():
    real, both = plan("urban-cell", {}), plan("urban-cell", {"symbols": "complex"})
    assert both.noise_var == pytest.approx(real.noise_var)
    assert both.noise_to_update == pytest.approx(real.noise_to_update)
    assert both.energy_j == pytest.approx(real.energy_j)
    assert both.feasibility["symbols"]["complex_noise_db"] == pytest.approx(0.0, abs=1e-9)
    said = " ".join(sentences(both))
    assert "costs nothing in noise" in said
    assert "two coordinates each" in said


def test_some_of_it_where_less_than_3_db_are_held_back():
    half = plan("satellite-iot", {"epsilon": 1.4, "symbols": "complex"})
    real = plan("satellite-iot", {"epsilon": 1.4})
    cost = half.feasibility["symbols"]["complex_noise_db"]
    assert 0.0 < real.backoff_db < decibels(2)
    assert cost == pytest.approx(decibels(half.noise_var / real.noise_var))
    assert cost == pytest.approx(decibels(2) - real.backoff_db)


def test_solving_with_complex_symbols():
    q = replace(LINK, symbols="complex", epsilon=3.0)
    most = solve(q, "parameters").parameters
    assert most % 2 == 0
    assert answer(replace(q, parameters=most)).is_perk
    assert not answer(replace(q, parameters=most + 1)).is_perk
    assert answer(solve(q, "power_w")).margin_db == pytest.approx(0.0, abs=1e-9)


def test_the_report_of_a_run_says_what_complex_symbols_do():
    said = blocks_sentence(run_of(replace(LINK, symbols="complex")), 582_026)
    assert "14.6 ms on air" in said
    assert "Real symbols would take 29.1 ms" in said
    assert "3.0 dB larger" in said
    assert "Real symbols" not in blocks_sentence(run_of(replace(LINK, coherence_hz=2e6)), 582_026)


# --- what a plan says, and what it does not


def test_blocks_in_words_and_json(call):
    code, out, err = call("plan", "satellite-iot", "--coherence-hz", "2e6", "--json")
    assert code == 0, err
    found = json.loads(out)
    blocks = found["feasibility"]["coherence"]
    assert blocks["blocks"] == 10
    moved = blocks["threshold_db"]
    assert moved == pytest.approx(-blocks["quietest_db"] - blocks["shared_power_db"])
    plain = plan("satellite-iot", {})
    assert found["threshold_db"] == pytest.approx(plain.threshold_db + moved)
    assert (plain.is_perk, found["is_perk"]) == (True, False)
    said = " ".join(sentences(plan("satellite-iot", {"coherence_hz": 2e6})))
    assert "10 blocks" in said
    assert "the threshold moves by -5.3 dB" in said


@pytest.mark.parametrize("name", ["urban-micro", "lora-wide-area"])
def test_a_law_that_is_not_known_is_not_counted(name):
    from airfl.analysis.drawn_law import draw_law

    given = {"devices": 20, "antennas": 2}
    plain = plan(name, given, drops=2, draw=draw_law)
    wide = plan(name, {**given, "coherence_hz": 1e4}, drops=2, draw=draw_law)
    assert wide.epsilon == plain.epsilon
    assert wide.feasibility["coherence"]["threshold_db"] is None
    assert "is not counted: all numbers here are those of one block" in " ".join(sentences(wide))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--speed 3 --solve-for bandwidth", "cannot solve for --bandwidth with what was said of coherence"),
        ("--coherence-s 1e-5 --solve-for parameters", "cannot solve for --parameters"),
        ("--speed 3 --coherence-s 1", "--coherence-s and --speed say the same thing"),
        ("--symbols odd", "`symbols` must be one of real, complex"),
        ("--coherence-hz 1", "each needs a symbol"),
        ("--csi-age 1e-3", "`csi_age_s` goes with `speed_m_s`"),
        ("--symbols complex --observer base-station", "not simulated with complex symbols"),
        ("--coherence-hz 2e6 --observer base-station", "not simulated with 10 blocks a round"),
    ],
)
def test_what_a_plan_refuses(call, line, message):
    code, out, err = call("plan", "satellite-iot", *line.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_old_channel_knowledge_is_an_error_of_estimates():
    aged = plan("urban-cell", {"csi_age_s": 1e-3, "speed_m_s": 1.0}).feasibility["channel_knowledge"]
    error = aged["estimation_error"]
    assert error == pytest.approx(2 * (math.pi * 2.4e9 / 299_792_458 * 1e-3) ** 2, rel=0.01)  # 1 − J₀² ≈ x²/2
    same = plan("urban-cell", {"csi_error": error}).feasibility["channel_knowledge"]
    assert aged["extra_noise_db"] == pytest.approx(same["extra_noise_db"])
    assert (aged["pilot_symbols"], same["pilot_symbols"] > 0) == (None, True)


@pytest.mark.parametrize("symbols", ["real", "complex"])
def test_what_turns_on_air_takes_of_the_sum(symbols):
    """Against the turns that runs draw."""
    q = replace(LINK, devices=2000, symbols=symbols, phase_error_rad=0.4)
    drawn = np.stack([turns(run_of(q), 0, t) for t in range(40)])
    gain, spread, bias = turned(q)
    assert gain == pytest.approx(drawn.real.mean(), rel=0.003)
    heard = drawn.real if symbols == "real" else drawn
    assert spread == pytest.approx(np.mean(np.abs(heard - gain) ** 2), rel=0.03)
    assert bias == 0.0
    cost = answer(q).feasibility["impairments"]
    assert cost["coherent_gain_db"] == pytest.approx(-decibels(math.exp(0.4**2)))
    assert cost["distortion_to_update"] == pytest.approx(math.sqrt(spread / 2000) / gain / 0.3)
    assert answer(q).epsilon == answer(replace(q, phase_error_rad=None)).epsilon


def test_late_symbols_turn_bands_far_from_the_carrier():
    q = replace(LINK, coherence_hz=2e6, timing_offset_s=1e-8)
    offsets = np.linspace(-9e6, 9e6, 10)
    gains = np.exp(-0.5 * (2 * math.pi * offsets * 1e-8) ** 2)
    assert turned(q)[0] == pytest.approx(gains.mean())
    assert turned(q)[2] == pytest.approx(gains.std())
    assert turned(replace(q, coherence_hz=None))[0] == 1.0
    said = " ".join(sentences(answer(replace(q, clipping_db=3.0, adc_bits=8))))
    assert "what clipping and conversion take of accuracy" in said
    assert "No contribution gets longer, so ε stays" in said


def test_plans_of_blocks_load_no_torch():
    given = "{'symbols': 'complex', 'coherence_hz': 2e6, 'speed_m_s': 1.0, 'phase_error_rad': 0.1}"
    lines = (
        "import sys",
        "from airfl.linkplan import plan",
        f"repr(plan('urban-cell', {given}))",
        "print('torch' in sys.modules)",
    )
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
