"""Studies: run them, and see how far they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airfl.cli.app import EXIT_FAILED, EXIT_INTERRUPTED, Json, NoImports, Track, app, fail, going_on, name_imports
from airfl.cli.complete import complete_studies


@app.command()
def sweep(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="A study file: base, axes, schemes, trials.", autocompletion=complete_studies
        ),
    ],
    out: Annotated[str | None, typer.Option(help="Output folder; default studies/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that is there.")] = False,
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Batches at a time; default 1, or what a cluster has.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    checkpoint_rounds: Annotated[int, typer.Option(help="A checkpoint after so many rounds.")] = 10,
    checkpoint_seconds: Annotated[float, typer.Option(help="A checkpoint after so many seconds.")] = 60.0,
    track: Track = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Resume also with other code or another torch than it was begun with.")
    ] = False,
    no_imports: NoImports = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and show, do not run.")] = False,
    as_json: Json = False,
) -> None:
    """Run a study: every configuration, scheme and trial, surviving interruptions."""
    from airfl.study import make_plan, read_study, threads_for

    found, text = read_study(study)
    count, file, target = workers_of(workers, executor), Path(study), out or f"studies/{found.name}"
    threads = threads_for(count)
    if dry_run and not resume:  # before anything heavy is loaded
        plan = make_plan(found, threads, file=file)
    else:
        from airfl.runs import require_files
        from airfl.sweeps import plan_of

        require_files(Path(target))
        plan = plan_of(found, target, resume=resume, threads=threads, study_file=file)
    if dry_run:
        plan.require_room()
        summary = json.dumps({"cells": plan.num_cells, "batches": len(plan.batches)})
        print(summary if as_json else "\n".join(plan.describe()))
        return
    from airfl import runs, sweeps
    from airfl.report.progress import SweepProgress
    from airfl.report.show.study import print_standing

    runner = sweeps.make_executor(executor, count, address, device, checkpoint_rounds, checkpoint_seconds)
    trackers = runs.make_trackers(track or [], Path(target))
    again = f"go on with: airfl sweep {study} --out {target} --resume"
    name_imports(plan.imports, no_imports)
    with runs.locked(target):
        plan, folder = sweeps.open_folder(
            found, text, target, resume=resume, threads=threads, anyway=anyway, study_file=file
        )
        with going_on(again), SweepProgress() as progress:
            standing, interrupted = sweeps.run_sweep(plan, folder, runner, progress.hear, trackers)
    print(json.dumps(standing.summary)) if as_json else print_standing(standing, target)
    if interrupted:
        fail(f"interrupted; {again}", EXIT_INTERRUPTED)
    if standing.failed:
        fail(f"{standing.failed} of {plan.num_cells} cells failed; the others are in {target}", EXIT_FAILED)


@app.command()
def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A study's folder.")],
    as_json: Json = False,
) -> None:
    """How far a study has got: what is done, running, failed."""
    from airfl import runs, sweeps
    from airfl.report.show.study import print_standing

    runs.require_readable(Path(folder))
    standing = sweeps.standing_of(folder)
    print(json.dumps(standing.summary)) if as_json else print_standing(standing, folder)


def workers_of(wish: int | None, executor: str) -> int | None:
    """Batches at a time: one on this machine if nothing is said; None leaves it to a cluster."""
    return 1 if wish is None and executor == "local" else wish
