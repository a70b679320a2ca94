"""Checks with known null distributions: p-values that are exact or too large, never too small.

A family of looks at the same data counts as one check: its p-value is that of its smallest look times their number. All
checks of an audit share one false-alarm rate, so that the whole audit raises a false alarm with `FALSE_ALARMS` at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

#: The chance that an audit of code without a defect fails any of its checks, at most.
FALSE_ALARMS = 1e-3


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what was looked at.
        found: what a failure would mean, in a few words, with the number that speaks most for it.
        p_value: the chance of data as odd as these if there is no defect, at most; 0 and 1 where chance plays no part.
        looks: how many numbers were compared, all paid for in the p-value.
        threshold: it fails below this.
    """

    name: str
    found: str
    p_value: float
    looks: int = 1
    threshold: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return self.p_value >= self.threshold


def certain(name: str, found: str, holds: bool, looks: int = 1) -> Check:
    """A check in which chance plays no part."""
    return Check(name, found, 1.0 if holds else 0.0, looks)


def judged(checks: Sequence[Check], false_alarms: float = FALSE_ALARMS) -> tuple[Check, ...]:
    """The checks with their share of the false alarms (Bonferroni)."""
    return tuple(replace(check, threshold=false_alarms / len(checks)) for check in checks)


def family(p_values: np.ndarray | Sequence[float], looks: int | None = None) -> float:
    """The p-value of several looks: the smallest times their number, whatever their dependence.

    Args:
        looks: how many there were, where only the extreme ones are given.
    """
    values = np.asarray(p_values, dtype=np.float64)
    return min(1.0, float(values.min()) * (values.size if looks is None else looks))


def chi_square(sums: np.ndarray | float, freedom: np.ndarray | float) -> np.ndarray:
    """Two-sided p of sums of `freedom` squared standard normals."""
    return 2.0 * np.minimum(special.chdtr(freedom, sums), special.chdtrc(freedom, sums))


def chi_square_extremes(sums: np.ndarray, freedom: float) -> float:
    """The p-value of many such sums with the same degrees of freedom: only the smallest and the largest count."""
    return family(chi_square(np.array([sums.min(), sums.max()]), freedom), sums.size)


def normal(scores: np.ndarray | float) -> np.ndarray:
    """Two-sided p of standard normals."""
    return 2.0 * special.ndtr(-np.abs(np.asarray(scores, dtype=np.float64)))


def binomial(counts: np.ndarray | int, trials: np.ndarray | int, rate: np.ndarray | float) -> np.ndarray:
    """Two-sided p of binomial counts."""
    k, n = np.broadcast_arrays(np.asarray(counts, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    below = np.where(k >= n, 1.0, special.betainc(np.maximum(n - k, 1.0), k + 1.0, 1.0 - np.asarray(rate)))
    above = np.where(k <= 0, 1.0, special.betainc(np.maximum(k, 1.0), n - k + 1.0, rate))
    return np.minimum(1.0, 2.0 * np.minimum(below, above))


def quadratic(values: np.ndarray, spread: np.ndarray | float) -> np.ndarray:
    """Two-sided p of centred quadratic forms zᵀAz − tr A of standard normals; eigenvalues |λ| ≤ 1, Σλ² = `spread`.

    log E e^{s(zᵀAz − tr A)} = Σ −½log(1 − 2sλ) − sλ ≤ s²Σλ²/(1 − 2s), which is sub-gamma with variance factor v = 2Σλ²
    and scale 2: P[|·| ≥ x] ≤ 2 exp(−(v/4)(1 + u − √(1 + 2u))), u = 2x/v. It holds for any number of coordinates.
    """
    variance = 2.0 * np.asarray(spread, dtype=np.float64)
    u = 2.0 * np.abs(values) / variance
    # 1 + u − √(1 + 2u) = u²/(1 + u + √(1 + 2u)), without cancellation.
    exponent = 0.25 * variance * u**2 / (1.0 + u + np.sqrt(1.0 + 2.0 * u))
    return np.asarray(np.minimum(1.0, 2.0 * np.exp(-exponent)))


def kolmogorov(values: np.ndarray) -> float:
    """p of independent uniforms on [0, 1] by the largest distance D to their law: 2 exp(−2nD²) (Massart)."""
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(float(np.max(steps[1:] - ordered)), float(np.max(ordered - steps[:-1])))
    return min(1.0, 2.0 * math.exp(-2.0 * len(ordered) * distance**2))


def largest_normal(largest: float, number: int) -> float:
    """Two-sided p of the largest |z| of so many independent standard normals: P[max ≤ x] = (1 − 2Φ(−x))ⁿ."""
    log_below = number * math.log1p(-min(1.0 - 1e-16, 2.0 * float(special.ndtr(-largest))))
    return min(1.0, 2.0 * min(math.exp(log_below), -math.expm1(log_below)))
