"""What hiding from the base station costs on a planned link: a few rounds of it, given to the code that runs use.

A few rounds are drawn and taken again with devices in each other's places (``relabelled``). What T rounds tell is taken
as T/L times what the L rounds tell that come of it, so these get the L/T-th part of the budget's μ². With fewer rounds
luck averages out less, so that is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airfl.analysis.drawn_law import draw_law
from airfl.analysis.relabelled import RelabelledRounds, relabelled_rounds
from airfl.channel.budget import power_limit_w
from airfl.config import Config, from_mapping
from airfl.errors import InputError
from airfl.linkplan import Quantities, answer, law_of
from airfl.linkplan.accuracy import shipped
from airfl.linkplan.answer import against_update
from airfl.linkplan.blocks import grid_of
from airfl.linkplan.law import MOST_ANTENNAS
from airfl.linkplan.link import channel_of, channel_values
from airfl.linkplan.quantities import word_of
from airfl.parallel import one_per_thread, torch_threads
from airfl.privacy import Ledger, Observer, PrivacyError, gaussian_epsilon, gaussian_mu
from airfl.privacy.ratios import seen_mu, squared_sum
from airfl.rounds import Schedule, book, make_promise
from airfl.rounds.arrange import arrange_rounds
from airfl.rounds.enough import hides_within, missing_db, spare_db
from airfl.rounds.hiding import Kind, Problem
from airfl.rounds.shield import cover_kind
from airfl.schemes import SCHEMES
from airfl.transceiver import Radio

#: Channel coefficients of a round, n·m, that are drawn at most, and for other numbers of antennas than was asked about.
MOST_COEFFICIENTS, SEARCH_COEFFICIENTS = 2_000_000, 500_000
#: Rounds that are drawn, at least and at most, and rounds that are made of them.
LEAST_ROUNDS, MOST_ROUNDS, MADE_ROUNDS = 4, 16, 64
#: More than the least where that many coefficients, and that many cubes of 2m, are not exceeded: seconds.
COEFFICIENTS, CUBES = 400_000, 64_000_000
#: Time for combiners where other numbers of antennas are tried, over the usual.
SEARCH_EFFORT = 0.1
#: What is set for `airfl-shielded` in two rows of the table. No run is refused by a price of 1,000 dB.
SHIELDED: dict[str, dict[str, Any]] = {
    "shielded": {"scheme.cover_price_db": 1000.0},
    "own-noise": {"scheme.cover": "none"},
}


@dataclass(frozen=True)
class CoverRow:
    """What one way to keep the budget costs and tells.

    Attributes:
        noise_std: of one real coordinate of the sum.
        price_db: that noise over a trusted base station's.
        noise_to_update, accuracy_cost: as in ``linkplan.Answer``.
        epsilon: by observer; None: no finite one. Of a trusted base station that of the plan.
    """

    scheme: str
    noise_std: float
    price_db: float
    noise_to_update: float
    accuracy_cost: float
    epsilon: dict[Observer, float | None]


@dataclass(frozen=True)
class CoverPlan:
    """What hiding from the base station costs.

    Attributes:
        kind: what devices hide in.
        power_db: power of update and cover over that of the update alone.
        limit_db: the price from which on a run is refused.
        is_enough: whether the power is there.
        spare_db: by how much it may fall; None: it is not enough, or any lower power is.
        missing_db: how much is missing; None: nothing, or no power is enough.
        rows: ``trusted``, ``shielded`` and ``own-noise``; None where no such noise keeps the promise.
        rounds: how many were drawn.
        made_rounds: how many were made of them.
        most_antennas: the most with which the price is within the limit at this power; None: not even one.
        tried_antennas: the largest number that was looked at.
        not_antennas: smaller numbers than ``most_antennas``, of those tried, that are not within the limit.
    """

    kind: Kind
    power_db: float
    limit_db: float
    is_enough: bool
    spare_db: float | None
    missing_db: float | None
    rows: dict[str, CoverRow | None]
    rounds: int
    made_rounds: int
    most_antennas: int | None
    tried_antennas: int
    not_antennas: tuple[int, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """What ``airfl plan --json`` prints under ``shielded``."""
        rows = {name: None if row is None else vars(row) for name, row in self.rows.items()}
        return {**vars(self), "not_antennas": list(self.not_antennas), "rows": rows}


def plan_cover(
    q: Quantities,
    seed: int = 0,
    advance: Callable[[int], None] = lambda steps: None,
    kept: Mapping[str, float | None] | None = None,
) -> CoverPlan:
    """Draw a few rounds of a link and work out what it takes to hide its devices from the base station.

    Args:
        q: complete, for a link.
        advance: hears of every step of about ``steps(q)``.
        kept: ``epsilon_kept`` of the plan of this link, what nobody hides from whom; default: worked out.
    """
    check_link(q)
    kept = answer(q, law=law_of(q, draw=draw_law)).epsilon_kept if kept is None else kept
    with torch_threads(1):  # many small matrices
        found = _cover(q, seed, advance)
    trusted = found["rows"]["trusted"]
    # Who is unlucky in few rounds decides what they tell an open base station: the plan's law knows better.
    found["rows"]["trusted"] = replace(trusted, epsilon={name: kept[name] for name in trusted.epsilon})
    antennas = _most_antennas(q, seed, found["is_enough"], advance)
    return CoverPlan(**found, **antennas)


def _cover(q: Quantities, seed: int, advance: Callable[[int], None]) -> dict[str, Any]:
    """All but the numbers of antennas."""
    assert q.antennas is not None
    config, radio = few_rounds_of(q, q.antennas, seed)
    trusted = arrange_rounds(config, SCHEMES["airfl-dp"], radio, q.parameters or 1)
    noise = float(trusted.noise_var.mean())
    rows: dict[str, CoverRow | None] = {"trusted": _row(q, trusted, noise)}
    advance(1)
    power_db, price_db = 0.0, math.inf
    for name, change in SHIELDED.items():
        changed = config.replace(change)
        try:
            schedule = arrange_rounds(changed, SCHEMES["airfl-shielded"], radio.at(changed), q.parameters or 1)
        except (InputError, PrivacyError):
            rows[name] = None
        else:
            rows[name] = _row(q, schedule, noise)
            if name == "shielded":
                power_db, price_db = schedule.shields[0].used.power_db, schedule.shields[0].price_db
        advance(1)
    kind, limit = cover_kind(config, q.active), config.scheme.cover_price_db
    problem = _problem(config, radio, q.parameters or 1, kind)
    is_enough = price_db <= limit
    found = {
        "kind": kind,
        "power_db": power_db,
        "limit_db": limit,
        "is_enough": is_enough,
        "spare_db": spare_db(problem, kind) if is_enough else None,
        "missing_db": None if is_enough else missing_db(problem, kind),
        "rows": rows,
        "rounds": radio.link.period,
        "made_rounds": config.system.rounds,
    }
    advance(1)
    return found


def check_link(q: Quantities) -> None:
    """Refuse in one sentence what cannot be drawn."""
    if q.noise_var is not None:
        raise InputError(
            "--observer base-station asks what antennas hear, and --noise-var does not say; give --power, --distance "
            "and --bandwidth, or --snr, in its place"
        )
    link = ("snr_db",) if q.snr_db is not None else ("power_w", "distance_m", "bandwidth_hz")
    needed = ("devices", "antennas", "parameters", "rounds", "epsilon", *link)
    given = {name: getattr(q, name) for name in needed} | ({} if q.limit_w is None else {"power_w": q.limit_w})
    missing = [f"--{word_of(name)}" for name in needed if given[name] is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing: what hiding from the base station costs depends on it")
    grid = grid_of(q)
    if grid is not None and (grid.count > 1 or grid.per_symbol > 1):
        what = "complex symbols" if grid.count == 1 else f"{grid.count:,} blocks a round"
        raise InputError(
            f"hiding from the base station is not simulated with {what}; leave out --observer, or what says so"
        )
    assert q.devices is not None
    assert q.antennas is not None
    if q.devices * q.antennas > MOST_COEFFICIENTS:
        raise InputError(
            f"{q.devices:,} devices with {q.antennas} antennas are more channels than --observer base-station draws, "
            f"{MOST_COEFFICIENTS:,}; ask about fewer devices or antennas"
        )


def steps(q: Quantities) -> int:
    """About how often ``plan_cover`` advances."""
    return 2 + len(SHIELDED) + len(_rungs(q)) + 6


def few_rounds_of(q: Quantities, antennas: int, seed: int = 0, effort: float = 1.0) -> tuple[Config, RelabelledRounds]:
    """A run of few rounds of this link, with the part of the budget that they get, and its radio."""
    assert q.rounds is not None
    assert q.devices is not None
    assert q.epsilon is not None
    made = min(MADE_ROUNDS, max(LEAST_ROUNDS, CUBES // (2 * antennas) ** 3))
    drawn = min(made, MOST_ROUNDS, max(LEAST_ROUNDS, COEFFICIENTS // (q.devices * antennas)))
    rounds = min(q.rounds, made)
    mu = gaussian_mu(q.epsilon, q.delta) * math.sqrt(rounds / q.rounds)
    delta = min(q.delta, 0.1 * mu)  # small enough for an ε above zero
    values = {
        "name": "plan",
        "system": {
            "seed": seed,
            "num_devices": q.devices,
            "num_antennas": antennas,
            "participation": q.participation,
            "rounds": rounds,
        },
        "learning": {"local_steps": 1, "clip_norm": q.clip_norm or 1.0},
        "channel": _channel_of(q),
        "privacy": {
            "epsilon": gaussian_epsilon(delta, mu),
            "delta": delta,
            "accountant": "gaussian",
            "neighbours": q.relation,
        },
        "scheme": {"names": ["airfl-dp", "airfl-shielded"], "effort": effort},
    }
    try:
        config = from_mapping(values)
    except InputError as error:
        raise InputError(f"a run of this link cannot be drawn: {error}") from None
    return config, relabelled_rounds(config, drawn)


def _channel_of(q: Quantities) -> dict[str, Any]:
    """The link's part of the configuration; where only the SNR is known, a power with it."""
    values = channel_values(q)
    return values if values.pop("snr_db", None) is None else {**values, "power_w": power_limit_w(channel_of(q))}


def _row(q: Quantities, schedule: Schedule, trusted: float) -> CoverRow:
    """One row of the table, with what the ledger of the few rounds says of all of them."""
    rounds = schedule.active.shape[1]
    ledger = Ledger()
    for t in range(rounds):
        ledger = book(schedule, schedule.setting(t), lambda row: None)[0].on(ledger)
    again = math.sqrt((q.rounds or 1) / rounds)

    def epsilon(mu: float) -> float | None:
        found = gaussian_epsilon(q.delta, again * mu)
        return found if math.isfinite(found) else None

    noise = float(schedule.noise_var.mean())
    ratio, residual = against_update(q, noise)
    return CoverRow(
        schedule.scheme.name,
        math.sqrt(noise),
        10.0 * math.log10(noise / trusted),
        ratio,
        shipped(q.parameters).cost(residual),
        {
            "models": epsilon(math.sqrt(squared_sum(ledger, q.relation))),
            "base-station": epsilon(seen_mu(ledger, q.relation, "base-station")),
        },
    )


def _problem(config: Config, radio: Radio, dim: int, kind: Kind) -> Problem:
    """What the search for a cover starts from."""
    trusted, link = arrange_rounds(config, SCHEMES["airfl-dp"], radio, dim), radio.link
    promise = make_promise(config, dim, link.noise_power, None, SCHEMES["airfl-shielded"])
    unit = trusted.combiner[0] / trusted.norm[0].unsqueeze(-1)
    rows = trusted.minimum[0], trusted.gain_bound[0], np.asarray(trusted.planned[0]), unit
    problem = Problem(config, link, 0, promise, *rows, dim)
    problem.follow([kind])
    return problem


def _rungs(q: Quantities) -> list[int]:
    """Numbers of antennas that are tried first: powers of two, and what was asked about."""
    most = min(MOST_ANTENNAS, SEARCH_COEFFICIENTS // (q.devices or 1))
    doubled = [2**k for k in range(MOST_ANTENNAS.bit_length()) if 2**k <= most]
    return sorted({*doubled, q.antennas or 1})


def _most_antennas(q: Quantities, seed: int, is_enough: bool, advance: Callable[[int], None]) -> dict[str, Any]:
    """The largest number within the limit, the largest that was tried, and smaller ones that are not within it.

    More antennas do not always make it harder: they also leave more power for cover, and from K < 2m − 1 on masks take
    the place of noise in quadrature. So all rungs are tried, and the step above the last good one is halved.
    """

    def hides(antennas: int) -> bool:
        if antennas == q.antennas:
            return is_enough
        config, radio = few_rounds_of(q, antennas, seed, SEARCH_EFFORT)
        kind = cover_kind(config, q.active)
        hidden = hides_within(_problem(config, radio, q.parameters or 1, kind), kind)
        advance(1)
        return hidden

    rungs = _rungs(q)
    good = dict(zip(rungs, one_per_thread(hides, rungs), strict=True))
    low = max((rung for rung in rungs if good[rung]), default=0)
    high = min((rung for rung in rungs if rung > low), default=low)
    with torch_threads(1):
        while low and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if hides(middle) else (low, middle)
    return {
        "most_antennas": low or None,
        "tried_antennas": rungs[-1],
        "not_antennas": tuple(rung for rung in rungs if rung < low and not good[rung]),
    }
