"""What goes wrong on air, and by how much it can stretch what one device contributes to the sum.

A device whose update is clipped to c moves the received sum by c·G at most, G the gain bound of the round. Every effect
states a factor on top: the longest that ‖effect(x) − effect(x′)‖ can be over ‖x − x′‖, for any two things x, x′ that a
device may send (x′ = 0: its contribution becomes zero). The ledger books c·G·Π factors (``Radio.rounds``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from airfl.channel.blocks import Grid, Place
from airfl.config import Channel, Config
from airfl.errors import InputError
from airfl.randomness import stream

#: Turns by which the edge of a band may differ from its middle, for which its phase is taken.
MOST_TURNS = 0.25


@dataclass(frozen=True)
class Effect:
    """One effect.

    Attributes:
        model: what happens.
        factor: by how much it can stretch a contribution, at most.
        reason: why no more.
    """

    model: str
    factor: float
    reason: str


EFFECTS: dict[str, Effect] = {
    "phase_error_rad": Effect(
        "gain e^{jφ}, φ ~ N(0, σ_φ²) for each device, round and block",
        1.0,
        "real symbols keep cos φ of their length, pairs of coordinates are rotated",
    ),
    "timing_offset_s": Effect(
        "inside the cyclic prefix: gain e^{−j2πfτ} in the band at f from the carrier, τ ~ N(0, rms²) for each device "
        "and round",
        1.0,
        "a phase for each band, so the same; symbols that run into each other are refused",
    ),
    "csi_age_s": Effect(
        "channels are known as they were: an error of power 1 − J_0(2π f_D age)²",
        1.0,
        "what is stretched is the gain, and its proven bound G is booked",
    ),
    "clipping_db": Effect(
        "each symbol of a device is limited in amplitude",
        1.0,
        "the nearest point of a disk: two symbols never get further apart, and zero stays zero",
    ),
    "adc_bits": Effect(
        "each antenna's signal is rounded with subtracted dither, full scale beyond any signal",
        1.0,
        "the error is independent of the signal: noise on top of noise, and none of it is booked",
    ),
}


def effects_of(channel: Channel) -> tuple[str, ...]:
    """The effects that are on, by their keys."""
    return (*channel.impairments, *(("csi_age_s",) if channel.csi_age_s > 0 else ()))


def stretch_of(channel: Channel) -> float:
    """By how much all effects together can stretch a contribution: what gain bounds are multiplied with."""
    return math.prod(EFFECTS[key].factor for key in effects_of(channel))


def turns(config: Config, trial: int, round_index: int, place: Place | None = None) -> np.ndarray | None:
    """e^{j(φ_i − 2πfτ_i)} of every device in one block of a round, [n]; None where nothing turns.

    Oscillators run on while symbols start late, so τ turns nothing at the carrier. τ is limited to half of the prefix:
    the window lies in its middle.
    """
    channel, seed, count = config.channel, config.system.seed, config.system.num_devices
    if not {"phase_error_rad", "timing_offset_s"} & set(channel.impairments):
        return None
    angles = np.zeros(count)
    if channel.phase_error_rad > 0:
        key = () if place is None else place.key
        angles += channel.phase_error_rad * stream(seed, "phase-errors", trial, round_index, *key).standard_normal(
            count
        )
    if channel.timing_offset_s > 0 and place is not None:
        late = channel.timing_offset_s * stream(seed, "timing", trial, round_index).standard_normal(count)
        edge = 0.5 * (channel.cyclic_prefix_s or 0.0)
        angles -= 2.0 * math.pi * place.offset_hz * late.clip(-edge, edge)
    found: np.ndarray = np.exp(1j * angles)
    return found


def check_bands(channel: Channel, grid: Grid) -> None:
    """Refuse effects that are a matter of several bands where there is one, and the other way round."""
    width = channel.bandwidth_hz / grid.bands
    if channel.timing_offset_s > 0 and grid.bands == 1:
        raise InputError(
            "`channel.timing_offset_s` turns bands against each other, and this round has one; state "
            "`channel.coherence_hz` or `channel.delay_spread_s`, or leave it out"
        )
    if channel.timing_offset_s > 0 and width * channel.timing_offset_s > MOST_TURNS:
        raise InputError(
            f"`channel.timing_offset_s` = {channel.timing_offset_s:g} turns the edges of a band of {width:g} Hz too "
            f"far from its middle; bands may be {MOST_TURNS / channel.timing_offset_s:.4g} Hz wide at most: lower "
            "`channel.coherence_hz`"
        )
