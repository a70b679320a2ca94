"""What an uplink is given for one round, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from airfl.devices.updates import UpdateBlock


@dataclass(frozen=True)
class Reception:
    """The transceiver setting of one round, for all trials.

    Attributes:
        round_index: t.
        gains: wᴴ h_i s_i, [trials, K], complex128.
        noise_var: v = ‖w‖² σ²/2 + ν Σ|gain_i|²/2, the noise variance per real coordinate, [trials], float64.
        noise_power: σ², whole complex power per antenna.
        channels: h_i of the active devices, [trials, K, m], complex128; None over an ideal channel.
        tx_scaling: s_i, [trials, K], complex128; None over an ideal channel.
        combiner: w, [trials, m], complex128; None over an ideal channel.
        artificial: ν, power of the complex noise that devices add to every entry they send, [trials]; None without.
    """

    round_index: int
    gains: torch.Tensor
    noise_var: torch.Tensor
    noise_power: float
    channels: torch.Tensor | None = None
    tx_scaling: torch.Tensor | None = None
    combiner: torch.Tensor | None = None
    artificial: torch.Tensor | None = None


class Receiver(Protocol):
    """Takes the updates of one round in blocks, as they are trained."""

    def add(self, block: UpdateBlock) -> None:
        """Take some clipped updates."""
        ...

    def finish(self) -> torch.Tensor:
        """Return Δ̂, [trials, d], float32."""
        ...


class Uplink(ABC):
    """Turns blocks of clipped updates into estimates of their sums."""

    @abstractmethod
    def open(self, dim: int, reception: Reception) -> Receiver:
        """Begin a round."""

    def receive(self, blocks: Iterable[UpdateBlock], dim: int, reception: Reception) -> torch.Tensor:
        """A whole round at once."""
        receiver = self.open(dim, reception)
        for block in blocks:
            receiver.add(block)
        return receiver.finish()
