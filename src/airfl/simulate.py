"""One round, the stages in order. This file is the map of the package.

draw -> design -> train -> clip -> air -> update -> ledger, for all trials of a batch at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.air import EquivalentUplink, Setting, SignalUplink, Uplink
from airfl.config import Config
from airfl.devices import Task, UpdateBlock
from airfl.engines import Engine, choose_engine
from airfl.errors import DivergedError, InputError
from airfl.privacy import Ledger
from airfl.rounds import (
    RoundRecord,
    Schedule,
    Sending,
    Watch,
    arrange,
    book,
    check_views,
    gradient_variance,
    met_by,
    record_round,
    shared_lanes,
    update_factor,
)
from airfl.schemes import Scheme, scheme_named
from airfl.transceiver import Radio, open_radio

#: Replaces updates that were trained.
Intervention = Callable[[UpdateBlock], UpdateBlock]


@dataclass(frozen=True)
class State:
    """Where a batch of trials stands: all that is needed to go on from here.

    Attributes:
        memory: what devices remember from round to round, [trials, n, d]; None for an encoder without memory.
    """

    round: int
    models: torch.Tensor
    ledgers: tuple[Ledger, ...]
    velocity: torch.Tensor | None = None
    average: torch.Tensor | None = None
    memory: torch.Tensor | None = None

    @property
    def released(self) -> torch.Tensor:
        """The models that are tested and handed on: the running mean, or the last ones."""
        return self.models if self.average is None else self.average


@dataclass(frozen=True)
class Step:
    """One round that was run: the state after it, what was seen of the updates, and its setting."""

    after: State
    watch: Watch
    setting: Setting


@dataclass(frozen=True)
class Simulation:
    """One scheme on a batch of trials: ``init`` a state, then ``step`` it round by round."""

    config: Config
    scheme: Scheme
    task: Task
    schedule: Schedule
    engine: Engine
    uplink: Uplink
    start: torch.Tensor

    def init(self) -> State:
        """State before the first round."""
        memory = None
        if self.scheme.encoder.remembers:
            trials, dim = self.start.shape
            memory = torch.zeros(trials, self.config.system.num_devices, dim)
        return State(0, self.start, tuple(Ledger() for _ in self.task.trials), memory=memory)

    def step(self, state: State) -> tuple[State, list[RoundRecord]]:
        """Run one round: the state after it, and one record per trial."""
        return self.record(self.advance(state))

    def advance(self, state: State, intervene: Intervention | None = None) -> Step:
        """The round itself.

        Args:
            intervene: replaces updates before they are clipped; an audit plants its canaries here.
        """
        (step,) = advance_together([self], [state], intervene)
        return self.checked(step)

    def checked(self, step: Step) -> Step:
        """The step, unless it met NaN or infinity: then ``DivergedError``."""
        finite = bool(torch.isfinite(step.after.models).all())
        if not bool(torch.isfinite(step.watch.losses).all()):
            if self.scheme.keeps_budget:  # whether a run stops would tell of a single device
                warnings.warn(
                    f"scheme `{self.scheme.name}`: local training met NaN or infinity on some devices, and what they "
                    "send counts as zero; look at `learning.learning_rate`",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                finite = False
        if not finite:
            raise DivergedError(
                f"training diverged: scheme `{self.scheme.name}` met NaN or infinity in round {step.after.round}; "
                "look at `learning.learning_rate`, `learning.server_step` and the noise that `channel.power_w` leaves",
                step.after,
            )
        return step

    def record(self, step: Step) -> tuple[State, list[RoundRecord]]:
        """Test where it is time to, and write down one row per trial."""
        after, done = step.after, step.after.round
        due = done == self.config.system.rounds or done % self.config.engine.eval_every == 0
        tested = self.task.evaluate(after.released) if due else None
        trained = None
        if self.config.engine.train_loss == "global":
            trained = self.task.evaluate(after.released, "train")[1] if due else np.full(len(after.models), math.nan)
        rows = record_round(self.config, self.schedule, step.setting, after.ledgers, step.watch, tested, trained)
        return after, rows

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
            if self.scheme.encoder.own_noise:
                check_views(self.schedule, row, ledger)
        return state.released

    def heard(self, setting: Setting, blocks: Iterable[UpdateBlock]) -> torch.Tensor:
        """Δ̂, [trials, d], of updates that are given rather than trained: encoded and sent as trained ones are."""
        sending = Sending(self.scheme.encoder, setting, self.schedule.clip_norm, self.init().memory)
        return self.uplink.receive((sending.encode(block) for block in blocks), self.schedule.dim, setting)

    def _conclude(self, state: State, received: torch.Tensor, setting: Setting, sending: Sending) -> Step:
        """Update the models and book the round."""
        t, schedule, learning = state.round, self.schedule, self.config.learning
        estimate = self.scheme.decoder.decode(received, schedule.clip_norm, schedule.normaliser)
        velocity = average = None
        step = estimate
        if learning.server_momentum:
            step = velocity = (
                estimate if state.velocity is None else learning.server_momentum * state.velocity + estimate
            )
        models = self._project(state.models - update_factor(self.config, schedule, t) * step)
        if learning.model_average:  # an even mean of the first models, until the window is full
            kept = min(learning.model_average, t / (t + 1))
            average = models if state.average is None else kept * state.average + (1.0 - kept) * models
        # Booked before anything else can go wrong: what was sent was heard.
        spread = None
        if self.config.privacy.estimate_gradient_noise:
            spread = gradient_variance(schedule, setting, sending.watch, received)
        events = book(schedule, setting, self.task.max_local_steps, spread)
        ledgers = tuple(ledger.append(event) for ledger, event in zip(state.ledgers, events, strict=True))
        return Step(State(t + 1, models, ledgers, velocity, average, sending.memory), sending.watch, setting)

    def _project(self, models: torch.Tensor) -> torch.Tensor:
        """Π_D: onto the ball of diameter D around θ⁰, when a diameter is configured."""
        diameter = self.config.learning.domain_diameter
        if diameter is None:
            return models
        offset = (models - self.start).double()
        length = torch.linalg.vector_norm(offset, dim=1, keepdim=True)
        # A hair inside, so that the enforced diameter holds after rounding θ to float32 too.
        rounding = torch.finfo(torch.float32).eps * torch.linalg.vector_norm(self.start.double(), dim=1, keepdim=True)
        radius = 0.5 * diameter * (1.0 - 1e-6) - rounding
        return (self.start + offset * torch.clamp(radius / length, max=1.0)).to(models.dtype)


def advance_together(
    simulations: Sequence[Simulation], states: Sequence[State], intervene: Intervention | None = None
) -> list[Step]:
    """One round of several schemes with the same task and active devices: one call of the engine trains them all."""
    first, t, task = simulations[0], states[0].round, simulations[0].task
    settings = [simulation.schedule.setting(t) for simulation in simulations]  # draw and design
    active = first.schedule.active_in(t)
    sendings = [
        Sending(s.scheme.encoder, setting, s.schedule.clip_norm, state.memory)
        for s, setting, state in zip(simulations, settings, states, strict=True)
    ]
    receivers = [s.uplink.open(s.schedule.dim, setting) for s, setting in zip(simulations, settings, strict=True)]
    lanes = shared_lanes([state.models for state in states])
    models = torch.cat([states[lane.owners[0]].models[lane.first : lane.last] for lane in lanes])
    batches = task.batches(t, active)[[row for lane in lanes for row in range(lane.first, lane.last)]]
    for block in first.engine.train(models, batches, task.inputs, task.labels, first.config.learning.learning_rate):
        for lane in met_by(lanes, *block.trial[[0, -1]].tolist()):
            part = block.rows(lane.place, lane.end, lane.first - lane.place)
            if part is None:
                continue
            trained = part if intervene is None else intervene(part)
            for number in lane.owners:
                receivers[number].add(sendings[number].encode(trained))
    return [
        simulation._conclude(state, receiver.finish(), setting, sending)
        for simulation, state, receiver, setting, sending in zip(
            simulations, states, receivers, settings, sendings, strict=True
        )
    ]


def train_alike(first: Simulation, other: Simulation) -> bool:
    """Whether two schemes train the same devices on the same data, so that they may do it together."""
    return first.task is other.task and np.array_equal(first.schedule.active, other.schedule.active)


def open_simulation(config: Config, wanted: str | Scheme, task: Task, radio: Radio | None = None) -> Simulation:
    """Join the parts of a scheme for a batch of trials; the schemes of a run share the batch's task and radio."""
    steps = [task.max_local_steps(row) for row in range(len(task.trials))]
    local_steps = [number for number in steps if number is not None] or None  # all of them, or none
    scheme = wanted if isinstance(wanted, Scheme) else scheme_named(wanted, config)
    schedule = arrange(config, scheme, radio or open_radio(config, task.trials), task.spec.dim, local_steps)
    whole = schedule.over_air and config.scheme.uplink == "signal"
    uplink = (SignalUplink if whole else EquivalentUplink)(config.system.seed, task.trials)
    start, diameter = task.initial_models(), config.learning.domain_diameter
    smallest = 1e-3 * float(torch.linalg.vector_norm(start.double(), dim=1).max())
    if diameter is not None and diameter < smallest:
        raise InputError(
            f"`learning.domain_diameter` = {diameter:g} is too small to be enforced in float32 around a model of norm "
            f"{1e3 * smallest:.3g}; give at least {smallest:.1g}"
        )
    engine = choose_engine(config, task.spec, task.inputs.device, tuple(task.inputs.shape[1:]))
    return Simulation(config, scheme, task, schedule, engine, uplink, start)
