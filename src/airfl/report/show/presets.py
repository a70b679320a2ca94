"""The presets on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from airfl.terminal import print_table, prose, words
from airfl.wording import plain_console


def print_presets(texts: Mapping[str, str]) -> None:
    """Names with the comment that opens each preset."""
    rows = []
    for name, text in texts.items():
        comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
        rows.append((name, " ".join(line.removeprefix("#").strip() for line in comment)))
    print_table([words("preset"), prose("what it is")], rows)
    line = "Run one with: airfl run NAME      Read one with: airfl presets NAME"
    plain_console().print(line, style="dim", highlight=False)
