"""Which mean over combiners an answer rests on: the tables', or one that is drawn for this very link.

Tables answer at once; they know uncorrelated Rayleigh fading in free space, or with all devices equally far away. For
anything else channels are drawn with the code that runs use, which a plan cannot import: it is handed in
(``analysis.drawn_law.draw_law``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from airfl.catalogue import WITH_SIONNA
from airfl.errors import InputError
from airfl.linkplan.law import Combining, Drawn, combining
from airfl.linkplan.link import NOMINAL_HZ, NOMINAL_M, slope_of, uncovered
from airfl.linkplan.quantities import Quantities

#: Hears of every drop that is done, and of how many there will be.
Advance = Callable[[int, int], None]
#: Draws a link: its quantities, how many drops (None: as many as it likes), and who hears of them.
Draw = Callable[[Quantities, int | None, Advance | None], Drawn]
#: Most drops that may be asked for.
MOST_DROPS = 100_000
#: Rounds over which the base station follows devices at most; beyond, luck has averaged out.
FOLLOWED = 64
#: What no combiner depends on, with a value that makes a link complete.
_IDLE: dict[str, Any] = {
    "power_w": 1.0, "power_dbm": None, "snr_db": None, "noise_density_dbm_hz": None, "noise_figure_db": None,
    "antenna_gain_dbi": 0.0, "device_gain_dbi": 0.0, "loss_db": 0.0, "interference_dbm": None, "parameters": 1,
    "clip_norm": 1.0, "clip_factor": None, "delta": 1e-5, "epsilon": 1.0, "neighbours": None, "symbol_rate_hz": None,
    "update_norm": None, "alignment": 1.0, "noise_var": None, "speed_m_s": None, "csi_error": None,
    "coherence_hz": None, "coherence_s": None, "symbols": "real", "csi_age_s": None, "phase_error_rad": None,
    "timing_offset_s": None, "clipping_db": None, "adc_bits": None,
}  # fmt: skip


def _bare(q: Quantities) -> Quantities:
    """What combiners depend on: two links that differ in nothing else have the same channels, to the bit."""
    idle = _IDLE | {"rounds": min(q.rounds or FOLLOWED, FOLLOWED)}
    if q.fading not in WITH_SIONNA:
        idle |= {"bandwidth_hz": NOMINAL_HZ, "delay_spread_s": None}
    if slope_of(q) is not None and q.shadowing_distance_m == 0.0:  # a power law looks the same at any scale
        idle |= {"distance_m": NOMINAL_M}
    return replace(q, **idle)


def law_of(
    q: Quantities, drops: int | None = None, advance: Advance | None = None, draw: Draw | None = None
) -> Combining | None:
    """The mean over combiners of a link; None where a noise variance stands for it.

    Args:
        drops: so many are drawn, for links that tables cover too; default: tables, and a few drops beyond them.
        draw: who draws; default: nobody, and what the tables do not cover is refused.
    """
    if drops is not None and not 1 <= drops <= MOST_DROPS:
        raise InputError(f"--drops must be a whole number from 1 to {MOST_DROPS:,}; got {drops:,}")
    if q.noise_var is not None:
        if drops is not None:
            raise InputError("--drops draws channels, and --noise-var stands for them; leave out one of the two")
        return None
    why = uncovered(q)
    if drops is None and why is None:
        return combining(q.layout, q.active, q.antennas or 0)
    if draw is None:
        raise InputError(
            f"the tables of combiners do not go with {why or '--drops'}, and channels are drawn by `airfl plan` and "
            "`airfl.plan`; use one of them, or hand in `airfl.analysis.drawn_law.draw_law` as `draw`"
        )
    return _drawn(_bare(q), drops, advance, draw)


@lru_cache(maxsize=32)
def _drawn(q: Quantities, drops: int | None, advance: Advance | None, draw: Draw) -> Drawn:
    return draw(q, drops, advance)
