"""An empirical lower bound on ε: the run's own code, with canary devices in and out; and checks of its noise.

A canary trains to an update far longer than clipping allows, along some direction u, in every round in which it takes
part; what is left of it after clipping is c·u. What is tested is how far the final model moved along u: the difference
between a run with the canary and one without is all that an observer of the model can hold against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from airfl.analysis.audit.antennas import Heard, listen
from airfl.analysis.audit.canaries import Canaries, draw_canaries
from airfl.analysis.audit.found import Audit, View, uppers
from airfl.analysis.audit.mechanism import check_mechanism
from airfl.analysis.audit.scope import (
    check_observer,
    check_participation,
    check_rotated,
    check_scheme,
    listeners,
    promised_to,
    trains,
    unheard,
)
from airfl.analysis.audit.worlds import (
    BATCH_ENTRIES,
    BATCH_ROWS,
    LOUD,
    Advance,
    Opener,
    loudest,
    play,
    repeated,
    took_part,
    undisturbed,
)
from airfl.config import Config
from airfl.devices import Samples, load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import Ledger, Neighbours, Observer, gaussian_epsilon
from airfl.privacy.auditing import (
    AuditBound,
    gaussian_bound,
    linear_scores,
    threshold_bound,
)
from airfl.privacy.checks import judged
from airfl.privacy.events import check_delta
from airfl.privacy.looks import Look, best, pooled, read_looks
from airfl.randomness import stream
from airfl.runs.execute import pick_device
from airfl.schemes import scheme_named
from airfl.simulate import Simulation, open_simulation
from airfl.wording import counted

#: What was done, for everyone who sees signals.
LISTENED: dict[Observer, str] = {
    "base-station": "the base station: the best linear test of the device that it hears best, antenna by antenna",
    "eavesdropper": "the eavesdropper: the best linear test of the device that she hears best, and of the sum",
    "everything": "someone who sees what every device sends: the best linear test of it",
}


def audit_linear(mu: float, repetitions: int, delta: float = 1e-5, confidence: float = 0.95, seed: int = 0) -> Audit:
    """Audit one round of a linear Gaussian mechanism whose μ is known: a check of the audit itself."""
    if not 0 < mu <= 1e6:
        raise InputError(f"`mu` must be positive and at most 1e6; got {mu}")
    _check_repetitions(repetitions)
    worlds = [linear_scores(mu, repetitions, stream(seed, "canaries", 1, which), bool(which)) for which in (0, 1)]
    view = View(
        "model",
        threshold_bound(worlds[1], worlds[0], delta, confidence),
        gaussian_bound(worlds[1], worlds[0], delta, confidence),
        {"gaussian": gaussian_epsilon(delta, mu)},
    )
    return Audit(
        f"one linear round with μ = {mu:g}",
        "zero-out",
        view,
        2 * repetitions,
        worlds[1],
        worlds[0],
        tested=("the audit itself, on a mechanism whose ε is known",),
        not_tested=("any run of airfl",),
    )


def audit_run(
    config: Config,
    scheme: str = "airfl-dp",
    repetitions: int = 1000,
    *,
    observer: Observer | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    advance: Advance | None = None,
    opener: Opener = repeated,
) -> Audit:
    """Train many times with and without a canary device, everything else but the noise and who takes part being equal.

    Args:
        repetitions: of each of the two worlds.
        observer: who attacks; default: whoever sees models, and whom the scheme promises something. For someone who
            sees signals nothing is trained: a canary and zeros are sent.
        advance: hears how many repetitions of a round are done; ``audit_steps`` in all.
        opener: opens repetitions of the run; a planted defect wraps the usual one.
    """
    check_scheme(scheme)
    _check_repetitions(repetitions)
    delta = config.privacy.delta if delta is None else delta
    check_delta(delta)
    check_observer(config, scheme_named(scheme, config), observer)
    samples = load_samples(config, pick_device(config.engine.device))
    single = open_simulation(config, scheme, open_task(config, (0,), samples))
    listening = listeners(config, single.scheme, observer)
    check_rotated(single, listening)
    # Keys beyond those of the trainings: a direction that is chosen for its little noise must not meet it again.
    mechanism = check_mechanism(single, samples, 2 * repetitions, opener)
    sure = 1.0 - (1.0 - confidence) / (len(listening) + trains(observer))
    asked = _Asked(single, samples, repetitions, delta, confidence, sure, opener, advance)
    parts = []
    if trains(observer):
        canaries = draw_canaries(config, single.task.spec, mechanism.quietest, repetitions, loudest(single))
        parts.append(_models(asked, canaries))
    parts += [_signals(asked, who) for who in listening]
    views = [view for part in parts for view in part.views]
    first = parts[0]
    checks, more, left_out = check_participation(mechanism, single, first.ledger, first.active)
    return Audit(
        f"{scheme_named(scheme).title}, {counted(config.system.rounds, 'round')}, {2 * repetitions} {first.what}",
        config.neighbours,
        views[0],
        2 * repetitions,
        first.scores_in,
        first.scores_out,
        tuple(views[1:]),
        first.looks,
        judged(mechanism.checks + checks),
        tuple([words for part in parts for words in part.tested] + mechanism.tested + more),
        tuple(mechanism.left_out + left_out + unheard(single, [view.observer for view in views])),
        promised_to(single),
    )


def audit_steps(config: Config, scheme: str, repetitions: int, observer: Observer | None = None) -> int:
    """How many repetitions of a round ``audit_run`` goes through."""
    check_scheme(scheme)
    made = scheme_named(scheme, config)
    check_observer(config, made, observer)
    return config.system.rounds * 2 * repetitions * (len(listeners(config, made, observer)) + trains(observer))


@dataclass(frozen=True)
class _Asked:
    """What all attacks of an audit share.

    Attributes:
        repetitions: of each of the two worlds.
        confidence: of all views together; sure: of each.
    """

    single: Simulation
    samples: Samples
    repetitions: int
    delta: float
    confidence: float
    sure: float
    opener: Opener
    advance: Advance | None


@dataclass(frozen=True)
class _Attack:
    """What one attack found: views, scores of both worlds, a ledger, and who took part."""

    what: str
    views: list[View]
    scores_in: np.ndarray
    scores_out: np.ndarray
    looks: dict[str, tuple[float, float]]
    ledger: Ledger
    active: list[np.ndarray]
    tested: list[str]


def _models(asked: _Asked, canaries: Canaries) -> _Attack:
    """What trained models prove."""
    worlds, ledgers, active = _train(asked, canaries)
    looks = _looks(canaries.looks(worlds[True], worlds[False]))
    readings = [read_looks(looks, reading, asked.delta, asked.sure) for reading in (threshold_bound, gaussian_bound)]
    views = []
    for observer, names in _names(looks).items():
        bounds = [_stated(best({name: reading[name] for name in names}), asked.confidence) for reading in readings]
        claims = uppers(ledgers, asked.single.config.neighbours, asked.delta, observer)
        views.append(View(observer, bounds[0], bounds[1], claims))
    tested = [f"the final model: {2 * asked.repetitions} trainings, canaries of {len(canaries.names)} kinds"]
    if len(views) > 1:
        tested.append("someone who sees every round's model: canaries that send in one round only")
    found = {look.name: (readings[0][look.name].epsilon_lower, readings[1][look.name].epsilon_lower) for look in looks}
    scores = looks[0].scores_in, looks[0].scores_out
    return _Attack("trainings", views, *scores, found, ledgers[0], active, tested)


def _train(asked: _Asked, canaries: Canaries) -> tuple[dict[bool, np.ndarray], list[Ledger], list[np.ndarray]]:
    """Scores of both worlds, [R] each, all ledgers, and who took part."""
    single, repetitions = asked.single, asked.repetitions
    scores: dict[bool, list[np.ndarray]] = {True: [], False: []}
    ledgers: list[Ledger] = []
    active = []
    size = max(1, min(BATCH_ROWS, BATCH_ENTRIES // single.schedule.dim))
    for present in (True, False):
        for start in range(0, repetitions, size):
            keys = range(start, min(start + size, repetitions))
            # The two worlds draw their own noise: repetitions have to be independent.
            simulation = undisturbed(asked.opener(single, asked.samples, [2 * key + int(present) for key in keys]))
            planted = canaries.of(keys)
            length = LOUD * simulation.schedule.clip_norm * _sign(single, present)
            state = play(simulation, planted.planting(length), asked.advance, planted.witness)
            scores[present].append(planted.scores(simulation.start, state.released))
            ledgers.extend(state.ledgers)
            active.append(took_part(simulation.schedule))
    return {present: np.concatenate(parts) for present, parts in scores.items()}, ledgers, active


def _sign(single: Simulation, present: bool) -> float:
    """What the canary's device sends in the two worlds, over the canary."""
    return 1.0 if present else (-1.0 if single.config.neighbours == "replace" else 0.0)


def _looks(looks: list[Look]) -> list[Look]:
    """All looks at the model together first, where there are several; then each."""
    model = [look for look in looks if look.observer == "model"]
    return [pooled(model), *looks] if len(model) > 1 else looks


def _names(looks: Sequence[Look]) -> dict[Observer, list[str]]:
    """The looks of each observer; the model comes first."""
    found: dict[Observer, list[str]] = {}
    for look in looks:
        found.setdefault(look.observer, []).append(look.name)
    return found


def _stated(bound: AuditBound, confidence: float) -> AuditBound:
    """The bound with the confidence that it has together with all others."""
    return replace(bound, confidence=confidence)


def _signals(asked: _Asked, observer: Observer) -> _Attack:
    """What the scores of someone who sees signals prove."""
    single = asked.single
    heard = {
        present: listen(
            single,
            asked.samples,
            observer,
            [2 * key + int(present) for key in range(asked.repetitions)],
            _sign(single, present),
            asked.opener,
            asked.advance,
        )
        for present in (True, False)
    }
    inside, outside = heard[True], heard[False]
    scores, active = (inside.scores, outside.scores), inside.active + outside.active
    neighbours = single.config.neighbours
    view = read_heard(observer, inside, outside, neighbours, asked.delta, asked.confidence, asked.sure)
    return _Attack("receptions", [view], *scores, {}, inside.ledgers[0], active, [LISTENED[observer]])


def read_heard(
    observer: Observer,
    inside: Heard,
    outside: Heard,
    neighbours: Neighbours,
    delta: float,
    confidence: float = 0.95,
    sure: float = 0.95,
) -> View:
    """What scores of both worlds prove.

    Args:
        confidence: of this view and all others together; sure: of this one.
    """
    scores = inside.scores, outside.scores
    return View(
        observer,
        _stated(threshold_bound(*scores, delta, sure), confidence),
        _stated(gaussian_bound(*scores, delta, sure), confidence),
        uppers(inside.ledgers + outside.ledgers, neighbours, delta, observer),
    )


def _check_repetitions(repetitions: int) -> None:
    if repetitions < 10:
        raise InputError(f"`repetitions` must be at least 10; got {repetitions}")
