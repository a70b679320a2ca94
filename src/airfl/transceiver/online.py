"""Spending the privacy budget round by round, when the channels to come are not known.

minimise Σ q_t² subject to q_t ≥ π_t and Σ 1/q_t² ≤ A, where q_t may depend on π_0..π_t only.

Each round solves the offline problem with the rounds to come replaced by a law of π. With R_t left of the budget for
n_t rounds, this one included, the level m solves 1/m² + (n_t − 1)·E[1/max(π, m)²] = R_t, and q_t = max(π_t, m). If the
law is right the level hardly moves from round to round; whatever the law, what was not spent is there for later rounds.

The law is only advice. Two things hold for every sequence of channels and every law, however wrong:
the sum never exceeds A, not by one ulp, and q_t² ≤ max(π_t², T/(κA)) up to rounding, because each round to come keeps κ
of an equal share A/T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from airfl.errors import InputError

#: Equally likely values that stand for the error of one prediction.
_NODES = 8


class Knowledge(Protocol):
    """What is assumed about the minimum norms to come."""

    @property
    def reserve(self) -> float:
        """κ in (0, 1]: the fraction of an equal share A/T that each round to come keeps."""
        ...

    def future(self, seen: torch.Tensor, rounds_left: int) -> torch.Tensor:
        """Equally likely values of a later π, ascending, [..., S] with S ≥ 1, broadcastable to the batch.

        Args:
            seen: π_0..π_t, [..., t + 1].
            rounds_left: n_t ≥ 2, this round included.
        """
        ...


@dataclass(frozen=True)
class KnownLaw:
    """The fading law, as equally likely values of π (draws or quantiles; a few hundred are enough).

    Attributes:
        samples: π > 0, [..., S], broadcastable to the batch; kept in ascending order.
        reserve: κ, the price limit of a wrong law.
    """

    samples: torch.Tensor
    reserve: float = 0.1

    def __post_init__(self) -> None:
        _check_reserve(self.reserve)
        _check_norms(self.samples, "the samples of the fading law")
        # Sorted once here rather than in every round.
        object.__setattr__(self, "samples", self.samples.to(torch.float64).sort(dim=-1).values)

    def future(self, seen: torch.Tensor, rounds_left: int) -> torch.Tensor:
        """The law, whatever was seen."""
        return self.samples.to(seen)


@dataclass(frozen=True)
class MovingEstimate:
    """No knowledge of the law: later rounds are expected to look like π_0..π_t.

    The first round sees a single value, so it plans an equal split of the budget over all rounds.

    Attributes:
        reserve: κ, the price limit of channels that get much better than they were.
    """

    reserve: float = 0.1

    def __post_init__(self) -> None:
        _check_reserve(self.reserve)

    def future(self, seen: torch.Tensor, rounds_left: int) -> torch.Tensor:
        """The empirical law of what was seen."""
        return seen.sort(dim=-1).values


@dataclass(frozen=True)
class Predictions:
    """Noisy predictions of every later π, with correlation ρ between the logarithms of prediction and truth.

    With (μ, s) the mean and deviation of log π, a prediction p leaves log π ~ N(μ + ρ·(log p − μ), (1 − ρ²)·s²).
    ρ = 1 takes the predictions at their word. If they are right this is the offline optimum, to rounding, as long as no
    1/π_t² is below 1e-11 of an equal share.

    Attributes:
        forecast: t -> predictions of π_{t+1}..π_{T−1} made in round t, [..., T − t − 1], broadcastable to the batch.
        correlation: ρ in [0, 1].
    """

    forecast: Callable[[int], torch.Tensor]
    correlation: float

    def __post_init__(self) -> None:
        _check_correlation(self.correlation)

    @classmethod
    def made_at_start(cls, predicted: torch.Tensor, correlation: float) -> Predictions:
        """Predictions of all rounds, [..., T], made once and never revised."""
        return cls(lambda t: predicted[..., t + 1 :], correlation)

    @property
    def reserve(self) -> float:
        """κ = 0.1·(1 − ρ²), but never zero: even sure predictions may be wrong, and q_t has to stay finite.

        The floor is so low because a reserve costs where a round's own 1/π_t² is below it.
        """
        return max(1e-11, 0.1 * (1.0 - self.correlation**2))

    def future(self, seen: torch.Tensor, rounds_left: int) -> torch.Tensor:
        """Each prediction with its spread, as a few quantiles."""
        predicted = self.forecast(seen.shape[-1] - 1).to(seen)
        _check_norms(predicted, "the predicted minimum norms")
        if predicted.shape[-1] != rounds_left - 1:
            raise InputError(f"{rounds_left - 1} predictions are needed in this round; got {predicted.shape[-1]}")
        if self.correlation == 1.0:
            return predicted.sort(dim=-1).values
        log_predicted = predicted.log().expand(*seen.shape[:-1], rounds_left - 1)
        # Truths seen and predictions share one marginal law, and together there are T of them in every round.
        pooled = torch.cat([seen.log(), log_predicted], dim=-1)
        mean, deviation = pooled.mean(-1, keepdim=True), pooled.std(-1, correction=0, keepdim=True)
        centre = mean + self.correlation * (log_predicted - mean)
        probabilities = (torch.arange(_NODES, dtype=seen.dtype, device=seen.device) + 0.5) / _NODES
        spread = math.sqrt(1.0 - self.correlation**2) * deviation * torch.special.ndtri(probabilities)
        values: torch.Tensor = (centre.unsqueeze(-1) + spread.unsqueeze(-2)).flatten(-2).exp()
        return values.sort(dim=-1).values


def allocate_online(minimum: torch.Tensor, budget: float, knowledge: Knowledge) -> torch.Tensor:
    """Combiner norms q_t chosen causally, one round after the other.

    Args:
        minimum: π_t > 0, [..., T], float64, T ≥ 1; round t reads π_0..π_t only.
        budget: A > 0.
        knowledge: what is assumed about later rounds.

    Returns:
        q_t ≥ π_t, [..., T]. The sum Σ 1/q_t² never exceeds A, whatever the order in which it is added up.
    """
    if minimum.dim() == 0 or minimum.shape[-1] < 1:
        raise InputError("there must be at least one round")
    pi = minimum.to(torch.float64)
    rounds = pi.shape[-1]
    spent = torch.zeros_like(pi[..., 0])
    norms: list[torch.Tensor] = []
    for t in range(rounds):
        q = next_norm(pi[..., : t + 1], spent, rounds, budget, knowledge)
        spent = spent + 1.0 / q.square()
        norms.append(q)
    return torch.stack(norms, dim=-1)


def next_norm(
    seen: torch.Tensor, spent: torch.Tensor, rounds: int, budget: float, knowledge: Knowledge
) -> torch.Tensor:
    """q_t = max(π_t, m, (R_t − (n_t − 1)·κA/T)^(−½)): this round's level, held back so that later rounds can be paid.

    Args:
        seen: π_0..π_t, [..., t + 1], float64.
        spent: Σ_{s<t} 1/q_s² over the earlier rounds, [...].
        rounds: T.
        budget: A > 0.
        knowledge: what is assumed about later rounds.
    """
    if not (budget > 0 and math.isfinite(budget)):
        raise InputError(f"the budget A must be positive and finite; got {budget}")
    current = seen[..., -1]
    _check_norms(seen[..., -1:], "every minimum norm")
    rounds_left = rounds - seen.shape[-1] + 1
    # Adding T terms in any order errs by at most T ulp, here and in whoever checks: keep that much in hand.
    usable = budget * (1.0 - 4 * (rounds + 4) * torch.finfo(torch.float64).eps)
    remaining = usable - spent
    # Absolute, not a fraction of what is left: that would shrink geometrically. Many ulp, so that rounding spares it.
    kept = budget * max(knowledge.reserve / rounds, 64 * torch.finfo(torch.float64).eps)
    share = remaining - (rounds_left - 1) * kept
    if rounds_left < 1 or not bool((share > 0).all()):
        raise InputError("nothing is left of the privacy budget for this round")
    level = (
        remaining.rsqrt() if rounds_left == 1 else _level(remaining, rounds_left, knowledge.future(seen, rounds_left))
    )
    return torch.maximum(torch.maximum(current, level), share.rsqrt())


def _level(remaining: torch.Tensor, rounds_left: int, future: torch.Tensor) -> torch.Tensor:
    """Solve 1/m² + (n − 1)·mean_s[1/max(π_s, m)²] = R for m, [...].

    If exactly the j smallest of S values are lifted to m, m² = (1 + wj)/(R − w·Σ_{s≥j} 1/π_s²) with w = (n − 1)/S; the
    right j is the first whose m stays below the next value.

    Args:
        remaining: R > 0, [...].
        rounds_left: n ≥ 2.
        future: π_s ascending, [..., S].
    """
    size = future.shape[-1]
    weight = (rounds_left - 1) / size
    squares = future.square()
    # Added from the small end: differences of prefix sums would cancel when few rounds are lifted.
    unlifted = torch.nn.functional.pad(squares.reciprocal().flip(-1).cumsum(-1).flip(-1), (0, 1))
    lifted = torch.arange(size + 1, dtype=future.dtype, device=future.device)
    room = remaining.unsqueeze(-1) - weight * unlifted
    level_sq = torch.where(room > 0, (1.0 + weight * lifted) / room, torch.inf)
    fits = torch.nn.functional.pad(level_sq[..., :-1] <= squares, (0, 1), value=True)
    first = fits.to(torch.int8).argmax(dim=-1, keepdim=True)
    solved = level_sq.gather(-1, first).squeeze(-1)
    # No level is above that of an equal split; this also covers values whose squares leave the floats.
    return torch.minimum(solved, rounds_left / remaining).sqrt()


def noisy_predictions(minimum: torch.Tensor, correlation: float, generator: np.random.Generator) -> torch.Tensor:
    """Predictions of π whose logarithms have correlation ρ with the truth: log p = μ + ρ·(log π − μ) + √(1 − ρ²)·s·z.

    μ and s are the mean and deviation of log π over the rounds of each run and z ~ N(0, 1), so that predictions and
    truth have the same mean and deviation.

    Args:
        minimum: π_t > 0, [..., T].
        correlation: ρ in [0, 1].
        generator: source of z.

    Returns:
        p_t, [..., T]; see :meth:`Predictions.made_at_start`.
    """
    _check_correlation(correlation)
    _check_norms(minimum, "every minimum norm")
    log_pi = minimum.to(torch.float64).log()
    mean, deviation = log_pi.mean(-1, keepdim=True), log_pi.std(-1, correction=0, keepdim=True)
    z = torch.from_numpy(generator.standard_normal(tuple(log_pi.shape))).to(log_pi)
    return (mean + correlation * (log_pi - mean) + math.sqrt(1.0 - correlation**2) * deviation * z).exp()


def _check_norms(values: torch.Tensor, what: str) -> None:
    if values.dim() == 0 or values.shape[-1] < 1:
        raise InputError(f"{what} must hold at least one value")
    if not (bool((values > 0).all()) and bool(torch.isfinite(values).all())):
        raise InputError(f"{what} must be positive and finite")


def _check_reserve(reserve: float) -> None:
    if not 0.0 < reserve <= 1.0:
        raise InputError(f"the reserve must lie in (0, 1]; got {reserve}. Typical: 0.1")


def _check_correlation(correlation: float) -> None:
    if not 0.0 <= correlation <= 1.0:
        raise InputError(f"the correlation of the predictions must lie in [0, 1]; got {correlation}")
