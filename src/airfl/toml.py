"""TOML text as plain data, or one sentence that says why it is none."""

from __future__ import annotations

import tomllib
from typing import Any

from airfl.errors import InputError

#: Tables and lists within each other that a file may have; ours have three.
DEEPEST = 32


def parse_toml(text: str, what: str = "") -> dict[str, Any]:
    """Plain data of a TOML text; ``what`` opens the sentence that says why it is none."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a whole number of more digits than Python reads
        reason = "its values are nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(f"{what}{' is ' if what else ''}not valid TOML: {reason}") from None
    level: list[Any] = [values]
    for _ in range(DEEPEST):  # not by recursion: what is deeper than Python's stack cannot be printed or compared
        level = [part for item in level for part in _parts(item)]
    if level:
        raise InputError(f"{what or 'the file'} nests values more than {DEEPEST} deep; no key takes such a value")
    return values


def _parts(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []
