"""Parts of others by import path, ``package.module:name``: the one door through which such code comes in."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from airfl.catalogue import is_import_path
from airfl.errors import DivergedError, InputError, about_file, failure

__all__ = [
    "beside",
    "calling",
    "import_callable",
    "import_object",
    "is_import_path",
    "is_outside",
    "look_beside",
    "source_digest",
]

#: Folders in which parts are looked for first; in the environment, so that worker processes look there too.
BESIDE = "AIRFL_BESIDE"


def look_beside(file: Path) -> None:
    """Look for parts in a file's folder first. Nothing else is: a file there stands in for no module of anybody's."""
    folder = str(file.resolve().parent)
    os.environ[BESIDE] = os.pathsep.join([folder, *(other for other in beside() if other != folder)])


def beside() -> list[str]:
    """Folders in which parts are looked for first."""
    return [folder for folder in os.environ.get(BESIDE, "").split(os.pathsep) if folder]


def _places(module: str) -> list[str]:
    """Where a part's module may lie before anywhere else; never one that stands in for Python's or for airfl's own."""
    root = module.partition(".")[0]
    return [] if root in sys.stdlib_module_names or root == "airfl" else beside()


def import_object(path: str, what: str) -> Any:
    """Import what ``path`` names; ``what`` says what it is for, in errors."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{what} `{path}` is no import path; expected package.module:name")
    places = _places(module_name)
    sys.path[:0] = places
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # user code may fail in any way while it is imported
        raise InputError(
            f"{what} `{path}` cannot be imported: {about_file(error)}; expected package.module:name"
        ) from error
    finally:
        for place in places:
            sys.path.remove(place)


def import_callable(path: str, what: str) -> Callable[..., Any]:
    """Import the callable that ``path`` names; ``what`` says what it is for, in errors."""
    found = import_object(path, what)
    if not callable(found):
        raise InputError(f"{what} `{path}` is a {type(found).__name__}, not a callable")
    return found  # type: ignore[no-any-return]


def is_outside(part: object) -> bool:
    """Whether a part, or its class, is somebody else's."""
    kind = part if isinstance(part, type) else type(part)
    return kind.__module__.partition(".")[0] != "airfl"


@contextmanager
def calling(part: object, what: str) -> Iterator[None]:
    """Whatever a part from outside raises becomes one sentence; what our own raise stays what it is."""
    if not is_outside(part):
        yield
        return
    kind = part if isinstance(part, type) else type(part)
    try:
        yield
    except (InputError, DivergedError):
        raise
    except Exception as error:
        raise InputError(f"{what} `{kind.__module__}:{kind.__name__}` failed: {failure(error)}") from error


def source_digest(path: str) -> str | None:
    """A hash of the file that ``path`` names, 12 digits, without executing anything; None where there is none."""
    module = path.partition(":")[0]
    names, found = module.split("."), None
    places: Any = [*_places(module), *sys.path]
    try:
        for count in range(1, len(names) + 1):
            found = PathFinder.find_spec(".".join(names[:count]), places)
            places = found.submodule_search_locations if found else []
        if found is None or found.origin is None:
            return None
        return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:12]
    except (OSError, ImportError, ValueError):
        return None
