"""Fig. 2 of the paper from formulas: ε against T for every accountant, in the paper's setting, D in {2, 10, 50}.

    python -m experiments.privacy_curves

Writes fig2.png, fig2.pdf and fig2.csv to experiments/results. The noise is what the published budget of ε̃ = 0.1 asks
for over 50 rounds, held constant. η = 0.005, Q = 5 local steps, r = 0.9 of n = 50 devices; the smoothness L = 1 is an
assumption. What a base station hears of one device is taken from designed rounds of the preset `authors`.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

import airfl
from airfl.channel import open_link
from airfl.planning import plan_rounds
from airfl.privacy import PaperAccountant, WhatIf
from airfl.promise import make_promise
from airfl.report.console import Steps
from airfl.report.figures import draw_privacy_curves
from airfl.runs import privacy_curves
from airfl.schemes import SCHEMES

DIM, DELTA, POINTS, LONGEST = 582_026, 1e-5, 25, 100_000
DIAMETERS = (2.0, 10.0, 50.0)
RESULTS = Path(__file__).parent / "results"


def paper_question() -> WhatIf:
    """The paper's setting as a what-if question."""
    config = airfl.preset("authors").replace({"system.trials": 10, "privacy.epsilon_tilde": 0.1})
    link = open_link(config, range(10))
    plan = plan_rounds(config, SCHEMES["airfl-dp"], link, DIM)
    clip_norm, sigma2 = plan.clip_norm, link.noise_power
    promise = make_promise(config, DIM, sigma2, None, accountant="paper")
    budget = PaperAccountant.budget(promise.epsilon or 0.0, DELTA, promise.template, "replace", config.system.rounds)
    noise_var = budget.floor**2 * sigma2 / 2.0
    # ‖w‖·max‖h s‖ does not change with the norm of w; the median over trials and rounds stands for all.
    louder = [
        float(plan.norm[row, t] * sent.received_norms[row].max())  # type: ignore[index]
        for t in range(0, config.system.rounds, 10)
        for sent in [plan.reception(t)[1]]
        if sent is not None
        for row in range(10)
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


def main() -> None:
    question = paper_question()
    print(f"c = {question.clip_norm:.4f}, v = {question.noise_var:.0f}, received SNR = {question.received_snr:.3g}")
    with Steps("curves", POINTS) as steps:
        curves = privacy_curves(question, DIAMETERS, DELTA, "replace", points=POINTS, advance=steps.advance)
    draw_privacy_curves(curves, DELTA, RESULTS, "fig2")
    with (RESULTS / "fig2.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["accountant", "diameter", "rounds", "epsilon"])
        for curve in curves:
            for t, value in zip(curve.rounds, curve.epsilon, strict=True):
                writer.writerow([curve.accountant, "" if curve.diameter is None else curve.diameter, t, f"{value:.6g}"])


if __name__ == "__main__":
    main()
