"""The outcome of a run, and its summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from airfl.accounting import accountants_of, observers_in
from airfl.config import Config
from airfl.privacy import Ledger, Observer, epsilon_of
from airfl.rounds import CoverUsed, RoundRecord
from airfl.transceiver import Perk

#: Of the object that ``airfl run --json`` prints and summary.json holds; older ones have none.
SUMMARY_FORMAT = "airfl-summary/1"

Status = Literal["done", "diverged", "interrupted", "refused"]


@dataclass(frozen=True)
class SchemeResult:
    """What one scheme gave.

    Attributes:
        records: one row per trial and round.
        ledgers: one per trial.
        models: final models, [trials, d]; None unless the scheme is done and its budget was kept.
        transmitting: devices that transmit in a round, or would on average; 0 where an older version did not say.
        never_heard: devices that did not transmit in any round, per trial.
        perks: one per trial where there is a budget and a radio link.
        cover: what devices hid in, per trial; empty for schemes without.
        accountant: whose ε the records hold; observer: whom it is about.
        status: how the scheme ended; ``message`` says why if it is not done.
        seconds: time the rounds took.
    """

    records: tuple[RoundRecord, ...]
    ledgers: tuple[Ledger, ...]
    models: torch.Tensor | None = field(repr=False)
    never_heard: tuple[int, ...]
    perks: tuple[Perk, ...]
    status: Status
    message: str
    seconds: float
    accountant: str
    observer: Observer
    transmitting: float = 0.0
    cover: tuple[CoverUsed, ...] = ()

    def final(self, *, tested: bool = False) -> list[RoundRecord]:
        """The last record of every trial; with ``tested``, the last one that has an accuracy."""
        last = {r.trial: r for r in self.records if not (tested and math.isnan(r.accuracy))}
        return [last[trial] for trial in sorted(last)]

    def column(self, name: str) -> np.ndarray:
        """One quantity as an array [trials, rounds]; NaN where a trial did not get so far."""
        trials = sorted({record.trial for record in self.records})
        rows = [[getattr(r, name) for r in self.records if r.trial == trial] for trial in trials]
        longest = max((len(row) for row in rows), default=0)
        return np.array([row + [np.nan] * (longest - len(row)) for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class Result:
    """A whole run: ``result.summary["schemes"]["airfl-dp"]["accuracy_mean"]``.

    Attributes:
        accountant: who books the budget, after resolving ``auto``.
        chance: test accuracy of always naming the most frequent class; 0 where an older version did not say.
        kept: the summary of a run that was loaded; reading one executes nobody's code.
    """

    config: Config
    dim: int
    schemes: dict[str, SchemeResult]
    provenance: dict[str, Any]
    accountant: str
    chance: float = 0.0
    out: str | None = None
    kept: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Every record as a plain row; ``pandas.DataFrame(result.rounds)`` makes a table of it."""
        return [asdict(record) for scheme in self.schemes.values() for record in scheme.records]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The object that is printed by ``airfl run --json`` and kept in summary.json; null: there is none."""
        if self.kept is not None:
            return {**self.kept, "out": self.out}
        return {
            "format": SUMMARY_FORMAT,
            "out": self.out,
            "dim": self.dim,
            "chance_accuracy": self.chance,
            "delta": self.config.privacy.delta,
            "neighbours": self.config.neighbours,
            "budget_epsilon": self.config.privacy.epsilon_for(self.dim),
            "budget_accountant": self.accountant,
            "schemes": {name: self._summary(scheme) for name, scheme in self.schemes.items()},
        }

    def _summary(self, scheme: SchemeResult) -> dict[str, Any]:
        final, tested = scheme.final(), scheme.final(tested=True)
        booked = [event.noise_var for ledger in scheme.ledgers for event in ledger.events]
        noise = [record.noise_var for record in scheme.records] or booked  # a round that diverged has no record
        delta, neighbours = self.config.privacy.delta, self.config.neighbours
        by_observer = {
            observer: {
                name: finite_or_none(epsilon_of(scheme.ledgers, kind, neighbours, observer, delta))
                for name, kind in accountants_of(self.config).items()
                if observer in kind.observers
            }
            for observer in observers_in(self.config)
        }
        return {
            "status": scheme.status,
            "message": scheme.message,
            "accountant": scheme.accountant,
            "observer": scheme.observer,
            "accuracy_mean": _mean([record.accuracy for record in tested]),
            "accuracy_std": _std([record.accuracy for record in tested]),
            "loss_mean": _mean([record.loss for record in tested]),
            "train_loss_mean": _mean([record.train_loss for record in final]),
            "rounds": max((record.round for record in final), default=0),
            "trials": len(final),
            "epsilon": by_observer["model"],
            "epsilon_by_observer": by_observer,
            "noise_var_mean": _mean(noise),
            "transmitting": scheme.transmitting,
            "never_heard": list(scheme.never_heard),
            "cover": [asdict(used) for used in scheme.cover],
            "perk": [asdict(item) for item in scheme.perks],
            "seconds": scheme.seconds,
        }


def finite_or_none(value: float) -> float | None:
    """JSON has no infinity: null says that there is no number that holds, so an ε of null promises nothing."""
    return value if math.isfinite(value) else None


def _mean(values: Sequence[float]) -> float | None:
    return finite_or_none(float(np.mean(values))) if values else None


def _std(values: Sequence[float]) -> float | None:
    """Sample standard deviation over trials; 0 for a single one."""
    if not values:
        return None
    return finite_or_none(float(np.std(values, ddof=1))) if len(values) > 1 else 0.0
