"""Lower bounds on ε: never above the truth more often than stated, and near it where the literature says so."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airfl.privacy.auditing import (
    AuditBound,
    best_guesses,
    clopper_pearson,
    gaussian_bound,
    linear_scores,
    one_run_bound,
    one_run_p_value,
    threshold_bound,
)
from airfl.privacy.events import PrivacyError
from airfl.privacy.gaussian import gaussian_epsilon, gaussian_mu
from airfl.privacy.looks import Look, best, pooled, read_looks

BOUNDS = [threshold_bound, gaussian_bound]


def worlds(mu: float, repetitions: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return linear_scores(mu, repetitions, generator, True), linear_scores(mu, repetitions, generator, False)


def coins(canaries: int, generator: np.random.Generator) -> np.ndarray:
    return generator.random(canaries) < 0.5


def published_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Appendix D of Steinke, Nasr & Jagielski (2023), line by line."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = stats.binom.sf(v - 1, r, q)
    alpha, total = 0.0, 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        if total > i * alpha:
            alpha = total / i
    return min(float(beta + alpha * delta * 2 * m), 1.0)


# Clopper and Pearson


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(0.5, 0.999))
def test_clopper_pearson_against_scipy(trials, share, confidence):
    counts = np.array([0, round(share * trials), trials])
    low, high = clopper_pearson(counts, trials, confidence)
    for index, count in enumerate(counts):
        exact = stats.binomtest(int(count), trials).proportion_ci(confidence, method="exact")
        assert low[index] == pytest.approx(exact.low, rel=1e-9, abs=1e-15)
        assert high[index] == pytest.approx(exact.high, rel=1e-9, abs=1e-15)
    assert low[0] == 0.0
    assert high[-1] == 1.0


def test_clopper_pearson_of_ten_million():
    """By the defining tails, where scipy's root finding is not asked."""
    trials = 10_000_000
    counts = np.array([1, 40, 50_000, trials // 2, trials - 3])
    low, high = clopper_pearson(counts, trials, 0.9)
    np.testing.assert_allclose(stats.binom.sf(counts - 1, trials, low), 0.05, rtol=1e-5)
    np.testing.assert_allclose(stats.binom.cdf(counts, trials, high), 0.05, rtol=1e-5)


# Two worlds


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("mu", "delta", "repetitions"), [(0.5, 0.05, 3000), (1.0, 0.01, 20_000), (3.0, 1e-5, 2000)])
def test_the_truth_is_passed_at_most_as_often_as_stated(bound, mu, delta, repetitions):
    generator = np.random.default_rng(7)
    truth = gaussian_epsilon(delta, mu)
    passed = sum(bound(*worlds(mu, repetitions, generator), delta).epsilon_lower > truth for _ in range(300))
    assert passed <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05)


def test_the_truth_is_passed_at_most_as_often_as_stated_at_low_confidence():
    """At 50 % there is something to count: the bound is not valid merely because it is always tiny."""
    generator = np.random.default_rng(8)
    mu, delta = 1.0, 0.05
    truth = gaussian_epsilon(delta, mu)
    for bound in BOUNDS:
        found = [bound(*worlds(mu, 5000, generator), delta, 0.5).epsilon_lower for _ in range(300)]
        passed = sum(epsilon > truth for epsilon in found)
        assert 0 < passed <= 300 * 0.5
        assert np.median(found) > 0.8 * truth


def test_the_counted_repetitions_do_not_choose():
    """The threshold depends on the first third alone, the counts on the rest alone."""
    generator = np.random.default_rng(3)
    scores_in, scores_out = worlds(1.0, 9000, generator)
    for bound in BOUNDS:
        found = bound(scores_in, scores_out, 1e-3)
        other_in, other_out = scores_in.copy(), scores_out.copy()
        other_in[3000:], other_out[3000:] = worlds(0.0, 6000, generator)
        other = bound(other_in, other_out, 1e-3)
        assert other.threshold == found.threshold
        assert other.epsilon_lower < found.epsilon_lower
        assert found.true_positive == (np.count_nonzero(scores_in[3000:] >= found.threshold), 6000)
        assert found.false_positive == (np.count_nonzero(scores_out[3000:] >= found.threshold), 6000)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_follows_from_its_counts(seed):
    generator = np.random.default_rng(seed)
    scores_in, scores_out = worlds(1.0, 20_000, generator)
    delta = 1e-3
    found = threshold_bound(scores_in, scores_out, delta)
    (hits, number_in), (alarms, number_out) = found.true_positive, found.false_positive
    if found.mirrored:
        hits, number_in, alarms, number_out = number_out - alarms, number_out, number_in - hits, number_in
    low = stats.binomtest(hits, number_in).proportion_ci(0.95).low
    high = stats.binomtest(alarms, number_out).proportion_ci(0.95).high
    assert found.epsilon_lower == pytest.approx(math.log((low - delta) / high), rel=1e-9)
    assert found.mu_lower is None

    found = gaussian_bound(scores_in, scores_out, delta)
    low = stats.binomtest(*found.true_positive).proportion_ci(0.95).low
    high = stats.binomtest(*found.false_positive).proportion_ci(0.95).high
    assert found.mu_lower == pytest.approx(stats.norm.ppf(low) - stats.norm.ppf(high), rel=1e-9)
    assert found.epsilon_lower == gaussian_epsilon(delta, found.mu_lower)


def test_both_inequalities_are_used():
    """A canary that lifts one score in a hundred far up is seen from above; the reverse only from below."""
    generator = np.random.default_rng(1)
    quiet, lifted = generator.standard_normal(30_000), generator.standard_normal(30_000)
    lifted[generator.random(30_000) < 0.01] += 9.0
    found, mirrored = threshold_bound(lifted, quiet, 1e-5), threshold_bound(-quiet, -lifted, 1e-5)
    assert not found.mirrored
    assert mirrored.mirrored
    # At best no false alarm of 20 000: log(0.01 · 20 000/log 40), less what the hits lose.
    assert min(found.epsilon_lower, mirrored.epsilon_lower) > 3.0
    assert max(found.epsilon_lower, mirrored.epsilon_lower) < math.log(200 / math.log(40))


@pytest.mark.parametrize(
    ("mu", "delta", "repetitions"),
    [(0.268051, 1e-5, 20_000_000), (1.0, 1e-3, 2_000_000), (0.268051, 1e-3, 2_000_000), (1.0, 1e-2, 200_000)],
)
def test_threshold_bound_reaches_85_percent(mu, delta, repetitions):
    found = threshold_bound(*worlds(mu, repetitions, np.random.default_rng(0)), delta)
    truth = gaussian_epsilon(delta, mu)
    assert 0.85 * truth <= found.epsilon_lower <= truth


@pytest.mark.parametrize(("mu", "repetitions"), [(0.27, 300_000), (1.0, 100_000), (3.0, 20_000)])
def test_gaussian_bound_reaches_85_percent(mu, repetitions):
    truth = gaussian_epsilon(1e-5, mu)
    for seed in range(10):
        found = gaussian_bound(*worlds(mu, repetitions, np.random.default_rng(seed)), 1e-5)
        assert 0.85 * truth <= found.epsilon_lower <= truth * 1.01
        assert found.mu_lower == pytest.approx(mu, rel=0.15)


def test_twice_the_claimed_leak_is_caught():
    """Noise of half the booked deviation, at the claim ε = 1: no repetition lets it pass."""
    mu = gaussian_mu(1.0, 1e-5)
    for seed in range(20):
        assert gaussian_bound(*worlds(2 * mu, 20_000, np.random.default_rng(seed)), 1e-5).epsilon_lower > 1.0
        assert threshold_bound(*worlds(2 * mu, 200_000, np.random.default_rng(seed)), 1e-5).epsilon_lower > 1.0


@pytest.mark.parametrize("bound", BOUNDS)
def test_no_effect_proves_nothing(bound):
    generator = np.random.default_rng(5)
    found = [bound(*worlds(0.0, 2000, generator), 1e-5).epsilon_lower for _ in range(200)]
    assert np.mean(np.equal(found, 0.0)) >= 0.95


def test_randomised_response():
    """Discrete scores. ε = 1 exactly: the threshold test stays below; the Gaussian reading does not hold for it."""
    generator = np.random.default_rng(2)
    truthful = 1 / (1 + math.exp(-1.0))
    scores_in = (generator.random(100_000) < truthful).astype(int)
    scores_out = (generator.random(100_000) >= truthful).astype(int)
    assert 0.95 < threshold_bound(scores_in, scores_out, 1e-5).epsilon_lower < 1.0
    assert gaussian_bound(scores_in, scores_out, 1e-5).epsilon_lower > 4.0


def test_extreme_worlds():
    """Worlds apart, equal scores, infinite scores, few and unequally many repetitions."""
    far = threshold_bound(np.full(300, np.inf), np.full(6000, -np.inf), 1e-5)
    assert far.true_positive == (200, 200)
    assert far.false_positive == (0, 4000)
    assert far.epsilon_lower == pytest.approx(math.log(4000 / math.log(40)), rel=0.02)
    assert gaussian_bound(np.ones(300), np.zeros(300), 1e-5).mu_lower == pytest.approx(2 * 2.09, rel=0.01)
    for bound in BOUNDS:
        assert bound(np.zeros(300), np.zeros(300), 1e-5).epsilon_lower == 0.0
        assert bound(np.ones(3), np.zeros(3), 1e-5).epsilon_lower == 0.0
        assert bound(np.zeros(3000), np.ones(3000), 1e-5).epsilon_lower == 0.0


def test_mixed_precision_uses_one_threshold():
    scores = np.random.default_rng(4).standard_normal(6000)
    for bound in BOUNDS:
        found = bound(scores.astype(np.float32), scores.astype(np.float32).astype(float), 1e-5)
        assert found.true_positive == found.false_positive
        assert found.epsilon_lower == 0.0


# One run


@given(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1), st.floats(0, 12), st.floats(-9, -1))
def test_p_value_against_the_published_loop(canaries, guessed, right, epsilon, log_delta):
    guesses = round(guessed * canaries)
    correct = round(right * guesses)
    found = one_run_p_value(canaries, guesses, correct, epsilon, 10.0**log_delta)
    assert found == pytest.approx(published_p_value(canaries, guesses, correct, epsilon, 10.0**log_delta), rel=1e-8)


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0, 1), st.floats(-9, -1))
def test_p_value_grows_with_epsilon_and_falls_with_right_guesses(canaries, guessed, right, log_delta):
    guesses = max(1, round(guessed * canaries))
    correct = round(right * guesses)
    delta = 10.0**log_delta
    values = [one_run_p_value(canaries, guesses, correct, epsilon, delta) for epsilon in (*np.linspace(0, 50, 41), 800)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert np.all(np.diff(values) >= -1e-10)
    assert values[-1] == 1.0
    assert one_run_p_value(canaries, guesses, 0, 1.0, delta) == 1.0
    value = one_run_p_value(canaries, guesses, correct, 1.0, delta)
    assert one_run_p_value(canaries, guesses, correct, 1.0, delta / 10) <= value
    if correct < guesses:
        assert one_run_p_value(canaries, guesses, correct + 1, 1.0, delta) <= value + 1e-10


def test_p_value_at_large_epsilon_and_many_guesses():
    """One wrong guess of 10^5 at ε = 11: P[X ≥ r − 1] = (1−p)^r + r p (1−p)^(r−1)."""
    guesses, wrong = 100_000, 1 / (1 + math.exp(11.0))
    none = math.exp(guesses * math.log1p(-wrong))
    exact = none + guesses * wrong * none / (1 - wrong)
    assert one_run_p_value(guesses, guesses, guesses - 1, 11.0, 1e-30) == pytest.approx(exact, rel=1e-9)
    for epsilon in (36.0, 40.0, 50.0):
        assert one_run_p_value(guesses, guesses, guesses, epsilon, 1e-5) == pytest.approx(1.0, abs=1e-9)


def test_one_run_bound_is_the_edge_of_what_is_refuted():
    generator = np.random.default_rng(0)
    included = coins(1000, generator)
    found = one_run_bound(linear_scores(2.0, 1000, generator, included), included, 200, 1e-5, 0.95)
    assert (found.canaries, found.guesses, found.delta, found.confidence) == (1000, 200, 1e-5, 0.95)
    assert one_run_p_value(1000, 200, found.correct, found.epsilon_lower, 1e-5) <= 0.05 + 1e-12
    assert one_run_p_value(1000, 200, found.correct, found.epsilon_lower + 1e-6, 1e-5) > 0.05


def test_one_run_guesses_the_ends_of_the_order():
    scores = np.array([5.0, 1.0, 4.0, 0.0, 3.0, 2.0])
    assert one_run_bound(scores, scores > 2.5, 6, 1e-5).correct == 6
    assert one_run_bound(scores, scores < 2.5, 6, 1e-5).correct == 0
    assert one_run_bound(scores, np.array([1, 1, 1, 0, 1, 0]), 2, 1e-5).correct == 2
    assert one_run_bound(scores, np.array([1, 1, 1, 0, 1, 0]), 4, 1e-5).correct == 3


@pytest.mark.parametrize(("mu", "delta", "positive"), [(0.5, 1e-4, 0.5), (1.0, 1e-5, 0.95), (3.0, 1e-5, 1.0)])
def test_one_run_passes_the_truth_at_most_as_often_as_stated(mu, delta, positive):
    """And proves something about a leaky mechanism."""
    generator = np.random.default_rng(11)
    canaries, truth = 1000, gaussian_epsilon(delta, mu)
    guesses = best_guesses(mu, canaries, delta, 0.95)
    found = []
    for _ in range(300):
        included = coins(canaries, generator)
        scores = linear_scores(mu, canaries, generator, included)
        found.append(one_run_bound(scores, included, guesses, delta).epsilon_lower)
    assert np.sum(np.array(found) > truth) <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05)
    assert np.mean(np.array(found) > 0.0) >= positive


def test_one_run_of_randomised_response_reaches_the_truth():
    """The mechanism for which the theorem is tight: every canary answers for itself, truthfully with e^ε/(1 + e^ε)."""
    generator = np.random.default_rng(12)
    found = []
    for _ in range(200):
        included = coins(2000, generator)
        answers = included ^ (generator.random(2000) > 1 / (1 + math.exp(-2.0)))
        found.append(one_run_bound(answers.astype(float), included, 1000, 1e-9).epsilon_lower)
    assert np.sum(np.array(found) > 2.0) <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05)
    assert np.median(found) > 0.85 * 2.0


@pytest.mark.parametrize(("mu", "canaries"), [(0.5, 10_000), (0.268051, 100_000)])
def test_one_run_catches_twice_the_claimed_leak(mu, canaries):
    """The number of guesses comes from the claim, as it must."""
    generator = np.random.default_rng(13)
    claim = gaussian_epsilon(1e-5, mu)
    guesses = best_guesses(mu, canaries, 1e-5, 0.95)
    caught = 0
    for _ in range(20):
        included = coins(canaries, generator)
        scores = linear_scores(2 * mu, canaries, generator, included)
        caught += one_run_bound(scores, included, guesses, 1e-5).epsilon_lower > claim
    assert caught >= 16


def test_one_run_without_effect_proves_nothing():
    generator = np.random.default_rng(14)
    found = []
    for _ in range(300):
        included = coins(500, generator)
        found.append(one_run_bound(generator.standard_normal(500), included, 100, 1e-5).epsilon_lower)
    assert np.mean(np.equal(found, 0.0)) >= 0.93


@pytest.mark.parametrize(("mu", "canaries"), [(0.5, 2000), (1.0, 1000), (3.0, 500), (10.0, 500)])
def test_best_guesses_is_near_the_best(mu, canaries):
    """Against simulation over a grid of r, which no auditor may do with the scores of the run."""
    generator = np.random.default_rng(15)
    guesses = best_guesses(mu, canaries, 1e-5, 0.95)
    assert guesses % 2 == 0
    assert 2 <= guesses <= canaries
    grid = [guesses, *(2 * np.unique(np.geomspace(4, canaries // 2, 12).astype(int)))]
    total = np.zeros(len(grid))
    for _ in range(40):
        included = coins(canaries, generator)
        scores = linear_scores(mu, canaries, generator, included)
        total += [one_run_bound(scores, included, int(r), 1e-5).epsilon_lower for r in grid]
    assert total[0] >= 0.93 * total.max()


def test_best_guesses_of_a_hopeless_audit():
    assert best_guesses(0.0, 101, 1e-5, 0.95) % 2 == 0
    assert best_guesses(0.3, 2, 1e-5, 0.95) == 2


# Refusals


def refusals():
    good = np.arange(10.0)
    bad = good.copy()
    bad[3] = np.nan
    for bound in BOUNDS:
        yield lambda bound=bound: bound(np.array([]), good, 1e-5)
        yield lambda bound=bound: bound(good, np.array([]), 1e-5)
        yield lambda bound=bound: bound(good[:2], good, 1e-5)
        yield lambda bound=bound: bound(bad, good, 1e-5)
        yield lambda bound=bound: bound(good, bad, 1e-5)
        yield lambda bound=bound: bound(good.reshape(2, 5), good, 1e-5)
        for delta in (0.0, 1.0, -1e-5, math.nan):
            yield lambda bound=bound, delta=delta: bound(good, good, delta)
        for confidence in (0.0, 1.0, 95.0, math.nan):
            yield lambda bound=bound, confidence=confidence: bound(good, good, 1e-5, confidence)
    for scores, included, guesses, delta, confidence in [
        (np.array([]), np.array([]), 2, 1e-5, 0.95),
        (bad, good > 5, 2, 1e-5, 0.95),
        (good, good[:9] > 5, 2, 1e-5, 0.95),
        (good, good, 2, 1e-5, 0.95),
        (good, good > 5, 3, 1e-5, 0.95),
        (good, good > 5, 0, 1e-5, 0.95),
        (good, good > 5, 12, 1e-5, 0.95),
        (good, good > 5, 2, 0.0, 0.95),
        (good, good > 5, 2, 1e-5, 1.0),
    ]:
        yield lambda a=(scores, included, guesses, delta, confidence): one_run_bound(*a)
    for arguments in [(10, 5, 6, 1.0, 1e-5), (10, 11, 5, 1.0, 1e-5), (10, 5, -1, 1.0, 1e-5), (10, 5, 5, -1.0, 1e-5)]:
        yield lambda arguments=arguments: one_run_p_value(*arguments)
    yield lambda: one_run_p_value(10, 5, 5, 1.0, 0.0)
    yield lambda: best_guesses(math.inf, 10, 1e-5, 0.95)
    yield lambda: best_guesses(-1.0, 10, 1e-5, 0.95)
    yield lambda: best_guesses(1.0, 1, 1e-5, 0.95)
    yield lambda: best_guesses(1.0, 10, 1e-5, 1.5)
    yield lambda: clopper_pearson(3, 2, 0.95)
    yield lambda: clopper_pearson(-1, 2, 0.95)
    yield lambda: clopper_pearson(0, 0, 0.95)
    yield lambda: clopper_pearson(1, 2, 1.0)
    yield lambda: linear_scores(-1.0, 5, np.random.default_rng(0), True)
    yield lambda: linear_scores(1.0, 0, np.random.default_rng(0), True)


@pytest.mark.parametrize("call", list(refusals()))
def test_refusals(call):
    with pytest.raises(PrivacyError):
        call()


def test_bounds_are_frozen():
    found = gaussian_bound(np.ones(9), np.zeros(9), 1e-5)
    assert isinstance(found, AuditBound)
    with pytest.raises(AttributeError):
        found.epsilon_lower = 3.0  # type: ignore[misc]


# Several looks


def look(name: str, mu: float, repetitions: np.ndarray, generator: np.random.Generator, middle: float = 0.0) -> Look:
    both = worlds(mu, len(repetitions), generator)
    return Look(name, "model", both[0] + middle, both[1] + middle, repetitions)


@pytest.mark.parametrize("reading", BOUNDS)
def test_several_looks_hold_together(reading):
    """Six looks at one mechanism: the best of them lies above the truth no more often than stated."""
    mu, delta, above = 1.0, 1e-2, 0
    for seed in range(300):
        generator = np.random.default_rng(seed)
        looks = [look(str(kind), mu, np.arange(kind, 600, 6), generator) for kind in range(6)]
        bounds = read_looks([pooled(looks), *looks], reading, delta, 0.9)
        assert all(bound.confidence == 0.9 for bound in bounds.values())
        above += best(bounds).epsilon_lower > gaussian_epsilon(delta, mu)
    assert above <= 300 * 0.1


def test_looks_with_other_middles_are_pooled():
    """Scores of other kinds may lie elsewhere; each is taken around its own middle, from those that do not count."""
    generator = np.random.default_rng(0)
    looks = [look(str(kind), 2.0, np.arange(kind, 3000, 3), generator, middle=100.0 * kind) for kind in range(3)]
    together = pooled(looks)
    assert np.array_equal(together.which, np.arange(3000))
    assert gaussian_bound(together.scores_in, together.scores_out, 1e-2).mu_lower > 1.7
    raw = [np.concatenate([getattr(item, world) for item in looks]) for world in ("scores_in", "scores_out")]
    assert gaussian_bound(*raw, 1e-2).mu_lower < 1.0
    shifted = [replace(item, scores_out=np.where(item.which < 1000, item.scores_out, 5.0)) for item in looks]
    assert np.array_equal(pooled(shifted).scores_in, together.scores_in)


# What could have been seen


@pytest.mark.parametrize("bound", BOUNDS)
@given(st.integers(3, 3000), st.floats(1e-9, 0.1), st.floats(0.5, 0.999))
def test_the_ceiling_is_what_worlds_that_are_told_apart_prove(bound, repetitions, delta, confidence):
    found = bound(np.ones(repetitions), np.zeros(repetitions), delta, confidence)
    assert found.true_positive == (found.true_positive[1],) * 2
    assert found.false_positive[0] == 0
    assert found.epsilon_lower == found.epsilon_ceiling
    same = bound(np.zeros(repetitions), np.zeros(repetitions), delta, confidence)
    assert same.epsilon_lower == 0.0
    assert same.epsilon_ceiling == found.epsilon_ceiling


@given(st.integers(3, 300), st.integers(3, 300), st.floats(1e-9, 0.1), st.floats(0.5, 0.999))
def test_the_ceiling_of_worlds_that_differ_in_size(number_in, number_out, delta, confidence):
    """By hand: no error at all in the two thirds that count, read the better way round."""
    counted_in, counted_out = number_in - number_in // 3, number_out - number_out // 3
    low_in, low_out = (clopper_pearson(n, n, confidence)[0] for n in (counted_in, counted_out))
    high_in, high_out = (clopper_pearson(0, n, confidence)[1] for n in (counted_in, counted_out))
    ratios = [(low_in - delta) / high_out, (low_out - delta) / high_in]
    found = threshold_bound(np.ones(number_in), np.zeros(number_out), delta, confidence)
    assert found.epsilon_ceiling == pytest.approx(math.log(max(1.0, *ratios)), abs=1e-9)
    assert found.epsilon_lower <= found.epsilon_ceiling
    curve = gaussian_bound(np.ones(number_in), np.zeros(number_out), delta, confidence)
    mu = max(0.0, stats.norm.ppf(low_in) - stats.norm.ppf(high_out))
    assert curve.epsilon_ceiling == pytest.approx(gaussian_epsilon(delta, float(mu)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
@given(st.integers(0, 2**32), st.integers(3, 400), st.integers(3, 400), st.floats(0, 9), st.floats(1e-9, 0.1))
def test_no_bound_lies_above_its_ceiling(bound, seed, number_in, number_out, mu, delta):
    generator = np.random.default_rng(seed)
    both = linear_scores(mu, number_in, generator, True), linear_scores(mu, number_out, generator, False)
    found = bound(*both, delta)
    assert 0.0 <= found.epsilon_lower <= found.epsilon_ceiling


@pytest.mark.parametrize("bound", BOUNDS)
def test_more_repetitions_raise_the_ceiling(bound):
    ceilings = [bound(np.zeros(n), np.zeros(n), 1e-3).epsilon_ceiling for n in (3, 12, 50, 200, 1000, 10_000, 100_000)]
    assert ceilings[0] == 0.0
    assert all(np.diff(ceilings) > 0)


@given(st.integers(1, 500), st.data(), st.floats(1e-12, 1e-3), st.floats(0.5, 0.99))
def test_the_ceiling_of_one_run(half, data, delta, confidence):
    """Every guess right: the canaries in have the highest scores."""
    canaries, guesses = 2 * half, 2 * data.draw(st.integers(1, half))
    included = np.arange(canaries) >= half
    perfect = one_run_bound(included.astype(float), included, guesses, delta, confidence)
    assert perfect.correct == guesses
    assert perfect.epsilon_lower == perfect.epsilon_ceiling
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    found = one_run_bound(generator.standard_normal(canaries), included, guesses, delta, confidence)
    assert found.epsilon_lower <= found.epsilon_ceiling == perfect.epsilon_ceiling


def test_more_canaries_raise_the_ceiling_of_one_run():
    ceilings = []
    for canaries in (2, 6, 10, 50, 200, 1000, 5000):
        included = np.arange(canaries) % 2 == 0
        ceilings.append(one_run_bound(np.zeros(canaries), included, canaries, 1e-6).epsilon_ceiling)
    assert ceilings[0] == 0.0
    assert all(np.diff(ceilings) > 0)
    # All of r guesses right: (1 + e^-ε)^-r = 0.05 where δ plays no part.
    assert one_run_bound(np.arange(50.0), included[:50], 50, 1e-12).epsilon_ceiling == pytest.approx(
        -math.log(0.05 ** (-1 / 50) - 1)
    )


@pytest.mark.parametrize("reading", BOUNDS)
def test_the_ceiling_of_several_looks_is_that_of_all(reading):
    """The look that proves most here is not the one that could have proven most."""
    generator = np.random.default_rng(1)
    looks = [look("many", 0.0, np.arange(3000), generator), look("few", 3.0, np.arange(60), generator)]
    bounds = read_looks(looks, reading, 1e-3, 0.95)
    found = best(bounds)
    assert bounds["few"].epsilon_lower == found.epsilon_lower > bounds["many"].epsilon_lower
    assert found.epsilon_ceiling == bounds["many"].epsilon_ceiling > bounds["few"].epsilon_ceiling
    told_apart = [replace(item, scores_in=1 + 0 * item.scores_in, scores_out=0 * item.scores_out) for item in looks]
    assert best(read_looks(told_apart, reading, 1e-3, 0.95)).epsilon_lower == found.epsilon_ceiling
