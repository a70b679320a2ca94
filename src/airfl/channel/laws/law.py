"""What a fading law is: channels of some trials, drawn on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airfl.channel import geometry
from airfl.config import Config
from airfl.randomness import stream


@dataclass(frozen=True)
class Law(ABC):
    """Block fading: one channel vector per device and round, constant within the round.

    Made once per batch of trials; draws are keyed by trial and round (``randomness.stream``), so that they do not
    depend on what else is in the batch.

    Attributes:
        trials: trial numbers, in the order in which ``index`` counts them.
    """

    config: Config
    trials: tuple[int, ...]

    @abstractmethod
    def draw(self, index: int, round_index: int) -> np.ndarray:
        """h_i of all devices, path loss included, [devices, antennas], complex128."""

    @property
    @abstractmethod
    def amplitude(self) -> np.ndarray:
        """√Λ_i, the root of the mean power per antenna, [trials, devices]."""

    @abstractmethod
    def weakest_path_gain(self, index: int) -> float:
        """Λ_min of a trial, what the paper's worst-case SNR P·Λ_min/σ² refers to."""


class Placed(Law):
    """Devices on a disk, free-space path loss, and unit-power coefficients that a subclass draws."""

    @abstractmethod
    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """Fading of one trial and round with E|·|² = 1, [devices, antennas], complex128."""

    @cached_property
    def distances_m(self) -> np.ndarray:
        """From the base station, fixed over a trial, [trials, devices]."""
        system, channel = self.config.system, self.config.channel
        return np.stack(
            [
                geometry.disk_drop(
                    stream(system.seed, "positions", trial),
                    system.num_devices,
                    channel.cell_radius_m,
                    channel.min_distance_m,
                    channel.distance == "common",
                )
                for trial in self.trials
            ]
        )

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√Λ_i of free space."""
        amplitude: np.ndarray = np.sqrt(geometry.path_gain(self.distances_m, self.config.channel.carrier_hz))
        return amplitude

    def weakest_path_gain(self, index: int) -> float:
        """The path gain at the cell edge."""
        return float(geometry.path_gain(self.config.channel.cell_radius_m, self.config.channel.carrier_hz))

    def draw(self, index: int, round_index: int) -> np.ndarray:
        """√Λ_i times the coefficients."""
        channels: np.ndarray = self.amplitude[index][:, None] * self.coefficients(index, round_index)
        return channels
