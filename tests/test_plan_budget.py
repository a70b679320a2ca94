"""The planner's link budget against hand calculation, its drawn channels against tables and ledgers, and its radio."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import airfl
from airfl import linkplan
from airfl.analysis.drawn_law import draw_law, usual_drops, usual_fadings
from airfl.channel.budget import edge_gain, link_budget
from airfl.errors import InputError
from airfl.linkplan import Quantities, answer, pose, scenario_names, solve
from airfl.linkplan.answer import squared_mu
from airfl.linkplan.feasibility import minimum_output_dbm
from airfl.linkplan.law import Drawn, combining
from airfl.linkplan.link import channel_of, channel_values, uncovered
from airfl.linkplan.loudest import loudness
from airfl.linkplan.show import sentences
from airfl.privacy import GaussianAccountant, Ledger, gaussian_mu
from airfl.report.progress import LateSteps
from airfl.rounds import arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

plan, law_of = partial(linkplan.plan, draw=draw_law), partial(linkplan.law_of, draw=draw_law)
#: The link of a small cell as its engineer would write it down.
N78 = {
    "devices": 50, "active": 45, "antennas": 64, "power_dbm": 23.0, "noise_figure_db": 7.0, "antenna_gain_dbi": 8.0,
    "distance_m": 500.0, "carrier_hz": 3.5e9, "bandwidth_hz": 100e6, "parameters": 582_026, "rounds": 50,
    "epsilon": 8.0,
}  # fmt: skip
N78_OPTIONS = (
    "--devices 50 --active 45 --antennas 64 --power-dbm 23 --noise-figure 7 --antenna-gain 8 --distance 500 "
    "--carrier 3.5e9 --bandwidth 100e6 --parameters 582026 --rounds 50 --epsilon 8"
)
CELL = Quantities(
    devices=30, antennas=8, power_w=1e-9, distance_m=500.0, bandwidth_hz=1e6, parameters=1000, rounds=6, epsilon=4.0
)


def config_of(q: Quantities, trials: int, **channel) -> airfl.Config:
    """The simulator's description of a plan: the same keys."""
    return airfl.preset("paper").replace(
        {
            "system.seed": 77,
            "system.trials": trials,
            "system.num_devices": q.devices,
            "system.num_antennas": q.antennas,
            "system.participation": q.participation,
            "system.rounds": q.rounds,
            "learning.clip_norm": 1.0,
            "privacy.delta": q.delta,
            "scheme.names": ["airfl-mimo"],
            "scheme.combiner": "auto",
            **{f"channel.{name}": value for name, value in (channel_values(q) | channel).items()},
        }
    )


def ledgers_of(q: Quantities, trials: int, **channel) -> list[Ledger]:
    """What runs at full power would book."""
    config = config_of(q, trials, **channel)
    schedule = arrange(config, SCHEMES["airfl-mimo"], open_radio(config, range(trials)), q.parameters)
    ledgers = [Ledger() for _ in range(trials)]
    for t in range(q.rounds):
        booked = book(schedule, schedule.setting(t), lambda row: 1)
        ledgers = [entry.on(ledger) for entry, ledger in zip(booked, ledgers, strict=True)]
    return ledgers


# --- by hand


@pytest.mark.parametrize(
    ("change", "received_dbm", "noise_dbm"),
    [
        # 20 log₁₀(4π · 500 · 3.5e9/c) = 53.98 + 70.88 − 27.55 = 97.31 dB; 23 + 8 − 97.31; −174 + 80 + 7
        ({}, -66.31, -87.0),
        # free space at 1 m 43.33 dB, and 35 log₁₀ 500 = 94.46 dB from there: 137.79 dB
        ({"path_loss_exponent": 3.5}, -106.79, -87.0),
        # shadowing does not move the median
        ({"path_loss_exponent": 3.5, "shadowing_db": 6.0}, -106.79, -87.0),
        # interference is no part of σ²
        ({"interference_dbm": -60.0}, -66.31, -87.0),
        # UMi without a line of sight: d₃ = √(500² + 8.5²) = 500.07 m; 22.4 + 35.3 log₁₀ d₃ + 21.3 log₁₀ 3.5 = 129.27
        ({"path_loss": "3gpp-umi-nlos"}, -98.27, -87.0),
        # a device's antenna and a body between
        ({"device_gain_dbi": 2.0, "loss_db": 5.0}, -69.31, -87.0),
        # the same receiver by its density
        ({"noise_figure_db": None, "noise_density_dbm_hz": -167.0}, -66.31, -87.0),
    ],
)
def test_a_small_cell_by_hand(change, received_dbm, noise_dbm):
    q, unknown = pose(None, N78 | change)
    assert unknown is None
    assert 10.0 * math.log10(q.snr) == pytest.approx(received_dbm - noise_dbm, abs=0.1)


@pytest.mark.parametrize(
    ("name", "snr_db"),
    [
        # 14 + 2.15 + 6 − 1 = 21.15 dBm; measured 128.95 + 23.2 · 1 dB at 10 km; σ² = −174 + 50.97 + 6 = −117.03 dBm
        ("lora-wide-area", 21.15 - 152.15 + 117.03),
        # 8 + 5 − 6 = 7 dBm; 20 log₁₀(4π · 10⁶ · 2e9/c) = 158.47 dB; −174 + 73.01 + 3 = −97.99 dBm
        ("satellite-iot", 7.0 - 158.47 + 97.99),
    ],
)
def test_long_links_by_hand(name, snr_db):
    assert 10.0 * math.log10(pose(name, {})[0].snr) == pytest.approx(snr_db, abs=0.1)


def test_a_plan_and_a_run_have_one_budget():
    """For every scenario, and for what options make of one."""
    for name in scenario_names():
        q = pose(name, {})[0]
        budget = link_budget(config_of(q, 1))
        assert q.snr == pytest.approx(budget.snr, rel=1e-12)
        assert q.limit_w == pytest.approx(budget.power_w, rel=1e-12)
    q = pose(None, N78 | {"path_loss_exponent": 3.5, "shadowing_db": 6.0, "interference_dbm": -90.0})[0]
    budget = link_budget(config_of(q, 1))
    assert q.snr == pytest.approx(budget.snr, rel=1e-12)
    assert q.disturbance == pytest.approx(1.0 + budget.interference_w / budget.noise_w, rel=1e-12)


def test_watts_and_dbm_say_the_same():
    in_dbm = plan(None, N78)
    in_watts = plan(None, {**N78, "power_dbm": None, "power_w": 10**2.3 * 1e-3})
    assert in_dbm.epsilon == pytest.approx(in_watts.epsilon, rel=1e-9)
    assert in_dbm.power_w == pytest.approx(in_watts.power_w)
    assert in_watts.power_dbm == pytest.approx(23.0)
    assert in_dbm.energy_j == pytest.approx(in_watts.energy_j, rel=1e-9)


# --- interference


def test_interference_disturbs_and_hides_nobody():
    """−87 dBm of it is as strong as the noise: √2 times what disturbs, and the same ε, margin and threshold."""
    quiet, loud = plan(None, N78), plan(None, N78 | {"interference_dbm": -87.0})
    for name in ("epsilon", "epsilon_range", "epsilon_kept", "margin_db", "threshold_db", "snr_db", "noise_var"):
        assert getattr(loud, name) == getattr(quiet, name), name
    assert loud.noise_to_update == pytest.approx(math.sqrt(2.0) * quiet.noise_to_update, rel=1e-6)
    assert loud.free_noise_to_update == pytest.approx(math.sqrt(2.0) * quiet.free_noise_to_update, rel=1e-6)
    assert loud.residual == pytest.approx(math.sqrt(2.0) * quiet.residual, rel=1e-6)
    assert loud.accuracy_cost > quiet.accuracy_cost
    assert loud.smallest_devices == pytest.approx(math.sqrt(2.0) * quiet.smallest_devices, rel=1e-3)
    assert "Interference makes what disturbs the update 3.0 dB stronger" in " ".join(sentences(loud))
    with pytest.raises(InputError, match="give --bandwidth too"):
        pose(None, {"devices": 9, "antennas": 2, "snr_db": 3.0, "parameters": 9, "rounds": 2, "interference_dbm": -9.0})


# --- drawn channels


@pytest.mark.parametrize(
    ("devices", "antennas", "layout"), [(45, 64, "disk"), (200, 16, "disk"), (300, 8, "ring"), (2, 1, "ring")]
)
def test_drawn_channels_meet_the_tables(devices, antennas, layout):
    """Where both know the answer they agree within three standard errors, and those are a few percent."""
    q = CELL.with_values({"devices": devices, "antennas": antennas, "layout": layout, "rounds": 30})
    found, known = law_of(q, 48), combining(layout, devices, antennas)
    assert isinstance(found, Drawn)
    error = math.hypot(found.standard_error, known.standard_error)
    assert error < (0.12 if devices == 2 else 0.03)
    assert found.inverse_norm2 == pytest.approx(known.inverse_norm2, rel=3.0 * error)
    assert found.mean_power == pytest.approx(known.mean_power, rel=0.05)
    if devices > 2:
        planned = loudness(known, layout, devices, devices, antennas, 30)
        assert found.loudness == pytest.approx(planned, rel=0.3)
        drawn, about = (answer(q.with_values({"csi_error": 0.01}), law=law) for law in (found, known))
        costs = [one.feasibility["channel_knowledge"]["extra_noise_db"] for one in (drawn, about)]
        assert costs[0] == pytest.approx(costs[1], abs=1.5)


@pytest.mark.parametrize(
    "change",
    [
        {"path_loss_exponent": 3.5, "shadowing_db": 6.0},
        {"fading": "rician", "layout": "ring"},
        {"path_loss": "3gpp-umi-nlos", "carrier_hz": 3.5e9, "participation": 0.5},
    ],
)
def test_drawn_channels_meet_ledgers(change):
    """Against runs with another seed: μ² of the mean over trials, and the base station's in the geometric mean."""
    q = CELL.with_values(change)
    trials = 40
    ledgers = ledgers_of(q, trials)
    relation = q.relation
    squared = np.array([GaussianAccountant(one, relation, "models").mu ** 2 for one in ledgers])
    law = law_of(q, 60)
    error = math.hypot(law.standard_error, squared.std() / squared.mean() / math.sqrt(trials))
    assert error < 0.15
    assert squared_mu(q, law) == pytest.approx(squared.mean(), rel=3.0 * error)
    base = [2.0 * math.log(GaussianAccountant(one, relation, "base-station").mu) for one in ledgers]
    planned = 2.0 * math.log(gaussian_mu(answer(q, law=law).epsilon["base-station"], q.delta))
    assert planned == pytest.approx(np.mean(base), abs=0.35 + 3.0 * np.std(base) / math.sqrt(trials))


def test_wrong_estimates_cost_what_a_ledger_books():
    """The gain bound of a run with ``csi_error``, and combiners for weaker estimates; near devices that fade deeply
    decide, so that 40 trials know it to half a decibel."""
    q = CELL.with_values({"csi_error": 0.02})
    perfect, wrong = ledgers_of(q, 40), ledgers_of(q, 40, csi_error=0.02)
    booked = [np.mean([GaussianAccountant(o, q.relation, "models").mu ** 2 for o in some]) for some in (perfect, wrong)]
    law = law_of(q, 60)
    found = answer(q.with_values({"epsilon": 0.01}), law=law).feasibility["channel_knowledge"]
    assert found["extra_noise_db"] == pytest.approx(10.0 * math.log10(booked[1] / booked[0]), abs=1.0)
    bounds = [event.gain_bound for ledger in wrong for event in ledger.events]
    assert found["gain_bound"] == pytest.approx(np.mean(bounds), rel=0.15)


def test_what_is_drawn_follows_from_the_link_alone():
    """The same channels whatever the power, the target or the noise is: what is solved for is met exactly."""
    q = pose(None, N78 | {"path_loss_exponent": 3.5, "devices": 20, "active": 20, "antennas": 8})[0]
    law = law_of(q)
    assert law.drops == usual_drops(q)
    changed = q.with_values({"power_dbm": -10.0, "epsilon": 1.0, "noise_figure_db": 3.0, "distance_m": 123.0})
    assert law_of(changed) == law
    with pytest.raises(InputError, match=r"do not go with an exponent of 3\.5 on a disk, and channels are drawn by"):
        linkplan.law_of(q)
    with pytest.raises(InputError, match="do not go with --drops"):
        linkplan.law_of(CELL, 2)
    assert law_of(q, 3).drops == 3
    for unknown in ("power_w", "snr_db", "bandwidth_hz", "rounds", "distance_m", "epsilon", "delta", "parameters"):
        near = solve(q, "power_w", law)
        given = {k: v for k, v in vars(near).items() if v is not None and k not in (unknown, "participation")}
        if unknown == "snr_db":
            del given["distance_m"], given["antenna_gain_dbi"]
        found = plan(None, given, {"power_w": "power"}.get(unknown, unknown.split("_")[0]))
        assert found.drops == law.drops
        assert found.margin_db == pytest.approx(0.0, abs=0.1 if unknown in ("rounds", "parameters") else 1e-6)


def test_a_place_of_3gpp():
    """The edge is its median without a line of sight; what is drawn is Sionna's, and a run's."""
    pytest.importorskip("sionna.phy")
    place = N78 | {"antenna_gain_dbi": None, "fading": "3gpp-umi", "devices": 8, "active": 8, "antennas": 4}
    found = plan(None, place, drops=1)
    assert found.snr_db == pytest.approx(23.0 - 129.27 + 87.0, abs=0.1)
    ledgers = ledgers_of(found.quantities.with_values({"rounds": 8}), 1)
    assert found.drops == len(ledgers) == 1
    assert found.epsilon["base-station"] > found.epsilon["models"] > 0.0
    said = " ".join(sentences(found))
    assert "do not cover fading `3gpp-umi`, so channels were drawn: from 1 drop" in said


def test_without_the_extra_one_sentence_says_how_to_get_it(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "sionna.phy", None)
    monkeypatch.setitem(sys.modules, "sionna", None)
    code, out, err = call("plan", "urban-micro", "--fading", "3gpp-umi")
    assert (code, out) == (2, "")
    assert "airfl[sionna]" in err
    assert len(err.strip().splitlines()) == 1


def test_one_drop_is_enough_for_an_answer():
    law = draw_law(CELL.with_values({"shadowing_db": 3.0}), 1)
    assert law.drops == 1
    assert law.standard_error > 0.0


def test_a_solved_number_of_rounds_is_answered_as_if_it_had_been_asked_for():
    """One round has a luckier loudest device than the 64 over which others are followed."""
    link = {"devices": 20, "antennas": 8, "snr_db": -25.0, "parameters": 100, "epsilon": 8.0, "fading": "rician"}
    found = plan(None, link, "rounds", drops=3)
    assert found.quantities.rounds == 1
    assert found.epsilon == plan(None, link | {"rounds": 1}, drops=3).epsilon


@pytest.mark.parametrize(
    ("law", "drops", "near_db"), [("rician", 8, 0.8), ("3gpp-umi", 3, 0.0), ("3gpp-inf", 3, 0.0), ("cdl", 2, 0.0)]
)
def test_whoever_is_unlucky_with_rays_that_stay_is_so_in_every_round(law, drops, near_db):
    """Against 64 rounds of the same drops, followed one by one; Sionna's laws are drawn for as many."""
    if law != "rician":
        pytest.importorskip("sionna.phy")
    link = {"devices": 25, "antennas": 8, "fading": law, "distance_m": 100.0, "carrier_hz": 3.5e9, "epsilon": 1.0}
    q = pose(None, link | {"power_w": 1e-9, "bandwidth_hz": 1e6, "parameters": 9, "rounds": 64})[0]
    found, logs = draw_law(q, drops), []
    config = config_of(q, drops).replace({"system.seed": 0})
    for trial in range(drops):
        radio = open_radio(config, [trial])
        design, active, _ = radio.rounds(config, range(64))
        assert (active[0] == np.arange(25)).all()
        heard = radio.link.channels(range(64))[0]
        gains = np.abs(np.einsum("tm,tkm->tk", design.combiner.numpy()[0].conj(), heard))
        energy = (np.sum(np.abs(heard) ** 2, axis=-1) / gains**2).mean(axis=0).max()
        logs.append(10.0 * math.log10(energy / edge_gain(config.channel)))
    assert 10.0 * math.log10(found.loudest_run) == pytest.approx(np.mean(logs), abs=near_db + 0.01)
    assert found.followed == (16 if law == "rician" else 64)
    told = answer(q, law=found)
    assert told.rounds_followed == (16 if law == "rician" else None)
    assert ("over 16 rounds only" in " ".join(sentences(told))) == (law == "rician")


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({"devices": 50, "antennas": 16}, 48),
        ({"devices": 2000, "antennas": 8}, 12),
        ({"devices": 10_000, "antennas": 8}, 4),
        ({"devices": 50_000, "antennas": 8}, 2),
        ({"devices": 100, "antennas": 64, "fading": "3gpp-umi"}, 4),
        ({"devices": 5000, "antennas": 8, "fading": "3gpp-umi"}, 2),
        ({"devices": 100, "antennas": 64, "fading": "rician"}, 4),
    ],
)
def test_large_links_are_drawn_a_few_times(change, most):
    """What is drawn unasked is bounded in coefficients of all rounds, and in devices where those take the time."""
    q = CELL.with_values({"shadowing_db": 0.0 if "fading" in change else 8.0, **change})
    assert usual_drops(q) == most
    total = usual_drops(q) * usual_fadings(q, most) * q.devices * q.antennas
    assert total <= 2_000_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"devices": 100_000, "shadowing_db": 8.0}, r"take minutes to draw.*\(500,000 channels\); --drops 2 draws"),
        ({"devices": 20_000, "fading": "3gpp-umi"}, r"take minutes to draw.*\(5,000 devices\); --drops 2 draws"),
        ({"devices": 6000, "shadowing_db": 8.0, "shadowing_distance_m": 50.0}, r"\(5,000 devices\)"),
    ],
)
def test_what_takes_minutes_is_drawn_for_those_who_ask(change, words):
    with pytest.raises(InputError, match=words):
        draw_law(CELL.with_values(change))


def test_what_does_not_fit_is_refused_before_it_is_drawn():
    """Shadowing that is alike nearby takes a matrix of all devices, whoever asks for drops."""
    alike = {"devices": 200_000, "antennas": 2, "shadowing_db": 8.0, "shadowing_distance_m": 50.0}
    with pytest.raises(InputError, match=r"drawing these channels needs at least .* for shadowing.*lower --devices"):
        draw_law(CELL.with_values(alike), 1)


def test_a_bar_shows_while_the_first_drop_takes_its_time(monkeypatch):
    """Not only once it is done; and none for what is over at once, or of unknown length."""
    monkeypatch.setattr(LateSteps, "PATIENCE_S", 0.05)
    with LateSteps("drops") as late, LateSteps("drops") as unknown:
        late.stand(0, 2)
        for _ in range(100):
            if late._bar is not None:
                break
            time.sleep(0.05)
        assert late._bar is not None
        assert unknown._bar is None
    monkeypatch.setattr(LateSteps, "PATIENCE_S", 60.0)
    with LateSteps("drops") as early:
        early.stand(1, 2)
    assert early._bar is None


def test_few_drops_say_what_their_error_is_worth():
    q = CELL.with_values({"shadowing_db": 6.0})
    for drops, words in ((1, "other places of the devices differ more"), (2, "which so few tell roughly")):
        said = " ".join(sentences(answer(q, law=law_of(q, drops))))
        assert words in said
    assert "roughly" not in " ".join(sentences(answer(q, law=law_of(q, 4))))


def test_shadowing_that_is_alike_nearby_depends_on_how_far_devices_are():
    """A distance that was solved for with places at another one would miss its own target."""
    alike = N78 | {"devices": 9, "active": 9, "antennas": 2, "shadowing_db": 8.0, "shadowing_distance_m": 50.0}
    for unknown in (None, "distance"):
        with pytest.raises(InputError, match="give --distance, which cannot be solved for"):
            plan(None, {**alike, "distance_m": None}, unknown)
    with pytest.raises(InputError, match="cannot solve for --distance with `shadowing_distance_m`"):
        solve(pose(None, alike)[0], "distance_m", law_of(pose(None, alike)[0], 1))
    with pytest.raises(InputError, match="give --distance"):
        plan(None, {**alike, "antenna_gain_dbi": 0.0, "distance_m": None, "snr_db": 3.0})
    assert plan(None, alike, drops=1).feasibility["instead"]["distance_m"] is None


@pytest.mark.parametrize("name", ["antenna_gain_dbi", "device_gain_dbi", "loss_db"])
def test_a_stated_snr_has_all_gains_in_it(name):
    link = {"devices": 50, "antennas": 4, "snr_db": 5.0, "parameters": 100, "rounds": 3, "epsilon": 8.0}
    assert pose(None, link | {name: 0.0})[0].snr_db == 5.0
    with pytest.raises(InputError, match=r"--snr is what arrives, with --[a-z-]+ in it already; leave out --"):
        pose(None, link | {name: 10.0})
    with pytest.raises(InputError, match="in it already"):
        pose(None, {**link, "snr_db": None, name: 10.0}, "snr")
    scenario = pose("lora-wide-area", {"snr_db": 5.0})[0]
    assert getattr(scenario, name) == 0.0
    assert getattr(pose("lora-wide-area", {})[0], name) != 0.0


def test_distance_follows_the_exponent():
    ring = pose(None, N78 | {"layout": "ring", "path_loss_exponent": 3.5, "distance_m": None}, "distance")[0]
    near = solve(ring, "distance_m")
    assert squared_mu(near) == pytest.approx(gaussian_mu(8.0, 1e-5) ** 2, rel=1e-9)
    weaker = solve(ring.with_values({"power_dbm": 13.0}), "distance_m")
    assert near.distance_m / weaker.distance_m == pytest.approx(10 ** (1.0 / 3.5), rel=1e-9)


def test_which_links_tables_cover():
    assert uncovered(CELL) is None
    assert uncovered(CELL.with_values({"path_loss_exponent": 2.0})) is None
    assert uncovered(CELL.with_values({"path_loss_exponent": 3.5, "layout": "ring"})) is None
    assert uncovered(CELL.with_values({"path_loss_exponent": 3.5})) == "an exponent of 3.5 on a disk"
    assert uncovered(CELL.with_values({"shadowing_db": 6.0, "layout": "ring"})) == "shadowing"
    assert uncovered(CELL.with_values({"fading": "rician"})) == "fading `rician`"
    assert uncovered(CELL.with_values({"path_loss": "3gpp-uma-nlos"})) == "path loss `3gpp-uma-nlos` on a disk"
    assert uncovered(Quantities(noise_var=1.0, shadowing_db=3.0)) is None


# --- what a radio makes of it


def test_feasibility_by_hand():
    """n78 at 30 m/s with 100 ns of echoes; d/W = 5.82 ms."""
    found = plan(None, N78 | {"speed_m_s": 30.0, "delay_spread_s": 100e-9, "csi_error": 0.01})
    radio = found.feasibility
    still = 0.423 * 299_792_458.0 / 3.5e9 / 30.0  # 1.21 ms
    coherence = radio["coherence"]
    assert coherence["coherence_time_s"] == pytest.approx(still)
    assert coherence["airtime_over_coherence_time"] == pytest.approx(5.82026e-3 / still, rel=1e-6)
    assert coherence["coherence_bandwidth_hz"] == pytest.approx(2e6)
    assert (coherence["blocks_in_time"], coherence["blocks_in_frequency"], coherence["blocks"]) == (5, 50, 250)
    pilots = radio["channel_knowledge"]
    assert pilots["pilots_per_device"] == 1  # (1/0.01 − 1)/SNR = 99/117
    assert pilots["pilot_symbols"] == 45 * 250
    assert (pilots["gain_bound"], pilots["epsilon"], pilots["extra_noise_db"]) == (None, None, None)
    assert "not counted with several blocks" in " ".join(sentences(found))
    pilots = plan(None, N78 | {"csi_error": 0.01}).feasibility["channel_knowledge"]
    assert pilots["pilot_symbols"] == 45
    assert pilots["pilot_airtime_s"] == pytest.approx(45 / 100e6)
    assert pilots["pilot_share"] == pytest.approx(45 / (45 + 582_026))
    assert pilots["extra_noise_db"] > 0.0
    sent = radio["transmit"]
    assert sent["power_dbm"] == pytest.approx(23.0 + found.margin_db)
    assert sent["power_dbm"] > sent["mean_power_dbm"]
    assert sent["minimum_output_dbm"] == pytest.approx(-33.0, abs=0.05)
    assert sent["is_sendable"] is False
    instead = radio["instead"]
    assert instead["distance_m"] == pytest.approx(500.0 * 10 ** (found.backoff_db / 20.0))
    assert instead["cover_db"] == pytest.approx(found.backoff_db, abs=1e-3)
    single = plan(None, N78 | {"antennas": 1, "speed_m_s": 30.0, "delay_spread_s": 100e-9})
    assert instead["margin_db_with_one_antenna"] == pytest.approx(single.margin_db, abs=1e-9)
    said = " ".join(sentences(found))
    for words in ("need not go below", "could instead reach", "250 blocks", "1 pilot a device in every block"):
        assert words in said


def test_pilots_take_longer_on_a_weak_link():
    """(1/0.1 − 1) · 10^5.35 symbols of every sensor, where the satellite hears −53.5 dB."""
    found = plan("satellite-iot", {"csi_error": 0.1})
    pilots = found.feasibility["channel_knowledge"]
    each = math.ceil(9.0 / found.quantities.snr)
    assert pilots["pilots_per_device"] == each
    assert pilots["pilot_symbols"] == 6000 * each
    assert pilots["pilot_share"] > 0.999
    assert found.feasibility["instead"] is None  # nothing is held back
    rician = plan("satellite-iot", {"csi_error": 0.1, "fading": "rician", "devices": 40}, drops=2)
    assert rician.feasibility["channel_knowledge"]["epsilon"] is None
    assert "for Rayleigh fading alone" in " ".join(sentences(rician))


@pytest.mark.parametrize(
    ("megahertz", "dbm"), [(1, -40.0), (20, -40.0), (25, -39.0), (50, -36.0), (80, -34.0), (100, -33.0)]
)
def test_minimum_output_power_is_that_of_the_standard(megahertz, dbm):
    """3GPP TS 38.101-1, Table 6.3.1-1."""
    assert minimum_output_dbm(megahertz * 1e6) == pytest.approx(dbm, abs=0.05)


def test_farther_through_a_path_loss_of_3gpp():
    """Where the place goes on: as many decibels more. Where it ends there is no answer."""
    q, _ = pose(None, N78 | {"path_loss": "3gpp-uma-nlos", "distance_m": 100.0, "layout": "ring"})
    found = answer(q.with_values({"epsilon": 1e5}), law=law_of(q))
    far = found.feasibility["instead"]["distance_m"]
    assert far is not None
    assert q.with_values({"distance_m": far}).snr == pytest.approx(q.snr * 10 ** (-found.backoff_db / 10.0), rel=1e-6)
    assert answer(q, law=law_of(q)).feasibility["instead"]["distance_m"] is None


# --- options, scenarios, JSON


def test_the_command_speaks_an_engineers_language(call):
    code, out, err = call(
        "plan", *N78_OPTIONS.split(), "--path-loss-exponent", "3.5", "--shadowing", "6", "--drops", "6", "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["snr_db"] == pytest.approx(-19.79, abs=0.1)
    assert found["drops"] == 6
    assert found["power_dbm"] == 23.0
    assert found["table_error"] > 0.0
    code, out, err = call("plan", *N78_OPTIONS.split(), "--path-loss-exponent", "3.5", "--drops", "2")
    assert code == 0, err
    said = " ".join(out.split())
    assert "The tables of combiners do not cover an exponent of 3.5 on a disk, so channels were drawn: from 2" in said
    code, out, err = call("plan", *N78_OPTIONS.split(), "--drops", "2")
    assert "From 2 drops μ² has a standard error" in " ".join(out.split())


#: What `airfl plan --json` had before it knew link budgets.
KEYS = {
    "": "epsilon epsilon_range epsilon_kept is_perk margin_db table_error octaves_beyond snr_db threshold_db noise_var "
    "noise_to_update free_noise_to_update residual accuracy_cost tolerated smallest_devices energy_j mean_energy_j "
    "airtime_s backoff_db solved_for quantities prediction_check shielded",
    "quantities": "devices participation sampling antennas layout power_w distance_m snr_db carrier_hz "
    "noise_density_dbm_hz bandwidth_hz parameters rounds clip_norm clip_factor delta epsilon neighbours symbol_rate_hz "
    "update_norm alignment noise_var",
}


def test_every_key_of_before_is_still_there(call):
    found = json.loads(call("plan", "urban-cell", "--json")[1])
    assert set(KEYS[""].split()) <= set(found)
    assert set(KEYS["quantities"].split()) <= set(found["quantities"])
    assert found["quantities"]["noise_density_dbm_hz"] == -173.0
    assert found["quantities"]["power_w"] == 2e-3
    assert set(found["feasibility"]) == {
        *("transmit", "instead", "symbols", "coherence", "channel_knowledge", "impairments"),
    }
    stated = {name: value for name, value in found["quantities"].items() if name != "alignment"}
    assert plan(None, stated).epsilon == found["epsilon"]  # what a plan prints can be given back


def test_options_come_before_what_a_scenario_says_in_other_words():
    q = pose("urban-micro", {"power_w": 0.1, "noise_density_dbm_hz": -170.0, "path_loss_exponent": 3.0})[0]
    assert (q.power_w, q.power_dbm) == (0.1, None)
    assert (q.noise_density_dbm_hz, q.noise_figure_db) == (-170.0, None)
    assert (q.path_loss, q.path_loss_exponent) == (None, 3.0)
    q = pose("lora-wide-area", {"path_loss": "free-space"})[0]
    assert (q.path_loss, q.path_loss_exponent) == ("free-space", None)
    q = pose("urban-micro", {"fading": "3gpp-umi"})[0]
    assert (q.path_loss, q.shadowing_db, q.antenna_gain_dbi) == (None, 0.0, 0.0)
    assert channel_of(q).is_3gpp


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--power 1", "--power and --power-dbm say the same thing; give one of them"),
        ("--noise-density -170", "--noise-density and --noise-figure say the same thing"),
        ("--noise-var 3", "--noise-var stands for the whole link"),
        ("--snr 3", "--snr and --distance say the same thing"),
        ("--path-loss free-space --path-loss-exponent 3", "`path_loss_exponent` goes with path_loss"),
        ("--path-loss log-distance", "needs `path_loss_exponent`"),
        ("--path-loss 3gpp-umi", "no path loss named `3gpp-umi`"),
        ("--path-loss 3gpp-inh-nlos", "is for distances from 1 to 150 m; got `distance_m` = 500"),
        ("--path-loss 3gpp-rma-nlos --carrier 60e9", "is for carriers from 0.5 to 30 GHz"),
        ("--fading trace", "`trace` has measured ones"),
        ("--fading rayleight", "did you mean `rayleigh`?"),
        ("--drops 0", "--drops must be a whole number from 1"),
        ("--speed -1", "`speed_m_s` must be a number from 0"),
        ("--delay-spread -1e-7", "`delay_spread_s` must be a number from"),
        ("--csi-error 1", "`csi_error` must be a number from"),
        ("--shadowing -3", "`shadowing_db` must be a number from 0"),
        ("--loss -3", "`loss_db` must be a number from 0"),
        ("--solve-for power", "--power and --power-dbm say the same thing"),
        ("--path-loss-exponent 3 --out there", "the phase diagram is drawn from tables"),
        ("--drops 2 --out there", "the phase diagram is drawn from tables"),
    ],
)
def test_impossible_budgets_are_one_sentence(call, more, words):
    code, out, err = call("plan", *N78_OPTIONS.split(), *more.split())
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("urban-micro --solve-for distance", "whose path loss is no power law"),
        ("urban-micro --solve-for devices", "cannot solve for --devices with shadowing"),
        ("satellite-iot --solve-for antennas --drops 3", "cannot solve for --antennas with --drops"),
        ("satellite-iot --path-loss-exponent 0 --solve-for distance", "an exponent of 0"),
        ("satellite-iot --noise-figure -1", "`noise_figure_db` must be a number from 0 to 100; got -1"),
        ("satellite-iot --antennas 999 --drops 3", "more channels than a plan draws"),
        ("urban-cell --clip 1 --noise-var 3 --drops 3", "--noise-var stands for them"),
    ],
)
def test_what_cannot_be_drawn_or_solved_for_is_one_sentence(call, arguments, words):
    code, out, err = call("plan", *arguments.split())
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_a_scenario_with_two_powers_is_refused(call, tmp_path):
    (tmp_path / "two.toml").write_text("devices = 9\npower_w = 1.0\npower_dbm = 3.0\n")
    code, _, err = call("plan", "two.toml")
    assert code == 2
    assert "say the same thing" in err


def test_from_python():
    found = airfl.plan(**{k: v for k, v in N78.items() if k != "epsilon"}, epsilon=8.0, path_loss_exponent=3.5, drops=2)
    assert found.drops == 2
    assert "Transmit power" in repr(found)
    with pytest.raises(InputError, match="`power_w` and `power_dbm` say the same thing"):
        airfl.plan(**N78, power_w=1.0)
    with pytest.raises(InputError, match="`noise_density_dbm_hz` and `noise_figure_db`"):
        airfl.plan(**N78, noise_density_dbm_hz=-170.0)
    assert replace(found.quantities, path_loss_exponent=None).snr > found.quantities.snr
