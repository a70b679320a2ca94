"""Data sets that are converted once: compact columns in the cache folder, atomically, one process at a time."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from filelock import FileLock

from airfl.devices.idx import cache_folder
from airfl.errors import InputError, in_words

Columns = dict[str, np.ndarray]


def converted(name: str, sha256: str, convert: Callable[[], Columns], explicit: bool = False) -> Columns:
    """Columns of a data set from the cache, or as ``convert`` makes them, which are then kept there.

    Args:
        sha256: of the columns' names, kinds, shapes and bytes; a file or a conversion with another one is refused.
        explicit: whether somebody named a folder to read from: then the cache is neither read nor written.
    """
    if explicit:
        return _checked(convert(), sha256, f"data set `{name}`")
    target = cache_folder() / "fleets" / f"{name}-{sha256[:16]}.npz"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if target.is_file():
                return _checked(_read(target), sha256, str(target))
            columns = _checked(convert(), sha256, f"data set `{name}`")
            _write(target, columns)
            return columns
    except OSError as error:
        raise InputError(f"data set `{name}` cannot be kept in {target.parent}: {in_words(error)}") from None


def digest(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of columns, whatever file they lie in."""
    found = hashlib.sha256()
    for key in sorted(columns):
        values = np.ascontiguousarray(columns[key])
        found.update(f"{key}:{values.dtype.str}:{values.shape};".encode())
        found.update(values.tobytes())
    return found.hexdigest()


def _checked(columns: Columns, expected: str, where: str) -> Columns:
    found = digest(columns)
    if found != expected:
        raise InputError(
            f"{where} holds other data than it should (SHA-256 {found[:12]}…, expected {expected[:12]}…); it is "
            "damaged or was changed: delete it, and it will be made again"
        )
    return columns


def _read(path: Path) -> Columns:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            return {key: kept[key] for key in kept.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(
            f"data file {path} is damaged ({in_words(error)}); delete it, and it will be made again"
        ) from None


def _write(path: Path, columns: Columns) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **columns)  # type: ignore[arg-type]
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as temporary:
        temporary.write(buffer.getvalue())
    os.replace(temporary.name, path)
