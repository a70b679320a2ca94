"""A run on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airfl.report.sentences import data_text, epsilon_shown, headline, observers_shown
from airfl.schemes import scheme_shown
from airfl.terminal import numbers, print_table, words
from airfl.wording import (
    OBSERVER_SHORT,
    number,
    percent,
    plain_console,
)

if TYPE_CHECKING:
    from airfl.runs import Result


def print_result(result: Result, page: Path | None) -> None:
    """The headline table, the run in words, and where the report is, if one was written."""
    console, config, observers = plain_console(), result.config, observers_shown(result)
    rows = []
    for name, entry in result.summary["schemes"].items():
        noise = entry["noise_var_mean"]
        rows.append(
            (
                scheme_shown(name).title,
                percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
                "none" if not noise else f"{noise**0.5:.3g}",
                *(epsilon_shown(entry, observer) for observer in observers),
            )
        )
    seen = (f"ε {OBSERVER_SHORT[observer][0]}" for observer in observers)
    print_table(
        [words("scheme"), *numbers("accuracy", "noise std", *seen)],
        rows,
        f"{config.name}: {config.learning.model} on {data_text(config)}",
        justify="center",
    )
    console.print(
        f"ε by exact accounting at δ = {number(config.privacy.delta)}, neighbours {config.neighbours}, against anyone "
        f"who sees {_either([OBSERVER_SHORT[observer][1] for observer in observers])}; ∞ is no protection.",
        style="dim",
    )
    for sentence in headline(result):
        console.print(f"• {sentence}", highlight=False)
    if page is not None:  # on a line of its own and never wrapped, so that a terminal can make it a link
        print(f"\nReport: {page.resolve()}")


def _either(items: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
