"""How much leaks at least?"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, cast

import typer

from airfl.cli.app import EXIT_FAILED, Json, NoImports, Settings, app, fail, name_imports
from airfl.cli.complete import complete_observers, complete_presets, complete_schemes

if TYPE_CHECKING:
    from airfl.privacy import Observer


@app.command()
def audit(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE",
            help="What to train; or give --mu for a known mechanism.",
            autocompletion=complete_presets,
        ),
    ] = None,
    settings: Settings = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which scheme; default: the first that keeps a budget.",
            autocompletion=complete_schemes,
        ),
    ] = None,
    observer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who attacks: model, models, base-station, eavesdropper or everything; default: anyone who sees "
            "models, and whom the scheme promises something.",
            autocompletion=complete_observers,
        ),
    ] = None,
    repetitions: Annotated[int | None, typer.Option(help="Trainings with, and as many without, the canary.")] = None,
    one_run: Annotated[bool, typer.Option("--one-run", help="One training with many canaries instead.")] = False,
    canaries: Annotated[int | None, typer.Option(help="Canary devices of --one-run; default: half of them.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Plant twenty-three defects, and see that none is missed.")
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
    from airfl import config as configuration
    from airfl.errors import InputError

    if clean is not None and not self_test:
        raise InputError("--clean goes with --self-test")
    if self_test:
        asked = (source, settings, scheme, observer, canaries, mu, delta, out)
        if one_run or confidence != 0.95 or any(value is not None for value in asked):
            raise InputError("--self-test has a run of its own; only --clean, --repetitions and --json go with it")
        _self_test(clean, 1000 if repetitions is None else repetitions, as_json)
        return
    if (source is None) == (mu is None):
        raise InputError("give a preset or file to train, or --mu for a mechanism that is known; one of the two")
    if one_run and repetitions is not None:
        raise InputError("--one-run trains once; leave out --repetitions, or --one-run")
    if observer is not None and (one_run or mu is not None):
        raise InputError(f"{'--one-run' if one_run else '--mu'} looks at models only; leave out --observer")
    if canaries is not None and not one_run:
        raise InputError("--canaries goes with --one-run")
    config = None
    if source is not None:
        overrides = dict(configuration.parse_override(text) for text in settings or [])
        config = configuration.read(source, overrides)
    from airfl import analysis, runs  # heavy: only for what can be audited
    from airfl.report.figures import draw_audit
    from airfl.report.progress import Steps
    from airfl.report.show.audit import print_audit
    from airfl.schemes import scheme_named

    folder = None if out is None else runs.prepare_folder(out, force=True)
    if config is None:
        count = 1_000_000 if repetitions is None else repetitions
        found = analysis.audit_linear(mu or 0.0, count, 1e-5 if delta is None else delta, confidence)
    else:
        name_imports(config.imports, no_imports)
        names = [name for name in config.scheme.names if scheme_named(name).keeps_budget] or list(config.scheme.names)
        name = scheme or names[0]
        count = 1000 if repetitions is None else repetitions
        who = cast("Observer | None", observer)
        total = 2 * config.system.rounds if one_run else analysis.audit_steps(config, name, count, who)
        with Steps("audit", total) as steps:
            if one_run:
                found = analysis.audit_one_run(
                    config, name, canaries, delta=delta, confidence=confidence, advance=steps.advance
                )
            else:
                found = analysis.audit_run(
                    config, name, count, observer=who, delta=delta, confidence=confidence, advance=steps.advance
                )
    if folder is not None:
        draw_audit(found, folder)
    if as_json:
        print(json.dumps(found.summary, allow_nan=False))
    else:
        print_audit(found, folder)
    if found.findings:
        fail(found.findings[0], EXIT_FAILED)


def _self_test(clean: int | None, repetitions: int, as_json: bool) -> None:
    """Audit planted defects and runs without any."""
    from airfl import analysis
    from airfl.analysis.audit.planted import DEFECTS
    from airfl.analysis.audit.selftest import CLEAN
    from airfl.report.progress import Steps
    from airfl.report.show.audit import print_self_test

    count = CLEAN if clean is None else clean
    with Steps("audits", len(DEFECTS) + count) as steps:
        found = analysis.self_test(count, repetitions, workers=os.cpu_count() or 1, advance=steps.advance)
    print(json.dumps(found.summary, allow_nan=False)) if as_json else print_self_test(found)
    if found.missed:
        fail(f"the audit misses {len(found.missed)} of {len(found.bugs)} planted defects", EXIT_FAILED)
