"""What a finished run's folder holds, and its ledgers. Loads nothing heavy: `airfl epsilon` reads them too."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl.errors import InputError, about_file, in_words
from airfl.privacy import Ledger, PrivacyError, relation_of
from airfl.runs.lock import is_locked
from airfl.runs.manifest import ALL, DATA, MANIFEST, Manifest, check_contents, is_run, is_sealed, read_manifest
from airfl.wording import name_text

LEDGER_FORMAT = "airfl-ledgers/3"
#: Before a checksum covered all of the file.
OLD_LEDGER_FORMAT = "airfl-ledgers/2"
#: What a run that is not finished goes on with.
RESUME = "resume.json"
#: What lies in the folder of a study or of a reproduction, beside parts.
OF_STUDY = ("plan.json", "study.toml", "base.toml", "results.parquet", "summary.csv", "claims.json")
#: Bytes that a file of ours may have, unless it grows with rounds, devices and models: then half of the memory.
MOST = 2**27
log = logging.getLogger("airfl")


def require_files(folder: Path) -> None:
    """Refuse a folder, before it is read, where a file of a run or a study would block that or fill the memory."""
    named = [folder / name for name in (*ALL, MANIFEST, RESUME, *OF_STUDY)]
    for path in (*named, *(folder / "parts").glob("*"), *(folder / "running").glob("*")):
        try:
            now = path.stat()
        except OSError:  # who reads it says so
            continue
        if not stat.S_ISREG(now.st_mode) and not stat.S_ISDIR(now.st_mode):
            raise InputError(f"`{path}` is a pipe, a socket or a device where a file belongs; remove it")
        if now.st_size <= MOST:
            continue
        from airfl.memory import physical_bytes, size_text

        if path.suffix in (".json", ".toml") and path.name != "ledger.json":
            raise InputError(
                f"`{path}` has {size_text(now.st_size)}, and what airfl writes there is far smaller; restore the "
                "original file"
            )
        if now.st_size > (physical_bytes() or math.inf) / 2:
            raise InputError(
                f"`{path}` has {size_text(now.st_size)}, more than half of this machine's memory; read it on another"
            )


def require_readable(folder: Path) -> None:
    """Refuse a folder that is not to be read, and a run of which there is nothing to read yet."""
    require_files(folder)
    if is_run(folder):
        return
    if (folder / "plan.json").exists():
        if (name := name_text(str(folder))) != str(folder):  # PyArrow opens no file there
            raise InputError(f"the name of the folder `{name}` is no UTF-8 text; rename it")
        return
    if is_locked(folder):
        raise InputError(f"nothing in `{folder}` is finished yet: another airfl is at work there; wait for it")
    _require_over(folder)


def _require_over(folder: Path) -> None:
    if (folder / RESUME).exists():
        raise InputError(f"the run in `{folder}` is not finished; go on with: airfl run --resume {folder}")


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run: as the manifest has them, or as they lie there if an older version wrote them."""
    require_files(folder)
    manifest = read_manifest(folder)
    if manifest is not None:
        _require_sound(folder, manifest, DATA)
        found = check_contents(folder, manifest, DATA)
        for name in [name for name in (*manifest.files, *manifest.pending) if name not in DATA]:
            try:
                _require_sound(folder, manifest, [name])
                check_contents(folder, manifest, [name])
            except InputError:
                log.warning(
                    "`%s` is missing or not what was written; `airfl report %s` writes it anew", folder / name, folder
                )
        return found
    if not is_run(folder):
        _require_over(folder)
        raise InputError(f"`{folder}` is not a finished run: it has no {MANIFEST}; name the folder of a run")
    log.warning("`%s` has no manifest: an older version wrote it, and damage to its files may not show", folder)
    try:
        return {name: (folder / name).read_bytes() for name in DATA if (folder / name).is_file()}
    except OSError as error:
        raise InputError(f"`{folder}` is not a finished run: {about_file(error)}") from None


def _require_sound(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Refuse a large file that is not what was written, before all of it is in memory."""
    for path in (folder / name for name in names if name in manifest.files):
        if not path.is_file() or path.stat().st_size <= MOST:
            continue
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != manifest.files[path.relative_to(folder).as_posix()]:
                raise InputError(
                    f"`{folder}` is not a finished run: `{path.name}` is large, and not what was written; restore the "
                    "original file, or run it again"
                )


@dataclass(frozen=True)
class LedgerFile:
    """ledger.json of a run: the promise it was made for, and one ledger per scheme and trial."""

    delta: float
    neighbours: str
    schemes: dict[str, list[Ledger]]

    def of(self, scheme: str | None) -> tuple[str, list[Ledger]]:
        """The ledgers of one scheme; by default the private one, which is what people ask about."""
        name = scheme or ("airfl-dp" if "airfl-dp" in self.schemes else next(iter(self.schemes), "airfl-dp"))
        if name not in self.schemes:
            raise InputError(f"the ledger file has no scheme `{name}`; it holds: {', '.join(self.schemes) or 'none'}")
        return name, self.schemes[name]


def read_ledgers(path: str | Path) -> LedgerFile:
    """Read the ledgers of a run: from its folder, or from its ledger.json alone."""
    file = Path(path)
    if file.is_dir():
        found = contents(file)
        if "ledger.json" not in found:
            raise InputError(f"`{path}` is not a finished run: it has no ledger.json")
        return parse_ledgers(found["ledger.json"], file / "ledger.json")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"ledger `{path}` cannot be read: {in_words(error)}") from None
    ledgers = parse_ledgers(data, file)
    if file.name == "ledger.json" and (manifest := read_manifest(file.parent)) is not None:
        check_contents(file.parent, manifest, [file.name])
    return ledgers


def parse_ledgers(text: bytes, path: Path) -> LedgerFile:
    """The content of a ledger.json, refused if it was changed; ``path`` is where it lies, for errors."""
    try:
        data: Any = json.loads(text.decode())  # infinities are refused event by event
    except (ValueError, RecursionError) as error:
        raise InputError(f"ledger `{path}` cannot be read: {in_words(error)}") from None
    kind = data.get("format") if isinstance(data, dict) else None
    if kind not in (LEDGER_FORMAT, OLD_LEDGER_FORMAT):
        raise InputError(f"`{path}` is not a ledger file of this version; expected format `{LEDGER_FORMAT}`")
    try:
        groups = {name: [Ledger.from_mapping(item) for item in group] for name, group in data["schemes"].items()}
        found = LedgerFile(float(data["delta"]), relation_of(str(data["neighbours"])), groups)
    except PrivacyError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"ledger `{path}` is not complete: {error!r}") from None
    if kind == OLD_LEDGER_FORMAT and "sha256" not in data:
        log.warning("`%s` is of an older version: no checksum covers its δ, its neighbours and its trials", path)
    elif kind != LEDGER_FORMAT or not is_sealed(data):
        raise InputError(
            f"ledger `{path}` was changed after it was written: its checksum differs; use the original file"
        )
    return found
