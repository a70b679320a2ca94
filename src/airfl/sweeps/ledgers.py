"""The ledgers of a batch as one small file: what comes twice is kept once.

Gzipped JSON, the same bytes for the same ledgers:

    cells    [point, scheme, trial, ledger]: which of the ledgers is a cell's
    ledgers  lists of [first round, rounds in a row, event, place of the first of its device norms, or null]
    events   without their round and device norms
    norms    all device norms one after the other: float64, first the lowest byte of each, then the next, base64
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
from airfl.privacy.ledger import event_of, row_of

FORMAT = "airfl-batch-ledgers/1"

#: Point, scheme, trial.
Cell = tuple[int, str, int]


class _Once:
    """Device norms one after the other, each list of them once."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self._places: dict[tuple[float, ...], int] = {}

    def place(self, norms: tuple[float, ...] | None) -> int | None:
        """Where these begin."""
        if norms is None:
            return None
        if norms not in self._places:
            self._places[norms] = len(self.values)
            self.values.extend(norms)
        return self._places[norms]


def pack(ledgers: Mapping[Cell, Ledger]) -> bytes:
    """The ledgers of a batch as the bytes of its file."""
    norms, events = _Once(), dict[RoundEvent, int]()
    known: dict[str, int] = {}
    cells = []
    for (point, scheme, trial), ledger in ledgers.items():
        runs: list[list[int | None]] = []
        for event in ledger.events:
            bare = replace(event, round=0, device_norms=None)
            kind, place = events.setdefault(bare, len(events)), norms.place(event.device_norms)
            if runs and runs[-1][2:] == [kind, place] and event.round == sum(runs[-1][:2]):  # type: ignore[arg-type]
                runs[-1][1] += 1  # type: ignore[operator]
            else:
                runs.append([event.round, 1, kind, place])
        cells.append([point, scheme, trial, known.setdefault(json.dumps(runs), len(known))])
    rows = [{k: v for k, v in row_of(event).items() if k not in ("round", "device_norms")} for event in events]
    planes = np.array(norms.values, dtype="<f8").view(np.uint8).reshape(-1, 8).T
    content = {
        "format": FORMAT,
        "cells": cells,
        "ledgers": [json.loads(text) for text in known],
        "events": rows,
        "norms": base64.b64encode(planes.tobytes()).decode(),
    }
    return gzip.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)


def unpack(data: bytes) -> dict[Cell, Ledger]:
    """Inverse of ``pack``; cells with equal ledgers share one. What ``pack`` did not write ends in some exception."""
    content = json.loads(gzip.decompress(data))
    if content["format"] != FORMAT:
        raise ValueError(f"format `{content['format']}` is not `{FORMAT}`")
    planes = np.frombuffer(base64.b64decode(content["norms"]), dtype=np.uint8).reshape(8, -1)
    norms = np.ascontiguousarray(planes.T).reshape(-1).view("<f8")
    events = [event_of({**row, "round": 0}) for row in content["events"]]
    ledgers = [_ledger(runs, events, norms) for runs in content["ledgers"]]
    return {(point, scheme, trial): ledgers[number] for point, scheme, trial, number in content["cells"]}


def _ledger(runs: list[list[Any]], events: list[RoundEvent], norms: np.ndarray) -> Ledger:
    ledger = Ledger()
    for first, count, kind, place in runs:
        event = events[kind]
        own = None if place is None else tuple(norms[place : place + event.sampling.num_devices].tolist())
        for number in range(first, first + count):
            ledger = ledger.append(replace(event, round=number, device_norms=own))
    return ledger
