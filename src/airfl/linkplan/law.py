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
Effort = Literal["full", "light"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
#: K·m beyond which the combiner looks less hard (``transceiver.multicast.LARGE``): a table of its own lies there.
LIGHT_BEYOND = 200_000
#: The table's edges.
MOST_DEVICES, MOST_ANTENNAS = 65_536, 256


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
    """The measured cells of a layout by effort, log₂ K and log₂ m."""
    text = (resources.files("airfl") / "linkplan" / f"law_{layout}.csv").read_text(encoding="utf-8")
    cells: dict[tuple[Effort, int, int], Combining] = {}
    for row in csv.DictReader(text.splitlines()):
        effort: Effort = "full" if row["effort"] == "full" else "light"
        key = (effort, int(row["devices"]).bit_length() - 1, int(row["antennas"]).bit_length() - 1)
        cells[key] = Combining(*(float(row[name]) for name in _COLUMNS))
    return cells


def fewest_devices(layout: Layout) -> int:
    """The smallest K of the table: one device on a disk may be anywhere, so it has no useful mean."""
    return 2 if layout == "disk" else 1


def combining(layout: Layout, active: int, antennas: int) -> Combining:
    """Interpolate linearly between logarithms, in log K and log m."""
    fewest = fewest_devices(layout)
    if not fewest <= active <= MOST_DEVICES:
        raise InputError(f"the planner knows {fewest} to {MOST_DEVICES:,} active devices; got {active:,}")
    if not 1 <= antennas <= MOST_ANTENNAS:
        raise InputError(f"the planner knows 1 to {MOST_ANTENNAS} antennas; got {antennas:,}")
    cells = table(layout)
    effort: Effort = "light" if active * antennas > LIGHT_BEYOND else "full"
    x, y = math.log2(active), math.log2(antennas)
    i, j = min(int(x), 15), min(int(y), 7)
    corners = [
        (wx * wy, cells[effort, i + di, j + dj])
        for di, wx in ((0, i + 1 - x), (1, x - i))
        for dj, wy in ((0, j + 1 - y), (1, y - j))
        if wx * wy > 0.0
    ]

    def between(name: str) -> float:
        return math.exp(sum(weight * math.log(getattr(cell, name)) for weight, cell in corners))

    spread = sum(weight * cell.drop_spread for weight, cell in corners)
    return Combining(*(spread if name == "drop_spread" else between(name) for name in _COLUMNS))
