"""Whoever sees signals: a canary of one device and nothing else is sent, and the best linear test listens for it.

The run's own uplink is opened, symbol by symbol, with the test for its combiner (``hearing``). Of T rounds the scores
add up: the likelihood ratio of all of them is Σ_t of those of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from airfl.air import SignalUplink
from airfl.analysis.audit.hearing import hear
from airfl.analysis.audit.worlds import LOUD, Advance, Opener, given_updates, random_direction, took_part
from airfl.config import System
from airfl.devices import Samples
from airfl.privacy import Ledger, Observer
from airfl.randomness import stream
from airfl.rounds import Schedule, book
from airfl.simulate import Simulation

#: Symbols that are sent; the law of every symbol is the same, and a canary may choose a few.
SYMBOLS = 64
#: Numbers that covariances and paths of one batch may hold.
BATCH_NUMBERS = 2_000_000


@dataclass(frozen=True)
class Heard:
    """Scores of an observer in one world, [R], what was booked, and who took part, [R, T, K] in parts."""

    scores: np.ndarray = field(repr=False)
    ledgers: list[Ledger] = field(repr=False)
    active: list[np.ndarray] = field(repr=False)


def listen(
    single: Simulation,
    samples: Samples,
    observer: Observer,
    keys: Sequence[int],
    sign: float,
    opener: Opener,
    advance: Advance | None,
) -> Heard:
    """Send a canary of the device that is heard best, times ``sign``, and nothing else; a repetition per key."""
    system, listener = single.config.system, single.config.eavesdropper
    antennas = system.num_antennas + (0 if listener is None else listener.antennas)
    size = max(1, BATCH_NUMBERS // (antennas * (antennas + system.num_devices)))
    parts = []
    for first in range(0, len(keys), size):
        some = keys[first : first + size]
        batch = at_the_antennas(single, opener(single, samples, some), some)
        parts.append(_listen(batch, observer, sign, advance))
    return Heard(
        np.concatenate([part.scores for part in parts]),
        [ledger for part in parts for ledger in part.ledgers],
        [active for part in parts for active in part.active],
    )


def at_the_antennas(single: Simulation, batch: Simulation, keys: Sequence[int]) -> Simulation:
    """Repetitions of a run with every antenna simulated, where the run itself takes the scalar form."""
    if isinstance(single.uplink, SignalUplink) or isinstance(batch.uplink, SignalUplink):
        return batch
    return replace(batch, uplink=SignalUplink(batch.config.system.seed, tuple(keys), noise_block=SYMBOLS))


def _listen(batch: Simulation, observer: Observer, sign: float, advance: Advance | None) -> Heard:
    plan, rows = batch.schedule, batch.schedule.num_trials
    narrow = replace(batch, schedule=replace(plan, dim=min(SYMBOLS, plan.dim)))
    direction = random_direction(stream(batch.config.system.seed, "canaries", 8), narrow.schedule.dim)
    loud = sign * LOUD * plan.clip_norm * direction
    loudest = _heard_best(plan, observer, batch.config.system)
    scores, energy, bare = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    uncovered = np.zeros(rows, dtype=bool)
    ledgers = [Ledger() for _ in range(0, rows, plan.copies)]
    for t in range(batch.config.system.rounds):
        setting = plan.setting(t)
        hearing = hear(plan, setting, observer, loudest)
        here = setting.active == loudest[:, None]
        planted = {row: (int(here[row].argmax()), loud) for row in np.flatnonzero(here.any(axis=1)).tolist()}
        received = narrow.heard(hearing.setting, given_updates(narrow, setting, planted))
        score = (received.double().cpu() @ direction.double()).numpy()
        naked = np.isinf(hearing.energy)
        bare += np.where(naked, score, 0.0)
        uncovered |= naked
        scores += np.where(naked, 0.0, score)
        energy += np.where(naked, 0.0, hearing.energy)
        booked = book(plan, setting, batch.task.max_local_steps)[:: plan.copies]
        ledgers = [entry.on(ledger) for ledger, entry in zip(ledgers, booked, strict=True)]
        if advance is not None:
            advance(rows)
    # In rounds in which nothing covers the device there is no need to look at the others.
    covered = scores / np.sqrt(np.where(energy > 0, energy, 1.0))
    return Heard(np.where(uncovered, bare, covered), ledgers, [took_part(plan)])


def _heard_best(plan: Schedule, observer: Observer, system: System) -> np.ndarray:
    """The device of each row that the observer sees most of over the run, [rows]."""
    rows = np.arange(0, plan.num_trials, plan.copies)
    total = np.zeros((len(rows), system.num_devices + 1))
    for t in range(system.rounds):
        setting = plan.setting(t)
        active = setting.active[rows]
        where = np.where(active < 0, system.num_devices, active)
        total[np.arange(len(rows))[:, None], where] += setting.seen[observer][rows].square().numpy() * (active >= 0)
    best: np.ndarray = total[:, : system.num_devices].argmax(axis=1)
    return best.repeat(plan.copies)
