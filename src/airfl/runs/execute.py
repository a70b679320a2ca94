"""Drive the simulator over schemes and trials; clocks and interruptions live here."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import torch

from airfl.bookkeeping import RoundRecord
from airfl.channel import open_link
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.devices.precision import resolve_precision
from airfl.errors import DivergedError, InputError
from airfl.privacy import BudgetError
from airfl.runs.result import Result, SchemeResult, Status
from airfl.simulate import Simulation, State, advance_together, open_simulation, train_alike
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
    return torch.device(wanted)


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
    links = [open_link(config, batch) for batch in batches]
    simulations: dict[str, list[Simulation]] = {
        name: [open_simulation(config, name, task, link) for task, link in zip(tasks, links, strict=True)]
        for name in config.scheme.names
    }
    logs = {name: _Log(group) for name, group in simulations.items()}
    begin = time.perf_counter()
    if progress:
        for name in logs:
            progress.start(name, config.system.rounds * len(batches))
    for number in range(len(batches)):
        current = {name: group[number] for name, group in simulations.items() if logs[name].status == "done"}
        try:
            for group in _groups(current):
                _run_together(group, logs, progress)
        except KeyboardInterrupt:
            for log in logs.values():
                log.interrupt()
            break
    schemes = {name: log.result() for name, log in logs.items()}
    first = simulations[config.scheme.names[0]][0]
    # Schemes that fix their own accountant do not speak for the run, unless there are no others.
    plans = [group[0].plan for group in simulations.values()]
    plans.sort(key=lambda plan: (plan.scheme.accountant is not None, not plan.scheme.keeps_budget))
    provenance = _provenance(device, first)
    starts = [log.first_round for log in logs.values() if log.first_round is not None]
    provenance["seconds_to_first_round"] = round(min(starts) - begin, 3) if starts else None
    return Result(config, first.plan.dim, schemes, provenance, plans[0].promise.accountant)


class _Log:
    """What one scheme has given so far."""

    def __init__(self, simulations: Sequence[Simulation]) -> None:
        self.simulations = simulations
        self.records: list[RoundRecord] = []
        self.states: list[State] = []
        self.current: State | None = None
        self.status: Status = "done"
        self.message = ""
        self.seconds = 0.0
        self.first_round: float | None = None

    def close(self) -> None:
        """The batch that is at work is over."""
        if self.current is not None:
            self.states.append(self.current)
        self.current = None

    def stop(self, status: Status, message: str) -> None:
        """End the scheme before its time."""
        self.status, self.message = status, message
        self.close()

    def interrupt(self) -> None:
        """The user stopped the run: whatever is not complete ends here."""
        if self.status == "done" and (self.current is not None or len(self.states) < len(self.simulations)):
            self.stop("interrupted", "stopped by the user")

    def result(self) -> SchemeResult:
        """All batches of trials together."""
        plans = [simulation.plan for simulation in self.simulations]
        models = torch.cat([state.models for state in self.states]).cpu() if self.status == "done" else None
        return SchemeResult(
            records=tuple(sorted(self.records, key=lambda row: (row.trial, row.round))),
            ledgers=tuple(ledger for state in self.states for ledger in state.ledgers),
            models=models,
            never_heard=tuple(count for plan in plans for count in plan.never_heard()),
            perks=tuple(item for plan in plans for item in plan.perks()),
            status=self.status,
            message=self.message,
            seconds=self.seconds,
            accountant=plans[0].promise.accountant,
            observer=plans[0].promise.observer,
        )


def _groups(simulations: dict[str, Simulation]) -> list[dict[str, Simulation]]:
    """Schemes that may train together."""
    groups: list[dict[str, Simulation]] = []
    for name, simulation in simulations.items():
        for group in groups:
            if train_alike(next(iter(group.values())), simulation):
                group[name] = simulation
                break
        else:
            groups.append({name: simulation})
    return groups


def _run_together(simulations: dict[str, Simulation], logs: dict[str, _Log], progress: Progress | None) -> None:
    """All rounds of one batch of trials, for schemes that train alike."""
    for name, simulation in simulations.items():
        logs[name].current = simulation.init()
    alive = dict(simulations)
    while alive and any(logs[name].current.round < s.config.system.rounds for name, s in alive.items()):  # type: ignore[union-attr]
        begin = time.perf_counter()
        steps = advance_together(list(alive.values()), [logs[name].current for name in alive])  # type: ignore[misc]
        for name, step in zip(alive, steps, strict=True):
            logs[name].current = step.after  # all are booked before anything can interrupt
        for (name, simulation), step in zip(list(alive.items()), steps, strict=True):
            try:
                _, rows = simulation.record(simulation.checked(step))
            except DivergedError as error:
                logs[name].stop("diverged", str(error))
                del alive[name]
                continue
            logs[name].records.extend(rows)
            logs[name].first_round = logs[name].first_round or time.perf_counter()
            if progress:
                progress.round(name, rows)
        for name in simulations:
            logs[name].seconds += (time.perf_counter() - begin) / len(simulations)
    for name, simulation in alive.items():
        log = logs[name]
        assert log.current is not None
        try:
            simulation.release(log.current)
        except BudgetError as error:
            log.stop("refused", str(error))
        log.close()


def _provenance(device: torch.device, simulation: Simulation) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "airfl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "engine": simulation.engine.name,
        "precision": resolve_precision(simulation.config.engine.precision, device),
        "model_parameters": simulation.plan.dim,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
