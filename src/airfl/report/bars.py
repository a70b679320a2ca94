"""Bars for Python callers: in a notebook one output that is drawn anew, on a terminal the bars of the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from types import TracebackType
from typing import Any, Self

import numpy as np

from airfl.config import Config
from airfl.report.progress import RunProgress, SweepProgress
from airfl.rounds import RoundRecord
from airfl.sweeps import Standing
from airfl.sweeps.executors import Event
from airfl.wording import at_most_text, counted

#: A notebook is told so often, seconds.
EVERY = 0.2


def run_bar(config: Config, *, always: bool) -> AbstractContextManager[Any]:
    """Who hears about a run; nobody where nobody looks on, unless ``always``."""
    if in_notebook():
        return NotebookRun(config)
    return RunProgress(config) if always or sys.stderr.isatty() else nullcontext()


def sweep_bar(*, always: bool) -> AbstractContextManager[Any]:
    """Who hears about a study."""
    if in_notebook():
        return NotebookSweep()
    return SweepProgress() if always or sys.stderr.isatty() else nullcontext()


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shells = sys.modules.get("IPython")
    shell = shells.get_ipython() if shells is not None else None
    return hasattr(shell, "kernel")


class _Output:
    """One output of a cell: a bar with a few words, and at the end a line that stays."""

    def __enter__(self) -> Self:
        from IPython.display import DisplayHandle

        self._begin, self._told, self._said = time.monotonic(), -EVERY, ""
        self._handle: Any = DisplayHandle()
        self._handle.display({"text/plain": "opening data and channels …"}, raw=True)
        return self

    def show(self, share: float, words: str) -> None:
        """Draw it anew, a few times a second."""
        self._said = words
        if time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            html = f'<progress max="1" value="{share:.4f}"></progress> <span>{escape(words)}</span>'
            self._handle.update({"text/html": html, "text/plain": f"{share:4.0%} {words}"}, raw=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = f"{time.monotonic() - self._begin:.1f} s"
        self._handle.update({"text/plain": f"{self._said or 'nothing'}, {took}"}, raw=True)


class NotebookRun(_Output):
    """All rounds of all schemes as one bar; the words are about the last."""

    def __init__(self, config: Config) -> None:
        self._count, self._total = 0, 0

    def start(self, scheme: str, rounds: int) -> None:
        """See ``runs.Progress``."""
        self._total += rounds

    def design(self, done: int, total: int) -> None:
        """See ``runs.execute.HearsDesign``."""
        self.show(done / total, f"combiners of {done:,} of {counted(total, 'block')}")

    def shards(self, done: int, total: int) -> None:
        """See ``shards.HearsShards``."""
        words = f"{self._count} of {counted(self._total, 'round')}, {done} of {counted(total, 'shard')}"
        self.show((self._count + done / total) / self._total, words)

    def round(self, scheme: str, records: Sequence[RoundRecord]) -> None:
        """See ``runs.Progress``."""
        self._count += 1
        accuracy, spent = np.mean([r.accuracy for r in records]), max(r.epsilon for r in records)
        words = f"{self._count} of {counted(self._total, 'round')}, {scheme}"
        words += f", accuracy {accuracy:.3f}" if np.isfinite(accuracy) else ""
        words += "" if np.isnan(spent) else f", ε {at_most_text(spent)}"
        self.show(self._count / self._total, words)


class NotebookSweep(_Output):
    """Cells that are over, of all cells of a study."""

    def hear(self, event: Event | None, standing: Standing) -> None:
        """Where the study stands now."""
        over, cells = standing.cells_over, standing.plan.num_cells
        words = f"{int(over)} of {counted(cells, 'cell')}" + (f", {standing.failed} failed" if standing.failed else "")
        self.show(over / cells, words)
