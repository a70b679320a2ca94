"""What trackers hear of a study: each batch once, when it is finished."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airfl.errors import about_file
from airfl.runs.store import write_text
from airfl.runs.tracking import Cell, Tracker
from airfl.study import Batch, Plan
from airfl.sweeps.batch import Folder


def track(plan: Plan, batch: Batch, folder: Folder, trackers: Sequence[Tracker]) -> None:
    """Tell trackers about a finished batch, once; a note in the folder says who heard it, also after a kill."""
    note = folder.path / "tracked" / f"{batch.name}.json"
    heard = _heard(note)
    missing = [tracker for tracker in trackers if tracker.name not in heard]
    if not missing:
        return
    try:
        _tell(plan, batch, folder, missing)
        note.parent.mkdir(exist_ok=True)
        write_text(note, json.dumps([*heard, *(tracker.name for tracker in missing)]))
    except Exception as error:  # a tracker that cannot write must not cost a study
        logging.getLogger("airfl").warning("trackers did not hear of %s: %s", batch.name, about_file(error))


def _heard(note: Path) -> list[str]:
    """Who has heard of a batch; a note that cannot be read says nobody, and telling again does no harm."""
    try:
        names = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _tell(plan: Plan, batch: Batch, folder: Folder, trackers: Sequence[Tracker]) -> None:
    rows = pq.read_table(folder.part(batch)).to_pylist()
    cells: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["point"], row["scheme"], row["trial"]), []).append(row)
    for (point, scheme, trial), own in cells.items():
        axes = {axis: own[0][axis] for axis in plan.study.axes}
        parameters = {**axes, "point": point, "scheme": scheme, "trial": trial}
        cell = Cell(plan.study.name, f"point-{point:05d}/{scheme}/trial-{trial}", parameters)
        for tracker in trackers:
            tracker.begin(cell)
            tracker.log(cell, own)
            tracker.end(cell)
