"""How long is the combiner for 10 to 100,000 devices? The default one, the proven bound, and the counting figure.

    python -m experiments.combiner_curve --out experiments/results [--instances 8]

Writes combiner_curve.csv, .json, .png, .pdf and .svg; two minutes on two cores. 16 antennas, unit Rayleigh channels.
Every instance is one drop of 100,000 devices of which the first K are served, so along a curve devices only come in: a
step in it is the search's own doing.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from benchmarks.combiner import unit_channels
from benchmarks.machine import provenance
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from airfl.report.figures import RC, write_figure
from airfl.report.progress import Steps
from airfl.transceiver import certificate, combiner_named, counting_figure

ANTENNAS, STEPS = 16, 40
DEVICES = tuple(round(k) for k in np.geomspace(10, 100_000, STEPS))
COLUMNS = (
    "devices",
    "antennas",
    "instances",
    "norm2_low",
    "norm2_median",
    "norm2_high",
    "bound_median",
    "count_median",
)


def measure(instances: int) -> list[dict[str, Any]]:
    """A row per number of devices: quartiles of norm², medians of the bound and of the count."""
    everybody = unit_channels(ANTENNAS, DEVICES[-1], instances, seed=3)
    solve = combiner_named("auto")
    rows = []
    with Steps("combiners", len(DEVICES)) as progress:
        for devices in DEVICES:
            served = everybody[:, :devices].contiguous()
            norm2 = solve(served).norm.square().numpy()
            low, median, high = np.quantile(norm2, (0.25, 0.5, 0.75))
            bound, count = certificate(served).median(), counting_figure(served).median()
            values = (devices, ANTENNAS, instances, low, median, high, float(bound), float(count))
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            progress.advance(1)
    return rows


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Norm² against the number of devices, both on logarithmic axes."""
    column = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
    with mpl.rc_context(RC):
        figure = Figure(figsize=(6.2, 3.9))
        FigureCanvasAgg(figure)
        axes, x = figure.add_subplot(), column["devices"]
        axes.loglog(x, column["count_median"], "--", color="#999999", label="counting figure (no bound)")
        axes.fill_between(x, column["norm2_low"], column["norm2_high"], color="#0072B2", alpha=0.25, lw=0)
        axes.loglog(x, column["norm2_median"], "o-", color="#0072B2", label="auto: median, quartiles")
        axes.loglog(x, column["bound_median"], ":", color="#D55E00", label="proven lower bound")
        axes.set_xlabel("devices")
        axes.set_ylabel("‖w‖²")
        axes.set_title(f"{ANTENNAS} antennas, unit Rayleigh fading", fontsize=10)
        axes.legend()
        write_figure(figure, folder, "combiner_curve")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--instances", type=int, default=8)
    arguments = parser.parse_args()
    rows = measure(arguments.instances)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "combiner_curve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in rows)
    (arguments.out / "combiner_curve.json").write_text(json.dumps(provenance(), indent=1) + "\n")
    draw(rows, arguments.out)


if __name__ == "__main__":
    main()
