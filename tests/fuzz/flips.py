"""Single flipped bits in the files of a finished run: it loads to what it was, or is refused."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import airfl
from tests.fuzz.inprocess import call
from tests.fuzz.tally import Outcome, Tally
from tests.golden import LINEAR


def flips(count: int, seed: int, folder: Path) -> Tally:
    """``count`` flips, each in a fresh copy, spread over the files of a run."""
    whole, copy = folder / "whole", folder / "copy"
    if not whole.exists():
        source = folder / "run.toml"
        source.write_text(
            airfl.preset("paper").replace({**LINEAR, "scheme.names": ["airfl-dp"]}).to_toml(), encoding="utf-8"
        )
        made = call("run", str(source), "--out", str(whole), "--json", folder=folder)
        assert made.code == 0, made.error
    expected = _content(whole)
    epsilon = call("epsilon", "--ledger", str(whole / "ledger.json"), "--json", folder=folder).answer
    files = sorted(
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.is_file() and path.suffix not in (".html", ".png", ".pdf")
    )
    assert _judged(whole, expected, epsilon, folder) == ("ok", "")
    tally = Tally()
    for number in range(seed, seed + count):
        draw = random.Random(number)
        name = files[number % len(files)]
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        place = flip_bit(draw, copy / name)
        if place is None:
            tally.count("ok", number)
            continue
        outcome, seen = _judged(copy, expected, epsilon, folder)
        tally.count(outcome, number, f"{name}, bit {place}: {seen}")
    return tally


def flip_bit(draw: random.Random, path: Path) -> int | None:
    """Flip a bit of a file; its place, None where there is none to flip."""
    data = bytearray(path.read_bytes())
    if not data:
        return None
    place = draw.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    return place


def _judged(copy: Path, expected: Any, epsilon: Any, folder: Path) -> tuple[Outcome, str]:
    refused = False
    try:
        if _content(copy) != expected:
            return "silent_difference", "loads as something else"
    except (airfl.InputError, ValueError) as error:
        if type(error).__name__ not in ("InputError", "PrivacyError") or "\n" in str(error):
            return "traceback", f"load: {error!r}"
        refused = True
    except Exception as error:
        return "traceback", f"load: {error!r}"
    for command in (["report", str(copy), "--json"], ["epsilon", "--ledger", str(copy / "ledger.json"), "--json"]):
        ended = call(*command, folder=folder)
        outcome, seen = ended.judged()
        if outcome == "refused":
            refused = True
        elif outcome != "ok":
            return outcome, f"{command[0]}: {seen}"
        elif command[0] == "epsilon" and ended.answer != epsilon:
            return "silent_difference", "epsilon of the ledger is another one"
    return ("refused" if refused else "ok"), ""


def _content(folder: Path) -> Any:
    """All that a run says, but for where it lies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = airfl.load(folder)
    models = {name: s.models.numpy().tobytes() for name, s in result.schemes.items() if s.models is not None}
    ledgers = {name: [book.to_mapping() for book in s.ledgers] for name, s in result.schemes.items()}
    summary = {key: value for key, value in result.summary.items() if key != "out"}
    return (
        json.dumps([summary, ledgers, result.config.to_mapping(), result.provenance], sort_keys=True),
        models,
        repr(result.rounds),
    )
