"""What the receive combiner makes of a link that no table covers: drops of it are drawn with the code that runs use.

A drop has positions and shadowing of its own, and a few fadings. With the path gain at the edge as unit every fading
gives ρ = ‖w‖²·Λ_edge, and a plan needs E[1/ρ] (``linkplan.law``). The base station's ε needs how loud the loudest
device is over a run: few fadings stand for many rounds, each time with devices in each other's places (``relabelled``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from airfl.analysis.relabelled import names_of
from airfl.catalogue import WITH_SIONNA
from airfl.channel import Link
from airfl.channel.budget import edge_gain
from airfl.config import Config, from_mapping
from airfl.errors import InputError
from airfl.linkplan import Quantities
from airfl.linkplan.law import Drawn
from airfl.linkplan.link import channel_values
from airfl.parallel import torch_threads
from airfl.randomness import stream
from airfl.transceiver import open_radio

#: Fadings of a drop; of a single drop, whose error they have to tell too.
FADINGS, FADINGS_OF_ONE = 2, 8
#: Channel coefficients of a round, n·m, at most; held at a time; and of all drops where nobody said how many.
MOST_COEFFICIENTS, HELD, USUAL = 2_000_000, 400_000, 400_000
#: Drops where nobody said how many, at least and at most; of laws that take a second for each.
LEAST_DROPS, MOST_DROPS, SLOW_DROPS = 8, 48, 4


@dataclass
class Seen:
    """What was seen of every drop so far: a row for each, [drops, fadings] but for the loudest device."""

    inverse: list[np.ndarray] = field(default_factory=list)
    power: list[np.ndarray] = field(default_factory=list)
    stretch: list[np.ndarray] = field(default_factory=list)
    loud_round: list[float] = field(default_factory=list)
    loud_run: list[float] = field(default_factory=list)


def usual_drops(q: Quantities) -> int:
    """How many are drawn where nobody says: what a second or two is enough for."""
    if q.fading in WITH_SIONNA:
        return SLOW_DROPS
    return min(MOST_DROPS, max(LEAST_DROPS, USUAL // (FADINGS * (q.devices or 1) * (q.antennas or 1))))


def draw_law(
    q: Quantities, drops: int | None = None, advance: Callable[[int, int], None] | None = None, seed: int = 0
) -> Drawn:
    """Draw a link and design its combiners, as a run does.

    Args:
        q: with devices, antennas and a channel.
        drops: default: ``usual_drops``.
        advance: hears how many are done, of how many.
    """
    count = drops or usual_drops(q)
    config = _config_of(q, count, seed)
    fadings, edge = config.system.rounds, edge_gain(config.channel)
    slow = q.fading in WITH_SIONNA
    size = 1 if slow else max(1, HELD // (fadings * config.system.num_devices * config.system.num_antennas))
    size, seen = min(size, max(1, count // 8)), Seen()
    with torch_threads(1):  # many small matrices
        for first in range(0, count, size):
            _observe(seen, config, range(first, min(count, first + size)), edge, q.rounds or 1)
            if advance is not None:
                advance(len(seen.inverse), count)
    return _combining(seen)


def _config_of(q: Quantities, drops: int, seed: int) -> Config:
    """A run of a few rounds of this link in so many trials."""
    assert q.devices is not None
    assert q.antennas is not None
    if q.devices * q.antennas > MOST_COEFFICIENTS:
        raise InputError(
            f"{q.devices:,} devices with {q.antennas} antennas are more channels than a plan draws, "
            f"{MOST_COEFFICIENTS:,}; ask about fewer devices or antennas"
        )
    try:
        return from_mapping(
            {
                "name": "plan",
                "system": {
                    "seed": seed,
                    "trials": drops,
                    "num_devices": q.devices,
                    "num_antennas": q.antennas,
                    "participation": q.participation,
                    "rounds": FADINGS if drops > 1 else FADINGS_OF_ONE,
                },
                "learning": {"local_steps": 1, "clip_norm": 1.0},
                "channel": channel_values(q),
                "scheme": {"names": ["airfl-mimo"]},
            }
        )
    except InputError as error:
        raise InputError(f"channels of this link cannot be drawn: {error}") from None


def _observe(seen: Seen, config: Config, trials: range, edge: float, rounds: int) -> None:
    """Add drops: their combiners, in units of the edge, and how loud devices are to somebody at every antenna."""
    radio = open_radio(config, trials)
    fadings = range(config.system.rounds)
    design, active, _ = radio.rounds(config, fadings)
    channels, amplitude = radio.link.channels(fadings), radio.link.law.amplitude
    heard = np.take_along_axis(channels, active[..., None], axis=2)
    combiner, norm = design.combiner.numpy(), design.norm.numpy()
    gains = np.abs(np.einsum("tfm,tfkm->tfk", combiner.conj(), heard))
    energy = np.sum(np.abs(heard) ** 2, axis=-1) / gains**2  # ‖h_i s_i‖², over all antennas
    strength = np.take_along_axis(np.broadcast_to(amplitude[:, None], channels.shape[:3]), active, axis=2)
    longest = gains.min(axis=2, keepdims=True)  # |wᴴh| is 1 but for rounding, and may be longer
    seen.inverse += list(longest[..., 0] ** 2 / (norm**2 * edge))
    seen.power += list(np.mean((longest / gains) ** 2, axis=2))
    seen.stretch += list(np.max(strength / gains, axis=2) * norm)
    for index in range(len(trials)):
        seen.loud_round.append(float(np.mean(np.log(energy[index].max(axis=1) / edge))))
        loudest = _loudest(radio.link, index, energy[index] / edge, active[index], rounds)
        seen.loud_run.append(math.log(loudest))


def _loudest(link: Link, index: int, energy: np.ndarray, active: np.ndarray, rounds: int) -> float:
    """What the device that is heard best over a run is heard with, a round on average over the run.

    Args:
        energy: of those who are active, [fadings, K].
        rounds: T; the fadings that were drawn come first, then again and again with devices in each other's places.
    """
    seed, trial, total = link.config.system.seed, link.trials[index], np.zeros(link.config.system.num_devices)
    for t in range(rounds):
        whose, of = np.zeros_like(total), t % len(energy)
        whose[active[of]] = energy[of]
        if t >= len(energy):
            whose = whose[names_of(link.law.amplitude[index], stream(seed, "foresight", trial, t))]
        total += whose
    return float(total.max()) / rounds


def _combining(seen: Seen) -> Drawn:
    """Means and errors; drops are independent, fadings of one drop are not."""
    inverse, stretch = np.array(seen.inverse), np.array(seen.stretch)
    level, rows = float(inverse.mean()), inverse.mean(axis=1) if len(inverse) > 1 else inverse[0]
    logs = np.log(inverse)
    common = float(np.cov(logs[:, ::2].mean(axis=1), logs[:, 1::2].mean(axis=1))[0, 1]) if len(inverse) > 1 else 0.0
    return Drawn(
        inverse_norm2=level,
        standard_error=float(rows.std(ddof=1)) / level / math.sqrt(len(rows)),
        drop_spread=math.sqrt(max(0.0, common)),
        mean_power=float(np.mean(seen.power)),
        loudest_round=math.exp(float(np.mean(seen.loud_round))),
        loudest_run=math.exp(float(np.mean(seen.loud_run))),
        drops=len(inverse),
        loudness=math.exp(float(np.mean(seen.loud_run))) / level,
        stretch=float(np.mean(stretch * inverse)) / level,
        stretch2=float(np.mean(stretch**2 * inverse)) / level,
    )
