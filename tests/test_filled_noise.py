"""Noise that is filled up by an estimate from the round before: what is added and booked, and no proof."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import airfl
from airfl import privacy
from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis import audit_run
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS, BudgetError, Ledger, make_accountant
from airfl.report.page import write_report
from airfl.report.sentences import headline
from airfl.rounds import settled
from airfl.runs.checkpoint import Checkpoints
from airfl.runs.together import Log
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from airfl.web.detail import Details
from airfl.web.library import Library
from airfl.wording import at_most_text

CELL = {"system.num_antennas": 3, "channel.power_w": 1e-2, "scheme.names": ["park2023"]}
#: Updates that spread so much, and a budget so large, that hardly any noise is needed.
RICH = {"privacy.epsilon": 60.0, "system.rounds": 4}


def opened(overrides=None):
    config = small_config({**CELL, **(overrides or {})})
    return open_simulation(config, "park2023", small_task(config))


def states(simulation):
    found = [simulation.init()]
    for _ in range(simulation.config.system.rounds):
        found.append(simulation.step(found[-1])[0])
    return found


def loud(simulation, spread):
    """The state before round 1, as if the updates of round 0 had spread so much."""
    state = simulation.advance(simulation.init()).after
    return replace(state, spread=torch.full((2,), spread, dtype=torch.float64))


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        RICH,
        {"channel.power_w": 1e-12},
        {"privacy.colluding": 0.3},
        {"system.participation": 0.5},
        {"system.participation": 0.5, "system.sampling": "poisson", "scheme.uplink": "signal"},
    ],
)
def test_its_own_accountant_is_promised_epsilon_and_the_exact_one_is_reported(overrides):
    simulation = opened(overrides)
    *_, state = states(simulation)
    simulation.release(state)
    allowed, neighbours = overrides.get("privacy.epsilon", 5.0), simulation.config.neighbours
    for ledger in state.ledgers:
        own = make_accountant("park2023", ledger, neighbours).epsilon(1e-5)
        exact = make_accountant("gaussian", ledger, neighbours).epsilon(1e-5)
        assert own <= allowed
        assert own <= exact < math.inf
        for event in ledger.events:
            assert event.noise_follows_data
            needed = float(simulation.schedule.needed[0, event.round])  # a billionth more than the promise takes
            assert event.noise_var + event.gradient_var >= needed * (1.0 - 1e-12)
            assert not event.hides_participation


def test_the_estimate_is_that_of_the_round_before():
    simulation = opened(RICH)
    found = states(simulation)
    assert found[0].spread is None
    for row in (0, 1):
        events = found[-1].ledgers[row].events
        assert events[0].gradient_var == 0.0
        assert [event.gradient_var for event in events[1:]] == [float(state.spread[row]) for state in found[1:-1]]


def test_what_updates_are_counted_for_is_not_added():
    simulation = opened()
    quiet, counted, much = (settled(simulation.schedule, loud(simulation, spread)) for spread in (0.0, 0.5, 1e9))
    needed = simulation.schedule.needed[:, 1]
    assert torch.allclose(quiet.unknown_var, needed, rtol=1e-9)
    assert torch.allclose(counted.unknown_var, needed - 0.5, rtol=1e-9)
    assert float(much.cover.own.max()) == 0.0
    assert torch.equal(much.unknown_var, simulation.schedule.unknown_var[:, 1])
    for setting in (quiet, counted, much):  # norms leave room for the most, so the estimate does not show there
        assert torch.equal(setting.combiner, quiet.combiner)
        assert float(setting.power_w.max()) <= 1e-2 * (1 + 1e-9)
    assert float(quiet.power_w.max()) == pytest.approx(1e-2, rel=1e-6)


def test_the_noise_that_is_booked_is_added():
    """A device that looks on knows a sixth of what devices add: the rest is booked."""
    simulation, dim = opened(), 20_000
    setting = settled(simulation.schedule, loud(simulation, 0.7))
    places = setting.active.shape[1]
    block = UpdateBlock(
        torch.arange(2).repeat_interleave(places), torch.arange(places).repeat(2), torch.zeros(2 * places, dim),
        torch.zeros(2 * places),
    )  # fmt: skip
    for uplink in (EquivalentUplink, SignalUplink):
        heard = uplink(5, (0, 1)).receive([block], dim, setting).double()
        assert (heard.square().mean(dim=1) / setting.noise_var).tolist() == pytest.approx([1.0, 1.0], rel=0.05)
    assert torch.allclose(setting.noise_var - setting.unknown_var, setting.cover.own, rtol=1e-9)


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_no_proven_accountant_releases_it(name):
    *_, state = states(opened())
    observer = ACCOUNTANTS[name].observers[0]
    ledger = Ledger.from_mapping(state.ledgers[0].to_mapping())  # the mark survives a file
    assert ledger == state.ledgers[0]
    if ACCOUNTANTS[name].valid:
        for named in (name, ACCOUNTANTS[name]):
            with pytest.raises(BudgetError, match="not a proof"):
                privacy.release(ledger, named, "zero-out", 1e6, 1e-5, observer)
    else:
        assert privacy.release(ledger, name, "zero-out", 1e6, 1e-5, observer) < 1e6
    plain = [replace(event, noise_follows_data=False) for event in ledger.events]
    assert "noise_follows_data" not in Ledger(tuple(plain)).to_mapping()["events"][0]


def test_a_run_that_is_taken_up_again_adds_the_same_noise(tmp_path):
    simulation = opened(RICH)
    *before, last = states(simulation)
    log = Log([simulation])
    log.current = before[2]
    Checkpoints(tmp_path).save(2, {"park2023": log})
    state = Checkpoints(tmp_path).restore({"park2023": simulation})["park2023"].current
    assert torch.equal(state.spread, before[2].spread)
    while state.round < 4:
        state, _ = simulation.step(state)
    assert torch.equal(state.models, last.models)
    assert state.ledgers == last.ledgers


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"channel.csi_error": 0.01}, "csi_error"),
        ({"channel.coherence_hz": 5e6}, "blocks a round"),
        ({"channel.symbols": "complex"}, "complex"),
        ({"system.dropout": 0.1}, "dropout"),
        ({"channel.phase_error_rad": 0.1}, "phase_error_rad"),
    ],
)
def test_what_is_not_worked_out_is_refused(changes, word):
    with pytest.raises(InputError, match=word):
        opened(changes)


def test_there_is_no_claim_to_audit():
    with pytest.raises(InputError, match="not a proof"):
        audit_run(small_config(CELL), "park2023", 20)


def test_antennas_hear_the_noise_that_is_added():
    """√(2 pᴴC⁻¹p) with the real noise of every device: it is in phase only."""
    simulation = opened()
    setting = settled(simulation.schedule, loud(simulation, 0.7))
    paths = (setting.channels[0] * setting.tx_scaling[0].unsqueeze(-1)).numpy()
    rows = np.concatenate([paths.real, paths.imag], axis=1)
    credited = simulation.schedule.link.credited_power
    covered = credited / 2 * np.eye(rows.shape[1]) + float(setting.cover.own[0]) * rows.T @ rows
    brute = np.sqrt(np.einsum("ir,rs,is->i", rows, np.linalg.inv(covered), rows))
    assert np.allclose(setting.seen["base-station"][0].numpy(), brute, rtol=1e-6)


def test_equal_noise_costs_what_it_costs_elsewhere():
    simulation = opened({"channel.power_w": 1e-12})
    usual = small_config({**CELL, "scheme.names": ["airfl-mimo"], "channel.power_w": 1e-12})
    other = open_simulation(usual, "airfl-mimo", small_task(usual))
    (mine, theirs) = (states(one)[-1].ledgers[0] for one in (simulation, other))
    assert np.allclose([e.noise_var for e in mine.events], [e.noise_var for e in theirs.events], rtol=1e-9)
    spent = [make_accountant("gaussian", one, "zero-out").epsilon(1e-5) for one in (mine, theirs)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-9)


SOMEBODY = {"eavesdropper.distance_m": 300.0, "eavesdropper.antennas": 2}


def test_a_report_says_that_nothing_is_proven(tiny, tmp_path):
    changes = {"scheme.names": ["park2023", "airfl-dp"], "privacy.epsilon": 20.0, **SOMEBODY}
    result = airfl.save(airfl.run(tiny.replace(changes)), tmp_path / "run")
    told = " ".join(headline(result))
    assert "so nothing is proven" in told
    assert "booked by `park2023`: no promise" in told
    assert told.count("learns at most") == 2  # both about the other scheme, one of them to the eavesdropper
    assert told.count("learns up to") == 1
    marks = {name: entry["noise_follows_data"] for name, entry in result.summary["schemes"].items()}
    assert marks == {"park2023": True, "airfl-dp": False}
    shown = Details(tmp_path).of(Library(tmp_path).look(), "run:park2023")
    seen = [row["proven"] for one in shown["observers"] for row in one["accountants"]]
    assert len(seen) > 8
    assert not any(seen)
    page = write_report(result, tmp_path / "page").read_text()
    assert "gives away, to whom" in page
    assert page.index("not a proof, for comparison") < page.index(ACCOUNTANTS["gaussian"].assumptions[:30])


def test_nobody_gets_an_upper_bound_from_its_ledger(tiny, tmp_path, call):
    airfl.save(airfl.run(tiny.replace({"scheme.names": ["park2023"], "privacy.epsilon": 20.0})), tmp_path / "run")
    for asked in ((), ("--observer", "base-station"), ("--accountant", "gaussian"), ("--accountant", "park2023")):
        code, out, err = call("epsilon", "--ledger", str(tmp_path / "run"), *asked)
        assert (code, err) == (0, "")
        assert "That is not a proof, since the noise was chosen by an estimate" in " ".join(out.split())
        assert "≤" not in out
        assert "upper bound" not in out
        assert " proven" not in out
        told = json.loads(call("epsilon", "--ledger", str(tmp_path / "run"), *asked, "--json")[1])
        assert (told["epsilon"], told["known"], told["accountant"], told["against"]) == (None, False, None, {})
        assert not any(entry["valid"] for entry in told["accountants"].values())
    ledger = airfl.load(tmp_path / "run").schemes["park2023"].ledgers[0]
    assert privacy.proven([Ledger(), ledger], 1e-5, "zero-out") == []
    with pytest.raises(privacy.PrivacyError, match="estimate from updates"):
        privacy.to_dp_event(ledger, "zero-out")


def test_a_study_says_so_too(tiny, tmp_path, call):
    study = tmp_path / "study"
    changes = {"system.rounds": 2, "privacy.neighbours": "zero-out"}
    rows = airfl.sweep(
        tiny.replace(changes), study, axes={"privacy.epsilon": [20.0]}, schemes=["park2023", "airfl-dp"], progress=None
    )
    assert [row["noise_follows_data"] for row in rows] == [True, False]
    told = " ".join(call("report", str(study))[1].split())
    assert "not a proof) follows an estimate from updates: no ε of it is a proof" in told
    assert "booked is not a proof" not in told
    drawn = call("report", str(study), "--x", "scheme", "--y", "epsilon", "--out", str(tmp_path / "figure"))
    assert drawn[0] == 0, drawn[2]
    assert "is a proof: its noise follows an estimate" in (tmp_path / "figure" / "report.html").read_text()
    (only,) = [row for row in rows if row["scheme"] == "airfl-dp"]
    most = at_most_text(only["epsilon_by_observer"]["base-station"]["gaussian"])
    assert f"learns up to ε = {most}." in told  # about the other one alone


def test_flower_does_not_show_it(tiny):
    course = pytest.importorskip("airfl.flower.course")
    with pytest.raises(InputError, match="estimate from updates"):
        course.Course(tiny, "park2023", 0, None, None)
