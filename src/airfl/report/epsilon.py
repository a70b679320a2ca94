"""What `airfl epsilon` says: the answer in a sentence, and a narrow table. Loads nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airfl.privacy import MOST_ROUNDS, Finding, Kept
from airfl.terminal import numbers, print_table, prose, words
from airfl.wording import NEIGHBOUR_WORDS, OBSERVER_AGAINST, OBSERVER_SHORT, number, plain_console, rounded_up

_GRANTED = {
    "nothing": "an upper bound",
    "hidden participation": "an upper bound if who takes part stays hidden",
    "smoothness": "an upper bound that rests on the stated smoothness, which nobody checks",
}

Answers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Answer:
    """What was asked and found.

    Attributes:
        answers: by accountant, as ``privacy.compare`` gives them.
        findings: by observer, as ``privacy.proven`` gives them; none where the accountant asked for proves nothing.
        kept: what was found for a target.
        scheme: of a run's ledger; None for a what-if question.
        trials: how many ledgers there were, of which the worst counts.
        note: on what was answered in place of what was asked; empty: nothing.
    """

    answers: Answers
    findings: Sequence[Finding]
    kept: Kept | None = None
    scheme: str | None = None
    trials: int = 1
    note: str = ""

    @property
    def neighbours(self) -> str:
        """The relation that was asked about; the published bound has its own, and is never the first of several."""
        return str(next(iter(self.answers.values()))["neighbours"])

    @property
    def text(self) -> str:
        """The answer in one sentence, and one more for every other observer."""
        (name, answer), *_ = self.answers.items()
        observer = self.findings[0].observer if self.findings else answer["observer"]
        around = f"{NEIGHBOUR_WORDS[self.neighbours]}, against {OBSERVER_AGAINST[observer]}"
        if self.trials > 1:
            around += f"; the worst of {self.trials} trials"
        if self.findings:
            sentence = _first(self.findings[0], number(answer["delta"]), around, self.kept, self.scheme)
        else:
            sentence = _unproven(name, answer, around, self.kept)
        if self.scheme is not None:
            sentence = f"{self.scheme}: {sentence}"
        others = [f"Against {_about(one, self.scheme)}." for one in self.findings[1:]]
        return " ".join([sentence, *others, *([f"{self.note}."] if self.note else [])])

    @property
    def summary(self) -> dict[str, Any]:
        """Plain data: the first finding, all of them, what was found for a target, and all accountants."""
        first = self.findings[0] if self.findings else None
        nothing = {"epsilon": None, "known": False, "accountant": None, "exact": False, "rests_on": "nothing"}
        return {
            "scheme": self.scheme,
            "answer": self.text,
            **(nothing if first is None else first.summary),
            "observer": None if first is None else first.observer,
            "against": {one.observer: one.summary for one in self.findings},
            "inverse": None if self.kept is None else self.kept.summary,
            "accountants": self.answers,
        }


def _first(first: Finding, delta: str, around: str, kept: Kept | None, scheme: str | None) -> str:
    if first.epsilon is None:
        return f"Against {_about(first, scheme)}."
    claim = f"({_grade(first)}, {around})"
    if math.isinf(first.epsilon):
        said = f"ε = ∞ at δ = {delta}: no protection ({around})."
    else:
        said = f"{_bound(first.epsilon)} at δ = {delta} {claim}."
    if kept is None:
        return said
    goal = f"ε ≤ {rounded_up(kept.target.epsilon)} at δ = {delta}"
    if kept.solved_for == "noise_var":
        return f"{goal} over {_rounds(kept.question.rounds)} is kept by noise of {_noise(kept, ' or more')} {claim}."
    if kept.solved_for is None:
        return _checked(kept, "Not kept" if first.exact else "Not proven", said)
    if kept.rounds == 0:
        return f"This noise does not keep ε ≤ {rounded_up(kept.target.epsilon)} for one round: {said}"
    beyond = ", the most that can be asked about" if kept.rounds == MOST_ROUNDS else ""
    return f"This noise keeps {goal} for up to {_rounds(kept.rounds)}{beyond} {claim}."


def _checked(kept: Kept, missed: str, said: str) -> str:
    """Whether a target is kept, and what noise or how many rounds just keep it."""
    return f"{'Kept' if kept.kept else missed}: {said} The target is {rounded_up(kept.target.epsilon)}{_enough(kept)}."


def _enough(kept: Kept) -> str:
    """What noise or how many rounds just keep a target."""
    ways = [] if kept.noise_var is None else [f"a noise variance of {rounded_up(kept.noise_var, 6)} or more"]
    ways += [f"up to {_rounds(kept.rounds)}"] if kept.rounds else []
    joined = f"{ways[0]}, or {ways[1]}," if len(ways) > 1 else "".join(ways)
    return f"; {joined} would keep it" if ways else ""


def _rounds(count: int | None) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def _noise(kept: Kept, more: str = "") -> str:
    variance, times = kept.noise_var or 0.0, kept.noise_multiplier or 0.0
    std = rounded_up(math.sqrt(variance))
    return f"variance {rounded_up(variance, 6)}{more}, std {std}, noise multiplier {rounded_up(times)}"


def _bound(epsilon: float) -> str:
    return "ε = 0" if epsilon == 0.0 else f"ε ≤ {rounded_up(epsilon)}"


def _grade(found: Finding) -> str:
    return "exact" if found.exact else _GRANTED[found.rests_on]


def _about(found: Finding, scheme: str | None) -> str:
    """What is known of one more observer."""
    whom = OBSERVER_AGAINST[found.observer]
    if found.epsilon is None:
        where = "these numbers; --received-snr would tell" if scheme is None else "this ledger"
        return f"{whom}: not known from {where}"
    if math.isinf(found.epsilon):
        return f"{whom}: no protection, ε = ∞"
    return f"{whom}: {_bound(found.epsilon)} ({_grade(found)})"


def _unproven(name: str, answer: Mapping[str, Any], around: str, kept: Kept | None) -> str:
    """A number that is no proof, said as such."""
    value = "no finite ε" if answer["epsilon"] is None else f"ε = {rounded_up(answer['epsilon'])}"
    how = "" if kept is None else f" for {_rounds(kept.question.rounds)}{_by_this_count(kept)}"
    at = f"at δ = {number(answer['delta'])} ({around})"
    why = f", since {answer['note']}" if "note" in answer else ""
    return f"`{name}` gives {value} {at}{how}. That is not a proof{why}: the true ε may be larger."


def _by_this_count(kept: Kept) -> str:
    """How a target fares with an accountant that proves nothing."""
    target = f"the target of {rounded_up(kept.target.epsilon)}"
    if kept.solved_for == "noise_var":
        return f" with noise of {_noise(kept)}, the least for {target}"
    if not kept.kept:
        return f", above {target}{_enough(kept)} by this count"
    if kept.solved_for is None:
        return f", within {target}{_enough(kept)} by this count"
    asked = "that can be asked about, within" if kept.rounds == MOST_ROUNDS else "for"
    return f", the most {asked} {target}"


def _row(name: str, found: Mapping[str, Any]) -> tuple[str, str, str, str]:
    epsilon, valid = found["epsilon"], found["valid"]
    shown = "∞" if epsilon is None else rounded_up(epsilon)
    standing = ("proven" if found["known"] else "not known") if valid else "not a proof"
    return name, shown if found["known"] else "?", OBSERVER_SHORT[found["observer"]][1], standing


def print_epsilon(answer: Answer, *, explain: bool = False, folder: str | None = None) -> None:
    """The answer, then every accountant: those that prove something first."""
    console = plain_console()
    console.print(answer.text, highlight=False)
    rows = sorted(answer.answers.items(), key=lambda item: not item[1]["valid"])
    columns = [words("accountant"), *numbers("ε"), prose("against anyone who sees"), words("")]
    print_table(columns, [_row(name, found) for name, found in rows])
    for name, found in rows:
        if found["neighbours"] != answer.neighbours:
            console.print(f"{name} counts {NEIGHBOUR_WORDS[found['neighbours']]}, always.", highlight=False)
    if explain:
        console.print()
        for name, found in rows:
            here = f" Here: {found['note']}." if "note" in found else ""
            console.print(f"{name}: {found['assumptions']}{here}\n", highlight=False)
    if folder is not None:
        console.print(f"Figure: {folder}/privacy.png", highlight=False)
