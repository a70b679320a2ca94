"""ε against the number of rounds, for every accountant: from formulas, no training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from airfl.privacy import ACCOUNTANTS, Ledger, Neighbours, WhatIf, epsilon_of, shown


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
    lines: list[tuple[str, float | None]] = [
        (name, None)
        for name, kind in ACCOUNTANTS.items()
        if not shown(kind).needs_domain and not (shown(kind).needs_antennas and question.received_snr is None)
    ]
    lines += [(name, d) for name, kind in ACCOUNTANTS.items() if shown(kind).uses_domain for d in diameters]
    found: dict[tuple[str, float | None], list[float]] = {line: [] for line in lines}
    for t in rounds:
        books: dict[float | None, Ledger] = {None: plain.ledger(t)}
        books.update({d: replace(question, diameter=d).ledger(t) for d in diameters})
        for name, diameter in lines:
            kind = ACCOUNTANTS[name]
            found[name, diameter].append(epsilon_of(books[diameter], kind, neighbours, kind.observers[0], delta))
        if advance is not None:
            advance(1)
    return [Curve(name, d, tuple(rounds), tuple(values)) for (name, d), values in found.items()]
