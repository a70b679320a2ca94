"""The planner: against the accountant, against the simulator, back and forth, and what it refuses."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.plan_agreement import compare, draw, ledgers_of
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl import linkplan
from airfl.analysis.drawn_law import draw_law
from airfl.channel.geometry import path_gain
from airfl.channel.noise import noise_power_w, thermal_power_w
from airfl.errors import InputError
from airfl.linkplan import (
    Quantities,
    accuracy,
    answer,
    free_epsilon,
    law_of,
    noise_of,
    plan,
    pose,
    scenario_names,
    solve,
)
from airfl.linkplan.answer import squared_mu
from airfl.linkplan.law import combining
from airfl.linkplan.loudest import loudness
from airfl.linkplan.quantities import WORDS
from airfl.linkplan.show import sentences
from airfl.privacy import GaussianAccountant, gaussian_epsilon, gaussian_mu, make_accountant, what_if_ledger

CELL = Quantities(
    devices=60,
    participation=0.5,
    antennas=16,
    power_w=1e-9,
    distance_m=500.0,
    bandwidth_hz=1e6,
    parameters=1000,
    rounds=20,
    clip_norm=2.0,
    epsilon=4.0,
)
#: Receiver noise over thermal noise, which alone counts against a base station.
NOISY = noise_power_w(-173.0, 1.0) / thermal_power_w(1.0)


# --- against the accountant and the simulator


@given(st.floats(0.01, 100.0), st.floats(1e-3, 1e6), st.integers(1, 300), st.sampled_from(["zero-out", "replace"]))
def test_a_given_noise_variance_is_accounted_for_exactly(clip, noise_var, rounds, neighbours):
    q = Quantities(clip_norm=clip, noise_var=noise_var, rounds=rounds, neighbours=neighbours, epsilon=1.0)
    exact = GaussianAccountant(what_if_ledger(clip, noise_var, rounds), neighbours, "models").epsilon(1e-5)
    assert answer(q).epsilon["models"] == pytest.approx(exact, rel=1e-9)


def test_the_noise_of_a_ledger_gives_the_ledgers_epsilon():
    """Rounds with different noise: one effective variance stands for all of them."""
    config, ledgers = ledgers_of(CELL, seed=3, trials=range(3))
    for ledger in ledgers:
        assert len({event.noise_var for event in ledger.events}) == CELL.rounds
        given = {"clip_norm": 2.0, "noise_var": noise_of(ledger), "rounds": 20, "neighbours": config.neighbours}
        booked = make_accountant("gaussian", ledger, config.neighbours, "models").epsilon(1e-5)
        assert plan(None, given).epsilon["models"] == pytest.approx(booked, rel=1e-9)


def test_random_scenarios_agree_with_the_simulators_ledger():
    """A small share of ``experiments.plan_agreement``, which does 50 and larger ones."""
    rng = np.random.default_rng(7)
    errors = []
    for index in range(6):
        row = compare(draw(rng, most_coefficients=4000), index, seconds=3.0)
        errors.append(abs(float(row["error"])))
        assert errors[-1] < 0.05 + 2 * float(row["sampling_error"]), row
        assert 0.6 < float(row["base_plan"]) / float(row["base_simulated"]) < 1.7, row
    assert np.median(errors) < 0.03


def test_margin_and_threshold_are_the_simulators():
    """The perk test of a run with a budget, on its own channels."""
    from experiments.plan_agreement import config_of

    from airfl.rounds import arrange
    from airfl.schemes import SCHEMES
    from airfl.transceiver import open_radio

    config = config_of(CELL, 1, 24).replace(
        {"scheme.names": ["airfl-dp"], "privacy.epsilon": 4.0, "privacy.accountant": "gaussian"}
    )
    perks = arrange(config, SCHEMES["airfl-dp"], open_radio(config, range(24)), CELL.parameters).perks()
    planned = answer(CELL)
    assert planned.margin_db == pytest.approx(np.mean([item.margin_db for item in perks]), abs=0.4)
    assert planned.threshold_db == pytest.approx(np.mean([item.snr_threshold_db for item in perks]), abs=0.4)
    assert planned.is_perk == (planned.margin_db >= 0)


def test_the_snr_is_the_papers():
    noise = noise_power_w(-173.0, 1e6)
    assert CELL.snr == pytest.approx(1e-9 * float(path_gain(500.0, 2.4e9)) / noise)


@pytest.mark.parametrize(("layout", "participation", "rounds"), [("disk", 1.0, 3), ("ring", 0.4, 12)])
def test_a_fleet_is_followed_device_by_device(layout, participation, rounds):
    """Beyond a thousand devices too: who is heard best in one round is not in the next."""
    q = CELL.with_values({"devices": 1200, "participation": participation, "layout": layout, "rounds": rounds})
    q = q.with_values({"antennas": 4, "neighbours": "zero-out"})
    _, ledgers = ledgers_of(q, seed=5, trials=range(4))
    booked = np.mean([math.log(GaussianAccountant(one, "zero-out", "base-station").mu ** 2) for one in ledgers])
    law = combining(layout, q.active, 4)
    planned = squared_mu(q, law) * loudness(law, layout, 1200, q.active, 4, rounds) * NOISY
    assert 10 * math.log10(planned) == pytest.approx(10 * booked / math.log(10), abs=2.5)
    alone = squared_mu(q, law) * law.loudest_round / law.inverse_norm2 * NOISY
    assert 10 * math.log10(alone / planned) > 1.0  # as if the loudest of every round were one and the same


def test_against_the_base_station_thermal_noise_counts_alone():
    """What its receiver adds is no protection from it, at the same SNR; a colder one is credited as it is."""
    found = {
        density: answer(CELL.with_values({"noise_density_dbm_hz": density, "snr_db": -60.0, "distance_m": None}))
        for density in (-180.0, 10 * math.log10(thermal_power_w(1.0) * 1000), -160.0)
    }
    cold, thermal, noisy = (gaussian_mu(one.epsilon["base-station"], 1e-5) ** 2 for one in found.values())
    assert cold == pytest.approx(thermal, rel=1e-6)
    assert noisy / thermal == pytest.approx(1e-16 / (thermal_power_w(1.0) * 1000), rel=1e-6)
    assert len({one.epsilon["models"] for one in found.values()}) == 1


def test_the_base_station_sees_the_models_too():
    """Where devices take part rarely its own signals tell less of each than all models might."""
    rare = CELL.with_values({"devices": 600, "participation": 0.05, "antennas": 1, "rounds": 500})
    law = combining("disk", rare.active, 1)
    assert NOISY * loudness(law, "disk", 600, rare.active, 1, 500) < 1.0
    assert answer(rare).epsilon["base-station"] == answer(rare).epsilon["models"]


# --- properties


@given(st.sampled_from(["power_w", "rounds", "parameters", "antennas"]), st.integers(2, 5))
def test_what_makes_the_link_better_makes_free_epsilon_larger(name, factor):
    more = CELL.with_values({name: getattr(CELL, name) * factor})
    assert free_epsilon(more) > free_epsilon(CELL)


@given(st.sampled_from(["distance_m", "bandwidth_hz", "devices", "delta"]), st.integers(2, 5))
def test_what_makes_the_link_worse_makes_free_epsilon_smaller(name, factor):
    more = CELL.with_values({name: getattr(CELL, name) * factor})
    assert free_epsilon(more) < free_epsilon(CELL)


def test_the_clip_norm_cancels_at_full_power():
    assert free_epsilon(CELL.with_values({"clip_norm": 77.0})) == free_epsilon(CELL)
    assert answer(CELL.with_values({"clip_norm": 77.0})).noise_to_update == pytest.approx(answer(CELL).noise_to_update)


def test_replace_moves_twice_as_far():
    assert squared_mu(CELL) == pytest.approx(4 * squared_mu(CELL.with_values({"neighbours": "zero-out"})))
    everyone = CELL.with_values({"participation": 1.0})
    assert (CELL.relation, everyone.relation) == ("replace", "zero-out")
    assert CELL.with_values({"sampling": "poisson"}).relation == "zero-out"


def test_a_budget_is_kept_by_holding_power_back_and_costs_noise_and_saves_energy():
    loud, quiet = CELL.with_values({"power_w": 1e-3}), CELL.with_values({"power_w": 1e-13})
    missed, met = answer(loud), answer(quiet)
    assert not missed.is_perk
    assert missed.epsilon_kept["models"] == pytest.approx(4.0, rel=1e-9)
    assert missed.energy_j == pytest.approx(1e-3 * 10 ** (missed.margin_db / 10) * 1000 / 1e6)
    # v = T·S²/μ*², and the ratio √(d v)/K over the averaged update.
    assert gaussian_epsilon(1e-5, math.sqrt(20 * 4.0**2 / missed.noise_var)) == pytest.approx(4.0, rel=1e-9)
    assert missed.noise_to_update == pytest.approx(math.sqrt(1000 * missed.noise_var) / 30 / (0.3 * 2.0))
    assert missed.noise_to_update > missed.free_noise_to_update
    assert met.is_perk
    assert met.epsilon_kept == met.epsilon
    assert met.energy_j == pytest.approx(1e-13 * 1000 / 1e6)
    assert met.mean_energy_j < met.energy_j
    assert missed.airtime_s == met.airtime_s == 1000 / 1e6  # one real value a symbol
    for one in (missed, met):
        assert one.epsilon["base-station"] >= one.epsilon["models"] == one.epsilon["model"]
        low, high = one.epsilon_range
        assert low < one.epsilon["models"] < high


def test_margin_counts_decibels_of_snr():
    found = answer(CELL)
    at_threshold = CELL.with_values({"power_w": CELL.power_w * 10 ** (found.margin_db / 10)})
    assert free_epsilon(at_threshold) == pytest.approx(4.0, rel=1e-9)
    assert found.threshold_db - found.snr_db == pytest.approx(found.margin_db)


def test_the_smallest_number_of_devices_goes_with_the_inverse_ratio():
    """K² against 1: at a quarter of the ratio four times as many devices, whatever d and T."""
    q = CELL.with_values({"participation": 1.0, "power_w": 1e-3})
    one, quarter = answer(q, tolerated=1.0), answer(q, tolerated=0.25)
    assert quarter.smallest_devices == pytest.approx(4 * one.smallest_devices, abs=4)
    again = answer(q.with_values({"devices": one.smallest_devices}))
    assert again.noise_to_update <= 1.0
    assert answer(q.with_values({"devices": one.smallest_devices - 1})).noise_to_update > 1.0
    default = answer(q).smallest_devices
    assert answer(q.with_values({"rounds": 500})).smallest_devices == default


# --- solving


@pytest.mark.parametrize("word", [word for word in WORDS if word not in ("clip", "noise-var")])
def test_every_unknown_of_a_link_round_trips(word):
    """Solve, put the answer back, and find the target; whole numbers to the last one that fits."""
    name = WORDS[word]
    # A link near its threshold, so that every unknown has an answer; epsilon is what such a link gives.
    link = solve(CELL, "power_w")
    given = {key: value for key, value in vars(link).items() if value is not None and key not in ("layout", "sampling")}
    if name == "snr_db":
        given.pop("distance_m")
    given.pop(name, None)
    found = plan(None, given, word)
    q, value = found.quantities, getattr(found.quantities, name)
    assert found.solved_for == name
    assert found.summary["solved_for"] == {"name": word, "value": value}
    assert found.is_perk
    assert found.backoff_db == 0.0
    if name in ("devices", "antennas", "rounds", "parameters"):
        # Several numbers of devices round to the same number of active ones; the smallest is found.
        near = 1.0 / CELL.participation if name == "devices" else 0
        assert getattr(CELL, name) - near <= value <= getattr(CELL, name)
        step = {"devices": -2}.get(name, 1)
        assert free_epsilon(q) <= 4.0 * (1 + 1e-9)
        assert free_epsilon(q.with_values({name: value + step})) > 4.0
    else:
        assert free_epsilon(q) == pytest.approx(q.epsilon, rel=1e-9)
        if name != "snr_db":
            assert value == pytest.approx(getattr(link, name), rel=1e-6)
        assert found.margin_db == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("word", ["clip", "noise-var", "rounds", "epsilon"])
def test_every_unknown_of_a_noise_variance_round_trips(word):
    known = {"clip_norm": 1.5, "noise_var": 400.0, "rounds": 30, "epsilon": 3.0}
    name = WORDS[word]
    # The one that is left out; no noise variance would mean a link, so that one has to be named.
    found = plan(None, {k: v for k, v in known.items() if k != name}, word if word == "noise-var" else None)
    assert found.solved_for == name
    back = plan(None, {**known, name: getattr(found.quantities, name)})
    assert back.solved_for is None
    if name == "rounds":
        assert back.epsilon["models"] <= 3.0
    else:
        assert back.epsilon["models"] == pytest.approx(back.quantities.epsilon, rel=1e-9)


def test_a_link_of_which_nothing_is_said_is_one_unknown():
    given = {"devices": 50, "antennas": 8, "parameters": 1000, "rounds": 10, "epsilon": 2.0}
    found = plan(None, given)
    assert found.solved_for == "snr_db"
    assert plan(None, {**given, "snr_db": found.quantities.snr_db}).epsilon["models"] == pytest.approx(2.0, rel=1e-9)


def test_solving_for_devices_takes_the_smallest():
    q = CELL.with_values({"participation": 1.0, "neighbours": "zero-out"})
    assert solve(q.with_values({"epsilon": 1e6}), "devices").devices == 2
    found = solve(q.with_values({"snr_db": -50.0, "epsilon": 1.0}), "devices")
    assert free_epsilon(found) <= 1.0
    assert free_epsilon(found.with_values({"devices": found.devices - 1})) > 1.0


@given(
    devices=st.integers(2, 1_000_000),
    antennas=st.integers(1, 256),
    parameters=st.integers(10, 10**6),
    rounds=st.integers(1, 500),
    epsilon=st.floats(0.1, 100.0),
)
@settings(max_examples=60, deadline=None)
def test_whole_numbers_round_trip(devices, antennas, parameters, rounds, epsilon):
    """A link that is solved for its SNR has the numbers that it was solved with."""
    known = {"devices": devices, "antennas": antennas, "parameters": parameters, "rounds": rounds, "epsilon": epsilon}
    known["snr_db"] = plan(None, known, "snr").quantities.snr_db
    for name in ("rounds", "parameters"):
        assert getattr(plan(None, {**known, name: None}, name).quantities, name) == known[name]
    fewest = plan(None, {**known, "devices": None}, "devices")
    assert fewest.quantities.devices == devices
    assert fewest.is_perk
    assert fewest.not_at is None
    most = plan(None, {**known, "antennas": None}, "antennas")
    assert most.quantities.antennas == antennas
    assert most.is_perk


def test_a_number_beyond_the_solved_one_that_misses_is_named(call):
    """Where nine of ten take part, four of four do, but four of five: there neighbours are replaced."""
    cell = ("plan", "urban-cell", "--snr", "-78")
    _, out, _ = call(*cell, "--solve-for", "devices", "--json")
    solved = json.loads(out)["solved_for"]
    assert solved["not_at"] > solved["value"]
    _, out, _ = call(*cell, "--devices", str(solved["not_at"]), "--json")
    assert not json.loads(out)["is_perk"]
    _, out, _ = call(*cell, "--solve-for", "devices")
    assert f"{solved['not_at']:,} misses the target" in " ".join(out.split())


@pytest.mark.parametrize(
    "pair",
    [
        "snr_db = -40.0\ndistance_m = 1e6",
        "snr_db = -40.0\nnoise_var = 3.0",
        "active = 10\nparticipation = 0.5",
        "update_norm = 1.0\nalignment = 0.5",
        "clip_factor = 0.1\nclip_norm = 1.0",
    ],
)
def test_a_scenario_that_says_one_thing_twice_is_refused(call, tmp_path, pair):
    (tmp_path / "twice.toml").write_text(f"devices = 100\nparameters = 1000\n{pair}\n")
    code, _, err = call("plan", str(tmp_path / "twice.toml"))
    assert code == 2
    assert "say the same thing" in err


def test_the_clip_norm_follows_the_number_of_parameters(call):
    _, out, _ = call("plan", "urban-cell", "--parameters", "1000", "--json")
    assert json.loads(out)["quantities"]["clip_norm"] == pytest.approx(math.sqrt(12.0))
    _, out, _ = call(
        "plan", "urban-cell", "--snr", "-80", "--solve-for", "parameters", "--update-norm", "0.1", "--json"
    )
    solved = json.loads(out)
    d = solved["solved_for"]["value"]
    assert solved["quantities"]["clip_norm"] == pytest.approx(math.sqrt(0.012 * d))
    again = plan(None, {**solved["quantities"], "alignment": None})  # what a plan prints can be given back
    assert again.noise_var == pytest.approx(solved["noise_var"], rel=1e-12)


def test_answers_out_of_range_and_guesses_are_said(call):
    code, _, err = call("plan", "satellite-iot", "--solve-for", "rounds", "--snr", "-200")
    assert code == 2
    assert "outside of what a plan takes" in err
    _, out, _ = call("plan", "urban-cell")
    assert "a guess here, since the fit has ε from 0.5 to 8" in " ".join(out.split())
    _, out, _ = call("plan", "satellite-iot")
    assert "a guess here" not in out
    _, out, _ = call("plan", "satellite-iot", "--solve-for", "epsilon")
    assert "DP is a perk" not in out
    assert "nothing is held back" in " ".join(out.split())


# --- scenarios, words, the command


def test_scenarios_load_and_have_answers():
    names = ["factory-floor", "lora-wide-area", "satellite-iot", "urban-cell", "urban-micro", "wifi-home"]
    assert scenario_names() == names
    for name in scenario_names():
        quantities, unknown = pose(name, {})
        assert unknown is None
        law = law_of(quantities, draw=draw_law)
        found = answer(quantities, law=law)
        assert all(value > 0 for value in found.epsilon.values())
        assert found.energy_j > 0
        assert linkplan.scenario_text(name).startswith("#")
        free = solve(*pose(name, {}, "epsilon"), law)  # what the whole power gives, however much that is
        assert free.epsilon == pytest.approx(found.epsilon["models"], rel=1e-6)
        assert (found.epsilon_range is None) == (quantities.layout == "ring")
    assert answer(pose("satellite-iot", {})[0]).is_perk
    paper = pose("urban-cell", {})[0]
    assert (paper.devices, paper.active, paper.antennas, paper.parameters) == (50, 45, 100, 582_026)
    assert paper.clip_norm == pytest.approx(83.57, abs=0.01)
    # The paper's noise at its own threshold: 2c, real noise, exact (privacy.md's table by the inverse).
    assert answer(paper.with_values({"epsilon": 112.9})).noise_var == pytest.approx(10_726, rel=0.001)


def test_options_override_a_scenario():
    q, _ = pose("urban-cell", {"devices": 100, "active": 50, "snr_db": -70.0})
    assert (q.devices, q.active, q.snr_db, q.distance_m) == (100, 50, -70.0, None)
    q, _ = pose("urban-cell", {"noise_var": 10.0})
    assert q.noise_var == 10.0
    assert q.antennas is None
    q, unknown = pose("urban-cell", {}, "devices")
    assert (q.devices, unknown) == (None, "devices")


LINK = "--antennas 4 --power 1e-9 --distance 100 --bandwidth 1e6 --parameters 1000 --rounds 10 --epsilon 2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--devices 50", "--antennas, --snr, --parameters, --rounds, --epsilon missing"),
        ("--devices 50 --power 1", "--antennas, --distance, --bandwidth, --parameters, --rounds, --epsilon missing"),
        ("--devices 50 --solve-for epsilon", "missing besides --epsilon, which is solved for"),
        (f"{LINK} --devices 10 --snr 3", "--snr and --distance say the same thing"),
        (f"{LINK} --devices 10 --active 5 --participation 0.5", "--active and --participation say the same thing"),
        (f"{LINK} --devices 10 --active 50", "50 active devices are more than the 10"),
        (f"{LINK} --devices 10 --solve-for devices", "--devices is given and solved for"),
        (f"{LINK} --active 10 --solve-for devices", "give --participation instead"),
        (f"{LINK} --devices 10 --noise-var 3", "--noise-var stands for the whole link"),
        (f"{LINK} --devices 10 --solve-for clip", "cannot solve for the clip norm"),
        (f"{LINK} --devices 10 --solve-for colour", "cannot solve for `colour`; known: devices"),
        (f"{LINK} --devices 1", "the planner knows 2 to 1,000,000 active devices; got 1"),
        (f"{LINK} --devices 10 --update-norm 1", "--update-norm needs --clip"),
        (f"{LINK} --devices 10 --clip 1 --update-norm 2", "--update-norm 2 is more than the clip norm 1"),
        ("urban-cell --update-norm 1 --alignment 0.5", "--update-norm and --alignment say the same thing"),
        (f"{LINK} --devices 0", "`devices` must be a whole number from 1"),
        (f"{LINK} --devices 10 --delta 2", "`delta` must be a number from"),
        (f"{LINK} --devices 10 --power nan", "`power_w` must be a number from"),
        (f"{LINK} --devices 10 --neighbours friends", "`neighbours` must be one of zero-out, replace"),
        ("urban-cell --snr -70 --solve-for power", "leave out --snr"),
        ("urban-cell --noise-var 1 --solve-for parameters", "with --noise-var ε does not depend on it"),
        ("urban-cell --antennas 1000", "the tables of combiners know 1 to 256 antennas; got 1,000: --drops 4 draws"),
        ("urban-cell --solve-for devices --epsilon 1", "dB too good; lower --power or --snr"),
        ("urban-cell --solve-for antennas", "even one antenna leaves free ε at"),
        ("urban-cell --solve-for rounds", "not even one round fits"),
        ("urban-cell --noise-var 1 --out there", "the phase diagram needs a link"),
        ("urban-cell --tolerate 0", "ratio must be positive"),
        ("suburban", "no scenario or file named `suburban`; did you mean `urban-cell`?"),
    ],
)
def test_bad_questions_are_one_sentence(call, arguments, words):
    code, out, err = call("plan", *arguments.split())
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_scenario_files(call, tmp_path):
    (tmp_path / "mine.toml").write_text("devices = 10\nactive = 5\nantennas = 4\nsnr_db = -40\nparameters = 100\n")
    code, out, err = call("plan", "mine.toml", "--rounds", "3", "--json")
    assert code == 0, err
    assert json.loads(out)["solved_for"]["name"] == "epsilon"
    for text, words in (("devices =", "not valid TOML"), ("colour = 1", "unknown key `colour`")):
        (tmp_path / "bad.toml").write_text(text)
        code, _, err = call("plan", "bad.toml")
        assert code == 2
        assert words in err


def test_json_has_what_scripts_rely_on(call):
    code, out, err = call("plan", "urban-cell", "--json")
    assert code == 0, err
    found = json.loads(out.strip().splitlines()[-1])
    assert list(found["epsilon"]) == ["model", "models", "base-station"]
    assert found["is_perk"] is False
    assert found["margin_db"] < -60
    assert found["noise_to_update"] > 0
    assert found["solved_for"] is None
    code, out, _ = call("plan", "urban-cell", "--solve-for", "power", "--json")
    solved = json.loads(out)
    assert solved["solved_for"]["name"] == "power"
    assert solved["margin_db"] == pytest.approx(0.0, abs=1e-9)
    assert 2e-3 * 10 ** (found["margin_db"] / 10) == pytest.approx(solved["solved_for"]["value"])
    code, out, _ = call("plan", "--clip", "1", "--noise-var", "100", "--rounds", "5", "--json")
    assert json.loads(out)["epsilon"]["base-station"] is None


def test_words(call, monkeypatch):
    monkeypatch.setattr(accuracy, "find_study", lambda: None)
    code, out, _ = call("plan", "satellite-iot")
    text = " ".join(out.split())
    assert code == 0
    for part in ("free ε", "curious base station", "unchecked", "one real value each", "Smallest number of devices"):
        assert part in text
    said = " ".join(sentences(answer(solve(CELL, "distance_m"), "distance_m")))
    assert "Solved for distance: " in said
    assert "DP is a perk" in said


def test_phase_diagram(call, tmp_path):
    code, out, err = call("plan", "urban-cell", "--out", "here")
    assert code == 0, err
    assert (tmp_path / "here" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "here" / "plan.pdf").read_bytes().startswith(b"%PDF")
    assert str(tmp_path / "here" / "plan.png") in out


def test_a_plan_loads_no_torch():
    lines = "import sys", "from airfl.linkplan import plan, show", "plan('urban-cell')", "print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# --- the prediction of accuracy


RESULTS = Path(__file__).parents[1] / "experiments" / "results"


def test_the_shipped_predictions_are_fits_of_committed_results():
    study = accuracy.read_measured(RESULTS / "perk.csv")
    for shipped, error in zip(accuracy.SHIPPED.values(), (0.01, 0.025, 0.02), strict=True):
        points = [p for p in study if p.model in shipped.models]
        model = accuracy.fit(points, "")
        assert (shipped.scale, shipped.power) == pytest.approx((model.scale, model.power), rel=0.05)
        assert accuracy.check(shipped, points).median_error < error


def test_sizes_in_between_have_predictions_in_between():
    small, middle, large = (accuracy.shipped(size) for size in (7_850, 15_000, 29_994))
    assert large.scale < middle.scale < small.scale
    assert accuracy.shipped(100) == accuracy.shipped(None) == small
    assert accuracy.shipped(10**7) == accuracy.shipped(582_026) == accuracy.SHIPPED[582_026]
    assert "softmax" in middle.source
    assert "small CNN" in middle.source
    assert "paper" not in middle.source
    assert "softmax" not in accuracy.shipped(100_000).source


def test_the_predicted_cost_does_not_depend_on_the_stated_alignment(call):
    stated = [json.loads(call("plan", "satellite-iot", "--alignment", a, "--json")[1]) for a in ("0.3", "0.6")]
    assert stated[0]["accuracy_cost"] == pytest.approx(stated[1]["accuracy_cost"], rel=1e-12)  # the fit had 0.3 for all
    assert stated[0]["noise_to_update"] == pytest.approx(2.0 * stated[1]["noise_to_update"], rel=1e-9)
    assert stated[0]["smallest_devices"] == stated[1]["smallest_devices"]


@given(st.floats(1e-6, 0.7))
def test_the_prediction_inverts(cost):
    model = accuracy.shipped(10_000)
    assert model.cost(model.residual_for(cost)) == pytest.approx(cost, rel=1e-9)


def write_study(path, model):
    header = "devices,model,epsilon,delta,neighbours,accuracy_mean,accuracy_std,trials,noiseless_accuracy\n"
    with open(path, "w", newline="") as file:
        file.write(header)
        writer = csv.writer(file)
        for devices in (50, 1000, 6000):
            for epsilon in (0.5, 2.0, 8.0, math.inf):
                point = accuracy.Measured(devices, "linear", min(epsilon, 1e6), 1e-5, "zero-out", 0.0, 0.84)
                lost = 0.0 if math.isinf(epsilon) else model.cost(point.residual, 0.84)
                writer.writerow([devices, "linear", epsilon, 1e-5, "zero-out", 0.84 - lost, 0.002, 5, 0.84])
        writer.writerow([50, "linear", 0.1, 1e-5, "zero-out", "nan", 0.0, 0, 0.84])  # every trial diverged
        writer.writerow([50, "linear", 0.1, 1e-5, "zero-out", "", "", 0, 0.84])


def test_a_study_is_fitted_and_checked(call, tmp_path, monkeypatch):
    truth = accuracy.CostModel(0.01, 1.2, "")
    place = tmp_path / "experiments" / "results"
    place.mkdir(parents=True)
    write_study(place / "perk.csv", truth)
    monkeypatch.setattr(accuracy, "find_study", lambda: place / "perk.csv")
    points = accuracy.read_measured(place / "perk.csv")
    assert len(points) == 9  # ε = ∞ has nothing to predict, and cells without accuracy tell nothing
    model = accuracy.fit(points, "study")
    assert (model.scale, model.power) == pytest.approx((truth.scale, truth.power), rel=1e-3)
    assert accuracy.check(model, points).largest_error < 1e-4
    error = accuracy.check(accuracy.shipped(None), points)
    assert error.largest_error > error.median_error > 0
    found = accuracy.cross_check(points)
    assert found is not None
    assert found.largest_error < 1e-3  # the law holds for every number of devices
    odd = [replace(p, accuracy=0.2) if p.devices == 50 else p for p in points]
    found = accuracy.cross_check(odd)
    assert found is not None
    assert found.largest_error > accuracy.check(accuracy.fit(odd, ""), odd).largest_error
    assert accuracy.cross_check([p for p in points if p.devices == 50]) is None  # there are no others
    found = accuracy.cross_check([*points, *(replace(p, model="small-cnn") for p in odd)])
    assert found is not None
    assert found.by_model["linear"][1] < 1e-3 < found.by_model["small-cnn"][1] == found.largest_error
    assert found.summary["by_model"]["linear"]["largest_error"] == found.by_model["linear"][1]
    _, out, _ = call("plan", "satellite-iot")
    said = " ".join(out.split())
    assert "each number of devices is predicted from the others: linear 0.0 points in the median and" in said
    _, out, _ = call("plan", "factory-floor")
    assert "unchecked for small-cnn" in " ".join(out.split())
    (place / "perk.csv").write_text("devices,model\n1,x\n")
    with pytest.raises(InputError, match="cannot read measured accuracies"):
        accuracy.read_measured(place / "perk.csv")
