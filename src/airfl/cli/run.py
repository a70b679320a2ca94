"""Train, account and report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airfl.cli.app import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Json,
    NoImports,
    Settings,
    Track,
    app,
    fail,
    loading,
    name_imports,
)
from airfl.cli.complete import complete_accountants, complete_presets, complete_schemes

if TYPE_CHECKING:
    from airfl.config import Config
    from airfl.devices import Shelf
    from airfl.runs import Interrupts, Keeper
    from airfl.shards import Shards


@app.command()
def run(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE",
            help="A preset's name or a TOML file; or give --resume.",
            autocompletion=complete_presets,
        ),
    ] = None,
    settings: Settings = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this scheme; may be repeated.", autocompletion=complete_schemes),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    out: Annotated[str | None, typer.Option(help="Output folder; default runs/NAME-TIME.")] = None,
    accountant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who books the budget; auto: the tightest that is proven for the run.",
            autocompletion=complete_accountants,
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32, tf32 or bf16.")] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="No compiled GPU kernels: start sooner.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="DIR", help="Go on with the run that was interrupted in this folder.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Resume with other code or on another device too.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="A checkpoint after so many seconds.")] = 60.0,
    executor: Annotated[
        str | None, typer.Option(help="Who trains the devices: local, or ray for a cluster; goes with --shards.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Cut the devices into so many shards; the results do not depend on how many.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    track: Track = None,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Train, account and report: every scheme of a preset or file."""
    from airfl import config as configuration
    from airfl.errors import InputError

    flags = {
        "scheme.names": scheme,
        "system.trials": trials,
        "privacy.accountant": accountant,
        "engine.device": device,
        "engine.precision": precision,
        "engine.compile": False if no_compile else None,
    }
    flags = {key: value for key, value in flags.items() if value is not None}
    if (source is None) == (resume is None):
        raise InputError("give a preset or file to run, or --resume DIR to go on with a run; one of the two")
    if not checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds must be at least 0; got {checkpoint_seconds:g}")
    crew = _crew(executor, shards, address)
    cluster = {"executor": executor, "shards": shards, "address": address}
    if resume is not None:
        if settings or flags or out is not None or force:
            raise InputError("--resume goes on with a run as it was begun; leave out its settings, --out and --force")
        from airfl import runs

        with runs.Interrupts() as interrupts, runs.resumed(resume) as (folder, begun):
            name_imports(begun.config.imports, no_imports)
            keeper = runs.Keeper(folder, checkpoint_seconds, begun, anyway=anyway)
            _train_and_report(begun.config, folder, keeper, interrupts, track, as_json, crew, cluster)
        return
    if anyway:
        raise InputError("--anyway goes with --resume")
    overrides: dict[str, Any] = dict(configuration.parse_override(text) for text in settings or [])
    config = configuration.read(source or "", {**overrides, **flags})
    name_imports(config.imports, no_imports)
    from airfl.devices import Shelf  # heavy, as is what comes: only for what can be run

    shelf = Shelf()
    shelf.begin(config)
    with loading():
        from airfl import runs
        from airfl.report import page  # noqa: F401
        from airfl.runs import execute, unfinished  # noqa: F401

    target = out or f"runs/{config.name}-{datetime.now():%Y%m%d-%H%M%S}"
    with runs.Interrupts() as interrupts, runs.claimed(target, force) as folder:
        keeper = runs.Keeper(folder, checkpoint_seconds)
        _train_and_report(config, folder, keeper, interrupts, track, as_json, crew, cluster, shelf)


def _crew(executor: str | None, shards: int | None, address: str | None) -> Shards | None:
    """Who trains the devices, where that is not this process alone."""
    from airfl.errors import InputError

    if executor is None and shards is None:
        if address is not None:
            raise InputError("--address is that of a Ray cluster; give --executor ray and --shards N")
        return None
    from airfl.shards import make_shards

    if executor == "ray" and shards is None:
        raise InputError("--executor ray trains the devices of one run on a cluster; say how with --shards N")
    return make_shards(executor or "local", 1 if shards is None else shards, address)


def _train_and_report(
    config: Config,
    folder: Path,
    keeper: Keeper,
    interrupts: Interrupts,
    track: list[str] | None,
    as_json: bool,
    crew: Shards | None,
    cluster: Mapping[str, object],
    shelf: Shelf | None = None,
) -> None:
    """The run itself, in a folder that is held; ``cluster`` has the flags that a run which goes on must have too."""
    from airfl import runs
    from airfl.errors import DivergedError, InputError, LostError, about_file
    from airfl.privacy import BudgetError
    from airfl.report.page import write_report
    from airfl.report.progress import RunProgress
    from airfl.report.show.run import print_result

    flags = "".join(f" --{name} {value}" for name, value in cluster.items() if value is not None)
    again = f"airfl run --resume {folder}{flags}"
    trackers = runs.make_trackers(track or [], folder)
    try:
        with RunProgress(config) as progress, ExitStack() as stack:
            heard = stack.enter_context(closing(runs.Tracked(config.name, progress, trackers)))
            if crew is not None:
                stack.enter_context(closing(crew))
            result = runs.run(config, progress=heard, keeper=keeper, interrupts=interrupts, shards=crew, shelf=shelf)
    except LostError as error:  # said when the cluster is let go of: Ray may end a process that still holds it
        fail(f"{error}; {f'go on with: {again}' if keeper.has_checkpoints else 'run it again'}", EXIT_FAILED)
    try:
        result = runs.write_run(result, folder)
    except (OSError, InputError) as error:
        if not keeper.has_checkpoints:
            raise
        mend = f"mend that, then go on from the last checkpoint: {again}"
        fail(f"{about_file(error)}; {mend}", EXIT_FAILED)
    if all(entry.status != "interrupted" for entry in result.schemes.values()):
        keeper.forget()
    page = write_report(result, folder)
    if as_json:
        print(json.dumps(result.summary, allow_nan=False))
    else:
        print_result(result, page)
    for entry in result.schemes.values():
        if entry.status == "interrupted":
            more = f"; go on with: {again}" if keeper.has_checkpoints else ""
            fail(f"interrupted; what was recorded is in {folder}{more}", EXIT_INTERRUPTED)
        if entry.status == "refused":
            raise BudgetError(entry.message)
        if entry.status == "diverged":
            raise DivergedError(f"{entry.message}; what was recorded is in {folder}")
