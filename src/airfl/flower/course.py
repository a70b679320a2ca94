"""A run whose devices train elsewhere: who is asked, what becomes of their updates, what is booked and kept."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airfl import rounds
from airfl.accounting import accountant_named, is_proven
from airfl.air import EquivalentUplink, Setting, SignalUplink
from airfl.config import Config
from airfl.errors import DivergedError, InputError
from airfl.flower.fleet import Fleet, Trained
from airfl.flower.layout import Layout
from airfl.privacy import BudgetError, Ledger, epsilon_of
from airfl.rounds import RoundRecord, Schedule, State, Watch
from airfl.runs import Result, SchemeResult, save
from airfl.runs.execute import provenance_of
from airfl.runs.result import Status
from airfl.schemes import FillUp, Scheme, scheme_named
from airfl.simulate import Simulation
from airfl.transceiver import open_radio
from airfl.wording import OBSERVER_AGAINST, number, rounded_up

#: What a run's folder says of a run that did not come to an end.
CUT_SHORT = "the run was cut short"


class Course:
    """One trial of one scheme, driven from outside: ``asked``, ``refusal``, ``hear``, round by round.

    Everything but training is what ``airfl run`` does, from the same keys: positions, channels, participation, design,
    noise, server step, booking.

    Attributes:
        limit: the largest ε; infinite where nothing stops the run.
        state: where it stands; its ledger holds all rounds whose sum was received.
        message: why it ended before its time, if it did.
    """

    def __init__(self, config: Config, scheme: str, trial: int, layout: Layout, start: torch.Tensor) -> None:
        self.config, self.trial = config.replace({"scheme.names": [scheme], "system.trials": 1}), trial
        found = scheme_named(scheme, self.config)
        _require_plain(config, found)
        self.simulation = _open(self.config, found, trial, layout, start)
        self.state = self.simulation.init()
        self.records: list[RoundRecord] = []
        self.limit, self.message, self.begin = math.inf, "", time.perf_counter()
        self.perks = tuple(self.schedule.perks())

    @property
    def schedule(self) -> Schedule:
        """All rounds as they were planned."""
        return self.simulation.schedule

    @property
    def scheme(self) -> Scheme:
        """What is run."""
        return self.simulation.scheme

    @property
    def ledger(self) -> Ledger:
        """What was booked."""
        return self.state.ledgers[0]

    @property
    def clip_norm(self) -> float:
        """c, how long an update may be; infinite where nothing bounds it."""
        schedule = self.schedule
        return schedule.clip_norm if math.isfinite(self.scheme.encoder.length(schedule.clip_norm)) else math.inf

    @property
    def round(self) -> int:
        """t, the round that comes next, from 0."""
        return self.state.round

    def go_on_from(self, ledger: Ledger) -> None:
        """Begin after the rounds of a ledger, whose ε counts."""
        after = ledger.events[-1].round + 1 if ledger.events else 0
        self.state = replace(self.state, round=after, ledgers=(ledger,))

    def keep_within(self, wanted: float | None) -> None:
        """Set the largest ε: what the scheme promises, if it does, and never more than what is asked for.

        A scheme that promises nothing stops at the configuration's budget, unless another one is asked for; without a
        radio link, or where nothing bounds what devices send, there is no ε to stop at.
        """
        promised = self.schedule.promise.epsilon
        if promised is not None or wanted is not None:
            self.limit = min(math.inf if one is None else one for one in (promised, wanted))
            return
        bounded = self.schedule.over_air and math.isfinite(self.clip_norm)
        own = self.config.privacy.epsilon_for(self.schedule.dim)
        self.limit = own if bounded and own is not None else math.inf

    def asked(self) -> np.ndarray:
        """Numbers of the devices that take part in the next round, by airfl's own draw."""
        row: np.ndarray = self.schedule.active[0, self.round]
        there: np.ndarray = row[row >= 0]
        return there

    def refusal(self, absent: Collection[int] = ()) -> str | None:
        """Why the next round must not be; None where it may.

        Args:
            absent: devices that were asked and are not there.
        """
        if self.round >= self.config.system.rounds:
            return f"the plan of {self.config.system.rounds} rounds is over, and nothing is left for another one"
        schedule = self._heard_from(absent)
        booked = rounds.book(schedule, schedule.setting(self.round), lambda row: None)
        after = booked[0].on(self.ledger)
        return None if self.excess(after) is None else self._in_words(after)

    def hear(self, models: torch.Tensor, updates: Mapping[int, torch.Tensor], absent: Collection[int] = ()) -> None:
        """One round over the air: encode, receive, decode, update, book.

        Where so many are missing that the round breaks the promise it is booked all the same, for it was sent, and
        ``BudgetError`` says that its model is not to be released.

        Args:
            models: θ that nodes began with, [1, d].
            updates: Δ by device number, [d]; a device without one sends zero.
            absent: devices that were asked and are not there; what they hide others in is missing too.
        """
        schedule, t = self._heard_from(absent), self.round
        engine = Trained(schedule.active_in(t)[0], updates)
        simulation = replace(self.simulation, schedule=schedule, engine=engine)
        try:
            step = simulation.advance(replace(self.state, models=models))
        except DivergedError as error:
            self.state = error.state if isinstance(error.state, State) else self.state
            raise
        self.state = step.after
        self._record(step.setting)
        excess = self.excess()
        if excess is not None:
            raise BudgetError(excess)

    def epsilon(self) -> float:
        """ε of all rounds so far, for whom and by whose arithmetic the scheme promises it."""
        return self.schedule.promise.spent(self.ledger)

    def metrics(self) -> dict[str, float]:
        """The last round in numbers: of public quantities alone, and of who took part only where that is no secret."""
        promise = self.schedule.promise
        found = {"privacy/epsilon": self.records[-1].epsilon, "privacy/delta": promise.delta}
        if not self.schedule.hides:
            station = epsilon_of(self.ledger, "gaussian", promise.neighbours, "base-station", promise.delta)
            found["privacy/epsilon_base_station"] = station
        found["air/noise_std"] = math.sqrt(self.records[-1].noise_var)
        found["air/perk_margin_db"] = self.perks[0].margin_db if self.perks else math.nan
        if not is_proven(promise.accountant) and is_proven("gaussian", [self.ledger]):
            exact = epsilon_of(self.ledger, "gaussian", promise.neighbours, promise.observer, promise.delta)
            found["privacy/epsilon_proven"] = exact
        return found

    def tested(self, accuracy: float, loss: float) -> None:
        """Note how good the last model is."""
        if self.records:
            self.records[-1] = replace(self.records[-1], accuracy=accuracy, loss=loss)

    def released(self) -> torch.Tensor:
        """θ that is handed on, [d]; ``BudgetError`` where the ledger exceeds the budget."""
        excess = self.excess()
        if excess is not None:
            raise BudgetError(excess)
        return self.simulation.release(self.state)[0] if self.scheme.keeps_budget else self.state.released[0]

    def result(self, status: Status, more: Mapping[str, Any]) -> Result:
        """The run as ``airfl run`` would have it; models only where it is done.

        Args:
            more: what else to write down about where it ran.
        """
        schedule, done = self.schedule, status == "done"
        scheme = SchemeResult(
            records=tuple(self.records),
            ledgers=self.state.ledgers,
            models=self.released().unsqueeze(0) if done else None,
            never_heard=tuple(schedule.never_heard()),
            perks=self.perks,
            status=status,
            message=self.message if done or self.message else CUT_SHORT,
            seconds=time.perf_counter() - self.begin,
            accountant=schedule.promise.accountant,
            observer=schedule.promise.observer,
            transmitting=schedule.normaliser,
            cover=tuple(shield.used for shield in schedule.shields),
            delta=schedule.promise.delta,
            neighbours=schedule.promise.neighbours,
        )
        provenance = {**provenance_of(torch.device("cpu"), self.simulation), "engine": "flower", **more}
        name, accountant = self.scheme.name, schedule.promise.accountant
        return Result(self.config, schedule.dim, {name: scheme}, provenance, accountant)

    def keep(self, folder: Path, status: Status, more: Mapping[str, Any]) -> None:
        """Write the run, all of it or nothing."""
        save(self.result(status, more), folder)

    def _heard_from(self, absent: Collection[int]) -> Schedule:
        """The schedule, where devices that are not there hide nobody.

        Without cover a device that is not there and one that sends zero are the same to everybody.
        """
        if self.scheme.encoder.cover == "nothing" or not absent:
            return self.schedule
        active = self.schedule.active.copy()
        row = active[0, self.round]
        there = row[(row >= 0) & ~np.isin(row, list(absent))]
        active[0, self.round] = -1
        active[0, self.round, : len(there)] = there
        return replace(self.schedule, active=active)

    def excess(self, ledger: Ledger | None = None) -> str | None:
        """What is wrong with a ledger, by default the run's own, in a sentence; None if nothing is."""
        if math.isinf(self.limit):
            return None
        try:
            replace(self.schedule.promise, epsilon=self.limit).check(self.ledger if ledger is None else ledger)
        except BudgetError as error:
            return str(error)
        return None

    def _in_words(self, after: Ledger) -> str:
        """What a ledger with one more round would say."""
        promise, now, then = self.schedule.promise, 0.0, 0.0
        kind = accountant_named(promise.accountant)
        for observer in promise.kept:
            books = self.ledger, after
            now, then = (epsilon_of(book, kind, promise.neighbours, observer, promise.delta) for book in books)
            if not then <= self.limit:
                break
        return (
            f"it would take ε from {rounded_up(now)} to {rounded_up(then)} at δ = {number(promise.delta)} "
            f"({promise.neighbours}, against {OBSERVER_AGAINST[observer]}), and {rounded_up(self.limit)} is allowed"
        )

    def _record(self, setting: Setting) -> None:
        """The row of the round; what tells about updates stays unknown, since no ε covers it."""
        unseen = Watch(*setting.active.shape)
        made = rounds.record_round(self.config, self.schedule, setting, self.state.ledgers, unseen, None)
        nothing = math.nan
        self.records.append(
            replace(
                made[0],
                epsilon=self.epsilon(),
                train_loss=nothing,
                update_norm=nothing,
                clipped_fraction=nothing,
            )
        )


def _open(config: Config, scheme: Scheme, trial: int, layout: Layout, start: torch.Tensor) -> Simulation:
    """As ``simulate.open_simulation``, with devices that train elsewhere."""
    fleet = Fleet.of(config, trial, layout, start)
    schedule = rounds.arrange(config, scheme, open_radio(config, (trial,)), layout.dim, None)
    whole = schedule.over_air and config.scheme.uplink == "signal"
    uplink = (SignalUplink if whole else EquivalentUplink)(config.system.seed, (trial,))
    rounds.check_diameter(config.learning.domain_diameter, fleet.start)
    nobody = Trained(np.zeros(0, dtype=np.int64), {})
    return Simulation(config, scheme, fleet, schedule, nobody, uplink, fleet.start)


def _require_plain(config: Config, scheme: Scheme) -> None:
    """Refuse what counts on knowing how devices train, or tells about single updates."""
    if config.privacy.accountant == "convergent":
        raise InputError(
            "accountant `convergent` counts on what devices do in their local steps, and under Flower nobody can know "
            'that; set privacy.accountant = "auto"'
        )
    if config.privacy.estimate_gradient_noise:
        raise InputError(
            "`privacy.estimate_gradient_noise` books a number that depends on the data; leave it out under Flower"
        )
    if isinstance(scheme.policy, FillUp):
        raise InputError(
            f"scheme `{scheme.name}` chooses its noise by an estimate from updates, and Flower's history would show "
            "it; take another scheme, or `airfl run`"
        )
