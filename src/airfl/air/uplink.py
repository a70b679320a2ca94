"""What an uplink is given for one round, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch

from airfl.air.setting import Setting
from airfl.devices.updates import UpdateBlock


class Receiver(Protocol):
    """Takes the updates of one round in blocks, as they are trained."""

    def add(self, block: UpdateBlock) -> None:
        """Take some clipped updates."""
        ...

    def finish(self) -> torch.Tensor:
        """Return Δ̂, [trials, d], float32."""
        ...


@runtime_checkable
class Summing(Receiver, Protocol):
    """A receiver whose sum may be put together from those of others."""

    def sums(self) -> list[torch.Tensor]:
        """What is added up so far, float64; no noise is in it."""
        ...

    def take(self, sums: list[torch.Tensor]) -> None:
        """Take what another receiver of the same round has added up."""
        ...


class Uplink(ABC):
    """Turns blocks of clipped updates into estimates of their sums."""

    @abstractmethod
    def open(self, dim: int, setting: Setting) -> Receiver:
        """Begin a round."""

    def receive(self, blocks: Iterable[UpdateBlock], dim: int, setting: Setting) -> torch.Tensor:
        """A whole round at once."""
        receiver = self.open(dim, setting)
        for block in blocks:
            receiver.add(block)
        return receiver.finish()
