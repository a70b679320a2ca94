"""All schemes side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airfl.cli.app import EXIT_FAILED, EXIT_INTERRUPTED, Json, app, fail, going_on
from airfl.cli.complete import complete_schemes
from airfl.cli.sweep import workers_of


@app.command()
def arena(
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run only this scheme and show it beside those that are there; may be repeated.",
            autocompletion=complete_schemes,
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="full, middle or smoke (minutes on two cores).")] = "full",
    trials: Annotated[int | None, typer.Option(help="Trials of the test; default: those of the scale.")] = None,
    description: Annotated[
        str | None, typer.Option(metavar="FILE", help="A description of your own; default: the committed one.")
    ] = None,
    out: Annotated[str, typer.Option(help="Output folder; a second call goes on where the first stopped.")] = "arena",
    from_results: Annotated[
        bool, typer.Option("--from-results", help="Rank, judge and draw the committed results, without training.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Batches at a time.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    as_json: Json = False,
) -> None:
    """All schemes at equal power, airtime and ε: each tuned alike, ranked, and a verdict per question."""
    from airfl.arena.description import read_arena
    from airfl.errors import InputError
    from airfl.study import threads_for

    count = workers_of(workers, executor)
    found = read_arena(Path(description) if description else None)
    if from_results and (trials is not None or scale != "full" or scheme or description):
        raise InputError(
            "--from-results shows what was committed; leave out --scheme, --scale, --trials, --description"
        )
    found.scale(scale)  # refused before anything heavy is loaded
    found.wanted(scheme or ())
    from airfl import runs, sweeps
    from airfl.arena.console import print_arena
    from airfl.arena.run import Wish, run_arena, show

    wish = Wish(Path(out), scale, tuple(scheme or ()), trials, threads_for(count), found)
    again = "the same command goes on"
    with going_on(again), runs.locked(runs.prepare_folder(out, force=True)):
        if from_results:
            outcome = show(wish)
        else:
            outcome = run_arena(wish, sweeps.make_executor(executor, count, address, device))
    if outcome.interrupted:
        fail(f"interrupted; {again}", EXIT_INTERRUPTED)
    print(json.dumps(outcome.summary, allow_nan=False)) if as_json else print_arena(outcome, wish.out)
    if outcome.failed:
        fail(f"{', '.join(outcome.failed)} failed; the others are in {out}", EXIT_FAILED)
