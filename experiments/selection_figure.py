"""Accuracy against power for every policy at its best share, and against the share at one power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from airfl.report.figures import RC, write_figure
from airfl.report.perk_figure import LINES

Row = Mapping[str, Any]
WORDS = {
    "all": "everyone",
    "strongest": "strongest",
    "greedy": "greedy",
    "aligned": "aligned, share given",
    "best": "aligned, share chosen by `best`",
}
TITLES = {"airfl-mimo": "no budget", "airfl-dp": "ε = 1"}
#: At which accuracy is shown against the share.
SHARES_AT_DB = -20


def kind(row: Row) -> str:
    """The policy of a row; `best` is one of its own."""
    return "best" if row["keep"] == "best" else str(row["policy"])


def draw_selection(rows: Sequence[Row], folder: Path) -> None:
    """selection.png, .pdf and .svg, of the first part of the study."""
    first = [row for row in rows if row["part"] == rows[0]["part"]]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9.6, 6.2), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(2, 2, sharey="row")
        for column, scheme in enumerate(TITLES):
            mine = [row for row in first if row["scheme"] == scheme]
            _powers(grid[0][column], mine)
            _shares(grid[1][column], [row for row in mine if row["power_db"] == SHARES_AT_DB])
            grid[0][column].set_title(TITLES[scheme], fontsize=10)
        for axes in grid.flat:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
        for axes in grid[:, 0]:
            axes.set_ylabel("test accuracy")
        grid[1][0].legend(fontsize=8)
        write_figure(figure, folder, "selection")


def _powers(axes: Axes, rows: Sequence[Row]) -> None:
    for name, style in zip(WORDS, LINES, strict=True):
        own = [row for row in rows if kind(row) == name]
        powers = sorted({row["power_db"] for row in own})
        top = [max(row["accuracy_mean"] for row in own if row["power_db"] == power) for power in powers]
        axes.plot(powers, top, markersize=4, label=WORDS[name], **style)
    axes.set_xticks(sorted({row["power_db"] for row in rows}))
    axes.set_xlabel("power against the preset's, dB (each at its best share)")


def _shares(axes: Axes, rows: Sequence[Row]) -> None:
    for name, style in zip(WORDS, LINES, strict=True):
        own = sorted((row["transmitting"], row["accuracy_mean"]) for row in rows if kind(row) == name)
        most = max((row["transmitting"] for row in rows), default=1.0)
        axes.plot([100 * k / most for k, _ in own], [a for _, a in own], markersize=5, label=WORDS[name], **style)
    axes.set_xlabel(f"devices that transmit, %, at {SHARES_AT_DB} dB")
