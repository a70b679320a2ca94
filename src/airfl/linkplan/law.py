"""What the receive combiner makes of K devices, m antennas and Rayleigh fading, looked up in a measured table.

With the path gain at the cell edge as unit, h_i = √(Λ_i/Λ_edge)·CN(0, I_m), the combiner solves: minimise ρ = ‖w‖²
subject to |wᴴ h_i| ≥ 1. Power P, clip norm c, d parameters and noise σ² scale the result, π² = ρ·c²/(d·P·Λ_edge), so
only K, m and the layout have to be tabulated. ``experiments/combiner_law.py`` made the tables.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, get_args

from airfl.errors import InputError

Layout = Literal["disk", "ring"]
Effort = Literal["full", "light", "sets"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
#: K·m beyond which the combiner looks less hard (``transceiver.multicast.LARGE``), and K/m beyond which it then works
#: on sets of devices (``WORKING_SET``): each way has a table of its own.
LIGHT_BEYOND, SETS_BEYOND = 200_000, 20
#: The table's edges, and the devices beyond which it rests on a few drops.
MOST_DEVICES, MOST_ANTENNAS, WELL_MEASURED = 65_536, 256, 8_192


@dataclass(frozen=True)
class Combining:
    """One cell of the table, or what lies between four of them.

    Attributes:
        inverse_norm2: E[1/ρ], which is what Σ 1/π_t² and so ε depends on.
        drop_spread: standard deviation of log(1/ρ) over where the devices are.
        mean_power: mean over devices of their transmit power over the limit.
        loudest_round: ‖h_i s_i‖² of the device that is heard best in a round, in the same units as 1/ρ.
        loudest_run: the same for one device over eight rounds.
    """

    inverse_norm2: float
    drop_spread: float
    mean_power: float
    loudest_round: float
    loudest_run: float


Table = Mapping[tuple[Effort, int, int], Combining]
_COLUMNS = ("inverse_norm2", "drop_spread", "mean_power", "loudest_round", "loudest_run")


@cache
def table(layout: Layout) -> Table:
    """The measured cells of a layout by effort, log₂ K and m."""
    text = (resources.files("airfl") / "linkplan" / f"law_{layout}.csv").read_text(encoding="utf-8")
    cells: dict[tuple[Effort, int, int], Combining] = {}
    for row in csv.DictReader(text.splitlines()):
        effort: Effort = row["effort"]  # type: ignore[assignment]
        key = (effort, int(row["devices"]).bit_length() - 1, int(row["antennas"]))
        cells[key] = Combining(*(float(row[name]) for name in _COLUMNS))
    return cells


def fewest_devices(layout: Layout) -> int:
    """The smallest K of the table: one device on a disk may be anywhere, so it has no useful mean."""
    return 2 if layout == "disk" else 1


def effort_of(active: int, antennas: int) -> Effort:
    """Which way the default combiner works for K devices and m antennas."""
    if active * antennas <= LIGHT_BEYOND:
        return "full"
    return "sets" if active > SETS_BEYOND * antennas else "light"


def combining(layout: Layout, active: int, antennas: int) -> Combining:
    """Interpolate between logarithms, in log K and log m: cubic where there are neighbours enough, else linear.

    Three antennas have cells of their own: between two and four the norm bends too much.
    """
    fewest = fewest_devices(layout)
    if not fewest <= active <= MOST_DEVICES:
        raise InputError(f"the planner knows {fewest} to {MOST_DEVICES:,} active devices; got {active:,}")
    if not 1 <= antennas <= MOST_ANTENNAS:
        raise InputError(f"the planner knows 1 to {MOST_ANTENNAS} antennas; got {antennas:,}")
    cells = table(layout)
    effort = effort_of(active, antennas)
    x, y = math.log2(active), math.log2(antennas)
    i, j = min(int(x), 15), min(int(y), 7)
    measured = {m for _, _, m in cells}
    smooth = effort != "sets"  # there the norm falls off a cliff where K/m gets large: a cubic would swing

    def cell(a: int, b: int) -> Combining | None:
        # The one corner that working on sets does not reach is borrowed from its neighbour.
        found = cells.get((effort, a, b))
        return cells.get(("light", a, b)) if found is None and effort == "sets" else found

    def between(name: str) -> float:
        def value(a: int, b: int) -> float | None:
            found = cell(a, b)
            return None if found is None else _forward(name, getattr(found, name))

        def column(b: int) -> float | None:
            return _along([value(a, b) for a in range(i - 1, i + 3)], x - i, smooth)

        if antennas in measured:
            result = column(antennas)
        else:
            result = _along([column(2**b) if b >= 0 else None for b in range(j - 1, j + 3)], y - j, smooth)
        assert result is not None, f"the table of {layout} has a hole at {active} devices and {antennas} antennas"
        return _backward(name, result)

    return Combining(*(between(name) for name in _COLUMNS))


def _forward(name: str, value: float) -> float:
    return value if name == "drop_spread" else math.log(value)


def _backward(name: str, value: float) -> float:
    return max(0.0, value) if name == "drop_spread" else math.exp(value)


def _along(values: list[float | None], t: float, smooth: bool) -> float | None:
    """Between the middle two of four equally spaced values: a cubic, or a line where an outer one is missing."""
    before, left, right, after = values
    if t == 0.0 or left is None:
        return left if t == 0.0 else None
    if t == 1.0 or right is None:
        return right if t == 1.0 else None
    if before is None or after is None or not smooth:
        return left + t * (right - left)
    return (
        -before * t * (t - 1.0) * (t - 2.0) / 6.0
        + left * (t + 1.0) * (t - 1.0) * (t - 2.0) / 2.0
        - right * (t + 1.0) * t * (t - 2.0) / 2.0
        + after * (t + 1.0) * t * (t - 1.0) / 6.0
    )
