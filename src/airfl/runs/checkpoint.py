"""Where a batch stands, on disk: safetensors and JSON, written whole or not at all, with a checksum; two are kept."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
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

FORMAT = "airfl-checkpoint/1"
KEEP = 2
log = logging.getLogger("airfl")


class CheckpointError(ValueError):
    """A checkpoint that is not what was written."""


def save_checkpoint(folder: Path, step: int, logs: Mapping[str, Log]) -> None:
    """Write one more checkpoint, then drop all but the last two.

    Models come first, the JSON that names their checksum last: a checkpoint exists once it is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = save({name: value for key, entry in logs.items() for name, value in _tensors(key, _last(entry)).items()})
    entries = {key: _entry(entry) for key, entry in logs.items()}
    body = json.dumps({"step": step, "models": _digest(models), "entries": entries}, allow_nan=False)
    stem = folder / f"{step:06d}"
    write_bytes(stem.with_suffix(".safetensors"), models)
    head = {"format": FORMAT, "sha256": _digest(body.encode())}
    write_bytes(stem.with_suffix(".json"), (json.dumps(head) + "\n" + body).encode())
    for old in checkpoints_in(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def checkpoints_in(folder: Path) -> list[Path]:
    """The JSON files of the checkpoints that are there, oldest first."""
    return sorted((path for path in folder.glob("*.json") if path.stem.isdigit()), key=lambda path: int(path.stem))


def drop_checkpoints(folder: Path) -> None:
    """Remove all checkpoints, and their folder if nothing else is in it."""
    for path in (*folder.glob("*.json"), *folder.glob("*.safetensors"), *folder.glob(f"{TEMPORARY}*")):
        if path.stem.isdigit() or path.name.startswith(TEMPORARY):
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def restore(folder: Path, simulations: Mapping[str, Simulation]) -> dict[str, Log]:
    """Logs as the newest sound checkpoint has them, fresh ones where there is none; damaged ones are named."""
    for path in reversed(checkpoints_in(folder)):
        try:
            return _read(path, simulations)
        except (CheckpointError, PrivacyError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("checkpoint `%s` is damaged (%s); using the one before it", path, in_words(error))
    return {key: Log([simulation]) for key, simulation in simulations.items()}


def _read(path: Path, simulations: Mapping[str, Simulation]) -> dict[str, Log]:
    head, _, body = path.read_bytes().partition(b"\n")
    first = json.loads(head)
    if first.get("format") != FORMAT or first.get("sha256") != _digest(body):
        raise CheckpointError("its checksum does not match")
    content = json.loads(body)
    raw = path.with_suffix(".safetensors").read_bytes()
    if _digest(raw) != content["models"] or set(content["entries"]) != set(simulations):
        raise CheckpointError("its models do not match")
    models = load(raw)
    return {key: _log(content["entries"][key], key, models, simulation) for key, simulation in simulations.items()}


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
        "ledgers": [ledger.to_mapping() for ledger in state.ledgers],
        "records": [_plain(record) for record in entry.records],
    }


def _log(entry: dict[str, Any], key: str, tensors: Mapping[str, torch.Tensor], simulation: Simulation) -> Log:
    device = simulation.start.device
    velocity, average, memory = (tensors.get(f"{key}/{part}") for part in ("velocity", "average", "memory"))
    state = State(
        entry["round"],
        tensors[key].to(device),
        tuple(Ledger.from_mapping(ledger) for ledger in entry["ledgers"]),
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
