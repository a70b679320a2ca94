"""What the planner answers: the very answer of ``airfl plan``, with the words and lines that a page shows of it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import tomli_w

from airfl import linkplan
from airfl.linkplan import Answer
from airfl.linkplan.accuracy import Check, study_check
from airfl.linkplan.phases import no_diagram, phases_of, places, squared_at_0_db
from airfl.linkplan.quantities import Quantities, word_of
from airfl.linkplan.show import in_short, observer_rows, sentences, solved_text, warnings
from airfl.web.controls import Asked, controls
from airfl.web.drawing import Drawer
from airfl.wording import OBSERVER_WORDS, epsilon_meaning, epsilon_text

#: Points of a line of the diagram.
POINTS = 40
#: What moves no line: they are stated at an SNR, for a level of their own.
_UNMOVED: dict[str, Any] = {
    **dict.fromkeys(("power_w", "power_dbm", "interference_dbm", "clip_factor", "update_norm", "symbol_rate_hz")),
    **{"antenna_gain_dbi": 0.0, "device_gain_dbi": 0.0, "loss_db": 0.0, "snr_db": 0.0, "alignment": 1.0},
    **{"epsilon": 1.0, "clip_norm": 1.0, "devices": 2},
}


def answer_to(asked: Asked, drawer: Drawer, *, live: bool = False) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
        live: answer at once or not at all: channels that were not drawn yet are not drawn now (``NotDrawn``).
    """
    given = asked.given
    tolerated, drops = given.pop("tolerated", None), given.pop("drops", None)
    draw = drawer.known if live else drawer.draw
    found = linkplan.plan(asked.scenario, given, asked.solve_for, tolerated, drops, draw=draw)
    check = _check()
    return {
        "answer": {**found.summary, "prediction_check": None if check is None else check.summary, "shielded": None},
        "title": asked.scenario or "plan",
        "short": in_short(found.quantities),
        "observers": _observers(found),
        "verdict": _verdict(found),
        "sentences": sentences(found, check),
        "warnings": warnings(found),
        "solved": _solved(found),
        "values": _values(found),
        "command": shlex.join(asked.words),
        "toml": scenario_toml(found, asked),
        "phase": _phase(found),
    }


@lru_cache(maxsize=1)
def _check() -> Check | None:
    return study_check()


def _observers(answer: Answer) -> list[dict[str, Any]]:
    """Who learns how much, and what that means."""
    rows = []
    for row in observer_rows(answer):
        name = row["observer"]
        known = row["free ε"] != "?"
        rows.append(
            {
                "observer": name,
                "who": OBSERVER_WORDS[name],
                "free": row["free ε"],
                "free_words": epsilon_meaning(answer.epsilon[name]) if known else "not known without a link",
                "kept": row["ε kept"],
                "kept_words": epsilon_meaning(answer.epsilon_kept[name]) if known else "not known without a link",
            }
        )
    return rows


def _verdict(answer: Answer) -> dict[str, Any]:
    """The answer in one line."""
    target = epsilon_text(answer.quantities.epsilon)
    if answer.solved_for == "epsilon":
        words = f"The noise gives ε = {target}: that is the target"
    elif answer.is_perk:
        words = f"DP is a perk: ε = {target} is met with {answer.margin_db:.1f} dB to spare"
    elif answer.snr_db is None:
        words = f"DP is not a perk: ε = {target} needs {-answer.margin_db:.1f} dB more noise"
    else:
        words = f"DP is not a perk: for ε = {target} the link is {-answer.margin_db:.1f} dB too good"
    cost = answer.accuracy_cost
    points = None if cost is None else "less than 0.1" if 100.0 * cost < 0.05 else f"{100.0 * cost:.1f}"
    return {
        "words": words,
        "is_perk": answer.is_perk,
        "margin": f"{answer.margin_db:+.1f} dB".replace("-", "−"),
        "cost": None if points is None else f"{points} points",
    }


def _solved(answer: Answer) -> dict[str, Any] | None:
    if answer.solved_for is None:
        return None
    value = getattr(answer.quantities, answer.solved_for)
    return {"name": word_of(answer.solved_for), "text": solved_text(answer), "value": repr(value)}


def _values(answer: Answer) -> dict[str, str | None]:
    """What every control stands for now, in the command's own units: given, of the scenario, solved or a default."""
    q = answer.quantities
    found = {name: vars(q).get(control.field) for name, control in controls().items()}
    found["active"] = q.active if q.devices is not None else None
    found["neighbours"] = q.relation
    found["tolerate"], found["drops"] = answer.tolerated, answer.drops
    if answer.snr_db is not None:
        found["snr"] = answer.snr_db
    if found.get("power-dbm") is None and answer.power_dbm is not None:
        found["power-dbm"] = answer.power_dbm
    if found.get("power") is None:
        found["power"] = answer.power_w
    return {name: None if value is None else str(value) for name, value in found.items()}


def scenario_toml(answer: Answer, asked: Asked) -> str:
    """A scenario file that says all of it: ``airfl plan FILE`` gives the same answer."""
    values = {name: value for name, value in vars(answer.quantities).items() if value is not None}
    defaults = vars(Quantities())
    said = {name: value for name, value in values.items() if value != defaults.get(name) or name in ("delta",)}
    options = [f"--{name} {asked.texts[name]}" for name in ("tolerate", "drops") if name in asked.texts]
    head = f"# airfl plan FILE{''.join(f' {option}' for option in options)}\n"
    return head + tomli_w.dumps(said)


def _phase(answer: Answer) -> dict[str, Any]:
    """The lines of the diagram and the point, or why there is none."""
    why = no_diagram(answer)
    if why is not None:
        return {"why": f"{why[0].upper()}{why[1:]}."}
    q = answer.quantities
    assert answer.snr_db is not None
    found = phases_of(answer, POINTS, _at_0_db(replace(q, **_UNMOVED, neighbours=q.relation)))
    return {
        "devices": found.devices.tolist(),
        "target": {"epsilon": epsilon_text(q.epsilon), "snr_db": found.target.tolist()},
        "curves": [{"epsilon": epsilon_text(e), "snr_db": curve.tolist()} for e, curve in found.curves],
        "point": {"devices": q.devices, "snr_db": answer.snr_db},
        "free": epsilon_text(answer.epsilon["models"]),
    }


@lru_cache(maxsize=256)
def _at_0_db(q: Quantities) -> np.ndarray:
    return squared_at_0_db(q, places(q, POINTS))
