"""A run as a folder: resolved config, rounds, ledgers, summary, models, and the manifest that vouches for them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
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
from airfl.errors import InputError, about_file
from airfl.privacy import Ledger, PrivacyError, relation_of
from airfl.rounds import CoverUsed, RoundRecord
from airfl.runs.ledgers import LEDGER_FORMAT, contents, parse_ledgers
from airfl.runs.lock import LOCK, locked
from airfl.runs.manifest import TEMPORARY, put, sealed
from airfl.runs.result import SUMMARY_FORMAT, Result, SchemeResult
from airfl.runs.tables import rows_of, table_of
from airfl.transceiver import Perk

#: What reading a damaged file of an older version may end in.
DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, ValueError, TypeError, AttributeError, RecursionError, MemoryError, OverflowError),
    *(PrivacyError, SafetensorError, pa.ArrowException),
)


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
        raise InputError(f"the output folder `{out}` is not writable: {about_file(error)}") from None
    return folder


def save(result: Result, out: str | Path) -> Result:
    """Write a result, all of it or nothing; a run that lies there is replaced, with its report and figures.

    Returns the result with ``out`` set.
    """
    with locked(out):
        return write_run(result, Path(out))


def write_run(result: Result, folder: Path, more: Mapping[str, bytes] | None = None) -> Result:
    """``save``, for who holds the folder already.

    Args:
        more: files beside those of every run.
    """
    result = dataclasses.replace(result, out=str(folder))
    table = table_of(result.rounds)
    rounds = pa.BufferOutputStream()
    pq.write_table(table, rounds)
    books = {name: scheme.ledgers for name, scheme in result.schemes.items()}
    models = {name: s.models for name, s in result.schemes.items() if s.models is not None}
    files = {
        "config.toml": result.config.to_toml().encode(),
        "rounds.parquet": rounds.getvalue().to_pybytes(),
        "ledger.json": _ledgers(result.config.privacy.delta, result.config.neighbours, books),
        "provenance.json": json.dumps(result.provenance, indent=1).encode(),
        "summary.json": json.dumps(result.summary, indent=1, allow_nan=False).encode(),
        **({"model.safetensors": save_models(models)} if models else {}),
        **(more or {}),
    }
    put(folder, files)
    return result


def keep_ledgers(out: str | Path, delta: float, neighbours: str, schemes: Mapping[str, Sequence[Ledger]]) -> None:
    """Write the ledgers of a run that is under way: all that its folder holds until it is over."""
    with locked(out):
        put(Path(out), {"ledger.json": _ledgers(delta, neighbours, schemes)})


def _ledgers(delta: float, neighbours: str, schemes: Mapping[str, Sequence[Ledger]]) -> bytes:
    rows = {name: [ledger.to_mapping() for ledger in ledgers] for name, ledgers in schemes.items()}
    content = {"format": LEDGER_FORMAT, "delta": delta, "neighbours": neighbours, "schemes": rows}
    return json.dumps(sealed(content), indent=1, allow_nan=False).encode()


def load(out: str | Path) -> Result:
    """Bring a finished run back, if it is what was written."""
    files = contents(Path(out))
    try:
        config = from_toml(files["config.toml"].decode())
        summary = json.loads(files["summary.json"])
        summary["neighbours"] = relation_of(summary["neighbours"])
        provenance = json.loads(files["provenance.json"])
        ledgers = parse_ledgers(files["ledger.json"], Path(out) / "ledger.json").schemes
        rows = rows_of(files["rounds.parquet"])
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
                neighbours=summary["neighbours"],
            )
            for name, entry in summary["schemes"].items()
        }
        if summary.get("format", SUMMARY_FORMAT) != SUMMARY_FORMAT:
            raise ValueError(f"its summary has format `{summary['format']}`, and this version reads `{SUMMARY_FORMAT}`")
        chance = summary.get("chance_accuracy", 0.0)
        accountant = summary["budget_accountant"]
        return Result(config, summary["dim"], schemes, provenance, accountant, chance, str(out), summary)
    except KeyError as error:
        raise InputError(f"`{out}` is not a finished run: it lacks {error}") from None
    except DAMAGE as error:
        raise InputError(f"`{out}` is not a finished run: {about_file(error)}") from None


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
