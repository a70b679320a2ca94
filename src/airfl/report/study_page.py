"""A figure of a study or a run as files: PDF, PNG, SVG, CSV, LaTeX and a page; all of them or none."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airfl.report import latex
from airfl.report.html import render
from airfl.report.own_files import require_place, write_signed
from airfl.report.study_figure import draw
from airfl.report.study_lines import Drawing, Point, Wish, drawing_of, plain, sortable
from airfl.report.study_source import Source
from airfl.wording import (
    at_most_text,
    name_text,
    percent,
)

PAGE = "report.html"
NAMES = ("figure.pdf", "figure.png", "figure.svg", "figure.csv", "table.tex", PAGE)
#: Rounds in a table at most.
MOST_ROUNDS = 12


def write_study_report(source: Source, wish: Wish, out: str, folder: str) -> tuple[list[Path], tuple[str, ...]]:
    """Draw what was asked for and write it; returns the files, and notes on what is not in the figure.

    Args:
        folder: that the study lies in, for the command that the page shows.
    """
    where = Path(out)
    require_place(where, NAMES, PAGE, "airfl report")
    drawing = drawing_of(source, wish)
    figures = draw(drawing)
    command = command_of(wish, folder, out)
    head, rows, note = table_of(drawing)
    comments = (command, *((note,) if note else ()), *drawing.notes)
    page = render(
        "study.html.j2",
        {"figure": figures["svg"]},
        source=source,
        config=source.base,
        title=f"{plain(drawing.y_label)} against {plain(drawing.x.label)}",
        caption=drawing.caption,
        notes=drawing.notes,
        narrow=wish.size == "one-column",
        head=head,
        table=rows,
        table_note=note,
        axes=[key for key in source.axes if source.rows and key in source.rows[0]],
        rows=[_shown(row, source) for row in source.rows],
        command=command,
    )
    files = {
        **{f"figure.{kind}": data for kind, data in figures.items()},
        "figure.csv": _csv(drawing),
        "table.tex": latex.table(head, rows, f"{drawing.table_caption} {note}".strip(), comments).encode(),
        PAGE: page.encode(),
    }
    write_signed(where, files, PAGE)
    return [where / name for name in NAMES], drawing.notes


def command_of(wish: Wish, folder: str, out: str) -> str:
    """The command that makes this figure again."""
    words = ["airfl", "report", folder]
    words += ["--x", wish.x] if wish.x else []
    words += ["--y", wish.y]
    for name, values in (("--by", wish.by), ("--where", wish.where)):
        words += [word for value in values for word in (name, value)]
    words += ["--observer", wish.observer] if wish.observer else []
    words += ["--size", wish.size] if wish.size != "one-column" else []
    words += ["--log-x"] if wish.log_x else []
    return name_text(shlex.join([*words, "--out", out]))


def table_of(drawing: Drawing) -> tuple[list[str], list[list[str]], str]:
    """The points as a table: x down, lines across; returns its head, its rows, and a note on what is left out."""
    unit = f"{drawing.y_label}, %" if drawing.y.share else drawing.y_label
    places = list({repr(point.x): point.x for point in drawing.points}.values())
    if not any(isinstance(place, str) for place in places):
        places.sort(key=lambda place: sortable((place,)))
    note = f"{unit[0].upper()}{unit[1:]}" + (", 95 % interval in brackets." if _spread(drawing) else ".")
    if drawing.x.name == "round" and len(places) > MOST_ROUNDS:
        every = -(-len(places) // MOST_ROUNDS)
        places = places[::-1][::every][::-1]
        note += f" Every {every}th round; figure.csv has all of them."
    head = [plain(drawing.x.label), *(line.label for line in drawing.lines)]
    found = [{repr(point.x): point for point in line.points} for line in drawing.lines]
    rows = [[drawing.x.text(place), *(_text(own.get(repr(place)), drawing) for own in found)] for place in places]
    return head, rows, note


def _spread(drawing: Drawing) -> bool:
    return any(point.low is not None for point in drawing.points)


def _text(point: Point | None, drawing: Drawing) -> str:
    if point is None or (point.value is None and not point.trials):
        return "–"
    text = drawing.y.text(point.value)
    return text if point.low is None else f"{text} [{drawing.y.text(point.low)}, {drawing.y.text(point.high)}]"


def _csv(drawing: Drawing) -> bytes:
    rows = drawing.rows
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _shown(row: Mapping[str, Any], source: Source) -> dict[str, Any]:
    mean, low, high = row["accuracy_mean"], row["accuracy_low"], row["accuracy_high"]
    exact = row["epsilon_by_observer"]
    return {
        "axes": [row[key] for key in source.axes if key in row],
        "scheme": row["scheme"],
        "trials": f"{row['trials']} ({row['failed']} failed)" if row["failed"] else row["trials"],
        "accuracy": percent(mean, row["accuracy_std"], row["trials"]),
        "interval": "–" if mean is None else f"{100 * low:.1f} to {100 * high:.1f} %",
        "booked": at_most_text(row["epsilon_max"]) if row["trials"] else "–",
        "exact": "?" if exact is None else at_most_text(exact["model"]["gaussian"]),
    }


__all__ = ["Wish", "command_of", "table_of", "write_study_report"]
