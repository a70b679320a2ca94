"""The arena from end to end: run what is left of it, read what is there, rank it, judge it, draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from airfl.arena.description import Arena, read_arena
from airfl.arena.figure import draw_arena
from airfl.arena.ranks import Place, Standing, places, standings
from airfl.arena.rows import COLUMNS, OBSERVER, rows_of
from airfl.arena.stages import Contest, FailedStudy, InterruptedArena, Worker, run_scheme
from airfl.arena.table import Row, markdown, table
from airfl.arena.verdicts import Verdict, verdicts
from airfl.errors import InputError
from airfl.paper.studies import read_notes, read_rows, write_notes, write_table
from airfl.places import experiments_folder
from airfl.report.progress import ArenaProgress
from airfl.runs.store import write_csv, write_text
from airfl.sweeps.batch import forget_samples
from airfl.sweeps.executors import Executor

#: Of the tables beside it.
NAME, TRIALS = "arena", "arena_trials"


@dataclass(frozen=True)
class Wish:
    """What is to be run, and how.

    Attributes:
        schemes: of the arena; none: all.
        trials: of the test; default: those of the scale.
        threads: of the process that trains, or of each worker.
    """

    out: Path
    scale: str = "full"
    schemes: tuple[str, ...] = ()
    trials: int | None = None
    threads: int = 1
    arena: Arena = field(default_factory=read_arena)

    def __post_init__(self) -> None:
        self.arena.scale(self.scale)
        self.arena.wanted(self.schemes)
        if self.trials is not None and self.trials < 1:
            raise InputError(f"`trials` must be at least 1; got {self.trials}")

    @property
    def contest(self) -> Contest:
        """The arena at this scale."""
        return Contest(self.arena, self.scale, self.trials or self.arena.scale(self.scale).trials)


@dataclass(frozen=True)
class Outcome:
    """What came out.

    Attributes:
        rows: one per scheme and cell.
        missing: schemes of the arena that were not run yet.
        failed: why a scheme could not be run, by scheme.
        interrupted: stopped before the end; calling again goes on.
    """

    rows: tuple[Row, ...] = ()
    places: tuple[Place, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    missing: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def standings(self) -> list[Standing]:
        """Schemes, best first."""
        return standings(self.places)

    @property
    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "standings": [asdict(standing) for standing in self.standings],
            "rows": list(self.rows),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "missing": list(self.missing),
            "failed": dict(self.failed),
        }


def run_arena(wish: Wish, executor: Executor) -> Outcome:
    """Tune and test the schemes that are asked for, or what is left of them, and show all that is there."""
    contest, failed = wish.contest, {}
    names = wish.arena.wanted(wish.schemes)
    forget_samples()  # once: all studies have the same data
    with ArenaProgress(sum(contest.runs_of(name) for name in names)) as progress:
        worker = Worker(executor, progress, wish.threads)
        for name in names:
            try:
                run_scheme(contest, name, wish.out / "studies" / name, worker)
            except InterruptedArena:
                return Outcome(interrupted=True)
            except FailedStudy as error:  # one scheme must not take the others along
                failed[name] = str(error)
    collect(wish)
    return show(wish, wish.out, failed)


def collect(wish: Wish) -> None:
    """Rows and provenance of every scheme whose studies are finished, into the folder's tables."""
    rows: list[Row] = []
    schemes: dict[str, Any] = {}
    for name in wish.arena.schemes:
        found = rows_of(wish.contest, name, wish.out / "studies" / name)
        if found is not None:
            rows += found[0]
            schemes[name] = found[1]
    if not rows:
        return
    scale = wish.arena.scale(wish.scale)
    notes = {
        **{"scale": wish.scale, "trials": wish.contest.trials, "runs_of_tuning_in_a_cell": scale.tuning_runs},
        **{"seed": wish.arena.seed, "tuning_seed": wish.arena.tuning_seed, "base": wish.arena.base},
        "set": {**wish.arena.overrides, **scale.overrides},
        "data": wish.arena.data,
        "epsilon": f"exact, accountant gaussian, observer {OBSERVER}; the worst trial",
        "schemes": schemes,
    }
    write_table(rows, wish.out, TRIALS, pa.schema(list(COLUMNS.items())))
    write_notes(notes, wish.out, NAME)


def show(wish: Wish, source: Path | None = None, failed: Mapping[str, str] | None = None) -> Outcome:
    """Rank, judge and draw the rows that lie in a folder; default: the committed results."""
    source = source or experiments_folder() / "results"
    rows, notes = read_rows(source / f"{TRIALS}.csv"), read_notes(source / f"{NAME}.json")
    if not rows:
        return Outcome(missing=tuple(wish.arena.schemes), failed=failed or {})
    found = places(wish.arena, notes["scale"], rows)
    if not found:
        raise InputError(f"`{source}` holds the rows of another arena: none is of a cell of scale `{notes['scale']}`")
    said = verdicts(wish.arena, found)
    made = table(wish.arena, found, rows)
    there = {place.scheme for place in found}
    outcome = Outcome(
        tuple(made), tuple(found), tuple(said), tuple(n for n in wish.arena.schemes if n not in there), failed or {}
    )
    wish.out.mkdir(parents=True, exist_ok=True)
    write_csv(wish.out / f"{NAME}.csv", made, digits=6)
    write_text(wish.out / f"{NAME}.md", markdown(wish.arena, found, said))
    notes |= {"standings": outcome.summary["standings"], "verdicts": outcome.summary["verdicts"]}
    write_notes(notes, wish.out, NAME)
    draw_arena(found, wish.out, NAME)
    return outcome
