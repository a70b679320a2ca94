"""User code by import path, ``package.module:callable``."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from airfl.catalogue import is_import_path
from airfl.errors import InputError

__all__ = ["import_callable", "import_object", "is_import_path", "look_beside", "source_digest"]


def look_beside(file: Path) -> None:
    """Look for imports in a file's folder before anywhere else."""
    folder = str(file.resolve().parent)
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)


def import_object(path: str, what: str) -> Any:
    """Import what ``path`` names; ``what`` says what it is for, in errors."""
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # user code may fail in any way while it is imported
        raise InputError(f"{what} `{path}` cannot be imported: {error}; expected package.module:name") from error


def import_callable(path: str, what: str) -> Callable[..., Any]:
    """Import the callable that ``path`` names; ``what`` says what it is for, in errors."""
    found = import_object(path, what)
    if not callable(found):
        raise InputError(f"{what} `{path}` is a {type(found).__name__}, not a callable")
    return found  # type: ignore[no-any-return]


def source_digest(path: str) -> str | None:
    """A hash of the file that ``path`` names, 12 digits, without executing anything; None where there is none."""
    names, places, found = path.partition(":")[0].split("."), None, None
    try:
        for count in range(1, len(names) + 1):
            found = PathFinder.find_spec(".".join(names[:count]), places)
            places = found.submodule_search_locations if found else []
        if found is None or found.origin is None:
            return None
        return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:12]
    except (OSError, ImportError, ValueError):
        return None
