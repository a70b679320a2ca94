"""The least ε that is proven, observer by observer: what to say first of a ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airfl.privacy.accountant import ACCOUNTANTS, epsilon_of, proves
from airfl.privacy.events import SEEING, Neighbours, Observer
from airfl.privacy.ledger import Ledger
from airfl.privacy.shown import Granted, shown


@dataclass(frozen=True)
class Finding:
    """What is proven against one observer.

    Attributes:
        epsilon: infinite where there is no protection; None where it is not known, as what the antennas hear is not.
        accountant: who proves it; None where it is not known.
        exact: whether no smaller ε is true; else it is an upper bound.
        rests_on: what must be granted for it: that participation stays hidden, a stated smoothness, or nothing.
    """

    observer: Observer
    epsilon: float | None
    accountant: str | None
    exact: bool = False
    rests_on: Granted = "nothing"

    @property
    def known(self) -> bool:
        """Whether there is an answer, be it infinite."""
        return self.epsilon is not None

    @property
    def summary(self) -> dict[str, Any]:
        """Plain data; ε is null for infinity, and where ``known`` is false."""
        finite = self.epsilon is not None and math.isfinite(self.epsilon)
        return {
            "epsilon": self.epsilon if finite else None,
            "known": self.known,
            "accountant": self.accountant,
            "exact": self.exact,
            "rests_on": self.rests_on,
        }


def is_unheard(ledgers: Sequence[Ledger]) -> bool:
    """Whether nobody wrote down what the antennas hear, so that nothing can be said of anyone who sees signals."""
    return any(e.noise_power is None and e.noise_source != "none" for ledger in ledgers for e, _ in ledger.runs())


def proven(
    ledgers: Sequence[Ledger],
    delta: float,
    neighbours: Neighbours,
    observer: str | None = None,
    accountant: str = "all",
    *,
    as_stated: bool = False,
) -> list[Finding]:
    """The least proven ε against each observer, the worst of several ledgers; the one to say first comes first.

    Args:
        observer: only this one; None: those who see every model, the last one (if that makes a difference), or
            signals.
        accountant: only this one counts; there is nothing to find where it proves nothing.
        as_stated: whether every device is known to take part in all rounds that the law gives it, at full length, as in
            a what-if question. In a run some may have been silent, and then nothing is exact.
    """
    wanted: tuple[Observer, ...] = (observer,) if observer is not None else _present(ledgers)  # type: ignore[assignment]
    found = [_least(ledgers, delta, neighbours, one, accountant, as_stated) for one in wanted]
    known = [one for one in found if one is not None]
    if observer is None and len(known) > 1 and (known[0].observer, known[1].observer) == ("models", "model"):
        every, last = known[0].epsilon, known[1].epsilon
        if every is not None and last is not None and not last < every:
            del known[1]
    return known


def _present(ledgers: Sequence[Ledger]) -> tuple[Observer, ...]:
    """Whom to speak of unasked: some only where a ledger has something about them."""
    rest: list[Observer] = [
        one
        for one in ("eavesdropper", "everything")
        if any(event.visibility(one) is not None for ledger in ledgers for event, _ in ledger.runs())
    ]
    return ("models", "model", "base-station", *rest)


def _least(
    ledgers: Sequence[Ledger],
    delta: float,
    neighbours: Neighbours,
    observer: Observer,
    accountant: str,
    as_stated: bool,
) -> Finding | None:
    """The least proven ε against an observer; None where no accountant that counts says anything about them."""
    names = [
        name
        for name, kind in ACCOUNTANTS.items()
        if proves(kind, ledgers) and observer in kind.observers and accountant in ("all", name)
    ]
    if not names:
        return None
    if observer in SEEING and is_unheard(ledgers):
        return Finding(observer, None, None)
    epsilons = {name: epsilon_of(ledgers, name, neighbours, observer, delta) for name in names}
    best = min(names, key=lambda name: epsilons[name])
    # Who grants no credit here says what `gaussian` says, and needs no more for it.
    if epsilons[best] == epsilon_of(ledgers, "gaussian", neighbours, observer, delta):
        exact = as_stated and all(_is_tight(ledger, observer) for ledger in ledgers)
        return Finding(observer, epsilons[best], best, exact)
    return Finding(observer, epsilons[best], best, rests_on=shown(ACCOUNTANTS[best]).rests_on)


def _is_tight(ledger: Ledger, observer: Observer) -> bool:
    """Whether some data attain what ``gaussian`` counts: everyone always takes part, nothing is projected or hidden."""
    everyone = all(event.sampling.law == "all" and event.domain is None for event, _ in ledger.runs())
    return everyone and (observer == "models" or (observer == "model" and len(ledger.events) == 1))
