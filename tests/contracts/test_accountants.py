"""What every accountant must satisfy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.privacy import (
    ACCOUNTANTS,
    Domain,
    Ledger,
    PrivacyError,
    RoundEvent,
    Sampling,
    make_accountant,
    what_if_ledger,
)

every_accountant = pytest.mark.parametrize("name", list(ACCOUNTANTS))
NO_CREDIT = Sampling("without-replacement", 12, 9)
POISSON = Sampling("poisson", 10, 1)
DOMAIN = Domain(diameter=0.5, smoothness=1.0, learning_rate=0.09, local_steps=2, mean_gain=1.0)


def ledger(noise_vars, clip_norm=1.0, gain=1.0, sampling=NO_CREDIT, noise_power=2.0, **fields):
    """Rounds heard by one antenna: who sees signals then sees what the model shows, g/√v."""
    rows = []
    for t, v in enumerate(noise_vars):
        seen = gain / math.sqrt(v) if v > 0 else None
        power = noise_power if v > 0 else None
        event = RoundEvent(t, clip_norm, gain, float(v), "channel", power, sampling, 0.01, **fields)
        rows.append(dataclasses.replace(event, base_station=seen, eavesdropper=seen, everything=seen))
    return Ledger(tuple(rows))


def observer_of(name):
    return ACCOUNTANTS[name].observers[0]


def account(name, book, neighbours="replace"):
    return make_accountant(name, book, neighbours, observer_of(name))


def epsilon(name, book, delta=1e-5, neighbours="replace"):
    return account(name, book, neighbours).epsilon(delta)


@every_accountant
def test_no_rounds_cost_nothing_and_no_noise_everything(name):
    assert epsilon(name, Ledger()) == 0.0
    assert account(name, Ledger()).delta(1.0) == 0.0
    assert epsilon(name, ledger([1.0, 0.0])) == math.inf
    assert account(name, ledger([0.0])).delta(3.0) == 1.0
    assert epsilon(name, ledger([0.0], clip_norm=math.inf)) == math.inf
    for fields in ({"sampling": POISSON, "hides_participation": True}, {"domain": DOMAIN}):
        assert epsilon(name, ledger([0.0, 0.0], **fields), neighbours="zero-out") == math.inf


@every_accountant
@given(variances=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12), factor=st.floats(1.01, 5), seed=st.integers())
def test_monotone_and_order_free(name, variances, factor, seed):
    base = epsilon(name, ledger(variances))
    more = epsilon(name, ledger([*variances, 3.0]))
    assert more >= base if name == "koda2020" else more > base  # which looks at the worst round only
    assert epsilon(name, ledger(variances, clip_norm=factor)) > base
    assert epsilon(name, ledger(variances, gain=factor)) > base
    assert epsilon(name, ledger([v * factor for v in variances])) < base
    assert epsilon(name, ledger(variances), delta=1e-5 / factor) > base
    shuffled = np.random.default_rng(abs(seed) % 2**32).permutation(variances)
    assert epsilon(name, ledger(shuffled)) == pytest.approx(base, rel=1e-12)
    # Only the ratio of clip norm to noise counts.
    scaled = ledger([v * factor**2 for v in variances], clip_norm=factor)
    assert epsilon(name, scaled) == pytest.approx(base, rel=1e-9)


#: Rounds that let `sampled` and `convergent` do what sets them apart; few examples, the library takes its time.
SPECIAL = {
    "sampled": {"sampling": POISSON, "hides_participation": True},
    "convergent": {"domain": DOMAIN},
}


@pytest.mark.parametrize("name", list(SPECIAL))
@settings(max_examples=6)
@given(variances=st.lists(st.floats(0.5, 50), min_size=1, max_size=4), factor=st.floats(1.05, 3), seed=st.integers())
def test_monotone_with_credit(name, variances, factor, seed):
    fields, relation = SPECIAL[name], "zero-out"
    tolerance = 1 + (1e-3 if name == "sampled" else 1e-9)  # the library's grid
    base = epsilon(name, ledger(variances, **fields), neighbours=relation)
    assert base <= epsilon("gaussian", ledger(variances, **fields), neighbours=relation) * (1 + 1e-12)
    # One more round costs; but where only the last model is seen, a noisier one also covers what came before.
    before, after = (variances, [*variances, 3.0]) if name == "sampled" else ([3.0] * 4, [3.0] * 5)
    fewer, more = (epsilon(name, ledger(v, **fields), neighbours=relation) for v in (before, after))
    assert more * tolerance >= fewer
    assert epsilon(name, ledger(variances, clip_norm=factor, **fields), neighbours=relation) * tolerance >= base
    assert epsilon(name, ledger([v * factor for v in variances], **fields), neighbours=relation) <= base * tolerance
    assert epsilon(name, ledger(variances, **fields), delta=1e-5 / factor, neighbours=relation) >= base
    if name == "sampled":
        shuffled = np.random.default_rng(abs(seed) % 2**32).permutation(variances)
        assert epsilon(name, ledger(shuffled, **fields), neighbours=relation) == pytest.approx(base, rel=1e-6)


@every_accountant
@given(variances=st.lists(st.floats(0.5, 1e4), min_size=1, max_size=12), delta=st.floats(1e-12, 0.1))
def test_epsilon_and_delta_are_inverse(name, variances, delta):
    accountant = account(name, ledger(variances))
    spent = accountant.epsilon(delta)
    if spent > 1e-6:
        assert accountant.delta(spent) == pytest.approx(delta, rel=1e-6)


@every_accountant
@given(
    target=st.floats(0.05, 500),
    delta=st.floats(1e-10, 1e-2),
    shares=st.lists(st.floats(0.05, 1), min_size=1, max_size=9),
    neighbours=st.sampled_from(["zero-out", "replace"]),
)
def test_budget_is_the_exact_inverse(name, target, delta, shares, neighbours):
    """Spend all of A, however it is split over rounds, or stay at the floor: ε comes out, and never more."""
    noise_power, rounds = 3e-13, len(shares)
    template = ledger([noise_power / 2.0], 0.7, noise_power=noise_power).events[0]
    budget = ACCOUNTANTS[name].budget(target, delta, template, neighbours, rounds)
    spends = [np.full(rounds, budget.floor**-2.0)]
    if budget.total is not None:
        spends.append(np.array(shares) / math.fsum(shares) * budget.total * (1 - 1e-14))
    for spend in spends:
        book = ledger(noise_power / (2 * spend), clip_norm=0.7, noise_power=noise_power)  # v = q²σ²/2, 1/q² = spend
        spent = epsilon(name, book, delta, neighbours)
        assert spent <= target
        assert spent == pytest.approx(target, rel=1e-9)


@pytest.mark.parametrize("name", list(SPECIAL))
@pytest.mark.parametrize("target", [0.3, 4.0, 60.0])
def test_floors_with_credit_keep_the_promise_and_are_the_smallest(name, target):
    template = ledger([1.0], 0.7, noise_power=3e-13, **SPECIAL[name]).events[0]
    rounds = 6
    budget = ACCOUNTANTS[name].budget(target, 1e-5, template, "zero-out", rounds)
    assert budget.total is None

    def spent(norm):
        book = ledger([norm**2 * 1.5e-13] * rounds, 0.7, noise_power=3e-13, **SPECIAL[name])
        return epsilon(name, book, neighbours="zero-out")

    assert spent(budget.floor) <= target
    assert spent(budget.floor * (1 - 1e-6)) > target * (1 - 1e-6)
    assert spent(budget.floor) == pytest.approx(target, rel=1e-6)
    plain = ACCOUNTANTS["gaussian"].budget(target, 1e-5, template, "zero-out", rounds)
    assert budget.floor <= plain.floor * (1 + 1e-9)


@every_accountant
def test_every_accountant_states_its_assumptions_and_observers(name):
    kind = ACCOUNTANTS[name]
    assert kind.name == name
    assert kind.assumptions.endswith(".")
    assert isinstance(kind.valid, bool)
    for observer in {"model", "models", "base-station"} - set(kind.observers):
        with pytest.raises(PrivacyError, match="says nothing about"):
            make_accountant(name, Ledger(), "replace", observer)


@pytest.mark.parametrize("name", [n for n, kind in ACCOUNTANTS.items() if kind.valid])
@given(variances=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=8), delta=st.floats(1e-9, 0.1))
def test_valid_bounds_never_undercut_the_exact_one(name, variances, delta):
    """All take part and every model is seen: there `gaussian` is exact, and nothing valid lies below it."""
    book = ledger(variances, sampling=Sampling("all", 12, 12))
    exact = epsilon("gaussian", book, delta, "zero-out")
    assert epsilon(name, book, delta, "zero-out") >= exact * (1 - 1e-9)


@every_accountant
def test_bad_questions(name):
    for delta in (0.0, 1.0, 2.0, -1e-5, math.nan):
        with pytest.raises(PrivacyError, match="delta"):
            epsilon(name, ledger([1.0]), delta=delta)
    with pytest.raises(PrivacyError, match="epsilon"):
        account(name, ledger([1.0])).delta(-1.0)
    with pytest.raises(PrivacyError, match="no accountant named"):
        make_accountant(name + "x", Ledger(), "replace")


def test_gaussian_equals_dp_accounting_composition():
    """T equal rounds at r = 1 against their privacy-loss distribution."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    book = what_if_ledger(1.0, 6.0, 20)
    theirs = PLDAccountant(value_discretization_interval=1e-5)
    theirs.compose(dp_accounting.GaussianDpEvent(math.sqrt(6.0)), 20)
    ours = make_accountant("gaussian", book, "zero-out").epsilon(1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)
    assert ours <= theirs.get_epsilon(1e-5)  # their discretisation is pessimistic


def test_neighbours_and_observers():
    book = ledger([4.0, 4.0], sampling=Sampling("all", 12, 12))
    replace, zero_out = (make_accountant("gaussian", book, n).mu for n in ("replace", "zero-out"))
    assert replace == pytest.approx(2 * zero_out)
    assert zero_out == pytest.approx(math.sqrt(2 / 4.0))
    # c·r per round for who sees signals, before the gain.
    for observer in ("base-station", "eavesdropper", "everything"):
        seen = {observer.replace("-", "_"): 5.0, "gain_bound": 3.0}
        loud = Ledger(tuple(dataclasses.replace(e, **seen) for e in book.events))
        assert make_accountant("gaussian", loud, "zero-out", observer).mu == pytest.approx(math.sqrt(2 * 25.0))
        assert make_accountant("gaussian", loud, "replace", observer).mu == pytest.approx(math.sqrt(2 * 100.0))
    assert make_accountant("gaussian", book, "zero-out", "models").mu == zero_out
