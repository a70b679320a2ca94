"""What the receive combiner makes of a link that no table covers: drops of it are drawn with the code that runs use.

A drop has positions and shadowing of its own, and a few fadings. With the path gain at the edge as unit every fading
gives ρ = ‖w‖²·Λ_edge, and a plan needs E[1/ρ] (``linkplan.law``). The base station's ε needs how loud the loudest
device is over a run. Where fadings have nothing in common but where devices are, few stand for many rounds, each time
with devices in each other's places (``relabelled``). Rays and lines of sight stay for a run, and whoever is unlucky
with them is so in every round: such devices are followed over rounds of their own, as many as time allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from airfl.analysis.relabelled import names_of
from airfl.catalogue import WITH_SIONNA
from airfl.channel import Link
from airfl.channel.budget import edge_gain
from airfl.config import Config, from_mapping
from airfl.errors import InputError
from airfl.linkplan import Quantities
from airfl.linkplan.combiners import FOLLOWED
from airfl.linkplan.law import Drawn
from airfl.linkplan.link import channel_values
from airfl.linkplan.quantities import word_of
from airfl.memory import needs_of, require_memory
from airfl.parallel import torch_threads
from airfl.randomness import stream
from airfl.transceiver import open_radio
from airfl.transceiver.radio import designed

#: Fadings of a drop; of a single drop, whose error they have to tell too; of a law with lines of sight, at most.
FADINGS, FADINGS_OF_ONE, FADINGS_OF_RICIAN = 2, 8, 16
#: Channel coefficients of a round, n·m, at most; held at a time; of all drops, or all rounds of a drop, where nobody
#: said how many; of a round up to which a few drops more take no time.
MOST_COEFFICIENTS, HELD, USUAL, SMALL = 2_000_000, 400_000, 400_000, 100_000
#: Coefficients of a round, and devices where each of them takes a millisecond, that are drawn unasked: half a minute.
UNASKED, SLOW_UNASKED = 500_000, 5_000
#: Drops where nobody said how many: of small links at least, of any, and at most; of slow laws, of those that stay.
LEAST_DROPS, TWO_DROPS, MOST_DROPS, SLOW_DROPS, STAYING_DROPS = 4, 2, 48, 4, 24
#: Devices up to which a slow law has as many.
SLOW_MANY = 1_000
#: Laws whose rays or lines of sight stay for a trial.
STAYING = ("rician", *WITH_SIONNA)
#: A plan's words for what a configuration calls otherwise.
_KEYS = {"num_devices": "devices", "num_antennas": "antennas", "trials": "drops", "rounds": "rounds"}


@dataclass
class Seen:
    """What was seen of every drop so far: a row for each, [drops, fadings] but for the loudest device."""

    inverse: list[np.ndarray] = field(default_factory=list)
    power: list[np.ndarray] = field(default_factory=list)
    stretch: list[np.ndarray] = field(default_factory=list)
    loud_round: list[float] = field(default_factory=list)
    loud_run: list[float] = field(default_factory=list)
    followed: int | None = None


def usual_drops(q: Quantities) -> int:
    """How many are drawn where nobody says: what some seconds are enough for."""
    devices, size = q.devices or 1, _size(q)
    if _is_slow(q):
        return SLOW_DROPS if devices <= SLOW_MANY else TWO_DROPS
    least = LEAST_DROPS if size <= SMALL else TWO_DROPS
    most = STAYING_DROPS if q.fading in STAYING else MOST_DROPS
    return min(most, max(least, USUAL // (usual_fadings(q, MOST_DROPS) * size)))


def usual_fadings(q: Quantities, drops: int) -> int:
    """Rounds of a drop; they depend on the channels alone, so that an answer does not move with T."""
    if q.fading in STAYING:
        most = FOLLOWED if q.fading in WITH_SIONNA else FADINGS_OF_RICIAN
        return min(most, max(FADINGS, USUAL // _size(q)))
    return FADINGS_OF_ONE if drops == 1 and _size(q) <= SMALL else FADINGS


def draw_law(
    q: Quantities, drops: int | None = None, advance: Callable[[int, int], None] | None = None, seed: int = 0
) -> Drawn:
    """Draw a link and design its combiners, as a run does.

    Args:
        q: with devices, antennas and a channel.
        drops: default: ``usual_drops``, of links that are not too large for seconds.
        advance: hears how many are done, of how many.
    """
    _refuse_long(q, drops)
    count = drops or usual_drops(q)
    config = _config_of(q, count, seed)
    fadings, edge = config.system.rounds, edge_gain(config.channel)
    size = 1 if _is_slow(q) else max(1, HELD // (fadings * _size(q)))
    size, seen = min(size, max(1, count // 8)), Seen()
    _require_memory(config, size)
    with torch_threads(1) as threads:  # many small matrices, but for those of combiners
        for first in range(0, count, size):
            if advance is not None:
                advance(first, count)
            _observe(seen, config, range(first, min(count, first + size)), edge, q.rounds or 1, threads)
    if advance is not None:
        advance(count, count)
    return _combining(seen)


def _size(q: Quantities) -> int:
    """Channel coefficients of a round."""
    return (q.devices or 1) * (q.antennas or 1)


def _is_slow(q: Quantities) -> bool:
    """Whether time goes to the places of devices more than to their channels."""
    return q.fading in WITH_SIONNA or (q.shadowing_db > 0.0 and q.shadowing_distance_m > 0.0)


def _refuse_long(q: Quantities, drops: int | None) -> None:
    """What no plan draws, and what it draws for those alone who ask for drops."""
    devices, antennas = q.devices or 1, q.antennas or 1
    if _size(q) > MOST_COEFFICIENTS:
        raise InputError(
            f"{devices:,} devices with {antennas} antennas are more channels than a plan draws, "
            f"{MOST_COEFFICIENTS:,}; ask about fewer devices or antennas"
        )
    if drops is None and (_size(q) > UNASKED or (_is_slow(q) and devices > SLOW_UNASKED)):
        limit = f"{SLOW_UNASKED:,} devices" if _is_slow(q) and devices > SLOW_UNASKED else f"{UNASKED:,} channels"
        raise InputError(
            f"{devices:,} devices with {antennas} antennas take minutes to draw, more than a plan does unasked "
            f"({limit}); --drops 2 draws them all the same, or ask about fewer devices"
        )


def _require_memory(config: Config, drops: int) -> None:
    """The same estimate as for runs, in a plan's words."""
    needs = needs_of(config, drops)
    for key, name in _KEYS.items():
        needs = [replace(need, keys=need.keys.replace(f"`system.{key}`", f"--{word_of(name)}")) for need in needs]
    require_memory(needs, "drawing these channels")


def _config_of(q: Quantities, drops: int, seed: int) -> Config:
    """A run of a few rounds of this link in so many trials."""
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
                    "rounds": usual_fadings(q, drops),
                },
                "learning": {"local_steps": 1, "clip_norm": 1.0},
                "channel": channel_values(q),
                "scheme": {"names": ["airfl-mimo"]},
            }
        )
    except InputError as error:
        raise InputError(f"channels of this link cannot be drawn: {error}") from None


def _observe(seen: Seen, config: Config, trials: range, edge: float, rounds: int, threads: int) -> None:
    """Add drops: their combiners, in units of the edge, and how loud devices are to somebody at every antenna."""
    radio = open_radio(config, trials)
    fadings = range(config.system.rounds)
    channels, active, amplitude = radio.link.channels(fadings), radio.link.active(fadings), radio.link.law.amplitude
    heard = np.take_along_axis(channels, active[..., None], axis=2)
    with torch_threads(threads):
        design = designed(config, radio, torch.from_numpy(heard), [(t,) for t in fadings])
    design.require_ok()
    combiner, norm = design.combiner.numpy(), design.norm.numpy()
    gains = np.abs(np.einsum("tfm,tfkm->tfk", combiner.conj(), heard))
    energy = np.sum(np.abs(heard) ** 2, axis=-1) / gains**2  # ‖h_i s_i‖², over all antennas
    strength = np.take_along_axis(np.broadcast_to(amplitude[:, None], channels.shape[:3]), active, axis=2)
    longest = gains.min(axis=2, keepdims=True)  # |wᴴh| is 1 but for rounding, and may be longer
    seen.inverse += list(longest[..., 0] ** 2 / (norm**2 * edge))
    seen.power += list(np.mean((longest / gains) ** 2, axis=2))
    seen.stretch += list(np.max(strength / gains, axis=2) * norm)
    if config.channel.fading in STAYING:
        seen.followed = min(rounds, len(fadings))
    for index in range(len(trials)):
        seen.loud_round.append(float(np.mean(np.log(energy[index].max(axis=1) / edge))))
        loudest = _loudest(radio.link, index, energy[index] / edge, active[index], rounds)
        seen.loud_run.append(math.log(loudest))


def _loudest(link: Link, index: int, energy: np.ndarray, active: np.ndarray, rounds: int) -> float:
    """What the device that is heard best over a run is heard with, a round on average over the run.

    Args:
        energy: of those who are active, [fadings, K].
        rounds: T; the fadings that were drawn come first, then again and again with devices in each other's places. If
            something of them stays for a run, nobody changes places and no more rounds are looked at than were drawn.
    """
    seed, trial, total = link.config.system.seed, link.trials[index], np.zeros(link.config.system.num_devices)
    if link.config.channel.fading in STAYING:
        rounds = min(rounds, len(energy))
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
        followed=seen.followed,
        loudness=math.exp(float(np.mean(seen.loud_run))) / level,
        stretch=float(np.mean(stretch * inverse)) / level,
        stretch2=float(np.mean(stretch**2 * inverse)) / level,
    )
