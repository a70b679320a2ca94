"""A run as a folder: resolved config, rounds, ledgers, summary, models."""

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
from safetensors.torch import load_file, save_file

from airfl.config import from_toml
from airfl.errors import InputError
from airfl.privacy import Ledger, PrivacyError
from airfl.rounds import RoundRecord
from airfl.runs.result import Result, SchemeResult
from airfl.transceiver import Perk

LEDGER_FORMAT = "airfl-ledgers/2"


def prepare_folder(out: str | Path, force: bool = False) -> Path:
    """Make sure that ``out`` can be written before any work is done; a non-empty folder is refused unless forced."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the output `{out}` is a file; name a folder")
    try:
        if folder.is_dir() and any(folder.iterdir()) and not force:
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
    """Write a result; each file appears whole or not at all. Returns the result with ``out`` set."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    result = dataclasses.replace(result, out=str(out))
    write_text(folder / "config.toml", result.config.to_toml())
    table = pa.Table.from_pylist(result.rounds, schema=pa.schema(record_schema()))
    write_atomically(folder / "rounds.parquet", lambda path: pq.write_table(table, path))
    ledgers = {
        "format": LEDGER_FORMAT,
        "delta": result.config.privacy.delta,
        "neighbours": result.config.neighbours,
        "schemes": {name: [l.to_mapping() for l in s.ledgers] for name, s in result.schemes.items()},  # noqa: E741
    }
    write_text(folder / "ledger.json", json.dumps(ledgers, indent=1, allow_nan=False))
    models = {name: s.models for name, s in result.schemes.items() if s.models is not None}
    if models:
        write_atomically(folder / "model.safetensors", lambda path: save_file(models, path))
    else:  # an older run's model in the same folder must not pass for this one's
        (folder / "model.safetensors").unlink(missing_ok=True)
    write_text(folder / "provenance.json", json.dumps(result.provenance, indent=1))
    write_text(folder / "summary.json", json.dumps(result.summary, indent=1, allow_nan=False))
    return result


def load(out: str | Path) -> Result:
    """Bring a finished run back."""
    folder = Path(out)
    try:
        config = from_toml((folder / "config.toml").read_text(encoding="utf-8"))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
        ledgers = read_ledgers(folder / "ledger.json").schemes
        rows = pq.read_table(folder / "rounds.parquet").to_pylist()
        model_file = folder / "model.safetensors"
        models = load_file(model_file) if model_file.is_file() else {}
    except (OSError, json.JSONDecodeError, pa.ArrowInvalid) as error:
        raise InputError(f"`{out}` is not a finished run: {error}") from None
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
        )
        for name, entry in summary["schemes"].items()
    }
    return Result(config, summary["dim"], schemes, provenance, summary["budget_accountant"], str(out))


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
    """Read ledger.json of a run."""
    try:
        data: Any = json.loads(Path(path).read_text(encoding="utf-8"))  # infinities are refused event by event
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"ledger `{path}` cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("format") != LEDGER_FORMAT:
        raise InputError(f"`{path}` is not a ledger file of this version; expected format `{LEDGER_FORMAT}`")
    try:
        groups = {name: [Ledger.from_mapping(item) for item in group] for name, group in data["schemes"].items()}
        return LedgerFile(float(data["delta"]), str(data["neighbours"]), groups)
    except PrivacyError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"ledger `{path}` is not complete: {error!r}") from None


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
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    try:
        write(temporary)
        os.chmod(temporary, 0o644)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())  # a name must never point to bytes that are still on their way
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def record_schema() -> list[tuple[str, pa.DataType]]:
    """The columns of a record. An infinite ε (no protection) is kept as such, and NaN where none was computed."""
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    return [(field.name, kinds[str(field.type)]) for field in dataclasses.fields(RoundRecord)]
