"""What a folder of runs holds: items, which are folders, and rows, which are schemes of runs and points of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from airfl.runs.manifest import DATA, PAGE
from airfl.study import Plan

Kind = Literal["run", "study", "claims"]
#: ``running`` and ``writing``: somebody is at work; ``unfinished``: nobody is, and it may go on; ``refused``:
#: nothing of it is read, since a link leads outside of the folder that is shown, a file is none, or its name no text.
State = Literal["done", "running", "writing", "unfinished", "damaged", "refused"]
Row = Mapping[str, Any]
#: What can be had of a folder as it lies there, by kind; of a run what every run has, and its page.
FILES: Mapping[str, tuple[str, ...]] = {
    "run": (*DATA, PAGE),
    "study": ("summary.csv", "results.parquet", "study.toml", "base.toml", "plan.json", "provenance.json"),
}


class Busy(Exception):
    """The folder is being read, and that takes longer than somebody waits."""


@dataclass(frozen=True)
class Item:
    """One folder.

    Attributes:
        folder: below the folder that is shown, with slashes.
        message: what is wrong, or what it waits for; a sentence.
        cells, done, failed, running: of a study; of a run, its schemes.
        rows: see ``row_of``.
        claims: by variant, of a reproduction.
        changed: when its newest file was written, seconds since 1970.
        plan: of a study.
    """

    kind: Kind
    folder: str
    path: Path = field(repr=False)
    name: str
    state: State
    message: str = ""
    cells: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    share: float = 0.0
    seconds_left: float | None = None
    rows: tuple[Row, ...] = field(default=(), repr=False)
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changed: float = 0.0
    plan: Plan | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> dict[str, Any]:
        """For the page."""
        kept = ("kind", "folder", "name", "state", "message", "cells", "done", "failed", "running", "seconds_left")
        shown = {name: getattr(self, name) for name in kept}
        return {**shown, "share": round(self.share, 4), "rows": len(self.rows), "changed": int(self.changed)}


def row_of(
    folder: str,
    kind: Kind,
    name: str,
    scheme: str,
    status: str,
    *,
    point: int | None = None,
    settings: Mapping[str, Any] | None = None,
    trials: int = 0,
    failed: int = 0,
    rounds: int | None = None,
    accuracy: float | None = None,
    accuracy_std: float | None = None,
    epsilon: float | None = None,
    against: str = "",
) -> dict[str, Any]:
    """A row of the table; ``epsilon`` as booked, None: no finite one holds."""
    key = scheme if point is None else f"{point}:{scheme}"
    return {
        "id": f"{folder}:{key}",
        "folder": folder,
        "kind": kind,
        "name": name,
        "scheme": scheme,
        "status": status,
        "settings": {key: setting_text(value) for key, value in (settings or {}).items() if value is not None},
        "point": point,
        "trials": trials,
        "failed": failed,
        "rounds": rounds,
        "accuracy": accuracy,
        "accuracy_std": accuracy_std,
        "epsilon": epsilon,
        "against": against,
    }


def setting_text(value: Any) -> str:
    """A value of a configuration, so that numbers can be read back."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    text = f"{value:.12g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
