"""A study: one base configuration, axes, schemes and trials, and the batches they are worked off in.

A TOML file names a base (preset or file), what to change in it, and the axes::

    name = "snr"
    base = "authors"
    schemes = ["airfl-mimo", "airfl-dp"]
    trials = 10

    [set]
    "system.rounds" = 20

    [grid]                              # every combination
    "channel.power_w" = [7e-11, 2e-10]

    [[zip]]                             # side by side
    "system.num_devices" = [50, 500]
    "system.num_antennas" = [100, 200]

    [[list]]                            # one point after another; here alone, with schemes of its own
    "learning.clip_factor" = 0.012
    "scheme.names" = ["airfl-dp"]
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from airfl.catalogue import SchemeName
from airfl.config import NAME_PATTERN, Config, key_problem, preset_names, problems_of, read
from airfl.errors import InputError, Problems, in_words, listed
from airfl.imports import look_beside
from airfl.memory import Need, needs_of, require_memory
from airfl.toml import parse_toml
from airfl.version import __version__
from airfl.wording import counted

Point = dict[str, Any]

#: A configuration is validated and kept, a batch of cells is a file.
MOST_CONFIGURATIONS, MOST_CELLS = 100_000, 1_000_000

#: Keys of ``learning`` that act on what devices have trained: configurations that differ in them may train together.
AFTER_TRAINING = (
    *("clip_norm", "clip_factor", "domain_diameter"),
    *("server_step", "server_schedule", "server_momentum", "model_average"),
)


class Study(BaseModel):
    """What a study file says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("study", pattern=NAME_PATTERN, max_length=200)
    base: str
    schemes: tuple[SchemeName, ...] = Field((), description="default: the base's own")
    trials: int | None = Field(None, ge=1, description="default: the base's own")
    overrides: dict[str, Any] = Field({}, alias="set", description="changes of the base")
    grid: dict[str, list[Any]] = Field({}, description="every combination of these values")
    side_by_side: tuple[dict[str, list[Any]], ...] = Field((), alias="zip", description="values that go together")
    one_by_one: tuple[dict[str, Any], ...] = Field((), alias="list", description="points as they are")
    rows_per_batch: int = Field(
        16, ge=1, description="configurations × trials that are trained together; part of what makes bits agree"
    )

    @model_validator(mode="after")
    def _axes_make_sense(self) -> Self:
        if problems := [*self._value_problems(), *self._name_problems()]:
            raise Problems(problems)
        return self

    def _value_problems(self) -> Iterator[str]:
        """What is wrong with the values of axes."""
        for key, values in self.grid.items():
            if not values:
                yield f"axis `{key}` has no values"
        for key, values in {**self.grid, **{k: v for group in self.side_by_side for k, v in group.items()}}.items():
            kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in values}
            if len(kinds) > 1:
                yield f"the values of axis `{key}` must be of one kind; got {' and '.join(sorted(kinds))}"
        for group in self.side_by_side:
            if len({len(values) for values in group.values()}) > 1:
                yield f"the values of a zip must be equally many: {', '.join(group)}"
            elif not any(group.values()):
                yield "a zip has no values; give it keys with lists, or leave it out"

    def _name_problems(self) -> Iterator[str]:
        """Axes that are no keys, that are there twice, and keys that something else sets."""
        listed_names = {key for point in self.one_by_one for key in point}
        names = [*self.grid, *(key for group in self.side_by_side for key in group), *listed_names]
        for name, times in sorted(Counter(names).items()):
            if times > 1:
                yield f"`{name}` is an axis twice"
        elsewhere = {*self.grid, *(key for group in self.side_by_side for key in group), *self.overrides}
        reserved = ({"system.trials", "engine.device"} & {*names, *elsewhere}) | ({"scheme.names"} & elsewhere)
        for name in sorted(reserved):
            yield f"`{name}` is set by `schemes`, `trials` or the command line"
        for name in dict.fromkeys([*self.overrides, *names]):
            if problem := key_problem(name):
                yield problem

    @property
    def axes(self) -> tuple[str, ...]:
        """The keys that vary, in order."""
        listed = dict.fromkeys(key for point in self.one_by_one for key in point if key != "scheme.names")
        return (*self.grid, *(key for group in self.side_by_side for key in group), *listed)

    @property
    def changes(self) -> Point:
        """What is changed in the base: what is set, the schemes and the trials."""
        named = {"scheme.names": list(self.schemes)} if self.schemes else {}
        return {**self.overrides, **named, **({} if self.trials is None else {"system.trials": self.trials})}

    @property
    def num_points(self) -> int:
        """How many configurations there are, without listing them."""
        sides = [next(iter(group.values())) for group in self.side_by_side]
        return math.prod(len(values) for values in (*self.grid.values(), *sides)) * max(1, len(self.one_by_one))

    def points(self) -> Iterator[Point]:
        """Every configuration of the study as overrides of the base."""
        grids = [[(key, value) for value in values] for key, values in self.grid.items()]
        zips = [
            [tuple(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
            for group in self.side_by_side
        ]
        lists = [tuple(point.items()) for point in self.one_by_one] or [()]
        for combination in itertools.product(*grids, *([[*z] for z in zips]), lists):
            point: Point = {}
            for part in combination:
                pairs = [part] if part and isinstance(part[0], str) else part
                point.update(dict(pairs))  # type: ignore[arg-type]
            yield point


def read_study(path: str | Path) -> tuple[Study, str]:
    """Read a study file; returns it with its text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the study `{path}`: {in_words(error)}") from None
    return make_study(parse_toml(text, f"the study `{path}`")), text


def make_study(values: Mapping[str, Any]) -> Study:
    """Validate plain data; every problem becomes one sentence in an ``InputError``."""
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        problems = problems_of(error, Study)
        raise InputError(f"study: {problems[0]}" if len(problems) == 1 else listed("the study", problems)) from None


@dataclass(frozen=True)
class Batch:
    """Cells that are trained together: some points × some trials, all schemes.

    Attributes:
        name: also the name of its files.
        points: numbers of its configurations.
        trials: trial numbers.
    """

    name: str
    points: tuple[int, ...]
    trials: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A study taken apart, once and for all: resuming works off the same batches, so that bits agree.

    Attributes:
        needs: memory of its largest batch.
        imports: user code that its configurations name.
        begun_with: the code that the study was begun with, where it goes on with another all the same.
    """

    study: Study
    base: Config
    points: tuple[Point, ...]
    batches: tuple[Batch, ...]
    threads: int
    version: str = __version__
    needs: tuple[Need, ...] = ()
    imports: tuple[str, ...] = ()
    begun_with: Mapping[str, str] | None = None

    def require_room(self) -> None:
        """Refuse a study with a batch that cannot fit this machine's memory."""
        require_memory(list(self.needs), "a batch of this study")

    def schemes(self, point: int) -> tuple[str, ...]:
        """Schemes of a configuration."""
        return tuple(self.points[point].get("scheme.names", self.base.scheme.names))

    @property
    def num_cells(self) -> int:
        """Configurations × schemes × trials."""
        return sum(len(self.schemes(point)) for point in range(len(self.points))) * self.base.system.trials

    def config(self, point: int) -> Config:
        """The configuration of a point."""
        return self.base.replace(self.points[point])

    def describe(self) -> list[str]:
        """What the study would do, in lines."""
        lines = [
            f"{self.study.name}: {counted(len(self.points), 'configuration')}, all schemes, "
            f"{counted(self.base.system.trials, 'trial')}: {counted(self.num_cells, 'cell')} in "
            f"{len(self.batches):,} batch{'' if len(self.batches) == 1 else 'es'}"
        ]
        for axis in self.study.axes:
            values = list(dict.fromkeys(str(point[axis]) for point in self.points if axis in point))
            shown = ", ".join(values[:8]) + (f", … ({len(values)} values)" if len(values) > 8 else "")
            lines.append(f"  {axis}: {shown}")
        return lines

    def cells_of(self, batch: Batch) -> int:
        """Cells of a batch."""
        return len(batch.trials) * sum(len(self.schemes(point)) for point in batch.points)

    def fingerprint(self) -> dict[str, Any]:
        """What must agree for a folder to be resumed."""
        return {
            "version": self.version,
            "threads": self.threads,
            "study": self.study.model_dump(mode="json", by_alias=True),
            "base": self.base.to_mapping(),
            "points": hashlib.sha256(json.dumps(self.points, sort_keys=True).encode()).hexdigest(),
        }


def make_plan(study: Study, threads: int = 1, base: Config | None = None, file: Path | None = None) -> Plan:
    """Validate every configuration and group the cells into batches that may be trained together.

    Args:
        base: what the study's base was when it was planned; default: what it says now.
        file: that the study was read from; its base and its import paths are looked for beside it first.
    """
    base = base or _read_base(study, file)
    if file is not None:
        look_beside(file)
    _require_countable(study, base)
    points = tuple(study.points())
    groups: dict[str, list[int]] = {}
    first: dict[str, Config] = {}
    imports: dict[str, None] = {}
    for number, point in enumerate(points):
        config = base.replace(point)
        training = config.learning.model_copy(update=dict.fromkeys(AFTER_TRAINING))
        alike: tuple[object, ...] = (
            config.system,
            training,
            config.engine,
            config.scheme.selection,
            config.scheme.selection_keep,
        )
        if config.learning.standardise_epsilon is not None:  # its noise follows the promise
            alike = (*alike, config.privacy.delta, config.neighbours)
        groups.setdefault(repr(alike), []).append(number)
        first.setdefault(repr(alike), config)
        imports |= dict.fromkeys(config.imports)
    batches: list[Batch] = []
    needs: list[Need] = []
    for key, numbers in groups.items():
        made = list(_batches(numbers, base.system.trials, study.rows_per_batch, len(batches)))
        batches.extend(made)
        own = needs_of(first[key], len(made[0].trials), len(made[0].points))
        needs = max(needs, own, key=lambda some: sum(need.amount for need in some))
    return Plan(study, base, points, tuple(batches), threads, needs=tuple(needs), imports=tuple(imports))


def find_base(study: Study, file: Path | None = None) -> str | None:
    """A preset's name, or the path of the base: beside the study's file first, then in the working folder; or None."""
    if study.base in preset_names():
        return study.base
    places = (*((file.parent,) if file is not None else ()), Path())
    return next((str(place / study.base) for place in places if os.path.isfile(place / study.base)), None)


def _read_base(study: Study, file: Path | None) -> Config:
    return read(find_base(study, file) or study.base, study.changes)


def _require_countable(study: Study, base: Config) -> None:
    """Refuse more cells than anybody can keep, before they are listed."""
    points, trials = study.num_points, base.system.trials
    listed = [point.get("scheme.names", base.scheme.names) for point in study.one_by_one] or [base.scheme.names]
    sizes = [len(names) if isinstance(names, list | tuple) else 1 for names in listed]  # what is none is refused later
    cells = points // len(listed) * sum(sizes) * trials
    if points > MOST_CONFIGURATIONS or cells > MOST_CELLS:
        raise InputError(
            f"the study has {points:,} configurations and {cells:,} cells (configurations × schemes × {trials:,} "
            f"trials); at most {MOST_CONFIGURATIONS:,} and {MOST_CELLS:,} make one study: shorten its axes, or split it"
        )


def _batches(points: list[int], trials: int, rows: int, first: int) -> Iterator[Batch]:
    """As many trials of all configurations as fit; where not even one fits, one trial of some of them, evenly split.

    Configurations of the same trial may share training.
    """
    together = -(-len(points) // -(-len(points) // rows))
    some = max(1, rows // together)
    number = first
    for begin in range(0, trials, some):
        for start in range(0, len(points), together):
            name = f"batch-{number:05d}"
            chosen = tuple(points[start : start + together])
            yield Batch(name, chosen, tuple(range(begin, min(begin + some, trials))))
            number += 1


def threads_for(workers: int | None) -> int:
    """Threads of each worker; part of the plan, since they change rounding."""
    return max(1, (os.cpu_count() or 1) // (workers or 1)) if workers else 1
