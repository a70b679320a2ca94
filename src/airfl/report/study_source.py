"""What figures are drawn from: the cells of a study or of a run, with what was recorded of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from airfl.config import Config
from airfl.errors import InputError
from airfl.report.sentences import data_text
from airfl.report.trust import study_trust
from airfl.runs import Result
from airfl.runs.tables import record_schema
from airfl.schemes import scheme_shown
from airfl.study import Plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.summary import columns_of, summarise_points
from airfl.sweeps.sweep import provenance_of_study
from airfl.wording import number

#: (round, value) of every trial, by configuration and scheme.
Column = Mapping[tuple[int, str], Mapping[int, list[tuple[int, float]]]]
#: What a record has numbers of.
RECORDED = tuple(name for name, _ in record_schema() if name not in ("scheme", "trial", "round"))


@dataclass(frozen=True)
class Cell:
    """A configuration under a scheme.

    Attributes:
        trials: those that are done; failed: those that are not and will not be.
        epsilons: observer → accountant → ε of the worst trial; None: not known.
        seconds: time that the rounds took; None where it is not kept.
        follows_data: whether noise was chosen by an estimate from updates, so that no ε is a proof.
    """

    point: int
    scheme: str
    config: Config = field(repr=False)
    trials: int
    failed: int = 0
    epsilons: Mapping[str, Mapping[str, float | None]] | None = None
    seconds: float | None = None
    follows_data: bool = False

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The configuration as `section.key`."""
        sections = self.config.to_mapping()
        flat = {
            f"{name}.{key}": v for name, part in sections.items() if isinstance(part, dict) for key, v in part.items()
        }
        return {key: tuple(v) if isinstance(v, list) else v for key, v in flat.items() if key != "scheme.names"}


@dataclass(frozen=True)
class Source:
    """A study or a run, to draw from.

    Attributes:
        axes: keys that vary, those of the study file first.
        column: reads a recorded quantity.
        rows: one per configuration and scheme, as `airfl report --json` prints them; empty for a run.
        words: what it is, in sentences.
        texts: files that it was made from, by title.
    """

    name: str
    kind: str
    base: Config
    cells: tuple[Cell, ...]
    axes: tuple[str, ...]
    column: Callable[[str], Column]
    rows: tuple[Mapping[str, Any], ...]
    words: tuple[str, ...]
    provenance: Mapping[str, Any]
    texts: Mapping[str, str]


def of_study(plan: Plan, folder: Folder) -> Source:
    """The cells of a study that are over."""
    points = summarise_points(plan, folder)
    if not points:
        raise InputError(f"`{folder.path}` has no finished cell yet, so there is nothing to draw; wait, or --resume it")
    configs = {point: plan.config(point) for point in {point for point, _ in points}}
    cells = tuple(
        Cell(
            point,
            row["scheme"],
            configs[point],
            row["trials"],
            row["failed"],
            row["epsilon_by_observer"],
            follows_data=bool(row["noise_follows_data"]),
        )
        for point, row in points
    )
    over = sum(cell.trials + cell.failed for cell in cells)
    schemes = ", ".join(scheme_shown(name).title for name in dict.fromkeys(cell.scheme for cell in cells))
    words = [
        f"{len(plan.points)} configurations of {plan.study.base}, {plan.base.system.trials} "
        f"trial{'s' if plan.base.system.trials > 1 else ''} each: {schemes}.",
        *(f"{axis}: {_values(plan, axis)}." for axis in plan.study.axes),
        f"Where nothing else is said: {_setting(plan.base)}.",
        *study_trust(plan, [row for _, row in points]),
    ]
    if over < plan.num_cells:
        words.append(f"Not finished: {over} of {plan.num_cells} cells.")
    made = {key: value for key, value in provenance_of_study(plan, folder).items() if key != "config_sha256"}
    texts = {"The study": (folder.path / "study.toml").read_text(encoding="utf-8"), "Its base": plan.base.to_toml()}
    return Source(
        plan.study.name, "study", plan.base, cells, _varying(cells, plan.study.axes),
        lambda name: columns_of(plan, folder, name), tuple(row for _, row in points), tuple(words), made, texts,
    )  # fmt: skip


def of_run(result: Result) -> Source:
    """The schemes of a run."""
    entries = result.summary["schemes"]
    cells = tuple(
        Cell(
            0,
            name,
            result.config,
            entry["trials"],
            0,
            entry["epsilon_by_observer"],
            entry["seconds"],
            result.schemes[name].noise_follows_data,
        )
        for name, entry in entries.items()
    )

    def column(name: str) -> Column:
        found: dict[tuple[int, str], dict[int, list[tuple[int, float]]]] = {}
        for scheme, own in result.schemes.items():
            for record in own.records:
                values = found.setdefault((0, scheme), {}).setdefault(record.trial, [])
                values.append((record.round, getattr(record, name)))
        return found

    trials = result.config.system.trials
    words = [
        f"{', '.join(scheme_shown(name).title for name in entries)}; {trials} trial{'s' if trials > 1 else ''} each, "
        f"{_setting(result.config)}."
    ]
    words += [
        f"{scheme_shown(name).title} did not finish: {entry['message'] or entry['status']}."
        for name, entry in entries.items()
        if entry["status"] != "done"
    ]
    texts = {"Resolved configuration": result.config.to_toml()}
    return Source(
        result.config.name, "run", result.config, cells, (), column, (), tuple(words), result.provenance, texts
    )  # fmt: skip


def _values(plan: Plan, axis: str) -> str:
    found = list({repr(point.get(axis)): point.get(axis) for point in plan.points}.values())
    shown = [number(value) if isinstance(value, float) else str(value) for value in found[:12]]
    return ", ".join(shown) + (f", … ({len(found)} values)" if len(found) > 12 else "")


def _setting(config: Config) -> str:
    system = config.system
    return (
        f"{system.num_devices:,} devices, {system.num_active:,} active per round, {system.num_antennas:,} antennas, "
        f"{system.rounds:,} rounds, {config.learning.model} on {data_text(config)}"
    )


def _varying(cells: tuple[Cell, ...], first: tuple[str, ...]) -> tuple[str, ...]:
    """Keys with more than one value, a study's own axes first."""
    tables = list({cell.point: cell.keys for cell in cells}.values())
    names = dict.fromkeys((*first, *(key for table in tables for key in table)))
    return tuple(key for key in names if len({repr(table.get(key)) for table in tables}) > 1)
