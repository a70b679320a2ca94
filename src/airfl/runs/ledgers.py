"""What a finished run's folder holds, and its ledgers. Loads nothing heavy: `airfl epsilon` reads them too."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl.errors import InputError, about_file, in_words
from airfl.privacy import Ledger, PrivacyError, relation_of
from airfl.runs.manifest import DATA, MANIFEST, check_contents, is_run, is_sealed, read_manifest

LEDGER_FORMAT = "airfl-ledgers/3"
#: Before a checksum covered all of the file.
OLD_LEDGER_FORMAT = "airfl-ledgers/2"
log = logging.getLogger("airfl")


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run: as the manifest has them, or as they lie there if an older version wrote them."""
    manifest = read_manifest(folder)
    if manifest is not None:
        found = check_contents(folder, manifest, DATA)
        for name in [name for name in (*manifest.files, *manifest.pending) if name not in DATA]:
            try:
                check_contents(folder, manifest, [name])
            except InputError:
                log.warning(
                    "`%s` is missing or not what was written; `airfl report %s` writes it anew", folder / name, folder
                )
        return found
    if not is_run(folder):
        raise InputError(f"`{folder}` is not a finished run: it has no {MANIFEST}; name the folder of a run")
    log.warning("`%s` has no manifest: an older version wrote it, and damage to its files may not show", folder)
    try:
        return {name: (folder / name).read_bytes() for name in DATA if (folder / name).is_file()}
    except OSError as error:
        raise InputError(f"`{folder}` is not a finished run: {about_file(error)}") from None


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
