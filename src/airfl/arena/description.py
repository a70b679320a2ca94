"""What the arena is: its cells, its schemes with their knobs, who is left out and why, and what is asked of it.

A TOML file, ``experiments/studies/arena.toml``::

    base = "massive-linear"
    against = "airfl-dp"                          # whom every other scheme is compared with
    questions = [["airfl-dp-online", "liu2020"]]  # further pairs: is the first better than the second?

    [set]                                         # for all schemes
    "privacy.neighbours" = "zero-out"

    [data."i.i.d."]
    "learning.partition" = "iid"

    [scales.smoke]
    snr_db = [-65.0]
    ...

    [schemes.airfl-dp]                            # as it is
    [schemes.liu2020]
    knob = "scheme.contraction"                   # tried beside what is set, or the default
    values = [0.8, 0.99]

    [excluded]
    some-scheme = "why"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from airfl.catalogue import SchemeName, no_such
from airfl.config import key_problem, problems_of
from airfl.errors import InputError, Problems, in_words, listed
from airfl.places import experiments_folder
from airfl.toml import parse_toml
from airfl.traits import SCHEMES, USUAL, Traits, scheme_traits

#: Settings of a cell that each later stage of tuning tries beside the best so far, and how many such stages there are.
REFINEMENTS, REFINING_STAGES = 2, 2


@dataclass(frozen=True)
class Cell:
    """Where schemes meet: data, SNR and ε; None where a scheme does not feel it.

    Attributes:
        data: its name in the description.
        snr_db: per antenna, at the edge of the cell.
    """

    data: str
    snr_db: float | None
    epsilon: float | None

    def felt_by(self, scheme: str) -> Cell:
        """The same as far as a scheme can tell: without a radio there is no SNR, without a promise no ε."""
        from airfl.schemes import scheme_shown  # heavy, and a description may be read without

        own = scheme_shown(scheme)
        return Cell(self.data, self.snr_db if own.policy.over_air else None, self.epsilon if own.keeps_budget else None)


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Scale(_Plain):
    """How large the arena is.

    Attributes:
        cells: every SNR with every ε, or a cross: all SNRs at the middle ε, and all ε at the middle SNR.
        steps: η_g that the first stage of tuning tries; evenly spaced in their logarithm.
    """

    snr_db: tuple[float, ...] = Field(min_length=1)
    epsilon: tuple[float, ...] = Field(min_length=1)
    cells: Literal["all", "cross"] = "all"
    trials: int = Field(ge=1)
    steps: tuple[float, ...] = Field(min_length=2)
    overrides: dict[str, Any] = Field({}, alias="set")

    @property
    def points(self) -> list[tuple[float, float]]:
        """SNR and ε of the cells."""
        middle = self.snr_db[len(self.snr_db) // 2], self.epsilon[len(self.epsilon) // 2]
        pairs = list(product(self.snr_db, self.epsilon))
        return [p for p in pairs if self.cells == "all" or p[0] == middle[0] or p[1] == middle[1]]

    @property
    def half_step(self) -> float:
        """The square root of the ratio of two neighbouring steps: what refines them."""
        return float((self.steps[-1] / self.steps[0]) ** (0.5 / (len(self.steps) - 1)))

    @property
    def tuning_runs(self) -> int:
        """Settings that every scheme may try in a cell."""
        return len(self.steps) + REFINEMENTS * REFINING_STAGES


class Entry(_Plain):
    """A scheme in the arena.

    Attributes:
        knob: a key that is tuned beside the step; None: the step is tuned more finely in its place.
        values: of the knob, tried beside the one that is set.
        step_scale: by which the steps of the arena are multiplied, where updates have another length.
        note: what a reader of the table should know of how it is built here.
    """

    knob: str | None = None
    values: tuple[Any, ...] = ()
    step_scale: float = Field(1.0, gt=0)
    overrides: dict[str, Any] = Field({}, alias="set")
    note: str = ""


class Arena(_Plain):
    """The whole description."""

    base: str
    seed: int = Field(ge=0)
    tuning_seed: int = Field(ge=0)
    against: SchemeName
    questions: tuple[tuple[SchemeName, SchemeName], ...] = ()
    overrides: dict[str, Any] = Field({}, alias="set")
    data: dict[str, dict[str, Any]] = Field(min_length=1)
    scales: dict[str, Scale] = Field(min_length=1)
    schemes: dict[SchemeName, Entry] = Field(min_length=1)
    excluded: dict[str, str] = {}

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if problems := list(self._problems()):
            raise Problems(problems)
        return self

    def _problems(self) -> Iterator[str]:
        for name in dict.fromkeys([self.against, *(name for pair in self.questions for name in pair)]):
            if name not in self.schemes:
                yield f"`{name}` is asked about and not in the arena"
        for name, why in self.excluded.items():
            if name in self.schemes:
                yield f"`{name}` is both in the arena and excluded"
            if not why.strip():
                yield f"`{name}` is excluded without a reason; give one"
        for name, entry in self.schemes.items():
            if len(entry.values) != (REFINEMENTS if entry.knob else 0):
                yield f"scheme `{name}`: every scheme has the same tuning budget, so a knob has {REFINEMENTS} `values`"
        if self.seed == self.tuning_seed:
            yield "`tuning_seed` must not be `seed`: what is tuned on must not be tested on"
        for key in self._keys():
            if problem := key_problem(key):
                yield problem

    def _keys(self) -> dict[str, None]:
        tables = (self.overrides, *self.data.values(), *(scale.overrides for scale in self.scales.values()))
        named = [key for table in (*tables, *(entry.overrides for entry in self.schemes.values())) for key in table]
        return dict.fromkeys([*named, *(entry.knob for entry in self.schemes.values() if entry.knob)])

    def scale(self, name: str) -> Scale:
        """A scale by its name."""
        if name not in self.scales:
            raise InputError(no_such("scale", name, self.scales))
        return self.scales[name]

    def cells(self, scale: str) -> list[Cell]:
        """All cells, data by data."""
        return [Cell(data, *point) for data in self.data for point in self.scale(scale).points]

    def cells_of(self, scheme: str, scale: str) -> list[Cell]:
        """The cells that a scheme has to run in: those that it can tell apart."""
        return list(dict.fromkeys(cell.felt_by(scheme) for cell in self.cells(scale)))

    def wanted(self, names: Sequence[str]) -> tuple[str, ...]:
        """Schemes of the arena by name, in its order; none named: all."""
        for name in names:
            if name in self.excluded:
                raise InputError(f"scheme `{name}` is not in the arena: {self.excluded[name]}")
            if name not in self.schemes:
                raise InputError(no_such("scheme of the arena", name, self.schemes))
        return tuple(name for name in self.schemes if not names or name in names)


def needs_of(scheme: str) -> Traits:
    """What a scheme needs; one from outside as a private scheme over the air."""
    return scheme_traits(scheme) if scheme in SCHEMES else replace(USUAL, budget=True)


def read_arena(path: Path | None = None) -> Arena:
    """The committed description, or another one."""
    file = path or experiments_folder() / "studies" / "arena.toml"
    try:
        values = parse_toml(file.read_text(encoding="utf-8"), f"the arena `{file}`")
        return Arena.model_validate(values)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the arena `{file}`: {in_words(error)}") from None
    except ValidationError as error:
        raise InputError(listed(f"the arena `{file}`", problems_of(error, Arena))) from None
