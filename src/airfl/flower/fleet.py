"""Devices that train elsewhere, in the place of a task and an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from airfl.config import Config
from airfl.devices import Task, UpdateBlock
from airfl.devices.models import ModelSpec
from airfl.flower.layout import Layout

#: Updates that are handed on at a time.
BLOCK = 16


@dataclass(frozen=True)
class Fleet(Task):
    """A task whose samples are elsewhere: only where the models begin is known, θ⁰ [1, d].

    Nobody knows how many local steps nodes take, or of what kind; so no bound that uses it is booked.
    """

    start: torch.Tensor = field(default_factory=lambda: torch.zeros(1, 0), repr=False)

    @staticmethod
    def of(config: Config, trial: int, layout: Layout, start: torch.Tensor) -> Fleet:
        """The fleet of one trial, for a model of this layout."""
        shapes = tuple(torch.Size(shape) for shape in layout.shapes)
        spec = ModelSpec(nn.Identity, nn.Identity(), layout.names, shapes)
        nothing = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
        return Fleet(config, (trial,), spec, *nothing, (), start=start.unsqueeze(0))

    def max_local_steps(self, index: int) -> int | None:
        """See ``Task.max_local_steps``."""
        return None

    def initial_models(self) -> torch.Tensor:
        """See ``Task.initial_models``."""
        return self.start

    def batches(self, round_index: int, active: np.ndarray) -> torch.Tensor:
        """No samples: nodes have them, [1, K, 0, 0]."""
        return torch.zeros(*active.shape, 0, 0, dtype=torch.int64)


@dataclass(frozen=True)
class Trained:
    """An engine that hands on what nodes trained; a device that sent nothing sends zero.

    Attributes:
        active: numbers of the devices at each place, [K]; −1 where nobody is.
        updates: Δ by device number, [d] each.
    """

    active: np.ndarray
    updates: Mapping[int, torch.Tensor]
    name: str = "flower"

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """See ``Engine.train``."""
        nothing = torch.zeros(models.shape[1])
        for start in range(0, len(self.active), BLOCK):
            devices = self.active[start : start + BLOCK].tolist()
            rows = [self.updates.get(device, nothing) for device in devices]
            slots = torch.arange(start, start + len(rows))
            yield UpdateBlock(torch.zeros_like(slots), slots, torch.stack(rows), torch.zeros(len(rows)))
