"""The rows of a study, as a caller from Python has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airfl.imports import later
from airfl.runs.tables import frame_of
from airfl.sweeps.summary import flat
from airfl.wording import (
    at_most_text,
    html_table,
    number,
    percent,
    text_table,
)

#: Lines that are shown of a long study.
MOST_SHOWN = 20


class Rows(list[dict[str, Any]]):
    """A list of rows, one per configuration and scheme; also a table and a figure.

    Attributes:
        axes: the keys that vary.
    """

    def __init__(self, rows: list[dict[str, Any]], axes: tuple[str, ...] = ()) -> None:
        super().__init__(rows)
        self.axes = axes

    def to_arrow(self) -> pa.Table:
        """One row per configuration and scheme as a ``pyarrow.Table``; ε by observer is the exact one."""
        return pa.Table.from_pylist([flat(row) for row in self])

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``."""
        return frame_of(self.to_arrow())

    def plot(self, x: str | None = None, y: str = "accuracy", by: str | None = None, ax: Any = None) -> Any:
        """Lines with error bars, the 95 % interval over trials. Returns matplotlib's axes.

        Args:
            x: a column; default: the first axis.
            y: a column; ``accuracy`` and ``epsilon`` stand for the mean accuracy and the largest ε.
            by: a line per value of this column; default: the scheme if there are several, else the second axis.
        """
        x = x or (self.axes[0] if self.axes else "scheme")
        if by is None:
            other = [axis for axis in self.axes if axis != x]
            by = "scheme" if len({row["scheme"] for row in self}) > 1 else other[0] if other else None
        return later("airfl.report.rows_figure:draw_rows")([flat(row) for row in self], x, y, by, ax)

    def __repr__(self) -> str:
        return f"<airfl study: {len(self)} rows\n{text_table(self._shown())}{self._more()}>"

    def _repr_html_(self) -> str:
        return html_table(self._shown(), self._more().strip())

    def _shown(self) -> list[dict[str, str]]:
        return [
            {
                **{axis: _text(row[axis]) for axis in self.axes},
                "scheme": row["scheme"],
                "accuracy": percent(row["accuracy_mean"], row["accuracy_std"], row["trials"]),
                "ε": at_most_text(row["epsilon_max"]),
                **({"failed": str(row["failed"])} if row["failed"] else {}),
            }
            for row in self[:MOST_SHOWN]
        ]

    def _more(self) -> str:
        return f"\n  … and {len(self) - MOST_SHOWN} more" if len(self) > MOST_SHOWN else ""


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else "" if value is None else str(value)
