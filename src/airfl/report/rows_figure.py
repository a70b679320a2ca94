"""Lines of a result or of a study's rows, for whoever calls ``plot`` from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from airfl.errors import InputError
from airfl.report.figures import RC, style_of
from airfl.runs import SchemeResult
from airfl.runs.tables import record_schema
from airfl.schemes import scheme_shown

#: What axes say of a column; others go by their names.
LABELS = {
    "round": "round",
    "accuracy": "test accuracy",
    "loss": "test loss",
    "train_loss": "training loss",
    "epsilon": "ε",
    "noise_var": "noise variance of the sum",
}
#: Columns of a study that stand for a short name: middle, low, high.
SHORT = {"accuracy": ("accuracy_mean", "accuracy_low", "accuracy_high"), "epsilon": ("epsilon_max",)}
#: From this ratio of the largest to the smallest value on, an axis is logarithmic.
WIDE = 30.0


def draw_rounds(schemes: Mapping[str, SchemeResult], y: str, ax: Axes | None = None) -> Axes:
    """A column of the records against the round: the mean over trials in a band from the smallest to the largest."""
    known = [name for name, kind in record_schema() if str(kind) == "double"]
    if y not in known:
        raise InputError(f"no column `{y}` to draw; known: {', '.join(known)}")
    with _house_style(ax) as axes:
        for name, scheme in schemes.items():
            values, rounds = scheme.column(y), scheme.column("round")
            if not values.size:
                continue
            there = np.isfinite(values).all(axis=0)
            x, shown = rounds[0, there], values[:, there]
            if not x.size:  # no ε, no noise: nothing to draw
                continue
            style = style_of(name)
            axes.plot(x, shown.mean(axis=0), label=scheme_shown(name).title, markevery=max(1, len(x) // 10), **style)
            if len(shown) > 1:
                low, high = shown.min(axis=0), shown.max(axis=0)
                axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return _finish(axes, "round", y)


def draw_rows(
    rows: Sequence[Mapping[str, Any]], x: str, y: str = "accuracy", by: str | None = None, ax: Axes | None = None
) -> Axes:
    """A column of a study's rows against another, a line per value of ``by``, with error bars where there are any."""
    middle, *ends = SHORT.get(y, (y,))
    for name in (x, middle, *([] if by is None else [by])):
        if not rows or name not in rows[0]:
            raise InputError(f"no column `{name}` to draw; known: {', '.join(rows[0] if rows else ())}")
    lines: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(None if by is None else row[by], []).append(row)
    with _house_style(ax) as axes:
        for number, (value, own) in enumerate(lines.items()):
            own = [row for row in own if row[middle] is not None and row[x] is not None]
            if len({row[x] for row in own}) < len(own):
                raise InputError(f"several rows have the same `{x}`: say with `by`, or leave rows out, which to draw")
            own = own if any(isinstance(row[x], str) for row in own) else sorted(own, key=lambda row: row[x])
            points = [row[x] for row in own], [row[middle] for row in own]
            bars = [[abs(row[end] - row[middle]) for row in own] for end in ends] or None
            axes.errorbar(*points, yerr=bars, capsize=3, label=_label(by, value), **_style(by, value, number))
        axes.set_xscale("log" if _is_wide([row[x] for row in rows]) else axes.get_xscale())
        return _finish(axes, x, y, by)


@contextmanager
def _house_style(ax: Axes | None) -> Iterator[Axes]:
    """The axes that were given, or those of a new figure, in our style.

    The figure comes first: with the first one a notebook's backend sets parameters of its own, which must stay.
    """
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(6.2, 3.6), layout="constrained") if ax is None else None
    with mpl.rc_context(RC):
        yield ax if figure is None else figure.add_subplot()  # type: ignore[misc]


def _finish(axes: Axes, x: str, y: str, by: str | None = None) -> Axes:
    axes.set_xlabel(LABELS.get(x, x))
    axes.set_ylabel(LABELS.get(y, y))
    if y == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title=None if by in (None, "scheme") else by)
    return axes


def _style(by: str | None, value: Any, number: int) -> dict[str, Any]:
    if by == "scheme":
        return style_of(value)
    looks = ("#0072B2", "o", "-"), ("#D55E00", "D", (0, (6, 2))), ("#009E73", "^", (0, (1, 1))), ("#000000", "s", "-.")
    color, marker, line = looks[number % len(looks)]
    return {"color": color, "marker": marker, "linestyle": line}


def _label(by: str | None, value: Any) -> str | None:
    if by is None:
        return None
    return scheme_shown(value).title if by == "scheme" else str(value)


def _is_wide(values: Sequence[Any]) -> bool:
    if not all(isinstance(value, int | float) and value > 0 for value in values):
        return False
    return bool(max(values) >= WIDE * min(values))
