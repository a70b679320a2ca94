"""The outcome of a run, and its summary."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from airfl.accounting import accountant_named, accountants_of, observers_in
from airfl.catalogue import require_known
from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import later, path_of
from airfl.privacy import ACCOUNTANTS, SEEING, Accountant, Ledger, Neighbours, Observer, epsilon_of, relation_of, shown
from airfl.rounds import MEASURED, CoverUsed, RoundRecord
from airfl.runs.tables import frame_of, record_schema
from airfl.traits import OBSERVERS, SCHEMES, scheme_traits
from airfl.transceiver import Perk
from airfl.wording import (
    OBSERVER_SHORT,
    at_most_text,
    counted,
    html_table,
    number,
    percent,
    text_table,
)

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
        never_heard: devices that did not transmit in any round, per trial; empty where that must stay hidden.
        perks: one per trial where there is a budget and a radio link, and they tell nothing of who took part.
        cover: what devices hid in, per trial; empty for schemes without.
        accountant: whose ε the records hold; observer: whom it is about.
        status: how the scheme ended; ``message`` says why if it is not done.
        seconds: time the rounds took.
        delta, neighbours: of the promise.
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
    delta: float = 1e-5
    neighbours: Neighbours = "zero-out"

    def __repr__(self) -> str:
        return f"<airfl.SchemeResult {self._in_short()}>"

    def _repr_html_(self) -> str:
        return html_table([self._row(self._name)], self._caption())

    def epsilon(
        self,
        delta: float | None = None,
        observer: Observer = "model",
        accountant: str | type[Accountant] = "gaussian",
        neighbours: str | None = None,
    ) -> float:
        """ε of the worst trial, from what was released; ``math.inf`` where there is no protection.

        Nobody's is a bound where ``noise_follows_data``.

        Args:
            delta: default: that of the run.
            observer: against whom: model, models, base-station, eavesdropper or everything.
            accountant: a name, an import path or a class; default: the exact one.
            neighbours: zero-out or replace; default: that of the run.
        """
        require_known("observer", observer, OBSERVERS)
        relation = self.neighbours if neighbours is None else relation_of(neighbours)
        kind = accountant_called(accountant)
        return epsilon_of(self.ledgers, kind, relation, observer, self.delta if delta is None else delta)

    def to_arrow(self) -> pa.Table:
        """Every record as a ``pyarrow.Table``."""
        return pa.Table.from_pylist([asdict(record) for record in self.records], schema=pa.schema(record_schema()))

    def to_pandas(self) -> Any:
        """Every record as a ``pandas.DataFrame``."""
        return frame_of(self.to_arrow())

    def plot(self, y: str = "accuracy", ax: Any = None) -> Any:
        """A column of the records against the round: mean and range over trials. Returns matplotlib's axes."""
        return later("airfl.report.rows_figure:draw_rounds")({self._name: self}, y, ax)

    @property
    def hides(self) -> bool:
        """Whether its ε rests on nobody knowing who took part; see ``by_observer``."""
        return _hides(self.accountant, self.ledgers)

    @property
    def noise_follows_data(self) -> bool:
        """Whether noise was chosen by an estimate from updates: then no ε of it is a bound."""
        return any(ledger.noise_follows_data for ledger in self.ledgers)

    @property
    def _name(self) -> str:
        return self.records[0].scheme if self.records else "scheme"

    def _accuracy(self) -> str:
        tested = [record.accuracy for record in self.final(tested=True)]
        return percent(_mean(tested), _std(tested), len(tested))

    def _epsilon(self) -> str:
        """Exact, for whom the promise is; and what was booked, where that is another figure."""
        exact = at_most_text(self.epsilon(observer=self.observer)) if self.ledgers else "–"
        last = [record.epsilon for record in self.final() if not math.isnan(record.epsilon)]
        booked = at_most_text(max(last)) if last else exact
        return exact if booked == exact else f"{exact} (booked by {self.accountant}: {booked})"

    def _row(self, name: str) -> dict[str, str]:
        words = OBSERVER_SHORT[self.observer][1]
        row = {"scheme": name, "accuracy": self._accuracy(), "ε": self._epsilon(), "against anyone who sees": words}
        return row if self.status == "done" else {**row, "status": self.status}

    def _caption(self) -> str:
        return f"ε at δ = {number(self.delta)}, {self.neighbours}"

    def _in_short(self) -> str:
        words = f"{self._name}: accuracy {self._accuracy()}, ε {self._epsilon()} ({self._caption()})"
        return words if self.status == "done" else f"{words}, {self.status}"

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

    def __repr__(self) -> str:
        """A few lines: what ran, what it gave, where it is kept."""
        system = self.config.system
        head = f"airfl.Result {self.config.name}: {counted(system.rounds, 'round')}, {counted(system.trials, 'trial')}"
        kept = "not kept; airfl.save(result, folder) keeps it" if self.out is None else f"kept in {self.out}"
        return f"<{head}\n{text_table(self._rows())}\n{self._caption()}; {kept}>"

    def _repr_html_(self) -> str:
        kept = "not kept" if self.out is None else f"kept in {self.out}"
        return html_table(self._rows(), f"{self.config.name}; {self._caption()}; {kept}")

    def _rows(self) -> list[dict[str, str]]:
        return [scheme._row(name) for name, scheme in self.schemes.items()]

    def _caption(self) -> str:
        return f"ε at δ = {number(self.config.privacy.delta)}, {self.config.neighbours}"

    def epsilon(
        self,
        delta: float | None = None,
        observer: Observer = "model",
        scheme: str | None = None,
        accountant: str | type[Accountant] = "gaussian",
        neighbours: str | None = None,
    ) -> float:
        """ε of one scheme from its ledgers, see ``SchemeResult.epsilon``.

        Args:
            scheme: default: the first that keeps a budget, else the first.
        """
        name = scheme or next((name for name in self.schemes if keeps_budget(name)), next(iter(self.schemes)))
        if name not in self.schemes:
            raise InputError(f"the result has no scheme `{name}`; it holds: {', '.join(self.schemes)}")
        return self.schemes[name].epsilon(delta, observer, accountant, neighbours)

    def to_arrow(self) -> pa.Table:
        """Every record of every scheme as a ``pyarrow.Table``."""
        return pa.Table.from_pylist(self.rounds, schema=pa.schema(record_schema()))

    def to_pandas(self) -> Any:
        """Every record of every scheme as a ``pandas.DataFrame``."""
        return frame_of(self.to_arrow())

    def plot(self, y: str = "accuracy", ax: Any = None) -> Any:
        """A column of the records against the round: mean and range over trials. Returns matplotlib's axes."""
        return later("airfl.report.rows_figure:draw_rounds")(self.schemes, y, ax)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Every record as a plain row; ``to_pandas`` makes a table of them."""
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
        found = by_observer(self.config, scheme.ledgers, scheme.accountant, accountants_of(self.config))
        return {
            "status": scheme.status,
            "message": scheme.message,
            "accountant": scheme.accountant,
            "observer": scheme.observer,
            "accuracy_mean": _mean([record.accuracy for record in tested]),
            "accuracy_std": _std([record.accuracy for record in tested]),
            "loss_mean": _mean([record.loss for record in tested]),
            "train_loss_mean": _mean([record.train_loss for record in final]),
            "measures": _measures(tested),
            "rounds": max((record.round for record in final), default=0),
            "trials": len(final),
            "epsilon": found["model"],
            "epsilon_by_observer": found,
            "noise_follows_data": scheme.noise_follows_data,
            "noise_var_mean": _mean(noise),
            "transmitting": scheme.transmitting,
            "never_heard": list(scheme.never_heard),
            "cover": [asdict(used) for used in scheme.cover],
            "perk": [asdict(item) for item in scheme.perks],
            "seconds": scheme.seconds,
        }


def accountant_called(wanted: str | type[Accountant]) -> str | type[Accountant]:
    """An accountant by name, import path or class."""
    path = wanted if isinstance(wanted, str) else path_of(wanted)
    if ":" in path:
        return accountant_named(path)
    require_known("accountant", path, ACCOUNTANTS)
    return path


def keeps_budget(name: str) -> bool:
    """Whether a scheme promises something, as far as its name tells."""
    return name not in SCHEMES or scheme_traits(name).budget


def by_observer(
    config: Config, ledgers: Collection[Ledger], accountant: str, kinds: Mapping[str, type[Accountant]] = ACCOUNTANTS
) -> dict[str, dict[str, float | None]]:
    """ε by observer and accountant, the worst of some ledgers; None: no finite ε.

    Where the accountant that booked counts on nobody knowing who took part, what would tell is left out: ε of all who
    see signals, and bounds with an enforced domain, which depend on how many took part.
    """
    hides = _hides(accountant, ledgers)
    left_out = SEEING if hides else ()
    mute = hides and config.learning.domain_diameter is not None
    return {
        observer: {
            name: finite_or_none(epsilon_of(ledgers, kind, config.neighbours, observer, config.privacy.delta))
            for name, kind in kinds.items()
            if observer in kind.observers and not (mute and shown(kind).uses_domain)
        }
        for observer in observers_in(config)
        if observer not in left_out
    }


def _hides(accountant: str, ledgers: Iterable[Ledger]) -> bool:
    return accountant == "sampled" and any(ledger.hides_participation for ledger in ledgers)


def finite_or_none(value: float) -> float | None:
    """JSON has no infinity: null says that there is no number that holds, so an ε of null promises nothing."""
    return value if math.isfinite(value) else None


def _measures(tested: Sequence[RoundRecord]) -> dict[str, dict[str, float | None]]:
    """Mean and deviation over trials of what `learning.metrics` asked for; nothing where it asked for nothing."""
    found = {}
    for name in MEASURED:
        values = [value for record in tested if not math.isnan(value := getattr(record, name))]
        if values:
            found[name] = {"mean": _mean(values), "std": _std(values)}
    return found


def _mean(values: Sequence[float]) -> float | None:
    return finite_or_none(float(np.mean(values))) if values else None


def _std(values: Sequence[float]) -> float | None:
    """Sample standard deviation over trials; 0 for a single one."""
    if not values:
        return None
    return finite_or_none(float(np.std(values, ddof=1))) if len(values) > 1 else 0.0
