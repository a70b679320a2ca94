"""A run's folder as an item and its rows; damage and unfinished work are said, not raised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airfl.config import from_toml
from airfl.errors import InputError
from airfl.runs.ledgers import RESUME, contents
from airfl.runs.manifest import MANIFEST
from airfl.runs.result import SUMMARY_FORMAT
from airfl.runs.store import DAMAGE
from airfl.web.items import Item, Row, State, row_of


def looks_like_run(names: set[str]) -> bool:
    """Whether a folder with such files is a run's, finished or not."""
    return MANIFEST in names or RESUME in names or {"config.toml", "summary.json", "ledger.json"} <= names


def read_run(folder: str, path: Path, names: set[str], *, at_work: bool) -> Item:
    """The item of a run's folder.

    Args:
        folder: as it is shown.
        at_work: whether somebody holds the folder.
    """
    name = path.name
    finished = MANIFEST in names or RESUME not in names
    if not finished:
        state: State = "running" if at_work else "unfinished"
        what = "it has checkpoints, and its rounds are shown when it is over"
        return Item("run", folder, path, name, state, what if at_work else _how_to_go_on(folder))
    try:
        files = contents(path)
        name, rows = _rows(folder, files)
    except InputError as error:
        return _broken(folder, path, str(error), at_work)
    except KeyError as error:
        return _broken(folder, path, f"it lacks {error}", at_work)
    except DAMAGE as error:
        return _broken(folder, path, str(error) or type(error).__name__, at_work)
    done = sum(row["status"] == "done" for row in rows)
    state = "running" if at_work else "done"
    failed = len(rows) - done
    return Item("run", folder, path, name, state, "", len(rows), done, failed, share=1.0, rows=tuple(rows))


def _rows(folder: str, files: dict[str, bytes]) -> tuple[str, list[Row]]:
    config, summary = from_toml(files["config.toml"].decode()), json.loads(files["summary.json"])
    if summary.get("format", SUMMARY_FORMAT) != SUMMARY_FORMAT:
        raise InputError(f"its summary has format `{summary['format']}`, and this version reads `{SUMMARY_FORMAT}`")
    for needed in ("rounds.parquet", "ledger.json"):
        files[needed]
    return config.name, [_row(folder, config.name, name, entry) for name, entry in summary["schemes"].items()]


def _row(folder: str, name: str, scheme: str, entry: dict[str, Any]) -> Row:
    observer = entry["observer"]
    booked = entry["epsilon_by_observer"].get(observer, {}).get(entry["accountant"])
    return row_of(
        folder,
        "run",
        name,
        scheme,
        entry["status"],
        trials=int(entry["trials"]),
        rounds=int(entry["rounds"]),
        accuracy=_number(entry["accuracy_mean"]),
        accuracy_std=_number(entry["accuracy_std"]),
        epsilon=_number(booked),
        against=str(observer),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _broken(folder: str, path: Path, why: str, at_work: bool) -> Item:
    if at_work:
        return Item("run", folder, path, path.name, "writing", "its files are being written")
    return Item("run", folder, path, path.name, "damaged", why)


def _how_to_go_on(folder: str) -> str:
    return f"it was interrupted; airfl run --resume {folder} goes on"
