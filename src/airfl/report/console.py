"""Tables on the terminal: what several commands print, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from airfl.report.show.run import print_result
from airfl.report.show.study import print_study
from airfl.wording import number, plain_console

__all__ = ["print_epsilon", "print_result", "print_study"]


def print_epsilon(answers: Mapping[str, Mapping[str, Any]], folder: str | None = None) -> None:
    """All accountants side by side, with their assumptions."""
    table = Table(box=box.SIMPLE)
    for column in ("accountant", "ε", "δ", "observer", "neighbours", "assumptions"):
        table.add_column(column, justify="right" if column in "εδ" else "left", no_wrap=column != "assumptions")
    for name, answer in answers.items():
        epsilon = answer["epsilon"]
        shown = "∞" if epsilon is None else f"{epsilon:.6g}"
        table.add_row(
            name if answer["valid"] else f"{name} *",
            "?" if "note" in answer else shown,
            number(answer["delta"]),
            answer["observer"],
            answer["neighbours"],
            answer["assumptions"] + (f" Here: {answer['note']}." if "note" in answer else ""),
        )
    plain_console().print(table)
    if not all(answer["valid"] for answer in answers.values()):
        plain_console().print("* published, but not a proof for the whole run", highlight=False)
    if folder is not None:
        plain_console().print(f"Figure: {folder}/privacy.png", highlight=False)
