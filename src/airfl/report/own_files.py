"""Files of our own in a folder of somebody's: one of them lists the others, and nothing else is ever replaced."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from airfl.errors import InputError
from airfl.runs import is_run, prepare_folder
from airfl.runs.manifest import TEMPORARY

_LIST = re.compile(rb"<!-- airfl wrote (\{[^{}]*\}) -->\n\Z")


def require_place(folder: Path, names: Sequence[str], holder: str, command: str) -> None:
    """Refuse folders of runs and studies, and files under our names that are not as we wrote them.

    Args:
        holder: which of the names has the list.
        command: that writes them, for the sentence.
    """
    if is_run(folder) or (folder / "plan.json").exists():
        raise InputError(f"`{folder}` holds a run or a study; name another folder for the figure, or one inside it")
    prepare_folder(folder, force=True)
    ours = _ours(folder, holder)
    for name in names:
        path = folder / name
        if path.is_symlink() or (path.exists() and (name not in ours or _digest(_read(path, holder)) != ours[name])):
            raise InputError(
                f"`{path}` is in the way and was not written by {command}, or was changed since; move it, or name "
                "another folder"
            )


def write_signed(folder: Path, files: Mapping[str, bytes], holder: str) -> None:
    """Write all files beside the old ones, then rename them; a failure leaves what was there.

    ``holder``, a page or a drawing in SVG, ends with a comment that lists all of them.
    """
    listed = json.dumps({name: _digest(data) for name, data in files.items()})
    signed = {**files, holder: files[holder] + f"<!-- airfl wrote {listed} -->\n".encode()}
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}report-", dir=folder))
    try:
        for name, data in signed.items():
            (staging / name).write_bytes(data)
        for name in signed:
            os.replace(staging / name, folder / name)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        for path in made:
            if not any(path.iterdir()):
                path.rmdir()
        raise
    shutil.rmtree(staging, ignore_errors=True)


def _ours(folder: Path, holder: str) -> dict[str, str]:
    """Digests of what was written, by name; nothing where there is no list."""
    try:
        found = _LIST.search((folder / holder).read_bytes() if (folder / holder).is_file() else b"")
        return {} if found is None else json.loads(found[1])
    except (OSError, ValueError):
        return {}


def _read(path: Path, holder: str) -> bytes:
    """A file's content, without the list; of what is no file, nothing."""
    data = path.read_bytes() if path.is_file() else b""
    return _LIST.sub(b"", data) if path.name == holder else data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
