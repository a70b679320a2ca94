"""Softmax regression without a model per device: the same updates, norms and sums as with one."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.devices import build_model, clip_factors, load_samples, open_task
from airfl.devices.updates import Spanned
from airfl.engines.batched import BatchedEngine
from airfl.engines.cpu_span import MOST, SpanTrainer, shards_by_trial, shards_of, worth_it
from airfl.engines.loop import LoopEngine
from airfl.parallel import torch_threads
from airfl.rounds.lanes import Lane, met_by
from airfl.simulate import open_simulation
from tests.oracles.settings import setting_of
from tests.test_models_and_engines import gather


def no_bias(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), num_classes, bias=False))


def problem(name="softmax", trials=3, active=7, steps=4, batch=6, samples=300):
    generator = torch.Generator().manual_seed(2)
    spec = build_model(name, (1, 8, 8), 10)
    inputs = torch.randn(samples, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    own = torch.randint(samples, (trials, active, 1, 10), generator=generator).expand(-1, -1, steps, -1)
    batches = own.gather(3, torch.randint(10, (trials, active, steps, batch), generator=generator))
    batches[torch.rand(batches.shape, generator=generator) < 0.1] = -1
    batches[1] = batches[0]  # two models, the same devices
    batches[2, 3] = -1  # a device without samples
    batches[2, 4] = 5  # the same sample in every place
    return spec, torch.stack([spec.initial(seed) for seed in range(trials)]), batches, inputs, labels


def spanned(spec, models, batches, inputs, labels, rate, trainer=None):
    """The blocks in spanned form, whether they pay or not."""
    trainer = trainer or SpanTrainer(spec, comes_again=True)
    return trainer.blocks(shards_by_trial(batches), models, inputs, labels, rate)


@pytest.mark.parametrize("name", ["softmax", "tests.test_engine_span:no_bias"])
def test_spanned_updates_are_those_of_the_loop(name):
    spec, *data = problem(name)
    blocks = list(spanned(spec, *data, 0.3))
    for block in blocks:
        assert isinstance(block.trained, Spanned)
        assert len(block.trial.unique()) == 1
        assert block.updates.shape == (len(block.trained), spec.dim)
    updates, losses = gather(blocks, 3, 7, spec.dim)
    expected, expected_losses = gather(LoopEngine(spec).train(*data, 0.3), 3, 7, spec.dim)
    assert torch.allclose(updates, expected, atol=2e-5)
    assert torch.allclose(losses, expected_losses, atol=1e-5)
    assert float(updates[2, 3].abs().max()) == 0.0  # the device without samples
    assert (
        not gather(spanned(spec, torch.full_like(data[0], torch.nan), *data[1:], 0.3), 3, 7, spec.dim)[0]
        .isfinite()
        .all()
    )


def test_sums_and_parts_of_spanned_updates():
    spec, *data = problem()
    for block in spanned(spec, *data, 0.3):
        dense, weights = block.updates.double(), torch.linspace(-1, 2, len(block.slot))
        assert isinstance(block.trained, Spanned)
        assert torch.allclose(block.trained.sum(weights).double(), weights.double() @ dense, atol=1e-4)
        part = block.trained[slice(1, 3)]
        assert torch.equal(part.dense(), block.trained.dense()[1:3])
        assert torch.equal(part.norms, block.trained.norms[1:3])
        row = int(block.trial[0])
        moved = block.rows(row, row + 1, 5)
        assert moved is not None
        assert moved.trial.tolist() == [row + 5] * len(block.slot)
        assert block.rows(row + 1, row + 9, 0) is None
        half = replace(block, factors=torch.full((len(block.slot),), 0.5))
        assert torch.equal(half.updates, block.updates * 0.5)


@pytest.mark.parametrize("kind", [EquivalentUplink, SignalUplink])
def test_both_uplinks_receive_spanned_updates(kind):
    spec, *data = problem()
    gains = torch.rand(3, 7, generator=torch.Generator().manual_seed(4)).to(torch.complex128)
    ones = torch.ones(3, 1, dtype=torch.complex128)
    setting = setting_of(0, gains, torch.zeros(3).double(), 0.0, gains.unsqueeze(2), torch.ones_like(gains), ones)
    factors = torch.rand(7, generator=torch.Generator().manual_seed(5))
    blocks = [replace(block, factors=factors[block.slot]) for block in spanned(spec, *data, 0.3)]
    received = kind(1, (0, 1, 2)).receive(blocks, spec.dim, setting)
    updates, _ = gather(LoopEngine(spec).train(*data, 0.3), 3, 7, spec.dim)
    expected = torch.einsum("tk,k,tkd->td", gains.real.float(), factors, updates)
    assert torch.allclose(received, expected, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from([1, 2, 10]), st.floats(1e-3, 1e3), st.floats(0.0, 1.0), st.floats(0.1, 1)
)
def test_what_is_sent_of_a_clipped_spanned_update_stays_below_the_clip_norm(seed, size, scale, alike, gain):
    """Also where samples nearly cancel, so that the update is far shorter than its terms."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(1, 1, 1, 64, generator=generator)
    inputs = scale * (alike * shared + (1 - alike) * torch.randn(50, 1, 1, 64, generator=generator))
    labels = torch.randint(10, (50,), generator=generator)
    batches = torch.stack([torch.randperm(50, generator=generator)[:size] for _ in range(5)]).view(1, 5, 1, size)
    spec = build_model("softmax", (1, 1, 64), 10)
    for block in spanned(spec, spec.initial(seed).unsqueeze(0), batches.expand(1, 5, 2, size), inputs, labels, 0.1):
        updates = block.trained
        assert isinstance(updates, Spanned)
        factors, norms = clip_factors(updates, 1.0)
        x = torch.cat([updates.samples.double(), torch.ones(5, size, 1, dtype=torch.float64)], dim=2)
        # As coefficients go into the sum: scaled and rounded to float32.
        sent = (updates.coefficients * (torch.tensor(gain) * factors).unsqueeze(1)).double()
        lengths = torch.linalg.vector_norm(torch.einsum("cbs,bsf->bcf", sent, x).flatten(1), dim=1)
        assert float(lengths.max()) <= gain
        for one in range(5):
            weights = torch.zeros(5)
            weights[one] = factors[one]
            assert float(torch.linalg.vector_norm(updates.sum(weights).double())) <= 1.0 + 1e-6
        exact = torch.linalg.vector_norm(torch.einsum("cbs,bsf->bcf", updates.coefficients.double(), x), dim=(1, 2))
        assert bool((norms >= exact).all())
        assert torch.allclose(norms, exact, rtol=1e-3 if alike > 0.9 else 1e-5)


@settings(max_examples=40)
@given(
    log_scale=st.floats(30, 38),
    log_clip=st.floats(-12, 3),
    seed=st.integers(0, 999),
    kind=st.sampled_from(["equivalent", "signal"]),
)
@example(log_scale=34.778, log_clip=-9.301, seed=0, kind="equivalent")
@example(log_scale=38.0, log_clip=-2.0, seed=1, kind="signal")
def test_what_one_device_adds_is_never_longer_than_the_clip_norm(log_scale, log_clip, seed, kind):
    """A sample of 6e34 and c = 5e-10: a factor that is subnormal in float32 left 1.023 c, and up to 1.98 c."""
    config = airfl.preset("demo").replace(
        {"system.trials": 1, "system.num_devices": 5, "system.num_antennas": 8, "learning.dataset": "digits",
         "learning.model": "softmax", "learning.local_steps": 1, "learning.clip_norm": 10.0**log_clip,
         "scheme.uplink": kind, "scheme.names": ["airfl-mimo"]}
    )  # fmt: skip
    task = open_task(config, (0,), load_samples(config, torch.device("cpu")))
    simulation = open_simulation(config, "airfl-mimo", task)
    setting = simulation.schedule.setting(0)
    quiet = replace(setting, noise_var=torch.zeros(1).double(), noise_power=0.0)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(5, 1, 8, 8, generator=generator) * 10.0**log_scale
    batches = torch.arange(5).view(1, 5, 1, 1)
    models = torch.zeros(1, task.spec.dim)
    for block in spanned(task.spec, models, batches, inputs, torch.arange(5), 0.1):
        for device in range(5):
            heard = simulation.heard(quiet, [block.without(torch.arange(5) != device)])
            assert float(torch.linalg.vector_norm(heard.double())) <= config.learning.clip_norm


def test_where_inner_products_pay():
    def pays(size, each, rows=1, comes_again=True, replicas=6000):
        return worth_it(size, replicas, replicas * each, rows, comes_again)

    assert pays(10, 20)  # ten images, twice
    assert pays(1, 2)
    assert not pays(10, 20, comes_again=False)  # other devices in the next round
    assert pays(10, 20, rows=2, comes_again=False)
    assert not pays(50, 50)  # every sample once, for one model
    assert pays(50, 50, rows=10)
    assert not pays(60, 8)  # most devices have far fewer than the largest
    assert not pays(MOST + 1, 1000, rows=100)
    assert not pays(10, 20, replicas=20)


def test_the_engine_spans_where_it_pays_and_gives_a_model_to_each_device_elsewhere():
    spec, models, batches, inputs, labels = problem(active=400)

    def kinds(everyone):
        engine = BatchedEngine(spec, everyone=everyone)
        blocks = list(engine.train(models, batches, inputs, labels, 0.1))
        return {type(block.trained) for block in blocks}, gather(blocks, 3, 400, spec.dim)[0]

    forms, updates = kinds(everyone=True)
    assert forms == {Spanned}
    forms, expected = kinds(everyone=False)
    assert forms == {torch.Tensor}
    assert torch.allclose(updates, expected, atol=2e-5)
    batches[:, 1:, :, :] = torch.arange(24).view(4, 6)  # the first device has few; the others decide
    assert kinds(everyone=True)[0] == {torch.Tensor}


def test_bits_depend_neither_on_threads_nor_on_other_rows_nor_on_what_was_kept():
    spec, models, batches, inputs, labels = problem(active=900, steps=2, batch=6)
    trainer = SpanTrainer(spec, comes_again=True)

    def run(rows, threads):
        sums = torch.zeros(len(rows), spec.dim)
        with torch_threads(threads):
            for block in spanned(spec, models[rows], batches[rows], inputs, labels, 0.1, trainer):
                assert isinstance(block.trained, Spanned)
                sums[int(block.trial[0])] += block.trained.sum(block.slot.float())
            assert torch.get_num_threads() == threads
        return sums

    one = run([0, 1, 2], 1)
    assert torch.equal(run([0, 1, 2], 3), one)
    assert torch.equal(run([1], 2), one[[1]])
    trainer = SpanTrainer(spec, comes_again=False)
    assert torch.equal(run([2, 1], 2)[1], one[1])


def test_more_rows_than_a_thread_takes_at_a_time(monkeypatch):
    monkeypatch.setattr("airfl.engines.cpu_span.ROWS", 2)
    spec, models, batches, inputs, labels = problem(trials=5)
    batches[:] = batches[0]
    updates, _ = gather(spanned(spec, models, batches, inputs, labels, 0.3), 5, 7, spec.dim)
    expected, _ = gather(LoopEngine(spec).train(models, batches, inputs, labels, 0.3), 5, 7, spec.dim)
    assert torch.allclose(updates, expected, atol=2e-5)


def test_other_samples_under_the_same_numbers_are_noticed():
    spec, models, batches, inputs, labels = problem()
    trainer = SpanTrainer(spec, comes_again=True)

    def norms(inputs):
        blocks = list(spanned(spec, models, batches, inputs, labels, 0.1, trainer))
        assert all(isinstance(block.trained, Spanned) for block in blocks)
        return torch.cat([block.trained.norms for block in blocks])

    first, other = norms(inputs), inputs * 5.0
    for changed in (other, inputs.mul_(5.0)):
        found = norms(changed)
        assert not torch.allclose(found, first)
        fresh = SpanTrainer(spec, comes_again=False)
        expected = [b.trained.norms for b in spanned(spec, models, batches, changed, labels, 0.1, fresh)]
        assert torch.equal(found, torch.cat(expected))


def test_groups_with_the_same_samples_in_another_order():
    spec, models, batches, inputs, labels = problem(active=300)
    batches[1] = batches[0].flip(1)
    for _ in range(20):
        trainer = SpanTrainer(spec, comes_again=True)
        for block in spanned(spec, models, batches, inputs, labels, 0.1, trainer):
            assert isinstance(block.trained, Spanned)
            assert bool(block.trained.norms.isfinite().all())


def test_a_failure_on_a_thread_is_raised_and_who_stops_early_leaves_nothing_behind():
    spec, models, batches, inputs, labels = problem(active=900)
    before = torch.get_num_threads(), threading.active_count()
    blocks = spanned(spec, models, batches, inputs, labels, 0.1)
    next(blocks)
    blocks.close()
    assert (torch.get_num_threads(), threading.active_count()) == before
    with pytest.raises(IndexError):
        list(spanned(spec, models, batches, inputs[:5], labels, 0.1))
    assert (torch.get_num_threads(), threading.active_count()) == before


def test_shards_hold_every_sample_once():
    batches = torch.tensor([[[7, 3], [3, -1]], [[-1, -1], [-1, -1]], [[0, 9], [4, 2]]])
    shards = shards_of(batches)
    assert shards.samples.shape == (3, 4)
    assert shards.samples[0, :2].tolist() == [3, 7]
    assert shards.samples[2].tolist() == [0, 2, 4, 9]
    assert shards.weights[0].tolist() == [[0.5, 0.5, 0, 0], [1.0, 0, 0, 0]]
    assert float(shards.weights[1].abs().sum()) == 0.0
    assert shards.weights[2].tolist() == [[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0]]
    assert shards.counts.tolist() == [[2, 1], [0, 0], [2, 2]]


def test_inner_products_are_kept_for_devices_that_come_again_within_bounds(monkeypatch):
    monkeypatch.setattr("airfl.engines.cpu_span.KEPT_BYTES", 3 * 8 * 7 * 6 * 6)
    spec, models, _, inputs, labels = problem()

    def kept(comes_again):
        trainer = SpanTrainer(spec, comes_again)
        for start in (0, 1, 2, 3, 4, 0):
            batches = torch.arange(start, start + 7 * 6).view(1, 7, 1, 6)
            list(spanned(spec, models[:1], batches, inputs, labels, 0.1, trainer))
        return trainer._kept

    found = kept(comes_again=True)
    assert len(found) == 3  # the first ones, so that a cycle that is too long has some luck
    assert all(kept.grams[0].shape == (7, 6, 6) and kept.samples is None for kept in found.values())
    assert not kept(comes_again=False)
    monkeypatch.setattr("airfl.engines.cpu_span.KEPT_BYTES", 7 * 6 * (8 * 6 + 4 * 64) + 8 * 7 * 6 * 6)
    found = list(kept(comes_again=True).values())
    assert [kept.samples is None for kept in found] == [False, True]
    assert torch.equal(found[0].samples[0], inputs.flatten(1)[:42])


def test_lanes_that_a_block_meets():
    lanes = [Lane(0, 0, 2, (0,)), Lane(2, 0, 1, (1,)), Lane(3, 1, 4, (2,))]
    assert met_by(lanes, 0, 0) == lanes[:1]
    assert met_by(lanes, 1, 2) == lanes[:2]
    assert met_by(lanes, 3, 5) == lanes[2:]
    assert met_by(lanes, 0, 5) == lanes


def test_the_sum_of_spanned_updates_does_not_round_in_float32():
    """Where a small update is added to large ones, float32 would lose it or make more of it."""
    coefficients = torch.cat([torch.full((1, 1, 3000), 1.0), torch.full((1, 1, 3000), 2.0**-20)], dim=2)
    updates = Spanned(coefficients.reshape(1, 6000, 1), torch.ones(6000, 1, 1), torch.ones(6000).double(), True)
    found = updates.sum(torch.ones(6000, dtype=torch.float64))
    assert found.dtype == torch.float64
    assert found.tolist() == [3000 + 3000 * 2.0**-20] * 2


def test_spanned_updates_that_are_not_finite_can_be_left_out():
    spec, *data = problem()
    block = next(iter(spanned(spec, *data, 0.3)))
    bad = torch.zeros(len(block.trained), dtype=torch.bool)
    bad[1] = True
    block.trained.coefficients[:, 1] = torch.inf
    left = block.without(bad)
    assert torch.isfinite(left.updates).all()
    assert not left.updates[1].any()
    assert torch.equal(left.updates[2:], block.updates[2:])
