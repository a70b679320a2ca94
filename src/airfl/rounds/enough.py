"""Whether the power of a link is enough to hide within the price that is accepted, and how many decibels it is not."""

from __future__ import annotations

import math
from dataclasses import replace

from airfl.config import Channel
from airfl.rounds.hiding import Kind, Problem, Shield

#: Levels of cover, in units of c² per coordinate of an update, that are tried one after another.
LADDER = tuple(0.01 * 4.0**step for step in range(15))
#: Of levels that cost nearly the same noise the lowest is taken: it costs the least power.
NEARLY = 1.02
#: How often devices that were not followed may turn out to stand out.
CHECKS = 20
#: Decibels of power: how far it is looked for, how exactly it is found, and steps on the way down.
MOST_DB, CLOSE_DB, STEP_DB = 160.0, 0.5, 5.0


def levels(kind: Kind) -> tuple[float, ...]:
    """Levels of a kind of cover that are tried, lowest first."""
    return (0.0,) if kind == "none" else (0.0, *LADDER)


def missing_db(problem: Problem, kind: Kind) -> float | None:
    """Decibels of power that are missing to hide within ``scheme.cover_price_db``; None where no power is enough."""
    low, high = 0.0, 5.0
    while high < MOST_DB and not hides_within(problem, kind, high):
        low, high = high, 2.0 * high
    if high >= MOST_DB and not hides_within(problem, kind, high):
        return None
    while high - low > CLOSE_DB:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if hides_within(problem, kind, middle) else (middle, high)
    return high


def spare_db(problem: Problem, kind: Kind) -> float | None:
    """By how many decibels the power may fall before some are missing; None where devices hide at any lower power too.

    Power that is so low that the receiver's noise hides everybody is enough again, so the search takes small steps.
    """
    low, high = 0.0, STEP_DB
    while hides_within(problem, kind, -high):
        low, high = high, high + STEP_DB
        if high > MOST_DB:
            return None
    while high - low > CLOSE_DB:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if hides_within(problem, kind, -middle) else (low, middle)
    return low


def hides_within(problem: Problem, kind: Kind, decibels: float = 0.0) -> bool:
    """Whether a run with so many more decibels of power finds a cover within ``scheme.cover_price_db``.

    Where the choice is free a run takes masks if noise in quadrature is not within it.
    """
    both = kind == "quadrature" and problem.config.scheme.cover == "auto"
    kinds: tuple[Kind, ...] = (kind, "masks") if both else (kind,)
    return any(_hides(problem, one, decibels) for one in kinds)


def _hides(problem: Problem, kind: Kind, decibels: float) -> bool:
    """The same for one kind of cover.

    Quicker than finding the one with the least noise, and a little stricter: a run takes the least power of those that
    are ``NEARLY`` as good.
    """
    raised = replace(problem, power=problem.power * 10.0 ** (decibels / 10.0), _starts={})
    noise = raised.trusted * 10.0 ** (problem.config.scheme.cover_price_db / 10.0) / NEARLY
    for _ in range(CHECKS):
        found = (raised.at_noise(kind, level, noise) for level in levels(kind))
        shield = next((one for one in found if one is not None), None)
        if shield is None or raised.check(shield):
            return shield is not None
    return False


def missing_sentence(problem: Problem, kind: Kind, shield: Shield) -> str:
    """How many decibels of power are missing, in one sentence."""
    config, missing = problem.config, missing_db(problem, kind)
    noise = f"{shield.price_db:.1f} dB more noise than a trusted base station takes"
    if missing is None:
        return (
            f'cover = "{kind}" cannot hide {int(problem.senders.min())} devices from {config.system.num_antennas} '
            f"antennas at any power: it would take {noise}; take fewer antennas, raise `privacy.epsilon`, or set "
            f'`scheme.cover_price_db` above {shield.price_db:.1f} or cover = "none" to pay in accuracy'
        )
    limit = problem.link.power_limit
    needed = _up(limit * 10.0 ** (missing / 10.0))
    missing = math.ceil(10.0 * math.log10(needed / limit))
    return (
        f"the power does not reach to hide the devices: {missing} dB are missing, and with "
        f"{limit:.3g} W it would take {noise}; give {_key_for(config.channel, needed, missing)}, "
        f'or set `scheme.cover_price_db` above {shield.price_db:.1f} or cover = "none" to pay in accuracy'
    )


def _key_for(channel: Channel, needed_w: float, missing_db: float) -> str:
    """The power that it takes, by the key that says it here."""
    if channel.power_dbm is not None:
        return f"`channel.power_dbm` = {channel.power_dbm + missing_db:g}"
    if channel.snr_db is not None:
        return f"`channel.snr_db` = {channel.snr_db + missing_db:g}"
    return f"`channel.power_w` = {needed_w:.2g}"


def _up(value: float) -> float:
    """The next number with two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit * (1.0 - 1e-9)) * unit
