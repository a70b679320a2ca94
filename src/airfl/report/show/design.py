"""Combiners side by side, on the terminal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from airfl.terminal import numbers, print_table, words
from airfl.wording import counted, plain_console

if TYPE_CHECKING:
    from airfl.analysis import CombinerStudy


def print_design(study: CombinerStudy, folder: Path | None) -> None:
    """One row per method, best first."""
    rows = []
    for name, row in sorted(study.methods.items(), key=lambda item: item[1].norm2_median):
        ratio, worst = row.over_bound_median, row.over_bound_max
        rows.append(
            (
                name,
                "–" if ratio is None else f"{ratio:.4g}",
                "–" if worst is None else f"{worst:.4g}",
                "–" if ratio is None else f"{10 * math.log10(ratio):.2f}",
                f"{1e3 * row.seconds_per_instance:.2f}",
                row.status,
            )
        )
    print_table(
        [words("method"), *numbers("‖w‖² / bound", "worst", "dB above bound", "ms each", "status")],
        rows,
        ", ".join(
            counted(*of)
            for of in ((study.active, "device"), (study.antennas, "antenna"), (study.instances, "instance"))
        ),
        justify="center",
    )
    console = plain_console()
    for line in design_notes(study):
        console.print(line, style="dim", highlight=False)
    if folder is not None:
        print(f"Figure: {(folder / 'combiners.png').resolve()}")


def design_notes(study: CombinerStudy) -> list[str]:
    """The proven bound, and the counting figure, named as what it is."""
    notes = ["No bound was asked for."]
    if study.bound_median is not None:
        notes = [
            f"Proven: ‖w‖² ≥ {study.bound_median:.4g} (median), for any combiner, by weak duality over all devices."
        ]
    if not math.isnan(study.count_median):
        notes.append(
            f"For scale: a count of directions puts one combiner at about {study.count_median:.4g}. That is no bound: "
            "optimisation does better than the count, by up to a factor of four."
        )
    return notes
