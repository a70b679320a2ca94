"""The paper's proposition and corollary, to the letter (Sec. III-B).

    a = r c² · min{Σ_t φ_t, Φ}/σ²,   φ_t = max_i |gain_i|²/‖w_t‖²,   ε = 2a + √(4a² + 8a·log(1/δ)),

the corollary solved for ε with the smallest c_δ it allows, 2ε/log(1/δ). With v = ‖w‖²σ²/2 per real coordinate the
published σ²‖w‖² is 2v. docs/privacy.md lists why this is not a proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from airfl.privacy.budget import Budget, check_budget, square
from airfl.privacy.events import Neighbours, Observer, RoundEvent, check_delta, check_epsilon
from airfl.privacy.exact import TINY, square_over
from airfl.privacy.ledger import Ledger
from airfl.privacy.ratios import exact_sum
from airfl.privacy.shown import Shown


@dataclass(frozen=True)
class PaperAccountant:
    """The published bound; its neighbours and observer are built in (2c, final model only)."""

    name: ClassVar[str] = "paper"
    label: ClassVar[str] = "as published"
    assumptions: ClassVar[str] = (
        "The published formula, for comparison: it counts the whole complex noise power, twice what the real part "
        "carries, and a participation factor that covers one direction of neighbours only. Not a proof."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model",)
    valid: ClassVar[bool] = False
    shown: ClassVar[Shown] = Shown("", "#0072B2", "-", "s", work="the paper", converges=True, uses_domain=True)

    ledger: Ledger
    neighbours: Neighbours = "replace"
    observer: Observer = "model"

    @property
    def exponent(self) -> float:
        """a, half the Rényi divergence per unit of α: ε′ = 2αa."""
        if not self.ledger.events:
            return 0.0
        return min(exact_sum(self.ledger, ("phi",), _phi), self._convergent())

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        check_delta(delta)
        a, log = self.exponent, -math.log(delta)
        return 2.0 * a + math.sqrt(4.0 * a * a + 8.0 * a * log) if math.isfinite(a) else math.inf

    def delta(self, epsilon: float) -> float:
        """δ at this ε; 1 where the formula gives nothing."""
        check_epsilon(epsilon)
        a = self.exponent
        if a == 0.0:
            return 0.0
        return min(1.0, math.exp(-max(0.0, epsilon * epsilon - 4.0 * a * epsilon) / (8.0 * a)))

    def rdp(self, alpha: float) -> float:
        """ε′ = 2αa of the proposition."""
        return 2.0 * alpha * self.exponent

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """A = ε²σ²/((2c_δ + 8) log(1/δ) r c²) with c_δ = 2ε/log(1/δ): the largest Σ 1/q_t²; neighbours play no part."""
        noise_power = check_budget(epsilon, delta, template)
        spend = epsilon**2 / (4.0 * epsilon + 8.0 * -math.log(delta)) * (1.0 - 1e-13)
        sensitivity_sq = square(template.clip_norm * template.gain_bound)
        return Budget.of_total(spend * noise_power / (template.sampling.rate * sensitivity_sq), rounds)

    def _convergent(self) -> float:
        """r c² Φ/σ², with the start fixed at the last round; infinite unless D is enforced, L is stated and η_g is 1.

        Φ = (√φ + (1 + κ)^Q √r D n/(2ηc‖w‖))² at t = T−1; with the update factor u = η/(rn) the second term is
        (1 + κ)^Q D/(2 √r u c ‖w‖).
        """
        last = self.ledger.events[-1]
        kappa = self.ledger.fold(("kappa",), 0.0, _largest_kappa)
        if last.noise_var == 0.0 or math.isinf(kappa):
            return math.inf
        assert last.domain is not None
        # The published formula knows no server step: with one, it says nothing.
        server_step = last.update_factor * last.sampling.num_active / last.domain.learning_rate
        if abs(server_step - 1.0) > 1e-9:
            return math.inf
        log_growth = last.domain.local_steps * math.log1p(kappa)
        if log_growth > 300.0:
            return math.inf
        rate = last.sampling.rate
        under = 2.0 * math.sqrt(rate) * last.update_factor
        second = math.exp(log_growth) * last.domain.diameter / under if under > TINY else math.inf
        return _squared(last.clip_norm * last.gain_bound + max(second, TINY), last)


def _phi(event: RoundEvent) -> float:
    """r c² φ_t/σ² = r c² g²/(2v)."""
    if event.gain_bound == 0.0:
        return 0.0
    return _squared(max(event.clip_norm * event.gain_bound, TINY), event)


def _squared(shift: float, event: RoundEvent) -> float:
    """r shift²/(2v)."""
    rate, noise_var = event.sampling.rate, event.noise_var
    if 1e-40 < shift < 1e100 and rate > 1e-40 and noise_var > 1e-60:
        return rate * shift**2 / (2.0 * noise_var)
    return square_over((shift,), noise_var, 0.5 * rate)


def _largest_kappa(so_far: float, event: RoundEvent, count: int) -> float:
    """κ = ηL·mean gain; infinite where there is none."""
    domain = event.domain
    if domain is None or domain.smoothness is None:
        return math.inf
    return max(so_far, domain.learning_rate * domain.smoothness * domain.mean_gain)
