"""Receiver noise power."""

from __future__ import annotations

from airfl.config import Config

BOLTZMANN_J_K = 1.380649e-23
ROOM_K = 290.0


def noise_power_w(density_dbm_hz: float, bandwidth_hz: float) -> float:
    """Whole complex noise power per antenna and sample, σ² = N₀·B in watts; its real part carries σ²/2."""
    return float(10.0 ** (density_dbm_hz / 10.0) * 1e-3 * bandwidth_hz)


def thermal_power_w(bandwidth_hz: float) -> float:
    """kT₀B at T₀ = 290 K: the noise that no receiver at that temperature can do without, watts."""
    return BOLTZMANN_J_K * ROOM_K * bandwidth_hz


def credited_power_w(config: Config) -> float:
    """σ² that counts against the base station itself: what a noise figure adds is its own, and it could do without."""
    channel = config.channel
    noise = noise_power_w(channel.noise_density_dbm_hz, channel.bandwidth_hz)
    return noise if config.privacy.credited_noise == "receiver" else min(noise, thermal_power_w(channel.bandwidth_hz))
