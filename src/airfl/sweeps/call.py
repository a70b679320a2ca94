"""A study in one call, from Python."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from airfl.errors import InputError
from airfl.runs.lock import locked
from airfl.study import make_study, read_study, threads_for
from airfl.sweeps.executors import make_executor
from airfl.sweeps.planfile import open_folder
from airfl.sweeps.summary import summarise
from airfl.sweeps.sweep import sweep as work_off


def sweep(
    study: Mapping[str, Any] | str | Path, out: str | Path | None = None, *, resume: bool = False
) -> list[dict[str, Any]]:
    """Run a study on this machine; returns one row per configuration and scheme, as ``airfl report --json`` has them.

    Args:
        study: what a study file says, as plain data, or the path of one.
        out: the study's folder; default: a temporary one.
        resume: go on with the study that is there.
    """
    file = None if isinstance(study, Mapping) else Path(study)
    made, text = (make_study(plain := _plain(study)), tomli_w.dumps(plain)) if file is None else read_study(file)
    with contextlib.ExitStack() as stack:
        where = out or stack.enter_context(tempfile.TemporaryDirectory(prefix="airfl-"))
        stack.enter_context(locked(where))
        plan, folder = open_folder(made, text, where, resume=resume, threads=threads_for(1), study_file=file)
        standing, interrupted = work_off(plan, folder, make_executor("local", 1))
        if interrupted:
            raise KeyboardInterrupt
        rows = summarise(plan, folder)
    if sum(row["trials"] + row["failed"] for row in rows) < plan.num_cells:
        raise InputError(f"{standing.failed} of {plan.num_cells} cells failed: {standing.messages[0]}")
    return rows


def _plain(study: Any) -> dict[str, Any]:
    """Lists and numbers as a file would have them, also where NumPy made them."""
    try:
        made: dict[str, Any] = json.loads(json.dumps(study, default=lambda value: value.tolist(), allow_nan=False))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"a study is made of texts, numbers, lists and tables: {error}") from None
    return made
