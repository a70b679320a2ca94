"""Several looks at a canary, paid for: the confidence that is stated holds for all of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from airfl.privacy.auditing import AuditBound
from airfl.privacy.events import Observer

#: `auditing.threshold_bound` or `auditing.gaussian_bound`.
Reading = Callable[[np.ndarray, np.ndarray, float, float], AuditBound]


@dataclass(frozen=True)
class Look:
    """Scores of one kind of canary.

    Attributes:
        name: which kind.
        observer: who could have computed the scores.
        scores_in: independent scores with the canary in; scores_out without it.
        which: repetition of each score, the same in both worlds.
    """

    name: str
    observer: Observer
    scores_in: np.ndarray = field(repr=False)
    scores_out: np.ndarray = field(repr=False)
    which: np.ndarray = field(repr=False)


def pooled(looks: Sequence[Look]) -> Look:
    """All looks as one, each around the middle of its scores without the canary.

    An attacker who draws the kind of canary beforehand, and knows which, is an attacker like any other. The middle is
    that of the first third of the repetitions, which choose the threshold and are not counted.
    """
    which = np.concatenate([look.which for look in looks])
    order, chosen = np.argsort(which, kind="stable"), np.sort(which)[: max(1, len(which) // 3)]
    middles = []
    for look in looks:
        first = look.scores_out[np.isin(look.which, chosen)]
        middles.append(float(np.median(first)) if len(first) else 0.0)
    worlds = [
        np.concatenate([scores - middle for scores, middle in zip(parts, middles, strict=True)])[order]
        for parts in ([look.scores_in for look in looks], [look.scores_out for look in looks])
    ]
    return Look("together", looks[0].observer, worlds[0], worlds[1], which[order])


def read_looks(looks: Sequence[Look], reading: Reading, delta: float, confidence: float) -> dict[str, AuditBound]:
    """The bound of every look; all hold together with the stated confidence.

    The first look has half of what may go wrong, the others share the rest.
    """
    shares = [1.0] if len(looks) == 1 else [0.5] + [0.5 / (len(looks) - 1)] * (len(looks) - 1)
    found = {}
    for look, share in zip(looks, shares, strict=True):
        bound = reading(look.scores_in, look.scores_out, delta, 1.0 - share * (1.0 - confidence))
        found[look.name] = replace(bound, confidence=confidence)
    return found


def best(bounds: dict[str, AuditBound]) -> AuditBound:
    """The bound that proves most, the first of equal ones; its ceiling is that of all of them."""
    found = max(bounds.values(), key=lambda bound: bound.epsilon_lower)
    return replace(found, epsilon_ceiling=max(bound.epsilon_ceiling for bound in bounds.values()))
