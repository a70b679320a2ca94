"""A study in one call, from Python."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from airfl.config import PART_KEYS, Config, part_named
from airfl.errors import InputError
from airfl.runs.call import Wish, shown_by
from airfl.runs.lock import locked
from airfl.study import make_study, read_study, threads_for
from airfl.sweeps.executors import make_executor
from airfl.sweeps.planfile import BASE, open_folder
from airfl.sweeps.rows import Rows
from airfl.sweeps.summary import summarise
from airfl.sweeps.sweep import sweep as work_off


def sweep(
    study: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    schemes: Sequence[Any] | None = None,
    trials: int | None = None,
    name: str | None = None,
    resume: bool = False,
    progress: Wish = "auto",
) -> Rows:
    """Run a study on this machine; returns one row per configuration and scheme, as ``airfl report --json`` has them.

    Args:
        study: a configuration, what a study file says as plain data, or the path of a study file.
        out: the study's folder; default: a temporary one.
        axes: with a configuration: the keys that vary and their values, every combination.
        schemes: with a configuration; default: its own.
        trials: with a configuration; default: its own.
        name: with a configuration; default: its own.
        resume: go on with the study that is there.
        progress: True: a live bar; "auto": one in a notebook or on a terminal.
    """
    given = {"grid": axes, "schemes": schemes, "trials": trials, "name": name}
    given = {key: value for key, value in given.items() if value is not None}
    if isinstance(study, Config):
        study = {"name": study.name, "base": study, **given}
    elif given:
        raise InputError("`axes`, `schemes`, `trials` and `name` go with a configuration; a study says them itself")
    file = None if isinstance(study, Mapping) else Path(study)
    base = None
    if isinstance(study, Mapping):
        base = study.get("base")
        plain = _plain({**study, "base": BASE} if isinstance(base, Config) else study)
        made, text = make_study(plain), tomli_w.dumps(plain)
    else:
        made, text = read_study(study)
    with contextlib.ExitStack() as stack:
        where = out or stack.enter_context(tempfile.TemporaryDirectory(prefix="airfl-"))
        stack.enter_context(locked(where))
        begun = base.replace(made.changes) if isinstance(base, Config) else None
        threads = threads_for(1)
        plan, folder = open_folder(made, text, where, resume=resume, threads=threads, study_file=file, base=begun)
        bar = stack.enter_context(shown_by("airfl.report.bars:sweep_bar", progress))
        standing, interrupted = work_off(plan, folder, make_executor("local", 1), bar and bar.hear)
        if interrupted:
            raise KeyboardInterrupt
        rows = Rows(summarise(plan, folder), plan.study.axes)
    if sum(row["trials"] + row["failed"] for row in rows) < plan.num_cells:
        raise InputError(f"{standing.failed} of {plan.num_cells} cells failed: {standing.messages[0]}")
    return rows


def _plain(study: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and numbers as a file would have them, also where NumPy made them; parts by their paths."""
    named = dict(study)
    named["schemes"] = [part_named("name", item) for item in study.get("schemes", ())]
    named["set"] = _with_paths(study.get("set", {}))
    named["grid"] = _axes(study.get("grid", {}))
    named["zip"] = [_axes(group) for group in study.get("zip", ())]
    named["list"] = [_with_paths(point) for point in study.get("list", ())]
    named = {key: value for key, value in named.items() if key in study}
    try:
        made: dict[str, Any] = json.loads(json.dumps(named, default=lambda value: value.tolist(), allow_nan=False))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"a study is made of texts, numbers, lists and tables: {error}") from None
    return made


def _with_paths(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values  # refused later, in one sentence
    return {key: part_named(key, value) if key in PART_KEYS else value for key, value in values.items()}


def _axes(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {
        key: [part_named(key, value) for value in own] if key in PART_KEYS and isinstance(own, list | tuple) else own
        for key, own in values.items()
    }
