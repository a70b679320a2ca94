"""Exact Gaussian accounting against 50-digit arithmetic, published values and another library."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airfl.privacy import PrivacyError, gaussian_delta, gaussian_epsilon, gaussian_mu
from airfl.privacy.gaussian import gaussian_log_delta


def exact_log_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)

        def upper_tail(x):
            return mpmath.erfc(x / mpmath.sqrt(2)) / 2

        # Enough digits that the subtraction keeps 50 of them whatever it cancels.
        with mpmath.workdps(60 + int(mpmath.mpf(epsilon) / 2) if epsilon < 2000 else 200):
            delta = upper_tail(e / m - m / 2) - mpmath.exp(e) * upper_tail(e / m + m / 2)
            return mpmath.log(delta) if delta > 0 else mpmath.mpf("-inf")


MUS = [1e-8, 1e-5, 1e-3, 0.02, 0.14, 0.499, 0.501, 1.0, 2.9, 9.0, 10.1, 40.0, 300.0, 1000.0]


@pytest.mark.parametrize("mu", MUS)
def test_delta_against_fifty_digits(mu):
    """From ε = 1e-3 to 1e6, wherever δ is at least 1e-300."""
    checked = 0
    grid = set(np.geomspace(1e-3, 1e6, 19))
    grid |= {mu * mu / 2 + a * mu for a in (-4.9, -3.0, -0.5, 0.0, 0.7, 3.0, 9.0, 20.0, 36.0)}
    for epsilon in sorted(e for e in grid if e > 0):
        found = gaussian_log_delta(epsilon, mu)
        assert found <= 0.0
        if found < math.log(1e-300):
            continue
        exact = float(exact_log_delta(epsilon, mu))
        assert found == pytest.approx(exact, abs=1e-9), (epsilon, mu)
        checked += 1
    assert checked >= 4


@given(st.floats(-8, 3), st.floats(-300, math.log10(0.5)))
def test_round_trip(log_mu, log_delta):
    mu, delta = 10.0**log_mu, 10.0**log_delta
    epsilon = gaussian_epsilon(delta, mu)
    assume(epsilon > 0)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-9)
    assert gaussian_epsilon(gaussian_delta(epsilon, mu), mu) == pytest.approx(epsilon, rel=1e-9)


@given(st.floats(1e-3, 1e5), st.floats(1e-12, 0.4))
def test_spending_mu_costs_epsilon_and_never_more(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    spent = gaussian_epsilon(delta, mu)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(0.142211, 0.5), (0.268051, 1), (0.501552, 2), (0.924931, 4), (1.666031, 8), (2.905478, 16)],
)
def test_reference_values(mu, epsilon):
    assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, abs=5.1e-7)
    assert gaussian_epsilon(1e-5, mu) == pytest.approx(epsilon, rel=2e-5)


def test_against_dp_accounting():
    """Their analytic Gaussian calibration: the smallest noise for a given ε."""
    from dp_accounting import mechanism_calibration  # noqa: F401 - proves which library this is
    from dp_accounting.pld import privacy_loss_mechanism as plm

    for epsilon in (0.5, 1.0, 4.0, 20.0):
        for sigma in (0.3, 1.0, 5.0):
            theirs = plm.GaussianPrivacyLoss(sigma).get_delta_for_epsilon(epsilon)
            assert gaussian_delta(epsilon, 1 / sigma) == pytest.approx(theirs, rel=1e-6)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 30), st.floats(1.0001, 3))
def test_monotone(epsilon, mu, factor):
    assert gaussian_delta(epsilon * factor, mu) <= gaussian_delta(epsilon, mu)
    assert gaussian_delta(epsilon, mu * factor) >= gaussian_delta(epsilon, mu)
    assert gaussian_epsilon(1e-6, mu * factor) >= gaussian_epsilon(1e-6, mu)


def test_ends_of_the_range():
    assert gaussian_epsilon(1e-5, 0.0) == 0.0
    assert gaussian_epsilon(1e-5, math.inf) == math.inf
    assert gaussian_epsilon(0.5, 1e-8) == 0.0
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(5.0, math.inf) == 1.0
    for bad in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(PrivacyError, match="delta"):
            gaussian_epsilon(bad, 1.0)
    with pytest.raises(PrivacyError, match="epsilon"):
        gaussian_delta(-1.0, 1.0)
    with pytest.raises(PrivacyError, match="epsilon"):
        gaussian_mu(0.0, 1e-5)
