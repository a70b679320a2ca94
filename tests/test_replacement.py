"""Devices drawn with replacement: the law, what it hides, what is sent and what is booked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis import audit_run
from airfl.analysis.audit.planted import DEFECTS, little_config
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import Ledger, PrivacyError, RoundEvent, Sampling, make_accountant
from airfl.schemes.policies.replacement import multiplicities
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver import Radio, open_radio

WIDE = {"channel.coherence_hz": 5e6, "channel.rotation": True}


def opened(overrides=None):
    config = small_config({"scheme.names": ["replacement"], **(overrides or {})})
    return open_simulation(config, "replacement", small_task(config))


def rounds_of(sampling, count, noise_var=25.0, **changes):
    event = RoundEvent(0, 1.0, float(sampling.most), noise_var, "channel", 1.0, sampling, 0.01, **changes)
    return Ledger(tuple(replace(event, round=t) for t in range(count)))


@pytest.mark.parametrize(
    ("draws", "with_replacement", "poisson"), [(10, 0.530, 0.526), (50, 3.17, 3.04), (100, 7.11, 6.57)]
)
def test_being_counted_twice_costs_more_than_being_counted_at_most_once(draws, with_replacement, poisson):
    """Add-remove, c = 1, v = 25, T = 50, n = 100, δ = 1e-5, and no cut that matters."""
    binomial = Sampling("binomial", 100, draws, most=min(draws, 12))
    credited = make_accountant("sampled", rounds_of(binomial, 50, hides_participation=True), "zero-out")
    assert credited.epsilon(1e-5) == pytest.approx(with_replacement, rel=2e-3)
    once = Sampling("poisson" if draws < 100 else "all", 100, draws)
    other = make_accountant("sampled", rounds_of(once, 50, hides_participation=True), "zero-out")
    assert other.epsilon(1e-5) == pytest.approx(poisson, rel=2e-3)


@pytest.mark.parametrize(("number", "draws", "most"), [(100, 10, 4), (5, 5, 3), (1, 3, 4), (7, 2, 9), (6000, 600, 2)])
def test_the_law_is_the_binomial_cut_at_the_most(number, draws, most):
    chances = Sampling("binomial", max(number, draws), draws, most=most).multiplicities
    if number < draws:
        number = draws
    expected = binom.pmf(np.arange(most + 1), draws, 1.0 / number)
    expected[most] = binom.sf(most - 1, draws, 1.0 / number)
    assert np.allclose(chances, expected, rtol=1e-9, atol=1e-15)
    assert math.fsum(chances) == pytest.approx(1.0, abs=1e-12)


def test_one_round_against_its_integral():
    """δ(ε) of Σ_k P(N = k) N(k, σ²) against N(0, σ²), the larger of both directions, summed up."""
    law, sigma = Sampling("binomial", 8, 4, most=3), 1.7
    sampled = make_accountant("sampled", rounds_of(law, 1, sigma**2, hides_participation=True), "zero-out")

    x = np.linspace(-25.0, 35.0, 600_001)
    with_it = sum(chance * norm.pdf(x, k, sigma) for k, chance in enumerate(law.multiplicities))
    without = norm.pdf(x, 0.0, sigma)
    for epsilon in (0.3, 1.0):
        gaps = [one - math.exp(epsilon) * other for one, other in ((with_it, without), (without, with_it))]
        exact = max(float(np.maximum(gap, 0.0).sum()) * (x[1] - x[0]) for gap in gaps)
        assert exact <= sampled.delta(epsilon) * (1 + 1e-6)
        assert sampled.delta(epsilon) == pytest.approx(exact, rel=5e-3)


def test_credit_takes_coins_of_ones_own_and_noise_that_does_not_tell():
    coins, together = Sampling("binomial", 100, 10, most=4), Sampling("multinomial", 100, 10, most=4)
    for book, neighbours, credited in (
        (rounds_of(coins, 5, hides_participation=True), "zero-out", True),
        (rounds_of(coins, 5), "zero-out", False),  # the noise tells
        (rounds_of(together, 5, hides_participation=True), "zero-out", False),  # the draws of the others tell
        (rounds_of(coins, 5, hides_participation=True), "replace", False),
    ):
        sampled = make_accountant("sampled", book, neighbours).epsilon(1e-5)
        exact = make_accountant("gaussian", book, neighbours).epsilon(1e-5)
        assert sampled <= exact
        assert (sampled < 0.5 * exact) == credited
    # A small draw tells no less: what hides is the law.
    quiet = replace(rounds_of(coins, 1, hides_participation=True).events[0], gain_bound=1.0)
    once = make_accountant("sampled", Ledger((quiet,)), "zero-out").epsilon(1e-5)
    assert once == make_accountant("sampled", rounds_of(coins, 1, hides_participation=True), "zero-out").epsilon(1e-5)


def test_ledgers_keep_the_law():
    book = rounds_of(Sampling("binomial", 100, 10, most=4), 2, hides_participation=True)
    assert Ledger.from_mapping(book.to_mapping()).events == book.events
    assert "most" not in rounds_of(Sampling("poisson", 100, 10), 1).to_mapping()["events"][0]["sampling"]
    for wrong in (
        {"law": "poisson", "most": 2},
        {"law": "binomial", "most": 0},
        {"law": "binomial", "num_active": 2.5},
    ):
        with pytest.raises(PrivacyError):
            Sampling(**{"law": "binomial", "num_devices": 10, "num_active": 3, "most": 1, **wrong})


@pytest.mark.parametrize("law", ["multinomial", "binomial"])
def test_draws_follow_their_law(law):
    config = small_config({"system.num_devices": 40, "scheme.replacement": law, "scheme.replacement_cap": 1000})
    drawn = np.stack([multiplicities(config, 0, t) for t in range(300)])
    if law == "multinomial":
        assert (drawn.sum(axis=1) == 40).all()
    else:
        assert drawn.sum(axis=1).std() > 3
    once = binom.pmf(1, 40, 1 / 40)
    assert (drawn == 1).mean() == pytest.approx(once, abs=4 * math.sqrt(once * (1 - once) / drawn.size))
    assert np.array_equal(drawn[7], multiplicities(config, 0, 7))
    assert not np.array_equal(drawn[7], multiplicities(config, 1, 7))
    cut = small_config({"system.num_devices": 40, "scheme.replacement": law, "scheme.replacement_cap": 1})
    assert np.array_equal(multiplicities(cut, 0, 7), np.minimum(drawn[7], 1))


@pytest.mark.parametrize("overrides", [{}, WIDE, {"scheme.combiner_columns": "all", "scheme.replacement": "binomial"}])
def test_who_is_drawn_twice_counts_twice(overrides):
    simulation = opened(overrides)
    config, schedule = simulation.config, simulation.schedule
    for t in range(3):
        setting = schedule.setting(t)
        counts = np.stack([multiplicities(config, trial, t) for trial in (0, 1)])
        trials, places = setting.active.shape
        expected = np.where(setting.active >= 0, np.take_along_axis(counts, np.maximum(setting.active, 0), axis=1), 0)
        assert (np.sort(expected, axis=1)[:, ::-1].sum(axis=1) == counts.sum(axis=1)).all()
        gains = setting.gains if setting.blocks is None else setting.blocks.gains[..., 0]
        assert np.allclose(gains.numpy(), expected, atol=1e-9)
        sent = 0.1 * torch.randn(trials, places, schedule.dim, generator=torch.Generator().manual_seed(t))
        block = UpdateBlock(
            torch.arange(trials).repeat_interleave(places),
            torch.arange(places).repeat(trials),
            sent.flatten(0, 1),
            torch.zeros(trials * places),
        )
        wanted = (torch.from_numpy(expected).unsqueeze(-1) * sent).sum(dim=1).float()
        for uplink in (EquivalentUplink, SignalUplink):
            assert torch.allclose(
                uplink(5, (0, 1)).receive([block], schedule.dim, setting.silenced()), wanted, atol=1e-4
            )
    step = simulation.advance(simulation.init())
    for row, ledger in enumerate(step.after.ledgers):
        assert ledger.events[0].gain_bound == pytest.approx(multiplicities(config, row, 0).max(), rel=1e-9)
        assert ledger.events[0].noise_var == float(step.setting.unknown_var[row])
    assert float(step.setting.power_w.max()) <= 1e-9 * (1 + 1e-9)


def test_room_for_more_is_paid_for_in_noise():
    """Where power and not the budget sets the norms they are N_max times those of counting everyone once."""
    changes = {"channel.power_w": 1e-12, "scheme.combiner_columns": "all"}
    usual = small_config(changes)
    once = open_simulation(usual, "airfl-mimo", small_task(usual)).schedule
    for cap in (1, 4):
        room = opened({**changes, "scheme.replacement_cap": cap}).schedule
        assert torch.allclose(room.norm, cap * once.norm, rtol=1e-6)
    low = opened({**changes, "scheme.replacement_cap": 1}).schedule
    assert float(low.noise_var.mean()) < float(opened(changes).schedule.noise_var.mean())


@settings(max_examples=6, deadline=None)
@given(
    power=st.sampled_from([1e-13, 1e-9, 1e-4, 1.0]),
    epsilon=st.sampled_from([0.1, 3.0, 60.0]),
    seed=st.integers(0, 10**6),
    law=st.sampled_from(["multinomial", "binomial"]),
    wide=st.booleans(),
)
def test_a_budget_is_kept_whatever_the_channels_are(power, epsilon, seed, law, wide):
    simulation = opened(
        {
            "channel.power_w": power,
            "privacy.epsilon": epsilon,
            "system.seed": seed,
            "scheme.replacement": law,
            **(WIDE if wide else {}),
        }
    )
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    for ledger in state.ledgers:
        spent = sum((event.clip_norm * event.gain_bound) ** 2 / event.noise_var for event in ledger.events)
        exact = make_accountant("gaussian", ledger, "zero-out")
        assert exact.mu == pytest.approx(math.sqrt(spent), rel=1e-12)
        assert exact.epsilon(1e-5) <= epsilon
        if power == 1.0 and not wide:
            assert exact.epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)


def test_norms_that_share_out_a_total_by_the_draws_earn_no_credit():
    """Booked by the exact accountant, noise follows who was drawn; a credit would be too good by a factor."""
    coins = {"scheme.replacement": "binomial", "scheme.replacement_cap": 2, "scheme.combiner_columns": "all"}
    simulation = opened(
        {**coins, "system.participation": 0.5, "privacy.neighbours": "zero-out", "channel.power_w": 1.0}
    )
    *_, (state, _) = simulation.rounds()
    for ledger in state.ledgers:
        assert not any(event.hides_participation for event in ledger.events)
        exact, sampled = (make_accountant(name, ledger, "zero-out").epsilon(1e-5) for name in ("gaussian", "sampled"))
        assert sampled == pytest.approx(exact, rel=1e-9)


def test_a_law_that_hides_is_credited_in_the_run():
    simulation = opened(
        {
            "scheme.replacement": "binomial",
            "scheme.replacement_cap": 2,
            "scheme.combiner_columns": "all",
            "system.participation": 0.5,
            "system.rounds": 2,
            "system.trials": 1,
            "privacy.accountant": "sampled",
            "privacy.neighbours": "zero-out",
            "channel.power_w": 1.0,
        }
    )
    schedule = simulation.schedule
    assert schedule.hides_participation == (True,)
    # Who was drawn does not show in the noise, but for rounding.
    assert torch.allclose(schedule.norm, schedule.norm[0, 0].expand_as(schedule.norm), rtol=1e-12)
    state = list(simulation.rounds())[-1][0]
    simulation.release(state)
    (ledger,) = state.ledgers
    assert schedule.promise.spent(ledger) == pytest.approx(5.0, rel=2e-3)
    assert make_accountant("sampled", ledger, "zero-out").epsilon(1e-5) <= 5.0
    assert {(event.sampling.law, event.sampling.most) for event in ledger.events} == {("binomial", 2)}


def test_what_is_credited_is_the_law_and_not_how_often_somebody_was_drawn():
    """Where nobody was drawn twice, ε of one time without credit would be less than the law's, and tell of the draw."""
    hidden = {"scheme.replacement": "binomial", "scheme.combiner_columns": "all", "system.participation": 0.5}
    counted = {"privacy.accountant": "sampled", "privacy.neighbours": "zero-out", "privacy.epsilon": 14.0}
    link = {"channel.power_w": 1.0, "system.rounds": 1, "system.trials": 1}
    config = small_config({"scheme.names": ["replacement"], **link, **hidden, **counted})
    task, drawn, told = small_task(config), set(), []
    for key in range(5):
        keyed = Radio(replace(open_radio(config, task.trials).link, participation_keys=(key,)))
        simulation = open_simulation(config, "replacement", task, keyed)
        *_, (state, _) = simulation.rounds()
        drawn.add(int(multiplicities(config, key, 0).max()))
        assert all(event.hides_participation for event in state.ledgers[0].events)
        books = [make_accountant(name, state.ledgers[0], "zero-out") for name in ("gaussian", "sampled")]
        told.append([book.epsilon(1e-5) for book in books])
    assert len(drawn) > 1
    assert np.allclose(told, told[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"system.participation": 0.5, "system.sampling": "poisson"}, "draws devices itself"),
        ({"channel.csi_error": 0.01}, "csi_error"),
        ({"channel.phase_error_rad": 0.1}, "phase_error"),
        ({"scheme.selection": "strongest"}, "selection"),
    ],
)
def test_what_is_not_worked_out_is_refused(changes, word):
    with pytest.raises(InputError, match=word):
        opened(changes)


def test_audits_pass_and_a_bound_of_half_is_caught():
    config = little_config(3, False).replace({"scheme.names": ["replacement"]})
    assert not audit_run(config, "replacement", 30).findings
    twice = next(defect for defect in DEFECTS if defect.name == "clip × 2")
    assert audit_run(config, "replacement", 30, opener=twice.open).failed
