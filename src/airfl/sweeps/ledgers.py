"""The ledgers of a batch as one small file: what comes twice is kept once.

Gzipped JSON, the same bytes for the same ledgers:

    cells    [point, scheme, trial, ledger]: which of the ledgers is a cell's
    ledgers  [runs, devices]: lists of [first round, rounds in a row, event], and for every observer who sees signals
             the place of the first of its sums per device, and how many there are
    events   without their round
    sums     all sums per device one after the other: float64, first the lowest byte of each, then the next, base64
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from airfl.privacy import Ledger, RoundEvent
from airfl.privacy.rows import event_of, former_of, row_of

FORMAT = "airfl-batch-ledgers/2"
#: Read as well: with device norms in place of sums, round by round.
FORMER = "airfl-batch-ledgers/1"

#: Point, scheme, trial.
Cell = tuple[int, str, int]


class _Once:
    """Sums per device one after the other, each list of them once."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self._places: dict[bytes, tuple[int, int]] = {}
        self._next = 0

    def place(self, values: np.ndarray) -> tuple[int, int]:
        """Where these begin, and how many they are."""
        key = values.astype("<f8").tobytes()
        if key not in self._places:
            self._places[key] = self._next, len(values)
            self.parts.append(values)
            self._next += len(values)
        return self._places[key]


def pack(ledgers: Mapping[Cell, Ledger]) -> bytes:
    """The ledgers of a batch as the bytes of its file."""
    sums, events = _Once(), dict[RoundEvent, int]()
    known: dict[str, int] = {}
    cells = []
    for (point, scheme, trial), ledger in ledgers.items():
        runs: list[list[int]] = []
        for event in ledger.events:
            kind = events.setdefault(replace(event, round=0), len(events))
            if runs and runs[-1][2] == kind and event.round == sum(runs[-1][:2]):
                runs[-1][1] += 1
            else:
                runs.append([event.round, 1, kind])
        devices = {name: sums.place(values) for name, values in ledger.devices.items()}
        cells.append([point, scheme, trial, known.setdefault(json.dumps([runs, devices]), len(known))])
    rows = [{k: v for k, v in row_of(event).items() if k != "round"} for event in events]
    planes = np.concatenate([np.zeros(0), *sums.parts]).astype("<f8").view(np.uint8).reshape(-1, 8).T
    content = {
        "format": FORMAT,
        "cells": cells,
        "ledgers": [json.loads(text) for text in known],
        "events": rows,
        "sums": base64.b64encode(planes.tobytes()).decode(),
    }
    return gzip.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)


def unpack(data: bytes) -> dict[Cell, Ledger]:
    """Inverse of ``pack``, also for what the format before it kept."""
    content = json.loads(gzip.decompress(data))
    if content["format"] == FORMER:
        norms = _numbers(content["norms"])
        ledgers = [_former(runs, content["events"], norms) for runs in content["ledgers"]]
    elif content["format"] == FORMAT:
        sums = _numbers(content["sums"])
        events = [event_of({**row, "round": 0}) for row in content["events"]]
        ledgers = [_ledger(runs, devices, events, sums) for runs, devices in content["ledgers"]]
    else:
        raise ValueError(f"format `{content['format']}` is not `{FORMAT}`")
    return {(point, scheme, trial): ledgers[number] for point, scheme, trial, number in content["cells"]}


def _numbers(text: str) -> np.ndarray:
    planes = np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view("<f8")


def _ledger(runs: list[list[int]], devices: dict[Any, Any], events: list[RoundEvent], sums: np.ndarray) -> Ledger:
    ledger = Ledger()
    for first, count, kind in runs:
        for number in range(first, first + count):
            ledger = ledger.append(replace(events[kind], round=number))
    return Ledger.kept(ledger.events, {name: sums[place : place + count] for name, (place, count) in devices.items()})


def _former(runs: list[list[Any]], rows: list[dict[str, Any]], norms: np.ndarray) -> Ledger:
    """[first round, rounds in a row, event, place of the first of its device norms, or null]."""
    ledger = Ledger()
    for first, count, kind, place in runs:
        row = rows[kind]
        own = None if place is None else norms[place : place + row["sampling"]["num_devices"]].tolist()
        for number in range(first, first + count):
            ledger = ledger.append(*former_of({**row, "round": number, "device_norms": own}))
    return ledger
