"""What the schemes did: one row per scheme, cell and trial, with the exact ε of its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from airfl.arena.stages import STAGES, Contest, accuracies, chosen
from airfl.paper.studies import Row, good_cells, notes_of
from airfl.privacy import GaussianAccountant, Ledger, Observer, epsilon_of
from airfl.runs.result import finite_or_none
from airfl.study import Plan
from airfl.sweeps import find_plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.summary import read_ledgers, sound_receipts

#: Whom every ε of the arena is against, and who more is shown.
OBSERVER: Observer = "models"
ANTENNAS: Observer = "base-station"
#: Columns of the table of trials.
COLUMNS: dict[str, pa.DataType] = {
    "scheme": pa.string(),
    "data": pa.string(),
    "snr_db": pa.float64(),
    "epsilon_asked": pa.float64(),
    "trial": pa.int64(),
    "accuracy": pa.float64(),
    "epsilon": pa.float64(),
    "epsilon_base_station": pa.float64(),
    "step": pa.float64(),
    "knob": pa.string(),
    "validation_accuracy": pa.float64(),
    "proven": pa.bool_(),
    "status": pa.string(),
}


def rows_of(contest: Contest, scheme: str, out: Path) -> tuple[list[Row], dict[str, Any]] | None:
    """Rows and provenance of a scheme, where all three of its studies are finished."""
    tuned = chosen(contest, scheme, out)
    if tuned is None:
        return None
    plan, folder = find_plan(out / "test")
    found, ledgers, good = accuracies(out / "test"), _ledgers(plan, folder), good_cells(plan, folder)
    entry, rows = contest.arena.schemes[scheme], []
    for point, (cell, best) in enumerate(tuned.items()):
        knob = None if best.setting.knob is None else str(best.setting.knob)
        config = plan.config(point)
        for trial in range(contest.trials):
            done = (point, scheme, trial) in good
            ledger = ledgers.get((point, scheme, trial), Ledger())
            own = {
                who: _epsilon(ledger, config.neighbours, who, config.privacy.delta) if done else None
                for who in (OBSERVER, ANTENNAS)
            }
            rows.append(
                {
                    **{"scheme": scheme, "data": cell.data, "snr_db": cell.snr_db, "epsilon_asked": cell.epsilon},
                    **{"trial": trial, "accuracy": found[point].get(trial) if done else None},
                    **{"epsilon": own[OBSERVER], "epsilon_base_station": own[ANTENNAS]},
                    **{"step": best.setting.step * entry.step_scale, "knob": knob},
                    "validation_accuracy": best.accuracy,
                    "proven": not ledger.noise_follows_data,
                    "status": "done" if done else "failed",
                }
            )
    scale = contest.arena.scale(contest.scale)
    least, most = scale.steps[0] / scale.half_step, scale.steps[-1] * scale.half_step
    beyond = sum(not least < best.setting.step < most for best in tuned.values())
    return rows, {**notes_of(plan, folder), **_cost(out), "cells": len(tuned), "best_step_at_the_end": beyond}


def _epsilon(ledger: Ledger, neighbours: Any, observer: Observer, delta: float) -> float | None:
    """By exact accounting, which supposes nothing hidden; None: no finite ε holds."""
    return finite_or_none(epsilon_of(ledger, GaussianAccountant, neighbours, observer, delta))


def _ledgers(plan: Plan, folder: Folder) -> Mapping[tuple[int, str, int], Ledger]:
    receipts = sound_receipts(plan, folder)
    found: dict[tuple[int, str, int], Ledger] = {}
    for batch in plan.batches:
        found |= read_ledgers(folder, batch, receipts[batch.name]) or {}
    return found


def _cost(out: Path) -> dict[str, Any]:
    """Seconds and runs of tuning and test together."""
    parts = [notes_of(*find_plan(out / stage)) for stage in STAGES]
    return {"seconds": round(sum(part["seconds"] for part in parts), 1), "runs": sum(part["cells"] for part in parts)}
