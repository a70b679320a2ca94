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
    "phase error": "phase error, rad",
    "timing offset": "timing offset, ns",
    "old channels": "Doppler × age of channels",
    "clipping": "amplifier's limit, dB",
    "conversion": "bits of converters",
}
#: Less to the right.
FALLING = ("clipping", "conversion")
ONE, TEN = {"delay line": "one block", "UMi": "UMi, one block"}, {"delay line": "ten blocks", "UMi": "UMi, ten blocks"}
CUTS = ("one block", "ten blocks", "UMi, ten blocks")

Row = dict[str, str]


def read(folder: Path = RESULTS) -> list[Row]:
    """The study's rows, and of ``experiments.wideband`` the flat and the wide round of thousands of devices."""
    with (folder / "impairments.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with (folder / "wideband.csv").open(newline="", encoding="utf-8") as file:
        wide = [r for r in csv.DictReader(file) if (r["setting"], r["cut"]) == ("massive", "delay line, 10 blocks")]
    if one_of(rows, "massive", "ten blocks") is None:
        rows += [{**row, "cut": "ten blocks", "effect": "none", "scheme": "airfl-dp"} for row in wide]
    return rows


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
            words = f" free ε {_shown(flat)} → {_shown(wide)}"
            if flat["accuracy"] and wide["accuracy"]:
                words += (
                    "\n accuracy " + " → ".join(f"{100.0 * float(row['accuracy']):.1f}" for row in (flat, wide)) + " %"
                )
            axes.annotate(words, (0.0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks([0, 1], ["UMi, 200 m", "delay line, 100 ns"])
        axes.set_ylim(-0.6, 1.6)
        axes.axvline(0.0, color="0.4", lw=0.8)
        axes.set_xlim(-6.0, 6.0)
        axes.set_xlabel("perk threshold, ten blocks over one, dB")
        axes.set_title(TITLES[setting], fontsize=10)
        axes.grid(False, axis="y")
        axes.grid(axis="x", alpha=0.3)


def _shown(row: Row) -> str:
    """Free ε, to two digits."""
    value = float(row["free_epsilon"])
    return f"{value:.2f}" if value < 10 else f"{value:.0f}" if value < 1e4 else f"{value:.1e}".replace("e+0", "e")


def _ladders(figure: Figure, grid: Any, rows: Sequence[Row]) -> None:
    handles: dict[str, Any] = {}
    for column, (effect, words) in enumerate(AXES.items()):
        rungs = sorted({float(row["strength"]) for row in rows if row["effect"] == effect}, reverse=effect in FALLING)
        for (setting, scheme), (label, style) in LINES.items():
            steps = [r for r in rows if (r["setting"], r["scheme"], r["effect"]) == (setting, scheme, effect)]
            steps.sort(key=lambda row: rungs.index(float(row["strength"])))
            if not steps:
                continue
            without = one_of(rows, setting, steps[0]["cut"], scheme=scheme)
            assert without is not None
            places = [rungs.index(float(row["strength"])) for row in steps]
            points = [100.0 * (float(row["accuracy"]) - float(without["accuracy"])) for row in steps]
            (handles[label],) = grid[0][column].plot(places, points, label=label, ms=4, **style)
            if scheme == "airfl-dp":
                moved = [float(row["threshold_dbm"]) - float(without["threshold_dbm"]) for row in steps]
                grid[1][column].plot(places, moved, ms=4, **style)
        for axes in grid[:, column]:
            axes.axhline(0.0, color="0.4", lw=0.8)
            axes.set_xticks(range(len(rungs)), [f"{rung:g}" for rung in rungs], fontsize=8)
        low, high = grid[0][column].get_ylim()
        grid[0][column].set_ylim(min(low, -1.1), max(high, 0.4))
        grid[1][column].set_xlabel(words, fontsize=9)
        grid[1][column].set_ylim(-24.0, 3.0)
    grid[0][0].set_ylabel("accuracy, points")
    grid[1][0].set_ylabel("perk threshold, dB")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), fontsize=8)


def _together(_: Figure, grid: Any, rows: Sequence[Row]) -> None:
    cases = [
        (f"{NAMES[setting]}, {cut}", before, after)
        for setting in TITLES
        for cut in CUTS
        for before, after in [(one_of(rows, setting, cut), one_of(rows, setting, cut, "together"))]
        if before is not None and after is not None and after["accuracy"]
    ]
    places = list(range(len(cases)))[::-1]
    accuracy, threshold = grid[0]
    for number, label, style in (
        (1, "nothing goes wrong", {"color": "#000000", "marker": "o", "mfc": "none"}),
        (2, "everything together", {"color": "#D55E00", "marker": "D"}),
    ):
        values = [100.0 * float(case[number]["accuracy"]) for case in cases]
        accuracy.plot(values, places, linestyle="none", label=label, ms=6, **style)
    accuracy.set_xlabel("test accuracy, %")
    accuracy.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    accuracy.set_yticks(places, [name for name, *_ in cases])
    moved = [float(after["threshold_dbm"]) - float(before["threshold_dbm"]) for _, before, after in cases]
    _bars(threshold, places, moved, {"color": "#D55E00", "hatch": "//"})
    threshold.set_yticks(places, [""] * len(places))
    threshold.axvline(0.0, color="0.4", lw=0.8)
    threshold.set_xlabel("perk threshold, dB over nothing going wrong")
    for axes in (accuracy, threshold):
        axes.set_ylim(-0.6, len(cases) - 0.4)


def _bars(axes: Axes, places: Sequence[float], values: Sequence[float], look: dict[str, Any]) -> None:
    axes.barh(places, values, height=0.34, **look)
    axes.grid(False, axis="y")
    axes.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    draw(read())
