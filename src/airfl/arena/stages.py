"""The studies of a scheme: three that tune it on the validation split, each around the best of those before; the test.

Every scheme may try as many settings in a cell as any other: the steps of the scale; two that lie half way to the next
ones, on the logarithm; and two more, which are values of its knob, or quarter steps where it has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airfl.arena.description import Arena, Cell
from airfl.errors import InputError
from airfl.report.progress import ArenaProgress
from airfl.study import Study, make_study
from airfl.sweeps import find_plan, start_or_resume
from airfl.sweeps.executors import Executor
from airfl.sweeps.summary import columns_of

Stage = Literal["coarse", "finer", "last", "test"]
STAGES: tuple[Stage, ...] = ("coarse", "finer", "last", "test")
#: Configurations × trials that train together.
ROWS = 32


@dataclass(frozen=True)
class Setting:
    """What is tuned: the server's step, before a scheme's own scale, and the value of its knob; None: as it is."""

    step: float
    knob: Any = None


@dataclass(frozen=True)
class Tuned:
    """A setting, and what it reached on the validation split; 0 where it diverged."""

    setting: Setting
    accuracy: float


@dataclass(frozen=True)
class Contest:
    """The arena at one scale, with its trials."""

    arena: Arena
    scale: str
    trials: int

    def changes(self, scheme: str, cell: Cell, setting: Setting) -> dict[str, Any]:
        """A configuration of one of the scheme's studies."""
        entry = self.arena.schemes[scheme]
        point = dict(self.arena.data[cell.data])
        if cell.snr_db is not None:
            point["channel.snr_db"] = cell.snr_db
        if cell.epsilon is not None:
            point["privacy.epsilon"] = cell.epsilon
        point["learning.server_step"] = float(f"{setting.step * entry.step_scale:.6g}")
        if setting.knob is not None and entry.knob:
            point[entry.knob] = setting.knob
        return point

    def study(self, scheme: str, stage: Stage, pairs: Sequence[tuple[Cell, Setting]]) -> Study:
        """The study of a stage."""
        scale, entry = self.arena.scale(self.scale), self.arena.schemes[scheme]
        tested = stage == "test"
        split = {"learning.split": "standard" if tested else "validation"}
        seed = {"system.seed": self.arena.seed if tested else self.arena.tuning_seed}
        content = {
            "name": f"arena-{stage}-{scheme}",
            "base": self.arena.base,
            "schemes": [scheme],
            "trials": self.trials if tested else 1,
            "rows_per_batch": ROWS,
            "set": {**self.arena.overrides, **scale.overrides, **entry.overrides, **split, **seed},
            "list": [self.changes(scheme, cell, setting) for cell, setting in pairs],
        }
        return make_study(content)

    def runs_of(self, scheme: str) -> int:
        """Runs of all its studies."""
        cells = len(self.arena.cells_of(scheme, self.scale))
        return cells * (self.arena.scale(self.scale).tuning_runs + self.trials)

    def candidates(self, scheme: str, stage: Stage, best: Mapping[Cell, Tuned]) -> list[tuple[Cell, Setting]]:
        """What a stage runs in every cell, given the best of the stages before."""
        entry, scale = self.arena.schemes[scheme], self.arena.scale(self.scale)
        if stage == "coarse":
            return [(cell, Setting(step)) for cell in self.arena.cells_of(scheme, self.scale) for step in scale.steps]
        if stage == "test":
            return [(cell, tuned.setting) for cell, tuned in best.items()]
        if stage == "last" and entry.knob:
            return [
                (cell, Setting(tuned.setting.step, value)) for cell, tuned in best.items() for value in entry.values
            ]
        ratio = scale.half_step if stage == "finer" else scale.half_step**0.5
        steps = [(cell, tuned.setting.step) for cell, tuned in best.items()]
        return [(cell, Setting(way)) for cell, step in steps for way in (step / ratio, step * ratio)]


@dataclass(frozen=True)
class Worker:
    """Who works off the studies, and who hears how far they are."""

    executor: Executor
    progress: ArenaProgress
    threads: int = 1


class InterruptedArena(Exception):
    """The user stopped it; the same call goes on."""


class FailedStudy(Exception):
    """A study of a scheme has batches that could not be run."""


def work_off(study: Study, out: Path, worker: Worker) -> bool:
    """Run a study, or what is left of it; one that is finished is left alone, whatever code it was made with."""
    cells = len(study.one_by_one) * (study.trials or 1)
    if is_finished(study, out):
        worker.progress.skip(cells)
        return True
    text = json.dumps(study.model_dump(mode="json", by_alias=True), indent=1)
    with worker.progress.study(study.name.removeprefix("arena-"), cells) as heard:
        plan, folder, standing, interrupted = start_or_resume(
            study, text, out, worker.executor, heard, threads=worker.threads, afresh=False
        )
    if interrupted:
        raise InterruptedArena
    if any(folder.finished(batch) is None for batch in plan.batches):
        raise FailedStudy("; ".join(dict.fromkeys(standing.messages)) or "a batch failed")
    return True


def is_finished(study: Study, out: Path) -> bool:
    """Whether a folder holds all batches of this very study."""
    if not (out / "plan.json").is_file():
        return False
    plan, folder = find_plan(out)
    if plan.study != study:
        raise InputError(
            f"`{out}` holds the study of another arena, scale or number of trials; name another --out, or remove it"
        )
    return all(folder.look(batch)[0] is not None for batch in plan.batches)


def accuracies(out: Path) -> list[dict[int, float]]:
    """The last accuracy of every configuration, by trial; empty where all diverged or were refused."""
    plan, folder = find_plan(out)
    columns = columns_of(plan, folder, "accuracy")
    return [
        {trial: max(values)[1] for trial, values in columns.get((point, plan.schemes(point)[0]), {}).items()}
        for point in range(len(plan.points))
    ]


def best_of(pairs: Sequence[tuple[Cell, Setting]], found: Sequence[Mapping[int, float]]) -> dict[Cell, Tuned]:
    """Of every cell the setting with the highest mean accuracy, the first of equals."""
    best: dict[Cell, Tuned] = {}
    for (cell, setting), values in zip(pairs, found, strict=True):
        mean = sum(values.values()) / len(values) if values else 0.0
        if cell not in best or mean > best[cell].accuracy:
            best[cell] = Tuned(setting, mean)
    return best


def better_of(first: Mapping[Cell, Tuned], second: Mapping[Cell, Tuned]) -> dict[Cell, Tuned]:
    """Cell by cell the better one; the first of equals."""
    return {
        cell: first[cell] if cell in first and first[cell].accuracy >= tuned.accuracy else tuned
        for cell, tuned in second.items()
    }


def staged(
    contest: Contest, scheme: str, out: Path, is_ready: Callable[[Study, Path], bool]
) -> dict[Cell, Tuned] | None:
    """What a scheme is tuned to, cell by cell, once all of its studies are ready; None where one is not."""
    best: dict[Cell, Tuned] = {}
    for stage in STAGES:
        pairs = contest.candidates(scheme, stage, best)
        if not is_ready(contest.study(scheme, stage, pairs), out / stage):
            return None
        if stage != "test":
            best = better_of(best, best_of(pairs, accuracies(out / stage)))
    return best


def run_scheme(contest: Contest, scheme: str, out: Path, worker: Worker) -> None:
    """Tune and test a scheme in ``out``, or go on where that was stopped."""
    staged(contest, scheme, out, lambda study, folder: work_off(study, folder, worker))


def chosen(contest: Contest, scheme: str, out: Path) -> dict[Cell, Tuned] | None:
    """What a scheme was tuned to, where all of its studies are finished; else None."""
    return staged(contest, scheme, out, is_finished)
