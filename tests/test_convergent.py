"""The hidden-state bound against a convex solver, a plain second implementation and closed forms."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.privacy import Domain, GaussianAccountant, Ledger, PrivacyError, RoundEvent, Sampling, gaussian_epsilon
from airfl.privacy.convergent import ConvergentAccountant, best_shifts, log_growth_of


def plain_mu(s: np.ndarray, noise: np.ndarray) -> float:
    return math.sqrt(math.fsum((s / noise) ** 2))


def gaps(shifts, s, growth, diameter) -> np.ndarray:
    """z_τ … z_T, by the recursion as it is written."""
    z = [diameter if shifts.start > 0 else 0.0]
    for t in range(shifts.start, len(s)):
        z.append(math.exp(growth[t]) * z[-1] + s[t] - shifts.absorbed[t])
    return np.array(z)


def instance(seed: int, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """s, τ, log ℓ and D, all over some decades; ℓ below, at and above 1, equal or not."""
    rng = np.random.default_rng(seed)
    s, noise = np.exp(0.7 * rng.standard_normal((2, rounds)))
    centre = rng.choice([-0.3, 0.0, 0.3])
    growth = centre + (0.0 if rng.random() < 0.3 else 0.2) * rng.standard_normal(rounds)
    return s, noise, growth, float(np.exp(rng.uniform(-3, 4)))


@cache
def problem(rounds: int) -> tuple[cvxpy.Problem, dict[str, cvxpy.Parameter]]:
    numbers = {name: cvxpy.Parameter(rounds, nonneg=True) for name in ("s", "growth", "weight")}
    numbers["first"] = cvxpy.Parameter(nonneg=True)
    b, z = cvxpy.Variable(rounds, nonneg=True), cvxpy.Variable(rounds + 1, nonneg=True)
    recursion = z[1:] == cvxpy.multiply(numbers["growth"], z[:-1]) + numbers["s"] - b
    objective = cvxpy.Minimize(cvxpy.sum_squares(cvxpy.multiply(numbers["weight"], b)))
    return cvxpy.Problem(objective, [recursion, z[0] == numbers["first"], z[rounds] == 0]), numbers


def by_convex_solver(s, noise, growth, diameter) -> float:
    """μ², the smallest over every start."""
    values = []
    for start in range(len(s)):
        program, numbers = problem(len(s) - start)
        first, ratio = diameter if start else 0.0, np.exp(growth[start:])
        # In units in which D is absorbed in the first round at a cost of 1.
        length = max(s.max(), first)
        cost = ((s[start:] + np.append(ratio[0] * first, np.zeros(len(s) - start - 1))) / noise[start:]) ** 2
        numbers["s"].value, numbers["growth"].value, numbers["first"].value = s[start:] / length, ratio, first / length
        numbers["weight"].value = length / noise[start:] / math.sqrt(cost.sum())
        for tolerance in (1e-10, 1e-9, 1e-8):  # now and then it gives up just before the tightest
            accuracy = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
            try:
                values.append(program.solve(solver="CLARABEL", **accuracy) * cost.sum())
                break
            except cvxpy.error.SolverError:
                assert tolerance > 1e-8
    return min(values)


@pytest.mark.parametrize("block", range(4))
def test_matches_a_general_convex_solver(block):
    later = merged = 0
    for seed in range(50 * block, 50 * block + 50):
        s, noise, growth, diameter = instance(seed, 1 + seed % 10)
        shifts = best_shifts(s, noise, growth, diameter)
        assert shifts.mu**2 == pytest.approx(by_convex_solver(s, noise, growth, diameter), rel=1e-6)
        later += shifts.start > 0
        merged += shifts.mu < 0.999 * plain_mu(s, noise) and shifts.start == 0
    assert later > 5  # every kind of answer occurred
    assert merged > 5


def by_pooling(s, noise, growth, diameter, start) -> float:
    """μ² from one start, in plain floating point."""
    scale = np.exp(np.cumsum(growth[start:]))
    rises = s[start:] / scale
    rises[0] += diameter if start else 0.0
    hull: list[tuple[float, float]] = []
    for edge in zip((noise[start:] / scale) ** 2, rises, strict=True):
        hull.append(edge)
        while len(hull) > 1 and hull[-2][1] / hull[-2][0] >= hull[-1][1] / hull[-1][0]:
            right, left = hull.pop(), hull.pop()
            hull.append((left[0] + right[0], left[1] + right[1]))
    return sum(rise**2 / width for width, rise in hull)


@pytest.mark.parametrize("trend", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_matches_pooling_from_every_start(seed, trend):
    """Long enough for the jumps over many edges: decreasing noise leaves a long minorant, D swallows much of it."""
    s, noise, growth, diameter = instance(seed, 150)
    noise = np.exp(0.1 * np.log(noise) + np.linspace(0, trend * 3, 150))
    growth = 0.05 * growth
    for scale in (1.0, 10.0):
        expected = min(by_pooling(s, noise, growth, scale * diameter, start) for start in range(150))
        assert best_shifts(s, noise, growth, scale * diameter).mu ** 2 == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("growth", "diameter", "value", "published"),
    [
        (1.0, 3.0, "12.00", "16.00"),
        (1.0, 10.0, "40.00", "121.00"),
        (1.025, 3.0, "12.61", "16.61"),
        (1.025, 10.0, "45.56", "126.56"),
    ],
)
def test_reference_values(growth, diameter, value, published):
    """s = τ = 1 and many rounds; without growth (n + D)²/n is smallest at n = D rounds and gives 4D."""
    for rounds in (200, 1000):
        ones = np.ones(rounds)
        shifts = best_shifts(ones, ones, math.log(growth) * ones, diameter)
        assert f"{shifts.mu**2:.2f}" == value
        assert rounds - shifts.start < 30
        # The published form starts in the last round: one way among ours.
        assert f"{(1.0 + growth * diameter) ** 2:.2f}" == published
        assert shifts.mu <= 1.0 + growth * diameter


rounds = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
        st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
        st.floats(-0.5, 1.0),
    ),
    min_size=1,
    max_size=15,
)
diameters = st.one_of(st.just(0.0), st.floats(1e-3, 1e4), st.just(math.inf))


@given(rounds=rounds, diameter=diameters, last=st.floats(1e-3, 1e3))
def test_shifts_are_feasible_and_no_worse_than_composition(rounds, diameter, last):
    s, noise, growth = np.array(rounds).T
    noise = np.append(noise[:-1], last)
    shifts = best_shifts(s, noise, growth, diameter)
    assert shifts.absorbed.shape == s.shape
    assert np.all(shifts.absorbed >= 0)
    assert not np.any(shifts.absorbed[: shifts.start])
    assert not np.any(shifts.absorbed[noise == 0])
    z = gaps(shifts, s, growth, diameter)
    assert np.all(np.isfinite(z))
    tolerance = 1e-12 * max(1.0, z.max()) * math.exp(np.abs(growth).sum())
    assert z.min() >= -tolerance
    assert abs(z[-1]) <= tolerance
    heard = noise > 0
    assert shifts.mu == pytest.approx(plain_mu(shifts.absorbed[heard], noise[heard]), rel=1e-12)
    if np.all(heard):
        assert shifts.mu <= plain_mu(s, noise) * (1 + 1e-15)
    assert shifts.mu >= best_shifts(s, noise, growth, 0.5 * diameter).mu * (1 - 1e-11)
    assert shifts.mu <= best_shifts(s, noise, growth + 0.1, diameter).mu * (1 + 1e-11)
    assert shifts.mu <= best_shifts(1.1 * s, noise, growth, diameter).mu * (1 + 1e-11)


@given(rounds=rounds, diameter=diameters, unit=st.floats(1e-6, 1e6))
def test_the_unit_of_length_does_not_count(rounds, diameter, unit):
    s, noise, growth = np.array(rounds).T
    mu = best_shifts(s, noise, growth, diameter).mu
    assert best_shifts(unit * s, unit * noise, growth, unit * diameter).mu == pytest.approx(mu, rel=1e-10)


@pytest.mark.parametrize("growth", [1.0, 1.0001, 1.025])
@pytest.mark.parametrize("kind", ["constant", "increasing", "decreasing", "random"])
def test_five_thousand_rounds(kind, growth):
    noise = {
        "constant": np.ones(5000),
        "increasing": np.linspace(1, 10, 5000),
        "decreasing": np.linspace(10, 1, 5000),
        "random": np.exp(np.random.default_rng(1).standard_normal(5000)),
    }[kind]
    ones = np.ones(5000)
    logs = math.log(growth) * ones
    for diameter in (3.0, 300.0):
        shifts = best_shifts(ones, noise, logs, diameter)
        assert shifts.mu <= plain_mu(ones, noise)
        assert shifts.mu**2 == pytest.approx(by_pooling(ones, noise, logs, diameter, shifts.start), rel=1e-11)
        others = {0, 2500, 4900, 4999, max(0, shifts.start - 1), min(4999, shifts.start + 1)}
        assert all(shifts.mu**2 <= by_pooling(ones, noise, logs, diameter, o) * (1 + 1e-11) for o in others)
        if diameter == 3.0:
            assert shifts.start > 4900


def test_enormous_growth_is_plain_composition():
    rng = np.random.default_rng(3)
    s, noise = np.exp(rng.standard_normal((2, 400)))
    for growth in (50.0, 1000.0, 1e6):
        # Whatever is not absorbed at once costs e^growth times as much later, unless noise makes up for it.
        shifts = best_shifts(s, noise, np.full(400, growth), 1.0)
        assert shifts.mu == pytest.approx(plain_mu(s, noise), rel=1e-12)
        assert shifts.mu <= plain_mu(s, noise) * (1 + 1e-15)
    assert best_shifts(s, noise, np.full(400, -50.0), 1.0).mu == pytest.approx(s[-1] / noise[-1], rel=1e-12)


@pytest.mark.parametrize("growth", [1.0, 30.0, 300.0, 800.0])
def test_noise_that_keeps_up_with_growth(growth):
    """Two rounds, z = ℓ(s₀ − b₀): by hand μ² = (s₀ + s₁/ℓ)²/(τ₀² + τ₁²/ℓ²), even where ℓ itself overflows."""
    s, noise = np.array([1.0, 0.5]), np.array([1e-3, math.exp(min(growth, 300.0))])
    shifts = best_shifts(s, noise, np.array([0.7, growth]), math.inf)
    expected = (1.0 + 0.5 * math.exp(-growth)) / math.hypot(1e-3, noise[1] * math.exp(-growth))
    assert shifts.mu == pytest.approx(expected, rel=1e-11)
    assert shifts.mu >= expected * (1 - 1e-14)


def test_rounds_without_noise():
    s, growth = np.array([1.0, 2.0, 0.5, 1.5]), np.log([1.1, 1.2, 1.3, 1.4])
    noise = np.array([1.0, 0.0, 0.0, 2.0])
    shifts = best_shifts(s, noise, growth, 1e9)
    # Rounds 1 and 2 push everything into round 3; round 0 keeps its own.
    through = (2.0 * 1.3 + 0.5) * 1.4 + 1.5
    assert shifts.mu**2 == pytest.approx(1.0 + through**2 / 4.0, rel=1e-12)
    assert shifts.absorbed == pytest.approx([1.0, 0.0, 0.0, through])
    # Unless it has so little noise that it passes some on too, by way of the silent rounds.
    pooled = best_shifts(s, np.array([0.1, 0.0, 0.0, 2.0]), growth, 1e9)
    factor = 1.2 * 1.3 * 1.4  # what a unit left in round 0 has become
    assert pooled.mu**2 == pytest.approx((factor + through) ** 2 / ((0.1 * factor) ** 2 + 4.0), rel=1e-12)
    # A short way from a small domain.
    assert best_shifts(s, noise, growth, 0.0).mu == pytest.approx(1.5 / 2.0)
    for diameter in (0.0, 1.0, math.inf):
        assert best_shifts(s, np.array([1.0, 1.0, 1.0, 0.0]), growth, diameter).mu == math.inf
        assert best_shifts(s, np.zeros(4), growth, diameter).mu == math.inf
    # Nothing to hide in the last round: it only passes on what was released before.
    quiet = best_shifts(np.array([1.0, 0.0]), np.array([2.0, 0.0]), growth[:2], 9.0)
    assert quiet.mu == pytest.approx(0.5)


def test_corners():
    none = best_shifts(np.array([]), np.array([]), np.array([]), 1.0)
    assert (none.start, none.absorbed.shape, none.mu) == (0, (0,), 0.0)
    one, zero = np.ones(3), np.zeros(3)
    assert best_shifts(zero, one, zero, 1.0).mu == 0.0
    assert best_shifts(zero, zero, zero, 1.0).mu == 0.0
    assert best_shifts(one, one, zero, 0.0).mu == pytest.approx(1.0)
    assert best_shifts(one, one, zero, math.inf).mu == pytest.approx(math.sqrt(3.0))
    assert best_shifts(np.array([1.0, math.inf, 1.0]), one, zero, 1.0).mu == math.inf
    for bad in (
        (one, one[:2], zero, 1.0),
        (-one, one, zero, 1.0),
        (one, -one, zero, 1.0),
        (one, math.inf * one, zero, 1.0),
        (one, one, math.inf * one, 1.0),
        (one, one, zero, -1.0),
        (one, one, zero, math.nan),
        (math.nan * one, one, zero, 1.0),
    ):
        with pytest.raises(PrivacyError):
            best_shifts(*bad)


def ledger(noise_vars, diameter=2.0, smoothness: float | None = 0.5, clip_norm=1.0, steps=3, server_step=1.0):
    domain = Domain(diameter, smoothness, 0.1, steps, 1.0)
    factor = server_step * 0.1 / 9
    return Ledger(
        tuple(
            RoundEvent(
                t, clip_norm, 1.0, float(v), "channel", 2.0, Sampling("without-replacement", 12, 9), factor, domain
            )
            for t, v in enumerate(noise_vars)
        )
    )


def change(book: Ledger, which: int, **fields) -> Ledger:
    """The ledger with other fields in the domain of one round."""
    events = list(book.events)
    domain = events[which].domain
    assert domain is not None
    events[which] = dataclasses.replace(events[which], domain=dataclasses.replace(domain, **fields))
    return Ledger(tuple(events))


def mu(book: Ledger, neighbours="replace") -> float:
    return ConvergentAccountant(book, neighbours).mu


def gaussian(book: Ledger, neighbours="replace") -> float:
    return GaussianAccountant(book, neighbours).mu


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
def test_without_a_domain_it_is_gaussian(neighbours):
    book = ledger([4.0, 1.0, 9.0])
    bare = Ledger(tuple(dataclasses.replace(event, domain=None) for event in book.events))
    partly = Ledger((*book.events[:2], bare.events[2]))
    for other in (bare, partly, change(book, 1, smoothness=None), ledger([4.0, 1.0, 9.0], smoothness=None)):
        assert mu(other, neighbours) == gaussian(book, neighbours)
        ours = ConvergentAccountant(other, neighbours)
        theirs = GaussianAccountant(other, neighbours)
        assert ours.epsilon(1e-5) == theirs.epsilon(1e-5)
        assert ours.delta(1.0) == theirs.delta(1.0)
        assert ours.rdp(3.0) == theirs.rdp(3.0)
    assert mu(book, "replace") > mu(book, "zero-out")


@given(
    variances=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12),
    diameter=st.floats(1e-3, 1e3),
    smoothness=st.floats(1e-3, 30),
    server_step=st.floats(0.1, 3),
)
def test_with_a_domain_it_is_never_worse_than_gaussian(variances, diameter, smoothness, server_step):
    book = ledger(variances, diameter, smoothness, server_step=server_step)
    assert mu(book) <= gaussian(book)
    assert mu(ledger(variances, 2 * diameter, smoothness, server_step=server_step)) >= mu(book) * (1 - 1e-11)
    assert mu(ledger(variances, diameter, smoothness + 1, server_step=server_step)) >= mu(book) * (1 - 1e-11)
    # The largest domain counts.
    assert mu(change(ledger(variances, 0.5 * diameter, smoothness, server_step=server_step), 0, diameter=diameter)) == (
        mu(book)
    )
    # Only the ratio of clip norm, noise and domain counts.
    scaled = ledger([9 * v for v in variances], 3 * diameter, smoothness, clip_norm=3.0, server_step=server_step)
    assert mu(scaled) == pytest.approx(mu(book), rel=1e-10)


def test_accountant_by_hand():
    """One factor from received sum to model, D in its units: c = 1, S = 2, v = 4 and ℓ = 1."""
    book = ledger(np.full(500, 4.0), diameter=6 * 0.1 / 9, smoothness=1e-15)
    accountant = ConvergentAccountant(book, "replace")
    assert accountant.mu**2 == pytest.approx(12.0)  # s = 2, τ = 2, D = 6 in units of the factor: as s = τ = 1, D = 3
    assert accountant.epsilon(1e-5) == gaussian_epsilon(1e-5, accountant.mu)
    assert accountant.delta(accountant.epsilon(1e-5)) == pytest.approx(1e-5)
    assert accountant.rdp(2.0) == pytest.approx(12.0)
    # Adding rounds adds nothing any more.
    assert mu(ledger(np.full(600, 4.0), diameter=6 * 0.1 / 9, smoothness=1e-15)) == pytest.approx(accountant.mu)


def test_a_huge_domain_is_gaussian():
    for variances in ([4.0] * 20, [9.0, 4.0, 1.0]):
        book = ledger(variances, diameter=1e12, smoothness=1e-15)
        assert mu(book) == pytest.approx(gaussian(book), rel=1e-9)
    # Later rounds with more noise help earlier ones even then.
    book = ledger([1.0, 4.0, 9.0], diameter=1e12, smoothness=1e-15)
    assert mu(book) == pytest.approx(2.0 * 3.0 / math.sqrt(14.0))
    assert mu(book) < gaussian(book)


def test_growth_of_a_round():
    event = ledger([1.0], server_step=2.0).events[0]
    domain = Domain(2.0, 0.5, 0.1, 3, 0.8)
    assert log_growth_of(event, domain, 0.5) == pytest.approx(math.log(1 + 2.0 * 0.8 * (1.05**3 - 1)), rel=1e-14)
    assert log_growth_of(event, domain, 1e-15) == pytest.approx(2.0 * 0.8 * 3 * 1e-16, rel=1e-14)
    assert log_growth_of(event, dataclasses.replace(domain, mean_gain=0.0), 1e300) == 0.0
    # (1 + ηL)^Q = 11^1000 overflows, its logarithm does not.
    many = dataclasses.replace(domain, local_steps=1000)
    assert log_growth_of(event, many, 100.0) == pytest.approx(1000 * math.log(11.0) + math.log(1.6), rel=1e-14)
    # Both ways of writing it agree where they meet.
    below, above = (log_growth_of(event, many, 10 * math.expm1(x / 1000)) for x in (30 - 1e-9, 30 + 1e-9))
    assert above - below == pytest.approx(2e-9, rel=1e-3)
    huge = ledger([4.0, 4.0], smoothness=100.0, steps=1000)
    assert mu(huge) == pytest.approx(gaussian(huge), rel=1e-12)


def test_ledgers_at_the_edge():
    assert mu(Ledger()) == 0.0
    assert ConvergentAccountant(Ledger(), "replace").epsilon(1e-5) == 0.0
    assert ConvergentAccountant(Ledger(), "replace").delta(1.0) == 0.0
    assert mu(ledger([1.0, 0.0])) == math.inf
    assert math.isinf(gaussian(ledger([0.0, 1.0])))
    assert math.isfinite(mu(ledger([0.0, 1.0])))
    assert mu(ledger([1.0, 1.0], clip_norm=math.inf)) == math.inf
    assert ConvergentAccountant(ledger([0.0]), "replace").delta(3.0) == 1.0
    with pytest.raises(PrivacyError, match="delta"):
        ConvergentAccountant(ledger([1.0]), "replace").epsilon(0.0)
    with pytest.raises(PrivacyError, match="epsilon"):
        ConvergentAccountant(ledger([1.0]), "replace").delta(-1.0)
