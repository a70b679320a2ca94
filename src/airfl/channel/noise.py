"""Receiver noise power."""

from __future__ import annotations

import math

BOLTZMANN_J_K = 1.380649e-23
ROOM_K = 290.0


def noise_power_w(density_dbm_hz: float, bandwidth_hz: float) -> float:
    """Whole complex noise power per antenna and sample, σ² = N₀·B in watts; its real part carries σ²/2."""
    return float(10.0 ** (density_dbm_hz / 10.0) * 1e-3 * bandwidth_hz)


def thermal_power_w(bandwidth_hz: float) -> float:
    """kT₀B at T₀ = 290 K: the noise that no receiver at that temperature can do without, watts."""
    return BOLTZMANN_J_K * ROOM_K * bandwidth_hz


def power_of_dbm(dbm: float) -> float:
    """Watts."""
    return float(10.0 ** (dbm / 10.0) * 1e-3)


def dbm_of_power(power_w: float) -> float:
    """Decibels over a milliwatt."""
    return 10.0 * math.log10(power_w) + 30.0
