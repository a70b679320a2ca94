"""The terminal: tables that fit it with every number whole, and notes that can be silenced. Loads nothing heavy."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airfl.wording import plain_console

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of text are made narrower than this only where all of their text is.
LEAST_PROSE = 16

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
        warn(text)


def warn(text: str) -> None:
    """A warning on standard error: it stays where quiet was said."""
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
        table.add_column(_folded(column.name, width), justify=column.justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int, header: bool) -> list[int] | None:
    """The width of every column, without its padding; None where whole words and numbers do not fit side by side."""
    from rich.cells import cell_len

    room = available - 3 * len(columns) - 1  # a space at each side of a column, and one between them and at the edges
    cells = [[row[place] for row in rows] for place in range(len(columns))]
    heads = [column.name if header else "" for column in columns]
    widest = [max(map(cell_len, (head, *own))) for head, own in zip(heads, cells, strict=True)]
    if sum(widest) <= room:
        return widest
    least = []
    for column, head, own, most in zip(columns, heads, cells, widest, strict=True):
        parts = [word for text in own for word in text.split()] if column.is_prose else own
        longest = max(map(cell_len, (*_pieces(head), *parts)), default=0)
        least.append(min(most, max(longest, LEAST_PROSE)) if column.is_prose else longest)
    left = room - sum(least)
    if left < 0:
        return None
    has_prose = any(column.is_prose for column in columns)
    wishes = [
        most - fewest if column.is_prose or not has_prose else 0
        for column, most, fewest in zip(columns, widest, least, strict=True)
    ]
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


def _pieces(name: str) -> list[str]:
    """Where the head of a column may go on in the next line: after a word, and after a dot or `_` of a key."""
    return [piece for piece in re.split(r"(?<=[ ._])", name) if piece.strip()]


def _folded(name: str, width: int) -> str:
    """The head of a column in lines that are not wider than the column."""
    from rich.cells import cell_len

    lines = [""]
    for piece in _pieces(name):
        if lines[-1] and cell_len(f"{lines[-1]}{piece}".rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)
