"""δ(ε) of rounds whose participation is hidden, from below: privacy losses on a grid, each rounded down.

A device sends N times its update, N = k with probability p_k. Worlds are pairs of mixtures of Gaussians in one
dimension, in which the loss rises with what is received, so its law follows from distribution functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr

#: Points of a grid, and standard deviations beyond which nothing is looked at.
POINTS, FAR = 20_000, 9.0


@dataclass(frozen=True)
class Hidden:
    """A round: P(N = k), k = 0, 1, …, and how far one update moves it, in standard deviations of its noise."""

    chances: tuple[float, ...]
    mu: float


def least_delta(rounds: Sequence[Hidden], pairs: Sequence[tuple[float, float]], epsilon: float) -> float:
    """No more than δ(ε) of all rounds together, for the worst of some pairs of updates, in either direction."""
    found = 0.0
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            found = max(found, _least(rounds, one, other, epsilon))
    return found


def _least(rounds: Sequence[Hidden], one: float, other: float, epsilon: float) -> float:
    """Of receiving multiples of ``one`` against multiples of ``other``."""
    edges = []
    for item in rounds:
        middles = [k * item.mu * update for update in (one, other) for k in range(len(item.chances))]
        edges.append(np.linspace(min(middles) - FAR, max(middles) + FAR, POINTS))
    losses = [_loss(item, x, one, other) for item, x in zip(rounds, edges, strict=True)]
    lowest = [float(loss.min()) for loss in losses]
    step = max(float(loss.max()) - low for loss, low in zip(losses, lowest, strict=True)) / POINTS or 1e-300
    whole = np.ones(1)
    for item, x, loss, low in zip(rounds, edges, losses, lowest, strict=True):
        chance = np.diff(_distribution(item, x, one))
        place = np.floor((np.minimum(loss[1:], loss[:-1]) - low) / step).astype(int)
        whole = fftconvolve(whole, np.bincount(place, chance.clip(min=0.0)))
    total = sum(lowest) + step * np.arange(len(whole))
    above = total > epsilon
    return float((whole[above].clip(min=0.0) * -np.expm1(epsilon - total[above])).sum())


def _loss(item: Hidden, x: np.ndarray, one: float, other: float) -> np.ndarray:
    return _log_density(item, x, one) - _log_density(item, x, other)


def _log_density(item: Hidden, x: np.ndarray, update: float) -> np.ndarray:
    logs = [
        math.log(chance) - 0.5 * (x - k * item.mu * update) ** 2 for k, chance in enumerate(item.chances) if chance > 0
    ]
    found: np.ndarray = np.logaddexp.reduce(logs, axis=0)
    return found


def _distribution(item: Hidden, x: np.ndarray, update: float) -> np.ndarray:
    found: np.ndarray = np.sum([p * ndtr(x - k * item.mu * update) for k, p in enumerate(item.chances)], axis=0)
    return found
