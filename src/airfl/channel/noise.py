"""Receiver noise power."""

from __future__ import annotations


def noise_power_w(density_dbm_hz: float, bandwidth_hz: float) -> float:
    """Whole complex noise power per antenna and sample, σ² = N₀·B in watts; its real part carries σ²/2."""
    return float(10.0 ** (density_dbm_hz / 10.0) * 1e-3 * bandwidth_hz)
