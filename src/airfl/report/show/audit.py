"""Audits on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airfl.privacy import ACCOUNTANTS, SEEING
from airfl.report.sentences import audit_sentence
from airfl.terminal import Column, print_table, prose, words
from airfl.wording import (
    at_most_text,
    plain_console,
)

if TYPE_CHECKING:
    from airfl.analysis import Audit, SelfTest


def print_audit(audit: Audit, folder: Path | None) -> None:
    """Lower bound against every upper bound, and what that means."""
    summary = audit.summary
    share = f"at {100 * summary['confidence']:g} % confidence"
    rows = [*_rows(summary, share)]
    for view in summary["views"][1:]:
        if view["observer"] in SEEING:
            rows += _view_rows(view, share)
    print_table([words("ε"), Column("", "right"), prose("")], rows, audit.subject)
    console = plain_console()
    if audit.checks:
        failed = len(audit.failed)
        console.print(f"{len(audit.checks)} checks of noise, contributions and participation: {failed} failed.")
        for check in audit.failed:
            console.print(f"• {check.name}: {check.found} (p = {check.p_value:.2g})", highlight=False)
    console.print(audit_sentence(summary), highlight=False, markup=False)
    for said, items in (("Tested", audit.tested), ("Not tested", audit.not_tested)):
        for item in items:
            console.print(f"• {said}: {item}.", highlight=False, markup=False)
    if folder is not None:
        console.print(f"Figure: {folder}/audit.png", highlight=False)


def _rows(summary: Mapping[str, Any], share: str) -> Iterator[tuple[str, str, str]]:
    """What was measured for anyone who sees models, and what every accountant says."""
    yield "measured, at least", f"{summary['epsilon_lower']:.4g}", f"{share}, for any mechanism"
    if summary["epsilon_lower_gaussian"] is not None:
        reading = f"{share}, if the trade-off curve is Gaussian (μ ≥ {summary['mu_lower']:.4g})"
        yield "measured, at least", f"{summary['epsilon_lower_gaussian']:.4g}", reading
    yield "measurable, at most", *_ceiling_cells(summary)
    for name, value in summary["epsilon_upper"].items():
        verdict = "refuted" if name in summary["views"][0]["refuted"] else "not refuted"
        proof = "" if ACCOUNTANTS[name].valid else ", not a proof"
        yield f"{name}, at most", at_most_text(value), f"{verdict}{proof}"


def _view_rows(view: Mapping[str, Any], share: str) -> Iterator[tuple[str, str, str]]:
    """The same for somebody who sees signals."""
    name = view["observer"].replace("-", " ")
    yield f"{name}, at least", f"{view['epsilon_lower']:.4g}", f"{share}, for any mechanism"
    reading = f"{share}, if the trade-off curve is Gaussian"
    yield f"{name}, at least", f"{view['epsilon_lower_gaussian']:.4g}", reading
    yield f"{name}, measurable", *_ceiling_cells(view)
    for claim, value in view["epsilon_upper"].items():
        verdict = "refuted" if claim in view["refuted"] else "not refuted"
        yield f"{name}, {claim}, at most", at_most_text(value), verdict


def _ceiling_cells(view: Mapping[str, Any]) -> tuple[str, str]:
    """The most that an observer's attack could have proven, and the same for the Gaussian reading."""
    gaussian = view["epsilon_ceiling_gaussian"]
    also = "" if gaussian is None else f" ({gaussian:.4g} if the trade-off curve is Gaussian)"
    return f"{view['epsilon_ceiling']:.4g}", f"had the attack never erred{also}"


def print_self_test(found: SelfTest) -> None:
    """Every planted defect with what caught it, and the false alarms."""
    rows = []
    for name, caught in found.bugs.items():
        more = f" and {len(caught) - 1} more" if len(caught) > 1 else ""
        rows.append((name, f"{caught[0]}{more}" if caught else "nothing: missed"))
    print_table([prose("planted"), prose("caught by")], rows)
    summary, console = found.summary, plain_console()
    console.print(
        f"{summary['planted'] - summary['missed']} of {summary['planted']} planted defects caught; "
        f"{summary['false_alarms']} false alarms in {summary['clean']} audits without a defect.",
        highlight=False,
    )
    for alarm in summary["alarms"]:
        console.print(f"• seed {alarm['seed']}: {', '.join(alarm['by'])}", highlight=False)
