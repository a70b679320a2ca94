"""What the pages take: ``python -m benchmarks.serve [--cells 10000] [--requests 2000] [--json]``.

Milliseconds of the server for what is dragged in the planner, for a table of many cells (read first, then asked for),
and for a row in full; and the memory that many requests leave behind. The application is called in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from airfl import sweeps
from airfl.runs.store import write_bytes, write_text
from airfl.study import make_study
from airfl.sweeps.batch import PART_FORMAT, Folder, _checksum, digest, part_schema
from airfl.sweeps.ledgers import pack
from airfl.web.app import make_app
from airfl.web.guard import Door
from benchmarks.machine import provenance

#: What is dragged, in steps, each from the scenario.
DRAGGED = {
    "power-dbm": lambda k: f"{-20 + k / 2:g}",
    "distance": lambda k: f"{300 + 40 * k}",
    "epsilon": lambda k: f"{1 + k / 4:g}",
    "devices": lambda k: str(60 + 7 * k),
    "antennas": lambda k: str(10 + k),
    "participation": lambda k: f"{0.3 + k / 100:g}",
    "rounds": lambda k: str(20 + 3 * k),
    "bandwidth": lambda k: str(1_000_000 + 100_000 * k),
}
ROUNDS = 5


def study_of(cells: int, out: Path) -> None:
    """The folder of a study of so many cells, written as a sweep writes it but for what was trained."""
    side = round(cells**0.5)
    small = {"system.rounds": ROUNDS, "learning.dataset": "digits", "learning.split": "standard"}
    grid = {
        "channel.power_w": [1e-3 * (1 + k / side) for k in range(side)],
        "privacy.epsilon": [0.5 + k / 10 for k in range(side)],
    }
    named = {"name": "big", "base": "paper", "schemes": ["airfl-dp"], "trials": 1}
    study = make_study({**named, "set": {**small, "learning.model": "softmax"}, "grid": grid})
    plan, folder = sweeps.open_folder(study, "name = 'big'\n", out, resume=False, threads=1)
    (out / "parts").mkdir()
    for batch in plan.batches:
        write_part(plan, batch, folder)


def write_part(plan: Any, batch: Any, folder: Folder) -> None:
    numbers = ("loss", "train_loss", "noise_var", "combiner_norm", "minimum_norm", "update_norm")
    rows = [
        {
            **plan.points[point],
            **dict.fromkeys(numbers, 1.0),
            **{"clipped_fraction": 0.5, "max_power_w": 1e-3, "misalignment": 0.0, "epsilon": 0.1 * t + point / 1e4},
            **{"point": point, "scheme": "airfl-dp", "trial": 0, "round": t, "accuracy": 1 - 1 / (t + point % 97)},
        }
        for point in batch.points
        for t in range(1, ROUNDS + 1)
    ]
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=part_schema(plan)), buffer, write_page_checksum=True)
    write_bytes(folder.part(batch), buffer.getvalue().to_pybytes())
    write_bytes(folder.ledgers(batch), pack({}))
    cell = {"scheme": "airfl-dp", "trial": 0, "status": "done", "message": "", "rounds": ROUNDS}
    receipt = {
        "format": PART_FORMAT,
        "sha256": digest(folder.part(batch)),
        "ledgers_sha256": digest(folder.ledgers(batch)),
        "rows": len(rows),
        "cells": [{"point": point, **cell} for point in batch.points],
        "seconds": 1.0,
        "provenance": {},
    }
    write_text(folder.receipt(batch), json.dumps({**receipt, "checksum": _checksum(receipt)}))


async def ask(app: Any, address: str) -> int:
    """One request; how many bytes the answer has."""
    path, _, query = address.partition("?")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    more = {"headers": [(b"host", b"127.0.0.1")], "scheme": "http", "root_path": "", "server": ("127.0.0.1", 80)}
    await app({**scope, **more}, asyncio.Event().wait, send)
    if sent[0]["status"] != 200:
        raise SystemExit(f"{address}: {sent[0]['status']} {sent[1].get('body')}")
    return sum(len(message.get("body", b"")) for message in sent[1:])


async def times(app: Any, addresses: list[str]) -> dict[str, float]:
    """Milliseconds: median and largest, on the clock and of the processor, which who else is busy does not stretch."""
    taken, spent = [], []
    for address in addresses:
        begin, work = time.perf_counter(), time.process_time()
        await ask(app, address)
        taken.append(1e3 * (time.perf_counter() - begin))
        spent.append(1e3 * (time.process_time() - work))
    return {
        "median_ms": round(statistics.median(taken), 1),
        "largest_ms": round(max(taken), 1),
        "processor_ms": round(statistics.median(spent), 1),
        "largest_processor_ms": round(max(spent), 1),
    }


def planned(name: str, value: Callable[[int], str], scenario: str) -> list[str]:
    return [f"/api/plan?{urlencode({'scenario': scenario, name: value(k), 'live': 1})}" for k in range(40)]


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(folder: Path, requests: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    app = make_app(folder, Door(("127.0.0.1",)))
    for scenario in ("urban-cell", "satellite-iot"):
        await ask(app, f"/api/plan?scenario={scenario}")
        for name, value in DRAGGED.items():
            found[f"{scenario}, {name} dragged"] = await times(app, planned(name, value, scenario))
    found["the table, read first"] = await times(app, ["/api/rows"])
    queries = [{"page": k} for k in range(1, 11)] + [{"sort": "-accuracy", "page": k} for k in range(1, 11)]
    queries += [{"q": f"accuracy>{k}% power_w<1.5e-3", "sort": "epsilon"} for k in range(40, 50)]
    pages = [f"/api/rows?{urlencode(query)}" for query in queries]
    found["a page of the table"] = await times(app, pages)
    found["a row in full"] = await times(app, [f"/api/view?row=study:{k}:airfl-dp" for k in range(0, 1000, 25)])
    mixed = [*pages, *planned("power-dbm", DRAGGED["power-dbm"], "urban-cell"), "/runs", "/plan"]
    for k in range(300):
        await ask(app, mixed[k % len(mixed)])
    before = resident_mib()
    for k in range(requests):
        await ask(app, mixed[k % len(mixed)])
    found[f"memory after {requests:,} requests"] = {
        "before_mib": round(before, 1),
        "after_mib": round(resident_mib(), 1),
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        study_of(options.cells, Path(place) / "study")
        found = asyncio.run(measure(Path(place), options.requests))
    if options.json:
        print(json.dumps({"measured": found, "machine": provenance()}))
        return
    for name, numbers in found.items():
        print(f"{name:<44} {', '.join(f'{key} {value:,}' for key, value in numbers.items())}")


if __name__ == "__main__":
    main()
