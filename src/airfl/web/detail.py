"""One row in full: curves over rounds, its configuration, what every observer learns, what is claimed, its files."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from airfl.accounting import assumptions_of, is_proven, label_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Ledger
from airfl.report.sentences import headline
from airfl.report.study_source import Cell
from airfl.runs import load
from airfl.runs.result import by_observer, finite_or_none
from airfl.runs.store import DAMAGE
from airfl.schemes import scheme_shown
from airfl.study import Plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.summary import read_ledgers
from airfl.web.items import FILES, Item, Row, setting_text
from airfl.web.library import Snapshot
from airfl.web.limits import CURVE_POINTS
from airfl.web.places import file_below, require_inside, signature_of
from airfl.wording import NEIGHBOUR_WORDS, OBSERVER_WORDS, at_most_text, epsilon_meaning, number

#: What is drawn against rounds.
CURVES = ("accuracy", "epsilon", "noise_var", "train_loss")
#: Rows that are remembered.
REMEMBERED = 64
#: Trials of one round.
Rounds = Mapping[int, Sequence[float]]


class Details:
    """Rows in full, remembered while their files stay the same."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._known = OrderedDict[str, tuple[Any, dict[str, Any]]]()
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot, row_id: str) -> dict[str, Any]:
        """Everything about a row.

        Raises:
            KeyError: there is no such row.
            InputError: it cannot be read.
        """
        item, row = snapshot.by_id[row_id]
        now = signature_of(item.path) if item.kind == "run" else (row, item.changed)
        with self._lock:
            known = self._known.get(row_id)
        if known is None or known[0] != now:
            require_inside(self._root, item.path)
            try:
                found = _of_run(item) if item.kind == "run" else {row_id: _of_study(item, row)}
            except DAMAGE as error:
                raise InputError(f"`{item.folder}` cannot be read: {error}") from None
            with self._lock:
                for key, detail in found.items():
                    self._known[key] = now, detail
                    self._known.move_to_end(key)
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
            known = now, found[row_id]
        return {"row": row, **known[1], "files": files_of(self._root, item)}


def files_of(root: Path, item: Item) -> list[dict[str, Any]]:
    """What can be had of a folder, with its size."""
    found = []
    for name in FILES.get(item.kind, ()):
        path = file_below(root, item.path, name)
        if path is not None:
            found.append({"name": name, "folder": item.folder, "bytes": path.stat().st_size})
    return found


def _of_run(item: Item) -> dict[str, dict[str, Any]]:
    """The schemes of a run, all at once: they are in one file."""
    result = load(item.path)
    sentences, found = headline(result), {}
    for name, scheme in result.schemes.items():
        entry = result.summary["schemes"][name]
        curves = {key: _over_rounds((r.round, getattr(r, key)) for r in scheme.records) for key in CURVES}
        found[f"{item.folder}:{name}"] = {
            **_shared(result.config, name, entry["epsilon_by_observer"], scheme.ledgers),
            "curves": _drawn(curves),
            "sentences": sentences,
            "booked_by": entry["accountant"],
            "budget": result.summary["budget_epsilon"],
            "provenance": _plain(result.provenance),
        }
    return found


def _of_study(item: Item, row: Row) -> dict[str, Any]:
    plan, folder = item.plan, Folder(item.path)
    assert plan is not None
    point, scheme = int(row["point"]), str(row["scheme"])
    curves: dict[str, dict[int, list[float]]] = {key: {} for key in CURVES}
    books: dict[int, Ledger] = {}
    known, provenance, booked_by = True, {}, set[str]()
    for batch in plan.batches:
        receipt = folder.look(batch)[0] if point in batch.points else None
        if receipt is None:
            continue
        cells = [c for c in receipt["cells"] if (c["point"], c["scheme"], c["status"]) == (point, scheme, "done")]
        provenance = _plain(receipt["provenance"])
        booked_by |= {cell.get("accountant", "") for cell in cells}
        _add(curves, folder.part(batch), point, scheme, {cell["trial"] for cell in cells})
        ledgers = read_ledgers(folder, batch, receipt)
        known = known and ledgers is not None
        if ledgers is not None:
            books |= {id(ledger): ledger for ledger in (ledgers[point, scheme, cell["trial"]] for cell in cells)}
    config, own = plan.config(point), list(books.values())
    booked = "sampled" if "sampled" in booked_by else ""
    return {
        **_shared(config, scheme, by_observer(config, own, booked) if known and own else None, own),
        "curves": _drawn(curves),
        "sentences": _said(plan, config, scheme, row),
        "booked_by": config.privacy.accountant,
        "budget": None,
        "provenance": provenance,
    }


def _said(plan: Plan, config: Config, scheme: str, row: Row) -> list[str]:
    """What a row of a study means."""
    shown, count = scheme_shown(scheme), row["trials"]
    promise = (
        f"booked by `{config.privacy.accountant}`, for {OBSERVER_WORDS.get(row['against'], row['against'])}"
        if shown.keeps_budget
        else "of a scheme that keeps no budget"
    )
    return [
        f"{shown.title}, configuration {row['point']} of the study {plan.study.name}: {count} "
        f"trial{'' if count == 1 else 's'}. ε in the table is the worst trial's, {promise}; below, every observer's is "
        "computed anew from the ledgers."
    ]


def _add(curves: dict[str, dict[int, list[float]]], part: Path, point: int, scheme: str, trials: set[int]) -> None:
    """The rounds of one part that belong to a row."""
    asked = [("point", "=", point), ("scheme", "=", scheme)]
    for row in pq.read_table(part, columns=["trial", "round", *CURVES], filters=asked, use_threads=False).to_pylist():
        if row["trial"] in trials:
            for key in CURVES:
                curves[key].setdefault(row["round"], []).append(row[key])


def _shared(
    config: Config, scheme: str, epsilons: Mapping[str, Mapping[str, float | None]] | None, ledgers: Sequence[Ledger]
) -> dict[str, Any]:
    """What runs and studies have alike."""
    keys = Cell(0, scheme, config, 0).keys
    return {
        "title": scheme_shown(scheme).title,
        "about": scheme_shown(scheme).sentence,
        "keeps_budget": scheme_shown(scheme).keeps_budget,
        "promise": f"δ = {number(config.privacy.delta)}, {NEIGHBOUR_WORDS[config.neighbours]}",
        "config": {key: _setting(value) for key, value in keys.items() if value is not None},
        "toml": config.to_toml(),
        "observers": _observers(epsilons, ledgers),
    }


def _observers(
    epsilons: Mapping[str, Mapping[str, float | None]] | None, ledgers: Sequence[Ledger]
) -> list[dict[str, Any]]:
    """ε against every observer, by every accountant, with what that rests on."""
    return [
        {
            "observer": observer,
            "who": OBSERVER_WORDS.get(observer, observer),
            "accountants": [
                {
                    "name": name,
                    "label": label_of(name),
                    "epsilon": epsilon,
                    "text": at_most_text(epsilon),
                    "meaning": epsilon_meaning(epsilon),
                    "proven": is_proven(name, ledgers),
                    "assumptions": assumptions_of(name),
                }
                for name, epsilon in values.items()
            ],
        }
        for observer, values in (epsilons or {}).items()
    ]


def _over_rounds(pairs: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for place, value in pairs:
        found.setdefault(place, []).append(value)
    return found


def _drawn(curves: Mapping[str, Rounds]) -> dict[str, Any]:
    """Mean and range over trials, by round; of long runs every so many rounds, the last one always."""
    return {name: _curve(rounds) for name, rounds in curves.items()}


def _curve(rounds: Rounds) -> dict[str, list[Any]]:
    tested = {at: [v for v in values if not math.isnan(v)] for at, values in sorted(rounds.items())}
    places = [at for at, values in tested.items() if values]
    every = max(1, math.ceil(len(places) / CURVE_POINTS))
    places = places[::-1][::every][::-1]
    rows = [np.array(tested[at], dtype=np.float64) for at in places]
    return {
        "round": places,
        "mean": [finite_or_none(float(row.mean())) for row in rows],
        "low": [finite_or_none(float(row.min())) for row in rows],
        "high": [finite_or_none(float(row.max())) for row in rows],
    }


def _plain(value: Any) -> dict[str, str]:
    """Provenance as text."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(item)[:300] for key, item in value.items() if not isinstance(item, dict | list)}


def _setting(value: Any) -> str:
    return ", ".join(map(setting_text, value)) if isinstance(value, tuple) else setting_text(value)


__all__ = ["Details", "files_of"]
