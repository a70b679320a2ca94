"""What airfl is about, in a minute."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from airfl.cli.app import Json, app, loading


@app.command()
def demo(
    out: Annotated[str, typer.Option(help="Output folder.")] = "runs/demo",
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    as_json: Json = False,
) -> None:
    """What airfl is about, in one to two minutes: ε = 1 with 50, 500 and 6,000 devices, and one page."""
    from airfl.config import preset
    from airfl.devices import Shelf

    shelf = Shelf()
    shelf.begin(preset("massive-linear"))
    with loading():
        from airfl import runs
        from airfl.report.demo import run_demo
        from airfl.report.progress import DemoProgress
        from airfl.report.show.demo import print_demo

    with runs.Interrupts(), runs.claimed(out, force) as folder:
        with DemoProgress() as progress:
            found = run_demo(folder, progress.of, shelf=shelf)
        print(json.dumps(found.summary, allow_nan=False)) if as_json else print_demo(found)
