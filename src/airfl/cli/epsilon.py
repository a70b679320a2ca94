"""What ε does this noise give?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from airfl.cli.app import Json, app


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
    neighbours: Annotated[str | None, typer.Option(help="zero-out or replace; default: as the run.")] = None,
    observer: Annotated[
        str | None,
        typer.Option(help="model, models, base-station, eavesdropper or everything; default: each accountant's own."),
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
