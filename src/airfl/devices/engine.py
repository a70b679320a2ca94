"""Local training behind one small protocol.

An engine takes the broadcast models and, for every replica (trial × active device), the samples of each local step.
It hands back blocks of updates Δ = (θ − θ_local)/η, so that memory stays bounded however many devices there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from airfl.config import Config
from airfl.devices.models import ModelSpec


@dataclass(frozen=True)
class UpdateBlock:
    """Updates of some replicas.

    Attributes:
        trial: row of the broadcast model each update belongs to, [B], int64.
        slot: position among the active devices of that trial, [B], int64.
        updates: Δ, [B, d], float32.
        losses: mean loss over the samples of the local steps, [B].
    """

    trial: torch.Tensor
    slot: torch.Tensor
    updates: torch.Tensor
    losses: torch.Tensor


class Engine(Protocol):
    """Runs local SGD for all replicas of one round."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """Yield every replica's update once.

        Args:
            models: θ, [trials, d].
            batches: sample numbers of each local step, [trials, K, steps, batch], int64; −1 marks an empty place. A
                step without samples leaves the model as it is.
            inputs: all samples, [N, ...].
            labels: [N].
        """
        ...


def choose_engine(config: Config, spec: ModelSpec, device: torch.device) -> Engine:
    """Pick a backend: one tensor program on a GPU and for dense models, one device after another otherwise.

    Batched convolutions with a different weight per replica are slower than the loop on a CPU.
    """
    from airfl.devices.engine_batched import BatchedEngine
    from airfl.devices.engine_loop import LoopEngine

    backend = config.engine.backend
    if backend == "auto":
        backend = "batched" if device.type == "cuda" or spec.is_dense else "loop"
    return BatchedEngine(spec) if backend == "batched" else LoopEngine(spec)
