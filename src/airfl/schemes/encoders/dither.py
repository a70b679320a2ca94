"""Non-coherent sending: energies, halved by a public dither, with a memory.

After Wen, Michelusi, Simeone, Yang & Xing (NCAirFL).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch

from airfl.config import Config, Learning
from airfl.devices import UpdateBlock, row_norms
from airfl.randomness import stream
from airfl.schemes.encoders.sign import shortened
from airfl.schemes.parts import Encoded, Encoder
from airfl.schemes.public import Public

#: How far below c₁ energies are clipped: room for roots and sums in float32.
MARGIN = 1e-5
#: ‖u‖₁/(√d ‖u‖₂) of a vector of independent Gaussian entries; the dither leaves half of it.
TYPICAL = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Dithered(Encoder):
    """x = √g with g = max(φ ⊙ u, 0), u = Δ + m, and ‖g‖₁ ≤ c₁; then m ← u − φ ⊙ g, no longer than a cap.

    φ is a vector of signs that everybody draws from the same public key, anew in every round. What is sent is not
    negative, and its energy is Σ g ≤ c₁: so C = √c₁.
    """

    remembers: ClassVar[bool] = True
    l1_clip: float | None = None
    cap: float = 4.0
    learning: Learning | None = None

    def configured(self, config: Config) -> Dithered:
        """With c₁ and the cap that were asked for."""
        return replace(self, l1_clip=config.scheme.l1_clip, cap=config.scheme.memory_cap, learning=config.learning)

    def unit(self, clip_norm: float, dim: int) -> float:
        """√c₁ stands for c; where nothing is said c₁ is what dithering leaves of an even update as long as c."""
        return math.sqrt(0.5 * TYPICAL * clip_norm * math.sqrt(dim) if self.l1_clip is None else self.l1_clip)

    def length(self, clip_norm: float) -> float:
        """See ``Encoder.length``."""
        return clip_norm

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """Nobody asks: without the public dither there is nothing to send."""
        raise NotImplementedError

    def encode_in(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public) -> Encoded:
        """See ``Encoder.encode_in``; a device whose update is not finite sends nothing and keeps its memory."""
        assert memory is not None
        updates = block.updates
        dim = updates.shape[1]
        wanted = updates + memory
        whole = torch.isfinite(wanted).all(dim=1, keepdim=True) & torch.isfinite(updates).all(dim=1, keepdim=True)
        wanted = torch.where(whole, wanted, 0.0)
        signs = dither(public, dim).to(updates.device)[block.trial]
        energy = (signs * wanted).clamp(min=0.0).double()
        most = clip_norm**2 * (1.0 - MARGIN)
        energy = energy * (most / energy.sum(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0)
        left = wanted - signs * energy.float()
        longest = self.cap * (clip_norm if self.learning is None else self.learning.clip_norm_for(dim))
        left = shortened(left, longest)
        sent = torch.where(whole, energy.sqrt().float(), 0.0)
        norms = row_norms(updates).masked_fill(~whole.squeeze(1), 0.0)
        return Encoded(block.with_updates(sent), norms, torch.where(whole, left, memory))


def dither(public: Public, dim: int) -> torch.Tensor:
    """φ of every trial, [trials, d], float32: ±1 with equal chances, the same for all devices of a round."""
    return torch.stack([_signs(public.seed, trial, public.round_index, dim) for trial in public.trials])


@lru_cache(maxsize=32)  # every block of updates of a round asks again
def _signs(seed: int, trial: int, round_index: int, dim: int) -> torch.Tensor:
    drawn = stream(seed, "common-dither", trial, round_index).integers(0, 2, size=dim).astype("float32")
    return 2.0 * torch.from_numpy(drawn) - 1.0
