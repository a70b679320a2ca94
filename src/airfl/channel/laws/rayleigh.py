"""Rayleigh fading, with Kronecker correlation between antennas and between devices."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from airfl.channel.laws.law import Placed
from airfl.randomness import complex_normal, stream


class Rayleigh(Placed):
    """H = L_d G L_aᵀ with G i.i.d. CN(0, 1); R_ij = ρ^|i−j| between antennas (``antenna_correlation``) and devices."""

    @cached_property
    def _roots(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        system, channel = self.config.system, self.config.channel
        pairs = (
            (system.num_antennas, channel.antenna_correlation),
            (system.num_devices, channel.device_correlation),
        )
        antennas, devices = (correlation_root(size, rho) if rho else None for size, rho in pairs)
        return antennas, devices

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        system = self.config.system
        generator = stream(system.seed, "fading", self.trials[index], round_index)
        return scattered(generator, system.num_devices, system.num_antennas, *self._roots)


def correlation_root(size: int, rho: float) -> np.ndarray:
    """Cholesky factor L of the exponential correlation R_ij = ρ^|i−j|, so that L g has covariance R."""
    index = np.arange(size)
    return np.linalg.cholesky(rho ** np.abs(index[:, None] - index[None, :]))


def scattered(
    generator: np.random.Generator,
    num_devices: int,
    num_antennas: int,
    antenna_root: np.ndarray | None = None,
    device_root: np.ndarray | None = None,
) -> np.ndarray:
    """H = L_d G L_aᵀ, shape [num_devices, num_antennas], E|h_ij|² = 1.

    G has i.i.d. CN(0, 1) entries; L_a and L_d are roots of the correlation between antennas and between devices.
    """
    fading = complex_normal(generator, (num_devices, num_antennas))
    if device_root is not None:
        fading = device_root @ fading
    if antenna_root is not None:
        fading = fading @ antenna_root.T
    return fading
