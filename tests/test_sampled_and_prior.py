"""Sampling credit against the library and by hand, prior work's formulas, exports."""

from __future__ import annotations

import dataclasses
import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airfl.privacy import (
    Ledger,
    LedgerAccountant,
    PrivacyError,
    RoundEvent,
    Sampling,
    WhatIf,
    gaussian_epsilon,
    make_accountant,
    sampled,
    to_dp_event,
)
from airfl.privacy.creditless import least_epsilon
from airfl.privacy.dp_event import MAX_LEVELS, Group, noise_groups
from airfl.privacy.prior import inverse_c


def book(noise_vars, law="poisson", rate=0.1, n=50, hides=True, clip_norm=1.0):
    sampling = Sampling(law, n, n if law == "all" else rate * n)
    return Ledger(
        tuple(
            RoundEvent(t, clip_norm, 1.0, float(v), "channel", 1.0, sampling, 0.1, hides_participation=hides)
            for t, v in enumerate(noise_vars)
        )
    )


def test_the_small_rate_at_which_the_published_factor_fails():
    """r = 0.1, μ = 1, α = 16: divergence 5.54 where the published factor r claims 0.80."""
    one = book([1.0])
    assert make_accountant("sampled", one, "zero-out").rdp(16) == pytest.approx(5.54, abs=0.005)
    assert 0.1 * make_accountant("gaussian", one, "zero-out").rdp(16) == pytest.approx(0.80)


def brute_delta(epsilon, rate, multiplier, direction):
    """∫ (P − e^ε Q)+ of one Poisson-sampled round, at 30 digits: P, Q the mixture and the plain Gaussian."""

    def density(x, mean):
        return mpmath.npdf(x, mean, multiplier)

    def mixture(x):
        return (1 - rate) * density(x, 0) + rate * density(x, 1)

    def excess(x):
        p, q = (mixture(x), density(x, 0)) if direction == "remove" else (density(x, 0), mixture(x))
        return max(mpmath.mpf(0), p - mpmath.exp(epsilon) * q)

    edges = mpmath.linspace(-12 * multiplier, 12 * multiplier + 1, 400)
    return mpmath.quad(excess, edges)


@pytest.mark.parametrize(("rate", "multiplier", "epsilon"), [(0.1, 1.0, 1.0), (0.5, 0.7, 2.0), (0.9, 1.5, 0.5)])
def test_one_sampled_round_against_integration(rate, multiplier, epsilon):
    ours = make_accountant("sampled", book([multiplier**2], rate=rate), "zero-out").delta(epsilon)
    true = max(float(brute_delta(epsilon, rate, multiplier, way)) for way in ("remove", "add"))
    assert true * (1 - 1e-6) <= ours <= true * (1 + 2e-3)  # an upper bound, and a close one


@settings(max_examples=12)
@given(
    variances=st.lists(st.floats(0.3, 100), min_size=1, max_size=4),
    rate=st.floats(0.05, 0.98),
    law=st.sampled_from(["poisson", "without-replacement"]),
    neighbours=st.sampled_from(["zero-out", "replace"]),
)
def test_never_above_gaussian(variances, rate, law, neighbours):
    ledger = book(variances, law, rate)
    plain = make_accountant("gaussian", ledger, neighbours)
    sampled = make_accountant("sampled", ledger, neighbours)
    assert sampled.epsilon(1e-5) <= plain.epsilon(1e-5)
    assert sampled.delta(1.0) <= plain.delta(1.0)
    assert sampled.rdp(8) <= plain.rdp(8)


def test_no_credit_where_the_noise_tells_who_took_part():
    telling, hiding = book([2.0] * 5, hides=False), book([2.0] * 5)
    plain = make_accountant("gaussian", telling, "zero-out").epsilon(1e-5)
    assert make_accountant("sampled", telling, "zero-out").epsilon(1e-5) == plain
    assert make_accountant("sampled", hiding, "zero-out").epsilon(1e-5) < 0.5 * plain
    mixed = Ledger((*hiding.events[:2], *telling.events[2:]))
    between = make_accountant("sampled", mixed, "zero-out").epsilon(1e-5)
    assert make_accountant("sampled", hiding, "zero-out").epsilon(1e-5) < between < plain
    with pytest.raises(PrivacyError, match="says nothing about"):  # the base station knows who took part
        make_accountant("sampled", hiding, "zero-out", "base-station")


def test_without_replacement_at_the_papers_rate_earns_nothing():
    """The library's bound there, 166.7, is worse than no credit at all: 112.9."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    ledger = WhatIf(83.5722, 10_726, 50, 0.9, num_devices=50).ledger()
    assert make_accountant("sampled", ledger, "replace").epsilon(1e-5) == pytest.approx(112.94, abs=0.01)
    theirs = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    theirs.compose(to_dp_event(ledger, "replace"))
    assert theirs.get_epsilon(1e-5) == pytest.approx(166.7, abs=0.1)


rounds_without_replacement = st.builds(
    lambda n, share, exponent, count: Group(
        "without-replacement", n, float(min(n - 1, max(1, int(share * n)))), 10.0**exponent, count
    ),
    st.sampled_from([2, 10, 50, 1000, 100_000]),
    st.floats(0.0, 1.0),
    st.floats(-2.0, 3.9),
    st.sampled_from([1, 5, 50, 1000]),
)


@settings(deadline=None)
@given(
    st.lists(rounds_without_replacement, min_size=1, max_size=3),
    st.none() | st.floats(-1.0, 3.0),
    st.sampled_from(["zero-out", "replace"]),
    st.sampled_from([1e-3, 1e-5, 1e-10, 1e-15]),
)
def test_no_credit_is_foreseen_only_where_the_library_has_none(groups, full, neighbours, delta):
    """What its ε is at least, found without it, is never above what it says."""
    groups = (*groups, *([] if full is None else [Group("all", 1, 1.0, 10.0**full, 1)]))
    assume(sampled._has_rdp(groups, neighbours))
    least = least_epsilon(sampled._replacing(groups, neighbours), delta, sampled.ORDERS)
    assert least <= float(sampled._rdp(groups, neighbours).get_epsilon(delta))


@pytest.mark.parametrize(("rate", "foreseen"), [(0.9, True), (0.7, True), (0.02, False)])
def test_the_library_is_asked_only_where_there_may_be_credit(rate, foreseen, monkeypatch):
    def asked(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(sampled, "_rdp", asked)
    ledger = WhatIf(83.5722, 10_726, 50, rate, num_devices=50).ledger()
    if not foreseen:
        with pytest.raises(AssertionError, match="asked"):
            make_accountant("sampled", ledger, "replace").epsilon(1e-5)
        return
    plain = make_accountant("gaussian", ledger, "replace").epsilon(1e-5)
    assert make_accountant("sampled", ledger, "replace").epsilon(1e-5) == plain


def test_without_replacement_at_a_small_rate_earns_a_lot():
    ledger = book([4.0] * 30, "without-replacement", 0.1)
    for neighbours in ("replace", "zero-out"):
        plain = make_accountant("gaussian", ledger, neighbours).epsilon(1e-5)
        assert make_accountant("sampled", ledger, neighbours).epsilon(1e-5) < 0.7 * plain
    # Zeroing out is one way of replacing.
    assert make_accountant("sampled", ledger, "zero-out").epsilon(1e-5) <= make_accountant(
        "sampled", ledger, "replace"
    ).epsilon(1e-5)


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=200))
def test_levels_are_rounded_down_and_few(variances):
    groups = noise_groups(book(variances), "zero-out")
    assert len(groups) <= MAX_LEVELS
    assert sum(group.count for group in groups) == len(variances)
    exact = np.sort(np.sqrt(variances))
    rounded = np.sort(np.repeat([g.multiplier for g in groups], [g.count for g in groups]))
    assert np.all(rounded <= exact * (1 + 1e-12))
    assert rounded[0] == pytest.approx(exact[0])


def test_export_reads_the_same_in_the_library():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    relations = dp_accounting.NeighboringRelation
    ledger = book([3.0, 3.0, 5.0], "all")
    for neighbours, relation in (("zero-out", relations.ADD_OR_REMOVE_ONE), ("replace", relations.REPLACE_ONE)):
        exact = make_accountant("gaussian", ledger, neighbours).epsilon(1e-5)
        pld = PLDAccountant(relation, 1e-4)
        pld.compose(to_dp_event(ledger, neighbours, "contribution"))
        assert pld.get_epsilon(1e-5) == pytest.approx(exact, rel=1e-4)
        rdp = RdpAccountant(neighboring_relation=relation)
        rdp.compose(to_dp_event(ledger, neighbours))
        assert exact < rdp.get_epsilon(1e-5) < 1.3 * exact
    silent = dataclasses.replace(ledger.events[0], noise_var=0.0, noise_power=None)
    nothing = PLDAccountant()
    nothing.compose(to_dp_event(Ledger((silent,)), "zero-out"))
    assert math.isinf(nothing.get_epsilon(1e-5))


def test_opacus_surface():
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = LedgerAccountant()
    assert accountant.get_epsilon(1e-5) == 0.0
    for _ in range(20):
        accountant.step(noise_multiplier=1.2, sample_rate=0.2)
    theirs = PLDAccountant()
    theirs.compose(PoissonSampledDpEvent(0.2, GaussianDpEvent(1.2)), 20)
    assert accountant.get_epsilon(delta=1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-3)
    assert len(accountant) == 20
    state = json.loads(json.dumps(accountant.state_dict()))
    other = LedgerAccountant("gaussian")
    other.load_state_dict(state)
    assert other.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
    assert other.mechanism() == "sampled"
    other.step(noise_multiplier=1.2, sample_rate=1.0)
    assert other.get_epsilon(1e-5) > accountant.get_epsilon(1e-5)
    state["ledger"]["events"][3]["noise_var"] = 100.0
    for broken in (state, {"ledger": state["ledger"]}):
        with pytest.raises(PrivacyError):
            other.load_state_dict(broken)
    for bad in ({"noise_multiplier": -1.0}, {"noise_multiplier": 1.0, "sample_rate": 0.0}):
        with pytest.raises(PrivacyError):
            other.step(**bad)
    with pytest.raises(PrivacyError):
        LedgerAccountant("nobody")


def test_liu2020_by_its_own_equations():
    assert inverse_c(1e-5) == pytest.approx(3.130399, abs=5e-7)
    x = inverse_c(1e-5)
    assert math.sqrt(math.pi) * x * math.exp(x * x) == pytest.approx(1e5, rel=1e-12)
    ledger = book([4.0, 9.0], "all")
    h = 0.5 * (1 / 4 + 1 / 9)
    epsilon = make_accountant("liu2020", ledger, "zero-out").epsilon(1e-5)
    assert (math.sqrt(epsilon + x * x) - x) ** 2 == pytest.approx(h, rel=1e-12)


def test_koda2020_is_the_worst_round_of_the_classical_mechanism():
    ledger = book([100.0, 25.0, 400.0], "all")
    expected = math.sqrt(2 * math.log(1.25e5)) / 5.0
    assert make_accountant("koda2020", ledger, "zero-out").epsilon(1e-5) == pytest.approx(expected)
    assert expected < 1  # where it is a theorem for one round, it holds
    assert gaussian_epsilon(1e-5, 0.2) < expected


def test_park2023_counts_gradients_as_noise_and_says_what_it_rests_on():
    ledger = book([4.0], "all")
    assert make_accountant("park2023", ledger, "zero-out").mu == pytest.approx(0.5)
    with_estimate = Ledger((dataclasses.replace(ledger.events[0], gradient_var=12.0),))
    accountant = make_accountant("park2023", with_estimate, "zero-out")
    assert accountant.mu == pytest.approx(0.25)
    assert "not a proof" in accountant.assumptions


def test_liu2024_grows_linearly_and_covers_the_exact_bound():
    question = WhatIf(1.0, 1.0, 1000, received_snr=0.5)
    half, whole = (make_accountant("liu2024", question.ledger(t), "zero-out", "base-station") for t in (500, 1000))
    assert whole.rdp(7) == pytest.approx(2 * half.rdp(7))
    exact = make_accountant("gaussian", question.ledger(), "zero-out", "base-station").epsilon(1e-5)
    assert exact <= whole.epsilon(1e-5)


def test_base_station_counts_each_devices_own_rounds():
    """Two devices take turns in being loud: each is loud half of the time only."""
    loud = [(3.0, 1.0), (1.0, 3.0)] * 5
    ledger = Ledger()
    for event, seen in zip(book([1.0] * 10, "all", n=2).events, loud, strict=True):
        ledger = ledger.append(dataclasses.replace(event, base_station=max(seen)), {"base-station": np.array(seen)})
    found = make_accountant("gaussian", ledger, "zero-out", "base-station").mu
    assert found == pytest.approx(math.sqrt(5 * (9 + 1)))
    coarse = Ledger(tuple(ledger.events))  # without sums the loudest of every round counts
    assert make_accountant("gaussian", coarse, "zero-out", "base-station").mu == pytest.approx(math.sqrt(10 * 9))


def test_credit_does_not_end_at_a_cliff():
    """r = 1e-4, replace: 0.0998 at T = 35,000 was followed by 52,755 at T = 37,000."""
    found = [
        make_accountant("sampled", WhatIf(1.0, 1.44, t, 1e-4, poisson=True).ledger(), "replace").epsilon(1e-5)
        for t in (30_000, 35_000, 37_000, 60_000, 100_000, 1_000_000)
    ]
    assert found[1] == pytest.approx(0.0998, abs=2e-4)
    assert found == sorted(found)
    assert found[2] < 1.05 * found[1]
    # Between the sum of two halves, which covers it, and one of them.
    half = make_accountant("sampled", WhatIf(1.0, 1.44, 500_000, 1e-4, poisson=True).ledger(), "replace")
    assert half.epsilon(1e-5) < found[-1] <= 2 * half.epsilon(5e-6)


@pytest.mark.parametrize(("noise_var", "rate"), [(0.02, 1e-4), (1.0, 1e-4), (25.0, 0.3), (1e4, 1e-3)])
@pytest.mark.parametrize("law", ["poisson", "without-replacement"])
def test_divergences_in_closed_form_against_the_library(noise_var, rate, law):
    """Poisson: its numbers. Without replacement: no less than Poisson, and no more than ten times its ε."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    from airfl.privacy import renyi

    rounds = 40
    sampling = Sampling(law, 10_000, rate * 10_000)
    event = RoundEvent(0, 1.0, 1.0, noise_var, "channel", 1.0, sampling, 0.1, hides_participation=True)
    groups = noise_groups(Ledger.repeated(event, rounds), "zero-out")
    ours = renyi.divergences(groups, "zero-out", (2, 4, 16, 64))
    theirs = RdpAccountant((2, 4, 16, 64), dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    poisson = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(math.sqrt(noise_var)))
    theirs.compose(poisson, rounds)
    if law == "poisson":
        assert ours == pytest.approx(theirs._rdp, rel=1e-5)
    else:
        assert np.all(ours >= theirs._rdp * (1 - 1e-5))
        plain = make_accountant("gaussian", Ledger.repeated(event, rounds), "zero-out")
        assert np.all(ours <= [plain.rdp(order) * (1 + 1e-12) for order in (2, 4, 16, 64)])


@pytest.mark.parametrize(
    ("rate", "noise_var", "delta"), [(1e-6, 1e8, 1e-13), (1e-6, 1e10, 1e-13), (1e-3, 1e12, 1e-13), (0.5, 1e15, 1e-15)]
)
def test_where_the_library_loses_its_digits(rate, noise_var, delta):
    """Its divergences there are too small or negative, and a negative one is read as ε = 0."""
    ledger = book([noise_var] * 3, "poisson", rate)
    groups = noise_groups(ledger, "zero-out")
    from airfl.privacy import renyi

    with mpmath.workdps(80):
        q, mu2 = mpmath.mpf(rate), 1 / mpmath.mpf(noise_var)
        for order in (2, 8, 64):
            terms = [
                mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(mu2 * k * (k - 1) / 2)
                for k in range(order + 1)
            ]
            true = 3 * mpmath.log(mpmath.fsum(terms)) / (order - 1)
            ours = float(renyi.divergences(groups, "zero-out", (order,))[0])
            assert true <= ours <= true * (1 + 1e-9), order
    spent = make_accountant("sampled", ledger, "zero-out").epsilon(delta)
    assert 0.0 < spent <= make_accountant("gaussian", ledger, "zero-out").epsilon(delta)


@pytest.mark.parametrize("law", [[], ["--poisson"]])
@pytest.mark.parametrize("noise", ["1e17", "1e40", "1e-20", "1e-150"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-13", "1e-5"])
def test_extreme_questions_have_answers(call, law, noise, delta):
    """dp-accounting raised `math domain error` for noise far above the sensitivity."""
    code, out, err = call(
        "epsilon", "--clip-norm", "1", "--noise-var", noise, "--rounds", "10", "--delta", delta,
        "--participation", "0.5", "--json", *law,
    )  # fmt: skip
    assert code == 0, err
    answers = json.loads(out)["accountants"]
    assert (answers["sampled"]["epsilon"] or math.inf) <= (answers["gaussian"]["epsilon"] or math.inf)


def test_a_looser_bound_comes_with_a_word():
    from airfl.privacy import compare

    far_out = WhatIf(1.0, 1e-4, 50, 1e-4, poisson=True)
    answer = compare([far_out.ledger()], 1e-5, "replace", None)["sampled"]
    assert "Rényi" in answer["note"]
    assert answer["epsilon"] <= make_accountant("gaussian", far_out.ledger(), "replace").epsilon(1e-5)
    assert "note" not in compare([WhatIf(1.0, 25.0, 50, 0.1, poisson=True).ledger()], 1e-5, None, None)["sampled"]


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("rate", "noise_var", "rounds"), [(0.1, 1.0, 30), (0.01, 0.5, 200), (1e-3, 0.3, 50), (0.5, 9, 5)]
)
def test_closed_forms_lie_above_privacy_loss_distributions(rate, noise_var, rounds, neighbours):
    from airfl.privacy import renyi

    ledger = Ledger.repeated(book([noise_var], "poisson", rate).events[0], rounds)
    tight = make_accountant("sampled", ledger, neighbours)
    for delta in (1e-3, 1e-6, 1e-9):
        assert renyi.epsilon_of(noise_groups(ledger, neighbours), neighbours, delta) >= tight.epsilon(delta) * (
            1 - 1e-6
        )
    assert renyi.delta_of(noise_groups(ledger, neighbours), neighbours, 1.0) >= tight.delta(1.0) * (1 - 1e-6)


def test_credit_at_a_smaller_delta_than_distributions_resolve():
    ledger = book([1.0] * 30, "poisson", 0.01)
    for neighbours in ("zero-out", "replace"):
        spent = [make_accountant("sampled", ledger, neighbours).epsilon(delta) for delta in (1e-11, 1e-13, 1e-20)]
        assert spent == sorted(spent)
        assert spent[-1] <= make_accountant("gaussian", ledger, neighbours).epsilon(1e-20)
