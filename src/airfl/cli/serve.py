"""The planner and the run browser in a browser, or the run browser as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from airfl.cli.app import Json, app

#: Where runs lie where nobody says so.
USUAL = "runs"


@app.command()
def serve(
    runs: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Show the runs and sweeps below it; default runs, if there.")
    ] = None,
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen elsewhere than on this machine alone; asks for a token.")
    ] = "127.0.0.1",
    token: Annotated[bool, typer.Option("--token", help="Ask for a token on this machine too.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that browsers may call it by; may be repeated.")
    ] = None,
    export: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the run browser there as files, and serve nothing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The planner and the run browser in a real browser: only looks, on this machine alone unless told otherwise."""
    from airfl.errors import InputError

    if runs is not None and not Path(runs).is_dir():
        raise InputError(f"there is no folder `{runs}` to show; name one with runs or sweeps in it")
    folder = runs or (USUAL if Path(USUAL).is_dir() else None)
    if export is not None:
        if folder is None:
            raise InputError("--export needs --runs FOLDER, whose runs are written down")
        _export(folder, export, as_json)
        return
    if not 0 <= port <= 65535:
        raise InputError(f"--port must be a whole number from 0 to 65535; got {port}")
    _serve(folder, host, port, tuple(allow_host or ()), token, as_json)


def _serve(folder: str | None, host: str, port: int, names: tuple[str, ...], token: bool, as_json: bool) -> None:
    from airfl.terminal import note
    from airfl.web import require_extra

    require_extra()
    from airfl.web.app import make_app
    from airfl.web.server import address_of, listen, run_server

    with listen(host, port) as listening:
        address = address_of(host, listening, names, ask=token)
        application = make_app(folder, address.door)
        if as_json:
            found = {"url": address.url, "host": address.host, "port": address.port, "token": address.door.token}
            print(json.dumps({**found, "runs": folder}), flush=True)
        else:
            print(f"Open {address.url}", flush=True)
            shown = "no folder of runs: the planner alone" if folder is None else f"runs below `{folder}`"
            note(f"{shown}; Ctrl-C stops")
            if address.door.token is not None:
                note("the address opens it for whoever has it; what travels is not encrypted")
        run_server(application, listening)


def _export(folder: str, out: str, as_json: bool) -> None:
    from airfl.report.progress import Steps
    from airfl.web.export import Export

    export = Export(folder, out)
    with Steps("rows", export.count) as bar:
        written = export.write(bar.advance)
    if as_json:
        print(json.dumps({"folder": out, "rows": export.count, "files": written}))
        return
    print(f"{export.count:,} rows in {written:,} files\n\nOpen {(Path(out) / 'index.html').resolve()}")
