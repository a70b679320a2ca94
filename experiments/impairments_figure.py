"""Figures of the studies of wide bands and of what goes wrong on air.

python -m experiments.impairments_figure      # from experiments/results, into the same folder
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

from airfl.report.figures import RC, STYLES, write_figure

RESULTS = Path(__file__).parent / "results"
TITLES = {"paper": "45 devices, 100 antennas", "massive": "6,000 devices, 16 antennas"}
NAMES = {"paper": "45 devices", "massive": "6,000 devices"}
#: What of a ladder is drawn: the setting, the scheme, and how.
LINES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("paper", "airfl-mimo"): ("45 devices, the link's noise", STYLES["airfl-mimo"]),
    ("paper", "airfl-dp"): ("45 devices, ε = 112.9", STYLES["airfl-dp"]),
    ("massive", "airfl-dp"): ("6,000 devices, ε = 1", {**STYLES["airfl-shielded"], "mfc": "none"}),
}
AXES = {
    "phase error": ("phase error, rad", True),
    "timing offset": ("timing offset, ns", True),
    "old channels": ("age of channels × Doppler", True),
    "clipping": ("amplifier's limit, dB", False),
    "conversion": ("bits of converters", False),
}
ONE, TEN = {"delay line": "one block", "UMi": "UMi, one block"}, {"delay line": "ten blocks", "UMi": "UMi, ten blocks"}
CUTS = ("one block", "ten blocks", "UMi, ten blocks")

Row = dict[str, str]


def read(name: str) -> list[Row]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw(rows: Sequence[Row], folder: Path = RESULTS) -> None:
    """wideband.png, impairments.png and together.png."""
    with mpl.rc_context(RC):
        for name, size, shape, fill in (
            ("wideband", (9.6, 2.6), (1, 2), _flat_and_wide),
            ("impairments", (11.0, 4.6), (2, len(AXES)), _ladders),
            ("together", (9.6, 3.0), (1, 2), _together),
        ):
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            fill(figure, figure.subplots(*shape, squeeze=False), rows)
            write_figure(figure, folder, name)


def one_of(rows: Sequence[Row], setting: str, cut: str, effect: str = "none", scheme: str = "airfl-dp") -> Row | None:
    """The only row of its kind; None where it was not measured."""
    keys = {"setting": setting, "cut": cut, "effect": effect, "scheme": scheme}
    return next((row for row in rows if all(row[name] == value for name, value in keys.items())), None)


def _flat_and_wide(_: Figure, grid: Any, rows: Sequence[Row]) -> None:
    for axes, setting in zip(grid[0], TITLES, strict=True):
        for place, law in enumerate(("UMi", "delay line")):
            flat, wide = (one_of(rows, setting, cut[law]) for cut in (ONE, TEN))
            assert flat is not None
            assert wide is not None
            moved = float(wide["threshold_dbm"]) - float(flat["threshold_dbm"])
            axes.barh(place, moved, color="#0072B2", height=0.5)
            words = f" ε {_shown(flat)} → {_shown(wide)}"
            axes.annotate(words, (0.0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks([0, 1], ["UMi, 200 m", "delay line, 100 ns"])
        axes.set_ylim(-0.6, 1.6)
        axes.axvline(0.0, color="0.4", lw=0.8)
        axes.set_xlim(-6.0, 4.0)
        axes.set_xlabel("perk threshold, ten blocks over one, dB")
        axes.set_title(TITLES[setting], fontsize=10)
        axes.grid(False, axis="y")
        axes.grid(axis="x", alpha=0.3)


def _shown(row: Row) -> str:
    """Free ε, to two digits."""
    value = float(row["free_epsilon"])
    return f"{value:.2g}" if value < 1e4 else f"{value:.1e}".replace("e+0", "e")


def _ladders(figure: Figure, grid: Any, rows: Sequence[Row]) -> None:
    handles: dict[str, Any] = {}
    for column, (effect, (words, logarithmic)) in enumerate(AXES.items()):
        for (setting, scheme), (label, style) in LINES.items():
            steps = [r for r in rows if (r["setting"], r["scheme"], r["effect"]) == (setting, scheme, effect)]
            if not steps:
                continue
            steps.sort(key=lambda row: float(row["strength"]))
            without = one_of(rows, setting, steps[0]["cut"], scheme=scheme)
            assert without is not None
            strength = [float(row["strength"]) for row in steps]
            points = [100.0 * (float(row["accuracy"]) - float(without["accuracy"])) for row in steps]
            (handles[label],) = grid[0][column].plot(strength, points, label=label, ms=4, **style)
            if scheme == "airfl-dp":
                moved = [float(row["threshold_dbm"]) - float(without["threshold_dbm"]) for row in steps]
                grid[1][column].plot(strength, moved, ms=4, **style)
        for axes in grid[:, column]:
            axes.axhline(0.0, color="0.4", lw=0.8)
            axes.set_xscale("log" if logarithmic else "linear")
            if not logarithmic:  # worse to the right
                axes.invert_xaxis()
        grid[1][column].set_xlabel(words)
        grid[1][column].set_ylim(-13.0, 2.0)
    grid[0][0].set_ylabel("accuracy, points")
    grid[1][0].set_ylabel("perk threshold, dB")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), fontsize=8)


def _together(_: Figure, grid: Any, rows: Sequence[Row]) -> None:
    cases = [
        (setting, cut, before, after)
        for setting in TITLES
        for cut in CUTS
        for before, after in [(one_of(rows, setting, cut), one_of(rows, setting, cut, "together"))]
        if before is not None and after is not None and after["accuracy"]
    ]
    places = list(range(len(cases)))[::-1]
    accuracy, threshold = grid[0]
    for shift, number, label, look in (
        (0.18, 2, "nothing goes wrong", {"color": "#999999"}),
        (-0.18, 3, "everything together", {"color": "#D55E00", "hatch": "//"}),
    ):
        values = [100.0 * float(rows_of_case[number]["accuracy"]) for rows_of_case in cases]
        _bars(accuracy, [place + shift for place in places], values, {**look, "label": label})
    accuracy.set_xlim(70.0, 86.0)
    accuracy.set_xlabel("test accuracy, %")
    accuracy.legend(fontsize=8, loc="lower right", framealpha=1.0)
    accuracy.set_yticks(places, [f"{NAMES[setting]}, {cut}" for setting, cut, *_ in cases])
    moved = [float(after["threshold_dbm"]) - float(before["threshold_dbm"]) for *_, before, after in cases]
    _bars(threshold, places, moved, {"color": "#D55E00", "hatch": "//"})
    threshold.set_yticks(places, [""] * len(places))
    threshold.axvline(0.0, color="0.4", lw=0.8)
    threshold.set_xlabel("perk threshold over that, dB")


def _bars(axes: Axes, places: Sequence[float], values: Sequence[float], look: dict[str, Any]) -> None:
    axes.barh(places, values, height=0.34, **look)
    axes.grid(False, axis="y")
    axes.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    draw(read("impairments.csv"))
