"""Clustered delay lines of 3GPP TR 38.901, from Sionna's tables: clusters of rays with fixed angles to each other.

A profile describes one link. Devices differ by where they are, so each has its profile turned to a direction of its own
within the sector, as Section 7.7.5.1 turns mean angles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.laws.law import Placed
from airfl.channel.laws.rays import RaySum, panel_of, responses
from airfl.channel.laws.sionna import require_sionna
from airfl.channel.laws.tdl import USUAL_SPREAD_S
from airfl.randomness import stream

#: Table 7.5-3: offsets of the twenty rays of a cluster, in units of the cluster's spread; each also with a minus.
OFFSETS = np.array([0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551])
TABLES = "19.2"


@dataclass(frozen=True)
class Cdl(Placed):
    """Unit-power sums of the rays of a profile, heard by antennas without a pattern."""

    sector = True
    _drawn: dict[int, RaySum] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_sionna("cdl")

    def rays(self, index: int) -> RaySum:
        """The rays of a trial, drawn once."""
        if index not in self._drawn:
            system = self.config.system
            generator = stream(system.seed, "rays", self.trials[index])
            channel = self.config.channel
            self._drawn[index] = profile_rays(
                read_profile(channel.profile),
                self.azimuths[index],
                system.num_antennas,
                channel.delay_spread_s or USUAL_SPREAD_S,
                generator,
            )
        return self._drawn[index]

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        return self.rays(index).draw(stream(self.config.system.seed, "fading", self.trials[index], round_index))

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Law.draw_in``: rays with the phases of a span of time, each as late as it comes."""
        generator = stream(self.config.system.seed, "fading", self.trials[index], round_index, *span_key(place))
        drawn: np.ndarray = self.amplitude[index][:, None] * self.rays(index).draw(generator, place.offset_hz)
        return drawn


def span_key(place: Place) -> tuple[int, ...]:
    """What phases are keyed with: all bands of a span of time have the same."""
    return (place.span,) if place.span else ()


def read_profile(name: str) -> dict[str, Any]:
    """A table of Sionna: powers in dB, departure angles in degrees, the cluster's spreads."""
    from sionna.phy.channel.tr38901 import models

    table: dict[str, Any] = models.load_json(models.parameter_file(f"CDL-{name}.json", TABLES))
    return table


def profile_rays(
    profile: dict[str, Any], turn: np.ndarray, num_antennas: int, delay_spread_s: float, generator: np.random.Generator
) -> RaySum:
    """The rays at the base station of devices in directions ``turn``, radian, [n].

    Azimuths and zeniths of a cluster's rays are paired at random for every device (step 8 of Section 7.5). In profiles
    with a line of sight the table's first row is that.
    """
    rows, columns = panel_of(num_antennas)
    powers = 10.0 ** (np.array(profile["powers"]) / 10.0)
    powers /= powers.sum()
    azimuth, zenith = np.deg2rad(profile["aod"]), np.deg2rad(profile["zod"])
    first = 1 if profile["los"] else 0
    offsets = np.sort(np.concatenate([OFFSETS, -OFFSETS]))
    shape = (len(turn), len(powers) - first, len(offsets))

    def spread(middle: np.ndarray, degrees: float) -> np.ndarray:
        angles = middle[first:, None] + np.deg2rad(degrees) * offsets
        return generator.permuted(np.broadcast_to(angles, shape), axis=-1)

    around = (spread(azimuth, profile["cASD"]) + turn[:, None, None]).reshape(len(turn), -1)
    above = spread(zenith, profile["cZSD"]).reshape(len(turn), -1)
    vertical, horizontal = responses(around, above, rows, columns)
    strength = np.sqrt(np.repeat(powers[first:] / len(offsets), len(offsets)))
    direct = np.zeros((len(turn), num_antennas), dtype=np.complex128)
    if first:
        up, across = responses(azimuth[0] + turn, np.full(len(turn), zenith[0]), rows, columns)
        direct = np.sqrt(powers[0]) * (across[..., None].astype(np.complex128) * up[:, None]).reshape(direct.shape)
    delays = np.repeat(np.array(profile["delays"])[first:] * delay_spread_s, len(offsets))
    return RaySum(
        np.broadcast_to(strength.astype(np.float32), around.shape),
        vertical,
        horizontal,
        np.broadcast_to(delays.astype(np.float32), around.shape),
        direct,
    )
