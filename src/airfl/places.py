"""Where the committed studies and results lie, and the scenarios of plans. Loads nothing heavy."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from airfl.errors import InputError


def experiments_folder() -> Path:
    """Committed studies and results: of the source tree, else of the installed package."""
    package = Path(str(resources.files("airfl")))
    for folder in (package.parent.parent / "experiments", package / "experiments"):
        if (folder / "studies").is_dir():
            return folder
    raise InputError("the studies of the paper's figures are missing from this installation; install airfl again")


def scenario_names() -> list[str]:
    """Scenarios of plans that are shipped with the package."""
    folder = resources.files("airfl") / "linkplan" / "scenarios"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))
