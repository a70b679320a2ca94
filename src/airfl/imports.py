"""Parts of others by import path, ``package.module:name``: the one door through which such code comes in.

From Python the object itself may be given. One that can be imported goes by its path; any other, such as a function of
a notebook or a pair of arrays, is kept in this process as ``here:name-digest``. So configurations stay plain data.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import hashlib
import importlib
import operator
import os
import pickle
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from airfl.catalogue import is_import_path
from airfl.errors import DivergedError, InputError, about_file, failure
from airfl.version import __version__

__all__ = [
    "beside",
    "calling",
    "code_identity",
    "import_callable",
    "import_object",
    "is_import_path",
    "is_outside",
    "later",
    "look_beside",
    "path_of",
    "require_here",
    "source_digest",
    "source_sha256",
]

#: Folders in which parts are looked for first; in the environment, so that worker processes look there too.
BESIDE = "AIRFL_BESIDE"
#: Objects of this process, by the path that they go by.
_HERE: dict[str, Any] = {}
#: Those of them whose digest is taken again before they are used: they look at things that may change.
_WATCHED: set[str] = set()
_HERE_PATTERN = re.compile(r"here:\w+-([0-9a-f]{8})")
#: What networks, data in memory and data sets have; such objects are copied.
_DATA = ("state_dict", "__getitem__", "labels")
#: What pickling knows nothing of, or only the name: the kind, and where the code in it lies.
_WRAPPERS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    type(functools.lru_cache(len)): ("__wrapped__",),
}
_GLOBAL_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
#: Of a class, what Python adds of itself and what does not change what it does.
_NO_CODE: tuple[str, ...] = ("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "_abc_impl")
_NO_CODE += ("__firstlineno__", "__static_attributes__")  # from Python 3.13 on


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
        _require_known(path)
        return _HERE[path]
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{what} `{path}` is no import path; expected package.module:name")
    places = _places(module_name)
    sys.path[:0] = places
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # user code may fail in any way while it is imported
        root, hint = module_name.partition(".")[0], "expected package.module:name"
        if root == "airfl" or root in sys.stdlib_module_names:
            whose = "airfl's" if root == "airfl" else "Python's"
            hint = f"`{root}` is {whose} own, and no file stands in for it: rename yours"
        raise InputError(f"{what} `{path}` cannot be imported: {about_file(error)}; {hint}") from error
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
    it is made again the new one stands for the old. Of a function or class that cannot be imported, globals that it
    names belong to it, whatever they are; modules, and what is imported from them, count by their names. Where
    something cannot be digested, such as an open file, the path is like no other, so that no study is resumed with it.

    Networks and data are copied: their owner may go on with them, and the configuration stays what it is.
    """
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and module != "__main__":
        loaded = sys.modules.get(module)
        if getattr(loaded, "__spec__", None) is not None and getattr(loaded, name, None) is part:
            return f"{module}:{name}"
    own = "arrays" if isinstance(part, tuple | list) else getattr(part, "__name__", type(part).__name__)
    digest = _digest_of(part)
    path = f"here:{re.sub(r'[^A-Za-z0-9_]', '', own) or 'part'}-{digest or secrets.token_hex(4)}"
    if digest and isinstance(part, FunctionType | type | functools.partial):
        _WATCHED.add(path)
    if isinstance(part, type) or not any(hasattr(part, attribute) for attribute in _DATA):
        _HERE[path] = part
    elif path not in _HERE:  # one copy, however often the same data are given
        _HERE[path] = part
        with contextlib.suppress(Exception):  # what cannot be copied, such as a file that is read bit by bit
            _HERE[path] = copy.deepcopy(part)
    return path


def require_here(paths: Iterable[str]) -> None:
    """Refuse paths of objects that this process does not have, and functions whose globals or cells have changed."""
    for path in paths:
        if not _HERE_PATTERN.fullmatch(path):
            continue
        _require_known(path)
        if path in _WATCHED and _digest_of(_HERE[path]) != path[-8:]:
            raise InputError(
                f"something that `{path}` uses has changed since the configuration was made; give the object again "
                "with `replace`"
            )


def _require_known(path: str) -> None:
    if path not in _HERE:
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

    def persistent_id(self, part: Any) -> Any:
        """What stands for sets, whose order differs between processes, and for texts: by value, not by identity."""
        if type(part) is str:
            return part.encode(errors="surrogatepass")
        if type(part) in (set, frozenset):
            return type(part).__name__, sorted(_sha_of(item) for item in part)
        return None

    def reducer_override(self, part: Any) -> Any:
        """What stands for functions, classes and tensors; whatever can be imported goes by its name."""
        if isinstance(part, ModuleType):
            return str, (f"module {part.__name__}",)
        if isinstance(part, CodeType):
            return str, (repr(_instructions(part)),), part.co_consts
        if isinstance(part, FunctionType) and _is_local(part):
            cells = [cell.cell_contents for cell in part.__closure__ or ()]
            used = {name: part.__globals__[name] for name in sorted(_names(part.__code__)) if name in part.__globals__}
            given = part.__defaults__, part.__kwdefaults__, vars(part)
            return str, (part.__name__,), (part.__code__, *given, cells, used)
        if isinstance(part, type):
            if not _is_local(part):
                return NotImplemented
            own = {key: value for key, value in vars(part).items() if key not in _NO_CODE}
            return str, (part.__name__,), (part.__bases__, own)
        if hasattr(part, "untyped_storage"):  # a tensor, which is pickled with where it lies in memory
            return str, (f"tensor {part.dtype} {part.requires_grad}",), _values(part)
        if isinstance(part, MappingProxyType):
            return dict, (dict(part),)
        if names := _WRAPPERS.get(type(part)):
            return str, (type(part).__name__,), [getattr(part, name) for name in names]
        return NotImplemented


def _is_local(part: Any) -> bool:
    """Whether pickling by name would say nothing about it, or fail."""
    try:
        found = operator.attrgetter(part.__qualname__)(sys.modules[part.__module__])
    except (KeyError, AttributeError):
        return True
    return part.__module__ == "__main__" or found is not part


def _instructions(code: CodeType) -> tuple[Any, ...]:
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable, *counts


def _names(code: CodeType) -> set[str]:
    """Names that code looks up among the globals, also within functions that it defines."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL_NAMES}
    return own.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _values(tensor: Any) -> Any:
    """A tensor as an array; NumPy has no bfloat16, which float32 holds without loss."""
    values = tensor.detach().cpu()
    return (values.float() if "bfloat16" in str(values.dtype) else values).numpy()


def _sha_of(part: object) -> str:
    digest = _Digest()
    digest.dump(part)
    return digest.sha.hexdigest()


def _digest_of(part: object) -> str | None:
    """Eight digits; None where something in it cannot be digested."""
    try:
        return _sha_of(part)[:8]
    except Exception:  # whatever pickling it runs into
        return None


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


@functools.cache
def source_sha256() -> str:
    """Which code this is, whatever its version says: a hash over the package's Python files, 12 digits."""
    root = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def code_identity() -> dict[str, str]:
    """What decides the last bits of a result, beside the configuration."""
    import torch  # heavy: only for who runs or resumes something

    return {"airfl": __version__, "source": source_sha256(), "torch": str(torch.__version__)}


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
