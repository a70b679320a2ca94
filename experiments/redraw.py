"""Every committed figure again, from the data that are committed beside it; nothing is computed.

python -m experiments.redraw      # into experiments/results, and the pictures of the documentation into docs/images
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from airfl.paper.convergence_figure import GradientTrace, draw_convergence
from airfl.paper.reproduction import Wish, show
from airfl.paper.studies import Row, read_rows
from airfl.report.perk_figure import draw_perk
from experiments import combiner_curve, convergence, shield_figure
from experiments.selection_figure import draw_selection

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def draw_paper() -> None:
    """Figures of `airfl reproduce`; its tables and claims stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        for name in show(Wish(("all",), Path(folder))).files:
            for kind in ("png", "pdf"):
                shutil.copy(Path(folder) / f"{name}.{kind}", RESULTS)


def trace_of(rows: list[Row], title: str) -> GradientTrace:
    """A trace from mean, least and most of its three trials: the one between them is what the mean leaves."""
    column = {key: np.array([row[key] for row in rows]) for key in rows[0] if key not in ("scheme", "epsilon")}
    assert (column["trials"] == 3).all()
    mean, low, high = (column[f"gradient_norm2_{key}"] for key in ("mean", "low", "high"))
    noise, sharper = column["noise_term"][None], column["curvature_noise_term"][None]
    return GradientTrace(title, np.stack([low, 3.0 * mean - low - high, high]), noise, sharper)


def draw_traces() -> None:
    """The figure of experiments.convergence."""
    rows = read_rows(RESULTS / "convergence.csv")
    traces = [
        trace_of([r for r in rows if (r["scheme"], r["epsilon"]) == case], convergence.title_of(case[1]))
        for case in convergence.CASES
    ]
    draw_convergence(traces, RESULTS)


def main() -> None:
    draw_paper()
    draw_traces()
    combiner_curve.draw(read_rows(RESULTS / "combiner_curve.csv"), RESULTS)
    draw_perk(read_rows(RESULTS / "perk.csv"), RESULTS)
    draw_selection(read_rows(RESULTS / "selection.csv"), RESULTS)
    shield_figure.draw_curves(shield_figure.read("shield.csv"))
    shield_figure.draw_cover(shield_figure.read("shield_cover.csv"))
    for image in IMAGES.glob("*.png"):
        for name in (image.name, image.name.replace("-", "_")):
            if (RESULTS / name).is_file():
                shutil.copy(RESULTS / name, image)


if __name__ == "__main__":
    main()
