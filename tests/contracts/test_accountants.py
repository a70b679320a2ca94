"""What every accountant must satisfy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.privacy import ACCOUNTANTS, Ledger, PrivacyError, RoundEvent, Sampling, make_accountant, what_if_ledger

every_accountant = pytest.mark.parametrize("name", list(ACCOUNTANTS))


def ledger(noise_vars, clip_norm=1.0, gain=1.0, k=9, n=12, noise_power=2.0):
    sampling = Sampling("all" if k == n else "without-replacement", n, k)
    return Ledger(
        tuple(
            RoundEvent(t, clip_norm, gain, float(v), "channel", noise_power, 1.0, sampling, 0.01)
            for t, v in enumerate(noise_vars)
        )
    )


def epsilon(name, book, delta=1e-5, neighbours="replace"):
    return make_accountant(name, book, neighbours).epsilon(delta)


@every_accountant
def test_no_rounds_cost_nothing_and_no_noise_everything(name):
    assert epsilon(name, Ledger()) == 0.0
    assert make_accountant(name, Ledger(), "replace").delta(1.0) == 0.0
    assert epsilon(name, ledger([1.0, 0.0])) == math.inf
    assert make_accountant(name, ledger([0.0]), "replace").delta(3.0) == 1.0
    unclipped = ledger([0.0], clip_norm=math.inf)
    assert epsilon(name, unclipped) == math.inf


@every_accountant
@given(variances=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12), factor=st.floats(1.01, 5), seed=st.integers())
def test_monotone_and_order_free(name, variances, factor, seed):
    base = epsilon(name, ledger(variances))
    assert epsilon(name, ledger([*variances, 3.0])) > base
    assert epsilon(name, ledger(variances, clip_norm=factor)) > base
    assert epsilon(name, ledger(variances, gain=factor)) > base
    assert epsilon(name, ledger([v * factor for v in variances])) < base
    assert epsilon(name, ledger(variances), delta=1e-5 / factor) > base
    shuffled = np.random.default_rng(abs(seed) % 2**32).permutation(variances)
    assert epsilon(name, ledger(shuffled)) == pytest.approx(base, rel=1e-12)
    # Only the ratio of clip norm to noise counts.
    scaled = ledger([v * factor**2 for v in variances], clip_norm=factor)
    assert epsilon(name, scaled) == pytest.approx(base, rel=1e-9)


@every_accountant
@given(variances=st.lists(st.floats(0.5, 1e4), min_size=1, max_size=12), delta=st.floats(1e-12, 0.1))
def test_epsilon_and_delta_are_inverse(name, variances, delta):
    accountant = make_accountant(name, ledger(variances), "replace")
    spent = accountant.epsilon(delta)
    if spent > 1e-6:
        assert accountant.delta(spent) == pytest.approx(delta, rel=1e-6)


@every_accountant
@given(
    target=st.floats(0.05, 500),
    delta=st.floats(1e-10, 1e-2),
    shares=st.lists(st.floats(0.05, 1), min_size=1, max_size=9),
    neighbours=st.sampled_from(["add-remove", "replace"]),
)
def test_budget_is_the_exact_inverse(name, target, delta, shares, neighbours):
    """Spend all of A, however it is split over rounds: ε comes out, and never more."""
    noise_power = 3e-13
    template = ledger([0.0], clip_norm=0.7, noise_power=noise_power).events[0]
    budget = ACCOUNTANTS[name].budget(target, delta, template, neighbours)
    spend = np.array(shares) / math.fsum(shares) * budget * (1 - 1e-14)
    book = ledger(noise_power / (2 * spend), clip_norm=0.7, noise_power=noise_power)  # v = q²σ²/2, 1/q² = spend
    spent = make_accountant(name, book, neighbours).epsilon(delta)
    assert spent <= target
    assert spent == pytest.approx(target, rel=1e-9)


@every_accountant
def test_every_accountant_states_its_assumptions_and_observers(name):
    kind = ACCOUNTANTS[name]
    assert kind.name == name
    assert kind.assumptions.endswith(".")
    assert "model" in kind.observers
    for observer in {"models", "base-station"} - set(kind.observers):
        with pytest.raises(PrivacyError, match="says nothing about"):
            make_accountant(name, Ledger(), "replace", observer)


@every_accountant
def test_bad_questions(name):
    for delta in (0.0, 1.0, 2.0, -1e-5, math.nan):
        with pytest.raises(PrivacyError, match="delta"):
            epsilon(name, ledger([1.0]), delta=delta)
    with pytest.raises(PrivacyError, match="epsilon"):
        make_accountant(name, ledger([1.0]), "replace").delta(-1.0)
    with pytest.raises(PrivacyError, match="no accountant named"):
        make_accountant(name + "x", Ledger(), "replace")


def test_gaussian_equals_dp_accounting_composition():
    """T equal rounds at r = 1 against their privacy-loss distribution."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    book = what_if_ledger(1.0, 6.0, 20)
    theirs = PLDAccountant(value_discretization_interval=1e-5)
    theirs.compose(dp_accounting.GaussianDpEvent(math.sqrt(6.0)), 20)
    ours = make_accountant("gaussian", book, "add-remove").epsilon(1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-4)
    assert ours <= theirs.get_epsilon(1e-5)  # their discretisation is pessimistic


def test_neighbours_and_observers():
    book = ledger([4.0, 4.0], k=12)
    replace, zero_out = (make_accountant("gaussian", book, n).mu for n in ("replace", "add-remove"))
    assert replace == pytest.approx(2 * zero_out)
    assert zero_out == pytest.approx(math.sqrt(2 / 4.0))
    # √2·c·‖h s‖/σ per round for who sees every antenna, before the gain.
    loud = Ledger(tuple(dataclasses.replace(e, received_norm=5.0, gain_bound=3.0) for e in book.events))
    curious = make_accountant("gaussian", loud, "add-remove", "base-station").mu
    assert curious == pytest.approx(math.sqrt(2 * 2 * 25.0 / 2.0))
    assert make_accountant("gaussian", book, "add-remove", "models").mu == zero_out
