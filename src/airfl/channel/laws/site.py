"""The places of 3GPP TR 38.901: UMi, UMa, RMa, InH and InF, drawn by Sionna.

Sionna draws large-scale parameters (line of sight, shadowing, spreads, walls) and rays for our positions; both stay for
a trial. Every round then has phases of its own, as of devices that moved by some wavelengths (``rays``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from airfl.catalogue import SITES
from airfl.channel.blocks import Place
from airfl.channel.budget import antennas_of
from airfl.channel.laws.cdl import span_key
from airfl.channel.laws.law import Placed
from airfl.channel.laws.rays import RaySum, joined, panel_of, responses
from airfl.channel.laws.sionna import WHERE, drawing, require_sionna
from airfl.channel.pathloss import heights
from airfl.randomness import stream, torch_seed

if TYPE_CHECKING:
    from sionna.phy.channel.tr38901 import Rays, SystemLevelScenario

#: Devices that share a drop: large-scale parameters are correlated within one, by distance.
DROP = 500
#: Table 7.5-5: by how many cluster delay spreads the rays of a strong cluster come later.
LATER = np.array([0.0] * 8 + [1.28] * 4 + [2.56] * 4 + [1.28] * 2 + [0.0] * 2)
#: Height of a hall, metres; it is as long and wide as the cell.
HALL_HEIGHT_M = 10.0


@dataclass(frozen=True)
class Site(Placed):
    """Channels of a place; path loss, shadowing, walls and antennas are the law's, positions are ours."""

    _drawn: dict[int, RaySum] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_sionna(self.config.channel.fading)

    @property
    def sector(self) -> bool:  # type: ignore[override]
        """Outdoors a base station looks at a third of the circle."""
        return SITES[self.config.channel.fading].is_sector

    def rays(self, index: int) -> RaySum:
        """The rays of a trial, drawn once."""
        if index not in self._drawn:
            count = self.config.system.num_devices
            drops = [(first, min(first + DROP, count)) for first in range(0, count, DROP)]
            self._drawn[index] = joined([self._drop(index, number, *ends) for number, ends in enumerate(drops)])
        return self._drawn[index]

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        drawn: np.ndarray = self.draw(index, round_index) / self.amplitude[index][:, None]
        return drawn

    def draw(self, index: int, round_index: int) -> np.ndarray:
        """Rays with the phases of a round."""
        return self.rays(index).draw(stream(self.config.system.seed, "fading", self.trials[index], round_index))

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Law.draw_in``: rays with the phases of a span of time, each as late as it comes."""
        generator = stream(self.config.system.seed, "fading", self.trials[index], round_index, *span_key(place))
        return self.rays(index).draw(generator, place.offset_hz)

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√ of the mean power over phases and antennas."""
        return np.stack([np.sqrt(self.rays(index).power) for index in range(len(self.trials))])

    def _drop(self, index: int, number: int, first: int, last: int) -> RaySum:
        """Some devices of a trial."""
        config, trial = self.config, self.trials[index]
        with drawing(torch_seed(config.system.seed, "rays", trial, number)):
            scenario = open_scenario(config.channel, config.system.num_antennas)
            place(scenario, config.channel, self.places_m[index, first:last], self._inside(index)[first:last])
            strengths, rays = _large_scale(scenario)
        return ray_sum(scenario, strengths, rays, antennas_of(config.channel))

    def _inside(self, index: int) -> np.ndarray:
        """Who is indoors, [n], bool."""
        channel, system = self.config.channel, self.config.system
        site = SITES[channel.fading]
        share = site.indoor_share if channel.indoor_share is None or not site.is_sector else channel.indoor_share
        inside: np.ndarray = stream(system.seed, "shadowing", self.trials[index]).random(system.num_devices) < share
        return inside


def open_scenario(channel: Any, num_antennas: int) -> SystemLevelScenario:
    """Sionna's own description of a place, its antennas and carrier."""
    from sionna.phy.channel import tr38901

    rows, columns = panel_of(num_antennas)
    carrier, name = channel.carrier_hz, channel.fading.removeprefix("3gpp-")
    single = {"polarization": "single", "polarization_type": "V", "carrier_frequency": carrier, **WHERE}
    base = tr38901.PanelArray(
        num_rows_per_panel=rows,
        num_cols_per_panel=columns,
        antenna_pattern="38.901" if SITES[channel.fading].is_sector else "omni",
        **single,
    )
    device = tr38901.PanelArray(num_rows_per_panel=1, num_cols_per_panel=1, antenna_pattern="omni", **single)
    ends = {"ut_array": device, "bs_array": base, "direction": "uplink", **WHERE}
    if name == "umi":
        return tr38901.UMiScenario(carrier, "low", **ends)
    if name == "uma":
        return tr38901.UMaScenario(carrier, "low", **ends)
    if name == "rma":
        return tr38901.RMaScenario(carrier, **ends)
    if name == "inh":
        return tr38901.InHScenario(carrier, "mixed", **ends)
    size = 2.0 * channel.cell_radius_m
    return tr38901.InFScenario(carrier, channel.hall, hall_dimensions=(size, size, HALL_HEIGHT_M), **ends)


def place(scenario: SystemLevelScenario, channel: Any, places_m: np.ndarray, inside: np.ndarray) -> None:
    """Tell Sionna where everybody is: the base station at the origin, devices upright and all at one height."""
    import torch

    model = f"3gpp-inf-{channel.hall.lower()}" if channel.fading == "3gpp-inf" else channel.fading
    base, device = heights(model, channel.base_height_m, channel.device_height_m)
    count = len(places_m)
    nobody_turns = torch.zeros(1, count, 3, dtype=torch.float64)
    scenario.set_topology(
        ut_loc=torch.from_numpy(np.column_stack([places_m, np.full(count, device)]))[None],
        bs_loc=torch.tensor([[[0.0, 0.0, base]]], dtype=torch.float64),
        ut_orientations=nobody_turns,
        bs_orientations=torch.zeros(1, 1, 3, dtype=torch.float64),
        ut_velocities=nobody_turns,
        in_state=torch.from_numpy(inside)[None],
    )


@dataclass(frozen=True)
class LargeScale:
    """What Sionna drew for each device: path loss with walls and shadowing as a gain, and κ, [n] each."""

    gain: np.ndarray
    k_factor: np.ndarray


def _large_scale(scenario: SystemLevelScenario) -> tuple[LargeScale, Rays]:
    """Steps 3 to 9 of TR 38.901, Section 7.5."""
    from sionna.phy.channel import tr38901

    parameters, rays = tr38901.LSPGenerator(scenario), tr38901.RaysGenerator(scenario)
    for part in (parameters, rays):
        part.topology_updated_callback()
    drawn = parameters()
    gain = 10.0 ** (-drawn.pathloss[0, 0].numpy() / 10.0) * drawn.sf[0, 0].numpy()
    return LargeScale(gain, drawn.k_factor[0, 0].numpy()), rays(drawn)


def ray_sum(scenario: SystemLevelScenario, large: LargeScale, rays: Rays, antennas: float) -> RaySum:
    """What the antennas of the base station make of the rays; steps 10 and 11 but for the phases.

    Args:
        antennas: gain of the device's antenna over losses, linear.
    """
    array = scenario.bs_array
    azimuth, zenith = (angle[0, 0].flatten(start_dim=1).numpy() for angle in (rays.aod, rays.zod))
    per_cluster = rays.aod.shape[-1]
    has_sight = scenario.los[0, 0].numpy()
    share = np.where(has_sight, 1.0 / (large.k_factor + 1.0), 1.0)
    power = np.repeat(rays.powers[0, 0].numpy() / per_cluster, per_cluster, axis=1)
    rows, columns = array.num_rows_per_panel, array.num_cols_per_panel
    vertical, horizontal = responses(azimuth, zenith, rows, columns)
    gain = large.gain * antennas
    ahead, above = (np.deg2rad(angle[0, 0].numpy()) for angle in (scenario.los_aod, scenario.los_zod))
    up, across = responses(ahead, above, rows, columns)
    direct = (across[..., None].astype(np.complex128) * up[:, None]).reshape(len(gain), -1)
    # The phase of the way there, as a distance in wavelengths.
    way = np.exp(-2j * np.pi * (scenario.distance_3d / scenario.lambda_0)[0, 0].numpy())
    strength = _pattern(array, ahead, above) * np.sqrt((1.0 - share) * gain)
    return RaySum(
        (_pattern(array, azimuth, zenith) * np.sqrt(power * (share * gain)[:, None])).astype(np.float32),
        vertical,
        horizontal,
        _delays(scenario, rays),
        direct * (way * strength)[:, None],
    )


def _delays(scenario: SystemLevelScenario, rays: Rays) -> np.ndarray:
    """Of every ray, [n, rays]: those of a cluster come together, but for the two strongest, which are three each."""
    delays, powers = rays.delays[0, 0].numpy(), rays.powers[0, 0].numpy()
    each = np.repeat(delays[..., None], rays.aod.shape[-1], axis=-1)
    strongest = np.argsort(-powers, axis=1, kind="stable")[:, :2, None]
    apart = scenario.get_param("cDS")[0, 0].numpy()[:, None, None] * 1e-9
    split = np.take_along_axis(each, strongest, axis=1) + apart * LATER
    np.put_along_axis(each, strongest, split, axis=1)
    found: np.ndarray = each.reshape(len(each), -1).astype(np.float32)
    return found


def _pattern(array: Any, azimuth: np.ndarray, zenith: np.ndarray) -> np.ndarray:
    """The field of one antenna in some directions, real; azimuths are brought to (−π, π] first."""
    import torch

    turned = np.arctan2(np.sin(azimuth), np.cos(azimuth))
    field_up: np.ndarray = array.ant_pol1.field(torch.from_numpy(zenith), torch.from_numpy(turned))[0].numpy()
    return field_up
