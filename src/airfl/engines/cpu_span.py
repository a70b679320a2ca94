"""Softmax regression on CPU threads without a model per device.

A device's update lies in the span of its own samples, Δ = Σ_j a_j ⊗ (x_j, 1). So its local steps need the scores of the
broadcast model on S samples and their inner products, and hand on S·C coefficients. Nothing has the size of a model;
most of the work is one matrix product for all devices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import product

import torch

from airfl.devices.models import ModelSpec
from airfl.devices.sums import TILE, Sums, tile_of
from airfl.devices.updates import Spanned, UpdateBlock, inner_products, span_norms
from airfl.engines.device_threads import device_threads
from airfl.products import times_transposed

#: Samples of a device beyond which its inner products are too many.
MOST = 64
#: Tiles of samples that a thread works on at a time.
TILES = 4
#: Rows, that is models, that a thread trains them from at a time.
ROWS = 64
#: Bytes of inner products and samples that are kept for the next round.
KEPT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Shards:
    """The samples that devices use in one round.

    Attributes:
        samples: their numbers, [K, S]; any number where a device has fewer.
        weights: share of each sample in the mean of each step, [K, steps, S]; zero where it has none.
        counts: samples of each step, [K, steps].
    """

    samples: torch.Tensor
    weights: torch.Tensor
    counts: torch.Tensor


@dataclass
class Kept:
    """What devices have in common over rounds, by the number of the first of a part.

    Attributes:
        grams: inner products [B, S, S], float64.
        samples: [n, F]; None: gathered anew each time.
    """

    grams: dict[int, torch.Tensor] = field(default_factory=dict)
    samples: dict[int, torch.Tensor] | None = None


def shards_by_trial(batches: torch.Tensor) -> list[tuple[Shards, list[int]]]:
    """The samples of each trial, and the rows [trials, K, steps, batch] that have them."""
    alike: dict[bytes, list[int]] = {}
    for row, own in enumerate(batches):
        alike.setdefault(own.numpy().tobytes(), []).append(row)
    return [(shards_of(batches[rows[0]]), rows) for rows in alike.values()]


def shards_of(batches: torch.Tensor) -> Shards:
    """Which samples devices use, each once, from the samples of their steps [K, steps, batch]."""
    active, steps, batch = batches.shape
    ordered, order = batches.flatten(1).sort(dim=1)
    fresh = ordered >= 0
    fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    rank = fresh.cumsum(dim=1).sub_(1).clamp_(min=0)
    size = int(rank.max()) + 1
    samples = torch.zeros(active, size, dtype=torch.int64).scatter_reduce_(1, rank, ordered, "amax")
    places = torch.empty_like(rank).scatter_(1, order, rank).view(active, steps, batch)
    there = batches >= 0
    counts = there.sum(dim=2)
    shares = there / counts.clamp(min=1).unsqueeze(2)
    return Shards(samples, torch.zeros(active, steps, size).scatter_add_(2, places, shares), counts)


def worth_it(size: int, replicas: int, places: int, rows: int, comes_again: bool) -> bool:
    """Whether inner products pay for devices with up to ``size`` samples each.

    Devices that go through all their samples more than once a round have the same inner products in every round in
    which they all take part. Else the models that share them have to make up for them: the break-even was measured.

    Args:
        places: how many places in steps the devices fill together.
        rows: models that are trained on the same samples.
        comes_again: whether all devices take part in every round.
    """
    padded = replicas * size
    if size > MOST or padded < TILE:  # few samples are not worth a block for every row
        return False
    return (comes_again and places > padded) or rows * places >= padded * (2.0 + size / 16.0)


class SpanTrainer:
    """Trains devices with few samples.

    Args:
        spec: a single linear layer.
        comes_again: whether all devices take part in every round, so that inner products are worth keeping.
    """

    def __init__(self, spec: ModelSpec, comes_again: bool) -> None:
        self.bias, self.classes, self.comes_again = len(spec.shapes) > 1, spec.shapes[0][0], comes_again
        self._kept: dict[bytes, Kept] = {}
        self._kept_for: tuple[torch.Tensor, int] | None = None
        self._room = 0

    def train(
        self, models: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> Iterator[UpdateBlock] | None:
        """See ``Engine.train``; None where a model for every device is faster."""
        if batches.shape[1] * MOST < TILE or len(batches[0, 0].unique()) > MOST:  # seen without looking at all
            return None
        groups = shards_by_trial(batches)
        for shards, rows in groups:
            replicas, size = shards.samples.shape
            if not worth_it(size, replicas, int(shards.counts.sum()), len(rows), self.comes_again):
                return None
        return self.blocks(groups, models, inputs, labels, rate)

    def blocks(
        self,
        groups: list[tuple[Shards, list[int]]],
        models: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> Iterator[UpdateBlock]:
        """Blocks of devices on threads; what they need of the samples is shared by all rows with the same devices.

        While this runs, products are not split over threads anywhere: bits do not depend on the number of threads.
        """
        vectors = inputs.flatten(1)
        waiting: deque[Future[tuple[Sums, list[UpdateBlock]]]] = deque()
        adding: list[Future[None]] = []
        with device_threads() as (pool, threads, stop):

            def first() -> Iterator[UpdateBlock]:
                sums, blocks = waiting.popleft().result()
                yield from blocks
                if sums.wanted:  # whoever sums them has asked by now
                    adding.append(pool.submit(sums.find))

            for shards, rows in groups:
                kept = self._kept_of(shards, inputs)
                step = max(1, TILES * tile_of(vectors.shape[1]) // shards.samples.shape[1])
                for part, some in product(range(0, len(shards.samples), step), range(0, len(rows), ROWS)):
                    own = slice(part, min(part + step, len(shards.samples)))
                    data = models, vectors, labels, rate, kept, stop
                    waiting.append(pool.submit(self._train, shards, rows[some : some + ROWS], own, *data))
                    if len(waiting) > threads:
                        yield from first()
            while waiting:
                yield from first()
            for done in adding:
                done.result()

    def _kept_of(self, shards: Shards, inputs: torch.Tensor) -> Kept:
        """What is known of these devices; what is found later is put in."""
        replicas, size = shards.samples.shape
        if self._kept_for is None or self._kept_for[0] is not inputs or self._kept_for[1] != inputs._version:
            self._kept.clear()
            self._kept_for = inputs, inputs._version
            self._room = KEPT_BYTES if self.comes_again else 0
        key = shards.samples.numpy().tobytes()
        if key in self._kept:
            return self._kept[key]
        grams, samples = 8 * replicas * size**2, 4 * replicas * size * inputs[0].numel()
        if grams > self._room:
            return Kept()
        whole = grams + samples <= self._room
        self._room -= grams + (samples if whole else 0)
        return self._kept.setdefault(key, Kept(samples={} if whole else None))

    def _train(
        self,
        shards: Shards,
        rows: list[int],
        part: slice,
        models: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
        kept: Kept,
        stop: threading.Event,
    ) -> tuple[Sums, list[UpdateBlock]]:
        """Some devices, from the models of some rows that have them, and what sums their updates."""
        samples, counts = shards.samples[part], shards.counts[part]
        replicas, size = samples.shape
        x = None if kept.samples is None else kept.samples.get(part.start)
        if x is None:
            x = inputs.index_select(0, samples.flatten())
            if kept.samples is not None:
                kept.samples[part.start] = x
        of_device = x.view(replicas, size, -1)
        exact = kept.grams.get(part.start)
        if exact is None:
            kept.grams[part.start] = exact = inner_products(of_device, self.bias)
        gram = exact.float()
        targets = labels.index_select(0, samples.flatten()).view(1, replicas, size)
        weights = shards.weights[part].transpose(0, 1)
        slots = torch.arange(part.start, part.stop)
        minus, blocks, sums = torch.full_like(targets, -1.0, dtype=torch.float32), [], Sums(x, self.bias)
        for row in rows:  # classes first: they are few, and samples lie side by side
            if stop.is_set():
                break
            base = scores = self._scores(models[row], x).view(-1, replicas, size)
            a, total = torch.zeros_like(base), torch.zeros(replicas)
            for index, weight in enumerate(weights):
                if index:
                    moved = torch.bmm(gram, a.permute(1, 2, 0)).permute(2, 0, 1)
                    scores = base.sub(moved, alpha=rate)
                g = torch.log_softmax(scores, 0)
                total -= (g.gather(0, targets)[0] * weight).sum(dim=1) * counts[:, index]
                a.addcmul_(g.exp_().scatter_add_(0, targets, minus), weight)
            losses = total / counts.sum(dim=1).clamp(min=1)
            updates = Spanned(a, of_device, span_norms(a, exact), self.bias, sums)
            blocks.append(UpdateBlock(torch.full_like(slots, row), slots, updates, losses))
        return sums, blocks

    def _scores(self, model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """W xᵀ + b of a model [d] on samples [n, F], [C, n]."""
        end = self.classes * x.shape[1]
        weight = model[:end].view(self.classes, -1)
        scores = torch.cat([times_transposed(weight, part) for part in x.split(tile_of(x.shape[1]))], dim=1)
        return scores.add_(model[end:].unsqueeze(1)) if self.bias else scores
