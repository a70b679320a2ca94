"""Odd questions to ``airfl plan``: an answer is finite numbers, and what was solved for gives back what was asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.fuzz.inprocess import Ended, call
from tests.fuzz.tally import Outcome, Tally

SCENARIOS = ("factory-floor", "satellite-iot", "satellite-iot", "urban-cell", "urban-cell", "wifi-home")
ODD = ("0", "-1", "nan", "inf", "1e400", "1e-400", "many", "", "[/red]")
#: Options with the powers of ten that are tried.
OPTIONS = {
    "--devices": (0, 8), "--antennas": (0, 3), "--power": (-15, 4), "--distance": (0, 7), "--bandwidth": (0, 10),
    "--carrier": (6, 11), "--parameters": (0, 9), "--rounds": (0, 5), "--clip": (-8, 8), "--delta": (-20, -1),
    "--epsilon": (-4, 4), "--participation": (-4, 0), "--update-norm": (-8, 8), "--alignment": (-4, 0),
    "--snr": (-1, 2), "--noise-var": (-20, 20), "--tolerate": (-3, 3), "--symbol-rate": (0, 9),
    "--power-dbm": (-1, 2), "--noise-figure": (-1, 2), "--antenna-gain": (-1, 2), "--loss": (-1, 2),
    "--path-loss-exponent": (-1, 1.2), "--shadowing": (-1, 1.5), "--interference": (-1, 2), "--speed": (-3, 5),
    "--delay-spread": (-12, -4), "--csi-error": (-6, 0), "--drops": (0, 1),
}  # fmt: skip
WHOLE = ("--devices", "--antennas", "--parameters", "--rounds", "--drops")
#: What can be solved for.
UNKNOWN = (
    *("devices", "antennas", "power", "distance", "snr", "bandwidth", "parameters", "rounds"),
    *("clip", "delta", "epsilon", "noise-var"),
)


def plans(count: int, seed: int, folder: Path) -> Tally:
    """``count`` questions."""
    tally = Tally()
    for number in range(seed, seed + count):
        arguments, solve = _question(random.Random(number))
        solving = ["--solve-for", solve] if solve else []
        ended = call("plan", *arguments, *solving, "--json", folder=folder)
        outcome, seen = _judged(ended)
        if outcome == "ok" and solve:
            outcome, seen = _round_trip(arguments, ended.answer, folder)
        tally.count(outcome, number, f"{' '.join(arguments)} --solve-for {solve}: {seen}")
    return tally


def _question(draw: random.Random) -> tuple[list[str], str | None]:
    asked: dict[str, str] = {}
    for name in draw.sample(list(OPTIONS), draw.choice([0, 1, 2, 3, 6])):
        value = 10.0 ** draw.uniform(*OPTIONS[name])
        asked[name] = str(round(value)) if name in WHOLE else f"{value:.5g}"
    if draw.random() < 0.2:
        asked["--sampling"] = draw.choice(["fixed", "poisson", "other"])
    if draw.random() < 0.2:
        asked["--layout"] = draw.choice(["disk", "ring", "line"])
    if draw.random() < 0.15:
        asked[draw.choice(list(OPTIONS))] = draw.choice(ODD)
    solve = draw.choice([*UNKNOWN, "nothing"]) if draw.random() < 0.5 else None
    start = [draw.choice(SCENARIOS)] if draw.random() < 0.9 else []
    return [*start, *(f"{name}={value}" for name, value in asked.items())], solve


def _judged(ended: Ended) -> tuple[Outcome, str]:
    outcome, seen = ended.judged()
    if outcome != "ok":
        return outcome, seen
    try:
        answer = ended.answer
    except (ValueError, IndexError) as error:
        return "silent_difference", f"no JSON: {error}"
    epsilon = answer["epsilon"]
    pair = epsilon["model"], epsilon["base-station"]
    if None not in pair and pair[0] > pair[1] * (1 + 1e-6):
        return "silent_difference", f"the models tell more ({pair[0]}) than all antennas do ({pair[1]})"
    return "ok", ""


def _round_trip(arguments: list[str], answer: dict[str, Any], folder: Path) -> tuple[Outcome, str]:
    """The plan with the solution put in keeps the ε that was asked for."""
    name, value = answer["solved_for"]["name"], answer["solved_for"]["value"]
    asked = answer["quantities"]["epsilon"]
    if name in ("epsilon", "snr", "noise-var"):  # ε is the answer; the others stand for a link that is named already
        return "ok", ""
    others = [argument for argument in arguments if not argument.startswith(f"--{name}=")]
    again = call("plan", *others, f"--{name}={value!r}", "--json", folder=folder)
    outcome, seen = _judged(again)
    if outcome != "ok":
        return "silent_difference", f"with {name} = {value}: {outcome} {seen or again.error}"
    free, delta = again.answer["epsilon"]["model"], answer["quantities"]["delta"]
    if free is None or free > asked * (1 + 1e-6):
        return "silent_difference", f"{name} = {value} leaves ε = {free} at δ = {delta}, asked was {asked}"
    return "ok", ""
