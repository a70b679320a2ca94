"""The paper's own setting: what its formula says, what exact accounting says, and where the two part."""

from __future__ import annotations

import dataclasses
import math

import pytest

from airfl.privacy import Domain, GaussianAccountant, Ledger, Sampling, make_accountant, what_if_ledger
from airfl.privacy.gaussian import gaussian_epsilon
from airfl.privacy.paper import PaperAccountant

DIM, ROUNDS, RATE, DELTA = 582_026, 50, 0.9, 1e-5
CLIP = math.sqrt(0.012 * DIM)

#: ε̃, published ε, v, exact with 2c and complex σ², exact with 2c and real noise, exact with c and real noise.
TABLE = [
    (0.04, 30.5, 36_141, 27.7, 45.1, 17.5),
    (0.10, 76.3, 10_726, 66.2, 112.9, 39.9),
    (0.15, 114.4, 6_598, 96.0, 167.0, 56.7),
    (0.28, 213.6, 3_260, 168.7, 301.6, 96.9),
]


@pytest.mark.parametrize(("tilde", "published", "v", "complex_2c", "real_2c", "real_c"), TABLE)
def test_reference_table(tilde, published, v, complex_2c, real_2c, real_c):
    book = what_if_ledger(CLIP, v, ROUNDS, RATE)
    paper = make_accountant("paper", book, "replace").epsilon(DELTA)
    assert paper == pytest.approx(published, abs=0.051)
    assert paper == pytest.approx(tilde * math.sqrt(DIM), rel=2e-4)
    assert make_accountant("gaussian", book, "replace").epsilon(DELTA) == pytest.approx(real_2c, abs=0.051)
    assert make_accountant("gaussian", book, "zero-out").epsilon(DELTA) == pytest.approx(real_c, abs=0.051)
    whole = what_if_ledger(CLIP, 2 * v, ROUNDS, RATE)  # if the real part carried all of σ²
    assert make_accountant("gaussian", whole, "replace").epsilon(DELTA) == pytest.approx(complex_2c, abs=0.051)


def test_the_noise_its_own_budget_asks_for():
    for tilde, _, v, *_ in TABLE:
        sigma2 = 1e-13
        template = dataclasses.replace(what_if_ledger(CLIP, 1.0, 1, RATE).events[0], noise_power=sigma2)
        budget = PaperAccountant.budget(tilde * math.sqrt(DIM), DELTA, template, "replace")
        assert ROUNDS / budget.total * sigma2 / 2 == pytest.approx(v, rel=1e-4)  # q² = T/A in every round


def test_counting_half_the_noise_power_as_the_real_part_carries_moves_the_corollary():
    """With the true variance the published corollary gives 136.9 where it says 76.3: between √2 and 2 times."""
    book = what_if_ledger(CLIP, 10_726 / 2, ROUNDS, RATE)
    corrected = make_accountant("paper", book, "replace").epsilon(DELTA)
    assert corrected == pytest.approx(136.9, abs=0.1)
    assert math.sqrt(2) < corrected / 76.29 < 2


@pytest.mark.parametrize(("tilde", "share"), [(0.04, 0.5752), (0.10, 0.6035), (0.15, 0.6255), (0.28, 0.6651)])
def test_the_price_of_honesty(tilde, share):
    """The exact budget A as a share of the published one for S = 2c; four times that for S = c."""
    template = dataclasses.replace(what_if_ledger(CLIP, 1.0, 1, RATE).events[0], noise_power=1e-13)
    epsilon = tilde * math.sqrt(DIM)
    published = PaperAccountant.budget(epsilon, DELTA, template, "replace").total
    exact = GaussianAccountant.budget(epsilon, DELTA, template, "replace").total
    assert exact / published == pytest.approx(share, abs=1e-4)
    zero_out = GaussianAccountant.budget(epsilon, DELTA, template, "zero-out").total / published
    assert zero_out == pytest.approx(4 * share, abs=4e-4)


def test_participation_factor_fails_for_one_direction():
    """r = 0.1, μ = 1, α = 16: the claimed divergence is r·α·μ²/2 = 0.80, the true one is 5.54 (subsampled Gaussian)."""
    import mpmath

    r, mu, alpha = mpmath.mpf("0.1"), mpmath.mpf(1), 16
    terms = (
        mpmath.binomial(alpha, j) * (1 - r) ** (alpha - j) * r**j * mpmath.exp(mu**2 * j * (j - 1) / 2)
        for j in range(alpha + 1)
    )
    true = mpmath.log(mpmath.fsum(terms)) / (alpha - 1)
    assert float(r * alpha * mu**2 / 2) == pytest.approx(0.80)
    assert float(true) == pytest.approx(5.54, abs=0.01)


def with_domain(
    book: Ledger, diameter: float, smoothness: float | None, steps: int = 1, server_step: float = 1.0
) -> Ledger:
    """η = 0.1 and K = n = 10, so the update factor is 0.01."""
    domain, sampling = Domain(diameter, smoothness, 0.1, steps, 1.0), Sampling("all", 10, 10)
    return Ledger(
        tuple(
            dataclasses.replace(event, domain=domain, update_factor=0.01 * server_step, sampling=sampling)
            for event in book.events
        )
    )


def test_the_convergent_branch_needs_an_enforced_domain_and_a_stated_smoothness():
    book = what_if_ledger(1.0, 5.0, 400)
    plain = make_accountant("paper", book, "replace").exponent
    assert make_accountant("paper", with_domain(book, 0.1, None), "replace").exponent == plain
    bounded = make_accountant("paper", with_domain(book, 0.1, 0.5), "replace").exponent
    # Φ to the letter: (1 + (1+ηL)^Q · D/(2·√r·u·c))², over 2v.
    assert bounded == pytest.approx((1 + 1.05 * 0.1 / (2 * 0.01)) ** 2 / (2 * 5.0))
    assert bounded < plain
    longer = make_accountant("paper", with_domain(what_if_ledger(1.0, 5.0, 4000), 0.1, 0.5), "replace").exponent
    assert longer == bounded  # it has converged
    # It knows no server step, so with one it says nothing.
    assert make_accountant("paper", with_domain(book, 0.1, 0.5, server_step=2.0), "replace").exponent == plain
    # 525 local steps: (1+ηL)^Q explodes and the sum takes over.
    assert make_accountant("paper", with_domain(book, 0.1, 50.0, 525), "replace").exponent == plain


def test_gaussian_epsilon_of_the_paper_setting_is_above_its_claim():
    mu = math.sqrt(ROUNDS * (2 * CLIP) ** 2 / 10_726)
    assert gaussian_epsilon(DELTA, mu) == pytest.approx(112.9, abs=0.05)
