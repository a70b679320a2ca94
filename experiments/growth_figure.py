"""Figures of how time and memory grow, from what benchmarks.growth measured.

python -m experiments.growth_figure      # from experiments/results/growth.json, into the same folder
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from airfl.report.figures import RC, write_figure

RESULTS = Path(__file__).parent / "results"
Rows = Sequence[Mapping[str, Any]]
#: Column, words and look of each line.
OPEN = (
    "seconds_to_open",
    "opening, {rounds} rounds designed",
    {"color": "#0072B2", "linestyle": (0, (6, 2)), "marker": "s"},
)
ROUND = ("seconds_per_round", "a round", {"color": "#D55E00", "linestyle": "-", "marker": "o"})
TOTAL = ("seconds_total", "a run, written", {"color": "#D55E00", "linestyle": "-", "marker": "o"})
STUDY = ("seconds_study", "a study, with checkpoints", {"color": "#0072B2", "linestyle": (0, (6, 2)), "marker": "s"})
PEAK = ("peak_mb", "the process", {"color": "#D55E00", "linestyle": "-", "marker": "o"})
ADDED = ("added_mb", "what the run takes of it", {"color": "#0072B2", "linestyle": (0, (6, 2)), "marker": "s"})
ACTORS = ("actors_mb", "actors together", {"color": "#0072B2", "linestyle": (0, (6, 2)), "marker": "s"})
TIMES = {
    "devices": (OPEN, ROUND),
    "rounds": (TOTAL, STUDY),
    "parameters": (OPEN, ROUND),
    "antennas": (OPEN, ROUND),
    "shards": (ROUND,),
}
MEMORY = {"shards": (PEAK, ACTORS)}
#: So many of the largest sizes the slope is fitted to.
LAST = 3


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent p of value ∝ sizeᵖ over the largest sizes, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes[-LAST:]), np.log(values[-LAST:]), 1)[0])


def read() -> dict[str, Rows]:
    """The rows of every axis that was measured."""
    found = json.loads((RESULTS / "growth.json").read_text(encoding="utf-8"))
    return {axis: entry["rows"] for axis, entry in found.items()}


def draw(axes: Mapping[str, Rows], folder: Path = RESULTS) -> None:
    """growth-AXIS.png, .pdf and .svg for every axis."""
    for name, rows in axes.items():
        with mpl.rc_context(RC):
            figure = Figure(figsize=(9.6, 3.6), layout="constrained")
            FigureCanvasAgg(figure)
            left, right = figure.subplots(1, 2)
            alone = next((row for row in rows if row["size"] == 0), None)
            sizes = [row for row in rows if row["size"] > 0]
            _panel(left, name, sizes, TIMES[name], alone)
            left.set_ylabel("seconds")
            _panel(right, name, sizes, MEMORY.get(name, (PEAK, ADDED)), alone)
            right.set_ylabel("peak memory, MB")
            write_figure(figure, folder, f"growth-{name}")


def _panel(axes: Axes, name: str, rows: Rows, lines: Sequence[tuple[str, str, Any]], alone: Any) -> None:
    sizes = [row["parameters" if name == "parameters" else "size"] for row in rows]
    for column, words, look in lines:
        values = [row[column] for row in rows]
        fitted = "" if name == "shards" else f": slope {slope(sizes, values):.2f}"
        label = words.format(**rows[-1]) + fitted
        plot = axes.semilogx if name == "shards" else axes.loglog
        plot(sizes, values, markersize=5, label=label, **look)
    if name == "shards":
        if alone is not None:
            value, words = alone[lines[0][0]], "one process, no shards"
            axes.axhline(value, color="#000000", linestyle=(0, (1, 1)), linewidth=1.2, label=words)
        axes.set_ylim(bottom=0.0)
    else:
        top = rows[-1][lines[-1][0]]
        line = [top * size / sizes[-1] for size in sizes]
        low, high = axes.get_ylim()
        low, high = 10.0 ** np.floor(np.log10(low)), 10.0 ** np.ceil(np.log10(high))  # whole decades have names
        axes.plot(sizes, line, color="#999999", linestyle=(0, (1, 2)), linewidth=1.2, label="slope 1")
        axes.set_ylim(low, high)
    axes.set_xticks(sizes, [_short(row["size"]) for row in rows])
    axes.minorticks_off()
    axes.set_xlabel(name)
    axes.legend(fontsize=8)


def _short(size: int) -> str:
    """A power of ten beyond 1,000 as such."""
    power = len(str(size)) - 1
    return f"$10^{power}$" if power > 3 and size == 10**power else f"{size:,}"


if __name__ == "__main__":
    draw(read())
