"""A reproduction on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.table import Table

from airfl.paper.reproduction import Outcome
from airfl.wording import epsilon_text, number, plain_console


def print_reproduction(outcome: Outcome, folder: Path) -> None:
    """The claims with their verdicts, Table I, and where the figures are."""
    console = plain_console()
    for variant, claims in outcome.claims.items():
        table = Table(box=box.SIMPLE, title=f"claims, variant `{variant}`", title_justify="left")
        for column in ("the paper says", "verdict", "what we find", "caveat"):
            table.add_column(column)
        judged = [claim for claim in claims if claim.verdict != "not run"]
        for claim in judged:
            table.add_row(claim.sentence, claim.verdict, claim.found, claim.caveat)
        if judged:
            console.print(table)
        if len(judged) < len(claims):
            left = len(claims) - len(judged)
            console.print(
                f"Not judged, variant `{variant}`: {left} that need figures, or a variant, not looked at here."
            )
    if outcome.table1:
        table = Table(box=box.SIMPLE, title="Table I on one common setting (ε̃ = 0.1, δ = 1e-5)", title_justify="left")
        for column in ("work", "D", "proof", "flat by then", "ε, T = 50", "ε, T = 100,000"):
            table.add_column(column, justify="right" if column[0] in "εD" else "left")
        for row in outcome.table1:
            table.add_row(
                row["work"] + ("" if row["observer"] == "model" else " (against the base station)"),
                "–" if row["diameter"] is None else number(row["diameter"]),
                "yes" if row["is_proof"] else "no",
                "yes" if row["converges"] else "no",
                epsilon_text(row["epsilon_50_rounds"]),
                epsilon_text(row["epsilon_100000_rounds"]),
            )
        console.print(table)
    print(f"Figures: {', '.join(f'{folder}/{name}.png' for name in outcome.files) or 'none'}")
    print(f"Claims: {folder}/claims.md")
