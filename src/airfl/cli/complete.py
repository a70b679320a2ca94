"""What a shell offers for a word that is begun; loads nothing heavy."""

from __future__ import annotations

from pathlib import Path


def complete_presets(incomplete: str) -> list[str]:
    """Presets, and TOML files."""
    from airfl.config import preset_names

    return _begun(preset_names(), incomplete) + _files(incomplete)


def complete_preset_names(incomplete: str) -> list[str]:
    """Presets alone."""
    from airfl.config import preset_names

    return _begun(preset_names(), incomplete)


def complete_scenarios(incomplete: str) -> list[str]:
    """Scenarios of plans, and TOML files."""
    from airfl.places import scenario_names

    return _begun(scenario_names(), incomplete) + _files(incomplete)


def complete_studies(incomplete: str) -> list[str]:
    """TOML files."""
    return _files(incomplete)


def complete_settings(incomplete: str) -> list[str]:
    """Keys of a configuration."""
    from airfl.config import setting_keys

    return _begun([f"{key}=" for key in setting_keys()], incomplete)


def complete_schemes(incomplete: str) -> list[str]:
    """Built-in schemes."""
    from airfl.traits import SCHEMES

    return _begun(list(SCHEMES), incomplete)


def complete_accountants(incomplete: str) -> list[str]:
    """Built-in accountants."""
    from airfl.catalogue import ACCOUNTANTS

    return _begun(["auto", *ACCOUNTANTS], incomplete)


def complete_observers(incomplete: str) -> list[str]:
    """Whom a promise can be about."""
    from airfl.traits import OBSERVERS

    return _begun(list(OBSERVERS), incomplete)


def complete_combiners(incomplete: str) -> list[str]:
    """Built-in combiners, and all of them."""
    from airfl.catalogue import COMBINERS

    return _begun([*COMBINERS, "all"], incomplete)


def _begun(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str) -> list[str]:
    """TOML files and folders whose path goes on from what is typed."""
    head, slash, tail = incomplete.rpartition("/")
    try:
        found = sorted(item for item in Path(f"{head}{slash}" or ".").iterdir() if item.name.startswith(tail))
    except OSError:
        return []
    shown = [(item, f"{head}{slash}{item.name}") for item in found if tail.startswith(".") or item.name[0] != "."]
    return [f"{name}/" if item.is_dir() else name for item, name in shown if item.is_dir() or item.suffix == ".toml"]
