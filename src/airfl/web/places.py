"""Paths below the folder that is shown: nothing is read from anywhere else, whatever links say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from airfl.errors import InputError

#: Folders within a run or a study whose files are read.
WITHIN = ("", "parts", "running", "figures")
#: What is no folder of somebody's runs.
SKIPPED = ("checkpoints", "parts", "running", "figures", "__pycache__")
#: name, time of writing, size, number of the file.
Signature = tuple[tuple[str, int, int, int], ...]


def inside(root: Path, path: Path) -> bool:
    """Whether a path, links followed, is the root or below it."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link that leads back to itself
        return False


def require_inside(root: Path, folder: Path) -> None:
    """Refuse a folder of which a file is read through a link that leads outside."""
    for entry in _entries(folder):
        if entry.is_symlink() and not inside(root, Path(entry.path)):
            name = Path(entry.path).relative_to(folder).as_posix()
            raise InputError(f"`{name}` is a link that leads out of the folder that is shown, and is not followed")


def signature_of(folder: Path) -> Signature:
    """What a folder looked like, to tell whether it has to be read again."""
    found = []
    for entry in _entries(folder):
        try:
            now = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        name = os.path.relpath(entry.path, folder)
        found.append((name, now.st_mtime_ns, now.st_size, now.st_ino))
    return tuple(sorted(found))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    for name in WITHIN:
        place = folder / name
        if name and place.is_symlink():
            continue  # it is an entry of the folder itself
        try:
            with os.scandir(place) as entries:
                yield from entries
        except OSError:
            continue


def file_below(root: Path, folder: Path, name: str) -> Path | None:
    """A file of a folder, if it is one and lies below the root."""
    path = folder / name
    return path if path.is_file() and inside(root, path) else None
