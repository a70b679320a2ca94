"""Figures of the study of shielded runs.

python -m experiments.shield_figure      # from experiments/results/shield*.csv, into the same folder
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from airfl.report.figures import RC, styles_for, write_figure

RESULTS = Path(__file__).parent / "results"
COLOURS = {50: "#D55E00", 500: "#0072B2", 6000: "#000000"}
#: Rounds of a run at which a case is shown: the more devices, the longer it takes.
CASES = {(6000, 16): 6, (6000, 4): 6, (500, 16): 12, (60, 16): 12, (45, 100): 12}


def read(name: str) -> list[dict[str, Any]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def draw_curves(rows: Sequence[dict[str, Any]], folder: Path = RESULTS) -> None:
    """shield.png: accuracy against ε for a trusted and for a shielded base station, and what spoils it."""
    curves = [row for row in rows if row["part"] == "curves"]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(1, 2, sharey=True)
        for axes, model in zip(grid, ("softmax", "wavelets"), strict=True):
            for devices, colour in COLOURS.items():
                mine = [row for row in curves if row["model"] == model and row["devices"] == str(devices)]
                _line(axes, mine, "airfl-dp", 16, colour, "--", "", None)
                for antennas, marker in ((1, "s"), (4, "^"), (100, "D")):
                    _line(axes, mine, "airfl-shielded", antennas, colour, "", marker, None)
                _line(axes, mine, "airfl-shielded", 16, colour, "-", "o", None)
                _name(axes, mine, f"{devices:,} devices", colour)
            axes.set_title(
                "softmax regression" if model == "softmax" else "softmax regression on wavelets", fontsize=10
            )
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlabel("ε against the base station (shielded) or the models (trusted)")
            axes.grid(alpha=0.3)
        axes = grid[0]
        axes.plot([], [], "--", color="0.4", label="trusted base station, 16 antennas")
        for antennas, marker in ((1, "s"), (4, "^"), (16, "o"), (100, "D")):
            axes.plot([], [], marker=marker, ls="-" if antennas == 16 else "", color="0.4", ms=4, mfc="none",
                      label=f"shielded, {antennas} antenna{'s' if antennas > 1 else ''}")  # fmt: skip
        axes.set_ylabel("test accuracy")
        axes.set_ylim(bottom=0.1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        handles, labels = axes.get_legend_handles_labels()
        grid[1].legend(handles, labels, fontsize=7.5, loc="lower right")
        write_figure(figure, folder, "shield")


def _line(
    axes: Axes, rows: Sequence[dict[str, Any]], scheme: str, antennas: int, colour: str, style: str, marker: str,
    label: str | None,
) -> None:  # fmt: skip
    own = [row for row in rows if row["scheme"] == scheme and row["antennas"] == str(antennas)]
    own.sort(key=lambda row: float(row["epsilon"]))
    x, y = [float(row["epsilon"]) for row in own], [float(row["accuracy_mean"]) for row in own]
    axes.plot(x, y, ls=style, marker=marker, color=colour, ms=4 if antennas == 16 else 6, mfc="none", label=label)


def _name(axes: Axes, rows: Sequence[dict[str, Any]], text: str, colour: str) -> None:
    """Say below the left end of a group of lines what it is: without colour all lines of a kind are alike."""
    own = [row for row in rows if row["scheme"] == "airfl-shielded" and row["antennas"] == "16"]
    first = min(own, key=lambda row: float(row["epsilon"]))
    place = float(first["epsilon"]), float(first["accuracy_mean"])
    axes.annotate(text, place, (6, -8), textcoords="offset points", fontsize=8, color=colour, va="center")


def draw_cover(rows: Sequence[dict[str, Any]], folder: Path = RESULTS) -> None:
    """shield_cover.png: what cover leaves of a device at the antennas."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9.6, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(1, 2, sharey=True)
        for axes, cover in zip(grid, ("quadrature", "masks"), strict=True):
            looks = styles_for([str(case) for case in CASES])
            for ((devices, antennas), rounds), look in zip(CASES.items(), looks, strict=True):
                own = [
                    row
                    for row in rows
                    if (row["devices"], row["antennas"], row["rounds"], row["cover"])
                    == (str(devices), str(antennas), str(rounds), cover)
                    and float(row["level"]) > 0
                ]
                x, y = [float(row["level"]) for row in own], [float(row["ratio_mean"]) for row in own]
                spread = [float(row["ratio_std"]) for row in own]
                label = f"{devices:,} devices, {antennas} antennas, {rounds} rounds"
                axes.errorbar(x, y, spread, ms=4.5, capsize=2, elinewidth=0.9, label=label, **look)
            axes.set(xscale="log", yscale="log", xlabel="cover per coordinate, in units of c²")
            axes.set_title("noise in quadrature" if cover == "quadrature" else "masks of degree 6", fontsize=10)
            axes.grid(alpha=0.3, which="both")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value in (2, 5) else ""))
        grid[0].set_ylabel("μ of the base station over μ of the models")
        grid[1].legend(fontsize=7.5)
        write_figure(figure, folder, "shield_cover")


if __name__ == "__main__":
    draw_curves(read("shield.csv"))
    draw_cover(read("shield_cover.csv"))
