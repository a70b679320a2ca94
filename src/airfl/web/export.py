"""The run browser as files that open from a disk: the same pages, with the data beside them as scripts.

A page from a disk may not fetch anything, and may load scripts: ``data/index.js`` has all rows, and
``data/part-00001.js`` some of them in full, loaded when one is opened.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airfl.errors import InputError
from airfl.runs import prepare_folder
from airfl.runs.manifest import TEMPORARY
from airfl.web.detail import Details
from airfl.web.library import Library
from airfl.web.pages import json_of, page, static_files
from airfl.web.rows import COLUMNS, axes_of

#: Rows in full in a file.
TOGETHER = 50
#: Of our own scripts and styles, those that only the planner needs.
PLANNER = ("plan.js",)


class Export:
    """An export that is about to be written.

    Attributes:
        count: rows in it.
    """

    def __init__(self, runs: str | Path, out: str | Path) -> None:
        library = Library(Path(runs))
        target = Path(out).resolve()
        if target.is_relative_to(library.root):
            raise InputError(f"`{out}` lies below `{runs}`, which would show itself next time; name a folder outside")
        self._out = prepare_folder(out)
        self._snapshot, self._details = library.look(), Details(library.root)
        self.count = len(self._snapshot.rows)

    def write(self, advance: Callable[[int], object]) -> int:
        """Write all files, or none; returns how many.

        Args:
            advance: hears how many rows are done.
        """
        made = [path for path in (self._out, *self._out.parents) if not path.exists()]
        self._out.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}export-", dir=self._out))
        try:
            self._fill(staging, advance)
            names = sorted(path.name for path in staging.iterdir())
            count = sum(path.is_file() for path in staging.rglob("*"))
            for name in names:
                os.replace(staging / name, self._out / name)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            for path in made:
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
            raise
        shutil.rmtree(staging, ignore_errors=True)
        return count

    def _fill(self, folder: Path, advance: Callable[[int], object]) -> None:
        for name in ("static", "data"):
            (folder / name).mkdir()
        for name, data in static_files().items():
            if name not in PLANNER:
                (folder / "static" / name).write_bytes(data)
        (folder / "index.html").write_text(page("runs.html.j2", live=False), encoding="utf-8")
        (folder / "view.html").write_text(page("view.html.j2", live=False), encoding="utf-8")
        rows = [{**row, "part": f"part-{place // TOGETHER + 1:05d}"} for place, row in enumerate(self._snapshot.rows)]
        items = [{**item.shown, "message": item.message} for item in self._snapshot.items]
        index = {
            "version": self._snapshot.version,
            "live": False,
            "notes": list(self._snapshot.notes),
            "items": items,
            "claims": {item.folder: item.claims for item in self._snapshot.items if item.claims},
            "columns": list(COLUMNS),
            "axes": axes_of(rows),
            "rows": rows,
        }
        _write(folder / "data" / "index.js", "window.airflIndex", index)
        for first in range(0, len(rows), TOGETHER):
            some = rows[first : first + TOGETHER]
            whole = {str(row["id"]): self._whole(str(row["id"])) for row in some}
            _write(
                folder / "data" / f"{some[0]['part']}.js", f"window.airflParts[{json.dumps(some[0]['part'])}]", whole
            )
            for _ in some:
                advance(1)

    def _whole(self, row_id: str) -> dict[str, Any]:
        """A row in full, or what is wrong with it."""
        try:
            found = self._details.of(self._snapshot, row_id)
        except InputError as error:
            return {"problem": str(error), "id": row_id}
        return {key: value for key, value in found.items() if key not in ("row", "files")} | {"files": []}


def _write(path: Path, name: str, content: Any) -> None:
    """Data as a script that sets a name; `<` and the separators that end a line of script are escaped."""
    text = json_of(content).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    path.write_text(f"{name} = {text};\n", encoding="utf-8")
