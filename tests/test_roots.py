"""Brent's method: the roots of SciPy, to the bit, from the same function values."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from airfl.privacy.roots import root

CURVES = {
    "cubic": lambda x, c: x**3 - c,
    "exponential": lambda x, c: math.exp(x) - c,
    "steep": lambda x, c: math.tanh(5.0 * (x - c)),
    "flat": lambda x, c: (x - c) ** 9,
    "a step": lambda x, c: -1.0 if x < c else 1.0,
    "upright": lambda x, c: math.copysign(abs(x - c) ** 0.2, x - c),
}


class Counted:
    def __init__(self, curve, c):
        self.curve, self.c, self.asked = CURVES[curve], c, []

    def __call__(self, x):
        self.asked.append(x)
        return self.curve(x, self.c)


@given(
    st.sampled_from(sorted(CURVES)),
    st.floats(0.01, 9.9),
    st.floats(-20.0, 0.0),
    st.floats(10.0, 30.0),
    st.booleans(),
    st.sampled_from([(2e-12, 8.881784197001252e-16), (1e-300, 1e-15), (1e-7, 1e-14)]),
)
def test_the_roots_of_scipy(curve, c, low, high, turned, tolerance):
    ends = (high, low) if turned else (low, high)
    theirs, ours = Counted(curve, c), Counted(curve, c)
    assume((CURVES[curve](low, c) < 0.0) != (CURVES[curve](high, c) < 0.0))
    try:
        wanted = brentq(theirs, *ends, xtol=tolerance[0], rtol=tolerance[1])
    except RuntimeError:
        with pytest.raises(RuntimeError, match="100 steps"):
            root(ours, *ends, *tolerance)
        return
    assert root(ours, *ends, *tolerance) == pytest.approx(wanted, rel=2 * tolerance[1], abs=2 * tolerance[0])
    assert len(ours.asked) == len(theirs.asked)


def test_where_there_is_no_root():
    with pytest.raises(ValueError, match="signs are equal"):
        root(lambda x: x * x + 1.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="not a number"):
        root(lambda x: math.nan, -1.0, 1.0)
    assert root(lambda x: x, 0.0, 1.0) == root(lambda x: x, -1.0, 0.0) == 0.0
