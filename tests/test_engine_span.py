"""Softmax regression without a model per device: the same updates, norms and sums as with one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from airfl.devices import build_model, clip_factors
from airfl.devices.cpu_span import MOST, SpanTrainer, shards_of, worth_it
from airfl.devices.engine_batched import BatchedEngine
from airfl.devices.engine_loop import LoopEngine
from airfl.devices.updates import Spanned, UpdateBlock
from airfl.lanes import Lane, met_by
from airfl.threads import torch_threads
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


@pytest.mark.parametrize("name", ["softmax", "tests.test_engine_span:no_bias"])
def test_spanned_updates_are_those_of_the_loop(name):
    spec, *data = problem(name)
    blocks = list(BatchedEngine(spec).train(*data, 0.3))
    assert all(isinstance(block.trained, Spanned) for block in blocks)
    for block in blocks:
        assert len(block.trial.unique()) == 1
        assert block.updates.shape == (len(block.trained), spec.dim)
    updates, losses = gather(blocks, 3, 7, spec.dim)
    expected, expected_losses = gather(LoopEngine(spec).train(*data, 0.3), 3, 7, spec.dim)
    assert torch.allclose(updates, expected, atol=2e-5)
    assert torch.allclose(losses, expected_losses, atol=1e-5)


def test_sums_and_parts_of_spanned_updates():
    spec, *data = problem()
    for block in BatchedEngine(spec).train(*data, 0.3):
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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 10]), st.floats(1e-3, 1e3), st.floats(0.0, 1.0))
def test_what_is_sent_of_a_clipped_spanned_update_stays_below_the_clip_norm(seed, size, scale, alike):
    """Also where samples nearly cancel, so that the update is far shorter than its terms."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(1, 1, 1, 64, generator=generator)
    inputs = scale * (alike * shared + (1 - alike) * torch.randn(50, 1, 1, 64, generator=generator))
    labels = torch.randint(10, (50,), generator=generator)
    batches = torch.stack([torch.randperm(50, generator=generator)[:size] for _ in range(5)]).view(1, 5, 1, size)
    batches = batches.expand(1, 5, 2, size)
    spec = build_model("softmax", (1, 1, 64), 10)
    models = spec.initial(seed).unsqueeze(0)
    limit = 1.0
    for block in BatchedEngine(spec).train(models, batches, inputs, labels, 0.1):
        spanned = block.trained
        assert isinstance(spanned, Spanned)
        factors, norms = clip_factors(spanned, limit)
        sent = (spanned.coefficients * factors.unsqueeze(1)).double()  # as they go into the sum, rounded to float32
        x = torch.cat([spanned.samples.double(), torch.ones(5, size, 1, dtype=torch.float64)], dim=2)
        lengths = torch.linalg.vector_norm(torch.einsum("cbs,bsf->bcf", sent, x).flatten(1), dim=1)
        assert float(lengths.max()) <= limit
        exact = torch.linalg.vector_norm(torch.einsum("cbs,bsf->bcf", spanned.coefficients.double(), x), dim=(1, 2))
        assert bool((norms >= exact).all())
        assert torch.allclose(norms, exact, rtol=1e-3 if alike > 0.9 else 1e-5)


def test_inner_products_pay_where_samples_or_models_share_them():
    assert worth_it(10, 20, rows=1)  # ten images, twice
    assert worth_it(1, 2, rows=1)
    assert not worth_it(50, 50, rows=1)  # every sample once, for one model
    assert worth_it(50, 50, rows=10)
    assert not worth_it(MOST + 1, 10 * MOST, rows=100)


def test_devices_with_many_samples_get_a_model_of_their_own():
    spec, models, batches, inputs, labels = problem(steps=13, batch=6)
    batches[:, :, :, :] = torch.arange(13 * 6).view(13, 6)
    assert MOST < 13 * 6
    assert all(
        isinstance(b.trained, torch.Tensor) for b in BatchedEngine(spec).train(models, batches, inputs, labels, 0.1)
    )
    batches[:, 0] = 0  # the first device has one; the others decide
    blocks = list(BatchedEngine(spec).train(models, batches, inputs, labels, 0.1))
    assert all(isinstance(block.trained, torch.Tensor) for block in blocks)
    updates, _ = gather(blocks, 3, 7, spec.dim)
    expected, _ = gather(LoopEngine(spec).train(models, batches, inputs, labels, 0.1), 3, 7, spec.dim)
    assert torch.allclose(updates, expected, atol=2e-5)


def test_bits_depend_neither_on_threads_nor_on_other_rows_nor_on_what_was_kept():
    spec, models, batches, inputs, labels = problem(active=900, steps=2, batch=6)
    engine = BatchedEngine(spec)

    def run(rows):
        with torch_threads(threads):
            return gather(engine.train(models[rows], batches[rows], inputs, labels, 0.1), len(rows), 900, spec.dim)[0]

    threads = 1
    one = run([0, 1, 2])
    threads = 3
    assert torch.equal(run([0, 1, 2]), one)
    assert torch.equal(run([1]), one[[1]])
    engine = BatchedEngine(spec)
    assert torch.equal(run([2, 1])[1], one[1])


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


def test_inner_products_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr("airfl.devices.cpu_span.KEPT_BYTES", 3 * 8 * 7 * 6 * 6)
    _, models, _, inputs, labels = problem()
    trainer = SpanTrainer(nn.Linear(64, 10))
    for start in range(6):
        batches = torch.arange(start, start + 7 * 6).view(1, 7, 1, 6).expand(1, 7, 2, 6)
        blocks = trainer.train(models[:1], batches, inputs, labels, 0.1)
        assert blocks is not None
        assert all(isinstance(block, UpdateBlock) for block in blocks)
        assert len(trainer._grams) <= 3


def test_lanes_that_a_block_meets():
    lanes = [Lane(0, 0, 2, (0,)), Lane(2, 0, 1, (1,)), Lane(3, 1, 4, (2,))]
    assert met_by(lanes, 0, 0) == lanes[:1]
    assert met_by(lanes, 1, 2) == lanes[:2]
    assert met_by(lanes, 3, 5) == lanes[2:]
    assert met_by(lanes, 0, 5) == lanes
