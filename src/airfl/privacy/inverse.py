"""The inverse question: how much noise, or how many rounds, for this ε? The answer never spends more.

What Opacus users know as ``get_noise_multiplier``: √v/c, with v from ``noise_for``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airfl.privacy.accountant import ACCOUNTANTS, make_accountant
from airfl.privacy.budget import smallest, square
from airfl.privacy.events import SEEING, Neighbours, Observer, check_delta, reach, relation_of, require
from airfl.privacy.gaussian import gaussian_mu
from airfl.privacy.sampled import TOLERANCE
from airfl.privacy.whatif import MOST_ROUNDS, WhatIf, check_heard, check_names, default_neighbours, own_observer

Unknown = Literal["noise_var", "rounds"]


@dataclass(frozen=True)
class Target:
    """A promise to plan for.

    Attributes:
        epsilon: what must not be exceeded.
        delta: δ.
        neighbours: the relation; None: replace where K of n are drawn, else zero-out.
        observer: whom it is about, None: anyone who sees models, or else whom the accountant is made for. The base
            station needs ``received_snr``, and can be asked about rounds only.
        accountant: who counts; "all": the proven ones that can say least.
    """

    epsilon: float
    delta: float = 1e-5
    neighbours: str | None = None
    observer: str | None = None
    accountant: str = "all"

    def __post_init__(self) -> None:
        check_delta(self.delta)
        require(0.0 < self.epsilon < math.inf, f"`epsilon` must be positive and finite; got {self.epsilon}")
        check_names(self.observer, self.accountant)

    @property
    def view(self) -> Observer:
        """Whom it is about."""
        return self.observer or own_observer(ACCOUNTANTS.get(self.accountant))  # type: ignore[return-value]

    def relation(self, question: WhatIf) -> Neighbours:
        """The relation for this question."""
        return default_neighbours(question.ledger()) if self.neighbours is None else relation_of(self.neighbours)

    def spent(self, question: WhatIf) -> float:
        """ε of a question: the least of the accountants that count."""
        ledger, relation = question.ledger(), self.relation(question)
        names = self._deciding(question) if self.accountant == "all" else [self.accountant]
        return min(make_accountant(name, ledger, relation, self.view).epsilon(self.delta) for name in names)

    def _deciding(self, question: WhatIf) -> list[str]:
        """Proven accountants of which none is below another everywhere."""
        names = ["gaussian"]
        if question.participation < 1.0 and self.view in ACCOUNTANTS["sampled"].observers:
            names.append("sampled")
        if question.diameter is not None and self.view in ACCOUNTANTS["convergent"].observers:
            names.append("convergent")
        return names


@dataclass(frozen=True)
class Kept:
    """What keeps a target.

    Attributes:
        question: as asked, with what was unknown put in; one round where there is none that keeps it.
        solved_for: what was unknown; None: whether the target is kept was asked.
        kept: whether the question as it is now keeps it.
        noise_var: the least for the rounds asked about; None where rounds were unknown, or antennas are asked about.
        rounds: the most for the noise asked about; None where noise was unknown.
    """

    target: Target
    question: WhatIf
    solved_for: Unknown | None
    kept: bool
    noise_var: float | None
    rounds: int | None

    @property
    def noise_multiplier(self) -> float | None:
        """Standard deviation of the noise over the clip norm, as other libraries count it."""
        return None if self.noise_var is None else math.sqrt(self.noise_var) / self.question.clip_norm

    @property
    def summary(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "target": self.target.epsilon,
            "solved_for": self.solved_for,
            "kept": self.kept,
            "noise_var": self.noise_var,
            "noise_std": None if self.noise_var is None else math.sqrt(self.noise_var),
            "noise_multiplier": self.noise_multiplier,
            "rounds": self.rounds,
            "is_most_asked": self.rounds == MOST_ROUNDS,
        }


def keep(question: WhatIf, target: Target, unknown: Unknown | None = None) -> Kept:
    """Solve a question for its unknown; without one, say whether it keeps the target and what would."""
    if unknown == "noise_var":
        least = least_noise(question, target)
        return Kept(target, replace(question, noise_var=least), unknown, True, least, None)
    rounds = most_rounds(question, target)
    if unknown == "rounds":
        return Kept(target, replace(question, rounds=max(1, rounds)), unknown, rounds > 0, None, rounds)
    of_models = question.received_snr is None and target.view not in SEEING
    noise = least_noise(question, target) if of_models else None
    return Kept(target, question, None, target.spent(question) <= target.epsilon, noise, rounds)


def least_noise(question: WhatIf, target: Target) -> float:
    """The least noise variance v with which the rounds of a question keep a target; its own is not looked at."""
    require(
        question.received_snr is None and target.view not in SEEING,
        "what someone who sees signals learns does not follow from the noise of the sum alone; ask about `models`, "
        "give --noise-var and --received-snr and ask for the rounds, or plan with: airfl plan --observer base-station",
    )
    asked = replace(question, noise_var=1.0)
    sensitivity = reach(target.relation(asked)) * asked.clip_norm
    start = asked.rounds * square(sensitivity / gaussian_mu(target.epsilon, target.delta))
    tolerance = TOLERANCE if asked.participation < 1.0 else 1e-13
    return smallest(lambda v: target.spent(replace(asked, noise_var=v)), target.epsilon, start, tolerance)


def most_rounds(question: WhatIf, target: Target) -> int:
    """The most rounds for which the noise of a question keeps a target; 0 where one is too many.

    Never more than a question may have, ``MOST_ROUNDS``.
    """
    asked = replace(question, rounds=1)
    check_heard([asked.ledger()], target.view)

    def exceeds(rounds: int) -> bool:
        return target.spent(replace(asked, rounds=rounds)) > target.epsilon

    if exceeds(1):
        return 0
    kept, beyond = _bracket(exceeds, _first_guess(asked, target))
    return kept + bisect_left(range(kept + 1, beyond), True, key=exceeds)


def _first_guess(question: WhatIf, target: Target) -> int:
    """How many rounds exact accounting grants without any credit, about."""
    if target.view in SEEING or question.noise_var == 0.0:
        return 1
    ratio = reach(target.relation(question)) * question.clip_norm / math.sqrt(question.noise_var)
    share = gaussian_mu(target.epsilon, target.delta) / ratio
    return int(min(max(share, 1.0), 1e3) ** 2)


def _bracket(exceeds: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """Rounds that keep, of which one is known to, and the first number that is known not to, or is not to be asked."""
    kept, beyond = 1, max(2, guess)
    while beyond <= MOST_ROUNDS and not exceeds(beyond):
        kept, beyond = beyond, min(4 * beyond, max(MOST_ROUNDS, beyond + 1))
    return kept, beyond


def noise_for(
    epsilon: float,
    delta: float,
    clip_norm: float,
    rounds: int,
    *,
    participation: float = 1.0,
    poisson: bool = False,
    devices: int | None = None,
    neighbours: str | None = None,
) -> float:
    """The least noise variance per real coordinate of the sum that keeps (ε, δ) over T rounds, proven.

    Holds against anyone who sees the models; with ``participation`` below 1, if they do not see who takes part.

    Args:
        clip_norm: c; with 1, the root of the answer is the noise multiplier.
        poisson: whether each device takes part by its own coin; else K of n are drawn.
        devices: n; a whole number of them is drawn then.
        neighbours: "zero-out" or "replace"; None: replace where K of n are drawn, else zero-out.
    """
    question = WhatIf(clip_norm, 1.0, rounds, participation, poisson, devices)
    return least_noise(question, Target(epsilon, delta, neighbours))


def rounds_for(
    epsilon: float,
    delta: float,
    clip_norm: float,
    noise_var: float,
    *,
    participation: float = 1.0,
    poisson: bool = False,
    devices: int | None = None,
    neighbours: str | None = None,
) -> int:
    """The most rounds for which noise of this variance per real coordinate of the sum keeps (ε, δ), proven.

    0 where one round is too many, and 1,000,000 at most. The rest is as in ``noise_for``.
    """
    question = WhatIf(clip_norm, noise_var, 1, participation, poisson, devices)
    return most_rounds(question, Target(epsilon, delta, neighbours))
