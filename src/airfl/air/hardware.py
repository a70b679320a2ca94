"""Amplifiers and converters: maps of what is sent, and of what is heard."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

#: Standard deviations of noise that a converter's full scale leaves room for: beyond lies less than 2·10⁻⁵⁷ of it.
HEADROOM = 16.0


@dataclass(frozen=True)
class Hardware:
    """What a round's signals go through beside the air.

    Attributes:
        amplitude: A, the largest that a device's amplifier gives, √W; infinite where nothing limits it.
        bits: b of the converters; None: they are ideal.
        step: Δ_a of each antenna's converter, [trials, m]; its full scale is 2^{b−1}Δ_a.
    """

    amplitude: float = math.inf
    bits: int | None = None
    step: torch.Tensor | None = None

    def repeated(self, copies: int) -> Hardware:
        """Every trial ``copies`` times."""
        return self if self.step is None else replace(self, step=self.step.repeat_interleave(copies, dim=0))

    def ideal_converters(self) -> Hardware:
        """The same with numbers as they are heard."""
        return replace(self, bits=None, step=None)

    @property
    def limits(self) -> bool:
        """Whether amplifiers have a limit."""
        return math.isfinite(self.amplitude)


def limited(symbols: torch.Tensor, scaling: torch.Tensor, amplitude: float) -> torch.Tensor:
    """x min(1, A/|s x|) for symbols x [K, n] and scalars s [K]: the nearest point of a disk of radius A/|s|.

    Projections on a convex set bring no two points further apart, and this one leaves zero where it is. So a device's
    contribution, and how far another update can move it, get no longer.
    """
    sent = (symbols * scaling.unsqueeze(1)).abs()
    return symbols * (amplitude / sent.clamp(min=amplitude))


def converted(heard: torch.Tensor, bits: int, step: torch.Tensor, dither: torch.Tensor) -> torch.Tensor:
    """What b bits make of antennas' signals [m, n], real and imaginary part each: Δ(⌊(y + u)/Δ⌋ + ½) − u.

    With u uniform on ±Δ/2 and no converter at its limit the error is uniform on ±Δ/2 and independent of y.

    Args:
        step: Δ of each antenna, [m].
        dither: u/Δ, known to the receiver, [m, n, 2].
    """
    size, most = step.view(-1, 1, 1), 2.0 ** (bits - 1)
    level = (torch.view_as_real(heard) / size + dither).floor().clamp(-most, most - 1.0)
    return torch.view_as_complex(((level + 0.5 - dither) * size).contiguous())
