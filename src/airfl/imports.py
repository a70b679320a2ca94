"""Parts of others by import path, ``package.module:name``: the one door through which such code comes in.

From Python the object itself may be given. One that can be imported goes by its path; any other, such as a function of
a notebook or a pair of arrays, is kept in this process as ``here:name-digest``. So configurations stay plain data.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import itertools
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType
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
    "later",
    "look_beside",
    "path_of",
    "require_here",
    "source_digest",
]

#: Folders in which parts are looked for first; in the environment, so that worker processes look there too.
BESIDE = "AIRFL_BESIDE"
#: Objects of this process, by the path that they go by.
_HERE: dict[str, Any] = {}
_HERE_PATTERN = re.compile(r"here:\w+-([0-9a-f]{8})")
_numbers = itertools.count()


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
    if _HERE_PATTERN.fullmatch(path):
        require_here([path])
        return _HERE[path]
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


def later(path: str) -> Any:
    """Something of ours from further down the order of layers, loaded when a person wants to look: bars and figures."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def path_of(part: object) -> str:
    """The path that an object goes by from now on: its import path, or one that holds in this process alone.

    That one ends with a digest of its code and its data: the same object has the same path in every process, and where
    it is made again the new one stands for the old.
    """
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and module != "__main__":
        loaded = sys.modules.get(module)
        if getattr(loaded, "__spec__", None) is not None and getattr(loaded, name, None) is part:
            return f"{module}:{name}"
    own = "arrays" if isinstance(part, tuple | list) else getattr(part, "__name__", type(part).__name__)
    path = f"here:{re.sub(r'[^A-Za-z0-9_]', '', own) or 'part'}-{_digest_of(part)}"
    # A network that its owner goes on training must not change under a configuration that was made with it.
    _HERE[path] = copy.deepcopy(part) if hasattr(part, "state_dict") else part
    return path


def require_here(paths: Iterable[str]) -> None:
    """Refuse paths of objects that this process does not have."""
    for path in paths:
        if _HERE_PATTERN.fullmatch(path) and path not in _HERE:
            raise InputError(
                f"`{path}` was an object of another Python process and is not here; give the object again, or put it "
                "into a file and name it as package.module:name"
            )


class _Digest(pickle.Pickler):
    """SHA-256 of what an object is made of: functions and classes of notebooks by their code, the rest as pickled."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        super().__init__(self, protocol=5)

    def write(self, data: Any) -> int:
        """As of a file."""
        self.sha.update(data)
        return len(data)

    def reducer_override(self, part: Any) -> Any:
        """What stands for functions, classes and tensors; whatever can be imported goes by its name."""
        if isinstance(part, CodeType):
            return str, (repr((part.co_code, part.co_names)),), part.co_consts
        if isinstance(part, FunctionType) and _is_local(part):
            cells = [cell.cell_contents for cell in part.__closure__ or ()]
            used = [part.__globals__.get(name) for name in part.__code__.co_names]
            used = [item for item in used if isinstance(item, FunctionType | type | str | int | float | tuple)]
            return str, (part.__name__,), (part.__code__, part.__defaults__, part.__kwdefaults__, cells, used)
        if isinstance(part, type) and _is_local(part):
            own = {key: value for key, value in vars(part).items() if not key.startswith("_") or callable(value)}
            return str, (part.__name__,), (part.__bases__, own)
        if hasattr(part, "untyped_storage"):  # a tensor, which is pickled with where it lies in memory
            return str, ("tensor",), part.detach().cpu().numpy()
        return NotImplemented


def _is_local(part: Any) -> bool:
    """Whether pickling by name would say nothing about it."""
    return part.__module__ == "__main__" or "<" in part.__qualname__


def _digest_of(part: object) -> str:
    digest = _Digest()
    try:
        digest.dump(part)
    except Exception:  # whatever pickling it runs into: then it is like no other object
        digest.write(f"{os.getpid()} {next(_numbers)}".encode())
    return digest.sha.hexdigest()[:8]


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
    """A hash of the file that ``path`` names, 12 digits, without executing anything; None where there is none.

    Of an object of a process, what its path ends with.
    """
    if own := _HERE_PATTERN.fullmatch(path):
        return own[1]
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
