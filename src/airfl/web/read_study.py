"""A study's folder as an item and its rows, batch by batch: what did not change is not read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from airfl.runs.store import DAMAGE
from airfl.schemes import scheme_shown
from airfl.study import Batch, Plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.planfile import DIGESTS, find_plan
from airfl.sweeps.summary import look_at_tables
from airfl.sweeps.sweep import Standing, read_pulse
from airfl.web.items import Item, Row, State, row_of
from airfl.web.places import Signature

#: Of a batch: its receipt, and (accuracy, booked ε, rounds) of the trials that are done, by point and scheme.
Finals = Mapping[tuple[int, str], list[tuple[float, float, int]]]


@dataclass
class StudyReader:
    """Reads one study's folder again and again.

    Attributes:
        plan: of the study; None until it was found, and again when its files change.
    """

    folder: str
    path: Path
    plan: Plan | None = None
    _planned: Signature = ()
    _batches: dict[str, tuple[Any, dict[str, Any] | None, str, Finals]] = field(default_factory=dict)

    def read(self, now: Signature, *, at_work: bool) -> Item:
        """The item; what is damaged is named, and what is sound is shown all the same."""
        try:
            plan = self._found(now)
        except DAMAGE as error:  # what is refused in a sentence is a ValueError, too
            return Item("study", self.folder, self.path, self.path.name, "damaged", str(error))
        files = {name: rest for name, *rest in now}
        folder, standing, problems = Folder(self.path), Standing(plan), list[str]()
        finals: list[tuple[dict[str, Any], Finals]] = []
        for batch in plan.batches:
            receipt, problem, final = self._batch(plan, folder, batch, files)
            if receipt is not None:
                standing.settle(receipt)
                finals.append((receipt, final))
            elif problem and (f"parts/{batch.name}.json" in files or not at_work):
                problems.append(problem)
            elif at_work and f"running/{batch.name}.json" in files and (pulse := read_pulse(folder, batch)):
                standing.running[batch.name] = pulse
        problems += [] if at_work else look_at_tables(folder)[0]
        return self._item(plan, standing, finals, problems, at_work=at_work)

    def _found(self, now: Signature) -> Plan:
        planned = tuple(entry for entry in now if entry[0] in ("plan.json", *DIGESTS))
        if self.plan is None or planned != self._planned:
            self.plan, _ = find_plan(self.path)
            self._planned, self._batches = planned, {}
        return self.plan

    def _batch(
        self, plan: Plan, folder: Folder, batch: Batch, files: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, str, Finals]:
        kinds = (".json", ".parquet", ".ledgers.json.gz")
        now = [files.get(f"parts/{batch.name}{kind}") for kind in kinds]
        if not any(now):
            self._batches.pop(batch.name, None)
            return None, "", {}
        before = self._batches.get(batch.name)
        if before is None or before[0] != now:
            receipt, problem = folder.look(batch)
            final: Finals = {}
            if receipt is not None:
                try:
                    final = _finals(folder, batch, receipt)
                except DAMAGE as error:
                    receipt, problem = None, f"`parts/{batch.name}.parquet` is damaged ({error})"
            if receipt is not None:  # of a receipt only this is needed again
                receipt = {key: receipt[key] for key in ("cells", "seconds")}
            self._batches[batch.name] = before = (now, receipt, problem, final)
        return before[1:]

    def _item(
        self, plan: Plan, standing: Standing, finals: list[tuple[dict[str, Any], Finals]], problems: list[str],
        *, at_work: bool,
    ) -> Item:  # fmt: skip
        said = standing.summary
        over = said["done"] + said["failed"]
        message = f"{problems[0]}{f' (and {len(problems) - 1} more)' if len(problems) > 1 else ''}" if problems else ""
        if not message and over < said["cells"]:
            message = f"{over:,} of {said['cells']:,} cells are over"
            message += "" if at_work else f"; airfl sweep STUDY --out {self.folder} --resume goes on"
        over_all = over >= said["cells"]
        state: State = "damaged" if problems else "running" if at_work else "done" if over_all else "unfinished"
        return Item(
            "study", self.folder, self.path, plan.study.name, state, message,
            said["cells"], said["done"], said["failed"], said["running"],
            standing.cells_over / max(1, said["cells"]), said["seconds_left"], tuple(self._rows(plan, finals)),
            plan=plan,
        )  # fmt: skip

    def _rows(self, plan: Plan, finals: list[tuple[dict[str, Any], Finals]]) -> list[Row]:
        values: dict[tuple[int, str], list[tuple[float, float, int]]] = {}
        failed: dict[tuple[int, str], list[str]] = {}
        for receipt, final in finals:
            for key, own in final.items():
                values.setdefault(key, []).extend(own)
            for cell in receipt["cells"]:
                if cell["status"] != "done":
                    failed.setdefault((cell["point"], cell["scheme"]), []).append(cell["status"])
        rows = []
        for point, scheme in sorted({*values, *failed}):
            own, bad = values.get((point, scheme), []), failed.get((point, scheme), [])
            axes = {axis: plan.points[point].get(axis) for axis in plan.study.axes}
            status = "done" if not bad else bad[0] if not own else f"{len(bad)} {bad[0]}"
            if not bad and len(own) < plan.base.system.trials:
                status = "partly"
            rows.append(_row(self.folder, plan.study.name, point, scheme, status, axes, own, len(bad)))
        return rows


def _finals(folder: Folder, batch: Batch, receipt: Mapping[str, Any]) -> Finals:
    """The last row of every trial that is done."""
    done = {(cell["point"], cell["scheme"], cell["trial"]) for cell in receipt["cells"] if cell["status"] == "done"}
    names = ["point", "scheme", "trial", "round", "accuracy", "epsilon"]
    table = pq.read_table(folder.part(batch), columns=names, use_threads=False)
    columns = [table.column(name).to_pylist() for name in names]
    last = {(p, s, t): (a, e, r) for p, s, t, r, a, e in zip(*columns, strict=True)}
    found: dict[tuple[int, str], list[tuple[float, float, int]]] = {}
    for (point, scheme, trial), values in last.items():
        if (point, scheme, trial) in done:
            found.setdefault((point, scheme), []).append(values)
    return found


def _row(
    folder: str, name: str, point: int, scheme: str, status: str, axes: Mapping[str, Any],
    own: list[tuple[float, float, int]], failed: int,
) -> Row:  # fmt: skip
    accuracy = np.array([value[0] for value in own], dtype=np.float64)
    tested = accuracy[~np.isnan(accuracy)]
    epsilon = max((value[1] for value in own), default=math.inf)
    return row_of(
        folder, "study", name, scheme, status, point=point, settings=axes, trials=len(own), failed=failed,
        rounds=max((value[2] for value in own), default=None),
        accuracy=float(tested.mean()) if len(tested) else None,
        accuracy_std=float(tested.std(ddof=1)) if len(tested) > 1 else 0.0 if len(tested) else None,
        epsilon=epsilon if math.isfinite(epsilon) else None,
        against=scheme_shown(scheme).promises_to or "model",
    )  # fmt: skip
