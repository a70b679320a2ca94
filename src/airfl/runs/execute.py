"""Drive the simulator over schemes and trials; clocks and interruptions live here."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.devices.precision import resolve_precision
from airfl.errors import InputError
from airfl.rounds import RoundRecord
from airfl.runs.result import Result
from airfl.runs.together import Log, groups_of, run_together
from airfl.simulate import Simulation, open_simulation
from airfl.transceiver import open_radio
from airfl.version import __version__


class Progress(Protocol):
    """Hears about every round."""

    def start(self, scheme: str, rounds: int) -> None:
        """A scheme begins; ``rounds`` counts the rounds of all its batches of trials."""
        ...

    def round(self, scheme: str, records: Sequence[RoundRecord]) -> None:
        """A round of one batch of trials is done."""
        ...


def pick_device(wanted: str) -> torch.device:
    """Resolve ``auto``; refuse a device that is not there."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise InputError("device `cuda` was asked for, but PyTorch finds no CUDA GPU here; use --device cpu")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(wanted)
    except RuntimeError:
        raise InputError(f"no device named `{wanted}`; known: auto, cpu, cuda") from None


def run(config: Config, *, progress: Progress | None = None, trials_per_batch: int | None = None) -> Result:
    """Run every scheme of the configuration and return the result; nothing is written.

    Args:
        progress: hears about every round.
        trials_per_batch: how many trials are simulated together; default all. Changes memory and rounding only.

    An interruption (Ctrl-C) or a divergence ends the run early: the result holds what was recorded, its status says so.
    """
    device = pick_device(config.engine.device)
    trials = range(config.system.trials)
    size = len(trials) if trials_per_batch is None else trials_per_batch
    if size < 1:
        raise InputError(f"`trials_per_batch` must be at least 1; got {size}")
    batches = [tuple(trials[start : start + size]) for start in range(0, len(trials), size)]
    samples = load_samples(config, device)
    tasks = [open_task(config, batch, samples) for batch in batches]
    # Every scheme is joined before the first round is trained, so that bad input costs no training time.
    radios = [open_radio(config, batch) for batch in batches]
    simulations: dict[str, list[Simulation]] = {
        name: [open_simulation(config, name, task, radio) for task, radio in zip(tasks, radios, strict=True)]
        for name in config.scheme.names
    }
    logs = {name: Log(group) for name, group in simulations.items()}
    begin = time.perf_counter()
    if progress:
        for name in logs:
            progress.start(name, config.system.rounds * len(batches))
    for number in range(len(batches)):
        current = {name: group[number] for name, group in simulations.items() if logs[name].status == "done"}
        try:
            for group in groups_of(current):
                run_together(group, logs, progress.round if progress else None)
        except KeyboardInterrupt:
            for log in logs.values():
                log.interrupt()
            break
    schemes = {name: log.result() for name, log in logs.items()}
    first = simulations[config.scheme.names[0]][0]
    # Schemes that fix their own accountant do not speak for the run, unless there are no others.
    schedules = [group[0].schedule for group in simulations.values()]
    schedules.sort(key=lambda schedule: (schedule.scheme.accountant is not None, not schedule.scheme.keeps_budget))
    provenance = provenance_of(device, first)
    starts = [log.first_round for log in logs.values() if log.first_round is not None]
    provenance["seconds_to_first_round"] = round(min(starts) - begin, 3) if starts else None
    return Result(config, first.schedule.dim, schemes, provenance, schedules[0].promise.accountant)


@cache
def source_sha256() -> str:
    """Which code this is, whatever its version says: a hash over the package's Python files, 12 digits."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def provenance_of(device: torch.device, simulation: Simulation) -> dict[str, Any]:
    """What a result was computed with."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "airfl": __version__,
        "source": source_sha256(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "engine": simulation.engine.name,
        "precision": resolve_precision(simulation.config.engine.precision, device),
        "model_parameters": simulation.schedule.dim,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
