"""Whole devices on threads of their own: the fastest way for convolutions on a CPU."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch.func import functional_call

from airfl.devices.models import ModelSpec
from airfl.devices.updates import UpdateBlock
from airfl.engines.cpu_chain import build_chain
from airfl.engines.device_threads import train_on_threads
from airfl.engines.replicated import Parameters

#: Local steps whose samples are gathered at a time.
STEPS = 16


class Learner(Protocol):
    """Trains one device after another."""

    def begin(self, start: Parameters, update: Parameters, rate: float) -> None:
        """Start a device at θ; its update (θ − θ_local)/η will be written to ``update``."""
        ...

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> float:
        """One SGD step on the mean loss of some samples; returns that loss."""
        ...

    def finish(self) -> None:
        """Write the update."""
        ...


class AnyModule:
    """A learner for any module, through autograd.

    It has its own copy of the module, since a call swaps parameters, but not of its tensors: frozen ones may be large.
    """

    def __init__(self, spec: ModelSpec, dtype: torch.dtype) -> None:
        tensors = {id(value): value for value in (*spec.module.parameters(), *spec.module.buffers())}
        self.module, self.dtype = copy.deepcopy(spec.module, tensors), dtype

    def begin(self, start: Parameters, update: Parameters, rate: float) -> None:
        """See ``Learner.begin``."""
        self.start, self.update, self.rate = start, update, rate
        self.local = {name: value.clone().requires_grad_() for name, value in start.items()}

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> float:
        """See ``Learner.step``."""
        leaves, low = list(self.local.values()), self.dtype != torch.float32
        with torch.enable_grad():
            # Without its cache, which would keep the rounded weights of the step before.
            with torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False):
                scores = functional_call(self.module, self.local, (x,))
            loss = F.cross_entropy(scores.float(), labels)
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        torch._foreach_add_(leaves, gradients, alpha=-self.rate)
        return float(loss)

    def finish(self) -> None:
        """See ``Learner.finish``."""
        for name, update in self.update.items():
            torch.sub(self.start[name], self.local[name].detach(), out=update).div_(self.rate)


@dataclass(frozen=True)
class ThreadsEngine:
    """The same steps as the loop, one device on each thread.

    Chains of known layers run with written-out passes, any other module through autograd. ``bf16`` rounds the factors
    of the large products to bfloat16; parameters, updates and losses stay in float32.
    """

    spec: ModelSpec
    precision: str = "float32"
    workers: int | None = None
    name: str = "threads"
    _idle: dict[tuple[int, ...], list[Learner]] = field(default_factory=dict, repr=False, compare=False)

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """See ``Engine.train``."""
        trials, active, _, batch = batches.shape
        starts = [self.spec.unflatten(model) for model in models]
        idle = self._idle.setdefault((*inputs.shape[1:], batch), [])

        def work(replica: int, _: int, updates: torch.Tensor, stop: threading.Event) -> torch.Tensor:
            try:
                learner = idle.pop()
            except IndexError:
                learner = self._learner(inputs.shape[1:], batch)
            trial, slot = divmod(replica, active)
            total, count = 0.0, 0
            with torch.no_grad():
                learner.begin(starts[trial], self.spec.unflatten(updates[0]), learning_rate)
                for x, y in _steps(batches[trial, slot], inputs, labels):
                    if stop.is_set():
                        break
                    total += learner.step(x, y) * len(y)
                    count += len(y)
                learner.finish()
            idle.append(learner)
            return torch.tensor([total / max(count, 1)])

        yield from train_on_threads(work, trials, active, self.spec.dim, workers=self.workers)

    def _learner(self, input_shape: tuple[int, ...], batch: int) -> Learner:
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        return build_chain(self.spec.module, input_shape, batch, dtype) or AnyModule(self.spec, dtype)


def _steps(
    batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Samples and labels of the local steps that have any."""
    for part in batches.split(STEPS):
        there = part >= 0
        samples, counts = part[there], there.sum(dim=1).tolist()
        some, theirs = inputs.index_select(0, samples), labels.index_select(0, samples)
        for x, y in zip(some.split(counts), theirs.split(counts), strict=True):
            if len(y):
                yield x, y
