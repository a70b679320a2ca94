"""Figures of a run, as PNG and PDF, readable in black and white."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from airfl.privacy import ACCOUNTANTS, shown
from airfl.report.sentences import private_scheme
from airfl.runs import Result
from airfl.runs.store import write_bytes
from airfl.schemes import scheme_shown
from airfl.wording import at_most_text, epsilon_text, number

if TYPE_CHECKING:  # a run's report need not load what audits count with
    from airfl.analysis import Audit, CombinerStudy, Curve

#: Okabe-Ito colours with a dash pattern and a marker each, so that no line depends on colour alone.
STYLES: dict[str, dict[str, Any]] = {
    "fedavg": {"color": "#000000", "linestyle": (0, (8, 1.5, 1, 1.5, 1, 1.5)), "marker": "o"},
    "fedavg-clip": {"color": "#E69F00", "linestyle": (0, (6, 2)), "marker": "s"},
    "airfl-mimo": {"color": "#0072B2", "linestyle": (0, (3, 1.5, 1, 1.5)), "marker": "^"},
    "airfl-dp": {"color": "#D55E00", "linestyle": "-", "marker": "D"},
    "airfl-dp-online": {"color": "#009E73", "linestyle": (0, (1, 1)), "marker": "v"},
    "airfl-an": {"color": "#CC79A7", "linestyle": (0, (6, 1.5, 1, 1.5)), "marker": "P"},
    "airfl-shielded": {"color": "#000000", "linestyle": (0, (3, 1)), "marker": "X"},
    "liu2020": {"color": "#56B4E9", "linestyle": (0, (2, 2)), "marker": "<"},
    "koda2020": {"color": "#999999", "linestyle": (0, (4, 1.5)), "marker": ">"},
    "tci": {"color": "#0072B2", "linestyle": (0, (2, 1)), "marker": "p"},
    "tci-memory": {"color": "#56B4E9", "linestyle": (0, (5, 1)), "marker": "*"},
    "one-bit": {"color": "#D55E00", "linestyle": (0, (7, 3)), "marker": "h"},
    "one-bit-memory": {"color": "#E69F00", "linestyle": (0, (1, 2)), "marker": "H"},
    "nc-airfl": {"color": "#009E73", "linestyle": (0, (1, 3)), "marker": "d"},
    "power-mse": {"color": "#CC79A7", "linestyle": (0, (4, 1, 1, 1)), "marker": "8"},
    "power-gap": {"color": "#999999", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "1"},
    "select-mse": {"color": "#000000", "linestyle": (0, (2, 1, 1, 1)), "marker": "2"},
    "random-orth": {"color": "#0072B2", "linestyle": (0, (5, 2, 2, 2)), "marker": "3"},
    "adascale": {"color": "#D55E00", "linestyle": (0, (8, 3)), "marker": "4"},
    "replacement": {"color": "#009E73", "linestyle": (0, (9, 2, 1, 2)), "marker": "+"},
    "zero-sum": {"color": "#E69F00", "linestyle": (0, (3, 3)), "marker": "x"},
    "liu2024": {"color": "#CC79A7", "linestyle": (0, (6, 1, 2, 1)), "marker": "|"},
    "park2023": {"color": "#56B4E9", "linestyle": (0, (2, 3)), "marker": "_"},
}

#: For series of any kind: of lengths without a common factor, so that no two of the first 77 look alike without colour.
_COLORS = ("#D55E00", "#0072B2", "#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_LINES: tuple[Any, ...] = (
    *("-", (0, (6, 2)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1.5)), (0, (8, 1.5, 1, 1.5, 1, 1.5))),
    (0, (3, 1.5, 1, 1.5)),
)
_MARKERS = ("D", "o", "^", "s", "v", "P", "X", "<", ">", "*", "h")


def style_of(scheme: str) -> dict[str, Any]:
    """Colour, dashes and marker of a scheme; one that is not built in has a look of its own by its name."""
    own = zlib.crc32(scheme.encode())
    colors, markers = ("#882255", "#44AA99", "#332288", "#AA4499", "#117733"), ("p", "h", "*", "d", "8")
    fallback = {"color": colors[own % 5], "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": markers[own // 5 % 5]}
    return STYLES.get(scheme, fallback)


def styles_for(series: Sequence[str]) -> list[dict[str, Any]]:
    """A look for every series: schemes have their own, where all are schemes of ours; the others go by their order."""
    if all(name in STYLES for name in series):
        return [STYLES[name] for name in series]
    kinds = ("color", _COLORS), ("linestyle", _LINES), ("marker", _MARKERS)
    return [{key: looks[i % len(looks)] for key, looks in kinds} for i in range(len(series))]


#: What `airfl epsilon --out` writes; the last lists the others.
PRIVACY_FILES = ("privacy.png", "privacy.pdf", "privacy.svg")
RC: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "figure.constrained_layout.use": True,
    # TrueType, not Type 3, which publishers refuse; outlines in SVG, which look the same without the font.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "airfl",
}

CANVASES = {"png": FigureCanvasAgg, "pdf": FigureCanvasPdf, "svg": FigureCanvasSVG}

Draw = Callable[[Axes, Result], bool]


def render_figures(result: Result) -> dict[str, bytes]:
    """Every figure that the run has data for, as NAME.png, NAME.pdf and NAME.svg."""
    drawn: dict[str, bytes] = {}
    for name, draw in FIGURES.items():
        with mpl.rc_context(RC):
            figure = Figure(figsize=(6.2, 3.6))
            FigureCanvasAgg(figure)
            axes = figure.add_subplot()
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if draw(axes, result):
                drawn |= {f"{name}.{kind}": data for kind, data in rendered(figure, ("png", "pdf", "svg")).items()}
    return drawn


def draw_design(study: CombinerStudy, folder: Path) -> None:
    """‖w‖² of every method over the proven bound, one box per method, as combiners.png, .pdf and .svg."""
    folder.mkdir(parents=True, exist_ok=True)
    ranked = sorted(study.methods.items(), key=lambda item: item[1].norm2_median)
    with mpl.rc_context(RC):
        figure = Figure(figsize=(6.2, 0.6 + 0.5 * len(ranked)))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        data = [10 * np.log10(row.over_bound if row.over_bound else row.norm2) for _, row in ranked]
        axes.boxplot(
            data, orientation="horizontal", tick_labels=[name for name, _ in ranked], widths=0.5, whis=(0, 100)
        )
        axes.invert_yaxis()
        axes.set_xlabel("‖w‖² above the proven bound, dB" if study.bounds is not None else "‖w‖², dB")
        axes.set_title(f"{study.active} devices, {study.antennas} antennas", fontsize=10)
        write_figure(figure, folder, "combiners")


def draw_audit(audit: Audit, folder: Path) -> None:
    """The two worlds as histograms, as audit.png, .pdf and .svg."""
    from airfl.privacy.auditing import AuditBound

    with mpl.rc_context(RC):
        figure = Figure(figsize=(6.2, 3.2))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        worlds = (("canary out", audit.scores_out, "#0072B2"), ("canary in", audit.scores_in, "#D55E00"))
        everything = np.concatenate([audit.scores_in, audit.scores_out])
        count = min(60, max(12, round(len(everything) ** 0.5)))
        edges = np.linspace(float(everything.min()), float(everything.max()), count).tolist()
        shared: dict[str, Any] = {"density": True, "histtype": "stepfilled", "alpha": 0.35}
        for (label, scores, color), hatch in zip(worlds, ("", "///"), strict=True):
            if len(scores):
                axes.hist(scores, edges, color=color, hatch=hatch, label=label, **shared)
        if isinstance(audit.bound, AuditBound):
            axes.axvline(audit.bound.threshold, color="#000000", linestyle="--", linewidth=1.0, label="threshold")
        axes.set_xlabel("how far the final model moved along the canary's direction")
        axes.set_ylabel("density")
        axes.set_title(f"{audit.subject}: ε ≥ {epsilon_text(audit.bound.epsilon_lower)}", fontsize=10)
        axes.legend()
        write_figure(figure, folder, "audit")


#: Line styles of accountants; with a domain the dashes tell the diameters apart.
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))


def draw_privacy_curves(curves: Sequence[Curve], delta: float, folder: Path, name: str) -> None:
    """ε against T, as NAME.png, NAME.pdf and NAME.svg."""
    with mpl.rc_context(RC):
        write_figure(privacy_figure(curves, delta), folder, name)


def privacy_files(curves: Sequence[Curve], delta: float) -> dict[str, bytes]:
    """ε against T, by the names of ``PRIVACY_FILES``."""
    with mpl.rc_context(RC):
        found = rendered(privacy_figure(curves, delta), ("png", "pdf", "svg"))
    return {f"privacy.{kind}": data for kind, data in found.items()}


def privacy_figure(curves: Sequence[Curve], delta: float) -> Figure:
    """ε against T: left what grows with every round, right what an enforced domain changes."""
    diameters = sorted({c.diameter for c in curves if c.diameter is not None})
    plain = [c for c in curves if c.diameter is None]
    panels = [("without a domain", plain)]
    if diameters:
        panels.append(("with an enforced domain of diameter D", [plain[0], *(c for c in curves if c not in plain)]))
    with mpl.rc_context(RC):
        figure = Figure(figsize=(4.7 * len(panels), 4.0))
        FigureCanvasAgg(figure)
        shared: Axes | None = None
        for index, (title, lines) in enumerate(panels):
            shared = axes = figure.add_subplot(1, len(panels), index + 1, sharey=shared)
            for group in _coinciding(lines):
                curve = group[0]
                look = shown(ACCOUNTANTS[curve.accountant])
                style: dict[str, Any] = {"color": look.color, "linestyle": look.linestyle}
                if curve.diameter is not None:
                    style["linestyle"] = _DASHES[diameters.index(curve.diameter) % len(_DASHES)]
                style |= {"marker": look.marker, "markevery": 3, "markersize": 4.5}
                axes.loglog(curve.rounds, curve.epsilon, label="\n= ".join(map(_curve_label, group)), **style)
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("rounds T")
            axes.legend(fontsize=8, loc="upper left")
        figure.axes[0].set_ylabel(f"ε at δ = {number(delta)}")
    return figure


def _coinciding(curves: Sequence[Curve]) -> list[list[Curve]]:
    """Curves that lie on top of each other, within 1 % everywhere, together."""
    groups: list[list[Curve]] = []
    for curve in curves:
        for group in groups:
            if np.allclose(curve.epsilon, group[0].epsilon, rtol=0.01):
                group.append(curve)
                break
        else:
            groups.append([curve])
    return groups


def _curve_label(curve: Curve) -> str:
    label = ACCOUNTANTS[curve.accountant].label
    return label if curve.diameter is None else f"{label}, D = {number(curve.diameter)}"


def write_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.png, NAME.pdf and NAME.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, data in rendered(figure, ("png", "pdf", "svg")).items():
        write_bytes(folder / f"{name}.{kind}", data)


def rendered(figure: Figure, kinds: Sequence[str] = ("png", "pdf"), dpi: int = 180) -> dict[str, bytes]:
    """A figure as files, by kind; the same bytes for the same figure."""
    undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    found = {}
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it has found places for everything, and would look for them once more a file
    for kind in kinds:
        buffer = io.BytesIO()
        # What ``savefig`` does, without drawing everything once more to see whether it has a place.
        canvas: Any = CANVASES[kind](figure)
        figure.dpi = dpi
        getattr(canvas, f"print_{kind}")(buffer, metadata=undated.get(kind))
        found[kind] = buffer.getvalue()
    return found


def _curve(axes: Axes, name: str, rounds: np.ndarray, values: np.ndarray) -> None:
    """Mean over trials with a band from the smallest to the largest."""
    style = style_of(name)
    tested = np.isfinite(values).all(axis=0)
    x, y = rounds[tested], values[:, tested]
    axes.plot(x, y.mean(axis=0), label=scheme_shown(name).title, markevery=max(1, len(x) // 10), **style)
    if len(y) > 1:
        axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=style["color"], alpha=0.15, linewidth=0)


def _curves(axes: Axes, result: Result, column: str) -> bool:
    for name, scheme in result.schemes.items():
        if scheme.records and _complete(scheme.column("round")):
            _curve(axes, name, scheme.column("round")[0], scheme.column(column))
    if not axes.lines:
        return False
    axes.set_xlabel("round")
    axes.legend()
    return True


def _complete(rounds: np.ndarray) -> bool:
    return rounds.ndim == 2 and rounds.size > 0


def _accuracy(axes: Axes, result: Result) -> bool:
    axes.set_ylabel("test accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return _curves(axes, result, "accuracy")


def _loss(axes: Axes, result: Result) -> bool:
    axes.set_ylabel("training loss")
    return _curves(axes, result, "train_loss")


def _radio(result: Result) -> tuple[str, Any] | None:
    """The scheme whose noise is worth showing: the private one, else the plain radio one."""
    for name in (private_scheme(result) or "", "airfl-mimo"):
        scheme = result.schemes.get(name)
        if scheme is not None and scheme.records and _complete(scheme.column("round")):
            return name, scheme
    return None


def _noise(axes: Axes, result: Result) -> bool:
    """Noise standard deviation per coordinate of the sum, against the smallest the power limit allows."""
    found = _radio(result)
    if found is None:
        return False
    name, scheme = found
    rounds, std = scheme.column("round")[0], np.sqrt(scheme.column("noise_var"))
    least = std * scheme.column("minimum_norm") / scheme.column("combiner_norm")
    axes.semilogy(rounds, std.mean(axis=0), label=f"{scheme_shown(name).title}: noise added (q_t)", **style_of(name))
    told = not np.isnan(least).any()  # it would tell who took part where that is hidden
    if told:
        axes.semilogy(
            rounds, least.mean(axis=0), color="#0072B2", linestyle=(0, (4, 2)), marker="v", label="least possible (π_t)"
        )
    if told and len(std) > 1:
        axes.fill_between(rounds, least.min(axis=0), least.max(axis=0), color="#0072B2", alpha=0.15, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel("noise std per coordinate\nof the summed update")
    axes.margins(y=0.35)
    axes.legend(loc="center right" if (std.mean() > 3 * least.mean()) else "upper right")
    return True


def _budget(axes: Axes, result: Result) -> bool:
    """ε spent so far, for the accountant that books the budget."""
    name = private_scheme(result)
    scheme = result.schemes.get(name or "")
    if name is None or scheme is None or not scheme.records or not _complete(scheme.column("round")):
        return False
    rounds, spent = scheme.column("round")[0], scheme.column("epsilon")
    known = ~np.isnan(spent).any(axis=0)  # not every round is accounted for
    rounds, spent = rounds[known], spent[:, known]
    axes.plot(rounds, spent.mean(axis=0), label="spent so far", **style_of(name))
    if len(spent) > 1:
        axes.fill_between(
            rounds, spent.min(axis=0), spent.max(axis=0), color=style_of(name)["color"], alpha=0.15, linewidth=0
        )
    limit = result.config.privacy.epsilon_for(result.dim)
    if limit is not None:
        axes.axhline(limit, color="#000000", linestyle=(0, (1, 1)), label=f"budget ε = {at_most_text(limit)}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("round")
    axes.set_ylabel(f"ε at δ = {number(result.config.privacy.delta)} ({result.accountant})")
    axes.legend(loc="lower right")
    return True


FIGURES: dict[str, Draw] = {"accuracy": _accuracy, "loss": _loss, "noise": _noise, "budget": _budget}
