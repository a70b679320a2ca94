"""A finished run or study again, and figures of it."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from airfl.cli.app import Json, app


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A study's folder, or a run's.")],
    x: Annotated[
        str | None, typer.Option(help="A key that varies, round, snr_db, power_dbm, epsilon or scheme.")
    ] = None,
    y: Annotated[
        str | None, typer.Option(help="accuracy (default), loss, train_loss, epsilon, noise_var or another record")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="A line for each value; default scheme; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Draw only these; may be repeated.")
    ] = None,
    observer: Annotated[str | None, typer.Option(metavar="NAME", help="Whose exact ε is meant; default model.")] = None,
    size: Annotated[str | None, typer.Option(help="one-column (default) or two-column.")] = None,
    log_x: Annotated[bool, typer.Option("--log-x", help="A logarithmic x axis.")] = False,
    out: Annotated[str | None, typer.Option(help="Folder for figure, table and page.")] = None,
    as_json: Json = False,
) -> None:
    """The summary of a study: one row per configuration and scheme. Of a run: its table, and report.html anew.

    With --out: a figure of either, as PDF, PNG, SVG, CSV, LaTeX table and page.
    """
    from airfl import runs

    asked = {"x": x, "y": y, "by": tuple(by or ()), "where": tuple(where or ()), "observer": observer, "size": size}
    wish = {key: value for key, value in {**asked, "log_x": log_x}.items() if value}
    if out is not None:
        _draw(folder, wish, out, as_json)
        return
    if wish:
        from airfl.errors import InputError

        option = next(iter(wish)).replace("_", "-")
        raise InputError(f"--{option} is for a figure; say with --out FOLDER where it is to be written")
    if runs.is_run(Path(folder)):
        _report_run(Path(folder), as_json)
    else:
        _report_study(folder, as_json)


def _draw(folder: str, wish: dict[str, Any], out: str, as_json: bool) -> None:
    from airfl import runs, sweeps
    from airfl.report import study_source
    from airfl.report.study_page import Wish, write_study_report

    asked = Wish(**wish)
    if runs.is_run(Path(folder)):
        result = runs.load(folder)
        source, found = study_source.of_run(result), result.summary
    else:
        runs.require_readable(Path(folder))
        source = study_source.of_study(*sweeps.find_plan(folder))
        found = {"rows": list(source.rows), **_counts(folder)}
    files, notes = write_study_report(source, asked, out, folder)
    if as_json:
        print(json.dumps({**found, "files": [str(path) for path in files]}, allow_nan=False))
        return
    print("\n".join([*notes, *(str(path) for path in files[:-1]), f"\nReport: {files[-1].resolve()}"]))


def _report_study(folder: str, as_json: bool) -> None:
    from airfl import runs, sweeps
    from airfl.report.show.study import print_study

    runs.require_readable(Path(folder))
    plan, where = sweeps.find_plan(folder)
    rows, counts = sweeps.summarise(plan, where), _counts(folder)
    print(json.dumps({"rows": rows, **counts}, allow_nan=False)) if as_json else print_study(plan, rows, counts)


def _counts(folder: str) -> dict[str, Any]:
    from airfl import sweeps

    standing = sweeps.standing_of(folder).summary
    return {key: standing[key] for key in ("cells", "done", "failed")}


def _report_run(folder: Path, as_json: bool) -> None:
    from airfl import runs
    from airfl.report.page import rewrite_report
    from airfl.report.show.run import print_result

    if os.access(folder, os.W_OK):
        with runs.locked(folder):
            result = runs.load(folder)
            page: Path | None = rewrite_report(result, folder)
    else:
        result, page = runs.load(folder), None
        logging.getLogger("airfl").warning("`%s` cannot be written to: report.html stays as it is", folder)
    print(json.dumps(result.summary, allow_nan=False)) if as_json else print_result(result, page)
