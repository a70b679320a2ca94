"""What hiding from the base station costs: a plan against runs of the same link, its search, and what it refuses."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch

import airfl
from airfl.analysis import cover_plan, plan_cover
from airfl.analysis.cover_plan import few_rounds_of
from airfl.analysis.relabelled import relabelled_rounds
from airfl.channel import open_link
from airfl.errors import InputError
from airfl.linkplan import Quantities, answer
from airfl.privacy import Ledger, gaussian_mu
from airfl.privacy.ratios import seen_mu
from airfl.report.cover_plan import cover_sentences
from airfl.rounds import arrange, book
from airfl.rounds.enough import LADDER, NEARLY, hides_within
from airfl.rounds.hiding import Problem
from airfl.rounds.shield import _least, cover_kind
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

#: Softmax regression on digits, so that it can be run.
CELL = Quantities(
    devices=30,
    antennas=4,
    power_w=1e-2,
    distance_m=500.0,
    bandwidth_hz=1e6,
    parameters=650,
    rounds=6,
    clip_norm=1.0,
    epsilon=4.0,
)
WEAK = CELL.with_values({"power_w": 1e-6})
FEW = CELL.with_values({"antennas": 20, "participation": 0.8, "layout": "ring"})
LONG = {"devices": 100, "antennas": 8, "rounds": 48}


def run_of(q: Quantities, **changes: object) -> airfl.Config:
    """The run that a plan is about."""
    channel = {
        "channel.power_w": q.power_w,
        "channel.cell_radius_m": q.distance_m,
        "channel.min_distance_m": q.distance_m * (1.0 if q.layout == "ring" else 1e-3),
        "channel.bandwidth_hz": q.bandwidth_hz,
    }
    return airfl.preset("paper").replace(
        {
            "system.seed": 0,
            "system.trials": 1,
            "system.num_devices": q.devices,
            "system.num_antennas": q.antennas,
            "system.participation": q.participation,
            "system.rounds": q.rounds,
            "learning.dataset": "digits",
            "learning.split": "standard",
            "learning.model": "softmax",
            "learning.local_steps": 1,
            "learning.clip_norm": q.clip_norm,
            "privacy.epsilon": q.epsilon,
            "privacy.accountant": "gaussian",
            "scheme.names": ["airfl-dp", "airfl-shielded"],
            "scheme.combiner": "auto",
            **channel,
            **changes,
        }
    )


def problem_of(q: Quantities) -> Problem:
    config, radio = few_rounds_of(q, q.antennas)
    return cover_plan._problem(config, radio, q.parameters, cover_kind(config, q.active))


@pytest.fixture
def no_search(monkeypatch):
    """Other numbers of antennas take time."""
    monkeypatch.setattr(cover_plan, "_rungs", lambda q: [q.antennas])


# --- against runs


@pytest.mark.parametrize(("q", "kind"), [(CELL, "quadrature"), (FEW, "masks")])
def test_a_plan_is_the_run_where_it_draws_all_rounds(no_search, q, kind):
    """The same seed and not many rounds: noise, price, decibels and ε are the run's, to rounding."""
    found, result = plan_cover(q), airfl.run(run_of(q))
    assert found.rounds == found.made_rounds == q.rounds
    assert found.kind == kind
    used = result.schemes["airfl-shielded"].cover[0]
    assert found.power_db == pytest.approx(used.power_db, abs=1e-6)
    assert found.power_db > 10.0
    assert bool(used.masks) == (kind == "masks")
    for name, scheme in (("trusted", "airfl-dp"), ("shielded", "airfl-shielded")):
        row, run = found.rows[name], result.schemes[scheme]
        noise = float(np.mean([record.noise_var for record in run.records]))
        assert row.noise_std**2 == pytest.approx(noise, rel=1e-6)
        by_observer = result.summary["schemes"][scheme]["epsilon_by_observer"]
        for observer in ("models", "base-station") if name == "shielded" else ("models",):
            assert row.epsilon[observer] == pytest.approx(by_observer[observer]["gaussian"], rel=1e-5)
    assert found.rows["shielded"].price_db == pytest.approx(used.price_db, abs=1e-4)
    # Noise that the sum hears too does the same for more of it.
    alone = airfl.run(run_of(q, **{"scheme.names": ["airfl-shielded"], "scheme.cover": "none"}))
    noise = float(np.mean([record.noise_var for record in alone.schemes["airfl-shielded"].records]))
    assert found.rows["own-noise"].noise_std ** 2 == pytest.approx(noise, rel=1e-6)
    assert found.rows["own-noise"].price_db > found.rows["shielded"].price_db + 1.0


def test_decibels_that_are_missing_are_those_of_the_refusal(no_search):
    found = plan_cover(WEAK)
    assert not found.is_enough
    with pytest.raises(InputError) as refused:
        airfl.run(run_of(WEAK))
    said = re.search(
        r": (\d+) dB are missing, .* take ([\d.]+) dB more noise .*power_w` = ([\d.e-]+)", str(refused.value)
    )
    assert f"{found.missing_db:.0f}" == said.group(1)
    assert f"{found.rows['shielded'].price_db:.1f}" == said.group(2)
    assert f"{found.missing_db:.0f} dB of power are missing" in cover_sentences(found, WEAK)[1]
    # What the refusal asks for is enough, and a decibel less than what is missing is not.
    assert arrange_shielded(WEAK, float(said.group(3))).shields[0].price_db <= 3.0
    with pytest.raises(InputError, match="dB are missing"):
        arrange_shielded(WEAK, WEAK.power_w * 10 ** ((found.missing_db - 1.0) / 10))


def test_decibels_to_spare_can_be_spared(no_search):
    found = plan_cover(CELL)
    assert found.is_enough
    assert found.missing_db is None
    assert found.spare_db > 1.0
    assert f"with {found.spare_db:.0f} dB to spare" in cover_sentences(found, CELL)[1]
    assert arrange_shielded(CELL, CELL.power_w * 10 ** (-found.spare_db / 10)).shields[0].price_db <= 3.0
    with pytest.raises(InputError, match="dB are missing"):
        arrange_shielded(CELL, CELL.power_w * 10 ** (-(found.spare_db + 1.5) / 10))


def arrange_shielded(q: Quantities, power: float):
    config = run_of(q, **{"channel.power_w": power})
    return arrange(config, SCHEMES["airfl-shielded"], open_radio(config, [0]), q.parameters)


@pytest.mark.parametrize(("layout", "participation"), [("disk", 1.0), ("ring", 0.4), ("disk", 0.4)])
def test_few_rounds_stand_for_many(layout, participation, no_search):
    """48 rounds made of 16: noise within a decibel (own noise one and a half), cover within a step of its ladder."""
    q = CELL.with_values({**LONG, "layout": layout, "participation": participation, "power_w": 1e-4})
    found = plan_cover(q)
    assert (found.rounds, found.made_rounds) == (16, 48)
    config = run_of(q, **{"scheme.cover_price_db": 1000.0})
    radio = open_radio(config, [0])
    whole = arrange(config, SCHEMES["airfl-shielded"], radio, q.parameters).shields[0]
    assert found.rows["shielded"].price_db == pytest.approx(whole.price_db, abs=1.0)
    assert found.power_db == pytest.approx(whole.used.power_db, abs=6.5)
    alone = config.replace({"scheme.cover": "none"})
    none = arrange(alone, SCHEMES["airfl-shielded"], radio.at(alone), q.parameters).shields[0]
    assert found.rows["own-noise"].price_db == pytest.approx(none.price_db, abs=1.5)
    # What is booked of the rounds is what the cover was found for.
    assert found.rows["own-noise"].epsilon["base-station"] == pytest.approx(q.epsilon, rel=1e-3)


@pytest.mark.parametrize("layout", ["disk", "ring"])
def test_an_open_base_station_has_one_number_and_runs_have_it(no_search, layout):
    """What it learns hangs on who is unlucky, so few rounds do not tell: all of several runs do, on average."""
    q = CELL.with_values({**LONG, "layout": layout})
    planned = answer(q).epsilon_kept
    assert plan_cover(q).rows["trusted"].epsilon == {who: planned[who] for who in ("models", "base-station")}
    logs = []
    for seed in range(6):
        config = run_of(q, **{"system.seed": seed})
        schedule, ledger = arrange(config, SCHEMES["airfl-dp"], open_radio(config, [0]), q.parameters), Ledger()
        for t in range(q.rounds):
            ledger = book(schedule, schedule.setting(t), lambda row: None)[0].on(ledger)
        logs.append(math.log(seen_mu(ledger, q.relation, "base-station")))
    law = math.log(gaussian_mu(planned["base-station"], 1e-5))
    assert np.mean(logs) == pytest.approx(law, abs=3.0 * np.std(logs, ddof=1) / math.sqrt(len(logs)) + 0.03)


# --- the search


def test_a_quick_answer_is_the_searchs():
    """Some cover within the limit there is exactly if the least noise is within it, but for what is nearly as good."""
    answers = []
    for power in (1e-6, 1e-4, 1e-3, 1e-2, 1.0):
        problem = problem_of(CELL.with_values({"power_w": power}))
        price = _least(problem, "quadrature").price_db
        answers.append(hides_within(problem, "quadrature"))
        assert answers[-1] == (price <= 3.0) or price == pytest.approx(3.0, abs=0.2)
    assert answers[0] is False
    assert answers[-1] is True


@pytest.mark.parametrize("q", [CELL, FEW])
def test_a_cover_with_a_given_noise_has_it_and_keeps_the_promise(q):
    problem, kept = problem_of(q), 0
    kind = cover_kind(problem.config, q.active)
    for level in LADDER[::3]:
        for noise in (0.5 * problem.trusted, 1.3 * problem.trusted, 30.0 * problem.trusted):
            shield = problem.at_noise(kind, level, noise)
            if shield is not None:
                kept += 1
                assert shield.noise == pytest.approx(noise, rel=1e-6)
                assert problem.spent(shield.norms, shield.cover) <= problem.target
                assert bool((shield.norms >= problem.least_norms(shield.cover) * (1 - 1e-12)).all())
    assert kept > 3
    assert problem.at_noise(kind, LADDER[0], problem.trusted / NEARLY) is None


def test_antennas(monkeypatch):
    """More power never takes antennas away; the answer hides, and one more does not."""
    # Noise in quadrature alone would end between 16 and 31 antennas at 0.1 mW; masks go on.
    monkeypatch.setattr(cover_plan, "SEARCH_COEFFICIENTS", 3200)
    powers = (1e-6, 1e-5, 1e-4)
    links = [CELL.with_values({"devices": 100, "power_w": power}) for power in powers]
    found = [plan_cover(q) for q in links]
    most = [one.most_antennas for one in found]
    assert most[0] < most[1] <= most[2] == found[0].tried_antennas == 32

    def hides(q, antennas):
        config, radio = few_rounds_of(q, antennas, effort=cover_plan.SEARCH_EFFORT)
        return hides_within(cover_plan._problem(config, radio, q.parameters, "quadrature"), "quadrature")

    assert hides(links[0], most[0])
    assert not hides(links[0], most[0] + 1)
    assert found[1].not_antennas
    for q, one in zip(links, found, strict=True):
        assert [m for m in (1, 2, 8, 16) if m < one.most_antennas and not hides(q, m)] == [
            m for m in one.not_antennas if m != q.antennas
        ]


# --- few rounds that stand for many


@pytest.mark.parametrize("layout", ["disk", "ring"])
def test_rounds_that_come_again_have_the_same_channels_under_other_names(layout):
    config = run_of(CELL.with_values({"layout": layout, "participation": 0.5, "rounds": 12}))
    radio, plain = relabelled_rounds(config, 3), open_link(config, [0])
    link = radio.link
    assert np.array_equal(link.channels(range(3)), plain.channels(range(3)))
    assert np.array_equal(link.active(range(3)), plain.active(range(3)))
    design, active, _ = radio.rounds(config, range(12))
    moved = 0
    for t in range(3, 12):
        names, own = link.names(t), plain.channels([t % 3])[0, 0]
        assert sorted(names) == list(range(30))
        moved += int((names != np.arange(30)).sum())
        assert np.array_equal(link.channels([t])[0, 0], own[names])
        assert np.array_equal(link.known(0, t), own[names])  # what covers are found with
        # Who takes part has the channels of those who did, so the combiner still reaches everybody.
        assert {*names[active[0, t]]} == {*plain.active([t % 3])[0, 0]}
        assert bool((active[0, t][1:] > active[0, t][:-1]).all())
        heard = torch.from_numpy(link.channels([t])[0, 0][active[0, t]].conj()) @ design.combiner[0, t]
        assert float(heard.abs().min()) > 1.0 - 1e-9
        if layout == "disk":
            gain = plain.law.amplitude[0]
            order = np.argsort(-gain)
            assert names[order[0]] == order[0]
            assert set(names[order[16:]]) == set(order[16:])
    assert moved > 100


def test_fewer_rounds_get_their_part_of_the_budget():
    for rounds, epsilon in ((6, 4.0), (10**9, 4.0), (10**6, 1e-3), (64, 1e6)):
        q = CELL.with_values({"rounds": rounds, "epsilon": epsilon})
        config, radio = few_rounds_of(q, 4)
        made = config.system.rounds
        part = gaussian_mu(config.privacy.epsilon, config.privacy.delta) ** 2
        assert part * rounds / made == pytest.approx(gaussian_mu(epsilon, 1e-5) ** 2, rel=1e-6)
        assert radio.link.period <= made <= min(rounds, 64)


def test_an_snr_is_turned_into_a_power(no_search):
    """Any power and distance with the same SNR give the same plan."""
    as_power = plan_cover(CELL)
    q = CELL.with_values({"power_w": None, "distance_m": None, "bandwidth_hz": None})
    as_snr = plan_cover(q.with_values({"snr_db": 10 * math.log10(CELL.snr)}))
    assert as_snr.spare_db == as_power.spare_db
    for name, row in as_power.rows.items():
        other = as_snr.rows[name]
        assert other.noise_std == pytest.approx(row.noise_std, rel=1e-5)
        assert other.epsilon["base-station"] == pytest.approx(row.epsilon["base-station"], rel=1e-4)


# --- the command

LINK = "--devices 30 --antennas 4 --distance 500 --bandwidth 1e6 --parameters 650 --rounds 6 --clip 1 --epsilon 4"


def test_the_command(call, no_search):
    arguments = f"{LINK} --power 1e-2".split()
    code, out, err = call("plan", *arguments, "--json")
    assert code == 0, err
    without = json.loads(out)
    assert without["shielded"] is None
    code, out, err = call("plan", *arguments, "--observer", "base-station", "--json")
    assert code == 0, err
    found = json.loads(out.strip().splitlines()[-1])
    assert {**found, "shielded": None} == without
    shielded = found["shielded"]
    assert shielded["kind"] == "quadrature"
    assert shielded["is_enough"] is True
    assert list(shielded["rows"]) == ["trusted", "shielded", "own-noise"]
    trusted, hidden, own = shielded["rows"].values()
    assert trusted["epsilon"]["base-station"] > 5 * hidden["epsilon"]["base-station"]
    assert hidden["epsilon"]["base-station"] == pytest.approx(4.0, rel=1e-4)
    assert trusted["epsilon"]["base-station"] == found["epsilon_kept"]["base-station"]
    assert trusted["noise_to_update"] == pytest.approx(found["noise_to_update"], rel=1e-3)
    assert trusted["accuracy_cost"] <= hidden["accuracy_cost"] < own["accuracy_cost"]
    code, out, err = call("plan", *arguments, "--observer", "base-station")
    said = " ".join(out.split())
    assert code == 0, err
    assert "K = 30 is at least 2m − 1 = 7" in said
    assert "dB to spare" in said
    assert "The base station may have 4 antennas at most" in said
    assert not any(line.endswith("…") for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--clip 1 --noise-var 10 --rounds 5 --epsilon 2", "--noise-var does not say"),
        (f"{LINK} --power 1e-2 --antennas 250 --devices 9000", "more channels than --observer base-station draws"),
        (f"{LINK} --snr 300 --bandwidth 1e6", "say the same thing"),
        ("--devices 9 --antennas 2 --snr 300 --parameters 9 --rounds 2 --epsilon 2", "cannot be drawn"),
        ("--devices 9 --antennas 2 --snr 3 --parameters 9 --rounds 2 --epsilon 1e12", "cannot be drawn"),
        ("--devices 9 --power 1", "missing"),
    ],
)
def test_bad_questions_are_one_sentence(call, arguments, words):
    code, out, err = call("plan", *arguments.split(), "--observer", "base-station")
    assert code == 2
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_other_observers_and_incomplete_quantities_are_refused(call):
    code, _, err = call("plan", "urban-cell", "--observer", "models")
    assert code == 2
    assert "--observer must be base-station" in err
    with pytest.raises(InputError, match="--antennas, --rounds missing"):
        plan_cover(CELL.with_values({"antennas": None, "rounds": None}))
    with pytest.raises(InputError, match="--power missing"):
        plan_cover(CELL.with_values({"power_w": None}))


def test_words_for_every_outcome(no_search):
    from dataclasses import replace

    found = plan_cover(CELL)
    antennas = replace(found, most_antennas=64, tried_antennas=256, not_antennas=(2, 8, 16))
    assert "not 2, 8 and 16" in cover_sentences(antennas, CELL)[2]
    assert "no number of antennas up to 256" in cover_sentences(replace(antennas, most_antennas=None), CELL)[2]
    for change, words in (
        ({"spare_db": None}, "any lower power does too"),
        ({"is_enough": False, "spare_db": None}, "No power is enough"),
        ({"power_db": 0.0}, "no cover at this power"),
        ({"rows": {**found.rows, "shielded": None}}, "No cover and no noise"),
    ):
        assert words in cover_sentences(replace(found, **change), CELL)[1]
