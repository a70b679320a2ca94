"""Which lines a figure of a study or a run has: cells are chosen, grouped, and refused where they would be averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airfl.catalogue import nearest
from airfl.config import parse_override
from airfl.errors import InputError
from airfl.privacy.events import NEIGHBOUR_ALIASES
from airfl.report.study_fields import (
    Field,
    Quantity,
    check_observer,
    epsilon_label,
    exact_epsilon,
    field_of,
    quantity_of,
    varying,
)
from airfl.report.study_source import Cell, Column, Source
from airfl.schemes import scheme_shown
from airfl.sweeps.summary import interval
from airfl.wording import number

#: Width and height in inches, and the size of letters: a column or the whole width of a page by IEEE.
SIZES = {"one-column": (3.5, 2.4, 8.0), "two-column": (7.16, 3.2, 9.0)}
_OVER_ROUNDS = {"mean": "mean over rounds", "max": "of all rounds"}


@dataclass(frozen=True)
class Wish:
    """What is to be drawn.

    Attributes:
        x: default: the first axis of numbers that is not fixed and not in ``by``; of a run, the round.
        by: a line for each value of these, and always for each scheme where there are several.
        where: KEY=VALUE, what to keep; the same key again keeps that value too.
    """

    x: str | None = None
    y: str = "accuracy"
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    observer: str | None = None
    size: str = "one-column"
    log_x: bool = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            known = nearest(self.size, list(SIZES)) or f"; known: {', '.join(SIZES)}"
            raise InputError(f"no size named `{self.size}`{known}")


@dataclass(frozen=True)
class Point:
    """A value with its interval over trials; None: no finite value, or no interval."""

    x: Any
    value: float | None
    low: float | None
    high: float | None
    trials: int


@dataclass(frozen=True)
class Line:
    """The points of one combination of values.

    Attributes:
        name: of the scheme, where lines are schemes.
    """

    name: str
    label: str
    values: tuple[Any, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Drawing:
    """All that a figure, its table and its page need.

    Attributes:
        caption: what is drawn.
        notes: what is not.
    """

    x: Field
    y: Quantity
    by: tuple[Field, ...]
    lines: tuple[Line, ...]
    y_label: str
    caption: str
    notes: tuple[str, ...]
    wish: Wish

    @property
    def points(self) -> list[Point]:
        """Of all lines."""
        return [point for line in self.lines for point in line.points]

    @property
    def spans_decades(self) -> bool:
        """Whether all x are above zero and span two decades or more, which logarithms show."""
        places = [point.x for point in self.points if is_number(point.x)]
        return self.x.name != "round" and bool(places) and min(places) > 0 and max(places) >= 100 * min(places)

    @property
    def table_caption(self) -> str:
        """The caption without what only a figure has."""
        kept = [part for part in self.caption.split(". ") if not part.startswith(("Bars are", "Bands are"))]
        return ". ".join(part.rstrip(".") for part in kept) + "."

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per point, for CSV."""
        name = self.y.name
        spread = not name.startswith("epsilon") and name != "seconds"
        return [
            {
                **{field.name: value for field, value in zip(self.by, line.values, strict=True)},
                self.x.name: point.x,
                **({f"{name}_mean": point.value} if spread else {name: point.value}),
                **({f"{name}_low": point.low, f"{name}_high": point.high} if spread else {}),
                "trials": point.trials,
            }
            for line in self.lines
            for point in line.points
        ]


@dataclass(frozen=True)
class _Asked:
    """What a wish means for a source."""

    source: Source
    x: Field
    y: Quantity
    by: tuple[Field, ...]
    observer: str
    column: Column

    def line(self, values: tuple[Any, ...], cells: Sequence[Cell]) -> Line:
        """The line of the cells with these values."""
        points = self._rounds(cells) if self.x.name == "round" else self._points(cells)
        alone = len(self.by) == 1 and self.by[0].name == "scheme"
        label = ", ".join(field.named(value) for field, value in zip(self.by, values, strict=True))
        return Line(str(values[0]) if alone else str(values), label or self.y.label, values, tuple(points))

    def _points(self, cells: Sequence[Cell]) -> list[Point]:
        """A point per value of x, each of one cell."""
        places: dict[Any, list[Cell]] = {}
        for cell in cells:
            places.setdefault(self.x.value(cell), []).append(cell)
        found = [self._point(place, own) for place, own in places.items()]
        words = any(isinstance(place, str) for place in places)  # they stay in the order of the study
        return found if words else sorted(found, key=lambda point: sortable((point.x,)))

    def _point(self, place: Any, cells: Sequence[Cell]) -> Point:
        cell = self._only(cells)
        if self.y.name == "epsilon":
            return Point(place, exact_epsilon(cell, self.observer) if cell.trials else None, None, None, cell.trials)
        if self.y.name == "seconds":
            return Point(place, cell.seconds, None, None, cell.trials)
        trials = self.column.get((cell.point, cell.scheme), {}).values()
        return _over_trials(place, [_of_trial([value for _, value in trial], self.y) for trial in trials], self.y)

    def _rounds(self, cells: Sequence[Cell]) -> list[Point]:
        """A point per round that was looked at."""
        cell = self._only(cells)
        rounds: dict[int, list[float]] = {}
        for trial in self.column.get((cell.point, cell.scheme), {}).values():
            for index, value in trial:
                if not math.isnan(value):
                    rounds.setdefault(index, []).append(value)
        return [_over_trials(index, rounds[index], self.y) for index in sorted(rounds)]

    def _only(self, cells: Sequence[Cell]) -> Cell:
        """The one cell of a point; several are refused, not averaged."""
        if len(cells) == 1:
            return cells[0]
        self._refuse_endless(cells[0])
        known = {self.x.name, *(field.name for field in self.by)}
        tables = [{**cell.keys, "scheme": cell.scheme} for cell in cells]
        for key in (*self.source.axes, "scheme"):
            values = list({repr(table.get(key)): table.get(key) for table in tables}.values())
            if len(values) > 1 and key not in known:
                lines = " ".join(f"--by {name}" for name in (*(field.name for field in self.by), key))
                raise InputError(
                    f"`{key}` is neither x nor by and has several values ({listed(map(str, values))}), and nothing is "
                    f"averaged over it; fix it with --where {key}={values[0]}, or draw a line for each with {lines}"
                )
        at = f" = {self.x.text(self.x.value(cells[0]))}" if self.x.name != "round" else ""
        raise InputError(
            f"several configurations fall on one point, {self.x.name}{at}; choose another x or add --by KEY"
        )

    def _refuse_endless(self, cell: Cell) -> None:
        """Refuse a scheme that has no finite ε anywhere, with ε as x: nothing else that is fixed would help."""
        if self.x.name != "epsilon":
            return
        finite = dict.fromkeys(other.scheme for other in self.source.cells if self.x.value(other) is not None)
        if finite and cell.scheme not in finite:
            keep = " ".join(f"--where scheme={name}" for name in finite)
            raise InputError(
                f"`{cell.scheme}` has no finite ε, so it has no place on this axis; leave it out with {keep}"
            )


def drawing_of(source: Source, wish: Wish) -> Drawing:
    """Choose cells and lines; whatever would be averaged over, or is not there, is refused."""
    observer, y = wish.observer or "model", quantity_of(wish.y, source)
    cells = _chosen(source, wish.where, observer)
    x = field_of(wish.x or _usual_x(source, wish, observer, cells), source, observer)
    by = tuple(field_of(name, source, observer) for name in _lines_by(wish, x, cells))
    _refuse_nonsense(source, wish, x, y, by)
    _refuse_constant(source, cells, x)
    computed = y.name == "seconds" or (y.name == "epsilon" and x.name != "round")
    column = {} if computed else source.column("epsilon" if y.name == "epsilon_booked" else y.name)
    asked = _Asked(source, x, y, by, observer, column)
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(field.value(cell) for field in by), []).append(cell)
    # Schemes in the order of the study, numbers in theirs.
    order = list(dict.fromkeys(cell.scheme for cell in cells))
    ranks = [
        tuple(order.index(v) if f.name == "scheme" else v for f, v in zip(by, values, strict=True)) for values in groups
    ]
    ranked = sorted(zip(ranks, groups.items(), strict=True), key=lambda item: sortable(item[0]))
    lines = tuple(asked.line(values, own) for _, (values, own) in ranked)
    _refuse_empty(lines, x, y, wish.log_x)
    y_label = _label(y, x, source, wish.observer)
    caption = _caption(x, y, y_label, wish, lines, epsilon_label(cells, observer))
    notes = _left_out(lines, x, y)
    follow = dict.fromkeys(scheme_shown(cell.scheme).title for cell in cells if cell.follows_data)
    if follow and (x.name == "epsilon" or y.name.startswith("epsilon")):
        notes.append(f"No ε of {' and '.join(follow)} is a proof: its noise follows an estimate from updates.")
    return Drawing(x, y, by, lines, y_label, caption, tuple(notes), wish)


def _lines_by(wish: Wish, x: Field, cells: Sequence[Cell]) -> tuple[str, ...]:
    """What has a line for each value: what was asked for, and always each scheme where there are several."""
    if x.name == "scheme" or "scheme" in wish.by:
        return wish.by
    several = len({cell.scheme for cell in cells}) > 1
    return (*wish.by, "scheme") if several or not wish.by else wish.by


def _refuse_nonsense(source: Source, wish: Wish, x: Field, y: Quantity, by: Sequence[Field]) -> None:
    shown = {x.name, y.name, *(field.name for field in by)}
    by_round = x.name == "round"
    if wish.observer is not None and "epsilon" not in shown:
        raise InputError("--observer says whose ε is meant, and no ε is drawn here; add --y epsilon, or leave it out")
    if any(field.name == "round" for field in by):
        raise InputError("`round` can be x, not by; draw the rounds with --x round")
    if by_round and y.name == "epsilon" and wish.observer:
        raise InputError("ε of every round is as it was booked; leave out --observer, or choose another x")
    if by_round and y.name == "seconds":
        raise InputError("`seconds` are those of all rounds; choose another x, for example --x scheme")
    if y.name == "epsilon" and not by_round:
        check_observer(wish.observer or "model", source)


def _refuse_constant(source: Source, cells: Sequence[Cell], x: Field) -> None:
    values = {repr(x.value(cell)): x.value(cell) for cell in cells}
    if len(values) < 2 and x.name not in ("scheme", "round"):
        (only,) = map(x.text, values.values())
        raise InputError(
            f"`{x.name}` is {only} in all that is drawn; choose an x that varies: {listed(varying(source))}"
        )


def _refuse_empty(lines: Sequence[Line], x: Field, y: Quantity, log_x: bool) -> None:
    points = [point for line in lines for point in line.points]
    if all(point.value is None or point.x is None for point in points):
        raise InputError(f"there is no finite {y.name} to draw here; choose another y or x")
    wrong = [p.x for p in points if p.x is not None and (not is_number(p.x) or p.x <= 0)]
    if log_x and wrong:
        raise InputError(f"--log-x takes numbers above zero, and {x.name} is {wrong[0]} somewhere; leave it out")


def _chosen(source: Source, where: Sequence[str], observer: str) -> list[Cell]:
    """The cells that `--where` leaves: with any of the values that are given for a key, for all keys."""
    wanted: dict[str, tuple[Field, list[Any]]] = {}
    for text in where:
        if "=" not in text:
            raise InputError(f"`--where {text}` must look like KEY=VALUE, for example --where scheme=airfl-dp")
        name, value = parse_override(text)
        value = NEIGHBOUR_ALIASES.get(value, value) if isinstance(value, str) else value
        field = field_of(name, source, observer)
        there = list({repr(field.value(cell)): field.value(cell) for cell in source.cells}.values())
        if not any(_same(value, found) for found in there):
            raise InputError(f"nothing here has {field.name} = {value}; there is: {listed(map(str, there))}")
        wanted.setdefault(field.name, (field, []))[1].append(value)
    cells = [
        cell
        for cell in source.cells
        if all(any(_same(value, field.value(cell)) for value in values) for field, values in wanted.values())
    ]
    if not cells:
        raise InputError("no configuration has all that --where asks for; leave one of them out")
    return cells


def _same(wanted: Any, found: Any) -> bool:
    if is_number(wanted) and is_number(found):
        return math.isclose(wanted, found, rel_tol=1e-9)
    return str(wanted) == str(found)


def _usual_x(source: Source, wish: Wish, observer: str, cells: Sequence[Cell]) -> str:
    """The first axis of numbers that varies in what is drawn and has no lines of its own."""
    taken = {field_of(name, source, observer).name for name in wish.by}
    for key in source.axes:
        values = {repr(cell.keys.get(key)): cell.keys.get(key) for cell in cells}
        if len(values) > 1 and key not in taken and all(map(is_number, values.values())):
            return key
    return "round"


def _of_trial(values: Sequence[float], y: Quantity) -> float:
    """What stands for a trial: its last round that was looked at, the mean of all, or the largest."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return {"last": known[-1], "mean": float(np.mean(known)), "max": max(known)}[y.over_rounds]


def _over_trials(place: Any, values: Sequence[float], y: Quantity) -> Point:
    """Mean and interval; of ε, the worst."""
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return Point(place, None, None, None, 0)
    if y.name.startswith("epsilon"):
        worst = float(known.max())
        return Point(place, worst if math.isfinite(worst) else None, None, None, len(known))
    mean, low, high = interval(known)
    if len(known) < 2:
        return Point(place, mean, None, None, 1)
    return Point(place, mean, max(0.0, low) if y.share else low, min(1.0, high) if y.share else high, len(known))


def sortable(values: Iterable[Any]) -> tuple[tuple[int, Any], ...]:
    """Numbers before words, nothing last."""
    return tuple((0, v) if is_number(v) else (2, "") if v is None else (1, str(v)) for v in values)


def is_number(value: Any) -> bool:
    """Whether a value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def listed(words: Iterable[str]) -> str:
    """The first few of some words."""
    some = list(words)
    return ", ".join(some[:8]) + (", …" if len(some) > 8 else "")


def _left_out(lines: Sequence[Line], x: Field, y: Quantity) -> list[str]:
    """What the table has and the figure has not."""
    points = [point for line in lines for point in line.points]
    nowhere, undone = sum(point.x is None for point in points), sum(point.trials == 0 for point in points)
    notes = []
    if nowhere and x.name != "epsilon":
        notes.append(f"{nowhere} of {len(points)} points have no {x.name} and are in the table alone.")
    missing = "x" if x.name == "epsilon" else "value"
    endless = [line.label for line in lines if any(getattr(p, missing) is None and p.trials for p in line.points)]
    if endless and (x.name == "epsilon" or y.name.startswith("epsilon")):
        notes.append(f"Not in the figure where ε is infinite: {'; '.join(endless)}.")
    if undone:
        notes.append(f"{undone} of {len(points)} points have no {y.name}: no trial is done, or there is none for them.")
    return notes


def _label(y: Quantity, x: Field, source: Source, observer: str | None) -> str:
    """Of the y axis."""
    if y.name == "epsilon":
        exact = f"exact ε{f' ({observer})' if observer else ''} at δ = {number(source.base.privacy.delta)}"
        return "ε spent so far, as booked" if x.name == "round" else exact
    return y.label if x.name == "round" or y.over_rounds == "last" else f"{y.label}, {_OVER_ROUNDS[y.over_rounds]}"


def _caption(x: Field, y: Quantity, y_label: str, wish: Wish, lines: Sequence[Line], epsilon: str) -> str:
    said = f"{y_label[0].upper()}{y_label[1:]} against {plain(x.label)}"
    said += f", where {' and '.join(wish.where)}." if wish.where else "."
    if x.name == "epsilon" or (y.name == "epsilon" and x.name != "round"):
        said += f" {epsilon}"
    points = [point for line in lines for point in line.points]
    counts = sorted({point.trials for point in points if point.trials})
    if any(point.low is not None for point in points):
        what = "Bands" if x.name == "round" else "Bars"
        trials = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[-1]}"
        said += f" {what} are 95 % intervals of the mean over {trials} trials (Student's t)."
    elif counts == [1]:
        said += " One trial."
    if x.name == "snr_db":
        said += " P is the transmit power, Λ_min the path gain at the cell edge, σ² the noise power per antenna."
    return said


def plain(label: str) -> str:
    """A label without mathematics."""
    for there, here in ((r"\,", "·"), (r"\Lambda_{\min}", "Λ_min"), (r"\sigma^2", "σ²"), ("$", "")):
        label = label.replace(there, here)
    return label
