"""Where a batch stands, on disk: safetensors and JSON, written whole or not at all, with a checksum; two are kept.

What rounds left, records and events, only ever grows. It goes into a file of its own, once, a line for every
checkpoint; a checkpoint says how much of that file it counts on. So all of a run's checkpoints together cost what the
run is long, and not its square.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from airfl.errors import in_words
from airfl.privacy import Ledger, PrivacyError
from airfl.rounds import RoundRecord, State, fetched
from airfl.runs.manifest import TEMPORARY
from airfl.runs.store import write_bytes
from airfl.runs.together import Log
from airfl.simulate import Simulation

FORMAT = "airfl-checkpoint/2"
#: Read as well: every checkpoint had all rounds in itself.
FORMER = "airfl-checkpoint/1"
KEEP = 2
#: What rounds left, a line for every checkpoint.
HISTORY = "history.jsonl"
log = logging.getLogger("airfl")


class CheckpointError(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class _Written:
    """How much of the history one checkpoint counts on.

    Attributes:
        size: in bytes; what lies behind belongs to no checkpoint.
        digest: SHA-256 of these; never updated, only copied.
        rounds: how many records and events of each ledger there are, by the name of the log.
    """

    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    rounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def and_then(self, line: bytes, logs: Mapping[str, Log]) -> _Written:
        """The same with one more line, after which all rounds of the logs are written."""
        digest = self.digest.copy()
        digest.update(line)
        return _Written(self.size + len(line), digest, {key: _rounds_of(entry) for key, entry in logs.items()})


class Checkpoints:
    """Those of one batch, in a folder: whoever goes on with them reads them first."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._written = folder, _Written()

    def save(self, step: int, logs: Mapping[str, Log]) -> None:
        """Write one more checkpoint, then drop all but this one and the one before.

        The rounds come first, models next, the JSON that names the checksums of both last: a checkpoint exists once it
        is complete.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        news = {key: _news(entry, *self._written.rounds.get(key, (0, 0))) for key, entry in logs.items()}
        line = (json.dumps(news, allow_nan=False) + "\n").encode()
        _write_at(self._folder / HISTORY, self._written.size, line)
        written = self._written.and_then(line, logs)
        models = save({k: v for key, entry in logs.items() for k, v in _tensors(key, _last(entry)).items()})
        content = {
            "step": step,
            "models": _digest(models),
            "history": {"size": written.size, "sha256": written.digest.hexdigest()},
            "entries": {key: _entry(entry) for key, entry in logs.items()},
        }
        body = json.dumps(content, allow_nan=False).encode()
        stem = self._folder / f"{step:06d}"
        write_bytes(stem.with_suffix(".safetensors"), models)
        head = json.dumps({"format": FORMAT, "sha256": _digest(body)}).encode()
        write_bytes(stem.with_suffix(".json"), head + b"\n" + body)
        self._written = written
        there = checkpoints_in(self._folder)
        here = there.index(stem.with_suffix(".json")) + 1
        for old in (*there[: max(0, here - KEEP)], *there[here:]):  # later ones were damaged
            old.unlink(missing_ok=True)
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def restore(self, simulations: Mapping[str, Simulation]) -> dict[str, Log]:
        """Logs as the newest sound checkpoint has them, fresh ones where there is none; damaged ones are named."""
        for path in reversed(checkpoints_in(self._folder)):
            try:
                logs, self._written = _read(path, simulations)
            except (CheckpointError, PrivacyError, OSError, KeyError, TypeError, ValueError) as error:
                log.warning("checkpoint `%s` is damaged (%s); using the one before it", path, in_words(error))
            else:
                return logs
        self._written = _Written()
        return {key: Log([simulation]) for key, simulation in simulations.items()}

    def drop(self) -> None:
        """Remove all of them, and their folder if nothing else is in it."""
        self._written = _Written()
        (self._folder / HISTORY).unlink(missing_ok=True)
        for pattern in ("*.json", "*.safetensors", f"{TEMPORARY}*"):
            for path in self._folder.glob(pattern):
                if path.stem.isdigit() or path.name.startswith(TEMPORARY):
                    path.unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()


def checkpoints_in(folder: Path) -> list[Path]:
    """The JSON files of the checkpoints that are there, oldest first."""
    return sorted((path for path in folder.glob("*.json") if path.stem.isdigit()), key=lambda path: int(path.stem))


def _read(path: Path, simulations: Mapping[str, Simulation]) -> tuple[dict[str, Log], _Written]:
    head, _, body = path.read_bytes().partition(b"\n")
    first = json.loads(head)
    if first.get("format") not in (FORMAT, FORMER) or first.get("sha256") != _digest(body):
        raise CheckpointError("its checksum does not match")
    content = json.loads(body)
    entries = content["entries"]
    raw = path.with_suffix(".safetensors").read_bytes()
    if _digest(raw) != content["models"] or set(entries) != set(simulations):
        raise CheckpointError("its models do not match")
    history = b""
    if first["format"] == FORMAT:
        history = _history(path.with_name(HISTORY), **content["history"])
        for news in map(json.loads, history.splitlines()):
            for key, entry in entries.items():
                _add(entry, news[key])
    models = load(raw)
    logs = {key: _log(entries[key], key, models, simulation) for key, simulation in simulations.items()}
    return logs, _Written().and_then(history, logs) if history else _Written()


def _history(path: Path, size: int, sha256: str) -> bytes:
    """The first bytes of a history, if they are what was written."""
    with path.open("rb") as file:
        found = file.read(size)
    if len(found) != size or _digest(found) != sha256:
        raise CheckpointError("its rounds do not match")
    return found


def _write_at(path: Path, place: int, line: bytes) -> None:
    """Write a line at its place, the last of the file, and not through a link."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    with open(handle, "r+b") as file:
        file.truncate(place)
        file.seek(place)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _rounds_of(entry: Log) -> tuple[int, int]:
    """How many records there are, and events of each ledger."""
    return len(entry.records), len(_last(entry).ledgers[0].events)


def _news(entry: Log, records: int, events: int) -> dict[str, Any]:
    """What rounds left, from so many records and events of each ledger on."""
    return {
        "records": [_plain(record) for record in entry.records[records:]],
        "events": [ledger.rows(events) for ledger in _last(entry).ledgers],
    }


def _add(entry: dict[str, Any], news: Mapping[str, Any]) -> None:
    """Put the records and events of one line where a checkpoint had them when it held them all."""
    entry.setdefault("records", []).extend(news["records"])
    for ledger, events in zip(entry["ledgers"], news["events"], strict=True):
        ledger.setdefault("events", []).extend(events)


def _tensors(key: str, state: State) -> dict[str, torch.Tensor]:
    """What a state has of models, velocity, average, memory and spread, by name."""
    named = {
        key: state.models,
        f"{key}/velocity": state.velocity,
        f"{key}/average": state.average,
        f"{key}/memory": fetched(state.memory),
        f"{key}/spread": state.spread,
    }
    return {name: value.cpu().contiguous() for name, value in named.items() if value is not None}


def _entry(entry: Log) -> dict[str, Any]:
    state = _last(entry)
    return {
        "status": entry.status,
        "message": entry.message,
        "closed": entry.current is None,
        "seconds": entry.seconds,
        "round": state.round,
        "ledgers": [{"devices": ledger.devices_row()} for ledger in state.ledgers],
    }


def _log(entry: dict[str, Any], key: str, tensors: Mapping[str, torch.Tensor], simulation: Simulation) -> Log:
    device = simulation.start.device
    velocity, average, memory = (tensors.get(f"{key}/{part}") for part in ("velocity", "average", "memory"))
    state = State(
        entry["round"],
        tensors[key].to(device),
        tuple(Ledger.from_rows(ledger["events"], ledger["devices"]) for ledger in entry["ledgers"]),
        None if velocity is None else velocity.to(device),
        None if average is None else average.to(device),
        memory,
        tensors.get(f"{key}/spread"),
    )
    found = Log([simulation])
    found.status, found.message, found.seconds = entry["status"], entry["message"], entry["seconds"]
    found.records = [_record(row) for row in entry["records"]]
    if entry["closed"]:
        found.states = [state]
    else:
        found.current = state
    return found


def _last(entry: Log) -> State:
    return entry.states[-1] if entry.current is None and entry.states else entry.state


def _plain(record: RoundRecord) -> dict[str, Any]:
    """JSON has neither NaN nor infinity: words stand for them."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(record).items()
    }


def _record(row: dict[str, Any]) -> RoundRecord:
    words = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    return RoundRecord(**{key: words.get(value, value) if key != "scheme" else value for key, value in row.items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
