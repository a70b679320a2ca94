"""The paper's figures from their rows, in its style: print-ready, bands over trials, readable in black and white."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from airfl.paper.studies import VARIANTS, Row
from airfl.privacy import gaussian_epsilon, gaussian_mu
from airfl.report.figures import RC, style_of, write_figure
from airfl.schemes import scheme_shown
from airfl.wording import number

#: Published by the authors: final accuracy, i.i.d., mean over 10 trials (2.5 and 97.5 percentiles). ε̃, mean, low, high.
PUBLISHED_DP = (
    (0.0375, 0.75264, 0.74112, 0.76552),
    (0.1, 0.85518, 0.84902, 0.86232),
    (0.16, 0.87273, 0.86890, 0.87730),
    (0.28, 0.88225, 0.88002, 0.88464),
)
PUBLISHED = {"airfl-mimo": 0.89113, "fedavg-clip": 0.89094, "fedavg": 0.89514}

#: One colour, dash pattern and marker per budget, light to dark with ε̃.
_BUDGETS: tuple[dict[str, Any], ...] = (
    {"color": "#F0A889", "linestyle": (0, (1, 1)), "marker": "P"},
    {"color": "#E8875B", "linestyle": (0, (3, 1.5)), "marker": "<"},
    {"color": "#D55E00", "linestyle": (0, (5, 1.5)), "marker": "D"},
    {"color": "#A34800", "linestyle": (0, (6, 1.5, 1, 1.5)), "marker": ">"},
    {"color": "#6B2F00", "linestyle": "-", "marker": "X"},
)
_VARIANT: dict[str, dict[str, Any]] = {
    "authors": {"color": "#D55E00", "linestyle": "-", "marker": "D"},
    "airfl": {"color": "#0072B2", "linestyle": (0, (5, 2)), "marker": "o"},
}
_VARIANT_TITLE = {"authors": "as published", "airfl": "variant airfl"}

Rows = Sequence[Row]


def draw_paper_figure(name: str, rows: Rows, notes: Mapping[str, Any], folder: Path) -> list[str]:
    """Draw a figure that has rows; returns the names of its files without suffix."""
    if not rows:
        return []
    if name in ("fig3", "fig4"):
        drawn = []
        for variant in VARIANTS:
            own = [row for row in rows if row["variant"] == variant]
            if own:
                drawn.append(name if variant == "authors" else f"{name}-{variant}")
                data = "i.i.d. devices" if name == "fig3" else "two classes per device"
                counts = sorted({row["trials"] for row in own})
                fewest = f"{counts[0]} to " if len(counts) > 1 else ""
                trials = f"mean of {fewest}{counts[-1]} trials" if counts[-1] > 1 else "one trial"
                title = f"{data}, {_VARIANT_TITLE[variant]}, {trials}"
                _draw(folder, drawn[-1], 2, partial(_rounds, rows=own, loss=_loss_of(notes, variant), title=title))
        return drawn
    panels: dict[str, Callable[[Sequence[Axes]], None]] = {
        "fig5": lambda axes: _budget(axes[0], rows, notes),
        "fig6": lambda axes: _power(axes[0], rows, notes),
        "clip": lambda axes: _along(axes[0], rows, "clip_factor", 1e3, "clip factor k, c² = k·10⁻³·d"),
        "domain": lambda axes: _along(axes[0], rows, "domain_diameter", 1.0, "diameter D of the enforced domain", True),
    }
    _draw(folder, name, 1, panels[name])
    return [name]


def _draw(folder: Path, name: str, panels: int, fill: Callable[[Sequence[Axes]], None]) -> None:
    with mpl.rc_context(RC):
        figure = Figure(figsize=(5.0 * panels, 3.8))
        FigureCanvasAgg(figure)
        axes = [figure.add_subplot(1, panels, index + 1) for index in range(panels)]
        fill(axes)
        write_figure(figure, folder, name)


def _loss_of(notes: Mapping[str, Any], variant: str) -> str:
    """Which images the loss is of."""
    own = [note["loss_mean"] for name, note in notes["studies"].items() if name.endswith(variant)]
    return "training loss" if own[0].startswith("training") else "loss on test images"


def _rounds(axes: Sequence[Axes], rows: Rows, loss: str, title: str) -> None:
    """Accuracy and loss against rounds, a line per scheme and budget."""
    lines: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["scheme"], row["epsilon_tilde"]), []).append(row)
    budgets = sorted({key[1] for key in lines if key[0] == "airfl-dp" and key[1] is not None})
    for (scheme, budget), own in lines.items():
        style = _BUDGETS[budgets.index(budget) % len(_BUDGETS)] if scheme == "airfl-dp" and budget else style_of(scheme)
        label = scheme_shown(scheme).title + ("" if budget is None else f", ε̃ = {budget:g}")
        x = [row["round"] for row in own]
        every = max(1, len(x) // 8)
        shared = {"label": label, "markevery": every, "markersize": 3.5, "linewidth": 1.3, **style}
        if scheme == "airfl-dp-online":  # it may lie on the line of its budget: open circles show both
            shared |= {"linestyle": "none", "marker": "o", "markerfacecolor": "none", "markersize": 5.5}
            shared["markevery"] = (every // 2, every)
        axes[0].plot(x, [row["accuracy_mean"] for row in own], **shared)
        low, high = ([row[key] for row in own] for key in ("accuracy_low", "accuracy_high"))
        axes[0].fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes[1].plot(x, [row["loss_mean"] for row in own], **shared)
    for panel, name in zip(axes, ("(a) test accuracy", f"(b) {loss}"), strict=True):
        panel.set_xlabel("round")
        panel.set_title(f"{name}; {title}", fontsize=9)
    axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    final = min(own[-1]["accuracy_mean"] for own in lines.values())
    axes[0].set_ylim(bottom=max(0.0, final - 0.35))
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].get_figure(root=True).legend(handles, labels, fontsize=7.5, loc="outside lower center", ncols=5)  # type: ignore[union-attr]
    losses = sorted(row["loss_mean"] for row in rows)
    axes[1].set_ylim(0.0, min(1.05 * losses[-1], 2.0 * losses[int(0.97 * (len(losses) - 1))]))


def _budget(axes: Axes, rows: Rows, notes: Mapping[str, Any]) -> None:
    """Accuracy against ε̃; the plain ε on top; authors' runs a second time where their exact ε is."""
    root = math.sqrt(notes["dim"])
    for variant, own in _by_variant(rows, "airfl-dp").items():
        own.sort(key=lambda row: row["epsilon_tilde"])
        whose = "ε by the published formula" if variant == "authors" else "exact ε, device removed"
        label = f"AirFL-DP, {_VARIANT_TITLE[variant]} ({whose})"
        _band(axes, [row["epsilon_tilde"] for row in own], own, label, variant)
        exact = [row for row in own if row["epsilon_exact"] is not None]
        if variant == "authors" and exact:
            _at_exact(axes, exact, root)
    base = next((v for v in VARIANTS if any(r["variant"] == v and r["scheme"] == "fedavg" for r in rows)), None)
    for scheme in ("fedavg", "fedavg-clip", "airfl-mimo"):
        found = [row for row in rows if row["scheme"] == scheme and row["variant"] == base]
        if found:
            style = {key: style_of(scheme)[key] for key in ("color", "linestyle")}
            axes.axhline(found[0]["accuracy_mean"], label=scheme_shown(scheme).title, linewidth=1.1, **style)
    if notes["dim"] == 582_026:  # the published model
        x, mean, low, high = zip(*PUBLISHED_DP, strict=True)
        bars = [[m - b for m, b in zip(mean, low, strict=True)], [t - m for m, t in zip(mean, high, strict=True)]]
        look: dict[str, Any] = {
            "color": "#000000",
            "markerfacecolor": "none",
            "markersize": 8,
            "capsize": 3,
            "linewidth": 0.9,
        }
        axes.errorbar(x, mean, bars, fmt="s", label="published by the authors", **look)
    largest = max(row["epsilon_tilde"] or 0.0 for row in rows)
    axes.set_xlim(0.0, 1.05 * largest)
    axes.set_xlabel("privacy budget ε̃ = ε/√d")
    functions: Any = (lambda e: e * root, lambda e: e / root)
    top = axes.secondary_xaxis("top", functions=functions)
    top.set_xlabel(f"plain ε at δ = 1e-5 (d = {notes['dim']:,})", fontsize=9)
    _percent(axes)
    axes.legend(fontsize=7.5, loc="lower right")


def _at_exact(axes: Axes, rows: Rows, root: float) -> None:
    """The published runs where their exact ε is: for a device replaced (S = 2c), and for one removed (S = c)."""
    heights = [row["accuracy_mean"] for row in rows]
    replaced = [row["epsilon_exact"] for row in rows]
    removed = [gaussian_epsilon(1e-5, gaussian_mu(value, 1e-5) / 2.0) for value in replaced]
    for where, name, dash in ((replaced, "replaced", (0, (1, 1.2))), (removed, "removed", (0, (4, 1.2, 1, 1.2)))):
        label = f"the published runs, exact ε, device {name}"
        axes.plot([e / root for e in where], heights, color="#A34800", linestyle=dash, linewidth=1.3, label=label)


def _power(axes: Axes, rows: Rows, notes: Mapping[str, Any]) -> None:
    """Accuracy against worst-case SNR, with the threshold of the perk."""
    offset = notes["snr_of_one_watt_db"]
    for scheme, marker, dash in (("airfl-mimo", "^", "-"), ("airfl-dp", "D", (0, (3, 1.5)))):
        for variant, own in _by_variant(rows, scheme).items():
            own.sort(key=lambda row: row["power_w"])
            snr = [10.0 * math.log10(row["power_w"]) + offset for row in own]
            look = {"marker": marker, "linestyle": dash}
            if variant == "airfl":
                look["markerfacecolor"] = "none"
            _band(axes, snr, own, f"{scheme_shown(scheme).title}, {_VARIANT_TITLE[variant]}", variant, look)
    for variant, thresholds in notes.get("snr_threshold_db", {}).items():
        if all(row["variant"] != variant for row in rows):
            continue
        color, threshold = _VARIANT[variant]["color"], sum(thresholds) / len(thresholds)
        axes.axvline(threshold, color=color, linestyle=(0, (1, 1.5)), linewidth=1.1)
        axes.annotate(
            f"perk up to\n{threshold:.1f} dB".replace("-", "−"), (threshold, 0.02), fontsize=7.5,
            xycoords=("data", "axes fraction"),
            color=color, ha="left" if variant == "authors" else "right", xytext=(3 if variant == "authors" else -3, 0),
            textcoords="offset points",
        )  # fmt: skip
    axes.set_xlabel(r"worst-case SNR $P\,\Lambda_{\min}/\sigma^2$ per antenna, dB")
    _percent(axes)
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.12)}
    axes.legend(fontsize=7.5, frameon=True, facecolor="white", framealpha=1.0, edgecolor="none", **place)


def _along(axes: Axes, rows: Rows, column: str, unit: float, label: str, log: bool = False) -> None:
    for variant, own in _by_variant(rows, "airfl-dp").items():
        own.sort(key=lambda row: row[column])
        budget = own[0]["epsilon_tilde"]
        alone = ", one trial" if all(row["trials"] == 1 for row in own) else ""
        title = f"AirFL-DP at ε̃ = {budget:g}, {_VARIANT_TITLE[variant]}{alone}"
        _band(axes, [unit * row[column] for row in own], own, title, variant)
    if log:
        values = sorted({unit * row[column] for row in rows})
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_xlabel(label)
    _percent(axes)
    axes.legend(fontsize=8)


def _by_variant(rows: Rows, scheme: str) -> dict[str, list[Row]]:
    found = {v: [row for row in rows if row["variant"] == v and row["scheme"] == scheme] for v in VARIANTS}
    return {variant: own for variant, own in found.items() if own}


def _band(
    axes: Axes, x: Sequence[float], own: Rows, label: str, variant: str, look: Mapping[str, Any] | None = None
) -> None:
    style = {**_VARIANT[variant], **(look or {})}
    axes.plot(x, [row["accuracy_mean"] for row in own], label=label, **style)
    low, high = ([row[key] for row in own] for key in ("accuracy_low", "accuracy_high"))
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _percent(axes: Axes) -> None:
    axes.set_ylabel("test accuracy")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 1))
