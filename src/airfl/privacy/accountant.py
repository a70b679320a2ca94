"""The accountants by name, and what every one of them answers."""

from __future__ import annotations

from typing import ClassVar, Protocol

from airfl.privacy.events import Neighbours, Observer, RoundEvent, require
from airfl.privacy.gaussian import GaussianAccountant
from airfl.privacy.ledger import Ledger
from airfl.privacy.paper import PaperAccountant

OBSERVERS: tuple[Observer, ...] = ("model", "models", "base-station")


class Accountant(Protocol):
    """Reads a ledger for one relation of neighbours and one observer."""

    name: ClassVar[str]
    label: ClassVar[str]
    assumptions: ClassVar[str]
    observers: ClassVar[tuple[Observer, ...]]

    def epsilon(self, delta: float) -> float:
        """ε at this δ; infinite where there is no protection."""
        ...

    def delta(self, epsilon: float) -> float:
        """δ at this ε."""
        ...

    @staticmethod
    def budget(epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours) -> float:
        """A, the largest Σ 1/q_t² that stays within (ε, δ)."""
        ...


ACCOUNTANTS: dict[str, type[GaussianAccountant] | type[PaperAccountant]] = {
    "gaussian": GaussianAccountant,
    "paper": PaperAccountant,
}


def make_accountant(name: str, ledger: Ledger, neighbours: Neighbours, observer: Observer = "model") -> Accountant:
    """Return the accountant ``name`` over ``ledger``; refuse an observer that it says nothing about."""
    require(name in ACCOUNTANTS, f"no accountant named {name!r}; known: {', '.join(ACCOUNTANTS)}")
    kind = ACCOUNTANTS[name]
    require(
        observer in kind.observers,
        f"accountant `{name}` says nothing about observer `{observer}`; it covers: {', '.join(kind.observers)}",
    )
    return kind(ledger, neighbours, observer)
