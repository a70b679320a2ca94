"""A run as a folder: resolved config, rounds, ledgers, summary, models, and the manifest that vouches for them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load as load_models
from safetensors.torch import save as save_models

from airfl.config import from_toml
from airfl.errors import InputError
from airfl.privacy import Ledger, PrivacyError, relation_of
from airfl.rounds import CoverUsed, RoundRecord
from airfl.runs.lock import LOCK, locked
from airfl.runs.manifest import (
    DATA,
    MANIFEST,
    TEMPORARY,
    check_contents,
    is_run,
    is_sealed,
    put,
    read_manifest,
    sealed,
)
from airfl.runs.result import Result, SchemeResult
from airfl.runs.tables import record_schema
from airfl.transceiver import Perk

LEDGER_FORMAT = "airfl-ledgers/3"
#: Before a checksum covered all of the file.
OLD_LEDGER_FORMAT = "airfl-ledgers/2"
#: What reading a damaged file of an older version may end in.
DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, ValueError, TypeError, AttributeError, RecursionError, MemoryError, OverflowError),
    *(PrivacyError, SafetensorError, pa.ArrowException),
)
log = logging.getLogger("airfl")


def prepare_folder(out: str | Path, force: bool = False) -> Path:
    """Make sure that ``out`` can be written before any work is done; a non-empty folder is refused unless forced."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the output `{out}` is a file; name a folder")
    try:
        if folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()) and not force:
            raise InputError(
                f"the output folder `{out}` is not empty; name another one or add --force to write into it"
            )
        missing = [folder, *folder.parents]
        made = [path for path in missing if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for path in made:  # leave nothing behind until there is something to keep
            path.rmdir()
    except OSError as error:
        raise InputError(f"the output folder `{out}` is not writable: {error}") from None
    return folder


def save(result: Result, out: str | Path) -> Result:
    """Write a result, all of it or nothing. Returns the result with ``out`` set."""
    with locked(out):
        return write_run(result, Path(out))


def write_run(result: Result, folder: Path, more: Mapping[str, bytes] | None = None) -> Result:
    """``save``, for who holds the folder already.

    Args:
        more: files beside those of every run.
    """
    result = dataclasses.replace(result, out=str(folder))
    table = pa.Table.from_pylist(result.rounds, schema=pa.schema(record_schema()))
    rounds = pa.BufferOutputStream()
    pq.write_table(table, rounds)
    ledgers = {
        "format": LEDGER_FORMAT,
        "delta": result.config.privacy.delta,
        "neighbours": result.config.neighbours,
        "schemes": {name: [l.to_mapping() for l in s.ledgers] for name, s in result.schemes.items()},  # noqa: E741
    }
    models = {name: s.models for name, s in result.schemes.items() if s.models is not None}
    files = {
        "config.toml": result.config.to_toml().encode(),
        "rounds.parquet": rounds.getvalue().to_pybytes(),
        "ledger.json": json.dumps(sealed(ledgers), indent=1, allow_nan=False).encode(),
        "provenance.json": json.dumps(result.provenance, indent=1).encode(),
        "summary.json": json.dumps(result.summary, indent=1, allow_nan=False).encode(),
        **({"model.safetensors": save_models(models)} if models else {}),
        **(more or {}),
    }
    put(folder, files)
    return result


def load(out: str | Path) -> Result:
    """Bring a finished run back, if it is what was written."""
    files = _contents(Path(out))
    try:
        config = from_toml(files["config.toml"].decode())
        summary = json.loads(files["summary.json"])
        provenance = json.loads(files["provenance.json"])
        ledgers = _parse_ledgers(files["ledger.json"], Path(out) / "ledger.json").schemes
        rows = pq.read_table(pa.BufferReader(files["rounds.parquet"])).to_pylist()
        models = load_models(files["model.safetensors"]) if "model.safetensors" in files else {}
        schemes = {
            name: SchemeResult(
                records=tuple(RoundRecord(**row) for row in rows if row["scheme"] == name),
                ledgers=tuple(ledgers[name]),
                models=models.get(name),
                never_heard=tuple(entry["never_heard"]),
                perks=tuple(Perk(**item) for item in entry["perk"]),
                status=entry["status"],
                message=entry["message"],
                seconds=entry["seconds"],
                accountant=entry["accountant"],
                observer=entry["observer"],
                transmitting=entry.get("transmitting", 0.0),
                cover=tuple(CoverUsed(**item) for item in entry.get("cover", ())),
                delta=summary["delta"],
                neighbours=relation_of(summary["neighbours"]),
            )
            for name, entry in summary["schemes"].items()
        }
        return Result(config, summary["dim"], schemes, provenance, summary["budget_accountant"], str(out), summary)
    except KeyError as error:
        raise InputError(f"`{out}` is not a finished run: it lacks {error}") from None
    except DAMAGE as error:
        raise InputError(f"`{out}` is not a finished run: {error}") from None


def _contents(folder: Path) -> dict[str, bytes]:
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
        raise InputError(f"`{folder}` is not a finished run: {error}") from None


@dataclasses.dataclass(frozen=True)
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
        found = _contents(file)
        if "ledger.json" not in found:
            raise InputError(f"`{path}` is not a finished run: it has no ledger.json")
        return _parse_ledgers(found["ledger.json"], file / "ledger.json")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"ledger `{path}` cannot be read: {error}") from None
    ledgers = _parse_ledgers(data, file)
    if file.name == "ledger.json" and (manifest := read_manifest(file.parent)) is not None:
        check_contents(file.parent, manifest, [file.name])
    return ledgers


def _parse_ledgers(text: bytes, path: Path) -> LedgerFile:
    try:
        data: Any = json.loads(text.decode())  # infinities are refused event by event
    except (ValueError, RecursionError) as error:
        raise InputError(f"ledger `{path}` cannot be read: {error}") from None
    kind = data.get("format") if isinstance(data, dict) else None
    if kind not in (LEDGER_FORMAT, OLD_LEDGER_FORMAT):
        raise InputError(f"`{path}` is not a ledger file of this version; expected format `{LEDGER_FORMAT}`")
    try:
        groups = {name: [Ledger.from_mapping(item) for item in group] for name, group in data["schemes"].items()}
        found = LedgerFile(float(data["delta"]), str(data["neighbours"]), groups)
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


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_bytes(path, text.encode())


def write_csv(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, digits: int | None = None
) -> None:
    """Write rows as CSV, whole or not at all.

    Args:
        columns: default: those of the first row.
        digits: significant ones of floats; default: all.
    """
    names = list(columns or (rows[0] if rows else ()))
    shown = [
        {key: f"{v:.{digits}g}" if digits and isinstance(v := row[key], float) else row[key] for key in names}
        for row in rows
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, buffer.getvalue())


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows that ``write_csv`` wrote: numbers where they are numbers, None where there is nothing."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _number(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text or None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    write_atomically(path, lambda temporary: Path(temporary).write_bytes(data))


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it into place."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}.", suffix=path.suffix)
    os.close(handle)
    try:
        write(temporary)
        os.chmod(temporary, 0o644)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())  # a name must never point to bytes that are still on their way
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say what it had no room for
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
