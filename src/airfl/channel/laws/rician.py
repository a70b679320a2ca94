"""Rician fading: a line of sight that stays, beside what is scattered."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.laws.rayleigh import Rayleigh
from airfl.randomness import stream


class Rician(Rayleigh):
    """h = √(κ/(κ+1)) · line of sight + √(1/(κ+1)) · scattered, κ from ``channel.rician_k_db``."""

    @cached_property
    def _direct(self) -> np.ndarray:
        """The line of sight, fixed over a trial, [trials, devices, antennas]."""
        system = self.config.system
        shape = (system.num_devices, system.num_antennas)
        return np.stack([line_of_sight(stream(system.seed, "line-of-sight", trial), *shape) for trial in self.trials])

    @cached_property
    def k_factor(self) -> float:
        """κ, linear."""
        return float(10.0 ** (self.config.channel.rician_k_db / 10.0))

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        return rician(self._direct[index], super().coefficients(index, round_index), self.k_factor)

    def coefficients_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Rayleigh.coefficients_in``; the line of sight comes first, and is the same in every block."""
        return rician(self._direct[index], super().coefficients_in(index, round_index, place), self.k_factor)


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
    """√(κ/(κ+1)) · direct + √(1/(κ+1)) · diffuse, with κ the linear Rician factor."""
    strength = k_factor / (k_factor + 1.0)
    channel: np.ndarray = direct * np.sqrt(strength) + diffuse * np.sqrt(1.0 - strength)
    return channel
