"""Channels from the devices to someone else's antennas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.budget import antennas_of, most_gain
from airfl.channel.laws import Law, Placed
from airfl.channel.noise import noise_power_w
from airfl.config import Config
from airfl.errors import InputError
from airfl.randomness import complex_normal, stream

#: No device is nearer to her than this: the law of free space ends there.
NEAREST_M = 1.0


@dataclass(frozen=True)
class Listener:
    """An eavesdropper: from every device to her free space or better, and Rayleigh fading of her own.

    Nothing is in her way, whatever is in the base station's: no shadowing, walls or losses. Where the configured path
    loss or a line of sight of 3GPP brings more than free space, or a device is heard better than its distance lets
    expect, that counts for her too.

    Attributes:
        law: of the channels to the base station; it knows how far away the devices are, and she where they are.
    """

    config: Config
    law: Placed

    @property
    def noise_power(self) -> float:
        """σ_E², the whole complex power per antenna, watts; 0 where she has no noise."""
        density = self.config.eavesdropper.noise_density_dbm_hz if self.config.eavesdropper else None
        return 0.0 if density is None else noise_power_w(density, self.config.channel.bandwidth_hz)

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√Λ_i to her, [trials, devices]: devices lie at uniform angles around the base station."""
        assert self.config.eavesdropper is not None
        channel, (x, y) = self.config.channel, self.config.eavesdropper.place
        rows, louder = [], max(1.0, 10.0 ** (channel.device_gain_dbi / 10.0))
        for index in range(len(self.law.trials)):
            far = self.law.distances_m[index]
            angle = self.law.azimuths[index]
            away = np.hypot(far * np.cos(angle) - x, far * np.sin(angle) - y)
            rows.append(louder * self._lucky(index) * most_gain(channel, np.maximum(away, NEAREST_M)))
        amplitude: np.ndarray = np.sqrt(np.stack(rows))
        return amplitude

    def _lucky(self, index: int) -> np.ndarray:
        """How much better a device is heard by the base station than its distance lets expect, at least one, [devices].

        What is around a device may help her as well: shadowing that is above its median, and a place of 3GPP with the
        pattern of its antennas.
        """
        channel = self.config.channel
        expected = most_gain(channel, np.maximum(self.law.distances_m[index], NEAREST_M))
        heard = self.law.amplitude[index] ** 2 / antennas_of(channel)
        factor: np.ndarray = np.maximum(1.0, heard / expected)
        return factor

    def draw(self, index: int, round_index: int, place: Place | None = None) -> np.ndarray:
        """g_i of all devices in one trial and round, or in one block of it, [devices, her antennas].

        Blocks fade independently: of more looks at a device the best one is better, so that is to her favour.
        """
        assert self.config.eavesdropper is not None
        key = () if place is None else place.key
        generator = stream(self.config.system.seed, "eavesdropper", self.law.trials[index], round_index, *key)
        fading = complex_normal(generator, (self.config.system.num_devices, self.config.eavesdropper.antennas))
        drawn: np.ndarray = self.amplitude[index][:, None] * fading
        return drawn


def open_listener(config: Config, law: Law) -> Listener | None:
    """The eavesdropper of a configuration, if it has one."""
    if config.eavesdropper is None:
        return None
    if not isinstance(law, Placed):
        raise InputError("an eavesdropper needs devices with positions, and this fading law has none; leave out one")
    return Listener(config, law)
