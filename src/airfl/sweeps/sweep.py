"""A study as a folder: planned once, worked off batch by batch, resumed after anything, compacted at the end."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airfl.errors import InputError
from airfl.runs.lock import LOCK, is_locked, locked
from airfl.runs.manifest import sweep_up
from airfl.runs.store import write_atomically, write_csv
from airfl.runs.tracking import Tracker
from airfl.study import Batch, Plan, Study
from airfl.sweeps.batch import Folder, digest, forget_samples, part_schema
from airfl.sweeps.executors import Event, Executor, Job
from airfl.sweeps.planfile import BASE, find_plan, open_folder
from airfl.sweeps.summary import (
    NOTES,
    TABLES,
    flat,
    look_at_tables,
    receipts_of,
    require_none,
    sound_receipts,
    summarise,
    write_notes,
)
from airfl.sweeps.tracking import track

log = logging.getLogger("airfl")


@dataclass(frozen=True)
class Pulse:
    """How far a batch at work has got, and when that was said."""

    heard: float
    rounds: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        """Of its rounds, those that are done."""
        return self.rounds / self.total if self.total else 0.0


@dataclass
class Standing:
    """How far a study has got, in cells."""

    plan: Plan
    done: int = 0
    failed: int = 0
    running: dict[str, Pulse] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl sweep --json`` and ``airfl status --json`` print."""
        return {
            "cells": self.plan.num_cells,
            "done": self.done,
            "failed": self.failed,
            "running": sum(self.plan.cells_of(batch) for batch in self.at_work()),
            "seconds_left": self.seconds_left,
            "messages": self.messages[:20],
        }

    def at_work(self) -> list[Batch]:
        """Batches that somebody works on."""
        return [batch for batch in self.plan.batches if batch.name in self.running]

    @property
    def cells_over(self) -> float:
        """Cells that are done or failed, and the share of those at work that is done."""
        partly = sum(self.plan.cells_of(batch) * self.running[batch.name].share for batch in self.at_work())
        return self.done + self.failed + partly

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the finished batches, with as many at work as now; None before the first is finished."""
        if not self.seconds:
            return None
        pace = self.seconds / (self.done + self.failed)
        return round(pace * (self.plan.num_cells - self.cells_over) / max(1, len(self.running)), 1)

    def settle(self, receipt: dict[str, Any]) -> None:
        """Count a finished batch: a cell that diverged or was refused is a failed one."""
        good = sum(cell["status"] == "done" for cell in receipt["cells"])
        self.done += good
        self.failed += len(receipt["cells"]) - good
        self.seconds += receipt["seconds"]
        self.messages += sorted({cell["message"] for cell in receipt["cells"] if cell["status"] != "done"})


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks to save and stop; a second one stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():  # signals are heard in the main thread alone
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def sweep(
    plan: Plan,
    folder: Folder,
    executor: Executor,
    heard: Callable[[Event | None, Standing], None] | None = None,
    trackers: Sequence[Tracker] = (),
    *,
    afresh: bool = True,
) -> tuple[Standing, bool]:
    """Work off what is left of a study; returns where it stands, and whether it was interrupted.

    Args:
        heard: hears every event and where the study stands then; at first without an event.
        trackers: hear the records of every cell that is finished.
        afresh: read data sets again, also those that a study before it has read.
    """
    standing = Standing(plan)
    waiting: list[Batch] = []
    if afresh:
        forget_samples()
    _require_files(plan, folder)
    _sweep_up(plan, folder)
    for problem in look_at_tables(folder)[0]:
        log.warning("`%s` is not complete: %s; it is written anew", folder.path, problem)
    for batch in plan.batches:
        receipt = folder.finished(batch)
        if receipt is None:
            waiting.append(batch)
        else:
            standing.settle(receipt)
            track(plan, batch, folder, trackers)
    by_name = {batch.name: batch for batch in plan.batches}

    def say(event: Event) -> None:
        batch = by_name[event.batch]
        if event.kind in ("begin", "round"):
            standing.running[batch.name] = Pulse(time.time(), event.rounds, event.total)
            _pulse(folder, batch, event)
        else:
            standing.running.pop(batch.name, None)
            folder.pulse(batch).unlink(missing_ok=True)
        if event.kind == "done":
            receipt = folder.finished(batch)
            if receipt is not None:
                standing.settle(receipt)
                track(plan, batch, folder, trackers)
        if event.kind == "failed":
            standing.failed += plan.cells_of(batch)
            standing.messages.append(f"{batch.name}: {event.message}")
        if heard:
            heard(event, standing)

    if heard:
        heard(None, standing)
    with stop_on_interrupt() as stop:
        try:
            executor.run(Job(plan, waiting, folder, say, stop))
        except InputError:
            _leave_nothing(folder)
            raise
        interrupted = stop()
    compact(plan, folder)
    return standing, interrupted


def start_or_resume(
    study: Study,
    text: str,
    out: str | Path,
    executor: Executor,
    heard: Callable[[Event | None, Standing], None] | None = None,
    *,
    threads: int = 1,
    anyway: bool = False,
    afresh: bool = True,
) -> tuple[Plan, Folder, Standing, bool]:
    """Run a study in a folder, or what is left of it there; also returns whether it was interrupted."""
    with locked(out):
        resume = (Path(out) / "plan.json").exists()
        plan, folder = open_folder(study, text, out, resume=resume, threads=threads, anyway=anyway)
        return plan, folder, *sweep(plan, folder, executor, heard, afresh=afresh)


def _require_files(plan: Plan, folder: Folder) -> None:
    """Refuse a folder in which something else stands where a file is to be written."""
    ours = [folder.path / name for name in (*TABLES, NOTES)]
    kinds = (folder.part, folder.ledgers, folder.receipt)
    for path in (*ours, *(kind(batch) for batch in plan.batches for kind in kinds)):
        if path.is_dir():
            raise InputError(f"`{path}` is a folder where a file belongs; move it away, then go on with --resume")


def _leave_nothing(folder: Folder) -> None:
    """Take back the plan of a study that was refused before its first batch; what holds work stays."""
    planned = ("plan.json", "study.toml", BASE)
    if {item.name for item in folder.path.iterdir()} <= {*planned, LOCK}:
        for name in planned:
            (folder.path / name).unlink(missing_ok=True)


def _sweep_up(plan: Plan, folder: Folder) -> None:
    """Signs of life and half-written files of a sweep that was killed."""
    for batch in plan.batches:
        folder.pulse(batch).unlink(missing_ok=True)
    for place in (folder.path, folder.path / "parts"):
        sweep_up(place)


def standing_of(out: str | Path) -> Standing:
    """Where a study stands, from its folder alone."""
    plan, folder = find_plan(out)
    standing = Standing(plan)
    at_work, receipts = is_locked(folder.path), sound_receipts(plan, folder)
    problems, unsure = ([], []) if at_work else look_at_tables(folder)
    require_none(problems, folder)
    if unsure:
        log.warning(
            "nothing vouches for %s in `%s`: writing was cut short, or an older version wrote it; airfl sweep STUDY "
            "--out %s --resume writes it anew",
            " and ".join(f"`{name}`" for name in unsure), out, out,
        )  # fmt: skip
    for batch in plan.batches:
        if batch.name in receipts:
            standing.settle(receipts[batch.name])
        elif at_work and (progress := read_pulse(folder, batch)) is not None:
            standing.running[batch.name] = progress
    return standing


def _pulse(folder: Folder, batch: Batch, event: Event) -> None:
    """A file says that a batch is at work; without room for it, nobody will know."""
    try:
        folder.pulse(batch).parent.mkdir(exist_ok=True)
        folder.pulse(batch).write_text(json.dumps({"rounds": event.rounds, "total": event.total}))
    except OSError:
        return


def read_pulse(folder: Folder, batch: Batch) -> Pulse | None:
    """How far a batch at work has got; None where nobody has begun it."""
    try:
        content = json.loads(folder.pulse(batch).read_text(encoding="utf-8"))
        return Pulse(folder.pulse(batch).stat().st_mtime, content["rounds"], content["total"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):  # caught in the middle of a write
        return Pulse(time.time())


def compact(plan: Plan, folder: Folder) -> None:
    """Join the sound parts into results.parquet, part by part, summarise them, and note the SHA-256 of both.

    The notes are there before, without any, so that what is cut short between leaves tables that nothing vouches for.
    """
    parts = [folder.part(batch) for batch in plan.batches if folder.finished(batch) is not None]
    if not parts:
        return

    def write(path: str) -> None:
        with pq.ParquetWriter(path, part_schema(plan), write_page_checksum=True) as writer:
            for part in parts:
                writer.write_table(pq.read_table(part, page_checksum_verification=True))

    results, summary = (folder.path / name for name in TABLES)
    provenance, rows = provenance_of_study(plan, folder), [flat(row) for row in summarise(plan, folder)]
    write_notes(folder, provenance, {})
    write_atomically(results, write)
    write_csv(summary, rows)
    write_notes(folder, provenance, {path.name: digest(path) for path in (results, summary)})


def provenance_of_study(plan: Plan, folder: Folder) -> dict[str, Any]:
    """What the results were computed with: versions, devices, seed, wall time, and a fingerprint of every point."""
    receipts = receipts_of(plan, folder)
    made = [receipt["provenance"] for receipt in receipts]
    kept = ("airfl", "source", "torch", "device", "processor", "precision")
    shared = {key: sorted({str(entry[key]) for entry in made if key in entry}) for key in kept}
    return {
        "study": plan.study.name,
        **shared,
        "seed": plan.base.system.seed,
        "seconds": round(sum(receipt["seconds"] for receipt in receipts), 3),
        "batches": len(receipts),
        "finished": max(entry["finished"] for entry in made),
        "config_sha256": {
            key: value for receipt in receipts for key, value in receipt.get("config_sha256", {}).items()
        },
    }
