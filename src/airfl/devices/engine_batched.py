"""All active devices of all trials in one tensor program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, vmap

from airfl.devices.engine import UpdateBlock
from airfl.devices.models import ModelSpec

#: Bytes that the parameters of one chunk of replicas, their gradients and temporaries may take.
CHUNK_BYTES = {"cpu": 512 * 2**20, "cuda": 16 * 2**30}


@dataclass(frozen=True)
class BatchedEngine:
    """The same steps as the loop, with a leading replica dimension on parameters, samples and gradients.

    ``vmap`` over a functional call turns matrix products into batched ones and convolutions into grouped ones; any
    module works. Empty places in a batch get weight zero.
    """

    spec: ModelSpec
    chunk: int | None = None
    name: str = "batched"

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """See ``Engine.train``."""
        trials, active, steps, batch = batches.shape
        flat = batches.reshape(trials * active, steps, batch)
        replica = torch.arange(trials * active, device=models.device)
        size = self.chunk or self._chunk_size(inputs, batch)
        for part in replica.split(size):
            trial, slot = part // active, part % active
            start = models[trial]
            local, losses = self._chunk(start, flat[part], inputs, labels, learning_rate)
            yield UpdateBlock(trial, slot, (start - local) / learning_rate, losses)

    def _chunk(
        self, start: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        def mean_loss(
            parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
        ) -> torch.Tensor:
            scores = functional_call(self.spec.module, parameters, (x,))
            return (F.cross_entropy(scores, y, reduction="none") * weight).sum() / weight.sum().clamp(min=1.0)

        step = vmap(grad_and_value(mean_loss))
        local = start.clone()
        parameters = self.spec.unflatten(local)
        total = torch.zeros(len(start), device=start.device)
        for index in range(batches.shape[1]):
            samples = batches[:, index]
            weight = (samples >= 0).to(local.dtype)
            places = samples.clamp(min=0)
            gradients, losses = step(parameters, inputs[places], labels[places], weight)
            for name, value in parameters.items():
                value.sub_(gradients[name], alpha=rate)
            total += losses * weight.sum(dim=1)
        count = (batches >= 0).sum(dim=(1, 2))
        return local, total / count.clamp(min=1)

    def _chunk_size(self, inputs: torch.Tensor, batch: int) -> int:
        per_replica = 4 * (5 * self.spec.dim + 64 * batch * inputs[0].numel())
        return max(1, CHUNK_BYTES.get(inputs.device.type, CHUNK_BYTES["cpu"]) // per_replica)
