"""Poisson participation, sampling credit, and who may claim it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import airfl
from airfl.channel import open_link
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import make_accountant, smallest
from airfl.rounds import arrange
from airfl.rounds.promise import make_promise, sampling_of
from airfl.schemes import SCHEMES
from airfl.simulate import open_simulation
from airfl.transceiver import open_radio


@pytest.fixture
def poisson(tiny) -> Config:
    return tiny.replace(
        {
            "system.sampling": "poisson",
            "system.participation": 0.3,
            "system.rounds": 6,
            "scheme.combiner_columns": "all",
            "scheme.names": ["airfl-dp"],
            "privacy.accountant": "auto",
            "privacy.epsilon": 4.0,
        }
    )


def plan_of(config, scheme="airfl-dp", trials=(0, 1)):
    return arrange(config, SCHEMES[scheme], open_radio(config, trials), 650)


def simulation_of(config, scheme="airfl-dp", trials=(0, 1)):
    return open_simulation(config, scheme, open_task(config, trials, load_samples(config, torch.device("cpu"))))


def test_poisson_draws_are_independent_coins(poisson):
    config = poisson.replace({"system.rounds": 400})
    active = open_link(config, (0,)).active(range(400))
    took_part = np.array([[device in row for device in range(12)] for row in active[0]])
    assert abs(took_part.mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 4800)
    counts = took_part.sum(axis=1)
    assert abs(counts.var() - 12 * 0.3 * 0.7) < 0.6  # binomial, not fixed
    assert np.all(np.diff(np.where(active[0] < 0, 99, active[0]), axis=1) >= 0)  # sorted, silent places last


@pytest.mark.parametrize("columns", ["all", "active"])
@pytest.mark.parametrize("combiner", ["auto", "zero-forcing"])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_poisson_run_keeps_its_promise_and_books_what_it_does(poisson, columns, combiner, rate):
    """Also with rounds in which nobody takes part (rate 0.05 of 12 devices)."""
    config = poisson.replace(
        {"scheme.combiner_columns": columns, "scheme.combiner": combiner, "system.participation": rate}
    )
    simulation = simulation_of(config)
    states = list(simulation.rounds())
    simulation.release(states[-1][0])
    for row, ledger in enumerate(states[-1][0].ledgers):
        for event in ledger.events:
            assert event.sampling == sampling_of(config)
            assert event.update_factor == pytest.approx(config.learning.learning_rate / (12 * rate))
            assert event.noise_var == float(simulation.schedule.noise_var[row, event.round])
            there = simulation.schedule.active[row, event.round]
            booked = states[event.round][0].ledgers[row].devices["base-station"]
            before = states[event.round - 1][0].ledgers[row].devices["base-station"] if event.round else 0.0
            # Who is silent adds nothing to its sum, and everyone else does.
            assert np.array_equal(np.flatnonzero(booked - before > 0), np.sort(there[there >= 0]))


def test_the_same_noise_whoever_takes_part(poisson):
    """With a combiner for all n devices the noise does not depend on the draw; with one for the active it does."""
    all_columns = plan_of(poisson, "airfl-mimo")
    assert all(all_columns.hides_participation)
    other = poisson.replace({"system.participation": 0.6})
    assert torch.equal(plan_of(other, "airfl-mimo").norm, all_columns.norm)
    served = poisson.replace({"scheme.combiner_columns": "active"})
    assert not any(plan_of(served, "airfl-mimo").hides_participation)
    for event in simulation_of(served, "airfl-mimo").step(simulation_of(served, "airfl-mimo").init())[0].ledgers:
        assert not event.events[0].hides_participation


def test_a_floor_above_every_set_hides_participation_too(poisson):
    served = poisson.replace({"scheme.combiner_columns": "active", "privacy.accountant": "sampled"})
    loud = plan_of(served.replace({"channel.power_w": 1.0}))  # π far below the floor
    assert all(loud.hides_participation)
    assert torch.all(loud.norm == loud.budget.floor)
    weak = plan_of(served.replace({"channel.power_w": 1e-12}))  # the power limit binds: the noise tells
    assert not any(weak.hides_participation)
    spent = [make_accountant("gaussian", book, "zero-out").epsilon(1e-5) for book in ledgers_of(served)]
    assert all(e > served.privacy.epsilon for e in spent)  # credit was used, and it was due
    assert all(make_accountant("sampled", book, "zero-out").epsilon(1e-5) <= 4.0 for book in ledgers_of(served))


def ledgers_of(config):
    simulation = simulation_of(config)
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    return state.ledgers


def test_auto_takes_the_tightest_that_is_proven(tiny, poisson):
    def chosen(config):
        return make_promise(config, 650, 1e-13, [3], SCHEMES["airfl-dp"]).accountant

    assert chosen(poisson) == "sampled"
    assert chosen(poisson.replace({"system.participation": 1.0})) == "gaussian"
    # K of n at three quarters: the library's bound is worse than no credit.
    assert chosen(tiny.replace({"privacy.accountant": "auto", "scheme.combiner_columns": "all"})) == "gaussian"
    small = {"learning.domain_diameter": 0.01, "privacy.smoothness": 0.1, "system.rounds": 400}
    domain = poisson.replace({**small, "system.participation": 1.0})
    assert chosen(domain) == "convergent"
    assert chosen(domain.replace({"learning.domain_diameter": 1e6})) == "gaussian"
    assert chosen(tiny.replace({"privacy.accountant": "paper"})) == "paper"  # only when asked for
    assert "paper" not in {chosen(config) for config in (tiny.replace({"privacy.accountant": "auto"}), poisson, domain)}


@pytest.mark.parametrize("over_middle", [1e-2, 1.0, 1e6])
@pytest.mark.parametrize("accountant", ["sampled", "convergent"])
def test_accountants_without_a_total_meet_the_budget_by_a_floor(poisson, accountant, over_middle):
    """Where no round, some or all rounds are lifted; never above the budget, and close to it unless it is a perk."""
    changes = {"privacy.accountant": accountant, "privacy.epsilon": 3.0, "system.trials": 1}
    if accountant == "convergent":
        changes |= {"learning.domain_diameter": 5.0, "privacy.smoothness": 0.1, "system.participation": 1.0}
    config = poisson.replace(changes)
    probe = simulation_of(config, trials=(0,)).schedule
    # π ∝ 1/√P: at this power most of the rounds would lie below the floor of equal rounds.
    middle = config.channel.power_w * (float(probe.minimum[0].quantile(0.8)) / probe.budget.floor) ** 2
    config = config.replace({"channel.power_w": over_middle * middle})
    simulation = simulation_of(config, trials=(0,))
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    plan = simulation.schedule
    spent, lifted = plan.promise.spent(state.ledgers[0]), (plan.norm > plan.minimum).double().mean()
    assert spent <= 3.0
    if over_middle < 1:
        assert lifted == 0.0
    else:
        assert 0 < lifted < 1 if over_middle == 1 else lifted == 1
        assert spent == pytest.approx(3.0, rel=1e-5)
    assert torch.all(plan.norm >= plan.minimum)


def test_what_does_not_go_together_is_refused(poisson):
    for overrides, word in (
        ({"scheme.selection": "strongest", "scheme.combiner_columns": "active"}, "selection"),
        ({"privacy.accountant": "convergent"}, "domain"),
        ({"scheme.names": ["airfl-an"], "channel.csi_error": 0.1}, "airfl-an"),
        ({"scheme.combiner": "zero-forcing", "system.num_antennas": 8}, "antennas"),
    ):
        with pytest.raises(InputError, match=word):
            poisson.replace(overrides)


def test_trials_do_not_depend_on_their_batch(poisson):
    config = poisson.replace({"privacy.accountant": "gaussian"})
    both = airfl.run(config)
    alone = airfl.run(config, trials_per_batch=1)
    assert torch.allclose(both.schemes["airfl-dp"].models, alone.schemes["airfl-dp"].models, atol=1e-6)


def test_gradient_noise_is_estimated_only_when_asked_for(tiny):
    def variances(**privacy):
        state, _ = simulation_of(tiny.replace(privacy=privacy)).step(simulation_of(tiny).init())
        return [ledger.events[0].gradient_var for ledger in state.ledgers], state.ledgers[0]

    assert variances()[0] == [None, None]
    found, ledger = variances(estimate_gradient_noise=True)
    assert all(value > 0 for value in found)
    assert make_accountant("park2023", ledger, "replace").epsilon(1e-5) < make_accountant(
        "gaussian", ledger, "replace"
    ).epsilon(1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_domain_with_poisson_participation_never_refuses_its_own_plan(poisson, seed):
    """Rounds with more devices than expected grow faster; the plan counts with the fullest of them."""
    changes = {"learning.domain_diameter": 0.05, "privacy.smoothness": 2.0, "privacy.accountant": "convergent"}
    changes |= {"system.seed": seed, "system.rounds": 40, "system.participation": 0.5, "privacy.epsilon": 2.0}
    simulation = simulation_of(poisson.replace(changes), trials=(0,))
    *_, (state, _) = simulation.rounds()
    simulation.release(state)


def test_noise_tells_nothing_about_the_draws_or_the_other_trials(poisson):
    """A plan may not look at who was drawn: the noise of a domain's budget is the same for every draw and batch."""
    changes = {"learning.domain_diameter": 0.05, "privacy.smoothness": 2.0, "privacy.accountant": "convergent"}
    changes |= {"system.rounds": 20, "system.participation": 0.5, "channel.power_w": 1.0}
    config = poisson.replace(changes)
    plans = [arrange(config, SCHEMES["airfl-dp"], open_radio(config, trials), 650, [3]) for trials in ((0,), (0, 1, 2))]
    noise = torch.cat([plan.noise_var.flatten() for plan in plans])
    assert torch.all(noise == noise[0])
    assert all(plans[1].hides_participation)


def verdict(config, plan):
    """ε of the channel's own noise, as the run would book it."""
    bare = plan.promise
    if bare.accountant == "sampled" and config.scheme.combiner_columns != "all":
        bare = bare.without_credit()
    return bare.spent(bare.ledger_at(plan.minimum[0], plan.gain_bound[0].square()))


@pytest.mark.parametrize("columns", ["active", "all"])
@pytest.mark.parametrize("beyond", [0.8, 1.25])
def test_the_perk_test_counts_as_the_ledger_does(poisson, columns, beyond):
    """Noise that nobody lifts tells who took part, so credit for hiding it must not make a link a perk."""
    config = poisson.replace({"scheme.combiner_columns": columns, "system.rounds": 12, "system.participation": 0.1})
    louder = plan_of(config, trials=(0,))
    if columns == "active":  # every set is lifted to one floor, and what no credit is due for would tell who came
        assert (louder.hides, louder.perks()) == (True, [])
        louder = plan_of(config.replace({"privacy.accountant": "gaussian"}), trials=(0,))
    (found,) = louder.perks()
    config = config.replace({"channel.power_w": found.power_threshold_w * beyond})
    plan = plan_of(config, trials=(0,))
    (found,) = plan.perks()
    assert plan.promise.accountant == "sampled"
    assert found.is_perk == (beyond < 1.0) == (verdict(config, plan) <= plan.promise.epsilon)
    assert found.margin_db == pytest.approx(-10 * math.log10(beyond), abs=1e-3)
    if columns == "all":
        assert found.is_perk == torch.equal(plan.norm, plan.minimum)


@pytest.mark.parametrize("start", [90.98365097122719, 98.28026905616154, 73.01019165118684])
def test_the_smallest_is_found_next_to_the_first_guess(start):
    """exp(log x) may lie on the other side of the root than x."""
    edge = math.nextafter(start, math.inf)

    def spent(x):
        return math.exp(min(500.0, 1e6 * math.log(edge / x)))

    found = smallest(spent, 1.0, start, 1e-7)
    assert spent(found) <= 1.0
    assert found == pytest.approx(edge, rel=1e-6)


@pytest.mark.parametrize("law", ["dirichlet", "classes"])
def test_sizes_of_devices_do_not_choose_noise_or_accountant(tiny, law):
    """Q follows from the largest device with `local_epochs`, and so did noise, accountant and the booked domain."""
    config = tiny.replace(
        {"learning.domain_diameter": 0.01, "privacy.smoothness": 0.1, "privacy.accountant": "auto",
         "learning.local_epochs": 1, "learning.partition": law, "system.participation": 1.0, "system.rounds": 40,
         "scheme.names": ["airfl-dp"], "channel.power_w": 1e-3}
    )  # fmt: skip
    simulation = simulation_of(config, trials=(0,))
    assert simulation.schedule.promise.accountant == "gaussian"
    assert simulation.schedule.promise.template.domain is None
    with pytest.raises(InputError, match=r"`learning.max_samples_per_device`"):
        config.replace({"privacy.accountant": "convergent"})
    stated = config.replace({"learning.max_samples_per_device": 50})
    one, other = (simulation_of(stated.replace({"system.seed": seed}), trials=(0,)) for seed in (1, 5))
    largest = [int(one_of.task.partitions[0].sizes.max()) for one_of in (one, other)]
    assert max(largest) <= 50
    for one_of in (one, other):
        assert one_of.schedule.promise.accountant == "convergent"
        assert one_of.schedule.promise.template.domain.local_steps == 5  # ⌈50/10⌉, whoever has how many
        state, _ = one_of.step(one_of.init())
        assert state.ledgers[0].events[0].domain.local_steps == 5
    assert one.schedule.promise.budget == other.schedule.promise.budget


def test_sizes_of_an_even_partition_are_public(tiny):
    """They follow from the number of devices and of samples, whatever the labels and draws are."""
    for changes in ({}, {"learning.split": "pooled"}, {"learning.samples_per_device": 30}):
        config = tiny.replace({"learning.partition": "iid", "learning.local_epochs": 1, **changes})
        sizes = {
            tuple(sorted(simulation_of(config.replace({"system.seed": seed}), trials=(0,)).task.partitions[0].sizes))
            for seed in range(3)
        }
        assert len(sizes) == 1
