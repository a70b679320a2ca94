"""Tapped delay lines of 3GPP TR 38.901, from Sionna's tables: taps without directions.

In one narrow band all taps add up to one coefficient: profiles A, B and C are Rayleigh fading there, D and E Rician.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airfl.channel.laws.rician import Rician
from airfl.channel.laws.sionna import WHERE, require_sionna

#: For tables alone: in one narrow band taps add up, however late they come.
USUAL_SPREAD_S = 100e-9

if TYPE_CHECKING:
    from sionna.phy.channel.tr38901 import TDL


@dataclass(frozen=True)
class Tdl(Rician):
    """√(κ/(κ+1)) · line of sight + √(1/(κ+1)) · scattered, κ of the profile; a profile knows no directions, ours do."""

    def __post_init__(self) -> None:
        require_sionna("tdl")

    @cached_property
    def line(self) -> TDL:
        """Sionna's own."""
        from sionna.phy.channel.tr38901 import TDL

        channel = self.config.channel
        return TDL(channel.profile, channel.delay_spread_s or USUAL_SPREAD_S, channel.carrier_hz, **WHERE)

    @cached_property
    def taps(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Those of the profile but for its line of sight, which comes first."""
        if self.config.channel.delay_spread_s is None:
            return None
        powers = self.line.mean_powers.numpy().astype(np.float64)
        if self.line.los:
            powers[0] -= float(self.line.mean_power_los)
        return powers / powers.sum(), self.line.delays.numpy().astype(np.float64)

    @cached_property
    def k_factor(self) -> float:
        """Power of the line of sight over that of all other taps together; 0 where there is none."""
        if not self.line.los:
            return 0.0
        direct = float(self.line.mean_power_los)
        return direct / (float(self.line.mean_powers.sum()) - direct)
