"""All active devices of all trials in one tensor program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch.func import functional_call, vmap

from airfl.devices.models import ModelSpec
from airfl.devices.precision import tf32_allowed
from airfl.devices.updates import UpdateBlock
from airfl.engines.chunks import available_bytes, in_chunks, is_memory
from airfl.engines.cpu_dense import dense_layers, train_dense
from airfl.engines.cpu_span import SpanTrainer
from airfl.engines.replicated import Forward, Parameters, replicated

#: Replicas that are tried first, to see what one takes.
PROBE = 4
#: On a CPU small chunks stay closer to the caches.
CPU_BYTES = 512 * 2**20

#: Losses [B] and their gradients by each parameter.
Gradients = Callable[
    [Parameters, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, tuple[torch.Tensor, ...]]
]


@dataclass(frozen=True)
class BatchedEngine:
    """The same steps as the loop, with a leading replica dimension on parameters, samples and gradients.

    Replicas do not meet, so the gradient of the sum of their losses is every replica's own gradient. Chains of known
    layers run as batched matrix products; any other module goes through ``vmap``. Empty places in a batch get weight
    zero. On a CPU chains of linear layers have their passes written out, and threads share the replicas; where devices
    with few samples train a single linear layer, none gets a model of its own.

    Attributes:
        chunk: replicas worked on at a time; default: what fits half of the free memory, by a measured trial.
        compiled: whether the step is compiled, once per shape.
        everyone: whether all devices take part in every round; what they have in common over rounds is worth keeping.
    """

    spec: ModelSpec
    chunk: int | None = None
    precision: str = "float32"
    compiled: bool = False
    everyone: bool = False
    name: str = "batched"
    _cache: dict[str, Gradients | int] = field(default_factory=dict, repr=False, compare=False)

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
        dense = dense_layers(self.spec.module, inputs.shape[1:])
        if dense is not None and models.device.type == "cpu" and self.precision == "float32":
            data = models, batches, inputs, labels
            spanned = self._spans.train(*data, learning_rate) if len(dense) == 1 else None
            yield from spanned or train_dense(self.spec, dense, *data, learning_rate, self.chunk)
            return
        flat = batches.reshape(trials * active, steps, batch)

        def work(first: int, last: int) -> UpdateBlock:
            part = torch.arange(first, last, device=models.device)
            start = models[part // active]
            local, losses = self._chunk(start, flat[part], inputs, labels, learning_rate)
            return UpdateBlock(part // active, part % active, (start - local) / learning_rate, losses)

        size = self.chunk or self._measured(models, flat, inputs, labels, learning_rate)
        yield from in_chunks(trials * active, size, work)

    @cached_property
    def _spans(self) -> SpanTrainer:
        """What trains a single linear layer; kept, as it remembers samples."""
        return SpanTrainer(self.spec, self.everyone)

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

    def obstacle(self, inputs: torch.Tensor) -> str:
        """Why ``vmap`` cannot run a step of the model, in PyTorch's words; empty where it can, or is not needed."""
        if replicated(self.spec.module) is not None:
            return ""
        trained = self.spec.module.state_dict()
        start = self.spec.flatten(trained).expand(PROBE, -1)
        batches = torch.zeros(PROBE, 1, 2, dtype=torch.int64, device=inputs.device)
        try:
            self._chunk(start, batches, inputs, torch.zeros_like(batches[0, 0, :1]), 1.0)
        except Exception as error:  # operations without a rule, in-place ones, values that decide what is computed
            return "" if is_memory(error) else str(error).strip().splitlines()[0].partition(". ")[0]
        return ""

    def _gradients(self) -> Gradients:
        """The forward and backward pass of one step; compiled once and kept."""
        forward, names = self.forward(), self.spec.names

        def gradients(
            parameters: Parameters, x: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor
        ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
            with self._autocast(x.device):
                scores = forward(parameters, x)
            each = F.cross_entropy(scores.float().flatten(0, 1), labels.flatten(), reduction="none").view_as(weight)
            losses = (each * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)
            leaves = [parameters[name] for name in names]
            return losses.detach(), torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)

        if "gradients" not in self._cache:
            self._cache["gradients"] = torch.compile(gradients, dynamic=False) if self.compiled else gradients
        found = self._cache["gradients"]
        assert not isinstance(found, int)
        return found

    def _autocast(self, device: torch.device) -> AbstractContextManager[object]:
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def _chunk(
        self, start: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gradients = self._gradients()
        local = start.clone()
        # Leaves that share the vectors' memory: updating them in place moves the whole vectors.
        parameters = {name: view.detach().requires_grad_() for name, view in self.spec.unflatten(local).items()}
        leaves = list(parameters.values())
        total = torch.zeros(len(start), device=start.device)
        with tf32_allowed(self.precision != "float32"):
            for index in range(batches.shape[1]):
                samples = batches[:, index]
                weight = (samples >= 0).to(local.dtype)
                places = samples.clamp(min=0)
                losses, slopes = gradients(parameters, inputs[places], labels[places], weight)
                with torch.no_grad():
                    torch._foreach_add_(leaves, slopes, alpha=-rate)
                    total += losses * weight.sum(dim=1)
        return local, total / (batches >= 0).sum(dim=(1, 2)).clamp(min=1)

    def _measured(
        self, models: torch.Tensor, flat: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> int:
        """Replicas at a time. On a GPU a few are tried for one step and the memory they take is measured."""
        device, total = inputs.device, len(flat)
        if device.type != "cuda":
            per_replica = 4 * (5 * self.spec.dim + 64 * flat.shape[2] * inputs[0].numel())
            return max(1, min(CPU_BYTES, available_bytes(device) // 8) // per_replica)
        if "bytes" not in self._cache:
            few = min(PROBE, total)
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            self._chunk(models[:1].expand(few, -1), flat[:few, :1], inputs, labels, rate)
            peak = torch.cuda.max_memory_allocated(device) - before
            # Updates and their clipped copies come on top.
            self._cache["bytes"] = peak // few + 3 * 4 * self.spec.dim
        measured = self._cache["bytes"]
        assert isinstance(measured, int)
        most = max(1, available_bytes(device) // 2 // measured)
        return -(-total // -(-total // most))
