"""A reproduction on the terminal."""

from __future__ import annotations

from pathlib import Path

from airfl.paper.reproduction import Outcome
from airfl.terminal import numbers, print_table, prose, words
from airfl.wording import at_most_text, number, plain_console


def print_reproduction(outcome: Outcome, folder: Path) -> None:
    """The claims with their verdicts, Table I, and where the figures are."""
    console = plain_console()
    for variant, claims in outcome.claims.items():
        judged = [claim for claim in claims if claim.verdict != "not run"]
        if judged:
            columns = [prose("the paper says"), prose("verdict"), prose("what we find"), prose("caveat")]
            rows = [(claim.sentence, claim.verdict, claim.found, claim.caveat) for claim in judged]
            print_table(columns, rows, f"claims, variant `{variant}`")
        if len(judged) < len(claims):
            left = len(claims) - len(judged)
            console.print(
                f"Not judged, variant `{variant}`: {left} that need figures, or a variant, not looked at here."
            )
    if outcome.table1:
        entries = [
            (
                row["work"] + ("" if row["observer"] == "model" else " (against the base station)"),
                "–" if row["diameter"] is None else number(row["diameter"]),
                "yes" if row["is_proof"] else "no",
                "yes" if row["converges"] else "no",
                at_most_text(row["epsilon_50_rounds"]),
                at_most_text(row["epsilon_100000_rounds"]),
            )
            for row in outcome.table1
        ]
        said = [words("proof"), words("flat by then")]
        columns = [prose("work"), *numbers("D"), *said, *numbers("ε, T = 50", "ε, T = 100,000")]
        print_table(columns, entries, "Table I on one common setting (ε̃ = 0.1, δ = 1e-5)")
    print(f"Figures: {', '.join(f'{folder}/{name}.png' for name in outcome.files) or 'none'}")
    print(f"Claims: {folder}/claims.md")
