"""One round, the stages in order. This file is the map of the package.

draw -> design -> train -> clip -> air -> update -> ledger, for all trials of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from airfl.air import EquivalentUplink, SignalUplink, Uplink
from airfl.bookkeeping import RoundRecord, Watch, book_round, gradient_variance, record_round, update_factor
from airfl.channel import open_link
from airfl.config import Config
from airfl.devices import Engine, Task, UpdateBlock, choose_engine, clip
from airfl.errors import DivergedError, InputError
from airfl.planning import RadioPlan, plan_rounds
from airfl.privacy import Ledger
from airfl.schemes import SCHEMES, Scheme
from airfl.transceiver import Transmission

#: Replaces updates that are about to be sent.
Intervention = Callable[[UpdateBlock], UpdateBlock]


@dataclass(frozen=True)
class State:
    """Where a batch of trials stands: all that is needed to go on from here."""

    round: int
    models: torch.Tensor
    ledgers: tuple[Ledger, ...]


@dataclass(frozen=True)
class Simulation:
    """One scheme on a batch of trials: ``init`` a state, then ``step`` it round by round."""

    config: Config
    scheme: Scheme
    task: Task
    plan: RadioPlan
    engine: Engine
    uplink: Uplink
    start: torch.Tensor

    def init(self) -> State:
        """State before the first round."""
        return State(0, self.start, tuple(Ledger() for _ in self.task.trials))

    def step(self, state: State) -> tuple[State, list[RoundRecord]]:
        """Run one round: the state after it, and one record per trial."""
        after, watch, sent = self.advance(state)
        last = after.round == self.config.system.rounds
        tested = self.task.evaluate(after.models) if last or after.round % self.config.engine.eval_every == 0 else None
        return after, record_round(self.config, self.plan, state.round, after.ledgers, watch, sent, tested)

    def advance(self, state: State, intervene: Intervention | None = None) -> tuple[State, Watch, Transmission | None]:
        """The round itself: the state after it, what was seen of the updates, and what was sent.

        Args:
            intervene: replaces clipped updates before they are sent; an audit plants its canaries here.
        """
        t, task, plan = state.round, self.task, self.plan
        reception, sent = plan.reception(t)  # draw and design
        active = plan.active_in(t)
        batches = task.batches(t, active)
        updates = self.engine.train(state.models, batches, task.inputs, task.labels, self.config.learning.learning_rate)
        watch = Watch(*active.shape)
        clipped = self._clip(updates, watch)
        if intervene is not None:
            clipped = map(intervene, clipped)
        estimate = self.uplink.receive(clipped, plan.dim, reception)
        models = self._project(state.models - update_factor(self.config, plan) * estimate)
        # Booked before anything else can go wrong: what was sent was heard.
        spread = None
        if self.config.privacy.estimate_gradient_noise:
            spread = gradient_variance(plan, t, watch, estimate)
        events = book_round(self.config, plan, t, reception.gains, sent, task.max_local_steps, spread)
        ledgers = tuple(ledger.append(event) for ledger, event in zip(state.ledgers, events, strict=True))
        after = State(t + 1, models, ledgers)
        if not bool(torch.isfinite(models).all() and torch.isfinite(watch.losses).all()):
            raise DivergedError(
                f"training diverged: scheme `{self.scheme.name}` met NaN or infinity in round {t + 1}; look at "
                "`learning.learning_rate`, `learning.server_step` and the noise that `channel.power_w` leaves",
                after,
            )
        return after, watch, sent

    def rounds(self, state: State | None = None) -> Iterator[tuple[State, list[RoundRecord]]]:
        """Run the rounds that are left, yielding after each. ``release`` comes before a final model is handed on."""
        state = state or self.init()
        while state.round < self.config.system.rounds:
            state, records = self.step(state)
            yield state, records

    def release(self, state: State) -> torch.Tensor:
        """Return the models of a finished state; refuse with ``BudgetError`` where a ledger exceeds the budget."""
        for ledger in state.ledgers:
            self.plan.promise.check(ledger)
        return state.models

    def _clip(self, blocks: Iterator[UpdateBlock], watch: Watch) -> Iterator[UpdateBlock]:
        for block in blocks:
            clipped, norms = clip(block.updates, self.plan.clip_norm)
            watch.see(block, norms)
            sent = clipped if self.scheme.clips else block.updates
            yield UpdateBlock(block.trial, block.slot, sent, block.losses)

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


def open_simulation(config: Config, scheme: str, task: Task) -> Simulation:
    """Join the parts of a scheme for a batch of trials; the schemes of a run share the batch's ``task``."""
    local_steps = [task.max_local_steps(row) for row in range(len(task.trials))]
    plan = plan_rounds(config, SCHEMES[scheme], open_link(config, task.trials), task.spec.dim, local_steps)
    over_air = plan.norm is not None and config.scheme.uplink == "signal"
    uplink = (SignalUplink if over_air else EquivalentUplink)(config.system.seed, task.trials)
    start, diameter = task.initial_models(), config.learning.domain_diameter
    smallest = 1e-3 * float(torch.linalg.vector_norm(start.double(), dim=1).max())
    if diameter is not None and diameter < smallest:
        raise InputError(
            f"`learning.domain_diameter` = {diameter:g} is too small to be enforced in float32 around a model of norm "
            f"{1e3 * smallest:.3g}; give at least {smallest:.1g}"
        )
    engine = choose_engine(config, task.spec, task.inputs.device)
    return Simulation(config, SCHEMES[scheme], task, plan, engine, uplink, start)
