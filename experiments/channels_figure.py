"""Figure of the study of channels.

python -m experiments.channels_figure      # from experiments/results/channels.csv, into the same folder
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

from airfl.report.figures import RC, write_figure

RESULTS = Path(__file__).parent / "results"
NAMES = {"rician": "Rician", "3gpp-umi": "UMi", "3gpp-uma": "UMa", "3gpp-inh": "InH", "3gpp-inf": "InF"}
CELLS = {"outdoors": "200 m", "indoors": "50 m"}
TITLES = {"paper": "45 devices, 100 antennas", "massive": "6,000 devices, 16 antennas"}


def read(name: str = "channels.csv") -> list[dict[str, Any]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def parts_of(rows: Sequence[dict[str, Any]], setting: str, combiner: str = "auto") -> list[tuple[str, float, float]]:
    """Law, and the dB that its strengths and its directions add to ‖w‖² of Rayleigh fading in free space."""
    mine = [row for row in rows if row["setting"] == setting and row["combiner"] == combiner]
    plain = {row["cell"]: float(row["norm2_db"]) for row in mine if row["fading"] == "rayleigh"}
    found = []
    for row in mine:
        if row["cell"] not in CELLS or row["fading"] == "rayleigh":
            continue
        with_strengths = float(row["norm2_rayleigh_db"])
        name = f"{NAMES[row['fading']]}, {CELLS[row['cell']]}"
        found.append((name, with_strengths - plain[row["cell"]], float(row["norm2_db"]) - with_strengths))
    return found


def draw(rows: Sequence[dict[str, Any]], folder: Path = RESULTS) -> None:
    """channels.png: what the laws of 3GPP take from us, and how much of it is path loss and how much directions."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9.6, 3.3), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, setting in zip(figure.subplots(1, 2), TITLES, strict=True):
            _bars(axes, rows, setting)
        write_figure(figure, folder, "channels")


def _bars(axes: Axes, rows: Sequence[dict[str, Any]], setting: str) -> None:
    parts = parts_of(rows, setting)
    places = list(range(len(parts)))[::-1]
    strengths, directions = [part[1] for part in parts], [part[2] for part in parts]
    upper, lower = ([place + shift for place in places] for shift in (0.17, -0.17))
    axes.barh(upper, strengths, color="#0072B2", height=0.3, label="strengths: path loss, walls, shadowing")
    axes.barh(lower, directions, color="#E69F00", hatch="//", height=0.3, label="directions: antennas are correlated")
    if setting == "paper":
        forced = [part[2] for part in parts_of(rows, setting, "zero-forcing")]
        axes.plot(forced, lower, "kD", ms=4, mfc="none", label="directions, with zero forcing")
    axes.set_yticks(places, [name for name, *_ in parts])
    axes.axvline(0.0, color="0.4", lw=0.8)
    axes.set_xlabel("dB more ‖w‖² than Rayleigh fading in free space")
    axes.set_title(TITLES[setting], fontsize=10)
    axes.grid(False, axis="y")
    axes.grid(axis="x", alpha=0.3)
    if setting == "paper":
        axes.legend(fontsize=8, loc="lower right", framealpha=1.0)


if __name__ == "__main__":
    draw(read())
