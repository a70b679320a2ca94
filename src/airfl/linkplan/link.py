"""The simulator's description of a planned link: its keys, its checks and its arithmetic, so that both say the same.

    SNR = P · G_BS · G_device · Λ(R) / (L · σ²),

and the medians of ``channel.pathloss`` for Λ at the edge (``channel.budget``). Nothing is computed a second time here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from airfl.catalogue import site_of
from airfl.channel.budget import edge_gain, interference_of, noise_density_dbm_hz, noise_of, power_limit_w
from airfl.config import Channel, problems_of
from airfl.errors import InputError

if TYPE_CHECKING:
    from airfl.linkplan.quantities import Quantities

#: Keys of a configuration's ``[channel]`` that a plan has by the same name.
RADIO = (
    "fading", "rician_k_db", "profile", "hall", "indoor_share", "carrier_hz", "path_loss", "path_loss_exponent",
    "base_height_m", "device_height_m", "shadowing_db", "shadowing_distance_m", "antenna_gain_dbi", "device_gain_dbi",
    "loss_db", "power_w", "power_dbm", "noise_density_dbm_hz", "noise_figure_db", "interference_dbm", "bandwidth_hz",
)  # fmt: skip
#: What a channel's coherence and symbols follow from; drawn channels do not depend on it.
WIDE = ("coherence_hz", "coherence_s", "speed_m_s", "delay_spread_s", "symbols", "csi_error", "csi_age_s")
#: Where nobody said how far or how wide; combiners do not depend on it where path loss is a power law.
NOMINAL_M, NOMINAL_HZ = 1000.0, 1e6
#: Nearest device on a disk over its radius, as in the tables of combiners.
CLOSEST = 1e-3


def channel_values(q: Quantities) -> dict[str, Any]:
    """What is known of a link as keys of ``[channel]``; the rest as it may be."""
    values = {name: getattr(q, name) for name in RADIO if getattr(q, name) is not None}
    if q.snr_db is not None:
        values = {name: value for name, value in values.items() if name not in ("power_w", "power_dbm")}
        values["snr_db"] = q.snr_db
    site = site_of(q.fading) or site_of(q.path_loss or "")
    distance = q.distance_m or min(NOMINAL_M, NOMINAL_M if site is None else site.farthest_m)
    values |= {
        "cell_radius_m": distance,
        "min_distance_m": distance if q.layout == "ring" else max(1e-6, CLOSEST * distance),
    }
    if q.bandwidth_hz is None:
        values["bandwidth_hz"] = min(NOMINAL_HZ, max(1e-6, 0.01 * q.carrier_hz))
    return values


def channel_of(q: Quantities) -> Channel:
    """The same, checked as a run checks it: what cannot be is one sentence."""
    return _checked(tuple(channel_values(q).items()))


def wide_channel_of(q: Quantities) -> Channel:
    """The same with what is said of coherence, symbols and channel knowledge."""
    said = {name: value for name in WIDE if (value := getattr(q, name)) not in (None, 0.0)}
    if q.fading != "rayleigh":  # errors of estimates are said to be unproven there, and not refused
        said = {name: value for name, value in said.items() if name not in ("csi_error", "csi_age_s")}
    return _checked((*channel_values(q).items(), *said.items()))


@lru_cache(maxsize=4096)
def _checked(values: tuple[tuple[str, Any], ...]) -> Channel:
    try:
        return Channel.model_validate(dict(values))
    except ValidationError as error:
        first = problems_of(error, Channel)[0]
        raise InputError(first.replace("cell_radius_m", "distance_m").replace("min_distance_m", "distance_m")) from None


def snr_of(q: Quantities) -> float:
    """P·Λ_edge/σ² of a link whose power, distance and bandwidth are known, linear."""
    channel = channel_of(q)
    return power_limit_w(channel) * edge_gain(channel) / noise_of(channel)


def density_of(q: Quantities) -> float:
    """N₀, dBm/Hz."""
    return noise_density_dbm_hz(channel_of(q))


def disturbance_of(q: Quantities) -> float:
    """1 + I/σ²: the noise that accuracy suffers over the noise that privacy counts on."""
    channel = channel_of(q)
    return 1.0 + interference_of(channel) / noise_of(channel)


def slope_of(q: Quantities) -> float | None:
    """By how many decibels the median path gain falls per decade of distance, over ten; None: by no power law."""
    channel = channel_of(q)
    if channel.is_3gpp or site_of(channel.loss_model) is not None:
        return None
    return 2.0 if channel.loss_model == "free-space" else channel.path_loss_exponent


def uncovered(q: Quantities) -> str | None:
    """What about this link the tables of combiners do not know, in words; None: they cover it.

    They have uncorrelated Rayleigh fading, devices that are all equally far away, or on a disk in free space.
    """
    if q.noise_var is not None:
        return None
    if q.fading != "rayleigh":
        return f"fading `{q.fading}`"
    if q.shadowing_db > 0.0:
        return "shadowing"
    slope = slope_of(q)
    if q.layout == "ring" or slope == 2.0:
        return None
    return f"path loss `{q.path_loss}` on a disk" if slope is None else f"an exponent of {slope:g} on a disk"


def farther(q: Quantities, distance_m: float, share: float) -> float | None:
    """The distance at which so much of the power is lost on top; None: the path loss is not for such distances,
    or shadowing has a distance of its own.

    Args:
        share: of the power that is left at the distance that is known.
    """
    if q.shadowing_db > 0.0 and q.shadowing_distance_m > 0.0:  # what is alike at so many metres is no power law
        return None
    slope = slope_of(q)
    if slope is not None:
        return None if slope == 0.0 else distance_m * share ** (-1.0 / slope)
    channel = channel_of(q)
    site = site_of(channel.fading if channel.is_3gpp else channel.loss_model)
    assert site is not None
    near, far, goal = distance_m, site.farthest_m, edge_gain(channel) * share
    if edge_gain(channel.model_copy(update={"cell_radius_m": far})) > goal:
        return None
    for _ in range(60):
        middle = math.sqrt(near * far)
        weak = edge_gain(channel.model_copy(update={"cell_radius_m": middle})) < goal
        near, far = (near, middle) if weak else (middle, far)
    return near
