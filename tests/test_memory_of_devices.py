"""What devices remember: laws of memory, the order of schemes, credit for sampling, checkpoints, sweeps, limits."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch

import airfl
from airfl import analysis, memory
from airfl.analysis.audit.planted import Defect, _clipping, little_config
from airfl.channel.blocks import Grid
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.runs.checkpoint import Checkpoints
from airfl.runs.together import Log
from airfl.schemes import Clip, ClipWithMemory, Mean, Public, Scheme, TruncatedInversion, scheme_named
from airfl.simulate import open_simulation
from airfl.study import make_plan, make_study
from airfl.sweeps.batch import Folder, Stopped, run_batch
from airfl.testing.small import small_config, small_task
from tests.test_sweep import STUDY

FREE = {"privacy.epsilon": None, "scheme.names": ["tci-memory"]}
ONE = {"system.num_antennas": 1}
WIDE = {"channel.coherence_hz": 5e6}


def opened(name="tci-memory", **overrides):
    config = small_config({"scheme.names": [name], **overrides})
    return open_simulation(config, scheme_named(name, config), small_task(config))


def finished(simulation):
    *_, (state, _) = simulation.rounds()
    return state


def block(updates):
    return UpdateBlock(
        torch.zeros(len(updates), dtype=torch.int64), torch.arange(len(updates)), updates, torch.zeros(len(updates))
    )


def masked(mask):
    """A round in which devices send these of their entries, [K, d]: every entry rides on a block of its own."""
    count, dim = mask.shape
    gains = mask.to(torch.complex128).unsqueeze(0)
    return Public(0, (0,), 0, np.arange(count)[None], gains, Grid(dim, 1, dim, 1), torch.ones(1))


def remembered(encoder, updates_of, share, rounds=60, count=3, dim=4000, clip_norm=1e6):
    """The last sent norms and memories [count] of devices that send a share of their entries at random."""
    generator = torch.Generator().manual_seed(4)
    left = torch.zeros(count, dim)
    for t in range(rounds):
        mask = torch.rand(count, dim, generator=generator) < share
        encoded = encoder.encode_in(block(updates_of(t, generator)), clip_norm, left, masked(mask))
        left = encoded.memory
    return encoded.block.updates.double().norm(dim=1), left.double().norm(dim=1)


def fresh(t, generator):
    drawn = torch.randn(3, 4000, generator=generator)
    return drawn / drawn.norm(dim=1, keepdim=True)


def fixed(t, generator):
    return torch.full((3, 4000), 4000**-0.5)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_what_long_memory_comes_to(share):
    """Independent updates of norm 1: as long as they were; the same one in every round: √((2−λ)/λ)."""
    sent, left = remembered(ClipWithMemory(), fresh, share)
    assert sent.tolist() == pytest.approx([1.0] * 3, rel=0.04)
    assert left.tolist() == pytest.approx([math.sqrt((1 - share) / share)] * 3, rel=0.05)
    sent, left = remembered(ClipWithMemory(), fixed, share)
    assert sent.tolist() == pytest.approx([math.sqrt((2 - share) / share)] * 3, rel=0.05)
    assert left.square().tolist() == pytest.approx([(1 - share) * (2 - share) / share**2] * 3, rel=0.1)


def test_nothing_is_lost_in_long_memory_until_it_is_capped():
    """All that was trained was sent or is remembered; with a clip that binds the cap ends the growth."""
    encoder, generator = ClipWithMemory(cap=1e6), torch.Generator().manual_seed(2)
    left, total, sent = torch.zeros(2, 60), torch.zeros(2, 60, dtype=torch.float64), torch.zeros(2, 60)
    for _ in range(8):
        update = torch.randn(2, 60, generator=generator)
        encoded = encoder.encode_in(block(update), 1.0, left, masked(torch.rand(2, 60, generator=generator) < 0.5))
        left, total, sent = encoded.memory, total + update, sent + encoded.block.updates
    assert torch.allclose(sent + left, total.float(), atol=1e-4)
    steady, left = 2.0 * torch.nn.functional.normalize(torch.ones(1, 60)), torch.zeros(1, 60)
    for t in range(12):
        left = ClipWithMemory(cap=4.0).encode(block(steady), 1.0, left).memory
        assert float(left.norm()) == pytest.approx(min(4.0, t + 1.0), rel=1e-3)


def test_what_short_and_mild_memory_keep():
    update, left = torch.tensor([[0.3, 0.4, 0.0, 6.0]]), torch.tensor([[0.1, 0.1, 0.2, 0.2]])
    mask = torch.tensor([[True, False, False, True]])
    for kind, expected in (("short", [0.0, 0.4, 0.0, 0.0]), ("mild", [0.0, 0.5, 0.2, 0.0])):
        encoded = ClipWithMemory(kind=kind).encode_in(block(update), 1.0, left, masked(mask))
        assert encoded.memory[0].tolist() == pytest.approx(expected)
        assert float(encoded.block.updates.norm()) == pytest.approx(1.0, abs=5e-5)
        assert torch.equal(encoded.block.updates[0] != 0, mask[0])
        whole = ClipWithMemory(kind=kind).encode(block(update), 1.0, left)
        assert torch.equal(whole.memory, torch.zeros(1, 4))


def test_no_update_breaks_the_bound_or_the_memory():
    generator = torch.Generator().manual_seed(3)
    updates = torch.randn(9, 50, generator=generator) * torch.logspace(-38, 38, 9).unsqueeze(1)
    memories = torch.randn(9, 50, generator=generator) * torch.logspace(38, -38, 9).unsqueeze(1)
    mask = torch.rand(9, 50, generator=generator) < 0.5
    for kind in ("long", "short", "mild"):
        for left in (memories, -updates, torch.zeros_like(updates)):
            encoded = ClipWithMemory(kind=kind).encode_in(block(updates), 0.7, left, masked(mask))
            assert float(encoded.block.updates.double().norm(dim=1).max()) <= 0.7
            assert torch.isfinite(encoded.memory).all()
            assert not bool(encoded.block.updates[~mask].any())


def test_truncation_has_an_error_floor_and_memory_has_none():
    """The published order: plain truncation ends away from FedAvg, memory stays near it."""
    setup = {
        **FREE, **ONE, **WIDE, "channel.power_w": 1e6, "system.rounds": 60, "learning.partition": "classes",
        "learning.samples_per_device": None, "learning.local_steps": 1, "learning.clip_norm": 50.0,
        "learning.batch_size": 8, "scheme.truncation_share": 0.3, "scheme.memory_cap": 1e3,
    }  # fmt: skip
    ideal = finished(opened("fedavg-clip", **{**setup, "scheme.names": ["fedavg-clip"]})).models
    apart = {
        name: ((finished(opened(name, **{**setup, **more})).models - ideal).norm(dim=1) / ideal.norm(dim=1)).max()
        for name, more in (("tci", {}), ("tci-memory", {}))
    }
    assert float(apart["tci-memory"]) < 0.15
    assert float(apart["tci"]) > 2.0 * float(apart["tci-memory"])


DOMAIN = {"learning.domain_diameter": 5.0, "privacy.smoothness": 1.0}
SAMPLED = {
    **ONE, "system.sampling": "poisson", "system.participation": 0.5, "system.rounds": 6,
    "privacy.accountant": "sampled", "privacy.epsilon": 2.0, "channel.power_w": 1e-3,
}  # fmt: skip


def test_poisson_sampling_earns_credit_with_memory():
    """Noise is the same whoever takes part, so less of it keeps the promise."""
    credited = opened(**SAMPLED)
    plain = opened(**{**SAMPLED, "privacy.accountant": "gaussian"})
    assert credited.schedule.promise.accountant == "sampled"
    assert float(credited.schedule.norm.max()) < 0.8 * float(plain.schedule.norm.min())
    state = finished(credited)
    credited.release(state)
    for ledger in state.ledgers:
        assert all(event.hides_participation for event in ledger.events)
        assert [event.gain_bound for event in ledger.events] == pytest.approx([1.0] * len(ledger.events), rel=1e-12)
        assert credited.schedule.promise.spent(ledger) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(
    "more",
    [
        {"scheme.interior_radius_m": 900.0},  # divides by who takes part
        {"system.num_antennas": 4},  # combiners serve who takes part
        {"scheme.truncation_power": "average", "channel.fading": "rician"},  # and so does the mean power of a run
    ],
)
def test_no_credit_where_noise_or_the_mean_tells_who_takes_part(more):
    simulation = opened(**{**SAMPLED, **more})
    assert simulation.schedule.promise.accountant == "gaussian"
    assert simulation.schedule.hides_participation == (False, False)


def test_the_credit_is_that_of_any_other_gaussian_sum():
    """Given other devices' coins a round is (1 − r)N(0) + r·N(within c), whatever is remembered."""
    simulation = opened(**SAMPLED)
    config = simulation.config
    plain = Scheme("plain", "Plain", "No memory.", Clip(), TruncatedInversion(), Mean(), promises_to="model")
    twin = open_simulation(config, plain, small_task(config))
    assert torch.equal(twin.schedule.norm, simulation.schedule.norm)
    found = [one.schedule.promise.spent(finished(one).ledgers[0]) for one in (simulation, twin)]
    assert found[0] == found[1]


@pytest.mark.parametrize("second", [lambda took, z: 1.0 - 2.0 * took, lambda took, z: np.where(z > 0.5, took, -1.0)])
def test_no_use_of_memory_tells_more_than_the_accountant_says(second):
    """Two rounds by integration: what is sent in the second depends on the coin of the first, and on what was heard."""
    rate, std = 0.4, 1.3
    z = np.linspace(-9.0, 9.0, 601)
    cell, first, then = (z[1] - z[0]) ** 2, z[:, None], z[None, :]

    def density(at, mean):
        return np.exp(-0.5 * ((at - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))

    without = density(first, 0.0) * density(then, 0.0)
    present = sum(
        chance * density(first, took) * ((1 - rate) * density(then, 0.0) + rate * density(then, second(took, first)))
        for took, chance in ((0.0, 1 - rate), (1.0, rate))
    )
    accountant = dp_accounting.pld.PLDAccountant()
    sampled = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(std))
    accountant.compose(sampled, 2)
    assert float(present.sum() * cell) == pytest.approx(1.0, abs=1e-6)
    for epsilon in (0.1, 0.5, 1.0):
        found = [
            float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum() * cell)
            for one, other in ((present, without), (without, present))
        ]
        assert max(found) <= accountant.get_delta(epsilon) * (1 + 1e-3)
        assert max(found) > 0.2 * accountant.get_delta(epsilon)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"system.participation": 0.5, "privacy.accountant": "sampled"}, "exactly K of n earn no credit"),
        ({"privacy.accountant": "convergent", **DOMAIN}, "rounds that forget"),
        ({"privacy.accountant": "paper", "learning.domain_diameter": 5.0}, "rounds that forget"),
        ({"scheme.memory": "forever"}, "scheme.memory"),
    ],
)
def test_what_does_not_hold_with_memory_is_refused(overrides, words):
    with pytest.raises(InputError, match=words) as caught:
        opened(**overrides)
    assert "\n" not in str(caught.value)


def test_memory_is_counted_and_refused_where_it_does_not_fit(monkeypatch):
    """6,000 devices of the paper's network: 6,000 × 582,026 × 4 B, twice, as a round makes them anew."""
    config = airfl.preset("paper").replace(
        {"system.num_devices": 6000, "scheme.combiner": "auto", "scheme.names": ["tci-memory", "airfl-dp"]}
    )
    need = memory.memories_of(config, 1, 582_026)
    assert need.amount == 2 * 6000 * 582_026 * 4
    assert memory.size_text(need.amount) == "27.9 GB"
    assert memory.memories_of(config.replace({"scheme.names": ["tci"]}), 1, 582_026).amount == 0
    monkeypatch.setattr(memory, "physical_bytes", lambda: 2 * 6 * 18 * 4 * 2 - 1)
    for name in ("tci-memory", Scheme("own", "", "", ClipWithMemory(), TruncatedInversion(), Mean())):
        small = small_config(FREE if isinstance(name, str) else {**FREE, "scheme.names": ["tci"]})
        with pytest.raises(InputError, match="what devices remember"):
            open_simulation(small, name, small_task(small)).init()


@pytest.mark.parametrize("overrides", [{**ONE}, {**WIDE, **ONE, "scheme.truncation_power": "spread"}])
def test_a_run_that_was_stopped_gives_the_same_bits(tmp_path, overrides):
    simulation = opened(**{**FREE, **overrides, "scheme.truncation_share": 0.5})
    whole = finished(simulation)
    log = Log([simulation])
    for log.current, _ in simulation.rounds():
        if log.current.round == 2:
            break
    Checkpoints(tmp_path).save(2, {"it": log})
    found = Checkpoints(tmp_path).restore({"it": simulation})["it"].current
    assert float(found.memory.abs().max()) > 0
    resumed = list(simulation.rounds(found))[-1][0]
    assert torch.equal(resumed.models, whole.models)
    assert torch.equal(resumed.memory, whole.memory)
    forgetful = list(simulation.rounds(replace(found, memory=torch.zeros_like(found.memory))))[-1][0]
    assert not torch.equal(forgetful.models, whole.models)


def test_only_who_takes_part_changes_its_memory():
    simulation = opened(**{**FREE, **ONE, "system.participation": 0.5, "scheme.truncation_share": 0.5})
    before = simulation.init()
    for t in range(3):
        after, _ = simulation.step(before)
        for row in range(2):
            away = sorted(set(range(6)) - set(simulation.schedule.active[row, t].tolist()))
            assert torch.equal(after.memory[row, away], before.memory[row, away])
        before = after
    assert float(before.memory.abs().max()) > 0


def test_a_sweep_carries_memory_over_stops(tmp_path):
    """Stopped after every round and gone on with, against one that was not."""
    study = {
        **STUDY, "schemes": ["tci-memory"], "rows_per_batch": 2,
        "grid": {"privacy.epsilon": [50.0]},
        "set": {**STUDY["set"], "system.num_antennas": 1, "scheme.combiner": "auto", "scheme.truncation_share": 0.4},
    }  # fmt: skip
    plan = make_plan(make_study(study), 1)
    run_batch(plan, plan.batches[0], Folder(tmp_path / "whole"), every_rounds=100)
    stopped = Folder(tmp_path / "stopped")
    for _ in range(5):
        with pytest.raises(Stopped):
            run_batch(plan, plan.batches[0], stopped, every_rounds=1, should_stop=lambda: True)
    run_batch(plan, plan.batches[0], stopped, every_rounds=1)
    assert stopped.part(plan.batches[0]).read_bytes() == Folder(tmp_path / "whole").part(plan.batches[0]).read_bytes()


@pytest.mark.parametrize("more", [{}, {"system.num_antennas": 1, "channel.coherence_hz": 1e7}])
def test_an_audit_refutes_nothing_and_sees_twice_what_is_booked(more):
    columns = {"scheme.names": ["tci-memory"], "scheme.combiner": "auto", "scheme.combiner_columns": "active"}
    config = little_config(3, False).replace({**columns, "system.rounds": 3, **more})
    found = analysis.audit_run(config, "tci-memory", 40).summary
    assert found["failed_checks"] == []
    assert found["findings"] == []
    caught = analysis.audit_run(config, "tci-memory", 40, opener=Defect("clip × 2", _clipping(2.0)).open).summary
    assert caught["failed_checks"] != []


@pytest.mark.parametrize("more", [{}, {"scheme.interior_radius_m": 900.0}])
def test_an_audit_where_devices_are_drawn_refutes_nothing(more):
    """With credit, and without where far devices stay away: what is tested is the draw, not who is left of it."""
    columns = {"scheme.names": ["tci-memory"], "scheme.combiner": "auto", "system.num_antennas": 1}
    config = little_config(3, True).replace({**columns, "system.rounds": 3, **more})
    found = analysis.audit_run(config, "tci-memory", 40).summary
    assert found["failed_checks"] == []
    assert found["findings"] == []
