"""Artificial noise at the devices, and the schemes of prior work."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.setting import NO_EDGES
from airfl.channel.noise import thermal_power_w
from airfl.devices.updates import UpdateBlock
from airfl.privacy import BudgetError, Ledger, make_accountant
from airfl.rounds import check_views
from airfl.transceiver import Cover, base_station_sight
from tests.test_participation import plan_of, simulation_of


@given(seed=st.integers(0, 10**6), k=st.integers(1, 7), m=st.integers(1, 7), nu=st.sampled_from([0.0, 0.1, 30.0]))
def test_visibility_is_the_coloured_quadratic_form(seed, k, m, nu):
    """√(2 pᴴ C⁻¹ p) in complex numbers, C = σ²I + ν Σ ppᴴ: circular noise is the same in phase and in quadrature."""
    rng = np.random.default_rng(seed)
    paths = rng.standard_normal((k, m)) + 1j * rng.standard_normal((k, m))
    sigma2, growth = 0.7, 1.3
    cover = sigma2 * np.eye(m) + nu * sum(np.outer(p, p.conj()) for p in paths) / growth**2
    brute = [math.sqrt(2 * (p.conj() @ np.linalg.solve(cover, p)).real) / growth for p in paths]
    sight = base_station_sight(torch.from_numpy(paths), sigma2, NO_EDGES, np.ones(k, dtype=bool))
    found = sight.seen(torch.tensor(growth**2, dtype=torch.float64), Cover.of(own=nu / 2, quadrature=nu / 2))
    assert np.allclose(found.numpy(), brute, rtol=1e-9)


@pytest.fixture
def guarded(tiny):
    return tiny.replace({"privacy.epsilon": 20.0, "system.participation": 1.0, "scheme.names": ["airfl-an"]})


def test_the_base_station_is_kept_to_the_budget(guarded):
    simulation = simulation_of(guarded, "airfl-an")
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    for row, ledger in enumerate(state.ledgers):
        curious = make_accountant("gaussian", ledger, "zero-out", "base-station").epsilon(1e-5)
        assert curious <= 20.0
        assert curious == pytest.approx(20.0, rel=2e-6)
        outside = make_accountant("gaussian", ledger, "zero-out", "model").epsilon(1e-5)
        assert outside < curious  # the model is covered by everyone's noise, a device at the antennas by its own
        event = ledger.events[0]
        nu, q = 2 * float(simulation.schedule.cover.own[row]), float(simulation.schedule.norm[row, 0])
        assert nu == 2 * float(simulation.schedule.cover.quadrature[row])
        assert event.noise_source == "channel+artificial"
        # A device that looks on knows its own noise: that of the eleven others is booked.
        assert event.noise_var == pytest.approx(q * q * event.noise_power / 2 + 11 * nu / 2)
        # The number that the ledger keeps is the coloured quadratic form over the paths that were used; of the
        # receiver's noise, what no receiver can do without is credited.
        sigma2, totals = thermal_power_w(guarded.channel.bandwidth_hz), np.zeros(12)
        assert sigma2 == pytest.approx(event.noise_power / 10**0.0975, rel=1e-4)
        for event in ledger.events:
            setting = simulation.schedule.setting(event.round)
            assert float(setting.power_w.max()) <= guarded.channel.power_w * (1 + 1e-9)
            paths = (setting.channels[row] * setting.tx_scaling[row].unsqueeze(1)).numpy()
            cover = sigma2 * np.eye(16) + nu * sum(np.outer(p, p.conj()) for p in paths)
            brute = [2 * (p.conj() @ np.linalg.solve(cover, p)).real for p in paths]
            assert event.base_station == pytest.approx(math.sqrt(max(brute)), rel=1e-6)
            totals[setting.active[row]] += brute
        assert np.allclose(ledger.devices["base-station"], totals, rtol=1e-6)


def test_a_budget_that_the_channel_already_keeps_asks_for_no_artificial_noise(guarded):
    plan = plan_of(guarded.replace({"channel.power_w": 1e-16}), "airfl-an")
    assert plan.cover.is_nothing()
    assert torch.equal(plan.norm, plan.minimum)


def test_distrust_costs_noise(guarded):
    trusting = plan_of(guarded, "airfl-dp")
    distrusting = plan_of(guarded, "airfl-an")
    assert bool((distrusting.noise_var > 5 * trusting.noise_var).all())


def test_artificial_noise_is_the_same_in_both_uplinks(guarded):
    """The noise booked is the noise added, whoever adds it."""
    plan = plan_of(guarded, "airfl-an", trials=(0,))
    setting = plan.setting(1)
    dim = 100_000
    silence = UpdateBlock(torch.zeros(12, dtype=torch.int64), torch.arange(12), torch.zeros(12, dim), torch.zeros(12))
    booked = float(plan.noise_var[0, 1])
    for kind in (EquivalentUplink, SignalUplink):
        noise = kind(3, (0,)).receive([silence], dim, setting)[0].double()
        assert float(noise.var()) == pytest.approx(booked, rel=5 * math.sqrt(2 / dim))


def test_adaptive_power_spends_late_and_within_its_budget(tiny):
    config = tiny.replace({"system.rounds": 8, "scheme.contraction": 0.5, "channel.power_w": 1.0})
    plan = plan_of(config, "liu2020", trials=(0,))
    norms = plan.norm[0]
    assert bool((norms[1:] < norms[:-1]).all())
    assert torch.allclose(norms[1:] / norms[:-1], torch.full((7,), 0.5**0.25, dtype=torch.float64))
    assert math.fsum((1 / norms.square()).tolist()) <= plan.budget.total
    assert math.fsum((1 / norms.square()).tolist()) == pytest.approx(plan.budget.total, rel=1e-9)
    even = plan_of(config.replace({"scheme.contraction": 1.0}), "liu2020", trials=(0,)).norm[0]
    assert torch.allclose(even, even[0].expand(8))


@given(st.integers(0, 10**6), st.floats(0.3, 1.0), st.floats(0.2, 3))
def test_adaptive_power_is_optimal(seed, contraction, share):
    """No small exchange of budget between two rounds improves Σ ω q²."""
    from airfl.transceiver import allocate

    rng = np.random.default_rng(seed)
    pi = torch.from_numpy(rng.uniform(0.5, 2.0, 6))
    omega = contraction ** torch.arange(5, -1, -1, dtype=torch.float64)
    total = share * float((1 / pi.square()).sum())
    q = torch.maximum(allocate(pi * omega.sqrt(), total, omega) / omega.sqrt(), pi)
    spend, cost = 1 / q.square(), float((omega * q.square()).sum())
    for i in range(6):
        for j in range(6):
            moved = spend.clone()
            step = 1e-4 * float(min(spend[i], spend[j]))
            moved[i] -= step
            moved[j] += step
            trial = moved.rsqrt()
            if i != j and bool((trial >= pi).all()):
                assert float((omega * trial.square()).sum()) >= cost * (1 - 1e-9)


def test_per_round_budgets_hold_for_each_round_and_not_for_all(tiny):
    config = tiny.replace({"privacy.epsilon": 0.9, "scheme.names": ["koda2020"], "system.rounds": 10})
    entry = airfl.run(config).summary["schemes"]["koda2020"]
    assert entry["status"] == "done"
    assert entry["epsilon"]["koda2020"] <= 0.9
    assert entry["epsilon"]["gaussian"] > 1.5  # ten rounds together


def test_all_schemes_in_one_run(tiny):
    result = airfl.run(tiny.replace({"scheme.names": ["airfl-dp", "airfl-an", "liu2020", "koda2020"]}))
    for name, entry in result.summary["schemes"].items():
        assert entry["status"] == "done", name
    assert result.summary["budget_accountant"] == "gaussian"
    assert {entry["accountant"] for entry in result.summary["schemes"].values()} == {"gaussian", "liu2020", "koda2020"}


@pytest.mark.parametrize("law", ["poisson", "fixed"])
def test_noise_of_the_devices_own_earns_no_sampling_credit(guarded, law):
    """Its amount in the sum tells how many took part, and who."""
    changes = {"system.sampling": law, "system.participation": 0.5, "scheme.combiner_columns": "all"}
    config = guarded.replace(changes)
    assert not any(plan_of(config, "airfl-an").hides_participation)
    assert all(plan_of(config, "airfl-dp").hides_participation)


def test_a_device_that_sees_the_models_knows_its_own_noise(guarded):
    plan = plan_of(guarded, "airfl-an")
    own = plan.cover.own.unsqueeze(1)
    assert float(own.min()) > 0
    assert torch.allclose(plan.noise_var - plan.unknown_var, own.expand_as(plan.noise_var), rtol=1e-9)
    *_, (state, _) = simulation_of(guarded, "airfl-an").rounds()
    booked = torch.tensor([[event.noise_var for event in ledger.events] for ledger in state.ledgers])
    assert torch.allclose(booked.double(), plan.unknown_var[: len(booked)], rtol=1e-6)


@pytest.fixture
def lonely(guarded):
    """Ten devices and one antenna; in some rounds one of them sends, in some nobody."""
    changes = {"system.num_devices": 10, "system.num_antennas": 1, "system.participation": 0.3, "system.rounds": 10}
    return guarded.replace({**changes, "system.sampling": "poisson", "privacy.epsilon": 1.0, "scheme.combiner": "auto"})


def test_empty_rounds_tell_nothing_and_a_lone_sender_is_covered_by_itself(lonely):
    """ε models was 88.8 where the base station, which sees more, had 1."""
    seen = set()
    for seed in range(12):
        simulation = simulation_of(lonely.replace({"system.seed": seed}), "airfl-an", trials=(0,))
        *_, (state, _) = simulation.rounds()
        simulation.release(state)
        (ledger,), plan = state.ledgers, simulation.schedule
        nu, q = 2 * float(plan.cover.own[0]), plan.norm[0]
        for event, count in zip(ledger.events, plan.sending[0].tolist(), strict=True):
            seen.add(min(count, 2))
            assert event.gain_bound == (1.0 if count else 0.0)
            channel = float(q[event.round]) ** 2 * event.noise_power / 2
            assert event.noise_var == pytest.approx(channel + nu * (count - 1 if count > 1 else count) / 2)
            # With the noise of all K in it a sum tells no more than the antenna; with K − 1, at most twice that.
            told = event.sensitivity("zero-out") ** 2 / float(plan.noise_var[0, event.round])
            assert told <= event.base_station**2 * (1 + 1e-9)
        models, curious = (
            make_accountant("gaussian", ledger, "zero-out", observer) for observer in ("models", "base-station")
        )
        assert curious.epsilon(1e-5) <= 1.0
        loudest = [event.base_station**2 for event in ledger.events]
        assert models.mu**2 <= 2 * math.fsum(loudest) * (1 + 1e-9)
        assert models.epsilon(1e-5) < 5.0
    assert seen == {0, 1, 2}


def test_a_ledger_by_which_the_model_tells_more_than_the_antennas_is_refused(lonely):
    simulation = simulation_of(lonely.replace({"system.seed": 3}), "airfl-an", trials=(0,))
    *_, (state, _) = simulation.rounds()
    (ledger,) = state.ledgers
    empty = int(np.flatnonzero(simulation.schedule.sending[0].numpy() == 0)[0])
    rows = [replace(event, gain_bound=1.0) if event.round == empty else event for event in ledger.events]
    forged = Ledger(tuple(rows))
    with pytest.raises(BudgetError, match="contradicts itself"):
        check_views(simulation.schedule, 0, forged)
    with pytest.raises(BudgetError, match="observer models"):  # whoever sees the models is kept to the budget too
        simulation.release(replace(state, ledgers=(forged,)))


def test_empty_rounds_keep_their_sensitivity_where_credit_goes_by_the_law(lonely):
    config = lonely.replace({"system.seed": 3, "scheme.names": ["airfl-dp"], "scheme.combiner_columns": "all"})
    simulation = simulation_of(config, "airfl-dp", trials=(0,))
    *_, (state, _) = simulation.rounds()
    assert 0 in simulation.schedule.sending[0].tolist()
    assert all(event.gain_bound == 1.0 for event in state.ledgers[0].events)
