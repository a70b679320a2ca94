"""The contract of accountants, on rounds without sampling credit and without a domain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from airfl.imports import import_object
from airfl.privacy import ACCOUNTANTS, GaussianAccountant, Ledger, RoundEvent, Sampling

EVERYONE = Sampling("all", 12, 12)


def _ledger(noise_vars: Any, clip_norm: float = 1.0, gain: float = 1.0, noise_power: float = 2.0) -> Ledger:
    """Rounds heard by one antenna: anyone who sees signals sees what the model shows, g/√v."""
    rows = []
    for t, v in enumerate(noise_vars):
        seen = gain / math.sqrt(v) if v > 0 else None
        power = noise_power if v > 0 else None
        event = RoundEvent(t, clip_norm, gain, float(v), "channel", power, EVERYONE, 0.01)
        rows.append(replace(event, base_station=seen, eavesdropper=seen, everything=seen))
    return Ledger(tuple(rows))


class AccountantContract:
    """ε grows with rounds, clip and gain, falls with noise, and a budget is never exceeded."""

    part: ClassVar[Any]

    @classmethod
    def _kind(cls) -> Any:
        if isinstance(cls.part, str):
            return ACCOUNTANTS[cls.part] if cls.part in ACCOUNTANTS else import_object(cls.part, "accountant")
        return cls.part

    def _account(self, ledger: Ledger, neighbours: str = "replace") -> Any:
        kind = self._kind()
        return kind(ledger, neighbours, kind.observers[0])

    def _epsilon(self, ledger: Ledger, delta: float = 1e-5, neighbours: str = "replace") -> float:
        return float(self._account(ledger, neighbours).epsilon(delta))

    @staticmethod
    def _variances() -> list[list[float]]:
        generator = np.random.Generator(np.random.Philox(key=4))
        return [(10.0 ** generator.uniform(-1, 4, count)).tolist() for count in (1, 2, 5, 12)]

    def test_it_says_what_it_is(self) -> None:
        """Name, label, assumptions, observers, whether it is a proof."""
        kind = self._kind()
        assert kind.name
        assert kind.label
        assert kind.assumptions.endswith(".")
        assert kind.observers
        assert isinstance(kind.valid, bool)

    def test_no_rounds_cost_nothing_and_no_noise_everything(self) -> None:
        """ε = 0 and ε = ∞."""
        assert self._epsilon(Ledger()) == 0.0
        assert self._epsilon(_ledger([1.0, 0.0])) == math.inf
        assert self._epsilon(_ledger([0.0], clip_norm=math.inf)) == math.inf

    def test_monotone(self) -> None:
        """More rounds, clip, gain or less δ never cost less; more noise never costs more."""
        for variances in self._variances():
            base = self._epsilon(_ledger(variances))
            assert self._epsilon(_ledger([*variances, 3.0])) >= base
            assert self._epsilon(_ledger(variances, clip_norm=2.0)) >= base
            assert self._epsilon(_ledger(variances, gain=2.0)) >= base
            assert self._epsilon(_ledger([2.0 * v for v in variances])) <= base
            assert self._epsilon(_ledger(variances), delta=1e-6) >= base

    def test_epsilon_and_delta_are_inverse(self) -> None:
        """δ(ε(δ)) = δ, or less."""
        for variances in self._variances():
            accountant = self._account(_ledger(variances))
            for delta in (1e-9, 1e-5, 1e-2):
                spent = accountant.epsilon(delta)
                if spent > 1e-6:
                    assert accountant.delta(spent) <= delta * (1 + 1e-6)

    def test_a_budget_is_never_exceeded(self) -> None:
        """Staying at the floor, or spending all of A, costs ε and never more."""
        noise_power = 3e-13
        template = _ledger([noise_power / 2.0], 0.7, noise_power=noise_power).events[0]
        for target in (0.1, 1.0, 30.0):
            for rounds in (1, 7):
                budget = self._kind().budget(target, 1e-5, template, "replace", rounds)
                spends = [np.full(rounds, budget.floor**-2.0)]
                if budget.total is not None:
                    shares = np.arange(1.0, rounds + 1)
                    spends.append(shares / shares.sum() * budget.total * (1 - 1e-14))
                for spend in spends:
                    book = _ledger(noise_power / (2 * spend), clip_norm=0.7, noise_power=noise_power)
                    assert self._epsilon(book) <= target

    def test_a_valid_bound_never_undercuts_the_exact_one(self) -> None:
        """Where all take part and every model is seen, `gaussian` is exact."""
        if not self._kind().valid:
            return
        for variances in self._variances():
            exact = GaussianAccountant(_ledger(variances), "zero-out").epsilon(1e-5)
            assert self._epsilon(_ledger(variances), neighbours="zero-out") >= exact * (1 - 1e-9)
