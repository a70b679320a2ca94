"""Lower bounds on ε from attacks at user level: what scores of a canary prove, whatever the ledger claims.

Nothing here knows of training. Repeated runs with the canary in and with it out give `threshold_bound` and
`gaussian_bound`; one run with many canaries gives `one_run_bound` (Steinke, Nasr & Jagielski 2023). Every bound holds
with the stated confidence over the repetitions; it refutes a claim of a smaller ε, and never confirms one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from airfl.privacy.events import check_delta, check_epsilon, require
from airfl.privacy.gaussian import gaussian_epsilon

_RANKS = 96  # Candidate thresholds per world and end of the order.


@dataclass(frozen=True)
class AuditBound:
    """What the two worlds prove, and the counts behind it.

    Attributes:
        epsilon_lower: ε is at least this at `delta`, with confidence `confidence`; 0 proves nothing.
        epsilon_ceiling: what the same numbers of scores would have proven without a single error.
        mu_lower: the same for μ of a Gaussian trade-off curve; None if none was assumed.
        delta: δ.
        confidence: how sure, over the repetitions.
        true_positive: canary in and score at or above the threshold (count, of).
        false_positive: canary out and score at or above the threshold (count, of).
        threshold: chosen on repetitions that are not among the counted.
        mirrored: the bound reads TNR ≤ e^ε FNR + δ instead of TPR ≤ e^ε FPR + δ.
    """

    epsilon_lower: float
    epsilon_ceiling: float
    mu_lower: float | None
    delta: float
    confidence: float
    true_positive: tuple[int, int]
    false_positive: tuple[int, int]
    threshold: float
    mirrored: bool = False


@dataclass(frozen=True)
class OneRunBound:
    """What the guesses on the canaries of one run prove.

    Attributes:
        epsilon_lower: ε is at least this at `delta`, with confidence `confidence`; 0 proves nothing.
        epsilon_ceiling: what as many guesses would have proven, had all been right.
        delta: δ.
        confidence: how sure, over the coins that included the canaries and the noise of the run.
        canaries: m.
        guesses: r, how many of them were guessed at all.
        correct: v, how many guesses were right.
    """

    epsilon_lower: float
    epsilon_ceiling: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int


def linear_scores(
    mu: float, repetitions: int, generator: np.random.Generator, canary_in: bool | np.ndarray
) -> np.ndarray:
    """Scores of a one-round linear Gaussian mechanism: N(μ, 1) where the canary is in, N(0, 1) where it is out."""
    require(mu >= 0.0, f"`mu` must not be negative; got {mu}")
    require(repetitions >= 1, f"`repetitions` must be at least 1; got {repetitions}")
    scores = generator.standard_normal(repetitions)
    scores += mu * np.asarray(canary_in, dtype=float)
    return scores


def clopper_pearson(successes: ArrayLike, trials: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The exact two-sided interval of a binomial proportion; each end alone fails with (1 − confidence)/2 at most."""
    _check_confidence(confidence)
    count = np.asarray(successes)
    require(trials >= 1, f"`trials` must be at least 1; got {trials}")
    require(bool(np.all((count >= 0) & (count <= trials))), f"`successes` must lie in [0, {trials}]")
    tail = (1.0 - confidence) / 2.0
    return _low(count, trials, tail), _high(count, trials, tail)


def threshold_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float = 0.95
) -> AuditBound:
    """A lower bound on ε of any mechanism: TPR ≤ e^ε FPR + δ and TNR ≤ e^ε FNR + δ hold for every threshold.

    The first third of each world chooses the threshold and which of the two to read; the rest gives the bound.

    Args:
        scores_in: independent scores with the canary in; large speaks for "in".
        scores_out: independent scores with the canary out.
    """
    first, rest = _split(scores_in, scores_out, delta, confidence)

    def plain(counts: _Counts, tail: float) -> np.ndarray:
        return _log_ratio(counts.hits, counts.number_in, counts.alarms, counts.number_out, delta, tail)

    def mirror(counts: _Counts, tail: float) -> np.ndarray:
        rejected, missed = counts.number_out - counts.alarms, counts.number_in - counts.hits
        return _log_ratio(rejected, counts.number_out, missed, counts.number_in, delta, tail)

    tail = (1.0 - confidence) / 2.0
    threshold, bound = _choose(first, (plain, mirror), tail)
    counts, perfect = rest.count(threshold), rest.told_apart()
    return AuditBound(
        epsilon_lower=max(0.0, float(bound(counts, tail))),
        epsilon_ceiling=max(0.0, float(plain(perfect, tail)), float(mirror(perfect, tail))),
        mu_lower=None,
        delta=delta,
        confidence=confidence,
        true_positive=(int(counts.hits), counts.number_in),
        false_positive=(int(counts.alarms), counts.number_out),
        threshold=threshold,
        mirrored=bound is mirror,
    )


def gaussian_bound(scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float = 0.95) -> AuditBound:
    """A lower bound on μ, and on ε through it, of a mechanism whose trade-off curve is Gaussian.

    It refutes a claim that every test of the canary obeys Φ⁻¹(TPR) − Φ⁻¹(FPR) ≤ μ, as the accountants "gaussian" and
    "convergent" claim, with far fewer repetitions than `threshold_bound`, for it need not look at the far tails. It is
    no lower bound on ε of any mechanism whatever: an ε-DP mechanism that is not Gaussian may well get more than ε here.

    Args:
        scores_in: independent scores with the canary in; large speaks for "in".
        scores_out: independent scores with the canary out.
    """
    first, rest = _split(scores_in, scores_out, delta, confidence)

    def separation(counts: _Counts, tail: float) -> np.ndarray:
        low, high = _low(counts.hits, counts.number_in, tail), _high(counts.alarms, counts.number_out, tail)
        return np.asarray(special.ndtri(low) - special.ndtri(high))

    tail = (1.0 - confidence) / 2.0
    threshold, bound = _choose(first, (separation,), tail)
    counts = rest.count(threshold)
    mu = max(0.0, float(bound(counts, tail)))
    return AuditBound(
        epsilon_lower=gaussian_epsilon(delta, mu),
        epsilon_ceiling=gaussian_epsilon(delta, max(0.0, float(separation(rest.told_apart(), tail)))),
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        true_positive=(int(counts.hits), counts.number_in),
        false_positive=(int(counts.alarms), counts.number_out),
        threshold=threshold,
    )


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How probable so many right guesses are at most, were the run (ε, δ)-DP (Steinke, Nasr & Jagielski 2023, Thm 5.2).

    With X ~ Binom(r, 1/(1 + e^−ε)): P[X ≥ v] + 2mδ · max_{1≤i≤v} P[v − i ≤ X < v]/i, and 1 at most. Computed from the
    number of wrong guesses r − X, whose probability does not round to 0 where that of a right one rounds to 1.

    Args:
        canaries: m, each included independently with probability 1/2; in and out must be neighbours of the claim.
        guesses: r.
        correct: v.
    """
    check_delta(delta)
    check_epsilon(epsilon)
    require(
        0 <= correct <= guesses <= canaries,
        f"needs 0 <= correct <= guesses <= canaries; got {correct}, {guesses}, {canaries}",
    )
    if correct == 0:
        return 1.0
    beta = float(special.betaincc(guesses - correct + 1, correct, special.expit(-epsilon)))
    wrong = np.arange(guesses - correct + 1, guesses + 1)
    log_wrong, log_right = float(special.log_expit(-epsilon)), float(special.log_expit(epsilon))
    mass = np.exp(_log_binomials(guesses)[wrong] + wrong * log_wrong + (guesses - wrong) * log_right)
    alpha = float(np.max(np.cumsum(mass) / np.arange(1, correct + 1)))
    return min(1.0, beta + 2.0 * canaries * delta * alpha)


def one_run_bound(
    scores: np.ndarray, included: np.ndarray, guesses: int, delta: float, confidence: float = 0.95
) -> OneRunBound:
    """A lower bound on ε from one run: the highest r/2 scores are guessed in, the lowest r/2 out, the rest not at all.

    Args:
        scores: one per canary; large speaks for "in". Equal ones are taken in their order.
        included: whether each canary took part: independent fair coins.
        guesses: r, even; fixed before the scores are seen, say by `best_guesses`.
    """
    check_delta(delta)
    _check_confidence(confidence)
    values = _checked(scores, "scores")
    coins = np.asarray(included)
    require(coins.shape == values.shape, f"`included` must have one entry per score; got {coins.shape}, {values.shape}")
    require(bool(np.all((coins == 0) | (coins == 1))), "`included` must be true or false")
    canaries = len(values)
    require(
        2 <= guesses <= canaries and guesses % 2 == 0,
        f"`guesses` must be even, at least 2 and at most the {canaries} canaries; got {guesses}",
    )
    order = np.argsort(values, kind="stable")
    half = guesses // 2
    correct = int(np.count_nonzero(coins[order[-half:]])) + half - int(np.count_nonzero(coins[order[:half]]))
    return OneRunBound(
        epsilon_lower=_refuted_epsilon(canaries, guesses, correct, delta, confidence),
        epsilon_ceiling=_refuted_epsilon(canaries, guesses, guesses, delta, confidence),
        delta=delta,
        confidence=confidence,
        canaries=canaries,
        guesses=guesses,
        correct=correct,
    )


@lru_cache(maxsize=64)
def best_guesses(mu: float, canaries: int, delta: float, confidence: float = 0.95) -> int:
    """The r with the largest mean bound if the scores are N(μ, 1) for canaries in and N(0, 1) for canaries out.

    To be asked beforehand, with the μ of the ledger, never of the scores: the bound is void if r depends on them.
    """
    check_delta(delta)
    _check_confidence(confidence)
    require(mu >= 0.0 and np.isfinite(mu), f"`mu` must be finite and not negative; got {mu}")
    require(canaries >= 2, f"needs at least 2 canaries; got {canaries}")
    halves = np.unique(np.geomspace(1, canaries // 2, 48).astype(int))[::-1]  # Equal means go to more guesses.
    strata = np.array([1.0, 3.0, 5.0]) / 6.0
    means = np.zeros(len(halves))
    # More or fewer than half of the canaries are in: where nearly all are guessed, that alone makes guesses wrong.
    for excess in special.ndtri(0.5 + 0.5 * strata) * 0.5 / np.sqrt(canaries):
        shares = (0.5 + min(excess, 0.5), 0.5 - min(excess, 0.5))
        right = 0.5 * (_accuracy(mu, shares[0], halves / canaries) + _accuracy(mu, shares[1], halves / canaries))
        for index, half in enumerate(halves):
            for correct in stats.binom.ppf(strata, 2 * half, right[index]):
                means[index] += _refuted_epsilon(canaries, int(2 * half), int(correct), delta, confidence, 1e-3)
    return int(2 * halves[np.argmax(means)])


def _accuracy(mu: float, share: float, fractions: np.ndarray) -> np.ndarray:
    """The share of "in" among the highest scores if it is `share` among all; so too for "out" among the lowest."""
    low, high = np.full(len(fractions), -40.0), np.full(len(fractions), mu + 40.0)
    for _ in range(60):
        cut = 0.5 * (low + high)
        above = share * special.ndtr(mu - cut) + (1.0 - share) * special.ndtr(-cut) > fractions
        low, high = np.where(above, cut, low), np.where(above, high, cut)
    hits = share * special.ndtr(mu - high)
    return np.asarray(hits / (hits + (1.0 - share) * special.ndtr(-high)))


@dataclass(frozen=True)
class _Counts:
    """Scores at or above one threshold, or several."""

    hits: np.ndarray
    number_in: int
    alarms: np.ndarray
    number_out: int


@dataclass(frozen=True)
class _Worlds:
    """Scores of both worlds."""

    scores_in: np.ndarray
    scores_out: np.ndarray

    def count(self, threshold: float) -> _Counts:
        """The counts at one threshold."""
        hits, alarms = (np.asarray(np.count_nonzero(x >= threshold)) for x in (self.scores_in, self.scores_out))
        return _Counts(hits, len(self.scores_in), alarms, len(self.scores_out))

    def told_apart(self) -> _Counts:
        """The counts at a threshold that lies between all scores of one world and all of the other."""
        return _Counts(np.asarray(len(self.scores_in)), len(self.scores_in), np.asarray(0), len(self.scores_out))


_Bound = Callable[[_Counts, float], np.ndarray]


def _check_confidence(confidence: float) -> None:
    require(0.0 < confidence < 1.0, f"`confidence` must lie in (0, 1); got {confidence}. Typical: 0.95.")


def _checked(scores: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(scores)
    require(values.ndim == 1 and len(values) > 0, f"`{name}` must be a list of at least one score")
    require(not np.isnan(values).any(), f"`{name}` holds scores that are not numbers")
    return values


def _split(scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float) -> tuple[_Worlds, _Worlds]:
    """The repetitions that choose, and those that count."""
    check_delta(delta)
    _check_confidence(confidence)
    values_in, values_out = _checked(scores_in, "scores_in"), _checked(scores_out, "scores_out")
    require(min(len(values_in), len(values_out)) >= 3, "each world needs at least 3 repetitions: 1 chooses, 2 count")
    # One type for both, or a threshold would round differently in the two worlds.
    kind = np.result_type(values_in, values_out, np.float32)
    values_in, values_out = values_in.astype(kind, copy=False), values_out.astype(kind, copy=False)
    cut_in, cut_out = len(values_in) // 3, len(values_out) // 3
    return _Worlds(values_in[:cut_in], values_out[:cut_out]), _Worlds(values_in[cut_in:], values_out[cut_out:])


def _choose(worlds: _Worlds, bounds: tuple[_Bound, ...], tail: float) -> tuple[float, _Bound]:
    """The threshold, one of these scores, and the bound with which they prove most themselves.

    What they prove is taken at a confidence that holds for all candidates at once. At that of a single one, a lucky
    score in the far tails would win too often, and its threshold prove nothing on the other repetitions.
    """
    ordered_in, ordered_out = np.sort(worlds.scores_in), np.sort(worlds.scores_out)
    candidates = np.unique(np.concatenate([_spread(ordered_in), _spread(ordered_out)]))
    counts = _Counts(
        len(ordered_in) - np.searchsorted(ordered_in, candidates),
        len(ordered_in),
        len(ordered_out) - np.searchsorted(ordered_out, candidates),
        len(ordered_out),
    )
    found = np.stack([bound(counts, tail / (len(candidates) * len(bounds))) for bound in bounds])
    which, best = np.unravel_index(np.argmax(found), found.shape)
    return float(candidates[best]), bounds[which]


def _spread(ordered: np.ndarray) -> np.ndarray:
    """Scores at ranks that grow geometrically from either end."""
    ranks = np.unique(np.geomspace(1, len(ordered), _RANKS).astype(int))
    return np.concatenate([ordered[ranks - 1], ordered[-ranks]])


def _low(count: np.ndarray, trials: int, tail: float) -> np.ndarray:
    """The largest proportion below those that would give so many successes with probability `tail`, or 0."""
    return np.where(count == 0, 0.0, special.betaincinv(np.maximum(count, 1), trials - count + 1, tail))


def _high(count: np.ndarray, trials: int, tail: float) -> np.ndarray:
    """The upper counterpart of `_low`, or 1."""
    return np.where(count == trials, 1.0, special.betainccinv(count + 1, np.maximum(trials - count, 1), tail))


def _log_ratio(hits: np.ndarray, trials: int, alarms: np.ndarray, others: int, delta: float, tail: float) -> np.ndarray:
    """log((P_low − δ)/Q_high); very negative where P_low ≤ δ."""
    gain = np.maximum(_low(hits, trials, tail) - delta, np.finfo(float).tiny)
    return np.asarray(np.log(gain) - np.log(_high(alarms, others, tail)))


@lru_cache(maxsize=8)
def _log_binomials(number: int) -> np.ndarray:
    """log C(n, k) for k = 0 … n."""
    factorials = special.gammaln(np.arange(number + 1) + 1.0)
    logs = np.asarray(factorials[-1] - factorials - factorials[::-1])
    logs.setflags(write=False)
    return logs


def _refuted_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float, tolerance: float = 1e-12
) -> float:
    """The largest ε whose p-value is at most 1 − confidence, from below; 0 if there is none."""

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) <= 1.0 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2.0 * high
    while high - low > tolerance * max(1.0, high):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
