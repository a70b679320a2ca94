"""The link budget: powers, gains and noise of a configuration's radio link, in watts.

    SNR = P · G_BS · G_device · Λ(d) / (L · σ²),       σ² = N₀ · B,

per antenna of the base station. Interference I comes on top of σ² where accuracy is concerned, and is left out where
privacy is: nobody promises that it stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airfl.catalogue import site_of
from airfl.channel import pathloss
from airfl.channel.noise import noise_power_w, power_of_dbm, thermal_power_w
from airfl.config import Channel, Config

#: Thermal noise at room temperature as link budgets have it, dBm/Hz; a noise figure comes on top.
THERMAL_DBM_HZ = -174.0


@dataclass(frozen=True)
class Budget:
    """What a link has to live on.

    Attributes:
        power_w: P, the mean transmit power that a device may use.
        antennas: G_BS · G_device / L, linear.
        edge: antennas · Λ at the edge of the cell, the median under shadowing.
        noise_w: σ², whole complex power per antenna.
        interference_w: I, the same of what others send.
        credited_w: the part of σ² that counts against the base station itself (``privacy.credited_noise``).
    """

    power_w: float
    antennas: float
    edge: float
    noise_w: float
    interference_w: float
    credited_w: float

    @property
    def snr(self) -> float:
        """P·Λ_edge/σ² per antenna, linear."""
        return self.power_w * self.edge / self.noise_w


def noise_density_dbm_hz(channel: Channel) -> float:
    """N₀: as stated, or that of a receiver with the stated noise figure."""
    if channel.noise_density_dbm_hz is not None:
        return channel.noise_density_dbm_hz
    assert channel.noise_figure_db is not None
    return THERMAL_DBM_HZ + channel.noise_figure_db


def antennas_of(channel: Channel) -> float:
    """Gains of both antennas over losses; the laws of 3GPP have the base station's antennas in them."""
    return float(10.0 ** ((channel.antenna_gain_dbi + channel.device_gain_dbi - channel.loss_db) / 10.0))


def edge_gain(channel: Channel) -> float:
    """Λ at the edge of the cell with antennas and losses; where 3GPP says what fades, its median without line of sight.

    Directions are left out: the pattern of a 3GPP sector, up to 8 dBi, is in the channels that are drawn.
    """
    hall = f"-{channel.hall.lower()}" if channel.fading == "3gpp-inf" else ""
    model = f"{channel.fading}{hall}-nlos" if channel.is_3gpp else channel.loss_model
    return antennas_of(channel) * float(gain_over(channel, model, channel.cell_radius_m))


def most_gain(channel: Channel, distance_m: np.ndarray) -> np.ndarray:
    """The largest path gain that such a distance may have: free space, the configured loss, 3GPP's line of sight."""
    models = {"free-space"}
    site = channel.fading if channel.is_3gpp else channel.loss_model
    if channel.fading != "trace":
        models |= {channel.loss_model} | ({f"3gpp-{site.split('-')[1]}-los"} if site_of(site) is not None else set())
    found: np.ndarray = np.max([gain_over(channel, model, distance_m) for model in sorted(models)], axis=0)
    return found


def gain_over(channel: Channel, model: str, distance_m: np.ndarray | float) -> np.ndarray:
    """Λ by one path loss with what the configuration says of it."""
    return pathloss.gain(
        model,
        distance_m,
        channel.carrier_hz,
        exponent=channel.path_loss_exponent,
        reference_m=channel.path_loss_reference_m,
        base_height_m=channel.base_height_m,
        device_height_m=channel.device_height_m,
    )


def power_limit_w(channel: Channel) -> float:
    """P: stated in watts or dBm, or what gives the stated SNR at the edge of the cell."""
    if channel.power_w is not None:
        return channel.power_w
    if channel.power_dbm is not None:
        return power_of_dbm(channel.power_dbm)
    assert channel.snr_db is not None
    return float(10.0 ** (channel.snr_db / 10.0)) * noise_of(channel) / edge_gain(channel)


def noise_of(channel: Channel) -> float:
    """σ², watts."""
    return noise_power_w(noise_density_dbm_hz(channel), channel.bandwidth_hz)


def interference_of(channel: Channel) -> float:
    """I, watts."""
    return 0.0 if channel.interference_dbm is None else power_of_dbm(channel.interference_dbm)


def credited_power_w(config: Config) -> float:
    """σ² that counts against the base station itself: what a noise figure adds is its own, and it could do without."""
    noise = noise_of(config.channel)
    if config.privacy.credited_noise == "receiver":
        return noise
    return min(noise, thermal_power_w(config.channel.bandwidth_hz))


def link_budget(config: Config) -> Budget:
    """All of it."""
    channel = config.channel
    return Budget(
        power_limit_w(channel),
        antennas_of(channel),
        edge_gain(channel),
        noise_of(channel),
        interference_of(channel),
        credited_power_w(config),
    )
