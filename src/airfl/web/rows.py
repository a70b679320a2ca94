"""Which rows, in which order, which page. ``static/rows.js`` does the same for an export; a test compares them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airfl.web.items import Row
from airfl.web.limits import PAGE_ROWS

_WORD = re.compile(r"([\w.\-]+)(<=|>=|=|<|>)(.+)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?", re.ASCII)
#: Columns that can be asked for beside the settings of a study.
COLUMNS = ("folder", "name", "scheme", "status", "kind", "trials", "failed", "rounds", "accuracy", "epsilon")


def chosen(rows: Iterable[Row], wanted: str = "", folder: str = "") -> list[Row]:
    """Rows that have every word; a word is text, or a column or setting, a sign (= < > <= >=) and a value.

    Args:
        folder: only what lies there.
    """
    tests = [_test(word) for word in wanted.lower().split()[:20]]
    inside = f"{folder}/"
    return [
        row
        for row in rows
        if (not folder or row["folder"] == folder or row["folder"].startswith(inside)) and all(t(row) for t in tests)
    ]


def ordered(rows: Sequence[Row], by: str) -> list[Row]:
    """Rows by a column or a setting, the largest first where a minus stands before it; as they were otherwise."""
    if not by:
        return list(rows)
    name, down = by.lstrip("-"), by.startswith("-")
    known = [(value, row) for row in rows if (value := value_of(row, name)) is not None]
    missing = [row for row in rows if value_of(row, name) is None]
    numbers = [(value, row) for value, row in known if isinstance(value, float)]
    texts = [(str(value).lower(), row) for value, row in known if not isinstance(value, float)]
    sides = [sorted(part, key=lambda pair: pair[0], reverse=down) for part in (numbers, texts)]
    return [row for side in sides for _, row in side] + missing


def paged(rows: Sequence[Row], page: int) -> tuple[Sequence[Row], int, int]:
    """One page of rows, its number, and how many there are."""
    pages = max(1, math.ceil(len(rows) / PAGE_ROWS))
    number = min(max(1, page), pages)
    return rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], number, pages


def value_of(row: Row, name: str) -> float | str | None:
    """A column or a setting of a row; a setting also by the last part of its key."""
    if name in COLUMNS:
        value = row[name]
        if name == "epsilon" and value is None:
            return math.inf if row["trials"] else None
        return float(value) if isinstance(value, int | float) else value
    settings: dict[str, str] = row["settings"]
    found = settings.get(name)
    if found is None:
        found = next((text for key, text in settings.items() if key.partition(".")[2] in (name, f"num_{name}")), None)
    return None if found is None else _number(found.lower())


def axes_of(rows: Iterable[Row]) -> list[str]:
    """Every setting that some row has."""
    return list(dict.fromkeys(key for row in rows for key in row["settings"]))


def _number(text: str) -> float | str:
    if text in ("∞", "inf"):
        return math.inf
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]):
        return float(text[:-1]) / 100.0
    return float(text) if _NUMBER.fullmatch(text) else text


def _test(word: str) -> Callable[[Row], bool]:
    found = _WORD.fullmatch(word)
    if found is None:
        return lambda row: word in _text(row)
    name, sign, wanted = found[1], found[2], _number(found[3])

    def test(row: Row) -> bool:
        value = value_of(row, name)
        if value is None:
            return False
        if sign == "=":
            return (value.lower() if isinstance(value, str) else value) == wanted
        if not isinstance(value, float) or not isinstance(wanted, float):
            return False
        return _compare(sign, value, wanted)

    return test


def _compare(sign: str, value: float, wanted: float) -> bool:
    return {"<": value < wanted, ">": value > wanted, "<=": value <= wanted, ">=": value >= wanted}[sign]


def _text(row: Row) -> str:
    """What a word without a sign is looked for in."""
    said: list[Any] = [row[name] for name in ("folder", "name", "scheme", "status", "kind")]
    return " ".join([*map(str, said), *(f"{key}={value}" for key, value in row["settings"].items())]).lower()
