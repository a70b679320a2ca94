"""The phase diagram of a plan: devices against SNR, with lines of equal free ε."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from airfl.errors import InputError
from airfl.linkplan import Answer
from airfl.linkplan.phases import no_diagram, phases_of
from airfl.report.figures import RC, write_figure
from airfl.wording import epsilon_text, number


def draw_plan(answer: Answer, title: str, folder: Path) -> None:
    """plan.png, .pdf and .svg: the scenario's point among lines of equal ε; below the thick one DP is a perk."""
    q = answer.quantities
    if (why := no_diagram(answer)) is not None:
        raise InputError(f"{why}{', or' if 'leave out' in why else '; leave out'} --out")
    found = phases_of(answer)
    devices, target, curves, most = found.devices, found.target, found.curves, found.most
    assert answer.snr_db is not None
    assert q.epsilon is not None
    assert q.devices is not None
    with mpl.rc_context(RC):
        figure = Figure(figsize=(6.4, 4.4))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        tops = [target, *(curve for _, curve in curves)]
        bottom = min(float(min(c.min() for c in tops)), answer.snr_db) - 6.0
        top = max(float(max(c.max() for c in tops)), answer.snr_db) + 6.0
        axes.fill_between(devices, bottom, target, color="#0072B2", alpha=0.12, linewidth=0)
        dots: dict[str, Any] = {"facecolor": "none", "edgecolor": "#0072B2", "hatch": "..", "linewidth": 0}
        axes.fill_between(devices, bottom, target, alpha=0.3, **dots)
        below = f"ε = {epsilon_text(q.epsilon)}; below it DP is a perk"
        axes.plot(devices, target, color="#000000", linewidth=2.6, label=below)
        for index, (_, curve) in enumerate(curves):
            style = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))[index % 4]
            axes.plot(devices, curve, color="#777777", linewidth=1.0, linestyle=style)
        axes.set_xscale("log")
        axes.set_xlim(devices[0], most * 4.5)
        axes.set_ylim(bottom, top)
        for epsilon, curve in [*curves, (q.epsilon, target)]:
            weight = "bold" if epsilon == q.epsilon else "normal"
            text = f"ε = {epsilon_text(epsilon)}"
            axes.text(most * 1.15, float(curve[-1]), text, va="center", fontsize=8.5, fontweight=weight)
        star = {"marker": "*", "markersize": 15, "color": "#D55E00", "markeredgecolor": "black", "linestyle": "none"}
        note = f"{title}: free ε = {epsilon_text(answer.epsilon['models'])}"
        axes.plot([q.devices], [answer.snr_db], label=note, **star)  # type: ignore[arg-type]
        # Above the axes, where it can hide neither lines nor the star.
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=9, borderaxespad=0.2)
        share = "" if q.participation == 1.0 else f", of which {100 * q.participation:.3g} % are active"
        axes.set_xlabel(f"devices n{share}")
        axes.set_ylabel(r"worst-case SNR $P\,\Lambda_{\min}/\sigma^2$ per antenna, dB")
        axes.set_title(
            f"free ε at δ = {number(q.delta)}, {q.relation}; m = {q.antennas}, d = {q.parameters:,}, T = {q.rounds:,}",
            fontsize=10,
            pad=26,
        )
        write_figure(figure, folder, "plan")
