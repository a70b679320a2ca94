"""Reproduce the paper: run or read what each figure needs, draw it, and judge the paper's claims."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from airfl.catalogue import no_such
from airfl.errors import InputError
from airfl.paper.claims import Claim, judge
from airfl.paper.curves import DELTA, comparison, curve_rows, curves_of, paper_curves
from airfl.paper.figures import draw_paper_figure
from airfl.paper.studies import (
    FIGURES,
    SCALES,
    VARIANTS,
    Row,
    gather,
    link_notes,
    notes_of,
    read_notes,
    read_rows,
    run_study,
    write_notes,
    write_rows,
    write_table,
)
from airfl.places import experiments_folder
from airfl.report.figures import draw_privacy_curves
from airfl.report.progress import Steps, SweepProgress
from airfl.runs.store import write_text
from airfl.study import Plan
from airfl.sweeps.batch import Folder
from airfl.sweeps.executors import Executor
from airfl.version import __version__

NAMES = ("fig2", *FIGURES, "table1")
#: What the notes of a figure hold by variant.
BY_VARIANT = ("snr_threshold_db", "power_backoff_db")
#: Of the curves over T, by scale.
POINTS = {"full": 25, "half": 25, "smoke": 13}


@dataclass(frozen=True)
class Wish:
    """What is to be reproduced, and how.

    Attributes:
        names: figures and tables; ``all`` is every one.
        variants: authors, airfl or both.
        threads: of the process that trains, or of each worker.
    """

    names: tuple[str, ...]
    out: Path
    scale: str = "full"
    trials: int | None = None
    variants: tuple[str, ...] = VARIANTS
    threads: int = 1

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in (*NAMES, "all"):
                raise InputError(no_such("figure or table", name, (*NAMES, "all")))
        for variant in self.variants:
            if variant not in VARIANTS:
                raise InputError(no_such("variant", variant, VARIANTS))
        if self.scale not in SCALES:
            raise InputError(no_such("scale", self.scale, SCALES))
        if self.trials is not None and self.trials < 1:
            raise InputError(f"`trials` must be at least 1; got {self.trials}")

    @property
    def wanted(self) -> tuple[str, ...]:
        """Every name once, in the paper's order."""
        return tuple(name for name in NAMES if "all" in self.names or name in self.names)


@dataclass(frozen=True)
class Outcome:
    """What was drawn, and what it says about the paper.

    Attributes:
        files: figures, without suffix.
        claims: by variant.
        table1: the computed comparison; empty if it was not asked for.
        failed: cells that failed.
        interrupted: stopped before the end; calling again goes on.
    """

    files: tuple[str, ...]
    claims: dict[str, list[Claim]]
    table1: tuple[Row, ...] = ()
    failed: int = 0
    interrupted: bool = False

    @property
    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "figures": list(self.files),
            "claims": {variant: [asdict(claim) for claim in found] for variant, found in self.claims.items()},
            "table1": list(self.table1),
            "failed": self.failed,
        }


def reproduce(wish: Wish, executor: Executor) -> Outcome:
    """Run what is needed, or what is left of it, and draw it into ``wish.out``."""
    failed = 0
    ran: dict[str, tuple[Plan, Folder, dict[str, Any]]] = {}  # figures share studies
    for name in wish.wanted:
        if name not in FIGURES:
            continue
        rows, notes = _of_others(wish, name)
        for variant, study in product(wish.variants, FIGURES[name].studies):
            title = f"{study}-{variant}"
            if title not in ran:
                with SweepProgress(title) as progress:
                    plan, folder, standing, interrupted = run_study(
                        study,
                        variant,
                        wish.out,
                        executor,
                        progress.hear,
                        scale=wish.scale,
                        trials=wish.trials,
                        threads=wish.threads,
                    )
                if interrupted:
                    return Outcome((), {}, interrupted=True)
                failed += standing.failed
                if standing.failed and not standing.done:
                    raise InputError(f"all of {title} failed: {next(iter(standing.messages), 'no reason was given')}")
                own = notes_of(plan, folder)
                ran[title] = (plan, folder, {**own, "link": link_notes(plan, own["dim"])})
            plan, folder, own = ran[title]
            rows += gather(plan, folder, variant, every_round=FIGURES[name].every_round)
            _note(notes, own, variant)
        write_rows(rows, wish.out, name)
        write_notes(notes, wish.out, name)
    if {"fig2", "table1"} & set(wish.wanted):
        points = POINTS[wish.scale]
        with Steps("fig2", points + 1) as steps:
            curves = curve_rows(paper_curves(points, steps.advance))
        write_table(curves, wish.out, "fig2")
        write_notes({"scale": wish.scale, "source": "formulas", "airfl": __version__}, wish.out, "fig2")
    return show(replace(wish, variants=VARIANTS), wish.out, failed)


def _of_others(wish: Wish, name: str) -> tuple[list[Row], dict[str, Any]]:
    """Rows and notes of the variants that are not asked for, where an earlier call at the same scale left some."""
    notes = read_notes(wish.out / f"{name}.json")
    if notes.get("scale") != wish.scale:
        return [], {"scale": wish.scale, "studies": {}}
    others = set(VARIANTS) - set(wish.variants)
    for key in BY_VARIANT:
        notes[key] = {variant: value for variant, value in notes.get(key, {}).items() if variant in others}
    notes["studies"] = {s: own for s, own in notes["studies"].items() if s.rpartition("-")[2] in others}
    return [row for row in read_rows(wish.out / f"{name}.csv") if row["variant"] in others], notes


def _note(notes: dict[str, Any], own: dict[str, Any], variant: str) -> None:
    """Add a study's provenance and link to those of a figure."""
    radio = own["link"]
    notes["studies"][own["study"]] = {key: value for key, value in own.items() if key not in ("study", "link")}
    notes["dim"] = own["dim"]
    notes["snr_of_one_watt_db"] = radio["snr_of_one_watt_db"]
    for key in BY_VARIANT:
        notes.setdefault(key, {})[variant] = radio[key]


def show(wish: Wish, source: Path | None = None, failed: int = 0) -> Outcome:
    """Draw figures and judge claims from rows that lie in a folder; default: the committed results."""
    source = source or experiments_folder() / "results"
    notes = {name: read_notes(source / f"{name}.json") for name in FIGURES}
    rows = {  # what an earlier call left at another scale cannot be compared with
        name: [r for r in read_rows(source / f"{name}.csv") if r["variant"] in wish.variants]
        for name in FIGURES
        if notes[name].get("scale") == wish.scale
    }
    curves = read_rows(source / "fig2.csv")
    files: list[str] = []
    for name in wish.wanted:
        if name == "fig2" and curves:
            draw_privacy_curves(curves_of(curves), DELTA, wish.out, "fig2")
            files.append("fig2")
        if name in rows:
            files += draw_paper_figure(name, rows[name], notes[name], wish.out)
    table1 = tuple(comparison(curves)) if curves and "table1" in wish.wanted else ()
    if table1:
        write_table(table1, wish.out, "table1")
    least = 0.02 if wish.scale == "smoke" else 0.005
    seen = {row["variant"] for own in rows.values() for row in own} or set(wish.variants)
    claims = {v: judge(rows, notes, curves, v, least) for v in wish.variants if v in seen}
    outcome = Outcome(tuple(files), claims, table1, failed)
    wish.out.mkdir(parents=True, exist_ok=True)
    if any(rows.values()) or not (wish.out / "claims.json").is_file():  # formulas alone judge next to nothing
        write_text(wish.out / "claims.json", json.dumps(outcome.summary["claims"], indent=1, ensure_ascii=False) + "\n")
        write_text(wish.out / "claims.md", claims_markdown(claims))
    return outcome


def claims_markdown(claims: dict[str, list[Claim]]) -> str:
    """The claims as a table for people."""
    lines = ["| the paper says | variant | verdict | what we find | caveat |", "| --- | --- | --- | --- | --- |"]
    sentences = dict.fromkeys(claim.sentence for found in claims.values() for claim in found)
    for sentence, (variant, found) in product(sentences, claims.items()):
        cells = [(sentence, variant, c.verdict, c.found, c.caveat) for c in found if c.sentence == sentence]
        lines += [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(lines) + "\n"
