"""What the folder of a study says when it is read: receipts, ledgers, and one row per configuration and scheme."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from airfl.errors import InputError
from airfl.privacy import OBSERVERS, Ledger
from airfl.runs.lock import is_locked
from airfl.runs.manifest import is_sealed, sealed
from airfl.runs.result import by_observer, finite_or_none
from airfl.runs.store import write_text
from airfl.study import Batch, Plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.ledgers import Cell, unpack
from airfl.sweeps.planfile import find_plan

#: What a sitting ends with: tables to be read, and last the notes that have the SHA-256 of each.
TABLES = ("results.parquet", "summary.csv")
NOTES = "provenance.json"
NOTES_FORMAT = "airfl-study-provenance/2"

#: Observer, accountant, ε of the worst trial.
Epsilons = dict[str, dict[str, float | None]]


def receipts_of(plan: Plan, folder: Folder) -> list[dict[str, Any]]:
    """The receipts that are there, in the plan's order; one that is damaged is refused."""
    return list(sound_receipts(plan, folder).values())


def sound_receipts(plan: Plan, folder: Folder) -> dict[str, dict[str, Any]]:
    """Receipts of the finished batches by name, checked as ``--resume`` checks them; nothing is touched.

    A part without a receipt is what a kill leaves behind, or what a sweep at work has just written. When nobody is at
    work, and when fewer batches are there than were counted at the end of the last sitting, something was lost.
    """
    found, problems, at_work = {}, [], is_locked(folder.path)
    for batch in plan.batches:
        receipt, problem = folder.look(batch)
        if receipt is not None:
            found[batch.name] = receipt
        elif problem and (folder.receipt(batch).exists() or not at_work):
            problems.append(problem)
    counted, _ = last_sitting(folder) or (0, {})
    lost = counted - len(found) - len(problems)
    if lost > 0 and not at_work:
        problems.append(f"{lost} finished batch{'es are' if lost > 1 else ' is'} not there any more")
    require_none(problems, folder)
    return found


def write_notes(folder: Folder, provenance: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """What a sitting ends with: how its results were computed, and the tables by SHA-256."""
    content = sealed({"format": NOTES_FORMAT, **provenance, "files": dict(files)})
    write_text(folder.path / NOTES, json.dumps(content, indent=1) + "\n")


def last_sitting(folder: Folder) -> tuple[int, dict[str, str]] | None:
    """Finished batches when the last sitting ended, and its tables by SHA-256; None without sound notes.

    An older version's notes vouch for no table, nor do those of a sitting that was killed while it wrote them.
    """
    file = folder.path / NOTES
    try:
        notes = json.loads(file.read_text(encoding="utf-8") if file.is_file() else "")
        if not {"format", "sha256"} & set(notes):
            return int(notes["batches"]), {}
        sound = notes["format"] == NOTES_FORMAT and is_sealed(notes)
        return (int(notes["batches"]), dict(notes["files"])) if sound else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def look_at_tables(folder: Folder) -> tuple[list[str], list[str]]:
    """What is wrong with the tables of the last sitting or with its notes, and tables that nothing vouches for."""
    there = [name for name in TABLES if (folder.path / name).exists()]
    last = last_sitting(folder)
    if last is None and (folder.path / NOTES).exists():
        return [f"`{NOTES}` is damaged"], []
    if last is None:
        return [f"`{NOTES}` is missing"] if there else [], []
    files = last[1]
    problems = [folder.problem_of(folder.path / name, files[name]) for name in TABLES if name in files]
    return [problem for problem in problems if problem], [name for name in there if name not in files]


def require_none(problems: Sequence[str], folder: Folder) -> None:
    """Refuse a study with any of these problems."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(
            f"`{folder.path}` is not complete: {problems[0]}{more}; do it again with: "
            f"airfl sweep STUDY --out {folder.path} --resume"
        )


def ledgers_of(out: str | Path, point: int, scheme: str) -> list[Ledger]:
    """What a configuration of a study released under a scheme: one ledger per finished trial, also of failed ones.

    Args:
        out: the study's folder.
        point: number of the configuration, as in the column of results.parquet.
    """
    plan, folder = find_plan(out)
    if not 0 <= point < len(plan.points) or scheme not in plan.schemes(point):
        raise InputError(f"the study `{out}` has no configuration {point} with scheme `{scheme}`")
    receipts = sound_receipts(plan, folder)
    found: dict[int, Ledger] = {}
    for batch in plan.batches:
        if point in batch.points and batch.name in receipts:
            ledgers = read_ledgers(folder, batch, receipts[batch.name])
            if ledgers is None:
                raise InputError(f"`{out}` was written before studies kept their ledgers; run the study again for them")
            found |= {trial: ledgers[point, scheme, trial] for trial in batch.trials}
    return [found[trial] for trial in sorted(found)]


def read_ledgers(folder: Folder, batch: Batch, receipt: Mapping[str, Any]) -> dict[Cell, Ledger] | None:
    """The ledgers of a finished batch; None where an older version kept none."""
    return unpack(folder.ledgers(batch).read_bytes()) if "ledgers_sha256" in receipt else None


def from_ledgers(
    plan: Plan, folder: Folder, receipts: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[int, str], dict[str, Any]]:
    """Of every configuration and scheme its ε, the worst of the trials that are done, and whether noise followed data.

    By our own accountants, since reading a folder executes nobody's code. What an older version kept no ledgers of is
    left out.
    """
    found: dict[tuple[int, str], dict[str, Any]] = {}
    unknown: set[tuple[int, str]] = set()
    for batch in plan.batches:
        if batch.name not in receipts:
            continue
        receipt = receipts[batch.name]
        ledgers = read_ledgers(folder, batch, receipt)
        books: dict[tuple[int, str], dict[int, Ledger]] = {}
        booked_by: dict[tuple[int, str], str] = {}
        for cell in receipt["cells"]:
            key = cell["point"], cell["scheme"]
            if ledgers is None:
                unknown.add(key)
            elif cell["status"] == "done":
                ledger = ledgers[*key, cell["trial"]]
                books.setdefault(key, {})[id(ledger)] = ledger
                booked_by[key] = cell.get("accountant", "")  # older versions did not say
        for key, own in books.items():
            here = by_observer(plan.config(key[0]), own.values(), booked_by[key])
            before = found.get(key, {"epsilon_by_observer": here, "noise_follows_data": False})
            found[key] = {
                "epsilon_by_observer": _worst(before["epsilon_by_observer"], here),
                "noise_follows_data": before["noise_follows_data"]
                or any(book.noise_follows_data for book in own.values()),
            }
    return {key: row for key, row in found.items() if key not in unknown}


def _worst(some: Epsilons, others: Epsilons) -> Epsilons:
    """The larger ε of two, where both have it."""
    return {
        who: {
            name: None if epsilon is None or (other := others[who][name]) is None else max(epsilon, other)
            for name, epsilon in own.items()
            if name in others[who]
        }
        for who, own in some.items()
        if who in others
    }


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``summarise`` for a table without nesting: of the ε of the ledgers, the exact ones."""
    exact = {
        f"epsilon_exact_{observer.replace('-', '_')}": ((row["epsilon_by_observer"] or {}).get(observer) or {}).get(
            "gaussian"
        )
        for observer in OBSERVERS
    }
    return {**{key: value for key, value in row.items() if key != "epsilon_by_observer"}, **exact}


def summarise(plan: Plan, folder: Folder) -> list[dict[str, Any]]:
    """One row per configuration and scheme: the final accuracy over trials, with percentiles and a 95 % interval.

    ``epsilon_max`` is what was booked, by the accountant and for the observer of the promise; ``epsilon_by_observer``
    is what our accountants make of the ledgers.
    """
    return [row for _, row in summarise_points(plan, folder)]


def summarise_points(plan: Plan, folder: Folder) -> list[tuple[int, dict[str, Any]]]:
    """``summarise``, every row with the number of its configuration."""
    final: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    failed: dict[tuple[int, str], int] = {}
    receipts = sound_receipts(plan, folder)
    private = from_ledgers(plan, folder, receipts)
    unknown = {"epsilon_by_observer": None, "noise_follows_data": None}
    for batch in plan.batches:
        receipt = receipts.get(batch.name)
        if receipt is None:
            continue
        last: dict[tuple[int, str, int], tuple[float, float, float]] = {}
        columns = ["point", "scheme", "trial", "accuracy", "loss", "epsilon"]
        for row in pq.read_table(folder.part(batch), columns=columns).to_pylist():
            last[row["point"], row["scheme"], row["trial"]] = (row["accuracy"], row["loss"], row["epsilon"])
        for cell in receipt["cells"]:
            key = (cell["point"], cell["scheme"])
            if cell["status"] == "done":
                final.setdefault(key, []).append(last[cell["point"], cell["scheme"], cell["trial"]])
            else:
                failed[key] = failed.get(key, 0) + 1
    rows: list[tuple[int, dict[str, Any]]] = []
    for point, scheme in sorted({*final, *failed}, key=lambda key: (key[0], plan.schemes(key[0]).index(key[1]))):
        values = np.array(final.get((point, scheme), []), dtype=np.float64).reshape(-1, 3)
        row = {**{axis: plan.points[point].get(axis) for axis in plan.study.axes}, "scheme": scheme}
        row |= {"trials": len(values), "failed": failed.get((point, scheme), 0), **_statistics(values)}
        rows.append((point, {**row, **private.get((point, scheme), unknown)}))
    return rows


def columns_of(plan: Plan, folder: Folder, name: str) -> dict[tuple[int, str], dict[int, list[tuple[int, float]]]]:
    """One recorded quantity of the trials that are done: by configuration and scheme, then trial, (round, value)."""
    found: dict[tuple[int, str], dict[int, list[tuple[int, float]]]] = {}
    for batch_name, receipt in sound_receipts(plan, folder).items():
        done = {(c["point"], c["scheme"], c["trial"]) for c in receipt["cells"] if c["status"] == "done"}
        part = folder.part(next(batch for batch in plan.batches if batch.name == batch_name))
        for row in pq.read_table(part, columns=["point", "scheme", "trial", "round", name]).to_pylist():
            if (row["point"], row["scheme"], row["trial"]) in done:
                own = found.setdefault((row["point"], row["scheme"]), {}).setdefault(row["trial"], [])
                own.append((row["round"], row[name]))
    return found


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over trials, and the 95 % interval of Student's t around it: as wide as nothing for a single trial."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, len(values) - 1)) * float(values.std(ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def _statistics(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(_statistics(np.zeros((1, 3))))
    accuracy = values[:, 0]
    mean, low, high = interval(accuracy)
    return {
        "accuracy_mean": mean,
        "accuracy_std": float(accuracy.std(ddof=1)) if len(accuracy) > 1 else 0.0,
        **{f"accuracy_p{p}": float(np.percentile(accuracy, p)) for p in (10, 50, 90)},
        "accuracy_low": max(0.0, low),
        "accuracy_high": min(1.0, high),
        "loss_mean": float(values[:, 1].mean()),
        "epsilon_max": finite_or_none(float(values[:, 2].max())),
    }
