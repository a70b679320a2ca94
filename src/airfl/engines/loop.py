"""One device after another: plain, and the oracle of every faster engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.func import functional_call

from airfl.devices.models import ModelSpec
from airfl.devices.updates import UpdateBlock

#: Replicas collected before a block is handed on.
BLOCK = 16


@dataclass(frozen=True)
class LoopEngine:
    """θ ← θ − η ∇(mean loss of the step's samples), step by step, device by device."""

    spec: ModelSpec
    name: str = "loop"
    precision: str = "float32"

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """See ``Engine.train``."""
        trials, active = batches.shape[:2]
        replicas = [(trial, slot) for trial in range(trials) for slot in range(active)]
        for start in range(0, len(replicas), BLOCK):
            block = replicas[start : start + BLOCK]
            results = [
                self._device(models[trial], batches[trial, slot], inputs, labels, learning_rate)
                for trial, slot in block
            ]
            where = torch.tensor(block, device=models.device)
            yield UpdateBlock(
                where[:, 0], where[:, 1], torch.stack([r[0] for r in results]), torch.stack([r[1] for r in results])
            )

    def _device(
        self, model: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        local = model.clone()
        # Leaves that share the vector's memory: updating them in place moves the whole vector.
        parameters = {name: view.detach().requires_grad_() for name, view in self.spec.unflatten(local).items()}
        leaves = list(parameters.values())
        total, count = torch.zeros((), device=model.device), 0
        for samples in batches:
            samples = samples[samples >= 0]
            if len(samples) == 0:
                continue
            scores = functional_call(self.spec.module, parameters, (inputs[samples],))
            loss = F.cross_entropy(scores, labels[samples])
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                torch._foreach_add_(leaves, gradients, alpha=-rate)
            total += loss.detach() * len(samples)
            count += len(samples)
        return (model - local) / rate, total / max(count, 1)
