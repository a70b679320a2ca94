"""The arena as tables: one row per scheme and cell for machines, one per scheme for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airfl.arena.description import Arena, Cell, needs_of
from airfl.arena.ranks import Place, Standing, standings
from airfl.arena.verdicts import Verdict
from airfl.runs.result import finite_or_none
from airfl.schemes import scheme_shown
from airfl.wording import at_most_text, number

Row = dict[str, Any]


def table(arena: Arena, found: Sequence[Place], rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per scheme and cell: accuracy with its interval, exact ε, rank, what was chosen, what it needs."""
    chosen = {(row["scheme"], Cell(row["data"], row["snr_db"], row["epsilon_asked"])): row for row in rows}
    made = []
    for place in found:
        needs = needs_of(place.scheme)
        own = chosen[place.scheme, place.cell.felt_by(place.scheme)]
        made.append(
            {
                "scheme": place.scheme,
                **{"data": place.cell.data, "snr_db": place.cell.snr_db, "epsilon_asked": place.cell.epsilon},
                **{"trials": len(place.accuracies), "failed": place.failed},
                "accuracy_mean": finite_or_none(place.mean),
                "accuracy_low": finite_or_none(place.low),
                "accuracy_high": finite_or_none(place.high),
                "epsilon": finite_or_none(place.epsilon),
                "epsilon_base_station": finite_or_none(place.epsilon_base_station),
                "proven": place.proven,
                **{"ranked": place.keeps, "rank": place.rank, "leads": place.leads},
                **{"step": own["step"], "knob": arena.schemes[place.scheme].knob, "value": own["knob"]},
                "validation_accuracy": own["validation_accuracy"],
                "keeps_epsilon_from": scheme_shown(place.scheme).promises_to,
                **{"csi_at_devices": needs.knows_channel, "memory": needs.remembers},
                **{"symbols": needs.symbols, "shared": needs.shared},
            }
        )
    return made


def needs_text(scheme: str) -> tuple[str, str, str, str, str]:
    """Whom it keeps its ε from; channel knowledge and memory at devices, symbols, what devices share."""
    needs, own = needs_of(scheme), scheme_shown(scheme)
    trusted = "whoever sees models" if own.observer == "model" else "the base station too"
    return (
        trusted if own.keeps_budget else "–",
        ("yes" if needs.knows_channel else "no") if needs.over_air else "–",
        "yes" if needs.remembers else "no",
        needs.symbols or "–",
        needs.shared or "–",
    )


HEAD = (
    *("scheme", "mean rank", "ranked", "leads", "promise against"),
    *("CSI at devices", "memory", "symbols", "shared beforehand"),
)


def people_rows(found: Sequence[Place]) -> list[tuple[str, ...]]:
    """One row per scheme, best first: ranks, needs."""
    return [_people_row(standing) for standing in standings(found)]


def _people_row(own: Standing) -> tuple[str, ...]:
    rank = "–" if own.mean_rank is None else f"{own.mean_rank:.1f}"
    counts = f"{own.ranked}/{own.cells}", f"{own.leading}/{own.cells}"
    return (own.scheme, rank, *counts, *needs_text(own.scheme))


def cells_head(cells: Sequence[Cell]) -> list[str]:
    """Columns of one data set: SNR and ε."""
    return [f"{number(cell.snr_db or 0.0).replace('-', '−')} dB, ε = {at_most_text(cell.epsilon)}" for cell in cells]


def place_text(place: Place) -> str:
    """Accuracy with half its interval; in brackets, with its ε, where it is not ranked."""
    if not place.accuracies:
        return "failed"
    half = f" ± {100 * (place.high - place.mean):.1f}" if len(place.accuracies) > 1 else ""
    shown = f"{100 * place.mean:.1f}{half}"
    if place.leads:
        return f"**{shown}**"
    proof = "" if place.proven else ", no proof"
    return shown if place.keeps else f"({shown}; {at_most_text(place.epsilon)}{proof})"


def markdown(arena: Arena, found: Sequence[Place], said: Sequence[Verdict]) -> str:
    """Ranks, accuracies and verdicts for people."""
    order = [standing.scheme for standing in standings(found)]
    lines = [*_lines(HEAD, people_rows(found)), ""]
    for data in arena.data:
        cells = list(dict.fromkeys(place.cell for place in found if place.cell.data == data))
        by = {(place.scheme, place.cell): place for place in found}
        body = [(name, *(place_text(by[name, cell]) for cell in cells if (name, cell) in by)) for name in order]
        lines += [f"{data} data, test accuracy in %:", "", *_lines(["scheme", *cells_head(cells)], body), ""]
    lines += [verdict_text(verdict) for verdict in said]
    notes = {name: entry.note for name, entry in arena.schemes.items() if entry.note and name in order}
    lines += ["", *(f"- `{name}`: {note}" for name, note in notes.items())] if notes else []
    lines += ["", *(f"- not in the arena, `{name}`: {why}" for name, why in arena.excluded.items())]
    return "\n".join(lines).rstrip() + "\n"


def verdict_text(verdict: Verdict) -> str:
    """A verdict as an item of a list."""
    return f"- `{verdict.first}`, `{verdict.second}`: **{verdict.question}** {answer_text(verdict)}"


def answer_text(verdict: Verdict) -> str:
    """The answer to its question, what was found, and what else to know."""
    answers = {"depends": "It depends", "better": "Yes", "worse": "No", "the same": "No", "cannot tell": "Cannot tell"}
    answer = answers.get(verdict.answer, "Not comparable")
    found = f": {verdict.found}." if verdict.found else "."
    caveat = f" {verdict.caveat}" if verdict.caveat else ""
    return f"{answer}{found}{caveat}"


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]
