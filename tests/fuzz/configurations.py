"""Odd configurations through ``airfl run``: they run and load to what was printed, or are refused and leave nothing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import tomli_w

import airfl
from airfl import catalogue
from airfl.config import Config, Section
from tests.fuzz.inprocess import Ended, call
from tests.fuzz.tally import Outcome, Tally
from tests.golden import LINEAR, VARIANTS

#: Sizes are a few, or more than any machine has: what lies between would only take long.
SIZES = {
    *("trials", "num_devices", "num_antennas", "rounds", "samples_per_device", "local_epochs", "local_steps"),
    *("antennas", "mask_degree"),
}
FEW, FAR = (1, 2, 3, 7), (10**9, 10**12, 10**18, 2**63 - 1, 2**63)
ODD: tuple[Any, ...] = (
    0,
    -1,
    1e39,
    1e-46,
    1e308,
    5e-324,
    2**70,
    "",
    "..",
    "[/red]",
    "no.such:thing",
    [],
    {},
    True,
    "nan",
)
#: Keys that take a part by its name.
NAMES = {
    ("system", "sampling"): catalogue.PARTICIPATION,
    ("channel", "fading"): catalogue.FADING_LAWS,
    ("privacy", "accountant"): ("auto", *catalogue.ACCOUNTANTS),
    ("scheme", "combiner"): catalogue.COMBINERS,
    ("engine", "backend"): catalogue.ENGINES,
}
FLOATS = (1e-300, 1e-12, 1e-5, 0.01, 0.3, 0.5, 0.9, 0.999999, 1.0, 2.0, 30.0, 1e4, 1e12, 1e100)


def configurations(count: int, seed: int, folder: Path) -> Tally:
    """``count`` configurations."""
    tally = Tally()
    for number in range(seed, seed + count):
        values = _odd(random.Random(number))
        source, out = folder / f"config-{number}.toml", folder / f"run-{number}"
        source.write_text(tomli_w.dumps(values), encoding="utf-8")
        ended = call("run", str(source), "--out", str(out), "--json", folder=folder)
        outcome, seen = _judged(ended, out)
        left = sorted(item.name for item in folder.iterdir() if item != source)
        if outcome == "refused" and ended.code == 2 and left:
            outcome, seen = "silent_difference", f"left behind: {', '.join(left)}"
        tally.count(outcome, number, seen)
        shutil.rmtree(out, ignore_errors=True)
        source.unlink()
    return tally


def _odd(draw: random.Random) -> dict[str, Any]:
    """A small run with a few keys changed: to what they may be, to the ends of that, or to anything."""
    base = airfl.preset("paper").replace({**LINEAR, "system.trials": 1, "scheme.names": ["airfl-dp"]})
    if draw.random() < 0.5:
        base = base.replace({**VARIANTS[draw.choice(list(VARIANTS))], "learning.model": "softmax"})
    values = base.to_mapping()
    if draw.random() < 0.2:
        values["eavesdropper"] = {"distance_m": draw.choice([1e-3, 1.0, 50.0, 1e6])}
    for _ in range(draw.choice([1, 1, 2, 3, 5])):
        section = draw.choice([name for name, kind in _sections().items() if kind is not None])
        key = draw.choice(
            [*_sections()[section].model_fields, "no_such_key"]
            if draw.random() < 0.05
            else list(_sections()[section].model_fields)
        )
        value = _value(draw, section, key)
        if value is not None:
            values.setdefault(section, {})[key] = value
        elif section in values:
            values[section].pop(key, None)
    if draw.random() < 0.05:
        values[draw.choice(["name", "system", "learning", "extra"])] = draw.choice(ODD)
    return values


def _sections() -> dict[str, type[Section]]:
    found = {name: (field.annotation, *get_args(field.annotation)) for name, field in Config.model_fields.items()}
    return {
        name: kind
        for name, kinds in found.items()
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Section)
    }


def _value(draw: random.Random, section: str, key: str) -> Any:
    """A value for a key; None takes it out."""
    kind = draw.random()
    if kind < 0.1:
        return draw.choice(ODD)
    if kind < 0.15:
        return None
    if key in SIZES:
        return draw.choice(FEW) if draw.random() < 0.7 else draw.choice(FAR)
    if key == "batch_size":
        return draw.choice([*FEW, 10**6, *FAR])
    if section == "scheme" and key == "names":
        return draw.sample(list(catalogue.SCHEMES), 2)
    if (section, key) in NAMES:
        return draw.choice([*NAMES[section, key], "other", "tests.golden:images"])
    field = _sections()[section].model_fields.get(key)
    choices = _literals(field.annotation) if field is not None else []
    if choices:
        return draw.choice([*choices, "other"])
    if field is not None and field.annotation is bool:
        return draw.choice([True, False, "yes"])
    if field is not None and field.annotation is str:
        return draw.choice(["digits", "softmax", "none", "os:getcwd", "tests.golden:images", "mlp"])
    return draw.choice(FLOATS) * draw.choice([1.0, 1.0, 1.0, 0.3, 7.0])


def _literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) if get_origin(part) is Literal for value in get_args(part)]


def _judged(ended: Ended, out: Path) -> tuple[Outcome, str]:
    outcome, seen = ended.judged((1, 2, 3))  # a run may diverge, or exceed its budget
    if outcome != "ok":
        return outcome, seen
    try:
        printed, kept = ended.answer, airfl.load(out).summary
    except Exception as error:
        return "silent_difference", f"what was written does not load: {error!r}"
    different = [key for key in printed if printed[key] != kept.get(key)]
    return ("silent_difference", f"loaded otherwise: {different}") if different else ("ok", "")
