"""What can be run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from airfl.cli.app import Json, app


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="Show this preset's TOML.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a configuration file.")] = False,
    as_json: Json = False,
) -> None:
    """List the presets, show one, or print the JSON schema."""
    from airfl import config as configuration
    from airfl.report.console import print_presets

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
            print_presets(known)
