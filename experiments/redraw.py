"""Every committed figure again, from the data that are committed beside it; nothing is trained.

python -m experiments.redraw                                # into experiments/results, and as SVG into docs/images
python -m experiments.redraw fig/figure.svg report-figure   # one that a command made, `airfl report --out fig`
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from airfl import linkplan
from airfl.arena import run as arena
from airfl.paper.convergence_figure import GradientTrace, draw_convergence
from airfl.paper.reproduction import Wish, show
from airfl.paper.studies import Row, read_rows
from airfl.report.demo import TITLE as DEMO_TITLE
from airfl.report.perk_figure import accuracy_against_epsilon, draw_perk
from airfl.report.phase import draw_plan
from experiments import (
    channels_figure,
    combiner_curve,
    convergence,
    fleets_figure,
    growth_figure,
    impairments_figure,
    shield_figure,
)
from experiments.pictures import IMAGES, write_picture
from experiments.selection_figure import draw_selection

RESULTS = Path(__file__).parent / "results"


def trace_of(rows: list[Row], title: str) -> GradientTrace:
    """A trace from mean, least and most of its three trials: the one between them is what the mean leaves."""
    column = {key: np.array([row[key] for row in rows]) for key in rows[0] if key not in ("scheme", "epsilon")}
    assert (column["trials"] == 3).all()
    mean, low, high = (column[f"gradient_norm2_{key}"] for key in ("mean", "low", "high"))
    noise, sharper = column["noise_term"][None], column["curvature_noise_term"][None]
    return GradientTrace(title, np.stack([low, 3.0 * mean - low - high, high]), noise, sharper)


def draw_traces(folder: Path) -> None:
    """The figure of experiments.convergence."""
    rows = read_rows(RESULTS / "convergence.csv")
    traces = [
        trace_of([r for r in rows if (r["scheme"], r["epsilon"]) == case], convergence.title_of(case[1]))
        for case in convergence.CASES
    ]
    draw_convergence(traces, folder)


def draw_all(folder: Path) -> None:
    """PNG, PDF and SVG of every figure whose data are in experiments/results."""
    show(Wish(("all",), folder))
    arena.show(arena.Wish(folder))
    draw_traces(folder)
    combiner_curve.draw(read_rows(RESULTS / "combiner_curve.csv"), folder)
    draw_perk(read_rows(RESULTS / "perk.csv"), folder)
    draw_selection(read_rows(RESULTS / "selection.csv"), folder)
    shield_figure.draw_curves(shield_figure.read("shield.csv"), folder)
    shield_figure.draw_cover(shield_figure.read("shield_cover.csv"), folder)
    channels_figure.draw(channels_figure.read(), folder)
    fleets_figure.draw(fleets_figure.read("fleets.csv"), fleets_figure.read("fleets_sizes.csv"), folder)
    impairments_figure.draw(impairments_figure.read(), folder)
    growth_figure.draw(growth_figure.read(), folder)


def draw_examples() -> None:
    """Figures of the documentation alone: the demo's, from rows as in its story.json, and a plan."""
    rows = json.loads((RESULTS / "demo.json").read_text(encoding="utf-8"))["rows"]
    demo = accuracy_against_epsilon(rows, DEMO_TITLE, ("png", "svg"))
    (IMAGES / "demo-perk.png").write_bytes(demo["png"])  # the README's
    write_picture(demo["svg"], "demo-perk")
    with tempfile.TemporaryDirectory() as folder:
        draw_plan(linkplan.plan("satellite-iot"), "satellite-iot", Path(folder))
        write_picture((Path(folder) / "plan.svg").read_bytes(), "plan")


def redraw() -> None:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder:
        draw_all(Path(folder))
        for figure in sorted(Path(folder).glob("*.svg")):
            for kind in ("png", "pdf"):
                shutil.copy(figure.with_suffix(f".{kind}"), RESULTS)
            write_picture(figure.read_bytes(), figure.stem.replace("_", "-"))
    draw_examples()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("svg", nargs="?", type=Path, help="only this figure, which another command made")
    parser.add_argument("name", nargs="?", help="what it is called in docs/images")
    arguments = parser.parse_args()
    if arguments.svg is None:
        redraw()
    else:
        write_picture(arguments.svg.read_bytes(), arguments.name or arguments.svg.stem)


if __name__ == "__main__":
    main()
