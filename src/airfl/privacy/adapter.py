"""The surface that Opacus users know, over our ledger and accountants."""

from __future__ import annotations

from typing import Any

from airfl.privacy.accountant import make_accountant
from airfl.privacy.events import Neighbours, Observer, RoundEvent, Sampling, relation_of, require
from airfl.privacy.ledger import Ledger


class LedgerAccountant:
    """``step(...)`` after every round, ``get_epsilon(delta)`` at any time, ``state_dict()`` in every checkpoint.

    A step is one round with clip norm 1: everyone takes part, or each with probability ``sample_rate`` and unseen.
    """

    def __init__(
        self,
        accountant: str = "sampled",
        neighbours: Neighbours = "zero-out",
        observer: Observer = "model",
        ledger: Ledger | None = None,
    ) -> None:
        self.accountant, self.neighbours, self.observer = accountant, relation_of(neighbours), observer
        self.ledger = ledger or Ledger()
        make_accountant(accountant, self.ledger, neighbours, observer)  # refuse bad names here rather than later

    def step(self, *, noise_multiplier: float, sample_rate: float = 1.0) -> None:
        """Book one round with noise of standard deviation ``noise_multiplier`` times the clip norm."""
        require(0.0 < sample_rate <= 1.0, f"`sample_rate` must lie in (0, 1]; got {sample_rate}")
        require(
            noise_multiplier == 0.0 or 1e-70 <= noise_multiplier <= 1e70,
            f"`noise_multiplier` must be 0, or 1e-70 to 1e70; got {noise_multiplier}",
        )
        sampling = Sampling("all" if sample_rate == 1.0 else "poisson", 1, sample_rate)
        self.ledger = self.ledger.append(
            RoundEvent(
                round=len(self),
                clip_norm=1.0,
                gain_bound=1.0,
                noise_var=noise_multiplier**2,
                noise_source="artificial" if noise_multiplier > 0 else "none",
                noise_power=None,
                sampling=sampling,
                update_factor=1.0,
                hides_participation=True,
            )
        )

    def get_epsilon(self, delta: float) -> float:
        """ε at this δ of all steps so far."""
        return make_accountant(self.accountant, self.ledger, self.neighbours, self.observer).epsilon(delta)

    def __len__(self) -> int:
        return len(self.ledger.events)

    def mechanism(self) -> str:
        """The accountant's name."""
        return self.accountant

    def state_dict(self) -> dict[str, Any]:
        """Plain data that ``load_state_dict`` reads back."""
        return {
            "accountant": self.accountant,
            "neighbours": self.neighbours,
            "observer": self.observer,
            "ledger": self.ledger.to_mapping(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``; a damaged ledger is refused."""
        missing = {"accountant", "neighbours", "observer", "ledger"} - set(state)
        require(not missing, f"the state has no {', '.join(sorted(missing))}; expected what `state_dict` returns")
        self.__init__(  # type: ignore[misc]
            state["accountant"], state["neighbours"], state["observer"], Ledger.from_mapping(state["ledger"])
        )
