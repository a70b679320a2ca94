"""Blocks of time and frequency in which a round's channels stand still.

    B = ⌈W/B_c⌉ · ⌈symbols/(W T_c)⌉,     B_c = 1/(5 τ_rms) or stated,     T_c = 0.423 λ/speed or stated.

Symbols are dealt out to blocks one by one, so that every block has every kind of coordinate: symbol s is sent in block
s mod B. A symbol carries one coordinate, or two where symbols are complex.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airfl.channel.geometry import SPEED_OF_LIGHT_M_S
from airfl.config import Channel, Config
from airfl.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Grid:
    """How a round is cut.

    Attributes:
        bands, spans: blocks side by side in frequency, and one after another in time.
        symbols: of a round.
        per_symbol: coordinates that a symbol carries.
    """

    bands: int
    spans: int
    symbols: int
    per_symbol: int

    @property
    def count(self) -> int:
        """B."""
        return self.bands * self.spans

    @property
    def shares(self) -> tuple[float, ...]:
        """Of all symbols the part that is sent in each block; 1/B where B divides them."""
        return tuple(-(-(self.symbols - block) // self.count) / self.symbols for block in range(self.count))

    def block_of(self, dim: int) -> torch.Tensor:
        """The block of every coordinate, [d], int64."""
        import torch  # here, so that what only plans a link need not load it

        return torch.arange(dim) // self.per_symbol % self.count

    def energies(self, updates: torch.Tensor) -> torch.Tensor:
        """Of updates [n, d] the energy in each block, [n, B], float64."""
        import torch

        row = self.count * self.per_symbol
        padded = torch.nn.functional.pad(updates, (0, -updates.shape[1] % row)).double()
        return padded.square().reshape(len(updates), -1, self.count, self.per_symbol).sum(dim=(1, 3))


@dataclass(frozen=True)
class Place:
    """One block.

    Attributes:
        band, span: its numbers.
        offset_hz: of its middle from the carrier.
    """

    band: int
    span: int
    offset_hz: float

    @property
    def key(self) -> tuple[int, ...]:
        """What its draws are keyed with beside trial and round; nothing for the first, as in a flat round."""
        return () if self.band == self.span == 0 else (self.span, self.band)


def symbols_of(channel: Channel, dim: int) -> int:
    """How many symbols d coordinates take."""
    return dim if channel.symbols == "real" else -(-dim // 2)


def grid_of(config: Config, dim: int) -> Grid:
    """The blocks of a round; one where nothing was said of coherence."""
    channel = config.channel
    symbols = symbols_of(channel, dim)
    airtime = symbols / channel.bandwidth_hz
    bands, spans = bands_of(channel), 1
    time = coherence_time_s(channel)
    if time is not None:
        if channel.coherence_s is not None and time > airtime * (1.0 + 1e-12):
            raise InputError(
                f"`channel.coherence_s` = {time:g} s is longer than a round, which takes {airtime:.3g} s on air: it is "
                "one block of time anyway; leave it out"
            )
        spans = max(1, math.ceil(airtime / time * (1.0 - 1e-12)))
    if bands * spans > symbols:
        raise InputError(
            f"a round of {symbols:,} symbols cannot have {bands * spans:,} blocks ({bands:,} of frequency, {spans:,} "
            "of time): each needs a symbol; lower the bandwidth or the speed, or state a longer coherence"
        )
    return Grid(bands, spans, symbols, 1 if channel.symbols == "real" else 2)


def bands_of(channel: Channel) -> int:
    """⌈W/B_c⌉; one where nothing was said of it."""
    width = coherence_bandwidth_hz(channel)
    return 1 if width is None else math.ceil(channel.bandwidth_hz / width * (1.0 - 1e-12))


def check_rotation(channel: Channel, grid: Grid) -> None:
    """Refuse to spread what has nowhere to spread to."""
    if channel.rotation and grid.count == 1:
        raise InputError(
            "`channel.rotation` spreads updates over the blocks of a round, and this round has one; state "
            "`channel.coherence_hz` or `channel.coherence_s`, or leave it out"
        )


def coherence_bandwidth_hz(channel: Channel) -> float | None:
    """B_c; None where nothing was said of it."""
    if channel.coherence_hz is not None:
        return channel.coherence_hz
    return None if channel.delay_spread_s is None else 1.0 / (5.0 * channel.delay_spread_s)


def coherence_time_s(channel: Channel) -> float | None:
    """T_c; None where nothing moves."""
    if channel.coherence_s is not None or channel.speed_m_s is None:
        return channel.coherence_s
    return 0.423 * SPEED_OF_LIGHT_M_S / channel.carrier_hz / channel.speed_m_s


def place_of(block: int, grid: Grid, channel: Channel) -> Place:
    """The block of that number: bands first."""
    span, band = divmod(block, grid.bands)
    middle = (band + 0.5) / grid.bands - 0.5
    return Place(band, span, middle * channel.bandwidth_hz if grid.bands > 1 else 0.0)
