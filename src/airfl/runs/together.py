"""Several schemes or configurations in step: one call of the engine trains them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from airfl.errors import DivergedError
from airfl.privacy import BudgetError
from airfl.rounds import RoundRecord, State
from airfl.runs.result import SchemeResult, Status
from airfl.simulate import Simulation, advance_together, train_alike

Key = TypeVar("Key")


class Log:
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

    @property
    def state(self) -> State:
        """Where the batch that is at work stands."""
        assert self.current is not None
        return self.current

    def close(self) -> None:
        """The batch that is at work is over, and nobody has to remember anything."""
        if self.current is not None:
            self.states.append(replace(self.current, memory=None))
        self.current = None

    def stop(self, status: Status, message: str) -> None:
        """End the scheme before its time."""
        self.status, self.message = status, message
        self.close()

    def interrupt(self) -> None:
        """The user stopped the run: whatever is not complete ends here."""
        if self.status == "done" and (self.current is not None or len(self.states) < len(self.simulations)):
            self.stop("interrupted", "stopped by the user")

    def result(self, perks: bool = True) -> SchemeResult:
        """All batches of trials together; the perk test takes time with some accountants, and may be left out."""
        plans = [simulation.schedule for simulation in self.simulations]
        models = torch.cat([state.released for state in self.states]).cpu() if self.status == "done" else None
        return SchemeResult(
            records=tuple(sorted(self.records, key=lambda row: (row.trial, row.round))),
            ledgers=tuple(ledger for state in self.states for ledger in state.ledgers),
            models=models,
            never_heard=tuple(count for plan in plans for count in plan.never_heard()),
            perks=tuple(item for plan in plans for item in plan.perks()) if perks else (),
            status=self.status,
            message=self.message,
            seconds=self.seconds,
            accountant=plans[0].promise.accountant,
            observer=plans[0].promise.observer,
            transmitting=plans[0].normaliser,
            cover=tuple(shield.used for plan in plans for shield in plan.shields),
            delta=plans[0].promise.delta,
            neighbours=plans[0].promise.neighbours,
        )


def trained_alike(simulations: Mapping[Key, Simulation]) -> list[dict[Key, Simulation]]:
    """Schemes that may train together."""
    groups: list[dict[Key, Simulation]] = []
    for name, simulation in simulations.items():
        for group in groups:
            if train_alike(next(iter(group.values())), simulation):
                group[name] = simulation
                break
        else:
            groups.append({name: simulation})
    return groups


def run_together(
    simulations: Mapping[Key, Simulation],
    logs: Mapping[Key, Log],
    heard: Callable[[Key, Sequence[RoundRecord]], None] | None = None,
    after_round: Callable[[], None] | None = None,
) -> None:
    """The rounds that are left of one batch of trials, for schemes that train alike.

    Args:
        heard: hears the records of every round of every scheme.
        after_round: called when all of them are written down; a checkpoint belongs here.
    """
    alive = {key: simulation for key, simulation in simulations.items() if logs[key].status == "done"}
    for key, simulation in alive.items():
        logs[key].current = logs[key].current or simulation.init()
    rounds = next(iter(simulations.values())).config.system.rounds
    while alive and logs[next(iter(alive))].state.round < rounds:
        begin = time.perf_counter()
        steps = advance_together(list(alive.values()), [logs[key].state for key in alive])
        for key, step in zip(alive, steps, strict=True):
            logs[key].current = step.after  # all are booked before anything can interrupt
        for (key, simulation), step in zip(list(alive.items()), steps, strict=True):
            try:
                _, rows = simulation.record(step.checked(simulation.scheme))
            except DivergedError as error:
                logs[key].stop("diverged", str(error))
                del alive[key]
                continue
            logs[key].records.extend(rows)
            logs[key].first_round = logs[key].first_round or time.perf_counter()
            if heard:
                heard(key, rows)
        for key in simulations:
            logs[key].seconds += (time.perf_counter() - begin) / len(simulations)
        if after_round:
            after_round()
    for key, simulation in alive.items():
        try:
            simulation.release(logs[key].state)
        except BudgetError as error:
            logs[key].stop("refused", str(error))
        logs[key].close()
