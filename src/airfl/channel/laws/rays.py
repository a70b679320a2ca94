"""Channels as sums of rays: directions and strengths stay for a trial, phases are new in every round.

    h_i = √(1/(κ_i+1)) Σ_r a_ir e^{jφ_irt} e(θ_ir) + √(κ_i/(κ_i+1)) · line of sight,     φ uniform,

with e(θ) the response of a panel of antennas in the y-z plane, half a wavelength apart. This is step 11 of TR 38.901,
Section 7.5, for devices with one vertical antenna. A panel's response is that of a column times that of a row, so that
a round takes n small matrix products and no array of n × rays × antennas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Devices whose rays are added up at a time.
PORTION = 256


def panel_of(num_antennas: int) -> tuple[int, int]:
    """Rows and columns of the panel that is nearest to a square, no higher than wide."""
    rows = next(size for size in range(math.isqrt(num_antennas), 0, -1) if num_antennas % size == 0)
    return rows, num_antennas // rows


def responses(azimuth: np.ndarray, zenith: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Of rows [..., rows], from the top, and of columns [..., columns], from −y, for directions in radian."""
    up = (rows - 1) / 2.0 - np.arange(rows)
    across = np.arange(columns) - (columns - 1) / 2.0
    vertical = np.exp(1j * np.pi * np.cos(zenith)[..., None] * up)
    horizontal = np.exp(1j * np.pi * (np.sin(zenith) * np.sin(azimuth))[..., None] * across)
    return vertical.astype(np.complex64), horizontal.astype(np.complex64)


@dataclass(frozen=True)
class RaySum:
    """The rays of some devices of a trial.

    Attributes:
        strength: a_ir with antenna pattern, path loss and shadowing in it, [n, rays].
        vertical, horizontal: responses of rows [n, rays, rows] and columns [n, rays, columns].
        delays_s: of rays after the first, [n, rays].
        direct: the line of sight with its strength, [n, antennas]; it is the first. 0 where there is none.
    """

    strength: np.ndarray
    vertical: np.ndarray
    horizontal: np.ndarray
    delays_s: np.ndarray
    direct: np.ndarray

    @property
    def power(self) -> np.ndarray:
        """E|h|² per antenna, [n]."""
        power: np.ndarray = self._ray_powers.sum(axis=1) + self._direct_power
        return power

    @property
    def delay_spread_s(self) -> np.ndarray:
        """Root of the second central moment of delays, weighted with power, [n]."""
        weights = self._ray_powers / self.power[:, None]
        mean = (weights * self.delays_s).sum(axis=1)
        square = (weights * self.delays_s.astype(np.float64) ** 2).sum(axis=1)
        spread: np.ndarray = np.sqrt(np.maximum(square - mean**2, 0.0))
        return spread

    @property
    def _ray_powers(self) -> np.ndarray:
        powers: np.ndarray = self.strength.astype(np.float64) ** 2
        return powers

    @property
    def _direct_power(self) -> np.ndarray:
        power: np.ndarray = (np.abs(self.direct) ** 2).mean(axis=1)
        return power

    def draw(self, generator: np.random.Generator, offset_hz: float = 0.0) -> np.ndarray:
        """The channels of one round, [n, antennas], complex128; antennas column by column, from the top.

        Args:
            offset_hz: from the carrier; the line of sight is the first to come.
        """
        phases = generator.uniform(-np.pi, np.pi, self.strength.shape)
        if offset_hz:
            phases -= (2.0 * np.pi * offset_hz) * self.delays_s
        return self.at(phases)

    def at(self, phases: np.ndarray) -> np.ndarray:
        """The same with given phases, [n, rays]."""
        drawn = self.direct.copy()
        for first in range(0, len(drawn), PORTION):
            some = slice(first, first + PORTION)
            rays = (self.strength[some] * np.exp(1j * phases[some])).astype(np.complex64)
            across = (self.horizontal[some] * rays[..., None]).transpose(0, 2, 1)
            drawn[some] += (across @ self.vertical[some]).reshape(len(rays), -1)
        return drawn


def joined(parts: list[RaySum]) -> RaySum:
    """The rays of several drops of a trial as one; drops differ in the number of rays, and nothing has no strength."""
    most = max(part.strength.shape[1] for part in parts)

    def padded(values: np.ndarray) -> np.ndarray:
        missing = most - values.shape[1]
        return np.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])

    return RaySum(
        np.concatenate([padded(part.strength) for part in parts]),
        np.concatenate([padded(part.vertical) for part in parts]),
        np.concatenate([padded(part.horizontal) for part in parts]),
        np.concatenate([padded(part.delays_s) for part in parts]),
        np.concatenate([part.direct for part in parts]),
    )
