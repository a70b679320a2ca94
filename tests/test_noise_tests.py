"""Checks of noise and participation: p-values that are never too small, and defects that they see."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airfl.privacy import Sampling, checks
from airfl.privacy.noise_tests import noise_checks, quietest, spectrum_columns
from airfl.privacy.participation_tests import participation_checks, presence


def white(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def layers(dim: int) -> list[tuple[str, int]]:
    return [("weight", dim - 3), ("bias", 3)]


def draws(seed: int, law: str, repetitions: int, rounds: int, devices: int, active: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    table = np.full((repetitions, rounds, devices), -1)
    for row in table.reshape(-1, devices):
        if law == "poisson":
            there = np.flatnonzero(generator.random(devices) < active / devices)
        else:
            there = np.sort(generator.choice(devices, active, replace=False))
        row[: len(there)] = there
    return table


def assert_not_too_small(p_values: dict[str, list[float]]) -> None:
    """P[p ≤ α] ≤ α for every α, within four standard deviations of the simulation."""
    for name, values in p_values.items():
        for alpha in (0.5, 0.1, 0.02):
            share = np.mean(np.asarray(values) <= alpha)
            assert share <= alpha + 4.0 * math.sqrt(alpha * (1.0 - alpha) / len(values)), (name, alpha)


# Their laws if there is no defect


@pytest.mark.parametrize("shape", [(4, 1, 7), (20, 3, 12), (6, 4, 33), (60, 3, 40)])
def test_p_values_of_white_noise_are_not_too_small(shape):
    found = defaultdict(list)
    for seed in range(400):
        for check in noise_checks(white(seed, *shape), layers(shape[2])):
            found[check.name].append(check.p_value)
    assert len(found) == 17
    assert_not_too_small(found)


@pytest.mark.parametrize("law", ["poisson", "without-replacement"])
def test_p_values_of_honest_draws_are_not_too_small(law):
    found = defaultdict(list)
    for seed in range(300):
        for check in participation_checks(draws(seed, law, 21, 5, 6, 3), Sampling(law, 6, 3)):
            found[check.name].append(check.p_value)
    assert_not_too_small(found)
    assert min(found["each device once in a round"]) == 1.0


@given(st.integers(1, 10**6), st.floats(0.5, 1.5))
def test_chi_square_against_scipy(freedom, ratio):
    value = ratio * freedom
    law = stats.chi2(freedom)
    exact = 2.0 * min(law.cdf(value), law.sf(value))
    assert float(checks.chi_square(value, freedom)) == pytest.approx(exact, rel=1e-6, abs=1e-290)


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.001, 0.999))
def test_binomial_against_scipy(trials, share, rate):
    count, law = round(share * trials), stats.binom(trials, rate)
    exact = min(1.0, 2.0 * min(law.cdf(count), law.sf(count - 1)))
    assert float(checks.binomial(count, trials, rate)) == pytest.approx(exact, rel=1e-6, abs=1e-290)


@pytest.mark.parametrize("number", [2, 30, 1000])
def test_the_bound_on_quadratic_forms_is_one(number):
    """Σ ± z² with as many of either sign, whose law is a difference of two χ²."""
    generator = np.random.default_rng(number)
    values = generator.chisquare(number, 400_000) - generator.chisquare(number, 400_000)
    for share in (0.9, 0.99, 0.999):
        x = np.quantile(np.abs(values), share)
        bound = float(checks.quadratic(np.array(x), 2.0 * number))
        assert 1.0 - share <= bound * 1.05
        assert number < 1000 or bound <= 20.0 * (1.0 - share)  # and it is not far off


def test_kolmogorov_is_above_the_exact_law():
    for seed in range(50):
        values = np.random.default_rng(seed).random(200)
        assert checks.kolmogorov(values) >= stats.kstest(values, "uniform", method="exact").pvalue


@pytest.mark.parametrize("number", [1, 1000, 3_000_000])
@pytest.mark.parametrize("largest", [0.5, 2.0, 4.0, 6.0])
def test_the_largest_of_many(number, largest):
    below = (1.0 - 2.0 * stats.norm.sf(largest)) ** number
    exact = 2.0 * min(below, 1.0 - below)
    assert checks.largest_normal(largest, number) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_all_checks_share_the_false_alarms():
    found = checks.judged([checks.Check("a", "", 1e-9), checks.Check("b", "", 0.6 * checks.FALSE_ALARMS)])
    assert [check.passed for check in found] == [False, True]
    assert sum(check.threshold for check in found) == pytest.approx(checks.FALSE_ALARMS)
    assert checks.FALSE_ALARMS < 0.01


# What they see


def repeated_halves(z):
    half = z.shape[2] // 2
    z[:, :, half : 2 * half] = z[:, :, :half]


def mirrored(z):
    z[:, :, z.shape[2] // 2 :] = z[:, :, : z.shape[2] - z.shape[2] // 2][:, :, ::-1]


def shifted_copy(z):
    z[:, :, 20:28] = z[:, :, 3:11]


def no_noise_on_one_coordinate_in_one_round(z):
    z[:, 2, 7] = 0.0


def quiet_along_a_direction(z):
    u = np.random.default_rng(5).standard_normal(z.shape[2]).astype(np.float32)
    u /= np.linalg.norm(u)
    z -= (z @ u)[..., None] * u


def shared_between_coordinates(z):
    z *= np.sqrt(0.9)
    z += np.sqrt(0.1) * white(9, *z.shape[:2], 1)


def two_repetitions_alike(z):
    z[17] = z[11]


def next_repetition_in_the_next_round(z):
    z[1:, 1] = z[:-1, 0]


def rounds_in_common(z):
    z[:, 3] = 0.8 * z[:, 3] + 0.6 * z[:, 1]


def uniform_in_one_round(z):
    z[:, 2] = np.random.default_rng(1).uniform(-(3**0.5), 3**0.5, z[:, 2].shape)


def heavy_tails(z):
    z[:] = np.random.default_rng(1).laplace(0.0, 0.5**0.5, z.shape)


def cut_at_three(z):
    np.clip(z, -3.0, 3.0, out=z)


def constant_offset(z):
    z[:, :, 4] += 0.3


def one_percent_less(z):
    z *= 0.99


@pytest.mark.parametrize(
    "defect",
    [
        repeated_halves,
        mirrored,
        shifted_copy,
        no_noise_on_one_coordinate_in_one_round,
        quiet_along_a_direction,
        shared_between_coordinates,
        two_repetitions_alike,
        next_repetition_in_the_next_round,
        rounds_in_common,
        uniform_in_one_round,
        heavy_tails,
        cut_at_three,
        constant_offset,
        one_percent_less,
    ],
)
def test_a_defect_is_seen(defect):
    z = white(0, 1000, 5, 90)
    assert all(check.passed for check in checks.judged(noise_checks(z, layers(90))))
    defect(z)
    assert not all(check.passed for check in checks.judged(noise_checks(z, layers(90))))


def test_the_quietest_direction_is_found():
    z = white(0, 300, 2, 40)
    u = np.random.default_rng(5).standard_normal(40)
    u /= np.linalg.norm(u)
    z -= 0.9 * (z @ u.astype(np.float32))[..., None] * u.astype(np.float32)
    assert abs(quietest(z) @ u) > 0.98
    wide = white(1, 4, 1, 5000)
    wide[:, :, 77] = 0.0
    assert np.linalg.norm(quietest(wide)) == pytest.approx(1.0)


@given(st.integers(1, 5000), st.integers(1, 20_000))
def test_columns_come_with_their_partners(dim, rows):
    columns = spectrum_columns(dim, rows)
    assert len(set(columns.tolist())) == len(columns) <= max(2, dim)
    assert columns.min(initial=0) >= 0
    assert columns.max(initial=0) < dim


@pytest.mark.parametrize("law", ["poisson", "without-replacement"])
@pytest.mark.parametrize("defect", ["always in", "same in all rounds", "same in all repetitions", "all or none"])
def test_a_defect_of_participation_is_seen(law, defect):
    active = draws(3, law, 400, 5, 6, 3)
    there, _ = presence(active, 6)
    if defect == "always in":
        there[:, :, 4] = True
    elif defect == "same in all rounds":
        there[:] = there[:, :1]
    elif defect == "same in all repetitions":
        there[:] = there[:1]
    else:
        there[:] = there[:, :, :1]
    active = np.where(there, np.arange(6), -1)
    found = checks.judged(participation_checks(active, Sampling(law, 6, 3)))
    assert not all(check.passed for check in found)


def test_everyone_is_there_once():
    active = np.broadcast_to(np.arange(4), (3, 2, 4)).copy()
    assert all(c.passed for c in checks.judged(participation_checks(active, Sampling("all", 4, 4))))
    active[1, 1, 3] = 0
    names = [c.name for c in checks.judged(participation_checks(active, Sampling("all", 4, 4))) if not c.passed]
    assert names == ["each device once in a round", "everyone takes part"]
