"""Combiners side by side."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from airfl.cli.app import Json, app
from airfl.cli.complete import complete_combiners


@app.command()
def design(
    antennas: Annotated[int, typer.Option(help="m.")] = 100,
    active: Annotated[int, typer.Option(help="K, the devices served at once; may exceed the antennas.")] = 45,
    rounds: Annotated[int, typer.Option(help="Instances: new positions and fading for each.")] = 20,
    seed: Annotated[int, typer.Option(help="All randomness follows from it.")] = 1,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="A combiner's name, or all.", autocompletion=complete_combiners)
    ] = "auto",
    effort: Annotated[float, typer.Option(help="Time that `auto` may take, as a multiple of the usual.")] = 1.0,
    certify: Annotated[bool, typer.Option(help="Prove a lower bound for every instance.")] = True,
    out: Annotated[str | None, typer.Option(help="Folder for a plot.")] = None,
    as_json: Json = False,
) -> None:
    """How good, and how fast, are the combiners? Norm² over a proven bound, per method."""
    from airfl import analysis, runs
    from airfl.report.figures import draw_design
    from airfl.report.progress import DesignProgress
    from airfl.report.show.design import print_design

    folder = None if out is None else runs.prepare_folder(out, force=True)
    with DesignProgress() as progress:
        study = analysis.compare_combiners(antennas, active, rounds, seed, method, certify, effort, progress.advance)
    if folder is not None:
        draw_design(study, folder)
    if as_json:
        print(json.dumps(study.summary, allow_nan=False))
    else:
        print_design(study, folder)
