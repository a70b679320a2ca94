"""Exact accounting of Gaussian rounds (Gaussian DP; Balle & Wang 2018; Dong, Roth & Su 2022).

T rounds with sensitivities S_t and noise variances v_t are together one Gaussian mechanism with μ² = Σ S_t²/v_t, and

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from airfl.privacy.budget import Budget, check_budget, square
from airfl.privacy.events import (
    OBSERVERS,
    SEEING,
    Neighbours,
    Observer,
    RoundEvent,
    check_delta,
    check_epsilon,
    require,
)
from airfl.privacy.ledger import Ledger
from airfl.privacy.ratios import seen_mu, squared_sum
from airfl.privacy.roots import root
from airfl.privacy.shown import Shown

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
#: Below this μ, products with it are added up as logarithms.
SMALL = 1e-280
#: Beyond this μ, ε is no longer a number: it is μ²/2 and more.
LARGE = 1e154


def _mills(x: np.ndarray | float) -> np.ndarray:
    """R(x) = Φ(−x)/φ(x)."""
    from scipy.special import erfcx  # as in `roots`: not before there is something to compute

    scaled: np.ndarray = erfcx(np.asarray(x) / math.sqrt(2.0))
    return math.sqrt(math.pi / 2.0) * scaled


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """log δ(ε) of a μ-Gaussian mechanism, without overflow or cancellation.

    With a = ε/μ − μ/2, b = a + μ and the Mills ratio R: e^ε φ(b) = φ(a), hence δ = φ(a)·(R(a) − R(b)). For small μ the
    difference is the integral of −R′(x) = 1 − x R(x) over [a, b], done by Gauss-Legendre quadrature.
    """
    check_epsilon(epsilon)
    require(mu >= 0.0, f"`mu` must not be negative; got {mu}")
    if mu == 0.0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    a = epsilon / mu - mu / 2.0
    b = epsilon / mu + mu / 2.0
    log_phi = -0.5 * a * a - 0.5 * math.log(2.0 * math.pi)
    if a < -5.0:
        from scipy.special import ndtr

        return math.log(float(ndtr(-a)) - math.exp(log_phi) * float(_mills(b)))
    if mu < 0.5:
        x = 0.5 * mu * _NODES + 0.5 * (a + b)
        # For x beyond 50, 1 − x R(x) = 1/x² − 3/x⁴ + 15/x⁶ − … loses digits if subtracted; the series does not.
        inverse = 1.0 / np.square(np.maximum(x, 1.0))
        series = inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * 105.0)))
        slope = np.where(x > 50.0, series, 1.0 - x * _mills(np.minimum(x, 50.0)))
        mean = 0.5 * float(_WEIGHTS @ slope)
        if mu < SMALL:  # μ·mean would lose its digits, or all of itself
            return log_phi + math.log(mu) + math.log(mean) if mean > 0.0 else -math.inf
        difference = 0.5 * mu * float(_WEIGHTS @ slope)
    else:
        difference = float(_mills(a) - _mills(b))
    return log_phi + math.log(difference) if difference > 0.0 else -math.inf


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) of a μ-Gaussian mechanism."""
    return math.exp(gaussian_log_delta(epsilon, mu))


@lru_cache(maxsize=4096)
def gaussian_epsilon(delta: float, mu: float) -> float:
    """The smallest ε with δ(ε) ≤ delta."""
    check_delta(delta)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if gaussian_log_delta(0.0, mu) <= target:
        return 0.0
    upper = mu * mu / 2.0 + mu
    while gaussian_log_delta(upper, mu) > target:
        upper *= 2.0
    if mu > LARGE or math.isinf(upper):
        return math.inf
    return root(
        lambda epsilon: max(gaussian_log_delta(epsilon, mu), -1e300) - target, 0.0, upper, xtol=1e-300, rtol=1e-15
    )


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-DP; never above, so that spending it never costs more than ε."""
    check_delta(delta)
    require(epsilon > 0.0, f"`epsilon` must be positive; got {epsilon}")
    target = math.log(delta)
    lower, upper = 1e-12, 1.0
    while gaussian_log_delta(epsilon, upper) < target:
        lower, upper = upper, upper * 2.0
    while gaussian_log_delta(epsilon, lower) > target:
        lower, upper = lower / 1e3, lower
    mu = root(lambda mu: max(gaussian_log_delta(epsilon, mu), -1e300) - target, lower, upper, xtol=1e-300, rtol=1e-15)
    while gaussian_epsilon(delta, mu) > epsilon:
        mu *= 1.0 - 1e-13
    return mu


class GaussianCurve(ABC):
    """What follows from μ alone, for accountants whose answer is one Gaussian mechanism."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """μ of all rounds together."""

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        check_delta(delta)
        return gaussian_epsilon(delta, self.mu)

    def delta(self, epsilon: float) -> float:
        """δ at this ε."""
        return gaussian_delta(epsilon, self.mu)

    def rdp(self, alpha: float) -> float:
        """Rényi divergence of order α: α μ²/2."""
        mu = self.mu
        return 0.5 * alpha * mu**2 if mu < LARGE else math.inf


@dataclass(frozen=True)
class GaussianAccountant(GaussianCurve):
    """Exact for every round's model and full participation; an upper bound for the final model and any sampling."""

    name: ClassVar[str] = "gaussian"
    label: ClassVar[str] = "exact"
    assumptions: ClassVar[str] = (
        "Exact for an observer of every round's model when all devices take part; an upper bound for the final model "
        "alone and for any sampling; for the base station and others who see signals the device that is seen best over "
        "the run counts. Nothing is assumed about the loss."
    )
    observers: ClassVar[tuple[Observer, ...]] = OBSERVERS
    valid: ClassVar[bool] = True
    shown: ClassVar[Shown] = Shown("exact accounting", "#000000", "-", work="airfl: exact composition", gaussian=True)

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    @property
    def mu(self) -> float:
        """μ = √(Σ_t μ_t²) of all rounds together."""
        if self.observer in SEEING:
            return seen_mu(self.ledger, self.neighbours, self.observer)
        return math.sqrt(squared_sum(self.ledger, self.neighbours))

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """A = μ*²σ²/(2S²): the largest Σ 1/q_t² that stays within (ε, δ), with v_t = q_t² σ²/2.

        Args:
            template: a round of the run; its clip norm, gain bound and noise power count.
        """
        noise_power = check_budget(epsilon, delta, template)
        # The noise variances are rounded once more before the ledger adds them up; stay below by more than that.
        spend = gaussian_mu(epsilon, delta) ** 2 * (1.0 - 1e-13)
        return Budget.of_total(spend * noise_power / (2.0 * square(template.sensitivity(neighbours))), rounds)
