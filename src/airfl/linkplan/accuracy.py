"""What noise costs in accuracy: one simple formula, its parameters in one place, and a check against measurements.

Over T rounds the updates add up to T·K·u at most (u = ‖mean update‖), and the noise to √(T·v) per coordinate. Their
ratio, the residual noise

    z = √(v/T) / (K·u),

is √(T·d) times smaller than the noise-to-update ratio of a round. Where a budget sets the noise, v = T·S²/μ*², it is
z = S/(μ*·K·u): neither T nor d nor the clip norm is left, only how many devices add up. The prediction is

    cost = (noiseless accuracy − chance) · (1 − exp(−(z/scale)^power)),

with a scale and a power for models of some sizes, and values in between for sizes in between. It knows nothing else
about model, data or tuning. Treat it as a rule of thumb, and read the error that is printed with it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from airfl.errors import InputError, in_words
from airfl.places import experiments_folder
from airfl.privacy import Neighbours, gaussian_mu, reach, relation_of

#: Norm of the averaged update over the clip norm where nothing else is stated: devices pull in different directions.
ALIGNMENT = 0.3
#: Accuracy of guessing among ten classes, and of a noiseless run, where nothing else is known.
CHANCE, NOISELESS = 0.1, 0.85


@dataclass(frozen=True)
class CostModel:
    """The prediction's parameters and where they come from.

    Attributes:
        models: names of the models whose accuracies it was fitted on.
        epsilons: the smallest and the largest ε it was fitted on.
    """

    scale: float
    power: float
    source: str
    models: tuple[str, ...] = ()
    epsilons: tuple[float, float] = (0.25, 8.0)

    def cost(self, residual: float, noiseless: float = NOISELESS) -> float:
        """Accuracy lost at this residual noise, as a fraction (0.01 is one point)."""
        return (noiseless - CHANCE) * -math.expm1(-((residual / self.scale) ** self.power))

    def residual_for(self, cost: float, noiseless: float = NOISELESS) -> float:
        """The residual noise that costs so much: the inverse of ``cost``."""
        return float(self.scale * (-math.log1p(-cost / (noiseless - CHANCE))) ** (1.0 / self.power))


@dataclass(frozen=True)
class Measured:
    """One measured accuracy: a row of ``perk.csv``."""

    devices: int
    model: str
    epsilon: float
    delta: float
    neighbours: Neighbours
    accuracy: float
    noiseless: float

    @property
    def residual(self) -> float:
        """z of a run whose budget sets the noise and in which all devices take part."""
        return reach(self.neighbours) / (gaussian_mu(self.epsilon, self.delta) * self.devices * ALIGNMENT)


@dataclass(frozen=True)
class Check:
    """How far predictions are from measurements, in accuracy.

    Attributes:
        by_model: median and largest error of each model.
    """

    points: int
    median_error: float
    largest_error: float
    worst: Measured
    by_model: dict[str, tuple[float, float]]

    @property
    def summary(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "points": self.points,
            "models": list(self.by_model),
            "median_error": self.median_error,
            "largest_error": self.largest_error,
            "by_model": {
                name: {"median_error": middle, "largest_error": largest}
                for name, (middle, largest) in self.by_model.items()
            },
            "worst": vars(self.worst),
        }


def fit(points: Sequence[Measured], source: str) -> CostModel:
    """Least squares in scale and power, on the roots of the costs: who plans asks where they are small."""
    if len(points) < 2:
        raise InputError("a fit needs at least two measured accuracies at a finite ε")

    def misses(logs: np.ndarray, /) -> list[float]:
        model = CostModel(math.exp(logs[0]), math.exp(logs[1]), source)
        return [
            math.sqrt(model.cost(p.residual, p.noiseless)) - math.sqrt(max(0.0, p.noiseless - p.accuracy))
            for p in points
        ]

    found = optimize.least_squares(misses, [math.log(0.02), math.log(1.5)])
    return CostModel(math.exp(found.x[0]), math.exp(found.x[1]), source)


#: What the planner predicts with, by number of parameters: fits on the study ``experiments/results/perk.csv``, rounded
#: (a test holds them together).
SHIPPED = {
    7_850: CostModel(0.302, 0.873, "softmax regression with 50 to 60,000 devices", ("linear",)),
    29_994: CostModel(0.152, 0.871, "a small CNN with 50 to 60,000 devices", ("small-cnn",)),
    582_026: CostModel(0.137, 0.786, "the paper's CNN with 50 to 6,000 devices", ("paper-cnn",), (0.5, 8.0)),
}


def shipped(parameters: int | None) -> CostModel:
    """The prediction for a model of this size: straight between logarithms; beyond the sizes measured, the nearest."""
    sizes = sorted(SHIPPED)
    size = min(max(parameters or sizes[0], sizes[0]), sizes[-1])
    if size in SHIPPED:
        return SHIPPED[size]
    known = np.log(sizes)
    scale, power = (
        math.exp(np.interp(math.log(size), known, [math.log(getattr(SHIPPED[s], name)) for s in sizes]))
        for name in ("scale", "power")
    )
    above = int(np.searchsorted(sizes, size))
    both = [SHIPPED[s] for s in sizes[above - 1 : above + 1]]
    models = tuple(name for one in both for name in one.models)
    epsilons = max(one.epsilons[0] for one in both), min(one.epsilons[1] for one in both)
    return CostModel(scale, power, " and ".join(one.source for one in both), models, epsilons)


def check(model: CostModel, points: Sequence[Measured]) -> Check:
    """The prediction's error on measured accuracies."""
    return _judged(points, [model] * len(points))


def cross_check(points: Sequence[Measured]) -> Check | None:
    """The error on numbers of devices that the prediction has not seen.

    Each point is predicted by a fit on the same model with other numbers of devices; where there are none, it is left
    out. None if all are.
    """
    kinds = {(p.model, p.devices) for p in points}
    models = {}
    for model, devices in kinds:
        others = [p for p in points if p.model == model and p.devices != devices]
        if len(others) > 1:
            models[model, devices] = fit(others, "")
    judged = [p for p in points if (p.model, p.devices) in models]
    return _judged(judged, [models[p.model, p.devices] for p in judged]) if judged else None


def study_check() -> Check | None:
    """``cross_check`` on the study that is found; None where there is none, or nothing in it can be checked."""
    study = find_study()
    return None if study is None else cross_check(read_measured(study))


def _judged(points: Sequence[Measured], models: Sequence[CostModel]) -> Check:
    if not points:
        raise InputError("there is nothing to check the prediction against")
    errors = [
        abs(m.cost(p.residual, p.noiseless) - (p.noiseless - p.accuracy)) for p, m in zip(points, models, strict=True)
    ]
    own: dict[str, list[float]] = {}
    for point, error in zip(points, errors, strict=True):
        own.setdefault(point.model, []).append(error)
    return Check(
        len(points),
        float(np.median(errors)),
        max(errors),
        points[errors.index(max(errors))],
        {name: (float(np.median(some)), max(some)) for name, some in own.items()},
    )


def read_measured(path: str | Path) -> list[Measured]:
    """The rows of a study's ``perk.csv`` with a finite ε and with accuracies: where all trials fail there are none."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [
            Measured(
                int(row["devices"]),
                row["model"],
                float(row["epsilon"]),
                float(row["delta"]),
                relation_of(row["neighbours"]),
                float(row["accuracy_mean"]),
                float(row["noiseless_accuracy"]),
            )
            for row in rows
            if all(_is_finite(row[name]) for name in ("epsilon", "accuracy_mean", "noiseless_accuracy"))
        ]
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read measured accuracies from `{path}`: {in_words(error)}") from None


def _is_finite(text: str) -> bool:
    """Whether a cell holds a finite number; ∞ and nothing are written in many ways."""
    return text.strip().lower() not in ("", "∞", "none", "null") and math.isfinite(float(text))


def find_study() -> Path | None:
    """``experiments/results/perk.csv`` of the checkout or of the package: what the shipped predictions are fits of."""
    try:
        study = experiments_folder() / "results" / "perk.csv"
    except InputError:
        return None
    return study if study.is_file() else None
