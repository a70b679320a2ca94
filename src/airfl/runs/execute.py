"""Drive the simulator over schemes and trials; clocks and interruptions live here."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import torch

from airfl.bookkeeping import RoundRecord
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.errors import DivergedError, InputError
from airfl.privacy import BudgetError
from airfl.runs.result import Result, SchemeResult, Status
from airfl.simulate import Simulation, State, open_simulation
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
    simulations: dict[str, list[Simulation]] = {
        name: [open_simulation(config, name, task) for task in tasks] for name in config.scheme.names
    }
    schemes: dict[str, SchemeResult] = {}
    for name, group in simulations.items():
        schemes[name] = _run_scheme(name, group, progress)
        if schemes[name].status == "interrupted":
            break
    first = simulations[config.scheme.names[0]][0]
    # Schemes that fix their own accountant do not speak for the run, unless there are no others.
    plans = [group[0].plan for group in simulations.values()]
    plans.sort(key=lambda plan: (plan.scheme.accountant is not None, not plan.scheme.keeps_budget))
    return Result(config, first.plan.dim, schemes, _provenance(device, first), plans[0].promise.accountant)


def _run_scheme(name: str, group: Sequence[Simulation], progress: Progress | None) -> SchemeResult:
    records: list[RoundRecord] = []
    states: list[State] = []
    status: Status = "done"
    message = ""
    if progress:
        progress.start(name, sum(simulation.config.system.rounds for simulation in group))
    begin = time.perf_counter()
    for simulation in group:
        state = simulation.init()
        try:
            for state, rows in simulation.rounds():  # noqa: B007 - the last state is needed after the loop
                records.extend(rows)
                if progress:
                    progress.round(name, rows)
            simulation.release(state)
        except KeyboardInterrupt:
            status, message = "interrupted", "stopped by the user"
        except DivergedError as error:
            status, message = "diverged", str(error)
            state = error.state if isinstance(error.state, State) else state
        except BudgetError as error:
            status, message = "refused", str(error)
        states.append(state)
        if status != "done":
            break
    return SchemeResult(
        records=tuple(records),
        ledgers=tuple(ledger for state in states for ledger in state.ledgers),
        models=torch.cat([state.models for state in states]).cpu() if status == "done" else None,
        never_heard=tuple(count for simulation in group for count in simulation.plan.never_heard()),
        perks=tuple(item for simulation in group for item in simulation.plan.perks()),
        status=status,
        message=message,
        seconds=time.perf_counter() - begin,
        accountant=group[0].plan.promise.accountant,
        observer=group[0].plan.promise.observer,
    )


def _provenance(device: torch.device, simulation: Simulation) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "airfl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "engine": simulation.engine.name,
        "model_parameters": simulation.plan.dim,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
