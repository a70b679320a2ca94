"""Where drawing K of n earns no credit: seen without loading the dp-accounting library, which takes half a second.

The library bounds e^{(α−1)D} of a round without replacement, rate q, μ = S/√v, by (Wang et al. 2019, Thm 27)

    1 + C(α,2) q² min{4(e^{μ²} − 1), 2e^{μ²}} + Σ_{j=3}^α C(α,j) q^j min{4√(B_{j−} B_{j+}), 2e^{μ²j(j−1)/2}}

with the moments B_ℓ = E|R − 1|^ℓ of the likelihood ratio R at the even numbers j−, j+ next to j. By Minkowski's
inequality B_ℓ^{1/ℓ} ≥ ‖R‖_ℓ − 1 = e^{μ²(ℓ−1)/2} − 1, which makes a sum that is never above the library's. Where even
the ε of that sum is above exact accounting without credit, so is the library's, and the lesser of both is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from airfl.privacy.dp_event import Group

#: The share that rounding may take of an ε; far more than it does.
ROUNDING = 1e-6
#: From here on the library leaves the moments out.
MOST_MOMENTS = 256


def least_epsilon(groups: Sequence[Group], delta: float, orders: Sequence[float]) -> float:
    """What the library's ε by Rényi divergences is at least; 0 where a law has no such bound.

    Args:
        groups: noise relative to the sensitivity of replacing a device.
    """
    if any(group.law not in ("all", "without-replacement") for group in groups):
        return 0.0
    least = math.inf
    for order in orders:
        divergence = math.fsum(group.count * _least_log_moment(group, order) for group in groups) / (order - 1.0)
        if delta**2 + math.expm1(-divergence) > 0.0:
            return 0.0
        epsilon = divergence + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1.0)
        least = min(least, epsilon)
    return max(0.0, least) * (1.0 - ROUNDING)


def _least_log_moment(group: Group, order: float) -> float:
    """(α−1)·D_α of one round by that sum; between whole orders the library draws a line."""
    half = 0.5 / group.multiplier / group.multiplier  # μ²/2
    if group.law == "all":
        return order * (order - 1.0) * half
    below, rate = math.floor(order), group.num_active / group.num_devices
    share = order - below
    found = (1.0 - share) * _whole(rate, half, below)
    return found + share * _whole(rate, half, below + 1) if share else found


def _whole(rate: float, half: float, order: int) -> float:
    if order == 1:
        return 0.0
    j = np.arange(3, order + 1, dtype=np.float64)
    logs = half * j * (j - 1.0) + math.log(2.0)
    if order <= MOST_MOMENTS:
        low, high = 2.0 * np.floor(j / 2.0), 2.0 * np.ceil(j / 2.0)
        logs = np.minimum(logs, math.log(4.0) + 0.5 * (_log_moment(half, low) + _log_moment(half, high)))
    second = min(math.log(4.0) + float(_log_expm1(np.array(2.0 * half))), math.log(2.0) + 2.0 * half)
    terms = np.append(logs, second) + _log_binomials(order) + np.append(j, 2.0) * math.log(rate)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(terms)))


def _log_moment(half: float, power: np.ndarray) -> np.ndarray:
    """log B_ℓ, at least."""
    least: np.ndarray = power * _log_expm1(half * (power - 1.0))
    return least


def _log_expm1(x: np.ndarray) -> np.ndarray:
    """log(e^x − 1) for x > 0."""
    found: np.ndarray = x + np.log(-np.expm1(-x))
    return found


@lru_cache(maxsize=64)
def _log_binomials(order: int) -> np.ndarray:
    """log C(α,j) for j = 3..α, and then j = 2."""
    whole = math.lgamma(order + 1.0)
    return np.array([whole - math.lgamma(j + 1.0) - math.lgamma(order - j + 1.0) for j in (*range(3, order + 1), 2)])
