"""What an audit found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airfl.privacy import ACCOUNTANTS, SEEING, Ledger, Neighbours, Observer, epsilon_of, shown
from airfl.privacy.auditing import AuditBound, OneRunBound
from airfl.privacy.checks import Check
from airfl.runs.result import finite_or_none


@dataclass(frozen=True)
class View:
    """What the scores of one observer prove, against what every accountant claims about it.

    Attributes:
        bound: the lower bound that holds for any mechanism.
        gaussian: the same counts read as a Gaussian trade-off curve; None for the one-run variant.
        epsilon_upper: ε of every accountant that covers the observer.
    """

    observer: Observer
    bound: AuditBound | OneRunBound
    gaussian: AuditBound | None
    epsilon_upper: dict[str, float]

    @property
    def refuted(self) -> list[str]:
        """Accountants whose ε lies below what was measured."""
        return [name for name, upper in self.epsilon_upper.items() if self._lower_for(name) > upper]

    @property
    def summary(self) -> dict[str, Any]:
        """Plain data."""
        reading = self.gaussian
        return {
            "epsilon_lower": self.bound.epsilon_lower,
            "epsilon_lower_gaussian": None if reading is None else reading.epsilon_lower,
            "mu_lower": None if reading is None else reading.mu_lower,
            "epsilon_ceiling": self.bound.epsilon_ceiling,
            "epsilon_ceiling_gaussian": None if reading is None else reading.epsilon_ceiling,
            "epsilon_upper": {name: finite_or_none(value) for name, value in self.epsilon_upper.items()},
            "observer": self.observer,
            "refuted": self.refuted,
        }

    def _lower_for(self, name: str) -> float:
        """What counts against an accountant; the Gaussian reading speaks about Gaussian claims only."""
        readings = [self.bound.epsilon_lower]
        if self.gaussian is not None and shown(ACCOUNTANTS[name]).gaussian:
            readings.append(self.gaussian.epsilon_lower)
        return max(readings)


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        subject: what was audited, in a few words.
        view: what the final model proves; what signals prove, where they alone were looked at.
        repetitions: scores of both worlds together.
        scores_in: the test statistic with the canary, scores_out without it.
        others: what other observers' scores prove.
        looks: the kinds of canaries, and what each proves: (ε, ε by the Gaussian reading).
        checks: of noise, contributions and participation.
        tested: what was tested, in words; not_tested: what was not.
        promised_to: whom the scheme promises something; None where it promises nothing.
    """

    subject: str
    neighbours: Neighbours
    view: View
    repetitions: int
    scores_in: np.ndarray = field(repr=False)
    scores_out: np.ndarray = field(repr=False)
    others: tuple[View, ...] = ()
    looks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    tested: tuple[str, ...] = ()
    not_tested: tuple[str, ...] = ()
    promised_to: Observer | None = None

    @property
    def bound(self) -> AuditBound | OneRunBound:
        """The lower bound that holds for any mechanism."""
        return self.view.bound

    @property
    def gaussian(self) -> AuditBound | None:
        """The same counts read as a Gaussian trade-off curve; None for the one-run variant."""
        return self.view.gaussian

    @property
    def epsilon_upper(self) -> dict[str, float]:
        """ε of every accountant for the same ledger."""
        return self.view.epsilon_upper

    @property
    def refuted(self) -> list[str]:
        """Accountants whose ε lies below what was measured, by whatever observer they speak of."""
        return list(dict.fromkeys(name for view in (self.view, *self.others) for name in view.refuted))

    @property
    def failed(self) -> list[Check]:
        """Checks that failed, the least probable first."""
        return sorted((check for check in self.checks if not check.passed), key=lambda check: check.p_value)

    @property
    def findings(self) -> list[str]:
        """What speaks against the code or a proof, a sentence each; empty if nothing does."""
        refuted = [name for name in self.refuted if ACCOUNTANTS[name].valid]
        found = [f"the audit refutes {', '.join(refuted)}: more leaks than was booked"] if refuted else []
        return found + [f"check `{check.name}` failed: {check.found}" for check in self.failed]

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl audit --json`` prints."""
        view = self.view.summary
        views = {one.observer: one.summary for one in (self.view, *self.others)}
        return {
            "subject": self.subject,
            "epsilon_lower": view["epsilon_lower"],
            "confidence": self.bound.confidence,
            "epsilon_upper": view["epsilon_upper"],
            "delta": self.bound.delta,
            "neighbours": self.neighbours,
            "observer": self.view.observer,
            "epsilon_lower_gaussian": view["epsilon_lower_gaussian"],
            "mu_lower": view["mu_lower"],
            "epsilon_ceiling": view["epsilon_ceiling"],
            "epsilon_ceiling_gaussian": view["epsilon_ceiling_gaussian"],
            "repetitions": self.repetitions,
            "refuted": self.refuted,
            "refuted_proofs": [name for name in self.refuted if ACCOUNTANTS[name].valid],
            "promised_to": self.promised_to,
            "tested": list(self.tested),
            "not_tested": list(self.not_tested),
            "looks": [
                {"name": name, "epsilon_lower": lower, "epsilon_lower_gaussian": reading}
                for name, (lower, reading) in self.looks.items()
            ],
            "base_station": views.get("base-station"),
            "views": list(views.values()),
            "checks": [
                {
                    "name": check.name,
                    "p_value": check.p_value,
                    "threshold": check.threshold,
                    "passed": check.passed,
                    "looks": check.looks,
                    "found": None if check.passed else check.found,
                }
                for check in self.checks
            ],
            "failed_checks": [check.name for check in self.failed],
            "findings": self.findings,
        }


def uppers(
    ledgers: Sequence[Ledger], neighbours: Neighbours, delta: float, observer: Observer = "model"
) -> dict[str, float]:
    """ε of every accountant for an observer, the worst of the repetitions."""
    different = list(_different(ledgers, observer))
    return {
        name: epsilon_of(different, kind, neighbours, observer, delta)
        for name, kind in ACCOUNTANTS.items()
        if observer in kind.observers
    }


def _different(ledgers: Sequence[Ledger], observer: Observer) -> Iterator[Ledger]:
    """Ledgers that differ in what accountants look at."""
    seen = set()
    for book in ledgers:
        key: tuple[object, ...] = tuple(
            (e.noise_var, e.gain_bound, e.domain, e.gradient_var, e.hides_participation) for e in book.events
        )
        if observer in SEEING:
            key += tuple(e.visibility(observer) for e in book.events)
            key += (book.devices[observer].tobytes(),) if observer in book.devices else ()
        if key not in seen:
            seen.add(key)
            yield book
