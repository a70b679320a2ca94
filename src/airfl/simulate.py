"""One round, the stages in order. This file is the map of the package.

draw -> design -> train -> encode -> air -> decode -> update -> ledger, for all trials of a batch at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl import rounds
from airfl.air import EquivalentUplink, Setting, SignalUplink, Uplink
from airfl.config import Config
from airfl.devices import Task, UpdateBlock
from airfl.engines import Engine, choose_engine
from airfl.rounds import Crew, Gathered, Intervention, Member, Memory, RoundRecord, Schedule, State, Step, Training
from airfl.schemes import Scheme, scheme_named
from airfl.transceiver import Radio, open_radio


@dataclass(frozen=True)
class Simulation:
    """One scheme on a batch of trials: ``init`` a state, then ``step`` it round by round; its crew trains devices."""

    config: Config
    scheme: Scheme
    task: Task
    schedule: Schedule
    engine: Engine
    uplink: Uplink
    start: torch.Tensor
    crew: Crew = rounds.train_here

    def init(self) -> State:
        """State before the first round."""
        memory = rounds.no_memory(self.config, self.scheme, len(self.start), self.schedule.dim)
        return State(0, self.start, (self.schedule.promise.opened,) * len(self.task.trials), memory=memory)

    def step(self, state: State) -> tuple[State, list[RoundRecord]]:
        """Run one round: the state after it, and one record per trial."""
        return self.record(self.advance(state))

    def advance(self, state: State, intervene: Intervention | None = None) -> Step:
        """The round itself.

        Args:
            intervene: replaces updates before they are clipped; an audit plants its canaries here.
        """
        (step,) = advance_together([self], [state], intervene)
        return step.checked(self.scheme)

    def conclude(self, state: State, gathered: Gathered, setting: Setting) -> Step:
        """Decode, update the models and book the round."""
        schedule, received = self.schedule, gathered.received
        estimate = rounds.decoded(self.scheme.decoder, schedule, setting, received)
        factor = rounds.update_factor(self.config, schedule, state.round)
        models, velocity, average = rounds.server_step(self.config, state, estimate, factor, self.start)
        # Booked before anything else can go wrong: what was sent was heard.
        spread = rounds.spread_of(schedule, setting, gathered.watch, received)
        booked = rounds.book(schedule, setting, self.task.max_local_steps, spread)
        ledgers = tuple(entry.on(ledger) for ledger, entry in zip(state.ledgers, booked, strict=True))
        after = State(state.round + 1, models, ledgers, velocity, average, gathered.memory, spread)
        return Step(after, gathered.watch, setting)

    def record(self, step: Step) -> tuple[State, list[RoundRecord]]:
        """Test where it is time to, and write down one row per trial."""
        after, last = step.after, step.after.round == self.config.system.rounds
        due = last or after.round % self.config.engine.eval_every == 0
        tested = (self.task.evaluate(after.released), self.task.measure(after.released, last)) if due else (None, None)
        trained = None
        if self.config.engine.train_loss == "global":
            trained = self.task.evaluate(after.released, "train")[1] if due else np.full(len(after.models), math.nan)
        seen = step.after.ledgers, step.watch, *tested, trained
        return after, rounds.record_round(self.config, self.schedule, step.setting, *seen)

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, list[RoundRecord]]]:
        """Run the rounds that are left, yielding after each. ``release`` comes before a final model is handed on."""
        state = state or self.init()
        while state.round < self.config.system.rounds:
            state, records = self.step(state)
            yield state, records

    def release(self, state: State) -> torch.Tensor:
        """Return the models of a finished state; refuse with ``BudgetError`` where a ledger exceeds the budget."""
        for row, ledger in enumerate(state.ledgers):
            self.schedule.promise.check(ledger)
            if self.scheme.encoder.cover != "nothing":
                rounds.check_views(self.schedule, row, ledger)
        return state.released

    def member(self, setting: Setting, memory: Memory) -> Member:
        """The scheme in one round, as local training meets it."""
        schedule, public = self.schedule, self.schedule.public(setting)
        return Member(self.scheme.encoder, setting, public, schedule.clip_norm, memory, self.uplink, schedule.dim)

    def heard(self, setting: Setting, blocks: Iterable[UpdateBlock]) -> torch.Tensor:
        """Δ̂, [trials, d], of updates that are given rather than trained: encoded and sent as trained ones are."""
        sending = self.member(setting, self.init().memory).sending()
        return self.uplink.receive((sending.encode(block) for block in blocks), self.schedule.dim, setting)


def advance_together(
    simulations: Sequence[Simulation], states: Sequence[State], intervene: Intervention | None = None
) -> list[Step]:
    """One round of several schemes with the same task and active devices: one call of the engine trains them all."""
    first, t, task = simulations[0], states[0].round, simulations[0].task
    settings = [rounds.settled(s.schedule, state) for s, state in zip(simulations, states, strict=True)]  # draw, design
    pairs = list(zip(simulations, settings, states, strict=True))
    lanes = rounds.shared_lanes([state.models for state in states])
    models = torch.cat([states[lane.owners[0]].models[lane.first : lane.last] for lane in lanes])
    members = [simulation.member(setting, state.memory) for simulation, setting, state in pairs]
    training = Training(first.engine, task, t, first.schedule.active_in(t), lanes, models, members, intervene)
    return [
        simulation.conclude(state, gathered, setting)
        for (simulation, setting, state), gathered in zip(pairs, first.crew(training), strict=True)
    ]


def train_alike(first: Simulation, other: Simulation) -> bool:
    """Whether two schemes train the same devices on the same data, so that they may do it together."""
    return first.task is other.task and np.array_equal(first.schedule.active, other.schedule.active)


def open_simulation(config: Config, wanted: str | Scheme, task: Task, radio: Radio | None = None) -> Simulation:
    """Join the parts of a scheme for a batch of trials; the schemes of a run share the batch's task and radio."""
    steps = [task.max_local_steps(row) for row in range(len(task.trials))]
    local_steps = [number for number in steps if number is not None] or None  # all of them, or none
    scheme = wanted if isinstance(wanted, Scheme) else scheme_named(wanted, config)
    radio = radio or open_radio(config, task.trials)
    schedule = rounds.arrange(config, scheme, radio, task.spec.dim, local_steps, task.released)
    whole = schedule.over_air and config.scheme.uplink == "signal"
    uplink = (SignalUplink if whole else EquivalentUplink)(config.system.seed, task.trials)
    start = task.initial_models()
    rounds.check_diameter(config.learning.domain_diameter, start)
    engine = choose_engine(config, task.spec, task.inputs.device, task.inputs)
    return Simulation(config, scheme, task, schedule, engine, uplink, start)
