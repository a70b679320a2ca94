"""The self-contained report page."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airfl.accounting import assumptions_of, is_proven, label_of
from airfl.errors import InputError
from airfl.report.figures import render_figures
from airfl.report.html import render
from airfl.report.perk_figure import accuracy_against_epsilon
from airfl.report.sentences import data_text, epsilon_shown, headline, observers_shown, private_scheme
from airfl.runs import Result
from airfl.runs.manifest import FIGURES, PAGE, PERK, STORY, check_contents, put, read_manifest
from airfl.schemes import scheme_shown
from airfl.wording import (
    NEIGHBOUR_WORDS,
    OBSERVER_SHORT,
    OBSERVER_WORDS,
    at_most_text,
    epsilon_meaning,
    number,
    percent,
)

CAPTIONS = {
    "accuracy": "Test accuracy after every round. Bands reach from the worst to the best trial.",
    "loss": "Training loss: over the samples of the local steps, or of the new model on all training samples where "
    "`engine.train_loss` says so.",
    "noise": "Noise per coordinate of the received sum, against the least that the power limit allows. Where the two "
    "lines meet, the channel sets the noise; where they part, the privacy budget does.",
    "budget": "Where the budget went: ε of everything released so far, by the accountant that books the budget.",
}


@dataclass(frozen=True)
class Story:
    """What a report leads with when a run is part of a larger tale.

    Attributes:
        table: rows with title, accuracy and ε of another run, for contrast.
        rows: what its picture is drawn from, accuracy by devices and ε; no ε is one without noise.
        picture: PNG, base64, in place of rows: of an older version.
    """

    title: str
    sentences: tuple[str, ...]
    caption: str
    table_title: str
    table: list[dict[str, str]]
    rows: list[dict[str, Any]] = field(default_factory=list)
    picture: str = ""


def write_report(result: Result, folder: Path, story: Story | None = None) -> Path:
    """Draw the figures and write report.html, which needs no other file; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = render_figures(result)
    shown = {name: drawn[f"{name}.svg"] for name in CAPTIONS if f"{name}.svg" in drawn}
    if story is not None and story.rows:
        shown["story"] = accuracy_against_epsilon(story.rows, "", ("svg",))["svg"]
    page = render(
        "page.html.j2",
        shown,
        story=story,
        config=result.config,
        data=data_text(result.config),
        summary=result.summary,
        headline=headline(result),
        observers={name: OBSERVER_SHORT[name][1] for name in observers_shown(result)},
        schemes=[_row(name, entry) for name, entry in result.summary["schemes"].items()],
        promises=_promises(result),
        figures=[{"name": name, "caption": caption} for name, caption in CAPTIONS.items() if name in shown],
        delta=number(result.config.privacy.delta),
        neighbours=NEIGHBOUR_WORDS[result.config.neighbours],
        toml=result.config.to_toml(),
        provenance=result.provenance,
    )
    kept = {f"figures/{name}": data for name, data in drawn.items() if not name.endswith(".svg")}
    put(folder, {PAGE: page.encode(), **kept}, drops=(PAGE, *FIGURES))
    return folder / PAGE


def rewrite_report(result: Result, folder: Path) -> Path:
    """``write_report`` for a run that lies in its folder, with the story that it was written with."""
    manifest = read_manifest(folder)
    if manifest is None and (folder / PERK[0]).exists():
        raise InputError(f"`{folder}` is a demo of an older version, whose page cannot be made from its folder alone")
    found = {} if manifest is None else check_contents(folder, manifest, [STORY])
    story = Story(**json.loads(found[STORY])) if found else None
    return write_report(result, folder, story)


def _row(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": scheme_shown(name).title,
        "name": name,
        "sentence": scheme_shown(name).sentence,
        "accuracy": percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
        "loss": "–" if entry["train_loss_mean"] is None else f"{entry['train_loss_mean']:.3f}",
        "noise": "none" if not entry["noise_var_mean"] else f"{entry['noise_var_mean'] ** 0.5:.3g}",
        "epsilon": {observer: epsilon_shown(entry, observer) for observer in OBSERVER_SHORT},
        "status": entry["status"],
    }


def _promises(result: Result) -> list[dict[str, Any]]:
    """One sentence per observer and accountant, for the scheme that makes a promise."""
    name = private_scheme(result) or ("airfl-mimo" if "airfl-mimo" in result.schemes else None)
    if name is None:
        return []
    rows, ledgers = [], result.schemes[name].ledgers
    for observer, values in result.summary["schemes"][name]["epsilon_by_observer"].items():
        for accountant, epsilon in values.items():
            rows.append(
                {
                    "scheme": scheme_shown(name).title,
                    "keeps": scheme_shown(name).keeps_budget and not result.schemes[name].noise_follows_data,
                    "observer": OBSERVER_WORDS[observer],
                    "accountant": f"{accountant} ({label_of(accountant)})",
                    "epsilon": at_most_text(epsilon),
                    "meaning": epsilon_meaning(epsilon),
                    "proven": is_proven(accountant, ledgers),
                    "assumptions": assumptions_of(accountant),
                }
            )
    return rows
