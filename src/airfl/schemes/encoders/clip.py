"""What devices send."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch

from airfl.devices import UpdateBlock, clip_factors
from airfl.schemes.parts import CoverChoice, Encoded, Encoder


class Plain(Encoder):
    """The update as it was trained: nothing bounds it."""

    def length(self, clip_norm: float) -> float:
        """See ``Encoder.length``."""
        return math.inf

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """See ``Encoder.encode``."""
        _, norms = clip_factors(block.trained, clip_norm)
        return Encoded(replace(block, factors=None), norms)


class Clip(Encoder):
    """Δ̄ = Δ · min(1, c/‖Δ‖); an update that is not finite counts as zero."""

    def length(self, clip_norm: float) -> float:
        """See ``Encoder.length``."""
        return clip_norm

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """See ``Encoder.encode``."""
        factors, norms = clip_factors(block.trained, clip_norm)
        lost = factors == 0.0
        if bool(lost.any()):  # infinity or NaN times 0 is not 0
            block, norms = block.without(lost), norms.masked_fill(lost, 0.0)
        return Encoded(replace(block, factors=factors), norms)


class ClipWithNoise(Clip):
    """Δ̄ + ζ, ζ circular: the same variance in phase and in quadrature. The schedule finds it, the uplink adds it."""

    cover: ClassVar[CoverChoice] = "circular"


class ClipWithOwnNoise(Clip):
    """Δ̄ + ζ_i, ζ_i circular, with a variance of its own for every device."""

    cover: ClassVar[CoverChoice] = "each"


class ClipWithZeroSum(Clip):
    """Δ̄ + ζ, where the ζ of all who send add up to zero: the sum does not hear them, other antennas do."""

    cover: ClassVar[CoverChoice] = "zero-sum"


class ClipWithCover(Clip):
    """Δ̄ with what hides it at the antennas: noise in quadrature or masks, and own noise where it must be."""

    cover: ClassVar[CoverChoice] = "chosen"
