"""User code by import path, ``package.module:callable``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from airfl.errors import InputError


def is_import_path(name: str) -> bool:
    """Tell ``package.module:callable`` from a built-in name."""
    return ":" in name


def import_callable(path: str, what: str) -> Callable[..., Any]:
    """Import the callable that ``path`` names; ``what`` says what it is for, in errors."""
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # user code may fail in any way while it is imported
        raise InputError(f"{what} `{path}` cannot be imported: {error}; expected package.module:callable") from error
    if not callable(found):
        raise InputError(f"{what} `{path}` is a {type(found).__name__}, not a callable")
    return found  # type: ignore[no-any-return]
