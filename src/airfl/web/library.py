"""The folder that is shown: which runs, studies and reproductions lie in it, read again only where files changed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from airfl.errors import InputError
from airfl.runs.ledgers import require_files
from airfl.runs.lock import LOCK, has_lock, is_locked
from airfl.runs.store import DAMAGE
from airfl.web.items import Busy, Item, Row
from airfl.web.limits import DEEPEST, LOOK_SECONDS, MOST_FOLDERS, MOST_ROWS, YOUNG_LOCK_SECONDS
from airfl.web.places import SKIPPED, Signature, require_inside, signature_of
from airfl.web.read_run import looks_like_run, read_run
from airfl.web.read_study import StudyReader
from airfl.wording import name_text

CLAIMS = "claims.json"
#: Bytes of a file of claims.
MOST_CLAIMS = 4_000_000


@dataclass(frozen=True)
class Snapshot:
    """What was there at a moment.

    Attributes:
        version: another one for whatever changed.
        notes: what is not shown, in sentences.
    """

    version: str
    items: tuple[Item, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of all items."""
        return [row for item in self.items for row in item.rows]

    @cached_property
    def by_id(self) -> dict[str, tuple[Item, Row]]:
        """Where a row is; nothing else is ever opened."""
        return {row["id"]: (item, row) for item in self.items for row in item.rows}

    @property
    def is_live(self) -> bool:
        """Whether somebody is at work."""
        return any(item.state in ("running", "writing") for item in self.items)


@dataclass
class Library:
    """Reads a folder of runs.

    Attributes:
        root: links in it are followed once, here.
        seconds: for which a look holds.
    """

    root: Path
    seconds: float = LOOK_SECONDS
    _studies: dict[str, StudyReader] = field(default_factory=dict)
    _items: dict[str, tuple[Any, Item]] = field(default_factory=dict)
    _latest: Snapshot | None = None
    _looked: float = -1e9
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()

    def look(self, wait: float = 10.0) -> Snapshot:
        """What is there now, or was a moment ago.

        Raises:
            Busy: somebody else is reading it, and did not finish in so many seconds.
        """
        latest = self._latest
        if latest is not None and time.monotonic() - self._looked < self.seconds:
            return latest
        if not self._lock.acquire(timeout=wait):
            raise Busy
        try:
            if self._latest is None or time.monotonic() - self._looked >= self.seconds:
                self._latest, self._looked = self._read(self._latest), time.monotonic()
            return self._latest
        finally:
            self._lock.release()

    def _read(self, before: Snapshot | None) -> Snapshot:
        found: dict[str, tuple[Any, Item]] = {}
        notes: list[str] = []
        for count, (folder, path, names) in enumerate(self._folders(notes)):
            if count >= MOST_FOLDERS:
                notes.append(f"Only {MOST_FOLDERS:,} folders with results are shown; name a smaller one with --runs.")
                break
            found[folder] = self._item(folder, path, names)
        self._studies = {name: reader for name, reader in self._studies.items() if name in found}
        self._items = found
        items, room = [], MOST_ROWS
        for _, item in found.values():
            if len(item.rows) > room:
                notes.append(f"Only {MOST_ROWS:,} rows are shown; name a smaller folder with --runs.")
                item = replace(item, rows=item.rows[:room])
            room -= len(item.rows)
            items.append(item)
        if before is not None and (tuple(items), tuple(notes)) == (before.items, before.notes):
            return before
        return Snapshot(f"{time.time_ns():x}", tuple(items), tuple(notes))

    def _item(self, folder: str, path: Path, names: set[str]) -> tuple[Any, Item]:
        """The item of a folder: as it was read before if nothing changed, whatever is wrong with it."""
        at_work, now = _at_work(path), signature_of(path)
        before = self._items.get(folder)
        if before is not None and before[0] == (now, at_work):
            return before
        try:
            if folder != path.relative_to(self.root).as_posix():
                raise InputError("its name is not UTF-8 text; rename it to see what it holds")
            require_inside(self.root, path)
            require_files(path)
            item = self._open(folder, path, names, now, at_work=at_work)
        except InputError as error:
            item = Item(_kind(names), folder, path, name_text(path.name), "refused", str(error))
        except DAMAGE as error:
            item = Item(_kind(names), folder, path, name_text(path.name), "damaged", str(error) or type(error).__name__)
        newest = max((entry[1] for entry in now), default=0)
        return (now, at_work), replace(item, changed=newest / 1e9)

    def _open(self, folder: str, path: Path, names: set[str], now: Signature, *, at_work: bool) -> Item:
        kind = _kind(names)
        if kind == "study":
            reader = self._studies.setdefault(folder, StudyReader(folder, path))
            return reader.read(now, at_work=at_work)
        if kind == "run":
            return read_run(folder, path, names, at_work=at_work)
        return _read_claims(folder, path)

    def _folders(self, notes: list[str]) -> Iterator[tuple[str, Path, set[str]]]:
        """Folders that hold something, by name; links to folders are not followed, since their targets are shown."""
        waiting = [(self.root, 0)]
        while waiting:
            path, depth = waiting.pop(0)
            try:
                with os.scandir(path) as entries:
                    inside = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            names = {entry.name for entry in inside}
            folder = name_text(path.relative_to(self.root).as_posix())
            if _holds(names):
                yield folder, path, names
                if _kind(names) != "claims":
                    continue
            if depth < DEEPEST:
                waiting += [
                    (Path(entry.path), depth + 1)
                    for entry in inside
                    if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED and entry.name[0] != "."
                ]
            outside = [entry.name for entry in inside if entry.is_symlink() and entry.is_dir()]
            notes += [
                f"`{folder}/{name_text(name)}` is a link to a folder, and is not followed." for name in outside[:5]
            ]


def _holds(names: set[str]) -> bool:
    return "plan.json" in names or CLAIMS in names or LOCK in names or looks_like_run(names)


def _kind(names: set[str]) -> Any:
    if "plan.json" in names:
        return "study"
    return "claims" if CLAIMS in names and not looks_like_run(names) else "run"


def _at_work(path: Path) -> bool:
    """Whether somebody holds a folder; a lock that was just made is not tried, so that its owner is not disturbed."""
    try:
        return has_lock(path) and (time.time() - (path / LOCK).stat().st_mtime < YOUNG_LOCK_SECONDS or is_locked(path))
    except OSError:
        return False


def _read_claims(folder: str, path: Path) -> Item:
    """The verdicts that `airfl reproduce` wrote."""
    file = path / CLAIMS
    if file.stat().st_size > MOST_CLAIMS:
        raise ValueError(f"`{CLAIMS}` is too large")
    content = json.loads(file.read_text(encoding="utf-8"))
    keys = ("sentence", "verdict", "found", "caveat")
    claims = {
        str(variant): [{key: str(claim.get(key) or "") for key in keys} for claim in found]
        for variant, found in content.items()
    }
    total = sum(map(len, claims.values()))
    return Item("claims", folder, path, path.name, "done", "", total, total, share=1.0, claims=claims)
