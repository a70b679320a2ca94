"""Block fading: one channel vector per device and round, constant within the round.

All functions return unit-mean-power coefficients, E|h_ij|² = 1; path loss is applied by the caller.
"""

from __future__ import annotations

import numpy as np

from airfl.randomness import complex_normal


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
    """Rayleigh fading with Kronecker correlation, H = L_d G L_aᵀ, shape [num_devices, num_antennas].

    G has i.i.d. CN(0, 1) entries; L_a and L_d are roots of the correlation between antennas and between devices.
    """
    fading = complex_normal(generator, (num_devices, num_antennas))
    if device_root is not None:
        fading = device_root @ fading
    if antenna_root is not None:
        fading = fading @ antenna_root.T
    return fading


def line_of_sight(generator: np.random.Generator, num_devices: int, num_antennas: int) -> np.ndarray:
    """Steering vectors of a half-wavelength linear array, a_j = exp(iπ j sin ϑ + iφ), shape [devices, antennas].

    Azimuth ϑ and phase φ are uniform and stay fixed for a trial: devices do not move.
    """
    azimuth = generator.uniform(-np.pi, np.pi, num_devices)
    phase = generator.uniform(-np.pi, np.pi, num_devices)
    angle = np.pi * np.sin(azimuth)[:, None] * np.arange(num_antennas)[None, :] + phase[:, None]
    steering: np.ndarray = np.exp(1j * angle)
    return steering


def rician(direct: np.ndarray, diffuse: np.ndarray, k_factor: float) -> np.ndarray:
    """h = √(κ/(κ+1)) · direct + √(1/(κ+1)) · diffuse, with κ the linear Rician factor."""
    strength = k_factor / (k_factor + 1.0)
    channel: np.ndarray = direct * np.sqrt(strength) + diffuse * np.sqrt(1.0 - strength)
    return channel
