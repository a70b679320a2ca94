"""The arena on the terminal."""

from __future__ import annotations

from pathlib import Path

from airfl.arena.run import NAME, Outcome
from airfl.arena.table import HEAD, answer_text, people_rows
from airfl.terminal import numbers, print_table, prose, words
from airfl.wording import plain_console


def print_arena(outcome: Outcome, folder: Path) -> None:
    """Ranks and needs, the verdicts, and where the rest is."""
    if outcome.places:
        rows, columns = people_rows(outcome.places), [words(HEAD[0]), *numbers(*HEAD[1:4]), prose(HEAD[4])]
        title = "the arena: ranked by accuracy where the exact ε is at most the one asked for"
        print_table(columns, [row[:5] for row in rows], title)
        columns = [*map(words, (HEAD[0], *HEAD[5:8])), prose(HEAD[8])]
        print_table(columns, [(row[0], *row[5:]) for row in rows], "what they need")
    for verdict in outcome.verdicts:
        plain_console().print(f"• {verdict.question} {answer_text(verdict)}", highlight=False)
    for name, why in outcome.failed.items():
        print(f"Failed: {name}: {why}")
    if outcome.missing:
        print(f"Not run: {', '.join(outcome.missing)}")
    if outcome.places:
        print(f"Figure: {folder}/{NAME}.png, table: {folder}/{NAME}.csv, text: {folder}/{NAME}.md")
