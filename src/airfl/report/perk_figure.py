"""Accuracy against ε and the number of devices: a heat map, and lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from airfl.report.figures import RC, rendered, write_figure
from airfl.wording import epsilon_text

Row = Mapping[str, Any]
#: Begins the id of what lies on a coloured field, in SVG: a page in the dark leaves its colours alone.
OWN_COLOURS = "own-colours"

#: From few devices to many: colour, dashes and marker.
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#E69F00", "linestyle": (0, (1, 1)), "marker": "v"},
    {"color": "#D55E00", "linestyle": (0, (4, 1.5)), "marker": "s"},
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#009E73", "linestyle": (0, (6, 1.5, 1, 1.5)), "marker": "^"},
    {"color": "#000000", "linestyle": (0, (2, 1)), "marker": "D"},
)


def draw_perk(rows: Sequence[Row], folder: Path, name: str = "perk") -> None:
    """One panel per model: devices against ε, the test accuracy written in every field."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    devices = sorted({row["devices"] for row in rows})
    with mpl.rc_context({**RC, "axes.grid": False}):
        figure = Figure(figsize=(1.2 + 3.7 * len(models), 3.0))
        FigureCanvasAgg(figure)
        image = None
        for number, model in enumerate(models):
            axes = figure.add_subplot(1, len(models), number + 1)
            image = _map(axes, [row for row in rows if row["model"] == model], devices)
            axes.set_title(model, fontsize=10)
            if number == 0:
                axes.set_ylabel("devices")
            else:
                axes.tick_params(labelleft=False)
        if image is not None:
            bar = figure.colorbar(image, ax=figure.axes, format=PercentFormatter(1.0, decimals=0), pad=0.02)
            bar.set_label("test accuracy")
        write_figure(figure, folder, name)


def _map(axes: Axes, rows: Sequence[Row], devices: Sequence[int]) -> Any:
    """Accuracies in fields; grey where there are none."""
    epsilons = sorted({row["epsilon"] for row in rows})
    table = np.full((len(devices), len(epsilons)), math.nan)
    for row in rows:
        table[devices.index(row["devices"]), epsilons.index(row["epsilon"])] = row["accuracy_mean"]
    axes.set_facecolor("#e6e6e6")
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="cividis", vmin=0.1, vmax=0.9)
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            color = "#000000" if value > 0.55 else "#ffffff"
            axes.text(j, i, f"{100 * value:.1f}", ha="center", va="center", fontsize=7.5, color=color, gid=OWN_COLOURS)
    axes.set_xticks(range(len(epsilons)), [epsilon_text(e) for e in epsilons])
    axes.set_yticks(range(len(devices)), [f"{n:,}" for n in devices])
    axes.set_xlabel("ε (δ = 1e-5, one device's contribution set to zero)")
    return image


def accuracy_against_epsilon(
    rows: Sequence[Row], title: str, kinds: Sequence[str] = ("png", "pdf")
) -> dict[str, bytes]:
    """One line per number of devices, with what it would be without noise at the right; files by kind."""
    rows = [{**row, "epsilon": math.inf if row["epsilon"] is None else row["epsilon"]} for row in rows]
    devices = sorted({row["devices"] for row in rows})
    finite = sorted({row["epsilon"] for row in rows if math.isfinite(row["epsilon"])})
    with mpl.rc_context(RC):
        figure = Figure(figsize=(6.2, 3.8))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for number, count in enumerate(devices):
            style = LINES[number % len(LINES)]
            own = sorted((row for row in rows if row["devices"] == count), key=lambda row: row["epsilon"])
            private = [row for row in own if math.isfinite(row["epsilon"])]
            x = [row["epsilon"] for row in private]
            axes.plot(x, [row["accuracy_mean"] for row in private], label=f"{count:,} devices", **style)
            free = [row["accuracy_mean"] for row in own if not math.isfinite(row["epsilon"])]
            if free:
                axes.plot([2.2 * finite[-1]], free, color=style["color"], marker=style["marker"], linestyle="none")
        axes.set_xscale("log")
        ticks = [*finite, 2.2 * finite[-1]]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        shown = {tick: epsilon_text(e) for tick, e in zip(ticks, [*finite, math.inf], strict=True)}
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown.get(value, f"{value:g}")))
        axes.set_xlabel("ε at δ = 1e-5, one device's contribution set to zero; exact (∞: no noise)")
        axes.set_ylabel("test accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_title(title, fontsize=10)
        axes.legend()
        return rendered(figure, kinds)
