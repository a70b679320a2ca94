"""A finished run or study again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airfl.cli.app import Json, app


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A study's folder, or a run's.")],
    as_json: Json = False,
) -> None:
    """The summary of a study: one row per configuration and scheme. Of a run: its table, and report.html anew."""
    from airfl import runs, sweeps
    from airfl.report.console import print_study

    if runs.is_run(Path(folder)):
        _report_run(Path(folder), as_json)
        return
    plan, where = sweeps.find_plan(folder)
    rows, standing = sweeps.summarise(plan, where), sweeps.standing_of(folder).summary
    counts = {key: standing[key] for key in ("cells", "done", "failed")}
    print(json.dumps({"rows": rows, **counts})) if as_json else print_study(plan, rows, counts)


def _report_run(folder: Path, as_json: bool) -> None:
    from airfl import runs
    from airfl.report.console import print_result
    from airfl.report.page import rewrite_report

    with runs.locked(folder):
        result = runs.load(folder)
        page = rewrite_report(result, folder)
    print(json.dumps(result.summary, allow_nan=False)) if as_json else print_result(result, page)
