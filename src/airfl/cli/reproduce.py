"""The paper's figures and claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airfl.cli.app import EXIT_FAILED, EXIT_INTERRUPTED, Json, app, fail, going_on
from airfl.cli.sweep import workers_of


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="fig2 to fig6, clip, domain, table1, or all.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full, half or smoke (minutes on two cores).")] = "full",
    trials: Annotated[int | None, typer.Option(help="Number of trials; default: each study's own.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="authors or airfl; default: both.")] = None,
    out: Annotated[str, typer.Option(help="Output folder; a second call goes on where the first stopped.")] = "paper",
    from_results: Annotated[
        bool, typer.Option("--from-results", help="Redraw from the committed results, without training.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Batches at a time.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    as_json: Json = False,
) -> None:
    """The paper's figures and claims: data, figures, and a verdict per claim."""
    from airfl import runs, sweeps
    from airfl.errors import InputError
    from airfl.paper import reproduction
    from airfl.paper.console import print_reproduction
    from airfl.study import threads_for
    from airfl.wording import counted

    count = workers_of(workers, executor)
    options = {"variants": tuple(variant)} if variant else {}
    wish = reproduction.Wish(
        tuple(names or ["all"]), Path(out), scale=scale, trials=trials, threads=threads_for(count), **options
    )
    if from_results and (trials is not None or scale != "full"):
        raise InputError("--from-results redraws what was committed; leave out --trials and --scale")
    again = "the same command goes on"
    with going_on(again), runs.locked(runs.prepare_folder(out, force=True)):
        if from_results:
            outcome = reproduction.show(wish)
        else:
            outcome = reproduction.reproduce(wish, sweeps.make_executor(executor, count, address, device))
    if outcome.interrupted:
        fail(f"interrupted; {again}", EXIT_INTERRUPTED)
    print(json.dumps(outcome.summary, allow_nan=False)) if as_json else print_reproduction(outcome, wish.out)
    if outcome.failed:
        fail(f"{counted(outcome.failed, 'cell')} failed; the others are in {out}", EXIT_FAILED)
