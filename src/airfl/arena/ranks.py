"""Ranks: in every cell by mean accuracy, of those alone whose exact ε is at most the one that was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from airfl.arena.description import Arena, Cell
from airfl.sweeps.summary import interval

#: A budget is kept to rounding of our own.
ROUNDING = 1e-9
Outcome = Literal["better", "worse", "the same", "cannot tell"]


@dataclass(frozen=True)
class Place:
    """A scheme in a cell.

    Attributes:
        accuracies: by trial, of those that are done.
        mean, low, high: over trials, with the 95 % interval of Student's t.
        epsilon: exact, against whoever sees the models, the worst of the trials; infinite where nothing is promised.
        epsilon_base_station: the same against the base station.
        failed: trials that diverged or were refused.
        proven: whether that ε is a proof; it is none where noise was chosen by looking at updates.
        rank: 1 is the best of those that are ranked; None: not ranked.
        leads: whether nobody who is ranked can be told to be better.
    """

    scheme: str
    cell: Cell
    accuracies: Mapping[int, float]
    mean: float
    low: float
    high: float
    epsilon: float
    epsilon_base_station: float
    failed: int = 0
    proven: bool = True
    rank: int | None = None
    leads: bool = False

    @property
    def keeps(self) -> bool:
        """Whether its exact, proven ε is at most the one that was asked for, in all trials, and none of them failed."""
        asked = self.cell.epsilon
        good = bool(self.accuracies) and not self.failed and self.proven
        return good and asked is not None and self.epsilon <= asked * (1.0 + ROUNDING)


@dataclass(frozen=True)
class Difference:
    """Accuracy of one scheme less that of another over the same trials, with its 95 % interval."""

    mean: float
    low: float
    high: float
    outcome: Outcome


@dataclass(frozen=True)
class Standing:
    """A scheme over all cells.

    Attributes:
        mean_rank: over the cells where it is ranked; None where it never is.
        ranked, leading, cells: in how many cells it is ranked, in how many nobody can be told to be better, how many
            there are.
    """

    scheme: str
    mean_rank: float | None
    ranked: int
    leading: int
    cells: int


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> Difference:
    """The mean difference over the trials that both have; a single trial tells nothing."""
    both = sorted(set(one) & set(other))
    mean, low, high = interval(np.array([one[trial] - other[trial] for trial in both] or [math.nan]))
    if both and all(one[trial] == other[trial] for trial in both):
        return Difference(0.0, 0.0, 0.0, "the same")
    if len(both) < 2 or low <= 0.0 <= high:
        return Difference(mean, low, high, "cannot tell")
    return Difference(mean, low, high, "better" if low > 0.0 else "worse")


def places(arena: Arena, scale: str, rows: Sequence[Mapping[str, Any]]) -> list[Place]:
    """Every scheme that has rows in every cell, ranked there."""
    by: dict[tuple[str, Cell], list[Mapping[str, Any]]] = {}
    for row in rows:
        by.setdefault((row["scheme"], Cell(row["data"], row["snr_db"], row["epsilon_asked"])), []).append(row)
    schemes = [name for name in arena.schemes if any(key[0] == name for key in by)]
    found: list[Place] = []
    for cell in arena.cells(scale):
        keys = [(name, cell.felt_by(name)) for name in schemes]
        found += _ranked([_place(key[0], cell, by[key]) for key in keys if key in by])
    return found


def _place(scheme: str, cell: Cell, rows: Sequence[Mapping[str, Any]]) -> Place:
    done = [row for row in rows if row["status"] == "done"]
    accuracies = {row["trial"]: row["accuracy"] for row in done}
    mean, low, high = interval(np.array(list(accuracies.values()) or [math.nan]))

    def worst(key: str) -> float:
        return max((math.inf if row[key] is None else row[key] for row in done), default=math.inf)

    epsilons = worst("epsilon"), worst("epsilon_base_station")
    proven = all(row["proven"] in (True, "True") for row in done)  # a table that was read has words
    return Place(scheme, cell, accuracies, mean, low, high, *epsilons, len(rows) - len(done), proven)


def _ranked(own: Sequence[Place]) -> list[Place]:
    """The places of a cell with their ranks; equal means share the better one."""
    good = [place for place in own if place.keeps]
    return [_with_rank(place, good) if place in good else place for place in own]


def _with_rank(place: Place, good: Sequence[Place]) -> Place:
    rank = 1 + sum(other.mean > place.mean for other in good)
    beaten = any(difference(place.accuracies, other.accuracies).outcome == "worse" for other in good)
    values = {key: getattr(place, key) for key in Place.__dataclass_fields__}
    return Place(**{**values, "rank": rank, "leads": not beaten})


def standings(found: Sequence[Place]) -> list[Standing]:
    """Schemes by their mean rank, those first that are ranked in every cell, then by the number of such cells."""
    made = []
    for name in dict.fromkeys(place.scheme for place in found):
        own = [place for place in found if place.scheme == name]
        ranks = [place.rank for place in own if place.rank is not None]
        mean = sum(ranks) / len(ranks) if ranks else None
        made.append(Standing(name, mean, len(ranks), sum(place.leads for place in own), len(own)))
    return sorted(made, key=lambda standing: (-standing.ranked, standing.mean_rank or 0.0))
