"""The accountants by name, and what every one of them answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from airfl.privacy.budget import Budget
from airfl.privacy.convergent import ConvergentAccountant
from airfl.privacy.events import Neighbours, Observer, RoundEvent, relation_of, require
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

    ``shown``, a ``Shown``, says how it is drawn and told; without one there is a fallback.
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


def make_accountant(
    wanted: str | type[Accountant], ledger: Ledger, neighbours: Neighbours, observer: Observer = "model"
) -> Accountant:
    """Return an accountant, by name or class, over ``ledger``; refuse an observer that it says nothing about."""
    if isinstance(wanted, str):
        require(wanted in ACCOUNTANTS, f"no accountant named {wanted!r}; known: {', '.join(ACCOUNTANTS)}")
        wanted = ACCOUNTANTS[wanted]
    require(
        observer in wanted.observers,
        f"accountant `{wanted.name}` says nothing about observer `{observer}`; it covers: "
        + ", ".join(wanted.observers),
    )
    return wanted(ledger, relation_of(neighbours), observer)


def proves(kind: type[Accountant], ledgers: Iterable[Ledger]) -> bool:
    """Whether an accountant's ε of these ledgers is a proven upper bound: of noise that follows data nobody's is."""
    return kind.valid and not any(ledger.noise_follows_data for ledger in ledgers)


def epsilon_of(
    ledgers: Ledger | Iterable[Ledger],
    wanted: str | type[Accountant],
    neighbours: Neighbours,
    observer: Observer,
    delta: float,
) -> float:
    """ε of a ledger, or of the worst of several; 0 of none."""
    books = [ledgers] if isinstance(ledgers, Ledger) else ledgers
    return max((make_accountant(wanted, book, neighbours, observer).epsilon(delta) for book in books), default=0.0)
