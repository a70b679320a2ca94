"""How much power is lost over a distance: free space, log-distance, and the medians of 3GPP TR 38.901.

Formulas of TR 38.901 (Table 7.4.1-1) take the distance in space, d₃ = √(d² + (h_BS − h_UT)²) in metres, and the carrier
in GHz. Without a line of sight no link is better than with one. Shadowing and walls come on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from airfl.catalogue import HALL_HEIGHTS, site_of
from airfl.channel.geometry import SPEED_OF_LIGHT_M_S, path_gain

#: Of a rural macro cell: mean height of buildings and width of streets, metres, as TR 38.901 has them.
BUILDINGS_M, STREETS_M = 5.0, 20.0
#: What is taken from both heights for the breakpoint in a city.
ENVIRONMENT_M = 1.0


def gain(
    model: str,
    distance_m: np.ndarray | float,
    carrier_hz: float,
    *,
    exponent: float | None = None,
    reference_m: float = 1.0,
    base_height_m: float | None = None,
    device_height_m: float | None = None,
) -> np.ndarray:
    """Λ, the power that arrives over the power that was sent, between isotropic antennas.

    Args:
        model: one of ``catalogue.PATH_LOSSES``.
        distance_m: on the ground, any shape; of free space and log-distance the only distance there is.
        exponent, reference_m: of log-distance: free space up to the reference, then 10·exponent dB a decade.
        base_height_m, device_height_m: of the places of 3GPP; default: theirs.
    """
    distance = np.asarray(distance_m, dtype=np.float64)
    if model == "free-space":
        return path_gain(distance, carrier_hz)
    if model == "log-distance":
        assert exponent is not None
        near = path_gain(np.minimum(distance, reference_m), carrier_hz)
        beyond: np.ndarray = near * (np.maximum(distance, reference_m) / reference_m) ** -exponent
        return beyond
    loss: np.ndarray = 10.0 ** (-tr38901_db(model, distance, carrier_hz, base_height_m, device_height_m) / 10.0)
    return loss


def heights(model: str, base_height_m: float | None, device_height_m: float | None) -> tuple[float, float]:
    """Of the base station and of devices, metres: as stated, or as the place has them."""
    site = site_of(model)
    assert site is not None
    usual = HALL_HEIGHTS.get(model.removeprefix("3gpp-inf-")[:2].upper(), site.base_height_m)
    return base_height_m or usual, device_height_m or site.device_height_m


def tr38901_db(
    model: str,
    distance_m: np.ndarray | float,
    carrier_hz: float,
    base_height_m: float | None = None,
    device_height_m: float | None = None,
) -> np.ndarray:
    """The median path loss of a place with (``-los``) or without (``-nlos``) a line of sight, dB."""
    base, device = heights(model, base_height_m, device_height_m)
    flat = np.asarray(distance_m, dtype=np.float64)
    space = np.sqrt(flat**2 + (base - device) ** 2)
    place = model.split("-")[1]
    with_sight, without = _PLACES[place]
    clear: np.ndarray = with_sight(flat, space, carrier_hz, base, device)
    if model.endswith("-los"):
        return clear
    hidden: np.ndarray = np.maximum(clear, without(model, space, carrier_hz / 1e9, base, device))
    return hidden


def _breakpoint(base: float, device: float, carrier_hz: float) -> float:
    """4 h'_BS h'_UT f/c, from where on the ground is felt; heights above the environment's."""
    return 4.0 * max(base - ENVIRONMENT_M, 0.1) * max(device - ENVIRONMENT_M, 0.1) * carrier_hz / SPEED_OF_LIGHT_M_S


def _street(a: float, slope: float, bend: float) -> Callable[..., np.ndarray]:
    """UMi and UMa with a line of sight: one slope to the breakpoint, 40 dB a decade from there."""

    def loss(flat: np.ndarray, space: np.ndarray, carrier_hz: float, base: float, device: float) -> np.ndarray:
        far, ghz = _breakpoint(base, device, carrier_hz), 20.0 * math.log10(carrier_hz / 1e9)
        near = a + slope * np.log10(space) + ghz
        beyond = a + 40.0 * np.log10(space) + ghz - bend * math.log10(far**2 + (base - device) ** 2)
        found: np.ndarray = np.where(flat <= far, near, beyond)
        return found

    return loss


def _rural(flat: np.ndarray, space: np.ndarray, carrier_hz: float, base: float, device: float) -> np.ndarray:
    h = BUILDINGS_M

    def near(d: np.ndarray | float) -> np.ndarray:
        loss: np.ndarray = (
            20.0 * np.log10(40.0 * math.pi * d * (carrier_hz / 1e9) / 3.0)
            + min(0.03 * h**1.72, 10.0) * np.log10(d)
            - min(0.044 * h**1.72, 14.77)
            + 0.002 * math.log10(h) * np.asarray(d)
        )
        return loss

    far = 2.0 * math.pi * base * device * carrier_hz / SPEED_OF_LIGHT_M_S
    return np.where(flat <= far, near(space), near(far) + 40.0 * np.log10(space / far))


def _rural_hidden(model: str, space: np.ndarray, ghz: float, base: float, device: float) -> np.ndarray:
    h, width = BUILDINGS_M, STREETS_M
    loss: np.ndarray = (
        161.04
        - 7.1 * math.log10(width)
        + 7.5 * math.log10(h)
        - (24.37 - 3.7 * (h / base) ** 2) * math.log10(base)
        + (43.42 - 3.1 * math.log10(base)) * (np.log10(space) - 3.0)
        + 20.0 * math.log10(ghz)
        - (3.2 * math.log10(11.75 * device) ** 2 - 4.97)
    )
    return loss


def _line(a: float, slope: float, per_decade_ghz: float) -> Callable[..., np.ndarray]:
    """One straight line over log distance, with a line of sight."""

    def loss(flat: np.ndarray, space: np.ndarray, carrier_hz: float, base: float, device: float) -> np.ndarray:
        found: np.ndarray = a + slope * np.log10(space) + per_decade_ghz * math.log10(carrier_hz / 1e9)
        return found

    return loss


def _hidden(a: float, slope: float, per_decade_ghz: float, per_metre: float = 0.0) -> Callable[..., np.ndarray]:
    """The same without; a device that is higher than 1.5 m loses less."""

    def loss(model: str, space: np.ndarray, ghz: float, base: float, device: float) -> np.ndarray:
        found: np.ndarray = a + slope * np.log10(space) + per_decade_ghz * math.log10(ghz) - per_metre * (device - 1.5)
        return found

    return loss


#: Of the halls of InF without a line of sight: what SL has, others have at least or instead.
_HALLS = {
    "sl": ((33.0, 25.5),),
    "dl": ((33.0, 25.5), (18.6, 35.7)),
    "sh": ((32.4, 23.0),),
    "dh": ((33.63, 21.9),),
}


def _hall(model: str, space: np.ndarray, ghz: float, base: float, device: float) -> np.ndarray:
    lines = _HALLS[model.split("-")[2]]
    found: np.ndarray = np.max([a + slope * np.log10(space) for a, slope in lines], axis=0) + 20.0 * math.log10(ghz)
    return found


_PLACES: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "umi": (_street(32.4, 21.0, 9.5), _hidden(22.4, 35.3, 21.3, 0.3)),
    "uma": (_street(28.0, 22.0, 9.0), _hidden(13.54, 39.08, 20.0, 0.6)),
    "rma": (_rural, _rural_hidden),
    "inh": (_line(32.4, 17.3, 20.0), _hidden(17.3, 38.3, 24.9)),
    "inf": (_line(31.84, 21.5, 19.0), _hall),
}
