"""An empirical lower bound on ε: the run's own code, with canary devices in and out.

A canary trains to an update far longer than clipping allows, along a fixed random direction u, in every round in which
it takes part; what is left of it after clipping is c·u. What is tested is how far the final model moved along u: the
difference between a run with the canary and one without is all that an observer of the model can hold against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from airfl.air import EquivalentUplink, Receiver, Setting, SignalUplink, Uplink
from airfl.config import Config
from airfl.devices import Samples, UpdateBlock, load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS, GaussianAccountant, Ledger, Neighbours, gaussian_epsilon, make_accountant
from airfl.privacy.auditing import (
    AuditBound,
    OneRunBound,
    best_guesses,
    gaussian_bound,
    linear_scores,
    one_run_bound,
    threshold_bound,
)
from airfl.randomness import stream
from airfl.rounds import arrange
from airfl.runs.execute import pick_device
from airfl.runs.result import finite_or_none
from airfl.schemes import SCHEMES
from airfl.simulate import Simulation, State, open_simulation
from airfl.transceiver import open_radio

#: How many times the clip norm a canary's update is long: clipping is under audit too.
LOUD = 1000.0
#: Model entries that the repetitions of one batch may hold, and repetitions at most.
BATCH_ENTRIES, BATCH_ROWS = 30_000_000, 4000
#: Claims whose trade-off curve is a Gaussian one, so that the Gaussian reading of the counts may refute them.
GAUSSIAN_CLAIMS = ("gaussian", "convergent")

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        subject: what was audited, in a few words.
        bound: the lower bound that holds for any mechanism.
        gaussian: the same counts read as a Gaussian trade-off curve; None for the one-run variant.
        epsilon_upper: ε of every accountant for the same ledger.
        scores_in: the test statistic with the canary, scores_out without it.
    """

    subject: str
    neighbours: Neighbours
    bound: AuditBound | OneRunBound
    gaussian: AuditBound | None
    epsilon_upper: dict[str, float]
    scores_in: np.ndarray = field(repr=False)
    scores_out: np.ndarray = field(repr=False)

    @property
    def refuted(self) -> list[str]:
        """Accountants whose ε lies below what was measured."""
        return [name for name, upper in self.epsilon_upper.items() if self._lower_for(name) > upper]

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl audit --json`` prints."""
        reading = self.gaussian
        return {
            "subject": self.subject,
            "epsilon_lower": self.bound.epsilon_lower,
            "confidence": self.bound.confidence,
            "epsilon_upper": {name: finite_or_none(value) for name, value in self.epsilon_upper.items()},
            "delta": self.bound.delta,
            "neighbours": self.neighbours,
            "observer": "model",
            "epsilon_lower_gaussian": None if reading is None else reading.epsilon_lower,
            "mu_lower": None if reading is None else reading.mu_lower,
            "repetitions": len(self.scores_in) + len(self.scores_out),
            "refuted": self.refuted,
            "refuted_proofs": [name for name in self.refuted if ACCOUNTANTS[name].valid],
        }

    def _lower_for(self, name: str) -> float:
        """What counts against an accountant; the Gaussian reading speaks about Gaussian claims only."""
        readings = [self.bound.epsilon_lower]
        if self.gaussian is not None and name in GAUSSIAN_CLAIMS:
            readings.append(self.gaussian.epsilon_lower)
        return max(readings)


def audit_linear(mu: float, repetitions: int, delta: float = 1e-5, confidence: float = 0.95, seed: int = 0) -> Audit:
    """Audit one round of a linear Gaussian mechanism whose μ is known: a check of the audit itself."""
    if not 0 < mu <= 1e6:
        raise InputError(f"`mu` must be positive and at most 1e6; got {mu}")
    _check_repetitions(repetitions)
    worlds = [linear_scores(mu, repetitions, stream(seed, "canaries", 1, which), bool(which)) for which in (0, 1)]
    return Audit(
        f"one linear round with μ = {mu:g}",
        "add-remove",
        threshold_bound(worlds[1], worlds[0], delta, confidence),
        gaussian_bound(worlds[1], worlds[0], delta, confidence),
        {"gaussian": gaussian_epsilon(delta, mu)},
        worlds[1],
        worlds[0],
    )


def audit_run(
    config: Config,
    scheme: str = "airfl-dp",
    repetitions: int = 1000,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    advance: Advance | None = None,
) -> Audit:
    """Train many times with and without a canary device, everything else but the noise and who takes part being equal.

    Args:
        repetitions: of each of the two worlds.
        advance: hears how many repetitions of a round are done; ``rounds × 2 × repetitions`` in all.
    """
    _check_scheme(scheme)
    _check_repetitions(repetitions)
    delta = config.privacy.delta if delta is None else delta
    samples = load_samples(config, pick_device(config.engine.device))
    single = open_simulation(config, scheme, open_task(config, (0,), samples))
    direction = _direction(config, single.schedule.dim)
    scores: dict[bool, list[np.ndarray]] = {True: [], False: []}
    ledgers: list[Ledger] = []
    size = max(1, min(BATCH_ROWS, BATCH_ENTRIES // len(direction)))
    for present in (True, False):
        for start in range(0, repetitions, size):
            keys = range(start, min(start + size, repetitions))
            # The two worlds draw their own noise: repetitions have to be independent.
            simulation = _repeated(single, samples, [2 * key + int(present) for key in keys])
            louder = LOUD * simulation.schedule.clip_norm * direction
            sent = louder if present else (-louder if config.neighbours == "replace" else 0.0 * louder)
            state = _play(simulation, {0: sent}, advance)
            moved = (state.released - simulation.start) @ direction.to(state.models.device)
            scores[present].append(-moved.double().cpu().numpy())
            ledgers.extend(state.ledgers)
    worlds = {present: np.concatenate(parts) for present, parts in scores.items()}
    return Audit(
        f"{SCHEMES[scheme].title}, {config.system.rounds} rounds, {2 * repetitions} trainings",
        config.neighbours,
        threshold_bound(worlds[True], worlds[False], delta, confidence),
        gaussian_bound(worlds[True], worlds[False], delta, confidence),
        _uppers(ledgers, config.neighbours, delta),
        worlds[True],
        worlds[False],
    )


def audit_one_run(
    config: Config,
    scheme: str = "airfl-dp",
    canaries: int | None = None,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    advance: Advance | None = None,
) -> Audit:
    """One training, many canary devices, each in or out by its own coin (Steinke, Nasr & Jagielski 2023).

    Args:
        canaries: how many devices are canaries; default half of them.
    """
    _check_scheme(scheme)
    total = config.system.num_devices
    if total < 2:
        raise InputError("one run with many canaries needs at least 2 devices; use repetitions instead")
    count = max(2, total // 2) if canaries is None else canaries
    if not 2 <= count <= total:
        raise InputError(f"`canaries` must be 2 to {total}, the number of devices; got {count}")
    delta = config.privacy.delta if delta is None else delta
    samples = load_samples(config, pick_device(config.engine.device))
    simulation = open_simulation(config, scheme, open_task(config, (0,), samples))
    if count > simulation.schedule.dim:
        raise InputError(f"`canaries` = {count} need as many parameters; the model has {simulation.schedule.dim}")
    generator = stream(config.system.seed, "canaries", 2)
    directions = torch.from_numpy(
        np.linalg.qr(generator.standard_normal((simulation.schedule.dim, count)))[0].T
    ).float()
    included = generator.random(count) < 0.5
    loudest = LOUD * simulation.schedule.clip_norm
    sent = {j: loudest * bool(included[j]) * directions[j] for j in range(count)}
    state = _play(simulation, sent, advance)
    # Who audits knows everything but the coins and the noise, and so where the others alone would have led.
    quiet = replace(simulation, uplink=_Noiseless(simulation.uplink))
    others = _play(quiet, {j: 0.0 * directions[j] for j in range(count)}, advance)
    moved = (state.released - others.released)[0].double().cpu()
    scores = -(directions.double() @ moved).numpy()
    mu = GaussianAccountant(state.ledgers[0], "add-remove").mu
    if math.isinf(mu):
        raise InputError(f"scheme `{scheme}` adds no noise: there is nothing to audit, every canary shows")
    guesses = best_guesses(mu, count, delta, confidence)
    return Audit(
        f"{SCHEMES[scheme].title}, {config.system.rounds} rounds, one training with {count} canaries",
        config.neighbours,
        one_run_bound(scores, included, guesses, delta, confidence),
        None,
        _uppers(state.ledgers, config.neighbours, delta),
        scores[included],
        scores[~included],
    )


@dataclass(frozen=True)
class _Noiseless(Uplink):
    """The uplink without any noise."""

    uplink: Uplink

    def open(self, dim: int, setting: Setting) -> Receiver:
        return self.uplink.open(dim, setting.silenced())


def _check_scheme(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise InputError(f"no scheme named `{scheme}`; known: {', '.join(SCHEMES)}")


def _check_repetitions(repetitions: int) -> None:
    if repetitions < 10:
        raise InputError(f"`repetitions` must be at least 10; got {repetitions}")


def _direction(config: Config, dim: int) -> torch.Tensor:
    """A random direction of length 1."""
    draw = stream(config.system.seed, "canaries", 0).standard_normal(dim)
    return torch.from_numpy(draw / np.linalg.norm(draw)).float()


def _repeated(single: Simulation, samples: Samples, keys: Sequence[int]) -> Simulation:
    """A trial once per key, with the same devices, data and channels, and participation and noise keyed anew."""
    config, schedule, rows = single.config, single.schedule, (0,) * len(keys)
    if config.system.everyone:
        schedule = schedule.repeated(len(keys))
    else:
        radio = open_radio(config, rows)
        link = replace(radio.link, participation_keys=tuple(keys))
        if config.scheme.combiner_columns == "all":  # the design does not depend on who takes part
            schedule = schedule.repeated(len(keys), link)
        else:
            steps = [single.task.max_local_steps(0)]
            schedule = arrange(config, single.scheme, replace(radio, link=link), schedule.dim, steps * len(keys))
    kind = SignalUplink if isinstance(single.uplink, SignalUplink) else EquivalentUplink
    task = open_task(config, rows, samples)
    return replace(
        single, task=task, schedule=schedule, uplink=kind(config.system.seed, tuple(keys)), start=task.initial_models()
    )


def _play(simulation: Simulation, canaries: dict[int, torch.Tensor], advance: Advance | None) -> State:
    """Run all rounds; ``canaries`` says what which device sends in place of its update."""
    state = simulation.init()
    for _ in range(simulation.config.system.rounds):
        active = torch.from_numpy(simulation.schedule.active_in(state.round))

        def plant(block: UpdateBlock, active: torch.Tensor = active) -> UpdateBlock:
            device = active[block.trial.cpu(), block.slot.cpu()]
            for number, vector in canaries.items():
                where, own = (part.to(block.trained.device) for part in (device == number, vector))
                if bool(where.any()):
                    block = block.planted(where, own)
            return block

        state = simulation.advance(state, plant).after
        if advance is not None:
            advance(len(state.models))
    return state


def _uppers(ledgers: Sequence[Ledger], neighbours: Neighbours, delta: float) -> dict[str, float]:
    """ε of every accountant for who sees the final model, the worst of the repetitions."""
    return {
        name: max(make_accountant(name, book, neighbours).epsilon(delta) for book in _different(ledgers))
        for name, kind in ACCOUNTANTS.items()
        if "model" in kind.observers
    }


def _different(ledgers: Sequence[Ledger]) -> Iterator[Ledger]:
    """Ledgers that differ in what accountants of models look at."""
    seen = set()
    for book in ledgers:
        key = tuple((e.noise_var, e.gain_bound, e.domain, e.gradient_var, e.hides_participation) for e in book.events)
        if key not in seen:
            seen.add(key)
            yield book
