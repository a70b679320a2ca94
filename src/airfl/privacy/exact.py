"""Squares and sums without loss: never too small, however extreme the numbers.

Squares leave the range of floating point long before the numbers themselves do: 1.5e-162 squared is 0, and an ε of 0
would follow where the noise is as small. So mantissas are squared and divided, and exponents are added. Where nothing
leaves the range the bits are those of the plain formula. What is too small to be told is rounded up.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

#: The smallest number that has all its digits.
TINY = sys.float_info.min
#: Between these, squares of numbers and quotients of squares keep all their digits.
LEAST, MOST = 1e-140, 1e140
_UNIT_BITS = 1074
_UNIT = 1 << _UNIT_BITS  # every float is a whole number of these parts


@dataclass(frozen=True)
class Exact:
    """A sum of floats without rounding; ``value`` rounds it once, as ``math.fsum`` does.

    Attributes:
        parts: the sum of the finite ones, in parts of 2⁻¹⁰⁷⁴.
        infinite: whether one of them was infinite.
    """

    parts: int = 0
    infinite: bool = False

    def plus(self, value: float, count: int = 1) -> Exact:
        """The sum with ``value`` added ``count`` times."""
        if value == math.inf:
            return Exact(self.parts, True)
        over, under = value.as_integer_ratio()
        return Exact(self.parts + count * (over << (_UNIT_BITS + 1 - under.bit_length())), self.infinite)

    @property
    def value(self) -> float:
        """The nearest float; infinite where there is none."""
        if self.infinite:
            return math.inf
        try:
            return self.parts / _UNIT
        except OverflowError:
            return math.inf


def square_over(factors: tuple[float, ...], divisor: float, times: float = 1.0) -> float:
    """times·(Π factors)²/divisor for numbers that are not negative; infinite over 0, and 0 only if a factor is."""
    if 0.0 in factors:
        return 0.0
    if divisor == 0.0 or math.inf in factors:
        return math.inf
    base = math.prod(factors)
    if LEAST < base < MOST and LEAST < times < MOST:
        over = times * (base * base)
        value = over / divisor
        if over > TINY and TINY < value < math.inf:
            return value
    mantissa, exponent = 1.0, 0
    for factor in factors:
        part, power = math.frexp(factor)
        mantissa, exponent = mantissa * part, exponent + power
    (front, front_power), (under, under_power) = math.frexp(times), math.frexp(divisor)
    try:
        value = math.ldexp(front * (mantissa * mantissa) / under, 2 * exponent + front_power - under_power)
    except OverflowError:
        return math.inf
    return max(value, TINY)
