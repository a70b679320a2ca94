"""Memory of what truncation left out, as AirFL-Mem has it (Wen, Xing & Simeone 2023), behind a clip of what is sent.

With a mask of the entries that device i sends in a round, Δ its update and m its memory:

    short:  x = clip_c(mask ⊙ (Δ + m)),   m ← (1 − mask) ⊙ Δ
    long:   x = clip_c(mask ⊙ (Δ + m)),   m ← Δ + m − x
    mild:   x = clip_c(mask ⊙ (Δ + m)),   m ← (1 − mask) ⊙ (Δ + m)

and m is no longer than a cap: a clip that binds in every round would feed long memory for ever. The cap and the clip
are not in the paper, and neither is the mild choice, which forgets what the clip took.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from airfl.config import Config
from airfl.devices import UpdateBlock, clip_factors
from airfl.schemes.parts import Encoded, Encoder
from airfl.schemes.public import Public

MemoryKind = Literal["long", "short", "mild"]


@dataclass(frozen=True)
class ClipWithMemory(Encoder):
    """What is sent is clipped, not what was trained; an update that is not finite sends nothing and changes no memory.

    Attributes:
        kind: what of a round is remembered.
        cap: c_m/c, how long memories may get.
    """

    remembers: ClassVar[bool] = True
    kind: MemoryKind = "long"
    cap: float = 4.0

    def configured(self, config: Config) -> ClipWithMemory:
        """With the kind of memory and the cap that were asked for."""
        return replace(self, kind=config.scheme.memory, cap=config.scheme.memory_cap)

    def length(self, clip_norm: float) -> float:
        """See ``Encoder.length``."""
        return clip_norm

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """See ``Encoder.encode``: everything is sent."""
        return self._encoded(block, clip_norm, memory, None)

    def encode_in(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public) -> Encoded:
        """See ``Encoder.encode_in``: devices know which of their own entries are sent."""
        return self._encoded(block, clip_norm, memory, public)

    def _encoded(
        self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public | None
    ) -> Encoded:
        assert memory is not None
        update = block.updates
        mask = None if public is None else public.sends(block.trial.cpu(), block.slot.cpu(), update.shape[1])
        mask = None if mask is None else mask.to(update.device)
        usable, norms = clip_factors(update, clip_norm)
        wanted = update + memory
        lost = (usable == 0.0) | (clip_factors(wanted, clip_norm)[0] == 0.0)
        wanted = wanted.masked_fill(lost.unsqueeze(1), 0.0)
        sent = wanted if mask is None else wanted * mask
        factors, _ = clip_factors(sent, clip_norm)
        left = wanted - sent * factors.unsqueeze(1)
        if self.kind != "long":
            whole = update.masked_fill(lost.unsqueeze(1), 0.0) if self.kind == "short" else wanted
            left = torch.zeros_like(wanted) if mask is None else whole * ~mask
        left = left * clip_factors(left, self.cap * clip_norm)[0].unsqueeze(1)
        left = torch.where(lost.unsqueeze(1), memory, left)
        made = replace(block.with_updates(sent), factors=factors)
        return Encoded(made, norms.masked_fill(usable == 0.0, 0.0), left)
