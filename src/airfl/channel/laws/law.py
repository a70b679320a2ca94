"""What a fading law is: channels of some trials, drawn on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from airfl.catalogue import site_of
from airfl.channel import geometry
from airfl.channel.blocks import Grid, Place
from airfl.channel.budget import antennas_of, edge_gain, gain_over
from airfl.config import Channel, Config
from airfl.errors import InputError
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

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """h_i of all devices in one block of a round, [devices, antennas]."""
        raise self._one_for_a_round()

    def check_grid(self, grid: Grid) -> None:
        """Refuse a cut of rounds that this law has no channels for."""
        if grid.count > 1 and type(self).draw_in is Law.draw_in:
            raise self._one_for_a_round()

    def _one_for_a_round(self) -> InputError:
        return InputError(
            f"fading `{self.config.channel.fading}` draws one channel for a whole round; leave out coherence, speed "
            "and delay spread, or take `rayleigh`, `rician`, `tdl`, `cdl`, a place of 3GPP or a trace of blocks"
        )

    def error_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """What estimates err by in one block of a round, in units of √(τ(1 − τ)Λ_i), [devices, antennas].

        It varies over bands as the channel does: then no estimate of any block tells of the error of another, and all
        that is designed, or chosen, on estimates of the whole round leaves errors CN(0, τ Λ_i I) in every block.
        """
        raise InputError(f"estimates of fading `{self.config.channel.fading}` by block are not known; leave them exact")

    @property
    @abstractmethod
    def amplitude(self) -> np.ndarray:
        """√Λ_i, the root of the mean power per antenna, [trials, devices]."""

    @abstractmethod
    def weakest_path_gain(self, index: int) -> float:
        """Λ_min of a trial, what the paper's worst-case SNR P·Λ_min/σ² refers to."""


class Placed(Law):
    """Devices on a disk, path loss and shadowing, and unit-power coefficients that a subclass draws."""

    #: Whether devices are in a third of the circle only.
    sector: ClassVar[bool] = False

    @abstractmethod
    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """Fading of one trial and round with E|·|² = 1, [devices, antennas], complex128."""

    @cached_property
    def distances_m(self) -> np.ndarray:
        """From the base station, fixed over a trial, [trials, devices]; none nearer than the path loss is for."""
        system, channel = self.config.system, self.config.channel
        return np.stack(
            [
                geometry.disk_drop(
                    stream(system.seed, "positions", trial),
                    system.num_devices,
                    channel.cell_radius_m,
                    nearest_m(channel),
                    channel.distance == "common",
                )
                for trial in self.trials
            ]
        )

    @cached_property
    def azimuths(self) -> np.ndarray:
        """In which direction devices are, radian, [trials, devices]."""
        seed, count = self.config.system.seed, self.config.system.num_devices
        return np.stack([geometry.azimuths(stream(seed, "angles", trial), count, self.sector) for trial in self.trials])

    @cached_property
    def places_m(self) -> np.ndarray:
        """x and y of every device, the base station at the origin, [trials, devices, 2]."""
        far, angle = self.distances_m, self.azimuths
        return np.stack([far * np.cos(angle), far * np.sin(angle)], axis=-1)

    @cached_property
    def shadowing_db(self) -> np.ndarray | float:
        """What is in the way of each device, fixed over a trial, [trials, devices]."""
        channel = self.config.channel
        if channel.shadowing_db == 0.0:
            return 0.0
        return np.stack(
            [
                geometry.shadowing_db(
                    stream(self.config.system.seed, "shadowing", trial),
                    self.places_m[index],
                    channel.shadowing_db,
                    channel.shadowing_distance_m,
                )
                for index, trial in enumerate(self.trials)
            ]
        )

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√Λ_i with antennas, losses and shadowing."""
        channel = self.config.channel
        gain = gain_over(channel, channel.loss_model, self.distances_m)
        amplitude: np.ndarray = np.sqrt(gain * antennas_of(channel) * 10.0 ** (np.asarray(self.shadowing_db) / 10.0))
        return amplitude

    def weakest_path_gain(self, index: int) -> float:
        """The path gain at the cell edge; the median's under shadowing."""
        return edge_gain(self.config.channel)

    def draw(self, index: int, round_index: int) -> np.ndarray:
        """√Λ_i times the coefficients."""
        channels: np.ndarray = self.amplitude[index][:, None] * self.coefficients(index, round_index)
        return channels


def nearest_m(channel: Channel) -> float:
    """How near a device may be: as configured, and not nearer than a place of 3GPP is for."""
    site = site_of(channel.fading if channel.is_3gpp else channel.loss_model)
    return channel.min_distance_m if site is None else max(channel.min_distance_m, site.nearest_m)
