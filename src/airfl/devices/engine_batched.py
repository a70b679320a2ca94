"""All active devices of all trials in one tensor program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from airfl.devices.engine import UpdateBlock
from airfl.devices.models import ModelSpec
from airfl.devices.replicated import Forward, Parameters, replicated

#: Bytes that the parameters of one chunk of replicas, their gradients and temporaries may take.
CHUNK_BYTES = {"cpu": 512 * 2**20, "cuda": 16 * 2**30}


@dataclass(frozen=True)
class BatchedEngine:
    """The same steps as the loop, with a leading replica dimension on parameters, samples and gradients.

    Replicas do not meet, so the gradient of the sum of their losses is every replica's own gradient. Chains of known
    layers run as batched matrix products; any other module goes through ``vmap``. Empty places in a batch get weight
    zero.
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
        forward = self.forward()
        for part in replica.split(self.chunk or self._chunk_size(inputs, batch)):
            trial, slot = part // active, part % active
            start = models[trial]
            local, losses = self._chunk(forward, start, flat[part], inputs, labels, learning_rate)
            yield UpdateBlock(trial, slot, (start - local) / learning_rate, losses)

    def forward(self) -> Forward:
        """Scores [B, b, classes] of replicas with their own parameters [B, *shape] on their own samples."""
        fast = replicated(self.spec.module)
        if fast is not None:
            return fast
        module = self.spec.module

        def one(parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = functional_call(module, parameters, (x,))
            return scores

        return vmap(one)

    def _chunk(
        self,
        forward: Forward,
        start: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        local = start.clone()
        # Leaves that share the vectors' memory: updating them in place moves the whole vectors.
        parameters = {name: view.detach().requires_grad_() for name, view in self.spec.unflatten(local).items()}
        leaves = list(parameters.values())
        total = torch.zeros(len(start), device=start.device)
        for index in range(batches.shape[1]):
            samples = batches[:, index]
            weight = (samples >= 0).to(local.dtype)
            count = weight.sum(dim=1)
            places = samples.clamp(min=0)
            scores = forward(parameters, inputs[places])
            each = F.cross_entropy(scores.flatten(0, 1), labels[places].flatten(), reduction="none").view_as(weight)
            losses = (each * weight).sum(dim=1) / count.clamp(min=1.0)
            gradients = torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                torch._foreach_add_(leaves, gradients, alpha=-rate)
                total += losses * count
        return local, total / (batches >= 0).sum(dim=(1, 2)).clamp(min=1)

    def _chunk_size(self, inputs: torch.Tensor, batch: int) -> int:
        per_replica = 4 * (5 * self.spec.dim + 64 * batch * inputs[0].numel())
        return max(1, CHUNK_BYTES.get(inputs.device.type, CHUNK_BYTES["cpu"]) // per_replica)
