"""Where the devices are, and how much of their power arrives."""

from __future__ import annotations

import math

import numpy as np

SPEED_OF_LIGHT_M_S = 299_792_458.0


def path_gain(distance_m: np.ndarray | float, carrier_hz: float) -> np.ndarray:
    """Free-space power gain Λ = (c_l / (4π f r))² (paper, Sec. V-A).

    Args:
        distance_m: r, any shape, metres.
        carrier_hz: f.
    """
    return (SPEED_OF_LIGHT_M_S / (4.0 * math.pi * carrier_hz * np.asarray(distance_m, dtype=np.float64))) ** 2


def disk_drop(
    generator: np.random.Generator, num_devices: int, radius_m: float, min_distance_m: float, common: bool
) -> np.ndarray:
    """Distances r = R·√U(0, 1) of devices dropped uniformly on a disk, metres, shape [num_devices].

    Args:
        common: draw one distance and give it to every device (what the authors' results did).
    """
    uniform = generator.random(1 if common else num_devices)
    distances = np.maximum(radius_m * np.sqrt(uniform), min_distance_m)
    return np.broadcast_to(distances, (num_devices,)).copy()


def azimuths(generator: np.random.Generator, num_devices: int, sector: bool) -> np.ndarray:
    """Uniform directions from the base station, radian, [num_devices]: all round, or a third of the circle."""
    return generator.uniform(-np.pi, np.pi, num_devices) / (3.0 if sector else 1.0)


def shadowing_db(
    generator: np.random.Generator, places_m: np.ndarray, std_db: float, decorrelation_m: float
) -> np.ndarray:
    """Log-normal shadowing, N(0, std²) dB with correlation exp(−Δ/decorrelation) between places [n, 2]; shape [n].

    Args:
        decorrelation_m: 0 for independent devices.
    """
    unit = generator.standard_normal(len(places_m))
    if decorrelation_m > 0.0:
        from scipy.spatial.distance import cdist  # here, so that what needs no shadowing need not load it

        covariance = cdist(places_m, places_m)
        covariance /= -decorrelation_m
        np.exp(covariance, out=covariance)
        covariance[np.diag_indices_from(covariance)] += 1e-12  # devices may share a place
        unit = np.linalg.cholesky(covariance) @ unit
    shadowed: np.ndarray = std_db * unit
    return shadowed
