"""Drive the simulator over schemes and trials; clocks and interruptions live here."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Protocol, runtime_checkable

import torch

from airfl.catalogue import no_such
from airfl.config import Config
from airfl.devices import Shelf, Task, open_task
from airfl.engines import precision_of
from airfl.errors import InputError, LostError
from airfl.imports import code_identity, require_here
from airfl.memory import needs_of, require_memory
from airfl.rounds import RoundRecord
from airfl.runs.result import Result
from airfl.runs.sameness import processor
from airfl.runs.signals import Interrupts
from airfl.runs.together import Log, run_together, trained_alike
from airfl.runs.unfinished import Keeper, sums_of
from airfl.shards import HearsShards, Shards, require_sums
from airfl.simulate import Simulation, open_simulation


@runtime_checkable
class HearsDesign(Protocol):
    """A progress that hears, before the first round, about blocks whose combiners are designed."""

    def design(self, done: int, total: int) -> None:
        """So many blocks of one batch of trials are designed."""
        ...


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
        raise InputError(no_such("device", wanted, ("auto", "cpu", "cuda"))) from None


def run(
    config: Config,
    *,
    progress: Progress | None = None,
    trials_per_batch: int | None = None,
    keeper: Keeper | None = None,
    interrupts: Interrupts | None = None,
    shards: Shards | None = None,
    shelf: Shelf | None = None,
) -> Result:
    """Run every scheme of the configuration and return the result; only a keeper writes anything.

    Args:
        shelf: has the samples, where several runs share them or somebody has begun to read them.
        shards: trains devices elsewhere; the bits do not depend on how many there are.
        progress: hears about every round.
        trials_per_batch: how many trials are simulated together; default all. Changes memory and rounding only.
        keeper: keeps checkpoints, and has those to go on from; all trials are simulated together then.
        interrupts: settled when training is over, so that the result is not lost to one that comes late.

    An interruption (Ctrl-C) or a divergence ends the run early: the result holds what was recorded, its status says so.
    """
    device = pick_device(config.engine.device)
    simulations = _open(config, device, trials_per_batch, progress, shelf)
    if shards is not None:
        for group in simulations.values():
            require_sums(group[0].uplink)
        crew = replace(shards, heard=progress.shards) if isinstance(progress, HearsShards) else shards
        simulations = {name: [replace(one, crew=crew) for one in group] for name, group in simulations.items()}
        simulations = _of_one_precision(simulations)
    batches = len(simulations[config.scheme.names[0]])
    if keeper is not None and batches > 1:
        raise InputError("checkpoints go with all trials together; leave out `trials_per_batch`")
    logs = {name: Log(group) for name, group in simulations.items()}
    if keeper is not None:
        logs = keeper.restore({name: group[0] for name, group in simulations.items()})
    begin = time.perf_counter()
    if progress:
        _tell(progress, logs, config.system.rounds * batches)
    try:
        try:
            for number in range(batches):
                _train({name: group[number] for name, group in simulations.items()}, logs, progress, keeper, interrupts)
            if keeper is not None:
                keeper.conclude(logs)
        finally:
            if interrupts is not None:
                interrupts.settle()
    except LostError:
        if keeper is not None and any(log.records for log in logs.values()):
            keeper.save()
        raise
    except KeyboardInterrupt:
        if keeper is not None:
            keeper.save()
        for log in logs.values():
            log.interrupt()
    result = _result(config, device, logs, begin)
    return result if keeper is None else replace(result, provenance={**result.provenance, **keeper.provenance()})


def _of_one_precision(simulations: dict[str, list[Simulation]]) -> dict[str, list[Simulation]]:
    """The same with tasks that name their precision: a shard on another machine must not pick its own."""
    named: dict[int, Task] = {}
    for one in (one for group in simulations.values() for one in group):
        task = one.task
        precision = precision_of(one.engine, task.config, task.inputs.device)
        if id(task) not in named:
            named[id(task)] = replace(task, config=task.config.replace({"engine.precision": precision}))
    return {name: [replace(one, task=named[id(one.task)]) for one in group] for name, group in simulations.items()}


def _result(config: Config, device: torch.device, logs: Mapping[str, Log], begin: float) -> Result:
    schemes = {name: log.result() for name, log in logs.items()}
    first = logs[config.scheme.names[0]].simulations[0]
    # Schemes that fix their own accountant do not speak for the run, unless there are no others.
    schedules = [log.simulations[0].schedule for log in logs.values()]
    schedules.sort(key=lambda schedule: (schedule.scheme.accountant is not None, not schedule.scheme.keeps_budget))
    provenance = provenance_of(device, first)
    starts = [log.first_round for log in logs.values() if log.first_round is not None]
    provenance["seconds_to_first_round"] = round(min(starts) - begin, 3) if starts else None
    return Result(config, first.schedule.dim, schemes, provenance, schedules[0].promise.accountant, first.task.chance)


def _open(
    config: Config,
    device: torch.device,
    trials_per_batch: int | None,
    progress: Progress | None,
    shelf: Shelf | None = None,
) -> dict[str, list[Simulation]]:
    """Join every scheme before the first round is trained, so that bad input costs no training time."""
    size = config.system.trials if trials_per_batch is None else trials_per_batch
    if size < 1:
        raise InputError(f"`trials_per_batch` must be at least 1; got {size}")
    require_here(config.imports)
    require_memory(needs_of(config, min(size, config.system.trials)))
    trials = range(config.system.trials)
    batches = [tuple(trials[start : start + size]) for start in range(0, len(trials), size)]
    shelf = shelf or Shelf()
    samples = shelf.samples(config, device)
    tasks = [open_task(config, batch, samples) for batch in batches]
    hears = progress.design if isinstance(progress, HearsDesign) else None
    radios = [shelf.radio(config, batch, device, hears) for batch in batches]
    return {
        name: [open_simulation(config, name, task, radio) for task, radio in zip(tasks, radios, strict=True)]
        for name in config.scheme.names
    }


def _train(
    simulations: Mapping[str, Simulation],
    logs: Mapping[str, Log],
    progress: Progress | None,
    keeper: Keeper | None,
    interrupts: Interrupts | None,
) -> None:
    """What is left of one batch of trials."""

    def after_round() -> None:
        if keeper is not None:
            keeper.after_round(logs)
        if interrupts is not None and interrupts.asked:  # an exception inside a destructor is lost
            raise KeyboardInterrupt

    over = {name for name, log in logs.items() if log.status != "done" or len(log.states) == len(log.simulations)}
    for group in trained_alike({name: simulation for name, simulation in simulations.items() if name not in over}):
        run_together(group, logs, progress.round if progress else None, after_round)


def _tell(progress: Progress, logs: Mapping[str, Log], rounds: int) -> None:
    """What is to come, and what earlier sittings have done of it."""
    for name in logs:
        progress.start(name, rounds)
    for name, log in logs.items():
        for _, records in groupby(log.records, key=lambda record: record.round):
            progress.round(name, tuple(records))


def provenance_of(device: torch.device, simulation: Simulation) -> dict[str, Any]:
    """What a result was computed with."""
    return {
        **code_identity(),
        "python": platform.python_version(),
        "device": f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "engine": simulation.engine.name,
        "precision": precision_of(simulation.engine, simulation.config, device),
        "sums": sums_of(simulation),
        "model_parameters": simulation.schedule.dim,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
