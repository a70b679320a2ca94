"""How the lines of a study are drawn: for one column of print or two, readable without colour."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from airfl.report.figures import RC, rendered, styles_for
from airfl.report.study_lines import SIZES, Drawing, Line, Point, is_number


def draw(drawing: Drawing) -> dict[str, bytes]:
    """The figure as pdf, png and svg."""
    width, height, letters = SIZES[drawing.wish.size]
    columns = _columns(drawing.lines, width, letters)
    legend = len(drawing.lines) > 1
    height += 0.0165 * letters * math.ceil(len(drawing.lines) / columns) if legend else 0.0
    look: dict[Any, Any] = {
        "font.size": letters,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.8,
        "axes.linewidth": 0.7,
        "axes.formatter.useoffset": False,
    }
    with mpl.rc_context({**RC, **look}):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _fill(axes, drawing)
        axes.set_xlabel("\n".join(textwrap.wrap(drawing.x.label, 64 if "$" in drawing.x.label else 44)))
        axes.set_ylabel("\n".join(textwrap.wrap(drawing.y_label, 34)))
        if legend:
            shown: dict[str, Any] = {"ncols": columns, "fontsize": letters - 0.5, "handlelength": 3.2}
            shown |= {"columnspacing": 1.2, "borderaxespad": 0.0, "borderpad": 0.4, "loc": "outside upper center"}
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, **shown)
        return rendered(figure, ("pdf", "png", "svg"), dpi=300)


def _columns(lines: Sequence[Line], width: float, letters: float) -> int:
    """As many columns of the legend as fit."""
    longest = max(len(line.label) for line in lines)
    return max(1, min(int(width * 72 / (0.55 * letters * (longest + 8))), len(lines), 4))


def _fill(axes: Axes, drawing: Drawing) -> None:
    styles = styles_for([line.name for line in drawing.lines])
    drawn = [[p for p in line.points if p.value is not None and p.x is not None] for line in drawing.lines]
    values = [point.x for points in drawn for point in points]
    words = None if all(map(is_number, values)) else list(dict.fromkeys(map(drawing.x.text, values)))
    for index, (line, points, style) in enumerate(zip(drawing.lines, drawn, styles, strict=True)):
        if not points:
            continue
        x = np.array([point.x for point in points])
        if words is not None:  # beside each other, and no line between words
            shift = 0.12 * (index - (len(drawn) - 1) / 2)
            x = np.array([words.index(drawing.x.text(point.x)) + shift for point in points])
            style = {**style, "linestyle": "none"}
        _line(axes, x, points, drawing.x.name == "round", {"label": _literal(line.label), **style})
    if words is not None:
        axes.set_xticks(
            range(len(words)), [_literal("\n".join(textwrap.wrap(w, max(8, 48 // len(words))))) for w in words]
        )
        axes.margins(x=0.2)
    _scales(axes, drawing, words is None)


def _literal(text: str) -> str:
    """Words of a user's: a dollar in them begins no formula."""
    return text.replace("$", r"\$")


def _line(axes: Axes, x: np.ndarray, points: Sequence[Point], band: bool, style: dict[str, Any]) -> None:
    """A line with a band, or points with bars, where there is an interval."""
    y = np.array([point.value for point in points], dtype=np.float64)
    low, high = (np.array([p.value if p.low is None else getattr(p, k) for p in points]) for k in ("low", "high"))
    spread = any(point.low is not None for point in points)
    if band:
        axes.plot(x, y, markevery=max(1, len(x) // 8), **style)
        if spread:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
    else:
        bars = np.stack([y - low, high - y]) if spread else None
        axes.errorbar(x, y, bars, capsize=2, elinewidth=0.8, capthick=0.8, **style)


def _scales(axes: Axes, drawing: Drawing, numbers: bool) -> None:
    if drawing.wish.log_x or (numbers and drawing.spans_decades):
        axes.set_xscale("log")
    elif numbers and all(isinstance(point.x, int) for point in drawing.points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    values = [point.value for point in drawing.points if point.value is not None]
    if drawing.y.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif min(values) > 0 and max(values) > 100 * min(values):
        axes.set_yscale("log")
