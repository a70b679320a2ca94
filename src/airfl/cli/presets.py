"""What can be run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from airfl.cli.app import Json, app
from airfl.cli.complete import complete_preset_names


@app.command()
def presets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this preset's TOML.", autocompletion=complete_preset_names),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a configuration file.")] = False,
    as_json: Json = False,
) -> None:
    """List the presets, show one, or print the JSON schema."""
    from airfl import config as configuration

    if schema:
        print(json.dumps(configuration.json_schema(), indent=1))
    elif name is not None:
        text = configuration.preset_text(name)
        print(json.dumps(configuration.preset(name).to_mapping()) if as_json else text)
    else:
        known = {item: configuration.preset_text(item) for item in configuration.preset_names()}
        if as_json:
            print(json.dumps({"presets": {item: configuration.preset(item).to_mapping() for item in known}}))
        else:
            from airfl.report.show.presets import print_presets

            print_presets(known)
