"""The terminal: tables that fit it with every number whole, and notes that can be silenced. Loads nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airfl.wording import plain_console

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of text are made narrower than this only where all of their text is.
LEAST_PROSE = 20

_quiet = False


def be_quiet(quiet: bool = True) -> None:
    """No bars and no notes on standard error; errors stay, and warnings that something may be wrong."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether ``airfl --quiet`` was said."""
    return _quiet


def note(text: str) -> None:
    """A word on standard error that is neither a result nor an error."""
    if not _quiet:
        print(f"airfl: {text}", file=sys.stderr)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        is_prose: whether its text may go over several lines; otherwise every cell stays on one.
    """

    name: str
    justify: Literal["left", "right"] = "left"
    is_prose: bool = False


def words(name: str) -> Column:
    """A column of names: at the left, each on one line."""
    return Column(name)


def numbers(*names: str) -> list[Column]:
    """Columns of numbers: at the right, each on one line."""
    return [Column(name, "right") for name in names]


def prose(name: str) -> Column:
    """A column of text that may go over several lines."""
    return Column(name, is_prose=True)


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    title: str = "",
    *,
    header: bool = True,
    justify: Literal["left", "center"] = "left",
) -> None:
    """A table if the terminal is wide enough for whole numbers, else a block of ``name: value`` lines per row."""
    from rich import box
    from rich.table import Table

    console = plain_console()
    widths = _widths(columns, rows, console.width, header)
    if widths is None:
        _print_blocks(columns, rows, title, console, header)
        return
    table = Table(box=box.SIMPLE, title=title or None, title_justify=justify, show_header=header)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.name, justify=column.justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int, header: bool) -> list[int] | None:
    """The width of every column, without its padding; None where whole words and numbers do not fit side by side."""
    from rich.cells import cell_len

    room = available - 2 * len(columns) - 2
    cells = [[row[place] for row in rows] for place in range(len(columns))]
    heads = [column.name if header else "" for column in columns]
    widest = [max(map(cell_len, (head, *own))) for head, own in zip(heads, cells, strict=True)]
    if sum(widest) <= room:
        return widest
    least = []
    for column, head, own, most in zip(columns, heads, cells, widest, strict=True):
        parts = [word for text in (head, *own) for word in text.split()] if column.is_prose else [*head.split(), *own]
        longest = max(map(cell_len, parts), default=0)
        least.append(min(most, max(longest, LEAST_PROSE)) if column.is_prose else longest)
    left = room - sum(least)
    if left < 0:
        return None
    wishes = [most - fewest for most, fewest in zip(widest, least, strict=True)]
    wanted = max(1, sum(wishes))
    return [fewest + left * wish // wanted for fewest, wish in zip(least, wishes, strict=True)]


def _print_blocks(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str, console: Console, header: bool
) -> None:
    from rich.cells import cell_len

    if title:
        console.print(title, highlight=False)
    for row in rows:
        console.print()
        for column, text in zip(columns, row, strict=True):
            if not text.strip():
                continue
            line = f"{column.name}: {text}" if header and column.name else text
            # A word that is wider than the terminal, such as a path, is not broken: it is there to be copied.
            whole = any(cell_len(word) > console.width for word in line.split())
            console.print(line, highlight=False, soft_wrap=whole)
    console.print()
