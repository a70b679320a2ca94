"""ε against the number of rounds, for every accountant: from formulas, no training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from airfl.privacy import ACCOUNTANTS, Ledger, Neighbours, WhatIf, make_accountant

#: Accountants that a domain changes.
WITH_DOMAIN = ("convergent", "paper")


@dataclass(frozen=True)
class Curve:
    """One line of the figure; ``diameter`` is None where no domain is enforced."""

    accountant: str
    diameter: float | None
    rounds: tuple[int, ...]
    epsilon: tuple[float, ...]


def privacy_curves(
    question: WhatIf,
    diameters: Sequence[float],
    delta: float,
    neighbours: Neighbours,
    *,
    points: int = 25,
    also: Sequence[int] = (),
    advance: Callable[[int], None] | None = None,
) -> list[Curve]:
    """ε after 1 to T rounds for every accountant, and for each diameter where one makes a difference.

    Args:
        points: about so many numbers of rounds, evenly apart on a logarithmic axis, and those of ``also``.
        advance: called after each of them.
    """
    rounds = sorted({*also, *(int(t) for t in np.geomspace(1, question.rounds, points).round())})
    plain = replace(question, diameter=None, smoothness=None)
    lines: list[tuple[str, float | None]] = [(name, None) for name in ACCOUNTANTS if name != "convergent"]
    if question.received_snr is None:
        lines.remove(("liu2024", None))
    lines += [(name, diameter) for name in WITH_DOMAIN for diameter in diameters]
    found: dict[tuple[str, float | None], list[float]] = {line: [] for line in lines}
    for t in rounds:
        books: dict[float | None, Ledger] = {None: plain.ledger(t)}
        books.update({d: replace(question, diameter=d).ledger(t) for d in diameters})
        for name, diameter in lines:
            observer = ACCOUNTANTS[name].observers[0]
            accountant = make_accountant(name, books[diameter], neighbours, observer)
            found[name, diameter].append(accountant.epsilon(delta))
        if advance is not None:
            advance(1)
    return [Curve(name, d, tuple(rounds), tuple(values)) for (name, d), values in found.items()]
