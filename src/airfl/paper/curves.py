"""Fig. 2 and Table I of the paper from formulas: ε against T for every accountant, in the paper's setting.

The noise is what the published budget of ε̃ = 0.1 asks for over 50 rounds, held constant. η = 0.005, Q = 5 local steps,
r = 0.9 of n = 50 devices; the smoothness L = 1 is an assumption. What a base station hears of one device is taken from
designed rounds of the preset ``authors``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from airfl.analysis.curves import Curve, privacy_curves
from airfl.config import preset
from airfl.privacy import ACCOUNTANTS, PaperAccountant, WhatIf, shown
from airfl.rounds import arrange, make_promise
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

DIM, DELTA, ROUNDS, LONGEST = 582_026, 1e-5, 50, 100_000
DIAMETERS = (2.0, 10.0, 50.0)


def paper_question(trials: int = 10) -> WhatIf:
    """The paper's setting as a what-if question."""
    config = preset("authors").replace({"system.trials": trials, "privacy.epsilon_tilde": 0.1})
    schedule = arrange(config, SCHEMES["airfl-dp"], open_radio(config, range(trials)), DIM)
    clip_norm, sigma2 = schedule.clip_norm, schedule.link.noise_power
    promise = make_promise(config, DIM, sigma2, None, replace(SCHEMES["airfl-dp"], accountant="paper"))
    budget = PaperAccountant.budget(promise.epsilon or 0.0, DELTA, promise.template, "replace", config.system.rounds)
    noise_var = budget.floor**2 * sigma2 / 2.0
    # ‖w‖·max‖h s‖ does not change with the norm of w; the median over trials and rounds stands for all.
    unit = math.sqrt(schedule.link.credited_power / 2.0)
    louder = [
        unit * float(schedule.norm[row, t] * setting.seen["base-station"][row].max())
        for t in range(0, config.system.rounds, 10)
        for setting in [schedule.setting(t)]
        for row in range(trials)
    ]
    heard = float(np.median(louder)) / math.sqrt(2.0 * noise_var) * clip_norm
    return WhatIf(
        clip_norm,
        noise_var,
        LONGEST,
        config.system.participation,
        num_devices=config.system.num_devices,
        smoothness=1.0,
        diameter=DIAMETERS[0],
        learning_rate=config.learning.learning_rate,
        local_steps=5,
        received_snr=heard**2,
    )


def paper_curves(points: int = 25, advance: Callable[[int], None] | None = None) -> list[Curve]:
    """Fig. 2."""
    return privacy_curves(paper_question(), DIAMETERS, DELTA, "replace", points=points, also=(ROUNDS,), advance=advance)


def curve_rows(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """One row per accountant, diameter and T."""
    return [
        {"accountant": c.accountant, "diameter": c.diameter, "rounds": t, "epsilon": value}
        for c in curves
        for t, value in zip(c.rounds, c.epsilon, strict=True)
    ]


def curves_of(rows: Sequence[dict[str, Any]]) -> list[Curve]:
    """The curves that rows were made from."""
    lines: dict[tuple[str, float | None], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["accountant"], row["diameter"]), []).append(row)
    return [
        Curve(name, diameter, tuple(r["rounds"] for r in own), tuple(r["epsilon"] for r in own))
        for (name, diameter), own in lines.items()
    ]


def comparison(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Table I, computed where it can be: on one common setting, what ε, and does it stop growing?

    Converged: less than 0.1 % more over the last factor of two or more in T.
    """
    table = []
    for curve in curves_of(rows):
        name, diameter, t, e = curve.accountant, curve.diameter, np.array(curve.rounds), np.array(curve.epsilon)
        at = float(np.exp(np.interp(math.log(ROUNDS), np.log(t), np.log(e))))  # a point of the curve
        earlier = e[t <= t[-1] / 2][-1]
        kind = ACCOUNTANTS[name]
        told = shown(kind)
        table.append(
            {
                "work": told.work or kind.label,
                "accountant": name,
                "diameter": diameter,
                "receiver": told.receiver,
                "observer": kind.observers[0],
                "is_proof": kind.valid,
                "says_it_converges": told.converges,
                "converges": bool(e[-1] <= 1.001 * earlier),
                "epsilon_50_rounds": at,
                "epsilon_100000_rounds": float(e[-1]),
            }
        )
    return table
