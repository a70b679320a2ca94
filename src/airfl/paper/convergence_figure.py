"""Measured gradient norms beside the noise term of the paper's convergence bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from airfl.report.figures import RC, write_figure

#: Predictions are black and grey; the two measured lines differ by dashes and markers as well.
MEASURED = "#0072B2"


@dataclass(frozen=True)
class GradientTrace:
    """One run, round by round; arrays [trials, T] in units of a squared gradient.

    Attributes:
        title: of its panel.
        gradient_norm2: ᾱ_t ‖∇f(θ_t)‖², measured.
        noise_term: what the bound says the noise of round t adds, :meth:`ConvergenceBound.estimation_by_round`.
        curvature_term: the same with the mean curvature tr(∇²f)/d in place of the largest, L.
    """

    title: str
    gradient_norm2: np.ndarray
    noise_term: np.ndarray
    curvature_term: np.ndarray | None = None


def running_mean(values: np.ndarray) -> np.ndarray:
    """Mean over the rounds so far, along the last axis."""
    return np.asarray(np.cumsum(values, axis=-1) / np.arange(1, values.shape[-1] + 1))


def draw_convergence(traces: Sequence[GradientTrace], folder: Path, name: str = "convergence") -> None:
    """One panel per trace on a common logarithmic axis, as NAME.png, .pdf and .svg."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(max(6.2, 3.3 * len(traces)), 4.3))
        FigureCanvasAgg(figure)
        shared: Axes | None = None
        for index, trace in enumerate(traces):
            shared = axes = figure.add_subplot(1, len(traces), index + 1, sharey=shared)
            _panel(axes, trace)
            if index:
                axes.tick_params(labelleft=False)
        figure.axes[0].set_ylabel("squared norm of the gradient of the loss")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8.5, handlelength=3.2)
        write_figure(figure, folder, name)


def _panel(axes: Axes, trace: GradientTrace) -> None:
    measured, noise = trace.gradient_norm2, trace.noise_term
    rounds = np.arange(1, measured.shape[1] + 1)
    sparse = max(1, len(rounds) // 8)
    axes.semilogy(
        rounds, noise.mean(axis=0), color="#999999", linewidth=1.0, label="noise term of the bound, per round"
    )
    axes.semilogy(
        rounds,
        running_mean(noise).mean(axis=0),
        color="#000000",
        linestyle=(0, (6, 2)),
        label="noise term of the bound, mean so far",
    )
    axes.semilogy(
        rounds,
        measured.mean(axis=0),
        color=MEASURED,
        linewidth=1.2,
        marker="o",
        markevery=(0, sparse),
        label="measured ᾱ‖∇f‖², per round",
    )
    axes.semilogy(
        rounds,
        running_mean(measured).mean(axis=0),
        color=MEASURED,
        linestyle=(0, (3, 1.5, 1, 1.5)),
        marker="s",
        markerfacecolor="white",
        markevery=(sparse // 2, sparse),
        label="measured ᾱ‖∇f‖², mean so far",
    )
    if len(measured) > 1:
        axes.fill_between(rounds, measured.min(axis=0), measured.max(axis=0), color=MEASURED, alpha=0.2, linewidth=0)
    if trace.curvature_term is not None:
        axes.semilogy(
            rounds,
            trace.curvature_term.mean(axis=0),
            color="#000000",
            linestyle=(0, (1, 1.2)),
            label="noise term with the mean curvature for L",
        )
    axes.set_title(trace.title, fontsize=10)
    axes.set_xlabel("round")
