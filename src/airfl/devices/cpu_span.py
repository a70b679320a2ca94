"""Softmax regression on CPU threads without a model per device.

A device's update lies in the span of its own samples, Δ = Σ_j a_j ⊗ (x_j, 1). So its local steps need the scores of the
broadcast model on S samples and their inner products, and hand on S·C coefficients. Nothing has the size of a model;
most of the work is one matrix product for all devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn

from airfl.devices.cpu_dense import Layers
from airfl.devices.updates import TILE, Spanned, UpdateBlock
from airfl.threads import torch_threads

#: Samples of a device beyond which its inner products are too many.
MOST = 64
#: Samples of the devices that a thread works on at a time.
BLOCK = 4 * TILE
#: Bytes of inner products that are kept for the next round: devices that use all their samples have the same again.
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


def single_layer(layers: Layers) -> nn.Linear | None:
    """The layer of a model that has one only."""
    layer = layers[0][1]
    return layer if len(layers) == 1 and isinstance(layer, nn.Linear) else None


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


def worth_it(size: int, places: int, rows: int) -> bool:
    """Whether inner products of ``size`` samples pay, for a round with so many places in steps, and so many models.

    Where samples come twice in a round, devices use all they have, and inner products are computed once for all rounds.
    Else the models that share them have to make up for it; the break-even was measured.
    """
    return size <= MOST and (places > size or rows * places >= size * (2.0 + size / 16.0))


class SpanTrainer:
    """Trains devices with few samples, and remembers the inner products of samples that come again."""

    def __init__(self, layer: nn.Linear) -> None:
        self.bias, self.classes = layer.bias is not None, layer.out_features
        self._grams: dict[bytes, torch.Tensor] = {}

    def train(
        self, models: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> Iterator[UpdateBlock] | None:
        """See ``Engine.train``; None where a model for every device is faster."""
        if len(batches[0, 0].unique()) > MOST:  # seen without looking at all
            return None
        alike: dict[bytes, list[int]] = {}
        for row, own in enumerate(batches):
            alike.setdefault(own.numpy().tobytes(), []).append(row)
        groups = [(shards_of(batches[rows[0]]), rows) for rows in alike.values()]
        places = batches.shape[2] * batches.shape[3]
        if not all(worth_it(shards.samples.shape[1], places, len(rows)) for shards, rows in groups):
            return None
        return self._blocks(groups, models, inputs.flatten(1), labels, rate)

    def _blocks(
        self,
        groups: list[tuple[Shards, list[int]]],
        models: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> Iterator[UpdateBlock]:
        """Blocks of devices on threads; what they need of the samples is shared by all rows with the same devices."""
        with torch_threads(1) as threads:
            pool = ThreadPoolExecutor(threads, "device", initializer=torch.set_num_threads, initargs=(1,))
            waiting: deque[Future[list[UpdateBlock]]] = deque()
            try:
                for shards, rows in groups:
                    active, size = shards.samples.shape
                    grams = self._kept(shards.samples)
                    step = max(1, BLOCK // size)
                    for first in range(0, active, step):
                        part = slice(first, min(first + step, active))
                        data = models, inputs, labels, rate, grams
                        waiting.append(pool.submit(self._train, shards, rows, part, *data))
                        if len(waiting) > threads:
                            yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _kept(self, samples: torch.Tensor) -> torch.Tensor:
        """Inner products of these samples [K, S, S], NaN where they are not yet known."""
        key = samples.numpy().tobytes()
        if key not in self._grams:
            active, size = samples.shape
            self._grams[key] = torch.full((active, size, size), torch.nan, dtype=torch.float64)
            while len(self._grams) > 1 and sum(gram.nbytes for gram in self._grams.values()) > KEPT_BYTES:
                del self._grams[next(iter(self._grams))]
        return self._grams[key]

    def _train(
        self,
        shards: Shards,
        rows: list[int],
        part: slice,
        models: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
        grams: torch.Tensor,
    ) -> list[UpdateBlock]:
        """Some devices, from the models of all rows that have them."""
        samples, counts = shards.samples[part], shards.counts[part]
        replicas, size = samples.shape
        x = inputs.index_select(0, samples.flatten())
        of_device = x.view(replicas, size, -1)
        if bool(grams[part.start, 0, 0].isnan()):
            exact = of_device.double()
            grams[part] = torch.bmm(exact, exact.mT) + float(self.bias)
        gram = grams[part].float()
        targets = labels.index_select(0, samples.flatten()).view(1, replicas, size)
        weights = shards.weights[part].transpose(0, 1)
        slots = torch.arange(part.start, part.stop)
        minus, blocks = torch.full_like(targets, -1.0, dtype=torch.float32), []
        for row in rows:  # classes first: they are few, and samples lie side by side
            base = self._scores(models[row], x).view(-1, replicas, size)
            a, total = torch.zeros_like(base), torch.zeros(replicas)
            for index, weight in enumerate(weights):
                scores = (
                    base if index == 0 else base.sub(torch.bmm(gram, a.permute(1, 2, 0)).permute(2, 0, 1), alpha=rate)
                )
                g = torch.log_softmax(scores, 0)
                total -= (g.gather(0, targets)[0] * weight).sum(dim=1) * counts[:, index]
                a.addcmul_(g.exp_().scatter_add_(0, targets, minus), weight)
            losses = total / counts.sum(dim=1).clamp(min=1)
            updates = Spanned(a, of_device, _norms(a.double().permute(1, 2, 0), grams[part]), self.bias)
            blocks.append(UpdateBlock(torch.full_like(slots, row), slots, updates, losses))
        return blocks

    def _scores(self, model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """W xᵀ + b of a model [d] on samples [n, F], [C, n]."""
        end = self.classes * x.shape[1]
        weight = model[:end].view(self.classes, -1)
        scores = torch.cat([weight @ part.mT for part in x.split(TILE)], dim=1)
        return scores.add_(model[end:].unsqueeze(1)) if self.bias else scores


def _norms(a: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """‖Δ‖ and what scaling the coefficients a [B, S, C] in float32 can add to it, [B]; all in float64."""
    squares = (torch.bmm(gram, a) * a).sum(dim=(1, 2)).clamp(min=0.0)
    lengths = torch.linalg.vector_norm(a, dim=2) * gram.diagonal(dim1=1, dim2=2).sqrt()
    norms: torch.Tensor = squares.sqrt() + 2.0**-22 * lengths.sum(dim=1)
    return norms
