"""The one unknown for which free ε meets the target.

μ² is a power law in most quantities, so those are solved exactly: with μ² = C·x^p, x = (μ*²/C)^{1/p}. Devices and
antennas enter through the combiner: the smallest number of devices and the largest number of antennas are searched.
Among few devices of which most take part, μ² jumps where most are no longer all and neighbours mean something else, so
not every larger number need do: ``exception`` finds one that does not.
"""

from __future__ import annotations

import math
from typing import Any

from airfl.errors import InputError
from airfl.linkplan.answer import free_epsilon, meets, squared_mu
from airfl.linkplan.blocks import is_counted
from airfl.linkplan.combiners import law_of
from airfl.linkplan.law import MOST_ANTENNAS, MOST_DEVICES, Combining, fewest_devices
from airfl.linkplan.link import slope_of, uncovered
from airfl.linkplan.quantities import RANGES, Quantities, word_of
from airfl.privacy import gaussian_delta, gaussian_mu
from airfl.wording import epsilon_text

#: The exponent p of μ² = C·x^p.
POWER_LAWS = {
    "power_w": 1.0,
    "distance_m": -2.0,  # in free space; else the exponent of the path loss
    "bandwidth_hz": -1.0,
    "rounds": 1.0,
    "parameters": 1.0,
    "clip_norm": 2.0,
    "noise_var": -1.0,
}
#: Unknowns without which there are no channels to draw.
UNDRAWN = ("devices", "antennas", "noise_var")
#: Numbers of devices that are tried before the last step is refined.
_TRIED = 240
#: The largest n that a plan takes.
MOST_N = int(RANGES["devices"][1])


def solve(q: Quantities, unknown: str, law: Combining | None = None) -> Quantities:
    """The quantities with the unknown filled in; ``law`` as in ``answer``."""
    if unknown in ("devices", "antennas") and uncovered(q) is not None:
        refuse_drawn(unknown, uncovered(q) or "")
    if law is None and unknown not in UNDRAWN:
        law = law_of(q)
    if unknown == "epsilon":
        epsilon = free_epsilon(q, law)
        if not math.isfinite(epsilon) or epsilon <= 0.0:
            raise InputError(f"free ε is {epsilon}: nothing to plan with; change the link")
        return q.with_values({unknown: epsilon})
    if unknown == "delta":
        assert q.epsilon is not None
        delta = gaussian_delta(q.epsilon, math.sqrt(squared_mu(q, law)))
        if not 1e-200 <= delta < 1.0 - 1e-9:
            raise InputError(f"no useful δ makes free ε equal {epsilon_text(q.epsilon)}; change --epsilon or the link")
        return q.with_values({unknown: delta})
    assert q.epsilon is not None
    _refuse_blocks(q, unknown)
    goal = gaussian_mu(q.epsilon, q.delta) ** 2
    if unknown == "devices":
        return q.with_values({unknown: _fewest(q, goal)})
    if unknown == "antennas":
        return q.with_values({unknown: _most_antennas(q, goal)})
    if unknown == "snr_db":
        value: Any = 10.0 * math.log10(goal / squared_mu(q.with_values({"snr_db": 0.0}), law))
    else:
        power = POWER_LAWS[unknown] if unknown != "distance_m" else -_slope(q)
        one = 2 if unknown == "parameters" and q.symbols == "complex" else 1  # what a symbol carries
        value = (goal / squared_mu(q.with_values({unknown: one}), law)) ** (1.0 / power)
        if unknown == "distance_m" and value < 1.0:  # log-distance is free space up to 1 m
            value = value ** (power / POWER_LAWS[unknown])
    if unknown in ("rounds", "parameters"):
        value = one * _whole(q, unknown, value, law)
    low, high = RANGES[unknown]
    if not low <= value <= high:
        raise InputError(
            f"free ε equals {epsilon_text(q.epsilon)} with --{word_of(unknown)} {value:.3g}, outside of what a plan "
            f"takes ({low:g} to {high:g}); change the target or the link"
        )
    found = {unknown: value}
    if unknown == "parameters" and q.clip_factor is not None:
        found |= {"clip_norm": math.sqrt(q.clip_factor * value), "clip_factor": None}
    return q.with_values(found)


def _refuse_blocks(q: Quantities, unknown: str) -> None:
    """Where the number of blocks depends on the unknown, and noise on that number, no power law is left."""
    depends = {
        "bandwidth_hz": (q.coherence_hz, q.coherence_s, q.speed_m_s, q.delay_spread_s),
        "parameters": (q.coherence_s, q.speed_m_s),
    }
    if is_counted(q) and any(depends.get(unknown, ())):
        raise InputError(
            f"cannot solve for --{word_of(unknown)} with what was said of coherence: how many blocks a round has "
            "depends on it, and its noise on that; try some values, or leave the coherence out"
        )


def refuse_drawn(unknown: str, why: str) -> None:
    """Every number of devices or antennas has channels of its own."""
    raise InputError(
        f"cannot solve for --{word_of(unknown)} with {why}: channels are drawn for one number of devices and antennas; "
        "try some numbers, or solve for another quantity"
    )


def _slope(q: Quantities) -> float:
    """The exponent of the path loss; without one, or with one of zero, no distance can be solved for."""
    slope = slope_of(q)
    if q.shadowing_db > 0.0 and q.shadowing_distance_m > 0.0:
        raise InputError(
            "cannot solve for --distance with `shadowing_distance_m`: channels depend on how far devices are; try some "
            "distances"
        )
    if slope is None:
        name = q.fading if q.path_loss is None else q.path_loss
        raise InputError(
            f"cannot solve for --distance with `{name}`, whose path loss is no power law; try some distances"
        )
    if slope == 0.0:
        raise InputError("cannot solve for --distance with an exponent of 0: the path loss does not depend on it")
    return slope


def exception(q: Quantities, unknown: str | None) -> int | None:
    """A number of devices beyond a solved one that misses the target all the same, the first of those tried."""
    if unknown != "devices":
        return None
    assert q.epsilon is not None
    goal, beyond = gaussian_mu(q.epsilon, q.delta) ** 2, [n for n in _tried(q) if n > (q.devices or 0)]
    return next((n for n in beyond if not meets(squared_mu(q.with_values({unknown: n})), goal)), None)


def _whole(q: Quantities, unknown: str, value: float, law: Combining | None) -> int:
    """The largest whole number within the target."""
    if value < 1.0 - 1e-12:
        needed = epsilon_text(free_epsilon(q.with_values({unknown: 1}), law))
        what = "round" if unknown == "rounds" else "parameter"
        raise InputError(f"not even one {what} fits: free ε is {needed} then; raise --epsilon or weaken the link")
    return max(1, math.floor(value * (1.0 + 1e-12)))


def device_range(q: Quantities) -> tuple[int, int]:
    """The fewest and the most devices, of which so many are active that the table of combiners has them."""
    fewest = fewest_devices(q.layout)
    low = max(1, math.floor((fewest - 0.5) / q.participation) if fewest > 1 else 1)
    while low <= MOST_N and max(1, round(q.participation * low)) < fewest:
        low += 1
    if low > MOST_N:
        raise InputError(
            f"with --participation {q.participation:g} fewer than {fewest} of {MOST_N:,} devices are active; raise it"
        )
    high = max(low, min(MOST_N, int(MOST_DEVICES / q.participation)))
    while max(1, round(q.participation * high)) > MOST_DEVICES:
        high -= 1
    return low, high


def _tried(q: Quantities) -> list[int]:
    """Numbers of devices over the whole range, each a little larger than the last."""
    low, high = device_range(q)
    return [round(low * (high / low) ** (k / _TRIED)) for k in range(_TRIED + 1)]


def _fewest(q: Quantities, goal: float) -> int:
    """The smallest n whose free ε is within the target; more devices are harder to reach, so there is more noise."""

    def enough(n: int) -> bool:
        return meets(squared_mu(q.with_values({"devices": n})), goal)

    steps = _tried(q)
    first = next((k for k, n in enumerate(steps) if enough(n)), None)
    if first is None:
        crowd = q.with_values({"devices": steps[-1]})
        raise InputError(
            f"even {steps[-1]:,} devices leave free ε at {epsilon_text(free_epsilon(crowd))}: the link is "
            f"{10.0 * math.log10(squared_mu(crowd) / goal):.1f} dB too good; lower --power or --snr, or raise --epsilon"
        )
    if first == 0:
        return steps[0]
    below, above = steps[first - 1], steps[first]
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above


def _most_antennas(q: Quantities, goal: float) -> int:
    """The largest m whose free ε is within the target; more antennas hear better, so there is less noise."""
    for antennas in range(MOST_ANTENNAS, 0, -1):
        if meets(squared_mu(q.with_values({"antennas": antennas})), goal):
            return antennas
    single = q.with_values({"antennas": 1})
    raise InputError(
        f"even one antenna leaves free ε at {epsilon_text(free_epsilon(single))}: the link is "
        f"{10.0 * math.log10(squared_mu(single) / goal):.1f} dB too good; lower --power or --snr, or raise --epsilon"
    )
