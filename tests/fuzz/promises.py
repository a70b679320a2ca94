"""Small runs of every scheme, whose ledgers are held against what adversaries learn from the signals (``adversaries``).

Nothing booked may be below the truth, round by round and for the run; a promise that a run ends with is kept in truth;
and where participation is credited as hidden, other draws of it leave the same noise.
"""

from __future__ import annotations

import contextlib
import math
import random
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from mpmath import inf, mpf, sqrt

from airfl.devices import UpdateBlock
from airfl.errors import DivergedError, InputError
from airfl.privacy import SEEING, BudgetError, Neighbours, Observer, RoundEvent, make_accountant
from airfl.rounds import Schedule
from airfl.schemes import SCHEMES
from airfl.simulate import Simulation, open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver import Radio, open_radio
from tests.fuzz.inprocess import quiet
from tests.fuzz.tally import Tally
from tests.oracles import adversaries
from tests.oracles.adversaries import Told
from tests.oracles.subsampled import Hidden, least_delta

#: What μ may be below the truth, relatively: gains may be rounded by half of that (``booking.GAIN_ROUNDING``).
ROUNDING = 2e-9
#: Other draws of who takes part.
REDRAWN = 5
#: μ beyond which hidden rounds are not composed here.
FARTHEST = 200.0
#: Accountants whose promise is a proof.
PROVEN = ("gaussian", "sampled", "liu2020")


@dataclass
class Found:
    """What came of one run: what is wrong, how tight the books are, and how often participation was drawn anew."""

    wrong: list[str] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    redrawn: int = 0


def promises(count: int, seed: int, folder: Path) -> Tally:
    """``count`` configurations."""
    tally = Tally()
    for number in range(seed, seed + count):
        scheme, changes = drawn(random.Random(number))
        said = f"{scheme} {changes}"
        try:
            found = examined(scheme, changes)
        except (InputError, BudgetError, DivergedError):
            tally.count("refused", number)
        except Exception:
            tally.count("traceback", number, f"{said}: {traceback.format_exc()[-600:]}")
        else:
            wrong = "; ".join(found.wrong)
            tally.count("silent_difference" if wrong else "ok", number, f"{said}: {wrong}")
    return tally


def drawn(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A scheme and a small configuration for it, as keys that differ from ``small_config``."""
    scheme = draw.choice(list(SCHEMES))
    if draw.random() < 0.3:
        scheme = draw.choice(["airfl-shielded", "airfl-shielded", "zero-sum", "airfl-an", "liu2024"])
    changes: dict[str, Any] = {
        "scheme.names": [scheme],
        "system.trials": 1,
        "system.seed": draw.randrange(10**6),
        "system.num_devices": draw.randint(2, 8),
        "system.num_antennas": draw.randint(1, 6),
        "system.rounds": draw.randint(1, 3),
        "learning.samples_per_device": 4,
        "learning.clip_norm": draw.choice([1.0, 1.0, 0.01, 30.0]),
        "channel.power_w": 10.0 ** draw.uniform(-13, 3),
        "channel.cell_radius_m": draw.choice([30.0, 1e3, 1e3, 1e4, 1e7]),
        "privacy.epsilon": 10.0 ** draw.uniform(-0.5, 2.5),
        "privacy.accountant": draw.choice(["gaussian", "gaussian", "auto", "sampled", "paper"]),
        "scheme.cover_price_db": draw.choice([3.0, 1000.0, 1000.0]),
        "scheme.mask_degree": draw.choice([2, 2, 4]),
    }
    for likely, axis in AXES:
        if draw.random() < likely * (1.0 if scheme in TAKES_MOST or axis not in HARD else 0.5):
            changes |= axis(draw)
    changes |= OWN.get(scheme, lambda _: {})(draw)
    if scheme in ("airfl-shielded", "zero-sum"):
        her = ["eavesdropper", "eavesdropper"] if "eavesdropper" in changes else []
        seen = ["base-station", "auto", *her, *(["everything"] if scheme == "airfl-shielded" else [])]
        changes["privacy.observer"] = draw.choice(seen)
    return scheme, changes


def _sampling(draw: random.Random) -> dict[str, Any]:
    law = {"system.sampling": draw.choice(["fixed", "poisson"]), "system.participation": draw.choice([0.2, 0.5, 0.8])}
    return law | ({"scheme.combiner_columns": "all"} if draw.random() < 0.6 else {})


def _estimates(draw: random.Random) -> dict[str, Any]:
    return {"channel.csi_error": 10.0 ** draw.uniform(-14, -1), "privacy.credit_leak": draw.random() < 0.3}


def _blocks(draw: random.Random) -> dict[str, Any]:
    cut = draw.choice([{"coherence_hz": 5e6}, {"coherence_hz": 1e7}, {"coherence_s": 4e-7}])
    turned = {"channel.rotation": True} if draw.random() < 0.3 else {}
    return {f"channel.{key}": value for key, value in cut.items()} | turned


def _selection(draw: random.Random) -> dict[str, Any]:
    way = draw.choice(["aligned", "strongest", "greedy"])
    return {"scheme.selection": way, "scheme.selection_keep": draw.choice([0.5, 0.7])}


def _eavesdropper(draw: random.Random) -> dict[str, Any]:
    where = {"distance_m": 10.0 ** draw.uniform(-1, 7)}
    if draw.random() < 0.5:
        where = {"position": [draw.choice([-1, 1]) * 10.0 ** draw.uniform(-1, 7) for _ in range(2)]}  # type: ignore[dict-item]
    noise = {"noise_density_dbm_hz": draw.choice([-174.0, -200.0])} if draw.random() < 0.6 else {}
    return {"eavesdropper": {"antennas": draw.randint(1, 4), **where, **noise}}


def _impairment(draw: random.Random) -> dict[str, Any]:
    bent = [("phase_error_rad", 0.3), ("clipping_db", 3.0), ("adc_bits", 6), ("interference_dbm", -100.0)]
    key, value = draw.choice(bent)
    signal = {"scheme.uplink": "signal"} if key in ("clipping_db", "adc_bits") else {}
    return {f"channel.{key}": value} | signal


def _dropout(draw: random.Random) -> dict[str, Any]:
    return {"system.dropout": draw.choice([0.1, 0.5])}


def _symbols(draw: random.Random) -> dict[str, Any]:
    return {"channel.symbols": "complex"}


def _fixed(key: str, *values: Any) -> Any:
    return lambda draw: {key: draw.choice(values)}


#: How likely each is, and what it changes.
AXES = (
    (0.45, _sampling), (0.25, _estimates), (0.25, _blocks), (0.15, _symbols), (0.12, _dropout), (0.07, _selection),
    (0.4, _eavesdropper), (0.07, _impairment), (0.35, _fixed("privacy.colluding", 0.2, 0.5, 0.9)),
    (0.4, _fixed("privacy.neighbours", "zero-out", "replace")), (0.3, _fixed("privacy.credited_noise", "receiver")),
    (0.3, _fixed("scheme.uplink", "signal")), (0.3, _fixed("privacy.delta", 1e-6, 1e-3)),
    (0.2, _fixed("scheme.combiner", "zero-forcing", "mrc")), (0.1, _fixed("channel.fading", "rician")),
)  # fmt: skip
#: What many schemes refuse, and schemes that refuse little of it.
HARD = (_estimates, _symbols, _dropout, _selection, _impairment)
TAKES_MOST = (
    *("airfl-mimo", "airfl-dp", "airfl-dp-online", "one-bit", "one-bit-memory", "liu2020", "koda2020"),
    *("airfl-shielded", "zero-sum"),
)


def _shielded(draw: random.Random) -> dict[str, Any]:
    """With power for cover, and a crowd for it, more often than not."""
    if draw.random() < 0.2:
        return {}
    antennas = draw.randint(1, 3)
    way = draw.choice([{}, {"scheme.cover": draw.choice(["quadrature", "masks", "none"])}])
    crowd = {"system.num_devices": draw.randint(max(3, 2 * antennas - 1), 8), "system.num_antennas": antennas}
    link = {"channel.power_w": 10.0 ** draw.uniform(-6, 3), "channel.cell_radius_m": draw.choice([30.0, 1e3, 1e4, 1e6])}
    return {**way, **crowd, **link}


#: What single schemes know.
OWN = {
    "airfl-shielded": _shielded,
    "replacement": lambda draw: {
        "scheme.replacement": draw.choice(["binomial", "multinomial"]),
        "scheme.replacement_cap": draw.choice([1, 2, 4]),
        "system.sampling": "fixed",
    },
    "nc-airfl": lambda draw: {"scheme.uplink": "signal", "scheme.fresh_fading": draw.random() < 0.5},
    "zero-sum": lambda draw: {"scheme.zero_sum_power": 10.0 ** draw.uniform(-1, 6)} if draw.random() < 0.5 else {},
    "tci": lambda draw: {"scheme.truncation_combiner": draw.choice(["strongest", "served", "one"])},
    "tci-memory": lambda draw: {"scheme.truncation_power": draw.choice(["peak", "average", "spread"])},
    "random-orth": lambda draw: {"scheme.gain_feedback": draw.random() < 0.5},
}


def examined(scheme: str, changes: Mapping[str, Any]) -> Found:
    """Run it, and hold what it booked against what was told."""
    config = small_config(dict(changes))
    task = small_task(config)
    radio = open_radio(config, task.trials)
    with quiet():
        simulation = open_simulation(config, scheme, task, radio)
        state, found, rounds = simulation.init(), Found(), list[dict[Observer, Told]]()
        while state.round < config.system.rounds:
            step = simulation.advance(state)
            state, setting = step.after, step.setting
            event = state.ledgers[0].events[-1]
            if setting.over_air:
                rounds.append(adversaries.round_told(simulation.schedule.link, setting))
            else:
                bare: Told = {(device, None): mpf(inf) for device in setting.active[0].tolist()}
                rounds.append(dict.fromkeys(("models", *SEEING), bare))
            found.wrong += [f"round {event.round}: {words}" for words in _event_problems(event, rounds[-1])]
            found.wrong += _heard_problems(simulation, setting, event)
            if setting.detects == "fresh energy":
                chance = adversaries.outage(event.gain_bound, config.system.num_antennas)
                symbols = int(setting.heard.sum()) * config.system.rounds * simulation.schedule.dim
                if chance * symbols > config.channel.csi_outage * (1 + 1e-9):
                    found.wrong.append(f"fading exceeds its bound with a chance of {chance:g} a symbol")
        _compare(simulation, state.ledgers[0], rounds, found)
        if any(event.hides_participation for event in state.ledgers[0].events):
            _redraw(simulation, scheme, radio, found)
        with contextlib.suppress(BudgetError):  # then nothing is released, and no promise made
            simulation.release(state)
            _require_promise(simulation, state.ledgers[0], rounds, found)
    return found


def _event_problems(event: RoundEvent, told: Mapping[Observer, Told]) -> Iterator[str]:
    """What a round's event says too little of."""
    for observer, values in told.items():
        truth = sqrt(max(values.values(), default=mpf(0)))
        if observer in SEEING:
            seen = event.visibility(observer)
            booked = mpf(inf) if seen is None else mpf(seen)
        else:
            booked = event.gain_bound / sqrt(mpf(event.noise_var)) if event.noise_var else mpf(inf)
        if booked < truth * (1 - ROUNDING):
            yield f"{observer} is told {float(truth):.10g}, booked is {float(booked):.10g}"


def _heard_problems(simulation: Simulation, setting: Any, event: RoundEvent) -> Iterator[str]:
    """Whether the uplink itself makes more of a device than is booked; converters add noise of their own to that."""
    exact = setting.detects == "sum" and simulation.config.channel.adc_bits is None
    if not exact or math.isinf(event.clip_norm) or not setting.heard.any():
        return
    dim, count, loudest = simulation.schedule.dim, setting.active.shape[1], int(setting.gains[0].abs().argmax())
    updates = torch.zeros(2, count, dim)
    updates[1, loudest] = 1e3 * event.clip_norm
    places = torch.zeros(count, dtype=torch.int64), torch.arange(count)
    without, heard = (
        simulation.heard(setting, [UpdateBlock(*places, one, torch.zeros(count))]).double() for one in updates
    )
    moved, booked = float((heard - without).norm()), event.clip_norm * event.gain_bound
    if moved > booked * (1 + 1e-5) + 1e-6 * float(without.norm()):
        yield f"a device moved the sum by {moved:.8g}, booked is {booked:.8g}"


def _compare(simulation: Simulation, ledger: Any, rounds: list[dict[Observer, Told]], found: Found) -> None:
    """μ and ε of the run, for everyone who looks."""
    config = simulation.config
    neighbours, delta = config.neighbours, config.privacy.delta
    for observer in sorted({name for told in rounds for name in told}):
        books = make_accountant("gaussian", ledger, neighbours, observer)
        truth, booked = _truth(simulation, ledger, rounds, observer), mpf(books.mu)
        if booked < truth * (1 - ROUNDING):
            found.wrong.append(f"{observer}: μ = {float(truth):.10g}, booked is {float(booked):.10g}")
        epsilon = books.epsilon(delta)
        if truth < 1e6 and adversaries.gaussian_log_excess(epsilon, delta, truth * (1 - ROUNDING)) > 1e-9:
            found.wrong.append(f"{observer}: ε = {epsilon} is too small for μ = {float(truth):.10g}")
        if 0 < truth < 1e15:
            found.ratios[observer] = float(booked / truth)
    if any(event.hides_participation for event in ledger.events):
        epsilon = make_accountant("sampled", ledger, neighbours, "models").epsilon(delta)
        least = _subsampled(simulation, ledger, rounds, epsilon)
        if least > delta * (1 + 1e-6):
            found.wrong.append(f"sampled: at ε = {epsilon} δ is {least}, not {delta}")


def _truth(simulation: Simulation, ledger: Any, rounds: list[dict[Observer, Told]], observer: Observer) -> mpf:
    """μ of the device that is told most of."""
    clip = ledger.events[0].clip_norm if ledger.events else 0.0
    best = adversaries.run_told([told.get(observer, {}) for told in rounds], simulation.config.system.num_devices)
    return _reach(simulation.config.neighbours) * mpf(clip) * sqrt(best) if best else mpf(0)


def _reach(neighbours: Neighbours) -> int:
    return 1 if neighbours == "zero-out" else 2


def _subsampled(simulation: Simulation, ledger: Any, rounds: list[dict[Observer, Told]], epsilon: float) -> float:
    """At least δ(ε) where who takes part is hidden in the rounds that say so, each update counted once or N times."""
    config, hidden = simulation.config, []
    for event, told in zip(ledger.events, rounds, strict=True):
        truth, chances = float(sqrt(max(told.get("models", {}).values(), default=mpf(0)))), (0.0, 1.0)
        if event.hides_participation:
            law = event.sampling
            chances = law.multiplicities if law.replaces else (1 - law.rate, law.rate)
            # Nobody was drawn, or the loudest several times: the noise is that of others who are drawn once.
            truth = 1 / math.sqrt(event.noise_var) if law.replaces or truth == 0.0 else truth
        if truth > 0.0:
            hidden.append(Hidden(chances, truth * event.clip_norm))
    if not hidden or max(item.mu for item in hidden) > FARTHEST:
        return 0.0
    # Zeroed out; or another update in its place, and where exactly K are drawn all others may send the same.
    pairs = [(1.0, 0.0)] if config.neighbours == "zero-out" else [(1.0, -1.0)]
    if config.neighbours == "replace" and ledger.events[0].sampling.law == "without-replacement":
        pairs.append((2.0, 0.0))
    return least_delta(hidden, pairs, epsilon)


def _redraw(simulation: Simulation, scheme: str, radio: Radio, found: Found) -> None:
    """Other draws of who takes part leave the noise and the bounds that were credited."""
    claimed = _claims(simulation.schedule)
    for key in range(1, REDRAWN + 1):
        other = Radio(replace(radio.link, participation_keys=(key,), _last={}))
        found.redrawn += 1
        again = _claims(open_simulation(simulation.config, scheme, simulation.task, other).schedule)
        for t, (one, two) in enumerate(zip(claimed, again, strict=True)):
            alike = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one, two, strict=True))
            if one[0] and not alike:
                found.wrong.append(f"round {t}: credit, noise and bound are {one}, and {two} with other participants")


def _claims(schedule: Schedule) -> list[tuple[bool, float, float]]:
    """Credit, noise and gain bound of all rounds."""
    settings = [schedule.setting(t) for t in range(schedule.norm.shape[1])]
    bounds = [max(float(one.gain_bound[0]), float(one.loudest[0])) for one in settings]
    claimed = zip(settings, bounds, strict=True)
    return [(one.hides_participation[0], float(one.unknown_var[0]), bound) for one, bound in claimed]


def _require_promise(simulation: Simulation, ledger: Any, rounds: list[dict[Observer, Told]], found: Found) -> None:
    """A run that is released keeps in truth what it promises."""
    promise = simulation.schedule.promise
    if promise.epsilon is None or promise.accountant not in PROVEN or simulation.config.scheme.policy is not None:
        return
    for observer in promise.kept:
        if promise.accountant == "sampled" and any(event.hides_participation for event in ledger.events):
            if _subsampled(simulation, ledger, rounds, promise.epsilon) > promise.delta * (1 + 1e-6):
                found.wrong.append(f"the promise of ε = {promise.epsilon} is not kept to {observer}")
            continue
        truth = _truth(simulation, ledger, rounds, "models" if observer == "model" else observer) * (1 - ROUNDING)
        if truth > 1e6 or adversaries.gaussian_log_excess(promise.epsilon, promise.delta, truth) > 1e-9:
            found.wrong.append(
                f"the promise of ε = {promise.epsilon} is not kept to {observer}: μ = {float(truth):.10g}"
            )
