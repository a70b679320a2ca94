"""Studies on the terminal: how far they have got, and what they found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airfl.terminal import numbers, print_table, words
from airfl.wording import (
    at_most_text,
    percent,
    plain_console,
)

if TYPE_CHECKING:
    from airfl.study import Plan
    from airfl.sweeps import Standing


def print_standing(standing: Standing, folder: str) -> None:
    """How far a study has got."""
    summary = standing.summary
    left = summary["cells"] - summary["done"] - summary["failed"]
    counts = [str(summary[key]) for key in ("cells", "done", "failed", "running")]
    print_table(numbers("cells", "done", "failed", "running", "left"), [[*counts, str(left)]])
    console = plain_console()
    for batch in standing.at_work():
        progress = standing.running[batch.name]
        console.print(f"{batch.name}: round {progress.rounds} of {progress.total or '?'}", highlight=False)
    if left and summary["seconds_left"] is not None:
        console.print(f"about {summary['seconds_left']:.0f} s of work left", highlight=False)
    for message in summary["messages"]:
        console.print(f"• {message}", highlight=False)
    if (Path(folder) / "results.parquet").exists():
        print(f"Results: {folder}/results.parquet, {folder}/summary.csv")


def print_study(plan: Plan, rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
    """One row per configuration and scheme, and whether all cells are in; exact ε where it is not what was booked."""
    axes = plan.study.axes
    books = [row["epsilon_by_observer"] for row in rows]
    exact = ["?" if book is None else at_most_text(book["model"]["gaussian"]) for book in books]
    news = any(text not in ("?", at_most_text(row["epsilon_max"])) for row, text in zip(rows, exact, strict=True))
    shown = [[*_study_row(row, axes), *((text,) if news else ())] for row, text in zip(rows, exact, strict=True)]
    found = numbers("trials", "accuracy, %", "95 % interval", "ε", *(("ε exact",) if news else ()))
    print_table([*numbers(*axes), words("scheme"), *found], shown, plan.study.name, justify="center")
    from airfl.report.trust import study_trust  # knows schemes and channels; `airfl sweep --dry-run` needs none of it

    for sentence in study_trust(plan, rows):
        plain_console().print(f"• {sentence}", highlight=False)
    over = counts["done"] + counts["failed"]
    if over < counts["cells"]:
        print(f"Not finished: {over} of {counts['cells']} cells; airfl sweep --resume goes on.")


def _study_row(row: Mapping[str, Any], axes: Sequence[str]) -> list[str]:
    mean, low, high = row["accuracy_mean"], row["accuracy_low"], row["accuracy_high"]
    return [
        *(str(row[axis]) for axis in axes),
        row["scheme"],
        str(row["trials"]) + (f" ({row['failed']} failed)" if row["failed"] else ""),
        percent(mean, row["accuracy_std"], row["trials"]).removesuffix(" %"),
        "–" if mean is None else f"{100 * low:.1f}–{100 * high:.1f}",
        at_most_text(row["epsilon_max"]),
    ]
