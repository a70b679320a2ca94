"""Roots of one unknown by Brent's method: the same bits as SciPy's, without the tenth of a second its import takes."""

from __future__ import annotations

import math
from collections.abc import Callable

#: After so many steps a root is given up, as in SciPy.
MOST_STEPS = 100


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    xtol: float = 2e-12,
    rtol: float = 8.881784197001252e-16,
) -> float:
    """x between ``low`` and ``high``, where the signs differ, with function(x) = 0 (Brent 1973).

    To xtol + rtol·|x|. Interpolates where that shortens the bracket fast enough, and halves it elsewhere.
    """
    before, best = low, high
    f_before, f_best = _valued(function, before), _valued(function, best)
    if f_before == 0.0:
        return before
    if f_best == 0.0:
        return best
    if (f_before < 0.0) == (f_best < 0.0):
        raise ValueError(f"no root is known to lie between {low} and {high}: the signs are equal")
    other, f_other, last, step = before, f_before, best - before, best - before  # the root lies between best and other
    for _ in range(MOST_STEPS):
        if (f_before < 0.0) != (f_best < 0.0):
            other, f_other = before, f_before
            last = step = best - before
        if abs(f_other) < abs(f_best):
            before, best, other = best, other, best
            f_before, f_best, f_other = f_best, f_other, f_best
        reach, half = (xtol + rtol * abs(best)) / 2.0, (other - best) / 2.0
        if f_best == 0.0 or abs(half) < reach:
            return best
        trial = math.inf
        if abs(last) > reach and abs(f_best) < abs(f_before):
            trial = _interpolated((before, f_before), (best, f_best), (other, f_other))
        fast = 2.0 * abs(trial) < min(abs(last), 3.0 * abs(half) - reach)
        last, step = (step, trial) if fast else (half, half)
        before, f_before = best, f_best
        best += step if abs(step) > reach else math.copysign(reach, half)
        f_best = _valued(function, best)
        if f_best == 0.0:
            return best
    raise RuntimeError(f"no root found between {low} and {high} in {MOST_STEPS} steps")


def _valued(function: Callable[[float], float], x: float) -> float:
    value = float(function(x))
    if math.isnan(value):
        raise ValueError(f"not a number at {x}, so no root can be found")
    return value


def _interpolated(before: tuple[float, float], best: tuple[float, float], other: tuple[float, float]) -> float:
    """The step to where a line through two points, or a parabola in f through three, has its root.

    Infinite where the points are too close to tell.
    """
    (x, f), (x_best, f_best), (x_other, f_other) = before, best, other
    try:
        if x == x_other:
            return -f_best * (x_best - x) / (f_best - f)
        slope, slope_other = (f - f_best) / (x - x_best), (f_other - f_best) / (x_other - x_best)
        return -f_best * (f_other * slope_other - f * slope) / (slope_other * slope * (f_other - f))
    except ZeroDivisionError:
        return math.inf
