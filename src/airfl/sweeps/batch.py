"""One batch of a study: train its cells together, keep checkpoints, write one part of the results."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from airfl.config import Config
from airfl.devices import Samples, open_task, samples_of
from airfl.errors import about_file, in_words
from airfl.memory import memories_of, require_memory
from airfl.privacy import Ledger
from airfl.runs.checkpoint import Checkpoints
from airfl.runs.execute import pick_device, provenance_of
from airfl.runs.store import write_bytes, write_text
from airfl.runs.tables import record_schema
from airfl.runs.together import Log, run_together, trained_alike
from airfl.simulate import Simulation, open_simulation
from airfl.study import Batch, Plan
from airfl.sweeps.ledgers import Cell, pack
from airfl.transceiver import Radio, open_radio

PART_FORMAT = "airfl-part/3"
#: Before ledgers were kept.
NO_LEDGERS = "airfl-part/2"
#: Before receipts had a checksum of their own.
NO_CHECKSUM = "airfl-part/1"

#: A data set stays in the process: batches of a study share it. By its name, so that each study begins anew.
_samples = lru_cache(maxsize=2)(samples_of)
forget_samples = _samples.cache_clear


class Stopped(Exception):
    """The batch was asked to stop; its checkpoint is written."""


@dataclass(frozen=True)
class Folder:
    """Where a study's files lie."""

    path: Path

    def part(self, batch: Batch) -> Path:
        """Results of a batch; the JSON beside it says that they are complete."""
        return self.path / "parts" / f"{batch.name}.parquet"

    def receipt(self, batch: Batch) -> Path:
        """What a finished batch says about its part."""
        return self.part(batch).with_suffix(".json")

    def ledgers(self, batch: Batch) -> Path:
        """What the cells of a batch released; older versions did not keep it."""
        return self.path / "parts" / f"{batch.name}.ledgers.json.gz"

    def checkpoints(self, batch: Batch) -> Path:
        """Where a batch keeps its checkpoints."""
        return self.path / "checkpoints" / batch.name

    def pulse(self, batch: Batch) -> Path:
        """A sign of life of a batch at work."""
        return self.path / "running" / f"{batch.name}.json"

    def look(self, batch: Batch) -> tuple[dict[str, Any] | None, str]:
        """The receipt of a batch whose files are there and sound, or what is wrong with them; nothing is touched.

        Neither of the two: the batch is not finished, and nothing is wrong.
        """
        try:
            receipt: dict[str, Any] = json.loads(self.receipt(batch).read_text(encoding="utf-8"))
            cells = {(cell["point"], cell["trial"]) for cell in receipt["cells"]}
            if cells != set(product(batch.points, batch.trials)) or not _is_sound(receipt):
                return None, f"`parts/{self.receipt(batch).name}` is damaged"
        except FileNotFoundError:
            return None, f"`parts/{self.receipt(batch).name}` is missing" if self.part(batch).exists() else ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None, f"`parts/{self.receipt(batch).name}` is damaged"
        problem = self.problem_of(self.part(batch), receipt["sha256"])
        if not problem and "ledgers_sha256" in receipt:
            problem = self.problem_of(self.ledgers(batch), receipt["ledgers_sha256"])
        return (None, problem) if problem else (receipt, "")

    def problem_of(self, path: Path, sha256: str) -> str:
        """What is wrong with a file of the study; empty if it has this SHA-256."""
        name = path.relative_to(self.path).as_posix()
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                return f"`{name}` is not a file"
            return "" if digest(path) == sha256 else f"`{name}` is damaged"
        except FileNotFoundError:
            return f"`{name}` is missing"
        except OSError as error:
            return f"`{name}` cannot be read ({in_words(error)})"

    def finished(self, batch: Batch) -> dict[str, Any] | None:
        """The receipt of a batch whose files are there and sound; a damaged part is put aside and done again."""
        receipt, problem = self.look(batch)
        if "damaged" in problem:
            self.receipt(batch).unlink(missing_ok=True)
            if self.part(batch).exists():
                self.part(batch).rename(self.part(batch).with_suffix(".damaged"))
        return receipt


def run_batch(
    plan: Plan,
    batch: Batch,
    folder: Folder,
    *,
    device: str = "auto",
    every_rounds: int = 10,
    every_seconds: float = 60.0,
    heard: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run a batch from its last checkpoint to its part of the results.

    Args:
        heard: hears rounds done and rounds in all.
        should_stop: asked after every round; if so, a checkpoint is written and ``Stopped`` is raised.
    """
    begin = time.time()
    simulations = open_batch(plan, batch, device)
    checkpoints = Checkpoints(folder.checkpoints(batch))
    logs = checkpoints.restore(simulations)
    earlier = sum(log.seconds for log in logs.values())
    rounds = plan.config(batch.points[0]).system.rounds
    groups = trained_alike(simulations)
    saved_at = time.monotonic()

    def done() -> int:  # a cell that diverged is over: the others say how far its group is
        return sum(min(_rounds_done(logs[key], rounds) for key in group) for group in groups)

    saved = done()

    def after_round() -> None:
        nonlocal saved, saved_at
        now = done()
        if heard:
            heard(now, rounds * len(groups))
        due = now - saved >= every_rounds or time.monotonic() - saved_at >= every_seconds
        stop = should_stop()
        if stop or (due and now < rounds * len(groups)):
            _try_checkpoint(checkpoints, batch.name, now, logs)
            saved, saved_at = now, time.monotonic()
        if stop:
            raise Stopped

    for log in logs.values():  # so that a checkpoint finds a state in all of them
        if log.current is None and not log.states:
            log.current = log.simulations[0].init()
    for group in groups:
        open_ones = {key: simulation for key, simulation in group.items() if not logs[key].states}
        if open_ones:
            run_together(open_ones, logs, after_round=after_round)
    write_part(plan, batch, folder, simulations, logs, earlier + time.time() - begin)
    shutil.rmtree(folder.checkpoints(batch), ignore_errors=True)


def open_batch(plan: Plan, batch: Batch, device: str) -> dict[str, Simulation]:
    """The simulations of a batch by `point/scheme`; tasks, samples and radios are shared where they are the same."""
    where = pick_device(device)
    configs = {point: plan.config(point).replace({"engine.device": where.type}) for point in batch.points}
    first = configs[batch.points[0]]
    task = open_task(first, batch.trials, read_samples(first, where))
    require_memory([memories_of(config, len(batch.trials), task.spec.dim) for config in configs.values()])
    radios: dict[str, Radio] = {}
    simulations = {}
    for point, config in configs.items():
        # Channels and combiners do not depend on the power: what differs in nothing else shares them.
        drawn = config.channel.model_copy(update=dict.fromkeys(("power_w", "power_dbm", "snr_db")))
        key = repr((drawn, config.scheme.model_copy(update={"names": ()})))
        if key not in radios:
            radios[key] = open_radio(config, batch.trials, where)
        radio = radios[key].at(config)
        for scheme in config.scheme.names:
            simulations[f"{point}/{scheme}"] = open_simulation(config, scheme, task, radio)
    return simulations


def read_samples(config: Config, where: torch.device) -> Samples:
    """The samples of a configuration, as they were read before where they were."""
    learning = config.learning
    return _samples(learning.dataset, learning.data_dir, learning.features, where, learning.declared)


def write_part(
    plan: Plan,
    batch: Batch,
    folder: Folder,
    simulations: dict[str, Simulation],
    logs: dict[str, Log],
    seconds: float,
) -> None:
    """Write the rows and the ledgers of a batch, and then the receipt that makes them count."""
    rows: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    ledgers: dict[Cell, Ledger] = {}
    for key, log in logs.items():
        point = int(key.split("/")[0])
        result = log.result(perks=False)
        axes = {key: plan.points[point].get(key) for key in plan.study.axes}
        rows += [{**axes, "point": point, **asdict(record)} for record in result.records]
        scheme = log.simulations[0].scheme.name
        for row, trial in enumerate(batch.trials):
            cells.append({"point": point, "scheme": scheme, "trial": trial, "status": log.status})
            cells[-1] |= {"message": log.message, "accountant": result.accountant}
            ledgers[point, scheme, trial] = result.ledgers[row] if row < len(result.ledgers) else Ledger()
            cells[-1]["rounds"] = sum(event.round >= 0 for event in ledgers[point, scheme, trial].events)
    path = folder.part(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=part_schema(plan)), buffer, write_page_checksum=True)
    write_bytes(path, buffer.getvalue().to_pybytes())
    write_bytes(folder.ledgers(batch), pack(ledgers))
    first = next(iter(simulations.values()))
    receipt = {
        "format": PART_FORMAT,
        "sha256": digest(path),
        "ledgers_sha256": digest(folder.ledgers(batch)),
        "rows": len(rows),
        "cells": cells,
        "seconds": seconds,
        "provenance": {
            **provenance_of(first.task.inputs.device, first),
            "seed": plan.base.system.seed,
            **({} if plan.begun_with is None else {"begun_with": dict(plan.begun_with)}),
        },
        "config_sha256": {str(point): plan.config(point).sha256() for point in batch.points},
    }
    write_text(folder.receipt(batch), json.dumps({**receipt, "checksum": _checksum(receipt)}))


def part_schema(plan: Plan) -> pa.Schema:
    """Columns of the results: every axis, the number of the configuration, and a record."""
    axes = [(key, _kind([p[key] for p in plan.points if p.get(key) is not None])) for key in plan.study.axes]
    return pa.schema([*axes, ("point", pa.int64()), *record_schema()])


def _kind(values: list[Any]) -> pa.DataType:
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.int64()
    return pa.float64() if all(isinstance(value, int | float) for value in values) else pa.string()


def _rounds_done(log: Log, rounds: int) -> int:
    if log.status != "done" or log.states:
        return rounds
    return 0 if log.current is None else log.current.round


def _try_checkpoint(checkpoints: Checkpoints, name: str, step: int, logs: dict[str, Log]) -> None:
    """A disk that is full costs the checkpoint, not the training; the one before stays."""
    try:
        checkpoints.save(step, logs)
    except OSError as error:
        logging.getLogger("airfl").warning("no checkpoint at round %d of %s: %s", step, name, about_file(error))


def _is_sound(receipt: dict[str, Any]) -> bool:
    """Whether a receipt is as it was written."""
    if receipt["format"] == NO_CHECKSUM:
        return not {"checksum", "ledgers_sha256"} & set(receipt)
    rest = {key: value for key, value in receipt.items() if key != "checksum"}
    fits = receipt["format"] == (PART_FORMAT if "ledgers_sha256" in receipt else NO_LEDGERS)
    return fits and bool(receipt["checksum"] == _checksum(rest))


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file, which may be larger than memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
