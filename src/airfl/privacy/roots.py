"""Roots of one unknown, by SciPy: most of what `import airfl.privacy` would cost, so it is imported at first use."""

from __future__ import annotations

from collections.abc import Callable


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    xtol: float = 2e-12,
    rtol: float = 8.881784197001252e-16,
) -> float:
    """x between ``low`` and ``high``, where the signs differ, with function(x) = 0 (Brent 1973)."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=xtol, rtol=rtol))
