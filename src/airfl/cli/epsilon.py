"""What ε does this noise give, and what noise gives this ε?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airfl.cli.app import Json, app

if TYPE_CHECKING:
    from airfl.privacy import Neighbours, WhatIf
    from airfl.privacy.inverse import Unknown


@app.command()
def epsilon(
    clip_norm: Annotated[float | None, typer.Option(help="c, the clip norm.")] = None,
    noise_var: Annotated[float | None, typer.Option(help="v, noise variance per real coordinate of the sum.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T.")] = None,
    target: Annotated[
        float | None,
        typer.Option("--epsilon", help="A target: finds noise or rounds, whichever is left out, or checks both."),
    ] = None,
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
        typer.Option(
            help="model, models, base-station, eavesdropper or everything; default: all that something is known of."
        ),
    ] = None,
    accountant: Annotated[str, typer.Option(help="A name, or all.")] = "all",
    ledger: Annotated[
        str | None, typer.Option(help="A finished run's folder or ledger.json, in place of c, v and T.")
    ] = None,
    scheme: Annotated[str | None, typer.Option(help="Which scheme of the ledger file; default: airfl-dp.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for a figure of ε against T (what-if only).")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also print what each accountant rests on.")] = False,
    as_json: Json = False,
) -> None:
    """What ε does this noise give, or what noise gives this ε? For a what-if question or a finished run's ledger."""
    from airfl import privacy
    from airfl.catalogue import require_known
    from airfl.errors import InputError
    from airfl.report.epsilon import Answer, print_epsilon

    require_known("accountant", accountant, (*privacy.ACCOUNTANTS, "all"))
    require_known("observer", observer, privacy.OBSERVERS)
    require_known("relation of neighbours", neighbours, (*privacy.NEIGHBOURS, "add-remove"))
    question, kept = None, None
    asked = (clip_norm, noise_var, rounds, devices, diameter, smoothness, learning_rate, local_steps, gradient_var)
    if diameter is not None and len(diameter) > 1 and out is None:
        raise InputError("several --diameter go with --out, which draws them; give one")
    if ledger is not None:
        if out is not None or poisson or participation != 1.0 or any(v is not None for v in (*asked, received_snr)):
            raise InputError("--ledger answers for a run as it was; leave out --out and the what-if options")
        if target is not None:
            raise InputError("--epsilon plans a run, and --ledger answers for one as it was; give one of them")
        from airfl.runs import read_ledgers

        found = read_ledgers(ledger)
        scheme, ledgers = found.of(scheme)
        delta, neighbours = delta if delta is not None else found.delta, neighbours or found.neighbours
    else:
        given = {"clip-norm": clip_norm, "noise-var": noise_var, "rounds": rounds}
        unknown = _unknown([name for name, value in given.items() if value is None], target)
        question = privacy.WhatIf(
            clip_norm or 0.0,
            1.0 if noise_var is None else noise_var,
            1 if rounds is None else rounds,
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
        delta = 1e-5 if delta is None else delta
        if target is not None:
            kept = privacy.keep(question, privacy.Target(target, delta, neighbours, observer, accountant), unknown)
            question = kept.question
        ledgers = [question.ledger()]
        question.check_hearing()
    answers = privacy.compare(ledgers, delta, neighbours, observer, accountant)
    relation = privacy.default_neighbours(ledgers[0]) if neighbours is None else privacy.relation_of(neighbours)
    findings = privacy.proven(ledgers, delta, relation, observer, accountant, as_stated=question is not None)
    answer = Answer(answers, findings, kept, scheme, len(ledgers), question.rounding if question else "")
    if out is not None and question is not None:
        _draw(question, diameter or [], delta, relation, out)
    if as_json:
        print(json.dumps(answer.summary, allow_nan=False))
    else:
        print_epsilon(answer, explain=explain, folder=out)


def _unknown(missing: Sequence[str], target: float | None) -> Unknown | None:
    """Which of the numbers that are missing is asked for; refuse where others are missing, or none is asked for."""
    from airfl.errors import InputError

    named = ", ".join(f"--{name}" for name in missing)
    if target is None and missing:
        raise InputError(f"{named} missing; give --clip-norm, --noise-var and --rounds, or --ledger")
    if "clip-norm" in missing:
        raise InputError(f"{named} missing; --epsilon needs --clip-norm: with 1, noise is counted in clip norms")
    if len(missing) > 1:
        raise InputError(f"{named} missing; --epsilon finds one of them if the other is given")
    if not missing:
        return None
    return "noise_var" if missing[0] == "noise-var" else "rounds"


def _draw(question: WhatIf, diameters: Sequence[float], delta: float, relation: Neighbours, out: str) -> None:
    """ε against T, as privacy.png, .pdf and .svg."""
    from airfl import analysis
    from airfl.report.figures import PRIVACY_FILES, privacy_files
    from airfl.report.own_files import require_place, write_signed
    from airfl.report.progress import Steps

    folder, points = Path(out), 25
    require_place(folder, PRIVACY_FILES, PRIVACY_FILES[-1], "airfl epsilon")
    with Steps("curves", points) as steps:
        curves = analysis.privacy_curves(question, diameters, delta, relation, points=points, advance=steps.advance)
    write_signed(folder, privacy_files(curves, delta), PRIVACY_FILES[-1])
