"""The figure of the study of real fleets.

python -m experiments.fleets_figure      # from experiments/results/fleets*.csv, into the same folder
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from airfl.report.figures import RC, write_figure

RESULTS = Path(__file__).parent / "results"
TITLES = {
    "flights": "flights: 3,000 aircraft",
    "insteval": "insteval: 2,300 students",
    "shakespeare": "shakespeare: 750 roles",
}
SCORES = {"flights": "auc", "insteval": "auc", "shakespeare": "accuracy"}
WORDS = {"auc": "AUC, devices never seen", "accuracy": "accuracy, devices never seen"}
LEVEL = "#666666"
BARS = (
    ("federated", "", "no noise", "#000000"),
    ("trusted", "8", "ε = 8", "#009E73"),
    ("trusted", "2", "ε = 2", "#0072B2"),
    ("trusted", "0.5", "ε = 0.5", "#D55E00"),
)
MARKERS = ("o", "s", "^", "D")


def read(name: str) -> list[dict[str, Any]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw(rows: Sequence[dict[str, Any]], sizes: Sequence[dict[str, Any]], folder: Path = RESULTS) -> None:
    """fleets.png: scores on unseen devices against ε; and what a device gains over learning alone, by its size."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(10.4, 6.0), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(2, 3)
        for column, name in enumerate(TITLES):
            _against_epsilon(grid[0][column], [row for row in rows if row["dataset"] == name], name)
            _by_size(grid[1][column], [row for row in sizes if row["dataset"] == name])
        grid[0][0].legend(fontsize=7.5, loc="lower right")
        grid[1][0].legend(fontsize=7.5)
        grid[1][0].set_ylabel("own later samples: loss less than\nby learning alone, in nats")
        write_figure(figure, folder, "fleets")


def _against_epsilon(axes: Axes, rows: Sequence[dict[str, Any]], name: str) -> None:
    score = SCORES[name]
    for way, style, marker, colour in (("trusted", "--", "s", "#0072B2"), ("shielded", "-", "o", "#D55E00")):
        own = [row for row in rows if row["way"] == way]
        budgets = sorted({float(row["epsilon"]) for row in own})
        values = [[float(row[score]) for row in own if float(row["epsilon"]) == budget] for budget in budgets]
        means, spread = [float(np.mean(some)) for some in values], [_deviation(some) for some in values]
        axes.errorbar(budgets, means, spread, ls=style, marker=marker, ms=4, capsize=2, color=colour,
                      mfc="none", label=f"{way} base station")  # fmt: skip
    for way, style, text in (("central", "-", "all data in one place"), ("federated", ":", "federated, no noise")):
        level = float(np.mean([float(row[score]) for row in rows if row["way"] == way]))
        axes.axhline(level, color=LEVEL, ls=style, lw=1.1, label=text)
    if score == "accuracy":
        axes.axhline(float(np.mean([float(row["chance"]) for row in rows])), color=LEVEL, ls="-.", lw=1.0)
        axes.annotate(
            "always a blank", (0.5, float(rows[0]["chance"])), (0, 3), textcoords="offset points", fontsize=7.5
        )
    if name == "flights":  # privacy costs less there than trials differ: no magnifying glass
        axes.set_ylim(0.66, 0.70)
    axes.set_title(TITLES[name], fontsize=10)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ε")
    axes.set_ylabel(WORDS[score])
    axes.grid(alpha=0.3)


def _by_size(axes: Axes, sizes: Sequence[dict[str, Any]]) -> None:
    groups = sorted({(int(row["from"]), int(row["below"])) for row in sizes})
    for (way, epsilon, label, colour), marker in zip(BARS, MARKERS, strict=True):
        means, spread = [], []
        for low, _ in groups:
            gains = [
                _one(sizes, "local", "", low, trial) - _one(sizes, way, epsilon, low, trial)
                for trial in sorted({row["trial"] for row in sizes})
            ]
            means.append(float(np.mean(gains)))
            spread.append(_deviation(gains))
        places = np.arange(len(groups)) + 0.08 * (MARKERS.index(marker) - 1.5)
        axes.errorbar(places, means, spread, ls="", marker=marker, ms=4.5, capsize=2, color=colour, label=label)
    axes.axhline(0.0, color=LEVEL, lw=1.0)
    names = [f"{low}–{high - 1}" if high < 10**6 else f"{low} or more" for low, high in groups]
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(groups)))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(names, fontsize=8)
    axes.set_xlabel("training samples of a device")
    axes.grid(alpha=0.3, axis="y")


def _one(sizes: Sequence[dict[str, Any]], way: str, epsilon: str, low: int, trial: str) -> float:
    (found,) = [
        row
        for row in sizes
        if (row["way"], row["epsilon"], row["from"], row["trial"]) == (way, epsilon, str(low), trial)
    ]
    return float(found["loss"])


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


if __name__ == "__main__":
    draw(read("fleets.csv"), read("fleets_sizes.csv"))
