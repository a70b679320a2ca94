"""What the receive combiner makes of K devices, m antennas and Rayleigh fading, looked up in a measured table.

With the path gain at the cell edge as unit, h_i = √(Λ_i/Λ_edge)·CN(0, I_m), the combiner solves: minimise ρ = ‖w‖²
subject to |wᴴ h_i| ≥ 1. Power P, clip norm c, d parameters and noise σ² scale the result, π² = ρ·c²/(d·P·Λ_edge), so
only K, m and the layout have to be tabulated. ``experiments/combiner_law.py`` made the tables.

Beyond the last K that was measured with m antennas, K·E[1/ρ] is taken to rise on, each doubling of K bringing ``FADES``
of the decibels of the one before (docs/plan.md has the check). Counting directions (``transceiver.counting``) says what
is there to be found: E[1/ρ] ~ (m−1) ln(1/E[1/ρ])/K, which rises faster; the search finds less and less of that.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, get_args

from scipy import special

from airfl.errors import InputError

Layout = Literal["disk", "ring"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
#: What can be looked up.
MOST_DEVICES, MOST_ANTENNAS = 1_000_000, 256
#: Exponents of the last interval between powers of two, in K and in m.
LAST_DEVICES, LAST_ANTENNAS = 19, 7
#: What a doubling of K brings beyond 1/K, over what the one before brought.
FADES = 0.75
#: What is added to the relative standard error beyond the table: half of the worst that was seen there (0.41 dB).
BEYOND_ERROR = 0.05


@dataclass(frozen=True)
class Combining:
    """One cell of the table, or what lies between some of them.

    Attributes:
        inverse_norm2: E[1/ρ], which is what Σ 1/π_t² and so ε depends on.
        standard_error: of that mean, relative.
        drop_spread: standard deviation of log(1/ρ) over where the devices are.
        mean_power: mean over devices of their transmit power over the limit.
        loudest_round: ‖h_i s_i‖² of the device that is heard best in a round, in the same units as 1/ρ.
        loudest_run: the same for one device over eight rounds, two beyond 4,096 devices: a check on ``loudest``.
        octaves_beyond: how far K is beyond what was measured, in doublings; 0 within.
    """

    inverse_norm2: float
    standard_error: float
    drop_spread: float
    mean_power: float
    loudest_round: float
    loudest_run: float
    octaves_beyond: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Drawn(Combining):
    """The same where channels were drawn for one link.

    Attributes:
        drops: how many.
        followed: over how many rounds of their own devices were followed; None: over as many as the base station is.
        loudness: what the loudest device is heard with over a run, over what the sum is.
        stretch, stretch2: E[x/ρ]/E[1/ρ] and E[x²/ρ]/E[1/ρ] with x = max_i √Λ_i ‖w‖/|wᴴh_i|, by which a wrong estimate
            of a channel stretches a contribution.
    """

    drops: int
    followed: int | None = None
    loudness: float
    stretch: float
    stretch2: float


Table = Mapping[tuple[int, int], Combining]
_COLUMNS = ("inverse_norm2", "standard_error", "drop_spread", "mean_power", "loudest_round", "loudest_run")
#: Columns that may be zero: interpolated straight, and not in logarithms.
_STRAIGHT = ("standard_error", "drop_spread", "octaves_beyond")


@cache
def table(layout: Layout) -> Table:
    """The measured cells of a layout by log₂ K and m."""
    text = (resources.files("airfl") / "linkplan" / f"law_{layout}.csv").read_text(encoding="utf-8")
    return {
        (int(row["devices"]).bit_length() - 1, int(row["antennas"])): Combining(*(float(row[n]) for n in _COLUMNS))
        for row in csv.DictReader(text.splitlines())
    }


@cache
def extended(layout: Layout) -> Table:
    """The measured cells, and for every m those that follow up to the last K."""
    cells = dict(table(layout))
    for antennas in {m for _, m in cells}:
        last = max(k for k, m in cells if m == antennas)
        before, here = cells[last - 2, antennas], cells[last, antennas]
        # The last two doublings brought so much more than 1/K; the last one, if each brings a share of the one before.
        gain = (math.log(here.inverse_norm2 / before.inverse_norm2) + 2.0 * math.log(2.0)) / (1.0 + 1.0 / FADES)
        odd = math.log(here.mean_power / _mean_power(here.inverse_norm2, layout))
        for beyond in range(1, LAST_DEVICES + 2 - last):
            gain, odd = gain * FADES, odd * FADES
            level = cells[last + beyond - 1, antennas].inverse_norm2 * math.exp(gain) / 2.0
            power = _mean_power(level, layout) * math.exp(odd)
            cells[last + beyond, antennas] = replace(
                here,
                inverse_norm2=level,
                mean_power=power,
                octaves_beyond=float(beyond),
                standard_error=math.hypot(here.standard_error, BEYOND_ERROR),
            )
    return cells


def _mean_power(level: float, layout: Layout) -> float:
    """Mean transmit power over the limit where w is as good as random for most devices, so that |wᴴ h|² is exponential.

    Its mean is 1/level at the edge, and the mean of its inverse from 1 on level·e^level·E₁(level). On a disk powers are
    lower by r², ½ on average.
    """
    return (0.5 if layout == "disk" else 1.0) * level * math.exp(level) * float(special.exp1(level))


def fewest_devices(layout: Layout) -> int:
    """The smallest K of the table: one device on a disk may be anywhere, so it has no useful mean."""
    return 2 if layout == "disk" else 1


def combining(layout: Layout, active: int, antennas: int) -> Combining:
    """Interpolate between logarithms, in log K and log m: a cubic through the four nearest, a parabola at the rim.

    Three antennas have cells of their own: between two and four the norm bends too much.
    """
    fewest = fewest_devices(layout)
    if not fewest <= active <= MOST_DEVICES:
        raise InputError(f"the planner knows {fewest} to {MOST_DEVICES:,} active devices; got {active:,}")
    if not 1 <= antennas <= MOST_ANTENNAS:
        raise InputError(
            f"the tables of combiners know 1 to {MOST_ANTENNAS} antennas; got {antennas:,}: --drops 4 draws channels "
            "of as many"
        )
    cells = extended(layout)
    x, y = math.log2(active), math.log2(antennas)
    i, j = min(int(x), LAST_DEVICES), min(int(y), LAST_ANTENNAS)

    def at(name: str, a: int, b: int) -> float | None:
        found = cells.get((a, b))
        if found is None:
            return None
        value: float = getattr(found, name)
        return value if name in _STRAIGHT else math.log(value)

    def column(name: str, b: int) -> float | None:
        return _along([at(name, a, b) for a in range(i - 1, i + 3)], x - i)

    def between(name: str) -> float:
        if antennas == 3:
            result = column(name, 3)
        else:
            result = _along([column(name, 2**b) if b >= 0 else None for b in range(j - 1, j + 3)], y - j)
        assert result is not None, f"the table of {layout} has a hole at {active} devices and {antennas} antennas"
        return max(0.0, result) if name in _STRAIGHT else math.exp(result)

    return Combining(*(between(name) for name in (*_COLUMNS, "octaves_beyond")))


def _along(values: Sequence[float | None], t: float) -> float | None:
    """At t between 0 and 1, from values at −1, 0, 1 and 2: the polynomial through those that are there.

    None unless both in the middle are, or the one that is hit.
    """
    if t in (0.0, 1.0):
        return values[1 + int(t)]
    known = [(node, value) for node, value in zip((-1, 0, 1, 2), values, strict=True) if value is not None]
    if values[1] is None or values[2] is None:
        return None
    return math.fsum(
        value * math.prod((t - other) / (node - other) for other, _ in known if other != node) for node, value in known
    )
