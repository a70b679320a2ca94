"""Rényi divergences of sampled Gaussian rounds in closed form, right to the last digits however small they are.

The dp-accounting library has tighter or more general ones, and they are used where they are sound. For little noise per
rate, or noise many orders above the sensitivity, its sums cancel: they then come out too small, negative or not at all.
With the rate q, μ = S/√v and a whole order α, e^{(α−1)D} − 1 is

    Σ_{k=2}^α C(α,k) (1−q)^{α−k} q^k (e^{μ²k(k−1)/2} − 1)    Poisson, zero-out: exact (Mironov et al. 2019);
    q (e^{μ²α(α−1)/2} − 1)                                   at most, for every law: joint convexity;
    C(α,2) q² min{4(e^{μ²} − 1), 2e^{μ²}} + 2 Σ_{j=3}^α C(α,j) q^j e^{μ²j(j−1)/2}
                                                             at most, where every two of "with one update", "with the
                                                             other", "without" are S apart (Wang et al. 2019, Thm 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from airfl.privacy.events import zeroes_out

if TYPE_CHECKING:
    from airfl.privacy.dp_event import Group
    from airfl.privacy.events import Neighbours

#: Whole orders; large ones help for tiny ε.
WHOLE_ORDERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256, 512, 1024)


def divergences(groups: Sequence[Group], neighbours: Neighbours, orders: Sequence[int] = WHOLE_ORDERS) -> np.ndarray:
    """D_α of all rounds together, [orders]."""
    total = np.zeros(len(orders))
    for group in groups:
        total += group.count * np.array([_one_round(group, neighbours, order) for order in orders])
    return total


def epsilon_of(groups: Sequence[Group], neighbours: Neighbours, delta: float) -> float:
    """ε = min_α D_α + log(1 − 1/α) − log(αδ)/(α − 1) (Canonne, Kamath & Steinke 2020, Prop. 12)."""
    alpha = np.array(WHOLE_ORDERS, dtype=np.float64)
    bounds = divergences(groups, neighbours) + np.log1p(-1.0 / alpha) - (np.log(alpha) + math.log(delta)) / (alpha - 1)
    return max(0.0, float(bounds.min()))


def delta_of(groups: Sequence[Group], neighbours: Neighbours, epsilon: float) -> float:
    """δ at this ε, by the same inequality."""
    alpha = np.array(WHOLE_ORDERS, dtype=np.float64)
    logs = (alpha - 1) * (divergences(groups, neighbours) - epsilon + np.log1p(-1.0 / alpha)) - np.log(alpha)
    return math.exp(min(0.0, float(logs.min())))


def _one_round(group: Group, neighbours: Neighbours, order: int) -> float:
    """D_α of one round; never above that of the round without sampling."""
    half = 0.5 / group.multiplier / group.multiplier  # μ²/2
    plain = order * half
    if group.law == "all" or math.isinf(half):
        return plain
    rate = group.num_active / group.num_devices
    if group.law == "poisson" and zeroes_out(neighbours):
        logs = [_poisson(rate, half, order)]
    else:
        # Without replacement a round without the device has another in its place: twice as far for zero-out.
        apart = 4.0 * half if group.law == "without-replacement" and zeroes_out(neighbours) else half
        logs = [math.log(rate) + float(_log_expm1(half * order * (order - 1))), _ternary(rate, apart, order)]
    # log(1 + e^x), a hair up: logarithms of binomials of order 1,024 err by 1e-12.
    sampled = min(float(np.logaddexp(0.0, log + 1e-11)) for log in logs) / (order - 1)
    return min(plain, sampled)


def _poisson(rate: float, half: float, order: int) -> float:
    k = np.arange(2, order + 1, dtype=np.float64)
    terms = _log_binomials(order, k) + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return _log_sum(terms + _log_expm1(half * k * (k - 1)))


def _ternary(rate: float, half: float, order: int) -> float:
    j = np.arange(2, order + 1, dtype=np.float64)
    exponents = half * j * (j - 1) + math.log(2.0)
    exponents[0] = min(exponents[0], math.log(4.0) + float(_log_expm1(2.0 * half)))
    return _log_sum(_log_binomials(order, j) + j * math.log(rate) + exponents)


def _log_binomials(order: int, k: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    found: np.ndarray = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    return found


def _log_sum(logs: np.ndarray) -> float:
    from scipy.special import logsumexp

    return float(logsumexp(logs))


def _log_expm1(x: float | np.ndarray) -> np.ndarray:
    """log(e^x − 1) for x > 0; x itself where e^x is all there is."""
    small = np.minimum(x, 700.0)
    with np.errstate(divide="ignore"):
        return np.where(np.asarray(x) > 700.0, x, np.log(np.expm1(small)))
