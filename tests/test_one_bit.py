"""One bit per coordinate: what is sent, what it costs, and what a crowd can decide."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

import airfl
from airfl.accounting import accountant_named
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import RoundEvent, Sampling
from airfl.schemes import Vote
from airfl.schemes.encoders import Sign, SignWithMemory
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task


def block_of(updates):
    count = len(updates)
    return UpdateBlock(torch.zeros(count, dtype=torch.int64), torch.arange(count), updates, torch.zeros(count))


def test_signs_are_as_long_as_is_booked_whatever_the_update_is():
    updates = torch.randn(6, 500, generator=torch.Generator().manual_seed(1)) * torch.logspace(-38, 38, 6)[:, None]
    updates[2] = 0.0
    updates[3, 7] = math.nan
    unit = Sign().unit(0.3, 500)
    sent = Sign().encode(block_of(updates), unit, None).block.updates
    assert unit == math.sqrt(500)
    assert torch.equal(sent[0], torch.sign(updates[0]))
    assert not sent[2:4].any()
    assert float(sent.double().norm(dim=1).max()) <= Sign().length(unit)


def test_memory_holds_what_signs_left_out():
    """m ← Δ + βm − a sign(Δ + βm) with a = ‖u‖₁/d: no a leaves less."""
    updates, memory = torch.randn(2, 3, 400, generator=torch.Generator().manual_seed(2)).unbind()
    encoder = SignWithMemory(feedback=0.5)
    encoded = encoder.encode(block_of(updates), encoder.unit(1.0, 400), memory)
    wanted = updates + 0.5 * memory
    assert torch.equal(encoded.block.updates, torch.sign(wanted))
    assert torch.allclose(encoded.memory, wanted - wanted.abs().mean(1, keepdim=True) * torch.sign(wanted), atol=1e-6)
    left = encoded.memory.norm(dim=1)
    for worth in np.linspace(0.2, 2.0, 40):
        assert bool((left <= (wanted - worth * torch.sign(wanted)).norm(dim=1) + 1e-5).all())


def test_a_memory_is_capped_and_a_broken_update_leaves_it():
    """With votes worth 1 and entries far below, what is carried over would hunt around; and what is NaN is not sent."""
    learning = small_config().learning
    encoder = SignWithMemory(worth=1.0, cap=2.0, learning=learning)
    memory = torch.zeros(2, 100)
    updates = torch.full((2, 100), 1e-3)
    for _ in range(5):
        memory = encoder.encode(block_of(updates), 10.0, memory).memory
        assert float(memory.norm(dim=1).max()) <= 2.0 * learning.clip_norm * (1 + 1e-6)
    broken = updates.clone()
    broken[1, 3] = math.inf
    encoded = encoder.encode(block_of(broken), 10.0, memory)
    assert torch.equal(encoded.memory[1], memory[1])
    assert not encoded.block.updates[1].any()
    huge = encoder.encode(block_of(torch.full((1, 100), 3e38)), 10.0, torch.full((1, 100), 3e38))
    assert torch.isfinite(huge.memory).all()
    assert torch.isfinite(huge.block.updates).all()


@pytest.mark.parametrize(
    ("dim", "rounds", "epsilon", "votes"),
    [(582_026, 300, 1.0, 49_296), (582_026, 300, 8.0, 7_931), (7_850, 50, 1.0, 2_337)],
)
def test_how_many_votes_of_noise_a_budget_takes(dim, rounds, epsilon, votes):
    """√v in votes, for S = √d in every round: only crowds can vote privately."""
    everyone = Sampling("all", 100, 100)
    template = RoundEvent(0, math.sqrt(dim), 1.0, 0.0, "channel", 2.0, everyone, 1e-3)
    total = accountant_named("gaussian").budget(epsilon, 1e-5, template, "zero-out", rounds).total
    assert math.sqrt(rounds / total) == pytest.approx(votes, abs=0.5)  # σ² = 2, so √v is q


def test_an_agreed_vote_is_misheard_as_often_as_the_law_says():
    """All K agree: Φ(−K/√v) of the coordinates come out wrong, and fewer the larger the crowd."""
    generator, std, wrong = torch.Generator().manual_seed(4), 30.0, []
    for crowd in (10, 30, 60, 90):
        heard = crowd + std * torch.randn(1, 200_000, generator=generator)
        moved = Vote().decode(heard, 1.0, float(crowd))
        assert set(moved.unique().tolist()) <= {-float(crowd), float(crowd)}
        wrong.append(float((moved < 0).float().mean()))
        expected = norm.cdf(-crowd / std)
        assert wrong[-1] == pytest.approx(expected, abs=4 * math.sqrt(expected / 200_000))
    assert wrong == sorted(wrong, reverse=True)


@pytest.mark.parametrize("name", ["one-bit", "one-bit-memory"])
@pytest.mark.parametrize("overrides", [{}, {"scheme.uplink": "signal"}, {"channel.coherence_hz": 5e6}])
def test_what_is_booked_is_what_is_sent_and_the_budget_is_kept(name, overrides):
    config = small_config(overrides)
    simulation = open_simulation(config, name, small_task(config))
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    for ledger in state.ledgers:
        for event in ledger.events:
            assert event.clip_norm == pytest.approx(math.sqrt(simulation.schedule.dim), rel=2e-8)
            assert event.clip_norm > math.sqrt(simulation.schedule.dim)
            assert event.domain is None
        epsilon = simulation.schedule.promise.spent(ledger)
        assert epsilon <= 5.0
    assert (state.memory is not None) == (name == "one-bit-memory")


def test_one_bit_costs_what_a_linear_scheme_costs_at_the_same_power():
    """At full power S²/v does not depend on what is sent: one bit saves clipping, not privacy."""
    config = small_config({"privacy.epsilon": 1e6})
    task, found = small_task(config), []
    for name in ("airfl-mimo", "one-bit"):
        simulation = open_simulation(config, name, task)
        *_, (state, _) = simulation.rounds()
        found.append(simulation.schedule.promise.spent(state.ledgers[0]))
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_the_model_moves_by_the_same_in_every_coordinate():
    config = small_config({"learning.server_step": 0.5})
    simulation = open_simulation(config, "one-bit", small_task(config))
    before = simulation.init()
    after, _ = simulation.step(before)
    assert torch.allclose((after.models - before.models).abs(), torch.tensor(0.5 * 0.1), rtol=1e-4)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            {"privacy.accountant": "convergent", "learning.domain_diameter": 5.0, "privacy.smoothness": 0.5},
            "accountant `convergent`",
        ),
        ({"scheme.vote_worth": -1.0}, "vote_worth"),
        ({"scheme.memory_cap": 0.0}, "memory_cap"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides, words):
    with pytest.raises((InputError, ValueError), match=words):
        airfl.run(small_config({"scheme.names": ("one-bit-memory",), **overrides}))


def test_memory_is_carried_through_checkpoints(tmp_path):
    """Stopped in the middle and resumed: the same bits."""
    config = small_config({"scheme.names": ("one-bit-memory",), "learning.samples_per_device": 20})
    task = small_task(config.replace({"learning.samples_per_device": 7}))
    simulation = open_simulation(config, "one-bit-memory", task)
    *_, (whole, _) = simulation.rounds()
    middle, _ = simulation.step(simulation.init())
    kept = replace(middle, memory=middle.memory.clone())
    *_, (resumed, _) = simulation.rounds(kept)
    assert torch.equal(whole.models, resumed.models)
    assert torch.equal(whole.memory, resumed.memory)
    lost = replace(middle, memory=torch.zeros_like(middle.memory))
    *_, (other, _) = simulation.rounds(lost)
    assert not torch.equal(whole.memory, other.memory)


def test_memory_hears_in_the_long_run_who_is_overruled():
    """Nine devices pull a coordinate by −1 and one by +12: the mean is +0.3, and the vote is −8 for ever.

    With votes that are worth as much as the largest pull, the nine abstain in turns, and the mean wins.
    """
    pulls = torch.full((10, 1), -1.0)
    pulls[0] = 12.0
    assert float(torch.sign(pulls).sum()) == -8.0
    encoder, memory, total = SignWithMemory(worth=12.0, cap=1e6), torch.zeros(10, 1), 0.0
    for _ in range(240):
        encoded = encoder.encode(block_of(pulls), 1.0, memory)
        memory = encoded.memory
        total += float(encoded.block.updates.sum())
    assert total > 0.0
