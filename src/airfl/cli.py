"""The command line: parse, call, print."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from airfl.config import Config
    from airfl.runs import Interrupts, Keeper

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    help="Federated learning over the air, with differential privacy paid by the radio channel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines, on the last line.")]
NoImports = Annotated[
    bool,
    typer.Option("--no-imports", help="Refuse configurations that name code of their own (package.module:callable)."),
]
Track = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Also write for tensorboard or mlflow; may be repeated.")
]


def main() -> None:
    """Entry point: errors become one sentence and an exit code."""
    sys.path.append("")  # so that package.module:callable finds the user's own files
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError as error:
        _fail(f"not enough memory ({error or 'no more to be had'}); ask for fewer trials, rounds or devices", 2)
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        _fail(error, code)


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can meet; None for a defect of ours, which keeps its traceback."""
    from airfl.errors import DivergedError, InputError
    from airfl.privacy import BudgetError, PrivacyError

    if isinstance(error, InputError | PrivacyError):
        return EXIT_BAD_INPUT
    if isinstance(error, BudgetError):
        return EXIT_BUDGET
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return EXIT_BAD_INPUT
    # A full disk, or a folder where a file is to be written: the message names it.
    return EXIT_FAILED if isinstance(error, DivergedError | OSError) else None


@app.command()
def run(
    source: Annotated[
        str | None, typer.Argument(metavar="[PRESET|FILE]", help="A preset's name or a TOML file; or give --resume.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override section.key; may be repeated.")
    ] = None,
    scheme: Annotated[list[str] | None, typer.Option(help="Run this scheme; may be repeated.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    out: Annotated[str | None, typer.Option(help="Output folder; default runs/NAME-TIME.")] = None,
    accountant: Annotated[
        str | None, typer.Option(help="Who books the budget; auto: the tightest that is proven for the run.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32, tf32 or bf16.")] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="No compiled GPU kernels: start sooner.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="DIR", help="Go on with the run that was interrupted in this folder.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Resume with other code or on another device too.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="A checkpoint after so many seconds.")] = 60.0,
    track: Track = None,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Train, account and report: every scheme of a preset or file."""
    from airfl import config as configuration
    from airfl import runs
    from airfl.errors import InputError

    flags = {
        "scheme.names": scheme,
        "system.trials": trials,
        "privacy.accountant": accountant,
        "engine.device": device,
        "engine.precision": precision,
        "engine.compile": False if no_compile else None,
    }
    flags = {key: value for key, value in flags.items() if value is not None}
    if (source is None) == (resume is None):
        raise InputError("give a preset or file to run, or --resume DIR to go on with a run; one of the two")
    if not checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds must be at least 0; got {checkpoint_seconds:g}")
    if resume is not None:
        if settings or flags or out is not None or force:
            raise InputError("--resume goes on with a run as it was begun; leave out its settings, --out and --force")
        with runs.Interrupts() as interrupts, runs.resumed(resume) as (folder, begun):
            _name_imports(begun.config.imports, no_imports)
            keeper = runs.Keeper(folder, checkpoint_seconds, begun, anyway=anyway)
            _train_and_report(begun.config, folder, keeper, interrupts, track, as_json)
        return
    if anyway:
        raise InputError("--anyway goes with --resume")
    overrides: dict[str, Any] = dict(configuration.parse_override(text) for text in settings or [])
    config = configuration.read(source or "", {**overrides, **flags})
    _name_imports(config.imports, no_imports)
    target = out or f"runs/{config.name}-{datetime.now():%Y%m%d-%H%M%S}"
    with runs.Interrupts() as interrupts, runs.claimed(target, force) as folder:
        keeper = runs.Keeper(folder, checkpoint_seconds)
        _train_and_report(config, folder, keeper, interrupts, track, as_json)


def _train_and_report(
    config: Config, folder: Path, keeper: Keeper, interrupts: Interrupts, track: list[str] | None, as_json: bool
) -> None:
    """The run itself, in a folder that is held."""
    from airfl import report, runs
    from airfl.errors import DivergedError, InputError
    from airfl.privacy import BudgetError
    from airfl.report.console import print_result
    from airfl.report.progress import RunProgress

    trackers = runs.make_trackers(track or [], folder)
    with RunProgress(config) as progress, closing(runs.Tracked(config.name, progress, trackers)) as heard:
        result = runs.run(config, progress=heard, keeper=keeper, interrupts=interrupts)
    try:
        result = runs.write_run(result, folder)
    except (OSError, InputError) as error:
        if not keeper.has_checkpoints:
            raise
        _fail(f"{error}; mend that, then go on from the last checkpoint: airfl run --resume {folder}", EXIT_FAILED)
    if all(entry.status != "interrupted" for entry in result.schemes.values()):
        keeper.forget()
    page = report.write_report(result, folder)
    if as_json:
        print(json.dumps(result.summary, allow_nan=False))
    else:
        print_result(result, page)
    for entry in result.schemes.values():
        if entry.status == "interrupted":
            more = f"; go on with: airfl run --resume {folder}" if keeper.has_checkpoints else ""
            _fail(f"interrupted; what was recorded is in {folder}{more}", EXIT_INTERRUPTED)
        if entry.status == "refused":
            raise BudgetError(entry.message)
        if entry.status == "diverged":
            raise DivergedError(f"{entry.message}; what was recorded is in {folder}")


@app.command()
def demo(
    out: Annotated[str, typer.Option(help="Output folder.")] = "runs/demo",
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    as_json: Json = False,
) -> None:
    """What airfl is about, in about a minute: ε = 1 with 50, 500 and 6,000 devices, and one page."""
    from airfl import runs
    from airfl.report.console import print_demo
    from airfl.report.demo import run_demo
    from airfl.report.progress import DemoProgress

    with runs.Interrupts(), runs.claimed(out, force) as folder:
        with DemoProgress() as progress:
            found = run_demo(folder, progress.of)
        print(json.dumps(found.summary, allow_nan=False)) if as_json else print_demo(found)


@app.command()
def epsilon(
    clip_norm: Annotated[float | None, typer.Option(help="c, the clip norm.")] = None,
    noise_var: Annotated[float | None, typer.Option(help="v, noise variance per real coordinate of the sum.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; default: the ledger's own, else 1e-5.")] = None,
    participation: Annotated[float, typer.Option(help="r; below 1: devices are drawn each round.")] = 1.0,
    poisson: Annotated[bool, typer.Option("--poisson", help="Each device by its own coin; else K of n.")] = False,
    devices: Annotated[int | None, typer.Option(help="n; goes with D.")] = None,
    diameter: Annotated[
        list[float] | None, typer.Option(help="D of an enforced domain; may be repeated for --out.")
    ] = None,
    smoothness: Annotated[float | None, typer.Option(help="L, an assumption that you state; goes with D.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="η; goes with D.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Q; goes with D.")] = None,
    gradient_var: Annotated[float | None, typer.Option(help="Estimated mini-batch variance, for park2023.")] = None,
    received_snr: Annotated[
        float | None, typer.Option(help="c²·max‖h s‖²/σ², what all antennas hear of one device; for the base station.")
    ] = None,
    neighbours: Annotated[str | None, typer.Option(help="add-remove or replace; default: as the run.")] = None,
    observer: Annotated[
        str | None, typer.Option(help="model, models or base-station; default: each accountant's own.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="A name, or all.")] = "all",
    ledger: Annotated[
        str | None, typer.Option(help="A finished run's folder or ledger.json, in place of c, v and T.")
    ] = None,
    scheme: Annotated[str | None, typer.Option(help="Which scheme of the ledger file; default: airfl-dp.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for a figure of ε against T (what-if only).")] = None,
    as_json: Json = False,
) -> None:
    """What ε does this noise give? For a what-if question or a finished run's ledger."""
    from airfl import analysis, privacy, runs
    from airfl.errors import InputError
    from airfl.privacy.whatif import default_neighbours
    from airfl.report.console import print_epsilon
    from airfl.report.progress import Steps

    question = None
    asked = (clip_norm, noise_var, rounds, devices, diameter, smoothness, learning_rate, local_steps, gradient_var)
    if diameter is not None and len(diameter) > 1 and out is None:
        raise InputError("several --diameter go with --out, which draws them; give one")
    if ledger is not None:
        if out is not None or poisson or participation != 1.0 or any(v is not None for v in (*asked, received_snr)):
            raise InputError("--ledger answers for a run as it was; leave out --out and the what-if options")
        found = runs.read_ledgers(ledger)
        scheme, ledgers = found.of(scheme)
        delta, neighbours = delta if delta is not None else found.delta, neighbours or found.neighbours
    else:
        missing = [
            f"--{name}"
            for name, value in (("clip-norm", clip_norm), ("noise-var", noise_var), ("rounds", rounds))
            if value is None
        ]
        if clip_norm is None or noise_var is None or rounds is None:
            raise InputError(f"{', '.join(missing)} missing; give --clip-norm, --noise-var and --rounds, or --ledger")
        question = privacy.WhatIf(
            clip_norm,
            noise_var,
            rounds,
            participation,
            poisson,
            devices,
            diameter[0] if diameter else None,
            smoothness,
            learning_rate,
            local_steps,
            gradient_var,
            received_snr,
        )
        ledgers = [question.ledger()]
    delta = 1e-5 if delta is None else delta
    answers = privacy.compare(ledgers, delta, neighbours, observer, accountant)
    if out is not None and question is not None:
        from airfl.report.figures import draw_privacy_curves

        folder, points = runs.prepare_folder(out, force=True), 25
        relation = neighbours or default_neighbours(ledgers[0])
        with Steps("curves", points) as steps:
            curves = analysis.privacy_curves(
                question,
                diameter or [],
                delta,
                relation,  # type: ignore[arg-type]
                points=points,
                advance=steps.advance,
            )
        draw_privacy_curves(curves, delta, folder)
    if as_json:
        print(json.dumps({"scheme": scheme, "accountants": answers}, allow_nan=False))
    else:
        print_epsilon(answers, out)


@app.command()
def audit(
    source: Annotated[
        str | None, typer.Argument(metavar="[PRESET|FILE]", help="What to train; or give --mu for a known mechanism.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override section.key; may be repeated.")
    ] = None,
    scheme: Annotated[str | None, typer.Option(help="Which scheme; default: the first that keeps a budget.")] = None,
    repetitions: Annotated[int | None, typer.Option(help="Trainings with, and as many without, the canary.")] = None,
    one_run: Annotated[bool, typer.Option("--one-run", help="One training with many canaries instead.")] = False,
    canaries: Annotated[int | None, typer.Option(help="Canary devices of --one-run; default: half of them.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Plant seventeen defects, and see that none is missed.")
    ] = False,
    clean: Annotated[int | None, typer.Option(help="Audits without a defect of --self-test; default 300.")] = None,
    mu: Annotated[float | None, typer.Option(help="Audit one linear round with this μ: a check of the audit.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; default: the configuration's.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.")] = 0.95,
    out: Annotated[str | None, typer.Option(help="Folder for a figure.")] = None,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """How much does the mechanism leak at least, and is its noise the noise that is booked?"""
    from airfl import analysis, runs
    from airfl import config as configuration
    from airfl.errors import InputError
    from airfl.report.console import print_audit
    from airfl.report.figures import draw_audit
    from airfl.report.progress import Steps
    from airfl.schemes import scheme_named

    if clean is not None and not self_test:
        raise InputError("--clean goes with --self-test")
    if self_test:
        asked = (source, settings, scheme, canaries, mu, delta, out)
        if one_run or confidence != 0.95 or any(value is not None for value in asked):
            raise InputError("--self-test has a run of its own; only --clean, --repetitions and --json go with it")
        _self_test(clean, 1000 if repetitions is None else repetitions, as_json)
        return
    if (source is None) == (mu is None):
        raise InputError("give a preset or file to train, or --mu for a mechanism that is known; one of the two")
    if one_run and repetitions is not None:
        raise InputError("--one-run trains once; leave out --repetitions, or --one-run")
    if canaries is not None and not one_run:
        raise InputError("--canaries goes with --one-run")
    folder = None if out is None else runs.prepare_folder(out, force=True)
    if mu is not None:
        count = 1_000_000 if repetitions is None else repetitions
        found = analysis.audit_linear(mu, count, 1e-5 if delta is None else delta, confidence)
    else:
        overrides = dict(configuration.parse_override(text) for text in settings or [])
        config = configuration.read(source or "", overrides)
        _name_imports(config.imports, no_imports)
        names = [name for name in config.scheme.names if scheme_named(name).keeps_budget] or list(config.scheme.names)
        name = scheme or names[0]
        count = 1000 if repetitions is None else repetitions
        total = 2 * config.system.rounds if one_run else analysis.audit_steps(config, name, count)
        with Steps("audit", total) as steps:
            if one_run:
                found = analysis.audit_one_run(
                    config, name, canaries, delta=delta, confidence=confidence, advance=steps.advance
                )
            else:
                found = analysis.audit_run(
                    config, name, count, delta=delta, confidence=confidence, advance=steps.advance
                )
    if folder is not None:
        draw_audit(found, folder)
    if as_json:
        print(json.dumps(found.summary, allow_nan=False))
    else:
        print_audit(found, folder)
    if found.findings:
        _fail(found.findings[0], EXIT_FAILED)


def _self_test(clean: int | None, repetitions: int, as_json: bool) -> None:
    """Audit planted defects and runs without any."""
    from airfl import analysis
    from airfl.analysis.audit.planted import DEFECTS
    from airfl.analysis.audit.selftest import CLEAN
    from airfl.report.console import print_self_test
    from airfl.report.progress import Steps

    count = CLEAN if clean is None else clean
    with Steps("audits", len(DEFECTS) + count) as steps:
        found = analysis.self_test(count, repetitions, workers=os.cpu_count() or 1, advance=steps.advance)
    print(json.dumps(found.summary, allow_nan=False)) if as_json else print_self_test(found)
    if found.missed:
        _fail(f"the audit misses {len(found.missed)} of {len(found.bugs)} planted defects", EXIT_FAILED)


@app.command()
def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study file: base, axes, schemes, trials.")],
    out: Annotated[str | None, typer.Option(help="Output folder; default studies/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that is there.")] = False,
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Batches at a time; default 1, or what a cluster has.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    checkpoint_rounds: Annotated[int, typer.Option(help="A checkpoint after so many rounds ...")] = 10,
    checkpoint_seconds: Annotated[float, typer.Option(help="... or so many seconds.")] = 60.0,
    track: Track = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Resume also with other code or another torch than it was begun with.")
    ] = False,
    no_imports: NoImports = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and show, do not run.")] = False,
    as_json: Json = False,
) -> None:
    """Run a study: every configuration, scheme and trial, surviving interruptions."""
    from airfl.study import make_plan, read_study, threads_for

    found, text = read_study(study)
    count, file, target = _workers(workers, executor), Path(study), out or f"studies/{found.name}"
    threads = threads_for(count)
    if dry_run and not resume:  # before anything heavy is loaded
        plan = make_plan(found, threads, file=file)
    else:
        from airfl.sweeps import plan_of

        plan = plan_of(found, target, resume=resume, threads=threads, study_file=file)
    if dry_run:
        plan.require_room()
        summary = json.dumps({"cells": plan.num_cells, "batches": len(plan.batches)})
        print(summary if as_json else "\n".join(plan.describe()))
        return
    from airfl import runs, sweeps
    from airfl.report.console import print_standing
    from airfl.report.progress import SweepProgress

    runner = sweeps.make_executor(executor, count, address, device, checkpoint_rounds, checkpoint_seconds)
    trackers = runs.make_trackers(track or [], Path(target))
    _name_imports(plan.imports, no_imports)
    with runs.locked(target):
        plan, folder = sweeps.open_folder(
            found, text, target, resume=resume, threads=threads, anyway=anyway, study_file=file
        )
        with SweepProgress() as progress:
            standing, interrupted = sweeps.run_sweep(plan, folder, runner, progress.hear, trackers)
    print(json.dumps(standing.summary)) if as_json else print_standing(standing, target)
    if interrupted:
        _fail(f"interrupted; go on with: airfl sweep {study} --out {target} --resume", EXIT_INTERRUPTED)
    if standing.failed:
        _fail(f"{standing.failed} of {plan.num_cells} cells failed; the others are in {target}", EXIT_FAILED)


@app.command()
def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A study's folder.")],
    as_json: Json = False,
) -> None:
    """How far a study has got: what is done, running, failed."""
    from airfl import sweeps
    from airfl.report.console import print_standing

    standing = sweeps.standing_of(folder)
    print(json.dumps(standing.summary)) if as_json else print_standing(standing, folder)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A study's folder, or a run's.")],
    as_json: Json = False,
) -> None:
    """The summary of a study: one row per configuration and scheme. Of a run: its table, and report.html anew."""
    from airfl import runs, sweeps
    from airfl.report.console import print_study

    if runs.is_run(Path(folder)):
        _report_run(Path(folder), as_json)
        return
    plan, where = sweeps.find_plan(folder)
    rows, standing = sweeps.summarise(plan, where), sweeps.standing_of(folder).summary
    counts = {key: standing[key] for key in ("cells", "done", "failed")}
    print(json.dumps({"rows": rows, **counts})) if as_json else print_study(plan, rows, counts)


def _report_run(folder: Path, as_json: bool) -> None:
    from airfl import runs
    from airfl.report.console import print_result
    from airfl.report.page import rewrite_report

    with runs.locked(folder):
        result = runs.load(folder)
        page = rewrite_report(result, folder)
    print(json.dumps(result.summary, allow_nan=False)) if as_json else print_result(result, page)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="fig2 to fig6, clip, domain, table1, or all.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full, half or smoke (minutes on two cores).")] = "full",
    trials: Annotated[int | None, typer.Option(help="Number of trials; default: each study's own.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="authors or airfl; default: both.")] = None,
    out: Annotated[str, typer.Option(help="Output folder; a second call goes on where the first stopped.")] = "paper",
    from_results: Annotated[
        bool, typer.Option("--from-results", help="Redraw from the committed results, without training.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Batches at a time.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs already.")] = None,
    as_json: Json = False,
) -> None:
    """The paper's figures and claims: data, figures, and a verdict per claim."""
    from airfl import runs, sweeps
    from airfl.errors import InputError
    from airfl.paper import reproduction
    from airfl.paper.console import print_reproduction
    from airfl.study import threads_for

    count = _workers(workers, executor)
    options = {"variants": tuple(variant)} if variant else {}
    wish = reproduction.Wish(
        tuple(names or ["all"]), Path(out), scale=scale, trials=trials, threads=threads_for(count), **options
    )
    if from_results and (trials is not None or scale != "full"):
        raise InputError("--from-results redraws what was committed; leave out --trials and --scale")
    with runs.locked(runs.prepare_folder(out, force=True)):
        if from_results:
            outcome = reproduction.show(wish)
        else:
            outcome = reproduction.reproduce(wish, sweeps.make_executor(executor, count, address, device))
    if outcome.interrupted:
        _fail("interrupted; the same command goes on", EXIT_INTERRUPTED)
    print(json.dumps(outcome.summary, allow_nan=False)) if as_json else print_reproduction(outcome, wish.out)
    if outcome.failed:
        _fail(f"{outcome.failed} cells failed; the others are in {out}", EXIT_FAILED)


@app.command()
def design(
    antennas: Annotated[int, typer.Option(help="m.")] = 100,
    active: Annotated[int, typer.Option(help="K, the devices served at once; may exceed the antennas.")] = 45,
    rounds: Annotated[int, typer.Option(help="Instances: new positions and fading for each.")] = 20,
    seed: Annotated[int, typer.Option(help="All randomness follows from it.")] = 1,
    method: Annotated[str, typer.Option(help="A combiner's name, or all.")] = "auto",
    certify: Annotated[bool, typer.Option(help="Prove a lower bound for every instance.")] = True,
    out: Annotated[str | None, typer.Option(help="Folder for a plot.")] = None,
    as_json: Json = False,
) -> None:
    """How good, and how fast, are the combiners? Norm² over a proven bound, per method."""
    from airfl import analysis, runs
    from airfl.report.console import print_design
    from airfl.report.figures import draw_design
    from airfl.report.progress import DesignProgress

    folder = None if out is None else runs.prepare_folder(out, force=True)
    with DesignProgress() as progress:
        study = analysis.compare_combiners(antennas, active, rounds, seed, method, certify, progress.advance)
    if folder is not None:
        draw_design(study, folder)
    if as_json:
        print(json.dumps(study.summary, allow_nan=False))
    else:
        print_design(study, folder)


@app.command()
def plan(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO|FILE]", help="Start from these numbers; options override them.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="n.")] = None,
    active: Annotated[int | None, typer.Option(help="K, devices that transmit in a round.")] = None,
    participation: Annotated[float | None, typer.Option(help="r = K/n, in place of --active.")] = None,
    sampling: Annotated[str | None, typer.Option(help="fixed: exactly K of n; poisson: a coin each.")] = None,
    antennas: Annotated[int | None, typer.Option(help="m.")] = None,
    power: Annotated[float | None, typer.Option(help="P, transmit power limit, W.")] = None,
    distance: Annotated[float | None, typer.Option(help="Cell radius, m.")] = None,
    snr: Annotated[float | None, typer.Option(help="Worst-case SNR P·Λ_min/σ² per antenna, dB.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Hz.")] = None,
    carrier: Annotated[float | None, typer.Option(help="Hz.")] = None,
    noise_density: Annotated[float | None, typer.Option(help="Receiver noise, dBm/Hz; default −173.")] = None,
    parameters: Annotated[int | None, typer.Option(help="d.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T.")] = None,
    clip: Annotated[float | None, typer.Option(help="c, the clip norm.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; default 1e-5.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The target.")] = None,
    neighbours: Annotated[str | None, typer.Option(help="add-remove or replace; default: as a run.")] = None,
    symbol_rate: Annotated[float | None, typer.Option(help="Complex symbols a second; default: the bandwidth.")] = None,
    update_norm: Annotated[float | None, typer.Option(help="Norm of the averaged update; default alignment·c.")] = None,
    alignment: Annotated[float | None, typer.Option(help="Norm of the averaged update over c; default 0.3.")] = None,
    layout: Annotated[str | None, typer.Option(help="disk, or ring: all devices at the edge.")] = None,
    noise_var: Annotated[
        float | None, typer.Option(help="v per real coordinate of the sum, in place of the link.")
    ] = None,
    tolerate: Annotated[
        float | None, typer.Option(help="Noise-to-update ratio for the smallest number of devices.")
    ] = None,
    solve_for: Annotated[str | None, typer.Option(metavar="NAME", help="Which quantity is unknown.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the phase diagram.")] = None,
    as_json: Json = False,
) -> None:
    """Is DP a perk on this link? Free ε, margin, noise against update, energy, time; or solve for one unknown."""
    from airfl import linkplan
    from airfl.linkplan import accuracy
    from airfl.linkplan.show import print_plan

    given: dict[str, Any] = {
        "devices": devices,
        "active": active,
        "participation": participation,
        "sampling": sampling,
        "antennas": antennas,
        "power_w": power,
        "distance_m": distance,
        "snr_db": snr,
        "bandwidth_hz": bandwidth,
        "carrier_hz": carrier,
        "noise_density_dbm_hz": noise_density,
        "parameters": parameters,
        "rounds": rounds,
        "clip_norm": clip,
        "delta": delta,
        "epsilon": epsilon,
        "neighbours": neighbours,
        "symbol_rate_hz": symbol_rate,
        "update_norm": update_norm,
        "alignment": alignment,
        "layout": layout,
        "noise_var": noise_var,
    }
    answer = linkplan.plan(scenario, given, solve_for, tolerate)
    title = "plan" if scenario is None else Path(scenario).stem
    check = accuracy.study_check()
    folder = None
    if out is not None:
        from airfl.report.phase import draw_plan
        from airfl.runs import prepare_folder

        folder = prepare_folder(out, force=True)
        draw_plan(answer, title, folder)
    if as_json:
        checked = None if check is None else check.summary
        print(json.dumps({**answer.summary, "prediction_check": checked}, allow_nan=False))
    else:
        print_plan(answer, title, check, folder)


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="Show this preset's TOML.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a configuration file.")] = False,
    as_json: Json = False,
) -> None:
    """List the presets, show one, or print the JSON schema."""
    from airfl import config as configuration
    from airfl.report.console import print_presets

    if schema:
        print(json.dumps(configuration.json_schema(), indent=1))
    elif name is not None:
        text = configuration.preset_text(name)
        print(json.dumps(configuration.preset(name).to_mapping()) if as_json else text)
    else:
        known = {item: configuration.preset_text(item) for item in configuration.preset_names()}
        if as_json:
            print(json.dumps({"presets": {item: configuration.preset(item).to_mapping() for item in known}}))
        else:
            print_presets(known)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What is installed, which data are found, which devices and threads there are."""
    from airfl.analysis.doctor import examine
    from airfl.report.console import print_doctor

    findings = examine()
    if as_json:
        print(json.dumps(findings))
    else:
        print_doctor(findings)


def _workers(wish: int | None, executor: str) -> int | None:
    """Batches at a time: one on this machine if nothing is said; None leaves it to a cluster."""
    return 1 if wish is None and executor == "local" else wish


def _name_imports(paths: Sequence[str], refuse: bool) -> None:
    """Say which code a configuration is about to execute, or refuse to."""
    from airfl.errors import InputError

    if not paths:
        return
    named = ", ".join(repr(path) for path in paths)
    if refuse:
        raise InputError(f"the configuration names code of its own, {named}, and --no-imports refuses that")
    print(f"airfl: this executes code that the configuration names: {named} (--no-imports refuses it)", file=sys.stderr)


def _fail(problem: object, code: int) -> None:
    print(f"airfl: {problem}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
