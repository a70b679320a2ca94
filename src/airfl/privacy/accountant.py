"""The accountants by name, and what every one of them answers."""

from __future__ import annotations

from typing import ClassVar, Protocol

from airfl.privacy.budget import Budget
from airfl.privacy.convergent import ConvergentAccountant
from airfl.privacy.events import Neighbours, Observer, RoundEvent, require
from airfl.privacy.gaussian import GaussianAccountant
from airfl.privacy.ledger import Ledger
from airfl.privacy.paper import PaperAccountant
from airfl.privacy.prior import Koda2020, Liu2020, Liu2024, Park2023
from airfl.privacy.sampled import SampledAccountant


class Accountant(Protocol):
    """Reads a ledger for one relation of neighbours and one observer.

    Some also answer ``rdp(alpha)``, the Rényi divergence of order α.

    Attributes:
        label: a few words for tables.
        assumptions: one sentence on what its ε rests on.
        observers: whom it says something about, its own first.
        valid: whether its ε is a proven upper bound under those assumptions.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    assumptions: ClassVar[str]
    observers: ClassVar[tuple[Observer, ...]]
    valid: ClassVar[bool]

    def __init__(self, ledger: Ledger, neighbours: Neighbours, observer: Observer) -> None: ...

    def epsilon(self, delta: float) -> float:
        """ε at this δ; infinite where there is no protection."""
        ...

    def delta(self, epsilon: float) -> float:
        """δ at this ε."""
        ...

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """What T rounds like the template may spend within (ε, δ): A where there is one, and the floor of q_t."""
        ...


ACCOUNTANTS: dict[str, type[Accountant]] = {
    kind.name: kind
    for kind in (
        GaussianAccountant,
        SampledAccountant,
        ConvergentAccountant,
        PaperAccountant,
        Koda2020,
        Liu2020,
        Park2023,
        Liu2024,
    )
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
