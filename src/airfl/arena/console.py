"""The arena on the terminal."""

from __future__ import annotations

from pathlib import Path

from airfl.arena.run import NAME, Outcome
from airfl.arena.table import HEAD, people_rows
from airfl.terminal import numbers, print_table, prose, words


def print_arena(outcome: Outcome, folder: Path) -> None:
    """Ranks and needs, the verdicts, and where the rest is."""
    if outcome.places:
        columns = [words(HEAD[0]), *numbers(*HEAD[1:4]), *(prose(name) for name in HEAD[4:])]
        title = "the arena: ranked by accuracy where the exact ε is at most the one asked for"
        print_table(columns, people_rows(outcome.places), title)
    if outcome.verdicts:
        columns = [prose("question"), words("answer"), prose("what we find"), prose("caveat")]
        print_table(columns, [(v.question, v.answer, v.found, v.caveat) for v in outcome.verdicts])
    for name, why in outcome.failed.items():
        print(f"Failed: {name}: {why}")
    if outcome.missing:
        print(f"Not run: {', '.join(outcome.missing)}")
    if outcome.places:
        print(f"Figure: {folder}/{NAME}.png, table: {folder}/{NAME}.csv, text: {folder}/{NAME}.md")
