"""Tapped delay lines of 3GPP TR 38.901, from Sionna's tables: taps without directions.

In one narrow band all taps add up to one coefficient: profiles A, B and C are Rayleigh fading there, D and E Rician.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airfl.channel.laws.rayleigh import Rayleigh
from airfl.channel.laws.rician import Rician, rician
from airfl.channel.laws.sionna import WHERE, require_sionna

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
        return TDL(channel.profile, channel.delay_spread_s, channel.carrier_hz, **WHERE)

    @cached_property
    def k_factor(self) -> float:
        """Power of the line of sight over that of all other taps together; 0 where there is none."""
        if not self.line.los:
            return 0.0
        direct = float(self.line.mean_power_los)
        return direct / (float(self.line.mean_powers.sum()) - direct)

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        diffuse = Rayleigh.coefficients(self, index, round_index)
        return rician(self._direct[index], diffuse, self.k_factor)
