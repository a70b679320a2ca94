"""What goes wrong on air, in a plan: how much of the sum is lost, and what is not counted.

Nothing here is a matter of privacy: every effect leaves contributions as long as they are or makes them shorter
(``channel.impairments``), so free ε, margin and threshold stay. What turns channels costs accuracy. With angles
θ ~ N(0, s²), the sum arrives with E cos θ = e^(−s²/2) of its length. What the turns add is independent from device to
device: of K updates of length c it has the energy K c² V, with V = E cos² θ − (E cos θ)² for real symbols and
1 − (E cos θ)² for complex ones, where coordinates of a pair mix. Late symbols turn bands the more the farther they
are from the carrier, so bands lose differently much.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from airfl.linkplan.blocks import grid_of
from airfl.linkplan.quantities import Quantities

#: Effects that a plan does not work out: what they take depends on every symbol of an update.
NOT_COUNTED = ("clipping_db", "adc_bits")
#: Bands that are looked at, at most.
MOST_BANDS = 4096


def impairments_of(q: Quantities) -> dict[str, Any] | None:
    """The effects that were stated, what turns cost, and which are not counted; None: nothing was stated."""
    stated = {name: getattr(q, name) for name in ("phase_error_rad", "timing_offset_s", *NOT_COUNTED)}
    stated = {name: value for name, value in stated.items() if value is not None}
    if not stated:
        return None
    gain, spread, bias = turned(q)
    clip = q.clip_norm or 1.0
    update = q.update_norm if q.update_norm is not None else q.alignment * clip
    distortion = None
    if q.devices is not None:
        distortion = math.hypot(math.sqrt(spread / q.active) * clip / update, bias) / gain
    return {
        **dict.fromkeys(("phase_error_rad", "timing_offset_s", *NOT_COUNTED)),
        **stated,
        "coherent_gain_db": 20.0 * math.log10(gain) + 0.0,
        "distortion_to_update": distortion,
        "not_counted": [name for name in NOT_COUNTED if name in stated],
    }


def turned(q: Quantities) -> tuple[float, float, float]:
    """The mean gain of the sum over all bands, V, and the RMS by which bands' gains differ from that mean."""
    grid = grid_of(q)
    bands = 1 if grid is None else min(grid.bands, MOST_BANDS)
    offset = ((np.arange(bands) + 0.5) / bands - 0.5) * (q.bandwidth_hz or 0.0)
    angle2 = (q.phase_error_rad or 0.0) ** 2 + (2.0 * math.pi * offset * (q.timing_offset_s or 0.0)) ** 2
    mean = np.exp(-0.5 * angle2)
    square = np.ones_like(mean) if q.symbols == "complex" else 0.5 * (1.0 + np.exp(-2.0 * angle2))
    spread = max(0.0, float((square - mean**2).mean()))
    return max(1e-150, float(mean.mean())), spread, float(mean.std())
