"""The combiner methods by name. A method maps channels [..., K, m] (and phases, if it has any) to a ``Design``."""

from __future__ import annotations

from typing import Protocol

import torch

from airfl.transceiver.design import Design
from airfl.transceiver.zero_forcing import zero_forcing


class Combiner(Protocol):
    """minimise ‖w‖² subject to |wᴴ h_i| ≥ 1 for all served devices, exactly or approximately."""

    def __call__(self, channels: torch.Tensor, phases: torch.Tensor | None = None) -> Design:
        """Return a design batched like ``channels``."""
        ...


COMBINERS: dict[str, Combiner] = {"zero-forcing": zero_forcing}
