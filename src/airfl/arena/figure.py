"""The arena as a figure: a panel per data set and SNR, a line per scheme, a mark per ε with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator, PercentFormatter

from airfl.arena.ranks import Place, standings
from airfl.report.figures import RC, write_figure
from airfl.wording import epsilon_text, number

#: From small ε to large.
_MARKS: tuple[dict[str, Any], ...] = (
    {"color": "#D55E00", "marker": "v"},
    {"color": "#0072B2", "marker": "o"},
    {"color": "#009E73", "marker": "^"},
    {"color": "#CC79A7", "marker": "D"},
)
#: How far the marks of one scheme lie apart, in lines.
_APART = 0.22


def draw_arena(found: Sequence[Place], folder: Path, name: str = "arena") -> None:
    """Accuracy of every scheme in every cell, the best of all cells on top; hollow where ε is above what was asked."""
    order = [standing.scheme for standing in standings(found)]
    data = list(dict.fromkeys(place.cell.data for place in found))
    powers = sorted({place.cell.snr_db for place in found if place.cell.snr_db is not None})
    budgets = sorted({place.cell.epsilon for place in found if place.cell.epsilon is not None})
    with mpl.rc_context(RC):
        figure = Figure(figsize=(2.6 + 2.7 * len(powers), 0.9 + len(data) * (0.7 + 0.27 * len(order))))
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(data), len(powers), sharex=True, sharey=True, squeeze=False)
        for row, kind in zip(grid, data, strict=True):
            for axes, power in zip(row, powers, strict=True):
                own = [place for place in found if (place.cell.data, place.cell.snr_db) == (kind, power)]
                _panel(axes, own, order, budgets)
                axes.set_title(f"{kind}, {number(power).replace('-', '−')} dB", fontsize=10)
        for axes in grid[-1]:
            axes.set_xlabel("test accuracy")
        figure.legend(handles=_legend(budgets), loc="outside lower center", ncols=len(budgets) + 1)
        write_figure(figure, folder, name)


def _panel(axes: Axes, own: Sequence[Place], order: Sequence[str], budgets: Sequence[float]) -> None:
    for place in own:
        if not math.isfinite(place.mean) or place.cell.epsilon is None:
            continue
        number_of = budgets.index(place.cell.epsilon)
        style = _MARKS[number_of % len(_MARKS)]
        y = order.index(place.scheme) + _APART * (number_of - (len(budgets) - 1) / 2)
        axes.errorbar(
            place.mean,
            y,
            xerr=[[place.mean - place.low], [place.high - place.mean]],
            linestyle="none",
            elinewidth=0.9,
            markersize=4.0,
            markerfacecolor=style["color"] if place.keeps else "none",
            **style,
        )
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0.0, 0.999)  # an interval of few trials may be wider than all there is
    axes.xaxis.set_major_locator(MultipleLocator(0.2))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _legend(budgets: Sequence[float]) -> list[Line2D]:
    handles = [
        Line2D([], [], linestyle="none", label=f"ε = {epsilon_text(budget)}", **_MARKS[place % len(_MARKS)])
        for place, budget in enumerate(budgets)
    ]
    hollow = Line2D(
        [],
        [],
        linestyle="none",
        marker="o",
        color="#555555",
        markerfacecolor="none",
        label="hollow: exact ε above it, or no proof",
    )
    return [*handles, hollow]
