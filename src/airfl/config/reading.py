"""Configurations from presets, TOML files and ``section.key=value``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from airfl.catalogue import nearest
from airfl.config.whole import Config, changed, from_mapping
from airfl.errors import InputError, in_words
from airfl.imports import look_beside
from airfl.toml import parse_toml


def from_toml(text: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a configuration from TOML text and apply dotted overrides before it is validated."""
    return from_mapping(changed(parse_toml(text), overrides or {}))


def preset_names() -> list[str]:
    """Return the names of the presets shipped with the package."""
    folder = resources.files("airfl") / "presets"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the TOML text of a preset, comments included."""
    if name not in preset_names():
        hint = nearest(name, preset_names()) or f"; known: {', '.join(preset_names())}"
        raise InputError(f"no preset or file named `{name}`{hint}")
    return (resources.files("airfl") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def preset(name: str) -> Config:
    """Return a preset shipped with the package."""
    return from_toml(preset_text(name))


def read(source: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a preset by name or a TOML file by path; parts that the file names are looked for beside it first."""
    path = Path(source)
    if source in preset_names() or (path.suffix != ".toml" and not path.is_file()):
        return from_toml(preset_text(source), overrides)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the configuration `{source}`: {in_words(error)}") from None
    look_beside(path)
    return from_toml(text, overrides)


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``section.key=value``; the value is read as TOML, and as a plain string where it is none."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"`--set {text}` must look like section.key=value, e.g. --set system.rounds=10")
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except InputError:
        return key, value.strip()


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file."""
    return {"$schema": GenerateJsonSchema.schema_dialect, **Config.model_json_schema()}
