"""Accounting as published before the paper, for comparison: Koda 2020, Liu 2020, Park 2023, Liu 2024.

Each formula is given its own best reading in our units: user level, S_t and v_t from the ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from airfl.privacy.budget import RESCALE, Budget, check_budget, square
from airfl.privacy.events import Neighbours, Observer, RoundEvent, check_delta, check_epsilon, reach, require
from airfl.privacy.exact import square_over
from airfl.privacy.gaussian import LARGE, GaussianAccountant, GaussianCurve
from airfl.privacy.ledger import Ledger
from airfl.privacy.ratios import exact_sum, seen_mu, squared_ratio, squared_sum
from airfl.privacy.roots import root
from airfl.privacy.shown import Shown


@dataclass(frozen=True)
class Koda2020:
    """Each round alone, by the classical Gaussian mechanism: ε_t = √(2 log(1.25/δ))·S_t/√v_t, the worst counts."""

    name: ClassVar[str] = "koda2020"
    label: ClassVar[str] = "Koda 2020, one round"
    assumptions: ClassVar[str] = (
        "The worst single round by the classical Gaussian mechanism, a theorem only where that ε is below 1; the other "
        "rounds are not counted, so it is no bound for a run of more than one."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model", "models")
    valid: ClassVar[bool] = False
    shown: ClassVar[Shown] = Shown(
        "", "#999999", (0, (1, 1)), work="Koda et al. 2020", receiver="single antenna", converges=False
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        check_delta(delta)
        return self._worst * math.sqrt(2.0 * math.log(1.25 / delta))

    def delta(self, epsilon: float) -> float:
        """δ at this ε; 1 where the formula gives nothing."""
        check_epsilon(epsilon)
        if self._worst == 0.0:
            return 0.0
        ratio = min(epsilon / self._worst, 1e100)
        return min(1.0, 1.25 * math.exp(-0.5 * ratio**2))

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """q ≥ √(4 log(1.25/δ)) S/(ε σ) in every round, however many there are."""
        noise_power = check_budget(epsilon, delta, template)
        factor = math.sqrt(4.0 * math.log(1.25 / delta) / noise_power) * (1.0 + 1e-14)
        return Budget(rounds, factor * template.sensitivity(neighbours) / epsilon)

    @property
    def _worst(self) -> float:
        def larger(so_far: float, event: RoundEvent, count: int) -> float:
            return max(so_far, squared_ratio(event, self.neighbours))

        return math.sqrt(self.ledger.fold(("worst", self.neighbours), 0.0, larger))


@lru_cache(maxsize=256)
def inverse_c(delta: float) -> float:
    """x > 0 with C(x) = √π·x·e^{x²} = 1/δ."""
    target = -math.log(delta) - 0.5 * math.log(math.pi)
    return root(lambda x: math.log(x) + x * x - target, 1e-300, 1.0 + math.sqrt(max(target, 0.0) + 1.0))


@dataclass(frozen=True)
class Liu2020:
    """Liu & Simeone: h = ½ Σ S_t²/v_t and ε = h + 2x√h, x = C⁻¹(1/δ); a tail bound of the exact privacy loss."""

    name: ClassVar[str] = "liu2020"
    label: ClassVar[str] = "Liu & Simeone 2020"
    assumptions: ClassVar[str] = (
        "A tail bound on the privacy loss of all rounds together, valid but never below `gaussian`; grows without "
        "limit in the number of rounds."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model", "models")
    valid: ClassVar[bool] = True
    shown: ClassVar[Shown] = Shown(
        "accounting by a tail bound",
        "#E69F00",
        (0, (6, 2, 1, 2)),
        work="Liu and Simeone 2020",
        receiver="single antenna",
        converges=False,
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        check_delta(delta)
        h = self._half
        return h + 2.0 * inverse_c(delta) * math.sqrt(h) if math.isfinite(h) else math.inf

    def delta(self, epsilon: float) -> float:
        """δ at this ε; 1 where the formula gives nothing."""
        check_epsilon(epsilon)
        h = self._half
        if h == 0.0:
            return 0.0
        x = (epsilon - h) / (2.0 * math.sqrt(h)) if math.isfinite(h) else -1.0
        return 1.0 if x <= 0.0 else min(1.0, math.exp(-x * x) / (math.sqrt(math.pi) * x))

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """A = (√(ε + x²) − x)² σ²/S²."""
        noise_power = check_budget(epsilon, delta, template)
        x = inverse_c(delta)
        # √(ε + x²) − x without cancellation.
        root = epsilon / (math.sqrt(epsilon + x * x) + x) * (1.0 - 1e-13)
        return Budget.of_total(root**2 * noise_power / square(template.sensitivity(neighbours)), rounds)

    @property
    def _half(self) -> float:
        return 0.5 * squared_sum(self.ledger, self.neighbours)


@dataclass(frozen=True)
class Park2023(GaussianCurve):
    """Park & Choi: the spread of mini-batch gradients counted as noise beside the channel's."""

    name: ClassVar[str] = "park2023"
    label: ClassVar[str] = "Park & Choi 2023"
    assumptions: ClassVar[str] = (
        "Counts the spread of mini-batch gradients as if it were more Gaussian noise, from an estimate (the ledger's "
        "`gradient_var`) that nobody has proven to be one: not a proof. Without an estimate it equals `gaussian`."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model", "models")
    valid: ClassVar[bool] = False
    shown: ClassVar[Shown] = Shown(
        "", "#CC79A7", (0, (2, 3)), work="Park and Choi 2023", receiver="single antenna", converges=False
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    @property
    def mu(self) -> float:
        """μ with v_t + the estimated gradient variance in place of v_t."""
        return math.sqrt(exact_sum(self.ledger, ("park", self.neighbours), self._squared))

    def _squared(self, event: RoundEvent) -> float:
        plain = squared_ratio(event, self.neighbours)
        if event.noise_var == 0.0 or not event.gradient_var:
            return plain
        every = event.noise_var + event.gradient_var
        share = event.noise_var / every
        if share > 1e-140 and 1e-140 < plain < math.inf:
            return plain * share
        return square_over((event.clip_norm, event.gain_bound), every, reach(self.neighbours) ** 2)

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """As `gaussian`: what the gradients will add is not known before the rounds have happened."""
        return GaussianAccountant.budget(epsilon, delta, template, neighbours, rounds)


@dataclass(frozen=True)
class Liu2024:
    """Liu et al.: Rényi composition for a base station, ρ = μ²/2 and ε = ρ + 2√(ρ log(1/δ)); linear in T."""

    name: ClassVar[str] = "liu2024"
    label: ClassVar[str] = "Liu 2024, base station"
    assumptions: ClassVar[str] = (
        "Against the base station itself, which sees every antenna and who took part: Rényi composition of all rounds, "
        "valid, and linear in their number."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("base-station",)
    valid: ClassVar[bool] = True
    shown: ClassVar[Shown] = Shown(
        "", "#009E73", (0, (3, 1.5, 1, 1.5)), work="Liu et al. 2024", converges=False, needs_antennas=True
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "base-station"

    @property
    def rho(self) -> float:
        """ρ, the Rényi divergence per unit of α."""
        mu = seen_mu(self.ledger, self.neighbours, self.observer)
        return 0.5 * mu**2 if mu < LARGE else math.inf

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        check_delta(delta)
        rho = self.rho
        return rho + 2.0 * math.sqrt(-rho * math.log(delta)) if math.isfinite(rho) else math.inf

    def delta(self, epsilon: float) -> float:
        """δ at this ε; 1 where the formula gives nothing."""
        check_epsilon(epsilon)
        rho = self.rho
        if rho == 0.0:
            return 0.0
        if math.isinf(rho):
            return 1.0
        excess = min(max(0.0, epsilon - rho), 1e150)
        return math.exp(-(excess**2) / (4.0 * rho))

    def rdp(self, alpha: float) -> float:
        """Rényi divergence of order α."""
        return alpha * self.rho

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """A = 2ρ*/(c′ r)², ρ* = (√(ε + log(1/δ)) − √log(1/δ))², for rounds in which a device is seen with r/q.

        Args:
            template: its ``base_station`` is r, how visible a device is at q = 1.
        """
        check_budget(epsilon, delta, template)
        require(bool(template.base_station), "a budget against the base station needs what it receives")
        log = -math.log(delta)
        root = epsilon / (math.sqrt(epsilon + log) + math.sqrt(log)) * (1.0 - 1e-13)
        heard = template.contribution(neighbours) * (template.base_station or 1.0)
        require(1e-140 < root / heard < 1e140, f"what is heard, {heard:g}, has no square to plan with; {RESCALE}")
        return Budget.of_total(2.0 * (root / heard) ** 2, rounds)
