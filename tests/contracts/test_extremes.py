"""No ε below the truth, for any numbers that a ledger can hold: subnormal, tiny, huge."""

from __future__ import annotations

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from airfl.privacy import (
    ACCOUNTANTS,
    Domain,
    Ledger,
    LedgerAccountant,
    PrivacyError,
    RoundEvent,
    Sampling,
    gaussian_epsilon,
    gaussian_mu,
    make_accountant,
)
from airfl.privacy.ratios import Exact

LARGEST = 10**150
#: Numbers of every size that an event takes, down to the smallest that there is.
sizes = st.builds(math.ldexp, st.floats(0.5, 1.0), st.integers(-1073, 497)).filter(lambda x: 0 < x <= LARGEST)
deltas = st.integers(-300, -1).map(lambda exponent: 10.0**exponent)
relations = st.sampled_from(["zero-out", "replace"])


def true_delta(epsilon, mu):
    """δ(ε) = Φ(−a) − e^ε Φ(−b), e^ε = φ(a)/φ(b), with as many digits as the difference may cost."""
    with mp.workdps(800):
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if not -50 < a < 45:
        return mpf(a < 0)  # less than 1e-400 away
    with mp.workdps(60 if mu > 0.1 else 420):
        density = mpmath.exp(-a * a / 2) / mpmath.sqrt(2 * mpmath.pi)
        mills = (1 - 1 / b**2 + 3 / b**4 - 15 / b**6) / b if b > 1e6 else mpmath.erfc(b / mpmath.sqrt(2)) / 2
        mills = mills if b > 1e6 else mills * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(b * b / 2)
        return mpmath.erfc(a / mpmath.sqrt(2)) / 2 - density * mills


def covers(epsilon, delta, mu):
    """Whether ε, a billionth up, is enough for a μ-Gaussian mechanism."""
    if math.isinf(epsilon) or mu == 0:
        return True
    if mu < 1e-330:
        return True  # δ(0) = 0.4 μ lies below every δ that is a float
    with mp.workdps(800):
        return true_delta(mpf(epsilon) * (1 + mpf("1e-9")), mu) <= delta * (1 + mpf("1e-12"))


def exact_mu2(events, neighbours):
    scale = 1 if neighbours == "zero-out" else 2
    with mp.workdps(60):
        return sum(
            ((scale * mpf(e.clip_norm) * mpf(e.gain_bound)) ** 2 / mpf(e.noise_var) for e in events), start=mpf(0)
        )


@st.composite
def ledgers(draw, domain=False):
    law = Sampling("all", 3, 3)
    place = None
    if domain:
        place = Domain(draw(sizes), draw(sizes), draw(sizes), draw(st.integers(1, 50)), 1.0)
    clip, gain, update = draw(sizes), draw(sizes), draw(sizes) if domain else 1.0
    variances = draw(st.lists(sizes, min_size=1, max_size=3))
    power, heard = draw(sizes), draw(sizes)
    rows = [
        RoundEvent(t, clip, gain, v, "channel", power, law, update, domain=place, base_station=heard)
        for t, v in enumerate(variances)
    ]
    return Ledger(tuple(rows))


def test_the_smallest_numbers_of_all(call):
    """μ = 0.67, where squares underflow and ε came out as 0."""
    code, out, _ = call("epsilon", "--clip-norm", "1.5e-162", "--noise-var", "5e-324", "--rounds", "1", "--json")
    answers = json.loads(out)["accountants"]
    assert code == 0
    for name in ("gaussian", "sampled", "convergent", "liu2020"):
        assert answers[name]["epsilon"] >= 2.7, name
    # The other way round at the antennas: tiny and huge, with a product that is neither.
    heard = RoundEvent(0, 1.5e-150, 1.0, 1.0, "channel", 1.0, Sampling("all", 1, 1), 1.0, base_station=4.5e149)
    for seen in ({}, {"base-station": np.array([4.5e149])}):
        curious = make_accountant("gaussian", Ledger().append(heard, seen), "zero-out", "base-station")
        assert curious.mu == pytest.approx(0.675, rel=1e-9)
    faint = RoundEvent(0, 1e-160, 1.0, 1.0, "channel", 1.0, Sampling("all", 1, 1), 1.0, base_station=1e-160)
    for seen in ({}, {"base-station": np.array([1e-160])}):  # its square is below the smallest number
        assert make_accountant("gaussian", Ledger().append(faint, seen), "replace", "base-station").mu >= 2e-320


@settings(max_examples=120)
@given(book=ledgers(), delta=deltas, neighbours=relations)
@example(
    book=Ledger((RoundEvent(0, 1e-200, 1e-120, 5e-324, "channel", 1.0, Sampling("all", 3, 3), 1.0, base_station=1.0),)),
    delta=1e-300,
    neighbours="replace",
)
def test_gaussian_rounds_of_every_size(book, delta, neighbours):
    with mp.workdps(60):
        mu = mpmath.sqrt(exact_mu2(book.events, neighbours))
    for name in ("gaussian", "convergent", "liu2020", "sampled", "park2023"):
        assert covers(make_accountant(name, book, neighbours).epsilon(delta), delta, mu), name
    loudest = [RoundEvent(**{**e.__dict__, "gain_bound": e.base_station, "noise_var": 1.0}) for e in book.events]
    with mp.workdps(60):
        at_antennas = mpmath.sqrt(exact_mu2(loudest, neighbours))
    for name in ("gaussian", "liu2024"):
        spent = make_accountant(name, book, neighbours, "base-station").epsilon(delta)
        assert covers(spent, delta, at_antennas), name


@settings(max_examples=100)
@given(book=ledgers(domain=True), delta=deltas, neighbours=relations)
def test_published_formulas_of_every_size(book, delta, neighbours):
    """By the formulas themselves: they are no proofs, but they are not cut short either."""
    with mp.workdps(400):
        terms = [exact_mu2([e], neighbours) for e in book.events]
        koda = mpmath.sqrt(2 * mpmath.log(mpf(1.25) / delta) * max(terms))
        assert make_accountant("koda2020", book, neighbours).epsilon(delta) >= koda * (1 - mpf("1e-9"))
        last, place = book.events[-1], book.events[-1].domain
        total = sum(exact_mu2([e], "zero-out") for e in book.events) / 2
        growth = (1 + mpf(place.learning_rate) * mpf(place.smoothness)) ** place.local_steps
        shift = mpf(last.clip_norm) * mpf(last.gain_bound) + growth * mpf(place.diameter) / (
            2 * mpf(last.update_factor)
        )
        a = min(total, shift**2 / (2 * mpf(last.noise_var)))
        published = 2 * a + mpmath.sqrt(4 * a * a - 8 * a * mpmath.log(delta))
        assert make_accountant("paper", book, neighbours).epsilon(delta) >= published * (1 - mpf("1e-9"))


@settings(max_examples=150)
@given(
    clip=st.floats(0.1, 10),
    variances=st.lists(st.floats(0.1, 100), min_size=1, max_size=4),
    diameter=st.floats(1e-3, 10),
    units=st.integers(-1070, 480),
    size=st.integers(-537, 248),
)
@example(clip=1.0, variances=[1.0, 2.0], diameter=0.01, units=-1025, size=-530)
@example(clip=1.3, variances=[1.0, 2.0], diameter=0.01, units=-1001, size=-505)
@example(clip=1.0, variances=[1.0, 2.0], diameter=0.01, units=-480, size=240)
def test_a_hidden_state_has_no_units(clip, variances, diameter, units, size):
    """Models in other units (D, η, 1/L and the factor), sums in other units (c, √v and the factor): never a smaller ε.

    Powers of two, so that nothing is rounded but what leaves the range.
    """

    def mu(unit, size):
        domain = Domain(
            math.ldexp(diameter, unit), math.ldexp(1.0, size - unit), math.ldexp(0.125, unit - size), 2, 1.0
        )
        rows = [
            RoundEvent(
                t, math.ldexp(clip, size), 1.0, math.ldexp(v, 2 * size), "channel", 1.0, Sampling("all", 3, 3),
                math.ldexp(0.125, unit - size), domain,
            )
            for t, v in enumerate(variances)
        ]  # fmt: skip
        return make_accountant("convergent", Ledger(tuple(rows)), "zero-out").mu

    try:
        other = mu(units, size)
    except (PrivacyError, OverflowError):
        return  # outside of what a ledger, or a float, takes
    # A variance that is subnormal has lost digits before it was booked.
    lost = max(
        1e-9, *(math.ldexp(1.0, -1074) / math.ldexp(v, 2 * size) if 2 * size > -1074 else 1.0 for v in variances)
    )
    assert other >= mu(0, 0) * (1 - lost)


SAMPLED = [
    ("poisson", "zero-out"),
    ("poisson", "replace"),
    ("without-replacement", "replace"),
    ("without-replacement", "zero-out"),
]


@pytest.mark.parametrize(("law", "neighbours"), SAMPLED)
@settings(max_examples=25)
@given(
    log_rate=st.floats(-12, -0.05), log_mu=st.floats(-20, 4), log_delta=st.integers(-40, -1), rounds=st.integers(1, 40)
)
@example(log_rate=-0.30103, log_mu=-8.5, log_delta=-12, rounds=10)
@example(log_rate=-6.0, log_mu=-5.0, log_delta=-20, rounds=1)
@example(log_rate=-6.0, log_mu=-4.0, log_delta=-13, rounds=3)
def test_sampled_rounds_of_every_size(law, neighbours, log_rate, log_mu, log_delta, rounds):
    """One round costs no more than all, and is known: r·δ_μ(ε′) with e^ε′ = (e^ε − 1 + r)/r."""
    rate, mu, delta = 10.0**log_rate, 10.0**log_mu, 10.0**log_delta
    event = RoundEvent(0, mu, 1.0, 1.0, "channel", 1.0, Sampling(law, 10, 10 * rate), 1.0, hides_participation=True)
    found = make_accountant("sampled", Ledger.repeated(event, rounds), neighbours).epsilon(delta)
    if math.isinf(found):
        return
    with mp.workdps(800):
        up = mpf(found) * (1 + mpf("1e-9"))
        inner = mpmath.log((mpmath.expm1(up) + mpf(rate)) / mpf(rate))
        assert mpf(rate) * true_delta(inner, mpf(mu)) <= delta * (1 + mpf("1e-6"))


@settings(max_examples=150)
@given(exponent=st.floats(-323, 308), delta=deltas)
def test_epsilon_of_a_mu_of_every_size(exponent, delta):
    mu = 10.0**exponent
    epsilon = gaussian_epsilon(delta, mu)
    assert covers(epsilon, delta, mpf(mu))
    if 1e-270 < mu < 1e150 and epsilon > 0:  # and close
        with mp.workdps(800):
            assert true_delta(mpf(epsilon) * (1 - mpf("1e-9")), mpf(mu)) >= delta * (1 - mpf("1e-9"))


@settings(max_examples=80)
@given(exponent=st.floats(-300, 300), delta=deltas)
def test_mu_of_an_epsilon_of_every_size(exponent, delta):
    epsilon = 10.0**exponent
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(delta, mu) <= epsilon
    assert covers(epsilon, delta, mpf(mu))


@given(st.lists(st.floats(0, 1e308), max_size=30), st.integers(1, 9))
def test_exact_sums_round_once(values, count):
    total = Exact()
    for value in values:
        total = total.plus(value, count)
    try:
        expected = math.fsum(value for value in values for _ in range(count))
    except OverflowError:
        expected = math.inf
    assert total.value == expected


def test_budgets_refuse_what_has_no_square():
    """A budget that is too large would follow from an S² that has lost its digits."""
    for clip in (1e-160, 1e149):
        template = RoundEvent(0, clip, 1.0, 0.0, "channel", 1.0, Sampling("all", 1, 1), 1.0, base_station=1.0)
        for name in ("gaussian", "liu2020", "paper", "park2023", "liu2024"):
            with pytest.raises(PrivacyError, match="other units"):
                ACCOUNTANTS[name].budget(1.0, 1e-5, template, "zero-out", 10)
    with pytest.raises(PrivacyError, match="noise_multiplier"):
        LedgerAccountant().step(noise_multiplier=1.7e-162)


def test_an_unclipped_device_that_nobody_hears_tells_nothing():
    silent = RoundEvent(0, math.inf, 0.0, 0.0, "none", None, Sampling("all", 1, 1), 1.0)
    for name in ("gaussian", "sampled", "convergent", "liu2020", "koda2020", "paper"):
        assert make_accountant(name, Ledger((silent,)), "replace").epsilon(1e-5) == 0.0, name
