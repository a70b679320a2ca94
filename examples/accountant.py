"""An accountant of your own: zero-concentrated DP (Bun & Steinke 2016), a proof that is a little loose.

airfl run paper --set privacy.accountant=accountant:Concentrated
"""

import math
from dataclasses import dataclass

from airfl.privacy import Budget, GaussianAccountant, Ledger


@dataclass(frozen=True)
class Concentrated:
    """ρ = μ²/2 and ε = ρ + 2√(ρ log(1/δ))."""

    name = "concentrated"
    label = "zCDP"
    assumptions = "Zero-concentrated DP of all rounds together: a proof, never below `gaussian`."
    observers = ("model", "models")
    valid = True

    ledger: Ledger
    neighbours: str
    observer: str = "model"

    @property
    def rho(self) -> float:
        """Of all rounds."""
        return 0.5 * GaussianAccountant(self.ledger, self.neighbours).mu ** 2

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        return self.rho + 2.0 * math.sqrt(self.rho * -math.log(delta)) if math.isfinite(self.rho) else math.inf

    def delta(self, epsilon: float) -> float:
        """δ at this ε."""
        if self.rho == 0.0 or math.isinf(self.rho):
            return float(self.rho > 0.0)
        return math.exp(-(max(0.0, epsilon - self.rho) ** 2) / (4.0 * self.rho))

    @classmethod
    def budget(cls, epsilon, delta, template, neighbours, rounds=1) -> Budget:
        """A = 2ρ*σ²/(2S²), with ρ* = (√(ε + log(1/δ)) − √log(1/δ))²."""
        log = -math.log(delta)
        rho = (epsilon / (math.sqrt(epsilon + log) + math.sqrt(log))) ** 2 * (1.0 - 1e-13)
        return Budget.of_total(rho * template.noise_power / template.sensitivity(neighbours) ** 2, rounds)
