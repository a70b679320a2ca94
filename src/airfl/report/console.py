"""Tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from airfl.analysis import Audit, CombinerStudy, SelfTest
from airfl.privacy import ACCOUNTANTS, SEEING
from airfl.report.sentences import audit_sentence, data_text, headline, observers_shown
from airfl.runs import Result
from airfl.schemes import scheme_shown
from airfl.study import Plan
from airfl.sweeps import Standing
from airfl.wording import OBSERVER_SHORT, epsilon_text, number, percent, plain_console

if TYPE_CHECKING:
    from airfl.report.demo import Demo


def print_demo(demo: Demo) -> None:
    """Accuracy by devices and ε, and where the page is."""
    rows, console = demo.rows, plain_console()
    epsilons = sorted({row["epsilon"] for row in rows})
    table = Table(
        box=box.SIMPLE, title="test accuracy (δ = 1e-5, one device's contribution set to zero)", title_justify="left"
    )
    table.add_column("devices", justify="right")
    for epsilon in epsilons:
        table.add_column(f"ε = {epsilon_text(epsilon)}", justify="right")
    for devices in sorted({row["devices"] for row in rows}):
        own = {row["epsilon"]: row["accuracy_mean"] for row in rows if row["devices"] == devices}
        table.add_row(f"{devices:,}", *(percent(own.get(epsilon)) for epsilon in epsilons))
    hidden = demo.shielded.summary["schemes"]["airfl-shielded"]["accuracy_mean"]
    devices = demo.shielded.config.system.num_devices
    table.add_row(f"{devices:,}, base station too", *(percent(hidden) if e == 1.0 else "" for e in epsilons))
    console.print(table)
    for sentence in (*demo.lines, *headline(demo.many)):
        console.print(f"• {sentence}", highlight=False)
    print(f"\nReport: {demo.page.resolve()}")


def print_result(result: Result, page: Path) -> None:
    """The headline table, the run in words, and where the report is."""
    console = plain_console()
    config = result.config
    table = Table(title=f"{config.name}: {config.learning.model} on {data_text(config)}", box=box.SIMPLE)
    table.add_column("scheme")
    observers = observers_shown(result)
    for column in ("accuracy", "noise std", *(f"ε {OBSERVER_SHORT[observer][0]}" for observer in observers)):
        table.add_column(column, justify="right", no_wrap=True)
    for name, entry in result.summary["schemes"].items():
        noise = entry["noise_var_mean"]
        table.add_row(
            scheme_shown(name).title,
            percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
            "none" if not noise else f"{noise**0.5:.3g}",
            *(epsilon_text(entry["epsilon_by_observer"][observer]["gaussian"]) for observer in observers),
        )
    console.print(table)
    console.print(
        f"ε by exact accounting at δ = {number(result.config.privacy.delta)}, neighbours {result.config.neighbours}, "
        f"against who sees {' or '.join(OBSERVER_SHORT[observer][1] for observer in observers)}; ∞ is no protection.",
        style="dim",
    )
    for sentence in headline(result):
        console.print(f"• {sentence}", highlight=False)
    # On a line of its own and never wrapped, so that a terminal can make it a link.
    print(f"\nReport: {page.resolve()}")


def print_epsilon(answers: Mapping[str, Mapping[str, Any]], folder: str | None = None) -> None:
    """All accountants side by side, with their assumptions."""
    table = Table(box=box.SIMPLE)
    for column in ("accountant", "ε", "δ", "observer", "neighbours", "assumptions"):
        table.add_column(column, justify="right" if column in "εδ" else "left", no_wrap=column != "assumptions")
    for name, answer in answers.items():
        epsilon = answer["epsilon"]
        shown = "∞" if epsilon is None else f"{epsilon:.6g}"
        table.add_row(
            name if answer["valid"] else f"{name} *",
            "?" if "note" in answer else shown,
            number(answer["delta"]),
            answer["observer"],
            answer["neighbours"],
            answer["assumptions"] + (f" Here: {answer['note']}." if "note" in answer else ""),
        )
    plain_console().print(table)
    if not all(answer["valid"] for answer in answers.values()):
        plain_console().print("* published, but not a proof for the whole run", highlight=False)
    if folder is not None:
        plain_console().print(f"Figure: {folder}/privacy.png", highlight=False)


def print_audit(audit: Audit, folder: Path | None) -> None:
    """Lower bound against every upper bound, and what that means."""
    summary = audit.summary
    table = Table(box=box.SIMPLE, title=audit.subject, title_justify="left")
    table.add_column("ε")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("")
    share = f"at {100 * summary['confidence']:g} % confidence"
    table.add_row("measured, at least", f"{summary['epsilon_lower']:.4g}", f"{share}, for any mechanism")
    if summary["epsilon_lower_gaussian"] is not None:
        reading = f"{share}, if the trade-off curve is Gaussian (μ ≥ {summary['mu_lower']:.4g})"
        table.add_row("measured, at least", f"{summary['epsilon_lower_gaussian']:.4g}", reading)
    table.add_row("measurable, at most", *_ceiling_cells(summary))
    for name, value in summary["epsilon_upper"].items():
        verdict = "refuted" if name in summary["views"][0]["refuted"] else "not refuted"
        proof = "" if ACCOUNTANTS[name].valid else ", not a proof"
        table.add_row(f"{name}, at most", epsilon_text(value), f"{verdict}{proof}")
    for view in summary["views"][1:]:
        if view["observer"] not in SEEING:
            continue
        name = view["observer"].replace("-", " ")
        table.add_row(f"{name}, at least", f"{view['epsilon_lower']:.4g}", f"{share}, for any mechanism")
        reading = f"{share}, if the trade-off curve is Gaussian"
        table.add_row(f"{name}, at least", f"{view['epsilon_lower_gaussian']:.4g}", reading)
        table.add_row(f"{name}, measurable", *_ceiling_cells(view))
        for claim, value in view["epsilon_upper"].items():
            verdict = "refuted" if claim in view["refuted"] else "not refuted"
            table.add_row(f"{name}, {claim}, at most", epsilon_text(value), verdict)
    console = plain_console()
    console.print(table)
    if audit.checks:
        failed = len(audit.failed)
        console.print(f"{len(audit.checks)} checks of noise, contributions and participation: {failed} failed.")
        for check in audit.failed:
            console.print(f"• {check.name}: {check.found} (p = {check.p_value:.2g})", highlight=False)
    console.print(audit_sentence(summary), highlight=False, markup=False)
    for words, items in (("Tested", audit.tested), ("Not tested", audit.not_tested)):
        for item in items:
            console.print(f"• {words}: {item}.", highlight=False, markup=False)
    if folder is not None:
        console.print(f"Figure: {folder}/audit.png", highlight=False)


def _ceiling_cells(view: Mapping[str, Any]) -> tuple[str, str]:
    """The most that an observer's attack could have proven, and the same for the Gaussian reading."""
    gaussian = view["epsilon_ceiling_gaussian"]
    also = "" if gaussian is None else f" ({gaussian:.4g} if the trade-off curve is Gaussian)"
    return f"{view['epsilon_ceiling']:.4g}", f"had the attack never erred{also}"


def print_self_test(found: SelfTest) -> None:
    """Every planted defect with what caught it, and the false alarms."""
    table = Table(box=box.SIMPLE)
    table.add_column("planted")
    table.add_column("caught by")
    for name, caught in found.bugs.items():
        more = f" and {len(caught) - 1} more" if len(caught) > 1 else ""
        table.add_row(name, f"{caught[0]}{more}" if caught else "nothing: missed")
    summary, console = found.summary, plain_console()
    console.print(table)
    console.print(
        f"{summary['planted'] - summary['missed']} of {summary['planted']} planted defects caught; "
        f"{summary['false_alarms']} false alarms in {summary['clean']} audits without a defect.",
        highlight=False,
    )
    for alarm in summary["alarms"]:
        console.print(f"• seed {alarm['seed']}: {', '.join(alarm['by'])}", highlight=False)


def print_standing(standing: Standing, folder: str) -> None:
    """How far a study has got."""
    summary = standing.summary
    table = Table(box=box.SIMPLE)
    for column in ("cells", "done", "failed", "running", "left"):
        table.add_column(column, justify="right")
    left = summary["cells"] - summary["done"] - summary["failed"]
    table.add_row(*(str(summary[key]) for key in ("cells", "done", "failed", "running")), str(left))
    console = plain_console()
    console.print(table)
    for batch in standing.at_work():
        progress = standing.running[batch.name]
        console.print(f"{batch.name}: round {progress.rounds} of {progress.total or '?'}", highlight=False)
    if left and summary["seconds_left"] is not None:
        console.print(f"about {summary['seconds_left']:.0f} s of work left", highlight=False)
    for message in summary["messages"]:
        console.print(f"• {message}", highlight=False)
    if (Path(folder) / "results.parquet").exists():
        print(f"Results: {folder}/results.parquet, {folder}/summary.csv")


def print_study(plan: Plan, rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
    """One row per configuration and scheme, and whether all cells are in; exact ε where it is not what was booked."""
    table = Table(box=box.SIMPLE, title=plan.study.name)
    books = [row["epsilon_by_observer"] for row in rows]
    exact = ["?" if book is None else epsilon_text(book["model"]["gaussian"]) for book in books]
    news = any(text not in ("?", epsilon_text(row["epsilon_max"])) for row, text in zip(rows, exact, strict=True))
    more = ("ε exact",) if news else ()
    for column in (*plan.study.axes, "scheme", "trials", "accuracy", "95 % interval", "ε", *more):
        table.add_column(column, justify="left" if column == "scheme" else "right", no_wrap=column == "scheme")
    for row, text in zip(rows, exact, strict=True):
        mean, low, high = row["accuracy_mean"], row["accuracy_low"], row["accuracy_high"]
        table.add_row(
            *(str(row[axis]) for axis in plan.study.axes),
            row["scheme"],
            str(row["trials"]) + (f" ({row['failed']} failed)" if row["failed"] else ""),
            percent(mean, row["accuracy_std"], row["trials"]),
            "–" if mean is None else f"{100 * low:.1f} to {100 * high:.1f} %",
            epsilon_text(row["epsilon_max"]),
            *((text,) if news else ()),
        )
    plain_console().print(table)
    over = counts["done"] + counts["failed"]
    if over < counts["cells"]:
        print(f"Not finished: {over} of {counts['cells']} cells; airfl sweep --resume goes on.")


def print_design(study: CombinerStudy, folder: Path | None) -> None:
    """One row per method, best first."""
    table = Table(
        title=f"{study.active} devices, {study.antennas} antennas, {study.instances} instances", box=box.SIMPLE
    )
    table.add_column("method", no_wrap=True)
    for column in ("‖w‖² / bound", "worst", "dB above bound", "ms each", "status"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in sorted(study.methods.items(), key=lambda item: item[1].norm2_median):
        ratio, worst = row.over_bound_median, row.over_bound_max
        table.add_row(
            name,
            "–" if ratio is None else f"{ratio:.4g}",
            "–" if worst is None else f"{worst:.4g}",
            "–" if ratio is None else f"{10 * math.log10(ratio):.2f}",
            f"{1e3 * row.seconds_per_instance:.2f}",
            row.status,
        )
    console = plain_console()
    console.print(table)
    for line in design_notes(study):
        console.print(line, style="dim", highlight=False)
    if folder is not None:
        print(f"Figure: {(folder / 'combiners.png').resolve()}")


def design_notes(study: CombinerStudy) -> list[str]:
    """The proven bound, and the counting figure, named as what it is."""
    notes = ["No bound was asked for."]
    if study.bound_median is not None:
        notes = [
            f"Proven: ‖w‖² ≥ {study.bound_median:.4g} (median), for any combiner, by weak duality over all devices."
        ]
    if not math.isnan(study.count_median):
        notes.append(
            f"For scale: a count of directions puts one combiner at about {study.count_median:.4g}. That is no bound: "
            "optimisation does better than the count, by up to a factor of four."
        )
    return notes


def print_presets(texts: Mapping[str, str]) -> None:
    """Names with the comment that opens each preset."""
    table = Table(box=box.SIMPLE)
    table.add_column("preset", no_wrap=True)
    table.add_column("what it is")
    for name, text in texts.items():
        comment = []
        for line in text.splitlines():
            if not line.startswith("#"):
                break
            comment.append(line.removeprefix("#").strip())
        table.add_row(name, " ".join(comment))
    console = plain_console()
    console.print(table)
    console.print("Run one with: airfl run NAME      Read one with: airfl presets NAME", style="dim", highlight=False)


def print_doctor(findings: Mapping[str, Any]) -> None:
    """What was found, as a table."""
    table = Table(show_header=False, box=box.SIMPLE)
    table.add_row("python", findings["python"])
    table.add_row("source of airfl", findings["source"])
    for name, found in {**findings["versions"], **findings["extras"]}.items():
        table.add_row(name, found or "not installed (optional)")
    for name, folder in findings["datasets"].items():
        table.add_row(f"data: {name}", folder or f"not found; it would be downloaded to {findings['cache']}")
    table.add_row("GPU", ", ".join(findings["devices"]["cuda"]) or "none")
    table.add_row("CPU", f"{findings['devices']['cpu']}, {findings['cores']} cores, {findings['threads']} threads")
    plain_console().print(table)
