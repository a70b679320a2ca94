"""Who is left out where the share is chosen: the choice, and that the promise does not rest on it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import airfl
from airfl import simulate
from airfl.catalogue import SHARES
from airfl.devices.task import load_samples, open_task
from airfl.memory import fewest_active
from airfl.privacy import Ledger
from airfl.report.sentences import silence_sentence
from airfl.rounds import Schedule, arrange, share
from airfl.rounds.arrange import arrange_rounds
from airfl.rounds.booking import update_factor
from airfl.rounds.share import error_of_mean, persistence
from airfl.schemes import SCHEMES
from airfl.study import make_plan, make_study
from airfl.sweeps.batch import open_batch
from airfl.testing.small import small_config
from airfl.transceiver import few_rounds, open_radio
from airfl.transceiver.combiners.annealed import annealed_for_most
from airfl.transceiver.combiners.zero_forcing import zero_forcing

DIM = 650
CPU = torch.device("cpu")


@pytest.fixture
def crowd(tiny) -> airfl.Config:
    """40 devices, 4 antennas, so little power that receiver noise rules."""
    changes = {
        "system.num_devices": 40,
        "system.num_antennas": 4,
        "system.participation": 1.0,
        "system.rounds": 6,
        "channel.power_w": 1e-9,
        "scheme.names": ["airfl-dp"],
        "scheme.combiner": "auto",
        "scheme.selection": "aligned",
        "scheme.effort": 0.5,
    }
    return tiny.replace(changes)


def schedule_of(config: airfl.Config, scheme: str = "airfl-mimo", trials: tuple[int, ...] = (0, 1)) -> Schedule:
    return arrange(config, SCHEMES[scheme], open_radio(config, trials), DIM)


def at_db(config: airfl.Config, decibel: float) -> airfl.Config:
    return config.replace({"channel.power_w": config.channel.power_w * 10 ** (decibel / 10)})


def brute_force(config: airfl.Config, scheme: str) -> dict[int, float]:
    """E(k) of every number on the ladder, written out from the designs of the same rounds."""
    system, found = config.system, {}
    for part in SHARES:
        few = few_rounds(open_radio(config, (0,)), config)
        fixed = config.replace({"scheme.selection_keep": part})
        schedule = arrange_rounds(fixed, SCHEMES[scheme], few, DIM)
        k, heard = schedule.active.shape[2], schedule.active[:, : few.link.period]
        noise = DIM * float((schedule.norm**2).mean()) * schedule.link.noise_power / 2 / k**2
        there = np.zeros((len(heard), few.link.period, system.num_devices))
        np.put_along_axis(there, heard, 1.0, axis=2)
        pairs = [(there[:, s] * there[:, t]).mean() for s in range(few.link.period) for t in range(s)]
        x = k / system.num_active
        r = max(0.0, (np.mean(pairs) - x * x) / (x * (1 - x))) if x < 1 else 0.0
        found[k] = noise + (1 / k - 1 / system.num_active) * (1 + (system.rounds - 1) * r)
    return found


@pytest.mark.parametrize("decibel", [-10, 0, 10, 20, 30, 60])
@pytest.mark.parametrize("scheme", ["airfl-mimo", "airfl-dp"])
def test_the_share_has_the_least_error_of_all(crowd, scheme, decibel):
    config = at_db(crowd, decibel)
    errors = brute_force(config, scheme)
    chosen = schedule_of(config, scheme).active.shape[2]
    assert errors[chosen] == min(errors.values())


def test_the_share_follows_noise(crowd):
    """Much noise: near e^−½ = 0.61, where x²·ln(1/x) is largest; none: everyone, for a mean of fewer errs too.

    A random w serves the share x of many equally strong Rayleigh channels at level ln(1/x), and few antennas leave
    little to find that is better.
    """
    config = crowd.replace({"system.num_devices": 200, "system.num_antennas": 2, "channel.distance": "common"})
    radio, powers = open_radio(config, (0,)), [at_db(config, decibel) for decibel in (-20, 30, 70)]
    counts = [arrange(there, SCHEMES["airfl-mimo"], radio.at(there), DIM).active.shape[2] for there in powers]
    assert 0.5 * 200 <= counts[0] <= 0.7 * 200
    assert counts[-1] == 200
    assert counts == sorted(counts)


def test_where_the_promise_asks_for_noise_everyone_transmits(crowd):
    config = at_db(crowd, 20).replace({"privacy.epsilon": 0.05})
    free, bound = schedule_of(config), schedule_of(config, "airfl-dp")
    assert bool((bound.norm > bound.minimum * 1.01).all())  # the floor binds
    assert bound.active.shape[2] == 40
    assert free.active.shape[2] < 40


@pytest.mark.parametrize("scheme", ["airfl-dp", "airfl-dp-online", "airfl-an"])
@pytest.mark.parametrize("decibel", [-10, 5, 20])
def test_no_choice_exceeds_the_budget(crowd, scheme, decibel):
    config = at_db(crowd, decibel).replace({"scheme.names": [scheme], "privacy.epsilon": 2.0, "system.rounds": 3})
    done = airfl.run(config).schemes[scheme]
    assert done.status == "done"
    for ledger in done.ledgers:
        event = ledger.events[0]
        assert event.update_factor == pytest.approx(0.1 / done.transmitting)
        assert event.sensitivity("zero-out") == pytest.approx(1.0)
    everyone = airfl.run(config.replace({"scheme.selection": "all"})).schemes[scheme]
    mine, theirs = (max(record.epsilon for record in run.final()) for run in (done, everyone))
    assert mine <= 2.0 * (1 + 1e-9)
    # Less noise of the link leaves no more of the budget. At the antennas directions count too: there the link of those
    # who are left may be enough.
    enough = scheme == "airfl-an" and all(e.noise_source == "channel" for book in done.ledgers for e in book.events)
    if theirs == pytest.approx(2.0, rel=1e-6) and not enough:
        assert mine == pytest.approx(2.0, rel=1e-6)


def test_the_choice_does_not_depend_on_how_trials_are_batched(crowd):
    whole = schedule_of(crowd, trials=(0, 1, 2))
    for trial in range(3):
        alone = schedule_of(crowd, trials=(trial,))
        assert np.array_equal(alone.active[0], whole.active[trial])
        assert torch.equal(alone.norm[0], whole.norm[trial])
    other_power = open_radio(crowd, (1,))
    _ = arrange(at_db(crowd, 60), SCHEMES["airfl-mimo"], other_power.at(at_db(crowd, 60)), DIM)
    again = arrange(crowd, SCHEMES["airfl-mimo"], other_power.at(crowd), DIM)
    assert np.array_equal(again.active[0], whole.active[1])


def test_designs_of_the_few_rounds_are_shared_by_powers(crowd, monkeypatch):
    radio, made = open_radio(crowd, (0,)), []
    real = annealed_for_most
    monkeypatch.setattr("airfl.transceiver.radio.annealed_for_most", lambda *a: made.append(a[1]) or real(*a))
    for decibel in (0, -3):
        there = at_db(crowd, decibel)
        arrange(there, SCHEMES["airfl-mimo"], radio.at(there), DIM)
    assert len(made) > 4
    assert len(made) == len(set(made)) + 1  # the share that was taken: few rounds, then all


def test_a_fixed_share_is_the_same_as_the_chosen_one(crowd):
    chosen = schedule_of(crowd, "airfl-dp")
    fixed = crowd.replace({"scheme.selection_keep": chosen.active.shape[2] / 40})
    same = schedule_of(fixed, "airfl-dp")
    assert np.array_equal(chosen.active, same.active)
    assert torch.equal(chosen.norm, same.norm)


def test_both_uplinks_hear_the_same_sum_of_those_that_transmit(crowd):
    """Without noise the antennas give Σ over who transmits, and the update divides by how many these are."""
    config = crowd.replace({"channel.noise_density_dbm_hz": -300.0, "system.rounds": 1, "scheme.names": ["airfl-mimo"]})
    config = config.replace({"scheme.selection_keep": 0.7})
    samples = load_samples(config, CPU)
    models, factors = [], []
    for uplink in ("equivalent", "signal"):
        there = config.replace({"scheme.uplink": uplink})
        simulation = simulate.open_simulation(there, "airfl-mimo", open_task(there, (0,), samples))
        step = simulation.advance(simulation.init())
        models.append(step.after.models - simulation.start)
        factors.append(step.after.ledgers[0].events[0].update_factor)
    assert factors == [pytest.approx(0.1 / 28)] * 2
    assert torch.allclose(models[0], models[1], atol=1e-4 * float(models[0].abs().max()))


@pytest.mark.parametrize("same", [True, False])
def test_persistence(same):
    """1 where the same devices are left out again, about 0 where they are drawn anew."""
    generator = np.random.default_rng(1)
    active = np.broadcast_to(np.arange(500), (2, 4, 500))
    rows = [[np.sort(generator.permutation(500)[:300]) for _ in range(4)] for _ in range(2)]
    heard = np.asarray([[row[0]] * 4 for row in rows] if same else rows)
    assert share.persistence(heard, active) == pytest.approx(1.0 if same else 0.0, abs=0.05)


def test_persistence_counts_only_devices_that_are_active_in_both_rounds():
    active = np.array([[[0, 1, 2, 3], [2, 3, 4, 5]]])
    assert share.persistence(np.array([[[0, 2], [2, 4]]]), active) == pytest.approx((0.5 - 0.25) / 0.25)
    assert share.persistence(np.array([[[0, 1], [4, 5]]]), active) == 0.0
    assert share.persistence(active[:, :1, :2], active[:, :1]) == 0.0  # one round has no pairs


def test_the_error_that_adds_up_is_that_of_sums_over_rounds():
    """Var of Σ_t (mean of who is heard − mean of who is active) against c²(1/k − 1/K)·T·(1 + (T − 1)(K/n) r)."""
    n, big, small, rounds, generator = 60, 40, 25, 8, np.random.default_rng(3)
    liking = generator.uniform(0.2, 3.0, n)  # some are heard more often
    totals, heard, active = np.zeros((4000, n)), [], []
    for run in range(4000):
        for _ in range(rounds):
            drawn = generator.choice(n, big, replace=False)
            kept = drawn[np.argsort(generator.exponential(size=big) / liking[drawn])[:small]]
            totals[run, kept] += 1 / small
            totals[run, drawn] -= 1 / big
            heard.append(np.sort(kept))
            active.append(np.sort(drawn))
    # Independent updates of unit length: the expected square of Σ_i weight_i Δ_i is Σ_i weight_i².
    exact = float((totals**2).sum(axis=1).mean())
    shaped = [np.asarray(who).reshape(4000, rounds, -1) for who in (heard, active)]
    again = share.persistence(*shaped)
    formula = (1 / small - 1 / big) * rounds * (1 + (rounds - 1) * big / n * again)
    assert again > 0.05
    assert formula == pytest.approx(exact, rel=0.02)


def test_leaving_out_is_never_worse_than_the_closed_form():
    generator = np.random.default_rng(5)
    h = torch.from_numpy(generator.standard_normal((20, 8, 9)) + 1j * generator.standard_normal((20, 8, 9)))
    design, kept = annealed_for_most(h, 8, 0.1)
    assert torch.equal(kept, torch.arange(8).expand(20, 8))
    assert bool((design.norm <= zero_forcing(h).norm * (1 + 1e-12)).all())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheme.selection_keep": 0.0}, "above 0 and at most 1, or"),
        ({"scheme.selection_keep": 1.5}, "above 0 and at most 1, or"),
        ({"scheme.selection_keep": True}, "above 0 and at most 1, or"),
        ({"scheme.selection_keep": "most"}, "selection_keep: a share .* or \"best\"; got 'most'"),
        ({"scheme.selection": "greedy", "scheme.selection_keep": "best"}, 'goes with selection = "aligned"'),
        ({"scheme.selection": "strongest", "scheme.selection_keep": "best"}, "a number"),
    ],
)
def test_shares_that_are_refused(crowd, changes, words):
    with pytest.raises(airfl.InputError, match=words):
        crowd.replace(changes)


def test_the_share_where_nothing_is_said(crowd):
    assert crowd.scheme.share == "best"
    assert crowd.replace({"scheme.selection": "strongest"}).scheme.share == 0.9
    assert crowd.replace({"scheme.selection_keep": "best"}).scheme.share == "best"
    assert airfl.config.from_toml(crowd.replace({"scheme.selection_keep": 0.5}).to_toml()).scheme.share == 0.5
    assert fewest_active(crowd) == 4  # the end of the ladder
    assert fewest_active(crowd.replace({"scheme.selection_keep": 0.5})) == 20
    field = airfl.json_schema()["$defs"]["SchemeSection"]["properties"]["selection_keep"]
    assert "best" in json.dumps(field)
    assert {"exclusiveMinimum": 0, "maximum": 1, "type": "number"} in field["anyOf"]


def test_a_run_says_how_many_transmit_and_who_is_never_heard(crowd):
    config = crowd.replace({"system.rounds": 1, "scheme.names": ["fedavg", "airfl-mimo"]})
    result = airfl.run(config)
    entry = result.summary["schemes"]["airfl-mimo"]
    assert entry["transmitting"] < 40
    assert entry["never_heard"] == [40 - entry["transmitting"]] * 2
    words = silence_sentence(config, "airfl-mimo", result.schemes["airfl-mimo"])
    assert f"{entry['transmitting']:.0f} of 40 active devices, the share with the least error" in words
    assert "never heard" in words
    assert silence_sentence(config, "fedavg", result.schemes["fedavg"]) == ""


def test_a_study_takes_the_same_share_as_a_run(crowd, tmp_path):
    """Powers of a study share a radio; each has its own number of transmitters, that of the run alone."""
    (tmp_path / "base.toml").write_text(crowd.to_toml())
    powers = [1e-10, 1e-2]
    study = make_study({"name": "shares", "base": str(tmp_path / "base.toml"), "grid": {"channel.power_w": powers}})
    plan = make_plan(study)
    (batch,) = plan.batches
    opened = open_batch(plan, batch, "cpu")
    counts = []
    for number, power in enumerate(powers):
        alone = schedule_of(crowd.replace({"channel.power_w": power}), "airfl-dp")
        schedule = opened[f"{number}/airfl-dp"].schedule
        assert np.array_equal(schedule.active, alone.active)
        counts.append(schedule.normaliser)
    assert counts[0] < counts[1]


@pytest.mark.parametrize("smoothness", [0.1, 0.5])
def test_a_budget_is_planned_with_the_normaliser_that_is_booked(smoothness):
    """With an enforced domain ε depends on what the sum is divided by: the number that transmits, not K."""
    config = small_config(
        {
            "system.rounds": 20, "system.participation": 1.0, "channel.power_w": 10.0, "scheme.selection": "aligned",
            "scheme.selection_keep": 0.5, "learning.domain_diameter": 0.05, "privacy.smoothness": smoothness,
            "learning.local_epochs": None, "learning.local_steps": 2, "privacy.accountant": "convergent",
            "privacy.epsilon": 1.0,
        }
    )  # fmt: skip
    schedule = arrange(config, SCHEMES["airfl-dp"], open_radio(config, [0]), 10, [2])
    promise, booked = schedule.promise, update_factor(config, schedule, 0)
    assert promise.template.update_factor == pytest.approx(booked, rel=1e-12)
    noise = schedule.noise_var[0].tolist()
    events = (replace(promise.template, round=t, noise_var=v, update_factor=booked) for t, v in enumerate(noise))
    assert 0.97 <= promise.spent(Ledger(tuple(events))) <= 1.0


@pytest.mark.parametrize("rounds", [2, 3])
def test_short_runs_see_who_is_left_out_again(rounds):
    far = np.arange(40)[:20]
    always = np.broadcast_to(far, (1, rounds, 20))
    assert persistence(always, np.broadcast_to(np.arange(40), (1, rounds, 40))) == pytest.approx(1.0)
    config = small_config(
        {
            "system.rounds": rounds, "system.num_devices": 40, "system.participation": 1.0, "system.num_antennas": 2,
            "scheme.selection": "strongest", "scheme.selection_keep": 0.5,
        }
    )  # fmt: skip
    few = few_rounds(open_radio(config, [0]), config)
    schedule = arrange_rounds(config, SCHEMES["airfl-mimo"], few, 10)
    heard = schedule.active[:, : few.link.period]
    again = persistence(heard, few.link.active(range(heard.shape[1])))
    clip, keep = schedule.promise.template.clip_norm, schedule.normaliser
    noise = 10 * float(schedule.noise_var.mean()) / keep**2
    left_out = clip**2 * (1 / keep - 1 / 40) * (1 + (rounds - 1) * again)
    assert again > 0.1
    assert error_of_mean(schedule, few.link.period) == pytest.approx(noise + left_out)
