"""A build backend that builds nothing: pip asks it for a package's name and version, and nothing of the package runs.

pip looks into a source package before it hands it over, and would run its ``setup.py`` for that. While airfl has pip
fetch one, this file stands where pip looks for the backend of old packages, and reads ``PKG-INFO`` instead. It is
copied there, so it imports nothing of airfl.
"""

from __future__ import annotations

import email.parser
import pathlib
from types import SimpleNamespace
from typing import Any


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Nothing is built, so nothing is needed."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Name and version as ``PKG-INFO`` has them, in a folder whose name is returned."""
    text = pathlib.Path("PKG-INFO").read_text(encoding="utf-8", errors="replace")
    fields = email.parser.HeaderParser().parsestr(text)
    name, version = fields["Name"], fields["Version"]
    made = pathlib.Path(metadata_directory) / f"{name}-{version}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (made / "WHEEL").write_text("Wheel-Version: 1.0\n", encoding="utf-8")
    return made.name


#: What packages without a ``pyproject.toml`` are built with.
__legacy__ = SimpleNamespace(
    get_requires_for_build_wheel=get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel=prepare_metadata_for_build_wheel,
)
