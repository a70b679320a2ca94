"""From a promise to noise: what the transceiver design may spend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from airfl.privacy.events import RoundEvent, check_delta, require
from airfl.privacy.ledger import Ledger
from airfl.privacy.roots import root

#: What helps where numbers are too large or too small.
RESCALE = "measure clip norm and noise in other units"


@dataclass(frozen=True)
class Budget:
    """What combiner norms q_t, with v_t = q_t² σ²/2, keep a promise of (ε, δ) over T rounds.

    Attributes:
        rounds: T.
        floor: q_t ≥ floor in every round keeps it; the smallest such number.
        total: A, the largest Σ 1/q_t² that keeps it; None for an accountant that depends on more than this sum.
    """

    rounds: int
    floor: float
    total: float | None = None

    @staticmethod
    def of_total(total: float, rounds: int) -> Budget:
        """The budget of an accountant that has an A."""
        require(1e-300 < total < 1e300, f"a budget of A = {total:g} leaves the range of floating point; {RESCALE}")
        # A hair above √(T/A), so that T equal rounds never add up to more.
        return Budget(rounds, math.sqrt(rounds / total) * (1.0 + 4 * rounds * 2.3e-16), total)


def check_budget(epsilon: float, delta: float, template: RoundEvent) -> float:
    """Refuse a promise that makes no sense; return σ²."""
    check_delta(delta)
    require(epsilon > 0.0, f"`epsilon` must be positive; got {epsilon}")
    require(template.noise_power is not None, "a budget needs the noise power of the radio link")
    assert template.noise_power is not None
    return template.noise_power


def square(sensitivity: float) -> float:
    """S²; refused where it would lose digits, for a budget that is too large would follow."""
    require(1e-140 < sensitivity < 1e140, f"a sensitivity of {sensitivity:g} has no square to plan with; {RESCALE}")
    squared: float = sensitivity**2
    return squared


def at_norm(template: RoundEvent, norm: float) -> RoundEvent:
    """The template's round with combiner norm q; its ``base_station``, if any, is taken as that at q = 1."""
    assert template.noise_power is not None
    seen = None if template.base_station is None else template.base_station / norm
    noise_var = norm * norm * template.noise_power / 2.0
    return replace(template, round=0, noise_var=noise_var, base_station=seen)


def common_floor(
    spent: Callable[[Ledger], float], epsilon: float, template: RoundEvent, rounds: int, tolerance: float = 1e-14
) -> float:
    """The smallest q at which T rounds like the template spend at most ε, for accountants without an A."""

    def epsilon_at(norm: float) -> float:
        return spent(Ledger.repeated(at_norm(template, norm), rounds))

    assert template.noise_power is not None
    unit = math.sqrt(2.0 / template.noise_power) * template.sensitivity("replace")
    return smallest(epsilon_at, epsilon, unit, tolerance)


def smallest(spent: Callable[[float], float], epsilon: float, start: float, tolerance: float = 1e-14) -> float:
    """The smallest x with spent(x) ≤ ε, for a function that does not grow with x; never one that spends more.

    Args:
        start: a first guess, of any quality.
        tolerance: how far above the smallest, relatively, is close enough.
    """
    low = high = start
    for _ in range(400):
        if spent(high) <= epsilon:
            break
        low, high = high, high * 2.0
    else:
        require(False, "no amount of noise keeps this promise; raise `privacy.epsilon` or `privacy.delta`")
    while low == high or spent(low) <= epsilon:
        high, low = low, low / 2.0
        if low < start * 1e-60:
            return high

    def excess(log_x: float) -> float:
        value = spent(math.exp(log_x))
        return math.log(value / epsilon) if 0.0 < value < math.inf else math.copysign(50.0, value - epsilon)

    ends = math.log(low), math.log(high)
    if excess(ends[0]) <= 0.0:  # the root is at an end, and exp(log x) is on its other side
        found = low
    elif excess(ends[1]) >= 0.0:
        found = high
    else:
        found = math.exp(root(excess, *ends, xtol=tolerance, rtol=1e-14))
    step = 0.1 * tolerance
    while spent(found) > epsilon:
        found, step = found * (1.0 + step), step * 2.0
    return found
