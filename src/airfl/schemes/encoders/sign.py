"""One bit per coordinate: devices send signs, and may carry over what the signs left out.

One-bit aggregation as in Zhu, Du, Gündüz & Huang (2020), one entry a symbol; error feedback in its plain form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from airfl.config import Config, Learning
from airfl.devices import UpdateBlock, row_norms
from airfl.schemes.parts import LEAST_ROOM, Encoded, Encoder


class Sign(Encoder):
    """x = sign(Δ), in {−1, 0, 1}: √d long at most, whatever the update is. One that is not finite is not sent."""

    room = LEAST_ROOM  # booked, for signs have no clip that leaves any

    def unit(self, clip_norm: float, dim: int) -> float:
        """√d stands for c: nothing is clipped."""
        return math.sqrt(dim)

    def length(self, clip_norm: float) -> float:
        """See ``Encoder.length``."""
        return clip_norm * (1.0 + self.room)

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """See ``Encoder.encode``."""
        updates, whole = _finite(block)
        return Encoded(block.with_updates(torch.sign(updates)), row_norms(updates).masked_fill(~whole, 0.0))


@dataclass(frozen=True)
class SignWithMemory(Sign):
    """x = sign(u) with u = Δ + β m; then m ← u − a x, no longer than a cap.

    a is what a vote is worth to the device itself: ‖u‖₁/d, which leaves the shortest memory, or a fixed number. It
    never leaves the device. Memory is capped at a multiple of the configured clip norm, since votes of a fixed worth
    could fall behind for ever.
    """

    remembers: ClassVar[bool] = True
    feedback: float = 1.0
    worth: float | None = None
    cap: float = 4.0
    learning: Learning | None = None

    def configured(self, config: Config) -> SignWithMemory:
        """With β, a and the cap that were asked for."""
        scheme = config.scheme
        return replace(
            self,
            feedback=scheme.feedback,
            worth=scheme.vote_worth,
            cap=scheme.memory_cap,
            learning=config.learning,
        )

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """See ``Encoder.encode``; a device whose update is not finite sends nothing and keeps its memory."""
        assert memory is not None
        updates, whole = _finite(block)
        wanted = updates + self.feedback * memory
        sent = torch.sign(wanted).masked_fill(~whole.unsqueeze(1), 0.0)
        dim = wanted.shape[1]
        worth = wanted.abs().mean(dim=1, keepdim=True) if self.worth is None else self.worth
        left = wanted - worth * sent
        longest = self.cap * (clip_norm if self.learning is None else self.learning.clip_norm_for(dim))
        left = shortened(left, longest)
        good = whole & torch.isfinite(left).all(dim=1)  # sums of huge numbers may leave float32
        left = torch.where(good.unsqueeze(1), left, memory)
        sent = torch.where(good.unsqueeze(1), sent, 0.0)
        return Encoded(block.with_updates(sent), row_norms(updates).masked_fill(~whole, 0.0), left)


def shortened(rows: torch.Tensor, longest: float) -> torch.Tensor:
    """Rows [B, d] cut to a length, for what stays at a device: unlike a clip it leaves no room for rounding."""
    return rows * (longest / row_norms(rows).clamp(min=1e-300)).clamp(max=1.0).float().unsqueeze(1)


def _finite(block: UpdateBlock) -> tuple[torch.Tensor, torch.Tensor]:
    """The updates with zeros in place of those that are not finite, [B, d], and which are, [B]."""
    updates = block.updates
    whole = torch.isfinite(updates).all(dim=1)
    return updates.masked_fill(~whole.unsqueeze(1), 0.0), whole
