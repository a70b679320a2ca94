"""Progress on standard error: live bars on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from airfl.terminal import is_quiet
from airfl.wording import at_most_text, plain_console

if TYPE_CHECKING:
    from airfl.config import Config
    from airfl.rounds import RoundRecord
    from airfl.sweeps import Standing
    from airfl.sweeps.executors import Event


#: Seconds until the first line where bars cannot be drawn, and until the next: so many, or a part of all so far.
FIRST_S, NEXT_S, PART = 2.0, 5.0, 0.1


class _Shown:
    """A bar that is on the screen inside a ``with`` statement."""

    _bar: Progress

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class RunProgress(_Shown):
    """One line per scheme on standard error: round, loss, accuracy, ε spent so far, time left."""

    def __init__(self, config: Config) -> None:
        self._delta = config.privacy.delta
        self._bar = _run_bar(600.0)
        self._begin = time.monotonic()
        self._opening = self._bar.add_task("opening", total=None, state="data and channels …")
        self._task: dict[str, TaskID] = {}
        self._spent: dict[str, str] = {}
        self._heard = ""

    def design(self, done: int, total: int) -> None:
        """See ``runs.execute.HearsDesign``; shown where it takes some seconds."""
        if time.monotonic() - self._begin > LateSteps.PATIENCE_S:
            self._bar.update(self._opening, completed=done, total=total, state="combiners of blocks …")

    def shards(self, done: int, total: int) -> None:
        """See ``shards.HearsShards``: how far the shards of this round are, beside the scheme that is at work."""
        left = [task for task in self._bar.tasks if not task.finished]
        if total > 1 and self._task and left:
            shown = next((task for task in left if task.id == self._task.get(self._heard)), left[0])
            seen = shown.fields["state"].split("  shard ")[0]
            self._bar.update(shown.id, state=f"{seen}  shard {done}/{total}")

    def start(self, scheme: str, rounds: int) -> None:
        """See ``runs.Progress``."""
        self._opened()
        self._task[scheme] = self._bar.add_task(scheme, total=rounds, state="training …")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened()  # an error stands alone
        super().__exit__(kind, error, trace)

    def _opened(self) -> None:
        if not self._task:
            self._bar.remove_task(self._opening)

    def round(self, scheme: str, records: Sequence[RoundRecord]) -> None:
        """See ``runs.Progress``."""
        self._heard = scheme
        accuracy = _mean([record.accuracy for record in records])
        tested = f"acc {accuracy:.3f}" if math.isfinite(accuracy) else "acc  –   "
        loss = _mean([record.train_loss for record in records])
        largest = max(record.epsilon for record in records)
        if not math.isnan(largest):  # not every round is accounted for
            self._spent[scheme] = at_most_text(largest)
        spent = self._spent.get(scheme, "–")
        state = f"loss {loss:.3f}  {tested}  ε {spent}"
        self._bar.update(self._task[scheme], advance=1, state=state)


class DemoProgress(_Shown):
    """One line per run on standard error."""

    def __init__(self) -> None:
        self._bar = _progress(
            TextColumn("{task.description:<26}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
        )

    def of(self, title: str, config: Config) -> DemoLine:
        """Who hears about one run."""
        names = set(config.scheme.names)
        shown = f"{title}, ε = {config.privacy.epsilon:g}" if "airfl-dp" in names else f"{title}, no noise"
        shown = f"{title}, shielded" if "airfl-shielded" in names else shown
        rounds = config.system.rounds * len(config.scheme.names)
        return DemoLine(self._bar, self._bar.add_task(shown, total=rounds, state=""))


class DemoLine:
    """The line of one run: all its schemes together."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def start(self, scheme: str, rounds: int) -> None:
        """See ``runs.Progress``."""

    def round(self, scheme: str, records: Sequence[RoundRecord]) -> None:
        """See ``runs.Progress``."""
        accuracy = _mean([record.accuracy for record in records])
        if math.isfinite(accuracy):
            self._bar.update(self._task, state=f"acc {accuracy:.3f}")
        self._bar.advance(self._task)


class Steps(_Shown):
    """One bar on standard error for work of a known length."""

    def __init__(self, name: str, total: int) -> None:
        self._bar = _bar()
        self._task = self._bar.add_task(name, total=total)

    def advance(self, count: int) -> None:
        """So many more steps are done."""
        self._bar.advance(self._task, count)


class LateSteps:
    """The same for work that is mostly over at once: a bar is shown once it has taken some seconds."""

    PATIENCE_S = 2.0

    def __init__(self, name: str) -> None:
        self._name, self._done, self._total = name, 0, 0
        self._bar: Progress | None = None
        self._lock, self._clock = threading.Lock(), threading.Timer(self.PATIENCE_S, self._show)
        self._clock.daemon = True
        self._is_late = False

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.cancel()
        with self._lock:
            self._is_late, self._total = False, 0
            if self._bar is not None:
                self._bar.stop()

    def stand(self, done: int, total: int) -> None:
        """So many of all steps are done."""
        with self._lock:
            self._done, self._total = done, total
            self._draw()

    def _show(self) -> None:
        """The seconds are over; a step may take longer than they did."""
        with self._lock:
            self._is_late = True
            self._draw()

    def _draw(self) -> None:
        if self._bar is None and self._is_late and self._total:
            self._bar = _bar(is_late=True)
            self._bar.add_task(self._name, total=self._total, completed=self._done)
            self._bar.start()
        if self._bar is not None and self._total:
            self._bar.update(self._bar.task_ids[0], completed=self._done, total=self._total)


class SweepProgress(_Shown):
    """On standard error: cells that are over with the time left, and below them a line per batch at work."""

    def __init__(self, title: str = "cells") -> None:
        self._bar = _run_bar(3600.0)
        self._all = self._bar.add_task(title, total=None, state="")
        self._at_work: dict[str, TaskID] = {}

    def hear(self, event: Event | None, standing: Standing) -> None:
        """Where the study stands now."""
        if event is None:  # what was there already must not pass for speed
            self._bar.reset(self._all, total=standing.plan.num_cells, completed=round(standing.cells_over))
        state = f"{standing.failed} failed" if standing.failed else ""
        self._bar.update(self._all, completed=standing.cells_over, state=state)
        for name, progress in standing.running.items():
            if name not in self._at_work:
                self._at_work[name] = self._bar.add_task(name, total=None, state="rounds")
            self._bar.update(self._at_work[name], completed=progress.rounds, total=progress.total or None)
        for name in [name for name in self._at_work if name not in standing.running]:
            self._bar.remove_task(self._at_work.pop(name))


class ArenaProgress(_Shown):
    """On standard error: runs of all studies that are over, with the time left, and which study is at work."""

    def __init__(self, total: int) -> None:
        self._bar = _run_bar(3600.0)
        self._total, self._over = total, 0
        self._task = self._bar.add_task("arena", total=total, state="")

    def skip(self, runs: int) -> None:
        """So many were over before: they must not pass for speed."""
        self._total -= runs
        self._bar.update(self._task, total=self._total)

    @contextmanager
    def study(self, name: str, runs: int) -> Iterator[Callable[[Event | None, Standing], None]]:
        """Who hears of a study while it is at work; after it, all its runs are over."""
        before = 0.0

        def hear(event: Event | None, standing: Standing) -> None:
            nonlocal before
            if event is None:
                before = standing.cells_over
                self.skip(round(before))
            self._bar.update(self._task, completed=self._over + standing.cells_over - before, state=name)

        yield hear
        self._over += runs - round(before)
        self._bar.update(self._task, completed=self._over)


class DesignProgress(_Shown):
    """One bar on standard error: which method is at work."""

    def __init__(self) -> None:
        self._bar = _bar()
        self._task = self._bar.add_task("channels", total=None)

    def advance(self, name: str, done: int, total: int) -> None:
        """Show what comes next and how far we are."""
        self._bar.update(self._task, description=name, completed=done, total=total)


class _Lines(Progress):
    """Bars for a file or a pipe: a line on those that are not full, less and less often."""

    def __init__(self, *columns: ProgressColumn, first: float, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._first, self._over, self._teller = first, threading.Event(), threading.Thread(target=self._tell)
        self._teller.daemon = True

    def start(self) -> None:
        """See ``Progress``; nothing is live, or its last bars would stand in the line of an error."""
        self._teller.start()

    def stop(self) -> None:
        """See ``Progress``."""
        if self._teller.is_alive():
            self._over.set()
            self._teller.join()
        if not self.live.transient:
            self._print([*self.tasks])

    def _tell(self) -> None:
        begin, wait = time.monotonic(), self._first
        while not self._over.wait(wait):
            self._print([task for task in self.tasks if not task.finished])
            wait = max(NEXT_S, PART * (time.monotonic() - begin))

    def _print(self, tasks: Sequence[Task]) -> None:
        with suppress(OSError, ValueError):  # nobody reads any more
            for task in tasks:
                count = "" if task.total is None else f" {task.completed:.0f}/{task.total:.0f}"
                state = task.fields.get("state", "")
                self.console.print(f"{task.description}{count}  {state}".rstrip(), soft_wrap=True, markup=False)


def _bar(*, is_late: bool = False) -> Progress:
    return _progress(
        TextColumn("{task.description:<14}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        is_late=is_late,
        transient=True,
    )


def _run_bar(speed_estimate_period: float) -> Progress:
    """A line with a name, how far it is, its state and the time left, as fast as it was over so many seconds."""
    return _progress(
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        speed_estimate_period=speed_estimate_period,
    )


def _progress(*columns: ProgressColumn, is_late: bool = False, **options: Any) -> Progress:
    """Bars on standard error, lines where that is no terminal, or nothing where nobody wants to see any."""
    console = plain_console(sys.stderr)
    if console.is_terminal or is_quiet():
        return Progress(*columns, console=console, disable=is_quiet(), **options)
    return _Lines(*columns, console=console, first=0.0 if is_late else FIRST_S, **options)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
